"""A picture of counts by target and size, each in the colour of what causes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from probe import plots


def cause_map(axes: Axes, counts: pd.DataFrame, of: pd.DataFrame, causes: pd.DataFrame) -> None:
    """Counts by row (a target) and column in the colour of their main cause; grey where 0.

    ``of``: what each count is a part of; NaN, not measured, leaves the cell white. ``causes``: a
    cause for each cell that is not 0. The three have the same shape.
    """
    rows, columns = counts.shape
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    for (row, column), total in np.ndenumerate(of.to_numpy(dtype=float)):
        if np.isnan(total):
            continue
        count = int(counts.iat[row, column])
        colour = (
            plots.cause_colour(str(causes.iat[row, column])) if count else plots.ULPS["equal"][1]
        )
        axes.add_patch(plt.Rectangle((column, row), 0.96, 0.92, color=colour, lw=0))
        word: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        dark = sum(to_rgb(colour)) < 1.3
        place = (column + 0.48, row + 0.46)
        axes.text(*place, str(count or ""), color="white" if dark else "black", **word)
    axes.set_xticks(np.arange(columns) + 0.48, [str(name) for name in counts.columns])
    axes.set_yticks(np.arange(rows) + 0.46, [str(name) for name in counts.index])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def cause_legend(figure: Figure, causes: Sequence[str]) -> None:
    """A legend under the figure: the causes in ``causes``, in the order of ``CAUSES``."""
    there = [cause for cause in plots.CAUSES if cause in set(causes)]
    there += sorted(set(causes) - set(there))
    patches = [Patch(color=plots.cause_colour(cause), label=cause) for cause in there]
    if patches:
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), fontsize=8)
