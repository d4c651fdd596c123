"""What a reveal costs, measured in a process that keeps to one core."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from probe import load
from tests.experiments.notebooks import ROOT, pictures

pytestmark = [pytest.mark.long, pytest.mark.slow]


def test_calls_and_seconds_are_measured_once_and_drawn(tmp_path):
    store = tmp_path / "store"
    script = str(ROOT / "experiments" / "reveal_cost.py")
    command = [sys.executable, script, "--quick", "--store", str(store)]

    def run():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return load(store)

    found = run()
    assert (found.reveals.replayed == found.reveals.outputs).all()
    assert found.reveals[["calls", "checks"]].gt(0).all(axis=None)
    assert found.orders.fprev.ge(found.orders.leaves - 1).all()
    if hasattr(os, "sched_setaffinity"):
        assert set(found.runs.cores) == {1}
    assert sorted(run().reveals.seconds) == sorted(found.reveals.seconds)
    assert pictures("reveal_cost", store, tmp_path) > 2
