"""How findings are written: trees, sets of outputs, tables that fit a terminal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.cli.show import cases
from probe.summation import notation
from probe.summation.tree import BIAS, Tree


@pytest.mark.parametrize(
    ("tree", "short", "name"),
    [
        (Tree.sequential(3), "p0+p1+p2", "one after the other"),
        (Tree.sequential(320), "p0+p1+...+p319", "one after the other"),
        (Tree.sequential(range(9, -1, -1)), "p9+p8+...+p0", "one after the other"),
        (Tree.pairwise(5), "((p0+p1)+(p2+p3))+p4", "pairwise"),
        (Tree.parse("((((0+2)+(1+3))+4)+b)"), "((p0+p2)+(p1+p3))+p4+b", ""),
        (Tree.parse("((((0+1)+2)+3)+b)"), "p0+p1+p2+p3+b", "one after the other, the bias last"),
        (Tree.parse("(((b+0)+1)+2)"), "p0+b+p1+p2", "one after the other, the bias first"),
        (
            Tree.lanes(32, 4),
            "((p0+p4+...+p28)+(p1+p5+...+p29))+((p2+p6+...+p30)+(p3+p7+...+p31))",
            "4 running sums, added pairwise",
        ),
        (Tree.chain([[i, i + 1] for i in range(0, 40, 2)]), "(p0+p1)+(p2+p3)+...+(p38+p39)", ""),
        (Tree.together(4), "{p0+p1+p2+p3}", "all in one step"),
        (Tree.chain([[0, 1, 2], [3, 4, 5]]), "{p0+p1+p2}+{p3+p4+p5}", ""),
        (
            Tree.sequential([c + 64 * k for c in range(64) for k in range(3)]),
            "p0+p64+p128+p1+p65+p129+...+p63+p127+p191",
            "one after the other",
        ),
        (Tree((7,), ()), "p7", ""),
    ],
)
def test_trees_as_short_sums(tree, short, name):
    assert notation.short_formula(tree) == short
    assert notation.order_name(tree) == name


def test_drawings_have_a_line_a_leaf():
    tree = Tree.parse("((((0+2)+(1+3))+4)+b)")
    assert notation.drawing(tree, frozenset({4})) == [
        "p0  ─┐",
        "p2  ─┴─┐",
        "p1  ─┐ │",
        "p3  ─┴─┴─┐",
        "p4* ─────┴─┐",
        "b   ───────┴─",
    ]
    assert notation.drawing(Tree.together(3)) == ["p0 ─┐", "p1 ─┤", "p2 ─┴─"]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60, unique=True), st.integers(2, 5))
def test_any_tree_can_be_written(leaves, width):
    groups = [leaves[i : i + width] for i in range(0, len(leaves), width)]
    tree = Tree.chain(groups)
    text = notation.short_formula(tree)
    assert text.count("(") == text.count(")") and len(text) <= 300
    assert len(notation.drawing(tree)) == len(leaves)
    assert isinstance(notation.order_name(tree), str)


def test_deep_and_wide_trees_stay_short():
    nodes, leaf = [(0, 1)], 2
    for _ in range(800):  # a leaf, then a pair, then a leaf, ...
        nodes += [(leaf, leaf + 1), (~(len(nodes) - 1), ~len(nodes)), (~(len(nodes) + 1), leaf + 2)]
        leaf += 3
    for tree in (Tree.from_nodes(nodes), Tree.sequential([BIAS, *range(4608)])):
        assert len(notation.short_formula(tree)) <= 300


@given(st.integers(0, 2**24 - 1))
def test_regions_are_the_mask_again(number):
    mask = np.array([number >> bit & 1 for bit in range(24)], bool).reshape(2, 4, 3)
    again = np.zeros_like(mask, int)
    for region in cases.regions(mask):
        again[np.ix_(*region)] += 1
    np.testing.assert_array_equal(again, mask)


def test_outputs_are_named_by_their_axes():
    mask = np.zeros((1, 9, 4), bool)
    mask[0, 2:7] = True
    assert cases.where_true(mask) == "out[2..6, *]"
    mask[0, 8] = True
    assert cases.where_true(mask) == "out[(2..6, 8), *]"
    assert cases.where_true(np.ones((1, 1, 1), bool)) == "the output"
    assert cases.where_true(np.ones((1, 5, 1), bool)) == "out[*]"
    odd = np.zeros((1, 12, 2), bool)
    odd[0, np.arange(12), np.arange(12) % 2] = True
    assert cases.where_true(odd).count("out[") == 2
