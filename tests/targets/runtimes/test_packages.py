"""Pins, interpreters, installers and root folders, offline: what is found and what is said."""

from __future__ import annotations

import os
import sys
import zipfile
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
        ("1.12.0", "3.6", ["tensorflow==1.12.0"], []),
        ("1.13.1", "3.7", ["tensorflow==1.13.1"], ["protobuf<3.21"]),
        ("1.15.0", "3.7", ["tensorflow-cpu==1.15.0", "tensorflow==1.15.0"], ["protobuf<3.21"]),
        ("1.15.5", "3.7", ["tensorflow==1.15.5"], ["protobuf<3.21"]),
        ("2.9.0", "3.7", ["tensorflow-cpu==2.9.0", "tensorflow==2.9.0"], ["protobuf<3.21"]),
        ("2.11.0", "3.7", ["tensorflow-cpu==2.11.0", "tensorflow==2.11.0"], []),
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


def test_this_python_serves_its_own_version():
    version = "{}.{}".format(*sys.version_info)
    found = packages.find_python(version)
    assert found is not None and packages.answers(found, version)


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


@pytest.mark.parametrize("pip", [None, "a spec"])
def test_arm64_wheels_come_by_pip_where_there_is_no_uv(monkeypatch, tmp_path, pip):
    ran = []
    monkeypatch.setattr(packages, "uv", lambda: None)
    monkeypatch.setattr(packages, "find_python", lambda version: Path("/base/python"))
    monkeypatch.setattr(packages, "find_spec", lambda name: pip)
    monkeypatch.setattr(packages, "run_installer", lambda command, what: ran.append(command))
    packages.install_for_arm64(tmp_path, "3.11", ["a==1"])
    ((python, *words),) = ran
    assert python == (sys.executable if pip else "/base/python")
    assert words[-3:] == ["--target", str(tmp_path), "a==1"]


@pytest.mark.slow
def test_pip_takes_an_arm64_wheel_of_every_glibc(monkeypatch, tmp_path):
    """pip matches tags exactly: TensorFlow 2.21.0's wheel, of 2_27, was not found among 2_28's."""
    tags = ["manylinux_2_17", "manylinux_2_27", "manylinux_2_34", "manylinux_2_39", "manylinux2014"]
    for number, tag in enumerate(tags):
        name, info = f"wheel{number}", f"wheel{number}-1.dist-info"
        with zipfile.ZipFile(tmp_path / f"{name}-1-py3-none-{tag}_aarch64.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "")
            metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
            wheel.writestr(f"{info}/METADATA", metadata)
            words = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-{tag}_aarch64\n"
            wheel.writestr(f"{info}/WHEEL", words)
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(packages, "uv", lambda: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wanted = [f"wheel{number}==1" for number in range(len(tags))]
    packages.install_for_arm64(tmp_path / "there", "3.11", wanted)
    assert len(list((tmp_path / "there").glob("wheel*.py"))) == len(tags)


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


def test_a_root_folder_that_fails_on_the_way_is_taken_away(monkeypatch, tmp_path):
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    script(tmp_path / "bin" / "dpkg", "exit")
    script(tmp_path / "bin" / "apt-get", "echo 'E: No space left on device' >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(Failed, match="apt-get update: No space left on device"):
        packages.provide_sysroot()
    assert not packages.sysroot_folder().exists()


def test_where_an_environment_has_no_pip_uv_runs_one(monkeypatch):
    assert packages.own_pip()[:3] == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    monkeypatch.setattr(packages, "uv", lambda: "/here/uv")
    words = packages.own_pip()
    assert words[:2] == ["/here/uv", "run"] and sys.executable in words
    monkeypatch.setattr(packages, "uv", lambda: None)
    with pytest.raises(packages.Failed, match="neither pip nor uv is here; run python -m"):
        packages.own_pip()
    assert packages.releases_known("numpy") == []
