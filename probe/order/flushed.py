"""Operands that show that every subnormal sum of a binary tree becomes zero, many nodes in a call.

Leaves hold 1.5 or -1 times the smallest normal number m, or nothing. A node is *asked* by a child
that gives 1.5 m and one that gives -m: their subnormal sum has to become zero. Other nodes *carry*
one of the two: one child gives it, and the other one, which is asked in turn, gives zero. So the
output is zero where the root is asked, and 1.5 m where it carries.

An asked node that keeps its sum gives m / 2 too much. Beside it stands what its parent carries, so
that the parent gives too much as well: 2 m, or zero for -m. From there on every sum above is larger
than it should be by no less than m / 2, and none that is asked is subnormal any more. So the output
is right exactly if all that were asked became zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probe import floats
from probe.order.tree import Tree

PLUS, MINUS = 1.5, -1.0


def flushed(tree: Tree, size: int, dtype: str) -> Iterator[tuple[np.ndarray, float]]:
    """Weights of calls with an input of ones, and what comes out where every node flushes.

    ``size``: leaves of a filter; the tree's are numbered as masks number them.
    """
    least = 2.0 ** floats.FORMATS[dtype].emin
    waiting, root, first = set(range(len(tree.nodes))), len(tree.nodes) - 1, True
    fruitless = 0
    while waiting and fruitless < 2:
        wanted = 0.0 if first else PLUS
        row, asked = _pattern(tree, size, wanted, waiting)
        fruitless = 0 if waiting & asked else fruitless + 1
        if waiting & asked:
            waiting -= asked
            yield row * least, wanted * least
        first = not first
    for node in sorted(waiting - {root}):  # its parent carries by a leaf of the other child
        row = np.zeros(size)
        p, q = (_leaf(tree, child) for child in tree.nodes[node])
        parent = tree.nodes[tree.parents[~node]]
        (other,) = (child for child in parent if child != ~node)
        row[[p, q, _leaf(tree, other)]] = PLUS, MINUS, PLUS
        yield row * least, PLUS * least


def _leaf(tree: Tree, child: int) -> int:
    """A leaf below a child, or the child itself."""
    while child < 0:
        child = max(tree.nodes[~child])
    return child


def _pattern(
    tree: Tree, size: int, wanted: float, waiting: set[int]
) -> tuple[np.ndarray, set[int]]:
    """Weights, in units of m, and the nodes that they ask; ``wanted``: what the root gives."""
    row, asked = np.zeros(size), set[int]()
    stack = [(~(len(tree.nodes) - 1), wanted)]
    while stack:
        child, value = stack.pop()
        if child >= 0:
            row[child] = value
            continue
        one, other = tree.nodes[~child]
        if not value:
            asked.add(~child)
            stack += [(one, MINUS), (other, PLUS)]
        else:  # the child that waits is asked, and the other one carries
            one, other = sorted((one, other), key=lambda each: ~each in waiting)
            stack += [(one, value), (other, 0.0)]
    return row, asked
