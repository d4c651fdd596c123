"""Long sums: trees that are guessed from a few answers, and proved by few calls."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from probe.case import floats
from probe.order import proof, reveal
from probe.order.fprev import fprev_calls
from probe.order.masks import Masks
from probe.order.proof import Asker, Lost, guess, outputs_proved
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree
from tests.order.synthetic import Kernel, changed, joined, random_tree
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
        kind = str(rng.choice(["swap leaves", "rotate", "swap subtrees"]))
        if other := changed(Summation(tree), kind, rng):
            found.append(other.tree)
    return found


def everything(masks):
    return np.ix_(np.arange(masks.operator.positions), np.arange(masks.operator.filters))


@pytest.mark.parametrize("tree", REGULAR.values(), ids=REGULAR)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_regular_long_sums_take_fewer_calls_than_leaves(tree, dtype):
    orders, masks = revealed(
        Known(everywhere(tree, 1, 1), len(tree.leaves), dtype=dtype, wide=dtype == "float16")
    )
    assert orders[0, 0].summation.tree == tree
    assert [each.tree for each in masks.proved] == [tree]
    assert masks.calls < max(len(tree.leaves), fprev_calls(tree))


@pytest.mark.parametrize("tree", REGULAR.values(), ids=REGULAR)
@pytest.mark.parametrize("scales", [True, False])
def test_a_tree_is_proved_and_no_other_is(tree, scales):
    """Filters that differ in one or two leaves' places: each tree is proved of its own alone."""
    trees = [tree, *dict.fromkeys(other_trees(tree, 12, seed=len(tree.leaves)))]
    masks = Masks(Known([[(each, frozenset()) for each in trees]], len(tree.leaves)))
    for number in (0, len(trees) - 1):
        fits = outputs_proved(masks, trees[number], everything(masks), scales)[0]
        assert np.flatnonzero(fits).tolist() == [number]


class Wider(Known):
    """Partial sums of float32 in float64."""

    def __init__(self, tree):
        super().__init__(everywhere(tree, 1, 1), len(tree.leaves))
        self.storage = np.dtype("float64")

    def run(self, x, template, leaves, values):
        return super().run(x, template, leaves, values).astype(np.float32).astype(float)


def test_scales_are_not_trusted_where_sums_are_kept_wider():
    """An M that is small for a wider format does not swallow: that must not pass for a proof."""
    tree, other = Tree.sequential(120), other_trees(Tree.sequential(120), 1, seed=3)[0]
    masks = Masks(Wider(tree))
    assert not outputs_proved(masks, tree, everything(masks)).any()
    assert not outputs_proved(masks, other, everything(masks)).any()
    assert outputs_proved(masks, tree, everything(masks), scales=False).all()
    assert not outputs_proved(masks, other, everything(masks), scales=False).any()


def test_the_bias_is_a_leaf_like_others():
    tree = Tree.sequential([BIAS, *range(100)])
    orders, masks = revealed(Known(everywhere(tree, 2, 1), 100, bias=True))
    assert {found.summation.tree for found in orders.values()} == {tree}
    assert masks.proved[0].fits.all()
    assert masks.calls < 100


def test_positions_that_add_otherwise_are_guessed_by_themselves():
    one, other = REGULAR["eight lanes"], Tree.lanes(203, 4)
    truth = [[(one, frozenset())], [(other, frozenset())], [(one, frozenset())]]
    orders, masks = revealed(Known(truth, 203))
    assert [orders[k, 0].summation.tree for k in range(3)] == [one, other, one]
    assert [each.fits[:, 0].tolist() for each in masks.proved] == [
        [True, False, True],
        [False, True, False],
    ]


def test_irregular_sums_are_asked_for_everything():
    """No steps to read: the guess is lost or wrong, and the tree is found all the same."""
    tree = random_tree(140, np.random.default_rng(6))
    orders, _ = revealed(Known(everywhere(tree, 1, 1), 140))
    assert orders[0, 0].summation.tree == tree


def test_a_wrong_guess_costs_calls_and_nothing_else(monkeypatch):
    tree = REGULAR["eight lanes"]
    wrong = other_trees(tree, 1, seed=1)[0]
    monkeypatch.setattr(import_module("probe.order.proof"), "guess", lambda asker, bias: wrong)
    orders, masks = revealed(Known(everywhere(tree, 1, 1), 203))
    assert orders[0, 0].summation.tree == tree
    assert not any(each.fits.any() for each in masks.proved)


def test_what_was_proved_is_not_asked_again():
    tree = REGULAR["a chain"]
    masks = Masks(Known(everywhere(tree, 1, 1), 200))
    calls = []
    for apart in (False, True):
        found, refused = reveal.reveal_trees(masks, np.zeros(1, int), [np.arange(200)], apart)
        assert ([each.tree for each in found], refused) == ([tree], [])
        calls.append(masks.calls)
    assert calls[0] == calls[1]


def test_counts_beyond_the_dtype_are_read_in_two_digits():
    """bfloat16 holds 2^8 units exactly: each question takes two calls, however many leaves."""
    tree = Tree.lanes(700, 4)
    operator = Rounded(tree)
    masks = Masks(operator)
    asker = Asker(masks, np.array([0]), 0, np.arange(700), 2000, digits=True)
    sizes = dict(zip(tree.leaves, tree.lca_sizes(0), strict=True))
    others = np.arange(1, 700, 13)
    before = masks.calls
    assert asker.sizes(0, others).tolist() == [sizes[k] for k in others]
    assert masks.calls - before <= 2 * len(others)
    again = Asker(masks, np.array([0]), 0, np.arange(700), 2000, digits=True)
    assert guess(again, 700) == tree


@pytest.mark.slow
def test_sums_in_16_bits_garble_digits_and_are_counted_in_parts():
    """Partial sums of float16 hold 2^11 units; beyond, they are counted a few leaves at a time."""
    tree = Tree.lanes(2300, 32)
    masks = Masks(Known(everywhere(tree, 1, 1), 2300, dtype="float16"))
    with pytest.raises(Lost):
        guess(Asker(masks, np.array([0]), 0, np.arange(2300), 5000, digits=True), 2300)
    parts = Asker(masks, np.array([0]), 0, np.arange(2300), 5000)
    sizes = dict(zip(tree.leaves, tree.lca_sizes(0), strict=True))
    others = np.arange(1, 2300, 60)
    assert parts.sizes(0, others).tolist() == [sizes[k] for k in others]


class Rounded(Known):
    """bfloat16 operands and results, partial sums in float32."""

    def __init__(self, tree):
        super().__init__(everywhere(tree, 1, 1), len(tree.leaves))
        self.dtype = "bfloat16"

    def run(self, x, template, leaves, values):
        exact = super().run(x, template, leaves, values)
        return floats.widen(floats.round_to(exact, "bfloat16"), "bfloat16")


def test_guesses_end_where_they_take_too_many_questions():
    masks = Masks(Known(everywhere(Tree.lanes(203, 8), 1, 1), 203))
    asker = Asker(masks, np.array([0]), 0, np.arange(203), 20)
    with pytest.raises(Lost):
        guess(asker, 203)
    assert masks.calls <= 20


def test_every_inner_node_is_asked_about_once():
    tree = REGULAR["four lanes in blocks"]
    for scales in (True, False):
        form = proof.Format.of("float32", scales)
        calls = list(proof.schedule(tree, 1 << 20, form))
        triples = [t for call in calls for path in call.triples for t in path]
        assert len(triples) == len(tree.nodes) - 1
        for call in calls:
            used = [leaf for path in call.triples for t in path for leaf in t if leaf >= 0]
            assert len(used) == len(set(used))


@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_of_all_trees_of_four_leaves_each_is_proved_of_itself_alone(dtype, scales):
    """Nodes of three lose units beside a large mask, as hardware does; exact ones do not."""
    every = [as_tree(nested) for nested in every_nested([0, 1, 3, BIAS])]
    twos = [n for n, tree in enumerate(every) if all(len(node) == 2 for node in tree.nodes)]
    lossy = Known([[(tree, frozenset()) for tree in every]], 4, bias=True, dtype=dtype)
    exact = Kernel([Summation(tree) for tree in every], [range(26)], 4, bias=True, dtype=dtype)
    for number, tree in list(enumerate(every))[:: 1 if dtype == "float32" else 4]:
        own = [number] * (number in twos)
        for kernel in (lossy, exact):
            fits = outputs_proved(Masks(kernel), tree, np.ix_([0], range(26)), scales)[0]
            proved = np.flatnonzero(fits).tolist()
            assert [one for one in proved if one in twos] == own
            assert proved == own or scales or kernel is exact
    fits = outputs_proved(Masks(lossy), every[3], np.ix_([0], [3, 5]), scales)
    assert not np.delete(fits, [3, 5]).any()


@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_every_tree_of_two_summands_a_node_is_proved(dtype, scales):
    short = scales and floats.FORMATS[dtype].bits == 16  # whose sums are taken to be float32's
    rounding = Rounding(accumulator_format="float32" if short else None)
    for seed in range(12):
        tree = random_tree(3 + 4 * seed, np.random.default_rng(seed))
        kernel = Kernel([Summation(tree, rounding)], [[0]], len(tree.leaves), dtype=dtype)
        assert outputs_proved(Masks(kernel), tree, everything(Masks(kernel)), scales).all()


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("scales", [True, False])
def test_units_of_a_call_add_exactly_and_each_mask_swallows_its_own_alone(dtype, scales):
    form = proof.Format.of(dtype, scales)
    digits = floats.FORMATS[dtype].precision
    for paths in (1, 2, 3, 8, 9):
        levels = form.levels(paths)
        units, masks = form.units(levels, paths), form.masks(levels, paths)
        assert masks.shape == (levels, paths) and len(units) == levels
        ratio = 8 * 2 ** (paths - 1).bit_length()
        assert not scales or ratio * ratio**levels > 4 * 2**digits, "one more level has no room"
        total = 2 * paths * units.sum()  # a lost one beside each, if nothing is lost
        assert total <= 2.0**digits * form.unit or levels == 1
        assert len(np.unique(masks)) == masks.size or dtype == "float16"
        for one in masks.reshape(-1).tolist():
            assert float(floats.nearest(np.array(one), dtype)) == one
        top = floats.largest_finite(dtype)
        for level in range(levels):
            kept = form.kept or digits
            swallowed = paths * 2 * units[level:].sum()
            assert (swallowed < masks[level] * 2.0**-kept).all()
            assert levels == 1 or (masks[level] * 2 * paths < top).all()
