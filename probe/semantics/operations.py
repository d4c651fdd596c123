"""Constructors of what operations compute, with arguments in one form for all libraries.

A library's table calls these: two libraries that mean the same can't say it differently, since
names, defaults and numbers are settled here. Numbers are those of float32, as model files have
them: a slope of 0.3 in Python and 0.3 read from a file are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from probe.semantics.contract import Call, Meaning, StepBuilder, Steps, Unknown, then
from probe.semantics.elementwise import Chooses, Each, Holds, Made, Vanishes, canonical, row_of
from probe.semantics.groups import Normalises
from probe.semantics.moving import Broadcasts, Joins, Pads, Picks, Reshapes, Same, Splits, Turns
from probe.semantics.sums import Contracts, Maximum, Reduces, Scans, Whole
from probe.semantics.windows import Frame, Windows

# Meanings that need no arguments in another form than tables have them.
where, reshape, concat = Chooses, Reshapes, Joins

# Alpha and scale of Klambauer et al. 2017, in double precision as PyTorch has them.
SELU = (1.6732632423543772, 1.0507009873554805)


def as_float32(value: Any) -> Any:
    """Returns a number in the one form that all libraries' have: as float32 holds it."""
    if isinstance(value, bool | str | type(None)):
        return value
    if not isinstance(value, Sequence | int | float | np.number | np.ndarray):
        return repr(value)
    if isinstance(value, Sequence):
        return tuple(map(as_float32, value))
    if isinstance(value, np.ndarray):
        return tuple(map(as_float32, value.reshape(-1).tolist()))
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def function(
    word: str, reads: tuple[int, ...] | None = None, along: int | None = None, **numbers: Any
) -> Each:
    """Returns a function of the elements at one place, by any of its names.

    ``reads``, ``along``: as of ``Each``. ``numbers``: arguments that are not arrays, by name.
    """
    name = canonical(word)
    known = row_of(name)
    arguments = tuple(sorted((key, as_float32(value)) for key, value in numbers.items()))
    zero = known.zero or "stays" * known.keeps_zero
    if arguments and zero == "adds":  # of a + 2 b, a zero for a leaves 2 b, which isn't b
        zero = ""
    # zeros of an exponential are what a mask hides: they add nothing to a softmax's sum
    return (Vanishes if name == "exp" else Each)(name, zero, arguments, reads, along)


def arithmetic(word: str, dtype: str) -> Each:
    """Returns a function of numbers of a format: where a library divides integers by the name of
    its division, it does so towards zero, and a quotient times a third is another number then."""
    whole = canonical(word) == "divide" and "int" in dtype
    return function("truncate_divide" if whole else word)


def approximate(word: str) -> Each:
    """Returns a function that the library rounds in a way of its own, where IEEE 754 has one."""
    return replace(function(word), approximate=True)


def beside(word: str, place: int, value: Any, dtype: str) -> Each:
    """Returns a function of an array and a number, which is its operand ``place`` (0 or 1).

    ``dtype``: of the array, in which the number is taken, too.
    """
    each = function(word)
    zero = each.zero if each.zero != "clears" or each.word == "multiply" or place else ""
    return replace(each, zero=zero, beside=((place, value, dtype),))


def variance(word: str, axes: Sequence[int], keep: bool, correction: float) -> Reduces:
    """Returns a variance or a deviation; ``correction``: what is subtracted from the count."""
    return reduced(word, axes, keep, (("correction", as_float32(correction)),))


def several(word: str, count: int) -> Meaning:
    """Returns a function of two arrays taken over ``count`` of them: the sum, the largest."""
    if count != 2:
        return Same() if count == 1 else Each(f"{word}_of_{count}")
    return function(word)


def clip(low: float | None, high: float | None, reads: tuple[int, ...] | None = None) -> Each:
    """Returns a Clip between two numbers; None: no bound. ReLU and ReLU6 are two of them."""
    low, high = (
        None if bound is None or np.isinf(bound) else as_float32(bound) for bound in (low, high)
    )
    if (low, high) in ((0.0, None), (0.0, 6.0)):
        return function("relu" if high is None else "relu6", reads)
    stays = (low is None or low <= 0) and (high is None or high >= 0)
    return Each("clip", "stays" * stays, (low, high), reads)


def leaky_relu(slope: float) -> Each:
    """Returns x where x > 0, else ``slope`` times x."""
    return function("leaky_relu", alpha=slope) if slope else function("relu")


def elu(alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Each:
    """Returns ELU, ``scale * (x if x > 0 else alpha * (exp(inner * x) - 1))``: SELU and CELU are
    two of them."""
    arguments = as_float32((alpha, scale, inner))
    if arguments == as_float32((*SELU, 1.0)):
        return function("selu")
    if arguments == (arguments[0], 1.0, 1.0):
        return function("elu", alpha=alpha)
    if arguments == (arguments[0], 1.0, as_float32(1 / alpha)):
        return function("celu", alpha=alpha)
    return function("elu", alpha=alpha, scale=scale, inner=inner)


def selu(alpha: float = SELU[0], gamma: float = SELU[1]) -> Each:
    """Returns SELU with its usual numbers or others."""
    return elu(alpha, gamma)


def celu(alpha: float = 1.0) -> Each:
    """Returns CELU; ``alpha`` of 1 is ELU."""
    return elu(alpha, 1.0, 1 / alpha)


def gelu(approximate: bool = False) -> Each:
    """Returns GELU by erf, or its approximation by tanh."""
    return function("gelu_tanh" if approximate else "gelu")


def swish(alpha: float = 1.0) -> Each:
    """Returns ``x * sigmoid(alpha * x)``: SiLU where ``alpha`` is 1."""
    return function("silu") if alpha == 1 else function("scaled_silu", alpha=alpha)


def hard_sigmoid(alpha: float = 1 / 6, beta: float = 0.5) -> Each:
    """Returns ``clip(alpha * x + beta, 0, 1)``."""
    return function("hard_sigmoid", alpha=alpha, beta=beta)


def softplus(beta: float = 1.0, threshold: float = 20.0) -> Each:
    """Returns ``log(1 + exp(beta * x)) / beta``; x itself beyond ``threshold``, where they are
    equal."""
    if (beta, threshold) == (1, 20):
        return function("softplus")
    return function("softplus", beta=beta, threshold=threshold)


def power(exponent: float) -> Meaning:
    """Returns a power with a number as its exponent."""
    if exponent in (1, 2):
        return Same() if exponent == 1 else function("square")
    if exponent == -1:  # where it goes through a logarithm it isn't rounded correctly
        return approximate("reciprocal")
    return replace(function("power", exponent=exponent), zero="stays" * (exponent > 0))


def cast(before: str, after: str, saturates: bool = True) -> Meaning:
    """Returns a conversion between dtypes, by NumPy's names."""
    if before == after:
        return Same()
    words: dict[str, Any] = {} if saturates else {"saturates": False}
    return function("cast", to=after, **words)


def bitcast(before: str, after: str, whole: bool = True) -> Meaning:
    """Returns the bits of one dtype read as another. ``whole``: of the same size, so that the
    places stay."""
    if not whole:
        return Unknown("bits of a different size")
    return Same() if before == after else function("bits", to=after)


def reduced(
    word: str,
    axes: Sequence[int],
    keep: bool = False,
    numbers: tuple[Any, ...] = (),
    places: bool = False,
) -> Reduces:
    """Returns a reduction over ``axes``; ``keep``: they stay, of size 1. Other arguments as of
    ``Reduces``."""
    if word in NORMS:
        return vector_norm(axes, NORMS[word], keep)
    name = REDUCTIONS.get(word, word)
    if name == "max" and not places:
        return Maximum(tuple(axes), name, keep, numbers=numbers)
    return Reduces(tuple(axes), name, keep, name in ADDS, numbers, places)


# What libraries call reductions, where the one name is another.
REDUCTIONS = {
    "amax": "max",
    "amin": "min",
    "reduce_max": "max",
    "reduce_min": "min",
    "ave": "mean",
    "var": "variance",
    "std": "deviation",
    "log_sum_exp": "logsumexp",
}

# Reductions that zeros among what they read do not change.
ADDS = ("sum",)

# Orders of vector norms that have names.
NORMS = {"l1": 1, "l2": 2, "euclidean_norm": 2}


def vector_norm(axes: Sequence[int], order: float = 2, keep: bool = False) -> Reduces:
    """Returns a vector norm over ``axes``, of any order."""
    return Reduces(tuple(axes), "norm", keep, bool(order > 0), (as_float32(float(order)),))


def softmax(axes: Sequence[int], beta: float = 1.0) -> Normalises:
    """Returns a softmax over ``axes`` together, of ``beta`` times its input."""
    numbers = () if beta == 1 else (as_float32(beta),)
    return Normalises(tuple(axes), "softmax", numbers, vanishes=True)


def log_softmax(axes: Sequence[int]) -> Normalises:
    return Normalises(tuple(axes), "log_softmax")


def norm(
    axes: Sequence[int],
    eps: float,
    scale: bool = True,
    shift: bool = True,
    word: str = "layer_norm",
    groups: tuple[int, int] | None = None,
) -> Normalises:
    """Returns a normalisation over ``axes``: LayerNorm, RMSNorm, GroupNorm, InstanceNorm.

    ``scale``, ``shift``: whether there are these arrays, in this order: without that, a scale alone
    would be taken for a shift; of a GroupNorm or InstanceNorm they have a number a channel, and
    channels are second. ``groups``: as of ``Normalises``.
    """
    numbers = (as_float32(eps), bool(scale), bool(shift))
    # PyTorch puts an InstanceNorm's batch among the channels, along which nothing is left out then
    apart, along = word == "instance_norm", 1 if word in ("instance_norm", "group_norm") else None
    return Normalises(tuple(axes), word, numbers, along=along, groups=groups, apart=apart)


def instance_norm(rank: int, eps: float, scale: bool = True, shift: bool = True) -> Normalises:
    """Returns a normalisation of each channel's plane, channels second."""
    return norm(range(2, rank), eps, scale, shift, "instance_norm")


def batch_norm(
    eps: float,
    scale: bool = True,
    shift: bool = True,
    along: int | None = None,
    reads: tuple[int, ...] | None = None,
) -> Each:
    """Returns a batch norm with given means and variances: x, scale, shift, mean, variance."""
    return Each("batch_norm", "", (as_float32(eps), bool(scale), bool(shift)), reads, along)


def batch_norm_in_training(
    rank: int, eps: float, scale: bool = True, shift: bool = True, along: int = 1
) -> Normalises:
    """Returns a batch norm by the means and variances of what it reads, over all axes but
    ``along``."""
    axes = tuple(axis for axis in range(rank) if axis != along)
    numbers = ("training", bool(scale), bool(shift), as_float32(eps))
    return Normalises(axes, "batch_norm", numbers, along=along, apart=True)


# sliding windows


# For each axis the number of zeros before and after it; a negative number cuts elements off.
Padding = tuple[tuple[int, int], ...]


def same_padding(
    ins: Sequence[int],
    outs: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    odd_first: bool = False,
) -> Padding:
    """Returns the padding by which ``ins`` give ``outs``; the odd zero behind, or ``odd_first``."""
    pads = []
    for size, out, k, s, d in zip(ins, outs, kernel, stride, dilation, strict=True):
        total = max(0, (out - 1) * s + (k - 1) * d + 1 - size)
        before = total - total // 2 if odd_first else total // 2
        pads.append((before, total - before))
    return tuple(pads)


def _layout(rank: int, channels_last: bool) -> tuple[tuple[int, ...], int]:
    """Returns the spatial axes of a batch of ``rank`` spatial axes, and the channels'."""
    first = 1 if channels_last else 2
    return tuple(range(first, first + rank)), rank + 1 if channels_last else 1


def convolution(
    frame: Frame,
    weights: Sequence[int] = (),
    groups: int = 1,
    channels_last: bool = False,
    reads: Sequence[int] = (0, 1),
) -> Windows:
    """Returns a convolution of a batch, with channels second or last; all but these as of
    ``Windows``. ``weights``: their axes in the order (*kernel, in channels, filters)."""
    spatial, channels = _layout(len(frame.kernel), channels_last)
    return Windows(
        *(spatial, channels, tuple(frame.kernel), tuple(frame.stride)),
        *(tuple(frame.dilation), tuple(frame.padding)),
        kind="transposed" if frame.transposed else "convolution",
        groups=groups,
        reads=tuple(reads),
        weights=tuple(weights),
        word="transposed convolution" if frame.transposed else "convolution",
    )


def pool(
    kind: str,
    frame: Frame,
    channels_last: bool = False,
    counts_padding: bool = False,
    ceil: bool = False,
    lead: int = 2,
) -> Windows:
    """Returns a pool, ``max`` or ``average``. ``lead``: axes before the spatial ones where channels
    aren't last: 1 without a batch. Others as of ``Windows``."""
    spatial, channels = _layout(len(frame.kernel), channels_last)
    if not channels_last:
        spatial, channels = tuple(range(lead, lead + len(frame.kernel))), lead - 1
    return Windows(
        *(spatial, channels, tuple(frame.kernel), tuple(frame.stride)),
        *(tuple(frame.dilation), tuple(frame.padding)),
        kind=kind,
        reads=(0,),
        counts_padding=counts_padding,
        ceil=ceil,
        word=f"{kind}_pool",
    )


# sums of products


def matmul(
    ranks: tuple[int, int] = (2, 2),
    turned: tuple[bool, bool] = (False, False),
    reads: tuple[int, int] = (0, 1),
) -> Contracts:
    """Returns a product of matrices, batches of them or vectors, as NumPy's matmul; ``turned``:
    which of them are transposed; ``reads``: as of ``Contracts``."""
    first = "k" if ranks[0] == 1 else "...km" if turned[0] else "...mk"
    second = "k" if ranks[1] == 1 else "...nk" if turned[1] else "...kn"
    out = "..." + "m" * (ranks[0] > 1) + "n" * (ranks[1] > 1)
    return Contracts(f"{first},{second}->{out}", reads)


def gemm(
    call: Call,
    turned: Sequence[bool] = (False, False),
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Meaning:
    """Returns ``alpha a b + beta c``, of the operands in the first two slots and the third, where
    there is one; ``turned``: which of the first are transposed."""
    ranks, reads = (call.rank(0), call.rank(1)), (call.at(0), call.at(1))
    by_alpha, by_beta = (function("multiply", other=number) for number in (alpha, beta))
    product = matmul(ranks, (turned[0], turned[1]), reads)
    if not call.has(2) or beta == 0:
        return product if alpha == 1 else then(call, product, by_alpha)
    added, shape = call.at(2), call.gives[0]
    if alpha == beta == 1:
        return replace(product, bias=added)
    build = StepBuilder(call.count)
    scaled = build.add(by_alpha, (build.add(product, reads, shape),), shape)
    other = build.add(by_beta, (added,), call.shape(2))
    build.add(function("add"), (scaled, other), shape)
    return build.done()


def dense(reads: tuple[int, int] = (0, 1), bias: int | None = None) -> Contracts:
    """Returns a dense layer whose weights are (units, inputs)."""
    return Contracts("...k,nk->...n", reads, bias)


def einsum(equation: str) -> Meaning:
    """Returns what an einsum of one or two operands computes. ValueError: none that is known."""
    equation = equation.replace(" ", "")
    ins, arrow, out = equation.partition("->")
    texts = ins.split(",")
    if any(len(set(text.replace(".", ""))) < len(text.replace(".", "")) for text in texts):
        raise ValueError("an operand's own diagonal")
    if len(texts) == 2 and arrow:
        return Contracts(equation)
    if len(texts) == 1 and "." not in ins and sorted(ins) == sorted(out):
        return Turns(tuple(ins.index(letter) for letter in out))
    raise ValueError(equation)


# whole axes


def along(
    word: str, rank: int, axes: Sequence[int], numbers: tuple[Any, ...] = (), keep: bool = True
) -> Whole:
    """Returns what reads all along ``axes`` in a manner that isn't known: sorting, the largest k.
    ``keep``: these axes stay."""
    gone = {axis % max(rank, 1) for axis in axes}
    stay = [axis for axis in range(rank) if axis not in gone]
    places = stay if keep else range(len(stay))
    return Whole(tuple(zip(stay, places, strict=True)), canonical(word), numbers)


def own_rows(
    word: str, axes: Iterable[int], numbers: tuple[Any, ...] = (), rows: tuple[int, ...] = ()
) -> Whole:
    """Returns what reads its own index of these axes of its first input, in their places too, and
    all along the others, in a manner that isn't known. ``rows``: as of ``Whole``."""
    return Whole(tuple((axis, axis) for axis in axes), word, numbers, rows)


def matrices(word: str, rank: int, *flags: str) -> Whole:
    """Returns what reads all of a matrix, of a stack along the first axes: its determinant, its
    inverse. ``flags``: that are set."""
    return own_rows(canonical(word), range(rank - 2), flags)


def sort(rank: int, axis: int, descending: bool = False) -> Whole:
    return along("sort", rank, (axis,), ("descending",) * descending)


def top_k(
    rank: int, count: int, axis: int = -1, largest: bool = True, ordered: bool = True
) -> Whole:
    """Returns the largest elements along an axis, or the smallest."""
    words = ("smallest",) * (not largest) + ("any order",) * (not ordered)
    return along("top_k", rank, (axis,), (int(count), *words))


def lrn(axis: int, size: int, alpha: float, beta: float, bias: float = 1.0) -> Normalises:
    """Returns a local response normalisation over ``size`` neighbours; ``alpha``: of each of their
    squares, not of their mean."""
    numbers = (int(size), *(float(f"{number:.6g}") for number in (alpha, beta, bias)))
    return Normalises((axis,), "lrn", numbers)


def fourier(kind: str, rank: int, axes: Sequence[int], size: int, scale: int = 0) -> Whole:
    """Returns a Fourier transform along ``axes``, the last of which is halved where ``kind`` says
    that one side is real: ``complex``, ``inverse``, ``real`` or ``inverse real``.

    ``size``: of the last axis, on the real side; ``scale``: results are divided by no number (0),
    the root of all sizes (1) or all of them (2).
    """
    return along("fft", rank, axes, (kind, tuple(sorted(a % rank for a in axes)), size, scale))


def bucketize(rank: int, right: bool) -> Whole:
    """Returns the number of a bucket for each element of the first input, between the boundaries
    that are the second; ``right``: one that equals a boundary is in the bucket behind it."""
    return own_rows("bucketize", range(rank), (bool(right),))


def bucketized(call: Call, boundaries: Any) -> Steps:
    """Returns the same with boundaries that are numbers of the operation, as TensorFlow has it."""
    held = np.asarray(boundaries, np.float32)
    build = StepBuilder(call.count)
    build.add(
        bucketize(call.rank(), True), (0, build.add(Holds(held), (), held.shape)), call.gives[0]
    )
    return build.done()


def fake_quantised(low: float, high: float, bits: int, narrow: bool) -> Each:
    """Returns numbers rounded to as many as an integer of ``bits`` has between two."""
    return function("fake_quant", low=low, high=high, bits=int(bits), narrow=bool(narrow))


def known_sizes(shape: int | Sequence[int], dtype: str = "int64") -> Holds:
    """Returns sizes of an array, which are known while a run goes on."""
    return Holds(np.asarray(shape, dtype))


def arange(start: float, step: float, count: int, dtype: str) -> Meaning:
    """Returns ``count`` numbers from ``start`` on, ``step`` apart."""
    numbers = start + step * np.arange(count)
    # whole numbers are the same however a library adds them up; of others it may add or multiply
    if all(float(number).is_integer() for number in (start, step)) and dtype in CONTAINED:
        held = numbers.astype(dtype)
        if (held == numbers).all():
            return Holds(held)
    return Made(("range", float(start), float(step)), dtype, places=True)


# Dtypes of ranges whose container arrays are NumPy's own.
CONTAINED = ("float32", "float64", "int32", "int64")


def ranged(call: Call) -> Meaning:
    """Returns the numbers from the first operand to the second, in steps of the third."""
    start, step = (float(call.value(slot).reshape(-1)[0]) for slot in (0, 2))
    return arange(start, step, call.gives[0][0], call.dtypes[0])


def affine_grid(sizes: Sequence[int], align_corners: bool) -> Whole:
    """Returns the places that each matrix of a batch gives to a picture of these ``sizes``."""
    return own_rows("affine_grid", (0,), (tuple(map(int, sizes)), bool(align_corners)))


def grid_sample(mode: str, padding: str, align_corners: bool) -> Whole:
    """Returns pictures at places, (batch, ..., axes): each reads its own picture's channel."""
    words = (mode, padding, bool(align_corners))
    return own_rows("grid_sample", (0, 1), words, (1,))


def solved(
    word: str,
    call: Call,
    own: Mapping[int, int],
    lead: tuple[int, ...],
    said: tuple[Any, ...] = (),
) -> Steps:
    """Returns what solves a stack of linear systems: each result reads all of its own matrix and of
    its own right sides.

    ``own``: of each slot whose operand belongs to the systems how many of its last axes are a
    single system's; ``lead``: the axes that count the stack, to which those of the operands
    broadcast; ``said``: what else decides.
    """
    shapes, gives = [call.shape(slot) for slot in own], call.gives
    parts = [shape[len(shape) - n :] for shape, n in zip(shapes, own.values(), strict=True)]
    build, joined = StepBuilder(call.count), []
    for number, shape, part in zip(call.places(*own), shapes, parts, strict=True):
        if shape != (*lead, *part):
            number = build.add(expand(shape, (*lead, *part)), (number,), (*lead, *part))
        # a system is read as a whole, so that its own axes are one, and those of the stack stay
        joined.append(build.add(Reshapes(), (number,), (*lead, prod(part))))
    every = build.add(Joins(-1), joined, (*lead, sum(map(prod, parts))))
    for place, shape in enumerate(gives):
        if shape[: len(lead)] != lead or 0 in shape:  # it is none of a single system
            build.add(Whole((), f"{word} {place}", (said,)), range(call.count), shape)
            continue
        own_numbers = (tuple(parts), said, shape[len(lead) :])
        build.add(own_rows(f"{word} {place}", range(len(lead)), own_numbers), (every,), shape)
    return build.done(*range(every + 1, build.count))


def triangular_solve(call: Call, slots: tuple[int, int], how: Iterable[bool]) -> Steps:
    """Returns what solves triangular systems: a stack of matrices, each with right sides. ``how``:
    whether matrices stand left, are lower ones, transposed, have a unit diagonal, are conjugated.
    """
    said = tuple(map(bool, how))
    return solved("triangular_solve", call, dict.fromkeys(slots, 2), call.gives[0][:-2], said)


def cumulated(word: str, axis: int, reverse: bool = False, exclusive: bool = False) -> Meaning:
    if exclusive:
        return Unknown("it leaves out its own element")
    return Scans(axis, canonical(word), reverse)


# movement whose meaning sizes of 1 leave open: which of two such axes is which, no position tells


def transpose(axes: Sequence[int]) -> Turns:
    """Returns axes in another order: output axis k is input axis ``axes[k]``."""
    return Turns(tuple(axis % len(axes) for axis in axes))


def squeeze(shape: Sequence[int], axes: Sequence[int] | None = None) -> Meaning:
    """Returns that these axes of size 1 go, all if none is named; which they are is known, as of no
    reshape."""
    every = range(len(shape)) if axes is None else {axis % len(shape) for axis in axes}
    gone = sorted((axis for axis in every if shape[axis] == 1), reverse=True)
    # one after the other from the last: a reshape would not say which of two axes of size 1 went
    return in_turn([(axis, np.asarray(0)) for axis in gone], shape)


def expand(shape: Sequence[int], to: Sequence[int]) -> Broadcasts:
    """Returns an array broadcast as NumPy does it."""
    return Broadcasts(tuple(range(len(to) - len(shape), len(to))))


def stack(axis: int) -> Joins:
    return Joins(axis, stacked=True)


def split(axis: int, gives: Sequence[Sequence[int]]) -> Splits:
    """Returns parts along an axis; ``gives``: their shapes."""
    return Splits(axis % len(gives[0]), tuple(shape[axis] for shape in gives))


def unstack(axis: int, count: int) -> Splits:
    """Returns every index of an axis for itself."""
    return Splits(axis, (1,) * count, drop=True)


def take(axis: int, index: Any) -> Picks:
    """Returns elements at ``index`` along an axis."""
    return Picks(axis=axis, index=np.asarray(index))


def in_turn(picked: Iterable[tuple[int, np.ndarray]], shape: Sequence[int]) -> Meaning:
    """Returns elements at these places along axes, one after the other."""
    build, left = StepBuilder(1), tuple(shape)
    for axis, index in picked:
        left = (*left[:axis], *index.shape, *left[axis + 1 :])
        build.add(take(axis, index), (build.count - 1,), left)
    if len(build.steps) == 1:
        return build.steps[0].meaning
    return build.done() if build.steps else Same()


def pad(widths: Iterable[Sequence[int]], value: Any = 0.0, dtype: str = "float32") -> Pads:
    """Returns an array with ``value`` around it."""
    return Pads(tuple((int(a), int(b)) for a, b in widths), value, dtype)
