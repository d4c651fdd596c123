"""The experiments on orders, run quickly on NumPy alone: what they store, and that they resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import probe
from tests.experiments.notebooks import pictures

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def run(name, store):
    command = [
        sys.executable,
        str(ROOT / "experiments" / f"{name}.py"),
        "--quick",
        "--store",
        store,
    ]
    environment = {**os.environ, "TERM": "dumb"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return probe.load(store)


@pytest.mark.slow
def test_accumulation_orders(tmp_path):
    found = run("accumulation_orders", str(tmp_path))
    assert found.comparisons.differing.sum() == found.causes.outputs.sum() > 0
    assert (found.causes.replayed == found.causes.outputs).all()
    assert (found.reveals.replayed == found.reveals.outputs).all()
    assert set(found.reveals.order_id) <= set(found.orders.order_id)
    assert set(found.reveals.rounding_id) <= set(found.roundings.rounding_id)
    assert len(found.outputs) == 2 * sum(range(1, 21))
    again = run("accumulation_orders", str(tmp_path))
    for table in ("comparisons", "causes", "reveals", "outputs"):
        assert len(getattr(again, table)) == len(getattr(found, table)), table


@pytest.mark.slow
def test_reveal_cost(tmp_path):
    found = run("reveal_cost", str(tmp_path))
    assert (found.reveals.replayed == found.reveals.outputs).all()
    assert found.reveals[["calls", "checks"]].gt(0).all(axis=None)
    assert found.orders.fprev.ge(found.orders.leaves - 1).all()
    if hasattr(os, "sched_setaffinity"):
        assert set(found.runs.cores) == {1}
    seconds = run("reveal_cost", str(tmp_path)).reveals.seconds
    assert sorted(seconds) == sorted(found.reveals.seconds)  # nothing was measured again


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accumulation_orders", "reveal_cost", "frameworks", "devices"])
def test_its_notebook_runs_on_what_numpy_alone_gives(name, tmp_path):
    run(name, str(tmp_path / "store"))
    assert pictures(name, tmp_path / "store", tmp_path) > 2


@pytest.mark.parametrize("name", ["accumulation_orders", "reveal_cost"])
def test_an_error_is_one_line(name, tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, str(ROOT / "experiments" / f"{name}.py"), "--quick", "--store"]
    command.append(str(tmp_path / "file"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith(f"{name}: "), done.stderr
    assert "Traceback" not in done.stderr
