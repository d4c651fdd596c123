"""Ranks the questions of a sweep with a time limit: those likely to differ come first.

What is known of a value of the axis are rates of differing, each between 0 and 1:

1. elsewhere: of the same case at this value, on other targets and in earlier runs of the store;
   where this value was not run, interpolated between those that were run; times how much of what
   was expected so differed here (it stays 1 where more did);
2. neighbours: of this case on this target, interpolated between the nearest values that were run;
3. remainders: of this case on this target, among the values that leave the same remainder by 2, 4,
   8, 16 or 32, the largest such rate: vectors and packets leave tails that differ alike;
4. cases: of this target's other cases at this value;
5. all questions that this target has answered so far, for want of anything better.

The score of a value is their mean, with the weights ``WEIGHTS``; the highest come first. Values
with equal scores come in an order that spreads them evenly, over all remainders too. Scores decide
about the order alone: every answer is measured, and a value that was not asked is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

WEIGHTS = {
    "elsewhere": 2.0,
    "interpolated": 1.0,
    "neighbours": 1.0,
    "remainders": 1.0,
    "cases": 1.0,
    "all": 0.5,
}
MODULI = (2, 4, 8, 16, 32)
# Values of a case that are asked at once: of one that was never asked, and of any other. Each time
# the largest value runs again with its controls, three runs more.
FIRST, MOST = 8, 64
# A case is asked in about that many requests at least, however many values it has.
PIECES = 256
GOLDEN = 0.6180339887498949


class Ranking:
    """The questions of one target: values of the axis by case. Threads may share it."""

    def __init__(self, questions: Mapping[int, Sequence[int]]) -> None:
        axis = np.array(sorted({value for values in questions.values() for value in values}))
        self._axis = _Axis(axis.astype(np.int64))
        self._cases = {
            number: _OpenValues(values, self._axis) for number, values in questions.items()
        }
        self._fresh = set(self._cases)  # of which nothing is known
        self._asked = self._differed = 0
        self._expected = self._came = 1.0
        # cases alike stand beside each other: those that nothing is known of are asked spread
        order = np.argsort(np.argsort(np.arange(len(self._cases)) * GOLDEN % 1.0))
        self._spread = dict(zip(self._cases, (-order).tolist(), strict=True))
        self._scores: dict[int, float] = {}
        self._lock = threading.Lock()

    def elsewhere(self, case: int, values: Iterable[int], differ: Iterable[bool]) -> None:
        """Learns what the same case gave at these values on another target, or in another run."""
        with self._lock:
            if case in self._cases:
                self._cases[case].elsewhere(values, differ)
                self._scores.pop(case, None)
                self._fresh.discard(case)

    def answered(self, case: int, values: Iterable[int], differ: Iterable[bool]) -> None:
        """Learns what this target gave, so that these values are not asked again."""
        with self._lock:
            own, expected = self._cases[case].answered(values, differ)
            self._asked, self._differed = self._asked + len(own), self._differed + own.sum()
            self._expected += expected.sum()
            self._came += own[expected > 0].sum()
            self._scores.pop(case, None)
            self._fresh.discard(case)

    def leave(self, case: int, values: Iterable[int] | None = None) -> None:
        """Leaves out these values; None: all of the case."""
        with self._lock:
            one = self._cases[case]
            one.open[slice(None) if values is None else one.places(values)] = False
            self._scores.pop(case, None)

    def next(self) -> tuple[int, list[int]] | None:
        """Returns a case and the values to ask of it at once, ascending; None: nothing is left.

        They count as asked from now on.
        """
        with self._lock:
            rate = (self._differed + 1) / (self._asked + 2)
            trust = min(1.0, self._came / self._expected)
            for number in self._cases.keys() - self._scores.keys() - self._fresh:
                self._scores[number] = self._cases[number].promise(rate, trust)
            alike: dict[bytes, float] = {}
            for number in self._fresh:
                one = self._cases[number]
                key = one.values.tobytes() + one.open.tobytes()
                if key not in alike:
                    # that nothing is known of a case is a reason to ask: the usual rate at least
                    found = one.promise(rate, trust)
                    alike[key] = max(rate, found) if found >= 0 else found
                self._scores[number] = alike[key]
            best = max(
                self._scores, key=lambda one: (self._scores[one], self._spread[one]), default=None
            )
            if best is None or self._scores[best] < 0:
                return None
            self._scores.pop(best)
            return best, self._cases[best].take(rate, trust)


class _Axis:
    """All cases of the target together: how many answered at each value, and how many differed."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.asked, self.differed = np.zeros(len(values)), np.zeros(len(values))


class _OpenValues:
    """One case: which values are open, and what is known of each."""

    def __init__(self, values: Sequence[int], axis: _Axis) -> None:
        self.values = np.array(sorted(values), np.int64)
        self.axis, self.on_axis = axis, np.searchsorted(axis.values, self.values)
        size = len(self.values)
        self.open = np.ones(size, bool)
        self.own = np.full(size, np.nan)  # 1.0: differs
        self.seen, self.bad = np.zeros(size), np.zeros(size)
        # fractions of multiples of the golden ratio never leave a large gap, nor favour a remainder
        self.spread = np.argsort(np.argsort(np.arange(size) * GOLDEN % 1.0))

    def places(self, values: Iterable[int]) -> np.ndarray:
        wanted = np.fromiter(values, np.int64)
        found = np.searchsorted(self.values, wanted)
        found = found[found < len(self.values)]
        return found[np.isin(self.values[found], wanted)]

    def _known(self, values: Iterable[int], differ: Iterable[bool]) -> tuple[np.ndarray, ...]:
        rows = [(v, d) for v, d in zip(values, differ, strict=True)]
        wanted = dict(rows)
        places = self.places(wanted)
        return places, np.array([wanted[int(self.values[p])] for p in places], float)

    def elsewhere(self, values: Iterable[int], differ: Iterable[bool]) -> None:
        places, found = self._known(values, differ)
        self.seen[places] += 1
        self.bad[places] += found

    def answered(
        self, values: Iterable[int], differ: Iterable[bool]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what came, and what was expected from elsewhere."""
        places, found = self._known(values, differ)
        self.own[places], self.open[places] = found, False
        self.axis.asked[self.on_axis[places]] += 1
        self.axis.differed[self.on_axis[places]] += found
        there = self.seen[places] > 0
        return found, np.where(there, self.bad[places] / np.maximum(1, self.seen[places]), 0.0)

    def promise(self, rate: float, trust: float) -> float:
        """Returns the mean score of what would be asked next; -1 where nothing is open."""
        if not self.open.any():
            return -1.0
        scores = np.sort(self.score(rate, trust)[self.open])
        return float(scores[-self.size() :].mean())

    def size(self) -> int:
        if np.isnan(self.own).all():
            return max(2, min(FIRST, len(self.values) // 4))
        return max(FIRST, min(MOST, len(self.values) // 4), len(self.values) // PIECES)

    def take(self, rate: float, trust: float) -> list[int]:
        order = np.lexsort((self.spread, -np.round(self.score(rate, trust), 6)))
        chosen = order[self.open[order]][: self.size()]
        self.open[chosen] = False
        return np.sort(self.values[chosen]).tolist()

    def score(self, rate: float, trust: float) -> np.ndarray:
        """Returns the score of every value, asked or not: shape (values,)."""
        total = np.full(len(self.values), WEIGHTS["all"] * rate)
        weight = np.full(len(self.values), WEIGHTS["all"])
        if self.seen.any():
            there = self.seen > 0
            w = np.where(there, WEIGHTS["elsewhere"], WEIGHTS["interpolated"])
            total += w * trust * self._between(there, self.bad[there] / self.seen[there])
            weight += w
        asked, differed = self.axis.asked[self.on_axis], self.axis.differed[self.on_axis]
        known = ~np.isnan(self.own)
        asked, differed = asked - known, differed - np.where(known, self.own, 0)
        total += WEIGHTS["cases"] * np.where(asked > 0, differed / np.maximum(1, asked), 0)
        weight += WEIGHTS["cases"] * (asked > 0)
        if known.any():
            total += WEIGHTS["neighbours"] * self._between(known, self.own[known])
            total += WEIGHTS["remainders"] * self._remainders(known, rate)
            weight += WEIGHTS["neighbours"] + WEIGHTS["remainders"]
        return total / weight

    def _between(self, known: np.ndarray, rates: np.ndarray) -> np.ndarray:
        return np.interp(self.values, self.values[known], rates)

    def _remainders(self, known: np.ndarray, rate: float) -> np.ndarray:
        best = np.zeros(len(self.values))
        for modulus in MODULI:
            left = self.values % modulus
            asked = np.bincount(left[known], minlength=modulus)
            differed = np.bincount(left[known], self.own[known], minlength=modulus)
            best = np.maximum(best, ((differed + rate) / (asked + 1))[left])
        return best
