"""Sources of two runs: planted mistakes are beyond rounding, and different orders are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import probe
from probe.diff import source
from probe.explain.enclosure import of_sums
from probe.order import semantics as s
from probe.order.semantics import Meaning
from tests.record.doubles import Doubles, Step, product, walked

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


X, W = normal(8, 48), normal(48, 16)
# the same products, added forwards and backwards
BOTH_ORDERS = (
    product,
    lambda x, w: np.ascontiguousarray(x[:, ::-1]) @ np.ascontiguousarray(w[::-1]),
)


def told(
    meaning: Meaning, function: Callable[..., Any], *more: np.ndarray, rows: int = 1
) -> dict[str, Any]:
    """The JSON of one operation on some rows against all of them."""
    weights = {f"w{n}": one for n, one in enumerate(more)}
    step = Step("double", meaning, function, ["x", *weights])
    sides = [Doubles({"x": one, **weights}, [step]) for one in (X[:rows], X)]
    found: dict[str, Any] = walked(*sides).to_json()
    (one,) = found["operations"]
    assert found["rounding"] == one["rounding"] and one["verdict"] == "source"
    counts = [found["rounding"][name] for name in ("explained", "within", "beyond", "unknown")]
    assert sum(counts) == one["differing"] > 0
    return found


def wrong(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with one number of a row alone off by a hundredth."""

    def changed(x: np.ndarray, *more: np.ndarray) -> np.ndarray:
        y = np.array(function(x, *more))
        if len(x) == 1:
            y[0, 3] *= np.float32(1.01)
        return y

    return changed


def test_another_order_is_explained() -> None:
    found = told(s.matmul(), product, W)
    assert found["rounding"]["explained"] == found["operations"][0]["differing"]


def test_a_wrong_number_is_beyond_rounding_on_its_side() -> None:
    found = told(s.matmul(), wrong(product), W)
    assert found["rounding"]["beyond"] == 1
    assert found["rounding"]["beyond_on"] == {"left": 1, "right": 0}


@pytest.mark.parametrize(
    ("word", "steps", "count"),
    [("exp", 1, "within"), ("exp", 99, "unknown"), ("add", 1, "unknown")],
)
def test_a_few_ulps_of_a_function_are_within_rounding(word: str, steps: int, count: str) -> None:
    """Of a sum of two numbers IEEE 754 says the only result."""

    def function(x: np.ndarray) -> np.ndarray:
        y = np.exp(x)
        return (y.view("i4") + steps * (len(x) == 1)).astype("i4").view("f4")

    found = told(s.function(word), function)["rounding"]
    assert found[count] == sum(found.values()) > 0


def test_a_decision_has_a_margin_in_units_of_the_largest_difference() -> None:
    """Two columns that are an ulp apart are nearer to changing than the two runs are apart."""
    w = normal(48, 16)
    sides = [
        Doubles({"x": X, "w": w}, [Step("product", s.matmul(), f, ["x", "w"])]) for f in BOTH_ORDERS
    ]
    wide = probe.first_difference(*sides).to_json()["decisions"]
    assert wide["changed"] == 0 and wide["margin"] > 1
    w[:, 1] = np.nextafter(w[:, 0], np.float32(9))
    w[:, 2:], w[:, :2] = -abs(w[:, 2:]), abs(w[:, :2])
    sides = [
        Doubles({"x": abs(X), "w": w}, [Step("product", s.matmul(), f, ["x", "w"])])
        for f in BOTH_ORDERS
    ]
    assert probe.first_difference(*sides).to_json()["decisions"]["margin"] < 1


def test_rows_of_a_batch_decide_which_is_the_largest() -> None:
    """However labels say which elements are the same: rows by their number, or each by itself."""
    for rows in (1, 3):
        function = wrong(product) if rows == 1 else rounded
        (output,) = told(s.matmul(), function, W, rows=rows)["outputs"]
        taken = {one["decision"]: one["taken"] for one in output["decisions"]}
        assert taken == {"argmax": rows, "top-5": rows, "threshold": rows * 16}


def rounded(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Rows times weights, an ulp off in a batch of all rows."""
    y = x @ w
    return y if len(x) < len(X) else np.nextafter(y, np.float32(99))


@pytest.mark.parametrize("factor", [1e-39, 1e-45])
def test_subnormal_results_that_one_side_flushes_are_not_called_beyond(factor: float) -> None:
    """TensorFlow's and XLA's kernels do so: that is no rounding, and no bug either."""
    w = np.full(48, factor, np.float32)

    def function(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        y = x * w
        return np.where(np.abs(y) < np.finfo(np.float32).tiny, 0, y) if len(x) == 1 else y

    found = told(s.function("multiply"), function, w)["rounding"]
    assert found["beyond"] == 0


@pytest.mark.slow
def test_steps_that_a_compiler_fuses_are_not_beyond_rounding() -> None:
    """XLA multiplies by reciprocals and fuses products with additions, which cancel here."""
    jax = pytest.importorskip("jax")
    x = jax.device_put(X)
    steps = jax.jit(lambda z: (z / 7 - z * 0.1428571) * 1e3 + z.var(1, keepdims=True))
    found = probe.first_difference(lambda: steps.__wrapped__(x), lambda: steps(x))
    assert found.to_json()["rounding"]["beyond"] == 0


def test_formulas_whose_enclosures_have_nothing_in_common_are_told_from_rounding() -> None:
    """Each side's number is right for its own formula; a gap that flushing could fill is none."""

    ones = np.ones((1, 4), np.float32)
    sums = of_sums(ones, ones, "float32")
    left = replace(sums, low=np.array([0, 0, 0, np.nan]), high=np.ones(4))
    right = replace(sums, low=np.array([0.5, 3, 1.4, 5]), high=np.array([2.0, 4, 2, 6]))
    assert source.disjoint(left, right, 0.25).tolist() == [False, True, False, True]
