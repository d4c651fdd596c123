"""Enclosures: no order of additions leaves them, and what leaves them is said to
be beyond rounding."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from probe.case import floats
from probe.case.case import Case
from probe.explain.comparison import compare_shapes
from probe.explain.enclosure import (
    BEYOND,
    UNKNOWN,
    WITHIN,
    RoundingVerdict,
    of_operands,
    of_sums,
)
from probe.explain.runs import ComparedShapes, Revealer, run_and_reveal
from probe.explain.verdict import bug_or_rounding
from probe.order.arithmetic import fma_float64, to_odd, two_sum
from probe.report import report
from probe.targets.launch import open_session
from probe.targets.target import Target
from tests.convolutions import explain_case

REFERENCE = Target.parse("reference")


def drawn(kind, dtype, count, outputs, biased, seed):
    """Operands (summands, outputs), and a bias: alike in size, of one sign, or far apart."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(2, count, outputs))
    if kind == "one sign":
        x, w = abs(x), abs(w)
    if kind == "far apart":
        x = x * np.exp2(rng.integers(-12, 12, size=x.shape))
    b = floats.round_to(rng.normal(size=outputs), dtype) if biased else None
    return floats.round_to(x, dtype), floats.round_to(w, dtype), b


def allowed(dtype):
    """Formats of partial sums, by that of the result."""
    return (dtype, *floats.FORMATS[dtype].wider)


class Sum:
    """One way of adding: every node in a format of its own, products fused where it pleases."""

    def __init__(self, x, w, bias, dtype, choose):
        self.x, self.w = floats.widen(x, dtype), floats.widen(w, dtype)
        self.terms = [*self.x * self.w]
        self.terms += [] if bias is None else [floats.widen(bias, dtype)]
        self.dtype, self.choose = dtype, choose

    def value(self, tree):
        return floats.nearest(self._node(tree), self.dtype)

    def _node(self, tree):
        if isinstance(tree, int):
            exact = self.dtype != "float64" and self.choose.random() < 0.5
            if exact or tree >= len(self.x):
                return self.terms[tree]
            return floats.nearest(self.terms[tree], self.choose.choice(allowed(self.dtype)))
        one, two = map(self._node, tree)
        if self.dtype == "float64":
            for leaf, other in ((tree[0], two), (tree[1], one)):
                fits = isinstance(leaf, int) and leaf < len(self.x)
                if fits and self.choose.random() < 0.5:
                    return fma_float64(self.x[leaf], self.w[leaf], other)
            return one + two
        name = self.choose.choice(allowed(self.dtype))
        if name == "float64":
            return one + two
        return floats.nearest(to_odd(*two_sum(one, two)), name)


def any_tree(count, choose):
    """A random tree over ``count`` leaves; a chain one time in three."""
    items = list(range(count))
    chain = choose.random() < 1 / 3
    while len(items) > 1:
        one = items.pop(0 if chain else choose.randrange(len(items)))
        two = items.pop(0 if chain else choose.randrange(len(items)))
        items.insert(0, (one, two))
    return items[0]


@pytest.mark.parametrize("kind", ["alike", "one sign", "far apart"])
@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_no_order_leaves_the_enclosure(dtype, kind):
    for count, biased in itertools.product((1, 2, 3, 6, 7, 8, 12, 60), (False, True)):
        x, w, b = drawn(kind, dtype, count, 50, biased, count)
        found = of_sums(x, w, dtype, b)
        for seed in range(4):
            way = Sum(x, w, b, dtype, random.Random(seed))
            y = way.value(any_tree(len(way.terms), way.choose))
            verdict, flush = found.judged(floats.round_to(y, dtype))
            assert (verdict == WITHIN).all() and not flush.any(), (count, biased, seed)
            assert (found.low <= y).all() and (y <= found.high).all()


@pytest.mark.parametrize("count", [7, 40, 3000])
@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_a_product_that_is_left_out_is_beyond(dtype, count):
    """Unless rounding could make as much of a difference as one product does."""
    x, w, _ = drawn("one sign", dtype, count, 30, False, 2)
    found = of_sums(x, w, dtype)
    terms = floats.widen(x, dtype) * floats.widen(w, dtype)
    y = floats.round_to(terms[1:].sum(axis=0), dtype)
    verdict, _ = found.judged(y)
    far = terms[0] > 2 * found.radius
    assert (verdict[far] == BEYOND).all()
    assert far.any() or (dtype in ("float16", "bfloat16") and count > 30)


def test_a_sum_of_squares_that_is_short_of_one_row_is_beyond():
    """16,385 squares of float64 numbers, of which a kernel loses one (jax#39103: 266342400 for
    268435456): all terms have one sign, so no order is off by more than n eps."""
    x = np.full((128, 3), 1448.0)
    exact = 128 * 1448.0**2
    found = of_sums(x, x, "float64")
    verdict, _ = found.judged(np.array([exact, exact - 1448.0**2, np.nextafter(exact, 0)]))
    assert verdict.tolist() == [WITHIN, BEYOND, WITHIN]
    assert found.distance(np.array([exact, exact - 1448.0**2, exact]))[1] > 1e9


def test_infinities_and_nan_are_settled_by_the_operands():
    inf, nan = np.inf, np.nan
    x = np.array([[1, inf, inf, nan, inf, 1, 0], [1, 1, -inf, 1, -1, -inf, 1]], np.float32)
    w = np.array([[1, 1, 1, 1, 1, 1, inf], [1, 1, 1, 1, 1, 1, 1]], np.float32)
    found = of_sums(x, w, "float32")
    right = np.array([2, inf, nan, nan, inf, -inf, nan], np.float32)
    assert (found.judged(right)[0] == WITHIN).all()
    wrong = np.array([nan, -inf, 0, 0, nan, 1, 0], np.float32)
    assert (found.judged(wrong)[0][[0, 2, 3]] == BEYOND).all()
    assert BEYOND not in found.judged(right)[0]


def test_a_sum_that_may_overflow_is_not_refuted():
    big = np.float32(3e38)
    x = np.array([[big], [big], [-big]], np.float32)
    found = of_sums(x, np.ones_like(x), "float32")
    verdicts = [found.judged(np.array([y], np.float32))[0][0] for y in (big, np.inf, 1.0)]
    assert verdicts == [WITHIN, WITHIN, BEYOND]


@pytest.mark.parametrize(("dtype", "groups"), [("float32", 2), ("float16", 1), ("bfloat16", 1)])
def test_outputs_of_a_whole_call_are_enclosed_as_each_by_itself(dtype, groups):
    case = Case("conv1d", 3, 8, 6, 20, dtype=dtype, bias="normal", groups=groups, padding="same")
    with open_session(REFERENCE, inline=True) as session:
        given = run_and_reveal(session, case).operands
    places = np.argwhere(np.ones(given.y.shape, bool))
    together = of_operands(given, *places.T)
    for number in range(0, len(places), 7):
        alone = of_operands(given, *places[number : number + 1].T)
        x = given.columns[places[number][1] // (6 // groups)][:, places[number][:1]]
        own = places[number][1:]
        listed = of_sums(x, given.weights[:, own], dtype, given.b[own])
        near = 2e-3 if dtype == "bfloat16" else 1e-5
        for one, name in itertools.product((alone, listed), ("low", "high", "exact")):
            found = getattr(together, name)[number]
            assert found == pytest.approx(getattr(one, name)[0], rel=near)
    assert (together.judged(given.y[tuple(places.T)])[0] == WITHIN).all()


def test_an_infinite_weight_that_meets_padding_adds_nothing():
    with open_session(REFERENCE, inline=True) as session:
        given = run_and_reveal(session, Case("conv1d", 3, 2, 2, 8, padding="same")).operands
    w = np.concatenate([np.full_like(given.w[:1], np.inf), given.w[1:]])
    places = np.argwhere(np.ones(given.y.shape, bool))
    sure = of_operands(replace(given, w=w), *places.T).settled.reshape(given.y.shape)
    assert not sure[0].any() and (sure[1:] != 0).all()


def test_a_product_of_float64_numbers_that_overflows_is_not_refuted():
    """Found by random pairs: an infinity, and a fused sum of JAX's, were refuted."""
    x, w = np.array([[1e200, 1e200], [1.0, -np.inf]]), np.array([[1e200, 1e200], [2.0, 1.0]])
    found = of_sums(x, w, "float64")
    assert found.judged(np.array([np.inf, -np.inf]))[0].tolist() == [WITHIN, WITHIN]
    assert found.judged(np.array([np.inf, np.nan]))[0].tolist() == [WITHIN, UNKNOWN]
    x, w = np.array([[1.0], [-1e200]]), np.array([[9e307], [2e108]])
    assert of_sums(x, w, "float64").judged(np.array([9e307 - 2e308 / 2 - 1e308]))[0] == [WITHIN]


def test_subnormal_numbers_that_become_zero_are_not_called_beyond():
    x = np.array([[1e-40], [1e-40]], np.float32)
    found = of_sums(x, np.ones_like(x), "float32")
    verdict, flush = found.judged(np.zeros(1, np.float32))
    assert verdict[0] == UNKNOWN and flush[0]


def wrong_on_the_right(change):
    """A comparison of which an output of the right side is changed."""
    case = Case(op="conv1d", kernel=3, in_channels=4, filters=3, length=20)
    with open_session(REFERENCE, inline=True) as one, open_session(REFERENCE, inline=True) as two:
        found = compare_shapes(ComparedShapes.named(case), one, two)
        found.right.operands.y[4, 1] = change(found.right.operands.y[4, 1])
        return found.reveal(one, two, Revealer())


def test_a_wrong_output_is_beyond_rounding_and_the_side_is_named():
    found = wrong_on_the_right(lambda y: y * 1.01)
    counts = {"explained": 0, "within": 0, "beyond": 1, "unknown": 0}
    assert found.to_json()["rounding"] == counts | {"beyond_on": {"left": 0, "right": 1}}
    assert RoundingVerdict() + found.rounding == found.rounding
    assert "beyond rounding: 1" in found.lines()[2] and "the right (1)" in found.lines()[2]


def test_the_exact_value_in_a_report_is_a_computation_that_anybody_can_run(capsys):
    comparison = wrong_on_the_right(lambda y: y * 1.01)
    told = report.exact_value(bug_or_rounding(comparison), "repro.py")
    (code,) = re.findall(r"```python\n(.*)\n```", told, re.DOTALL)
    assert len(code.splitlines()) == 3
    operands = comparison.left.operands
    exec(code, {"np": np, "x": operands.x, "w": operands.w})
    assert told.count(f"| `{capsys.readouterr().out.strip()}` |") == 2  # on both sides


@pytest.mark.parametrize(
    ("algorithm", "word"), [("pairwise", "explained"), ("fused", "explained"), ("random", "within")]
)
def test_what_is_replayed_is_explained(algorithm, word):
    case = Case(op="conv1d", kernel=3, in_channels=4, filters=3, operands="cancel", length=20)
    other = Target.parse(f"reference,algorithm={algorithm}")
    found = explain_case(case, REFERENCE, against_target=other, inline=True)
    told = found.to_json()["rounding"]
    assert told[word] == len(found.differing) > 0
    assert sum(told[name] for name in ("explained", "within", "beyond", "unknown")) == told[word]
