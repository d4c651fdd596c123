"""``probe lock`` and ``probe check``: models and cases without pytest; the project's own lock."""

import json
from pathlib import Path

import numpy as np
import pytest

from probe.cli.shell import run
from probe.lock import demo, file, runs
from probe.lock.values import bits_of

ROOT = Path(__file__).parents[2]
CASE = "--op dense --in-channels 33 --filters 4 --batch 3 --target reference".split()


def test_the_projects_own_lock_has_the_same_bits_or_does_not_know_this_machine():
    """The reference rounds as IEEE says: a processor without an entry has its bits too."""
    found = runs.check(ROOT / file.NAME, far="no")
    assert len(found) == 3
    assert runs.status(found) in (0, 3), [one.message for one in found]


def test_a_case_is_locked_checked_changed_and_blessed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bits.lock"
    assert run(["lock", *CASE, "--name", "rows"]) == 0
    assert run(["check"]) == 0
    assert run(["lock", *CASE, "--name", "rows"]) == 0
    assert "accepted already" in capfd.readouterr().out
    with file.changing(path) as lock:  # as if another release had given them
        (named,) = lock.checks["rows"]
        lock.accept("rows", lock.conditions[named], bits_of(np.zeros(3)), "planted")
    assert run(["check", "--why", "no", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert found["changed"] == 1
    assert found["checks"][0]["reason"] == "planted"
    assert run(["lock", *CASE, "--name", "rows"]) == 2
    assert "--bless REASON" in capfd.readouterr().err
    assert run(["lock", *CASE, "--name", "rows", "--bless", "because"]) == 0
    assert run(["check"]) == 0
    assert 'reason = "because"' in path.read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check"], "there is no such file"),
        (["lock"], "there is nothing to run"),
        (["lock", "none.onnx"], "there is no such file"),
        (["lock", "m:f", "--op", "dense"], "a case is given too"),
        (["lock", *CASE, "--bless", " "], "a reason is required"),
        (["setup", "hub"], "there is no such service"),
    ],
)
def test_wrong_input_is_one_line(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "bits.lock").exists()


def test_the_demonstration_gives_the_numbers_that_the_report_printed():
    found = demo.report()
    assert found["replayed"]
    assert found["differing"] == [1, 2]
    bits = [one["bits"] for one in found["lengths"]["8"]]
    assert bits == ["42737afd", "4291f5cf", "42aa2e20", "42c26673"]
    told = "\n".join(demo.lines())
    assert "s0 = p0 + p1 = -29.399 (0xc1eb3127)" in told
