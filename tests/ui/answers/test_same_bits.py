"""``probe.assert_same_bits``: where two values differ, by how much, and rows at different sizes."""

import numpy as np
import pytest

import probe
from probe.ui.answers.same_bits import where_they_differ

ONE = np.float32([1.0, 2.0, 3.0])


def told(left, right, **options):
    with pytest.raises(AssertionError) as error:
        probe.assert_same_bits(left, right, **options)
    return str(error.value)


def test_equal_bits_pass_and_different_ones_are_shown_with_their_distance():
    probe.assert_same_bits({"a": ONE, "b": [1, 2]}, {"a": ONE.copy(), "b": [1, 2]})
    other = ONE.copy()
    other[1] = np.nextafter(other[1], np.float32(3))
    found = told(ONE, other)
    assert found.startswith("out: 1 of 3 differ, by up to 1 ulp: out[1]=2.0 (0x40000000), against")
    assert told({"a": ONE}, {"a": ONE, "b": 1}) == "b: only the right side has it"


@pytest.mark.parametrize(
    ("left", "right", "why"),
    [
        (np.float32([0.0]), np.float32([-0.0]), "in the signs of zeros or the payloads of NaNs"),
        (
            np.uint32([0x7FC00000]).view(np.float32),
            np.uint32([0x7FC00001]).view(np.float32),
            "in the signs of zeros or the payloads of NaNs",
        ),
        (np.float32([1]), np.float32([np.nan]), "numbers against NaN"),
        (np.ones(3), np.ones(3, np.float32), "float64 3, against float32 3: dtypes"),
        (np.ones((2, 3)), np.ones((3, 2)), "float64 2x3"),
        (np.zeros((0, 3)), np.zeros((3, 0)), "float64 0x3"),
        (np.array([1 + 1j]), np.array([1 - 1j]), "1 of 1 differ"),
        (np.array(["a"]), np.array(["b"]), "1 of 1 differ"),
        (b"ab", b"ac", "1 of 2 differ"),
        (np.bool_([True]), np.bool_([False]), "1 of 1 differ"),
    ],
)
def test_every_kind_of_difference_is_told(left, right, why):
    assert why in told(left, right)


def test_an_array_is_one_argument_of_functions_and_their_operation_is_named():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    probe.assert_same_bits(np.tanh, np.tanh, inputs=x)
    found = told(lambda x: np.tanh(x) + 1, lambda x: np.tanh(x) + 2, inputs=x)
    assert "6 of 6 differ" in found
    assert "add" in found


def test_functions_that_change_their_argument_are_given_the_same_one():
    def doubled(x):
        x *= 2
        return x + 1

    x = np.arange(6, dtype=np.float32)
    probe.assert_same_bits(doubled, doubled, inputs=[x])
    assert x[1] == 1


def test_where_the_form_alone_differs_no_equality_is_told():
    """A failed assertion that ends with "equal" has its reader look in the wrong place."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = told(lambda x: {"a": x * 2}, lambda x: {"b": x * 2}, inputs=x)
    assert "equal" not in found and "their names" in found


def test_what_is_left_out_on_both_sides_is_the_same():
    probe.assert_same_bits((ONE, None), (ONE, None))
    assert told((ONE, None), (ONE, ONE)) == "1: only the right side has it"


def test_files_are_compared_by_their_bytes(tmp_path):
    paths = [tmp_path / name for name in "ab"]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 10)
    assert where_they_differ(*paths).startswith("out: the files differ: file 10")


def test_texts_part_at_a_character():
    probe.assert_same_bits("the same", "the same")
    left, right = "the sum is 3.1415", "the sum is 3.1416"
    assert "out: the texts part at character 16: 'm is 3.1415', against" in told(left, right)
    assert "character 3" in told({"a": "abc"}, {"a": "abcd"})
    assert "out: text 3" in told("abc", b"abc")
