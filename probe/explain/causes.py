"""Finds the cause of every difference in a store; each order is revealed once for all lengths.

Reads ``comparisons`` that have differences, runs both sides again, reveals and replays the outputs
that differ, and adds ``reveals``, ``orders``, ``roundings`` and ``causes`` to the store. What is
explained already is not repeated, so the command may be stopped and continued.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.case import Case
from probe.case.errors import StoreError, TargetError
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.runs import CaseRun, ComparedShapes, Revealer, run_case
from probe.order.summation import ranges_of_mask
from probe.sweep import files
from probe.sweep.campaign import Row, in_processes
from probe.sweep.store import Store
from probe.sweep.stored import load
from probe.targets import machine
from probe.targets.launch import Session, Sessions
from probe.targets.progress import Tell
from probe.targets.target import Target

# The columns of ``parquet.PAIR``, targets first: starting one takes seconds, and serves all of its
# cases.
ORDER = ["target", "run_id", "case_id", "vary", "against", "at"]


@dataclass(frozen=True)
class Job:
    """All values of one case on one target that differ from the longest one.

    ``case``: as JSON text; ``values``: (value, differing outputs as stored).
    """

    run_id: str
    library_version: str
    target: str
    case: str
    case_id: str
    vary: str
    against: int
    values: tuple[tuple[int, int], ...]

    def place(self, at: int) -> Row:
        columns: Row = {"run_id": self.run_id, "case_id": self.case_id, "target": self.target}
        return columns | {"vary": self.vary, "at": at}


@dataclass
class CauseRows:
    """Rows for the store, and what to count."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    causes: Counter[str] = field(default_factory=Counter)
    replayed: int = 0
    failure: str = ""

    def keep(self, job: Job, side: CaseRun, value: int, wanted: np.ndarray) -> None:
        """Keeps rows of ``reveals``, ``orders`` and ``roundings`` for one side."""
        if side.orders is None:
            return
        rows = side.orders.rows(job.place(value), wanted, side.replays)
        numbers = np.unique(side.orders.index[wanted & (side.orders.index >= 0)]).tolist()
        added = [side.orders.summations[number] for number in numbers]
        self.rows.setdefault("reveals", []).extend(rows)
        self.rows.setdefault("orders", []).extend(summation.order_row() for summation in added)
        self.rows.setdefault("roundings", []).extend(
            summation.rounding_row() for summation in added
        )

    def judge(self, job: Job, value: int, comparison: Comparison) -> None:
        """Keeps rows of ``causes`` for one comparison."""
        causes, both = np.array(comparison.cause, object), comparison.proved(comparison.differing)
        places, beyond = comparison.pairs.left[comparison.differing], comparison.out_of_bounds
        for cause in sorted(comparison.causes):
            of_cause = causes == cause
            outputs, replayed = int(of_cause.sum()), int(both[of_cause].sum())
            row: Row = {"cause": cause, "outputs": outputs, "replayed": replayed}
            row |= {"beyond": int(beyond[of_cause].sum()), "against": job.against}
            row["ranges"] = ranges_of_mask(comparison.left.mask(places[of_cause]))
            self.rows.setdefault("causes", []).append(job.place(value) | row)
            self.causes[cause] += outputs
            self.replayed += replayed


@dataclass
class Causes:
    """The store's differing outputs by cause, by target, and what failed.

    ``explained_before`` comparisons were in the store already: their outputs are counted too.
    ``added``: outputs that this run explained.
    """

    by_target: dict[str, Counter[str]] = field(default_factory=dict)
    replayed: int = 0
    explained_before: int = 0
    added: int = 0
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def causes(self) -> Counter[str]:
        return sum(self.by_target.values(), Counter())

    def to_json(self) -> dict[str, Any]:
        return {
            "causes": dict(self.causes),
            "differing": self.causes.total(),
            "replayed": self.replayed,
            "targets": {target: dict(counts) for target, counts in self.by_target.items()},
            "comparisons_explained_before": self.explained_before,
            "failures": self.failures,
            "interrupted": self.interrupted,
        }


def explain_store(
    path: str | Path, workers: int | None = None, progress: Tell | None = None
) -> Causes:
    """Explains every difference in a store that was measured on this machine.

    ``path``: an experiment's folder, or this machine's folder in it. ``workers``: processes; None:
    one a processor, each started afresh, so that a script needs ``if __name__ == "__main__"``.
    ``progress(done, total, target)`` counts cases x targets. StoreError: no such store, or none of
    this machine.
    """
    folders = files.machine_folders(Path(path))
    # its bits are the only ones that can be made again here
    of_machine = [folder for folder in folders if folder.name == machine.label()]
    if not of_machine:
        names = ", ".join(sorted(folder.name for folder in folders))
        if not names:
            raise StoreError(f"from={path}: it has no results; give the folder of a sweep")
        why = f"it has results of {names}, and this machine is {machine.label()}"
        raise StoreError(f"from={path}: {why}; explain them there, or sweep here first")
    jobs, result = _jobs_left(of_machine[0])

    def take(job: Job, answer: CauseRows) -> None:
        for table, rows in answer.rows.items():
            store.append(table, rows)
        if answer.failure:
            result.failures.append(answer.failure)
        result.by_target.setdefault(job.target, Counter()).update(answer.causes)
        result.replayed += answer.replayed
        result.added += answer.causes.total()

    def tell(done: int, total: int, job: Job) -> None:
        if progress:
            progress(done, total, job.target)

    if progress:
        progress(0, len(jobs), "")
    with Store(of_machine[0]) as store:
        result.interrupted = in_processes(jobs, explain_job, take, workers, tell)
    return result


def _jobs_left(folder: Path) -> tuple[list[Job], Causes]:
    """What is left to explain, case by case, each target's together."""
    stored = load(folder)
    cases = dict(zip(stored.cases["case_id"], stored.cases["json"], strict=True))
    versions = dict(zip(stored.runs["run_id"], stored.runs["library_version"], strict=True))
    differing = stored.comparisons[stored.comparisons["differing"] > 0]
    rows = list(differing[[*ORDER, "differing"]].itertuples(index=False, name=None))
    done = list(stored.causes[ORDER].itertuples(index=False, name=None))
    explained, differing_keys = {*done}, {row[:-1] for row in rows}
    todo = sorted(row for row in rows if row[:-1] not in explained)
    result = Causes(explained_before=len(rows) - len(todo))
    before = stored.causes[np.array([pair in differing_keys for pair in done], bool)]
    for target, target_rows in before.groupby("target"):
        counts = target_rows.groupby("cause")["outputs"].sum().astype(int)
        result.by_target[str(target)] = Counter(counts.to_dict())
    result.replayed = int(before["replayed"].sum())
    jobs = []
    for job, rows_of_job in groupby(todo, key=lambda row: row[:-2]):
        target, run_id, case_id, vary, against = job
        values = tuple((int(at), int(outputs)) for *_, at, outputs in rows_of_job)
        case = cases[case_id]
        text = case if isinstance(case, str) else json.dumps(case)
        names = (run_id, versions[run_id], target, text, case_id, vary)
        jobs.append(Job(*names, int(against), values))
    return jobs, result


# This process's: one is kept, since jobs come target by target.
_SESSIONS = Sessions(lambda where: Session(where, time_limit=None, start_limit=None))


def explain_job(job: Job) -> CauseRows:
    """Rows for the store. A target's failure is reported, and the other jobs go on."""
    answer, target = CauseRows(), Target.parse(job.target)
    _SESSIONS.close(target)
    try:
        session = _SESSIONS.of(target)
        version = session.facts.get("library_version")
        if version != job.library_version:
            why = f"it was measured with {job.library_version}, and the version here is {version}"
            raise TargetError(job.target, "unavailable", why)
        case = Case.from_json(job.case)
        shapes = [ComparedShapes(case, job.vary, at, job.against, None) for at, _ in job.values]
        base, comparisons = run_case(session, shapes[0].right), []
        for compared, (value, stored) in zip(shapes, job.values, strict=True):
            left = run_case(session, compared.left)
            comparisons.append(Comparison(case, left, base, OutputPairs.must_agree(compared)))
            if (now := len(comparisons[-1].differing)) != stored:
                answer.failure = (
                    f"case={job.case_id}: {job.target}: {job.vary}={value}: {stored} outputs "
                    f"differed when it was measured, and {now} do now; run the sweep again"
                )
        revealer = Revealer()
        wanted = base.mask(np.concatenate([c.pairs.right[c.differing] for c in comparisons]))
        base = revealer.reveal(base, session, wanted)
        answer.keep(job, base, job.against, wanted)
        for (at, _), comparison in zip(job.values, comparisons, strict=True):
            differing = comparison.left.mask(comparison.pairs.left[comparison.differing])
            comparison.left = revealer.reveal(comparison.left, session, differing)
            comparison.right = base
            answer.keep(job, comparison.left, at, differing)
            answer.judge(job, at, comparison)
    except TargetError as error:
        answer.failure = f"case={job.case_id}: {error}"
    return answer
