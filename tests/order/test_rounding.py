"""Where sums round: short results, wide accumulators, what is cut off, and the sign of zero."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.case.case import Case
from probe.order import rounding
from probe.order.masks import Masks
from probe.order.replay import replay, starts
from probe.order.reveal import RevealedTree
from probe.order.rounding import (
    result_truncated,
    signs_of_zero,
    start_of_answers,
    starts_of_outputs,
)
from probe.order.summation import EVERY, ZERO_ADDED, ZERO_FUSED, ZERO_KEPT, Rounding, Summation
from probe.order.tree import BIAS, Tree
from tests.order.synthetic import Kernel, compared, model_of
from tests.order.test_tree import any_tree


def explained(left, right, channels):
    case = Case("matmul", in_channels=channels, filters=2, operands="normal")
    return compared(case, left, right, 2)


@pytest.mark.parametrize(
    ("algorithm", "channels", "form", "nodes"),
    [
        ("short", 5, "bfloat16", [3]),
        ("short", 40, "bfloat16", [38]),
        ("short_sums", 9, "float16", [1, 3, 5, 7]),  # overflow at large masks: smaller ones ask
    ],
)
def test_results_and_sums_of_fewer_bits_are_sums_and_replay(algorithm, channels, form, nodes):
    found = explained(algorithm, "sequential", channels)
    assert found.replayed == found.compared and set(found.causes) == {"precision"}
    (told,) = found.to_json()["left_orders"]
    assert told["short_format"] == form and told["shortened"] == nodes
    assert form == "bfloat16" or "flushed_inputs" not in told


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("leaf", [0, 1])
def test_a_product_alone_is_asked_whether_it_is_cut_off(dtype, leaf):
    tree, told = Tree.sequential([leaf]), []
    wide = floats.FORMATS[dtype].wider[0]
    for cut in (frozenset(), frozenset([-1])):
        how = Rounding(accumulator_format=wide, truncated=cut)
        masks = Masks(model_of(Summation(tree, how), 2, False, dtype))
        told.append(int(result_truncated(masks, np.array([[[leaf, leaf]]]))[0, 0, 0]))
    assert told == [0, 1]


def answered(question, leaves, dtype="float32", **how):
    """What one output answers that adds (((0+1)+2)+b) with such a rounding; the bias is leaf 3."""
    claim = Summation(Tree.parse("(((0+1)+2)+b)"), Rounding(**how))
    masks = Masks(model_of(claim, 3, True, dtype))
    return int(question(masks, np.array([[leaves]]))[0, 0, 0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_wider_sums_and_roundings_on_their_way_are_told(dtype):
    for wide in floats.FORMATS[dtype].wider:
        assert answered(rounding.kept_wider, [0, 1, 2], dtype, accumulator_format=wide) == 1
        narrow = {"accumulator_format": wide, "rounded": frozenset([0])}
        assert answered(rounding.kept_wider, [0, 1, 2], dtype, **narrow) == 0
    assert answered(rounding.kept_wider, [0, 1, 2], dtype) == 0
    fused = frozenset([1, 2])
    twice = floats.FORMATS[dtype].wider[0]
    assert answered(rounding.rounded_twice, [2, 0], dtype, fused=fused) == 0
    told = answered(rounding.rounded_twice, [2, 0], dtype, fused=fused, intermediate_format=twice)
    assert told == 1


@pytest.mark.parametrize("leaf", [0, 2])
def test_which_operand_is_shortened_and_to_which_bits_is_told(leaf):
    for name, number in (("bfloat16", 1), ("tf32", 2), ("float16", 2)):
        told = [
            answered(rounding.shortened_operands, [leaf], **{f"{which}_format": name})
            for which in ("input", "weight", "operand")
        ]
        assert told == [number, 3 * number, 4 * number]
    assert answered(rounding.shortened_operands, [leaf]) == 0


def test_a_bias_and_sums_of_16_bits_are_told_by_what_is_lost():
    for name, number in (("bfloat16", 1), ("float16", 2)):
        assert answered(rounding.rounded_bias, [3, 0], bias_format=name) == number
        for node, leaves in ((0, [0, 1, 2]), (1, [0, 2, 3])):
            how = {"shortened": frozenset([node]), "short_format": name}
            assert answered(rounding.shortened, leaves, **how) == number
            assert answered(rounding.shortened, [0, 3, -1], **how) == 0
        root = {"shortened": frozenset([2]), "short_format": name}
        assert answered(rounding.shortened, [0, 3, -1], **root) == number
    assert answered(rounding.rounded_bias, [3, 0]) == 0
    assert answered(rounding.shortened, [0, 1, 2]) == 0


def roundings_of(tree, dtype, rng):
    """Roundings that processors have, of this tree's nodes."""
    every = Rounding.fused_everywhere(tree, dtype)
    nodes, root = frozenset(range(len(tree.nodes) - 1)), len(tree.nodes) - 1
    some = frozenset(leaf for leaf in every.fused if rng.random() < 0.5)
    yield from (replace(every, fused=fused) for fused in (every.fused, frozenset(), some))
    if dtype != "float16":  # whose smallest number is the unit of masks
        both = frozenset([EVERY])
        yield replace(every, flushed_inputs=both, flushed_weights=both, flushed_sums=both)
        for kind in (None, "before", "grid"):
            yield replace(every, fused=frozenset(), flushed_products=both, tininess=kind)
        yield replace(every, flushed_sums=frozenset([0]) if len(nodes) else frozenset())
    if dtype == "float64":
        return
    wide = floats.FORMATS[dtype].wider[0]
    kept = replace(every, accumulator_format=wide, product_format=dtype)
    for fused in (frozenset(leaf for leaf in tree.leaves if leaf != BIAS), frozenset()):
        yield replace(kept, fused=fused)
        yield replace(kept, fused=fused, rounded=frozenset(n for n in nodes if rng.random() < 0.5))
        yield replace(kept, fused=fused, truncated=frozenset([root]))
    if dtype != "float32":
        yield replace(every, intermediate_format=wide)
    else:
        yield replace(every, fused=frozenset(), input_format="bfloat16")
        if BIAS in tree.leaves:
            yield replace(every, fused=frozenset(), bias_format="bfloat16")
        if tree.nodes:
            yield replace(every, shortened=nodes | {root}, short_format="bfloat16")
            yield replace(kept, operand_format="tf32", fused=frozenset(), accumulator_format=dtype)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("text", ["(((0+1)+2)+(3+4))", "((0+b)+2)", "2"])
def test_what_is_revealed_of_a_rounding_gives_its_bits(text, dtype, wide):
    """Each filter rounds in a way of its own; what is told of it gives its bits."""
    tree, rng = Tree.parse(text), np.random.default_rng(len(text))
    every = [Summation(tree, one) for one in roundings_of(tree, dtype, rng)]
    truth = list(dict.fromkeys(one for one in every if one.wider(dtype) == wide))
    kernel = Kernel(truth, [range(len(truth))] * 2, 6, bias=BIAS in tree.leaves, dtype=dtype)
    pieces = [RevealedTree(tree, np.array([n]), np.arange(2)) for n in range(len(truth))]
    told = rounding.reveal_roundings(Masks(kernel), pieces, True)
    found = {int(one.filters[0]): one for one in told}
    form, shape = floats.FORMATS[dtype], (6, 150)
    for number, true in enumerate(truth):
        told = found[number]
        assert told.summation.tree == tree and told.positions.tolist() == [0, 1]
        flushed, kinds = true.rounding.flushed_products, (true, told.summation)
        assert not flushed or len({one.rounding.tininess for one in kinds}) == 1
        for power in (0, form.emin // 2):
            x, w = rng.standard_normal((2, *shape)) * 2.0 ** (power + rng.integers(-2, 2, shape))
            bias = rng.standard_normal(150) * 2.0 ** (2 * power) if BIAS in tree.leaves else None
            given = [None if a is None else floats.round_to(a, dtype) for a in (x, w, bias)]
            bits = [replay(one, *given[:2], dtype, given[2]) for one in (true, told.summation)]
            assert ulp.equal(*bits, dtype), (true.rounding, told.summation.rounding)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_trees_of_any_size_are_asked_together(dtype, alone):
    """At each position another one, the filters alike: a bias or a product alone among them."""
    trees = [
        *map(Tree.parse, ("b", "2", "(0+b)", "(0+1+2)", "(((0+1)+2)+(3+4))")),
        Tree.lanes(6, 2),
    ]
    truth = [Summation(tree, Rounding(accumulator_format=dtype)) for tree in trees]
    kernel = Kernel(truth, np.arange(6)[:, None].repeat(2, 1), 6, bias=True, dtype=dtype)
    pieces = [RevealedTree(tree, np.arange(2), np.array([n])) for n, tree in enumerate(trees)]
    found = rounding.reveal_roundings(Masks(kernel), pieces, alone)
    assert {int(one.positions[0]): one.summation for one in found} == dict(enumerate(truth))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_filters_that_flush_otherwise_are_told_apart(dtype):
    """All of one tree, and taken to be alike before they are asked."""
    tree, every = Tree.lanes(9, 2), frozenset([EVERY])
    # of flushed products and sums it can not be told at once what their operands were
    sets = [(), ("inputs",), ("weights",), ("inputs", "weights"), ("products",), ("sums",)]
    sets.append(("products", "sums"))
    truth = [
        Rounding(accumulator_format=dtype, **{f"flushed_{one}": every for one in some})
        for some in sets
    ]
    kernel = Kernel([Summation(tree, one) for one in truth], [range(len(truth))], 9, dtype=dtype)
    piece = RevealedTree(tree, np.arange(len(truth)), np.zeros(1, int))
    found = rounding.reveal_roundings(Masks(kernel), [piece])
    told = {filt: one.summation.rounding for one in found for filt in one.filters.tolist()}
    for number, true in enumerate(truth):
        # what a sum counts as subnormal is read off a product, which may not be flushed
        assert replace(told[number], tininess=None) == true, sets[number]


ZEROS = Case("matmul", in_channels=6, filters=4, length=3)


def explained_zeros(left, right, dtype="float32", zeros="equal"):
    """Inputs of zero in one row, weights of either sign: filter 0 has negative ones alone."""
    case = ZEROS.with_(dtype=dtype)

    def given(side):
        x, w, _ = (one if one is None else one.astype(float) for one in ZEROS.operands())
        x[:, 1], w[..., 0] = 0.0, -np.abs(w[..., 0])
        return floats.round_to(x, dtype), floats.round_to(w, dtype), None

    return compared(case, left, right, 3, None, given, zeros)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_zeros_of_other_signs_are_counted_or_differ(dtype):
    counted = explained_zeros("from_zero", "sequential", dtype)
    assert not len(counted.differing) and counted.to_json()["signed_zero"] == 1
    (left,), (right,) = counted.left.orders.summations, counted.right.orders.summations
    assert left == right and "zero" not in left.rounding.to_json(), "no signs were wanted"
    found = explained_zeros("from_zero", "sequential", dtype, "differ")
    assert found.ulps.tolist() == [0] and found.signed_zero == 1 and found.max_ulp == 0
    assert found.causes == {"rounding": 1} and found.replayed == found.compared
    (left,), (right,) = found.left.orders.summations, found.right.orders.summations
    assert (left.rounding.zero, right.rounding.zero) == (ZERO_ADDED, ZERO_KEPT)
    assert "-0: kept" in right.formats(dtype)


@pytest.mark.parametrize(
    ("how", "signs"),
    [(None, [1, 1, 1]), (ZERO_KEPT, [1, 1, 1]), (ZERO_ADDED, [0, 0, 1]), (ZERO_FUSED, [0, 1, 1])],
)
def test_how_a_sum_starts_decides_the_sign_of_zero(how, signs):
    x = np.float32([[0, 2.0**-100, 1], [0, 0, 0]])
    w = np.float32([[-1, -(2.0**-100), -1], [-1, -1, -1]])
    for fused in (frozenset(), frozenset([1])):
        rounding = Rounding(fused, zero=how)
        got = replay(Summation(Tree.sequential(2), rounding), x, w, "float32")
        assert np.signbit(got).tolist() == [bool(sign) for sign in signs]
        assert Rounding.from_json(rounding.to_json()) == rounding


def test_what_starts_a_sum_and_what_two_answers_stand_for():
    rng = np.random.default_rng(6)
    for trial in range(60):
        tree = any_tree(rng, 1 + trial % 8)
        fused = {leaf for leaf in tree.leaves if rng.random() < 0.4} - {BIAS}
        lowest = [node for node in tree.nodes if min(node) >= 0 and BIAS not in node]
        first = [next((leaf for leaf in node if leaf not in fused), None) for node in lowest]
        alone = set(tree.leaves) - {BIAS} if not tree.nodes else set()
        assert starts(tree, fused) == {one for one in first if one is not None} | alone
    both = np.array([[[0, 0], [1, 1]], [[0, 1], [0, 1]]])
    words = [[ZERO_ADDED, ZERO_FUSED], [ZERO_KEPT, ZERO_KEPT]]
    assert [[start_of_answers(both[:, k, n]) for n in (0, 1)] for k in (0, 1)] == words
    masks = SimpleNamespace(zeros=both.astype(np.int8))
    assert starts_of_outputs(masks).tolist() == words


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("how", [ZERO_KEPT, ZERO_ADDED, ZERO_FUSED])
def test_the_sign_of_a_sum_of_zeros_is_asked_once(how, dtype):
    for tree in (Tree.sequential([0, 1, 2, BIAS]), Tree.lanes(4, 2)):
        # what is rounded, added to +0, and then followed by fused products answers as if all were
        for fused in {frozenset(), frozenset([1] * (how != ZERO_ADDED))}:
            summation = Summation(tree, Rounding(fused, zero=how))
            masks = Masks(model_of(summation, 4, BIAS in tree.leaves, dtype), signed=True)
            assert starts_of_outputs(masks).tolist() == [[how]]
            assert signs_of_zero(masks) is masks.zeros and masks.calls == 2
