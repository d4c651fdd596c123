"""Operands whose sum changes with nearly every change of order or rounding.

A sum hides its rounding errors unless it ends small. So each filter holds a *big pair*, C and -C,
which cancels wherever it meets, and everything else is *small*: a few units of C's last place and
about 0.3 of a unit more. Whatever is added to a sum that holds only one of the pair loses that
fraction; what is added after the pair has met keeps it; and two smalls added to each other first
lose another part than one by one. Which smalls are swallowed is exactly what an order decides, so
each order leaves its own total. *Middle pairs* do the same again, finer by half the digits, for
orders in which the big pair meets at once. x is 1 and a few units in the last place: it keeps
every window different and all products inexact, and the pairs small after they met, in every
window, whatever the stride and dilation. A fused product of the pair keeps digits that the rounded
one has lost.

Where the pairs sit was searched for: measured rates stand in tests/numbers/test_operands.py. What
can't show: with one product nothing; with two only fusion; with three and four also some exchanges
of two leaves (of the big pair); at the edge of a padded input windows that lack half a pair show
less. An accumulator wider than the operands' dtype loses nothing that could show.
"""

from __future__ import annotations

import numpy as np

from probe.operands.draw import below

Pair = tuple[int, int]


def layout(summands: int) -> tuple[Pair, list[Pair]]:
    """Leaves of the big pair and of the middle pairs, for two summands and more."""
    if summands < 5:
        return (summands - 2, summands - 1), []
    if summands < 8:
        return (2, 3), [(0, 4)]
    last = summands - 4 - (summands % 8 == 3)  # there it would fall between two blocks of lanes
    return (4, 6), [(1, 2), (last, last + 1)][: 2 if last > 6 else 1]


def inputs(seed: int, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """1 and one to eight units in the last place, float64."""
    return 1.0 + (1 + below(8, seed, "x", 0, shape)) * 2.0 ** (1 - precision)


def bias(seed: int, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers, float64."""
    return _smalls(seed, "b", precision, shape)


def weights(seed: int, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Pairs at their places, small numbers elsewhere, float64; each filter draws its own."""
    small = _smalls(seed, "w", precision, (int(np.prod(shape[:-1])), shape[-1]))
    if len(small) < 2:
        return small.reshape(shape)
    (first, second), middle = layout(len(small))
    for one, other in middle:
        size = _whole(seed, 2 + one, precision - 1 - _digits(precision), small.shape[1])
        small[one], small[other] = size + small[one] % 1, small[other] - size
    size = _whole(seed, 2 + first, precision - 1, small.shape[1])
    small[first], small[second] = size, -size
    if len(small) == 4:  # no room for a middle pair: one that cancels with what the big pair leaves
        size = _whole(seed, 2, precision // 2 - 3, small.shape[1])
        small[1] = size + small[1] % 1
        small[second] -= size
    return small.reshape(shape)


def _digits(precision: int) -> int:
    """Binary digits between the last places of the big and of the middle pair."""
    return precision // 2 - 2


def _whole(seed: int, draw: int, exponent: int, filters: int) -> np.ndarray:
    """Whole numbers from 1.25 to 1.75 times 2**exponent, one a filter, away from its ends."""
    fraction = below(2**32, seed, "w", draw, (1, filters))[0] * 2.0**-33
    return np.floor((1.25 + fraction) * 2.0**exponent)


def _smalls(seed: int, tensor: str, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Few units of either sign, 0.25 to 0.375 more, and so again in the middle pairs' units."""
    most = 2 ** (min(3, precision // 5) - 1)
    drawn = below(2**32, seed, tensor, 0, shape)
    units = (most + drawn % most) * np.where(drawn & 2**31, -1.0, 1.0)
    step = 2.0 ** -_digits(precision)
    coarse = np.floor((0.25 + ((drawn >> 8) & 0xFFFF) * 2.0**-19) / step) * step
    fine = (0.25 + below(2**32, seed, tensor, 1, shape) * 2.0**-35) * step
    return units + coarse + fine
