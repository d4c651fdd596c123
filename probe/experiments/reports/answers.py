"""The answer of one or two targets to a question: what differs, and what causes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from probe import operands, ulp
from probe.case import Case
from probe.comparison import Comparison, Pairs, Revealer, classes_of, compared, run
from probe.experiments.reports.questions import Conventions, Operators, Pair, Question
from probe.floats import round_to
from probe.launch import AnySession

MOST, KINDS, FILTERS = 512, 4, 8
"""Differing outputs whose cause is looked for, of how many kinds of windows (those at the borders
read padding, each kind in its own way) and of how many filters: a report may have millions, and
each kind and each filter may cost a reveal."""

DEAR = 1e11
"""Products of a reveal from which on a copy with ``FILTERS`` filters is explained instead."""

Origin = Callable[[str], AnySession]


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
        """What differs; ``causes`` of so many of the outputs as were looked at."""
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
        """Columns of ``findings``."""
        names = ("compared", "differing", "max_ulp", "explained", "causes", "replayed")
        bits = dict(zip(("bits_at", "bits_against"), self.bits, strict=True))
        return bits | {name: getattr(self, name) for name in names}


def answer(question: Question, session: AnySession, origin: Origin) -> Answer | None:
    """Runs both sides and names causes; None: the right side can't be written for this target.

    ``origin(text)`` gives a started session of another target. TargetError; InputError.
    """
    if isinstance(question, Conventions):
        first = origin(question.origin) if question.origin else session
        right = question.written(session.target, question.case)
        return None if right is None else conventions(first, question.case, session, right)
    if isinstance(question, Operators):
        return explained(same_numbers(question, session, question.size), session, session)
    return _pair(question, session)


def _pair(question: Pair, session: AnySession) -> Answer:
    """Both sides of a pair; of many filters, where a reveal would take long, a copy with few."""
    found = compared(question.shapes, session, session)
    if question.vary == "filters" or _work(found.right.case) < DEAR or not len(found.differing):
        return explained(found, session, session)
    few = replace(question, case=question.case.with_(filters=FILTERS))
    told = explained(compared(few.shapes, session, session), session, session)
    if not told.differing:
        return explained(found, session, session)
    return Answer.of(found).because(told.told, told.causes, told.explained)


def _work(case: Case) -> float:
    """Products of a reveal, roughly: those of a run, once for each product of an output."""
    return float(np.prod(case.output_shape())) * case.summands**2


def same_numbers(question: Operators, session: AnySession, size: int) -> Comparison:
    """Both operators of a size over the same numbers, output by output in the same order."""
    left, right = question.sized(size)
    x, w, b = operands.generate(left)
    if question.value is not None:
        x = round_to(np.full(left.input_shape(), question.value), left.dtype)
        w = round_to(np.ones(left.weight_shape), left.dtype)
    theirs = x.reshape(right.input_shape()), w.reshape(right.weight_shape), b
    one, two = run(session, left, (x, w, b)), run(session, right, theirs)
    mine, other = (np.argwhere(np.ones(side.operands.y.shape, bool)) for side in (one, two))
    return Comparison(left, one, two, Pairs(mine, other, np.ones(len(mine), bool)))


def conventions(first: AnySession, left: Case, second: AnySession, right: Case) -> Answer:
    """Two layers that must be the same: windows are read off both sides.

    Outputs that one side lacks count as differing, by their window. What a maximum gives differs by
    nothing but its window and what padding puts there.
    """
    one, two = run(first, left, windows=True), run(second, right, windows=True)
    both = Comparison(left, one, two, Pairs.same_place(one, two))
    missing = max(one.operands.y.size, two.operands.y.size) - both.compared
    if left.pool:
        differing = len(both.differing)
        answer = Answer.of(both, {"window": differing} if differing else {}, differing)
    else:
        answer = explained(both, first, second)
    if missing:
        answer.compared, answer.differing = answer.compared + missing, answer.differing + missing
        answer.causes = dict(Counter(answer.causes) + Counter(window=missing))
        answer.explained += missing
    return answer


def explained(found: Comparison, first: AnySession, second: AnySession) -> Answer:
    """What differs among pairs of outputs, and the causes of up to ``MOST`` of it."""
    if not len(found.differing):
        return Answer.of(found)
    pairs = found.pairs.some(_some(found))
    told = Comparison(found.case, found.left, found.right, pairs)
    told.reveal(first, second, Revealer(tried=None), np.arange(len(pairs)))
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
