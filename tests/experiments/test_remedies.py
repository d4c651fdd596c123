"""The experiment on remedies runs in seconds on NumPy alone, and its notebook on what it stored."""

from __future__ import annotations

import pytest

from probe import load
from probe.sizes import fixes
from tests.experiments.notebooks import pictures, ran

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    found = tmp_path_factory.mktemp("remedies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixes, "SECONDS", 0.001)
        ran("remedies", found)
    return found


def test_each_axis_is_stored_with_every_turn(store):
    found = load(store)
    remedies = found.remedies
    assert set(found.runs.experiment) == {"remedies"}
    assert remedies.case_id.nunique() == 2
    assert len(found.measurements) == len(remedies) * 2 * fixes.ROUNDS
    for vary in ("length", "batch"):
        case = remedies[remedies.vary == vary].set_index("remedy")
        assert case.verdict["default"] == "differs" and case.ratio["default"] == 1
        assert case.recommended.sum() == 1 and set(case.case_id) <= set(found.cases.case_id)
        assert case.verdict["pad"] == case.verdict["chunks=64"] == "exact"


def test_what_is_stored_is_not_measured_again(store):
    before = load(store).measurements.value.tolist()
    ran("remedies", store)
    assert load(store).measurements.value.tolist() == before


def test_the_notebook_draws_what_the_run_stored(store, tmp_path):
    assert pictures("remedies", store, tmp_path) == 3
