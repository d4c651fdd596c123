"""Two runs side by side: which operations agree, which differ first, and which only pass it on.

Operations are aligned by name and order, and what is left over by what it computes
(:mod:`probe.recording.matching`); of every pair of values those elements are compared that
must agree (:mod:`probe.semantics.labels`). An operation is the *source* of a difference where
everything that it reads agrees and its outputs don't, *carried* where what it reads differs
already, *healed* where what it reads differs and its outputs agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from operator import eq
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.enclosure import RoundingVerdict
from probe.printing import counted
from probe.recording import matching
from probe.recording.matching import (
    NONE,
    Argued,
    Match,
    Pair,
    Runs,
    all_differing_arguments,
    differing_arguments,
    initial_labels,
)
from probe.recording.recording import (
    LARGE,
    LARGE_BYTES,
    SMALL,
    Operation,
    Run,
    computes,
    operations_between,
    region_text,
)
from probe.semantics import MOVING, Meaning, Passes, Unknown

OTHERWISE = (
    "the right run computes it differently; the results are close and assumed to be the same"
)


NAMES = ("left", "right")

# Of eps, the power up to which results of two formulas are taken for the same numbers: half of
# the digits. What is computed from other elements differs in the first ones.
NEAR = 0.5


@dataclass
class Region:
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
    (:class:`Reason`).
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
    reason: Reason | None = None

    @property
    def ends(self) -> tuple[int | None, int | None]:
        return self.left, self.right

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
        names = ("name", "op", "path", "verdict", "compared", "differing", "max_ulp")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found |= {"cause": self.cause or None, "note": self.note or None, "own": self.own}
        found["arguments"] = self.arguments or None
        return found | {"reason": None if self.reason is None else str(self.reason)}


@dataclass
class Difference:
    """Two runs compared; ``operations`` in the order of the run, those of one side between.

    ``argued``: operations that labels take for the same though their arguments differ. ``causes``:
    of explained sources, by place in ``operations``; ``notes``: what is to be said besides.
    ``same_inputs``: whether both sides have the same inputs, so that all outputs must agree.
    """

    left: Run
    right: Run
    operations: list[Region]
    outputs: list[Pair]
    argued: Argued = field(default_factory=dict)
    causes: dict[int, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    same_inputs: bool = False

    @property
    def first(self) -> Region | None:
        """Returns the first source."""
        return next(iter(self.sources), None)

    @property
    def sources(self) -> list[Region]:
        """Returns all sources, in order."""
        return [one for one in self.operations if one.verdict == "source"]

    @property
    def examined(self) -> int:
        """Returns operations of which something was compared."""
        return sum(one.verdict not in ("left", "right", "unknown") for one in self.operations)

    @property
    def verdict(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs that must agree.

        Outputs that stand at other indices or read different inputs differ, too. Of arrays without
        elements nothing has to agree.
        """
        if any(one.differing or one.moved or one.window for one in self.outputs):
            return "differs"
        some = [one for one in self.outputs if not one.hollow]
        judged = all((one.known or one.selection.whole) and one.compared for one in some)
        return "equal" if judged and self.outputs else "unknown"

    @property
    def rounding(self) -> RoundingVerdict:
        """Returns the differing outputs of all sources by whether rounding can be why."""
        found = RoundingVerdict()
        for number, one in enumerate(self.operations):
            if one.verdict == "source":
                cause = self.causes.get(number)
                known = RoundingVerdict() if cause is None else cause.rounding
                found += known + RoundingVerdict(unknown=max(0, one.differing - known.total))
        return found

    @property
    def computed(self) -> list[Region]:
        """Operations that compute something, and whatever is a source; not those that move."""
        return [
            one
            for one in self.operations
            if one.verdict == "source" or not isinstance(self.sides(one)[0][1].meaning, MOVING)
        ]

    def sides(self, one: Region) -> list[tuple[Run, Operation]]:
        """Returns each run that has a region, with the operation that gives its results there."""
        both = zip((self.left, self.right), one.ends, strict=True)
        return [(run, run.operations[number]) for run, number in both if number is not None]


def is_near(one: Pair, dtype: str) -> bool:
    """Returns whether all compared elements agree in so much of their digits."""
    if one.equal or dtype not in floats.FORMATS:
        return one.equal
    # ``scaled`` is in eps of the largest number: half of the digits are eps to the power of a half
    eps = float(floats.eps(dtype))
    return one.max_ulp is not None and one.scaled * eps <= eps**NEAR


def compare_runs(left: Run, right: Run, close: Mapping[int, int] = NONE) -> Difference:
    """Compares two runs of the same thing.

    ``close``: values of the left whose numbers are close to those of values of the right: where
    labels do not say that these are the same, they are taken for the same.
    """
    runs = left, right
    given = initial_labels(left, right)
    found = _regions_of(Match(runs, given, close))
    aligned = [(one.left, one.right) for one in found.operations if not one.joint]
    argued = all_differing_arguments(left, right, aligned)
    alike = {  # labels say the same of both, as of another momentum
        (one.left, one.right)
        for one in found.operations
        if one.gives and all(pair.selection.whole for pair in one.gives)
    }
    if argued.keys() - alike:
        found = _regions_of(Match(runs, given, close, argued))
    every = [*(pair for one in found.operations for pair in (*one.reads, *one.gives))]
    measure_pairs(left, right, [*{id(one): one for one in (*every, *found.outputs)}.values()])
    apart = [pair for one in found.operations for pair in one.gives if not pair.equal]
    differing = {pair.left for pair in apart}, {pair.right for pair in apart}
    for one in found.operations:
        if one.verdict == "equal":
            one.note = ""
        for run, number, some in zip(runs, one.ends, differing, strict=True):
            # a program that was looked into gives what was computed inside: where that has a
            # match, nothing differs by itself in giving it
            if number is not None and isinstance(run.operations[number].meaning, Passes):
                one.handed |= bool(some & {*run.operations[number].reads})
        if one.left is None or one.right is None or not one.compared:
            continue
        told = argued.get((one.left, one.right))
        if one.joint:  # operations of one kind that are assumed to be the same, as they are close
            single = one.assumed and one.inside == ((one.left,), (one.right,))
            told = differing_arguments(left, right, one.left, one.right) if single else None
        one.arguments = "" if told is None else told.text
    return found


def _regions_of(match: Match) -> Difference:
    """Returns all regions, in the order of the left run, and the outputs; nothing is compared."""
    ours, theirs = match.runs
    found: list[Region] = []
    for both in match.operations:
        one = _region(match, *both)
        # a compiled function of two outputs has one difference, which would be listed twice
        before = next((each for each in found if _overlap(match.runs, each, one)), None)
        if before is None:
            found.append(one)
            continue
        first, second = ({*a, *b} for a, b in zip(before.inside, one.inside, strict=True))
        before.inside = tuple(sorted(first)), tuple(sorted(second))
        before.left, before.right = max(first), max(second)
        before.gives += one.gives
        reads = {id(pair): pair for pair in (*before.reads, *one.reads)}.values()
        before.reads = [  # but for what one of the two gives the other
            pair
            for pair in reads
            if ours.values[pair.left].given not in first
            or theirs.values[pair.right].given not in second
        ]
        _name(match.runs, before)
    outputs = [match.pair(*both) for both in zip(ours.outputs, theirs.outputs, strict=False)]
    return Difference(ours, theirs, found, outputs, match.argued)


def _region(match: Match, mine: int | None, other: int | None) -> Region:
    ours, theirs = match.runs
    one = ours.operations[mine] if mine is not None else theirs.operations[other or 0]
    inside = (() if mine is None else (mine,)), (() if other is None else (other,))
    made = Region(one.name, one.op, one.path, mine, other, inside=inside)
    if mine is None or other is None:
        return made
    two = theirs.operations[other]
    reads = matching.read_alike(one, two, match.shares)
    if argued := match.argued.get((mine, other)):  # its numbers are arguments, not read by both
        numbers = {two.reads[place] for place in argued.scalars}
        reads = [(n, m) for n, m in reads if m not in numbers]
    made.reads = [match.pair(*both) for both in reads]
    made.gives = [match.pair(*both) for both in zip(one.gives, two.gives, strict=False)]
    made.assumed = any(match.taken.get(n) in two.gives for n in one.gives)
    if made.assumed or (mine, other) in match.by_labels:
        alike = len(one.reads) == len(two.reads) and len(one.gives) == len(two.gives)
        whole = all(pair.selection.whole for pair in made.reads)
        made.joint = made.assumed and (one.op != two.op or not whole)
        every = [*made.gives, *made.reads]
        made.joint |= not alike or any(pair.selection.empty for pair in every)
        made.note = f"on the right it is {two.name}" if two.name != one.name else ""
        made.note = OTHERWISE if made.assumed else made.note
    if all(pair.selection.whole for pair in made.gives):
        # two values that are read at one place in both runs and have nothing in common, and of
        # which one was computed, as of ``(a + b) + c`` and ``(a + c) + b`` or ``a + (b + c)``
        made.joint |= any(
            pair.selection.empty
            and any(
                value.floating and value.given >= 0 and value.content is None
                for value in (ours.values[pair.left], theirs.values[pair.right])
            )
            for pair in made.reads
        )
    if not made.joint:
        return made
    # what comes before is taken into the region, up to values that are matched
    runs, values, ends = match.runs, match.values, (one.gives, two.gives)
    given = {(n, values[0].get(n, -1)) for n in ends[0]}
    given |= {(values[1].get(n, -1), n) for n in ends[1]}
    made.gives = [match.pair(a, b) for a, b in sorted(given) if a in ends[0] and b in ends[1]]
    # Where results are assumed to be the same no label says which of them follow from which
    # part of what is read: a value that agrees in part is no boundary then, or what differs in
    # the rest of it would be called a source here.
    ends_it = lambda *both: not made.assumed or match.pair(*both).selection.whole  # noqa: E731
    bounds = (
        {n for n, m in values[0].items() if ends_it(n, m)},
        {m for m, n in values[1].items() if ends_it(n, m)},
    )
    before = [
        operations_between(run, op.reads, some)
        for run, op, some in zip(runs, (one, two), bounds, strict=True)
    ]
    bounded = {(n, values[0][n]) for n in bounds[0].intersection(before[0][1])}
    bounded |= {(values[1][m], m) for m in bounds[1].intersection(before[1][1])}
    made.reads = [match.pair(*both) for both in sorted(bounded)]
    made.inside = (*before[0][0], mine), (*before[1][0], other)
    made.path = made.path if not before[0][0] else ""
    _name(runs, made)
    return made


def _name(runs: Runs, made: Region) -> None:
    """Says which operations a region has, and why both sides are taken for the same."""
    texts = [region_text(*one) for one in zip(runs, made.inside, strict=True)]
    made.op = " against ".join(dict.fromkeys(texts))
    made.note = (
        f"the right run's {texts[1]} is taken for the same, as the results are close"
        if made.assumed
        else f"by its labels, the right run's {texts[1]} computes the same"
    )


def _overlap(runs: Runs, one: Region, other: Region) -> bool:
    """Whether two regions are the same on one side, share what computes on the other, and
    neither reads what comes after the first."""
    if not (one.joint and other.joint and any(map(eq, one.inside, other.inside))):
        return False
    for run, first, second in zip(runs, one.inside, other.inside, strict=True):
        if not any(computes(run.operations[n]) for n in {*first} & {*second}):
            return False
    ours, theirs = (run.values for run in runs)
    last = one.left or 0, one.right or 0
    return all(
        ours[pair.left].given <= last[0] and theirs[pair.right].given <= last[1]
        for pair in other.reads
    )


def measure_pairs(left: Run, right: Run, pairs: list[Pair]) -> None:
    """Finds which pairs differ, and counts differences by bits: one pair's values at a time."""
    ours, theirs = left.values, right.values
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
        else:  # nothing is known of what a recording on disk has left out
            one.known, one.compared, one.equal = False, 0, True


def measure_pair(one: Pair, mine: np.ndarray, other: np.ndarray, dtype: str) -> None:
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
        one.max_ulp = ulp.largest_ulp(found.ulps) if len(index) else 0
        one.signed_zero = ulp.signed_zeros(ours, theirs, dtype)  # no differences, but not the bits
        if len(index):
            values = [floats.widen(array, dtype).reshape(-1) for array in (ours, theirs)]
            with np.errstate(invalid="ignore"):
                apart = np.abs(values[0][index] - values[1][index]).max()
            finite = np.abs(values[1][np.isfinite(values[1])])
            # where all is zero there is nothing to measure by
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


OTHER_NUMBERS = "it gives known numbers, which are different on the two sides"
NO_FORMULA = "what it computes is known on both sides, and no element has the same formula in both"


PARTLY = "a part of it, or of what it reads, is not described in probe"


ONE_SIDE = "no operation of the other run computes the same"


LEFT_OUT = "a recording has left out its values"


@dataclass(frozen=True)
class Reason:
    """Why operations are unknown. ``side``: ``left``, ``right``, or empty for both; ``name`` and
    ``op``: the operation at which it begins, empty where it is no single one; ``why``: a sentence.
    """

    why: str
    name: str = ""
    op: str = ""
    side: str = ""

    def __str__(self) -> str:
        on = f" on the {self.side}" if self.side else ""
        return f"{self.op}{on}: {self.why}" if self.op else self.why


def fill_reasons(found: Difference) -> None:
    """Fills in ``reason`` of all operations of which nothing could be compared."""
    roots = _unknown_roots(found.left), _unknown_roots(found.right)
    for one in found.operations:
        if one.verdict == "unknown" and one.note:  # said where it was found out
            one.reason = Reason(one.note, one.name, one.op)
        elif one.verdict == "unknown":
            ends = [
                (side, n) for pair in one.gives for side, n in enumerate((pair.left, pair.right))
            ]
            why = _why_not_compared(one.gives[0], found) if one.gives else "it gives nothing"
            one.reason = _common_reason(roots, ends) or Reason(why)
        elif one.verdict in NAMES and not one.compared:
            ((_, op),) = found.sides(one)
            ends = [(NAMES.index(one.verdict), n) for n in op.gives]
            if computes(op):
                one.reason = _common_reason(roots, ends) or Reason(ONE_SIDE)


def of_outputs(found: Difference) -> Reason | None:
    """Returns why outputs can't be compared; None where all can."""
    some = [one for one in found.outputs if not one.compared and not one.hollow]
    if not some:
        return None
    roots = _unknown_roots(found.left), _unknown_roots(found.right)
    ends = [(side, n) for one in some for side, n in enumerate((one.left, one.right))]
    return _common_reason(roots, ends) or Reason(_why_not_compared(some[0], found))


def grouped_reasons(found: Difference) -> list[tuple[Reason, list[Region]]]:
    """Returns all reasons, each with the operations of which nothing is known, in their order."""
    some: dict[Reason, list[Region]] = {}
    for one in found.operations:
        if one.verdict == "unknown" and one.reason is not None:
            some.setdefault(one.reason, []).append(one)
    return list(some.items())


def _why_not_compared(pair: Pair, found: Difference) -> str:
    values = found.left.values[pair.left], found.right.values[pair.right]
    if values[0].dtype != values[1].dtype:
        return f"it gives {values[0].dtype} on the left and {values[1].dtype} on the right"
    if not pair.selection.empty:  # it has to agree, and was not compared: its bits are not kept
        return LEFT_OUT
    known = all(value.content is not None for value in values)
    if known and values[0].digest != values[1].digest:  # a size, say
        return OTHER_NUMBERS
    return NO_FORMULA if pair.known else PARTLY


def _common_reason(
    roots: tuple[dict[int, Reason], ...], ends: list[tuple[int, int]]
) -> Reason | None:
    """Returns the reason behind values (side, number): an unknown meaning before a limit, and of
    both sides where it is the same on both."""
    some = [(side, told) for side, n in ends if (told := roots[side].get(n)) is not None]
    some.sort(key=lambda both: both[1].why.startswith(LIMIT))
    if not some:
        return None
    side, first = some[0]
    both = any(at != side and told.why == first.why and told.op == first.op for at, told in some)
    return Reason(first.why, first.name, first.op, "" if both else NAMES[side])


LIMIT = "it has"


def _unknown_roots(run: Run) -> dict[int, Reason]:
    """Returns of each value that is not understood where that begins, by number."""
    found: dict[int, Reason] = {}
    integers: set[int] = set()  # what comes from integers and single numbers alone
    for number, value in enumerate(run.values):
        if value.given < 0 and (not value.floating or value.shape == ()):
            integers.add(number)
            if value.content is None:
                found[number] = _too_many_elements(value.shape, value.name or "an input", "")
    for one in run.operations:
        told = _why_unknown(one.meaning)
        before = [found[n] for n in one.reads if n in found]
        plain = bool(one.reads) and integers.issuperset(one.reads)
        for n in one.gives:
            value = run.values[n]
            if plain and (one.meaning.exact or not value.floating):
                integers.add(n)
            if value.content is not None:
                continue
            if told is not None:
                found[n] = Reason(told, one.name, one.op)
            elif before:
                found[n] = before[0]
            elif n in integers and prod(value.shape) > SMALL:
                found[n] = _too_many_elements(value.shape, one.name, one.op)
    return found


def _too_many_elements(shape: tuple[int, ...], name: str, op: str) -> Reason:
    limits = f"at most {LARGE:,} of a value, and {LARGE_BYTES:,} bytes of all"
    why = f"{LIMIT} {counted(prod(shape), 'element')}; {limits}, are kept"
    return Reason(why, name, op or name)


def _why_unknown(meaning: Meaning) -> str | None:
    """Returns why a meaning, or a step of it, is unknown; None where it isn't."""
    if isinstance(meaning, Unknown):
        return meaning.why or "it is not described in probe"
    told = (_why_unknown(step.meaning) for step in getattr(meaning, "steps", ()))
    return next((one for one in told if one is not None), None)
