"""Pins, interpreters, installers and root folders, offline: what is found and what is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from probe.case.errors import InputError
from probe.targets.runtimes import environments, packages
from probe.targets.runtimes.packages import Failed
from tests.targets.runtimes.conftest import script

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
    found = packages.release_recipe("tensorflow", version)
    assert found.python == python
    assert list(found.choices) == choices and list(found.beside) == beside


def test_arm64_takes_the_wheels_that_there_are():
    assert packages.release_recipe("tensorflow", "2.21.0", arm64=True).choices == (
        "tensorflow==2.21.0",
    )


def test_the_releases_to_search_ascend_and_can_all_be_installed():
    for library, releases in packages.RELEASED.items():
        assert list(releases) == sorted(releases, key=environments.release_numbers)
        assert all(packages.release_recipe(library, version) for version in releases)


def test_what_has_no_recipe_says_so():
    with pytest.raises(InputError, match=r"reference==1: no recipe .* there are recipes for tens"):
        packages.release_recipe("reference", "1")
    with pytest.raises(InputError, match="releases before 0.12 can't be installed"):
        packages.release_recipe("tensorflow", "0.8.0")


def test_an_interpreter_is_found_in_pyenv_the_newest_first(monkeypatch, tmp_path):
    for patch in ("9", "15"):
        script(tmp_path / f"versions/9.6.{patch}/bin/python", "echo 9.6")
    script(tmp_path / "versions/9.6.20/bin/python", "exit 1")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    packages.find_python.cache_clear()
    assert packages.find_python("9.6") == tmp_path / "versions/9.6.15/bin/python"


def test_a_missing_interpreter_says_how_to_get_it():
    assert packages.find_python("9.7") is None
    assert "needs Python 3.6" in packages.python_missing("3.6")
    assert packages.python_missing("3.6").endswith("pyenv install 3.6")
    assert "uv python install 3.11 or pyenv" in packages.python_missing("3.11")


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
    assert packages.complaint(printed) == said


def test_an_installer_that_fails_or_is_not_there():
    with pytest.raises(Failed, match="making it: E: broken"):
        packages.run_installer(["sh", "-c", "echo E: broken >&2; exit 100"], "making it")
    with pytest.raises(Failed, match="making it: no-such-program: No such file"):
        packages.run_installer(["no-such-program"], "making it")


def test_an_installer_is_not_led_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    packages.run_installer(["sh", "-c", f"env > {tmp_path / 'seen'}"], "looking")
    assert "/elsewhere" not in (tmp_path / "seen").read_text()


def test_a_root_folder_needs_a_python(tmp_path):
    with pytest.raises(Failed, match="no usr/bin/python3.N"):
        packages.provide_sysroot(tmp_path)
    script(tmp_path / "usr/bin/python3.11", "exit")
    script(tmp_path / "usr/bin/python3.9", "exit")
    assert packages.provide_sysroot(tmp_path) == tmp_path.resolve()
    assert packages.sysroot_python(tmp_path).name == "python3.11"
    into = tmp_path / "env"
    assert packages.make_arm64_environment(tmp_path, into) == "3.11"
    assert environments.sysroot_of(into) == tmp_path
    assert Path(os.readlink(environments.python_of(into))).name == "python3.11"
