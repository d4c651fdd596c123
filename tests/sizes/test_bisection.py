"""Since which release, and by which conditions, a target gives what it gives.

A change between releases is found with few questions, whatever is asked.
"""

from __future__ import annotations

import json
import math

import pytest

from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.sizes import bisection
from probe.sizes.bisection import (
    ReleaseStep,
    ShownByCase,
    SizeSearch,
    conditions_apart,
    conditions_lines,
    doubled,
    first_change,
    only_releases,
    releases_between,
    search_conditions,
    search_releases,
)
from probe.targets import installation
from probe.targets.target import Target
from probe.ui.cli import shell

pytestmark = pytest.mark.long

CASE = Case(op="conv1d", kernel=5, operands="cancel")


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
        return launched(Target.parse(text), inline=True)

    launched = bisection.open_session
    monkeypatch.setattr(bisection, "open_session", session)
    monkeypatch.setattr(installation, "is_there", lambda where: True)
    monkeypatch.setattr(installation, "install_target", lambda where: None)
    return [str(n) for n in range(1, 5)]


@pytest.mark.parametrize("what", bisection.COMPARED)
def test_orders_and_bits_are_asked_of_a_target(releases, what):
    ends = Target("reference", "1"), Target("reference", "4")
    found = search_releases(*ends, ShownByCase(CASE, (5, 12), what), releases=releases)
    assert (found.last, found.first) == ("2", "3") and found.holds
    assert len(found.steps) <= 4


@pytest.mark.slow
def test_the_command_says_what_it_assumed(releases, capsys):
    case = ["--op", "conv1d", "--kernel", "5", "--operands", "cancel", "--lengths", "5,12"]
    ends = ["--between", "reference==1", "--and", "reference==4", "--releases", ",".join(releases)]
    command = ["bisect", *case, *ends]
    assert shell.run([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["first"] == "3" and report["holds"] and "only one change" in report["assumption"]
    assert shell.run(command) == 0
    assert "order changed in 3; 2 is as the first end" in capsys.readouterr().out


LEFT, RIGHT = (Target.parse(one) for one in ("tensorflow,onednn=0,threads=1", "tensorflow"))


def asking(shows):
    """What is shown is a function of the switches; and the targets that were asked."""
    asked = []

    def ask(where):
        asked.append(where.text)
        if (seen := shows(dict(where.switches))) is None:
            raise TargetError(where.text, "error", "no such kernel")
        return seen, ""

    return ask, asked


def test_one_condition_of_two_is_enough():
    ask, asked = asking(lambda has: "B" if "onednn" in has else "A")
    found = search_conditions(LEFT, RIGHT, ask)
    assert found.sets == [["onednn=0"]] and len(asked) == 4
    assert found.to_json()["conditions"] == ["onednn=0"]


def test_both_together_are_a_set_and_the_left_end_is_not_run_again():
    ask, asked = asking(lambda has: None if has.keys() == {"onednn"} else "AAB"[len(has)])
    found = search_conditions(LEFT, RIGHT, ask)
    assert found.sets == [["onednn=0", "threads=1"]] and not found.to_json()["minimal"]
    assert asked == [LEFT.text, RIGHT.text, "tensorflow,onednn=0", "tensorflow,threads=1"]
    both, unknown = conditions_lines(found, "bits")
    assert "threads=1 bring the bits of" in both
    assert unknown.endswith("is not known: tensorflow,onednn=0 could not be tested")


def test_a_target_that_cannot_be_run_is_passed_over_and_an_end_is_refused():
    ask, _ = asking(lambda has: None if has.keys() == {"onednn"} else "B" if has else "A")
    found = search_conditions(LEFT, RIGHT, ask)
    assert found.sets == [["threads=1"]]
    told = found.to_json()
    assert told["skipped"] == ["tensorflow,onednn=0"] and told["minimal"]
    with pytest.raises(InputError, match="no such kernel"):
        search_conditions(LEFT, RIGHT, asking(lambda has: None)[0])


def test_what_is_different():
    other = Target.parse("tensorflow==2.12.0,threads=2")
    expected = [("version", "2.12.0"), ("threads", "2"), ("onednn", None)]
    assert conditions_apart(other, LEFT) == expected
    assert not only_releases(other, LEFT)
    assert only_releases(*(Target.parse(f"tensorflow=={one}") for one in ("2.12.0", "2.13.0")))
    for one, why in ((Target.parse("torch"), "different library"), (LEFT, "the same target")):
        with pytest.raises(InputError, match=why):
            conditions_apart(LEFT, one)


@pytest.mark.slow
def test_conditions_of_a_library_are_found():
    """With a switch of lengths the reference adds in pairs from there on, whatever else is said."""
    left = Target.parse("reference,algorithm=pairwise,length_switch=3")
    shown = ShownByCase(CASE, range(5, 12), "bits")
    found = search_conditions(left, Target.parse("reference"), shown)
    assert found.sets == [["length_switch=3"]]
    tried = [one.version.partition(",")[2] for one in found.steps[2:]]
    assert tried == ["algorithm=pairwise", "length_switch=3"]
    ends = Target.parse("reference,algorithm=random"), Target.parse("reference")
    with pytest.raises(InputError, match="does not repeat its own bits"):
        search_conditions(*ends, shown)


@pytest.mark.slow
def test_the_command(capsys):
    words = "bisect --op conv1d --kernel 5 --operands cancel --what bits --lengths 5..9".split()
    ends = ["--between", "reference,algorithm=pairwise", "--and", "reference"]
    assert shell.run([*words, *ends, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["conditions"] == ["algorithm=pairwise"] and not told["same"]
    assert shell.run([*words, *ends]) == 0
    assert "algorithm=pairwise brings the bits of" in capsys.readouterr().out


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


def searched(mark, low, high, **words):
    asked = []

    def ask(size):
        asked.append(size)
        return mark(size)

    search = SizeSearch(ask, **words)
    return search, search.bisect(low, high), asked


@pytest.mark.parametrize("at", [1, 2, 500, 999_999])
def test_a_change_is_found_with_few_questions(at) -> None:
    _, changes, asked = searched(lambda n: n >= at, 0, 1_000_000)
    assert changes == [(at - 1, at)] and len(asked) == len(set(asked)) < 24


def test_several_changes_are_found_and_sizes_without_a_mark_passed_over() -> None:
    _, changes, _ = searched(lambda n: (n > 10) + (n > 70), 0, 100)
    assert changes == [(10, 11), (70, 71)]
    search, changes, _ = searched(lambda n: None if 4 < n < 9 else n > 6, 0, 12)
    assert changes == [(4, 9)] and search.unmarked == {5, 6, 7, 8}


def test_marks_are_compared_as_they_are_told_to_be() -> None:
    _, changes, asked = searched(lambda n: n, 0, 64, alike=lambda one, other: other - one <= 8)
    assert not changes and len(asked) == 9


def test_only_sizes_of_one_remainder_are_asked() -> None:
    search = SizeSearch(lambda n: n > 50)
    assert search.bisect(2, 90, step=4) == [(50, 54)]
    assert all(size % 4 == 2 for size in search.marks)


def test_the_first_change_is_looked_for_by_doubling() -> None:
    asked = []
    search = SizeSearch(lambda n: asked.append(n) or n >= 37)
    assert search.first_change(1, 10**9) == 37 and max(asked) == 64
    assert SizeSearch(lambda n: 0).first_change(1, 100) is None
    assert [*doubled(3, 50, 4)] == [3, 7, 11, 19, 35, 47]
