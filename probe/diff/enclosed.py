"""Whether rounding can be why two runs differ: both sides' results are held against all that the
operands of an operation allow.

Sums of products are enclosed by :mod:`probe.explain.enclosure`; means, pools, and what is added or
cut off behind a sum by an interval for each output: two float64 arrays, both rounded outwards.
Whether a step between two others is rounded to the format or kept in a wider one is open, so that
both are enclosed. No function has an enclosure: two results of one that are no more than ``ULPS``
units in the last place apart are within rounding, and of others it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from probe.case import floats, ulp
from probe.case.errors import InputError
from probe.diff.alone import Alone, unequal_bits
from probe.diff.sums import OperationSum, first_of
from probe.explain.enclosure import (
    BEYOND,
    UNKNOWN,
    WITHIN,
    RoundingVerdict,
    of_operands,
)
from probe.order.arithmetic import Doubles
from probe.order.orders import ContainerOperands
from probe.order.semantics import Each, Meaning, Passes, Windows
from probe.order.semantics.contract import divisors

# Products that are worked on for a side; what is beyond that is unknown.
MOST = 1 << 27

# Smallest normal numbers by which results may be off where steps on the way become zero.
FLUSHED = 16

# How many units in the last place two results of a function may be apart that IEEE 754 does not
# settle: exp, tanh. Seen beyond it were erf of tiny bfloat16 numbers (PyTorch) and log1p of float64
# at -0.414 (JAX).
ULPS = 16


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
    if both and _is_one_function(sides):
        results = [side.outputs[open_] for side in sides]
        steps = ulp.distance(results[0], results[1], dtype)
        verdicts[:, (np.abs(steps) <= ULPS) & (steps != ulp.NAN)] = WITHIN
    verdict = RoundingVerdict.of(np.zeros(len(open_), bool), verdicts[0], verdicts[1], near)
    more = min(counted, len(open_) - verdict.beyond)
    unknown = max(0, verdict.unknown - more)  # which of the rest were counted is not known
    within = len(open_) - verdict.beyond - more - unknown
    explained = int(known.sum()) + more
    return replace(verdict, explained=explained, within=within, unknown=unknown)


def _is_one_function(sides: Sequence[Alone]) -> bool:
    """Whether both sides compute one function of the elements at a place, which a library may round
    in its own way."""
    left, right = (side.operation.meaning for side in sides)
    rounds = isinstance(left, Each) and not left.exact and left == right
    return rounds and sides[0].value.dtype in floats.FORMATS


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
            return self._sum_verdicts(alone.summed, some)
        # it is no sum, what is added behind is broadcast, or its steps have other axes
        except (InputError, ValueError, IndexError):
            return nothing

    def flush_width(self) -> float:
        """Returns how far off what it gives may be where subnormal numbers become zero: what reads
        some may give anything that follows from that."""
        tiny = floats.flushed_below(self.dtype)
        both = zip(self.alone.reads, self.alone.dtypes[:-1], strict=True)
        every = (np.abs(Interval.of(array, kind).low) for array, kind in both)
        subnormal = any(((sizes > 0) & (sizes < tiny)).any() for sizes in every)
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
        if not (summed.functions or summed.divides):
            scale = summed.scale
            if plain:
                self.enclosure = Interval(enclosure.low / scale, enclosure.high / scale)
            # a mean of 2^n numbers: its sums are exactly that much larger
            sums = floats.round_to(floats.widen(values, dtype) * summed.scale, dtype)
            verdict[: len(first)], flush[: len(first)] = enclosure.judged(sums)
            return verdict, flush
        behind: Interval | None = Interval(enclosure.low, enclosure.high) if plain else None
        if behind is not None and summed.divides:
            behind = _divided(
                behind, divisors_of(alone.operation.meaning, summed)[places[:, 0]], dtype
            )
        for word, numbers in summed.functions:
            if behind is not None and word == "add":
                more = summed.filled(alone.reads[numbers[0]], numbers[0])[tuple(places.T)]
                term = Interval.of(more, dtype).low
                behind = _rounded_outwards(behind.low + term, behind.high + term, dtype)
            elif behind is not None:
                behind = _cut_off(behind, numbers)
        if behind is not None:
            self.enclosure = behind.map(lambda end: floats.nearest(end, dtype))
            by = FLUSHED * (enclosure.flushed + floats.flushed_below(dtype))
            judged = self._interval_verdicts(values, by)
            verdict[: len(first)], flush[: len(first)] = judged
        return verdict, flush

    def _interval_verdicts(self, values: np.ndarray, flushed: np.ndarray) -> Verdicts:
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


class Interval(NamedTuple):
    """Between which numbers each element of a value lies: float64 arrays of its shape."""

    low: Doubles
    high: Doubles

    @classmethod
    def of(cls, array: np.ndarray, dtype: str) -> Interval:
        """Returns the interval of known numbers (container)."""
        wide = floats.widen(array, dtype) if dtype in floats.FORMATS else array.astype(np.float64)
        return cls(wide, wide)

    def map(self, change: Callable[[Doubles], Doubles]) -> Interval:
        """Returns both ends, changed alike: moved, or put through what never falls."""
        return Interval(change(self.low), change(self.high))


def _rounded_outwards(low: Doubles, high: Doubles, dtype: str) -> Interval:
    """Returns results that are rounded once, or kept in a wider format until the next step.

    The ends were computed in float64, to within a rounding of it.
    """
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return Interval(
        np.minimum(low, floats.nearest(low, dtype)), np.maximum(high, floats.nearest(high, dtype))
    )


def divisors_of(meaning: Meaning, summed: OperationSum) -> Doubles:
    """Returns by how many elements each sum is divided: float64 (positions,)."""
    first = first_of(meaning)
    if not isinstance(first, Windows):
        return np.full(prod(summed.sizes), float(summed.summands))
    outputs = tuple(map(len, summed.index))
    if first.counts_padding:
        counts = divisors(first.frame, summed.sizes, outputs).astype(np.float64)
    else:
        counts = np.ones(outputs)
        for axis, places in enumerate(summed.index):
            line = (places >= 0).sum(axis=1)
            counts *= line.reshape([-1 if n == axis else 1 for n in range(len(outputs))])
    return np.tile(counts.reshape(-1), summed.batch)


def _divided(sums: Interval, counts: Doubles, dtype: str) -> Interval:
    """Returns sums over their counts, or times the rounded reciprocals of these."""
    unit = 2.0 ** (2 - floats.format_of(dtype).precision)
    low, high = sums.map(lambda end: end / counts)
    return _rounded_outwards(low - np.abs(low) * unit, high + np.abs(high) * unit, dtype)


def _cut_off(sums: Interval, bounds: Sequence[float | None]) -> Interval:
    """Returns what is left of sums between two bounds."""
    ends = []
    for end, sign in zip(sums, (-1, 1), strict=True):
        for bound, cut in zip(bounds, (np.maximum, np.minimum), strict=True):
            if bound is not None:  # of which the meaning has what float32 holds of it
                end = cut(end, bound + sign * abs(bound) * 2.0**-23)
        ends.append(end)
    return Interval(*ends)
