"""Answers questions on a case: why two runs differ, what every output reads, in which order outputs
are added (of any function too), and at which sizes that changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case.arguments import optional_number, typed
from probe.case.case import Case, require_length
from probe.case.errors import InputError
from probe.explain.comparison import Comparison
from probe.explain.evidence import Evidence, checked_kernels, differing_example, named_kernels
from probe.explain.evidence import explain_case as explained
from probe.explain.runs import CaseRun, ComparedShapes, run_and_reveal
from probe.explain.verdict import Verdict, bug_or_rounding
from probe.order import functions
from probe.order.masks import SessionOperator
from probe.order.summation import ranges_of_mask
from probe.order.window import axis_of
from probe.order.windows import Reach, as_predicted, reveal_reach, reveal_windows
from probe.sweep.printing import counted
from probe.targets.launch import open_session
from probe.targets.progress import Say
from probe.targets.target import Target
from probe.ui.answers import views
from probe.ui.answers.answer import (
    DEFAULT_TARGET,
    Answer,
    checked_case,
    checked_sides,
    checked_target,
)

if TYPE_CHECKING:
    from probe.sizes.thresholds import Floor, SizeClass, Thresholds


@dataclass(repr=False)
class Explained(Answer):
    """Says why runs differ. ``evidence``: one differing output in full; None: none differs."""

    found: Comparison
    evidence: Evidence | None

    @cached_property
    def verdict(self) -> Verdict:
        """Whether it is rounding or a bug."""
        return bug_or_rounding(self.found)

    def report(self) -> dict[str, Any]:
        evidence = None if self.evidence is None else self.evidence.to_json()
        return self.found.to_json() | {
            "bug_or_rounding": self.verdict.to_json(),
            "example": evidence,
        }

    def lines(self) -> tuple[str, str, str]:
        first, counts, why = self.found.lines()
        return first, f"{self.verdict.what}: {counts}", why

    shown = views.explanation
    figure = "trees", "draw_explained", "found", "evidence"


@typed
def explain(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    at: int | str | None = None,
    against: int | str | None = None,
    *,
    vary: str | None = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
    kernels: str = "none",
    zeros: str = "equal",
) -> Explained:
    """Explains why ``case`` differs at ``at`` and ``against`` of the axis ``vary``, with proof.

    ``vary``: length, batch, filters, channels or layout, whose values are words, such as
    ``transposed`` against ``contiguous``; None: length, of a dense layer batch. With
    ``against_target`` (another library, device or switch) or ``against_padding`` the two sides may
    have the same shape: leave ``against`` out.
    ``kernels``: which kernels are named beside the causes: ``none``, or ``said`` (by the library,
    which is started again). ``zeros``: ``differ`` makes +0 and -0 a difference, at 0 ulp; ``equal``
    counts them. Costs a start and a reveal on each side.
    Errors: InputError; TargetError where a target fails.

    >>> import probe
    >>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=64)
    >>> why = probe.explain(case, "tensorflow,onednn=0", 5, 40)  # doctest: +SKIP
    >>> why.causes, why.replayed  # doctest: +SKIP
    """
    where, right_target = checked_sides(target, at, against, against_target, against_padding)
    checked_kernels(kernels)
    shapes = ComparedShapes.named(checked_case(case), vary, at, against, against_padding)
    comparison = explained(shapes, where, right_target, zeros=zeros)
    evidence = differing_example(comparison)
    comparison.kernels = named_kernels(comparison, kernels)
    return Explained(comparison, evidence)


@dataclass(repr=False)
class WindowsAnswer(Answer):
    """Says which inputs every output of a case reads on a target.

    ``revealed``: int array (groups, positions, products), flat indices into x, -1 for padding.
    ``same``: bool array (groups, positions), whether that is what the case's padding says.
    ``reach``: what reaches outputs although they have no weight for it; None where that was not
    tested: for pools, and for windows that differ from what the padding implies.
    """

    case: Case
    target: str
    revealed: np.ndarray
    same: np.ndarray
    reach: Reach | None = None

    def lines(self) -> tuple[str, str, str]:
        where = f"where padding={self.case.padding_text} puts them"
        wrong = int((~self.same).sum())
        return (
            f"{self.case.label} on {self.target}",
            f"{self.same.size:,} windows of {self.case.summands:,} inputs revealed",
            f"{wrong:,} are not {where}" if wrong else f"all are {where}",
        )

    shown = views.windows

    def report(self) -> dict[str, Any]:
        """What ``--json`` prints: an entry of ``windows`` for every group and output
        position.

        Where something else reaches outputs there is ``reach``, how many of them; an entry then has
        ``reaches``, flat indices into x, and ``reaches_some`` where one of them does but which was
        not told apart.
        """
        case, width = self.case, self.case.filters // self.case.groups
        places = case.output_shape()[:-1]
        named = [] if self.reach is None else self.reach.named
        reached = {
            (e.group, e.position): {"reaches" if e.exact else "reaches_some": e.inputs.tolist()}
            for e in named
        }
        report = {
            "case": case.to_json(),
            "target": self.target,
            "input_shape": list(case.input_shape()),
            "output_shape": list(case.output_shape()),
            "windows_read": int(self.same.size),
            "as_predicted": int(self.same.sum()),
            "windows": [
                {
                    "filter": group * width,
                    "output": [int(i) for i in np.unravel_index(position, places)],
                    "reads": [
                        None if i < 0 else i for i in self.revealed[group, position].tolist()
                    ],
                    "as_predicted": bool(self.same[group, position]),
                }
                | reached.get((group, position), {})
                for group in range(case.groups)
                for position in range(self.revealed.shape[1])
            ],
        }
        return report if self.reach is None else report | self.reach.to_json()


def window(case: Case, target: Target) -> WindowsAnswer:
    """Reveals what every output of a case, its length set, reads. Errors: TargetError.

    Exact for finite operands. What else reaches an output, if it is infinite or NaN, is tested too.
    """
    with open_session(target) as session:
        revealed = reveal_windows(SessionOperator(session, case))
        same = (revealed == as_predicted(case)).all(axis=2)
        # masks for infinities are put where the padding says; pools have no weights to put them in
        testable = same.all() and not case.pool
        reach = reveal_reach(session, case) if testable else None
    return WindowsAnswer(case, target.text, revealed, same, reach)


@dataclass(repr=False)
class Ordered(Answer):
    """Says how every output of one call is added. ``found.orders`` is None if this is unknown."""

    found: CaseRun

    def report(self) -> dict[str, Any]:
        """``ranges`` of a summation: start, stop, ... of the flat indices of its outputs."""
        side = self.found
        report: dict[str, Any] = {
            "case": side.case.to_json(),
            "target": side.target.text,
            "shape": list(side.case.output_shape()),
            "outputs": side.replays.size,
            "control": side.control,
            "refusal": side.refusal or None,
            "evidence": side.evidence or None,
        }
        if side.pooled is not None or side.orders is None:
            report |= {"orders": [], "replayed": 0, "not_a_sum": 0, "sets": 0}
            if side.pooled is not None:
                report["orders"] = side.pooled.orders(side.pooled.index)
                report["replayed"] = int(side.replays.sum())
            elif side.refusal == "not-a-sum":
                report["not_a_sum"] = side.replays.size
            return report | {"calls": None, "checks": None, "seconds": None}
        orders, summations = side.orders, []
        for number, summation in enumerate(orders.summations):
            of_summation = orders.index == number
            where = {"outputs": int(of_summation.sum()), "ranges": ranges_of_mask(of_summation)}
            summations.append(summation.to_json(side.case.dtype) | where)
        return report | {
            # most outputs first
            "orders": sorted(summations, key=lambda entry: -entry["outputs"]),
            "replayed": int((orders.replayed & side.replays).sum()),
            "not_a_sum": int(orders.not_a_sum.sum()),
            "sets": orders.sets,
            "calls": orders.calls,
            "checks": orders.checks,
            "seconds": round(orders.seconds, 3),
        }

    def lines(self) -> tuple[str, str, str]:
        side, report = self.found, self.report()
        replayed = f"replayed {report['replayed']:,} of {report['outputs']:,} outputs"
        if side.pooled is not None:
            return (self._asked(), replayed, side.evidence)
        if not report["orders"]:
            why = "not a sum in one order" if report["not_a_sum"] else side.refusal or "not known"
            about = f"{why}: {report['outputs']:,} of {report['outputs']:,} outputs have no order"
            return (self._asked(), about, side.evidence)
        count, first = len(report["orders"]), report["orders"][0]
        summations = counted(count, "summation")
        fused = {"all": "every product fused (FMA)", "none": "no product fused"}
        rounding = fused.get(first["rounding"], "some products fused (FMA)")
        return (
            self._asked(),
            f"{summations}; {replayed} on {report['sets']} sets of operands",
            f"{rounding}, sums in {first['accumulator']}: {first['tree']}",
        )

    def _asked(self) -> str:
        case, target = self.found.case, self.found.target
        what = f"{counted(case.in_channels, f'{case.dtype} number')} by"
        return f"{what if isinstance(target, functions.Own) else case.label + ' on'} {target.text}"

    shown = views.order

    @property
    def tree(self) -> str | None:
        """The order of most outputs, such as ``(((0+1)+2)+3)``; None if it is unknown."""
        orders = self.report()["orders"]
        return orders[0]["tree"] if orders else None

    figure = "trees", "draw_ordered", "found"


@typed
def order(
    what: Case | Callable[..., Any],
    target: str | Target | int = DEFAULT_TARGET,
    *,
    n: int | None = None,
    dtype: str = "float32",
    products: bool | None = None,
) -> Ordered:
    """Reveals in which order, and with which roundings, every output is added, and replays it.

    ``what`` is a case with its length set, run on ``target``; or any Python function that adds,
    with ``n``, how many: ``probe.order(f, n)``. Then ``f(x)`` adds the n numbers of the array x, or
    ``f(x, w)`` the n products of x and w, and returns one number; it is called in this process,
    some 2 n times, and on up to 128 sets of operands (fewer of more than 2,048 numbers) that are
    replayed. ``dtype``: of x and w, and of what comes back. ``products``: whether f takes two
    arrays; None: as many as it needs. What is not a sum in one order is reported as such, with
    the evidence: exact sums (``math.fsum``), compensated ones, clipped ones, or no sums at all.

    >>> import numpy as np
    >>> import probe
    >>> def halves(x):  # any function of yours
    ...     if len(x) == 1:
    ...         return x[0]
    ...     return halves(x[: len(x) // 2]) + halves(x[len(x) // 2 :])
    >>> probe.order(halves, 5)
    5 float32 numbers by halves
    1 summation; replayed 1 of 1 outputs on 128 sets of operands
    no product fused, sums in float32: ((0+1)+(2+(3+4)))

    Errors: InputError, also where f fails or returns no number; TargetError.
    """
    if isinstance(what, Case):
        if isinstance(target, int) or n is not None:
            why = "a case defines how many products are added"
            raise InputError("n", target if n is None else n, why, "leave it out")
        case = require_length(what)
        with open_session(checked_target(target)) as session:
            return Ordered(run_and_reveal(session, case))
    function: Any = what
    if not callable(function):
        why = f"{type(what).__name__} is neither a case nor a function"
        raise InputError("what", repr(what)[:40], why, "give probe.Case(...), or f and n")
    count: object = target if n is None else n
    if not isinstance(count, int | np.integer):
        shown = "(none)" if count in (None, DEFAULT_TARGET) else repr(count)
        why = "the number of summands is required"
        raise InputError("n", shown, why, "write probe.order(f, 9)")
    case = functions.case_of_function(function, int(count), dtype, products)
    side = run_and_reveal(functions.FunctionSession(function, case), case)
    # no order replays: it may still be a known way to add, of which no order is the cause
    refused = side.refusal == "not-a-sum" or (side.orders and side.orders.not_a_sum.any())
    sets = f"on {functions.COUNT} sets of operands it gave"
    if refused and functions.exactly_rounded(function, case):
        why = f"exactly rounded: {sets} the exact sum, rounded once; no order of additions does"
        return Ordered(replace(side, evidence=f"{why}; {side.evidence}"))
    replays = side.orders and side.orders.replayed.all()
    if not replays and (how := functions.compensated(function, case)):
        why = f"compensated: {sets} the bits of {how}"
        return Ordered(replace(side, evidence=f"{why}; {side.evidence}"))
    return Ordered(side)


# The largest size that is looked at where none is given.
UPTO = {"length": 1_000_000, "batch": 1024}


@dataclass(repr=False)
class Switching(Answer):
    """Where a target switches along an axis: ``found``; ``classes`` of sizes, and the ``floor``."""

    found: Thresholds

    @property
    def classes(self) -> list[SizeClass]:
        """Sizes that were run and at which every row adds alike, class by class."""
        from probe.sizes import thresholds  # late: other questions need no search

        return thresholds.classes(self.found)

    @property
    def floor(self) -> Floor:
        """Which floor keeps every row's sum as at the largest size, and why."""
        from probe.sizes import thresholds

        return thresholds.floor(self.found)

    def report(self) -> dict[str, Any]:
        return self.found.to_json() | {
            "classes": [size_class.to_json() for size_class in self.classes],
            "floor": self.floor.to_json(),
        }

    def lines(self) -> tuple[str, str, str]:
        measured = self.found
        switches = counted(len(measured.switches), "switch")
        classes = ", ".join(size_class.text for size_class in self.classes[:8]) or "none"
        span = f"{measured.sizes} {measured.shortest:,} to {measured.upto:,}"
        return (
            f"{measured.case.label} on {measured.target}, {measured.threads_text}, {span}: "
            f"{switches}",
            f"classes of {measured.sizes} at which all rows add alike: {classes}",
            self.floor.text,
        )

    shown = views.thresholds
    figure = "plots", "draw_switching", "found"


@typed
def thresholds(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    *,
    vary: str | None = None,
    upto: int | str | None = None,
    scan: int | str | None = None,
    progress: Say | None = None,
) -> Switching:
    """Finds the sizes at which the order or rounding of the outputs changes, and what adds alike.

    ``vary``: ``length``, or ``batch`` (the rows of a dense layer), the case's length then being
    set; None: the length, of a dense layer the batch. ``upto``: the largest size; a million, of
    batches 1,024. ``scan``: that many of the smallest sizes are all run; None: 64, and as many more
    as take some seconds. A class holds the sizes that were run, and no other. All of it holds for
    the number of threads that is named. Errors: InputError; TargetError where the target fails at
    the first size.
    """
    from probe.sizes.thresholds import find_thresholds

    case, where = checked_case(case), checked_target(target)
    if case.pool:
        why = "a pool has no weights that could show an order"
        raise InputError("op", case.op, why, "compare two sizes with probe explain")
    vary = axis_of(case, vary)
    scan, upto = optional_number("scan", scan), optional_number("upto", upto)
    longest: int = UPTO.get(vary, 1) if upto is None else upto  # type: ignore[assignment]
    with open_session(where) as session:
        measured = find_thresholds(
            session, case, longest, progress=progress, vary=vary, scanned=scan
        )
    return Switching(measured)
