"""Pictures of how outputs are added: trees, accumulators, and the summation of each output.

As in ``plots``, every function draws into axes that it is
given, and knows frames as ``probe.notebook`` and ``probe.load`` give them, but neither experiments
nor files.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from probe import operands, plots, window
from probe.case import Case
from probe.order.replay import PartialSum, partial_sums
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree, product
from probe.store.results import Results

Given = tuple[np.ndarray, np.ndarray, "np.ndarray | None"]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7b6f00", "#5b3a8c")
"""Colours of summations, after Okabe and Ito; they repeat where there are more."""

FUSED, ROUNDED, FIRST = "#0072b2", "#e69f00", "#ced4da"
"""A product that enters its addition whole; one rounded before; the first of a sum, which is not
added to anything and so rounds alone."""


def colour(number: int) -> str:
    """The colour of a summation."""
    return COLOURS[number % len(COLOURS)]


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
    reveals: pd.DataFrame, numbers: Mapping[tuple[str, str], int], filters: int, channel: int = 0
) -> pd.DataFrame:
    """The numbers of the summations of one filter: a row a length, a column a position.

    ``reveals``: the rows of one case with ``filters`` filters and one batch entry on one target.
    NaN where there is no output, -1 where it is not known.
    """
    width = max(max(row) for row in reveals.ranges) // filters
    lengths = sorted(reveals["at"].unique())
    grid = pd.DataFrame(np.nan, index=lengths, columns=range(width))
    for row in reveals.itertuples():
        number = numbers.get((row.order_id, row.rounding_id), -1)
        index = indices(row.ranges)
        grid.loc[row.at, index[index % filters == channel] // filters] = number
    return grid


def indices(ranges: Sequence[int]) -> np.ndarray:
    """The flat indices that a stored ``start, stop, start, stop, ...`` stands for."""
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return np.concatenate([np.arange(start, stop) for start, stop in pairs])


def draw_map(axes: Axes, grid: pd.DataFrame) -> None:
    """``way_map`` as coloured cells; black: not known."""
    known = sorted({int(value) for value in grid.to_numpy().ravel() if value == value})
    cells = np.full(grid.shape, np.nan)
    for place, number in enumerate(known):
        cells[grid.to_numpy() == number] = place
    colours = ["#000000" if number < 0 else colour(number) for number in known]
    lengths = grid.index.to_numpy()
    extent = (-0.5, grid.shape[1] - 0.5, lengths[-1] + 0.5, lengths[0] - 0.5)
    axes.imshow(
        _every_length(cells, lengths),
        cmap=ListedColormap(colours).with_extremes(bad="white"),
        vmin=-0.5,
        vmax=len(known) - 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=extent,
    )
    axes.set(xlabel="output", ylabel="length")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))


def _every_length(cells: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Rows for all lengths between the first and the last: those not measured stay white."""
    rows = np.full((lengths[-1] - lengths[0] + 1, cells.shape[1]), np.nan)
    rows[lengths - lengths[0]] = cells
    return rows


def draw(
    axes: Axes,
    summation: Summation,
    sums: Mapping[int, str] | None = None,
    marked: Collection[int] = (),
    dtype: str | None = None,
) -> None:
    """A tree from its products at the bottom to the output at the top.

    Blue leaves enter their addition whole (fused), orange ones are rounded before, grey ones begin
    a sum. ``sums``: text beside each node, by node number; those in ``marked`` stand out.
    ``dtype``: sums that are rounded to it, though others are kept wider, are diamonds. Readable for
    some thirty leaves.
    """
    tree = summation.tree
    x, y = _places(tree)
    for node, children in enumerate(tree.nodes):
        for child in children:
            axes.plot([x[~node], x[child]], [y[~node], y[child]], color="#868e96", lw=1, zorder=1)
    size = 9.0 if len(tree.leaves) <= 12 else 5.5
    kinds = leaf_kinds(summation)
    for leaf in tree.leaves:
        _draw_leaf(axes, (x[leaf], y[leaf]), leaf, kinds.get(leaf, FIRST), size)
    rounded = rounded_nodes(summation, dtype) if dtype else set()
    for node in range(len(tree.nodes)):
        place, ink = (x[~node], y[~node]), plots.DIFFERS if node in marked else "black"
        mark: dict[str, Any] = (
            {"marker": "D", "mfc": "white"} if node in rounded else {"marker": "o", "mfc": ink}
        )
        axes.plot(*place, ms=size * 0.7, mec=ink, zorder=2, **mark)
        if sums:
            _draw_sum(axes, place, sums.get(node, ""), ink, x[~tree.parents.get(~node, node)])
    axes.set_axis_off()
    axes.set_xlim(-0.9 if sums else -0.6, max(x.values()) + 0.6)
    axes.set_ylim(-0.45, max(y.values()) + 0.5)


def _draw_leaf(axes: Axes, place: tuple[float, float], leaf: int, shade: str, size: float) -> None:
    box = {"boxstyle": "round,pad=0.25", "fc": shade, "ec": "none"}
    ink = "white" if shade == FUSED else "black"
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "zorder": 3}
    axes.text(*place, product(leaf), color=ink, bbox=box, **style)


def _draw_sum(axes: Axes, place: tuple[float, float], text: str, ink: str, parent: float) -> None:
    """Text beside a node, on the side where no line goes up."""
    side = 0.1 if place[0] > parent else -0.1
    style: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "bottom", "fontsize": 7.5}
    axes.text(place[0] + side, place[1] + 0.06, text, color=ink, **style)


def _places(tree: Tree) -> tuple[dict[int, float], dict[int, float]]:
    """Where leaves (by number) and nodes (by ~number) stand: leaves as written, nodes above."""
    written = tree.written
    x: dict[int, float] = {leaf: float(place) for place, leaf in enumerate(written)}
    y: dict[int, float] = dict.fromkeys(written, 0.0)
    for node, children in enumerate(tree.nodes):
        x[~node] = float(np.mean([x[child] for child in children]))
        y[~node] = max(y[child] for child in children) + 1
    return x, y


def rounded_nodes(summation: Summation, dtype: str) -> set[int]:
    """Nodes whose sum is rounded to ``dtype``: all of them, or some and the last."""
    count = len(summation.tree.nodes)
    if not summation.wider(dtype):
        return set(range(count))
    return {*summation.rounding.rounded, count - 1}


def leaf_kinds(summation: Summation) -> dict[int, str]:
    """The colour of every product: ``FUSED``, ``ROUNDED`` or ``FIRST``. The bias has none."""
    tree, rounding = summation
    kinds = {leaf: FUSED if leaf in rounding.fused else ROUNDED for leaf in tree.leaves}
    kinds.pop(BIAS, None)
    for children in tree.nodes:
        products = [child for child in children if 0 <= child < BIAS]
        if products and all(child >= 0 for child in children):
            kinds.update({leaf: FIRST for leaf in products[:1] if kinds[leaf] != FUSED})
    return kinds


def kinds_legend(axes: Axes | Figure, **options: Any) -> None:
    """What the three colours of products mean."""
    named = {
        FUSED: "fused: enters the addition whole",
        ROUNDED: "rounded, then added",
        FIRST: "begins a sum",
    }
    axes.legend(handles=[Patch(color=c, label=name) for c, name in named.items()], **options)


def fusion_map(axes: Axes, columns: Sequence[Summation]) -> None:
    """Products down, outputs to the right: which product is fused at which output."""
    leaves = sorted({leaf for tree, _ in columns for leaf in tree.leaves if leaf != BIAS})
    cells = np.full((len(leaves), len(columns)), np.nan)
    shades = (FUSED, ROUNDED, FIRST)
    known = {summation: leaf_kinds(summation) for summation in set(columns)}
    for place, summation in enumerate(columns):
        for row, leaf in enumerate(leaves):
            if leaf in known[summation]:
                cells[row, place] = shades.index(known[summation][leaf])
    colours = ListedColormap(shades).with_extremes(bad="white")
    axes.imshow(cells, cmap=colours, vmin=-0.5, vmax=2.5, aspect="auto", interpolation="nearest")
    axes.set(xlabel="output", ylabel="product")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))


def accumulators(tree: Tree) -> list[list[int]]:
    """The running sums of a tree: each the products that are added to it one after the other.

    A node whose children are all sums begins a new one, without products of its own: it is left
    out, and products that are added to a joined sum are a running sum of their own.
    """
    found: list[list[int]] = []
    runs: dict[int, list[int]] = {}
    for node, children in enumerate(tree.nodes):
        inner = [child for child in children if child < 0]
        leaves = [child for child in children if child >= 0]
        if not leaves:
            continue
        run = runs.get(~inner[0]) if len(inner) == 1 else None
        if run is None:
            run = []
            found.append(run)
        run += leaves
        runs[node] = run
    return found or [list(tree.leaves)]


def draw_accumulators(axes: Axes, tree: Tree) -> None:
    """Which running sum every product goes to, for trees that are too large to draw."""
    runs = accumulators(tree)
    for row, run in enumerate(sorted(runs, key=min)):
        known = [leaf for leaf in run if leaf != BIAS]
        axes.plot(known, [row] * len(known), "-", color="#ced4da", lw=1, zorder=1)
        axes.scatter(known, [row] * len(known), s=4, color=colour(row), zorder=2, linewidths=0)
    axes.set_ylim(max(len(runs), 4) - 0.4, -0.6)
    axes.set(xlabel="product", ylabel="running sum")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


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


def errors_of(
    case: Case, summation: Summation, position: int, channel: int = 0
) -> dict[int, Fraction]:
    """What rounding adds at every node, exactly: its sum minus the exact sum of its children.

    The roundings of products that are not fused are part of it. float32 and float64 alone.
    """
    sums = {~one.node: Fraction(one.value) for one in sums_of(case, summation, position, channel)}
    x, w, _, bias = _met(case, summation, position, channel)
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
