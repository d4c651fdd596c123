"""Remedies: bars of what each costs, tables of where it is exact, its cost against its error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from probe.floats import rounded_text
from probe.plots import DIFFERS, QUIET, STABLE

VERDICTS = {"exact": STABLE, "differs": DIFFERS, "not known": QUIET}
"""Colours of verdicts."""
FAINT = {"exact": "#cfe8dd", "differs": "#f6cdd8", "not known": "#e4e7ea"}
"""The same behind numbers."""


def cost_bars(
    axes: Axes,
    rows: pd.DataFrame,
    limits: tuple[float, float],
    lines: Sequence[float] = (1.0,),
) -> None:
    """Rows of ``remedies`` of one subject and target: a bar each, the cheapest on top.

    How long it takes over padding everything (``of_fixed``), logarithmic between ``limits``; the
    colour is the verdict, the recommended one is bold. ``lines``: dashed, at these costs.
    """
    rows = rows.dropna(subset="of_fixed").sort_values("of_fixed", ascending=False)
    places, least = np.arange(len(rows)), limits[0]
    axes.barh(
        places,
        rows.of_fixed - least,
        left=least,
        height=0.66,
        color=[VERDICTS[verdict] for verdict in rows.verdict],
    )
    for place, cost in zip(places, rows.of_fixed, strict=True):
        axes.annotate(
            rounded_text(cost),
            (cost, place),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    for line in lines:
        axes.axvline(line, color=QUIET, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(places, rows.remedy)
    for label, best in zip(axes.get_yticklabels(), rows.recommended, strict=True):
        label.set_fontweight("bold" if best else "normal")


def cost_table(axes: Axes, rows: pd.DataFrame, columns: Sequence[str], column: str) -> None:
    """Rows of ``remedies`` of one target: a line a remedy, a column a value of ``column``.

    A cell holds what it costs over the default; its colour is the verdict, the recommended one is
    bold. White: not measured.
    """
    remedies = list(dict.fromkeys(rows.remedy))
    names = list(VERDICTS)
    cells = np.full((len(remedies), len(columns)), np.nan)
    for row in rows.itertuples():
        place = remedies.index(row.remedy), columns.index(getattr(row, column))
        cells[place] = names.index(row.verdict)
        axes.text(
            place[1],
            place[0],
            rounded_text(row.ratio),
            ha="center",
            va="center",
            fontsize=8,
            fontweight="bold" if row.recommended else "normal",
            color="black",
        )
    colours = ListedColormap(list(FAINT.values())).with_extremes(bad="white")
    axes.imshow(np.ma.masked_invalid(cells), colours, vmin=0, vmax=2, aspect="auto")
    axes.set_yticks(range(len(remedies)), remedies)
    axes.set_xticks(range(len(columns)), columns)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(remedies) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def error_bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Rows of ``remedies`` of one subject: how far each is from exact, the farthest on top."""
    rows = rows.dropna(subset="error_rms").sort_values("error_rms", kind="stable")
    places = np.arange(len(rows))
    colours = [VERDICTS[verdict] for verdict in rows.verdict]
    axes.barh(places, rows.error_rms, height=0.66, color=colours)
    axes.set_yticks(places, rows.remedy)
    axes.set_xlim(0, None)


def verdict_legend(figure: Figure, faint: bool = False) -> None:
    """A legend under the figure; ``faint``: of tables, whose colours are behind numbers."""
    colours = FAINT if faint else VERDICTS
    words = {"exact": "exact, by order", "differs": "lengths differ", "not known": "not known"}
    patches = [Patch(color=colours[name], label=text) for name, text in words.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=3, fontsize=8)
