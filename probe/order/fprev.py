"""What revealing one output costs with FPRev's algorithm: the measure for ours.

Xie, Gao, Wang, Xue: "Revealing Floating-Point Accumulation Orders in Software/Hardware
Implementations", USENIX ATC 2025, algorithm 4: the first leaf of a set is paired with every other
one, and every set of leaves that meets it at one node is worked on in the same way.
"""

from __future__ import annotations

import numpy as np

from probe.order.tree import Tree


def fprev_calls(tree: Tree) -> int:
    """Calls of the operator that FPRev's algorithm needs to find this tree from one output."""
    calls, waiting = 0, [np.array(tree.leaves)]
    place = {leaf: number for number, leaf in enumerate(tree.leaves)}
    while waiting:
        leaves = waiting.pop()
        if len(leaves) < 2:
            continue
        first, rest = leaves[0], leaves[1:]
        calls += len(rest)
        sizes = tree.lca_sizes(int(first))[[place[int(leaf)] for leaf in rest]]
        waiting += [rest[sizes == size] for size in np.unique(sizes)]
    return calls
