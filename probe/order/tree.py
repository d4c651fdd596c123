"""Summation trees: in which order the products of one output are added, and how trees are written.

A tree is flat: no recursion, so chains of thousands of leaves cost no stack. ``nodes[k]`` holds
the children of node k: a child >= 0 is the leaf of that number, a child < 0 is the node ``~child``,
which stands earlier in the tuple; the last node is the root. Trees are kept canonical (children by
their smallest leaf, nodes in the order in which they are written), so that equal sums are equal
trees and a tree and its text say the same.

For people a tree is a drawing, or a short sum where many products are added. In a short sum
brackets say what is added first and the rest goes from left to right, as in a program: ``p0+p1+p2``
is ``((p0+p1)+p2)``. Dots stand for what goes on in the same way. What is added in one step and
rounded once stands in braces, ``{p0+p1+p2}``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from probe.case.errors import InputError

# The number of the bias leaf: larger than any product's, so it sorts last. It is written ``b``.
BIAS = 1 << 30

_TOKEN = re.compile(r"\s*(\d+|b|[()+])")


@dataclass(frozen=True)
class Tree:
    """A sum of leaves in a fixed order. Make one with ``parse``, ``from_nodes`` or a builder.

    ``leaves``: their numbers in increasing order; any subset of 0, 1, ... (windows at an edge miss
    some), then ``BIAS`` where the bias is a summand. ``nodes``: see the head of this file; nodes
    may have more than two children (a fused multi-term addition). Hashable; equal exactly if the
    texts are equal.
    """

    leaves: tuple[int, ...]
    nodes: tuple[tuple[int, ...], ...]

    def __hash__(self) -> int:
        # trees are keys of caches and tables, and have thousands of nodes: the id is made once
        return hash(self.id)

    @classmethod
    def from_nodes(cls, nodes: Sequence[Sequence[int]], *, leaf: int = 0) -> Tree:
        """The tree with these nodes, children before parents; ``leaf`` alone if there are none.

        Children may come in any order. InputError: a leaf or node used twice, never, or too late.
        """
        if not nodes:
            return cls((leaf,), ())
        unordered = [tuple(int(child) for child in node) for node in nodes]
        first = _first_leaves(unordered)
        # children by their smallest leaf, nodes by where their text ends
        ordered = [sorted(node, key=lambda child: first[child]) for node in unordered]
        number: dict[int, int] = {}
        numbered: list[tuple[int, ...]] = []
        todo = [~(len(unordered) - 1)]
        while todo:
            item = todo.pop()
            if item >= 0:  # all children of this node are numbered
                numbered.append(tuple(number.get(child, child) for child in ordered[item]))
                number[~item] = ~(len(numbered) - 1)
            else:
                todo.append(~item)
                todo += [child for child in reversed(ordered[~item]) if child < 0]
        leaves = sorted(child for node in unordered for child in node if child >= 0)
        return cls(tuple(leaves), tuple(numbered))

    @classmethod
    def parse(cls, text: str) -> Tree:
        """The tree written as ``(((0+1)+(2+3))+4)``; ``b`` is the bias. InputError: not a tree."""
        nodes: list[tuple[int, ...]] = []
        stack: list[list[int]] = [[]]
        before, place = "+", 0
        while place < len(text.rstrip()):
            token = _TOKEN.match(text, place)
            word = token.group(1) if token else ""
            # what starts a summand has to follow a plus or an opening bracket, and nothing else may
            starts = word not in ("", ")", "+")
            if not word or starts == (before not in ("(", "+")):
                raise _tree_error(
                    text, f"character {place} can't follow", "write it as (((0+1)+2)+3)"
                )
            if word == "(":
                stack.append([])
            elif word == ")":
                if len(stack) < 2:
                    raise _tree_error(text, "it closes more brackets than it opens", "balance them")
                nodes.append(tuple(stack.pop()))
                stack[-1].append(~(len(nodes) - 1))
            elif starts:
                stack[-1].append(BIAS if word == "b" else int(word))
            before, place = word, token.end() if token else place
        if len(stack) != 1 or before == "+":
            raise _tree_error(text, "it ends too early", "balance the brackets")
        if len(stack[0]) > 1:
            nodes.append(tuple(stack[0]))
        return cls.from_nodes(nodes, leaf=max(stack[0][0], 0))

    @classmethod
    def sequential(cls, leaves: int | Iterable[int]) -> Tree:
        """``(((0+1)+2)+3)``: every leaf is added to the sum of those before it, in this order."""
        return cls.chain([[leaf] for leaf in _leaf_numbers(leaves)])

    @classmethod
    def chain(cls, groups: Sequence[Sequence[int]]) -> Tree:
        """The sums of the groups, added one after the other; a group of one is a leaf."""
        nodes: list[tuple[int, ...]] = []
        total: int | None = None
        for group in groups:
            part = group[0] if len(group) == 1 else _append(nodes, tuple(group))
            total = part if total is None else _append(nodes, (total, part))
        if total is None:
            raise InputError("leaves", list(groups), "a sum must have a leaf", "give at least one")
        return cls.from_nodes(nodes, leaf=max(total, 0))

    @classmethod
    def pairwise(cls, leaves: int | Iterable[int]) -> Tree:
        """``(((0+1)+(2+3))+4)``: neighbours, then neighbouring sums; one left over waits."""
        return cls._halving([], list(_leaf_numbers(leaves)))

    @classmethod
    def lanes(cls, leaves: int | Iterable[int], lanes: int) -> Tree:
        """Leaf k goes to accumulator k mod ``lanes``, in sequence; these are added pairwise."""
        numbers, sums = list(_leaf_numbers(leaves)), []
        nodes: list[tuple[int, ...]] = []
        for lane in range(min(lanes, len(numbers))):
            total = numbers[lane]
            for leaf in numbers[lane + lanes :: lanes]:
                total = _append(nodes, (total, leaf))
            sums.append(total)
        return cls._halving(nodes, sums)

    @classmethod
    def together(cls, leaves: int | Iterable[int]) -> Tree:
        """``(0+1+2+3)``: one node that adds all leaves and rounds once."""
        numbers = tuple(_leaf_numbers(leaves))
        return cls.from_nodes([numbers] if len(numbers) > 1 else [], leaf=numbers[0])

    @classmethod
    def _halving(cls, nodes: list[tuple[int, ...]], row: list[int]) -> Tree:
        while len(row) > 1:
            pairs = [_append(nodes, (a, b)) for a, b in zip(row[::2], row[1::2], strict=False)]
            row = pairs + row[len(row) - len(row) % 2 :]
        return cls.from_nodes(nodes, leaf=max(row[0], 0))

    @property
    def text(self) -> str:
        """Canonical: children by their smallest leaf, ``b`` last; ``parse`` is its inverse."""
        return self._written(lambda leaf: "b" if leaf == BIAS else str(leaf))

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of the text's SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def formula(self) -> str:
        """As ``text``, for people: the products are p0, p1, ..., the bias b."""
        return self._written(leaf_name)

    def _written(self, name: Callable[[int], str]) -> str:
        words: list[str] = []
        todo: list[int | str] = [~(len(self.nodes) - 1) if self.nodes else self.leaves[0]]
        while todo:
            item = todo.pop()
            if isinstance(item, str):
                words.append(item)
            elif item >= 0:
                words.append(name(item))
            else:
                children = self.nodes[~item]
                todo.append(")")
                for child in reversed(children[1:]):
                    todo += [child, "+"]
                todo += [children[0], "("]
        return "".join(words)

    @property
    def depth(self) -> int:
        """The most additions that a leaf goes through; 0 for a single leaf."""
        return len(self.schedule())

    @cached_property
    def parents(self) -> dict[int, int]:
        """The node that each child (leaf >= 0, node < 0, as in ``nodes``) is added in."""
        return {child: node for node, children in enumerate(self.nodes) for child in children}

    @cached_property
    def _spans(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Leaves in the order they are written; where each node's leaves start there, and end."""
        sizes = np.ones(len(self.nodes), dtype=np.int64)
        for node, children in enumerate(self.nodes):
            sizes[node] = sum(1 if child >= 0 else sizes[~child] for child in children)
        written = np.array(self.leaves, dtype=np.int64)
        starts = np.zeros(len(self.nodes), dtype=np.int64)
        for node in reversed(range(len(self.nodes))):
            place = starts[node]
            for child in self.nodes[node]:
                if child >= 0:
                    written[place] = child
                else:
                    starts[~child] = place
                place += 1 if child >= 0 else sizes[~child]
        return written, starts, starts + sizes

    @property
    def written(self) -> list[int]:
        """The leaves as they are written from left to right."""
        leaves: list[int] = self._spans[0].tolist()
        return leaves

    def neighbour_sizes(self) -> np.ndarray:
        """Leaves under the node where each of ``written`` meets the next one: int64."""
        _, starts, ends = self._spans
        sizes = np.zeros(len(self.leaves) - 1, np.int64)
        for node, children in enumerate(self.nodes):
            place = int(starts[node])
            for child in children[:-1]:
                place = place + 1 if child >= 0 else int(ends[~child])
                sizes[place - 1] = ends[node] - starts[node]
        return sizes

    def lca_sizes(self, leaf: int) -> np.ndarray:
        """Leaves under the lowest common ancestor of ``leaf`` and each of ``leaves``; its own: 1.

        int64, in the order of ``leaves``. This is what a reveal with masks reads off an operator.
        """
        written, starts, ends = self._spans
        sizes = np.ones(len(self.leaves), dtype=np.int64)
        low = int(np.flatnonzero(written == leaf)[0])
        high, child = low + 1, leaf
        while child in self.parents:
            node = self.parents[child]
            start, end = int(starts[node]), int(ends[node])
            sizes[start:low] = sizes[high:end] = end - start
            low, high, child = start, end, ~node
        return sizes[np.argsort(written, kind="stable")]

    def schedule(self) -> list[np.ndarray]:
        """Node numbers by level, the root's last: all nodes of a level can be evaluated at once.

        The children of a level's nodes are leaves or nodes of the level just before, so two rows
        of partial sums are enough memory.
        """
        level = np.zeros(len(self.nodes), dtype=np.int64)
        for node in reversed(range(len(self.nodes))):
            for child in self.nodes[node]:
                if child < 0:
                    level[~child] = level[node] + 1
        order = np.argsort(-level, kind="stable")
        cuts = np.flatnonzero(np.diff(level[order])) + 1
        return np.split(order, cuts) if order.size else []

    def restricted(self, keep: Iterable[int]) -> Tree:
        """The same order over some of the leaves: sums of one are dropped. InputError: none left.

        What is left of an interior window's order at an edge where padding is not added.
        """
        wanted = set(keep)
        nodes: list[tuple[int, ...]] = []
        now: dict[int, int] = {leaf: leaf for leaf in self.leaves if leaf in wanted}
        for node, children in enumerate(self.nodes):
            left = [now[child] for child in children if child in now]
            if left:
                now[~node] = left[0] if len(left) == 1 else _append(nodes, tuple(left))
        if not now:
            raise InputError("keep", sorted(wanted), "none is a leaf of the tree", "keep one")
        return Tree.from_nodes(nodes, leaf=min(leaf for leaf in now.values() if leaf >= 0))


def _first_leaves(nodes: list[tuple[int, ...]]) -> dict[int, int]:
    """The smallest leaf under every child; checks that the nodes form one tree."""
    first: dict[int, int] = {}
    used: set[int] = set()
    for place, node in enumerate(nodes):
        if len(node) < 2:
            raise _tree_error(
                node, f"node {place} has {len(node)} children", "a sum must have two or more"
            )
        for child in node:
            if child in used:
                kind = f"leaf {child}" if child >= 0 else f"node {~child}"
                raise _tree_error(node, f"{kind} is added twice", "every summand is added once")
            if (child < 0 and child not in first) or child > BIAS:
                raise _tree_error(
                    node, f"child {child} does not exist", "put children before parents"
                )
            used.add(child)
            first.setdefault(child, child)
        first[~place] = min(first[child] for child in node)
    if len(used - {leaf for leaf in used if leaf >= 0}) != len(nodes) - 1:
        raise _tree_error(
            nodes[-1], "some node is not added to anything", "only the last node is the root"
        )
    return first


def _tree_error(value: object, why: str, todo: str) -> InputError:
    shown = str(value)
    return InputError("tree", shown if len(shown) < 80 else shown[:77] + "...", why, todo)


def _append(nodes: list[tuple[int, ...]], node: tuple[int, ...]) -> int:
    nodes.append(node)
    return ~(len(nodes) - 1)


def _leaf_numbers(leaves: int | Iterable[int]) -> Iterable[int]:
    return range(leaves) if isinstance(leaves, int) else leaves


def leaf_name(leaf: int) -> str:
    """A leaf's name for people: ``p3`` is product 3, ``b`` the bias."""
    return "b" if leaf == BIAS else f"p{leaf}"


# Leaves up to which a tree is drawn.
DRAWN_LEAVES = 16

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
    """The tree as a short sum: ``p0+p1+...+p319``, ``(p0+p4+...)+(p1+p5+...)+...``."""
    if not tree.nodes:
        return leaf_name(tree.leaves[0])
    total = _chains(tree)
    text = _item_text(total, -1) if total.together else _sum_text(total, 0)
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def order_name(tree: Tree) -> str:
    """What programmers call this order, empty where there is no short name for it."""
    products = [leaf for leaf in tree.leaves if leaf != BIAS]
    biased = len(products) < len(tree.leaves)
    core = tree.restricted(products) if biased and products else tree
    if len(products) < 3:
        return ""
    bias = ""
    if biased:
        beside = tree.nodes[tree.parents[BIAS]]
        first = all(child >= 0 for child in beside) and 0 in beside
        bias = ", the bias first" if first else ", the bias in between"
        bias = ", the bias last" if BIAS in tree.nodes[-1] else bias
    if all(isinstance(item, int) for item in _chains(tree).items):
        together = len(tree.nodes) == 1 and len(tree.leaves) > 2
        return "all in one step" if together else f"one after the other{bias}"
    if core == Tree.pairwise(products):
        return f"pairwise{bias}"
    for lanes in (2, 4, 8, 16, 32, 64):
        if len(products) > lanes and core == Tree.lanes(products, lanes):
            return f"{lanes} running sums, added pairwise{bias}"
    return ""


def _chains(tree: Tree) -> NotationSum:
    """The tree with its chains joined: what goes on adding items of one size is one
    ``NotationSum``."""
    sums: list[NotationSum] = []
    for children in tree.nodes:
        items: list[Item] = [child if child >= 0 else sums[~child] for child in children]
        joined = NotationSum(items, sum(map(_leaves_below, items)), together=len(items) > 2)
        for total, item in () if joined.together else (items, items[::-1]):
            if not isinstance(total, NotationSum) or total.together:
                continue
            below = _leaves_below(item)
            if total.size > below and _leaves_below(total.items[-1]) == below:
                total.items.append(item)
                total.size, joined = joined.size, total
                break
        sums.append(joined)
    return sums[-1]


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
                # the first two, dots, the last
                dots = len(run) >= (6 if isinstance(run[0], int) else 4)
                shown = [_item_text(item, depth) for item in (run[:2] if dots else run)]
                words += [*shown, "...", _item_text(run[-1], depth)] if dots else shown
            elif number == 2:
                words.append("...")
        del runs[:alike]
    return "+".join(words)


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
    """How many runs from the first on are the same but for a constant shift."""
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
    """What an item looks like, wherever its first leaf is."""
    if isinstance(item, int):
        return "b" if item == BIAS else "leaf"
    if depth > NESTED:
        return id(item)
    start = _first_leaf(item)
    inner = tuple((_form(each, depth + 1), _first_leaf(each) - start) for each in item.items)
    return hash((item.together, inner))


def _first_leaf(item: Item) -> int:
    while isinstance(item, NotationSum):
        item = item.items[0]
    return item


def drawing(tree: Tree, fused: frozenset[int] = frozenset()) -> list[str]:
    """The tree, a line a leaf; ``*`` marks leaves whose exact product is added.

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
        # the lines of the children to where they are added, in a column (from 1)
        at = 2 * place[~node][1] - 1
        ends = sorted(place[child][0] for child in children)
        for row in range(ends[0], ends[-1] + 1):
            canvas[row][at] = "│"
        for row, start in (place[child] for child in children):
            canvas[row][2 * start : at] = "─" * (at - 2 * start)
            canvas[row][at] = "┐" if row == ends[0] else "┴" if row == ends[-1] else "┤"
    canvas[root[0]][-1] = "─"
    lines = zip(names, map("".join, canvas), strict=True)
    return [f"{name:<{width}} {line}".rstrip() for name, line in lines]
