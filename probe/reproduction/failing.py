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

from probe import backends, budget, floats, target, ulp
from probe.arguments import choice
from probe.case import Case
from probe.comparison import (
    Comparison,
    Finding,
    Revealer,
    classes_of,
    compare_shapes,
    outputs_of_call,
)
from probe.errors import InputError, ProbeError, TargetError
from probe.kernels import Naming, computing
from probe.launch import AnySession, open_session
from probe.reproduction import proof
from probe.summation.tree import BIAS
from probe.target import Target

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
        """Returns the left side's and the right side's."""
        return self.first.target, self.second.target

    def conventions(self, finding: Finding) -> bool:
        """Returns whether outputs of the same place are compared, rather than those of equal
        windows."""
        return self.first is not self.second or finding.padding is not None

    def by_bits(self, finding: Finding) -> bool:
        """Returns whether outputs that must agree differ, and each side agrees with itself."""
        try:
            one = self._run(self.first, finding, finding.left)
            two = self._run(self.second, finding, finding.right)
        except TargetError as error:
            self._again(error)
            return False
        dtype, blocks = finding.case.dtype, finding.blocks(self.conventions(finding))
        if all(ulp.equal(one[block], two[block], dtype) for block in blocks):
            return False
        # a side that does not agree with itself differs without any cause
        again = self._run(self.first, finding, finding.left)
        return bool(ulp.equal(one, again, dtype))

    def by_order(self, finding: Finding) -> bool:
        """Returns whether outputs that must agree are added in other ways, for all finite
        operands."""
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
        """Returns what both libraries say that they run, as ``evidence.named_kernels`` has it."""
        left, right = (
            self._naming[target].names(case)
            for target, case in zip(self.targets, (finding.left, finding.right), strict=True)
        )
        return {"left": left, "right": right} if left or right else {}

    def survives(self, predicate: Predicate, finding: Finding) -> bool:
        """Returns what a predicate says of a finding; False where the target does not compute
        it."""
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
        found = self._compared(finding)
        if not len(found.differing):
            return None
        return found.reveal(self.first, self.second, self._known, found.differing)

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

Kernels = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Effect:
    """What a finding does.

    ``causes``: differing outputs by cause; where none differs, compared outputs by what sets their
    sums apart. ``max_difference`` and ``max_relative`` (to the larger of the two): None where no
    difference is a number. ``kernels``: what the library says of itself, as ``probe explain`` has
    it; None where it was not asked.
    """

    label: str
    compared: int
    differing: int
    max_ulp: int | None
    max_difference: float | None
    max_relative: float | None
    causes: dict[str, int]
    kernels: Kernels | None = None

    @property
    def cause(self) -> str | None:
        """That of most outputs; None where nothing sets the two sides apart."""
        return max(self.causes, key=lambda name: self.causes[name], default=None)

    def to_json(self) -> dict[str, Any]:
        """Returns the keys ``before`` and ``after`` of ``probe shrink --json``."""
        return asdict(self) | {"cause": self.cause}


def effect(found: Comparison, label: str, kernels: Kernels | None = None) -> Effect:
    """Returns the effect that an explanation tells of."""
    values = [
        np.asarray(floats.widen(y, found.case.dtype), np.float64)
        for y in found.values(found.differing)
    ]
    far, larger = np.abs(values[0] - values[1]), np.maximum(*map(np.abs, values))
    known = np.isfinite(far) & (larger > 0)
    many = bool(known.any())
    return Effect(
        *(label, found.compared, len(found.differing), found.max_ulp),
        max_difference=float(far[known].max()) if many else None,
        max_relative=float((far[known] / larger[known]).max()) if many else None,
        causes=found.causes or {name: len(which) for name, which in found.apart.items()},
        kernels=kernels,
    )


class KeepsCause:
    """Whether smaller findings keep the cause and the kernels of ``start``.

    A cause is kept where outputs still differ by the most frequent one of the start's and none by a
    cause that the start does not have; and where the products that are not 0 alone show that
    cause. Kernels are asked of the candidates that keep the cause, once a shape; they are a
    condition where the library names one on a side of the start. ``anything``: no conditions.
    ``before`` costs one reveal of the start, when it is first asked for. Errors: TargetError.
    """

    def __init__(self, failed: Failing, start: Finding, anything: bool = False) -> None:
        self.failed, self.start, self.anything = failed, start, anything

    @cached_property
    def before(self) -> Effect:
        """Returns what the start does."""
        return effect(self._explained, self.start.label, self.failed.kernels(self.start))

    @cached_property
    def _explained(self) -> Comparison:
        return self.failed.explained(self.start)

    @cached_property
    def _bare(self) -> bool:
        """Returns whether the start shows its cause by the products that are not 0 alone."""
        return self._shown_by_products(self._explained)

    def keeps(self, finding: Finding) -> bool:
        """Returns whether a finding that fails does so by the same cause, in the same kernels."""
        if self.anything:
            return True
        found = self.failed.judged(finding) or self.failed.explained(finding)
        after = effect(found, finding.label)
        if not same_cause(self.before, after):
            return False
        if "reach" in after.causes and _numeric(self._explained) and not _numeric(found):
            return False
        if self._bare and after.differing and not self._shown_by_products(found):
            return False
        if not names_a_kernel(self.before.kernels):
            return True
        return same_kernels(self.before.kernels, self.failed.kernels(finding))

    def after(self, found: Comparison, finding: Finding) -> Effect:
        """Returns the effect of the smallest finding."""
        return effect(found, finding.label, self.failed.kernels(finding))

    def told(self, after: Effect) -> dict[str, bool | None]:
        """Returns whether the cause was kept and the kernels; None for kernels that no source
        names."""
        known = names_a_kernel(self.before.kernels)
        return {
            "cause": same_cause(self.before, after),
            "kernels": same_kernels(self.before.kernels, after.kernels) if known else None,
        }

    def _shown_by_products(self, found: Comparison) -> bool:
        """Returns whether an output's products that are not 0 alone show the start's main cause."""
        main = self.before.cause
        if main is None or not set(main.split("+")) <= set(KINDS):
            return True
        return shown_by_products(found, main, first=True) is not None


def _numeric(found: Comparison) -> bool:
    """Returns whether an output that is NaN on one side is a number other than 0 on the other."""
    values = np.stack([floats.widen(y, found.case.dtype) for y in found.values(found.differing)])
    return bool((np.isfinite(values) & (values != 0)).any())


def same_cause(before: Effect, after: Effect) -> bool:
    """Returns whether the main cause is still there and no other one has come."""
    return before.cause in after.causes and set(after.causes) <= set(before.causes)


def names_a_kernel(kernels: Kernels | None) -> bool:
    """Returns whether a library names a kernel on a side."""
    return any(_computing(side) for side in (kernels or {}).values())


def same_kernels(one: Kernels | None, other: Kernels | None) -> bool:
    """Returns whether the same kernels compute both sides; what only moves operands doesn't
    count."""
    sides = set(one or {}) | set(other or {})
    return all(
        _computing((one or {}).get(s, {})) == _computing((other or {}).get(s, {})) for s in sides
    )


def _computing(side: dict[str, list[str]]) -> dict[str, frozenset[str]]:
    """Returns names by source, without the sources that name none."""
    found = {
        source: frozenset(computing([name for name in names if not name.startswith("(")]))
        for source, names in side.items()
    }
    return {source: names for source, names in found.items() if names}


def shown_by_products(found: Comparison, cause: str, first: bool = False) -> int | None:
    """Returns which differing output (a number among them) shows a cause by its products that
    aren't 0.

    The one with the fewest of those, or the ``first``; None where none of the first ``MOST`` does.
    """
    numbers = [n for n, name in enumerate(found.cause) if name == cause][:MOST]
    given, case = found.left.operands, found.left.case
    classes, leaves = classes_of(case)
    best: tuple[int, int] | None = None
    for number in numbers:
        pair = int(found.differing[number])
        position, filter_ = (int(n) for n in found.pairs.left[pair])
        # products of 0 change no sum, wherever they are added; nor does a bias of 0
        group = filter_ // (case.filters // case.groups)
        x = floats.widen(given.columns[group][:, position], case.dtype)
        w = floats.widen(given.weights[:, filter_], case.dtype)
        b = None if given.b is None else floats.widen(given.b[filter_ : filter_ + 1], case.dtype)
        kept = [
            leaf for leaf in leaves[classes[position]].tolist() if x[leaf] != 0 and w[leaf] != 0
        ]
        kept += [BIAS] * (b is not None and float(b[0]) != 0)
        left = found.left.summation(found.pairs.left[pair])
        right = found.right.summation(found.pairs.right[pair])
        if left is None or right is None or len(kept) < 2:
            continue
        apart = left.restricted(kept).causes(right.restricted(kept))
        if "+".join(apart) == cause and (best is None or len(kept) < best[0]):
            best = (len(kept), number)
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
    good: list[int] = []
    bad: list[int] = []
    for value in range(high + 1, high + 1 + VALUES):
        try:
            one = finding.reshaped(at=value, against=high).drawn_as("cancel")
        except InputError:
            return []
        (good if failed.survives(lambda f: same_sums(failed, f), one) else bad).append(value)
    if not good or bad:
        return []
    words = {"length": ("length", "lengths"), "batch": ("batch", "batches of")}[finding.vary]
    return [
        f"{words[0]} {high} or more, as far as it was tried with the smallest case: {words[1]} "
        f"{good[0]} to {good[-1]} add every compared output as {words[0]} {high} does"
    ]


def by_switches(
    finding: Finding, start: Finding, where: Target, tell: Callable[[str], None]
) -> list[str]:
    """Returns which other settings of the target give both sides of both cases the same sums: of
    the first ``SWITCHES`` that the backend suggests and that can run here."""
    found, tried, suggested = list[str](), 0, backends.get(where.name).suggestions
    for text in sorted(suggested, key=lambda one: "isa" in one):
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
                good = same_sums(failed, finding) and not failed.by_bits(start)
        except ProbeError:
            continue
        if good:
            own = ", ".join(f"`{k}={v}`" for k, v in proof.switch_variables(other).items())
            shown = f"`{other.text}`" + (f" ({own})" if own else "")
            found.append(
                f"{shown}: the smallest case adds every compared output alike, and the case as it "
                "was found agrees, bit for bit"
            )
    return found


def same_sums(failed: Failing, finding: Finding) -> bool:
    """Returns whether every compared output is added alike on both sides, for all finite
    operands."""
    found = failed.explained(finding)
    whole = found.replayed == found.compared
    return whole and not found.by_order and not len(found.differing)
