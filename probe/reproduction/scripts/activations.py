"""Activations as a library's user writes them: NumPy where its bits are every library's.

As the backends' chains have them. A library without a chain is fed with NumPy's own.
"""

from __future__ import annotations

from collections.abc import Callable

from probe.backends import elementwise
from probe.errors import InputError
from probe.reproduction.scripts import litert, opencv, tensorflow, written
from probe.reproduction.scripts.contract import release
from probe.target import Target

EXACT = {
    "relu": "np.maximum(x, 0)",
    "relu6": "np.minimum(np.maximum(x, 0), 6)",
    "leaky_relu": "np.where(x > 0, x, x * x.dtype.type({alpha}))",
    "hard_sigmoid": "np.minimum(np.maximum(x + 3, 0), 6) / 6",
}
"""Those whose bits are the same in every library, as NumPy has them."""

SCALE, SLOPE = elementwise.SELU
NUMPY = {
    "sigmoid": "1 / (1 + np.exp(-x))",
    "tanh": "np.tanh(x)",
    "softmax": "raised / raised.sum(axis=-1, keepdims=True)",
    "elu": "np.where(x > 0, x, number({alpha}) * np.expm1(x))",
    "selu": "np.where(x > 0, scale * x, scale * (slope * np.expm1(x)))",
    "softplus": "np.logaddexp(x, number(0))",
    "softsign": "x / (1 + np.abs(x))",
    "gelu": "wide * 0.5 * (1 + erf(wide / math.sqrt(2)))",
    "silu": "x * (1 / (1 + np.exp(-x)))",
    "exp": "np.exp(x)",
}
"""The others in NumPy, as ``probe.backends.elementwise``."""
BEFORE = {
    "softmax": ("raised = np.exp(x - x.max(axis=-1, keepdims=True))",),
    "selu": (f"scale, slope = number({SCALE}), number({SLOPE})",),
    "gelu": (
        "wide = x.astype(np.float64)",
        "erf = np.vectorize(math.erf, otypes=[np.float64])",
    ),
}
"""Lines before these."""

TENSORFLOW = {name: f"tf.nn.{name}(x)" for name in NUMPY} | {"exp": "tf.exp(x)"}
KERAS = {name: f"keras.activations.{name}(x)" for name in NUMPY} | {
    "elu": "keras.activations.elu(x, alpha={alpha})",
    "exp": "keras.ops.exp(x)",
}

MODELS = {name: name + " {alpha}" for name in NUMPY}
"""Of libraries that run a model of the activation: its name and parameter."""


NORMALISATION = {
    "tensorflow": "x * scale + shift",
    "keras": "x * scale + shift",
}
"""Scales and shifts of libraries that may fuse the two."""


def lines(target: Target, version: str, name: str, alpha: float) -> tuple[str, ...]:
    """The body of a function of the NumPy array ``x``, channels last, which returns another.

    Raises InputError where there is none.
    """
    if written.is_written(target) and name in NUMPY:
        spec = {"op": "activation", "activation": name, "parameters": {"alpha": alpha}}
        layer = spec | {"dtype": "float32", "channels": 1}
        return written.of_layer(target, version, layer, (1, 1, 1), {}).body
    texts, write = WRITTEN.get(target.name, (NUMPY, _numpy))
    if name not in texts:
        why = f"no script has it on {target.text}"
        raise InputError("activation", name, why, f"use one of {', '.join(texts)}")
    text = texts[name].format(alpha=alpha)
    if target.name == "tensorflow" and name == "elu" and alpha != 1.0:
        text = f"tf.where(x > 0, x, {alpha} * tf.math.expm1(x))"
    return tuple(write(target, version, name, text))


def normalisation(target: Target, version: str) -> tuple[str, ...]:
    """The same of ``x``, ``scale`` and ``shift``, a number a channel; empty: NumPy's will do."""
    if written.is_written(target):
        layer = {"op": "normalisation", "dtype": "float32", "channels": 1, "parameters": {}}
        return written.of_layer(target, version, layer, (1, 1, 1), {}).body
    if target.name not in NORMALISATION:
        return ()
    write = WRITTEN[target.name][1]
    return tuple(write(target, version, "normalisation", NORMALISATION[target.name]))


def standard(target: Target, name: str) -> tuple[str, ...]:
    """Modules of Python's own that the lines use."""
    return ("math",) if name == "gelu" and target.name not in WRITTEN else ()


def _numpy(target: Target, version: str, name: str, text: str) -> list[str]:
    before = list(BEFORE.get(name, ()))
    if "number(" in " ".join([*before, text]):
        before.insert(0, "number = x.dtype.type")
    return [*before, f"return np.asarray({text}, x.dtype)"]


def _tensorflow(target: Target, version: str, name: str, text: str) -> list[str]:
    switches = dict(target.switches)
    if release(version) < (2, 0) and switches.get("mode") != "eager":
        return [
            'with tf.Graph().as_default(), tf.device("/cpu:0"):',
            "    given, x = x, tf.placeholder(x.dtype, x.shape)",
            f"    y = {text}",
            "    with tf.Session(config=config()) as session:",
            "        return session.run(y, {x: given})",
        ]
    if not tensorflow.traced(switches):
        return ["x = tf.constant(x)", f"y = {text}", "return y.numpy()"]
    word = "jit_compile" if release(version) >= (2, 5) else "experimental_compile"
    options = f"({word}=True)" if switches.get("xla") == "1" else ""
    found = ["", f"@tf.function{options}", "def traced(x):", f"    return {text}", ""]
    return [*found, "return traced(tf.constant(x)).numpy()"]


def _keras(target: Target, version: str, name: str, text: str) -> list[str]:
    found = ["x = keras.ops.convert_to_tensor(x)", f"y = {text}"]
    return [*found, "return keras.ops.convert_to_numpy(y)"]


def _litert(target: Target, version: str, name: str, text: str) -> list[str]:
    return litert.activation(target, *_parameters(text))


def _opencv(target: Target, version: str, name: str, text: str) -> list[str]:
    return opencv.activation(target, *_parameters(text))


def _parameters(text: str) -> tuple[str, float]:
    name, alpha = text.split()
    return name, float(alpha)


WRITTEN: dict[str, tuple[dict[str, str], Callable[[Target, str, str, str], list[str]]]] = {
    "tensorflow": (TENSORFLOW, _tensorflow),
    "keras": (KERAS, _keras),
    "litert": (MODELS, _litert),
    "opencv": (MODELS, _opencv),
}
"""Libraries whose backends have chains: their own activations, and what stands around them."""
