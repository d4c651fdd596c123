"""Sums of a few whole arrays: their order is read off the operations, and replayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from probe.recording import source
from probe.recording.difference import compare
from probe.recording.recording import Live
from probe.semantics import Each, Meaning, Steps
from probe.semantics import Step as Part
from tests.recording.doubles import Doubles, Step

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
    runs = [Live(Doubles(given, [Step("sum", *one, list("abcd"))])) for one in (left, right)]
    found = compare(*runs, {4: 4})
    return source.explain(runs[0], runs[1], found.operations[0])


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


@pytest.mark.parametrize("name", OTHERS)
def test_no_order_is_said_of_what_is_not_known_to_be_a_sum_of_the_same(name) -> None:
    assert cause(*OTHERS[name]).kind != "order"


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
