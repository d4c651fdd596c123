"""Child processes that the tests of a module share."""

from __future__ import annotations

import pytest

from probe import launch, target
from probe.target import Target


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
