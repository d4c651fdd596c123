"""Shows what commands of a case found: what outputs read, how they are added, where a
target changes that, why two runs differ, what was reduced and reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from probe.case import floats
from probe.case.case import Case
from probe.explain.comparison import Comparison
from probe.explain.evidence import Added, Evidence
from probe.explain.verdict import Verdict
from probe.order.summation import Summation
from probe.order.tree import DRAWN_LEAVES, drawing, leaf_name, order_name, short_formula
from probe.sweep.printing import counted, differ, ranges, table, up_to

if TYPE_CHECKING:
    from probe.ui.answers.cases import Ordered, Switching, WindowsAnswer

Region = tuple[np.ndarray, ...]


def regions(mask: np.ndarray) -> Iterator[Region]:
    """Yields the True entries of a mask as disjoint products of indices, one index set an axis.

    Slices along the first axis that look alike are taken together, and so on inwards.
    """
    if mask.ndim == 1:
        if mask.any():
            yield (np.flatnonzero(mask),)
        return
    rows = mask.reshape(len(mask), -1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    for number in np.argsort(first):
        members = np.flatnonzero(which.reshape(-1) == number)
        for inner in regions(mask[members[0]]):
            yield (members, *inner)


# Regions of a mask that are written out.
REGIONS = 4


def where_true(mask: np.ndarray) -> str:
    """Returns where a mask of the output's shape is True, in its first ``REGIONS`` regions.

    Axes of one entry are left out, ``*`` is all of an axis.
    """
    blocks = list(regions(mask))
    if mask.size == 1:
        return "the output" if blocks else "none"
    texts = []
    for region in blocks[:REGIONS]:
        parts = [
            "*" if len(indices) == size else ranges(indices.tolist(), 8)
            for indices, size in zip(region, mask.shape, strict=True)
            if size > 1
        ]
        if len(parts) > 1:
            parts = [f"({part})" if "," in part else part for part in parts]
        texts.append(f"out[{', '.join(parts)}]")
    text, more = "; ".join(texts), len(blocks) - REGIONS
    return f"{text}; and {more} more blocks of this kind" if more > 0 else text or "none"


def output_name(index: tuple[int, ...]) -> str:
    """Returns one entry with all its indices: ``out[0, 3, 7]``."""
    return f"out[{', '.join(map(str, index))}]"


# Outputs that are written out: the first, and those that are not as predicted.
SHOWN = 12

# Reads of one output that are written out.
READS = 12


def windows(answer: WindowsAnswer) -> RenderableType:
    """Returns a line an output: the first ones, and those not where the padding says."""
    case, same, width = answer.case, answer.same, answer.case.filters // answer.case.groups
    title, count, where = answer.lines()
    head = Text(f"{count}; ").append(where, "green" if same.all() else "bold red")
    parts: list[RenderableType] = [Text(title, "bold"), head]
    if answer.reach is None:
        text = "this holds for finite operands; infinities and NaN were not tested"
        parts.append(Text(text, "dim"))
    else:
        for name, number in answer.reach.to_json().get("reach", {}).items():
            style = "dim" if name == "padding" else "bold red"
            text = f"{counted(number, 'output')} {REACHED[name]}; --json names the inputs"
            parts.append(Text(text, style))
        if not answer.reach.outputs.any():
            parts.append(Text("infinities and NaN outside of its window reach no output", "green"))
    wrong_ones = np.argwhere(~same)[:SHOWN].tolist()
    first = [[0, position] for position in range(min(SHOWN, same.shape[1]))]
    parts.append("")
    shape = case.output_shape()[:-1]
    for group, position in first + [place for place in wrong_ones if place not in first]:
        reads = reads_of_output(case, answer.revealed[group, position])
        of = f", filter {group * width}," if group else ""
        output = _entry_in_words("out", np.unravel_index(position, shape), shape)
        line = f"{output}{of} reads {reads}"
        parts.append(Text(line, "" if same[group, position] else "red"))
    if same.size > len(parts):
        parts.append(Text("--json has all", "dim"))
    return Group(*parts)


# What ``probe.order.windows`` finds, of outputs.
REACHED = {
    "inputs": "multiply inputs outside of their window by 0: an infinity there gives NaN",
    "weights": "are reached by the weights of different filters",
    "padding": "multiply their padding: an infinite weight at padding gives NaN",
}


def reads_of_output(case: Case, met: np.ndarray) -> str:
    """Returns what one output reads, kernel position by kernel position: ``x[-] x[0] x[1]``."""
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
    """Returns neighbouring channels of one place: ``x[3, 0..7]``, of one channel ``x[3, 0]``."""
    *place, channel = (int(i) for i in np.unravel_index(flat, shape))
    several = f"{channel}..{channel + channels - 1}" if channels > 1 else str(channel)
    return _entry_in_words("x", (*place, "*" if channels == shape[-1] else several), shape)


def _entry_in_words(tensor: str, index: tuple[object, ...], shape: tuple[int, ...]) -> str:
    """Returns an entry by its indices; axes of one entry are left out."""
    parts = [str(i) for i, size in zip(index, shape, strict=True) if size > 1] or ["0"]
    return f"{tensor}[{', '.join(parts)}]"


def sets_text(sets: int, weighted: bool = True) -> str:
    """Returns what an order rests on; weights are what scales the products of switch points."""
    if not weighted:
        return f"replayed on {counted(sets, 'set')} of operands, of the usual size alone"
    return f"replayed on {counted(sets, 'set')} of operands, scaled through the whole range"


# Summations that are written out, and that are drawn too.
MOST, DRAWN = 8, 3


def order(answer: Ordered) -> RenderableType:
    """Returns every summation with its outputs."""
    side, report = answer.found, answer.report()
    title = Text(f"{side.case.label} on {side.target.text}", "bold")
    total, known = report["outputs"], report["replayed"]
    replayed = Text(f"replayed {known:,} of {total:,}", "green" if known == total else "red")
    if side.pooled is not None:
        said = Text(f"{side.pooled.words}; ").append_text(replayed)
        return Group(title, said)
    if side.orders is None:
        return Group(title, Text(f"{side.refusal}: {side.evidence}", "magenta"))
    bias = "" if side.case.bias is None else " and the bias"
    adding = counted(len(side.orders.summations), "summation")
    products = f"{counted(total, 'output')} of {counted(side.case.summands, 'product')}"
    said = Text(f"{products}{bias}, {adding}; ").append_text(replayed)
    cost = f" ({report['calls']} calls and {report['checks']} checks, {report['seconds']:.2f} s)"
    parts: list[RenderableType] = [title, said.append(cost, "dim")]
    if side.orders.sets:
        parts.append(Text(sets_text(side.orders.sets)))
    counts = side.orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])
    for rank, number in enumerate(ranked[:MOST]):
        summed = side.orders.summations[number]
        mask = (side.orders.index == number).reshape(side.orders.shape)
        where = f"  {counted(counts[number], 'output')}: {where_true(mask)}"
        head = Text(f"\norder {summed.tree.id}", "bold cyan").append(where, "not bold default")
        parts += [head, summation(summed, side.case.dtype, rank < DRAWN)]
    if len(ranked) > MOST:
        rest = sum(int(counts[number]) for number in ranked[MOST:])
        more = f"\nand {len(ranked) - MOST} more summations, for {rest:,} outputs; --json has all"
        parts.append(Text(more, "dim"))
    orders = side.orders
    nothing = (orders.index < 0) & orders.replayed
    if nothing.any():
        where = where_true(nothing.reshape(orders.shape))
        text = f"\n{int(nothing.sum()):,} outputs read only padding and are 0: {where}"
        parts.append(Text(text))
    rest = (orders.index < 0) & ~orders.replayed
    if rest.any():
        where = where_true(rest.reshape(orders.shape))
        kind = (
            "not a sum of the products (Winograd or FFT, for example)"
            if orders.not_a_sum.any()
            else "not known"
        )
        text = f"\n{int(rest.sum()):,} outputs are {kind}: {where}\n  {orders.evidence}"
        parts.append(Text(text, "red"))
    return Group(*parts)


def summation(summed: Summation, dtype: str, drawn: bool = True, indent: int = 2) -> RenderableType:
    """Prints a summation: its name if it has one, the sum, its drawing if small, its rounding."""
    tree, rounding = summed
    name = order_name(tree)
    sum_of = Text(short_formula(tree))
    sum_of.append(f"   {name}" if name else "", "dim")
    lines: list[RenderableType] = [sum_of, Text(rounding_in_words(summed, dtype))]
    if drawn and 2 < len(tree.leaves) <= DRAWN_LEAVES:
        lines += [Text(line) for line in drawing(tree, rounding.fused)]
    return Padding(Group(*lines), (0, 0, 0, indent), expand=False)


def rounding_in_words(summed: Summation, dtype: str) -> str:
    """Says in words where a summation rounds."""
    return "; ".join(summed.text(dtype, ranges))


# Stretches, and kinds of rows, that are written out.
LISTED = 20


def thresholds(answer: Switching) -> RenderableType:
    """Shows stretches of sizes that add alike, their summations, and how they are known."""
    from probe.sizes.thresholds import islands

    measured, (title, classes, floor) = answer.found, answer.lines()
    run = f"{len(measured.patterns)} {measured.sizes} run, {measured.seconds:.1f} s"
    parts: list[RenderableType] = [
        Text(f"{title} ({run})", "bold"),
        Text(sets_text(measured.sets, measured.case.weighted)),
        Text(classes),
    ]
    if any(size_class.expected for size_class in answer.classes):
        text = f"a class holds the {measured.sizes} that were run; "
        parts.append(Text(f"{text}others are expected in it, not tested", "dim"))
    parts += [Text(floor, "bold"), ""]
    stretches = list(islands(measured))
    rows = list(zip(stretches, [None, *measured.switches], strict=True))
    for (first, last, kind), switch in rows[:LISTED]:
        why = "" if switch is None else f"  {', '.join(switch.causes)}"
        sure = "" if switch is None or switch.scanned else ", by bisection"
        line = Text(f"{first:>9,} .. {last:<9,}  adds as ")
        parts.append(line.append(f"kind {kind}", "cyan").append(f"{why}{sure}", "dim"))
    if len(stretches) > LISTED:
        parts.append(Text(f"and {len(stretches) - LISTED} more stretches; --json has all", "dim"))
    for kind in sorted({kind for *_, kind in stretches})[:LISTED]:
        parts.append(Text(f"\nkind {kind}", "bold cyan"))
        for number in sorted({*measured.recogniser.kinds[kind]}):
            if number >= 0:
                parts.append(summation(measured.recogniser.summations[number], measured.case.dtype))
    if any(measured.tails.values()):
        parts.append(Text(f"\nthe last outputs of some {measured.sizes} add otherwise: see --json"))
    # what was assumed, what was checked, and what speaks against it
    parts.append(Text(""))
    for word, sentences, style in (
        ("assumed", measured.assumed, "dim"),
        ("checked", measured.checked, "dim"),
        ("contradicted", measured.violations, "bold red"),
        ("failed", measured.failures, "yellow"),
        ("limited", [measured.limited] if measured.limited else [], "yellow"),
    ):
        parts += [Text(f"{word}: {sentence}", style) for sentence in sentences]
    if any(pattern.unknown for pattern in measured.patterns.values()):
        parts.append(Text(f"not known: {measured.recogniser.evidence}", "red"))
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
        rows.add_row(Text(cause, cause_style(cause)), f"{count:,}", cause_in_words(cause))
    return rows


def cause_in_words(cause: str) -> str:
    """Returns a cause in words; of several at once, all of them."""
    return "; ".join(MEANING.get(part, part) for part in cause.split("+"))


def cause_style(cause: str) -> str:
    """Returns red for what counts against us, and for what cannot be said."""
    return "bold red" if cause in ("unexplained", "nondeterministic") else "cyan"


# Summations that are written out for a side.
MOST_OF_SIDE = 5


def verdict_lines(verdict: Mapping[str, Any]) -> Iterator[Text]:
    """Yields whether it is rounding or a bug, from ``Verdict.to_json``."""
    style = {"rounding": "bold green", "equal": "bold green", "bug": "bold red"}
    yield Text(verdict["says"], style.get(verdict["verdict"], "bold yellow"))
    counts = ", ".join(f"{count:,} {name}" for name, count in verdict["classes"].items())
    yield Text("; ".join(filter(None, (counts, verdict["numbers"], verdict["threads"]))))
    if verdict["port"]:
        yield Text(f"on the right this reads what the left side reads:\n{verdict['port']}", "cyan")


def explanation(
    comparison: Comparison, evidence: Evidence | None, verdict: Verdict
) -> RenderableType:
    """Returns everything ``probe explain`` says of two runs."""
    left, right = comparison.words(comparison.left), comparison.words(comparison.right)
    text = Text(f"{comparison.shared.label}\n left: {left}\nright: {right}")
    parts: list[RenderableType] = []
    if len(comparison.differing):
        parts += verdict_lines(verdict.to_json())
    parts += [explanation_headline(comparison), text]
    if comparison.causes:
        parts += ["", causes_table(comparison.causes)]
    if comparison.accuracy is not None and (words := comparison.accuracy.words):
        parts += ["", Text(words)]
    if comparison.compared and comparison.sets:
        parts.append(Text(f"orders: {sets_text(comparison.sets)}"))
    for name, side in (("left", comparison.left), ("right", comparison.right)):
        if side.refusal:
            parts.append(Text(f"{name}: {side.refusal}: {side.evidence}", "red"))
        elif side.evidence:
            parts.append(Text(f"{name}: {side.evidence}", "yellow"))
    if comparison.sampled:
        parts.append(Text(comparison.sampled, "yellow"))
    for name, side in (("left", comparison.left), ("right", comparison.right)):
        summations = comparison.orders(side)
        if side.orders is None or not summations:
            continue
        parts.append(Text(f"\n{name} adds", "bold"))
        known = {(s.tree.id, *sorted(s.rounding.fused)): s for s in side.orders.summations}
        for entry in summations[:MOST_OF_SIDE]:
            line = Text(f"  {counted(entry['outputs'], 'output')} as ", "default")
            parts.append(line.append(f"order {entry['id']}", "cyan"))
            added = known[entry["id"], *entry["fused"]]
            parts.append(summation(added, side.case.dtype, drawn=False, indent=4))
        if len(summations) > MOST_OF_SIDE:
            rest = sum(entry["outputs"] for entry in summations[MOST_OF_SIDE:])
            more = f"  {rest:,} outputs in {len(summations) - MOST_OF_SIDE} more summations"
            parts.append(Text(f"{more}; --json has all", "dim"))
    parts += [""] * bool(comparison.kernels)
    # evidence beside the causes, never a cause
    for name, sources in comparison.kernels.items():
        for source, names in sources.items():
            parts.append(Text(f"{name} kernels, {source}: {', '.join(names)}", "dim"))
    if evidence is not None:
        parts += ["", *example_in_full(evidence)]
    return Group(*parts)


def explanation_headline(comparison: Comparison) -> Text:
    """Returns ``2 of 3 outputs differ, up to 2 ulp: order; replayed 3 of 3``."""
    compared, differing = comparison.compared, len(comparison.differing)
    text = Text(style="bold")
    if not compared:
        return text.append("no two outputs must agree: all windows differ", "yellow")
    if differing:
        text.append(differ(differing, compared, comparison.max_ulp), "red")
        text.append(f": {', '.join(comparison.causes)}")
    else:
        text.append(f"none of {counted(compared, 'output')} differs", "green")
        if comparison.by_order:
            why = "are added in a different order or rounding: they differ with different operands"
            text.append(f", but {comparison.by_order:,} {why}", "yellow")
    if comparison.signed_zero and comparison.zeros == "equal":
        why = "are zeros of different signs: --zeros differ counts them"
        text.append(f" ({comparison.signed_zero:,} {why})")
    style = "green" if comparison.replayed == compared else "yellow"
    text.append("; ").append(f"replayed {comparison.replayed:,} of {compared:,}", style)
    words = comparison.rounding.words
    return text.append("; ").append(words, "bold red") if words else text


# Partial sums up to which all are written out; else those around where the sides part.
SUMS = 20


def example_in_full(evidence: Evidence) -> Iterator[RenderableType]:
    """Yields the output's two sides."""
    left, right = evidence.left, evidence.right
    far = "" if evidence.ulp is None else f", {abs(evidence.ulp):,} ulp"
    head = Text("the smallest sum in full: ", "bold")
    head.append(
        f"{output_name(left.output)}={floats.bits_text(left.library, left.dtype)}, against "
        f"{'' if left.output == right.output else output_name(right.output) + '='}"
        f"{floats.bits_text(right.library, right.dtype)}{far}: "
    )
    yield head.append(evidence.cause, cause_style(evidence.cause))
    added = any(side.summation is not None or side.pooled for side in (left, right))
    if added and 0 < len(left.products) <= DRAWN_LEAVES and evidence.cause != "window":
        rows = table("product", "input", "weight")
        for product in left.products:
            values = (floats.bits_text(bits, left.dtype) for bits in (product.x, product.w))
            rows.add_row(leaf_name(product.leaf), *values)
        if left.bias is not None:
            rows.add_row("b", "", floats.bits_text(left.bias, left.dtype))
        yield rows
    reads = evidence.cause == "window"
    yield _side_in_full("left", left, reads)
    yield _side_in_full("right", right, reads)


def _side_in_full(name: str, side: Added, reads: bool) -> RenderableType:
    lines: list[RenderableType] = [Text(f"\n{name}", "bold")]
    if reads and side.reads is not None:
        lines.append(Text(f"reads {reads_of_output(side.side.case, np.array(side.reads))}"))
    if side.summation is None:
        order = Text(side.pooled) if side.pooled else Text("order not known", "yellow")
        return Group(*lines, order, _result_line(side))
    tree, rounding = side.summation
    if 2 <= len(tree.leaves) <= DRAWN_LEAVES:
        lines += [Text(line) for line in drawing(tree, rounding.fused)]
    else:
        rounded = rounding_in_words(side.summation, side.dtype)
        lines += [Text(short_formula(tree)), Text(rounded, "dim")]
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
            lines.append(Text(f"  ... {partial.node - before - 1} sums", "dim"))
        before = partial.node
        own = partial.node in side.own
        text = Text("> " if own else "  ", "yellow" if own else "dim")
        text.append(partial.text, "yellow" if own else "default")
        here = {"order": partial.node == side.parts_at, "bits": partial.node == side.bits_part}
        if marks := [what for what, is_here in here.items() if is_here]:
            text.append(f"  ← {', '.join(marks)}", "bold")
        lines.append(text)
    lines.append(_result_line(side))
    if side.own:
        lines.append(Text("> only on this side; ← where the sides begin to differ", "dim"))
    if rounding.fused:
        lines.append(Text("* fused: the product is added without being rounded first", "dim"))
    return Group(*lines)


def _result_line(side: Added) -> Text:
    library = floats.bits_text(side.library, side.dtype)
    if side.reached:
        return Text(f"+ {side.reached} = {library} = the library's bits", "green")
    if side.result is None:
        return Text(f"library: {library}")
    if side.result == side.library:
        return Text(f"{library} = the library's bits", "green")
    replayed = floats.bits_text(side.result, side.dtype)
    return Text(f"replayed {replayed}, library {library}", "bold red")


def store_causes(report: Mapping[str, Any]) -> RenderableType:
    """Returns what ``probe explain --from STORE`` found."""
    head = Text(f"{report['differing']:,} differing outputs in {report['store']}; ", "bold")
    style = "green" if report["replayed"] == report["differing"] else "red"
    head.append(f"replayed {report['replayed']:,}", style)
    lines: list[RenderableType] = [head]
    if before := report["comparisons_explained_before"]:
        lines.append(Text(f"{before:,} comparisons were explained before", "dim"))
    if report["causes"]:
        names = list(report["causes"])
        rows = table("target", *names, right=names)
        for target, causes in report["targets"].items():
            rows.add_row(target, *(f"{causes.get(name, 0):,}" for name in names))
        lines += ["", causes_table(report["causes"]), "", rows]
    failures = report["failures"]
    lines += [Text(failure, "yellow") for failure in failures[:3]]
    if len(failures) > 3:
        rest = f"{len(failures) - 3} other failures; --json has all"
        lines.append(Text(rest, "yellow"))
    if report["interrupted"]:
        lines.append(Text("interrupted; run the same command again to continue", "yellow"))
    return Group(*lines)


ENDED = {
    "minimal": "minimal",
    "budget": "the limit of tries is reached; --most N raises it",
    "interrupted": "interrupted; this is the smallest case so far",
}


def shrunk(report: Mapping[str, Any], start: str) -> RenderableType:
    """Returns the smallest case, from where, in how many tries."""
    tried = f"{report['calls']} reductions tried, {report['runs']} runs"
    counts = ", ".join(f"{n} in {name}" for name, n in report["case"]["not_zero"].items())
    lines = [f"from {start}", f"{tried}; {ENDED[report['ended']]}", f"nonzero operands: {counts}"]
    if report["near"]:
        lines.append(f"nearest case that agrees: {report['near']['case']}")
    parts: list[RenderableType] = [Text(report["label"], style="bold"), *map(Text, lines)]
    parts += [*_what_is_kept(report), _difference(report)]
    parts += [causes_table(report["causes"])] if report["causes"] else []
    if not report["shown"]:
        parts.append(Text("no operands were found for which the bits differ", "yellow"))
    for name, value in (report["operands"] or {}).items():
        # infinities and NaN, which JSON lacks, are texts there: float reads them
        numbers = np.array(value, float).ravel().tolist()
        if len(numbers) <= 32:
            parts.append(Text(f"{name} = {', '.join(f'{number:.9g}' for number in numbers)}"))
    return Group(*parts)


def _what_is_kept(report: Mapping[str, Any]) -> list[Text]:
    """Returns what the finding did before it was reduced, and what of it is not kept."""
    before, keeps = report["before"], report["kept"]
    if before is None or keeps is None:
        return []
    counts = ", ".join(f"{number:,} by {name}" for name, number in before["causes"].items())
    outputs = f"{before['differing']:,} of {counted(before['compared'], 'output')} that differ"
    lines = [Text(f"before: {outputs}{up_to(before['max_ulp'])}: {counts}")]
    if keeps["cause"] is False:
        lines.append(Text("the reduced case has a different cause", "yellow"))
    return lines


def _difference(report: Mapping[str, Any]) -> Text:
    return Text(differ(report["differing"], report["compared"], report["max_ulp"]), "red")


def reproduction(report: Mapping[str, Any]) -> RenderableType:
    from probe.report.report import LIMIT

    head = Text()
    if part := report["case"].get("part"):
        head.append(f"{part}\n", "yellow")
    head.append(report["label"], "bold")
    parts: list[RenderableType] = [*verdict_lines(report["bug_or_rounding"]), head]
    parts += [*_what_is_kept(report), _difference(report)]
    parts.append(causes_table(report["causes"]))
    if report["calls"] is not None:
        parts.append(Text(f"{report['calls']} reductions tried; {ENDED[report['ended']]}"))
    if report["near"]:
        parts.append(Text(f"nearest case that agrees: {report['near']['case']}"))
    runs = report["elsewhere"]
    parts += [Text(f"{run['target']} {run['version']}: {run['said']}") for run in runs]
    if report["not_emulated"]:
        parts.append(Text(f"emulated.py was not written: {report['not_emulated']}", "yellow"))
    parts += [Text(f"this avoids the difference: {way}") for way in report["avoids"]]
    if report["short"]:
        printed = "\n".join(said for _, said in report["short"]["ways"])
        parts += [Text(report["short"]["text"].rstrip()), Text(printed, "red")]
    attached = [name for name in report["files"] if name != "report.md"]
    size = f"{report['sizes']['report.md']:,} of the {LIMIT:,} characters that GitHub takes"
    parts.append(Text(f"{report['out']}: report.md, {size}", "green"))
    parts.append(Text(f"to attach: {', '.join(attached)}", "green"))
    return Group(*parts)


def verified(report: Mapping[str, Any]) -> RenderableType:
    style = {"still there": "red", "gone": "green"}.get(report["verdict"], "yellow")
    parts = [Text(f"{report['verdict']}: {report['why']}", style)]
    if report["same_bits"] is False:
        parts.append(Text("with bits that differ from those that were reported"))
    if report["interpreter"] == "own":
        targets = " and ".join(dict.fromkeys(report["targets"]))
        parts.append(Text(f"{targets} is not installed here: this Python ran the script", "yellow"))
    return Group(*parts)


def emulated_file(report: Mapping[str, Any]) -> RenderableType:
    outputs = sum(run["outputs"] for run in report["runs"])
    head = Text(f"wrote {report['out']}: {report['bytes'] / 1024:,.0f} KiB, ")
    head.append(f"{report['replayed']:,} of {outputs:,} outputs replay", "green")
    return Group(head, Text(f"run it anywhere with NumPy: python {report['out']}"))
