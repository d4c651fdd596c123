"""Defines programs that are run whole, and functions of NumPy arrays as such.

A program takes arguments, of which some carry samples along an axis. Here these are found in nested
tuples, lists and dictionaries, turned into container arrays and back.
"""

from __future__ import annotations

import ctypes
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.invariant.classes import Piece, Plan
from probe.machine import cores

HOW = "give batched= an axis or None for each argument, as jax.vmap's in_axes: batched=(None, 0)"


@dataclass
class Leaf:
    """An input. ``axis``: along which it carries samples; None: it carries none."""

    value: Any
    axis: int | None
    name: str = ""


@dataclass(frozen=True)
class Output:
    """An output: its samples lie along ``axis``, ``each`` entries a sample."""

    axis: int
    each: int
    dtype: str

    def index(self, start: int, places: int) -> tuple[slice, ...]:
        """Returns where some samples lie."""
        rows = slice(start * self.each, (start + places) * self.each)
        return (*(slice(None),) * self.axis, rows)


Rebuild = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class Program:
    """A function of NumPy's arrays, and what other libraries do differently.

    ``batched``: an axis or None for each positional argument (one of a nested argument holds for
    all that stands in it), or a mapping by name; None: found out. ``fixed``: the only size that
    it takes. ``watched``: gives a recorder of a call with these container arrays; None where its
    operations can't be watched one by one.
    """

    library, package = "numpy", "numpy"
    watched: Callable[[Sequence[Any], Rebuild], Any] | None

    def __init__(self, function: Callable[..., Any], batched: Any = None, name: str = "") -> None:
        self.function, self.batched = function, batched
        self.name = name or getattr(function, "__qualname__", type(function).__name__)
        self.fixed: int | None = None
        self.watched = None

    def at(self, size: int) -> Callable[..., Any]:
        """Returns what runs calls of a size."""
        return self.function

    def signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What calls have in common that are run alike, if the library says so quickly; else None.

        Hashable. Equal ones have the same number of samples, and the same buckets.
        """
        return None

    def planned(
        self, plan: Plan, leaves: Sequence[Leaf], rebuild: Rebuild, outputs: Sequence[Output]
    ) -> Callable[..., Any] | None:
        """Returns what runs further calls of the signature of this one; None: nothing is quicker.

        ``plan``: the sizes that it is run at, which were checked.
        """
        return None

    def threads(self) -> int:
        """Returns the threads that it computes with."""
        return cores()

    def facts(self) -> dict[str, Any]:
        """Switches that decide which kernels the library takes."""
        return {}

    def settings(self) -> Any:
        """Returns what may change while a program runs, and decides which kernels are taken.

        Hashable; asked at each call. Each choice has checked sizes of its own.
        """
        return ()

    @property
    def version(self) -> str:
        return str(import_module(self.package).__version__)

    # inputs

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """Returns the inputs in order, and what puts others in their places."""
        axes, named = self._axes(args, kwargs)
        leaves: list[Leaf] = []
        shape = [taken(one, axis, leaves) for one, axis in zip(args, axes, strict=True)]
        words = {name: taken(one, named[name], leaves) for name, one in kwargs.items()}

        def rebuild(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            rest = iter(values)
            made = tuple(_put(one, rest) for one in shape)
            return made, {name: _put(one, rest) for name, one in words.items()}

        return leaves, rebuild

    def _axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        given = self.batched
        if isinstance(given, Mapping):
            names = _names(self.function, len(args))
            return [given.get(name) for name in names], {one: given.get(one) for one in kwargs}
        if given is None:
            return self._found(args, kwargs)
        axes = list(given) if isinstance(given, tuple | list) else [given] * len(args)
        if len(axes) != len(args):
            why = f"it has {len(axes)} entries, and the call has {len(args)} arguments"
            raise InputError("batched", given, why, HOW)
        return axes, dict.fromkeys(kwargs)

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """Returns axis 0 for a single argument; raises InputError for several."""
        if len(args) != 1 or kwargs:
            count = len(args) + len(kwargs)
            why = f"there are {count} arguments, and it is unknown which carry samples"
            raise InputError("batched", None, why, HOW)
        return [0], {}

    # arrays

    def holds(self, value: Any) -> bool:
        """Returns whether a value is an array, or becomes one."""
        return isinstance(value, np.ndarray | np.generic)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        """Returns an array's contiguous container array, and the name of its format."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        name = array.dtype.name
        return (array.view(np.uint16) if name == "bfloat16" else array), name

    def form(self, value: Any) -> tuple[tuple[int, ...], str]:
        """Returns an array's shape, and the name of its format."""
        return tuple(value.shape), value.dtype.name

    def native(self, array: np.ndarray, dtype: str) -> Any:
        """Returns a container array as the library has it."""
        return array

    def whole(self, value: Any, axis: int | None) -> Any:
        """Returns an input as it is checked: contiguous, where a vector begins."""
        return aligned(value) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """Returns the arrays of a result, and what puts others in their places."""
        leaves: list[Leaf] = []
        shape = taken(result, 0, leaves)
        return [one.value for one in leaves], lambda values: _put(shape, iter(values))

    def told(self, value: Any) -> Any:
        """What of an input without samples decides which program runs: shapes, small integers, and
        numbers without axes, such as a temperature, which may choose a branch."""
        if not self.holds(value):
            return repr(value) if isinstance(value, int | float | str | None) else _nested(value)
        shape, dtype = self.form(value)
        small = not shape or (dtype not in floats.FORMATS and math.prod(shape) <= DECIDING)
        return (shape, dtype, self.bits(value)[0].tolist() if small else None)


DECIDING = 16  # integers that may choose a branch, such as a sampling rate


def decides(array: np.ndarray) -> bool:
    """Returns whether an input without samples may choose a branch by its values."""
    return not array.shape or (array.dtype.name not in floats.FORMATS and array.size <= DECIDING)


ALIGNED = 64  # bytes: the longest vector of a processor


def room(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Returns an array without values, contiguous, that begins where a vector does."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    held = np.empty(size + ALIGNED, np.uint8)
    start = -begins(held) % ALIGNED
    return held[start : start + size].view(dtype).reshape(shape)


def begins(array: np.ndarray) -> int:
    """Returns the address of a contiguous array; NumPy's own way to it takes microseconds."""
    try:
        held: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(held))
    except (TypeError, ValueError):  # it is empty, may not be written, or has another format
        return int(array.__array_interface__["data"][0])


def aligned(array: np.ndarray) -> np.ndarray:
    """Returns the same values, contiguous, where a vector begins: a copy if they are elsewhere.

    Libraries take products whose order of additions depends on where operands begin, and a sample
    of a batch begins anywhere.
    """
    if array.flags.c_contiguous and not begins(array) % ALIGNED:
        return array
    made = room(array.shape, array.dtype)
    made[...] = array
    return made


def padded(bits: np.ndarray, axis: int, piece: Piece) -> np.ndarray:
    """Some samples, and copies of their first behind them; contiguous, where a vector begins."""
    start, places, size = piece
    before = (slice(None),) * axis
    part = bits[(*before, slice(start, start + places))]
    if places == size:
        return aligned(part)
    made = room((*bits.shape[:axis], size, *bits.shape[axis + 1 :]), bits.dtype)
    made[(*before, slice(places))] = part
    made[(*before, slice(places, None))] = part[(*before, slice(1))]
    return made


def _nested(value: Any) -> str:
    """Returns shapes and formats in nested arguments, such as weights."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_nested(one)}" for name, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_nested, value))})"
    return f"{getattr(value, 'dtype', type(value).__name__)}{getattr(value, 'shape', '')}"


class _Hole:
    """Where a leaf stood."""


def taken(value: Any, axis: Any, leaves: list[Leaf]) -> Any:
    """Returns the nesting with its leaves taken out, which are appended."""
    if axis is not None and isinstance(value, Mapping):
        inner = axis if isinstance(axis, Mapping) else dict.fromkeys(value, axis)
        return {name: taken(one, inner.get(name), leaves) for name, one in value.items()}
    if axis is not None and isinstance(value, tuple | list):
        each = axis if isinstance(axis, tuple | list) else [axis] * len(value)
        made = [taken(one, at, leaves) for one, at in zip(value, each, strict=True)]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    leaves.append(Leaf(value, axis))
    return _Hole


def _put(shape: Any, values: Iterator[Any]) -> Any:
    if shape is _Hole:
        return next(values)
    if isinstance(shape, Mapping):
        return {name: _put(one, values) for name, one in shape.items()}
    made = [_put(one, values) for one in shape]
    return type(shape)(*made) if hasattr(shape, "_fields") else type(shape)(made)


def _names(function: Callable[..., Any], count: int) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)[:count]
    except (TypeError, ValueError):
        raise InputError("batched", "by name", "the arguments have no names", HOW) from None
