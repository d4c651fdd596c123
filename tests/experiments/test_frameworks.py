"""The experiments on every library and on the other axes: each tried out on NumPy alone."""

import pytest

from probe import load
from tests.experiments.notebooks import ran

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["frameworks", "batch_invariance", "devices"])
@pytest.mark.slow_at("devices", "frameworks")
def test_what_changes_with_the_size_is_found_and_explained(name, first):
    folder, printed = first(name)
    found = load(folder)
    assert "pairwise" in printed
    changed = found.comparisons[found.comparisons.differing > 0]
    assert set(changed.target) == {"reference,algorithm=pairwise,length_switch=9"}
    assert set(found.causes.cause) == {"order"}
    assert found.causes.outputs.sum() == changed.differing.sum()
    assert (found.causes.replayed == found.causes.outputs).all()


@pytest.mark.slow
def test_doubles_compute_each_filter_by_itself(tmp_path):
    ran("filter_subsets", tmp_path)
    found = load(tmp_path)
    assert len(found.comparisons) and not found.comparisons.differing.any()
    assert set(found.comparisons.vary) == {"filters"} and not len(found.failures)


@pytest.mark.slow
def test_outputs_of_all_targets_at_one_length_are_stored_once_with_their_orders(first):
    folder, _ = first("frameworks")
    before = load(folder).outputs
    ran("frameworks", folder)
    found = load(folder)
    assert len(found.outputs) == len(before) > 0
    assert len(found.outputs.groupby("target")) == 2
    assert set(found.outputs.run_id) == set(found.runs.run_id)
    shape = found.reveals[found.reveals.case_id.isin(found.outputs.case_id)]
    assert shape.outputs.sum() == shape.replayed.sum() == len(found.outputs)


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_stored_with_the_reason(first):
    failures = load(first("devices")[0]).failures.set_index("target")
    assert set(failures.index) == {"torch@cuda:999", "jax@gpu:999"}
    why = failures.message.str.contains("GPU|is not installed here").tolist()
    assert set(failures.kind) == {"unavailable"} and all(why), failures.message.tolist()
