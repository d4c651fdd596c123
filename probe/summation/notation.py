"""Writes summation trees for people: a drawing, or a short sum where many products are added.

In a short sum brackets say what is added first and the rest goes from left to right, as in a
program: ``p0+p1+p2`` is ``((p0+p1)+p2)``. Dots stand for what goes on in the same way. What is
added in one step and rounded once stands in braces, ``{p0+p1+p2}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from probe.summation.tree import BIAS, Tree, leaf_name

# Leaves up to which a tree is drawn.
DRAWN = 16

# Brackets within brackets, after which a short sum ends in dots.
NESTED = 40

Item: TypeAlias = "int | NotationSum"


@dataclass
class NotationSum:
    """Items added from left to right; with ``together`` in one step. ``size``: leaves below."""

    items: list[Item]
    size: int
    together: bool = False


def short_formula(tree: Tree, most: int = 300) -> str:
    """Returns the tree as a short sum: ``p0+p1+...+p319``, ``(p0+p4+...)+(p1+p5+...)+...``."""
    if not tree.nodes:
        return leaf_name(tree.leaves[0])
    total = _chains(tree)
    text = _item_text(total, -1) if total.together else _sum_text(total, 0)
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def order_name(tree: Tree) -> str:
    """Returns what programmers call this order, empty where there is no short name for it."""
    products = [leaf for leaf in tree.leaves if leaf != BIAS]
    biased = len(products) < len(tree.leaves)
    core = tree.restricted(products) if biased and products else tree
    bias = _bias_place(tree) if biased else ""
    if len(products) < 3:
        return ""
    if all(isinstance(item, int) for item in _chains(tree).items):
        together = len(tree.nodes) == 1 and len(tree.leaves) > 2
        return "all in one step" if together else f"one after the other{bias}"
    if core == Tree.pairwise(products):
        return f"pairwise{bias}"
    for lanes in (2, 4, 8, 16, 32, 64):
        if len(products) > lanes and core == Tree.lanes(products, lanes):
            return f"{lanes} running sums, added pairwise{bias}"
    return ""


def _bias_place(tree: Tree) -> str:
    """Returns where the bias is added: first, last or in between."""
    if BIAS in tree.nodes[-1]:
        return ", the bias last"
    node = tree.parents[BIAS]
    first = all(child >= 0 for child in tree.nodes[node]) and 0 in tree.nodes[node]
    return ", the bias first" if first else ", the bias in between"


def _chains(tree: Tree) -> NotationSum:
    """Returns the tree with its chains joined: what goes on adding items of one size is one
    ``NotationSum``."""
    found: list[NotationSum] = []
    for children in tree.nodes:
        found.append(_join_chain([child if child >= 0 else found[~child] for child in children]))
    return found[-1]


def _join_chain(items: list[Item]) -> NotationSum:
    size = sum(map(_leaves_below, items))
    if len(items) > 2:
        return NotationSum(items, size, together=True)
    one, other = items
    for total, item in ((one, other), (other, one)):
        if (
            not isinstance(total, NotationSum)
            or total.together
            or total.size <= _leaves_below(item)
        ):
            continue
        if _leaves_below(total.items[-1]) == _leaves_below(item):
            total.items.append(item)
            total.size = size
            return total
    return NotationSum(items, size)


def _leaves_below(item: Item) -> int:
    return item.size if isinstance(item, NotationSum) else 1


def _sum_text(total: NotationSum, depth: int) -> str:
    if depth > NESTED:
        return "..."
    items, leaves = total.items, [item for item in total.items[:3] if isinstance(item, int)]
    # neither of the first two leaves is added first: they stand in the order of the others
    if len(leaves) == 3 and 2 * leaves[0] == leaves[1] + leaves[2]:
        items = [items[1], items[0], *items[2:]]
    runs = _runs_of_form(items)
    words: list[str] = []
    while runs:
        alike = _count_shifted_runs(runs)
        for number, run in enumerate(runs[:alike]):
            if alike < 4 or number < 2 or number == alike - 1:
                words += _run_words(run, depth)
            elif number == 2:
                words.append("...")
        del runs[:alike]
    return "+".join(words)


def _run_words(run: list[Item], depth: int) -> list[str]:
    """Returns the words of items that follow from each other: the first two, dots, the last."""
    if len(run) < (6 if isinstance(run[0], int) else 4):
        return [_item_text(item, depth) for item in run]
    return [_item_text(run[0], depth), _item_text(run[1], depth), "...", _item_text(run[-1], depth)]


def _item_text(item: Item, depth: int) -> str:
    if isinstance(item, int):
        return leaf_name(item)
    left, right = "{}" if item.together else "()"
    return f"{left}{_sum_text(item, depth + 1)}{right}"


def _runs_of_form(items: Sequence[Item]) -> list[list[Item]]:
    """Cuts items into runs of one form whose first leaves go up or down by a constant step."""
    runs: list[list[Item]] = []
    for item in items:
        run = runs[-1] if runs else []
        if run and _form(run[-1]) == _form(item):
            step = _first_leaf(item) - _first_leaf(run[-1])
            if len(run) == 1 or step == _first_leaf(run[-1]) - _first_leaf(run[-2]):
                run.append(item)
                continue
        runs.append([item])
    return runs


def _count_shifted_runs(runs: Sequence[Sequence[Item]]) -> int:
    """Returns how many runs from the first on are the same but for a constant shift."""
    count = 1
    while count < len(runs) and _run_kind(runs[count]) == _run_kind(runs[0]) and len(runs[0]) > 1:
        shift = _first_leaf(runs[count][0]) - _first_leaf(runs[count - 1][0])
        if count > 1 and shift != _first_leaf(runs[1][0]) - _first_leaf(runs[0][0]):
            break
        count += 1
    return count


def _run_kind(run: Sequence[Item]) -> tuple[object, ...]:
    step = _first_leaf(run[1]) - _first_leaf(run[0]) if len(run) > 1 else 0
    return _form(run[0]), step, len(run)


def _form(item: Item, depth: int = 0) -> object:
    """Returns what an item looks like, wherever its first leaf is."""
    if isinstance(item, int):
        return "b" if item == BIAS else "leaf"
    if depth > NESTED:
        return id(item)
    start = _first_leaf(item)
    inner = tuple((_form(one, depth + 1), _first_leaf(one) - start) for one in item.items)
    return hash((item.together, inner))


def _first_leaf(item: Item) -> int:
    while isinstance(item, NotationSum):
        item = item.items[0]
    return item


def drawing(tree: Tree, fused: frozenset[int] = frozenset()) -> list[str]:
    """Returns the tree, a line a leaf; ``*`` marks leaves whose exact product is added.

    ::

        p0 ─┐
        p1 ─┴─┐
        p2 ─┐ │
        p3 ─┴─┴─┐
        p4 ─────┴─
    """
    written = tree.written
    names = [leaf_name(leaf) + "*" * (leaf in fused) for leaf in written]
    width = max(map(len, names))
    if not tree.nodes:
        return [f"{names[0]} ─"]
    place = {leaf: (row, 0) for row, leaf in enumerate(written)}
    for node, children in enumerate(tree.nodes):
        rows, columns = zip(*(place[child] for child in children), strict=True)
        place[~node] = (max(rows), max(columns) + 1)
    root = place[~(len(tree.nodes) - 1)]
    canvas = [[" "] * (2 * root[1] + 1) for _ in written]
    for node, children in enumerate(tree.nodes):
        _join(canvas, [place[child] for child in children], place[~node][1])
    canvas[root[0]][-1] = "─"
    lines = zip(names, map("".join, canvas), strict=True)
    return [f"{name:<{width}} {line}".rstrip() for name, line in lines]


def _join(canvas: list[list[str]], children: list[tuple[int, int]], column: int) -> None:
    """Draws the lines of the children to where they are added, in ``column`` (from 1)."""
    at = 2 * column - 1
    rows = sorted(row for row, _ in children)
    for row in range(rows[0], rows[-1] + 1):
        canvas[row][at] = "│"
    for row, start in children:
        for place in range(2 * start, at):
            canvas[row][place] = "─"
        canvas[row][at] = "┐" if row == rows[0] else "┴" if row == rows[-1] else "┤"
