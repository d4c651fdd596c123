"""Measures a target's bits, and how it adds, for the experiments over releases and processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lib.frame import REPORT, end_if_interrupted, patient
from probe.case.case import Case
from probe.case.errors import TargetError
from probe.sizes.orders import sweep_by_order
from probe.sweep import stored
from probe.sweep.bits import Summary, sweep_cases
from probe.sweep.campaign import Failure
from probe.sweep.store import Store
from probe.targets.target import Target

# Failures that another day may not have: a busy machine, an installation without a network.
PASSING = ("timeout", "unavailable")


PUBLISHED = (7, 8)
"""Lengths whose outputs the report has: they are stored whole."""


def measure_by_order(
    where: Target,
    cases: Sequence[Case],
    lengths: Sequence[int],
    store: Store,
    experiment: str,
    revealed: Mapping[Case, Sequence[int]],
) -> Summary:
    """Sweeps the report's case and ``cases`` over ``lengths`` on one target, then reveals
    ``revealed`` at its lengths: two or more of each case.

    All of it is stored, failures too; a failure of the reveal is also one of the summary's.
    """
    session = patient(where)
    try:
        found = sweep_cases(
            *([REPORT, *cases], [where], lengths),
            store=store,
            experiment=experiment,
            opens=lambda _: session,
            close=False,
            whole={REPORT: PUBLISHED},
        )
        one = found.targets[where.text]
        if one.comparisons and not found.interrupted:
            for case, values in revealed.items():
                try:
                    session.revive()
                    revealed_rows = sweep_by_order(session, case, values).rows(str(one.run_id))
                    for table, rows in revealed_rows.items():
                        store.append(table, rows)
                except TargetError as error:
                    one.failures.append(Failure(error.kind, error.why, case.id))
        store.flush()
        end_if_interrupted(found)
        return found
    finally:
        session.close()


def measured(store: Store) -> set[str]:
    """Targets whose orders are stored, and those that failed for what may not pass: a crash, say.

    Who took long, or was not to be had, is asked again.
    """
    store.flush()
    found = set(stored.read_table(store.path, "reveals")["target"].to_pylist())
    failed = stored.read_table(store.path, "failures").select(["target", "kind"]).to_pylist()
    return found | {row["target"] for row in failed if row["kind"] not in PASSING}
