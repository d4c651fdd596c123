"""Whether two runs of other sizes add alike: asked of their operations, one by one.

Operands that sizes are tried with, and the outputs that are kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case import layout
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.diff.difference import compare_runs
from probe.diff.match import RunningMatch
from probe.diff.repeated import repeated_with_others
from probe.order.semantics import Contracts, Each, Reduces
from probe.record.ndarray import ArrayRecorder, operation
from probe.record.recording import record_run
from probe.sizes import orders
from probe.sizes.orders import (
    CONTENTS,
    SETS,
    ByOrder,
    KeptPart,
    box_of,
    operand_set,
    placed,
    places_behind,
    sweep_by_order,
)
from probe.sweep.store import Store
from probe.sweep.stored import load
from probe.targets.launch import InlineSession, open_session
from probe.targets.target import Target
from tests.record.doubles import Doubles, Step
from tests.sizes import graphs

W = np.random.default_rng(4).standard_normal((24, 6)).astype(np.float32)
ROWS = np.random.default_rng(5).standard_normal((8, 24)).astype(np.float32)


PRODUCT = operation("product", Contracts("mk,kn->mn"))(graphs.added_in_sequence)


def sides(function, size):
    """A batch of some rows against all, with what of these reads the others."""

    def recorder(inputs):
        return ArrayRecorder(function, *inputs.values())

    large = {"x": ROWS}
    left, right = (record_run(recorder({"x": ROWS[:n]})) for n in (size, len(ROWS)))
    where = places_behind(large, {"x": 0}, size)
    return left, right, repeated_with_others(right, recorder, large, where)


def test_a_call_at_another_address_is_not_the_very_same_call() -> None:
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    step = Step("double", Each("f"), np.tanh, ["x"])
    runs = [record_run(Doubles({"x": layout.copied(x, at)}, [step])) for at in (0, 16, 4)]
    for other, same in ((1, True), (2, False)):
        (one,) = compare_runs(RunningMatch.of(runs[0], runs[other])).operations
        assert orders.one_call(one, runs[0], runs[other]) == same


def test_sums_that_are_added_otherwise_differ_and_others_are_the_same():
    for size, verdict in ((2, "same"), (3, "differs")):
        difference = orders.compared(*sides(lambda x: PRODUCT(x, W), size))
        told = orders.by_order(difference, {})
        assert told.verdict == verdict
        assert (told.name == "product") == (verdict == "differs")
        assert bool(told.sets) == (verdict == "same")


def test_a_function_with_another_result_at_some_places_is_refuted():
    def tailed(x):
        y = np.tanh(np.asarray(x))
        if len(y) == 3:
            y[-1] = np.nextafter(y[-1], np.float32(9))
        return y

    function = operation("tailed", Each("tanh"))(tailed)
    told = [orders.by_order(orders.compared(*sides(function, n)), {}) for n in (2, 3)]
    assert [one.verdict for one in told] == ["unknown", "differs"]
    assert "24 outputs are computed differently at their positions" in told[1].why


def test_what_reads_everything_is_the_first_that_does():
    centred = operation("centred", Reduces((0,), "mean"))(
        lambda x: np.asarray(x).mean(axis=0, keepdims=True)
    )
    scaled = operation("scaled", Each("multiply"))(lambda x: np.asarray(x) * np.float32(3))
    _, whole, marks = sides(lambda x: scaled(centred(scaled(x))), 2)
    assert orders.reads_everything(whole, marks) == "centred"
    _, whole, marks = sides(scaled, 2)
    assert orders.reads_everything(whole, marks) == ""


X = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
TOKENS = np.arange(6)[None].repeat(2, 0)
MASK = np.ones((2, 6), bool)


def test_sets_change_numbers_tokens_and_no_mask():
    arrays, along = {"x": X, "t": TOKENS, "m": MASK}, {"x": 1, "t": 1, "m": 1}
    sets = [operand_set(arrays, along, number) for number in range(SETS)]
    assert sets[0] == arrays
    assert all(np.array_equal(other["m"], MASK) for other in sets)
    for other in sets[1:]:
        assert not np.array_equal(other["x"], X) and np.isfinite(other["x"]).all()
    assert any(not np.array_equal(other["t"], TOKENS) for other in sets[1 : CONTENTS + 1])
    spread = np.abs(sets[5]["x"] / X)
    assert spread.max() / spread.min() > 64  # sums of another order round otherwise


def test_what_is_not_padded_stays_where_content_changes():
    other = operand_set({"x": X, "state": X}, {"x": 1}, 1)
    assert np.array_equal(other["state"], X) and not np.array_equal(other["x"], X)


def test_behind_a_place_all_but_masks_changes():
    where = places_behind({"x": X, "m": MASK}, {"x": 1, "m": 1}, 4)
    assert not where["x"][:, :4].any() and where["x"][:, 4:].all() and not where["m"].any()
    where = places_behind({"x": X}, {"x": 1}, 4, 2)
    assert np.array_equal(where["x"], ~np.isin(np.arange(6), (2, 3))[None].repeat(2, 0))


def test_a_box_has_all_of_a_mask_and_names_axes_of_which_it_takes_a_part():
    mask = np.zeros((2, 5), bool)
    assert box_of(mask) is None
    mask[0, 1] = mask[1, 3] = True
    assert box_of(mask) == (KeptPart(1, 1, 4),)
    assert box_of(np.ones((2, 5), bool)) == ()


def test_what_is_kept_is_found_where_it_stands_in_a_shorter_run():
    whole = np.arange(1, 11, dtype=np.float32)
    box, kept = (KeptPart(0, 2, 5),), whole[2:5]
    assert placed(whole[:6] * np.float32(1 + 1e-6), kept, box, (10,)) == box  # rounded
    assert placed(whole[1:7], kept, box, (10,)) == (KeptPart(0, 2, 5, -1),)
    end = (KeptPart(0, 7, 10),)
    assert placed(whole[9 - 6 :][-5:], whole[7:], end, (10,)) == (KeptPart(0, 7, 10, -5),)
    assert placed(whole[:4], kept, box, (10,)) is None  # a part of it is not there
    assert placed(-whole[:6], kept, box, (10,)) is None
    assert placed(whole[:6], whole, (), (10,)) is None  # all of an axis that is shorter


def test_elements_apart_are_counted_by_bits():
    other = X.copy()
    other[0, 0] = np.nextafter(other[0, 0], np.float32(9))
    assert orders.elements_apart(X, other) == 1 and orders.elements_apart(X, X[:1]) == X.size
    nan = np.array([np.nan, 0.0], np.float32)
    assert orders.elements_apart(nan, np.array([-np.nan, -0.0], np.float32)) == 0


CASE = Case(op="conv1d", kernel=5, in_channels=2)


def swept(target: str, case: Case, values, vary: str = "length", **how) -> ByOrder:
    with open_session(Target.parse(target), inline=True) as session:
        return sweep_by_order(session, case, list(values), vary, **how)


def test_every_output_of_the_other_order_is_found() -> None:
    found = swept("reference,length_switch=5", CASE, range(5, 13))
    by_length = {one.at: one for one in found.values}
    assert [one.at for one in found.values if one.outputs] == [5, 6, 7, 8]
    assert all(by_length[n].outputs == by_length[n].compared == n - 4 for n in range(5, 9))
    assert by_length[6].causes == {"order": 2} and by_length[6].first == 0
    assert found.compared == sum(range(1, 8)) and found.differing == 10
    assert found.to_json()["unknown"] == 0


def test_operands_without_rounding_hide_nothing() -> None:
    found = swept("reference,length_switch=5", CASE.with_(operands="ones"), [6, 12])
    assert found.differing == 2


@pytest.mark.slow
def test_padding_is_no_other_order() -> None:
    case = CASE.with_(padding="same", stride=2, filters=2)
    found = swept("reference,algorithm=pairwise", case, range(3, 16))
    assert found.compared > 0 and found.differing == 0


def test_the_batch_can_be_varied() -> None:
    found = swept("reference", CASE.with_(length=8), [1, 2, 3], "batch")
    assert found.compared == 4 + 8 and found.differing == 0
    assert found.to_json()["vary"] == "batch"


def test_what_has_no_order_is_counted_not_guessed() -> None:
    case = Case(op="conv1d", kernel=3, filters=2)
    found = swept("reference,algorithm=winograd", case, [6, 7, 8])
    assert found.differing == 0
    assert found.compared == sum(one.unknown for one in found.values) or any(
        one.refusal for one in (found.base, *found.values)
    )
    random = swept("reference,algorithm=random", CASE.with_(in_channels=40), [8, 9])
    assert random.to_json()["refused"] == [
        {"length": 8, "why": "nondeterministic"},
        {"length": 9, "why": "nondeterministic"},
    ]


def test_json_and_rows_fit_what_is_fixed(tmp_path: Path) -> None:
    found = swept("reference,length_switch=5", CASE, [6, 9, 12])
    told = json.loads(json.dumps(found.to_json()))
    assert told["lengths"] == [{"length": 6, "outputs": 2, "causes": {"order": 2}, "first": 0}]
    assert (told["compared"], told["differing"], told["against"]) == (7, 2, 12)
    assert [(one["outputs"], one["at"]) for one in told["orders"]] == [(13, [9, 12]), (2, [6])]
    tables = found.rows("0" * 16)
    with Store(tmp_path / "m") as store:
        for name, each in tables.items():
            store.append(name, each)
    assert len(load(tmp_path).arrow("reveals")) == 3
    counted = {name: len(each) for name, each in tables.items()}
    assert counted == {"reveals": 3, "orders": 2, "roundings": 2}
    assert tables["reveals"][0]["ranges"] == [0, 2]
    assert all(row["replayed"] == row["outputs"] for row in tables["reveals"])


def test_known_ways_cost_no_questions_for_long_sums() -> None:
    case = Case(op="conv1d", kernel=5, in_channels=16)
    found = swept("reference,algorithm=blocked", case, [8, 9, 10])
    counted = [one.orders.calls for one in (found.base, *found.values) if one.orders]
    assert counted[0] > 10 * max(counted[1:])


def test_it_says_on_how_many_sets_the_orders_were_replayed() -> None:
    case = Case(op="conv1d", kernel=5, in_channels=8, filters=2, padding="same", bias="normal")
    sure = swept("reference,length_switch=9", case, [5, 8, 12])
    told = json.loads(json.dumps(sure.to_json()))
    assert sure.differing and told["sets"] == min(
        row["sets"] for row in sure.rows("0" * 16)["reveals"]
    )
    assert "certified" not in told and told["sets"] >= 11
    refused = swept("reference,algorithm=winograd", Case(op="conv1d", kernel=3), [8, 9])
    assert refused.to_json()["sets"] == 0


def test_a_failure_is_told_and_the_sweep_goes_on(monkeypatch) -> None:
    plain = InlineSession.request

    def failing(self, header, arrays=None):
        if header["do"] == "run" and arrays is not None and arrays["x"].shape[-2] == 7:
            raise TargetError("reference", "memory", "no room")
        return plain(self, header, arrays)

    monkeypatch.setattr(InlineSession, "request", failing)
    found = swept("reference", CASE, [6, 7, 8])
    assert [one.refusal for one in found.values] == ["", "memory: no room"]


def test_one_value_is_no_sweep() -> None:
    with pytest.raises(InputError, match="two or more"):
        swept("reference", CASE, [6])


@pytest.mark.slow
def test_nothing_is_said_to_add_alike_where_nothing_is_compared_or_known():
    """Windows of SAME with a stride begin between each other; Winograd adds no products."""
    strided = Case("conv1d", 5, in_channels=1, filters=1, stride=2, padding="same")
    found = probe.sweep(strided, [7, 8], "reference", by="order")
    assert found.lines()[2] == "no length has outputs that must agree with those of the longest"
    assert probe.sweep(strided, [7, 8], "reference").lines()[2] == found.lines()[2]
    partly = probe.sweep(strided, [6, 7, 8, 9], "reference").lines()[2]
    said = "every output that must agree with one of the longest does, with these operands"
    assert partly == said
    square = Case("conv2d", 3, in_channels=4, filters=2, height=4)
    found = probe.sweep(square, [4, 5], "reference,algorithm=winograd", by="order")
    assert found.lines()[2] == "none of those that are known is added differently"
