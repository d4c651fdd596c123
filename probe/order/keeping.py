"""Operands that show in which format each partial sum of a tree is kept, many of them in a call.

A node A that is added to B is asked by three leaves: p and q, which meet in A, and r of B, which
takes p away again: s + little - s. Nothing comes out where the sum in A lost the little, which is
so exactly if A is a sum by itself and its format ends before it. The leaves are next to their
nodes, so that what waits for its r is in few partial sums: other nodes are asked in the same call
whose own sums wait elsewhere. What came out of nodes below must not drown in those above. Where
nothing should come out (``lost``), s falls by three binades from node to node upwards; where all
should (``kept``, ``rounded``), everything has one scale, and the sum counts the nodes.

In ``lost`` the little is a quarter of an ulp. In ``kept`` it is so little that all of a call
together are lost by a node of the dtype. In ``rounded`` it is three quarters of an ulp, which a
node that rounds to nearest makes a whole one, and one that truncates loses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from probe import floats
from probe.order.separation import EXPONENTS
from probe.order.tree import Tree

STEP = 3  # binades from one node to the next above it, where nothing should come out
TOP = {"float64": 512, "float32": 100, "float16": 14, "bfloat16": 100}  # exponent of the first s


@dataclass(frozen=True)
class Ask:
    """Nodes of one call: ``leaves`` (nodes, 3) are their p, q, r; ``rank``: above how many."""

    nodes: np.ndarray
    leaves: np.ndarray
    rank: np.ndarray


class Asked:
    """The nodes of a binary tree but its root, in sets that can be asked in one call.

    ``size``: leaves of a filter; the tree's are numbered as masks number them.
    """

    def __init__(self, tree: Tree, size: int, dtype: str) -> None:
        self.tree, self.size, self.dtype = tree, size, dtype
        self.nearest: list[int] = []  # how many nodes lie between each and the leaf next to it
        for children in tree.nodes:
            self.nearest.append(1 + min(map(self._distance, children)))

    def lost(self, precision: int, nodes: Iterable[int]) -> Iterator[tuple[np.ndarray, float]]:
        """Weights of calls, and 0: these nodes lose what is beyond ``precision`` digits."""
        top, lowest = TOP[self.dtype], EXPONENTS[self.dtype][1]
        ranks = (top - precision - 1 - lowest) // STEP
        for each in self._batches(nodes, ranks, self.size):
            scale = 2.0 ** (top - STEP * each.rank)
            yield self._weights(each, scale, scale * 2.0 ** -(precision + 1)), 0.0

    def kept(self, nodes: Iterable[int]) -> Iterator[tuple[np.ndarray, float]]:
        """Weights of calls, and what comes out: these nodes keep more digits than the dtype."""
        form = floats.FORMATS[self.dtype]
        most = {"float16": 2**6, "bfloat16": 2**7}.get(self.dtype, 2**16)
        for each in self._batches(nodes, self.size, most):
            scale, little = 1.0, 2.0 ** -(form.precision + 1) / most
            yield self._weights(each, scale, little), len(each.nodes) * little

    def rounded(self, nodes: Iterable[int]) -> Iterator[tuple[np.ndarray, float]]:
        """Weights of calls, and what comes out: these nodes round to the dtype's nearest."""
        eps = floats.eps(self.dtype)
        most = 2 ** (floats.FORMATS[self.dtype].precision - 2)
        for each in self._batches(nodes, self.size, most):
            yield self._weights(each, 1.0, 0.75 * eps), len(each.nodes) * eps

    def alone(self, node: int, little: float) -> np.ndarray:
        """Weights of a call that asks one node whether it keeps this much beside 1."""
        (each,) = self._batches([node], 1, 1)
        return self._weights(each, 1.0, little)

    def _weights(
        self, asked: Ask, scale: np.ndarray | float, little: np.ndarray | float
    ) -> np.ndarray:
        row = np.zeros(self.size)
        p, q, r = asked.leaves.T
        row[p], row[q], row[r] = scale, little, -np.asarray(scale)
        return row

    def _batches(self, nodes: Iterable[int], ranks: int, most: int) -> Iterator[Ask]:
        """The nodes in sets of at most ``most``, none above ``ranks`` others that are asked."""
        waiting = set(nodes)
        while waiting:
            rows: list[tuple[int, ...]] = []
            used: set[int] = set()  # leaves, and nodes (~n) in which something waits for its r
            ranked = [0] * len(self.tree.nodes)  # how many asked nodes follow each other below
            for above, children in enumerate(self.tree.nodes):
                rank = max((ranked[~child] for child in children if child < 0), default=0)
                for child in children:
                    if ~child not in waiting or rank >= ranks or len(rows) == most:
                        continue
                    if (paths := self._paths(child, children, used)) is not None:
                        used.update((child, *itertools.chain(*paths)))
                        rows.append((~child, *(path[-1] for path in paths), rank))
                        rank += 1
                ranked[above] = rank
            waiting.difference_update(row[0] for row in rows)
            found = np.array(rows)
            yield Ask(found[:, 0], found[:, 1:4], found[:, 4])

    def _paths(
        self, child: int, siblings: tuple[int, ...], used: set[int]
    ) -> list[list[int]] | None:
        """From a node's two children, and its sibling, down to leaves; None where others wait."""
        if child in used:
            return None
        (other,) = (one for one in siblings if one != child)
        paths = [self._path(start, used) for start in (*self.tree.nodes[~child], other)]
        return None if None in paths else paths  # type: ignore[return-value]

    def _distance(self, child: int) -> int:
        return 0 if child >= 0 else self.nearest[~child]

    def _path(self, start: int, used: set[int]) -> list[int] | None:
        path = [start]
        while path[-1] not in used:
            if path[-1] >= 0:
                return path
            free = [one for one in self.tree.nodes[~path[-1]] if one not in used]
            if not free:
                break
            path.append(min(free, key=self._distance))
        return None
