"""What is drawn of a tree is the tree: kinds of products, running sums, errors, maps."""

from fractions import Fraction

import matplotlib
import numpy as np
import pandas as pd
import pytest

import probe
from probe.case.errors import InputError

matplotlib.use("agg")

from matplotlib.figure import Figure

from lib import sums
from probe.case.case import Case
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree
from probe.report import trees

CHAIN, PAIRS = Tree.sequential(5), Tree.pairwise(5)


def test_kinds_of_products():
    assert trees.leaf_kinds(Summation(CHAIN, Rounding.fused_everywhere(CHAIN))) == {
        0: trees.FIRST,
        **dict.fromkeys(range(1, 5), trees.FUSED),
    }
    plain = trees.leaf_kinds(Summation(PAIRS))
    assert [leaf for leaf, kind in plain.items() if kind == trees.FIRST] == [0, 2]
    assert BIAS not in trees.leaf_kinds(Summation(Tree.sequential([0, 1, BIAS])))


@pytest.mark.parametrize(
    ("tree", "runs"),
    [
        (Tree.sequential(4), [[0, 1, 2, 3]]),
        (Tree.lanes(8, 2), [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (Tree.pairwise(5), [[0, 1], [2, 3], [4]]),
        (Tree.sequential(1), [[0]]),
    ],
)
def test_running_sums(tree, runs):
    assert sorted(trees.accumulators(tree)) == runs


def test_sums_of_16_bits_are_rounded_where_they_are_kept_no_wider():
    tree = Tree.sequential([0, 1, 2, BIAS])
    wide = Rounding(accumulator_format="float32", rounded=frozenset({1}))
    assert trees.rounded_nodes(Summation(tree, wide), "float16") == {1, 2}
    assert trees.rounded_nodes(Summation(tree), "float16") == {0, 1, 2}


@pytest.mark.parametrize("bias", [None, 0.0401])
@pytest.mark.parametrize("fused", [False, True])
def test_errors_add_up_to_the_distance_from_the_exact_sum(bias, fused):
    case = Case("conv1d", 5, 2, 3, 9, bias=bias)
    leaves = [*range(10), *([] if bias is None else [BIAS])]
    tree = Tree.pairwise(leaves)
    rounding = Rounding.fused_everywhere(tree) if fused else Rounding()
    summation = Summation(tree, rounding)
    total = sums.sums_of(case, summation, position=2, channel=1)[-1]
    x, w, b = case.operands()
    terms = [
        Fraction(float(x[0, 2 + k, c])) * Fraction(float(w[k, c, 1]))
        for k in range(5)
        for c in range(2)
    ]
    exact = sum(terms) + (0 if b is None else Fraction(float(b[1])))
    errors = sums.errors_of(case, summation, position=2, channel=1)
    assert sum(errors.values()) == Fraction(total.value) - exact


def test_a_map_of_summations_has_a_row_a_length():
    rows = [
        {"at": 5, "order_id": "a", "rounding_id": "r", "outputs": 2, "ranges": [0, 2]},
        {"at": 7, "order_id": "a", "rounding_id": "r", "outputs": 4, "ranges": [0, 4]},
        {"at": 7, "order_id": "b", "rounding_id": "r", "outputs": 2, "ranges": [4, 6]},
    ]
    reveals = pd.DataFrame(rows)
    numbers = sums.numbered(reveals)
    assert numbers == {("a", "r"): 0, ("b", "r"): 1}
    grid = sums.summation_map(reveals, numbers, filters=2)
    assert grid.loc[7].tolist() == [0, 0, 1] and np.isnan(grid.loc[5, 1])
    unknown = reveals.assign(order_id=[None, "a", "b"], rounding_id=[None, "r", "r"])
    assert sums.summation_map(unknown, numbers, filters=2).loc[5, 0] == -1


def test_everything_can_be_drawn():
    summation = Summation(CHAIN, Rounding.fused_everywhere(CHAIN))
    axes = Figure().subplots(5)
    trees.draw(axes[0], summation, sums={0: "0x0"}, marked=[0], dtype="float32")
    trees.draw(axes[1], Summation(Tree.sequential(1)))
    trees.draw_accumulators(axes[2], PAIRS)
    sums.fusion_map(axes[3], [summation, Summation(PAIRS)])
    grid = pd.DataFrame([[0, np.nan], [-1, 1]], index=[5, 8])
    sums.draw_map(axes[4], grid)
    trees.kinds_legend(axes[0])
    assert [text.get_text() for text in axes[0].texts].count("0x0") == 1


def test_joins_of_running_sums_are_drawn_beside_them():
    for tree, joined in ((Tree.lanes(64, 8), 14), (Tree.sequential(64), 0)):
        axes = Figure().subplots()
        trees.draw_accumulators(axes, tree)
        lines = [line for line in axes.lines if line.get_color() == trees.JOINS]
        brackets = [line for line in lines if len(line.get_xdata()) == 3]
        assert len(brackets) == joined
        assert all(min(line.get_xdata()) >= 64 for line in brackets)


def test_the_trees_of_an_order_are_drawn_into_a_file(tmp_path):
    found = probe.order(lambda x: sum(x), 6)
    for name in ("tree.svg", "tree.png"):
        found.save_tree(tmp_path / name)
        assert (tmp_path / name).stat().st_size
    for name in ("tree.dot", "none/tree.svg"):
        with pytest.raises(InputError, match="give a file in a folder that exists, which ends in"):
            found.save_tree(tmp_path / name)
    with pytest.raises(InputError, match="give a case whose outputs are sums"):
        probe.order(lambda x: max(x), 4).save_tree(tmp_path / "no.svg")
