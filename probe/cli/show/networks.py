"""Shows networks by valid length, layer by layer, how far to pad and what prevents it; remedies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe import backends
from probe.answers.padded import Padded
from probe.case import Case
from probe.cli.show import explanation as explained
from probe.cli.show.walks import walked
from probe.floats import rounded_text
from probe.network.comparison import AtLayer, PaddedComparison
from probe.network.plan import Plan
from probe.network.report import Report
from probe.order import certificate
from probe.padding.kept import Box
from probe.padding.plan import GraphPlan
from probe.padding.search import Serves, Sized
from probe.printing import counted, ranges, table, up_to
from probe.remedies import Measured, advise
from probe.remedies.invariants import Invariant
from probe.thresholds.switches import threads_text

WHOLE = (
    "for all of its operations leave out --target, or give --vary length with a target of its own "
    "library (--fixed N pads it; --at A --against B compares two runs)"
)
"""What to do where a model is not a chain."""

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
        causes = ", ".join(dict.fromkeys(cause for at in one.own for cause in at.causes))
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
    ran = " (of the sizes that were run)" * bool(plan.rule)  # the table alone is a promise
    head.append(f": {rule}{ran}", "default")
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
    lines += f", with {threads_text(measured.threads)}"
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


def padded(found: Padded) -> RenderableType:
    """Returns everything that is said of a padded graph."""
    told = found.report()
    head = f"{found.model}: {counted(told['operations_total'], 'operation')} of a graph, "
    unknown = told["operations_total"] - told["examined"]
    head += f"{counted(unknown, 'operation')} not supported, " * bool(unknown)
    axes = ", ".join(f"{name} along axis {axis}" for name, axis in found.graph.along.items())
    head += f"padded against {found.vary} {found.graph.fixed:,} ({axes})"
    colour = {"equal": "green", "differs": "red"}.get(found.verdict, "yellow")
    parts: list[RenderableType] = [
        Text(head),
        Text(f"verdict: {found.verdict}", f"bold {colour}"),
        Text(found.advice()),
        *(Text(f"note: {one}", "yellow") for one in found.notes),
        "",
        _graph_contents(found.found),
        Text(MEANS, "dim"),
    ]
    if found.remedies:
        parts += [
            "",
            _graph_remedies(found.remedies),
            Text(TIMES, "dim"),
            Text(f"recommended: {told['recommended']}", "bold"),
            *([] if found.invariant is None else _mode(found.invariant)),
        ]
    if found.plan is not None:
        parts += ["", *_graph_plan(found.plan)]
    if found.walked is not None:
        parts += ["", Text("The run that differs, operation by operation:", "bold")]
        parts.append(walked(found.walked))
    if found.written:
        parts += ["", Text(f"written: {', '.join(found.written)}")]
    return Group(*parts)


TIMES = "of full, x least: time relative to the full size, and to the least size without a remedy"
MEANS = (
    "least: the shortest padded size that has all outputs of the valid part; safe: the shortest at "
    "which all operations compute them as at the full size; proof: holds for all finite inputs"
)


def _graph_contents(sizes: list[Sized]) -> RenderableType:
    right = ("valid size", "least", "safe")
    rows = table(*right, "at the least", "operation", "kept outputs", "proof", right=right)
    for one in sizes[:MOST]:
        least = one.at_least
        word, colour = _word(one)
        rows.add_row(
            f"{one.content:,}",
            f"{one.least:,}",
            f"{one.safe:,}{' or less' * bool(one.over)}",
            Text(word, colour),
            f"{least.name}: {least.why}" if least.name and not least.serves else "",
            "; ".join(_box(box) for box in one.at_safe.boxes),
            _proof(one.at_safe),
        )
    if len(sizes) <= MOST:
        return rows
    return Group(rows, Text(f"and {len(sizes) - MOST} more valid sizes; --json has all", "dim"))


def _graph_remedies(ways: list[dict[str, Any]]) -> RenderableType:
    costs = ("of full", "x least")
    rows = table(
        "remedy",
        "verdict",
        *costs,
        "bits at full size",
        "prevented by",
        "what it does",
        right=costs,
    )
    for one in ways:
        verdict = one["verdict"] + ", certified" * (one["verdict"] == "exact" and one["certified"])
        rows.add_row(
            one["name"],
            verdict,
            *(rounded_text(one[cost]) for cost in ("of_fixed", "ratio")),
            {True: "same", False: "different", None: ""}[one["keeps"]],
            one["refusal"] or "",
            one["doc"],
        )
    return rows


def _mode(found: Invariant) -> list[RenderableType]:
    """Returns each operation of the invariant mode, with its class of sizes."""
    told = found.to_json()
    if told is None:
        return []
    right = ("threads", "checked", "in the class", "from")
    rows = table("operation in the invariant mode", *right, "certified", right=right)
    for one in told["operations"][:MOST]:
        rows.add_row(
            one["operation"],
            *(str(one.get(name, "")) for name in ("threads", "sizes", "usable", "smallest")),
            one.get("certified") or "not asked",
        )
    more = len(told["operations"]) - MOST
    return ["", rows, *([Text(f"and {more} operations more", "dim")] if more > 0 else [])]


def _word(one: Sized) -> tuple[str, str]:
    if one.at_least.serves:
        return "equal", "green"
    if one.at_least.lacking:
        return "no shorter size has all outputs", "yellow"
    return one.at_least.by_order, "red"


def _proof(one: Serves) -> str:
    if one.by_order == "same" and one.why:
        return one.why
    if one.by_order == "same":
        return "every addition tested" if one.certified else "by order, not certified"
    return f"unproved: {one.name} ({one.why})" if one.name else one.why or one.by_order


def _box(box: Box | None) -> str:
    if box is None:
        return "constant"
    if not box:
        return "all"
    return ", ".join(
        f"axis {part.axis}: {part.start:,} to {part.stop - 1:,}"
        + f" at {part.start + part.offset:,}" * bool(part.offset)
        for part in box
    )


def _graph_plan(plan: GraphPlan) -> list[RenderableType]:
    longest = plan.stretches[-1].last
    text = f"plan: {counted(len(plan.stretches), 'range')} up to {longest:,}"
    text += f"; checked on new inputs at {counted(len(plan.checked), 'valid size')}"
    text += f", failed at {', '.join(map(str, plan.failed))}" if plan.failed else ", none failed"
    parts: list[RenderableType] = [Text(text, "red" if plan.failed else "default")]
    if plan.over:
        parts.append(Text(f"not all sizes were tried: {plan.over}", "yellow"))
    parts += [Text(f"assumed: {one}", "dim") for one in plan.assumed]
    for one in plan.between:
        behind = ", ".join(f"{each.operation} from {each.start:,} on" for each in one.splices)
        said = f"valid size {one.content:,} also keeps the bits when padded only to {one.size:,}, "
        parts.append(Text(f"{said}if constants are inserted after {behind}"))
    return parts
