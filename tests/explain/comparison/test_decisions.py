"""What a difference does: decisions that cross, and how far an output is from the truth."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats
from probe.explain.comparison.outputs import TOP, Decision, decisions, error, same_decisions


@pytest.mark.parametrize("scale", [1.0, 2.0**-20])
def test_the_largest_channels_and_signs_that_two_runs_take_differently_are_counted(scale):
    fixed = np.array([[8, 7, 6, 5, 4, 3, 1], [-8, 7, 6, 5, 4, 2, 0.5]], np.float32)
    other = fixed.copy()
    other[0, :2] = 7, 8  # another largest one, the same five
    other[1, 5:] = 0.5, 2
    other[1, 0] = 8  # another sign, another largest one, another set of five
    unit, scale = np.finfo(np.float32).eps * 8, np.float32(scale)
    assert list(decisions(other[None] * scale, fixed[None] * scale, "float32")) == [
        Decision("argmax", 2, 2, 1 / unit),
        Decision(f"top-{TOP}", 2, 1, 1 / unit),
        Decision("threshold", 14, 1, 0.5 / unit),
    ]


def test_zero_is_not_above_zero():
    none, some = np.float32([[0, 0, 3]]), np.float32([[0, 1, 3]])
    for one, other in ((none, some), (some, none)):
        *_, told = decisions(one, other, "float32")
        assert told == Decision("threshold", 3, 1, 0.0)


def test_as_many_channels_as_are_wanted_decide_nothing():
    five = np.arange(1, 1 + TOP, dtype=np.float32)[None]
    assert [one.decision for one in decisions(five, five, "float32")] == ["argmax", "threshold"]
    one = np.ones((3, 1), np.float32)
    assert [one.decision for one in decisions(one, one, "float32")] == ["threshold"]


@pytest.mark.parametrize(
    ("output", "truth", "far"),
    [([1.0, 2.5], [1.0, 2.0], 0.25), ([0.0, 0.0], [0.0, 0.0], 0.0), ([0.0, -3.0], [0.0, 0.0], 1.0)],
)
def test_errors_are_in_eps_of_the_largest_number(output, truth, far):
    eps = np.finfo(np.float32).eps
    found = error(np.array(output, np.float32), np.array(truth), "float32")
    assert found == (far if truth == [0.0, 0.0] else pytest.approx(far / eps))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_decisions_are_those_of_the_numbers_in_every_format(dtype):
    """bfloat16's containers are whole numbers, by which -1 would be larger than 1."""
    rows = floats.round_to(np.array([[1.0, -1.0, 0.5], [-2.0, 2.0, 0.0], [3, 1, 2]]), dtype)
    turned = floats.round_to(np.array([[-1.0, 1.0, 0.5], [-2.0, 2.0, 0.5], [3, 2, 1]]), dtype)
    assert same_decisions(rows, turned, dtype, "argmax").tolist() == [False, True, True]
    assert same_decisions(rows, turned, dtype, "top-2", 2).tolist() == [False, True, False]
    told = same_decisions(rows, turned, dtype, "threshold")
    assert told.tolist() == [[False, False, True], [True, True, False], [True] * 3]
    assert [one.crossed for one in decisions(rows, turned, dtype)] == [1, 3]
