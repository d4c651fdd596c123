"""Every difference of a store explained once, and not again."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from probe import load
from probe.case import operands
from probe.case.case import Case
from probe.case.errors import StoreError
from probe.explain.causes import explain_store
from probe.sweep.bits import sweep_cases
from probe.sweep.store import Store, parquet
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


def test_both_sides_are_held_against_the_exact_sums(store):
    """In fractions, from the bits that are stored and the case's own operands."""
    stored = load(store[0])
    rows = stored.accuracies.merge(stored.differences, on=[*parquet.PAIR, "index"])
    assert len(rows) == stored.comparisons.differing.sum() > 0
    cases = {row.case_id: Case.from_json(row.json) for row in stored.cases.itertuples()}
    for row in rows.itertuples():
        case = cases[row.case_id].with_(length=row.against)
        x, w, _ = operands.generate(case)
        window = x[0, row.position : row.position + 3].reshape(-1)
        pairs = zip(window.tolist(), w[..., row.channel].reshape(-1).tolist(), strict=True)
        terms = [Fraction(a) * Fraction(b) for a, b in pairs]
        exact, sizes = sum(terms), sum(map(abs, terms))
        assert row.exact == pytest.approx(float(exact), rel=1e-14, abs=float(sizes) * 1e-14)
        assert row.sizes == pytest.approx(float(sizes))
        assert row.condition == pytest.approx(float(sizes / abs(exact)), rel=1e-9)
        near = 60 * 2.0**-29 * row.condition  # ulps: the exact sum is float64's
        for name in ("at", "against"):
            bits = np.uint32(getattr(row, f"bits_{name}"))
            far = abs(Fraction(float(bits.view(np.float32))) - exact)
            unit = Fraction(2) ** (math.frexp(float(exact))[1] - 24)
            assert getattr(row, f"error_{name}") == pytest.approx(float(far / unit), abs=near)
            assert getattr(row, f"used_{name}") == pytest.approx(float(far) / row.bound, abs=1e-6)
            assert getattr(row, f"used_{name}") <= 1 and row.verdict == "explained"
    assert set(stored.causes.beyond) == {0}
    depths = stored.orders.set_index("order_id").depth[stored.reveals.order_id]
    assert {*rows.depth_at, *rows.depth_against} <= set(depths)
    assert (rows.depth_at != rows.depth_against).all()


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
