"""Evaluates a summation in plain NumPy, with the roundings of the operator it was read from.

Every node is the exact sum of its children rounded once to the format that partial sums are kept
in. A child that is a leaf is its exact product where the leaf is fused, else the product rounded
first: a node with one fused leaf is a fused multiply-add. Subnormal numbers become zeros of their
sign where the rounding says so. Signs of zeros may differ from the operator's where the rounding
does not say how sums start (many do from +0); ``ulp.POLICY`` takes +0 and -0 as equal.

Nodes of a level that do the same are evaluated together, for a block of outputs at once: rows of
arrays are nodes, columns are outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.order import arithmetic
from probe.order.arithmetic import Doubles, Flush, Rounder, tiny_doubles
from probe.order.summation import EVERY, ZERO_ADDED, ZERO_FUSED, Summation
from probe.order.tree import BIAS, Tree

# Picks rows of an array: a slice where they are evenly spaced, which costs no copy.
Pick = slice | np.ndarray

# Is given the nodes of every level and their values, (nodes, outputs).
Record = Callable[[np.ndarray, Doubles], None]


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
        letters = {"#": "s", "b": "b"}
        named = [letters.get(term[0], f"p{term[0]}") + term[1:] for term in self.terms]
        return f"s{self.node} = {' + '.join(named)} = {floats.bits_text(self.bits, self.format)}"


class Picked(NamedTuple):
    """An operand whose column k is column ``columns[k]`` of ``rows``.

    Outputs of one position share its inputs, those of one filter its weights: ``rows``, container
    (leaves, some), hold these once, and are widened, rounded and flushed once.
    """

    rows: np.ndarray
    columns: np.ndarray


def replay(
    summation: Summation,
    x: np.ndarray | Picked,
    w: np.ndarray | Picked,
    dtype: str,
    bias: np.ndarray | float | None = None,
) -> np.ndarray:
    """The outputs, a container array of shape (outputs,), that this summation gives.

    ``x``: container array (leaves, outputs), row k what leaf k meets; views that repeat elements
    are fine and rows of absent leaves are never read. ``w``: the same shape or (leaves, 1).
    ``bias``: container array (outputs,) or one value; there exactly if the tree has the leaf ``b``.
    Rounded to ``dtype`` at the end. Costs about 3 ns a leaf and output in float32. InputError:
    shapes, leaves, bias or formats do not fit.
    """
    return _Evaluation(summation, x, w, dtype, bias).outputs()


def partial_sums(
    summation: Summation,
    x: np.ndarray,
    w: np.ndarray,
    dtype: str,
    bias: np.ndarray | float | None = None,
) -> list[PartialSum]:
    """Every partial sum of one output in the order of evaluation; ``x``, ``w``: (leaves, 1)."""
    tree, rounding = summation
    sums: dict[int, PartialSum] = {}

    def term(child: int) -> str:
        return f"#{~child}" if child < 0 else "b" if child == BIAS else str(child)

    def record(nodes: np.ndarray, values: Doubles) -> None:
        for node, value in zip(nodes.tolist(), values[:, 0], strict=True):
            form = dtype if node in rounding.rounded else rounding.accumulator_format or dtype
            bits = floats.to_bits(floats.round_to(value.reshape(1), form), form)
            terms = tuple(map(term, tree.nodes[node]))
            sums[node] = PartialSum(node, terms, float(value), int(bits[0]), form)

    _Evaluation(summation, x, w, dtype, bias).outputs(record)
    return [sums[node] for node in sorted(sums)]


@dataclass(frozen=True)
class _OperandRows:
    """Rows of one operand that come from the same place: ``kind`` node, exact, rounded or bias."""

    kind: str
    rows: Pick
    sources: Pick
    count: int


@dataclass(frozen=True)
class _NodeRows:
    """Nodes of a level that are evaluated alike, rows start to end; operands[i] is child i of all.

    ``fused``: how many exact products each node adds. ``rounded``: rows rounded to the dtype too.
    ``flushed``: rows whose subnormal sums become zero. ``shortened``: rows rounded to a narrower
    format than the dtype.
    """

    start: int
    end: int
    operands: tuple[tuple[_OperandRows, ...], ...]
    fused: int
    rounded: Pick | None
    flushed: Pick | None
    shortened: Pick | None


@lru_cache(maxsize=64)
def _plan(
    tree: Tree, exact: frozenset[int], *sets: frozenset[int]
) -> tuple[tuple[np.ndarray, tuple[_NodeRows, ...]], ...]:
    """The levels in order of evaluation: nodes in the order of their rows, and their groups.

    A node's row in its level is where the next level reads it. ``exact``: leaves whose product
    enters exactly; ``sets``: nodes that are rounded to the dtype too, flushed, and shortened.
    """
    levels: list[tuple[np.ndarray, tuple[_NodeRows, ...]]] = []
    row_of: dict[int, int] = {}
    # Sums first and exact products last: groups then read sums in place and multiply in bulk.
    rank = ("node", "rounded", "bias", "exact").index
    for nodes in tree.schedule():
        alike: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
        for node in nodes.tolist():
            children = sorted(tree.nodes[node], key=lambda child: rank(_child_kind(child, exact)))
            fused = sum(_child_kind(child, exact) == "exact" for child in children)
            alike.setdefault((len(children), fused), []).append((node, children))
        groups: list[_NodeRows] = []
        order: list[int] = []
        for (_, fused), members in alike.items():
            start = len(order)
            order += [node for node, _ in members]
            sides = zip(*(children for _, children in members), strict=True)
            operands = tuple(_rows_of_operands(side, exact, row_of) for side in sides)
            picks = [
                [i for i, (node, _) in enumerate(members) if node in some or EVERY in some]
                for some in sets
            ]
            picked = [_pick(rows) if rows else None for rows in picks]
            groups.append(_NodeRows(start, len(order), operands, fused, *picked))
        row_of = {node: row for row, node in enumerate(order)}
        levels.append((np.array(order), tuple(groups)))
    return tuple(levels)


def _child_kind(child: int, exact: frozenset[int]) -> str:
    if child < 0:
        return "node"
    return "bias" if child == BIAS else "exact" if child in exact else "rounded"


def _rows_of_operands(
    side: tuple[int, ...], exact: frozenset[int], row_of: dict[int, int]
) -> tuple[_OperandRows, ...]:
    """Where one child of every node of a group is read; ``row_of`` gives the rows of nodes."""
    kinds: dict[str, tuple[list[int], list[int]]] = {}
    for row, child in enumerate(side):
        rows, sources = kinds.setdefault(_child_kind(child, exact), ([], []))
        rows.append(row)
        sources.append(row_of[~child] if child < 0 else 0 if child == BIAS else child)
    return tuple(
        _OperandRows(kind, _pick(rows), _pick(sources), len(rows))
        for kind, (rows, sources) in kinds.items()
    )


def _pick(numbers: list[int]) -> Pick:
    steps = np.diff(numbers)
    if not steps.size:
        return slice(numbers[0], numbers[0] + 1)
    if steps[0] > 0 and (steps == steps[0]).all():  # speed alone
        return slice(numbers[0], numbers[-1] + 1, int(steps[0]))
    return np.array(numbers)


class _Given:
    """One operand of every leaf, as it is multiplied: rounded to ``form``, if to any, and flushed.

    ``values``: all of it, float64, where columns share rows (``columns``) or are one; else it is
    read from ``array`` block by block.
    """

    def __init__(
        self, operand: np.ndarray | Picked, dtype: str, form: str | None, flush: Flush, which: str
    ) -> None:
        self.columns = operand.columns if isinstance(operand, Picked) else None
        rows = operand.rows if isinstance(operand, Picked) else operand
        self.array, self.dtype, self.form = floats.to_container(rows, dtype), dtype, form
        self.flush, self.mask = flush, getattr(flush, which)
        self.shape = rows.shape if self.columns is None else (len(rows), len(self.columns))
        self.values: np.ndarray | None = None
        if self.columns is not None or self.shape[1:] == (1,):  # speed alone
            self.values = self._widened(slice(None), slice(None), np.empty(self.array.shape))

    def read(self, leaves: Pick, block: slice, out: Doubles) -> Doubles:
        """What these leaves multiply: float64 (leaves, outputs) in ``out``, or (leaves, 1)
        elsewhere where all outputs have the same."""
        if self.values is None:
            return self._widened(leaves, block, out)
        if self.columns is None:
            return self.values[leaves]
        # clip: NumPy looks for indices that are too large in a second pass otherwise
        return np.take(self.values[leaves], self.columns[block], axis=1, out=out, mode="clip")

    def _widened(self, leaves: Pick, block: slice, out: Doubles) -> Doubles:
        array = self.array[leaves, block]
        np.copyto(out, floats.widen(array, self.dtype) if self.dtype == "bfloat16" else array)
        if self.form:
            np.copyto(out, floats.nearest(out, self.form))
        self.flush.operands(out, self.mask, leaves)
        return out


def starts(tree: Tree, fused: Iterable[int]) -> frozenset[int]:
    """The products that sums start with: of nodes without inner children, one that is not fused."""
    if not tree.nodes:
        return frozenset(tree.leaves) - {BIAS}
    leaves = set()
    for children in tree.nodes:
        first = [leaf for leaf in children if leaf not in fused][:1]
        if min(children) >= 0 and BIAS not in children:
            leaves.update(first)
    return frozenset(leaves)


class _Evaluation:
    """One evaluation, block by block over the outputs. Values are float64 on their format's grid.

    Memory is six rows of blocks, allocated once: partial sums of this level and of the one before
    (0, 1), the two operands of additions (2, 3), weights (4), and products on their way (5).
    """

    def __init__(
        self,
        summation: Summation,
        x: np.ndarray | Picked,
        w: np.ndarray | Picked,
        dtype: str,
        bias: np.ndarray | float | None,
    ) -> None:
        self.summation, self.dtype = summation, dtype
        tree, self.rounding = summation
        leaves = len(x.rows if isinstance(x, Picked) else x)
        self.flush = Flush(self.rounding, dtype, leaves)
        both = self.rounding.operand_format
        self.x = _Given(x, dtype, self.rounding.input_format or both, self.flush, "inputs")
        self.w = _Given(w, dtype, self.rounding.weight_format or both, self.flush, "weights")
        self.accumulator_format = self.rounding.accumulator_format or dtype
        self.step = self.rounding.intermediate_format or self.accumulator_format
        self.product_format = self.rounding.product_format or self.accumulator_format
        self._check(bias)
        count = self.x.shape[1]
        if isinstance(bias, int | float):
            bias = floats.round_to(np.asarray(bias, dtype=np.float64), dtype)
        self.bias = None
        if bias is not None:
            self.bias = np.broadcast_to(floats.to_container(bias, dtype), (count,))
        rounding = self.rounding
        sets = rounding.rounded, rounding.flushed_sums, rounding.shortened
        self.plan = _plan(tree, rounding.fused, *sets)
        width = max((len(nodes) for nodes, _ in self.plan), default=1)
        block = max(64, arithmetic.BLOCK // width)  # speed alone
        self.size = max(1, min(count, block))  # speed alone
        self.memory = [np.empty(width * self.size) for _ in range(6)]
        # else sums whose float64 value is a midpoint are repaired, which costs a look at every sum
        self.innocuous = self._innocuous()
        tiny = dtype != "float16"  # of float16 operands even the smallest product is large
        self.sum_rounder = Rounder(self.step, width * self.size, tiny)
        self.product_rounder = Rounder(self.product_format, width * self.size)
        self.signed = rounding.zero is not None
        self.starts: np.ndarray | None = None  # products that +0 is added to
        if rounding.zero in (ZERO_ADDED, ZERO_FUSED):
            self.starts = np.isin(np.arange(leaves), list(starts(tree, rounding.fused)))

    def _check(self, bias: np.ndarray | float | None) -> None:
        x, w, tree, form = self.x, self.w, self.summation.tree, self.accumulator_format
        leaves = [leaf for leaf in tree.leaves if leaf != BIAS]
        if len(x.shape) != 2 or w.shape not in (x.shape, (x.shape[0], 1)):
            shapes, why = f"{x.shape}, {w.shape}", "they are (leaves, outputs) or, w, (leaves, 1)"
            raise InputError("x, w", shapes, why, "reshape")
        if leaves and leaves[-1] >= x.shape[0]:
            why = f"leaf {leaves[-1]} has no row in x"
            raise InputError("tree", tree.id, why, "give every leaf's")
        if (bias is None) == (BIAS in tree.leaves):
            why = f"the tree {'adds a bias' if bias is None else 'has no leaf b'}"
            raise InputError("bias", bias, why, "give one exactly if the tree adds it")
        if form not in floats.FORMATS or (self.dtype == "float64" and form != self.dtype):
            why = f"partial sums of {self.dtype} can't be kept in it"
            raise InputError("nodes", form, why, "widen it")

    def _innocuous(self) -> bool:
        """Whether sums without exact products may be rounded to float64 first.

        They may where every term is on the grid of the partial sums and float64 has twice its
        precision and two bits more (Figueroa, "When is double rounding innocuous?", 1995).
        """
        grids = {self.product_format} | ({self.dtype} if self.bias is not None else set())
        precision = floats.format_of(self.step).precision
        narrow = all(floats.format_of(grid).precision <= precision for grid in grids)
        return narrow and 2 * precision + 2 <= floats.FORMATS["float64"].precision

    def outputs(self, record: Record | None = None) -> np.ndarray:
        """All outputs, container."""
        count = self.x.shape[1]
        out = np.empty(count, dtype=floats.container_of_format(self.dtype))
        with np.errstate(all="ignore"):
            for start in range(0, count, self.size):
                block = slice(start, min(start + self.size, count))
                out[block] = self.summation.output(self._block(block, record), self.dtype)
        return out

    def _block(self, block: slice, record: Record | None) -> Doubles:
        """The last sums of a block of outputs, level by level."""
        size = block.stop - block.start
        before = self._rows(0, 1, size)
        if not self.plan:
            only = _rows_of_operands(self.summation.tree.leaves[:1], frozenset(), {})
            value = self._operand(only, 1, before, block, 1)[0]
            return self._short(value) if -1 in self.rounding.shortened else value
        for number, (nodes, groups) in enumerate(self.plan):
            values = self._rows(1 - number % 2, len(nodes), size)
            for group in groups:
                part = values[group.start : group.end]
                self._evaluate(group, before, part, block)
                if group.rounded is not None:
                    which = nodes[group.start : group.end][group.rounded]
                    rounded = self.summation.to_dtype(part[group.rounded], which, self.dtype)
                    part[group.rounded] = floats.widen(rounded, self.dtype)
                if group.shortened is not None:
                    part[group.shortened] = self._short(part[group.shortened])
            if record:
                record(nodes, values)
            before = values
        return before[0]

    def _short(self, values: Doubles) -> Doubles:
        """Sums that are kept in fewer bits than the dtype has."""
        assert self.rounding.short_format is not None
        return floats.nearest(values, self.rounding.short_format)

    def _rows(self, which: int, rows: int, size: int) -> Doubles:
        return self.memory[which][: rows * size].reshape(rows, size)

    def _evaluate(self, group: _NodeRows, before: Doubles, out: Doubles, block: slice) -> None:
        """The nodes of a group: the exact sum of their operands, rounded once."""
        if self.dtype == "float64" and group.fused:
            self._evaluate_float64(group, before, out, block)
            return
        if len(group.operands) == 2:
            first, second = (
                self._operand(side, len(out), before, block, 2 + place)
                for place, side in enumerate(group.operands)
            )
            if self.innocuous and not group.fused:
                np.add(first, second, out=out)
            else:
                self.sum_rounder.total(first, second, out)
        else:
            terms = self._terms(group.operands, len(out), before, block)
            total, error = arithmetic.exact_total(terms)
            if self.signed:
                negative = [np.signbit(term) & (term == 0) for term in terms]
                total[np.logical_and.reduce(negative)] = -0.0
            np.copyto(out, total if self.step == "float64" else arithmetic.to_odd(total, error))
        if self.starts is not None and group.fused == len(group.operands):
            np.add(out, 0.0, out=out)
        if group.flushed is not None and self.step == self.accumulator_format:
            out[group.flushed] = self.flush.sums(out[group.flushed], self.step)
        self.sum_rounder.settle(out)
        if self.step != self.accumulator_format:
            np.copyto(out, floats.nearest(out, self.accumulator_format))
            if group.flushed is not None:
                kept = self.accumulator_format
                out[group.flushed] = self.flush.sums(out[group.flushed], kept)

    def _evaluate_float64(
        self, group: _NodeRows, before: Doubles, out: Doubles, block: slice
    ) -> None:
        """As ``_evaluate``, where the exact products don't fit a float64 and stay factors."""
        plain = len(group.operands) - group.fused
        terms = self._terms(group.operands[:plain], len(out), before, block)
        factors = []
        for (part,) in group.operands[plain:]:
            x, w = self._factors(part, block, self._rows(3, part.count, block.stop - block.start))
            # copies: the next product is read into the same rows
            w = np.broadcast_to(w, x.shape).copy()
            factors.append(self.flush.factors(x.copy(), w, part.sources))
        if len(terms) == len(factors) == 1:
            np.copyto(out, arithmetic.fma_float64(*factors[0], terms[0]))
        else:
            np.copyto(out, arithmetic.sum_of_products(factors, terms))
        if group.flushed is not None:
            below = tiny_doubles(factors, terms, out, self.rounding.tininess)
            zeros = np.where(below, np.copysign(0.0, out), out)
            out[group.flushed] = zeros[group.flushed]

    def _terms(
        self, sides: tuple[tuple[_OperandRows, ...], ...], rows: int, before: Doubles, block: slice
    ) -> list[Doubles]:
        return [self._operand(side, rows, before, block, 2).copy() for side in sides]

    def _operand(
        self, side: tuple[_OperandRows, ...], rows: int, before: Doubles, block: slice, which: int
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
                bias = floats.widen(self.bias[block], self.dtype)
                if self.rounding.bias_format:
                    bias = floats.nearest(bias, self.rounding.bias_format)
                out[part.rows] = self.flush.bias(bias)
            else:
                space = out if alone else self._rows(5, part.count, size)
                self._multiply(part, block, space)
                if not alone:
                    out[part.rows] = space
        return out

    def _multiply(self, part: _OperandRows, block: slice, out: Doubles) -> None:
        x, w = self._factors(part, block, out)
        if self.starts is not None or (self.flush.of_products and self.dtype == "float64"):
            x = x.copy()  # which is where the products go
        if part.kind == "rounded" and self.dtype == "float64" != self.product_format:
            np.copyto(out, arithmetic.to_odd(*arithmetic.two_product(x, w)))
        else:
            np.multiply(x, w, out=out)
        if part.kind == "rounded":
            self.flush.products(x, w, out, part.sources, self.product_format)
            self.product_rounder.settle(out)
            if self.starts is not None:
                added = self.rounding.zero == ZERO_ADDED
                nothing = (out == 0) if added else (x == 0) | (w == 0)
                out[nothing & self.starts[part.sources][:, None]] = 0.0
        else:
            self.flush.whole(out, part.sources)

    def _factors(self, part: _OperandRows, block: slice, out: Doubles) -> tuple[Doubles, Doubles]:
        """What the leaves of a part multiply; the inputs are in ``out``."""
        x = self.x.read(part.sources, block, out)
        space = self._rows(4, part.count, block.stop - block.start)
        return x, self.w.read(part.sources, block, space)
