"""Shows what sweeps found, by bits and by order, and what a bisection came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe import window
from probe.case import Case
from probe.cli.options import command_line
from probe.printing import ranges, table
from probe.sweeps import Summary, TargetSummary

if TYPE_CHECKING:  # a sweep by bits shows no sums
    from probe.switch_points.by_order import ByOrder
    from probe.switch_points.fewest import Conditions


def sweep_by_bits(
    found: Summary, case: Case, values: Sequence[int], verbose: bool = False
) -> RenderableType:
    """Shows a row for each target, then what to do. ``values``: those compared with the largest."""
    after = list(_after_sweep(found, case))
    shown = case.with_(length=None) if found.vary == "length" else case
    text = Text(f"{shown.label}", "bold")
    operands = "given weights" if case.weights else f"seed {case.seed}"
    against = window.shown_axis_value(found.vary, found.against)
    text.append(
        f"\n{found.vary} {values_of_axis(found.vary, values)} against {against}; "
        f"{case.kind} operands, {operands}; {found.seconds:.1f} s",
        "not bold",
    )
    numeric = ("differing", "compared", "max ulp")
    rows = table("target", "verdict", "differs at", *numeric, right=numeric)
    for name, one in found.targets.items():
        if not one.comparisons:
            rows.add_row(name, _verdict_by_bits(one))
            continue
        far = "not a number" if one.max_ulp is None else f"{one.max_ulp:,}"
        differing = sorted({difference.at for difference in one.differences})
        place = Text(values_of_axis(found.vary, differing) if differing else "none")
        later = [value for value in values if differing and value > differing[-1]]
        whole = not (found.interrupted or one.failures or one.unasked)
        if later and whole and found.vary != "layout":
            place.append(f"; none from {later[0]} on", "green")
        rows.add_row(
            name, _verdict_by_bits(one), place, f"{one.differing:,}", f"{one.compared:,}", far
        )
    parts: list[RenderableType] = [text, "", rows]
    for name, one in found.targets.items():  # failures of a target, equal ones once
        counts = Counter((failure.kind, failure.message) for failure in one.failures)
        listed = list(counts.items())[: None if verbose else 3]
        parts += [""] * bool(listed)
        for (kind, message), times in listed:
            same = [failure.at for failure in one.failures if failure.message == message]
            places = {value for value in same if value is not None}
            where = f"{found.vary} {values_of_axis(found.vary, places)}: " if places else ""
            again = f" ({times} times)" if times > 1 else ""
            parts.append(Text(f"{name}: {where}{kind}: {message}{again}", "yellow"))
        if more := len(counts) - len(listed):
            parts.append(Text(f"{name}: {more} other failures; --verbose", "yellow"))
    return Group(*parts, *([""] * bool(after)), *after)


def values_of_axis(vary: str, values: Iterable[int]) -> str:
    """Returns values of an axis: ranges of numbers, or layouts' words."""
    if vary != "layout":
        return ranges(values)
    return ", ".join(window.shown_axis_value(vary, value) for value in sorted(values))


def _verdict_by_bits(one: TargetSummary) -> Text:
    if one.nondeterministic:
        return Text("does not repeat its own bits", "magenta")
    if not one.comparisons:
        return Text("failed" if one.failures else "not run", "yellow")
    if not one.compared:  # no window of the two sizes holds the same
        return Text("nothing to compare", "yellow")
    found = Text("differs", "bold red") if one.differing else Text("agrees", "green")
    if one.alignment:  # what was compared lay alike; laid elsewhere, it has different bits
        found.append(", depends on the memory address", "magenta")
    return found


def _after_sweep(found: Summary, case: Case) -> Iterator[RenderableType]:
    """Yields where results are, and the command that says why."""
    before = sum(one.stored_before for one in found.targets.values())
    known = f" ({before} comparisons were there already)" if before else ""
    if found.store:
        yield Text(f"stored in {found.store}{known}")
    if found.left_out:
        asked = sum(one.comparisons + len(one.failures) for one in found.targets.values())
        told = [
            f"{name}: {found.vary} {values_of_axis(found.vary, values)}"
            for name, one in found.targets.items()
            for values in one.left_out.values()
        ]
        kept = (
            "the same command continues with them"
            if found.store
            else "give --store to continue later"
        )
        share = f"{found.left_out:,} of {found.left_out + asked:,} comparisons"
        yield Text(f"the time is up: {share} were left out; {kept}\n{chr(10).join(told)}", "yellow")
    if found.interrupted:
        yield Text("interrupted; run the same command again to continue", "yellow")
    elif found.differing:
        name, one = next((name, one) for name, one in found.targets.items() if one.differences)
        first = min(difference.at for difference in one.differences)
        at, against = (window.shown_axis_value(found.vary, n) for n in (first, found.against))
        vary = "" if found.vary == "length" else f" --vary {found.vary}"
        command = f"probe explain {command_line(case, (found.vary,))}{vary} --at {at} "
        command += f"--against {against} --target {name}"
        # one line, however long: it is copied as it stands
        yield Text(f"why: {command}", no_wrap=True, overflow="ignore")
    elif any(one.compared for one in found.targets.values()) and case.kind != "integers":
        yield Text(
            "No difference so far."
            if found.left_out
            else "No difference in what was compared; what failed is not known."
            if found.failures
            else "No difference with these operands: try --operands cancel, tiny or nan."
            if case.pool and case.kind != "cancel"
            else "No difference with these operands. The orders may still differ: try --by order "
            "or --operands cancel."
            if case.kind != "cancel"
            else "No difference, with operands that show nearly every change of order.",
            "dim",
        )


# Summations that are written out for a target.
MOST = 6


def sweep_by_order(
    found: Mapping[str, ByOrder], told: Mapping[str, Any], values: Sequence[int]
) -> RenderableType:
    """Returns a row for each target, then every summation with the lengths that have it."""
    vary, label = "length", ""
    for one in found.values():
        vary, label = one.vary, one.case.label
    against = window.shown_axis_value(vary, values[-1])
    from probe.summation import certificate

    head = f"{label}\n{vary} {values_of_axis(vary, values[:-1])} against {against}"
    numeric = ("outputs", "compared", "not known")
    rows = table("target", "verdict", "where", "by", *numeric, right=numeric)
    for target, one in found.items():
        differing = [at.at for at in one.values if at.outputs]
        causes: Counter[str] = sum((at.causes for at in one.values), Counter())
        verdict = Text("one order", "green")
        if one.differing:
            verdict = Text("differs", "bold red")
        elif any(at.refusal for at in (one.base, *one.values)):
            verdict = Text("not revealed", "magenta")
        elif any(at.unknown for at in one.values):
            verdict = Text("not known", "yellow")
        elif not one.compared:
            verdict = Text("nothing to compare", "yellow")
        rows.add_row(
            target,
            verdict,
            f"{one.vary} {values_of_axis(one.vary, differing)}" if differing else "",
            ", ".join(sorted(causes)),
            f"{one.differing:,}",
            f"{one.compared:,}",
            f"{sum(at.unknown for at in one.values):,}",
        )
    for failure in told["failures"]:
        rows.add_row(failure["target"], Text("failed", "yellow"))
    parts: list[RenderableType] = [
        Text(f"{head}, by order, for all finite operands"),
        "",
        rows,
    ]
    parts += [
        Text(f"\n{one['target']}: {one['kind']}: {one['message']}", "yellow")
        for one in told["failures"]
    ]
    for target, one in found.items():
        sure = Text(f"\n{target}: {certificate.words(one.uncertified)}")
        sure.stylize("yellow" if one.uncertified else "green")
        parts.append(sure)
        every = (*one.values, one.base)
        reasons: dict[str, list[int]] = {}  # why some values have no orders, equal ones once
        for at in every:
            if at.refusal:
                reasons.setdefault(at.refusal, []).append(at.at)
        for why, some in reasons.items():
            where = f"{one.vary} {values_of_axis(one.vary, some)}"
            parts.append(Text(f"\n{target}: {where}: {why}", "yellow"))
        # outputs into which infinities and NaN get from elsewhere
        if reached := {at.at: at.reached for at in every if at.reached}:
            where = f"{one.vary} {ranges(sorted(reached))}"
            text = f"\n{target}: {where}: infinities and NaN get into up to "
            text += f"{max(reached.values()):,} outputs that have no weight for them; "
            parts.append(Text(f"{text}`probe window` names the inputs", "yellow"))
        if one.differing:
            from probe.cli.show import cases

            parts.append(Text(f"\n{target}", "bold"))
            # those of the largest value come first
            for number, each in list(enumerate(one.summations))[:MOST]:
                title = Text(f"order {each.tree.id}", "cyan")
                lengths = [at.at for at in every if at.orders and each in at.orders.summations]
                title.append(f"  {one.vary} {values_of_axis(one.vary, lengths)}", "default")
                parts += [title, cases.summation(each, one.case.dtype, number < 2)]
            if len(one.summations) > MOST:
                more = f"and {len(one.summations) - MOST} more summations; --json has all"
                parts.append(Text(more, "dim"))
    if told["store"]:
        parts.append(Text(f"\nstored in {told['store']}"))
    return Group(*parts)


def bisected(report: Mapping[str, Any]) -> RenderableType:
    """Returns what changed and when, then a row a release that was tried."""
    rows = table("release", "shows", "")
    for step in report["steps"]:
        told = str(step["says"] if step["seen"] else step["why"])
        rows.add_row(step["version"], step["seen"] or "(could not be tested)", told)
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


def conditioned(found: Conditions, what: str) -> RenderableType:
    """Returns which conditions bring the results back, then a row a target that was tried."""
    from probe.switch_points.bisection import conditions_lines

    rows = table("target", "shows", "")
    for step in found.steps:
        told = step.says if step.seen else step.why
        rows.add_row(step.version, step.seen or "(could not be tested)", told)
    return Group(*conditions_lines(found, what), "", rows)
