"""The environment's installer: what it installs and remembers, and what it says of failures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import install

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("reports", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_the_core_leaves_out_is_not_imported(tmp_path, reports):
    """Where importing any of it fails, NumPy's target is explained, reported and compared."""
    script = f"""
import sys
for name in {LEFT_OUT!r}:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
import numpy as np, probe
case = probe.Case(op="conv1d", kernel=5, in_channels=4, filters=4, operands="cancel")
target = "reference,algorithm=pairwise,length_switch=9"
assert probe.explain(case, target, 5, 16).to_json()["differing"] > 0
if {reports}:
    probe.reproduce(case, target, 5, 16, out="report")
assert probe.order(np.sum, 9, dtype="float64").to_json()["orders"]
import probe.ui.answers.first_difference, probe.ui.answers.network, probe.ui.answers.cases
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not reports or (tmp_path / "report" / "reproduce.py").is_file()


class Ran(list):
    """Commands that would have been run. ``statuses``: by words of a command, how it ends."""

    def __init__(self):
        self.statuses = {}

    def extras(self):
        """Those of each installation."""
        found = (re.search(r" -e .*\[(.*)\]", " ".join(command)) for command in self)
        return [match[1] for match in found if match]


@pytest.fixture
def ran(monkeypatch):
    commands = Ran()

    def run(command, quiet=False):
        command = [str(word) for word in command]
        commands.append(command)
        if "venv" in command:
            venv = Path(command[-1])
            shutil.rmtree(venv, ignore_errors=True)  # as by --clear
            (venv / "bin").mkdir(parents=True)
            (venv / "bin" / "python").touch()
        ends = (n for words, n in commands.statuses.items() if words in " ".join(command))
        return next(ends, 0)

    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    return commands


def test_an_extra_that_pyproject_lacks_is_named(ran, tmp_path):
    with pytest.raises(SystemExit, match="extras=pytorch: no such extra; use all, cluster, dev"):
        install.install(tmp_path / "venv", "dev,pytorch", False)
    assert not ran


def test_where_uv_fails_pip_is_tried(ran, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: f"/here/{name}")
    ran.statuses["uv pip"] = 2
    install.fill(tmp_path, {"dev"})
    assert [command[0] for command in ran] == ["/here/uv", str(tmp_path)]
    ran.statuses["-m pip"] = 1
    with pytest.raises(SystemExit, match="fewer libraries"):
        install.fill(tmp_path, {"dev"})


def test_what_is_up_to_date_is_left_alone_and_its_extras_are_remembered(ran, monkeypatch, tmp_path):
    venv = tmp_path / "venv"
    for extras, after in [
        ("dev", ["dev"]),
        (None, ["dev"]),
        ("jax,dev", ["dev", "dev,jax"]),
        (None, ["dev", "dev,jax"]),
        ("+site", ["dev", "dev,jax", "dev,jax,site"]),
    ]:
        install.install(venv, extras, False)
        assert ran.extras() == after
    (tmp_path / "constraints.txt").write_text("numpy==99")
    monkeypatch.setattr(install, "CONSTRAINTS", tmp_path / "constraints.txt")
    install.install(venv, None, False)
    assert ran.extras() == ["dev", "dev,jax", "dev,jax,site", "dev,jax,site"]
    assert sum("venv" in command for command in ran) == 1


def test_another_python_makes_it_anew_only_where_that_is_asked(ran, tmp_path):
    install.install(tmp_path / "venv", "dev", False)
    ran.statuses["import sys"] = 1  # the interpreter is of another version, or does not start
    install.install(tmp_path / "venv", "dev", True)
    made = [command for command in ran if "venv" in command]
    assert len(made) == 2 and ran.extras() == ["dev", "dev"]
    code = [command for command in ran if "-c" in command and len(command) == 3][-1]
    for anew, status in ((code[-1], 0), (code[-1].replace("'3.", "'4."), 1)):
        assert subprocess.run([sys.executable, "-c", anew]).returncode == status
