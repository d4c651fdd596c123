"""Every difference of a store explained once, and not again."""

from __future__ import annotations

import pytest

from probe import load
from probe.case.case import Case
from probe.case.errors import StoreError
from probe.explain.causes import explain_store
from probe.sweep.bits import sweep_cases
from probe.sweep.store import Store
from probe.targets import machine
from probe.targets.target import Target

TARGET = "reference,length_switch=8"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A sweep in which lengths below ten have another order, once short and once long sums."""
    folder = tmp_path_factory.mktemp("results") / machine.label()
    cases = [
        Case(op="conv1d", kernel=3, in_channels=c, filters=2, operands="cancel") for c in (2, 20)
    ]
    with Store(folder) as out:
        sweep_cases(cases, [Target.parse(TARGET)], [5, 7, 12, 20], store=out)
    found = explain_store(folder.parent, workers=1)
    return folder, found


def test_every_difference_has_a_cause_that_replays(store):
    folder, found = store
    stored = load(folder)
    differing = int(stored.comparisons["differing"].sum())
    assert found.causes == {"order": differing} and found.replayed == differing > 0
    assert set(stored.causes["cause"]) == {"order"}
    assert stored.causes["replayed"].sum() == differing


def test_orders_are_stored_once_and_reveals_refer_to_them(store):
    stored = load(store[0])
    assert len(stored.orders) == 4 and set(stored.reveals["order_id"]) == set(
        stored.orders["order_id"]
    )
    assert set(stored.reveals["rounding_id"]) == set(stored.roundings["rounding_id"])
    assert (stored.reveals["outputs"] == stored.reveals["replayed"]).all()


def test_ranges_say_which_outputs(store):
    stored = load(store[0])
    for row in stored.causes.itertuples():
        starts, stops = row.ranges[::2], row.ranges[1::2]
        assert sum(stops) - sum(starts) == row.outputs


def test_nothing_is_explained_twice_and_all_is_counted(store):
    folder, found = store
    before = {file.name: file.stat().st_mtime_ns for file in folder.glob("causes*")}
    again = explain_store(folder, workers=1)
    assert again.explained_before == 4
    assert again.by_target == found.by_target and again.replayed == found.replayed
    assert {file.name: file.stat().st_mtime_ns for file in folder.glob("causes*")} == before


@pytest.mark.slow
def test_what_is_new_in_a_store_adds_to_what_is_known(store, tmp_path):
    folder = tmp_path / machine.label()
    case = Case(op="conv1d", kernel=3, in_channels=20, operands="cancel")
    for lengths in ([5, 20], [5, 7, 20]):
        with Store(folder) as out:
            sweep_cases([case], [Target.parse(TARGET)], lengths, store=out)
        found = explain_store(folder, workers=1)
        differing = int(load(folder).comparisons["differing"].sum())
        assert found.causes == {"order": differing} and found.replayed == differing
    assert found.explained_before == 1


def test_results_of_another_machine_stay_as_they_are(store, tmp_path):
    other = tmp_path / "another-cpu"
    other.mkdir()
    for file in store[0].glob("*.parquet"):
        (other / file.name).write_bytes(file.read_bytes())
    with pytest.raises(StoreError, match="another-cpu"):
        explain_store(tmp_path)
