"""Which elements a program does not read is found by running it, whatever it does with them."""

from collections.abc import Callable

import numpy as np
import pytest

from probe.diff.unread import Reader, rows_read

X = np.random.default_rng(0).standard_normal((8, 5, 12)).astype("f4")
IDS = np.arange(40).reshape(8, 5) % 7
MASK = np.arange(12) < np.array([[12], [9], [12]])

PARTS: dict[str, tuple[np.ndarray, Callable[[np.ndarray], np.ndarray], object]] = {
    "all": (X, np.tanh, np.s_[:]),
    "a sample": (X, lambda x: x[3:4] * 2, np.s_[3:4]),
    "a beginning": (X, lambda x: x[..., :5].sum(-1), np.s_[..., :5]),
    "a box": (X, lambda x: x[2:, 1, 3:9], np.s_[2:, 1:2, 3:9]),
    "the last": (X, lambda x: x[..., -1:], np.s_[..., -1:]),
    "nothing": (X, lambda x: np.zeros(3), np.s_[:0]),
    "rows of ids": (IDS, lambda x: np.eye(7)[x[:2]], np.s_[:2]),
    "of a mask": (MASK, lambda x: x[:2].astype("f4"), np.s_[:2]),
}


def reader(array: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> tuple[Reader, list]:
    runs = list[int]()

    def run(arrays):
        runs.append(1)
        return function(arrays["x"]).tobytes()

    return Reader(run, {"x": array}, {"x": str(array.dtype)}), runs


@pytest.mark.parametrize("name", PARTS)
def test_the_rest_of_a_part_is_not_read(name: str) -> None:
    array, function, part = PARTS[name]
    expected = np.ones(array.shape, bool)
    expected[part] = False
    asked, runs = reader(array, function)
    assert np.array_equal(asked.unread("x"), expected)
    assert len(runs) < 50


def test_lines_between_are_asked_where_it_is_wanted() -> None:
    asked, _ = reader(X, lambda x: x[:, :, [0, 3, 4, 11]])
    assert not asked.unread("x").any()
    found = asked.unread("x", inside=True)
    assert [n for n in range(12) if not found[..., n].all()] == [0, 3, 4, 11]


def test_what_raises_at_other_numbers_is_read() -> None:
    def strict(x: np.ndarray) -> np.ndarray:
        if (x != X)[1:].any():
            raise ValueError
        return x[:1]

    def run(arrays):
        try:
            return strict(arrays["x"]).tobytes()
        except ValueError:
            return None

    assert not Reader(run, {"x": X}, {"x": "float32"}).unread("x")[1:].all()


def test_rows_that_an_element_of_a_result_depends_on() -> None:
    x = {"x": np.arange(8.0), "scale": np.float64(2.0)}

    def sums(x, scale):
        return [np.cumsum(x) * scale, x[2:5].sum()]

    found = rows_read(sums, x, 0, 3)
    assert found["x"].tolist() == [True] * 4 + [False] * 4 and found["scale"].all()
    assert np.flatnonzero(rows_read(sums, x, 1, 0)["x"]).tolist() == [2, 3, 4]
    assert not rows_read(sums, x, 1, 0)["scale"].any()
