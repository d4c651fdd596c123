"""Functions of one element in TensorFlow: a vector's body, and its tail."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from probe import ulp
from probe.invariant.classes import digest
from probe.invariant.telling import spread
from probe.invariant.tensorflow_calls import (
    FORMATS,
    SETS,
    Rows,
    Samples,
    Tensors,
    container,
    tensor,
)

AT_ONCE, LARGE = 1 << 24, 1 << 20  # elements of a function by place in one call
PLACES, TOLD, LONG = 1_531, 61, 4096
"""Values tried to find those that a vector's body and tail see differently; how many are kept, a
number that no vector's width divides; places of one value in an array whose middle is no tail."""


class ByPlace(Rows):
    """A function of one element, such as tanh: its bits may change with the place in a vector.

    It is called on flat tensors, ``inputs`` of them. The values that are held at places are zeros
    and subnormal numbers, which even a maximum treats differently in a vector's tail, and those at
    which one element alone and a long tensor give different bits, if there are any.
    """

    pieces = (AT_ONCE,)

    def __init__(
        self, name: str, dtype: Any, function: Callable[..., Any], inputs: int = 1
    ) -> None:
        super().__init__(f"{name} by place {FORMATS[dtype]}")
        self.dtype, self.function, self.inputs = dtype, function, inputs
        self._values: Any = None
        self._answers: Any = None

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        """As ``Rows.call``."""
        return self.function(*samples)

    def _told(self) -> Any:
        """``TOLD`` values: after the odd ones those that one element alone sees differently."""
        drawn = tensor(np.abs(spread(5, "x", (PLACES,), 8)), self.dtype)
        signs = tensor(np.where(np.arange(PLACES) % 2, 1.0, -1.0), self.dtype)
        both = tf.concat([drawn, drawn * signs], 0)
        given = (both, tf.roll(both, 1, 0))[: self.inputs]
        long = container(self.function(*given))[0]
        ones = zip(*(tf.split(one, len(both)) for one in given), strict=True)
        alone = tf.concat([self.function(*one) for one in ones], 0)
        there = ulp.apart(long, container(alone)[0], FORMATS[self.dtype], zeros="differ")
        apart = np.flatnonzero(there)
        inside = apart[apart < 2 * PLACES - 2 * PLACES % 1024]
        chosen = np.resize(inside if len(inside) else np.arange(PLACES, PLACES + TOLD), TOLD)
        return tf.concat([odd(self.dtype), tf.gather(both, chosen)], 0)[:TOLD]

    def _given(self, at: np.ndarray) -> Tensors:
        """Values by their numbers; beside each odd one stands its neighbour."""
        other = np.where(at < ODD, at ^ 1, (7 * at + 3) % TOLD)
        return tuple(tf.gather(self._values, one) for one in (at, other)[: self.inputs])

    def mark(self, size: int) -> str:
        """Whether every place gives each value the bits that a long tensor gives it."""
        if self._values is None:
            self._values = self._told()
            answers = self.function(*self._given(np.repeat(np.arange(TOLD), LONG)))
            self._answers = tf.reshape(answers, (TOLD, LONG))[:, LONG // 2]
        places, large = np.arange(size, dtype=np.int32), size >= LARGE
        turns = [ODD + (places + 17 * at) % (TOLD - ODD) for at in range(1 if large else SETS)]
        turns += [(places + at) % ODD for at in range(1, 3 if large else ODD + 1)]
        for turned in turns:
            y = self.function(*self._given(turned))
            there, wanted = container(y), container(tf.gather(self._answers, turned))
            if not ulp.equal(there[0], *wanted) or ulp.signed_zeros(there[0], *wanted):
                return ""
        return digest([container(self._answers[None])])

    def run(self, size: int) -> Any:
        """As ``Rows.run``."""
        half = tf.fill((size,), tf.cast(0.5, self.dtype))
        return self.function(*(half,) * self.inputs)


class Softmax(Samples):
    """A softmax of rows, whose exponentials are computed in vectors and tails too.

    The numbers of a row are those whose exponentials show the difference, below the largest; there
    are many, since the division hides some of it.
    """

    sets = 24

    def telling(self, number: int) -> tuple[Tensors, Tensors]:
        """As ``Rows.telling``."""
        (width,) = self.shapes[0]
        values = np.asarray(tf.cast(_exponents(self.dtype), tf.float64))
        row = np.resize(np.roll(values, 7 * number), width)
        row[number % width] = 0
        return (tensor(row, self.dtype),), ()


@cache
def _exponents(dtype: Any) -> Any:
    """Negative numbers, those first whose exponential one element alone sees differently."""
    told = ByPlace("Exp", dtype, tf.exp)._told()
    below = tf.boolean_mask(told, told < -0.01)
    return tf.cast(-np.arange(1, 20) / 7, dtype) if len(below) < 2 else below


ODD = 4  # they are in pairs
SMALL = {"float16": 1e-7, "bfloat16": 1e-40, "float32": 1e-40, "float64": 1e-310}


def odd(dtype: Any) -> Any:
    """Zeros and subnormal numbers of either sign."""
    kind = dtype.as_numpy_dtype
    small = SMALL[FORMATS[dtype]]
    return tf.constant(np.array([0.0, -0.0, small, -small]).astype(kind))
