"""Draws how outputs are added: trees, and of long sums the running sums to which products go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from probe.case import floats
from probe.explain.comparison import CaseRun, Comparison
from probe.explain.evidence import Evidence
from probe.order.summation import Summation
from probe.order.tree import BIAS, Tree, leaf_name
from probe.report.plots.pictures import DIFFERS

# Colours of summations, after Okabe and Ito; they repeat where there are more.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7b6f00", "#5b3a8c")

# A product that enters its addition whole; one rounded before; the first of a sum, which is not
# added to anything and so rounds alone.
FUSED, ROUNDED, FIRST = "#0072b2", "#e69f00", "#ced4da"

# Additions of two running sums.
JOINS = "#495057"


def colour(number: int) -> str:
    """Returns the colour of a summation."""
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
    """Returns the colour of every product: ``FUSED``, ``ROUNDED`` or ``FIRST``.
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
    """Returns the running sums of a tree: each the products that are added to it one after the
    other.

    A node whose children are all sums begins a new one, without products of its own: it is left
    out, and products that are added to a joined sum are a running sum of their own.
    """
    return _running_sums(tree)[0]


def _running_sums(tree: Tree) -> tuple[list[list[int]], dict[int, int]]:
    """Returns the running sums, and by node the number of the one that it is a step of."""
    sums: list[list[int]] = []
    number: dict[int, int] = {}
    for node, children in enumerate(tree.nodes):
        inner = [child for child in children if child < 0]
        leaves = [child for child in children if child >= 0]
        if not leaves:
            continue
        mine = number.get(~inner[0]) if len(inner) == 1 else None
        if mine is None:
            mine = len(sums)
            sums.append([])
        sums[mine] += leaves
        number[node] = mine
    return sums or [list(tree.leaves)], number


def draw_accumulators(axes: Axes, tree: Tree) -> None:
    """Draws which running sum every product goes to, for trees that are too large to draw.

    On the right, in grey, how the running sums are joined in the end, from left to right.
    """
    runs, number = _running_sums(tree)
    order = sorted(range(len(runs)), key=lambda index: min(runs[index]))
    for row, run in enumerate(runs[index] for index in order):
        known = [leaf for leaf in run if leaf != BIAS]
        axes.plot(known, [row] * len(known), "-", color="#ced4da", lw=1, zorder=1)
        axes.scatter(known, [row] * len(known), s=4, color=colour(row), zorder=2, linewidths=0)
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


def draw_turns(axes: Axes, tree: Tree) -> int:
    """Draws when every product is added: its turn within its running sum, a colour a sum.

    Two sides with as many running sums, filled in different orders, look different. Returns how
    many running sums there are.
    """
    runs = sorted(accumulators(tree), key=min)
    for number, run in enumerate(runs):
        turns = [turn for turn, leaf in enumerate(run) if leaf != BIAS]
        products = [run[turn] for turn in turns]
        axes.scatter(products, turns, s=9, color=colour(number), linewidths=0)
    axes.set(xlabel="product", ylabel="turn in its sum")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return len(runs)


# Summands up to which a tree is drawn; more of them as running sums.
DRAWN = 32


def sides(evidence: Evidence, said: tuple[str, str]) -> Figure:
    """Draws the left side's tree with its partial sums, and the right side's.

    ``said``: what each side is, in words. It is ``order.png`` of a reproduction.
    """
    sides = (("left", evidence.left), ("right", evidence.right))
    assert all(side.summation is not None for _, side in sides)
    leaves = max(len(side.summation.tree.leaves) for _, side in sides if side.summation)
    figure = Figure(figsize=(min(max(9.0, 1.5 * leaves), 22.0), 4.6), layout="constrained", dpi=120)
    for axes, (name, side), words in zip(figure.subplots(1, 2), sides, said, strict=True):
        assert side.summation is not None
        if leaves <= DRAWN:
            # where partial sums are wider, those that are rounded to the dtype are marked
            narrow = side.dtype if side.summation.wider(side.dtype) else None
            texts = {
                partial.node: floats.bits_text(partial.bits, partial.format).partition(" ")[0]
                for partial in side.sums
            }
            draw(axes, side.summation, texts if leaves <= 12 else None, side.own, narrow)
        else:
            draw_accumulators(axes, side.summation.tree)
        formats = ", ".join(side.summation.formats(side.dtype))
        title = [
            f"{name}: {words}",
            f"out{list(side.output)} = {floats.bits_text(side.library, side.dtype)}",
            *[formats] * bool(formats),
        ]
        axes.set_title("\n".join(title), fontsize=11)
    if leaves <= DRAWN:
        if leaves > 1:
            caption = "red: partial sums that the other side does not have"
            figure.suptitle(caption, fontsize=9, color=DIFFERS)
        kinds_legend(figure, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def summations(shown: Sequence[tuple[Summation, str]]) -> Figure:
    """Draws summations side by side with their titles; long sums as the groups they are kept in."""
    leaves = max(len(each.tree.leaves) for each, _ in shown)
    width = min(max(4.5, 0.5 * leaves), 11.0) * len(shown)
    figure = Figure(figsize=(width, 4.6), layout="constrained", dpi=120)
    for axes, (each, title) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        if len(each.tree.leaves) <= DRAWN:
            draw(axes, each)
        else:
            draw_accumulators(axes, each.tree)
        axes.set_title(title, fontsize=11)
    if leaves <= DRAWN:
        kinds_legend(figure, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


# Summations that are drawn, the most frequent first.
SHOWN = 3


def draw_explained(comparison: Comparison, evidence: Evidence | None) -> Figure | None:
    """Draws both sides' trees of one output; of sides that agree, how the first output is added."""
    words = [comparison.words(side) for side in (comparison.left, comparison.right)]
    if evidence is not None and evidence.left.summation and evidence.right.summation:
        return sides(evidence, (words[0], words[1]))
    if not comparison.compared:
        return None
    both = ((comparison.left, comparison.pairs.left), (comparison.right, comparison.pairs.right))
    each = [side.summation(places[0]) for side, places in both]
    known = [(summed, word) for summed, word in zip(each, words, strict=True) if summed is not None]
    return summations(known) if known else None


def draw_ordered(side: CaseRun) -> Figure | None:
    """Draws the trees of the most frequent summations; None where no order is known."""
    orders = side.orders
    if orders is None or not orders.summations:
        return None
    counts = orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])[:SHOWN]
    outputs = {number: f"{counts[number]:,} outputs" for number in ranked}
    return summations([(orders.summations[number], outputs[number]) for number in ranked])
