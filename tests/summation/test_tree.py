"""Summation trees: text and tree are one to one, and nothing recurses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.errors import InputError
from probe.summation.tree import BIAS, Tree


def leaves_under(tree: Tree, node: int) -> list[int]:
    """The leaves that a node sums."""
    found: list[int] = []
    for child in tree.nodes[node]:
        found += [child] if child >= 0 else leaves_under(tree, ~child)
    return found


@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> Tree:
    """Any tree over a subset of leaf numbers, with nodes of two to four children."""
    leaves = draw(
        st.lists(st.integers(0, 30) | st.just(BIAS), min_size=1, max_size=most, unique=True)
    )
    row, nodes = list(leaves), []
    while len(row) > 1:
        count = draw(st.integers(2, min(4, len(row))))
        row = draw(st.permutations(row))
        nodes.append(tuple(row[:count]))
        row = [~(len(nodes) - 1), *row[count:]]
    return Tree.from_nodes(nodes, leaf=leaves[0])


@given(trees())
def test_text_and_tree_are_one_to_one(tree: Tree) -> None:
    again = Tree.parse(tree.text)
    assert again == tree and hash(again) == hash(tree) and again.id == tree.id
    assert Tree.parse(tree.text.replace("+", " + ")) == tree


@given(trees(), st.randoms(use_true_random=False))
def test_the_order_of_children_does_not_matter(tree: Tree, random) -> None:
    shuffled = [random.sample(node, len(node)) for node in tree.nodes]
    assert Tree.from_nodes(shuffled, leaf=tree.leaves[0]) == tree


@given(trees())
def test_lca_sizes_count_the_leaves_of_the_smallest_common_sum(tree: Tree) -> None:
    under = [set(leaves_under(tree, node)) for node in range(len(tree.nodes))]
    for leaf in tree.leaves:
        for other, size in zip(tree.leaves, tree.lca_sizes(leaf), strict=True):
            common = [len(s) for s in under if leaf in s and other in s]
            assert size == (min(common) if leaf != other else 1)


@given(trees())
def test_children_stand_one_level_before(tree: Tree) -> None:
    level = {int(node): k for k, nodes in enumerate(tree.schedule()) for node in nodes}
    assert sorted(level) == list(range(len(tree.nodes)))
    for node, children in enumerate(tree.nodes):
        assert all(level[~child] == level[node] - 1 for child in children if child < 0)


@given(trees(), st.data())
def test_a_restricted_tree_adds_what_is_left_in_the_same_order(tree: Tree, data) -> None:
    keep = data.draw(st.lists(st.sampled_from(tree.leaves), min_size=1, unique=True))
    left = tree.restricted(keep)
    assert left.leaves == tuple(sorted(keep))
    under = {frozenset(leaves_under(tree, node)) & set(keep) for node in range(len(tree.nodes))}
    assert {frozenset(leaves_under(left, n)) for n in range(len(left.nodes))} == {
        leaves for leaves in under if len(leaves) > 1
    }


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Tree.sequential(4), "(((0+1)+2)+3)"),
        (Tree.sequential([BIAS, 0, 1]), "((0+b)+1)"),
        (Tree.sequential([2, 1, 0]), "(0+(1+2))"),
        (Tree.pairwise(5), "(((0+1)+(2+3))+4)"),
        (Tree.pairwise(7), "(((0+1)+(2+3))+((4+5)+6))"),
        (Tree.lanes(6, 4), "(((0+4)+(1+5))+(2+3))"),
        (Tree.together(3), "(0+1+2)"),
        (Tree.chain([[0, 1], [2, 3], [4], [BIAS]]), "((((0+1)+(2+3))+4)+b)"),
        (Tree.parse("3"), "3"),
        (Tree.parse("b"), "b"),
        (Tree.parse("1+0"), "(0+1)"),
    ],
)
def test_builders(tree: Tree, text: str) -> None:
    assert tree.text == text


def test_the_id_of_a_text_never_changes() -> None:
    assert Tree.pairwise(5).id == "71bf6bd69240"


def test_a_chain_of_thousands_costs_no_stack() -> None:
    chain = Tree.sequential(5000)
    assert Tree.parse(chain.text) == chain
    assert chain.depth == 4999 and hash(chain)
    np.testing.assert_array_equal(chain.lca_sizes(0), [1, *range(2, 5001)])
    assert chain.lca_sizes(4999)[0] == 5000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(0+1", "ends too early"),
        ("", "ends too early"),
        ("0+1)", "closes more brackets"),
        ("(0+)", "character 3 can't follow"),
        ("(0 1)", "character 2 can't follow"),
        ("(0+x)", "character 3 can't follow"),
        ("((0+1))", "has 1 children"),
        ("(0+0)", "leaf 0 is added twice"),
    ],
)
def test_what_is_no_tree_says_why(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Tree.parse(text)


def test_nodes_that_form_no_tree_are_refused() -> None:
    with pytest.raises(InputError, match="does not exist"):
        Tree.from_nodes([(0, ~1), (1, 2)])
    with pytest.raises(InputError, match="not added to anything"):
        Tree.from_nodes([(0, 1), (2, 3)])
    with pytest.raises(InputError, match="none is a leaf"):
        Tree.sequential(3).restricted([7])


@pytest.mark.parametrize("leaf", [0, 1, 5, BIAS])
def test_a_leaf_alone_is_a_tree_of_its_number(leaf):
    alone = Tree((leaf,), ())
    assert Tree.parse(alone.text) == alone
    made = [Tree.sequential([leaf]), Tree.pairwise([leaf]), Tree.lanes([leaf], 4)]
    made += [Tree.together([leaf]), Tree.chain([[leaf]]), Tree.from_nodes([], leaf=leaf)]
    assert made == [alone] * 6 and alone.written == [leaf] and alone.depth == 0
    if leaf:
        assert Tree.from_nodes([(0, leaf)]).restricted([leaf]) == alone
    assert Tree.from_nodes([(leaf, 7)]).restricted([leaf]) == alone
