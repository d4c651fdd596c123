"""Tests every addition and every fusion of every output of a call.

A summation that replays may be wrong at one addition, and one that was read off other filters may
not be this one's. A certificate asks the operator, at its own shape, about every addition and every
fusion of a summation, and counts the outputs that answered all of it. What is asked:

- ``separation``: that every node of the true tree is a node of this one;
- ``Keeping``: that each node of this one is a node of the true tree, and in which format;
- every product, whether it comes in whole (``fusion``);
- the ``rounding.QUESTIONS``: how results are cut, what sums go through;
- what subnormal numbers become: that nothing is flushed (``flush.flushing_outputs``), or that every
  operand, product and sum is flushed as revealed (``flush``, ``flushing_questions``).

Proved against all trees, nodes that add several exactly, and formats of up to ``widest`` digits at
any node, rounded to nearest, for sums of products that add in one order whatever the operands are.
A node that rounds twice, first to a few digits more (float32: up to 10, at the root 22; see
``after``), is refuted too, and one that does so in more digits is not. Taken from one product: that
sums which round twice all do, and when a result counts as subnormal. All filters and
positions answer the same questions at once, so
a certificate costs as many calls as one output's would. A chain of n leaves takes about n / 3 of
them in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from probe import floats
from probe.progress import VOICE, Count
from probe.summation import flush, fusion, rounding
from probe.summation.fusion import FusionPiece, fusion_operands
from probe.summation.masks import ANSWERS_AT_ONCE, Masks
from probe.summation.questions import Keeping, Uncertifiable, flushing_questions, separation, widest
from probe.summation.replay import replay
from probe.summation.reveal import RevealedTree
from probe.summation.summation import EVERY, Rounding, Summation
from probe.summation.tree import BIAS, Tree

# Questions to one summation, above which none is asked.
BUDGET = 16384

AT_ONCE = 64  # speed alone: weights of that many calls are made at once
KEPT = 1024  # speed alone: products up to which the questions about a few summations are kept

# Fields of ``Rounding`` that are asked; a summation in which another one is set has no proof.
ASKED = {
    *("fused", "accumulator_format", "rounded", "product_format"),
    *("truncated", "intermediate_format"),
    *("flushed_inputs", "flushed_weights", "flushed_products", "flushed_whole", "flushed_sums"),
    "tininess",
}


FLUSHING = {name for name in ASKED if name.startswith("flushed_")}
EVERYWHERE = frozenset([EVERY])
# Questions about every node whose answers follow from those of ``Keeping``.
KEEPING = {"shortened"}


def words(refuted: str) -> str:
    """Returns what a promise rests on, in words; ``refuted``: what was not asked, empty if all
    was."""
    if not refuted:
        return "certified: every addition and every fusion was tested"
    return f"not contradicted, but not certified: {refuted}"


@dataclass(frozen=True)
class Certified:
    """What was asked of some outputs: ``holds`` (outputs,), bool; ``why`` nothing was, or empty."""

    holds: np.ndarray
    why: str = ""


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


def certify(
    masks: Masks,
    summation: Summation,
    places: tuple[np.ndarray, ...],
    budget: int = BUDGET,
) -> Certified:
    """Returns which outputs, ``places`` (positions, filters), answer all as this summation would.

    Its leaves are all that these outputs read: see ``Summation.restricted``. ``budget``: the most
    questions to ask. TargetError.
    """
    positions, filters = places
    operator, holds = masks.operator, np.ones(len(positions), bool)
    make = _kept if operator.summands <= KEPT else _Questions
    try:
        asked = make(summation, operator.summands, operator.bias, operator.dtype, budget)
    except Uncertifiable as error:
        return Certified(np.zeros(len(positions), bool), str(error))
    chunk = max(1, ANSWERS_AT_ONCE // (operator.positions * operator.filters))  # speed alone

    def fits(answers: np.ndarray, expected: np.ndarray) -> np.ndarray:
        found: np.ndarray = (answers[:, positions, filters] == expected[:, None]).all(axis=0)
        return found

    if not asked.flushes:
        holds &= ~flush.flushing_outputs(masks)[:, positions, filters].any(axis=0)
    with VOICE.counted("questions", asked.count) as count:
        for each in asked.rows:
            for part in _counted_chunks(len(each.rows), chunk, count):
                leaves = np.repeat(each.rows[part, None], operator.filters, axis=1)
                holds &= fits(each.question(masks, leaves), each.expected[part])
        for weights, ideal in asked.weighted:
            for part in _counted_chunks(len(weights), chunk, count):
                # once every output is refuted the rest of the questions tells nothing
                if holds.any():
                    holds &= fits(masks.each(weights[part]), ideal[part])
    return Certified(holds)


def _counted_chunks(rows: int, chunk: int, count: Count) -> Iterator[slice]:
    """Yields the rows, ``chunk`` at a time, and counts those that are done."""
    for at in range(0, rows, chunk):
        yield slice(at, at + chunk)
        count.set(count.done + min(chunk, rows - at), count.total)


# Weights of calls, (calls, leaves), and what has to come out of each.
Weighted = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _LeafRows:
    """A question about rows of leaves, with the summation's own answers."""

    question: Callable[[Masks, np.ndarray], np.ndarray]
    rows: np.ndarray
    expected: np.ndarray
    calls: int


class _Questions:
    """All questions about one summation, for any operator. Uncertifiable: no proof is known."""

    def __init__(
        self, summation: Summation, summands: int, bias: bool, dtype: str, budget: int
    ) -> None:
        self.summation, self.dtype, self.left = summation, dtype, budget
        self.model = SummationModel(summation, summands, bias, dtype)
        self.size, self.bias = summands + bias, summands if bias else -1
        given, default = summation.rounding.facts(), Rounding().facts()
        set_ = {one[0] for one, other in zip(given, default, strict=True) if one[2] != other[2]}
        if unknown := set_ - ASKED:
            raise Uncertifiable(f"no test is known for {', '.join(sorted(unknown))}")
        if any(len(children) > 2 for children in summation.tree.nodes):
            raise Uncertifiable("some node adds three or more summands at once")
        self.flushes = bool(set_ & FLUSHING)
        if self.flushes and summation.rounding.flushed_sums != EVERYWHERE and summation.tree.nodes:
            raise Uncertifiable("only some subnormal sums become zero, and not each was tested")
        # the questions number the bias as masks do: behind the weights
        nodes = [
            tuple(summands if child == BIAS else child for child in node)
            for node in summation.tree.nodes
        ]
        leaves = [summands if leaf == BIAS else leaf for leaf in summation.tree.leaves]
        self.tree = Tree(tuple(leaves), tuple(nodes))
        self.rows = [one for one in self._of_products() if len(one.rows)]
        self.weighted = list(self._of_sums())
        self.count = sum(len(one.rows) for one in self.rows)
        self.count += sum(len(weights) for weights, _ in self.weighted)

    def _of_sums(self) -> Iterator[Weighted]:
        """Yields what is asked with weights: cheap ones first."""
        asked = itertools.chain(
            self._keeping(),
            flushing_questions(self.tree, self.size, self.dtype) if self.flushes else (),
            separation(self.tree, self.size, self.dtype, self.left),
        )
        while rows := list(islice(asked, AT_ONCE)):
            weights, ideal = np.array([row for row, _ in rows]), np.array([one for _, one in rows])
            if (self.model.outputs(1.0, weights) != ideal).any():
                raise Uncertifiable("its partial sums would not show it")
            self._spend(len(rows))
            yield weights, ideal

    def _keeping(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yields the format of every node, and of the root how it is rounded to the output."""
        given, nodes = self.summation.rounding, range(len(self.tree.nodes) - 1)
        asked = Keeping(self.tree, self.size, self.dtype)
        if self.tree.nodes:
            row = asked.root()
            yield row, float(self.model.outputs(1.0, row[None])[0])
        if not self.summation.wider(self.dtype):
            yield from asked.lost(floats.FORMATS[self.dtype].precision, nodes)
            yield from asked.rounded(nodes)
            return
        precision = floats.format_of(str(given.accumulator_format)).precision
        if precision > widest(self.dtype):
            raise Uncertifiable(f"sums of {given.accumulator_format} are too wide to be tested")
        if not given.rounded:
            yield from asked.kept(precision, nodes)
            yield from asked.lost(precision, nodes)
            return
        if not given.rounded.issubset(range(len(self.tree.nodes))):
            raise Uncertifiable("it is unknown which of its partial sums are rounded")
        eps = floats.eps(self.dtype)
        for node in nodes:  # one by one: what comes out of a node would be lost in another
            if node in given.rounded:
                yield asked.alone(node, eps / 2), 0.0
                yield asked.alone(node, eps / 2 * (1 + eps)), eps
            else:
                last = 2.0 ** -(precision - 1)
                yield asked.alone(node, last), last
                yield asked.alone(node, last / 2), 0.0

    def _of_products(self) -> Iterator[_LeafRows]:
        """Yields which products are fused, and the questions that are put to few leaves of a
        tree."""
        operands, fused = fusion_operands(self.dtype), self.summation.rounding.fused
        pairs = fusion.FusedPairs(self.summation.tree, self.bias, operands.most)
        parts = [
            [pair for pair in batch if (pair[0] in fused) == whole]
            for batch in pairs.batches
            for whole in (True, False)
        ]
        parts = [part for part in parts if part]
        whole = np.array([len(part) * (part[0][0] in fused) for part in parts], int)
        if parts:
            yield self._row(
                fusion.count_fused, fusion.pairs_in_rows(parts, max(map(len, parts))), whole
            )
        behind = pairs.behind_bias
        alone = self._row(
            fusion.count_fused_behind_bias, behind, np.isin(behind[:, 0], list(fused))
        )
        yield alone
        found = RevealedTree(self.summation.tree, np.zeros(1, int), np.zeros(1, int))
        piece = FusionPiece(found, pairs, True, wide=self.summation.wider(self.dtype))
        piece.parts = [(part, np.array([count])) for part, count in zip(parts, whole, strict=True)]
        piece.answers["behind"] = alone.expected[:, None]
        traces = fusion.Traces(self.summation.tree, self.bias)
        for each in rounding.QUESTIONS:
            if each.asked(self.dtype, piece.wide, True) and each.name not in KEEPING:
                yield self._row(each.question, each.leaves(piece, traces))
        if self.flushes:
            yield from self._of_subnormal(piece)

    def _of_subnormal(self, piece: FusionPiece) -> Iterator[_LeafRows]:
        """Yields which subnormal operands and products become zero."""
        leaves, pairs = flush.of_leaves(Masks(self.model), self.summation.tree), piece.pairs
        for question in (flush.count_inputs_kept, flush.count_weights_kept):
            yield self._row(question, flush.sets_in_rows(leaves))
        yield self._row(
            flush.count_products_kept, flush.sets_in_rows(flush.of_pairs(Masks(self.model), piece))
        )
        yield self._row(
            flush.count_kept_behind_bias,
            flush.sets_in_rows([row[None] for row in pairs.behind_bias]),
        )
        yield self._row(
            flush.count_biases_kept, flush.sets_in_rows(flush.beside_bias(Masks(self.model), piece))
        )

    def _row(
        self,
        question: Callable[[Masks, np.ndarray], np.ndarray],
        rows: np.ndarray,
        ideal: np.ndarray | None = None,
    ) -> _LeafRows:
        """``ideal``: the answers that would tell; None: whatever the summation itself answers."""
        model = Masks(self.model)
        expected = question(model, rows[:, None])[:, 0, 0] if len(rows) else np.zeros(0, int)
        if ideal is not None and (expected != ideal).any():
            raise Uncertifiable("its results would not show fusion")
        self._spend(model.calls)
        return _LeafRows(question, rows, expected, model.calls)

    def _spend(self, calls: int) -> None:
        self.left -= calls
        if self.left < 0:
            raise Uncertifiable("it takes more calls than are allowed")


_kept = lru_cache(maxsize=32)(_Questions)
