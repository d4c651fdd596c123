"""A cache of the tests' own, and scripts that stand in for interpreters and emulators."""

from __future__ import annotations

import pytest


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """No test sees or touches the user's environments."""
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def script(path, text):
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
