"""Everything that a command does ends within two seconds of ``--time``, Ctrl-C and SIGTERM.

What was left out is said, and nothing is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probe.case.errors import InputError, NothingKnown
from probe.targets import budget
from probe.targets.budget import PATIENCE, PRINTING
from probe.ui.cli import shell


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), (" 0.5S ", 0.5)],
)
def test_times_are_read_with_their_units(text, seconds):
    assert budget.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-3m", "0s", "1e9h", "3d", "nan", "9" * 8 + "h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="time=.*90s, 30m"):
        budget.seconds(text)


SWEEP = "sweep --op sum --in-channels 9 --lengths 1..40 --target numpy --target reference --time"


def test_the_command_says_what_was_left_out(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(budget.Budget, "over", True)
    words = [*SWEEP.split(), "1s", "--store", str(tmp_path)]
    assert shell.run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["time"] == 1 and found["left_out"] == {"comparisons": 78}
    for name in ("numpy", "reference"):
        one = found["targets"][name]
        assert one["left_out"] == {"comparisons": 39, "lengths": "1..39"} and not one["failures"]
    assert shell.run(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "78 of 78 comparisons were left out" in out and "not run" in out
    monkeypatch.undo()
    assert shell.run([*words[:-3], "10m", "--store", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"] == {"comparisons": 0} and found["comparisons"] == 78


@pytest.mark.parametrize("more", ["30x", "1m --by order"])
def test_a_time_that_cannot_be_is_one_line(more, capsys):
    assert shell.run([*SWEEP.split(), *more.split()]) == 2
    assert capsys.readouterr().err.startswith("probe: time=")


ROOT = Path(__file__).parents[2]

# A command whose work is given: what a library does in one call of minutes, or in a crash.
COMMAND = """
import os, signal, subprocess, sys, threading, time
from probe.targets import budget
budget.PATIENCE = {patience}
def hold():  # a call that hears no signal: Python's handlers run between two steps of its own
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGALRM, signal.SIGTERM}})
    time.sleep(60)
def work():
    {work}
    return 0
sys.exit(budget.supervised(work, "--json" in sys.argv))
"""


def started(work: str, *words: str, patience: float = PATIENCE) -> subprocess.Popen:
    """``patience``: shorter for a command that does not use it anyhow."""
    code = COMMAND.format(work=work.replace("\n", "\n    "), patience=patience)
    command = [sys.executable, "-c", code, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, text=True, env=env, **pipes)


def ended(process: subprocess.Popen, number: int | None = None) -> tuple[int, str, str, float]:
    """Status, stdout, stderr, and seconds from a signal, which is sent once it says so."""
    pipe = process.stdout.fileno()
    while os.read(pipe, 1) not in b"\n":  # readline() keeps what is behind it from communicate()
        continue
    time.sleep(0.2)  # it says so just before it begins
    begun = time.monotonic()
    if number is not None:
        process.send_signal(number)
    out, err = process.communicate(timeout=50)
    return process.returncode, out, err, time.monotonic() - begun


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process is gone, or waits for nothing but that its parent asks how it ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        if subprocess.run(command, capture_output=True, text=True).stdout.strip()[:1] in ("", "Z"):
            return True
        time.sleep(0.1)
    return False


BUSY = "budget.note('asking sum')\nprint('go', flush=True)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_call_that_hears_nothing_is_ended_and_one_line_says_in_what(number):
    status, out, err, seconds = ended(started(BUSY + "hold()", "--json", patience=0.2), number)
    assert status == 130 and seconds < 3.5 and PATIENCE + PRINTING < 2
    assert err.startswith("probe: interrupted after ") and err.endswith("s: asking sum\n")
    told = json.loads(out)
    assert told["exit"] == 130 and told["error"]["kind"] == "interrupted"


def test_time_ends_a_call_that_hears_nothing():
    work = "with budget.within('1s'):\n    " + BUSY.replace("\n", "\n    ") + "hold()"
    status, out, err, seconds = ended(started(work, patience=0.2))
    assert status == 3 and seconds < 4
    assert "the 1 s of --time were over after" in err and "asking sum" in err and not out


def test_what_a_command_has_started_ends_with_it():
    child = "child = subprocess.Popen(['sleep', '60'])\nprint(child.pid, flush=True)\n"
    process = started("budget.note('installing')\n" + child + "hold()", patience=0.2)
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.communicate()
    assert gone(pid)


def test_what_ends_by_itself_gives_its_own_status_and_answer():
    work = BUSY + "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('known')\n"
    status, out, _, seconds = ended(started(work + "    return 7"), signal.SIGTERM)
    assert (status, out) == (7, "known\n") and seconds < 3.5


def test_a_signal_to_the_whole_group_leaves_the_time_to_say_what_is_known():
    # as timeout(1) and systemd send it: the supervisor passes on what the command has had already
    work = """print(flush=True)
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
except KeyboardInterrupt:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.5)
    print("what is known", flush=True)"""
    _, out, err, _ = ended(started(work))
    assert (out, err) == ("what is known\n", "")


def test_an_answer_that_is_printed_is_the_end_though_a_library_does_not_come_to_its_own():
    work = BUSY + "import atexit\natexit.register(time.sleep, 60)\ntry:\n    time.sleep(60)\n"
    work += "except KeyboardInterrupt:\n    print('known', flush=True)"
    status, out, err, seconds = ended(started(work, patience=0.5), signal.SIGINT)
    assert (status, out, err) == (0, "known\n", "") and seconds < 3.5


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [("SIGSEGV", 3, "SIGSEGV"), ("SIGKILL", 2, "most likely the memory ran out")],
)
def test_a_crash_is_one_line(number, status, words):
    """It ended with a signal's number, and nothing was printed."""
    work = BUSY + f"os.kill(os.getpid(), signal.{number})\ntime.sleep(5)"
    got, out, err, _ = ended(started(work, "--json"))
    assert got == status and words in err and "asking sum" in err and len(err.splitlines()) == 1
    assert json.loads(out)["exit"] == status


def test_a_command_whose_supervisor_was_killed_ends_too():
    process = started("print(os.getpid(), flush=True)\nhold()")
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=20)  # its pipes are closed when both are gone
    assert gone(pid)


def test_time_ends_the_main_thread_wherever_it_is_and_no_handler_of_exceptions_keeps_it():
    """``except Exception`` around a library's call took the end of time for the call's failure."""
    begun = time.monotonic()

    def work():
        with budget.within("1s"):
            while True:
                try:
                    time.sleep(30)
                except Exception:
                    continue

    with pytest.raises(NothingKnown, match="the 1 s of --time were over"):
        work()
    assert 0.9 < time.monotonic() - begun < 5
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_within_a_part_that_ends_what_is_known_stays_and_nothing_more_is_begun():
    known = []
    with budget.within("0.5s"):
        with budget.Ending():
            for number in range(100):
                known.append(number)
                time.sleep(0.2)
        assert 1 < len(known) < 50 and budget.spent() == "the 0 s of --time were over"
        with budget.within(None):  # a part has no time of its own
            assert budget.spent()
    assert not budget.spent()
