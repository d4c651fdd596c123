"""Switches far out are found by bisection, and what contradicts it is found and told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from probe.case.case import Case
from probe.case.errors import InputError
from probe.sizes import thresholds
from probe.sizes.recognition import Pattern, Recogniser
from probe.targets.launch import open_session
from probe.targets.target import Target

pytestmark = pytest.mark.long

CASE = Case(op="conv1d", kernel=5, in_channels=2)


def found(target: str = "reference", case: Case = CASE, upto: int = 3000, **options):
    with open_session(Target.parse(target), inline=True) as session:
        return thresholds.find_thresholds(session, case, upto, **options)


@pytest.fixture
def pretend(monkeypatch):
    """pretend(f): f(length) is (interior, tail) of every length; nothing is run."""

    def replace(shown):
        def pattern(self, length: int, budget: int = 0) -> Pattern:
            while len(self.kinds) < 9:
                self.kinds.append((len(self.kinds),))
            interior, tail = shown(length)
            return Pattern(length, np.zeros(1, int), True, interior, tail, 0, 0, True)

        monkeypatch.setattr(Recogniser, "pattern", pattern)
        monkeypatch.setattr(Recogniser, "causes", lambda self, one, other: ("order",))

    return replace


def pairs(result: thresholds.Thresholds) -> list[tuple[int, int]]:
    return [(one.before, one.at) for one in result.switches]


@pytest.mark.parametrize("switch", [20, 150])
def test_a_real_switch_is_found_to_the_length(switch: int) -> None:
    result = found(f"reference,length_switch={switch}", upto=200, scanned=40)
    (only,) = result.switches
    assert (only.before, only.at) == (switch + 3, switch + 4)
    assert only.causes == ("order",) and only.scanned == (switch == 20)
    assert result.upto == 200 and not result.violations and result.period == 1
    assert list(thresholds.islands(result)) == [
        (5, switch + 3, only.left),
        (switch + 4, 200, only.right),
    ]


def test_several_switches_in_one_interval_and_the_cost(pretend) -> None:
    pretend(lambda n: ((n > 70_000) + (n > 80_001) + (n > 123_456), ()))
    result = found(upto=1_000_000, scanned=64)
    assert pairs(result) == [(70_000, 70_001), (80_001, 80_002), (123_456, 123_457)]
    assert len(result.patterns) < 64 + 14 * 3 + 3 * 18


def test_packets_leave_tails_by_remainder(pretend) -> None:
    pretend(lambda n: (0, ((1, n % 4),) if n % 4 else ()))
    result = found(upto=50_000)
    assert result.period == 4 and not result.switches and not result.violations
    assert result.tails == {0: {0: (), 1: ((1, 1),), 2: ((1, 2),), 3: ((1, 3),)}}


def test_tails_that_change_far_out_are_told(pretend) -> None:
    pretend(lambda n: (0, ((1, n % 4),) if n % 4 and n < 9000 else ()))
    result = found(upto=500_000)
    assert any("has the tail none" in one for one in result.violations)


def test_interiors_that_follow_the_remainder_are_bisected_within_one(pretend) -> None:
    pretend(lambda n: (n % 2 + 2 * (n > 5000), ()))
    result = found(upto=20_000)
    assert result.period == 2
    far = [one for one in result.switches if not one.scanned]
    assert {(5000, 5001)} <= {(one.before, one.at) for one in far}


def test_an_island_is_told_as_a_violation_and_bounded(pretend) -> None:
    pretend(lambda n: (int(20_000 < n < 30_000), ()))
    result = found(upto=40_000, checks=12)
    assert result.violations
    assert (20_000, 20_001) in pairs(result) and (29_999, 30_000) in pairs(result)


def test_many_contradictions_end(pretend) -> None:
    pretend(lambda n: (n * 2654435761 % 7 if n > 80 else 0, ()))
    result = found(upto=100_000, checks=20, scanned=64)
    assert len(result.violations) > 10


def test_memory_and_time_limit_how_far_it_reaches() -> None:
    result = found(upto=10**6, memory=2 << 20, scanned=8)
    assert 10_000 < result.upto < 10**6
    assert "2 MiB are allowed" in result.limited
    late = found(upto=10**6, seconds=0.0)
    assert late.limited == "stopped after 0 s" and late.upto == 5


def test_what_was_assumed_and_checked_is_said() -> None:
    told = json.loads(json.dumps(found(upto=500, scanned=64).to_json()))
    assert any("at most once" in one for one in told["assumed"])
    assert any("random lengths" in one for one in told["checked"])
    assert told["switches"] == [] and told["unknown"] is None and told["lengths_run"] > 64
    near = json.loads(json.dumps(found(upto=30).to_json()))
    assert [one.split(";")[0] for one in near["assumed"]] == ["1 thread", "operands are finite"]


@pytest.mark.slow
def test_unknown_outputs_and_unsteady_calls_are_told() -> None:
    told = found("reference,algorithm=winograd", Case(op="conv1d", kernel=3), 30).to_json()
    assert told["unknown"]["lengths"] and told["unknown"]["evidence"]
    random = found("reference,algorithm=random", CASE.with_(in_channels=40), 30)
    assert any("same call again" in one for one in random.violations)


def test_too_short_is_the_users_error() -> None:
    with pytest.raises(InputError, match="upto=4: .* is 5"):
        found(upto=4)
