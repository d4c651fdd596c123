"""The published algorithm against sums whose order is known, because we made them."""

from __future__ import annotations

import numpy as np
import pytest

from probe.order.fprev import Growth, NoTree, fprev, fprev_calls
from probe.order.tree import Tree
from tests.order.synthetic import trees
from tests.order.test_tree import any_tree, as_tree, every_nested


class Asked:
    """Adds float32 numbers in the order of a tree; ``questions`` counts."""

    def __init__(self, tree):
        self.tree, self.questions = tree, 0

    def __call__(self, i, j):
        self.questions += 1
        values = np.ones(len(self.tree.leaves), np.float32)
        values[[i, j]] = 2.0**100, -(2.0**100)
        sums = []
        for children in self.tree.nodes:
            terms = [float(values[c] if c >= 0 else sums[~c]) for c in children]
            masks = [term for term in terms if abs(term) > 2**60]
            # an addition of several is cut to the last place of the largest: units vanish there
            sums.append(sum(masks or terms))
        return float(sums[-1])


@pytest.mark.parametrize("kind", ["chain", "pairwise", "lanes", "blocks", "random"])
@pytest.mark.parametrize("n", [2, 3, 17, 64])
def test_orders_that_libraries_have_are_read_in_no_more_calls_than_published(kind, n):
    tree = trees(n)[kind]
    asked = Asked(tree)
    assert fprev(asked, n) == tree
    assert n - 1 <= asked.questions <= fprev_calls(tree)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_every_tree_is_read_nodes_of_many_summands_too(n):
    for tree in map(as_tree, every_nested(range(n))):
        assert fprev(Asked(tree), n) == tree
    for seed in range(25):
        tree = in_order(any_tree(np.random.default_rng(seed), 6 + seed, 5))
        assert fprev(Asked(tree), len(tree.leaves)) == tree


def in_order(tree):
    """The same tree of the leaves 0, 1, ..."""
    rank = {leaf: n for n, leaf in enumerate(tree.leaves)}
    return Tree.from_nodes([[rank.get(child, child) for child in node] for node in tree.nodes])


def test_a_single_leaf_has_nothing_to_ask():
    assert fprev(Asked(None), 1) == Tree.sequential(1)


def test_a_chain_downwards_is_asked_from_its_end_after_the_first_leaf_told_little():
    """As published it takes n squared over two questions: each leaf is far from the next."""
    tree = Tree.sequential(range(40)[::-1])
    asked = Asked(tree)
    assert fprev(asked, 40) == tree
    assert asked.questions < 3 * 40 < fprev_calls(tree) == 39 * 40 // 2
    assert fprev_calls(Tree.sequential(10)) == 9 and fprev_calls(Tree.pairwise(4)) == 4


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([3.0, 1.0, 0.0], "p1 = -M .* the output is 3"),  # two meet over one leaf
        ([2.0, 1.0, -1.0], "p3 = -M .* the output is -1"),
        ([1.5, 1.0, 0.0], "p1 = -M .* the output is 1.5"),
        ([1.0, 1.0, 1.0], "and the other outputs predict 0"),  # three hang on a node of three
        ([np.nan, 1.0, 0.0], "the output is nan"),
    ],
)
def test_answers_that_fit_no_tree_are_named(answers, why):
    growth = Growth.of(np.arange(4))
    assert growth.pairs().tolist() == [[0, 1], [0, 2], [0, 3]]
    with pytest.raises(NoTree, match=why):
        growth.grow(np.array(answers))


def test_a_copy_grows_apart():
    growth = Growth.of(np.arange(3))
    other = growth.copy()
    growth.grow(np.array([1.0, 0.0]))
    other.grow(np.array([0.0, 1.0]))
    assert growth.tree() == Tree.sequential(3)
    assert other.tree() == Tree.sequential([0, 2, 1])
