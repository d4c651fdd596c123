"""What keeps the bits at every length and what it costs, in Python or by ``probe remedies``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.answers.answer import DEFAULT_TARGET, Answer, target_of
from probe.campaign import Tell
from probe.case import Case
from probe.errors import InputError
from probe.floats import rounded_text
from probe.network import Network
from probe.remedies import Measured, advise, measure, measure_network, report, rows
from probe.store import Store
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Remedied(Answer):
    """Every remedy of a case or a network on one target, judged, timed and compared."""

    found: Measured

    def report(self) -> dict[str, Any]:
        return report(self.found)

    def lines(self) -> tuple[str, str, str]:
        found = self.found
        told = [f"{one.remedy.name} {found.verdict(one)}{self._cost(one)}" for one in found.found]
        what = f"{found.label}, {found.part}" if found.part else found.label
        asked = f"{what}: {len(found.lengths):,} lengths against {found.fixed:,}"
        return f"{asked} on {found.target.text}", "; ".join(told), advise(found).text

    def _cost(self, one: Any) -> str:
        cost = rounded_text(self.found.of_fixed(one))
        return f" ({cost} of the fixed size's time)" if cost else ""

    def drawn(self) -> Figure | None:
        """A bar a remedy: its cost, coloured by whether it is exact."""
        import pandas

        from probe import plots

        told = pandas.DataFrame(rows(self.found)["remedies"])
        costs = told.of_fixed.dropna()
        if costs.empty:
            return None
        figure, (axes,) = plots.panels(1, 1, 7.5, 1.4 + 0.28 * len(costs))
        plots.cost_bars(axes, told, (min(costs.min(), 1) / 1.3, max(costs.max(), 1) * 1.6))
        axes.set_xlabel(
            f"time at {self.found.content:,} over the default's at {self.found.fixed:,}"
        )
        plots.verdict_legend(figure)
        return figure


def remedies(
    subject: Case | Any,
    lengths: Iterable[int],
    target: str | Target = DEFAULT_TARGET,
    *,
    fixed: int | None = None,
    content: int | None = None,
    chunks: Iterable[int] | None = None,
    only: Iterable[str] | None = None,
    store: str | Path | None = None,
    trust: bool = False,
    progress: Tell | None = None,
) -> Remedied:
    """Judges every remedy of a case or a network, times it and compares it with exact sums.

    ``subject``: a case, or a model as ``probe.network`` takes it. ``lengths``: of a case two or
    more, each compared with the largest; of a model lengths of content. ``fixed``: of a model, the
    size that content is padded to. ``content``: the length at which costs are told; about a tenth
    of the largest if not given. ``chunks``: outputs of the chunks that are tried. ``only``: names
    of remedies. ``store``: a folder for the results. ``trust``: read a
    model file that runs code of its own. Errors: InputError; TargetError where the
    default can't run.
    """
    where = target_of(target)
    more: dict[str, Any] = {"only": None if only is None else list(only), "progress": progress}
    if chunks:
        more["chunks"] = list(chunks)
    values = sorted(set(lengths))
    if isinstance(subject, Case):
        if fixed is not None:
            why = "a case is compared with its largest length"
            raise InputError("fixed", fixed, why, "add it to --lengths")
        found = measure(subject, where, values, content=content, **more)
    else:
        model = subject if isinstance(subject, Network) else Network.load(subject, trust=trust)
        found = measure_network(model, where, values, fixed, at=content, **more)
    if store is not None:
        with Store.here(Path(store)) as kept:
            for table, found_rows in rows(found).items():
                kept.append(table, found_rows)
    return Remedied(found)
