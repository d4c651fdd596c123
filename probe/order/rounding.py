"""Where a revealed tree rounds: products fused into additions, narrow products, wide accumulators.

Asked of every leaf (is its product rounded before it is added?) and, where the accumulator turns
out wider than the dtype, of every node (is the partial sum rounded to the dtype there?). Most trees
answer alike everywhere, so leaves are asked many at a time, and in halves where the answer is
mixed; of nodes a few are asked, which misses sums that are kept wide near the root alone. So a
rounding counts once it replays, and where it does not, everything is asked. Positions that share a
tree may differ in rounding: tails of vector loops often do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from probe import floats
from probe.order.masks import Masks, fusion_operands, spread
from probe.order.questions import Questions, padded
from probe.order.replay import Rounding
from probe.order.reveal import Found, column_labels
from probe.order.tree import Tree

WIDER = {"float16": "float32", "bfloat16": "float32", "float32": "float64"}
ALIKE = 2  # questions that every filter is asked, to see whether they are one
PATHS = (
    2  # paths and nodes that are asked of every tree; all are where one shows a wide accumulator
)


def _unasked() -> np.ndarray:
    return np.zeros((0, 0), np.int32)


Part = tuple[list[tuple[int, int]], np.ndarray]
"""Pairs that are asked at once, and how many of them are fused at every position."""


@dataclass(frozen=True)
class Order:
    """One way of adding, and the outputs (filters x positions) that add so."""

    tree: Tree
    rounding: Rounding
    filters: np.ndarray
    positions: np.ndarray


@dataclass
class _Piece:
    """One tree at its positions, and the answers that came in, each (questions, positions)."""

    found: Found
    questions: Questions
    batches: np.ndarray = field(default_factory=_unasked)
    parts: list[Part] = field(default_factory=list)  # of the batches, until none is mixed
    halves: np.ndarray = field(default_factory=_unasked)
    behind: np.ndarray = field(default_factory=_unasked)
    paths: np.ndarray = field(default_factory=_unasked)
    sampled: np.ndarray = field(default_factory=_unasked)
    triples: np.ndarray = field(default_factory=_unasked)
    cut: np.ndarray = field(default_factory=_unasked)
    twice: np.ndarray = field(default_factory=_unasked)
    wide: bool = False
    alone: bool = False


def reveal_roundings(masks: Masks, found: list[Found], alone: bool = False) -> list[Order]:
    """The rounding of every tree that was found, apart for positions that differ in it.

    ``alone``: every leaf is asked by itself, and every node: a call for each of them.
    """
    bias = masks.operator.summands if masks.operator.bias else -1
    most = fusion_operands(masks.operator.dtype).most
    trees = {piece.tree: Questions(piece.tree, bias, most) for piece in found}
    found = [part for piece in found for part in _by_filter(masks, piece, trees[piece.tree])]
    pieces = [_Piece(piece, trees[piece.tree], alone=alone) for piece in found]
    _ask(masks, pieces, "batches", lambda p: padded(p.questions.batches), masks.fused)
    for piece in pieces:
        piece.parts = list(zip(piece.questions.batches, piece.batches, strict=True))
    while any(_mixed(piece) for piece in pieces):
        _ask(masks, pieces, "halves", lambda p: padded(_halves(p)), masks.fused)
        for piece in pieces:
            _settle(piece)
    _ask(masks, pieces, "behind", lambda p: p.questions.behind_bias, masks.fused_behind_bias)
    _ask(masks, pieces, "paths", lambda p: p.questions.paths[:PATHS], masks.precision)
    _ask(masks, pieces, "sampled", _sample, masks.precision)
    shown = any((answers == 1).any() for p in pieces for answers in (p.paths, p.sampled))
    if shown or alone:
        _ask(masks, pieces, "paths", lambda p: p.questions.paths, masks.precision)
        _ask(masks, pieces, "triples", _doubtful, masks.precision)
        for piece in pieces:
            piece.wide = shown or bool((piece.triples == 1).any())
    short = floats.format_of(masks.operator.dtype).bits == 16
    if short or (masks.operator.dtype in WIDER and (shown or alone)):
        _ask(masks, pieces, "cut", lambda p: p.questions.ends, masks.cut)
    if short or (alone and masks.operator.dtype in WIDER):
        _ask(masks, pieces, "twice", _fused_pair, masks.twice)
    return [order for piece in pieces for order in _orders(masks, piece)]


def _by_filter(masks: Masks, found: Found, questions: Questions) -> list[Found]:
    """The piece, split where filters of one tree answer the same questions about fusion otherwise.

    What is asked later is dealt to the filters of a piece as if they were one.
    """
    batches = questions.batches[:ALIKE]
    if len(found.filters) < 2 or not batches:
        return [found]
    rows = padded(batches)
    ask = np.full((len(rows), masks.operator.filters, rows.shape[1]), -1)
    ask[:, found.filters] = rows[:, None]
    answers = masks.fused(ask)[:, found.positions][:, :, found.filters]
    labels = column_labels(answers.reshape(-1, len(found.filters)))
    return [
        Found(found.tree, found.filters[labels == label], found.positions)
        for label in range(labels.max() + 1)
    ]


def _ask(
    masks: Masks,
    pieces: list[_Piece],
    name: str,
    questions: Callable[[_Piece], np.ndarray],
    question: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Puts the answers to each piece's questions into ``piece.name``; equal ones share a call."""
    wanted = [questions(piece) for piece in pieces]
    width = max((queue.shape[1] for queue in wanted if len(queue)), default=0)
    teams: dict[bytes, np.ndarray] = {p.found.filters.tobytes(): p.found.filters for p in pieces}
    members = {
        key: [n for n, p in enumerate(pieces) if p.found.filters.tobytes() == key] for key in teams
    }
    queues: list[np.ndarray] = []
    inverse: dict[int, np.ndarray] = {}
    for mine in members.values():
        stacked = np.concatenate([_widened(wanted[n], width) for n in mine])
        queue, where = np.unique(stacked, axis=0, return_inverse=True)
        queues.append(queue)
        ends = np.cumsum([len(wanted[n]) for n in mine])
        inverse |= dict(zip(mine, np.split(where.reshape(-1), ends[:-1]), strict=True))
    tables = [np.empty((len(queue), masks.operator.positions), np.int32) for queue in queues]
    for ask, parts in spread(masks, list(teams.values()), queues):
        answers = question(ask)
        for part in parts:
            tables[part.team][part.start : part.stop] = part.table(answers)
    for table, mine in zip(tables, members.values(), strict=True):
        for n in mine:
            setattr(pieces[n], name, table[np.ix_(inverse[n], pieces[n].found.positions)])


def _widened(queue: np.ndarray, width: int) -> np.ndarray:
    """Rows of leaves and partners with room for ``width`` entries; triples stay as they are."""
    if queue.shape[1] == width or not len(queue):
        return queue if len(queue) else np.zeros((0, width), int)
    half, most = queue.shape[1] // 2, width // 2
    wide = np.full((len(queue), width), -1)
    wide[:, :half], wide[:, most : most + half] = queue[:, :half], queue[:, half:]
    return wide


def _mixed(piece: _Piece) -> list[Part]:
    """The parts in which some position fuses some leaves and not others."""
    return [
        (part, counts)
        for part, counts in piece.parts
        if len(part) > 1 and (piece.alone or not np.isin(counts, (0, len(part))).all())
    ]


def _cut(piece: _Piece, part: Part) -> list[list[tuple[int, int]]]:
    """What is asked of a mixed part: its first half, the rest follows; or each pair by itself.

    Halves take a call after the other; pairs are spread over the filters, which may be quicker.
    """
    pairs, counts = part
    rounds = len(piece.found.filters) * math.log2(len(pairs))
    if piece.alone or (counts < 0).any() or len(pairs) <= rounds:
        return [[pair] for pair in pairs]
    return [pairs[: len(pairs) // 2]]


def _halves(piece: _Piece) -> list[list[tuple[int, int]]]:
    """What is asked next, of all mixed parts."""
    return [half for part in _mixed(piece) for half in _cut(piece, part)]


def _settle(piece: _Piece) -> None:
    """Puts what was asked in place of the mixed parts."""
    answers = iter(piece.halves)
    mixed = {id(part[0]) for part in _mixed(piece)}
    parts: list[Part] = []
    for part in piece.parts:
        pairs, counts = part
        if id(pairs) not in mixed:
            parts.append(part)
            continue
        asked = [(cut, next(answers)) for cut in _cut(piece, part)]
        if len(asked) > 1:
            parts += asked
            continue
        half, first = asked[0]
        rest, left = pairs[len(half) :], counts - first
        if ((first >= 0) & (left >= 0) & (left <= len(rest))).all():
            parts += [(half, first), (rest, left)]
        else:  # counts that fit neither half: pair by pair
            parts.append((pairs, np.full_like(counts, -1)))
    piece.parts = parts


def _sample(piece: _Piece) -> np.ndarray:
    """Triples of a few nodes all over the tree: a path that is cut once says nothing of them."""
    triples = piece.questions.triples
    return triples[:: max(1, -(-len(triples) // PATHS))]


def _fused_pair(piece: _Piece) -> np.ndarray:
    """A product that some position fuses, and what is added before it; none where sums are wide."""
    fused = [pairs[0] for pairs, counts in piece.parts if (counts == len(pairs)).any()]
    return np.array(fused[:1], int).reshape(-1, 2) if not piece.wide else np.zeros((0, 2), int)


def _doubtful(piece: _Piece) -> np.ndarray:
    """Triples of the nodes on paths on which some partial sum was rounded to the dtype."""
    doubtful = piece.alone or (piece.paths == 0).any()
    return piece.questions.triples if doubtful else np.zeros((0, 3), int)


def _orders(masks: Masks, piece: _Piece) -> Iterator[Order]:
    """The piece, split where its positions answered differently."""
    asked = (_counts(piece), piece.behind, piece.paths, piece.triples, piece.cut, piece.twice)
    tables = [table for table in asked if len(table)]
    positions = piece.found.positions
    labels = column_labels(np.concatenate(tables)) if tables else np.zeros(len(positions), int)
    for label in range(labels.max(initial=0) + 1):
        members = np.flatnonzero(labels == label)
        rounding = _rounding(masks, piece, int(members[0]))
        yield Order(piece.found.tree, rounding, piece.found.filters, positions[members])


def _counts(piece: _Piece) -> np.ndarray:
    """How many are fused in each part, (parts, positions)."""
    return np.array([counts for _, counts in piece.parts], np.int32)


def _rounding(masks: Masks, piece: _Piece, column: int) -> Rounding:
    """The answers of one position, put into words."""
    fused, strange = _fused(piece, column)
    dtype = masks.operator.dtype
    products = _operand_format(masks, piece, column) if strange else None
    cut = _cut_off(piece, column)
    if not piece.wide and not cut:
        asked = {int(leaf) for leaf, _ in _fused_pair(piece)} if len(piece.twice) else set()
        through = WIDER[dtype] if asked & fused and piece.twice[0, column] == 1 else None
        return Rounding(nodes=dtype, fused=frozenset(fused), products=products, through=through)
    narrow = (
        {
            n
            for n, kept in zip(piece.questions.triple_nodes, piece.triples[:, column], strict=True)
            if kept == 0
        }
        if len(piece.triples)
        else set()
    )
    root = len(piece.found.tree.nodes) - 1
    if cut and root not in cut:  # the sum is cut, the bias is added to what is left
        narrow |= cut if piece.wide else set(range(root))
    return Rounding(
        nodes=WIDER[dtype],
        fused=frozenset(fused),
        products=products,
        narrow=frozenset(narrow),
        product_format=dtype if piece.found.tree.nodes else None,
        cut=cut,
    )


def _cut_off(piece: _Piece, column: int) -> frozenset[int]:
    """The node that is rounded toward zero: the root, or the sum that the bias is added to."""
    nodes, answers = piece.found.tree.nodes, piece.cut[:, column] if len(piece.cut) else ()
    asked = [len(nodes) - 1, ~nodes[-1][0] if nodes else -1]
    return frozenset(
        [node for node, answer in zip(asked, answers, strict=False) if answer == 1][:1]
    )


def _fused(piece: _Piece, column: int) -> tuple[set[int], bool]:
    """Leaves whose product comes in whole, and whether an answer fitted neither."""
    answers: dict[int, int] = {}
    for pairs, counts in piece.parts:
        count = int(counts[column])
        fused = int(count > 0) if count in (0, len(pairs)) else -1
        answers |= {leaf: fused for leaf, _ in pairs}
    answers |= dict(
        zip(
            piece.questions.behind_bias[:, 0].tolist(),
            piece.behind[:, column].tolist(),
            strict=True,
        )
    )
    return {k for k, v in answers.items() if v == 1}, -1 in answers.values()


def _operand_format(masks: Masks, piece: _Piece, column: int) -> str | None:
    """The format that operands are cut to before they are multiplied, None where they are whole."""
    pair = piece.questions.pairs[0]
    filters, position = piece.found.filters, piece.found.positions[column]
    kept = 0
    for bits in range(1, floats.FORMATS[masks.operator.dtype].precision):
        ask = np.full((1, masks.operator.filters, 2), -1)
        ask[0, filters[0]] = pair
        if masks.kept(ask, bits)[0, position, filters[0]] != 1:
            break
        kept = bits
    return {7: "bfloat16", 10: "tf32"}.get(kept)
