"""Long work says where it stands, once, where stderr is no terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from probe.sweep.printing import Output
from probe.targets import progress


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.02)
    monkeypatch.setattr(progress, "EVERY", 0.02)


def heard(capsys, text, seconds=5.0):
    """Waits until a line with a text was printed."""
    told, end = "", time.monotonic() + seconds
    while text not in told and time.monotonic() < end:
        time.sleep(0.01)
        told += capsys.readouterr().err
    assert text in told
    return told


def test_work_that_cannot_be_counted_says_how_long_it_took_so_far(capsys):
    with Output().progress("revealing"):
        assert heard(capsys, "revealing: 0 s so far").endswith("\n")


def test_what_is_done_far_below_a_command_is_said(capsys):
    with Output(as_json=True).progress("explain") as tell:
        progress.VOICE.calls += 7
        with progress.VOICE.doing("starting numpy"):
            assert tell.line("explain") == "explain: 0 s so far, 7 calls: starting numpy"
        assert tell.line("explain") == "explain: 0 s so far, 7 calls"
        lines = heard(capsys, "progress").splitlines()
    assert json.loads(lines[0])["progress"]["of"] == "explain"


def test_progress_is_printed_while_a_library_may_not_print():
    code = """
import os, time
from probe.targets import progress
from probe.sweep.printing import Output
progress.FIRST = progress.EVERY = 0.05
with Output().progress("loading"), progress.without_stderr():
    os.write(2, b"noise")
    time.sleep(0.4)
os.write(2, b"heard")
"""
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert "loading: 0 s so far" in done.stderr and "noise" not in done.stderr
    assert done.stderr.endswith("heard")


@pytest.mark.parametrize("as_json", [False, True])
def test_progress_says_rate_remaining_time_and_failures(as_json, capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.05)
    with Output(as_json).progress("sweep", whole=True) as tell:
        tell(0, 1000, "numpy")
        tell.skipped += 500
        tell.failures += 1
        time.sleep(0.1)
        tell(600, 1000, "numpy")
        time.sleep(0.2)
    out, err = capsys.readouterr()
    assert not out
    last = err.splitlines()[-1]
    if not as_json:
        assert last.startswith("sweep: 600 of 1,000, ") and "a second, " in last
        assert last.endswith("s left, 1 failure; now at numpy")
        return
    told = json.loads(last)["progress"]
    assert (told["done"], told["total"], told["failures"]) == (600, 1000, 1)
    assert 0 < told["rate"] <= 100 / 0.15 and told["remaining"] == pytest.approx(
        400 / told["rate"], rel=0.5
    )
    numbers = ["done", "total", "unit", "rate", "remaining", "seconds", "failures", "what"]
    assert list(told) == ["of", *numbers]
