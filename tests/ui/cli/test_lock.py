"""``probe lock``, ``check`` and ``setup`` as users type them."""

import json

import numpy as np
import pytest

from probe.record.store import bits_of
from probe.ui.cli import here as commands
from probe.ui.cli.shell import run
from probe.ui.lock import checks
from tests.ui.lock.projects import runs_in_this_process

CASE = "--op dense --in-channels 33 --filters 4 --batch 3 --target reference".split()


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs_in_this_process():
        yield


def test_a_case_is_locked_checked_changed_and_blessed(tmp_path, capfd):
    path = tmp_path / "bits.lock"
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 0
    assert run(["check"]) == 0
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 0
    assert commands.SAID["same"] in capfd.readouterr().out
    with checks.changing(path) as lock:  # as if another release had given them
        (named,) = lock.checks["rows"]
        lock.accept("rows", lock.conditions[named], bits_of(np.zeros(3)), "planted")
    assert run(["check", "--why", "no", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert found["changed"] == 1
    assert found["checks"][0]["reason"] == "planted"
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 2
    assert "--bless REASON" in capfd.readouterr().err
    assert run(["check", "lock", *CASE, "--name", "rows", "--bless", "because"]) == 0
    assert run(["check"]) == 0
    assert 'reason = "because"' in path.read_text()


def test_the_case_of_its_help_is_locked(capsys):
    assert run(["check", "lock", "--help"]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if " lock --op" in one)
    assert run(line.split()[1:]) == 0
