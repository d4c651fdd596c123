"""What an operation computes: what a meaning says, several of them in one, and one call of a
library's operation, as the rows of all libraries' tables are asked what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

Shapes = Sequence[tuple[int, ...]]


class Meaning:
    """What one operation computes.

    ``word``: the name of what is computed where several libraries or operations have it (``add``,
    ``relu``, ``softmax``); empty: the library's own name of the operation.
    """

    word: str = ""

    @property
    def exact(self) -> bool:
        """Whether the bits of its results are settled by those of its inputs alone, everywhere: as
        where elements are moved, and in the arithmetic of IEEE 754 element by element."""
        return False

    @property
    def sums(self) -> bool:
        """Whether each result is a sum of what is read, or of products, perhaps with more behind:
        then the order of additions says how it is computed."""
        return False


@dataclass(frozen=True)
class Moves(Meaning):
    """Elements are moved, copied, chosen or counted: none is rounded. Which go where, the runs
    say."""

    @property
    def exact(self) -> bool:
        return True


@dataclass(frozen=True)
class Same(Moves):
    """Every output is the first input, bit for bit, in other memory: ``clone``."""


@dataclass(frozen=True)
class Reshapes(Moves):
    """The same elements in the same order (row by row), in another shape: view, flatten,
    squeeze."""


@dataclass(frozen=True)
class Turns(Moves):
    """Axes in another order: output axis k is input axis ``axes[k]``."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Passes(Moves):
    """Output n is input ``numbers[n]``."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Unknown(Meaning):
    """It is unknown what it computes, because ``why``."""

    why: str = ""


@dataclass(frozen=True)
class Step:
    """One step of ``Steps``: ``reads``: numbers of what it reads; ``shape``: of what it gives.

    ``more``: shapes of further results.
    """

    meaning: Meaning
    reads: tuple[int, ...]
    shape: tuple[int, ...]
    more: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Steps(Meaning):
    """Several steps in one operation: a convolution and its activation, a sum and its norm.

    Numbers of values: first what the operation reads, then what each step gives. ``gives``: the
    numbers of the operation's outputs; empty: the last step's alone.
    """

    steps: tuple[Step, ...]
    gives: tuple[int, ...] = ()

    @property
    def sums(self) -> bool:
        return bool(self.steps) and self.steps[0].meaning.sums


# calls, and the rows of tables


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
    """An operation with everything that decides what it computes, as a table is asked about it.

    ``op``, ``domain``, ``version``: its name in the library, and of which set and release of
    operations. ``attributes``: arguments that are no arrays, by the names of the library's schema.
    ``reads``: its operands in the schema's order, None where one is left out. ``gives``,
    ``dtypes``: shapes and dtypes of its results.
    """

    op: str
    attributes: Mapping[str, Any]
    reads: Sequence[Operand | None]
    gives: Sequence[tuple[int, ...]]
    dtypes: Sequence[str] = ()
    domain: str = ""
    version: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    @property
    def count(self) -> int:
        """Returns how many arrays the recorded operation reads, one that stands twice twice."""
        return sum(operand is not None and operand.at >= 0 for operand in self.reads)

    def has(self, slot: int) -> bool:
        return slot < len(self.reads) and self.reads[slot] is not None

    def operand(self, slot: int) -> Operand:
        """Returns the operand in a slot. IndexError where there is none."""
        operand = self.reads[slot]
        if operand is None:
            raise IndexError(slot)
        return operand

    def at(self, slot: int) -> int:
        """Returns the place of an operand among the arrays that are read."""
        return self.operand(slot).at

    def places(self, *slots: int) -> tuple[int, ...]:
        """Returns the places of those of these operands that are given."""
        return tuple(self.at(slot) for slot in slots if self.has(slot))

    def shape(self, slot: int = 0) -> tuple[int, ...]:
        return self.operand(slot).shape

    def rank(self, slot: int = 0) -> int:
        return len(self.operand(slot).shape)

    def dtype(self, slot: int = 0) -> str:
        return self.operand(slot).dtype

    def value(self, slot: int) -> np.ndarray:
        """Returns what an operand holds. NotSettled where floating-point numbers decide it."""
        content = self.operand(slot).content
        if content is None:
            raise NotSettled(f"{self.op} reads sizes or indices that floating-point numbers decide")
        return content()

    def integers(self, slot: int) -> list[int]:
        """Returns the integers of an operand, flat. NotSettled as of ``value``."""
        flat: list[int] = self.value(slot).reshape(-1).tolist()
        return flat


def left_out(slots: Sequence[Any]) -> list[int]:
    """Returns which slots are empty ahead of one that isn't."""
    last = max((n for n, held in enumerate(slots) if held is not None), default=0)
    return [n for n, held in enumerate(slots[:last]) if held is None]


def positions(slots: Sequence[Any], reads: Sequence[Any]) -> list[int]:
    """Returns the place of what stands in each slot among the arrays that are read, in the order of
    the slots; -1 of what isn't read. A value that stands twice has two places."""
    places, at = [], 0
    for value in slots:
        read = at < len(reads) and value == reads[at]
        places.append(at if read else -1)
        at += read
    return places


# A row of a library's table: what a call of this operation computes.
Row = Callable[..., Meaning]

C = TypeVar("C", bound=Call)
R = TypeVar("R", bound=Row)


class OperationTable(dict[str, Row]):
    """A library's table: a row for each operation, by its name."""

    def row(self, names: str | Iterable[str]) -> Callable[[R], R]:
        """Returns a decorator: a function of a call is the row of these operations. Of names with
        words it is called with the word too."""

        def put(row: R) -> R:
            self.update(worded(names, row) if isinstance(names, Mapping) else rows_for(names, row))
            return row

        return put


def by_table(table: Mapping[str, Callable[[C], Meaning]], call: C) -> Meaning:
    """Returns what a call computes by a library's table; ``Unknown`` with the reason where nothing
    is described, or what is described isn't this."""
    row = table.get(call.op)
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


def word_list(words: str) -> dict[str, str]:
    """Returns names of operations with what they compute, from ``"ABS POW:power"``: without a colon
    it is the name itself in small letters."""
    every = (text.partition(":") for text in words.split())
    return {name: word or name.lower() for name, _, word in every}


def rows_for(names: Iterable[str] | str, row: Row) -> dict[str, Row]:
    """Returns the same row for several operations."""
    return dict.fromkeys(names.split() if isinstance(names, str) else names, row)


def worded(words: Mapping[str, str], row: Callable[[Any, str], Meaning]) -> dict[str, Row]:
    """Returns a row for each of ``word_list``, of the call and its word."""
    return {name: lambda call, word=word: row(call, word) for name, word in words.items()}


class StepBuilder:
    """Puts together what computes step by step: values have numbers, first what an operation reads,
    then what each step gives."""

    def __init__(self, count: int) -> None:
        self.steps: list[Step] = []
        self.count = count

    def add(self, meaning: Meaning, reads: Iterable[int], *gives: tuple[int, ...]) -> int:
        """Adds a step that gives these shapes. Returns the number of its first result."""
        self.steps.append(Step(meaning, tuple(reads), gives[0], gives[1:]))
        self.count += len(gives)
        return self.count - len(gives)

    def done(self, *gives: int) -> Steps:
        """Returns all steps. ``gives``: numbers of the results; none: the last step's alone."""
        return Steps(tuple(self.steps), gives)


def then(call: Call, first: Meaning, *behind: Meaning | tuple[Meaning, int]) -> Meaning:
    """Returns an operation and what it does behind, one step after the other, as in an epilogue: a
    function of what is there, or one with an operand in the slot that is named beside it."""
    if not behind or isinstance(first, Unknown):
        return first
    build = StepBuilder(call.count)
    if isinstance(first, Steps) and first.steps:
        build.steps += first.steps
        build.count += sum(1 + len(step.more) for step in first.steps)
    else:
        build.add(first, range(call.count), call.gives[0])
    for item in behind:
        meaning, *slots = item if isinstance(item, tuple) else (item,)
        build.add(meaning, (build.count - 1, *map(call.at, slots)), call.gives[0])
    return build.done()
