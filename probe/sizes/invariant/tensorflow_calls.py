"""TensorFlow's operations as they are checked and as they are run: the same calls for both.

Tensors begin at whole multiples of 64 bytes (TensorFlow copies what doesn't), so that the place in
memory is no question here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config

from probe.case import floats
from probe.case.case import Case
from probe.record.recorders.tensorflow_values import array, run_op, tensor_of
from probe.sizes.invariant import operations
from probe.sizes.invariant.classes import Plan
from probe.sizes.invariant.operations import Tensors, cancelling_products, convolved_operands

FORMATS = {
    tf.float32: "float32",
    tf.float64: "float64",
    tf.float16: "float16",
    tf.bfloat16: "bfloat16",
}


def threads() -> int:
    """As ``keeper.Library.threads``: they are fixed where TensorFlow runs its first operation."""
    return tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))


def settings() -> tuple[Any, ...]:
    """As ``keeper.Library.settings``: the others are read where TensorFlow starts."""
    return (config.is_op_determinism_enabled(),)


def changed(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    return "" if before == now else f"deterministic={now[0]}"


@contextmanager
def with_threads(count: int) -> Iterator[int]:
    """As ``keeper.Library.with_threads``: those that there are."""
    yield threads()


def container(y: Any) -> tuple[np.ndarray, str]:
    """Returns a tensor's bits as a container array, and the name of its format."""
    return array(y), FORMATS[y.dtype]


def tensor(values: np.ndarray, dtype: Any) -> Any:
    """float64 values rounded to a tensor's format."""
    return tensor_of(floats.round_to(np.asarray(values, np.float64), FORMATS[dtype]), dtype)


_constant_shape = lru_cache(1024)(lambda shape: tf.constant(shape, tf.int32))


def reshaped(x: Any, shape: Iterable[int]) -> Any:
    """Returns the same numbers in a shape; quicker than ``tf.reshape``."""
    given, shape = tuple(x.shape), tuple(shape)
    if given == shape:
        return x
    words = ("T", x.dtype, "Tshape", tf.int32)
    return run_op("Reshape", (x, _constant_shape(shape)), words, 1)[0]


def repeated(sample: Tensors, size: int) -> Tensors:
    return tuple(tf.broadcast_to(x, (size, *x.shape)) for x in sample)


TOOLS = operations.Tools(
    FORMATS, tensor, repeated, lambda x, at: tf.gather(x, at.astype(np.int32)), container
)


class TensorFlowTestedRows(operations.TestedRows):
    tools = TOOLS


class TensorFlowSamples(operations.IndependentSamples, TensorFlowTestedRows):
    """``variables``: handles among ``held``."""

    variables: Sequence[Any] = ()


class MatrixProduct(TensorFlowTestedRows):
    """Rows times a matrix: w (channels, filters), or (filters, channels) if it is ``turned``."""

    def __init__(self, channels: int, filters: int, dtype: Any, turned: bool) -> None:
        super().__init__(f"matmul {channels} -> {filters}{' turned' * turned} {FORMATS[dtype]}")
        self.channels, self.filters, self.dtype, self.turned = channels, filters, dtype, turned
        self._words = ("transpose_a", False, "transpose_b", turned, "T", dtype)

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        x, w, _ = cancelling_products(
            number, self.channels, self.filters, FORMATS[self.dtype], number == 1
        )
        return (tensor(x, self.dtype),), (tensor(w.T if self.turned else w, self.dtype),)

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        return run_op("MatMul", (samples[0], parameters[0]), self._words, 1)[0]

    def case(self) -> Case | None:
        if self.turned:
            return None
        dtype = FORMATS[self.dtype]
        return Case("dense", in_channels=self.channels, filters=self.filters, dtype=dtype)


class TensorFlowConvolution(TensorFlowTestedRows):
    """A convolution of one spatial size, channels last: samples are those of the batch.

    ``op``: TensorFlow's name of it; ``words``: its attributes. ``sizes``: of one transposed sample.
    """

    pieces = (64, 32, 128, 16)

    def __init__(
        self,
        op: str,
        shape: tuple[int, ...],
        weights: tuple[int, ...],
        dtype: Any,
        attributes: Sequence[Any],
        sizes: tuple[int, ...] = (),
    ) -> None:
        words: Mapping[str, Any] = dict(zip(attributes[::2], attributes[1::2], strict=True))
        said = " ".join(f"{name}={plainly(words[name])}" for name in NAMED if words.get(name))
        text = "x".join(map(str, shape)), "x".join(map(str, weights))
        to = f" to {'x'.join(map(str, sizes))}" * bool(sizes)
        super().__init__(f"{op} of {text[0]} by {text[1]}{to} {said} {FORMATS[dtype]}")
        self.op, self.shape, self.weights, self.dtype = op, shape, weights, dtype
        self.attributes, self.words, self.sizes = attributes, words, sizes

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        *kernel, channels, filters = self.weights
        if self.sizes:  # a transposed one has them the other way round
            channels, filters = filters, channels
        elif "Depthwise" in self.op:
            channels, filters = 1, channels * filters
        leaves = math.prod(kernel) * channels
        x, w, _ = convolved_operands(number, self.shape, leaves, filters, FORMATS[self.dtype])
        if self.sizes:
            w = w.reshape(*kernel, channels, filters).swapaxes(-1, -2)
        return (tensor(x, self.dtype),), (tensor(w.reshape(self.weights), self.dtype),)

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        (x,), (w,) = samples, parameters
        # of a transposed one TensorFlow is told the sizes of what comes out, the batch too
        given = (tf.constant((len(x), *self.sizes)), w, x) if self.sizes else (x, w)
        return run_op(self.op, given, self.attributes, 1)[0]

    def case(self) -> Case | None:
        """As ``IndependentRows.case``: of those that keep to the words of ``Case``."""
        rank, padding = len(self.shape) - 1, plainly(self.words.get("padding"))
        if self.op != "Conv2D" or padding not in ("SAME", "VALID"):
            return None
        return Case(
            f"conv{rank}d",
            "x".join(map(str, self.weights[:rank])),
            self.shape[-1],
            self.weights[-1],
            stride=tuple(self.words["strides"][1:-1]),
            dilation=tuple(self.words.get("dilations", (1,) * (rank + 2))[1:-1]),
            groups=self.shape[-1] // self.weights[-2],
            padding=padding.lower(),
            height=self.shape[0],
            length=self.shape[1],
            dtype=FORMATS[self.dtype],
        )


# The attributes that are part of a convolution's name.
NAMED = ("strides", "dilations", "padding", "explicit_paddings")


class TensorFlowByPlace(operations.ByPlace):
    tools, tried = TOOLS, 1_531
    pieces = (1 << 24,)


class Softmax(TensorFlowSamples):
    """A softmax of rows, whose exponentials are computed in vectors and tails too.

    The numbers of a row are those whose exponentials show the difference, below the largest; there
    are many, since the division hides some of it.
    """

    sets = 24

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        (width,) = self.shapes[0]
        values = _exponents(self.dtype)
        row = np.resize(np.roll(values, 7 * number), width)
        # the largest, which a softmax subtracts from all
        row[number % width] = 0
        return (tensor(row, self.dtype),), ()


@cache
def _exponents(dtype: Any) -> np.ndarray:
    """Negative numbers, those first whose exponential one element alone sees differently."""
    (values,) = TensorFlowByPlace("Exp", dtype, tf.exp).values()
    below = values[values < -0.01]
    return -np.arange(1, 20) / 7 if len(below) < 2 else below


def plainly(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def joined_pieces(operation: Any, plan: Plan, samples: Tensors, parameters: Tensors) -> Any:
    """As ``keeper.Library.runner``."""
    if len(plan) == 1 and plan[0].places == plan[0].size:
        return operation.call(samples, parameters)
    answers = []
    for start, count, size in plan:
        part = tuple(
            # no sample is odd: copies of the first stand behind the others
            tf.gather(x, _padded_places(start, count, size))
            if count < size
            else _samples_from(x, start, count)
            for x in samples
        )
        y = operation.call(part, parameters)
        answers.append(y if count == size else _samples_from(y, 0, count))
    return answers[0] if len(plan) == 1 else tf.concat(answers, 0)


runner = joined_pieces


@lru_cache(4096)
def _padded_places(start: int, count: int, size: int) -> Any:
    return tf.constant([*range(start, start + count), *[start] * (size - count)], tf.int32)


def _samples_from(x: Any, start: int, count: int) -> Any:
    return tf.strided_slice(x, [start], [start + count], [1])
