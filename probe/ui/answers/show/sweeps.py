"""Shows what sweeps found, by bits and by order, and what a bisection came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.case.case import Case
from probe.order import window
from probe.sweep.printing import ranges, table
from probe.sweep.summary import Summary, TargetSummary
from probe.ui.answers.answer import command_line, values_of_axis
from probe.ui.answers.show import cases

if TYPE_CHECKING:  # a sweep by bits shows no sums
    from probe.sizes.bisection import Conditions
    from probe.sizes.by_order import ByOrder


def sweep_by_bits(summary: Summary, case: Case, values: Sequence[int]) -> RenderableType:
    """Shows a row for each target, then what to do. ``values``: those compared with the largest."""
    after = list(_after_sweep(summary, case))
    shown = case.with_(length=None) if summary.vary == "length" else case
    text = Text(f"{shown.label}", "bold")
    operands = "given weights" if case.weights else f"seed {case.seed}"
    against = window.shown_axis_value(summary.vary, summary.against)
    text.append(
        f"\n{summary.vary} {values_of_axis(summary.vary, values)} against {against}; "
        f"{case.kind} operands, {operands}; {summary.seconds:.1f} s",
        "not bold",
    )
    numeric = ("differing", "compared", "max ulp")
    rows = table("target", "verdict", "differs at", *numeric, right=numeric)
    for name, result in summary.targets.items():
        if not result.comparisons:
            rows.add_row(name, _verdict_by_bits(result))
            continue
        far = "not a number" if result.max_ulp is None else f"{result.max_ulp:,}"
        differing = sorted({difference.at for difference in result.differences})
        place = Text(values_of_axis(summary.vary, differing) if differing else "none")
        later = [value for value in values if differing and value > differing[-1]]
        complete = not (summary.interrupted or result.failures or result.unasked)
        if later and complete and summary.vary != "layout":
            place.append(f"; none in {values_of_axis(summary.vary, later)}", "green")
        numbers = (f"{count:,}" for count in (result.differing, result.compared))
        rows.add_row(name, _verdict_by_bits(result), place, *numbers, far)
    parts: list[RenderableType] = [text, "", rows]
    # failures of a target, equal ones once
    for name, result in summary.targets.items():
        counts = Counter((failure.kind, failure.message) for failure in result.failures)
        listed = list(counts.items())[:3]
        parts += [""] * bool(listed)
        for (kind, message), times in listed:
            same = [failure.at for failure in result.failures if failure.message == message]
            places = {value for value in same if value is not None}
            where = f"{summary.vary} {values_of_axis(summary.vary, places)}: " if places else ""
            again = f" ({times} times)" if times > 1 else ""
            parts.append(Text(f"{name}: {where}{kind}: {message}{again}", "yellow"))
        if more := len(counts) - len(listed):
            parts.append(Text(f"{name}: {more} other failures; --json has all", "yellow"))
    return Group(*parts, *([""] * bool(after)), *after)


def _verdict_by_bits(result: TargetSummary) -> Text:
    if result.nondeterministic:
        return Text("does not repeat its own bits", "magenta")
    if not result.comparisons:
        return Text("failed" if result.failures else "not run", "yellow")
    # no window of the two sizes holds the same
    if not result.compared:
        return Text("nothing to compare", "yellow")
    verdict = Text("differs", "bold red") if result.differing else Text("agrees", "green")
    # what was compared lay alike; laid elsewhere, it has different bits
    if result.alignment:
        verdict.append(", depends on the memory address", "magenta")
    return verdict


def _after_sweep(summary: Summary, case: Case) -> Iterator[RenderableType]:
    """Where results are, and the command that says why."""
    before = sum(result.stored_before for result in summary.targets.values())
    stored_before = f" ({before} comparisons were there already)" if before else ""
    if summary.store:
        yield Text(f"stored in {summary.store}{stored_before}")
        stored = sum(result.kept for result in summary.targets.values())
        if stored < summary.differing:
            text = (
                f"of {summary.differing:,} differing outputs {stored:,} are stored, the first ones "
            )
            text += "of each comparison and the largest; --keep N says how many"
            yield Text(text, "yellow")
    if summary.left_out:
        done = sum(result.comparisons + len(result.failures) for result in summary.targets.values())
        lines = [
            f"{name}: {summary.vary} {values_of_axis(summary.vary, values)}"
            for name, result in summary.targets.items()
            for values in result.left_out.values()
        ]
        todo = "the same command continues with them"
        todo = todo if summary.store else "give --store to continue later"
        share = f"{summary.left_out:,} of {summary.left_out + done:,} comparisons"
        head = f"the time is up: {share} were left out; {todo}"
        yield Text("\n".join([head, *lines]), "yellow")
    if summary.interrupted:
        yield Text("interrupted; run the same command again to continue", "yellow")
    elif summary.differing:
        name, result = next(item for item in summary.targets.items() if item[1].differences)
        first = min(difference.at for difference in result.differences)
        at, against = (window.shown_axis_value(summary.vary, n) for n in (first, summary.against))
        vary = "" if summary.vary == "length" else f" --vary {summary.vary}"
        command = f"probe explain {command_line(case, (summary.vary,))}{vary} --at {at} "
        command += f"--against {against} --target {name}"
        # one line, however long: it is copied as it stands
        yield Text(f"why: {command}", no_wrap=True, overflow="ignore")
    elif any(result.compared for result in summary.targets.values()) and case.kind != "integers":
        if summary.left_out:
            text = "No difference so far."
        elif summary.failures:
            text = "No difference in what was compared; what failed is not known."
        elif case.kind == "cancel":
            text = "No difference, with operands that show nearly every change of order."
        elif case.pool:
            text = "No difference with these operands: try --operands cancel, tiny or nan."
        else:
            text = "No difference with these operands. The orders may still differ: "
            text += "try --by order or --operands cancel."
        yield Text(text, "dim")


# Summations that are written out for a target.
MOST = 6


def sweep_by_order(
    targets: Mapping[str, ByOrder], report: Mapping[str, Any], values: Sequence[int]
) -> RenderableType:
    """Shows a row for each target, then every summation with the lengths that have it."""
    vary, label = "length", ""
    for swept in targets.values():
        vary, label = swept.vary, swept.case.label
    against = window.shown_axis_value(vary, values[-1])
    head = f"{label}\n{vary} {values_of_axis(vary, values[:-1])} against {against}"
    numeric = ("outputs", "compared", "not known")
    rows = table("target", "verdict", "where", "by", *numeric, right=numeric)
    for target, swept in targets.items():
        differing = [at.at for at in swept.values if at.outputs]
        causes: Counter[str] = sum((at.causes for at in swept.values), Counter())
        verdict = Text("one order", "green")
        if swept.differing:
            verdict = Text("differs", "bold red")
        elif any(at.refusal for at in (swept.base, *swept.values)):
            verdict = Text("not revealed", "magenta")
        elif any(at.unknown for at in swept.values):
            verdict = Text("not known", "yellow")
        elif not swept.compared:
            verdict = Text("nothing to compare", "yellow")
        rows.add_row(
            target,
            verdict,
            f"{swept.vary} {values_of_axis(swept.vary, differing)}" if differing else "",
            ", ".join(sorted(causes)),
            f"{swept.differing:,}",
            f"{swept.compared:,}",
            f"{sum(at.unknown for at in swept.values):,}",
        )
    for failure in report["failures"]:
        rows.add_row(failure["target"], Text("failed", "yellow"))
    parts: list[RenderableType] = [Text(f"{head}, by order, for all finite operands"), "", rows]
    parts += [
        Text(f"\n{failure['target']}: {failure['kind']}: {failure['message']}", "yellow")
        for failure in report["failures"]
    ]
    for target, swept in targets.items():
        if swept.compared and swept.sets:
            parts.append(Text(f"\n{target}: {cases.sets_text(swept.sets)}"))
        all_values = (*swept.values, swept.base)
        reasons: dict[str, list[int]] = {}  # why some values have no orders, equal ones once
        for at in all_values:
            if at.refusal:
                reasons.setdefault(at.refusal, []).append(at.at)
        for why, values_refused in reasons.items():
            where = f"{swept.vary} {values_of_axis(swept.vary, values_refused)}"
            parts.append(Text(f"\n{target}: {where}: {why}", "yellow"))
        # outputs into which infinities and NaN get from elsewhere
        if reached := {at.at: at.reached for at in all_values if at.reached}:
            where = f"{swept.vary} {ranges(sorted(reached))}"
            text = f"\n{target}: {where}: infinities and NaN get into up to "
            text += f"{max(reached.values()):,} outputs that have no weight for them; "
            parts.append(Text(f"{text}`probe order window` names the inputs", "yellow"))
        if swept.differing:
            parts.append(Text(f"\n{target}", "bold"))
            # those of the largest value come first
            for number, summation in list(enumerate(swept.summations))[:MOST]:
                title = Text(f"order {summation.tree.id}", "cyan")
                lengths = [
                    at.at for at in all_values if at.orders and summation in at.orders.summations
                ]
                title.append(f"  {swept.vary} {values_of_axis(swept.vary, lengths)}", "default")
                parts += [title, cases.summation(summation, swept.case.dtype, number < 2)]
            if len(swept.summations) > MOST:
                more = f"and {len(swept.summations) - MOST} more summations; --json has all"
                parts.append(Text(more, "dim"))
    if report["store"]:
        parts.append(Text(f"\nstored in {report['store']}"))
    return Group(*parts)


def bisected(report: Mapping[str, Any]) -> RenderableType:
    """Shows what changed and when, then a row for each release that was tried."""
    rows = table("release", "shows", "")
    for step in report["steps"]:
        shows = str(step["says"] if step["seen"] else step["why"])
        rows.add_row(step["version"], step["seen"] or "(could not be tested)", shows)
    what, count = report["what"], report["installed"]
    if report["first"] is None:
        answer = f"both ends show the same {what}; what changed in between and back is not seen"
        return Group(answer, "", rows)
    between = ", or a release that could not be tested" if report["skipped"] else ""
    first = f"{what} changed in {report['first']}{between}; {report['last']} is as the first end"
    checked = "all tests agree"
    if not report["holds"]:
        checked = "it changed again after that, so search between there and the other end too"
    assumed = f"assumed: {report['assumption']}; {checked}"
    return Group(f"{first} ({count} installed)\n{assumed}", "", rows)


def conditioned(conditions: Conditions, what: str) -> RenderableType:
    """Shows which conditions bring the results back, then a row for each target that was tried."""
    from probe.sizes.bisection import conditions_lines

    rows = table("target", "shows", "")
    for step in conditions.steps:
        shows = step.says if step.seen else step.why
        rows.add_row(step.version, step.seen or "(could not be tested)", shows)
    return Group(*conditions_lines(conditions, what), "", rows)
