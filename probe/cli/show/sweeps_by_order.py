"""Shows where a sweep by order found other orders or roundings, and which there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe import window
from probe.cli.show import orders
from probe.cli.show.sweeps import values_of_axis
from probe.printing import ranges, table
from probe.summation import certificate
from probe.switch_points.by_order import ByOrder

MOST = 6
"""Summations that are written out for a target."""


def shown(
    found: Mapping[str, ByOrder], told: Mapping[str, Any], values: Sequence[int]
) -> RenderableType:
    """Returns a row for each target, then every summation with the lengths that have it."""
    parts: list[RenderableType] = [
        _orders_title(found, values),
        "",
        _orders_targets(found, told["failures"]),
    ]
    parts += [
        Text(f"\n{one['target']}: {one['kind']}: {one['message']}", "yellow")
        for one in told["failures"]
    ]
    for target, one in found.items():
        sure = Text(f"\n{target}: {certificate.words(one.uncertified)}")
        sure.stylize("yellow" if one.uncertified else "green")
        parts += [sure, *_refusals(target, one)]
        parts += [*_reached(target, one), *_summations(target, one)]
    if told["store"]:
        parts.append(Text(f"\nstored in {told['store']}"))
    return Group(*parts)


def _orders_title(found: Mapping[str, ByOrder], values: Sequence[int]) -> Text:
    vary, label = "length", ""
    for one in found.values():
        vary, label = one.vary, one.case.label
    values_shown, against = (
        values_of_axis(vary, values[:-1]),
        window.shown_axis_value(vary, values[-1]),
    )
    return Text(
        f"{label}\n{vary} {values_shown} against {against}, by order, for all finite operands"
    )


def _orders_targets(
    found: Mapping[str, ByOrder], failures: Sequence[Mapping[str, str]]
) -> RenderableType:
    numeric = ("outputs", "compared", "not known")
    rows = table("target", "verdict", "where", "by", *numeric, right=numeric)
    for target, one in found.items():
        differing = [at.at for at in one.values if at.outputs]
        causes: Counter[str] = sum((at.causes for at in one.values), Counter())
        rows.add_row(
            target,
            _orders_verdict(one),
            f"{one.vary} {values_of_axis(one.vary, differing)}" if differing else "",
            ", ".join(sorted(causes)),
            f"{one.differing:,}",
            f"{one.compared:,}",
            f"{sum(at.unknown for at in one.values):,}",
        )
    for failure in failures:
        rows.add_row(failure["target"], Text("failed", "yellow"))
    return rows


def _orders_verdict(one: ByOrder) -> Text:
    if one.differing:
        return Text("differs", "bold red")
    if any(at.refusal for at in (one.base, *one.values)):
        return Text("not revealed", "magenta")
    if any(at.unknown for at in one.values):
        return Text("not known", "yellow")
    return Text("one order", "green")


def _refusals(target: str, one: ByOrder) -> Iterator[Text]:
    """Yields why some values have no orders, equal reasons once."""
    reasons: dict[str, list[int]] = {}
    for at in (*one.values, one.base):
        if at.refusal:
            reasons.setdefault(at.refusal, []).append(at.at)
    for why, values in reasons.items():
        yield Text(f"\n{target}: {one.vary} {values_of_axis(one.vary, values)}: {why}", "yellow")


def _reached(target: str, one: ByOrder) -> Iterator[Text]:
    """Yields into how many outputs infinities and NaN get from elsewhere."""
    found = {at.at: at.reached for at in (*one.values, one.base) if at.reached}
    if found:
        most = max(found.values())
        text = f"\n{target}: {one.vary} {ranges(sorted(found))}: infinities and NaN get into up to "
        text += f"{most:,} outputs that have no weight for them; `probe window` names the inputs"
        yield Text(text, "yellow")


def _summations(target: str, one: ByOrder) -> Iterator[RenderableType]:
    """Yields the summations, those of the largest value first."""
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
        yield head.append(f"  {one.vary} {values_of_axis(one.vary, where[number])}", "default")
        yield orders.summation(each, one.case.dtype, number < 2)
    if len(one.summations) > MOST:
        more = f"and {len(one.summations) - MOST} more summations; --json has all"
        yield Text(more, "dim")
