"""Which products are fused: pairs and traces of any tree, asked of sums that fuse as we say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from probe.case import floats
from probe.order import fusion
from probe.order.fusion import FusedPairs, FusionPiece, Traces, fusion_operands
from probe.order.masks import Masks
from probe.order.reveal import RevealedTree
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree
from tests.exact import rounded
from tests.order.synthetic import model_of
from tests.order.test_tree import any_tree

SUMMANDS = 31
ONE = np.zeros(1, int)


def numbered(tree: Tree) -> list[int]:
    """Its leaves as masks number them."""
    return [SUMMANDS if leaf == BIAS else leaf for leaf in tree.leaves]


def meeting(tree: Tree, p: int, q: int) -> frozenset[int]:
    """The leaves of the smallest sum that holds both, all as masks number them."""
    found: dict[int, frozenset[int]] = {}
    for node, children in enumerate(tree.nodes):
        parts = [found[c] if c < 0 else {SUMMANDS if c == BIAS else c} for c in children]
        found[~node] = frozenset().union(*parts)
        if {p, q} <= found[~node]:
            return found[~node]
    raise AssertionError((p, q))


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_the_product_needs_one_bit_more_and_many_of_them_add_exactly(dtype):
    given = fusion_operands(dtype)
    x, w, little, extra = map(Fraction, (given.x, given.w, given.rounded, given.extra))
    for number in (given.x, given.w, given.rounded, given.extra):
        assert rounded(Fraction(number), dtype) == number
    assert x * w == x + little + extra and rounded(x * w, dtype) == x + little
    assert given.most > 1
    for count in {*range(1, min(given.most, 40)), given.most - 1, given.most}:
        for whole in (0, 1, count - 1, count):
            exact = count * little + whole * extra
            assert rounded(exact, dtype) == exact == rounded(exact - x, dtype) + x


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_every_product_of_any_tree_is_asked_once_and_counted_where_it_is_fused(dtype):
    rng, several, behind = np.random.default_rng(3), 0, 0
    for trial in range(60):
        tree = any_tree(rng, 2 + trial % 12, 2 + trial % 3)
        fused = frozenset(leaf for leaf in tree.leaves if rng.random() < 0.5) - {BIAS}
        biased = BIAS in tree.leaves
        model = model_of(Summation(tree, Rounding(fused)), SUMMANDS, biased, dtype)
        most = fusion_operands(dtype).most if trial % 2 else 3
        pairs = FusedPairs(tree, SUMMANDS, most)
        asked = [leaf for batch in pairs.batches for leaf, _ in batch]
        asked += pairs.behind_bias[:, 0].tolist()
        assert sorted(asked) == [leaf for leaf in tree.leaves if leaf != BIAS]
        sets = pairs.batches
        assert all(1 <= len(batch) <= most for batch in sets)
        rows = fusion.pairs_in_rows(sets, max(map(len, sets), default=1))
        told = fusion.count_fused(Masks(model), rows[:, None])[:, 0, 0].tolist()
        assert told == [sum(leaf in fused for leaf, _ in batch) for batch in sets], tree.text
        rows = pairs.behind_bias
        told = fusion.count_fused_behind_bias(Masks(model), rows[:, None])[:, 0, 0].tolist()
        assert told == [leaf in fused for leaf in rows[:, 0].tolist()]
        assert (rows[:, 1] == SUMMANDS).all()
        several += max(map(len, sets), default=0) > 1
        behind += len(rows)
    assert several > 20 and behind > 2


def test_traces_of_any_tree_meet_where_they_are_to_show_something():
    rng = np.random.default_rng(4)
    for trial in range(200):
        tree = any_tree(rng, 1 + trial % 9, 2 + trial % 3)
        traces, every = Traces(tree, SUMMANDS), frozenset(numbered(tree))
        below = [meeting(tree, *_two(tree, node)) for node in range(len(tree.nodes))]
        assert traces.triple_nodes == list(range(len(tree.nodes) - 1))
        for node, (p, q, r) in zip(traces.triple_nodes, traces.triples.tolist(), strict=True):
            assert meeting(tree, p, q) == below[node] and r not in below[node]
            assert meeting(tree, p, r) == below[tree.parents[~node]]
        lowest = [n for n, node in enumerate(tree.nodes[:-1]) if min(node) >= 0]
        assert [meeting(tree, p, q) for p, q, _ in traces.paths] == [below[n] for n in lowest]
        assert all(meeting(tree, p, r) == every for p, _, r in traces.paths.tolist())
        ends = traces.ends.tolist()
        if not tree.nodes:
            assert ends == [numbered(tree) * 2] and not len(traces.biased)
            continue
        assert meeting(tree, *ends[0]) == every
        last = BIAS in tree.nodes[-1] and min(tree.nodes[-1]) < 0
        assert len(ends) == 1 + last
        assert not last or meeting(tree, *ends[1]) == below[~tree.nodes[-1][0]]
        assert len(traces.biased) == (BIAS in tree.leaves)
        for bias, p in traces.biased.tolist():
            assert bias == SUMMANDS and meeting(tree, bias, p) == below[tree.parents[BIAS]]
        sample = traces.sample().tolist()
        assert len(sample) == min(fusion.SAMPLED, len(traces.triples))
        assert all(row in traces.triples.tolist() for row in sample)


def _two(tree: Tree, node: int) -> list[int]:
    """A leaf below each of two children of a node."""

    def leaf(child: int) -> int:
        while child < 0:
            child = tree.nodes[~child][-1]
        return SUMMANDS if child == BIAS else child

    return [leaf(child) for child in tree.nodes[node][:2]]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("filters", [1, 40])
def test_sets_are_divided_until_it_is_known_which_leaves_are_fused(filters, alone):
    rng = np.random.default_rng(filters)
    for trial in range(30):
        n = 1 + trial
        tree = Tree.lanes(n, max(1, n // 2))
        pairs = FusedPairs(tree, -1, 9)
        found = RevealedTree(tree, np.arange(filters), np.arange(3))
        piece = FusionPiece(found, pairs, alone)
        truth = rng.random((3, n)) < rng.choice([0.0, 0.5, 0.95, 1.0], (3, 1))
        strange = trial % 5 == 4

        def counts(some, truth=truth, strange=strange):
            told = truth[:, [leaf for leaf, _ in some]].sum(axis=1)
            return np.where(strange & (len(some) > 2), -1, told)

        piece.parts = [(some, counts(some)) for some in pairs.batches]
        piece.answers["behind"] = np.zeros((0, 3), int)
        rounds = 0
        while any(piece.mixed(part) for part in piece.parts):
            asked = [s for part in piece.parts if piece.mixed(part) for s in piece.smaller(part)]
            piece.divide(iter([counts(some) for some in asked]))
            rounds += 1
        assert rounds <= 5
        for column in range(3):
            able = [leaf for some in pairs.batches for leaf, _ in some]
            expected = frozenset(leaf for leaf in able if truth[column, leaf])
            assert piece.fused(column) == (expected, False)


def test_an_answer_that_fits_neither_is_said():
    pairs = FusedPairs(Tree.sequential([0, 1, BIAS]), 2, 9)
    piece = FusionPiece(RevealedTree(pairs.tree, ONE, np.arange(2)), pairs, False)
    piece.parts = [(some, np.array([len(some), -1])) for some in pairs.batches]
    piece.answers["behind"] = np.zeros((len(pairs.behind_bias), 2), int)
    assert piece.fused(0) == (frozenset([0, 1]), False)
    assert piece.fused(1) == (frozenset(), True)
    lone = FusedPairs(Tree.parse("(0+b)"), 1, 9)
    piece = FusionPiece(RevealedTree(lone.tree, ONE, np.arange(3)), lone, False)
    piece.answers["behind"] = np.array([[0, 1, -1]])
    assert [piece.fused(n) for n in range(3)] == [
        (frozenset(), False),
        (frozenset([0]), False),
        (frozenset(), True),
    ]


@pytest.mark.parametrize("form", [None, "bfloat16", "tf32"])
def test_the_format_of_both_operands_is_told_by_the_bits_they_keep(form):
    tree = Tree.sequential([2, 0, 1])
    summation = Summation(tree, Rounding(operand_format=form, accumulator_format="float32"))
    for dtype in ("float32", "float64") if form is None else ("float32",):
        model = model_of(summation if form else Summation(tree), 3, False, dtype)
        piece = FusionPiece(RevealedTree(tree, ONE, ONE), FusedPairs(tree, -1, 9), False)
        assert fusion.operand_format(Masks(model), piece, 0) == form
    alone = Tree.sequential(1)
    piece = FusionPiece(RevealedTree(alone, ONE, ONE), FusedPairs(alone, -1, 9), False)
    assert fusion.operand_format(Masks(model), piece, 0) is None
