"""The cause of every difference in a store: each order revealed once, shared by all lengths.

Reads ``comparisons`` that have differences, runs both sides again, reveals and replays the outputs
that differ, and adds ``reveals``, ``orders``, ``roundings`` and ``causes`` to the store. What is
explained already is not repeated, so the command may be stopped and continued.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe import machine, window
from probe.case import Case
from probe.errors import StoreError, TargetError
from probe.explain import Pairs, Side, add_orders, differing, must_agree, run
from probe.explain.judge import Judge
from probe.explain.rows import Row, order_row, ranges, reveal_rows, rounding_row
from probe.launch import Session
from probe.launch.pipes import completed
from probe.order.orders import Way
from probe.store import Store
from probe.store.results import load, machine_folders
from probe.target import Target

if TYPE_CHECKING:
    import pandas

PAIR = ["run_id", "case_id", "target", "vary", "at", "against"]
MOST_KNOWN = 24  # ways of earlier lengths that are tried before any question is asked


@dataclass(frozen=True)
class Job:
    """All values of one case on one target that differ from the longest one."""

    run_id: str
    library_version: str
    target: str
    case: str
    case_id: str
    vary: str
    against: int
    values: tuple[tuple[int, int], ...]  # (value, differing outputs as stored)


@dataclass
class Answer:
    """Rows for the store, and what to count."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    causes: Counter[str] = field(default_factory=Counter)
    replayed: int = 0
    failure: str = ""


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
        """Differing outputs by cause, all targets together."""
        return sum(self.by_target.values(), Counter())

    def to_json(self) -> dict[str, Any]:
        """For ``probe explain --from STORE --json``."""
        return {
            "causes": dict(self.causes),
            "differing": self.causes.total(),
            "replayed": self.replayed,
            "targets": {target: dict(found) for target, found in self.by_target.items()},
            "comparisons_explained_before": self.explained_before,
            "failures": self.failures,
            "interrupted": self.interrupted,
        }


def explain_store(
    path: str | Path,
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Causes:
    """Explains every difference in a store that was measured on this machine.

    ``path``: an experiment's folder, or this machine's folder in it. ``workers``: processes; None:
    one a processor, each started afresh, so that a script needs ``if __name__ == "__main__"``.
    ``progress(done, total, target)`` counts cases x targets. StoreError: no such store, or none of
    this machine.
    """
    folder = _own_folder(Path(path))
    jobs, result = _jobs(folder)
    afresh = get_context("spawn")  # a fork of a process with JAX or TensorFlow in it may hang
    processes = ProcessPoolExecutor(workers or machine.cores(), mp_context=afresh)
    with Store(folder) as store, processes as pool:
        waiting = {pool.submit(explain_job, job): job for job in jobs}
        try:
            for done, future in enumerate(completed(waiting), 1):
                job = waiting[future]
                _take(store, result, job, future.result())
                if progress:
                    progress(done, len(jobs), job.target)
        except KeyboardInterrupt:
            result.interrupted = True
            pool.shutdown(cancel_futures=True)
        store.compact()
    return result


def _take(store: Store, result: Causes, job: Job, answer: Answer) -> None:
    for table, rows in answer.rows.items():
        store.append(table, rows)
    if answer.failure:
        result.failures.append(answer.failure)
    result.by_target.setdefault(job.target, Counter()).update(answer.causes)
    result.replayed += answer.replayed
    result.added += answer.causes.total()


def _own_folder(path: Path) -> Path:
    """The folder of this machine; its bits are the only ones that can be made again here."""
    folders = machine_folders(path)
    own = [folder for folder in folders if folder.name == machine.label()]
    if not own:
        names = ", ".join(sorted(folder.name for folder in folders)) or "no machine"
        why = f"it has results of {names}, and this machine is {machine.label()}"
        raise StoreError(f"store={path}: {why}; explain them there, or sweep here first")
    return own[0]


def _jobs(folder: Path) -> tuple[list[Job], Causes]:
    """What is left to explain, case by case, each target's together."""
    stored = load(folder)
    cases = dict(zip(stored.cases["case_id"], stored.cases["json"], strict=True))
    versions = dict(zip(stored.runs["run_id"], stored.runs["library_version"], strict=True))
    found = stored.comparisons[stored.comparisons["differing"] > 0]
    done = set(stored.causes[PAIR].itertuples(index=False, name=None))
    todo = [
        row
        for row in found[[*PAIR, "differing"]].itertuples(index=False, name=None)
        if row[:6] not in done
    ]
    result = _explained(stored.causes, set(found[PAIR].itertuples(index=False, name=None)))
    result.explained_before = len(found) - len(todo)
    todo.sort(key=lambda row: (row[2], row[0], row[1], row[3], row[5], row[4]))
    jobs = []
    for (target, run_id, case_id, vary, against), rows in groupby(
        todo, key=lambda row: (row[2], row[0], row[1], row[3], row[5])
    ):
        values = tuple((int(row[4]), int(row[6])) for row in rows)
        job = (run_id, versions[run_id], target, _text(cases[case_id]), case_id, vary)
        jobs.append(Job(*job, int(against), values))
    return jobs, result


def _explained(causes: pandas.DataFrame, differing: set[tuple[Any, ...]]) -> Causes:
    """What the store knows of its differences before anything is run."""
    result = Causes()
    pairs = causes[PAIR].itertuples(index=False, name=None)
    mine = causes[np.array([pair in differing for pair in pairs], bool)]
    for target, rows in mine.groupby("target"):
        counts = rows.groupby("cause")["outputs"].sum().astype(int)
        result.by_target[str(target)] = Counter(counts.to_dict())
    result.replayed = int(mine["replayed"].sum())
    return result


def _text(case: object) -> str:
    return case if isinstance(case, str) else json.dumps(case)


_SESSIONS: dict[str, Session] = {}


def _session(job: Job) -> Session:
    """This process's session of the target; one is kept, since jobs come target by target."""
    if job.target not in _SESSIONS:
        for other in list(_SESSIONS):
            _SESSIONS.pop(other).close()
        _SESSIONS[job.target] = Session(Target.parse(job.target), time_limit=None, start_limit=None)
    session = _SESSIONS[job.target]
    if not session.alive:
        session.start()
    version = session.facts.get("library_version")
    if version != job.library_version:
        why = f"measured with {job.library_version}, and here is {version}"
        raise TargetError(job.target, "unavailable", why)
    return session


def explain_job(job: Job) -> Answer:
    """Rows for the store. A target's failure is told, and the other jobs go on."""
    answer = Answer()
    try:
        _explain(job, _session(job), answer)
    except TargetError as error:
        answer.failure = f"case={job.case_id}: {error}"
    return answer


def _explain(job: Job, session: Session, answer: Answer) -> None:
    case = Case.from_json(job.case)
    base = run(session, window.case_at(case, job.vary, job.against))
    lefts = []
    for value, stored in job.values:
        left = run(session, window.case_at(case, job.vary, value))
        pairs = must_agree(case, job.vary, left.case, base.case)
        found = differing(left, base, pairs)
        if len(found) != stored:
            answer.failure = (
                f"case={job.case_id}: {job.target}: {job.vary}={value}: {stored} outputs differed "
                f"when it was measured, {len(found)} now; sweep again"
            )
        lefts.append((value, left, pairs, found))
    wanted = np.zeros(base.replays.shape, bool)
    for _, _, pairs, found in lefts:
        wanted[tuple(pairs.right[found].T)] = True
    known = _reveal(base, session, [], wanted)
    _keep(job, answer, base, job.against, wanted)
    for value, left, pairs, found in lefts:
        mine = np.zeros(left.replays.shape, bool)
        mine[tuple(pairs.left[found].T)] = True
        known = _reveal(left, session, known, mine)
        _keep(job, answer, left, value, mine)
        _judge(job, answer, value, left, base, pairs, found)


def _reveal(side: Side, session: Session, known: list[Way], wanted: np.ndarray) -> list[Way]:
    """Adds the side's orders; the known ways with its own in front."""
    if side.refusal:
        return known
    add_orders(side, session, known, wanted)
    own = [] if side.orders is None else side.orders.ways
    return list(dict.fromkeys([*own, *known]))[:MOST_KNOWN]


def _keep(job: Job, answer: Answer, side: Side, value: int, wanted: np.ndarray) -> None:
    """Rows of ``reveals``, ``orders`` and ``roundings`` for one side."""
    if side.orders is None:
        return
    place: Row = {"run_id": job.run_id, "case_id": job.case_id, "target": job.target}
    place |= {"vary": job.vary, "at": value}
    found = reveal_rows(side.orders, place, wanted, side.replays)
    numbers = np.unique(side.orders.index[wanted & (side.orders.index >= 0)]).tolist()
    mine = [side.orders.ways[number] for number in numbers]
    answer.rows.setdefault("reveals", []).extend(found)
    answer.rows.setdefault("orders", []).extend(map(order_row, mine))
    answer.rows.setdefault("roundings", []).extend(map(rounding_row, mine))


def _judge(
    job: Job,
    answer: Answer,
    value: int,
    left: Side,
    base: Side,
    pairs: Pairs,
    found: np.ndarray,
) -> None:
    """Rows of ``causes`` for one comparison."""
    causes = np.array(Judge(left, base, pairs).causes(found), object)
    ours, theirs = pairs.left[found], pairs.right[found]
    both = left.replays[tuple(ours.T)] & base.replays[tuple(theirs.T)]
    pair: Row = {"run_id": job.run_id, "case_id": job.case_id, "target": job.target}
    pair |= {"vary": job.vary, "at": value, "against": job.against}
    for cause in sorted(set(causes)):
        mine = causes == cause
        mask = np.zeros(left.replays.shape, bool)
        mask[tuple(ours[mine].T)] = True
        row: Row = {"cause": cause, "outputs": int(mine.sum()), "replayed": int(both[mine].sum())}
        answer.rows.setdefault("causes", []).append(pair | row | {"ranges": ranges(mask)})
        answer.causes[cause] += int(mine.sum())
        answer.replayed += int(both[mine].sum())
