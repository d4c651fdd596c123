"""What a terminal shows of answers: functions that take what was found and return what rich prints.

Of a case: what outputs read, how they are added, where a target changes that, why two runs differ,
what was reduced and reproduced, which release or condition changed it. Of a model: two runs,
operation by operation, how far to pad, remedies. Sweeps and what is here are shown where they are
found (``sweep``, ``here``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import printable
from probe.case.floats import rounded_text
from probe.explain.evidence import Added, Evidence
from probe.order.summation import Summation
from probe.order.tree import DRAWN_LEAVES, drawing, leaf_name, order_name, short_formula
from probe.sweep.printing import counted, differ, ranges, table, up_to
from probe.targets import backends

# what shows a case imports no room of models, two runs import none of padding and fixes
if TYPE_CHECKING:
    from probe.diff.difference import Region
    from probe.explain.verdict import Verdict
    from probe.sizes.bisection import Conditions
    from probe.sizes.search import SafeSize
    from probe.ui.answers.cases import Explained, Ordered, Switching, WindowsAnswer
    from probe.ui.answers.first_difference import Walked
    from probe.ui.answers.network import Padded, Remedied
    from probe.ui.answers.reproduce import Reproduced


def where_true(mask: np.ndarray) -> str:
    """Where a mask of the output's shape is True, by its indices along each axis; ``part of`` says
    that not all of these are.

    Axes of one entry are left out, ``*`` is all of an axis.
    """
    places = np.argwhere(mask)
    if not len(places):
        return "none"
    along = [np.unique(indices) for indices in places.T]
    parts = [
        "*" if len(indices) == size else ranges(indices.tolist(), 8)
        for indices, size in zip(along, mask.shape, strict=True)
        if size > 1
    ]
    if not parts:
        return "the output"
    if len(parts) > 1:
        parts = [f"({part})" if "," in part else part for part in parts]
    all_of_block = len(places) == np.prod([len(indices) for indices in along])
    return f"{'' if all_of_block else 'part of '}out[{', '.join(parts)}]"


def output_name(index: tuple[int, ...]) -> str:
    """One entry with all its indices: ``out[0, 3, 7]``."""
    return f"out[{', '.join(map(str, index))}]"


# Outputs that are written out: the first, and those that are not as predicted.
SHOWN = 12

# Reads of one output that are written out.
READS = 12


def windows(answer: WindowsAnswer) -> RenderableType:
    """A line an output: the first ones, and those not where the padding says."""
    case, same, width = answer.case, answer.same, answer.case.filters // answer.case.groups
    title, count, where = answer.lines()
    lines = [title, f"{count}; {where}"]
    if answer.reach is None:
        lines.append("this holds for finite operands; infinities and NaN were not tested")
    else:
        for name, number in answer.reach.to_json().get("reach", {}).items():
            lines.append(f"{counted(number, 'output')} {REACHED[name]}; --json names the inputs")
        if not answer.reach.outputs.any():
            lines.append("infinities and NaN outside of its window reach no output")
    wrong_ones = np.argwhere(~same)[:SHOWN].tolist()
    first = [[0, position] for position in range(min(SHOWN, same.shape[1]))]
    lines.append("")
    shape = case.output_shape()[:-1]
    for group, position in first + [place for place in wrong_ones if place not in first]:
        reads = reads_of_output(case, answer.revealed[group, position])
        of = f", filter {group * width}," if group else ""
        output = _entry_in_words("out", np.unravel_index(position, shape), shape)
        lines.append(f"{output}{of} reads {reads}")
    if same.size > len(lines):
        lines.append("--json has all")
    return "\n".join(lines)


# What ``probe.order.windows`` finds, of outputs.
REACHED = {
    "inputs": "multiply inputs outside of their window by 0: an infinity there gives NaN",
    "weights": "are reached by the weights of different filters",
    "padding": "multiply their padding: an infinite weight at padding gives NaN",
}


def reads_of_output(case: Case, met: np.ndarray) -> str:
    """What one output reads, kernel position by kernel position: ``x[-] x[0] x[1]``."""
    shape, channels = case.input_shape(), case.group_channels
    rows = np.asarray(met).reshape(-1, channels)
    words = []
    for row in rows[:READS]:
        if (row < 0).all():
            words.append("x[-]")
        elif channels > 1 and (row >= 0).all() and (np.diff(row) == 1).all():
            words.append(_inputs(int(row[0]), channels, shape))
        else:
            words += ["x[-]" if i < 0 else _inputs(int(i), 1, shape) for i in row]
    more = len(rows) - READS
    return " ".join(words) + (f" ... ({more} more)" if more > 0 else "")


def _inputs(flat: int, channels: int, shape: tuple[int, ...]) -> str:
    """Neighbouring channels of one place: ``x[3, 0..7]``, of one channel ``x[3, 0]``."""
    *place, channel = (int(i) for i in np.unravel_index(flat, shape))
    several = f"{channel}..{channel + channels - 1}" if channels > 1 else str(channel)
    return _entry_in_words("x", (*place, "*" if channels == shape[-1] else several), shape)


def _entry_in_words(tensor: str, index: tuple[object, ...], shape: tuple[int, ...]) -> str:
    """An entry by its indices; axes of one entry are left out."""
    parts = [str(i) for i, size in zip(index, shape, strict=True) if size > 1] or ["0"]
    return f"{tensor}[{', '.join(parts)}]"


def sets_text(sets: int, weighted: bool = True) -> str:
    """What an order rests on; weights are what scales the products of switch points."""
    if not weighted:
        return f"replayed on {counted(sets, 'set')} of operands, of the usual size alone"
    return f"replayed on {counted(sets, 'set')} of operands, scaled through the whole range"


# Summations that are written out, and that are drawn too.
MOST, DRAWN = 8, 3


def order(answer: Ordered) -> RenderableType:
    side, report = answer.found, answer.report()
    title, orders = f"{side.case.label} on {side.target.text}", side.orders
    total = report["outputs"]
    replayed = f"replayed {report['replayed']:,} of {total:,}"
    if side.pooled is not None:
        return f"{title}\n{side.pooled.words}; {replayed}"
    if orders is None:
        return f"{title}\n{side.refusal}: {side.evidence}"
    bias = "" if side.case.bias is None else " and the bias"
    adding = counted(len(orders.summations), "summation")
    products = f"{counted(total, 'output')} of {counted(side.case.summands, 'product')}"
    cost = f"({report['calls']} calls and {report['checks']} checks, {report['seconds']:.2f} s)"
    parts: list[RenderableType] = [title, f"{products}{bias}, {adding}; {replayed} {cost}"]
    if orders.sets:
        parts.append(sets_text(orders.sets))
    counts = orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])
    for rank, number in enumerate(ranked[:MOST]):
        summed = orders.summations[number]
        where = where_true((orders.index == number).reshape(orders.shape))
        parts.append(f"\norder {summed.tree.id}  {counted(counts[number], 'output')}: {where}")
        parts.append(summation(summed, side.case.dtype, rank < DRAWN))
    if len(ranked) > MOST:
        further = sum(int(counts[number]) for number in ranked[MOST:])
        more = f"{len(ranked) - MOST} more summations, for {further:,} outputs"
        parts.append(f"\nand {more}; --json has all")
    nothing = (orders.index < 0) & orders.replayed
    if nothing.any():
        where = where_true(nothing.reshape(orders.shape))
        parts.append(f"\n{int(nothing.sum()):,} outputs read only padding and are 0: {where}")
    unknown = (orders.index < 0) & ~orders.replayed
    if unknown.any():
        where = where_true(unknown.reshape(orders.shape))
        kind = "not known"
        if orders.not_a_sum.any():
            kind = "not a sum of the products (Winograd or FFT, for example)"
        text = f"\n{int(unknown.sum()):,} outputs are {kind}: {where}"
        parts.append(f"{text}\n  {orders.evidence}")
    return Group(*parts)


def summation(summed: Summation, dtype: str, drawn: bool = True, indent: int = 2) -> RenderableType:
    """Prints a summation: its name if it has one, the sum, its drawing if small, its rounding."""
    tree, rounding = summed
    name = order_name(tree)
    lines = [short_formula(tree) + (f"   {name}" if name else ""), rounding_in_words(summed, dtype)]
    if drawn and 2 < len(tree.leaves) <= DRAWN_LEAVES:
        lines += drawing(tree, rounding.fused)
    return Padding("\n".join(lines), (0, 0, 0, indent), expand=False)


def rounding_in_words(summed: Summation, dtype: str) -> str:
    """Says in words where a summation rounds."""
    return "; ".join(summed.text(dtype, ranges))


# Switches, and kinds of rows, that are written out.
LISTED = 20


def thresholds(answer: Switching) -> RenderableType:
    """Shows classes of sizes, where they change, their summations, and how they are known."""
    measured, (title, classes, floor) = answer.found, answer.lines()
    run = f"{len(measured.patterns)} {measured.sizes} run, {measured.seconds:.1f} s"
    sets = sets_text(measured.sets, measured.case.weighted)
    parts: list[RenderableType] = [f"{title} ({run})", sets, classes]
    parts += [floor, ""]
    for switch in measured.switches[:LISTED]:
        why, sure = ", ".join(switch.causes), ", by bisection" * (not switch.scanned)
        parts.append(
            f"from {switch.at:,} on as kind {switch.right}, not {switch.left}: {why}{sure}"
        )
    if (more := len(measured.switches) - LISTED) > 0:
        parts.append(f"and {more} more switches; --json has all")
    for kind in sorted({pattern.interior for pattern in measured.patterns.values()})[:LISTED]:
        parts.append(f"\nkind {kind}")
        for number in sorted({*measured.recogniser.kinds[kind]}):
            if number >= 0:
                parts.append(summation(measured.recogniser.summations[number], measured.case.dtype))
    # what was assumed, what was checked, and what speaks against it
    parts.append("")
    for word, sentences in (
        ("assumed", measured.assumed),
        ("checked", measured.checked),
        ("contradicted", measured.violations),
        ("failed", measured.failures),
        ("limited", [measured.limited] if measured.limited else []),
    ):
        parts += [f"{word}: {sentence}" for sentence in sentences]
    if any(pattern.unknown for pattern in measured.patterns.values()):
        parts.append(f"not known: {measured.recogniser.evidence}")
    return Group(*parts)


# What each cause says of an output.
MEANING = {
    "window": "reads different inputs: a different padding, stride or groups, not rounding",
    "reach": "a NaN or an infinity gets in from an input or a weight outside of its window",
    "order": "adds the same products in a different order",
    "rounding": "fuses different products into their additions (FMA), truncates its result, or "
    "divides a sum differently",
    "precision": "keeps products or partial sums in a different format",
    "flush": "flushes subnormal numbers to zero that the other side keeps",
    "algorithm": "computes a different formula, such as a maximum that passes over NaN",
    "alignment": "depends on where its operands begin in memory, by which a kernel is chosen",
    "nondeterministic": "does not repeat its own bits, so no cause can be given",
    "place": "computes a function differently at this place: the remainder of a vectorised loop",
    "not-a-sum": "is not the sum of the products (Winograd, FFT, or a sum that is clipped, rounded "
    "to integers or put through a function), so there is no order to compare",
    "unexplained": "the replay gave different bits, so the cause is unknown",
}


def causes_table(causes: Mapping[str, int]) -> RenderableType:
    rows = table("cause", "outputs", "what it is", right=("outputs",))
    for cause, count in causes.items():
        # of several causes at once, all of them
        meaning = "; ".join(MEANING.get(part, part) for part in cause.split("+"))
        rows.add_row(cause, f"{count:,}", meaning)
    return rows


# Summations that are written out for a side.
MOST_OF_SIDE = 5


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Whether it is rounding or a bug."""
    yield verdict.says
    yield "; ".join(filter(None, (verdict.counts, verdict.numbers)))
    if verdict.port:
        yield f"on the right this reads what the left side reads:\n{verdict.port}"


def explanation(answer: Explained) -> RenderableType:
    comparison, compared = answer.found, answer.found.compared
    left, right = comparison.words(comparison.left), comparison.words(comparison.right)
    parts: list[RenderableType] = []
    if len(comparison.differing):
        parts += verdict_lines(answer.verdict)
    if not compared:
        head = "no two outputs must agree: all windows differ"
    else:
        head = f"none of {counted(compared, 'output')} differs"
        if differing := len(comparison.differing):
            head = differ(differing, compared, comparison.max_ulp)
            head += f": {', '.join(comparison.causes)}"
        elif comparison.by_order:
            why = "are added in a different order or rounding: they differ with different operands"
            head += f", but {comparison.by_order:,} {why}"
        if comparison.signed_zero and comparison.zeros == "equal":
            why = "are zeros of different signs: --zeros differ counts them"
            head += f" ({comparison.signed_zero:,} {why})"
        head += f"; replayed {comparison.replayed:,} of {compared:,}"
        head += f"; {comparison.rounding.words}" * bool(comparison.rounding.words)
    parts += [head, f"{comparison.shared.label}\n left: {left}\nright: {right}"]
    if comparison.causes:
        parts += ["", causes_table(comparison.causes)]
    if compared and comparison.sets:
        parts.append(f"orders: {sets_text(comparison.sets)}")
    sides = {"left": comparison.left, "right": comparison.right}
    for name, side in sides.items():
        refusal = ": ".join(filter(None, (side.refusal, side.evidence)))
        parts += [f"{name}: {refusal}"] * bool(refusal)
    for name, side in sides.items():
        summations = comparison.summations(side)
        parts += [f"\n{name} adds"] * bool(summations)
        for added, outputs in summations[:MOST_OF_SIDE]:
            parts.append(f"  {counted(outputs, 'output')} as order {added.tree.id}")
            parts.append(summation(added, side.case.dtype, drawn=False, indent=4))
        if len(summations) > MOST_OF_SIDE:
            outputs = sum(count for _, count in summations[MOST_OF_SIDE:])
            more = f"  {outputs:,} outputs in {len(summations) - MOST_OF_SIDE} more summations"
            parts.append(f"{more}; --json has all")
    parts += [""] * bool(comparison.kernels)
    # evidence beside the causes, never a cause
    for name, sources in comparison.kernels.items():
        for source, names in sources.items():
            parts.append(f"{name} kernels, {source}: {', '.join(names)}")
    if answer.evidence is not None:
        parts += ["", *example_in_full(answer.evidence)]
    return Group(*parts)


# Partial sums up to which all are written out; else those around where the sides part.
SUMS = 20


def example_in_full(evidence: Evidence) -> Iterator[RenderableType]:
    """The output's two sides."""
    left, right = evidence.left, evidence.right
    far = "" if evidence.ulp is None else f", {abs(evidence.ulp):,} ulp"
    where = "" if left.output == right.output else output_name(right.output) + "="
    yield (
        f"the smallest sum in full: {output_name(left.output)}="
        f"{floats.bits_text(left.library, left.dtype)}, against {where}"
        f"{floats.bits_text(right.library, right.dtype)}{far}: {evidence.cause}"
    )
    reads = evidence.cause == "window"
    added = any(side.summation is not None or side.pooled for side in (left, right))
    if added and 0 < len(left.products) <= DRAWN_LEAVES and not reads:
        rows = table("product", "input", "weight")
        for product in left.products:
            values = (floats.bits_text(bits, left.dtype) for bits in (product.x, product.w))
            rows.add_row(leaf_name(product.leaf), *values)
        if left.bias is not None:
            rows.add_row("b", "", floats.bits_text(left.bias, left.dtype))
        yield rows
    yield from (f"\nleft\n{_side_in_full(left, reads)}", f"\nright\n{_side_in_full(right, reads)}")


def _side_in_full(side: Added, reads: bool) -> str:
    lines = list[str]()
    if reads and side.reads is not None:
        lines.append(f"reads {reads_of_output(side.side.case, np.array(side.reads))}")
    if side.summation is None:
        return "\n".join([*lines, side.pooled or "order not known", _result_line(side)])
    tree, rounding = side.summation
    if 2 <= len(tree.leaves) <= DRAWN_LEAVES:
        lines += drawing(tree, rounding.fused)
    else:
        lines += [short_formula(tree), rounding_in_words(side.summation, side.dtype)]
    # partial sums; ``>`` marks those that the other side does not have. Of a large tree only those
    # around where the sides part, the first ones and the last ones
    count, before = len(side.sums), -1
    shown = set(range(count))
    if count > SUMS:
        shown = {0, 1, *range(count - 3, count)}
        for place in (side.parts_at, side.bits_part):
            if place is not None:
                shown.update(range(place - 2, place + 4))
    for partial in side.sums:
        if partial.node not in shown:
            continue
        if partial.node != before + 1:
            lines.append(f"  ... {partial.node - before - 1} sums")
        before = partial.node
        parted = {"order": partial.node == side.parts_at, "bits": partial.node == side.bits_part}
        marks = ", ".join(what for what, is_here in parted.items() if is_here)
        mark = "> " if partial.node in side.unshared_nodes else "  "
        lines.append(f"{mark}{partial.text}" + (f"  ← {marks}" if marks else ""))
    lines.append(_result_line(side))
    if side.unshared_nodes:
        lines.append("> only on this side; ← where the sides begin to differ")
    if rounding.fused:
        lines.append("* fused: the product is added without being rounded first")
    return "\n".join(lines)


def _result_line(side: Added) -> str:
    library = floats.bits_text(side.library, side.dtype)
    if side.reached:
        return f"+ {side.reached} = {library} = the library's bits"
    if side.result is None:
        return f"library: {library}"
    if side.result == side.library:
        return f"{library} = the library's bits"
    return f"replayed {floats.bits_text(side.result, side.dtype)}, library {library}"


def store_causes(report: Mapping[str, Any]) -> RenderableType:
    head = f"{report['differing']:,} differing outputs in {report['store']}"
    parts: list[RenderableType] = [f"{head}; replayed {report['replayed']:,}"]
    if before := report["comparisons_explained_before"]:
        parts.append(f"{before:,} comparisons were explained before")
    if report["causes"]:
        names = list(report["causes"])
        rows = table("target", *names, right=names)
        for target, causes in report["targets"].items():
            rows.add_row(target, *(f"{causes.get(name, 0):,}" for name in names))
        parts += ["", causes_table(report["causes"]), "", rows]
    failures = report["failures"]
    parts += failures[:3]
    if len(failures) > 3:
        parts.append(f"{len(failures) - 3} other failures; --json has all")
    if report["interrupted"]:
        parts.append("interrupted; run the same command again to continue")
    return Group(*parts)


ENDED = {
    "minimal": "minimal",
    "budget": "the limit of tries is reached; --most N raises it",
    "interrupted": "interrupted; this is the smallest case so far",
}


def shrunk(report: Mapping[str, Any], start: str) -> RenderableType:
    """The smallest case, from where, in how many tries."""
    tried = f"{report['calls']} reductions tried, {report['runs']} runs"
    counts = ", ".join(f"{n} in {name}" for name, n in report["case"]["not_zero"].items())
    parts: list[RenderableType] = [report["label"], f"from {start}"]
    parts += [f"{tried}; {ENDED[report['ended']]}", f"nonzero operands: {counts}"]
    if report["near"]:
        parts.append(f"nearest case that agrees: {report['near']['case']}")
    parts += _before_and_after(report)
    parts += [causes_table(report["causes"])] if report["causes"] else []
    if not report["shown"]:
        parts.append("no operands were found for which the bits differ")
    for name, value in (report["operands"] or {}).items():
        # infinities and NaN, which JSON lacks, are texts there: float reads them
        numbers = np.array(value, float).ravel().tolist()
        if len(numbers) <= 32:
            parts.append(f"{name} = {', '.join(f'{number:.9g}' for number in numbers)}")
    return Group(*parts)


def _before_and_after(report: Mapping[str, Any]) -> Iterator[str]:
    """What the finding did before it was reduced, what of it is not kept, and what is left
    of it."""
    before, keeps = report["before"], report["kept"]
    if before is not None and keeps is not None:
        counts = ", ".join(f"{number:,} by {name}" for name, number in before["causes"].items())
        outputs = f"{before['differing']:,} of {counted(before['compared'], 'output')} that differ"
        yield f"before: {outputs}{up_to(before['max_ulp'])}: {counts}"
        if keeps["cause"] is False:
            yield "the reduced case has a different cause"
    yield differ(report["differing"], report["compared"], report["max_ulp"])


def reproduction(answer: Reproduced) -> RenderableType:
    from probe.report.report import LIMIT

    report = answer.report()
    parts: list[RenderableType] = [*verdict_lines(answer.found.verdict)]
    if part := report["case"].get("part"):
        parts.append(part)
    parts += [report["label"], *_before_and_after(report), causes_table(report["causes"])]
    if report["calls"] is not None:
        parts.append(f"{report['calls']} reductions tried; {ENDED[report['ended']]}")
    if report["near"]:
        parts.append(f"nearest case that agrees: {report['near']['case']}")
    if report["not_emulated"]:
        parts.append(f"emulated.py was not written: {report['not_emulated']}")
    parts += [f"this avoids the difference: {way}" for way in report["avoids"]]
    if report["short"]:
        printed = "\n".join(output for _, output in report["short"]["ways"])
        parts += [report["short"]["text"].rstrip(), printed]
    attached = [name for name in report["files"] if name != "report.md"]
    size = f"{report['sizes']['report.md']:,} of the {LIMIT:,} characters that GitHub takes"
    parts += [f"{report['out']}: report.md, {size}", f"to attach: {', '.join(attached)}"]
    return Group(*parts)


def verified(report: Mapping[str, Any]) -> str:
    lines = [f"{report['verdict']}: {report['why']}"]
    if report["same_bits"] is False:
        lines.append("with bits that differ from those that were reported")
    if report["interpreter"] == "own":
        targets = " and ".join(dict.fromkeys(report["targets"]))
        lines.append(f"{targets} is not installed here: this Python ran the script")
    return "\n".join(lines)


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


# Rows of operations that are printed; --json has all.
MOST_OPERATIONS = 40

# Reasons of unknown operations that are printed; --json has all.
MOST_REASONS = 6

MOVE = "move elements (reshape, transpose, slice and the like)"
MEANS = (
    "source: its inputs agree and its outputs differ; carried: its inputs differ already; healed: "
    "its inputs differ and its outputs agree; left, right: it exists in one run only; own: outputs "
    "of a carried operation that differ even if its inputs are made to agree"
)


def walked(answer: Walked) -> RenderableType:
    from probe.diff.difference import NOT_SOUGHT
    from probe.explain.outputs import NAMED

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
            rounded_text(output.distance_in_eps),
            ", ".join(decided),
        )
    what = "scaled: the largest difference over eps times the largest value"
    return Group(*parts, "", rows, what)


def _operations(answer: Walked) -> Iterator[RenderableType]:
    operations, computed = answer.found.operations, answer.found.computing
    right = ("compared", "differing", "own", "max ulp", "scaled")
    rows = table("operation", "op", *right, "verdict", "cause", right=right)

    def row(operation: Region) -> str | int:
        silent = operation.verdict in ("equal", "left", "right", "unknown") and not operation.note
        return operation.verdict if silent else id(operation)

    # runs of operations in which nothing differs are a row together, the others have a row each
    shown = [list(group) for _, group in groupby(computed, row)]
    for region, *quiet in shown[:MOST_OPERATIONS]:
        if quiet:
            compared = f"{sum(each.compared for each in (region, *quiet)):,}"
            name = f"{1 + len(quiet)} operations"
            rows.add_row(name, "", compared, *[""] * 4, region.verdict, "")
            continue
        far = region.max_ulp if region.differing else None
        rows.add_row(
            Text(region.name, "bold" if region is answer.found.first else ""),
            region.op,
            f"{region.compared:,}",
            *(
                f"{count:,}" if count else ""
                for count in (region.differing, region.differing_alone)
            ),
            "" if far is None else f"{far:,}",
            rounded_text(max((pair.distance_in_eps for pair in region.gives), default=0.0) or None),
            region.verdict,
            region.cause_text or region.note,
        )
    yield rows
    more = [f"{len(shown) - MOST_OPERATIONS} more rows"] if len(shown) > MOST_OPERATIONS else []
    if left_out := len(operations) - len(computed):
        more.append(f"{counted(left_out, 'operation')} that only {MOVE}")
    if more:
        yield f"not shown: {' and '.join(more)}; --json has all"


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

        rows = ((w["name"], w["verdict"], rounded_text(w["ratio"])) for w in report["remedies"])
        # what to do stands first, before the verdict and what it rests on
        parts += [
            f"recommended: {advise(padded.remedies).text}",
            "",
            remedies_in_brief(rows),
        ]
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
