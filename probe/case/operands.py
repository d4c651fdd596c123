"""Generates operand bits that never change: no library's random stream is used.

Every element is a hash of (seed, tensor, draw, coordinates), the finaliser of splitmix64 (Steele,
Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014) applied once an axis.
So a smaller array is the prefix of a larger one along every axis.

Along length, batch, height and filters the operands of a smaller case are the prefix of a larger
one's, for every kind; for ``normal`` along the channels too.

The kind ``cancel``: operands whose sum changes with nearly every change of order or rounding.

A sum hides its rounding errors unless it ends small. So each filter holds a *big pair*, C and -C,
which cancels wherever it meets, and everything else is *small*: a few units of C's last place and
about 0.3 of a unit more. Whatever is added to a sum that holds only one of the pair loses that
fraction; what is added after the pair has met keeps it; and two smalls added to each other first
lose another part than one by one. Which smalls are swallowed is exactly what an order decides, so
each order leaves its own total. *Middle pairs* do the same again, finer by half the digits, for
orders in which the big pair meets at once. x is 1 and a few units in the last place: it keeps
every window different and all products inexact, and the pairs small after they met, in every
window, whatever the stride and dilation. A fused product of the pair keeps digits that the rounded
one has lost.

Where the pairs sit was searched for: measured rates stand in tests/case/test_operands.py. What
can't show: with one product nothing; with two only fusion; with three and four also some exchanges
of two leaves (of the big pair); at the edge of a padded input windows that lack half a pair show
less. An accumulator wider than the operands' dtype loses nothing that could show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from probe.case import floats, memory

if TYPE_CHECKING:
    from probe.case.case import Case

# Changes with any bit of any operand; it is part of every case's id.
VERSION = 1

Shape = tuple[int, ...]
Pair = tuple[int, int]


_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_TENSORS = {"x": 1, "w": 2, "b": 3}
# Up to so many numbers, a call of NumPy costs more than what it computes: all draws in one.
_AT_ONCE = 1 << 12


def hashes(seed: int, tensor: str, draw: int, shape: tuple[int, ...]) -> np.ndarray:
    """uint64 hashes of every coordinate of ``shape``; a smaller shape gives their prefix."""
    return _hashes_of_draws(seed, tensor, [draw], shape)[0]


def _hashes_of_draws(
    seed: int, tensor: str, draws: Sequence[int], shape: tuple[int, ...]
) -> np.ndarray:
    """The hashes of several draws, (draws, *shape)."""
    starts = [(seed + _GOLDEN * (1 + _TENSORS[tensor] + 8 * draw)) & _MASK for draw in draws]
    state = mix(np.array(starts, np.uint64).reshape((-1,) + (1,) * len(shape)))
    for axis, size in enumerate(shape):
        steps = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        state = mix(state + steps.reshape((-1,) + (1,) * (len(shape) - axis - 1)))
    return state


def mix(state: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, a bijection of 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def normal(seed: int, tensor: str, shape: tuple[int, ...]) -> np.ndarray:
    """Nearly normal numbers (Irwin-Hall: the sum of 12 uniforms, less 6), exact in float64."""
    total = np.zeros(shape, dtype=np.int64)
    for draws in [range(6)] if total.size <= _AT_ONCE else [[draw] for draw in range(6)]:
        # both halves of a hash are a uniform each
        pairs = _hashes_of_draws(seed, tensor, draws, shape)
        total += (pairs >> np.uint64(32)).astype(np.int64).sum(axis=0)
        total += (pairs & np.uint64(2**32 - 1)).astype(np.int64).sum(axis=0)
    values: np.ndarray = (2 * total + 12 - 12 * 2**32) / 2.0**33
    return values


def below(limit: int, seed: int, tensor: str, draw: int, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers from 0 to ``limit`` - 1, int64; ``limit`` at most 2**32."""
    high = hashes(seed, tensor, draw, shape) >> np.uint64(32)
    return ((high * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)


def cancel_layout(summands: int) -> tuple[Pair, list[Pair]]:
    """Leaves of the big pair and of the middle pairs, for two summands and more."""
    if summands < 5:
        return (summands - 2, summands - 1), []
    if summands < 8:
        return (2, 3), [(0, 4)]
    last = summands - 4 - (summands % 8 == 3)  # there it would fall between two blocks of lanes
    return (4, 6), [(1, 2), (last, last + 1)][: 2 if last > 6 else 1]


def cancel_inputs(seed: int, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """1 and one to eight units in the last place, float64."""
    return 1.0 + (1 + below(8, seed, "x", 0, shape)) * 2.0 ** (1 - precision)


def cancel_bias(seed: int, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers, float64."""
    return _smalls(seed, "b", precision, shape)


def cancel_weights(seed: int, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Pairs at their places, small numbers elsewhere, float64; each filter draws its own."""
    small = _smalls(seed, "w", precision, (int(np.prod(shape[:-1])), shape[-1]))
    if len(small) < 2:
        return small.reshape(shape)
    (first, second), middle = cancel_layout(len(small))
    for left, right in middle:
        size = _pair_sizes(seed, 2 + left, precision - 1 - _digits(precision), small.shape[1])
        small[left], small[right] = size + small[left] % 1, small[right] - size
    size = _pair_sizes(seed, 2 + first, precision - 1, small.shape[1])
    small[first], small[second] = size, -size
    if len(small) == 4:  # no room for a middle pair: one that cancels with what the big pair leaves
        size = _pair_sizes(seed, 2, precision // 2 - 3, small.shape[1])
        small[1] = size + small[1] % 1
        small[second] -= size
    return small.reshape(shape)


def _digits(precision: int) -> int:
    """Binary digits between the last places of the big and of the middle pair."""
    return precision // 2 - 2


def _pair_sizes(seed: int, draw: int, exponent: int, filters: int) -> np.ndarray:
    """Whole numbers from 1.25 to 1.75 times 2**exponent, one a filter, away from its ends."""
    fraction = below(2**32, seed, "w", draw, (1, filters))[0] * 2.0**-33
    return np.floor((1.25 + fraction) * 2.0**exponent)


def _smalls(seed: int, tensor: str, precision: int, shape: tuple[int, ...]) -> np.ndarray:
    """Few units of either sign, 0.25 to 0.375 more, and so again in the middle pairs' units."""
    most = 2 ** (min(3, precision // 5) - 1)
    drawn = below(2**32, seed, tensor, 0, shape)
    units = (most + drawn % most) * np.where(drawn & 2**31, -1.0, 1.0)
    step = 2.0 ** -_digits(precision)
    coarse = np.floor((0.25 + ((drawn >> 8) & 0xFFFF) * 2.0**-19) / step) * step
    fine = (0.25 + below(2**32, seed, tensor, 1, shape) * 2.0**-35) * step
    return units + coarse + fine


Draw = Callable[["Case", Shape], np.ndarray]


class Kind(NamedTuple):
    """One kind: what it is for, and how its input, weights and bias are drawn, as float64."""

    about: str
    input: Draw
    weights: Draw
    bias: Draw


def generate(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(x, w, b) as container arrays of the case's dtype; b is None without a bias.

    Explicit weights and biases are rounded once to the dtype; they replace the generated ones. What
    is not weighted has weights of 1, and for ``cancel`` its input takes up the drawn ones: they are
    what makes a sum cancel. InputError: a run of the case needs more memory than is free.
    """
    memory.require(case)
    kind = KINDS[case.kind]
    x = kind.input(case, case.input_shape())
    if not case.weighted:
        w = np.ones(case.weight_shape)
        if case.kind == "cancel" and x.shape[-1] == w.size:  # a sum, and no pooling
            x = x * kind.weights(case, case.weight_shape).reshape(-1)
    elif case.weights is None:
        drawn = WeightsDrawn(case.kind, case.seed, case.weight_shape, case.dtype, case.summands)
        small = math.prod(case.weight_shape) <= KEPT
        w = _drawn_weights(drawn).copy() if small else _drawn_weights.__wrapped__(drawn)
    else:
        w = np.array(case.weights, dtype=np.float64).reshape(case.weight_shape)
    b = None
    if case.bias == "normal":
        b = kind.bias(case, (case.filters,))
    elif case.bias_values is not None:
        b = np.array(case.bias_values, dtype=np.float64)
    if case.put:
        operands = {"x": x, "w": w} | ({} if b is None else {"b": b})
        operands = {name: np.array(array) for name, array in operands.items()}
        for name, index, value in case.places:
            array = operands.get(name)
            if array is not None and all(i < n for i, n in zip(index, array.shape, strict=False)):
                array[index] = value
        x, w, b = operands["x"], operands["w"], operands.get("b")
    rounded = floats.round_to(x, case.dtype), floats.round_to(w, case.dtype)
    return (*rounded, None if b is None else floats.round_to(b, case.dtype))


class WeightsDrawn(NamedTuple):
    """All of a case that drawn weights depend on."""

    kind: str
    seed: int
    weight_shape: Shape
    dtype: str
    summands: int
    weighted: bool = True


# An order is checked on seven sets. Both sides of a comparison draw the same weights: of products
# of 320 by 1280 and 1280 by 1000 this was a third of a reveal. Larger ones would take much memory.
SETS, KEPT = 8, 1 << 21


@lru_cache(SETS)
def _drawn_weights(drawn: WeightsDrawn) -> np.ndarray:
    return KINDS[drawn.kind].weights(drawn, drawn.weight_shape)  # type: ignore[arg-type]


def _of_each(draw: Callable[[str, Case, Shape], np.ndarray]) -> Iterator[Draw]:
    """What draws the input, the weights and the bias alike."""
    return (partial(draw, tensor) for tensor in "xwb")


def _normal(tensor: str, case: Case, shape: Shape) -> np.ndarray:
    return normal(case.seed, tensor, shape)


def _rising_draw(first: float, step: float) -> Draw:
    """An input that rises evenly along the length."""
    return lambda case, shape: np.broadcast_to(
        (first + step * np.arange(shape[-2], dtype=np.float64))[:, None], shape
    )


def _layer(tensor: str, case: Case, shape: Shape) -> np.ndarray:
    """Weights and biases as PyTorch's layers start: uniform within 1 / sqrt(summands)."""
    within = (2 * below(2**32, case.seed, tensor, 0, shape) + 1 - 2**32) / 2.0**32
    return within / math.sqrt(case.summands)


def _ones(case: Case, shape: Shape) -> np.ndarray:
    return np.ones(shape)


def _limits(case: Case) -> tuple[int, int, int]:
    """Largest |x| and |w|, and the distance of weights that are not 0, so that no sum can round.

    Every partial sum is at most 2**precision, the bias counted as one more product.
    """
    room = 2 ** floats.format_of(case.dtype).precision
    product = room // (case.summands + 1)
    weight = max(min(math.isqrt(product), 7), 1)
    return max(min(product // weight, 15), 1), weight, -(-case.summands // (room - 1))


def _whole_numbers(case: Case, tensor: str, largest: int, shape: Shape) -> np.ndarray:
    return (below(2 * largest + 1, case.seed, tensor, 0, shape) - largest).astype(np.float64)


def _integer_weights(case: Case, shape: Shape) -> np.ndarray:
    _, largest, step = _limits(case)
    values = _whole_numbers(case, "w", largest, shape).reshape(case.summands, -1)
    leaf, filter_ = np.ogrid[: values.shape[0], : values.shape[1]]
    return (values * ((leaf + filter_) % step == 0)).reshape(shape)


def _cancelling(tensor: str, case: Case, shape: Shape) -> np.ndarray:
    draw = {"x": cancel_inputs, "w": cancel_weights, "b": cancel_bias}[tensor]
    return draw(case.seed, floats.format_of(case.dtype).precision, shape)


# One in that many windows, about, holds one of the rare elements of ``infinite`` and ``nan``.
RARE = 8


def _rare(tensor: str, draw: int, case: Case, shape: Shape) -> np.ndarray:
    """Where rare elements are, 1 in ``RARE * summands``, bool; others for each ``draw``."""
    chosen = below(RARE * case.summands, case.seed, tensor, draw, shape) == 0
    return np.asarray(chosen)


def _infinite(tensor: str, case: Case, shape: Shape) -> np.ndarray:
    """Nearly normal numbers, few infinities of both signs, and few so huge that sums overflow."""
    values = normal(case.seed, tensor, shape)
    huge = np.copysign(0.75 * floats.largest_finite(case.dtype), values)
    values = np.where(_rare(tensor, 6, case, shape), huge, values)
    return np.where(_rare(tensor, 7, case, shape), np.copysign(np.inf, values), values)


def _nan(tensor: str, case: Case, shape: Shape) -> np.ndarray:
    """Nearly normal numbers, and few NaNs among them."""
    values = normal(case.seed, tensor, shape)
    return np.where(_rare(tensor, 7, case, shape), np.nan, values)


def _tiny(tensor: str, case: Case, shape: Shape) -> np.ndarray:
    """Numbers around the smallest normal one, or beside what makes their products that small.

    The seed says which operands are small: the weights, the input, or both by half the exponent.
    """
    emin = floats.format_of(case.dtype).emin
    small = {"x": (0, emin, emin // 2), "w": (emin, 0, emin // 2), "b": (emin,) * 3}[tensor]
    exponent = small[case.seed % 3] if case.weighted else emin
    drawn = hashes(case.seed, tensor, 0, shape)
    size = 1 + (drawn & np.uint64(2**32 - 1)).astype(np.float64) * 2.0**-32
    binade = below(6, case.seed, tensor, 1, shape) - 3
    sign = np.where(drawn >> np.uint64(63), -1.0, 1.0)
    return np.ldexp(sign * size, (exponent + binade).astype(np.int32))


KINDS = {
    "normal": Kind("nearly normal numbers", *_of_each(_normal)),
    "ramp": Kind(
        "x is 10 * t along the length",
        _rising_draw(0.0, 10.0),
        *(partial(_normal, tensor) for tensor in "wb"),
    ),
    "cancel": Kind(
        "sums that cancel: a changed order or rounding shows at almost every output",
        *_of_each(_cancelling),
    ),
    "integers": Kind(
        "small whole numbers, so that all sums are exact: a control in which nothing can differ",
        lambda case, shape: _whole_numbers(case, "x", _limits(case)[0], shape),
        _integer_weights,
        lambda case, shape: _whole_numbers(case, "b", 1, shape),
    ),
    "count": Kind("x is 1, 2, 3, ... along the length", _rising_draw(1.0, 1.0), _ones, _ones),
    "image": Kind(
        "pixels from 0 to 1, weights as a layer starts: within 1 / sqrt(summands)",
        lambda case, shape: below(2**32, case.seed, "x", 0, shape) / 2.0**32,
        *(partial(_layer, tensor) for tensor in "wb"),
    ),
    "infinite": Kind(
        "normal numbers, a few infinities and numbers that overflow: one window in four",
        *_of_each(_infinite),
    ),
    "nan": Kind("normal numbers with a few NaNs, in about one window of four", *_of_each(_nan)),
    "tiny": Kind(
        "subnormal numbers, and such that products and sums are near the smallest normal one",
        *_of_each(_tiny),
    ),
    "ones": Kind("x and w are 1: every output counts its products", _ones, _ones, _ones),
}
