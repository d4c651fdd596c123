"""Sizes at which a whole program is run: a few, each checked before it is used.

A program is compiled or prepared for each size, so that not every size can be tried as those of one
operation are. Smaller calls are padded to a bucket, larger ones cut into several, whichever takes
the least measured time. All buckets in use are in one class, so timing never decides a bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from probe.invariant.classes import Entry, Piece, Plan
from probe.progress import VOICE

NAMED = 12
"""Up to that many sizes of the user are the buckets themselves."""

BESIDE = (2, 4, 1)
"""By how much a bucket is made larger whose places differ, in this order: kernels that take 6 or 12
rows at a time have a tail of 2 to 8 rows at a power of two, and may add it differently."""

TURNS = 5
"""Calls of which the quickest counts."""


class Program(Protocol):
    """What is run at a bucket: an operation of ``classes`` that has a quick check."""

    key: str

    @property
    def refused(self) -> Mapping[int, str]:
        """Returns the sizes that the library does not run, with the reason."""

    def mark(self, size: int, quick: bool = False) -> str:
        """Returns the digest of its answers at a size; empty where places differ."""

    def ready(self, size: int) -> Callable[[], Any]:
        """Returns one call, to be timed: its inputs are there."""


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


class Buckets:
    """One program with one number of threads: which buckets are in the chosen class.

    ``fixed``: there is no other size than these.
    """

    def __init__(
        self,
        operation: Program,
        entry: Entry,
        threads: int,
        sizes: Sequence[int],
        fixed: bool = False,
    ) -> None:
        self.operation, self.entry, self.threads = operation, entry, threads
        self.ladder = tuple(sizes)
        self.beside = () if fixed else BESIDE
        self.marks = entry.marks.setdefault(threads, {})
        self.plans: dict[int, Plan | None] = {}
        self._seconds: dict[int, float] = {}

    def mark(self, size: int) -> str:
        """As of the program, asked once."""
        if size not in self.marks:
            with VOICE.doing(f"checking {self.operation.key} at size {size:,}"):
                self.marks[size] = self.operation.mark(size)
        return self.marks[size]

    @property
    def tried(self) -> list[int]:
        """Returns the ladder; a size whose places differ has one beside it whose places do not."""
        found = set(self.ladder)
        for size in self.ladder:
            if not self.mark(size) and size not in self.operation.refused:
                larger = (size + more for more in self.beside)
                found |= set(next(([one] for one in larger if self.mark(one)), []))
        return sorted(found)

    @property
    def used(self) -> list[int]:
        """Returns the buckets whose every place has the bits of the chosen class."""
        chosen = self.entry.chosen
        return [size for size in self.tried if chosen and self.mark(size) == chosen]

    @property
    def classes(self) -> list[str]:
        """Returns the marks there are, that of the largest bucket first."""
        return list(dict.fromkeys(filter(None, map(self.mark, reversed(self.tried)))))

    def choose(self, like: str, wanted: Sequence[int]) -> None:
        """Sets the class. ``wanted``: the user's sizes, for the cheapest one."""
        self.entry.like, self.entry.largest = like, self.ladder[-1]
        there = self.classes
        self.entry.chosen = there[0] if there else ""
        if like == "cheapest" and len(there) > 1:
            costs = {mark: self._cost(mark, wanted) for mark in there}
            self.entry.chosen = min(costs, key=lambda mark: costs[mark])
        self.plans.clear()

    def recheck(self, quick: bool, notes: list[str]) -> None:
        """Asks the buckets of a table again; ``quick``: each sample once, not at every place.

        If one does not hold, all are asked anew, at every place. The chosen class stays where it
        is found, so that the same bits are given; else one is chosen, and ``notes`` says so.
        """
        key, chosen, kept = self.operation.key, self.entry.chosen, dict(self.marks)
        self.marks.clear()
        self.entry.certified.clear()
        there = {size + more for size in self.ladder for more in (0, *self.beside)}
        held = {size: mark for size, mark in kept.items() if size in there}
        for size, mark in held.items():
            if self.operation.mark(size, quick=quick) != mark:
                notes.append(f"{key}: size {size} differs from the table: checked anew")
                held.clear()
                break
        self.marks |= held
        why = ""
        if not self.used:
            why = "no size gives the bits of the table"
        elif quick and kept and self.entry.like == "largest" and self.classes[0] != chosen:
            why = "the table's class is not that of the largest size"
        if why:
            notes.append(f"{key}: {why}: chosen anew")
        self.entry.chosen = "" if why else chosen

    @property
    def doubts(self) -> str:
        """Returns why the chosen class is not that of the largest bucket; empty if it is."""
        entry, largest = self.entry, self.ladder[-1]
        if entry.like != "largest" or self.mark(largest) == entry.chosen:
            return ""
        there = max(self.used, default=0)
        why = "it has bits of its own" if self.mark(largest) else "its places have different bits"
        return f"{self.operation.key}: size {largest}: {why}; those of size {there} are kept"

    def _cost(self, mark: str, sizes: Sequence[int]) -> float:
        """Returns seconds a sample in the class of this mark, in the mean over some sizes."""
        self.entry.chosen = mark
        self.plans.clear()
        plans = [(self.plan(size) or (), size) for size in sizes]
        return sum(self.seconds(one.size) / size for plan, size in plans for one in plan)

    def seconds(self, size: int) -> float:
        """Of one call, measured once."""
        if size not in self._seconds:
            found, call = [], self.operation.ready(size)
            for _ in range(TURNS):
                begun = time.perf_counter()
                call()
                found.append(time.perf_counter() - begun)
            self._seconds[size] = min(found)
        return self._seconds[size]

    def plan(self, count: int) -> Plan | None:
        """Returns the calls of least time that compute that many samples; None: there is no way."""
        if count not in self.plans:
            self.plans[count] = self._plan(count)
        return self.plans[count]

    def _plan(self, count: int) -> Plan | None:
        """Largest pieces first, the last one padded."""
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
        """Buckets that hold that many samples, of the least sum of times.

        In falling order only the last of them is padded: else it could be left out.
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
