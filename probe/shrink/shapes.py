"""Proposes smaller shapes: lengths, kernel, channels, filters, and what can be left out.

Features go first (stride, dilation, groups, padding, bias), then sizes. Shapes that are not a case
are passed over at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from probe.comparison import Finding
from probe.errors import InputError
from probe.layout import CONTIGUOUS
from probe.shrink.search import ShrinkStep, smaller

Changes = Iterator[dict[str, Any]]


# What each step proposes, in the order in which they are taken.
PROPOSALS: dict[str, Callable[[Finding], Changes]] = {}


def proposal(name: str) -> Callable[[Callable[[Finding], Changes]], Callable[[Finding], Changes]]:
    """Adds a step of this name."""

    def added(propose: Callable[[Finding], Changes]) -> Callable[[Finding], Changes]:
        PROPOSALS[name] = propose
        return propose

    return added


def shape_steps(draw: Callable[[Finding], Finding]) -> list[ShrinkStep[Finding]]:
    """Returns all steps. ``draw`` gives a candidate the operands with which it is asked."""

    def candidates(propose: Callable[[Finding], Changes]) -> Callable[[Finding], Iterator[Finding]]:
        def given(finding: Finding) -> Iterator[Finding]:
            for changes in propose(finding):
                try:
                    made = finding.reshaped(**changes)
                except InputError:  # not a case
                    continue
                yield draw(made)

        return given

    return [ShrinkStep(name, candidates(propose)) for name, propose in PROPOSALS.items()]


@proposal("everything")
def _smallest_case(finding: Finding) -> Changes:
    """Yields all at its least at once: with the kernel as it is, and with channels too."""
    least: dict[str, Any] = {"stride": 1, "dilation": 1, "height": None}
    least |= {} if finding.vary == "batch" else {"batch": 1}
    least |= {} if finding.padding is not None else {"padding": "valid"}
    least |= {"bias": None} if finding.case.weighted else {}
    least |= _per_group(finding, "filters", 1)
    one = _per_group(finding, "in_channels", 1)
    for changes in (least | one, least):
        for pair in _closest_pair(finding):
            yield changes | pair


def _closest_pair(finding: Finding) -> Changes:
    """Yields the pair moved together, the smaller value kept or at its least."""
    if not finding.paired or finding.vary == "layout":
        yield {}
        return
    low, high = _pair_in_order(finding)
    for small in dict.fromkeys((_least_value(finding), low)):
        for apart in (1, 2, 4, 8):  # neighbours, or lanes of a vector and its halves
            if apart <= high - low:
                yield _as_pair(finding, small, small + apart)


@proposal("pair")
def _smaller_pairs(finding: Finding) -> Changes:
    """Yields the two values of the axis: closer together, the smaller one smaller, both smaller."""
    if not finding.paired or finding.vary == "layout":
        return
    (low, high), least = _pair_in_order(finding), _least_value(finding)
    for apart in smaller(high - low):
        yield _as_pair(finding, low, low + apart)
    for small in smaller(low, least):
        yield _as_pair(finding, small, small + 1)
        yield _as_pair(finding, small, small + high - low)
    for small in smaller(low, least):
        yield _as_pair(finding, small, high)


def _pair_in_order(finding: Finding) -> tuple[int, int]:
    assert finding.at is not None and finding.against is not None
    low, high = sorted((finding.at, finding.against))
    return low, high


def _least_value(finding: Finding) -> int:
    """Returns the smallest value that the axis can have."""
    if finding.vary == "length":
        return max(finding.left.shortest_length, finding.right.shortest_length)
    return finding.case.groups if finding.vary == "filters" else 1


def _as_pair(finding: Finding, low: int, high: int) -> dict[str, Any]:
    assert finding.at is not None and finding.against is not None
    upwards = finding.at < finding.against
    return {"at": low, "against": high} if upwards else {"at": high, "against": low}


@proposal("length")
def _smaller_lengths(finding: Finding) -> Changes:
    """Yields the length of both sides, where it is not what sets them apart."""
    if finding.paired and finding.vary == "length":
        return
    assert finding.left.length is not None
    least = max(finding.left.shortest_length, finding.right.shortest_length)
    for length in smaller(finding.left.length, least):
        at = {"at": length} if finding.vary == "length" else {}
        yield {"length": length, **at}


@proposal("groups")
def _groups(finding: Finding) -> Changes:
    """Yields one group with the channels that one has, with all channels, and fewer groups."""
    case = finding.case
    if case.groups == 1 or case.operation.depthwise:
        return
    filters = case.filters // case.groups
    for groups in smaller(case.groups):
        channels = {"in_channels": case.group_channels * groups, "filters": filters * groups}
        yield {"groups": groups, **channels}
    yield {"groups": 1}


@proposal("features")
def _features(finding: Finding) -> Changes:
    """Stride, dilation, bias and the modes of pooling: left out, or the numbers smaller."""
    case = finding.case
    for name in ("stride", "dilation"):
        yield from _smaller_axes(name, getattr(case, name), 1)
    if case.bias is not None:
        yield {"bias": None}
    if case.split is not None:
        yield {"split": None}
    if case.ceil_mode:
        yield {"ceil_mode": False}
    if case.pad_with != "nothing":
        yield {"pad_with": "nothing"}
    if case.layout != CONTIGUOUS and finding.vary != "layout":
        yield {"layout": CONTIGUOUS}


@proposal("padding")
def _less_padding(finding: Finding) -> Changes:
    """No padding, or less of it; as it is where two paddings are compared."""
    padding = finding.case.padding
    if finding.padding is not None or padding == "valid":
        return
    yield {"padding": "valid"}
    if isinstance(padding, str):
        return
    for axis, (before, after) in enumerate(padding):
        fewer = [(0, after), (before, 0), *((n, after) for n in smaller(before))]
        for pair in [*fewer, *((before, n) for n in smaller(after))]:
            if pair != (before, after):
                yield {"padding": (*padding[:axis], pair, *padding[axis + 1 :])}


def _smaller_axes(name: str, sizes: tuple[int, ...], least: int) -> Changes:
    """Yields all axes at ``least``, then each one smaller."""
    if set(sizes) != {least}:
        yield {name: least}
    for axis, size in enumerate(sizes):
        for less in smaller(size, least):
            yield {name: (*sizes[:axis], less, *sizes[axis + 1 :])}


@proposal("batch")
def _batch(finding: Finding) -> Changes:
    if finding.vary != "batch" or not finding.paired:
        yield from ({"batch": batch} for batch in smaller(finding.case.batch))


@proposal("height")
def _height(finding: Finding) -> Changes:
    case = finding.case
    if case.height is None:
        return
    yield {"height": None}
    for axis, size in enumerate(case.height):
        for less in smaller(size):
            yield {"height": (*case.height[:axis], less, *case.height[axis + 1 :])}


@proposal("channels")
def _fewer_channels(finding: Finding) -> Changes:
    if finding.vary == "channels" and finding.paired:
        return
    case = finding.case
    depthwise = case.operation.depthwise
    for channels in smaller(case.in_channels if depthwise else case.group_channels):
        yield _per_group(finding, "in_channels", channels)


@proposal("filters")
def _fewer_filters(finding: Finding) -> Changes:
    case = finding.case
    if finding.vary == "filters" and finding.paired:
        return
    for filters in smaller(case.filters // case.groups):
        yield _per_group(finding, "filters", filters)


def _per_group(finding: Finding, name: str, size: int) -> dict[str, Any]:
    """Channels or filters of a group; {} for the axis that sets the sides apart, or without any."""
    case = finding.case
    what = case.operation
    if name == "filters":
        fixed = not what.weighted or (finding.paired and finding.vary == "filters")
        return {} if fixed else {"filters": size * case.groups}
    if finding.paired and finding.vary == "channels":
        return {}
    if not what.depthwise:
        return {"in_channels": size * case.groups}
    return {"in_channels": size, "groups": None, "filters": case.filters // case.groups * size}


@proposal("kernel")
def _kernel(finding: Finding) -> Changes:
    case = finding.case
    if not case.operation.windows:
        return
    for changes in _smaller_axes("kernel", case.kernel, 1):
        yield changes | _as_many_outputs(finding, changes["kernel"])
        yield changes


def _as_many_outputs(finding: Finding, kernel: int | tuple[int, ...]) -> dict[str, Any]:
    """Returns the lengths at which a smaller kernel gives as many outputs: their number may
    decide."""
    last = kernel if isinstance(kernel, int) else kernel[-1]
    less = (finding.case.kernel[-1] - last) * finding.case.dilation[-1]
    names = ("at", "against") if finding.paired and finding.vary == "length" else ("length",)
    sizes = finding.case.arguments() | {"at": finding.at, "against": finding.against}
    return {name: sizes[name] - less for name in names if sizes[name] is not None and less}
