"""The network of the original report, as a model of each library: recorded like any other.

``probe network experiments/lib/nine_layers.py:keras --fixed 4096 --lengths 1..4``, or ``:torch``
with ``--shape x=1x1x1x4096``. Eight times a convolution and a max-pool, made for 4,096 positions;
its numbers are those of :func:`lib.chains.description.nine_layers`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lib.chains.description import nine_layers


def torch_module(**words: Any) -> Any:
    """Returns a PyTorch module, in evaluation and without gradients. ``words``: of the chain."""
    from torch import from_numpy, nn

    parts: list[Any] = []
    for layer in nine_layers(**words).layers:
        if layer.op == "conv2d":
            assert layer.weights is not None and layer.bias is not None
            parts.append(nn.Conv2d(layer.in_channels, layer.filters, layer.kernel))
            weights = np.ascontiguousarray(layer.weights.transpose(3, 2, 0, 1))
            state = {"weight": from_numpy(weights), "bias": from_numpy(layer.bias)}
            parts[-1].load_state_dict(state)
        else:
            pool = layer.op == "max_pool2d"
            parts.append(nn.MaxPool2d(layer.kernel, layer.stride) if pool else nn.ReLU())
    return nn.Sequential(*parts).eval().requires_grad_(False)


def keras_model(**words: Any) -> Any:
    """Returns a Keras model of any length."""
    import keras

    network = nine_layers(**words)
    parts: list[Any] = [keras.Input((1, None, network.in_channels), name="x")]
    for layer in network.layers:
        if layer.op == "conv2d":
            parts.append(keras.layers.Conv2D(layer.filters, layer.kernel, name=layer.name))
        elif layer.op == "max_pool2d":
            parts.append(keras.layers.MaxPool2D(layer.kernel, layer.stride, name=layer.name))
        else:
            parts.append(keras.layers.ReLU(name=layer.name))
    model = keras.Sequential(parts)
    for layer in network.layers:
        if layer.op == "conv2d":
            model.get_layer(layer.name).set_weights([layer.weights, layer.bias])
    return model


def onnx_model(path: Path, **words: Any) -> Path:
    """Writes an ONNX file of any length; its path."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    network, nodes, held, last = nine_layers(**words), [], [], "x"
    for layer in network.layers:
        reads = [last]
        if layer.op == "conv2d":
            assert layer.weights is not None and layer.bias is not None
            weights = np.ascontiguousarray(layer.weights.transpose(3, 2, 0, 1))
            reads += [f"{layer.name}.w", f"{layer.name}.b"]
            arrays = weights, layer.bias
            held += [
                numpy_helper.from_array(array, name)
                for array, name in zip(arrays, reads[1:], strict=True)
            ]
        op = {"conv2d": "Conv", "max_pool2d": "MaxPool"}.get(layer.op, "Relu")
        numbers: dict[str, Any] = {"kernel_shape": layer.kernel} if layer.kernel else {}
        numbers |= {"strides": layer.stride} if layer.kernel else {}
        nodes.append(helper.make_node(op, reads, [layer.name], layer.name, **numbers))
        last = layer.name
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 1, f"{name} length"])
        for name, channels in (("x", network.in_channels), (last, network.filters))
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
