"""Installing with made-up installers: what is checked, what is told, and that nothing is left."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from probe.case.errors import InputError, TargetError
from probe.targets import installation
from probe.targets.installation import install_target, remove_installed
from probe.targets.launch import InlineSession, Session
from probe.targets.runtimes import environments, packages
from probe.targets.target import Target
from probe.ui.cli import shell

VERSION = f"{np.__version__}.0"
"""Another spelling of this NumPy's release, so that the reference is a release to install."""

WHERE = Target("reference", VERSION)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache and an installer of our own: an environment is this interpreter behind a script."""
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    python = "{}.{}".format(*sys.version_info)
    monkeypatch.setitem(packages.RELEASES, "reference", (packages.Pins("1", python),))
    monkeypatch.setattr(packages, "create", create(f'exec "{sys.executable}" "$@"'))
    monkeypatch.setattr(packages, "install_release", lambda folder, recipe: recipe.choices[-1])
    return tmp_path


def create(text):
    """A stand-in for ``packages.create`` that makes the interpreter this script."""

    def made(folder, python):
        path = environments.python_of(folder)
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    return made


def test_what_is_installed_runs_and_can_be_removed():
    told = []
    found = install_target(WHERE, lambda done, total, text: told.append((done, total)))
    assert not found.already and found.facts["library_version"] == np.__version__
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert install_target(WHERE).already
    with Session(WHERE) as session:
        assert session.expected_facts().items() <= session.facts.items()
    with pytest.raises(TargetError, match="a different Python interpreter runs it"):
        InlineSession(WHERE).start()
    assert remove_installed(WHERE).target == WHERE.text
    assert environments.installed_environments() == []
    with pytest.raises(InputError, match="it is not installed; there are: none"):
        remove_installed(WHERE)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "does not answer: its process ended with exit status 3"),
        ("kill -SEGV $$", "does not answer: its process was ended by SIGSEGV"),
        ("yes", "does not answer: its worker sent an invalid answer"),
    ],
)
def test_an_interpreter_that_dies_is_never_used(script, said, monkeypatch):
    monkeypatch.setattr(packages, "create", create(script))
    check_failure(said)


def check_failure(said, where=WHERE):
    """The failure is one line, and nothing is left of the environment."""
    with pytest.raises(TargetError, match=said) as failure:
        install_target(where)
    assert failure.value.kind == "unavailable" and "\n" not in str(failure.value)
    assert environments.installed_environments() == []
    assert not environments.folder_of(where.name, str(where.version)).exists()


def test_a_full_disk(monkeypatch):
    def full(folder, python):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packages, "create", full)
    check_failure(
        "its folder in the cache can't be used: No space left on device; PROBE_CACHE can name"
    )


def test_ctrl_c_leaves_nothing(monkeypatch):
    def interrupted(folder, recipe):
        raise KeyboardInterrupt

    monkeypatch.setattr(packages, "install_release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install_target(WHERE)
    assert not environments.folder_of("reference", VERSION).exists()


def test_another_release_in_its_place(monkeypatch):
    check_failure(f"{np.__version__} answers in its place", Target("reference", "1.0"))


def test_a_library_that_computes_wrongly(monkeypatch):
    wrong = tuple(one.with_(weights=(1.0, 2.0, 5.0)) for one in installation.CHECKS)
    monkeypatch.setattr(installation, "CHECKS", wrong)
    check_failure("computes 1 \\+ 2 \\+ 4 wrongly")


def test_what_needs_no_installation_says_so():
    with pytest.raises(InputError, match="it does not name a release to install; write which"):
        install_target(Target("reference"))
    with pytest.raises(InputError, match="no recipe installs releases of numpy"):
        install_target(Target("numpy", "1.0"))


def test_the_command(capsys):
    assert shell.run(["targets", "install", "--list"]) == 0
    assert "nothing is installed" in capsys.readouterr().out
    assert shell.run(["targets", "install", WHERE.text, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["target"] == WHERE.text and not report["already"]
    assert shell.run(["targets", "install", "--list", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["installed"]
    assert row["target"] == WHERE.text and row["bytes"] > 0
    assert shell.run(["targets", "install", "--remove", WHERE.text]) == 0
    assert shell.run(["targets", "install"]) == 2
    assert "name one such as tensorflow==1.2.1" in capsys.readouterr().err
