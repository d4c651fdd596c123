"""Subnormal numbers that become zero, as a summation is replayed.

Processors can read subnormal operands as zeros and make zeros of subnormal results. A zero keeps
the sign of what it stands for. Whether a result is subnormal is told before it is rounded to its
format: ``floats.tiny`` says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from probe import floats
from probe.order.fma import Doubles
from probe.order.summation import EVERY, Rounding, Summation
from probe.order.tree import BIAS

Pick = slice | np.ndarray


def kept(summation: Summation) -> Summation:
    """The summation with nothing flushed."""
    names = ("inputs", "weights", "products", "whole", "sums")
    fields: dict[str, Any] = {f"flushed_{name}": frozenset() for name in names}
    return summation._replace(rounding=replace(summation.rounding, tininess=None, **fields))


class Flush:
    """What a rounding makes zero: of ``leaves`` leaves, masks (leaves,); None where there is none.

    Values are float64 of shape (leaves or nodes of a part, outputs), changed in place.
    """

    def __init__(self, rounding: Rounding, dtype: str, leaves: int) -> None:
        self.dtype, self.kind = dtype, rounding.tininess
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
            below = np.abs(values) < floats.tiny(self.dtype, "before")
            _zero(values, below & mask[leaves][:, None])

    def bias(self, values: Doubles) -> Doubles:
        """The bias as it is added."""
        if self._bias:
            _zero(values, np.abs(values) < floats.tiny(self.dtype, "before"))
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
            below = np.abs(values) < floats.tiny(product_format, self.kind)
        _zero(values, below & self._products[leaves][:, None])

    def whole(self, values: Doubles, leaves: Pick) -> None:
        """Exact products that enter their addition; of float64 there are none here."""
        if self._whole is not None:
            below = np.abs(values) < floats.tiny(self.dtype, "before")
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
        _zero(values, np.abs(values) < floats.tiny(name, self.kind))
        return values


def _mask(flushed: frozenset[int], leaves: int) -> np.ndarray | None:
    """Which of ``leaves`` leaves are in a set; None if it names none."""
    if not flushed:
        return None
    if EVERY in flushed:
        return np.ones(leaves, bool)
    return np.isin(np.arange(leaves), list(flushed))


def _zero(values: Doubles, where: np.ndarray) -> None:
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
