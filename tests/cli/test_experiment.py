"""`probe run`: the script of an experiment, then its notebook."""

from probe.cli import experiment, shell


def test_help_of_a_script_executes_no_notebook(monkeypatch, capfd):
    monkeypatch.setattr(experiment, "execute_notebook", lambda *_: 1 / 0)
    assert shell.run(["run", "batch_invariance", "--", "--help"]) == 0
    assert "--quick" in capfd.readouterr().out
