"""Two runs side by side: which operations agree, which differ first, and which only pass it on.

Operations are aligned by name and order, and what is left over by what it computes
(:mod:`probe.recording.counterparts`); of every pair of values those elements are compared that
must agree (:mod:`probe.semantics.labels`). An operation is the *source* of a difference where
everything that it reads agrees and its outputs don't, *carried* where what it reads differs
already, *healed* where what it reads differs and its outputs agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import eq
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.recording import arguments, counterparts
from probe.recording.arguments import Argued, Otherwise
from probe.recording.counterparts import Counterparts
from probe.recording.labelling import Known, computed, known, taken_for
from probe.recording.recording import Recording, Run
from probe.semantics import Passes
from probe.semantics.labels import NOTHING, Selection, agreeing

OTHERWISE = (
    "the right run computes it differently; the results are close and assumed to be the same"
)


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
    def of_all(cls, left: int, right: int, size: int) -> Pair:
        """Returns a pair of all elements, ``size``, of two values of one shape, by index."""
        return cls(left, right, Selection((), None, None, ((), ())), True, size)


@dataclass
class Aligned:
    """A region: the operations of both runs, or of one, between values that are matched.

    ``left``, ``right``: the operations that give its results; ``inside``: all of either side, in
    order, one each as a rule. ``joint``: where these don't read the same values one by one, they
    are run and explained as a whole, and ``reads`` are those values before them that are matched.
    ``assumed``: its results are taken for the same as they are close, whatever the formulas.
    ``own``: of a carried one, outputs that differ where its inputs are made to agree; None: that
    was not asked. ``arguments``: how the two are asked for different things, in words: ``eps 1e-05
    against 1e-06``; empty where they aren't. ``doubt``: whether something speaks against its
    verdict, as ``note`` says, which is ``unknown`` then. ``handed``: what it gives was computed by
    operations that are compared themselves. ``reason``: why nothing is known of it
    (:class:`probe.recording.reasons.Reason`).
    """

    name: str
    op: str
    path: str
    left: int | None
    right: int | None
    reads: list[Pair] = field(default_factory=list)
    gives: list[Pair] = field(default_factory=list)
    cause: str = ""
    note: str = ""
    own: int | None = None
    inside: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    joint: bool = False
    assumed: bool = False
    arguments: str = ""
    doubt: bool = False
    handed: bool = False
    reason: Any = None

    @property
    def verdict(self) -> str:
        """``left`` or ``right``: one run alone has it. ``unknown``: nothing is compared, or there
        is a ``doubt``. Else by what it reads and gives: ``source`` or ``carried`` where its results
        differ, ``equal`` or ``healed`` where they agree, though its inputs do or don't.
        """
        if self.left is None or self.right is None:
            return "left" if self.right is None else "right"
        hollow = all((pair.selection.whole and pair.known) or pair.hollow for pair in self.gives)
        if self.doubt or not (self.compared or hollow):
            return "unknown"
        before = not self.compared or all(pair.equal for pair in self.reads)
        if all(pair.equal for pair in self.gives):
            return "equal" if before else "healed"
        return "source" if before and not self.handed else "carried"

    def doubted(self, why: str) -> None:
        """Has its verdict be ``unknown``, because ``why``."""
        self.doubt, self.note = True, why

    @property
    def differing(self) -> int:
        """Returns elements of its outputs that must agree and don't."""
        return sum(one.differing for one in self.gives)

    @property
    def why(self) -> str:
        """Returns its cause in words, with the arguments that differ; empty if there is none."""
        return f"{self.cause}: {self.arguments}" if "argument" in self.cause else self.cause

    @property
    def compared(self) -> int:
        """Returns elements of its outputs that must agree."""
        return sum(one.compared for one in self.gives)

    @property
    def max_ulp(self) -> int | None:
        """Returns the largest distance; None where it has no number (a NaN, or integers)."""
        found = [one.max_ulp for one in self.gives if one.max_ulp is not None]
        return max(found, default=0) if len(found) == len(self.gives) else None

    def to_json(self) -> dict[str, Any]:
        """As ``operations`` of ``probe network --json`` has it."""
        return {
            "name": self.name,
            "op": self.op,
            "path": self.path,
            "verdict": self.verdict,
            "compared": self.compared,
            "differing": self.differing,
            "max_ulp": self.max_ulp,
            "cause": self.cause or None,
            "note": self.note or None,
            "own": self.own,
            "arguments": self.arguments or None,
            "reason": None if self.reason is None else str(self.reason),
        }


@dataclass
class Difference:
    """Two runs compared; ``operations`` in the order of the run, those of one side between.

    ``argued``: operations that labels take for the same though their arguments differ.
    """

    left: Recording
    right: Recording
    operations: list[Aligned]
    outputs: list[Pair]
    argued: Argued = field(default_factory=dict)

    @property
    def first(self) -> Aligned | None:
        """Returns the first source."""
        return next(iter(self.sources), None)

    @property
    def sources(self) -> list[Aligned]:
        """Returns all sources, in order."""
        return [one for one in self.operations if one.verdict == "source"]

    @property
    def examined(self) -> int:
        """Returns operations of which something was compared."""
        return sum(one.verdict not in ("left", "right", "unknown") for one in self.operations)

    @property
    def verdict(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs that must agree.

        Outputs that stand at other indices or read different inputs differ, too.
        """
        if any(one.differing or one.moved or one.window for one in self.outputs):
            return "differs"
        judged = all((one.known or one.selection.whole) and one.compared for one in self.outputs)
        return "equal" if judged and self.outputs else "unknown"


def compare(left: Run, right: Run, same: Mapping[int, int] | None = None) -> Difference:
    """Compares two runs of the same thing.

    ``same``: values of the left that are taken for the same as values of the right, whatever labels
    say.
    """
    ours, theirs = left.recording, right.recording
    same = same or {}
    given = known(left, right)
    found = _by_labels(ours, theirs, given, same)
    aligned = [(one.left, one.right) for one in found.operations if not one.joint]
    argued = arguments.every(ours, theirs, aligned)
    alike = {(one.left, one.right) for one in found.operations if one.gives and _alike(one)}
    if argued.keys() - alike:  # else labels say the same of both, as of another momentum
        found = _by_labels(ours, theirs, given, same, argued)
    judge(left, right, _of(found.operations, found.outputs))
    apart = [pair for one in found.operations for pair in one.gives if not pair.equal]
    differing = {pair.left for pair in apart}, {pair.right for pair in apart}
    for each in found.operations:
        each.arguments = _arguments(each, ours, theirs, argued)
        each.note = "" if each.verdict == "equal" else each.note
        ends = zip((ours, theirs), (each.left, each.right), differing, strict=True)
        each.handed = any(_handed(*one) for one in ends)
    return found


def _handed(run: Recording, number: int | None, differing: set[int]) -> bool:
    """Whether an operation is a program that was looked into, and gives what was computed inside:
    where that has a counterpart, nothing differs by itself in giving it."""
    op = None if number is None else run.operations[number]
    return op is not None and isinstance(op.meaning, Passes) and bool(differing & {*op.reads})


def _arguments(one: Aligned, ours: Recording, theirs: Recording, argued: Argued) -> str:
    """Returns the arguments that differ, in words; also of operations of one kind that are assumed
    to be the same, as their results are close."""
    if one.left is None or one.right is None or not one.compared:
        return ""
    if not one.joint:
        told = argued.get((one.left, one.right))
    else:
        single = one.assumed and one.inside == ((one.left,), (one.right,))
        told = arguments.between(ours, theirs, one.left, one.right) if single else None
    return "" if told is None else told.text


def _alike(one: Aligned) -> bool:
    """Returns whether labels say that all of what two operations give must agree."""
    return all(pair.selection.whole for pair in one.gives)


def _by_labels(
    ours: Recording,
    theirs: Recording,
    given: tuple[Known, Known],
    same: Mapping[int, int],
    argued: Argued | None = None,
) -> Difference:
    """Returns what must agree of two runs; nothing is compared yet."""
    argued = argued or {}
    like = {other: one for (_, other), one in argued.items()}
    taken = [{n: taken_for(ours.values[n], n) for n in same}]
    taken += [{m: taken_for(theirs.values[m], n) for n, m in same.items()}]
    labels = (
        computed(ours, {**taken[0], **given[0]}),
        computed(theirs, {**taken[1], **given[1]}, like),
    )
    pairs: dict[tuple[int, int], Pair] = {}

    def pair(mine: int, other: int) -> Pair:
        if (mine, other) not in pairs:
            one, two = labels[0][mine], labels[1][other]
            alike = ours.values[mine].dtype == theirs.values[other].dtype
            chosen = agreeing(one, two) if alike else NOTHING  # both may hold zeros
            made = Pair(mine, other, chosen, one.known and two.known)
            made.compared = selected(chosen, ours.values[mine].shape)
            made.hollow = 0 in ours.values[mine].shape and 0 in theirs.values[other].shape
            pairs[mine, other] = made
        return pairs[mine, other]

    def nothing(mine: int, other: int) -> bool:
        one, two = ours.operations[mine], theirs.operations[other]
        both = [pair(*numbers) for numbers in zip(one.gives, two.gives, strict=False)]
        return bool(both) and all(each.selection.empty for each in both)

    told = counterparts.found((ours, theirs), labels, nothing, same)
    found = [
        _aligned(ours, theirs, both, told, pair, argued.get(both))  # type: ignore[arg-type]
        for both in told.operations
    ]
    found = _joined(found, ours, theirs)
    outputs = [pair(*both) for both in zip(ours.outputs, theirs.outputs, strict=False)]
    return Difference(ours, theirs, found, outputs, argued)


def _of(found: list[Aligned], outputs: list[Pair]) -> list[Pair]:
    """Returns all pairs of values that are compared, each once."""
    every = [*(pair for one in found for pair in (*one.reads, *one.gives)), *outputs]
    return list({id(one): one for one in every}.values())


def _aligned(
    ours: Recording,
    theirs: Recording,
    both: tuple[int | None, int | None],
    told: Counterparts,
    pair: Callable[[int, int], Pair],
    argued: Otherwise | None = None,
) -> Aligned:
    """Returns the operations of both sides, or of one, with the pairs of values to be compared."""
    mine, other = both
    one = ours.operations[mine] if mine is not None else theirs.operations[other or 0]
    made = Aligned(one.name, one.op, one.path, mine, other)
    made.inside = tuple(() if n is None else (n,) for n in both)  # type: ignore[assignment]
    if mine is None or other is None:
        return made
    two = theirs.operations[other]
    reads = counterparts.read_alike(one, two, lambda *both: not pair(*both).selection.empty)
    if argued is not None:  # single numbers are arguments, and not read by both
        numbers = {two.reads[place] for place in argued.scalars}
        reads = [(mine, other) for mine, other in reads if other not in numbers]
    made.gives = [pair(*numbers) for numbers in zip(one.gives, two.gives, strict=False)]
    made.assumed = any(told.assumed.get(n) in two.gives for n in one.gives)
    if made.assumed or (mine, other) in told.by_labels:
        alike = len(one.reads) == len(two.reads) and len(one.gives) == len(two.gives)
        every = [*made.gives, *(pair(*numbers) for numbers in reads)]
        whole = all(pair(*numbers).selection.whole for numbers in reads)
        other_formula = made.assumed and (one.op != two.op or not whole)
        if other_formula or not alike or any(each.selection.empty for each in every):
            _grouped(ours, theirs, made, told, pair)
            return made
        made.note = f"on the right it is {two.name}" if two.name != one.name else ""
        made.note = OTHERWISE if made.assumed else made.note
    made.reads = [pair(*numbers) for numbers in reads]
    if any(_hidden(one, ours, theirs) for one in made.reads) and all(
        one.selection.whole for one in made.gives
    ):
        _grouped(ours, theirs, made, told, pair)
    return made


def _hidden(read: Pair, ours: Recording, theirs: Recording) -> bool:
    """Returns whether two computed values, which one operation reads at one place in both runs,
    have nothing in common: as ``(a + b) + c`` and ``(a + c) + b`` read."""
    both = ours.values[read.left], theirs.values[read.right]
    return read.selection.empty and all(
        one.floating and one.given >= 0 and one.content is None for one in both
    )


def _grouped(
    ours: Recording,
    theirs: Recording,
    made: Aligned,
    told: Counterparts,
    pair: Callable[[int, int], Pair],
) -> None:
    """Fills in what several operations of one side, or of both, read and give together."""
    assert made.left is not None and made.right is not None
    ends = ours.operations[made.left].gives, theirs.operations[made.right].gives
    given = {(n, told.values[0].get(n, -1)) for n in ends[0]}
    given |= {(told.values[1].get(n, -1), n) for n in ends[1]}
    made.gives = [pair(a, b) for a, b in sorted(given) if a in ends[0] and b in ends[1]]
    ahead, back = told.values
    if made.assumed:
        # No label says which results follow from which part of what is read: a value that agrees in
        # part is no boundary, or what differs in the rest of it would be called a source here.
        ahead = {n: m for n, m in ahead.items() if pair(n, m).selection.whole}
        back = {m: n for m, n in back.items() if pair(n, m).selection.whole}
    one = counterparts.group(ours, made.left, ahead)
    two = counterparts.group(theirs, made.right, back)
    values = {(n, told.values[0][n]) for n in one.reads}
    values |= {(told.values[1][n], n) for n in two.reads}
    made.reads = [pair(*numbers) for numbers in sorted(values)]
    made.inside, made.joint = (one.operations, two.operations), True
    made.path = made.path if len(one.operations) == 1 else ""
    _named(made, ours, theirs)


def _named(made: Aligned, ours: Recording, theirs: Recording) -> None:
    texts = [counterparts.named(*one) for one in zip((ours, theirs), made.inside, strict=True)]
    made.op = " against ".join(dict.fromkeys(texts))
    made.note = (
        f"the right run's {texts[1]} is taken for the same, as the results are close"
        if made.assumed
        else f"by its labels, the right run's {texts[1]} computes the same"
    )


def _joined(found: list[Aligned], ours: Recording, theirs: Recording) -> list[Aligned]:
    """Takes groups as one that have the same operations on a side, and a part in common on the
    other: a compiled function of two outputs has one difference, which would be listed twice."""
    kept: list[Aligned] = []
    grouped: list[Aligned] = []
    for one in found:
        some = grouped if one.joint else []
        before = next((each for each in some if _overlap(each, one, (ours, theirs))), None)
        if before is None:
            kept.append(one)
            grouped += [one] if one.joint else []
            continue
        first, second = ({*a, *b} for a, b in zip(before.inside, one.inside, strict=True))
        before.inside = tuple(sorted(first)), tuple(sorted(second))
        before.left, before.right = max(first), max(second)
        before.gives += one.gives
        every = list({id(pair): pair for pair in (*before.reads, *one.reads)}.values())
        before.reads = [
            pair
            for pair in every
            if ours.values[pair.left].given not in first
            or theirs.values[pair.right].given not in second
        ]
        _named(before, ours, theirs)
    return kept


def _overlap(one: Aligned, other: Aligned, sides: tuple[Recording, Recording]) -> bool:
    """Whether two groups are the same on one side, share what computes on the other, and neither
    reads what comes after the first."""
    if not (one.joint and other.joint) or not any(map(eq, one.inside, other.inside)):
        return False
    shared = (set(a) & set(b) for a, b in zip(one.inside, other.inside, strict=True))
    both = zip(sides, shared, strict=True)
    if not all(any(counterparts.computes(run.operations[n]) for n in some) for run, some in both):
        return False
    ours, theirs = (run.values for run in sides)
    last = one.left or 0, one.right or 0
    return all(
        ours[pair.left].given <= last[0] and theirs[pair.right].given <= last[1]
        for pair in other.reads
    )


def selected(chosen: Selection, shape: tuple[int, ...]) -> int:
    """Returns how many elements of a left value of ``shape`` are selected."""
    if chosen.left is None:
        return int(np.prod(shape, dtype=int))
    rest = [n for axis, n in enumerate(shape) if axis not in chosen.axes and not chosen.flat]
    return int(len(chosen.left) * np.prod(rest if not chosen.flat else (), dtype=int))


def judge(left: Run, right: Run, pairs: list[Pair]) -> None:
    """Finds which pairs differ, and counts differences by bits: one pair's values at a time."""
    ours, theirs = left.recording.values, right.recording.values
    for one in pairs:
        if one.selection.whole:
            one.equal = ours[one.left].digest == theirs[one.right].digest
        if one.equal if one.selection.whole else not one.compared:
            continue
        (mine,) = left.parts([(one.left, one.selection)], 0)
        (other,) = right.parts([(one.right, one.selection)], 1)
        if mine is not None and other is not None:
            _measured(one, mine, other, ours[one.left].dtype, ours[one.left].shape)
        elif one.selection.whole:  # digests alone were kept: one element at least
            one.differing, one.max_ulp = 1, None
        else:
            _left_out(one)


def _left_out(one: Pair) -> None:
    """Nothing is known of a pair that a recording on disk has left out."""
    one.known, one.compared, one.equal = False, 0, True


def measure(one: Pair, mine: np.ndarray, other: np.ndarray, dtype: str) -> None:
    """Counts differences of two values; of either the selected elements alone."""
    both = one.selection.taken(mine, 0), one.selection.taken(other, 1)
    _measured(one, *both, dtype, mine.shape)


def _measured(
    one: Pair, ours: np.ndarray, theirs: np.ndarray, dtype: str, shape: tuple[int, ...]
) -> None:
    """The same of the selected elements; ``shape``: of the left value."""
    if "float" not in dtype:
        apart = ours != theirs
        one.differing, one.max_ulp = int(apart.sum()), None
        index = np.flatnonzero(apart)
    else:
        found = ulp.differences(ours, theirs, dtype)
        index = found.index
        one.differing = len(index)
        one.max_ulp = ulp.largest(found.ulps) if len(index) else 0
        one.signed_zero = ulp.signed_zeros(ours, theirs, dtype)  # no differences, but not the bits
        if len(index):
            values = [floats.widen(array, dtype).reshape(-1) for array in (ours, theirs)]
            with np.errstate(invalid="ignore"):
                apart = np.abs(values[0][index] - values[1][index]).max()
            finite = np.abs(values[1][np.isfinite(values[1])])
            largest = max(float(finite.max(initial=0)), 1e-300)
            one.scaled = float(apart / (floats.eps(dtype) * largest))
    one.equal = not one.differing
    if len(index):
        mask = np.zeros(ours.shape, bool)
        mask.reshape(-1)[index[0]] = True
        if one.selection.whole:
            place = np.argwhere(mask)[0]
        else:
            place = np.argwhere(one.selection.put(np.zeros(shape, bool), mask, 0))[0]
        one.first = tuple(map(int, place))
