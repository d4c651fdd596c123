"""Sizes at which a whole program is run: a few, each checked before it is used.

A program is compiled or prepared for each size, so that not every size can be tried as those of one
operation are. Smaller calls are padded to a bucket, larger ones cut into several, whichever takes
the least measured time. All buckets in use are in one class, so timing never decides a bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe.invariant.classes import Entry, Operation, Piece, Plan, Sizes

NAMED = 12
"""Up to so many sizes of the user are the buckets themselves."""


def ladder(sizes: Sequence[int], fixed: int | None = None) -> tuple[int, ...]:
    """The buckets for the user's sizes, in increasing order; ``fixed``: the only one there is.

    Of many sizes: powers of two, and the largest.
    """
    if fixed is not None:
        return (fixed,)
    if len(sizes) <= NAMED:
        return tuple(sorted(sizes))
    least, most = min(sizes), max(sizes)
    powers = [1 << n for n in range(most.bit_length())]
    below = max((power for power in powers if power <= least), default=1)
    return tuple(sorted({*(power for power in powers if power >= below), most}))


class Buckets(Sizes):
    """One program with one number of threads: which buckets are in the chosen class."""

    def __init__(
        self, operation: Operation, entry: Entry, threads: int, sizes: Sequence[int]
    ) -> None:
        super().__init__(operation, entry, threads)
        self.ladder, self.threads = tuple(sizes), threads
        self.quick = False

    def mark(self, size: int) -> str:
        """As ``Sizes.mark``; ``quick``: without asking every place, where that was done before."""
        if size not in self.marks and self.quick:
            self.marks[size] = self.operation.mark(size, quick=True)  # type: ignore[call-arg]
        return super().mark(size)

    @property
    def used(self) -> list[int]:
        """The buckets whose every place has the bits of the chosen class."""
        return [size for size in self.ladder if self.usable(size)]

    def choose(self, largest: int, like: str, wanted: Sequence[int]) -> None:
        """As ``Sizes.choose``, among the buckets."""
        self.entry.like, self.entry.largest = like, largest
        falling = [self.mark(size) for size in reversed(self.ladder)]
        marks = list(dict.fromkeys(filter(None, falling)))
        self.entry.chosen = marks[0] if marks else ""
        if like == "cheapest" and len(marks) > 1:
            costs = {mark: self._cost(mark, wanted) for mark in marks}
            self.entry.chosen = min(costs, key=lambda mark: costs[mark])
        self.plans.clear()

    @property
    def doubts(self) -> str:
        """Why the chosen class is not that of the largest bucket; empty if it is."""
        entry, largest = self.entry, self.ladder[-1]
        if entry.like != "largest" or self.marks.get(largest) == entry.chosen:
            return ""
        there = max((size for size in self.ladder if self.usable(size)), default=0)
        why = (
            "places of one call have different bits"
            if not self.marks.get(largest)
            else ("its bits are not those of the class that is kept")
        )
        return f"{self.operation.key}: size {largest}: {why}; those of size {there} are kept"

    def _cost(self, mark: str, sizes: Sequence[int]) -> float:
        """Seconds for these sizes in the class of this mark, in the mean over a sample's."""
        self.entry.chosen = mark
        self.plans.clear()
        total = 0.0
        for size in sizes:
            plan = self.plan(size) or ()
            total += sum(self.seconds(piece.size) for piece in plan) / size
        return total

    def _plan(self, count: int) -> Plan | None:
        """The calls of least time: largest pieces first, the last one padded."""
        used = self.used
        if not used:
            return None
        if count in used:
            return (Piece(0, count, count),)
        taken = [used[-1]] * max(0, count // used[-1] - 1)
        taken += self._cheapest(count - sum(taken), used)
        found, start = [], 0
        for size in sorted(taken, reverse=True):
            found.append(Piece(start, min(size, count - start), size))
            start += size
        return tuple(found)

    def _cheapest(self, count: int, used: Sequence[int]) -> list[int]:
        """Buckets that hold so many samples, of the least sum of times.

        Their order doesn't matter: only what is left behind the last but one is padded.
        """
        times = np.maximum.accumulate([self.seconds(size) for size in used])
        best: list[tuple[float, int]] = [(0.0, 0)]
        for places in range(1, count + 1):
            ways = [
                (float(spent) + best[max(0, places - size)][0], size)
                for spent, size in zip(times, used, strict=True)
            ]
            best.append(min(ways))
        found = []
        while count > 0:
            found.append(best[count][1])
            count -= best[count][1]
        return found
