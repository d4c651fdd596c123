"""Child processes that the tests of a module share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

# before NumPy is imported: targets' processes have a clean environment, in which OpenBLAS chooses
# its kernels by the processor; tests that call NumPy beside them have to get the same ones
os.environ.pop("OPENBLAS_CORETYPE", None)

from probe.targets import backends, launch, progress, target
from probe.targets.target import Target

# ``reference`` has more algorithms in tests: for children too it is another package's backend
DOUBLES = "tests.targets.backends.doubles:Doubles", str(Path(__file__).parents[1])
registered = backends.registered
backends.BACKENDS.pop("reference", None)
backends.registered = lambda: {**registered(), "reference": DOUBLES}

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell put behind
    signal.signal(signal.SIGINT, signal.default_int_handler)

# OpenMP's threads (PyTorch's) otherwise spin while they wait, and take the processor from the
# tests of the other processes: a PyTorch test costs two to three times as much
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


CORES = 2
"""What every process of pytest-xdist keeps to, with its children: two threads are tested too."""


def pytest_configure(config):
    """Gives this process cores of its own where there are enough, so that children don't fight."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and hasattr(os, "sched_setaffinity"):
        own = sorted(os.sched_getaffinity(0))
        first = CORES * int(worker.removeprefix("gw"))
        os.sched_setaffinity(0, {own[(first + n) % len(own)] for n in range(CORES)})


def pytest_sessionstart(session):
    """Millions of objects come with the libraries and stay: none is looked for among them."""
    gc.disable()


def pytest_collection_finish(session):
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config):
    if "duckdb" in sys.modules:  # it prints of leaks where its objects outlive it
        gc.unfreeze()


def pytest_collection_modifyitems(items):
    for item in items:
        some = item.get_closest_marker("slow_at")
        if some and item.callspec.id in some.args:
            item.add_marker("slow")
        if not item.get_closest_marker("long"):
            item.add_marker("check")


KEPT = 6
"""Sessions that outlive a module, as many as there are libraries that several modules start:
starting TensorFlow takes seconds, keeping it 400 MB."""


@pytest.fixture(scope="session")
def _sessions():
    """Running sessions by the text of their target, the last used last."""
    sessions: dict[str, launch.Session] = {}
    yield sessions
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="module")
def started(_sessions):
    """started(target text): a running Session; skips with the reason where it can't run."""

    def start(text):
        if why := target.why_unavailable(Target.parse(text)):
            pytest.skip(f"{text}: {why}")
        session = _sessions.pop(text, None)
        if session is None or not session.alive:
            session = launch.Session(Target.parse(text)).start()
        _sessions[text] = session
        return session

    yield start
    while len(_sessions) > KEPT:
        _sessions.pop(next(iter(_sessions))).close()


@pytest.fixture(autouse=True)
def _gradients_are_on():
    """A target that ran in this process may have switched PyTorch's gradients off."""
    if torch := sys.modules.get("torch"):
        torch.set_grad_enabled(True)


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch):
    """Stderr says the same however busy the machine is; the test of progress sets its own pace."""
    monkeypatch.setattr(progress, "FIRST", 1e6)
    monkeypatch.setattr(progress, "EVERY", 1e6)


@pytest.fixture(autouse=True)
def _width_of_no_terminal(monkeypatch):
    """Tables are as wide as they are where nobody says how wide a terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)
