"""Child processes that the tests of a module share."""

from __future__ import annotations

import signal

import pytest

from probe import launch, target
from probe.target import Target

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job that a shell put behind
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def started():
    """started(target text): a running Session; skips with the reason where it can't run."""
    sessions: dict[str, launch.Session] = {}

    def start(text):
        if why := target.unavailable(Target.parse(text)):
            pytest.skip(f"{text}: {why}")
        if text not in sessions:
            sessions[text] = launch.Session(Target.parse(text)).start()
        return sessions[text]

    yield start
    for session in sessions.values():
        session.close()


@pytest.fixture(autouse=True)
def _width_of_no_terminal(monkeypatch):
    """Tables are as wide as they are where nobody says how wide a terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)
