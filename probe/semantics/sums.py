"""Sums of products, reductions over axes, scans along one: which elements each output reads.

Also what reads whole axes in an unknown manner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from probe.semantics import mixing
from probe.semantics.contract import Meaning, Numbers, Shapes
from probe.semantics.elementwise import applied, divided, fitted, of_float, row_of
from probe.semantics.labels import ZERO, Labels, joint, of_content, tag, with_words


@dataclass(frozen=True)
class Blends(Meaning):
    """Weighted sums of a few elements along axes: linear interpolation.

    ``taps``: (axis, index, weights) for each such axis in turn; both arrays are (outputs, terms):
    where each output reads, and by how much. Weights of zero read nothing.
    """

    taps: tuple[tuple[int, np.ndarray, np.ndarray], ...]
    word: str = "resize"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        labels = reads[0]
        for axis, index, weights in self.taps:
            lines = np.moveaxis(labels.full([axis]), axis, -1)
            # by what they are: two libraries that weigh alike have equal numbers here
            factors = of_content(weights).array
            terms = np.where(factors == ZERO, ZERO, joint(lines[..., index], factors))
            terms = np.where(lines[..., index] == ZERO, ZERO, terms)
            sums = mixing.summed(mixing.scattered(terms), (terms.ndim - 1,))
            sums = np.where(sums == ZERO, ZERO, joint(sums, what))
            shape = (*labels.shape[:axis], len(index), *labels.shape[axis + 1 :])
            labels = Labels(shape, np.moveaxis(sums, -1, axis), labels.known, labels.names)
        return [labels]


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

    @property
    def sums(self) -> bool:
        return True

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        what = with_words(what, self.numbers) if self.numbers else what
        left, right = (reads[n] for n in self.reads)
        letters, out = self.spelled(left.shape, right.shape)
        # some libraries merge the axes of a batch, or squeeze those of size 1: the others are told
        batch = [x for x in out if x in letters[0] and x in letters[1]]
        left = left._replace(array=left.full([*map(letters[0].index, batch)]))
        right = right._replace(array=right.full([*map(letters[1].index, batch)]))
        products = mixing.contract(left, right, letters, out, what)
        if self.bias is not None:
            # as Each(word="add") has it
            products = mixing.associated(products, reads[self.bias], True)
        return [fitted(products, shapes[0], 0)]

    def spelled(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[str, str], str]:
        """The letters of both inputs and of the output, with the dots written out as capitals."""
        ins, out = self.equation.split("->")
        texts = ins.split(",")
        ends = [*zip(texts, (left, right), strict=True)]
        dots = [("..." in text) * (len(shape) - len(text) + 3) for text, shape in ends]
        names = "ABCDEFGHIJKLMNOP"[: max(dots)]
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

    @property
    def rounds(self) -> int | None:
        return row_of(self.word).rounds

    @property
    def sums(self) -> bool:
        return self.word in ("sum", "mean")

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        source = reads[0]
        axes = tuple(sorted(axis % len(source.shape) for axis in self.axes if source.shape))
        if self.word in ("variance", "deviation"):
            return self._spread(source, axes, shapes)
        if self.places:
            source = source._replace(array=numbered(source, axes))
        mean, lengths = self.word == "mean", tuple(source.shape[a] for a in axes)
        zero = self.zero or mean  # a sum over a number: added zeros change nothing but that
        numbers = self.numbers if zero else (*self.numbers, *lengths)
        sums = mixing.reduce(source, axes, zero)
        word = joint(tag("sum") if mean else what, tag(numbers))
        sums = np.where((sums == ZERO) & zero, ZERO, joint(sums, word))
        shape = tuple(1 if a in axes else n for a, n in enumerate(source.shape))
        labels = Labels(shape, sums, source.known, tuple(map(source.name, range(len(shape)))))
        if mean:
            labels = divided(labels, of_float(prod(lengths)))
        return [self._fitted(labels, axes, to, n) for n, to in enumerate(shapes)]

    def _spread(self, source: Labels, axes: tuple[int, ...], shapes: Shapes) -> list[Labels]:
        """A variance is a sum of squares of what is left without the mean, over a number."""
        small = tuple(1 if a in axes else n for a, n in enumerate(source.shape))
        (mean,) = Reduces(axes, "mean", True).labels([source], [small], tag("mean"))
        squares = applied("square", applied("subtract", source, mean))
        (total,) = Reduces(axes, "sum", True, True).labels([squares], [small], tag("sum"))
        count = prod(source.shape[a] for a in axes) - dict(self.numbers)["correction"]
        spread = divided(total, of_float(count))
        spread = applied("sqrt", spread) if self.word == "deviation" else spread
        both = zip((spread, mean), shapes, strict=False)
        return [self._fitted(result, axes, to, 0) for result, to in both]

    def _fitted(
        self, labels: Labels, axes: tuple[int, ...], to: tuple[int, ...], number: int
    ) -> Labels:
        """Labels of a result, in which the axes stay or don't."""
        if not self.keep:
            rest = [a for a in range(len(labels.shape)) if a not in axes]
            labels = Labels(
                tuple(labels.shape[a] for a in rest),
                labels.array.reshape([labels.array.shape[a] for a in rest]),
                labels.known,
                tuple(map(labels.name, rest)),
            )
        return fitted(labels, to, number)


def numbered(labels: Labels, axes: Sequence[int]) -> np.ndarray:
    """Labels that know their place along axes."""
    full = mixing.visible(labels.full(axes))
    sizes = [n if a in axes else 1 for a, n in enumerate(full.shape)]
    index = np.arange(1, prod(sizes) + 1, dtype=np.uint64)
    return joint(full, index.reshape(sizes))


# How far below a maximum something is that a mask hides; no rounding comes near it.
FAR = 1000.0


@dataclass(frozen=True)
class Maximum(Reduces):
    """A maximum: exact, and what is far below it (what a mask hides) could not be it."""

    notices: bool = True

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        values = reads[0]()
        if values.dtype.kind != "f" or not values.size:
            return None
        with np.errstate(invalid="ignore"):
            far = values < values.max(axis=self.axes, keepdims=True) - FAR
        return far if far.any() else None

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        far: np.ndarray | None = None,
    ) -> list[Labels]:
        array = mixing.visible(reads[0].full())
        seen = reads[0]._replace(array=array if far is None else np.where(far, ZERO, array))
        return Reduces(self.axes, self.word, zero=True).labels([seen], shapes, what)


@dataclass(frozen=True)
class Accumulates(Meaning):
    """The first input, with every element of the second added at a place of it, in any order.

    ``places``: the flat index in the output of each element of the second input, row by row, -1
    where it is left out.
    """

    places: Any
    word: str = "accumulate"
    numbers: tuple[Any, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        base, terms = reads[0].full().reshape(-1), reads[1].full().reshape(-1)
        places = np.asarray(self.places, np.int64).reshape(-1)
        inside = places >= 0
        total = np.zeros(base.shape, np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(total, places[inside], mixing.scattered(terms)[inside])
            every = total + mixing.scattered(base)
        sums = np.where(total == ZERO, base, joint(every, what, tag(self.numbers)))
        return [Labels(shapes[0], sums.reshape(shapes[0]), mixing.all_known(reads))]


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

    @property
    def rounds(self) -> int | None:
        return row_of(self.word).rounds

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        source = reads[0]
        rest = [other for n, other in enumerate(reads) if n and n not in self.rows]
        ins = [axis for axis, _ in self.kept]
        inner = [axis for axis in range(len(source.shape)) if axis not in ins]
        full = mixing.visible(source.full(ins)).transpose(*ins, *inner)
        lead = full.shape[: len(ins)]
        lines = full.reshape(*lead, prod(full.shape[len(ins) :]))
        # a sum of labels has no order, so that each knows its place: else a permutation would be
        # the same
        index = np.arange(1, lines.shape[-1] + 1, dtype=np.uint64)
        label = mixing.summed(joint(lines, index), (len(lead),))
        words = [
            (source.shape[a], mixing.hashed(source.name(a)) if source.implicit(a) else 0)
            for a in inner
        ]
        label = joint(label, mixing.one_label(rest, what), tag(*words, self.numbers))
        for n in self.rows:
            row = mixing.by_row(reads[n]).reshape(-1, *(1,) * (len(lead) - 1))
            label = joint(label, row)
        order = np.argsort([axis for _, axis in self.kept]) if self.kept else ()
        result = []
        for number, shape in enumerate(shapes):
            lengths = [min(n, 1) for n in shape]
            for place, (_, axis) in enumerate(self.kept):
                lengths[axis] = lead[place]
            if 0 in shape:  # nothing was found, as by ``nonzero``: there is nothing to label
                labels = np.zeros(lengths, np.uint64)
            else:
                labels = joint(label, tag(number)).transpose(*order).reshape(lengths)
            # axes count from the end: one system has the labels that it has in a stack of others
            names = tuple(range(-len(shape), 0))
            result.append(Labels(shape, labels, mixing.all_known(reads), names))
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
        source = reads[0]
        rank = len(source.shape)
        axis, mixes = self.axis % rank, tuple(a % rank for a in self.mixes)
        array = mixing.visible(source.array)
        if mixes:  # each feature knows its place: in another order they are another input
            array = mixing.reduce(source._replace(array=numbered(source, mixes)), mixes, True)
        sizes = tuple(1 if a in mixes else n for a, n in enumerate(source.shape))
        names = tuple(map(source.name, range(rank)))
        full = Labels(sizes, array, source.known, names)
        lines = full.full([axis] if self.batch is None else [axis, self.batch])
        lines = np.flip(lines, axis) if self.reverse else lines
        states = np.empty_like(lines)
        # each state is joined to the one before, and so names all that was read up to it, in its
        # order
        state = self._first(reads, with_words(what, self.numbers), rank)
        for step in range(lines.shape[axis]):
            at = (slice(None),) * axis + (slice(step, step + 1),)
            state = joint(state, lines[at])
            states[at] = state
        states = np.flip(states, axis) if self.reverse else states
        fresh = tuple(("mixed", a) if a in mixes else name for a, name in enumerate(names))
        known = mixing.all_known(reads)

        def result(number: int, to: tuple[int, ...]) -> Labels:
            # of ``states`` an axis may be left out
            fits = len(to) == rank and all(
                a in mixes or n == m for a, (n, m) in enumerate(zip(to, sizes, strict=True))
            )
            every_step = not mixes or (fits and to[self.axis] == sizes[self.axis])
            if fits and every_step and (number == 0 or not self.states):
                return Labels(to, joint(states, tag(number)), known, fresh)
            if self.batch is None or len(to) < 2 or to[-2] != state.shape[self.batch]:
                last = mixing.one_label([Labels(state.shape, state)], tag(number))
                return mixing.of_one(last, to, known)
            wide = [-1 if a == len(to) - 2 else 1 for a in range(len(to))]
            return Labels(to, joint(state, tag(number)).reshape(wide), known)

        return [result(n, to) for n, to in enumerate(shapes)]

    def _first(self, reads: Sequence[Labels], what: np.uint64, rank: int) -> np.ndarray:
        """Returns what a step reads besides: weights, and its own row of the first states."""
        rest = [state for n, state in enumerate(reads[1:], 1) if n not in self.states]
        first = mixing.one_label(rest, what)
        for n in self.states:
            state = reads[n]
            batch = len(state.shape) - 2
            others = tuple(a for a in range(len(state.shape)) if a != batch)
            state = state._replace(array=numbered(state._replace(array=state.full()), others))
            row = mixing.reduce(state, others, True).reshape(-1)
            first = joint(first, row.reshape([-1 if a == self.batch else 1 for a in range(rank)]))
        return np.asarray(first)
