"""Whether a finding fails on its targets: by the bits of its operands, or by order and rounding.

One process of each target answers for all candidates of a shrink. What a target refuses does not
fail; a process that is lost is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

import probe.explain as explain
from probe import ulp
from probe.case import Case
from probe.case.arguments import choice
from probe.case.operators import OPERATORS
from probe.errors import TargetError
from probe.explain import Explanation, Pairs, Side
from probe.kernels import Naming
from probe.launch import AnySession, open_session
from probe.order.masks import SessionOperator
from probe.order.orders import Orders
from probe.order.windows import as_windows, reveal_pool, reveal_windows
from probe.shrink import Finding
from probe.shrink.finding import Blocks
from probe.target import Target

BY = ("bits", "order")

SMALL = 256
"""Outputs up to which all are revealed, though some are asked about."""

Predicate = Callable[[Finding], bool]


@contextmanager
def failing(left: Target, right: Target | None = None, inline: bool = False) -> Iterator[Failing]:
    """A ``Failing`` with its processes started; they end with the context. TargetError."""
    with ExitStack() as stack:
        sessions = [open_session(left, inline)]
        if right is not None and right != left:
            sessions.append(open_session(right, inline))
        for session in sessions:
            stack.callback(session.close)
            session.start()
        found = Failing(sessions[0], sessions[-1])
        stack.callback(found.close)
        yield found


class Failing:
    """Predicates over findings, on one or two started sessions.

    ``runs`` counts calls of the operators.
    """

    def __init__(self, first: AnySession, second: AnySession) -> None:
        self.first, self.second, self.runs = first, second, 0
        self._orders: dict[tuple[str, str], Orders] = {}
        self._naming = {target: Naming(target) for target in dict.fromkeys(self.targets)}

    def close(self) -> None:
        """Ends the processes that were asked for kernels."""
        for naming in self._naming.values():
            naming.close()

    @property
    def targets(self) -> tuple[Target, Target]:
        """The left side's and the right side's."""
        return self.first.target, self.second.target

    def conventions(self, finding: Finding) -> bool:
        """Whether outputs of the same place are compared, rather than those of equal windows."""
        return self.first is not self.second or finding.padding is not None

    def by_bits(self, finding: Finding) -> bool:
        """Whether outputs that must agree differ, and each side agrees with itself."""
        try:
            one = self._run(self.first, finding, finding.left)
            two = self._run(self.second, finding, finding.right)
        except TargetError as error:
            self._again(error)
            return False
        blocks = finding.compared(self.conventions(finding))
        if not self._differ(finding, one, two, blocks):
            return False
        again = self._run(self.first, finding, finding.left)
        return not len(ulp.differences(one, again, finding.case.dtype).index)

    def by_order(self, finding: Finding) -> bool:
        """Whether outputs that must agree are added in other ways, whatever the operands are."""
        if self.by_bits(finding):
            return True
        try:
            return bool(self.explained(finding).by_order)
        except TargetError as error:
            self._again(error)
            return False

    def predicate(self, by: str) -> Predicate:
        """``by_bits`` or ``by_order``. InputError for another word."""
        return self.by_bits if choice("by", by, BY) == "bits" else self.by_order

    def kernels(self, finding: Finding) -> dict[str, dict[str, list[str]]]:
        """What both sides' libraries say that they run, as ``explain.kernels.named`` gives it."""
        left, right = (
            self._naming[target].names(case)
            for target, case in zip(self.targets, (finding.left, finding.right), strict=True)
        )
        return {"left": left, "right": right} if left or right else {}

    def survives(self, predicate: Predicate, finding: Finding) -> bool:
        """What a predicate says of a finding; False where the target does not compute it."""
        try:
            return predicate(finding)
        except TargetError as error:
            self._again(error)
            return False

    def explained(self, finding: Finding) -> Explanation:
        """Both sides with their orders, and the cause of every difference. TargetError."""
        self.revive()
        one = self._side(self.first, finding, finding.left)
        two = self._side(self.second, finding, finding.right)
        return explain.compare(finding.left, one, two, self._pairs(finding, one, two))

    def _pairs(self, finding: Finding, one: Side, two: Side) -> Pairs:
        if self.conventions(finding):
            return explain.same_place(one, two)
        return explain.must_agree(finding.case, finding.vary, finding.left, finding.right)

    def judged(self, finding: Finding) -> Explanation | None:
        """``explained`` of the differing outputs alone; None where none differs. TargetError."""
        one, two = (
            self._plain(session, finding, case)
            for session, case in ((self.first, finding.left), (self.second, finding.right))
        )
        pairs = self._pairs(finding, one, two)
        differing = explain.differing(one, two, pairs)
        if not len(differing):
            return None
        self._reveal(one, self.first, pairs.left[differing])
        self._reveal(two, self.second, pairs.right[differing])
        return explain.compare(finding.left, one, two, pairs)

    def _reveal(self, side: Side, session: AnySession, places: np.ndarray) -> None:
        """Adds the orders of some outputs, or those of all that this shape had at the last call.

        Orders go with the shape, whatever the operands are: where the last ones' replay gives the
        bits of these operands too, nothing is asked.
        """
        if side.refusal:
            return
        key, at = (session.target.text, str(side.case.to_json())), tuple(places.T)
        known = self._orders.get(key)
        if known is not None:
            side.orders, side.evidence = known, known.evidence
            side.replays = explain.replays(known, side.operands)
            if side.replays[at].all():
                return
        wanted = np.zeros(side.replays.shape, bool)
        wanted[at] = True
        explain.add_orders(side, session, (), None if wanted.size <= SMALL else wanted)
        if side.orders is not None:
            self._orders = {**dict(list(self._orders.items())[-3:]), key: side.orders}

    def revive(self) -> None:
        """Starts again what was lost, by Ctrl-C for example."""
        for session in (self.first, self.second):
            if not session.alive:
                session.start()

    def _side(self, session: AnySession, finding: Finding, case: Case) -> Side:
        side = self._plain(session, finding, case)
        return side if side.refusal else explain.add_orders(side, session, ())

    def _plain(self, session: AnySession, finding: Finding, case: Case) -> Side:
        side = explain.run(session, case, finding.operands(case))
        if self.conventions(finding):
            side.windows = windows(session, case)
        return side

    def _run(self, session: AnySession, finding: Finding, case: Case) -> np.ndarray:
        self.runs += 1
        x, w, b = finding.operands(case)
        arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
        _, found = session.request({"do": "run", "spec": case.spec()}, arrays)
        return found["y"]

    def _differ(self, finding: Finding, one: np.ndarray, two: np.ndarray, blocks: Blocks) -> bool:
        dtype = finding.case.dtype
        return any(
            len(ulp.differences(one[ours], two[theirs], dtype).index) for ours, theirs in blocks
        )

    def _again(self, error: TargetError) -> None:
        """Starts what was lost; raises the error where that is not why it failed."""
        if error.kind == "unavailable":
            raise error
        self.revive()


def windows(session: AnySession, case: Case) -> np.ndarray:
    """What every output reads, revealed: int64 (groups, positions, leaves), -1 for padding."""
    if OPERATORS[case.op].pool:
        return as_windows(case, reveal_pool(session, case))
    return reveal_windows(SessionOperator(session, case))
