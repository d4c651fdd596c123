"""Orders of many libraries, run quickly on NumPy alone: what is stored, and that it resumes."""

import pytest

from probe import load
from tests.experiments.notebooks import pictures, ran

pytestmark = [pytest.mark.long, pytest.mark.slow]

EXPERIMENT = "accumulation_orders"


def test_every_order_is_replayed_and_every_difference_has_its_cause(quick):
    found = load(quick)
    assert found.comparisons.differing.sum() == found.causes.outputs.sum() > 0
    assert (found.causes.replayed == found.causes.outputs).all()
    assert (found.reveals.replayed == found.reveals.outputs).all()
    assert set(found.reveals.order_id) <= set(found.orders.order_id)
    assert set(found.reveals.rounding_id) <= set(found.roundings.rounding_id)
    assert len(found.outputs) == 2 * sum(range(1, 21))


def test_a_second_run_reveals_nothing_again(quick):
    found = load(quick)
    ran(EXPERIMENT, quick)
    for table in ("comparisons", "causes", "reveals", "outputs"):
        assert len(getattr(load(quick), table)) == len(getattr(found, table)), table


def test_its_notebook_runs_on_it(quick, tmp_path):
    assert pictures(EXPERIMENT, quick, tmp_path) > 2
