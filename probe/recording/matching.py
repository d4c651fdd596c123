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

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, cached_property, partial
from math import prod
from typing import Any

import numpy as np

from probe import floats
from probe.recording.contract import WEIGHT
from probe.recording.recording import (
    Operation,
    Run,
    Value,
    array_digest,
    computes,
    is_exact_content,
)
from probe.semantics import Compiled, Each, Exact, Made, Pads, Unknown, mixing
from probe.semantics.elementwise import row_of
from probe.semantics.labels import (
    NOTHING,
    ZERO,
    Labels,
    Selection,
    agreeing,
    of_content,
    of_digest,
    tag,
)

Numbers = tuple[int | None, int | None]
Runs = tuple[Run, Run]
Both = tuple[list[Labels], list[Labels]]

# Labels of values that are known before anything is computed, by number.
Known = Mapping[int, Labels]

NONE: Mapping[Any, Any] = {}

# Elements of a value up to which all of its labels are written out, and of all such values.
MOST, IN_ALL = 1 << 16, 1 << 22

# Labels of a value that are looked for on the other side.
SAMPLED = 1 << 12


@dataclass
class Pair:
    """A value of either run, by number, and what must agree of them.

    ``compared``: elements; ``equal``: whether all have the same bits. ``known``: False where it
    isn't known of the rest whether it must agree. ``hollow``: neither has any element.

    Of outputs of one shape: ``moved``: how many compute what an element at another index of the
    right computes; ``window``: how many read different inputs; ``by_index``: all elements compared
    by their index, None if they agree by index or that was not asked.
    """

    left: int
    right: int
    selection: Selection
    known: bool
    compared: int = 0
    equal: bool = True
    differing: int = 0
    signed_zero: int = 0
    max_ulp: int | None = 0
    scaled: float = 0.0
    first: tuple[int, ...] | None = None
    hollow: bool = False
    moved: int = 0
    window: int = 0
    by_index: Pair | None = None

    @classmethod
    def of(cls, runs: Runs, labels: Both, left: int, right: int) -> Pair:
        """Returns what must agree of two values, by the labels of all values of both runs."""
        ours, theirs = runs[0].values[left], runs[1].values[right]
        left_labels, right_labels = labels[0][left], labels[1][right]
        # of another format nothing is compared, though both may hold zeros
        chosen = agreeing(left_labels, right_labels) if ours.dtype == theirs.dtype else NOTHING
        hollow = 0 in ours.shape and 0 in theirs.shape
        known = left_labels.known and right_labels.known
        return cls(left, right, chosen, known, chosen.count(ours.shape), hollow=hollow)

    @classmethod
    def of_all(cls, left: int, right: int, size: int) -> Pair:
        """Returns a pair of all elements, ``size``, of two values of one shape, by index."""
        return cls(left, right, Selection((), None, None, ((), ())), True, size)


def align(left: Run, right: Run) -> list[Numbers]:
    """Pairs the operations of two runs by names and order: the longest common parts."""
    ours, theirs = ([(op.op, op.path) for op in side.operations] for side in (left, right))
    if ours == theirs:
        return [(n, n) for n in range(len(ours))]
    pairs: list[Numbers] = []
    # from 200 items on difflib takes what is more than 1 % of them for junk, as layers of one kind
    # are
    for kind, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            pairs += [(i + n, k + n) for n in range(j - i)]
        else:
            pairs += [(n, None) for n in range(i, j)] + [(None, n) for n in range(k, m)]
    return pairs


class Match:
    """What of two runs belongs together, by what is computed. Nothing is compared.

    ``labels``: of every value of both runs; ``taken``: which values of the left are taken for the
    same as which of the right, as they are close. Once ``operations`` were asked for: ``by_labels``
    are those of them that labels alone have paired; ``values``: from the left's values to the
    right's, and back.
    """

    def __init__(
        self,
        runs: Runs,
        initial: tuple[Known, Known] | None = None,
        close: Mapping[int, int] = NONE,
        argued: Argued = NONE,
    ) -> None:
        """``initial``: as of ``initial_labels``. ``close``: from the left's values to those of the
        right that are close: where their labels differ they get one. ``argued``: operations that
        get one label, though their arguments differ."""
        self.runs, self.close, self.argued, self.taken = runs, close, argued, dict[int, int]()
        self.pairs: dict[tuple[int, int], Pair] = {}
        self.by_labels = set[tuple[int, int]]()
        self.values: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._partner = close, {m: n for n, m in close.items()}
        like = {other: otherwise for (_, other), otherwise in argued.items()}
        self._like: tuple[dict[int, Otherwise], dict[int, Otherwise]] = {}, like
        self._formulas: tuple[dict[int, Labels], dict[int, Labels]] = {}, {}
        known = initial_labels(*runs) if initial is None else initial
        both = zip(runs, known, strict=True)
        every = ([labels.get(n) for n in range(len(run.values))] for run, labels in both)
        self.labels: Both = tuple(every)  # type: ignore[assignment]
        for side in (0, 1):
            for op in runs[side].operations:
                self._fill(side, op.number)

    def pair(self, mine: int, other: int) -> Pair:
        if (mine, other) not in self.pairs:
            self.pairs[mine, other] = Pair.of(self.runs, self.labels, mine, other)
        return self.pairs[mine, other]

    def shares(self, mine: int, other: int) -> bool:
        return not self.pair(mine, other).selection.empty

    @cached_property
    def operations(self) -> list[Numbers]:
        """Returns pairs of operations in order, None where a side has none: by labels, and by names
        and order where these say nothing else."""
        sides, pairs, aligned = self.runs, list[Numbers](), align(*self.runs)
        settled = dict[Numbers, list[tuple[int, int]]]()  # with the values that they give
        for mine, other in aligned:
            if mine is not None and other is not None:
                gives = sides[0].operations[mine].gives, sides[1].operations[other].gives
                values = list(zip(*gives, strict=False))
                if not values or any(self.shares(*both) for both in values):
                    settled[mine, other] = values
        for _, values in sorted(settled.items()):
            for both in values:
                self._note(*both)
        left = [a for a, b in aligned if a is not None and (a, b) not in settled]
        right = [b for a, b in aligned if b is not None and (a, b) not in settled]
        new = dict[int, int]()
        for n, m in self.close.items() if left or right else ():
            first, second = sides[0].values[n].given, sides[1].values[m].given
            if not (first in new or second in new.values()) and first in left and second in right:
                new[first] = second
                self._note(n, m)
        unmatched = [n for n in left if n not in new]
        for value, match in _matches(sides, self.labels, unmatched, set(right) - {*new.values()}):
            self._note(value, match)
            new[sides[0].values[value].given] = sides[1].values[match].given
        back = {m: n for n, m in new.items()}
        unmatched = [m for m in right if m not in back]
        free = set(left) - new.keys()
        for value, match in _matches(sides[::-1], self.labels[::-1], unmatched, free):
            self._note(match, value)
            back[sides[1].values[value].given] = sides[0].values[match].given
        self.by_labels.update(new.items(), ((n, m) for m, n in back.items()))
        for mine, other in aligned:
            moved = mine in new or other in back
            if (mine, other) in settled or (None not in (mine, other) and not moved):
                pairs.append((mine, other))
                continue
            if mine is not None:
                pairs.append((mine, new.get(mine)))
            if other is not None and (other not in back or new.get(back[other]) != other):
                pairs.append((back.get(other), other))
        return pairs

    def _note(self, mine: int, other: int) -> None:
        """Has two values belong together, unless they do with others."""
        self.values[0].setdefault(mine, other)
        self.values[1].setdefault(other, mine)

    def _fill(self, side: int, number: int) -> None:
        """Finds the labels of what an operation gives; those of what it comes from before, and of
        what those are close to. Where two such pairs wait for each other, one is taken."""
        pending = [(side, number)]  # each waits for the next
        while pending:
            side, number = pending[-1]
            values, known = self.runs[side].values, self.labels[side]
            op = self.runs[side].operations[number]
            missing = next((n for n in op.reads if known[n] is None), None)
            if missing is not None:
                pending.append((side, values[missing].given))
                continue
            rest = [n for n in op.gives if known[n] is None]
            if any(n not in self._formulas[side] for n in rest):
                labels = self._labels_given(side, op)
                self._formulas[side].update(zip(op.gives, labels, strict=True))
            partners = {n: self._partner[side][n] for n in rest if n in self._partner[side]}
            others = (
                (1 - side, self.runs[1 - side].values[m].given)
                for m in partners.values()
                if m not in self._formulas[1 - side]
            )
            if other := next((place for place in others if place not in pending), None):
                pending.append(other)
                continue
            for n in rest:
                self._settle(side, n, partners.get(n))
            pending.pop()

    def _labels_given(self, side: int, op: Operation) -> list[Labels]:
        labels = self.labels[side]
        if (taken := self._like[side].get(op.number)) is None:
            return result_labels(self.runs[side], op, labels)
        own = list(labels)
        for place, label in taken.scalars.items():
            own[op.reads[place]] = label
        stand_in = replace(op, meaning=taken.like.meaning, attributes=taken.like.attributes)
        return result_labels(self.runs[side], stand_in, own)

    def _settle(self, side: int, number: int, partner: int | None) -> None:
        label = self._formulas[side][number]
        if partner is not None:
            other = self._formulas[1 - side].get(partner)
            if other is None or not agreeing(label, other).whole:
                left, right = (number, partner) if side == 0 else (partner, number)
                self.taken[left] = right
                what = f"taken for the same as value {left}"
                label = of_digest(self.runs[side].values[number].shape, what)
                self.labels[1 - side][partner] = of_digest(
                    self.runs[1 - side].values[partner].shape, what
                )
        self.labels[side][number] = label


def labels_of(left: Run, right: Run) -> Both:
    """Returns the labels of every value of both runs."""
    return Match((left, right)).labels


def _matches(
    sides: Runs, labels: tuple[list[Labels], list[Labels]], wanted: Sequence[int], free: set[int]
) -> Iterator[tuple[int, int]]:
    """Yields a value of each of the first side's operations ``wanted`` that has a match, and
    the other side's value that computes the same.

    ``free``: operations of the other side without one; one that has is taken where no other
    computes the same.
    """
    ours, theirs = sides
    if not any(computes(ours.operations[n]) for n in wanted):
        return
    index = _Index(theirs, labels[1])
    for op in (ours.operations[n] for n in wanted):
        for value in op.gives if computes(op) else ():
            hits = index.candidates(labels[0][value]) if _is_computed(ours, value) else {}
            if not hits:
                continue

            def rank(number: int, hits: dict[int, float] = hits, op: Operation = op) -> tuple:
                """The most in common first, of those a free one, then one of the same name, the
                first."""
                other = theirs.operations[theirs.values[number].given]
                names = other.op != op.op, other.path != op.path
                return (-hits[number], other.number not in free, *names, other.number)

            best = min(hits, key=rank)
            free.discard(theirs.values[best].given)
            yield value, best
            break


def _is_computed(side: Run, number: int) -> bool:
    """Returns whether a value was computed, and is no number that is known by its content."""
    value = side.values[number]
    if value.given < 0 or value.content is not None or not value.floating:
        return False
    return computes(side.operations[value.given])


class _Index:
    """The computed values of a side by their labels: as they are, and written out if need be."""

    def __init__(self, side: Run, labels: Sequence[Labels]) -> None:
        self.tables = cache(partial(_label_tables, side, labels))

    def candidates(self, labels: Labels) -> dict[int, float]:
        """Returns values that share at least half of these labels: how many."""
        if hits := self._hits(labels, False):
            return hits
        return self._hits(labels, True) if prod(labels.shape) <= MOST else {}

    def _hits(self, labels: Labels, full: bool) -> dict[int, float]:
        key, words = _distinct_labels(labels, full)
        if key not in (tables := self.tables(full)) or not len(words):
            return {}
        table, owners, counts = tables[key]
        # a value of millions of labels is found by a few thousand of them, evenly among all
        sample = words[np.unique(np.linspace(0, len(words) - 1, SAMPLED).astype(int))]
        start, end = (np.searchsorted(table, sample, side) for side in ("left", "right"))
        spread = end - start
        every = np.repeat(start - np.concatenate([[0], np.cumsum(spread)[:-1]]), spread)
        hit = owners[every + np.arange(len(every))]
        names, times = np.unique(hit, return_counts=True)
        factor = len(words) / len(sample)
        counted = zip(names.tolist(), (times * factor).tolist(), strict=True)
        return {n: k for n, k in counted if 2 * k >= min(len(words), counts[n])}


# Labels, sorted; the value that has each; how many each value has.
Table = tuple[np.ndarray, np.ndarray, dict[int, int]]


def _label_tables(side: Run, labels: Sequence[Labels], full: bool) -> dict[object, Table]:
    """Returns the labels of all computed values, by what is left out."""
    lines: dict[object, dict[int, np.ndarray]] = {}
    rest = IN_ALL
    for number, label in enumerate(labels):
        if not _is_computed(side, number):
            continue
        size = prod(label.shape) if full else 0
        rest -= size
        if size <= MOST and rest >= 0:
            key, words = _distinct_labels(label, full)
            lines.setdefault(key, {})[number] = words
    tables: dict[object, Table] = {}
    for key, some in lines.items():
        words, counts = np.concatenate([*some.values()]), {n: len(line) for n, line in some.items()}
        order = np.argsort(words, kind="stable")
        tables[key] = words[order], np.repeat([*some], [*counts.values()])[order], counts
    return tables


def _distinct_labels(labels: Labels, full: bool) -> tuple[object, np.ndarray]:
    """Returns what is left out of labels, and those that there are, each once, but for zeros."""
    array = labels.full() if full else labels.array
    axes = [a for a in range(len(labels.shape)) if not full and labels.implicit(a)]
    key = tuple(sorted((mixing.hashed(labels.name(a)), labels.shape[a]) for a in axes))
    words = np.unique(array)
    return key, words[words != ZERO]


def read_alike(
    left: Operation, right: Operation, meet: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Pairs what two operations read: place by place, or in the order in which all have something
    in common, where a sum or a product of two has them the other way round.

    ``meet``: whether two values have something in common.
    """
    plain = list(zip(left.reads, right.reads, strict=False))
    if len(left.reads) != 2 or len(right.reads) != 2:
        return plain
    if all(meet(*numbers) for numbers in plain):  # first: labels of the others are never asked
        return plain
    turned = list(zip(left.reads, reversed(right.reads), strict=True))
    return turned if all(meet(*numbers) for numbers in turned) else plain


# labels


# Elements up to which an input is known element by element, where one side takes a part of it: a
# batch of a hundred pictures. Their labels take eight bytes each.
LARGE = 1 << 24


def initial_labels(left: Run, right: Run) -> tuple[dict[int, Labels], dict[int, Labels]]:
    """Returns the labels of what either run is given, and of exact results, by what these hold.

    A weight that both have is one thing, its elements known by their index; what one run alone has
    is known element by element. Costs a look at the weights that one run alone has.
    """
    sides, labels = (left, right), []
    # The first of two places where a label depends on what a run is compared with. Two pure ways
    # lose too much. A digest for every weight: a kernel that Keras keeps as (inputs, filters) and
    # PyTorch as (filters, inputs) would have nothing in common, and no layer behind it. The numbers
    # of every weight: then nothing can be left out along channels, and a product of (n, 4096) by
    # (4096, 4096) mixes 16 million pairs of labels a row, some 0.3 s, where a digest takes one.
    keys = [{v.key for v in side.values if _labelled_as_one(v)} for side in sides]
    one_sided = _one_sided(left, right)
    for side, theirs, formulas in zip(sides, keys[::-1], one_sided, strict=True):
        values = side.values
        initial = {n for n, v in enumerate(values) if v.given < 0}
        shared = {n for n in initial if _labelled_as_one(values[n]) and values[n].key in theirs}
        missing = {n for n in initial - shared if values[n].content is None}
        contents = {n: v.content for n, v in enumerate(values) if v.content is not None}
        contents |= side.arrays(missing) if missing else {}
        known = {}
        for n in initial:
            value, dtype = values[n], values[n].dtype
            # by its bits; the same bits in another shape are other elements
            sizes = [size for size in value.shape if size > 1]
            label = of_digest(value.shape, f"{value.digest} {sizes}")
            known[n] = label._replace(fixed=value.role == WEIGHT)
            row = n in shared and dtype in floats.FORMATS and len(value.shape) == 1
            # converters add biases of zeros, which add nothing
            if row and value.digest == array_digest(
                np.zeros(value.shape, floats.container_of_format(dtype))
            ):
                known[n] = known[n]._replace(array=np.zeros_like(label.array), fixed=False)
        for n in contents.keys() - shared - formulas:
            if n in initial or is_exact_content(contents[n], values[n].dtype):
                known[n] = of_content(contents[n])
        labels.append(known)
    return labels[0], labels[1]


def result_labels(run: Run, op: Operation, labels: Sequence[Labels | None] | Known) -> list[Labels]:
    """Returns the labels of what an operation gives, from those of what it reads."""
    reads = [labels[n] for n in op.reads]
    shapes = [run.values[n].shape for n in op.gives]
    meaning = op.meaning
    unknown = isinstance(meaning, Unknown)
    what = tag(op.op, repr(op.attributes)) if unknown else tag(meaning.word or op.op)
    if meaning.notices:
        zeros = run.values[op.gives[0]].zeros
        return meaning.labels(reads, shapes, what, zeros)  # type: ignore[arg-type, call-arg]
    return meaning.labels(reads, shapes, what)  # type: ignore[arg-type]


def _labelled_as_one(value: Value) -> bool:
    """Whether labels take a value as a whole, if both runs are given it."""
    large = value.role == WEIGHT or value.content is None or value.content.size > LARGE
    return large and value.given < 0 and value.floating and prod(value.shape) > 1


def _one_sided(ours: Run, theirs: Run) -> tuple[set[int], set[int]]:
    """Returns computed values of either run whose content is kept there, and not in the other.

    A batch of 16 may have too many integers to be kept where a batch of 1 has not: a label by
    content on one side and by formula on the other would never be equal.

    The second place where comparing decides on labels. It would be pure to know all such values by
    their content, or none: but one-hot rows of a vocabulary don't fit (8 bytes a label), and masks
    that two libraries make by different formulas are recognised by their content alone.
    """
    one_sided: tuple[set[int], set[int]] = set(), set()
    for mine, other in align(ours, theirs):
        if mine is None or other is None:
            continue
        gives = ours.operations[mine].gives, theirs.operations[other].gives
        for both in zip(*gives, strict=False):
            values = ours.values[both[0]], theirs.values[both[1]]
            known = [value.content is not None for value in values]
            if known[0] != known[1] and values[0].dtype == values[1].dtype:
                side = known.index(True)
                one_sided[side].add(both[side])
    return one_sided


# Arguments that differ: both runs call the same operation, and ask it for different things.


# Characters of a value that are printed.
TOLD = 40

# Arguments that change no number: what something is called, and where it is kept.
NAMES_ALONE = {
    *("name", "shared_name", "container", "inline", "keep_unused", "device", "out_sharding"),
    *("sharding", "ctx_mesh", "layout", "memory_format", "pin_memory", "non_blocking"),
    *("_class", "_output_shapes", "debug_info", "donated_invars"),
}


@dataclass(frozen=True)
class Otherwise:
    """What labels take an operation of the right run for. ``text``: the arguments that differ.

    ``like``: the left run's operation, ``scalars``: by their place among what is read, the labels
    of the left run's single numbers.
    """

    text: str
    like: Operation
    scalars: Mapping[int, Labels]


# By the numbers of the left and the right run's operation.
Argued = Mapping[tuple[int, int], Otherwise]


def differing_arguments(left: Run, right: Run, mine: int, other: int) -> Otherwise | None:
    """Returns how the arguments of two operations differ; None where nothing can be said of it."""
    first, second = left.operations[mine], right.operations[other]
    meaning = first.meaning
    if first.op != second.op or type(meaning) is not type(second.meaning):
        return None
    moves = isinstance(meaning, Exact) and not isinstance(meaning, Unknown)
    if isinstance(meaning, Compiled | Made) or (
        moves and not (isinstance(meaning, Pads) or hasattr(meaning, "value"))
    ):
        return None
    both_ops = ((left, first), (right, second))
    ours, theirs = ([run.values[n] for n in op.reads] for run, op in both_ops)
    gives = [[run.values[n] for n in op.gives] for run, op in both_ops]
    if len(ours) != len(theirs) or not any(value.floating for value in gives[0]):
        return None
    scalars = _differing_scalars(ours, theirs)
    commutes = len(ours) == 2 and row_of(getattr(meaning, "word", "")).commutes
    if not scalars and commutes and (turned := _differing_scalars(ours[::-1], theirs)):
        scalars, ours = turned, ours[::-1]  # of a sum or a product of two, either way round
    alike = [v.shape for v in ours] == [v.shape for v in theirs]
    alike &= [v.shape for v in gives[0]] == [v.shape for v in gives[1]]
    if not alike and not isinstance(meaning, Each):
        # one meaning is taken at the other's shapes: they may differ in numbers alone
        fields = {name: getattr(meaning, name) for name in ("numbers",) if hasattr(meaning, name)}
        try:
            if replace(second.meaning, **fields) != meaning:  # type: ignore[type-var]
                return None
        except (TypeError, ValueError):  # no dataclass, or of arrays
            return None
    inside = getattr(meaning, "differing", None)  # of programs, which have a body besides
    arguments: list[tuple[Any, ...]] = []
    if inside is not None:
        if (body := inside(second.meaning)) is None:
            return None
        arguments += body
    else:
        for name in dict.fromkeys((*first.attributes, *second.attributes)):
            values = [side.attributes.get(name, NOT_GIVEN) for side in (first, second)]
            texts = [repr(value) for value in values]
            where = any(" at 0x" in text for text in texts)  # which differs from run to run
            if texts[0] != texts[1] and name not in NAMES_ALONE and not where:
                number = name.removeprefix("argument")  # of those without a name, from 1 on
                plain = number != name and number.isdigit()
                arguments.append((f"operand {int(number) + 1}" if plain else name, *values))
    for n, both in scalars.items():
        name = both[0].name if both[0].name == both[1].name else ""
        numbers = []
        for v in both:  # with the digits of its format: 0.1 rather than 0.10000000149011612
            assert v.content is not None
            scalar = v.content.reshape(-1)[:1]
            if scalar.dtype.kind == "f":
                numbers.append(float(str(scalar[0])))
            else:  # bfloat16's bits, or integers
                wide = floats.widen(scalar, v.dtype) if v.dtype in floats.FORMATS else scalar
                numbers.append(wide.item())
        arguments.append((name or f"operand {n + 1}", *numbers))
    if not alike:
        sizes = left.axis_sizes, right.axis_sizes
        arguments = [each for each in arguments if not _follows_from_sizes(each[1:], sizes)]
    if not arguments or not any(v.floating and n not in scalars for n, v in enumerate(ours)):
        return None
    if moves:  # elements, to places that whole numbers say
        arguments = [each for each in arguments if any(isinstance(v, float) for v in each[1:])]
        if not arguments:
            return None
    text = ", ".join(f"{name} {_two_texts(*both)}" for name, *both in arguments)
    labels = {n: of_content(a.content) for n, (a, _) in scalars.items() if a.content is not None}
    return Otherwise(text, first, labels)


def all_differing_arguments(
    left: Run, right: Run, aligned: Sequence[tuple[int | None, int | None]]
) -> dict[tuple[int, int], Otherwise]:
    """Returns the operations of both runs whose arguments differ. ``aligned``: as names and labels
    pair them; of the rest those of the same kind are taken in their order, as layers of Keras have
    names of their own in each model."""
    pairs = [(a, b) for a, b in aligned if a is not None and b is not None]
    free = (
        sorted(a for a, b in aligned if a is not None and b is None),
        sorted(b for a, b in aligned if a is None and b is not None),
    )
    kinds = [
        [run.operations[n].op for n in some] for run, some in zip((left, right), free, strict=True)
    ]
    # as in ``align``: layers of one kind are no junk
    matched = SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_matching_blocks()
    for start, begin, count in matched:
        pairs += [(free[0][start + n], free[1][begin + n]) for n in range(count)]
    every = {both: differing_arguments(left, right, *both) for both in pairs}
    differing = {both: otherwise for both, otherwise in every.items() if otherwise is not None}
    if not differing:
        return {}
    # Two operations stand for each other where a module of one name calls them, or the same
    # operations read what they give: x * 0.5 is no x * 0.25 * 2 with another factor.
    read_by = _read_by(left), _read_by(right)
    settled = {}
    for both, otherwise in differing.items():
        ops = left.operations[both[0]], right.operations[both[1]]
        ends = [
            sorted(r for n in op.gives for r in some[n])
            for op, some in zip(ops, read_by, strict=True)
        ]
        if (ops[0].path and ops[0].path == ops[1].path) or ends[0] == ends[1]:
            settled[both] = otherwise
    return settled


def _read_by(run: Run) -> Mapping[int, list[str]]:
    """Returns by value which operations read it, and which outputs of the run it is."""
    readers: dict[int, list[str]] = defaultdict(list)
    for op in run.operations:
        for n in op.reads:
            readers[n].append(op.op)
    for place, n in enumerate(run.outputs):
        readers[n].append(f"output {place}")
    return readers


def _differing_scalars(ours: list[Value], theirs: list[Value]) -> dict[int, tuple[Value, Value]]:
    """Returns single numbers that differ, by their place."""
    both = enumerate(zip(ours, theirs, strict=True))
    return {
        n: (a, b)
        for n, (a, b) in both
        if _is_known_scalar(a) and _is_known_scalar(b) and a.digest != b.digest
    }


def _is_known_scalar(value: Value) -> bool:
    """Returns whether a value is a number that is known, rather than computed from arrays, and no
    weight: a bias of one filter has an axis."""
    known = value.content is not None and (value.given < 0 or value.plain)
    known &= value.role != WEIGHT or value.shape == ()
    return known and value.content is not None and value.content.size == 1


class _NotGiven:
    """Stands for an argument that one side leaves out."""

    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN = _NotGiven()


def _two_texts(a: Any, b: Any) -> str:
    """Returns two values that differ, so that their texts do too."""
    texts = _value_text(a, short=True), _value_text(b, short=True)
    if texts[0] == texts[1]:  # apart in digits that float32 lacks
        texts = _value_text(a), _value_text(b)
    pairs = enumerate(zip(*texts, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(map(len, texts)))
    start *= max(map(len, texts)) > TOLD
    first = max(0, start - TOLD // 2)  # long ones are cut where they begin to differ
    cut = [text[first : first + TOLD] + "..." * (len(text) > first + TOLD) for text in texts]
    return " against ".join("..." * (first > 0) + text for text in cut)


def _value_text(value: Any, short: bool = False) -> str:
    # not np.float32(value) == value: NumPy would round both sides of it to float32
    with np.errstate(over="ignore"):
        if short and isinstance(value, float) and float(np.float32(value)) == value:
            value = float(str(np.float32(value)))  # 1e-05, as it was written
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r"^np\.\w+\((.*)\)$", r"\1", text)  # as NumPy prints its numbers


def _follows_from_sizes(values: Sequence[Any], sizes: Sequence[set[int]]) -> bool:
    """Returns whether an argument is whole numbers on both sides, or follows from a size: a mean's
    divisor, the root of a length."""
    if all(map(_are_whole_numbers, values)):
        return True
    for value, known in zip(values, sizes, strict=True):
        try:
            number = abs(float(value))
        except (TypeError, ValueError):
            return False
        ways = (number, number**2, 1 / number, number**-2) if number else ()
        if not any(abs(way - round(way)) < 1e-5 * way and round(way) in known for way in ways):
            return False
    return True


def _are_whole_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_are_whole_numbers, value))
    if isinstance(value, str):  # as NumPy's recorder has them
        return value.strip("()[]").replace(",", "").replace(" ", "").lstrip("-").isdigit()
    return value is NOT_GIVEN or (isinstance(value, int) and not isinstance(value, bool))
