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
from probe.ui.cli import shell


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


def test_an_end_in_the_middle_of_the_end_does_not_silence_what_comes_after(capsys, monkeypatch):
    voice = progress.Voice()

    def interrupted():
        voice._ended.set()
        raise KeyboardInterrupt

    def speak():
        with voice.speaking(progress.Reporter(), "first", False):
            monkeypatch.setattr(voice, "stop", interrupted)

    with pytest.raises(KeyboardInterrupt):
        speak()
    monkeypatch.undo()
    monkeypatch.setattr(progress, "FIRST", 0.02)
    voice._speaker.join()
    with voice.speaking(progress.Reporter(), "second", False):
        heard(capsys, "second: 0 s so far")


def test_of_progress_within_progress_the_inner_one_speaks_and_then_the_outer_one(capsys):
    out = Output()
    with out.progress("network"), out.progress("outer") as tell:
        tell(0, 9, "first")
        with out.progress("lengths") as inner:
            inner(1, 4, "5")
            heard(capsys, "lengths: 1 of 4")
            time.sleep(0.1)
            told = capsys.readouterr().err
            assert told and all(line.startswith("lengths") for line in told.splitlines())
        heard(capsys, "outer: 0 of 9, 0 s so far: first")
    capsys.readouterr()
    time.sleep(0.1)
    assert not capsys.readouterr().err


def test_what_is_done_far_below_a_command_is_said(capsys):
    with Output(as_json=True).progress("explain") as tell:
        progress.VOICE.calls += 7
        with progress.VOICE.doing("starting numpy"):
            assert tell.line("explain") == "explain: 0 s so far, 7 calls: starting numpy"
        assert tell.line("explain") == "explain: 0 s so far, 7 calls"
        lines = heard(capsys, "progress").splitlines()
    assert json.loads(lines[0])["progress"]["of"] == "explain"


def test_nobody_need_listen():
    with progress.VOICE.doing("starting numpy"):
        pass


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


def test_every_command_but_those_of_other_processes_is_heard(capsys, monkeypatch):
    asked = []
    real = Output.progress

    def heard_of(self, what, whole=False):
        asked.append(what)
        return real(self, what, whole)

    monkeypatch.setattr(Output, "progress", heard_of)
    for words in (["sweep"], ["fix", "sizes"], ["results", "nowhere"]):
        assert shell.run(words) == 2
    capsys.readouterr()
    assert asked == ["sweep", "sizes", "results"]
    asked.clear()
    assert shell.run(["run", "nothing"]) == 2 and not asked


def test_what_is_begun_last_of_what_is_not_done_yet_is_said():
    tell = progress.Reporter()
    with progress.VOICE.within(tell), progress.VOICE.doing("revealing orders"):
        first, second = (progress.VOICE.doing(f"starting {name}") for name in "ab")
        first.__enter__()
        with second:
            assert tell.now == "starting b"
            first.__exit__(None, None, None)  # another thread's work may end earlier
            assert tell.now == "starting b"
        assert tell.now == "revealing orders"
    assert not tell.now


def test_what_is_counted_far_below_a_command_is_a_part_and_has_no_time_left(monkeypatch):
    """It said "0 s left" for minutes: the next part was not counted."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tell, lines = progress.Reporter(), []
    with progress.VOICE.within(tell):
        tell(0, 0, "opening the model")
        now[0] += 60  # no part of the rate
        for _ in progress.VOICE.counting([1, 2, 4, 8], "sizes"):
            lines.append(tell.line("network"))
            now[0] += 5
    assert lines[2] == "network: 2 of 4 sizes, 1:10 min so far: opening the model"
    assert tell.line("network") == "network: 1:20 min so far: opening the model"
    assert list(progress.VOICE.counting([3], "sizes")) == [3]  # nobody listens


def test_the_time_left_falls_while_one_of_several_is_at_work(monkeypatch):
    """Once it lasts longer than those before it, the others are expected to last longer too."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tell = progress.Reporter(whole=True)
    tell(0, 10, "")
    left = []
    for seconds, done in ((10, 1), (5, 1), (5, 1), (20, 1)):
        now[0] += seconds
        tell(done, 10, "")
        left.append(tell.numbers()["remaining"])
    assert left == [90, 85, 80, 160]  # the second one takes 30 s: 20 s each is the mean then


def test_counts_within_counts_are_all_shown(monkeypatch):
    """The inner one begins anew in each of the outer ones: alone it would seem to go round."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tell, shown = progress.Reporter(), []
    with progress.VOICE.within(tell):
        for _ in progress.VOICE.counting("ab", "sides"):
            for _ in progress.VOICE.counting(range(4), "questions"):
                shown.append(tell.line("explain"))
                now[0] += 2
    assert shown[0] == "explain: 0 of 2 sides, 0 of 4 questions, 0 s so far"
    assert shown[5] == "explain: 1 of 2 sides, 1 of 4 questions, 10 s so far"
    assert tell.line("explain") == "explain: 16 s so far"


def test_parts_that_take_unlike_times_are_steps_and_no_time_is_left():
    tell = progress.Reporter()
    with progress.VOICE.within(tell), progress.VOICE.steps(6, tell.say) as step:
        step("shrinking")
        step("explaining")
        step("report")
        assert tell.line("reproduce") == "reproduce: step 3 of 6, 0 s so far: report"
        with progress.VOICE.counted("questions", 9):
            line = "reproduce: step 3 of 6, 0 of 9 questions, 0 s so far: report"
            assert tell.line("reproduce") == line
        assert tell.numbers()["remaining"] is None
    with progress.VOICE.within(tell):
        tell(1, 2, "a part")
        assert "left" not in tell.line("all of it")


def test_a_total_that_is_only_a_limit_is_said_to_be_one(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    tell = progress.Reporter(whole=True)
    tell.limited = True
    tell(0, 300, "dense")
    now[0] += 10
    tell(100, 300, "dense")
    assert (
        tell.line("shrink") == "shrink: 100 of at most 300, 10 a second, at most 20 s left: dense"
    )


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
