"""The operators by name: what each has, and what it has no word for.

A matrix product is a convolution with a kernel of 1 along its rows: x (batch, length, in_channels),
w (1, in_channels, filters), that is ``length`` rows by ``filters`` columns. ``matmul`` multiplies
matrices, a stack of them where ``batch`` is more than 1; ``dot`` is the same product with one row
or one column handed over as a vector (dot product, matrix times vector). ``sum`` adds up the
``in_channels`` elements of each of ``length`` rows; its weights are 1 and no library sees them.
``dense``, also called ``linear``, is a fully connected layer: x (batch, in_channels), w
(in_channels, filters). It has no spatial axis: its rows are the batch, and its length is always 1.
Pooling is by channel and has no weights either: ``max_pool2d`` keeps the largest element of a
window, ``avg_pool2d`` their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from probe.case.arguments import Sizes, by, count, sizes
from probe.errors import InputError


class Operator(NamedTuple):
    """What an operator's name means for shapes.

    ``windows``: it has kernel, stride, dilation, padding and groups. ``weighted``: it has weights,
    filters and a bias; without them all weights are 1. ``pool``: ``max``, ``avg`` or neither.
    """

    spatial_rank: int
    depthwise: bool = False
    windows: bool = True
    weighted: bool = True
    batched: bool = True
    pool: str = ""


OPERATORS = {
    "conv1d": Operator(1),
    "conv2d": Operator(2),
    "conv3d": Operator(3),
    "depthwise_conv2d": Operator(2, depthwise=True),
    "matmul": Operator(1, windows=False),
    "dot": Operator(1, windows=False, batched=False),
    "sum": Operator(1, windows=False, weighted=False),
    "dense": Operator(0, windows=False),
    "max_pool1d": Operator(1, depthwise=True, weighted=False, pool="max"),
    "max_pool2d": Operator(2, depthwise=True, weighted=False, pool="max"),
    "avg_pool1d": Operator(1, depthwise=True, weighted=False, pool="avg"),
    "avg_pool2d": Operator(2, depthwise=True, weighted=False, pool="avg"),
}

ALIASES = {"linear": "dense"}
"""Further names of operators: Keras says Dense, PyTorch says Linear."""


def length(op: str, value: object) -> int | None:
    """The last spatial axis; None leaves it open. An operator without such an axis has 1."""
    size = None if value is None else count("length", value)
    if OPERATORS[op].spatial_rank or size == 1:
        return size
    if size is None:
        return 1
    why = f"{op} has no length: its rows are its batch"
    raise InputError("length", size, why, "leave it out, and write batch=N")


def kernel(op: str, size: Sizes | None) -> tuple[int, ...]:
    """The kernel on every axis; 1 for an operator without one."""
    if size is not None:
        return sizes("kernel", size, OPERATORS[op].spatial_rank)
    if OPERATORS[op].windows:
        raise InputError("kernel", None, "a case needs it", "write kernel=N, its size")
    return (1,) * OPERATORS[op].spatial_rank


def height(value: Sizes, rank: int) -> tuple[int, ...]:
    """The spatial axes before the last."""
    if rank > 1:
        return sizes("height", value, rank - 1)
    why = f"this operator has {'one' if rank else 'no'} spatial axis" + " only" * rank
    raise InputError("height", value, why, "leave it out, or use conv2d")


def groups_and_filters(op: str, channels: int, groups: object, filters: object) -> tuple[int, int]:
    """Groups and filters with their defaults, checked against the channels."""
    depthwise = OPERATORS[op].depthwise
    default = channels if depthwise else 1
    group_count = default if groups is None else count("groups", groups)
    filter_count = default if filters is None else count("filters", filters)
    if depthwise and group_count not in (1, channels):
        why = f"a depthwise operator has as many groups as channels, {channels}"
        raise InputError("groups", group_count, why, "leave it out")
    group_count = channels if depthwise else group_count
    for name, number in (("in_channels", channels), ("filters", filter_count)):
        if number % group_count:
            why = f"not divisible by the {group_count} groups"
            todo = f"use a multiple of {group_count}" + ("" if depthwise else ", or other groups")
            raise InputError(name, number, why, todo)
    return group_count, filter_count


def check(op: str, given: Mapping[str, Any]) -> None:
    """Raises InputError where ``given``, a case's arguments, says what the operator hasn't got."""
    what = OPERATORS[op]
    fixed: dict[str, Any] = {}
    if not what.windows:
        ones = (1,) * what.spatial_rank
        fixed |= {"kernel": ones, "stride": ones, "dilation": ones}
        fixed |= {"groups": 1, "padding": "valid"}
    if not what.weighted:
        filters = given["in_channels"] if what.pool else 1
        fixed |= {"filters": filters, "weights": None, "bias": None}
    if not what.pool:
        fixed |= {"ceil_mode": False, "pad_with": "nothing"}
    if not what.batched:
        fixed["batch"] = 1
    if given["ceil_mode"] and given["padding"] in ("same", "same_lower"):
        why = f"{given['padding']} has ceil(size / stride) outputs already"
        raise InputError("ceil_mode", True, why, "leave it out")
    for name, value in fixed.items():
        if given[name] != value:
            shown = by(given[name]) if name in ("kernel", "stride", "dilation") else given[name]
            raise InputError(name, shown, f"{op} has none", "leave it out")
