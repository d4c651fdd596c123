"""Whether sizes agree by the order of their sums, which no finite operands can hide.

Of a case on a target (``sweep_by_order``): every value of the axis is revealed and compared with
the largest one. Outputs that add the same products in another order, or round elsewhere, are found
even where the bits agree by luck. Summations that are known from different values are tried first:
most values cost a few check calls. `probe order window` tells what infinities and NaN get into.

Of a model: whether two runs of different sizes agree, by the bits of what is kept and by order.
Bits that agree on one input prove little about the next. So each size meets the user's own arrays,
four other contents (large ones of either sign, two random ones), and the user's numbers scaled:
by little, and through the whole range of exponents, which rounds sums of another order otherwise.

Orders are asked of the operations, one by one. Which elements of both runs must agree is found by
repeating the larger one (:mod:`probe.diff.repeated`). A sum is asked for its order on both sides,
alone, at its own shapes. An operation that moves elements or rounds once has no choice, and the
very same call none either. A function of an element is asked place by place with the same numbers,
which can refute it and proves nothing. All else is in the way of a proof, and named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import ProbeError, TargetError
from probe.case.layout import CONTIGUOUS
from probe.case.operands import normal
from probe.diff import alone
from probe.diff.alone import Adds, Alone, Known, address_in_16, as_comparison, unequal_bits
from probe.diff.causes import (
    RANDOM_COUNT,
    SEARCHED,
    SEARCHED_SEED,
    TELLING_COUNT,
    PlacedFunction,
    telling_numbers,
)
from probe.diff.difference import Difference, Region, compare_runs
from probe.diff.match import Repetitions, RunningMatch
from probe.diff.repeated import (
    HALF_OF_DIGITS,
    Marks,
    aligned,
    close,
    compact,
    contents,
    is_mask,
)
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.runs import CaseRun, ComparedShapes, Revealer, run_case
from probe.order import window
from probe.order.orders import Orders
from probe.order.semantics import Each, Meaning, Moves, Unknown, row_of
from probe.order.summation import Row, Summation
from probe.record.contract import CONSTANT, WEIGHT
from probe.record.recording import Run
from probe.sweep.plan import axis_values
from probe.targets import budget
from probe.targets.launch import AnySession

# Processes that may be lost one after the other.
PATIENCE = 3


@dataclass
class AtValue:
    """One value of the axis against the largest one.

    ``compared``: outputs that must agree; of these ``unknown`` have no proved summation on one
    side, and ``outputs`` are added differently. ``causes`` counts those by
    ``order``, ``rounding``, ``precision`` and their sums; ``first`` is the flat index of the first,
    None if there is none. ``orders`` is None where ``refusal`` says why: ``nondeterministic``,
    ``not-a-sum``, ``not-asked`` (pools), or what the target's failure was.
    """

    at: int
    orders: Orders | None = None
    refusal: str = ""
    compared: int = 0
    unknown: int = 0
    outputs: int = 0
    first: int | None = None
    causes: Counter[str] = field(default_factory=Counter)


@dataclass
class ByOrder:
    """A sweep by order of one case on one target. ``values`` are all but the largest one."""

    case: Case
    target: str
    vary: str
    base: AtValue
    values: list[AtValue] = field(default_factory=list)

    @property
    def all_values(self) -> list[AtValue]:
        return [*self.values, self.base]

    @property
    def compared(self) -> int:
        """Outputs of all values that must agree with those of the largest."""
        return sum(value.compared for value in self.values)

    @property
    def differing(self) -> int:
        """Those of them that are added differently."""
        return sum(value.outputs for value in self.values)

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands every value's orders were replayed."""
        return min(value.orders.sets if value.orders else 0 for value in self.all_values)

    @property
    def strange(self) -> bool:
        """Whether a value does not repeat its own bits, at one address or at all."""
        return any(value.refusal in ("alignment", "nondeterministic") for value in self.all_values)

    @property
    def summations(self) -> list[Summation]:
        """All summations, those of the largest value first."""
        revealed = [value.orders for value in (self.base, *self.values) if value.orders]
        return list(dict.fromkeys(each for orders in revealed for each in orders.summations))

    def to_json(self) -> Row:
        """What ``probe sweep --by order --json`` prints for one target."""
        revealed = [value.orders for value in self.all_values if value.orders]
        return {
            "target": self.target,
            "by": "order",
            "vary": self.vary,
            "against": window.shown_axis_value(self.vary, self.base.at),
            "compared": self.compared,
            "differing": self.differing,
            "unknown": sum(value.unknown for value in self.values),
            **({} if self.vary == "layout" else {"layouts": [self.case.layout]}),
            "sets": self.sets,
            "lengths": [
                {
                    self.vary: window.shown_axis_value(self.vary, value.at),
                    "outputs": value.outputs,
                    "causes": dict(sorted(value.causes.items())),
                    "first": value.first,
                }
                for value in self.values
                if value.outputs
            ],
            "refused": [
                {self.vary: window.shown_axis_value(self.vary, value.at), "why": value.refusal}
                for value in self.all_values
                if value.refusal
            ],
            "orders": [self._summation_json(summation) for summation in self.summations],
            "calls": sum(orders.calls + orders.checks for orders in revealed),
            "seconds": round(sum(orders.seconds for orders in revealed), 3),
        }

    def _summation_json(self, summation: Summation) -> Row:
        """One summation, and at which values how many outputs have it."""
        counts = {
            value.at: int(value.orders.counts()[value.orders.summations.index(summation)])
            for value in self.all_values
            if value.orders and summation in value.orders.summations
        }
        return summation.to_json(self.case.dtype) | {
            "outputs": sum(counts.values()),
            "at": [window.shown_axis_value(self.vary, at) for at in sorted(counts) if counts[at]],
        }

    def rows(self, run_id: str) -> dict[str, list[Row]]:
        """Rows of the store's tables ``reveals``, ``orders`` and ``roundings``."""
        place = {"run_id": run_id, "case_id": self.case.id, "target": self.target}
        place |= {"vary": self.vary}
        at = [(value.orders, place | {"at": value.at}) for value in self.all_values if value.orders]
        return {
            "reveals": [row for orders, where in at for row in orders.rows(where)],
            "orders": [summation.order_row() for summation in self.summations],
            "roundings": [summation.rounding_row() for summation in self.summations],
        }


def sweep_by_order(
    session: AnySession,
    case: Case,
    values: Sequence[int],
    vary: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ByOrder:
    """Reveals ``case`` at every value of the axis and compares each with the largest.

    ``session``: started. ``values``: two or more of ``vary`` (``length``, ``batch``, ``filters``);
    ``vary`` None: the length, of a dense layer the batch. ``progress(done, total)``. What a target
    refuses is reported in the result; TargetError only after ``PATIENCE`` lost processes in a row.
    InputError: a value does not fit the case.
    """
    vary = window.axis_of(case, vary)
    shorter, against = axis_values(values, vary)
    case = case.with_(length=None) if vary == "length" else window.case_for(case, vary, values)
    case = case.with_(layout=CONTIGUOUS) if vary == "layout" else case
    cases = {value: window.case_at(case, vary, value) for value in (*shorter, against)}
    work = _RevealWork(session)
    base, right = work.at(cases[against], against)
    result = ByOrder(case, session.target.text, vary, base)
    for done, value in enumerate(reversed(shorter), 1):
        at, left = AtValue(value), None
        with budget.Ending():  # what is known of the others stays
            budget.require_time()
            at, left = work.at(cases[value], value)
        if left is None and not at.refusal:
            at.refusal = f"not asked: {budget.spent()}"
        if left and right and left.orders and right.orders:
            pairs = OutputPairs.must_agree(ComparedShapes(case, vary, value, against, None))
            both = Comparison(case, left, right, pairs)
            at.unknown, at.compared = both.unknown, both.compared
            at.causes = Counter({cause: len(which) for cause, which in both.apart.items()})
            at.outputs = both.by_order
            if at.outputs:
                places = both.pairs.left[np.concatenate(list(both.apart.values()))]
                at.first = int((places @ np.array([both.left.case.filters, 1])).min())
        result.values.insert(0, at)
        if progress:
            progress(done, len(shorter))
    return result


class _RevealWork:
    """The values' reveals, one after the other, with what was learnt so far."""

    def __init__(self, session: AnySession) -> None:
        self.session, self.lost, self.revealer = session, 0, Revealer()

    def at(self, case: Case, value: int) -> tuple[AtValue, CaseRun | None]:
        try:
            side = self.revealer.reveal(run_case(self.session, case), self.session)
        except TargetError as error:
            if not self.session.alive:
                self.lost += 1
                if self.lost >= PATIENCE:
                    raise
                self.session.revive()
            return AtValue(value, refusal=f"{error.kind}: {error.why}"), None
        self.lost = 0
        # pools are replayed, and no question about their order is put to them
        refusal = side.refusal or "not-asked" * (side.orders is None)
        return AtValue(value, side.orders, refusal), side


# Of a model: operands, what of two runs is kept, and the orders of operations.


Arrays = Mapping[str, np.ndarray]

# Sets of operands: the user's own, other contents, and scaled ones.
CONTENTS, SETS = 4, 8

SEED = 52_000

# How far before or behind its place in the full run something kept is looked for.
MOVED_BY = 8


def operand_set(arrays: Arrays, along: Mapping[str, int], number: int) -> Arrays:
    """The arrays with the numbers of a set. Of ``CONTENTS`` only those ``along`` an axis change;
    masks stay, as they do behind a place."""
    if number == 0:
        return arrays
    if number <= CONTENTS:
        where = {
            name: np.full(array.shape, name in along and not is_mask(array))
            for name, array in arrays.items()
        }
        return list(contents(arrays, where))[number - 1]
    changed = {}
    for at, (name, array) in enumerate(arrays.items()):
        if str(array.dtype) in floats.FORMATS and array.dtype != np.uint16 and not is_mask(array):
            draw = normal(SEED + 101 * number + at, "x", array.shape)
            factor = np.exp2(3 * draw) if number % 2 else 1 + draw / 4
            with np.errstate(over="ignore"):
                array = (array * factor).astype(array.dtype)
        changed[name] = array
    return changed


def places_behind(
    arrays: Arrays, along: Mapping[str, int], start: int, stop: int = 0
) -> dict[str, np.ndarray]:
    """Which elements lie outside [``stop``, ``start``) of the axes. None of masks do, as they say
    which of it is padding."""
    where = {}
    for name, array in arrays.items():
        where[name] = np.zeros(array.shape, bool)
        if (axis := along.get(name)) is not None and not is_mask(array):
            inside = np.isin(np.arange(array.shape[axis]), np.arange(stop, start))
            where[name] |= ~inside.reshape(-1, *(1,) * (array.ndim - axis - 1))
    return where


@dataclass(frozen=True)
class KeptPart:
    """Along an ``axis`` of an output: [start, stop) of the full run is [start + offset, stop +
    offset) of the short one."""

    axis: int
    start: int
    stop: int
    offset: int = 0


# What of an output is kept; empty: all of it.
Box = tuple[KeptPart, ...]


def box_of(mask: np.ndarray) -> Box | None:
    """The smallest box that has all of a mask, by the axes of which it takes a part; None: the mask
    is empty."""
    if not mask.any():
        return None
    parts = []
    for axis in range(mask.ndim):
        line = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if len(line) < mask.shape[axis]:
            parts.append(KeptPart(axis, int(line[0]), int(line[-1]) + 1))
    return tuple(parts)


def box_index(box: Box, short: bool, rank: int) -> tuple[slice, ...]:
    """The box as an index into an output: of the short run, or of the full one."""
    index = [slice(None)] * rank
    for part in box:
        moved = part.offset if short else 0
        index[part.axis] = slice(part.start + moved, part.stop + moved)
    return tuple(index)


def placed(short: np.ndarray, kept: np.ndarray, box: Box, shape: Sequence[int]) -> Box | None:
    """The box, with offsets, in which a short run has what is ``kept`` of an output of the full
    run's ``shape``, but for rounding; None: nowhere."""
    if short.ndim != len(shape):
        return None
    axes = [axis for axis, (n, m) in enumerate(zip(short.shape, shape, strict=True)) if n != m]
    if not set(axes) <= {part.axis for part in box}:
        return None
    most = max((abs(shape[axis] - short.shape[axis]) for axis in axes), default=0)
    # at its place first, then where sizes before the content may differ, then from the end
    offsets = [0, *(sign * n for n in range(1, min(most, MOVED_BY) + 1) for sign in (-1, 1)), -most]
    for offset in dict.fromkeys(offsets):
        moved = tuple(
            KeptPart(p.axis, p.start, p.stop, offset if p.axis in axes else 0) for p in box
        )
        fits = all(
            p.start + p.offset >= 0 and p.stop + p.offset <= short.shape[p.axis] for p in moved
        )
        if fits and near(short[box_index(moved, True, short.ndim)], kept):
            return moved
    return None


def near(left: np.ndarray, right: np.ndarray, units: float = 0.0) -> bool:
    """Whether two arrays hold the same numbers, but for rounding; integers in most places.
    ``units``: as of ``close``."""
    dtype = str(left.dtype)
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if dtype not in floats.FORMATS:
        return left.size == 0 or float(np.mean(left == right)) > HALF_OF_DIGITS
    return bool(close(left, right, dtype, units).all())


def elements_apart(left: np.ndarray, right: np.ndarray, dtype: str = "") -> int:
    """How many elements have different bits. ``dtype``: where the container doesn't say it."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return max(left.size, right.size)
    first, second = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return int(unequal_bits(first, second, dtype or str(left.dtype)).sum())


# After which the next operation of a run is in the way.
SECONDS = 120.0

# How far numbers are moved along a function's places.
SHIFTS = 0, 1, 3, 8, 16

NOT_RUN = "it can't be run alone"
NOT_FOLLOWED = "not all that is kept was followed through its operations"


def compared(left: Run, right: Run, marks: Marks, before: Fraction = Fraction(0)) -> Difference:
    """A smaller run and a larger one, whose ``marks`` tell what the smaller one lacks, compared
    operation by operation. ``before``: which part of the larger one stands before the smaller
    one's."""
    return compare_runs(
        RunningMatch((left, right), Repetitions((None, marks), (Fraction(0), before)))
    )


def absorb(marks: Marks, sides: Sequence[tuple[Run, Run]]) -> None:
    """Takes back what changes behind a size, but reads zeros there in either run: a window at the
    border and one in padding. ``sides``: both runs on independent operands; what is close in all
    of them, at the same place, is the same."""
    first = sides[0]
    if any(
        [len(run.operations) for run in both] != [len(run.operations) for run in first]
        for both in sides
    ):
        return
    for left_at, right_at in aligned(first[0].operations, first[1].operations):
        for which, number in enumerate(first[1].operations[right_at].gives):
            mark = marks.of(number)
            shape = first[1].values[number].shape
            if (
                mark is None
                or not mark.any()
                or first[1].values[number].dtype not in floats.FORMATS
            ):
                continue
            changed = np.array(np.broadcast_to(mark, shape))
            same: Any = True
            for left, right in sides:
                gives = left.operations[left_at].gives, right.operations[right_at].gives
                if which >= min(map(len, gives)):
                    break
                small, large = left.array(gives[0][which]), right.array(gives[1][which])
                if small is None or large is None or small.ndim != large.ndim:
                    break
                common = tuple(slice(n) for n in np.minimum(small.shape, large.shape))
                same = same & close(
                    small[common], large[common], left.values[gives[0][which]].dtype
                )
            else:
                changed[common] &= ~same
                marks.changed[number] = compact(changed)


def covers(difference: Difference, boxes: Sequence[Box | None]) -> bool:
    """Whether all that is kept of the right run's outputs was found to agree with the left's."""
    for pair, box in zip(difference.outputs, boxes, strict=True):
        if box is None:
            continue
        shape = difference.right.values[pair.right].shape
        places = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
        kept = places[box_index(box, False, len(shape))]
        if not np.isin(kept, pair.selection.elements(places, 1)).all():
            return False
    return True


def reads_everything(run: Run, marks: Marks) -> str:
    """The first operation all of whose results change with what only a part of its operands holds:
    a mean over the padded axis, say; empty if there is none."""
    for op in run.operations:
        gives, reads = ([marks.of(n) for n in numbers] for numbers in (op.gives, op.reads))
        if any(mark is not None and mark.all() and mark.size for mark in gives) and not any(
            mark is not None and mark.all() and mark.size for mark in reads
        ):
            return op.name
    return ""


@dataclass
class OrderVerdict:
    """What was found. ``verdict``: ``same``, ``differs`` or ``unknown``.

    ``name``, ``why``: the operation that adds differently, or the first that is in the way.
    ``outputs``: of sums that were compared; ``sets``: of fresh operands they were replayed on, 0
    where no sum had a choice. Of subnormal numbers nothing is said: see ``_rounds_once``.
    """

    verdict: str
    name: str = ""
    why: str = ""
    outputs: int = 0
    sets: int = 0


def by_order(difference: Difference, known: Known) -> OrderVerdict:
    """Whether all outputs of two runs that must agree are added alike, whatever the data are.

    ``known``: what was revealed of operations like these; it is added to. Stops at the first
    operation that computes differently.
    """
    begun, verdict = time.monotonic(), OrderVerdict("same")
    for region in difference.operations:
        try:
            judged = judge(region, difference, known, time.monotonic() - begun > SECONDS)
        except (ProbeError, ValueError, IndexError, KeyError) as error:
            judged = OrderVerdict("unknown", why=str(getattr(error, "why", error)))
        if judged.verdict == "differs":
            return replace(judged, name=region.name)
        verdict.outputs += judged.outputs
        verdict.sets = min(verdict.sets or judged.sets, judged.sets or verdict.sets)
        if judged.verdict == "unknown" and verdict.verdict == "same":
            verdict.verdict, verdict.name, verdict.why = "unknown", region.name, judged.why
    return verdict


def judge(region: Region, difference: Difference, known: Known, late: bool) -> OrderVerdict:
    """Judges one operation, or a region of several. Errors: what can't be asked of its sum."""
    left, right = difference.left, difference.right
    same, unknown = OrderVerdict("same"), partial(OrderVerdict, "unknown")
    op = difference.last_operations(region)[0][1]
    meaning = op.meaning
    if isinstance(meaning, Moves):
        return same
    if region.left is None or region.right is None:
        return unknown(why="it exists in one run only")
    if region.grouped:
        return unknown(why="it is one of several operations that together match several others")
    if not region.compared:
        found = all(pair.decided for pair in region.gives)
        return same if found else unknown(why="it is unknown what must agree")
    # a function that gives integers or truth values, as comparisons do, rounds nothing
    counts = isinstance(meaning, Each) and not any(left.values[n].floating for n in op.gives)
    if _rounds_once(meaning) or counts or one_call(region, left, right):
        return same
    if isinstance(meaning, Unknown):
        return unknown(why="it is unknown what it computes")
    if late:
        return unknown(why=f"{SECONDS:.0f} seconds were over")
    if meaning.sums:
        return judge_sums(region, left, right, known)
    if isinstance(meaning, Each) and (differing := _differing_by_place(region, left, right)):
        why = f"{differing:,} outputs are computed differently at their positions"
        return OrderVerdict("differs", why=why)
    word = meaning.word or region.op
    return unknown(why=f"whether {word} gives the same bits at every position is not proved")


def one_call(region: Region, left: Run, right: Run) -> bool:
    """Whether both sides run the very same call, as where no size depends on what is varied: then
    the library computes it in one way, place by place. What operands begin at is a part of it, as
    far as it decides orders: modulo 16 bytes (``address_in_16``)."""
    calls = []
    for side, op in region.last_operations(left, right):
        values = [side.values[n] for n in (*op.reads, *op.gives)]
        ends = [(v.shape, v.dtype, address_in_16(v.address)) for v in values]
        calls.append((ends, repr(op.attributes)))
    return calls[0] == calls[1] and all(pair.selection.in_place for pair in region.gives)


def _rounds_once(meaning: Meaning) -> bool:
    """Whether a result is rounded at most once, as IEEE 754 says: a compiler may fuse two.

    A choice among numbers rounds nothing, but a library may read subnormal ones as zeros in some
    places and not in others, as TensorFlow's ReLU does: what is said holds for all others.
    """
    steps = [step.meaning for step in getattr(meaning, "steps", ())] or [meaning]
    roundings = [row_of(step.word).rounds if isinstance(step, Each) else 0 for step in steps]
    known = all(
        step.exact
        or getattr(step, "kind", "") == "max"
        or (isinstance(step, Each) and step.approximate and rounds == 0)
        for step, rounds in zip(steps, roundings, strict=True)
    )
    return known and (len(steps) == 1 or sum(map(bool, roundings)) < 2)


def _sides(region: Region, left: Run, right: Run, output: int) -> alone.Sides:
    """Both sides alone. ValueError: an operation can't be run so."""
    sides = alone.isolated_sides(left, right, region, output)
    if sides is None or any(side.again is None for side in sides):
        raise ValueError(NOT_RUN)
    return sides


def judge_sums(region: Region, left: Run, right: Run, known: Known) -> OrderVerdict:
    """Compares the orders of an operation's sums. Errors: they can't be asked, with the reason."""
    verdict, differing = OrderVerdict("same"), 0
    for output, pair in enumerate(region.gives):
        if not pair.compared:
            continue
        sides = _sides(region, left, right, output)
        if any(unequal_bits(s.rerun(), s.outputs, s.value.dtype).any() for s in sides):
            raise ValueError("alone it gives different bits from in the run")
        adds = [Adds(side) for side in sides]
        for each in adds:
            # sums of as many products are added alike at most sizes: those are tried first
            key = each.kind, each.sum.summands, each.sum.bias is None
            each.reveal(np.arange(len(each.places)), known.setdefault(key, Revealer(kept=None)))
        comparison = as_comparison(adds)
        count, orders = len(comparison.pairs), [comparison.left.orders, comparison.right.orders]
        if comparison.unknown or None in orders:
            count_text = f"of {comparison.unknown or count} of {count} outputs"
            raise ValueError(f"{count_text} the order of additions is unknown")
        differing += sum(map(len, comparison.apart.values()))
        verdict.outputs += count
        verdict.sets = min(verdict.sets or comparison.sets, comparison.sets)
    if differing:
        why = f"{differing:,} of {verdict.outputs:,} outputs are added differently"
        return OrderVerdict("differs", why=why, outputs=verdict.outputs)
    return verdict


def _differing_by_place(region: Region, left: Run, right: Run) -> int:
    """How many outputs of a function differ where any one number stands at every place of both
    sides: numbers of several magnitudes, and those that few places answer differently."""
    differing = 0
    for output, pair in enumerate(region.gives):
        if not pair.compared:
            continue
        sides = _sides(region, left, right, output)
        functions = [
            PlacedFunction(side, [n for n in range(len(side.reads)) if _fixed(side, n)])
            for side in sides
        ]
        pool = normal(SEARCHED_SEED, "x", (SEARCHED,)) * np.resize([0.25, 1.0, 4.0], SEARCHED)
        numbers: list[float] = pool[:RANDOM_COUNT].tolist()
        if not any(function.fixed for function in functions):  # beside weights places differ anyway
            calls = (function.rotated(pool, shift) for function in functions for shift in SHIFTS)
            numbers += pool[telling_numbers(calls, len(pool))][:TELLING_COUNT].tolist()
        apart = np.zeros(pair.compared, bool)
        for number in numbers:
            both = zip(sides, functions, strict=True)
            left_bits, right_bits = (side.taken(function.filled(number)) for side, function in both)
            apart |= unequal_bits(left_bits, right_bits, sides[0].value.dtype).reshape(-1)
        differing += int(apart.sum())
    return differing


def _fixed(side: Alone, number: int) -> bool:
    """Whether an operand must keep its numbers: weights, and what follows from integers alone."""
    run, place = side.run, side.operation.reads[number]
    value = run.values[place]
    weights = value.given < 0 and value.role in (WEIGHT, CONSTANT)
    return value.dtype not in floats.FORMATS or weights or place in run.integral
