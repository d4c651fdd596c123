"""PyTorch, watched by dispatch: every ATen operation, with the path of the module that called it.

A run under a dispatch mode calls the same kernels as one without. A compiled function is one
operation (:mod:`probe.recording.torch_compiled`). What an operation means stands in
:mod:`probe.recording.torch_meanings`; which value is which, in :mod:`probe.recording.torch_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from probe.recording.contract import Event, Seen, Visit
from probe.recording.meaning import Unknown
from probe.recording.torch_calls import Call
from probe.recording.torch_compiled import compiled_as_one
from probe.recording.torch_files import ENDINGS, opened
from probe.recording.torch_meanings import meaning, skipped, written
from probe.recording.torch_values import Slot, Values, array, placed, slot_of

COMPILED = "compiled functions are one operation each"


class Recorder:
    """A function of no arguments that computes with PyTorch; gradients are off, as in inference."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = f"torch,threads={torch.get_num_threads()}"
        self.note = ""

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        with torch.no_grad():
            return [np.array(array(one)) for one in tensors(self.function())]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation. Returns its outputs."""
        mode = _Mode(visit)
        with torch.no_grad(), mode.paths.watched(), compiled_as_one(mode.compiled), mode:
            found = self.function()
        self.note = COMPILED if mode.regions else ""
        return [mode.values.seen(one) for one in tensors(found)]


def tensors(found: Any) -> list[torch.Tensor]:
    """Returns the tensors in whatever a function returned, in order: in tuples, dictionaries,
    dataclasses and objects with attributes, such as the outputs of transformers' models."""
    every: list[torch.Tensor] = []
    _gather(found, every, set())
    return every


def _gather(found: Any, every: list[torch.Tensor], met: set[int]) -> None:
    if isinstance(found, torch.Tensor):
        every.append(found)
    elif isinstance(found, dict):
        for one in found.values():
            _gather(one, every, met)
    elif isinstance(found, list | tuple | set | frozenset):
        for one in found:
            _gather(one, every, met)
    elif hasattr(found, "__dict__") and not isinstance(found, torch.nn.Module | type):
        if id(found) not in met:
            met.add(id(found))
            _gather(vars(found), every, met)


class Paths:
    """Where in its model a run is, by hooks before and behind every module's forward."""

    def __init__(self, values: Values) -> None:
        self.values, self.stack = values, list[str]()
        self.names: dict[int, str] = {}
        self.roots = list[torch.nn.Module]()

    @property
    def now(self) -> str:
        """The path of the innermost module that runs; empty outside and in the outermost."""
        return self.stack[-1] if self.stack else ""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Has hooks on all modules as long as it is entered."""
        hooks = torch.nn.modules.module
        with ExitStack() as stack:
            for handle in (
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
            ):
                stack.callback(handle.remove)
            yield

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if not self.stack and not any(module is root for root in self.roots):
            self._named(module)
        above = f"{self.now}." if self.now else ""
        self.stack.append(self.names.get(id(module), f"{above}{type(module).__name__}"))

    def _leave(self, *_: Any) -> None:
        self.stack.pop()

    def _named(self, root: torch.nn.Module) -> None:
        """A further model of the same run has the name of its class in front."""
        front = f"{type(root).__name__}{len(self.roots)}" if self.roots else ""
        self.roots.append(root)  # alive, so that no other object gets its id
        for name, module in root.named_modules():
            self.names.setdefault(id(module), ".".join(filter(None, (front, name))))
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            self.values.weigh(tensor, ".".join(filter(None, (front, name))))


class _Mode(TorchDispatchMode):
    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self.visit, self.regions = visit, 0
        self.values = Values(visit)
        self.paths = Paths(self.values)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = Call(func, args, kwargs)
        values = self.values
        changed, wholly = call.changed(), written(call)
        reads = [t for t in call.tensors if not any(t is other for other in wholly)]
        seen = [values.seen(t, self.paths.now, any(t is one for one in changed)) for t in reads]
        given = func(*args, **kwargs)
        every = tensors(given)
        every += [t for t in changed if not any(t is one for one in every)]
        if skipped(call):
            values.uninitialised(every)
            return given
        for one in changed:
            values.change(one)
        keys = {one.key for one in seen}
        fresh = [one for one in every if values.key(one) not in keys]
        if fresh:
            self._visit(call, reads, seen, fresh, every)
        for one in changed:
            values.written(one)
        return given

    def _visit(
        self,
        call: Call,
        reads: Sequence[torch.Tensor],
        seen: Sequence[Seen],
        fresh: Sequence[torch.Tensor],
        every: Sequence[torch.Tensor],
    ) -> None:
        call.reads = [slot_of(one) for one in reads]
        call.number(reads)
        call.shapes = [tuple(one.shape) for one in fresh]
        at = [n for n, one in enumerate(every) if any(one is other for other in fresh)]
        gives = [self.values.given(one) for one in fresh]
        again = None if call.random else _again(call, at)
        self.visit(
            Event(
                *(call.op, self.paths.now, seen, gives, meaning(call), call.attributes()),
                *(again, call.writer() if len(every) == 1 else None, ("import torch",)),
            )
        )

    def compiled(self, reads: Sequence[Any], run: Callable[[], Any], name: str) -> Any:
        """One compiled region: an operation that nobody can look into."""
        self.regions += 1
        into = [one for one in reads if isinstance(one, torch.Tensor)]
        seen = [self.values.seen(one, self.paths.now) for one in into]
        given = run()
        fresh = tensors(given)
        gives = [self.values.given(one) for one in fresh]
        why = "it is compiled, and what happens inside can't be watched"
        self.visit(Event(name, self.paths.now, seen, gives, Unknown(why)))
        return given


def _again(call: Call, at: Sequence[int]) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """What runs the operation alone, on operands that lie in memory as the recorded ones did."""
    func, slots = call.func, list(call.reads)
    tree = call.tree()

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        operands = [placed(a, slot) for a, slot in zip(arrays, slots, strict=True)]
        fill = lambda one: _filled(one, operands) if isinstance(one, Slot) else one  # noqa: E731
        args, kwargs = tree_map(fill, tree, is_leaf=lambda one: isinstance(one, Slot))
        with torch.no_grad():
            given = func(*args, **kwargs)
        every = tensors(given)
        tensors_in = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        changed = Call(func, args, kwargs).changed() if tensors_in else []
        every += [one for one in changed if not any(one is other for other in every)]
        return [np.array(array(every[n])) for n in at]

    return again


def _filled(slot: Slot, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    if slot.number is None:
        return placed(np.zeros(slot.shape), slot)
    return operands[slot.number]


__all__ = ["ENDINGS", "Recorder", "array", "opened", "tensors"]
