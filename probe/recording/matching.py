"""Values and operations of two runs, labelled, and matched by what they compute.

A label is a function of what is computed and of what the runs were given
(:mod:`probe.semantics.labels`). It says which elements of the other run are the same formula over
the same inputs; values that share at least half of them are a match. Of several, names and order
decide, as they do where labels say nothing of either. So a fused operation is matched with the last
of those that it stands for, and so are the layers of another library, or branches that are visited
in another order. Comparing changes nothing of either recording: what is looked up besides, such as
a weight's numbers, stays here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.recording.recording import WEIGHT, Operation, Run, Value, digest
from probe.semantics import Exact, Unknown, mixing
from probe.semantics.labels import ZERO, Labels, agreeing, of_content, of_digest, tag

if TYPE_CHECKING:
    from probe.recording.arguments import Otherwise


Numbers = tuple[int | None, int | None]
Runs = tuple[Run, Run]

MOST, IN_ALL = 1 << 16, 1 << 22
"""Elements of a value up to which all of its labels are written out, and of all such values."""

SAMPLED = 1 << 12
"""Labels of a value that are looked for on the other side."""

NAMED = 4
"""Operations of a region that are named one by one."""


@dataclass
class Match:
    """Which operations and which values of two runs belong together.

    ``operations``: pairs in order, None where a side has none. ``by_labels``: those of them that
    labels alone have paired. ``values``: from the left's values to the right's, and back.
    """

    operations: list[Numbers] = field(default_factory=list)
    by_labels: set[tuple[int, int]] = field(default_factory=set)
    values: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))

    def note(self, mine: int, other: int) -> None:
        """Has two values belong together, unless they do with others."""
        self.values[0].setdefault(mine, other)
        self.values[1].setdefault(other, mine)


def align(left: Run, right: Run) -> list[Numbers]:
    """Pairs the operations of two runs by names and order: the longest common parts."""
    ours, theirs = ([(one.op, one.path) for one in side.operations] for side in (left, right))
    if ours == theirs:
        return [(n, n) for n in range(len(ours))]
    found: list[Numbers] = []
    for kind, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            found += [(i + n, k + n) for n in range(j - i)]
        else:
            found += [(n, None) for n in range(i, j)] + [(None, n) for n in range(k, m)]
    return found


def computes(one: Operation) -> bool:
    """Returns whether an operation computes something that may be rounded in several ways."""
    return not isinstance(one.meaning, Exact) or isinstance(one.meaning, Unknown)


def matched(
    sides: Runs,
    labels: tuple[list[Labels], list[Labels]],
    close: Mapping[int, int],
    shares: Callable[[int, int], bool] | None = None,
) -> Match:
    """Matches operations by labels, and by names and order where these say nothing else.

    ``close``: from the left's values to those of the right that are close; they have one label.
    ``shares``: whether two values have a label in common, where that is known already.
    """
    shares = shares or (lambda n, m: not agreeing(labels[0][n], labels[1][m]).empty)
    made, aligned = Match(), align(*sides)
    settled: set[Numbers] = set()
    for mine, other in aligned:
        if mine is not None and other is not None:
            both = list(_given(sides, mine, other))
            if not both or any(shares(*values) for values in both):
                settled.add((mine, other))
    for mine, other in sorted(settled):  # type: ignore[type-var]
        for values in _given(sides, mine, other):  # type: ignore[arg-type]
            made.note(*values)
    left = [a for a, b in aligned if a is not None and (a, b) not in settled]
    right = [b for a, b in aligned if b is not None and (a, b) not in settled]
    new, back = dict[int, int](), dict[int, int]()
    for n, m in close.items() if left or right else ():
        one, two = sides[0].values[n].given, sides[1].values[m].given
        if one in left and two in right and one not in new and two not in new.values():
            new[one] = two
            made.note(n, m)
    asked = [n for n in left if n not in new]
    for value, match in _matches(sides, labels, asked, set(right) - {*new.values()}):
        made.note(value, match)
        new[sides[0].values[value].given] = sides[1].values[match].given
    back = {m: n for n, m in new.items()}
    asked = [m for m in right if m not in back]
    turned = _matches(sides[::-1], labels[::-1], asked, set(left) - new.keys())
    for value, match in turned:
        made.note(match, value)
        back[sides[1].values[value].given] = sides[0].values[match].given
    made.by_labels = {*new.items(), *((n, m) for m, n in back.items())}
    for mine, other in aligned:
        moved = mine in new or other in back
        if (mine, other) in settled or (None not in (mine, other) and not moved):
            made.operations.append((mine, other))
            continue
        if mine is not None:
            made.operations.append((mine, new.get(mine)))
        if other is not None and (other not in back or new.get(back[other]) != other):
            made.operations.append((back.get(other), other))
    return made


def _given(sides: Runs, mine: int, other: int) -> Iterable[tuple[int, int]]:
    ours, theirs = sides[0].operations[mine], sides[1].operations[other]
    return zip(ours.gives, theirs.gives, strict=False)


def _matches(
    sides: Runs, labels: tuple[list[Labels], list[Labels]], asked: Sequence[int], free: set[int]
) -> Iterator[tuple[int, int]]:
    """Yields a value of each of the first side's operations ``asked`` that has a match, and
    the other side's value that computes the same.

    ``free``: operations of the other side without one; one that has is taken where no other
    computes the same.
    """
    ours, theirs = sides
    if not any(computes(ours.operations[n]) for n in asked):
        return
    index = _Index(theirs, labels[1])
    for one in (ours.operations[n] for n in asked):
        for value in one.gives if computes(one) else ():
            hits = index.candidates(labels[0][value]) if _known(ours, value) else {}
            if not hits:
                continue

            def rank(number: int, hits: dict[int, float] = hits, one: Operation = one) -> tuple:
                """The most in common first, of those a free one, then one of the same name, the
                first."""
                other = theirs.operations[theirs.values[number].given]
                names = other.op != one.op, other.path != one.path
                return (-hits[number], other.number not in free, *names, other.number)

            best = min(hits, key=rank)
            free.discard(theirs.values[best].given)
            yield value, best
            break


def _known(side: Run, number: int) -> bool:
    """Returns whether a value was computed, and is no number that is known by its content."""
    value = side.values[number]
    if value.given < 0 or value.content is not None or not value.floating:
        return False
    return computes(side.operations[value.given])


class _Index:
    """The computed values of a side by their labels: as they are, and written out if need be."""

    def __init__(self, side: Run, labels: Sequence[Labels]) -> None:
        self.tables = [_tables(side, labels, False)]
        self.rest = side, labels

    def candidates(self, one: Labels) -> dict[int, float]:
        """Returns values that share at least half of these labels: how many."""
        if hits := self._hits(one, False):
            return hits
        return self._hits(one, True) if prod(one.shape) <= MOST else {}

    def _hits(self, one: Labels, full: bool) -> dict[int, float]:
        if full and len(self.tables) == 1:
            self.tables.append(_tables(*self.rest, True))
        key, words = _words(one, full)
        if key not in self.tables[full] or not len(words):
            return {}
        table, owners, counts = self.tables[full][key]
        # a value of millions of labels is found by a few thousand of them, evenly among all
        sample = words[np.unique(np.linspace(0, len(words) - 1, SAMPLED).astype(int))]
        start, end = (np.searchsorted(table, sample, side) for side in ("left", "right"))
        spread = end - start
        every = np.repeat(start - np.concatenate([[0], np.cumsum(spread)[:-1]]), spread)
        hit = owners[every + np.arange(len(every))]
        names, times = np.unique(hit, return_counts=True)
        factor = len(words) / len(sample)
        told = zip(names.tolist(), (times * factor).tolist(), strict=True)
        return {n: k for n, k in told if 2 * k >= min(len(words), counts[n])}


Table = tuple[np.ndarray, np.ndarray, dict[int, int]]
"""Labels, sorted; the value that has each; how many each value has."""


def _tables(side: Run, labels: Sequence[Labels], full: bool) -> dict[object, Table]:
    """Returns the labels of all computed values, by what is left out."""
    lines: dict[object, dict[int, np.ndarray]] = {}
    rest = IN_ALL
    for number, label in enumerate(labels):
        if not _known(side, number):
            continue
        size = prod(label.shape) if full else 0
        rest -= size
        if size <= MOST and rest >= 0:
            key, words = _words(label, full)
            lines.setdefault(key, {})[number] = words
    found: dict[object, Table] = {}
    for key, some in lines.items():
        words, counts = np.concatenate([*some.values()]), {n: len(one) for n, one in some.items()}
        order = np.argsort(words, kind="stable")
        found[key] = words[order], np.repeat([*some], [*counts.values()])[order], counts
    return found


def _words(one: Labels, full: bool) -> tuple[object, np.ndarray]:
    """Returns what is left out of labels, and those that there are, each once, but for zeros."""
    array = one.full() if full else one.array
    axes = [a for a in range(len(one.shape)) if not full and one.implicit(a)]
    key = tuple(sorted((mixing.hashed(one.name(a)), one.shape[a]) for a in axes))
    words = np.unique(array)
    return key, words[words != ZERO]


def read_alike(
    one: Operation, two: Operation, meet: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Pairs what two operations read: place by place, or in the order in which all have something
    in common, where a sum or a product of two has them the other way round.

    ``meet``: whether two values have something in common.
    """
    plain = list(zip(one.reads, two.reads, strict=False))
    if len(one.reads) != 2 or len(two.reads) != 2:
        return plain
    turned = list(zip(one.reads, reversed(two.reads), strict=True))
    meets = [all(meet(*numbers) for numbers in some) for some in (plain, turned)]
    return turned if meets == [False, True] else plain


def named(side: Run, numbers: Sequence[int]) -> str:
    """Returns the operations of a region in words, without those that only move elements."""
    names = [side.operations[n].op for n in numbers if computes(side.operations[n])]
    names = names or [side.operations[n].op for n in numbers]
    return " + ".join(names) if len(names) <= NAMED else f"{len(names)} operations to {names[-1]}"


# labels


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
        zeros = (n for n in shared if _zeros(values[n]))
        made |= {
            n: made[n]._replace(array=np.zeros_like(made[n].array), fixed=False) for n in zeros
        }
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


def _zeros(one: Value) -> bool:
    """Whether a weight is a row of zeros, by its digest: converters add biases of them."""
    known = one.dtype in floats.FORMATS and len(one.shape) == 1
    return known and digest(np.zeros(one.shape, floats.container_dtype(one.dtype))) == one.digest


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
