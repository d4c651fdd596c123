"""Draws two runs: every operation's distance and verdict, and the sums of the first source."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib import gridspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from probe.case.floats import rounded_text
from probe.diff.difference import Difference, Region
from probe.report.plots import trees
from probe.report.plots.pictures import DIFFERS, QUIET, STABLE
from probe.sweep.printing import counted

FIRST = "first source"
# Columns of what is said above a picture: a cause may need more than one line.
TITLE = 120
# Characters of an operation's name beside its bar.
NAME = 44
# Rows at most: runs of operations in which nothing differs are one row.
ROWS = 40

COLOURS = {
    "source": DIFFERS,
    "carried": "#f8961e",
    "healed": "#0a9396",
    "equal": STABLE,
    "left": "#5b3a8c",
    "right": "#5b3a8c",
    "unknown": QUIET,
}
WORDS = {
    "source": "source: its inputs agree, its outputs differ",
    "carried": "carried: its inputs differ already",
    "healed": "healed: its inputs differ, its outputs agree",
    "equal": "equal",
    "left": "on the left side alone",
    "right": "on the right side alone",
    "unknown": "not known",
}


@dataclass(frozen=True)
class PlotRow:
    """One operation or several. ``largest``: the distance in ulps, infinite where it has none;
    ``scaled``: the largest difference over eps times the largest value; ``mark``: what it is;
    ``own``: whether a carried one differs by itself too."""

    text: str
    verdict: str
    largest: float
    scaled: float = 0.0
    mark: str = ""
    own: bool = False


def rows_of(difference: Difference, most: int = ROWS) -> list[PlotRow]:
    """Returns the rows: operations that differ, and runs of the others; the middle of many is left
    out, and said to be."""
    rows: list[PlotRow] = []

    def quiet_or_itself(operation: Region) -> str | int:  # what differs has a row of its own
        return operation.verdict if operation.verdict in ("equal", *ALONE) else id(operation)

    for quiet, group in groupby(difference.computed, quiet_or_itself):
        operation, *others = group
        if isinstance(quiet, str):
            text = f"{1 + len(others)} {ALONE.get(quiet, 'equal')}"
            rows.append(PlotRow(text if others else _without_middle(operation.name), quiet, 0.0))
            continue
        gives = {(pair.left, pair.right) for pair in operation.gives}
        output = any((pair.left, pair.right) in gives for pair in difference.outputs)
        mark = FIRST if operation is difference.first else "output" if output else ""
        largest = np.inf if operation.max_ulp is None else float(operation.max_ulp)
        scaled = max((pair.scaled for pair in operation.gives), default=0.0)
        words = dict.fromkeys((operation.name, operation.op))
        text, own = _without_middle("  ".join(words).rstrip()), bool(operation.own)
        rows.append(PlotRow(text, operation.verdict, largest, scaled, mark, own))
    if len(rows) <= most:
        return rows
    first = next((n for n, row in enumerate(rows) if row.mark == FIRST), 0)
    start = max(0, min(first - 3, len(rows) - most))
    middle = rows[start : start + most - 6]
    end = start + len(middle)
    last = max(end, len(rows) - 4)
    shown = [*_row_of_rest(rows[:start]), *middle, *_row_of_rest(rows[end:last])]
    return [*shown, *rows[last:]]


# What a row says of several operations in which nothing differs.
ALONE = {"left": "on the left alone", "right": "on the right alone", "unknown": "not known"}


def _without_middle(text: str) -> str:
    return text if len(text) <= NAME else f"{text[: NAME // 2 - 1]}…{text[-NAME // 2 :]}"


def _row_of_rest(rows: list[PlotRow]) -> list[PlotRow]:
    """Returns one row for several that are not drawn."""
    if not rows:
        return []
    largest = max(row.largest for row in rows)
    verdict = next((row.verdict for row in rows if row.verdict in ("source", "carried")), "equal")
    return [PlotRow(f"… {len(rows)} rows more", verdict, largest)]


def walked(difference: Difference, lines: Sequence[str]) -> Figure:
    """Draws the operations downwards as they run; beside them the first source's two sums.

    ``lines``: what is said above.
    """
    rows = rows_of(difference)
    sums = _sums_of_source(difference)
    height = 1.6 + 0.24 * max(len(rows), 18 if sums else 8)
    figure = Figure(figsize=(9.0 + 6.0 * bool(sums), height), layout="constrained", dpi=110)
    grid = gridspec.GridSpec(
        2 if sums else 1, 2 if sums else 1, figure=figure, width_ratios=[9, 6][: 1 + bool(sums)]
    )
    axes = figure.add_subplot(grid[:, 0])
    bars(axes, rows)
    for place, (side, summation) in enumerate(sums):
        panel = figure.add_subplot(grid[place, 1])
        title = f"how the first source adds, {side} side"
        if len(summation.tree.leaves) <= trees.DRAWN:
            trees.draw(panel, summation)
        else:
            title += f": {counted(trees.draw_turns(panel, summation.tree), 'running sum')}"
        panel.set_title(title, fontsize=9, loc="left")
    caption = "\n".join(textwrap.fill(line, TITLE) for line in lines)
    figure.suptitle(caption, fontsize=9, x=0.01, ha="left")
    there = [name for name in WORDS if any(row.verdict == name for row in rows)]
    patches: list[Any] = [Patch(color=COLOURS[name], label=WORDS[name]) for name in there]
    if any(row.own for row in rows):
        dot: dict[str, Any] = {"marker": "o", "ls": "", "color": COLOURS["source"]}
        patches.append(Line2D([], [], **dot, label="also differs if its inputs are made to agree"))
    figure.legend(handles=patches, loc="outside lower left", ncols=min(2, len(patches)), fontsize=8)
    return figure


def _sums_of_source(difference: Difference) -> list[tuple[str, Any]]:
    """Both sides' sums of the first differing output of the first source, where they are known."""
    if difference.first is None:
        return []
    number = [op is difference.first for op in difference.operations].index(True)
    comparison = getattr(difference.causes.get(number), "comparison", None)
    if comparison is None or not len(comparison.differing):
        return []
    place = comparison.differing[0]
    both = [
        ("left", comparison.left.summation(comparison.pairs.left[place])),
        ("right", comparison.right.summation(comparison.pairs.right[place])),
    ]
    return both if all(summed is not None for _, summed in both) else []


def bars(axes: Axes, rows: Sequence[PlotRow]) -> None:
    """Draws a bar a row: its largest distance in ulps, logarithmic; its colour is the verdict."""
    finite = [row.largest for row in rows if np.isfinite(row.largest) and row.largest]
    most = max(finite, default=1.0)
    right = max(most * 4, 16)
    for place, row in enumerate(rows):
        colour = COLOURS[row.verdict]
        size = right if np.isinf(row.largest) else row.largest
        if size:
            axes.barh(place, size - 0.5, left=0.5, height=0.72, color=colour)
            text = "no distance" if np.isinf(row.largest) else f"{row.largest:,.0f} ulp"
            text += f", {rounded_text(row.scaled)} eps" * bool(row.scaled)
            axes.annotate(
                text, (size, place), (4, 0), textcoords="offset points", va="center", fontsize=7.5
            )
        else:
            axes.plot(0.62, place, "s", ms=4.5, color=colour, clip_on=False)
        if row.own:
            axes.plot(0.62, place, "o", ms=5, color=COLOURS["source"], mec="white", mew=0.6)
        if row.mark == FIRST:
            axes.axhspan(place - 0.5, place + 0.5, color="#fdeaf0", zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(0.5, right * 6)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(
        range(len(rows)),
        [f"{row.mark} ▸ {row.text}" if row.mark else row.text for row in rows],
        fontsize=7.5,
    )
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(COLOURS["source"] if row.verdict == "source" else "black")
        label.set_fontweight("bold" if row.mark == FIRST else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "largest difference in ulp (units in the last place);\n"
        "eps: the largest difference over eps times the operation's largest value"
    )
