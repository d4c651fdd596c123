"""Operations and values of two runs that belong together, and which elements must agree.

``operation_pairs`` are paired by name, module and order, else by value; a ``ValuePair`` says of two
values which elements must agree; ``partners`` are values that bound regions of several operations.
Behind the class stands what a comparison must not claim: that something differs by itself where not
all that it reads could be compared, or where the sizes of the inputs say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from probe.case import floats
from probe.diff import by_value
from probe.diff.alone import NOT_ALONE, isolated_sides, unequal_bits
from probe.diff.difference import (
    Difference,
    Region,
    Runs,
    ValuePair,
    operands_of_one_side,
    why_not_compared,
)
from probe.diff.pairing import (
    ALL,
    NEAR,
    NOTHING,
    SHARE,
    Lines,
    MarkedValue,
    Selection,
    Unselected,
    as_lines,
    by_position,
    lines_by_value,
    must_agree,
    near_share,
)
from probe.diff.related import NOT_GIVEN, follows_from_sizes, readers
from probe.diff.repeated import Marks, aligned
from probe.record.contract import INPUT, WEIGHT
from probe.record.recording import Operation, Run, operations_between
from probe.targets import budget

# The numbers of a left operation and of a right one; None: a side has none.
Numbers = tuple[int | None, int | None]

PairOfMarks = tuple[Marks | None, Marks | None]


@dataclass
class Repetitions:
    """What is known of two runs by repeating them; of most, the left run's and the right one's.

    The example: position 8 of attention behind a cache against all positions 0 to 8.
    """

    lacking: PairOfMarks = (None, None)
    """What changes with inputs that the other side lacks: of the whole nothing, for what the cache
    holds is not lacked. None: the other side lacks nothing."""
    begins_at: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    """Which part of the inputs stands before what the other side has: 8/9 of the whole's."""
    of_step: PairOfMarks = (None, None)
    """What changes with the other side's own inputs, where that is a step: with position 8."""
    of_history: PairOfMarks = (None, None)
    """What changes with what stands before a step, which the step got otherwise: positions 0-7."""
    cached: tuple[Sequence[int], Sequence[int]] = ((), ())
    """The numbers of values that the other side was given as a cache or a state: keys, values."""
    unlike_cache: str = ""
    """Which array of the step is near nothing that the whole computes, in words: a stale cache."""
    record_others: Callable[[], Runs | None] | None = None
    """Records both once more on independent inputs; None: values are close on one input at most."""
    piece: tuple[int, int, int] | None = None
    """Of a piece behind a state: where it begins and ends in the right side's inputs, and how long
    these are: 8, 9, 9."""

    @property
    def nothing_lacking(self) -> bool:
        return self.piece is None and all(marks is None for marks in (*self.lacking, *self.of_step))


class RunningMatch:
    """What of two runs belongs together, found by running. Nothing is compared.

    ``by_value``, ``grouped``: pairs of operations whose results are close on two inputs, or that
    end two ways to compute the same. ``second_partners``: pairs of which the left operation has
    another partner, as a compiled function of two outputs has. ``partners``: the values that bound
    regions, from the left's number to the right's, and back.
    """

    @classmethod
    def of(cls, left: Run, right: Run) -> RunningMatch:
        """Matches two runs of which neither can be repeated. Elements belong together by index;
        where inputs have other sizes, as a batch has, only where lines are close."""
        runs = left, right
        arrays = [
            {v.key for v in run.values if v.given < 0 and v.role == INPUT and prod(v.shape) > 1}
            for run in runs
        ]
        both = product(arrays[0] - arrays[1], arrays[1] - arrays[0])
        if not any(
            shapes[0] != shapes[1] and len(shapes[0]) == len(shapes[1]) and dtypes[0] == dtypes[1]
            for shapes, dtypes, _ in (zip(*each, strict=True) for each in both)
        ):
            return cls(runs, Repetitions())
        unknown = [Marks(run, unknown={*range(len(run.values))}) for run in runs]
        return cls(runs, Repetitions((unknown[0], unknown[1])))

    def __init__(self, runs: Runs, repetitions: Repetitions) -> None:
        self.runs, self.repetitions = runs, repetitions
        self.by_value, self.grouped = set[tuple[int, int]](), set[tuple[int, int]]()
        self.second_partners = list[tuple[int, int]]()
        self.partners: tuple[dict[int, int], dict[int, int]] = {}, {}
        self.pairs = dict[tuple[int, int], ValuePair]()

    @property
    def how(self) -> str:
        """How it was found what must agree, in words."""
        if self.by_value:
            return "by value" if self.repetitions.record_others else "by value on one input"
        marks = filter(None, (*self.repetitions.lacking, *self.repetitions.of_step))
        return "by running" if any(m.repetitions for m in marks) else "by name and index"

    @property
    def outputs_agree(self) -> bool:
        """Whether all elements of all outputs must agree, by index."""
        outputs = zip(*(run.outputs for run in self.runs), strict=False)
        return all(self.pair(n, m).selection.all_by_index for n, m in outputs)

    def pair(self, n: int, m: int) -> ValuePair:
        """What is known of a left value and a right one, by number."""
        if (n, m) not in self.pairs:
            self.pairs[n, m] = self._pair(n, m)
        return self.pairs[n, m]

    def _pair(self, left_number: int, right_number: int) -> ValuePair:
        left, right = self.runs[0].values[left_number], self.runs[1].values[right_number]
        both_given = max(left.given, right.given) < 0
        if left.key == right.key and both_given:
            return ValuePair.of_all(left_number, right_number, prod(left.shape))
        selection = None
        if left.dtype == right.dtype:
            marked = self._marked_value(0, left_number), self._marked_value(1, right_number)
            if marked[0] is not None and marked[1] is not None:
                selection = must_agree(marked[0], marked[1])
            else:
                selection = self._near_lines(left_number, right_number)
        unselected, alignment = Unselected.FREE, None
        if selection is None:
            selection, unselected = NOTHING, Unselected.UNKNOWN
        elif selection.empty and not any(self.repetitions.of_step):
            # though each of its elements reads what the other side lacks
            alignment = by_position(left.shape, right.shape, self.repetitions.begins_at)
        if 0 in left.shape and 0 in right.shape:
            unselected = Unselected.ABSENT
        if {left.dtype, right.dtype} == {"int8", "uint8"} and both_given:
            # of quantised weights a library writes either sign, with the zero beside them
            bytes_ = self.runs[0].array(left_number), self.runs[1].array(right_number)
            unselected = Unselected.ABSENT if shifted(*bytes_) else Unselected.UNKNOWN
        count = selection.count(left.shape)
        numbers = left_number, right_number
        return ValuePair(*numbers, selection, unselected, count, alignment=alignment)

    def _near_lines(self, left_number: int, right_number: int) -> Selection | None:
        """The lines that belong together as they are close, where nothing is known of marks."""
        left = numbers_of(self.runs[0], left_number)
        right = numbers_of(self.runs[1], right_number)
        return None if left is None or right is None else lines_by_value(left, right)

    def _marked_value(self, side: int, number: int) -> MarkedValue | None:
        """What is known of a side's value; None where its repetitions had another shape."""
        value, marks = self.runs[side].values[number], self.repetitions.lacking[side]
        lacking = np.zeros((1,) * len(value.shape), bool) if marks is None else marks.of(number)
        step = self.repetitions.of_step[side]
        if lacking is None:
            return None
        return MarkedValue(
            value.shape,
            lacking,
            lambda: numbers_of(self.runs[side], number),
            None if step is None else step.of(number),
            marks is None and self.repetitions.piece is None,
            self.repetitions.begins_at[side],
            self.repetitions.piece,
        )

    @cached_property
    def readers(self) -> list[dict[int, list[str]]]:
        """Of each side by value: the names of the operations that read it."""
        return [readers(run) for run in self.runs]

    def resemble(self, n: int, m: int) -> bool:
        """Whether two values have something in common: their bits, or most digits."""
        if self.runs[0].values[n].key == self.runs[1].values[m].key:
            return True
        pair = self.pair(n, m)
        both = None if pair.selection.empty else agreeing_elements(pair, self.runs)
        return not pair.selection.empty if both is None else near_share(*both) > SHARE

    @cached_property
    def operation_pairs(self) -> list[Numbers]:
        """Pairs of operations in order, None where a side has none.

        By name, module and order; where what a pair reads was given by operations that aren't
        paired, as those of branches in another order, by value, if two results are close.
        """
        if budget.spent():
            return []
        left, right = (run.operations for run in self.runs)
        by_name = [both for both in self._aligned() if self._same_weights(*both)]
        partner = self._following(dict(by_name))
        paired = {*partner.values()}
        unpaired = (
            [n for n in range(len(left)) if n not in partner],
            [n for n in range(len(right)) if n not in paired],
        )
        if all(unpaired) and not budget.spent():
            partner |= self._paired_by_value(*unpaired)
        paired = {*partner.values()}
        for both in by_name:
            if both[0] not in partner and both[1] not in paired and self._of_one_shape(*both):
                partner[both[0]] = both[1]
                paired.add(both[1])

        def givers(n: int, m: int) -> tuple[int, int] | None:
            """The operations that give two values, if neither is paired."""
            both = self.runs[0].values[n].given, self.runs[1].values[m].given
            return None if min(both) < 0 or both[0] in partner or both[1] in paired else both

        outputs = [*zip(*(run.outputs for run in self.runs), strict=False)]
        for n, m in outputs:  # outputs stand for each other
            ends = givers(n, m)
            if ends is not None and self.pair(n, m).decided and self.resemble(n, m):
                partner[ends[0]] = ends[1]
                paired.add(ends[1])
                self.by_value.add(ends)
                self._bound_regions(n, m)
        self._bound_by_given([both for both in by_name if partner.get(both[0]) == both[1]])
        for both in sorted(partner.items()):
            if both in self.by_value:
                continue
            if not self._reads_matched(*both):
                if not self._ends_a_group(*both):
                    continue
                self.grouped.add(both)
            for n, m in self.value_pairs(*both, "gives"):
                self._bound_regions(n, m)
        if self.repetitions.nothing_lacking:
            for n, m in outputs + self._operands_in_place(partner):
                ends = givers(n, m)
                if ends is None or not self.pair(n, m).compared:
                    continue
                if self._computed_from_the_same(n, m):
                    partner[ends[0]] = ends[1]
                    paired.add(ends[1])
                    self.grouped.add(ends)
                    self._bound_regions(n, m)
        paired |= {second for _, second in self.second_partners}
        return self._in_order_of_left(partner, paired)

    def _operands_in_place(self, partner: dict[int, int]) -> list[tuple[int, int]]:
        """What stands in one place of both programs, as two functions behind the same layer do."""
        operands = list[tuple[int, int]]()
        for both in partner.items():
            gives = [each for each in self.value_pairs(*both, "gives") if self.pair(*each).compared]
            reads = self.value_pairs(*both, "reads")
            # (a + b) + c and (a + c) + b are near, and no sum inside stands for one of the other
            if any(self.resemble(*each) for each in gives):
                reads = [each for each in reads if self.resemble(*each)]
            operands += reads
        return operands

    def _in_order_of_left(self, partner: dict[int, int], paired: set[int]) -> list[Numbers]:
        """All operations in the order of the left, those of the right alone between."""
        left, right = (len(run.operations) for run in self.runs)
        pairs, behind = list[Numbers](), 0
        for first in range(left):
            second = partner.get(first)
            if second is not None and second >= behind:
                pairs += [(None, n) for n in range(behind, second) if n not in paired]
                behind = second + 1
            pairs.append((first, second))
            pairs += [both for both in self.second_partners if both[0] == first]
        return pairs + [(None, n) for n in range(behind, right) if n not in paired]

    def _aligned(self) -> list[tuple[int, int]]:
        """Pairs operations by name, module and order: where one side runs more of them, as for
        other samples or other steps of a loop, those that give what the other side lacks are left
        out."""
        left, right = (run.operations for run in self.runs)
        if [(op.op, op.path) for op in left] == [(op.op, op.path) for op in right]:
            return aligned(left, right)
        left, right = self._operations_in_common(0), self._operations_in_common(1)
        pairs = _with_different_paths(left, right, aligned(left, right))
        return [(left[n].number, right[m].number) for n, m in pairs]

    def _operations_in_common(self, side: int) -> list[Operation]:
        """A side's operations that give something which the other side may have."""
        run, lacking = self.runs[side], self.repetitions.lacking[side]
        step, history = self.repetitions.of_step[side], self.repetitions.of_history[side]
        in_common, begun = list[Operation](), step is None
        fills_cache = operations_between(run, self.repetitions.cached[side], ())[0]
        for op in run.operations:
            of_step = any(_marked(step, n) for n in op.gives)
            begun = begun or of_step
            # what stands before the other side's part was computed elsewhere
            before = not begun or (op.number in fills_cache and not of_step)
            before &= any(_marked(history, n) for n in op.gives)
            lacked = op.gives and all(_marked(lacking, n, "all") for n in op.gives)
            if not before and not lacked:
                in_common.append(op)
        return in_common

    def value_pairs(self, left: int, right: int, which: str) -> list[tuple[int, int]]:
        """Pairs what two operations, by number, read or give (``which``), in their order; where one
        side has more of it, as of a list of steps, those that the other side may have. [] of what
        is read where that doesn't say which."""
        sides: list[Sequence[int]] = [
            getattr(run.operations[n], which)
            for run, n in zip(self.runs, (left, right), strict=True)
        ]
        if len(sides[0]) != len(sides[1]):
            common: list[Sequence[int]] = [
                [n for n in values if self._may_stand_on_other_side(side, n)]
                for side, values in enumerate(sides)
            ]
            if len(common[0]) == len(common[1]):
                sides = common
            elif which == "reads":
                return self._operands_in_order(sides)
        return [*zip(*sides, strict=False)]

    def _operands_in_order(self, operands: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Pairs all that the operation which reads less reads with what is matched to it, in its
        order; [] where something has no such partner."""
        short, long = sorted(operands, key=len)
        left_is_longer = short is operands[1]
        pairs, later = list[tuple[int, int]](), iter(long)
        for number in short:
            for candidate in later:
                both = (candidate, number) if left_is_longer else (number, candidate)
                keys = {run.values[n].key for run, n in zip(self.runs, both, strict=True)}
                if len(keys) == 1 or self.partners[0].get(both[0]) == both[1]:
                    pairs.append(both)
                    break
        return pairs if len(pairs) == len(short) else []

    def _may_stand_on_other_side(self, side: int, number: int) -> bool:
        step = self.repetitions.of_step[side]
        if step is not None and not (_is_weight(self.runs[side], number) or _marked(step, number)):
            return False
        return not _marked(self.repetitions.lacking[side], number, "all")

    def _bound_by_given(self, by_name: Sequence[tuple[int, int]]) -> None:
        """Has regions bounded by what both runs are given: the same bits, or what operations that
        are paired by name read."""
        left, right = self.runs
        keys = {v.key: m for m, v in reversed([*enumerate(right.values)]) if v.given < 0}
        for n, value in enumerate(left.values):
            if value.given < 0 and value.key in keys:
                self._bound_regions(n, keys[value.key])
        for first, second in by_name:
            ops = left.operations[first], right.operations[second]
            if ops[0].op != ops[1].op:
                continue
            for n, m in zip(ops[0].reads, ops[1].reads, strict=False):
                a, b = left.values[n], right.values[m]
                # two factors that differ are arguments: of 0.0447 x^3 in one GELU and 0.5 x in
                # another, say, which stand for each other by name alone
                factors = prod(a.shape) == prod(b.shape) == 1 and INPUT not in (a.role, b.role)
                if max(a.given, b.given) < 0 and not (factors and a.key != b.key):
                    self._bound_regions(n, m)

    def _computed_from_the_same(self, n: int, m: int) -> bool:
        """Whether two values are computed from the same, besides single numbers, or one of them
        from more, as with a bias: where both have arrays of their own, these may be why."""
        sides = zip(self.runs, (n, m), self.partners, strict=True)
        return not self._both_have_arrays_of_their_own(
            [operations_between(run, [number], bounds)[1] for run, number, bounds in sides]
        )

    def _both_have_arrays_of_their_own(self, reached: Sequence[Iterable[int]]) -> bool:
        """Whether among the values of both sides are arrays that stand for none of the other's."""
        return all(
            any(n not in bounds and prod(run.values[n].shape) > 1 for n in numbers)
            for run, numbers, bounds in zip(self.runs, reached, self.partners, strict=True)
        )

    def _ends_a_group(self, left: int, right: int) -> bool:
        """Whether two operations of one name end two ways to compute the same: they come from
        values that are matched with each other, and most of what they give is near or the same
        operations run, as a maximum over another axis may be among them."""
        before = [
            operations_between(run, run.operations[n].reads, bounds)
            for run, n, bounds in zip(self.runs, (left, right), self.partners, strict=True)
        ]
        starts = [
            {*reached} & bounds.keys()
            for (_, reached), bounds in zip(before, self.partners, strict=True)
        ]
        if {self.partners[0][n] for n in starts[0]} != starts[1]:
            return False
        names = [
            [(run.operations[n].op, run.operations[n].path) for n in numbers]
            for run, (numbers, _) in zip(self.runs, before, strict=True)
        ]
        pairs = [self.pair(*both) for both in self.value_pairs(left, right, "gives")]
        if (
            self.repetitions.nothing_lacking
            and names[0] == names[1]
            and not self._both_have_arrays_of_their_own([reached for _, reached in before])
        ):
            return any(pair.compared for pair in pairs)
        return any(not p.selection.empty and self.resemble(p.left, p.right) for p in pairs)

    def _following(self, by_name: dict[int, int]) -> dict[int, int]:
        """The pairs whose results are near, or whose operands come from pairs and are apart
        already: others stand for each other by chance, as those of branches in another order."""
        left, right = self.runs
        partner = dict[int, int]()
        for both in sorted(by_name.items()):
            reads, gives = (self.value_pairs(*both, which) for which in ("reads", "gives"))
            follows = self._of_one_shape(*both)
            for n, m in reads:
                a, b = left.values[n], right.values[m]
                given = min(a.given, b.given) < 0 or partner.get(a.given) == b.given
                follows &= given or a.key == b.key
            comparable = [each for each in gives if self.pair(*each).compared]
            # other weights are apart, but may be those of operations that were folded together
            computed = [each for each in reads if not _is_weight(left, each[0])]
            apart = any(self.pair(*each).compared and not self.resemble(*each) for each in computed)
            near = any(self.resemble(*each) for each in comparable)
            if near or (follows and (apart or not comparable)):
                partner[both[0]] = both[1]
        return partner

    def _of_one_shape(self, mine: int, other: int) -> bool:
        """Whether two operations give values of one shape, where neither run lacks anything."""
        if not self.repetitions.nothing_lacking:
            return True
        left, right = self.runs
        ends = zip(left.operations[mine].gives, right.operations[other].gives, strict=False)
        return all(left.values[n].shape == right.values[m].shape for n, m in ends)

    def _reads_matched(self, left: int, right: int) -> bool:
        """Whether all that two operations read is matched, place by place or in the other order."""

        def alike(n: int, m: int) -> bool:
            a, b = self.runs[0].values[n], self.runs[1].values[m]
            if a.key == b.key or self.partners[0].get(n) == m:
                return True
            return max(a.given, b.given) < 0 and self.pair(n, m).decided

        ops = self.runs[0].operations[left], self.runs[1].operations[right]
        pairs = self.value_pairs(left, right, "reads")
        if not pairs:
            return len(ops[0].reads) == len(ops[1].reads)
        turned = zip(ops[0].reads, reversed(ops[1].reads), strict=False)
        return all(alike(*both) for both in pairs) or (
            len(pairs) == 2 and all(alike(*both) for both in turned)
        )

    def _same_weights(self, left: int, right: int) -> bool:
        """Whether two operations don't read arrays that the other run reads elsewhere."""
        ops = self.runs[0].operations[left], self.runs[1].operations[right]
        for n, m in zip(ops[0].reads, ops[1].reads, strict=False):
            a, b = self.runs[0].values[n], self.runs[1].values[m]
            given = max(a.given, b.given) < 0 and a.floating and prod(a.shape) > 1
            elsewhere = a.key in self._given_keys[1] and b.key in self._given_keys[0]
            if given and a.key != b.key and elsewhere:
                return False
        return True

    @cached_property
    def _given_keys(self) -> tuple[set, set]:
        first, second = ({v.key for v in run.values if v.given < 0} for run in self.runs)
        return first, second

    def _bound_regions(self, n: int, m: int) -> None:
        """Has two values bound regions, unless it isn't known what of them must agree, or they are
        other weights, which may be folded into more."""
        left, right = self.runs
        folded = _is_weight(left, n) and _is_weight(right, m)
        if folded and left.values[n].key != right.values[m].key:
            return
        if self.pair(n, m).decided:
            self.partners[0].setdefault(n, m)
            self.partners[1].setdefault(m, n)

    def _paired_by_value(self, left: Sequence[int], right: Sequence[int]) -> dict[int, int]:
        """Pairs operations that are left over by values that are close on two inputs; on one only
        where no other value is as close."""
        if not all(
            any(not by_value.moves(run, run.operations[n]) for n in numbers)
            for run, numbers in zip(self.runs, (left, right), strict=True)
        ):
            return {}
        again: Runs | None = None
        with budget.Ending():
            if self.repetitions.record_others is not None:
                again = self.repetitions.record_others()
        if again is None:  # it can't be run on others, or not in time
            self.repetitions.record_others = None
        second = again or self.runs
        candidates = self._candidates(0, left, second[0]), self._candidates(1, right, second[1])
        partner = dict[int, int]()
        for first, other, order in by_value.matched(*candidates, alone=again is None):
            both = first.operation, other.operation
            if partner.setdefault(*both) != both[1]:
                self.second_partners.append(both)
            pair = self.pair(first.number, other.number)
            values = self.runs[0].values[pair.left], self.runs[1].values[pair.right]
            turned = len(values[0].shape) != len(values[1].shape) or order != (*range(len(order)),)
            count = prod(first.shape)
            if turned or pair.compared != count:
                pair.selection = Selection((first.lines, other.lines), axis_order=order)
                pair.unselected, pair.compared = Unselected.FREE, count
            self.by_value.add(both)
            self._bound_regions(first.number, other.number)
        return partner

    def settle(self, difference: Difference) -> None:
        """Has no verdict rest on what was not compared or follows from a size, and says why."""
        marks = [marks for marks in self.repetitions.lacking if marks is not None]
        # a piece behind a state or a cache has its positions from there, and nothing from its size
        behind = self.repetitions.piece is not None or any(self.repetitions.of_step)
        if not self.repetitions.nothing_lacking and not behind:
            leave_out_sizes(difference)
        why = BRANCH if any(each.repetitions for each in marks) else SIZES
        give_reasons(difference, why if marks else "")

    def _candidates(
        self, side: int, numbers: Sequence[int], again: Run
    ) -> list[by_value.Candidate]:
        run = self.runs[side]
        repeated = dict(aligned(run.operations, again.operations))
        candidates = []
        for number in (n for n in numbers if n in repeated):
            op = run.operations[number]
            moves = by_value.moves(run, op)
            gives = again.operations[repeated[number]].gives
            for n, m in zip(op.gives, gives, strict=False):
                lines = self._unchanging_lines(side, n)
                if lines is not None:
                    candidates.append(by_value.candidate(run, again, n, m, lines, moves))
        return [each for each in candidates if each is not None]

    def _unchanging_lines(self, side: int, number: int) -> tuple[Lines, ...] | None:
        """The lines of a value along each axis that don't change; None: there are none, or
        something on them changes."""
        value, marks = self.runs[side].values[number], self.repetitions.lacking[side]
        lines: list[Lines] = [ALL] * len(value.shape)
        mark = np.zeros((), bool) if marks is None else marks.of(number)
        if mark is None or not prod(value.shape):
            return None
        for axis in range(mark.ndim):
            if mark.shape[axis] > 1:
                across = tuple(k for k in range(mark.ndim) if k != axis)
                free = ~mark.any(axis=across)
                free = free if free.any() else ~mark.all(axis=across)
                at = np.flatnonzero(free)
                lines[axis], mark = as_lines(at), mark.take(at, axis)
        return None if mark.any() or not mark.size else tuple(lines)


def _with_different_paths(
    left: Sequence[Operation], right: Sequence[Operation], pairs: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Adds to pairs of operations those between two of them that are alike but for the name of
    their module, as the second model's layers in Keras have other numbers."""
    longer, start = list[tuple[int, int]](), (0, 0)
    for end in [*pairs, (len(left), len(right))]:
        between = [
            [replace(op, path="") for op in side[begin:stop]]
            for side, begin, stop in zip((left, right), start, end, strict=True)
        ]
        if all(between):
            longer += [(start[0] + n, start[1] + m) for n, m in aligned(*between)]
        longer.append(end)
        start = end[0] + 1, end[1] + 1
    return longer[:-1]


def _marked(marks: Marks | None, number: int, how: str = "any") -> bool:
    """Whether anything of a value changes with some content, or all of it."""
    mark = None if marks is None else marks.of(number)
    return mark is not None and mark.size > 0 and bool(getattr(mark, how)())


def _is_weight(run: Run, number: int) -> bool:
    """Whether a value is a weight, or follows from one alone, as its transpose does."""
    value = run.values[number]
    if value.given < 0:
        return value.role == WEIGHT
    reads = run.operations[value.given].reads
    return bool(reads) and all(_is_weight(run, n) for n in reads)


def shifted(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    """Whether bytes of either sign stand for the same numbers, 128 apart."""
    if left is None or right is None or left.shape != right.shape:
        return False
    apart = left.astype(int) - right.astype(int)
    return bool((apart == (128 if left.dtype == np.uint8 else -128)).all())


def numbers_of(run: Run, number: int) -> np.ndarray | None:
    """A value's numbers; None: they were left out of a recording."""
    array, dtype = run.array(number), run.values[number].dtype
    return floats.widen(array, dtype) if array is not None and dtype == "bfloat16" else array


def agreeing_elements(pair: ValuePair, runs: Runs) -> tuple[np.ndarray, np.ndarray] | None:
    """The elements of both values that must agree; None: some were left out."""
    left, right = numbers_of(runs[0], pair.left), numbers_of(runs[1], pair.right)
    if left is None or right is None:
        return None
    return pair.selection.elements(left, 0), pair.selection.elements(right, 1)


# what a comparison must not claim


LACKING = "all that it gives depends on inputs that the other run lacks"
SIZED = "what it gives follows from the sizes of its inputs, which differ"
ELSEWHERE = "what it gives reads other elements of the same operands"
BRANCH = "it is not known which of its results belong together: it runs otherwise with other inputs"
SIZES = "it is not known which of its results belong together: the inputs have other sizes"
NOT_COMPARED = "what it reads could not be compared"
DRAWN = "it reads nothing and gives other numbers: they are drawn at random"

# The share of elements up to which those that are far apart are what an operation makes of its
# operands, such as an overflow, and not of their sizes.
FEW = 0.25

# Elements of an operand that are changed to see which results follow, and the share of these that
# must be the same on both sides.
CHANGED, ALIKE = 4, 0.9


def give_reasons(difference: Difference, otherwise: str) -> None:
    """Has nothing be a source whose operands were not all compared; says why others are unknown.
    ``otherwise``: why, where it isn't known of elements whether they must agree."""
    runs = difference.left, difference.right
    for region in difference.operations:
        if region.left is None or region.right is None:
            continue
        ops = [op for _, op in difference.last_operations(region)]
        missing = any(not pair.decided for pair in region.reads)
        besides = bool(region.arguments) and bool(operands_of_one_side(region, runs))
        missing |= not region.grouped and len(ops[0].reads) != len(ops[1].reads) and not besides
        if missing and region.verdict == "source":
            region.put_in_doubt(NOT_COMPARED)
        if region.verdict == "source" and not region.arguments:
            # from one state of a generator, which a recorder has noted, all draw the same
            if not any(op.reads or op.attributes.get("drawn") for op in ops):
                region.put_in_doubt(DRAWN)
        elif region.verdict == "unknown" and not region.note:
            why = otherwise or why_not_compared(region.gives, difference)
            region.note = LACKING if all(pair.decided for pair in region.gives) else why


def leave_out_sizes(difference: Difference) -> None:
    """Takes back what must agree where it follows from sizes: a shape, a divisor, a padding.

    Content changes none of it, so that repetitions don't show it. It differs in many elements by
    more than rounding, though operands agree, where an operation reads nothing, has arguments that
    follow from sizes or gives whole numbers; of operands of other sizes it may give another factor,
    the same of all, or read other elements.
    """
    runs, sized = (difference.left, difference.right), set[int]()
    for region in difference.operations:
        if region.left is None or region.right is None or not region.differing:
            continue
        apart = [
            pair
            for pair in region.gives
            if not pair.equal
            and _far(pair, runs).mean() > (FEW if runs[0].values[pair.left].floating else 0)
        ]
        begins = elsewhere = False
        if apart and not any(_far(pair, runs).any() for pair in region.reads if not pair.equal):
            shapes = [
                [run.values[n].shape for n in op.reads] for run, op in region.last_operations(*runs)
            ]
            # some recorders have a shape read nothing
            begins = not any(shapes) or _has_sized_arguments(region, runs)
            if shapes[0] != shapes[1]:  # of several operations one may read its own
                begins |= region.grouped or all(_by_a_factor(pair, runs) for pair in apart)
            alike = region.grouped or all(pair.selection.all_by_index for pair in region.reads)
            # the same several operations on both sides
            same_group = region.grouped and " against " not in region.op
            if not begins and (shapes[0] != shapes[1] or not alike or same_group):
                begins = elsewhere = not _follow_alike(region, runs)
        if not begins and not any(pair.left in sized for pair in region.reads):
            continue
        for pair in apart:
            sized.add(pair.left)
            _keep_equal(pair, runs)
        if begins and not any(pair.decided for pair in region.gives):
            region.cause, region.note = "window", ELSEWHERE if elsewhere else SIZED


def _has_sized_arguments(region: Region, runs: Runs) -> bool:
    """Whether arguments of an operation differ that are whole numbers or follow from a size."""
    left, right = (op.attributes for _, op in region.last_operations(*runs))
    sizes = [run.axis_sizes for run in runs]
    for name in dict.fromkeys((*left, *right)):
        both = left.get(name, NOT_GIVEN), right.get(name, NOT_GIVEN)
        if repr(both[0]) != repr(both[1]) and follows_from_sizes(both, sizes):
            return True
    return False


def equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Where numbers are equal, NaN among them."""
    same = np.asarray(left == right)
    return same | (np.isnan(left) & np.isnan(right)) if left.dtype.kind in "fc" else same


def _far(pair: ValuePair, runs: Runs) -> np.ndarray:
    """Where paired elements are apart by more than rounding; integers wherever they differ."""
    both = agreeing_elements(pair, runs)
    if both is None:
        return np.zeros(1, bool)
    left, right = both
    near, dtype = equal(left, right), runs[0].values[pair.left].dtype
    if dtype in floats.FORMATS:
        libraries = {run.target.partition(",")[0] for run in runs}
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(left), np.abs(right))
            limit = floats.eps(dtype) ** 0.5 * size
            if len(libraries) > 1:  # one of which may compute in a shorter format
                limit = NEAR * size[np.isfinite(size)].max(initial=0.0)
            near |= np.abs(left - right) <= limit
            near |= size <= floats.flushed_below(dtype)  # what one side makes zero
    return np.asarray(~near.reshape(-1))


def _by_a_factor(pair: ValuePair, runs: Runs) -> bool:
    """Whether paired elements are apart by one factor, or are whole numbers."""
    both = agreeing_elements(pair, runs)
    dtype = runs[0].values[pair.left].dtype
    if both is None or dtype not in floats.FORMATS:
        return True
    with np.errstate(all="ignore"):
        factors = both[0] / both[1]
    factors = factors[np.isfinite(factors)]
    return bool(len(factors)) and bool(np.ptp(factors) < NEAR * abs(np.median(factors) - 1))


def _follow_alike(region: Region, runs: Runs) -> bool:
    """Whether paired results follow the same elements of operands of other sizes, unlike those of a
    convolution that begins one further on: some are changed on both sides, one after the other."""
    following, on_both, draw = 0, 0, np.random.default_rng(0)
    try:
        sides = isolated_sides(*runs, region)
        if sides is None or any(side.again is None for side in sides):
            return False
        left, right = sides
        for pair in left.pairs:
            at = left.operation.reads.index(pair.left), right.operation.reads.index(pair.right)
            arrays, dtype = (left.reads[at[0]], right.reads[at[1]]), left.dtypes[at[0]]
            if pair.selection.empty or dtype not in floats.FORMATS:
                continue
            one_shape = arrays[0].shape == arrays[1].shape and pair.selection.all_by_index
            if one_shape and not region.grouped:
                continue
            wide = floats.widen(pair.selection.elements(arrays[0], 0), dtype)
            for place in draw.integers(wide.size, size=CHANGED):
                changed = wide.copy()
                changed.reshape(-1)[place] = 3 * np.abs(wide[np.isfinite(wide)]).max(initial=1.0)
                bits, follows = floats.round_to(changed, dtype), []
                for k, side in enumerate(sides):
                    operands = list(side.reads)
                    operands[at[k]] = pair.selection.with_elements(arrays[k], bits, k)
                    outputs = side.rerun(operands)
                    follows.append(unequal_bits(outputs, side.outputs, side.value.dtype))
                following += int((follows[0] | follows[1]).sum())
                on_both += int((follows[0] & follows[1]).sum())
    except NOT_ALONE:
        return False
    return following > 0 and on_both >= ALIKE * following


def _keep_equal(pair: ValuePair, runs: Runs) -> None:
    """Has nothing of a pair differ, and nothing be known of what does."""
    both = agreeing_elements(pair, runs)
    assert both is not None
    same, shape = equal(*both), runs[0].values[pair.left].shape
    pair.alignment, pair.selection = pair.selection, pair.selection.restricted_to(same, shape)
    pair.unselected, pair.compared = Unselected.UNKNOWN, int(same.sum())
    pair.equal, pair.differing, pair.max_ulp, pair.distance_in_eps = True, 0, 0, 0.0
