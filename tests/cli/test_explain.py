"""probe explain, order and window: the objects they print, and what people read."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from probe.cli import shell
from probe.summation.summation import Rounding, Summation
from probe.summation.tree import Tree
from tests.cli.commands import answered

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("elsewhere")]

SWITCHES = "reference,algorithm=pairwise,length_switch=8"
CASE = "--op conv1d --kernel 5 --operands cancel"


def test_an_order_is_explained_and_shown_in_full(capsys):
    command = f"explain {CASE} --at 6 --against 20 --target {SWITCHES}"
    found, text = answered(capsys, command)
    assert found["causes"] == {"order": found["differing"]} and found["replayed"] == 2
    assert found["left_orders"][0]["tree"] == "((((0+1)+2)+3)+4)"
    assert found["right_orders"][0]["tree"] == "(((0+1)+(2+3))+4)"
    assert found["left"] == {"target": SWITCHES, "length": 6, "batch": 1}
    example = found["example"]
    assert example["cause"] == "order" and example["ulp"]
    for side in ("left", "right"):
        assert example[side]["library"] == example[side]["replayed"]
        assert example[side]["partial_sums"][-1]["value"] == example[side]["library"]
        assert [one["own"] for one in example[side]["partial_sums"]] == [False, True, True, True]
        assert example[side]["parts_at"] == 1 and len(example[side]["products"]) == 5
    assert text.startswith("2 of 2 outputs differ, up to ") and ": order; replayed 2 of 2" in text
    assert "= the library's bits" in text and "← order" in text and "2 ───┴─┐" in text
    assert shell.run([*command.split(), "--fail-on", "differing"]) == 1


def next_of(text):
    """The commands that an explanation ends with, as words."""
    lines = [line for line in text.splitlines() if line.startswith("next: probe ")]
    return [shlex.split(line.removeprefix("next: probe "), comments=True) for line in lines]


def test_the_next_commands_are_those_of_the_same_case(capsys):
    assert shell.run(f"explain {CASE} --length 6 --against 20 --target {SWITCHES}".split()) == 0
    text = capsys.readouterr().out
    report, remedies = next_of(text)
    assert report[0] == "reproduce" and report[-2:] == ["--out", "report"]
    assert shell.run(["explain", *report[1:-2]]) == 0  # the same runs
    assert capsys.readouterr().out == text
    assert remedies[0] == "remedies" and "--length" not in remedies
    assert remedies[remedies.index("--lengths") + 1] == "6,20"
    dense = "explain --op dense --in-channels 9 --at 1 --against 3 --target reference"
    assert shell.run(dense.split()) == 0
    text = capsys.readouterr().out
    assert " left: reference, batch 1\n" in text and "length" not in text
    assert [words[0] for words in next_of(text)] == ["thresholds", "targets"]


def test_the_next_commands_of_a_pool_take_pools(capsys):
    pool = "--op avg_pool1d --kernel 3 --operands cancel --target reference"
    assert shell.run(f"explain {pool} --at 6 --against 20".split()) == 0
    assert [words[0] for words in next_of(capsys.readouterr().out)] == ["targets"]


def test_length_says_the_same_as_at(capsys):
    command = f"{CASE} --against 20 --target {SWITCHES}"
    at, _ = answered(capsys, f"explain --at 6 {command}")
    length, _ = answered(capsys, f"explain --length 6 {command}")
    assert at["causes"] == length["causes"] and at["example"] == length["example"]


@pytest.mark.parametrize(("algorithm", "cause"), [("fused", "rounding"), ("pairwise", "order")])
def test_two_targets_at_one_shape(algorithm, cause, capsys):
    words = f"--length 9 --target reference --against-target reference,algorithm={algorithm}"
    found, text = answered(capsys, f"explain {CASE} {words}")
    assert set(found["causes"]) == {cause} and found["replayed"] == found["compared"] == 5
    assert found["left"]["length"] == found["right"]["length"] == 9
    assert cause in text.splitlines()[0]


def test_other_windows_are_told_from_rounding(capsys):
    words = "--stride 2 --padding same --length 8 --against-padding caffe --target reference"
    found, text = answered(capsys, f"explain --op conv1d --kernel 3 {words}")
    assert set(found["causes"]) == {"window"} and found["windows_differ"] == 4
    assert found["example"]["left"]["reads"] != found["example"]["right"]["reads"]
    assert "reads x[6] x[7] x[-]" in text and "← order" not in text


def test_what_is_no_sum_gets_no_tree(capsys):
    words = "--op conv1d --kernel 3 --in-channels 4 --length 8 --target"
    found, text = answered(capsys, f"order {words} reference,algorithm=winograd")
    assert found["orders"] == [] and found["replayed"] == 0 and found["evidence"]
    assert found["not_a_sum"] == found["outputs"] == 6 and "not a sum" in text
    other = "--against-target reference,algorithm=winograd"
    found, text = answered(capsys, f"explain {words} reference {other}")
    assert set(found["causes"]) == {"not-a-sum"} and "order not known" in text
    assert found["example"]["right"]["tree"] is None


def test_what_does_not_repeat_itself_is_said(capsys):
    words = "--op conv1d --kernel 3 --in-channels 4 --length 8 --target reference,algorithm=random"
    found, text = answered(capsys, f"order {words} --fail-on finding", status=1)
    assert found["refusal"] == "nondeterministic" and found["orders"] == []
    assert "nondeterministic: the same shape, run again, gives different bits" in text


def test_the_orders_of_one_shape(capsys):
    words = "--op conv1d --kernel 3 --in-channels 2 --filters 3 --padding same --bias normal"
    found, text = answered(capsys, f"order {words} --length 9 --target reference --fail-on finding")
    assert found["outputs"] == found["replayed"] == 27 and found["shape"] == [1, 9, 3]
    assert {"calls", "seconds", "checks", "evidence", "not_a_sum"} <= set(found)
    assert sum(one["outputs"] for one in found["orders"]) == 27
    for one in found["orders"]:
        assert {"id", "tree", "fused", "rounding", "accumulator"} <= set(one)
        assert sum(one["ranges"][1::2]) - sum(one["ranges"][::2]) == one["outputs"]
    assert found["orders"][0]["tree"] == "((((((0+1)+2)+3)+4)+5)+b)"
    assert "out[1..7, *]" in text and "one after the other, the bias last" in text


def test_windows_as_predicted(capsys):
    found, text = answered(
        capsys, "window --op conv1d --kernel 3 --padding same --length 4 --target reference"
    )
    assert found["as_predicted"] == found["windows_read"] == 4
    assert [one["reads"] for one in found["windows"]] == [
        *([None, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, None])
    ]
    assert "out[0] reads x[-] x[0] x[1]" in text and "all are where padding=same puts them" in text


def test_windows_of_groups_and_a_batch(capsys):
    words = "--op conv2d --kernel 2 --in-channels 4 --filters 4 --groups 2 --batch 2 --length 3"
    found, text = answered(capsys, f"window {words} --target reference --padding caffe")
    assert found["as_predicted"] == found["windows_read"] == len(found["windows"])
    last = found["windows"][-1]
    assert last["filter"] == 2 and last["output"][0] == 1
    assert max(last["reads"]) == 2 * 2 * 3 * 4 - 1
    assert "x[0, 0, 0, 0..1]" in text and "the other groups read alike" in text


def test_the_lengths_at_which_a_target_switches(capsys):
    words = f"thresholds {CASE} --upto 300 --scan 16 --target reference,length_switch=40"
    found, text = answered(capsys, f"{words} --fail-on finding", status=1)
    assert [(one["at"], one["causes"]) for one in found["switches"]] == [(44, ["order"])]
    assert [(one["first"], one["last"]) for one in found["stretches"]] == [(5, 43), (44, 300)]
    assert "1 switch between lengths 5 and 300" in text and "44 .. 300" in text
    assert "assumed: " in text and "checked: " in text


def test_a_run_is_saved_as_a_file_that_replays(capsys, tmp_path):
    words = f"emulate {CASE} --length 6 --against 20 --target {SWITCHES} --out run.py"
    found, text = answered(capsys, words)
    assert found["replayed"] == 2 + 16 and len(found["runs"]) == 2 and found["bytes"] > 1000
    assert "python run.py" in text
    done = subprocess.run(
        [sys.executable, "run.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0 and "have the library's bits" in done.stdout
    assert shell.run([*words.split()[:-1], "nowhere/run.py"]) == 2
    assert capsys.readouterr().err.startswith("probe: out=nowhere/run.py: ")


def test_sides_part_where_their_trees_do():
    plain = Rounding()
    one, two = Tree.sequential(5), Tree.pairwise(5)
    assert Summation(one, plain).own_nodes(Summation(one, plain), "float32") == (
        frozenset(),
        frozenset(),
    )
    assert Summation(one, plain).own_nodes(Summation(two, plain), "float32") == (
        {1, 2, 3},
        {1, 2, 3},
    )
    fused = Rounding(fused=frozenset({3}))
    assert Summation(one, plain).own_nodes(Summation(one, fused), "float32") == ({2, 3}, {2, 3})
    wide = Rounding(accumulator_format="float64")
    assert Summation(one, plain).own_nodes(Summation(one, wide), "float32")[0] == {0, 1, 2, 3}
