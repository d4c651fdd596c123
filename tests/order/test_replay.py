"""Replaying trees: node by node against exact rational arithmetic, in every rounding."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.case.errors import InputError
from probe.order.replay import Picked, partial_sums, replay
from probe.order.summation import EVERY, Rounding, Summation
from probe.order.tree import BIAS, Tree
from tests.exact import rounded
from tests.order.test_tree import any_tree


def slowly(
    tree: Tree, rounding: Rounding, x: list, w: list, dtype: str, bias: float
) -> tuple[float, list[float]]:
    """One output and all sums before it, in rational numbers: the definition of a replay.

    What is flushed is so as by x86, of sums and products that are kept in ``dtype``.
    """
    kept = rounding.accumulator_format or dtype
    least = Fraction(2) ** floats.FORMATS[dtype].emin
    limit = least * (1 - Fraction(1, 2 ** (floats.FORMATS[dtype].precision + 1)))
    last = len(tree.nodes) - 1
    short, both = rounding.short_format, rounding.operand_format

    def to(exact: Fraction, form: str | None) -> Fraction:
        return Fraction(rounded(exact, form)) if form else exact

    def flush(kind: str, number: int, value: Fraction | float, below: Fraction) -> Fraction:
        some = getattr(rounding, f"flushed_{kind}")
        flushed = (number in some or EVERY in some) and abs(value) < below
        return Fraction(0) if flushed else Fraction(value)

    values = {BIAS: to(flush("products", BIAS, bias, least), rounding.bias_format)}
    for leaf in tree.leaves:
        if leaf != BIAS:
            product = to(flush("inputs", leaf, x[leaf], least), rounding.input_format or both)
            product *= to(flush("weights", leaf, w[leaf], least), rounding.weight_format or both)
            if leaf not in rounding.fused or not tree.nodes:
                product = flush("products", leaf, product, limit)
                values[leaf] = to(product, rounding.product_format or kept)
            else:
                values[leaf] = flush("whole", leaf, product, least)
    for node, children in enumerate(tree.nodes):
        exact = sum((values[child] for child in children), Fraction(0))
        exact = flush("sums", node, exact, limit)
        values[~node] = to(to(exact, rounding.intermediate_format), kept)
        if node in rounding.rounded:
            values[~node] = to_dtype(values[~node], dtype, node in rounding.truncated)
        values[~node] = to(values[~node], short if node in rounding.shortened else None)
    alone = to(values[tree.leaves[0]], short if -1 in rounding.shortened else None)
    result = values[~last] if tree.nodes else alone
    partial = [float(values[~node]) for node in range(len(tree.nodes))]
    return float(to_dtype(result, dtype, last in rounding.truncated)), partial


def to_dtype(exact: Fraction, dtype: str, truncated: bool) -> Fraction:
    """Rounded to nearest, or truncated."""
    nearest = Fraction(rounded(exact, dtype))
    if not truncated or abs(nearest) <= abs(exact):
        return nearest
    bits = floats.to_bits(floats.round_to(np.array([float(nearest)]), dtype), dtype)
    return Fraction(float(floats.widen(floats.from_bits(bits - 1, dtype), dtype)[0]))


def any_rounding(rng: np.random.Generator, tree: Tree, dtype: str) -> Rounding:
    def some(numbers: list[int]) -> frozenset[int]:
        return frozenset(one for one in numbers if rng.random() < 0.4)

    def one_of(*values: str | None) -> str | None:
        return values[int(rng.integers(len(values)))]

    wide = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}
    kept = one_of(None, "float64", dtype if dtype == "float64" else "float32")
    last, narrow = len(tree.nodes) - 1, some(list(range(len(tree.nodes))))
    return Rounding(
        fused=some([leaf for leaf in tree.leaves if leaf != BIAS]),
        operand_format=one_of(None, None, "bfloat16", "tf32"),
        accumulator_format=kept,
        rounded=narrow,
        truncated=some([*narrow, last]),
        intermediate_format=one_of(None, wide.get(dtype)) if kept in (None, dtype) else None,
        product_format=one_of(None, dtype),
        input_format=one_of(None, None, "bfloat16", "tf32"),
        weight_format=one_of(None, None, "bfloat16", "tf32"),
        bias_format=one_of(None, "bfloat16", "float16"),
        shortened=some([last, *narrow]),
        short_format=one_of("bfloat16", "float16"),
    )


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_every_node_is_the_exact_sum_of_its_children_rounded_once(dtype: str, seed: int) -> None:
    rng, shape, outputs = np.random.default_rng(seed), (31, 5), 5
    tree = any_tree(rng, 1 + seed % 8)
    rounding = any_rounding(rng, tree, dtype)
    x = floats.round_to(rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 3, shape), dtype)
    w = floats.round_to(rng.standard_normal(shape if seed % 3 else (31, 1)), dtype)
    bias = floats.round_to(rng.standard_normal(outputs), dtype) if BIAS in tree.leaves else None
    got = replay(Summation(tree, rounding), x, w, dtype, bias)
    wide_x = floats.widen(x, dtype)
    wide_w = np.broadcast_to(floats.widen(w, dtype), shape)
    adds = np.zeros(outputs) if bias is None else floats.widen(bias, dtype)
    expected = [
        slowly(tree, rounding, wide_x[:, i].tolist(), wide_w[:, i].tolist(), dtype, adds[i])
        for i in range(outputs)
    ]
    outputs_ = floats.round_to(np.array([output for output, _ in expected]), dtype)
    assert ulp.equal(got, outputs_, dtype), (tree.text, rounding)
    columns = np.array([3, 0, 3, 4, 1, 2, 2])
    again = Picked(w, np.zeros(7, int) if w.shape[1] == 1 else columns)
    some = None if bias is None else bias[columns]
    got = replay(Summation(tree, rounding), Picked(x, columns), again, dtype, some)
    assert ulp.equal(got, outputs_[columns], dtype)
    some = None if bias is None else bias[:1]
    steps = partial_sums(Summation(tree, rounding), x[:, :1], w[:, :1], dtype, some)
    assert [step.value for step in steps] == expected[0][1]
    for node, step in enumerate(steps):
        form = dtype if node in rounding.rounded else rounding.accumulator_format or dtype
        bits = floats.to_bits(floats.round_to(np.array([step.value]), form), form)
        assert (step.node, step.format, step.bits) == (node, form, int(bits[0]))
        names = [f"#{~c}" if c < 0 else "b" if c == BIAS else str(c) for c in tree.nodes[node]]
        assert list(step.terms) == names


@pytest.mark.parametrize("build", [Tree.sequential, Tree.pairwise, lambda n: Tree.lanes(n, 8)])
def test_blocks_of_outputs_do_not_show(build) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((37, 40_000)).astype(np.float32)
    w = rng.standard_normal((37, 1)).astype(np.float32)
    tree = build(37)
    summation = Summation(tree, Rounding.fused_everywhere(tree))
    whole = replay(summation, x, w, "float32")
    for place in (0, 16_383, 16_384, 39_999):
        column = x[:, place : place + 1]
        assert replay(summation, column, w, "float32")[0] == whole[place]
        last = partial_sums(summation, column, w, "float32")[-1]
        assert last.bits == whole[place : place + 1].view(np.uint32)[0]


def test_the_report_of_five_products_differs_between_two_orders() -> None:
    """Weights and ramp of the report; bits as TensorFlow gave them on x86-64 (see its history)."""
    w = np.float32([[-0.7313], [-1.1043], [1.8492], [1.3007], [-0.1033]])
    x = np.float32([[10 * (k + o) for o in range(3)] for k in range(5)])
    sequential = replay(Summation(Tree.parse("(((((0+1)+2)+3)+4)+b)")), x, w, "float32", 0.0401)
    packets = replay(Summation(Tree.parse("((((0+1)+(2+3))+4)+b)")), x, w, "float32", 0.0401)
    assert [hex(bits) for bits in packets.view(np.uint32)[:1]] == ["0x42737afd"]
    assert not ulp.equal(sequential, packets, "float32")
    chain = Tree.sequential([0, 1, 2, 3, 4, BIAS])
    fused = replay(Summation(chain, Rounding.fused_everywhere(chain)), x, w, "float32", 0.0401)
    assert [hex(bits) for bits in fused.view(np.uint32)] == [
        "0x42737afb",
        "0x4291f5cf",
        "0x42aa2e21",
    ]


def test_partial_sums_are_shown_in_order_with_their_bits() -> None:
    x, w = np.float32([[1], [2], [0.1]]), np.float32([[1], [1], [1]])
    steps = partial_sums(Summation(Tree.parse("((0+1)+2)")), x, w, "float32")
    assert [step.text for step in steps] == [
        "s0 = p0 + p1 = 3.0 (0x40400000)",
        "s1 = s0 + p2 = 3.1 (0x40466666)",
    ]


def test_what_does_not_fit_says_so() -> None:
    x, w, tree = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32), Tree.sequential(2)
    narrow = Summation(tree, Rounding(accumulator_format="float32"))
    for why, *given in (
        ("leaf 2 has no row in x", Summation(Tree.sequential(3)), x, w, "float32"),
        ("the tree has no leaf b", Summation(tree), x, w, "float32", 1.0),
        ("the tree adds a bias", Summation(Tree.sequential([0, 1, BIAS])), x, w, "float32"),
        (r"are \(leaves, outputs\)", Summation(tree), x, w.T, "float32"),
        ("partial sums of float64", narrow, x.astype(float), w.astype(float), "float64"),
    ):
        with pytest.raises(InputError, match=why):
            replay(*given)
