"""A recorded operation as the sums that it is: which inputs each output multiplies, and with what.

That is read off its semantics. What the operation reads becomes x, w and b, channels last, what it
gives becomes outputs by position and filter, and the engine runs the operation itself: alone, at
its own shapes and layouts, in this process. What it does with a sum before it gives it (a mean's
division, a bias, a fused ReLU) is taken into account.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import xxhash

from probe.case import floats, operands, ulp
from probe.case.case import Summed
from probe.case.errors import InputError
from probe.case.layout import CONTIGUOUS
from probe.order import window
from probe.order.functions import OwnSession
from probe.order.orders import Behind
from probe.order.semantics import (
    Contracts,
    Each,
    Meaning,
    Reduces,
    Reshapes,
    Same,
    Step,
    Steps,
    Turns,
    Windows,
)
from probe.record.contract import Isolated
from probe.targets import budget
from probe.targets.backends.contract import Operator
from probe.targets.launch import Answer

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Function = tuple[str, tuple[Any, ...]]

# Behind a function with an upper bound the engine's masks are in units of 2 to the minus this.
FAINT = 30

# Functions that clamp a sum, with lower and upper bound; (): the bounds are the call's arguments.
BOUNDED: dict[str, tuple[float | None, ...]] = {
    "relu": (0.0, None), "relu6": (0.0, 6.0), "clip": (),
}  # fmt: skip

# Significant bits of a count that is recovered by multiplying a quotient by its divisor.
KEPT_BITS = 20


@dataclass(frozen=True)
class OperandPart:
    """How an operand of the sum lies in an array that the operation reads."""

    number: int
    """Which of the arrays."""
    array_shape: Shape
    pieces: Shape
    """The array's axes, some of them split."""
    axes: tuple[int, ...]
    """The order of these pieces in the operand."""
    shape: Shape
    """The operand's."""

    @staticmethod
    def of(number: int, array_shape: Shape, axes: Sequence[int], *shape: int) -> OperandPart:
        """An array with its axes in this order, in this shape."""
        return OperandPart(number, array_shape, array_shape, tuple(axes), shape)

    def moved(self, steps: Sequence[Step]) -> OperandPart:
        """The same operand in what becomes of the array by steps that move elements alone.
        InputError: a shape joins pieces that are turned apart."""
        pieces, axes = self.pieces, self.axes
        for step in steps:
            if isinstance(step.meaning, Turns):
                turned = step.meaning.axes
                pieces = tuple(pieces[axis] for axis in turned)
                axes = tuple(turned.index(axis) for axis in axes)
                continue
            inside, at = list[list[int]](), 0  # of each piece, the axes of the new shape
            for size in pieces:
                inside.append([])
                while prod(step.shape[n] for n in inside[-1]) < size and at < len(step.shape):
                    inside[-1].append(at)
                    at += 1
            if [prod(step.shape[n] for n in axis) for axis in inside] != [*pieces]:
                why = "it joins what is summed apart"
                raise InputError("operation", step.meaning.word, why, "")
            inside[-1] += range(at, len(step.shape))  # of size 1
            pieces, axes = step.shape, tuple(n for axis in axes for n in inside[axis])
        return replace(self, array_shape=pieces, pieces=pieces, axes=axes)

    def taken(self, array: np.ndarray) -> np.ndarray:
        """The operand, from the array: a copy."""
        turned = array.reshape(self.pieces).transpose(self.axes)
        return np.array(turned, order="C").reshape(self.shape)

    def put(self, array: np.ndarray) -> np.ndarray:
        """The array, from the operand: a copy."""
        turned = array.reshape([self.pieces[axis] for axis in self.axes])
        back = np.argsort(np.array(self.axes, int))
        return np.array(turned.transpose(back), order="C").reshape(self.array_shape)


class ListedWindows(NamedTuple):
    """As of :class:`probe.case.geometry.WindowSizes`: what each output reads along each axis."""

    places: tuple[np.ndarray, ...]

    def outputs(self, sizes: Sequence[int]) -> Shape:
        return tuple(map(len, self.places))

    def pads(self, sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return ((0, 0),) * len(self.places)  # the index says where nothing is read

    def reads(self, axis: int, size: int) -> np.ndarray:
        return self.places[axis]


@dataclass(frozen=True, eq=False)
class OperationSum(Summed):
    """One side's operation: what the engine has to know of it (:class:`probe.case.case.Summed`),
    and where operands and outputs are."""

    dtype: str
    batch: int
    in_channels: int
    filters: int
    x: OperandPart
    w: OperandPart | None
    b: OperandPart | None
    y: OperandPart
    groups: int = 1
    sizes: Shape = ()
    """Of the spatial axes."""
    index: tuple[np.ndarray, ...] = ()
    """For each spatial axis which place every output reads at each tap, int64 (outputs, taps); what
    is outside of ``sizes`` is padding."""
    scale: int = 1
    """Outputs times this power of two are the sums, as those of a mean of so many."""
    divides: bool = False
    """Sums are divided behind, by a number that has to be found."""
    pooled: bool = False
    """It is a pool, whose weights of 1 are put into its input."""
    functions: tuple[Function, ...] = ()
    """What each sum goes through before it is given: ("clip", both bounds), or ("add", the number
    of what is added)."""
    kind: str = "normal"
    """Of operands that are generated."""
    seed: int = 0

    op, pool, layout, label = "sum", "", CONTIGUOUS, "a recorded operation"
    weights = put = bias_values = None

    @property
    def weighted(self) -> bool:
        return self.w is not None or self.pooled  # of a pool they are put into the input

    @property
    def bias(self) -> str | None:
        return None if self.b is None else "normal"

    @property
    def kernel(self) -> Shape:
        return tuple(taps.shape[1] for taps in self.index)

    @property
    def spatial_rank(self) -> int:
        return len(self.sizes)

    @property
    def length(self) -> int | None:
        return self.sizes[-1] if self.sizes else None

    def spatial(self, length: int | None = None) -> Shape:
        return self.sizes

    @property
    def windows(self) -> ListedWindows:
        return ListedWindows(self.index)

    def drawn(self, kind: str, seed: int) -> OperationSum:
        return replace(self, kind=kind, seed=seed)

    def operands(self) -> Arrays:
        return operands.generate(self)  # type: ignore[arg-type]

    def spec(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "filters": self.filters, "bias": self.b is not None}

    def to_json(self) -> dict[str, Any]:
        """How many of what are added where: orders go with it."""
        index = [(array.shape, xxhash.xxh3_64_hexdigest(array.tobytes())) for array in self.index]
        names = ("dtype", "batch", "in_channels", "filters", "groups", "sizes", "bias", "pooled")
        return {name: getattr(self, name) for name in names} | {"index": index}

    def of(self, reads: Sequence[np.ndarray]) -> Arrays:
        """x, w and b, from all that is read (container arrays)."""
        x = self.x.taken(reads[self.x.number])
        if self.w is None:
            w = floats.round_to(np.ones(self.weight_shape), self.dtype)
        else:
            w = self.w.taken(reads[self.w.number])
        return x, w, None if self.b is None else self.b.taken(reads[self.b.number])

    @property
    def added(self) -> list[int]:
        return [numbers[0] for word, numbers in self.functions if word == "add"]

    def filled(self, array: np.ndarray, number: int) -> np.ndarray:
        """What is added to the outputs, as (positions, filters). InputError: it is broadcast."""
        if array.shape != self.y.array_shape:
            why = "it is added behind the sum, and not of the output's shape"
            raise InputError(f"x{number}", array.shape, why, "")
        return self.y.taken(array).reshape(-1, self.filters)

    def places(self, flat: np.ndarray) -> np.ndarray:
        """(position, filter) of outputs by their flat index as the operation gives them."""
        index = self.y.taken(
            np.arange(prod(self.y.array_shape)).reshape(self.y.array_shape)
        ).reshape(-1)
        # the inverse permutation: where each element that the operation gives is among the outputs
        where = np.empty(index.size, np.int64)
        where[index] = np.arange(index.size)
        return np.stack(np.divmod(where[flat], self.filters), axis=1)


# The sum that an operation is


def sum_of(
    meaning: Meaning, shapes: Sequence[Shape], output: Shape, dtypes: Sequence[str]
) -> OperationSum:
    """InputError: the operation is no sum, with what stands against it.

    ``shapes``, ``dtypes``: of what it reads, and last the dtype of its first output.
    """
    steps = getattr(meaning, "steps", ())
    # what only moves the sums behind, a transpose among it, is undone where they are read
    end = len(steps)
    while end > 1 and steps[end - 1].reads == (len(shapes) + end - 2,):
        if not isinstance(steps[end - 1].meaning, Turns | Reshapes | Same):
            break
        end -= 1
    moves = steps[end:]
    if any(isinstance(step.meaning, Turns) for step in moves) and not getattr(meaning, "gives", ()):
        summed = sum_of(Steps(tuple(steps[:end])), shapes, steps[end - 1].shape, dtypes)
        return replace(summed, y=summed.y.moved(moves))
    meaning, functions = behind_of(meaning, shapes)
    summands = [numbers[0] for word, numbers in functions if word == "add"]
    factors: Sequence[int] = (0,)
    if isinstance(meaning, Contracts):
        factors = [*meaning.reads, *([] if meaning.bias is None else [meaning.bias])]
    elif isinstance(meaning, Windows) and not meaning.pool:
        factors = meaning.reads
    formats = {dtypes[n] for n in (*factors, *summands)} | {dtypes[-1]}
    if len(formats) > 1:
        why = "its operands have different formats"
        raise InputError("dtype", "+".join(sorted(formats)), why, "")
    if dtypes[-1] not in floats.FORMATS:
        why = f"orders are revealed of sums of {', '.join(floats.FORMATS)} alone"
        raise InputError("dtype", dtypes[-1], why, "")
    if isinstance(meaning, Contracts):
        summed = _product_sum(meaning, shapes, steps[0].shape if steps else output, dtypes[-1])
        summed = replace(summed, y=replace(summed.y, array_shape=output))
    elif isinstance(meaning, Windows):
        summed = _window_sum(meaning, shapes, output, dtypes[-1])
    elif isinstance(meaning, Reduces):
        summed = _reduction_sum(meaning, shapes[0], output, dtypes[-1])
    else:
        raise InputError("operation", type(meaning).__name__, "it is not a sum of products", "")
    return replace(summed, functions=functions)


def first_of(meaning: Meaning) -> Meaning:
    """What an operation that is several in one starts with."""
    steps = getattr(meaning, "steps", ())
    first: Meaning = steps[0].meaning if steps else meaning
    return first


def behind_of(meaning: Meaning, shapes: Sequence[Shape]) -> tuple[Meaning, tuple[Function, ...]]:
    """An operation that is several in one: the sum that it starts with, and functions behind it.

    ``shapes``: of the arrays it reads. A bias that is added behind becomes the sum's own.
    InputError: what is behind is not of this kind.
    """
    count, functions = len(shapes), list[Function]()

    def shapes_an_operand(_: int, step: Step, read: int) -> bool:
        # the bias of a depthwise convolution, which Keras reshapes and TensorFlow squeezes again
        same = read < count and prod(step.shape) == prod(shapes[read]) == max(step.shape, default=1)
        return same and _keeps_order(step.meaning)

    def shapes_the_sums(number: int, step: Step, read: int) -> bool:
        # the last axis has to stay: what is added behind a product lies along it
        last = step.shape[-1:] == steps[0].shape[-1:]
        return number > 0 and read >= count and last and isinstance(step.meaning, Reshapes | Same)

    steps = _leave_out_steps(getattr(meaning, "steps", ()), count, shapes_an_operand)
    if steps and isinstance(steps[0].meaning, Contracts):
        steps = _leave_out_steps(steps, count, shapes_the_sums)
    first = steps[0].meaning if steps else meaning
    if steps and steps[0].reads != tuple(range(len(steps[0].reads))):
        raise InputError("operation", type(first).__name__, "several operations in one", "")
    for number, step in enumerate(steps[1:], count):
        others, behind = tuple(n for n in step.reads if n != number), step.meaning
        if number not in step.reads:
            raise InputError("operation", meaning.word, "several operations in one", "")
        plain = isinstance(behind, Each) and not behind.numbers
        if plain and behind.word == "add" and len(others) == 1:
            row = not functions and sum(size > 1 for size in shapes[others[0]]) < 2
            if row and isinstance(first, Windows) and len(first.reads) == 2 and not first.pool:
                first = replace(first, reads=(*first.reads, *others))
            elif row and isinstance(first, Contracts) and first.bias is None:
                first = replace(first, bias=others[0])
            else:
                functions.append(("add", others))
        elif isinstance(behind, Each) and behind.word in BOUNDED and not others:
            functions.append(("clip", BOUNDED[behind.word] or behind.numbers))
        else:
            what = behind.word or type(behind).__name__.lower()
            raise InputError("operation", what, f"{what} is computed after the sum", "")
    return first, tuple(functions)


def _leave_out_steps(
    steps: Sequence[Step], count: int, only: Callable[[int, Step, int], bool]
) -> Sequence[Step]:
    """Leaves out steps that ``only`` give another shape to the one value that they read: asked with
    a step's number, itself, and what it reads. ``count``: of what all steps read."""
    if any(step.more for step in steps):
        return steps
    remaining, numbers = list[Step](), {n: n for n in range(count)}
    for number, step in enumerate(steps):
        reads = tuple(numbers[n] for n in step.reads)
        if len(reads) == 1 and only(number, step, reads[0]):
            numbers[count + number] = reads[0]
        else:
            numbers[count + number] = count + len(remaining)
            remaining.append(replace(step, reads=reads))
    return remaining


def _keeps_order(meaning: Meaning) -> bool:
    """Whether elements stay in their order, if none is left out."""
    if isinstance(meaning, Steps):
        return not meaning.gives and all(_keeps_order(step.meaning) for step in meaning.steps)
    return isinstance(meaning, Reshapes | Same)


@dataclass(frozen=True)
class ProductLetters:
    """The axes of a product of two arrays by the letters of its equation."""

    reads: tuple[int, int]
    """Numbers of the two."""
    shapes: tuple[Shape, Shape]
    texts: tuple[str, str]
    """Letters of the two."""
    out: str
    """Letters of the result."""
    sizes: Mapping[str, int]
    full: tuple[set[str], set[str]]
    """Letters of either that aren't broadcast: an axis of length 1 that is belongs to the other
    operand alone."""

    @classmethod
    def of(cls, meaning: Contracts, shapes: Sequence[Shape]) -> ProductLetters:
        """InputError: the outputs of this product are no sums of products alone."""
        left_shape, right_shape = (shapes[number] for number in meaning.reads)
        texts, out = meaning.spelled(left_shape, right_shape)
        sizes: dict[str, int] = {}
        for text, shape in zip(texts, (left_shape, right_shape), strict=True):
            if len(set(text)) < len(text):
                raise InputError("equation", meaning.equation, "it reads a diagonal", "")
            for letter, size in zip(text, shape, strict=True):
                sizes[letter] = max(sizes.get(letter, 1), size)
        both = zip(texts, (left_shape, right_shape), strict=True)
        first, second = ({x for x, n in zip(*pair, strict=True) if n == sizes[x]} for pair in both)
        if (first ^ second) - set(out):
            raise InputError("equation", meaning.equation, "an operand is summed by itself", "")
        return cls(meaning.reads, (left_shape, right_shape), texts, out, sizes, (first, second))

    def count(self, letters: Sequence[str]) -> int:
        return prod(self.sizes[letter] for letter in letters)

    def summed(self, which: int) -> list[str]:
        """The letters that are summed, in the order in which an operand has them."""
        inner = (self.full[0] & self.full[1]).difference(self.out)
        return [letter for letter in self.texts[which] if letter in inner]

    def part(self, which: int, letters: Sequence[str], *shape: int) -> OperandPart:
        """An operand with its axes in this order; those that are broadcast come first."""
        text = self.texts[which]
        ordered = [text.index(letter) for letter in letters if letter in text]
        broadcast = [axis for axis in range(len(text)) if axis not in ordered]
        return OperandPart.of(self.reads[which], self.shapes[which], broadcast + ordered, *shape)


def _product_sum(
    meaning: Contracts, shapes: Sequence[Shape], out: Shape, dtype: str
) -> OperationSum:
    """Rows times weights; where both operands have a batch, its entries are groups of filters.

    The weights are the operand that the bias goes with, or else the one with more of its own.
    """
    axes = ProductLetters.of(meaning, shapes)
    both = [x for x in axes.out if x in axes.full[0] & axes.full[1]]
    alone = [[x for x in axes.out if x not in axes.full[1 - n]] for n in (0, 1)]
    bias = None if meaning.bias is None else shapes[meaning.bias]
    for rows in sorted((0, 1), key=lambda n: -axes.count(alone[1 - n])):
        filters, summed = [*both, *alone[1 - rows]], axes.summed(rows)
        if bias is not None and not is_filter_bias(bias, axes.out, filters, axes.sizes):
            continue
        m, g, k, n = map(axes.count, (alone[rows], both, summed, filters))
        order = [axes.out.index(x) for x in (*alone[rows], *filters)]
        b = None
        if bias is not None:
            b = OperandPart.of(meaning.bias or 0, bias, range(len(bias)), n)
        return OperationSum(
            *(dtype, m, g * k, n),
            x=axes.part(rows, [*alone[rows], *both, *summed], m, g * k),
            w=axes.part(1 - rows, [*summed, *filters], k, n),
            b=b,
            y=OperandPart.of(0, out, order, m, n),
            groups=g,
        )
    raise InputError("bias", bias, "it is not one number for each filter", "")


def is_filter_bias(bias: Shape, out: str, filters: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether a bias has one number for each filter, in the filters' order."""
    if len(bias) > len(out):
        return False
    both = list(zip(out[len(out) - len(bias) :], bias, strict=True))
    full = [letter for letter, size in both if size > 1]
    fits = all(size in (1, sizes[letter]) for letter, size in both)
    return fits and full == [x for x in filters if sizes[x] > 1]


def _reduction_sum(meaning: Reduces, shape: Shape, out: Shape, dtype: str) -> OperationSum:
    """A sum or a mean along some axes: each row is a place."""
    if meaning.word not in ("sum", "mean"):
        raise InputError("operation", meaning.word, "it is not a sum", "")
    axes = sorted(axis % len(shape) for axis in meaning.axes)
    row_axes = [axis for axis in range(len(shape)) if axis not in axes]
    count, rows = prod(shape[axis] for axis in axes), prod(shape[axis] for axis in row_axes)
    mean = meaning.word == "mean" and count > 1
    exact = not count & (count - 1)
    return OperationSum(
        *(dtype, 1, count, 1),
        x=OperandPart.of(0, shape, [*row_axes, *axes], 1, rows, count),
        w=None,
        b=None,
        y=OperandPart.of(0, out, range(len(out)), 1, rows, 1),
        sizes=(rows,),
        index=(np.arange(rows)[:, None],),
        scale=count if mean and exact else 1,
        divides=mean and not exact,
    )


def _window_sum(inner: Windows, shapes: Sequence[Shape], out: Shape, dtype: str) -> OperationSum:
    """A convolution, transposed or not, or a pool that adds: each channel by itself."""
    if inner.kind == "max":
        why = "only sums of products in windows can be revealed"
        raise InputError("kind", inner.kind, why, "")
    number, channels = inner.reads[0], inner.channels
    shape = shapes[number]
    batch = [a for a in range(len(shape)) if a not in inner.spatial and a != channels]
    order = [*batch, *inner.spatial, channels]
    sizes, positions = (tuple(axes[axis] for axis in inner.spatial) for axes in (shape, out))
    filters, entries = out[channels], prod(shape[axis] for axis in batch)
    along = enumerate(zip(sizes, positions, strict=True))

    def tap_indices(k: int, size: int, outputs: int) -> np.ndarray:
        """Which place of a spatial axis each output reads at each tap, -1 for none."""
        taps, step, hole = np.arange(inner.kernel[k]) * inner.dilation[k], inner.stride[k], 1
        taps = taps - inner.padding[k][0]
        # a transposed convolution is one whose elements are a stride apart, seen from its outputs:
        # output o reads i where o = i * stride + tap
        if inner.kind == "transposed":
            taps, step, hole = -taps[::-1] if inner.flipped else -taps, 1, step
        place, between = np.divmod(np.arange(outputs)[:, None] * step + taps, hole)
        return np.where((between == 0) & (place >= 0) & (place < size), place, -1)

    summed = OperationSum(
        *(dtype, entries, shape[channels], filters),
        x=OperandPart.of(number, shape, order, entries, *sizes, shape[channels]),
        w=None,
        b=None,
        y=OperandPart.of(0, out, order, entries, *positions, filters),
        groups=filters if inner.pool else inner.groups,
        sizes=sizes,
        index=tuple(tap_indices(k, *counts) for k, counts in along),
    )
    if inner.pool:
        return replace(summed, divides=inner.kind == "average", pooled=True)
    w, b = inner.reads[1], inner.reads[2] if len(inner.reads) > 2 else None
    if b is not None and prod(shapes[b]) != filters:
        raise InputError("bias", shapes[b], "it is not one number for each filter", "")
    weights = OperandPart.of(w, shapes[w], inner.weights, *summed.weight_shape)
    if inner.groups > 1 and shapes[w][inner.weights[-2]] == summed.in_channels:
        # as (in, out / groups) of transposed convolutions in PyTorch: the groups lie there
        at, moved = inner.weights[-2], [n + (n > inner.weights[-2]) for n in inner.weights]
        pieces = (*shapes[w][:at], inner.groups, summed.group_channels, *shapes[w][at + 1 :])
        axes = (*moved[:-2], at + 1, at, moved[-1])
        weights = replace(weights, pieces=pieces, axes=axes)
    return replace(
        summed,
        w=weights,
        b=None if b is None else OperandPart.of(b, shapes[b], range(len(shapes[b])), filters),
    )


# The operation as a target of the engine


class SumSession(OwnSession):
    """A recorded operation as a started target of its sum. InputError: its last step is not known.

    ``reads``: container arrays as they were recorded; what it reads besides its operands stays.
    ``behind``: what becomes of each sum before it is given; None: nothing. ``divisors``: of the
    sums that are divided, by position; ``faint``: the power of two that masks are divided by.
    """

    def __init__(
        self, name: str, summed: OperationSum, reads: Sequence[np.ndarray], again: Isolated
    ) -> None:
        super().__init__(name, partial(_Pool if summed.pooled else _Operation, owner=self))
        self.summed, self.reads, self.again, self.faint = summed, reads, again, 0
        self.behind: Behind | None = None
        self.divisors: np.ndarray | None = None
        if summed.divides:
            self.behind = self._divided()
        elif summed.functions:
            added = {n: summed.filled(reads[n], n) for n in summed.added}
            self.behind = _functions_behind(summed.functions, summed.dtype, added)
            # a bound would cut the counts that answers are: faint ones stay below it, and a power
            # of two is exact; float16 has nothing as small as 2 to the minus 30
            bounded = any(word == "clip" and n[1] is not None for word, n in summed.functions)
            self.faint = FAINT * (bounded and summed.dtype != "float16")

    def stream(self, header: Mapping[str, Any], arrays: Any = None) -> Iterator[Answer]:
        """As of ``InlineSession``, with masks whose answers get through ``behind``."""
        if header["do"] != "masks" or self.behind is None:
            yield from super().stream(header, arrays)
            return
        names = ("x", "b", "b_values") if header["mode"] == "weights" else ()
        faint = {k: self._faint(v, -self.faint) if k in names else v for k, v in arrays.items()}
        # what is added behind answers nothing
        recorded, added = self.reads, self.summed.added
        self.reads = [np.zeros_like(r) if n in added else r for n, r in enumerate(recorded)]
        try:
            for answer, results in super().stream(header, faint):
                yield answer, results | {"outputs": self._answers(results["outputs"], arrays)}
        finally:
            self.reads = recorded

    def _faint(self, array: np.ndarray, power: int) -> np.ndarray:
        dtype = self.summed.dtype
        return floats.round_to(np.ldexp(floats.widen(array, dtype), power), dtype)

    def _answers(self, answered: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Recovers the sums from the answers; a division is undone exactly for sums of few bits."""
        if self.divisors is None:
            return self._faint(answered, self.faint) if self.faint else answered
        dtype, filters = self.summed.dtype, self.summed.filters
        select = arrays.get("select", np.arange(answered[0].size))
        times = self.divisors[select // filters].reshape(answered[0].shape)
        # what was added are whole numbers of few bits: rounding to these takes the quotient's
        # rounding away
        digits, power = np.frexp(floats.widen(answered, dtype) * times)
        bits = min(KEPT_BITS, floats.format_of(dtype).precision - 2)
        return floats.round_to(np.ldexp(np.rint(np.ldexp(digits, bits)), power - bits), dtype)

    def _divided(self) -> Behind:
        """By what each sum is divided, and how: found with ones, and with a number in each sum."""
        summed = self.summed
        dtype, shape = summed.dtype, summed.weight_shape
        ones, w = (floats.round_to(np.ones(s), dtype) for s in (summed.input_shape(), shape))
        counts = self._read(ones, None)
        divided = floats.widen(self._outputs(ones, w), dtype).reshape(-1, summed.filters)
        # a sum of ones over what was given for it is the divisor, but for the roundings of both
        self.divisors = np.rint(counts[:, 0] / divided[:, 0])
        x = floats.round_to(operands.normal(0, "x", summed.input_shape()), dtype)
        leaf = summed.summands // 2
        # ones alone divide the same at once and by a reciprocal: one number in each sum tells these
        # apart
        single = np.zeros((summed.summands, summed.filters))
        single[leaf] = 1
        w = floats.round_to(single.reshape(shape), dtype)
        if not summed.weighted:  # what the weights would make of it is put there
            x = floats.round_to(floats.widen(x, dtype) * single[:, 0], dtype)
        sums = self._read(x, leaf)
        outputs = self._outputs(x, w).reshape(sums.shape)
        inverse = floats.widen(floats.round_to(1 / self.divisors, dtype), dtype)
        for by, how in ((self.divisors, np.divide), (inverse, np.multiply)):
            apply = partial(_divided, by=by, how=how, dtype=dtype)
            wanted = apply(floats.round_to(sums, dtype), np.arange(len(sums)), np.zeros(1, int))
            if ulp.equal(wanted, outputs, dtype):
                return Behind(apply, True)
        why = "its sums are divided in a way that is not known"
        raise InputError("count", summed.summands, why, "")

    def _outputs(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        request = {"do": "run", "spec": self.summed.spec()}
        y: np.ndarray = super().request(request, {"x": x, "w": w})[1]["y"]
        return y

    def _read(self, x: np.ndarray, leaf: int | None) -> np.ndarray:
        """What one leaf meets, or all together, as float64 (positions, filters)."""
        summed, lines = self.summed, []
        for column in window.columns(summed, x):
            values = floats.widen(np.ascontiguousarray(column), summed.dtype)
            line = values.sum(axis=0) if leaf is None else values[leaf]
            lines += [line] * (summed.filters // summed.groups)
        return np.stack(lines, axis=1)


def _divided(
    array: np.ndarray, positions: np.ndarray, _: np.ndarray, by: np.ndarray, how: Any, dtype: str
) -> np.ndarray:
    """Sums divided by counts (positions,), or multiplied with their rounded reciprocals."""
    counts = by[positions].reshape(-1, *(1,) * (array.ndim - 1))
    return floats.round_to(how(floats.widen(array, dtype), counts), dtype)


def _functions_behind(
    functions: Sequence[Function], dtype: str, added: Mapping[int, np.ndarray]
) -> Behind:
    """Additions and bounds, one after the other.

    ``added``: arrays (positions, filters) by the numbers of what is read.
    """
    for word, numbers in functions:
        # an answer of zero has to stay what it is, and answers above it have to get through
        low, high = (None, None) if word == "add" else numbers
        if (low or 0) > 0 or (high is not None and high <= 0):
            raise InputError("operation", word, "its bounds hide the answers", "")

    def apply(array: np.ndarray, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        values = floats.widen(array, dtype)
        for word, numbers in functions:
            if word == "add":
                more = floats.widen(added[numbers[0]][positions, filters], dtype)
                values = floats.widen(floats.round_to(values + more, dtype), dtype)
            else:
                values = np.clip(values, *numbers)
        return floats.round_to(values, dtype)

    return Behind(apply)


class _Operation(Operator):
    def __init__(self, spec: dict[str, Any], owner: SumSession) -> None:
        super().__init__(spec)
        self.summed = summed = owner.summed

        def call(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
            budget.require_time()
            reads = list(owner.reads)
            for part, array in ((summed.x, x), (summed.w, w), (summed.b, b)):
                if part is not None and array is not None:
                    reads[part.number] = array
            with np.errstate(all="ignore"):
                return owner.again(reads)[summed.y.number]

        self.call = call

    def input(self, x: np.ndarray) -> np.ndarray:
        return self.summed.x.put(x)

    def weights(self, w: np.ndarray) -> np.ndarray:
        return w if self.summed.w is None else self.summed.w.put(w)

    def bias(self, b: np.ndarray | None) -> np.ndarray | None:
        return None if b is None or self.summed.b is None else self.summed.b.put(b)

    def output(self, y: np.ndarray) -> np.ndarray:
        sums = self.summed.y.taken(np.asarray(y))
        if self.summed.scale == 1:
            return sums
        with np.errstate(over="ignore"):  # times a power of two: exact, but for what overflows
            wide = floats.widen(sums, self.summed.dtype) * self.summed.scale
            return floats.round_to(wide, self.summed.dtype)


class _Pool(_Operation):
    """A pool with weights: each window is put into the input as what its weights make of it.

    Windows overlap, so that outputs are computed in as many calls as there are sets of windows that
    don't; the rest of the input is 0 then.
    """

    def __init__(self, spec: dict[str, Any], owner: SumSession) -> None:
        super().__init__(spec, owner)
        pool, summed = self.call, owner.summed
        reads, number = window.Geometry.of(summed).reads(), np.zeros(1, np.int64)
        # so many outputs on, a window begins behind the end of the first
        for index in summed.index:
            starts = np.where(index < 0, index.max(initial=0), index).min(axis=1)
            period = next(
                n
                for n in itertools.count(1)
                if n >= len(index) or (index[:-n].max(axis=1) < starts[n:]).all()
            )
            # of each axis the set, of all together a number: two windows of one set meet nowhere
            number = (number[:, None] * period + np.arange(len(index)) % period).reshape(-1)
        sets = [np.flatnonzero(number == member) for member in np.unique(number)]

        def call(x: np.ndarray, w: np.ndarray, b: None) -> np.ndarray:
            weights = floats.widen(w, summed.dtype).reshape(-1, summed.filters)
            if (weights == 1).all():
                return pool(summed.x.put(x), w, b)
            flat, outputs = x.reshape(summed.batch, -1, summed.filters), None
            for chosen in sets:
                rows = reads[chosen]
                inside = rows >= 0
                met = floats.widen(flat[:, rows], summed.dtype) * weights
                placed = np.zeros_like(flat)
                placed[:, rows[inside]] = floats.round_to(met, summed.dtype)[:, inside]
                y = summed.y.taken(np.asarray(pool(summed.x.put(placed), w, b)))
                lines = y.reshape(summed.batch, -1, summed.filters)
                outputs = np.zeros_like(lines) if outputs is None else outputs
                outputs[:, chosen] = lines[:, chosen]
            assert outputs is not None
            return summed.y.put(outputs)

        self.call = call

    def input(self, x: np.ndarray) -> np.ndarray:
        return np.array(x, order="C")
