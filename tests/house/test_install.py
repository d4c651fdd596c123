"""The core package: what it requires, and that it runs without what it leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
