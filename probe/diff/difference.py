"""Two runs side by side: which operations agree, which differ first, and which only pass it on.

Operations are matched, and of every pair of values those elements are compared that must agree
(:mod:`probe.diff`). An operation is the *source* of a difference where
everything that it reads agrees and its outputs don't, *carried* where what it reads differs
already, *healed* where what it reads differs and its outputs agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import floats
from probe.diff.pairing import ALL_BY_INDEX, Selection, Unselected
from probe.diff.related import (
    ArgumentDifference,
    PermutedWeight,
    call_difference,
    differing_arguments,
)
from probe.diff.repeated import HALF_OF_DIGITS
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
from probe.record.store import array_digest

if TYPE_CHECKING:
    from probe.diff.match import RunningMatch

Runs = tuple[Run, Run]

NAMES = ("left", "right")


# What is said of a source without a cause.
NOT_YET, NOT_SOUGHT = "not explained yet", "no cause was looked for"


@dataclass
class ValuePair:
    """A value of the left run and one of the right that stand for each other.

    Of a batch of 1 against 8 the left value has the shape (1, 64), the right one (8, 64), and the
    selection says that left row 0 must agree with right row 0: 64 elements are compared.
    """

    left: int
    """Its number among the left run's values."""
    right: int
    """Its partner's among the right run's values."""
    selection: Selection
    """The elements that must agree: row 0 of both, say."""
    unselected: Unselected
    """The other elements: rows 1 to 7 of the right value are ``FREE``."""
    compared: int = 0
    """How many elements are selected: 64."""
    equal: bool = True
    """Whether all selected elements have the same bits."""
    differing: int = 0
    """How many selected elements have different bits."""
    max_ulp: int | None = 0
    """The largest distance of two selected elements; None of integers, or beside a NaN."""
    distance_in_eps: float = 0.0
    """The same in eps of the largest number: 2.0 where 1 stands against 1.0000002 in float32."""
    alignment: Selection | None = None
    """Which elements stand at the same positions where none has to agree: the first four columns
    of a prefix and of the whole behind a layer that averages over the length."""

    @classmethod
    def of_all(cls, left: int, right: int, size: int) -> ValuePair:
        """Two values of one shape of which all elements, ``size``, must agree by index."""
        unselected = Unselected.FREE if size else Unselected.ABSENT
        return cls(left, right, ALL_BY_INDEX, unselected, size)

    @property
    def decided(self) -> bool:
        """Whether it is known of all elements if they must agree."""
        return self.selection.all_by_index or self.unselected is not Unselected.UNKNOWN

    @property
    def absent(self) -> bool:
        """Whether there is nothing to compare: empty arrays."""
        return self.unselected is Unselected.ABSENT

    def is_near(self, dtype: str) -> bool:
        """All compared elements agree in half of their digits, as results of two formulas do: what
        is computed from other elements differs in the first digits."""
        if self.equal or dtype not in floats.FORMATS:
            return self.equal
        eps = float(floats.eps(dtype))
        return self.max_ulp is not None and self.distance_in_eps * eps <= eps**HALF_OF_DIGITS


@dataclass
class Region:
    """Operations of both runs that stand for each other, between values that are matched.

    As a rule one of each run: ``aten.addmm`` at ``encoder.0``. Several where the programs differ:
    the left run's ``FusedDense`` against the right one's ``Dense``, ``Add`` and ``Relu``. An
    operation that one run alone has is a region too.
    """

    name: str
    """Unique in its run: ``encoder.0#2``."""
    op: str
    """The library's word: ``aten.addmm``, or ``FusedDense against Dense + Add + Relu``."""
    path: str
    """The module that calls it: ``encoder.0``; empty if that isn't known."""
    left: int | None
    """The number of the left operation that gives its results; None: the right run alone has it."""
    right: int | None
    """The number of the right operation; None: the left run alone has it."""
    reads: list[ValuePair] = field(default_factory=list)
    """What goes in: of each operand both values."""
    gives: list[ValuePair] = field(default_factory=list)
    """What comes out: of each result both values."""
    cause: str = ""
    """``order``, ``rounding``, ``argument``, ... as ``probe.explain.causes`` has them."""
    note: str = ""
    """A remark of matching, or why its verdict is in doubt."""
    differing_alone: int | None = None
    """Of a carried one: how many outputs differ when it is run alone on equal inputs: 3 of 256, so
    it also is a source; None: it was not run alone."""
    members: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """The numbers of all its operations in each run, in order: ``(4,), (7, 8, 9)``."""
    grouped: bool = False
    """Whether its members are compared and explained together, because their operands don't stand
    for each other one by one: ``FusedDense`` reads a bias that ``Dense`` doesn't."""
    by_value: bool = False
    """Whether its results were matched because they are close, whatever the operations are called:
    Keras against PyTorch."""
    arguments: str = ""
    """The arguments that differ, in words: ``eps 1e-05 against 1e-06``."""
    call_difference: ArgumentDifference | None = None
    """The same of single operations that are called at one place of both programs."""
    in_doubt: bool = False
    """Whether its verdict is taken back to ``unknown``, for the reason in ``note``: an operand
    that could not be compared."""
    encloses_difference: bool = False
    """Whether it is a compiled program that was looked into and hands out a value that differs
    inside already: a jitted function around a product."""
    reason: str = ""
    """Why nothing is known of it: "a recording has left out its values"."""

    @property
    def ends(self) -> tuple[int | None, int | None]:
        return self.left, self.right

    @property
    def verdict(self) -> str:
        """``left`` or ``right``: one run alone has it. ``unknown``: nothing is compared, or it is
        in doubt. Else by what it reads and gives: ``source`` or ``carried`` where its results
        differ, ``equal`` or ``healed`` where they agree, though its inputs do or don't.
        """
        if self.left is None or self.right is None:
            return "left" if self.right is None else "right"
        nothing_to_compare = (bool(self.gives) or not self.grouped) and all(
            pair.selection.all_by_index or pair.absent for pair in self.gives
        )
        if self.in_doubt or not (self.compared or nothing_to_compare):
            return "unknown"
        inputs_agree = not self.compared or all(pair.equal for pair in self.reads)
        if all(pair.equal for pair in self.gives):
            return "equal" if inputs_agree else "healed"
        return "source" if inputs_agree and not self.encloses_difference else "carried"

    def last_operations(self, left: Run, right: Run) -> list[tuple[Run, Operation]]:
        """Each run that has it, with the operation that gives its results there."""
        both = zip((left, right), self.ends, strict=True)
        return [(run, run.operations[number]) for run, number in both if number is not None]

    def member_names(self, left: Run, right: Run) -> tuple[list[str], list[str]]:
        """The library's words for its members in each run: ``["FusedDense"], ["Dense", "Add"]``."""
        first, second = (
            [run.operations[n].op for n in numbers]
            for run, numbers in zip((left, right), self.members, strict=True)
        )
        return first, second

    def put_in_doubt(self, why: str) -> None:
        self.in_doubt, self.note = True, why

    @property
    def differing(self) -> int:
        """How many elements of its results must agree and don't."""
        return sum(pair.differing for pair in self.gives)

    @property
    def compared(self) -> int:
        """How many elements of its results must agree."""
        return sum(pair.compared for pair in self.gives)

    @property
    def cause_text(self) -> str:
        """Its cause with the arguments that differ: ``argument: eps 1e-05 against 1e-06``."""
        return f"{self.cause}: {self.arguments}" if "argument" in self.cause else self.cause

    @property
    def max_ulp(self) -> int | None:
        """The largest distance; None where it has no number (a NaN, or integers)."""
        distances = [pair.max_ulp for pair in self.gives if pair.max_ulp is not None]
        return max(distances, default=0) if len(distances) == len(self.gives) else None

    def to_json(self) -> dict[str, Any]:
        names = ("name", "op", "path", "verdict", "compared", "differing", "max_ulp")
        entry = {name: getattr(self, name) for name in names} | {"own": self.differing_alone}
        words = ("cause", "note", "arguments", "reason")
        return entry | {name: getattr(self, name) or None for name in words}


@dataclass
class Difference:
    """Two runs compared."""

    left: Run
    right: Run
    operations: list[Region]
    """In the order of the left run, those of the right run alone between."""
    outputs: list[ValuePair]
    """Of each output both values, as they were recorded."""
    causes: dict[int, Any] = field(default_factory=dict)
    """Of explained regions, by their place in ``operations``."""
    notes: list[str] = field(default_factory=list)
    """What is to be said besides: "aten.gelu: the arguments differ (...)"."""
    same_inputs: bool = False
    """Whether both runs have the same inputs, so that all outputs must agree."""
    outputs_by_index: list[OutputDifference] = field(default_factory=list)
    """The outputs of both runs as a user runs them, unwatched: what the verdict rests on."""
    padded_outputs: list[OutputDifference] = field(default_factory=list)
    """The outputs of samples cut to what a mask shows, against the same with padding."""
    incomplete: str = ""
    """Why the outputs are not all that was asked: "6 of 8 samples were compared"."""
    samples: tuple[int, int] | None = None
    """How many samples of a batch were run alone, and how many there are: ``(6, 8)``; None: one
    run of either side is compared."""
    weights: list[PermutedWeight] = field(default_factory=list)
    """Weights that the two runs have in another order: gates of an LSTM."""
    different_weights: str = ""
    """The first weight that one run alone has: "block.0 has different weights on the two sides"."""
    different_constants: str = ""
    """Where an operation is given other numbers: "aten.index is given other numbers, ..."."""
    matched: str = "by name and index"
    """How it was found what must agree, as ``RunningMatch.how``."""
    enters: str = ""
    """The operation from which on results are further apart than rounding, though the first
    source's aren't: ``aten.mul at head``."""

    @property
    def first(self) -> Region | None:
        return next(iter(self.sources), None)

    @property
    def sources(self) -> list[Region]:
        return [region for region in self.operations if region.verdict == "source"]

    @property
    def judged(self) -> list[Region]:
        """The regions of which something was compared."""
        return [region for region in self.operations if region.verdict not in NOT_JUDGED]

    def _within_judged(self) -> set[int]:
        """The places of regions that are members of judged ones, as ``Add`` of a fused layer."""
        judged = self.judged
        members = [{n for region in judged for n in region.members[side]} for side in (0, 1)]
        return {
            place
            for place, region in enumerate(self.operations)
            if region.verdict in NOT_JUDGED
            and all(n is None or n in members[side] for side, n in enumerate(region.ends))
        }

    @property
    def examined(self) -> int:
        """How many operations were compared, by themselves or with others."""
        return len(self.judged) + len(self._within_judged())

    @property
    def verdict(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs by index, as a user runs them."""
        verdict = verdict_of([*self.outputs_by_index, *self.padded_outputs])
        return "unknown" if verdict == "equal" and self.incomplete else verdict

    def take_samples(self, samples: Samples) -> None:
        """Has the outputs of all samples of a batch be the plain ones."""
        dtypes = [
            (self.left.values[pair.left].dtype, self.right.values[pair.right].dtype)
            for pair in self.outputs
        ]
        self.outputs_by_index = samples.differences(dtypes)
        self.samples = samples.compared, samples.count
        if samples.compared < samples.count:
            self.incomplete = f"{samples.compared:,} of {samples.count:,} samples were compared"

    @property
    def differs_unwatched_only(self) -> bool:
        """Whether the outputs differ where all operations, recorded one by one, agree."""
        whole = all(pair.selection.all_by_index and pair.equal for pair in self.outputs)
        return self.verdict == "differs" and whole and self.samples is None and not self.sources

    @property
    def agreement(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs that must agree.

        Of arrays without elements nothing has to agree.
        """
        if any(pair.differing for pair in self.outputs):
            return "differs"
        judged = all(pair.compared and pair.decided for pair in self.outputs if not pair.absent)
        return "equal" if judged and self.outputs else "unknown"

    @property
    def rounding(self) -> RoundingVerdict:
        """The differing outputs of all sources by whether rounding can be why."""
        total = RoundingVerdict()
        for number, region in enumerate(self.operations):
            if region.verdict == "source":
                cause = self.causes.get(number)
                verdict = RoundingVerdict() if cause is None else cause.rounding
                total += verdict + RoundingVerdict(unknown=max(0, region.differing - verdict.total))
        return total

    @property
    def computing(self) -> list[Region]:
        """Operations that compute something, and whatever is a source; not those that move."""
        return [
            region
            for region in self.operations
            if region.verdict == "source"
            or not isinstance(self.last_operations(region)[0][1].meaning, Moves)
        ]

    @property
    def orphans(self) -> list[Region]:
        """The carried regions of which nothing that they read comes from a source before them: one
        was missed then, and it is unknown whether they only pass a difference on."""
        reached: list[set[int]] = []
        for side, run in enumerate((self.left, self.right)):
            values = set[int]()
            for region in self.operations:
                number = region.ends[side]
                if number is not None and (region.verdict == "source" or region.differing_alone):
                    values.update(run.operations[number].gives)
            for op in run.operations:
                if values.intersection(op.reads):
                    values.update(op.gives)
            reached.append(values)
        return [
            region
            for region in self.operations
            if region.verdict == "carried"
            and not any(p.left in reached[0] or p.right in reached[1] for p in region.reads)
        ]

    def first_unexplored(self, behind: bool = True) -> Region | None:
        """The first operation that reads what differs, and of which it is not known whether it
        differs by itself: one side alone has it, it could not be run alone, or what it reads left
        the library and came back. None: all are known. ``behind``: also those that both sides have
        alike; False: these were not run alone."""
        apart, within_judged = (set[int](), set[int]()), self._within_judged()
        moved = set[int](), set[int]()  # by what one side alone has: rows that are cut or joined
        for place, region in enumerate(self.operations):
            ends = [
                (values, run, run.operations[number])
                for values, run, number in zip(
                    apart, (self.left, self.right), region.ends, strict=True
                )
                if number is not None
            ]
            if region.verdict in NOT_JUDGED:
                if not any(values.intersection(op.reads) for values, _, op in ends):
                    continue
                repeats = all(_repeats(run, op) for _, run, op in ends)
                if not repeats and place not in within_judged:
                    if not all(isinstance(op.meaning, Moves) for _, _, op in ends):
                        return region
                    for side, number in enumerate(region.ends):
                        if number is not None:
                            moved[side].update(ends[-1 if side else 0][2].gives)
            elif not region.differing:
                continue
            else:
                asked = behind or region.grouped or region.arguments
                outside = any(self._made_outside(pair) for pair in region.reads)
                if outside or (asked and not self._is_explored(region)):
                    return region
                if not all(
                    self._is_met(pair) or (pair.equal and pair.decided)
                    for pair in region.reads
                    if pair.left in moved[0] or pair.right in moved[1]
                ):
                    return region
            for values, _, op in ends:
                values.update(op.gives)
        return None

    def has_unexplored_causes(self, behind: bool = True) -> bool:
        """Whether something else than the sources, and sums behind them, may be why outputs differ:
        what wasn't run alone, or has different arguments on the two sides. ``behind``: as of
        ``first_unexplored``."""
        arguments = any(region.differing_alone and region.arguments for region in self.operations)
        return arguments or self.first_unexplored(behind) is not None or not self._outputs_met

    @property
    def _outputs_met(self) -> bool:
        """Whether each output that differs is given by operations that were compared."""
        return all(pair.equal or self._is_met(pair) for pair in self.outputs)

    def _is_met(self, pair: ValuePair) -> bool:
        """Whether operations that were compared give a pair, or the same bits on both sides, of
        which one side alone cuts or joins rows behind them."""
        if (pair.left, pair.right) in self._given_pairs:
            return True
        selected = self._selected_bits(pair)
        return selected is not None and selected in self._given_bits

    @cached_property
    def _given_pairs(self) -> dict[tuple[int, int], ValuePair]:
        return {(pair.left, pair.right): pair for each in self.judged for pair in each.gives}

    @cached_property
    def _given_bits(self) -> set[tuple[str, str] | None]:
        return {self._selected_bits(p) for p in self._given_pairs.values() if not p.equal}

    def _selected_bits(self, pair: ValuePair) -> tuple[str, str] | None:
        """Digests of the selected elements of both sides; None: not kept, or none."""
        left, right = self.left.array(pair.left), self.right.array(pair.right)
        if pair.selection.empty or left is None or right is None:
            return None
        elements = (
            pair.selection.elements(array, side) for side, array in enumerate((left, right))
        )
        first, second = (array_digest(array.reshape(-1)) for array in elements)
        return first, second

    def _is_explored(self, region: Region) -> bool:
        """Whether it is known of a region that something differs in whether it differs by itself:
        what moves elements, with the same arguments on both sides, does not."""
        if region.verdict != "carried" or region.differing_alone is not None:
            return True
        if any(pair.selection.axis_order for pair in region.gives):
            return False
        runs = zip((self.left, self.right), region.members, strict=True)
        members = [run.operations[n] for run, numbers in runs for n in numbers]
        if region.arguments and any(op.op != THROUGH_A_VIEW for op in members):
            return False
        return all(isinstance(op.meaning, Moves) for op in members)

    def _made_outside(self, pair: ValuePair) -> bool:
        """Whether values differ of which no operation gives one: it was made outside the library,
        by NumPy say."""
        given = self.left.values[pair.left].given, self.right.values[pair.right].given
        return not pair.equal and min(given) < 0

    def last_operations(self, region: Region) -> list[tuple[Run, Operation]]:
        return region.last_operations(self.left, self.right)


# Of what one run alone has, and of what nothing is known.
NOT_JUDGED = ("left", "right", "unknown")


def _repeats(run: Run, op: Operation) -> bool:
    """Whether an operation gives what it reads as it is, or in another shape."""
    digests = {run.values[n].digest for n in op.reads}
    return all(run.values[n].digest in digests for n in op.gives)


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
        selection = pair.alignment or pair.selection
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
            chosen = selection.elements(left, 0), selection.elements(right, 1)
            output = paired_difference(*chosen, dtypes[0], (left.size, right.size))
            output = replace(output, shape=left.shape, other_shape=right.shape)
            reads_more = selection.elements(reads_more, small).reshape(-1)
        if pair.decided and output.apart.shape == reads_more.shape:
            output = with_window(output, reads_more)
        plain.append(output)
    return plain


def _start_of(
    selection: Selection, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Where in the right output the left one begins, along each axis; None where its
    elements stand in another way."""
    if left == right or len(left) != len(right):
        return () if left == right else None
    if selection.empty or selection.axis_order is not None:
        return None
    start = [0] * len(left)
    for axis in selection.cut_axes:
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
    regions = [_region(match, *both) for both in match.operation_pairs]
    outputs = [match.pair(*both) for both in zip(left.outputs, right.outputs, strict=False)]
    difference = Difference(left, right, regions, outputs)
    pairs = [pair for region in regions for pair in (*region.reads, *region.gives)]
    measure_pairs(left, right, {id(pair): pair for pair in (*pairs, *outputs)}.values())
    apart = [pair for region in regions for pair in region.gives if not pair.equal]
    differing = {pair.left for pair in apart}, {pair.right for pair in apart}
    # steps of a longer series have their operands exchanged as well, and then no output differs
    outputs_differ = any(pair.differing for pair in outputs)
    for region in regions:
        if region.verdict == "equal":
            region.note = ""
        for run, number, values in zip(runs, region.ends, differing, strict=True):
            # a program that was looked into gives what was computed inside: where that has a
            # match, nothing differs by itself in giving it
            if number is not None and isinstance(run.operations[number].meaning, Passes):
                region.encloses_difference |= bool(values & {*run.operations[number].reads})
        if region.left is None or region.right is None or not region.compared:
            continue
        found = region.call_difference
        if region.grouped:
            found = _differing_member(region, runs)
        elif found is None and region.verdict == "source":  # of the same operands
            found = differing_arguments(left, right, region.left, region.right)
        elif found is None and region.verdict == "carried" and outputs_differ:
            found = _exchanged_operands(match, region)
        texts = ([found.text] if found else []) + operands_of_one_side(region, runs)
        region.arguments = ", ".join(texts)
    match.settle(difference)
    return difference


def _differing_member(region: Region, runs: Runs) -> ArgumentDifference | None:
    """How the first two members of a group that are called with different arguments differ, such as
    a maximum over another axis: the group is named after it, for what reads it only passes the
    difference on."""
    names = region.member_names(*runs)
    if names[0] != names[1] or not all(pair.equal for pair in region.reads):
        return None
    for both in zip(*region.members, strict=True):
        found = differing_arguments(*runs, *both)
        if found is not None:
            if region.verdict == "source":
                op = runs[0].operations[both[0]]
                region.name, region.op, region.path, region.note = op.name, op.op, op.path, ""
            return found
    return None


def _exchanged_operands(match: RunningMatch, region: Region) -> ArgumentDifference | None:
    """The operands that the two sides read in exchanged places, in words, as of swapped gates;
    None: none are. Only operands that are not exchanged stay in ``region.reads``."""
    texts, in_place = [], list[ValuePair]()
    for place, pair in enumerate(region.reads):
        right, left = match.partners[0].get(pair.left), match.partners[1].get(pair.right)
        paired = (left, right) == (pair.left, pair.right)
        if pair.equal or left is None or right is None or paired:
            in_place.append(pair)
            continue
        exchanged = match.resemble(pair.left, right) and match.resemble(left, pair.right)
        if not exchanged or match.resemble(pair.left, pair.right):
            return None
        both = [*zip(match.runs, (pair.left, pair.right), strict=True)]
        givers = [given_by(run, n) for run, n in both]
        if givers[0] == givers[1]:  # two layers of one kind: which of the left run's operations
            numbers = [match.runs[0].values[n].given + 1 for n in (pair.left, left)]
            givers = [f"{giver} (number {n})" for giver, n in zip(givers, numbers, strict=True)]
        texts.append(f"operand {place + 1} {' against '.join(givers)}")
    if not texts or not all(pair.equal for pair in in_place):
        return None
    region.reads = in_place
    return ArgumentDifference(", ".join(texts), frozenset())


def given_by(run: Run, number: int) -> str:
    """What gives a value, in words."""
    value = run.values[number]
    if value.given < 0:
        return value.name or f"an array of shape {list(value.shape)}"
    op = run.operations[value.given]
    return op.name if len(op.gives) == 1 else f"{op.name}[{op.gives.index(number)}]"


def operands_of_one_side(region: Region, runs: Runs) -> list[str]:
    """What one side's operation reads besides, in words, where all that the other one reads was
    compared: as attention reads a mask where samples are padded, and none where all are full."""
    sides = region.last_operations(*runs)
    counts = [len(op.reads) for _, op in sides]
    if region.grouped or len(sides) < 2 or counts[0] == counts[1]:
        return []
    longer = int(counts[1] > counts[0])
    compared = [{(p.left, p.right)[k] for p in region.reads if p.compared} for k in (0, 1)]
    if not compared[1 - longer].issuperset(sides[1 - longer][1].reads):
        return []
    run, op = sides[longer]
    if isinstance(op.meaning, Passes):  # which reads what was computed inside
        return [INSIDE.format(NAMES[longer], NAMES[1 - longer])]
    texts = []
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


def operands_in_common(
    left: Operation, right: Operation, resemble: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Pairs what two operations read: place by place, or in the order in which all ``resemble``
    each other, where a sum or a product of two has them the other way round."""
    in_place = list(zip(left.reads, right.reads, strict=False))
    if len(left.reads) != 2 or len(right.reads) != 2:
        return in_place
    if all(resemble(*numbers) for numbers in in_place):  # first: the others are never asked then
        return in_place
    turned = list(zip(left.reads, reversed(right.reads), strict=True))
    return turned if all(resemble(*numbers) for numbers in turned) else in_place


def _region(match: RunningMatch, left: int | None, right: int | None) -> Region:
    """The region of two operations, by number, that stand for each other."""
    if left is None or right is None:
        side, number = (0, left) if left is not None else (1, right or 0)
        op = match.runs[side].operations[number]
        members = (() if left is None else (left,)), (() if right is None else (right,))
        return Region(op.name, op.op, op.path, left, right, members=members)
    left_op, right_op = match.runs[0].operations[left], match.runs[1].operations[right]
    reads = operands_in_common(left_op, right_op, match.resemble)
    if len(left_op.reads) != len(right_op.reads):
        reads = match.value_pairs(left, right, "reads") or reads
    region = Region(
        left_op.name,
        left_op.op,
        left_op.path,
        left,
        right,
        [match.pair(*both) for both in reads],
        [match.pair(*both) for both in match.value_pairs(left, right, "gives")],
        members=((left,), (right,)),
        by_value=(left, right) in match.by_value,
    )
    if region.by_value or (left, right) in match.grouped:
        counts = [(len(op.reads), len(op.gives)) for op in (left_op, right_op)]
        one_by_one = all(pair.selection.all_by_index for pair in region.reads)
        region.grouped = (
            (region.by_value and (left_op.op != right_op.op or not one_by_one))
            or counts[0] != counts[1]
            or any(pair.selection.empty for pair in (*region.gives, *region.reads))
            or (left, right) in match.grouped
        )
        if right_op.name != left_op.name:
            region.note = f"on the right it is {right_op.name}"
    if all(pair.selection.all_by_index for pair in region.gives):
        # two values that are read at one place in both runs and have nothing in common, and of
        # which one was computed, as of ``(a + b) + c`` and ``(a + c) + b`` or ``a + (b + c)``
        region.grouped |= any(
            pair.selection.empty
            and any(
                run.values[n].floating and run.values[n].given >= 0 and n not in run.integral
                for run, n in zip(match.runs, (pair.left, pair.right), strict=True)
            )
            for pair in region.reads
        )
    if region.grouped:
        _take_in_what_comes_before(match, region)
        return region
    region.call_difference = call_difference(*match.runs, left, right, match.readers)
    if region.call_difference is not None:  # its numbers are arguments, not read by both
        numbers = {right_op.reads[place] for place in region.call_difference.scalars}
        region.reads = [pair for pair in region.reads if pair.right not in numbers]
    return region


def _take_in_what_comes_before(match: RunningMatch, region: Region) -> None:
    """Has a region begin at values that are matched; says which operations it has then, and why
    both sides are taken for the same."""
    runs, (to_right, to_left) = match.runs, match.partners
    left_op, right_op = (op for _, op in region.last_operations(*runs))
    matched = {(n, to_right[n]) for n in left_op.gives if n in to_right}
    matched |= {(to_left[n], n) for n in right_op.gives if n in to_left}
    gives = sorted(p for p in matched if p[0] in left_op.gives and p[1] in right_op.gives)
    region.gives = [match.pair(*both) for both in gives]
    before = [
        operations_between(run, op.reads, bounds)
        for run, op, bounds in zip(runs, (left_op, right_op), match.partners, strict=True)
    ]
    bounded = {(n, to_right[n]) for n in before[0][1] if n in to_right}
    bounded |= {(to_left[n], n) for n in before[1][1] if n in to_left}
    region.reads = [match.pair(*both) for both in sorted(bounded)]
    (left,), (right,) = region.members
    region.members = (*before[0][0], left), (*before[1][0], right)
    region.path = region.path if not before[0][0] else ""
    texts = [region_text(*side) for side in zip(runs, region.members, strict=True)]
    names = region.member_names(*runs)
    if texts[0] == texts[1] and names[0] != names[1]:  # what moves elements is what differs
        moves = [[n for n in a[:-1] if n not in b] for a, b in (names, names[::-1])]
        if all(moves):
            texts = [" + ".join([*moved[-NAMED:], texts[0]]) for moved in moves]
    region.op = " against ".join(dict.fromkeys(texts))
    outputs = {*zip(*(run.outputs for run in runs), strict=False)}
    how = "as the results are close" if region.by_value else "by what both read and give"
    how = "as both give the output" if outputs.intersection(gives) else how
    region.note = f"the right run's {texts[1]} is taken for the same, {how}"


def measure_pairs(left: Run, right: Run, pairs: Iterable[ValuePair]) -> None:
    """Finds which pairs differ, and counts differences by bits: one pair's values at a time."""
    for pair in pairs:
        values = left.values[pair.left], right.values[pair.right]
        if pair.selection.all_by_index:
            pair.equal = values[0].digest == values[1].digest
        if pair.equal if pair.selection.all_by_index else not pair.compared:
            continue
        arrays = left.array(pair.left), right.array(pair.right)
        if arrays[0] is not None and arrays[1] is not None:
            measure_pair(pair, arrays[0], arrays[1], values[0].dtype)
        elif pair.selection.all_by_index:  # digests alone were kept: one element at least
            pair.differing, pair.max_ulp = 1, None
        else:  # nothing is known of what a recording on disk has left out
            pair.unselected, pair.compared, pair.equal = Unselected.UNKNOWN, 0, True


def measure_pair(pair: ValuePair, left: np.ndarray, right: np.ndarray, dtype: str) -> None:
    """Counts differences of two values; of either the selected elements alone."""
    both = [
        np.ascontiguousarray(pair.selection.elements(array, side)).reshape(-1)
        for side, array in enumerate((left, right))
    ]
    if both[0].dtype.kind != "O" and both[0].tobytes() == both[1].tobytes():
        pair.equal = True
        return
    output = output_difference(both[0], both[1], (dtype, dtype))
    pair.differing, pair.equal = output.differing, not output.differing
    pair.max_ulp = output.max_ulp if dtype in floats.FORMATS else None
    if pair.equal or dtype not in floats.FORMATS:
        return
    wide = [floats.widen(array, dtype) for array in both]
    with np.errstate(invalid="ignore"):
        apart = np.abs(wide[0] - wide[1])[output.apart].max()
    finite = np.abs(wide[1][np.isfinite(wide[1])])
    # where all is zero there is nothing to measure by
    largest = max(float(finite.max(initial=0)), 1e-300)
    pair.distance_in_eps = float(apart / (floats.eps(dtype) * largest))


ONE_SIDE = "no operation of the other run computes the same"
APART = "it is not known which elements of what it reads belong together on the two sides"
LEFT_OUT = "a recording has left out its values"
NOTHING_GIVEN = "it gives nothing"
NOT_TOLD = "it is not known which of its elements belong together"


def fill_reasons(difference: Difference) -> None:
    """Fills in ``reason`` of all operations of which nothing could be compared."""
    left, right = (
        {region.op for region in difference.operations if region.verdict == side} for side in NAMES
    )
    for region in difference.operations:
        if region.verdict == "unknown":
            region.reason = region.note or why_not_compared(region.gives, difference)
        elif region.verdict in NAMES and computes(difference.last_operations(region)[0][1]):
            # both sides run one of this name, and nothing that it reads has a partner
            region.reason = APART if region.op in left & right else ONE_SIDE


def why_outputs_unknown(difference: Difference) -> str:
    """Why outputs can't be compared; empty where all can."""
    pairs = [pair for pair in difference.outputs if not pair.compared and not pair.absent]
    return why_not_compared(pairs, difference) if pairs else ""


def grouped_reasons(difference: Difference) -> dict[str, list[Region]]:
    """All reasons, each with the operations of which nothing is known, in their order."""
    unknown = dict[str, list[Region]]()
    for region in difference.operations:
        if region.verdict == "unknown" and region.reason:
            unknown.setdefault(region.reason, []).append(region)
    return unknown


def why_not_compared(pairs: Sequence[ValuePair], difference: Difference) -> str:
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
