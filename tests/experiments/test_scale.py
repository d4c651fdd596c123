"""experiments/scale.py: sweeps that grow, shards, and kill -9, in small."""

from __future__ import annotations

from importlib import import_module

import pytest

from probe import load
from tests.experiments.notebooks import pictures

scale = import_module("scale")


def test_a_full_run_is_a_million_convolutions_and_a_milliard_of_compared_outputs():
    plan, cases = scale.FULL, scale.convolutions(2)
    lengths = scale.odd(plan.spread)
    assert max(plan.large) * (len(lengths) - 1) == 10**6
    outputs = [cases[0].output_shape(length=length)[-2] for length in lengths[:-1]]
    assert max(plan.large) * sum(outputs) == 10**9
    assert len({one.id for one in cases}) == 2
    for grown in (plan.cases, plan.lengths, plan.large):
        assert max(grown) // min(grown) >= 100
    assert [len(scale.spread(count, scale.LONGEST)) for count in plan.lengths] == [
        count + 1 for count in plan.lengths
    ]


@pytest.mark.slow
def test_a_quick_run_measures_everything_and_its_notebook_draws_it(tmp_path):
    assert not scale.main(["--quick", "--store", str(tmp_path / "s")], standalone_mode=False)
    found = load(tmp_path / "s").measurements.set_index(["subject", "variant"]).value
    assert found["kill -9", "rows lost or changed"] == 0
    assert found["kill -9", "parent"] + found["kill -9", "child"] >= 3
    assert found["sweep", "compared"].tolist() == [800, 2400]
    assert found["sweep", "differing"].sum() == found["sweep", "failures"].sum() == 0
    assert pictures("scale", tmp_path / "s", tmp_path) == 1
