"""The network of the original report, as a model of each library: recorded like any other.

``probe fix padding experiments.lib.nine_layers:keras --fixed 4096 --lengths 1..4``, or ``:torch``
with ``--shape x=1x1x1x4096``. Eight times a convolution and a max-pool, made for 4,096 positions,
then one more convolution. Weights are drawn from a seed, normal, with a variance of 2 / products
(He and others, "Delving Deep into Rectifiers", 2015), so that activations keep their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.operands import normal

KERNEL = 5
SPREAD = 0.1
"""Standard deviation of the biases."""


@dataclass(frozen=True)
class Layer:
    """``op``: ``conv2d``, with ``weights`` (1, kernel, in_channels, filters) and ``bias``
    (filters,), ``relu`` or ``max_pool2d``."""

    name: str
    op: str
    weights: Any = None
    bias: Any = None


@dataclass(frozen=True)
class NineLayers:
    """``blocks`` times conv2d 1 x 5, ReLU and max-pool 1 x 2, then one conv2d; height 1.

    All convolutions have a bias and ``width`` filters, the last one too. ``padding``, ``valid`` or
    ``same``: of convolutions and pools.
    """

    width: int = 16
    seed: int = 0
    blocks: int = 8
    padding: str = "valid"

    @cached_property
    def layers(self) -> list[Layer]:
        """Returns the layers in order."""
        found = list[Layer]()
        for number in range(1, self.blocks + 2):
            channels = self.width if found else 1
            draw = (self.seed << 20) + 4 * len(found)
            spread, shape = math.sqrt(2 / KERNEL / channels), (1, KERNEL, channels, self.width)
            weights = (spread * normal(draw, "w", shape)).astype(np.float32)
            bias = (SPREAD * normal(draw + 1, "w", shape[-1:])).astype(np.float32)
            found.append(Layer(f"conv{number}", "conv2d", weights, bias))
            if number <= self.blocks:
                found += [Layer(f"relu{number}", "relu"), Layer(f"pool{number}", "max_pool2d")]
        return found


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
