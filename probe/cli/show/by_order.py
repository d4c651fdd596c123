"""What a sweep by order found: at which lengths outputs are added otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.cli.show import orders
from probe.printing import ranges, table
from probe.thresholds.by_order import ByOrder

MOST = 6
"""Summations that are written out for a target."""


def summary(
    found: Mapping[str, ByOrder], told: Mapping[str, Any], values: Sequence[int]
) -> RenderableType:
    """A row a target; then every summation, with the lengths that have it."""
    parts: list[RenderableType] = [_title(found, values), "", _targets(found, told["failures"])]
    parts += [
        Text(f"\n{one['target']}: {one['kind']}: {one['message']}", "yellow")
        for one in told["failures"]
    ]
    for target, one in found.items():
        parts += [*_refusals(target, one), *_summations(target, one)]
    if told["store"]:
        parts.append(Text(f"\nstored in {told['store']}"))
    return Group(*parts)


def _title(found: Mapping[str, ByOrder], values: Sequence[int]) -> Text:
    vary, label = "length", ""
    for one in found.values():
        vary, label = one.vary, one.case.label
    shown = ranges(sorted(values)[:-1])
    return Text(f"{label}\n{vary} {shown} against {max(values)}, by order, whatever the operands")


def _targets(found: Mapping[str, ByOrder], failures: Sequence[Mapping[str, str]]) -> RenderableType:
    numeric = ("outputs", "compared", "not known")
    rows = table("target", "verdict", "where", "by", *numeric, right=numeric)
    for target, one in found.items():
        differing = [at.at for at in one.values if at.outputs]
        causes: Counter[str] = sum((at.causes for at in one.values), Counter())
        rows.add_row(
            target,
            _verdict(one),
            f"{one.vary} {ranges(differing)}" if differing else "",
            ", ".join(sorted(causes)),
            f"{one.differing:,}",
            f"{one.compared:,}",
            f"{sum(at.unknown for at in one.values):,}",
        )
    for failure in failures:
        rows.add_row(failure["target"], Text("failed", "yellow"))
    return rows


def _verdict(one: ByOrder) -> Text:
    if one.differing:
        return Text("differs", "bold red")
    if any(at.refusal for at in (one.base, *one.values)):
        return Text("not revealed", "magenta")
    if any(at.unknown for at in one.values):
        return Text("not known", "yellow")
    return Text("one order", "green")


def _refusals(target: str, one: ByOrder) -> Iterator[Text]:
    """Why some values have no orders, equal reasons once."""
    reasons: dict[str, list[int]] = {}
    for at in (*one.values, one.base):
        if at.refusal:
            reasons.setdefault(at.refusal, []).append(at.at)
    for why, values in reasons.items():
        yield Text(f"\n{target}: {one.vary} {ranges(values)}: {why}", "yellow")


def _summations(target: str, one: ByOrder) -> Iterator[RenderableType]:
    """The summations, those of the largest value first."""
    if not one.differing:
        return
    yield Text(f"\n{target}", "bold")
    every = [*one.values, one.base]
    where = {
        number: [at.at for at in every if at.orders and each in at.orders.summations]
        for number, each in enumerate(one.summations)
    }
    for number, each in list(enumerate(one.summations))[:MOST]:
        head = Text(f"order {each.tree.id}", "cyan")
        yield head.append(f"  {one.vary} {ranges(where[number])}", "default")
        yield orders.summation(each, one.case.dtype, number < 2)
    if len(one.summations) > MOST:
        more = f"and {len(one.summations) - MOST} more summations; --json has all"
        yield Text(more, "dim")
