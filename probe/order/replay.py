"""Evaluates a summation tree in plain NumPy, with the roundings of the operator it was read from.

Every node is the exact sum of its children rounded once to the format that partial sums are kept
in. A child that is a leaf is its exact product where the leaf is fused, else the product rounded
first: a node with one fused leaf is a fused multiply-add. Signs of zeros may differ from the
operator's (many start from +0); ``ulp.POLICY`` takes +0 and -0 as equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.order import fma
from probe.order.fma import Doubles, Rounder
from probe.order.plan import Group, Part, parts, plan
from probe.order.tree import BIAS, Tree


@dataclass(frozen=True)
class Rounding:
    """Where the evaluation of a tree rounds. The default rounds every product and every sum.

    ``fused``: leaves whose exact product enters the addition. ``products``: the format that both
    operands are rounded to before they are multiplied (``"bfloat16"``, ``"tf32"``), None: left as
    they are. ``nodes``: the format of partial sums, None: the dtype. ``narrow``: nodes whose value
    is then rounded to the dtype too, where ``nodes`` is wider. ``product_format``: the format that
    a product that is not fused is rounded to, None: that of partial sums. ``cut``: nodes whose
    rounding to the dtype is toward zero (the last bits are cut off) and not to nearest; the root,
    -1 in a tree of one leaf, if that is the output's. ``through``: the format that every sum is
    rounded to before it is rounded to that of partial sums, None: it is rounded once. A float16 FMA
    made of a float32 one rounds twice.
    """

    fused: frozenset[int] = frozenset()
    products: str | None = None
    nodes: str | None = None
    narrow: frozenset[int] = frozenset()
    product_format: str | None = None
    cut: frozenset[int] = frozenset()
    through: str | None = None

    @classmethod
    def fused_everywhere(cls, tree: Tree, nodes: str | None = None) -> Rounding:
        """Every node that can fuse a product does: of two leaves, the one written last."""
        fused: set[int] = set()
        for children in tree.nodes:
            leaves = [child for child in children if 0 <= child < BIAS]
            fused.update(leaves[-1:] if len(children) == 2 else leaves)
        return cls(fused=frozenset(fused), nodes=nodes)

    def output(self, tree: Tree, values: np.ndarray, dtype: str) -> np.ndarray:
        """The container array that last sums (float64 values) become."""
        last = len(tree.nodes) - 1
        return (floats.cut_to if last in self.cut else floats.round_to)(values, dtype)

    def style(self, tree: Tree) -> str:
        """``"none"``; ``"all"``: every node with a product as a child fuses one; or ``"some"``.

        Nodes that add more than two count as fused where all of their products are.
        """
        able = done = 0
        for children in tree.nodes:
            leaves = [child for child in children if 0 <= child < BIAS]
            count = sum(leaf in self.fused for leaf in leaves)
            able += bool(leaves)
            done += count > 0 and (len(children) == 2 or count == len(leaves))
        if not self.fused.intersection(tree.leaves):
            return "none"
        return "all" if done == able else "some"


@dataclass(frozen=True)
class PartialSum:
    """A node's value; ``terms``: ``"3"`` is a product, ``"#2"`` node 2, ``"b"`` the bias.

    For people products are p0, p1, ... and nodes s0, s1, ...: ``text``.
    """

    node: int
    terms: tuple[str, ...]
    value: float
    bits: int
    format: str

    @property
    def text(self) -> str:
        """``s4 = s3 + p4 = 97.20009 (0x42c26672)``."""
        named = [_named(term) for term in self.terms]
        return f"s{self.node} = {' + '.join(named)} = {floats.text(self.bits, self.format)}"


def _named(term: str) -> str:
    return term if term == "b" else f"s{term[1:]}" if term[0] == "#" else f"p{term}"


def replay(
    tree: Tree,
    rounding: Rounding,
    x: np.ndarray,
    w: np.ndarray,
    dtype: str,
    bias: np.ndarray | float | None = None,
) -> np.ndarray:
    """The outputs, a container array of shape (outputs,), that this order and rounding give.

    ``x``: container array (leaves, outputs), row k what leaf k meets; views that repeat elements
    are fine and rows of absent leaves are never read. ``w``: the same shape or (leaves, 1).
    ``bias``: container array (outputs,) or one value; there exactly if the tree has the leaf ``b``.
    Rounded to ``dtype`` at the end. Costs about 3 ns a leaf and output in float32.
    """
    return _Run(tree, rounding, x, w, dtype, bias).outputs()


def partial_sums(
    tree: Tree,
    rounding: Rounding,
    x: np.ndarray,
    w: np.ndarray,
    dtype: str,
    bias: np.ndarray | float | None = None,
) -> list[PartialSum]:
    """Every partial sum of one output in the order of evaluation; ``x``, ``w``: (leaves, 1)."""
    kept = rounding.nodes or dtype
    found: dict[int, PartialSum] = {}

    def record(nodes: np.ndarray, values: Doubles) -> None:
        for node, value in zip(nodes.tolist(), values[:, 0], strict=True):
            form = dtype if node in rounding.narrow else kept
            bits = floats.to_bits(floats.round_to(value.reshape(1), form), form)
            terms = tuple(_term(child) for child in tree.nodes[node])
            found[node] = PartialSum(node, terms, float(value), int(bits[0]), form)

    _Run(tree, rounding, x, w, dtype, bias).outputs(record)
    return [found[node] for node in sorted(found)]


def _term(child: int) -> str:
    return f"#{~child}" if child < 0 else "b" if child == BIAS else str(child)


class _Run:
    """One evaluation, block by block over the outputs."""

    def __init__(
        self,
        tree: Tree,
        rounding: Rounding,
        x: np.ndarray,
        w: np.ndarray,
        dtype: str,
        bias: np.ndarray | float | None,
    ) -> None:
        self.tree, self.rounding, self.dtype = tree, rounding, dtype
        self.x, self.w = floats.to_container(x, dtype), floats.to_container(w, dtype)
        self.nodes = rounding.nodes or dtype
        self.step = rounding.through or self.nodes
        self.product_format = rounding.product_format or self.nodes
        _check(tree, self.x, self.w, dtype, bias, self.nodes)
        count = self.x.shape[1]
        self.bias = None if bias is None else np.broadcast_to(_bias(bias, dtype), (count,))
        self.plan = plan(tree, rounding.fused, rounding.narrow)
        width = max((len(level.nodes) for level in self.plan), default=1)
        self.size = max(1, min(count, max(64, fma.BLOCK // width)))
        self.memory = [np.empty(width * self.size) for _ in range(6)]
        self.plain = self._plain()
        tiny = dtype != "float16"  # of float16 operands even the smallest product is large
        self.sums = Rounder(self.step, width * self.size, tiny)
        self.products = Rounder(self.product_format, width * self.size)
        self.w_once = self._values(self.w) if self.w.shape[1] == 1 else None

    def _plain(self) -> bool:
        """Whether sums without exact products may be rounded to float64 first.

        They may where every term is on the grid of the partial sums and float64 has twice its
        precision and two bits more (Figueroa, "When is double rounding innocuous?", 1995).
        """
        grids = (
            {self.dtype, self.product_format} if self.bias is not None else {self.product_format}
        )
        precision = floats.format_of(self.step).precision
        narrow = all(floats.format_of(grid).precision <= precision for grid in grids)
        return narrow and 2 * precision + 2 <= floats.FORMATS["float64"].precision

    def outputs(self, record: Callable[[np.ndarray, Doubles], None] | None = None) -> np.ndarray:
        count = self.x.shape[1]
        out = np.empty(count, dtype=floats.container(self.dtype))
        with np.errstate(all="ignore"):
            for start in range(0, count, self.size):
                block = slice(start, min(start + self.size, count))
                values = self._block(block, record)
                out[block] = self.rounding.output(self.tree, values, self.dtype)
        return out

    def _block(self, block: slice, record: Callable[[np.ndarray, Doubles], None] | None) -> Doubles:
        size = block.stop - block.start
        before = self._rows(0, 1, size)
        if not self.plan:
            leaf = self.tree.leaves[0]
            only = parts((leaf,), frozenset(), {})
            return self._operand(only, 1, before, block, 1)[0]
        for number, level in enumerate(self.plan):
            values = self._rows(1 - number % 2, len(level.nodes), size)
            for group in level.groups:
                part = values[group.start : group.end]
                self._evaluate(group, before, part, block)
                if group.narrow is not None:
                    nodes = level.nodes[group.start : group.end][group.narrow]
                    part[group.narrow] = self._narrowed(part[group.narrow], nodes)
            if record:
                record(level.nodes, values)
            before = values
        return before[0]

    def _narrowed(self, values: Doubles, nodes: np.ndarray) -> Doubles:
        """Rows of partial sums, one a node, rounded to the dtype."""
        rounded = floats.nearest(values, self.dtype)
        cut = np.isin(nodes, list(self.rounding.cut))
        rounded[cut] = floats.widen(floats.cut_to(values[cut], self.dtype), self.dtype)
        return rounded

    def _rows(self, which: int, rows: int, size: int) -> Doubles:
        return self.memory[which][: rows * size].reshape(rows, size)

    def _evaluate(self, group: Group, before: Doubles, out: Doubles, block: slice) -> None:
        """The nodes of a group: the exact sum of their operands, rounded once."""
        if self.dtype == "float64" and group.fused:
            self._evaluate_float64(group, before, out, block)
            return
        if len(group.operands) == 2:
            first, second = (
                self._operand(side, len(out), before, block, 2 + place)
                for place, side in enumerate(group.operands)
            )
            if self.plain and not group.fused:
                np.add(first, second, out=out)
            else:
                self.sums.total(first, second, out)
        else:
            terms = [
                self._operand(side, len(out), before, block, 2).copy() for side in group.operands
            ]
            total, error = fma.exact_total(terms)
            np.copyto(out, total if self.step == "float64" else fma.to_odd(total, error))
        self.sums.settle(out)
        if self.step != self.nodes:
            np.copyto(out, floats.nearest(out, self.nodes))

    def _evaluate_float64(self, group: Group, before: Doubles, out: Doubles, block: slice) -> None:
        """As ``_evaluate``, where the exact products don't fit a float64 and stay factors."""
        plain = len(group.operands) - group.fused
        terms = [
            self._operand(side, len(out), before, block, 2).copy()
            for side in group.operands[:plain]
        ]
        factors = []
        for (part,) in group.operands[plain:]:
            x, w = self._factors(part, block, 3)
            factors.append((x.copy(), np.broadcast_to(w, x.shape).copy()))
        if len(terms) == len(factors) == 1:
            np.copyto(out, fma.fma_float64(*factors[0], terms[0]))
        else:
            np.copyto(out, fma.sum_of_products(factors, terms))

    def _operand(
        self, side: tuple[Part, ...], rows: int, before: Doubles, block: slice, which: int
    ) -> Doubles:
        """One child of every node of a group, float64 values of shape (rows, outputs of block)."""
        alone = len(side) == 1
        if alone and side[0].kind == "node" and isinstance(side[0].sources, slice):
            return before[side[0].sources]
        size = block.stop - block.start
        out = self._rows(which, rows, size)
        for part in side:
            if part.kind == "node":
                out[part.rows] = before[part.sources]
            elif part.kind == "bias":
                assert self.bias is not None
                out[part.rows] = floats.widen(self.bias[block], self.dtype)
            else:
                space = out if alone else self._rows(5, part.count, size)
                self._multiply(part, block, space)
                if not alone:
                    out[part.rows] = space
        return out

    def _multiply(self, part: Part, block: slice, out: Doubles) -> None:
        x, w = self._factors(part, block, None, out)
        if part.kind == "rounded" and self.dtype == "float64" != self.product_format:
            np.copyto(out, fma.to_odd(*fma.two_product(x, w)))
        else:
            np.multiply(x, w, out=out)
        if part.kind == "rounded":
            self.products.settle(out)

    def _factors(
        self, part: Part, block: slice, which: int | None, out: Doubles | None = None
    ) -> tuple[Doubles, Doubles]:
        size = block.stop - block.start
        row = self._rows(which, part.count, size) if which is not None else out
        assert row is not None
        x = self._values(self.x[part.sources, block], row)
        if self.w_once is not None:
            return x, self.w_once[part.sources]
        return x, self._values(self.w[part.sources, block], self._rows(4, part.count, size))

    def _values(self, array: np.ndarray, out: Doubles | None = None) -> Doubles:
        """Operands as float64, rounded to the format that products are taken in."""
        out = np.empty(array.shape) if out is None else out
        np.copyto(out, floats.widen(array, self.dtype) if self.dtype == "bfloat16" else array)
        if self.rounding.products:
            np.copyto(out, floats.nearest(out, self.rounding.products))
        return out


def _bias(bias: np.ndarray | float, dtype: str) -> np.ndarray:
    if isinstance(bias, int | float):
        return floats.round_to(np.asarray(bias, dtype=np.float64), dtype)
    return floats.to_container(bias, dtype)


def _check(
    tree: Tree,
    x: np.ndarray,
    w: np.ndarray,
    dtype: str,
    bias: np.ndarray | float | None,
    nodes: str,
) -> None:
    leaves = [leaf for leaf in tree.leaves if leaf != BIAS]
    if x.ndim != 2 or w.ndim != 2 or w.shape not in (x.shape, (len(x), 1)):
        shapes = f"{x.shape}, {w.shape}"
        raise InputError("x, w", shapes, "they are (leaves, outputs) or, w, (leaves, 1)", "reshape")
    if leaves and leaves[-1] >= len(x):
        raise InputError("tree", tree.id, f"leaf {leaves[-1]} has no row in x", "give every leaf's")
    if (bias is None) == (BIAS in tree.leaves):
        there = "adds a bias" if bias is None else "has no leaf b"
        raise InputError("bias", bias, f"the tree {there}", "give one exactly if the tree adds it")
    if nodes not in floats.FORMATS or (dtype == "float64" and nodes != dtype):
        raise InputError("nodes", nodes, f"partial sums of {dtype} can't be kept in it", "widen it")
