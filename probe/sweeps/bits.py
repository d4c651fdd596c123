"""Sweeps by bits: runs every case at every value, and compares each with the largest.

A failure of a target becomes a row of ``failures`` and the sweep goes on. A ``Summary`` counts by
target what was found. Within a budget what is likely to differ is asked first: see ``Ranking``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from probe import machine, schema
from probe.campaign import Campaign, CampaignPart, Stopped, case_row, run_row
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.progress import Tell
from probe.sweeps.plan import (
    Item,
    Plan,
    Plans,
    SweepRequest,
    comparison_columns,
    difference_columns,
    nonsense,
    output_columns,
)
from probe.sweeps.summary import Summary, TargetSummary
from probe.target import Target

if TYPE_CHECKING:  # what keeps nothing needs no pyarrow
    import pyarrow as pa

    from probe.store import Store
    from probe.store.parquet import Recalled


# Of the rates that a score is the mean of: see ``Ranking``.
WEIGHTS = {
    "elsewhere": 2.0,
    "interpolated": 1.0,
    "neighbours": 1.0,
    "remainders": 1.0,
    "cases": 1.0,
    "all": 0.5,
}
# Numbers of vectors' and packets' elements, by which tails differ alike.
MODULI = (2, 4, 8, 16, 32)
# Values of a case that are asked at once: of one that was never asked, and of any other. Each time
# the largest value runs again with its controls, three runs more.
FIRST, MOST = 8, 64
# A case is asked in about that many requests at least, however many values it has.
PIECES = 256
# The golden ratio's fraction, whose multiples spread values evenly.
GOLDEN = 0.6180339887498949


class Ranking:
    """The questions of one target, values of the axis by case: those likely to differ come first.

    Threads may share it.

    What is known of a value of the axis are rates of differing, each between 0 and 1:

    1. elsewhere: of the same case at this value, on other targets and in earlier runs of the store;
       where this value was not run, interpolated between those that were run; times how much of
       what was expected so differed here (it stays 1 where more did);
    2. neighbours: of this case on this target, interpolated between the nearest values run;
    3. remainders: of this case on this target, among the values that leave the same remainder by 2,
       4, 8, 16 or 32, the largest such rate: vectors and packets leave tails that differ alike;
    4. cases: of this target's other cases at this value;
    5. all questions that this target has answered so far, for want of anything better.

    The score of a value is their mean, with the weights ``WEIGHTS``; the highest come first. Values
    with equal scores come in an order that spreads them evenly, over all remainders too. Scores
    decide about the order alone: every answer is measured, and a value that was not asked is left
    out.
    """

    def __init__(self, questions: Mapping[int, Sequence[int]]) -> None:
        axis = np.array(sorted({value for values in questions.values() for value in values}))
        self._axis = _Axis(axis.astype(np.int64))
        self._cases = {
            number: _OpenValues(values, self._axis) for number, values in questions.items()
        }
        self._fresh = set(self._cases)  # of which nothing is known
        self._asked = self._differed = 0
        self._expected = self._came = 1.0
        # cases alike stand beside each other: those that nothing is known of are asked spread
        order = np.argsort(np.argsort(np.arange(len(self._cases)) * GOLDEN % 1.0))
        self._spread = dict(zip(self._cases, (-order).tolist(), strict=True))
        self._scores: dict[int, float] = {}
        self._lock = threading.Lock()

    def elsewhere(self, case: int, values: Iterable[int], differ: Iterable[bool]) -> None:
        """Learns what the same case gave at these values on another target, or in another run."""
        with self._lock:
            if case in self._cases:
                self._cases[case].elsewhere(values, differ)
                self._scores.pop(case, None)
                self._fresh.discard(case)

    def answered(self, case: int, values: Iterable[int], differ: Iterable[bool]) -> None:
        """Learns what this target gave, so that these values are not asked again."""
        with self._lock:
            own, expected = self._cases[case].answered(values, differ)
            self._asked, self._differed = self._asked + len(own), self._differed + own.sum()
            self._expected += expected.sum()
            self._came += own[expected > 0].sum()
            self._scores.pop(case, None)
            self._fresh.discard(case)

    def leave(self, case: int, values: Iterable[int] | None = None) -> None:
        """Leaves out these values; None: all of the case."""
        with self._lock:
            known = self._cases[case]
            known.open[slice(None) if values is None else known.places(values)] = False
            self._scores.pop(case, None)

    def next(self) -> tuple[int, list[int]] | None:
        """Returns a case and the values to ask of it at once, ascending; None: nothing is left.

        They count as asked from now on.
        """
        with self._lock:
            rate = (self._differed + 1) / (self._asked + 2)
            trust = min(1.0, self._came / self._expected)
            for number in self._cases.keys() - self._scores.keys() - self._fresh:
                self._scores[number] = self._cases[number].promise(rate, trust)
            alike: dict[bytes, float] = {}
            for number in self._fresh:
                case = self._cases[number]
                key = case.values.tobytes() + case.open.tobytes()
                if key not in alike:
                    # that nothing is known of a case is a reason to ask: the usual rate at least
                    promise = case.promise(rate, trust)
                    alike[key] = max(rate, promise) if promise >= 0 else promise
                self._scores[number] = alike[key]
            best = max(
                self._scores,
                key=lambda number: (self._scores[number], self._spread[number]),
                default=None,
            )
            if best is None or self._scores[best] < 0:
                return None
            self._scores.pop(best)
            return best, self._cases[best].take(rate, trust)


class _Axis:
    """All cases of the target together: how many answered at each value, and how many differed."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.asked, self.differed = np.zeros(len(values)), np.zeros(len(values))


class _OpenValues:
    """One case: which values are open, and what is known of each."""

    def __init__(self, values: Sequence[int], axis: _Axis) -> None:
        self.values = np.array(sorted(values), np.int64)
        self.axis, self.on_axis = axis, np.searchsorted(axis.values, self.values)
        size = len(self.values)
        self.open = np.ones(size, bool)
        self.own = np.full(size, np.nan)  # 1.0: differs
        self.seen, self.bad = np.zeros(size), np.zeros(size)
        # fractions of multiples of the golden ratio never leave a large gap, nor favour a remainder
        self.spread = np.argsort(np.argsort(np.arange(size) * GOLDEN % 1.0))

    def places(self, values: Iterable[int]) -> np.ndarray:
        wanted = np.fromiter(values, np.int64)
        places = np.searchsorted(self.values, wanted)
        places = places[places < len(self.values)]
        return places[np.isin(self.values[places], wanted)]

    def _known(self, values: Iterable[int], differ: Iterable[bool]) -> tuple[np.ndarray, ...]:
        rows = [(v, d) for v, d in zip(values, differ, strict=True)]
        wanted = dict(rows)
        places = self.places(wanted)
        return places, np.array([wanted[int(self.values[p])] for p in places], float)

    def elsewhere(self, values: Iterable[int], differ: Iterable[bool]) -> None:
        places, differed = self._known(values, differ)
        self.seen[places] += 1
        self.bad[places] += differed

    def answered(
        self, values: Iterable[int], differ: Iterable[bool]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what came, and what was expected from elsewhere."""
        places, differed = self._known(values, differ)
        self.own[places], self.open[places] = differed, False
        self.axis.asked[self.on_axis[places]] += 1
        self.axis.differed[self.on_axis[places]] += differed
        there = self.seen[places] > 0
        return differed, np.where(there, self.bad[places] / np.maximum(1, self.seen[places]), 0.0)

    def promise(self, rate: float, trust: float) -> float:
        """Returns the mean score of what would be asked next; -1 where nothing is open."""
        if not self.open.any():
            return -1.0
        scores = np.sort(self.score(rate, trust)[self.open])
        return float(scores[-self.size() :].mean())

    def size(self) -> int:
        if np.isnan(self.own).all():
            return max(2, min(FIRST, len(self.values) // 4))
        return max(FIRST, min(MOST, len(self.values) // 4), len(self.values) // PIECES)

    def take(self, rate: float, trust: float) -> list[int]:
        order = np.lexsort((self.spread, -np.round(self.score(rate, trust), 6)))
        chosen = order[self.open[order]][: self.size()]
        self.open[chosen] = False
        return np.sort(self.values[chosen]).tolist()

    def score(self, rate: float, trust: float) -> np.ndarray:
        """Returns the score of every value, asked or not: shape (values,)."""
        total = np.full(len(self.values), WEIGHTS["all"] * rate)
        weight = np.full(len(self.values), WEIGHTS["all"])
        if self.seen.any():
            there = self.seen > 0
            w = np.where(there, WEIGHTS["elsewhere"], WEIGHTS["interpolated"])
            total += w * trust * self._between(there, self.bad[there] / self.seen[there])
            weight += w
        answered, differed = self.axis.asked[self.on_axis], self.axis.differed[self.on_axis]
        known = ~np.isnan(self.own)
        answered, differed = answered - known, differed - np.where(known, self.own, 0)
        total += WEIGHTS["cases"] * np.where(answered > 0, differed / np.maximum(1, answered), 0)
        weight += WEIGHTS["cases"] * (answered > 0)
        if known.any():
            total += WEIGHTS["neighbours"] * self._between(known, self.own[known])
            total += WEIGHTS["remainders"] * self._remainders(known, rate)
            weight += WEIGHTS["neighbours"] + WEIGHTS["remainders"]
        return total / weight

    def _between(self, known: np.ndarray, rates: np.ndarray) -> np.ndarray:
        return np.interp(self.values, self.values[known], rates)

    def _remainders(self, known: np.ndarray, rate: float) -> np.ndarray:
        best = np.zeros(len(self.values))
        for modulus in MODULI:
            left = self.values % modulus
            answered = np.bincount(left[known], minlength=modulus)
            differed = np.bincount(left[known], self.own[known], minlength=modulus)
            best = np.maximum(best, ((differed + rate) / (answered + 1))[left])
        return best


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
    ``options``: those of :class:`probe.sweeps.plan.SweepRequest`, and of :func:`answer_request`.
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
    and returns what there is with ``interrupted``. Within a ``budget`` the questions that are
    likely to differ come first, see ``Ranking``, and what there was no time for is ``left_out``.
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
        self.rankings: dict[str, Ranking] = {}
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
        """Returns what is stored of ``comparisons``, and need not be measured again."""
        text, plans = part.target.text, self.plans
        self.found[text].run_id = run_id
        if self.store is None:
            return None
        place = (run_id, text, plans.vary, plans.against)
        return self.store.recall(*place, controlled=self.request.control == "every")

    def _stored(self) -> pa.Table:
        """Returns ``RECALLED`` of all runs' ``comparisons`` of these cases on this axis."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from probe.store import parquet

        if self.store is None:
            return schema.arrow_schema("comparisons").empty_table().select(RECALLED)
        rows = parquet.read_table(self.store.path, "comparisons", RECALLED)
        same = pc.and_(
            pc.equal(rows["vary"], self.plans.vary),
            pc.is_in(rows["case_id"], pa.array(list(self.plans.ids))),
        )
        return rows.filter(same)

    def _count(self, part: CampaignPart[SweepQuestion], stored: Recalled | None) -> None:
        """Counts what is stored and asked for, which is not asked again."""
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
        """Yields what is not stored: case by case, with a budget the most telling first."""
        left = self.open[part.target.text]
        if self.budget is None:
            for question in part.questions:
                if question.case in left:
                    yield SweepQuestion(question.case, tuple(sorted(left[question.case])))
            return
        ranking = self._ranking(part)
        while turn := ranking.next():
            case, values = turn
            if wanted := tuple(value for value in values if value in left.get(case, ())):
                yield SweepQuestion(case, wanted)

    def _ranking(self, part: CampaignPart[SweepQuestion]) -> Ranking:
        """Returns the ranking of what is still to be asked, with all that the store knows."""

        text, run_id = part.target.text, part.run_id
        ranking = Ranking({question.case: question.values for question in part.questions})
        rows = self._stored().select(["run_id", "target", "case_id", "at", "differing"])
        for (run, target, case_id), some in rows.to_pandas().groupby(
            ["run_id", "target", "case_id"]
        ):
            case, differ = self.plans.ids[case_id], some["differing"] > 0
            if (run, target) == (run_id, text):
                ranking.answered(case, some["at"], differ)
            else:
                ranking.elsewhere(case, some["at"], differ)
        for question in part.questions:
            stored = set(question.values) - self.open[text].get(question.case, set())
            ranking.leave(question.case, sorted(stored))
        with self.lock:
            self.rankings[text] = ranking
        return ranking

    def learn(self, text: str, case: int, at: Sequence[int], differ: Sequence[bool]) -> None:
        """Tells all rankings at which values a target's outputs differ."""
        with self.lock:
            rankings = dict(self.rankings)
        for name, ranking in rankings.items():
            heard = ranking.answered if name == text else ranking.elsewhere
            heard(case, at, differ)

    def ask(self, part: CampaignPart[SweepQuestion], question: SweepQuestion) -> None:
        """Runs one case at the values that are not stored."""
        plan = self.plans[question.case]
        todo = {value: plan.items[value] for value in question.values}
        self.keep("cases", case_row(plan.case))
        sweep = _CaseSweep(self, part, question.case, plan, todo)
        sweep.run()
        left = self.open[part.target.text]
        left[question.case] -= set(question.values) - set(sweep.todo)
        if sweep.hopeless:
            if rest := len(left.pop(question.case)):
                part.tell(rest, asked=False)
            if part.target.text in self.rankings:
                self.rankings[part.target.text].leave(question.case)
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


# Columns of ``comparisons`` that a summary and a ranking need.
RECALLED = [
    *("run_id", "case_id", "target", "vary", "at", "against", "compared", "not_compared"),
    *("differing", "max_ulp", "first", "control", "signed_zero"),
]


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
        """One answer: its failures and its rows."""
        if why := nonsense(header, arrays, self.plan, self.todo):
            raise self.session.distrusted(why)
        for at, kind, message in header["failures"]:
            where = self.part.target.text
            self._fail(TargetError(where, kind, message, self.session.tail()), at)
            self._drop(at)
        columns = comparison_columns(self.pair, header, arrays, self.plan.not_compared)
        if "index" in arrays:  # stored first: a comparison says that its differences are there
            keep = self.job.request.keep
            differences = difference_columns(self.pair, columns, arrays, self.plan, keep)
            self.job.keep_columns("differences", differences)
        at, differing = columns["at"].tolist(), columns["differing"] > 0
        if at:
            self.job.keep_columns("comparisons", columns)
            self.found.add_columns(columns)
            self.job.learn(self.found.target, self.number, at, differing)
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
