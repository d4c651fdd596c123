"""Layers one after the other in one ONNX model, NCHW, as exporters write a network.

ONNX Runtime's optimiser sees all of it: it fuses activations into convolutions, folds scales into
their weights, and keeps channels in blocks from one layer to the next.
"""

import math
from typing import Any, Dict, Tuple

import numpy as np

from probe.backends import (
    channels_first,
    elementwise,
    onnxruntime_convolution,
    onnxruntime_pooling,
    pooling,
)

#: The operator set, and the first version of the file's format that has it.
OPSET, IR_VERSION = 19, 9
#: Activations that are one node, with its attributes.
NODES: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "softmax": ("Softmax", {"axis": 1}),
    "selu": ("Selu", {}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "exp": ("Exp", {}),
}
#: The same, of those that take an ``alpha``.
SLOPED = {"leaky_relu": "LeakyRelu", "elu": "Elu"}


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``."""

    def __init__(self, backend, specs, operands):
        self.backend, self.layers, self.made = backend, list(zip(specs, operands)), {}
        self.call = backend.refusing(self._call)

    def _call(self, x):
        if x.ndim not in self.made:
            graph = Graph(self.backend, self.layers, x.shape[1], x.ndim - 2)
            run = self.backend.session(graph.model()).run
            self.made[x.ndim] = run, [graph.value], graph.fed
        run, names, fed = self.made[x.ndim]
        return run(names, dict(fed, x=x))[0]

    def input(self, x):
        return channels_first.activations(x)

    def output(self, y):
        return channels_first.channels_last(y)


class Graph:
    """A model that is being written. ``value``: the name of what the last node gives.

    ``fed``: weights by name where they are no constants of the model (``weights=argument``).
    """

    def __init__(self, backend, layers, channels, rank):
        self.onnx, self.constant = backend.onnx, backend.constant
        self.dtype = layers[0][0]["dtype"]
        self.kind, self.channels, self.rank = backend.kind(self.dtype), channels, rank
        self.nodes, self.constants, self.fed = [], [], {}
        self.value, self.count = "x", 0
        for spec, arrays in layers:
            self._layer(spec, arrays)

    def _layer(self, spec, arrays):
        """Adds a layer's nodes."""
        if spec["op"] == "matmul":
            self._dense(arrays)
        elif pooling.kind(spec):
            name = self._name()
            self.nodes += onnxruntime_pooling.nodes(self.onnx, spec, self.value, name)
            self.value = name
        elif "kernel" in spec:
            given = [self._weights(channels_first.kernels(arrays["w"]))]
            given += [self._weights(arrays["b"])] if "b" in arrays else []
            self._node("Conv", *given, **onnxruntime_convolution.attributes(spec))
        else:
            getattr(self, "_" + spec["op"])(spec, arrays)

    def _dense(self, arrays):
        """A product over the channels, which a model with channels first has to put last."""
        there = [0] + list(range(2, self.rank + 2)) + [1]
        back = [0, self.rank + 1] + list(range(1, self.rank + 1))
        self._node("Transpose", perm=there)
        self._node("MatMul", self._weights(arrays["w"][0]))
        if "b" in arrays:
            self._node("Add", self._weights(arrays["b"]))
        self._node("Transpose", perm=back)

    def _bias(self, spec, arrays):
        self._node("Add", self._column(arrays["b"]))

    def _normalisation(self, spec, arrays):
        self._node("Mul", self._column(arrays["scale"]))
        self._node("Add", self._column(arrays["shift"]))

    def _pad(self, spec, arrays):
        before, after = zip(*spec["padding"])
        sizes = np.array([0, 0] + list(before) + [0, 0] + list(after), np.int64)
        self._node("Pad", self._constant(sizes), self._number(spec["parameters"].get("value", 0)))

    def _extend(self, spec, arrays):
        axis = 1 + elementwise.extended_axis(spec, self.rank + 2)
        ends = [np.array([n], np.int64) for n in (0, spec["kept"], axis)]
        self._node("Slice", *[self._constant(one) for one in ends])
        if arrays["tail"].size:
            tail = self._weights(channels_first.activations(arrays["tail"]))
            self._node("Concat", tail, axis=axis)

    def _activation(self, spec, arrays):
        name, alpha = spec["activation"], spec["parameters"].get("alpha", 1.0)
        if name in SLOPED:
            self._node(SLOPED[name], alpha=alpha)
        elif name == "relu6":
            self._node("Clip", self._number(0), self._number(6))
        elif name == "silu":
            x = self.value
            self._node("Sigmoid")
            self._node("Mul", x)
        elif name == "gelu":  # the nodes that exporters write, which ONNX Runtime fuses
            x = self.value
            self._node("Div", self._number(math.sqrt(2)))
            self._node("Erf")
            self._node("Add", self._number(1))
            self._node("Mul", x)
            self._node("Mul", self._number(0.5))
        else:
            kind, attributes = NODES[name]
            self._node(kind, **attributes)

    def _node(self, kind, *given, **attributes):
        """A node of the last value and others."""
        name = self._name()
        made = self.onnx.helper.make_node(kind, [self.value] + list(given), [name], **attributes)
        self.nodes.append(made)
        self.value = name

    def _name(self):
        self.count += 1
        return "v{}".format(self.count)

    def _column(self, array):
        """A number a channel, to be spread over the positions."""
        return self._weights(array.reshape((1, -1) + (1,) * self.rank))

    def _number(self, number):
        return self._constant(np.array(number, self.dtype))

    def _constant(self, array):
        name = self._name()
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def _weights(self, array):
        if self.constant:
            return self._constant(np.ascontiguousarray(array))
        name = self._name()
        self.fed[name] = channels_first.copied(array)
        return name

    def model(self):
        """The ModelProto of all nodes; sizes are open."""
        helper = self.onnx.helper
        sizes = ["size{}".format(axis) for axis in range(self.rank)]
        given = [helper.make_tensor_value_info("x", self.kind, [1, self.channels] + sizes)]
        for name, array in self.fed.items():
            given.append(helper.make_tensor_value_info(name, self.kind, array.shape))
        returned = [helper.make_tensor_value_info(self.value, self.kind, None)]
        graph = helper.make_graph(self.nodes, "network", given, returned, self.constants)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
