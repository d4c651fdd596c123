"""Weights in another order are found with the permutation, and weights that agree are not named."""

from __future__ import annotations

import numpy as np
import pytest

from probe.diff.related import permuted_weights

RANDOM = np.random.default_rng(3)
W = RANDOM.normal(size=(12, 5)).astype("f4")
K = RANDOM.normal(size=(3, 3, 4, 6)).astype("f4")


def only(left, right):
    (found,) = permuted_weights({"a": left}, {"b": right})
    if found.code:  # the line does what it says
        names = {"np": np, "w": left}
        exec(found.code, names)
        assert np.array_equal(names["w"], right)
    return found


def test_other_numbers_are_no_finding():
    assert not list(permuted_weights({"a": W}, {"a": W + 1}))


def test_a_kernel_in_another_librarys_axes_is_a_convention():
    found = only(K, K.transpose(3, 2, 0, 1))
    assert found.axes == (3, 2, 0, 1) and found.convention
    assert found.code == "w = w.transpose(3, 2, 0, 1)"
    square = RANDOM.normal(size=(4, 4)).astype("f4")
    assert only(square, square.T).axes == (1, 0)


@pytest.mark.parametrize(
    ("order", "words"), [((1, 0, 2), "blocks of 4"), ((2, 0, 1), "blocks of 4")]
)
def test_gates_in_another_order_are_named(order, words):
    found = only(W, np.concatenate([np.split(W, 3)[n] for n in order]))
    assert words in found.how and str(order) in found.how and not found.convention
    assert str(found).startswith("weights permuted: a and b: blocks")
    assert found.code.startswith("w = np.concatenate([np.split(w, 3, axis=0)[n] for n in")


def test_flipped_kernels_and_permuted_rows_are_told_apart():
    found = only(K, K[::-1, ::-1])
    assert "flipped along axes (0, 1)" in found.how and found.code == "w = np.flip(w, (0, 1))"
    rows = RANDOM.permutation(12)
    while (rows == np.arange(12)).all():
        rows = RANDOM.permutation(12)
    found = only(W, W[rows].T)
    assert found.axes == (1, 0) and found.how == "rows along axis 1 in another order"
    mixed = W.reshape(-1)[RANDOM.permutation(60)].reshape(12, 5)
    assert only(W, mixed).how in ("in another order",) and not only(W, mixed).code
