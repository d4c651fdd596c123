"""Sums of which some are kept in fewer bits than the dtype has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe import floats, ulp
from probe.case import Case
from probe.comparison import ComparedShapes, Revealer, compare_shapes
from probe.launch import InlineSession
from probe.summation import rounding
from probe.summation.certificate import SummationModel
from probe.summation.masks import Masks
from probe.summation.replay import replay
from probe.summation.reveal import RevealedTree
from probe.summation.rounding import result_truncated
from probe.summation.summation import EVERY, Rounding, Summation
from probe.summation.tree import BIAS, Tree
from probe.target import Target
from tests.summation.synthetic import Kernel


def explained(left, right, channels):
    case = Case("matmul", in_channels=channels, filters=2, operands="normal")
    targets = [Target.parse(f"reference,algorithm={name}") for name in (left, right)]
    one, two = map(InlineSession, targets)
    with one, two:
        return compare_shapes(ComparedShapes.named(case, at=2), one, two).reveal(
            one, two, Revealer()
        )


@pytest.mark.parametrize("channels", [5, 40])
def test_a_result_of_fewer_bits_is_a_sum_and_replays(channels):
    found = explained("short", "sequential", channels)
    assert found.replayed == found.compared and set(found.causes) == {"precision"}
    (told,) = found.to_json()["left_orders"]
    assert told["short_format"] == "bfloat16" and told["shortened"] == [channels - 2]


def test_units_that_a_short_result_cannot_count_are_counted_in_parts():
    found = explained("short", "short", 300).left
    assert not found.refusal and found.replays.all() and not found.orders.not_a_sum.any()


def test_sums_that_overflow_at_large_masks_are_asked_with_smaller_ones():
    found = explained("short_sums", "sequential", 9)
    assert found.replayed == found.compared and set(found.causes) == {"precision"}
    (told,) = found.to_json()["left_orders"]
    assert told["short_format"] == "float16" and told["shortened"] == [1, 3, 5, 7]
    assert "flushed_inputs" not in told


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("leaf", [0, 1])
def test_a_product_alone_is_asked_whether_it_is_cut_off(dtype, leaf):
    tree, told = Tree.sequential([leaf]), []
    wide = floats.FORMATS[dtype].wider[0]
    for cut in (frozenset(), frozenset([-1])):
        how = Rounding(accumulator_format=wide, truncated=cut)
        masks = Masks(SummationModel(Summation(tree, how), 2, False, dtype))
        told.append(int(result_truncated(masks, np.array([[[leaf, leaf]]]))[0, 0, 0]))
    assert told == [0, 1]


def answered(question, leaves, dtype="float32", **how):
    """What one output answers that adds (((0+1)+2)+b) with such a rounding; the bias is leaf 3."""
    claim = Summation(Tree.parse("(((0+1)+2)+b)"), Rounding(**how))
    masks = Masks(SummationModel(claim, 3, True, dtype))
    return int(question(masks, np.array([[leaves]]))[0, 0, 0])


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
