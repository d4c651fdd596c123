"""The kinds of operands, and the operands of a case.

Along length, batch, height and filters the operands of a smaller case are the prefix of a larger
one's, for every kind; for ``normal`` along the channels too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from probe import floats, memory
from probe.operands import cancel
from probe.operands.draw import below, normal

VERSION = 1
"""Changes with any bit of any operand; it is part of every case's id."""

Shape = tuple[int, ...]


class Drawn(Protocol):
    """What :func:`generate` reads of a case: see :class:`probe.case.Case`."""

    @property
    def kind(self) -> str:
        """A name in :data:`KINDS`."""

    @property
    def seed(self) -> int:
        """From 0 to 2**63 - 1."""

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
    def weighted(self) -> bool:
        """False: a plain sum, whose weights are 1."""

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

    def output_shape(self) -> tuple[int, ...]:
        """(batch, *output positions, filters)."""


Draw = Callable[[Drawn, Shape], np.ndarray]


class Kind(NamedTuple):
    """One kind: what it is for, and how its input, weights and bias are drawn, as float64."""

    about: str
    input: Draw
    weights: Draw
    bias: Draw


def generate(case: Drawn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(x, w, b) as container arrays of the case's dtype; b is None without a bias.

    Explicit weights and biases are rounded once to the dtype; they replace the generated ones. What
    is not weighted has weights of 1, and for ``cancel`` its input takes up the drawn ones: they are
    what makes a sum cancel. InputError: a run of the case needs more memory than is free.
    """
    memory.require(case)
    kind = KINDS[case.kind]
    x = kind.input(case, case.input_shape())
    if not case.weighted:
        w = np.ones(case.weight_shape)
        if case.kind == "cancel" and x.shape[-1] == w.size:  # a sum, and no pooling
            x = x * kind.weights(case, case.weight_shape).reshape(-1)
    elif case.weights is None:
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


def _normal(tensor: str) -> Draw:
    return lambda case, shape: normal(case.seed, tensor, shape)


def _ramp(case: Drawn, shape: Shape) -> np.ndarray:
    steps = 10.0 * np.arange(shape[-2], dtype=np.float64)
    return np.broadcast_to(steps[:, None], shape)


def _count(case: Drawn, shape: Shape) -> np.ndarray:
    steps = 1.0 + np.arange(shape[-2], dtype=np.float64)
    return np.broadcast_to(steps[:, None], shape)


def _pixels(case: Drawn, shape: Shape) -> np.ndarray:
    return below(2**32, case.seed, "x", 0, shape) / 2.0**32


def _layer(tensor: str) -> Draw:
    """Weights and biases as PyTorch's layers start: uniform within 1 / sqrt(summands)."""

    def draw(case: Drawn, shape: Shape) -> np.ndarray:
        within = (2 * below(2**32, case.seed, tensor, 0, shape) + 1 - 2**32) / 2.0**32
        return within / math.sqrt(case.summands)

    return draw


def _ones(case: Drawn, shape: Shape) -> np.ndarray:
    return np.ones(shape)


def _limits(case: Drawn) -> tuple[int, int, int]:
    """Largest |x| and |w|, and the distance of weights that are not 0, so that no sum can round.

    Every partial sum is at most 2**precision, the bias counted as one more product.
    """
    room = 2 ** floats.format_of(case.dtype).precision
    product = room // (case.summands + 1)
    weight = max(min(math.isqrt(product), 7), 1)
    return max(min(product // weight, 15), 1), weight, -(-case.summands // (room - 1))


def _whole(case: Drawn, tensor: str, largest: int, shape: Shape) -> np.ndarray:
    return (below(2 * largest + 1, case.seed, tensor, 0, shape) - largest).astype(np.float64)


def _integer_input(case: Drawn, shape: Shape) -> np.ndarray:
    return _whole(case, "x", _limits(case)[0], shape)


def _integer_weights(case: Drawn, shape: Shape) -> np.ndarray:
    _, largest, step = _limits(case)
    values = _whole(case, "w", largest, shape).reshape(case.summands, -1)
    leaf, filter_ = np.ogrid[: values.shape[0], : values.shape[1]]
    return (values * ((leaf + filter_) % step == 0)).reshape(shape)


def _integer_bias(case: Drawn, shape: Shape) -> np.ndarray:
    return _whole(case, "b", 1, shape)


def _cancel(tensor: str) -> Draw:
    draw = {"x": cancel.inputs, "w": cancel.weights, "b": cancel.bias}[tensor]
    return lambda case, shape: draw(case.seed, floats.format_of(case.dtype).precision, shape)


KINDS = {
    "normal": Kind("nearly normal numbers", _normal("x"), _normal("w"), _normal("b")),
    "ramp": Kind("x is 10 * t along the length", _ramp, _normal("w"), _normal("b")),
    "cancel": Kind(
        "a changed order or rounding shows at almost every output",
        *(_cancel(tensor) for tensor in "xwb"),
    ),
    "integers": Kind(
        "small whole numbers, all sums exact: a control where nothing can show",
        _integer_input,
        _integer_weights,
        _integer_bias,
    ),
    "count": Kind("x is 1, 2, 3, ... along the length", _count, _ones, _ones),
    "image": Kind(
        "pixels from 0 to 1, weights as a layer starts: within 1 / sqrt(summands)",
        _pixels,
        _layer("w"),
        _layer("b"),
    ),
    "ones": Kind("x and w are 1: every output counts its products", _ones, _ones, _ones),
}
