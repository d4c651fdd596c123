"""A node of a model file as its meaning is asked for: attributes, shapes, and constants that it
reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


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
    ``gives``: the shapes of its outputs."""

    op: str
    domain: str
    words: dict[str, Any]
    reads: list[Fact | None]
    gives: list[tuple[int, ...]]
    opset: int

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
