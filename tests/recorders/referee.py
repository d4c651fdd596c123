"""What a meaning says of given operands, computed by NumPy in float64, in the plainest way."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from probe import semantics as s
from probe.semantics import operations as o

Shape = tuple[int, ...]
Results = list[np.ndarray | None]


def computed(meaning: s.Meaning, reads: Sequence[Any], shapes: Sequence[Shape]) -> Results:
    """Returns an operation's results, None of those of which its meaning doesn't say all.

    ``reads``: its operands, None of unknown ones; ``shapes``: of its results.
    """
    if isinstance(meaning, s.Steps):
        values = list(reads)
        for step in meaning.steps:
            given = [values[n] for n in step.reads]
            values += computed(step.meaning, given, [step.shape, *step.more])
        gives = meaning.gives or [len(values) - 1]
        return [values[n] for n in gives]
    nothing: Results = [None] * len(shapes)
    if any(array is None for array in reads):
        return nothing
    if isinstance(meaning, s.Passes):
        return [reads[n] for n in meaning.numbers]
    if isinstance(meaning, s.Same):
        return [reads[0]] * len(shapes)
    if isinstance(meaning, s.Reshapes):
        return [reads[0].reshape(shapes[0])]
    if isinstance(meaning, s.Turns):
        return [reads[0].transpose(meaning.axes)]
    if isinstance(meaning, s.Quantised):
        return _quantised(meaning, reads, shapes)
    for kind, function in COMPUTES.items():
        if isinstance(meaning, kind):
            result = function(meaning, [*reads], shapes[0])
            return [None if result is None else np.asarray(result), *nothing[1:]]
    return nothing


def _quantised(meaning: s.Quantised, reads: Sequence[Any], shapes: Sequence[Shape]) -> Results:
    pairs = itertools.zip_longest(reads, meaning.reads[: len(reads)])
    numbers = [x if q is None else (x.astype(float) - q[1][0]) * q[0][0] for x, q in pairs]
    results = computed(meaning.inner, numbers, shapes)
    ends = zip(results, meaning.gives, strict=False)
    return [y if q is None or y is None else np.rint(y / q[0][0] + q[1][0]) for y, q in ends]


# sums


def _product(meaning: s.Contracts, reads: list[Any], shape: Shape) -> Any:
    left, right = (reads[n] for n in meaning.reads)
    texts, out = meaning.spelled(left.shape, right.shape)
    # a letter may stand for a size of one and another, as NumPy broadcasts
    numbers = dict(pair for pair in meaning.numbers if isinstance(pair, tuple))
    factor = float(numbers.get("alpha", 1.0)) * math.prod(
        number for number in meaning.numbers if isinstance(number, int | float)
    )
    result = np.einsum(f"{texts[0]},{texts[1]}->{out}", left, right) * factor
    return result if meaning.bias is None else result + reads[meaning.bias]


def _reduction(meaning: s.Reduces, reads: list[Any], shape: Shape) -> Any:
    x, numbers = reads[0], dict(p for p in meaning.numbers if isinstance(p, tuple))
    words = {"axis": tuple(meaning.axes), "keepdims": meaning.keep}
    if meaning.word in ("variance", "deviation"):
        result = np.var(x, ddof=numbers["correction"], **words)
        return result if meaning.word == "variance" else np.sqrt(result)
    if meaning.word == "norm":
        (order,) = meaning.numbers
        if math.isinf(order):
            return np.abs(x).max(**words)
        return (np.abs(x) ** order).sum(**words) ** (1 / order)
    return REDUCTIONS[meaning.word](x, **words)


def _logsumexp(x: Any, **words: Any) -> Any:
    return np.log(np.exp(x).sum(**words))


REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in "sum mean prod max min nansum".split()},
    "count_nonzero": lambda x, **words: (x != 0).sum(**words),
    "sum_square": lambda x, **words: (x * x).sum(**words),
    "log_sum": lambda x, **words: np.log(x.sum(**words)),
    "logsumexp": _logsumexp,
}


def _laid(array: Any, rank: int, along: int | None) -> Any:
    """Returns an operand of one axis where it lies ``along``: the last, if that is None."""
    after = (1,) * (0 if along is None else rank - 1 - along % rank)
    return array.reshape(-1, *after) if array.ndim == 1 else array


def _norm(meaning: s.Normalises, reads: list[Any], shape: Shape) -> Any:
    x, *rest = reads
    whole, axes, numbers = x.shape, tuple(axis % x.ndim for axis in meaning.axes), meaning.numbers
    if meaning.word in ("softmax", "log_softmax"):
        x = x * (numbers[0] if numbers else 1.0)
        result = x - x.max(axes, keepdims=True)
        result = result - np.log(np.exp(result).sum(axes, keepdims=True))
        return np.exp(result) if meaning.word == "softmax" else result
    eps, scale, shift = [*numbers[3:], *numbers[1:3]] if numbers[0] == "training" else numbers
    if meaning.groups:
        axis, count = meaning.groups
        x = x.reshape(*whole[:axis], count, whole[axis] // count, *whole[axis + 1 :])
        axes = tuple(each + (each >= axis) for each in axes)
    mean = 0 if meaning.word == "rms_norm" else x.mean(axes, keepdims=True)
    spread = ((x - mean) ** 2).mean(axes, keepdims=True)
    result = ((x - mean) / np.sqrt(spread + eps)).reshape(whole)
    rest = [_laid(array, len(whole), meaning.along) for array in rest]
    result = result * rest.pop(0) if scale else result
    return result + rest.pop(0) if shift else result


# windows


def _taps(x: Any, w: s.Windows, outs: Sequence[int], empty: float) -> Iterator[tuple[Shape, Any]]:
    """Yields each tap and what all outputs read at it; spatial axes are the last ones."""
    for k, (before, after) in enumerate(w.padding):
        axis = x.ndim - len(outs) + k
        reach = (outs[k] - 1) * w.stride[k] + (w.kernel[k] - 1) * w.dilation[k] + 1
        x = np.delete(
            x, [*range(-before), *range(x.shape[axis] + min(after, 0), x.shape[axis])], axis
        )
        wide = [(0, 0)] * x.ndim
        wide[axis] = max(before, 0), max(reach - max(before, 0) - x.shape[axis], 0)
        x = np.pad(x, wide, constant_values=empty)
    for tap in itertools.product(*map(range, w.kernel)):
        ends = zip(tap, outs, w.stride, w.dilation, strict=True)
        at = [slice(k * d, k * d + (n - 1) * step + 1, step) for k, n, step, d in ends]
        yield tap, x[(..., *at)]


def _windows(w: s.Windows, reads: list[Any], shape: Shape) -> Any:
    outs = [shape[axis] for axis in w.spatial]
    ahead = [axis for axis in range(len(shape)) if axis not in (*w.spatial, w.channels)]
    order = [*ahead, w.channels, *w.spatial]  # (batch, channels, *spatial)
    x, back = reads[w.reads[0]].transpose(order), np.argsort(order)
    if w.pool:
        return _pool(x, w, outs).transpose(back)
    weights = reads[w.reads[1]]
    if not w.weights:  # (*kernel, channels, filters a channel)
        weights = weights.reshape(*weights.shape[:-2], 1, -1)
    else:
        weights = weights.transpose(w.weights)  # (*kernel, in channels, filters)
    if weights.shape[-2] == x.shape[1] and w.groups > 1:  # of all groups, the filters of one
        parts = np.split(weights, w.groups, -2)
    else:
        parts = np.split(weights, w.groups, -1)
    both = zip(np.split(x, w.groups, 1), parts, strict=True)
    compute = _spread if w.kind == "transposed" else _slid
    result = np.concatenate([compute(part, kernel, w, outs) for part, kernel in both], 1)
    if len(w.reads) > 2:
        result = result + reads[w.reads[2]].reshape(-1, *(1,) * len(outs))
    return result.transpose(back)


def _slid(x: Any, weights: Any, w: s.Windows, outs: Sequence[int]) -> Any:
    taps = _taps(x, w, outs, 0.0)
    return sum(np.einsum("bc...,cf->bf...", some, weights[tap]) for tap, some in taps)


def _spread(x: Any, weights: Any, w: s.Windows, outs: Sequence[int]) -> Any:
    """A transposed convolution: each input is spread over the outputs of its window."""
    frame = zip(x.shape[2:], w.stride, w.kernel, w.dilation, w.padding, outs, strict=True)
    sizes = [
        max((n - 1) * step + (k - 1) * d + 1, low + out) for n, step, k, d, (low, _), out in frame
    ]
    result = np.zeros((x.shape[0], weights.shape[-1], *sizes), x.dtype)
    weights = np.flip(weights, range(len(outs))) if w.flipped else weights
    for tap in itertools.product(*map(range, w.kernel)):
        ends = zip(tap, x.shape[2:], w.stride, w.dilation, strict=True)
        at = tuple(slice(k * d, k * d + (n - 1) * step + 1, step) for k, n, step, d in ends)
        result[(..., *at)] += np.einsum("bc...,cf->bf...", x, weights[tap])
    ends = zip(w.padding, outs, strict=True)
    return result[(..., *(slice(low, low + out) for (low, _), out in ends))]


def _pool(x: Any, w: s.Windows, outs: Sequence[int]) -> Any:
    if w.kind == "max":
        return np.max([some for _, some in _taps(x, w, outs, -np.inf)], axis=0)
    total = sum(some for _, some in _taps(x, w, outs, 0.0))
    if w.kind == "sum":
        return total
    ones = np.ones(x.shape)
    if w.counts_padding:  # but not what a last window reaches beyond that
        wide = [(0, 0)] * (x.ndim - len(outs)) + list(w.padding)
        ones = np.pad(ones, wide, constant_values=1.0)
        w = s.Windows(**{**vars(w), "padding": ((0, 0),) * len(outs)})
    return total / sum(some for _, some in _taps(ones, w, outs, 0.0))


def _convolution(meaning: s.Convolution, reads: list[Any], shape: Shape) -> Any:
    w, x = meaning.windows, reads[0].transpose(meaning.turned)
    wide = list(x.shape)
    for axis, apart in zip(w.spatial, meaning.holes, strict=True):
        wide[axis] = (wide[axis] - 1) * apart + 1
    holed = np.zeros(wide, x.dtype)
    steps = dict(zip(w.spatial, meaning.holes, strict=True))
    holed[tuple(slice(None, None, steps.get(axis, 1)) for axis in range(x.ndim))] = x
    (batch,) = {*range(x.ndim)} - {*w.spatial, w.channels}
    parts = zip(
        np.split(holed, meaning.batches, batch),
        np.split(reads[1], meaning.batches, w.weights[-1]),
        strict=True,
    )
    of_one = list(shape)
    of_one[w.channels] //= meaning.batches
    return np.concatenate([_windows(w, [*pair], tuple(of_one)) for pair in parts], w.channels)


# functions of elements


def _each(meaning: s.Each, reads: list[Any], shape: Shape) -> Any:
    used = reads if meaning.reads is None else [reads[n] for n in meaning.reads]
    for place, value, dtype in meaning.beside:
        used = list(used)
        used.insert(place, np.asarray(value, "f8" if "float" in dtype else dtype))
    used[1:] = [_laid(array, used[0].ndim, meaning.along) for array in used[1:]]
    word, numbers = meaning.word.removeprefix("complex "), meaning.numbers
    word, _, several = word.partition("_of_")
    if several:
        return (
            functools.reduce(FUNCTIONS[word], used) if word != "average" else sum(used) / len(used)
        )
    if word in OF_NUMBERS:
        return OF_NUMBERS[word](numbers, *used)
    if word not in FUNCTIONS:
        return None  # NumPy hasn't it: what is said is that it is computed by place
    if word == "clip" and numbers:
        return np.clip(used[0], *numbers)
    if not all(isinstance(pair, tuple) for pair in numbers):
        raise TypeError(f"{word} with {numbers}")
    named = {name: value for name, value in numbers if name != "out_dtype"}
    for place, name in ((0, "self"), (len(used), "other")):  # numbers that stand for an operand
        if name in named:
            number = named.pop(name)
            whole = used[0].dtype.kind in "iu" and number % 1 == 0
            used.insert(place, int(number) if whole else number)
    return FUNCTIONS[word](*used, **named)


def _batch_norm(numbers: Any, x: Any, *rest: Any) -> Any:
    *ends, mean, variance = rest
    eps, scale, shift = numbers
    result = (x - mean) / np.sqrt(variance + eps)
    result = result * ends.pop(0) if scale else result
    return result + ends.pop(0) if shift else result


def _divided_batch_norm(numbers: Any, x: Any, mean: Any, variance: Any, factor: Any) -> Any:
    factor = factor.reshape(-1)[0]
    return (x - mean / factor) / np.sqrt(variance / factor + numbers[0])


def _weighted_sum(numbers: Any, *arrays: Any) -> Any:
    return sum(factor * x for factor, x in zip(numbers, arrays, strict=True))


# Functions whose numbers have no names.
OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "batch_norm": _batch_norm,
    "divided batch_norm": _divided_batch_norm,
    "weighted sum": _weighted_sum,
}


def _of_math(name: str) -> Callable[..., Any]:
    return np.vectorize(getattr(math, name), otypes=[float])


def _cast(x: Any, to: str, **_: Any) -> Any:
    if to == "bool":
        return x != 0
    return np.trunc(x) if "int" in to else x


def _fake_quant(x: Any, low: float, high: float, bits: int, narrow: bool) -> Any:
    first, last = int(narrow), 2**bits - 1
    scale = (high - low) / (last - first)
    zero = np.clip(np.rint(first - low / scale), first, last)
    ends = (first - zero) * scale, (last - zero) * scale
    return np.floor((np.clip(x, *ends) - ends[0]) / scale + 0.5) * scale + ends[0]


def _quantize_linear(x: Any, scale: Any, zero: Any = 0, to: str = "uint8", **_: Any) -> Any:
    ends = np.iinfo(to)
    return np.clip(np.rint(x / scale) + zero, ends.min, ends.max)


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Any:
    return scale * np.where(x > 0, x, alpha * np.expm1(inner * np.minimum(x, 0)))


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0, -x))


def _power(x: Any, *y: Any, exponent: Any = None, **words: Any) -> Any:
    x = x * words.get("scale", 1.0) + words.get("shift", 0.0)
    return x ** (y[0] if y else exponent)


def _huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    apart = np.abs(x - y)
    return np.where(apart < delta, apart**2 / 2, delta * (apart - delta / 2))


def _cross_entropy(x: Any, y: Any, *weights: Any, **_: Any) -> Any:
    (more,) = weights or (1.0,)
    return np.logaddexp(0, -x) * y * more + np.logaddexp(0, x) * (1 - y)


_NAMES = """absolute negative sign floor ceil trunc real imag conj maximum minimum fmax fmin equal
 not_equal less less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor isnan isinf
 isfinite subtract multiply divide sqrt square reciprocal log1p expm1 sin tan cos sinh tanh cosh
 cbrt exp exp2 log log2 log10 power floor_divide nextafter left_shift right_shift hypot copysign
 heaviside logaddexp logaddexp2 where invert signbit sinc i0 nan_to_num deg2rad rad2deg gcd
 lcm float_power logical_and logical_or logical_xor logical_not spacing isnat fabs  positive
 degrees radians bitwise_count rint""".split()

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _NAMES if hasattr(np, name)},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh tan2".split()},
    **{name: _of_math(name) for name in ("erf", "erfc", "lgamma")},
    **{name: getattr(np, f"logical_{name}") for name in ("and", "or", "xor", "not")},
    **dict.fromkeys(("quantize", "dequantize"), lambda x, **_: x),
    "add": lambda x, y, alpha=1.0: x + alpha * y,
    "subtract": lambda x, y, alpha=1.0: x - alpha * y,
    "divide": lambda x, y, rounding_mode="": {"floor": np.floor, "trunc": np.trunc}.get(
        rounding_mode, np.asarray
    )(x / y),
    "average": lambda x, y: (x + y) / 2,
    "bitwise_not": np.invert,
    "floor_mod": np.mod,
    "truncate_mod": np.fmod,
    "truncate_divide": lambda x, y: np.trunc(x / y).astype(x.dtype),
    "divide_no_nan": lambda x, y: np.where(y == 0, 0, x / y),
    "multiply_no_nan": lambda x, y: np.where(y == 0, 0, x * y),
    "squared_difference": lambda x, y: (x - y) ** 2,
    "round": lambda x, decimals=0: np.round(x, int(decimals)),
    "power": _power,
    "exp": lambda x, base=math.e, scale=1.0, shift=0.0: base ** (x * scale + shift),
    "log": lambda x, base=math.e, scale=1.0, shift=0.0: np.log(x * scale + shift) / math.log(base),
    "cast": _cast,
    "bits": lambda x, to: x.astype(f"f{np.dtype(to).itemsize}").view(to),
    "complex": lambda x, y: x + 1j * y,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
    "clip": lambda x, *ends: np.clip(x, *ends),
    "clamp": lambda x, *ends: np.clip(x, *ends),
    "sign_bit": lambda x: np.sign(x),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, alpha * x),
    "prelu": lambda x, slope: np.where(x > 0, x, slope * x),
    "thresholded_relu": lambda x, alpha=1.0: np.where(x > alpha, x, 0),
    "shrink": lambda x, bias, lambd: np.where(np.abs(x) > lambd, x - bias * np.sign(x), 0),
    "elu": _elu,
    "selu": lambda x: _elu(x, *o.SELU),
    "celu": lambda x, alpha: _elu(x, alpha, 1.0, 1 / alpha),
    "gelu": lambda x: x * _of_math("erfc")(-x / math.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x * _sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
    "sigmoid": _sigmoid,
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "silu": lambda x: x * _sigmoid(x),
    "scaled_silu": lambda x, alpha: x * _sigmoid(alpha * x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softplus": lambda x, beta=1.0, threshold=20.0: np.logaddexp(0, beta * x) / beta,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hard_sigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fake_quant": _fake_quant,
    "quantize_linear": _quantize_linear,
    "dequantize_linear": lambda x, scale, zero=0, **_: (x.astype(float) - zero) * scale,
    "isinf": lambda x, detect_negative=1, detect_positive=1: (
        np.isinf(x) & ((x > 0) * bool(detect_positive) | (x < 0) * bool(detect_negative))
    ),
    "angle": np.angle,
    "rsub": lambda x, y, alpha=1.0: y - alpha * x,
    "huber_loss": _huber,
    "smooth_l1_loss": lambda x, y, beta=1.0: _huber(x, y, beta) / beta,
    "soft_margin_loss": lambda x, y: np.logaddexp(0, -x * y),
    "binary_cross_entropy": lambda x, y: -y * np.log(x) - (1 - y) * np.log1p(-x),
    "binary_cross_entropy_with_logits": _cross_entropy,
}

COMPUTES: dict[type, Callable[..., Any]] = {
    s.Contracts: _product, s.Reduces: _reduction, s.Normalises: _norm, s.Windows: _windows,
    s.Convolution: _convolution, s.Each: _each,
}  # fmt: skip
