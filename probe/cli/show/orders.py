"""Orders and roundings: which outputs are added how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from probe.cli.show import places
from probe.comparison import Run
from probe.order import notation
from probe.order.orders import Way
from probe.order.tree import BIAS
from probe.printing import counted, ranges

MOST, DRAWN = 8, 3
"""Ways of adding that are written out, and that are drawn too."""


def order(side: Run, found: Mapping[str, Any]) -> RenderableType:
    """Every way of adding with its outputs. ``found``: what ``--json`` prints."""
    return Group(
        Text(f"{side.case.label} on {side.target.text}", "bold"),
        _headline(side, found),
        *_ways(side),
        *_unknown(side),
    )


def _headline(side: Run, found: Mapping[str, Any]) -> Text:
    if side.orders is None:
        return Text(f"{side.refusal}: {side.evidence}", "magenta")
    total, replayed = found["outputs"], found["replayed"]
    ways = len(side.orders.ways)
    outputs, adding = counted(total, "output"), counted(ways, "way")
    text = Text(f"{outputs} of {_summands(side)}, {adding} of adding; ")
    text.append(f"replayed {replayed:,} of {total:,}", "green" if replayed == total else "red")
    return text.append(
        f" ({found['calls']} calls and {found['checks']} checks, {found['seconds']:.2f} s)", "dim"
    )


def _summands(side: Run) -> str:
    bias = "" if side.case.bias is None else " and the bias"
    return f"{counted(side.case.summands, 'product')}{bias}"


def _ways(side: Run) -> Iterator[RenderableType]:
    if side.orders is None:
        return
    counts = side.orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])
    for rank, number in enumerate(ranked[:MOST]):
        mask = (side.orders.index == number).reshape(side.orders.shape)
        head = Text(f"\norder {side.orders.ways[number][0].id}", "bold cyan")
        head.append(
            f"  {counted(counts[number], 'output')}: {places.outputs(mask)}",
            "not bold default",
        )
        yield head
        yield Padding(
            way(side.orders.ways[number], side.case.dtype, rank < DRAWN), (0, 0, 0, 2), expand=False
        )
    if len(ranked) > MOST:
        rest = sum(int(counts[number]) for number in ranked[MOST:])
        more = f"\nand {len(ranked) - MOST} more ways for {rest:,} outputs; --json has all"
        yield Text(more, "dim")


def _unknown(side: Run) -> Iterator[RenderableType]:
    """Outputs without a way of adding, and why."""
    if side.orders is None:
        return
    orders = side.orders
    nothing = (orders.index < 0) & orders.replayed
    if nothing.any():
        where = places.outputs(nothing.reshape(orders.shape))
        yield Text(f"\n{int(nothing.sum()):,} outputs read padding only and are 0: {where}")
    rest = (orders.index < 0) & ~orders.replayed
    if rest.any():
        where = places.outputs(rest.reshape(orders.shape))
        kind = "not a sum of their products" if orders.not_a_sum.any() else "not known"
        yield Text(f"\n{int(rest.sum()):,} outputs are {kind}: {where}\n  {orders.evidence}", "red")


def way(found: Way, dtype: str, drawn: bool = True) -> RenderableType:
    """One way of adding: a name if it has one, the sum, the drawing if it is small, rounding."""
    tree, rounding = found
    name = notation.named(tree)
    sum_of = Text(notation.short(tree))
    sum_of.append(f"   {name}" if name else "", "dim")
    lines: list[RenderableType] = [sum_of, Text(rounded(found, dtype))]
    if drawn and 2 < len(tree.leaves) <= notation.DRAWN:
        lines += [Text(line) for line in notation.drawing(tree, rounding.fused)]
    return Group(*lines)


def rounded(found: Way, dtype: str) -> str:
    """In words where a way of adding rounds."""
    tree, rounding = found
    style = rounding.style(tree)
    fused = sorted(leaf for leaf in rounding.fused if leaf != BIAS)
    words = {
        "none": "every product rounded, then added (no FMA)",
        "all": "every product fused into its addition (FMA)",
        "some": f"fused (FMA): products {ranges(fused)}; the others rounded first",
    }[style]
    if not tree.nodes:
        words = "one product, added to nothing, rounded once"
    if rounding.products:
        words += f"; operands cut to {rounding.products}"
    if tree.nodes and rounding.nodes not in (None, dtype):
        words += f"; partial sums in {rounding.nodes}"
    if rounding.through:
        words += f"; every sum rounded to {rounding.through} first, then to {dtype}"
    if rounding.cut:
        which = "the result" if len(tree.nodes) - 1 in rounding.cut else "the sum of products"
        words += f"; {which} cut to {dtype} (rounded toward zero)"
    return words
