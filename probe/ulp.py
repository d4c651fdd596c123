"""The only comparison: bits, and distances in units in the last place (ulp).

The values of a format in increasing order are numbered by consecutive integers, the zeros both 0;
a distance is the difference of two numbers. Nothing here has a tolerance. What is not a plain
number follows ``POLICY``. This file also runs in the targets' interpreters (Python 3.6).
"""

from collections import namedtuple

import numpy as np

from probe import floats

#: The distance stored where there is none: a NaN against a number. Null in the store.
NAN = -(2**63)

_LARGEST = 2**63 - 1

#: What is compared, whether it counts as equal, and the distance (None: there is none).
POLICY = (
    ("the same bits", True, 0),
    ("+0 against -0", True, 0),
    ("NaN against NaN, any payload or sign", True, 0),
    ("NaN against a number", False, None),
    ("an infinity against the same infinity", True, 0),
    ("an infinity against a finite value", False, "numbers apart: infinity follows the largest"),
    ("two unequal finite values", False, "numbers apart"),
)

#: ``index``: int64 flat positions in increasing order. ``bits_a``, ``bits_b``: unsigned integers.
#: ``ulps``: int64, b minus a; ``NAN`` where there is no distance; distances of float64 too large
#: for int64 are kept at its ends, +-(2**63 - 1).
Differences = namedtuple("Differences", "index bits_a bits_b ulps")

_BLOCK = 1 << 15  # elements compared at once: the bits of both and the answer stay in the cache


def ordered(bits: np.ndarray, name: str) -> np.ndarray:
    """The number (int64) of each bit pattern in increasing order of value; +0 and -0 are both 0.

    NaNs, which have no place, lie beyond the infinities.
    """
    form = floats.format_of(name)
    bits = np.asarray(bits, dtype=form.unit)
    magnitude = (bits & np.array((1 << (form.bits - 1)) - 1, dtype=form.unit)).astype(np.int64)
    negative = (bits >> np.array(form.bits - 1, dtype=form.unit)) != 0
    return np.where(negative, -magnitude, magnitude)


def from_ordered(numbers: np.ndarray, name: str) -> np.ndarray:
    """The bit patterns with these numbers: the inverse of ``ordered``; 0 becomes +0."""
    form = floats.format_of(name)
    numbers = np.asarray(numbers, dtype=np.int64)
    sign = np.array(1 << (form.bits - 1), dtype=form.unit)
    magnitude = np.abs(numbers).astype(form.unit)
    return np.where(numbers < 0, magnitude | sign, magnitude)


def is_nan(bits: np.ndarray, name: str) -> np.ndarray:
    """Which bit patterns are NaN."""
    form = floats.format_of(name)
    bits = np.asarray(bits, dtype=form.unit)
    magnitude = bits & np.array((1 << (form.bits - 1)) - 1, dtype=form.unit)
    infinity = ((1 << (form.bits - form.precision)) - 1) << (form.precision - 1)
    return magnitude > np.array(infinity, dtype=form.unit)


def distance(a: np.ndarray, b: np.ndarray, name: str) -> np.ndarray:
    """Signed distance b - a in ulps, element by element, of container arrays of the same shape.

    int64; 0 exactly where ``POLICY`` says equal; ``NAN`` where only one of the two is a NaN. If
    float64 values of opposite signs lie 2**63 or more apart, the array has dtype object and holds
    exact Python integers.
    """
    shape = np.shape(a)
    a, b = _pair(a, b, name)
    first, second = ordered(a, name), ordered(b, name)
    steps = second - first
    if _wrapped(first, second, steps).any():
        steps = second.astype(object) - first.astype(object)
    return _with_nans(steps, a, b, name).reshape(shape)


def _wrapped(first: np.ndarray, second: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Where ``steps``, second - first in int64, is not the difference (or is ``NAN``'s value)."""
    return (((first ^ second) & (steps ^ second)) < 0) | (steps == NAN)


def _with_nans(steps: np.ndarray, a: np.ndarray, b: np.ndarray, name: str) -> np.ndarray:
    nan_a, nan_b = is_nan(a, name), is_nan(b, name)
    steps = np.where(nan_a & nan_b, 0, steps)
    return np.where(nan_a != nan_b, NAN, steps)


def differences(a: np.ndarray, b: np.ndarray, name: str) -> Differences:
    """Every place where two container arrays of the same shape differ, by ``POLICY``.

    Slices need not be contiguous. Costs a read of both where they are equal: raw bits are compared
    first, and the policy and the distances are worked out only where those differ.
    """
    a, b = _pair(a, b, name)
    index = _raw_differences(a, b)
    if not index.size:
        none = np.zeros(0, dtype=a.dtype)
        return Differences(index, none, none, np.zeros(0, dtype=np.int64))
    place = np.unravel_index(index, a.shape)
    bits_a, bits_b = a[place], b[place]
    steps = _saturated(bits_a, bits_b, name)
    keep = np.flatnonzero(steps)
    return Differences(index[keep], bits_a[keep], bits_b[keep], steps[keep])


def _saturated(a: np.ndarray, b: np.ndarray, name: str) -> np.ndarray:
    first, second = ordered(a, name), ordered(b, name)
    steps = second - first
    ends = np.where(second > first, _LARGEST, -_LARGEST)
    return _with_nans(np.where(_wrapped(first, second, steps), ends, steps), a, b, name)


def max_ulp(a: np.ndarray, b: np.ndarray, name: str):
    """The largest distance without its sign, an int: 0 where equal.

    None where the only differences are NaNs against numbers, which have no distance.
    """
    found = differences(a, b, name)
    if not found.index.size:
        return 0
    far = distance(floats.from_bits(found.bits_a, name), floats.from_bits(found.bits_b, name), name)
    numbers = far[far != NAN]
    return max(int(numbers.max()), -int(numbers.min())) if numbers.size else None


def equal(a: np.ndarray, b: np.ndarray, name: str) -> bool:
    """Whether two container arrays of the same shape are equal everywhere, by ``POLICY``."""
    return not differences(a, b, name).index.size


def _pair(a: np.ndarray, b: np.ndarray, name: str):
    a, b = floats.to_bits(a, name), floats.to_bits(b, name)
    if a.shape != b.shape:
        raise ValueError(f"shapes={a.shape}, {b.shape}: only arrays of one shape can be compared")
    return (a, b) if a.ndim else (a.reshape(1), b.reshape(1))


def _raw_differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Flat positions (int64) where bits differ, found block by block along the first axis."""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        a, b = a.reshape(-1), b.reshape(-1)
    while a.ndim > 1 and a.shape[0] == 1:
        a, b = a[0], b[0]
    if not a.size:
        return np.zeros(0, dtype=np.int64)
    row = a.size // a.shape[0]
    rows = max(1, _BLOCK // row)
    differ = np.empty((rows,) + a.shape[1:], dtype=bool)
    found = []
    for start in range(0, a.shape[0], rows):
        part = a[start : start + rows]
        answer = np.not_equal(part, b[start : start + rows], out=differ[: part.shape[0]])
        if answer.any():
            found.append(np.flatnonzero(answer).astype(np.int64) + start * row)
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
