"""Draws the pictures of answers and reproductions; ``experiments/lib`` has the notebooks'.

Here are the colours and the pictures of counts and distances, in ``trees`` those of sums and of two
runs of a model. ``draw_...`` gives what an answer shows in a notebook, the others draw into axes
that they are given. The colours of ulps and verdicts are those of all pictures. They stay apart in
grey print and for the colour-blind: more ulps are darker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from probe.case.floats import rounded_text
from probe.order.window import shown_axis_value

if TYPE_CHECKING:
    from probe.sizes.fixes import Measured
    from probe.sizes.orders import ByOrder
    from probe.sizes.thresholds import Thresholds
    from probe.sweep.bits import Summary


# Classes of |ulp|: the least value of each and its colour. White: there is no output.
ULPS = {
    "equal": (0, "#e9ecef"),
    "1 ulp": (1, "#ffd166"),
    "2 ulp": (2, "#f8961e"),
    "3 to 16": (3, "#ef5b2b"),
    "17 to 256": (17, "#c9184a"),
    "257 to 65,536": (257, "#7b1e6d"),
    "more": (65_537, "#2d0b45"),
    "not a number": (np.inf, "#0a9396"),
}

# Colours of words and marks: what agrees, what differs, what matters less.
STABLE, DIFFERS, QUIET = "#2a7f62", "#c9184a", "#868e96"

_COLOURS = ListedColormap([colour for _, colour in ULPS.values()]).with_extremes(bad="white")

_SHARES = LinearSegmentedColormap.from_list(
    "shares", [colour for _, colour in list(ULPS.values())[1:-1]]
).with_extremes(bad="white", under=ULPS["equal"][1])

_LEAST = np.array([least for least, _ in ULPS.values()])

# classes are whole numbers, so colours change half-way between them
_NORM = BoundaryNorm(np.arange(len(ULPS) + 1) - 0.5, len(ULPS))


def style() -> None:
    """Sets how all pictures look. Call it once, before the first one."""
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.size": 9,
            "axes.titlesize": 10.5,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
        }
    )


def ulp_class(ulps: Any) -> np.ndarray:
    """The number of the class in ``ULPS`` of each |ulp|; NaN stays NaN, infinity is no
    number."""
    sizes = np.abs(np.asarray(ulps, dtype=np.float64))
    classes = np.searchsorted(_LEAST, sizes, side="right") - 1.0
    return np.where(np.isnan(sizes), np.nan, classes)


def ulp_colour(ulp: float) -> str:
    return list(ULPS.values())[int(ulp_class(ulp))][1]


def ulp_legend(
    figure: Figure, *ulps: Any, title: str | None = None, more: Sequence[Artist] = ()
) -> None:
    """Draws a legend under the figure: the classes that occur in ``ulps``, or all.

    ``title``: what differs from what. ``more``: handles of what else is drawn.
    """
    classes_shown = list(range(len(ULPS)))
    if ulps:
        classes = np.concatenate([ulp_class(distances).ravel() for distances in ulps])
        classes_shown = sorted({0, *classes[~np.isnan(classes)].astype(int).tolist()})
    names = list(ULPS)
    patches = [Patch(color=ULPS[names[number]][1], label=names[number]) for number in classes_shown]
    handles = [*patches, *more]
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles)}
    figure.legend(handles=handles, title=title, title_fontsize=8, fontsize=8, **place)


def panels(count: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Makes a figure with ``count`` axes of a size in inches, left to right and down."""
    columns = max(1, min(count, columns))
    rows = max(1, -(-count // columns))
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * width, rows * height), squeeze=False
    )
    for spare in axes.flat[count:]:
        spare.remove()
    return figure, list(axes.flat[:count])


def length_strips(axes: Axes, grid: pd.DataFrame, ticks: int = 24) -> None:
    """Draws |ulp| by row (a target, a case) and length; NaN: not measured.

    About ``ticks`` lengths have a label. Lengths need not follow one another: each is a column of
    the same width.
    """
    draw_ulps(axes, grid)
    axes.set_yticks(range(len(grid)), [str(name) for name in grid.index])
    lengths = list(grid.columns)
    step = max(1, -(-len(lengths) // ticks))
    axes.set_xticks(range(0, len(lengths), step), [str(length) for length in lengths[::step]])
    axes.set_xlabel("length")
    _lines_between(axes, len(grid))


def draw_ulps(axes: Axes, grid: pd.DataFrame, **options: Any) -> None:
    """Draws |ulp| as coloured cells. ``options``: as ``imshow`` takes them."""
    classes = np.ma.masked_invalid(ulp_class(grid.to_numpy(dtype=np.float64)))
    looks: dict[str, Any] = {"cmap": _COLOURS, "norm": _NORM, "interpolation": "nearest"}
    axes.imshow(classes, aspect="auto", **looks, **options)


def _lines_between(axes: Axes, rows: int) -> None:
    """White lines between rows, and no ticks."""
    axes.set_yticks(np.arange(1, rows) - 0.5, minor=True)
    axes.grid(which="minor", axis="y", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(axis="y", length=0)


def share_map(axes: Axes, shares: pd.DataFrame, ticks: bool = True) -> ScalarMappable:
    """Draws shares from 0 to 1 by row and column: grey for none, darker for more.

    White: not measured. The outer level of columns that have two is written above. Returns what a
    colour bar shows.
    """
    values = np.ma.masked_invalid(shares.to_numpy(dtype=float))
    # vmin above 0: a share of exactly 0 is below it, and gets the grey of ``under``
    image = axes.imshow(values, cmap=_SHARES, vmin=1e-9, vmax=1, aspect="auto")
    axes.set_yticks(range(len(shares)), [str(name) for name in shares.index] if ticks else [])
    inner = [name[-1] if isinstance(name, tuple) else name for name in shares.columns]
    axes.set_xticks(range(len(inner)), [str(name) for name in inner], rotation=90)
    outer = [name[0] if isinstance(name, tuple) else "" for name in shares.columns]
    for place in range(1, len(outer)):
        if outer[place] != outer[place - 1]:
            axes.axvline(place - 0.5, color="white", lw=3)
    for name in dict.fromkeys(filter(None, outer)):
        places = [place for place, label in enumerate(outer) if label == name]
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "color": QUIET, "fontsize": 7.5}
        axes.text(float(np.mean(places)), -0.6, str(name), **look)
    axes.tick_params(length=0, labelsize=7)
    _lines_between(axes, len(shares))
    return image


def share_bar(figure: Figure, image: ScalarMappable, axes: Sequence[Axes], label: str) -> None:
    bar = figure.colorbar(image, ax=list(axes), shrink=0.5, aspect=30, label=label)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    bar.outline.set_visible(False)


# Colours of verdicts.
VERDICTS = {"exact": STABLE, "differs": DIFFERS, "not known": QUIET}

# Lighter ones, for the cells of a table behind its numbers.
FAINT = {"exact": "#cfe8dd", "differs": "#f6cdd8", "not known": "#e4e7ea"}


# Costs so close that a logarithmic axis has room for three labels a decade.
CLOSE = 50


def cost_dots(
    axes: Axes, rows: pd.DataFrame, limits: tuple[float, float], lines: Sequence[float] = (1.0,)
) -> None:
    """Draws rows of ``remedies`` of one subject and target: a dot each, the cheapest on top.

    How long it takes over padding everything (``of_fixed``), logarithmic between ``limits``; the
    colour is the verdict, the recommended one is bold. ``lines``: dashed, at these costs.
    """
    rows = rows.dropna(subset="of_fixed").sort_values("of_fixed", ascending=False)
    places = np.arange(len(rows))
    axes.hlines(places, *limits, color="0.92", linewidth=1, zorder=0)
    axes.scatter(rows.of_fixed, places, 46, [VERDICTS[verdict] for verdict in rows.verdict])
    for place, cost in zip(places, rows.of_fixed, strict=True):
        axes.annotate(
            rounded_text(cost),
            (cost, place),
            (7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    for line in lines:
        axes.axvline(line, color=QUIET, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xscale("log")
    axes.set(xlim=limits, ylim=(-0.6, len(rows) - 0.4))
    if limits[1] / limits[0] < CLOSE:
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(places, rows.remedy)
    for label, best in zip(axes.get_yticklabels(), rows.recommended, strict=True):
        label.set_fontweight("bold" if best else "normal")


# Up to this size a strip of sizes has a linear axis.
LINEAR = 256


def verdict_legend(
    figure: Figure, faint: bool = False, title: str | None = None, sizes: str = "lengths"
) -> None:
    """Draws a legend under the figure; ``faint``: of tables, whose colours are behind numbers.

    ``sizes``: what the verdicts compare.
    """
    colours = FAINT if faint else VERDICTS
    words = {
        "exact": f"exact: added in one order at all {sizes}",
        "differs": f"{sizes} differ",
        "not known": "not known",
    }
    patches = [Patch(color=colours[name], label=text) for name, text in words.items()]
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
    figure.legend(handles=patches, title=title, title_fontsize=8, fontsize=8, **place)


def draw_swept(summary: Summary, values: Sequence[int]) -> Figure:
    """Draws |ulp| by target and value of the axis: the largest of each comparison."""
    grid = pd.DataFrame(np.nan, index=list(summary.targets), columns=list(values[:-1]))
    for name, result in summary.targets.items():
        if result.comparisons:
            grid.loc[name] = 0.0
        for each in result.differences:
            far = np.inf if each.max_ulp is None else float(each.max_ulp)
            grid.loc[name, each.at] = max(grid.loc[name, each.at], far)
    grid.columns = [shown_axis_value(summary.vary, value) for value in grid.columns]
    figure, (axes,) = panels(1, 1, 9.0, 1.6 + 0.35 * len(grid))
    length_strips(axes, grid)
    axes.set(
        xlabel=summary.vary,
        title=f"|ulp| against {shown_axis_value(summary.vary, summary.against)}",
    )
    ulp_legend(figure, grid.to_numpy())
    return figure


def draw_swept_by_order(
    targets: Mapping[str, ByOrder], values: Sequence[int], vary: str
) -> Figure | None:
    """Draws the share of outputs added differently, by target and value of the axis."""
    grid = pd.DataFrame(np.nan, index=list(targets), columns=list(values[:-1]))
    for name, by_order in targets.items():
        for at in by_order.values:
            if at.compared > at.unknown:
                grid.loc[name, at.at] = at.outputs / at.compared
    if grid.empty:
        return None
    grid.columns = [shown_axis_value(vary, value) for value in grid.columns]
    figure, (axes,) = panels(1, 1, 9.0, 1.4 + 0.35 * len(grid))
    image, label = share_map(axes, grid), "added in a different order or rounding"
    share_bar(figure, image, [axes], label)
    axes.set_xlabel(vary)
    return figure


def draw_switching(measured: Thresholds) -> Figure | None:
    """Draws the sizes of each class, a row each; dashed: the floor. None: no class."""
    from probe.sizes import thresholds

    size_classes = thresholds.classes(measured)
    if not size_classes:
        return None
    figure, (axes,) = panels(1, 1, 7.5, 1.2 + 0.3 * len(size_classes))
    floor = thresholds.floor(measured).size
    places = np.arange(len(size_classes))[::-1]
    sizes = [size for size_class in size_classes for size in size_class.sizes]
    for place, size_class in zip(places, size_classes, strict=True):
        bars = [(first - 0.5, last - first + 1) for first, last in size_class.spans]
        axes.broken_barh(bars, (place - 0.35, 0.7), color=VERDICTS["exact"])
    if floor is not None and floor > min(sizes):
        axes.axvline(floor - 0.5, color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
        look: dict[str, Any] = {"xytext": (2, 2), "textcoords": "offset points", "fontsize": 8}
        place_of_floor, within = (floor - 0.5, 1), ("data", "axes fraction")
        axes.annotate(f"floor {floor:,}", place_of_floor, xycoords=within, **look)
    # periods of a few sizes are seen where every size has the same width
    if max(sizes) > LINEAR:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    names = [thresholds.kind_words(measured, size_class.kind) for size_class in size_classes]
    axes.set_yticks(places, [name if len(name) < 44 else name[:41] + "..." for name in names])
    axes.set(xlabel=f"{measured.vary}, {measured.target}")
    return figure


def draw_remedy_costs(measured: Measured) -> Figure | None:
    """Draws a dot for each remedy: its cost, coloured by whether it is exact."""
    from probe.sizes import fixes

    best = fixes.advise(measured).name
    cells = [
        (each.remedy.name, each.verdict, measured.of_fixed(each), each.remedy.name == best)
        for each in measured.found
    ]
    rows: Any = pd.DataFrame(cells, columns=["remedy", "verdict", "of_fixed", "recommended"])
    costs = rows.of_fixed.dropna()
    if costs.empty:
        return None
    figure, (axes,) = panels(1, 1, 7.5, 1.4 + 0.28 * len(costs))
    cost_dots(axes, rows, (min(costs.min(), 1) / 1.3, max(costs.max(), 1) * 1.6))
    axes.set(
        xlabel=f"time at {measured.content:,} over the default's at {measured.fixed:,}",
        title=f"what each fix costs: {measured.label} on {measured.target.text}",
    )
    verdict_legend(figure, sizes=measured.sizes)
    return figure
