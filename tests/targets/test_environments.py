"""Environments and emulators, offline: what runs a target, and what is said where nothing does."""

from __future__ import annotations

import os
import sys

import pytest

from probe.case.errors import InputError
from probe.sweep.campaign import run_row
from probe.targets import environments, target
from probe.targets.target import Target
from tests.targets.conftest import script

pytestmark = pytest.mark.usefixtures("cache")


def made(library="tensorflow", version="1.2.1", arm64=False):
    """A complete environment whose interpreter is this one."""
    folder = environments.folder_of(library, version, arm64)
    script(environments.python_of(folder), f'exec "{sys.executable}" "$@"')
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


def test_a_release_runs_on_its_environments_interpreter():
    where = Target.parse("tensorflow==1.2.1")
    assert "tensorflow==1.2.1 is not installed here" in str(target.why_unavailable(where))
    assert str(target.why_unavailable(where)).endswith("probe targets install tensorflow==1.2.1")
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
    for name in (environments.X86, environments.ARM64):
        script(folder / name, QEMU)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(environments.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environments.platform, "system", lambda: "Linux")
    caches = (environments.emulator_path, environments.models, environments.emulator_version)
    for each in caches:
        each.cache_clear()
    yield folder
    for each in caches:
        each.cache_clear()


def test_qemu_says_which_processors_there_are(qemu):
    assert environments.models() == {"haswell": "Haswell", "nehalem-v1": "Nehalem-v1"}
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
    assert str(target.why_unavailable(where)).endswith(
        "probe targets install tensorflow==2.21.0@arm64"
    )
    folder = made(version="2.21.0", arm64=True)
    (folder / environments.LINK).symlink_to("/an/arm64")
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
    monkeypatch.setattr(environments, "emulator_path", lambda name: None)
    for device, name in (("haswell", "qemu-x86_64"), ("arm64", "qemu-aarch64")):
        said = str(target.why_unavailable(Target.parse(f"tensorflow@{device}")))
        assert f"{name}, which is not installed; install qemu's user mode" in said
