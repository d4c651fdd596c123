"""Products that overflow before they are added: bfloat16's exact products hide who rounds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe import floats
from probe.comparison import overflow
from probe.summation.certificate import SummationModel
from probe.summation.summation import Rounding, Summation
from probe.summation.tree import BIAS, Tree
from tests.summation.test_tree import any_tree

TREES = {
    "chain": Tree.sequential(6),
    "lanes": Tree.lanes(9, 4),
    "pairs": Tree.pairwise(8),
    "bias first": Tree.parse("(((0+b)+1)+(2+3))"),
    "bias last": Tree.parse("(((0+1)+(2+3))+b)"),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_each_fused_leaf_is_told_from_one_that_is_rounded_first(tree):
    biased, n = BIAS in tree.leaves, len([leaf for leaf in tree.leaves if leaf != BIAS])
    claimed = Summation(tree, Rounding.fused_everywhere(tree, "float32"))
    assert overflow.applies(claimed, "bfloat16")
    fused = sorted(claimed.rounding.fused)
    for first in [frozenset(), *(frozenset([leaf]) for leaf in fused), frozenset(fused)]:
        true = overflow.with_products_rounded(claimed, first)
        rounded = replace(claimed.rounding, fused=claimed.rounding.fused - first)
        assert true == Summation(tree, rounded)
        model = SummationModel(true, n, biased, "bfloat16")
        found = overflow.overflowing(model, claimed)
        assert found.shape == (len(fused), 1, 1)
        assert found[:, 0, 0].tolist() == [leaf in first for leaf in fused]


def test_every_leaf_stands_beside_a_leaf_of_a_node_that_is_added_to_it():
    rng = np.random.default_rng(5)
    for trial in range(60):
        tree = any_tree(rng, 1 + trial % 8)
        found, under = overflow._siblings(tree), {leaf: {leaf} for leaf in tree.leaves}
        for node, children in enumerate(tree.nodes):
            under[~node] = set().union(*(under[child] for child in children))
        assert sorted(found) == [leaf for leaf in tree.leaves if leaf in tree.parents]
        for leaf, beside in found.items():
            others = set(tree.nodes[tree.parents[leaf]]) - {leaf}
            assert beside == min(min(under[child]) for child in others)


def test_products_rounded_first_are_float32_s_where_sums_go_through_it():
    twice = Summation(Tree.sequential(3), Rounding(frozenset([2]), intermediate_format="float32"))
    assert overflow.with_products_rounded(twice, frozenset([2])).rounding == Rounding(
        intermediate_format="float32", product_format="float32"
    )


def test_it_is_asked_where_products_are_exact_in_float32_sums():
    def applies(rounding, dtype, leaves=4):
        return overflow.applies(Summation(Tree.sequential(leaves), rounding), dtype)

    wide = Rounding(accumulator_format="float32")
    assert applies(wide, "bfloat16") and not applies(Rounding(), "bfloat16")
    assert not applies(wide, "float32") and not applies(wide, "float16")
    assert applies(Rounding(operand_format="bfloat16"), "float32")
    assert not applies(Rounding(operand_format="tf32"), "float32")
    assert applies(Rounding(intermediate_format="float32"), "bfloat16")
    assert not applies(wide, "bfloat16", leaves=1) and applies(wide, "bfloat16", leaves=2)
    assert applies(wide, "bfloat16", overflow.MOST)
    assert not applies(wide, "bfloat16", overflow.MOST + 1)


@pytest.mark.parametrize(("size", "told"), [(2.0**63, False), (2.0**64, True)])
def test_only_products_beyond_float32_can_overflow(size, told):
    given = (np.array([size, 1.0, np.nan]), np.array([-np.inf, -(2.0**64), 3.0]))
    x, w = (floats.round_to(one, "bfloat16") for one in given)
    assert overflow.possible(x, w, "bfloat16") == told
