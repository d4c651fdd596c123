"""Whether rounding can be why two runs differ: both sides' results are held against all that the
semantics and the operands of an operation allow.

Sums of products are enclosed by :mod:`probe.explain.enclosure`; what else is known (sums and
products of
intervals, pools and means, functions that rounding or one routine decides, and several of these in
one) by an interval for each element: two float64 arrays. What libraries put together of more
(norms, softmax, GELU) is not enclosed. Every step is taken outwards: a function that rounds once
gives the rounded ends of its range, one that the library chooses how to compute errs by up to
``ULPS`` (a stated number, generous: no library's functions are that bad), a sum by as much as any
order can. Whether a step between two others is rounded to the format or kept in a wider one is
open, so that both are enclosed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.diff.alone import Alone, unequal_bits
from probe.diff.sums import OperationSum
from probe.explain.enclosure import (
    BEYOND,
    UNKNOWN,
    WITHIN,
    RoundingVerdict,
    error_bound,
    of_operands,
)
from probe.order.arithmetic import Doubles
from probe.order.orders import ContainerOperands
from probe.order.semantics import (
    Contracts,
    Each,
    Meaning,
    Passes,
    Reduces,
    Reshapes,
    Same,
    Steps,
    Turns,
    Windows,
)
from probe.order.semantics.contract import divisors, row_of

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
        except InputError:
            pass  # it is no sum for the engine: the whole operation is enclosed, below
        elements = max(math.prod(array.shape) for array in (*alone.reads, *alone.gives))
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


# By how many units in the last place a function may err that IEEE 754 does not settle: exp, tanh.
# Seen beyond it were erf of tiny bfloat16 numbers (PyTorch) and log1p of float64 at -0.414 (JAX).
ULPS = 16


class Interval(NamedTuple):
    """Between which numbers each element of a value lies: float64 arrays of its shape."""

    low: Doubles
    high: Doubles

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def size(self) -> Doubles:
        """Returns the largest magnitude."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @classmethod
    def of(cls, array: np.ndarray, dtype: str) -> Interval:
        """Returns the interval of known numbers (container)."""
        wide = floats.widen(array, dtype) if dtype in floats.FORMATS else array.astype(np.float64)
        return cls(wide, wide)

    def map(self, change: Callable[[Doubles], Doubles]) -> Interval:
        """Returns both ends, changed alike: moved, or put through what never falls."""
        return Interval(change(self.low), change(self.high))

    def wider(self, by: Doubles | float) -> Interval:
        return Interval(self.low - by, self.high + by)

    def at_least(self, least: float) -> Interval:
        """Returns what is left of it where no element can be less."""
        return Interval(np.maximum(self.low, least), self.high)


class NotEnclosed(Exception):
    """No enclosure of this operation is known."""


def enclosed(
    meaning: Meaning,
    reads: Sequence[Interval],
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    rounded: bool = True,
) -> Interval | None:
    """Returns the interval of an operation's first result; None where none is known.

    ``reads``: of its operands; ``shapes``: of its results; ``dtype``: of the first one, in which
    it computes or in a wider one. ``rounded``: to it; else what reads it may take it as it is.
    """
    try:
        with np.errstate(all="ignore"):
            result = _enclosed_meaning(meaning, list(reads), shapes, dtype)
    except (NotEnclosed, ValueError, IndexError, KeyError):  # of other shapes than were thought of
        return None
    if result.shape != tuple(shapes[0]):
        return None
    return result.map(lambda end: floats.nearest(end, dtype)) if rounded else result


def _enclosed_meaning(
    meaning: Meaning, reads: list[Interval], shapes: Sequence[tuple[int, ...]], dtype: str
) -> Interval:
    if isinstance(meaning, Steps):
        values = list(reads)
        for step in meaning.steps:
            operands = [values[n] for n in step.reads]
            gives = [step.shape, *step.more]
            values.append(_enclosed_meaning(step.meaning, operands, gives, dtype))
            # a further result of a step is taken for any number, or none
            values += [_number_interval(np.full(more, np.nan)) for more in step.more]
        return values[meaning.gives[0] if meaning.gives else -1]
    if isinstance(meaning, Each):
        return _elementwise(meaning, reads, dtype)
    if isinstance(meaning, Contracts):
        left, right = (reads[n] for n in meaning.reads)
        texts, out = meaning.spelled(left.shape, right.shape)
        sizes = dict(zip(texts[0] + texts[1], left.shape + right.shape, strict=True))
        count = math.prod(size for letter, size in sizes.items() if letter not in out)
        bias = None if meaning.bias is None else reads[meaning.bias]
        return enclosed_einsum(left, right, count, dtype, f"{texts[0]},{texts[1]}->{out}", bias)
    if isinstance(meaning, Reduces):
        return _reduction(meaning, reads[0], dtype).map(lambda end: end.reshape(shapes[0]))
    if isinstance(meaning, Windows):
        return _pooled(meaning, reads[0], shapes[0], dtype)
    if isinstance(meaning, Same):
        return reads[0]
    if isinstance(meaning, Reshapes):
        return reads[0].map(lambda end: end.reshape(shapes[0]))
    if isinstance(meaning, Turns):
        return reads[0].map(lambda end: end.transpose(meaning.axes))
    raise NotEnclosed


def _number_interval(value: Any) -> Interval:
    return Interval(*(np.asarray(value, np.float64),) * 2)


def _rounded_outwards(low: Doubles, high: Doubles, dtype: str) -> Interval:
    """Returns results that are rounded once, or kept in a wider format until the next step.

    The ends were computed in float64, to within a rounding of it.
    """
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return _or_none(
        np.minimum(low, floats.nearest(low, dtype)), np.maximum(high, floats.nearest(high, dtype))
    )


def _or_none(low: Doubles, high: Doubles) -> Interval:
    """Returns ends that are NaN where both infinities may have met: what may be NaN has no ends."""
    any_number = (low == -np.inf) & (high == np.inf)
    return Interval(*(np.where(any_number, np.nan, end) for end in (low, high)))


# sums of products, and sums


def enclosed_einsum(
    left: Interval,
    right: Interval,
    count: int,
    dtype: str,
    equation: str = "mk,kn->mn",
    bias: Interval | None = None,
) -> Interval:
    """Returns an einsum of two values, ``count`` products each, and a bias that is added."""
    middles = [each.low / 2 + each.high / 2 for each in (left, right)]
    spreads = [
        np.nextafter(np.maximum(each.high - mid, mid - each.low), np.inf) * (each.high > each.low)
        for each, mid in zip((left, right), middles, strict=True)
    ]

    def summed(x: Doubles, w: Doubles) -> Doubles:
        return np.asarray(np.einsum(equation, x, w, optimize=True))

    sizes, exact = summed(left.size, right.size), summed(*middles)
    spread = np.zeros(())
    if spreads[0].any() or spreads[1].any():
        spread = summed(spreads[0], right.size) + summed(np.abs(middles[0]), spreads[1])
        spread = spread * (1 + 2.0**-40)
    up, down = ((sizes + side + spread) / 2 for side in (exact, -exact))
    low, high = exact - spread, exact + spread
    if bias is not None:
        low, high, count = low + bias.low, high + bias.high, count + 1
        sizes, up, down = sizes + bias.size, up + bias.size, down + bias.size
    sums = sizes, up, down
    return _or_none(
        _end_of_sum(-1, low, sums, count, dtype), _end_of_sum(1, high, sums, count, dtype)
    )


def _end_of_sum(
    sign: int, exact: Doubles, sums: tuple[Doubles, ...], count: int, dtype: str
) -> Doubles:
    """Returns the least (``sign`` -1) or largest sum of ``count`` terms: infinite where an order
    may overflow. ``sums``: of magnitudes, of positive terms, of negative ones, all in float64."""
    sizes, up, down = sums
    slack = count * 2.0**-51 * sizes  # by how much float64's sums err themselves
    error = error_bound(sizes, np.maximum(up, down) + slack, count, dtype) + slack
    far = (up if sign > 0 else down) + error > floats.largest_finite(dtype)
    return np.where(far | np.isinf(exact), sign * np.inf, exact + sign * error)


def _reduction(meaning: Reduces, x: Interval, dtype: str) -> Interval:
    """Returns a reduction over axes, which stay with a size of 1."""
    rank = len(x.shape)
    axes = tuple(axis % rank for axis in meaning.axes) if rank else ()
    if meaning.word in ("max", "min"):
        return x.map(lambda end: getattr(end, meaning.word)(axis=axes, keepdims=True))
    count = math.prod(x.shape[axis] for axis in axes)
    if not count or meaning.word not in ("sum", "mean"):
        raise NotEnclosed
    total = _sums_between([e.sum(axis=axes, keepdims=True) for e in _addends(x)], count, dtype)
    if meaning.word == "sum":
        return total
    unit = 2.0 ** (2 - floats.format_of(dtype).precision)
    low, high = total.map(lambda end: end / count)
    return _rounded_outwards(low - np.abs(low) * unit, high + np.abs(high) * unit, dtype)


def _addends(x: Interval) -> tuple[Doubles, ...]:
    """Returns what is summed of a value to bound its sums: see ``_sums_between``."""
    return tuple(np.maximum(side, 0) for end in x for side in (end, -end))


def _sums_between(sums: Sequence[Doubles], count: int, dtype: str) -> Interval:
    """Returns sums of ``count`` numbers, added in any order. ``sums``: float64's, of what is
    positive and of what is negative of the lower ends, and of the upper ones."""
    # as rounding is monotone, each end errs no more than the sum of all ends on its side
    (up, down), (above, below) = sums[:2], sums[2:]
    return _or_none(
        _end_of_sum(-1, up - down, (up + down, up, down), count, dtype),
        _end_of_sum(1, above - below, (above + below, above, below), count, dtype),
    )


def _pooled(meaning: Windows, x: Interval, shape: tuple[int, ...], dtype: str) -> Interval:
    """Returns what a pool gives: the largest of each window, its mean or its sum."""
    if meaning.kind not in ("max", "average", "sum") or not meaning.pool:
        raise NotEnclosed
    axes, frame = meaning.spatial, meaning.frame
    sizes = [shape[axis] for axis in axes]
    empty = -np.inf if meaning.kind == "max" else 0.0
    ends = x if meaning.kind == "max" else (*_addends(x), np.ones(x.shape))
    every = []
    for end in ends:
        wide = [(0, 0)] * end.ndim
        for k, axis in enumerate(axes):
            reach = (sizes[k] - 1) * frame.stride[k] + (frame.kernel[k] - 1) * frame.dilation[k] + 1
            before = frame.padding[k][0]
            wide[axis] = before, max(0, reach - before - end.shape[axis])
        padded = np.pad(end, wide, constant_values=empty)
        taps = []
        for tap in itertools.product(*map(range, frame.kernel)):
            at = [slice(None)] * end.ndim
            for k, axis in enumerate(axes):
                first = tap[k] * frame.dilation[k]
                last = first + (sizes[k] - 1) * frame.stride[k] + 1
                at[axis] = slice(first, last, frame.stride[k])
            taps.append(padded[tuple(at)])
        every.append(np.max(taps, axis=0) if meaning.kind == "max" else np.sum(taps, axis=0))
    if meaning.kind == "max":
        return Interval(*every)
    *sums, counts = every  # of ones the sums are how many elements each window has
    totals = _sums_between(sums, math.prod(frame.kernel), dtype)
    if meaning.kind == "sum":
        return totals
    if meaning.counts_padding:
        some = divisors(frame, [x.shape[axis] for axis in axes], sizes).astype(np.float64)
        spread = [size if axis in axes else 1 for axis, size in enumerate(shape)]
        counts = np.transpose(some, np.argsort(axes)).reshape(spread)
    return _quotient_of_two(totals, _number_interval(counts), dtype)


# functions of the elements at one place


def _elementwise(meaning: Each, reads: list[Interval], dtype: str) -> Interval:
    used = list(reads) if meaning.reads is None else [reads[n] for n in meaning.reads]
    for place, value, kind in meaning.beside:
        # as it is written, and as an array of its dtype has it: libraries do both
        exact = np.asarray(value, np.float64)
        held = floats.nearest(exact, kind) if kind in floats.FORMATS else exact
        used.insert(place, Interval(np.minimum(exact, held), np.maximum(exact, held)))
    if meaning.along is not None:
        rank = len(used[0].shape)
        after = (1,) * (rank - 1 - meaning.along % rank)
        used[1:] = [line.map(lambda end: end.reshape(-1, *after)) for line in used[1:]]
    word = meaning.word
    if word == "clip":
        ends = []
        for end, sign in zip(used[0], (-1, 1), strict=True):
            # of its bounds the meaning has what float32 holds of them
            bounds = [None if n is None else n + sign * abs(n) * 2.0**-23 for n in meaning.numbers]
            ends.append(np.clip(end, *bounds))
        return Interval(*ends)
    if meaning.numbers:
        raise NotEnclosed
    if word in _ARITHMETIC and len(used) == 2:
        result = _ARITHMETIC[word](used[0], used[1], dtype)
        return _erring(result, meaning, dtype) if meaning.approximate else result
    if len(used) != 1 or word not in _RISING | _OTHERS.keys():
        raise NotEnclosed
    result = _OTHERS[word](used[0]) if word in _OTHERS else used[0].map(_RISING[word])
    return _erring(result, meaning, dtype)


def _erring(result: Interval, meaning: Each, dtype: str) -> Interval:
    """Returns a function's results with what a library may err by."""
    known, form = row_of(meaning.word), floats.format_of(dtype)
    if known.rounds == 0:
        return result
    if meaning.word == "cast" and form.precision < 24:  # libraries go by way of float32
        by_way = result.map(lambda end: floats.nearest(end, "float32"))
        result = Interval(np.minimum(result.low, by_way.low), np.maximum(result.high, by_way.high))
    if known.rounds == 1 and not meaning.approximate:
        return _rounded_outwards(result.low, result.high, dtype)
    sizes = np.where(np.isfinite(result.size), result.size, 0)
    by = ULPS * (sizes * floats.eps(dtype) + 2.0 ** (form.emin - form.precision + 1))
    return _rounded_outwards(*result.wider(by), dtype)


def _sum_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    return _rounded_outwards(x.low + y.low, x.high + y.high, dtype)


def _difference_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    return _rounded_outwards(x.low - y.high, x.high - y.low, dtype)


def _corners(
    x: Interval, y: Interval, change: Callable[[Doubles, Doubles], Doubles], dtype: str
) -> Interval:
    every = [change(a, b) for a in x for b in y]
    return _rounded_outwards(np.minimum.reduce(every), np.maximum.reduce(every), dtype)


def _quotient_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    pole = (y.low <= 0) & (y.high >= 0)
    return _corners(x, y, np.divide, dtype).map(lambda end: np.where(pole, np.nan, end))


def _absolute(x: Interval) -> Interval:
    return Interval(np.where((x.low > 0) | (x.high < 0), np.minimum(*map(np.abs, x)), 0), x.size)


def _squared_difference(x: Interval, y: Interval, dtype: str) -> Interval:
    return _rounded_outwards(*_absolute(_difference_of_two(x, y, dtype)).map(np.square), dtype)


_ARITHMETIC: dict[str, Callable[[Interval, Interval, str], Interval]] = {
    "add": _sum_of_two,
    "subtract": _difference_of_two,
    "multiply": lambda x, y, dtype: _corners(x, y, np.multiply, dtype),
    "divide": _quotient_of_two,
    "squared_difference": _squared_difference,
    "maximum": lambda a, b, _: Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "minimum": lambda a, b, _: Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
}

# Functions that never fall, by their one name.
_RISING: dict[str, Callable[[Doubles], Doubles]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    **{name: getattr(np, name) for name in "floor ceil trunc sign sqrt exp expm1".split()},
    **{name: getattr(np, name) for name in "log log1p log2 sinh tanh cbrt".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("tan", "sin", "cosh", "sinh", "tanh")},
    "round": np.rint,
    "cast": lambda x: x,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
}

# Functions that fall, or rise and fall.
_OTHERS: dict[str, Callable[[Interval], Interval]] = {
    "absolute": _absolute,
    "square": lambda x: _absolute(x).map(np.square),
    "negative": lambda x: Interval(-x.high, -x.low),
    "reciprocal": lambda x: _quotient_of_two(_number_interval(1.0), x, "float64"),
    "rsqrt": lambda x: Interval(1 / np.sqrt(x.high), 1 / np.sqrt(x.low)),
}
