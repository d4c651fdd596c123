"""Which conditions pin the bits: the smallest sets that bring them back."""

from __future__ import annotations

import json

import pytest

from probe.case import Case
from probe.cli import shell
from probe.errors import InputError
from probe.switch_points.bisection import ReleaseStep
from probe.switch_points.conditions import (
    bisect_conditions,
    conditions_apart,
    conditions_lines,
    only_releases,
    search,
)
from probe.target import Target

LEFT, RIGHT = (Target.parse(one) for one in ("tensorflow,onednn=0,threads=1", "tensorflow"))
CASE = Case(op="conv1d", kernel=5, operands="cancel")


def asking(shows):
    """An ``ask`` whose answer is a function of the switches, and the targets that were asked."""
    asked = []

    def ask(where):
        asked.append(where.text)
        seen = shows(dict(where.switches))
        return ReleaseStep(where.text, seen, why="" if seen else "no such kernel")

    return ask, asked


def test_one_condition_of_two_is_enough():
    ask, asked = asking(lambda has: "B" if "onednn" in has else "A")
    found = search(LEFT, RIGHT, ask)
    assert found.sets == [["onednn=0"]] and len(asked) == 4
    assert found.to_json()["conditions"] == ["onednn=0"]


def test_each_of_several_conditions_is_found():
    ask, _ = asking(lambda has: "B" if has else "A")
    assert search(LEFT, RIGHT, ask).sets == [["onednn=0"], ["threads=1"]]


def test_both_together_are_a_set_and_the_left_end_is_not_run_again():
    ask, asked = asking(lambda has: None if has.keys() == {"onednn"} else "AAB"[len(has)])
    found = search(LEFT, RIGHT, ask)
    assert found.sets == [["onednn=0", "threads=1"]] and not found.to_json()["minimal"]
    assert asked == [LEFT.text, RIGHT.text, "tensorflow,onednn=0", "tensorflow,threads=1"]
    both, unknown = conditions_lines(found, "bits")
    assert "threads=1 bring the bits of" in both
    assert unknown.endswith("is not known: tensorflow,onednn=0 could not be tested")


def test_equal_ends_have_nothing_to_bring_back():
    ask, asked = asking(lambda has: "A")
    found = search(LEFT, RIGHT, ask)
    assert found.sets is None and found.to_json()["same"] and len(asked) == 2


def test_a_target_that_cannot_be_run_is_passed_over_and_an_end_is_refused():
    ask, _ = asking(lambda has: None if has.keys() == {"onednn"} else "B" if has else "A")
    found = search(LEFT, RIGHT, ask)
    assert found.sets == [["threads=1"]]
    told = found.to_json()
    assert told["skipped"] == ["tensorflow,onednn=0"] and told["minimal"]
    with pytest.raises(InputError, match="no such kernel"):
        search(LEFT, RIGHT, asking(lambda has: None)[0])


def test_what_is_different():
    other = Target.parse("tensorflow==2.12.0,threads=2")
    expected = [("version", "2.12.0"), ("threads", "2"), ("onednn", None)]
    assert conditions_apart(other, LEFT) == expected
    assert not only_releases(other, LEFT)
    assert only_releases(*(Target.parse(f"tensorflow=={one}") for one in ("2.12.0", "2.13.0")))
    for one, why in ((Target.parse("torch"), "different library"), (LEFT, "the same target")):
        with pytest.raises(InputError, match=why):
            conditions_apart(LEFT, one)


def test_conditions_of_a_library_are_found():
    """With a switch of lengths the reference adds in pairs from there on, whatever else is said."""
    left = Target.parse("reference,algorithm=pairwise,length_switch=3")
    found = bisect_conditions(CASE, left, Target.parse("reference"), range(5, 12))
    assert found.sets == [["length_switch=3"]]
    tried = [one.version.partition(",")[2] for one in found.steps[2:]]
    assert tried == ["algorithm=pairwise", "length_switch=3"]
    ends = Target.parse("reference,algorithm=random"), Target.parse("reference")
    with pytest.raises(InputError, match="does not repeat its own bits"):
        bisect_conditions(CASE, *ends, range(5, 12))


def test_the_command(capsys):
    words = "bisect --op conv1d --kernel 5 --operands cancel --what bits --lengths 5..9".split()
    ends = ["--between", "reference,algorithm=pairwise", "--and", "reference"]
    assert shell.run([*words, *ends, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["conditions"] == ["algorithm=pairwise"] and not told["same"]
    assert shell.run([*words, *ends]) == 0
    assert "algorithm=pairwise brings the bits of" in capsys.readouterr().out
