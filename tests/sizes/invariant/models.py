"""Models and comparisons that the tests of the invariant mode share."""

import numpy as np
import pytest

from probe.case import ulp


def differing(torch, a, b):
    a, b = (one.detach().contiguous().numpy() for one in (a, b))
    return len(ulp.differences(a, b, "float32").index)


def small(torch):
    """A model of a few layers, for calls in every context."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(96, 130), nn.GELU(), nn.Linear(130, 40)).eval()


def dependent(model, *inputs, parts=((0, 1), (3, 1), (1, 2), (5, 3), (0, 7))):
    """The parts of a batch, by start and size, whose bits are not those of the whole."""
    whole = model(*inputs)
    places = {part: slice(part[0], sum(part)) for part in parts}
    runs = {part: model(*(x[at] for x in inputs)) for part, at in places.items()}
    return [part for part, at in places.items() if not runs[part].equal(whole[at])]


def ends(samples, *sizes):
    """Parts of these sizes at both ends of that many samples."""
    return [(start, size) for size in sizes for start in (0, samples - size)]


# samples, and what they read


def of(torch, function):
    """A function of tensors as a model."""
    return module(torch, lambda layer, *given: function(*given))


def module(torch, function):
    """A layer and a function of it and the arguments, as a model."""

    class Made(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(12, 7)

        def forward(self, *args, **words):
            return function(self.layer, *args, **words)

    return Made().eval()


def over(x):
    return x / x.abs().max()


W = np.random.default_rng(0).standard_normal((33, 12)).astype(np.float32)


class Planted:
    """A library that adds backwards below ``turn`` samples, and in last rows of ``tails``."""

    def __init__(self, turn=4, tails=()):
        self.turn, self.tails, self.sizes = turn, tails, []

    def __call__(self, x, w=W):
        self.sizes.append(len(x))
        y = self.added(x, w, len(x) >= self.turn)
        if len(x) in self.tails:
            y[-1] = self.added(x[-1:], w, False)[0]
        return y

    @staticmethod
    def added(x, w, forwards):
        each = x[:, :, None] * w
        return np.add.accumulate(each if forwards else each[:, ::-1], axis=1)[:, -1]

    def function(self):
        return lambda x: self(x)


def drawn(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(a, b):
    return ulp.equal(np.ascontiguousarray(a), np.ascontiguousarray(b), "float32")


# libraries


def product(batch="batch"):
    """An ONNX file of a matrix product and a function that rounds nothing."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, floating = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", floating, [batch, 33])],
        [helper.make_tensor_value_info("y", floating, [batch, 12])],
        [onnx.numpy_helper.from_array(W, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


def held(model, x, part=lambda y: y):
    """Whether samples keep their bits in smaller batches, at other places, and in larger ones."""
    whole = part(model(x))
    for count in (1, 2, 3, 5, len(x) - 1):
        assert same(part(model(x[-count:])), whole[-count:]), count
    turned = np.random.default_rng(2).permutation(len(x))
    assert same(part(model(x[turned])), whole[turned])
    return whole
