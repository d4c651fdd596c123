"""Describes the boxes of the full run's outputs that are kept, and finds them in shorter runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probe.recording.alone import unequal_bits
from probe.recording.recording import Value
from probe.semantics.labels import Labels


@dataclass(frozen=True)
class KeptPart:
    """Along an ``axis`` of an output: [start, stop) of the full run is [start + offset, stop +
    offset) of the short one."""

    axis: int
    start: int
    stop: int
    offset: int = 0


# What of an output is kept; empty: all of it.
Box = tuple[KeptPart, ...]


# How far before or behind its place in the full run something kept is looked for.
NEAR = 8


def where_kept(
    boxes: Sequence[Box | None], labels: Sequence[tuple[Labels, Labels]], near: int = NEAR
) -> tuple[Box | None, ...] | None:
    """Returns where a short run has what is kept of each output; None where it hasn't all of it.

    ``labels``: of each output of the short run and of the full one. ``near``: see ``NEAR``.
    """
    found: list[Box | None] = []
    for box, (left, right) in zip(boxes, labels, strict=True):
        there = None if box is None else place_of(left, right, box, near)
        if box is not None and there is None:
            return None
        found.append(there)
    return tuple(found)


def box_of(mask: np.ndarray) -> Box | None:
    """Returns the smallest box that has all of a mask, by the axes of which it takes a part."""
    if not mask.any():
        return None
    found = []
    for axis in range(mask.ndim):
        line = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if len(line) < mask.shape[axis]:
            found.append(KeptPart(axis, int(line[0]), int(line[-1]) + 1))
    return tuple(found)


def box_index(box: Box, short: bool, rank: int) -> tuple[slice, ...]:
    """Returns the box as an index into an output: of the short run, or of the full one."""
    found = [slice(None)] * rank
    for part in box:
        moved = part.offset if short else 0
        found[part.axis] = slice(part.start + moved, part.stop + moved)
    return tuple(found)


def place_of(left: Labels, right: Labels, box: Box, near: int = NEAR) -> Box | None:
    """Finds the box, with offsets, in which a short run has the full one's labels; None: nowhere.

    Along an axis that has another size, and that the box takes whole, there is none.
    """
    if len(left.shape) != len(right.shape):
        return None
    named = {part.axis: part for part in box}
    other = [
        axis for axis, (n, m) in enumerate(zip(left.shape, right.shape, strict=True)) if n != m
    ]
    if any(axis not in named for axis in other):
        return None
    axes = [
        axis
        for axis in range(len(right.shape))
        if axis in named
        or not (left.implicit(axis) and right.implicit(axis))
        or left.name(axis) != right.name(axis)
    ]
    mine, theirs = left.full(axes), right.full(axes)
    wanted = theirs[box_index(box, False, theirs.ndim)]
    most = max((right.shape[p.axis] - left.shape[p.axis] for p in box), default=0)
    # where it stands first, then where the sizes before the content may differ
    offsets = [0, *(sign * n for n in range(1, min(most, near) + 1) for sign in (-1, 1))]
    for offset in offsets:
        moved = tuple(
            KeptPart(p.axis, p.start, p.stop, offset if p.axis in other else 0) for p in box
        )
        fits = all(
            p.start + p.offset >= 0 and p.stop + p.offset <= left.shape[p.axis] for p in moved
        )
        if fits and (mine[box_index(moved, True, mine.ndim)] == wanted).all():
            return moved
    return None


def elements_apart(mine: np.ndarray, other: np.ndarray, value: Value) -> int:
    """Returns how many elements have different bits."""
    if mine.shape != other.shape:
        return max(mine.size, other.size)
    return int(unequal_bits(mine, other, value.dtype).sum())
