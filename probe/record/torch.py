"""PyTorch, watched by dispatch: every ATen operation, with the path of the module that called it.

A run under a dispatch mode calls the same kernels as one without. A compiled function is one
operation (``compiled_as_one``). What an operation means stands in
:mod:`probe.record.torch_calls`; which value is which, in
:mod:`probe.record.torch_values`.
"""

from __future__ import annotations

import copy
import inspect
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from probe.case.errors import InputError
from probe.order.semantics import Several, Unknown
from probe.record.contract import Input, Operation, Said, Seen, Visit
from probe.record.recording import array_digest
from probe.record.torch_calls import (
    aten_call,
    changed_by,
    meaning,
    op_facts,
)
from probe.record.torch_values import (
    CALL,
    TorchDispatchMode,
    Values,
    array,
    called_for,
    compiled_as_one,
    is_strided,
    tensors,
    weights_of,
)
from probe.targets.trust import check_pickle

COMPILED = "compiled functions are one operation each"


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
        """Runs it, and calls ``visit`` behind each operation. Returns its outputs."""
        mode = _Mode(self, visit)
        compiled = compiled_as_one(mode.compiled)
        with torch.set_grad_enabled(self.gradients), compiled as mode.compiling, mode:
            result = self.function()
        # a function may set the threads for what it does, and set them back
        self.target = f"torch,threads={mode.threads or torch.get_num_threads()}"
        if mode.regions and COMPILED not in self.note:
            self.note = "; ".join(filter(None, (self.note, COMPILED)))
        read, place = mode.values.read, mode.values.place
        return [read(output, place(output), "") for output in tensors(result, beside=True)]


IMPORTS = ("import torch",)
RECORD, STEP = TorchRecorder.record.__code__, torch.optim.Optimizer.profile_hook_step(id).__code__
BACKWARD = "backward"


def _module_path(front: str, name: str) -> str:
    """Returns a path; what torch.compile puts around a module is left out."""
    return ".".join(part for part in (front, *name.split(".")) if part not in ("", "_orig_mod"))


class Paths:
    """Where in its model a run is. ``paths``: of all modules of the models that have run, by id:
    ``roots`` keeps them alive."""

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
        return f"{BACKWARD}.{path}".strip(".")

    def now(self) -> str:
        """Returns the path of the innermost module that runs; empty outside and in the
        outermost."""
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
        for name, module in root.named_modules():
            self.paths.setdefault(id(module), _module_path(front, name))
            for key, tensor in weights_of(module):
                self.values.weigh(tensor, _module_path(front, f"{name}.{key}"))


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
        tensors_in = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if self.compiling() or any(tensor.is_meta for tensor in tensors_in):
            return func(*args, **kwargs)  # a meta tensor is a shape without numbers
        known, values = op_facts(func), self.values
        # inference mode alone shows such an operation in the place of those that it calls
        if known.of_others and all(map(is_strided, tensors_in)):
            return called_for(func, args, kwargs, self)
        into, read = changed_by(known, args, kwargs)
        reads = [tensor for tensor, is_read in zip(tensors_in, read, strict=True) if is_read]
        places = [values.place(tensor) for tensor in reads]
        if known.view and any(map(values.unwritten, places)):
            return func(*args, **kwargs)
        path, both = self.paths.now(), zip(reads, places, strict=True)
        path = self.paths.phase(path) if self.recorder.gradients else path
        seen = [values.read(tensor, at, path, _is_among(tensor, into)) for tensor, at in both]
        states = _states(kwargs.get("generator")) if known.random else ()
        result = func(*args, **kwargs)
        every = tensors(result)
        returned = len(every)
        every += [tensor for tensor in into if not _is_among(tensor, every)]
        if any(tensor.is_meta for tensor in every):
            return result
        if known.empty:
            values.allocated(every)
            return result
        for tensor in into:
            values.change(values.place(tensor))
        after, keys = [values.place(tensor) for tensor in every], [place.key for place in places]
        at = [n for n, place in enumerate(after) if place.key not in keys]
        if at:
            self.threads = self.threads or torch.get_num_threads()
            call, lines, again = aten_call(func, args, kwargs, every, returned, at)
            op = str(func).removesuffix(".default")
            said = Said(meaning(call), call.shown(), again, lines, IMPORTS)
            gives = [values.given(every[n], after[n]) for n in at]
            if states and said.again is None:  # the same numbers come from the same states alone
                drawn = [array_digest(state.numpy()) for state in states]
                drawn = [str([tuple(tensor.shape) for tensor in every]), *drawn]
                said = said._replace(attributes={**said.attributes, "drawn": drawn})
            if isinstance(said.meaning, Several) and len(said.meaning.each) == len(gives):
                for number, given in enumerate(gives):
                    name, one = _one_of(said, said.meaning, number)
                    self.visit(Operation(f"{op}.{name}", path, seen, [given], *one))
            else:
                self.visit(Operation(op, path, seen, gives, *said))
        for tensor in into:
            values.written(tensor)
        return result

    def compiled(self, reads: Sequence[Any], run: Callable[[], Any], changed: Sequence[int]) -> Any:
        """Returns one compiled region: an operation that shows nothing of its inside."""
        self.regions += 1
        path, values, place = self.paths.now(), self.values, self.values.place
        into = [reads[n] for n in changed if isinstance(reads[n], torch.Tensor)]
        arrays = [tensor for tensor in reads if isinstance(tensor, torch.Tensor)]
        seen = [values.read(t, place(t), path, _is_among(t, into)) for t in arrays]
        result = run()
        for tensor in into:
            values.change(place(tensor))
        keys = {value.key for value in seen}
        every = [(tensor, place(tensor)) for tensor in (*tensors(result), *into)]
        gives = [values.given(tensor, at) for tensor, at in every if at.key not in keys]
        for tensor in into:
            values.written(tensor)
        why = "it is compiled, so its operations can't be recorded"
        self.visit(Operation("compiled", path, seen, gives, Unknown(why)))
        return result


def _one_of(said: Said, meaning: Several, number: int) -> tuple[str, Said]:
    """The name of one of several results of a call, and what is said of it."""
    again, lines = said.again, said.lines
    name, inner = meaning.each[number]

    def one(names: Sequence[str], result: str) -> list[str]:
        assert lines is not None
        return [*lines(names, result), f"{result} = {result}[{number}]"]

    alone = None if again is None else lambda arrays: [again(arrays)[number]]
    return name, said._replace(meaning=inner, again=alone, lines=lines and one)


def _states(chosen: torch.Generator | None) -> list[torch.Tensor]:
    """Returns the states of what an operation may draw random numbers from."""
    every = [chosen] if chosen is not None else [torch.default_generator]
    if chosen is None and torch.cuda.is_initialized():
        every += torch.cuda.default_generators
    return [generator.get_state() for generator in every]


def _is_among(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(tensor is other for other in others)


# Model files: exported programs, TorchScript, pickled modules. All of them are code. A pickle calls
# whatever it names. Reading an exported program evaluates its expressions of sizes (SymPy's
# ``sympify``, which is Python's ``eval``: a file that makes a folder when it is read takes one
# edited line), and falls back to plain pickles for what it holds besides. TorchScript can open and
# write files (``torch.from_file``). PyTorch's documentation says of each: never from a stranger. So
# none is opened without ``trust``. Seen with PyTorch 2.13.

STATE = "every run starts with a fresh copy of the model, which keeps a state"
TRUST = "if you trust where it comes from, give --trust"
AGAIN = "save the model again, with torch.export.save, torch.jit.save or torch.save(module)"


class OpenedTorch:
    """A model of a file. ``inputs``: by name; TorchScript and a pickled module say nothing of
    shapes and formats: then ``shape`` is empty and ``dtype`` is ``""``. ``positional``: the names
    are not those of its arguments.
    """

    def __init__(self, path: Path, model: Callable[..., Any], inputs: tuple[Input, ...]) -> None:
        self.path, self.model, self.inputs = path, model, inputs
        self.positional = False

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Returns a recorder of the model with these inputs; it says itself which don't fit."""
        arguments = dict[str, torch.Tensor]()
        for own in (own for own in self.inputs if own.name in arrays):
            plain = torch.from_numpy(np.array(arrays[own.name]))
            bits = own.dtype == "bfloat16" and plain.dtype == torch.uint16
            arguments[own.name] = plain.view(torch.bfloat16) if bits else plain

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


def opened(path: str | Path, trust: bool = False) -> OpenedTorch:
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


def _exported(path: Path) -> OpenedTorch:
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
    loaded = OpenedTorch(path, program.module(), tuple(inputs))
    loaded.positional = True
    return loaded


def _torchscript(path: Path) -> OpenedTorch:
    model = torch.jit.load(str(path), map_location="cpu").eval()
    arguments = model.forward.schema.arguments[1:]
    return OpenedTorch(path, model, tuple(Input(argument.name, (), "") for argument in arguments))


def _pickled(path: Path) -> OpenedTorch:
    model = torch.load(str(path), map_location="cpu", weights_only=False)
    if not isinstance(model, torch.nn.Module):
        why = f"it holds a {type(model).__name__}, and weights alone do not define an architecture"
        raise InputError("network", path, why, "save the module itself: torch.save(module, path)")
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    every = inspect.signature(model.forward).parameters.values()
    plain = [param for param in every if param.kind in named]
    return OpenedTorch(path, model.eval(), tuple(Input(param.name, (), "") for param in plain))


# What watches a function of this library, see ``probe.record.subject``.
RECORDER = TorchRecorder
