"""Equal operands, equal labels: what libraries mean by one function is said in one way.

A row is a function or a structure; each library that has it computes it on the same numbers, is
recorded, and must give every element of the result the label of the first library's. Functions of
elements have a row each by their names (``spelled``); the others are written here.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from probe.errors import InputError
from probe.recording.recording import record_run
from probe.semantics import Each, Unknown
from probe.semantics.elementwise import FUNCTIONS
from tests.recorders import built, spelled
from tests.recorders.rows import LIBRARIES
from tests.recorders.truth import agreed, told

torch = pytest.importorskip("torch", reason="the matrix compares libraries with PyTorch")
F = torch.nn.functional

NEAR = 1e-4
"""Functions in float32 by several libraries: far below what another formula would move."""

RANDOM = np.random.default_rng(31)
X = RANDOM.standard_normal((2, 6, 8, 8)).astype(np.float32)
P = np.abs(X) + np.float32(0.5)  # positive
S = np.tanh(X)  # between -1 and 1
Z = (X + 1j * P).astype(np.complex64)
L = RANDOM.standard_normal((3, 5, 12)).astype(np.float32)
SCALE, SHIFT, MEAN = (RANDOM.standard_normal(6).astype(np.float32) for _ in range(3))
VAR = np.abs(RANDOM.standard_normal(6).astype(np.float32)) + np.float32(0.5)
GAMMA, BETA = (RANDOM.standard_normal(12).astype(np.float32) for _ in range(2))
W12 = RANDOM.standard_normal((12, 4)).astype(np.float32)
ALONG = np.tile(np.array([[2], [0]]), (3, 1, 12))
"""Indices along the middle axis of ``L``."""
BUCKETS = [-0.5, 0.0, 0.25, 1.0]
B4 = RANDOM.standard_normal(4).astype(np.float32)
SQUARES = np.tanh(np.resize(GAMMA, (3, 5, 5)) * L[:, :, :5]) + 2 * np.eye(5, dtype=np.float32)
HEADS = RANDOM.standard_normal((2, 3, 5, 4)).astype(np.float32)
"""(batch, heads, positions, features)"""
WHOLE = RANDOM.integers(1, 99, (2, 6, 8)).astype(np.int32)
KERNEL = RANDOM.standard_normal((4, 6, 3, 3)).astype(np.float32)
"""(filters, channels, height, width), as PyTorch and ONNX have it."""


class Row:
    """A function of an array, or of a tuple of it and weights, as each library writes it.

    ``onnx``: nodes (type, inputs, outputs, attributes), from ``x`` to ``y``; the weights are
    ``w0``, ``w1``, ..., ``constants`` are further inputs by name. ``opencv``, ``litert``: whether
    these are derived from ONNX and TensorFlow. ``named``: it is a function that libraries have by
    this name; some compute it in steps, or can't convert it.
    """

    def __init__(self, given: Any, **libraries: Any) -> None:
        self.x, *self.weights = given if isinstance(given, tuple) else (given,)
        self.opencv = libraries.pop("opencv", True) and "onnx" in libraries
        litert = libraries.pop("litert", True)
        self.operator = litert if callable(litert) else None
        self.litert = bool(litert) and "tensorflow" in libraries
        self.constants, self.named = libraries.pop("constants", {}), libraries.pop("named", False)
        self.libraries = libraries

    def recorders(self) -> dict[str, Callable[[], Any]]:
        """Returns what makes a recorder, by library."""
        made = {name: lambda name=name: getattr(self, name)() for name in self.libraries}
        for name in ("opencv", "litert"):
            if getattr(self, name) is True:
                made[name] = lambda name=name: getattr(self, f"by_{name}")()
        return made

    def torch(self) -> Any:
        from probe.recorders.torch import TorchRecorder

        x = torch.from_numpy(self.x)
        some = [torch.nn.Parameter(torch.from_numpy(w), False) for w in self.weights]
        return TorchRecorder(lambda: self.libraries["torch"](x, *some))

    def numpy(self) -> Any:
        from probe.recorders.ndarray import ArrayRecorder

        named = {f"w{n}": w for n, w in enumerate(self.weights)}
        return ArrayRecorder(
            lambda x, **some: self.libraries["numpy"](x, *some.values()), self.x, **named
        )

    def jax(self) -> Any:
        jnp = pytest.importorskip("jax.numpy")
        from probe.recorders.jax import JaxRecorder

        x, some = jnp.asarray(self.x), [jnp.asarray(w) for w in self.weights]
        return JaxRecorder(lambda: self.libraries["jax"](x, *some))

    def tensorflow(self) -> Any:
        tf = pytest.importorskip("tensorflow")
        from probe.recorders.tensorflow import TensorFlowRecorder

        x, some = tf.constant(self.x), [tf.Variable(w) for w in self.weights]
        return TensorFlowRecorder(lambda: self.libraries["tensorflow"](x, *some))

    def model(self) -> bytes:
        """Returns the row as an ONNX model."""
        onnx = pytest.importorskip("onnx")
        helper = onnx.helper
        opset, nodes = spelled.OPSET, []
        for op, ins, outs, words in self.libraries["onnx"]:
            opset = max(opset, words.get("opset", 0))
            given = {name: one for name, one in words.items() if name != "opset"}
            nodes.append(helper.make_node(op, ins.split(","), outs.split(","), **given))
        some = [onnx.numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(self.weights)]
        some += [onnx.numpy_helper.from_array(w, name) for name, w in self.constants.items()]
        value = helper.make_tensor_value_info
        # OpenCV reads no model without the shape of its output; of ONNX's alone it is the input's
        others = [name for name in self.libraries if name != "onnx"]
        first = getattr(self, others[0])().plain()[0] if others else self.x
        kind = helper.np_dtype_to_tensor_dtype(first.dtype)
        of_x = helper.np_dtype_to_tensor_dtype(self.x.dtype)
        ends = value("x", of_x, self.x.shape), value("y", kind, first.shape)
        graph = helper.make_graph(nodes, "g", [ends[0]], [ends[1]], some)
        sets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=9)
        return bytes(model.SerializeToString())

    def onnx(self) -> Any:
        pytest.importorskip("onnxruntime")
        from probe.recorders.onnxruntime import OnnxRecorder

        return OnnxRecorder(self.model(), {"x": self.x}, {"optimisation": "none"})

    def by_opencv(self) -> Any:
        pytest.importorskip("cv2")
        import tempfile
        from pathlib import Path

        from probe.recorders.opencv import OpenCVRecorder, opened

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            path.write_bytes(self.model())
            return OpenCVRecorder(opened(path), {"x": self.x})

    def by_litert(self) -> Any:
        tf = pytest.importorskip("tensorflow")
        pytest.importorskip("ai_edge_litert")
        from probe.recorders.litert import LiteRTRecorder

        if self.operator is not None:
            return self.operator(self.x)
        made = tf.function(
            lambda x: self.libraries["tensorflow"](x, *map(tf.constant, self.weights)),
            input_signature=[tf.TensorSpec(self.x.shape, self.x.dtype, name="x")],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            convert = tf.lite.TFLiteConverter.from_concrete_functions
            try:
                content = convert([made.get_concrete_function()]).convert()
            except Exception:  # the converter's own, of several kinds
                if self.named:
                    pytest.skip("LiteRT's converter has no such operator")
                raise
        import ai_edge_litert.interpreter as litert

        (name,) = (
            one["name"] for one in litert.Interpreter(model_content=content).get_input_details()
        )
        return LiteRTRecorder(content, {name: self.x})


def tf():
    import tensorflow

    return tensorflow


def jx():
    import jax

    return jax


def node(op: str, ins: str = "x", outs: str = "y", **words: Any) -> list[Any]:
    return [(op, ins, outs, words)]


def keras():
    keras = pytest.importorskip("keras", reason="Keras computes it in TensorFlow's operations")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras computes by another library than TensorFlow")
    return keras


def turned(x: Any) -> Any:
    """Returns heads and positions the other way round."""
    return x.transpose(0, 2, 1, 3)


def by_parts(x: np.ndarray) -> np.ndarray:
    """Returns a softmax along the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def grouped(x: Any, scale: Any, shift: Any) -> Any:
    """Returns a GroupNorm of three groups, of NumPy's or JAX's arrays."""
    y = x.reshape(2, 3, -1)
    y = y - y.mean(-1, keepdims=True)
    variance = np.float32(1e-5) + (y * y).mean(-1, keepdims=True)
    y = y / (np.sqrt(variance) if isinstance(x, np.ndarray) else jx().numpy.sqrt(variance))
    return y.reshape(x.shape) * scale[:, None, None] + shift[:, None, None]


def channels_last(x: Any) -> Any:
    return tf().transpose(x, (0, 2, 3, 1))


def channels_second(x: Any) -> Any:
    return tf().transpose(x, (0, 3, 1, 2))


def convolved(x: Any, w: Any, strides: int = 1, padding: Any = "VALID") -> Any:
    """Returns TensorFlow's convolution of channels second, by PyTorch's weights."""
    kernel = tf().transpose(w, (2, 3, 1, 0))
    return channels_second(tf().nn.conv2d(channels_last(x), kernel, strides, padding))


def resized(x: Any, size: int, **how: bool) -> Any:
    """Returns pictures that TensorFlow interpolates linearly, channels second."""
    last, sizes = channels_last(x), tf().constant([size, size])
    return channels_second(tf().raw_ops.ResizeBilinear(images=last, size=sizes, **how))


def one_operator(op: str, **words: Any) -> Callable[[np.ndarray], Any]:
    """Returns what makes a recorder of one of LiteRT's operators, which its converter doesn't make:
    of an array (4, 6)."""

    def made(x: np.ndarray) -> Any:
        from probe.recorders.litert import LiteRTRecorder
        from tests.recorders.test_litert_table import built, of

        content, _ = built([of(op, "a", **words)])
        return LiteRTRecorder(content, {"a": x}, {"xnnpack": "0", "threads": "1"})

    return made


def gates(count: int) -> list[np.ndarray]:
    """Returns PyTorch's weights and biases of a recurrent layer of 12 features and four cells."""
    random = np.random.default_rng(count)
    shapes = (count * 4, 12), (count * 4, 4), (count * 4,), (count * 4,)
    return [random.standard_normal(shape).astype(np.float32) / 2 for shape in shapes]


def as_onnx(weights: list[np.ndarray], order: str, theirs: str) -> dict[str, np.ndarray]:
    """Returns the same as ONNX has it: gates in another order, one direction, biases as one."""
    rows = np.concatenate([np.arange(4) + 4 * order.index(gate) for gate in theirs])
    inner, outer, *biases = (one[rows] for one in weights)
    return {"W": inner[None], "R": outer[None], "B": np.concatenate(biases)[None]}


def first_states(of: Any, x: Any, count: int = 1) -> tuple[Any, ...]:
    return (of.zeros((1, x.shape[1], 4)),) * count


def scanned(step: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Returns a layer of JAX by ``lax.scan``. ``step(now, states, gates)`` gives new states."""

    def layer(x: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
        jnp = jx().numpy

        def one(states: Any, now: Any) -> Any:
            new = step(now @ wi.T + bi, states[0] @ wh.T + bh, *states)
            return new, new[0]

        return jx().lax.scan(one, (jnp.zeros((x.shape[1], 4)),) * count, x)[1]

    return layer


def looped(step: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Returns a layer of TensorFlow by a loop."""

    def layer(x: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
        states, found = (tf().zeros((x.shape[1], 4)),) * count, []
        for now in tf().unstack(x):
            inner = tf().matmul(now, wi, transpose_b=True) + bi
            outer = tf().matmul(states[0], wh, transpose_b=True) + bh
            states = step(inner, outer, *states)
            found.append(states[0])
        return tf().stack(found)

    return layer


def of_lstm(sigmoid: Any, tanh: Any, split: Any) -> Callable[..., Any]:
    def step(inner: Any, outer: Any, state: Any, cell: Any) -> Any:
        i, f, g, o = split(inner + outer, 4, 1)
        cell = sigmoid(f) * cell + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(cell), cell

    return step


def of_gru(sigmoid: Any, tanh: Any, split: Any) -> Callable[..., Any]:
    def step(inner: Any, outer: Any, state: Any) -> Any:
        (r, z, n), (of_r, of_z, of_n) = split(inner, 3, 1), split(outer, 3, 1)
        new = tanh(n + sigmoid(r + of_r) * of_n)
        return (new + sigmoid(z + of_z) * (state - new),)

    return step


def of_rnn(sigmoid: Any, tanh: Any, split: Any) -> Callable[..., Any]:
    return lambda inner, outer, state: (tanh(inner + outer),)


def in_jax(step: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
    def layer(*given: Any) -> Any:
        of = jx().nn.sigmoid, jx().numpy.tanh, jx().numpy.split
        return scanned(step(*of), count)(*given)

    return layer


def in_tensorflow(step: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
    return lambda *given: looped(step(tf().sigmoid, tf().tanh, tf().split), count)(*given)


def in_keras(name: str) -> Callable[..., Any]:
    """Returns a layer of Keras, with PyTorch's weights and without biases."""
    made: dict[str, Any] = {}

    def layer(x: Any, wi: Any, wh: Any) -> Any:
        if not made:
            of = getattr(keras().layers, name)(4, return_sequences=True, use_bias=False)
            of.build((x.shape[1], x.shape[0], x.shape[2]))
            of.set_weights([wi.numpy().T, wh.numpy().T])
            made["layer"] = of
        return tf().transpose(made["layer"](tf().transpose(x, (1, 0, 2))), (1, 0, 2))

    return layer


def recurrent(op: str, *constants: Any, **words: Any) -> list[Any]:
    """Returns nodes of a layer of ONNX, without its axis of directions."""
    return [
        (op, "x,W,R" + ",B" * (not words.pop("plain", False)), "s", {"hidden_size": 4, **words}),
        ("Squeeze", "s,one", "y", {}),
    ]


ONE = {"one": np.array([1])}
LAYERS = {"lstm": (torch.lstm, 4, "ifgo", "iofg"), "gru": (torch.gru, 3, "rzn", "zrn"),
          "rnn": (torch.rnn_tanh, 1, "n", "n")}  # fmt: skip
"""PyTorch's layers, how many gates each has, in its own order and in ONNX's."""


def layer_row(name: str, biased: bool = True, back: bool = False, **others: Any) -> Row:
    """Returns a recurrent layer from zero states; ``back``: from the end. Not by LiteRT, whose
    converter adds the first step's biases."""
    function, count, order, theirs = LAYERS[name]

    def layer(x: torch.Tensor, *some: torch.Tensor) -> torch.Tensor:
        x, states = x.flip(0) if back else x, first_states(torch, x, 2 if name == "lstm" else 1)
        first = states if name == "lstm" else states[0]
        found = function(x, first, some, biased, 1, 0.0, False, False, False)[0]
        return found.flip(0) if back else found

    constants = as_onnx(gates(count), order, theirs) | ONE
    words = {"constants": constants, "litert": False, "opencv": False}
    return Row((L, *gates(count)[: 4 if biased else 2]), torch=layer, **others, **words)


KEYS = [("Tanh", "x", "k", {}), ("Mul", "x,two", "v", {})]
"""Nodes of ONNX that give the keys and values of attention."""


def scores(x: np.ndarray) -> np.ndarray:
    return x @ np.tanh(x).swapaxes(-1, -2) * np.float32(0.5)


def reduced(x: np.ndarray, axes: Any, word: str, other: str = "", **more: Any) -> Row:
    """Returns a reduction that libraries have under one name; ``other``: PyTorch's."""
    return Row(
        x,
        torch=lambda x: getattr(x, other or word)(axes),
        numpy=lambda x: getattr(np, word)(x, axes),
        jax=lambda x: getattr(x, word)(axes),
        tensorflow=lambda x: getattr(tf(), f"reduce_{word}")(x, axes),
        **more,
    )


SPACES: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch, "numpy": lambda: np, "jax": lambda: jx().numpy, "tensorflow": tf,
}  # fmt: skip
"""Where a library has its functions of arrays."""


def alike(
    given: Any,
    formula: Callable[..., Any],
    libraries: str = "torch numpy jax tensorflow",
    **others: Any,
) -> Row:
    """Returns a function that these libraries spell alike, ``formula(xp, x, ...)`` in functions of
    their own, and others otherwise; PyTorch's stands first."""
    names = libraries.split()
    spelled_alike = {n: lambda *given, n=n: formula(SPACES[n](), *given) for n in names}
    first = {"torch": others.pop("torch")} if "torch" in others else {}
    return Row(given, **first, **spelled_alike, **others)


def attention_row(**causal: bool) -> Row:
    """Returns attention of heads: to all positions, or to those up to one's own."""

    def in_numpy(x: np.ndarray) -> np.ndarray:
        hidden = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
        return by_parts(scores(x) + hidden if causal else scores(x)) @ (x * np.float32(2))

    def in_jax(x: Any) -> Any:
        every = turned(x), turned(jx().numpy.tanh(x)), turned(x * 2)
        return turned(jx().nn.dot_product_attention(*every, **causal))

    def in_tensorflow(x: Any) -> Any:
        shares = tf().matmul(x, tf().tanh(x), transpose_b=True) * 0.5
        if causal:
            shares = tf().where(np.tri(5, dtype=bool), shares, tf().float32.min)
        return tf().matmul(tf().nn.softmax(shares), x * 2)

    words = {"opset": 23} | ({"is_causal": 1} if causal else {})
    return Row(
        HEADS,
        torch=lambda x: F.scaled_dot_product_attention(x, torch.tanh(x), x * 2, **causal),
        onnx=[*KEYS, ("Attention", "x,k,v", "y", words)],
        constants={"two": np.array(2, np.float32)},
        numpy=in_numpy,
        jax=in_jax,
        tensorflow=in_tensorflow,
        opencv=False,
    )


def resize_row(size: int, in_torch: Any, in_tensorflow: Any, in_onnx: dict[str, str]) -> Row:
    """Returns a linear resize to a size, where each library's words say what corners are."""
    libraries: dict[str, Any] = {
        "torch": lambda x: F.interpolate(x, (size, size), mode="bilinear", **in_torch),
        "tensorflow": lambda x: resized(x, size, **in_tensorflow),
        "onnx": node("Resize", "x,,,s", mode="linear", **in_onnx),
    }
    if in_torch is None:
        del libraries["torch"]
    return Row(X, **libraries, constants={"s": np.array([2, 6, size, size])}, opencv=False)


ROWS: dict[str, Row] = {
    "thresholded_relu": Row(X, onnx=node("ThresholdedRelu", alpha=0.5)),
    "lstm": layer_row(
        "lstm", jax=in_jax(of_lstm, 2), tensorflow=in_tensorflow(of_lstm, 2), onnx=recurrent("LSTM")
    ),
    "lstm without biases": layer_row(
        "lstm", False, tensorflow=in_keras("LSTM"), onnx=recurrent("LSTM", plain=True)
    ),
    "lstm from the end": layer_row("lstm", back=True, onnx=recurrent("LSTM", direction="reverse")),
    "gru": layer_row(
        "gru",
        jax=in_jax(of_gru),
        tensorflow=in_tensorflow(of_gru),
        onnx=recurrent("GRU", linear_before_reset=1),
    ),
    "rnn": layer_row(
        "rnn", jax=in_jax(of_rnn), tensorflow=in_tensorflow(of_rnn), onnx=recurrent("RNN")
    ),
    "rnn without biases": layer_row(
        "rnn", False, tensorflow=in_keras("SimpleRNN"), onnx=recurrent("RNN", plain=True)
    ),
    "relu6": Row(X, torch=F.relu6, tensorflow=lambda x: tf().nn.relu6(x)),
    "leaky_relu": Row(
        X,
        torch=lambda x: F.leaky_relu(x, 0.3),
        tensorflow=lambda x: tf().nn.leaky_relu(x, 0.3),
        onnx=node("LeakyRelu", alpha=0.3),
    ),
    "elu": Row(X, torch=F.elu, tensorflow=lambda x: tf().nn.elu(x), onnx=node("Elu", alpha=1.0)),
    "selu": Row(X, torch=F.selu, tensorflow=lambda x: tf().nn.selu(x), onnx=node("Selu")),
    "celu": Row(X, torch=lambda x: F.celu(x, 0.7), onnx=node("Celu", alpha=0.7)),
    "hard_swish": Row(X, torch=F.hardswish, onnx=node("HardSwish")),
    "hard_sigmoid": Row(X, torch=F.hardsigmoid, onnx=node("HardSigmoid", alpha=1 / 6, beta=0.5)),
    "softplus": Row(
        X, torch=F.softplus, tensorflow=lambda x: tf().nn.softplus(x), onnx=node("Softplus")
    ),
    "gelu": Row(X, torch=F.gelu, onnx=node("Gelu")),
    "gelu_tanh": Row(
        X, torch=lambda x: F.gelu(x, approximate="tanh"), onnx=node("Gelu", approximate="tanh")
    ),
    "clip": Row(
        X,
        torch=lambda x: torch.clamp(x, -0.5, 0.75),
        jax=lambda x: jx().lax.clamp(np.float32(-0.5), x, np.float32(0.75)),
        onnx=node("Clip", "x,a,b"),
        constants={"a": np.array(-0.5, np.float32), "b": np.array(0.75, np.float32)},
    ),
    "cast": Row(
        X,
        torch=lambda x: x.half(),
        numpy=lambda x: x.astype(np.float16),
        jax=lambda x: x.astype("float16"),
        tensorflow=lambda x: tf().cast(x, tf().float16),
        onnx=node("Cast", to=10),
    ),
    "cast to int": Row(
        3 * X,
        torch=lambda x: x.int(),
        numpy=lambda x: x.astype(np.int32),
        jax=lambda x: x.astype("int32"),
        tensorflow=lambda x: tf().cast(x, tf().int32),
        onnx=node("Cast", to=6),
    ),
    "sum": reduced(X, (2, 3), "sum"),
    "mean": reduced(
        X, (2, 3), "mean", onnx=[("GlobalAveragePool", "x", "g", {}), ("Flatten", "g", "y", {})]
    ),
    "all": reduced(X > -2, -1, "all"),
    "any": reduced(X > 2, -1, "any"),
    "max": reduced(
        X,
        (2, 3),
        *("max", "amax"),
        onnx=node("ReduceMax", "x,axes", keepdims=0),
        constants={"axes": np.array([2, 3])},
    ),
    "prod": reduced(S[:, :, 0], -1, "prod"),
    "min": reduced(L, -1, "min", "amin"),
    **{
        f"arg{way}": alike(
            *(L, lambda xp, x, way=way: getattr(xp, f"arg{way}")(x, -1)),
            onnx=node(f"Arg{way.title()}", axis=-1, keepdims=0),
        )
        for way in ("min", "max")
    },
    "cumsum": alike(L, lambda xp, x: xp.cumsum(x, 1)),
    "cumprod": Row(
        S[:, :, 0],
        torch=lambda x: x.cumprod(1),
        numpy=lambda x: np.cumprod(x, 1),
        jax=lambda x: jx().lax.cumprod(x, 1),
        tensorflow=lambda x: tf().math.cumprod(x, 1),
    ),
    "cumulative logsumexp": Row(
        L,
        torch=lambda x: x.logcumsumexp(1),
        jax=lambda x: jx().lax.cumlogsumexp(x, 1),
        tensorflow=lambda x: tf().math.cumulative_logsumexp(x, 1),
    ),
    "bits": Row(
        X,
        torch=lambda x: x.view(torch.int32),
        jax=lambda x: jx().lax.bitcast_convert_type(x, "int32"),
        tensorflow=lambda x: tf().bitcast(x, tf().int32),
    ),
    "clamp by arrays": Row(
        (X, X[::-1] - 1, X[::-1] + 1),
        torch=torch.clamp,
        jax=lambda x, a, b: jx().lax.clamp(a, x, b),
    ),
    "complex": Row(
        (X, P),
        torch=torch.complex,
        jax=lambda x, w: jx().lax.complex(x, w),
        tensorflow=lambda x, w: tf().complex(x, w),
    ),
    **{
        part: Row(
            Z,
            torch=lambda x, part=part: getattr(torch, part)(x) * 2,
            jax=lambda x, part=part: getattr(jx().numpy, part)(x) * 2,
            tensorflow=lambda x, part=part: getattr(tf().math, part)(x) * 2,
        )
        for part in ("real", "imag")
    },
    "conj": Row(
        Z,
        torch=lambda x: torch.conj_physical(x),
        numpy=np.conj,
        jax=lambda x: jx().numpy.conj(x),
        tensorflow=lambda x: tf().math.conj(x),
    ),
    "complex absolute": alike(Z, lambda xp, x: xp.abs(x)),
    "count of what is not zero": alike(
        np.maximum(L, 0), lambda xp, x: xp.count_nonzero(x, 1), "torch numpy"
    ),
    "median": Row(L, torch=lambda x: x.median(1)[0], numpy=lambda x: np.median(x, 1)),
    "determinant": alike(
        *(SQUARES, lambda xp, x: xp.linalg.det(x), "torch numpy tensorflow"), onnx=node("Det")
    ),
    "inverse": alike(SQUARES, lambda xp, x: xp.linalg.inv(x), "torch numpy tensorflow"),
    "cholesky": alike(
        *(SQUARES @ SQUARES.swapaxes(1, 2), lambda xp, x: xp.linalg.cholesky(x)),
        *("torch numpy tensorflow",),
    ),
    "linear solve": Row(
        (L[:, :, :4].copy(), SQUARES),
        torch=lambda x, a: torch.linalg.solve(a, x),
        tensorflow=lambda x, a: tf().linalg.solve(a, x),
    ),
    "local response norm": Row(
        X,
        tensorflow=lambda x: channels_second(
            tf().nn.local_response_normalization(channels_last(x), 2, 1.0, 2e-4, 0.75)
        ),
        onnx=node("LRN", size=5, bias=1.0, alpha=1e-3, beta=0.75),
    ),
    "resize linear": Row(
        X,
        torch=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        tensorflow=lambda x: channels_second(tf().image.resize(channels_last(x), (16, 16))),
        onnx=node("Resize", "x,,s", mode="linear"),
        constants={"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resize linear to fewer": resize_row(5, {}, {"half_pixel_centers": True}, {}),
    "resize linear from corner to corner": resize_row(
        *(13, {"align_corners": True}, {"align_corners": True}),
        {"coordinate_transformation_mode": "align_corners"},
    ),
    "resize linear from the first corner": resize_row(
        16, None, {}, {"coordinate_transformation_mode": "asymmetric"}
    ),
    "resize cubic": Row(
        X,
        torch=lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        onnx=node("Resize", "x,,s", mode="cubic", cubic_coeff_a=-0.75),
        constants={"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "vector norm": Row(
        L,
        torch=lambda x: torch.linalg.vector_norm(x, 2, -1),
        onnx=node("ReduceL2", "x,axes", keepdims=0),
        tensorflow=lambda x: tf().raw_ops.EuclideanNorm(input=x, axis=-1),
        constants={"axes": np.array([-1])},
    ),
    "vector norm of magnitudes": Row(
        L,
        torch=lambda x: torch.linalg.vector_norm(x, 1, -1),
        onnx=node("ReduceL1", "x,axes", keepdims=0),
        constants={"axes": np.array([-1])},
    ),
    "sort": Row(
        L, torch=lambda x: x.sort(1)[0], numpy=lambda x: np.sort(x, 1), jax=lambda x: x.sort(1)
    ),
    "argsort": alike(L, lambda xp, x: xp.argsort(x, 1), "torch numpy"),
    "largest k": Row(
        L,
        torch=lambda x: x.topk(3, -1)[0],
        jax=lambda x: jx().lax.top_k(x, 3)[0],
        tensorflow=lambda x: tf().math.top_k(x, 3)[0],
        onnx=[("TopK", "x,k", "y,i", {"axis": -1})],
        constants={"k": np.array([3])},
    ),
    "squared difference": Row(
        (X, P),
        tensorflow=lambda x, w: tf().math.squared_difference(x, w),
        torch=lambda x, w: F.mse_loss(x, w, reduction="none"),
    ),
    "sum of several": Row(
        (X, P),
        torch=lambda x, w: x + w,
        tensorflow=lambda x, w: tf().add_n([x, w]),
        onnx=node("Sum", "x,w0"),
    ),
    "sum of three": Row(
        (X, P, S), tensorflow=lambda x, w, v: tf().add_n([x, w, v]), onnx=node("Sum", "x,w0,w1")
    ),
    "attention": attention_row(),
    "attention to what was before": attention_row(is_causal=True),
    "layer norm without numbers": Row(
        L,
        torch=lambda x: F.layer_norm(x, (12,)),
        onnx=node("LayerNormalization", "x,one", epsilon=1e-5),
        constants={"one": np.ones(12, np.float32)},
    ),
    "affine grid": Row(
        L[:, :2, :3].copy(),
        torch=lambda x: F.affine_grid(x, [3, 2, 5, 4], align_corners=False),
        onnx=node("AffineGrid", "x,size"),
        constants={"size": np.array([3, 2, 5, 4])},
    ),
    "grid sample": Row(
        (X, S[:, :2, :, :].transpose(0, 2, 3, 1).copy()),
        torch=lambda x, g: F.grid_sample(x, g, align_corners=False),
        onnx=node("GridSample", "x,w0", mode="linear"),
    ),
    "embedding of one-hots": Row(
        W12.T.copy(),
        tensorflow=lambda x: tf().matmul(x, tf().transpose(tf().one_hot([3, 0, 7], 12))),
        onnx=[("OneHot", "i,depth,values", "h", {"axis": 0}), ("MatMul", "x,h", "y", {})],
        constants={
            "i": np.array([3, 0, 7]),
            "depth": np.array(12),
            "values": np.array([0, 1], np.float32),
        },
    ),
    "glu": Row(
        L,
        torch=F.glu,
        onnx=[
            ("Split", "x", "a,b", {"axis": -1, "num_outputs": 2}),
            ("Sigmoid", "b", "s", {}),
            ("Mul", "a,s", "y", {}),
        ],
    ),
    "space to depth": Row(
        (X, KERNEL.reshape(1, 24, 3, 3)),
        torch=lambda x, w: F.conv2d(F.pixel_unshuffle(x, 2), w),
        tensorflow=lambda x, w: convolved(
            tf().reshape(
                tf().transpose(tf().reshape(x, (2, 6, 4, 2, 4, 2)), (0, 1, 3, 5, 2, 4)),
                (2, 24, 4, 4),
            ),
            w,
        ),
    ),
    "transposed convolution": Row(
        (X, KERNEL.transpose(1, 0, 2, 3).copy()),
        torch=lambda x, w: F.conv_transpose2d(x, w, stride=2),
        onnx=node("ConvTranspose", "x,w0", strides=[2, 2]),
        tensorflow=lambda x, w: channels_second(
            tf().nn.conv2d_transpose(
                channels_last(x), tf().transpose(w, (2, 3, 1, 0)), (2, 17, 17, 4), 2, "VALID"
            )
        ),
    ),
    "grouped convolution": Row(
        (X, KERNEL[:, :3].copy()),
        torch=lambda x, w: F.conv2d(x, w, groups=2),
        jax=lambda x, w: jx().lax.conv_general_dilated(
            x, w, (1, 1), "VALID", feature_group_count=2
        ),
        onnx=node("Conv", "x,w0", group=2),
    ),
    "softmax": Row(
        L,
        torch=lambda x: x.softmax(-1),
        numpy=by_parts,
        jax=lambda x: jx().nn.softmax(x),
        tensorflow=lambda x: tf().nn.softmax(x),
        onnx=node("Softmax", axis=-1),
    ),
    "log_softmax": Row(
        L,
        torch=lambda x: x.log_softmax(-1),
        jax=lambda x: jx().nn.log_softmax(x),
        tensorflow=lambda x: tf().nn.log_softmax(x),
        onnx=node("LogSoftmax", axis=-1),
    ),
    "layer_norm": Row(
        (L, GAMMA, BETA),
        torch=lambda x, g, b: F.layer_norm(x, (12,), g, b, 1e-5),
        onnx=node("LayerNormalization", "x,w0,w1", epsilon=1e-5),
        numpy=lambda x, g, b: (
            (x - x.mean(-1, keepdims=True))
            / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5))
            * g
            + b
        ),
        jax=lambda x, g, b: (
            (x - x.mean(-1, keepdims=True)) * jx().lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g
            + b
        ),
    ),
    "rms_norm": Row(
        (L, GAMMA),
        torch=lambda x, g: F.rms_norm(x, (12,), g, 1e-5),
        onnx=node("RMSNormalization", "x,w0", epsilon=1e-5, opset=23),
        tensorflow=lambda x, g: keras().ops.rms_normalization(x, g, -1, 1e-5),
        jax=lambda x, g: x * jx().lax.rsqrt(jx().numpy.mean(x * x, -1, keepdims=True) + 1e-5) * g,
        numpy=lambda x, g: (
            x / np.sqrt(np.mean(np.square(x), -1, keepdims=True) + np.float32(1e-5)) * g
        ),
    ),
    "group_norm": Row(
        (X, SCALE, SHIFT),
        torch=lambda x, g, b: F.group_norm(x, 3, g, b, 1e-5),
        numpy=grouped,
        jax=lambda x, g, b: grouped(x, g, b),
    ),
    "instance_norm": Row(
        (X, SCALE, SHIFT),
        torch=lambda x, g, b: F.instance_norm(x, weight=g, bias=b, eps=1e-5),
        onnx=node("InstanceNormalization", "x,w0,w1", epsilon=1e-5),
    ),
    "instance_norm behind a convolution": Row(
        (X, KERNEL, GAMMA[:4].copy()),
        torch=lambda x, w, g: F.instance_norm(F.conv2d(x, w), weight=g, bias=g, eps=1e-5),
        onnx=[
            ("Conv", "x,w0", "c", {}),
            ("InstanceNormalization", "c,w1,w1", "y", {"epsilon": 1e-5}),
        ],
    ),
    "batch_norm": Row(
        (X, SCALE, SHIFT, MEAN, VAR),
        torch=lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, False, 0.1, 1e-3),
        tensorflow=lambda x, s, b, m, v: tf().compat.v1.nn.fused_batch_norm(
            channels_last(x), s, b, m, v, 1e-3, is_training=False
        )[0],
        onnx=node("BatchNormalization", "x,w0,w1,w2,w3", epsilon=1e-3),
    ),
    "prelu": Row((X, SCALE), torch=F.prelu),
    "convolution": Row(
        (X, KERNEL),
        torch=F.conv2d,
        jax=lambda x, w: jx().lax.conv(x, w, (1, 1), "VALID"),
        tensorflow=lambda x, w: convolved(x, w),
        onnx=node("Conv", "x,w0"),
    ),
    "convolution behind a pad": Row(
        (X, KERNEL),
        torch=lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 1)), w),
        jax=lambda x, w: jx().lax.conv(
            jx().numpy.pad(x, ((0, 0), (0, 0), (0, 1), (1, 2))), w, (1, 1), "VALID"
        ),
        tensorflow=lambda x, w: convolved(tf().pad(x, ((0, 0), (0, 0), (0, 1), (1, 2))), w),
    ),
    "convolution behind a concat": Row(
        (X, KERNEL),
        torch=lambda x, w: F.conv2d(torch.cat([x, x * x], 2), w),
        jax=lambda x, w: jx().lax.conv(jx().numpy.concatenate([x, x * x], 2), w, (1, 1), "VALID"),
        tensorflow=lambda x, w: convolved(tf().concat([x, x * x], 2), w),
        onnx=[
            ("Mul", "x,x", "s", {}),
            ("Concat", "x,s", "c", {"axis": 2}),
            ("Conv", "c,w0", "y", {}),
        ],
    ),
    "product behind a concat": alike(
        (L, RANDOM.standard_normal((12, 4)).astype(np.float32)),
        lambda xp, x, w: xp.concat([x, xp.tanh(x)], axis=1) @ w,
        onnx=[
            ("Tanh", "x", "t", {}),
            ("Concat", "x,t", "c", {"axis": 1}),
            ("MatMul", "c,w0", "y", {}),
        ],
    ),
    "dense": alike(
        (L, W12, B4),
        *(lambda xp, x, w, b: x @ w + b, "numpy jax tensorflow"),
        torch=lambda x, w, b: F.linear(x, w.T, b),
        onnx=[("MatMul", "x,w0", "m", {}), ("Add", "m,w1", "y", {})],
    ),
    "max_pool": Row(
        X,
        torch=lambda x: F.max_pool2d(x, 2),
        tensorflow=lambda x: channels_second(tf().nn.max_pool2d(channels_last(x), 2, 2, "VALID")),
        onnx=node("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        jax=lambda x: jx().lax.reduce_window(
            x, -np.inf, jx().lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        ),
    ),
    "avg_pool": Row(
        X,
        torch=lambda x: F.avg_pool2d(x, 2),
        tensorflow=lambda x: channels_second(tf().nn.avg_pool2d(channels_last(x), 2, 2, "VALID")),
        onnx=node("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    ),
    "conv stride pad": Row(
        (X, KERNEL),
        torch=lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        onnx=node("Conv", "x,w0", strides=[2, 2], pads=[1, 1, 1, 1]),
        jax=lambda x, w: jx().lax.conv_general_dilated(x, w, (2, 2), ((1, 1), (1, 1))),
        tensorflow=lambda x, w: convolved(x, w, 2, ((0, 0), (1, 1), (1, 1), (0, 0))),
    ),
    "conv bias": Row(
        (X, KERNEL, B4),
        torch=F.conv2d,
        onnx=node("Conv", "x,w0,w1"),
        tensorflow=lambda x, w, b: channels_second(
            tf().nn.bias_add(
                tf().nn.conv2d(channels_last(x), tf().transpose(w, (2, 3, 1, 0)), 1, "VALID"), b
            )
        ),
    ),
    "slice": alike(L, lambda xp, x: xp.tanh(x[:, 1:4])),
    "pad": alike(
        *(L, lambda xp, x: xp.pad(x, ((0, 0), (0, 0), (1, 2))), "numpy jax tensorflow"),
        torch=lambda x: F.pad(x, (1, 2)),
    ),
    "product behind a pad": alike(
        (L, RANDOM.standard_normal((15, 4)).astype(np.float32)),
        lambda xp, x, w: xp.pad(x, ((0, 0), (0, 0), (1, 2))) @ w,
        "numpy jax tensorflow",
        torch=lambda x, w: F.pad(x, (1, 2)) @ w,
    ),
    "product behind a slice": alike(
        (L, RANDOM.standard_normal((4, 4)).astype(np.float32)), lambda xp, x, w: x[..., 2:6] @ w
    ),
    "transpose product": Row(
        L,
        torch=lambda x: x @ x.transpose(1, 2),
        numpy=lambda x: x @ x.transpose(0, 2, 1),
        jax=lambda x: x @ x.transpose(0, 2, 1),
        tensorflow=lambda x: tf().matmul(x, x, transpose_b=True),
    ),
    "einsum": alike(
        (L, W12),
        lambda xp, x, w: xp.einsum("blk,kn->bln", x, w),
        onnx=node("Einsum", "x,w0", equation="blk,kn->bln"),
    ),
    "reshape product": alike(
        (L, RANDOM.standard_normal((60, 4)).astype(np.float32)),
        lambda xp, x, w: xp.reshape(x, (3, 60)) @ w,
        onnx=[("Flatten", "x", "f", {}), ("MatMul", "f,w0", "y", {})],
    ),
    "split": alike(
        *(L, lambda xp, x: xp.tanh(xp.split(x, 2, -1)[1]), "numpy jax tensorflow"),
        torch=lambda x: torch.tanh(x.chunk(2, -1)[1]),
    ),
    "stack": alike(L, lambda xp, x: xp.stack([x, xp.tanh(x)], 1)),
    "where": alike(L, lambda xp, x: xp.where(x > 0, x, xp.tanh(x))),
    "variance": Row(
        L,
        torch=lambda x: x.var(-1, unbiased=False),
        numpy=lambda x: np.var(x, -1),
        jax=lambda x: x.var(-1),
        tensorflow=lambda x: tf().nn.moments(x, -1)[1],
    ),
    "deviation of a sample": Row(
        L,
        torch=lambda x: x.std(-1),
        numpy=lambda x: np.std(x, -1, ddof=1),
        jax=lambda x: x.std(-1, ddof=1),
    ),
    "logsumexp": Row(
        L,
        torch=lambda x: x.logsumexp(-1),
        onnx=[("ReduceLogSumExp", "x,axes", "y", {"keepdims": 0})],
        constants={"axes": np.array([-1])},
    ),
    "scalar multiply": alike(
        *(L, lambda xp, x: x * 0.5, "torch jax tensorflow"),
        numpy=lambda x: x * np.float32(0.5),
        onnx=[("Mul", "x,h", "y", {})],
        constants={"h": np.array(0.5, np.float32)},
    ),
    "scalar add": alike(
        *(L, lambda xp, x: x + 0.5, "torch jax tensorflow"),
        numpy=lambda x: x + np.float32(0.5),
        onnx=[("Add", "x,h", "y", {})],
        constants={"h": np.array(0.5, np.float32)},
    ),
    "residual": alike(
        (L, W12[:, :1].repeat(12, 1).copy()),
        lambda xp, x, w: x + x @ w,
        onnx=[("MatMul", "x,w0", "m", {}), ("Add", "x,m", "y", {})],
    ),
    "gather": Row(
        L,
        torch=lambda x: x[:, torch.tensor([3, 1, 1])],
        numpy=lambda x: np.take(x, [3, 1, 1], 1),
        jax=lambda x: jx().numpy.take(x, np.array([3, 1, 1]), 1),
        tensorflow=lambda x: tf().gather(x, [3, 1, 1], axis=1),
        onnx=[("Gather", "x,i", "y", {"axis": 1})],
        constants={"i": np.array([3, 1, 1])},
    ),
    "product behind a gather": Row(
        (L, RANDOM.standard_normal((12, 4)).astype(np.float32)),
        torch=lambda x, w: x[:, torch.tensor([3, 1, 1])] @ w,
        jax=lambda x, w: jx().numpy.take(x, np.array([3, 1, 1]), 1) @ w,
        tensorflow=lambda x, w: tf().matmul(tf().gather(x, [3, 1, 1], axis=1), w),
        onnx=[("Gather", "x,i", "g", {"axis": 1}), ("MatMul", "g,w0", "y", {})],
        constants={"i": np.array([3, 1, 1])},
    ),
    "flip": alike(
        *((L, W12), lambda xp, x, w: xp.flip(x, (1,)) @ w, "torch numpy jax"),
        tensorflow=lambda x, w: tf().matmul(tf().reverse(x, [1]), w),
    ),
    "tile": alike((L, W12), lambda xp, x, w: xp.tile(x, (1, 2, 1)) @ w),
    "buckets": Row(
        L,
        torch=lambda x: torch.bucketize(x, torch.tensor(BUCKETS), out_int32=True, right=True),
        tensorflow=lambda x: tf().raw_ops.Bucketize(input=x, boundaries=BUCKETS),
    ),
    "bits that are set": Row(
        WHOLE.astype(np.uint8),
        jax=lambda x: jx().lax.population_count(x),
        tensorflow=lambda x: tf().raw_ops.PopulationCount(x=x),
    ),
    "polygamma": Row(
        P,
        torch=lambda x: torch.polygamma(1, x),
        jax=lambda x: jx().scipy.special.polygamma(1, x),
        tensorflow=lambda x: tf().math.polygamma(tf().constant(1.0), x),
    ),
    "a transform of real numbers": alike(
        *(L, lambda xp, x: xp.fft.rfft(x), "torch jax"), tensorflow=lambda x: tf().signal.rfft(x)
    ),
    "a transform of real numbers, both halves": alike(
        *(L, lambda xp, x: xp.fft.fft(x).real, "torch jax"),
        tensorflow=lambda x: tf().math.real(tf().signal.fft(tf().cast(x, tf().complex64))),
    ),
    "a transform of planes, and back": alike(
        *(X, lambda xp, x: xp.fft.irfft2(xp.fft.rfft2(x)), "torch jax"),
        tensorflow=lambda x: tf().signal.irfft2d(tf().signal.rfft2d(x)),
    ),
    "a transform of complex numbers": Row(
        L,
        torch=lambda x: torch.fft.ifft(torch.fft.fft(torch.complex(x, -x))),
        jax=lambda x: jx().numpy.fft.ifft(jx().numpy.fft.fft(jx().lax.complex(x, -x))),
        tensorflow=lambda x: tf().signal.ifft(tf().signal.fft(tf().complex(x, -x))),
    ),
    "rsqrt mul": Row(
        P,
        torch=lambda x: x * torch.rsqrt(x),
        tensorflow=lambda x: x * tf().math.rsqrt(x),
        jax=lambda x: x * jx().lax.rsqrt(x),
    ),
    "roll": alike((L, W12), lambda xp, x, w: xp.roll(x, (1, -2), (1, 2)) @ w),
    "lower triangle": alike(
        *((L, W12), lambda xp, x, w: xp.tril(x, 2) @ w, "torch numpy"),
        onnx=[("Trilu", "x,k", "t", {"upper": 0}), ("MatMul", "t,w0", "y", {})],
        constants={"k": np.array(2)},
    ),
    "reflected": Row(
        (X, KERNEL),
        torch=lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 1), mode="reflect"), w),
        onnx=[("Pad", "x,p", "m", {"mode": "reflect"}), ("Conv", "m,w0", "y", {})],
        constants={"p": np.array([0, 0, 0, 1, 0, 0, 1, 2])},
    ),
    "steps of two": alike(
        *((L, W12[::2].copy()), lambda xp, x, w: x[..., ::2] @ w, "torch numpy"),
        onnx=[("Slice", "x,a,b,c,d", "s", {}), ("MatMul", "s,w0", "y", {})],
        constants={"a": np.array([0]), "b": np.array([12]), "c": np.array([2]), "d": np.array([2])},
    ),
    "gather along": Row(
        (L, W12),
        torch=lambda x, w: x.gather(1, torch.tensor(ALONG)) @ w,
        numpy=lambda x, w: np.take_along_axis(x, ALONG, 1) @ w,
        onnx=[("GatherElements", "x,i", "g", {"axis": 1}), ("MatMul", "g,w0", "y", {})],
        constants={"i": ALONG},
    ),
    "scattered": Row(
        (L, W12),
        torch=lambda x, w: torch.tanh(x).scatter_add(1, torch.tensor(ALONG), x[:, :2]) @ w,
        onnx=[
            ("Tanh", "x", "t", {}),
            ("Slice", "x,a,b,c", "u", {}),
            ("ScatterElements", "t,i,u", "s", {"axis": 1, "reduction": "add"}),
            ("MatMul", "s,w0", "y", {}),
        ],
        constants={"i": ALONG, "a": np.array([0]), "b": np.array([2]), "c": np.array([1])},
    ),
    "depth to space": Row(
        (X[:, :4].copy(), KERNEL[:, :1].copy()),
        torch=lambda x, w: F.conv2d(F.pixel_shuffle(x, 2), w),
        onnx=[
            ("DepthToSpace", "x", "d", {"blocksize": 2, "mode": "CRD"}),
            ("Conv", "d,w0", "y", {}),
        ],
    ),
    "resize nearest": Row(
        (X, KERNEL),
        torch=lambda x, w: F.conv2d(F.interpolate(x, scale_factor=2, mode="nearest"), w),
        onnx=[
            (
                "Resize",
                "x,,s",
                "r",
                {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            ),
            ("Conv", "r,w0", "y", {}),
        ],
        constants={"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "adaptive average": Row(
        X,
        torch=lambda x: F.adaptive_avg_pool2d(x, 4),
        onnx=node("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    ),
    "product of batches": Row(
        (L, B4[:1].repeat(5)),
        torch=lambda x, b: torch.baddbmm(b, x, x.mT),
        onnx=[
            ("Transpose", "x", "t", {"perm": [0, 2, 1]}),
            ("MatMul", "x,t", "m", {}),
            ("Add", "m,w0", "y", {}),
        ],
    ),
    "embedding": Row(
        L[0],
        torch=lambda x: torch.tanh(F.embedding(torch.tensor(ALONG[0, :, 0]), x)),
        numpy=lambda x: np.tanh(np.take(x, ALONG[0, :, 0], 0)),
        onnx=[("Gather", "x,i", "g", {"axis": 0}), ("Tanh", "g", "y", {})],
        constants={"i": ALONG[0, :, 0]},
    ),
    "fake quant": Row(
        L[0, :4, :6].copy(),
        tensorflow=lambda x: tf().quantization.fake_quant_with_min_max_args(x, -1.0, 1.0, 8),
        litert=one_operator("FAKE_QUANT", options="FakeQuant", min=-1.0, max=1.0, numBits=8),
    ),
    "numbers of positions": Row(
        X,
        torch=lambda x: x * torch.arange(8.0),
        numpy=lambda x: x * np.arange(8, dtype=np.float32),
        jax=lambda x: x * jx().numpy.arange(8.0),
        tensorflow=lambda x: x * tf().range(8.0),
        onnx=[("Range", "from,to,by", "r", {}), ("Mul", "x,r", "y", {})],
        constants={"from": np.float32(0), "to": np.float32(8), "by": np.float32(1)},
    ),
    "sizes as numbers": Row(
        X[:, :, :4, :4].copy(),
        torch=lambda x: x * torch.tensor(x.shape, dtype=torch.float32),
        numpy=lambda x: x * np.array(x.shape, np.float32),
        tensorflow=lambda x: x * tf().cast(tf().shape(x), tf().float32),
        onnx=[("Shape", "x", "s", {}), ("Cast", "s", "f", {"to": 1}), ("Mul", "x,f", "y", {})],
    ),
    **{
        f"shift of unsigned integers to the {way}": Row(
            (spelled.WHOLE[0].astype(np.uint32), (spelled.WHOLE[1] % 5).astype(np.uint32)),
            numpy=lambda x, by, way=way: getattr(np, f"{way}_shift")(x, by),
            jax=lambda x, by, way=way: getattr(jx().numpy, f"{way}_shift")(x, by),
            tensorflow=lambda x, by, way=way: getattr(tf().bitwise, f"{way}_shift")(x, by),
            onnx=node("BitShift", "x,w0", direction=way.upper()),
            opencv=False,
            litert=False,
        )
        for way in ("left", "right")
    },
    "triangular solve": Row(
        (
            L[:, :, :4].copy(),
            np.tril(np.resize(GAMMA, (3, 5, 5)), -1) + np.eye(5, dtype=np.float32) * 2,
        ),
        torch=lambda x, a: torch.linalg.solve_triangular(a, x, upper=False),
        jax=lambda x, a: jx().lax.linalg.triangular_solve(a, x, left_side=True, lower=True),
    ),
}


NOT_BY = {
    "opencv": """gelu; gelu_tanh; cast; cast to int; determinant; resize linear; resize cubic;
 largest k; affine grid; grid sample; embedding of one-hots; glu; rms_norm; group_norm; prelu;
 convolution behind a pad; lower triangle; scattered; depth to space; resize nearest;
 embedding; numbers of positions; sizes as numbers""",
    "litert": """selu; softplus; cumprod; cumulative logsumexp; bits; complex; conj; determinant;
 inverse; cholesky; linear solve; local response norm; vector norm; embedding of one-hots; space to
 depth; batch_norm; bits that are set; polygamma; a transform of real numbers; a transform of
 real numbers, both halves; a transform of planes, and back; a transform of complex numbers""",
}
"""Rows that are not compared with what ONNX or TensorFlow is turned into, by library."""
for _library, _names in NOT_BY.items():
    for _name in " ".join(_names.split()).split("; "):
        setattr(ROWS[_name], _library, False)


ROWS |= {
    name: Row(spelled.operands(name), named=True, **libraries)
    for name, libraries in spelled.functions_of_libraries()
}


def cells() -> list[tuple[str, str]]:
    return [(name, library) for name, row in ROWS.items() for library in list(row.recorders())[1:]]


QUICK = ("numpy", "onnx")
"""Libraries compared in `make test`; the others take a minute and are left to `make slow`."""


def test_whatever_two_tables_build_is_compared():
    modules = {name: f"probe.recorders.{file}" for name, (file, _) in LIBRARIES.items()}
    found = built.every({name: one for name, one in modules.items() if find_spec(one)})
    counts = Counter(word for words in found.values() for word in words)
    covered = set[str]()
    for row in ROWS.values():
        first = next(iter(row.recorders().values()))
        for one in record_run(first()).operations:
            covered.update(built.key(one.meaning))
    several = {word for word, count in counts.items() if count > 1}
    missing = several - covered
    where = "; ".join(f"{word}: {[n for n in found if word in found[n]]}" for word in missing)
    assert not missing, where


def otherwise(name: str, live: Any) -> str:
    """Returns how a library computes a function that it has no operation for, in canonical words;
    empty where it has one, or where a word isn't canonical.

    Those that are left are formulas of their own: JAX chooses (``trunc``, ``fmax``, ``floor_mod``),
    TensorFlow sorts the negative numbers, a log_sigmoid is a softplus here and a logarithm there,
    LiteRT's converter takes 1 / c for a divisor, log(x + 1) for ``log1p``, a series for ``lgamma``
    and, for ``isinf``, whether a number is the largest finite one.
    """
    every = [one.meaning for one in live.operations]
    words = [one.word for one in every if isinstance(one, Each)]
    if any(isinstance(one, Unknown) for one in every) or set(words) - FUNCTIONS.keys():
        return ""
    return " ".join(words) if name not in words or len(words) > 1 else ""


@pytest.mark.parametrize(
    ("name", "library"),
    [pytest.param(*cell, marks=() if cell[1] in QUICK else pytest.mark.slow) for cell in cells()],
)
def test_equal_operands_have_equal_labels(name, library):
    made = ROWS[name].recorders()
    first = next(iter(made))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sides = told(made[first](), made[library](), NEAR)
        except InputError as error:
            if ROWS[name].named and library == "opencv" and "OpenCV refuses" in str(error):
                pytest.skip(str(error))
            raise
    share = agreed(sides)
    if ROWS[name].named and share < 1 and (words := otherwise(name, sides[1][0])):
        pytest.skip(f"{library} computes it by {words}")
    assert share == 1, [(one.op, one.meaning) for live, _, _ in sides for one in live.operations]


UNLIKE: dict[str, Row] = {
    "attention of another scale": Row(
        HEADS,
        torch=lambda x: F.scaled_dot_product_attention(x, torch.tanh(x), x * 2, scale=0.25),
        numpy=ROWS["attention"].libraries["numpy"],
    ),
    "attention with queries for keys": Row(
        HEADS,
        torch=lambda x: F.scaled_dot_product_attention(torch.tanh(x), x, x * 2),
        numpy=ROWS["attention"].libraries["numpy"],
    ),
    "softmax along another axis": Row(
        L[:, :3, :3].copy(), torch=lambda x: x.softmax(1), numpy=by_parts
    ),
    "group norm of two groups": Row(
        (X, SCALE, SHIFT), torch=lambda x, g, b: F.group_norm(x, 2, g, b, 1e-5), numpy=grouped
    ),
    "group norm of another epsilon": Row(
        (X, SCALE, SHIFT), torch=lambda x, g, b: F.group_norm(x, 3, g, b, 1e-3), numpy=grouped
    ),
    "lstm of gates in another order": Row(
        (L, *gates(4)),
        torch=ROWS["lstm"].libraries["torch"],
        onnx=recurrent("LSTM"),
        constants=as_onnx(gates(4), "ifgo", "ifgo") | ONE,
    ),
    "gru that resets before and after": Row(
        (L, *gates(3)),
        torch=ROWS["gru"].libraries["torch"],
        onnx=recurrent("GRU", linear_before_reset=0),
        constants=as_onnx(gates(3), "rzn", "zrn") | ONE,
    ),
    "rnn of another function": Row(
        (L, *gates(1)),
        torch=ROWS["rnn"].libraries["torch"],
        onnx=recurrent("RNN", activations=["Relu"]),
        constants=as_onnx(gates(1), "n", "n") | ONE,
    ),
    "resizes of other corners": Row(
        X[:, :, :5, :5].copy(),
        torch=lambda x: F.interpolate(x, (12, 12), mode="bilinear")[:, :, 1:-1, 1:-1].contiguous(),
        onnx=[
            (
                "Resize",
                "x,,,s",
                "r",
                {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            ),
            ("Slice", "r,from,to,axes", "y", {}),
        ],
        constants={
            "s": np.array([2, 6, 12, 12]),
            "from": np.array([1, 1]),
            "to": np.array([11, 11]),
            "axes": np.array([2, 3]),
        },
    ),
    "scale and shift exchanged": Row(
        (X, SCALE, SHIFT), torch=lambda x, g, b: F.group_norm(x, 3, b, g, 1e-5), numpy=grouped
    ),
    "variance of a sample": Row(L, torch=lambda x: x.var(-1), numpy=lambda x: np.var(x, -1)),
    "sum and product": Row(
        (X, P, S), torch=lambda x, p, s: x + p * s, numpy=lambda x, p, s: (x + p) * s
    ),
    "difference of differences": Row(
        (X, P, S), torch=lambda x, p, s: x - (p - s), numpy=lambda x, p, s: (x - p) - s
    ),
    "quotient of quotients": Row(
        (X, P, S), torch=lambda x, p, s: x / (p / s), numpy=lambda x, p, s: (x / p) / s
    ),
}
"""What differs, though its steps are alike."""


@pytest.mark.parametrize("name", UNLIKE)
def test_what_differs_has_different_labels(name):
    one, two = (UNLIKE[name].recorders()[library]() for library in [*UNLIKE[name].libraries])
    assert agreed(told(one, two, NEAR)) == 0
