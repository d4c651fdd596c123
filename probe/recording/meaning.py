"""What an operation computes, in words that all libraries share: which inputs each output reads.

A library's file gives each of its operations one of these. They serve twice: labels say which
outputs of two runs must agree (:mod:`probe.recording.labels`), and sums of products and pools become
cases that the engine explains. An operation that nobody described is ``Unknown``: its outputs must
agree where all that it reads does, and of others it is said that this isn't known.

``labels(reads, shapes, what)`` gives the labels of the outputs from those of the inputs: ``shapes``
of the outputs, ``what`` a label of the operation's name and numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording.labels import ZERO, Labels, joined, mixed, tag

Shapes = Sequence[tuple[int, ...]]


class Meaning:
    """What one operation computes.

    ``word``: the name of what is computed where several libraries or operations have it (``add``,
    ``relu``, ``softmax``), so that a matrix product with a bias and one without it followed by an
    addition are the same; empty: the library's own name of the operation.
    """

    word: str = ""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        """Returns the labels of every output."""
        raise NotImplementedError


def _known(reads: Sequence[Labels]) -> bool:
    return all(one.known for one in reads)


@dataclass(frozen=True)
class Unknown(Meaning):
    """Nobody said what it computes, because ``why``."""

    why: str = ""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        every = _all(reads, what)
        return [_of_one(joined(every, tag(n)), shape, False) for n, shape in enumerate(shapes)]


def _all(reads: Sequence[Labels], what: np.uint64) -> np.ndarray:
    """One label for all elements of everything that is read."""
    whole = [tag(one.shape) for one in reads]
    sums = [_sum(_places(one.array), tuple(range(one.array.ndim))) for one in reads]
    return joined(what, *itertools.chain(*zip(whole, sums, strict=True)))


def _places(array: np.ndarray) -> np.ndarray:
    index = np.arange(1, array.size + 1, dtype=np.uint64).reshape(array.shape)
    return joined(array, index)


def _of_one(label: np.ndarray, shape: tuple[int, ...], known: bool = True) -> Labels:
    """Labels that differ by their index alone."""
    return Labels(shape, np.broadcast_to(label, tuple(min(n, 1) for n in shape)), known)


def _sum(array: np.ndarray, axes: tuple[int, ...], keep: bool = False) -> np.ndarray:
    """Sums modulo 2^64."""
    return np.asarray(np.sum(array, axis=axes, dtype=np.uint64, keepdims=keep))


def _scattered(array: np.ndarray) -> np.ndarray:
    """Labels to be summed; zeros add nothing."""
    return np.where(array == ZERO, ZERO, mixed(array))


def aligned(reads: Sequence[Labels]) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """Returns the shape to which NumPy broadcasts the inputs, and arrays that broadcast alike.

    An axis along which all inputs that have it leave their labels out stays left out.
    """
    shape = np.broadcast_shapes(*(one.shape for one in reads))
    arrays = []
    padded = [
        Labels(
            (1,) * (len(shape) - len(one.shape)) + one.shape,
            one.array.reshape((1,) * (len(shape) - len(one.shape)) + one.array.shape),
        )
        for one in reads
    ]
    out = [
        axis
        for axis, size in enumerate(shape)
        if size != 1
        and all(one.implicit(axis) or one.shape[axis] == 1 for one in padded)
        and any(one.implicit(axis) for one in padded)
    ]
    for one in padded:
        arrays.append(one.full([axis for axis in range(len(shape)) if axis not in out]))
    return shape, arrays


def _wide(array: np.ndarray, shape: tuple[int, ...], like: Sequence[np.ndarray]) -> np.ndarray:
    """Broadcasts along the axes that any of ``like`` has in full."""
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, *(one.shape for one in like)))


@dataclass(frozen=True)
class Each(Meaning):
    """Every output reads the elements at its own place; inputs broadcast as NumPy's do.

    ``zero``: what an exact zero does: ``adds`` nothing (addition), ``clears`` (multiplication; in a
    division the first input alone), ``stays`` (a function of one input with f(0) = 0), or nothing of
    the kind. ``numbers``: arguments that are not arrays. ``reads``: which inputs count; None: all.
    """

    word: str = ""
    zero: str = ""
    numbers: tuple[Any, ...] = ()
    reads: tuple[int, ...] | None = None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        used = list(reads) if self.reads is None else [reads[n] for n in self.reads]
        shape, arrays = aligned(used)
        if self.word in ("add", "multiply", "maximum", "minimum") and len(arrays) == 2:
            arrays = [*np.broadcast_arrays(*arrays)]
            pair = np.minimum(*arrays), np.maximum(*arrays)  # a + b is b + a
            found = joined(what, tag(self.numbers), *pair)
        else:
            found = joined(what, tag(self.numbers), *arrays)
        if self.zero == "clears":
            for array in arrays:
                found = np.where(array == ZERO, ZERO, found)
        elif self.zero == "stays":
            found = np.where(arrays[0] == ZERO, ZERO, found)
        elif self.zero == "adds" and len(arrays) == 2:
            for one, other in (arrays, arrays[::-1]):
                found = np.where(one == ZERO, _wide(other, shape, [one]), found)
        known = _known(used)
        return [_fitted(found, shape, to, known, n) for n, to in enumerate(shapes)]


def _fitted(
    array: np.ndarray, shape: tuple[int, ...], to: tuple[int, ...], known: bool, number: int
) -> Labels:
    if number:
        array = joined(array, tag(number))
    if to == shape:
        return Labels(shape, array, known)
    wide = Labels(shape, array).full()
    return Labels(to, np.broadcast_to(wide, to) if to else wide.reshape(()), known)


@dataclass(frozen=True)
class Same(Meaning):
    """Every output is the first input, in another format or memory: ``cast``, ``clone``."""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [Labels(shape, reads[0].array, reads[0].known) for shape in shapes]


@dataclass(frozen=True)
class Moves(Meaning):
    """Elements are moved and copied, none is computed: reshape, transpose, slice, concat, gather.

    ``move``: the same with NumPy arrays of any dtype, one for each input, giving one array or as
    many as there are outputs; zeros stay zeros.
    """

    move: Callable[..., Any]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        moved = self.move(*(one.full() for one in reads))
        every = moved if isinstance(moved, tuple | list) else (moved,)
        return [
            Labels(
                shape,
                np.broadcast_to(np.asarray(one, np.uint64).reshape(shape), shape),
                _known(reads),
            )
            for one, shape in zip(every, shapes, strict=True)
        ]


@dataclass(frozen=True)
class Turns(Meaning):
    """Axes in another order: output axis k is input axis ``axes[k]``."""

    axes: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (one, *_) = reads
        return [Labels(shapes[0], one.array.transpose(self.axes), one.known)]


@dataclass(frozen=True)
class Reshapes(Meaning):
    """The same elements in the same order (row by row), in another shape: view, flatten, squeeze."""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, to = reads[0], shapes[0]
        groups = _groups(one.shape, to)
        array, lengths, fulls = one.array, [], []
        for mine, other in groups:
            real = [axis for axis in mine if one.shape[axis] != 1]
            same = len(real) <= 1 and sum(to[axis] != 1 for axis in other) <= 1
            if same and all(one.implicit(axis) for axis in real):
                lengths += [1] * len(other)
            else:
                fulls += mine
                lengths += [to[axis] for axis in other]
        array = one._replace(array=array).full(fulls)
        return [Labels(to, array.reshape(lengths), one.known)]


def _groups(ours: tuple[int, ...], theirs: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Splits two shapes of one size into the smallest groups of axes with equal products."""
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(ours) or j < len(theirs):
        mine, other, left, right = [], [], 1, 1
        if i < len(ours):
            mine.append(i)
            left = ours[i]
            i += 1
        if j < len(theirs):
            other.append(j)
            right = theirs[j]
            j += 1
        while left != right:
            if (left < right and i < len(ours)) or j >= len(theirs):
                mine.append(i)
                left *= ours[i]
                i += 1
            else:
                other.append(j)
                right *= theirs[j]
                j += 1
        found.append((mine, other))
    return found


@dataclass(frozen=True)
class Contracts(Meaning):
    """A sum of products of two inputs, in einsum's words: ``...k,kn->...n``; perhaps a bias behind.

    ``reads``: the two inputs; ``bias``: the number of an input that is added, or None. ``weights``:
    which of ``reads`` holds weights, if one does: 1 in a dense layer.
    """

    equation: str
    reads: tuple[int, int] = (0, 1)
    bias: int | None = None
    word: str = "product"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, two = (reads[n] for n in self.reads)
        letters, out = self.spelled(one.shape, two.shape)
        found = _product(one, two, letters, out, what)
        shape = shapes[0]
        labels = Labels(
            shape, found.reshape([n if n == 1 else shape[k] for k, n in enumerate(found.shape)])
        )
        if self.bias is not None:
            _, arrays = aligned([labels, reads[self.bias]])
            pair = np.broadcast_arrays(*arrays)
            labels = Labels(
                shape, joined(tag("add"), tag(()), np.minimum(*pair), np.maximum(*pair))
            )
        return [labels._replace(known=_known(reads))]

    def spelled(self, one: tuple[int, ...], two: tuple[int, ...]) -> tuple[tuple[str, str], str]:
        """The letters of both inputs and of the output, with the dots written out as capitals."""
        ins, out = self.equation.split("->")
        first, second = ins.split(",")
        dots = [
            len(shape) - len(text.replace("...", ""))
            for shape, text in ((one, first), (two, second))
            if "..." in text
        ]
        most = max(dots, default=0)
        names = "ABCDEFGHIJKLMNOP"[:most]
        spelled = [
            text.replace("...", names[most - (len(shape) - len(text.replace("...", ""))) :])
            for shape, text in ((one, first), (two, second))
        ]
        return (spelled[0], spelled[1]), out.replace("...", names)


MOST_LABELS = 1 << 22


def _product(
    one: Labels, two: Labels, letters: tuple[str, str], out: str, what: np.uint64
) -> np.ndarray:
    """Labels of an einsum: sums over the shared letters of mixed pairs, zero where either is."""
    every = [
        *out,
        *(letter for letter in dict.fromkeys(letters[0] + letters[1]) if letter not in out),
    ]
    left_out = set()
    for letter in every:
        having = [
            (labels, text.index(letter))
            for labels, text in ((one, letters[0]), (two, letters[1]))
            if letter in text and labels.shape[text.index(letter)] != 1
        ]
        if having and all(labels.implicit(axis) for labels, axis in having):
            left_out.add(letter)
    arrays = []
    for labels, text in ((one, letters[0]), (two, letters[1])):
        full = labels.full([axis for axis, letter in enumerate(text) if letter not in left_out])
        order = [text.index(letter) for letter in every if letter in text]
        full = full.transpose(order)
        shape, at = [], 0
        for letter in every:
            shape.append(full.shape[at] if letter in text else 1)
            at += letter in text
        arrays.append(full.reshape(shape))
    summed = tuple(range(len(out), len(every)))
    broad = np.broadcast_shapes(*(array.shape for array in arrays))
    rows = max(1, MOST_LABELS // max(int(np.prod(broad[1:], dtype=int)), 1)) if broad else 1
    pieces = []
    for start in range(0, max(broad[0] if broad else 1, 1), rows):
        some = [a[start : start + rows] if a.ndim and a.shape[0] != 1 else a for a in arrays]
        pair = joined(*some)
        pair = np.where((some[0] == ZERO) | (some[1] == ZERO), ZERO, pair)
        pieces.append(_sum(_scattered(pair), summed))
    found = np.concatenate(pieces) if out and broad[0] > 1 and len(out) else pieces[0]
    return np.where(found == ZERO, ZERO, joined(found, what))


@dataclass(frozen=True)
class Reduces(Meaning):
    """A sum, a mean, a norm or a maximum over ``axes``; ``keep``: they stay, of size 1.

    ``zero``: added zeros change nothing (a sum; a mean names its count in ``numbers``).
    """

    axes: tuple[int, ...]
    word: str = ""
    keep: bool = False
    zero: bool = False
    numbers: tuple[Any, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        axes = tuple(sorted(axis % max(len(one.shape), 1) for axis in self.axes))
        found = _reduced(one, axes, self.zero)
        numbers = self.numbers if self.zero else (*self.numbers, *(one.shape[a] for a in axes))
        found = joined(found, what, tag(numbers))
        shape = tuple(1 if a in axes else n for a, n in enumerate(one.shape))
        labels = Labels(shape, found)
        if not self.keep:
            rest = [a for a in range(len(shape)) if a not in axes]
            labels = Labels(
                tuple(shape[a] for a in rest), found.reshape([found.shape[a] for a in rest])
            )
        return [
            _fitted(labels.array, labels.shape, to, one.known, n) for n, to in enumerate(shapes)
        ]


def _reduced(one: Labels, axes: tuple[int, ...], zero: bool) -> np.ndarray:
    """One label for all elements along axes, which stay with size 1."""
    summed = [axis for axis in axes if not one.implicit(axis)]
    array = one.array
    if not zero:
        array = np.where(array == ZERO, tag("zero"), array)
    return _sum(_scattered(array), tuple(summed), True)


@dataclass(frozen=True)
class Normalises(Meaning):
    """Every output reads all elements along ``axes``, and is at the place of one: softmax, LayerNorm.

    What is read besides (scales) broadcasts, from the last axis. ``vanishes``: outputs that are exactly zero
    are left out of their group, as what a mask hides is in a softmax.
    """

    axes: tuple[int, ...]
    word: str = ""
    numbers: tuple[Any, ...] = ()
    vanishes: bool = False

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        zeros: np.ndarray | None = None,
    ) -> list[Labels]:
        one = reads[0]
        axes = tuple(sorted(axis % len(one.shape) for axis in self.axes))
        array = one.array
        if zeros is not None and zeros.any():
            array = np.where(zeros, ZERO, one.full())
            group = _sum(_scattered(array), axes, True)
            found = np.where(zeros, ZERO, joined(array, group, what, tag(self.numbers)))
        else:
            array = np.where(array == ZERO, tag("zero"), array)
            summed = tuple(axis for axis in axes if not one.implicit(axis))
            group = _sum(_scattered(array), summed, True)
            found = joined(array, group, what, tag(self.numbers))
        labels = Labels(one.shape, found)
        if reads[1:]:
            _, arrays = aligned([labels, *reads[1:]])
            labels = Labels(one.shape, joined(what, *arrays))
        known = _known(reads)
        return [
            _fitted(labels.array, one.shape, to, known, n)
            if to == one.shape
            else Labels(to, _group_shape(group, one.shape, axes, to, n), known)
            for n, to in enumerate(shapes)
        ]


def _group_shape(
    group: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...], to: tuple[int, ...], n: int
) -> np.ndarray:
    """Means and deviations that a norm gives beside its result."""
    full = Labels(tuple(1 if a in axes else size for a, size in enumerate(shape)), group).full()
    found = joined(full, tag(n))
    size = int(np.prod(to, dtype=int))
    if found.size == size:
        return found.reshape(to)
    return np.broadcast_to(
        joined(_all([Labels(found.shape, found)], tag(n))), tuple(min(k, 1) for k in to)
    )


@dataclass(frozen=True)
class Whole(Meaning):
    """Every output reads all of some axes of its inputs, and nothing is known of its own place there.

    ``kept``: pairs (input axis, output axis) along which an output reads its own index alone: the
    batch, as a rule. The first input alone has these axes; ``others`` are read whole.
    """

    kept: tuple[tuple[int, int], ...] = ()
    word: str = ""
    numbers: tuple[Any, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, rest = reads[0], reads[1:]
        ins = [axis for axis, _ in self.kept]
        full = one.full(ins)
        turned = full.transpose(*ins, *(a for a in range(full.ndim) if a not in ins))
        lead = turned.shape[: len(ins)]
        lines = turned.reshape(*lead, -1)
        index = np.arange(1, lines.shape[-1] + 1, dtype=np.uint64)
        found = _sum(joined(lines, index), (len(lead),))
        inner = tuple(n for a, n in enumerate(one.shape) if a not in ins)
        found = joined(found, _all(rest, what), tag(inner, self.numbers))
        known = _known(reads)
        result = []
        for number, shape in enumerate(shapes):
            lengths = [min(n, 1) for n in shape]
            for place, (_, axis) in enumerate(self.kept):
                lengths[axis] = lead[place]
            order = np.argsort([axis for _, axis in self.kept])
            labels = joined(found, tag(number)).transpose(order).reshape(lengths)
            result.append(Labels(shape, labels, known))
        return result


@dataclass(frozen=True)
class Scans(Meaning):
    """Output t along ``axis`` reads inputs up to t (from the end if ``reverse``): cumulative sums.

    ``mixes``: axes that every output reads whole besides: the features of a recurrent cell. What is
    read besides (weights, first states) is read whole, but states along ``batch``.
    """

    axis: int
    word: str = ""
    reverse: bool = False
    mixes: tuple[int, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        rank = len(one.shape)
        mixes = tuple(axis % rank for axis in self.mixes)
        array = _reduced(one, mixes, False) if mixes else one.array
        axis = self.axis % rank
        full = Labels(tuple(1 if a in mixes else n for a, n in enumerate(one.shape)), array)
        lines = full.full([axis])
        if self.reverse:
            lines = np.flip(lines, axis)
        found = np.empty_like(lines)
        state = joined(_all(reads[1:], what))
        for step in range(lines.shape[axis]):
            at = tuple(slice(step, step + 1) if a == axis else slice(None) for a in range(rank))
            state = joined(state, lines[at])
            found[at] = state
        if self.reverse:
            found = np.flip(found, axis)
        result = []
        for number, shape in enumerate(shapes):
            fits = len(shape) == rank and all(
                n == m or a in mixes for a, (n, m) in enumerate(zip(shape, one.shape, strict=True))
            )
            if fits:
                result.append(Labels(shape, joined(found, tag(number)), _known(reads)))
            else:
                result.append(_of_one(_all(reads, joined(what, tag(number))), shape, False))
        return result


@dataclass(frozen=True)
class Windows(Meaning):
    """A convolution or a pool: each output reads a window of its input, channel by channel or all.

    ``spatial``: the input's spatial axes; ``channels``: its channel axis. ``kernel``, ``stride``,
    ``dilation``: one a spatial axis; ``padding``: (before, after) a spatial axis. ``kind``:
    ``convolution``, ``transposed``, ``max`` or ``average``. ``groups``: of a convolution. ``reads``:
    input, weights and bias by number; a pool has its input alone. ``weights``: the
    axes of the weights in the order (*kernel, in channels, filters). ``counts_padding``: an average
    divides by the whole window at the edges too. ``ceil``: the last window may reach beyond.
    """

    spatial: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    kind: str = "convolution"
    groups: int = 1
    reads: tuple[int, ...] = (0, 1)
    weights: tuple[int, ...] = ()
    counts_padding: bool = False
    ceil: bool = False
    word: str = ""

    @property
    def pool(self) -> bool:
        """Whether each channel is computed from its own alone, without weights."""
        return self.kind in ("max", "average")

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, shape = reads[self.reads[0]], shapes[0]
        rest = [reads[n] for n in self.reads[1:]]
        channels, groups = one.shape[self.channels], 1 if self.pool else self.groups
        filters = shape[self.channels]
        array = one.full(self.spatial)
        if self.kind == "max":
            array = np.where(array == ZERO, tag("zero"), array)
        array = np.moveaxis(array, self.channels, -1)
        spatial = tuple(a - (a > self.channels) for a in self.spatial)
        if not self.pool:
            array = self._grouped(array, channels, groups, filters)
        found = self._summed(array, spatial, tuple(shape[a] for a in self.spatial))
        digest = _all(rest, what)
        found = joined(found, digest)
        found = np.moveaxis(found, -1, self.channels)
        if found.shape[self.channels] not in (1, filters):
            raise AssertionError((found.shape, shape))
        labels = [Labels(shape, found, _known(reads))]
        return labels + [
            Labels(other, joined(found, tag(n)), _known(reads))
            for n, other in enumerate(shapes[1:], 1)
        ]

    @staticmethod
    def _grouped(array: np.ndarray, channels: int, groups: int, filters: int) -> np.ndarray:
        """Labels a filter, or one for all, from those of its group's channels."""
        if array.shape[-1] == 1:
            return array
        index = np.arange(1, channels + 1, dtype=np.uint64)
        each = np.where(array == ZERO, ZERO, joined(array, index))
        each = each.reshape(*array.shape[:-1], groups, channels // groups)
        sums = _sum(_scattered(each), (each.ndim - 1,))
        if groups == 1:
            return sums
        index = np.arange(1, filters + 1, dtype=np.uint64)
        return joined(np.repeat(sums, filters // groups, axis=-1), index)

    def _summed(
        self, array: np.ndarray, spatial: tuple[int, ...], sizes: tuple[int, ...]
    ) -> np.ndarray:
        lengths = list(array.shape)
        for axis, size in zip(spatial, sizes, strict=True):
            lengths[axis] = size
        found, counts = np.zeros(lengths, np.uint64), np.zeros(lengths, np.uint64)
        for number, taps in enumerate(itertools.product(*map(range, self.kernel))):
            to, at = [slice(None)] * array.ndim, [slice(None)] * array.ndim
            inside = True
            for k, axis in enumerate(spatial):
                reach = self._reach(k, taps[k], array.shape[axis], sizes[k])
                if reach is None:
                    inside = False
                    break
                to[axis], at[axis] = reach
            if not inside:
                continue
            part = array[tuple(at)]
            with np.errstate(over="ignore"):
                found[tuple(to)] += np.where(part == ZERO, ZERO, joined(part, tag(number)))
                counts[tuple(to)] += np.uint64(1)
        if self.kind == "average" and not self.counts_padding:
            return joined(found, counts)
        return np.where(found == ZERO, ZERO, mixed(found)) if not self.pool else found

    def _reach(self, k: int, tap: int, size: int, outputs: int) -> tuple[slice, slice] | None:
        """The outputs that a tap serves along an axis, and the inputs that they read by it."""
        stride, offset = self.stride[k], tap * self.dilation[k] - self.padding[k][0]
        if self.kind == "transposed":
            first = max(0, -(offset // stride)) if offset < 0 else 0
            last = min(size, (outputs - 1 - offset) // stride + 1)
            if first >= last:
                return None
            begin = first * stride + offset
            return slice(begin, (last - 1) * stride + offset + 1, stride), slice(first, last)
        first = max(0, -(offset // stride)) if offset < 0 else 0
        last = min(outputs, (size - 1 - offset) // stride + 1)
        if first >= last:
            return None
        begin = first * stride + offset
        return slice(first, last), slice(begin, (last - 1) * stride + offset + 1, stride)
