"""What to ask of one tree about its rounding: which leaves to set, as few questions as possible."""

from __future__ import annotations

import numpy as np

from probe.order.tree import BIAS, Tree


class Questions:
    """The fusion and precision questions of one tree; ``bias`` is the bias leaf's number there.

    ``pairs``        (k, partner) for every leaf that may be fused into an addition; the partner is
                     added right before k.
    ``batches``      the same pairs in sets that can be asked in one call: no two pairs of a set
                     are ever pending in the same partial sum, so every small remainder stays exact.
    ``behind_bias``  the pairs whose partner can only be the bias.
    ``paths``        (p, q, r): p and q meet in a node without inner children, r joins at the root:
                     asks all nodes between at once, which are ``path_nodes``.
    ``triples``      (p, q, r) for every node but the root, which are ``triple_nodes``.
    ``ends``         (p, q) that meet at the root, twice the leaf of a tree of one; where the root
                     adds the bias, also two that meet right below it.
    """

    def __init__(self, tree: Tree, bias: int, most: int) -> None:
        self.tree, self.bias = tree, bias
        self.parent = {~c: n for n, children in enumerate(tree.nodes) for c in children if c < 0}
        self.first = self._first_leaves()
        self.batches: list[list[tuple[int, int]]] = []
        behind: list[tuple[int, int]] = []
        self._pair_up(most, behind)
        self.pairs = [pair for batch in self.batches for pair in batch]
        self.behind_bias = np.array(behind, int).reshape(-1, 2)
        self._trace()
        last = [tree.nodes[-1] if tree.nodes else tree.leaves * 2]
        if tree.nodes and BIAS in last[0] and last[0][0] < 0:
            last.append(tree.nodes[~last[0][0]])
        self.ends = np.array([[self._leaf(child) for child in node[:2]] for node in last])

    def _first_leaves(self) -> list[int]:
        """Per node a leaf below it, a weight where it holds one."""
        first: list[int] = []
        for children in self.tree.nodes:
            first.append(min(c if c >= 0 else first[~c] for c in children))  # the bias sorts last
        return first

    def _leaf(self, child: int) -> int:
        leaf = child if child >= 0 else self.first[~child]
        return self.bias if leaf == BIAS else leaf

    def _pair_up(self, most: int, behind: list[tuple[int, int]]) -> None:
        """Deals every (leaf, addition) to the first batch in which its path is free."""
        waiting = [
            (node, child)
            for node, children in enumerate(self.tree.nodes)
            for child in children
            if 0 <= child < BIAS
        ][::-1]
        while waiting:
            used: set[int] = set()  # leaves, and nodes in which a pair is pending
            batch: list[tuple[int, int]] = []
            left = []
            for node, child in waiting:
                path = self._path_to_partner(node, child, used)
                if path is None and not batch and not used:
                    behind.append((child, self.bias))
                elif path is None or child in used or len(batch) == most:
                    left.append((node, child))
                else:
                    used.update((child, *path))
                    batch.append((child, path[-1]))
            if batch:
                self.batches.append(batch)
            waiting = left

    def _path_to_partner(self, node: int, child: int, used: set[int]) -> list[int] | None:
        """From a sibling of ``child`` down to the nearest weight, through what is not used."""
        for sibling in self.tree.nodes[node]:
            if sibling == child:
                continue
            path = [sibling]
            while path[-1] < 0 and path[-1] not in used:
                children = self.tree.nodes[~path[-1]]
                weights = [c for c in children if 0 <= c < BIAS and c not in used]
                inner = [c for c in children if c < 0]
                if not weights and not inner:
                    break
                path.append(weights[0] if weights else inner[0])
            if 0 <= path[-1] < BIAS and path[-1] not in used:
                return path
        return None

    def _trace(self) -> None:
        """Paths from the lowest nodes to the root, and the triple of every node on them."""
        nodes = self.tree.nodes
        paths, self.path_nodes = [], []
        triples, self.triple_nodes = [], []
        for node, above in sorted(self.parent.items()):
            p, q = (self._leaf(child) for child in nodes[node][:2])
            triples.append((p, q, self._sibling(node, above)))
            self.triple_nodes.append(node)
            if all(child >= 0 for child in nodes[node]):
                path = [node]
                while self.parent[path[-1]] != len(nodes) - 1:
                    path.append(self.parent[path[-1]])
                paths.append((p, q, self._sibling(path[-1], len(nodes) - 1)))
                self.path_nodes.append(path)
        self.paths = np.array(paths, int).reshape(-1, 3)
        self.triples = np.array(triples, int).reshape(-1, 3)

    def _sibling(self, node: int, above: int) -> int:
        return next(self._leaf(child) for child in self.tree.nodes[above] if child != ~node)


def padded(batches: list[list[tuple[int, int]]]) -> np.ndarray:
    """Batches as rows of ``m`` leaves and, behind them, their ``m`` partners; -1 fills up."""
    most = max(map(len, batches), default=1)
    rows = np.full((len(batches), 2 * most), -1)
    for row, batch in zip(rows, batches, strict=True):
        leaves, partners = zip(*batch, strict=True)
        row[: len(batch)], row[most : most + len(batch)] = leaves, partners
    return rows
