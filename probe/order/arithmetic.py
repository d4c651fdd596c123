"""Rounds exact sums once, and makes zeros of subnormal numbers, as a replay does.

NumPy has no fused multiply-add. Up to 26 bits of precision the product of two operands is exact in
float64; the sum with the third is rounded there, and is wrong after the second rounding only if it
fell on a midpoint of the narrower format: these rare sums are rounded to odd first (Boldo and
Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
IEEE Transactions on Computers 57, 2008). float64 follows their algorithm; operands for which its
error-free steps could over- or underflow are done with ``fractions``.

Processors can read subnormal operands as zeros and make zeros of subnormal results. A zero keeps
the sign of what it stands for. Whether a result is subnormal is told before it is rounded to its
format: ``floats.flushed_below`` says how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from probe.case import floats
from probe.order.summation import EVERY, Rounding
from probe.order.tree import BIAS

Doubles = NDArray[np.float64]

# Elements worked on at once: five float64 rows of this length fit the level-two cache, and the
# calls into NumPy cost less than the work.
BLOCK = 16384  # speed alone

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
        container_dtype = np.dtype(name if name in ("float16", "float32") else "float32")
        self._own = np.empty(size, dtype=container_dtype)

    def total(self, first: Doubles, second: Doubles, out: Doubles) -> Doubles:
        """first + second in ``out``, such that rounding ``out`` rounds the exact sum."""
        np.add(first, second, out=out)
        if self.name != "float64" and self._suspect(out):  # speed alone: exact sums are not changed
            self._repair(first, second, out)
        return out

    def settle(self, out: Doubles) -> Doubles:
        """Rounds float64 values to the format in place."""
        if self.name in ("float16", "float32"):
            narrow = self._own[: out.size].reshape(out.shape)
            np.copyto(narrow, out, casting="same_kind")
            np.copyto(out, narrow)
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
    (high, low), (other_high, other_low) = _split_in_halves(first), _split_in_halves(second)
    error = high * other_high - product
    return product, ((error + high * other_low) + low * other_high) + low * other_low


def _split_in_halves(values: Doubles) -> tuple[Doubles, Doubles]:
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
    # a pair of float64 holds the sum as long as the error of the error is zero
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
        total[place], error[place] = _sum_by_fractions([], values)
    return total, error


def _sum_by_fractions(pairs: list[tuple[float, float]], terms: list[float]) -> tuple[float, float]:
    """The sum of products and terms rounded once to float64, and the sign of what is left."""
    finite = all(map(math.isfinite, [*terms, *(factor for pair in pairs for factor in pair)]))
    if not finite:
        odd = [value for value in terms if not math.isfinite(value)]
        odd += [x * w for x, w in pairs if not (math.isfinite(x) and math.isfinite(w))]
        return float(np.sum(odd)), 0.0
    exact = sum((Fraction(x) * Fraction(w) for x, w in pairs), Fraction(0))
    exact += sum(map(Fraction, terms), Fraction(0))
    try:
        total = exact.numerator / exact.denominator  # Python rounds this once, to the nearest
    except OverflowError:
        return math.inf if exact > 0 else -math.inf, 0.0
    error = exact - Fraction(total)
    return total, float((error > 0) - (error < 0))


@np.errstate(all="ignore")
def fma_float64(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """a * b + c rounded once to float64, for arrays of one shape (Boldo and Melquiond)."""
    high, low = two_product(a, b)
    above, below = two_sum(c, low)
    total, rest = two_sum(high, above)
    result = total + to_odd(*two_sum(below, rest))
    size = np.abs(high)
    # within these sizes no step above can under- or overflow; the few others are exact fractions,
    # and narrower bounds cost speed alone
    safe = (size >= 2.0**-960) & (size <= 2.0**1010) & (np.abs(c) <= 2.0**1010)
    safe &= (np.abs(a) <= 2.0**990) & (np.abs(b) <= 2.0**990)
    if not safe.all():
        zero = (a == 0) | (b == 0)
        result = np.where(zero, a * b + c, result)
        for place in zip(*np.nonzero(~(safe | zero)), strict=True):
            pair = float(a[place]), float(b[place])
            result[place] = _sum_by_fractions([pair], [float(c[place])])[0]
    return result


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
        total[place] = _sum_by_fractions(pairs, rest)[0]
    return total


Pick = slice | np.ndarray


class Flush:
    """What a rounding makes zero: of ``leaves`` leaves, masks (leaves,); None where there is none.

    Values are float64 of shape (leaves or nodes of a part, outputs), changed in place.
    """

    def __init__(self, rounding: Rounding, dtype: str, leaves: int) -> None:
        self.dtype, self.kind = dtype, rounding.tininess
        self._below = floats.flushed_below(dtype, "before")
        self.inputs = _mask(rounding.flushed_inputs, leaves)
        self.weights = _mask(rounding.flushed_weights, leaves)
        self._products = _mask(rounding.flushed_products, leaves)
        self._whole = _mask(rounding.flushed_whole, leaves)
        self._bias = bool(rounding.flushed_products & {EVERY, BIAS})

    @property
    def of_products(self) -> bool:
        """Whether products that are rounded before they are added are flushed."""
        return self._products is not None

    def operands(self, values: Doubles, mask: np.ndarray | None, leaves: Pick) -> None:
        """Operands of leaves, where ``mask`` says that these are flushed."""
        if mask is not None:
            below = np.abs(values) < self._below
            _zero(values, below & mask[leaves][:, None])

    def bias(self, values: Doubles) -> Doubles:
        """The bias as it is added."""
        if self._bias:
            _zero(values, np.abs(values) < self._below)
        return values

    def products(
        self, x: Doubles, w: Doubles, values: Doubles, leaves: Pick, product_format: str
    ) -> None:
        """Products ``values`` of x and w before they are rounded to ``product_format``."""
        if self._products is None:
            return
        if self.dtype == product_format == "float64":
            below = tiny_doubles([(x, np.broadcast_to(w, x.shape))], [], values, self.kind)
        else:
            below = np.abs(values) < floats.flushed_below(product_format, self.kind)
        _zero(values, below & self._products[leaves][:, None])

    def whole(self, values: Doubles, leaves: Pick) -> None:
        """Exact products that enter their addition; of float64 there are none here."""
        if self._whole is not None:
            below = np.abs(values) < self._below
            _zero(values, below & self._whole[leaves][:, None])

    def factors(self, x: Doubles, w: Doubles, leaves: Pick) -> tuple[Doubles, Doubles]:
        """float64 factors of exact products."""
        if self._whole is not None:
            below = tiny_doubles([(x, w)], [], x * w, "before") & self._whole[leaves][:, None]
            sign = np.copysign(1.0, x) * np.copysign(1.0, w)
            x, w = np.where(below, np.copysign(0.0, sign), x), np.where(below, 1.0, w)
        return x, w

    def sums(self, values: Doubles, name: str) -> Doubles:
        """Sums before they are rounded to a format; in float64 they are exact if subnormal."""
        _zero(values, np.abs(values) < floats.flushed_below(name, self.kind))
        return values


def _mask(flushed: frozenset[int], leaves: int) -> np.ndarray | None:
    """Which of ``leaves`` leaves are in a set; None if it names none."""
    if not flushed:
        return None
    if EVERY in flushed:
        return np.ones(leaves, bool)
    return np.isin(np.arange(leaves), list(flushed))


def _zero(values: Doubles, where: np.ndarray) -> None:
    if where.any():  # speed alone: nearly always nothing is
        values[where] = np.copysign(0.0, values[where])


def tiny_doubles(
    factors: Sequence[tuple[Doubles, Doubles]],
    terms: Sequence[Doubles],
    rounded: Doubles,
    kind: str | None,
) -> np.ndarray:
    """Where the exact sum of products and terms counts as subnormal; ``rounded``: in float64.

    What rounds to less than the smallest normal number always does; what rounds to that number
    itself is looked at exactly.
    """
    least = 2.0 ** floats.FORMATS["float64"].emin
    below: np.ndarray = np.abs(rounded) < least
    if kind == "grid":
        return below
    limit = Fraction(least) * (1 - Fraction(0 if kind == "before" else 2.0**-54))
    for place in zip(*np.nonzero(np.abs(rounded) == least), strict=True):
        exact = sum((Fraction(x[place]) * Fraction(w[place]) for x, w in factors), Fraction(0))
        exact += sum((Fraction(term[place]) for term in terms), Fraction(0))
        below[place] = abs(exact) < limit
    return below
