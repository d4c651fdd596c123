"""Which elements of two values stand for each other: taken, put back, counted."""

from __future__ import annotations

import numpy as np
import pytest

from probe.diff.difference import ValuePair, operands_in_common
from probe.diff.pairing import ALL, ALL_BY_INDEX, NOTHING, Selection, Unselected
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
        Selection(((slice(1),), (slice(2, 3),)), axis_order=(0,)),
        LEFT[0],
        RIGHT[2],
    ),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_what_is_selected_is_taken_counted_and_put_back(name: str) -> None:
    selection, *wanted = SELECTIONS[name]
    for side, (array, taken) in enumerate(zip((LEFT, RIGHT), wanted, strict=True)):
        assert np.array_equal(selection.elements(array, side), taken)
        changed = selection.with_elements(array, -taken - 1, side)
        mask = selection.mask(array.shape, side)
        assert np.array_equal(changed < 0, mask) and mask.sum() == taken.size
        assert np.array_equal(changed[~mask], array[~mask])
    assert selection.count(LEFT.shape) == wanted[0].size
    assert not (selection.all_by_index or selection.empty or selection.in_place)
    first = selection.restricted_to(
        np.arange(wanted[0].size).reshape(wanted[0].shape) == 0, LEFT.shape
    )
    assert first.elements(RIGHT, 1).tolist() == [wanted[1].flat[0]] and first.count(LEFT.shape) == 1


def test_axes_that_stand_in_another_order_are_turned() -> None:
    selection = Selection(axis_order=(1, 0))
    assert np.array_equal(selection.elements(RIGHT[:, None], 1), selection.elements(RIGHT.T, 0))
    assert selection.count((4, 5)) == 20 and not selection.all_by_index


def test_all_and_nothing() -> None:
    assert ALL_BY_INDEX.all_by_index and not ALL_BY_INDEX.empty and ALL_BY_INDEX.count((3, 4)) == 12
    assert np.array_equal(ALL_BY_INDEX.with_elements(LEFT, LEFT.reshape(-1) + 1, 0), LEFT + 1)
    assert NOTHING.empty and NOTHING.count((3, 4)) == 0 and not NOTHING.elements(LEFT, 0).size
    assert ValuePair.of_all(1, 2, 0).unselected is Unselected.ABSENT
    assert ValuePair.of_all(1, 2, 5).unselected is Unselected.FREE


def test_two_operands_are_paired_the_other_way_round_where_only_that_fits() -> None:
    tape: list = []
    x, w = normal(4, 6), normal(6, 5)
    Taped(lambda t: t.dense(x, t.weight(w))).record(tape.append)
    (op,) = tape
    first, second = op.reads
    assert operands_in_common(op, op, lambda *both: True) == [(first, first), (second, second)]
    turned = operands_in_common(op, op, lambda a, b: a is not b)
    assert turned == [(first, second), (second, first)]
    assert operands_in_common(op, op, lambda *both: False) == [(first, first), (second, second)]
