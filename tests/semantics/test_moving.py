"""Where updates go: places of arrays, against NumPy's own assignment."""

from __future__ import annotations

import numpy as np
import pytest

from probe.semantics import moving
from probe.semantics.labels import of_digest


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_points_are_where_numpy_writes_from_both_ends(depth):
    """Indices of 0, of the last place, and both counted from the end."""
    shape = (3, 4, 2)
    rows = [[0] * depth, [n - 1 for n in shape[:depth]], [-1] * depth, [-n for n in shape[:depth]]]
    for row in rows:
        marked = np.zeros(shape, int)
        marked[tuple(row)] = 1
        found = moving.points(np.array([row], int).reshape(1, depth), shape)
        assert found.shape == (1, *shape[depth:])
        assert found.reshape(-1).tolist() == np.flatnonzero(marked).tolist(), row


@pytest.mark.parametrize("axis", [0, 1])
def test_along_an_axis_only_its_own_place_is_another(axis):
    index = np.array([[0, -1, 1], [2, -3, 0]])
    shape = (3, 3) if axis == 0 else (2, 3)
    marked = np.full(shape, -1)
    np.put_along_axis(
        marked, np.where(index < 0, index + 3, index), moving.flat_places((2, 3)), axis
    )
    found = moving.places_along(index, axis, shape)
    last = {int(place): int(number) for place, number in zip(found.flat, range(6), strict=True)}
    assert {place: int(marked.flat[place]) for place in last} == last


def test_a_place_outside_of_the_array_is_refused():
    with pytest.raises(ValueError, match="invalid entry"):
        moving.points(np.array([[3]]), (3, 2))


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("index", [[0], [3], [0, 1], [0, 1, 2], [1, 3], [3, 2], [2, 2], 2])
def test_picked_rows_have_the_labels_that_they_had(axis, index):
    one = of_digest((4, 4), "w")
    shape = np.take(np.empty((4, 4)), index, axis).shape
    (found,) = moving.Picks(axis=axis, index=np.array(index)).labels([one], [shape], np.uint64(3))
    assert found.shape == shape
    assert np.array_equal(found.full(), one.full().take(index, axis))


def test_rows_in_a_row_are_told_by_where_they_begin():
    """They stay unnamed, so that other sizes can be compared: but not with the first ones."""
    one, what = of_digest((4, 4), "w"), np.uint64(3)
    found = [
        moving.Picks(index=np.arange(start, start + 2)).labels([one], [(2, 4)], what)[0].full()
        for start in (0, 1, 2, 2)
    ]
    assert np.array_equal(found[2], found[3])
    for one_, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.isin(found[one_], found[other]).any()


def test_what_was_never_written_is_like_nothing_and_all_else_keeps_its_labels():
    one, index = of_digest((4,), "w"), np.array([[2, -1], [0, -1]])
    move = moving.Written(lambda array: array[index], index=index)
    first, again = (
        move.labels([one], [(2, 2)], np.uint64(3))[0].full().reshape(-1) for _ in range(2)
    )
    assert first[[0, 2]].tolist() == again[[0, 2]].tolist() == one.full()[[2, 0]].tolist()
    assert len({*first[[1, 3]].tolist(), *again[[1, 3]].tolist(), *one.full().tolist()}) == 8
