"""The reveals against operators whose order is known, because we made it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from probe.order import reveal
from probe.order.fprev import fprev_calls
from probe.order.masks import Masks
from probe.order.reveal import ASKED, Answers, fits_guess, guessed_tree, reveal_trees
from probe.order.rounding import reveal_roundings
from probe.order.summation import Summation
from probe.order.tree import BIAS, Tree
from tests.order.synthetic import Kernel, changed, joined, random_tree
from tests.order.test_tree import any_tree, as_tree, every_nested

pytestmark = pytest.mark.long

ONE = np.zeros(1, int)


class Known:
    """An operator that adds every output in a tree that the test chose.

    ``orders[position][filter]`` is (tree, fused leaves); a tree may miss leaves: that position does
    not read them. ``wide`` keeps partial sums in float32; ``narrow`` lists nodes that don't;
    ``twice`` rounds them to float32 on their way.
    """

    def __init__(
        self, orders, summands, *, bias=False, dtype="float32", wide=False, narrow=(), twice=False
    ):
        self.orders, self.summands, self.bias, self.dtype = orders, summands, bias, dtype
        self.positions, self.filters = len(orders), len(orders[0])
        self.wide, self.narrow, self.twice = wide, narrow, twice
        self.storage = np.dtype(dtype)

    def run(self, x, template, leaves, values):
        calls = len(leaves)
        w = np.broadcast_to(template, (calls, self.filters, len(template))).copy()
        for call, filt, slot in np.argwhere(leaves >= 0):
            w[call, filt, leaves[call, filt, slot]] = values[slot]
        out = np.empty((calls, self.positions, self.filters))
        with np.errstate(over="ignore", invalid="ignore"):
            for position, row in enumerate(self.orders):
                for filt, (tree, fused) in enumerate(row):
                    out[:, position, filt] = self._sum(tree, fused, x, w[:, filt])
        return out

    def _sum(self, tree, fused, x, w):
        def product(leaf):
            if leaf == BIAS:
                return w[:, self.summands]
            exact = x * w[:, leaf]
            return exact if leaf in fused else exact.astype(self.storage).astype(float)

        if not tree.nodes:
            return product(tree.leaves[0]).astype(self.storage)
        sums = []
        for node, children in enumerate(tree.nodes):
            parts = [product(c) if c >= 0 else sums[~c] for c in children]
            total = np.sum(parts if len(parts) == 2 else aligned(parts), axis=0)
            kept = np.float32 if self.wide and node not in self.narrow else self.storage
            total = (total.astype(np.float32) if self.twice else total).astype(kept).astype(float)
            sums.append(total)
        return sums[-1].astype(self.storage)


def aligned(parts):
    """Summands as a fused multi-term addition sees them: cut to the last place of the largest."""
    largest = np.max(np.abs(parts), axis=0)
    place = np.ldexp(1.0, np.frexp(np.where(largest > 0, largest, 1))[1] - 30)
    return np.trunc(np.array(parts) / place) * place


def everywhere(tree, positions=3, filters=2, fused=frozenset()):
    return [[(tree, fused)] * filters for _ in range(positions)]


def revealed(operator, apart=False, alone=False, smaller=False):
    """{(position, filter): Order} and the masks used: ``smaller`` ones where sums overflow."""
    masks = Masks(operator)
    assert not smaller or masks.mask_smaller()
    reads = [
        np.array([operator.summands if leaf == BIAS else leaf for leaf in row[0][0].leaves])
        for row in operator.orders
    ]
    kinds = sorted({tuple(read) for read in reads})
    classes = np.array([kinds.index(tuple(read)) for read in reads])
    found, refused = reveal_trees(masks, classes, [np.array(k) for k in kinds], apart=apart)
    assert not refused
    orders = {}
    for order in reveal_roundings(masks, found, alone):
        for position in order.positions:
            for filt in order.filters:
                assert (position, filt) not in orders
                orders[position, filt] = order
    return orders, masks


def assert_revealed(operator, **how):
    orders, masks = revealed(operator, **how)
    for position, row in enumerate(operator.orders):
        for filt, (tree, fused) in enumerate(row):
            found = orders[position, filt].summation
            assert (found.tree, found.rounding.fused) == (tree, frozenset(fused))
    return masks


def any_order(rng, leaves):
    """Any tree over the leaves, nodes of two to four children, leaves fused where they can be."""
    tree = any_tree(rng, len(leaves), int(rng.choice([2, 4])), leaves)
    able = [some for node in tree.nodes if (some := [c for c in node if 0 <= c < BIAS])]
    return tree, frozenset(int(rng.choice(some)) for some in able if rng.integers(2))


@pytest.mark.parametrize("seed", range(28))
def test_any_tree_and_fusion_is_revealed_at_every_output(seed):
    rng = np.random.default_rng(seed)
    n, bias, filters = 1 + seed % 14, bool(rng.integers(2)), int(rng.integers(1, 5))
    kinds = [any_order(rng, [*range(n), *[BIAS] * bias]) for _ in range(1 + seed % 3)]
    rows = [kinds[one] for one in rng.integers(0, len(kinds), 4)]
    assert_revealed(Known([[kind] * filters for kind in rows], n, bias=bias))
    reads = [rng.permutation(n)[: int(rng.integers(1, n + 1))].tolist() for _ in range(4)]
    assert_revealed(Known([[any_order(rng, sorted(read))] for read in reads], n))


@pytest.mark.parametrize(
    ("tree", "filters", "most"),
    [
        (Tree.sequential(range(300)[::-1]), 1, 3 * 300),  # from the other end: no square
        (Tree.sequential(200), 1, 1.1 * 199),
        (Tree.sequential(120), 8, 119 / 8 + 20),
    ],
)
def test_all_outputs_cost_what_fprev_needs_for_one(tree, filters, most):
    n = len(tree.leaves)
    fused = frozenset(range(1, n)) if tree == Tree.sequential(n) else ()
    assert assert_revealed(Known([[(tree, fused)] * filters] * 6, n)).calls <= most


LOWEST = frozenset(n for n, node in enumerate(Tree.pairwise(16).nodes) if min(node) >= 0)
"""Nodes of sums that are kept wider near the root alone: asking every node shows it."""


@pytest.mark.parametrize(
    ("tree", "fused", "how", "alone", "expected"),
    [
        (Tree.sequential(12), range(12), {"wide": True, "narrow": (4,)}, False, ("float32", {4})),
        (Tree.pairwise(16), (), {"wide": True, "narrow": LOWEST}, True, ("float32", LOWEST)),
        (Tree.pairwise(9), (), {}, False, ("float16", frozenset())),
        (Tree.sequential(9), range(1, 9), {}, False, ("float16", frozenset())),
    ],
)
def test_accumulators_of_16_bit_types_are_told_and_where_they_are_rounded(
    tree, fused, how, alone, expected
):
    operator = Known(everywhere(tree, fused=fused), len(tree.leaves), dtype="float16", **how)
    for order in revealed(operator, alone=alone)[0].values():
        rounding = order.summation.rounding
        assert (rounding.accumulator_format, rounding.rounded) == expected
        assert rounding.fused == set(fused) and rounding.intermediate_format is None


@pytest.mark.parametrize(
    ("fused", "most"), [(range(37, 50), 2 * 5), ([40], 2 * 5), (range(33, 64, 2), 32)]
)
def test_products_fused_in_part_are_told_by_halves(fused, most):
    lanes = Tree.parse("(" + "+".join(f"({lane}+{lane + 32})" for lane in range(32)) + ")")
    none, some = (
        assert_revealed(Known([[(lanes, frozenset(leaves))]] * 3, 64)) for leaves in ((), fused)
    )
    assert some.calls - none.calls <= most


@pytest.mark.parametrize(
    "kinds",
    [
        [(Tree.sequential(12), frozenset()), (Tree.lanes(12, 4), frozenset())],
        [(Tree.sequential(40), frozenset(range(1, 40))), (Tree.sequential(40), frozenset())],
    ],
)
def test_filters_in_other_orders_or_that_fuse_otherwise_are_told_apart(kinds):
    row = [kinds[0]] * 3 + [kinds[1]] * 2
    assert_revealed(Known([row] * 4, len(kinds[0][0].leaves)))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_questions_asked_together_do_not_drown_in_each_other(dtype):
    tree, fused = Tree.parse("(((((0+1)+2)+3)+(4+5))+6)"), frozenset({0, 2, 3, 4})
    assert_revealed(Known(everywhere(tree, fused=fused), 7, dtype=dtype))


def test_fused_additions_made_of_wider_ones_round_twice_where_they_fuse():
    tree = Tree.sequential(9)
    rows = [[(tree, fused)] * 2 for fused in (range(1, 9), frozenset())]
    orders, _ = revealed(Known(rows, 9, dtype="float16", twice=True))
    found = {at: one.summation.rounding.intermediate_format for (at, _), one in orders.items()}
    assert found == {0: "float32", 1: None}


def test_one_product_in_the_widest_format_is_not_truncated():
    operator = Known(everywhere(Tree.sequential(1)), 1, dtype="float64")
    orders, _ = revealed(operator, alone=True)
    assert not orders[0, 0].summation.rounding.truncated


def test_what_is_no_sum_is_refused_with_the_answer_that_shows_it():
    class Winograd(Known):
        def run(self, x, template, leaves, values):
            w = super().run(x, template, leaves, values)
            return w + (leaves[:, None, :, :] >= 0).any(axis=3) * 0.25

    operator = Winograd(everywhere(Tree.sequential(6)), 6)
    masks = Masks(operator)
    found, refused = reveal_trees(masks, np.zeros(3, int), [np.arange(6)])
    assert not found and "with p0 = +M" in refused[0].evidence


def answering(seed, n=40, most=2):
    """A kernel of three filters whose windows at the first and last position miss leaves."""
    rng = np.random.default_rng(seed)
    reads = [np.arange(n), np.flatnonzero(rng.random(n) < 0.6), np.arange(7, n)]
    whole = [random_tree(n, rng), Tree.lanes(n, 4), Tree.sequential(n)]
    claims = [*whole, random_tree(n, rng), Tree.sequential([1, 0, *range(2, n)])]
    summations = [Summation(tree.restricted(read)) for read in reads for tree in whole]
    truth = np.arange(9).reshape(3, 3)[[1, 0, 2]]
    classes = np.array([1, 0, 2])
    asked = Answers(Masks(Kernel(summations, truth, n)), classes, reads)
    return asked, claims, whole, [reads[one] for one in classes]


@pytest.mark.parametrize("seed", range(3))
def test_an_output_is_like_a_tree_that_gives_its_answers(seed):
    asked, claims, whole, reads = answering(seed)
    places = tuple(np.indices((3, 3)).reshape(2, -1))
    pairs, _ = asked._everywhere()
    assert 0 < len(pairs) <= ASKED and asked._everywhere()[0] is pairs
    for claim in claims:
        told = asked.like(claim, *places).reshape(3, 3)
        near = asked.edges_like(claim, *places).reshape(3, 3)
        for position, filt in np.ndindex(3, 3):
            read = reads[position]
            true, other = (tree.restricted(read) for tree in (whole[filt], claim))
            alike = [
                dict(zip(one.leaves, one.lca_sizes(i), strict=True))[j]
                for one in (true, other)
                for i, j in pairs
                if i in read and j in read
            ]
            half = len(alike) // 2
            assert told[position, filt] == (alike[:half] == alike[half:])
            edge = len(read) < 40
            assert near[position, filt] == (true == other or not edge), "leaf by leaf"
    calls = asked.masks.calls
    assert asked.like(claims[0], *places).shape == (9,) and asked.masks.calls == calls
    nothing = np.zeros(0, int)
    assert asked.edges_like(claims[0], nothing, nothing).shape == (0,)


def test_nodes_of_three_are_asked_about_their_first_leaves():
    tree = Tree.parse("((((0+1+2)+3+b)+(4+5+6+7))+(8+9+(10+11+12)))")
    asked = Answers(Masks(Known([[(tree, ())]], 13, bias=True)), ONE, [np.arange(14)])
    pairs = asked._within_nodes(tree)
    expected = [(0, 1, 2), (0, 3, 13), (4, 5, 6), (10, 11, 12)]
    assert pairs == [pair for one in expected for pair in itertools.combinations(one, 2)]
    assert asked._within_nodes(Tree.lanes(9, 4)) == []
    other = Tree.parse(tree.text.replace("0+1+2", "0+1+4").replace("4+5", "2+5"))
    assert asked.like(tree, ONE, ONE).all() and not asked.like(other, ONE, ONE).any()


# Long sums: trees that are guessed from a few answers, and asked whether they are that.


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


@pytest.fixture
def _short_sums_too(monkeypatch):
    """Sums of 40 leaves are guessed as well as those of 256."""
    monkeypatch.setattr(reveal, "LONG", 40)


guessed = pytest.mark.usefixtures("_short_sums_too")


def fitting(operator, tree):
    """Positions that answer as the tree would."""
    fits = fits_guess(Masks(operator), np.array([0]), np.arange(operator.positions), tree)
    return np.flatnonzero(fits).tolist()


@guessed
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
    monkeypatch.setattr(reveal, "NEIGHBOURS", 50)
    tree = REGULAR["eight lanes"]
    operator = Known(everywhere(tree, 1, 1), 203)
    masks = Masks(operator)
    assert fits_guess(masks, np.array([0]), np.array([0]), tree).all() and masks.calls == 50
    assert not fitting(operator, Tree.lanes(203, 4)) and not fitting(operator, Tree.pairwise(203))


@guessed
def test_irregular_sums_are_asked_for_everything():
    """No steps to read: the guess is lost or wrong, and the tree is found all the same."""
    tree = random_tree(140, np.random.default_rng(6))
    orders, _ = revealed(Known(everywhere(tree, 1, 1), 140))
    assert orders[0, 0].summation.tree == tree


@guessed
def test_a_wrong_guess_costs_calls_and_nothing_else(monkeypatch):
    tree = REGULAR["eight lanes"]
    wrong = other_trees(tree, 1, seed=1)[0]
    monkeypatch.setattr(reveal, "guessed_tree", lambda *_: wrong)
    orders, _ = revealed(Known(everywhere(tree, 1, 1), 203))
    assert orders[0, 0].summation.tree == tree


@guessed
def test_guesses_end_where_they_take_too_many_questions():
    """Nothing is regular here: no more than half of the questions of lanes are asked."""
    tree = random_tree(400, np.random.default_rng(2))
    masks = Masks(Known(everywhere(tree, 1, 1), 400))
    guessed_tree(masks, np.array([0]), 0, np.arange(400))
    assert masks.calls <= 400 * 9 // 2
    short = Masks(Known(everywhere(tree, 1, 20), 400))
    assert guessed_tree(short, np.arange(20), 0, np.arange(400)) is None and not short.calls
