"""Correctly rounded fused multiply-add, addition and multiplication: exactly one rounding each.

NumPy has no fused multiply-add. Up to 26 bits of precision the product of two operands is exact in
float64; the sum with the third is rounded there, and is wrong after the second rounding only if it
fell on a midpoint of the narrower format: these rare sums are rounded to odd first (Boldo and
Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
IEEE Transactions on Computers 57, 2008). float64 follows their algorithm; operands for which its
error-free steps could over- or underflow are done with ``fractions``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from probe import floats

Doubles = NDArray[np.float64]

#: Elements worked on at once: five float64 rows of this length fit the level-two cache, and the
#: calls into NumPy cost less than the work.
BLOCK = 16384

_LOWEST = np.iinfo(np.int64).min


class Rounder:
    """Rounds sums of two exact float64 terms to one format, without allocating.

    ``size``: the most elements of a call. ``tiny``: whether terms may have bits so small that a
    sum below the format's normal range is inexact in float64 (a product below 2**-131); telling
    that none is saves a third of the time.
    """

    def __init__(self, name: str, size: int, tiny: bool = True) -> None:
        form = floats.format_of(name)
        self.name = name
        self.tiny = tiny and form.emin < -14  # float16 sums that small are exact in float64
        self._shift = np.int64(11 + form.precision)
        self._smallest = np.uint64(np.float64(2.0**form.emin).view(np.uint64) << np.uint64(1))
        self._bits = np.empty(size, dtype=np.int64)
        self._spare = np.empty((2, size))
        own = np.dtype(name if name in ("float16", "float32") else "float32")
        self._own = np.empty(size, dtype=own)

    def total(self, first: Doubles, second: Doubles, out: Doubles) -> Doubles:
        """first + second in ``out``, such that rounding ``out`` rounds the exact sum."""
        np.add(first, second, out=out)
        if self.name != "float64" and self._suspect(out):
            self._repair(first, second, out)
        return out

    def settle(self, out: Doubles) -> Doubles:
        """Rounds float64 values to the format in place."""
        if self.name in ("float16", "float32"):
            own = self._own[: out.size].reshape(out.shape)
            np.copyto(own, out, casting="same_kind")
            np.copyto(out, own)
        elif self.name != "float64":
            np.copyto(out, floats.nearest(out, self.name))
        return out

    def _suspect(self, total: Doubles) -> bool:
        """Whether some sum is a midpoint, all dropped bits 1000..., or below the normal range."""
        work = self._bits[: total.size].reshape(total.shape)
        np.left_shift(total.view(np.int64), self._shift, out=work)
        if np.minimum.reduce(work, axis=None) == _LOWEST:
            return True
        if not self.tiny:
            return False
        sizes = work.view(np.uint64)
        np.left_shift(total.view(np.uint64), np.uint64(1), out=sizes)
        np.subtract(sizes, np.uint64(1), out=sizes)  # zeros, which are exact, become the largest
        return bool(np.minimum.reduce(sizes, axis=None) < self._smallest)

    def _repair(self, first: Doubles, second: Doubles, total: Doubles) -> None:
        """Rounds inexact sums to odd where that may matter. Exact ones, often midpoints, stay."""
        other, error = (row[: total.size].reshape(total.shape) for row in self._spare)
        np.subtract(total, first, out=other)  # Knuth's two-sum, as below, in place
        np.subtract(total, other, out=error)
        np.subtract(first, error, out=error)
        np.subtract(second, other, out=other)
        np.add(error, other, out=error)
        inexact = error != 0
        if not inexact.any():
            return
        inexact &= (total.view(np.int64) << self._shift == _LOWEST) | (
            (total.view(np.uint64) << np.uint64(1)) < self._smallest
        )
        total[inexact] = to_odd(total[inexact], error[inexact])


def two_sum(first: Doubles, second: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded float64 sum and its exact error (Knuth), element by element."""
    total = first + second
    other = total - first
    return total, (first - (total - other)) + (second - other)


def two_product(first: Doubles, second: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded float64 product and its exact error (Dekker); no over- or underflow allowed."""
    product = first * second
    (high, low), (other_high, other_low) = _split(first), _split(second)
    error = high * other_high - product
    return product, ((error + high * other_low) + low * other_high) + low * other_low


def _split(values: Doubles) -> tuple[Doubles, Doubles]:
    scaled = 134217729.0 * values  # 2**27 + 1: 26 bits stay above, 26 and a sign below
    high = scaled - (scaled - values)
    return high, values - high


def to_odd(total: Doubles, error: Doubles) -> Doubles:
    """A rounded float64 sum and its error to the sum rounded to odd: inexact means last bit 1.

    What is rounded from it to two bits less or fewer is rounded as the exact sum would be.
    """
    bits = np.asarray(total).view(np.int64)
    even = ((bits & 1) == 0) & (error != 0) & np.isfinite(total) & np.isfinite(error)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)


@np.errstate(all="ignore")
def exact_total(terms: Sequence[Doubles]) -> tuple[Doubles, Doubles]:
    """Correctly rounded float64 sums of any number of terms, and an error of the right sign.

    Terms are added without error to a pair of float64; the few sums that need more digits are
    done with ``fractions``. The error is 0 exactly where the sum is exact.
    """
    total, error = np.array(terms[0], dtype=np.float64), np.zeros(np.shape(terms[0]))
    lost = np.zeros(total.shape, dtype=bool)
    for term in terms[1:]:
        total, below = two_sum(total, term)
        error, more = two_sum(error, below)
        lost |= more != 0  # NaN too: not finite, or an overflow on the way
    total, error = two_sum(total, error)
    lost |= ~np.isfinite(total)
    for place in zip(*np.nonzero(lost), strict=True):
        values = [float(term[place]) for term in terms]
        total[place], error[place] = _exact(values)
    return total, error


def _exact(values: list[float]) -> tuple[float, float]:
    if not all(map(math.isfinite, values)):
        odd = [value for value in values if not math.isfinite(value)]
        return float(np.sum(odd)), 0.0
    exact = sum(map(Fraction, values), Fraction(0))
    total = _nearest(exact)
    if not exact or math.isinf(total):
        return total, 0.0
    error = exact - Fraction(total)
    return total, float((error > 0) - (error < 0))


def _nearest(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator  # Python rounds this once, to the nearest
    except OverflowError:
        return -math.inf if exact < 0 else math.inf


def fma(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, name: str, out: np.ndarray | None = None
) -> np.ndarray:
    """a * b + c rounded once, for container arrays of one format that broadcast together.

    ``out``: a contiguous container array of the full shape, also one of the operands, or None for
    a new one. IEEE 754 throughout: subnormals, overflow, infinities, NaN, signs of zeros.
    """
    a, b, c = (floats.to_container(array, name) for array in (a, b, c))
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    out = np.empty(shape, dtype=floats.container(name)) if out is None else out
    flat = [_flat(array, shape) for array in (a, b, c)]
    target = out.reshape(-1)
    work = np.empty((3, min(BLOCK, target.size)))
    rounder = Rounder(name, work.shape[1])
    with np.errstate(all="ignore"):
        for start in range(0, target.size, BLOCK):
            part = [array[start : start + BLOCK] for array in flat]
            end = start + len(part[0])
            if name == "float64":
                target[start:end] = fma_float64(*part)
                continue
            one, two, three = (row[: end - start] for row in work)
            np.multiply(_load(part[0], name, one), _load(part[1], name, two), out=one)
            rounder.total(one, _load(part[2], name, two), three)
            target[start:end] = floats.round_to(three, name) if name == "bfloat16" else three
    return out


def _flat(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), (math.prod(shape),))
    return np.broadcast_to(array, shape).reshape(-1)


def _load(part: np.ndarray, name: str, row: Doubles) -> Doubles:
    np.copyto(row, floats.widen(part, name) if name == "bfloat16" else part)
    return row


@np.errstate(all="ignore")
def fma_float64(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """a * b + c rounded once to float64, for arrays of one shape (Boldo and Melquiond)."""
    high, low = two_product(a, b)
    above, below = two_sum(c, low)
    total, rest = two_sum(high, above)
    result = total + to_odd(*two_sum(below, rest))
    size = np.abs(high)
    safe = (size >= 2.0**-960) & (size <= 2.0**1010) & (np.abs(c) <= 2.0**1010)
    safe &= (np.abs(a) <= 2.0**990) & (np.abs(b) <= 2.0**990)
    if not safe.all():
        zero = (a == 0) | (b == 0)
        result = np.where(zero, a * b + c, result)
        for place in zip(*np.nonzero(~(safe | zero)), strict=True):
            result[place] = _fma_exact(float(a[place]), float(b[place]), float(c[place]))
    return result


def _fma_exact(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c
    return _nearest(exact)


@np.errstate(all="ignore")
def sum_of_products(
    factors: Sequence[tuple[Doubles, Doubles]], terms: Sequence[Doubles]
) -> Doubles:
    """The exact sum of float64 products and terms of one shape, rounded once to float64."""
    parts = list(terms)
    safe = np.ones(np.shape(factors[0][0]), dtype=bool)
    for x, w in factors:
        high, low = two_product(x, w)
        size, most = np.abs(high), np.maximum(np.abs(x), np.abs(w))
        safe &= ((size >= 2.0**-960) | (x == 0) | (w == 0)) & (size <= 2.0**1000)
        safe &= most <= 2.0**990
        parts += [high, low]
    total, _ = exact_total(parts)
    for place in zip(*np.nonzero(~safe), strict=True):
        pairs = [(float(x[place]), float(w[place])) for x, w in factors]
        rest = [float(term[place]) for term in terms]
        total[place] = _products_exact(pairs, rest)
    return total


def _products_exact(pairs: list[tuple[float, float]], rest: list[float]) -> float:
    odd = [x * w for x, w in pairs if not (math.isfinite(x) and math.isfinite(w))]
    odd += [value for value in rest if not math.isfinite(value)]
    if odd:
        return float(np.sum(odd))
    exact = sum((Fraction(x) * Fraction(w) for x, w in pairs), Fraction(0))
    exact += sum(map(Fraction, rest), Fraction(0))
    return _nearest(exact) if exact else 0.0


def add(a: np.ndarray, b: np.ndarray, name: str, out: np.ndarray | None = None) -> np.ndarray:
    """a + b rounded once, for container arrays of one format that broadcast together."""
    a, b = floats.to_container(a, name), floats.to_container(b, name)
    with np.errstate(all="ignore"):
        if name != "bfloat16":  # float16: NumPy adds in float32, wide enough to round once more
            return np.add(a, b, out=out)
        total = floats.widen(a, name).astype(np.float32) + floats.widen(b, name).astype(np.float32)
        return _stored(floats.round_float32_to(total, name), out)


def mul(a: np.ndarray, b: np.ndarray, name: str, out: np.ndarray | None = None) -> np.ndarray:
    """a * b rounded once, for container arrays of one format that broadcast together."""
    a, b = floats.to_container(a, name), floats.to_container(b, name)
    with np.errstate(all="ignore"):
        if name != "bfloat16":  # float16: NumPy multiplies in float32, which is exact
            return np.multiply(a, b, out=out)
        return _stored(floats.round_to(floats.widen(a, name) * floats.widen(b, name), name), out)


def _stored(result: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return result
    np.copyto(out, result)
    return out
