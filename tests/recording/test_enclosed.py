"""Sources of two runs: planted mistakes are beyond rounding, and different orders are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import probe
from probe.semantics import Each, Meaning, Unknown
from probe.semantics import operations as o
from tests.recording.doubles import Doubles, Step, added

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


X, W = normal(8, 48), normal(48, 16)


def told(
    meaning: Meaning, function: Callable[..., Any], *more: np.ndarray, rows: int = 1
) -> dict[str, Any]:
    """The JSON of one operation on some rows against all of them."""
    weights = {f"w{n}": one for n, one in enumerate(more)}
    step = Step("double", meaning, function, ["x", *weights])
    sides = [Doubles({"x": one, **weights}, [step]) for one in (X[:rows], X)]
    found: dict[str, Any] = probe.first_difference(*sides).to_json()
    (one,) = found["operations"]
    assert found["rounding"] == one["rounding"] and one["verdict"] == "source"
    counts = [found["rounding"][name] for name in ("explained", "within", "beyond", "unknown")]
    assert sum(counts) == one["differing"] > 0
    return found


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Rows times weights: a row alone is added upwards, several are added downwards."""
    order = range(w.shape[-2])
    return added(x[..., :, None] * w, list(order if x.shape[0] == 1 else order[::-1]))


def wrong(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with one number of a row alone off by a hundredth."""

    def changed(x: np.ndarray, *more: np.ndarray) -> np.ndarray:
        y = np.array(function(x, *more))
        if len(x) == 1:
            y[0, 3] *= np.float32(1.01)
        return y

    return changed


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def layer_norm(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + np.float32(1e-5))


def test_another_order_is_explained() -> None:
    found = told(o.matmul(), product, W)
    assert found["rounding"]["explained"] == found["operations"][0]["differing"]


@pytest.mark.parametrize(
    ("meaning", "function", "more"),
    [
        (o.matmul(), product, (W,)),
        (Each("tanh"), np.tanh, ()),
        (o.function("exp"), np.exp, ()),
        (o.softmax((1,)), softmax, ()),
        (o.norm((1,), 1e-5, False, False), layer_norm, ()),
    ],
    ids=lambda one: getattr(one, "word", ""),
)
def test_a_wrong_number_is_beyond_rounding_on_its_side(meaning, function, more) -> None:
    found = told(meaning, wrong(function), *more)
    assert found["rounding"]["beyond"] == 1
    assert found["rounding"]["beyond_on"] == {"left": 1, "right": 0}


def test_the_words_are_ahead_in_the_lines() -> None:
    step = Step("double", o.matmul(), wrong(product), ["x", "w"])
    sides = [Doubles({"x": one, "w": W}, [step]) for one in (X[:1], X)]
    line = probe.first_difference(*sides).lines()[1]
    assert line.startswith("beyond rounding: 1 (no order of additions gives the result on the left")


def test_a_few_ulps_of_a_function_are_within_rounding() -> None:
    def function(x: np.ndarray) -> np.ndarray:
        y = np.exp(x)
        return np.nextafter(y, np.float32(9)) if len(x) == 1 else y

    found = told(o.function("exp"), function)
    assert found["rounding"]["beyond"] == 0 and found["rounding"]["unknown"] == 0


def test_what_is_unknown_is_not_judged() -> None:
    def function(x: np.ndarray) -> np.ndarray:
        return x + np.float32(len(x) == 1)

    step = Step("double", Unknown(), function, ["x"])
    sides = [Doubles({"x": one}, [step]) for one in (X, X)]
    assert probe.first_difference(*sides).to_json()["rounding"]["beyond"] == 0
