"""Other content stands in what the other run lacks, and nowhere else."""

from fractions import Fraction

import numpy as np

from probe.diff.repeated import contents, independent, lacked


def test_the_rows_of_a_batch_that_one_sample_lacks_are_all_others() -> None:
    x = np.random.default_rng(0).standard_normal((8, 5)).astype("f4")
    where, before = lacked({"x": x[3:4]}, {"x": x})
    assert np.flatnonzero(where["x"].any(axis=1)).tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert before == Fraction(3, 8)
    assert not lacked({"x": x}, {"x": x[3:4]})[0]["x"].any()  # one sample has nothing beside


def test_a_mask_that_stands_in_many_places_is_where_its_content_is() -> None:
    x, mask = np.arange(12, dtype="f4").reshape(4, 3), np.ones((4, 3), int)
    where, before = lacked({"x": x[2:3], "mask": mask[2:3]}, {"x": x, "mask": mask})
    assert np.array_equal(where["mask"], where["x"])
    assert before == Fraction(2, 4)


def test_inputs_that_are_no_piece_of_the_others_are_not_taken_for_one() -> None:
    x = np.arange(12, dtype="f4").reshape(4, 3)
    assert lacked({"x": x[:2] + 1}, {"x": x}) is None
    assert lacked({"y": x[:2]}, {"x": x}) is None


def test_content_changes_where_it_is_lacked_alone_and_stays_finite() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6)).astype("f2") * 1000
    where = {"x": np.arange(6) >= np.full((2, 1), 4)}
    every = [other["x"] for other in contents({"x": x}, where)]
    assert len(every) == 4
    for other in every:
        assert np.array_equal(other[:, :4], x[:, :4])
        assert np.isfinite(other).all()
        assert (other[:, 4:] != x[:, 4:]).all()


def test_tokens_stay_in_the_range_that_occurs() -> None:
    ids = np.arange(10, 30).reshape(2, 10)
    for other in contents({"ids": ids}, {"ids": ids >= 20}):
        assert other["ids"].min() >= 10
        assert other["ids"].max() < 30


def test_a_mask_that_says_what_is_padding_stays_and_one_of_content_changes() -> None:
    mask = np.array([[1, 1, 1, 0, 0]])
    lacking = {"mask": np.arange(5)[None] >= 3}
    assert all(np.array_equal(o["mask"], mask) for o in contents({"mask": mask}, lacking))
    mask = np.array([[1, 1, 0, 0, 0]])  # the shorter run is padded, too
    assert all(np.array_equal(o["mask"], mask) for o in contents({"mask": mask}, lacking))
    mask = np.array([[1, 0, 1, 0, 1]])
    assert any((o["mask"] != mask).any() for o in contents({"mask": mask}, lacking))


def test_independent_inputs_have_the_same_masks() -> None:
    x, mask = np.ones((2, 3), "f4"), np.array([[1, 1, 0], [1, 0, 0]])
    other = independent({"x": x, "mask": mask})
    assert (other["x"] != x).all()
    assert np.array_equal(other["mask"], mask)
