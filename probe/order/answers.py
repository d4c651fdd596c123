"""Whether outputs answer questions about their order as a tree would: one may replay by luck."""

from __future__ import annotations

import itertools

import numpy as np

from probe import operands
from probe.order.masks import ANSWERS_AT_ONCE, Masks
from probe.order.tree import BIAS, Tree

SHORT = 32  # summands up to which every window class is asked, and nothing is settled by replay
ASKED = 8  # questions about the order that a tree that replays has to answer too
NODES = 4  # nodes of three summands or more, of which every filter is asked in addition
EDGES = 96  # questions at most that a tree has to answer at windows that reach over an edge


class Answers:
    """Asks one call's outputs about trees found for some of them.

    ``classes`` (positions,) and ``leaves`` as ``reveal_trees`` has them. What is asked about all
    trees alike is asked once. ``positions`` and ``filters`` of the methods name outputs, in pairs.
    """

    def __init__(self, masks: Masks, classes: np.ndarray, leaves: list[np.ndarray]) -> None:
        self.masks, self.classes, self.leaves = masks, classes, leaves
        self.operator = masks.operator
        self.sizes = np.array([len(read) for read in leaves])
        self._asked: tuple[list[tuple[int, int]], np.ndarray] | None = None

    def like(self, tree: Tree, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Which outputs answer a few questions about their order as this tree would: bool.

        Long sums in other orders may round alike on all check operands, at some outputs. The
        questions are the same for every tree, so they are put to the operator once. Short sums
        were asked for every leaf; but where filters of two orders took turns in answering, a node
        of three summands may come out that neither has, and rounds much like both.
        """
        fits = np.ones(len(positions), bool)
        asked = [self._everywhere()] if self.operator.summands > SHORT else []
        if len(positions) and (pairs := self._within_nodes(tree)):
            asked.append(self._ask(pairs))
        for each in asked:
            fits &= self._match(tree, *each, positions, filters)
        return fits

    def edges_like(self, tree: Tree, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Which outputs whose window reaches over an edge answer as this tree would, leaf by leaf.

        They are shorter sums and read few of the leaves that all are asked about, so that one block
        added otherwise agrees by luck at some. What neighbours in a tree answer determines it.
        """
        fits = np.ones(len(positions), bool)
        classes = self.classes[positions]
        edge = np.flatnonzero(self.sizes[classes] < self.sizes.max())
        if self.operator.summands <= SHORT or not len(edge):
            return fits
        row = np.array([self._number(leaf) for leaf in tree.written])
        reads = [row[np.isin(row, self.leaves[n])].tolist() for n in np.unique(classes[edge])]
        pairs = sorted({pair for read in reads for pair in itertools.pairwise(read)})
        pairs = pairs[:: -(-len(pairs) // EDGES) or 1]
        chunk = max(1, ANSWERS_AT_ONCE // (self.operator.positions * self.operator.filters))
        for first in range(0, len(pairs), chunk):
            asked = self._ask(pairs[first : first + chunk])
            fits[edge] &= self._match(tree, *asked, positions[edge], filters[edge])
        return fits

    def _match(
        self,
        tree: Tree,
        pairs: list[tuple[int, int]],
        answers: np.ndarray,
        positions: np.ndarray,
        filters: np.ndarray,
    ) -> np.ndarray:
        """Which outputs gave the answers of this tree; leaves not read tell nothing."""
        fits = np.ones(len(positions), bool)
        numbers = np.array([self._number(leaf) for leaf in tree.leaves])
        classes = self.classes[positions]
        read = {number: np.isin(numbers, self.leaves[number]) for number in np.unique(classes)}
        for (i, j), survivors in zip(pairs, answers, strict=True):
            if not np.isin((i, j), numbers).all():
                continue
            sizes = tree.lca_sizes(tree.leaves[int(np.flatnonzero(numbers == i)[0])])
            under = sizes <= sizes[numbers == j]
            for number, here in read.items():
                if here[(numbers == i) | (numbers == j)].all():
                    mine = np.flatnonzero(classes == number)
                    left = survivors[positions[mine], filters[mine]]
                    fits[mine] &= left == (here & ~under).sum()
        return fits

    def _number(self, leaf: int) -> int:
        """The leaf as masks number it: the bias is the last."""
        return self.operator.summands if leaf == BIAS else leaf

    def _everywhere(self) -> tuple[list[tuple[int, int]], np.ndarray]:
        """Pairs of leaves, and the units that survive each: (pairs, positions, filters)."""
        if self._asked is None:
            widest = max(self.leaves, key=len)
            picks = operands.hashes(0, "w", 0, (ASKED, 2)) % np.uint64(len(widest))
            self._asked = self._ask([(int(widest[a]), int(widest[b])) for a, b in picks if a != b])
        return self._asked

    def _ask(self, pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], np.ndarray]:
        """The same pairs of leaves in every filter; what survives: (pairs, positions, filters)."""
        ask = np.broadcast_to(np.array(pairs)[:, None, :], (len(pairs), self.operator.filters, 2))
        return pairs, self.masks.survivors(ask)

    def _within_nodes(self, tree: Tree) -> list[tuple[int, int]]:
        """Pairs of leaves that meet in nodes of three summands or more, of the first such nodes."""
        lowest: list[int] = []
        pairs: list[tuple[int, int]] = []
        for children in tree.nodes:
            firsts = [lowest[~child] if child < 0 else child for child in children]
            lowest.append(firsts[0])
            if len(firsts) > 2 and len(pairs) < 3 * NODES:
                pairs += itertools.combinations(map(self._number, firsts[:3]), 2)
        return pairs
