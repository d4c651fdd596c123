"""Why two runs differ: one sentence, the causes, both sides' orders, one output in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.cli import numbers
from probe.cli.show import causes, orders
from probe.cli.show.example import example
from probe.comparison import Comparison, Run
from probe.explain.evidence import Evidence
from probe.order.summation import Summation

MOST = 5
"""Summations that are written out for a side."""


def explanation(found: Comparison, evidence: Evidence | None, width: int) -> RenderableType:
    """Everything ``probe explain`` says of two runs."""
    parts: list[RenderableType] = [headline(found), _sides(found)]
    if found.causes:
        parts += ["", causes.counted(found.causes)]
    parts += list(_refusals(found))
    for name, side in (("left", found.left), ("right", found.right)):
        parts += _orders(name, side, found.orders(side))
    parts += list(_kernels(found.kernels))
    if evidence is not None:
        parts += ["", *example(evidence, width)]
    return Group(*parts)


def headline(found: Comparison) -> Text:
    """``2 of 3 outputs differ, up to 2 ulp: order; replayed 3 of 3``."""
    compared, differing = found.compared, len(found.differing)
    text = Text(style="bold")
    if not compared:
        return text.append("no output of the two sides must agree: all windows differ", "yellow")
    if differing:
        far = "" if found.max_ulp is None else f", up to {found.max_ulp:,} ulp"
        verb = "differs" if differing == 1 else "differ"
        outputs = numbers.counted(compared, "output")
        text.append(f"{differing:,} of {outputs} {verb}{far}", "red")
        text.append(f": {', '.join(found.causes)}")
    else:
        text.append(f"none of {numbers.counted(compared, 'output')} differs", "green")
        if found.by_order:
            text.append(
                f", but {found.by_order:,} are added in another way: other operands will differ",
                "yellow",
            )
    style = "green" if found.replayed == compared else "yellow"
    return text.append("; ").append(f"replayed {found.replayed:,} of {compared:,}", style)


def _sides(found: Comparison) -> Text:
    """Both targets, with the length, and whatever else sets the sides apart."""
    sides = found.left, found.right
    told = [
        {
            "length": str(side.case.length),
            "batch": str(side.case.batch),
            "filters": str(side.case.filters),
            "padding": side.case.padding_text,
            "calls": "1" if side.case.split is None else "2, added",
        }
        for side in sides
    ]
    shown = [
        "length",
        *(key for key in told[0] if key != "length" and told[0][key] != told[1][key]),
    ]
    text = Text(found.left.case.with_(length=None).label)
    for name, side, words in zip((" left", "right"), sides, told, strict=True):
        text.append(f"\n{name}: {side.target.text}, {', '.join(f'{k} {words[k]}' for k in shown)}")
    return text


def _refusals(found: Comparison) -> Iterator[RenderableType]:
    for name, side in (("left", found.left), ("right", found.right)):
        if side.refusal:
            yield Text(f"{name}: {side.refusal}: {side.evidence}", "red")
        elif side.evidence:
            yield Text(f"{name}: {side.evidence}", "yellow")


def _orders(name: str, side: Run, told: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """How the compared outputs of one side are added."""
    if side.orders is None or not told:
        return
    yield Text(f"\n{name} adds", "bold")
    known: dict[tuple[str, tuple[int, ...]], Summation] = {
        (each.tree.id, tuple(sorted(each.rounding.fused))): each for each in side.orders.summations
    }
    for one in told[:MOST]:
        summation = known[one["id"], tuple(one["fused"])]
        count = Text(f"  {numbers.counted(one['outputs'], 'output')} as ", "default")
        count.append(f"order {one['id']}", "cyan")
        yield count
        yield orders.summation(summation, side.case.dtype, drawn=False, indent=4)
    if len(told) > MOST:
        rest = sum(one["outputs"] for one in told[MOST:])
        yield Text(
            f"  {rest:,} outputs in {len(told) - MOST} more summations; --json has all", "dim"
        )


def _kernels(kernels: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[RenderableType]:
    """What the libraries say they ran: evidence beside the causes."""
    if kernels:
        yield Text("")
    for side, sources in kernels.items():
        for source, names in sources.items():
            yield Text(f"{side} kernels, {source}: {', '.join(names)}", "dim")
