"""Finds where bits differ along an axis (``probe sweep``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe import backends, layout, ulp
from probe.answers.answer import DEFAULT_TARGET, Answer, case_of, targets_of
from probe.arguments import choice
from probe.budget import within
from probe.campaign import Campaign, CampaignPart, case_row, run_row
from probe.case import Case
from probe.cluster import sweeps as clustered
from probe.errors import InputError
from probe.printing import up_to
from probe.progress import Tell, silent
from probe.shard import Shard, asking
from probe.store import Store
from probe.sweeps import Plans, Summary, axis_values
from probe.sweeps import sweep as swept
from probe.switch_points import by_order
from probe.switch_points.by_order import ByOrder
from probe.target import Target
from probe.window import axis_of, number_of, shown

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
            name: _few(sorted({one.at for one in found.differences}), self.found.vary)
            for name, found in self.found.targets.items()
        }
        each = [f"{name}: differs at {values}" for name, values in where.items() if values]
        each += [f"{name}: failed" for name, one in self.found.targets.items() if one.failures]
        each += [f"{name}: {one.unasked:,} left out" for name, one in parts.items() if one.unasked]
        each += ["interrupted"] * self.found.interrupted
        stable = "every length agrees with the longest, with these operands"
        return (
            _asked(self.case, self.found.vary, self.values, self.found.targets),
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
        grid.columns = [shown(self.found.vary, value) for value in grid.columns]
        figure, (axes,) = plots.panels(1, 1, 9.0, 1.6 + 0.35 * len(grid))
        plots.length_strips(axes, grid)
        against = shown(self.found.vary, self.found.against)
        axes.set(xlabel=self.found.vary, title=f"|ulp| against {against}")
        plots.ulp_legend(figure, grid.to_numpy())
        return figure


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
            f"{name}: differs at {_few([at.at for at in one.values if at.outputs], self.vary)}"
            for name, one in self.found.targets.items()
            if one.differing
        ]
        each += [f"{one['target']}: failed" for one in self.found.failures]
        return (
            f"{_asked(self.case, self.vary, self.values, self.found.targets)}, by order",
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
        grid.columns = [shown(self.vary, value) for value in grid.columns]
        figure, (axes,) = plots.panels(1, 1, 9.0, 1.4 + 0.35 * len(grid))
        plots.share_bar(
            figure, plots.share_map(axes, grid), [axes], "added in a different order or rounding"
        )
        axes.set_xlabel(self.vary)
        return figure


def _asked(case: Case, vary: str, values: Sequence[int], targets: Iterable[str]) -> str:
    asked = case.with_(length=None) if vary == "length" else case
    span = f"{_few(values[:1], vary)} to {_few(values[-2:-1], vary)}"
    if vary == "layout":
        span = _few(values[:-1], vary)
    span += f" against {_few(values[-1:], vary)}"
    return f"{asked.label}: {vary} {span} on {', '.join(targets)}"


def _few(values: Sequence[int], vary: str) -> str:
    told = (shown(vary, value) for value in values[:6])
    text = ", ".join(one if isinstance(one, str) else f"{one:,}" for one in told)
    return text + (f", ... ({len(values) - 6:,} more)" if len(values) > 6 else "")


def sweep(
    case: Case,
    lengths: Iterable[int | str] | None,
    target: str | Target | Iterable[str | Target] = DEFAULT_TARGET,
    *,
    vary: str | None = None,
    by: str = "bits",
    store: str | Path | Store | None = None,
    control: str = "every",
    keep: int | None = None,
    workers: int | None = None,
    progress: Tell | None = None,
    zeros: str = "equal",
    shard: str = "1/1",
    cluster: str | None = None,
    time: str | None = None,
) -> Swept | SweptByOrder:
    """Runs ``case`` at many lengths and compares each with the longest, output by output.

    ``lengths``: two or more values of the axis ``vary`` (length, batch, filters, channels or
    layout; None: length, of a dense layer batch), such as ``range(5, 41)``. Layouts are words, each
    compared with ``contiguous``; ``lengths`` None: all that the targets keep.
    ``target``: one or several.
    ``by``: ``bits``, or ``order``: the summations are compared, for all finite operands.
    ``store``: a folder, or a store of the caller's, who closes it; what is there is not measured
    again; None keeps nothing. ``control``:
    ``every`` shape runs again, or only ``differing`` ones.
    ``keep``: differing outputs stored of each comparison; None: all. ``workers``: targets side by
    side. ``zeros``: ``differ`` makes +0 against -0 a difference, at 0 ulp, and keeps nothing;
    ``equal`` counts them. ``shard``: ``2/8`` runs the second of eight parts of the values and keeps
    it in a folder of its own beside the others'. ``cluster``: ``local:2`` or a Dask scheduler's
    address: nodes run it, and it is stored here by their machines; a target then may say
    ``machine=LABEL``. ``time``: ``30m`` (90s, 2h) runs what is likely to differ first, ends when
    the time is up and reports what was left out; the same call continues. Errors: InputError before
    anything runs. A target's failure is part of the answer.

    >>> import probe
    >>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=64)
    >>> probe.sweep(case, range(5, 41), ["tensorflow,onednn=0", "torch"])  # doctest: +SKIP
    """
    wanted = _wanted(target) if cluster is not None else []
    chosen = [one.target for one in wanted] if wanted else targets_of(target)
    vary = axis_of(case_of(case), vary)
    values = _layouts(lengths, case, chosen) if vary == "layout" else _values(lengths)
    choice("control", control, ("every", "differing"))
    choice("by", by, ("bits", "order"))
    if choice("zeros", zeros, ulp.ZEROS) == "differ" and (store is not None or by == "order"):
        why = (
            "stored results count +0 and -0 as equal"
            if store is not None
            else "orders do not depend on the sign of zeros"
        )
        todo = "store nothing: --no-store (store=None)" if store is not None else "use --by bits"
        raise InputError("zeros", zeros, why, todo)
    if time is not None and by == "order":
        why = "a sweep by order can't be resumed"
        raise InputError("time", time, why, "use --by bits, or fewer values")
    if time is not None and cluster is not None:
        why = "nodes do not know each other's results, which decide what is run first"
        raise InputError("time", time, why, "leave out --cluster, or divide by --shard")
    plans = Plans([case], vary, *axis_values(values, vary))
    part = _shard(shard, len(values) - 1)
    if cluster is not None:
        _suits_cluster(cluster, by, workers, store)
        asked, against = axis_values(values, vary)
        case = plans[0].case
        question = clustered.Asking(case, vary, part.part(asked), against, control, keep, zeros)
        folder = None if store is None else Path(str(store)) / part.folder
        notes: list[str] = []
        summary = clustered.sweep(
            cluster, question, wanted, folder, progress or silent, notes.append
        )
        return Swept(summary, case, values, notes)
    if isinstance(store, str | Path):
        opened: AbstractContextManager[Store | None] = Store.here(Path(store) / part.folder)
    else:
        opened = nullcontext(store)
    with within(time), asking(part), opened as kept:
        if by == "order":
            values = [*part.part(values[:-1]), values[-1]]
            job = _ByOrder(values, vary, kept, progress)
            if job.run([(one, [case]) for one in chosen]).interrupted:
                raise KeyboardInterrupt
            return SweptByOrder(job.orders(), case, values, vary)
        found = swept(
            *([case], chosen, values, vary, kept),
            control=control,
            workers=workers,
            keep=keep,
            progress=progress,
            zeros=zeros,
        )
    return Swept(found, case, values)


def _wanted(given: str | Target | Iterable[str | Target]) -> list[clustered.Wanted]:
    several = [given] if isinstance(given, str | Target) else given
    return list(dict.fromkeys(map(clustered.Wanted.parse, several)))


def _suits_cluster(cluster: str, by: str, workers: int | None, store: object) -> None:
    """Raises InputError for what a cluster can't run."""
    if by != "bits":
        why = "sweeps by order do not run on a cluster"
        raise InputError("cluster", cluster, why, "give each machine a part: --shard i/n")
    if workers is not None:
        todo = "leave --workers out; `dask worker --nworkers` says how many a node runs"
        raise InputError("workers", workers, "the cluster's nodes decide this", todo)
    if isinstance(store, Store):
        raise InputError("store", store.path, "the nodes are different machines", "give a folder")


def _shard(text: str, questions: int) -> Shard:
    """Returns the part. InputError where it is none, or where nothing would be left for it."""
    part = Shard.parse(text)
    if part.total > questions:
        why = f"there are {questions:,} values to compare, so some parts would have none"
        raise InputError("shard", text, why, f"use {questions} parts at most")
    return part


OFFSETS = (4, 16, 32)
"""Bytes of the offsets that a sweep of all layouts tries."""


def _layouts(given: Iterable[int | str] | None, case: Case, targets: Sequence[Target]) -> list[int]:
    """Returns the numbers of layouts, ``contiguous`` last; None: all that the targets keep."""
    if given is None:
        kept = dict.fromkeys(word for one in targets for word in backends.get(one.name).layouts)
        given = [w for w in kept if not w.startswith(layout.OFFSET) and _fits(case, w)]
        given += [
            word
            for word in (f"{layout.OFFSET}{count}" for count in OFFSETS)
            if layout.kept(word, tuple(kept)) and _fits(case, word)
        ]
    several = [given] if isinstance(given, str) else list(given)
    numbers = [number_of("layout", one) for one in several]
    others, against = axis_values([one for one in numbers if one is not None], "layout")
    return [*others, against]


def _fits(case: Case, word: str) -> bool:
    try:
        case.with_(layout=word)
    except InputError:
        return False
    return True


def _values(lengths: Iterable[int | str] | None) -> list[int]:
    """Returns the values ascending, each once. InputError where they aren't whole numbers."""
    whole = None if lengths is None or isinstance(lengths, str) else list(lengths)
    if whole is None or not all(isinstance(one, int | np.integer) for one in whole):
        raise InputError(
            "lengths", lengths, "these are not whole numbers", "write range(5, 41) or [5, 9]"
        )
    return sorted({int(one) for one in whole})


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
        found = by_order.sweep(
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
