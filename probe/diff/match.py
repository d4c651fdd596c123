"""Operations and values of two runs that belong together, and which elements must agree.

It has what ``probe.diff.difference`` asks of a match: ``operations`` in order, a ``Pair`` for
two values, ``values`` that bound regions of several operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from probe.diff import by_value, settled
from probe.diff.difference import Difference, Pair
from probe.diff.pairing import (
    ALL,
    NOTHING,
    SHARE,
    Lines,
    Selection,
    Side,
    as_lines,
    by_position,
    lines_by_value,
    near_share,
    paired,
)
from probe.diff.related import Otherwise, arguments_apart, readers
from probe.diff.repeated import Marks, aligned
from probe.record.contract import INPUT, WEIGHT
from probe.record.recording import Operation, Run, Value, operations_between
from probe.targets import budget

Runs = tuple[Run, Run]
Numbers = tuple[int | None, int | None]


@dataclass
class Sides:
    """What is known of two runs by repeating them.

    ``marks``: of each side, what changes with what the other side lacks, None: it lacks nothing.
    ``before``: of each side, which part stands before what the other side has.
    ``own``: of each side, what changes with the other's own part, where that is a step behind a
    cache; ``earlier``: what changes with what stands before it, which the step got otherwise, and
    ``handed``: values of that side which the other one was given, such as a state.
    ``unlike``: arrays that one side alone holds, near nothing of the other, in words.
    ``again``: records both once more on independent inputs; None: that can't be done, so that
    values are close on one input at most. ``piece``: of a piece behind a state, where it begins and
    ends in the right side's input, and how long that is.
    """

    marks: tuple[Marks | None, Marks | None] = (None, None)
    before: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))
    own: tuple[Marks | None, Marks | None] = (None, None)
    earlier: tuple[Marks | None, Marks | None] = (None, None)
    handed: tuple[Sequence[int], Sequence[int]] = ((), ())
    unlike: str = ""
    again: Callable[[], Runs | None] | None = None
    piece: tuple[int, int, int] | None = None

    @property
    def whole(self) -> bool:
        """Whether neither side lacks anything."""
        return self.piece is None and all(marks is None for marks in (*self.marks, *self.own))


class RunningMatch:
    """What of two runs belongs together, found by running. Nothing is compared.

    ``taken``: left values to right ones that are matched by value; ``by_ends``: operations that
    give these; ``further``: pairs of which the left operation has another partner, as a compiled
    function of two outputs has; ``values``: all values that are matched, from the left's to the
    right's, and back.
    """

    @classmethod
    def of(cls, left: Run, right: Run) -> RunningMatch:
        """Matches two runs of which neither can be repeated. Elements belong together by index;
        where inputs have other sizes, as a batch has, only where lines are close."""
        runs = left, right
        inputs = [{v.key for v in run.values if _is_given(v)} for run in runs]
        both = product(inputs[0] - inputs[1], inputs[1] - inputs[0])
        if not any(
            ours != theirs and len(ours) == len(theirs) and dtype == other
            for (ours, dtype, _), (theirs, other, _) in both
        ):
            return cls(runs, Sides())
        unknown = [Marks(run, missing={*range(len(run.values))}) for run in runs]
        return cls(runs, Sides((unknown[0], unknown[1])))

    @property
    def how(self) -> str:
        """How it was found what must agree, in words."""
        if self.taken:
            return "by value" if self.sides.again else "by value on one input"
        marks = filter(None, (*self.sides.marks, *self.sides.own))
        return "by running" if any(m.repetitions for m in marks) else "by name and index"

    def __init__(self, runs: Runs, sides: Sides) -> None:
        self.runs, self.sides = runs, sides
        self.taken = dict[int, int]()
        self.by_ends, self.joined = set[tuple[int, int]](), set[tuple[int, int]]()
        self.further = list[tuple[int, int]]()
        self.values: tuple[dict[int, int], dict[int, int]] = {}, {}
        self.pairs = dict[tuple[int, int], Pair]()

    def pair(self, mine: int, other: int) -> Pair:
        if (mine, other) not in self.pairs:
            self.pairs[mine, other] = self._pair(mine, other)
        return self.pairs[mine, other]

    def _pair(self, mine: int, other: int) -> Pair:
        ours, theirs = self.runs[0].values[mine], self.runs[1].values[other]
        chosen, known = NOTHING, False
        if ours.key == theirs.key and max(ours.given, theirs.given) < 0:
            return Pair.of_all(mine, other, prod(ours.shape))
        left, right = self._side(0, mine), self._side(1, other)
        if ours.dtype == theirs.dtype and left is not None and right is not None:
            selection = paired(left, right)
            known, chosen = selection is not None, selection or NOTHING
        elif ours.dtype == theirs.dtype:
            first, second = (
                settled.numbers(self.runs[0], mine),
                settled.numbers(self.runs[1], other),
            )
            if first is not None and second is not None:
                selection = lines_by_value(first, second)
                known, chosen = selection is not None, selection or NOTHING
        laid = None
        if known and chosen.empty and not any(self.sides.own):
            # though each of its elements reads what the other side lacks
            laid = by_position(ours.shape, theirs.shape, self.sides.before)
        hollow = 0 in ours.shape and 0 in theirs.shape
        if {ours.dtype, theirs.dtype} == {"int8", "uint8"} and max(ours.given, theirs.given) < 0:
            # of quantised weights a library writes either sign, with the zero beside them
            bytes_ = (self.runs[0].array(mine), self.runs[1].array(other))
            known = hollow = settled.shifted(*bytes_)
        count = chosen.count(ours.shape)
        return Pair(mine, other, chosen, known, count, hollow=hollow, laid=laid)

    def _side(self, side: int, number: int) -> Side | None:
        marks, value = self.sides.marks[side], self.runs[side].values[number]
        nothing = np.zeros((1,) * len(value.shape), bool)
        mark = nothing if marks is None else marks.of(number)
        part = self.sides.own[side]
        own = None if part is None else part.of(number)
        if mark is None:
            return None
        return Side(
            value.shape,
            mark,
            lambda: settled.numbers(self.runs[side], number),
            own,
            marks is None and self.sides.piece is None,
            self.sides.before[side],
            self.sides.piece,
        )

    def arguments(self, mine: int, other: int) -> Otherwise | None:
        """Returns how two operations that are paired are asked for different things; None: not."""
        return arguments_apart(*self.runs, mine, other, self._readers)

    @cached_property
    def _readers(self) -> tuple[Mapping[int, list[str]], Mapping[int, list[str]]]:
        return readers(self.runs[0]), readers(self.runs[1])

    def shares(self, mine: int, other: int) -> bool:
        """Whether two values that are read have something in common: their bits, or most digits."""
        values = self.runs[0].values[mine], self.runs[1].values[other]
        if values[0].key == values[1].key:
            return True
        pair = self.pair(mine, other)
        both = None if pair.selection.empty else settled.agreeing_elements(pair, self.runs)
        return not pair.selection.empty if both is None else near_share(*both) > SHARE

    @cached_property
    def operations(self) -> list[Numbers]:
        """Pairs of operations in order, None where a side has none.

        By name, module and order; where what a pair reads was given by operations that aren't
        paired, as those of branches in another order, by value, if two results are close.
        """
        if budget.spent():
            return []
        left, right = (run.operations for run in self.runs)
        by_name = [both for both in self._aligned() if self._same_weights(*both)]
        partner = self._following(dict(by_name))
        rest, free = _unpaired(partner, len(left)), _unpaired(_turned(partner), len(right))
        if rest and free and not budget.spent():
            partner |= self._by_value(rest, free)
        back = _turned(partner)
        for mine, other in by_name:
            alone = mine not in partner and other not in back and self._compatible(mine, other)
            if alone:
                partner[mine], back[other] = other, mine
        outputs = [*zip(*(run.outputs for run in self.runs), strict=False)]
        for n, m in outputs:
            mine, other = self.runs[0].values[n].given, self.runs[1].values[m].given
            if min(mine, other) < 0 or mine in partner or other in back:
                continue
            if self.pair(n, m).known and self.shares(n, m):  # outputs stand for each other
                partner[mine], back[other], self.taken[n] = other, mine, m
                self.by_ends.add((mine, other))
                self._note(n, m)
        self._note_initial([both for both in by_name if partner.get(both[0]) == both[1]])
        for mine, other in sorted(partner.items()):
            ours, theirs = left[mine], right[other]
            if (mine, other) in self.by_ends:
                continue
            if not self._reads_matched(ours, theirs):
                if not self._joins(ours, theirs):
                    continue
                self.by_ends.add((mine, other))
                self.joined.add((mine, other))
            for n, m in self.ends(mine, other, "gives"):
                self._note(n, m)
        # what stands in one place of both programs, as two functions behind the same layer do
        for ends in [*partner.items()] if self.sides.whole else ():
            gives = [both for both in self.ends(*ends, "gives") if self.pair(*both).compared]
            reads = self.ends(*ends, "reads")
            # (a + b) + c and (a + c) + b are near, and no sum inside stands for one of the other
            if any(self.shares(*both) for both in gives):
                reads = [both for both in reads if self.shares(*both)]
            outputs += reads
        for n, m in outputs if self.sides.whole else ():
            mine, other = self.runs[0].values[n].given, self.runs[1].values[m].given
            if min(mine, other) < 0 or mine in partner or other in back:
                continue
            if self.pair(n, m).compared and self._reads_what_both_have(n, m):
                partner[mine], back[other] = other, mine
                self.joined.add((mine, other))
                self.by_ends.add((mine, other))
                self._note(n, m)
        back |= {other: mine for mine, other in self.further}
        return _in_order(len(left), len(right), partner, back, self.further)

    def _aligned(self) -> list[tuple[int, int]]:
        """Pairs operations by name, module and order: where one side runs more of them, as for
        other samples or other steps of a loop, those that give what the other side lacks are left
        out."""
        left, right = (run.operations for run in self.runs)
        if [(op.op, op.path) for op in left] == [(op.op, op.path) for op in right]:
            return aligned(left, right)
        kept = [self._in_common(side) for side in (0, 1)]
        pairs = _with_other_names(kept[0], kept[1], aligned(*kept))
        return [(kept[0][n].number, kept[1][m].number) for n, m in pairs]

    def _in_common(self, side: int) -> list[Operation]:
        """Returns a side's operations that give something which the other side may have."""
        own, earlier = self.sides.own[side], self.sides.earlier[side]
        kept, begun = list[Operation](), own is None
        run = self.runs[side]
        handed = operations_between(run, self.sides.handed[side], ())[0]
        for op in run.operations:
            owned = any(_marked(own, n) for n in op.gives)
            begun = begun or owned
            # what stands before the other side's part was computed elsewhere
            before = not begun or (op.number in handed and not owned)
            before &= any(_marked(earlier, n) for n in op.gives)
            lacked = op.gives and all(_marked(self.sides.marks[side], n, "all") for n in op.gives)
            if not before and not lacked:
                kept.append(op)
        return kept

    def ends(self, mine: int, other: int, which: str) -> list[tuple[int, int]]:
        """Pairs what two operations read or give, ``which``, in their order; where one side has
        more of it, as of a list of steps, those that the other side may have. [] of what is read
        where that doesn't tell which."""
        every: list[Sequence[int]] = [
            getattr(run.operations[n], which)
            for run, n in zip(self.runs, (mine, other), strict=True)
        ]
        if len(every[0]) != len(every[1]):
            common: list[Sequence[int]] = [
                [n for n in some if self._may_have(k, n)] for k, some in enumerate(every)
            ]
            if len(common[0]) == len(common[1]):
                every = common
            elif which == "reads":
                return self._in_order(every)
        return [*zip(*every, strict=False)]

    def _in_order(self, operands: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Pairs all that the operation which reads less reads with what is matched to it, in its
        order; [] where something has no such partner."""
        short, long = sorted(operands, key=len)
        turned = short is operands[1]
        pairs, later = list[tuple[int, int]](), iter(long)
        for number in short:
            for partner in later:
                both = (partner, number) if turned else (number, partner)
                keys = {self.runs[k].values[n].key for k, n in enumerate(both)}
                if len(keys) == 1 or self.values[0].get(both[0]) == both[1]:
                    pairs.append(both)
                    break
        return pairs if len(pairs) == len(short) else []

    def _may_have(self, side: int, number: int) -> bool:
        """Whether the other side may have some of a value."""
        own = self.sides.own[side]
        owned = own is None or _is_weight(self.runs[side], number) or _marked(own, number)
        return owned and not _marked(self.sides.marks[side], number, "all")

    def _note_initial(self, partners: Sequence[tuple[int, int]]) -> None:
        """Pairs what both runs are given: the same bits, or what paired operations read."""
        left, right = self.runs
        keys = {v.key: m for m, v in reversed([*enumerate(right.values)]) if v.given < 0}
        for n, value in enumerate(left.values):
            if value.given < 0 and value.key in keys:
                self._note(n, keys[value.key])
        for mine, other in partners:
            ours, theirs = left.operations[mine], right.operations[other]
            alike = zip(ours.reads, theirs.reads, strict=False) if ours.op == theirs.op else ()
            for n, m in alike:
                a, b = left.values[n], right.values[m]
                # two factors that differ are arguments: of 0.0447 x^3 in one GELU and 0.5 x in
                # another, say, which stand for each other by name alone
                factors = prod(a.shape) == prod(b.shape) == 1 and INPUT not in (a.role, b.role)
                if max(a.given, b.given) < 0 and not (factors and a.key != b.key):
                    self._note(n, m)

    def _reads_what_both_have(self, mine: int, other: int) -> bool:
        """Whether two values are computed from the same, besides single numbers, or one of them
        from more, as with a bias: where both have arrays of their own, these may be why."""
        sides = zip(self.runs, (mine, other), self.values, strict=True)
        return not self._has_others(
            [operations_between(run, [n], some)[1] for run, n, some in sides]
        )

    def _has_others(self, reached: Sequence[Iterable[int]]) -> bool:
        """Whether among the values of both sides are arrays that stand for none of the other's."""
        return all(
            any(n not in bounds and prod(run.values[n].shape) > 1 for n in numbers)
            for run, numbers, bounds in zip(self.runs, reached, self.values, strict=True)
        )

    def _joins(self, ours: Operation, theirs: Operation) -> bool:
        """Whether two operations of one name end two ways to compute the same: they come from
        values that are matched with each other, and most of what they give is near or the same
        operations run, as a maximum over another axis may be among them."""
        before = [
            operations_between(run, op.reads, bounds)
            for run, op, bounds in zip(self.runs, (ours, theirs), self.values, strict=True)
        ]
        ends = [
            {*reached} & bounds.keys()
            for (_, reached), bounds in zip(before, self.values, strict=True)
        ]
        if {self.values[0][n] for n in ends[0]} != ends[1]:
            return False
        inside = [
            [(run.operations[n].op, run.operations[n].path) for n in numbers]
            for run, (numbers, _) in zip(self.runs, before, strict=True)
        ]
        pairs = [self.pair(*both) for both in self.ends(ours.number, theirs.number, "gives")]
        if (
            self.sides.whole
            and inside[0] == inside[1]
            and not self._has_others([n for _, n in before])
        ):
            return any(pair.compared for pair in pairs)
        return any(not p.selection.empty and self.shares(p.left, p.right) for p in pairs)

    def _following(self, by_name: dict[int, int]) -> dict[int, int]:
        """Returns the pairs whose results are near, or whose operands come from pairs and are apart
        already: others stand for each other by chance, as those of branches in another order."""
        left, right = self.runs
        partner = dict[int, int]()
        for mine, other in sorted(by_name.items()):
            reads, gives = (self.ends(mine, other, which) for which in ("reads", "gives"))
            follows = self._compatible(mine, other)
            for n, m in reads:
                a, b = left.values[n], right.values[m]
                given = min(a.given, b.given) < 0 or partner.get(a.given) == b.given
                follows &= given or a.key == b.key
            must_agree = [both for both in gives if self.pair(*both).compared]
            # other weights are apart, but may be those of operations that were folded together
            computed = [both for both in reads if not _is_weight(left, both[0])]
            apart = any(self.pair(*both).compared and not self.shares(*both) for both in computed)
            near = any(self.shares(*both) for both in must_agree)
            if near or (follows and (apart or not must_agree)):
                partner[mine] = other
        return partner

    def _compatible(self, mine: int, other: int) -> bool:
        """Whether two operations give values of one shape, where neither run lacks anything."""
        if not self.sides.whole:
            return True
        left, right = self.runs
        ends = zip(left.operations[mine].gives, right.operations[other].gives, strict=False)
        return all(left.values[n].shape == right.values[m].shape for n, m in ends)

    def _reads_matched(self, ours: Operation, theirs: Operation) -> bool:
        """Whether all that two operations read is matched, place by place or in the other order."""
        left, right = self.runs

        def alike(n: int, m: int) -> bool:
            a, b = left.values[n], right.values[m]
            if a.key == b.key or self.values[0].get(n) == m:
                return True
            return max(a.given, b.given) < 0 and self.pair(n, m).known

        pairs = self.ends(ours.number, theirs.number, "reads")
        turned = [*zip(ours.reads, reversed(theirs.reads), strict=False)]
        if not pairs:
            return len(ours.reads) == len(theirs.reads)
        return all(alike(*both) for both in pairs) or (
            len(pairs) == 2 and all(alike(*both) for both in turned)
        )

    def _same_weights(self, mine: int, other: int) -> bool:
        """Whether two operations don't read arrays that the other run reads elsewhere."""
        left, right = self.runs
        reads = zip(left.operations[mine].reads, right.operations[other].reads, strict=False)
        for n, m in reads:
            a, b = left.values[n], right.values[m]
            given = max(a.given, b.given) < 0 and a.floating and prod(a.shape) > 1
            elsewhere = a.key in self._given[1] and b.key in self._given[0]
            if given and a.key != b.key and elsewhere:
                return False
        return True

    @cached_property
    def _given(self) -> tuple[set, set]:
        first, second = ({v.key for v in run.values if v.given < 0} for run in self.runs)
        return first, second

    def _note(self, mine: int, other: int) -> None:
        """Has two values bound regions, unless it isn't known what of them must agree, or they are
        other weights, which may be folded into more."""
        left, right = self.runs
        folded = _is_weight(left, mine) and _is_weight(right, other)
        if folded and left.values[mine].key != right.values[other].key:
            return
        if not self.pair(mine, other).known:
            return
        self.values[0].setdefault(mine, other)
        self.values[1].setdefault(other, mine)

    def _by_value(self, rest: Sequence[int], free: Sequence[int]) -> dict[int, int]:
        """Pairs operations that are left over by values that are close on two inputs; on one only
        where no other value is as close."""
        if not self._computing(rest, free):
            return {}
        again: Runs | None = None
        with budget.Ending():
            again = None if self.sides.again is None else self.sides.again()
        if again is None:  # it can't be run on others, or not in time
            self.sides.again = None
        others = again or self.runs
        candidates = (
            self._candidates(0, rest, others[0]),
            self._candidates(1, free, others[1]),
        )
        met = dict[int, int]()
        for ours, theirs, order in by_value.matched(*candidates, alone=again is None):
            mine, other = ours.operation, theirs.operation
            if met.setdefault(mine, other) != other:
                self.further.append((mine, other))
            pair = self.pair(ours.number, theirs.number)
            values = self.runs[0].values[pair.left], self.runs[1].values[pair.right]
            turned = len(values[0].shape) != len(values[1].shape) or order != (*range(len(order)),)
            count = prod(ours.shape)
            if turned or pair.compared != count:
                pair.selection = Selection((ours.lines, theirs.lines), turned=order)
                pair.known, pair.compared = True, count
            self.taken[ours.number] = theirs.number
            self.by_ends.add((mine, other))
            self._note(ours.number, theirs.number)
        return met

    def settle(self, difference: Difference) -> None:
        """Has no verdict rest on what was not compared or follows from a size, and says why."""
        marks = [marks for marks in self.sides.marks if marks is not None]
        # a piece behind a state or a cache has its positions from there, and nothing from its size
        behind = self.sides.piece is not None or any(self.sides.own)
        if not self.sides.whole and not behind:
            settled.leave_out_sizes(difference)
        why = settled.BRANCH if any(each.repetitions for each in marks) else settled.SIZES
        settled.give_reasons(difference, why if marks else "")

    def _computing(self, rest: Sequence[int], free: Sequence[int]) -> bool:
        sides = zip(self.runs, (rest, free), strict=True)
        return all(
            any(not by_value.moves(run, run.operations[n]) for n in some) for run, some in sides
        )

    def _candidates(self, side: int, some: Sequence[int], again: Run) -> list[by_value.Candidate]:
        run = self.runs[side]
        there = dict(aligned(run.operations, again.operations))
        found = []
        for number in some:
            op = run.operations[number]
            if number not in there:
                continue
            moves = by_value.moves(run, op)
            other = again.operations[there[number]]
            for n, m in zip(op.gives, other.gives, strict=False):
                box = self._box(side, n)
                one = None if box is None else by_value.candidate(run, again, n, m, box, moves)
                found += [] if one is None else [one]
        return found

    def _box(self, side: int, number: int) -> tuple[Lines, ...] | None:
        """Returns the lines of a value along each axis that don't change; None: there are none, or
        something on them changes."""
        value, marks = self.runs[side].values[number], self.sides.marks[side]
        lines: list[Lines] = [ALL] * len(value.shape)
        mark = np.zeros((), bool) if marks is None else marks.of(number)
        if mark is None or not prod(value.shape):
            return None
        for axis in range(mark.ndim):
            if mark.shape[axis] > 1:
                other = tuple(k for k in range(mark.ndim) if k != axis)
                free = ~mark.any(axis=other)
                free = free if free.any() else ~mark.all(axis=other)
                at = np.flatnonzero(free)
                lines[axis], mark = as_lines(at), mark.take(at, axis)
        return None if mark.any() or not mark.size else tuple(lines)


def _with_other_names(
    left: Sequence[Operation], right: Sequence[Operation], pairs: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Adds to pairs of operations those between two of them that are alike but for the name of
    their module, as the second model's layers in Keras have other numbers."""
    every, start = list[tuple[int, int]](), (0, 0)
    for end in [*pairs, (len(left), len(right))]:
        ours, theirs = (
            [replace(op, path="") for op in side[begin:stop]]
            for side, begin, stop in zip((left, right), start, end, strict=True)
        )
        if ours and theirs:
            every += [(start[0] + n, start[1] + m) for n, m in aligned(ours, theirs)]
        every.append(end)
        start = end[0] + 1, end[1] + 1
    return every[:-1]


def _is_given(value: Value) -> bool:
    """Whether it is an input of more than a number."""
    return value.given < 0 and value.role == INPUT and prod(value.shape) > 1


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


def _unpaired(partner: dict[int, int], count: int) -> list[int]:
    return [n for n in range(count) if n not in partner]


def _turned(partner: dict[int, int]) -> dict[int, int]:
    return {other: mine for mine, other in partner.items()}


def _in_order(
    count: int,
    size: int,
    partner: dict[int, int],
    back: dict[int, int],
    further: Sequence[tuple[int, int]],
) -> list[Numbers]:
    """Returns all operations in the order of the left, the right's own ones between."""
    pairs, next_right = list[Numbers](), 0
    for mine in range(count):
        other = partner.get(mine)
        if other is not None and other >= next_right:
            pairs += [(None, m) for m in range(next_right, other) if m not in back]
            next_right = other + 1
        pairs.append((mine, other))
        pairs += [both for both in further if both[0] == mine]
    return pairs + [(None, m) for m in range(next_right, size) if m not in back]
