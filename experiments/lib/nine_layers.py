"""The network of the original report, as a model of each library: recorded like any other.

``probe fix padding experiments.lib.nine_layers:keras --fixed 4096 --lengths 1..4``, or ``:torch``
with ``--shape x=1x1x1x4096``. Eight times a convolution and a max-pool, made for 4,096 positions,
then one more convolution. Weights are drawn from a seed, normal, with a variance of 2 / products
(He and others, "Delving Deep into Rectifiers", 2015), so that activations keep their size.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.operands import normal

NAME = "nine-layers"
KERNEL = 5
SPREAD = 0.1
"""Standard deviation of the biases."""


@dataclass(frozen=True)
class Layer:
    """One layer: ``words`` of its operation, ``weights`` (1, kernel, in_channels, filters) and
    ``bias`` (filters,) of a convolution."""

    name: str
    words: dict[str, Any]
    weights: Any = None
    bias: Any = None

    @property
    def op(self) -> str:
        """Returns ``conv2d``, ``max_pool2d`` or ``activation``."""
        return str(self.words["op"])


@dataclass(frozen=True)
class NineLayers:
    """``blocks`` times conv2d 1 x 5, ReLU and max-pool 1 x 2, then one conv2d; height 1.

    All convolutions have a bias and ``width`` filters, the last one too. ``padding``, ``valid`` or
    ``same``: of convolutions and pools. ``fixed``: the length that it is made for.
    """

    width: int = 16
    seed: int = 0
    blocks: int = 8
    padding: str = "valid"
    fixed: int = 4096

    @property
    def name(self) -> str:
        """Returns what tables call it."""
        return (
            f"{NAME}, width {self.width}, seed {self.seed}"
            if self.blocks == 8
            else f"{self.blocks + 1} layers"
        )

    @cached_property
    def layers(self) -> list[Layer]:
        """Returns the layers in order."""
        found = list[Layer]()
        padded: dict[str, Any] = {"padding": "same"} if self.padding == "same" else {}
        for number in range(1, self.blocks + 2):
            channels = self.width if found else 1
            draw = (self.seed << 20) + 4 * len(found)
            spread, shape = math.sqrt(2 / KERNEL / channels), (1, KERNEL, channels, self.width)
            weights = (spread * normal(draw, "w", shape)).astype(np.float32)
            bias = (SPREAD * normal(draw + 1, "w", shape[-1:])).astype(np.float32)
            words = {"op": "conv2d", "kernel": f"1x{KERNEL}", "stride": "1x1"} | padded
            words |= {"filters": self.width, "groups": 1}
            found.append(Layer(f"conv{number}", words, weights, bias))
            if number <= self.blocks:
                relu = {"op": "activation", "activation": "relu"}
                pool = {"op": "max_pool2d", "kernel": "1x2", "stride": "1x2"} | padded
                pool |= {"ceil_mode": False, "pad_with": "nothing"}
                found += [Layer(f"relu{number}", relu), Layer(f"pool{number}", pool)]
        return found

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits that change with the computation or its numbers."""
        layers = [
            one.words | {k: getattr(one, k).tolist() for k in ("weights", "bias")}
            if one.op == "conv2d"
            else one.words
            for one in self.layers
        ]
        told = {"rank": 2, "height": [1], "dtype": "float32", "layers": layers}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def row(self, source: str | None = None) -> dict[str, Any]:
        """Returns the row of ``networks``: layers without numbers."""
        field = 1 + sum((KERNEL - 1 + (n < self.blocks)) << n for n in range(self.blocks + 1))
        count = len(self.layers)
        words = {"name": self.name, "rank": 2, "height": [1], "dtype": "float32"}
        words |= {"fixed": self.fixed, "in_channels": 1}
        return {
            "network_id": self.id,
            "name": self.name,
            "source": source,
            "layers": count,
            "dtype": "float32",
            "in_channels": 1,
            "filters": self.width,
            "field": field,
            "jump": 1 << self.blocks,
            "json": words | {"layers": [{"name": one.name} | one.words for one in self.layers]},
            "examined": count,
            "operations_total": count,
            "part": None,
        }


def torch_module(**words: Any) -> Any:
    """Returns a PyTorch module, in evaluation and without gradients. ``words``: of the network,
    whose padding is valid."""
    from torch import from_numpy, nn

    parts: list[Any] = []
    for layer in NineLayers(**words).layers:
        if layer.op == "conv2d":
            _, kernel, channels, filters = layer.weights.shape
            parts.append(nn.Conv2d(channels, filters, (1, kernel)))
            weights = np.ascontiguousarray(layer.weights.transpose(3, 2, 0, 1))
            state = {"weight": from_numpy(weights), "bias": from_numpy(layer.bias)}
            parts[-1].load_state_dict(state)
        else:
            pool = layer.op == "max_pool2d"
            parts.append(nn.MaxPool2d((1, 2), (1, 2)) if pool else nn.ReLU())
    return nn.Sequential(*parts).eval().requires_grad_(False)


def keras_model(**words: Any) -> Any:
    """Returns a Keras model of any length."""
    import keras

    network = NineLayers(**words)
    parts: list[Any] = [keras.Input((1, None, 1), name="x")]
    for layer in network.layers:
        named = {"name": layer.name}
        if layer.op == "conv2d":
            padded = named | {"padding": network.padding}
            parts.append(keras.layers.Conv2D(network.width, (1, KERNEL), **padded))
        elif layer.op == "max_pool2d":
            parts.append(keras.layers.MaxPool2D((1, 2), (1, 2), **named, padding=network.padding))
        else:
            parts.append(keras.layers.ReLU(**named))
    model = keras.Sequential(parts)
    for layer in network.layers:
        if layer.op == "conv2d":
            model.get_layer(layer.name).set_weights([layer.weights, layer.bias])
    return model


def onnx_model(path: Path, **words: Any) -> Path:
    """Writes an ONNX file of any length; its path."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    network, nodes, held, last = NineLayers(**words), [], [], "x"
    padded = {"auto_pad": "SAME_UPPER"} if network.padding == "same" else {}
    for layer in network.layers:
        reads, numbers = [last], dict[str, Any]()
        if layer.op == "conv2d":
            weights = np.ascontiguousarray(layer.weights.transpose(3, 2, 0, 1))
            reads += [f"{layer.name}.w", f"{layer.name}.b"]
            arrays, numbers = (weights, layer.bias), {"kernel_shape": [1, KERNEL]} | padded
            held += [
                numpy_helper.from_array(array, name)
                for array, name in zip(arrays, reads[1:], strict=True)
            ]
        if layer.op == "max_pool2d":
            numbers = {"kernel_shape": [1, 2], "strides": [1, 2]} | padded
        op = {"conv2d": "Conv", "max_pool2d": "MaxPool"}.get(layer.op, "Relu")
        nodes.append(helper.make_node(op, reads, [layer.name], layer.name, **numbers))
        last = layer.name
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 1, f"{name} length"])
        for name, channels in (("x", 1), (last, network.width))
    ]
    graph = helper.make_graph(nodes, "nine layers", ends[:1], ends[1:], held)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def __getattr__(name: str) -> Any:
    if name in ("torch", "keras"):
        return torch_module() if name == "torch" else keras_model()
    raise AttributeError(name)
