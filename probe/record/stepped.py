"""Runs a model behind a state: a file whose input takes what an output left, or a function
``f(x, state=None)`` that returns ``(y, state)``, where a state is any object, as a cache is.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from probe.case.errors import InputError
from probe.record.contract import Opened, Recorder
from probe.record.inputs import by_name
from probe.record.subject import (
    FunctionSubject,
    Guarded,
    function_recorder,
    guarded,
    nested_leaves,
    parameters,
    run_unwatched,
)

Arrays = Mapping[str, np.ndarray]

STATEFUL = "give a function f(x, state=None) that returns (y, state), or its first state by name"


class Stepped:
    """A model as its pieces call it. ``states``: inputs that take what an output, by its number,
    left; none: it is called without a state."""

    def __init__(self, subject: Opened, states: Mapping[str, Any]) -> None:
        self.subject, self.states = subject, states

    def shown(self, outputs: Sequence[Any]) -> list[Any]:
        """The outputs of a run but for the states."""
        return [output for n, output in enumerate(outputs) if n not in self.states.values()]

    def recorder(self, arrays: Arrays, state: Any = None) -> Recorder:
        """A recorder of one piece behind a state, states being outputs too."""
        repeated = getattr(self.subject, "repeated", self.subject.recorder)
        return repeated({**arrays, **(state or {})})  # type: ignore[no-any-return]

    def advance(self, arrays: Arrays, state: Any) -> tuple[list[np.ndarray], Any]:
        """One piece unwatched: its outputs, and the state that it leaves."""
        outputs = run_unwatched(self.recorder(arrays, state))
        return self.shown(outputs), {name: outputs[n] for name, n in self.states.items()}

    def run(self, arrays: Arrays) -> list[np.ndarray]:
        """The outputs of a piece that stands first."""
        return self.advance(arrays, None)[0]


class SteppedFunction(Stepped):
    """The same of a function: its states stay the objects that it returned, of any kind and
    format, and are copied for each call, which may write into them. ``states``: by the place or
    name of what is returned."""

    subject: FunctionSubject
    last: Any = None

    def shown(self, outputs: Sequence[Any]) -> list[Any]:
        return [*outputs]

    def _called(self, arrays: Arrays, state: Any) -> Callable[[], Any]:
        """What calls it, gives its outputs but for states, and keeps these."""
        subject, states = self.subject, self.states
        values = _values(subject, arrays)
        without_gradients = import_module("torch").no_grad if subject.torch else nullcontext

        def call() -> Any:
            with without_gradients():
                given = copied_state({**values, **(state or {})})
                returned = subject.function(**given)
            self.last = {name: returned[at] for name, at in states.items()}
            if isinstance(returned, Mapping):
                return {n: value for n, value in returned.items() if n not in states.values()}
            return [value for n, value in enumerate(returned) if n not in states.values()]

        return call

    def recorder(self, arrays: Arrays, state: Any = None) -> Recorder:
        recorder = function_recorder(self._called(arrays, state), self.subject.name)
        return Guarded(recorder, self.subject.name)  # type: ignore[return-value]

    def advance(self, arrays: Arrays, state: Any) -> tuple[list[np.ndarray], Any]:
        outputs = run_unwatched(self.recorder(arrays, state))
        return outputs, self.last


def copied_state(state: dict[str, Any]) -> dict[str, Any]:
    """A copy of inputs and states, of any kind, that a call may write into.

    PyTorch refuses to copy a tensor that an operation gave while gradients were on: its numbers are
    copied. InputError: another object in it can't be copied.
    """
    numbers = dict[int, Any]()
    for part in _parts(state, set()):
        if getattr(part, "grad_fn", None) is not None and not part.is_leaf:
            numbers[id(part)] = copy.deepcopy(part.data)
    try:
        return copy.deepcopy(state, numbers)
    except Exception as error:  # whatever an object of the user's raises
        why = f"it can't be copied ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
        raise InputError("state", ", ".join(state), why, "return a state of arrays") from None


def _parts(value: Any, met: set[int]) -> Iterator[Any]:
    """Yields a value and what stands in it: in containers, and in attributes of objects."""
    if id(value) in met or isinstance(value, type | ModuleType | np.ndarray | str | bytes):
        return
    met.add(id(value))
    yield value
    inside = [*value.values()] if isinstance(value, Mapping) else []
    inside += [*value] if isinstance(value, list | tuple | set | deque) else []
    inside += [*getattr(value, "__dict__", {}).values()]
    for part in inside:
        yield from _parts(part, met)


def stepped(
    subject: Opened, arrays: Arrays, along: Sequence[Mapping[str, int]], text: str
) -> Stepped:
    """A model as the pieces of a schedule, ``text``, call it; empty: they have no state.
    InputError: nothing that it leaves is what it takes."""
    if not text:
        return Stepped(subject, {})
    cut = {name for each in along for name in each}
    # a model of Keras in memory takes its inputs together, as a file does
    if isinstance(subject, FunctionSubject) and not subject.inputs:
        values, names = _values(subject, arrays), _names(subject)
        with import_module("torch").no_grad() if subject.torch else nullcontext():
            call = lambda: subject.function(**copied_state(values))  # noqa: E731
            returned = guarded(call, subject.name)
        states = dict[str, Any]()
        takes = [name for name in names if name not in values or name in arrays.keys() - cut]
        if isinstance(returned, Mapping):  # as transformers' models return it
            states = {name: name for name in takes if name in returned}
        else:
            count = len(returned) - 1 if isinstance(returned, tuple | list) else 0
            if 0 < count <= len(takes):
                states = dict(zip(takes, range(1, count + 1), strict=False))
        leaves = nested_leaves(returned)
        if states and not all(isinstance(leaf, np.ndarray) for leaf in leaves):
            return SteppedFunction(subject, states)
        if states:  # NumPy's functions are watched through the arrays that they are given
            return Stepped(subject, states)
    outputs = run_unwatched(subject.recorder(arrays))
    # the first output is what is compared: a state of its shape would be taken for it
    free, found = list(range(1, len(outputs))), dict[str, int]()
    for name in (name for name in arrays if name not in cut):
        like = [n for n in free if _alike(arrays[name], outputs[n])]
        if like:
            found[name] = like[0]
            free.remove(like[0])
    if not found:
        why = f"none of its outputs ({len(outputs)}) is what an input of it takes"
        raise InputError("at", text, why, f"{STATEFUL}; or chunks:C without a state")
    return Stepped(subject, found)


def _names(subject: FunctionSubject) -> list[str]:
    return [each.name for each in parameters(subject.function)]


def _values(subject: FunctionSubject, arrays: Arrays) -> dict[str, Any]:
    """What it is called with, by the names of its parameters."""
    names = _names(subject)
    return subject.values(by_name(names, arrays)[0] if len(arrays) <= len(names) else arrays)


def _alike(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype
