"""A check run again: commands under further conditions, and old releases."""

from pathlib import Path

from probe.lock import rerun
from probe.lock.conditions import CORES_OF


def test_a_release_that_is_not_here_is_not_installed_unasked(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    told = rerun.overlay({"numpy": "1.0"}, False, print)
    assert told == "numpy==1.0 is not installed (--bits-why=install installs it)"


def test_a_commands_own_variables_and_releases_come_first():
    own = rerun.Command(["x"], Path("."), {"A": "own"}, [Path("pinned")])
    found = own.under({"A": "entry", "B": "", CORES_OF: 1}, [Path("old")])
    assert found.variables == {"A": "own", "B": "", CORES_OF: 1}
    variables = found.environment()
    assert variables["A"] == "own"
    assert not {"B", CORES_OF} & set(variables)
    assert variables["PYTHONPATH"].split(":")[:2] == ["pinned", "old"]
