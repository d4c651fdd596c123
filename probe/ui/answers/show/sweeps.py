"""Shows what sweeps found, by bits and by order, and what a bisection came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.case.case import Case
from probe.order import window
from probe.sweep.printing import table
from probe.sweep.summary import Summary, TargetSummary
from probe.ui.answers.answer import command_line, values_of_axis
from probe.ui.answers.show import cases

if TYPE_CHECKING:  # a sweep by bits shows no sums
    from probe.sizes.bisection import Conditions
    from probe.ui.answers.sweep import Swept, SweptByOrder


def sweep_by_bits(answer: Swept) -> RenderableType:
    """Shows a row for each target, then what to do."""
    summary, case, values = answer.found, answer.case, answer.values[:-1]
    vary = summary.vary
    shown = case.with_(length=None) if vary == "length" else case
    operands = "given weights" if case.weights else f"seed {case.seed}"
    against = window.shown_axis_value(vary, summary.against)
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
        at, against = (window.shown_axis_value(summary.vary, n) for n in (first, summary.against))
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
MOST = 6


def sweep_by_order(answer: SweptByOrder) -> RenderableType:
    """Shows a row for each target, then every summation with the lengths that have it."""
    values, vary = answer.values, answer.vary
    label = next((swept.case.label for swept in answer.found.values()), "")
    against = window.shown_axis_value(vary, values[-1])
    head = f"{label}\n{vary} {values_of_axis(vary, values[:-1])} against {against}"
    numeric = ("outputs", "compared", "not known")
    rows = table("target", "verdict", "where", "by", *numeric, right=numeric)
    for target, swept in answer.found.items():
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
    for failure in answer.failures:
        rows.add_row(failure["target"], "failed")
        parts.append(f"\n{failure['target']}: {failure['kind']}: {failure['message']}")
    for target, swept in answer.found.items():
        if swept.compared and swept.sets:
            parts.append(f"\n{target}: {cases.sets_text(swept.sets)}")
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
            for number, summation in list(enumerate(swept.summations))[:MOST]:
                lengths = [
                    at.at for at in all_values if at.orders and summation in at.orders.summations
                ]
                where = f"{vary} {values_of_axis(vary, lengths)}"
                parts.append(f"order {summation.tree.id}  {where}")
                parts.append(cases.summation(summation, swept.case.dtype, number < 2))
            if len(swept.summations) > MOST:
                parts.append(f"and {len(swept.summations) - MOST} more summations; --json has all")
    if answer.store:
        parts.append(f"\nstored in {answer.store}")
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
