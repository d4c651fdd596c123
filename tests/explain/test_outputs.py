"""Outputs are compared by index, whatever explains them; what a difference changes is counted."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats
from probe.explain.outputs import (
    TOP,
    Decision,
    Samples,
    counts_text,
    decisions,
    output_difference,
    starts_of_pieces,
    verdict_of,
    with_window,
)

X = np.arange(24, dtype=np.float32).reshape(4, 6)
FLOAT = ("float32", "float32")


def test_what_differs_is_counted_by_index_with_its_samples():
    y = X.copy()
    y[1, 2], y[3, 5] = np.nextafter(y[1, 2], np.float32(9)), y[3, 5] + 1
    found = output_difference(X, y, FLOAT)
    assert (found.elements, found.differing, found.samples, found.nan) == (24, 2, (1, 3), 0)
    assert found.max_abs == 1 and found.max_ulp == np.float32(1) / np.spacing(np.float32(23))
    assert (
        verdict_of([found]) == "differs" and verdict_of([output_difference(X, X, FLOAT)]) == "equal"
    )


def test_a_number_against_nan_is_said_first_and_has_no_distance():
    y = X.copy()
    y[0, 0], y[0, 1] = np.nan, 7
    found = output_difference(X, y, FLOAT)
    assert (found.nan, found.differing, found.max_ulp) == (1, 2, None)
    assert counts_text([found]).startswith("2 of 24 outputs differ, 1 number against NaN")
    same = output_difference(y, y, FLOAT)  # NaN against NaN is no difference
    assert same.differing == 0 and verdict_of([same]) == "equal"


def test_zeros_of_different_signs_are_counted_beside():
    found = output_difference(np.zeros(3, "f4"), np.array([0, -0.0, 0], "f4"), FLOAT)
    assert (found.differing, found.signed_zero) == (0, 1) and "different signs" in counts_text(
        [found]
    )


def test_integers_and_truth_values_are_compared_as_they_are():
    found = output_difference(np.array([1, 2, 3]), np.array([1, 5, 3]), ("int64", "int64"))
    assert (found.differing, found.max_ulp, found.max_abs, found.samples) == (1, None, 3, (1,))
    both = np.array([True]), np.array([False])
    assert output_difference(*both, ("bool", "bool")).differing == 1


def test_a_prefix_is_laid_beside_what_both_have_and_another_type_beside_nothing():
    found = output_difference(X[:2, :5], X, FLOAT)
    assert (found.elements, found.not_compared, verdict_of([found])) == (10, 0, "equal")
    assert output_difference(X[2:], X, FLOAT, start=(2,)).differing == 0
    wide = output_difference(X, X.astype("f8"), ("float32", "float64"))
    assert wide.not_compared == 24 and verdict_of([wide]) == "unknown" and "float64" in wide.why
    flat = output_difference(X.reshape(-1), X, FLOAT)
    assert verdict_of([flat]) == "unknown"
    assert verdict_of([output_difference(X, X, FLOAT), flat]) == "unknown"  # a part is not all
    assert verdict_of([]) == "unknown"


def test_what_the_smaller_of_two_shapes_has_beyond_the_other_is_not_called_equal():
    found = output_difference(X, np.tile(X.T, (1, 2)), FLOAT)  # 4 x 6 against 6 x 8
    assert found.not_compared == 0
    turned = output_difference(X[:3, :4], X[:2], FLOAT)  # 3 x 4 against 2 x 6
    assert (turned.elements, turned.not_compared, turned.differing) == (8, 4, 0)
    assert verdict_of([turned]) == "unknown"
    overlap = output_difference(X[2:], X[:3], FLOAT, start=(2,))
    assert (overlap.elements, overlap.not_compared) == (6, 6)


def test_texts_have_no_distance():
    """A recorder keeps the digests of texts: their difference, 3.8e18, was told as a distance."""
    found = output_difference(np.uint64([1, 2]), np.uint64([1, 9]), ("string", "string"))
    assert (found.differing, found.max_ulp, found.max_abs) == (1, None, None)


def test_a_single_number_has_no_rows():
    found = output_difference(np.float32(1), np.float32(2), FLOAT)
    assert (found.elements, found.differing, found.samples) == (1, 1, ())


def test_what_reads_more_is_counted_and_still_no_equality():
    y = X.copy()
    y[0, 5] = -1
    found = with_window(output_difference(X, y, FLOAT), np.arange(24).reshape(4, 6) % 6 == 5)
    assert (found.window, found.window_apart, verdict_of([found])) == (4, 1, "differs")
    assert "4 read what the other side lacks (1 of them differ)" in counts_text([found])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_sample_of_a_batch_is_compared_once(size, axis):
    """The second output has two rows a sample, the third none at all."""
    whole = np.random.default_rng(size).normal(size=(7, 4)).astype("f4")
    other = whole.copy()
    other[[2, 6], 1] += 1
    lay = lambda rows: np.moveaxis(rows, 0, axis)  # noqa: E731
    starts = starts_of_pieces(7, size)
    pieces = [
        [lay(other[s : s + size]), np.repeat(whole[s : s + size], 2, 0), whole[:0]] for s in starts
    ]
    samples = Samples(size, 7, starts, pieces, [lay(whole), np.repeat(whole, 2, 0), whole[:0]])
    assert samples.compared == 7
    first, second, _ = samples.differences([FLOAT] * 3)
    assert (first.elements, first.differing, first.samples) == (28, 2, (2, 6))
    assert (second.elements, second.differing) == (56, 0)
    assert samples.first_apart() == next(s for s in starts if s <= 2 < s + size)


def test_a_maximum_of_the_batch_is_not_that_of_each_sample():
    """The first sample held the largest number, and the others were not looked at: "equal"."""
    whole = np.float32([9, 1, 2])
    pieces = [[whole[n : n + 1].max()] for n in range(3)]
    samples = Samples(1, 3, [0, 1, 2], pieces, [whole.max()])
    (found,) = samples.differences([FLOAT])
    assert (found.elements, found.differing, samples.first_apart()) == (1, 1, 1)


def test_each_sample_against_each_is_laid_beside_its_block():
    whole = np.arange(16, dtype=np.float32).reshape(4, 4)
    pieces = [[whole[n : n + 2, n : n + 2].copy()] for n in (0, 2)]
    pieces[1][0][1, 0] += 1
    (found,) = Samples(2, 4, [0, 2], pieces, [whole]).differences([FLOAT])
    assert (found.elements, found.differing, found.samples) == (8, 1, (3,))


def test_the_samples_that_were_not_run_are_not_counted_as_compared():
    samples = Samples(1, 4, [0, 1], [[X[:1]], [X[1:2]]], [X])
    (found,) = samples.differences([FLOAT])
    assert samples.compared == 2 and (found.elements, found.differing) == (12, 0)


@pytest.mark.parametrize(("count", "size"), [(8, 1), (7, 2), (5, 3), (64, 1), (2, 1), (3, 3)])
def test_each_two_pieces_are_changed_apart_and_none_with_its_own(count, size):
    starts = starts_of_pieces(count, size)
    samples = Samples(size, count, starts, [], [])
    pairs = list(samples.others())
    pieces = [set(range(start, start + size)) for start in starts]
    first = [next(piece for piece in pieces if row in piece) for row in range(count)]
    for row, own in enumerate(first):
        runs = [changed for changed, kept in pairs if kept[row]]
        assert not any(changed[sorted(own)].any() for changed in runs)
        assert all(any(run[other] for run in runs) for other in set(range(count)) - own)
    assert len(pairs) <= 8


def test_what_reads_the_other_samples_is_window_wherever_it_stands():
    """Of a running sum over the batch the first sample alone reads itself: the others were counted
    as its rounding."""
    x = np.float32([[1], [2], [3]])
    pieces = [[x[n : n + 1]] for n in range(3)]
    reads = [np.array([[False], [True], [True]])]
    samples = Samples(1, 3, [0, 1, 2], pieces, [np.cumsum(x, 0, dtype="f4")], reads)
    (found,) = samples.differences([FLOAT])
    assert (found.differing, found.window, found.window_apart) == (2, 2, 2)


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


def test_numbers_beside_infinities_and_nans_keep_their_margins():
    row = np.array([[1, np.inf, np.nan, 4], [np.inf, np.inf, -np.inf, 8]], np.float32)
    top, above = decisions(row, row, "float32")
    assert (top.margin, above.margin) == (None, 1 / 8 / np.finfo(np.float32).eps)
    assert all(one.margin is None for one in decisions(row[:, 1:3], row[:, 1:3], "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_decisions_are_those_of_the_numbers_in_every_format(dtype):
    """bfloat16's containers are whole numbers, by which -1 would be larger than 1."""
    rows = floats.round_to(np.array([[1.0, -1.0, 0.5], [-2.0, 2.0, 0.0], [3, 1, 2]]), dtype)
    turned = floats.round_to(np.array([[-1.0, 1.0, 0.5], [-2.0, 2.0, 0.5], [3, 2, 1]]), dtype)
    assert [one.crossed for one in decisions(rows, turned, dtype)] == [1, 3]
