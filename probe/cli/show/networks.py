"""Whole networks by content, layer by layer, and how far to pad; remedies and their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe import backends
from probe.case import Case
from probe.cli.show import explanation as explained
from probe.floats import rounded_text
from probe.network.comparison import AtLayer, PaddedComparison
from probe.network.plan import Plan
from probe.network.report import Report
from probe.order import certificate
from probe.printing import counted, ranges, table, up_to
from probe.remedies import Measured, advise

WHOLE = (
    "for all of its operations leave out --target, or give --vary length with a target of its own "
    "library (--fixed N pads it; --at A --against B compares two runs)"
)
"""What to do where a model is no chain."""

MOST = 24
"""Rows of contents, and of stretches of a plan, that are printed."""


def networks(
    told: Mapping[str, Any],
    reports: Sequence[Report],
    failures: Sequence[Mapping[str, str]],
    width: int,
    saved: Sequence[str],
) -> RenderableType:
    """Returns everything ``probe network`` says."""
    parts: list[RenderableType] = [heading(told)]
    for report in reports:
        parts += ["", Text(report.target, "bold")]
        parts += list(_one(report, width))
    for failed in failures:
        said = f"{failed['target']} failed: {failed['kind']}: {failed['message']}"
        parts += ["", Text(said, "yellow")]
    if saved:
        parts += ["", Text(f"written: {', '.join(saved)}")]
    return Group(*parts)


def heading(told: Mapping[str, Any]) -> Text:
    """Returns the network in two lines; before them, what of the model is not part of it."""
    last, count = told["layers"][-1], len(told["layers"])
    said = f"{counted(count, 'layer')}, full length {told['fixed']:,}"
    if not told["part"]:
        text = Text(f"{told['name']}: {said}")
    else:
        text = Text(f"{told['name']}: {told['part']}", "yellow")
        text.append(f"\nread as a chain of {said}", "default")
        text.append(f"\n{WHOLE}", "default")
    text.append(
        f"\nreceptive field {last['field']:,}, stride {last['jump']:,}; "
        f"{counted(last['outputs'], 'output')} at the full length",
        "default",
    )
    if beyond := told["beyond"]:
        todo = f"; {beyond['todo']}" if beyond["todo"] else ""
        said = f"{beyond['name']} ({beyond['kind']}) {beyond['why']}{todo}"
        text.append(f"\nnot examined: {said}", "yellow")
    if "note" in told:
        text.append(f"\n{told['note']}", "yellow")
    return text


def _one(report: Report, width: int) -> Iterator[RenderableType]:
    yield _contents(report.comparisons, report.part)
    for why in dict.fromkeys(one.no_program for one in report.comparisons if one.no_program):
        yield Text(f"not run end to end: {why}", "dim")
    shown = report.shown or next(
        (one for one in report.comparisons if one.verdict != "equal"), None
    )
    if shown is not None:
        yield Text("")
        yield _layers(shown)
    if report.shown is not None and report.shown.explanation is not None:
        first = report.shown.own[0]
        yield Text(f"\n{first.name} at valid length {report.shown.need.content:,}:", "bold")
        yield explained.explanation(report.shown.explanation, report.evidence, width)
    if report.plan is not None:
        yield Text("")
        yield _plan(report.plan)
    if report.part:
        yield Text(f"\n{_of_part(report)}", "bold")


def _of_part(report: Report) -> str:
    """Returns the verdict for a model that was read in part."""
    if report.of_part == "differs":
        return (
            "an operation of the supported part differs; whether the outputs of the whole model "
            "differ is unknown"
        )
    return f"whether the model is safe is unknown: {report.part}"


def _contents(comparisons: Sequence[PaddedComparison], part: str) -> RenderableType:
    right = ("valid length", "padded to", "compared", "constant")
    rows = table(
        *right, "first to differ", "outputs that differ", "repeat run", "cause", right=right
    )
    for one in comparisons[:MOST]:
        last, first = one.layers[-1], one.first
        colour = {"equal": "green", "rounding": "red"}.get(one.verdict, "yellow")
        said = _verdict(one)
        if part and one.verdict == "equal":
            colour, said = "yellow", f"equal up to {last.name}"
        rows.add_row(
            f"{one.need.content:,}",
            f"{one.padded:,}",
            f"{one.need.kept:,}",
            f"{one.need.tail:,}",
            "-" if first is None else first.name,
            _outputs(one, last),
            "equal" if one.steady else "differs",
            Text(said, colour),
        )
    if len(comparisons) <= MOST:
        return rows
    return Group(
        rows, Text(f"and {len(comparisons) - MOST} more valid lengths; --json has all", "dim")
    )


def _outputs(one: PaddedComparison, last: AtLayer) -> str:
    text = f"{last.differing:,} of {last.compared:,}"
    text += up_to(last.max_ulp) * bool(last.differing)
    if one.end_to_end is not None:
        text += f"; {one.end_to_end:,} end to end"
    return text


def _verdict(one: PaddedComparison) -> str:
    if one.verdict == "padding":
        what = counted(one.lacking, "output")
        return f"padding: {what} are missing or read different values; pad to {one.need.padded:,}"
    if one.verdict == "rounding":
        causes = "+".join(dict.fromkeys(cause for at in one.own for cause in at.causes))
        return f"rounding ({causes or 'not explained'}), {'' if one.explained else 'not '}replayed"
    if one.verdict == "program":
        return (
            "program: the layers agree one by one, but differ when the library runs them end to end"
        )
    return one.verdict


def _layers(one: PaddedComparison) -> RenderableType:
    """Shows layer by layer where the difference starts and how it grows on the way down."""
    right = (
        "size",
        "compared",
        "different window",
        "differing",
        "max ulp",
        "scaled",
        "own",
        "replayed",
    )
    head = Text(
        f"valid length {one.need.content:,} padded to {one.padded:,}, layer by layer", "bold"
    )
    rows = table("layer", *right, "cause", "repeat run", right=right)
    for at in one.layers:
        causes = ", ".join(f"{name} {count:,}" for name, count in at.causes.items())
        rows.add_row(
            Text(at.name, "red" if at.own else "yellow" if at.differing else "default"),
            f"{at.size:,} / {at.size_fixed:,}",
            f"{at.compared:,}",
            f"{at.other_window:,}" if at.other_window else "",
            f"{at.differing:,}" if at.differing else "",
            "" if not at.differing or at.max_ulp is None else f"{at.max_ulp:,}",
            f"{at.scaled:.2f}" if at.differing else "",
            f"{at.own:,}" if at.own else "",
            f"{at.replayed:,}" if at.own else "",
            causes,
            at.control,
        )
    note = Text(
        "own: differ even if the layer gets the full-length run's activations; scaled: the largest "
        "difference over eps times the layer's largest activation",
        "dim",
    )
    return Group(head, rows, note)


def _plan(plan: Plan) -> RenderableType:
    """Returns the shortest padded lengths that change no bit."""
    right = ("valid length", "shortest with all outputs", "shortest with equal bits", "keep")
    rows = table(*right, right=right)
    for one in plan.stretches[:MOST]:
        span = str(one.first) if one.first == one.last else f"{one.first:,}..{one.last:,}"
        moved = "red" if one.padded > one.least else "default"
        rows.add_row(span, f"{one.least:,}", Text(f"{one.padded:,}", moved), f"{one.kept:,}")
    head = Text("safe lengths" if not plan.part else "safe for the supported part", "bold")
    rule = plan.rule or "no single rule describes them; see the table"
    head.append(f": {rule}", "default")
    checked = Text(f"found by order over {plan.tried:,} padded lengths; ")
    if plan.failed:
        checked.append(f"different bits at valid length {ranges(plan.failed)}", "red")
    else:
        checked.append(f"exact on new operands at {counted(len(plan.checked), 'valid length')}")
    sure = Text(certificate.words(plan.uncertified), "yellow" if plan.uncertified else "green")
    parts: list[RenderableType] = [head, rows, checked, sure]
    if len(plan.stretches) > MOST:
        parts.append(Text(f"and {len(plan.stretches) - MOST} more ranges; --plan has all", "dim"))
    parts += [Text(f"assumed: {one}", "dim") for one in plan.assumed]
    return Group(*parts)


COLOURS = {"exact": "green", "differs": "bold red", "not known": "yellow"}


def remedies(measured: Measured) -> RenderableType:
    """Returns a row for each remedy, then why some are not known, then what to do."""
    what = measured.sizes if isinstance(measured.subject, Case) else "valid lengths"
    label = f"{measured.label}: {measured.part}" if measured.part else measured.label
    lines = f"{label}\n{what} {ranges(list(measured.lengths))} against "
    lines += f"{measured.fixed} on {measured.target.text}, by order, for all finite operands"
    if len(backends.get(measured.target.name).layouts) > 1:
        lines += f"; their memory layout is {' or '.join(measured.layouts)}"
    parts: list[RenderableType] = [Text(lines), "", _remedies(measured)]
    refused = [one for one in measured.found if one.refusal]
    alone = [one for one in measured.found if measured.verdict(one) != one.verdict]
    if refused or alone:
        parts.append("")
    parts += [Text(f"{one.remedy.name}: {one.refusal}", "yellow") for one in refused]
    if alone:
        names = ", ".join(one.remedy.name for one in alone)
        parts.append(
            Text(f"exact in the supported part, unknown for the whole model: {names}", "yellow")
        )
    parts.append("")
    parts.append(Text(advise(measured).text, "bold"))
    return Group(*parts)


def _remedies(measured: Measured) -> RenderableType:
    unit = "outputs" if isinstance(measured.subject, Case) else "lengths"
    costs = (f"at {measured.content}", "x default", "of full", f"x at {measured.fixed}")
    right = (f"differing {unit}", *costs, "error")
    rows = table("remedy", "verdict", *right, "bits", "what it is", right=right)
    best = advise(measured).name
    for one in measured.found:
        differing = "" if one.compared is None else f"{one.differing:,} of {one.compared:,}"
        seconds = measured.seconds(one, measured.content)
        rows.add_row(
            Text(one.remedy.name, "bold green" if one.remedy.name == best else ""),
            Text(measured.verdict(one), COLOURS[measured.verdict(one)]),
            differing,
            "" if seconds is None else f"{seconds * 1e3:.3g} ms",
            rounded_text(measured.ratio(one, measured.content)),
            rounded_text(measured.of_fixed(one)),
            rounded_text(measured.ratio(one, measured.fixed)),
            "" if one.error_rms is None else f"{one.error_rms:.2f}",
            {True: "kept", False: "changed", None: ""}[one.keeps],
            one.remedy.doc,
        )
    return rows
