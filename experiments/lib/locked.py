"""Eleven results of seven libraries, as tests keep them, for ``experiments/lock.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lib.onnx_files import onnx_file


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ROWS, WEIGHTS = _numbers(64, 768), _numbers(768, 96, seed=1)
SIGNAL, KERNEL = _numbers(4, 130, 48), _numbers(5, 48, 40, seed=2)


def _scipy(compute: Callable[[Any], Any]) -> Any:
    from scipy import signal

    return compute(signal)


def _torch(compute: Callable[[Any, Any, Any], Any]) -> Any:
    import torch

    x, w = torch.from_numpy(ROWS), torch.from_numpy(WEIGHTS.T.copy())
    return compute(torch.nn.functional, x, w)


def _jax(compute: Callable[[Any, Any, Any], Any]) -> Any:
    import jax

    return compute(jax, jax.numpy.asarray(ROWS), jax.numpy.asarray(WEIGHTS))


def _tensorflow(compute: Callable[[Any], Any]) -> Any:
    import tensorflow as tf

    return compute(tf)


def _opencv() -> Any:
    import cv2

    return cv2.GaussianBlur(_numbers(90, 70), (7, 7), 1.5)


def _onnxruntime() -> Any:
    import onnxruntime

    layers = "a = MatMul(x, w) b = Elu(a) y = Softmax(b)"
    file = onnx_file(f"(float[64,768] x) => (float[?,?] y) {{ {layers} }}", w=WEIGHTS)
    return onnxruntime.InferenceSession(file).run(None, {"x": ROWS})[0]


CHECKS: dict[str, Callable[[], Any]] = {
    "numpy product": lambda: ROWS @ WEIGHTS,
    "numpy exponential": lambda: np.exp(ROWS),
    "scipy filter": lambda: _scipy(
        lambda signal: signal.lfilter([0.2, 0.3, 0.1], [1.0, -0.4, 0.2], _numbers(3, 400))
    ),
    "torch linear": lambda: _torch(lambda f, x, w: f.linear(x, w)),
    "torch layer norm and gelu": lambda: _torch(
        lambda f, x, _: f.gelu(f.layer_norm(x, x.shape[-1:]))
    ),
    "jax product": lambda: _jax(lambda jax, x, w: x @ w),
    "jax compiled layer": lambda: _jax(
        lambda jax, x, w: jax.jit(lambda a, b: jax.nn.gelu(a @ b).sum(-1))(x, w)
    ),
    "tensorflow convolution": lambda: _tensorflow(
        lambda tf: tf.nn.conv1d(SIGNAL, KERNEL, 1, "SAME")
    ),
    "tensorflow softmax": lambda: _tensorflow(lambda tf: tf.nn.softmax(ROWS)),
    "onnxruntime layers": _onnxruntime,
    "opencv blur": _opencv,
}
"""By name: the library, and what it computes."""
