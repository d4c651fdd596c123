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
        one = reads[0]
        for axis, index, weights in self.taps:
            lines = np.moveaxis(one.full([axis]), axis, -1)
            # by what they are: two libraries that weigh alike have equal numbers here
            factors = of_content(weights).array
            terms = np.where(factors == ZERO, ZERO, joint(lines[..., index], factors))
            terms = np.where(lines[..., index] == ZERO, ZERO, terms)
            found = mixing.summed(mixing.scattered(terms), (terms.ndim - 1,))
            found = np.where(found == ZERO, ZERO, joint(found, what))
            shape = (*one.shape[:axis], len(index), *one.shape[axis + 1 :])
            one = Labels(shape, np.moveaxis(found, -1, axis), one.known, one.names)
        return [one]


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
        one, two = (reads[n] for n in self.reads)
        letters, out = self.spelled(one.shape, two.shape)
        # some libraries merge the axes of a batch, or squeeze those of size 1: the others are told
        batch = [x for x in out if x in letters[0] and x in letters[1]]
        one = one._replace(array=one.full([*map(letters[0].index, batch)]))
        two = two._replace(array=two.full([*map(letters[1].index, batch)]))
        found = mixing.contract(one, two, letters, out, what)
        if self.bias is not None:
            found = mixing.associated(found, reads[self.bias], True)  # as Each(word="add") has it
        return [fitted(found, shapes[0], 0)]

    def spelled(self, one: tuple[int, ...], two: tuple[int, ...]) -> tuple[tuple[str, str], str]:
        """The letters of both inputs and of the output, with the dots written out as capitals."""
        ins, out = self.equation.split("->")
        texts = ins.split(",")
        dots = [len(s) - len(t.replace("...", "")) for s, t in zip((one, two), texts, strict=True)]
        dots = [n if "..." in t else 0 for n, t in zip(dots, texts, strict=True)]
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
        one = reads[0]
        axes = tuple(sorted(axis % len(one.shape) for axis in self.axes if one.shape))
        if self.word in ("variance", "deviation"):
            return self._spread(one, axes, shapes)
        if self.places:
            one = one._replace(array=numbered(one, axes))
        mean, lengths = self.word == "mean", tuple(one.shape[a] for a in axes)
        zero = self.zero or mean  # a sum over a number: added zeros change nothing but that
        numbers = self.numbers if zero else (*self.numbers, *lengths)
        found = mixing.reduce(one, axes, zero)
        word = joint(tag("sum") if mean else what, tag(numbers))
        found = np.where((found == ZERO) & zero, ZERO, joint(found, word))
        shape = tuple(1 if a in axes else n for a, n in enumerate(one.shape))
        labels = Labels(shape, found, one.known, tuple(map(one.name, range(len(shape)))))
        if mean:
            labels = divided(labels, of_float(prod(lengths)))
        return [self._fitted(labels, axes, to, n) for n, to in enumerate(shapes)]

    def _spread(self, one: Labels, axes: tuple[int, ...], shapes: Shapes) -> list[Labels]:
        """A variance is a sum of squares of what is left without the mean, over a number."""
        small = tuple(1 if a in axes else n for a, n in enumerate(one.shape))
        (mean,) = Reduces(axes, "mean", True).labels([one], [small], tag("mean"))
        squares = applied("square", applied("subtract", one, mean))
        (total,) = Reduces(axes, "sum", True, True).labels([squares], [small], tag("sum"))
        given = dict(self.numbers)
        found = divided(total, of_float(prod(one.shape[a] for a in axes) - given["correction"]))
        found = applied("sqrt", found) if self.word == "deviation" else found
        return [
            self._fitted(each, axes, to, 0) for each, to in zip((found, mean), shapes, strict=False)
        ]

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


def numbered(one: Labels, axes: Sequence[int]) -> np.ndarray:
    """Labels that know their place along axes."""
    full = mixing.visible(one.full(axes))
    sizes = [n if a in axes else 1 for a, n in enumerate(full.shape)]
    index = np.arange(1, int(np.prod(sizes, dtype=int)) + 1, dtype=np.uint64)
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
        one = reads[0]._replace(array=array if far is None else np.where(far, ZERO, array))
        return Reduces(self.axes, self.word, zero=True).labels([one], shapes, what)


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
        one, terms = reads[0].full().reshape(-1), reads[1].full().reshape(-1)
        places = np.asarray(self.places, np.int64).reshape(-1)
        inside = places >= 0
        total = np.zeros(one.shape, np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(total, places[inside], mixing.scattered(terms)[inside])
            every = total + mixing.scattered(one)
        found = np.where(total == ZERO, one, joint(every, what, tag(self.numbers)))
        return [Labels(shapes[0], found.reshape(shapes[0]), mixing.all_known(reads))]


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
        one = reads[0]
        rest = [other for n, other in enumerate(reads) if n and n not in self.rows]
        ins = [axis for axis, _ in self.kept]
        inner = [axis for axis in range(len(one.shape)) if axis not in ins]
        full = mixing.visible(one.full(ins)).transpose(*ins, *inner)
        lead = full.shape[: len(ins)]
        lines = full.reshape(*lead, prod(full.shape[len(ins) :]))
        # a sum of labels has no order, so that each knows its place: else a permutation would be
        # the same
        index = np.arange(1, lines.shape[-1] + 1, dtype=np.uint64)
        found = mixing.summed(joint(lines, index), (len(lead),))
        words = [
            (one.shape[a], mixing.hashed(one.name(a)) if one.implicit(a) else 0) for a in inner
        ]
        found = joint(found, mixing.one_label(rest, what), tag(*words, self.numbers))
        for n in self.rows:
            row = mixing.by_row(reads[n]).reshape(-1, *(1,) * (len(lead) - 1))
            found = joint(found, row)
        order = np.argsort([axis for _, axis in self.kept]) if self.kept else ()
        result = []
        for number, shape in enumerate(shapes):
            lengths = [min(n, 1) for n in shape]
            for place, (_, axis) in enumerate(self.kept):
                lengths[axis] = lead[place]
            if 0 in shape:  # nothing was found, as by ``nonzero``: there is nothing to label
                labels = np.zeros(lengths, np.uint64)
            else:
                labels = joint(found, tag(number)).transpose(*order).reshape(lengths)
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
        one = reads[0]
        rank = len(one.shape)
        axis, mixes = self.axis % rank, tuple(a % rank for a in self.mixes)
        array = mixing.visible(one.array)
        if mixes:  # each feature knows its place: in another order they are another input
            array = mixing.reduce(one._replace(array=numbered(one, mixes)), mixes, True)
        sizes = tuple(1 if a in mixes else n for a, n in enumerate(one.shape))
        names = tuple(map(one.name, range(rank)))
        full = Labels(sizes, array, one.known, names)
        lines = full.full([axis] if self.batch is None else [axis, self.batch])
        lines = np.flip(lines, axis) if self.reverse else lines
        found = np.empty_like(lines)
        # each state is joined to the one before, and so names all that was read up to it, in its
        # order
        state = self._first(reads, with_words(what, self.numbers), rank)
        for step in range(lines.shape[axis]):
            at = (slice(None),) * axis + (slice(step, step + 1),)
            state = joint(state, lines[at])
            found[at] = state
        found = np.flip(found, axis) if self.reverse else found
        fresh = tuple(("mixed", a) if a in mixes else name for a, name in enumerate(names))
        known = mixing.all_known(reads)

        def given(number: int, to: tuple[int, ...]) -> Labels:
            # of ``found`` an axis may be left out
            fits = len(to) == rank and all(
                a in mixes or n == m for a, (n, m) in enumerate(zip(to, sizes, strict=True))
            )
            every_step = not mixes or (fits and to[self.axis] == sizes[self.axis])
            if fits and every_step and (number == 0 or not self.states):
                return Labels(to, joint(found, tag(number)), known, fresh)
            if self.batch is None or len(to) < 2 or to[-2] != state.shape[self.batch]:
                last = mixing.one_label([Labels(state.shape, state)], tag(number))
                return mixing.of_one(last, to, known)
            wide = [-1 if a == len(to) - 2 else 1 for a in range(len(to))]
            return Labels(to, joint(state, tag(number)).reshape(wide), known)

        return [given(n, to) for n, to in enumerate(shapes)]

    def _first(self, reads: Sequence[Labels], what: np.uint64, rank: int) -> np.ndarray:
        """Returns what a step reads besides: weights, and its own row of the first states."""
        rest = [one for n, one in enumerate(reads[1:], 1) if n not in self.states]
        first = mixing.one_label(rest, what)
        for n in self.states:
            one = reads[n]
            batch = len(one.shape) - 2
            others = tuple(a for a in range(len(one.shape)) if a != batch)
            one = one._replace(array=numbered(one._replace(array=one.full()), others))
            row = mixing.reduce(one, others, True).reshape(-1)
            first = joint(first, row.reshape([-1 if a == self.batch else 1 for a in range(rank)]))
        return np.asarray(first)
