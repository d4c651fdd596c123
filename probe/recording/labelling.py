"""Labels of two recorded runs: what every value was computed from, to be compared with the other's.

A label is a function of what is computed and of what the runs were given. Comparing changes nothing
of either recording: what is looked up besides, such as a weight's numbers, stays here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.recording.matching import align
from probe.recording.recording import WEIGHT, Operation, Run, Value, digest
from probe.semantics import Unknown
from probe.semantics.labels import Labels, agreeing, of_content, of_digest, tag

if TYPE_CHECKING:
    from probe.recording.arguments import Otherwise

LARGE = 1 << 24
"""Elements up to which an input is known element by element, where one side takes a part of it: a
batch of a hundred pictures. Their labels take eight bytes each."""

PARTS = 16
"""Into how many parts a number that came without rounding may be divided."""

Known = Mapping[int, Labels]
"""Labels of values that are known before anything is computed, by number."""


def labels_of(left: Run, right: Run) -> tuple[list[Labels], list[Labels]]:
    """Returns the labels of every value of both runs."""
    return matched_labels((left, right), known(left, right), {})[0]


def known(left: Run, right: Run) -> tuple[dict[int, Labels], dict[int, Labels]]:
    """Returns the labels of what either run is given, and of exact results, by what these hold.

    A weight that both have is one thing, its elements known by their index; what one run alone has
    is known element by element. Costs a look at the weights that one run alone has.
    """
    sides, found = (left, right), []
    # The first of two places where a label depends on what a run is compared with. Two pure ways
    # lose too much. A digest for every weight: a kernel that Keras keeps as (inputs, filters) and
    # PyTorch as (filters, inputs) would have nothing in common, and no layer behind it. The numbers
    # of every weight: then nothing can be left out along channels, and a product of (n, 4096) by
    # (4096, 4096) mixes 16 million pairs of labels a row, some 0.3 s, where a digest takes one.
    keys = [{v.key for v in side.values if _as_one(v)} for side in sides]
    one_sided = _one_sided(left, right)
    for side, theirs, formulas in zip(sides, keys[::-1], one_sided, strict=True):
        values = side.values
        given = {n for n, v in enumerate(values) if v.given < 0}
        shared = {n for n in given if _as_one(values[n]) and values[n].key in theirs}
        missing = {n for n in given - shared if values[n].content is None}
        contents = {n: v.content for n, v in enumerate(values) if v.content is not None}
        contents |= side.arrays(missing) if missing else {}
        made = {n: _whole(values[n]) for n in given}
        made |= {n: _nothing(values[n]) for n in shared if _zeros(values[n])}
        for n in contents.keys() - shared - formulas:
            if n in given or exact(contents[n], values[n].dtype):
                made[n] = of_content(contents[n])
        found.append(made)
    return found[0], found[1]


Both = tuple[list[Labels], list[Labels]]
Like = Mapping[int, "Otherwise"]


def matched_labels(
    runs: tuple[Run, Run],
    given: tuple[Known, Known],
    close: Mapping[int, int],
    like: Like | None = None,
) -> tuple[Both, dict[int, int]]:
    """Returns the labels of every value of both runs, from those that are ``given``; and which
    values of the left are taken for the same as which of the right.

    ``close``: pairs of values that may be, if their labels differ, and so get one label.
    ``like``: by number, operations of the right that get the labels of one of the left, whose
    arguments are different.
    """
    made = _Matched(runs, given, close, like or {})
    for side in (0, 1):
        for one in runs[side].operations:
            made.fill(side, one.number)
    return made.found, made.taken  # type: ignore[return-value]


class _Matched:
    """Labels of two runs while they are found."""

    def __init__(
        self,
        runs: tuple[Run, Run],
        given: tuple[Known, Known],
        close: Mapping[int, int],
        like: Like,
    ) -> None:
        self.runs, self.taken = runs, dict[int, int]()
        self.like: tuple[Like, Like] = {}, like
        self.partner = close, {m: n for n, m in close.items()}
        self.found = tuple(
            [some.get(n) for n in range(len(run.values))]
            for run, some in zip(runs, given, strict=True)
        )
        self.formulas: tuple[dict[int, Labels], dict[int, Labels]] = {}, {}

    def fill(self, side: int, number: int) -> None:
        """Finds the labels of what an operation gives; those of what it comes from before, and of
        what those are close to. Where two such pairs wait for each other, one is taken."""
        pending = [(side, number)]  # each waits for the next
        while pending:
            side, number = pending[-1]
            values, found = self.runs[side].values, self.found[side]
            op = self.runs[side].operations[number]
            missing = next((n for n in op.reads if found[n] is None), None)
            if missing is not None:
                pending.append((side, values[missing].given))
                continue
            rest = [n for n in op.gives if found[n] is None]
            if any(n not in self.formulas[side] for n in rest):
                labels = self._formulas(side, op)
                self.formulas[side].update(zip(op.gives, labels, strict=True))
            asked = {n: self.partner[side][n] for n in rest if n in self.partner[side]}
            others = (
                (1 - side, self.runs[1 - side].values[m].given)
                for m in asked.values()
                if m not in self.formulas[1 - side]
            )
            if other := next((one for one in others if one not in pending), None):
                pending.append(other)
                continue
            for n in rest:
                self._settle(side, n, asked.get(n))
            pending.pop()

    def _formulas(self, side: int, op: Operation) -> list[Labels]:
        found = self.found[side]
        if (taken := self.like[side].get(op.number)) is None:
            return given_labels(self.runs[side], op, found)
        own = list(found)
        for place, label in taken.scalars.items():
            own[op.reads[place]] = label
        asked = replace(op, meaning=taken.like.meaning, attributes=taken.like.attributes)
        return given_labels(self.runs[side], asked, own)

    def _settle(self, side: int, number: int, partner: int | None) -> None:
        label = self.formulas[side][number]
        if partner is not None:
            other = self.formulas[1 - side].get(partner)
            if other is None or not agreeing(label, other).whole:
                left, right = (number, partner) if side == 0 else (partner, number)
                self.taken[left] = right
                what = f"taken for the same as value {left}"
                label = of_digest(self.runs[side].values[number].shape, what)
                self.found[1 - side][partner] = of_digest(
                    self.runs[1 - side].values[partner].shape, what
                )
        self.found[side][number] = label


def given_labels(run: Run, one: Operation, found: Sequence[Labels | None]) -> list[Labels]:
    """Returns the labels of what an operation gives, from those of what it reads."""
    reads = [found[n] for n in one.reads]
    shapes = [run.values[n].shape for n in one.gives]
    meaning = one.meaning
    unknown = isinstance(meaning, Unknown)
    what = tag(one.op, repr(one.attributes)) if unknown else tag(meaning.word or one.op)
    if meaning.notices:
        zeros = run.values[one.gives[0]].zeros
        return meaning.labels(reads, shapes, what, zeros)  # type: ignore[arg-type, call-arg]
    return meaning.labels(reads, shapes, what)  # type: ignore[arg-type]


def exact(content: np.ndarray, dtype: str) -> bool:
    """Whether what is computed from integers came without rounding: whole numbers, halves and the
    like (the scale of an attention of 64 features is an eighth), or infinite.

    Other results, sines of positions say, are labelled by how they were computed, so that they are
    compared.
    """
    if dtype not in floats.FORMATS:
        return "complex" not in dtype
    values = floats.widen(content, dtype) * PARTS
    return bool(np.all((values == np.rint(values)) | ~np.isfinite(values)))


def _whole(one: Value) -> Labels:
    """Labels of a value by its bits; the same bits in another shape are other elements."""
    found = of_digest(one.shape, f"{one.digest} {[n for n in one.shape if n > 1]}")
    return found._replace(fixed=one.role == WEIGHT)


def _nothing(one: Value) -> Labels:
    """Labels of zeros."""
    return Labels(one.shape, np.zeros([min(n, 1) for n in one.shape], np.uint64))


def _zeros(one: Value) -> bool:
    """Whether a weight is a row of zeros, by its digest: converters add biases of them."""
    known = one.dtype in floats.FORMATS and len(one.shape) == 1
    return known and digest(np.zeros(one.shape, floats.container(one.dtype))) == one.digest


def _as_one(one: Value) -> bool:
    """Whether labels take a value as a whole, if both runs are given it."""
    large = one.role == WEIGHT or one.content is None or one.content.size > LARGE
    return large and one.given < 0 and one.floating and prod(one.shape) > 1


def _one_sided(ours: Run, theirs: Run) -> tuple[set[int], set[int]]:
    """Returns computed values of either run whose content is kept there, and not in the other.

    A batch of 16 may have too many integers to be kept where a batch of 1 has not: a label by
    content on one side and by formula on the other would never be equal.

    The second place where comparing decides on labels. It would be pure to know all such values by
    their content, or none: but one-hot rows of a vocabulary don't fit (8 bytes a label), and masks
    that two libraries make by different formulas are recognised by their content alone.
    """
    found: tuple[set[int], set[int]] = set(), set()
    for mine, other in align(ours, theirs):
        if mine is None or other is None:
            continue
        gives = ours.operations[mine].gives, theirs.operations[other].gives
        for both in zip(*gives, strict=False):
            values = ours.values[both[0]], theirs.values[both[1]]
            kept = [value.content is not None for value in values]
            if kept[0] != kept[1] and values[0].dtype == values[1].dtype:
                side = kept.index(True)
                found[side].add(both[side])
    return found
