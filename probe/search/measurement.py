"""Bits first, then orders, of one target, by one process: for targets that are slow to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probe.campaign import Failure
from probe.case import Case
from probe.errors import TargetError
from probe.launch import AnySession, open_session
from probe.search import by_order
from probe.store import Store, latest
from probe.sweep import Summary, sweep
from probe.target import Target

PATIENCE = 900.0
"""Seconds for an answer or a start: nothing may be called a failure that is only a busy machine."""

PASSING = ("timeout", "unavailable")
"""Failures that another day may not have: a busy machine, an installation without a network."""


def measure(
    where: Target,
    cases: Sequence[Case],
    lengths: Sequence[int],
    store: Store,
    experiment: str,
    revealed: Mapping[Case, Sequence[int]],
    whole: Mapping[Case, Sequence[int]] | None = None,
) -> Summary:
    """Sweeps ``cases`` over ``lengths`` on one target, then reveals ``revealed`` at its lengths.

    ``revealed``: two or more lengths of each case. ``whole``: as of ``sweep.sweep``. All of it is
    stored, failures too; a failure of the reveal is also one of the summary's.
    """
    session = open_session(where, time_limit=PATIENCE, start_limit=PATIENCE)
    try:
        found = sweep(
            *(cases, [where], lengths),
            store=store,
            experiment=experiment,
            sessions=lambda _: session,
            close=False,
            whole=whole,
        )
        one = found.targets[where.text]
        if one.comparisons and not found.interrupted:
            for case, values in revealed.items():
                try:
                    _reveal(session, case, values, str(one.run_id), store)
                except TargetError as error:
                    one.failures.append(Failure(error.kind, error.why, case.id))
        store.flush()
        return found
    finally:
        session.close()


def _reveal(
    session: AnySession, case: Case, lengths: Sequence[int], run_id: str, store: Store
) -> None:
    """Adds how every output of every length is added."""
    session.revive()
    for table, rows in by_order.sweep(session, case, lengths).rows(run_id).items():
        store.append(table, rows)


def measured(store: Store) -> set[str]:
    """Targets whose orders are stored, and those that failed for what may not pass: a crash, say.

    Who took long, or was not to be had, is asked again.
    """
    store.flush()
    found = set(latest.table(store.path, "reveals")["target"].to_pylist())
    failed = latest.table(store.path, "failures").select(["target", "kind"]).to_pylist()
    return found | {row["target"] for row in failed if row["kind"] not in PASSING}
