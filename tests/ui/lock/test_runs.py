"""``probe check lock`` and ``probe check``: models and cases without pytest; the project's own
lock."""

import json
from pathlib import Path

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.record.store import bits_of
from probe.ui.cli.shell import run
from probe.ui.lock import checks, runs
from tests.ui.lock.projects import runs_in_this_process

ROOT = Path(__file__).parents[3]
CASE = "--op dense --in-channels 33 --filters 4 --batch 3 --target reference".split()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs_in_this_process():
        yield tmp_path


@pytest.mark.slow
def test_the_projects_own_lock_has_the_same_bits_or_does_not_know_this_machine():
    """The reference rounds as IEEE says: a processor without an entry has its bits too."""
    found = runs.check_runs(ROOT / checks.NAME, far="no")
    assert len(found) == 3
    assert runs.exit_status(found) in (0, 3), [one.message for one in found]


def test_an_output_that_is_gone_has_changed_until_it_is_blessed(here, capfd):
    """Of a run with several outputs, the lock has a check for each."""
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 0
    with checks.changing(here / "bits.lock") as lock:
        (named,) = lock.checks["rows"]
        lock.accept("rows::1", lock.conditions[named], bits_of(np.zeros(3)))
    assert run(["check"]) == 1
    assert "there is no such output any more" in capfd.readouterr().out
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 2
    assert run(["check", "lock", *CASE, "--name", "rows", "--bless", "one is enough"]) == 0
    assert list(checks.read_lock(here / "bits.lock").checks) == ["rows"]
    assert run(["check"]) == 0


def test_formats_that_numpy_lacks_are_called_by_their_names(here, capfd):
    assert run(["check", "lock", *CASE, "--dtype", "bfloat16", "--name", "case"]) == 0
    assert "case: bfloat16 3x4" in capfd.readouterr().out
    pytest.importorskip("torch")
    (here / "halves.py").write_text(
        "import torch\n\ndef both():\n    x = torch.arange(3.0)\n"
        "    return x.bfloat16(), x.to(torch.uint8)\n"
    )
    assert run(["check", "lock", "halves:both", "--name", "model"]) == 0
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


def test_a_lock_runs_no_code_that_the_user_does_not_trust(here, capfd):
    """A lock comes with a repository: it would import any module, and say itself that it may."""
    (here / "theirs.py").write_text("import os\nos.mkdir('made')\n\ndef f():\n    return 1\n")
    pickle = 'model = "theirs.pt"'
    (here / "theirs.pt").write_bytes(b"cposix\nmkdir\n(S'made'\ntR.")
    for how in ('model = "theirs:f"', pickle):
        lines = ["format = 1", "[run.r]", how, 'trust = "1"', checks.END]
        (here / "bits.lock").write_text("\n".join(lines) + "\n")
        assert "trust" not in checks.read_lock(here / "bits.lock").runs["r"]
        assert run(["check"]) == 3
        assert "--trust" in capfd.readouterr().out
        assert not (here / "made").exists()
        assert run(["check", "--trust"]) == 3  # it gives no array; but now its code has run
        assert (here / "made").exists()
        (here / "made").rmdir()


def test_what_the_user_locks_needs_no_trust_but_a_pickles(here):
    (here / "own.py").write_text(
        "import jax.numpy as jnp\n\ndef f():\n    return jnp.arange(3.0)\n"
    )
    assert run(["check", "lock", "own:f", "--name", "own"]) == 0
    assert run(["check", "--trust"]) == 0
    assert "trust" not in (here / "bits.lock").read_text()
