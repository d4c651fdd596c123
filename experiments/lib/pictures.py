"""Draws comparisons and causes from a store, for the notebooks.

Every function draws into axes that it is given, and knows frames as ``probe.load`` and
``lib.notebook`` give them, but neither experiments nor files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import Blues
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from probe.case.floats import rounded_text
from probe.report.plots import (
    DIFFERS,
    FAINT,
    QUIET,
    STABLE,
    ULPS,
    VERDICTS,
    draw_ulps,
    ulp_colour,
)

CAUSES = {
    "window": "#009e73",
    "reach": "#8c6bb1",
    "order": "#0072b2",
    "rounding": "#e69f00",
    "order+rounding": "#56b4e9",
    "precision": "#cc79a7",
    "flush": "#8c564b",
    "alignment": "#17becf",
    "nondeterministic": "#f0e442",
    "place": "#d55e00",
    "argument": "#c7e9c0",
    "not-a-sum": "#999999",
    "unexplained": "#000000",
}
"""Colours of causes, after Okabe and Ito; a cause made of others that isn't here is dark blue."""

OTHER_CAUSE = "#1f3b73"


def length_map(comparisons: pd.DataFrame, differences: pd.DataFrame) -> pd.DataFrame:
    """|ulp| of one case on one target: a row a length, a column a position on the last axis.

    The largest over batch, rows and filters; 0 where they agree, infinity where there is no
    number, NaN where the length has no such position. For cases without padding.
    """
    lengths = comparisons.sort_values("at")
    outputs = (lengths.compared // (lengths.filters * lengths.batch)).to_numpy()
    columns = np.arange(outputs.max(initial=0))
    values = np.where(columns < outputs[:, None], 0.0, np.nan)
    found = pd.DataFrame(values, index=lengths["at"].to_numpy(), columns=columns)
    sizes = differences.ulp.astype("Float64").abs().fillna(np.inf)
    for (at, position), size in (
        sizes.groupby([differences["at"], differences.position]).max().items()
    ):
        found.loc[at, position] = size
    return found


def heat_map(axes: Axes, grid: pd.DataFrame) -> None:
    """|ulp| by length (downwards) and output position: see :func:`length_map`."""
    top, bottom = grid.index[0] - 0.5, grid.index[-1] + 0.5
    edges = (-0.5, grid.shape[1] - 0.5, bottom, top)
    every = grid.reindex(range(grid.index[0], grid.index[-1] + 1))
    draw_ulps(axes, every, extent=edges)
    axes.set(xlabel="output", ylabel="length")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True))


def cells(
    axes: Axes, colours: pd.DataFrame, texts: pd.DataFrame, bold: pd.DataFrame | None = None
) -> None:
    """Draws a table: a coloured cell each with its text, white on dark colours.

    The frames have the same shape; where there is no colour the cell stays white.
    """
    rows, columns = colours.shape
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    for place, colour in np.ndenumerate(colours.to_numpy(dtype=object)):
        if pd.isna(colour):
            continue
        row, column = place
        axes.add_patch(plt.Rectangle((column, row), 0.96, 0.92, color=colour, lw=0))
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        look["color"] = "white" if sum(to_rgb(colour)) < 1.3 else "black"
        if bold is not None and bold.iat[place]:
            look["weight"] = "bold"
        axes.text(column + 0.48, row + 0.46, texts.iat[place], **look)
    axes.set_xticks(np.arange(columns) + 0.48, [str(name) for name in colours.columns])
    axes.set_yticks(np.arange(rows) + 0.46, [str(name) for name in colours.index])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def bits_table(axes: Axes, bits: pd.DataFrame, ulps: pd.DataFrame) -> None:
    """Draws bit patterns as hexadecimal text, each on the colour of its distance in ``ulps``.

    ``bits``: integers, missing where there is none, a column for each length and output. ``ulps``:
    the same shape.
    """
    colours = ulps.astype(float).map(ulp_colour).where(bits.notna())
    colours.columns = [f"length {length}\noutput {output}" for length, output in bits.columns]
    cells(axes, colours, bits.map("{:08x}".format, na_action="ignore"))
    axes.xaxis.tick_top()


def agreement(digests: pd.DataFrame) -> pd.DataFrame:
    """How many columns every two rows have in common, where both have something."""
    values = digests.to_numpy(dtype=object)
    same = [[int(np.sum((a == b) & pd.notna(a))) for b in values] for a in values]
    return pd.DataFrame(same, index=digests.index, columns=digests.index)


def agreement_matrix(axes: Axes, shared: pd.DataFrame) -> None:
    """Draws how often every two targets give the same bits: see :func:`agreement`."""
    most = shared.to_numpy().max(initial=1)
    cells(axes, shared.map(lambda count: to_hex(Blues(count / most / 1.25))), shared.astype(str))
    axes.tick_params(axis="x", labelrotation=40)
    plt.setp(axes.get_xticklabels(), ha="right", rotation_mode="anchor")


def grouped_alike(shared: pd.DataFrame) -> list[Any]:
    """The rows of :func:`agreement`, those that agree most next to each other."""
    left: list[Any] = list(shared.index)
    found: list[Any] = []
    while left:
        last = max(left, key=lambda name: shared.loc[found[-1], name]) if found else left[0]
        found.append(last)
        left.remove(last)
    return found


def stacked_shares(axes: Axes, counts: pd.DataFrame, colours: Sequence[str]) -> None:
    """Draws rows as bars of one length, split by column; the row's sum is written at its end."""
    totals = counts.sum(axis=1)
    shares = counts.div(totals.where(totals > 0, 1), axis=0)
    shares.plot.barh(stacked=True, width=0.8, color=list(colours), ax=axes, legend=False, ylabel="")
    for row, total in enumerate(totals):
        axes.text(1.01, row, f"{int(total):,}", va="center", fontsize=8)
    axes.set(xlim=(0, 1), ylim=(len(counts) - 0.5, -0.5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.tick_params(axis="y", length=0)


def spread(axes: Axes, values: Mapping[str, Any]) -> None:
    """Positive numbers by row on a logarithmic axis, each a dot; the median and the largest."""
    random = np.random.default_rng(0)
    for row, (_, sample) in enumerate(values.items()):
        numbers = np.asarray(sample, dtype=float)
        height = row + random.uniform(-0.28, 0.28, numbers.size)
        axes.plot(numbers, height, ".", ms=2.5, color=DIFFERS, alpha=0.35, rasterized=True)
        if numbers.size:
            middle = float(np.median(numbers))
            axes.plot([middle, middle], [row - 0.36, row + 0.36], color="black", lw=1.5)
            largest: dict[str, Any] = {"ha": "left", "va": "center", "fontsize": 8}
            axes.annotate(f"  {numbers.max():.2g}", (numbers.max(), row), **largest)
    axes.set_xscale("log")
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def cause_colour(cause: str) -> str:
    return CAUSES.get(cause, OTHER_CAUSE)


def cause_bars(axes: Axes, counts: pd.DataFrame) -> None:
    """Differing outputs by row (a target, ...), split by cause: a column a cause."""
    known = [cause for cause in CAUSES if cause in counts]
    order = [*known, *(cause for cause in counts if cause not in CAUSES)]
    stacked_shares(axes, counts[order], [cause_colour(cause) for cause in order])
    axes.set_xlabel("share of the differing outputs, whose number is on the right")


def cause_map(axes: Axes, counts: pd.DataFrame, of: pd.DataFrame, causes: pd.DataFrame) -> None:
    """Counts by row (a target) and column in the colour of their main cause; grey where 0.

    ``of``: what each count is a part of; NaN, not measured, leaves the cell white. ``causes``: a
    cause for each cell that is not 0. The three have the same shape.
    """
    colours = causes.map(cause_colour).where(counts > 0, ULPS["equal"][1]).where(of.notna())
    cells(axes, colours, counts.map(lambda count: str(count or "")))


def cause_legend(
    figure: Figure,
    causes: Sequence[str],
    cell: str = "",
    white: str = "",
    more: Sequence[Artist] = (),
) -> None:
    """Draws a legend under the figure: the causes in ``causes``, in the order of ``CAUSES``.

    ``cell``: what the number in a cell counts; the colour is then the cause of most of them.
    ``white``: what a white cell means. ``more``: handles of what else is drawn.
    """
    there = [cause for cause in CAUSES if cause in set(causes)]
    there += sorted(set(causes) - set(there))
    handles = [*(Patch(color=cause_colour(cause), label=cause) for cause in there), *more]
    words = [f"a number: {cell}", "its colour: the cause of most of them"] if cell else []
    words += ["grey: no difference"] if cell else []
    words += [f"white: {white}"] if white else []
    if handles:
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles)}
        title = "; ".join(words) or None
        figure.legend(handles=handles, title=title, title_fontsize=8, fontsize=8, **place)


def dots(axes: Axes, values: Mapping[str, Sequence[float]], limit: float) -> None:
    """Repeated measurements by row: every one as a dot, the median as a bar, which should be below
    the limit."""
    for row, sample in enumerate(values.values()):
        middle = float(np.median(sample))
        colour = STABLE if middle <= limit else DIFFERS
        axes.plot(sample, np.full(len(sample), row), ".", color=colour, alpha=0.35)
        axes.plot([middle, middle], [row - 0.3, row + 0.3], color=colour, lw=2.5)
        axes.annotate(f"{middle:.3g}", (middle, row - 0.32), ha="center", va="bottom", color=colour)
    axes.axvline(limit, color=QUIET, ls="--", lw=1)
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.7)
    axes.tick_params(axis="y", length=0)


def dots_legend(figure: Figure) -> None:
    """Draws what the marks of :func:`dots` are."""
    handles = [
        Line2D([], [], ls="", marker=".", color="black", alpha=0.35, label="one repetition"),
        Line2D([], [], color=STABLE, lw=2.5, label="median that meets the aim"),
        Line2D([], [], color=DIFFERS, lw=2.5, label="median that does not"),
        Line2D([], [], color=QUIET, ls="--", lw=1, label="the aim"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)


def cost_table(axes: Axes, rows: pd.DataFrame, columns: Sequence[str], column: str) -> None:
    """Draws rows of ``remedies`` of one target: a line a remedy, a column a value of ``column``.

    A cell holds what it costs over the default; its colour is the verdict, the recommended one is
    bold. White: not measured.
    """
    place = {"index": "remedy", "columns": column}
    verdicts, ratios, recommended = (
        rows.pivot(values=values, **place).reindex(rows.remedy.drop_duplicates())[list(columns)]
        for values in ("verdict", "ratio", "recommended")
    )
    colours = verdicts.map(FAINT.get, na_action="ignore")
    cells(axes, colours, ratios.map(rounded_text), recommended.fillna(False).astype(bool))


def error_bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Rows of ``remedies`` of one subject: how far each is from exact, the farthest on top."""
    rows = rows.dropna(subset="error_rms").sort_values("error_rms", kind="stable")
    places = np.arange(len(rows))
    colours = [VERDICTS[verdict] for verdict in rows.verdict]
    axes.barh(places, rows.error_rms, height=0.66, color=colours)
    axes.set_yticks(places, rows.remedy)
    axes.set_xlim(0, None)
