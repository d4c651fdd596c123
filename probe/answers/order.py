"""Reveals in which order outputs are added, of a case or of any function (``probe order``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.answers.answer import DEFAULT_TARGET, Answer, checked_target
from probe.case import Case, require_length
from probe.comparison import CaseRun, run_and_reveal
from probe.errors import InputError
from probe.launch import open_session
from probe.printing import counted, plain
from probe.summation import functions
from probe.summation.certificate import BUDGET
from probe.summation.summation import Summation, ranges_of_mask
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Ordered(Answer):
    """Says how every output of one call is added. ``found.orders`` is None if this is unknown."""

    found: CaseRun

    def report(self) -> dict[str, Any]:
        """``ranges`` of a summation: start, stop, ... of the flat indices of its outputs."""
        side = self.found
        told: dict[str, Any] = {
            "case": side.case.to_json(),
            "target": side.target.text,
            "shape": list(side.case.output_shape()),
            "outputs": side.replays.size,
            "control": side.control,
            "refusal": side.refusal or None,
            "evidence": side.evidence or None,
        }
        if side.pooled is not None:
            pooled: dict[str, Any] = {"orders": side.pooled.orders(side.pooled.index)}
            pooled |= {"replayed": int(side.replays.sum()), "not_a_sum": 0, "certified": False}
            return told | pooled | {"calls": None, "checks": None, "seconds": None}
        if side.orders is None:
            none: dict[str, Any] = {"orders": [], "replayed": 0, "not_a_sum": 0}
            none["certified"] = False
            if side.refusal == "not-a-sum":
                none["not_a_sum"] = side.replays.size
            return told | none | {"calls": None, "checks": None, "seconds": None}
        orders, summations = side.orders, []
        for number, summation in enumerate(orders.summations):
            mine = orders.index == number
            where = {"outputs": int(mine.sum()), "ranges": ranges_of_mask(mine)}
            summations.append(summation.to_json(side.case.dtype) | where)
        return told | {
            "orders": sorted(summations, key=lambda one: -one["outputs"]),  # most outputs first
            "replayed": int((orders.replayed & side.replays).sum()),
            "not_a_sum": int(orders.not_a_sum.sum()),
            "certified": not orders.doubts,
            "uncertified": orders.doubts or None,
            "calls": orders.calls,
            "checks": orders.checks,
            "seconds": round(orders.seconds, 3),
        }

    def lines(self) -> tuple[str, str, str]:
        side, told = self.found, self.report()
        if side.pooled is not None:
            counts = f"replayed {told['replayed']:,} of {told['outputs']:,} outputs"
            return (self._asked(), f"{counts}; not certified", side.evidence)
        if not told["orders"]:
            why = "not a sum in one order" if told["not_a_sum"] else side.refusal or "not known"
            about = f"{why}: {told['outputs']:,} of {told['outputs']:,} outputs have no order"
            return (self._asked(), about, side.evidence)
        count, first = len(told["orders"]), told["orders"][0]
        summations = counted(count, "summation")
        sure = "certified" if told["certified"] else "not certified"
        fused = {"all": "every product fused (FMA)", "none": "no product fused"}
        rounding = fused.get(first["rounding"], "some products fused (FMA)")
        return (
            self._asked(),
            f"{summations}; replayed {told['replayed']:,} of {told['outputs']:,} outputs; {sure}",
            f"{rounding}, sums in {first['accumulator']}: {first['tree']}",
        )

    def _asked(self) -> str:
        case, target = self.found.case, self.found.target
        what = f"{counted(case.in_channels, f'{case.dtype} number')} by"
        return f"{what if isinstance(target, functions.Own) else case.label + ' on'} {target.text}"

    @property
    def tree(self) -> str | None:
        """Returns the order of most outputs, such as ``(((0+1)+2)+3)``; None if it is unknown."""
        orders = self.report()["orders"]
        return orders[0]["tree"] if orders else None

    def drawn(self) -> Figure | None:
        from probe.plots import views

        return views.draw_ordered(self.found)

    def _most(self) -> Summation:
        """Returns the summation of most outputs. InputError: no order is known."""
        orders = self.found.orders
        if orders is None or not orders.summations:
            why = self.found.evidence or "no order is known"
            raise InputError("tree", self._asked(), why, "give a case whose outputs are sums")
        counts = orders.counts()
        return orders.summations[max(range(len(counts)), key=lambda number: counts[number])]

    def to_nested(self) -> dict[str, Any]:
        """Returns the order of most outputs as nested lists, with its roundings; for JSON.

        ``nested``: a product's number, ``"b"``, or ``{"products": n, "adds": [[0, 1], [2]]}``, a
        running sum: each list is added to it at once, and rounded once. InputError: it is unknown.
        """
        from probe.plots import exports

        return exports.nested_json(self._most(), self.found.case.dtype)

    def to_dot(self) -> str:
        """Returns the same tree for Graphviz. InputError."""
        from probe.plots import exports

        return exports.dot(self._most())

    def to_svg(self) -> str:
        """Returns the picture that a notebook shows, as SVG. InputError."""
        self._most()
        return self._drawn_as("svg").decode()

    def to_html(self) -> str:
        """Returns a page with the tree of most outputs, whose running sums fold. InputError."""
        from probe.plots import exports

        return exports.html(self._most(), self._asked())

    def save_tree(self, file: str | Path) -> None:
        """Writes the order of most outputs as the file's name ends: .json, .dot, .svg or .html.

        Errors: InputError for another ending, where no order is known or the file can't be written.
        """
        path = Path(file)
        forms: dict[str, Callable[[], str]] = {
            ".json": lambda: json.dumps(self.to_nested(), default=plain) + "\n",
            ".dot": self.to_dot,
            ".svg": self.to_svg,
            ".html": self.to_html,
        }
        if path.suffix not in forms:
            why = "its ending names no format of a tree"
            raise InputError("tree", file, why, f"use one of {', '.join(forms)}")
        try:
            path.write_text(forms[path.suffix](), encoding="utf-8")
        except OSError as error:
            why = error.strerror or "it can't be written"
            raise InputError("tree", file, why, "give a file in a folder that exists") from None


def order(
    what: Case | Callable[..., Any],
    target: str | Target | int = DEFAULT_TARGET,
    *,
    n: int | None = None,
    dtype: str = "float32",
    products: bool | None = None,
    certify: bool = False,
) -> Ordered:
    """Reveals in which order, and with which roundings, every output is added, and replays it.

    ``what`` is a case with its length set, run on ``target``; or any Python function that adds,
    with ``n``, how many: ``probe.order(f, n)``. Then ``f(x)`` adds the n numbers of the array x, or
    ``f(x, w)`` the n products of x and w, and returns one number; it is called in this process,
    some 2 n times, and on up to 128 sets of operands (fewer of more than 2,048 numbers) that are
    replayed. ``dtype``: of x and w, and of what comes back. ``products``: whether f takes two
    arrays; None: as many as it needs. ``certify``: test every output for every addition and every
    fusion, which costs some n / 3 calls more, and as much again for each edge. What is not a sum in
    one order is reported as such, with the evidence: exact sums (``math.fsum``), compensated ones,
    or no sums at all.

    >>> import numpy as np
    >>> import probe
    >>> def halves(x):  # any function of yours
    ...     if len(x) == 1:
    ...         return x[0]
    ...     return halves(x[: len(x) // 2]) + halves(x[len(x) // 2 :])
    >>> probe.order(halves, 5)
    5 float32 numbers by halves
    1 summation; replayed 1 of 1 outputs; not certified
    no product fused, sums in float32: ((0+1)+(2+(3+4)))

    Errors: InputError, also where f fails or returns no number; TargetError.
    """
    if not isinstance(what, Case):
        return _of_function(what, target if n is None else n, dtype, products, certify)
    if isinstance(target, int) or n is not None:
        why = "a case defines how many products are added"
        raise InputError("n", target if n is None else n, why, "leave it out")
    case, where = require_length(what), checked_target(target)
    with open_session(where) as session:
        return Ordered(run_and_reveal(session, case, budget=BUDGET if certify else 0))


def _of_function(f: object, n: object, dtype: str, products: bool | None, certify: bool) -> Ordered:
    if not callable(f):
        why = f"{type(f).__name__} is neither a case nor a function"
        raise InputError("what", repr(f)[:40], why, "give probe.Case(...), or f and n")
    if isinstance(n, np.integer):
        n = int(n)
    if not isinstance(n, int):
        given = "(none)" if n in (None, DEFAULT_TARGET) else repr(n)
        raise InputError(
            "n", given, "the number of summands is required", "write probe.order(f, 9)"
        )
    case = functions.case_of_function(f, n, dtype, products)
    budget = BUDGET if certify else 0
    side = run_and_reveal(functions.FunctionSession(f, case), case, budget=budget)
    # no order replays: it may still be a known way to add, of which no order is the cause
    refused = side.refusal == "not-a-sum" or (side.orders and side.orders.not_a_sum.any())
    sets = f"on {functions.COUNT} sets of operands it gave"
    if refused and functions.exactly_rounded(f, case):
        why = f"exactly rounded: {sets} the exact sum, rounded once; no order of additions does"
        side = replace(side, evidence=f"{why}; {side.evidence}")
    elif not (side.orders and side.orders.replayed.all()) and (
        how := functions.compensated(f, case)
    ):
        why = f"compensated: {sets} the bits of {how}"
        side = replace(side, evidence=f"{why}; {side.evidence}")
    return Ordered(side)
