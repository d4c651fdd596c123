"""Two formulas of the same, replayed one operation after the other; sums of a few whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from probe.recording import source
from probe.recording.difference import compare_runs
from probe.recording.recording import record_run
from probe.semantics import (
    Contracts,
    Each,
    Meaning,
    Normalises,
    Reshapes,
    Steps,
    Unknown,
    Windows,
)
from probe.semantics import Step as Part
from tests.recording.doubles import Doubles, Step, added

RANDOM = np.random.default_rng(4)
TERMS = {n: RANDOM.standard_normal((4, 60)) for n in "abcd"}
ADDS = Each("add", zero="adds")


def steps(*reads: tuple[int, ...], meaning: Meaning = ADDS) -> Steps:
    """Additions one after the other; numbers: of operands, then of sums."""
    return Steps(tuple(Part(meaning, one, (4, 60)) for one in reads))


def cause(
    left: tuple[Meaning, Any], right: tuple[Meaning, Any], dtype: str = "float32"
) -> source.Cause:
    """Of two sums of a, b, c and d in one operation each."""
    given = {n: one.astype(dtype) for n, one in TERMS.items()}
    runs = [record_run(Doubles(given, [Step("sum", *one, list("abcd"))])) for one in (left, right)]
    found = compare_runs(*runs, {4: 4})
    return source.find_cause(runs[0], runs[1], found.operations[0])


ROW = steps((0, 1), (4, 2), (5, 3)), lambda a, b, c, d: ((a + b) + c) + d
PAIRS = steps((0, 1), (2, 3), (4, 5)), lambda a, b, c, d: (a + b) + (c + d)
BACK = steps((3, 2), (4, 1), (5, 0)), lambda a, b, c, d: ((d + c) + b) + a
AT_ONCE = Each("add_n", zero="adds"), lambda a, b, c, d: ((a + b) + c) + d


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        (ROW, PAIRS, "((a + b) + c) + d on the left, (a + b) + (c + d) on the right"),
        (BACK, AT_ONCE, "((c + d) + b) + a on the left, ((a + b) + c) + d on the right"),
    ],
)
def test_orders_are_read_off_and_replayed(left, right, said, dtype) -> None:
    found = cause(left, right, dtype)
    assert found.kind == "order" and said in found.why
    assert found.examined == found.replayed == found.differing > 0 and found.alone


OTHERS = {
    "of which one side rounds otherwise": (ROW, (ROW[0], lambda *x: np.float64(PAIRS[1](*x)))),
    "said to be in one order, but in another": ((ROW[0], PAIRS[1]), (PAIRS[0], BACK[1])),
    "of differences": (ROW, (steps((0, 1), (4, 2), (5, 3), meaning=Each("subtract")), PAIRS[1])),
    "of multiples": (ROW, (steps((0, 1), (4, 2), meaning=Each("add", "adds", (2,))), PAIRS[1])),
    "of other terms": (ROW, (steps((0, 1), (2, 2), (4, 5)), lambda a, b, c, d: (a + b) + (c + c))),
}


@pytest.mark.parametrize("one", ["float16", "int32", None])
def test_no_order_is_said_of_sums_in_formats_that_are_not_added_as_numpy_adds_them(one) -> None:
    """float16 is added in float32 by some; ``None``: one operand of another format."""
    given = {n: (64 * each).astype(one or "float32") for n, each in TERMS.items()}
    given["d"] = given["d"].astype(one or "float64")
    into = np.dtype(one or "float32")
    sums = [(kind, lambda *x, f=f: f(*x).astype(into)) for kind, f in (ROW, PAIRS)]
    runs = [record_run(Doubles(given, [Step("sum", *each, list("abcd"))])) for each in sums]
    found = compare_runs(*runs, {4: 4}).operations[0]
    if found.differing:  # whole numbers have the same sum in every order
        assert source.find_cause(*runs, found).kind != "order"
    assert bool(found.differing) == (one != "int32")


@pytest.mark.parametrize("name", OTHERS)
def test_no_order_is_said_of_what_is_not_known_to_be_a_sum_of_the_same(name) -> None:
    assert cause(*OTHERS[name]).kind != "order"


X, W = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((6, 20), (20, 3)))
SCALE, SHIFT = RANDOM.standard_normal((2, 3)).astype(np.float32)
GIVEN = {"x": X, "w": W, "s": SCALE, "b": SHIFT, "folded": W * SCALE}
GIVEN |= {
    "ones": np.ones(3, np.float32),
    "w3": W[None],
    "other": np.nextafter(W, np.float32(9))[None],
}


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return added(x[:, :, None] * w, list(range(len(w))))


MATMUL = Contracts("mk,kn->mn")
PRODUCT = Step("product", MATMUL, product, ["x", "w"])
FOLDED = Step("product", MATMUL, product, ["x", "folded"])
SCALED = Step("scale", Each("multiply", "clears"), np.multiply, [0, "s"])


def shifted(number: int) -> Step:
    return Step("shift", ADDS, np.add, [number, "b"])


def formulas(left: list[Step], right: list[Step]) -> source.Cause:
    """Of two formulas, whose results are taken for the same."""
    runs = [record_run(Doubles(GIVEN, steps)) for steps in (left, right)]
    found = compare_runs(*runs, {runs[0].outputs[0]: runs[1].outputs[0]})
    (one,) = [one for one in found.operations if one.gives and one.differing]
    assert one.joint and one.assumed
    return source.find_cause(*runs, one)


def test_a_product_that_is_scaled_behind_against_scaled_weights_is_another_formula() -> None:
    cause = formulas([PRODUCT, SCALED, shifted(1)], [FOLDED, shifted(0)])
    assert cause.kind == "algorithm" and cause.explained and "two formulas: " in cause.why
    assert cause.examined == cause.replayed == cause.differing > 0


def halves(y: np.ndarray) -> np.ndarray:
    """A function that is rounded as its library likes."""
    return np.tanh(y.astype(np.float64)).astype(np.float32)


def test_functions_between_are_asked_for_their_own_numbers() -> None:
    tanh = [Step("tanh", Each("tanh", "stays"), halves, [n]) for n in (1, 0)]
    cause = formulas([PRODUCT, SCALED, tanh[0], shifted(2)], [FOLDED, tanh[1], shifted(1)])
    assert cause.kind == "algorithm" and cause.explained and cause.examined > 0


def rounded_up(y: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.nextafter(np.multiply(y, s), np.float32(np.inf))


def beside(y: np.ndarray) -> np.ndarray:
    """A function that reads its neighbours, too."""
    return y + np.float32(1e-3) * y.mean(dtype=np.float32)


OTHER_STEPS = {
    "unknown": Step("riddle", Unknown("nobody said"), np.negative, [1]),
    "of a row": Step("softmax", Normalises((1,), "softmax"), np.negative, [1]),
    "beside its place": Step("f", Each("f"), beside, [1]),
}


@pytest.mark.parametrize("name", OTHER_STEPS)
def test_no_formula_is_the_cause_where_a_step_is_not_known(name: str) -> None:
    cause = formulas([PRODUCT, SCALED, OTHER_STEPS[name], shifted(2)], [FOLDED, shifted(0)])
    assert not cause.kind and not cause.explained


def test_no_formula_is_the_cause_where_a_step_rounds_otherwise() -> None:
    wrong = Step("scale", Each("multiply", "clears"), rounded_up, [0, "s"])
    cause = formulas([PRODUCT, wrong, shifted(1)], [FOLDED, shifted(0)])
    assert not cause.kind and not cause.explained


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same product as a convolution of one tap, from the other end."""
    return added(x[:, 0, :, None] * w[0], list(range(20))[::-1])[:, None]


WINDOWS = Windows((1,), 2, (1,), (1,), (1,), ((0, 0),), weights=(0, 1, 2))


@pytest.mark.parametrize("weights", ["w3", "other"])
def test_sums_of_the_same_products_that_are_written_differently_differ_by_their_order(
    weights: str,
) -> None:
    steps = [
        Step("reshape", Reshapes(), lambda x: x.reshape(6, 1, 20), ["x"]),
        Step("convolution", WINDOWS, convolved, [0, weights]),
        Step("reshape", Reshapes(), lambda y: y.reshape(6, 3), [1]),
        shifted(2),
    ]
    once = Step("scale", Each("multiply", "clears"), np.multiply, [0, "ones"])  # changes nothing
    cause = formulas([PRODUCT, once, shifted(1)], steps)
    if weights == "w3":
        assert cause.kind == "order" and cause.explained and "same products" in cause.why
        assert cause.examined == cause.replayed == cause.differing > 0
    else:  # close, but not the same
        assert not cause.kind and not cause.explained


def test_two_sides_of_one_formula_are_not_two() -> None:
    cause = formulas([PRODUCT, SCALED], [FOLDED, SCALED])
    assert "formulas:" not in cause.why and cause.kind != "algorithm"


tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def test_what_grapplers_addn_does_to_a_residual_is_an_order() -> None:
    """(x + bias) + rest becomes AddN([x, rest]) + bias when a Keras model is compiled."""
    import probe

    x, rest = (RANDOM.standard_normal((2, 8, 8, 6)).astype(np.float32) for _ in range(2))
    scale, bias = RANDOM.standard_normal((2, 6)).astype(np.float32)

    def model(x: Any, rest: Any) -> Any:
        return tf.nn.relu((x * scale + bias) + tf.sqrt(abs(rest)))

    compiled = tf.function(model)
    found = probe.first_difference(
        lambda: model(tf.constant(x), tf.constant(rest)),
        lambda: compiled(tf.constant(x), tf.constant(rest)),
    )
    first = found.found.first
    if first is None:  # grappler left the sum as it was
        assert found.verdict == "equal"
        return
    (cause,) = found.found.causes.values()
    assert first.joint and cause.kind == "order" and "(a + b) + c" in cause.why
