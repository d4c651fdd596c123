"""Summation trees: in which order the products of one output are added.

A tree is flat: no recursion, so chains of thousands of leaves cost no stack. ``nodes[k]`` holds
the children of node k: a child >= 0 is the leaf of that number, a child < 0 is the node ``~child``,
which stands earlier in the tuple; the last node is the root. Trees are kept canonical (children by
their smallest leaf, nodes in the order in which they are written), so that equal sums are equal
trees and a tree and its text say the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probe.errors import InputError

#: The number of the bias leaf: larger than any product's, so it sorts last. It is written ``b``.
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
        """Returns the tree with these nodes, children before parents; ``leaf`` alone if there are
        none.

        Children may come in any order. InputError: a leaf or node used twice, never, or too late.
        """
        if not nodes:
            return cls((leaf,), ())
        return _canonical([tuple(int(child) for child in node) for node in nodes])

    @classmethod
    def parse(cls, text: str) -> Tree:
        """Returns the tree written as ``(((0+1)+(2+3))+4)``; ``b`` is the bias.
        InputError: not a tree."""
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
        """Returns the sums of the groups, added one after the other; a group of one is a leaf."""
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
        """Returns the most additions that a leaf goes through; 0 for a single leaf."""
        return len(self.schedule())

    @cached_property
    def parents(self) -> dict[int, int]:
        """Returns the node that each child (leaf >= 0, node < 0, as in ``nodes``) is added in."""
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
        """Returns the leaves as they are written from left to right."""
        leaves: list[int] = self._spans[0].tolist()
        return leaves

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


def _canonical(nodes: list[tuple[int, ...]]) -> Tree:
    """Sorts children by their smallest leaf and nodes by where their text ends."""
    first = _first_leaves(nodes)
    ordered = [sorted(node, key=lambda child: first[child]) for node in nodes]
    number: dict[int, int] = {}
    found: list[tuple[int, ...]] = []
    todo = [~(len(nodes) - 1)]
    while todo:
        item = todo.pop()
        if item >= 0:  # all children of this node are numbered
            children = ordered[item]
            found.append(tuple(number.get(child, child) for child in children))
            number[~item] = ~(len(found) - 1)
        else:
            todo.append(~item)
            todo += [child for child in reversed(ordered[~item]) if child < 0]
    return Tree(
        tuple(sorted(child for node in nodes for child in node if child >= 0)), tuple(found)
    )


def _first_leaves(nodes: list[tuple[int, ...]]) -> dict[int, int]:
    """Returns the smallest leaf under every child; checks that the nodes form one tree."""
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
    """Returns a leaf's name for people: ``p3`` is product 3, ``b`` the bias."""
    return "b" if leaf == BIAS else f"p{leaf}"
