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
from probe.order.summation import Summation
from probe.printing import counted, ranges

MOST, DRAWN = 8, 3
"""Summations that are written out, and that are drawn too."""


def order(side: Run, found: Mapping[str, Any]) -> RenderableType:
    """Every summation with its outputs. ``found``: what ``--json`` prints."""
    return Group(
        Text(f"{side.case.label} on {side.target.text}", "bold"),
        _headline(side, found),
        *_summations(side),
        *_unknown(side),
    )


def _headline(side: Run, found: Mapping[str, Any]) -> Text:
    if side.orders is None:
        return Text(f"{side.refusal}: {side.evidence}", "magenta")
    total, replayed = found["outputs"], found["replayed"]
    count = len(side.orders.summations)
    outputs, adding = counted(total, "output"), counted(count, "summation")
    text = Text(f"{outputs} of {_summands(side)}, {adding}; ")
    text.append(f"replayed {replayed:,} of {total:,}", "green" if replayed == total else "red")
    return text.append(
        f" ({found['calls']} calls and {found['checks']} checks, {found['seconds']:.2f} s)", "dim"
    )


def _summands(side: Run) -> str:
    bias = "" if side.case.bias is None else " and the bias"
    return f"{counted(side.case.summands, 'product')}{bias}"


def _summations(side: Run) -> Iterator[RenderableType]:
    if side.orders is None:
        return
    counts = side.orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])
    for rank, number in enumerate(ranked[:MOST]):
        mask = (side.orders.index == number).reshape(side.orders.shape)
        found = side.orders.summations[number]
        head = Text(f"\norder {found.tree.id}", "bold cyan")
        head.append(
            f"  {counted(counts[number], 'output')}: {places.outputs(mask)}",
            "not bold default",
        )
        yield head
        yield summation(found, side.case.dtype, rank < DRAWN)
    if len(ranked) > MOST:
        rest = sum(int(counts[number]) for number in ranked[MOST:])
        more = f"\nand {len(ranked) - MOST} more summations for {rest:,} outputs; --json has all"
        yield Text(more, "dim")


def _unknown(side: Run) -> Iterator[RenderableType]:
    """Outputs without a summation, and why."""
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


def summation(found: Summation, dtype: str, drawn: bool = True, indent: int = 2) -> RenderableType:
    """One summation: a name if it has one, the sum, the drawing if it is small, rounding."""
    tree, rounding = found
    name = notation.named(tree)
    sum_of = Text(notation.short(tree))
    sum_of.append(f"   {name}" if name else "", "dim")
    lines: list[RenderableType] = [sum_of, Text(rounded(found, dtype))]
    if drawn and 2 < len(tree.leaves) <= notation.DRAWN:
        lines += [Text(line) for line in notation.drawing(tree, rounding.fused)]
    return Padding(Group(*lines), (0, 0, 0, indent), expand=False)


def rounded(found: Summation, dtype: str) -> str:
    """In words where a summation rounds."""
    return "; ".join(found.text(dtype, ranges))
