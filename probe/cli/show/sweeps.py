"""Shows where a sweep by bits found differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from probe import window
from probe.case import Case
from probe.cli.options import command_line
from probe.printing import ranges, table
from probe.sweeps import Summary, TargetSummary


def summary(
    found: Summary, case: Case, values: Sequence[int], verbose: bool = False
) -> RenderableType:
    """Shows a row for each target, then what to do. ``values``: those compared with the largest."""
    after = list(_after(found, case))
    return Group(
        _title(found, case, values),
        "",
        _targets(found, values),
        *_failures(found, verbose),
        *(["", *after] if after else []),
    )


def _title(found: Summary, case: Case, values: Sequence[int]) -> Text:
    shown = case.with_(length=None) if found.vary == "length" else case
    text = Text(f"{shown.label}", "bold")
    kind = "given weights" if case.weights else f"seed {case.seed}"
    against = window.shown_axis_value(found.vary, found.against)
    text.append(
        f"\n{found.vary} {values_of_axis(found.vary, values)} against {against}; "
        f"{case.kind} operands, {kind}; {found.seconds:.1f} s",
        "not bold",
    )
    return text


def values_of_axis(vary: str, values: Iterable[int]) -> str:
    """Returns values of an axis: ranges of numbers, or layouts' words."""
    if vary != "layout":
        return ranges(values)
    return ", ".join(window.shown_axis_value(vary, value) for value in sorted(values))


def _targets(found: Summary, values: Sequence[int]) -> RenderableType:
    numeric = ("differing", "compared", "max ulp")
    rows = table("target", "verdict", "differs at", *numeric, right=numeric)
    for name, one in found.targets.items():
        rows.add_row(
            name,
            _verdict(one),
            _lengths(one, found.vary, values, found.interrupted)
            if one.comparisons
            else Text("", "dim"),
            *_numbers(one),
        )
    return rows


def _numbers(one: TargetSummary) -> tuple[str, str, str]:
    if not one.comparisons:
        return "", "", ""
    far = "not a number" if one.max_ulp is None else f"{one.max_ulp:,}"
    return f"{one.differing:,}", f"{one.compared:,}", far


def _verdict(one: TargetSummary) -> Text:
    if one.nondeterministic:
        return Text("does not repeat its own bits", "magenta")
    if not one.comparisons:
        return Text("failed" if one.failures else "not run", "yellow")
    found = Text("differs", "bold red") if one.differing else Text("agrees", "green")
    if one.alignment:  # what was compared lay alike; laid elsewhere, it has different bits
        found.append(", depends on the memory address", "magenta")
    return found


def _lengths(one: TargetSummary, vary: str, values: Sequence[int], interrupted: bool) -> Text:
    differing = sorted({difference.at for difference in one.differences})
    if not differing:
        return Text("none")
    if vary == "layout":
        return Text(values_of_axis(vary, differing))
    later = [value for value in values if value > differing[-1]]
    text = Text(ranges(differing))
    if later and not interrupted and not one.failures and not one.unasked:
        text.append(f"; none from {later[0]} on", "green")
    return text


def _failures(found: Summary, verbose: bool) -> Iterator[RenderableType]:
    """Failures of a target, equal ones once."""
    for name, one in found.targets.items():
        counted = Counter((failure.kind, failure.message) for failure in one.failures)
        shown = list(counted.items())[: None if verbose else 3]
        if shown:
            yield ""
        for (kind, message), times in shown:
            same = [failure.at for failure in one.failures if failure.message == message]
            values = {value for value in same if value is not None}
            where = f"{found.vary} {values_of_axis(found.vary, values)}: " if values else ""
            again = f" ({times} times)" if times > 1 else ""
            yield Text(f"{name}: {where}{kind}: {message}{again}", "yellow")
        if len(counted) > len(shown):
            yield Text(f"{name}: {len(counted) - len(shown)} other failures; --verbose", "yellow")


def _after(found: Summary, case: Case) -> Iterator[RenderableType]:
    """Yields where results are, and the command that says why."""
    before = sum(one.stored_before for one in found.targets.values())
    known = f" ({before} comparisons were there already)" if before else ""
    if found.store:
        yield Text(f"stored in {found.store}{known}")
    if found.left_out:
        yield _left_out(found)
    if found.interrupted:
        yield Text("interrupted; run the same command again to continue", "yellow")
    elif found.differing:
        yield _why(found, case)
    elif any(one.comparisons for one in found.targets.values()) and case.kind != "integers":
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


def _left_out(found: Summary) -> Text:
    """Returns what there was no time for, and how much it is of all that was wanted."""
    asked = sum(one.comparisons + len(one.failures) for one in found.targets.values())
    told = [
        f"{name}: {found.vary} {values_of_axis(found.vary, values)}"
        for name, one in found.targets.items()
        for values in one.left_out.values()
    ]
    kept = (
        "the same command continues with them" if found.store else "give --store to continue later"
    )
    share = f"{found.left_out:,} of {found.left_out + asked:,} comparisons"
    return Text(f"the time is up: {share} were left out; {kept}\n{chr(10).join(told)}", "yellow")


def _why(found: Summary, case: Case) -> Text:
    """Returns the command that explains the first difference.
    One line, however long, to be copied."""
    name, one = next((name, one) for name, one in found.targets.items() if one.differences)
    first = min(difference.at for difference in one.differences)
    at, against = (window.shown_axis_value(found.vary, value) for value in (first, found.against))
    vary = "" if found.vary == "length" else f" --vary {found.vary}"
    hidden = (found.vary,)
    command = (
        f"probe explain {command_line(case, hidden)}{vary} --at {at} --against {against} "
        f"--target {name}"
    )
    return Text(f"why: {command}", no_wrap=True, overflow="ignore")
