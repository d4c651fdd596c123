"""The smallest case that still shows what a report shows, and one output's sums on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.case import Case
from probe.comparison import Comparison, Run
from probe.errors import InputError, TargetError
from probe.experiments.reports.answers import Answer, Origin, answer, explained, same_numbers
from probe.experiments.reports.questions import Conventions, Operators, Pair, Question
from probe.launch import AnySession
from probe.reproduction.failing import Failing
from probe.shrink import Finding, shrink

LARGEST = 256
"""Products up to which two operators are compared: the first number that sets them apart."""

Told = dict[str, Any]


def smallest(question: Question, session: AnySession, origin: Origin) -> Told | None:
    """The smallest case as JSON for ``findings.smallest``; None: none was found. TargetError."""
    if isinstance(question, Operators):
        return _operators(question, session)
    if isinstance(question, Pair):
        failing = Failing(session, session)
        return _shrunk(Finding.drawn_from(question.shapes), failing, failing.by_bits)
    if question.small is not None:
        return _small(question, session, origin)
    return _padded(question, session, origin)


def _operators(question: Operators, session: AnySession) -> Told | None:
    """The least number of products at which the two operators differ."""
    for size in range(1, min(question.size, LARGEST) + 1):
        try:
            both = same_numbers(question, session, size)
        except (InputError, TargetError):
            continue
        found = explained(both, session, session)
        if found.differing and found.told is not None:
            named = {"against_case": found.right.to_json(), "calls": size, "ended": "minimal"}
            return _told(found.told, found.left, _label(found.left)) | named
    return None


def _small(question: Conventions, session: AnySession, origin: Origin) -> Told | None:
    """The question's own small case, if it still differs."""
    assert question.small is not None
    found = answer(replace(question, case=question.small), session, origin)
    if found is None or not found.differing:
        return None
    given: Told = {"label": _label(found.left), "case": found.left.to_json()}
    given |= {"against_case": found.right.to_json(), "causes": found.causes}
    return given | {"calls": 0, "ended": "given"} | _first(found)


def _label(case: Case) -> str:
    """The case's shapes in words, without its operands."""
    return case.with_(operands="normal").label


def _first(found: Answer) -> Told:
    return {} if found.told is None else _sides(found.told)


def _padded(question: Conventions, session: AnySession, origin: Origin) -> Told | None:
    """What is left of a layer whose two paddings read other inputs."""
    left, right = question.case, question.written(session.target, question.case)
    if right is None or left.with_(padding=right.padding) != right:
        return None
    first = origin(question.origin) if question.origin else session
    failing = Failing(first, session)
    finding = Finding.of(left, padding=right.padding)

    def other_windows(one: Finding) -> bool:
        try:
            return bool((~failing.explained(one).pairs.same_window).any())
        except TargetError:
            return False

    return _shrunk(finding, failing, other_windows, shows=failing.by_bits)


def _shrunk(
    finding: Finding,
    failing: Failing,
    fails: Callable[[Finding], bool],
    shows: Callable[[Finding], bool] | None = None,
) -> Told | None:
    found = shrink(finding, fails, shows=shows)
    if found is None or not found.shown:
        return None
    last = found.finding
    told = _told(failing.explained(last), last.left, last.label)
    told |= {"vary": last.vary, "at": last.at, "against": last.against} if last.paired else {}
    if last.padding is not None:
        told["against_case"] = last.right.to_json()
    return told | {"calls": found.calls, "ended": found.ended}


def _told(found: Comparison, case: Case, label: str) -> Told:
    """A case, and how the first differing output is made on both sides."""
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


def _side(side: Run, place: np.ndarray) -> Told:
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
