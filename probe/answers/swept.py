"""Holds what a sweep by bits found (``probe sweep``): its lines, JSON and picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.answers.answer import Answer
from probe.case import Case
from probe.printing import up_to
from probe.sweeps import Summary
from probe.window import shown_axis_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Swept(Answer):
    """Holds a case at many values of an axis, each compared with the largest, bit for bit.

    ``notes``: what a cluster said of its nodes.
    """

    found: Summary
    case: Case
    values: Sequence[int]
    notes: Sequence[str] = ()

    def report(self) -> dict[str, Any]:
        """Returns the summary; with several targets, their totals beside them."""
        report = self.found.to_json()
        if "targets" in report:
            parts = list(report["targets"].values())
            for name in (
                "compared",
                "differing",
                "not_compared",
                "comparisons",
                "stored_before",
                "signed_zero",
            ):
                report[name] = sum(part[name] for part in parts)
            ulps = [part["max_ulp"] for part in parts if part["max_ulp"] is not None]
            report["max_ulp"] = max(ulps) if ulps else None
            if "time" in report:
                left = sum(part["left_out"]["comparisons"] for part in parts)
                report["left_out"] = {"comparisons": left}
            report["failures"] = [
                {"target": name} | failure
                for name, part in report["targets"].items()
                for failure in part["failures"]
            ]
        return report | {"case": self.case.to_json()}

    def lines(self) -> tuple[str, str, str]:
        told, parts = self.report(), self.found.targets
        count = f"{told['differing']:,} of {told['compared']:,} outputs differ"
        where = {
            name: few(sorted({one.at for one in found.differences}), self.found.vary)
            for name, found in self.found.targets.items()
        }
        each = [f"{name}: differs at {values}" for name, values in where.items() if values]
        each += [f"{name}: failed" for name, one in self.found.targets.items() if one.failures]
        each += [f"{name}: {one.unasked:,} left out" for name, one in parts.items() if one.unasked]
        each += ["interrupted"] * self.found.interrupted
        stable = "every length agrees with the longest, with these operands"
        return (
            title(self.case, self.found.vary, self.values, self.found.targets),
            count + up_to(told["max_ulp"]) * bool(told["differing"]),
            "; ".join(each) or stable.replace("length", self.found.vary),
        )

    def drawn(self) -> Figure | None:
        """Draws |ulp| by target and value of the axis: the largest of each comparison."""
        import pandas

        from probe import plots

        grid = pandas.DataFrame(
            np.nan, index=list(self.found.targets), columns=list(self.values[:-1])
        )
        for name, one in self.found.targets.items():
            if one.comparisons:
                grid.loc[name] = 0.0
            for each in one.differences:
                far = np.inf if each.max_ulp is None else float(each.max_ulp)
                grid.loc[name, each.at] = max(grid.loc[name, each.at], far)
        grid.columns = [shown_axis_value(self.found.vary, value) for value in grid.columns]
        figure, (axes,) = plots.panels(1, 1, 9.0, 1.6 + 0.35 * len(grid))
        plots.length_strips(axes, grid)
        against = shown_axis_value(self.found.vary, self.found.against)
        axes.set(xlabel=self.found.vary, title=f"|ulp| against {against}")
        plots.ulp_legend(figure, grid.to_numpy())
        return figure


def title(case: Case, vary: str, values: Sequence[int], targets: Iterable[str]) -> str:
    """Returns the first line of a sweep: what is compared with what, and where."""
    asked = case.with_(length=None) if vary == "length" else case
    span = f"{few(values[:1], vary)} to {few(values[-2:-1], vary)}"
    if vary == "layout":
        span = few(values[:-1], vary)
    span += f" against {few(values[-1:], vary)}"
    return f"{asked.label}: {vary} {span} on {', '.join(targets)}"


def few(values: Sequence[int], vary: str) -> str:
    """Returns the first six values of an axis, and how many more there are."""
    told = (shown_axis_value(vary, value) for value in values[:6])
    text = ", ".join(one if isinstance(one, str) else f"{one:,}" for one in told)
    return text + (f", ... ({len(values) - 6:,} more)" if len(values) > 6 else "")
