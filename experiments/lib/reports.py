"""Runs public reports on every target, explains them and reduces their cases: a report's questions,
a target's answers, and the smallest case.

The threads themselves are data of an experiment: nothing here knows one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.case import Case
from probe.case.errors import InputError, NotASum, TargetError
from probe.case.floats import round_to
from probe.explain.comparison import (
    CaseRun,
    ComparedShapes,
    Comparison,
    Finding,
    OutputPairs,
    Revealer,
    classes_of,
    compare_shapes,
    run_case,
)
from probe.report.failing import Failing
from probe.report.shrink import smallest_finding
from probe.sweep.campaign import Campaign, CampaignPart, Row, Tally, case_row
from probe.sweep.store import Store
from probe.sweep.store.results import load
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import Tell
from probe.targets.target import Target


@dataclass(frozen=True)
class Pair:
    """One operator at two values of the axis ``vary``: both must give the same."""

    text: str
    case: Case
    vary: str
    at: int
    against: int

    @property
    def shapes(self) -> ComparedShapes:
        """Both sides."""
        return ComparedShapes.named(self.case, self.vary, self.at, self.against)

    @property
    def left(self) -> Case:
        """Returns the left side's case."""
        return self.shapes.left


@dataclass(frozen=True)
class Operators:
    """Two operators of one target over the same numbers, such as a 1x1 convolution and a product.

    ``sized(n)`` gives both cases with ``n`` products for each output, numbered alike, and as many
    outputs in the same order; ``size`` is the report's n. Both get the left side's numbers, or
    ``value`` in every place and weights of 1.
    """

    text: str
    sized: Callable[[int], tuple[Case, Case]]
    size: int
    value: float | None = None

    @property
    def left(self) -> Case:
        """Returns the left side's case."""
        return self.sized(self.size)[0]


Question = Pair | Operators


@dataclass(frozen=True)
class Report:
    """A public thread: its title and its maintainers' answer in our words, and its questions.

    ``home``: the target whose smallest case is looked for first. ``reason``: why there is nothing
    to ask here.
    """

    thread: str
    title: str
    answer: str | None
    questions: tuple[Question, ...] = ()
    home: str = ""
    reason: str | None = None


MOST, KINDS, FILTERS = 512, 4, 8
"""Differing outputs whose cause is looked for, of how many kinds of windows (those at the borders
read padding, each kind in its own way) and of how many filters: a report may have millions, and
each kind and each filter may cost a reveal."""

DEAR = 1e11
"""Products of a reveal from which on a copy with ``FILTERS`` filters is explained instead."""


@dataclass
class Answer:
    """What a question gives on a target.

    ``bits``: of the first differing output on both sides. ``explained``: differing outputs that
    were looked at.
    """

    left: Case
    right: Case
    compared: int
    differing: int
    max_ulp: int | None
    bits: tuple[int | None, int | None]
    causes: dict[str, int] = field(default_factory=dict)
    explained: int = 0
    replayed: int = 0
    told: Comparison | None = None

    @staticmethod
    def of(found: Comparison, causes: dict[str, int] | None = None, looked: int = 0) -> Answer:
        """Returns what differs; ``causes`` of that many of the outputs as were looked at."""
        differences = found.differences
        known = bool((differences.ulps != ulp.NAN).all())
        first = (differences.bits_a[:1].tolist(), differences.bits_b[:1].tolist())
        bits = first[0][0] if first[0] else None, first[1][0] if first[1] else None
        counts = found.compared, len(found.differing), found.max_ulp if known else None
        return Answer(found.left.case, found.right.case, *counts, bits, causes or {}, looked)

    def because(self, told: Comparison | None, causes: dict[str, int], looked: int) -> Answer:
        """With the causes that another answer, or a comparison of some outputs, found."""
        replayed = 0 if told is None else told.replayed
        return replace(self, causes=causes, explained=looked, replayed=replayed, told=told)

    def row(self) -> dict[str, Any]:
        """Returns columns of ``findings``."""
        names = ("compared", "differing", "max_ulp", "explained", "causes", "replayed")
        bits = dict(zip(("bits_at", "bits_against"), self.bits, strict=True))
        return bits | {name: getattr(self, name) for name in names}


def answer(question: Question, session: AnySession) -> Answer:
    """Runs both sides and names causes. TargetError; InputError."""
    if isinstance(question, Operators):
        return explained(same_numbers(question, session, question.size), session)
    return _pair(question, session)


def _pair(question: Pair, session: AnySession) -> Answer:
    """Both sides of a pair; of many filters, where a reveal would take long, a copy with few."""
    found = compare_shapes(question.shapes, session, session)
    if question.vary == "filters" or _work(found.right.case) < DEAR or not len(found.differing):
        return explained(found, session)
    few = replace(question, case=question.case.with_(filters=FILTERS))
    told = explained(compare_shapes(few.shapes, session, session), session)
    if not told.differing:
        return explained(found, session)
    return Answer.of(found).because(told.told, told.causes, told.explained)


def _work(case: Case) -> float:
    """Returns products of a reveal, roughly: those of a run, once for each product of an output."""
    return float(np.prod(case.output_shape())) * case.summands**2


def same_numbers(question: Operators, session: AnySession, size: int) -> Comparison:
    """Both operators of a size over the same numbers, output by output in the same order."""
    left, right = question.sized(size)
    x, w, b = operands.generate(left)
    if question.value is not None:
        x = round_to(np.full(left.input_shape(), question.value), left.dtype)
        w = round_to(np.ones(left.weight_shape), left.dtype)
    theirs = x.reshape(right.input_shape()), w.reshape(right.weight_shape), b
    one, two = run_case(session, left, (x, w, b)), run_case(session, right, theirs)
    mine, other = (np.argwhere(np.ones(side.operands.y.shape, bool)) for side in (one, two))
    return Comparison(left, one, two, OutputPairs(mine, other, np.ones(len(mine), bool)))


def explained(found: Comparison, session: AnySession) -> Answer:
    """Returns what differs among pairs of outputs, and the causes of up to ``MOST`` of it."""
    if not len(found.differing):
        return Answer.of(found)
    pairs = found.pairs.some(_some(found))
    told = Comparison(found.case, found.left, found.right, pairs)
    told.reveal(session, session, Revealer(tried=None), np.arange(len(pairs)))
    return Answer.of(found).because(told, told.causes, len(pairs))


def _some(found: Comparison) -> np.ndarray:
    """Up to ``MOST`` differing pairs: of the most frequent kinds of windows, and some filters."""
    differing = found.differing
    position, filters = found.pairs.left[differing].T
    read = classes_of(found.left.case)[0][position]
    kinds, counts = np.unique(read, return_counts=True)
    mine = np.isin(read, kinds[np.argsort(-counts, kind="stable")[:KINDS]])
    mine &= np.isin(filters, _spread(np.unique(filters[mine]), FILTERS))
    return _spread(differing[mine], MOST)


def _spread(values: np.ndarray, most: int) -> np.ndarray:
    """Up to ``most`` of these values, the first and the last among them."""
    return values[np.unique(np.linspace(0, len(values) - 1, most).astype(int))]


LARGEST = 256
"""Products up to which two operators are compared: the first number that sets them apart."""

Told = dict[str, Any]


def smallest(question: Question, session: AnySession) -> Told | None:
    """Returns the smallest case as JSON for ``findings.smallest``; None: none was found.
    TargetError."""
    if isinstance(question, Operators):
        return _operators(question, session)
    failing = Failing(session, session)
    found = smallest_finding(Finding.drawn_from(question.shapes), failing.by_bits)
    if found is None or not found.shown:
        return None
    last = found.finding
    told = _told(failing.explained(last), last.left, last.label)
    told |= {"vary": last.vary, "at": last.at, "against": last.against} if last.paired else {}
    return told | {"calls": found.calls, "ended": found.ended}


def _operators(question: Operators, session: AnySession) -> Told | None:
    """Returns the least number of products at which the two operators differ."""
    for size in range(1, min(question.size, LARGEST) + 1):
        try:
            both = same_numbers(question, session, size)
        except (InputError, TargetError):
            continue
        found = explained(both, session)
        if found.differing and found.told is not None:
            named = {"against_case": found.right.to_json(), "calls": size, "ended": "minimal"}
            return _told(found.told, found.left, _label(found.left)) | named
    return None


def _label(case: Case) -> str:
    """Returns the case's shapes in words, without its operands."""
    return case.with_(operands="normal").label


def _told(found: Comparison, case: Case, label: str) -> Told:
    """Returns a case, and how the first differing output is made on both sides."""
    given: Told = {"label": label, "case": case.to_json(), "causes": found.causes}
    return given | _sides(found)


def _sides(found: Comparison) -> Told:
    """Both sides' numbers, bits and summations of one differing output; {} where none is known."""
    if not len(found.differing):
        return {}
    pair = int(found.differing[0])
    return {
        "cause": found.cause[0],
        "ulp": None if found.ulps[0] == ulp.NAN else int(found.ulps[0]),
        "left": _side(found.left, found.pairs.left[pair]),
        "right": _side(found.right, found.pairs.right[pair]),
    }


def _side(side: CaseRun, place: np.ndarray) -> Told:
    """One output: its place, bits and summation, and the numbers of the whole run, as exact hex."""
    dtype, held = side.case.dtype, side.operands
    given: Told = {
        "target": side.target.text,
        "case": side.case.to_json(),
        "place": place.tolist(),
        "bits": int(floats.to_bits(held.y[tuple(place)], dtype)),
        "x": _hex(held.x, dtype),
        "w": _hex(held.w, dtype),
        "b": None if held.b is None else _hex(held.b, dtype),
    }
    if (summation := side.summation(place)) is not None:
        tree, rounding = summation
        given |= {"tree": tree.text, "rounding": rounding.to_json()}
    return given


def _hex(array: np.ndarray, dtype: str) -> list[str]:
    return [float(value).hex() for value in floats.widen(array, dtype).reshape(-1)]


Asked = tuple[Report, Question]
Key = tuple[str, str, str]


def ask(
    reports: Sequence[Report],
    targets: Sequence[Target],
    store: Store,
    experiment: str,
    progress: Tell | None = None,
    sessions: Callable[[Target], AnySession] = open_session,
) -> Tally:
    """Runs every report's questions on every target, and stores ``reports`` and ``findings``.

    The smallest case is looked for on the report's ``home`` and, where that does not differ, on
    the first target that does. What is stored of the same run is not run again. What a target
    refuses becomes a row of ``failures``. Ctrl-C leaves with what there is.
    """
    columns = ("thread", "title", "answer", "home", "reason")
    rows = [{name: getattr(one, name) or None for name in columns} for one in reports]
    store.append("reports", [row | {"number": n} for n, row in enumerate(rows)])
    store.flush()
    asked = [(one, question) for one in reports for question in one.questions]
    job = _Asking(store, experiment, progress, sessions)
    job.asked, job.stored, job.rows = asked, _stored(store), {}
    job.run([(target, asked) for target in dict.fromkeys(targets)])
    try:
        if not job.tally.interrupted:
            job.smallest()
    except KeyboardInterrupt:
        job.tally.interrupted = True
    store.flush()
    return job.tally


class _Asking(Campaign[Asked]):
    """``rows``: findings by target, thread and question."""

    refusals = (TargetError, InputError, NotASum)

    asked: list[Asked]
    stored: dict[Key, Row]
    rows: dict[Key, Row]

    def ask(self, part: CampaignPart[Asked], question: Asked) -> None:
        """Puts one question of one target, unless it is stored."""
        report, asked = question
        key = (part.run_id, report.thread, asked.text)
        if key in self.stored:
            self.rows[part.target.text, report.thread, asked.text] = self.stored[key]
            self.tally.before += 1
            return
        found = answer(asked, part.session)
        self.keep("cases", [case_row(found.left), case_row(found.right)])
        row: Row = {"run_id": part.run_id, "thread": report.thread, "target": part.target.text}
        row |= {"question": asked.text, "case_id": found.left.id, **found.row()}
        if isinstance(asked, Pair):
            row |= {name: getattr(asked, name) for name in ("vary", "at", "against")}
        else:
            row["against_case_id"] = found.right.id
        self._add(row)
        self.tally.found += 1

    def _add(self, row: Row) -> None:
        """Stores a row of ``findings``, which replaces the one that it has the keys of."""
        self.keep("findings", row)
        self.rows[row["target"], row["thread"], row["question"]] = row

    def place(self, question: Asked) -> Row:
        """Returns where a question failed; stores its case."""
        case = question[1].left
        self.keep("cases", case_row(case))
        return {"case_id": case.id, "vary": "length", "at": case.length}

    def smallest(self) -> None:
        """Looks for the smallest case of every question, on one target that differs: the report's
        home first, then its library."""
        for report, asked in self.asked:
            key, library = (report.thread, asked.text), report.home.split(",")[0]
            rows = [row for (_, *place), row in self.rows.items() if tuple(place) == key]
            if not any(row.get("smallest") for row in rows):
                rows.sort(key=lambda row: row["target"].split(",")[0] != library)
                rows.sort(key=lambda row: row["target"] != report.home)
                self._shrink(report, asked, [row for row in rows if row["differing"]])

    def _shrink(self, report: Report, asked: Question, rows: Sequence[Row]) -> None:
        """The smallest case on the first of these targets that gives one."""
        for row in rows:
            part = self.parts[row["target"]]
            part.tell(0, f"{report.thread}: smallest")
            try:
                with self.opens(part.target).start() as session:
                    found = smallest(asked, session)
            except self.refusals as error:
                part.fail(error, self.place((report, asked)))
                continue
            if found is not None:
                self._add(row | {"smallest": found})
                if self.store is not None:
                    self.store.flush()
                return


def _stored(store: Store) -> dict[Key, Row]:
    """Returns the findings of the store by run, thread and question."""
    found = {}
    for row in load(store.path).arrow("findings").drop_columns("machine").to_pylist():
        whole = {name: json.loads(row[name]) for name in ("causes", "smallest") if row[name]}
        found[row["run_id"], row["thread"], row["question"]] = row | whole
    return found
