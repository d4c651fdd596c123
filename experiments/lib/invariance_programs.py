"""Keras, JAX, ONNX Runtime and LiteRT for the invariance experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lib.invariance import Made, Subject
from lib.invariance_torch import SEED, batches
from lib.models import calibrated, transformer_layer
from lib.onnx_files import onnx_file
from probe.sizes import stable
from probe.targets.progress import without_stderr

BATCH = 32
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32)
TIMED = (1, 2, 8, 16, 32)
THREADS = 2
"""These libraries keep the number that they were started with."""

Run = Callable[..., Any]


def drawn(*shape: int) -> np.ndarray:
    """Samples of a normal distribution, (batch, ...)."""
    return np.random.default_rng(SEED).standard_normal((BATCH, *shape)).astype(np.float32)


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights that keep the size of what they are multiplied with."""
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def made(x: np.ndarray, plain: Run, same: Run, report: Any) -> Made:
    """A subject whose samples lie along the first axis of one array."""
    axes = {"batch": lambda sample: batches(x, SIZES)}
    timed = TIMED, lambda size: (np.ascontiguousarray(x[:size]),)
    return Made(plain, same, report, np.asarray, axes, timed, lambda count: None, (THREADS,))


def of_keras(like: str) -> Made:
    model, x = calibrated("MobileNetV2", 96), drawn(96, 96, 3)
    same, report = stable.invariant(model, range(1, BATCH + 1), like, example=x)

    def plain(x: np.ndarray) -> Any:
        return model(x, training=False)

    return made(x, plain, same, report)


def of_jax(like: str) -> Made:
    """A layer of a transformer, jitted."""
    import jax

    rng, x = np.random.default_rng(SEED), drawn(20, 64)
    told = {name: weights(rng, 64, 64) for name in ("query", "key", "value", "mixed")}
    told |= {"up": weights(rng, 64, 128), "down": weights(rng, 128, 64)}

    def layer(told: Any, x: Any) -> Any:
        return transformer_layer(told, x, 4)

    given = jax.tree.map(jax.numpy.asarray, told)
    same, report = stable.invariant(
        *(layer, range(1, BATCH + 1), like), example=(given, x), batched=(None, 0)
    )
    plain, ended = jax.jit(layer), jax.block_until_ready  # JAX returns before its answer is there
    return made(x, lambda x: ended(plain(given, x)), lambda x: ended(same(given, x)), report)


def perceptron(like: str) -> Made:
    """Three matrix products with ReLU between them, an ONNX file."""
    import onnxruntime

    rng = np.random.default_rng(SEED)
    shapes = {"w0": (384, 1536), "w1": (1536, 384), "w2": (384, 10)}
    layers = "h0 = MatMul(x, w0) y0 = Relu(h0) h1 = MatMul(y0, w1) y1 = Relu(h1) y = MatMul(y1, w2)"
    content = onnx_file(
        f"(float[batch,384] x) => (float[batch,10] y) {{ {layers} }}",
        **{name: weights(rng, *shape) for name, shape in shapes.items()},
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    x = drawn(384)
    # one session: the threads of another one, which wait for work, would take its processors
    same, report = stable.invariant(session, range(1, BATCH + 1), like, example=x)
    return made(x, lambda x: session.run(None, {"x": x})[0], lambda x: same(x)[0], report)


def converted(like: str) -> Made:
    """MobileNetV2 as a LiteRT file."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    model, x = calibrated("MobileNetV2", 96), drawn(96, 96, 3)
    with without_stderr():
        content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    interpreter = Interpreter(model_content=content, num_threads=THREADS)
    (entry,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()

    def plain(x: np.ndarray) -> np.ndarray:
        if tuple(interpreter.get_input_details()[0]["shape"]) != x.shape:
            interpreter.resize_tensor_input(entry["index"], x.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(entry["index"], x)
        interpreter.invoke()
        found: np.ndarray = interpreter.get_tensor(given["index"])
        return found

    same, report = stable.invariant(
        *(content, range(1, BATCH + 1), like), example=x, threads=THREADS
    )
    return made(x, plain, lambda x: same(x)[0], report)


def subjects() -> Iterator[Subject]:
    """Models by library."""
    makes: dict[tuple[str, str], Callable[[str], Made]] = {
        ("keras", "Keras MobileNetV2"): of_keras,
        ("jax", "JAX transformer layer"): of_jax,
        ("onnxruntime,threads=2", "ONNX perceptron"): perceptron,
        ("litert,threads=2", "LiteRT MobileNetV2"): converted,
    }
    for (target, name), make in makes.items():
        yield Subject(name, target, "model", "float32", make)
