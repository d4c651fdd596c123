"""The answer of one or two targets to a question: what differs, and what causes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import probe.explain as explain
from probe import operands, ulp
from probe.case import Case
from probe.case.operators import OPERATORS
from probe.explain import Explanation, Pairs, Side
from probe.explain.judge import classes_of
from probe.floats import round_to
from probe.launch import AnySession
from probe.order.summation import Summation
from probe.reports.questions import Conventions, Operators, Pair, Question
from probe.reproduction.failing import windows

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
    told: Explanation | None = None

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
        left, right = question.sides(session.target)
        return None if right is None else conventions(first, left, session, right)
    if isinstance(question, Pair):
        return _pair(question, session)
    one, two = same_numbers(question, session, *question.sides(session.target))
    return explained(one, two, in_order(one, two), session, session)


def _pair(question: Pair, session: AnySession) -> Answer:
    """Both sides of a pair; of many filters, where a reveal would take long, a copy with few."""
    one, two, pairs = _sides(question, session)
    if question.vary == "filters" or _work(two.case) < DEAR:
        return explained(one, two, pairs, session, session)
    found = _differences(one, two, pairs)
    if not len(found.index):
        return _counted(one, two, pairs, found, {}, 0)
    few = replace(question, case=question.case.with_(filters=FILTERS))
    told = explained(*_sides(few, session), session, session)
    if not told.differing:
        return explained(one, two, pairs, session, session)
    answer = _counted(one, two, pairs, found, told.causes, told.explained)
    answer.replayed, answer.told = told.replayed, told.told
    return answer


def _sides(question: Pair, session: AnySession) -> tuple[Side, Side, Pairs]:
    left, right = question.sides(session.target)
    pairs = explain.must_agree(question.case, question.vary, left, right)
    return explain.run(session, left), explain.run(session, right), pairs


def _work(case: Case) -> float:
    """Products of a reveal, roughly: those of a run, once for each product of an output."""
    return float(np.prod(case.output_shape())) * case.summands**2


def same_numbers(
    question: Operators, session: AnySession, left: Case, right: Case
) -> tuple[Side, Side]:
    """Both operators over the same numbers."""
    x, w, b = operands.generate(left)
    if question.value is not None:
        x, w = _constant(left, question.value)
    theirs = x.reshape(right.input_shape()), w.reshape(right.weight_shape), b
    return explain.run(session, left, (x, w, b)), explain.run(session, right, theirs)


def _constant(case: Case, value: float) -> tuple[np.ndarray, np.ndarray]:
    x = round_to(np.full(case.input_shape(), value), case.dtype)
    return x, round_to(np.ones(case.weight_shape), case.dtype)


def in_order(left: Side, right: Side) -> Pairs:
    """Every output of the left side with the right side's of the same number."""
    places = _all_places(left)
    return Pairs(places, _all_places(right), np.ones(len(places), bool))


def _all_places(side: Side) -> np.ndarray:
    return np.argwhere(np.ones(side.operands.y.shape, bool))


def conventions(first: AnySession, left: Case, second: AnySession, right: Case) -> Answer:
    """Two layers that ought to be the same: windows are read off both sides.

    Outputs that one side lacks count as differing, by their window. What a maximum gives differs by
    nothing but its window and what padding puts there.
    """
    one, two = explain.run(first, left), explain.run(second, right)
    one.windows, two.windows = windows(first, left), windows(second, right)
    pairs = explain.same_place(one, two)
    lacking = max(one.operands.y.size, two.operands.y.size) - len(pairs.left)
    if OPERATORS[left.op].pool:
        found = _differences(one, two, pairs)
        causes = {"window": len(found.index)} if len(found.index) else {}
        answer = _counted(one, two, pairs, found, causes, len(found.index))
    else:
        answer = explained(one, two, pairs, first, second)
    if lacking:
        answer.compared, answer.differing = answer.compared + lacking, answer.differing + lacking
        answer.causes = dict(Counter(answer.causes) + Counter(window=lacking))
        answer.explained += lacking
    return answer


def explained(one: Side, two: Side, pairs: Pairs, first: AnySession, second: AnySession) -> Answer:
    """What differs among pairs of outputs, and the causes of up to ``MOST`` of it."""
    found = _differences(one, two, pairs)
    if not len(found.index):
        return _counted(one, two, pairs, found, {}, 0)
    chosen = _some(one, pairs, found.index)
    some = Pairs(pairs.left[chosen], pairs.right[chosen], pairs.same_window[chosen])
    known: list[Summation] = []
    for side, session, places in ((one, first, some.left), (two, second, some.right)):
        if not side.refusal:
            wanted = np.zeros(side.replays.shape, bool)
            wanted[tuple(places.T)] = True
            explain.add_orders(side, session, known, wanted)
            known = [] if side.orders is None else side.orders.summations
    told = explain.compare(one.case, one, two, some)
    answer = _counted(one, two, pairs, found, told.causes, len(chosen))
    answer.replayed, answer.told = told.replayed, told
    return answer


def _some(one: Side, pairs: Pairs, differing: np.ndarray) -> np.ndarray:
    """Up to ``MOST`` of these pairs: of the most frequent kinds of windows, and of some filters."""
    position, filters = pairs.left[differing].T
    kinds, counts = np.unique(read := classes_of(one.case)[0][position], return_counts=True)
    mine = np.isin(read, kinds[np.argsort(-counts, kind="stable")[:KINDS]])
    mine &= np.isin(filters, _spread(np.unique(filters[mine]), FILTERS))
    return _spread(differing[mine], MOST)


def _spread(values: np.ndarray, most: int) -> np.ndarray:
    """Up to ``most`` of these values, the first and the last among them."""
    return values[np.unique(np.linspace(0, len(values) - 1, most).astype(int))]


def _differences(one: Side, two: Side, pairs: Pairs) -> ulp.Differences:
    ours, theirs = one.operands.y[tuple(pairs.left.T)], two.operands.y[tuple(pairs.right.T)]
    return ulp.differences(ours, theirs, one.case.dtype)


def _counted(
    one: Side,
    two: Side,
    pairs: Pairs,
    found: ulp.Differences,
    causes: dict[str, int],
    looked: int,
) -> Answer:
    distances = found.ulps[found.ulps != ulp.NAN]
    largest = int(np.abs(distances).max(initial=0)) if len(distances) == len(found.ulps) else None
    counts = (len(pairs.left), len(found.index))
    bits = (int(found.bits_a[0]), int(found.bits_b[0])) if len(found.index) else (None, None)
    return Answer(one.case, two.case, *counts, largest, bits, causes, looked)
