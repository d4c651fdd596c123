"""Encloses what an operation can give, from its semantics and intervals of what it reads.

A value is an interval for each element: two float64 arrays. Every step is taken outwards: a
function that rounds once gives the rounded ends of its range, one that the library chooses how to
compute errs by up to ``ULPS`` (a stated number, generous: no library's functions are that bad), a
sum by as much as any order can. Whether a step between two others is rounded to the format or kept
in a wider one is open, so that both are enclosed.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from probe import floats
from probe.enclosure.sums import error_bound
from probe.semantics import (
    Contracts,
    Each,
    Meaning,
    Normalises,
    Reduces,
    Reshapes,
    Same,
    Steps,
    Turns,
    Windows,
)
from probe.semantics.elementwise import row_of
from probe.semantics.sums import divisors
from probe.summation.arithmetic import Doubles

# By how many units in the last place a function may err that IEEE 754 does not settle: exp, tanh.
# Seen beyond it were erf of tiny bfloat16 numbers (PyTorch) and log1p of float64 at -0.414 (JAX).
# Of one that libraries put together of several (GELU, softplus) it is that many units of the
# largest of its result, its operand and 1, as its steps may cancel.
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
        if meaning.numbers:
            raise NotEnclosed
        left, right = (reads[n] for n in meaning.reads)
        texts, out = meaning.spelled(left.shape, right.shape)
        sizes = dict(zip(texts[0] + texts[1], left.shape + right.shape, strict=True))
        count = math.prod(size for letter, size in sizes.items() if letter not in out)
        bias = None if meaning.bias is None else reads[meaning.bias]
        return enclosed_einsum(left, right, count, dtype, f"{texts[0]},{texts[1]}->{out}", bias)
    if isinstance(meaning, Reduces):
        return _reduction(meaning, reads[0], dtype).map(lambda end: end.reshape(shapes[0]))
    if isinstance(meaning, Normalises):
        return _normalised_axes(meaning, reads, dtype)
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


def _near_float32(value: Any) -> Interval:
    """Returns a number of a meaning, which has it as float32 does."""
    exact = _number_interval(value)
    return exact.wider(exact.size * 2.0**-23)


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


def _widened_by(x: Interval, by: Doubles, dtype: str) -> Interval:
    return _rounded_outwards(*x.wider(by), dtype)


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
    word, numbers, rank = meaning.word, meaning.numbers, len(x.shape)
    axes = tuple(axis % rank for axis in meaning.axes) if rank else ()
    if word in ("max", "min"):
        return x.map(lambda end: getattr(end, word)(axis=axes, keepdims=True))
    if not math.prod(x.shape[axis] for axis in axes):
        raise NotEnclosed
    if word == "sum":
        return _summed(x, axes, dtype)
    if word == "mean":
        return _mean(x, axes, dtype)
    if word == "norm" and numbers in ((1,), (2,)):
        if numbers == (1,):
            return _summed(_elementwise(Each("absolute"), [x], dtype), axes, dtype)
        total = _summed(_squared(x, dtype), axes, dtype).at_least(0)
        return _erring(total.map(np.sqrt), total, Each("exp"), dtype)  # or sizes taken out before
    if word in ("variance", "deviation"):
        named: dict[str, Any] = dict(pair for pair in numbers if isinstance(pair, tuple))
        count = math.prod(x.shape[axis] for axis in axes)
        correction = float(named.get("correction", 0))
        if count <= correction or len(named) != len(numbers):
            raise NotEnclosed
        spread = _mean_square_about(x, _mean(x, axes, dtype), axes, dtype)
        factor = count / (count - correction)
        result = _erring(spread.map(lambda end: end * factor), spread, Each("exp"), dtype)
        if word == "variance":
            return result
        result = result.at_least(0)
        return _erring(result.map(np.sqrt), result, Each("exp"), dtype)
    if word == "logsumexp" and not numbers:
        top, _, _, total = _exponentials(x, axes, dtype)
        logged = _erring(total.map(np.log), total, Each("log1p"), dtype)
        near = _sum_of_two(logged, top, dtype)  # with the largest number taken out, or without
        return _widened_by(near, np.maximum(near.size, 1) * ULPS * floats.eps(dtype), dtype)
    raise NotEnclosed


def _exponentials(
    x: Interval, axes: tuple[int, ...], dtype: str, beta: float = 1.0
) -> tuple[Interval, Interval, Interval, Interval]:
    """Returns what softmax and its likes compute along axes: the largest number, ``beta`` times
    what all are less than that, the exponentials of these, and their sums."""
    top = x.map(lambda end: end.max(axis=axes, keepdims=True))
    shifted = _difference_of_two(x, top, dtype)
    # the largest minus itself is zero, which the two intervals do not know
    shifted = Interval(shifted.low, np.minimum(shifted.high, 0))
    shifted = _product_of_two(shifted, _number_interval(beta), dtype) if beta != 1 else shifted
    raised = _erring(shifted.map(np.exp), shifted, Each("exp"), dtype)
    total = _summed(raised, axes, dtype)
    # one of the terms is exp(0): the sum is about 1 at least
    return top, shifted, raised, total.at_least(1 - 2.0**-6)


def _mean_square_about(x: Interval, mean: Interval, axes: tuple[int, ...], dtype: str) -> Interval:
    """Returns the mean of squares of what lies about ``mean``, whichever formula has it."""
    spread = _mean(_squared(_difference_of_two(x, mean, dtype), dtype), axes, dtype)
    # E[x^2] - E[x]^2 is another way to the same variance: it errs by ulps of the mean square
    mean_square = _mean(Interval(x.size**2, x.size**2), axes, dtype).high
    by = 4 * error_bound(mean_square, mean_square, math.prod(x.shape[a] for a in axes), dtype)
    return spread.wider(by).at_least(0)


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


def _summed(x: Interval, axes: tuple[int, ...], dtype: str) -> Interval:
    """Returns sums over axes, which stay with a size of 1."""
    sums = [end.sum(axis=axes, keepdims=True) for end in _addends(x)]
    return _sums_between(sums, math.prod(x.shape[axis] for axis in axes), dtype)


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
    if word == "batch_norm":
        # with given statistics: in four steps, or as one factor and one addend
        eps, scaled, shifted = meaning.numbers
        x, *rest = used
        factor = rest.pop(0) if scaled else _number_interval(1.0)
        addend = rest.pop(0) if shifted else _number_interval(0.0)
        mean, variance = rest
        times = _product_of_two(factor, _reciprocal_root(variance, eps, dtype), dtype)
        result = _product_of_two(_difference_of_two(x, mean, dtype), times, dtype)
        # x * times + (addend - mean * times): errs by units of the larger products
        most = (x.size + mean.size) * times.size + addend.size
        by = most * 2.0 ** (3 - floats.format_of(dtype).precision)
        return _widened_by(_sum_of_two(result, addend, dtype), by, dtype)
    if word in _ARITHMETIC and not meaning.numbers and len(used) == 2:
        result = _ARITHMETIC[word](used[0], used[1], dtype)
        return _erring(result, result, meaning, dtype) if meaning.approximate else result
    if word == "clip":
        bounds = [None if number is None else _near_float32(number) for number in meaning.numbers]
        ends = [[None if bound is None else bound[n] for bound in bounds] for n in range(2)]
        both = zip(used[0], ends, strict=True)
        return Interval(*(np.clip(end, low, high) for end, (low, high) in both))
    named = all(isinstance(pair, tuple) and len(pair) == 2 for pair in meaning.numbers)
    if len(used) != 1 or not (named and (word in _RISING or word in _OTHERS)):
        raise NotEnclosed
    (x,), numbers = used, dict(meaning.numbers)
    # a number to the power of x has the same word as x to the power of a number
    if numbers and not _takes(_RISING[word] if word in _RISING else _OTHERS[word][1], numbers):
        raise NotEnclosed
    if word in _RISING:
        falls = word in ("elu", "leaky_relu") and any(float(n) < 0 for n in numbers.values())
        if falls and (x.low < x.high).any():
            raise NotEnclosed  # by a negative slope
        result = x.map(lambda end: _RISING[word](end, **numbers))
        if word == "softplus":
            # PyTorch's is x itself above a threshold, which is so much less: float64 shows it
            threshold, beta = (float(numbers.get(*n)) for n in (("threshold", 20.0), ("beta", 1.0)))
            result = result.wider(math.exp(-threshold) / abs(beta))
        return _erring(result, x, meaning, dtype)
    turns, function = _OTHERS[word]
    falls = word == "reciprocal" or numbers.get("exponent", 0) < 0
    if turns is None:
        # its value in the middle, and as far on both sides as its steepest slope reaches
        middle = x.low / 2 + x.high / 2
        value = function(middle, **numbers)
        by = np.nextafter(np.maximum(x.high - middle, middle - x.low), np.inf)
        by = by * (x.high > x.low) + np.abs(value) * 2.0**-50
        return _erring(_number_interval(value).wider(by), x, meaning, dtype)
    # between its values at both ends and at the points in between where it turns
    places = [*x, *(np.clip(turn, *x) for turn in turns)]
    values = [function(place, **numbers) for place in places]
    low, high = np.minimum.reduce(values), np.maximum.reduce(values)
    low = np.where(falls & (x.low < 0) & (x.high > 0), np.nan, low)  # a pole lies between
    by = np.maximum(np.abs(low), np.abs(high)) * 2.0**-50
    return _erring(Interval(low, high).wider(by), x, meaning, dtype)


def _takes(function: Callable[..., Doubles], numbers: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(None, **numbers)
    except (TypeError, ValueError):  # ValueError: a function of NumPy, which takes none
        return False
    return True


def _erring(result: Interval, x: Interval, meaning: Each, dtype: str) -> Interval:
    """Returns a function's results with what a library may err by."""
    word, known, form = meaning.word, row_of(meaning.word), floats.format_of(dtype)
    if meaning.numbers and known.rounds != 0:  # which it has as float32 does
        result = result.wider(result.size * 2.0**-22)
    if known.rounds == 0:
        return result
    if word == "cast" and form.precision < 24:  # libraries go by way of float32
        by_way = result.map(lambda end: floats.nearest(end, "float32"))
        result = Interval(np.minimum(result.low, by_way.low), np.maximum(result.high, by_way.high))
    if known.rounds == 1 and not meaning.approximate:
        return _rounded_outwards(result.low, result.high, dtype)
    sizes = (
        result.size
        if word in _ELEMENTARY or known.rounds
        else np.maximum(np.maximum(result.size, x.size), 1)
    )
    unit = ULPS * floats.eps(dtype)
    if word in ("exp2", "power"):  # as exp of a product, rounded, or as a product of many factors
        steps = np.abs(np.log(np.maximum(sizes, 1e-300)))
        unit = unit + (steps + abs(dict(meaning.numbers).get("exponent", 0))) * floats.eps(dtype)
    least = ULPS * 2.0 ** (form.emin - form.precision + 1)
    return _widened_by(result, np.where(np.isfinite(sizes), sizes, 0) * unit + least, dtype)


def _sum_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    return _rounded_outwards(x.low + y.low, x.high + y.high, dtype)


def _difference_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    return _rounded_outwards(x.low - y.high, x.high - y.low, dtype)


def _corners(
    x: Interval, y: Interval, change: Callable[[Doubles, Doubles], Doubles], dtype: str
) -> Interval:
    every = [change(a, b) for a in x for b in y]
    return _rounded_outwards(np.minimum.reduce(every), np.maximum.reduce(every), dtype)


def _product_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    return _corners(x, y, np.multiply, dtype)


def _quotient_of_two(x: Interval, y: Interval, dtype: str) -> Interval:
    pole = (y.low <= 0) & (y.high >= 0)
    return _corners(x, y, np.divide, dtype).map(lambda end: np.where(pole, np.nan, end))


def _squared(x: Interval, dtype: str) -> Interval:
    least = np.where((x.low > 0) | (x.high < 0), np.minimum(*map(np.abs, x)), 0)
    return _rounded_outwards(least**2, x.size**2, dtype)


_ARITHMETIC: dict[str, Callable[[Interval, Interval, str], Interval]] = {
    "add": _sum_of_two,
    "subtract": _difference_of_two,
    "multiply": _product_of_two,
    "divide": _quotient_of_two,
    "squared_difference": lambda a, b, d: _squared(_difference_of_two(a, b, d), d),
    "maximum": lambda a, b, _: Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "minimum": lambda a, b, _: Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
}

_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


# Functions that never fall, by their one name.
_RISING: dict[str, Callable[..., Doubles]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    **{name: getattr(np, name) for name in "floor ceil trunc sign sqrt exp expm1 exp2".split()},
    **{name: getattr(np, name) for name in "log log1p log2 sinh tanh cbrt".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("tan", "sin", "cosh", "sinh", "tanh")},
    "round": np.rint,
    "cast": lambda x, **_: x,
    "erf": _erf,
    "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "softplus": lambda x, beta=1.0, **_: np.logaddexp(0, beta * x) / beta,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "elu": lambda x, alpha=1.0, scale=1.0, inner=1.0: np.where(
        x > 0, scale * x, scale * alpha * np.expm1(inner * np.minimum(x, 0))
    ),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, alpha * x),
}

# Functions that rise and fall, or just fall: where they turn, ``None`` where they turn again and
# again (with a slope of 1 at the most), and the function.
_OTHERS: dict[str, tuple[tuple[float, ...] | None, Callable[..., Doubles]]] = {
    "absolute": ((0.0,), np.abs),
    "negative": ((), np.negative),
    "square": ((0.0,), np.square),
    "power": ((0.0,), lambda x, exponent: np.power(x, exponent)),
    "reciprocal": ((), lambda x: 1 / x),
    "rsqrt": ((), lambda x: 1 / np.sqrt(x)),
    "sin": (None, np.sin),
    "cos": (None, np.cos),
    "acos": ((), np.arccos),
    "cosh": ((0.0,), np.cosh),
    "erfc": ((), _erfc),
    "gelu": ((-0.7517915246935645,), lambda x: x * _erfc(-x / math.sqrt(2)) / 2),
    "gelu_tanh": (
        (-0.7524614220710162,),
        lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": ((-1.2784645427610738,), lambda x: x / (1 + np.exp(-x))),
    "hard_swish": ((-3.0, -1.5, 3.0), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "mish": ((-1.1924312146454674,), lambda x: x * np.tanh(np.logaddexp(0, x))),
}

# Those that are computed in one piece, so that their error goes with their result.
_ELEMENTARY = set(
    "exp expm1 exp2 log log1p log2 atan asin asinh sinh tanh atanh cbrt erf rsqrt power".split()
)


# norms


def _normalised_axes(meaning: Normalises, reads: list[Interval], dtype: str) -> Interval:
    x, rank = reads[0], len(reads[0].shape)
    axes = tuple(axis % rank for axis in meaning.axes)
    if meaning.groups is not None:
        # an axis is in parts, each for itself; scales lie along the whole axis
        (axis, count), shape = meaning.groups, x.shape
        parted = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])
        along = rank - 1 if meaning.along is None else meaning.along % rank
        eps, *flags = meaning.numbers
        if (reads[1:] and along != axis) or len(reads) - 1 != sum(map(bool, flags)):
            raise NotEnclosed
        inside = tuple(a + 1 if a >= axis else a for a in axes)
        plain = replace(meaning, axes=inside, groups=None, along=None, numbers=(eps, False, False))
        result = _normalised_axes(plain, [x.map(lambda end: end.reshape(parted))], dtype)
        result = result.map(lambda end: end.reshape(shape))
        return _scaled_and_shifted(result, reads[1:], flags, along, dtype)
    if meaning.word in ("softmax", "log_softmax"):
        beta = float(meaning.numbers[0]) if meaning.numbers else 1.0
        _, shifted, raised, total = _exponentials(x, axes, dtype, beta)
        if meaning.word == "log_softmax":
            logged = _erring(total.map(np.log), total, Each("log1p"), dtype)
            return _difference_of_two(shifted, logged, dtype)
        # a division, or a product with a reciprocal that may be approximate
        return _erring(_quotient_of_two(raised, total, dtype), raised, Each("exp"), dtype)
    if meaning.word == "batch_norm" and meaning.numbers[0] == "training":
        _, scale, shift, eps = meaning.numbers
    elif meaning.word in ("layer_norm", "rms_norm", "instance_norm", "group_norm"):
        eps, scale, shift = meaning.numbers
    else:
        raise NotEnclosed
    mean = _number_interval(0.0) if meaning.word == "rms_norm" else _mean(x, axes, dtype)
    centred = x if meaning.word == "rms_norm" else _difference_of_two(x, mean, dtype)
    spread = _mean_square_about(x, mean, axes, dtype)
    # no mean of squares is negative, so that what is below eps comes from the intervals alone
    times = _reciprocal_root(spread, eps, dtype, least=eps * (1 - 2.0**-6))
    result = _product_of_two(centred, times, dtype)
    return _scaled_and_shifted(result, reads[1:], (scale, shift), meaning.along, dtype)


def _reciprocal_root(variance: Interval, eps: Any, dtype: str, least: float = -np.inf) -> Interval:
    """Returns one over the root of a variance and ``eps``, which are ``least`` together."""
    under = _sum_of_two(variance, _near_float32(eps), dtype).at_least(least)
    if (under.low <= 0).any():
        raise NotEnclosed
    ends = Interval(1 / np.sqrt(under.high), 1 / np.sqrt(under.low))
    return _erring(ends, ends, Each("rsqrt"), dtype)


def _scaled_and_shifted(
    result: Interval, rest: Sequence[Interval], flags: Sequence[Any], along: int | None, dtype: str
) -> Interval:
    """Returns a norm times a scale plus a shift, of which ``flags`` say whether they are there:
    these broadcast from the last axis, or lie ``along`` one."""
    rank = len(result.shape)
    after = (1,) * (0 if along is None else rank - 1 - along % rank)
    scale, shift = flags
    steps = [_product_of_two] * bool(scale) + [_sum_of_two] * bool(shift)
    for side, how in zip(rest, steps, strict=False):
        lies = side.map(lambda end: end if end.ndim > 1 else end.reshape(-1, *after))
        result = how(result, lies, dtype)
    return result


def _mean(x: Interval, axes: tuple[int, ...], dtype: str) -> Interval:
    count = math.prod(x.shape[axis] for axis in axes)
    unit = 2.0 ** (2 - floats.format_of(dtype).precision)
    low, high = _summed(x, axes, dtype).map(lambda end: end / count)
    return _rounded_outwards(low - np.abs(low) * unit, high + np.abs(high) * unit, dtype)
