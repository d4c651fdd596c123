"""Whether rounding can be why two runs differ: both sides' results are held against all that the
operands of an operation allow (:mod:`probe.explain.enclosure`).

A mean, a pool, a number added to a sum and a bound such as ReLU's have the sum's enclosure, put
through the same steps. No function has one: two results of one that are no more than ``ULPS``
units in the last place apart are within rounding, and of others it is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from probe.case import floats, ulp
from probe.case.errors import InputError
from probe.diff.alone import Alone, unequal_bits
from probe.diff.sums import OperationSum, first_of
from probe.explain.enclosure import (
    BEYOND,
    UNKNOWN,
    WITHIN,
    Enclosure,
    RoundingVerdict,
    of_operands,
)
from probe.order.arithmetic import Doubles
from probe.order.orders import ContainerOperands
from probe.order.semantics import Each, Meaning, Passes, Windows

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
    both = [enclosed_outputs(side, open_) for side in sides] if len(open_) else []
    for number, enclosure in enumerate(both):
        if enclosure is not None:
            first = slice(len(enclosure.low))
            values = sides[number].outputs[open_[first]]
            verdicts[number, first], flush = enclosure.judged(values)
            near[first] |= flush
    whole = [side for side in both if side is not None and len(side.low) == len(open_)]
    if len(whole) == len(sides):
        # two formulas: each side is right about its own, and no rounding makes one of the other
        formulas = disjoint(whole[0], whole[1], max(map(flush_width, sides)))
        verdicts[1, (verdicts == WITHIN).all(axis=0) & formulas] = BEYOND
    left, right = (side.operation.meaning for side in sides)
    if isinstance(left, Each) and not left.exact and left == right and dtype in floats.FORMATS:
        # one function of the elements at a place, which a library may round in its own way
        steps = ulp.distance(sides[0].outputs[open_], sides[1].outputs[open_], dtype)
        verdicts[:, (np.abs(steps) <= ULPS) & (steps != ulp.NAN)] = WITHIN
    verdict = RoundingVerdict.of(np.zeros(len(open_), bool), verdicts[0], verdicts[1], near)
    more = min(counted, len(open_) - verdict.beyond)
    unknown = max(0, verdict.unknown - more)  # which of the rest were counted is not known
    within = len(open_) - verdict.beyond - more - unknown
    explained = int(known.sum()) + more
    return replace(verdict, explained=explained, within=within, unknown=unknown)


def disjoint(left: Enclosure, right: Enclosure, by: float) -> np.ndarray:
    """Which outputs have enclosures on the two sides that nothing lies in both of, though subnormal
    numbers that become zero take each ``by`` further: bool."""
    with np.errstate(invalid="ignore"):
        return (left.high + by < right.low - by) | (right.high + by < left.low - by)


def flush_width(side: Alone) -> float:
    """Returns how far off what an operation gives may be where subnormal numbers become zero: what
    reads some may give anything that follows from that."""
    tiny = floats.flushed_below(side.value.dtype)
    for array, dtype in zip(side.reads, side.dtypes[:-1], strict=True):
        wide = floats.widen(array, dtype) if dtype in floats.FORMATS else array.astype(np.float64)
        if ((wide != 0) & (np.abs(wide) < tiny)).any():
            return float(np.inf)
    return FLUSHED * tiny


def enclosed_outputs(alone: Alone, some: np.ndarray) -> Enclosure | None:
    """Returns the enclosure of outputs, by number: of the first ones, as many as ``MOST`` products
    allow. None: no enclosure is known of what the operation computes."""
    run, dtype = alone.side, alone.value.dtype
    if dtype not in floats.FORMATS or alone.output:
        return None
    # seen inside a compiled program, which fuses its steps as it likes
    if alone.again is None and any(isinstance(op.meaning, Passes) for op in run.operations):
        return None
    try:
        summed = alone.summed
        first = some[: max(1, MOST // max(1, summed.summands))]
        places = summed.places(alone.index[first])
        operands = ContainerOperands(summed, *summed.of(alone.reads), np.zeros(1))  # type: ignore[arg-type]
        sums = of_operands(operands, *places.T)
        # a mean of 2^n numbers is exactly that much smaller than its sum
        if sums is not None and summed.scale > 1:
            sums = sums.behind(partial(np.multiply, 1 / summed.scale))
        if sums is None or not (summed.divides or summed.functions):
            return sums
        if sums.sure.any() or sums.overflow.any():
            return None
        if summed.divides:
            counts = divisors_of(alone.operation.meaning, summed)[places[:, 0]]
            # divided, or multiplied by a rounded reciprocal
            unit = 2.0 ** (2 - floats.format_of(dtype).precision)
            sums = sums.behind(partial(np.multiply, 1 / counts), unit)
        for word, numbers in summed.functions:
            if word == "add":
                term = summed.filled(alone.reads[numbers[0]], numbers[0])[tuple(places.T)]
                sums = sums.behind(partial(np.add, floats.widen(term, dtype)))
            else:
                sums = sums.cut_off(numbers)
    # it is no sum, what is added behind is broadcast, or its steps have other axes
    except (InputError, ValueError, IndexError):
        return None
    if not (np.isfinite(sums.low) & np.isfinite(sums.high)).all():
        return None
    flushed = FLUSHED * (sums.flushed + floats.flushed_below(dtype))
    low, high = floats.nearest(sums.low, dtype), floats.nearest(sums.high, dtype)
    return replace(sums, low=low, high=high, flushed=flushed)


def divisors_of(meaning: Meaning, summed: OperationSum) -> Doubles:
    """Returns by how many elements each sum is divided: float64 (positions,)."""
    first = first_of(meaning)
    if not isinstance(first, Windows):
        return np.full(prod(summed.sizes), float(summed.summands))
    counts = np.ones(tuple(map(len, summed.index)))
    for axis, places in enumerate(summed.index):
        line = (places >= 0).sum(axis=1)
        if first.counts_padding:  # but not what is behind it, where sizes are rounded up
            starts = np.arange(len(places)) * first.stride[axis]
            end = summed.sizes[axis] + sum(first.padding[axis])
            line = np.minimum(first.kernel[axis], end - starts)
        counts *= line.reshape([-1 if n == axis else 1 for n in range(counts.ndim)])
    return np.tile(counts.reshape(-1), summed.batch)
