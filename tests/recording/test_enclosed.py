"""Sources of two runs: planted mistakes are beyond rounding, and different orders are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import probe
from probe.comparison.decisions import certain_decisions
from probe.recording import enclosed
from probe.semantics import Each, Meaning, Steps, Unknown
from probe.semantics import Step as Inner
from probe.semantics import operations as o
from tests.recording.doubles import Doubles, Step, product

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
    step = Step("double", Unknown(), lambda x: x + np.float32(len(x) == 1), ["x"])
    sides = [Doubles({"x": one}, [step]) for one in (X, X)]
    assert probe.first_difference(*sides).to_json()["rounding"]["beyond"] == 0


def test_decisions_that_no_order_changes_are_proved() -> None:
    """A margin of a tenth can't be crossed by rounding, one of an ulp can."""
    w = normal(48, 16)
    steps = [Step("product", o.matmul(), product, ["x", "w"])]
    found = probe.first_difference(*(Doubles({"x": X, "w": w}, steps) for _ in range(2)))
    told = found.to_json()["decisions"]
    assert told["changed"] == 0 and told["total"] * 0.95 < told["proved"] <= told["total"]
    w[:, 1] = np.nextafter(w[:, 0], np.float32(9))  # two columns an ulp apart: which is larger?
    w[:, 2:], w[:, :2] = -abs(w[:, 2:]), abs(w[:, :2])
    found = probe.first_difference(*(Doubles({"x": abs(X), "w": w}, steps) for _ in range(2)))
    told = found.to_json()["decisions"]
    assert told["total"] - told["proved"] == len(X)  # the argmax of each row


@pytest.mark.parametrize("seed", range(3))
def test_outputs_of_a_network_stay_in_their_intervals(seed: int) -> None:
    """Whatever order its sums are added in: in float64 and rounded, backwards, in blocks."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    nn = torch.nn
    layers = [nn.Conv1d(3, 8, 5, padding=2), nn.BatchNorm1d(8), nn.SiLU()]
    layers += [nn.Conv1d(8, 4, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 18, 10)]
    model = nn.Sequential(*layers, nn.Softmax(1)).eval()
    x = torch.randn(5, 3, 20)
    side = probe.first_difference(lambda: model(x), lambda: model(x)).found.left
    (found,) = enclosed.output_intervals(side).values()
    with torch.no_grad():
        rows = torch.cat([model(one[None]) for one in x]).numpy()
        wide = model.double()(x.double()).float().numpy()
    for y in (rows, wide):
        assert ((found.low <= y) & (y <= found.high)).all()
    order = np.argsort(-wide, axis=1)[:, 0]
    proved = certain_decisions(found, "argmax")
    assert (np.argmax(rows, axis=1)[proved] == order[proved]).all()


def test_rows_of_a_batch_decide_which_is_the_largest() -> None:
    """However labels say which elements are the same: rows by their number, or each by itself."""
    for rows in (1, 3):
        function = wrong(product) if rows == 1 else rounded
        (output,) = told(o.matmul(), function, W, rows=rows)["outputs"]
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

    found = told(o.function("multiply"), function, w)["rounding"]
    assert found["beyond"] == 0


@dataclass
class Source(Meaning):
    """A compiled program: what it computes is what its source says, which has so many rows."""

    word: str = ""

    def labels(self, reads, shapes, what):
        return self.said(shapes[0][0]).labels(reads, shapes, what)

    def written(self, reads, gives):
        return self.said(gives[0][0])

    def said(self, rows):
        both = Inner(o.matmul(), (0, 1), (rows, 16)), Inner(o.function("square"), (2,), (rows, 16))
        return Steps((*both, Inner(o.reduced("sum", (1,), True), (3,), (rows, 1))))


def squares(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray((product(x, w) ** 2).sum(axis=-1, keepdims=True))


def test_a_compiled_program_is_judged_by_the_steps_of_its_source():
    """Just outside of what these can give it is unknown, far outside beyond (as jax#39103 is)."""

    def off(by: float) -> Callable[..., Any]:
        return lambda x, w: squares(x, w) * np.float32(1 + by * (len(x) == 1))

    every = {by: told(Source(), off(by), W)["rounding"] for by in (2e-7, 0.1)}
    assert every[2e-7]["beyond"] == 0
    assert every[0.1]["beyond"] == 1 and every[0.1]["beyond_on"] == {"left": 1, "right": 0}


def test_a_decision_that_a_bug_changes_is_not_among_the_proved_ones():
    def negative(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return product(x, w) * np.float32(-1 if len(x) == 1 else 1)

    decisions = told(o.matmul(), negative, W)["decisions"]
    assert decisions["changed"] > 0
    assert decisions["proved"] <= decisions["total"] - decisions["changed"]


def test_decisions_behind_nan_overflow_or_python_are_not_proved():
    torch = pytest.importorskip("torch")
    tenths = torch.tensor([[0.1] * 10, [1.0] + [0] * 9])
    tiny = torch.tensor([[1.0, -(2.0**-25), -1.0, 2.0**-26]])  # some orders are below -2**-26
    large = torch.tensor([[3e38, 3e38, -3e38, -3e38, -1.0]])
    five = torch.full((1, 1), 5.0)
    for run in (
        lambda: torch.eye(2)[[int(tenths.sum(1).argmax())]],  # of 1 or 1.0000001, and 1
        lambda: torch.cat([(tiny.sum(1, True) + 2.0**-26).sqrt(), five], 1),
        lambda: torch.cat([large.sum(1, True).tanh(), five], 1),
    ):
        told = probe.first_difference(run, run).to_json()["decisions"]
        assert told["total"] == 3 and told["proved"] <= 1  # that 5 is above zero
    found = probe.first_difference(lambda: large[0, :4].exp(), lambda: large[0].exp())
    assert found.to_json()["decisions"]["total"] == 4  # a part of a line decides no largest


@pytest.mark.slow
def test_steps_that_a_compiler_fuses_are_not_beyond_rounding() -> None:
    """XLA multiplies by reciprocals and fuses products with additions, which cancel here."""
    jax = pytest.importorskip("jax")
    x = jax.device_put(X)
    steps = jax.jit(lambda z: (z / 7 - z * 0.1428571) * 1e3 + z.var(1, keepdims=True))
    found = probe.first_difference(lambda: steps.__wrapped__(x), lambda: steps(x))
    assert found.to_json()["rounding"]["beyond"] == 0
