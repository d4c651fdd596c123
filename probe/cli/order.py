"""``probe order``: in which order, and with which roundings, every output is added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    case_of,
    case_options,
    fail_on_option,
    output_options,
    target_option,
    targets_of,
)

if TYPE_CHECKING:
    from probe.cli.output import Output
    from probe.explain import Side


@click.command(short_help="In which order every output is added.")
@case_options
@target_option()
@fail_on_option(finding="an output is no sum of its products, or its order did not replay")
@output_options
def order(words: dict[str, str], target: str, fail_on: str | None, out: Output) -> int:
    """Reveals the order and rounding of every output, and replays them bit for bit.

    Give the length with --length. Products are numbered row by row over (kernel, channels); b is
    the bias.
    """
    from probe.cli.show import orders
    from probe.explain import run_side
    from probe.launch import open_session
    from probe.order.orders import require_length

    case = require_length(case_of(words))
    (where,) = targets_of((target,))
    with out.working(f"revealing {case.label} on {where.text}"), open_session(where) as session:
        side = run_side(session, case)
    found = report(side)
    out.give(found, lambda: orders.order(side, found))
    return int(bool(fail_on) and found["replayed"] < found["outputs"])


def report(side: Side) -> dict[str, Any]:
    """What ``--json`` prints. ``ranges``: start, stop, ... of the flat indices of its outputs."""
    from probe.explain import way_json
    from probe.explain.rows import ranges

    found: dict[str, Any] = {
        "case": side.case.to_json(),
        "target": side.target.text,
        "shape": list(side.case.output_shape()),
        "outputs": side.replays.size,
        "control": side.control,
        "refusal": side.refusal or None,
        "evidence": side.evidence or None,
    }
    if side.orders is None:
        none: dict[str, Any] = {"orders": [], "replayed": 0, "not_a_sum": 0}
        if side.refusal == "not-a-sum":
            none["not_a_sum"] = side.replays.size
        return found | none | {"calls": None, "checks": None, "seconds": None}
    orders = side.orders
    told = []
    for number, way in enumerate(orders.ways):
        mine = orders.index == number
        where = {"outputs": int(mine.sum()), "ranges": ranges(mine)}
        told.append(way_json(way, side.case.dtype) | where)
    return found | {
        "orders": sorted(told, key=lambda one: -one["outputs"]),
        "replayed": int((orders.replayed & side.replays).sum()),
        "not_a_sum": int(orders.not_a_sum.sum()),
        "calls": orders.calls,
        "checks": orders.checks,
        "seconds": round(orders.seconds, 3),
    }
