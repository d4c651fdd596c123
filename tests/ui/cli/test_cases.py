"""Commands about a case: the objects they print, what people read, and how they end."""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import probe
from probe.ui.answers import views
from probe.ui.cli import cases, shell
from tests.ui.cli.commands import answered

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
    assert text.startswith("both sides are correctly within rounding; the documentation does not")
    assert found["bug_or_rounding"]["verdict"] == "rounding" and "2 explained rounding" in text
    assert "2 of 2 outputs differ, up to " in text and ": order; replayed 2 of 2" in text
    assert "= the library's bits" in text and "← order" in text and "2 ───┴─┐" in text
    assert shell.run([*command.split(), "--fail-on", "differing"]) == 1


@pytest.mark.parametrize(("algorithm", "cause"), [("fused", "rounding"), ("pairwise", "order")])
def test_two_targets_at_one_shape(algorithm, cause, capsys):
    words = f"--length 9 --target reference --against-target reference,algorithm={algorithm}"
    found, text = answered(capsys, f"explain {CASE} {words}")
    assert set(found["causes"]) == {cause} and found["replayed"] == found["compared"] == 5
    assert found["left"]["length"] == found["right"]["length"] == 9
    assert any(line.startswith("5 of 5") or cause in line for line in text.splitlines()[:4])


def test_other_windows_are_told_from_rounding(capsys):
    words = "--stride 2 --padding same --length 8 --against-padding caffe --target reference"
    found, text = answered(capsys, f"explain --op conv1d --kernel 3 {words}")
    assert set(found["causes"]) == {"window"} and found["windows_differ"] == 4
    assert found["example"]["left"]["reads"] != found["example"]["right"]["reads"]
    assert "reads x[6] x[7] x[-]" in text and "← order" not in text
    assert text.startswith("the two sides read different inputs")


def test_what_is_no_sum_gets_no_tree(capsys):
    words = "--op conv1d --kernel 3 --in-channels 4 --length 8 --target"
    found, text = answered(capsys, f"order {words} reference,algorithm=winograd")
    assert found["orders"] == [] and found["replayed"] == 0 and found["evidence"]
    assert found["not_a_sum"] == found["outputs"] == 6 and "not a sum" in text
    other = "--against-target reference,algorithm=winograd"
    found, text = answered(capsys, f"explain {words} reference {other}")
    assert set(found["causes"]) == {"not-a-sum"} and "order not known" in text
    assert found["example"]["right"]["tree"] is None


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
        capsys, "order window --op conv1d --kernel 3 --padding same --length 4 --target reference"
    )
    assert found["as_predicted"] == found["windows_read"] == 4
    assert [one["reads"] for one in found["windows"]] == [
        *([None, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, None])
    ]
    assert "out[0] reads x[-] x[0] x[1]" in text and "all are where padding=same puts them" in text


def test_windows_of_groups_and_a_batch(capsys):
    words = "--op conv2d --kernel 2 --in-channels 4 --filters 4 --groups 2 --batch 2 --length 3"
    found, text = answered(capsys, f"order window {words} --target reference --padding caffe")
    assert found["as_predicted"] == found["windows_read"] == len(found["windows"])
    last = found["windows"][-1]
    assert last["filter"] == 2 and last["output"][0] == 1
    assert max(last["reads"]) == 2 * 3 * 3 * 4 - 1
    assert "x[0, 0, 0, 0..1]" in text


@pytest.mark.slow
def test_the_lengths_at_which_a_target_switches(capsys):
    words = f"fix sizes {CASE} --upto 300 --scan 16 --target reference,length_switch=40"
    found, text = answered(capsys, f"{words} --fail-on finding", status=1)
    assert [(one["at"], one["causes"]) for one in found["switches"]] == [(44, ["order"])]
    assert "lengths 5 to 300: 1 switch" in text and "from 44 on as kind 1, not 0: order" in text
    assert "assumed: " in text and "checked: " in text


def test_a_run_is_saved_as_a_file_that_replays(capsys, tmp_path):
    words = f"report emulate {CASE} --length 6 --against 20 --target {SWITCHES} --out run.py"
    found, text = answered(capsys, words)
    assert found["replayed"] == 2 + 16 and len(found["runs"]) == 2 and found["bytes"] > 1000
    assert "python run.py" in text
    done = subprocess.run(
        [sys.executable, "run.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0 and "have the library's bits" in done.stdout
    assert shell.run([*words.split()[:-1], "nowhere/run.py"]) == 2
    assert capsys.readouterr().err.startswith("probe: out=nowhere/run.py: ")


def swept(capsys, words, json_too=True):
    status = shell.run(
        ["sweep", *f"{CASE} --in-channels 4 {words}".split(), *["--json"] * json_too]
    )
    out, err = capsys.readouterr()
    return status, json.loads(out) if json_too else out, err


def test_the_lengths_that_differ(capsys):
    status, found, err = swept(capsys, f"--lengths 5..12 --target {SWITCHES}")
    assert status == 0 and not err
    assert found["compared"] == 28 and found["differing"] > 0 and found["store"] is None
    assert {entry["length"] for entry in found["lengths"]} <= set(range(5, 12))
    for entry in found["lengths"]:
        assert set(entry) == {"length", "outputs", "max_ulp", "first"}
    assert sum(entry["outputs"] for entry in found["lengths"]) == found["differing"]
    assert max(entry["max_ulp"] for entry in found["lengths"]) == found["max_ulp"]
    assert found["failures"] == [] and found["case"]["kernel"] == [5]


def test_several_targets_with_their_totals(capsys):
    words = f"--lengths 5..12 --target {SWITCHES} --target reference --target reference"
    status, found, _ = swept(capsys, words)
    assert status == 0 and list(found["targets"]) == [SWITCHES, "reference"]
    assert found["targets"]["reference"]["differing"] == 0
    one = found["targets"][SWITCHES]
    assert found["differing"] == one["differing"] and found["max_ulp"] == one["max_ulp"]
    assert found["compared"] == 56 and found["failures"] == []


def test_a_finding_fails_where_it_is_asked_to(capsys):
    words = f"--lengths 5..12 --target {SWITCHES}"
    assert swept(capsys, f"{words} --fail-on differing")[0] == 1
    assert swept(capsys, "--lengths 5..9 --target reference --fail-on finding")[0] == 0
    random = "--lengths 5..9 --target reference,algorithm=random"
    status, found, _ = swept(capsys, f"{random} --fail-on finding")
    assert status == 1 and found["nondeterministic"] > 0


def test_a_target_that_cannot_run_at_all_is_status_3(capsys):
    words = "--lengths 5..9 --target reference --target reference==0.1"
    status, found, _ = swept(capsys, f"{words} --fail-on differing")
    assert status == 3
    (failure,) = found["failures"]
    assert failure["target"] == "reference==0.1" and failure["kind"] == "unavailable"
    assert found["targets"]["reference"]["comparisons"] == 4
    status, out, _ = swept(capsys, words, json_too=False)
    assert status == 3 and "reference==0.1: unavailable: " in out and "failed" in out


def test_other_axes_keep_their_length(capsys):
    words = "--lengths 1..3 --vary batch --length 9 --target reference"
    status, found, _ = swept(capsys, words)
    assert status == 0 and found["vary"] == "batch" and found["compared"] == (1 + 2) * 5
    status, _, err = swept(capsys, "--lengths 5..7 --length 9 --target reference")
    assert status == 0 and err.startswith("note: length=9 is not used")


def test_the_text_says_what_to_do_next(capsys):
    words = f"--lengths 5..12 --target {SWITCHES} --target reference"
    _, out, err = swept(capsys, words, json_too=False)
    assert not err and "\x1b" not in out and "length 5..11 against 12" in out
    assert "agrees" in out and "differs" in out
    (why,) = [line for line in out.splitlines() if line.startswith("why: probe explain")]
    status = shell.run([*why.split()[2:], "--json"])
    assert status == 0 and json.loads(capsys.readouterr().out)["differing"] > 0


def test_no_difference_is_not_called_stable(capsys):
    words = "--lengths 5..9 --target reference"
    assert "that show nearly every change of order" in swept(capsys, words, json_too=False)[1]
    words += " --operands normal"
    assert "The orders may still differ" in swept(capsys, words, json_too=False)[1]


def test_a_sweep_of_pools_does_not_offer_orders_that_are_not_asked(capsys):
    pool = "sweep --op max_pool1d --kernel 3 --lengths 5..9 --target reference"
    assert shell.run(pool.split()) == 0
    assert "--operands cancel, tiny or nan" in (out := capsys.readouterr().out)
    assert "--by order" not in out


@pytest.mark.parametrize("store", ["file/x", "file"])
def test_a_store_that_cannot_be_written_is_one_line(store, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    status = shell.run(f"sweep {CASE} --lengths 5..9 --target reference --store {store}".split())
    out, err = capsys.readouterr()
    assert (status, out) == (2, "") and err.startswith("probe: store=") and err.count("\n") == 1


@pytest.mark.slow
def test_a_sweep_by_order_needs_no_luck(capsys):
    words = "--operands ones --lengths 5..12 --by order --target reference,length_switch=5"
    status, found, err = swept(capsys, f"{words} --fail-on differing --store results/sweep")
    assert status == 1 and not err and found["differing"] == 10 and found["compared"] == 28
    assert [one["length"] for one in found["lengths"]] == [5, 6, 7, 8]
    assert {one["length"]: one["causes"] for one in found["lengths"]}[6] == {"order": 2}
    stored = probe.load("results")
    assert len(stored.orders) == 2 and stored.reveals["outputs"].sum() == 36
    words += " --target reference,algorithm=winograd --target reference==0.1"
    status, found, _ = swept(capsys, words)
    assert status == 3 and found["differing"] == 10 and len(found["targets"]) == 2
    assert [one["target"] for one in found["failures"]] == ["reference==0.1"]
    _, out, _ = swept(capsys, words, json_too=False)
    assert "length 5..8" in out and "winograd: length 5..12: unsupported" in out


@pytest.mark.parametrize("by", ["bits", "order"])
def test_what_does_not_repeat_is_a_finding_of_both_sweeps(by, capsys):
    words = f"sweep --op conv1d --kernel 3 --in-channels 8 --lengths 4..6 --by {by}"
    words += " --target reference,algorithm=random"
    assert shell.run([*words.split(), "--fail-on", "finding"]) == 1
    assert shell.run(words.split()) == 0


@pytest.mark.slow
def test_ctrl_c_prints_what_there_is(tmp_path):
    words = "sweep --op conv1d --kernel 5 --in-channels 64 --filters 8 --target reference --json"
    words += " --store kept --lengths 100..20000"
    command = [sys.executable, "-m", "probe", *words.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(tmp_path.rglob("runs.*")) and time.monotonic() < until:
        time.sleep(0.1)
        if process.poll() is not None:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert json.loads(out)["interrupted"]


def printed(capsys, command, status=0):
    assert shell.run([*command.split(), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def refused(capsys, command, status=2):
    assert shell.run(command.split()) == status
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1
    return err


def test_a_smallest_case_of_numbers_that_json_lacks_is_printed():
    report = {"label": "sum", "calls": 1, "runs": 2, "ended": "minimal", "case": {"not_zero": {}}}
    report |= dict.fromkeys(("near", "before", "kept", "max_ulp"))
    report |= {"differing": 1, "compared": 1, "causes": {}, "shown": True}
    shown = views.shrunk(report | {"operands": {"x": [["inf", 1.5], ["nan", "-inf"]]}}, "start")
    assert "x = inf, 1.5, nan, -inf" in shown.renderables


@pytest.mark.slow
def test_reproduce_writes_the_folder_and_verify_reads_it(capsys):
    command = f"report {CASE} --at 6 --against 20 --target {SWITCHES} --times 1 --out out/deep"
    found = printed(capsys, f"{command} --form torch")
    assert found["files"] and found["proof"]["status"] == 0 and found["out"] == "out/deep"
    there = printed(capsys, "report verify out/deep --trust --times 1 --fail-on there", 1)
    assert there["verdict"] == "still there" and there["same_bits"]
    Path("out/deep/reproduce.py").write_text("import no_such_thing\n")
    told = printed(capsys, "report verify out/deep --trust --times 1", 3)
    assert told["verdict"] == "can't tell"


ASKED = {
    cases.explain: probe.explain,
    cases.sweep: probe.sweep,
    cases.sizes: probe.thresholds,
}


@pytest.mark.parametrize("command", ASKED, ids=lambda one: one.name)
def test_a_command_and_its_function_have_the_same_defaults(command):
    arguments = inspect.signature(ASKED[command]).parameters
    given = command.make_context(command.name, [], resilient_parsing=True).params
    shared = given.keys() & arguments.keys()
    assert len(shared) >= 4
    assert {n: given[n] for n in shared} == {n: arguments[n].default for n in shared}
