"""Cases x targets x values of an axis: everything is run, compared with the longest, and stored.

A failure of a target becomes a row of ``failures`` and the sweep goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from probe import machine, public, window
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.launch import AnySession, InlineSession, open_session
from probe.launch.pipes import completed
from probe.store import Store, latest
from probe.sweep import observations
from probe.sweep.plan import Item, Plan, Plans, axis_values
from probe.sweep.summary import Failure, Summary, TargetSummary
from probe.target import Target

public.opens(__name__)
COLUMNAR = ("differences", "outputs")
"""Tables whose rows come as columns: there may be millions."""

PATIENCE = 3  # processes that may be lost in a row, with no result between: then a case is left


@dataclass(frozen=True)
class Progress:
    """Where a sweep is: ``done`` of ``total`` comparisons of all targets, and who reports."""

    target: str
    case: str
    done: int
    total: int
    failures: int


def sweep(
    cases: Sequence[Case],
    targets: Sequence[Target],
    lengths: Sequence[int],
    vary: str | None = None,
    store: Store | None = None,
    control: str = "every",
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    keep: int | None = None,
    experiment: str | None = None,
    sessions: Callable[[Target], AnySession] = open_session,
    whole: Mapping[Case, Sequence[int]] | None = None,
) -> Summary:
    """Runs every case on every target at every value and compares with the largest value.

    ``lengths``: two or more values of the axis ``vary`` (None: length; dense layers: batch).
    ``control``: ``every``: each shape is run twice more, as it is and from another alignment;
    ``differing``: only the longest one and those that differ. ``workers``: targets that run side by
    side, a process each; None: as many as there are processors. Targets that use all processors
    then share them, which changes times but not bits; give 1 to time them. ``keep``: differing
    outputs stored of each comparison, the first ones and the largest; None: all. ``progress`` is
    called from several threads, one at a time. ``sessions`` opens a target. ``whole``: values of
    the axis at which all outputs of a case are stored, whether they differ or not.

    What ``store`` has of the same run (machine, library, switches: ``schema.run_id``) is not
    repeated but counted; failures are tried again. Ctrl-C ends the processes, flushes the store,
    and returns what there is with ``interrupted``. Errors: InputError before anything runs,
    StoreError as soon as the store fails.
    """
    if control not in ("every", "differing"):
        raise InputError("control", control, "there is no such control", "use every or differing")
    targets = list(dict.fromkeys(targets))
    for name, given in (("cases", cases), ("targets", targets)):
        if not given:
            raise InputError(name, "(none)", "there is nothing to run", "give one or more")
    values, against = axis_values(lengths, vary := window.axis_of(cases[0], vary))
    plans = Plans(cases, vary, values, against)
    if store is not None:
        store.flush()
    total = len(cases) * len(values) * len(targets)
    job = _Job(
        *(plans, vary, against, store, control, keep, experiment, progress, whole or {}),
        *(len(targets), total),
    )
    runners = [_Runner(job, sessions(target)) for target in targets]
    start = time.monotonic()
    interrupted = _run(job, runners, workers or min(machine.cores(), len(runners)))
    if store is not None:
        store.flush()
    found = {runner.found.target: runner.found for runner in runners}
    folder = None if store is None else str(store.path)
    seconds = time.monotonic() - start
    return Summary(vary, against, len(cases), folder, seconds, interrupted, found)


@dataclass
class _Job:
    """What all targets of a sweep share."""

    plans: Plans
    vary: str
    against: int
    store: Store | None
    control: str
    keep: int | None
    experiment: str | None
    progress: Callable[[Progress], None] | None
    whole: Mapping[Case, Sequence[int]]
    targets: int
    total: int
    done: int = 0
    failures: int = 0
    stop: bool = False

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    def keeps(self, table: str, rows: Any) -> None:
        """Stores rows, if there is a store: a row or a list of rows; of outputs, columns."""
        if self.store is not None:
            (self.store.extend if table in COLUMNAR else self.store.append)(table, rows)

    def tell(self, target: str, case: str, done: int = 0, failures: int = 0) -> None:
        """Counts, and reports."""
        with self.lock:
            self.done += done
            self.failures += failures
            if self.progress is not None:
                self.progress(Progress(target, case, self.done, self.total, self.failures))


def _run(job: _Job, runners: Sequence[_Runner], workers: int) -> bool:
    """Runs all, ``workers`` at a time, inline ones in this thread; whether Ctrl-C ended it."""
    try:
        if all(isinstance(runner.session, InlineSession) for runner in runners):
            for runner in runners:
                runner.run()
            return False
        with ThreadPoolExecutor(workers, "sweep") as pool:
            futures = [pool.submit(runner.run) for runner in runners]
            try:
                for future in completed(futures):
                    future.result()
            finally:
                if not all(future.done() for future in futures):
                    _end(job, runners)
    except KeyboardInterrupt:
        return True
    return False


def _end(job: _Job, runners: Sequence[_Runner]) -> None:
    job.stop = True
    for runner in runners:
        runner.session.interrupt()


class _Runner:
    """One target's part of a sweep, with one session for all its cases."""

    def __init__(self, job: _Job, session: AnySession) -> None:
        self.job, self.session = job, session
        self.found = TargetSummary(session.target.text)
        self.stored: dict[tuple[str, int], dict[str, Any]] = {}
        self.handled = 0

    def run(self) -> None:
        """Everything; a failure to start is recorded, any other error is raised."""
        try:
            if not self.job.stop and not self._nothing_to_do() and self._start():
                for number in range(len(self.job.plans)):
                    if self.job.stop or not self._case(self.job.plans[number]):
                        break
            if not self.job.stop:
                self.tell(None, self.job.total // self.job.targets - self.handled)
        finally:
            self.session.close()

    def _nothing_to_do(self) -> bool:
        """Counts what is stored, if that is everything: then the library need not even start."""
        session = self.session
        row = observations.run_row(session.target, session.expected_facts(), session.variables)
        self.found.run_id = row["run_id"]
        self.stored = self._stored_before()
        if len(self.stored) < self.job.total // self.job.targets:
            return False
        plans = [self.job.plans[number] for number in range(len(self.job.plans))]
        wanted = [(plan.id, value) for plan in plans for value in plan.values]
        if not all(key in self.stored for key in wanted):
            return False
        for key in wanted:
            self.found.add(self.stored[key], before=True)
        return True

    def _start(self) -> bool:
        try:
            self.session.start()
        except TargetError as error:
            self._identify()
            self.fail(error)
            return False
        self._identify()
        self.stored = self._stored_before()
        return True

    def _identify(self) -> None:
        session = self.session
        experiment = self.job.experiment
        row = observations.run_row(session.target, session.facts, session.variables, experiment)
        self.found.run_id = row["run_id"]
        self.job.keeps("runs", row)

    def _stored_before(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The rows of ``comparisons`` that need not be measured again, by case and value."""
        job = self.job
        if job.store is None:
            return {}
        rows = latest.table(job.store.path, "comparisons")
        same = {"run_id": self.found.run_id, "target": self.found.target}
        for name, value in (same | {"vary": job.vary, "against": job.against}).items():
            rows = rows.filter(pc.equal(rows[name], value))
        found = rows.to_pylist()
        checked = [row for row in found if row["control"] or job.control != "every"]
        return {(row["case_id"], row["at"]): row for row in checked}

    def _case(self, plan: Plan) -> bool:
        """Runs one case; False where the target can't go on."""
        todo = dict(plan.items)
        for value in plan.items:
            if row := self.stored.get((plan.id, value)):
                self.found.add(row, before=True)
                del todo[value]
        self.tell(plan, len(plan.items) - len(todo))
        if not todo:
            return True
        self.job.keeps("cases", observations.case_row(plan.case))
        return _CaseSweep(self, plan, todo).run()

    def fail(
        self, error: TargetError, plan: Plan | None = None, at: int | None = None, why: str = ""
    ) -> None:
        """Records a failure, unless it is we who ended the process."""
        job = self.job
        if job.stop:
            return
        case_id = None if plan is None else plan.id
        message = error.why + (f"; {why}" if why else "")
        self.found.failures.append(Failure(error.kind, message, case_id, at))
        row = {
            "run_id": self.found.run_id,
            "case_id": case_id,
            "target": self.found.target,
            "vary": None if plan is None else job.vary,
            "at": at,
            "kind": error.kind,
            "message": message,
            "stderr": error.stderr or None,
        }
        job.keeps("failures", row)
        job.tell(self.found.target, "" if plan is None else plan.case.label, failures=1)

    def tell(self, plan: Plan | None, done: int) -> None:
        """Counts comparisons that are done, or that can't be, and reports."""
        self.handled += done
        self.job.tell(self.found.target, "" if plan is None else plan.case.label, done)


class _CaseSweep:
    """One case on one target, to the end, whatever the process does.

    Where a process is lost, which item did it is not known: items are answered in batches. So the
    rest is run again, each answered at once, and what is lost then is known.
    """

    def __init__(self, runner: _Runner, plan: Plan, todo: dict[int, Item]) -> None:
        self.runner, self.plan, self.todo = runner, plan, todo
        self.job, self.session = runner.job, runner.session
        self.stage, self.careful, self.lost = "", False, 0
        self.once: TargetError | None = None
        self.whole = list(self.job.whole.get(plan.case, ()))
        pair = {"run_id": runner.found.run_id, "case_id": plan.id, "target": runner.found.target}
        self.pair = {**pair, "vary": plan.vary, "against": plan.against}

    def run(self) -> bool:
        """Until nothing is left to do; False where the target does not start any more."""
        while self.todo and not self.job.stop:
            try:
                self._attempt()
            except TargetError as error:
                self._after(error)
                if self.stage == "start":
                    return False
        if self.once is not None:
            self._fail(self.once, None, "it went well when it was run again")
        return True

    def _attempt(self) -> None:
        plan = self.plan
        self.stage = "start"
        if not self.session.alive:
            self.session.start()
        self.stage = "load"
        load = {"do": "load", "key": "case", "spec": plan.base.spec()}
        self.session.request(load, plan.arrays)
        self.stage = "whole"
        while self.whole:
            self._keep_whole(self.whole.pop())
        self.stage = "base"
        request = {
            "do": "sweep",
            "key": "case",
            "vary": plan.vary,
            "against": plan.against,
            "items": list(self.todo.values()),
            "control": self.job.control,
        }
        if self.careful:
            request["interval"] = 0
        for header, arrays in self.session.stream(request):
            self.stage = "items"
            self._take(header, arrays)
            if self.job.stop:
                break

    def _keep_whole(self, at: int) -> None:
        plan, run = self.plan, {"do": "run", "key": "case", "at": {self.plan.vary: at}}
        y = self.session.request(run)[1]["y"]
        self.job.keeps("outputs", observations.output_columns(self.pair, at, y, plan.base.dtype))

    def _take(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """One answer: its failures and its rows."""
        for at, kind, message in header["failures"]:
            where = self.runner.found.target
            self._fail(TargetError(where, kind, message, self.session.tail()), at)
            self._drop(at)
        rows = observations.comparison_rows(self.pair, header, arrays, self.plan.not_compared)
        if "index" in arrays:
            self._differences(rows, arrays)
        self.job.keeps("comparisons", rows)
        for row in rows:
            self.runner.found.add(row)
            del self.todo[row["at"]]
        self.lost = 0 if rows else self.lost
        self.runner.tell(self.plan, len(rows))

    def _differences(self, rows: list[dict[str, Any]], arrays: dict[str, np.ndarray]) -> None:
        """Completes the rows and stores the differing outputs."""
        plan, times = self.plan, arrays["differing"]
        columns = observations.difference_columns(
            self.pair, arrays, plan.shapes, plan.base.dtype, plan.scale
        )
        largest = observations.largest_scaled(columns["scaled"], times)
        for row, scaled in zip(rows, largest, strict=True):
            row["max_scaled"] = scaled
        if self.job.keep is not None:
            mask = observations.kept(columns["ulp"], times, self.job.keep)
            for row in rows:
                row["kept"] = int(mask[columns["at"] == row["at"]].sum())
            for name, column in columns.items():
                columns[name] = column[mask] if isinstance(column, np.ndarray) else column
        self.job.keeps("differences", columns)

    def _after(self, error: TargetError) -> None:
        """Records what a failed attempt says, and drops what can't be done."""
        if self.stage == "start":
            self.runner.fail(error)
        elif self.stage in ("load", "whole"):
            self._fail(error, None)
            self._drop(*(self.todo if self.stage == "load" else ()))
        elif not self.session.alive and not self.careful:
            self.careful, self.once = True, error
        elif self.stage == "base":
            self._fail(error, self.plan.against)
            self._drop(*self.todo)
        else:
            self._lost_at(error, next(iter(self.todo)))

    def _lost_at(self, error: TargetError, at: int) -> None:
        self._fail(error, at)
        self._drop(at)
        self.lost += 1
        if self.lost >= PATIENCE and self.todo:
            self._fail(error, None, f"{self.lost} times in a row, so the rest is left out")
            self._drop(*self.todo)

    def _fail(self, error: TargetError, at: int | None, why: str = "") -> None:
        self.once = None
        self.runner.fail(error, self.plan, at, why)

    def _drop(self, *values: int) -> None:
        for at in values:
            del self.todo[at]
        self.runner.tell(self.plan, len(values))
