"""Layers one after the other as one .tflite model, written as TensorFlow's converter writes them.

ReLU and ReLU6 are fused into the operator before them, padding is PAD or PADV2, and what LiteRT has
no operator for is made of those that the converter makes it of. Only folding is left out: a bias or
a scale behind an operator stays ADD and MUL, since folded into its weights it is another sum. One
spatial axis gets a height of 1 for the whole model, where a converter reshapes around every layer.
"""

import numpy as np

from probe import activations
from probe.backends import elementwise, litert_model, litert_pooling, pooling
from probe.backends.contract import Unsupported
from probe.backends.kept import Kept
from probe.backends.litert_graph import FUSED, Graph


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``.

    ``interpreting(content)``: f(x) of a model's bytes. Raises Unsupported where a layer has no
    operator.
    """

    def __init__(self, schema, interpreting, specs, operands):
        self.schema = schema
        self.layers = [(spec, prepared(spec, given)) for spec, given in zip(specs, operands)]
        self.runs = Kept(lambda shape: interpreting(self.content(shape)))

    def call(self, x):
        """The output (batch, *spatial, channels) of an input in C order."""
        if x.ndim == 3:
            x = x[:, None]
            return self.runs(x.shape)(x)[:, 0]
        return self.runs(x.shape)(x)

    def content(self, shape):
        """The model's bytes for inputs of this shape, of two spatial axes or three."""
        graph = Graph(self.schema, self.layers[0][0]["dtype"], shape)
        y = graph.x
        for spec, given in self.layers:
            y = layer(graph, spec, given, y)
        if not graph.operators:
            y = graph.operator("RESHAPE", [y, sizes(graph, shape)], shape)
        return bytes(graph.packed(y, "network"))

    def input(self, x):
        return np.array(x, order="C")

    def output(self, y):
        return np.ascontiguousarray(y)


def prepared(spec, given):
    """The arrays that a layer's constants hold, by name. Raises Unsupported: there is no layer."""
    if pooling.kind(spec):
        litert_pooling.supported(spec)
        return {}
    if "kernel" in spec:
        litert_model.supported(spec)
        b = given.get("b")
        b = np.zeros(spec["filters"], spec["dtype"]) if b is None else b
        return {"w": litert_model.weights(spec, given["w"]), "b": b}
    if spec["dtype"] not in litert_model.DTYPES:
        raise Unsupported(f"dtype={spec['dtype']}: LiteRT's kernels have float32 and float16")
    return given


def layer(graph, spec, given, x):
    """The Value behind one layer."""
    if pooling.kind(spec):
        return litert_pooling.layer(graph, spec, x)
    if spec["op"] == "pad":
        ahead = len(x.shape) - 1 - len(spec["padding"])
        pairs = [(0, 0)] * ahead + [tuple(pair) for pair in spec["padding"]] + [(0, 0)]
        return graph.padded(x, pairs, spec["parameters"].get("value", 0.0))
    if spec["op"] == "extend":
        return extended(graph, spec, given["tail"], x)
    if spec["op"] == "activation":
        name, alpha = spec["activation"], spec["parameters"].get("alpha", 1.0)
        return ACTIVATIONS[name](graph, x, alpha)
    held = {name: graph.constant(name, array) for name, array in given.items()}
    if spec["op"] == "bias":
        return add(graph, x, held["b"])
    if spec["op"] == "normalisation":
        return add(graph, multiply(graph, x, held["scale"]), held["shift"])
    return litert_model.operator(graph, spec, x, held["w"], held["b"])


def extended(graph, spec, tail, x):
    """The first positions of an axis with constant ones behind; what does nothing is left out."""
    axis = elementwise.extended_axis(spec, tail.ndim) - tail.ndim + len(x.shape)
    kept, shape = spec["kept"], list(x.shape)
    if shape[axis] != kept:
        shape[axis] = kept
        begin = sizes(graph, [0] * len(shape))
        x = graph.operator("SLICE", [x, begin, sizes(graph, shape)], shape, "SliceOptions")
    if not tail.size:
        return x
    shape[axis] += tail.shape[axis - len(shape)]
    tail = graph.constant("tail", tail[:, None] if tail.ndim < len(shape) else tail)
    return graph.operator("CONCATENATION", [x, tail], shape, "ConcatenationOptions", axis=axis)


def sizes(graph, numbers):
    """A constant of whole numbers."""
    return graph.constant("sizes", np.array(numbers, np.int32))


def add(graph, x, y):
    """x + y, in the shape of x."""
    return graph.operator("ADD", [x, y], x.shape, "AddOptions")


def multiply(graph, x, y):
    """x * y, in the shape of x."""
    return graph.operator("MUL", [x, y], x.shape, "MulOptions")


def plain(name, options=None, **fields):
    """f(graph, x, alpha): one operator."""
    return lambda graph, x, alpha: graph.operator(name, [x], x.shape, options, **fields)


def leaky_relu(graph, x, alpha):
    """Its slope is part of the operator."""
    return graph.operator("LEAKY_RELU", [x], x.shape, "LeakyReluOptions", alpha=alpha)


def hard_sigmoid(graph, x, alpha):
    """relu6(x + 3) / 6, whose division the converter makes a multiplication."""
    raised = graph.clamped(add(graph, x, graph.scalar(3)), "RELU6")
    return multiply(graph, raised, graph.scalar(1 / 6))


def elu(graph, x, alpha):
    """LiteRT's own has a slope of 1."""
    y = graph.operator("ELU", [x], x.shape)
    return y if alpha == 1.0 else where(graph, x, y, multiply(graph, y, graph.scalar(alpha)))


def selu(graph, x, alpha):
    """By EXP, since there is no operator for exp(x) - 1."""
    raised = graph.operator("EXP", [x], x.shape, "ExpOptions")
    below = graph.operator("SUB", [raised, graph.scalar(1)], x.shape, "SubOptions")
    below = multiply(graph, below, graph.scalar(activations.SCALE * activations.SLOPE))
    return where(graph, x, multiply(graph, x, graph.scalar(activations.SCALE)), below)


def where(graph, x, above, below):
    """``above`` where x > 0, else ``below``."""
    test = [x, graph.scalar(0)]
    positive = graph.operator("GREATER", test, x.shape, "GreaterOptions", "bool")
    return graph.operator("SELECT", [positive, above, below], x.shape, "SelectOptions")


def softplus(graph, x, alpha):
    """log(exp(x) + 1), which is infinite where exp(x) is."""
    raised = graph.operator("EXP", [x], x.shape, "ExpOptions")
    return graph.operator("LOG", [add(graph, raised, graph.scalar(1))], x.shape)


def softsign(graph, x, alpha):
    """x / (|x| + 1)."""
    size = graph.operator("ABS", [x], x.shape, "AbsOptions")
    return x / add(graph, size, graph.scalar(1))


def silu(graph, x, alpha):
    """x times its logistic function."""
    return multiply(graph, x, graph.operator("LOGISTIC", [x], x.shape))


def clamped(name):
    """f(graph, x, alpha): RELU or RELU6, by the operator before it where that can."""
    return lambda graph, x, alpha: graph.clamped(x, name)


ACTIVATIONS = {
    **{name.lower(): clamped(name) for name in FUSED},
    "leaky_relu": leaky_relu,
    "hard_sigmoid": hard_sigmoid,
    "sigmoid": plain("LOGISTIC"),
    "tanh": plain("TANH"),
    "softmax": plain("SOFTMAX", "SoftmaxOptions", beta=1.0),
    "elu": elu,
    "selu": selu,
    "softplus": softplus,
    "softsign": softsign,
    "gelu": plain("GELU", "GeluOptions"),
    "silu": silu,
    "exp": plain("EXP", "ExpOptions"),
}
