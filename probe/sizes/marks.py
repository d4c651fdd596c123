"""Operands that sizes are tried with, and the outputs that are compared.

Bits that agree on one input prove little about the next. So each size meets the user's own arrays,
four other contents (large ones of either sign, two random ones), and the user's numbers scaled:
by little, and through the whole range of exponents, which rounds sums of another order otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probe.case import floats
from probe.case.operands import normal
from probe.diff.alone import unequal_bits
from probe.diff.repeated import HALF, close, contents, is_mask

Arrays = Mapping[str, np.ndarray]

# Sets of operands: the user's own, other contents, and scaled ones.
CONTENTS, SETS = 4, 8

SEED = 52_000

# How far before or behind its place in the full run something kept is looked for.
MOVED_BY = 8


def operand_set(arrays: Arrays, along: Mapping[str, int], number: int) -> Arrays:
    """The arrays with the numbers of a set. Of ``CONTENTS`` only those ``along`` an axis change;
    masks stay, as they do behind a place."""
    if number == 0:
        return arrays
    if number <= CONTENTS:
        where = {
            name: np.full(array.shape, name in along and not is_mask(array))
            for name, array in arrays.items()
        }
        return list(contents(arrays, where))[number - 1]
    changed = {}
    for place, (name, array) in enumerate(arrays.items()):
        if str(array.dtype) in floats.FORMATS and array.dtype != np.uint16 and not is_mask(array):
            draw = normal(SEED + 101 * number + place, "x", array.shape)
            factor = np.exp2(3 * draw) if number % 2 else 1 + draw / 4
            with np.errstate(over="ignore"):
                array = (array * factor).astype(array.dtype)
        changed[name] = array
    return changed


def behind(arrays: Arrays, along: Mapping[str, int], start: int, stop: int = 0) -> Iterator[Arrays]:
    """The arrays with other content outside [``stop``, ``start``) of the axes, four times. Masks
    stay: they say which of it is padding."""
    where = {}
    for name, array in arrays.items():
        where[name] = np.zeros(array.shape, bool)
        if (axis := along.get(name)) is not None and not is_mask(array):
            lines = np.arange(array.shape[axis])
            outside = (lines >= start) | (lines < stop)
            where[name] |= outside.reshape(-1, *(1,) * (array.ndim - axis - 1))
    yield from contents(arrays, where)


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


def box_of(mask: np.ndarray) -> Box | None:
    """The smallest box that has all of a mask, by the axes of which it takes a part; None: the mask
    is empty."""
    if not mask.any():
        return None
    parts = []
    for axis in range(mask.ndim):
        line = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if len(line) < mask.shape[axis]:
            parts.append(KeptPart(axis, int(line[0]), int(line[-1]) + 1))
    return tuple(parts)


def box_index(box: Box, short: bool, rank: int) -> tuple[slice, ...]:
    """The box as an index into an output: of the short run, or of the full one."""
    index = [slice(None)] * rank
    for part in box:
        moved = part.offset if short else 0
        index[part.axis] = slice(part.start + moved, part.stop + moved)
    return tuple(index)


def placed(short: np.ndarray, kept: np.ndarray, box: Box, shape: Sequence[int]) -> Box | None:
    """The box, with offsets, in which a short run has what is ``kept`` of an output of the full
    run's ``shape``, but for rounding; None: nowhere."""
    if short.ndim != len(shape):
        return None
    axes = [axis for axis, (n, m) in enumerate(zip(short.shape, shape, strict=True)) if n != m]
    if not set(axes) <= {part.axis for part in box}:
        return None
    most = max((abs(shape[axis] - short.shape[axis]) for axis in axes), default=0)
    # at its place first, then where sizes before the content may differ, then from the end
    offsets = [0, *(sign * n for n in range(1, min(most, MOVED_BY) + 1) for sign in (-1, 1)), -most]
    for offset in dict.fromkeys(offsets):
        moved = tuple(
            KeptPart(p.axis, p.start, p.stop, offset if p.axis in axes else 0) for p in box
        )
        fits = all(
            p.start + p.offset >= 0 and p.stop + p.offset <= short.shape[p.axis] for p in moved
        )
        if fits and near(short[box_index(moved, True, short.ndim)], kept):
            return moved
    return None


def near(left: np.ndarray, right: np.ndarray, units: float = 0.0) -> bool:
    """Whether two arrays hold the same numbers, but for rounding; integers in most places.
    ``units``: as of ``close``."""
    dtype = str(left.dtype)
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if dtype not in floats.FORMATS:
        return left.size == 0 or float(np.mean(left == right)) > HALF
    return bool(close(left, right, dtype, units).all())


def elements_apart(left: np.ndarray, right: np.ndarray, dtype: str = "") -> int:
    """How many elements have different bits. ``dtype``: where the container doesn't say it."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return max(left.size, right.size)
    first, second = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return int(unequal_bits(first, second, dtype or str(left.dtype)).sum())
