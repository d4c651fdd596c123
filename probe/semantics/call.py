"""One call of a library's operation, as the rows of all libraries' tables are asked what it
computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from probe.semantics.contract import Meaning, Run, Step, Steps, Unknown


class Operand(NamedTuple):
    """An array that a call is given. ``at``: its place among the arrays that the recorded operation
    reads, -1 where it isn't one of them; ``content``: gives its array where that is a constant or
    comes from integers alone, else None."""

    at: int
    shape: tuple[int, ...]
    dtype: str
    content: Callable[[], np.ndarray] | None = None


class NotSettled(Exception):
    """What an operation computes depends on numbers that aren't known, or is not described."""


@dataclass(frozen=True)
class Call:
    """An operation with everything that decides what it computes.

    ``op``, ``domain``, ``version``: its name in the library, and of which set and release of
    operations. ``attributes``: arguments that are no arrays, by the names of the library's schema.
    ``reads``: its operands in the schema's order, None where one is left out. ``gives``,
    ``dtypes``: shapes and dtypes of its results. ``run``: the operation alone, as of a recorded
    ``Operation``: arrays in the order of ``at`` to results.
    """

    op: str
    attributes: Mapping[str, Any]
    reads: Sequence[Operand | None]
    gives: Sequence[tuple[int, ...]]
    dtypes: Sequence[str] = ()
    domain: str = ""
    version: int = 0
    run: Run | None = field(default=None, compare=False)

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Returns an attribute, ``default`` where it isn't given."""
        return self.attributes.get(name, default)

    @property
    def count(self) -> int:
        """Returns how many arrays the recorded operation reads, one that stands twice twice."""
        return sum(one is not None and one.at >= 0 for one in self.reads)

    def has(self, slot: int) -> bool:
        """Returns whether it has an operand in this slot."""
        return slot < len(self.reads) and self.reads[slot] is not None

    def operand(self, slot: int) -> Operand:
        """Returns the operand in a slot. IndexError where there is none."""
        found = self.reads[slot]
        if found is None:
            raise IndexError(slot)
        return found

    def at(self, slot: int) -> int:
        """Returns the place of an operand among the arrays that are read."""
        return self.operand(slot).at

    def places(self, *slots: int) -> tuple[int, ...]:
        """Returns the places of those of these operands that are given."""
        return tuple(self.at(slot) for slot in slots if self.has(slot))

    def shape(self, slot: int = 0) -> tuple[int, ...]:
        """Returns the shape of an operand."""
        return self.operand(slot).shape

    def rank(self, slot: int = 0) -> int:
        """Returns how many axes an operand has."""
        return len(self.operand(slot).shape)

    def dtype(self, slot: int = 0) -> str:
        """Returns the dtype of an operand."""
        return self.operand(slot).dtype

    def value(self, slot: int) -> np.ndarray:
        """Returns what an operand holds. NotSettled where floating-point numbers decide it."""
        content = self.operand(slot).content
        if content is None:
            raise NotSettled(f"{self.op} reads sizes or indices that floating-point numbers decide")
        return content()

    def integers(self, slot: int) -> list[int]:
        """Returns the integers of an operand, flat. NotSettled as of ``value``."""
        found: list[int] = self.value(slot).reshape(-1).tolist()
        return found

    def numbers(self, *names: str) -> tuple[Any, ...]:
        """Returns attributes as numbers of a meaning: these, or all, with their names."""
        every = {name: self.attributes.get(name) for name in names} if names else self.attributes
        return tuple(sorted((name, str(one)) for name, one in every.items()))


def positions(slots: Sequence[Any], reads: Sequence[Any]) -> list[int]:
    """Returns the place of what stands in each slot among the arrays that are read, in the order of
    the slots; -1 of what isn't read. A value that stands twice has two places."""
    found, at = [], 0
    for one in slots:
        read = at < len(reads) and one == reads[at]
        found.append(at if read else -1)
        at += read
    return found


Row = Callable[[Call], Meaning]
"""A row of a library's table: what a call of this operation computes."""


C = TypeVar("C", bound=Call)


def meaning(rows: Mapping[str, Callable[[C], Meaning]], call: C) -> Meaning:
    """Returns what a call computes by a library's table; ``Unknown`` with the reason where nothing
    is described, or what is described isn't this."""
    row = rows.get(call.op)
    if row is None:
        return Unknown(f"{call.op} is not described in probe")
    try:
        return row(call)
    except NotSettled as error:
        return Unknown(str(error))
    # a row indexes attributes and axes as they are in all calls that it describes: what has others
    # isn't described
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError):
        return Unknown(f"{call.op} has attributes that are not described in probe")


def named(words: str) -> dict[str, str]:
    """Returns names of operations with what they compute, from ``"ABS POW:power"``: without a colon
    it is the name itself in small letters."""
    every = (one.partition(":") for one in words.split())
    return {name: word or name.lower() for name, _, word in every}


def rows(names: Iterable[str] | str, one: Row) -> dict[str, Row]:
    """Returns the same row for several operations."""
    return dict.fromkeys(names.split() if isinstance(names, str) else names, one)


def worded(words: Mapping[str, str], one: Callable[[Call, str], Meaning]) -> dict[str, Row]:
    """Returns a row for each of ``named``, of the call and its word."""

    def of(word: str) -> Row:
        return lambda call: one(call, word)

    return {name: of(word) for name, word in words.items()}


def reading(call: Call, one: Meaning, *slots: int) -> Meaning:
    """Returns an operation that reads only these operands as arrays, in this order: what its others
    hold (sizes, axes, indices) is in the meaning. Those that are left out are skipped."""
    places = call.places(*slots)
    if places == tuple(range(call.count)):
        return one
    shape, *more = call.gives
    count = call.count
    step = Step(one, places, shape, tuple(more))
    return Steps((step,), tuple(range(count, count + len(call.gives))) if more else ())


def chain(call: Call, first: Meaning, *behind: Meaning | tuple[Meaning, int]) -> Meaning:
    """Returns an operation and what it does behind, one step after the other, as in an epilogue: a
    function of what is there, or one with an operand in the slot that is named beside it."""
    if not behind or isinstance(first, Unknown):
        return first
    count, shape = call.count, call.gives[0]
    steps = first.steps if isinstance(first, Steps) else ()
    steps = steps or (Step(first, tuple(range(count)), shape),)
    for one in behind:
        last = count + sum(1 + len(step.more) for step in steps) - 1
        if isinstance(one, tuple):
            steps = (*steps, Step(one[0], (last, call.at(one[1])), shape))
        else:
            steps = (*steps, Step(one, (last,), shape))
    return Steps(steps)
