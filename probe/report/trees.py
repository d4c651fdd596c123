"""Draws how outputs are added: trees, and of long sums the running sums to which products go; and
two runs of a model: every operation's distance and verdict beside the sums of the first source."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib import gridspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from probe.case import floats
from probe.case.floats import rounded_text
from probe.diff.difference import Difference, Region
from probe.explain.comparison import Comparison
from probe.explain.evidence import Evidence
from probe.explain.runs import CaseRun
from probe.order.summation import Summation
from probe.order.tree import BIAS, Tree, leaf_name
from probe.report.plots import DIFFERS, QUIET, STABLE
from probe.sweep.printing import counted

# Colours of summations, after Okabe and Ito; they repeat where there are more.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7b6f00", "#5b3a8c")

# A product that enters its addition whole; one rounded before; the first of a sum, which is not
# added to anything and so rounds alone.
FUSED, ROUNDED, FIRST = "#0072b2", "#e69f00", "#ced4da"

# Additions of two running sums.
JOINS = "#495057"


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def draw(
    axes: Axes,
    summation: Summation,
    sums: Mapping[int, str] | None = None,
    marked: Collection[int] = (),
    dtype: str | None = None,
) -> None:
    """Draws a tree from its products at the bottom to the output at the top.

    Blue leaves enter their addition whole (fused), orange ones are rounded before, grey ones begin
    a sum. ``sums``: text beside each node, by node number; those in ``marked`` stand out.
    ``dtype``: sums that are rounded to it, though others are kept wider, are diamonds. Readable for
    some thirty leaves.
    """
    tree = summation.tree
    # leaves (by number) stand as the formula has them, nodes (by ~number) above their children
    x = {leaf: float(place) for place, leaf in enumerate(tree.written)}
    y = dict.fromkeys(tree.written, 0.0)
    for node, children in enumerate(tree.nodes):
        x[~node] = float(np.mean([x[child] for child in children]))
        y[~node] = max(y[child] for child in children) + 1
    for node, children in enumerate(tree.nodes):
        for child in children:
            axes.plot([x[~node], x[child]], [y[~node], y[child]], color="#868e96", lw=1, zorder=1)
    size = 9.0 if len(tree.leaves) <= 12 else 5.5
    kinds = leaf_kinds(summation)
    for leaf in tree.leaves:
        shade = kinds.get(leaf, FIRST)
        box = {"boxstyle": "round,pad=0.25", "fc": shade, "ec": "none"}
        ink = "white" if shade == FUSED else "black"
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size, "zorder": 3}
        axes.text(x[leaf], y[leaf], leaf_name(leaf), color=ink, bbox=box, **look)
    rounded = rounded_nodes(summation, dtype) if dtype else set()
    for node in range(len(tree.nodes)):
        place, ink = (x[~node], y[~node]), DIFFERS if node in marked else "black"
        mark: dict[str, Any] = (
            {"marker": "D", "mfc": "white"} if node in rounded else {"marker": "o", "mfc": ink}
        )
        axes.plot(*place, ms=size * 0.7, mec=ink, zorder=2, **mark)
        if sums:
            # on the side where no line goes up
            side = 0.1 if place[0] > x[~tree.parents.get(~node, node)] else -0.1
            style: dict[str, Any] = {
                "ha": "left" if side > 0 else "right",
                "va": "bottom",
                "fontsize": 7.5,
            }
            axes.text(place[0] + side, place[1] + 0.06, sums.get(node, ""), color=ink, **style)
    axes.set_axis_off()
    axes.set_xlim(-0.9 if sums else -0.6, max(x.values()) + 0.6)
    axes.set_ylim(-0.45, max(y.values()) + 0.5)


def rounded_nodes(summation: Summation, dtype: str) -> set[int]:
    """Nodes whose sum is rounded to ``dtype``: all of them, or some and the last."""
    count = len(summation.tree.nodes)
    if not summation.wider(dtype):
        return set(range(count))
    return {*summation.rounding.rounded, count - 1}


def leaf_kinds(summation: Summation) -> dict[int, str]:
    """The colour of every product: ``FUSED``, ``ROUNDED`` or ``FIRST``.
    The bias has none."""
    tree, rounding = summation
    kinds = {leaf: FUSED if leaf in rounding.fused else ROUNDED for leaf in tree.leaves}
    kinds.pop(BIAS, None)
    for children in tree.nodes:
        products = [child for child in children if 0 <= child < BIAS]
        if products and all(child >= 0 for child in children):
            kinds.update({leaf: FIRST for leaf in products[:1] if kinds[leaf] != FUSED})
    return kinds


def kinds_legend(axes: Axes | FigureBase, **options: Any) -> None:
    """Draws what the three colours of products mean."""
    named = {
        FUSED: "fused: added without being rounded first",
        ROUNDED: "rounded, then added",
        FIRST: "begins a sum",
    }
    axes.legend(handles=[Patch(color=c, label=name) for c, name in named.items()], **options)


def accumulators(tree: Tree) -> list[list[int]]:
    """The running sums of a tree: each is the products that are added to it in turn.

    A node whose children are all sums begins a new one, without products of its own: it is left
    out, and products that are added to a joined sum are a running sum of their own.
    """
    return _running_sums(tree)[0]


def _running_sums(tree: Tree) -> tuple[list[list[int]], dict[int, int]]:
    """The running sums, and by node the number of the sum that it is a step of."""
    sums: list[list[int]] = []
    number: dict[int, int] = {}
    for node, children in enumerate(tree.nodes):
        inner = [child for child in children if child < 0]
        leaves = [child for child in children if child >= 0]
        if not leaves:
            continue
        sum_number = number.get(~inner[0]) if len(inner) == 1 else None
        if sum_number is None:
            sum_number = len(sums)
            sums.append([])
        sums[sum_number] += leaves
        number[node] = sum_number
    return sums or [list(tree.leaves)], number


def draw_accumulators(axes: Axes, tree: Tree) -> None:
    """Draws which running sum every product goes to, for trees that are too large to draw.

    On the right, in grey, how the running sums are joined in the end, from left to right.
    """
    runs, number = _running_sums(tree)
    order = sorted(range(len(runs)), key=lambda index: min(runs[index]))
    for row, run in enumerate(runs[index] for index in order):
        leaves = [leaf for leaf in run if leaf != BIAS]
        axes.plot(leaves, [row] * len(leaves), "-", color="#ced4da", lw=1, zorder=1)
        axes.scatter(leaves, [row] * len(leaves), s=4, color=colour(row), zorder=2, linewidths=0)
    if len(runs) > 1:
        _draw_joins(axes, tree, {node: order.index(index) for node, index in number.items()})
    axes.set_ylim(max(len(runs), 4) - 0.4, -0.6)
    axes.set(xlabel="product", ylabel="running sum")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ticks = MaxNLocator(5, integer=True).tick_values(0, len(tree.leaves))
    axes.set_xticks([tick for tick in ticks if tick <= len(tree.leaves)])


def _draw_joins(axes: Axes, tree: Tree, rows: Mapping[int, int]) -> None:
    """Draws the additions of two sums and more, each to the right of what it adds."""
    products = len(tree.leaves)
    steps: dict[int, int] = {}
    height: dict[int, float] = {node: float(row) for node, row in rows.items()}
    lines: list[tuple[int, int]] = []
    for node, children in enumerate(tree.nodes):
        inner = [~child for child in children if child < 0]
        steps[node] = max((steps[child] for child in inner), default=0)
        if len(inner) > 1 or (inner and rows.get(inner[0]) != rows.get(node)):
            steps[node] += 1
            lines += [(child, node) for child in inner]
        height.setdefault(node, float(np.mean([height[child] for child in inner] or [0])))
    width = 0.3 * products / max(steps.values(), default=1)
    beside = Counter(step for node, step in steps.items() if node not in rows)
    places: Counter[int] = Counter()
    right = {}
    for node, step in steps.items():  # joins of one step stand beside each other
        shift = 0.0 if node in rows else 0.7 * places[step] / beside[step]
        right[node] = products * 1.02 + width * (step + shift)
        places[step] += node not in rows
    for lower, upper in lines:
        x = right[lower], right[upper], right[upper]
        y = height[lower], height[lower], height[upper]
        axes.plot(x, y, color=JOINS, lw=0.8, zorder=1)
    joined = [node for node in steps if node not in rows]
    axes.plot([right[n] for n in joined], [height[n] for n in joined], "o", color=JOINS, ms=2)
    axes.spines["bottom"].set_bounds(0, products)


# A tree of more leaves can't be read: it is drawn as running sums.
MOST_LEAVES = 32


def draw_two_trees(evidence: Evidence, descriptions: tuple[str, str]) -> Figure:
    """Draws the left side's tree with its partial sums, and the right side's.

    ``descriptions``: of each side, as ``length 5, tensorflow``. It is ``order.png`` of a
    reproduction.
    """
    shown = list[tuple[Summation, str, dict[str, Any]]]()
    both = zip((("left", evidence.left), ("right", evidence.right)), descriptions, strict=True)
    for (name, side), description in both:
        assert side.summation is not None
        # where partial sums are wider, those that are rounded to the dtype are marked
        narrow = side.dtype if side.summation.wider(side.dtype) else None
        looks: dict[str, Any] = {"marked": side.unshared_nodes, "dtype": narrow}
        if len(side.summation.tree.leaves) <= 12:
            looks["sums"] = {
                partial.node: floats.bits_text(partial.bits, partial.format).partition(" ")[0]
                for partial in side.sums
            }
        result = f"out{list(side.output)} = {floats.bits_text(side.library, side.dtype)}"
        formats = ", ".join(side.summation.formats(side.dtype))
        title = "\n".join(filter(None, (f"{name}: {description}", result, formats)))
        shown.append((side.summation, title, looks))
    figure = summations(shown, 0.75)
    if 1 < max(len(summation.tree.leaves) for summation, *_ in shown) <= MOST_LEAVES:
        caption = "red: partial sums that the other side does not have"
        figure.suptitle(caption, fontsize=9, color=DIFFERS)
    return figure


def summations(
    shown: Sequence[tuple[Summation, str, dict[str, Any]]], inches: float = 0.5
) -> Figure:
    """Draws summations side by side: each with its title, and options of :func:`draw`. Long sums
    are drawn as the running sums that they are kept in. ``inches``: for a leaf."""
    leaves = max(len(summation.tree.leaves) for summation, *_ in shown)
    width = min(max(4.5, inches * leaves), 11.0) * len(shown)
    figure = Figure(figsize=(width, 4.6), layout="constrained", dpi=120)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (summation, title, looks) in zip(panels, shown, strict=True):
        if leaves <= MOST_LEAVES:
            draw(axes, summation, **looks)
        else:
            draw_accumulators(axes, summation.tree)
        axes.set_title(title, fontsize=11)
    if leaves <= MOST_LEAVES:
        kinds_legend(figure, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


# Summations that are drawn, the most frequent first.
MOST_TREES = 3


def draw_explained(comparison: Comparison, evidence: Evidence | None) -> Figure | None:
    """Draws both sides' trees of one output; of sides that agree, how the first output is added."""
    words = comparison.words(comparison.left), comparison.words(comparison.right)
    if evidence is not None and evidence.left.summation and evidence.right.summation:
        return draw_two_trees(evidence, words)
    if not comparison.compared:
        return None
    left, right = comparison.pairs.left[0], comparison.pairs.right[0]
    each = comparison.left.summation(left), comparison.right.summation(right)
    summed: list[tuple[Summation, str, dict[str, Any]]] = [
        (shown, word, {}) for shown, word in zip(each, words, strict=True) if shown is not None
    ]
    return summations(summed) if summed else None


def draw_ordered(side: CaseRun) -> Figure | None:
    """Draws the trees of the most frequent summations; None where no order is known."""
    orders = side.orders
    if orders is None or not orders.summations:
        return None
    counts = orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])[:MOST_TREES]
    return summations([(orders.summations[n], f"{counts[n]:,} outputs", {}) for n in ranked])


FIRST_SOURCE = "first source"
# Columns of the text above a picture: a cause may need several lines.
TITLE = 120
# Characters of an operation's name beside its bar.
LONGEST_NAME = 44
# The largest number of rows: runs of operations in which nothing differs share a row.
ROWS = 40

VERDICT_COLOURS = {
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
    """One operation, or several in a run in which nothing differs.

    ``largest``: the distance in ulps, infinite where it has none; ``scaled``: the largest
    difference over eps times the largest value; ``mark``: ``first source``, ``output`` or empty;
    ``differs_alone``: a carried operation also differs where its inputs are made to agree.
    """

    text: str
    verdict: str
    largest: float
    scaled: float = 0.0
    mark: str = ""
    differs_alone: bool = False


def rows_of(difference: Difference, most: int = ROWS) -> list[PlotRow]:
    """A row for each operation that differs, and one for each run of operations that don't. Of more
    than ``most`` rows those around the first source stay; a row says how many were left out on
    either side."""
    rows: list[PlotRow] = []

    def row_key(operation: Region) -> str | int:  # what differs has a row of its own
        return operation.verdict if operation.verdict in SHARED_ROWS else id(operation)

    for quiet, group in groupby(difference.computing, row_key):
        operation, *equal_ones = group
        if isinstance(quiet, str):
            text = f"{1 + len(equal_ones)} {SHARED_ROWS[quiet]}" if equal_ones else operation.name
            rows.append(PlotRow(_without_middle(text), quiet, 0.0))
            continue
        gives = {(pair.left, pair.right) for pair in operation.gives}
        output = any((pair.left, pair.right) in gives for pair in difference.outputs)
        mark = FIRST_SOURCE if operation is difference.first else "output" if output else ""
        largest = np.inf if operation.max_ulp is None else float(operation.max_ulp)
        scaled = max((pair.distance_in_eps for pair in operation.gives), default=0.0)
        text = _without_middle("  ".join(dict.fromkeys((operation.name, operation.op))).rstrip())
        rows.append(
            PlotRow(
                text,
                operation.verdict,
                largest,
                scaled,
                mark,
                differs_alone=bool(operation.differing_alone),
            )
        )
    if len(rows) <= most:
        return rows
    first = next((n for n, row in enumerate(rows) if row.mark == FIRST_SOURCE), 0)
    start = max(0, min(first - 3, len(rows) - most))
    end = start + most - 2
    kept = rows[start:end]
    if start:
        kept.insert(0, PlotRow(f"… {start} rows more", "equal", 0.0))
    if end < len(rows):
        kept.append(PlotRow(f"… {len(rows) - end} rows more", "equal", 0.0))
    return kept


# The text of a row that stands for several operations, behind their number, by verdict.
SHARED_ROWS = {
    "equal": "equal",
    "left": "on the left alone",
    "right": "on the right alone",
    "unknown": "not known",
}


def _without_middle(text: str) -> str:
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[: half - 1]}…{text[-half:]}"


def draw_two_runs(difference: Difference, lines: Sequence[str]) -> Figure:
    """Draws the operations downwards as they run; beside them the first source's two sums.

    ``lines``: the caption.
    """
    rows = rows_of(difference)
    sums = _sums_of_source(difference)
    height = 1.6 + 0.24 * max(len(rows), 18 if sums else 8)
    figure = Figure(figsize=(9.0 + 6.0 * bool(sums), height), layout="constrained", dpi=110)
    panels = 2 if sums else 1
    grid = gridspec.GridSpec(panels, panels, figure=figure, width_ratios=[9, 6][:panels])
    axes = figure.add_subplot(grid[:, 0])
    distance_dots(axes, rows)
    for place, (side, summation) in enumerate(sums):
        panel = figure.add_subplot(grid[place, 1])
        title = f"how the first source adds, {side} side"
        if len(summation.tree.leaves) <= MOST_LEAVES:
            draw(panel, summation)
        else:
            draw_accumulators(panel, summation.tree)
            title += f": {counted(len(accumulators(summation.tree)), 'running sum')}"
        panel.set_title(title, fontsize=9, loc="left")
    caption = "\n".join(textwrap.fill(line, TITLE) for line in lines)
    figure.suptitle(caption, fontsize=9, x=0.01, ha="left")
    words = [name for name in WORDS if any(row.verdict == name for row in rows)]
    patches: list[Any] = [Patch(color=VERDICT_COLOURS[name], label=WORDS[name]) for name in words]
    if any(row.differs_alone for row in rows):
        dot: dict[str, Any] = {"marker": "o", "ls": "", "color": VERDICT_COLOURS["source"]}
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


def distance_dots(axes: Axes, rows: Sequence[PlotRow]) -> None:
    """Draws a dot a row: its largest distance in ulps, logarithmic; its colour is the verdict."""
    finite = [row.largest for row in rows if np.isfinite(row.largest) and row.largest]
    largest = max(finite, default=1.0)
    right = max(largest * 4, 16)
    for place, row in enumerate(rows):
        colour = VERDICT_COLOURS[row.verdict]
        size = right if np.isinf(row.largest) else row.largest
        if size:
            axes.hlines(place, 0.5, right * 6, color="0.92", linewidth=1, zorder=0.5)
            axes.plot(size, place, "o", ms=7, color=colour)
            text = "no distance" if np.isinf(row.largest) else f"{row.largest:,.0f} ulp"
            if row.scaled:
                text += f", {rounded_text(row.scaled)} eps"
            axes.annotate(
                text, (size, place), (8, 0), textcoords="offset points", va="center", fontsize=7.5
            )
        else:
            axes.plot(0.62, place, "s", ms=4.5, color=colour, clip_on=False)
        if row.differs_alone:
            axes.plot(0.62, place, "o", ms=5, color=VERDICT_COLOURS["source"], mec="white", mew=0.6)
        if row.mark == FIRST_SOURCE:
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
        label.set_color(VERDICT_COLOURS["source"] if row.verdict == "source" else "black")
        label.set_fontweight("bold" if row.mark == FIRST_SOURCE else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "largest difference in ulp (units in the last place);\n"
        "eps: the largest difference over eps times the operation's largest value"
    )
