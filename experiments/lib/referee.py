"""Computes outputs by the libraries' own calls, written without ``probe.targets.backends``.

``experiments/fuzz.py`` asks it whether the outputs that probe compared are those that a user's
script gets. A referee lives in a process of its own, with the variables that the target's switches
set; a library is one function, which calls it as its documentation shows. ``Unrefereed`` says why
there is no such call: that is no agreement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from threading import Lock
from typing import Any

import numpy as np

from lib.onnx_files import onnx_file
from probe.case import floats
from probe.case.case import Case
from probe.targets.launch import child_environment, library_variables
from probe.targets.target import Target

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Switches = Mapping[str, str]


STARTING = Lock()
"""Held while this process's variables are those of a referee that starts."""


class Unrefereed(Exception):
    """Why a referee has nothing to say."""


class Referee:
    """Direct calls for one target, in a process of their own: a context manager."""

    def __init__(self, where: Target) -> None:
        self.where = where
        with STARTING:  # the process starts with the variables that are set now
            before = dict(os.environ)
            try:
                os.environ.clear()
                os.environ.update(child_environment(library_variables(where)))
                self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
                self.pool.submit(os.getpid).result()
            finally:
                os.environ.clear()
                os.environ.update(before)

    def outputs(self, case: Case, operands: Arrays) -> np.ndarray:
        """The outputs of a direct call, container (batch, *positions, filters).
        ``Unrefereed``."""
        if self.where.name not in CALLS or self.where.device != "cpu":
            raise Unrefereed(f"no direct call of {self.where.text} is written")
        switches = dict(self.where.switches)
        try:
            found = self.pool.submit(called, self.where.name, switches, case, operands).result()
        except Unrefereed:
            raise
        except Exception as error:  # whatever a library raises where it refuses
            first = (str(error) or repr(error)).splitlines()[0]
            raise Unrefereed(f"{type(error).__name__}: {first[:200]}") from None
        if found is None:
            raise Unrefereed(f"no direct call of {self.where.text} is written for {case.op}")
        if found.shape != case.output_shape():
            raise Unrefereed(f"its direct call gives shape {found.shape}")
        return found

    def __enter__(self) -> Referee:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)


def called(library: str, switches: Switches, case: Case, operands: Arrays) -> np.ndarray | None:
    """``Referee.outputs`` in this process."""
    import warnings

    warnings.simplefilter("ignore")
    lies = library == "torch" and case.op in CONVOLUTIONS and case.layout in LAYOUTS
    if case.layout != "contiguous" and not lies:
        return None
    x, w, b = (None if a is None else floats.from_container(a, case.dtype) for a in operands)
    found = CALLS[library](case, x, w, b, switches)
    if found is None:
        return None
    found = floats.to_container(np.asarray(found), case.dtype)
    return found if case.op in CONVOLUTIONS else found.reshape(case.output_shape())


def _tensorflow(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if set(switches) - {"onednn", "contraction", "isa", "xla", "mode"}:
        return None
    import tensorflow as tf

    strides, dilations = list(case.stride), list(case.dilation)
    padding = str(case.padding).upper()

    def computed(x: Any, w: Any, b: Any) -> Any:
        if case.op == "sum":
            return tf.reduce_sum(x, 2)
        if case.op in ("matmul", "dense"):
            y = tf.matmul(x, w)
        elif case.op == "conv1d":
            y = tf.nn.conv1d(x, w, strides[0], padding, dilations=dilations[0])
        elif case.op == "depthwise_conv2d":
            y = tf.nn.depthwise_conv2d(x, w, [1, *strides, 1], padding)
        elif case.op == "conv2d":
            y = tf.nn.conv2d(x, w, strides, padding, dilations=dilations)
        else:
            y = tf.nn.conv3d(x, w, [1, *strides, 1], padding)
        return y if b is None else tf.nn.bias_add(y, b)

    if case.op == "conv3d" and set(dilations) != {1}:
        return None
    if case.op == "depthwise_conv2d":
        if set(dilations) != {1}:
            return None
        w = w.reshape(*case.kernel, case.in_channels, -1)
    if case.op in ("matmul", "dense"):
        x, w = x.reshape(-1, case.in_channels), w.reshape(case.in_channels, -1)
    given = [None if a is None else tf.constant(a) for a in (x, w, b)]
    if switches.get("xla") == "1" or switches.get("mode") == "graph":
        computed = tf.function(computed, jit_compile=switches.get("xla") == "1")
    return computed(*given).numpy()


def _torch(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if set(switches) - {"mkldnn"} or (case.padding == "same" and set(case.stride) != {1}):
        return None
    import torch
    import torch.nn.functional as functional

    def tensor(array: np.ndarray) -> Any:
        if case.dtype == "bfloat16":
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(array.copy())

    bias = None if b is None else tensor(b)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=switches.get("mkldnn") != "0"):
        if case.op == "sum":
            y = tensor(x).sum(dim=-1)
        elif case.op == "matmul":
            y = torch.matmul(tensor(x[0]), tensor(w.reshape(case.in_channels, -1)))
        elif case.op == "dense":
            y = functional.linear(tensor(x), tensor(w.reshape(case.in_channels, -1).T), bias)
        else:
            first = tensor(x).movedim(-1, 1)
            second = tensor(np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1))))
            if case.layout != "transposed":
                first = first.contiguous()
            if case.layout == "channels_last":
                lies = torch.channels_last if first.ndim == 4 else torch.channels_last_3d
                first, second = (t.to(memory_format=lies) for t in (first, second))
            call = getattr(functional, f"conv{case.spatial_rank}d")
            pads = case.pads()
            if case.padding != "same" and any(before != after for before, after in pads):
                return None
            padding = "same" if case.padding == "same" else [before for before, _ in pads]
            y = call(first, second, bias, case.stride, padding, case.dilation, case.groups)
    if case.dtype == "bfloat16":
        found = y.contiguous().view(torch.int16).numpy().view(x.dtype)
    else:
        found = y.numpy()
    return np.moveaxis(found, 1, -1) if case.op.endswith("d") else found


def _jax(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if switches:
        return None
    import jax
    import jax.numpy as jnp

    if case.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    letters = "DHW"[3 - case.spatial_rank :]
    names = f"N{letters}C", f"{letters}IO", f"N{letters}C"

    def computed(x: Any, w: Any, b: Any) -> Any:
        if case.op == "sum":
            return jnp.sum(x, axis=-1)
        if case.op in ("matmul", "dense"):
            y = jnp.matmul(x, w)
        else:
            y = jax.lax.conv_general_dilated(
                *(x, w, case.stride, str(case.padding).upper()),
                rhs_dilation=case.dilation,
                dimension_numbers=names,
                feature_group_count=case.groups,
            )
        return y if b is None else y + b

    if case.op in ("matmul", "dense"):
        x, w = x.reshape(-1, case.in_channels), w.reshape(case.in_channels, -1)
    return np.asarray(jax.jit(computed)(*(None if a is None else jnp.array(a) for a in (x, w, b))))


def _onnx(case: Case, x: Any, w: Any, b: Any) -> tuple[bytes, np.ndarray]:
    """An ONNX model with constant weights, and its input."""
    kind, batch, words = {"float32": "float"}.get(case.dtype, case.dtype), "n", ""
    if case.op in CONVOLUTIONS:
        op, x = "Conv", np.ascontiguousarray(np.moveaxis(x, -1, 1))
        w, batch = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1))), x.shape[0]
        pads = [pair[side] for side in (0, 1) for pair in case.pads()]
        words = f"<kernel_shape={[*case.kernel]}, strides={[*case.stride]}, pads={pads}, "
        words += f"dilations={[*case.dilation]}, group={case.groups}>"
    else:
        op, x = "MatMul" if case.op == "matmul" else "Gemm", x.reshape(-1, case.in_channels)
        w = w.reshape(case.in_channels, -1)
        if op == "Gemm":
            w, words = np.ascontiguousarray(w.T), "<transB=1>"
    weights = {"w": w} if b is None else {"w": w, "b": b}
    shape, unknown = [batch, *x.shape[1:]], ",".join("?" * x.ndim)
    ends = f"({kind}[{','.join(map(str, shape))}] x) => ({kind}[{unknown}] y)"
    return onnx_file(f"{ends} {{ y = {op} {words} ({', '.join(['x', *weights])}) }}", **weights), x


def _back(case: Case, y: np.ndarray) -> np.ndarray:
    return np.moveaxis(y, 1, -1) if case.op in CONVOLUTIONS else y


def _onnxruntime(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if switches or case.dtype not in ("float32", "float16") or case.op == "sum":
        return None
    import onnxruntime

    model, x = _onnx(case, x, w, b)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return _back(case, session.run(None, {"x": x})[0])


def _opencv(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if switches or case.dtype != "float32" or case.op not in CONVOLUTIONS:
        return None
    if any(before != after for before, after in case.pads()):
        raise Unrefereed("a Caffe model pads by a layer of its own where sides differ")
    import cv2

    if case.op == "conv1d":  # Caffe has images alone
        axes = {name: (1, *getattr(case, name)) for name in ("kernel", "stride", "dilation")}
        pads = ((0, 0), *case.pads())
        image = case.with_(op="conv2d", padding=pads, height=1, weights=None, **axes)
        return _opencv(image, x[:, None], w[None], b, switches)[:, 0]
    model, x = _onnx(case, x, w, b)
    net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
    net.setInput(x)
    return _back(case, net.forward())


def _litert(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if switches or case.dtype != "float32" or case.op not in CONVOLUTIONS or case.op == "conv3d":
        return None
    if not np.isfinite(w).all():
        raise Unrefereed("TensorFlow's converter makes infinite weights finite")
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    strides, dilations = case.stride, case.dilation
    if case.op == "conv1d":  # LiteRT has images alone
        x, w, strides, dilations = x[:, None], w[None], (1, *strides), (1, *dilations)

    @tf.function(input_signature=[tf.TensorSpec(x.shape, tf.float32)])
    def computed(x: Any) -> Any:
        if case.op == "depthwise_conv2d":
            kernel = w.reshape(*case.kernel, case.in_channels, -1)
            y = tf.nn.depthwise_conv2d(x, kernel, [1, *case.stride, 1], str(case.padding).upper())
        else:
            y = tf.nn.conv2d(x, w, strides, str(case.padding).upper(), dilations=dilations)
        return y if b is None else tf.nn.bias_add(y, b)

    if case.op == "depthwise_conv2d" and set(case.dilation) != {1}:
        return None
    made = tf.lite.TFLiteConverter.from_concrete_functions([computed.get_concrete_function()])
    interpreter = Interpreter(model_content=made.convert())
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return y[:, 0] if case.op == "conv1d" else y


def _keras(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if switches or case.op not in ("conv1d", "conv2d", "conv3d", "dense"):
        return None
    import keras

    bias = {"use_bias": b is not None, "dtype": case.dtype}
    if case.op == "dense":
        layer = keras.layers.Dense(case.filters, **bias)
        w = w.reshape(case.in_channels, -1)
    else:
        windows = {"strides": case.stride, "dilation_rate": case.dilation, "groups": case.groups}
        kind = getattr(keras.layers, f"Conv{case.spatial_rank}D")
        layer = kind(case.filters, case.kernel, padding=str(case.padding), **windows, **bias)
    layer.build((None, *x.shape[1:]))
    layer.set_weights([w] if b is None else [w, b])
    return keras.ops.convert_to_numpy(layer(keras.ops.convert_to_tensor(x)))


def _numpy(case: Case, x: Any, w: Any, b: Any, switches: Switches) -> Any:
    if switches or case.op not in ("matmul", "dense", "sum") or case.dtype == "bfloat16":
        return None
    if case.op == "sum":
        return x.sum(axis=-1)
    y = (x if case.op == "dense" else x[0]) @ w.reshape(case.in_channels, -1)
    return y if b is None else y + b


LAYOUTS = ("transposed", "channels_last")
"""Beside contiguous ones, of convolutions in PyTorch."""

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")

CALLS: dict[str, Callable[[Case, Any, Any, Any, Switches], Any]] = {
    "tensorflow": _tensorflow,
    "torch": _torch,
    "jax": _jax,
    "onnxruntime": _onnxruntime,
    "opencv": _opencv,
    "litert": _litert,
    "keras": _keras,
    "numpy": _numpy,
}
"""What calls each library."""
