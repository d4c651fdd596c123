"""The lines that no repetition changes are those that the other side has."""

from fractions import Fraction

import numpy as np
import pytest

from probe.diff.pairing import MarkedValue, Selection, lines_by_value, must_agree

RNG = np.random.default_rng(0)


def lines(chosen: Selection, array: np.ndarray, axis: int = 0) -> list[int]:
    """Which lines of the right value are the left's."""
    places = chosen.elements(np.arange(array.size).reshape(array.shape), 1)
    return np.unique(np.unravel_index(places, array.shape)[axis]).tolist()


def side(array: np.ndarray, mark: np.ndarray | None = None, **more: object) -> MarkedValue:
    mark = np.zeros((1,) * array.ndim, bool) if mark is None else mark
    return MarkedValue(array.shape, mark, lambda: array, **more)


def test_the_unchanged_lines_of_the_longer_side_are_the_shorter_ones() -> None:
    y = RNG.standard_normal((12, 5))
    changed = np.arange(12)[:, None] % 4 != 1  # positions first, then samples: the second sample
    chosen = must_agree(side(y[1::4]), side(y, changed))
    assert lines(chosen, y) == [1, 5, 9]
    assert chosen.count((3, 5)) == 15


def test_at_the_end_of_a_prefix_outputs_that_read_on_need_not_agree() -> None:
    y = RNG.standard_normal((2, 9))
    chosen = must_agree(side(y[:, :5]), side(y, np.arange(9)[None] >= 4))
    assert lines(chosen, y, 1) == [0, 1, 2, 3]


def test_what_no_content_changes_is_paired_where_it_stands_if_it_is_near() -> None:
    mask = RNG.standard_normal((8, 6))
    chosen = must_agree(side(mask[3:5]), side(mask, begins_at=Fraction(3, 8)))
    assert lines(chosen, mask) == [3, 4]
    assert must_agree(side(RNG.standard_normal((2, 6))), side(mask)) is None


def test_a_step_behind_a_cache_is_where_its_own_content_changes_something() -> None:
    y = RNG.standard_normal((1, 9))
    changed, own = np.arange(9)[None] > 6, np.arange(9)[None] >= 5
    chosen = must_agree(side(y[:, 5:7]), side(y, changed, of_step=own))
    assert lines(chosen, y, 1) == [5, 6]


def test_where_nothing_is_lacked_other_shapes_are_no_parts() -> None:
    y = RNG.standard_normal((4, 6))
    assert must_agree(side(y[:2], lacks_nothing=True), side(y, lacks_nothing=True)) is None
    assert must_agree(side(y, lacks_nothing=True), side(y, lacks_nothing=True)).all_by_index


def test_rows_that_went_elsewhere_are_found_by_their_numbers() -> None:
    rows = RNG.standard_normal((5, 8))
    chosen = lines_by_value(rows[[3, 0]] * (1 + 1e-6), rows)
    assert np.array_equal(chosen.elements(rows, 1), rows[[3, 0]])
    assert lines_by_value(rows[:1] + 1, rows) is None
    assert lines_by_value(rows[:0], rows) is None  # an expert that a router sends no rows to


def test_a_short_sample_is_the_beginning_of_its_padded_one_wherever_that_stands() -> None:
    y = RNG.standard_normal((4, 9, 5))
    y[2, 3:] = 0
    before = Fraction(2, 4)
    changed = np.arange(4)[:, None, None] != 2
    chosen = must_agree(side(y[2:3, :3]), side(y, changed, begins_at=before))
    assert np.array_equal(chosen.elements(y, 1), y[2:3, :3])


@pytest.mark.parametrize(("count", "begin"), [(2, 5), (7, 0), (3, None)])
def test_behind_a_state_lines_are_its_own_or_all_up_to_its_end(
    count: int, begin: int | None
) -> None:
    whole = RNG.standard_normal((9, 4))
    part = whole[slice(begin, (begin or 0) + count)]
    found = must_agree(*(side(array, piece=(5, 7, 9)) for array in (part, whole)))
    if begin is None:
        assert found is None
    else:
        assert lines(found, whole) == [*range(begin, begin + count)]


def test_a_block_of_other_positions_is_not_taken_for_a_piece_behind_a_state() -> None:
    blocks = (RNG.standard_normal((4, 4)) for _ in range(2))
    assert must_agree(*(side(array, piece=(4, 8, 8)) for array in blocks)) is None
