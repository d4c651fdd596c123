"""Operations of two runs that compute the same, though they stand at other places.

Names and order align most runs. What is left over on both sides, such as a fused operation and the
three that it stands for, the layers of another library, or branches that are visited in another
order, is paired where labels are equal (:mod:`probe.semantics.labels`): the same formula over the
same inputs. Nothing else pairs them, so weights that were folded stay without a counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np

from probe.recording.recording import Operation, Recording
from probe.semantics import Exact, Unknown, mixing
from probe.semantics.labels import ZERO, Labels

Numbers = tuple[int | None, int | None]

MOST, IN_ALL = 1 << 16, 1 << 22
"""Elements of a value up to which all of its labels are written out, and of all such values."""

SAMPLED = 1 << 12
"""Labels of a value that are looked for on the other side."""


NAMED = 4
"""Operations of a group that are named one by one."""


@dataclass
class Counterparts:
    """Which operations and which values of two runs belong together.

    ``operations``: pairs in order, None where a side has none. ``by_labels``: those of them that
    labels have paired. ``values``: from the left's values to the right's, and back. ``assumed``:
    from the left's values to those of the right that are taken for the same, whatever the formula.
    """

    operations: list[Numbers]
    by_labels: set[tuple[int, int]] = field(default_factory=set)
    values: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    assumed: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """An operation with those before it that no operation of the other run is the same as.

    ``operations``: by number, in order, the last of them gives the result. ``reads``: values that
    the group reads and that have a counterpart; inputs and weights, whose labels say what they
    hold, aside.
    """

    operations: tuple[int, ...]
    reads: tuple[int, ...]


def align(left: Recording, right: Recording) -> list[tuple[int | None, int | None]]:
    """Pairs the operations of two runs: the longest common parts, in order."""
    ours, theirs = ([(one.op, one.path) for one in side.operations] for side in (left, right))
    if ours == theirs:
        return [(n, n) for n in range(len(ours))]
    found: list[tuple[int | None, int | None]] = []
    for kind, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            found += [(i + n, k + n) for n in range(j - i)]
        else:
            found += [(n, None) for n in range(i, j)] + [(None, n) for n in range(k, m)]
    return found


def computes(one: Operation) -> bool:
    """Returns whether an operation computes something that may be rounded in several ways."""
    return not isinstance(one.meaning, Exact) or isinstance(one.meaning, Unknown)


def found(
    sides: tuple[Recording, Recording],
    labels: tuple[list[Labels], list[Labels]],
    nothing: Callable[[int, int], bool],
    assumed: Mapping[int, int],
) -> Counterparts:
    """Pairs operations by names and order, and by labels what these did not.

    ``nothing``: whether operations of both sides, by number, have nothing in common in what they
    give: such a pair is taken apart if labels find another one for either. ``assumed``: as of
    ``Counterparts``.
    """
    aligned = align(*sides)
    pairs = [(a, b) for a, b in aligned if a is not None and b is not None]
    loose = [both for both in pairs if nothing(*both)]
    kept = set(pairs) - set(loose)
    made = Counterparts(list(aligned), assumed=assumed)
    for mine, other in sorted(kept):
        _note(made, sides, mine, other)
    left = [a for a, b in aligned if a is not None and (a, b) not in kept]
    right = [b for a, b in aligned if b is not None and (a, b) not in kept]
    if not left and not right:
        return made
    other_way = _Search(sides[::-1], labels[::-1])
    search = _Search(sides, labels)
    new = dict(_taken(made, sides, set(left), set(right)))
    free = [n for n in left if n not in new]
    new |= _paired(search, made.values, free, set(right) - set(new.values()))
    back = {r: n for n, r in new.items()}
    rest = [n for n in right if n not in back]
    for n, mine in _paired(other_way, made.values[::-1], rest, set(left) - set(new)):
        back.setdefault(n, mine)
    made.by_labels = set(new.items()) | {(mine, n) for n, mine in back.items()}
    made.operations = list(_rebuilt(aligned, loose, new, back))
    return made


def _taken(
    made: Counterparts, sides: tuple[Recording, Recording], left: set[int], right: set[int]
) -> Iterator[tuple[int, int]]:
    """Yields pairs of free operations that give values which are taken for the same."""
    for mine, other in made.assumed.items():
        one, two = sides[0].values[mine].given, sides[1].values[other].given
        if one in left and two in right:
            left.remove(one)
            right.remove(two)
            made.values[0].setdefault(mine, other)
            made.values[1].setdefault(other, mine)
            yield one, two


def _note(made: Counterparts, sides: tuple[Recording, Recording], mine: int, other: int) -> None:
    ours, theirs = sides[0].operations[mine], sides[1].operations[other]
    for a, b in zip(ours.gives, theirs.gives, strict=False):
        made.values[0].setdefault(a, b)
        made.values[1].setdefault(b, a)


def _rebuilt(
    aligned: Sequence[Numbers],
    loose: Sequence[Numbers],
    new: Mapping[int, int],
    back: Mapping[int, int],
) -> Iterator[Numbers]:
    """Yields the pairs in order: a pair that labels made stands where the left one stood."""
    for mine, other in aligned:
        if mine is not None and other is not None and (mine, other) not in loose:
            yield mine, other
            continue
        moved = mine in new or other in back
        if mine is not None and other is not None and not moved:
            yield mine, other
            continue
        if mine is not None:
            yield mine, new.get(mine)
        if other is not None and (other not in back or new.get(back[other]) != other):
            yield back.get(other), other


class _Search:
    """Values of the other side by their labels; the first side is the one that asks."""

    def __init__(self, sides: Sequence[Recording], labels: Sequence[list[Labels]]) -> None:
        self.sides, self.labels = sides, labels
        self.tables: dict[object, tuple[np.ndarray, np.ndarray, dict[int, int]]] = {}

    def candidates(self, value: int) -> dict[int, float]:
        """Returns values of the other side that share at least half of the labels: how many."""
        one = self.labels[0][value]
        for full in (False, True):
            if full and int(np.prod(one.shape, dtype=int)) > MOST:
                break
            if hits := self._hits(one, full):
                return hits
        return {}

    def _hits(self, one: Labels, full: bool) -> dict[int, float]:
        key, words = _words(one, full)
        table, owners, counts = self._table(key, full)
        if not len(words) or not len(table):
            return {}
        sample = words[np.unique(np.linspace(0, len(words) - 1, SAMPLED).astype(int))]
        start, end = (np.searchsorted(table, sample, side) for side in ("left", "right"))
        spread = end - start
        every = np.repeat(start - np.concatenate([[0], np.cumsum(spread)[:-1]]), spread)
        hit = owners[every + np.arange(len(every))]
        names, times = np.unique(hit, return_counts=True)
        factor = len(words) / len(sample)
        told = zip(names.tolist(), (times * factor).tolist(), strict=True)
        return {n: k for n, k in told if 2 * k >= min(len(words), counts[n])}

    def _table(self, key: object, full: bool) -> tuple[np.ndarray, np.ndarray, dict[int, int]]:
        if not self.tables:
            self._fill(False)
        if full and ("filled",) not in self.tables:
            self._fill(True)
        empty = np.zeros(0, np.uint64), np.zeros(0, np.int64), dict[int, int]()
        return self.tables.get((full, key), empty)

    def _fill(self, full: bool) -> None:
        """Sorts the labels of all computed values of the other side, by what is left out."""
        lines: dict[object, list[tuple[int, np.ndarray]]] = {}
        rest = IN_ALL
        for number, label in enumerate(self.labels[1]):
            if not _asked(self.sides[1], number):
                continue
            size = int(np.prod(label.shape, dtype=int)) if full else 0
            rest -= size
            if size > MOST or rest < 0:
                continue
            key, words = _words(label, full)
            lines.setdefault((full, key), []).append((number, words))
        for each, some in lines.items():
            words = np.concatenate([one for _, one in some])
            owners = np.repeat([n for n, _ in some], [len(one) for _, one in some])
            order = np.argsort(words, kind="stable")
            counts = {n: len(one) for n, one in some}
            self.tables[each] = words[order], owners[order], counts
        self.tables[("filled",) if full else ("first",)] = (np.zeros(0), np.zeros(0), {})


def _asked(side: Recording, number: int) -> bool:
    """Returns whether a value was computed, and is no number that is known by its content."""
    value = side.values[number]
    if value.given < 0 or value.content is not None or not value.floating:
        return False
    return computes(side.operations[value.given])


def _words(one: Labels, full: bool) -> tuple[object, np.ndarray]:
    """Returns what is left out of labels, and those that there are, each once, but for zeros."""
    array = one.full() if full else one.array
    axes = [a for a in range(len(one.shape)) if not full and one.implicit(a)]
    key = tuple(sorted((mixing.hashed(one.name(a)), one.shape[a]) for a in axes))
    words = np.unique(array)
    return key, words[words != ZERO]


def _paired(
    search: _Search,
    values: Sequence[dict[int, int]],
    left: Iterable[int],
    free: set[int],
) -> Iterator[tuple[int, int]]:
    """Yields pairs of operations. ``free``: those of the other side that have none yet; one that
    has is taken where no other computes the same. ``values`` is added to."""
    ours, theirs = search.sides
    for number in left:
        one = ours.operations[number]
        if not computes(one):
            continue
        for given in one.gives:
            if not _asked(ours, given):
                continue
            hits = search.candidates(given)
            if not hits:
                continue
            best = min(hits, key=lambda n: _rank(theirs, n, one, hits[n], free))
            values[0].setdefault(given, best)
            values[1].setdefault(best, given)
            other = theirs.values[best].given
            free.discard(other)
            yield number, other
            break


def _rank(side: Recording, value: int, like: Operation, hits: float, free: set[int]) -> tuple:
    """The most in common first, of those a free one, then one of the same name, the first."""
    given = side.values[value].given
    other = side.operations[given]
    return (-hits, given not in free, other.op != like.op, other.path != like.path, given)


def group(side: Recording, number: int, known: Mapping[int, int]) -> Group:
    """Returns an operation with what comes before it, up to values that have a counterpart."""
    inside, reads = {number}, dict[int, None]()
    pending = list(side.operations[number].reads)
    while pending:
        value = pending.pop()
        given = side.values[value].given
        if value in known:
            reads[value] = None
        elif given >= 0 and given not in inside:
            inside.add(given)
            pending += side.operations[given].reads
    return Group(tuple(sorted(inside)), tuple(sorted(reads)))


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


def named(side: Recording, numbers: Sequence[int]) -> str:
    """Returns the operations of a group in words, without those that only move elements."""
    names = [side.operations[n].op for n in numbers if computes(side.operations[n])]
    names = names or [side.operations[n].op for n in numbers]
    return " + ".join(names) if len(names) <= NAMED else f"{len(names)} operations to {names[-1]}"
