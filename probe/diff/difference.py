"""Two runs side by side: which operations agree, which differ first, and which only pass it on.

Operations are matched, and of every pair of values those elements are compared that must agree
(:mod:`probe.diff`). An operation is the *source* of a difference where
everything that it reads agrees and its outputs don't, *carried* where what it reads differs
already, *healed* where what it reads differs and its outputs agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import floats
from probe.diff.pairing import WHOLE, Selection
from probe.diff.related import (
    Otherwise,
    PermutedWeight,
    differing_arguments,
)
from probe.diff.repeated import HALF
from probe.explain.enclosure import RoundingVerdict
from probe.explain.outputs import (
    OutputDifference,
    Samples,
    output_difference,
    paired_difference,
    verdict_of,
    with_window,
)
from probe.order.semantics import Moves, Passes
from probe.record.contract import THROUGH_A_VIEW
from probe.record.recording import NAMED, Operation, Run, computes, operations_between, region_text

if TYPE_CHECKING:
    from probe.diff.match import RunningMatch

Runs = tuple[Run, Run]

NAMES = ("left", "right")


# What is said of a source without a cause.
NOT_YET, NOT_SOUGHT = "not explained yet", "no cause was looked for"


@dataclass
class Pair:
    """A value of either run, by number, and what must agree of them.

    ``compared``: elements; ``equal``: whether all have the same bits. ``known``: False where it
    isn't known of the rest whether it must agree. ``hollow``: neither has any element. ``laid``:
    how the two values line up by index, where only some of these elements must agree.
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
    laid: Selection | None = None

    @classmethod
    def of_all(cls, left: int, right: int, size: int) -> Pair:
        """Returns a pair of all elements, ``size``, of two values of one shape, by index."""
        return cls(left, right, WHOLE, True, size, hollow=not size)

    def is_near(self, dtype: str) -> bool:
        """Whether all compared elements agree in half of their digits, as results of two formulas
        do: what is computed from other elements differs in the first ones."""
        if self.equal or dtype not in floats.FORMATS:
            return self.equal
        # ``scaled`` is in eps of the largest number
        eps = float(floats.eps(dtype))
        return self.max_ulp is not None and self.scaled * eps <= eps**HALF


@dataclass
class Region:
    """A region: the operations of both runs, or of one, between values that are matched.

    ``left``, ``right``: the operations that give its results; ``inside``: all of either side, in
    order, one each as a rule. ``joint``: where these don't read the same values one by one, they
    are run and explained as a whole, and ``reads`` are those values before them that are matched.
    ``by_value``: its results are matched as they are close, whatever the formulas.
    ``own``: of a carried one, outputs that differ where its inputs are made to agree; None: that
    was not asked. ``arguments``: how the two are asked for different things, in words: ``eps 1e-05
    against 1e-06``; empty where they aren't; ``argued``: what of that is said of single operations
    that stand for each other. ``doubt``: whether something speaks against its
    verdict, as ``note`` says, which is ``unknown`` then. ``handed``: what it gives was computed by
    operations that are compared themselves. ``reason``: why nothing is known of it.
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
    by_value: bool = False
    arguments: str = ""
    argued: Otherwise | None = None
    doubt: bool = False
    handed: bool = False
    reason: str = ""

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
        hollow &= bool(self.gives) or not self.joint
        if self.doubt or not (self.compared or hollow):
            return "unknown"
        before = not self.compared or all(pair.equal for pair in self.reads)
        if all(pair.equal for pair in self.gives):
            return "equal" if before else "healed"
        return "source" if before and not self.handed else "carried"

    def sides(self, left: Run, right: Run) -> list[tuple[Run, Operation]]:
        """Returns each run that has it, with the operation that gives its results there."""
        both = zip((left, right), self.ends, strict=True)
        return [(run, run.operations[number]) for run, number in both if number is not None]

    def doubted(self, why: str) -> None:
        self.doubt, self.note = True, why

    @property
    def differing(self) -> int:
        """Returns elements of its outputs that must agree and don't."""
        return sum(pair.differing for pair in self.gives)

    @property
    def why(self) -> str:
        """Returns its cause in words, with the arguments that differ; empty if there is none."""
        return f"{self.cause}: {self.arguments}" if "argument" in self.cause else self.cause

    @property
    def compared(self) -> int:
        """Returns elements of its outputs that must agree."""
        return sum(pair.compared for pair in self.gives)

    @property
    def max_ulp(self) -> int | None:
        """Returns the largest distance; None where it has no number (a NaN, or integers)."""
        distances = [pair.max_ulp for pair in self.gives if pair.max_ulp is not None]
        return max(distances, default=0) if len(distances) == len(self.gives) else None

    def to_json(self) -> dict[str, Any]:
        names = ("name", "op", "path", "verdict", "compared", "differing", "max_ulp")
        entry = {name: getattr(self, name) for name in (*names, "own")}
        words = ("cause", "note", "arguments", "reason")
        return entry | {name: getattr(self, name) or None for name in words}


@dataclass
class Difference:
    """Two runs compared; ``operations`` in the order of the run, those of one side between.

    ``causes``: of explained sources, by place in ``operations``; ``notes``: what is to be said
    besides.
    ``same_inputs``: whether both sides have the same inputs, so that all outputs must agree.
    ``plain``: the outputs by index, of runs unwatched; ``not_whole``: why these are not all that
    was asked, as the user runs it, empty where they are. ``samples``: of how many samples of a
    batch each was compared, and how many there are; None where one run of either side is compared.
    ``padded``: the outputs of samples cut to what a mask shows, against the same with padding.
    ``weights``: those that the two sides have in another order; ``other_weights``: the first that
    one side alone has, in words; ``other_numbers``: where constants first differ, such
    as an index or a mask. ``matched``: how it was found what must agree. ``enters``: the operation
    from which on results are further apart than rounding, though the first source's aren't.
    """

    left: Run
    right: Run
    operations: list[Region]
    outputs: list[Pair]
    causes: dict[int, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    same_inputs: bool = False
    plain: list[OutputDifference] = field(default_factory=list)
    padded: list[OutputDifference] = field(default_factory=list)
    not_whole: str = ""
    samples: tuple[int, int] | None = None
    weights: list[PermutedWeight] = field(default_factory=list)
    other_weights: str = ""
    other_numbers: str = ""
    matched: str = "by name and index"
    enters: str = ""

    @property
    def first(self) -> Region | None:
        return next(iter(self.sources), None)

    @property
    def sources(self) -> list[Region]:
        return [region for region in self.operations if region.verdict == "source"]

    @property
    def examined(self) -> int:
        """Returns operations of which something was compared, by themselves or with others."""
        regions = [r for r in self.operations if r.verdict not in ("left", "right", "unknown")]
        inside = [{n for region in regions for n in region.inside[side]} for side in (0, 1)]
        alone = (r for r in self.operations if r.verdict in ("left", "right", "unknown"))
        within = sum(
            all(n is None or n in some for n, some in zip(r.ends, inside, strict=True))
            for r in alone
        )
        return len(regions) + within

    @property
    def verdict(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs by index, as a user runs them."""
        verdict = verdict_of([*self.plain, *self.padded])
        return "unknown" if verdict == "equal" and self.not_whole else verdict

    def take_samples(self, samples: Samples) -> None:
        """Has the outputs of all samples of a batch be the plain ones."""
        dtypes = [
            (self.left.values[pair.left].dtype, self.right.values[pair.right].dtype)
            for pair in self.outputs
        ]
        self.plain = samples.differences(dtypes)
        self.samples = samples.compared, samples.count
        if samples.compared < samples.count:
            self.not_whole = f"{samples.compared:,} of {samples.count:,} samples were compared"

    @property
    def only_whole(self) -> bool:
        """Whether the outputs differ where all operations, recorded one by one, agree."""
        whole = all(pair.selection.whole and pair.equal for pair in self.outputs)
        return self.verdict == "differs" and whole and self.samples is None and not self.sources

    @property
    def agreement(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs that must agree.

        Of arrays without elements nothing has to agree.
        """
        if any(pair.differing for pair in self.outputs):
            return "differs"
        some = [pair for pair in self.outputs if not pair.hollow]
        judged = all((pair.known or pair.selection.whole) and pair.compared for pair in some)
        return "equal" if judged and self.outputs else "unknown"

    @property
    def rounding(self) -> RoundingVerdict:
        """Returns the differing outputs of all sources by whether rounding can be why."""
        total = RoundingVerdict()
        for number, region in enumerate(self.operations):
            if region.verdict == "source":
                cause = self.causes.get(number)
                known = RoundingVerdict() if cause is None else cause.rounding
                total += known + RoundingVerdict(unknown=max(0, region.differing - known.total))
        return total

    @property
    def computed(self) -> list[Region]:
        """Operations that compute something, and whatever is a source; not those that move."""
        both = ((region, self.sides(region)[0][1].meaning) for region in self.operations)
        return [r for r, meaning in both if r.verdict == "source" or not isinstance(meaning, Moves)]

    @property
    def orphans(self) -> list[Region]:
        """Returns carried regions of which nothing that they read comes from a source before them:
        one was missed then, and it is unknown whether they only pass a difference on."""
        apart: tuple[set[int], set[int]] = set(), set()
        for side, (run, some) in enumerate(zip((self.left, self.right), apart, strict=True)):
            for region in self.operations:
                number = region.ends[side]
                if number is not None and (region.verdict == "source" or region.own):
                    some.update(run.operations[number].gives)
            for op in run.operations:
                some.update(op.gives if some.intersection(op.reads) else ())
        carried = (region for region in self.operations if region.verdict == "carried")
        follows = lambda pair: pair.left in apart[0] or pair.right in apart[1]  # noqa: E731
        return [region for region in carried if not any(map(follows, region.reads))]

    def unasked(self, behind: bool = True) -> Region | None:
        """The first operation that reads what differs, and of which it is not known whether it
        differs by itself: one side alone has it, it could not be run alone, or what it reads left
        the library and came back. None: all are known. ``behind``: also those that both sides have
        alike; False: these were not run alone."""
        runs, apart = (self.left, self.right), (set[int](), set[int]())
        both = [r for r in self.operations if r.verdict not in NOT_JUDGED]
        inside = [{n for region in both for n in region.inside[side]} for side in (0, 1)]
        for region in self.operations:
            ends = [(side, n) for side, n in enumerate(region.ends) if n is not None]
            reads = any(
                apart[side].intersection(runs[side].operations[n].reads) for side, n in ends
            )
            if region.verdict in NOT_JUDGED:
                within = all(n in inside[side] for side, n in ends)
                if not reads:
                    continue
                if not within and not all(_repeats(runs[side], n) for side, n in ends):
                    return region
            elif not region.differing:
                continue
            else:
                looked_at = behind or region.joint or region.arguments
                outside = any(self._from_outside(pair) for pair in region.reads)
                if outside or (looked_at and not self._asked(region)):
                    return region
            for side, n in ends:
                apart[side].update(runs[side].operations[n].gives)
        return None

    def more_than_sources(self, behind: bool = True) -> bool:
        """Whether something else than the sources, and sums behind them, may be why outputs differ:
        what wasn't asked, or is asked for something else on the two sides. ``behind``: as of
        ``unasked``."""
        argued = any(region.own and region.arguments for region in self.operations)
        return argued or self.unasked(behind) is not None or not self._outputs_met

    @property
    def _outputs_met(self) -> bool:
        """Whether each output that differs is given by operations that were compared."""
        compared = [region for region in self.operations if region.verdict not in NOT_JUDGED]
        met = {(pair.left, pair.right) for region in compared for pair in region.gives}
        apart = (pair for pair in self.outputs if not pair.equal)
        return all((pair.left, pair.right) in met for pair in apart)

    def _asked(self, region: Region) -> bool:
        """Whether it is known of a region that something differs in whether it differs by itself:
        what moves elements, asked for the same on both sides, does not."""
        if region.verdict != "carried" or region.own is not None:
            return True
        turned = any(pair.selection.turned for pair in region.gives)
        runs = zip((self.left, self.right), region.inside, strict=True)
        inside = [run.operations[n] for run, numbers in runs for n in numbers]
        moves = all(isinstance(op.meaning, Moves) for op in inside)
        alike = not region.arguments or all(op.op == THROUGH_A_VIEW for op in inside)
        return moves and alike and not turned

    def _from_outside(self, pair: Pair) -> bool:
        """Whether values differ of which no operation gives one: it was made outside the library,
        by NumPy say."""
        given = self.left.values[pair.left].given, self.right.values[pair.right].given
        return not pair.equal and min(given) < 0

    def sides(self, region: Region) -> list[tuple[Run, Operation]]:
        return region.sides(self.left, self.right)


# Of what one run alone has, and of what nothing is known.
NOT_JUDGED = ("left", "right", "unknown")


def _repeats(run: Run, number: int) -> bool:
    """Whether an operation gives what it reads as it is, or in another shape."""
    op = run.operations[number]
    read = {run.values[n].digest for n in op.reads}
    return all(run.values[n].digest in read for n in op.gives)


def plain_outputs(difference: Difference) -> list[OutputDifference]:
    """The outputs of both runs, each as its user runs it, by index.

    Outputs of different shapes are laid beside each other where those that must agree stand at the
    same indices, or all as much further on; else these alone are compared.
    """
    runs = difference.left, difference.right
    sides = [run.plain_results if run.plain else run.results for run in runs]
    plain = []
    for number, pair in enumerate(difference.outputs):
        values = runs[0].values[pair.left], runs[1].values[pair.right]
        dtypes, shapes = (values[0].dtype, values[1].dtype), (values[0].shape, values[1].shape)
        left, right = (side[number] if number < len(side) else None for side in sides)
        if left is None or right is None:
            # digests alone are kept: they say whether anything differs, not how much
            known = [
                run.plain[number] if number < len(run.plain) else value.digest
                for run, value in zip(runs, values, strict=True)
            ]
            size, apart = prod(shapes[0]), np.array([known[0] != known[1]])
            whole = OutputDifference(*shapes, size, apart, why=LEFT_OUT)
            if shapes[0] != shapes[1]:
                whole = replace(whole, elements=0, apart=apart[:0], not_compared=size)
            plain.append(replace(whole, max_ulp=None, max_abs=None) if whole.differing else whole)
            continue
        selection = pair.laid or pair.selection
        start = _start_of(selection, *shapes)
        # what changes with other content in what the other side lacks
        small = int(left.size > right.size)
        reads_more = ~pair.selection.mask(shapes[small], small)
        if start is not None:
            output = output_difference(left, right, dtypes, start)
        elif selection.empty or dtypes[0] != dtypes[1]:
            why = NOT_TOLD
            size = min(left.size, right.size)
            output = OutputDifference(*shapes, 0, np.zeros(0, bool), not_compared=size, why=why)
        else:
            chosen = selection.taken(left, 0), selection.taken(right, 1)
            output = paired_difference(*chosen, dtypes[0], (left.size, right.size))
            output = replace(output, shape=left.shape, other_shape=right.shape)
            reads_more = selection.taken(reads_more, small).reshape(-1)
        if pair.known and output.apart.shape == reads_more.shape:
            output = with_window(output, reads_more)
        plain.append(output)
    return plain


def _start_of(
    selection: Selection, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Returns where in the right output the left one begins, along each axis; None where its
    elements stand in another way."""
    if left == right or len(left) != len(right):
        return () if left == right else None
    if selection.empty or selection.turned is not None:
        return None
    start = [0] * len(left)
    for axis in selection.cut:
        at, to = (
            np.arange(shape[axis])[lines[axis]] if axis < len(lines) else np.arange(shape[axis])
            for shape, lines in zip((left, right), selection.lines, strict=True)
        )
        if (to - at != to[0] - at[0]).any() or to[0] < at[0]:
            return None
        start[axis] = int(to[0] - at[0])
    return tuple(start)


def compare_runs(match: RunningMatch) -> Difference:
    """Compares two runs; ``match``: says what of them must agree."""
    left, right = runs = match.runs
    # a compiled function of several outputs is a region for each, as each has a cause of its own
    regions = [_region(match, *both) for both in match.operations]
    outputs = [match.pair(*both) for both in zip(left.outputs, right.outputs, strict=False)]
    difference = Difference(left, right, regions, outputs)
    pairs = [pair for region in difference.operations for pair in (*region.reads, *region.gives)]
    measure_pairs(left, right, {id(pair): pair for pair in (*pairs, *difference.outputs)}.values())
    apart = [pair for region in difference.operations for pair in region.gives if not pair.equal]
    differing = {pair.left for pair in apart}, {pair.right for pair in apart}
    for region in difference.operations:
        if region.verdict == "equal":
            region.note = ""
        for run, number, some in zip(runs, region.ends, differing, strict=True):
            # a program that was looked into gives what was computed inside: where that has a
            # match, nothing differs by itself in giving it
            if number is not None and isinstance(run.operations[number].meaning, Passes):
                region.handed |= bool(some & {*run.operations[number].reads})
        if region.left is None or region.right is None or not region.compared:
            continue
        ends, otherwise = (region.left, region.right), None
        if not region.joint:
            otherwise = region.argued
            if otherwise is None and region.verdict == "source":  # of the same operands
                otherwise = differing_arguments(left, right, *ends)
            # steps of a longer series cross as well, and then no output that must agree differs
            crossed = region.verdict == "carried" and any(pair.differing for pair in outputs)
            if otherwise is None and crossed:
                otherwise = _other_operands(match, region)
        elif all(pair.equal for pair in region.reads):
            inside = zip(runs, region.inside, strict=True)
            names = [[run.operations[n].op for n in numbers] for run, numbers in inside]
            for mine, other in zip(*region.inside, strict=True) if names[0] == names[1] else ():
                otherwise = differing_arguments(left, right, mine, other)
                if otherwise is not None:
                    _name_by(region, left.operations[mine])
                    break
        region.arguments = "" if otherwise is None else otherwise.text
        besides = [region.arguments] * bool(region.arguments) + reads_besides(region, runs)
        region.arguments = ", ".join(besides)
    match.settle(difference)
    return difference


def _other_operands(match: RunningMatch, region: Region) -> Otherwise | None:
    """Returns the operands that the two sides read in exchanged places, in words, as of swapped
    gates; None: none are. Only operands that are not exchanged stay in ``region.reads``."""
    texts, agreeing = [], list[Pair]()
    for place, pair in enumerate(region.reads):
        right, left = match.values[0].get(pair.left), match.values[1].get(pair.right)
        paired = (left, right) == (pair.left, pair.right)
        if pair.equal or left is None or right is None or paired:
            agreeing.append(pair)
            continue
        crossed = match.shares(pair.left, right) and match.shares(left, pair.right)
        if not crossed or match.shares(pair.left, pair.right):
            return None
        both = zip(match.runs, (pair.left, pair.right), strict=True)
        texts.append(f"operand {place + 1} {' against '.join(given_by(run, n) for run, n in both)}")
    if not texts or not all(pair.equal for pair in agreeing):
        return None
    region.reads = agreeing
    return Otherwise(", ".join(texts), frozenset())


def given_by(run: Run, number: int) -> str:
    """What gives a value, in words."""
    value = run.values[number]
    if value.given < 0:
        return value.name or f"an array of shape {list(value.shape)}"
    op = run.operations[value.given]
    return op.name if len(op.gives) == 1 else f"{op.name}[{op.gives.index(number)}]"


def _name_by(region: Region, op: Operation) -> None:
    """Names a region after the operation inside it whose arguments differ, such as a
    maximum over another axis: what reads it only passes the difference on."""
    if region.verdict == "source":
        region.name, region.op, region.path = op.name, op.op, op.path
        region.note = ""


def reads_besides(region: Region, runs: Runs) -> list[str]:
    """Returns what one side's operation reads besides, in words, where all that the other one reads
    was compared: as attention reads a mask where samples are padded, and none where all are full.
    """
    sides = region.sides(*runs)
    counts = [len(op.reads) for _, op in sides]
    if region.joint or len(sides) < 2 or counts[0] == counts[1]:
        return []
    longer = int(counts[1] > counts[0])
    compared = [{(p.left, p.right)[k] for p in region.reads if p.compared} for k in (0, 1)]
    if not compared[1 - longer].issuperset(sides[1 - longer][1].reads):
        return []
    texts = []
    run, op = sides[longer]
    if isinstance(op.meaning, Passes):  # which reads what was computed inside
        return [INSIDE.format(NAMES[longer], NAMES[1 - longer])]
    for place, number in enumerate(op.reads):
        if number not in compared[longer]:
            value = run.values[number]
            what = f"{value.dtype} {'x'.join(map(str, value.shape)) or 'number'}"
            texts.append(f"operand {place + 1}, {what}, is read on the {NAMES[longer]} alone")
    return texts


INSIDE = (
    "compiled as one program, which on the {0} gives what its operations give one by one, and on "
    "the {1} doesn't: there the compiler computes some of them in another way"
)


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


def _region(match: RunningMatch, mine: int | None, other: int | None) -> Region:
    ours, theirs = match.runs
    left_op = ours.operations[mine] if mine is not None else theirs.operations[other or 0]
    inside = (() if mine is None else (mine,)), (() if other is None else (other,))
    region = Region(left_op.name, left_op.op, left_op.path, mine, other, inside=inside)
    if mine is None or other is None:
        return region
    right_op = theirs.operations[other]
    reads = read_alike(left_op, right_op, match.shares)
    if len(left_op.reads) != len(right_op.reads):
        reads = match.ends(mine, other, "reads") or reads
    region.reads = [match.pair(*both) for both in reads]
    region.gives = [match.pair(*both) for both in match.ends(mine, other, "gives")]
    region.by_value = any(match.taken.get(n) in right_op.gives for n in left_op.gives)
    if region.by_value or (mine, other) in match.by_ends:
        counts = [(len(op.reads), len(op.gives)) for op in (left_op, right_op)]
        whole = all(pair.selection.whole for pair in region.reads)
        region.joint = region.by_value and (left_op.op != right_op.op or not whole)
        every = [*region.gives, *region.reads]
        region.joint |= counts[0] != counts[1] or any(pair.selection.empty for pair in every)
        region.joint |= (mine, other) in match.joined
        region.note = f"on the right it is {right_op.name}" if right_op.name != left_op.name else ""
    if all(pair.selection.whole for pair in region.gives):
        # two values that are read at one place in both runs and have nothing in common, and of
        # which one was computed, as of ``(a + b) + c`` and ``(a + c) + b`` or ``a + (b + c)``
        region.joint |= any(
            pair.selection.empty
            and any(
                run.values[n].floating and run.values[n].given >= 0 and n not in run.integral
                for run, n in ((ours, pair.left), (theirs, pair.right))
            )
            for pair in region.reads
        )
    if not region.joint:
        region.argued = match.arguments(mine, other)
        if region.argued is not None:  # its numbers are arguments, not read by both
            numbers = {right_op.reads[place] for place in region.argued.scalars}
            region.reads = [pair for pair in region.reads if pair.right not in numbers]
        return region
    # what comes before is taken into the region, up to values that are matched
    runs, values, ends = match.runs, match.values, (left_op.gives, right_op.gives)
    matched = {(n, values[0].get(n, -1)) for n in ends[0]}
    matched |= {(values[1].get(n, -1), n) for n in ends[1]}
    region.gives = [match.pair(a, b) for a, b in sorted(matched) if a in ends[0] and b in ends[1]]
    before = [
        operations_between(run, op.reads, bounds)
        for run, op, bounds in zip(runs, (left_op, right_op), values, strict=True)
    ]
    bounded = {(n, values[0][n]) for n in before[0][1] if n in values[0]}
    bounded |= {(values[1][m], m) for m in before[1][1] if m in values[1]}
    region.reads = [match.pair(*both) for both in sorted(bounded)]
    region.inside = (*before[0][0], mine), (*before[1][0], other)
    region.path = region.path if not before[0][0] else ""
    _name(runs, region)
    return region


def _name(runs: Runs, region: Region) -> None:
    """Says which operations a region has, and why both sides are taken for the same."""
    texts = [region_text(*side) for side in zip(runs, region.inside, strict=True)]
    names = [
        [run.operations[n].op for n in inside]
        for run, inside in zip(runs, region.inside, strict=True)
    ]
    if texts[0] == texts[1] and names[0] != names[1]:  # what moves elements is what differs
        ends = [[n for n in some[:-1] if n not in other] for some, other in (names, names[::-1])]
        if all(ends):
            texts = [" + ".join([*moved[-NAMED:], texts[0]]) for moved in ends]
    region.op = " against ".join(dict.fromkeys(texts))
    how = "as the results are close" if region.by_value else "by what both read and give"
    region.note = f"the right run's {texts[1]} is taken for the same, {how}"


def measure_pairs(left: Run, right: Run, pairs: Iterable[Pair]) -> None:
    """Finds which pairs differ, and counts differences by bits: one pair's values at a time."""
    ours, theirs = left.values, right.values
    for pair in pairs:
        if pair.selection.whole:
            pair.equal = ours[pair.left].digest == theirs[pair.right].digest
        if pair.equal if pair.selection.whole else not pair.compared:
            continue
        mine, other = left.array(pair.left), right.array(pair.right)
        if mine is not None and other is not None:
            measure_pair(pair, mine, other, ours[pair.left].dtype)
        elif pair.selection.whole:  # digests alone were kept: one element at least
            pair.differing, pair.max_ulp = 1, None
        else:  # nothing is known of what a recording on disk has left out
            pair.known, pair.compared, pair.equal = False, 0, True


def measure_pair(pair: Pair, mine: np.ndarray, other: np.ndarray, dtype: str) -> None:
    """Counts differences of two values; of either the selected elements alone."""
    both = [
        np.ascontiguousarray(pair.selection.taken(array, side))
        for side, array in enumerate((mine, other))
    ]
    if both[0].dtype.kind != "O" and both[0].tobytes() == both[1].tobytes():
        pair.equal = True
        return
    output = output_difference(both[0].reshape(-1), both[1].reshape(-1), (dtype, dtype))
    pair.differing, pair.signed_zero = output.differing, output.signed_zero
    pair.max_ulp = output.max_ulp if dtype in floats.FORMATS else None
    pair.equal = not pair.differing
    if pair.equal:
        return
    if dtype in floats.FORMATS:
        values = [floats.widen(array, dtype).reshape(-1) for array in both]
        with np.errstate(invalid="ignore"):
            apart = np.abs(values[0] - values[1])[output.apart].max()
        finite = np.abs(values[1][np.isfinite(values[1])])
        # where all is zero there is nothing to measure by
        largest = max(float(finite.max(initial=0)), 1e-300)
        pair.scaled = float(apart / (floats.eps(dtype) * largest))
    mask: np.ndarray = np.zeros(both[0].shape, bool)
    mask.reshape(-1)[np.argmax(output.apart)] = True
    if not pair.selection.whole:
        mask = pair.selection.put(np.zeros(mine.shape, bool), mask, 0)
    pair.first = tuple(map(int, np.argwhere(mask)[0]))


ONE_SIDE = "no operation of the other run computes the same"
APART = "it is not known which elements of what it reads belong together on the two sides"
LEFT_OUT = "a recording has left out its values"
NOTHING_GIVEN = "it gives nothing"
NOT_TOLD = "it is not known which of its elements belong together"


def fill_reasons(difference: Difference) -> None:
    """Fills in ``reason`` of all operations of which nothing could be compared."""
    left, right = ({one.op for one in difference.operations if one.verdict == end} for end in NAMES)
    for region in difference.operations:
        if region.verdict == "unknown":
            region.reason = region.note or why_not_compared(region.gives, difference)
        elif region.verdict in NAMES and computes(difference.sides(region)[0][1]):
            # both sides run one of this name, and nothing that it reads has a partner
            region.reason = APART if region.op in left & right else ONE_SIDE


def of_outputs(difference: Difference) -> str:
    """Returns why outputs can't be compared; empty where all can."""
    some = [pair for pair in difference.outputs if not pair.compared and not pair.hollow]
    return why_not_compared(some, difference) if some else ""


def grouped_reasons(difference: Difference) -> dict[str, list[Region]]:
    """Returns all reasons, each with the operations of which nothing is known, in their order."""
    unknown = dict[str, list[Region]]()
    for region in difference.operations:
        if region.verdict == "unknown" and region.reason:
            unknown.setdefault(region.reason, []).append(region)
    return unknown


def why_not_compared(pairs: Sequence[Pair], difference: Difference) -> str:
    """Why values are not compared, as the first of them says."""
    if not pairs:
        return NOTHING_GIVEN
    pair = pairs[0]
    left, right = difference.left.values[pair.left], difference.right.values[pair.right]
    if left.dtype != right.dtype:
        return f"it gives {left.dtype} on the left and {right.dtype} on the right"
    if not pair.selection.empty:  # it has to agree, and was not compared: its bits are not kept
        return LEFT_OUT
    shapes = f"shape {list(left.shape)} on the left and {list(right.shape)} on the right"
    return f"it gives {shapes}; {NOT_TOLD}" if left.shape != right.shape else NOT_TOLD
