"""Whatever a child does is a TargetError that says so, and nothing of it is left behind."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from probe.case import operands
from probe.case.case import Case
from probe.case.errors import TargetError
from probe.targets import launch
from probe.targets.target import Target

pytestmark = pytest.mark.long

WORKER = Path(__file__).with_name("faulty_worker.py")
REFERENCE = Target("reference")
CASE = Case(op="conv1d", kernel=3, length=9)


def faulty(log: Path, time_limit: float = 20.0, **faults: str) -> launch.Session:
    command = (sys.executable, "-E", "-s", "-u", str(WORKER), json.dumps(faults), str(log))
    return launch.Session(REFERENCE, time_limit, 20.0, command)


def run(session: launch.AnySession) -> np.ndarray:
    x, w, _ = operands.generate(CASE)
    return session.request({"do": "run", "spec": CASE.spec()}, {"x": x, "w": w})[1]["y"]


def lost(session: launch.Session, kind: str, words: str | None = None, call=run) -> TargetError:
    """What a call of the session fails with, which has no child any more."""
    with pytest.raises(TargetError, match=words) as error:
        call(session)
    assert error.value.kind == kind and not session.alive
    return error.value


def ended(number: int) -> bool:
    for _ in range(100):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def session():
    with launch.open_session(REFERENCE) as opened:
        yield opened


def test_facts_come_from_the_child(session):
    assert session.facts["library"] == "numpy"
    expected = session.expected_facts()
    assert {name: session.facts[name] for name in expected} == expected


def test_a_child_and_this_process_give_the_same_bits(session):
    with launch.open_session(REFERENCE, inline=True) as inline:
        assert isinstance(inline, launch.InlineSession)
        assert run(session).tobytes() == run(inline).tobytes()


def test_an_error_leaves_the_session_alive(session):
    with pytest.raises(TargetError, match="nothing is loaded") as error:
        session.request({"do": "run", "key": "nothing"})
    assert error.value.kind == "error" and "BadRequest" in error.value.stderr
    assert session.alive and run(session).size


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("SIGSEGV", "crash", "ended by SIGSEGV"),
        ("SIGFPE", "crash", "ended by SIGFPE"),
        ("SIGILL", "crash", "ended by SIGILL: the library uses instructions that"),
        ("SIGKILL", "memory", "most likely the memory ran out"),
        ("exit", "crash", "exit status 3"),
        ("garbage", "protocol", "GARBAGE"),
    ],
)
@pytest.mark.slow_at("SIGFPE-crash-ended by SIGFPE", "exit-crash-exit status 3")
def test_a_lost_child_is_an_error_of_its_kind(tmp_path, fault, kind, words):
    with faulty(tmp_path / "log", **{"9": fault}) as session:
        error = lost(session, kind, words)
        assert error.target == "reference"
        assert ("last words" in error.stderr) == fault.startswith("SIG")
        with pytest.raises(TargetError, match="start it again"):
            run(session)
        session.start()
        assert session.request({"do": "stop"})


def test_a_child_that_hangs_is_ended_at_its_time_limit(tmp_path):
    log = tmp_path / "log"
    with faulty(log, 0.5, **{"9": "hang"}) as session:
        start = time.monotonic()
        lost(session, "timeout", "no answer within 0.5 s")
        assert time.monotonic() - start < 10
    assert ended(int(log.read_text().split()[1]))


@pytest.mark.slow
def test_an_answer_that_comes_late_is_nobody_elses(tmp_path):
    with faulty(tmp_path / "log", 0.3, **{"9": "once late"}) as session:
        lost(session, "timeout", "no answer within")
        session.start().time_limit = 20.0
        assert run(session).shape == (1, 7, 1)


@pytest.mark.parametrize(("fault", "words"), [("print", "that talks"), ("write", "out of C")])
@pytest.mark.slow_at("write-out of C")
def test_what_a_library_writes_to_stdout_is_no_answer(tmp_path, fault, words):
    with faulty(tmp_path / "log", **{"9": fault}) as session:
        assert run(session).shape == (1, 7, 1)
        assert words in session.tail()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("hang", "timeout"),
        ("exit", "crash"),
        ("import", "unavailable"),
        pytest.param("facts", "protocol", marks=pytest.mark.slow),
        pytest.param("unnamed", "protocol", marks=pytest.mark.slow),
    ],
)
def test_a_library_that_does_not_start(tmp_path, fault, kind):
    session = faulty(tmp_path / "log", start=fault)
    session.start_limit = 1.0 if fault == "hang" else 20.0
    lost(session, kind, call=launch.Session.start)
    session.close()


def test_an_interpreter_that_is_not_there():
    session = launch.Session(REFERENCE, command=("/nowhere/python3.5", "worker.py"))
    lost(session, "unavailable", "python3.5: No such file", launch.Session.start)
    session.close()


def test_a_target_that_cannot_run_here_is_unavailable():
    session = launch.Session(Target("tensorflow", "0.0.1"))
    with pytest.raises(TargetError, match="not installed here") as error, session:
        raise AssertionError("it has started")
    assert error.value.kind == "unavailable"


def test_the_shell_decides_no_bits(monkeypatch):
    for name in ("TF_ENABLE_ONEDNN_OPTS", "OMP_NUM_THREADS", "PYTHONPATH", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    there = launch.child_environment({"TF_ENABLE_ONEDNN_OPTS": "0"})
    assert there["TF_ENABLE_ONEDNN_OPTS"] == "0" and there["LANG"] == "C.UTF-8"
    assert set(there) <= {*launch.PASSED, "TF_ENABLE_ONEDNN_OPTS"}


def test_a_loaded_library_can_not_be_switched_in_this_process(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    with pytest.raises(TargetError, match="TF_ENABLE_ONEDNN_OPTS=0"):
        launch.open_session(Target.parse("tensorflow,onednn=0"), inline=True).start()


ORPHAN = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.targets.test_launch import Path, faulty, run
session = faulty(Path(sys.argv[2]), **{"9": "hang"}).start()
print("started", flush=True)
run(session)
"""


@pytest.mark.slow
def test_a_parent_that_is_killed_leaves_no_child(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", ORPHAN, str(WORKER.parents[2]), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        while len(log.read_text().split()) < 3:  # the hanging call has begun
            time.sleep(0.05)
        parent.kill()
    assert ended(int(log.read_text().split()[1]))


def test_closing_leaves_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = faulty(tmp_path / "log").start()
        session.close()
        session.close()
        del session
        gc.collect()
    assert ended(int((tmp_path / "log").read_text().split()[1]))
