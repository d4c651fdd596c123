"""Activations as a library's user writes them: NumPy where its bits are every library's.

As the backends' chains have them. A library without a chain is fed with NumPy's own.
"""

from __future__ import annotations

from typing import Any

from probe.activations import ACTIVATIONS
from probe.errors import InputError
from probe.reproduction.scripts import litert, opencv, written
from probe.reproduction.scripts.contract import Library
from probe.target import Target

EXACT = tuple(name for name, row in ACTIVATIONS.items() if row.roundings is not None)
"""Those whose bits are the same in every library, as NumPy has them."""

MODELS = {"litert": litert.activation, "opencv": opencv.activation}
"""Libraries that run a model of the activation."""


def lines(
    target: Target, version: str, name: str, alpha: float, dtype: str = "float32"
) -> tuple[str, ...]:
    """The body of a function of the NumPy array ``x``, channels last, which returns another.

    Raises InputError where there is none.
    """
    known = [one for one in ACTIVATIONS if one not in EXACT]
    if name not in known:
        why = f"no script has it on {target.text}"
        raise InputError("activation", name, why, f"use one of {', '.join(known)}")
    if target.name in MODELS:
        return tuple(MODELS[target.name](target, name, alpha))
    words = {"op": "activation", "activation": name, "parameters": {"alpha": alpha}}
    return _library(target, version, words, dtype).body


def normalisation(target: Target, version: str, dtype: str = "float32") -> tuple[str, ...]:
    """The same of ``x``, ``scale`` and ``shift``, a number a channel; empty: NumPy's will do."""
    if not written.is_written(target):
        return ()
    return _library(target, version, {"op": "normalisation", "parameters": {}}, dtype).body


def standard(target: Target, name: str) -> tuple[str, ...]:
    """Modules of Python's own that the lines use."""
    own = target.name in MODELS or (written.is_written(target) and target.name != "numpy")
    return ("math",) if "math." in ACTIVATIONS[name].numpy and not own else ()


def _library(target: Target, version: str, words: dict[str, Any], dtype: str) -> Library:
    """The lines of a library, NumPy's where it emits none."""
    layer = words | {"dtype": dtype, "channels": 1}
    where = target if written.is_written(target) else Target("numpy")
    return written.of_layer(where, version, layer, (1, 1, 1), {})
