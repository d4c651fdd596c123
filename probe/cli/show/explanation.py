"""Shows why two runs differ: one sentence, the causes, both orders, one output in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from probe import floats
from probe.cli.show import orders
from probe.comparison import CaseRun, Comparison
from probe.explaining.evidence import Added, Evidence
from probe.layout import CONTIGUOUS
from probe.printing import counted, differ, next_commands, table
from probe.summation import certificate
from probe.summation.summation import Summation
from probe.summation.tree import DRAWN_LEAVES, drawing, leaf_name, short_formula

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
    """Returns a table with a row for each cause."""
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
MOST = 5


def explanation(
    found: Comparison,
    evidence: Evidence | None,
    width: int,
    after: Sequence[tuple[str, str]] = (),
) -> RenderableType:
    """Returns everything ``probe explain`` says of two runs; ``after``: commands, what they do."""
    sides = found.left, found.right
    case = found.left.case
    if case.layout != found.right.case.layout:
        case = case.with_(layout=CONTIGUOUS)
    text = Text(case.with_(length=None).label)
    for name, side in zip((" left", "right"), sides, strict=True):
        text.append(f"\n{name}: {side.target.text}, {', '.join(_what_sets_apart(side, *sides))}")
    parts: list[RenderableType] = [explanation_headline(found), text]
    if found.causes:
        parts += ["", causes_table(found.causes)]
    if found.accuracy is not None and (words := found.accuracy.words):
        parts += ["", Text(words)]
    known = [side.orders for side in sides if side.orders is not None]
    if found.compared and any(orders.certified is not None for orders in known):  # it was asked for
        count = int((~found.certified()).sum())
        why = next(filter(None, (orders.uncertified for orders in known)), "")
        doubts = f"{count:,} of {found.compared:,} outputs" + f" ({why})" * bool(why)
        sure = certificate.words(doubts * bool(count))
        parts.append(Text(sure, "yellow" if count else "green"))
    for name, side in (("left", found.left), ("right", found.right)):
        if side.refusal:
            parts.append(Text(f"{name}: {side.refusal}: {side.evidence}", "red"))
        elif side.evidence:
            parts.append(Text(f"{name}: {side.evidence}", "yellow"))
    for name, side in (("left", found.left), ("right", found.right)):
        parts += _orders_of_side(name, side, found.orders(side))
    parts += [""] * bool(found.kernels)
    for name, sources in found.kernels.items():  # evidence beside the causes, never a cause
        for source, names in sources.items():
            parts.append(Text(f"{name} kernels, {source}: {', '.join(names)}", "dim"))
    if evidence is not None:
        parts += ["", *example_in_full(evidence, width)]
    parts += next_commands(after)
    return Group(*parts)


def explanation_headline(found: Comparison) -> Text:
    """Returns ``2 of 3 outputs differ, up to 2 ulp: order; replayed 3 of 3``."""
    compared, differing = found.compared, len(found.differing)
    text = Text(style="bold")
    if not compared:
        return text.append("no two outputs must agree: all windows differ", "yellow")
    if differing:
        text.append(differ(differing, compared, found.max_ulp), "red")
        text.append(f": {', '.join(found.causes)}")
    else:
        text.append(f"none of {counted(compared, 'output')} differs", "green")
        if found.by_order:
            text.append(
                f", but {found.by_order:,} are added in a different order or rounding: they differ "
                "with different operands",
                "yellow",
            )
    if found.signed_zero and found.zeros == "equal":
        text.append(
            f" ({found.signed_zero:,} are zeros of different signs: --zeros differ counts them)"
        )
    style = "green" if found.replayed == compared else "yellow"
    text.append("; ").append(f"replayed {found.replayed:,} of {compared:,}", style)
    words = found.rounding.words
    return text.append("; ").append(words, "bold red") if words else text


def _what_sets_apart(side: CaseRun, left: CaseRun, right: CaseRun) -> list[str]:
    """Returns a side's length (of an operation without one its batch), and what sets it apart."""
    told, *both = (
        {
            "length": str(case.length),
            "batch": str(case.batch),
            "filters": str(case.filters),
            "padding": case.padding_text,
            "calls": "1" if case.split is None else "2, added",
            "layout": case.layout,
        }
        for case in (side.case, left.case, right.case)
    )
    always = "length" if side.case.spatial_rank else "batch"
    apart = [key for key in told if key != always and both[0][key] != both[1][key]]
    return [f"{key} {told[key]}" for key in (always, *apart)]


def _orders_of_side(
    name: str, side: CaseRun, told: Sequence[Mapping[str, Any]]
) -> Iterator[RenderableType]:
    """Yields how the compared outputs of one side are added."""
    if side.orders is None or not told:
        return
    yield Text(f"\n{name} adds", "bold")
    known: dict[tuple[str, tuple[int, ...]], Summation] = {
        (each.tree.id, tuple(sorted(each.rounding.fused))): each for each in side.orders.summations
    }
    for one in told[:MOST]:
        summation = known[one["id"], tuple(one["fused"])]
        count = Text(f"  {counted(one['outputs'], 'output')} as ", "default")
        count.append(f"order {one['id']}", "cyan")
        yield count
        yield orders.summation(summation, side.case.dtype, drawn=False, indent=4)
    if len(told) > MOST:
        rest = sum(one["outputs"] for one in told[MOST:])
        yield Text(
            f"  {rest:,} outputs in {len(told) - MOST} more summations; --json has all", "dim"
        )


# Columns from which the two sides stand side by side.
WIDE = 100

# Partial sums up to which all are written out; else those around where the sides part.
SUMS = 20


def example_in_full(found: Evidence, width: int) -> Iterator[RenderableType]:
    """Yields the output's two sides. ``width``: columns of the terminal."""
    left, right = found.left, found.right
    far = "" if found.ulp is None else f", {abs(found.ulp):,} ulp"
    head = Text("the smallest sum in full: ", "bold")
    head.append(
        f"{orders.output_name(left.output)}={floats.bits_text(left.library, left.dtype)}, against "
        f"{'' if left.output == right.output else orders.output_name(right.output) + '='}"
        f"{floats.bits_text(right.library, right.dtype)}{far}: "
    )
    yield head.append(found.cause, cause_style(found.cause))
    added = any(one.summation is not None or one.pooled for one in (left, right))
    if added and 0 < len(left.products) <= DRAWN_LEAVES and found.cause != "window":
        rows = table("product", "input", "weight")
        for one in left.products:
            values = (floats.bits_text(bits, left.dtype) for bits in (one.x, one.w))
            rows.add_row(leaf_name(one.leaf), *values)
        if left.bias is not None:
            rows.add_row("b", "", floats.bits_text(left.bias, left.dtype))
        yield rows
    reads = found.cause == "window"
    runs = left.side, right.side
    sides = [_side_in_full("left", left, reads, runs), _side_in_full("right", right, reads, runs)]
    # a narrow terminal would fold the sums into each other
    if width >= WIDE:
        both = Table.grid(padding=(0, 3))
        both.add_row(*sides)
        yield both
    else:
        yield from sides


def _side_in_full(
    name: str, side: Added, reads: bool, runs: tuple[CaseRun, CaseRun]
) -> RenderableType:
    sizes = ", ".join(_what_sets_apart(side.side, *runs))
    lines: list[RenderableType] = [Text(f"\n{name}: {side.side.target.text}, {sizes}", "bold")]
    if reads and side.reads is not None:
        lines.append(Text(f"reads {orders.reads_of_output(side.side.case, np.array(side.reads))}"))
    if side.summation is None:
        order = Text(side.pooled) if side.pooled else Text("order not known", "yellow")
        return Group(*lines, order, _result_line(side))
    tree, rounding = side.summation
    if 2 <= len(tree.leaves) <= DRAWN_LEAVES:
        lines += [Text(line) for line in drawing(tree, rounding.fused)]
    else:
        lines += [
            Text(short_formula(tree)),
            Text(orders.rounding_in_words(side.summation, side.dtype), "dim"),
        ]
    lines += [*_partial_sums(side), _result_line(side)]
    if side.own:
        lines.append(Text("> only on this side; ← where the sides begin to differ", "dim"))
    if rounding.fused:
        lines.append(Text("* fused: the product is added without being rounded first", "dim"))
    return Group(*lines)


def _partial_sums(side: Added) -> Iterator[Text]:
    """Yields partial sums; ``>`` marks those that the other side does not have.

    Of a large tree only those around where the sides part, the first ones and the last ones.
    """
    count, before = len(side.sums), -1
    shown = set(range(count))
    if count > SUMS:
        shown = {0, 1, *range(count - 3, count)}
        for place in (side.parts_at, side.bits_part):
            if place is not None:
                shown.update(range(place - 2, place + 4))
    for one in side.sums:
        if one.node not in shown:
            continue
        if one.node != before + 1:
            yield Text(f"  ... {one.node - before - 1} sums", "dim")
        before = one.node
        own = one.node in side.own
        text = Text("> " if own else "  ", "yellow" if own else "dim")
        text.append(one.text, "yellow" if own else "default")
        here = {"order": one.node == side.parts_at, "bits": one.node == side.bits_part}
        if marks := [what for what, is_here in here.items() if is_here]:
            text.append(f"  ← {', '.join(marks)}", "bold")
        yield text


def _result_line(side: Added) -> Text:
    library = floats.bits_text(side.library, side.dtype)
    if side.reached:
        return Text(f"+ {side.reached} = {library} = the library's bits", "green")
    if side.result is None:
        return Text(f"library: {library}")
    if side.result == side.library:
        return Text(f"{library} = the library's bits", "green")
    return Text(
        f"replayed {floats.bits_text(side.result, side.dtype)}, library {library}", "bold red"
    )


def store_causes(found: Mapping[str, Any], verbose: bool = False) -> RenderableType:
    """Returns what ``probe explain --from STORE`` found."""
    head = Text(f"{found['differing']:,} differing outputs in {found['store']}; ", "bold")
    style = "green" if found["replayed"] == found["differing"] else "red"
    head.append(f"replayed {found['replayed']:,}", style)
    lines: list[RenderableType] = [head]
    if before := found["comparisons_explained_before"]:
        lines.append(Text(f"{before:,} comparisons were explained before", "dim"))
    if found["causes"]:
        names = list(found["causes"])
        rows = table("target", *names, right=names)
        for target, causes in found["targets"].items():
            rows.add_row(target, *(f"{causes.get(name, 0):,}" for name in names))
        lines += ["", causes_table(found["causes"]), "", rows]
    failures = found["failures"]
    shown = failures if verbose else failures[:3]
    lines += [Text(failure, "yellow") for failure in shown]
    if len(failures) > len(shown):
        rest = f"{len(failures) - len(shown)} other failures; --verbose shows them"
        lines.append(Text(rest, "yellow"))
    if found["interrupted"]:
        lines.append(Text("interrupted; run the same command again to continue", "yellow"))
    return Group(*lines)
