"""Ways are recognised by bits, and revealed only where they are new."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import Case
from probe.launch import open_session
from probe.search import recognition
from probe.search.recognition import UNKNOWN, Recogniser
from probe.target import Target

CASE = Case(op="conv1d", kernel=5, in_channels=2)
ROOMY = {"kernel": 3, "in_channels": 4, "filters": 4}


@pytest.fixture
def recogniser():
    """recogniser(target text, case): on a session that ends with the test."""
    sessions = []

    def make(text: str, case: Case) -> Recogniser:
        sessions.append(open_session(Target.parse(text), inline=True).start())
        return Recogniser(sessions[-1], case)

    yield make
    for session in sessions:
        session.close()


def test_another_order_is_another_kind(recogniser) -> None:
    known = recogniser("reference,length_switch=6", CASE)
    short, other, long, longer = (known.pattern(n) for n in (8, 9, 10, 500))
    assert short.interior == other.interior != long.interior == longer.interior
    assert known.causes(short.interior, long.interior) == ("order",)
    assert len(longer.kinds) == 496 and longer.whole and longer.tail == ()


def test_what_is_known_costs_the_sets_and_a_control(recogniser) -> None:
    known = recogniser("reference", CASE)
    known.pattern(8)
    before = known.calls
    known.pattern(99)
    assert known.calls - before == len(known.periodic.sets) + 1


@pytest.mark.parametrize(
    "case",
    [
        Case(op="conv1d", **ROOMY, padding="same", stride=2, bias="normal"),
        Case(op="conv1d", **ROOMY, padding="4:4", dilation=2, groups=2),
        Case(op="conv2d", **ROOMY, padding="same", height=5, batch=2, dtype="bfloat16"),
        Case(op="depthwise_conv2d", **ROOMY, padding="caffe", height=4, dtype="float16"),
        Case(op="conv1d", **ROOMY, dtype="float64"),
    ],
    ids=lambda case: case.label,
)
def test_padding_shows_no_other_kind(recogniser, case: Case) -> None:
    known = recogniser("reference,algorithm=blocked", case)
    for length in (9, 10, 64, 131):
        found = known.pattern(length)
        assert found.unknown == 0 and found.tail == () and found.elsewhere == 0
        assert found.interior == 0


def test_the_same_leaves_as_a_full_reveal(recogniser) -> None:
    known = recogniser("reference,algorithm=pairwise", CASE.with_(bias="normal"))
    known.pattern(9)
    assert [tree.text for tree, _ in known.ways] == ["(((((0+1)+(2+3))+((4+5)+(6+7)))+(8+9))+b)"]


def test_no_sum_stays_unknown_and_is_not_asked_for_ever(recogniser) -> None:
    known = recogniser("reference,algorithm=winograd", Case(op="conv1d", kernel=3))
    for length in (8, 9, 10, 11):
        found = known.pattern(length)
        assert found.unknown == length - 2
    assert known.kinds[found.interior] == (UNKNOWN,) and known.evidence
    before = known.calls
    known.pattern(12)
    assert known.calls - before == len(known.periodic.sets) + 1


def test_other_bits_in_the_same_call_are_not_steady(recogniser) -> None:
    known = recogniser("reference,algorithm=random", CASE.with_(in_channels=40))
    assert not known.pattern(9).steady
    assert "again" in known.evidence and not known.ways


def test_calls_too_large_to_look_at_whole_are_looked_at_in_places(recogniser, monkeypatch) -> None:
    monkeypatch.setattr(recognition, "ALL", 1000)
    monkeypatch.setattr(recognition, "ENDS", 16)
    known = recogniser("reference,length_switch=1500", CASE)
    short, long = known.pattern(1500), known.pattern(1504)
    assert not short.whole and len(short.kinds) <= 64
    assert short.interior != long.interior and long.unknown == 0


def test_runs_and_rows() -> None:
    assert recognition._runs(np.array([2, 2, 5])) == ((2, 2), (5, 1))
    rows = recognition._some(10**6)
    assert rows[0] == 0 and rows[-1] == 10**6 - 1 and len(rows) > 3 * recognition.ENDS
    assert (recognition._some(20) < 20).all()
