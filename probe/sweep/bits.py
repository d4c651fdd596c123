"""A sweep by bits: every case on every target at every value, each compared with the largest.

A failure of a target becomes a row of ``failures`` and the sweep goes on. A ``Summary`` counts by
target what was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe import machine, window
from probe.campaign import Campaign, Failure, Part, Tell, case_row, run_row
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.launch import AnySession, open_session
from probe.store import Store
from probe.store.manifest import Recalled
from probe.sweep.plan import (
    Item,
    Plan,
    Plans,
    axis_values,
    comparison_rows,
    difference_columns,
    output_columns,
)
from probe.target import Target

PATIENCE = 3  # processes that may be lost in a row, with no result between: then a case is left


def sweep(
    cases: Sequence[Case],
    targets: Sequence[Target],
    lengths: Sequence[int],
    vary: str | None = None,
    store: Store | None = None,
    control: str = "every",
    workers: int | None = None,
    progress: Tell | None = None,
    keep: int | None = None,
    experiment: str | None = None,
    sessions: Callable[[Target], AnySession] = open_session,
    close: bool = True,
    whole: Mapping[Case, Sequence[int]] | None = None,
    zeros: str = "equal",
) -> Summary:
    """Runs every case on every target at every value and compares with the largest value.

    ``lengths``: two or more values of the axis ``vary`` (None: length; dense layers: batch).
    ``control``: ``every``: each shape is run twice more, as it is and from another alignment;
    ``differing``: only the longest one and those that differ. ``workers``: targets that run side by
    side, a process each; None: as many as there are processors. Targets that use all processors
    then share them, which changes times but not bits; give 1 to time them. ``keep``: differing
    outputs stored of each comparison, the first ones and the largest; None: all. ``progress``
    counts comparisons and is called from several threads, one at a time. ``sessions`` opens a
    target, which is left running unless ``close``. ``whole``: values of the axis at which all
    outputs of a case are stored, whether they differ or not. ``zeros`` ``"differ"``: zeros of other
    signs are differences, of 0 ulp.

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
    job = _Sweep(
        plans, (control, zeros), keep, whole or {}, store, experiment, progress, sessions, close
    )
    job.found = {target.text: TargetSummary(target.text) for target in targets}
    if store is not None:
        store.flush()
    start = time.monotonic()
    numbers = range(len(cases))
    tally = job.run(
        [(target, numbers) for target in targets], workers or min(machine.cores(), len(targets))
    )
    folder = None if store is None else str(store.path)
    seconds = time.monotonic() - start
    return Summary(vary, against, len(cases), folder, seconds, tally.interrupted, job.found)


class _Sweep(Campaign[int]):
    """What all targets share; a question is the number of a plan."""

    def __init__(
        self,
        plans: Plans,
        how: tuple[str, str],
        most_kept: int | None,
        whole: Mapping[Case, Sequence[int]],
        *options: Any,
    ) -> None:
        super().__init__(*options)
        self.plans, self.most_kept, self.whole = plans, most_kept, whole
        self.control, self.zeros = how
        self.found: dict[str, TargetSummary] = {}
        self.stored: dict[str, Recalled | None] = {}

    def share(self, number: int, questions: Sequence[int]) -> list[int]:
        """Every target has the same part of each case's values; cases without any are left out."""
        return [one for one in questions if self.values(one)]

    def values(self, question: int) -> list[int]:
        """The values of the axis at which a case is asked here."""
        first = question * len(self.plans.values)
        return [v for n, v in enumerate(self.plans.values, first) if self.shard.has(n)]

    def size(self, question: int) -> int:
        """Comparisons of a case."""
        return len(self.values(question))

    def known(self, part: Part[int]) -> bool:
        """Counts what is stored, if that is everything."""
        session, text = part.session, part.target.text
        found = self.found[text]
        found.failures = part.failures
        row = run_row(part.target, session.expected_facts(), session.variables)
        self._recall(part, row["run_id"])
        stored, total = self.stored[text], sum(map(self.size, part.questions))
        if stored is None or stored.rows < total:
            return False
        rows: list[Mapping[str, Any]] = []
        for number in part.questions:
            values = self.values(number)
            done, told = stored.case(self.plans[number].id, values)
            if len(done) < len(values):
                return False
            rows += told
        for one in rows:
            found.add(one, before=True)
        return True

    def begin(self, part: Part[int]) -> None:
        """Looks up what is stored of the run that has started."""
        self._recall(part, part.run_id)

    def _recall(self, part: Part[int], run_id: str) -> None:
        """What is stored of ``comparisons``, and need not be measured again."""
        text, plans = part.target.text, self.plans
        self.found[text].run_id, self.stored[text] = run_id, None
        if self.store is not None:
            place = (run_id, text, plans.vary, plans.against)
            self.stored[text] = self.store.recall(*place, controlled=self.control == "every")

    def ask(self, part: Part[int], question: int) -> None:
        """Runs one case at the values that are not stored."""
        plan, found = self.plans[question], self.found[part.target.text]
        wanted = self.values(question)
        stored = self.stored[found.target]
        done, rows = stored.case(plan.id, wanted) if stored else (set[int](), [])
        todo = {value: plan.items[value] for value in wanted if value not in done}
        for row in rows:
            found.add(row, before=True)
        if len(todo) < len(wanted):
            part.tell(len(wanted) - len(todo))
        if todo:
            self.keep("cases", case_row(plan.case))
            _CaseSweep(self, part, plan, todo).run()


class _CaseSweep:
    """One case on one target, to the end, whatever the process does.

    Where a process is lost, which item did it is not known: items are answered in batches. So the
    rest is run again, each answered at once, and what is lost then is known.
    """

    def __init__(self, job: _Sweep, part: Part[int], plan: Plan, todo: dict[int, Item]) -> None:
        self.job, self.part, self.plan, self.todo = job, part, plan, todo
        self.session, self.found = part.session, job.found[part.target.text]
        self.stage, self.careful, self.lost = "", False, 0
        self.once: TargetError | None = None
        self.whole = list(job.whole.get(plan.case, ()))
        pair = {"run_id": part.run_id, "case_id": plan.id, "target": part.target.text}
        self.pair = {**pair, "vary": plan.vary, "against": plan.against}

    def run(self) -> None:
        """Until nothing is left to do. NotStarted where the target does not start any more."""
        while self.todo and not self.job.stop:
            self.part.revive()
            try:
                self._attempt()
            except TargetError as error:
                self._after(error)
        if self.once is not None:
            self._fail(self.once, None, "it went well when it was run again")

    def _attempt(self) -> None:
        plan = self.plan
        self.stage = "load"
        load = {"do": "load", "key": "case", "spec": plan.base.spec()}
        self.session.request(load, plan.arrays)
        self.stage = "whole"
        while self.whole:
            at = self.whole.pop()
            run = {"do": "run", "key": "case", "at": {plan.vary: at}}
            y = self.session.request(run)[1]["y"]
            columns = output_columns(self.pair, at, y, plan.base.dtype)
            self.job.keep_columns("outputs", columns)
        self.stage = "base"
        request = {
            "do": "sweep",
            "key": "case",
            "vary": plan.vary,
            "against": plan.against,
            "items": list(self.todo.values()),
            "control": self.job.control,
            "zeros": self.job.zeros,
        }
        if self.careful:
            request["interval"] = 0
        for header, arrays in self.session.stream(request):
            self.stage = "items"
            self._take(header, arrays)
            if self.job.stop:
                break

    def _take(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """One answer: its failures and its rows."""
        for at, kind, message in header["failures"]:
            where = self.part.target.text
            self._fail(TargetError(where, kind, message, self.session.tail()), at)
            self._drop(at)
        rows = comparison_rows(self.pair, header, arrays, self.plan.not_compared)
        if "index" in arrays:
            columns = difference_columns(self.pair, rows, arrays, self.plan, self.job.most_kept)
            self.job.keep_columns("differences", columns)
        self.job.keep("comparisons", rows)
        for row in rows:
            self.found.add(row)
            del self.todo[row["at"]]
        self.lost = 0 if rows else self.lost
        self.part.tell(len(rows))

    def _after(self, error: TargetError) -> None:
        """Records what a failed attempt says, and drops what can't be done."""
        if self.stage in ("load", "whole"):
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
        self.part.fail(error, {"case_id": self.plan.id, "vary": self.plan.vary, "at": at}, why)

    def _drop(self, *values: int) -> None:
        for at in values:
            del self.todo[at]
        self.part.tell(len(values))


@dataclass(frozen=True)
class Difference:
    """One comparison with differing outputs.

    ``max_ulp`` is None where no distance is a number; ``first`` is a flat index into the left
    output. ``control`` other than ``equal``: the same shape gives other bits too, so this says
    nothing about the axis.
    """

    case_id: str
    at: int
    outputs: int
    max_ulp: int | None
    first: int
    control: str | None


@dataclass
class TargetSummary:
    """What one target's part of a sweep found, the comparisons that were stored before included."""

    target: str
    run_id: str | None = None
    comparisons: int = 0
    stored_before: int = 0
    compared: int = 0
    not_compared: int = 0
    differing: int = 0
    max_ulp: int | None = 0
    nondeterministic: int = 0
    signed_zero: int = 0
    differences: list[Difference] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add(self, row: Mapping[str, Any], before: bool = False) -> None:
        """Counts a row of ``comparisons``, or one that stands for several (``rows``) which agree.

        ``before``: it had been stored by an earlier sweep.
        """
        rows = row.get("rows", 1)
        self.comparisons += rows
        self.stored_before += rows * before
        self.compared += row["compared"]
        self.not_compared += row["not_compared"]
        self.differing += row["differing"]
        self.signed_zero += row.get("signed_zero") or 0
        self.nondeterministic += row["control"] not in (None, "equal")
        if not row["differing"]:
            return
        found = Difference(*(row[name] for name in _DIFFERENCE))
        if not self.differences:
            self.max_ulp = found.max_ulp
        elif found.max_ulp is not None:
            self.max_ulp = max(self.max_ulp or 0, found.max_ulp)
        self.differences.append(found)

    def to_json(self, vary: str, cases: int = 1) -> dict[str, Any]:
        """What ``probe sweep --json`` says of it; with several cases, ``lengths`` have ``case``."""
        lengths = []
        for found in sorted(self.differences, key=lambda one: (one.case_id, one.at)):
            entry: dict[str, Any] = {
                vary: window.shown(vary, found.at),
                "outputs": found.outputs,
                "max_ulp": found.max_ulp,
                "first": found.first,
            }
            lengths.append({"case": found.case_id} | entry if cases > 1 else entry)
        return {
            "compared": self.compared,
            "differing": self.differing,
            "max_ulp": self.max_ulp,
            "signed_zero": self.signed_zero,
            "lengths": lengths,
            "not_compared": self.not_compared,
            "comparisons": self.comparisons,
            "stored_before": self.stored_before,
            "nondeterministic": self.nondeterministic,
            "failures": [vars(failure) for failure in self.failures],
        }


_DIFFERENCE = ("case_id", "at", "differing", "max_ulp", "first", "control")


@dataclass
class Summary:
    """A whole sweep. ``against``: the longest value of ``vary``, with which all were compared.

    ``store``: the folder written to, None if nothing was kept. ``interrupted``: it was ended by
    Ctrl-C; what had been measured by then is counted here and stored.
    """

    vary: str
    against: int
    cases: int
    store: str | None = None
    seconds: float = 0.0
    interrupted: bool = False
    targets: dict[str, TargetSummary] = field(default_factory=dict)

    @property
    def differing(self) -> int:
        """Differing outputs over all targets."""
        return sum(found.differing for found in self.targets.values())

    @property
    def failures(self) -> list[Failure]:
        """The failures of all targets."""
        return [failure for found in self.targets.values() for failure in found.failures]

    def to_json(self) -> dict[str, Any]:
        """The object that ``probe sweep --json`` prints: one target's at the top level."""
        about = {
            "store": self.store,
            "vary": self.vary,
            "against": window.shown(self.vary, self.against),
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
        }
        parts = {name: one.to_json(self.vary, self.cases) for name, one in self.targets.items()}
        if len(parts) == 1:
            ((name, part),) = parts.items()
            return part | {"target": name} | about
        return {"targets": parts} | about
