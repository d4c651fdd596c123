"""Sweeps by order: compares orders and roundings, so that no finite operands can hide one.

Every value of the axis is revealed and compared with the largest one: outputs that add the same
products in another order, or round elsewhere, are found even where the bits agree by luck.
Summations that are known from different values are tried first: most values cost a few check calls.
That is of finite operands; one call more a value tells whether infinities and NaN get into outputs
that have no weight for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe import window
from probe.case import Case
from probe.comparison import CaseRun, ComparedShapes, Comparison, OutputPairs, Revealer, run_case
from probe.errors import TargetError
from probe.launch import AnySession
from probe.layout import CONTIGUOUS
from probe.summation.orders import Orders
from probe.summation.summation import Row, Summation
from probe.summation.windows import reach_of_inputs
from probe.sweeps.plan import axis_values

PATIENCE = 3  # processes that may be lost one after the other

# Questions that a value may cost to certify its outputs: a sum of 2,000 products, at no edge.
BUDGET = 1024


@dataclass
class AtValue:
    """One value of the axis against the largest one.

    ``compared``: outputs that must agree; of these ``unknown`` have no proved summation on one
    side, and ``outputs`` are added differently; ``certified`` ones were tested for every addition
    and every fusion on both sides, the others are not refuted. ``causes`` counts those by
    ``order``, ``rounding``, ``precision`` and their sums; ``first`` is the flat index of the first,
    None if there is none. ``orders`` is None where ``refusal`` says why: ``nondeterministic``,
    ``not-a-sum``, ``not-asked`` (pools), or what the target's failure was. ``reached``: of all its
    outputs, those into which an infinity or a NaN gets without a weight.
    """

    at: int
    orders: Orders | None = None
    refusal: str = ""
    compared: int = 0
    unknown: int = 0
    outputs: int = 0
    certified: int = 0
    first: int | None = None
    causes: Counter[str] = field(default_factory=Counter)
    reached: int = 0


@dataclass
class ByOrder:
    """A sweep by order of one case on one target. ``values`` are all but the largest one."""

    case: Case
    target: str
    vary: str
    base: AtValue
    values: list[AtValue] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Returns outputs of all values that must agree with those of the largest."""
        return sum(found.compared for found in self.values)

    @property
    def differing(self) -> int:
        """Returns those of them that are added differently."""
        return sum(found.outputs for found in self.values)

    @property
    def certified(self) -> bool:
        """Returns whether every output of every value was tested for every addition and every
        fusion."""
        every = [*self.values, self.base]
        tested = all(one.certified == one.compared for one in self.values)
        return bool(self.compared) and tested and not any(one.refusal for one in every)

    @property
    def uncertified(self) -> str:
        """Returns how many outputs were not asked for all they add, and why; empty if all were."""
        if self.certified:
            return ""
        if not self.compared:
            return "no outputs were compared"
        count = self.compared - sum(one.certified for one in self.values)
        reasons = [one.orders.uncertified for one in [*self.values, self.base] if one.orders]
        why = next(filter(None, reasons), "")
        return f"{count:,} of {self.compared:,} outputs" + f" ({why})" * bool(why)

    @property
    def strange(self) -> bool:
        """Returns whether a value does not repeat its own bits, at one address or at all."""
        refusals = {one.refusal for one in [*self.values, self.base]}
        return not refusals.isdisjoint(("alignment", "nondeterministic"))

    @property
    def summations(self) -> list[Summation]:
        """Returns all summations, those of the largest value first."""
        known = [one.orders for one in (self.base, *self.values) if one.orders]
        return list(dict.fromkeys(each for orders in known for each in orders.summations))

    def to_json(self) -> Row:
        """Returns what ``probe sweep --by order --json`` prints for one target."""
        every = [*self.values, self.base]
        known = [one for one in every if one.orders]
        reached = [{self.vary: one.at, "outputs": one.reached} for one in every if one.reached]
        found = {
            "target": self.target,
            "by": "order",
            "vary": self.vary,
            "against": window.shown_axis_value(self.vary, self.base.at),
            "compared": self.compared,
            "differing": self.differing,
            "unknown": sum(found.unknown for found in self.values),
            **({} if self.vary == "layout" else {"layouts": [self.case.layout]}),
            "certified": self.certified,
            "uncertified": self.uncertified or None,
            "lengths": [
                {
                    self.vary: window.shown_axis_value(self.vary, found.at),
                    "outputs": found.outputs,
                    "causes": dict(sorted(found.causes.items())),
                    "first": found.first,
                }
                for found in self.values
                if found.outputs
            ],
            "refused": [
                {self.vary: window.shown_axis_value(self.vary, one.at), "why": one.refusal}
                for one in every
                if one.refusal
            ],
            "orders": [self._told(each) for each in self.summations],
            "calls": sum(one.orders.calls + one.orders.checks for one in known if one.orders),
            "seconds": round(sum(one.orders.seconds for one in known if one.orders), 3),
        }
        return found | ({"reached": reached} if reached else {})

    def _told(self, summation: Summation) -> Row:
        """Returns one summation, and at which values how many outputs have it."""
        counts = {
            one.at: int(one.orders.counts()[one.orders.summations.index(summation)])
            for one in [*self.values, self.base]
            if one.orders and summation in one.orders.summations
        }
        return summation.to_json(self.case.dtype) | {
            "outputs": sum(counts.values()),
            "at": [window.shown_axis_value(self.vary, at) for at in sorted(counts) if counts[at]],
        }

    def rows(self, run_id: str) -> dict[str, list[Row]]:
        """Returns rows of the store's tables ``reveals``, ``orders`` and ``roundings``."""
        place = {"run_id": run_id, "case_id": self.case.id, "target": self.target}
        place |= {"vary": self.vary}
        reveals = [
            row
            for one in [*self.values, self.base]
            if one.orders
            for row in one.orders.rows(place | {"at": one.at})
        ]
        return {
            "reveals": reveals,
            "orders": [each.order_row() for each in self.summations],
            "roundings": [each.rounding_row() for each in self.summations],
        }


def sweep_by_order(
    session: AnySession,
    case: Case,
    values: Sequence[int],
    vary: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    budget: int = BUDGET,
) -> ByOrder:
    """Reveals ``case`` at every value of the axis and compares each with the largest.

    ``session``: started. ``values``: two or more of ``vary`` (``length``, ``batch``, ``filters``);
    ``vary`` None: the length, of a dense layer the batch. ``budget``: how many questions a value
    may cost to certify its outputs, 0: none is asked. ``progress(done, total)``. What a target
    refuses is reported in the result; TargetError only after ``PATIENCE`` lost processes in a row.
    InputError: a value does not fit the case.
    """
    vary = window.axis_of(case, vary)
    shorter, against = axis_values(values, vary)
    case = case.with_(length=None) if vary == "length" else window.case_for(case, vary, values)
    case = case.with_(layout=CONTIGUOUS) if vary == "layout" else case
    cases = {value: window.case_at(case, vary, value) for value in (*shorter, against)}
    work = _RevealWork(session, budget)
    base, right = work.at(cases[against], against)
    result = ByOrder(case, session.target.text, vary, base)
    for done, value in enumerate(reversed(shorter), 1):
        found, left = work.at(cases[value], value)
        if left and right and left.orders and right.orders:
            pairs = OutputPairs.must_agree(ComparedShapes(case, vary, value, against, None))
            both = Comparison(case, left, right, pairs)
            found.unknown, found.compared = both.unknown, both.compared
            found.certified = int(both.certified().sum())
            found.causes = Counter({cause: len(which) for cause, which in both.apart.items()})
            found.outputs = both.by_order
            if found.outputs:
                places = both.pairs.left[np.concatenate(list(both.apart.values()))]
                found.first = int((places @ np.array([both.left.case.filters, 1])).min())
        result.values.insert(0, found)
        if progress:
            progress(done, len(shorter))
    return result


class _RevealWork:
    """The values' reveals, one after the other, with what was learnt so far."""

    def __init__(self, session: AnySession, budget: int) -> None:
        self.session, self.lost, self.known = session, 0, Revealer(budget=budget)

    def at(self, case: Case, value: int) -> tuple[AtValue, CaseRun | None]:
        try:
            side = self.known.reveal(run_case(self.session, case), self.session)
            reached = reach_of_inputs(self.session, case).inputs
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
        found = AtValue(value, side.orders, refusal)
        found.reached = 0 if refusal else int(reached.sum())
        return found, side
