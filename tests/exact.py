"""Exact rational arithmetic: what every rounding of ours is checked against."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from probe.case import floats


def rounded(exact: Fraction, name: str) -> float:
    """A rational number rounded once to a format: to the nearest, ties to even, inf beyond."""
    form = floats.format_of(name)
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = Fraction(2) ** (max(exponent, form.emin) - form.precision + 1)
    value = round(size / step) * step  # Fraction rounds ties to even
    sign = -1.0 if exact < 0 else 1.0
    return sign * (math.inf if value > Fraction(floats.largest_finite(name)) else float(value))


def awkward(name: str, count: int, seed: int) -> np.ndarray:
    """Finite operands (a container array) that provoke midpoints, subnormals and overflow."""
    rng, form = np.random.default_rng(seed), floats.FORMATS[name]
    bits = rng.integers(0, 1 << form.bits, count, dtype=np.uint64)
    any_bits = floats.widen(floats.from_bits(bits, name), name)
    few_digits = rng.integers(-8, 9, count) * 2.0 ** rng.integers(-12, 13, count)
    near_one = 1 + rng.integers(-4, 5, count) * floats.eps(name)
    near_one *= 2.0 ** rng.integers(-4, 5, count)
    lowest = form.emin - form.precision + 1
    subnormal = rng.integers(-8, 9, count) * 2.0 ** (lowest + rng.integers(0, 8, count))
    chosen = np.choose(rng.integers(0, 4, count), [any_bits, few_digits, near_one, subnormal])
    return floats.round_to(np.where(np.isfinite(chosen), chosen, 1.0), name)
