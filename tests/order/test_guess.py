"""Long sums: trees that are guessed from a few answers, and asked whether they are that."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from probe.order import guess
from probe.order.fprev import fprev_calls
from probe.order.guess import fits_guess, guessed_tree
from probe.order.masks import Masks
from probe.order.tree import BIAS, Tree
from tests.order.synthetic import changed, joined, random_tree
from tests.order.test_reveal import Known, everywhere, revealed
from tests.order.test_tree import as_tree, every_nested


def lanes_in_blocks(leaves, lanes, block):
    """Blocks of lanes, each added to the sum of those before."""
    blocks = [range(start, min(start + block, leaves)) for start in range(0, leaves, block)]
    return joined([list(some[lane::lanes]) for some in blocks for lane in range(lanes)])


REGULAR = {
    "a chain": Tree.sequential(200),
    "a chain downwards": Tree.sequential(range(150)[::-1]),
    "neighbours": Tree.pairwise(150),
    "eight lanes": Tree.lanes(203, 8),
    "four lanes in blocks": lanes_in_blocks(300, 4, 64),
}


def other_trees(tree, count, seed):
    """Trees of the same leaves that differ in one place."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        if (other := changed(tree, rng)) != tree:
            found.append(other)
    return found


@pytest.fixture(autouse=True)
def _short_sums_too(monkeypatch):
    monkeypatch.setattr(guess, "LONG", 40)


def fitting(operator, tree):
    """Positions that answer as the tree would."""
    fits = fits_guess(Masks(operator), np.array([0]), np.arange(operator.positions), tree)
    return np.flatnonzero(fits).tolist()


@pytest.mark.parametrize("tree", REGULAR.values(), ids=REGULAR)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_regular_long_sums_are_guessed_in_fewer_calls_than_all_pairs_take(tree, dtype):
    operator = Known(everywhere(tree, 1, 1), len(tree.leaves), dtype=dtype, wide=dtype == "float16")
    orders, _ = revealed(operator)
    assert orders[0, 0].summation.tree == tree
    masks = Masks(operator)
    assert guessed_tree(masks, np.array([0]), 0, np.arange(len(tree.leaves))) == tree
    assert masks.calls < max(len(tree.leaves), fprev_calls(tree)) and fitting(operator, tree) == [0]


@pytest.mark.parametrize("tree", REGULAR.values(), ids=REGULAR)
def test_a_tree_fits_its_own_answers_and_no_others(tree):
    """Positions that differ in one or two leaves' places: each tree fits its own alone."""
    trees = [tree, *dict.fromkeys(other_trees(tree, 12, seed=len(tree.leaves)))]
    operator = Known([[(each, frozenset())] for each in trees], len(tree.leaves))
    for number in (0, len(trees) - 1):
        assert fitting(operator, trees[number]) == [number]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_of_all_trees_of_four_leaves_each_fits_itself_alone(dtype):
    """Also beside nodes of three and four summands, which no guess has."""
    every = [as_tree(nested) for nested in every_nested([0, 1, 3, BIAS])]
    operator = Known([[(tree, frozenset())] for tree in every], 4, bias=True, dtype=dtype)
    for number, tree in enumerate(every):
        if all(len(node) == 2 for node in tree.nodes):
            assert fitting(operator, tree) == [number]


def test_of_a_longer_sum_neighbours_are_asked_all_over_the_tree(monkeypatch):
    monkeypatch.setattr(guess, "NEIGHBOURS", 50)
    tree = REGULAR["eight lanes"]
    operator = Known(everywhere(tree, 1, 1), 203)
    masks = Masks(operator)
    assert fits_guess(masks, np.array([0]), np.array([0]), tree).all() and masks.calls == 50
    assert not fitting(operator, Tree.lanes(203, 4)) and not fitting(operator, Tree.pairwise(203))


def test_irregular_sums_are_asked_for_everything():
    """No steps to read: the guess is lost or wrong, and the tree is found all the same."""
    tree = random_tree(140, np.random.default_rng(6))
    orders, _ = revealed(Known(everywhere(tree, 1, 1), 140))
    assert orders[0, 0].summation.tree == tree


def test_a_wrong_guess_costs_calls_and_nothing_else(monkeypatch):
    tree = REGULAR["eight lanes"]
    wrong = other_trees(tree, 1, seed=1)[0]
    monkeypatch.setattr(import_module("probe.order.reveal"), "guessed_tree", lambda *_: wrong)
    orders, _ = revealed(Known(everywhere(tree, 1, 1), 203))
    assert orders[0, 0].summation.tree == tree


def test_guesses_end_where_they_take_too_many_questions():
    """Nothing is regular here: no more than half of the questions of lanes are asked."""
    tree = random_tree(400, np.random.default_rng(2))
    masks = Masks(Known(everywhere(tree, 1, 1), 400))
    guessed_tree(masks, np.array([0]), 0, np.arange(400))
    assert masks.calls <= 400 * 9 // 2
    short = Masks(Known(everywhere(tree, 1, 20), 400))
    assert guessed_tree(short, np.arange(20), 0, np.arange(400)) is None and not short.calls
