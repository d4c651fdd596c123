"""What the inputs of one run hold that another's lack, and other content for it.

Four finite contents serve: large of either sign (one of them wakes a unit that the other leaves
dead) and two random ones. NaN would be stricter, but 0 * NaN hides what stands behind a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np

from probe import floats

Arrays = Mapping[str, np.ndarray]

# Which elements of inputs are meant: bool, of the inputs' shapes.
Where = dict[str, np.ndarray]

SEED = 47_000

# Times the largest number of an input: what any sum of the others can't outweigh by chance.
LARGE = 4.0


def lacked(left: Arrays, right: Arrays) -> tuple[Where, Fraction] | None:
    """Where ``right`` holds what ``left`` lacks, and which part of it stands before the left's own:
    0 for a beginning, 3/8 for sample 3 of a batch of 8.

    None: the left's inputs are no piece of the right's along an axis.
    """
    if left.keys() != right.keys():
        return None
    where, before = {}, Fraction(0)
    for name, theirs in right.items():
        ours = left[name]
        if ours.ndim != theirs.ndim or ours.dtype != theirs.dtype:
            return None
        piece = _piece(ours, theirs)
        if piece is None:
            return None
        where[name] = np.ones(theirs.shape, bool)
        where[name][piece] = False
        starts = zip(piece, theirs.shape, strict=True)
        before = max(before, *(Fraction(at.start, size) for at, size in starts if size), before)
    return where, before


def _piece(left: np.ndarray, right: np.ndarray) -> tuple[slice, ...] | None:
    """Returns where one array stands in another along an axis, the first place if there are more;
    where the left is longer along some, its beginning."""
    sizes = [*zip(left.shape, right.shape, strict=True)]
    common = tuple(slice(min(both)) for both in sizes)
    shorter = [axis for axis, (n, m) in enumerate(sizes) if n < m]
    ours = left[common].tobytes()
    for start in range(right.shape[shorter[0]] - left.shape[shorter[0]] + 1) if shorter else (0,):
        piece = [slice(0, at.stop) for at in common]
        if shorter:
            piece[shorter[0]] = slice(start, start + common[shorter[0]].stop)
        if right[tuple(piece)].tobytes() == ours:
            return tuple(piece)
    return None


def contents(
    arrays: Arrays, where: Where, dtypes: Mapping[str, str] | None = None
) -> Iterator[Arrays]:
    """Yields the inputs with other content in these places, four times.

    ``dtypes``: of inputs whose containers don't say (bfloat16). A mask stays that hides all of what
    is lacked: that is padding. Other masks, and classes of few numbers, stay in the first two as
    well and change in the others, so that what counts them is seen.
    """
    for number in range(4):
        changed = {}
        for order, (name, array) in enumerate(arrays.items()):
            some = where[name]
            if not some.any() or (_is_mask(array) and _hides(array, some)):
                changed[name] = array
                continue
            dtype = (dtypes or {}).get(name, str(array.dtype))
            other = _other_content(array, dtype, number, SEED + 101 * order + number)
            changed[name] = np.where(some, other, array).astype(array.dtype)
        yield changed


def independent(arrays: Arrays, dtypes: Mapping[str, str] | None = None) -> Arrays:
    """Returns other inputs of the same kind: random numbers, the same masks, other tokens."""
    return {
        name: array
        if _is_mask(array)
        else _other_content(array, (dtypes or {}).get(name, str(array.dtype)), 3, SEED - 1 - order)
        for order, (name, array) in enumerate(arrays.items())
    }


def _is_mask(array: np.ndarray) -> bool:
    """Whether an input says which elements of others count: two numbers at most, or infinities."""
    if array.dtype.kind == "b":
        return True
    if array.dtype.kind in "iu":
        return bool(np.isin(array, (0, 1)).all()) and len(np.unique(array)) == 2
    if array.dtype.kind != "f" or array.size < 2:
        return False
    return bool(np.isinf(array).any()) or len(np.unique(array)) == 2


def _hides(mask: np.ndarray, where: np.ndarray) -> bool:
    """Whether a mask has one number in these places that it has nowhere else."""
    there = np.unique(mask[where])
    return len(there) == 1 and there[0] not in mask[~where]


def _other_content(array: np.ndarray, dtype: str, number: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if _is_mask(array):
        values = np.unique(array) if array.dtype.kind != "b" else np.array([False, True])
        if number < 2:
            return array
        if number == 2 and len(values) == 2:  # each the other one
            return np.where(array == values[0], values[1], values[0]).astype(array.dtype)
        return draw.choice(values, array.shape).astype(array.dtype)
    if dtype not in floats.FORMATS:
        least, most = int(array.min()), int(array.max())
        if least == most:
            most = least + 1  # one number says nothing of the range
        if number < 2:
            return np.full(array.shape, (most, least)[number], array.dtype)
        return draw.integers(least, most + 1, array.shape).astype(array.dtype)
    wide = floats.widen(array, dtype)
    finite = np.abs(wide[np.isfinite(wide)])
    size = float(finite.max(initial=0.0)) or 1.0
    limit = floats.largest_finite(dtype)
    if number < 2:
        fill = np.full(array.shape, min(LARGE * size, limit) * (1, -1)[number])
    else:
        fill = np.clip(draw.standard_normal(array.shape) * size / 2, -limit, limit)
    return floats.round_to(fill, dtype)
