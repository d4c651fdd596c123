"""Draws networks and remedies: how far to pad, what each remedy costs, where it is exact.

``part`` of each is ``networks.part`` of the network that is drawn: a model that was read in part is
named as one above the picture, null or empty stands for a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from probe.case.floats import rounded_text
from probe.report.plots import DIFFERS, FAINT, OWN, QUIET, STABLE, VERDICTS, note_part

WAYS = {
    "fixed": QUIET,
    "least": DIFFERS,
    "safe": STABLE,
    "layerwise": "#0072b2",
}
"""Ways to run short content, and their colours: red is the one that changes bits."""


def own_mark() -> Line2D:
    """Returns a handle for a legend: what the dot means."""
    return Line2D([], [], label="differs by itself, not only because its inputs differ", **OWN)


def padding_steps(axes: Axes, lengths: pd.DataFrame, part: object = None) -> None:
    """Padded length by content: the least and, where it is another, the safe one.

    ``lengths``: rows of ``padded_lengths`` of one network on one target.
    """
    rows = lengths.sort_values("content")
    content = rows.content.to_numpy(dtype=int)
    least, safe = (rows[name].to_numpy(dtype=int) for name in ("least", "safe"))
    moved = safe > least
    axes.step(content, safe, where="post", color=WAYS["safe"], lw=2.4)
    axes.step(content, least, where="post", color="black", lw=1)
    axes.fill_between(
        content, least, safe, where=moved, step="post", color=WAYS["least"], alpha=0.3
    )
    axes.plot(content, content, color=QUIET, lw=0.8, ls=":")
    axes.set(xlabel="valid length (positions)", ylabel="padded length", ylim=(0, None))
    axes.set_xlim(1, content.max())
    note_part(axes, part)


def steps_legend(figure: Figure) -> None:
    """Draws what the lines of :func:`padding_steps` are."""
    handles = [
        Line2D([], [], color="black", lw=1, label="least length that has every output"),
        Line2D(
            [], [], color=WAYS["safe"], lw=2.4, label="safe: every layer adds as at the full length"
        ),
        Patch(color=WAYS["least"], alpha=0.3, label="between them: bits change"),
        Line2D([], [], color=QUIET, lw=0.8, ls=":", label="the valid length itself"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)


def growth(axes: Axes, scaled: pd.DataFrame, names: Sequence[str], part: object = None) -> None:
    """Draws the largest difference by layer, a line a row: how it grows on the way down."""
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
    for number, (name, values) in enumerate(scaled.iterrows()):
        numbers = values.to_numpy(dtype=float)
        numbers = np.where(numbers > 0, numbers, np.nan)
        shade = colours[number % len(colours)]
        look = "o-" if number < len(colours) else "s--"
        axes.plot(range(len(numbers)), numbers, look, ms=3, lw=1.2, color=shade, label=str(name))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    axes.set_ylabel("largest difference\n(eps x largest activation)")
    axes.grid(axis="y", color="#e9ecef", lw=0.8)
    note_part(axes, part)


def program_bars(
    axes: Axes, counts: pd.DataFrame, sizes: pd.DataFrame, labels: Mapping[str, str]
) -> None:
    """Draws how many of ``sizes`` runs end in different bits, a row a target, a column a way.

    ``least`` is drawn as bars, the share; the other ways as numbers on the right.
    """
    rows, step = np.arange(len(counts)), 0.22
    shares = (counts["least"] / sizes["least"]).to_numpy(dtype=float)
    axes.barh(rows, shares, 0.7, color=WAYS["least"])
    others = [way for way in counts if way != "least"]
    for way in counts:
        beside = way == "least"
        at = shares + 0.01 if beside else np.full(len(rows), 1.07 + step * others.index(way))
        colour = "black" if beside else WAYS[way]
        look: dict[str, Any] = {
            "color": colour,
            "va": "center",
            "ha": "left" if beside else "center",
        }
        for row, x, apart, size in zip(rows, at, counts[way], sizes[way], strict=True):
            if not pd.isna(apart):
                axes.text(x, float(row), f"{int(apart):,} of {int(size):,}", fontsize=7, **look)
        head = 0.01 if beside else at[0]
        axes.text(head, -1.1, labels[way], fontsize=8, **(look | {"color": WAYS[way]}))
    axes.set_yticks(rows, [str(name) for name in counts.index], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -1.5)
    axes.set(xlim=(0, 1.05 + step * (len(others) + 0.1)), xticks=np.arange(0, 0.81, 0.2))
    axes.set_xlabel(
        "share of the valid lengths at which the network gives different bits", loc="left"
    )


def cost_bars(
    axes: Axes, ratios: pd.DataFrame, labels: Mapping[str, str], limit: float | None = None
) -> None:
    """Time against the full size's, a group of bars a row, a bar a way; ``labels`` name them."""
    ways = [way for way in WAYS if way in ratios and way in labels]
    height = 0.8 / len(ways)
    for number, way in enumerate(ways):
        at = np.arange(len(ratios)) + (number - (len(ways) - 1) / 2) * height
        values = ratios[way].to_numpy(dtype=float)
        look: dict[str, Any] = {"height": height * 0.92, "color": WAYS[way], "label": labels[way]}
        axes.barh(at, values, **look)
        for place, value in zip(at, values, strict=True):
            if not np.isnan(value):
                box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
                axes.text(value + 0.01, place, f"{value:.2f}", va="center", fontsize=7, bbox=box)
    axes.axvline(1, color=QUIET, lw=1)
    if limit is not None:
        axes.axvline(limit, color="black", lw=1, ls="--")
    axes.set_yticks(range(len(ratios)), [str(name) for name in ratios.index])
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.set_xlim(0, max(1.15, float(np.nanmax(ratios.to_numpy(dtype=float))) * 1.12))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time of a call, as a share of the full length's")


def cost_table(axes: Axes, rows: pd.DataFrame, columns: Sequence[str], column: str) -> None:
    """Draws rows of ``remedies`` of one target: a line a remedy, a column a value of ``column``.

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
