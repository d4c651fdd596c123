"""What an operation computes, in words that all libraries share: which inputs each output reads.

A library's file gives each of its operations one of these. They serve twice: labels say which
outputs of two runs must agree (:mod:`probe.recording.labels`), and sums of products and pools
become cases that the engine explains. An operation that nobody described is ``Unknown``: its
outputs must agree where all that it reads does, and of others it is said that this isn't known.

``labels(reads, shapes, what)`` gives the labels of the outputs from those of the inputs: ``shapes``
of the outputs, ``what`` a label of the operation's name and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording import mixing
from probe.recording.labels import ZERO, Labels, Name, extended, joined, of_content, tag
from probe.recording.sliding import Frame, divisors, grouped, slid

Shapes = Sequence[tuple[int, ...]]
Numbers = Callable[[], np.ndarray]


class Meaning:
    """What one operation computes.

    ``word``: the name of what is computed where several libraries or operations have it (``add``,
    ``relu``, ``softmax``), so that a matrix product with a bias and one without it followed by an
    addition are the same; empty: the library's own name of the operation.
    """

    word: str = ""
    notices: bool = False

    def written(self, reads: Shapes, gives: Shapes) -> Meaning:
        """Returns the same in words that a folder on disk has. ``reads``, ``gives``: shapes."""
        return self

    @property
    def exact(self) -> bool:
        """Whether the bits of its results are settled by those of its inputs alone, everywhere: as
        where elements are moved, and in the arithmetic of IEEE 754 element by element. What such
        operations make of integers is labelled by content, which is how masks are known.
        """
        return False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        """Returns the labels of every output."""
        raise NotImplementedError

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        """Returns which elements of a run add nothing (bool), None for none.

        It is asked for while the run goes on, where ``notices`` is True, and is the last argument
        of ``labels`` then. ``reads``, ``gives``: functions that return exact values as float64.
        """
        return None


class Exact(Meaning):
    """What computes nothing that is rounded in more than one way."""

    @property
    def exact(self) -> bool:
        return True


@dataclass(frozen=True)
class Unknown(Exact):
    """Nobody said what it computes, because ``why``."""

    why: str = ""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        every = mixing.whole(reads, what)
        return [mixing.of_one(joined(every, tag(n)), to, False) for n, to in enumerate(shapes)]


@dataclass(frozen=True)
class Compiled(Unknown):
    """A compiled function as one operation; the same function uncompiled says what it computes."""


ROUNDED_ONCE = {
    *(
        "add",
        "subtract",
        "multiply",
        "divide",
        "sqrt",
        "negative",
        "absolute",
        "maximum",
        "minimum",
    ),
    *("cast", "where", "clip", "relu", "floor", "ceil", "round", "sign", "square"),
}
"""Words of functions whose result IEEE 754 prescribes to the last bit."""

COMMUTE = ("add", "multiply", "maximum", "minimum")
"""Words of two inputs in any order."""


ALIKE: dict[tuple[str, tuple[Any, ...]], tuple[str, tuple[Any, ...]]] = {
    ("clip", (0.0, 6.0)): ("relu6", ()),
    ("clamp", (0.0, 6.0)): ("relu6", ()),
    ("gelu", ("tanh",)): ("gelu_tanh", ()),
    ("hardswish", ()): ("hard_swish", ()),
}
"""Functions that libraries write in different words, and one word for each."""


@dataclass(frozen=True)
class Each(Meaning):
    """Every output reads the elements at its own place; inputs broadcast as NumPy's do.

    ``zero``: what an exact zero does: ``adds`` nothing (addition), ``clears`` (multiplication; in
    a division the first input alone), ``stays`` (a function of one input with f(0) = 0), or
    nothing of the kind. ``numbers``: arguments that are not arrays. ``reads``: which inputs count;
    None: all. ``along``: the axis along which inputs with one axis lie, the first aside; None: the
    last.
    """

    word: str = ""
    zero: str = ""
    numbers: tuple[Any, ...] = ()
    reads: tuple[int, ...] | None = None
    along: int | None = None

    @property
    def exact(self) -> bool:
        return self.word in ROUNDED_ONCE

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        used = list(reads) if self.reads is None else [reads[n] for n in self.reads]
        if self.along is not None:
            rank = len(used[0].shape)
            used[1:] = [mixing.along(one, self.along % rank, rank) for one in used[1:]]
        word, numbers = ALIKE.get((self.word, self.numbers), ("", self.numbers))
        what = extended(tag(word) if word else what, numbers)
        if self.word in COMMUTE and len(used) == 2:
            found = mixing.paired(used[0], used[1], what, self.zero == "adds")
        else:
            shape, arrays, names = mixing.aligned(used)
            found = Labels(shape, joined(what, *arrays), mixing.known(used), names)
        found = self._cleared(found, used)
        return [_fitted(found, to, n) for n, to in enumerate(shapes)]

    def _cleared(self, found: Labels, used: Sequence[Labels]) -> Labels:
        if self.zero not in ("clears", "stays"):
            return found
        _, arrays, _ = mixing.aligned(used)
        both = self.zero == "clears" and self.word == "multiply"
        zero = np.broadcast_to(arrays[0] == ZERO, found.array.shape)
        for other in arrays[1:] if both else ():
            zero = zero | (other == ZERO)
        return found._replace(array=np.where(zero, ZERO, found.array))


def _fitted(one: Labels, to: tuple[int, ...], number: int) -> Labels:
    """The labels of output ``number``, broadcast to its shape."""
    if number:
        one = one._replace(array=np.where(one.array == ZERO, ZERO, joined(one.array, tag(number))))
    if 0 in to:
        return Labels(to, np.zeros(to, np.uint64), one.known)
    size = int(np.prod(to, dtype=int))
    if to == one.shape:
        return one
    if size == int(np.prod(one.shape, dtype=int)):
        return mixing.reshaped(one, to)
    if len(to) >= len(one.shape) and _broadcasts(mixing.lifted(one, len(to)).shape, to):
        wide = mixing.lifted(one, len(to))
        array = np.broadcast_to(
            wide.array,
            [n if m == k else m for n, m, k in zip(to, wide.array.shape, wide.shape, strict=True)],
        )
        return Labels(to, array, one.known, wide.names)
    return mixing.of_one(mixing.whole([one], tag(number)), to, one.known)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(shape, to, strict=True))


@dataclass(frozen=True)
class Same(Exact):
    """Every output is the first input, bit for bit, in other memory: ``clone``."""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [_fitted(reads[0], shape, 0) for shape in shapes]


@dataclass(frozen=True)
class Moves(Exact):
    """Elements are moved and copied, none is computed: slice, concat, gather, pad with zeros.

    ``move``: the same with NumPy arrays of any dtype, one for each input, giving one array or as
    many as there are outputs; zeros stay zeros. ``kept``: axes that are the same in all inputs and
    outputs and along which nothing moves: along them ``move`` may be given arrays of size 1.
    """

    move: Callable[..., Any]
    kept: tuple[int, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        out = [axis for axis in self.kept if self._stays(reads, axis)]
        moved = self.move(*(self._full(one, out) for one in reads))
        every = moved if isinstance(moved, tuple | list) else (moved,)
        found = []
        for one, shape in zip(every, shapes, strict=True):
            names: list[Name] = list(range(len(shape)))
            for axis in out:
                names[axis] = reads[0].name(axis)
            to = tuple(1 if axis in out else n for axis, n in enumerate(shape))
            array = np.broadcast_to(np.asarray(one, np.uint64).reshape(to), to)
            found.append(Labels(shape, array, mixing.known(reads), tuple(names)))
        return found

    @staticmethod
    def _stays(reads: Sequence[Labels], axis: int) -> bool:
        if not all(len(one.shape) > axis and one.implicit(axis) for one in reads):
            return False
        return len({one.name(axis) for one in reads}) == 1

    @staticmethod
    def _full(one: Labels, out: Sequence[int]) -> np.ndarray:
        return one.full([axis for axis in range(len(one.shape)) if axis not in out])


@dataclass(frozen=True)
class Picks(Moves):
    """Elements at ``index`` along ``axis``: a row of a table, a part, a step. ``index``: integers
    of any shape, whose axes stand in the place of that axis (none: the axis goes).
    """

    move: Callable[..., Any] = np.take
    axis: int = 0
    index: Any = 0

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, index = reads[0], np.asarray(self.index)
        axis = self.axis % len(one.shape)
        names = [*map(one.name, range(len(one.shape)))]
        if one.implicit(axis) and _consecutive(index):
            size = index.size
            array = one.array
            if size == 1:
                array = one.full([axis]).take([int(index[0])], axis)
            elif index[0]:
                names[axis] = ("rows", mixing.hashed(names[axis]), int(index[0]))
            return [Labels(shapes[0], array, one.known, tuple(names))]
        found = one.full([axis]).take(index, axis)
        names[axis : axis + 1] = range(index.ndim)
        return [Labels(shapes[0], found, one.known, tuple(names))]


def _consecutive(index: np.ndarray) -> bool:
    if index.ndim != 1 or not index.size:
        return False
    return bool((np.diff(index) == 1).all())


@dataclass(frozen=True)
class Joins(Exact):
    """All inputs one behind the other along ``axis``, or along a new one if ``stacked``."""

    axis: int
    stacked: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        axis, rank = self.axis % len(shapes[0]), len(shapes[0])
        if self.stacked:
            reads = [mixing.reshaped(one, _at(shapes[0], axis)) for one in reads]
        reads = [one for one in reads if len(one.shape) == rank and one.shape[axis]]
        if all(one.implicit(axis) for one in reads):
            return [self._behind(reads, shapes[0], axis)]
        others = tuple(a for a in range(rank) if a != axis)
        move = Moves(lambda *arrays: np.concatenate(_equal(arrays, axis), axis), others)
        return move.labels(reads, shapes, what)

    @staticmethod
    def _behind(reads: Sequence[Labels], to: tuple[int, ...], axis: int) -> Labels:
        """Along an axis that is left out: then each element reads all pieces at its place."""
        sizes = tuple(one.shape[axis] for one in reads)
        names = tuple(mixing.hashed(one.name(axis)) for one in reads)
        lines = [Labels(_at(one.shape, axis), one.array, one.known, one.names) for one in reads]
        _, arrays, found = mixing.aligned(lines)
        named = list(found)
        named[axis] = ("joined", sizes, names)
        array = joined(tag("joined"), *map(mixing.visible, arrays))
        return Labels(to, array, mixing.known(reads), tuple(named))


def _at(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])


def _equal(arrays: Sequence[np.ndarray], axis: int) -> list[np.ndarray]:
    """Arrays that have the same sizes but along ``axis``."""
    broad = np.broadcast_shapes(*(_at(array.shape, axis) for array in arrays))
    return [
        np.broadcast_to(one, (*broad[:axis], one.shape[axis], *broad[axis + 1 :])) for one in arrays
    ]


@dataclass(frozen=True)
class Splits(Exact):
    """Parts of these ``sizes`` one behind the other along ``axis``, an output each; ``drop``: of
    size 1, and the axis goes.
    """

    axis: int
    sizes: tuple[int, ...]
    drop: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        found, start = [], 0
        axis = self.axis % len(reads[0].shape)
        for size, shape in zip(self.sizes, shapes, strict=True):
            index = np.asarray(start) if self.drop else np.arange(start, start + size)
            found += Picks(axis=axis, index=index).labels(reads, [shape], what)
            start += size
        return found


@dataclass(frozen=True)
class Pads(Exact):
    """The input with ``value`` around it: (before, after) an axis, cut off where negative."""

    widths: tuple[tuple[int, int], ...]
    value: float = 0.0
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        axes = [axis for axis, both in enumerate(self.widths) if both != (0, 0)]
        array = one.full(axes)
        cut = tuple(
            slice(max(-a, 0), n - max(-b, 0) if n > 1 or b < 0 else None)
            for (a, b), n in zip(self.widths, array.shape, strict=True)
        )
        widths = [(max(a, 0), max(b, 0)) for a, b in self.widths]
        label = of_number(self.value, self.dtype)
        array = np.pad(array[cut], widths, constant_values=label)
        return [Labels(shapes[0], array, one.known, one.names)]


def of_number(value: Any, dtype: str) -> np.uint64:
    """Returns the label that a number has by its content."""
    if dtype == "bfloat16":
        bits = np.array(value, np.float32).view(np.uint32) >> 16  # of numbers that it has
        return np.uint64(of_content(bits.astype(np.uint16)).array[()])
    return np.uint64(of_content(np.array(value, dtype)).array[()])


@dataclass(frozen=True)
class Made(Exact):
    """The same ``value`` everywhere, of ``dtype``; or, with ``places``, numbers that depend on
    their place alone: a range, an identity; then ``value`` says which.
    """

    value: Any = 0
    dtype: str = "float32"
    places: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        if self.places:
            return [mixing.of_one(joined(what, tag(self.value, to)), to) for to in shapes]
        label = of_number(self.value, self.dtype)
        return [Labels(to, np.broadcast_to(label, to)) for to in shapes]


TRUE = of_content(np.array(True)).array[()]


@dataclass(frozen=True)
class Chooses(Exact):
    """The second input where the first, a bool, is true, else the third; all broadcast.

    ``reads``: these three by number, -1 for ``value``, a number of ``dtype``.
    """

    reads: tuple[int, int, int] = (0, 1, 2)
    value: Any = 0
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        constant = Labels((), np.asarray(of_number(self.value, self.dtype)))
        every = [reads[n] if n >= 0 else constant for n in self.reads]
        shape, arrays, names = mixing.aligned(every)
        mask, yes, no = arrays
        either = joined(tag("where"), mask, mixing.visible(yes), mixing.visible(no))
        found = np.where(mask == TRUE, yes, np.where(mask == ZERO, no, either))
        return [_fitted(Labels(shape, found, mixing.known(every), names), shapes[0], 0)]


@dataclass(frozen=True)
class Blends(Meaning):
    """Weighted sums of a few elements along axes: linear interpolation.

    ``taps``: (axis, index, weights) for each such axis in turn; both arrays are (outputs, terms):
    where each output reads, and by how much. Weights of zero read nothing.
    """

    taps: tuple[tuple[int, np.ndarray, np.ndarray], ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        for axis, index, weights in self.taps:
            lines = np.moveaxis(one.full([axis]), axis, -1)
            factors = of_content(weights).array
            terms = np.where(factors == ZERO, ZERO, joined(lines[..., index], factors))
            terms = np.where(lines[..., index] == ZERO, ZERO, terms)
            found = mixing.summed(mixing.scattered(terms), (terms.ndim - 1,))
            found = np.where(found == ZERO, ZERO, joined(found, what))
            shape = (*one.shape[:axis], len(index), *one.shape[axis + 1 :])
            one = Labels(shape, np.moveaxis(found, -1, axis), one.known, one.names)
        return [one]


@dataclass(frozen=True)
class Turns(Exact):
    """Axes in another order: output axis k is input axis ``axes[k]``."""

    axes: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (one, *_) = reads
        names = tuple(one.name(axis % len(one.shape)) for axis in self.axes)
        shape = tuple(one.shape[axis] for axis in self.axes)
        return [Labels(shape, one.array.transpose(self.axes), one.known, names, one.fixed)]


@dataclass(frozen=True)
class Reshapes(Exact):
    """The same elements in the same order (row by row), in another shape: view, flatten,
    squeeze."""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [mixing.reshaped(reads[0], shapes[0])]


@dataclass(frozen=True)
class Contracts(Meaning):
    """A sum of products of two inputs, in einsum's words: ``...k,kn->...n``; perhaps a bias behind.

    ``reads``: the two inputs; ``bias``: the number of an input that is added, or None. ``weights``:
    which of ``reads`` holds weights, if one does: 1 in a dense layer. ``numbers``: factors.
    """

    equation: str
    reads: tuple[int, int] = (0, 1)
    bias: int | None = None
    word: str = "product"
    numbers: tuple[Any, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        what = extended(what, self.numbers) if self.numbers else what
        one, two = (reads[n] for n in self.reads)
        letters, out = self.spelled(one.shape, two.shape)
        found = mixing.product(one, two, letters, out, what)
        if self.bias is not None:
            added = extended(tag("add"), ())  # as Each(word="add") has it
            found = mixing.paired(found, reads[self.bias], added, True)
        return [_fitted(found, shapes[0], 0)]

    def spelled(self, one: tuple[int, ...], two: tuple[int, ...]) -> tuple[tuple[str, str], str]:
        """The letters of both inputs and of the output, with the dots written out as capitals."""
        ins, out = self.equation.split("->")
        texts = ins.split(",")
        dots = [len(s) - len(t.replace("...", "")) for s, t in zip((one, two), texts, strict=True)]
        dots = [n if "..." in t else 0 for n, t in zip(dots, texts, strict=True)]
        names = "ABCDEFGHIJKLMNOP"[: max(dots, default=0)]
        first, second = (
            text.replace("...", names[len(names) - n :])
            for text, n in zip(texts, dots, strict=True)
        )
        return (first, second), out.replace("...", names)


@dataclass(frozen=True)
class Reduces(Meaning):
    """A sum, a mean, a norm or a maximum over ``axes``; ``keep``: they stay, of size 1.

    ``zero``: added zeros change nothing (a sum; a mean names its count in ``numbers``).
    ``places``: an output depends on where each element is: the index of the largest.
    """

    axes: tuple[int, ...]
    word: str = ""
    keep: bool = False
    zero: bool = False
    numbers: tuple[Any, ...] = ()
    places: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        axes = tuple(sorted(axis % max(len(one.shape), 1) for axis in self.axes if one.shape))
        if self.places:
            one = one._replace(array=_numbered(one, axes))
        zero, numbers, lengths = self.zero, self.numbers, tuple(one.shape[a] for a in axes)
        if self.word == "mean":  # a sum over a number: added zeros change nothing but that
            count = int(np.prod(lengths, dtype=int))
            zero, numbers = True, (*(n for n in numbers if n != count), count)
        elif not zero:
            numbers = (*numbers, *lengths)
        found = mixing.reduced(one, axes, zero)
        word = joined(what, tag(numbers))
        found = np.where((found == ZERO) & zero, ZERO, joined(found, word))
        shape = tuple(1 if a in axes else n for a, n in enumerate(one.shape))
        names = tuple(map(one.name, range(len(shape))))
        labels = Labels(shape, found, one.known, names)
        if not self.keep:
            rest = [a for a in range(len(shape)) if a not in axes]
            labels = Labels(
                tuple(shape[a] for a in rest),
                found.reshape([found.shape[a] for a in rest]),
                one.known,
                tuple(names[a] for a in rest),
            )
        return [_fitted(labels, to, n) for n, to in enumerate(shapes)]


def _numbered(one: Labels, axes: Sequence[int]) -> np.ndarray:
    """Labels that know their place along axes."""
    full = mixing.visible(one.full(axes))
    sizes = [n if a in axes else 1 for a, n in enumerate(full.shape)]
    index = np.arange(1, int(np.prod(sizes, dtype=int)) + 1, dtype=np.uint64)
    return joined(full, index.reshape(sizes))


def exact_zeros(gives: Sequence[Numbers]) -> np.ndarray | None:
    """Where the first result is exactly 0, as a mask of its shape; None where it nowhere is."""
    zeros: np.ndarray = gives[0]() == 0
    return zeros if zeros.any() else None


@dataclass(frozen=True)
class Normalises(Meaning):
    """Every output reads all elements along ``axes``, and is at the place of one: softmax,
    LayerNorm.

    What is read besides (scales) broadcasts, from the last axis, or lies along ``along``.
    ``vanishes``: outputs that are exactly zero are left out of their group, as what a mask hides
    is in a softmax. ``groups``: (axis, n): that axis in n parts, each for itself: GroupNorm.
    ``apart``: nothing is left out along ``along``: as in an InstanceNorm, where that axis is the
    batch times the channels, and a batch of 1 has to have the labels of a batch of 8.
    """

    axes: tuple[int, ...]
    word: str = ""
    numbers: tuple[Any, ...] = ()
    vanishes: bool = False
    along: int | None = None
    groups: tuple[int, int] | None = None
    apart: bool = False

    @property
    def notices(self) -> bool:  # type: ignore[override]
        """Whether exact zeros are looked for."""
        return self.vanishes

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        return exact_zeros(gives)

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        zeros: np.ndarray | None = None,
    ) -> list[Labels]:
        one, axes, rank = self._split(reads[0])
        if self.apart and self.along is not None:
            one = one._replace(array=one.full([self.along % rank]))
        what = extended(what, self.numbers)
        counted = zeros is None and not self.vanishes
        sizes = tag(*(one.shape[a] for a in axes)) if counted else ZERO
        if zeros is not None and zeros.any():
            one = one._replace(array=np.where(zeros, ZERO, mixing.visible(one.full())))
        else:
            one = one._replace(array=mixing.visible(one.array))
        group = joined(mixing.reduced(one, axes, True), sizes)
        found = np.where(one.array == ZERO, ZERO, joined(one.array, group, what))
        labels = mixing.reshaped(one._replace(array=found), reads[0].shape)
        if reads[1:]:
            axis = (rank - 1 if self.along is None else self.along) % rank
            scales = [mixing.along(other, axis, rank) for other in reads[1:]]
            shape, arrays, names = mixing.aligned([labels, *scales])
            labels = Labels(shape, joined(what, *arrays), mixing.known(reads), names)
        means = Labels(
            tuple(1 if a in axes else n for a, n in enumerate(one.shape)),
            joined(group, what),
            one.known,
            one.names,
        )
        return [labels] + [self._means(means, to, n) for n, to in enumerate(shapes[1:], 1)]

    def _split(self, one: Labels) -> tuple[Labels, tuple[int, ...], int]:
        rank = len(one.shape)
        axes = tuple(sorted(axis % max(rank, 1) for axis in self.axes if rank))
        if self.groups is None:
            return one, axes, rank
        axis, count = self.groups
        size = one.shape[axis] // count
        to = (*one.shape[:axis], count, size, *one.shape[axis + 1 :])
        return mixing.reshaped(one, to), tuple(a + 1 if a >= axis else a for a in axes), rank

    @staticmethod
    def _means(means: Labels, to: tuple[int, ...], number: int) -> Labels:
        """Means and deviations that a norm gives beside its result."""
        if int(np.prod(to, dtype=int)) == int(np.prod(means.shape, dtype=int)):
            return _fitted(means, to, number)
        return mixing.of_one(mixing.whole([means], tag(number)), to, means.known)


@dataclass(frozen=True)
class Attends(Meaning):
    """Attention: queries (..., L, E), keys (..., S, E), values (..., S, F), and perhaps a mask
    that is added to the scores (..., L, S) or, as bool, says which of them are seen.

    What the mask hides by minus infinity or the lowest number of its format adds nothing.
    ``causal``: query n sees keys up to n. ``numbers``: the scale.
    """

    causal: bool = False
    numbers: tuple[Any, ...] = ()
    word: str = "attention"
    boolean: bool = False
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        what = extended(what, self.numbers)
        letters = "ABCDEFGH"[: len(reads[0].shape) - 2]
        spelled = (letters + "le", letters + "se")
        scores = mixing.product(reads[0], reads[1], spelled, letters + "ls", what)
        scores, hidden = self._masked(scores, reads[3:])
        chances = scores._replace(array=np.where(hidden, ZERO, mixing.visible(scores.array)))
        axis = len(chances.shape) - 1
        group = mixing.reduced(chances, (axis,), True)
        found = np.where(chances.array == ZERO, ZERO, joined(chances.array, group))
        chances = chances._replace(array=found)
        result = mixing.product(
            chances, reads[2], (letters + "ls", letters + "sf"), letters + "lf", what
        )
        sums = Labels(chances.shape[:-1], group[..., 0], chances.known, chances.names[:-1])
        known = mixing.known(reads)
        every = [result._replace(known=known)]
        return every + [
            _beside(sums._replace(known=known), to, n) for n, to in enumerate(shapes[1:], 1)
        ]

    def _masked(self, scores: Labels, masks: Sequence[Labels]) -> tuple[Labels, np.ndarray]:
        """Scores with the mask added, in full along the keys, and which of them are hidden."""
        axes = (len(scores.shape) - 2, len(scores.shape) - 1)
        scores = scores._replace(array=scores.full(axes if self.causal else axes[1:]))
        hidden = np.zeros((1, 1), bool)
        if self.causal:
            hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        for mask in masks:
            mask = mask._replace(array=mask.full())
            hides = np.isin(mask.array, ZERO if self.boolean else _lowest(self.dtype))
            hidden = hidden | mixing.lifted(mask._replace(array=hides), len(scores.shape)).array
            if not self.boolean:
                scores = mixing.paired(scores, mask, tag("add"), True)
        return scores, np.broadcast_to(
            hidden, np.broadcast_shapes(hidden.shape, scores.array.shape)
        ) & ~hidden.all(-1, keepdims=True)


def _beside(sums: Labels, to: tuple[int, ...], number: int) -> Labels:
    """Sums of a softmax, where attention gives them; the seeds of dropout."""
    if to == sums.shape:
        return _fitted(sums, to, number)
    return mixing.of_one(mixing.whole([sums], tag(number)), to, sums.known)


def _lowest(dtype: str) -> np.ndarray:
    """Labels of what a mask has where nothing is seen."""
    if dtype == "bfloat16":
        return of_content(np.array([0xFF80, 0xFF7F], np.uint16)).array
    return of_content(np.array([-np.inf, np.finfo(dtype).min], dtype)).array


@dataclass(frozen=True)
class Encodes(Meaning):
    """A layer of an encoder in one piece: (batch, length, features) to the same, where each
    position reads itself and, by attention, all positions of its row that the mask shows.

    ``mask``: the number of the input that hides, or None: (batch, length) if ``rows``, else
    (length, length): as bool where true, or as numbers of ``dtype`` by minus infinity.
    """

    word: str = ""
    numbers: tuple[Any, ...] = ()
    mask: int | None = None
    rows: bool = True
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        rest = [one for n, one in enumerate(reads[1:], 1) if n != self.mask]
        own = mixing.reduced(reads[0]._replace(array=_numbered(reads[0], (2,))), (2,), True)
        own = reads[0]._replace(array=own, shape=(*reads[0].shape[:2], 1)).full([0, 1])
        seen = np.swapaxes(own, 1, 2)
        if self.mask is not None:
            mask = reads[self.mask].full()
            hides = (mask == TRUE) if self.dtype == "bool" else np.isin(mask, _lowest(self.dtype))
            shows = mask == ZERO
            mask = mask[:, None, :] if self.rows else mask[None]
            hides = hides[:, None, :] if self.rows else hides[None]
            shows = shows[:, None, :] if self.rows else shows[None]
            seen = np.where(hides, ZERO, np.where(shows, seen, joined(seen, mask)))
        group = mixing.summed(mixing.scattered(seen), (2,), True)
        found = joined(own, group, mixing.whole(rest, what), tag(self.numbers))
        names = (0, 1, ("mixed", 2))
        known = mixing.known(reads)
        return [
            _fitted(Labels(reads[0].shape, found, known, names), to, n)
            for n, to in enumerate(shapes)
        ]


@dataclass(frozen=True)
class Whole(Meaning):
    """Every output reads all of some axes of its inputs, and nothing is known of its own place
    there.

    ``kept``: pairs (input axis, output axis) along which an output reads its own index alone: the
    batch, as a rule. The first input alone has these axes; others are read whole, but for
    ``rows``, of which the first of these axes is the first axis too: a mask with a row for each of
    the batch.
    """

    kept: tuple[tuple[int, int], ...] = ()
    word: str = ""
    numbers: tuple[Any, ...] = ()
    rows: tuple[int, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        rest = [other for n, other in enumerate(reads) if n and n not in self.rows]
        ins = [axis for axis, _ in self.kept]
        inner = [axis for axis in range(len(one.shape)) if axis not in ins]
        full = mixing.visible(one.full(ins)).transpose(*ins, *inner)
        lead = full.shape[: len(ins)]
        lines = full.reshape(*lead, -1)
        index = np.arange(1, lines.shape[-1] + 1, dtype=np.uint64)
        found = mixing.summed(joined(lines, index), (len(lead),))
        words = [
            (one.shape[a], mixing.hashed(one.name(a)) if one.implicit(a) else 0) for a in inner
        ]
        found = joined(found, mixing.whole(rest, what), tag(*words, self.numbers))
        for n in self.rows:
            row = mixing.in_rows(reads[n]).reshape(-1, *(1,) * (len(lead) - 1))
            found = joined(found, row)
        order = np.argsort([axis for _, axis in self.kept]) if self.kept else ()
        result = []
        for number, shape in enumerate(shapes):
            lengths = [min(n, 1) for n in shape]
            for place, (_, axis) in enumerate(self.kept):
                lengths[axis] = lead[place]
            labels = joined(found, tag(number)).transpose(*order).reshape(lengths)
            result.append(Labels(shape, labels, mixing.known(reads)))
        return result


@dataclass(frozen=True)
class Scans(Meaning):
    """Output t along ``axis`` reads inputs up to t (from the end if ``reverse``): cumulative sums.

    ``mixes``: axes that every output reads whole besides: the features of a recurrent cell. What is
    read besides (weights) is read whole; ``states``: which of ``reads`` are first states, with the
    batch along the axis ``batch`` of the first input and along their own axis before the last.
    Outputs of another shape than the first are the last step's.
    """

    axis: int
    word: str = ""
    reverse: bool = False
    mixes: tuple[int, ...] = ()
    numbers: tuple[Any, ...] = ()
    states: tuple[int, ...] = ()
    batch: int | None = None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        rank = len(one.shape)
        axis, mixes = self.axis % rank, tuple(a % rank for a in self.mixes)
        array = mixing.reduced(one, mixes, False) if mixes else mixing.visible(one.array)
        sizes = tuple(1 if a in mixes else n for a, n in enumerate(one.shape))
        names = tuple(map(one.name, range(rank)))
        full = Labels(sizes, array, one.known, names)
        lines = full.full([axis] if self.batch is None else [axis, self.batch])
        lines = np.flip(lines, axis) if self.reverse else lines
        found = np.empty_like(lines)
        state = self._first(reads, extended(what, self.numbers), rank)
        for step in range(lines.shape[axis]):
            at = (slice(None),) * axis + (slice(step, step + 1),)
            state = joined(state, lines[at])
            found[at] = state
        found = np.flip(found, axis) if self.reverse else found
        fresh = tuple(("mixed", a) if a in mixes else name for a, name in enumerate(names))
        known = mixing.known(reads)
        return [self._given(found, state, fresh, to, n, known) for n, to in enumerate(shapes)]

    def _first(self, reads: Sequence[Labels], what: np.uint64, rank: int) -> np.ndarray:
        """What a step reads besides: weights, and its own row of the first states."""
        rest = [one for n, one in enumerate(reads[1:], 1) if n not in self.states]
        first = mixing.whole(rest, what)
        for n in self.states:
            one = reads[n]
            batch = len(one.shape) - 2
            others = tuple(a for a in range(len(one.shape)) if a != batch)
            one = one._replace(array=_numbered(one._replace(array=one.full()), others))
            row = mixing.reduced(one, others, True).reshape(-1)
            first = joined(first, row.reshape([-1 if a == self.batch else 1 for a in range(rank)]))
        return np.asarray(first)

    def _given(
        self,
        found: np.ndarray,
        last: np.ndarray,
        names: tuple[Name, ...],
        to: tuple[int, ...],
        number: int,
        known: bool,
    ) -> Labels:
        mixes = tuple(a % len(names) for a in self.mixes)
        if (
            len(to) == found.ndim
            and all(
                a in mixes or n in (m, found.shape[a])
                for a, (n, m) in enumerate(zip(to, found.shape, strict=True))
            )
            and (not mixes or to[self.axis] == found.shape[self.axis])
            and (number == 0 or not self.states)
        ):
            return Labels(to, joined(found, tag(number)), known, names)
        if self.batch is None or len(to) < 2 or to[-2] != last.shape[self.batch]:
            return mixing.of_one(mixing.whole([Labels(last.shape, last)], tag(number)), to, known)
        rows = joined(last, tag(number)).reshape(
            [-1 if a == len(to) - 2 else 1 for a in range(len(to))]
        )
        return Labels(to, rows, known)


@dataclass(frozen=True)
class Windows(Meaning):
    """A convolution or a pool: each output reads a window of its input, channel by channel or all.

    ``spatial``: the input's spatial axes; ``channels``: its channel axis. ``kernel``, ``stride``,
    ``dilation``: one a spatial axis; ``padding``: (before, after) a spatial axis. ``kind``:
    ``convolution``, ``transposed``, ``max``, ``average`` or ``sum``. ``groups``: of a convolution.
    ``reads``: input, weights and bias by number; a pool has its input alone. ``weights``: the axes
    of the weights in the order (*kernel, in channels, filters). ``counts_padding``: an average
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
        return self.kind in ("max", "average", "sum")

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, shape = reads[self.reads[0]], shapes[0]
        rest = [reads[n] for n in self.reads[1:]]
        one = one._replace(array=one.full(self.spatial))
        frame = Frame(
            self.kernel, self.stride, self.dilation, self.padding, self.kind == "transposed"
        )
        sizes = tuple(shape[a] for a in self.spatial)
        each = True
        if not self.pool:
            array, each = grouped(one, self.channels, self.groups, shape[self.channels])
            one = one._replace(array=array)
        found, counts = slid(one, self.spatial, frame, sizes, self.kind != "max")
        what = extended(tag("window"), self.kind, self.kernel)
        if self.kind == "average":
            found = joined(found, self._divisors(frame, one, sizes, counts))
        weights = [self._turned(other) for other in rest[:1]]
        found = np.where(
            (found == ZERO) & (not rest), ZERO, joined(found, mixing.whole(weights, what))
        )
        names: list[Name] = list(map(one.name, range(len(shape))))
        if not self.pool:
            found, names[self.channels] = self._filters(found, each), ("filters",)
        labels = Labels(shape, found, mixing.known(reads), tuple(names))
        for bias in rest[1:]:  # as an addition behind has it
            added = mixing.along(bias, self.channels, len(shape))
            labels = mixing.paired(labels, added, extended(tag("add"), ()), True)
        return [labels, *(_fitted(labels, to, n) for n, to in enumerate(shapes[1:], 1))]

    def _turned(self, one: Labels) -> Labels:
        """Weights in one order of axes, whatever the library's is; as they are if that is open."""
        if len(self.weights) != len(one.shape):
            return one
        return Turns(self.weights).labels([one], [], ZERO)[0]

    def _filters(self, found: np.ndarray, each: bool) -> np.ndarray:
        """Labels that name their filter, where there is one for each."""
        if not each:
            return found
        index = np.arange(1, found.shape[self.channels] + 1, dtype=np.uint64)
        index = index.reshape([-1 if a == self.channels else 1 for a in range(found.ndim)])
        return joined(found, index)

    def _divisors(
        self, frame: Frame, one: Labels, sizes: tuple[int, ...], counts: np.ndarray
    ) -> np.ndarray:
        if not self.counts_padding:
            return counts
        found = divisors(frame, [one.shape[a] for a in self.spatial], sizes)
        return found.reshape(
            [sizes[self.spatial.index(a)] if a in self.spatial else 1 for a in range(counts.ndim)]
        )


@dataclass(frozen=True)
class Step:
    """One step of ``Steps``: ``reads``: numbers of what it reads; ``shape``: of what it gives.

    ``more``: shapes of further results; ``op``: what it is called where its meaning has no word:
    the library's name, of an unknown one with its attributes. ``zeros``: what its meaning noticed.
    """

    meaning: Meaning
    reads: tuple[int, ...]
    shape: tuple[int, ...]
    more: tuple[tuple[int, ...], ...] = ()
    op: tuple[str, ...] = ()
    zeros: Any = None

    def labels(self, reads: Sequence[Labels], otherwise: np.uint64) -> list[Labels]:
        """Returns the labels of its results. ``otherwise``: of a step without word and name."""
        words = (self.meaning.word,) if self.meaning.word else self.op
        what, shapes = tag(*words) if words else otherwise, [self.shape, *self.more]
        if self.meaning.notices and self.zeros is not None:
            return self.meaning.labels(reads, shapes, what, self.zeros)  # type: ignore[call-arg]
        return self.meaning.labels(reads, shapes, what)


@dataclass(frozen=True)
class Steps(Meaning):
    """Several steps in one operation: a convolution and its activation, a sum and its norm.

    Numbers of values: first what the operation reads, then what each step gives. ``gives``: the
    numbers of the operation's outputs; empty: the last step's alone. A step that has a ``word`` of
    its own is labelled as the operation of that name is, so fused and separate steps match.
    """

    steps: tuple[Step, ...]
    gives: tuple[int, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        values = list(reads)
        for number, one in enumerate(self.steps):
            given = [values[n] for n in one.reads]
            values += one.labels(given, np.uint64(joined(what, tag(number))[()]))
        return [values[n] for n in self.gives or (len(values) - 1,)]
