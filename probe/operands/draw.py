"""The generator: bits that are the same for all time and on every NumPy.

Every element is a hash of (seed, tensor, draw, coordinates), the finaliser of splitmix64 (Steele,
Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014) applied once an axis.
So a smaller array is the prefix of a larger one along every axis.
"""

from __future__ import annotations

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_TENSORS = {"x": 1, "w": 2, "b": 3}


def hashes(seed: int, tensor: str, draw: int, shape: tuple[int, ...]) -> np.ndarray:
    """uint64 hashes of every coordinate of ``shape``; a smaller shape gives their prefix."""
    start = (seed + _GOLDEN * (1 + _TENSORS[tensor] + 8 * draw)) & _MASK
    state = mix(np.full((1,) * len(shape), start, dtype=np.uint64))
    for axis, size in enumerate(shape):
        steps = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        state = mix(state + steps.reshape((-1,) + (1,) * (len(shape) - axis - 1)))
    return state


def mix(state: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, a bijection of 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def normal(seed: int, tensor: str, shape: tuple[int, ...]) -> np.ndarray:
    """Nearly normal numbers (Irwin-Hall: the sum of 12 uniforms, less 6), exact in float64."""
    total = np.zeros(shape, dtype=np.int64)
    for draw in range(6):
        pair = hashes(seed, tensor, draw, shape)
        total += (pair >> np.uint64(32)).astype(np.int64)
        total += (pair & np.uint64(2**32 - 1)).astype(np.int64)
    values: np.ndarray = (2 * total + 12 - 12 * 2**32) / 2.0**33
    return values


def below(limit: int, seed: int, tensor: str, draw: int, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers from 0 to ``limit`` - 1, int64; ``limit`` at most 2**32."""
    high = hashes(seed, tensor, draw, shape) >> np.uint64(32)
    return ((high * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)
