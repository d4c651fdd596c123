"""Draws the orders and roundings of a store, for the notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from probe.case import operands
from probe.case.case import Case
from probe.order import window
from probe.order.replay import PartialSum, partial_sums
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree
from probe.report import trees
from probe.sweep.stored import Results

Given = tuple[np.ndarray, np.ndarray, "np.ndarray | None"]


def stored_summation(results: Results, order_id: str, rounding_id: str) -> Summation:
    """The summation that a row of ``reveals`` names."""
    tree = results.orders.set_index("order_id").tree[order_id]
    rounding = results.roundings.set_index("rounding_id").json[rounding_id]
    return Summation(Tree.parse(tree), Rounding.from_json(json.loads(rounding)))


def numbered(reveals: pd.DataFrame) -> dict[tuple[str, str], int]:
    """Numbers for the (order_id, rounding_id) of ``reveals``: that of most outputs first."""
    outputs = reveals.groupby(["order_id", "rounding_id"]).outputs.sum()
    return {key: n for n, key in enumerate(outputs.sort_values(ascending=False).index)}


def summation_map(
    reveals: pd.DataFrame, numbers: Mapping[tuple[str, str], int], filters: int
) -> pd.DataFrame:
    """The numbers of the summations of the first filter: a row a length, a column a position.

    ``reveals``: the rows of one case with ``filters`` filters and one batch entry on one target.
    NaN where there is no output, -1 where it is not known.
    """
    width = max(max(row) for row in reveals.ranges) // filters
    lengths = sorted(reveals["at"].unique())
    grid = pd.DataFrame(np.nan, index=lengths, columns=range(width))
    for row in reveals.itertuples():
        number = numbers.get((row.order_id, row.rounding_id), -1)
        index = indices(row.ranges)
        grid.loc[row.at, index[index % filters == 0] // filters] = number
    return grid


def indices(ranges: Sequence[int]) -> np.ndarray:
    """The flat indices that a stored ``start, stop, start, stop, ...`` stands for."""
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return np.concatenate([np.arange(start, stop) for start, stop in pairs])


def draw_map(axes: Axes, grid: pd.DataFrame) -> None:
    """``way_map`` as coloured cells; black: not known."""
    known = sorted({int(value) for value in grid.to_numpy().ravel() if value == value})
    colours = ["#000000" if number < 0 else trees.colour(number) for number in known]
    lengths = range(grid.index[0], grid.index[-1] + 1)  # those not measured stay white
    cells = grid.replace({number: place for place, number in enumerate(known)}).reindex(lengths)
    axes.imshow(
        cells.to_numpy(float),
        cmap=ListedColormap(colours).with_extremes(bad="white"),
        vmin=-0.5,
        vmax=len(known) - 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, grid.shape[1] - 0.5, lengths[-1] + 0.5, lengths[0] - 0.5),
    )
    axes.set(xlabel="output", ylabel="length")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))


def fusion_map(axes: Axes, columns: Sequence[Summation]) -> None:
    """Products down, outputs to the right: which product is fused at which output."""
    leaves = sorted({leaf for tree, _ in columns for leaf in tree.leaves if leaf != BIAS})
    cells = np.full((len(leaves), len(columns)), np.nan)
    shades = (trees.FUSED, trees.ROUNDED, trees.FIRST)
    known = {summation: trees.leaf_kinds(summation) for summation in set(columns)}
    for place, summation in enumerate(columns):
        for row, leaf in enumerate(leaves):
            if leaf in known[summation]:
                cells[row, place] = shades.index(known[summation][leaf])
    colours = ListedColormap(shades).with_extremes(bad="white")
    axes.imshow(cells, cmap=colours, vmin=-0.5, vmax=2.5, aspect="auto", interpolation="nearest")
    axes.set(xlabel="output", ylabel="product")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))


def sums_of(
    case: Case, summation: Summation, position: int, channel: int = 0, given: Given | None = None
) -> list[PartialSum]:
    """Every partial sum of one output of ``case`` (its length set) on the case's own operands.

    ``given``: x, w and b as container arrays of the case's shapes, instead of its own operands.
    """
    return partial_sums(summation, *_met(case, summation, position, channel, given))


def _met(
    case: Case, summation: Summation, position: int, channel: int, given: Given | None = None
) -> tuple[Any, ...]:
    """What one output adds: inputs (leaves, 1), weights (leaves, 1), dtype, bias (1,) or None."""
    x, w, b = operands.generate(case) if given is None else given
    group = channel // (case.filters // case.groups)
    met = window.columns(case, x)[group][:, [position]]
    weights = w.reshape(case.summands, case.filters)[:, [channel]]
    bias = b[[channel]] if b is not None and BIAS in summation.tree.leaves else None
    return met, weights, case.dtype, bias


def errors_of(case: Case, summation: Summation, position: int) -> dict[int, Fraction]:
    """What rounding adds at every node, exactly: its sum minus the exact sum of its children.

    Of an output of the first filter. The roundings of products that are not fused are part of it.
    float32 and float64 alone.
    """
    sums = {~one.node: Fraction(one.value) for one in sums_of(case, summation, position)}
    x, w, _, bias = _met(case, summation, position, 0)
    exact: dict[int, Fraction] = {
        leaf: Fraction(float(x[leaf, 0])) * Fraction(float(w[leaf, 0]))
        for leaf in summation.tree.leaves
        if leaf != BIAS
    }
    if bias is not None:
        exact[BIAS] = Fraction(float(bias[0]))
    return {
        node: sums[~node] - sum((exact | sums)[child] for child in children)
        for node, children in enumerate(summation.tree.nodes)
    }
