"""A node of a model file as its meaning is asked for: attributes, shapes, and constants that it
reads; and a model file that is one operation, as its nodes can't be run one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probe import ulp
from probe.recording.contract import INPUT, Event, Seen, Visit
from probe.semantics import Unknown


class Fact(NamedTuple):
    """An input of a node. ``at``: its place among the arrays of the event; ``content``: its array
    where it is a constant or comes from integers alone, else None."""

    at: int
    shape: tuple[int, ...]
    dtype: str
    content: Callable[[], np.ndarray] | None


class NotSettled(Exception):
    """What an operator means depends on numbers that are computed from floating-point ones."""


@dataclass(frozen=True)
class Call:
    """A node. ``words``: its attributes; ``reads``: its inputs, None where one is left out;
    ``gives``: the shapes of its outputs; ``dtypes``: theirs, where they are known."""

    op: str
    domain: str
    words: dict[str, Any]
    reads: list[Fact | None]
    gives: list[tuple[int, ...]]
    opset: int
    dtypes: Sequence[str] = ()

    @property
    def slots(self) -> int:
        """Returns inputs that are written, those that are left out among them."""
        return len(self.reads)

    @property
    def count(self) -> int:
        """Returns arrays that the event reads."""
        return sum(one is not None for one in self.reads)

    def has(self, number: int) -> bool:
        """Returns whether the node has an input of this number."""
        return number < len(self.reads) and self.reads[number] is not None

    def _fact(self, number: int) -> Fact:
        found = self.reads[number]
        if found is None:
            raise IndexError(number)
        return found

    def at(self, number: int) -> int:
        """Returns the place of an input among the arrays of the event."""
        return self._fact(number).at

    def shape(self, number: int) -> tuple[int, ...]:
        """Returns the shape of an input."""
        return self._fact(number).shape

    def rank(self, number: int) -> int:
        """Returns the number of axes of an input."""
        return len(self._fact(number).shape)

    def dtype(self, number: int) -> str:
        """Returns the dtype of an input."""
        return self._fact(number).dtype

    def value(self, number: int) -> np.ndarray:
        """Returns numbers of an input. NotSettled where they depend on floating-point numbers."""
        content = self._fact(number).content
        if content is None:
            raise NotSettled(f"{self.op} reads sizes or indices that floating-point numbers decide")
        return content()

    def numbers(self, name: str, number: int) -> list[int] | None:
        """Integers of an attribute, or of an input in newer versions; None where neither is
        given."""
        if self.has(number):
            found: list[int] = self.value(number).reshape(-1).tolist()
            return found
        given = self.words.get(name)
        return None if given is None else [int(one) for one in given]


class Nodes(ABC):
    """What the recorders of model files share, whose nodes run one by one: where that changes bits
    or can't be, the model is one operation.

    ``inputs``: arrays by name; ``note``: empty, or why it is one operation.
    """

    inputs: dict[str, np.ndarray]
    note: str
    whole: bool

    @abstractmethod
    def plain(self) -> list[np.ndarray]:
        """Runs the model unwatched."""

    @abstractmethod
    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> Nodes:
        """Returns a recorder of the same model with other inputs."""

    def give_up(self, why: str) -> None:
        """From here on the model is one operation."""
        self.whole = True
        self.note = f"the model is one operation: {why}"

    def as_one(self, visit: Visit) -> list[Seen]:
        """Runs the model as one operation."""

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            return self.with_inputs(dict(zip(self.inputs, arrays, strict=True))).plain()

        found = self.plain()
        reads = [_of_array(name, one) for name, one in self.inputs.items()]
        gives = [_of_array(f"output {n}", one) for n, one in enumerate(found)]
        visit(Event("model", "", reads, gives, Unknown(self.note), {}, again))
        return gives


def _of_array(name: str, array: np.ndarray) -> Seen:
    return Seen(name, array.shape, str(array.dtype), lambda: array, INPUT, name)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two outputs of a model have the same shape, type and bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind == "f":
        return ulp.equal(one, other, str(one.dtype))
    return bool(np.array_equal(one, other))
