"""Searches greedily for a smaller value that still fails; knows nothing about the values.

After Hypothesis' shrinker (MacIver and Donaldson, "Test-Case Reduction via Test-Case Generation",
ECOOP 2020): ``consider`` is the only door to the predicate, what was seen is not asked again, and
every step starts with its largest reduction, so that a step that works saves all smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from probe import budget


class Shrinkable(Protocol):
    """What can be shrunk: anything with a key; equal keys mean equal answers."""

    @property
    def key(self) -> Hashable:
        """Equal for values that need not both be asked."""


T = TypeVar("T", bound=Shrinkable)


class ShrinkStep(NamedTuple, Generic[T]):
    """One way of making a value smaller: candidates from the smallest one up.

    Each candidate is smaller than the value in some respect and larger in none, so that every
    sequence of steps ends.
    """

    name: str
    candidates: Callable[[T], Iterable[T]]


class Passed(NamedTuple, Generic[T]):
    """A candidate that did not fail, and the step that made it."""

    step: str
    value: T


class Spent(Exception):
    """The budget of calls is used up."""


class Search(Generic[T]):
    """A failing value, reduced by steps until no single one keeps the failure.

    ``fails(value)``: the predicate, which may be exchanged between steps. ``most``: how often it
    may be called. ``tell(calls, best)`` hears of every call. ``calls`` and ``best`` are true at all
    times, also where an exception ends a step.
    """

    def __init__(
        self,
        start: T,
        fails: Callable[[T], bool],
        most: int,
        tell: Callable[[int, T], None] | None = None,
    ) -> None:
        self.best, self.fails, self.most, self.calls = start, fails, most, 0
        self._tell = tell
        self._seen: set[Hashable] = {start.key}
        self._passed: set[Hashable] = set()

    def ask(self, value: T) -> bool:
        """Returns what the predicate says. Raises Spent where no call or no time is left."""
        if self.calls >= self.most or (self.calls and budget.spent()):
            raise Spent
        self.calls += 1
        failed = self.fails(value)
        if self._tell is not None:
            self._tell(self.calls, self.best)
        return failed

    def consider(self, candidate: T) -> bool:
        """Returns whether the candidate fails; then it is the best.
        Seen before: False, at no cost."""
        if candidate.key in self._seen:
            return False
        failed = self.ask(candidate)
        self._seen.add(candidate.key)
        if failed:
            self.best = candidate
        else:
            self._passed.add(candidate.key)
        return failed

    def exhaust(self, steps: Iterable[ShrinkStep[T]]) -> None:
        """Takes every step as often as it helps, until none of them does. Raises Spent."""
        steps, changed = list(steps), True
        while changed:
            changed = False
            for step in steps:
                while self._take(step):
                    changed = True

    def near(self, steps: Iterable[ShrinkStep[T]]) -> list[Passed[T]]:
        """Returns what single steps lead to from the best and what did not fail. Asks nothing."""
        return [
            Passed(step.name, one)
            for step in steps
            for one in step.candidates(self.best)
            if one.key in self._passed
        ]

    def _take(self, step: ShrinkStep[T]) -> bool:
        return any(self.consider(one) for one in step.candidates(self.best))


def smaller(number: int, least: int = 1) -> Iterator[int]:
    """Numbers from ``least`` up to below ``number``: doubling distances from below, then from it.

    Some 2 log2(number - least) of them, ``least`` first and ``number - 1`` last; none where
    ``number`` is ``least`` or below it.
    """
    if number <= least:
        return
    yield least
    given, step = {least}, 1
    while least + step < number:
        yield least + step
        given.add(least + step)
        step *= 2
    step = (number - least) // 4
    while step:
        if number - step not in given:
            yield number - step
        step //= 2
