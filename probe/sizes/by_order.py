"""Sweeps by order: compares orders and roundings, so that no finite operands can hide one.

Every value of the axis is revealed and compared with the largest one: outputs that add the same
products in another order, or round elsewhere, are found even where the bits agree by luck.
Summations that are known from different values are tried first: most values cost a few check calls.
That is of finite operands; `probe order window` tells what infinities and NaN get into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe.case.case import Case
from probe.case.errors import TargetError
from probe.case.layout import CONTIGUOUS
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.runs import CaseRun, ComparedShapes, Revealer, run_case
from probe.order import window
from probe.order.orders import Orders
from probe.order.summation import Row, Summation
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
    def every(self) -> list[AtValue]:
        return [*self.values, self.base]

    @property
    def compared(self) -> int:
        """Returns outputs of all values that must agree with those of the largest."""
        return sum(value.compared for value in self.values)

    @property
    def differing(self) -> int:
        """Returns those of them that are added differently."""
        return sum(value.outputs for value in self.values)

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands every value's orders were replayed."""
        return min(value.orders.sets if value.orders else 0 for value in self.every)

    @property
    def strange(self) -> bool:
        """Returns whether a value does not repeat its own bits, at one address or at all."""
        return any(value.refusal in ("alignment", "nondeterministic") for value in self.every)

    @property
    def summations(self) -> list[Summation]:
        """Returns all summations, those of the largest value first."""
        known = [value.orders for value in (self.base, *self.values) if value.orders]
        return list(dict.fromkeys(each for orders in known for each in orders.summations))

    def to_json(self) -> Row:
        """Returns what ``probe sweep --by order --json`` prints for one target."""
        known = [value.orders for value in self.every if value.orders]
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
                for value in self.every
                if value.refusal
            ],
            "orders": [self._summation_json(summation) for summation in self.summations],
            "calls": sum(orders.calls + orders.checks for orders in known),
            "seconds": round(sum(orders.seconds for orders in known), 3),
        }

    def _summation_json(self, summation: Summation) -> Row:
        """Returns one summation, and at which values how many outputs have it."""
        counts = {
            value.at: int(value.orders.counts()[value.orders.summations.index(summation)])
            for value in self.every
            if value.orders and summation in value.orders.summations
        }
        return summation.to_json(self.case.dtype) | {
            "outputs": sum(counts.values()),
            "at": [window.shown_axis_value(self.vary, at) for at in sorted(counts) if counts[at]],
        }

    def rows(self, run_id: str) -> dict[str, list[Row]]:
        """Returns rows of the store's tables ``reveals``, ``orders`` and ``roundings``."""
        place = {"run_id": run_id, "case_id": self.case.id, "target": self.target}
        place |= {"vary": self.vary}
        at = [(value.orders, place | {"at": value.at}) for value in self.every if value.orders]
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
        self.session, self.lost, self.known = session, 0, Revealer()

    def at(self, case: Case, value: int) -> tuple[AtValue, CaseRun | None]:
        try:
            side = self.known.reveal(run_case(self.session, case), self.session)
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
