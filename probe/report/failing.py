"""Decides whether a target fails on a finding, by the same cause, and what avoids it.

One process of each target answers for all candidates of a shrink. What a target refuses does not
fail; a process that is lost is started again. Bits that still differ are not enough: two products
that one side fuses and the other doesn't are another bug than a changed order of three hundred. The
cause is read off both sides' revealed sums, never off which outputs happen to differ. A switch
avoids a finding where the smallest case adds every compared output alike on both sides, replayed
bit for bit, and the case as it was found agrees in bits too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.arguments import choice
from probe.case.case import Case
from probe.case.errors import InputError, ProbeError, TargetError
from probe.explain.comparison import Comparison, classes_of, compare_shapes
from probe.explain.runs import Finding, Revealer, outputs_of_call
from probe.explain.verdict import BUG, bug_or_rounding
from probe.order.tree import BIAS
from probe.report import proof
from probe.sizes.bisection import ReleaseStep, first_change
from probe.targets import backends, budget, installation, target
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import Say
from probe.targets.target import Target

BY = ("bits", "order")

# Outputs up to which all are revealed, though some are asked about.
SMALL = 256

Predicate = Callable[[Finding], bool]


@contextmanager
def failing(left: Target, right: Target | None = None, inline: bool = False) -> Iterator[Failing]:
    """Yields a ``Failing`` with its processes started; they end with the context. TargetError."""
    with ExitStack() as stack:
        sessions = [open_session(left, inline)]
        if right is not None and right != left:
            sessions.append(open_session(right, inline))
        for session in sessions:
            stack.callback(session.close)
            session.start()
        yield Failing(sessions[0], sessions[-1])


class Failing:
    """Predicates over findings, on one or two started sessions. ``runs``: calls of operators."""

    def __init__(self, first: AnySession, second: AnySession) -> None:
        self.first, self.second, self.runs = first, second, 0
        self._known = Revealer(tried=0, kept=4, small=SMALL)

    @property
    def targets(self) -> tuple[Target, Target]:
        return self.first.target, self.second.target

    def conventions(self, finding: Finding) -> bool:
        """Whether outputs of the same place are compared, rather than those of equal windows."""
        return self.first is not self.second or finding.padding is not None

    def by_bits(self, finding: Finding) -> bool:
        """Whether outputs that must agree differ, and each side agrees with itself."""
        return self.survives(self._differs, finding)

    def _differs(self, finding: Finding) -> bool:
        left = self._run(self.first, finding, finding.left)
        right = self._run(self.second, finding, finding.right)
        dtype, blocks = finding.case.dtype, finding.blocks(self.conventions(finding))
        if all(ulp.equal(left[block], right[block], dtype) for block in blocks):
            return False
        # a side that does not agree with itself differs without any cause
        again = self._run(self.first, finding, finding.left)
        return bool(ulp.equal(left, again, dtype))

    def by_order(self, finding: Finding) -> bool:
        """Whether outputs that must agree are added in other ways, for all finite operands."""
        return self.by_bits(finding) or self.survives(
            lambda small: bool(self.explained(small).by_order), finding
        )

    def predicate(self, by: str) -> Predicate:
        """``by_bits`` or ``by_order``. InputError for another word."""
        return self.by_bits if choice("by", by, BY) == "bits" else self.by_order

    def survives(self, predicate: Predicate, finding: Finding) -> bool:
        """What a predicate says of a finding; False where the target does not compute it."""
        try:
            return predicate(finding)
        except TargetError as error:
            self._again(error)
            return False

    def explained(self, finding: Finding) -> Comparison:
        """Returns both sides with their orders, and the cause of every difference. TargetError."""
        self.revive()
        return self._compared(finding).reveal(self.first, self.second, Revealer(tried=0))

    def judged(self, finding: Finding) -> Comparison | None:
        """``explained`` of the differing outputs alone; None where none differs. TargetError."""
        comparison = self._compared(finding)
        if not len(comparison.differing):
            return None
        return comparison.reveal(self.first, self.second, self._known, comparison.differing)

    def _compared(self, finding: Finding) -> Comparison:
        return compare_shapes(finding, self.first, self.second, finding.operands)

    def revive(self) -> None:
        """Starts again what was lost, by Ctrl-C for example."""
        for session in (self.first, self.second):
            session.revive()

    def _run(self, session: AnySession, finding: Finding, case: Case) -> np.ndarray:
        self.runs += 1
        return outputs_of_call(session, case, finding.operands(case))

    def _again(self, error: TargetError) -> None:
        """Starts what was lost; raises the error where that is not why it failed."""
        if error.kind == "unavailable":
            raise error
        self.revive()


# Causes that the sums themselves show.
KINDS = ("order", "rounding", "precision", "flush")

# Differing outputs whose zeros are looked at.
MOST = 64


@dataclass(frozen=True)
class Effect:
    """What a finding does.

    ``causes``: differing outputs by cause; where none differs, compared outputs by what sets their
    sums apart. ``max_difference`` and ``max_relative`` (to the larger of the two): None where no
    difference is a number.
    """

    label: str
    compared: int
    differing: int
    max_ulp: int | None
    max_difference: float | None
    max_relative: float | None
    causes: dict[str, int]

    @property
    def cause(self) -> str | None:
        """That of most outputs; None where nothing sets the two sides apart."""
        return max(self.causes, key=lambda name: self.causes[name], default=None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kernels": None, "cause": self.cause}


def effect(comparison: Comparison, label: str) -> Effect:
    values = [
        np.asarray(floats.widen(y, comparison.case.dtype), np.float64)
        for y in comparison.values(comparison.differing)
    ]
    far, larger = np.abs(values[0] - values[1]), np.maximum(*map(np.abs, values))
    known = np.isfinite(far) & (larger > 0)
    many = bool(known.any())
    return Effect(
        *(label, comparison.compared, len(comparison.differing), comparison.max_ulp),
        max_difference=float(far[known].max()) if many else None,
        max_relative=float((far[known] / larger[known]).max()) if many else None,
        causes=comparison.causes or {name: len(which) for name, which in comparison.apart.items()},
    )


class KeepsCause:
    """Whether smaller findings keep the cause of ``start``.

    A cause is kept where outputs still differ by the most frequent one of the start's and none by a
    cause that the start does not have; where a bug stays a bug; and where the products that are not
    0 alone show that cause.
    ``before`` costs one reveal of the start, when it is first asked for. Errors: TargetError.
    """

    def __init__(self, failed: Failing, start: Finding) -> None:
        self.failed, self.start = failed, start

    @cached_property
    def before(self) -> Effect:
        return effect(self._explained, self.start.label)

    @cached_property
    def _explained(self) -> Comparison:
        return self.failed.explained(self.start)

    @cached_property
    def _wrong(self) -> bool:
        """Returns whether a side of the start is no rounding of its exact value."""
        return bug_or_rounding(self._explained).what == BUG

    @cached_property
    def _bare(self) -> bool:
        """Returns whether the start shows its cause by the products that are not 0 alone."""
        return self._shown_by_products(self._explained)

    def keeps(self, finding: Finding) -> bool:
        """Returns whether a finding that fails does so by the same cause."""
        comparison = self.failed.judged(finding) or self.failed.explained(finding)
        after = effect(comparison, finding.label)
        if not same_cause(self.before, after):
            return False
        # a bug's smallest case is one, or its report would call it rounding
        if self._wrong and bug_or_rounding(comparison).what != BUG:
            return False
        if "reach" in after.causes and _numeric(self._explained) and not _numeric(comparison):
            return False
        bare = self._bare and after.differing > 0
        return not bare or self._shown_by_products(comparison)

    def told(self, after: Effect) -> dict[str, bool | None]:
        """Whether the cause was kept; kernels are asked of the smallest case alone."""
        return {"cause": same_cause(self.before, after), "kernels": None}

    def _shown_by_products(self, comparison: Comparison) -> bool:
        """Whether an output's products that are not 0 alone show the start's main cause."""
        main = self.before.cause
        if main is None or not set(main.split("+")) <= set(KINDS):
            return True
        return shown_by_products(comparison, main, first=True) is not None


def _numeric(comparison: Comparison) -> bool:
    """Whether an output that is NaN on one side is a number other than 0 on the other."""
    values = np.stack(comparison.values(comparison.differing))
    wide = floats.widen(values, comparison.case.dtype)
    return bool((np.isfinite(wide) & (wide != 0)).any())


def same_cause(before: Effect, after: Effect) -> bool:
    return before.cause in after.causes and set(after.causes) <= set(before.causes)


def shown_by_products(comparison: Comparison, cause: str, first: bool = False) -> int | None:
    """Returns which differing output (a number among them) shows a cause by its products that
    aren't 0.

    The one with the fewest of those, or the ``first``; None where none of the first ``MOST`` does.
    """
    numbers = [n for n, name in enumerate(comparison.cause) if name == cause][:MOST]
    operands, case = comparison.left.operands, comparison.left.case
    classes, leaves = classes_of(case)
    best: tuple[int, int] | None = None
    for number in numbers:
        pair = int(comparison.differing[number])
        position, filter_ = (int(n) for n in comparison.pairs.left[pair])
        # products of 0 change no sum, wherever they are added; nor does a bias of 0
        group = filter_ // (case.filters // case.groups)
        x = floats.widen(operands.columns[group][:, position], case.dtype)
        w = floats.widen(operands.weights[:, filter_], case.dtype)
        counting = [
            leaf for leaf in leaves[classes[position]].tolist() if x[leaf] != 0 and w[leaf] != 0
        ]
        if operands.b is not None and floats.widen(operands.b[filter_], case.dtype) != 0:
            counting.append(BIAS)
        left = comparison.left.summation(comparison.pairs.left[pair])
        right = comparison.right.summation(comparison.pairs.right[pair])
        if left is None or right is None or len(counting) < 2:
            continue
        apart = left.restricted(counting).causes(right.restricted(counting))
        if "+".join(apart) == cause and (best is None or len(counting) < best[0]):
            best = (len(counting), number)
            if first:
                return number
    return None if best is None else best[1]


# Settings that are tried: each costs a start of the library.
SWITCHES = 4

# Values of the axis that are tried, beyond the two of the smallest case.
VALUES = 8


def by_values(failed: Failing, finding: Finding) -> list[str]:
    """Returns which values of the axis next to the smallest case's agree with its right side."""
    if not finding.paired or finding.vary not in ("length", "batch"):
        return []
    assert finding.at is not None and finding.against is not None
    high = max(finding.at, finding.against)
    for value in range(high + 1, high + 1 + VALUES):
        try:
            beside = finding.reshaped(at=value, against=high).drawn_as("cancel")
        except InputError:
            return []
        if not failed.survives(lambda finding: same_sums(failed, finding), beside):
            return []
    word, words = {"length": ("length", "lengths"), "batch": ("batch", "batches of")}[finding.vary]
    return [
        f"{word} {high} or more, as far as it was tried with the smallest case: {words} "
        f"{high + 1} to {high + VALUES} add every compared output as {word} {high} does"
    ]


def by_switches(
    finding: Finding, start: Finding, where: Target, tell: Callable[[str], None]
) -> list[str]:
    """Returns which other settings of the target give both sides of both cases the same sums: of
    the first ``SWITCHES`` that the backend suggests and that can run here."""
    ways, tried, suggested = list[str](), 0, backends.get(where.name).suggestions
    for text in sorted(suggested, key=lambda text: "isa" in text):
        if budget.spent() or tried == SWITCHES:
            break
        # settings of switches alone: no devices, no backends that are different libraries
        if not text.startswith(",") or "backend=" in text:
            continue
        changed = dict(part.split("=", 1) for part in text.strip(",").split(","))
        try:
            other = replace(where, switches=tuple((dict(where.switches) | changed).items()))
        except InputError:
            continue
        if other == where or target.why_unavailable(other):
            continue
        tried += 1
        tell(f"trying {other.text}")
        try:
            with failing(other) as failed:
                if not same_sums(failed, finding) or failed.by_bits(start):
                    continue
        except ProbeError:
            continue
        own = ", ".join(f"`{k}={v}`" for k, v in proof.switch_variables(other).items())
        ways.append(
            f"`{other.text}`{f' ({own})' if own else ''}: the smallest case adds every compared "
            "output alike, and the case as it was found agrees, bit for bit"
        )
    return ways


def same_sums(failed: Failing, finding: Finding) -> bool:
    """Whether every compared output is added alike on both sides, for all finite operands."""
    comparison = failed.explained(finding)
    whole = comparison.replayed == comparison.compared
    return whole and not comparison.by_order and not len(comparison.differing)


def first_affected(finding: Finding, left: Target, version: str, since: Target, tell: Say) -> str:
    """Returns the first release from ``since`` on that shows a finding, in words; missing releases
    are installed, and a single change is assumed, as ``probe bisect`` does. InputError."""
    from probe.sizes import bisection  # it needs pyarrow, which reports don't

    between = bisection.releases_between(since, left.with_(version=version))

    def ask(release: str) -> ReleaseStep:
        where = left.with_(version=release)
        tell(f"running {where.text}")
        try:
            installation.install_target(where)
            with failing(where) as failed:
                return ReleaseStep(release, "differs" if failed.by_bits(finding) else "agrees")
        except TargetError as error:
            return ReleaseStep(release, None, why=error.why)

    change = first_change(between, ask)
    first = between[0]
    if change.steps[0].seen == "differs":
        return f"{first} or an earlier one: it differs there too"
    if change.first is None:  # as the present one was measured to differ
        return f"not known: {version} agrees where it is installed anew"
    text = f"{change.first}; {change.last} agrees"
    if change.skipped:
        text += f"; {', '.join(change.skipped)} could not be run"
    return text if change.holds else f"{text}; not every release between is of one kind"
