"""Makes all comparisons: of bits, and of distances in units in the last place (ulp).

The values of a format in increasing order are numbered by consecutive integers, the zeros both 0;
a distance is the difference of two numbers. Nothing here has a tolerance. What is not a plain
number follows ``POLICY``. This file also runs in the targets' interpreters (Python 3.6).
"""

from collections import namedtuple

import numpy as np

from probe.case import floats

# The distance stored where there is none: a NaN against a number. Null in the store.
NAN = int(np.iinfo(np.int64).min)

_LARGEST = int(np.iinfo(np.int64).max)

# What is done with zeros of different signs: they are equal, or a difference of distance 0.
ZEROS = ("equal", "differ")

# What is compared, whether it counts as equal, and the distance (None: there is none). "To the
# last bit" means this: +0 and -0 are counted beside (``signed_zeros``), or differ where asked.
POLICY = (
    ("the same bits", True, 0),
    ("+0 against -0", True, 0),
    ("NaN against NaN, any payload or sign", True, 0),
    ("NaN against a number", False, None),
    ("an infinity against the same infinity", True, 0),
    ("an infinity against a finite value", False, "numbers apart: infinity follows the largest"),
    ("two unequal finite values", False, "numbers apart"),
)

# ``index``: int64 flat positions in increasing order. ``bits_a``, ``bits_b``: unsigned integers.
# ``ulps``: int64, b minus a; ``NAN`` where there is no distance; distances of float64 too large
# for int64 are kept at its ends, +-(2**63 - 1).
Differences = namedtuple("Differences", "index bits_a bits_b ulps")

_BLOCK = 1 << 17  # speed alone: elements whose bits, of both sides, stay in the cache


def ordered_number(bits: np.ndarray, name: str) -> np.ndarray:
    """The number (int64) of each bit pattern in increasing order of value; +0 and -0 are both 0.

    NaNs, which have no place, lie beyond the infinities.
    """
    form = floats.format_of(name)
    bits = np.asarray(bits, dtype=form.unit)
    magnitude = (bits & np.array((1 << (form.bits - 1)) - 1, dtype=form.unit)).astype(np.int64)
    negative = (bits >> np.array(form.bits - 1, dtype=form.unit)) != 0
    return np.where(negative, -magnitude, magnitude)


def _infinity(form) -> int:
    """The number of the format's infinity: all bits of the exponent are set."""
    return ((1 << (form.bits - form.precision)) - 1) << (form.precision - 1)


def distance(a: np.ndarray, b: np.ndarray, name: str) -> np.ndarray:
    """Signed distance b - a in ulps, element by element, of container arrays of the same shape.

    int64; 0 exactly where ``POLICY`` says equal; ``NAN`` where only one of the two is a NaN. If
    float64 values of opposite signs lie 2**63 or more apart, the array has dtype object and holds
    exact Python integers.
    """
    shape = np.shape(a)
    a, b = _bits_of_both(a, b, name)
    form = floats.format_of(name)
    if form.bits == 64:
        first, second = ordered_number(a, name), ordered_number(b, name)
        steps = second - first
        if _wrapped(first, second, steps).any():  # not all of float64 fit int64
            steps = second.astype(object) - first.astype(object)
        return _with_nans(steps, first, second, form).reshape(shape)
    steps = np.empty(a.size, dtype=np.int64)
    for left, right, start in _cached_blocks(a, b):
        out = steps[start : start + left.size]
        first, second = _signed(left, form), _signed(right, form)
        _with_nans(np.subtract(second, first, out=out, dtype=np.int64), first, second, form)
    return steps.reshape(shape)


def _wrapped(first: np.ndarray, second: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Where ``steps``, second - first in int64, is not the difference (or is ``NAN``'s value)."""
    return (((first ^ second) & (steps ^ second)) < 0) | (steps == NAN)


def _with_nans(steps: np.ndarray, first: np.ndarray, second: np.ndarray, form) -> np.ndarray:
    """``steps``, changed in place where one of the two numbers is that of a NaN, or both."""
    nan_a, nan_b = (np.abs(numbers) > _infinity(form) for numbers in (first, second))
    if nan_a.any() or nan_b.any():
        steps[nan_a | nan_b] = NAN
        steps[nan_a & nan_b] = 0
    return steps


def differences(a: np.ndarray, b: np.ndarray, name: str, zeros: str = "equal") -> Differences:
    """Every place where two container arrays of the same shape differ, by ``POLICY``.

    ``zeros`` ``"differ"``: +0 against -0 too, at a distance of 0. Slices need not be contiguous.
    Costs a read of both where they are equal: raw bits are compared first, and the policy and the
    distances are worked out only where those differ.
    """
    a, b = _bits_of_both(a, b, name)
    form, index = floats.format_of(name), _raw_differences(a, b)
    bits_a, bits_b = _elements_at(a, index), _elements_at(b, index)
    steps = np.empty(index.size, dtype=np.int64)
    for start in range(0, index.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        first, second = _signed(bits_a[part], form), _signed(bits_b[part], form)
        far = np.subtract(second, first, dtype=np.int64)
        if form.bits == 64:
            # only numbers of different signs are so far apart
            far = np.where(_wrapped(first, second, far), np.sign(second) * _LARGEST, far)
        steps[part] = _with_nans(far, first, second, form)
    columns = Differences(index, bits_a, bits_b, steps)
    if steps.all():
        return columns
    wanted = steps != 0
    if zeros == "differ":
        wanted |= _is_zero(bits_a, name)  # different bits at no distance: 0.0 and -0.0
    keep = np.flatnonzero(wanted)
    return Differences(*[column[keep] for column in columns])


def bits_apart(a: np.ndarray, b: np.ndarray, name: str, zeros: str = "equal") -> np.ndarray:
    """Where two container arrays of the same shape differ, as ``differences``: bool, that shape."""
    apart = np.zeros(a.size, dtype=bool)
    apart[differences(a, b, name, zeros).index] = True
    return apart.reshape(a.shape)


def signed_zeros(a: np.ndarray, b: np.ndarray, name: str) -> int:
    """How often +0 stands against -0 in two container arrays of the same shape."""
    a, b = _bits_of_both(a, b, name)
    index = _raw_differences(a, b)
    both = (_is_zero(_elements_at(side, index), name) for side in (a, b))
    return int(np.logical_and(*both).sum())


def _is_zero(bits: np.ndarray, name: str) -> np.ndarray:
    """Whether bit patterns are zeros of either sign."""
    sign = np.array(1 << (floats.format_of(name).bits - 1), dtype=bits.dtype)
    return (bits & ~sign) == 0


def largest_ulp(found: Differences):
    """The largest distance without its sign, an int: 0 of none, None where all are NaN."""
    numbers = np.abs(found.ulps[found.ulps != NAN])
    if len(found.ulps) and not len(numbers):
        return None
    most = int(numbers.max(initial=0))
    if most < _LARGEST:
        return most
    # distances of float64 beyond int64 are kept at its end
    far = np.abs(found.ulps) == _LARGEST
    both = (ordered_number(bits[far], "float64").tolist() for bits in (found.bits_a, found.bits_b))
    return max(abs(second - first) for first, second in zip(*both))


def _elements_at(bits: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Elements at flat positions, which increase."""
    if index.size == bits.size:
        return bits.flatten()
    if bits.flags.c_contiguous:
        return bits.reshape(-1)[index]
    return bits.flat[index]


def max_ulp(a: np.ndarray, b: np.ndarray, name: str):
    """The largest distance without its sign, an int: 0 where equal.

    None where the only differences are NaNs against numbers, which have no distance. Holds a few
    blocks of memory, however large the arrays are.
    """
    form = floats.format_of(name)
    largest, apart, few = 0, False, []
    held = 0  # speed alone: elements that are worked out at once
    for left, right, _ in _cached_blocks(*_bits_of_both(a, b, name)):
        if left.nbytes % 8 == 0:
            left, right = left.view(np.uint64), right.view(np.uint64)
        place = np.flatnonzero(left != right)
        if place.size <= left.size // 4:  # speed alone: of many, those that are equal may stay
            left, right = left[place], right[place]
        if left.size:
            few.append((left.view(form.unit), right.view(form.unit)))
            held += few[-1][0].size  # speed alone
        if held >= _BLOCK:  # speed alone
            far, nans = _largest_distance(few, form)
            largest, apart, few = max(largest, far), apart or nans, []
            held = 0  # speed alone
    far, nans = _largest_distance(few, form)
    largest, apart = max(largest, far), apart or nans
    return None if apart and not largest else largest


def _largest_distance(pieces, form):
    """The largest |distance| of numbers in (a, b) pieces, and whether a NaN meets a number."""
    if not pieces:
        return 0, False
    a, b = pieces[0] if len(pieces) == 1 else map(np.concatenate, zip(*pieces))
    first, second = _signed(a, form), _signed(b, form)
    far = (np.maximum(first, second) - np.minimum(first, second)).view(form.unit)
    nan_a, nan_b = (np.abs(numbers) > _infinity(form) for numbers in (first, second))
    far[nan_a | nan_b] = 0
    return int(far.max()), bool((nan_a != nan_b).any())


def _signed(bits: np.ndarray, form) -> np.ndarray:
    """``ordered_number`` in signed integers of the format's own width."""
    signed = bits.view(np.dtype(form.unit).str.replace("u", "i"))
    sign = signed >> np.array(form.bits - 1, dtype=signed.dtype)
    magnitude = np.array((1 << (form.bits - 1)) - 1, dtype=signed.dtype)
    # of negative numbers the bits rise as the values fall: their magnitude is negated
    return (signed ^ (sign & magnitude)) - sign


def equal(a: np.ndarray, b: np.ndarray, name: str) -> bool:
    """Whether two container arrays of the same shape are equal everywhere, by ``POLICY``."""
    first, second = _bits_of_both(a, b, name)
    return bool((first == second).all()) or not differences(a, b, name).index.size


def _bits_of_both(a: np.ndarray, b: np.ndarray, name: str):
    a, b = floats.to_bits(a, name), floats.to_bits(b, name)
    if a.shape != b.shape:
        raise ValueError(f"shapes={a.shape}, {b.shape}: only arrays of one shape can be compared")
    return (a, b) if a.ndim else (a.reshape(1), b.reshape(1))


def _cached_blocks(a: np.ndarray, b: np.ndarray):
    """(one, other, start): flat pieces of both that fit the cache, and where each begins."""
    if not a.size:
        return
    if a.flags.c_contiguous and b.flags.c_contiguous:  # speed alone
        a, b = a.reshape(-1), b.reshape(-1)
    while a.ndim > 1 and a.shape[0] == 1:  # speed alone
        a, b = a[0], b[0]  # speed alone
    row = a.size // a.shape[0]
    rows = max(1, _BLOCK // row)  # speed alone
    for start in range(0, len(a), rows):
        part = slice(start, start + rows)
        one, other = (np.ascontiguousarray(side[part]).reshape(-1) for side in (a, b))
        yield one, other, start * row


def _raw_differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Flat positions (int64) where bits differ; where few do, found eight bytes at a time."""
    if a.size <= _BLOCK:  # speed alone
        return np.not_equal(a, b).reshape(-1).nonzero()[0]
    if a.flags.c_contiguous and b.flags.c_contiguous and a.nbytes % 8 == 0:  # speed alone
        a, b = a.reshape(-1), b.reshape(-1)
        first, second = a.view(np.uint64), b.view(np.uint64)
        each = a.size // first.size
        if each > 1 and first.flags.aligned and second.flags.aligned:  # speed alone
            place = _differing_places(first, second, a.size // 16)  # speed alone
            if place is not None:
                place = (place[:, np.newaxis] * each + np.arange(each)).reshape(-1)
                return place[a[place] != b[place]]
    return _differing_places(a, b, a.size)


def _differing_places(a: np.ndarray, b: np.ndarray, most: int):
    """Flat positions (int64) where bits differ; None if these are more than ``most``."""
    differ = np.empty(_BLOCK, dtype=bool)
    places, count = [np.zeros(0, dtype=np.int64)], 0
    for left, right, start in _cached_blocks(a, b):
        out = differ[: left.size] if left.size <= _BLOCK else None  # speed alone
        place = np.not_equal(left, right, out=out).nonzero()[0]
        if place.size:
            places.append(place + start)
            count += place.size
        if count > most:
            return None
    return np.concatenate(places)
