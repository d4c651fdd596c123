"""What the inputs of one run hold that another's lack, and other content for it.

Four finite contents serve: large of either sign (one of them wakes a unit that the other leaves
dead) and two random ones. NaN would be stricter, but 0 * NaN hides what stands behind a mask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from probe import floats

Arrays = Mapping[str, np.ndarray]

# Which elements of inputs are meant: bool, of the inputs' shapes.
Where = dict[str, np.ndarray]

SEED = 47_000

# Times the largest number of an input: what any sum of the others can't outweigh by chance.
LARGE = 4.0


def lacked(left: Arrays, right: Arrays) -> Where | None:
    """Where ``right`` holds what ``left`` lacks: behind the left's end along each axis.

    None: what both have isn't the same in both, so that neither is the beginning of the other.
    """
    if left.keys() != right.keys():
        return None
    where = {}
    for name, theirs in right.items():
        ours = left[name]
        if ours.ndim != theirs.ndim or ours.dtype != theirs.dtype:
            return None
        common = tuple(map(slice, map(min, zip(ours.shape, theirs.shape, strict=True))))
        if ours[common].tobytes() != theirs[common].tobytes():
            return None
        where[name] = np.ones(theirs.shape, bool)
        where[name][common] = False
    return where


def behind_mask(arrays: Arrays, mask: str) -> Where:
    """Where inputs stand behind zeros of a mask, whose shape is the beginning of theirs."""
    hidden = np.asarray(arrays[mask] == 0)
    return {
        name: np.broadcast_to(
            hidden.reshape(*hidden.shape, *(1,) * (array.ndim - hidden.ndim)), array.shape
        )
        if name != mask and array.shape[: hidden.ndim] == hidden.shape
        else np.zeros(array.shape, bool)
        for name, array in arrays.items()
    }


def contents(
    arrays: Arrays, where: Where, dtypes: Mapping[str, str] | None = None, kept: Collection[str] = ()
) -> Iterator[Arrays]:
    """Yields the inputs with other content in these places, four times.

    ``dtypes``: of inputs whose containers don't say (bfloat16). ``kept``: inputs that stay, as a
    mask does that says what is padding. Masks, lengths and classes (few distinct numbers) stay in
    the first two as well, so that what they hide is hidden, and change in the others, so that what
    counts them is seen.
    """
    for number in range(4):
        changed = {}
        for order, (name, array) in enumerate(arrays.items()):
            some = where[name]
            if name in kept or not some.any():
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

