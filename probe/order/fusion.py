"""Reveals which products enter their addition unrounded (fused multiply-add).

The operands that show it: the input is x = 1 + 2^-a everywhere, leaf k has the weight
w = 1 + 2^-b, a leaf that is added right before it (its *partner*) has -1, and all others have 0.
The exact product is x w = x + 2^-b + 2^-p, p being the dtype's precision. If it is rounded before
it is added, the last term, half an ulp, is a tie that goes down to even and is lost; what is left
beside the partner's -x is then 2^-b. A product that comes in whole leaves 2^-b + 2^-p.

Both are small and exact, that many pairs can be asked in one call, if no two of them are pending in
the same partial sum, and the last bits of the total count the fused ones. Most trees fuse
everywhere or nowhere: a few calls tell. Where the count of a set is neither, its halves are asked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from probe.case import floats
from probe.order.masks import MaskQuestion, MaskRows, Masks, ask, classify
from probe.order.reveal import RevealedTree
from probe.order.tree import BIAS, Tree

Pair = tuple[int, int]
# Pairs that were asked at once, and how many of them are fused at every position.
Part = tuple[list[Pair], np.ndarray]

SAMPLED = 2  # paths and nodes that are asked of every tree; all are where one is kept wider


@dataclass(frozen=True)
class FusionOperands:
    """``x`` and ``w`` as above; ``rounded`` is 2^-b and ``extra`` 2^-p.

    ``most`` such sums stay exact when they are added up, and also beside a ``-x`` that still waits
    for its product: ``2^-b`` is no smaller than the bit of ``x``, so that these sums are below 1.
    """

    x: float
    w: float
    rounded: float
    extra: float
    most: int


def fusion_operands(dtype: str) -> FusionOperands:
    """Operands whose product needs one bit more than ``dtype`` holds."""
    p = floats.FORMATS[dtype].precision
    a, b = p - p // 2, p // 2
    return FusionOperands(
        1 + 2.0**-a, 1 + 2.0**-b, 2.0**-b, 2.0**-p, min(2 ** (a - 1), 2 ** (b - 2))
    )


def count_fused(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """How many of several products at once come in whole: int32, -1 for an answer that fits none.

    ``leaves`` (calls, filters, 2 m) are m leaves and, behind them, the m leaves that are added
    right before each, -1 in both where there are fewer than m.
    """
    operands, most = fusion_operands(masks.operator.dtype), leaves.shape[2] // 2
    answer = masks.run(leaves, np.repeat([operands.w, -1.0], most), operands.x)
    return _count_whole(answer, leaves[:, :, :most], operands)


def count_fused_behind_bias(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """As ``count_fused`` for one pair whose partner is the bias, which no input multiplies."""
    operands = fusion_operands(masks.operator.dtype)
    answer = masks.run(leaves, [operands.w, -operands.x], operands.x)
    return _count_whole(answer, leaves[:, :, :1], operands)


def _count_whole(answer: np.ndarray, leaves: np.ndarray, operands: FusionOperands) -> np.ndarray:
    pairs = (leaves >= 0).sum(axis=2)[:, None, :]
    with np.errstate(invalid="ignore"):
        whole = (answer.astype(np.float64) - pairs * operands.rounded) / operands.extra
        fits = (whole >= 0) & (whole <= pairs) & (whole == np.rint(whole))
        return np.where(fits, whole, -1).astype(np.int32)


class FusedPairs:
    """The products of one tree that may be fused, each with its partner; ``bias``: its leaf.

    ``batches``: pairs (k, partner) in sets of at most ``most`` that can be asked in one call.
    ``behind_bias``: the pairs whose partner can only be the bias.
    """

    def __init__(self, tree: Tree, bias: int, most: int) -> None:
        self.tree, self.bias = tree, bias
        self.batches: list[list[Pair]] = []
        behind: list[Pair] = []
        waiting = deque(
            (node, child)
            for node, children in enumerate(tree.nodes)
            for child in children
            if 0 <= child < BIAS
        )
        waiting.reverse()
        while waiting:
            used: set[int] = set()  # leaves, and nodes in which a pair is pending
            batch: list[Pair] = []
            left = []
            while waiting and len(batch) < most:
                node, child = waiting.popleft()
                path = self._path_to_partner(node, child, used)
                if path is None and not batch and not used:
                    behind.append((child, bias))
                elif path is None or child in used:
                    left.append((node, child))
                else:
                    used.update((child, *path))
                    batch.append((child, path[-1]))
            if batch:
                self.batches.append(batch)
            waiting.extendleft(reversed(left))
        self.behind_bias = np.array(behind, int).reshape(-1, 2)

    @cached_property
    def traces(self) -> Traces:
        """The leaves that show what is done to the tree's partial sums."""
        return Traces(self.tree, self.bias)

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


class Traces:
    """Leaves that show what is done to the partial sums of a tree; ``bias``: its leaf's number.

    ``paths``: (p, q, r), p and q meet in a node without inner children, r joins at the root: asks
    all nodes between at once. ``triples``: (p, q, r) for every node but the root, which are
    ``triple_nodes``. ``ends``: (p, q) that meet at the root, twice the leaf of a tree of one;
    where the root adds the bias, also two that meet right below it.
    """

    def __init__(self, tree: Tree, bias: int) -> None:
        self.tree, self.bias = tree, bias
        self.first: list[int] = []  # per node a leaf below it, a weight where it holds one
        for children in tree.nodes:
            self.first.append(min(c if c >= 0 else self.first[~c] for c in children))
        nodes, parents = tree.nodes, tree.parents
        paths, triples, self.triple_nodes = [], [], []
        for node in range(len(nodes) - 1):
            p, q = map(self._leaf, nodes[node][:2])
            triples.append((p, q, self._sibling(~node)))
            self.triple_nodes.append(node)
            if all(child >= 0 for child in nodes[node]):
                top = node
                while parents[~top] != len(nodes) - 1:
                    top = parents[~top]
                paths.append((p, q, self._sibling(~top)))
        self.paths = np.array(paths, int).reshape(-1, 3)
        self.triples = np.array(triples, int).reshape(-1, 3)
        last = [nodes[-1] if nodes else tree.leaves * 2]
        if nodes and BIAS in last[0] and last[0][0] < 0:
            last.append(nodes[~last[0][0]])
        self.ends = np.array([[self._leaf(child) for child in node[:2]] for node in last])

    @property
    def biased(self) -> np.ndarray:
        """The bias with a product that it is added to: one row, none where there is no such."""
        tree = self.tree
        if BIAS not in tree.leaves or not tree.nodes:
            return np.zeros((0, 2), int)
        other = next(child for child in tree.nodes[tree.parents[BIAS]] if child != BIAS)
        return np.array([[self.bias, self._leaf(other)]])

    @property
    def every_node(self) -> np.ndarray:
        """(p, q, r) of all nodes, the root last and without r; none of a tree of a leaf."""
        if not self.tree.nodes:
            return np.zeros((0, 3), int)
        return np.concatenate([self.triples, np.append(self.ends[0], -1)[None]])

    @property
    def any_leaf(self) -> np.ndarray:
        """A leaf that is a product: one row, none where there is the bias alone."""
        leaves = [leaf for leaf in self.tree.leaves if leaf != BIAS]
        return np.array(leaves[:1], int).reshape(-1, 1)

    def _leaf(self, child: int) -> int:
        leaf = child if child >= 0 else self.first[~child]
        return self.bias if leaf == BIAS else leaf

    def _sibling(self, child: int) -> int:
        siblings = self.tree.nodes[self.tree.parents[child]]
        return next(self._leaf(other) for other in siblings if other != child)

    def sample(self) -> np.ndarray:
        """Triples of a few nodes all over the tree: a path that rounds once says nothing."""
        return self.triples[:: max(1, -(-len(self.triples) // SAMPLED))]


@dataclass
class FusionPiece:
    """One tree at its positions, and what was answered there about its roundings.

    ``parts``: the batches of ``pairs``, and what they were divided into. ``answers``: by question,
    (questions, positions). ``flushed``: sets of leaves, and how many of each were no zeros, as
    ``flush`` puts them there. ``wide``: partial sums are kept in more bits than the dtype has.
    ``alone``: every leaf is asked by itself, and every node.
    """

    found: RevealedTree
    pairs: FusedPairs
    alone: bool
    parts: list[Part] = field(default_factory=list)
    answers: dict[str, np.ndarray] = field(default_factory=dict)
    flushed: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    wide: bool = False

    @property
    def traces(self) -> Traces:
        """Those of the tree, which pieces of one tree share."""
        return self.pairs.traces

    def mixed(self, part: Part) -> bool:
        """Whether some position fuses some of a part's leaves and not others."""
        pairs, counts = part
        return len(pairs) > 1 and (self.alone or not np.isin(counts, (0, len(pairs))).all())

    def smaller(self, part: Part) -> list[list[Pair]]:
        """What is asked of a mixed part: its first half, the rest follows; or each pair by itself.

        Halves take a call after the other; pairs are spread over the filters, which may be quicker.
        """
        pairs, counts = part
        rounds = len(self.found.filters) * math.log2(len(pairs))
        # a count that fits none can not be halved
        if self.alone or (counts < 0).any() or len(pairs) <= rounds:
            return [[pair] for pair in pairs]
        return [pairs[: len(pairs) // 2]]

    def divide(self, answers: Iterator[np.ndarray]) -> None:
        """Puts what was asked of mixed parts in their place."""
        parts: list[Part] = []
        for part in self.parts:
            if not self.mixed(part):
                parts.append(part)
                continue
            pairs, counts = part
            answered = [(smaller, next(answers)) for smaller in self.smaller(part)]
            if len(answered) > 1:
                parts += answered
                continue
            half, first = answered[0]
            second_half, left = pairs[len(half) :], counts - first
            if ((first >= 0) & (left >= 0) & (left <= len(second_half))).all():
                parts += [(half, first), (second_half, left)]
            else:  # counts that fit neither half: pair by pair
                parts.append((pairs, np.full_like(counts, -1)))
        self.parts = parts

    def fused(self, column: int) -> tuple[frozenset[int], bool]:
        """Leaves whose product comes in whole, and whether an answer fitted neither."""
        answers: dict[int, int] = {}
        for pairs, counts in self.parts:
            count = int(counts[column])
            whole = int(count > 0) if count in (0, len(pairs)) else -1
            answers |= {leaf: whole for leaf, _ in pairs}
        behind = self.answers["behind"][:, column].tolist()
        answers |= dict(zip(self.pairs.behind_bias[:, 0].tolist(), behind, strict=True))
        return frozenset(k for k, v in answers.items() if v == 1), -1 in answers.values()


def ask_pieces(
    masks: Masks,
    question: MaskQuestion,
    pieces: Sequence[FusionPiece],
    leaves: Iterable[np.ndarray],
) -> list[np.ndarray]:
    """Each piece's answers about its rows of ``leaves``, as ``masks.ask`` gives them."""
    outputs = ((piece.found.filters, piece.found.positions) for piece in pieces)
    return ask(
        masks, question, [MaskRows(*o, rows) for o, rows in zip(outputs, leaves, strict=True)]
    )


def pairs_in_rows(batches: list[list[Pair]], most: int) -> np.ndarray:
    """Sets of pairs as rows of ``most`` leaves and, behind them, their partners; -1 fills up."""
    rows = np.full((len(batches), 2 * most), -1)
    for row, pairs in zip(rows, batches, strict=True):
        leaves, partners = zip(*pairs, strict=True)
        row[: len(pairs)], row[most : most + len(pairs)] = leaves, partners
    return rows


def operand_format(masks: Masks, piece: FusionPiece, column: int) -> str | None:
    """The format that operands are rounded to before they are multiplied, None: left as they are.

    Weights of more and more fraction bits tell: 1 + 2^-bits beside a partner of -1 leaves 2^-bits
    as long as the operand keeps that bit.
    """
    if not piece.pairs.batches:
        return None
    pair = piece.pairs.batches[0][0]
    filters, position = piece.found.filters, piece.found.positions[column]
    kept_bits = 0
    for bits in range(1, floats.FORMATS[masks.operator.dtype].precision):
        leaves = np.full((1, masks.operator.filters, 2), -1)
        leaves[0, filters[0]] = pair
        answer = masks.run(leaves, [1 + 2.0**-bits, -1.0])
        if classify(answer, 0.0, 2.0**-bits)[0, position, filters[0]] != 1:
            break
        kept_bits = bits
    # fraction bits of the two formats that matrix units read float32 operands in
    return {7: "bfloat16", 10: "tf32"}.get(kept_bits)
