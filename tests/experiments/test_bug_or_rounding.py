"""A quick run of the experiment: mistakes are found, right sums are not called wrong."""

from __future__ import annotations

from importlib import import_module

import probe

EXPERIMENT = "bug_or_rounding"
script = import_module(EXPERIMENT)


def test_a_quick_run_finds_mistakes_and_calls_nothing_right_a_bug(quick):
    rows = probe.load(quick).verdicts
    total = rows.groupby("part")[["outputs", "beyond", "within"]].sum()
    assert total.beyond["control"] == 0 and total.within["control"] == total.outputs["control"]
    assert total.beyond["planted"] > 0.99 * total.outputs["planted"]
    assert set(rows.name) >= set(script.BUGS)
