"""Which elements of two values stand for each other: taken, put back, counted."""

from __future__ import annotations

import numpy as np
import pytest

from probe.diff.difference import Pair, read_alike
from probe.diff.pairing import ALL, NOTHING, WHOLE, Selection
from tests.record.taped import Taped, normal

LEFT, RIGHT = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(5, 4)
ROWS = np.array([0, 2]), np.array([4, 1])
SOME = np.array([[True], [False]])
SELECTIONS = {
    "rows": (Selection(((ROWS[0],), (ROWS[1],))), LEFT[ROWS[0]], RIGHT[ROWS[1]]),
    "columns": (
        Selection(((ALL, slice(2)), (slice(3), slice(1, 3)))),
        LEFT[:, :2],
        RIGHT[:3, 1:3],
    ),
    "some of them": (Selection(((ROWS[0],), (ROWS[1],)), SOME), LEFT[0], RIGHT[4]),
    "turned": (
        Selection(((slice(1),), (slice(2, 3),)), turned=(0,)),
        LEFT[0],
        RIGHT[2],
    ),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_what_is_selected_is_taken_counted_and_put_back(name: str) -> None:
    selection, *wanted = SELECTIONS[name]
    for side, (array, taken) in enumerate(zip((LEFT, RIGHT), wanted, strict=True)):
        assert np.array_equal(selection.taken(array, side), taken)
        changed = selection.put(array, -taken - 1, side)
        mask = selection.mask(array.shape, side)
        assert np.array_equal(changed < 0, mask) and mask.sum() == taken.size
        assert np.array_equal(changed[~mask], array[~mask])
    assert selection.count(LEFT.shape) == wanted[0].size
    assert not (selection.whole or selection.empty or selection.in_place)
    first = selection.only(np.arange(wanted[0].size).reshape(wanted[0].shape) == 0, LEFT.shape)
    assert first.taken(RIGHT, 1).tolist() == [wanted[1].flat[0]] and first.count(LEFT.shape) == 1


def test_axes_that_stand_in_another_order_are_turned() -> None:
    selection = Selection(turned=(1, 0))
    assert np.array_equal(selection.taken(RIGHT[:, None], 1), selection.taken(RIGHT.T, 0))
    assert selection.count((4, 5)) == 20 and not selection.whole


def test_all_and_nothing() -> None:
    assert WHOLE.whole and not WHOLE.empty and WHOLE.count((3, 4)) == 12
    assert np.array_equal(WHOLE.put(LEFT, LEFT.reshape(-1) + 1, 0), LEFT + 1)
    assert NOTHING.empty and NOTHING.count((3, 4)) == 0 and not NOTHING.taken(LEFT, 0).size
    assert Pair.of_all(1, 2, 0).hollow and not Pair.of_all(1, 2, 5).hollow


def test_two_operands_are_paired_the_other_way_round_where_only_that_fits() -> None:
    tape: list = []
    x, w = normal(4, 6), normal(6, 5)
    Taped(lambda t: t.dense(x, t.weight(w))).record(tape.append)
    (op,) = tape
    first, second = op.reads
    assert read_alike(op, op, lambda *both: True) == [(first, first), (second, second)]
    turned = read_alike(op, op, lambda a, b: a is not b)
    assert turned == [(first, second), (second, first)]
    assert read_alike(op, op, lambda *both: False) == [(first, first), (second, second)]
