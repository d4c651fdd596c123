"""Subnormal numbers that become zero: each kind is asked, told, replayed, and a cause."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.case.case import Case
from probe.order import flush
from probe.order.replay import replay
from probe.order.summation import EVERY, Rounding, Summation
from probe.order.tree import BIAS, Tree
from probe.report import evaluator
from tests.order.synthetic import compared
from tests.order.test_replay import slowly
from tests.order.test_reveal import Known, everywhere, revealed
from tests.report.test_evaluator import evaluated

ALL = frozenset([EVERY])
FLUSHED = {
    "flush": {"flushed_inputs", "flushed_weights", "flushed_products", "flushed_sums"},
    "flush_inputs": {"flushed_inputs"},
    "flush_weights": {"flushed_weights"},
    "flush_products": {"flushed_products"},
    "flush_sums": {"flushed_sums"},
    "sequential": set(),
}


@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [*((one, "float32") for one in FLUSHED), ("flush", "bfloat16"), ("flush", "float64")],
)
def test_each_kind_is_told_from_the_others_and_replayed(algorithm, dtype):
    case = Case("matmul", in_channels=9, filters=3, operands="tiny", seed=0, dtype=dtype)
    found = compared(case, algorithm, None, 2, 5)
    (summation,) = found.left.orders.summations
    told = {name for name, value in summation.rounding.sets().items() if value == ALL}
    assert told == FLUSHED[algorithm], summation.rounding
    assert found.replayed == found.compared


@pytest.mark.parametrize("op", ["sum", "conv1d"])
def test_flush_is_a_cause_of_its_own(op):
    more = {"kernel": 4, "filters": 2, "bias": "normal"} if op == "conv1d" else {}
    case = Case(op, in_channels=5, operands="tiny", seed=0, **more)
    found = compared(case, "flush", "sequential", 9)
    assert len(found.differing) and set(found.causes) == {"flush"}
    assert found.replayed == found.compared
    assert found.by_order == found.compared
    (one,) = found.to_json()["left_orders"]
    assert one["flushed_sums"] and one["flushed_products"]
    (other,) = found.to_json()["right_orders"]
    assert not any("flush" in key for key in other)


@pytest.mark.parametrize(("operands", "cause"), [("tiny", "order+flush"), ("cancel", "order")])
def test_flush_is_a_cause_beside_another_order_where_something_is_subnormal(operands, cause):
    case = Case("matmul", in_channels=12, filters=4, length=6, operands=operands)
    found = compared(case, "flush", "pairwise")
    assert set(found.causes) == {cause} and found.replayed == found.compared
    assert set(found.apart) == {"order+flush"}, "by order it is apart: other operands would show it"


class Partly(Known):
    """An operator that flushes the sums of some nodes alone."""

    def __init__(self, *given, flushed, **more):
        super().__init__(*given, **more)
        self.flushed = flushed

    def _sum(self, tree, fused, x, w):
        rounding = Rounding(frozenset(fused), flushed_sums=frozenset(self.flushed))
        w = floats.round_to(w.T, self.dtype)
        columns = floats.round_to(np.full(w.shape, x), self.dtype)
        return replay(Summation(tree, rounding), columns, w, self.dtype)


@pytest.mark.parametrize(
    "flushed", [{3}, {18}, {0, 9, 18}, {0, 9}, {5, 6, 7, 8}, set(range(19)) - {2}]
)
def test_nodes_that_flush_where_others_do_not_are_named(flushed):
    """Node 18 is the root: what it does says nothing of the others."""
    tree = Tree.lanes(20, 4)
    orders, _ = revealed(Partly(everywhere(tree, 2, 3), 20, flushed=flushed))
    assert {one.summation.rounding.flushed_sums for one in orders.values()} == {frozenset(flushed)}


def test_one_of_many_nodes_without_inner_ones_is_named():
    tree = Tree.pairwise(160)
    bottoms = [node for node, children in enumerate(tree.nodes) if min(children) >= 0]
    orders, _ = revealed(Partly(everywhere(tree, 1, 1), 160, flushed={bottoms[70]}))
    assert orders[0, 0].summation.rounding.flushed_sums == {bottoms[70]}


@pytest.mark.parametrize(("flushed", "kept"), [(ALL, 0.0), (frozenset(), 2.0**-15)])
def test_a_sum_that_rounds_twice_is_flushed_where_it_is_kept(flushed, kept):
    """1.5 and -1 times the smallest normal number, and that again: the first sum is subnormal."""
    rounding = Rounding(intermediate_format="float32", flushed_sums=flushed)
    w = np.array([[1.5], [-1.0], [1.0]]) * 2.0**-14
    given = (floats.round_to(one, "float16") for one in (np.ones((3, 1)), w))
    y = replay(Summation(Tree.sequential(3), rounding), *given, "float16")
    assert floats.widen(y, "float16").tolist() == [kept + 2.0**-14]


@pytest.mark.parametrize(
    ("tininess", "below", "stays"),
    [(None, 25, True), (None, 24, False), ("before", 25, False), ("grid", 25, True)]
    + [("grid", 24, True), ("grid", 23, False)],
)
def test_a_sum_at_the_bound_itself_stays(tininess, below, stays):
    """2^-126 less one unit 2^-``below`` times as large: a tie, which rounds up to 2^-126."""
    factors = {25: (31, 1082401), 24: (4095, 4097), 23: (47, 178481)}[below]
    assert factors[0] * factors[1] == 2**below - 1
    x = np.array([[0.0], [factors[0] * 2.0 ** (-50 - below)]], np.float32)
    w = np.array([[1.0], [factors[1] * 2.0**-76]], np.float32)
    rounding = Rounding(frozenset([1]), flushed_sums=ALL, tininess=tininess)
    found = replay(Summation(Tree.sequential(2), rounding), x, w, "float32")
    assert found.tolist() == [2.0**-126 if stays else 0.0]


@pytest.mark.parametrize("dtype", list(floats.FORMATS))
def test_the_replay_and_the_script_flush_as_defined(dtype):
    rng, form = np.random.default_rng(5), floats.FORMATS[dtype]
    tree = Tree.from_nodes([(0, 1), (~0, 2, BIAS), (3, 4), (~1, ~2), (~3, 5)])
    shape = (6, 40)
    for trial in range(12):
        small = form.emin // 2 if trial % 2 else form.emin
        x, w = (
            floats.round_to(rng.standard_normal(shape) * 2.0**scale, dtype)
            for scale in (small, form.emin - small)
        )
        bias = floats.round_to(rng.standard_normal(40) * 2.0**form.emin, dtype)
        picks = [ALL, frozenset(), frozenset(rng.permutation(6)[:3].tolist())]
        sets = [picks[n] for n in rng.integers(0, 3, 5)]
        rounding = Rounding(
            frozenset([1, 4, 5]) if trial % 3 else frozenset(),
            flushed_inputs=sets[0],
            flushed_weights=sets[1],
            flushed_products=sets[2],
            flushed_whole=sets[3],
            flushed_sums=frozenset(sets[4] - {5}),
        )
        assert Rounding.from_json(rounding.to_json()) == rounding
        got = replay(Summation(tree, rounding), x, w, dtype, bias)
        wide = [floats.widen(one, dtype) for one in (x, w, bias)]
        columns = zip(wide[0].T.tolist(), wide[1].T.tolist(), wide[2].tolist(), strict=True)
        exact = [slowly(tree, rounding, a, b, dtype, c)[0] for a, b, c in columns]
        expected = floats.round_to(np.array(exact), dtype)
        assert ulp.equal(got, expected, dtype), rounding
        written = evaluated(tree, rounding, x, w, dtype, bias)
        assert evaluator.equal(written, expected, dtype).all(), rounding


def test_what_flushes_nothing_is_asked_two_questions_more():
    _, masks = revealed(Known(everywhere(Tree.sequential(20)), 20))
    asked, masks.flushing = masks.calls, None
    assert not flush.flushing_outputs(masks).any() and masks.calls == asked + 2
