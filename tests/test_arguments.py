"""What people write becomes one checked value, or one line that says what to write."""

from __future__ import annotations

import pytest

from probe import arguments
from probe.errors import InputError
from probe.operation import OPERATIONS


@pytest.mark.parametrize(
    ("given", "op", "pairs", "text"),
    [
        (2, "conv1d", ((2, 2),), "2"),
        ("2", "conv2d", ((2, 2), (2, 2)), "2"),
        ("0:3", "conv1d", ((0, 3),), "0:3"),
        ("0:1,2:2", "conv2d", ((0, 1), (2, 2)), "0:1,2"),
        ("1,2", "conv2d", ((1, 1), (2, 2)), "1,2"),
        (((0, 1), (2, 2)), "conv2d", ((0, 1), (2, 2)), "0:1,2"),
        ([[1, 0]], "conv3d", ((1, 0),) * 3, "1:0"),
        ("SAME", "conv1d", "same", "same"),
        ("caffe", "conv1d", "caffe", "caffe"),
    ],
)
def test_padding_has_one_normal_form(given, op, pairs, text):
    found = arguments.padding(given, OPERATIONS[op].spatial_rank)
    assert found == pairs and arguments.padding_text(found) == text
    assert arguments.padding(text, OPERATIONS[op].spatial_rank) == found


@pytest.mark.parametrize(
    ("put", "why"),
    [
        ("x[0]", "names no operand and value"),
        ("y[0]=1", "names no operand and value"),
        ("x[0]=nought", "is not index=number"),
        ("b[0]=1", "the case has no b"),
        ("x[0, 1, 2, 3]=1", "4 numbers for the 3 axes of x"),
    ],
)
def test_what_cannot_be_put_says_why(put, why):
    with pytest.raises(InputError) as told:
        arguments.parse_put(put, {"x": 3, "w": 3})
    assert why in str(told.value) and "x[0, 1]=nan" in str(told.value)


def test_numbers_are_read_as_people_write_them():
    assert arguments.whole_numbers("lengths", "5..8") == [5, 6, 7, 8]
    assert arguments.whole_numbers("lengths", "5..12:3") == [5, 8, 11]
    assert arguments.whole_numbers("lengths", "9..12, 5,7,9") == [5, 7, 9, 10, 11, 12]
    for wrong in ("", "5-8", "5..", "5..8:0", "5..8:-1", "0..3", "1..99999999", "5.5"):
        with pytest.raises(InputError, match=r"lengths="):
            arguments.whole_numbers("lengths", wrong)
