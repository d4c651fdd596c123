"""``probe thresholds``: the lengths at which a target switches to other summations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    Words,
    ask_for,
    case_of,
    case_options,
    fail_on_option,
    number,
    output_options,
    target_option,
    targets_of,
)

if TYPE_CHECKING:
    from probe.printing import Output


@click.command(cls=Words, short_help="The lengths at which a target switches kernels.")
@case_options
@target_option()
@click.option("--upto", metavar="N", default="1000000", show_default=True, help="Longest length.")
@click.option("--scan", metavar="N", help="Run all of the N shortest lengths; 64 if not given.")
@click.option("--seconds", metavar="S", help="Begin no length after that time.")
@fail_on_option(finding="the target switches, or something contradicts what was assumed")
@output_options
def thresholds(
    words: dict[str, str],
    target: str,
    upto: str,
    scan: str | None,
    seconds: str | None,
    fail_on: str | None,
    out: Output,
) -> int:
    """Finds the lengths up to a million at which the order or rounding of the outputs changes.

    Short lengths are all run; beyond, lengths double, and intervals whose ends differ are bisected.
    That assumes few changes: what was assumed is said and checked at random lengths, and what
    contradicts it is looked into.
    """
    from probe.cli.show import thresholds as show
    from probe.launch import open_session
    from probe.thresholds import search

    ask_for(words)
    case, (where,) = case_of(words), targets_of((target,))
    limits: dict[str, Any] = {
        "scanned": number("scan", scan),
        "seconds": number("seconds", seconds),
    }
    longest = number("upto", upto)
    assert longest is not None
    with out.progress("lengths") as tell, open_session(where) as session:
        found = search.find(
            *(session, case, longest),
            progress=lambda length: tell(0, 0, f"length {length:,}"),
            **{name: limit for name, limit in limits.items() if limit is not None},
        )
    report = found.to_json()
    report["stretches"] = [
        {"first": first, "last": last, "kind": kind} for first, last, kind in search.islands(found)
    ]
    out.give(report, lambda: show.thresholds(found))
    return int(bool(fail_on) and bool(found.switches or found.violations))
