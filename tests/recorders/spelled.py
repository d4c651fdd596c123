"""Functions of the elements at one place, as each library spells them, and operands for them.

Found by the names that ``semantics.elementwise`` has, so that a function which gets a row there is
compared between all libraries that have it under one of these names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from probe.semantics.elementwise import _NAMES, FUNCTIONS

RNG = np.random.default_rng(5)
X, Y = (RNG.standard_normal((2, 6, 8, 8)).astype(np.float32) for _ in range(2))
POSITIVE, INSIDE = np.abs(X) + np.float32(0.5), np.tanh(X)
WHOLE = RNG.integers(1, 99, (2, *X.shape)).astype(np.int32)

OPSET = 20
"""Of the matrix's ONNX models."""

NUMBERED = set(
    "relu6 clip clamp where select_n bits sign_bit complex cast leaky_relu prelu scaled_silu gelu "
    "gelu_tanh elu selu celu hard_swish hard_sigmoid softplus real imag conj "
    "max min argmax argmin any all det inverse cholesky top_k cumlogsumexp".split()
)
"""Functions with numbers of their own, of complex numbers, of bits or axes: rows by hand."""

TWO = {name for name, one in FUNCTIONS.items() if one.commutes} | set(
    "less less_equal greater greater_equal subtract divide divide_no_nan multiply_no_nan power "
    "squared_difference floor_divide truncate_divide floor_mod truncate_mod atan2 "
    "left_shift right_shift igamma igammac zeta nextafter".split()
)
"""Functions of two operands."""


def operands(name: str) -> tuple[np.ndarray, ...]:
    """Returns operands that a function is defined on."""
    if name in ("and", "or", "xor"):
        return X > 0, Y > 0
    if name.endswith("shift"):
        return WHOLE[0], WHOLE[1] % 5
    if name.startswith("bitwise") or name == "population_count":
        return tuple(WHOLE) if name in TWO else (WHOLE[0],)
    if name in TWO:
        near = name in ("igamma", "igammac", "zeta") or name in (
            "power",
            "floor_divide",
            "truncate_divide",
            "floor_mod",
            "truncate_mod",
        )
        return (POSITIVE, np.abs(Y) + np.float32(0.5)) if near else (X, Y)
    if name == "not":
        return (X > 0,)
    if name in ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"):
        return (POSITIVE,)
    if name == "acosh":
        return (POSITIVE + np.float32(1),)
    return (INSIDE,) if name in ("asin", "acos", "atanh", "erfinv") else (X,)


def _words(name: str) -> list[str]:
    return [word for word, of_word in _NAMES.items() if of_word == name]


def _first(name: str, *places: Any) -> Callable[..., Any] | None:
    for word in _words(name):
        for place in places:
            found = getattr(place, word, None)
            if callable(found):
                return found  # type: ignore[no-any-return]
    return None


def in_numpy(name: str) -> Callable[..., Any] | None:
    found = [getattr(np, word, None) for word in _words(name)]
    return next((one for one in found if isinstance(one, np.ufunc)), None)


def in_torch(name: str) -> Callable[..., Any] | None:
    import torch

    if name in ("isnan", "isinf", "isfinite", "softsign"):
        return None  # it computes these in steps: x != x
    if name == "equal":  # torch.equal is of whole tensors
        return torch.eq
    return _first(name, torch, torch.special, torch.nn.functional)


def in_jax(name: str) -> Callable[..., Any] | None:
    import jax

    if name == "isnan":
        return None  # x != x
    return _first(name, jax.numpy, jax.lax, jax.nn, jax.scipy.special)


def in_tensorflow(name: str) -> Callable[..., Any] | None:
    import tensorflow as tf

    return _first(name, tf.math, tf.nn, tf.bitwise, tf)


def in_onnx(name: str) -> list[tuple[str, str, str, dict[str, Any]]] | None:
    """Returns the one node that computes it."""
    import onnx

    words = ("".join(part.capitalize() for part in w.split("_")) for w in _words(name))
    short = {"subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
             "isnan": "IsNaN", "isinf": "IsInf"}  # fmt: skip
    if name in ("floor_mod", "truncate_mod"):  # its Mod of floating-point numbers truncates
        return [("Mod", "x,w0", "y", {"fmod": 1})] if name == "truncate_mod" else None
    for word in [short.get(name, ""), *words]:
        if word and onnx.defs.has(word, OPSET):
            return [(word, "x,w0" if name in TWO else "x", "y", {})]
    return None


LIBRARIES = {"torch": in_torch, "numpy": in_numpy, "jax": in_jax, "tensorflow": in_tensorflow,
             "onnx": in_onnx}  # fmt: skip


def functions_of_libraries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each function that two or more libraries have, with how they spell it."""
    for name in FUNCTIONS:
        if name in NUMBERED:
            continue
        made = {}
        for library, found in LIBRARIES.items():
            with contextlib.suppress(ImportError):
                made[library] = found(name)
        some = {library: one for library, one in made.items() if one is not None}
        if len(some) > 1:
            yield name, some
