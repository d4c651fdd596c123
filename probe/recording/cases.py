"""A recorded operation as a case of the engine, if it adds.

Sums of products, sums and means are cases: what is read becomes x, w and b, channels last, and what
is given becomes outputs by position and filter. Convolutions, pools that add and transposed
convolutions stand at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from probe.case import Case
from probe.errors import InputError
from probe.recording.view import AsCase, Function, Part, Phase
from probe.semantics import (
    Contracts,
    Each,
    Meaning,
    Reduces,
    Reshapes,
    Same,
    Step,
    Windows,
)


def parts_of(
    meaning: Meaning, shapes: Sequence[tuple[int, ...]]
) -> tuple[Meaning, tuple[Function, ...]]:
    """An operation that is several in one: the sum that it starts with, and functions behind it.

    ``shapes``: of the arrays it reads. A bias that is added behind becomes the sum's own.
    InputError: what is behind is not of this kind.
    """
    behind, count = list(getattr(meaning, "behind", ())), len(shapes)
    if steps := _without_shapes(getattr(meaning, "steps", ()), count):
        first = steps[0].meaning
        if steps[0].reads != tuple(range(len(steps[0].reads))):
            raise InputError("operation", type(first).__name__, "several operations in one", "")
        for number, one in enumerate(steps[1:]):
            if count + number not in one.reads:
                raise InputError("operation", meaning.word, "several operations in one", "")
            others = tuple(n for n in one.reads if n != count + number)
            behind.append((one.meaning, others))
    else:
        first = getattr(meaning, "first", meaning)
    functions: list[Function] = []
    for one, others in behind:
        each = getattr(one, "each", one)
        if each.word == "add" and len(others) == 1:
            if functions or (biased := _with_bias(first, others[0], shapes)) is None:
                functions.append(("add", others))
            else:
                first = biased
        elif isinstance(each, Each) and not others:
            functions.append((each.word, each.numbers))
        else:
            raise InputError("operation", each.word, "it is computed after the sum", "")
    return first, tuple(functions)


def _without_shapes(steps: Sequence[Step], count: int) -> Sequence[Step]:
    """Leaves out steps behind a product that give its sums another shape and move none.

    The last axis has to stay: what is added behind lies along it. ``count``: of what is read.
    """
    if not steps or not isinstance(steps[0].meaning, Contracts):
        return steps
    kept: list[Step] = []
    numbers, last = {n: n for n in range(count)}, steps[0].shape[-1:]
    for number, one in enumerate(steps):
        reads = tuple(numbers[n] for n in one.reads if n in numbers)
        shaped = isinstance(one.meaning, Reshapes | Same) and one.shape[-1:] == last
        if number and shaped and len(reads) == 1 and reads[0] >= count:
            numbers[count + number] = reads[0]
            continue
        numbers[count + number] = count + len(kept)
        kept.append(replace(one, reads=reads))
    return kept


def _with_bias(meaning: Meaning, number: int, shapes: Sequence[tuple[int, ...]]) -> Meaning | None:
    """The sum with an addend as its bias; None where it has one, or the addend is an array."""
    if sum(size > 1 for size in shapes[number]) > 1:
        return None
    if isinstance(meaning, Windows) and len(meaning.reads) == 2 and not meaning.pool:
        return replace(meaning, reads=(*meaning.reads, number))
    if isinstance(meaning, Contracts) and meaning.bias is None:
        return replace(meaning, bias=number)
    return None


def as_cases(
    meaning: Meaning,
    shapes: Sequence[tuple[int, ...]],
    outputs: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
) -> list[AsCase]:
    """The cases that an operation is: one, but for what has another window at each of its phases.

    InputError: it is none, with what stands against it.

    ``shapes``, ``dtypes``: of what it reads, and last the dtype of its first output.
    """
    steps = getattr(meaning, "steps", ())
    meaning, functions = parts_of(meaning, shapes)
    used: Sequence[int] = (0,)
    others = [numbers[0] for word, numbers in functions if word == "add"]
    if isinstance(meaning, Contracts):
        used = [*meaning.reads, *([] if meaning.bias is None else [meaning.bias])]
    elif isinstance(meaning, Windows):
        used = meaning.reads if not meaning.pool else (0,)
    mixed = {dtypes[n] for n in (*used, *others)} | {dtypes[-1]}
    if len(mixed) > 1:
        raise InputError(
            "dtype", "+".join(sorted(mixed)), "its operands have different formats", ""
        )
    if isinstance(meaning, Contracts):
        found = _product(meaning, shapes, steps[0].shape if steps else outputs[0], dtypes[-1])
        found = replace(found, y=replace(found.y, whole=outputs[0]))
    elif isinstance(meaning, Windows) and meaning.kind == "transposed":
        every = transposed(meaning, shapes, outputs[0], dtypes[-1])
        return [replace(one, functions=functions) for one in every]
    elif isinstance(meaning, Windows):
        found = windows(meaning, shapes, outputs[0], dtypes[-1])
    elif isinstance(meaning, Reduces):
        found = _reduced(meaning, shapes[0], outputs[0], dtypes[-1])
    else:
        raise InputError("operation", type(meaning).__name__, "it is not a sum of products", "")
    return [replace(found, functions=functions)]


class _Axes:
    """The letters of a product of two: of a batch, of rows, of columns, and the summed ones."""

    def __init__(self, meaning: Contracts, shapes: Sequence[tuple[int, ...]]) -> None:
        self.equation, self.numbers = meaning.equation, meaning.reads
        self.shapes = [shapes[number] for number in meaning.reads]
        texts, self.out = meaning.spelled(self.shapes[0], self.shapes[1])
        self.sizes: dict[str, int] = {}
        for text, shape in zip(texts, self.shapes, strict=True):
            if len(set(text)) < len(text):
                raise InputError("equation", meaning.equation, "it reads a diagonal", "")
            for letter, size in zip(text, shape, strict=True):
                self.sizes[letter] = max(self.sizes.get(letter, 1), size)
        self.texts = texts
        # an axis of length 1 that is broadcast belongs to the other operand alone
        self.own = [
            "".join(x for x, n in zip(text, shape, strict=True) if n == self.sizes[x])
            for text, shape in zip(texts, self.shapes, strict=True)
        ]
        alone = (set(self.own[0]) ^ set(self.own[1])) - set(self.out)
        if alone:
            raise InputError("equation", meaning.equation, "an operand is summed by itself", "")

    def letters(self, one: int) -> tuple[str, str, str, str]:
        """Of rows, batch, columns and sums, where operand ``one`` has the rows."""
        ours, theirs = self.own[one], self.own[1 - one]
        both = [x for x in self.out if x in ours and x in theirs]
        rows = [x for x in self.out if x not in theirs]
        columns = [x for x in self.out if x in theirs and x not in ours]
        sums = [x for x in ours if x in theirs and x not in self.out]
        return "".join(rows), "".join(both), "".join(columns), "".join(sums)

    def count(self, letters: str) -> int:
        """Returns how many elements these axes have."""
        return prod(self.sizes[letter] for letter in letters)

    def part(self, which: int, letters: str, *shape: int) -> Part:
        """Operand ``which`` with its axes in this order; those that are broadcast come first."""
        text = self.texts[which]
        rest = [axis for axis, letter in enumerate(text) if letter not in letters]
        axes = [*rest, *(text.index(letter) for letter in letters)]
        return Part.of(self.numbers[which], self.shapes[which], axes, *shape)


def _product(
    meaning: Contracts, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], dtype: str
) -> AsCase:
    """Rows times weights; where both operands have a batch, its entries are groups of filters.

    The weights are the operand that the bias goes with, or else the one with more of its own.
    """
    axes = _Axes(meaning, shapes)
    bias = None if meaning.bias is None else shapes[meaning.bias]
    width = [axes.count(axes.letters(one)[2]) for one in (0, 1)]
    for one in sorted((0, 1), key=lambda n: -width[n]):
        rows, both, columns, sums = axes.letters(one)
        filters = both + columns
        if bias is not None and not _fits(bias, axes, filters):
            continue
        m, g, n, k = (axes.count(letters) for letters in (rows, both, columns, sums))
        case = _rows(m, g, n, k, dtype, bias is not None)
        middle = (1,) * case.spatial_rank
        turned = [axes.out.index(letter) for letter in rows + filters]
        return AsCase(
            case,
            x=axes.part(one, rows + both + sums, m, *middle, g * k),
            w=axes.part(1 - one, sums + filters, *middle, k, g * n),
            b=None if bias is None else Part.of(meaning.bias or 0, bias, range(len(bias)), g * n),
            y=Part.of(0, out, turned, m, *middle, g * n),
        )
    raise InputError("bias", bias, "it is not one number for each filter", "")


def _rows(m: int, g: int, n: int, k: int, dtype: str, bias: bool) -> Case:
    """m rows of k numbers with n filters; with g groups of both, a convolution of one element."""
    added = "normal" if bias else None
    if g == 1:
        return Case("dense", in_channels=k, filters=n, batch=m, dtype=dtype, bias=added)
    sizes: dict[str, Any] = {"in_channels": g * k, "filters": g * n, "groups": g, "batch": m}
    return Case("conv1d", kernel=1, length=1, dtype=dtype, bias=added, **sizes)


def _fits(bias: tuple[int, ...], axes: _Axes, filters: str) -> bool:
    """Returns whether a bias has one number for each filter, in the filters' order."""
    if len(bias) > len(axes.out):
        return False
    letters = axes.out[len(axes.out) - len(bias) :]
    full = [x for x, size in zip(letters, bias, strict=True) if size > 1]
    named = "".join(x for x in filters if axes.sizes[x] > 1)
    fits = all(size in (1, axes.sizes[letter]) for letter, size in zip(letters, bias, strict=True))
    return fits and "".join(full) == named


def _reduced(meaning: Reduces, shape: tuple[int, ...], out: tuple[int, ...], dtype: str) -> AsCase:
    """Returns a sum or a mean along some axes."""
    if meaning.word not in ("sum", "mean"):
        raise InputError("operation", meaning.word, "it is not a sum", "")
    axes = sorted(axis % len(shape) for axis in meaning.axes)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    count, rows = prod(shape[axis] for axis in axes), prod(shape[axis] for axis in rest)
    mean = meaning.word == "mean" and count > 1
    exact = not count & (count - 1)
    return AsCase(
        Case("sum", in_channels=count, length=rows, dtype=dtype),
        x=Part.of(0, shape, [*rest, *axes], 1, rows, count),
        w=None,
        b=None,
        y=Part.of(0, out, range(len(out)), 1, rows, 1),
        scale=count if mean and exact else 1,
        divides=mean and not exact,
    )


def windows(
    meaning: Windows, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], dtype: str
) -> AsCase:
    """Returns a convolution, or a pool that adds."""
    if meaning.kind in ("average", "sum"):
        return _pool(meaning, shapes[0], out, dtype)
    if meaning.kind != "convolution":
        raise InputError(
            "kind", meaning.kind, "only sums of products in windows can be written as a case", ""
        )
    number, weights = meaning.reads[0], meaning.reads[1]
    b = meaning.reads[2] if len(meaning.reads) > 2 else None
    case, x, y = _slid(
        meaning,
        *(number, shapes[number], out, dtype),
        filters=out[meaning.channels],
        groups=meaning.groups,
        padding=tuple(tuple(pair) for pair in meaning.padding),
        bias=None if b is None else "normal",
    )
    if b is not None and prod(shapes[b]) != case.filters:
        raise InputError("bias", shapes[b], "it is not one number for each filter", "")
    return AsCase(
        case,
        x=x,
        w=Part.of(weights, shapes[weights], meaning.weights, *case.weight_shape),
        b=None if b is None else Part.of(b, shapes[b], range(len(shapes[b])), case.filters),
        y=y,
    )


def _slid(
    meaning: Windows,
    number: int,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    dtype: str,
    **words: Any,
) -> tuple[Case, Part, Part]:
    """Returns the case of windows over what is read as ``number``, and its input and output."""
    batch = [a for a in range(len(shape)) if a not in meaning.spatial and a != meaning.channels]
    order = [*batch, *meaning.spatial, meaning.channels]
    spatial, positions = (tuple(one[axis] for axis in meaning.spatial) for one in (shape, out))
    case = Case(
        f"conv{len(spatial)}d",
        kernel=meaning.kernel,
        stride=meaning.stride,
        dilation=meaning.dilation,
        in_channels=shape[meaning.channels],
        batch=prod(shape[axis] for axis in batch),
        length=spatial[-1],
        height=spatial[:-1] or None,
        dtype=dtype,
        **words,
    )
    if case.output_spatial() != positions:
        raise InputError("windows", positions, f"the case has {case.output_spatial()}", "")
    x = Part.of(number, shape, order, case.batch, *spatial, case.in_channels)
    return case, x, Part.of(0, out, order, case.batch, *positions, case.filters)


def _pool(meaning: Windows, shape: tuple[int, ...], out: tuple[int, ...], dtype: str) -> AsCase:
    """A mean, or a sum, of windows: a convolution of each channel by itself with weights of 1."""
    channels, padding = shape[meaning.channels], []
    for k, (before, _) in enumerate(meaning.padding):  # behind, as far as the last window reaches
        axis, extent = meaning.spatial[k], (meaning.kernel[k] - 1) * meaning.dilation[k] + 1
        reach = (out[axis] - 1) * meaning.stride[k] + extent
        padding.append((before, max(reach - before - shape[axis], 0)))
    words = {"filters": channels, "groups": channels, "padding": tuple(padding)}
    case, x, y = _slid(meaning, 0, shape, out, dtype, **words)
    average = meaning.kind == "average"
    return AsCase(case, x=x, w=None, b=None, y=y, divides=average, pooled=True)


def transposed(
    meaning: Windows, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], dtype: str
) -> list[AsCase]:
    """A transposed convolution: outputs a stride apart are a convolution with some of the taps."""
    if meaning.groups > 1:
        raise InputError("groups", meaning.groups, "of a transposed convolution", "")
    phases = itertools.product(*(range(step) for step in meaning.stride))
    found = [_phase(meaning, shapes, out, dtype, phase) for phase in phases]
    return [one for one in found if one is not None]


def _phase(
    meaning: Windows,
    shapes: Sequence[tuple[int, ...]],
    out: tuple[int, ...],
    dtype: str,
    phase: tuple[int, ...],
) -> AsCase | None:
    """Returns outputs at ``phase`` + n strides; None where there are none, or they read nothing."""
    number, weights = meaning.reads[:2]
    shape, rank = shapes[number], len(meaning.spatial)
    taps, dilation, padding, outputs = [], [], [], []
    for k, axis in enumerate(meaning.spatial):
        step, before = meaning.stride[k], meaning.padding[k][0]
        offsets = {
            t: (phase[k] + before - t * meaning.dilation[k]) // step
            for t in range(meaning.kernel[k])
            if (phase[k] + before - t * meaning.dilation[k]) % step == 0
        }
        count = len(range(phase[k], out[axis], step))
        if not offsets or not count:
            return None
        taps.append(sorted(offsets, key=lambda t: offsets[t]))
        places = sorted(offsets.values())
        dilation.append(places[1] - places[0] if len(places) > 1 else 1)
        padding.append((-places[0], count - 1 + places[-1] - (shape[axis] - 1)))
        outputs.append(count)
    if min(map(min, padding)) < 0:
        raise InputError("padding", meaning.padding, "some of the input is never read", "")
    batch = [a for a in range(len(shape)) if a not in meaning.spatial and a != meaning.channels]
    order = [*batch, *meaning.spatial, meaning.channels]
    spatial = tuple(shape[axis] for axis in meaning.spatial)
    filters, b = out[meaning.channels], meaning.reads[2] if len(meaning.reads) > 2 else None
    case = Case(
        f"conv{rank}d",
        kernel=tuple(map(len, taps)),
        dilation=tuple(dilation),
        in_channels=shape[meaning.channels],
        filters=filters,
        padding=tuple(padding),
        batch=prod(shape[axis] for axis in batch),
        length=spatial[-1],
        height=spatial[:-1] or None,
        dtype=dtype,
        bias=None if b is None else "normal",
    )
    every, axes = slice(None), tuple(meaning.weights)
    if meaning.flipped:
        taps = [
            [size - 1 - t for t in some] for size, some in zip(meaning.kernel, taps, strict=True)
        ]
    steps = [slice(first, None, step) for first, step in zip(phase, meaning.stride, strict=True)]
    own, all_ = shapes[weights], (every,) * len(batch)
    return AsCase(
        case,
        x=Part.of(number, shape, order, case.batch, *spatial, shape[meaning.channels]),
        w=Phase(weights, own, own, axes, case.weight_shape, (*taps, every, every)),
        b=None if b is None else Part.of(b, shapes[b], range(len(shapes[b])), filters),
        y=Phase(
            *(0, out, out, tuple(order), (case.batch, *outputs, filters)),
            (*all_, *steps, every),
        ),
    )
