"""Activations as a library's user writes them: NumPy where its bits are every library's.

As the backends' chains have them. A library without a chain is fed with NumPy's own.
"""

from __future__ import annotations

from collections.abc import Callable

from probe import activations
from probe.activations import ACTIVATIONS
from probe.errors import InputError
from probe.reproduction.scripts import litert, opencv, tensorflow, written
from probe.reproduction.scripts.contract import release
from probe.target import Target

EXACT = tuple(name for name, row in ACTIVATIONS.items() if row.roundings is not None)
"""Those whose bits are the same in every library, as NumPy has them."""

NORMALISATION = {
    "tensorflow": "x * scale + shift",
    "keras": "x * scale + shift",
}
"""Scales and shifts of libraries that may fuse the two."""


def lines(target: Target, version: str, name: str, alpha: float) -> tuple[str, ...]:
    """The body of a function of the NumPy array ``x``, channels last, which returns another.

    Raises InputError where there is none.
    """
    known = [one for one in ACTIVATIONS if one not in EXACT]
    if written.is_written(target) and name in known:
        spec = {"op": "activation", "activation": name, "parameters": {"alpha": alpha}}
        layer = spec | {"dtype": "float32", "channels": 1}
        return written.of_layer(target, version, layer, (1, 1, 1), {}).body
    if name not in known:
        why = f"no script has it on {target.text}"
        raise InputError("activation", name, why, f"use one of {', '.join(known)}")
    if target.name in MODELS:
        return tuple(MODELS[target.name](target, name, alpha))
    write = WRITTEN.get(target.name)
    if write is None:
        return tuple(_numpy(activations.lines(name, "numpy", alpha)))
    (text,) = activations.lines(name, target.name, alpha)
    return tuple(write(target, version, name, text))


def normalisation(target: Target, version: str) -> tuple[str, ...]:
    """The same of ``x``, ``scale`` and ``shift``, a number a channel; empty: NumPy's will do."""
    if written.is_written(target):
        layer = {"op": "normalisation", "dtype": "float32", "channels": 1, "parameters": {}}
        return written.of_layer(target, version, layer, (1, 1, 1), {}).body
    if target.name not in NORMALISATION:
        return ()
    write = WRITTEN[target.name]
    return tuple(write(target, version, "normalisation", NORMALISATION[target.name]))


def standard(target: Target, name: str) -> tuple[str, ...]:
    """Modules of Python's own that the lines use."""
    own = target.name in MODELS or target.name in WRITTEN
    return ("math",) if "math." in ACTIVATIONS[name].numpy and not own else ()


def _numpy(spelled: list[str]) -> list[str]:
    number = ["number = x.dtype.type"] if "number(" in " ".join(spelled) else []
    return [*number, *spelled[:-1], f"return np.asarray({spelled[-1]}, x.dtype)"]


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


WRITTEN: dict[str, Callable[[Target, str, str, str], list[str]]] = {
    "tensorflow": _tensorflow,
    "keras": _keras,
}
"""Libraries that are asked for their own activations by an expression: what stands around it."""

MODELS = {"litert": litert.activation, "opencv": opencv.activation}
"""Libraries that run a model of the activation."""
