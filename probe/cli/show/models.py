"""Shows what commands of a model found: two runs, operation by operation, and recordings on disk;
how far to pad and what prevents it; remedies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from probe import backends
from probe.case import Case
from probe.floats import rounded_text
from probe.printing import counted, next_commands, ranges, table

if (
    TYPE_CHECKING
):  # two runs do without the rooms of padding and mitigations, and remedies of a case
    # without those of recordings
    from probe.answers.first_difference import Walked
    from probe.answers.network import OnTargets, Padded
    from probe.answers.record import Recorded
    from probe.invariant.mitigations import Measured
    from probe.padding.search import SafeSize
    from probe.recording.difference import Region

# Rows of operations that are printed; --json has all.
MOST = 40

# Reasons of unknown operations that are printed; --json has all.
MOST_REASONS = 6

MOVE = "move elements (reshape, transpose, slice and the like)"
COLOURS = {
    "source": "bold red",
    "carried": "yellow",
    "healed": "cyan",
    "equal": "green",
    "left": "magenta",
    "right": "magenta",
    "unknown": "dim",
    "exact": "green",
    "differs": "bold red",
    "not known": "yellow",
}

MEANS = (
    "source: its inputs agree and its outputs differ; carried: its inputs differ already; healed: "
    "its inputs differ and its outputs agree; left, right: it exists in one run only; own: outputs "
    "of a carried operation that differ even if its inputs are made to agree"
)


def walked(found: Walked, after: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """Returns everything that is said of two runs; ``after``: commands, what they do."""
    from probe.answers.first_difference import NAMED, NOT_SOUGHT

    first, second, _ = found.lines()
    colour = {"equal": "green", "differs": "red"}.get(found.verdict, "yellow")
    words = f" ({', '.join(found.words)})" if found.words else ""
    parts: list[RenderableType] = [
        Text(first),
        Text(f"verdict: {found.verdict}{words}", f"bold {colour}"),
        Text(second),
        Text(found.outcome("--report DIR")),
    ]
    parts += [Text(text) for text in [found.same_bits()] if text]
    parts += [Text(f"note: {one}", "yellow") for one in found.found.notes]
    told = found.unknown()
    parts += [Text(one, "yellow") for one in told[:MOST_REASONS]]
    if len(told) > MOST_REASONS:
        parts.append(
            Text(f"unknown for {len(told) - MOST_REASONS} more reasons: see --json", "dim")
        )
    if shown := _table_of_operations(found):
        parts += ["", shown, Text(MEANS, "dim")]
    parts += [""] * bool(found.found.causes)
    for number, cause in found.found.causes.items():
        one = found.found.operations[number]
        kind = cause.kind or ("" if NOT_SOUGHT in cause.why else "not explained yet")
        head = ": ".join(filter(None, [f"{one.name} ({one.op})", kind]))
        parts.append(Text(head, "bold").append(f": {cause.why}", "not bold"))
    right = ("compared", "differing", "max ulp", "scaled", "growth")
    rows = table("output", *right, "decisions changed", right=right)
    for number, output in enumerate(found.found.outputs):
        decided = [
            f"{NAMED[each.decision]}: {each.crossed:,} of {each.taken:,}"
            for each in found.decisions(output)
        ]
        rows.add_row(
            str(number),
            f"{output.compared:,}",
            f"{output.differing:,}",
            "" if output.max_ulp is None else f"{output.max_ulp:,}",
            rounded_text(output.scaled),
            rounded_text(found.report_output(output)["growth"]),
            ", ".join(decided),
        )
    what = "scaled: the largest difference over eps times the largest value; growth: since the "
    parts += ["", Group(rows, Text(f"{what}first source", "dim")), *next_commands(after)]
    return Group(*parts)


def _table_of_operations(found: Walked) -> RenderableType | None:
    operations = found.found.operations
    if not operations or set(found.counts()) == {"equal"}:
        return None
    right = ("compared", "differing", "own", "max ulp", "scaled")
    rows = table("operation", "op", *right, "verdict", "cause", right=right)
    shown = list(collapsed(found.found.computed))
    for some in shown[:MOST]:
        one = some[0]
        if len(some) > 1:
            compared = sum(each.compared for each in some)
            name = f"{len(some)} operations"
            rows.add_row(name, "", f"{compared:,}", "", "", "", "", _coloured_verdict(one), "")
            continue
        rows.add_row(
            Text(one.name, "bold" if one is found.found.first else ""),
            one.op,
            f"{one.compared:,}",
            f"{one.differing:,}" if one.differing else "",
            f"{one.own:,}" if one.own else "",
            "" if not one.differing or one.max_ulp is None else f"{one.max_ulp:,}",
            rounded_text(max((pair.scaled for pair in one.gives), default=0.0) or None),
            _coloured_verdict(one),
            one.why or one.note,
        )
    left_out = len(operations) - len(found.found.computed)
    more = [f"{len(shown) - MOST} more rows"] if len(shown) > MOST else []
    if left_out:
        more.append(f"{counted(left_out, 'operation')} that only {MOVE}")
    if not more:
        return rows
    return Group(rows, Text(f"not shown: {' and '.join(more)}; --json has all", "dim"))


def _coloured_verdict(one: Region) -> Text:
    return Text(one.verdict, COLOURS[one.verdict])


def collapsed(operations: list[Region]) -> Iterator[list[Region]]:
    """Yields operations one by one, and runs of those in which nothing differs together."""
    some: list[Region] = []
    for one in operations:
        quiet = one.verdict in ("equal", "left", "right", "unknown") and not one.note
        if some and not (quiet and some[-1].verdict == one.verdict):
            yield some
            some = []
        if quiet:
            some.append(one)
        else:
            yield [one]
    if some:
        yield some


def recorded_run(found: Recorded) -> RenderableType:
    """Returns what was recorded."""
    told = found.made.left_out
    more = f"; {counted(told['values'], 'value')} left out" if told["values"] else ""
    return Group(*map(Text, found.lines()), Text(f"wrote {found.made.folder}{more}"))


# Rows of contents, and of stretches of a plan, that are printed.
MOST_SIZES = 24


SHORT = {"exact": "yes", "differs": "no", "not known": "not known"}


def remedies(measured: Measured, verbose: bool = False) -> RenderableType:
    """Returns what to do, a row for each remedy, and why some are not known."""
    from probe.invariant.mitigations import advise
    from probe.switch_points.search import threads_text

    what = measured.sizes if isinstance(measured.subject, Case) else "valid lengths"
    lines = f"{measured.label}\n{what} {ranges(list(measured.lengths))} against "
    lines += f"{measured.fixed} on {measured.target.text}, by order, for all finite operands"
    lines += f", with {threads_text(measured.threads)}"
    if len(backends.get(measured.target.name).layouts) > 1:
        lines += f"; their memory layout is {' or '.join(measured.layouts)}"
    advice = Text(f"recommended: {advise(measured).text}", "bold")
    brief, best = table("remedy", "exact?", "cost", right=("cost",)), advise(measured).name
    for one in measured.found:
        brief.add_row(
            Text(one.remedy.name, "bold green" if one.remedy.name == best else ""),
            Text(SHORT[one.verdict], COLOURS[one.verdict]),
            rounded_text(measured.ratio(one, measured.content)),
        )
    parts: list[RenderableType] = [Text(lines), advice, "", brief]
    what = f"cost: time at {measured.vary} {measured.content:,} over the default's there"
    parts.append(Text(f"exact?: {EXACT}; {what}", "dim"))
    refused = [one for one in measured.found if one.refusal]
    if verbose:
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
                Text(one.verdict, COLOURS[one.verdict]),
                differing,
                "" if seconds is None else f"{seconds * 1e3:.3g} ms",
                rounded_text(measured.ratio(one, measured.content)),
                rounded_text(measured.of_fixed(one)),
                rounded_text(measured.ratio(one, measured.fixed)),
                "" if one.error_rms is None else f"{one.error_rms:.2f}",
                {True: "kept", False: "changed", None: ""}[one.keeps],
                one.remedy.doc,
            )
        parts += ["", rows, Text(COLUMNS.format(measured), "dim")]
    else:
        parts.append(Text("--verbose: all columns, and why some are not known", "dim"))
    parts += [Text(f"{one.remedy.name}: {one.refusal}", "yellow") for one in refused * verbose]
    return Group(*parts)


EXACT = "whether all sizes give the same bits, whatever finite numbers come in"
COLUMNS = (
    "differing: outputs that are added differently than at the full size; at: seconds of a call; "
    "x default, of full: over the default's at that size, and at the full one; x at: at the full "
    "size; error: distance from the exact sums, in eps times the sum of magnitudes; bits: whether "
    "the full size keeps the default's"
)


def padded_on_targets(found: OnTargets) -> RenderableType:
    """Returns what is said of a model on several targets, one after the other."""
    parts: list[RenderableType] = []
    for one in found.found:
        parts += [Text(one.target, "bold"), padded_model(one), ""]
    for failed in found.failures:
        said = f"{failed['target']} failed: {failed['kind']}: {failed['message']}"
        parts.append(Text(said, "yellow"))
    return Group(*parts)


def padded_model(found: Padded, verbose: bool = False) -> RenderableType:
    """Returns everything that is said of a padded graph; of remedies the columns that decide, and
    with ``verbose`` all."""
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
        Text(MEANS_OF_SIZES, "dim"),
    ]
    if found.remedies:
        rows, best = table("remedy", "exact?", "cost", right=("cost",)), told["recommended"]
        for one in found.remedies:
            name = Text(one["name"], "bold green" if one["name"] == best else "")
            verdict = Text(SHORT[one["verdict"]], COLOURS[one["verdict"]])
            rows.add_row(name, verdict, rounded_text(one["ratio"]))
        # what to do stands first, before the verdict and what it rests on
        parts[1:1] = [Text(f"recommended: {best}", "bold"), "", rows]
        parts[4:4] = [Text(f"exact?: {EXACT}; cost: {COST}", "dim"), ""]
    if found.remedies and not verbose:
        parts.append(Text("--verbose: all columns of the remedies, and the operations", "dim"))
    elif found.remedies:
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
        for one in found.remedies:
            verdict = one["verdict"] + ", certified" * (
                one["verdict"] == "exact" and one["certified"]
            )
            if given := one.get("certified_for"):
                verdict += f", for {given}"
            rows.add_row(
                one["name"],
                verdict,
                *(rounded_text(one[cost]) for cost in ("of_fixed", "ratio")),
                {True: "same", False: "different", None: ""}[one["keeps"]],
                one["refusal"] or "",
                one["doc"],
            )
        parts += ["", rows, Text(TIMES, "dim")]
        mode = None if found.invariant is None else found.invariant.to_json()
        if mode is not None:  # each operation of the invariant mode, with its class of sizes
            right = ("threads", "checked", "in the class", "from")
            rows = table("operation in the invariant mode", *right, "certified", right=right)
            for one in mode["operations"][:MOST_SIZES]:
                rows.add_row(
                    one["operation"],
                    *(
                        str(one.get(name, ""))
                        for name in ("threads", "sizes", "usable", "smallest")
                    ),
                    one.get("certified") or "not asked",
                )
            more = len(mode["operations"]) - MOST_SIZES
            parts += ["", rows]
            parts += [Text(f"and {more} operations more", "dim")] * (more > 0)
    if found.plan is not None:
        plan, longest = found.plan, found.plan.stretches[-1].last
        text = f"plan: {counted(len(plan.stretches), 'range')} up to {longest:,}"
        text += f"; checked on new inputs at {counted(len(plan.checked), 'valid size')}"
        text += (
            f", failed at {', '.join(map(str, plan.failed))}" if plan.failed else ", none failed"
        )
        parts += ["", Text(text, "red" if plan.failed else "default")]
        if plan.over:
            parts.append(Text(f"not all sizes were tried: {plan.over}", "yellow"))
        parts += [Text(f"assumed: {one}", "dim") for one in plan.assumed]
        for less in plan.between:
            behind = ", ".join(f"{one.operation} from {one.start:,} on" for one in less.splices)
            said = f"valid size {less.content:,} also keeps the bits when padded only to "
            said += f"{less.size:,}, if constants are inserted after {behind}"
            parts.append(Text(said))
    if found.walked is not None:
        parts += ["", Text("The run that differs, operation by operation:", "bold")]
        parts.append(walked(found.walked))
    if found.written:
        parts += ["", Text(f"written: {', '.join(found.written)}")]
    return Group(*parts)


COST = "time of the least padded size with the remedy, over the same without one"


TIMES = "of full, x least: time relative to the full size, and to the least size without a remedy"
MEANS_OF_SIZES = (
    "least: the shortest padded size that has all outputs of the valid part; safe: the shortest at "
    "which all operations compute them as at the full size; proof: holds for all finite inputs"
)


def _graph_contents(sizes: list[SafeSize]) -> RenderableType:
    right = ("valid size", "least", "safe")
    rows = table(*right, "at the least", "operation", "kept outputs", "proof", right=right)
    for one in sizes[:MOST_SIZES]:
        least, safe = one.at_least, one.at_safe
        word, colour = least.by_order, "red"
        if least.serves:
            word, colour = "equal", "green"
        elif least.lacking:
            word, colour = "no shorter size has all outputs", "yellow"
        proof = f"unproved: {safe.name} ({safe.why})" if safe.name else safe.why or safe.by_order
        if safe.by_order == "same":
            sure = "every addition tested" if safe.certified else "by order, not certified"
            proof = safe.why or sure + f", for {safe.given}" * bool(safe.given)
        rows.add_row(
            f"{one.content:,}",
            f"{one.least:,}",
            f"{one.safe:,}{' or less' * bool(one.over)}",
            Text(word, colour),
            f"{least.name}: {least.why}" if least.name and not least.serves else "",
            "; ".join(
                "constant"
                if box is None
                else ", ".join(
                    f"axis {part.axis}: {part.start:,} to {part.stop - 1:,}"
                    + f" at {part.start + part.offset:,}" * bool(part.offset)
                    for part in box
                )
                or "all"
                for box in safe.boxes
            ),
            proof,
        )
    if len(sizes) <= MOST_SIZES:
        return rows
    return Group(
        rows, Text(f"and {len(sizes) - MOST_SIZES} more valid sizes; --json has all", "dim")
    )
