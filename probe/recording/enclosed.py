"""Whether rounding can be why two runs differ: both sides' results are held against all that the
semantics and the operands of an operation allow (:mod:`probe.enclosure`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from probe import floats
from probe.enclosure import BEYOND, UNKNOWN, WITHIN, RoundingVerdict, of_operands
from probe.enclosure.operations import Interval, enclosed
from probe.errors import InputError
from probe.recording.alone import Alone, unequal_bits
from probe.recording.sums import OperationSum
from probe.semantics import Each, Passes
from probe.summation.orders import ContainerOperands

# Products, or elements times 8, that are worked on for a side; what is beyond that is unknown.
MOST = 1 << 27


# Smallest normal numbers by which results may be off where steps on the way become zero.
FLUSHED = 16


def rounding_verdict(sides: Sequence[Alone], proved: np.ndarray, counted: int) -> RoundingVerdict:
    """Returns the differing outputs of an operation by what is proved of them.

    ``proved``: bool, an output each: both sides' bits come out again in NumPy. ``counted``: how
    many have another cause that the library itself shows, such as the place in a vector: that
    explains why the sides differ, and not that both are right, so what is beyond rounding comes
    first.
    """
    dtype = sides[0].value.dtype
    apart = np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, dtype))
    known = proved[apart]
    open_ = apart[~known]
    verdicts, near = np.full((2, len(open_)), UNKNOWN), np.zeros(len(open_), bool)
    both = [EnclosedSide(side) for side in sides] if len(open_) else []
    for number, side in enumerate(both):
        verdicts[number], flush = side.verdicts(open_)
        near |= flush
    if both and (disjoint := _disjoint(both, len(open_))) is not None:
        # two formulas: each side is right about its own, and no rounding makes one of the other
        verdicts[1, (verdicts == WITHIN).all(axis=0) & disjoint] = BEYOND
    verdict = RoundingVerdict.of(np.zeros(len(open_), bool), verdicts[0], verdicts[1], near)
    more = min(counted, len(open_) - verdict.beyond)
    unknown = max(0, verdict.unknown - more)  # which of the rest were counted is not known
    within = len(open_) - verdict.beyond - more - unknown
    explained = int(known.sum()) + more
    return replace(verdict, explained=explained, within=within, unknown=unknown)


# What can be said of outputs, and where flushing may be why: as of ``Enclosure.judged``.
Verdicts = tuple[np.ndarray, np.ndarray]


def _disjoint(both: Sequence[EnclosedSide], count: int) -> np.ndarray | None:
    """Which outputs have enclosures on the two sides that nothing lies in both of: bool; None where
    they are not known."""
    first, second = (side.enclosure for side in both)
    if first is None or second is None or len(first.low) != count or len(second.low) != count:
        return None
    by = max(side.flush_width() for side in both)
    with np.errstate(invalid="ignore"):
        return (first.high + by < second.low - by) | (second.high + by < first.low - by)


class EnclosedSide:
    """One side of a region, whose outputs are held against all that its operation may give.

    ``enclosure``: of the outputs that were judged last, where it is an interval.
    """

    enclosure: Interval | None = None

    def __init__(self, alone: Alone) -> None:
        self.alone, self.dtype = alone, alone.value.dtype

    def verdicts(self, some: np.ndarray) -> Verdicts:
        """Judges outputs, by number; all are unknown where no enclosure is known."""
        alone, run = self.alone, self.alone.side
        nothing = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
        if self.dtype not in floats.FORMATS or alone.output:
            return nothing
        # seen inside a compiled program, which fuses its steps as it likes
        if alone.again is None and any(isinstance(op.meaning, Passes) for op in run.operations):
            return nothing
        try:
            summed = alone.summed
            if not (summed.divides or summed.pooled):
                return self._sum_verdicts(summed, some)
        except InputError:  # it is no sum, or something else is behind it
            pass
        elements = max(prod(array.shape) for array in (*alone.reads, *alone.gives))
        shapes = [run.values[n].shape for n in alone.operation.gives]
        if 8 * elements > MOST:
            return nothing
        whole = enclosed(alone.operation.meaning, self.operands(), shapes, self.dtype)
        if whole is None:
            return nothing
        self.enclosure = whole.map(lambda end: alone.taken(end)[some])
        return self._interval_verdicts(alone.outputs[some], self.flush_width())

    def operands(self) -> list[Interval]:
        both = zip(self.alone.reads, self.alone.dtypes[:-1], strict=True)
        return [Interval.of(array, kind) for array, kind in both]

    def flush_width(self) -> float:
        """Returns how far off what it gives may be where subnormal numbers become zero: what reads
        some may give anything that follows from that."""
        tiny = floats.flushed_below(self.dtype)
        every = (end for each in self.operands() for end in each)
        subnormal = any(((end != 0) & (np.abs(end) < tiny)).any() for end in every)
        return float(np.inf if subnormal else FLUSHED * tiny)

    def _sum_verdicts(self, summed: OperationSum, some: np.ndarray) -> Verdicts:
        """Judges sums of products, and what is computed behind them. InputError: it is broadcast
        behind them."""
        alone, dtype = self.alone, self.dtype
        first = some[: max(1, MOST // max(1, summed.summands))]
        verdict, flush = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
        places = summed.places(alone.index[first])
        operands = ContainerOperands(summed, *summed.of(alone.reads), np.zeros(1))  # type: ignore[arg-type]
        enclosure = of_operands(operands, *places.T)
        if enclosure is None:
            return verdict, flush
        values = alone.outputs[first]
        plain = not (enclosure.sure.any() or enclosure.overflow.any())
        if not summed.functions:
            scale = summed.scale
            if plain:
                self.enclosure = Interval(enclosure.low / scale, enclosure.high / scale)
            # a mean of 2^n numbers: its sums are exactly that much larger
            sums = floats.round_to(floats.widen(values, dtype) * summed.scale, dtype)
            verdict[: len(first)], flush[: len(first)] = enclosure.judged(sums)
            return verdict, flush
        behind: Interval | None = Interval(enclosure.low, enclosure.high) if plain else None
        for word, numbers in summed.functions:
            if behind is None:
                return verdict, flush
            reads = [behind]
            if word == "add":
                more = summed.filled(alone.reads[numbers[0]], numbers[0])[tuple(places.T)]
                reads.append(Interval.of(more, dtype))
            each = Each(word, numbers=() if word == "add" else numbers)
            behind = enclosed(each, reads, [behind.shape], dtype)
        self.enclosure = behind
        if behind is not None:
            by = FLUSHED * (enclosure.flushed + floats.flushed_below(dtype))
            judged = self._interval_verdicts(values, by)
            verdict[: len(first)], flush[: len(first)] = judged
        return verdict, flush

    def _interval_verdicts(self, values: np.ndarray, flushed: np.ndarray | float) -> Verdicts:
        """Holds results against ``enclosure``. ``flushed``: how far off subnormal numbers that
        become zero may take them."""
        assert self.enclosure is not None
        low, high = self.enclosure
        y = floats.widen(values, self.dtype)
        with np.errstate(invalid="ignore"):
            inside = (low <= y) & (y <= high)
            near = (low - flushed <= y) & (y <= high + flushed) & ~inside
        finite = np.isfinite(y) & np.isfinite(low) & np.isfinite(high)
        verdict = np.where(finite, np.where(inside, WITHIN, BEYOND), UNKNOWN)
        return np.where(near, UNKNOWN, verdict), near & finite
