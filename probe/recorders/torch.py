"""PyTorch, watched by dispatch: every ATen operation, with the path of the module that called it.

A run under a dispatch mode calls the same kernels as one without. A compiled function is one
operation (``compiled_as_one``). What an operation means stands in
:mod:`probe.recorders.torch_meanings`; which value is which, in :mod:`probe.recorders.torch_values`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._dynamo.callback import callback_handler
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from probe.recorders.torch_calls import Call, replaced
from probe.recorders.torch_files import ENDINGS, Opened, read
from probe.recorders.torch_meanings import meaning, skipped, written
from probe.recorders.torch_values import Slot, Values, array, placed, shape, slot_of, tensors
from probe.recording.contract import Again, Event, Seen, Visit
from probe.recording.meaning import Compiled, Meaning

Region = Callable[[Sequence[Any], Callable[[], Any], Sequence[int]], Any]
OUTPUT_CODE = "torch._inductor.output_code"
"""The module of what Inductor compiles; it is large, and stays away until something is compiled."""


@contextmanager
def compiled_as_one(region: Region) -> Iterator[Callable[[], bool]]:
    """Hands every compiled region that runs to ``region(operands, run, changed)`` while entered:
    ``changed`` numbers the operands that it changes in place. Yields a function that says whether
    something is being compiled at the moment.
    """
    with ExitStack() as stack:
        compiling: list[Any] = []

        def begin(args: Any) -> None:
            compiling.append(args)
            _watch(region, stack)

        callback_handler.register_start_callback(begin)
        stack.callback(callback_handler.remove_start_callback, begin)
        end: Callable[[Any], None] = lambda _: compiling.clear()  # noqa: E731
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


COMPILED = "compiled functions are one operation each"


class Recorder:
    """A function of no arguments that computes with PyTorch.

    Gradients are off, as in inference, unless the function itself asks for some: then they are on,
    and what ``backward`` runs is watched too.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = f"torch,threads={torch.get_num_threads()}"
        self.note = ""
        self.gradients = False
        self.told: dict[Hashable, Told] = {}
        self.views: dict[Hashable, str] = {}

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        with torch.set_grad_enabled(self.gradients):
            return [np.array(array(one)) for one in tensors(self.function())]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation. Returns its outputs. Again: it asked
        for gradients, and they are on from now on."""
        mode = _Mode(visit, self.told)
        with self._mode(), compiled_as_one(mode.compiled) as mode.compiling, mode:
            found = self.function()
        self.target = f"torch,threads={torch.get_num_threads()}"  # which the function may set
        if mode.regions and COMPILED not in self.note:
            self.note = "; ".join(filter(None, (self.note, COMPILED)))
        return [mode.values.seen(one) for one in tensors(found)]

    @contextmanager
    def _mode(self) -> Iterator[None]:
        try:
            with torch.set_grad_enabled(self.gradients):
                yield
        except RuntimeError as error:
            if self.gradients or "does not require grad" not in str(error):
                raise
            self.gradients = True
            raise Again from error

    def uncompiled(self) -> Recorder | None:
        """Returns a recorder of the same function without ``torch.compile``."""

        def function() -> Any:
            with torch.compiler.set_stance("force_eager"):
                return self.function()

        return Recorder(function)


IMPORTS = ("import torch",)
RECORD = Recorder.record.__code__
CALL = torch.nn.Module._call_impl.__code__
"""What runs whenever a module is called. Looked for among the frames of Python: hooks on modules
would be compiled into compiled functions, and change them.
"""


class Paths:
    """Where in its model a run is.

    ``inside``: the modules that run, with their frames and paths, as they were at the last
    operation; ``depth``: where in it a frame is. What called a frame never changes, so only those
    that are new have to be looked at. (A frame that is kept keeps its arguments: until the next
    operation begins, no longer.)
    """

    def __init__(self, values: Values) -> None:
        self.values = values
        self.inside: list[tuple[FrameType, torch.nn.Module, str]] = []
        self.depth: dict[FrameType, int] = {}
        self.names: dict[int, str] = {}
        self.roots = list[torch.nn.Module]()

    def now(self) -> str:
        """Returns the path of the innermost module that runs; empty outside and in the
        outermost."""
        frame: FrameType | None = sys._getframe(1)
        fresh, kept = list[FrameType](), 0
        while frame is not None:
            code = frame.f_code
            if code is CALL:
                if frame in self.depth:
                    kept = self.depth[frame] + 1
                    break
                fresh.append(frame)
            elif code is RECORD:
                break
            frame = frame.f_back
        for frame, _, _ in self.inside[kept:]:
            del self.depth[frame]
        del self.inside[kept:]
        for frame in reversed(fresh):
            self._enter(frame)
        return self.inside[-1][2] if self.inside else ""

    def _enter(self, frame: FrameType) -> None:
        """A module has been called by the innermost one so far."""
        module = frame.f_locals["self"]
        if not self.inside and not any(module is root for root in self.roots):
            self._named(module)
        outer, name = self.inside[-1][2] if self.inside else "", self.names.get(id(module))
        path = f"{outer}.{type(module).__name__}".strip(".") if name is None else name
        self.depth[frame] = len(self.inside)
        self.inside.append((frame, module, path))

    def _named(self, root: torch.nn.Module) -> None:
        """A further model of the same run has the name of its class in front."""
        front = f"{type(root).__name__}{len(self.roots)}" if self.roots else ""
        self.roots.append(root)  # alive, so that no other object gets its id
        every: dict[torch.nn.Module, str] = {}
        _tree(root, "", every)
        for module, name in every.items():
            self.names.setdefault(id(module), _joined(front, name))
        for kind in ("_parameters", "_buffers"):
            for module, name in every.items():
                for key, tensor in getattr(module, kind).items():
                    if tensor is not None:
                        self.values.weigh(tensor, _joined(front, f"{name}.{key}"))


def _tree(module: torch.nn.Module, name: str, into: dict[torch.nn.Module, str]) -> None:
    """A module and all in it with their paths, each once: as ``named_modules``, in a third of the
    time, which a model of milliseconds feels."""
    if module not in into:
        into[module] = name
        for key, one in module._modules.items():
            if one is not None:
                _tree(one, f"{name}.{key}", into)


def _joined(front: str, name: str) -> str:
    """Returns a path; what torch.compile puts around a module is left out."""
    return ".".join(part for part in (front, *name.split(".")) if part not in ("", "_orig_mod"))


class Told(NamedTuple):
    """What is said of an operation besides its arrays; the same for all calls that are alike."""

    op: str
    meaning: Meaning
    attributes: dict[str, Any]
    again: Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None
    lines: Callable[[Sequence[str], str], list[str]] | None
    view: Hashable


class _Mode(TorchDispatchMode):
    def __init__(self, visit: Visit, told: dict[Hashable, Told]) -> None:
        super().__init__()
        self.told = told
        self.visit, self.regions = visit, 0
        self.compiling: Callable[[], bool] = lambda: False
        self.values = Values(visit)
        self.paths = Paths(self.values)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled functions run as they are."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.compiling():
            return func(*args, **kwargs)
        call = Call(func, args, kwargs)
        if any(one.is_meta for one in call.tensors):  # shapes without numbers
            return func(*args, **kwargs)
        values = self.values
        changed, wholly = call.changed(), written(call)
        reads = call.tensors
        if wholly:
            reads = [t for t in reads if not any(t is other for other in wholly)]
        if getattr(func, "is_view", False) and any(values.unwritten(one) for one in reads):
            return func(*args, **kwargs)
        path = self.paths.now()
        if changed:
            seen = [values.seen(t, path, any(t is one for one in changed)) for t in reads]
        else:
            seen = [values.seen(t, path) for t in reads]
        given = func(*args, **kwargs)
        every = tensors(given)
        if any(one.is_meta for one in every):
            return given
        every += [t for t in changed if not any(t is one for one in every)]
        if skipped(call):
            values.uninitialised(every)
            return given
        for one in changed:
            values.change(one)
        keys = {one.key for one in seen}
        places = [values.place(one) for one in every]
        at = [n for n, one in enumerate(places) if one.key not in keys]
        if at:
            told = self._told(call, reads, every, at)
            gives = [values.given(every[n], places[n]) for n in at]
            self.visit(
                Event(
                    *(told.op, path, seen, gives, told.meaning, told.attributes),
                    *(told.again, told.lines, IMPORTS, told.view),
                )
            )
        for one in changed:
            values.written(one)
        return given

    def _told(
        self,
        call: Call,
        reads: Sequence[torch.Tensor],
        every: Sequence[torch.Tensor],
        at: Sequence[int],
    ) -> Told:
        """What is said of a call; ``at``: which of the tensors that it gave are new values."""
        call.number(reads)
        call.shapes = [shape(every[n]) for n in at]
        same: Hashable = (call.signature(), tuple(at), len(every), torch.get_num_threads())
        try:
            known = self.told.get(same)
        except (TypeError, NotImplementedError):  # an argument without a hash, or without ==
            known, same = None, None
        if known is not None:
            return known
        call.reads = [slot_of(one) for one in reads]
        again = None if call.random else _again(call, at)
        lines = call.writer() if len(every) == 1 else None
        view = same if getattr(call.func, "is_view", False) else None
        told = Told(call.op, meaning(call), call.attributes(), again, lines, view)
        if same is not None and not call.looked:
            self.told[same] = told
        return told

    def compiled(self, reads: Sequence[Any], run: Callable[[], Any], changed: Sequence[int]) -> Any:
        """Returns one compiled region: an operation that shows nothing of its inside."""
        self.regions += 1
        path = self.paths.now()
        values, into = self.values, [one for one in reads if isinstance(one, torch.Tensor)]
        written = [reads[n] for n in changed if isinstance(reads[n], torch.Tensor)]
        seen = [values.seen(t, path, any(t is one for one in written)) for t in into]
        given = run()
        for one in written:
            values.change(one)
        keys = {one.key for one in seen}
        every = [(one, values.place(one)) for one in (*tensors(given), *written)]
        gives = [values.given(one, place) for one, place in every if place.key not in keys]
        for one in written:
            values.written(one)
        why = "it is compiled, so its operations can't be recorded"
        self.visit(Event("compiled", path, seen, gives, Compiled(why)))
        return given


def _again(call: Call, at: Sequence[int]) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Returns what runs the operation alone, as it was run: operands in memory, and threads."""
    func, slots = call.func, list(call.reads)
    tree, threads = call.tree(), torch.get_num_threads()

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        operands = [placed(a, slot) for a, slot in zip(arrays, slots, strict=True)]
        fill = lambda one: _filled(one, operands) if isinstance(one, Slot) else one  # noqa: E731
        args, kwargs = replaced(tree, fill)
        with torch.no_grad(), _on(threads):
            given = func(*args, **kwargs)
        every = tensors(given)
        changed = Call(func, args, kwargs).changed()
        every += [one for one in changed if not any(one is other for other in every)]
        return [np.array(array(every[n])) for n in at]

    return again


@contextmanager
def _on(threads: int) -> Iterator[None]:
    """Runs on that many threads; then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _filled(slot: Slot, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    if slot.number is None:
        return placed(np.zeros(slot.shape), slot)
    return operands[slot.number]


def opened(path: str | Path, trust: bool = False) -> Opened:
    """Opens a model file. InputError where it isn't one, or needs trust."""
    return read(Path(path), trust, Recorder)


__all__ = ["ENDINGS", "Recorder", "array", "opened", "tensors"]
