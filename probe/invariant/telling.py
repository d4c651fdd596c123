"""Operands that show nearly every other order of additions, the same for all time.

A sum hides its rounding errors unless it ends small. Here it ends at nothing: half of the products
are the other half with the sign turned, at shuffled places, over 16 binades. The exact sum is zero,
so what comes out *is* the rounding errors, and another order or rounding makes others: also where
the library adds in a wider format and rounds at the end, which no other operands show.
"""

from __future__ import annotations

import numpy as np

from probe import operands

BINADES = 12
OF_BIAS = 2.0**-16  # of about the size of what the products leave, so that neither hides the other


def spread(seed: int, tensor: str, shape: tuple[int, ...], binades: int = BINADES) -> np.ndarray:
    """Numbers of either sign over some binades, float64: hashes of seed and coordinates."""
    drawn = operands.hashes(seed, tensor, 0, shape)
    fraction = 1.0 + (drawn >> np.uint64(40)).astype(np.float64) * 2.0**-24
    sign = np.where(drawn & np.uint64(1), -1.0, 1.0)
    power = (drawn >> np.uint64(8)) % np.uint64(binades)
    scaled: np.ndarray = sign * np.ldexp(fraction, power.astype(np.int64) - binades // 2)
    return scaled


def products(seed: int, leaves: int, filters: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (leaves,), w (leaves, filters) and b (filters,), float64, whose products cancel."""
    x, w = spread(seed, "x", (leaves,), 4), spread(seed, "w", (leaves, filters))
    shuffled = np.argsort(operands.hashes(seed, "x", 1, (leaves,)), kind="stable")
    half = leaves // 2
    one, other = shuffled[:half], shuffled[half : 2 * half]
    x[other], w[other] = x[one], -w[one]
    return x, w, OF_BIAS * spread(seed, "b", (filters,), 4)
