"""The experiments on releases and processors run in seconds on NumPy; what they ask for exists."""

from __future__ import annotations

import pytest

from lib.orders import measured
from probe import load
from probe.sweep.store import Store
from probe.targets.installation import release_recipe
from probe.targets.target import Target

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["version_history", "processors"])
@pytest.mark.slow
def test_a_quick_run_stores_bits_and_orders(name, first):
    stored = load(first(name)[0])
    assert len(stored.runs) == 2 and not len(stored.failures)
    assert (stored.reveals.outputs == stored.reveals.replayed).all()
    assert set(stored.outputs["at"]) == {7, 8}


def test_every_release_and_processor_asked_for_can_be_written():
    import processors
    import version_history

    for version in (*version_history.TURNING, *version_history.BETWEEN):
        assert release_recipe("tensorflow", version)
        assert all(Target.parse(text).text == text for text in version_history.targets(version))
    assert len(version_history.targets("2.21.0")) == 5
    assert len(set(processors.targets())) == len(processors.targets())


FAILED = {
    "reference": "timeout",
    "tensorflow==1.3.0": "unavailable",
    "tensorflow==2.5.0,onednn=1": "crash",
}


def test_a_target_that_took_long_or_was_not_to_be_had_is_asked_again(tmp_path):
    run = {"run_id": "0" * 16, "vary": None, "at": None, "case_id": None, "message": "so"}
    with Store(tmp_path) as store:
        for target, kind in FAILED.items():
            store.append("failures", run | {"target": target, "kind": kind})
        assert measured(store) == {"tensorflow==2.5.0,onednn=1"}
