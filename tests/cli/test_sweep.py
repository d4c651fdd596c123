"""probe sweep: what it prints, stores, and says with its exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import probe
from probe.cli import shell

pytestmark = pytest.mark.long

SWITCHES = "reference,algorithm=pairwise,length_switch=8"
CASE = "--op conv1d --kernel 5 --in-channels 4 --operands cancel"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def swept(capsys, words, json_too=True):
    status = shell.run(["sweep", *f"{CASE} {words}".split(), *["--json"] * json_too])
    out, err = capsys.readouterr()
    return status, json.loads(out) if json_too else out, err


def test_the_lengths_that_differ(capsys):
    status, found, err = swept(capsys, f"--lengths 5..12 --target {SWITCHES} --no-store")
    assert status == 0 and not err
    assert found["compared"] == 28 and found["differing"] > 0 and found["store"] is None
    assert {entry["length"] for entry in found["lengths"]} <= set(range(5, 12))
    for entry in found["lengths"]:
        assert set(entry) == {"length", "outputs", "max_ulp", "first"}
    assert sum(entry["outputs"] for entry in found["lengths"]) == found["differing"]
    assert max(entry["max_ulp"] for entry in found["lengths"]) == found["max_ulp"]
    assert found["failures"] == [] and found["case"]["kernel"] == [5]


def test_several_targets_with_their_totals(capsys):
    words = f"--lengths 5..12 --target {SWITCHES} --target reference --target reference --no-store"
    status, found, _ = swept(capsys, words)
    assert status == 0 and list(found["targets"]) == [SWITCHES, "reference"]
    assert found["targets"]["reference"]["differing"] == 0
    one = found["targets"][SWITCHES]
    assert found["differing"] == one["differing"] and found["max_ulp"] == one["max_ulp"]
    assert found["compared"] == 56 and found["failures"] == []


def test_a_finding_fails_where_it_is_asked_to(capsys):
    words = f"--lengths 5..12 --no-store --target {SWITCHES}"
    assert swept(capsys, f"{words} --fail-on differing")[0] == 1
    assert swept(capsys, "--lengths 5..9 --no-store --target reference --fail-on finding")[0] == 0
    random = "--lengths 5..9 --no-store --target reference,algorithm=random"
    status, found, _ = swept(capsys, f"{random} --fail-on finding")
    assert status == 1 and found["nondeterministic"] > 0


def test_a_target_that_cannot_run_at_all_is_status_3(capsys):
    words = "--lengths 5..9 --no-store --target reference --target reference==0.1"
    status, found, _ = swept(capsys, f"{words} --fail-on differing")
    assert status == 3
    (failure,) = found["failures"]
    assert failure["target"] == "reference==0.1" and failure["kind"] == "unavailable"
    assert found["targets"]["reference"]["comparisons"] == 4
    status, out, _ = swept(capsys, words, json_too=False)
    assert status == 3 and "reference==0.1: unavailable: " in out and "failed" in out


def test_the_same_command_again_repeats_nothing(capsys, tmp_path):
    words = f"--lengths 5..9 --target {SWITCHES} --store results/sweep"
    _, first, _ = swept(capsys, words)
    assert (
        first["store"].startswith(os.path.join("results", "sweep")) and not first["stored_before"]
    )
    assert len(probe.load("results").comparisons) == 4
    _, second, _ = swept(capsys, words)
    assert second["stored_before"] == 4
    same = ("compared", "differing", "max_ulp", "lengths")
    assert [first[name] for name in same] == [second[name] for name in same]
    status, out, _ = swept(
        capsys, words.replace("results/sweep", str(tmp_path / "else")), json_too=False
    )
    assert status == 0 and "stored in" in out and (tmp_path / "else").is_dir()


def test_other_axes_keep_their_length(capsys):
    words = "--lengths 1..3 --vary batch --length 9 --target reference --no-store"
    status, found, _ = swept(capsys, words)
    assert status == 0 and found["vary"] == "batch" and found["compared"] == (1 + 2) * 5
    status, _, err = swept(capsys, "--lengths 5..7 --length 9 --target reference --no-store")
    assert status == 0 and err.startswith("note: length=9 is not used")


def test_the_text_says_what_to_do_next(capsys):
    words = f"--lengths 5..12 --target {SWITCHES} --target reference --no-store"
    _, out, err = swept(capsys, words, json_too=False)
    assert not err and "\x1b" not in out and "length 5..11 against 12" in out
    assert "agrees" in out and "differs" in out
    (why,) = [line for line in out.splitlines() if line.startswith("why: probe explain")]
    status = shell.run([*why.split()[2:], "--json"])
    assert status == 0 and json.loads(capsys.readouterr().out)["differing"] > 0


def test_no_difference_is_not_called_stable(capsys):
    words = "--lengths 5..9 --target reference --no-store"
    assert "that show nearly every change of order" in swept(capsys, words, json_too=False)[1]
    words += " --operands normal"
    assert "The orders may still differ" in swept(capsys, words, json_too=False)[1]


def test_a_sweep_of_pools_does_not_offer_orders_that_are_not_asked(capsys):
    pool = "sweep --op max_pool1d --kernel 3 --lengths 5..9 --target reference --no-store"
    assert shell.run(pool.split()) == 0
    assert "--operands cancel, tiny or nan" in (out := capsys.readouterr().out)
    assert "--by order" not in out


@pytest.mark.parametrize("store", ["file/x", "file"])
def test_a_store_that_cannot_be_written_is_one_line(store, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    status = shell.run(f"sweep {CASE} --lengths 5..9 --target reference --store {store}".split())
    out, err = capsys.readouterr()
    assert (status, out) == (2, "") and err.startswith("probe: store=") and err.count("\n") == 1


def test_a_damaged_store_is_one_line(capsys):
    words = "--lengths 5..9 --target reference --store results/sweep"
    _, found, _ = swept(capsys, words)
    path = os.path.join(found["store"], "comparisons.parquet")
    with open(path, "wb") as file:
        file.write(b"junk")
    for command in (f"sweep {CASE} {words}", "results results"):
        status = shell.run(command.split())
        out, err = capsys.readouterr()
        assert status == 2 and err.count("\n") == 1
        assert err.startswith("probe: file=comparisons.parquet: damaged")
        assert bool(out) == (command == "results results")  # the rest is still summed up


def test_a_sweep_by_order_needs_no_luck(capsys):
    words = "--operands ones --lengths 5..12 --by order --target reference,length_switch=5"
    status, found, err = swept(capsys, f"{words} --fail-on differing --store results/sweep")
    assert status == 1 and not err and found["differing"] == 10 and found["compared"] == 28
    assert [one["length"] for one in found["lengths"]] == [5, 6, 7, 8]
    assert {one["length"]: one["causes"] for one in found["lengths"]}[6] == {"order": 2}
    stored = probe.load("results")
    assert len(stored.orders) == 2 and stored.reveals["outputs"].sum() == 36
    words += " --target reference,algorithm=winograd --target reference==0.1 --no-store"
    status, found, _ = swept(capsys, words)
    assert status == 3 and found["differing"] == 10 and len(found["targets"]) == 2
    assert [one["target"] for one in found["failures"]] == ["reference==0.1"]
    _, out, _ = swept(capsys, words, json_too=False)
    assert "length 5..8" in out and "winograd: length 5..12: unsupported" in out


@pytest.mark.parametrize("by", ["bits", "order"])
def test_what_does_not_repeat_is_a_finding_of_both_sweeps(by, capsys):
    words = f"sweep --op conv1d --kernel 3 --in-channels 8 --lengths 4..6 --no-store --by {by}"
    words += " --target reference,algorithm=random"
    assert shell.run([*words.split(), "--fail-on", "finding"]) == 1
    assert shell.run(words.split()) == 0


@pytest.mark.slow
def test_ctrl_c_prints_what_there_is(tmp_path):
    words = "sweep --op conv1d --kernel 5 --in-channels 64 --filters 8 --target reference --json"
    command = [sys.executable, "-m", "probe", *words.split(), "--lengths", "100..20000"]
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
