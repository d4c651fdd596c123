"""A quick run of the experiment: mistakes are found, right sums are not called wrong."""

from __future__ import annotations

from importlib import import_module

import probe
from tests.experiments.notebooks import ran

script = import_module("bug_or_rounding")


def test_a_quick_run_finds_mistakes_and_calls_nothing_right_a_bug(tmp_path):
    for _ in range(2):  # what is stored already is not measured twice
        ran("bug_or_rounding", tmp_path)
    rows = probe.load(tmp_path).verdicts
    assert not rows.duplicated(["part", "name", "target", "dtype", "summands"]).any()
    total = rows.groupby("part")[["outputs", "beyond", "within"]].sum()
    assert total.beyond["control"] == 0 and total.within["control"] == total.outputs["control"]
    assert total.beyond["planted"] > 0.99 * total.outputs["planted"]
    assert set(rows.name) >= set(script.BUGS)
