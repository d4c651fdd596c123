"""One differing output in full: both trees, where they part, the partial sums, the bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from probe import floats
from probe.cli.show import causes, orders, places, trees, windows
from probe.cli.show.facts import table
from probe.explain.evidence import Added, Evidence
from probe.order.replay import PartialSum
from probe.order.tree import product

WIDE = 100
"""Columns from which the two sides stand side by side."""

SUMS = 20
"""Partial sums up to which all are written out; else those around where the sides part."""


def example(found: Evidence, width: int) -> Iterator[RenderableType]:
    """The output's two sides. ``width``: columns of the terminal."""
    left, right = found.left, found.right
    far = "" if found.ulp is None else f", {abs(found.ulp):,} ulp"
    head = Text("the smallest one in full: ", "bold")
    head.append(
        f"{places.name(left.output)}={floats.text(left.library, left.dtype)}, against "
        f"{'' if left.output == right.output else places.name(right.output) + '='}"
        f"{floats.text(right.library, right.dtype)}{far}: "
    )
    yield head.append(found.cause, causes.style(found.cause))
    added = left.summation is not None or right.summation is not None
    if added and 0 < len(left.products) <= trees.DRAWN and found.cause != "window":
        yield _products(left)
    reads = found.cause == "window"
    sides = [_side("left", left, reads), _side("right", right, reads)]
    if width >= WIDE:
        both = Table.grid(padding=(0, 3))
        both.add_row(*sides)
        yield both
    else:
        yield from sides


def _products(side: Added) -> RenderableType:
    rows = table("product", "input", "weight")
    for one in side.products:
        values = (floats.text(bits, side.dtype) for bits in (one.x, one.w))
        rows.add_row(product(one.leaf), *values)
    if side.bias is not None:
        rows.add_row("b", "", floats.text(side.bias, side.dtype))
    return rows


def _side(name: str, side: Added, reads: bool) -> RenderableType:
    lines: list[RenderableType] = [
        Text(f"\n{name}: {side.side.target.text}, length {side.side.case.length}", "bold")
    ]
    if reads and side.reads is not None:
        lines.append(Text(f"reads {windows.reads(side.side.case, np.array(side.reads))}"))
    if side.summation is None:
        return Group(*lines, Text("order not known", "yellow"), _result(side))
    tree, rounding = side.summation
    if 2 <= len(tree.leaves) <= trees.DRAWN:
        lines += [Text(line) for line in trees.drawing(tree, rounding.fused)]
    else:
        lines += [Text(trees.short(tree)), Text(orders.rounded(side.summation, side.dtype), "dim")]
    return Group(*lines, *_sums(side), _result(side), *_notes(side))


def _sums(side: Added) -> Iterator[Text]:
    """Partial sums; ``>`` marks those that the other side does not have."""
    shown = _shown(side)
    before = -1
    for one in side.sums:
        if one.node not in shown:
            continue
        if one.node != before + 1:
            yield Text(f"  ... {one.node - before - 1} sums", "dim")
        before = one.node
        yield _sum(side, one)


def _shown(side: Added) -> set[int]:
    """All nodes of a small tree, else those around where the sides part, and the last."""
    count = len(side.sums)
    if count <= SUMS:
        return set(range(count))
    nodes = {0, 1, *range(count - 3, count)}
    for place in (side.parts_at, side.bits_part):
        if place is not None:
            nodes.update(range(place - 2, place + 4))
    return {node for node in nodes if 0 <= node < count}


def _sum(side: Added, one: PartialSum) -> Text:
    own = one.node in side.own
    text = Text("> " if own else "  ", "yellow" if own else "dim")
    text.append(one.text, "yellow" if own else "default")
    here = {"order": one.node == side.parts_at, "bits": one.node == side.bits_part}
    if marks := [what for what, is_here in here.items() if is_here]:
        text.append(f"  ← {', '.join(marks)}", "bold")
    return text


def _notes(side: Added) -> Iterator[Text]:
    """What the marks beside the sums mean."""
    if side.own:
        yield Text("> only on this side; ← where they part", "dim")
    if side.summation is not None and side.summation.rounding.fused:
        yield Text("* fused: its exact product is added", "dim")


def _result(side: Added) -> Text:
    library = floats.text(side.library, side.dtype)
    if side.result is None:
        return Text(f"library: {library}")
    if side.result == side.library:
        return Text(f"{library} = the library's bits", "green")
    return Text(f"replayed {floats.text(side.result, side.dtype)}, library {library}", "bold red")
