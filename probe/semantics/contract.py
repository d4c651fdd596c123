"""What an operation computes: what a meaning says, and several of them in one operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.semantics import mixing
from probe.semantics.labels import Labels, joined, tag

Shapes = Sequence[tuple[int, ...]]
Numbers = Callable[[], np.ndarray]
Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""An operation alone: container arrays of what it reads to those of what it gives."""


class Meaning(ABC):
    """What one operation computes.

    ``word``: the name of what is computed where several libraries or operations have it (``add``,
    ``relu``, ``softmax``), so that a matrix product with a bias and one without it followed by an
    addition are the same; empty: the library's own name of the operation.
    """

    word: str = ""
    notices: bool = False

    def written(self, reads: Shapes, gives: Shapes) -> Meaning:
        """Returns the same in words that a folder on disk has. ``reads``, ``gives``: shapes."""
        return self

    @property
    def exact(self) -> bool:
        """Whether the bits of its results are settled by those of its inputs alone, everywhere: as
        where elements are moved, and in the arithmetic of IEEE 754 element by element. What such
        operations make of integers is labelled by content, which is how masks are known.
        """
        return False

    def parts(self) -> Sequence[Meaning] | None:
        """Returns what an operation computes that is several in one; None of one that is not, or
        whose parts aren't known."""
        return None

    @property
    def rounds(self) -> int | None:
        """How often a result is rounded where its bits follow from what is read, wherever it
        stands: 0 where elements are moved or chosen, 1 of one function that IEEE 754 defines. None:
        the library chooses how it computes it, as an order of additions, or fuses two of those.
        """
        each = [one.rounds for one in self.parts() or ()]
        known = [n for n in each if n is not None]
        return sum(known) if len(each) == len(known) > 0 and sum(known) < 2 else None

    @property
    def sums(self) -> bool:
        """Whether each result is a sum of what is read, or of products, perhaps with more behind:
        then the order of additions says how it is computed."""
        return False

    @abstractmethod
    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        """Returns the labels of every output."""

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        """Returns which elements of a run add nothing (bool), None for none.

        It is asked for while the run goes on, where ``notices`` is True, and is the last argument
        of ``labels`` then. ``reads``, ``gives``: functions that return exact values as float64.
        """
        return None


class LeavesZeros(Meaning):
    """What leaves out the elements of its first result that are exactly zero, where it notices."""

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        zeros: np.ndarray = gives[0]() == 0
        return zeros if zeros.any() else None


class Exact(Meaning):
    """What computes nothing that is rounded in more than one way."""

    @property
    def exact(self) -> bool:
        return True

    @property
    def rounds(self) -> int | None:
        return 0


@dataclass(frozen=True)
class Unknown(Exact):
    """It is unknown what it computes, because ``why``."""

    why: str = ""

    @property
    def rounds(self) -> int | None:
        return None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        every = mixing.whole(reads, what)
        return [mixing.of_one(joined(every, tag(n)), to, False) for n, to in enumerate(shapes)]


@dataclass(frozen=True)
class Compiled(Unknown):
    """A compiled function as one operation; the same function uncompiled says what it computes."""


@dataclass(frozen=True)
class Step:
    """One step of ``Steps``: ``reads``: numbers of what it reads; ``shape``: of what it gives.

    ``more``: shapes of further results; ``op``: what it is called where its meaning has no word:
    the library's name, of an unknown one with its attributes. ``zeros``: what its meaning noticed.
    """

    meaning: Meaning
    reads: tuple[int, ...]
    shape: tuple[int, ...]
    more: tuple[tuple[int, ...], ...] = ()
    op: tuple[str, ...] = ()
    zeros: Any = None

    def labels(self, reads: Sequence[Labels], otherwise: np.uint64) -> list[Labels]:
        """Returns the labels of its results. ``otherwise``: of a step without word and name."""
        words = (self.meaning.word,) if self.meaning.word else self.op
        what, shapes = tag(*words) if words else otherwise, [self.shape, *self.more]
        if self.meaning.notices and self.zeros is not None:
            return self.meaning.labels(reads, shapes, what, self.zeros)  # type: ignore[call-arg]
        return self.meaning.labels(reads, shapes, what)


@dataclass(frozen=True)
class Steps(Meaning):
    """Several steps in one operation: a convolution and its activation, a sum and its norm.

    Numbers of values: first what the operation reads, then what each step gives. ``gives``: the
    numbers of the operation's outputs; empty: the last step's alone. A step that has a ``word`` of
    its own is labelled as the operation of that name is, so fused and separate steps match.
    """

    steps: tuple[Step, ...]
    gives: tuple[int, ...] = ()

    def parts(self) -> Sequence[Meaning]:
        return [one.meaning for one in self.steps]

    @property
    def sums(self) -> bool:
        return bool(self.steps) and self.steps[0].meaning.sums

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        values = list(reads)
        for number, one in enumerate(self.steps):
            given = [values[n] for n in one.reads]
            values += one.labels(given, np.uint64(joined(what, tag(number))[()]))
        return [values[n] for n in self.gives or (len(values) - 1,)]


@dataclass(frozen=True)
class Quantised(Meaning):
    """What computes with integers that stand for other numbers: zero is none of them, as a rule.

    ``reads``, ``gives``: by what scale and zero each stands for them; None of those that don't.
    """

    inner: Meaning
    reads: tuple[Any, ...]
    gives: tuple[Any, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        def meant(one: Labels, scale: Any) -> Labels:
            mark = joined(one.array, tag("quantised", scale))
            return one if scale is None else one._replace(array=mark)

        word = tag(self.inner.word) if self.inner.word else what
        found = self.inner.labels(list(map(meant, reads, self.reads)), shapes, word)
        return list(map(meant, found, self.gives))
