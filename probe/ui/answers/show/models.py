"""Shows what commands of a model found: two runs, operation by operation, and recordings on disk;
how far to pad and what prevents it; remedies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from probe.case.case import Case
from probe.case.errors import printable
from probe.case.floats import rounded_text
from probe.diff.difference import NOT_SOUGHT
from probe.explain.outputs import NAMED
from probe.sweep.printing import counted, ranges, table
from probe.targets import backends

# two runs do without the rooms of padding and fixes, remedies of a case without recordings
if TYPE_CHECKING:
    from probe.diff.difference import Region
    from probe.sizes.search import SafeSize
    from probe.ui.answers.first_difference import Walked
    from probe.ui.answers.network import Padded, Remedied

# Rows of operations that are printed; --json has all.
MOST = 40

# Reasons of unknown operations that are printed; --json has all.
MOST_REASONS = 6

MOVE = "move elements (reshape, transpose, slice and the like)"
MEANS = (
    "source: its inputs agree and its outputs differ; carried: its inputs differ already; healed: "
    "its inputs differ and its outputs agree; left, right: it exists in one run only; own: outputs "
    "of a carried operation that differ even if its inputs are made to agree"
)


def walked(answer: Walked) -> RenderableType:
    first, second, _ = answer.lines()
    difference = answer.found
    parts: list[RenderableType] = [
        first,
        f"verdict: {answer.verdict}{' (window)' if answer.window else ''}",
        ", ".join(f"{count:,} {name}" for name, count in answer.classes.items()),
        second,
        answer.outcome("--report DIR"),
        *(f"note: {note}" for note in difference.notes),
    ]
    unknown = answer.unknown()
    parts += unknown[:MOST_REASONS]
    if (more := len(unknown) - MOST_REASONS) > 0:
        parts.append(f"unknown for {more} more reasons: see --json")
    if difference.operations and set(answer.counts()) != {"equal"}:
        parts += ["", *_operations(answer), MEANS]
    parts += [""] * bool(difference.causes)
    for number, cause in difference.causes.items():
        operation = difference.operations[number]
        kind = cause.kind or ("" if NOT_SOUGHT in cause.why else "not explained yet")
        head = [f"{operation.name} ({operation.op})", kind, cause.why]
        parts.append(": ".join(filter(None, head)))
    right = ("compared", "differing", "max ulp", "scaled")
    rows = table("output", *right, "decisions changed", right=right)
    for number, output in enumerate(difference.outputs):
        decided = [
            f"{NAMED[each.decision]}: {each.crossed:,} of {each.taken:,}"
            for each in answer.decisions(output)
        ]
        rows.add_row(
            str(number),
            f"{output.compared:,}",
            f"{output.differing:,}",
            "" if output.max_ulp is None else f"{output.max_ulp:,}",
            rounded_text(output.scaled),
            ", ".join(decided),
        )
    what = "scaled: the largest difference over eps times the largest value"
    return Group(*parts, "", rows, what)


def _operations(answer: Walked) -> Iterator[RenderableType]:
    operations, computed = answer.found.operations, answer.found.computed
    right = ("compared", "differing", "own", "max ulp", "scaled")
    rows = table("operation", "op", *right, "verdict", "cause", right=right)
    shown = list(collapsed(computed))
    for region, *others in shown[:MOST]:
        if others:
            compared = f"{sum(each.compared for each in (region, *others)):,}"
            name = f"{1 + len(others)} operations"
            rows.add_row(name, "", compared, *[""] * 4, region.verdict, "")
            continue
        far = region.max_ulp if region.differing else None
        rows.add_row(
            Text(region.name, "bold" if region is answer.found.first else ""),
            region.op,
            f"{region.compared:,}",
            *(f"{count:,}" if count else "" for count in (region.differing, region.own)),
            "" if far is None else f"{far:,}",
            rounded_text(max((pair.scaled for pair in region.gives), default=0.0) or None),
            region.verdict,
            region.why or region.note,
        )
    yield rows
    more = [f"{len(shown) - MOST} more rows"] if len(shown) > MOST else []
    if left_out := len(operations) - len(computed):
        more.append(f"{counted(left_out, 'operation')} that only {MOVE}")
    if more:
        yield f"not shown: {' and '.join(more)}; --json has all"


def collapsed(operations: list[Region]) -> Iterator[list[Region]]:
    """Operations one by one, and runs of those in which nothing differs together."""

    def row(operation: Region) -> str | int:
        quiet = operation.verdict in ("equal", "left", "right", "unknown") and not operation.note
        # the others have a row each
        return operation.verdict if quiet else id(operation)

    for _, some in groupby(operations, row):
        yield list(some)


# Rows of contents, and of stretches of a plan, that are printed.
MOST_SIZES = 24


SHORT = {"exact": "yes", "differs": "no", "not known": "not known"}


def remedies(answer: Remedied) -> RenderableType:
    """What to do, and a row for each remedy."""
    from probe.sizes.fixes import advise
    from probe.sizes.thresholds import threads_text

    measured = answer.found
    what = measured.sizes if isinstance(measured.subject, Case) else "valid lengths"
    lines = f"{measured.label}\n{what} {ranges(list(measured.lengths))} against "
    lines += f"{measured.fixed} on {measured.target.text}, by order, for all finite operands"
    lines += f", with {threads_text(measured.threads)}"
    if len(backends.get(measured.target.name).layouts) > 1:
        lines += f"; their memory layout is {' or '.join(measured.layouts)}"
    content = measured.content
    costs = {r.remedy.name: rounded_text(measured.ratio(r, content)) for r in measured.found}
    brief = remedies_in_brief(
        (r.remedy.name, r.verdict, costs[r.remedy.name]) for r in measured.found
    )
    what = f"cost: time at {measured.vary} {content:,} over the default's there"
    parts: list[RenderableType] = [lines, f"recommended: {advise(measured).text}", "", brief]
    parts += [f"exact?: {EXACT}; {what}"]
    return Group(*parts, "--json has why some are not known, and all that was measured")


def remedies_in_brief(rows: Iterable[tuple[str, str, str]]) -> RenderableType:
    shown = table("remedy", "exact?", "cost", right=("cost",))
    for name, verdict, cost in rows:
        shown.add_row(name, SHORT[verdict], cost)
    return shown


EXACT = "whether all sizes give the same bits, whatever finite numbers come in"


def padded_model(padded: Padded) -> RenderableType:
    """What is said of a padded graph; of remedies the columns that decide."""
    report = padded.report()
    head = f"{padded.model}: {counted(report['operations_total'], 'operation')} of a graph, "
    unknown = report["operations_total"] - report["examined"]
    head += f"{counted(unknown, 'operation')} not supported, " * bool(unknown)
    along = padded.graph.along.items()
    axes = ", ".join(f"{printable(name)} along axis {axis}" for name, axis in along)
    parts: list[RenderableType] = [
        f"{head}padded against {padded.vary} {padded.graph.fixed:,} ({axes})"
    ]
    if padded.remedies is not None:
        from probe.sizes.fixes import advise

        ways = ((w["name"], w["verdict"], rounded_text(w["ratio"])) for w in report["remedies"])
        # what to do stands first, before the verdict and what it rests on
        parts += [f"recommended: {advise(padded.remedies).text}", "", remedies_in_brief(ways)]
        parts += [f"exact?: {EXACT} (subnormal ones aside); cost: {COST}", ""]
    parts += [f"verdict: {padded.verdict}", padded.advice()]
    parts += [*(f"note: {note}" for note in padded.notes), ""]
    parts += [*_graph_contents(padded.found), MEANS_OF_SIZES]
    if padded.plan is not None:
        plan, longest = padded.plan, padded.plan.stretches[-1].last
        text = f"plan: {counted(len(plan.stretches), 'range')} up to {longest:,}"
        text += f"; checked on new inputs at {counted(len(plan.checked), 'valid size')}"
        failed = f"failed at {', '.join(map(str, plan.failed))}" if plan.failed else "none failed"
        parts += ["", f"{text}, {failed}"]
        parts += [f"not all sizes were tried: {plan.over}"] if plan.over else []
        parts += [f"assumed: {assumption}" for assumption in plan.assumed]
    if padded.written:
        parts += ["", f"written: {', '.join(padded.written)}"]
    return Group(*parts)


COST = "time of the least padded size with the remedy, over the same without one"


MEANS_OF_SIZES = (
    "least: the shortest padded size that has all outputs of the valid part; safe: the shortest at "
    "which they have the full size's bits; proof: whether that holds for all finite inputs, "
    "subnormal ones aside"
)


def _graph_contents(sizes: list[SafeSize]) -> Iterator[RenderableType]:
    right = ("valid size", "least", "safe")
    rows = table(*right, "at the least", "operation", "proof", right=right)
    for size in sizes[:MOST_SIZES]:
        least, safe = size.at_least, size.at_safe
        word = "equal" if least.serves else least.by_order
        if least.lacking and not least.serves:
            word = "no shorter size has all outputs"
        proof = f"unproved: {safe.name} ({safe.why})" if safe.name else safe.why or safe.by_order
        if safe.by_order == "same":
            sets = f", {safe.sets} sets of operands" * bool(safe.sets)
            proof = safe.why or f"by order{sets}"
        rows.add_row(
            f"{size.content:,}",
            f"{size.least:,}",
            f"{size.safe:,}{' or less' * bool(size.over)}",
            word,
            f"{least.name}: {least.why}" if least.name and not least.serves else "",
            proof,
        )
    yield rows
    if (more := len(sizes) - MOST_SIZES) > 0:
        yield f"and {more} more valid sizes; --json has all"
