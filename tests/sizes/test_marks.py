"""Operands that sizes are tried with, and the outputs that are kept."""

import numpy as np

from probe.sizes import marks
from probe.sizes.marks import CONTENTS, SETS, KeptPart, behind, box_of, operand_set, placed

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
    assert marks.elements_apart(X, other) == 1 and marks.elements_apart(X, X[:1]) == X.size
    nan = np.array([np.nan, 0.0], np.float32)
    assert marks.elements_apart(nan, np.array([-np.nan, -0.0], np.float32)) == 0
