"""Finds which outputs must agree: their windows hold the same inputs and weights.

Two windows are the same if every leaf reads the same input in both, or padding in both. Where the
padding before depends on the length (``same`` with a stride), output o of one side is output
``o + (before' - before) / stride`` of the other. Along each axis the partners are runs of
neighbours; there is more than one run only where a dilated window steps over the elements that one
side lacks, or where groups of filters shift.

``channels`` is another matter: both sides read the same windows, but the first A channels of B and
the other B - A go through two calls whose outputs are added, against one call for all B. All
outputs are equal in exact arithmetic and are compared; that the orders differ is by construction.

``layout`` changes no value at all, only where the operands lie: all outputs must agree. Its values
are the numbers of :mod:`probe.layout`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probe import layout
from probe.arguments import choice, whole_number
from probe.case import Case
from probe.errors import InputError
from probe.window.geometry import Geometry

VARY = ("length", "batch", "filters", "channels", "layout")

Slices = tuple[slice, ...]
Run = tuple[slice, slice]


@dataclass(frozen=True)
class Agreement:
    """Outputs of a left and a right side that must agree.

    ``blocks``: (left, right) pairs of slices over (batch, *positions, filters), of equal sizes, the
    largest one first; nearly always there is one. ``outputs`` counts those of the left side, and
    ``reason`` says why some of them have no partner (empty if all have).
    """

    blocks: tuple[tuple[Slices, Slices], ...]
    outputs: int
    reason: str = ""

    @property
    def compared(self) -> int:
        """Returns outputs that must agree."""
        return sum(math.prod(part.stop - part.start for part in left) for left, _ in self.blocks)

    @property
    def not_compared(self) -> int:
        return self.outputs - self.compared


def axis_of(case: Case, vary: str | None) -> str:
    """Returns the axis to vary: ``vary``; for None the length, of a dense layer the batch.
    InputError."""
    if vary is None:
        return "length" if case.spatial_rank else "batch"
    if choice("vary", vary, VARY) == "length" and not case.spatial_rank:
        why = f"{case.op} has no length: its rows are its batch"
        raise InputError("vary", vary, why, "use batch, filters, channels or layout")
    return vary


def case_for(case: Case, vary: str, values: Iterable[int]) -> Case:
    """Returns the case that ``case_at`` takes for each of the values. Raises InputError.

    The same, but for ``channels``: it has as many as the largest value, from which the others
    split off the first ones. Explicit weights keep those of these channels.
    """
    if choice("vary", vary, VARY) != "channels":
        return case
    total = max(whole_number("channels", value) for value in values)
    changes: dict[str, object] = {"in_channels": total, "split": None}
    if case.weights is not None:
        if total > case.in_channels:
            why = f"weights are given for {case.in_channels} channels only"
            raise InputError("channels", total, why, "give weights for all, or fewer channels")
        table = np.array(case.weights).reshape(-1, case.group_channels, case.filters)
        changes["weights"] = tuple(table[:, :total].ravel().tolist())
    return case.with_(**changes)


def case_at(case: Case, vary: str, value: int) -> Case:
    """Returns the case with its length, batch, filters or layout set to ``value``. Raises
    InputError.

    Explicit weights and biases keep those of the first ``value`` filters. ``channels``: those
    beyond ``value`` go through a second call (``Case.split``), so it is at most ``in_channels``.
    """
    choice("vary", vary, VARY)
    if vary == "layout":
        return case.with_(layout=named_layout(value))
    if vary == "channels":
        value = whole_number("channels", value)
        if value > case.in_channels:
            why = f"the case has {case.in_channels} channels to split"
            raise InputError("channels", value, why, f"use {case.in_channels} or fewer")
        return case.with_(split=None if value == case.in_channels else value)
    if vary != "filters":
        return case.with_(**{vary: value})
    value = whole_number("filters", value)
    changes: dict[str, object] = {"filters": value}
    explicit = {"weights": case.weights, "bias": case.bias}
    for name, numbers in explicit.items():
        if not isinstance(numbers, tuple):
            continue
        if value > case.filters:
            why = f"{name} are given for {case.filters} filters only"
            raise InputError("filters", value, why, f"give {name} for all, or fewer filters")
        table = np.array(numbers).reshape(-1, case.filters)
        changes[name] = tuple(table[:, :value].ravel().tolist())
    return case.with_(**changes)


def value_on_axis(case: Case, vary: str) -> int | None:
    """Returns the case's value on an axis, which ``case_at`` would give it; None: an open
    length."""
    if choice("vary", vary, VARY) == "channels":
        return case.split or case.in_channels
    if vary == "layout":
        return layout.layout_number(case.layout)
    value: int | None = getattr(case, vary)
    return value


def number_of(vary: str, given: int | str | None) -> int | None:
    """Returns the number of an axis' value: that of a layout's word, else itself. InputError."""
    if vary != "layout" or given is None:
        return given  # type: ignore[return-value]
    if isinstance(given, int):
        return layout.layout_number(named_layout(given))
    try:
        return layout.layout_number(layout.parse_layout(given))
    except ValueError as error:
        raise InputError("layout", given, str(error), layout.HOW) from None


def shown_axis_value(vary: str, value: Any) -> Any:
    """Returns a value as JSON and texts have it: a layout's word, else itself."""
    return named_layout(value) if vary == "layout" and value is not None else value


def named_layout(value: int) -> str:
    """Returns the word of a layout's number. InputError: it stands for none."""
    try:
        return layout.layout_of_number(value)
    except ValueError as error:
        raise InputError("layout", value, str(error), layout.HOW) from None


def agreement(
    case: Case, vary: str, at: int, against: int, against_padding: object | None = None
) -> Agreement:
    """Returns what must agree between ``vary=at`` (left) and ``vary=against`` (right).

    The side with the smaller value gets the prefix of the other's input, weights or batch.
    ``against_padding`` gives the right side another padding. Outputs that read nothing but padding
    are compared with the partner at the same place only. Raises InputError.
    """
    right = case if against_padding is None else case.with_(padding=against_padding)
    left, other = _side_at(case, vary, at), _side_at(right, vary, against)
    # blocks of partners: the product of the runs along every axis, the largest one first
    axes = [[(slice(0, min(left.batch, other.batch)),) * 2]]
    axes += [_partners(left.windows, other.windows, axis) for axis in range(len(left.shape) - 2)]
    # filters read the same channels where they are in groups of the same number
    number = np.arange(min(left.filters, other.filters))
    groups = [number // (side.filters // side.windows.groups) for side in (left, other)]
    axes += [[(run, run) for run in _runs_of_true(groups[0] == groups[1])]]
    blocks = []
    for runs in itertools.product(*axes):
        ours, theirs = zip(*runs, strict=True)
        blocks.append((ours, theirs))
    blocks.sort(key=lambda block: -math.prod(part.stop - part.start for part in block[0]))
    found = Agreement(tuple(blocks), math.prod(left.shape))
    return replace(found, reason=_reason(left, other, vary)) if found.not_compared else found


@dataclass(frozen=True)
class _ComparedSide:
    """One side of a comparison."""

    windows: Geometry
    batch: int
    filters: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, *self.windows.outputs, self.filters)


def _side_at(case: Case, vary: str, value: int) -> _ComparedSide:
    choice("vary", vary, VARY)
    value = whole_number(vary, value)
    if vary == "length":
        windows = Geometry.of(case, value)
        if windows.outputs[-1] < 1:
            case.with_(length=value)  # says why there is no output
        return _ComparedSide(windows, case.batch, case.filters)
    if vary == "batch":
        return _ComparedSide(Geometry.of(case), value, case.filters)
    if vary in ("channels", "layout"):
        return _ComparedSide(Geometry.of(case_at(case, vary, value)), case.batch, case.filters)
    return _ComparedSide(Geometry.of(case_at(case, "filters", value)), case.batch, value)


def _partners(left: Geometry, right: Geometry, axis: int) -> list[Run]:
    """Runs of outputs along one spatial axis whose windows are the same on both sides."""
    shift = right.around[axis][0] - left.around[axis][0]
    # windows of the two sides start between each other: none are the same
    if shift % left.windows.stride[axis]:
        return []
    offset = shift // left.windows.stride[axis]
    index = left.axis_reads(axis)
    short, long = sorted((left.sizes[axis], right.sizes[axis]))
    same = ~((index >= short) & (index < long)).any(axis=1)
    partner = np.arange(left.outputs[axis]) + offset
    same &= (partner >= 0) & (partner < right.outputs[axis])
    return [(run, slice(run.start + offset, run.stop + offset)) for run in _runs_of_true(same)]


def _runs_of_true(mask: np.ndarray) -> list[slice]:
    """Returns the runs of True in a mask."""
    if len(mask) and mask.all():
        return [slice(0, len(mask))]
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _reason(left: _ComparedSide, right: _ComparedSide, vary: str) -> str:
    """Returns why some outputs on the left have no partner."""
    for axis, stride in enumerate(left.windows.windows.stride):
        ours, theirs = left.windows.around[axis][0], right.windows.around[axis][0]
        if (theirs - ours) % stride:
            return (
                f"{ours} and {theirs} zeros before: this is not a multiple of the stride {stride}"
            )
    if vary == "filters" and left.windows.groups > 1:
        return "filters are in a different group, or the other side has fewer"
    if vary == "length" or left.windows.around != right.windows.around:
        return "windows contain padding at a different place, or the other side has no such windows"
    return f"the other side has fewer {'filters' if vary == 'filters' else 'batch entries'}"
