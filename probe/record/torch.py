"""PyTorch, watched by dispatch: every ATen operation, with the path of the module that called it.

A run under a dispatch mode calls the same kernels as one without. A compiled function is one
operation (``compiled_as_one``). What an operation means stands in :mod:`probe.record.torch_calls`.

A value is known by its memory, how often that was changed, and where in it it lies. Views share
memory, and a change through one of them changes all others: each is another value from then on, put
together from what was there and what was written. Addresses are never mistaken for each other: of
every memory that a run meets a weak reference is kept until it has died, and each has a number.
"""

from __future__ import annotations

import copy
import inspect
import sys
import zipfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._dynamo.callback import callback_handler
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from probe.case.errors import InputError
from probe.order.semantics import Moves, Several, Unknown
from probe.record.contract import (
    CONSTANT,
    INPUT,
    THROUGH_A_VIEW,
    WEIGHT,
    Input,
    Isolated,
    Operation,
    Seen,
    Visit,
)
from probe.record.recording import array_digest
from probe.record.torch_calls import (
    array,
    aten_call,
    changed_by,
    dtype,
    extent,
    is_among,
    is_strided,
    meaning,
    offset_of,
    op_facts,
    shape,
    tensors,
)
from probe.targets.trust import check_pickle

# how a tensor lies in memory


class MemoryLayout(NamedTuple):
    """Where in its memory a tensor lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> MemoryLayout:
        """Of a tensor that isn't memory with strides its format alone."""
        if not is_strided(tensor):
            return cls((), (), 0, dtype(tensor.dtype))
        shape, strides = tuple(tensor.shape), tensor.stride()
        if 1 in shape:  # their steps say nothing
            strides = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        return cls(shape, strides, tensor.storage_offset(), dtype(tensor.dtype))

    @property
    def size(self) -> int:
        return prod(self.shape)

    def covers(self, other: MemoryLayout) -> bool:
        """Whether it has no gaps, and another lies wholly inside."""
        count = extent(self.shape, self.strides)
        end = other.offset + extent(other.shape, other.strides)
        inside = self.offset <= other.offset and end <= self.offset + count
        return self.dtype == other.dtype and self.size == count and inside

    def places(self) -> np.ndarray:
        """Each element's place in the memory, flat: int64."""
        places = np.full(self.shape, self.offset, np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.strides, strict=True)):
            places += np.arange(size).reshape(-1, *(1,) * (len(self.shape) - axis - 1)) * step
        return places.reshape(-1)


# Elements up to which it is worked out which of them a change through a view reached.
MOST = 1 << 22


def _gathering(parts: Sequence[MemoryLayout], to: MemoryLayout) -> Isolated | None:
    """What makes a value of parts of its memory, at each place of the last that was written there,
    zero where none was; None where that isn't worked out."""
    if any(part.dtype != to.dtype for part in parts) or sum(p.size for p in (*parts, to)) > MOST:
        return None
    places = [part.places() for part in (*parts, to)]
    where = np.full(1 + max(int(place.max(initial=0)) for place in places), -1)
    start = 0
    for part in places[:-1]:
        where[part] = np.arange(start, start + part.size)
        start += part.size
    index = where[places[-1]].reshape(to.shape)

    def gathered(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        flat = [np.asarray(array).reshape(-1) for array in arrays]
        return [np.concatenate([*flat, np.zeros(1, flat[0].dtype)])[index]]

    return gathered


# which value a tensor is

# Memories that are met between two looks for those that have died.
SWEEP = 64


class Memory:
    """A storage: how often it was changed, and what is known to lie in it.

    ``number``: its own in this run; ``held``: a weak reference to the storage, so that its address
    stays its own, or a tensor that isn't plain memory, which is rare, so that its id does.
    ``made_here``: by the run itself, so that what lies in it is no input. ``values``: keys, of this
    change or before; ``parts``: the largest value before the first change, and what was written
    since, oldest first.
    """

    def __init__(self, number: int, held: Any) -> None:
        self.number, self.held = number, held
        self.changes, self.made_here = 0, False
        self.values: set[Hashable] = set()
        self.parts: list[tuple[Hashable, MemoryLayout]] = []

    def expired(self) -> bool:
        return isinstance(self.held, StorageWeakRef) and bool(self.held.expired())

    def note(self, key: Hashable, lies: MemoryLayout) -> None:
        self.values.add(key)
        if not self.changes and (not self.parts or lies.size > self.parts[0][1].size):
            self.parts = [(key, lies)]

    def write(self, key: Hashable, lies: MemoryLayout) -> None:
        self.parts = [part for part in self.parts if not lies.covers(part[1])] + [(key, lies)]


class Place(NamedTuple):
    """A tensor at a moment: its memory, the key that tells its value from every other, and how it
    lies."""

    tensor: torch.Tensor
    memory: Memory
    key: tuple[Any, ...]
    lies: MemoryLayout


class Values:
    """All values of a run, by tensor. ``weights``: names, by memory and how they lie in it."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.memories: dict[int, Memory] = {}
        self.weights: dict[Hashable, str] = {}
        self.met = 0

    def place(self, tensor: torch.Tensor) -> Place:
        """Which value a tensor is now."""
        plain = is_strided(tensor)
        address = tensor.untyped_storage()._cdata if plain else -id(tensor)
        memory = self.memories.get(address)
        if memory is None:
            self.met += 1
            if self.met % SWEEP == 0:
                live = self.memories.items()
                self.memories = {at: memory for at, memory in live if not memory.expired()}
            held: Any = StorageWeakRef(tensor.untyped_storage()) if plain else tensor
            memory = self.memories[address] = Memory(self.met, held)
        lies = MemoryLayout.of(tensor)
        key: tuple[Any, ...] = (memory.number, memory.changes, lies)
        if plain and (tensor.is_neg() or tensor.is_conj()):
            key += (tensor.is_conj(), tensor.is_neg())
        return Place(tensor, memory, key, lies)

    def name_weight(self, tensor: torch.Tensor, name: str) -> None:
        place = self.place(tensor)
        self.weights.setdefault((place.memory.number, place.lies), name)

    def name(self, place: Place) -> str:
        """The name of a weight; empty of any other value."""
        return self.weights.get((place.memory.number, place.lies), "")

    def read(self, place: Place, path: str, changes: bool = False) -> Seen:
        """A value that is read; ``changes``: this operation is about to change it."""
        tensor, memory, key, lies = place
        fresh = key not in memory.values
        if fresh:
            if memory.made_here and memory.parts:
                self._renewed(place, path)
            memory.note(key, lies)
        seen = self.seen(place)
        if fresh and changes:
            bits = np.array(array(tensor))
            seen.array = lambda: bits
        return seen

    def given(self, place: Place) -> Seen:
        """A value that an operation has just given."""
        memory = place.memory
        memory.made_here = memory.made_here or not memory.values
        memory.note(place.key, place.lies)
        return self.seen(place)

    def seen(self, place: Place) -> Seen:
        tensor, name = place.tensor, self.name(place)
        role = WEIGHT if name or isinstance(tensor, torch.nn.Parameter) else INPUT
        begins = offset_of(tensor) if is_strided(tensor) else None
        bits = partial(array, tensor)
        return Seen(place.key, shape(tensor), place.lies.dtype, bits, role, name, begins)

    def allocated(self, allocated: Sequence[torch.Tensor]) -> None:
        """Notes memory that nothing has been written into yet: zeros, as what it held before would
        be others in the next run."""
        for tensor in allocated:
            if is_strided(tensor):
                tensor.untyped_storage().fill_(0)
            memory = self.place(tensor).memory
            memory.made_here, memory.changes = True, 1

    def changed(self, into: Sequence[torch.Tensor]) -> None:
        """Notes that an operation has changed what lies in the memory of these."""
        for tensor in into:
            memory = self.place(tensor).memory
            memory.changes += 1
            memory.made_here = True

    def written(self, into: Sequence[torch.Tensor]) -> None:
        """Notes what a change has written; the values have been given."""
        for tensor in into:
            _, memory, key, lies = self.place(tensor)
            memory.write(key, lies)

    def _renewed(self, place: Place, path: str) -> None:
        """Puts a value together from what was in its memory and what was written since."""
        _, memory, key, lies = place

        def overwritten() -> np.ndarray:
            raise LookupError("the value has been overwritten")

        reads = [Seen(k, g.shape, g.dtype, overwritten, CONSTANT) for k, g in memory.parts]
        again = _gathering([part for _, part in memory.parts], lies)
        meaning = Moves() if again else Unknown("it is large, or was written as other types")
        self.visit(Operation(THROUGH_A_VIEW, path, reads, [self.seen(place)], meaning, {}, again))
        memory.write(key, lies)


# where in its model a run is

# What runs whenever a module is called. Looked for among the frames of Python: hooks on modules
# would be compiled into compiled functions, and change them.
CALL = torch.nn.Module._call_impl.__code__
STEP = torch.optim.Optimizer.profile_hook_step(id).__code__


def _module_path(front: str, name: str) -> str:
    """A path; what torch.compile puts around a module is left out."""
    return ".".join(part for part in (front, *name.split(".")) if part not in ("", "_orig_mod"))


class Paths:
    """Where in its model a run is. ``paths``: of all modules of the models that have run, by id:
    ``roots`` keeps them alive. ``forward``: of operations that have a gradient, by their number in
    PyTorch's graph of gradients."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.roots, self.paths = list[torch.nn.Module](), dict[int, str]()
        self.forward = dict[int, str]()

    def phase(self, path: str) -> str:
        """The path of an operation of a training step: ``backward.`` with the module of which it is
        the gradient, or with the weight to whose gradient it adds; ``step`` in an optimizer."""
        node = torch._C._current_autograd_node()
        if node is None:
            # the node of an operation that has a gradient has been numbered right before
            self.forward.setdefault(torch.autograd._get_sequence_nr() - 1, path)
            return path
        weight = getattr(node, "variable", None)
        if weight is None:
            path = self.forward.get(node._sequence_nr(), "")
        else:
            path = self.values.name(self.values.place(weight))
        return f"backward.{path}".strip(".")

    def now(self) -> str:
        """The path of the innermost module that runs; empty outside and in the outermost."""
        inside, frame = list[torch.nn.Module](), sys._getframe(1)
        while frame is not None and frame.f_code is not RECORD:
            if frame.f_code is CALL:
                inside.append(frame.f_locals["self"])
            elif frame.f_code is STEP and not inside:
                return "step"
            frame = frame.f_back  # type: ignore[assignment]
        if inside and not any(inside[-1] is root for root in self.roots):
            self._named(inside[-1])
        path = ""
        for module in reversed(inside):
            unnamed = f"{path}.{type(module).__name__}".strip(".")
            path = self.paths.get(id(module), unnamed)
        return path

    def _named(self, root: torch.nn.Module) -> None:
        """A further model of the same run has the name of its class in front."""
        front = f"{type(root).__name__}{len(self.roots)}" if self.roots else ""
        self.roots.append(root)
        functorch = torch._C._functorch
        for name, module in root.named_modules():
            self.paths.setdefault(id(module), _module_path(front, name))
            for key, tensor in {**module._parameters, **module._buffers}.items():
                # torch.func wraps what functional_call gives, once for each transformation
                while tensor is not None and functorch.is_functorch_wrapped_tensor(tensor):
                    tensor = functorch.get_unwrapped(tensor)
                if tensor is not None:
                    self.values.name_weight(tensor, _module_path(front, f"{name}.{key}"))


# what PyTorch runs past dispatch

Region = Callable[[Sequence[Any], Callable[[], Any], Sequence[int]], Any]
# The module of what Inductor compiles; it is large, and stays away until something is compiled.
OUTPUT_CODE = "torch._inductor.output_code"


@contextmanager
def compiled_as_one(region: Region) -> Iterator[Callable[[], bool]]:
    """Hands every compiled region that runs to ``region(operands, run, changed)`` while entered:
    ``changed`` numbers the operands that it changes in place. Yields a function that says whether
    something is being compiled at the moment."""
    with ExitStack() as stack:
        compiling: list[Any] = []

        def begin(args: Any) -> None:
            compiling.append(args)
            _watch(region, stack)

        def end(_: Any) -> None:
            compiling.clear()

        callback_handler.register_start_callback(begin)
        stack.callback(callback_handler.remove_start_callback, begin)
        callback_handler.register_end_callback(end)
        stack.callback(callback_handler.remove_end_callback, end)
        if OUTPUT_CODE in sys.modules:
            _watch(region, stack)
        yield lambda: bool(compiling)


def _watch(region: Region, stack: ExitStack) -> None:
    from torch._inductor.output_code import CompiledFxGraph

    plain = CompiledFxGraph.__call__
    if getattr(plain, "watched", False):
        return

    def watched(self: Any, inputs: Sequence[Any]) -> Any:
        operands = list(inputs)  # the region empties its list, to free memory early

        def run() -> Any:
            with _disable_current_modes():
                return plain(self, inputs)

        return region(operands, run, sorted(getattr(self, "mutated_input_idxs", ())))

    watched.watched = True  # type: ignore[attr-defined]
    CompiledFxGraph.__call__ = watched  # type: ignore[method-assign]
    stack.callback(setattr, CompiledFxGraph, "__call__", plain)


with torch.inference_mode():
    _INFERENCE = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )


def in_parts(func: Any, args: Any, kwargs: Any, mode: TorchDispatchMode) -> Any:
    """Calls the operations that a composite one consists of under a mode, as PyTorch's own dispatch
    does: its ``decompose`` takes Python's formulas where there are some, as of GRU, which give
    different bits; and inside a mode the views of weights ask for no gradients, by which ``matmul``
    chooses its kernel."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch._C._ForceDispatchKeyGuard(*_INFERENCE))
        stack.enter_context(mode)
        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


# what is watched

COMPILED = "compiled functions are one operation each"
IMPORTS = ("import torch",)


class TorchRecorder:
    """A function of no arguments that computes with PyTorch.

    Gradients are on where they are on for whoever makes the recorder, as PyTorch runs other kernels
    of LSTM and attention for training. What ``backward`` runs is watched too.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = f"torch,threads={torch.get_num_threads()}"
        self.note = ""
        self.gradients = torch.is_grad_enabled()

    def plain(self) -> list[np.ndarray]:
        with torch.set_grad_enabled(self.gradients):
            return [np.array(array(output)) for output in tensors(self.function(), beside=True)]

    def record(self, visit: Visit) -> list[Seen]:
        mode = _Mode(self, visit)
        compiled = compiled_as_one(mode.compiled)
        with torch.set_grad_enabled(self.gradients), compiled as mode.compiling, mode:
            result = self.function()
        # a function may set the threads for what it does, and set them back
        self.target = f"torch,threads={mode.threads or torch.get_num_threads()}"
        if mode.regions and COMPILED not in self.note:
            self.note = "; ".join(filter(None, (self.note, COMPILED)))
        values = mode.values
        return [values.read(values.place(out), "") for out in tensors(result, beside=True)]


RECORD = TorchRecorder.record.__code__


class _Mode(TorchDispatchMode):
    def __init__(self, recorder: TorchRecorder, visit: Visit) -> None:
        super().__init__()
        self.recorder, self.visit = recorder, visit
        self.threads, self.regions = 0, 0
        self.compiling: Callable[[], bool] = lambda: False
        self.values = Values(visit)
        self.paths = Paths(self.values)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled functions run as they are."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if self.compiling() or any(tensor.is_meta for tensor in operands):
            return func(*args, **kwargs)  # a meta tensor is a shape without numbers
        facts, values = op_facts(func), self.values
        # inference mode alone shows such an operation in the place of those that it calls
        if facts.composite and all(map(is_strided, operands)):
            return in_parts(func, args, kwargs, self)
        into, is_read = changed_by(facts, args, kwargs)
        places = [values.place(x) for x, read in zip(operands, is_read, strict=True) if read]
        # looking at memory that has not been written reads no value
        if facts.view and any(p.memory.made_here and not p.memory.parts for p in places):
            return func(*args, **kwargs)
        path = self.paths.now()
        path = self.paths.phase(path) if self.recorder.gradients else path
        seen = [values.read(place, path, is_among(place.tensor, into)) for place in places]
        states = _states(kwargs.get("generator")) if facts.random else ()
        result = func(*args, **kwargs)
        results = tensors(result)
        returned = len(results)
        results += [tensor for tensor in into if not is_among(tensor, results)]
        if any(tensor.is_meta for tensor in results):
            return result
        if facts.empty:
            values.allocated(results)
            return result
        new = self._new(results, into, places)
        if new:
            self.threads = self.threads or torch.get_num_threads()
            call, lines, again = aten_call(func, args, kwargs, results, returned, [*new])
            op, means, attributes = str(func).removesuffix(".default"), meaning(call), call.shown()
            gives = [values.given(place) for place in new.values()]
            if states and again is None:  # the same numbers come from the same states alone
                drawn = [array_digest(state.numpy()) for state in states]
                attributes["drawn"] = [str([tuple(tensor.shape) for tensor in results]), *drawn]
            how = attributes, again, lines, IMPORTS
            operation = Operation(op, path, seen, gives, means, *how)
            if isinstance(means, Several) and len(means.each) == len(gives):
                for number in range(len(gives)):
                    self.visit(_result_alone(operation, means, number))
            else:
                self.visit(operation)
        values.written(into)
        return result

    def compiled(
        self, operands: Sequence[Any], run: Callable[[], Any], changed: Sequence[int]
    ) -> Any:
        """Runs one compiled region: an operation that shows nothing of its inside."""
        self.regions += 1
        path, values = self.paths.now(), self.values
        into = [operands[n] for n in changed if isinstance(operands[n], torch.Tensor)]
        places = [values.place(each) for each in operands if isinstance(each, torch.Tensor)]
        seen = [values.read(place, path, is_among(place.tensor, into)) for place in places]
        result = run()
        new = self._new([*tensors(result), *into], into, places)
        gives = [values.given(place) for place in new.values()]
        values.written(into)
        why = "it is compiled, so its operations can't be recorded"
        self.visit(Operation("compiled", path, seen, gives, Unknown(why)))
        return result

    def _new(
        self, results: Sequence[torch.Tensor], into: Sequence[torch.Tensor], reads: Sequence[Place]
    ) -> dict[int, Place]:
        """Which results are new values, by their numbers; ``into`` has just been changed."""
        self.values.changed(into)
        keys, places = {place.key for place in reads}, map(self.values.place, results)
        return {n: place for n, place in enumerate(places) if place.key not in keys}


def _result_alone(operation: Operation, meaning: Several, number: int) -> Operation:
    """The operation that gives a single result of a call that gives several."""
    again, lines = operation.again, operation.lines
    name, inner = meaning.each[number]

    def result_lines(names: Sequence[str], result: str) -> list[str]:
        assert lines is not None
        return [*lines(names, result), f"{result} = {result}[{number}]"]

    return replace(
        operation,
        op=f"{operation.op}.{name}",
        gives=[operation.gives[number]],
        meaning=inner,
        again=None if again is None else lambda arrays: [again(arrays)[number]],
        lines=lines and result_lines,
    )


def _states(chosen: torch.Generator | None) -> list[torch.Tensor]:
    """The states of what an operation may draw random numbers from."""
    generators = [chosen] if chosen is not None else [torch.default_generator]
    if chosen is None and torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    return [generator.get_state() for generator in generators]


# Model files: exported programs, TorchScript, pickled modules. All of them are code. A pickle calls
# whatever it names. Reading an exported program evaluates its expressions of sizes (SymPy's
# ``sympify``, which is Python's ``eval``: a file that makes a folder when it is read takes one
# edited line), and falls back to plain pickles for what it holds besides. TorchScript can open and
# write files (``torch.from_file``). PyTorch's documentation says of each: never from a stranger. So
# none is opened without ``trust``. Seen with PyTorch 2.13.

STATE = "every run starts with a fresh copy of the model, which keeps a state"
TRUST = "if you trust where it comes from, give --trust"
AGAIN = "save the model again, with torch.export.save, torch.jit.save or torch.save(module)"


@dataclass(frozen=True)
class TorchFile:
    """A model of a file. ``inputs``: by name; TorchScript and a pickled module say nothing of
    shapes and formats: then ``shape`` is empty and ``dtype`` is ``""``. ``positional``: the names
    are not those of its arguments."""

    model: Callable[..., Any]
    inputs: tuple[Input, ...]
    positional: bool = False

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> TorchRecorder:
        """A recorder of the model with these inputs; it says itself which don't fit."""
        arguments = dict[str, torch.Tensor]()
        for spec in (spec for spec in self.inputs if spec.name in arrays):
            plain = torch.from_numpy(np.array(arrays[spec.name]))
            bits = spec.dtype == "bfloat16" and plain.dtype == torch.uint16
            arguments[spec.name] = plain.view(torch.bfloat16) if bits else plain

        def call(model: Callable[..., Any]) -> Any:
            alone = self.positional or len(arguments) == 1
            return model(*arguments.values()) if alone else model(**arguments)

        # whether a second run gives something else; TorchScript watches two before it compiles
        kept, runs = copy.deepcopy(self.model), list[list[bytes]]()
        for _ in range(3):
            with torch.no_grad():
                runs.append([array(output).tobytes() for output in tensors(call(kept))])
        stateful = any(run != runs[0] for run in runs)
        model = self.model
        recorder = TorchRecorder(lambda: call(copy.deepcopy(model) if stateful else model))
        recorder.note, recorder.gradients = STATE if stateful else "", False
        return recorder


def opened(path: str | Path, trust: bool = False) -> TorchFile:
    """Opens a model file. InputError where it isn't one, or needs trust."""
    path = Path(path)
    members = list[str]()
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.namelist()
        except zipfile.BadZipFile:
            raise InputError("network", path, "it is a damaged archive", AGAIN) from None
    last = {name.rpartition("/")[2] for name in members}
    read, why = _pickled, ""
    if last & {"archive_format", "serialized_exported_program.json"}:
        read = _exported
        why = "reading an exported program evaluates expressions that the file holds"
    elif any("/code/" in f"/{name}" for name in members) and "constants.pkl" in last:
        read, why = _torchscript, "TorchScript is a program, which can read and write files"
    if read is _pickled:
        check_pickle(path, trust)
    elif not trust:
        raise InputError("network", path, why, TRUST)
    try:
        return read(path)
    except InputError:
        raise
    except Exception as error:  # pickle's, zipfile's, C++'s: whatever is damaged
        why = f"PyTorch can't read it ({' '.join(str(error).split())[:100]})"
        raise InputError("network", path, why, AGAIN) from None


def _exported(path: Path) -> TorchFile:
    program = torch.export.load(str(path))
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    inputs = []
    for name in program.graph_signature.user_inputs:
        value = values.get(str(name))
        if isinstance(value, torch.Tensor):
            shape = tuple(n if isinstance(n, int) else None for n in value.shape)
            inputs.append(Input(str(name), shape, str(value.dtype).removeprefix("torch.")))
        elif name is not None:
            why = f"its input {name} is not an array"
            raise InputError("network", path, why, "export it with arrays as inputs alone")
    return TorchFile(program.module(), tuple(inputs), positional=True)


def _torchscript(path: Path) -> TorchFile:
    model = torch.jit.load(str(path), map_location="cpu").eval()
    arguments = model.forward.schema.arguments[1:]
    return TorchFile(model, tuple(Input(argument.name, (), "") for argument in arguments))


def _pickled(path: Path) -> TorchFile:
    model = torch.load(str(path), map_location="cpu", weights_only=False)
    if not isinstance(model, torch.nn.Module):
        why = f"it holds a {type(model).__name__}, and weights alone do not define an architecture"
        raise InputError("network", path, why, "save the module itself: torch.save(module, path)")
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(model.forward).parameters.values()
    inputs = tuple(Input(each.name, (), "") for each in parameters if each.kind in named)
    return TorchFile(model.eval(), inputs)


# What watches a function of this library, see ``probe.record.subject``.
RECORDER = TorchRecorder
