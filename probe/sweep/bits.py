"""Sweeps by bits: runs every case at every value, and compares each with the largest.

A failure of a target becomes a row of ``failures`` and the sweep goes on. A ``Summary`` counts by
target what was found. Within a budget what is asked lies evenly over all cases and values.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.case.schema import NULL_INT
from probe.order import window
from probe.sweep.campaign import Campaign, CampaignPart, Failure, Stopped, case_row, run_row
from probe.sweep.plan import (
    Item,
    Plan,
    Plans,
    SweepRequest,
    comparison_columns,
    difference_columns,
    nonsense,
    output_columns,
)
from probe.sweep.printing import ranges
from probe.targets import machine
from probe.targets.progress import Tell
from probe.targets.target import Target

if TYPE_CHECKING:  # what keeps nothing needs no pyarrow
    from probe.sweep.store import Store
    from probe.sweep.stored import Recalled


@dataclass(frozen=True)
class DifferingRun:
    """One comparison with differing outputs.

    ``max_ulp`` is None where no distance is a number; ``first`` is a flat index into the left
    output. ``control`` other than ``equal``: the same shape gives different bits too, so this says
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
    """What one target's part of a sweep found, the comparisons that were stored before included.

    ``kept``: of the differing outputs, those that are rows of a store, if there is one.
    ``left_out``: the values of the axis that there was no time for, by case.
    """

    target: str
    run_id: str | None = None
    comparisons: int = 0
    stored_before: int = 0
    compared: int = 0
    not_compared: int = 0
    differing: int = 0
    max_ulp: int | None = 0
    nondeterministic: int = 0
    alignment: int = 0
    signed_zero: int = 0
    kept: int = 0
    differences: list[DifferingRun] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    left_out: dict[str, list[int]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], before: bool = False) -> None:
        """Counts a row of ``comparisons``, or one that stands for several (``rows``) which agree.

        ``before``: it had been stored by an earlier sweep.
        """
        # a sweep's answer has thousands of rows that agree: they come as one, with their sums
        rows = row.get("rows", 1)
        self.comparisons += rows
        self.stored_before += rows * before
        self.compared += row["compared"]
        self.not_compared += row["not_compared"]
        self.differing += row["differing"]
        self.signed_zero += row.get("signed_zero") or 0
        self.nondeterministic += row["control"] == "differs"
        self.alignment += row["control"] == "alignment differs"
        if not row["differing"]:
            return
        difference = DifferingRun(*(row[name] for name in _DIFFERENCE))
        if not self.differences:
            self.max_ulp = difference.max_ulp
        elif difference.max_ulp is not None:
            self.max_ulp = max(self.max_ulp or 0, difference.max_ulp)
        self.differences.append(difference)
        self.kept += row.get("kept", 0)

    def add_columns(self, columns: Mapping[str, Any]) -> None:
        """Counts rows of ``comparisons`` that are given by columns; those that agree at once."""
        agree = np.array([control in ("equal", None) for control in columns["control"]])
        agree &= columns["differing"] == 0
        for row in np.flatnonzero(~agree).tolist():
            counted: dict[str, Any] = {name: int(columns[name][row]) for name in _COUNTED}
            if counted["max_ulp"] == NULL_INT:
                counted["max_ulp"] = None
            said = {name: columns[name][row] for name in ("control", "signed_zero")}
            self.add({"case_id": columns["case_id"], **counted, **said})
        if agree.any():
            sums = {name: int(columns[name][agree].sum()) for name in ("compared", "not_compared")}
            zeros = sum(zero or 0 for zero in np.array(columns["signed_zero"], object)[agree])
            same = {"control": "equal", "differing": 0, "signed_zero": zeros}
            self.add({"rows": int(agree.sum()), **sums, **same})

    def to_json(self, vary: str, cases: int = 1) -> dict[str, Any]:
        """What ``probe sweep --json`` says of it; with several cases, ``lengths`` have
        ``case``."""
        lengths = []
        for run in sorted(self.differences, key=lambda run: (run.case_id, run.at)):
            entry: dict[str, Any] = {
                vary: window.shown_axis_value(vary, run.at),
                "outputs": run.outputs,
                "max_ulp": run.max_ulp,
                "first": run.first,
            }
            lengths.append({"case": run.case_id} | entry if cases > 1 else entry)
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
            "alignment": self.alignment,
            "failures": [vars(failure) for failure in self.failures],
        }

    @property
    def unasked(self) -> int:
        return sum(map(len, self.left_out.values()))

    def unasked_json(self, vary: str, cases: int = 1) -> dict[str, Any]:
        """What was left out: ``comparisons`` and ``lengths``, these by case if several."""
        by_case = {
            case: ranges(values, len(values))
            if vary != "layout"
            else ", ".join(window.shown_axis_value(vary, value) for value in values)
            for case, values in self.left_out.items()
        }
        where = by_case if cases > 1 else next(iter(by_case.values()), "")
        return {"comparisons": self.unasked, "lengths": where}


_COUNTED = ("at", "compared", "not_compared", "differing", "first", "max_ulp")
_DIFFERENCE = ("case_id", "at", "differing", "max_ulp", "first", "control")


@dataclass
class Summary:
    """A whole sweep. ``against``: the longest value of ``vary``, with which all were compared.

    ``store``: the folder written to, None if nothing was kept. ``interrupted``: it was ended by
    Ctrl-C; what had been measured by then is counted here and stored. ``budget``: the seconds that
    it was given, None: it had no limit.
    """

    vary: str
    against: int
    cases: int
    store: str | None = None
    seconds: float = 0.0
    interrupted: bool = False
    targets: dict[str, TargetSummary] = field(default_factory=dict)
    budget: float | None = None

    @property
    def left_out(self) -> int:
        return sum(summary.unasked for summary in self.targets.values())

    @property
    def differing(self) -> int:
        return sum(summary.differing for summary in self.targets.values())

    @property
    def failures(self) -> list[Failure]:
        return [failure for summary in self.targets.values() for failure in summary.failures]

    def to_json(self) -> dict[str, Any]:
        """The object that ``probe sweep --json`` prints: one target's at the top level."""
        about = {
            "store": self.store,
            "vary": self.vary,
            "against": window.shown_axis_value(self.vary, self.against),
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
        }
        parts = {
            name: summary.to_json(self.vary, self.cases) for name, summary in self.targets.items()
        }
        if self.store is not None:
            for name, part in parts.items():
                part["kept"] = self.targets[name].kept
        if self.budget is not None:
            about["time"] = self.budget
            for name, part in parts.items():
                part["left_out"] = self.targets[name].unasked_json(self.vary, self.cases)
        if len(parts) == 1:
            ((name, part),) = parts.items()
            return part | {"target": name} | about
        return {"targets": parts} | about


# Values of a case that are asked in one turn within a budget: more would leave other cases without
# any where time is short; each turn costs three runs more, of the largest value and its controls.
TURN = 32
# The golden ratio's fraction, whose multiples spread values evenly, over all remainders too.
GOLDEN = 0.6180339887498949


# Processes that may be lost in a row, with no result between: then a case is left.
PATIENCE = 3


def sweep_cases(
    cases: Sequence[Case],
    targets: Sequence[Target],
    lengths: Sequence[int],
    vary: str | None = None,
    store: Store | None = None,
    **options: Any,
) -> Summary:
    """Runs every case on every target at every value and compares with the largest value.

    ``lengths``: two or more values of the axis ``vary`` (None: length; dense layers: batch).
    ``options``: those of :class:`probe.sweep.plan.SweepRequest`, and of :func:`answer_request`.
    """
    named = {name: options.pop(name) for name in tuple(options) if name in _REQUESTED}
    return answer_request(
        SweepRequest(Plans.of(cases, lengths, vary), **named), targets, store, **options
    )


_REQUESTED = {option.name for option in fields(SweepRequest)}


def answer_request(
    request: SweepRequest,
    targets: Sequence[Target],
    store: Store | None = None,
    workers: int | None = None,
    progress: Tell | None = None,
    **campaign: Any,
) -> Summary:
    """Runs what is asked on every target and compares it with the largest value of the axis.

    ``workers``: targets that run side by side, a process each; None: as many as there are
    processors. Targets that use all processors then share them, which changes times but not bits;
    give 1 to time them. ``progress`` counts comparisons and is called from several threads, one at
    a time. ``campaign``: ``experiment``, ``opens`` and ``close``, as of a ``Campaign``.

    What ``store`` has of the same run (machine, library, switches: ``schema.run_id``) is not
    repeated but counted; failures are tried again. Ctrl-C ends the processes, flushes the store,
    and returns what there is with ``interrupted``. Within a ``budget`` what is asked lies evenly
    over all cases and values, and what there was no time for is ``left_out``.
    Errors: InputError before anything runs, StoreError as soon as the store fails.
    """
    targets = list(dict.fromkeys(targets))
    if not targets:
        raise InputError("targets", "(none)", "there is nothing to run", "give one or more")
    plans = request.plans
    job = _SweepState(request, store=store, progress=progress, **campaign)
    job.found = {target.text: TargetSummary(target.text) for target in targets}
    if store is not None:
        store.flush()
    start = time.monotonic()
    questions = [SweepQuestion(number, tuple(request.values)) for number in range(len(plans))]
    tally = job.run(
        [(target, questions) for target in targets], workers or min(machine.cores(), len(targets))
    )
    if job.budget is not None:
        job.budget.answered = True
        job.say_left_out()
    return Summary(
        plans.vary,
        plans.against,
        len(plans),
        None if store is None else str(store.path),
        time.monotonic() - start,
        tally.interrupted,
        job.found,
        None if job.budget is None else job.budget.seconds,
    )


class SweepQuestion(NamedTuple):
    """A question of a sweep: a case by number, and the values of the axis that are asked."""

    case: int
    values: tuple[int, ...]


class _SweepState(Campaign[SweepQuestion]):
    """What all targets share."""

    def __init__(self, request: SweepRequest, **campaign: Any) -> None:
        super().__init__(**campaign)
        self.request, self.plans = request, request.plans
        self.found: dict[str, TargetSummary] = {}
        self.open: dict[str, dict[int, set[int]]] = {}  # what is left to ask, by target and case
        self.loaded: dict[str, tuple[int, object]] = {}
        self.kept_whole: set[tuple[str, int]] = set()

    def share(self, number: int, questions: Sequence[SweepQuestion]) -> list[SweepQuestion]:
        """Every target has the same part of each case's values; cases without any are left out."""
        shared = []
        for question in questions:
            places = enumerate(question.values, question.case * len(question.values))
            if mine := tuple(value for place, value in places if self.shard.has(place)):
                shared.append(SweepQuestion(question.case, mine))
        return shared

    def size(self, question: SweepQuestion) -> int:
        return len(question.values)

    def known(self, part: CampaignPart[SweepQuestion]) -> bool:
        """Counts what is stored, if that is everything or there is no time for more."""
        session, summary = part.session, self.found[part.target.text]
        summary.failures = part.failures
        self.open[summary.target] = {
            question.case: set(question.values) for question in part.questions
        }
        # what the library will say of itself is known before it starts, which takes seconds
        row = run_row(part.target, session.expected_facts(), session.variables)
        stored = self._recall(part, row["run_id"])
        total = sum(map(self.size, part.questions))
        if not self.late and (stored is None or stored.rows < total):
            return False
        self._count(part, stored)
        return not self.open[summary.target]

    def begin(self, part: CampaignPart[SweepQuestion]) -> None:
        """Counts what is stored of the run that has started."""
        self._count(part, self._recall(part, part.run_id))

    def _recall(self, part: CampaignPart[SweepQuestion], run_id: str) -> Recalled | None:
        text, plans = part.target.text, self.plans
        self.found[text].run_id = run_id
        if self.store is None:
            return None
        place = (run_id, text, plans.vary, plans.against)
        return self.store.recall(*place, controlled=self.request.control == "every")

    def _count(self, part: CampaignPart[SweepQuestion], stored: Recalled | None) -> None:
        if stored is None:
            return
        summary = self.found[part.target.text]
        left, before = self.open[summary.target], summary.comparisons
        ids = dict(zip(self.plans.ids.values(), self.plans.ids, strict=True))
        for case, values in left.items():
            done, rows = stored.case(ids[case], sorted(values))
            values -= done
            for row in rows:
                summary.add(row, before=True)
        self.open[summary.target] = {case: values for case, values in left.items() if values}
        if summary.comparisons > before:
            part.tell(summary.comparisons - before, asked=False)

    def agenda(self, part: CampaignPart[SweepQuestion]) -> Iterator[SweepQuestion]:
        """What is not stored: case by case, or spread evenly where the time may not be enough."""
        left = self.open[part.target.text]
        turns: dict[int, list[SweepQuestion]] = {}
        for case, values in left.items():
            todo, size = np.sort(np.array(list(values), np.int64)), len(values)
            if self.budget is not None:
                todo, size = todo[np.argsort(np.arange(size) * GOLDEN % 1.0)], TURN
            for turn, start in enumerate(range(0, len(todo), size)):
                values_of_turn = np.sort(todo[start : start + size]).tolist()
                turns.setdefault(turn, []).append(SweepQuestion(case, tuple(values_of_turn)))
        for question in itertools.chain.from_iterable(turns.values()):
            if question.case in left:  # not given up meanwhile
                yield question

    def ask(self, part: CampaignPart[SweepQuestion], question: SweepQuestion) -> None:
        plan = self.plans[question.case]
        todo = {value: plan.items[value] for value in question.values}
        self.keep("cases", case_row(plan.case))
        sweep = _CaseSweep(self, part, question.case, plan, todo)
        sweep.run()
        left = self.open[part.target.text]
        left[question.case] -= set(question.values) - set(sweep.todo)
        if sweep.hopeless:
            if unasked := len(left.pop(question.case)):
                part.tell(unasked, asked=False)
        elif sweep.todo:
            raise Stopped
        elif not left[question.case]:
            del left[question.case]

    def say_left_out(self) -> None:
        """Says in the summaries what there was no time for."""
        ids = dict(zip(self.plans.ids.values(), self.plans.ids, strict=True))
        for text, part in self.parts.items():
            if self.late and part.left:
                cases = self.open[text].items()
                by_case = {ids[case]: sorted(values) for case, values in cases if values}
                self.found[text].left_out = by_case


class _CaseSweep:
    """One case on one target, to the end, whatever the process does.

    Where a process is lost, which item did it is not known: items are answered in batches. So the
    rest is run again, each answered at once, and what is lost then is known.
    """

    def __init__(
        self,
        job: _SweepState,
        part: CampaignPart[SweepQuestion],
        number: int,
        plan: Plan,
        todo: dict[int, Item],
    ) -> None:
        self.job, self.part, self.plan, self.todo = job, part, plan, todo
        self.number, self.hopeless = number, False
        self.session, self.found = part.session, job.found[part.target.text]
        self.stage, self.careful, self.lost = "", False, 0
        self.once: TargetError | None = None
        self.whole = []
        # once a target and case, also where a time limit asks a case in several turns
        if (self.found.target, number) not in job.kept_whole:
            job.kept_whole.add((self.found.target, number))
            self.whole = list(job.request.whole.get(plan.case, ()))
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
            self._fail(self.once, None, "it succeeded when it was run again")

    def _attempt(self) -> None:
        plan = self.plan
        self.stage = "load"
        where, process = self.part.target.text, self.session.facts  # a new process has new facts
        number, loaded_by = self.job.loaded.get(where, (-1, None))
        if number != self.number or loaded_by is not process:
            load = {"do": "load", "key": "case", "spec": plan.base.spec()}
            self.session.request(load, plan.arrays)
            self.job.loaded[where] = self.number, process
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
            "control": self.job.request.control,
            "zeros": self.job.request.zeros,
        }
        if self.careful:  # each item is answered at once: the one that kills the process is known
            request["interval"] = 0
        for header, arrays in self.session.stream(request):
            self.stage = "items"
            self._take(header, arrays)
            if self.job.stop:  # leaving the stream early ends the child
                break

    def _take(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if why := nonsense(header, arrays, self.plan, self.todo):
            raise self.session.distrusted(why)
        for at, kind, message in header["failures"]:
            where = self.part.target.text
            self._fail(TargetError(where, kind, message, self.session.tail()), at)
            self._drop(at)
        columns = comparison_columns(self.pair, header, arrays, self.plan.not_compared)
        # stored first: a comparison says that its differences are there
        if "index" in arrays and self.job.store is not None:
            most = self.job.request.most
            differences = difference_columns(self.pair, columns, arrays, self.plan, most)
            self.job.keep_columns("differences", differences)
        at = columns["at"].tolist()
        if at:
            self.job.keep_columns("comparisons", columns)
            self.found.add_columns(columns)
            self.found.kept += int(columns["kept"].sum())
            self.lost = 0
        for value in at:
            del self.todo[value]
        self.part.tell(len(at))

    def _after(self, error: TargetError) -> None:
        """Records what a failed attempt says, and drops what can't be done."""
        if self.stage in ("load", "whole"):
            self._fail(error, None)
            if self.stage == "load":
                self._leave()
        elif not self.session.alive and not self.careful:
            # a process that dies once (out of memory beside others) may live the next time
            self.careful, self.once = True, error
        elif self.stage == "base":
            self._fail(error, self.plan.against)
            self._leave()
        else:  # each item was answered at once: the first that is open did it
            at = next(iter(self.todo))
            self._fail(error, at)
            self._drop(at)
            self.lost += 1
            if self.lost >= PATIENCE and self.todo:
                self._fail(error, None, f"{self.lost} times in a row, so the rest is left out")
                self._leave()

    def _fail(self, error: TargetError, at: int | None, why: str = "") -> None:
        self.once = None
        self.part.fail(error, {"case_id": self.plan.id, "vary": self.plan.vary, "at": at}, why)

    def _leave(self) -> None:
        """Leaves the case, unless it is we who ended the process."""
        if not self.job.stop:
            self.hopeless = True
            self._drop(*self.todo)

    def _drop(self, *values: int) -> None:
        for at in values:
            del self.todo[at]
        self.part.tell(len(values))
