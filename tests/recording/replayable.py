"""Models of each library whose recordings are replayed on targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(7)

BOUND = 1e-5
"""Of differences over the largest number of a value: float32 has 24 bits, these sums have some 100
products each, and no layer here enlarges what came before it."""


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def onnx_model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, Sequence[Any] | None],
    held: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> bytes:
    """A model of ONNX: ``inputs`` and ``outputs`` are float32 of these shapes, or the file says
    nothing of an output."""
    onnx = pytest.importorskip("onnx", reason="models are made with onnx")
    make = onnx.helper
    ends = [
        [
            make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            if shape is not None
            else onnx.ValueInfoProto(name=name)
            for name, shape in some.items()
        ]
        for some in (inputs, outputs)
    ]
    arrays = [onnx.numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    graph = make.make_graph(nodes, "graph", *ends, arrays)
    versions = [make.make_opsetid("", opset)]
    found: bytes = make.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()
    return found


def of_torch() -> tuple[Any, dict[str, np.ndarray]]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2, bias=False)
            self.depthwise, self.back = nn.Conv2d(8, 8, 3, padding=1, groups=8), None
            self.transposed = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.inner, self.dense = nn.LayerNorm(12), nn.Linear(12, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.first(x)))
            z = self.strided(y)
            z = torch.sigmoid(self.depthwise(z) + z)
            y = torch.cat([y, self.transposed(z)], 1)
            y = nn.functional.pad(y, (0, 1, 0, 1))
            y = nn.functional.avg_pool2d(nn.functional.max_pool2d(y, 2), 2)
            y = self.inner(nn.functional.gelu(y).flatten(2).transpose(1, 2))
            scores = torch.softmax(y @ y.transpose(1, 2), -1)
            return torch.tanh(self.dense(scores @ y))

    torch.manual_seed(0)
    model = Model().eval()
    with torch.no_grad():
        for name, one in [*model.named_parameters(), *model.named_buffers()]:
            if one.dtype == torch.float32 and name.startswith("norm"):
                one.uniform_(0.5, 2.0)
    return model, {"x": drawn(2, 3, 16, 16)}


def of_keras() -> tuple[Any, dict[str, np.ndarray]]:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    x = keras.Input((16, 16, 3))
    y = layers.BatchNormalization(
        gamma_initializer="random_normal", beta_initializer="random_normal"
    )(layers.Conv2D(8, 3, padding="same", activation="relu", bias_initializer="random_normal")(x))
    z = layers.LeakyReLU()(layers.Conv2D(8, 3, strides=2, padding="same")(y))
    z = layers.Add()([layers.DepthwiseConv2D(3, padding="same")(z), z])
    y = layers.Concatenate()([y, layers.Conv2DTranspose(4, 2, strides=2)(z)])
    y = layers.MaxPooling2D(2)(layers.ZeroPadding2D(((0, 2), (1, 1)))(y))
    y = layers.ELU()(layers.AveragePooling2D(2, padding="same")(y))
    y = layers.Reshape((25, 12))(y)
    y = layers.LayerNormalization()(layers.Conv1D(12, 3, padding="causal", activation="tanh")(y))
    return keras.Model(x, layers.Dense(5, activation="softmax")(y)), {"x": drawn(2, 16, 16, 3)}


def of_onnx(folder: Any) -> tuple[Any, dict[str, np.ndarray]]:
    onnx = pytest.importorskip("onnx", reason="models are made with onnx")
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "s", "b1", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2], group=2),
        node("LeakyRelu", ["c2"], ["l"], alpha=0.2),
        node("ConvTranspose", ["l", "w3"], ["t"], strides=[2, 2]),
        node("Concat", ["t", "r"], ["j"], axis=1),
        node("Pad", ["j", "pads"], ["p"]),
        node("MaxPool", ["p"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["q"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["a", "shape"], ["f"]),
        node("Transpose", ["f"], ["u"], perm=[0, 2, 1]),
        node("MatMul", ["u", "w4"], ["d"]),
        node("Add", ["d", "b4"], ["e"]),
        node("MatMul", ["e", "w5"], ["g"]),
        node("Softmax", ["g"], ["y"], axis=-1),
    ]
    arrays = {"w1": drawn(8, 3, 3, 3), "b1": drawn(8), "s": drawn(8), "m": drawn(8)}
    arrays |= {"v": np.abs(drawn(8)) + 0.5, "w2": drawn(8, 4, 3, 3), "w3": drawn(8, 4, 2, 2)}
    arrays |= {"pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]), "shape": np.array([2, 12, 16])}
    arrays |= {"w4": drawn(12, 6) / 4, "b4": drawn(6), "w5": drawn(6, 5) / 8}
    x = drawn(2, 3, 16, 16)
    path = folder / "model.onnx"
    path.write_bytes(onnx_model(nodes, {"x": x.shape}, {"y": None}, arrays, 18))
    return path, {"x": x}


def of_jax() -> tuple[Any, dict[str, np.ndarray]]:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jnp, lax = jax.numpy, jax.lax
    w1, w2, b = drawn(3, 3, 3, 8), drawn(3, 3, 4, 8) / 4, drawn(8)
    w3, w4 = drawn(2, 2, 8, 4) / 4, drawn(12, 5) / 4
    layout = ("NHWC", "HWIO", "NHWC")

    def model(x: Any) -> Any:
        y = lax.conv_general_dilated(x, w1, (1, 1), "SAME", dimension_numbers=layout) + b
        y = jax.nn.relu(y)
        z = lax.conv_general_dilated(
            y, w2, (2, 2), "SAME", dimension_numbers=layout, feature_group_count=2
        )
        t = lax.conv_transpose(jnp.tanh(z), w3, (2, 2), "VALID", dimension_numbers=layout)
        y = jnp.pad(jnp.concatenate([y, t], -1), ((0, 0), (0, 1), (0, 1), (0, 0)))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.tanh(y.reshape(2, -1, 12) @ w4)

    return model, {"x": drawn(2, 16, 16, 3)}


MODELS: dict[str, tuple[Callable[..., Any], str, float]] = {
    "torch": (of_torch, "torch", 0.7),
    "keras": (of_keras, "keras", 0.66),
    "onnx": (of_onnx, "onnxruntime", 0.85),
    "jax": (of_jax, "jax", 0.85),
}
"""What makes a model, its own library's target, and the least share of its operations that a target
computes, of those that do not have the same bits everywhere."""
