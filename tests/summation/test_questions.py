"""What a certificate asks, of all small trees: exactly the claimed one answers it as it should."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from probe import floats
from probe.summation import questions
from probe.summation.certificate import SummationModel
from probe.summation.questions import Keeping, Uncertifiable, flushing_questions, separation
from probe.summation.summation import EVERY, Rounding, Summation
from probe.summation.tree import Tree
from tests.summation.synthetic import changed, random_tree, trees
from tests.summation.test_tree import as_tree, every_nested, sums

SMALL = {n: [(as_tree(one), {some for some, _ in sums(one)}) for one in every_nested(range(n))]
         for n in (2, 3, 4)}  # fmt: skip


def binary(tree: Tree) -> bool:
    return all(len(children) == 2 for children in tree.nodes)


def holds(asked, tree: Tree, dtype: str, rounding: Rounding | None = None) -> bool:
    """Whether a sum in the order of ``tree`` answers all of these calls as it should."""
    if not asked:
        return True
    weights, ideal = (np.array(side) for side in zip(*asked, strict=True))
    model = SummationModel(Summation(tree, rounding or Rounding()), len(tree.leaves), False, dtype)
    return bool((model.outputs(1.0, weights) == ideal).all())


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("n", SMALL)
def test_separation_and_keeping_hold_for_trees_with_and_within_these_nodes(n, dtype):
    digits = floats.FORMATS[dtype].precision
    for claim, nodes in [one for one in SMALL[n] if binary(one[0])][:: 1 + (dtype != "float32")]:
        apart = list(separation(claim, n, dtype, 999))
        asked = Keeping(claim, n, dtype)
        lost = list(asked.lost(digits, range(n - 2)))
        rounded = list(asked.rounded(range(n - 2)))
        for tree, others in SMALL[n]:
            assert holds(apart, tree, dtype) == (others <= nodes), (claim.text, tree.text)
            assert holds(lost, tree, dtype) == (nodes <= others), (claim.text, tree.text)
            assert holds(rounded, tree, dtype) or not nodes <= others
        wide = floats.FORMATS[dtype].wider[:1]
        for form in wide:
            kept = list(asked.kept(floats.FORMATS[form].precision, range(n - 2)))
            how = {"accumulator_format": form, "product_format": dtype}
            assert holds(kept, claim, dtype, Rounding(**how))
            for node in range(n - 2):
                some = Rounding(**how, rounded=frozenset([node]))
                assert not holds(kept, claim, dtype, some)


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("kind", ["chain", "pairwise", "lanes", "blocks", "random"])
def test_longer_sums_are_separated_from_what_differs_in_one_node(kind, dtype):
    rng, told = np.random.default_rng(len(kind)), 0
    for n in (9, 23, 40):
        claim = trees(n)[kind]
        sizes: list[int] = []  # leaves below the smaller child of each node
        below: list[int] = []
        for children in claim.nodes:
            both = [1 if child >= 0 else below[~child] for child in children]
            below.append(sum(both))
            sizes.append(min(both))
        if dtype == "float16" and max(sizes) >= 16:
            with pytest.raises(Uncertifiable, match=f"too few .* to mask {max(sizes)} leaves"):
                separation(claim, n, dtype, 999)
            continue
        apart = list(separation(claim, n, dtype, 999))
        assert holds(apart, claim, dtype)
        for change in ("merge", *["rotate", "swap leaves", "swap subtrees"] * 3):
            other = changed(Summation(claim), change, rng)
            if other is not None:
                assert holds(apart, other.tree, dtype) == (change == "merge")
                told += 1
        cost = len(apart)
        with pytest.raises(Uncertifiable, match=f"takes {cost} calls, and {cost - 1} are allowed"):
            separation(claim, n, dtype, cost - 1)
    assert told > 9 or dtype == "float16"


def test_calls_of_a_separation_stay_within_what_its_format_adds_exactly():
    """Units are counted in the output, and masks fall by what the widest format loses."""
    for dtype, form in floats.FORMATS.items():
        for bits, span in itertools.product(range(2, 14), (4, 16)):
            layout = questions._Layout.of(dtype, bits, span)
            if layout is None:
                continue
            assert layout.width == 2**bits and layout.unit == form.low and layout.stages >= 1
            top = layout.unit + layout.stages * layout.drop + bits + 1
            assert top < form.high <= form.emax
            assert layout.drop > questions.widest(dtype) + bits
            assert layout.most <= 2 ** (form.precision - 1)
            assert 2 * layout.width <= 2**form.precision, "a mask is a whole number of its scale"


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_every_sum_that_is_not_flushed_is_told(dtype):
    rng = np.random.default_rng(2)
    some = [tree for n in (2, 3) for tree, _ in SMALL[n] if binary(tree)]
    some += [random_tree(int(n), rng) for n in rng.integers(5, 14, 4)]
    some += [Tree.sequential(12), Tree.pairwise(13), Tree.parse("((0+((1+2)+(4+5)))+3)")]
    for tree in some:
        asked, nodes = list(flushing_questions(tree, len(tree.leaves), dtype)), len(tree.nodes)
        assert holds(asked, tree, dtype, Rounding(flushed_sums=frozenset([EVERY])))
        assert not holds(asked, tree, dtype)
        for node in range(nodes):
            rest = frozenset(range(nodes)) - {node}
            assert not holds(asked, tree, dtype, Rounding(flushed_sums=rest)), (tree.text, node)
        assert len(asked) <= nodes + 2
