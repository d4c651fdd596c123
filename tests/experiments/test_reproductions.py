"""The experiment on reproductions runs in seconds on NumPy alone, and its notebook on its store."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest

from lib import trials
from lib.frame import Experiment
from lib.trials import attempt, draw
from probe import load
from probe.case.case import Case
from probe.case.errors import StoreError
from probe.sweep.bits import sweep_cases
from probe.sweep.store import Store
from probe.targets.target import Target

pytestmark = [pytest.mark.slow, pytest.mark.long]

SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=9")


EXPERIMENT = "reproductions"


def test_every_finding_is_confirmed_and_small(quick):
    found = load(quick)
    assert set(found.runs.experiment) == {"reproductions"} and found.failures.empty
    rows = found.reproductions
    assert len(rows) == 6 and rows.confirmed.all() and rows.emulated.all()
    # a script of a rounding asserts that it is one, and that holds
    assert set(rows.status) == {0} and set(rows.ended) == {"minimal"}
    assert (rows.small_compared <= rows.found).all() and (
        rows.replayed == rows.small_compared
    ).all()
    assert set(rows.case_id) <= set(found.cases.case_id)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A store of two targets that switch and one that does not."""
    folder = tmp_path_factory.mktemp("swept")
    other = Target.parse("reference,algorithm=pairwise,length_switch=12")
    targets = [SWITCHES, other, Target.parse("reference")]
    with Store.here(folder) as store:
        sweep_cases([Case("conv1d", 5, operands="cancel")], targets, range(5, 20), store=store)
    return folder


def test_a_longer_draw_begins_with_a_shorter_one(swept, tmp_path):
    few, many = draw(swept, 3), draw(swept, 8)
    assert many[:3] == few and [one.number for one in many] == list(range(8))
    assert len({(one.target, one.shapes.at) for one in many}) == 8
    each = Counter(one.target for one in draw(swept, 2, each=True))
    assert set(each.values()) == {2} and len(each) == 2
    with pytest.raises(StoreError, match="measure it on this machine first"):
        draw(tmp_path, 3)


def test_what_no_script_confirms_is_stored_with_the_reason_and_tried_again(
    swept, tmp_path, monkeypatch
):
    (one,) = draw(swept, 1)
    right = trials.folder.program.script_of_finding
    wrong = lambda *given: str(right(*given)).replace("length_switch", "no_such_switch")  # noqa: E731
    monkeypatch.setattr(trials.folder.program, "script_of_finding", wrong)
    experiment = Experiment("reproductions", tmp_path)
    tried = attempt(experiment, [one])
    assert not tried.found and len(tried.failures[one.target]) == 1
    (row,) = load(tmp_path).reproductions.to_dict("records")
    assert not row["confirmed"] and "exit status" in row["reason"]
    monkeypatch.undo()
    tried = attempt(experiment, [one])
    assert tried.found == 1 and not tried.before
    (row,) = load(tmp_path).reproductions.to_dict("records")
    assert row["confirmed"] and pd.isna(row["reason"])
