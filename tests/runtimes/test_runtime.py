"""Pins, interpreters, environments and emulators, offline: what is found and what is said."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from probe import target
from probe.campaign import run_row
from probe.errors import InputError
from probe.runtimes import environments, packages, runtime, sysroot
from probe.runtimes.packages import Failed
from probe.target import Target


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """No test sees or touches the user's environments."""
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def script(path, text):
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("2.4", "2.4.0", True), ("2.13.0", "2.13.0+cpu", True), ("1.2.1", "1.2.2", False)],
)
def test_one_release_has_several_spellings(one, other, same):
    assert environments.same_release(one, other) is same


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


def made(library="tensorflow", version="1.2.1", arm64=False):
    """A complete environment whose interpreter is this one."""
    folder = environments.folder_of(library, version, arm64)
    script(environments.python_of(folder), f'exec {sys.executable} "$@"')
    facts = {"library_version": version, "python_version": "3.6.15", "numpy_version": "1.19.5"}
    environments.complete(folder, library, version, arm64, facts)
    return folder


def test_an_environment_counts_when_it_is_complete(cache):
    folder = made()
    found = environments.find_environment("tensorflow", "1.2.1")
    assert found is not None and found.name == "tensorflow-1.2.1"
    assert found.target == "tensorflow==1.2.1" and found.size() > 0
    assert environments.installed_environments() == [found]
    environments.remove_environment(folder)
    assert environments.installed_environments() == [] and not folder.exists()


@pytest.mark.parametrize("mark", [None, "", "{", "[]", '{"format": 99, "facts": {}}'])
def test_a_half_made_environment_is_not_one(mark):
    folder = made()
    (folder / environments.MARK).unlink()
    if mark is not None:
        (folder / environments.MARK).write_text(mark)
    assert environments.find_environment("tensorflow", "1.2.1") is None
    assert environments.installed_environments() == []


def test_environments_are_listed_by_release():
    for version in ("2.10.0", "1.15.0", "2.9.0"):
        made(version=version)
    made(version="2.9.0", arm64=True)
    listed = [one.target for one in environments.installed_environments()]
    assert listed == [f"tensorflow=={v}" for v in ("1.15.0", "2.9.0", "2.9.0@arm64", "2.10.0")]


def test_a_release_runs_on_its_environments_interpreter():
    where = Target.parse("tensorflow==1.2.1")
    assert "tensorflow==1.2.1 is not installed here" in str(target.why_unavailable(where))
    assert str(target.why_unavailable(where)).endswith("probe install tensorflow==1.2.1")
    folder = made()
    assert target.why_unavailable(where) is None
    assert target.target_runtime(where).command == (str(folder / "bin" / "python"),)
    assert target.target_runtime(where).emulated is None


QEMU = """case "$*" in
*help*) printf 'Available CPUs:\\nx86 Haswell  (alias)\\nx86 Nehalem-v1  Intel Core i7\\n'
 printf '\\nRecognized CPUID flags:\\n  3dnow avx\\n'; exit 1;;
*version*) echo 'qemu-x86_64 version 7.2.22 (Debian)';;
esac"""


@pytest.fixture
def qemu(monkeypatch, tmp_path):
    """A qemu that knows two processors, and prints what a real one prints."""
    folder = tmp_path / "programs"
    for name in (runtime.X86, runtime.ARM64):
        script(folder / name, QEMU)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(runtime.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(runtime.platform, "system", lambda: "Linux")
    caches = (runtime.emulator_path, runtime.models, runtime.emulator_version)
    for each in caches:
        each.cache_clear()
    yield folder
    for each in caches:
        each.cache_clear()


def test_qemu_says_which_processors_there_are(qemu):
    assert runtime.models() == {"haswell": "Haswell", "nehalem-v1": "Nehalem-v1"}
    assert Target.parse("tensorflow@nehalem-v1").device == "nehalem-v1"
    with pytest.raises(InputError, match="no device 'pentium9'"):
        Target.parse("tensorflow@pentium9")
    said = str(target.why_unavailable(Target.parse("tensorflow@skylake-server")))
    assert said == "qemu-x86_64 7.2.22 has no processor skylake-server; see qemu-x86_64 -cpu help"


def test_an_emulated_processor_goes_around_the_targets_interpreter(qemu):
    own = target.target_runtime(Target.parse("reference@haswell"))
    assert own.command == (str(qemu / "qemu-x86_64"), "-cpu", "Haswell", sys.executable)
    assert own.slower > 1
    folder = made()
    old = target.target_runtime(Target.parse("tensorflow==1.2.1@haswell"))
    assert old.command[-1] == str(folder / "bin" / "python")
    assert old.emulated == "qemu-x86_64 7.2.22 -cpu Haswell"


def test_arm64_runs_an_environment_of_its_own(qemu):
    where = Target.parse("tensorflow==2.21.0@arm64")
    assert str(target.why_unavailable(where)).endswith("probe install tensorflow==2.21.0@arm64")
    folder = made(version="2.21.0", arm64=True)
    (folder / sysroot.LINK).symlink_to("/an/arm64")
    assert target.target_runtime(where).command == (
        *(str(qemu / "qemu-aarch64"), "-L", "/an/arm64"),
        str(folder / "bin" / "python"),
    )


def test_an_emulated_run_tells_nothing_of_this_processor(qemu):
    row = run_row(Target.parse("reference@haswell"), {}, {})
    assert row["emulated"] == "qemu-x86_64 7.2.22 -cpu Haswell"
    assert row["cpu_model"] == "haswell (emulated)"
    assert row["cpu_vendor"] is row["cpu_isa"] is row["cpu_family"] is None
    native = run_row(Target.parse("reference"), {}, {})
    assert native["emulated"] is None and native["run_id"] != row["run_id"]


def test_without_qemu_nothing_is_emulated(qemu, monkeypatch):
    monkeypatch.setattr(runtime, "emulator_path", lambda name: None)
    for device, name in (("haswell", "qemu-x86_64"), ("arm64", "qemu-aarch64")):
        said = str(target.why_unavailable(Target.parse(f"tensorflow@{device}")))
        assert f"{name}, which is not installed; install qemu's user mode" in said


@pytest.mark.parametrize(
    ("system", "machine", "said"),
    [
        ("Darwin", "arm64", "runs on Linux; this is Darwin"),
        ("Linux", "aarch64", "needs an x86 interpreter; this machine is aarch64"),
    ],
)
def test_emulation_says_where_it_works(qemu, monkeypatch, system, machine, said):
    monkeypatch.setattr(runtime.platform, "system", lambda: system)
    monkeypatch.setattr(runtime.platform, "machine", lambda: machine)
    assert said in str(runtime.emulation_missing("haswell"))


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


def test_a_root_folder_needs_a_python(tmp_path):
    with pytest.raises(Failed, match="no usr/bin/python3.N"):
        sysroot.provide(tmp_path)
    script(tmp_path / "usr/bin/python3.11", "exit")
    script(tmp_path / "usr/bin/python3.9", "exit")
    assert sysroot.provide(tmp_path) == tmp_path.resolve()
    assert sysroot.python(tmp_path).name == "python3.11"
    into = tmp_path / "env"
    assert sysroot.make_environment(tmp_path, into) == "3.11"
    assert sysroot.of_environment(into) == tmp_path
    assert Path(os.readlink(environments.python_of(into))).name == "python3.11"


def test_a_root_folder_that_fails_on_the_way_is_taken_away(monkeypatch, tmp_path):
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    script(tmp_path / "bin" / "dpkg", "exit")
    script(tmp_path / "bin" / "apt-get", "echo 'E: No space left on device' >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(Failed, match="apt-get update: No space left on device"):
        sysroot.provide()
    assert not sysroot.folder().exists()


def test_missing_is_told_for_a_library_that_is_nowhere(monkeypatch):
    monkeypatch.setattr(target, "installed_version", lambda backend: None)
    assert "pip install torch" in str(target.why_unavailable(Target.parse("torch")))
    with pytest.raises(runtime.Missing, match="torch==1.9.0 is not installed here; probe install"):
        target.target_runtime(Target.parse("torch==1.9.0"))
