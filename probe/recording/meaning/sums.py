"""Sums of products, and reductions over axes: which elements each output reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording import mixing
from probe.recording.labels import ZERO, Labels, extended, joined, of_content, tag
from probe.recording.meaning.contract import Meaning, Shapes
from probe.recording.meaning.elementwise import fitted


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
        return [fitted(found, shapes[0], 0)]

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
            one = one._replace(array=numbered(one, axes))
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
        return [fitted(labels, to, n) for n, to in enumerate(shapes)]


def numbered(one: Labels, axes: Sequence[int]) -> np.ndarray:
    """Labels that know their place along axes."""
    full = mixing.visible(one.full(axes))
    sizes = [n if a in axes else 1 for a, n in enumerate(full.shape)]
    index = np.arange(1, int(np.prod(sizes, dtype=int)) + 1, dtype=np.uint64)
    return joined(full, index.reshape(sizes))
