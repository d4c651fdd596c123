"""Orders of many libraries, run quickly on NumPy alone: what is stored, and that it resumes."""

import pytest

from probe import load

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
