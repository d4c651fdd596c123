"""The environment's installer: what it announces, what it says on the way, and of failures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest

import install

ROOT = Path(__file__).parents[2]
PRINTED = {
    "resolution": """
ERROR: Cannot install probe-numerics because these package versions have conflicting dependencies.
The conflict is caused by:
    ai-edge-litert 2.3.0 depends on backports.strenum
    The user requested (constraint) backports-strenum==1.3.1
ERROR: ResolutionImpossible: for help visit (address)""",
    "missing": """
ERROR: Could not find a version that satisfies the requirement tensorflow==2.21.0 (from versions: )
ERROR: No matching distribution found for tensorflow==2.21.0""",
    "uv, missing": """
error: No solution found when resolving dependencies
  cause: Because there is no version of numpy==0.0.9 and you require numpy==0.0.9, we can conclude
""",
    "uv, resolution": """
error: No solution found when resolving dependencies
  cause: Because tensorflow==2.21.0 depends on protobuf>=6.31.1 and you require protobuf<4""",
    "disk": "ERROR: Could not install packages: OSError: [Errno 28] No space left on device",
    "network": "WARNING: Retrying after connection broken by 'NewConnectionError(...)'",
    "build": "ERROR: Failed building wheel for h5py\nFailed to build h5py",
    "unknown": "something\nERROR: a riddle",
}
"""What pip 23.2.1 and uv printed where they failed, shortened."""


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("resolution", "backports-strenum==1.3.1: constraints.txt pins it, and another package"),
        ("missing", "tensorflow==2.21.0: there is no such file for this Python and processor; "),
        ("uv, missing", "numpy==0.0.9: there is no such file for this Python and processor; "),
        ("uv, resolution", "tensorflow==2.21.0: the versions that are pinned can't be had"),
        ("disk", "the disk is full; make room"),
        ("network", "the package index could not be reached; check the network"),
        ("build", "h5py: it has no ready-made file for this Python and processor"),
        ("unknown", "ERROR: a riddle; run it again, or see README.md"),
    ],
)
def test_a_failure_names_the_package_and_what_to_do(printed, told):
    found = install.reason(PRINTED[printed].splitlines())
    assert found.startswith(told) and "\n" not in found


def test_every_pin_has_sizes_and_the_extras_that_need_it():
    pins = install.pins()
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert len(pins) == len(lines) > 100
    assert all(pin.download > 0 and pin.disk > 0 for pin in pins)
    by = {extra: [pin.name for pin in pins if extra in pin.extras] for extra in install.LIBRARIES}
    assert "torch" in by["torch"] and "jaxlib" in by["jax"] and "onnx" in by["onnxruntime"]
    extras = {extra for pin in pins for extra in pin.extras}
    assert extras <= {"base", "dev", "site", *install.LIBRARIES}


def test_the_core_is_the_same_package_with_fewer_requirements():
    whole, core = (
        tomllib.loads((ROOT / place / "pyproject.toml").read_text()) for place in ("", "core")
    )
    for key in ("version", "requires-python", "license", "scripts", "entry-points"):
        assert core["project"][key] == whole["project"][key], key
    named = {one.partition(">")[0] for one in core["project"]["dependencies"]}
    extras = core["project"]["optional-dependencies"]
    asked = {one.partition(">")[0] for more in extras.values() for one in more}
    everything = {one.partition(">")[0] for one in whole["project"]["dependencies"]}
    assert everything - named - asked == {"tensorflow", "jupyter"}
    assert named | asked < everything and not named & asked
    data = [one["tool"]["setuptools"]["package-data"] for one in (whole, core)]
    assert data[0] == data[1]


LEFT_OUT = "jax jupyter keras matplotlib onnxruntime pandas pyarrow tensorflow".split()


def test_what_the_core_leaves_out_is_not_imported(tmp_path):
    """Where importing any of it fails, NumPy's target is explained, reported and compared."""
    script = f"""
import sys
for name in {LEFT_OUT!r}:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
import numpy as np, probe
case = probe.Case(op="conv1d", kernel=5, in_channels=4, filters=4, operands="cancel")
target = "reference,algorithm=pairwise,length_switch=9"
assert probe.explain(case, target, 5, 16).to_json()["differing"] > 0
probe.reproduce(case, target, 5, 16, out="report")
assert probe.order(np.sum, 9, dtype="float64").to_json()["orders"]
import probe.answers.first_difference, probe.answers.network, probe.answers.cases
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "reproduce.py").is_file()


def test_an_extra_that_pyproject_lacks_is_named():
    assert install.known("dev, all,dev") == "all,dev"
    with pytest.raises(install.Failure, match="extras=pytorch: there is no such extra; use all"):
        install.known("dev,pytorch")


def test_it_is_one_line_where_the_disk_is_too_small(monkeypatch, tmp_path, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10, 9, 10**6))
    with pytest.raises(install.Failure, match=r"needs \d\.\d GB, 0.0 GB are free; make room"):
        install.announce(tmp_path, "dev", install.pins())
    assert "installing" in capsys.readouterr().out


def test_pytorch_with_cuda_comes_only_where_it_is_asked_for(monkeypatch, capsys):
    own = Path(sys.executable)
    monkeypatch.setattr(install, "has_cpu_build", lambda python: False)
    assert "torch" not in install.libraries(own, "all,dev")
    told = capsys.readouterr().out
    assert told.startswith("torch: left out: ") and "EXTRAS=dev,all,torch" in told
    assert "torch" in install.libraries(own, "all,dev,torch")
    assert install.libraries(own, "dev") == {"dev"}
    monkeypatch.setattr(install, "has_cpu_build", lambda python: True)
    assert install.libraries(own, "all,dev") == {"dev", *install.LIBRARIES}


def test_it_is_never_silent_while_an_installer_works(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(install, "EVERY", 0.05)
    script = "import time; print('Collecting a (from b)', flush=True); time.sleep(1)"
    command = [sys.executable, "-c", f"{script}; print('ERROR: no'); raise SystemExit(3)"]
    status, printed = install.watched(command, {}, tmp_path, install.pins())
    assert status == 3 and printed == ["Collecting a (from b)", "ERROR: no"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5 and lines[-1].endswith("installed; Collecting a")
    assert not any(tmp_path.iterdir())


def test_uvs_failure_is_told_and_pip_tried(monkeypatch, tmp_path, capsys):
    ran = []

    def watched(command, *_):
        ran.append(Path(command[0]).name)
        return (2, ["error: a riddle"]) if "uv" in ran[-1:] else (0, [])

    monkeypatch.setattr(install, "watched", watched)
    monkeypatch.setattr(shutil, "which", lambda name: f"/here/{name}")
    install.fill(tmp_path, Path(sys.executable), "dev")
    assert ran == ["uv", Path(sys.executable).name]
    assert "uv: error: a riddle; run it again, or see README.md; trying pip" in (
        capsys.readouterr().out
    )


def test_what_is_up_to_date_is_left_alone_and_its_extras_are_remembered(monkeypatch, tmp_path):
    filled = []
    monkeypatch.setattr(install, "fill", lambda venv, python, extras: filled.append(extras))
    monkeypatch.setattr(install, "answers", lambda python: True)
    install.install(tmp_path, "dev", anew=False)
    install.install(tmp_path, None, anew=False)
    assert filled == ["dev"]
    install.install(tmp_path, "jax,dev", anew=False)
    install.install(tmp_path, None, anew=False)
    assert filled == ["dev", "dev,jax"]
    install.install(tmp_path, "+site", anew=False)
    assert filled[2:] == ["dev,jax,site"]
    monkeypatch.setattr(install, "fingerprint", lambda: "another")
    install.install(tmp_path, None, anew=False)
    assert filled == ["dev", "dev,jax", "dev,jax,site", "dev,jax,site"]


def test_another_python_makes_it_anew_only_where_that_is_asked(monkeypatch, tmp_path, capsys):
    venv = tmp_path / "venv"
    monkeypatch.setattr(install, "fill", lambda *given: None)
    monkeypatch.setattr(install, "answers", lambda python: venv.is_dir())
    monkeypatch.setattr(install, "version_of", lambda python: (3, 10))
    monkeypatch.setattr(install, "create", lambda folder: folder.mkdir())
    install.install(venv, "dev", anew=False)
    (venv / "kept").touch()
    install.install(venv, "dev", anew=False)
    assert (venv / "kept").exists()
    install.install(venv, "dev", anew=True)
    assert not (venv / "kept").exists()
    assert "has Python 3.10; it is made anew" in capsys.readouterr().out


def test_a_python_without_files_of_tensorflow_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(install, "PYTHONS", ((3, 5), (3, 6)))
    with pytest.raises(install.Failure, match="TensorFlow has no file for it; take Python 3.5 to"):
        install.create(tmp_path / "venv")


def test_a_failure_is_one_line_and_exit_status_1():
    command = [sys.executable, str(ROOT / "install.py"), "--extras", "pytorch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("install: extras=pytorch: ")
