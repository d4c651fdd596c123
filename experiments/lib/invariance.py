"""Layers and models whose answers must not depend on the call: what is run, compared and timed.

A subject makes two functions, the library's own and that of the invariant mode, and groups of
inputs: each answer of a group must have the bits of the group's first, whose samples are the same.
``SUBJECTS`` lists where subjects come from, library by library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from probe.case import ulp
from probe.order.summation import ranges_of_mask
from probe.sizes.invariant.classes import Entry, Sizes, mark_of_answers
from probe.sizes.invariant.operations import cancelling_products

SUBJECTS = ("lib.invariance_torch", "lib.invariance_programs")
"""Modules with ``subjects() -> Iterator[Subject]``; each imports its library when asked to make."""

PATIENCE = 2e-3  # s that are timed at a time
MOST_LOOPS = 200


class Question(NamedTuple):
    """One call. ``wanted``: what it must give, made of the group's first answer."""

    size: int
    inputs: tuple[Any, ...]
    wanted: Callable[[np.ndarray], np.ndarray]


class Group(NamedTuple):
    """Calls that must agree with the first. ``before``: sets the weights, if there are several."""

    whole: tuple[Any, ...]
    questions: Iterable[Question]
    before: Callable[[], None] | None = None


@dataclass
class Made:
    """A subject in its library.

    ``plain``, ``invariant``: called with a question's inputs.
    ``read``: an answer as a container array.
    ``axes``: by what is changed, a function that gives groups; its argument: whether a sample of
    the sizes is enough. ``timed``: sizes, and the inputs of one. ``threads``: sets their number, to
    each of ``numbers``; classes are found with the first.
    """

    plain: Callable[..., Any]
    invariant: Callable[..., Any]
    report: Any
    read: Callable[[Any], np.ndarray]
    axes: Mapping[str, Callable[[bool], Iterator[Group]]]
    timed: tuple[Sequence[int], Callable[[int], tuple[Any, ...]]]
    threads: Callable[[int], None]
    numbers: tuple[int, ...] = (2, 1)


@dataclass(frozen=True)
class Subject:
    """What is asked. ``make(like)`` gives it in its library, for ``like`` of the invariant mode."""

    name: str
    target: str
    kind: str
    dtype: str
    make: Callable[[str], Made]
    likes: tuple[str, ...] = ("largest",)


class Compared(NamedTuple):
    """One answer: numbers that must agree, and how many differ in the library and in the mode."""

    size: int
    compared: int
    plain: int
    differing: int


@dataclass
class Counted:
    """What became of an axis. ``kept``: the first answers have the plain library's bits."""

    answers: list[Compared] = field(default_factory=list)
    kept: bool = True

    def columns(self) -> dict[str, Any]:
        """As the columns of ``invariances``."""
        columns: dict[str, Any] = {"kept": self.kept, "sizes": spans(a.size for a in self.answers)}
        columns["compared"] = sum(each.compared for each in self.answers)
        for name in ("plain", "differing"):
            some = [each for each in self.answers if getattr(each, name)]
            columns |= {name: sum(getattr(each, name) for each in some)}
            columns |= {f"{name}_sizes": spans(each.size for each in some)}
        return columns


def spans(sizes: Iterable[int]) -> list[int]:
    """Sizes as start, stop, start, stop, ..."""
    places = sorted({*sizes})
    mask = np.zeros(max(places, default=0) + 1, bool)
    mask[places] = True
    return ranges_of_mask(mask)


def different(y: np.ndarray, wanted: np.ndarray, dtype: str) -> int:
    """How many numbers have different bits; +0 and -0 are different."""
    if ulp.equal(y, wanted, dtype) and y.all() and wanted.all():
        return 0
    return int(np.count_nonzero(ulp.bits_apart(y, wanted, dtype, zeros="differ")))


def counted(made: Made, groups: Iterable[Group], dtype: str) -> Counted:
    """Every answer against the first of its group, in the library and in the invariant mode."""
    found = Counted()
    for group in groups:
        if group.before is not None:
            group.before()
        first = made.read(made.plain(*group.whole))
        mine = made.read(made.invariant(*group.whole))
        found.kept &= not different(mine, first, dtype)
        for size, inputs, wanted in group.questions:
            y, plain = made.read(made.invariant(*inputs)), made.read(made.plain(*inputs))
            counts = (different(plain, wanted(first), dtype), different(y, wanted(mine), dtype))
            found.answers.append(Compared(size, y.size, *counts))
    return found


def timed(made: Made, size: int, repeat: int) -> Iterator[tuple[str, int, float]]:
    """(way, repetition, seconds a call) of all ways in turns; the first turn does not count."""
    inputs = made.timed[1](size)
    ways = {"plain": made.plain, "invariant": made.invariant}
    for way in ways.values():
        way(*inputs)
    start = time.perf_counter()
    made.plain(*inputs)
    loops = max(1, min(MOST_LOOPS, int(PATIENCE / (time.perf_counter() - start))))
    for number in range(repeat + 1):
        for name, way in list(ways.items())[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            for _ in range(loops):
                way(*inputs)
            if number:
                yield name, number, (time.perf_counter() - start) / loops


def subjects() -> Iterator[Subject]:
    """Those of every library."""
    for name in SUBJECTS:
        yield from import_module(name).subjects()


class Backwards:
    """A library in NumPy that adds backwards below a number of rows: what a quick run has."""

    pieces: Sequence[int] = (64,)

    def __init__(self, channels: int, filters: int, turn: int) -> None:
        self.key, self.turn = f"{channels} -> {filters}, backwards below {turn} rows", turn
        self.x, self.w, _ = cancelling_products(101, channels, filters, "float32")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """``x @ w``, one product after the other."""
        order = slice(None, None, 1 if len(x) >= self.turn else -1)
        products = (x[:, :, None] * self.w.astype(np.float32))[:, order]
        added: np.ndarray = np.add.accumulate(products, axis=1, dtype=np.float32)[:, -1]
        return added

    def ready(self, size: int) -> Callable[[], np.ndarray]:
        """As ``operations.IndependentRows.ready``."""
        x = np.repeat(self.x[None].astype(np.float32), size, axis=0)
        return lambda: self(x)

    def mark(self, size: int) -> str:
        """As ``operations.IndependentRows.mark``."""
        return mark_of_answers([(self.ready(size)(), "float32")])


def backwards(channels: int, filters: int, turn: int) -> Subject:
    """The library in NumPy, with the invariant mode's own plans."""

    def make(like: str) -> Made:
        library = Backwards(channels, filters, turn)
        sizes = Sizes(library, Entry(), 1)
        sizes.choose(LARGEST, like, range(1, LARGEST + 1))

        def invariant(x: np.ndarray) -> np.ndarray:
            parts = []
            for start, count, size in sizes.plan(len(x)) or ():
                part = x[start : start + count]
                wide = np.concatenate([part, np.repeat(part[:1], size - count, axis=0)])
                parts.append(library(wide)[:count])
            return np.concatenate(parts)

        def groups(sample: bool) -> Iterator[Group]:
            x = np.repeat(library.x[None].astype(np.float32), LARGEST, axis=0)
            step = 7 if sample else 1
            yield Group((x,), (prefix(x, n) for n in range(1, LARGEST + 1, step)))

        def given(size: int) -> tuple[np.ndarray]:
            return (np.repeat(library.x[None].astype(np.float32), size, axis=0),)

        axes, timed = {"size": groups}, ((1, 4, 16, 32), given)
        return Made(library, invariant, None, np.asarray, axes, timed, lambda threads: None)

    name = f"linear {channels} -> {filters} float32"
    return Subject(name, "reference", "linear", "float32", make, ("largest", "cheapest"))


LARGEST = 80


def prefix(x: Any, size: int) -> Question:
    """The first of equal samples: each must be as the first of all."""
    return Question(size, (x[:size],), lambda whole: np.broadcast_to(whole[:1], whole[:size].shape))
