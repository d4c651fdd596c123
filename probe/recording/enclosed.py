"""Whether rounding can be why two runs differ: both sides' results are held against all that the
semantics and the operands of an operation allow (:mod:`probe.enclosure`); and between which numbers
a whole run's outputs lie, whatever the orders of all its sums."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from math import prod

import numpy as np

from probe import floats, window
from probe.enclosure import BEYOND, UNKNOWN, WITHIN, RoundingVerdict, of_operands
from probe.enclosure.operations import Interval, enclosed, enclosed_einsum
from probe.errors import InputError
from probe.recording.alone import Alone, unequal_bits
from probe.recording.recording import Operation, Run, operations_between
from probe.recording.sums import sum_of
from probe.semantics import Each, Meaning, Passes, Unknown
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
    # what an operation computes is known by its other side alone
    opaque = [isinstance(side.operation.meaning, Unknown) for side in sides]
    if both and opaque[0] != opaque[1]:
        number = opaque.index(True)
        verdicts[number], flush = both[number].program_verdicts(open_, both[1 - number])
        near |= flush
    verdict = RoundingVerdict.of(np.zeros(len(open_), bool), verdicts[0], verdicts[1], near)
    more = min(counted, len(open_) - verdict.beyond)
    unknown = max(0, verdict.unknown - more)  # which of the rest were counted is not known
    within = len(open_) - verdict.beyond - more - unknown
    explained = int(known.sum()) + more
    return replace(verdict, explained=explained, within=within, unknown=unknown)


# How many times wider an enclosure is taken for what a compiler made of the steps before a result
# is called beyond: it folds factors into weights and writes divisions as products, each of which
# errs about as much as the steps do.
MARGIN = 8.0

# What can be said of outputs, and where flushing may be why: as of ``Enclosure.judged``.
Verdicts = tuple[np.ndarray, np.ndarray]


class EnclosedSide:
    """One side of a region, whose outputs are held against all that its operation may give.

    ``able``: whether it is the first result, of floating-point numbers.
    """

    def __init__(self, alone: Alone) -> None:
        self.alone, self.operation, self.dtype = alone, alone.operation, alone.value.dtype
        self.able = self.dtype in floats.FORMATS and not alone.output

    def verdicts(self, some: np.ndarray) -> Verdicts:
        """Judges outputs, by number; all are unknown where no enclosure is known."""
        nothing = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
        if not self.able:
            return nothing
        if not self.program:
            with suppress(InputError):  # it is no sum
                return self.sum_verdicts(some)
        if self.program or self.operation.meaning is not self.meaning:
            return self.program_verdicts(some, self)
        intervals = self.intervals()
        if intervals is None:
            return nothing
        intervals = intervals.map(lambda end: self.alone.taken(end)[some])
        values = self.alone.outputs[some]
        return _interval_verdicts(intervals, values, self.dtype, self.flush_width())

    def program_verdicts(self, some: np.ndarray, said: EnclosedSide) -> Verdicts:
        """Judges a compiled program, whose steps are those that ``said`` (itself, or the other
        side, which reads alike) says: what lies just outside of all that these can give is left
        unknown."""
        intervals = said.intervals()
        if intervals is None:
            return np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
        values, dtype, by = self.alone.outputs[some], self.dtype, said.flush_width()
        intervals = intervals.map(lambda end: said.alone.taken(end)[some])
        verdict, near = _interval_verdicts(intervals, values, dtype, by)
        wide, _ = _interval_verdicts(_of_compiler(intervals, dtype), values, dtype, by)
        return np.where((verdict == BEYOND) & (wide != BEYOND), UNKNOWN, verdict), near

    def intervals(self) -> Interval | None:
        """Returns the intervals of what the operation gives; None where they aren't known."""
        alone, op, run = self.alone, self.operation, self.alone.side
        elements = max(prod(array.shape) for array in (*alone.reads, *alone.gives))
        if not self.able or 8 * elements > MOST:
            return None
        if self.program:
            # a compiled program fuses steps of the elements at one place: what is inside of it does
            # not read then what was seen of the steps before
            ends = set(self.program)
            for number, value in enumerate(run.values):
                step = run.operations[value.given].meaning
                fused = isinstance(step, Each) or step.exact
                if value.given < 0 or not value.floating or not fused:
                    ends.add(number)
            steps, bounds = operations_between(run, op.reads, ends)
            arrays = run.arrays(bounds)
            known = {n: Interval.of(array, run.values[n].dtype) for n, array in arrays.items()}
            _add_results(run, [run.operations[n] for n in steps], known)
            if not known.keys() >= {*op.reads}:
                return None
            reads = [known[n] for n in op.reads]
        else:
            reads = self.operands()
        shapes = [run.values[n].shape for n in op.gives]
        direct = enclosed(self.meaning, reads, shapes, self.dtype)
        return direct or _convolution_interval(op, reads, shapes, alone.dtypes)

    @cached_property
    def program(self) -> set[int]:
        """Returns what the compiled program reads that the operation was seen in; empty if in
        none."""
        run, number = self.alone.side, self.alone.value.given
        for program in run.operations[:number:-1] if self.alone.again is None else ():
            if isinstance(program.meaning, Passes):
                results = {program.reads[n] for n in program.meaning.numbers}
                reads = {*program.reads} - results
                if reads and number in operations_between(run, results, reads)[0]:
                    return reads
        return set()

    @cached_property
    def meaning(self) -> Meaning:
        """Returns the operation's meaning; of a compiled program the steps that its source has."""
        values, ends = self.alone.side.values, (self.operation.reads, self.operation.gives)
        reads, gives = ([values[n].shape for n in some] for some in ends)
        return self.operation.meaning.written(reads, gives)

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
        if not summed.functions:
            # a mean of 2^n numbers: its sums are exactly that much larger
            sums = floats.round_to(floats.widen(values, dtype) * summed.scale, dtype)
            verdict[: len(first)], flush[: len(first)] = enclosure.judged(sums)
            return verdict, flush
        if enclosure.sure.any() or enclosure.overflow.any():
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
        by = FLUSHED * (enclosure.flushed + floats.flushed_below(dtype))
        judged = _interval_verdicts(behind, values, dtype, by)
        verdict[: len(first)], flush[: len(first)] = judged
        return verdict, flush


def _of_compiler(intervals: Interval, dtype: str) -> Interval:
    """Returns what a compiler may make of steps that give these intervals."""
    middle, half = intervals.low / 2 + intervals.high / 2, (intervals.high - intervals.low) / 2
    half = MARGIN * (half + np.abs(middle) * 2.0 ** -floats.format_of(dtype).precision)
    return Interval(middle - half, middle + half)


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


# Products of a run up to which all its values are enclosed: about a second.
MOST_PRODUCTS = 1 << 28


def output_intervals(run: Run) -> dict[int, Interval]:
    """Returns the intervals of a run's outputs, by the number of the value, of those that have one.

    Every operation may add in any order, fuse and keep wider formats as it likes: an interval holds
    what any library can give that runs these operations on these inputs and weights. Intervals grow
    from operation to operation, so that deep networks have wide ones. Empty where it is not sure
    that the operations are the same in all orders.
    """
    products = 0.0
    for op in run.operations:
        reads, gives = ([prod(run.values[n].shape) for n in some] for some in (op.reads, op.gives))
        products += max((*reads, *gives), default=0)
        if len(reads) > 1 and gives:  # (m, k) times (k, n) gives (m, n): m * k * n, if it is one
            first, second = sorted(reads)[-2:]
            products += max(0.0, (first * second * gives[0]) ** 0.5 - max(*reads, *gives))
    if products > MOST_PRODUCTS:
        return {}
    wanted, settled = run.needed, {n for n, value in enumerate(run.values) if value.given < 0}
    for op in run.operations:
        if op.meaning.rounds is not None and settled.issuperset(op.reads):
            settled.update(op.gives)
        elif not wanted.intersection(op.gives):
            return {}  # Python itself may have read it, and decided by it what runs next
    known = {n for n in wanted if run.values[n].given < 0 or run.values[n].content is not None}
    arrays = run.arrays(known)
    intervals = {n: Interval.of(array, run.values[n].dtype) for n, array in arrays.items()}
    _add_results(run, [op for op in run.operations if op.gives[0] in wanted], intervals)
    return {n: intervals[n] for n in run.outputs if n in intervals}


def _add_results(run: Run, operations: Sequence[Operation], intervals: dict[int, Interval]) -> None:
    """Adds the intervals of what operations give to ``intervals``, of those that are known."""
    for op in operations:
        shapes, dtype = [run.values[n].shape for n in op.gives], run.values[op.gives[0]].dtype
        known = all(n in intervals for n in op.reads)
        if not known or op.gives[0] in intervals or dtype not in floats.FORMATS:
            continue
        reads = [intervals[n] for n in op.reads]
        dtypes = [*(run.values[n].dtype for n in op.reads), dtype]
        meaning = op.meaning.written([read.shape for read in reads], shapes)
        # not rounded: a compiler may fuse a product and the addition behind it
        interval = enclosed(meaning, reads, shapes, dtype, rounded=False)
        interval = interval or _convolution_interval(op, reads, shapes, dtypes)
        if interval is not None and meaning is not op.meaning:
            interval = _of_compiler(interval, dtype)
        elif interval is not None and meaning.rounds != 0:  # or multiply by a reciprocal
            by = interval.size * floats.eps(dtype)
            interval = Interval(interval.low - by, interval.high + by)
        if interval is not None:
            intervals[op.gives[0]] = interval


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
