"""Operand bits, the same for all time and on every NumPy: no library's random stream is used.

Every element is a hash of (seed, tensor, draw, coordinates), the finaliser of splitmix64 (Steele,
Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014) applied once an axis.
So the operands of a shorter, smaller or narrower case are the prefix of a larger one's.
:data:`VERSION` changes with any bit; it is part of every case's id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from probe import floats

VERSION = 1

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_TENSORS = {"x": 1, "w": 2, "b": 3}


class Drawn(Protocol):
    """What :func:`generate` reads of a case: see :class:`probe.case.Case`."""

    @property
    def kind(self) -> str:
        """A name in :data:`KINDS`."""

    @property
    def seed(self) -> int:
        """From 0 to 2**64 - 1."""

    @property
    def dtype(self) -> str:
        """A name in :data:`probe.floats.FORMATS`."""

    @property
    def summands(self) -> int:
        """Products in each output."""

    @property
    def filters(self) -> int:
        """Output channels."""

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """(*kernel, in_channels / groups, filters)."""

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Explicit weights, row by row."""

    @property
    def bias(self) -> float | str | tuple[float, ...] | None:
        """None: no bias; ``"normal"``: a generated one."""

    @property
    def bias_values(self) -> tuple[float, ...] | None:
        """The explicit bias of every filter."""

    def input_shape(self) -> tuple[int, ...]:
        """(batch, *spatial, in_channels)."""


class Kind(NamedTuple):
    """One kind of operands: what it is for, and how its input, weights and bias are drawn."""

    about: str
    input: Callable[[Drawn, tuple[int, ...]], np.ndarray]
    weights: Callable[[Drawn, tuple[int, ...]], np.ndarray]
    bias: Callable[[Drawn, tuple[int, ...]], np.ndarray]


def generate(case: Drawn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(x, w, b) as container arrays of the case's dtype; b is None without a bias.

    Explicit weights and biases are rounded once to the dtype; they replace the generated ones.
    """
    kind = KINDS[case.kind]
    x = kind.input(case, case.input_shape())
    if case.weights is None:
        w = kind.weights(case, case.weight_shape)
    else:
        w = np.array(case.weights, dtype=np.float64).reshape(case.weight_shape)
    b = None
    if case.bias == "normal":
        b = kind.bias(case, (case.filters,))
    elif case.bias_values is not None:
        b = np.array(case.bias_values, dtype=np.float64)
    rounded = floats.round_to(x, case.dtype), floats.round_to(w, case.dtype)
    return (*rounded, None if b is None else floats.round_to(b, case.dtype))


def hashes(seed: int, tensor: str, draw: int, shape: tuple[int, ...]) -> np.ndarray:
    """uint64 hashes of every coordinate of ``shape``; a smaller shape gives their prefix."""
    start = (seed + _GOLDEN * (1 + _TENSORS[tensor] + 8 * draw)) & _MASK
    state = _mix(np.full((1,) * len(shape), start, dtype=np.uint64))
    for axis, size in enumerate(shape):
        steps = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        state = _mix(state + steps.reshape((-1,) + (1,) * (len(shape) - axis - 1)))
    return state


def _mix(state: np.ndarray) -> np.ndarray:
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


def _normal(tensor: str) -> Callable[[Drawn, tuple[int, ...]], np.ndarray]:
    return lambda case, shape: normal(case.seed, tensor, shape)


def _ramp(case: Drawn, shape: tuple[int, ...]) -> np.ndarray:
    steps = 10.0 * np.arange(shape[-2], dtype=np.float64)
    return np.broadcast_to(steps[:, None], shape)


def _ones(case: Drawn, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape)


KINDS = {
    "normal": Kind("nearly normal numbers", _normal("x"), _normal("w"), _normal("b")),
    "ramp": Kind("x is 10 * t along the length", _ramp, _normal("w"), _normal("b")),
    "ones": Kind("x and w are 1: every output counts its products", _ones, _ones, _ones),
}
