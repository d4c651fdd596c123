"""The search for the release in which something changed: few questions, and its assumption told."""

from __future__ import annotations

import json
import math

import pytest

from probe import installation
from probe.case import Case
from probe.cli import shell
from probe.errors import InputError
from probe.store import Store
from probe.store.results import load
from probe.switch_points import bisection
from probe.switch_points.bisection import (
    ReleaseQuestion,
    ReleaseStep,
    bisect_releases,
    first_change,
    releases_between,
)
from probe.target import Target

pytestmark = pytest.mark.long

CASE = Case(op="conv1d", kernel=5, operands="cancel")


def answers(seen):
    """An ``ask`` that gives a letter a release, and the list of what was asked; None: it can't."""
    asked = []

    def ask(version):
        asked.append(version)
        letter = seen[int(version)]
        return ReleaseStep(version, None if letter == "?" else letter, why="no wheel")

    return ask, asked


def search(seen):
    ask, asked = answers(seen)
    found = first_change([str(n) for n in range(len(seen))], ask)
    assert len(asked) == len(set(asked)), "no release is asked twice"
    return found, asked


@pytest.mark.parametrize("size", [2, 3, 7, 30])
def test_every_place_of_a_change_is_found_with_few_questions(size):
    for place in range(1, size):
        found, asked = search("A" * place + "B" * (size - place))
        assert (found.last, found.first) == (str(place - 1), str(place))
        assert found.holds and len(asked) <= 2 + math.ceil(math.log2(size))


def test_equal_ends_end_the_search():
    found, asked = search("AABA")
    assert found.first is None and asked == ["0", "3"]


def test_a_third_answer_speaks_against_the_assumption():
    found, _ = search("AABBBCCC")
    assert found.first == "2" and not found.holds


def test_releases_that_cannot_be_asked_are_passed_over():
    found, _ = search("AA??BB")
    assert (found.last, found.first, found.skipped) == ("1", "4", ["2", "3"])
    assert found.holds


def test_an_end_that_cannot_be_asked():
    with pytest.raises(InputError, match="release=3: no wheel; take a different release"):
        search("AAB?")


def test_the_releases_between_two():
    ends = Target.parse("tensorflow==1.2.1"), Target.parse("tensorflow==1.5.1")
    assert releases_between(*ends) == ["1.2.1", "1.3.0", "1.4.0", "1.5.0", "1.5.1"]
    assert releases_between(*ends[::-1]) == ["1.5.1", "1.5.0", "1.4.0", "1.3.0", "1.2.1"]
    assert releases_between(*ends, ["1.4.1", "9.9"]) == ["1.2.1", "1.4.1", "1.5.1"]
    others = Target.parse("onnxruntime==1.9.1"), Target.parse("onnxruntime==1.12.0")
    assert releases_between(*others) == ["1.9.1", "1.10.0", "1.11.0", "1.12.0"]


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ("tensorflow", "tensorflow==2.0.0", "it does not name a release; write tensorflow==1.2.3"),
        (
            "tensorflow==1.2.1",
            "torch==2.0.0",
            "is a different target, not only a different release",
        ),
        ("tensorflow==2.6.0", "tensorflow==2.7.0,onednn=0", "use one library, device and set"),
        ("tensorflow==2.6.0", "tensorflow==2.6.0", "both are the same release"),
        ("jax==0.4.30", "jax==0.4.38", "name them: releases=|name them: --releases"),
    ],
)
def test_ends_that_are_no_two_releases(left, right, said):
    with pytest.raises(InputError, match=said):
        releases_between(Target.parse(left), Target.parse(right))


@pytest.fixture
def releases(monkeypatch):
    """Releases of the reference: one by one up to 2; from 3 on otherwise below 8 outputs."""

    def session(where):
        switched = int(where.version) >= 3
        text = "reference,length_switch=8" if switched else "reference"
        return launched(Target.parse(text))

    launched = bisection.open_session
    monkeypatch.setattr(bisection, "open_session", session)
    monkeypatch.setattr(installation, "is_there", lambda where: True)
    monkeypatch.setattr(installation, "install_target", lambda where: None)
    return [str(n) for n in range(1, 5)]


@pytest.mark.parametrize("what", bisection.WHAT)
@pytest.mark.slow_at("order")
def test_orders_bits_and_stability_are_asked_of_a_target(releases, what, tmp_path):
    ends = Target("reference", "1"), Target("reference", "4")
    with Store(tmp_path) as store:
        found = bisect_releases(CASE, *ends, (5, 20), what, releases, store=store)
    assert (found.last, found.first) == ("2", "3") and found.holds
    assert len(found.steps) <= 4
    stored = load(tmp_path)
    assert len(stored.comparisons) and (len(stored.reveals) > 0) is (what == "order")


@pytest.mark.slow
def test_the_command_says_what_it_assumed(releases, tmp_path, capsys):
    case = ["--op", "conv1d", "--kernel", "5", "--operands", "cancel", "--lengths", "5,20"]
    ends = ["--between", "reference==1", "--and", "reference==4", "--releases", ",".join(releases)]
    command = ["bisect", *case, *ends, "--store", str(tmp_path)]
    assert shell.run([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["first"] == "3" and report["holds"] and "only one change" in report["assumption"]
    assert shell.run(command) == 0
    assert "order changed in 3; 2 is as the first end" in capsys.readouterr().out


def test_nothing_is_stored_unasked(releases, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    case = ["--op", "conv1d", "--kernel", "5", "--operands", "cancel", "--lengths", "5,20"]
    ends = ["--between", "reference==1", "--and", "reference==4", "--releases", ",".join(releases)]
    assert shell.run(["bisect", *case, *ends, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["first"] == "3" and report["store"] is None
    assert not [*tmp_path.iterdir()]


def test_an_unknown_question():
    with pytest.raises(InputError, match="use bits or order or stability"):
        bisect_releases(
            CASE, Target("tensorflow", "1.2.1"), Target("tensorflow", "1.5.0"), (5, 6), "luck"
        )


def test_a_question_can_be_made_for_any_target():
    assert ReleaseQuestion(CASE, Target("tensorflow", "1.2.1"), (5, 6), "bits").keep
