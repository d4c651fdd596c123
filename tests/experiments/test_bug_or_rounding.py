"""A quick run of the experiment: mistakes are found, right sums are not called wrong."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import probe

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
script = import_module("bug_or_rounding")


def test_a_quick_run_finds_mistakes_and_calls_nothing_right_a_bug(tmp_path):
    for _ in range(2):  # what is stored already is not measured twice
        told = script.main(["--quick", "--store", str(tmp_path)], standalone_mode=False)
        assert not told
    rows = probe.load(tmp_path).verdicts
    assert not rows.duplicated(["part", "name", "target", "dtype", "summands"]).any()
    total = rows.groupby("part")[["outputs", "beyond", "within"]].sum()
    assert total.beyond["control"] == 0 and total.within["control"] == total.outputs["control"]
    assert total.beyond["planted"] > 0.99 * total.outputs["planted"]
    assert set(rows.name) >= set(script.BUGS)
