"""Holds what a sweep by order found (``probe sweep --by order``), and runs one on each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.answers.answer import Answer
from probe.answers.swept import few, title
from probe.campaign import Campaign, CampaignPart, case_row, run_row
from probe.case import Case
from probe.progress import Tell
from probe.store import Store
from probe.switch_points import by_order
from probe.switch_points.by_order import ByOrder
from probe.target import Target
from probe.window import shown_axis_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class ByOrders:
    """Sweeps by order by target, those that failed, and where it was stored."""

    targets: dict[str, ByOrder] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    store: str | None = None


@dataclass(repr=False)
class SweptByOrder(Answer):
    """Holds a case at many values of an axis, whose summations are compared, for all data."""

    found: ByOrders
    case: Case
    values: Sequence[int]
    vary: str

    def report(self) -> dict[str, Any]:
        """Returns the report: one target's at the top level, several under ``targets``."""
        parts = {target: one.to_json() for target, one in self.found.targets.items()}
        about = {
            "by": "order",
            "failures": self.found.failures,
            "store": self.found.store,
            "case": self.case.to_json(),
        }
        if len(parts) + len(self.found.failures) == 1 and parts:
            (part,) = parts.values()
            return part | about
        totals = {
            name: sum(part[name] for part in parts.values())
            for name in ("compared", "differing", "unknown")
        }
        certified = {"certified": all(part["certified"] for part in parts.values()) and bool(parts)}
        return {"targets": parts} | totals | certified | about

    @property
    def failed(self) -> bool:
        """Returns whether a target failed, or failed at the value that all others are compared
        with."""
        known = ("", "alignment", "nondeterministic", "not-a-sum", "not-asked")
        refused = [one.base.refusal not in known for one in self.found.targets.values()]
        return bool(self.found.failures) or any(refused)

    def lines(self) -> tuple[str, str, str]:
        told = self.report()
        unknown = f", {told['unknown']:,} are unknown" if told["unknown"] else ""
        count = (
            f"{told['differing']:,} of {told['compared']:,} outputs are added in a different order "
            "or rounding"
        )
        each = [
            f"{name}: differs at {few([at.at for at in one.values if at.outputs], self.vary)}"
            for name, one in self.found.targets.items()
            if one.differing
        ]
        each += [f"{one['target']}: failed" for one in self.found.failures]
        return (
            f"{title(self.case, self.vary, self.values, self.found.targets)}, by order",
            count + unknown,
            "; ".join(each) or f"every {self.vary} adds in the same order as the longest",
        )

    def drawn(self) -> Figure | None:
        """Draws the share of outputs added differently, by target and value of the axis."""
        import pandas

        from probe import plots

        names = list(self.found.targets)
        grid = pandas.DataFrame(np.nan, index=names, columns=list(self.values[:-1]))
        for name, one in self.found.targets.items():
            for at in one.values:
                if at.compared > at.unknown:
                    grid.loc[name, at.at] = at.outputs / at.compared
        if grid.empty:
            return None
        grid.columns = [shown_axis_value(self.vary, value) for value in grid.columns]
        figure, (axes,) = plots.panels(1, 1, 9.0, 1.4 + 0.35 * len(grid))
        plots.share_bar(
            figure, plots.share_map(axes, grid), [axes], "added in a different order or rounding"
        )
        axes.set_xlabel(self.vary)
        return figure


def sweep(
    case: Case,
    values: Sequence[int],
    vary: str,
    targets: Sequence[Target],
    kept: Store | None,
    progress: Tell | None,
) -> SweptByOrder:
    """Sweeps a case by order on each target. KeyboardInterrupt where Ctrl-C ended it."""
    job = _ByOrder(values, vary, kept, progress)
    if job.run([(one, [case]) for one in targets]).interrupted:
        raise KeyboardInterrupt
    return SweptByOrder(job.orders(), case, values, vary)


class _ByOrder(Campaign[Case]):
    """A sweep by order of one case on each target; what a target fails at is not stored."""

    def __init__(
        self, values: Sequence[int], vary: str, kept: Store | None, progress: Tell | None
    ) -> None:
        super().__init__(progress=progress)
        self.values, self.vary, self.kept = values, vary, kept
        self.found: dict[str, ByOrder] = {}

    def size(self, question: Case) -> int:
        """Counts nothing: the sweep itself counts the values of its axis."""
        return 0

    def share(self, number: int, questions: Sequence[Case]) -> list[Case]:
        """Returns every target runs: a shard has a part of the values."""
        return list(questions)

    def ask(self, part: CampaignPart[Case], question: Case) -> None:
        """Sweeps one target, and stores it."""
        text = part.target.text
        found = by_order.sweep_by_order(
            *(part.session, question, self.values, self.vary),
            progress=lambda done, total: self.tell(done, total, text),
        )
        self.found[text] = found
        if self.kept is not None:
            self.kept.append(
                "runs", run_row(part.target, part.session.facts, part.session.variables)
            )
            self.kept.append("cases", case_row(found.case))
            for table, rows in found.rows(part.run_id).items():
                self.kept.append(table, rows)

    def orders(self) -> ByOrders:
        """Returns what was found, and what failed."""
        failures = [
            {"target": text, "kind": one.kind, "message": one.message}
            for text, part in self.parts.items()
            for one in part.failures
        ]
        return ByOrders(self.found, failures, None if self.kept is None else str(self.kept.path))
