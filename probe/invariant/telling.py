"""Operands that show nearly every other order of additions, the same for all time.

A sum hides its rounding errors unless it ends small. Here it ends at nothing: half of the products
are the other half with the sign turned, at shuffled places, over 16 binades. The exact sum is zero,
so what comes out *is* the rounding errors, and another order or rounding makes others: also where
the library adds in a wider format and rounds at the end, which no other operands show. A bias is
too small to hide them, or (``of_bias``) takes away one product that has no partner: what is left is
then how that product was rounded, and where the bias was added.
"""

from __future__ import annotations

import numpy as np

from probe import floats, operands

BINADES = 12
OF_BIAS = 2.0**-16  # of about the size of what the products leave, so that neither hides the other


def spread(seed: int, tensor: str, shape: tuple[int, ...], binades: int = BINADES) -> np.ndarray:
    """Numbers of either sign over some binades, float64: hashes of seed and coordinates."""
    drawn = operands.hashes(seed, tensor, 0, shape)
    fraction = 1.0 + (drawn >> np.uint64(12)).astype(np.float64) * 2.0**-52
    sign = np.where(drawn & np.uint64(1), -1.0, 1.0)
    power = (drawn >> np.uint64(8)) % np.uint64(binades)
    scaled: np.ndarray = sign * np.ldexp(fraction, power.astype(np.int64) - binades // 2)
    return scaled


def products(
    seed: int,
    leaves: int,
    filters: int,
    dtype: str,
    of_bias: bool = False,
    constant: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (leaves,), w (leaves, filters) and b (filters,) whose products cancel.

    They are float64 values of ``dtype``. ``constant``: the value of all x; None: they are spread.
    """
    x = spread(seed, "x", (leaves,), 4) if constant is None else np.full(leaves, constant)
    x, w = floats.nearest(x, dtype), floats.nearest(spread(seed, "w", (leaves, filters)), dtype)
    shuffled = np.argsort(operands.hashes(seed, "x", 1, (leaves,)), kind="stable").tolist()
    b = floats.nearest(OF_BIAS * spread(seed, "b", (filters,), 4), dtype)
    if of_bias or leaves == 1:
        alone = shuffled.pop()
        b = -floats.nearest(x[alone] * w[alone], dtype)
    if len(shuffled) % 2 and len(shuffled) > 1:  # three that cancel: once, once, and twice less
        one, other, twice = (shuffled.pop() for _ in range(3))
        x[other] = x[twice] = x[one]
        w[other], w[twice] = w[one], -2 * w[one]
    if len(shuffled) == 1:
        w[shuffled] = 0
    half = len(shuffled) // 2
    left, right = shuffled[:half], shuffled[half : 2 * half]
    x[right], w[right] = x[left], -w[left]
    return x, w, b
