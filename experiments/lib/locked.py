"""Eleven results of seven libraries, as tests keep them, for ``experiments/lock.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ROWS, WEIGHTS = _numbers(64, 768), _numbers(768, 96, seed=1)
SIGNAL, KERNEL = _numbers(4, 130, 48), _numbers(5, 48, 40, seed=2)


def _scipy_filter() -> Any:
    from scipy import signal

    return signal.lfilter([0.2, 0.3, 0.1], [1.0, -0.4, 0.2], _numbers(3, 400))


def _torch(name: str) -> Any:
    import torch

    f, x = torch.nn.functional, torch.from_numpy(ROWS)
    return {
        "linear": lambda: f.linear(x, torch.from_numpy(WEIGHTS.T.copy())),
        "layer norm and gelu": lambda: f.gelu(f.layer_norm(x, x.shape[-1:])),
    }[name]()


def _jax(name: str) -> Any:
    import jax

    x, w = jax.numpy.asarray(ROWS), jax.numpy.asarray(WEIGHTS)
    return {
        "product": lambda: x @ w,
        "compiled layer": lambda: jax.jit(lambda a, b: jax.nn.gelu(a @ b).sum(-1))(x, w),
    }[name]()


def _tensorflow(name: str) -> Any:
    import tensorflow as tf

    return {
        "convolution": lambda: tf.nn.conv1d(SIGNAL, KERNEL, 1, "SAME"),
        "softmax": lambda: tf.nn.softmax(ROWS),
    }[name]()


def _opencv() -> Any:
    import cv2

    return cv2.GaussianBlur(_numbers(90, 70), (7, 7), 1.5)


def _onnxruntime() -> Any:
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    nodes = [("MatMul", ["x", "w"], ["a"]), ("Elu", ["a"], ["b"]), ("Softmax", ["b"], ["y"])]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(*one) for one in nodes],
        "graph",
        [helper.make_tensor_value_info("x", kind, ROWS.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": ROWS})[0]


CHECKS: dict[str, Callable[[], Any]] = {
    "numpy product": lambda: ROWS @ WEIGHTS,
    "numpy exponential": lambda: np.exp(ROWS),
    "scipy filter": _scipy_filter,
    "torch linear": lambda: _torch("linear"),
    "torch layer norm and gelu": lambda: _torch("layer norm and gelu"),
    "jax product": lambda: _jax("product"),
    "jax compiled layer": lambda: _jax("compiled layer"),
    "tensorflow convolution": lambda: _tensorflow("convolution"),
    "tensorflow softmax": lambda: _tensorflow("softmax"),
    "onnxruntime layers": _onnxruntime,
    "opencv blur": _opencv,
}
"""By name: the library, and what it computes."""
