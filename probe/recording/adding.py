"""How an operation adds: orders and roundings of its sums, revealed, and replayed on what it reads.

One side by itself, as a step of a formula, or both sides of a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from probe import comparison
from probe.comparison import Comparison, OutputPairs, Revealer
from probe.recording.alone import Alone
from probe.recording.sums import SumSession
from probe.summation.reveal import SHORT
from probe.summation.summation import Summation
from probe.summation.tree import BIAS

FEW = 64
"""Differing outputs of a long sum that are revealed before these are replayed on the others."""

PRODUCTS = 1 << 27
"""Products that are replayed for the differing outputs that were not revealed."""

Known = dict[Hashable, Revealer]
"""What was revealed of operations, by name and shapes."""


class RecordedSums(Comparison):
    """Outputs of two recorded operations, whose operands were compared before."""

    def __post_init__(self) -> None:
        """Nothing is left to be checked."""

    @cached_property
    def _classes(self) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """A sum that is longer on one side adds zeros there: the leaves are the shorter one's."""
        left, right = self.left.case, self.right.case
        if left.summands == right.summands:
            return super()._classes
        bias = () if left.bias is None else (BIAS,)
        leaves = (*range(min(left.summands, right.summands)), *bias)
        return np.zeros(len(self.left.replays), np.int64), [leaves]


class Adds:
    """One side's operation as a sum, which is run. ``places``: (position, filter) of its outputs
    that must agree. InputError: it is no sum."""

    def __init__(self, one: Alone) -> None:
        assert one.again is not None
        self.sum, given = one.asked, one.reads
        self.session = SumSession(one.side.target, self.sum, given, one.again)
        self.run = comparison.run_case(self.session, self.sum, self.sum.of(given))  # type: ignore[arg-type]
        self.places = self.sum.places(one.index)
        begin = tuple(map(begins, one.addresses))
        self.key: Hashable = (one.operation.op, str(self.sum.to_json()), begin)

    def reveal(self, which: np.ndarray, known: Revealer) -> None:
        """Reveals some of its outputs."""
        self.run = known.reveal(self.run, self.session, self.run.mask(self.places[which]))

    def recall(self, known: Revealer) -> bool:
        """Replays what is kept of the shape; False if nothing is."""
        found = known.recall(self.run, self.session)
        self.run = found or self.run
        return found is not None

    def came(self, which: np.ndarray) -> np.ndarray:
        """Returns which of these outputs a replay gave."""
        return np.asarray(self.run.replays[tuple(self.places[which].T)])

    def extend(self, which: np.ndarray) -> None:
        """Gives outputs the first summation that replays to their bits, the most frequent first."""
        orders, places = self.run.orders, self.places[which]
        if orders is None or not len(places):
            return
        replays = self.run.replays.copy()
        for number in np.argsort(-orders.counts(), kind="stable"):
            summation: Summation = orders.summations[number]
            agreed = self.run.operands.agrees(summation, *places.T)
            done = tuple(places[agreed].T)
            # in place: revealers keep these orders for later operations of this shape
            orders.index[done] = number
            orders.replayed[done] = replays[done] = True
            places = places[~agreed]
            if not len(places):
                break
        self.run = replace(self.run, replays=replays)


def begins(address: int | None) -> int | None:
    """Returns what orders go with of an address: modulo 16 bytes, as MKL's and Eigen's do. NumPy
    allocates at any multiple of 16, so that more of it would tell the same call from itself."""
    return None if address is None else address % 16


def both(sides: Sequence[Adds]) -> RecordedSums:
    """Returns two sides compared; nothing is revealed."""
    left, right = sides
    pairs = OutputPairs(left.places, right.places, np.ones(len(left.places), bool))
    return RecordedSums(left.sum, left.run, right.run, pairs)  # type: ignore[arg-type]


def compared(sides: Sequence[Alone], known: Known, made: Callable[[], Revealer]) -> RecordedSums:
    """Returns an operation's sums on both sides, all pairs revealed.

    ``made``: gives the revealer of a kind of operation that ``known`` does not have.
    """
    adds = [Adds(one) for one in sides]
    for one in adds:
        one.reveal(np.arange(len(one.places)), known.setdefault(one.key, made()))
    return both(adds)


def revealed(sides: Sequence[Adds], wanted: np.ndarray, known: Known, most: int) -> np.ndarray:
    """Reveals outputs, by their numbers, on one side or on both; which of them were examined.

    Operations of one shape add alike, and so do most outputs of one operation: what is known of the
    shape is replayed first, then what a few outputs told, and only what that does not give to the
    bit is asked. Of short sums, whose orders round alike by luck, all that may be are asked.
    """
    revealer = known.setdefault(tuple(one.key for one in sides), Revealer(kept=None, small=0))

    def left() -> np.ndarray:
        return wanted[~np.all([one.came(wanted) for one in sides], axis=0)]

    long = min(one.sum.summands for one in sides) > SHORT
    chosen = np.zeros(0, int)
    if long and all(one.recall(revealer) for one in sides):
        examined = _settled(sides, wanted, chosen)
        if not len(left()):
            return examined
    for count in sorted({min(FEW, most), most}) if long else [most]:
        chosen = np.union1d(chosen, evenly(left() if len(chosen) else wanted, count))
        for one in sides:
            one.reveal(chosen, revealer)
        examined = _settled(sides, wanted, chosen)
        if any(one.run.refusal for one in sides) or not len(left()):
            break
    return examined


def _settled(sides: Sequence[Adds], wanted: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Replays what was revealed on the outputs that were not; which were examined.

    An output of the same call that a summation gives to the bit is explained by it.
    """
    if len(chosen) == len(wanted) or any(one.run.refusal for one in sides):
        return chosen
    cost = sum(one.sum.summands for one in sides)
    rest = np.setdiff1d(wanted, chosen)[: max(0, PRODUCTS // max(cost, 1))]
    for one in sides:
        one.extend(rest)
    return np.sort(np.concatenate([chosen, rest]))


def evenly(some: np.ndarray, most: int) -> np.ndarray:
    """Returns at most so many of these, evenly among them."""
    if len(some) <= most:
        return some
    return some[np.unique(np.linspace(0, len(some) - 1, most).astype(int))]
