"""Whether rounding can be why two runs differ: both sides' results are held against all that the
semantics and the operands of an operation allow (:mod:`probe.enclosure`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

import numpy as np

from probe import floats, window
from probe.enclosure import BEYOND, UNKNOWN, WITHIN, RoundingVerdict, of_operands
from probe.enclosure.operations import Interval, enclosed, enclosed_einsum
from probe.errors import InputError
from probe.recording.alone import Alone, unequal_bits
from probe.recording.recording import Operation
from probe.recording.sums import sum_of
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

    ``able``: whether it is the first result, of floating-point numbers. ``enclosure``: of the
    outputs that were judged last, where it is an interval.
    """

    enclosure: Interval | None = None

    def __init__(self, alone: Alone) -> None:
        self.alone, self.operation, self.dtype = alone, alone.operation, alone.value.dtype
        self.able = self.dtype in floats.FORMATS and not alone.output
        if alone.again is None:  # seen inside a compiled program, which fuses its steps as it likes
            self.able &= not any(isinstance(op.meaning, Passes) for op in alone.side.operations)

    def verdicts(self, some: np.ndarray) -> Verdicts:
        """Judges outputs, by number; all are unknown where no enclosure is known."""
        nothing = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
        if not self.able:
            return nothing
        with suppress(InputError):  # it is no sum
            return self.sum_verdicts(some)
        intervals = self.intervals()
        if intervals is None:
            return nothing
        self.enclosure = intervals = intervals.map(lambda end: self.alone.taken(end)[some])
        values = self.alone.outputs[some]
        return _interval_verdicts(intervals, values, self.dtype, self.flush_width())

    def intervals(self) -> Interval | None:
        """Returns the intervals of what the operation gives; None where they aren't known."""
        alone, op, run = self.alone, self.operation, self.alone.side
        elements = max(prod(array.shape) for array in (*alone.reads, *alone.gives))
        if not self.able or 8 * elements > MOST:
            return None
        reads = self.operands()
        shapes = [run.values[n].shape for n in op.gives]
        if op.meaning.written([read.shape for read in reads], shapes) is not op.meaning:
            return None  # a compiler fuses the steps of a program as it likes
        direct = enclosed(op.meaning, reads, shapes, self.dtype)
        return direct or _convolution_interval(op, reads, shapes, alone.dtypes)

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

    def sum_verdicts(self, some: np.ndarray) -> Verdicts:
        """Judges sums of products, and what is computed behind them. InputError: it is none."""
        alone, summed, dtype = self.alone, self.alone.summed, self.dtype
        if summed.divides or summed.pooled:
            raise InputError("operation", self.operation.op, "a pool is no plain sum", "")
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
        if not plain:
            return verdict, flush
        behind = Interval(enclosure.low, enclosure.high)
        for word, numbers in summed.functions:
            reads = [behind]
            if word == "add":
                more = summed.filled(alone.reads[numbers[0]], numbers[0])[tuple(places.T)]
                reads.append(Interval.of(more, dtype))
            each = Each(word, numbers=() if word == "add" else numbers)
            interval = enclosed(each, reads, [behind.shape], dtype)
            if interval is None:
                return verdict, flush
            behind = interval
        self.enclosure = behind
        by = FLUSHED * (enclosure.flushed + floats.flushed_below(dtype))
        judged = _interval_verdicts(behind, values, dtype, by)
        verdict[: len(first)], flush[: len(first)] = judged
        return verdict, flush


def _interval_verdicts(
    intervals: Interval, values: np.ndarray, dtype: str, flushed: np.ndarray | float
) -> Verdicts:
    """Judges results. ``flushed``: how far off subnormal numbers that become zero may take them."""
    y = floats.widen(values, dtype)
    with np.errstate(invalid="ignore"):
        inside = (intervals.low <= y) & (y <= intervals.high)
        near = (intervals.low - flushed <= y) & (y <= intervals.high + flushed) & ~inside
    finite = np.isfinite(y) & np.isfinite(intervals.low) & np.isfinite(intervals.high)
    verdict = np.where(finite, np.where(inside, WITHIN, BEYOND), UNKNOWN)
    return np.where(near, UNKNOWN, verdict), near & finite


def _convolution_interval(
    op: Operation, reads: Sequence[Interval], shapes: Sequence[tuple[int, ...]], dtypes: list[str]
) -> Interval | None:
    """Returns what a convolution gives; None where it is none, or has something behind it."""
    try:
        summed = sum_of(op.meaning, [read.shape for read in reads], shapes[0], dtypes)
    except InputError:
        return None
    if summed.divides or summed.pooled or summed.functions or summed.w is None or summed.scale != 1:
        return None
    x, w = reads[summed.x.number], reads[summed.w.number].map(summed.w.taken)
    if not np.array_equal(w.low, w.high):
        return None
    weights = w.low.reshape(summed.summands, summed.filters)
    width, ends = summed.filters // summed.groups, []
    low, high = (window.columns(summed, summed.x.taken(end)) for end in x)
    for group in range(summed.groups):
        part = weights[:, group * width : (group + 1) * width]
        columns = Interval(low[group].T, high[group].T)
        ends.append(enclosed_einsum(columns, Interval(part, part), summed.summands, dtypes[-1]))
    interval = Interval(*(np.concatenate(some, axis=1) for some in zip(*ends, strict=True)))
    if summed.b is not None:
        bias = reads[summed.b.number].map(summed.b.taken)
        added = enclosed(Each("add"), [interval, bias], [interval.shape], dtypes[-1])
        if added is None:
            return None
        interval = added
    return interval.map(lambda end: summed.y.put(end.reshape(summed.output_shape())))
