"""Kernels whose summation is known, output by output, and summations that differ from it a little.

What reveals say of these can be held against the truth.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from probe.case import floats
from probe.explain.comparison import compare_shapes
from probe.explain.runs import ComparedShapes, Revealer
from probe.order.replay import replay
from probe.order.summation import Summation
from probe.order.tree import BIAS, Tree
from probe.targets.backends.reference import Reference
from probe.targets.launch import InlineSession
from probe.targets.target import Target


class Kernel:
    """A ``MaskedOperator`` in NumPy.

    ``truth``: (positions, filters), the numbers of the outputs' summations.
    """

    def __init__(self, summations, truth, summands, *, bias=False, dtype="float32"):
        self.summations, self.truth = list(summations), np.asarray(truth)
        self.summands, self.bias, self.dtype = summands, bias, dtype
        self.positions, self.filters = self.truth.shape

    def run(self, x, template, leaves, values):
        out = np.empty((len(leaves), self.positions, self.filters))
        w = np.repeat(np.repeat(template[None, None], len(leaves), 0), self.filters, 1)
        calls, filters, slots = np.nonzero(leaves >= 0)
        w[calls, filters, leaves[calls, filters, slots]] = np.asarray(values)[slots]
        for number, filt in _pairs(self.truth):
            mine = self.truth[:, filt] == number
            out[:, mine, filt] = self._outputs(number, x, w[:, filt])[:, None]
        return out

    def each(self, weights):
        out = np.empty((len(weights), self.positions, self.filters))
        for number in np.unique(self.truth):
            out[:, self.truth == number] = self._outputs(number, 1.0, weights)[:, None]
        return out

    def _outputs(self, number, x, w):
        summation = self.summations[number]
        held = floats.round_to(w.T, self.dtype)
        same = np.broadcast_to(floats.round_to(np.array(x), self.dtype), held.shape)
        bias = held[self.summands] if BIAS in summation.tree.leaves else None
        return floats.widen(replay(summation, same, held, self.dtype, bias), self.dtype)


def model_of(summation: Summation, summands: int, bias: bool, dtype: str) -> Kernel:
    """A kernel of one output that adds as a summation says."""
    return Kernel([summation], [[0]], summands, bias=bias, dtype=dtype)


def _pairs(truth):
    """(number, filter) of all summations that some output of a filter has."""
    return [(n, f) for f in range(truth.shape[1]) for n in np.unique(truth[:, f])]


class _Changed(Reference):
    """The reference, with functions of what it reads and gives: float32 arrays."""

    def __init__(self, **functions):
        self.functions = functions

    def operator(self, spec):
        made = super().operator(spec)
        for name in ("input", "weights"):
            if name in self.functions:
                setattr(made, name, _after(self.functions[name], getattr(made, name)))
        if "output" in self.functions:
            made.output = _after(made.output, self.functions["output"])
        return made


def _after(first, second):
    return lambda array: second(first(array))


def planted(**functions):
    """A started session of the reference with ``input``, ``weights`` or ``output`` changed."""
    session = InlineSession(Target("reference")).start()
    session._worker.backend = _Changed(**functions)
    session._worker.backend.start({}, None)
    return session


def compared(case, left, right=None, at=None, against=None, *more):
    """Two algorithms of the reference, or two shapes of one, revealed.

    ``more``: operands, zeros.
    """
    one = InlineSession(Target.parse(f"reference,algorithm={left}"))
    two = InlineSession(Target.parse(f"reference,algorithm={right}")) if right else one
    with one, two:
        found = compare_shapes(ComparedShapes.named(case, None, at, against), one, two, *more)
        return found.reveal(one, two, Revealer())


def trees(n: int) -> dict[str, Tree]:
    """Orders that libraries have, and one that none has."""
    rng = np.random.default_rng(n)
    blocks = [list(range(start, min(start + 16, n))) for start in range(0, n, 16)]
    return {
        "chain": Tree.sequential(n),
        "pairwise": Tree.pairwise(n),
        "lanes": Tree.lanes(n, 8),
        "blocks": joined(blocks),
        "random": random_tree(n, rng),
    }


def joined(groups: list[list[int]]) -> Tree:
    """Chains of the groups, added one after the other."""
    nodes: list[tuple[int, ...]] = []

    def add(one: int, other: int) -> int:
        nodes.append((one, other))
        return ~(len(nodes) - 1)

    reduce(add, [reduce(add, group) for group in groups])
    return Tree.from_nodes(nodes)


def random_tree(n: int, rng: np.random.Generator) -> Tree:
    parts, nodes = list(range(n)), []
    while len(parts) > 1:
        one, two = (parts.pop(int(rng.integers(len(parts)))) for _ in range(2))
        nodes.append((one, two))
        parts.append(~(len(nodes) - 1))
    return Tree.from_nodes(nodes)


def changed(tree: Tree, rng: np.random.Generator) -> Tree:
    """Another tree of the same leaves: two change places, or (a + b) + c becomes a + (b + c)."""
    nodes = [list(children) for children in tree.nodes]
    above = [n for n, children in enumerate(nodes) if any(child < 0 for child in children)]
    if rng.integers(2):
        one, two = (int(leaf) for leaf in rng.choice(tree.leaves, 2, replace=False))
        swap = {one: two, two: one}
        return Tree.from_nodes([[swap.get(child, child) for child in node] for node in nodes])
    node = above[int(rng.integers(len(above)))]
    inner = next(child for child in nodes[node] if child < 0)
    (other,) = (child for child in nodes[node] if child != inner)
    first, second = nodes[~inner]
    nodes[~inner], nodes[node] = [second, other], [first, inner]
    return _sorted(nodes)


def _sorted(nodes: list[list[int]]) -> Tree:
    """The nodes below the last one, the root, with children before parents again."""
    order: list[int] = []
    todo = [len(nodes) - 1]
    while todo:
        node = todo.pop()
        order.append(node)
        todo += [~child for child in nodes[node] if child < 0]
    place = {node: number for number, node in enumerate(reversed(order))}
    return Tree.from_nodes(
        [[~place[~c] if c < 0 else c for c in nodes[node]] for node in reversed(order)]
    )
