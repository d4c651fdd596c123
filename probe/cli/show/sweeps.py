"""What a sweep found: which targets differ at which lengths, in how many outputs, by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from probe.campaign import Failure
from probe.case import Case
from probe.cli import numbers
from probe.cli.options import command_line
from probe.cli.show.facts import table
from probe.sweep import Summary, TargetSummary


def summary(
    found: Summary, case: Case, values: Sequence[int], verbose: bool = False
) -> RenderableType:
    """A row a target, then what to do next. ``values``: those compared with the largest."""
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
    text.append(
        f"\n{found.vary} {numbers.text(values)} against {found.against}; "
        f"{case.kind} operands, {kind}; {found.seconds:.1f} s",
        "not bold",
    )
    return text


def _targets(found: Summary, values: Sequence[int]) -> RenderableType:
    numeric = ("differing", "compared", "max ulp")
    rows = table("target", "verdict", "differs at", *numeric, right=numeric)
    for name, one in found.targets.items():
        rows.add_row(
            name,
            _verdict(one),
            _lengths(one, values, found.interrupted) if one.comparisons else Text("", "dim"),
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
        return Text("does not repeat itself", "magenta")
    if one.differing:
        return Text("differs", "bold red")
    if not one.comparisons:
        return Text("failed" if one.failures else "not run", "yellow")
    return Text("agrees", "green")


def _lengths(one: TargetSummary, values: Sequence[int], interrupted: bool) -> Text:
    differing = sorted({difference.at for difference in one.differences})
    if not differing:
        return Text("none")
    later = [value for value in values if value > differing[-1]]
    text = Text(numbers.text(differing))
    if later and not interrupted and not one.failures:
        text.append(f"; none from {later[0]} on", "green")
    return text


def _failures(found: Summary, verbose: bool, most: int = 3) -> Iterator[RenderableType]:
    """Failures of a target, equal ones once."""
    for name, one in found.targets.items():
        counted = Counter((failure.kind, failure.message) for failure in one.failures)
        shown = list(counted.items())[: None if verbose else most]
        if shown:
            yield ""
        for (kind, message), times in shown:
            where = _where(found.vary, [f for f in one.failures if f.message == message])
            again = f" ({times} times)" if times > 1 else ""
            yield Text(f"{name}: {where}{kind}: {message}{again}", "yellow")
        if len(counted) > len(shown):
            yield Text(f"{name}: {len(counted) - len(shown)} other failures; --verbose", "yellow")


def _where(vary: str, failures: Sequence[Failure]) -> str:
    values = sorted({failure.at for failure in failures if failure.at is not None})
    return f"{vary} {numbers.text(values)}: " if values else ""


def _after(found: Summary, case: Case) -> Iterator[RenderableType]:
    """Where results are, and the command that says why."""
    before = sum(one.stored_before for one in found.targets.values())
    known = f" ({before} comparisons were there already)" if before else ""
    if found.store:
        yield Text(f"stored in {found.store}{known}")
    if found.interrupted:
        yield Text("interrupted: the same command goes on where it stopped", "yellow")
    elif found.differing:
        yield _why(found, case)
    elif any(one.comparisons for one in found.targets.values()) and case.kind != "integers":
        yield Text(
            "No difference with these operands: another order may show with others "
            "(probe order, --operands cancel)."
            if case.kind != "cancel"
            else "No difference, with operands chosen to show a changed order.",
            "dim",
        )


def _why(found: Summary, case: Case) -> Text:
    """The command that explains the first difference. One line, however long, to be copied."""
    name, one = next((name, one) for name, one in found.targets.items() if one.differences)
    at = min(difference.at for difference in one.differences)
    vary = "" if found.vary == "length" else f" --vary {found.vary}"
    hidden = (found.vary,)
    command = (
        f"probe explain {command_line(case, hidden)}{vary} --at {at} --against {found.against} "
        f"--target {name}"
    )
    return Text(f"why: {command}", no_wrap=True, overflow="ignore")
