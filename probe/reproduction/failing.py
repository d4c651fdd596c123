"""Whether a finding fails on its targets: by the bits of its operands, or by order and rounding.

One process of each target answers for all candidates of a shrink. What a target refuses does not
fail; a process that is lost is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from probe import ulp
from probe.arguments import choice
from probe.case import Case
from probe.comparison import Comparison, Revealer, compared, outputs
from probe.errors import TargetError
from probe.kernels import Naming
from probe.launch import AnySession, open_session
from probe.shrink import Finding
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
        self._known = Revealer(tried=0, kept=4, small=SMALL)
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
        dtype, blocks = finding.case.dtype, finding.blocks(self.conventions(finding))
        if all(ulp.equal(one[ours], two[theirs], dtype) for ours, theirs in blocks):
            return False
        again = self._run(self.first, finding, finding.left)
        return bool(ulp.equal(one, again, dtype))

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
        """What both sides' libraries say that they run, as ``explain.runs.named`` gives it."""
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

    def explained(self, finding: Finding) -> Comparison:
        """Both sides with their orders, and the cause of every difference. TargetError."""
        self.revive()
        return self._compared(finding).reveal(self.first, self.second, Revealer(tried=0))

    def judged(self, finding: Finding) -> Comparison | None:
        """``explained`` of the differing outputs alone; None where none differs. TargetError."""
        found = self._compared(finding)
        if not len(found.differing):
            return None
        return found.reveal(self.first, self.second, self._known, found.differing)

    def _compared(self, finding: Finding) -> Comparison:
        return compared(finding, self.first, self.second, finding.operands)

    def revive(self) -> None:
        """Starts again what was lost, by Ctrl-C for example."""
        for session in (self.first, self.second):
            session.revive()

    def _run(self, session: AnySession, finding: Finding, case: Case) -> np.ndarray:
        self.runs += 1
        return outputs(session, case, finding.operands(case))

    def _again(self, error: TargetError) -> None:
        """Starts what was lost; raises the error where that is not why it failed."""
        if error.kind == "unavailable":
            raise error
        self.revive()
