"""``probe sweep --by order``: orders and roundings are compared, which no operands hide."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from probe.errors import TargetError

if TYPE_CHECKING:
    from probe.case import Case
    from probe.cli.output import Output, Tell
    from probe.search.by_order import ByOrder
    from probe.store import Store
    from probe.target import Target


def sweep_by_order(
    case: Case,
    targets: Sequence[Target],
    values: Sequence[int],
    vary: str,
    store: Store | None,
    fail_on: str | None,
    out: Output,
) -> int:
    """One target after the other; prints what was found and returns the exit status."""
    from probe.cli.show import by_order as show

    found: dict[str, ByOrder] = {}
    failures: list[dict[str, str]] = []
    bar: AbstractContextManager[Tell] = out.progress("orders")
    with bar as tell:
        for target in targets:
            try:
                found[target.text] = _one(case, target, values, vary, store, tell)
            except TargetError as error:
                failures.append({"target": target.text, "kind": error.kind, "message": error.why})
    if store is not None:
        store.compact()
    told = report(found, failures, None if store is None else str(store.path), case)
    out.give(told, lambda: show.summary(found, told, values))
    if failures or any(_nothing(one) for one in found.values()):
        return 3
    return int(bool(fail_on) and told["differing"] > 0)


def _one(
    case: Case,
    target: Target,
    values: Sequence[int],
    vary: str,
    store: Store | None,
    tell: Tell,
) -> ByOrder:
    """One target's sweep, stored."""
    from probe.launch import open_session
    from probe.search import by_order
    from probe.sweep import observations

    with open_session(target) as session:
        row = observations.run_row(target, session.facts, session.variables)
        found = by_order.sweep(
            *(session, case, values, vary),
            progress=lambda done, total: tell(done, total, target.text),
        )
    if store is not None:
        store.append("runs", row)
        store.append("cases", observations.case_row(found.case))
        for table, rows in found.rows(row["run_id"]).items():
            store.append(table, rows)
    return found


def _nothing(one: ByOrder) -> bool:
    """Whether the target failed at the value that all others are compared with."""
    return one.base.refusal not in ("", "nondeterministic", "not-a-sum")


def report(
    found: dict[str, ByOrder], failures: list[dict[str, str]], store: str | None, case: Case
) -> dict[str, Any]:
    """What ``--json`` prints: one target's at the top level, several under ``targets``."""
    parts = {target: one.to_json() for target, one in found.items()}
    about = {"by": "order", "failures": failures, "store": store, "case": case.to_json()}
    if len(parts) + len(failures) == 1 and parts:
        (part,) = parts.values()
        return part | about
    totals = {
        name: sum(part[name] for part in parts.values())
        for name in ("compared", "differing", "unknown")
    }
    return {"targets": parts} | totals | about
