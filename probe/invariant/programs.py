"""Functions as programs that are run whole: of JAX, TensorFlow, compiled PyTorch, and NumPy.

A program takes arguments, of which some carry samples along an axis. Here these are found in nested
tuples, lists and dictionaries, turned into container arrays and back, and the library's own way of
running one size is said. Libraries are imported where they are used.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.machine import cores

HOW = "give batched= an axis or None for each argument, as jax.vmap's in_axes: batched=(None, 0)"


@dataclass
class Leaf:
    """An input. ``axis``: along which it carries samples; None: it carries none."""

    value: Any
    axis: int | None
    name: str = ""


Rebuild = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class Program:
    """A function of NumPy's arrays, and what other libraries do otherwise.

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
        """What runs calls of a size."""
        return self.function

    def threads(self) -> int:
        """The threads that it computes with."""
        return cores()

    def facts(self) -> dict[str, Any]:
        """Switches that decide which kernels the library takes."""
        return {}

    @property
    def version(self) -> str:
        return str(import_module(self.package).__version__)

    # inputs

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """The inputs in order, and what puts others in their places."""
        axes, named = self._axes(args, kwargs)
        leaves: list[Leaf] = []
        shape = [_taken(one, axis, leaves) for one, axis in zip(args, axes, strict=True)]
        words = {name: _taken(one, named[name], leaves) for name, one in kwargs.items()}

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
            why = f"it speaks of {len(axes)} arguments, {len(args)} are given"
            raise InputError("batched", given, why, HOW)
        return axes, dict.fromkeys(kwargs)

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """Of one argument it is axis 0; of several nobody knows."""
        if len(args) != 1 or kwargs:
            count = len(args) + len(kwargs)
            why = f"it has {count} arguments, and which of them carry samples is not said"
            raise InputError("batched", None, why, HOW)
        return [0], {}

    # arrays

    def holds(self, value: Any) -> bool:
        """Whether a value is an array, or becomes one."""
        return isinstance(value, np.ndarray | np.generic)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        """An array's contiguous container array, and the name of its format."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        name = array.dtype.name
        return (array.view(np.uint16) if name == "bfloat16" else array), name

    def form(self, value: Any) -> tuple[tuple[int, ...], str]:
        """An array's shape, and the name of its format."""
        return tuple(value.shape), value.dtype.name

    def native(self, array: np.ndarray, dtype: str) -> Any:
        """A container array as the library has it."""
        return array

    def whole(self, value: Any, axis: int | None) -> Any:
        """An input as it is checked: contiguous."""
        return value if axis is None else np.ascontiguousarray(value)

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """The arrays of a result, and what puts others in their places."""
        leaves: list[Leaf] = []
        shape = _taken(result, 0, leaves)
        return [one.value for one in leaves], lambda values: _put(shape, iter(values))

    def told(self, value: Any) -> Any:
        """What of an input without samples decides which program runs: shapes, small integers."""
        if not self.holds(value):
            return repr(value) if isinstance(value, int | float | str | None) else _nested(value)
        array, dtype = self.bits(value)
        small = dtype not in floats.FORMATS and array.size <= DECIDING
        return (array.shape, dtype, array.tolist() if small else None)


DECIDING = 16  # integers that may choose a branch, such as a sampling rate


def _nested(value: Any) -> str:
    """Shapes and formats in nested arguments, such as weights."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_nested(one)}" for name, one in value.items()) + "}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_nested, value))})"
    return f"{getattr(value, 'dtype', type(value).__name__)}{getattr(value, 'shape', '')}"


class _Hole:
    """Where a leaf stood."""


def _taken(value: Any, axis: Any, leaves: list[Leaf]) -> Any:
    """The nesting with its leaves taken out, which are appended."""
    if axis is not None and isinstance(value, Mapping):
        inner = axis if isinstance(axis, Mapping) else dict.fromkeys(value, axis)
        return {name: _taken(one, inner.get(name), leaves) for name, one in value.items()}
    if axis is not None and isinstance(value, tuple | list):
        each = axis if isinstance(axis, tuple | list) else [axis] * len(value)
        made = [_taken(one, at, leaves) for one, at in zip(value, each, strict=True)]
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


class Jax(Program):
    """A function of JAX under ``jax.jit``, unless it is compiled already."""

    library, package = "jax", "jax"

    def __init__(self, function: Callable[..., Any], batched: Any = None, name: str = "") -> None:
        import jax

        super().__init__(function, batched, name)
        self.compiled = function if hasattr(function, "lower") else jax.jit(function)

    def at(self, size: int) -> Callable[..., Any]:
        """As of ``Program``: JAX keeps a compiled program for each shape."""
        return self.compiled

    def facts(self) -> dict[str, Any]:
        """As of ``Program``."""
        import jax

        found = {"platform": jax.default_backend(), "x64": bool(jax.config.jax_enable_x64)}
        return found | {"precision": str(jax.config.jax_default_matmul_precision)}

    def holds(self, value: Any) -> bool:
        """As of ``Program``."""
        import jax

        return isinstance(value, np.ndarray | np.generic | jax.Array)

    def native(self, array: np.ndarray, dtype: str) -> Any:
        """As of ``Program``."""
        import jax.numpy as jnp

        return jnp.asarray(array.view(jnp.bfloat16) if dtype == "bfloat16" else array)

    def whole(self, value: Any, axis: int | None) -> Any:
        """As of ``Program``; JAX's arrays are."""
        return super().whole(value, axis) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """As of ``Program``."""
        import jax

        leaves, shape = jax.tree.flatten(result)
        return leaves, lambda values: jax.tree.unflatten(shape, values)

    def told(self, value: Any) -> Any:
        """As of ``Program``; of weights in any container of JAX."""
        import jax

        if self.holds(value):
            return super().told(value)
        leaves, shape = jax.tree.flatten(value)
        return str(shape), tuple((np.shape(one), str(getattr(one, "dtype", one))) for one in leaves)


class _Data(Program):
    """Functions whose arguments are data: all arrays of one leading size carry samples."""

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        leaves: list[Leaf] = []
        _taken([list(args), kwargs], 0, leaves)
        sizes = [one.value.shape[0] for one in leaves if self.holds(one.value) and one.value.shape]
        first = sizes[0] if sizes else None

        def of(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: of(one) for name, one in value.items()}
            if isinstance(value, tuple | list):
                return [of(one) for one in value]
            there = self.holds(value) and len(value.shape) and value.shape[0] == first
            return 0 if there else None

        return [of(one) for one in args], {name: of(one) for name, one in kwargs.items()}


class TensorFlow(_Data):
    """A ``tf.function``, or a signature of a SavedModel."""

    library, package = "tensorflow", "tensorflow"

    def __init__(self, function: Callable[..., Any], batched: Any = None, name: str = "") -> None:
        super().__init__(function, batched, name)
        self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        """Watches the graph as it runs: what XLA compiles is one operation of it."""
        from probe.recording.subject import of_function

        given = [
            self.native(one, "bfloat16" if one.dtype == np.uint16 else one.dtype.name)
            if isinstance(one, np.ndarray)
            else one
            for one in values
        ]
        args, kwargs = rebuild(given)
        return of_function(lambda: self.function(*args, **kwargs))

    def threads(self) -> int:
        """As of ``Program``."""
        import tensorflow as tf

        return int(tf.config.threading.get_intra_op_parallelism_threads()) or cores()

    def facts(self) -> dict[str, Any]:
        """As of ``Program``."""
        import tensorflow as tf

        between = int(tf.config.threading.get_inter_op_parallelism_threads())
        return {"inter_op_threads": between, "jit": str(tf.config.optimizer.get_jit())}

    def holds(self, value: Any) -> bool:
        """As of ``Program``."""
        import tensorflow as tf

        return isinstance(value, np.ndarray | np.generic | tf.Tensor | tf.Variable)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        """As of ``Program``."""
        return super().bits(value.numpy() if hasattr(value, "numpy") else value)

    def native(self, array: np.ndarray, dtype: str) -> Any:
        """As of ``Program``."""
        import tensorflow as tf

        kind = tf.bfloat16.as_numpy_dtype
        return tf.constant(array.view(kind) if dtype == "bfloat16" else array)

    def whole(self, value: Any, axis: int | None) -> Any:
        """As of ``Program``; a plain array would be a part of the graph, a new one each time."""
        return self.native(*self.bits(value)) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """As of ``Program``."""
        import tensorflow as tf

        leaves = tf.nest.flatten(result)
        return leaves, lambda values: tf.nest.pack_sequence_as(result, list(values))


class Torch(_Data):
    """A module or function that ``torch.compile`` compiled, compiled anew for each bucket.

    PyTorch keeps compiled programs with a function's code, and may take one of variable sizes for
    a size that had one of its own. So each bucket has code of its own, which meets that size alone.
    """

    library, package = "torch compiled", "torch"

    def __init__(self, function: Any, batched: Any = None, name: str = "") -> None:
        inner = getattr(function, "_orig_mod", None)
        self.module = inner
        self.context = getattr(function, "dynamo_ctx", None)
        plain = inner if inner is not None else function._torchdynamo_orig_callable
        named = type(plain).__name__ if inner is not None else plain.__qualname__
        super().__init__(plain, batched, name or named)
        self.sizes: dict[tuple[int, int], Callable[..., Any]] = {}

    def at(self, size: int) -> Callable[..., Any]:
        """As of ``Program``."""
        import torch

        key = size, torch.get_num_threads()
        if key not in self.sizes:
            self.sizes[key] = self._compiled(*key)
        return self.sizes[key]

    def _compiled(self, size: int, threads: int) -> Callable[..., Any]:
        import torch

        plain = self.function

        def bucket(*args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs)

        named = f"bucket_{size}_{threads}_{id(self)}"
        bucket.__code__ = bucket.__code__.replace(co_name=named, co_firstlineno=size)
        context = self.context
        made = torch.compile(bucket, dynamic=False) if context is None else context(bucket)

        def run(*args: Any, **kwargs: Any) -> Any:
            alone = {"automatic_dynamic_shapes": False, "assume_static_by_default": True}
            with torch.no_grad(), torch._dynamo.config.patch(alone):  # type: ignore[attr-defined]
                return made(*args, **kwargs)

        return run

    def threads(self) -> int:
        """As of ``Program``."""
        import torch

        return int(torch.get_num_threads())

    def facts(self) -> dict[str, Any]:
        """As of ``Program``."""
        import torch

        return {
            "capability": torch.backends.cpu.get_cpu_capability(),
            "mkldnn": bool(torch.backends.mkldnn.enabled),
            "precision": torch.get_float32_matmul_precision(),
        }

    def holds(self, value: Any) -> bool:
        """As of ``Program``."""
        import torch

        return isinstance(value, torch.Tensor)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        """As of ``Program``."""
        import torch

        value = value.detach().contiguous()
        if value.dtype is torch.bfloat16:
            return value.view(torch.int16).numpy().view(np.uint16), "bfloat16"
        return super().bits(value.numpy())

    def native(self, array: np.ndarray, dtype: str) -> Any:
        """As of ``Program``."""
        import torch

        if dtype == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def form(self, value: Any) -> tuple[tuple[int, ...], str]:
        """As of ``Program``."""
        return tuple(value.shape), str(value.dtype).removeprefix("torch.")

    def whole(self, value: Any, axis: int | None) -> Any:
        """As of ``Program``: with the strides that the checked ones have."""
        return value if axis is None else self.native(*self.bits(value))

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """As of ``Program``."""
        from torch.utils import _pytree as tree

        leaves, shape = tree.tree_flatten(result)
        return leaves, lambda values: tree.tree_unflatten(list(values), shape)


def of_function(model: Any, batched: Any) -> Program | None:
    """The program of a function; None where it is none that is run whole.

    Functions of plain Python are JAX's or NumPy's: see ``settled``.
    """
    kind = type(model)
    module = kind.__module__
    routine = inspect.isroutine(model)
    if kind.__name__ == "OptimizedModule" or (
        routine and hasattr(model, "_torchdynamo_orig_callable")
    ):
        return Torch(model, batched)
    if module.startswith("tensorflow.") and hasattr(model, "function_spec"):
        return TensorFlow(model, batched, str(getattr(model, "name", "") or "function"))
    if module.partition(".")[0] in ("jax", "jaxlib") and hasattr(model, "lower"):
        return Jax(model, batched)
    plain = routine or module == "functools"
    return _Undecided(model, batched) if plain else None


class _Undecided(Program):
    """A function of plain Python: its first answer says whose it is."""

    library = ""


def settled(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    """The program with its library, found by one call. InputError: it is no library's."""
    if program.library:
        return program
    values: list[Any] = []
    of_jax = _of_jax((args, kwargs))
    if not of_jax:
        answer: list[Leaf] = []
        _taken(program.function(*args, **kwargs), 0, answer)
        values = [one.value for one in answer]
        of_jax = _of_jax(values)
    if of_jax:
        return Jax(program.function, program.batched, program.name)
    if values and all(isinstance(one, np.ndarray | np.generic) for one in values):
        return Program(program.function, program.batched, program.name)
    found = ", ".join(sorted({type(one).__name__ for one in values})) or "nothing"
    todo = "give a function of JAX's or NumPy's arrays, a tf.function, or a torch.nn.Module"
    raise InputError("model", program.name, f"it returns {found}", todo)


def _of_jax(nested: Any) -> bool:
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    return any(isinstance(one, jax.Array) for one in jax.tree.leaves(nested))
