"""``probe order``: in which order, and with which roundings, every output is added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from probe.cli.options import (
    Words,
    ask_for,
    case_of,
    case_options,
    fail_on_option,
    output_options,
    target_option,
    targets_of,
)

if TYPE_CHECKING:
    from probe.printing import Output


@click.command(cls=Words, short_help="In which order every output is added.")
@case_options
@target_option()
@fail_on_option(finding="an output is no sum of its products, or its order did not replay")
@output_options
def order(words: dict[str, str], target: str, fail_on: str | None, out: Output) -> int:
    """Reveals the order and rounding of every output, and replays them bit for bit.

    Give the length with --length. Products are numbered row by row over (kernel, channels); b is
    the bias.
    """
    from probe.answers.order import order as ordered
    from probe.cli.show import orders
    from probe.order.orders import require_length

    ask_for(words, length=("length" in words or "case_file" in words, "--length N"))
    case = require_length(case_of(words))
    (where,) = targets_of((target,))
    with out.working(f"revealing {case.label} on {where.text}"):
        answer = ordered(case, where)
    found = answer.report()
    out.give(found, lambda: orders.order(answer.found, found))
    return int(bool(fail_on) and found["replayed"] < found["outputs"])
