"""Whether two runs of other sizes add alike: asked of their operations, one by one.

Operands that sizes are tried with, and the outputs that are kept.
"""

from __future__ import annotations

import numpy as np

from probe.case import layout
from probe.diff.difference import compare_runs
from probe.diff.match import RunningMatch
from probe.order.semantics import Contracts, Each, Reduces
from probe.record.recorders.ndarray import ArrayRecorder, operation
from probe.record.recording import record_run
from probe.sizes import orders
from probe.sizes.orders import CONTENTS, SETS, KeptPart, behind, box_of, operand_set, placed
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
    return left, right, orders.marked(right, recorder, large, {"x": 0}, size)


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


def test_a_run_that_was_recorded_elsewhere_is_told_again():
    run = record_run(ArrayRecorder(lambda x: PRODUCT(x, W), ROWS))
    again = record_run(orders.StoredRun(lambda: run))
    assert [value.digest for value in again.values] == [value.digest for value in run.values]
    assert [op.op for op in again.operations] == [op.op for op in run.operations]
    assert again.outputs == run.outputs


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
    for changed in behind({"x": X, "m": MASK}, {"x": 1, "m": 1}, 4):
        assert np.array_equal(changed["x"][:, :4], X[:, :4]) and changed["m"].all()
        assert (changed["x"][:, 4:] != X[:, 4:]).all()
    for changed in behind({"x": X}, {"x": 1}, 4, 2):
        assert np.array_equal(changed["x"] == X, np.isin(np.arange(6), (2, 3))[None].repeat(2, 0))


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
