"""Outputs and inputs as people write them: ``out[0, 3..7, *]``, ``x[-] x[0] x[1]``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from probe.answers.window import Windows
from probe.case import Case
from probe.printing import ranges

Region = tuple[np.ndarray, ...]


def regions(mask: np.ndarray) -> Iterator[Region]:
    """The True entries of a mask as disjoint products of indices, one index set an axis.

    Slices along the first axis that look alike are taken together, and so on inwards.
    """
    if mask.ndim == 1:
        if mask.any():
            yield (np.flatnonzero(mask),)
        return
    rows = mask.reshape(len(mask), -1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    for number in np.argsort(first):
        members = np.flatnonzero(which.reshape(-1) == number)
        for inner in regions(mask[members[0]]):
            yield (members, *inner)


def outputs(mask: np.ndarray, most: int = 4) -> str:
    """Where a mask of the output's shape is True; at most ``most`` regions are written out.

    Axes of one entry are left out, ``*`` is all of an axis.
    """
    found = list(regions(mask))
    if mask.size == 1:
        return "the output" if found else "none"
    text = "; ".join(_region(region, mask.shape) for region in found[:most])
    more = len(found) - most
    return f"{text}; and {more} more such blocks" if more > 0 else text or "none"


def _region(region: Region, shape: tuple[int, ...]) -> str:
    """Axes with one entry are not written."""
    parts = [
        "*" if len(indices) == size else ranges(indices.tolist(), 8)
        for indices, size in zip(region, shape, strict=True)
        if size > 1
    ]
    several = len(parts) > 1
    return f"out[{', '.join(f'({part})' if several and ',' in part else part for part in parts)}]"


def name(index: tuple[int, ...], tensor: str = "out") -> str:
    """One entry with all its indices: ``out[0, 3, 7]``."""
    return f"{tensor}[{', '.join(map(str, index))}]"


SHOWN = 12
"""Outputs that are written out: the first, the last, and those that are not as predicted."""

READS = 12
"""Reads of one output that are written out."""


def windows(found: Windows) -> RenderableType:
    """Returns a line an output: the first and last ones, and those not where the padding says."""
    case, same = found.case, found.same
    groups = (_group(case, group, found.revealed, same) for group in range(case.groups))
    return Group(
        Text(f"{case.label} on {found.target}", "bold"),
        _headline(case, same),
        "",
        *(line for group in groups for line in group),
    )


def _headline(case: Case, same: np.ndarray) -> Text:
    groups = "" if case.groups == 1 else f" in {case.groups} groups"
    text = Text(f"{same.size:,} windows{groups} of {case.summands:,} inputs read off; ")
    if same.all():
        return text.append(f"all where padding={case.padding_text} says", "green")
    wrong = int((~same).sum())
    return text.append(f"{wrong:,} not where padding={case.padding_text} says", "bold red")


def _group(
    case: Case, group: int, revealed: np.ndarray, same: np.ndarray
) -> Iterator[RenderableType]:
    """The first group in full; of the others what is not as predicted."""
    if group and same[group].all():
        if group == case.groups - 1:
            yield Text("the other groups read alike, their own channels", "dim")
        return
    if case.groups > 1:
        yield Text(f"filter {group * (case.filters // case.groups)}", "bold")
    positions = revealed.shape[1]
    wrong = np.flatnonzero(~same[group])[:SHOWN].tolist()
    ends = range(positions) if positions <= SHOWN else [*range(5), *range(positions - 4, positions)]
    before = -1
    for position in sorted({*ends, *wrong}):
        if position != before + 1:
            yield Text("...", "dim")
        before = position
        line = f"{_output(case, position)} reads {reads(case, revealed[group, position])}"
        yield Text(line, "" if same[group, position] else "red")


def _output(case: Case, position: int) -> str:
    shape = case.output_shape()[:-1]
    return _named("out", np.unravel_index(position, shape), shape)


def reads(case: Case, met: np.ndarray) -> str:
    """What one output reads, kernel position by kernel position: ``x[-] x[0] x[1]``."""
    shape, channels = case.input_shape(), case.group_channels
    rows = np.asarray(met).reshape(-1, channels)
    words = []
    for row in rows[:READS]:
        if (row < 0).all():
            words.append("x[-]")
        elif channels > 1 and (row >= 0).all() and (np.diff(row) == 1).all():
            words.append(_span(int(row[0]), channels, shape))
        else:
            words += ["x[-]" if i < 0 else _input(int(i), shape) for i in row]
    more = len(rows) - READS
    return " ".join(words) + (f" ... ({more} more)" if more > 0 else "")


def _input(flat: int, shape: tuple[int, ...]) -> str:
    return _named("x", np.unravel_index(flat, shape), shape)


def _span(flat: int, channels: int, shape: tuple[int, ...]) -> str:
    """Neighbouring channels of one place."""
    *place, channel = (int(i) for i in np.unravel_index(flat, shape))
    span = "*" if channels == shape[-1] else f"{channel}..{channel + channels - 1}"
    return _named("x", (*place, span), shape)


def _named(tensor: str, index: tuple[object, ...], shape: tuple[int, ...]) -> str:
    """An entry by its indices; axes of one entry are left out."""
    kept = [str(i) for i, size in zip(index, shape, strict=True) if size > 1] or ["0"]
    return f"{tensor}[{', '.join(kept)}]"
