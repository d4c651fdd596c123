"""Certificates: of all small trees exactly the claimed one answers what is asked as it should."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from probe import floats
from probe.summation import certificate
from probe.summation.certificate import (
    Keeping,
    SummationModel,
    Uncertifiable,
    certify,
    flushing_questions,
    separation,
)
from probe.summation.masks import Masks
from probe.summation.replay import replay
from probe.summation.summation import EVERY, Rounding, Summation
from probe.summation.tree import BIAS, Tree
from tests.summation.synthetic import KINDS, Kernel, changed, random_tree, trees, with_style
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
            layout = certificate._Layout.of(dtype, bits, span)
            if layout is None:
                continue
            assert layout.width == 2**bits and layout.unit == form.low and layout.stages >= 1
            top = layout.unit + layout.stages * layout.drop + bits + 1
            assert top < form.high <= form.emax
            assert layout.drop > certificate.widest(dtype) + bits
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


PLACES = 3, 4  # positions, filters
STYLES = ("none", "all", "some")
LARGE = pytest.param(4096, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("sizes", "rings"),
    [([1] * 11, [1, 4, 7, 10]), ([1, 2, 3, 1, 1], [1, 2, 3]), ([1, 5, 1, 5, 1], [1, 2, 3, 4])],
)
def test_rings_are_fewer_leaves_apart_than_a_mask_takes(sizes, rings):
    layout = certificate._Layout(width=8, span=4, stages=2, drop=9, unit=0, most=64)
    assert certificate._rings([np.zeros(n) for n in sizes], layout) == rings


def places(kernel):
    return np.nonzero(kernel.truth >= 0)


def certified(kernel, claim, **how):
    """The outputs of a kernel that are certified to add as claimed: bool (positions, filters)."""
    found = certify(Masks(kernel), claim, places(kernel), **how)
    return found.holds.reshape(kernel.truth.shape), found.why


def somewhere(rng):
    """Which outputs a change is at: one filter's, one position's, or one alone."""
    truth = np.zeros(PLACES, int)
    position, filt = (int(rng.integers(n)) for n in PLACES)
    at = [(slice(None), filt), (position, slice(None)), (position, filt)]
    truth[at[int(rng.integers(len(at)))]] = 1
    return truth


def assert_told_apart(claim, other, rng, **how):
    kernel = Kernel([claim, other], somewhere(rng), len(claim.tree.leaves), **how)
    found, why = certified(kernel, claim)
    if why:  # float16 has too few binades to mask many leaves of a branch
        assert kernel.dtype == "float16" and not found.any()
    else:
        assert (found == (kernel.truth == 0)).all(), (claim.tree.text[:200], other)
    return not why


@pytest.mark.parametrize(
    "n", [33, *(pytest.param(n, marks=pytest.mark.slow) for n in (64, 320)), LARGE]
)
@pytest.mark.parametrize("kind", KINDS)
def test_one_change_anywhere_is_refuted_where_it_is_and_nowhere_else(n, kind):
    rng = np.random.default_rng(n)
    tried = 0
    for name in ("chain", "pairwise", "lanes", "blocks", "random") if n < 4096 else ("lanes",):
        for style in STYLES if n < 4096 else ("some",):
            claim = with_style(trees(n)[name], style)
            if (other := changed(claim, kind, rng)) is None or other == claim:
                continue
            assert_told_apart(claim, other, rng)
            tried += 1
    assert tried >= (5 if n < 4096 else 1)


WIDE = {"float32": "float64", "float16": "float32", "bfloat16": "float32"}


@pytest.mark.parametrize("dtype", ["float64", *WIDE])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.slow_at("False-bfloat16", "True-bfloat16")
def test_sums_of_every_format_are_certified_and_their_changes_refuted(dtype, wide):
    if wide and dtype not in WIDE:
        pytest.skip("nothing is wider than float64")
    rng, proved = np.random.default_rng(7), 0
    kept = WIDE[dtype] if wide else dtype
    product = dtype if wide else None
    for tree in trees(40).values():
        rounding = Rounding(accumulator_format=kept, product_format=product)
        claim = Summation(tree, rounding)
        narrow = frozenset([3])
        others = [random_tree(40, rng), Tree.sequential(rng.permutation(40).tolist())]
        roundings = [Rounding(frozenset(range(0, 9, 2)), None, kept, product_format=product)]
        if wide:
            roundings.append(Rounding((), None, kept, narrow, product))
            roundings.append(Rounding(frozenset(), None, dtype))
        elif dtype in WIDE:
            every = frozenset(range(len(tree.nodes)))
            roundings.append(Rounding(frozenset(), None, WIDE[dtype], every - narrow, dtype))
        for other in [
            *(Summation(one, rounding) for one in others if one != tree),
            *(Summation(tree, one) for one in roundings),
        ]:
            proved += assert_told_apart(claim, other, rng, dtype=dtype)
    assert proved >= 4


def test_partial_sums_that_are_rounded_here_and_there_are_asked_one_by_one():
    tree, rng = Tree.lanes(33, 4), np.random.default_rng(0)
    claims = [
        Summation(tree, Rounding((), None, "float32", frozenset(rounded), "bfloat16"))
        for rounded in ((3, 9), (3, 10), (3,), ())
    ]
    for claim in claims:
        for other in claims:
            if other != claim:
                assert_told_apart(claim, other, rng, dtype="bfloat16")


@pytest.mark.parametrize("place", ["first", "last", "within"])
def test_the_bias_is_one_of_the_leaves(place):
    leaves = [*range(40)]
    leaves.insert({"first": 0, "last": 40, "within": 17}[place], BIAS)
    claim = with_style(Tree.sequential(leaves), "all")
    other = with_style(Tree.sequential([*range(20), BIAS, *range(20, 40)]), "all")
    kernel = Kernel([claim, other], [[0, 1], [0, 0]], 40, bias=True)
    found, why = certified(kernel, claim)
    assert not why and (found == [[True, False], [True, True]]).all()


def test_windows_that_miss_leaves_are_asked_about_those_that_they_read():
    claim = with_style(Tree.sequential(60), "all").restricted(range(20, 60))
    other = with_style(Tree.lanes(60, 4), "all").restricted(range(20, 60))
    found, _ = certified(Kernel([claim, other], [[0, 1]], 60), claim)
    assert found.tolist() == [[True, False]]


def test_what_would_not_tell_is_not_certified_and_says_so():
    together = Summation(Tree.from_nodes([[0, 1, 2], [-1, 3]]), Rounding())
    odd = Summation(Tree.sequential(4), Rounding(operand_format="tf32"))
    for claim, why in ((together, "three or more"), (odd, "operand_format")):
        found, told = certified(Kernel([claim], [[0]], 4), claim)
        assert not found.any() and why in told
    long = with_style(Tree.sequential(400), "all")
    kernel = Kernel([long], [[0]], 400)
    found, told = certified(kernel, long, budget=20)
    assert not found.any() and "calls" in told


def test_a_certificate_costs_a_third_of_a_call_for_each_product():
    for n in (100, 400):
        claim = with_style(Tree.sequential(n), "all")
        masks = Masks(Kernel([claim], [[0] * 2], n))
        certify(masks, claim, (np.zeros(2, int), np.arange(2)))
        assert masks.calls < n / 2.4 + 30


def test_a_model_answers_as_the_kernel_does():
    claim = with_style(Tree.pairwise(9), "some")
    kernel, model = (
        Kernel([claim], [[0]], 9),
        certificate.SummationModel(claim, 9, False, "float32"),
    )
    weights = np.random.default_rng(0).normal(size=(5, 9))
    assert (kernel.each(weights) == model.each(weights)).all()


def test_no_mixture_of_trees_and_formats_is_certified_as_a_binary_tree_in_one_format():
    rng, refuted = np.random.default_rng(15), 0
    for dtype in ("float32", "bfloat16"):
        for n in rng.integers(4, 12, 6).tolist():
            tree = random_tree(n, rng)
            claim = Summation(tree, Rounding(accumulator_format=dtype))
            others = [*_mixtures(tree, dtype, rng, 16)]
            kernel = Kernel([claim, *others], np.arange(len(others) + 1)[None], n, dtype=dtype)
            found, why = certified(kernel, claim)
            assert not why and found[0, 0]
            for other, holds in zip(others, found[0, 1:], strict=True):
                assert not holds or _equal_in_effect(claim, other, dtype, rng)
                refuted += not holds
    assert refuted > 100


def _mixtures(tree, dtype, rng, count):
    """Trees near this one and far from it, with nodes of three, kept wider at some nodes."""
    for _ in range(count):
        made = Summation(tree if rng.random() < 0.7 else random_tree(len(tree.leaves), rng))
        for kind in rng.choice(["rotate", "swap leaves", "merge"], int(rng.integers(3))):
            if all(len(node) == 2 for node in made.tree.nodes):
                made = changed(made, kind, rng) or made
        share = rng.choice([0.2, 0.5, 0.8])
        nodes = frozenset(k for k in range(len(made.tree.nodes)) if rng.random() < share)
        yield Summation(made.tree, Rounding(frozenset(), None, WIDE[dtype], nodes, dtype))


def _equal_in_effect(one, other, dtype, rng):
    """Whether two summations have the same bits on many operands of many magnitudes."""
    shape = len(one.tree.leaves), 3000
    w = rng.normal(size=shape) * 2.0 ** rng.integers(-26, 27, shape)
    w = floats.round_to(np.where(rng.random(shape) < 0.4, np.sign(w), w), dtype)
    x = floats.round_to(1 + rng.normal(size=shape) / 64, dtype)
    return (replay(one, x, w, dtype) == replay(other, x, w, dtype)).all()


class Digits(Kernel):
    """The claim in its first filter; in each other one a node keeps so many digits instead.

    ``nodes``: (node, digits, whether the node is rounded to float32 then) of every other filter.
    """

    def __init__(self, claim, nodes):
        super().__init__([claim], [range(1 + len(nodes))], len(claim.tree.leaves))
        self.nodes = [(-1, 24, False), *nodes]

    def _outputs(self, number, x, w):
        (odd, digits, narrowed), (tree, rounding) = self.nodes[number], self.summations[0]
        found = dict(enumerate(to_digits(x * w.T, 24)))
        for node, children in enumerate(tree.nodes):
            wide = rounding.accumulator_format == "float64" and node not in rounding.rounded
            kept = digits if node == odd else 53 if wide else 24
            total = to_digits(found[children[0]] + found[children[1]], kept)
            found[~node] = to_digits(total, 24) if narrowed and node == odd else total
        return to_digits(found[~node], 24)


def to_digits(values, digits):
    fraction, power = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(fraction, digits)), power - digits)


@pytest.mark.parametrize("name", ["chain", "lanes", "random"])
def test_a_node_of_any_number_of_digits_is_refuted(name):
    claim = with_style(trees(33)[name], "none")
    root = len(claim.tree.nodes) - 1
    nodes = [(node, digits, False) for node in (0, 9, root - 1) for digits in (20, 23, 25, 26, 40)]
    nodes += [(node, digits, True) for node in (0, 9, root) for digits in (23, 25, 26, 28, 34)]
    found, why = certified(Digits(claim, nodes), claim)
    assert not why and found[0, 0]
    assert not found[0, 1:].any(), [nodes[at] for at in np.flatnonzero(found[0, 1:])]


def test_a_wide_node_of_fewer_digits_is_refuted():
    tree = trees(33)["lanes"]
    rounding = Rounding(accumulator_format="float64", product_format="float32")
    some = replace(rounding, rounded=frozenset({3, 9}))
    for wide in (rounding, some):
        claim = Summation(tree, wide)
        kernel = Digits(claim, [(node, digits, False) for node in (0, 5) for digits in (26, 45)])
        found, why = certified(kernel, claim)
        assert not why and found.tolist() == [[True, *[False] * 4]]


def test_a_budget_of_what_it_costs_is_enough():
    claim = Summation(Tree.lanes(19, 4), Rounding(accumulator_format="float32"))
    given, alone = (claim, 19, False, "float32"), (np.zeros(1, int), np.zeros(1, int))
    cost = 1000 - certificate._Questions(*given, 1000).left
    for budget, holds in ((cost, True), (cost - 1, False)):
        found = certify(Masks(certificate.SummationModel(*given)), claim, alone, budget)
        assert found.holds.all() == holds and bool(found.why) != holds
