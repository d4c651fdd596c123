"""Reveals the order in which one output is added: FPRev, as published, and nothing else.

Xie, Gao, Wang, Xue: "Revealing Floating-Point Accumulation Orders in Software/Hardware
Implementations", USENIX ATC 2025, algorithm 4. All summands are one unit but two: leaf i is +M,
leaf j is -M, and M is so large that a unit added to it is lost. The units that are added to the sum
of i before j meets it are lost, and so are those added to the sum of j; those that are added later
survive. So of n leaves, n less what comes out are below the node where i and j meet.

One leaf, asked beside every other, thereby gives the sizes of all nodes on its way to the root, and
which leaves hang on each of them. A leaf that hangs alone is a child; of several that hang together
one is asked beside the others in turn. A node may have more than two children: then leaves of one
branch answer that they meet over as many leaves as the whole node has.

``fprev`` asks one question after the other. What this room adds to it: many outputs, and many
questions in one call, and trees of long sums that are guessed from a few answers (``reveal``);
where the sums round (``rounding``); replays (``orders``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from probe.order.tree import BIAS, Tree


class NoTree(Exception):
    """The answers fit no tree; says which."""


@dataclass(frozen=True)
class Branch:
    """Leaves that meet below node ``parent``, of ``total`` leaves; the first is asked about.

    ``parent`` -1 and ``total`` 0: all leaves. ``start``: which leaf was put first: the branch's own
    first (0), last (1) or middle one (2).
    """

    leaves: np.ndarray
    parent: int = -1
    total: int = 0
    start: int = 0


@dataclass
class Growth:
    """One tree while it is read. ``open``: branches that have to be asked about.

    ``read``: the leaves, ascending. ``children``: of every node; leaf k as k, node m as ~m.
    """

    read: np.ndarray
    open: list[Branch] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, read: np.ndarray) -> Growth:
        """What is known before the first question. ``read``: two leaves or more."""
        return cls(read, [Branch(read)])

    def copy(self) -> Growth:
        """The same, to be continued apart."""
        return Growth(self.read, list(self.open), [list(some) for some in self.children])

    def pairs(self) -> np.ndarray:
        """What has to be asked next: leaves i and j, int (questions, 2), ascending."""
        firsts = [np.full(len(branch.leaves) - 1, branch.leaves[0]) for branch in self.open]
        others = [branch.leaves[1:] for branch in self.open]
        pairs = np.stack([np.concatenate(firsts), np.concatenate(others)], axis=1)
        # in this order an answer is found by bisection, also where several growths share the
        # questions
        return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]

    def grow(self, survivors: np.ndarray) -> None:
        """Takes the answers to ``pairs()``, in its order: units that survive. NoTree."""
        branches, self.open = sorted(self.open, key=lambda each: int(each.leaves[0])), []
        begin = 0
        for branch in branches:
            others = branch.leaves[1:]
            answers = np.empty(len(others))
            answers[np.argsort(others, kind="stable")] = survivors[begin : begin + len(others)]
            begin += len(others)
            self._climb(branch, len(self.read) - answers)

    def _climb(self, branch: Branch, sizes: np.ndarray) -> None:
        """Adds the path from the branch's first leaf to its root, and queues what hangs on it.

        ``sizes``: leaves under the node where the first leaf meets each of the others.
        """
        first, others = int(branch.leaves[0]), branch.leaves[1:]
        question = f"with p{first} = +M, p{{}} = -M and all other products 1 the output is {{:g}}"
        valid = (sizes >= 2) & (sizes <= len(self.read)) & (sizes == np.rint(sizes))
        if not valid.all():
            bad = int(np.argmin(valid))
            raise NoTree(question.format(others[bad], len(self.read) - sizes[bad]))
        below, current = 1, first
        # from the leaf upwards: leaves that answer one size meet the path in one node
        for size in np.unique(sizes):
            hanging = others[sizes == size]
            if branch.total and size == branch.total:  # further children of the node above
                self._hang(hanging, branch.parent, branch.total, branch)
                break
            # a node holds what is below it and what hangs on it; other answers come from no tree:
            # of a Winograd convolution, or of filters that took turns and do not add alike
            if size != below + len(hanging):
                answer = question.format(hanging[0], len(self.read) - size)
                expected = len(self.read) - below - len(hanging)
                raise NoTree(f"{answer}, and the other outputs predict {expected}")
            self.children.append([current])
            current = ~(len(self.children) - 1)
            self._hang(hanging, ~current, int(size), branch)
            below = int(size)
        if branch.parent >= 0:
            self.children[branch.parent].append(current)

    def _hang(self, leaves: np.ndarray, parent: int, total: int, within: Branch) -> None:
        """A leaf is a child at once; several are a branch.

        A branch costs the fewest questions when it starts from its deepest leaf: the first one
        where a library adds upwards, the last where it adds downwards. Where a start told little
        (what hangs together is most of what was asked), the next one is tried.
        """
        if len(leaves) == 1:
            self.children[parent].append(int(leaves[0]))
            return
        poor = 3 * len(leaves) > 2 * len(within.leaves)  # speed alone
        start = (within.start + 1) % 3 if poor else 0
        at = (0, len(leaves) - 1, len(leaves) // 2)[start]
        leaves = np.sort(leaves)
        leaves[[0, at]] = leaves[[at, 0]]
        self.open.append(Branch(leaves, parent, total, start))

    def tree(self, bias: int | None = None) -> Tree:
        """The finished tree; ``bias``: the leaf that is the bias, if one is."""
        # the root is the node that no other one adds
        above = {~c: n for n, children in enumerate(self.children) for c in children if c < 0}
        root = next(n for n in range(len(self.children)) if n not in above)
        order, stack = [], [root]  # nodes were found from leaf to root and outwards
        while stack:
            order.append(stack.pop())
            stack.extend(~c for c in self.children[order[-1]] if c < 0)
        order.reverse()
        place = {node: n for n, node in enumerate(order)}
        return Tree.from_nodes(
            [
                [~place[~c] if c < 0 else BIAS if c == bias else c for c in self.children[node]]
                for node in order
            ]
        )


def fprev(survivors: Callable[[int, int], float], leaves: int) -> Tree:
    """The tree of an output that adds so many leaves, one question after the other.

    ``survivors(i, j)``: what comes out where leaf i is +M, leaf j is -M and all others are 1.
    NoTree: the answers fit none.
    """
    if leaves < 2:
        return Tree.sequential(leaves)
    growth = Growth.of(np.arange(leaves))
    while growth.open:
        growth.grow(np.array([survivors(i, j) for i, j in growth.pairs().tolist()]))
    return growth.tree()


def fprev_calls(tree: Tree) -> int:
    """Calls that the published algorithm needs to find this tree: the measure for ours.

    It always starts from a branch's first leaf, and this file from the last where that told little.
    """
    calls = len(tree.leaves) - 1
    sizes: list[int] = []
    for children in tree.nodes:  # the first child holds the first leaf; the others are sets
        counts = [1 if child >= 0 else sizes[~child] for child in children]
        sizes.append(sum(counts))
        calls += sum(sum(counts[place:]) - 1 for place in range(1, len(counts)))
    return calls
