"""Installing, offline: pins, interpreters, root folders; made-up installers leave nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from probe.case.errors import InputError, TargetError
from probe.targets import environments, installation
from probe.targets.installation import Failed, install_target, release_recipe, remove_installed
from probe.targets.launch import InlineSession, Session
from probe.targets.target import Target
from probe.ui.cli import shell
from tests.targets.conftest import script

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize(
    ("version", "python", "choices", "beside"),
    [
        ("0.12.1", "3.6", ["tensorflow==0.12.1"], []),
        ("1.13.1", "3.7", ["tensorflow==1.13.1"], ["protobuf<3.21"]),
        ("1.15.0", "3.7", ["tensorflow-cpu==1.15.0", "tensorflow==1.15.0"], ["protobuf<3.21"]),
        ("2.9.0", "3.7", ["tensorflow-cpu==2.9.0", "tensorflow==2.9.0"], ["protobuf<3.21"]),
        ("2.14.0", "3.11", ["tensorflow-cpu==2.14.0", "tensorflow==2.14.0"], ["numpy<2"]),
        ("2.21.0", "3.11", ["tensorflow-cpu==2.21.0", "tensorflow==2.21.0"], []),
    ],
)
def test_each_release_has_its_recipe(version, python, choices, beside):
    found = release_recipe("tensorflow", version)
    assert found.python == python
    assert list(found.choices) == choices and list(found.beside) == beside


def test_arm64_takes_the_wheels_that_there_are():
    assert release_recipe("tensorflow", "2.21.0", arm64=True).choices == ("tensorflow==2.21.0",)


def test_the_releases_to_search_ascend_and_can_all_be_installed():
    for library, releases in installation.RELEASED.items():
        assert list(releases) == sorted(releases, key=environments.release_numbers)
        assert all(release_recipe(library, version) for version in releases)


def test_what_has_no_recipe_says_so():
    with pytest.raises(InputError, match=r"reference==1: no recipe .* there are recipes for tens"):
        release_recipe("reference", "1")
    with pytest.raises(InputError, match="releases before 0.12 can't be installed"):
        release_recipe("tensorflow", "0.8.0")


def test_an_interpreter_is_found_in_pyenv_the_newest_first(monkeypatch, tmp_path):
    for patch in ("9", "15"):
        script(tmp_path / f"versions/9.6.{patch}/bin/python", "echo 9.6")
    script(tmp_path / "versions/9.6.20/bin/python", "exit 1")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    installation.find_python.cache_clear()
    assert installation.find_python("9.6") == tmp_path / "versions/9.6.15/bin/python"


def test_a_missing_interpreter_says_how_to_get_it():
    assert installation.find_python("9.7") is None
    assert "needs Python 3.6" in installation.python_missing("3.6")
    assert installation.python_missing("3.6").endswith("pyenv install 3.6")
    assert "uv python install 3.11 or pyenv" in installation.python_missing("3.11")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("\x1b[31m  × No solution found\x1b[0m\n  ╰─▶ Because there is no version of a==9\n",
         "No solution found Because there is no version of a==9"),
        ("error: No solution found\n  cause: Because there is no version of a==9\n",
         "error: No solution found cause: Because there is no version of a==9"),
        ("Collecting a\nERROR: No matching distribution found for a==9\nhint: try\n",
         "ERROR: No matching distribution found for a==9"),
        ("error: Failed to install\ncause: /a to /b: No space left on device (os error 28)\n",
         "No space left on device"),
        ("", "it failed without a message"),
    ],
)  # fmt: skip
def test_an_installers_complaint_in_one_line(printed, said):
    assert installation.complaint(printed) == said


def test_an_installer_that_fails_or_is_not_there():
    with pytest.raises(Failed, match="making it: E: broken"):
        installation.run_installer(["sh", "-c", "echo E: broken >&2; exit 100"], "making it")
    with pytest.raises(Failed, match="making it: no-such-program: No such file"):
        installation.run_installer(["no-such-program"], "making it")


def test_an_installer_is_not_led_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    installation.run_installer(["sh", "-c", f"env > {tmp_path / 'seen'}"], "looking")
    assert "/elsewhere" not in (tmp_path / "seen").read_text()


def test_a_root_folder_needs_a_python(tmp_path):
    with pytest.raises(Failed, match="no usr/bin/python3.N"):
        installation.provide_sysroot(tmp_path)
    script(tmp_path / "usr/bin/python3.11", "exit")
    script(tmp_path / "usr/bin/python3.9", "exit")
    assert installation.provide_sysroot(tmp_path) == tmp_path.resolve()
    assert installation.sysroot_python(tmp_path).name == "python3.11"
    into = tmp_path / "env"
    assert installation.make_arm64_environment(tmp_path, into) == "3.11"
    assert environments.sysroot_of(into) == tmp_path
    assert Path(os.readlink(environments.python_of(into))).name == "python3.11"


VERSION = f"{np.__version__}.0"
"""Another spelling of this NumPy's release, so that the reference is a release to install."""

WHERE = Target("reference", VERSION)


@pytest.fixture
def made_up(monkeypatch):
    """An installer of our own: an environment is this interpreter behind a script."""
    python = "{}.{}".format(*sys.version_info)
    monkeypatch.setitem(installation.RELEASES, "reference", (installation.Pins("1", python),))
    monkeypatch.setattr(installation, "create_environment", create(f'exec "{sys.executable}" "$@"'))
    monkeypatch.setattr(installation, "install_release", lambda folder, recipe: recipe.choices[-1])


def create(text):
    """A stand-in for ``create_environment`` that makes the interpreter this script."""

    return lambda folder, python: script(environments.python_of(folder), text)


@pytest.mark.usefixtures("made_up")
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


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 3", "does not answer: its process ended with exit status 3"),
        ("kill -SEGV $$", "does not answer: its process was ended by SIGSEGV"),
        ("yes", "does not answer: its worker sent an invalid answer"),
    ],
)
def test_an_interpreter_that_dies_is_never_used(text, said, monkeypatch):
    monkeypatch.setattr(installation, "create_environment", create(text))
    check_failure(said)


def check_failure(said, where=WHERE):
    """The failure is one line, and nothing is left of the environment."""
    with pytest.raises(TargetError, match=said) as failure:
        install_target(where)
    assert failure.value.kind == "unavailable" and "\n" not in str(failure.value)
    assert environments.installed_environments() == []
    assert not environments.folder_of(where.name, str(where.version)).exists()


@pytest.mark.usefixtures("made_up")
def test_a_full_disk(monkeypatch):
    def full(folder, python):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(installation, "create_environment", full)
    check_failure(
        "its folder in the cache can't be used: No space left on device; PROBE_CACHE can name"
    )


@pytest.mark.usefixtures("made_up")
def test_ctrl_c_leaves_nothing(monkeypatch):
    def interrupted(folder, recipe):
        raise KeyboardInterrupt

    monkeypatch.setattr(installation, "install_release", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install_target(WHERE)
    assert not environments.folder_of("reference", VERSION).exists()


@pytest.mark.usefixtures("made_up")
def test_another_release_in_its_place(monkeypatch):
    check_failure(f"{np.__version__} answers in its place", Target("reference", "1.0"))


@pytest.mark.usefixtures("made_up")
def test_a_library_that_computes_wrongly(monkeypatch):
    wrong = tuple(one.with_(weights=(1.0, 2.0, 5.0)) for one in installation.CHECKS)
    monkeypatch.setattr(installation, "CHECKS", wrong)
    check_failure("computes 1 \\+ 2 \\+ 4 wrongly")


@pytest.mark.usefixtures("made_up")
def test_what_needs_no_installation_says_so():
    with pytest.raises(InputError, match="it does not name a release to install; write which"):
        install_target(Target("reference"))
    with pytest.raises(InputError, match="no recipe installs releases of numpy"):
        install_target(Target("numpy", "1.0"))


@pytest.mark.usefixtures("made_up")
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
