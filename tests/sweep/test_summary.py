"""What a sweep found is counted alike row by row, by columns, and from what was stored."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.schema import NULL_INT
from probe.sweep.summary import TargetSummary

CONTROLS = ("equal", None, "differs", "alignment differs")


def columns(seed: int, count: int = 40) -> dict:
    """Rows of ``comparisons`` of one case, some of which agree."""
    rng = np.random.default_rng(seed)
    differing = rng.integers(0, 4, count) * rng.integers(0, 2, count)
    ulps = np.where(rng.integers(0, 4, count) == 0, NULL_INT, rng.integers(1, 99, count))
    return {
        "case_id": "c",
        "at": np.arange(count),
        "compared": rng.integers(1, 9, count),
        "not_compared": rng.integers(0, 3, count),
        "differing": differing,
        "signed_zero": [None if rng.integers(2) else int(rng.integers(3)) for _ in range(count)],
        "first": rng.integers(0, 9, count),
        "max_ulp": np.where(differing > 0, ulps, 0),
        "control": [CONTROLS[rng.integers(len(CONTROLS))] for _ in range(count)],
    }


@pytest.mark.parametrize("seed", range(8))
def test_columns_count_as_their_rows(seed):
    given, at_once, one_by_one = columns(seed), TargetSummary("t"), TargetSummary("t")
    at_once.add_columns(given)
    for n in given["at"]:
        row = {name: "c" if name == "case_id" else each[n] for name, each in given.items()}
        one_by_one.add(row | {"max_ulp": None if row["max_ulp"] == NULL_INT else row["max_ulp"]})
    assert at_once == one_by_one
    known = given["max_ulp"][(given["differing"] > 0) & (given["max_ulp"] != NULL_INT)]
    assert at_once.max_ulp == known.max() and at_once.comparisons == 40
    assert at_once.compared == given["compared"].sum()
    assert [one.at for one in at_once.differences] == np.flatnonzero(given["differing"]).tolist()
