"""Defines programs that are run whole, and functions of NumPy arrays as such.

A program takes arguments, of which some carry samples along an axis. Here these are found in nested
tuples, lists and dictionaries, turned into container arrays and back.
"""

from __future__ import annotations

import ctypes
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.invariant.classes import Plan, SizedCall
from probe.machine import cores

HOW = "give batched= an axis or None for each argument, as jax.vmap's in_axes: batched=(None, 0)"


@dataclass
class Leaf:
    """An input. ``axis``: along which it carries samples; None: it carries none."""

    value: Any
    axis: int | None
    name: str = ""


@dataclass(frozen=True)
class ProgramOutput:
    """An output: its samples lie along ``axis``, ``each`` entries a sample."""

    axis: int
    each: int
    dtype: str

    def index(self, start: int, places: int) -> tuple[slice, ...]:
        """Returns where some samples lie."""
        rows = slice(start * self.each, (start + places) * self.each)
        return (*(slice(None),) * self.axis, rows)


Rebuild = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


class LibraryProgram:
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
        self, plan: Plan, leaves: Sequence[Leaf], rebuild: Rebuild, outputs: Sequence[ProgramOutput]
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
        shape = [take_leaves(one, axis, leaves) for one, axis in zip(args, axes, strict=True)]
        words = {name: take_leaves(one, named[name], leaves) for name, one in kwargs.items()}

        def rebuild(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            rest = iter(values)
            made = tuple(_put_leaves(one, rest) for one in shape)
            return made, {name: _put_leaves(one, rest) for name, one in words.items()}

        return leaves, rebuild

    def _axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        given = self.batched
        if isinstance(given, Mapping):
            try:
                names = list(inspect.signature(self.function).parameters)[: len(args)]
            except (TypeError, ValueError):
                why = "the arguments have no names"
                raise InputError("batched", "by name", why, HOW) from None
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
        return aligned_array(value) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """Returns the arrays of a result, and what puts others in their places."""
        leaves: list[Leaf] = []
        shape = take_leaves(result, 0, leaves)
        return [one.value for one in leaves], lambda values: _put_leaves(shape, iter(values))

    def told(self, value: Any) -> Any:
        """What of an input without samples decides which program runs: shapes, small integers, and
        numbers without axes, such as a temperature, which may choose a branch."""
        if not self.holds(value):
            return (
                repr(value)
                if isinstance(value, int | float | str | None)
                else _shapes_within(value)
            )
        shape, dtype = self.form(value)
        return (shape, dtype, self.bits(value)[0].tolist() if decides(shape, dtype) else None)


DECIDING = 16  # integers that may choose a branch, such as a sampling rate


def decides(shape: Sequence[int], dtype: str) -> bool:
    """Returns whether an input without samples may choose a branch by its values."""
    return not shape or (dtype not in floats.FORMATS and math.prod(shape) <= DECIDING)


ALIGNED = 64  # bytes: the longest vector of a processor


def aligned_room(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Returns an array without values, contiguous, that begins where a vector does."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    held = np.empty(size + ALIGNED, np.uint8)
    start = -address_of(held) % ALIGNED
    return held[start : start + size].view(dtype).reshape(shape)


def address_of(array: np.ndarray) -> int:
    """Returns the address of a contiguous array; NumPy's own way to it takes microseconds."""
    try:
        held: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(held))
    except (TypeError, ValueError):  # it is empty, may not be written, or has another format
        return int(array.__array_interface__["data"][0])


def aligned_array(array: np.ndarray) -> np.ndarray:
    """Returns the same values, contiguous, where a vector begins: a copy if they are elsewhere.

    Libraries take products whose order of additions depends on where operands begin, and a sample
    of a batch begins anywhere.
    """
    if array.flags.c_contiguous and not address_of(array) % ALIGNED:
        return array
    made = aligned_room(array.shape, array.dtype)
    made[...] = array
    return made


def padded_piece(bits: np.ndarray, axis: int, piece: SizedCall) -> np.ndarray:
    """Some samples, and copies of their first behind them; contiguous, where a vector begins."""
    start, places, size = piece
    before = (slice(None),) * axis
    part = bits[(*before, slice(start, start + places))]
    if places == size:
        return aligned_array(part)
    made = aligned_room((*bits.shape[:axis], size, *bits.shape[axis + 1 :]), bits.dtype)
    made[(*before, slice(places))] = part
    made[(*before, slice(places, None))] = part[(*before, slice(1))]
    return made


def together(
    found: Sequence[tuple[Sequence[Any], int]],
    outputs: Sequence[ProgramOutput],
    join: Callable[[list[Any], int], Any] = lambda rows, axis: np.ascontiguousarray(
        rows[0] if len(rows) == 1 else np.concatenate(rows, axis)
    ),
) -> list[Any]:
    """Returns the answers of all pieces as one, without those of the copies; contiguous.

    ``found``: of each piece its outputs, and how many places it has.
    """
    return [
        join([answer[number][one.index(0, places)] for answer, places in found], one.axis)
        for number, one in enumerate(outputs)
    ]


def _shapes_within(value: Any) -> str:
    """Returns shapes and formats in nested arguments, such as weights."""
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{name}: {_shapes_within(one)}" for name, one in value.items()) + "}"
        )
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shapes_within, value))})"
    return f"{getattr(value, 'dtype', type(value).__name__)}{getattr(value, 'shape', '')}"


class _LeafHole:
    """Where a leaf stood."""


def take_leaves(value: Any, axis: Any, leaves: list[Leaf]) -> Any:
    """Returns the nesting with its leaves taken out, which are appended."""
    if axis is not None and isinstance(value, Mapping):
        inner = axis if isinstance(axis, Mapping) else dict.fromkeys(value, axis)
        return {name: take_leaves(one, inner.get(name), leaves) for name, one in value.items()}
    if axis is not None and isinstance(value, tuple | list):
        each = axis if isinstance(axis, tuple | list) else [axis] * len(value)
        made = [take_leaves(one, at, leaves) for one, at in zip(value, each, strict=True)]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    leaves.append(Leaf(value, axis))
    return _LeafHole


def _put_leaves(shape: Any, values: Iterator[Any]) -> Any:
    if shape is _LeafHole:
        return next(values)
    if isinstance(shape, Mapping):
        return {name: _put_leaves(one, values) for name, one in shape.items()}
    made = [_put_leaves(one, values) for one in shape]
    return type(shape)(*made) if hasattr(shape, "_fields") else type(shape)(made)


# Runs programs of compiling libraries: JAX, TensorFlow, and ``torch.compile``.
#
# Each says how a size is run, what its arrays are, and which switches choose its kernels. Libraries
# are imported where they are used.


class JaxProgram(LibraryProgram):
    """A function of JAX under ``jax.jit``, unless it is compiled already."""

    library, package = "jax", "jax"

    def __init__(self, function: Callable[..., Any], batched: Any = None, name: str = "") -> None:
        import jax

        super().__init__(function, batched, name)
        self.compiled = function if hasattr(function, "lower") else jax.jit(function)
        self._flatten, self._tracer = jax.tree.flatten, jax.core.Tracer
        self._array, self._config = type(jax.numpy.zeros(())), jax.config

    def at(self, size: int) -> Callable[..., Any]:
        """As of ``LibraryProgram``: JAX keeps a compiled program for each shape."""
        return self.compiled

    def signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As of ``LibraryProgram``. InputError: it is called while JAX traces another function."""
        values, shape = self._flatten((args, kwargs))
        told: list[Any] = [shape, self.threads()]
        for one in values:
            if getattr(one, "shape", None) == ():
                return None  # a number may choose a branch: `told` has its value
            if type(one) is self._array:
                told.append(one.aval)
            elif type(one) is np.ndarray and one.flags.c_contiguous:
                told += one.shape, one.dtype
            elif isinstance(one, self._tracer):
                why = "inside of a function that JAX compiles it would become a part of that one"
                todo = "call it outside, or give that function to stable.invariant"
                raise InputError("inputs", "a traced array", why, todo)
            else:
                return None
        return tuple(told)

    def planned(
        self, plan: Plan, leaves: Sequence[Leaf], rebuild: Rebuild, outputs: Sequence[ProgramOutput]
    ) -> Callable[..., Any] | None:
        """As of ``LibraryProgram``. What pads, cuts and joins is compiled apart: fused with the
        function, it would change bits. None where integers without samples may choose a branch.
        """
        import jax

        beside = jax.tree.leaves([one.value for one in leaves if one.axis is None])
        if any(decides(one.shape, one.dtype.name) for one in beside):
            return None
        if len(plan) == 1 and plan[0].places == plan[0].size:
            return self.compiled
        marks = [
            jax.tree.map(lambda _: -1, one.value) if one.axis is None else one.axis
            for one in leaves
        ]
        axes, shape = jax.tree.flatten(rebuild(marks))
        carry = [(at, axis) for at, axis in enumerate(axes) if axis >= 0]
        # compiled apart from the function: XLA would fuse the padding into it and change bits
        cut = jax.jit(lambda values: [_piece(values, carry, piece) for piece in plan])

        @jax.jit
        def join(found: Sequence[Any]) -> Any:
            both = [
                (jax.tree.leaves(one), each.places) for one, each in zip(found, plan, strict=True)
            ]
            made = together(both, outputs, jax.numpy.concatenate)
            return jax.tree.unflatten(jax.tree.structure(found[0]), made)

        def run(*args: Any, **kwargs: Any) -> Any:
            values = jax.tree.leaves((args, kwargs))
            found = []
            for part in cut([values[at] for at, _ in carry]):
                for (at, _), one in zip(carry, part, strict=True):
                    values[at] = one
                args, kwargs = jax.tree.unflatten(shape, values)
                found.append(self.compiled(*args, **kwargs))
            return join(found)

        # a container that is rebuilt as another kind may have its leaves in another order
        wanted = jax.tree.structure(rebuild([one.value for one in leaves]))
        return run if shape == wanted else None

    def settings(self) -> Any:
        held = self._config
        return held.jax_default_matmul_precision, held.jax_enable_x64

    def facts(self) -> dict[str, Any]:
        import jax

        found = {"platform": jax.default_backend(), "x64": bool(jax.config.jax_enable_x64)}
        return found | {"precision": str(jax.config.jax_default_matmul_precision)}

    def holds(self, value: Any) -> bool:
        import jax

        return isinstance(value, np.ndarray | np.generic | jax.Array)

    def native(self, array: np.ndarray, dtype: str) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(array.view(jnp.bfloat16) if dtype == "bfloat16" else array)

    def whole(self, value: Any, axis: int | None) -> Any:
        """As of ``LibraryProgram``; JAX's arrays are."""
        return super().whole(value, axis) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        import jax

        leaves, shape = jax.tree.flatten(result)
        return leaves, lambda values: jax.tree.unflatten(shape, values)

    def told(self, value: Any) -> Any:
        """As of ``LibraryProgram``; of weights in any container of JAX."""
        import jax

        if self.holds(value):
            return super().told(value)
        leaves, shape = jax.tree.flatten(value)
        return str(shape), tuple((np.shape(one), str(getattr(one, "dtype", one))) for one in leaves)


def _piece(values: Sequence[Any], carry: Sequence[tuple[int, int]], piece: SizedCall) -> list[Any]:
    """Some samples of each array, and copies of their first behind them."""
    from jax import lax
    from jax import numpy as jnp

    start, places, size = piece
    made = []
    for one, (_, axis) in zip(values, carry, strict=True):
        part = lax.slice_in_dim(one, start, start + places, axis=axis)
        if places < size:
            first = lax.slice_in_dim(one, start, start + 1, axis=axis)
            part = jnp.concatenate([part, jnp.repeat(first, size - places, axis)], axis)
        made.append(part)
    return made


class _Data(LibraryProgram):
    """Functions whose arguments are data: all arrays of one leading size carry samples."""

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        leaves: list[Leaf] = []
        take_leaves([list(args), kwargs], 0, leaves)
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


class TensorFlowProgram(_Data):
    """A ``tf.function``, or a signature of a SavedModel."""

    library, package = "tensorflow", "tensorflow"

    def __init__(self, function: Callable[..., Any], batched: Any = None, name: str = "") -> None:
        super().__init__(function, batched, name)
        self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        """Watches the graph as it runs: what XLA compiles is one operation of it."""
        from probe.recording.subject import function_recorder

        given = [
            self.native(one, "bfloat16" if one.dtype == np.uint16 else one.dtype.name)
            if isinstance(one, np.ndarray)
            else one
            for one in values
        ]
        args, kwargs = rebuild(given)
        return function_recorder(lambda: self.function(*args, **kwargs))

    def threads(self) -> int:
        import tensorflow as tf

        return int(tf.config.threading.get_intra_op_parallelism_threads()) or cores()

    def facts(self) -> dict[str, Any]:
        import tensorflow as tf

        between = int(tf.config.threading.get_inter_op_parallelism_threads())
        return {"inter_op_threads": between, "jit": str(tf.config.optimizer.get_jit())}

    def holds(self, value: Any) -> bool:
        import tensorflow as tf

        return isinstance(value, np.ndarray | np.generic | tf.Tensor | tf.Variable)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        return super().bits(value.numpy() if hasattr(value, "numpy") else value)

    def native(self, array: np.ndarray, dtype: str) -> Any:
        import tensorflow as tf

        kind = tf.bfloat16.as_numpy_dtype
        return tf.constant(array.view(kind) if dtype == "bfloat16" else array)

    def whole(self, value: Any, axis: int | None) -> Any:
        """As of ``LibraryProgram``; a plain array would be part of the graph, a new one a call."""
        return self.native(*self.bits(value)) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        import tensorflow as tf

        leaves = tf.nest.flatten(result)
        return leaves, lambda values: tf.nest.pack_sequence_as(result, list(values))


class TorchProgram(_Data):
    """A module or function that ``torch.compile`` compiled, compiled anew for each bucket.

    PyTorch keeps compiled programs with a function's code, and may take one of variable sizes for
    a size that had one of its own. So each bucket has code of its own, which meets that size alone.
    """

    library, package = "torch compiled", "torch"

    def __init__(self, function: Any, batched: Any = None) -> None:
        inner = getattr(function, "_orig_mod", None)
        if inner is not None:
            from probe.invariant.torch_calls import require_evaluation

            require_evaluation(inner)
        self.module = inner
        self.context = getattr(function, "dynamo_ctx", None)
        plain = inner if inner is not None else function._torchdynamo_orig_callable
        named = type(plain).__name__ if inner is not None else plain.__qualname__
        super().__init__(plain, batched, named)
        self.sizes: dict[Any, Callable[..., Any]] = {}

    def at(self, size: int) -> Callable[..., Any]:
        import torch

        key = size, torch.get_num_threads(), self.settings()
        if key not in self.sizes:
            self.sizes[key] = self._compiled(size, key[1], len(self.sizes))
        return self.sizes[key]

    def _compiled(self, size: int, threads: int, number: int) -> Callable[..., Any]:
        import torch

        plain = self.function

        def bucket(*args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs)

        # Dynamo keeps programs by code object, and guards of one bucket would make another dynamic
        named = f"bucket_{size}_{threads}_{number}_{id(self)}"
        bucket.__code__ = bucket.__code__.replace(co_name=named, co_firstlineno=size)
        context = self.context
        made = torch.compile(bucket, dynamic=False) if context is None else context(bucket)

        def run(*args: Any, **kwargs: Any) -> Any:
            alone = {"automatic_dynamic_shapes": False, "assume_static_by_default": True}
            with torch.no_grad(), torch._dynamo.config.patch(alone):  # type: ignore[attr-defined]
                return made(*args, **kwargs)

        return run

    def threads(self) -> int:
        import torch

        return int(torch.get_num_threads())

    def settings(self) -> Any:
        from probe.invariant.torch_calls import settings

        return settings()

    def facts(self) -> dict[str, Any]:
        import torch

        return {
            "capability": torch.backends.cpu.get_cpu_capability(),
            "mkldnn": bool(torch.backends.mkldnn.enabled),
            "precision": torch.get_float32_matmul_precision(),
        }

    def holds(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.Tensor)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        import torch

        value = value.detach().contiguous()
        if value.dtype is torch.bfloat16:
            return value.view(torch.int16).numpy().view(np.uint16), "bfloat16"
        return super().bits(value.numpy())

    def native(self, array: np.ndarray, dtype: str) -> Any:
        from probe.invariant.torch_calls import of_container

        return of_container(array, dtype)

    def form(self, value: Any) -> tuple[tuple[int, ...], str]:
        return tuple(value.shape), str(value.dtype).removeprefix("torch.")

    def whole(self, value: Any, axis: int | None) -> Any:
        """As of ``LibraryProgram``: with the strides and alignment that the checked ones have."""
        from probe.invariant.torch_calls import aligned_contiguous, misplaced

        if axis is None:
            return value.clone() if self.holds(value) and misplaced(value) else value
        return aligned_contiguous(value.detach())

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        from torch.utils import _pytree as tree

        leaves, shape = tree.tree_flatten(result)
        return leaves, lambda values: tree.tree_unflatten(list(values), shape)


def program_of_function(model: Any, batched: Any) -> LibraryProgram | None:
    """Returns the program of a function; None where it is none that is run whole.

    Functions of plain Python are JAX's or NumPy's: see ``program_with_library``.
    """
    kind = type(model)
    module = kind.__module__
    routine = inspect.isroutine(model)
    if kind.__name__ == "OptimizedModule" or (
        routine and hasattr(model, "_torchdynamo_orig_callable")
    ):
        return TorchProgram(model, batched)
    if module.startswith("tensorflow.") and hasattr(model, "function_spec"):
        return TensorFlowProgram(model, batched, str(getattr(model, "name", "") or "function"))
    if module.partition(".")[0] in ("jax", "jaxlib") and hasattr(model, "lower"):
        return JaxProgram(model, batched)
    if not routine and module != "functools":
        return None
    undecided = LibraryProgram(model, batched)
    undecided.library = ""  # a function of plain Python: its first answer says whose it is
    return undecided


def program_with_library(
    program: LibraryProgram, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> LibraryProgram:
    """Returns the program with its library, found by one call. InputError: it is no library's."""
    if program.library:
        return program
    values: list[Any] = []
    of_jax = _of_jax((args, kwargs))
    if not of_jax:
        answer: list[Leaf] = []
        take_leaves(program.function(*args, **kwargs), 0, answer)
        values = [one.value for one in answer]
        of_jax = _of_jax(values)
    if of_jax:
        return JaxProgram(program.function, program.batched, program.name)
    if values and all(isinstance(one, np.ndarray | np.generic) for one in values):
        return LibraryProgram(program.function, program.batched, program.name)
    found = ", ".join(sorted({type(one).__name__ for one in values})) or "nothing"
    todo = "give a function of JAX's or NumPy's arrays, a tf.function, or a torch.nn.Module"
    raise InputError("model", program.name, f"it returns {found}", todo)


def _of_jax(nested: Any) -> bool:
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    return any(isinstance(one, jax.Array) for one in jax.tree.leaves(nested))
