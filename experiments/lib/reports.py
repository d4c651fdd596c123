"""Runs public reports on every target, explains them and reduces their cases: a report's questions,
a target's answers, and the smallest case.

The threads themselves are data of an experiment: nothing here knows one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib.answering import Answer, Answering, place
from lib.frame import Experiment, patient
from probe.case import floats, ulp
from probe.case.case import Case
from probe.case.errors import InputError, NotASum, TargetError
from probe.explain.comparison import Comparison, classes_of, compare_shapes
from probe.explain.runs import CaseRun, ComparedShapes, Finding, Revealer
from probe.report.folder import Failing
from probe.report.shrink import smallest_finding
from probe.sweep.campaign import CampaignPart, Row, Tally, case_row
from probe.sweep.stored import load
from probe.targets.launch import AnySession
from probe.targets.target import Target


@dataclass(frozen=True)
class Pair:
    """One operator at two values of the axis ``vary``: both must give the same. ``name``: what is
    special about it."""

    case: Case
    vary: str
    at: int
    against: int
    name: str = ""

    @property
    def text(self) -> str:
        """Such as ``batch 1 against 2``; a product's length is its rows."""
        axis = "rows" if self.case.op == "matmul" else self.vary
        return f"{self.name}{axis} {self.at} against {self.against}"

    @property
    def shapes(self) -> ComparedShapes:
        return ComparedShapes.named(self.case, self.vary, self.at, self.against)

    @property
    def left(self) -> Case:
        return self.shapes.left


@dataclass(frozen=True)
class Report:
    """A public thread: its title and its maintainers' answer in our words, and its questions.

    ``home``: the target whose smallest case is looked for first. ``reason``: why there is nothing
    to ask here.
    """

    thread: str
    title: str
    answer: str | None
    questions: tuple[Pair, ...] = ()
    home: str = ""
    reason: str | None = None


MOST, KINDS, FILTERS = 512, 4, 8
"""Differing outputs whose cause is looked for, of how many kinds of windows (those at the borders
read padding, each kind in its own way) and of how many filters: a report may have millions, and
each kind and each filter may cost a reveal."""

DEAR = 1e11
"""Products of a reveal from which on a copy with ``FILTERS`` filters is explained instead."""


def answer(question: Pair, session: AnySession) -> Row:
    """Runs both sides and names causes; of many filters, where a reveal would take long, of a copy
    with few. Columns of ``findings``. TargetError; InputError."""
    found = looked = compare_shapes(question.shapes, session, session)
    case = found.right.case
    # products of a reveal, roughly: those of a run, once for each product of an output
    work = float(np.prod(case.output_shape())) * case.summands**2
    if question.vary != "filters" and work >= DEAR and len(found.differing):
        few = replace(question, case=question.case.with_(filters=FILTERS))
        copy = compare_shapes(few.shapes, session, session)
        looked = copy if len(copy.differing) else found
    told = explained(looked, session)
    differences = found.differences
    known = bool((differences.ulps != ulp.NAN).all())
    first = [bits[:1].tolist() or [None] for bits in (differences.bits_a, differences.bits_b)]
    return {
        "compared": found.compared,
        "differing": len(found.differing),
        "max_ulp": found.max_ulp if known else None,
        "bits_at": first[0][0],
        "bits_against": first[1][0],
        "explained": len(told.pairs) if told else 0,
        "causes": told.causes if told else {},
        "replayed": told.replayed if told else 0,
    }


def explained(found: Comparison, session: AnySession) -> Comparison | None:
    """The causes of up to ``MOST`` differing pairs; None: none differs."""
    if not len(found.differing):
        return None
    pairs = found.pairs.some(_some(found))
    told = Comparison(found.case, found.left, found.right, pairs)
    told.reveal(session, session, Revealer(tried=None), np.arange(len(pairs)))
    return told


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


Told = dict[str, Any]


def smallest(question: Pair, session: AnySession) -> Told | None:
    """The smallest case as JSON for ``findings.smallest``; None: none was found.
    TargetError."""
    failing = Failing(session, session)
    found = smallest_finding(Finding.drawn_from(question.shapes), failing.by_bits)
    if found is None or not found.shown:
        return None
    last = found.finding
    told: Told = {"label": last.label, "case": last.left.to_json()}
    told |= made_by(failing.explained(last))
    told |= {"vary": last.vary, "at": last.at, "against": last.against} if last.paired else {}
    return told | {"calls": found.calls, "ended": found.ended}


def made_by(found: Comparison) -> Told:
    """Causes; and both sides' numbers, bits and summations of the first differing output."""
    if not len(found.differing):
        return {"causes": found.causes}
    pair = int(found.differing[0])
    return {
        "causes": found.causes,
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


Asked = tuple[Report, Pair]


def ask(
    experiment: Experiment,
    reports: Sequence[Report],
    targets: Sequence[str],
    opens: Callable[[Target], AnySession] = patient,
) -> Tally:
    """Runs every report's questions on every target, and stores ``reports`` and ``findings``.

    The smallest case is looked for on the report's ``home`` and, where that does not differ, on
    the first target that does. What a target refuses becomes a row of ``failures``.
    """
    columns = ("thread", "title", "answer", "home", "reason")
    rows = [{name: getattr(one, name) or None for name in columns} for one in reports]
    with experiment.store() as (kept, _):
        kept.append("reports", [row | {"number": n} for n, row in enumerate(rows)])
    questions = [(one, question) for one in reports for question in one.questions]
    asked = [(text, question) for text in dict.fromkeys(targets) for question in questions]
    return experiment.ask(_Asking, asked, "findings made", opens, pairs=questions)


class _Asking(Answering[Asked]):
    """``pairs``: whose smallest cases are looked for when all are answered."""

    table, key = "findings", ("thread", "question")
    refusals = (TargetError, InputError, NotASum)
    pairs: list[Asked]

    def columns(self, question: Asked) -> Row:
        report, pair = question
        row: Row = {"thread": report.thread, "question": pair.text, "case_id": pair.left.id}
        return row | {name: getattr(pair, name) for name in ("vary", "at", "against")}

    def answer(self, part: CampaignPart[Asked], question: Asked) -> Answer:
        shapes = question[1].shapes
        finding = answer(question[1], part.session)
        return {"cases": [case_row(shapes.left), case_row(shapes.right)], "findings": finding}

    def place(self, question: Asked) -> Row:
        """Where a question failed; stores its case."""
        self.keep("cases", case_row(question[1].left))
        return place(question[1].left)

    def run(self, questions: Any, workers: int | None = None) -> Tally:
        tally = super().run(questions, workers)
        if not tally.interrupted:
            for report, pair in self.pairs:
                self.smallest(report, pair)
        return tally

    def smallest(self, report: Report, pair: Pair) -> None:
        """The smallest case of a question, on one target that differs: the report's home first,
        then its library."""
        assert self.store is not None
        self.store.flush()
        runs, library = {part.run_id for part in self.parts.values()}, report.home.split(",")[0]
        rows = [
            row
            for row in load(self.store.path).arrow("findings").drop_columns("machine").to_pylist()
            if row["run_id"] in runs
            and (row["thread"], row["question"]) == (report.thread, pair.text)
        ]
        if any(row["smallest"] for row in rows):
            return
        rows.sort(key=lambda row: row["target"].split(",")[0] != library)
        rows.sort(key=lambda row: row["target"] != report.home)
        for row in rows:
            if not row["differing"]:
                continue
            part = self.parts[row["target"]]
            part.tell(0, f"{report.thread}: smallest")
            try:
                with self.opens(part.target).start() as session:
                    told = smallest(pair, session)
            except self.refusals as error:
                part.fail(error, self.place((report, pair)))
                continue
            if told is not None:
                self.keep("findings", row | {"causes": json.loads(row["causes"]), "smallest": told})
                return
