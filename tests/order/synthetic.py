"""Kernels whose summation is known, output by output, and summations that differ from it a little.

What reveals say of these can be held against the truth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from probe.case import floats
from probe.explain.comparison import ComparedShapes, Revealer, compare_shapes
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
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


class SummationModel:
    """A ``MaskedOperator`` of one output that adds as a summation says: what answers have to be."""

    filters = positions = 1

    def __init__(self, summation: Summation, summands: int, bias: bool, dtype: str) -> None:
        self.summation, self.summands, self.bias, self.dtype = summation, summands, bias, dtype

    def run(
        self, x: float, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """As ``MaskedOperator.run``."""
        w = np.repeat(template[None], len(leaves), axis=0)
        for slot, value in enumerate(values):
            rows = np.flatnonzero(leaves[:, 0, slot] >= 0)
            w[rows, leaves[rows, 0, slot]] = value
        return self.outputs(x, w)[:, None, None]

    def each(self, weights: np.ndarray) -> np.ndarray:
        """As ``MaskedOperator.each``."""
        return self.outputs(1.0, weights)[:, None, None]

    def outputs(self, x: float, w: np.ndarray) -> np.ndarray:
        """Returns the answers to calls with these weights (calls, leaves), as float64."""
        held = floats.round_to(w.T, self.dtype)
        ones = np.broadcast_to(floats.round_to(np.array(x), self.dtype), held.shape)
        bias = held[self.summands] if BIAS in self.summation.tree.leaves else None
        return floats.widen(replay(self.summation, ones, held, self.dtype, bias), self.dtype)


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


def with_style(tree: Tree, style: str) -> Summation:
    """A tree with no products fused, all that can be, or every other one of these."""
    every = Rounding.fused_everywhere(tree, "float32").fused
    fused = {"none": (), "all": every, "some": sorted(every)[::2]}[style]
    return Summation(tree, Rounding(frozenset(fused), accumulator_format="float32"))


KINDS = (
    *("fuse", "unfuse", "rotate", "swap leaves", "swap subtrees", "merge"),
    *("wide node", "rounded node", "truncated node"),
)


def changed(true: Summation, kind: str, rng: np.random.Generator) -> Summation | None:
    """A summation that differs at one place; None where this one has no such place."""
    tree, rounding = true
    if kind in ("fuse", "unfuse"):
        able = [
            child
            for children in tree.nodes
            for child in children
            if 0 <= child < BIAS
            and (child in rounding.fused) == (kind == "unfuse")
            and (kind == "unfuse" or not rounding.fused.intersection(children))
        ]
        if not able:
            return None
        fused = rounding.fused ^ {able[int(rng.integers(len(able)))]}
        return Summation(tree, replace(rounding, fused=fused))
    if kind in ("wide node", "rounded node", "truncated node"):
        return _changed_format(true, kind, int(rng.integers(len(tree.nodes) - 1)))
    nodes = [list(children) for children in tree.nodes]
    made = _changed_nodes(nodes, tree, kind, rng)
    if made is None or made == tree:
        return None
    return Summation(made, rounding)


def _changed_format(true: Summation, kind: str, node: int) -> Summation:
    tree, rounding = true
    every = frozenset(range(len(tree.nodes)))
    wide = replace(rounding, accumulator_format="float64", product_format="float32")
    if kind == "wide node":
        return Summation(tree, replace(wide, rounded=every - {node}))
    if kind == "rounded node":
        return Summation(tree, replace(wide, rounded=every & {node}))
    return Summation(tree, replace(wide, rounded=every, truncated=frozenset([node])))


def _changed_nodes(
    nodes: list[list[int]], tree: Tree, kind: str, rng: np.random.Generator
) -> Tree | None:
    if kind == "swap leaves":
        one, two = (int(leaf) for leaf in rng.choice(tree.leaves, 2, replace=False))
        swap = {one: two, two: one}
        return Tree.from_nodes([[swap.get(child, child) for child in node] for node in nodes])
    above = [n for n, children in enumerate(nodes) if any(child < 0 for child in children)]
    if not above:
        return None
    node = above[int(rng.integers(len(above)))]
    inner = next(child for child in nodes[node] if child < 0)
    if kind == "merge":  # two additions become one of three
        nodes[node] = [child for child in nodes[node] if child != inner] + nodes[~inner]
        return _sorted(nodes)
    if kind == "rotate":  # (a + b) + c becomes a + (b + c)
        (other,) = (child for child in nodes[node] if child != inner)
        first, second = nodes[~inner]
        nodes[~inner], nodes[node] = [second, other], [first, inner]
        return _sorted(nodes)
    grand = [child for child in nodes[~inner] if child < 0]
    outer = next((child for child in nodes[node] if child != inner), None)
    if kind != "swap subtrees" or not grand or outer is None:
        return None
    nodes[~inner][nodes[~inner].index(grand[0])] = outer
    nodes[node][nodes[node].index(outer)] = grand[0]
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
