"""Values and operations of two runs, matched by what they compute.

A value's labels (:mod:`probe.semantics.labels`) say which elements of the other run are the same
formula over the same inputs; values that share at least half of them are a match. Of several, names
and order decide, as they do where labels say nothing of either. So a fused operation is matched
with the last of those that it stands for, and so are the layers of another library, or branches
that are visited in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from math import prod

import numpy as np

from probe.recording.recording import Operation, Run
from probe.semantics import Exact, Unknown, mixing
from probe.semantics.labels import ZERO, Labels, agreeing

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
    for value, counterpart in _counterparts(sides, labels, asked, set(right) - {*new.values()}):
        made.note(value, counterpart)
        new[sides[0].values[value].given] = sides[1].values[counterpart].given
    back = {m: n for n, m in new.items()}
    asked = [m for m in right if m not in back]
    turned = _counterparts(sides[::-1], labels[::-1], asked, set(left) - new.keys())
    for value, counterpart in turned:
        made.note(counterpart, value)
        back[sides[1].values[value].given] = sides[0].values[counterpart].given
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


def _counterparts(
    sides: Runs, labels: tuple[list[Labels], list[Labels]], asked: Sequence[int], free: set[int]
) -> Iterator[tuple[int, int]]:
    """Yields a value of each of the first side's operations ``asked`` that has a counterpart, and
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
