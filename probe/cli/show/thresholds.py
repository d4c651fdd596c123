"""Where a target switches kernels: stretches of lengths, tails, and what stands behind it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from probe.cli.show import orders
from probe.printing import counted
from probe.thresholds.recognition import Kind
from probe.thresholds.search import Thresholds, islands

MOST = 20
"""Stretches, and kinds of rows, that are written out."""


def thresholds(found: Thresholds) -> RenderableType:
    """Stretches of lengths that add alike, then their summations, then how it is known."""
    return Group(
        Text(f"{found.case.label} on {found.target}", "bold"),
        _headline(found),
        "",
        *_stretches(found),
        *_kinds(found),
        *_tails(found),
        *_doubts(found),
    )


def _headline(found: Thresholds) -> Text:
    switches = len(found.switches)
    style = "yellow" if switches else "green"
    text = Text(counted(switches, "switch"), style)
    text.append(f" between lengths {found.shortest:,} and {found.upto:,}", "default")
    return text.append(f" ({len(found.patterns)} lengths run, {found.seconds:.1f} s)", "dim")


def _stretches(found: Thresholds) -> Iterator[Text]:
    all_of = list(islands(found))
    for (first, last, kind), switch in list(zip(all_of, [None, *found.switches], strict=True))[
        :MOST
    ]:
        why = "" if switch is None else f"  {', '.join(switch.causes)}"
        sure = "" if switch is None or switch.scanned else ", by bisection"
        line = Text(f"{first:>9,} .. {last:<9,}  adds as ")
        yield line.append(f"kind {kind}", "cyan").append(f"{why}{sure}", "dim")
    if len(all_of) > MOST:
        yield Text(f"and {len(all_of) - MOST} more stretches; --json has all", "dim")


def _kinds(found: Thresholds) -> Iterator[RenderableType]:
    """The summations of each kind of row that is an interior or a tail."""
    used = {kind for _, _, kind in islands(found)}
    used |= {kind for one in found.tails.values() for tail in one.values() for kind, _ in tail}
    for kind in sorted(used)[:MOST]:
        yield Text(f"\nkind {kind}", "bold cyan")
        yield from _kind(found, found.recogniser.kinds[kind])


def _kind(found: Thresholds, row: Kind) -> Iterator[RenderableType]:
    """A row of outputs: each distinct summation, with how many filters have it."""
    distinct = sorted(set(row))
    for number in distinct:
        if len(distinct) > 1:
            yield Text(f"  {counted(row.count(number), 'filter')}:", "dim")
        if number < 0:
            yield Text("  nothing to add" if number == -2 else "  not known", "yellow")
        else:
            yield orders.summation(found.recogniser.summations[number], found.case.dtype)


def _tails(found: Thresholds) -> Iterator[Text]:
    """What is left over behind the last full packet, by the length's remainder."""
    tails = {
        kind: {rest: tail for rest, tail in one.items() if tail}
        for kind, one in found.tails.items()
    }
    for kind, one in tails.items():
        if one:
            yield Text(
                f"\ntails of kind {kind}, by the length's remainder by {found.period}", "bold"
            )
        for rest, tail in sorted(one.items()):
            said = ", ".join(f"the last {rows} as kind {other}" for other, rows in tail)
            yield Text(f"  {rest}: {said}")


def _doubts(found: Thresholds) -> Iterator[Text]:
    """What was assumed, what was checked, and what speaks against it."""
    yield Text("")
    for word, lines, style in (
        ("assumed", found.assumed, "dim"),
        ("checked", found.checked, "dim"),
        ("contradicted", found.violations, "bold red"),
        ("failed", found.failures, "yellow"),
        ("limited", [found.limited] if found.limited else [], "yellow"),
    ):
        for line in lines:
            yield Text(f"{word}: {line}", style)
    if any(one.unknown for one in found.patterns.values()):
        yield Text(f"not known: {found.recogniser.evidence}", "red")
