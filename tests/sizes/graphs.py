"""Graphs of NumPy operations that the tests of padding share."""

import numpy as np

import probe
from probe.order.semantics import Windows
from probe.record.ndarray import ArrayRecorder, operation
from probe.sizes.search import PaddedModel

FIXED, CHANNELS = 24, 3
X = np.random.default_rng(1).standard_normal((1, FIXED, CHANNELS)).astype(np.float32)
rng = np.random.default_rng(2)
ONE, TWO = (rng.standard_normal((3, CHANNELS, CHANNELS)).astype(np.float32) for _ in range(2))
BIAS = np.array([0.5, -0.25, 0.75], np.float32)
WIDE = Windows((1,), 2, (3,), (1,), (1,), ((1, 1),), reads=(0, 1), weights=(0, 1, 2))


def convolved(x, w, backwards=lambda size: False):
    """A SAME convolution with its sums in sequence, or from the other end at some sizes."""
    x, w = np.asarray(x), np.asarray(w)
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    size = x.shape[1]
    terms = [
        padded[:, k : k + size, c : c + 1] * w[k, c]
        for k in range(w.shape[0])
        for c in range(w.shape[1])
    ]
    y = np.zeros((*x.shape[:2], w.shape[2]), np.float32)
    for term in terms[::-1] if backwards(size) else terms:
        y = y + term
    return y


def conv(name, backwards=lambda size: False):
    return operation(name, WIDE)(lambda x, w: convolved(x, w, backwards))


class Opened:
    """A NumPy function as an opened model."""

    inputs = ()

    def __init__(self, function):
        self.function = function

    def recorder(self, arrays):
        return ArrayRecorder(self.function, *arrays.values())


def residual(backwards=lambda size: False):
    """Two convolutions with a residual connection, and the input concatenated."""
    first, second = conv("first"), conv("second", backwards)

    def model(x):
        y = np.maximum(first(x, ONE) + BIAS, np.float32(0))
        return np.concatenate([y + second(y, TWO), x], axis=2)

    return model


def graph(model, arrays=None, along=None, fixed=FIXED):
    return PaddedModel(Opened(model), arrays or {"x": X}, along or {"x": 1}, fixed)


def answered(model, **words):
    return probe.network(lambda x: model(x), inputs={"x": X}, fixed=FIXED, **words)


def added_in_sequence(x, w):
    """A product with its sums in sequence; in batches of three from the other end."""
    x, w = np.asarray(x), np.asarray(w)
    order = range(w.shape[0])[::-1] if len(x) == 3 else range(w.shape[0])
    y = np.zeros((len(x), w.shape[1]), np.float32)
    for k in order:
        y = y + x[:, k : k + 1] * w[k]
    return y
