"""Reveals where a tree rounds: fused products, wide accumulators, truncated results.

Whether products are fused is asked of every leaf (see ``fusion``). Whether a partial sum is kept in
more bits than the dtype has is shown by three leaves p, q, r of 1, a quarter of an ulp, and -1,
where p and q meet first: the little one survives only in a wider format. That is asked of whole
paths to the root at once, and of a few nodes; sums that are kept wide near the root alone are
missed. So a rounding counts once it replays, and where it does not, everything is asked. All other
roundings are a row of ``QUESTIONS`` each.

Positions that share a tree may differ in rounding: tails of vector loops often do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from probe.case import floats
from probe.order import flush, fusion
from probe.order.fusion import SAMPLED, FusedPairs, FusionPiece, Pair, ask_pieces, fusion_operands
from probe.order.masks import MaskQuestion, Masks, classify
from probe.order.reveal import RevealedTree, column_labels
from probe.order.summation import ZERO_ADDED, ZERO_FUSED, ZERO_KEPT, Rounding, Summation

# speed alone: sets of pairs that all filters are asked; later questions find what these miss
FILTER_PROBES = 2


@dataclass(frozen=True)
class Revealed:
    """A summation, and the outputs (filters x positions) that add so."""

    summation: Summation
    filters: np.ndarray
    positions: np.ndarray


def reveal_roundings(
    masks: Masks, found: list[RevealedTree], alone: bool = False
) -> list[Revealed]:
    """The rounding of every tree that was found, apart for positions that differ in it.

    ``alone``: every leaf is asked by itself, and every node: a call for each of them.
    """
    pieces = _fusion_pieces(masks, found, alone)

    def ask(name: str, question: MaskQuestion, leaves: Callable[[FusionPiece], np.ndarray]) -> None:
        rows = map(leaves, pieces)
        for piece, answers in zip(pieces, ask_pieces(masks, question, pieces, rows), strict=True):
            piece.answers[name] = answers

    def of_rounded_paths(piece: FusionPiece) -> np.ndarray:
        # all nodes are asked where a partial sum on a path was rounded to the dtype
        rounded = piece.alone or (piece.answers["paths"] == 0).any()
        return piece.traces.triples if rounded else piece.traces.triples[:0]

    ask("paths", kept_wider, lambda piece: piece.traces.paths[:SAMPLED])
    ask("triples", kept_wider, lambda piece: piece.traces.sample())
    seen = any((p.answers[name] == 1).any() for p in pieces for name in ("paths", "triples"))
    if seen or alone:
        ask("paths", kept_wider, lambda piece: piece.traces.paths)
        ask("triples", kept_wider, of_rounded_paths)
    for piece in pieces:
        if seen or alone:
            piece.wide = seen or bool((piece.answers["triples"] == 1).any())
        else:
            # these are read as answers about every node, and only a few were asked
            del piece.answers["triples"]
    for each in QUESTIONS:
        if each.asked(masks.operator.dtype, seen, alone):
            ask(each.name, each.question, each.leaves)
    for piece in pieces if masks.signed else ():
        signs = signs_of_zero(masks)[:, piece.found.positions, piece.found.filters[0]]
        piece.answers["zero"] = signs.astype(np.int32)
    flush.reveal_flushing(masks, pieces)
    revealed = []
    for piece in pieces:
        counts = np.array([counts for _, counts in piece.parts], np.int32)
        tables = [table for table in (counts, *piece.answers.values()) if len(table)]
        positions = piece.found.positions
        labels = column_labels(np.concatenate(tables)) if tables else np.zeros(len(positions), int)
        for label in range(labels.max(initial=0) + 1):  # positions that answered alike
            members = np.flatnonzero(labels == label)
            rounding = _rounding(masks, piece, int(members[0]))
            summation = Summation(piece.found.tree, rounding)
            revealed.append(Revealed(summation, piece.found.filters, positions[members]))
    return revealed


def _fusion_pieces(masks: Masks, found: list[RevealedTree], alone: bool) -> list[FusionPiece]:
    """The trees that were found, with the answers about their products."""
    bias = masks.operator.summands if masks.operator.bias else -1
    most = fusion_operands(masks.operator.dtype).most
    pairs = {piece.tree: FusedPairs(piece.tree, bias, most) for piece in found}
    parts = [part for piece in found for part in _by_filter(masks, piece, pairs[piece.tree])]
    pieces = [FusionPiece(part, pairs[part.tree], alone) for part in parts]
    batches = [piece.pairs.batches for piece in pieces]
    for piece, counts in zip(pieces, _count_fused_pairs(masks, pieces, batches), strict=True):
        piece.parts = list(zip(piece.pairs.batches, counts, strict=True))
    while any(piece.mixed(part) for piece in pieces for part in piece.parts):
        smaller = [
            [half for part in piece.parts if piece.mixed(part) for half in piece.smaller(part)]
            for piece in pieces
        ]
        for piece, counts in zip(pieces, _count_fused_pairs(masks, pieces, smaller), strict=True):
            piece.divide(iter(counts))
    rows = [piece.pairs.behind_bias for piece in pieces]
    behind = ask_pieces(masks, fusion.count_fused_behind_bias, pieces, rows)
    for piece, answers in zip(pieces, behind, strict=True):
        piece.answers["behind"] = answers
    return pieces


def _by_filter(masks: Masks, revealed: RevealedTree, pairs: FusedPairs) -> list[RevealedTree]:
    """The tree, split where filters that share it fuse or flush differently.

    What is asked later is dealt to the filters of a piece as if they were one.
    """
    batches = pairs.batches[:FILTER_PROBES]
    if len(revealed.filters) < 2:
        return [revealed]
    tables = [flush.signature(masks)]
    if masks.signed:
        tables.append(signs_of_zero(masks).astype(np.float64))
    if batches:
        rows = fusion.pairs_in_rows(batches, max(map(len, batches)))
        leaves = np.full((len(rows), masks.operator.filters, rows.shape[1]), -1)
        leaves[:, revealed.filters] = rows[:, None]
        tables.append(fusion.count_fused(masks, leaves))
    answers = np.concatenate(tables)[:, revealed.positions][:, :, revealed.filters]
    labels = column_labels(answers.reshape(-1, len(revealed.filters)))
    return [
        RevealedTree(revealed.tree, revealed.filters[labels == label], revealed.positions)
        for label in range(labels.max() + 1)
    ]


def _count_fused_pairs(
    masks: Masks, pieces: list[FusionPiece], sets: list[list[list[Pair]]]
) -> list[np.ndarray]:
    """How many are fused of each set of pairs of every piece."""
    most = max((len(pairs) for sets_of_piece in sets for pairs in sets_of_piece), default=1)
    rows = [fusion.pairs_in_rows(sets_of_piece, most) for sets_of_piece in sets]
    return ask_pieces(masks, fusion.count_fused, pieces, rows)


def signs_of_zero(masks: Masks) -> np.ndarray:
    """Where two questions about how a sum starts give a negative output: int8 (2, positions,
    filters). Asked once, and only where zeros of different signs count as differences.

    Sums that start from +0, or add zeros elsewhere, give +0 where all products are -0. With all
    products -0, is the output -0? It is, where nothing is added to them. And with all products
    negative and too small for the format? Where the first one is rounded before it is added to +0,
    that is +0; a fused multiply-add keeps its sign.
    """
    if masks.zeros is None:
        # the square of this is below half of the smallest subnormal number, so that it rounds to
        # zero
        small = 2.0 ** (floats.FORMATS[masks.operator.dtype].emin * 7 // 8)
        signs = []
        for x, w in ((0.0, -1.0), (small, -small)):
            template = np.full(masks.size, w)
            if masks.operator.bias:
                template[-1] = -0.0
            signs.append(np.signbit(masks.plain(x, template)))
        masks.zeros = np.stack(signs).astype(np.int8)
    return masks.zeros


def start_of_answers(answers: np.ndarray) -> str:
    """How a sum starts (``ZERO_KEPT``, ``ZERO_FUSED`` or ``ZERO_ADDED``), from an output's answers
    to the two questions of ``signs_of_zero``."""
    return ZERO_KEPT if answers[0] else ZERO_FUSED if answers[1] else ZERO_ADDED


def starts_of_outputs(masks: Masks) -> np.ndarray:
    """As ``start_of_answers`` of all outputs: str (positions, filters)."""
    first, second = signs_of_zero(masks).astype(bool)
    return np.where(first, ZERO_KEPT, np.where(second, ZERO_FUSED, ZERO_ADDED))


def kept_wider(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Per (p, q, r): 1 where the sum of p and q is kept wider, 0 where rounded, else -1."""
    # a quarter of an ulp of 1 is lost when it is added to 1, and kept in any wider format
    little = 2.0 ** -(floats.FORMATS[masks.operator.dtype].precision + 1)
    return classify(masks.run(leaves, [1.0, little, -1.0]), 0.0, little)


def _rounding(masks: Masks, piece: FusionPiece, column: int) -> Rounding:
    """The rounding that one position's answers stand for."""
    dtype = masks.operator.dtype
    fused, unexpected = piece.fused(column)
    rounding = Rounding(
        fused=fused,
        operand_format=fusion.operand_format(masks, piece, column) if unexpected else None,
        accumulator_format=dtype,
    )
    if piece.wide:
        rounding = _kept_wider(rounding, piece, dtype)
        rounding = replace(rounding, rounded=_rounded_nodes(piece, column))
    for each in QUESTIONS:
        if len(piece.answers.get(each.name, ())):
            rounding = each.read(rounding, piece, column, dtype)
    if masks.signed:
        rounding = replace(rounding, zero=start_of_answers(piece.answers["zero"][:, column]))
    return flush.with_flushing(rounding, piece, column)


def _kept_wider(rounding: Rounding, piece: FusionPiece, dtype: str) -> Rounding:
    product_format = dtype if piece.found.tree.nodes else None
    return replace(
        rounding, accumulator_format=floats.FORMATS[dtype].wider[0], product_format=product_format
    )


def _rounded_nodes(piece: FusionPiece, column: int) -> frozenset[int]:
    """The nodes that are rounded to the dtype, if partial sums are wider."""
    answers = piece.answers.get("triples")
    if answers is None or not len(answers):
        return frozenset()
    pairs = zip(piece.traces.triple_nodes, answers[:, column], strict=True)
    return frozenset(node for node, wide in pairs if wide == 0)


@dataclass(frozen=True)
class RoundingQuestion:
    """A rounding that one set of operands shows.

    ``leaves(piece)``: rows of leaves to set. ``question(masks, leaves)``: 1 yes, 0 no, -1 anything
    else. ``asked(dtype, seen, alone)``: whether to ask at all, where wide accumulators were
    ``seen``. ``read(rounding, piece, column, dtype)``: the rounding with what the position's
    answers say of it.
    """

    name: str
    leaves: Callable[[FusionPiece], np.ndarray]
    question: MaskQuestion
    asked: Callable[[str, bool, bool], bool]
    read: Callable[[Rounding, FusionPiece, int, str], Rounding]


def result_truncated(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Is the result truncated, not rounded to nearest?

    ``leaves`` (calls, filters, 2) names two whose sums meet at the root: three quarters of an ulp,
    added to 1, are rounded up or cut off. Where they stand for one leaf alone, its product has
    that much too many.
    """
    dtype = masks.operator.dtype
    operands, eps = fusion_operands(dtype), floats.eps(dtype)
    # TensorFlow cuts the results of its bfloat16 matrix product off
    alone = (leaves[:, :, 0] == leaves[:, :, 1]) & (leaves[:, :, 0] >= 0)
    truncated = classify(masks.run(leaves, [1.0, 0.75 * eps]), 1.0 + eps, 1.0)
    if alone.any():
        w = operands.w + eps
        exact = np.array([operands.x * w])
        to = (floats.round_to(exact, dtype), floats.cut_to(exact, dtype))
        up, down = (float(floats.widen(result, dtype)[0]) for result in to)
        first = np.where(alone[:, :, None], leaves[:, :, :1], -1)
        product = classify(masks.run(first, [w], operands.x), up, down)
        truncated = np.where(alone[:, None, :], product, truncated)
    return truncated


def _read_truncated(rounding: Rounding, piece: FusionPiece, column: int, dtype: str) -> Rounding:
    """Truncated is the root, or the sum that the bias is added to."""
    if rounding.shortened:
        return rounding
    nodes, root = piece.found.tree.nodes, len(piece.found.tree.nodes) - 1
    ends = [root, ~nodes[-1][0] if nodes else -1]
    answers = zip(ends, piece.answers["truncated"][:, column], strict=False)
    node = next((node for node, answer in answers if answer == 1), None)
    if node is None:
        return rounding
    rounded = _rounded_nodes(piece, column)
    if node != root:  # the sum is truncated, and the bias is added to what is left
        rounded |= {node} if piece.wide else set(range(root))
    return replace(
        _kept_wider(rounding, piece, dtype), rounded=rounded, truncated=frozenset([node])
    )


def rounded_twice(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Is a fused sum rounded to a wider format before it is rounded to the dtype?

    Per (k, partner), k being fused: a product halfway between two numbers and a little more goes up
    if the sum is rounded once; the wider format loses the little, and the tie that is left goes to
    even.
    """
    dtype = masks.operator.dtype
    operands = fusion_operands(dtype)
    # Eigen makes a float16 FMA of a float32 one, and rounds its result again
    # float16's little is the least it has, beside a large product
    scale, little = (2.0**12, 2.0**-24) if dtype == "float16" else (1.0, 2.0**-90)
    answer = masks.run(leaves, [operands.w * scale, little], operands.x)
    even = (operands.x + operands.rounded) * scale
    return classify(answer, even + 2 * operands.extra * scale, even)


def _fused_pair(piece: FusionPiece) -> np.ndarray:
    """A product that some position fuses, and what is added before it; none where sums are wide."""
    fused = [pairs[0] for pairs, counts in piece.parts if (counts == len(pairs)).any()]
    return np.array([] if piece.wide else fused[:1], int).reshape(-1, 2)


def _read_twice(rounding: Rounding, piece: FusionPiece, column: int, dtype: str) -> Rounding:
    """Sums that are kept wider, or truncated, are rounded in one way alone."""
    leaf = int(_fused_pair(piece)[0, 0])
    is_double = leaf in rounding.fused and piece.answers["twice"][0, column] == 1
    if not is_double or rounding.truncated:
        return rounding
    return replace(rounding, intermediate_format=floats.FORMATS[dtype].wider[0])


def _has_wider_format(dtype: str) -> bool:
    return bool(floats.FORMATS[dtype].wider)


def _has_16_bits(dtype: str) -> bool:
    return floats.format_of(dtype).bits == 16


def shortened(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Is a sum rounded to 16 bits, though the dtype has more?

    Per (p, q, r): p and q are 1 and a little that only some formats keep beside it, r is -1 or, -1
    in its place, nothing, where the sum is the output. What is left of the little says how many
    bits were kept: 1 bfloat16's, 2 float16's, 0 all.
    """
    answer = []
    for little in LITTLE:
        left = masks.run(leaves, [1.0, little, -1.0]).astype(np.float64)
        alone = (leaves[:, :, 2] < 0)[:, None, :]
        answer.append(classify(left - alone, 0.0, little))
    lost = np.where(answer[0] == 0, 1, np.where(answer[1] == 0, 2, 0))
    return np.where((answer[0] < 0) | (answer[1] < 0), -1, lost).astype(np.int32)


def rounded_bias(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Per (bias, p): is the bias, 1 and a little, rounded to 16 bits before -1, p, is added?"""
    lost = []
    for little in LITTLE:
        answer = masks.run(leaves, [1.0 + little, -1.0])
        lost.append(classify(answer, little, 0.0))
    number = np.where(lost[0] == 1, 1, np.where(lost[1] == 1, 2, 0))
    return np.where((lost[0] < 0) | (lost[1] < 0), -1, number).astype(np.int32)


# A quarter of an ulp of 1 in bfloat16, and in float16.
LITTLE = (2.0**-9, 2.0**-12)
SHORT_FORMATS = {1: "bfloat16", 2: "float16"}


def shortened_operands(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Per (k,): is its input rounded to 16 bits or TF32 before it is multiplied, is its weight?

    Each in turn is 1 and a little, the other one 1, and nothing else is added. 1: the input keeps
    bfloat16's bits, 2: TF32's; 3 and 6 the same of the weight, 0 neither. Where both lose theirs it
    may be the result that does.
    """
    numbers = np.zeros((len(leaves), masks.operator.positions, masks.operator.filters), np.int32)
    for weight in (False, True):
        lost = []
        for little in LITTLE:
            x, w = (1.0, 1.0 + little) if weight else (1.0 + little, 1.0)
            lost.append(classify(masks.run(leaves, [w], x), 1.0 + little, 1.0) == 1)
        numbers += np.where(lost[0], 1, np.where(lost[1], 2, 0)) * (3 if weight else 1)
    return numbers


def _read_operands(rounding: Rounding, piece: FusionPiece, column: int, dtype: str) -> Rounding:
    """Notes the format of the one operand that is shortened. Corrects what the question about both
    at once, which can't tell them apart, has noted."""
    w, x = divmod(int(piece.answers["operands"][0, column]), 3)
    # where neither or both lose bits, the question about both at once has the answer
    if bool(x) == bool(w):
        return rounding
    forms = {1: "bfloat16", 2: "tf32"}
    return replace(
        rounding, operand_format=None, input_format=forms.get(x), weight_format=forms.get(w)
    )


def _read_shortened(rounding: Rounding, piece: FusionPiece, column: int, dtype: str) -> Rounding:
    """Nodes of one narrower format; what else was asked of such sums says nothing."""
    answers = piece.answers["shortened"][:, column]
    nodes = [*piece.traces.triple_nodes, len(piece.found.tree.nodes) - 1]
    for number, name in SHORT_FORMATS.items():
        cut = frozenset(n for n, answer in zip(nodes, answers, strict=True) if answer == number)
        if cut:
            return replace(
                rounding,
                accumulator_format=dtype,
                product_format=None,
                rounded=frozenset(),
                shortened=cut,
                short_format=name,
            )
    return rounding


# Roundings that one set of operands shows each, in the order in which they are asked and read.
QUESTIONS = (
    RoundingQuestion(
        "shortened",
        leaves=lambda piece: piece.traces.every_node,
        question=shortened,
        asked=lambda dtype, seen, alone: not _has_16_bits(dtype) and alone,
        read=_read_shortened,
    ),
    RoundingQuestion(
        "operands",
        leaves=lambda piece: piece.traces.any_leaf,
        question=shortened_operands,
        asked=lambda dtype, seen, alone: not _has_16_bits(dtype) and alone,
        read=_read_operands,
    ),
    RoundingQuestion(
        "bias",
        leaves=lambda piece: piece.traces.biased,
        question=rounded_bias,
        asked=lambda dtype, seen, alone: not _has_16_bits(dtype) and alone,
        read=lambda rounding, piece, column, dtype: replace(
            rounding, bias_format=SHORT_FORMATS.get(int(piece.answers["bias"][0, column]))
        ),
    ),
    RoundingQuestion(
        "truncated",
        leaves=lambda piece: piece.traces.ends,
        question=result_truncated,
        asked=lambda dtype, seen, alone: (
            _has_16_bits(dtype) or (_has_wider_format(dtype) and (seen or alone))
        ),
        read=_read_truncated,
    ),
    RoundingQuestion(
        "twice",
        leaves=_fused_pair,
        question=rounded_twice,
        asked=lambda dtype, seen, alone: (
            _has_16_bits(dtype) or (_has_wider_format(dtype) and alone)
        ),
        read=_read_twice,
    ),
)
