"""Arrays that a function holds, and the same function with other numbers in them.

They stand in its closure, its defaults, the arguments of ``functools.partial`` and the globals that
it names; in lists, tuples and dictionaries there; in attributes of objects of the user's own
classes; and in functions that stand there, ``jax.jit`` and ``tf.function`` of them too. No object
of a library is looked into: a model keeps its weights. Nothing of the user's is changed, as
functions are built anew around the same code.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from probe.case import layout
from probe.record.subject import PACKAGES

# Arrays that are looked for at most, and how deep.
MOST, DEEPEST = 512, 12

# Code below these folders is a library's, whose globals are no arrays of the user's.
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class CapturedArray:
    """An array: its bits as a container array (:mod:`probe.case.floats`), the format of its
    numbers, and
    ``like``, which makes an array of the same library and memory layout from given bits."""

    bits: np.ndarray
    dtype: str
    like: Callable[[np.ndarray], Any]


def held(value: Any) -> CapturedArray | None:
    """Returns what an array holds; None: it is none, or one whose bits can't be replaced."""
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray or value.dtype.kind not in "biuf":
            return None
        return CapturedArray(value, str(value.dtype), partial(_numpy_like, value))
    packages = (kind.__module__.partition(".")[0] for kind in type(value).__mro__)
    library = next((PACKAGES[package] for package in packages if package in PACKAGES), "")
    if library == "torch":
        torch = sys.modules["torch"]
        plain = type(value) is torch.Tensor and value.layout is torch.strided
        if not plain or value.is_quantized or value.is_meta or value.dtype.is_complex:
            return None
        values = import_module("probe.record.torch_calls")
        like = partial(_torch_like, value)
        return CapturedArray(np.array(values.array(value)), values.dtype(value.dtype), like)
    if library == "tensorflow" and type(value).__name__ == "EagerTensor":
        values = import_module("probe.record.tensorflow_values")
        if value.dtype.is_integer or value.dtype.is_floating or value.dtype.is_bool:
            like = partial(_tensorflow_like, value)
            return CapturedArray(np.array(values.array(value)), value.dtype.name, like)
    if library == "jax":
        jax, programs = sys.modules["jax"], import_module("probe.record.jax_programs")
        if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
            return None
        if programs.is_key(value.dtype) or value.dtype.kind == "c":
            return None
        bits = np.array(programs.bits_in(value))
        return CapturedArray(bits, str(value.dtype), partial(_jax_like, value))
    return None


def _numpy_like(value: np.ndarray, bits: np.ndarray) -> np.ndarray:
    if value.flags.c_contiguous:
        return layout.copied(np.asarray(bits), layout.bytes_behind_boundary(value))
    other = np.empty_like(value)
    other[...] = bits
    return other


def _torch_like(value: Any, bits: np.ndarray) -> Any:
    values = import_module("probe.record.torch_calls")
    tensor = values.lay_like(bits, values.slot_of(value))
    return tensor.requires_grad_() if value.requires_grad else tensor


def _tensorflow_like(value: Any, bits: np.ndarray) -> Any:
    return import_module("probe.record.tensorflow_values").tensor_of(bits, value.dtype)


def _jax_like(value: Any, bits: np.ndarray) -> Any:
    plain = np.ascontiguousarray(bits).reshape(bits.shape).view(value.dtype)
    return sys.modules["jax"].device_put(plain, value.sharding)


class Captured:
    """The arrays that a function, or anything else, holds. ``arrays``: by where they stand."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.arrays = dict[str, CapturedArray]()
        self._names = dict[int, str]()
        for name, part in _leaves(value, "", set()):
            if len(self.arrays) < MOST and (array := held(part)) is not None and array.bits.size:
                name = name if name not in self.arrays else f"{name}#{len(self.arrays)}"
                self.arrays[name] = array
                self._names[id(part)] = name

    def replaced(self, bits: dict[str, np.ndarray]) -> Any:
        """Returns a copy of the value in which the named arrays hold the given bits."""
        memo = dict[int, Any]()
        for number, name in self._names.items():
            if name in bits:
                memo[number] = self.arrays[name].like(bits[name])
        return _rebuilt(self.value, memo)


def _leaves(value: Any, name: str, met: set[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields what stands in a value and holds nothing else that is looked into, each once."""
    if id(value) in met or depth > DEEPEST:
        return
    met.add(id(value))
    children = _children(value)
    if children is None:
        yield name, value
        return
    for key, child in children:
        inner = key if not name or isinstance(value, FunctionType) else f"{name}[{key}]"
        yield from _leaves(child, inner, met, depth + 1)


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """Returns what a value holds, by name; None: it is not looked into."""
    if isinstance(value, FunctionType):
        return [
            *_cells(value),
            *((name, value.__globals__[name]) for name in _globals(value)),
            *((f"default {n}", each) for n, each in enumerate(value.__defaults__ or ())),
            *(value.__kwdefaults__ or {}).items(),
        ]
    if isinstance(value, partial):
        return [("", value.func), *_numbered(value.args), *value.keywords.items()]
    if isinstance(value, MethodType):
        return [("", value.__func__), ("", value.__self__)]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    if (compiled := _compiled(value)) is not None:
        return [("", compiled[0])]
    if _is_users(value):
        return [*vars(value).items()]
    if isinstance(value, list | tuple):
        return _numbered(value)
    return None


def _compiled(value: Any) -> tuple[Any, Callable[[Any], Any]] | None:
    """Returns the function that a library compiles when it is called, and what compiles another as
    this one is; None of all else."""
    kind = type(value)
    if kind.__name__ == "PjitFunction":  # with the options that it has by itself
        return value.__wrapped__, sys.modules["jax"].jit
    if kind.__module__.startswith("tensorflow.") and hasattr(value, "python_function"):
        return value.python_function, value._clone
    return None


def _is_users(value: Any) -> bool:
    """Whether it is an object of a user's own class, which has nothing of a library."""
    kinds = [kind for kind in type(value).__mro__ if kind is not object]
    modules = [sys.modules.get(kind.__module__) for kind in kinds]
    files = [getattr(module, "__file__", None) or "" for module in modules]
    names = {kind.__module__ for kind in kinds}
    installed = any(file.startswith(INSTALLED) for file in files)
    return hasattr(value, "__dict__") and not (installed or names & sys.stdlib_module_names)


def _numbered(values: Any) -> list[tuple[str, Any]]:
    return [(str(n), each) for n, each in enumerate(values)]


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is filled later
            continue


def _globals(function: FunctionType) -> list[str]:
    """Returns the globals that a function names, of those that it has; of a library's none."""
    if function.__code__.co_filename.startswith(INSTALLED):
        return []
    return [
        name for name in dict.fromkeys(_named(function.__code__)) if name in function.__globals__
    ]


def _named(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # functions inside it
            yield from _named(constant)


def _rebuilt(value: Any, memo: dict[int, Any]) -> Any:
    """Returns a value with some parts replaced, by their ids; itself where it holds none of them.

    ``memo``: grows by what is built, so that what stands in two places stays one."""
    if id(value) in memo:
        return memo[id(value)]
    if _children(value) is None or not any(
        id(part) in memo for _, part in _leaves(value, "", set())
    ):
        return value
    if isinstance(value, FunctionType):
        return _function(value, memo)
    if isinstance(value, partial):
        arguments = [_rebuilt(each, memo) for each in value.args]
        keywords = {name: _rebuilt(each, memo) for name, each in value.keywords.items()}
        other: Any = partial(_rebuilt(value.func, memo), *arguments, **keywords)
    elif isinstance(value, MethodType):
        other = MethodType(_rebuilt(value.__func__, memo), _rebuilt(value.__self__, memo))
    elif isinstance(value, dict):
        other = copy(value)
        other |= {name: _rebuilt(each, memo) for name, each in value.items()}
    elif (compiled := _compiled(value)) is not None:
        other = compiled[1](_rebuilt(compiled[0], memo))
    elif _is_users(value):
        other = memo[id(value)] = object.__new__(type(value))  # first, as it may hold itself
        other.__dict__.update((name, _rebuilt(each, memo)) for name, each in vars(value).items())
    else:
        several = [_rebuilt(each, memo) for each in value]
        if type(value) in (list, tuple):
            other = type(value)(several)
        else:  # a named tuple
            other = type(value)._make(several) if hasattr(value, "_make") else value
    memo[id(value)] = other
    return other


def _function(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    cells = [CellType() for _ in function.__closure__ or ()]
    others = dict(function.__globals__)
    other = FunctionType(
        function.__code__, others, function.__name__, function.__defaults__, tuple(cells)
    )
    memo[id(function)] = other  # first, as it may call itself
    for name in _globals(function):
        others[name] = _rebuilt(others[name], memo)
    for cell, before in zip(cells, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _rebuilt(before.cell_contents, memo)
        except ValueError:
            continue
    if function.__defaults__ is not None:
        other.__defaults__ = tuple(_rebuilt(each, memo) for each in function.__defaults__)
    if function.__kwdefaults__ is not None:
        keywords = function.__kwdefaults__.items()
        other.__kwdefaults__ = {name: _rebuilt(each, memo) for name, each in keywords}
    other.__dict__.update(function.__dict__)
    other.__qualname__, other.__module__ = function.__qualname__, function.__module__
    return other
