"""Which elements of two values stand for each other: taken, put back, counted."""

from __future__ import annotations

import numpy as np
import pytest

from probe.diff.difference import NOTHING, WHOLE, Pair, Selection, read_alike
from tests.record.taped import Taped, normal

LEFT, RIGHT = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(5, 4)
ROWS = np.array([0, 2]), np.array([4, 1])
SELECTIONS = {
    "rows": (Selection((0,), *ROWS, ((3,), (5,))), LEFT[ROWS[0]], RIGHT[ROWS[1]]),
    "columns": (Selection((1,), *ROWS[:1], ROWS[0], ((4,), (4,))), LEFT.T[[0, 2]], RIGHT.T[[0, 2]]),
    "elements": (
        Selection((0, 1), np.array([5, 0]), np.array([19, 2]), ((3, 4), (5, 4))),
        np.array([5.0, 0]),
        np.array([19.0, 2]),
    ),
    "flat": (
        Selection((0,), np.array([11]), np.array([3]), ((12,), (20,)), flat=True),
        np.array([11.0]),
        np.array([3.0]),
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
    assert not (selection.whole or selection.empty)


def test_all_and_nothing() -> None:
    assert WHOLE.whole and not WHOLE.empty and WHOLE.count((3, 4)) == 12
    assert np.array_equal(WHOLE.put(LEFT, LEFT.reshape(-1) + 1, 0), LEFT + 1)
    assert NOTHING.empty and NOTHING.count((3, 4)) == 0
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
