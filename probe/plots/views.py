"""Draws the pictures that answers show in notebooks, one function a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from probe.comparison import CaseRun, Comparison
from probe.explaining.evidence import Evidence
from probe.invariant import mitigations
from probe.invariant.mitigations import Measured
from probe.plots import pictures, trees
from probe.sweeps import Summary
from probe.switch_points import floors
from probe.switch_points.by_order import ByOrder
from probe.switch_points.search import Thresholds
from probe.window import shown_axis_value

# Summations that are drawn, the most frequent first.
DRAWN = 3


def draw_explained(found: Comparison, evidence: Evidence | None) -> Figure | None:
    """Draws both sides' trees of one output; of sides that agree, how the first output is added."""
    words = [found.words(side) for side in (found.left, found.right)]
    if evidence is not None and evidence.left.summation and evidence.right.summation:
        return trees.sides(evidence, (words[0], words[1]))
    if not found.compared:
        return None
    sides = ((found.left, found.pairs.left), (found.right, found.pairs.right))
    each = [side.summation(places[0]) for side, places in sides]
    both = [(one, word) for one, word in zip(each, words, strict=True) if one is not None]
    return trees.summations(both) if both else None


def draw_ordered(side: CaseRun) -> Figure | None:
    """Draws the trees of the most frequent summations; None where no order is known."""
    orders = side.orders
    if orders is None or not orders.summations:
        return None
    counts = orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])[:DRAWN]
    outputs = {number: f"{counts[number]:,} outputs" for number in ranked}
    return trees.summations([(orders.summations[number], outputs[number]) for number in ranked])


def draw_swept(found: Summary, values: Sequence[int]) -> Figure:
    """Draws |ulp| by target and value of the axis: the largest of each comparison."""
    grid = pd.DataFrame(np.nan, index=list(found.targets), columns=list(values[:-1]))
    for name, one in found.targets.items():
        if one.comparisons:
            grid.loc[name] = 0.0
        for each in one.differences:
            far = np.inf if each.max_ulp is None else float(each.max_ulp)
            grid.loc[name, each.at] = max(grid.loc[name, each.at], far)
    grid.columns = [shown_axis_value(found.vary, value) for value in grid.columns]
    figure, (axes,) = pictures.panels(1, 1, 9.0, 1.6 + 0.35 * len(grid))
    pictures.length_strips(axes, grid)
    axes.set(
        xlabel=found.vary, title=f"|ulp| against {shown_axis_value(found.vary, found.against)}"
    )
    pictures.ulp_legend(figure, grid.to_numpy())
    return figure


def draw_swept_by_order(
    targets: Mapping[str, ByOrder], values: Sequence[int], vary: str
) -> Figure | None:
    """Draws the share of outputs added differently, by target and value of the axis."""
    grid = pd.DataFrame(np.nan, index=list(targets), columns=list(values[:-1]))
    for name, one in targets.items():
        for at in one.values:
            if at.compared > at.unknown:
                grid.loc[name, at.at] = at.outputs / at.compared
    if grid.empty:
        return None
    grid.columns = [shown_axis_value(vary, value) for value in grid.columns]
    figure, (axes,) = pictures.panels(1, 1, 9.0, 1.4 + 0.35 * len(grid))
    image, said = pictures.share_map(axes, grid), "added in a different order or rounding"
    pictures.share_bar(figure, image, [axes], said)
    axes.set_xlabel(vary)
    return figure


def draw_switching(found: Thresholds) -> Figure | None:
    """Draws the sizes of each class, a row a class, and the floor; None where there is no class."""
    every = floors.classes(found)
    if not every:
        return None
    figure, (axes,) = pictures.panels(1, 1, 7.5, 1.2 + 0.3 * len(every))
    rows = [[each for span in one.spans for each in span.drawn] for one in every]
    names = [floors.kind_words(found, one.kind) for one in every]
    pictures.class_spans(axes, rows, names, floors.floor(found).size)
    axes.set(xlabel=f"{found.vary}, {found.target}")
    return figure


def draw_mitigated(found: Measured) -> Figure | None:
    """Draws a bar for each remedy: its cost, coloured by whether it is exact."""
    told: Any = pd.DataFrame(mitigations.remedy_rows(found)["remedies"])
    costs = told.of_fixed.dropna()
    if costs.empty:
        return None
    figure, (axes,) = pictures.panels(1, 1, 7.5, 1.4 + 0.28 * len(costs))
    pictures.cost_bars(axes, told, (min(costs.min(), 1) / 1.3, max(costs.max(), 1) * 1.6))
    axes.set_xlabel(f"time at {found.content:,} over the default's at {found.fixed:,}")
    pictures.verdict_legend(figure)
    return figure
