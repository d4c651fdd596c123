"""``probe lock`` and ``probe check``: models and cases without pytest; the project's own lock."""

import json
from pathlib import Path

import numpy as np
import pytest

from probe.cli.shell import run
from probe.errors import InputError
from probe.lock import file, runs
from probe.recording.store import bits_of

ROOT = Path(__file__).parents[2]
CASE = "--op dense --in-channels 33 --filters 4 --batch 3 --target reference".split()


def test_the_projects_own_lock_has_the_same_bits_or_does_not_know_this_machine():
    """The reference rounds as IEEE says: a processor without an entry has its bits too."""
    found = runs.check_runs(ROOT / file.NAME, far="no")
    assert len(found) == 3
    assert runs.exit_status(found) in (0, 3), [one.message for one in found]


@pytest.mark.slow
def test_an_output_that_is_gone_has_changed_until_it_is_blessed(tmp_path, monkeypatch, capfd):
    """Of a run with several outputs, the lock has a check for each."""
    monkeypatch.chdir(tmp_path)
    assert run(["lock", *CASE, "--name", "rows"]) == 0
    with file.changing(tmp_path / "bits.lock") as lock:
        (named,) = lock.checks["rows"]
        lock.accept("rows::1", lock.conditions[named], bits_of(np.zeros(3)))
    assert run(["check"]) == 1
    assert "there is no such output any more" in capfd.readouterr().out
    assert run(["lock", *CASE, "--name", "rows"]) == 2
    assert run(["lock", *CASE, "--name", "rows", "--bless", "one is enough"]) == 0
    assert list(file.read_lock(tmp_path / "bits.lock").checks) == ["rows"]
    assert run(["check"]) == 0


@pytest.mark.slow
def test_formats_that_numpy_lacks_are_called_by_their_names(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run(["lock", *CASE, "--dtype", "bfloat16", "--name", "case"]) == 0
    assert "case: bfloat16 3x4" in capfd.readouterr().out
    pytest.importorskip("torch")
    (tmp_path / "halves.py").write_text(
        "import torch\n\ndef both():\n    x = torch.arange(3.0)\n"
        "    return x.bfloat16(), x.to(torch.uint8)\n"
    )
    assert run(["lock", "halves:both", "--name", "model"]) == 0
    told = capfd.readouterr().out
    assert "model::0: bfloat16 3" in told
    assert "model::1: uint8 3" in told


def test_a_model_on_another_release_runs_with_that_release_before_everything(tmp_path, monkeypatch):
    asked = []

    def overlay(releases, install, tell):
        asked.append((dict(releases), install))
        return tmp_path / "old" if install else "it is not installed"

    monkeypatch.setattr(runs.why, "overlay", overlay)
    spec = {"model": "a:b", "target": "jax==0.4.30,threads=1"}
    found = runs._command(spec, "name", tmp_path, True)
    assert asked == [({"jax": "0.4.30", "jaxlib": "0.4.30"}, True)]
    assert found.before == [tmp_path / "old"]
    assert json.loads(found.words[-1])["target"] == "jax,threads=1"
    with pytest.raises(InputError, match=r"target=jax==0.4.30,threads=1: it is not installed"):
        runs._command(spec, "name", tmp_path, False)
