"""Operators whose long axis is the library's first spatial one: height and length change places.

Here the length is always the last spatial axis. A spec with ``turned`` stands for the operator with
its two spatial axes the other way round: the library gets (batch, length, height, channels) and
(length, height, ...) kernels, as the user's model gives them, since the axis decides the kernel.
"""

import numpy as np

from probe.backends.contract import Operator


def library_spec(spec):
    """The spec as the library has it, without ``turned``. Others, of rows of a product, stay."""
    if "turned" not in spec:
        return spec
    found = {name: value for name, value in spec.items() if name != "turned"}
    for name in ("kernel", "stride", "dilation", "padding"):
        if name in found and not isinstance(found[name], str):
            found[name] = list(found[name])[::-1]
    if found.get("remedy", {}).get("kind") in ("chunks", "pad"):
        found["remedy"] = dict(found["remedy"], axis=0)
    if found["op"] == "extend":
        found["axis"] = 0
    return found


def activations(x):
    """(batch, height, length, channels) as (batch, length, height, channels), or back."""
    return np.ascontiguousarray(np.swapaxes(x, 1, 2))


def kernel(w):
    """Weights (height, length, ...) as (length, height, ...), or back."""
    return np.ascontiguousarray(np.swapaxes(w, 0, 1))


def shapes(given):
    """Shapes of x and w as the library has them."""
    x, w = given["x"], given["w"]
    return {"x": (x[0], x[2], x[1]) + x[3:], "w": (w[1], w[0]) + w[2:]}


def arrays(spec, given):
    """A layer's operands by name as the library has them."""
    turn = {"w": kernel, "tail": activations} if "turned" in spec else {}
    return {name: turn.get(name, np.asarray)(array) for name, array in given.items()}


class Turned(Operator):
    """``inner``: the operator of ``library_spec``."""

    def __init__(self, inner, spec):
        Operator.__init__(self, spec)
        self.inner, self.call = inner, inner.call
        self.constant_weights, self.native = inner.constant_weights, getattr(inner, "native", True)

    def input(self, x):
        return self.inner.input(activations(x))

    def weights(self, w):
        return self.inner.weights(kernel(w))

    def bias(self, b):
        return self.inner.bias(b)

    def output(self, y):
        return activations(self.inner.output(y))


class TurnedChain:
    """A library's program of layers: ``input`` and ``output`` turn the activations."""

    def __init__(self, inner):
        self.inner, self.call = inner, inner.call

    def input(self, x):
        return self.inner.input(activations(x))

    def output(self, y):
        return activations(self.inner.output(y))
