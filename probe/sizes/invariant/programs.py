"""Programs that are run whole: functions of arrays and of compiling libraries.

A program takes arguments, of which some carry samples along an axis. Here these are found in nested
tuples, lists and dictionaries, turned into container arrays and back.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.arguments import not_waiting
from probe.case.errors import InputError
from probe.sizes.invariant.classes import SizedCall
from probe.targets.machine import cores

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
    watched: Callable[..., Any] | None = None

    def __init__(self, function: Callable[..., Any], batched: Any = None, name: str = "") -> None:
        self.function, self.batched = function, batched
        self.name = name or getattr(function, "__qualname__", type(function).__name__)
        self.fixed: int | None = None

    def at(self, size: int) -> Callable[..., Any]:
        """What runs calls of a size."""
        return self.function

    def threads(self) -> int:
        """The threads that it computes with."""
        return cores()

    def facts(self) -> dict[str, Any]:
        """Switches that decide which kernels the library takes."""
        return {}

    def settings(self) -> Any:
        """What may change while a program runs, and decides which kernels are taken.

        Asked at each call: a program is run with those that it was made with.
        """
        return ()

    @property
    def imported(self) -> Any:
        """The library: it is imported where it is used."""
        return import_module(self.package)

    @property
    def version(self) -> str:
        return str(self.imported.__version__)

    # inputs

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """The inputs in order, and what puts others in their places."""
        axes, named = self._axes(args, kwargs)
        leaves: list[Leaf] = []
        both = zip(args, axes, strict=True)
        shape = (
            tuple([take_leaves(value, axis, leaves) for value, axis in both]),
            {name: take_leaves(value, named[name], leaves) for name, value in kwargs.items()},
        )
        return leaves, lambda values: _put_leaves(shape, iter(values))

    def _axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        batched = self.batched
        if isinstance(batched, Mapping):
            try:
                names = list(inspect.signature(self.function).parameters)[: len(args)]
            except (TypeError, ValueError):
                why = "the arguments have no names"
                raise InputError("batched", "by name", why, HOW) from None
            return [batched.get(name) for name in names], {
                name: batched.get(name) for name in kwargs
            }
        if batched is None:
            return self._found_axes(args, kwargs)
        axes = list(batched) if isinstance(batched, tuple | list) else [batched] * len(args)
        if len(axes) != len(args):
            why = f"it has {len(axes)} entries, and the call has {len(args)} arguments"
            raise InputError("batched", batched, why, HOW)
        return axes, dict.fromkeys(kwargs)

    def _found_axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """Axis 0 for a single argument; raises InputError for several."""
        if len(args) != 1 or kwargs:
            count = len(args) + len(kwargs)
            why = f"there are {count} arguments, and it is unknown which carry samples"
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

    def aligned(self, value: Any, axis: int | None) -> Any:
        """An input as it is checked: contiguous, where a vector begins."""
        return aligned_array(value) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        """The arrays of a result, and what puts others in their places."""
        leaves: list[Leaf] = []
        shape = take_leaves(result, 0, leaves)
        return [leaf.value for leaf in leaves], lambda values: _put_leaves(shape, iter(values))

    def deciding(self, value: Any) -> Any:
        """What of an input without samples decides which program runs: shapes, small integers, and
        numbers without axes, such as a temperature, which may choose a branch."""
        if not self.holds(value):
            return (
                repr(value)
                if isinstance(value, int | float | str | None)
                else _shapes_within(value)
            )
        shape, dtype = self.form(value)
        decides = not shape or (dtype not in floats.FORMATS and math.prod(shape) <= DECIDING)
        return (shape, dtype, self.bits(value)[0].tolist() if decides else None)


# Integers that may choose a branch, such as a sampling rate.
DECIDING = 16


# Bytes: the longest vector of a processor.
ALIGNED = 64


def aligned_room(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An array without values, contiguous, that begins where a vector does."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    held = np.empty(size + ALIGNED, np.uint8)
    start = -address_of(held) % ALIGNED
    return held[start : start + size].view(dtype).reshape(shape)


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def aligned_array(array: np.ndarray) -> np.ndarray:
    """The same values, contiguous, where a vector begins: a copy if they are elsewhere.

    Libraries take products whose order of additions depends on where operands begin, and a sample
    of a batch begins anywhere.
    """
    if array.flags.c_contiguous and not address_of(array) % ALIGNED:
        return array
    room = aligned_room(array.shape, array.dtype)
    room[...] = array
    return room


def padded_piece(bits: np.ndarray, axis: int, piece: SizedCall) -> np.ndarray:
    """Some samples, and copies of their first behind them; contiguous, where a vector begins."""
    start, places, size = piece
    before = (slice(None),) * axis
    part = bits[(*before, slice(start, start + places))]
    if places == size:
        return aligned_array(part)
    room = aligned_room((*bits.shape[:axis], size, *bits.shape[axis + 1 :]), bits.dtype)
    room[(*before, slice(places))] = part
    room[(*before, slice(places, None))] = part[(*before, slice(1))]
    return room


def joined_answers(
    pieces: Sequence[tuple[Sequence[np.ndarray], int]], outputs: Sequence[ProgramOutput]
) -> list[np.ndarray]:
    """The answers of all pieces as one, without those of the copies; contiguous.

    ``pieces``: of each its outputs, and how many places it has.
    """
    return [
        np.ascontiguousarray(
            np.concatenate(
                [answer[number][output.index(0, places)] for answer, places in pieces], output.axis
            )
        )
        for number, output in enumerate(outputs)
    ]


def _shapes_within(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = (f"{name}: {_shapes_within(part)}" for name, part in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shapes_within, value))})"
    return f"{getattr(value, 'dtype', type(value).__name__)}{getattr(value, 'shape', '')}"


class _LeafHole:
    """Where a leaf stood."""


def take_leaves(value: Any, axis: Any, leaves: list[Leaf]) -> Any:
    """The nesting with its leaves taken out, which are appended."""
    if axis is not None and isinstance(value, Mapping):
        inner = axis if isinstance(axis, Mapping) else dict.fromkeys(value, axis)
        return {name: take_leaves(part, inner.get(name), leaves) for name, part in value.items()}
    if axis is not None and isinstance(value, tuple | list):
        each = axis if isinstance(axis, tuple | list) else [axis] * len(value)
        parts = [take_leaves(part, at, leaves) for part, at in zip(value, each, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    leaves.append(Leaf(value, axis))
    return _LeafHole


def _put_leaves(shape: Any, values: Iterator[Any]) -> Any:
    if shape is _LeafHole:
        return next(values)
    if isinstance(shape, Mapping):
        return {name: _put_leaves(part, values) for name, part in shape.items()}
    parts = [_put_leaves(part, values) for part in shape]
    return type(shape)(*parts) if hasattr(shape, "_fields") else type(shape)(parts)


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
        self._config = jax.config

    def at(self, size: int) -> Callable[..., Any]:
        """As of ``LibraryProgram``: JAX keeps a compiled program for each shape."""
        return self.compiled

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """As of ``LibraryProgram``. InputError: it is called while JAX traces another function."""
        if any(isinstance(value, self._tracer) for value in self._flatten((args, kwargs))[0]):
            why = "inside of a function that JAX compiles it would become a part of that one"
            todo = "call it outside, or give that function to stable.invariant"
            raise InputError("inputs", "a traced array", why, todo)
        return super().flat(args, kwargs)

    def settings(self) -> Any:
        held = self._config
        return held.jax_default_matmul_precision, held.jax_enable_x64

    def facts(self) -> dict[str, Any]:
        precision, wide = self.settings()
        platform = self.imported.default_backend()
        return {"platform": platform, "x64": bool(wide), "precision": str(precision)}

    def holds(self, value: Any) -> bool:
        return isinstance(value, np.ndarray | np.generic | self.imported.Array)

    def native(self, array: np.ndarray, dtype: str) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(array.view(jnp.bfloat16) if dtype == "bfloat16" else array)

    def aligned(self, value: Any, axis: int | None) -> Any:
        """As of ``LibraryProgram``; JAX's arrays are."""
        return super().aligned(value, axis) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        leaves, shape = self._flatten(result)
        return leaves, lambda values: self.imported.tree.unflatten(shape, values)

    def deciding(self, value: Any) -> Any:
        """As of ``LibraryProgram``; of weights in any container of JAX."""
        if self.holds(value):
            return super().deciding(value)
        leaves, shape = self._flatten(value)
        kinds = ((np.shape(leaf), str(getattr(leaf, "dtype", leaf))) for leaf in leaves)
        return str(shape), tuple(kinds)


class _Data(LibraryProgram):
    """Functions whose arguments are data: all arrays of one leading size carry samples."""

    def _found_axes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        leaves: list[Leaf] = []
        take_leaves([list(args), kwargs], 0, leaves)
        arrays = (leaf.value for leaf in leaves if self.holds(leaf.value))
        first = next((array.shape[0] for array in arrays if array.shape), None)

        def axes(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: axes(part) for name, part in value.items()}
            if isinstance(value, tuple | list):
                return [axes(part) for part in value]
            carries = self.holds(value) and len(value.shape) and value.shape[0] == first
            return 0 if carries else None

        return axes(args), axes(kwargs)


class TensorFlowProgram(_Data):
    """A ``tf.function``, or a signature of a SavedModel."""

    library, package = "tensorflow", "tensorflow"

    def watched(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        """Watches the graph as it runs: what XLA compiles is one operation of it."""
        from probe.record.subject import function_recorder

        inputs = [
            self.native(value, "bfloat16" if value.dtype == np.uint16 else value.dtype.name)
            if isinstance(value, np.ndarray)
            else value
            for value in values
        ]
        args, kwargs = rebuild(inputs)
        return function_recorder(lambda: self.function(*args, **kwargs))

    def threads(self) -> int:
        return int(self.imported.config.threading.get_intra_op_parallelism_threads()) or cores()

    def facts(self) -> dict[str, Any]:
        config = self.imported.config
        between = int(config.threading.get_inter_op_parallelism_threads())
        return {"inter_op_threads": between, "jit": str(config.optimizer.get_jit())}

    def holds(self, value: Any) -> bool:
        tf = self.imported
        return isinstance(value, np.ndarray | np.generic | tf.Tensor | tf.Variable)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        return super().bits(value.numpy() if hasattr(value, "numpy") else value)

    def native(self, array: np.ndarray, dtype: str) -> Any:
        tf = self.imported
        narrow = dtype == "bfloat16"
        return tf.constant(array.view(tf.bfloat16.as_numpy_dtype) if narrow else array)

    def aligned(self, value: Any, axis: int | None) -> Any:
        """As of ``LibraryProgram``; a plain array would be part of the graph, a new one a call."""
        return self.native(*self.bits(value)) if isinstance(value, np.ndarray) else value

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        nest = self.imported.nest
        return nest.flatten(result), lambda values: nest.pack_sequence_as(result, list(values))


class TorchProgram(_Data):
    """A module or function that ``torch.compile`` compiled, compiled anew for each bucket.

    PyTorch keeps compiled programs with a function's code, and may take one of variable sizes for
    a size that had one of its own. So each bucket has code of its own, which meets that size alone.
    """

    library, package = "torch compiled", "torch"

    def __init__(self, function: Any, batched: Any = None) -> None:
        inner = getattr(function, "_orig_mod", None)
        if inner is not None:
            self.calls.require_evaluation(inner)
        self.context = getattr(function, "dynamo_ctx", None)
        plain = inner if inner is not None else function._torchdynamo_orig_callable
        named = type(plain).__name__ if inner is not None else plain.__qualname__
        super().__init__(plain, batched, named)
        self.sizes: dict[Any, Callable[..., Any]] = {}

    @property
    def calls(self) -> Any:
        """``torch_calls``, which imports PyTorch."""
        return import_module("probe.sizes.invariant.torch_calls")

    def at(self, size: int) -> Callable[..., Any]:
        key = size, self.threads(), self.settings()
        if key in self.sizes:
            return self.sizes[key]
        torch, plain = self.imported, self.function

        def bucket(*args: Any, **kwargs: Any) -> Any:
            return plain(*args, **kwargs)

        # Dynamo keeps programs by code object, and guards of one bucket would make another dynamic
        named = f"bucket_{size}_{key[1]}_{len(self.sizes)}_{id(self)}"
        bucket.__code__ = bucket.__code__.replace(co_name=named, co_firstlineno=size)
        compiled = (self.context or partial(torch.compile, dynamic=False))(bucket)

        def run(*args: Any, **kwargs: Any) -> Any:
            alone = {"automatic_dynamic_shapes": False, "assume_static_by_default": True}
            with torch.no_grad(), torch._dynamo.config.patch(alone):
                return compiled(*args, **kwargs)

        self.sizes[key] = run
        return run

    def threads(self) -> int:
        return int(self.imported.get_num_threads())

    def settings(self) -> Any:
        return self.calls.settings()

    def facts(self) -> dict[str, Any]:
        switches: dict[str, Any] = self.calls.switches()
        return {name: switches[name] for name in ("capability", "mkldnn", "precision")}

    def holds(self, value: Any) -> bool:
        return isinstance(value, self.imported.Tensor)

    def bits(self, value: Any) -> tuple[np.ndarray, str]:
        if value.dtype is self.imported.bfloat16:
            bits: tuple[np.ndarray, str] = self.calls.container(value)
            return bits
        return super().bits(value.detach().contiguous().numpy())

    def native(self, array: np.ndarray, dtype: str) -> Any:
        return self.calls.of_container(array, dtype)

    def form(self, value: Any) -> tuple[tuple[int, ...], str]:
        return tuple(value.shape), str(value.dtype).removeprefix("torch.")

    def aligned(self, value: Any, axis: int | None) -> Any:
        """As of ``LibraryProgram``: with the strides and alignment that the checked ones have."""
        if axis is None:
            return value.clone() if self.holds(value) and self.calls.vector_offset(value) else value
        return self.calls.aligned_contiguous(value.detach())

    def split(self, result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
        from torch.utils import _pytree as tree

        leaves, shape = tree.tree_flatten(result)
        return leaves, lambda values: tree.tree_unflatten(list(values), shape)


def program_of_function(model: Any, batched: Any) -> LibraryProgram | None:
    """The program of a function; None where it is none that is run whole.

    Functions of plain Python are JAX's or NumPy's: see ``program_with_library``.
    """
    kind = type(model)
    module = kind.__module__
    routine = inspect.isroutine(model)
    if kind.__name__ == "OptimizedModule" or (
        routine and hasattr(model, "_torchdynamo_orig_callable")
    ):
        return TorchProgram(model, batched)
    signature = hasattr(model, "structured_input_signature")  # of a SavedModel that was loaded
    if module.startswith("tensorflow.") and (signature or hasattr(model, "function_spec")):
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
    """The program with its library, found by one call. InputError: it is no library's."""
    if program.library:
        return program

    def of_jax(nested: Any) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and any(isinstance(x, jax.Array) for x in jax.tree.leaves(nested))

    words = program.function, program.batched, program.name
    if of_jax((args, kwargs)):
        return JaxProgram(*words)
    answer: list[Leaf] = []
    take_leaves(program.function(*args, **kwargs), 0, answer)
    values = [leaf.value for leaf in answer]
    if of_jax(values):
        return JaxProgram(*words)
    if values and all(isinstance(value, np.ndarray | np.generic) for value in values):
        return LibraryProgram(*words)
    kinds = ", ".join(sorted({type(value).__name__ for value in values})) or "nothing"
    todo = "give a function of JAX's or NumPy's arrays, a tf.function, or a torch.nn.Module"
    raise InputError("model", program.name, f"it returns {kinds}", todo)


# Model files that are run whole: of ONNX Runtime and LiteRT.
#
# They are called with arrays in the order of the model's inputs, or by their names, and return what
# the library returns: a list of NumPy arrays. A file is data: nothing of it is run but its graph.


FILES = ".onnx, .tflite"
INTERPRETERS = 8  # sizes of which LiteRT's interpreters are kept


class NamedInputs(LibraryProgram):
    """A program with named inputs. ``_open()``: which axes carry samples, as the file says."""

    _open: Callable[[], dict[str, int | None]]

    def __init__(self, function: Any, batched: Any, name: str, names: Sequence[str]) -> None:
        super().__init__(function, batched, name)
        self.names = tuple(names)

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """As of ``LibraryProgram``: arrays in order, by name, or in one dictionary."""
        named = args[0] if len(args) == 1 and isinstance(args[0], dict) and not kwargs else kwargs
        order = args if named is kwargs else ()
        arrays = dict(zip(self.names, order, strict=False)) | named
        if set(arrays) != set(self.names) or len(order) + len(named) != len(self.names):
            said = ", ".join(arrays) or f"{len(order)} arrays"
            raise InputError("inputs", said, f"the model has {', '.join(self.names)}", "give these")
        axes = self._by_name()
        leaves = [Leaf(np.asarray(arrays[name]), axes[name], name) for name in self.names]
        return leaves, lambda values: (tuple(values), {})

    def _by_name(self) -> dict[str, int | None]:
        """The axis of each input that carries samples."""
        batched, why = self.batched, f"the model has {', '.join(self.names)}"
        if batched is None:
            return self._open()
        if isinstance(batched, dict):
            if unknown := set(batched) - set(self.names):
                raise InputError("batched", ", ".join(sorted(unknown)), why, "name these")
            return {name: batched.get(name) for name in self.names}
        axes = batched if isinstance(batched, tuple | list) else [batched] * len(self.names)
        if len(axes) != len(self.names):
            raise InputError("batched", batched, why, "give an axis or None for each")
        return dict(zip(self.names, axes, strict=True))


class Onnx(NamedInputs):
    """A file or a session of ONNX Runtime."""

    library, package = "onnxruntime", "onnxruntime"

    def __init__(self, model: Any, batched: Any, threads: int | None, name: str) -> None:
        import onnxruntime

        self.session: Any = model
        self.content: bytes | str | None = None
        if isinstance(model, bytes | str):
            self.content = model
            options = onnxruntime.SessionOptions()
            # what it can't read is said once, by the error
            options.log_severity_level = 3
            if threads is not None:
                options.intra_op_num_threads = threads
            try:
                self.session = onnxruntime.InferenceSession(
                    model, options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # ONNX Runtime's own classes, one for each status
                raise _cant_be_read(name, error, model if isinstance(model, str) else "") from None
        self.inputs = self.session.get_inputs()
        self.several = int(self.session.get_session_options().intra_op_num_threads) or cores()
        super().__init__(self._run, batched, name, [each.name for each in self.inputs])
        self.fixed = self._size()
        if self.content is not None:
            self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        from probe.record.onnxruntime import OnnxRecorder

        assert self.content is not None
        inputs = dict(zip(self.names, values, strict=True))
        return OnnxRecorder(self.content, inputs, {"threads": str(self.threads())})

    def _run(self, *values: Any) -> Any:
        return self.session.run(None, dict(zip(self.names, values, strict=True)))

    def _open(self) -> dict[str, int | None]:
        """The first axis whose size is left open; the first one where no size is."""
        fixed = all(isinstance(size, int) for each in self.inputs for size in each.shape)
        return {
            each.name: next(
                (n for n, size in enumerate(each.shape) if fixed or not isinstance(size, int)), None
            )
            for each in self.inputs
        }

    def _size(self) -> int | None:
        """The only batch that the file takes; None: it is left open."""
        axes = self._by_name()
        sizes = {
            each.shape[at]
            for each in self.inputs
            if (at := axes[each.name]) is not None and -len(each.shape) <= at < len(each.shape)
        }
        size = sizes.pop() if len(sizes) == 1 else None
        return size if isinstance(size, int) else None

    def threads(self) -> int:
        """As of ``LibraryProgram``; a session keeps those that it was made with."""
        return self.several

    def facts(self) -> dict[str, Any]:
        options = self.session.get_session_options()
        return {
            "providers": list(self.session.get_providers()),
            "optimisation": str(options.graph_optimization_level).rpartition(".")[2],
            "deterministic": bool(options.use_deterministic_compute),
        }


class LiteRTProgram(NamedInputs):
    """A .tflite file: an interpreter for each size."""

    library, package = "litert", "ai_edge_litert"

    def __init__(self, content: bytes, batched: Any, threads: int | None, name: str) -> None:
        self.content, self.chosen = content, threads
        self.interpreters: OrderedDict[Any, Any] = OrderedDict()
        self.lock = threading.Lock()
        try:
            self.details = self._opened().get_input_details()
        except (ValueError, RuntimeError) as error:
            raise _cant_be_read(name, error) from None
        super().__init__(self._run, batched, name, [each["name"] for each in self.details])

    def watched(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        from probe.record.litert import LiteRTRecorder

        inputs = dict(zip(self.names, values, strict=True))
        return LiteRTRecorder(self.content, inputs, {"threads": str(self.threads())})

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("ai-edge-litert")

    def _opened(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_content=self.content, num_threads=self.chosen)

    def _open(self) -> dict[str, int | None]:
        return {each["name"]: 0 if len(each["shape"]) else None for each in self.details}

    def _run(self, *values: np.ndarray) -> list[np.ndarray]:
        shapes = tuple(value.shape for value in values)
        both = list(zip(self.details, values, strict=True))
        with self.lock:  # an interpreter holds the values of one call
            if shapes not in self.interpreters:
                interpreter = self._opened()
                for each, value in both:
                    if tuple(each["shape"]) != value.shape:
                        interpreter.resize_tensor_input(each["index"], value.shape)
                interpreter.allocate_tensors()
                self.interpreters[shapes] = interpreter
                while len(self.interpreters) > INTERPRETERS:  # each holds memory of its own
                    self.interpreters.popitem(last=False)
            interpreter = self.interpreters[shapes]
            self.interpreters.move_to_end(shapes)
            for each, value in both:
                interpreter.set_tensor(each["index"], value)
            interpreter.invoke()
            details = interpreter.get_output_details()
            return [interpreter.get_tensor(each["index"]) for each in details]

    def threads(self) -> int:
        """As of ``LibraryProgram``; LiteRT's own default is one."""
        return self.chosen or 1


def of_file(model: Any, batched: Any, threads: int | None) -> LibraryProgram | None:
    """The program of a file, of its bytes, or of a session; None: it is none.
    InputError. ``threads``: of a file."""
    kind = type(model)
    if kind.__module__.startswith("onnxruntime") and kind.__name__ == "InferenceSession":
        return Onnx(model, batched, None, "session")
    if isinstance(model, bytes):
        name = f"model {hashlib.sha256(model).hexdigest()[:8]}"
        lite = model[4:8] == b"TFL3"
        return (LiteRTProgram if lite else Onnx)(model, batched, threads, name)  # type: ignore[operator]
    if not isinstance(model, str | Path):
        return None
    path = Path(model)
    if not not_waiting("model", path).exists():
        raise InputError("model", model, "there is no such file", f"give {FILES}")
    match path.suffix.lower():
        case ".onnx":
            return Onnx(str(path), batched, threads, path.name)
        case ".tflite":
            return LiteRTProgram(path.read_bytes(), batched, threads, path.name)
    why = f"{path.suffix or 'no ending'} is no file that is run whole"
    todo = f"give {FILES}; what a library loads as an object: a torch.nn.Module, a tf.function"
    raise InputError("model", path.name, why, todo)


def _cant_be_read(name: str, error: Exception, path: str = "") -> InputError:
    said = " ".join(str(error).split())
    said = said.replace(path, name) if path else said
    return InputError("model", name, f"the library can't read it: {said[:160]}", "export it again")
