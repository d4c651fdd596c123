"""What the inputs of one run hold that another's lack, and other content for it.

Four finite contents serve: large of either sign (one of them wakes a unit that the other leaves
dead) and two random ones. NaN would be stricter, but 0 * NaN hides what stands behind a mask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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

    None: the inputs of neither are a piece of the other's, all of them the same one.
    """
    if left.keys() != right.keys():
        return None
    found = dict[str, tuple[int, int, list[int]]]()
    for name, theirs in right.items():
        ours = left[name]
        if ours.ndim != theirs.ndim or ours.dtype != theirs.dtype:
            return None
        sizes = zip(ours.shape, theirs.shape, strict=True)
        apart = [axis for axis, (n, m) in enumerate(sizes) if n != m]
        if len(apart) > 1 or (not apart and ours.tobytes() != theirs.tobytes()):
            return None
        if apart:
            size = ours.shape[apart[0]] - theirs.shape[apart[0]]
            found[name] = apart[0], size, starts(ours, theirs, apart[0])
    where = {name: np.zeros(array.shape, bool) for name, array in right.items()}
    before = Fraction(0)
    for name, (axis, size, _) in found.items():
        # a mask may stand in many places: what it belongs to says where
        alike = [set(others) for _, other, others in found.values() if other == size]
        common = set.intersection(*alike)
        if not common:
            return None
        if size < 0:
            lines = np.arange(right[name].shape[axis]) - min(common)
            outside = (lines < 0) | (lines >= left[name].shape[axis])
            turned = outside.reshape(-1, *(1,) * (where[name].ndim - axis - 1))
            where[name] |= turned
            before = max(before, Fraction(min(common), len(lines)))
    return where, before


def starts(left: np.ndarray, right: np.ndarray, axis: int) -> list[int]:
    """Returns where the shorter of two arrays stands in the longer one, along an axis."""
    small, large = sorted((left, right), key=lambda array: array.shape[axis])
    size, content = small.shape[axis], small.tobytes()
    ahead = (slice(None),) * axis
    return [
        start
        for start in range(large.shape[axis] - size + 1)
        if large[(*ahead, slice(start, start + size))].tobytes() == content
    ]


def contents(
    arrays: Arrays,
    where: Where,
    dtypes: Mapping[str, str] | None = None,
    apart: Collection[str] = (),
) -> Iterator[Arrays]:
    """Yields the inputs with other content in these places, four times.

    ``dtypes``: of inputs whose containers don't say (bfloat16). A mask stays that hides all of what
    is lacked: that is padding, unless both sides have it and other numbers in it (``apart``). Other
    masks, and classes of few numbers, stay in the first two as
    well and change in the others, so that what counts them is seen.
    """
    for number in range(4):
        changed = {}
        for order, (name, array) in enumerate(arrays.items()):
            some = where[name]
            hides = name not in apart and is_mask(array) and _hides(array, some)
            if not some.any() or hides:
                changed[name] = array
                continue
            dtype = (dtypes or {}).get(name, str(array.dtype))
            other = other_content(array, dtype, number, SEED + 101 * order + number)
            changed[name] = np.where(some, other, array).astype(array.dtype)
        yield changed


def independent(arrays: Arrays, dtypes: Mapping[str, str] | None = None) -> Arrays:
    """Returns other inputs of the same kind: random numbers, the same masks, other tokens."""
    return {
        name: array
        if is_mask(array)
        else other_content(array, (dtypes or {}).get(name, str(array.dtype)), 3, SEED - 1 - order)
        for order, (name, array) in enumerate(arrays.items())
    }


def is_mask(array: np.ndarray) -> bool:
    """Whether an input says which elements of others count: two numbers at most, or infinities."""
    if array.dtype.kind == "b":
        return True
    if array.dtype.kind in "iu":
        return bool(np.isin(array, (0, 1)).all()) and len(np.unique(array)) == 2
    if array.dtype.kind != "f" or array.size < 2:
        return False
    return bool(np.isinf(array).any()) or len(np.unique(array)) == 2


def _hides(mask: np.ndarray, where: np.ndarray) -> bool:
    """Whether a mask has one number in these places, and another one elsewhere."""
    there = np.unique(mask[where])
    return len(there) == 1 and bool((mask[~where] != there[0]).any())


def other_content(array: np.ndarray, dtype: str, number: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if is_mask(array):
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
