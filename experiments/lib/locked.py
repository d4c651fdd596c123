"""Twenty results of seven libraries, as tests keep them, for ``experiments/lock.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ROWS, WEIGHTS = _numbers(64, 768), _numbers(768, 96, seed=1)
SIGNAL, KERNEL = _numbers(4, 130, 48), _numbers(5, 48, 40, seed=2)


def _numpy_solve() -> Any:
    square = _numbers(80, 80) + 9 * np.eye(80, dtype=np.float32)
    return np.linalg.solve(square, _numbers(80, 3, seed=3))


def _scipy_filter() -> Any:
    from scipy import signal

    return signal.lfilter([0.2, 0.3, 0.1], [1.0, -0.4, 0.2], _numbers(3, 400))


def _scipy_fft() -> Any:
    from scipy import fft

    return fft.rfft(_numbers(5, 600))


def _scipy_svd() -> Any:
    from scipy import linalg

    return linalg.svdvals(_numbers(60, 40))


def _torch(name: str) -> Any:
    import torch

    f, x = torch.nn.functional, torch.from_numpy(ROWS)
    return {
        "linear": lambda: f.linear(x, torch.from_numpy(WEIGHTS.T.copy())),
        "convolution": lambda: f.conv1d(
            torch.from_numpy(SIGNAL).transpose(1, 2), torch.from_numpy(KERNEL).permute(2, 1, 0)
        ),
        "softmax": lambda: torch.softmax(x, -1),
        "layer norm and gelu": lambda: f.gelu(f.layer_norm(x, x.shape[-1:])),
    }[name]()


def _jax(name: str) -> Any:
    import jax

    x, w = jax.numpy.asarray(ROWS), jax.numpy.asarray(WEIGHTS)
    return {
        "product": lambda: x @ w,
        "softmax": lambda: jax.nn.softmax(x),
        "compiled layer": lambda: jax.jit(lambda a, b: jax.nn.gelu(a @ b).sum(-1))(x, w),
    }[name]()


def _tensorflow(name: str) -> Any:
    import tensorflow as tf

    return {
        "product": lambda: tf.matmul(ROWS, WEIGHTS),
        "convolution": lambda: tf.nn.conv1d(SIGNAL, KERNEL, 1, "SAME"),
        "softmax": lambda: tf.nn.softmax(ROWS),
    }[name]()


def _onnxruntime(name: str) -> Any:
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    nodes, given, weights = {
        "layers": (
            [("MatMul", ["x", "w"], ["a"]), ("Elu", ["a"], ["b"]), ("Softmax", ["b"], ["y"])],
            ROWS,
            WEIGHTS,
        ),
        "convolution": (
            [("Conv", ["x", "w"], ["y"])],
            SIGNAL.transpose(0, 2, 1).copy(),
            KERNEL.transpose(2, 1, 0).copy(),
        ),
    }[name]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(*one) for one in nodes],
        "graph",
        [helper.make_tensor_value_info("x", kind, given.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": given})[0]


def _opencv() -> Any:
    import cv2

    return cv2.GaussianBlur(_numbers(90, 70), (7, 7), 1.5)


CHECKS: dict[str, Callable[[], Any]] = {
    "numpy product": lambda: ROWS @ WEIGHTS,
    "numpy exponential": lambda: np.exp(ROWS),
    "numpy mean": lambda: ROWS.mean(-1),
    "numpy solve": _numpy_solve,
    "scipy filter": _scipy_filter,
    "scipy fourier transform": _scipy_fft,
    "scipy singular values": _scipy_svd,
    **{
        f"torch {name}": lambda name=name: _torch(name)  # type: ignore[misc]
        for name in ("linear", "convolution", "softmax", "layer norm and gelu")
    },
    **{
        f"jax {name}": lambda name=name: _jax(name)  # type: ignore[misc]
        for name in ("product", "softmax", "compiled layer")
    },
    **{
        f"tensorflow {name}": lambda name=name: _tensorflow(name)  # type: ignore[misc]
        for name in ("product", "convolution", "softmax")
    },
    **{
        f"onnxruntime {name}": lambda name=name: _onnxruntime(name)  # type: ignore[misc]
        for name in ("layers", "convolution")
    },
    "opencv blur": _opencv,
}
"""By name: the library, and what it computes."""
