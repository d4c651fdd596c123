"""Finds where bits, or the orders of sums, differ along an axis; and summarises what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.case.arguments import choice, optional_number, typed
from probe.case.case import Case, require_places
from probe.case.errors import InputError, TargetError, printable, refuse
from probe.order.window import axis_of, case_at, number_of, shown_axis_value
from probe.sweep.bits import Summary, TargetSummary, answer_request
from probe.sweep.campaign import case_row, run_row
from probe.sweep.plan import Plans, Shard, SweepRequest, axis_values, within_shard
from probe.sweep.printing import counted, table, up_to
from probe.targets.budget import within
from probe.targets.launch import open_session
from probe.targets.progress import Tell, silent
from probe.targets.target import Target
from probe.ui.answers import views
from probe.ui.answers.answer import (
    DEFAULT_TARGET,
    Answer,
    Lengths,
    checked_case,
    checked_targets,
    command_line,
    length_values,
    values_of_axis,
)

if TYPE_CHECKING:  # what keeps nothing needs no pyarrow
    from probe.sizes.orders import ByOrder
    from probe.sweep.store import Store
    from probe.sweep.stored import Results


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
        """The summary; with several targets, their totals beside them."""
        report = self.found.to_json()
        if "targets" in report:
            parts = list(report["targets"].values())
            counts = "compared differing not_compared comparisons stored_before signed_zero"
            report |= {name: sum(part[name] for part in parts) for name in counts.split()}
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

    @property
    def failed(self) -> bool:
        """Whether a target failed, and nothing of it was compared."""
        results = self.found.targets.values()
        return any(result.failures and not result.comparisons for result in results)

    @property
    def strange(self) -> bool:
        """Whether a shape does not repeat its own bits."""
        return any(r.nondeterministic or r.alignment for r in self.found.targets.values())

    def lines(self) -> tuple[str, str, str]:
        report, vary, parts = self.report(), self.found.vary, self.found.targets.items()
        count = f"{report['differing']:,} of {report['compared']:,} outputs differ"
        where = {name: sorted({each.at for each in part.differences}) for name, part in parts}
        findings = [
            f"{name}: differs at {values_of_axis(vary, at)}" for name, at in where.items() if at
        ]
        failed = {name: part.failures[0].message for name, part in parts if part.failures}
        findings += [f"{name}: failed: {why}" for name, why in failed.items()]
        findings += [f"{name}: {part.unasked:,} left out" for name, part in parts if part.unasked]
        findings += ["interrupted"] * self.found.interrupted
        other = against_in_words(self.values, vary)
        stable = f"every {vary} agrees with {other}, with these operands"
        if not report["compared"]:
            stable = f"no {vary} has outputs that must agree with those of {other}"
        elif report["not_compared"]:
            stable = f"every output that must agree with one of {other} does, with these operands"
        count += up_to(report["max_ulp"]) * bool(report["differing"])
        return (
            sweep_title(self.case, vary, self.values, self.found.targets),
            count if report["compared"] else "nothing was compared",
            "; ".join(findings) or stable,
        )

    def shown(self) -> RenderableType:
        """A row for each target, then what to do."""
        summary, case, values = self.found, self.case, self.values[:-1]
        vary = summary.vary
        shown = case.with_(length=None) if vary == "length" else case
        operands = "given weights" if case.weights else f"seed {case.seed}"
        against = shown_axis_value(vary, summary.against)
        head = f"{vary} {values_of_axis(vary, values)} against {against}"
        head += f"; {case.kind} operands, {operands}; {summary.seconds:.1f} s"
        numeric = ("differing", "compared", "max ulp")
        rows = table("target", "verdict", "differs at", *numeric, right=numeric)
        parts: list[RenderableType] = [f"{shown.label}\n{head}", "", rows]
        for name, result in summary.targets.items():
            verdict = _verdict_by_bits(result)
            if not result.comparisons:
                rows.add_row(name, verdict)
                continue
            far = "not a number" if result.max_ulp is None else f"{result.max_ulp:,}"
            differing = sorted({difference.at for difference in result.differences})
            place = values_of_axis(vary, differing) if differing else "none"
            later = [value for value in values if differing and value > differing[-1]]
            complete = not (summary.interrupted or result.failures or result.unasked)
            if later and complete and vary != "layout":
                place += f"; none in {values_of_axis(vary, later)}"
            rows.add_row(name, verdict, place, f"{result.differing:,}", f"{result.compared:,}", far)
        # failures of a target, equal ones once
        for name, result in summary.targets.items():
            counts = Counter((failure.kind, failure.message) for failure in result.failures)
            listed = list(counts.items())[:3]
            parts += [""] * bool(listed)
            for (kind, message), times in listed:
                same = [failure.at for failure in result.failures if failure.message == message]
                places = {value for value in same if value is not None}
                where = f"{vary} {values_of_axis(vary, places)}: " if places else ""
                again = f" ({times} times)" if times > 1 else ""
                parts.append(f"{name}: {where}{kind}: {message}{again}")
            if more := len(counts) - len(listed):
                parts.append(f"{name}: {more} other failures; --json has all")
        after = list(_after_sweep(summary, case))
        return Group(*parts, *([""] * bool(after)), *after)

    figure = "plots", "draw_swept", "found", "values"


def _verdict_by_bits(result: TargetSummary) -> str:
    if result.nondeterministic:
        return "does not repeat its own bits"
    if not result.comparisons:
        return "failed" if result.failures else "not run"
    # no window of the two sizes holds the same
    if not result.compared:
        return "nothing to compare"
    verdict = "differs" if result.differing else "agrees"
    # what was compared lay alike; laid elsewhere, it has different bits
    return verdict + (", depends on the memory address" if result.alignment else "")


def _after_sweep(summary: Summary, case: Case) -> Iterator[RenderableType]:
    """Where results are, and the command that says why."""
    if summary.store:
        before = sum(result.stored_before for result in summary.targets.values())
        stored_before = f" ({before} comparisons were there already)" if before else ""
        yield f"stored in {summary.store}{stored_before}"
        stored = sum(result.kept for result in summary.targets.values())
        if stored < summary.differing:
            text = f"of {summary.differing:,} differing outputs {stored:,} are stored"
            text += ", the first ones of each comparison and the largest"
            yield f"{text}; --keep N says how many"
    if summary.left_out:
        done = sum(result.comparisons + len(result.failures) for result in summary.targets.values())
        todo = "the same command continues with them"
        todo = todo if summary.store else "give --store to continue later"
        share = f"{summary.left_out:,} of {summary.left_out + done:,} comparisons"
        yield f"the time is up: {share} were left out; {todo}"
        for name, result in summary.targets.items():
            for values in result.left_out.values():
                yield f"{name}: {summary.vary} {values_of_axis(summary.vary, values)}"
    if summary.interrupted:
        yield "interrupted; run the same command again to continue"
    elif summary.differing:
        name, result = next(item for item in summary.targets.items() if item[1].differences)
        first = min(difference.at for difference in result.differences)
        at, against = (shown_axis_value(summary.vary, n) for n in (first, summary.against))
        vary = "" if summary.vary == "length" else f" --vary {summary.vary}"
        command = f"probe explain {command_line(case, (summary.vary,))}{vary} --at {at} "
        command += f"--against {against} --target {name}"
        # one line, however long: it is copied as it stands
        yield Text(f"why: {command}", no_wrap=True, overflow="ignore")
    elif any(result.compared for result in summary.targets.values()) and case.kind != "integers":
        if summary.left_out:
            yield "No difference so far."
        elif summary.failures:
            yield "No difference in what was compared; what failed is not known."
        elif case.kind == "cancel":
            yield "No difference, with operands that show nearly every change of order."
        elif case.pool:
            yield "No difference with these operands: try --operands cancel, tiny or nan."
        else:
            text = "No difference with these operands. The orders may still differ: "
            yield text + "try --by order or --operands cancel."


# Summations that are written out for a target.
MOST_SUMMATIONS = 6


@dataclass(repr=False)
class SweptByOrder(Answer):
    """Holds a case at many values of an axis, whose summations are compared, for all data:
    ``found`` by target; ``failures`` of those that failed."""

    found: dict[str, ByOrder]
    case: Case
    values: Sequence[int]
    vary: str
    failures: list[dict[str, str]]
    store: str | None = None
    notes: Sequence[str] = ()
    interrupted = False

    def report(self) -> dict[str, Any]:
        """One target's report at the top level, several under ``targets``."""
        targets = {target: by_order.to_json() for target, by_order in self.found.items()}
        parts = list(targets.values())
        about: dict[str, Any] = {"by": "order", "failures": self.failures, "store": self.store}
        about |= {"case": self.case.to_json()}
        if len(parts) == 1 and not self.failures:
            return parts[0] | about
        counts = ("compared", "differing", "unknown")
        totals = {name: sum(part[name] for part in parts) for name in counts}
        totals["sets"] = min((part["sets"] for part in parts), default=0)
        return {"targets": targets} | totals | about

    @property
    def strange(self) -> bool:
        return any(by_order.strange for by_order in self.found.values())

    @property
    def failed(self) -> bool:
        """Whether a target failed, or failed at the value that all others are compared with."""
        not_failures = ("", "alignment", "nondeterministic", "not-a-sum", "not-asked")
        refused = [by_order.base.refusal not in not_failures for by_order in self.found.values()]
        return bool(self.failures) or any(refused)

    def lines(self) -> tuple[str, str, str]:
        report = self.report()
        unknown = f", {report['unknown']:,} are unknown" if report["unknown"] else ""
        count = f"{report['differing']:,} of {report['compared']:,} outputs"
        count += " are added in a different order or rounding"
        findings = [
            f"{name}: differs at {values_of_axis(self.vary, differs)}"
            for name, by_order in self.found.items()
            if (differs := [at.at for at in by_order.values if at.outputs])
        ]
        findings += [f"{f['target']}: failed: {f['message']}" for f in self.failures]
        other = against_in_words(self.values, self.vary)
        same = f"every {self.vary} adds in the same order as {other}"
        if not report["compared"]:
            same = f"no {self.vary} has outputs that must agree with those of {other}"
        elif unknown:
            same = "none of those that are known is added differently"
        return (
            f"{sweep_title(self.case, self.vary, self.values, self.found)}, by order",
            count + unknown,
            "; ".join(findings) or same,
        )

    def shown(self) -> RenderableType:
        """A row for each target, then every summation with the lengths that have it."""
        values, vary = self.values, self.vary
        label = next((swept.case.label for swept in self.found.values()), "")
        against = shown_axis_value(vary, values[-1])
        head = f"{label}\n{vary} {values_of_axis(vary, values[:-1])} against {against}"
        numeric = ("outputs", "compared", "not known")
        rows = table("target", "verdict", "where", "by", *numeric, right=numeric)
        for target, swept in self.found.items():
            differing = [at.at for at in swept.values if at.outputs]
            causes: Counter[str] = sum((at.causes for at in swept.values), Counter())
            verdict = "one order"
            if swept.differing:
                verdict = "differs"
            elif any(at.refusal for at in (swept.base, *swept.values)):
                verdict = "not revealed"
            elif any(at.unknown for at in swept.values):
                verdict = "not known"
            elif not swept.compared:
                verdict = "nothing to compare"
            rows.add_row(
                target,
                verdict,
                f"{vary} {values_of_axis(vary, differing)}" if differing else "",
                ", ".join(sorted(causes)),
                f"{swept.differing:,}",
                f"{swept.compared:,}",
                f"{sum(at.unknown for at in swept.values):,}",
            )
        parts: list[RenderableType] = [f"{head}, by order, for all finite operands", "", rows]
        for failure in self.failures:
            rows.add_row(failure["target"], "failed")
            parts.append(f"\n{failure['target']}: {failure['kind']}: {failure['message']}")
        for target, swept in self.found.items():
            if swept.compared and swept.sets:
                parts.append(f"\n{target}: {views.sets_text(swept.sets)}")
            all_values = (*swept.values, swept.base)
            reasons: dict[str, list[int]] = {}  # why some values have no orders, equal ones once
            for at in all_values:
                if at.refusal:
                    reasons.setdefault(at.refusal, []).append(at.at)
            for why, values_refused in reasons.items():
                parts.append(f"\n{target}: {vary} {values_of_axis(vary, values_refused)}: {why}")
            if swept.differing:
                parts.append(f"\n{target}")
                # those of the largest value come first
                for number, added in list(enumerate(swept.summations))[:MOST_SUMMATIONS]:
                    adding = [
                        at.at for at in all_values if at.orders and added in at.orders.summations
                    ]
                    where = f"{vary} {values_of_axis(vary, adding)}"
                    parts.append(f"order {added.tree.id}  {where}")
                    parts.append(views.summation(added, swept.case.dtype, number < 2))
                if (more := len(swept.summations) - MOST_SUMMATIONS) > 0:
                    parts.append(f"and {more} more summations; --json has all")
        if self.store:
            parts.append(f"\nstored in {self.store}")
        return Group(*parts)

    figure = "plots", "draw_swept_by_order", "found", "values", "vary"


def sweep_title(case: Case, vary: str, values: Sequence[int], targets: Iterable[str]) -> str:
    """The first line of a sweep: what is compared with what, and where."""
    shown = case.with_(length=None) if vary == "length" else case
    span = f"{values_of_axis(vary, values[:-1])} against {values_of_axis(vary, values[-1:])}"
    return f"{shown.label}: {vary} {span} on {', '.join(targets)}"


def against_in_words(values: Sequence[int], vary: str) -> str:
    """What all values are compared with: ``the longest``, ``batch 4``, ``contiguous``."""
    shown = values_of_axis(vary, values[-1:])
    return {"length": "the longest", "layout": shown}.get(vary, f"{vary} {shown}")


@typed
def sweep(
    case: Case,
    lengths: Lengths,
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
    layout; None: length, of a dense layer batch), such as ``range(5, 41)`` or ``"5..40"``. Layouts
    are words, each compared with ``contiguous``.
    ``target``: one or several.
    ``by``: ``bits``, or ``order``: the summations are compared, for all finite operands.
    ``store``: a folder, or a store of the caller's, who closes it; what is there is not measured
    again; None keeps nothing. ``control``:
    ``every`` shape runs again, or only ``differing`` ones.
    ``keep``: differing outputs stored of each comparison; None: 1,000,000. ``workers``: targets
    side by side. ``zeros``: ``differ`` makes +0 against -0 a difference, at 0 ulp, and keeps
    nothing; ``equal`` counts them. ``shard``: ``2/8`` runs the second of eight parts of the values
    and keeps it in a folder beside the others'. ``cluster``: ``local:2`` or a Dask scheduler's
    address: nodes run it, and it is stored here by their machines; a target then may say
    ``machine=LABEL``. ``time``: ``30m`` (90s, 2h) runs lengths evenly over the whole range, ends
    when the time is up and reports what was left out; the same call continues. Errors: InputError
    before anything runs. A target's failure is part of the answer.

    >>> import probe
    >>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=64)
    >>> probe.sweep(case, range(5, 41), ["tensorflow,onednn=0", "torch"])  # doctest: +SKIP
    """
    part = Shard.parse(shard)
    choice("by", by, ("bits", "order"))
    keep, workers = optional_number("keep", keep, least=0), optional_number("workers", workers)
    if by == "order":
        options = {"workers": workers, "keep": keep, "time": time, "cluster": cluster}
        options |= {"zeros": None if zeros == "equal" else zeros}
        options |= {"control": None if control == "every" else control}
        todo = "leave it out, or use --by bits"
        refuse(options, "a sweep by order has no such choice", todo)
    if zeros == "differ" and store is not None:
        todo = "store nothing"
        raise InputError("zeros", zeros, "stored results count +0 and -0 as equal", todo)
    if cluster is not None:
        todo = "leave out --cluster, or divide by --shard"
        refuse({"time": time}, "nodes do not know when the time is up", todo)
        todo = "leave --workers out; `dask worker --nworkers` says how many a node runs"
        refuse({"workers": workers}, "the cluster's nodes decide this", todo)
        if store is not None and not isinstance(store, str | Path):
            why = "the nodes are different machines"
            raise InputError("store", store.path, why, "give a folder")
        from probe.sweep import cluster as nodes

        several = [target] if isinstance(target, str | Target) else target
        wanted = list(dict.fromkeys(map(nodes.Wanted.parse, several)))
        targets = [each.target for each in wanted]
    else:
        targets = checked_targets(target)
    if (vary := axis_of(checked_case(case), vary)) == "layout":
        values = _layout_numbers(lengths)
    else:
        values = length_values(lengths)
    plans = Plans([case], vary, *axis_values(values, vary))
    require_places(case_at(plans[0].case, vary, values[-1]))
    # the largest value is in every part: all others are compared with it
    if part.total > len(values) - 1:
        why = f"there are {len(values) - 1:,} values to compare, so some parts would have none"
        raise InputError("shard", shard, why, f"use {len(values) - 1} parts at most")
    request = SweepRequest(plans, control, keep, zeros)
    if cluster is not None:
        folder = None if store is None else Path(str(store)) / part.folder
        notes: list[str] = []
        request = replace(request, only=tuple(part.part(plans.values)))
        summary = nodes.sweep_on_nodes(
            *(cluster, request, wanted, folder), progress or silent, notes.append
        )
        return Swept(summary, plans[0].case, values, notes)
    if isinstance(store, str | Path):
        from probe.sweep.store import Store

        opened: AbstractContextManager[Store | None] = Store.here(Path(store) / part.folder)
    else:
        opened = nullcontext(store)
    tell = progress or silent
    with within(time), within_shard(part), opened as open_store:
        if by == "bits":
            summary = answer_request(request, targets, open_store, workers, progress)
            return Swept(summary, case, values)
        from probe.sizes.orders import sweep_by_order  # late: a sweep by bits needs none

        values = [*part.part(values[:-1]), values[-1]]
        kept_in = None if open_store is None else str(open_store.path)
        swept = SweptByOrder({}, case, values, vary, [], kept_in)
        for text, where in {where.text: where for where in targets}.items():
            say = partial(lambda text, done, total: tell(done, total, text), text)
            try:
                with open_session(where) as session:
                    by_order = sweep_by_order(session, case, values, vary, progress=say)
                    run = run_row(where, session.facts, session.variables)
            except TargetError as error:  # what a target fails at is not stored
                failure = {"target": text, "kind": error.kind, "message": error.why}
                swept.failures.append(failure)
                continue
            swept.found[text] = by_order
            if open_store is not None:
                tables: dict[str, Any] = {"runs": run, "cases": case_row(by_order.case)}
                for table, rows in (tables | by_order.rows(run["run_id"])).items():
                    open_store.append(table, rows)
        return swept


def _layout_numbers(layouts: Iterable[int | str] | None) -> list[int]:
    """The numbers of layouts, ``contiguous`` last. InputError: none is given, or one is unknown."""
    if layouts is None:
        todo = "give words such as transposed,offset:16"
        raise InputError("layouts", "(none)", "nothing is compared with contiguous", todo)
    several = layouts.split(",") if isinstance(layouts, str) else list(layouts)
    numbers = [number_of("layout", word) for word in several]
    compared, against = axis_values([number for number in numbers if number is not None], "layout")
    return [*compared, against]


BY = ["machine", "target", "library_version", "vary"]
# What a target has of which failures alone are stored.
_NOTHING: dict[str, Any] = dict.fromkeys(
    ("cases", "comparisons", "compared", "differing", "max_ulp", "unstable", "nondeterministic"), 0
)

# ``unstable``: comparisons with a difference.
_TARGETS = """
    SELECT c.machine, c.target, r.library_version, c.vary, count(DISTINCT case_id) AS cases,
        count(*) AS comparisons, sum(compared) AS compared, sum(differing) AS differing,
        CASE WHEN max(differing) > 0 THEN max(max_ulp) FILTER (differing > 0) ELSE 0 END AS max_ulp,
        count(*) FILTER (differing > 0) AS unstable,
        count(*) FILTER (control = 'differs') AS nondeterministic
    FROM comparisons c LEFT JOIN runs r USING (machine, run_id) GROUP BY ALL
"""
_CAUSES = """
    SELECT machine, target, vary, cause, sum(outputs) AS n FROM causes GROUP BY ALL ORDER BY cause
"""
_FAILURES = "SELECT machine, target, count(*) AS n FROM failures GROUP BY ALL"
_RUNS = """
    SELECT machine, count(*) AS n, min(started) AS first, max(started) AS last
    FROM runs GROUP BY ALL
"""


def summary_of_stores(results: Results) -> dict[str, Any]:
    """Summarises stores as ``probe results --json`` prints them.

    Totals, and one entry of ``targets`` for each machine and target.
    """
    from probe.sweep import stored

    def once() -> dict[str, Any]:
        answers = results.answered(_TARGETS, _CAUSES, _FAILURES, _RUNS)
        targets, explained, failed, runs = (rows.to_pylist() for rows in answers)
        causes: dict[tuple[str, ...], dict[str, int]] = {}
        for row in explained:
            place = row["machine"], row["target"], row["vary"]
            causes.setdefault(place, {})[row["cause"]] = row["n"]
        failures = {(row["machine"], row["target"]): row["n"] for row in failed}
        when = {name: {"runs": 0, "first": None, "last": None} for name in results.machines}
        for row in runs:
            ends = {name: row[name].isoformat() for name in ("first", "last")}
            when[row["machine"]] = {"runs": row["n"], **ends}
        order = {name: place for place, name in enumerate(results.machines)}
        targets.sort(
            key=lambda row: (
                [order[row["machine"]]] + [(row[name] is None, row[name] or "") for name in BY[1:]]
            )
        )
        for entry in targets:
            where = entry["machine"], entry["target"]
            entry["failures"] = failures.pop(where, 0)
            entry["causes"] = causes.get((*where, entry["vary"]), {})
        targets += [
            dict.fromkeys([*BY, *_NOTHING])
            | _NOTHING
            | {"machine": place[0], "target": place[1]}
            | {"failures": count, "causes": {}}
            for place, count in sorted(failures.items())
        ]
        totals = {name: sum(entry[name] for entry in targets) for name in ("compared", "differing")}
        return {
            "machines": results.machines,
            "cases": results.count("cases"),
            **totals,
            "targets": targets,
            "when": when,
            "tables": {name: n for name in results.tables if (n := results.count(name))},
            "left_out": list(results.left_out.values()),
            "missing": [
                why for machine in results.machines for why in results.stored(machine).lost()
            ],
        }

    # others may write meanwhile
    return stored.steady(once, results.folders[0])


# Tables that the rows of targets sum up.
_SHOWN_APART = ("runs", "cases", "comparisons", "differences", "failures", "causes")


def stores_shown(summary: Mapping[str, Any]) -> RenderableType:
    """A table for every machine, a row a target.

    ``summary``: what ``summary_of_stores`` gives.
    """
    machines = summary["machines"]
    parts: list[RenderableType] = []
    for machine in machines:
        rows = [row for row in summary["targets"] if row["machine"] == machine]
        when, days = summary["when"][machine], ""
        if when["runs"]:
            span = " to ".join(dict.fromkeys(when[end][:10] for end in ("first", "last")))
            days = f"  {counted(when['runs'], 'run')}, {span}"
        parts.append(f"{printable(machine)}{days}")
        cells = [_cells(row) for row in rows]
        # columns that are empty in all rows are left out
        filled = {name: any(row[name] for row in rows) for name in ("failures", "causes")}
        filled["share"] = any(row["unstable"] for row in rows)
        filled["version"] = len({row["target"] for row in rows}) < len(rows)
        names = [name for name in cells[0] if filled.get(name, True)] if cells else []
        shown = table(*names, right=[name for name in names if name not in _TEXTS])
        for row in cells:
            shown.add_row(*(row[name] for name in names))
        parts += [shown if rows else "no comparisons", ""]
    further_tables = {name: n for name, n in summary["tables"].items() if name not in _SHOWN_APART}
    if further_tables:
        singular = {name: name.removesuffix("s") for name in further_tables} | {
            "remedies": "remedy"
        }
        words = [
            f"{n:,} {singular[name] if n == 1 else name}" for name, n in further_tables.items()
        ]
        parts += ["also: " + ", ".join(words), ""]
    total = f"{summary['differing']:,} of {summary['compared']:,} outputs differ"
    places = counted(summary["cases"], "case"), counted(len(machines), "machine")
    return Group(*parts, f"{places[0]}, {places[1]}: {total}")


_TEXTS = ("target", "version", "causes")


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """One row by column: comparisons made, those with a difference, and so on."""
    vary = "" if row["vary"] in (None, "length") else f" (by {row['vary']})"
    share = f"{100 * row['unstable'] / row['comparisons']:.3g} %" if row["unstable"] else ""
    return {
        "target": printable(f"{row['target']}{vary}"),
        "version": printable(row["library_version"] or ""),
        "compared": f"{row['comparisons']:,}",
        "unstable": f"{row['unstable']:,}",
        "share": share,
        "outputs": f"{row['differing']:,}",
        "max ulp": "not a number" if row["max_ulp"] is None else f"{row['max_ulp']:,}",
        "failures": f"{row['failures']:,}",
        "causes": "\n".join(f"{printable(cause)} {n:,}" for cause, n in row["causes"].items()),
    }
