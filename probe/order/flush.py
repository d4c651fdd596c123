"""Reveals which subnormal numbers become zero: operands, products, sums.

One question comes first, to all outputs and all leaves at once: with every product the smallest
subnormal number, do as many of them come out as there are leaves? It is put twice, with subnormal
inputs and with subnormal weights. Where the answer is yes, nothing on the way is flushed, and
nothing else is asked. Where it is no, operands, products and sums are asked by themselves:

- operands: subnormal ones whose products are normal numbers;
- products: a subnormal one that is added to a normal number;
- sums: 1.5 and -1 times the smallest normal number, which meet in a node; what is left is added to
  a normal number right above, or is the output.

Every node is asked; of a long sum some stand for all where they answer alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from probe.case import floats, operands
from probe.order.fusion import FusionPiece, ask_pieces
from probe.order.masks import MaskQuestion, Masks, classify
from probe.order.summation import EVERY, Rounding
from probe.order.tree import BIAS

NODES = 4096  # nodes of a tree that stand for all of them where they flush alike
AT_ONCE = 1 << 20  # speed alone: leaves that are set in one call
FILTER_PROBES = 4  # speed alone: sets of weights that tell filters apart which flush
SPAN = 4  # binades between the constant input and 1 where products are asked about

# Sets of leaves, or of pairs, that are asked at once: (members, 1 or 2) each.
Sets = list[np.ndarray]

# Sets, and how many of each came out at every position.
Counted = list[tuple[np.ndarray, np.ndarray]]


def flushing_outputs(masks: Masks) -> np.ndarray:
    """Where anything subnormal becomes zero, so that fewer products than leaves come out: int8
    (questions, ...outputs).

    The outputs are (positions, filters). Two calls, or three where counts are not exact.
    """
    if masks.flushing is None:
        form = floats.FORMATS[masks.operator.dtype]
        unit = 2.0 ** (form.emin - form.precision + 1)
        exact = masks.size <= masks.scale.limit
        expected = masks.summands() if exact else _equal_products(masks, 1.0, 1.0)
        counts = [
            _equal_products(masks, 2 * unit, 0.5) / unit,
            _equal_products(masks, 0.5, 2 * unit) / unit,
        ]
        masks.flushing = np.stack([count != expected for count in counts]).astype(np.int8)
    return masks.flushing


def signature(masks: Masks) -> np.ndarray:
    """Answers that tell filters apart which flush differently: (questions, positions, filters).

    Where anything is flushed, also the outputs for ``FILTER_PROBES`` sets of weights that are the
    same for all filters, with products around the smallest normal number.
    """
    flushed = flushing_outputs(masks).astype(np.float64)
    if not flushed.any():
        return flushed
    if masks.filter_answers is None:
        least = 2.0 ** (floats.FORMATS[masks.operator.dtype].emin + SPAN)
        outputs = []
        for seed in range(FILTER_PROBES):
            drawn = operands.hashes(seed, "w", 0, (masks.size,)).view(np.int64)
            template = drawn * 2.0**-62 * least  # from -2 to 2 times that
            if masks.operator.bias:
                template[-1] *= 2.0**-SPAN
            outputs.append(masks.plain(2.0**-SPAN, template).astype(np.float64))
        masks.filter_answers = np.stack(outputs)
    return np.concatenate([flushed, masks.filter_answers])


def _equal_products(masks: Masks, x: float, w: float) -> np.ndarray:
    """The outputs where every product, and the bias, is x * w."""
    template = np.full(masks.size, w)
    if masks.operator.bias:
        template[-1] = x * w
    return masks.plain(x, template).astype(np.float64)


def reveal_flushing(masks: Masks, pieces: Sequence[FusionPiece]) -> None:
    """Notes at every piece how its outputs flush: entries of ``answers`` and ``flushed``.

    The entries exist only where some output of a piece flushes.
    """
    outputs = flushing_outputs(masks)
    flushing = []
    for piece in pieces:
        answers = outputs[:, piece.found.positions][:, :, piece.found.filters]
        if answers.any():
            piece.answers["flushing"] = answers.max(axis=2).astype(np.int32)
            flushing.append(piece)
    if not flushing:
        return
    for name, question, sets_of in QUESTIONS:
        sets = [sets_of(masks, piece) for piece in flushing]
        for piece, counted in zip(
            flushing, _count_sets(masks, flushing, sets, question), strict=True
        ):
            piece.flushed[name] = counted
            counts = np.array([counts for _, counts in counted], np.int32)
            piece.answers["flush " + name] = counts.reshape(-1, len(piece.found.positions))
    _reveal_flushed_sums(masks, flushing)
    _ask_tininess(masks, flushing)


def _count_sets(
    masks: Masks, pieces: Sequence[FusionPiece], sets: Sequence[Sets], question: MaskQuestion
) -> list[Counted]:
    """Counts how many products of each set are not flushed. Where a part of a set is, its members
    are asked one by one."""
    first = _answers_to_sets(masks, pieces, sets, question)
    mixed_sets: list[Sets] = []
    counted_sets: list[Counted] = []
    for sets_of_piece, table in zip(sets, first, strict=True):
        pairs = list(zip(sets_of_piece, table, strict=True))
        alike = [bool(np.isin(counts, (0, len(members))).all()) for members, counts in pairs]
        counted_sets.append(list(itertools.compress(pairs, alike)))
        mixed = itertools.compress(sets_of_piece, np.logical_not(alike))
        mixed_sets.append([row[None] for members in mixed for row in members])
    last = _answers_to_sets(masks, pieces, mixed_sets, question)
    for counted, sets_of_piece, table in zip(counted_sets, mixed_sets, last, strict=True):
        counted += zip(sets_of_piece, table, strict=True)
    return counted_sets


def _answers_to_sets(
    masks: Masks, pieces: Sequence[FusionPiece], sets: Sequence[Sets], question: MaskQuestion
) -> list[np.ndarray]:
    """Answers to sets as rows: members, and behind them their partners, -1 where there are none."""
    shapes = [members.shape for sets_of_piece in sets for members in sets_of_piece]
    most, width = (max(sizes) for sizes in zip(*shapes, strict=True)) if shapes else (1, 1)
    rows = [np.full((len(sets_of_piece), width, most), -1) for sets_of_piece in sets]
    for table, sets_of_piece in zip(rows, sets, strict=True):
        for row, members in zip(table, sets_of_piece, strict=True):
            row[:, : len(members)] = members.T
    return ask_pieces(masks, question, pieces, [r.reshape(len(r), width * most) for r in rows])


def leaf_sets(masks: Masks, piece: FusionPiece) -> Sets:
    """The products of a tree, as many in a set as can be counted at once."""
    leaves = np.array([leaf for leaf in piece.found.tree.leaves if leaf != BIAS], int).reshape(
        -1, 1
    )
    most = min(masks.scale.limit, max(128, AT_ONCE // masks.operator.filters))
    return [leaves[start : start + most] for start in range(0, len(leaves), most)]


def pair_sets(masks: Masks, piece: FusionPiece) -> Sets:
    """Products with what is added right before each, fused ones apart; a lone one with itself."""
    tree = piece.found.tree
    if not tree.nodes:
        leaf = tree.leaves[0]
        return [np.array([[leaf, -1]])] if leaf != BIAS else []
    fused, _ = piece.fused(0)
    sets = []
    for batch in piece.pairs.batches:
        for kind in (True, False):
            pairs = [pair for pair in batch if (pair[0] in fused) == kind]
            most = max(1, masks.scale.limit // 4)
            sets += [np.array(pairs[n : n + most]) for n in range(0, len(pairs), most)]
    return sets


def count_inputs_kept(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Counts subnormal inputs that are not read as zeros."""
    small, large = _small_and_large(masks.operator.dtype)
    answer = masks.run(leaves, np.full(leaves.shape[2], large), small)
    return _as_counts(answer / (small * large), leaves)


def count_weights_kept(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Counts subnormal weights that are not read as zeros."""
    small, large = _small_and_large(masks.operator.dtype)
    answer = masks.run(leaves, np.full(leaves.shape[2], small), large)
    return _as_counts(answer / (small * large), leaves)


def _small_and_large(dtype: str) -> tuple[float, float]:
    """A subnormal number, and one whose product with it is normal."""
    return 2.0 ** (floats.FORMATS[dtype].emin - 1), 2.0**10 if dtype == "float16" else 2.0**40


def _as_counts(counts: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """Counts as int32, -1 where they are none of up to all leaves."""
    most = (leaves >= 0).sum(axis=2)[:, None, :]
    fits = (counts >= 0) & (counts <= most) & (counts == np.rint(counts))
    return np.where(fits, counts, -1).astype(np.int32)


def count_products_kept(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Counts subnormal products that are not lost, each added to a normal number (its partner)."""
    most = leaves.shape[2] // 2
    least = 2.0 ** (floats.FORMATS[masks.operator.dtype].emin + SPAN)
    answer = masks.run(leaves, np.repeat([least / 2, least], most), 2.0**-SPAN)
    return _halves_beside_partners(answer, least * 2.0**-SPAN, leaves)


def count_kept_behind_bias(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """As ``count_products_kept`` for a pair whose partner is the bias, which no input scales."""
    least = 2.0 ** (floats.FORMATS[masks.operator.dtype].emin + SPAN)
    answer = masks.run(leaves, [least / 2, least * 2.0**-SPAN], 2.0**-SPAN)
    return _halves_beside_partners(answer, least * 2.0**-SPAN, leaves)


def bias_sets(masks: Masks, piece: FusionPiece) -> Sets:
    """The bias with a product that it is added to, or alone; [] where the tree has no bias."""
    tree, number = piece.found.tree, masks.operator.summands
    if BIAS not in tree.leaves:
        return []
    if not tree.nodes:
        return [np.array([[number, -1]])]
    child = next(leaf for leaf in tree.nodes[tree.parents[BIAS]] if leaf != BIAS)
    while child < 0:
        child = min(tree.nodes[~child], key=lambda node: (node < 0, node))
    return [np.array([[number, child]])]


def count_biases_kept(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """As ``count_products_kept`` for a subnormal bias beside a product."""
    least = 2.0 ** (floats.FORMATS[masks.operator.dtype].emin + SPAN)
    answer = masks.run(leaves, [least * 2.0**-SPAN / 2, least], 2.0**-SPAN)
    return _halves_beside_partners(answer, least * 2.0**-SPAN, leaves)


# What is asked of operands, products and the bias: a name, the question, and of which sets.
QUESTIONS: tuple[tuple[str, MaskQuestion, Callable[[Masks, FusionPiece], Sets]], ...] = (
    ("inputs", count_inputs_kept, leaf_sets),
    ("weights", count_weights_kept, leaf_sets),
    ("products", count_products_kept, pair_sets),
    (
        "behind bias",
        count_kept_behind_bias,
        lambda masks, piece: [row[None] for row in piece.pairs.behind_bias],
    ),
    ("bias", count_biases_kept, bias_sets),
)


def _halves_beside_partners(answer: np.ndarray, partner: float, leaves: np.ndarray) -> np.ndarray:
    """Counts the halves of a partner that stand beside all partners."""
    most = leaves.shape[2] // 2
    partners = (leaves[:, :, most:] >= 0).sum(axis=2)[:, None, :]
    return _as_counts(2 * (answer / partner - partners), leaves[:, :, :most])


def _reveal_flushed_sums(masks: Masks, pieces: Sequence[FusionPiece]) -> None:
    """Asks all nodes; of a long sum ``NODES`` of them, and the others where these do not agree."""
    traces = [piece.traces for piece in pieces]
    # a tree of one leaf adds nothing
    roots = [trace.ends[: bool(trace.tree.nodes)] for trace in traces]
    sampled = [trace.triples[:: -(-len(trace.triples) // NODES) or 1] for trace in traces]
    results = ask_pieces(masks, _sum_is_flushed, pieces, roots)
    answered = ask_pieces(masks, _sum_is_flushed, pieces, sampled)
    unsettled = [
        trace.triples
        if len(sample) < len(trace.triples) and (sample != root[:1]).any()
        else sample[:0]
        for trace, sample, root in zip(traces, answered, results, strict=True)
    ]
    nodes = ask_pieces(masks, _sum_is_flushed, pieces, unsettled)
    for piece, root, sample, full in zip(pieces, results, answered, nodes, strict=True):
        alike = np.broadcast_to(sample[:1], (len(piece.traces.triples), sample.shape[1]))
        every_node = sample if len(sample) == len(alike) else alike
        piece.answers["flush root"] = root
        piece.answers["flush nodes"] = full if len(full) else every_node


def _sum_is_flushed(masks: Masks, leaves: np.ndarray) -> np.ndarray:
    """Per (p, q, r): 1 where the subnormal sum of p and q is zero when r is added, 0 where not.

    Per (p, q) that meet at the root: where that sum comes out as zero.
    """
    least = 2.0 ** floats.FORMATS[masks.operator.dtype].emin
    width = leaves.shape[2]
    beside = least * (width == 3)
    answer = masks.run(leaves, [1.5 * least, -least, least][:width])
    return classify(answer, zero=least / 2 + beside, one=beside).astype(np.int32)


FACTORS = {8: ((7, 73), (15, 17)), 11: ((63, 65), (23, 89))}
FACTORS |= {24: ((31, 1082401), (4095, 4097)), 53: ((2**27 - 1, 2**27 + 1), (6361, 1416003655831))}
"""By precision p: factors of 2**(p+1) - 1, and of 2**p - 1."""


def _ask_tininess(masks: Masks, pieces: Sequence[FusionPiece]) -> None:
    """One product right below the smallest normal number, twice: does it round up to it?"""
    exact = [p.wide and bool(p.found.tree.nodes) for p in pieces]  # then no product is rounded
    products = [piece.traces.any_leaf for piece in pieces]
    rows = [
        leaves[:0] if never_rounded else leaves
        for leaves, never_rounded in zip(products, exact, strict=True)
    ]
    # 2^emin (1 - 2^-(p+1)) rounds up to 2^emin in p digits: it is flushed only by who looks before
    # rounding. 2^emin (1 - 2^-p) has p digits, so it is flushed by who rounds as if exponents had
    # no end; the subnormal grid has one digit less there, and rounds it up.
    for number in (0, 1):

        def rounded(masks: Masks, leaves: np.ndarray, number: int = number) -> np.ndarray:
            form = floats.FORMATS[masks.operator.dtype]
            bits = form.precision + 1 - number
            x, w = FACTORS[form.precision][number]
            low = -(bits // 2)
            answer = masks.run(leaves, [w * 2.0 ** (form.emin - bits - low)], x * 2.0**low)
            return classify(answer, zero=0.0, one=2.0**form.emin)

        for piece, answers in zip(pieces, ask_pieces(masks, rounded, pieces, rows), strict=True):
            piece.answers[f"tininess {number}"] = answers


def with_flushing(rounding: Rounding, piece: FusionPiece, column: int) -> Rounding:
    """Adds to a rounding what one position's answers say of subnormal numbers."""
    if not len(piece.answers.get("flushing", ())) or not piece.answers["flushing"][:, column].any():
        return rounding
    if rounding.short_format == "float16":  # which has no numbers as small as those asked about
        return rounding

    def lost(*names: str) -> frozenset[int]:  # the leaves of sets of which nothing came out
        sets = (pair for name in names for pair in piece.flushed[name])
        leaves = [members[:, 0].tolist() for members, counts in sets if counts[column] == 0]
        return frozenset(itertools.chain.from_iterable(leaves))

    tree = piece.found.tree
    leaves = frozenset(tree.leaves)
    fused = rounding.fused & leaves if tree.nodes else frozenset()
    products = lost("products", "behind bias") | ({BIAS} if lost("bias") else frozenset())
    nodes = len(tree.nodes)
    answers = [piece.answers[name][:nodes, column] for name in ("flush nodes", "flush root")]
    nodes_asked = [*piece.traces.triple_nodes, nodes - 1]
    flushed_nodes = itertools.compress(
        nodes_asked, np.concatenate([answers[0], answers[1][:1]]) == 1
    )
    sums = _all_or_listed(frozenset(flushed_nodes), frozenset(range(nodes)))
    rounding = replace(
        rounding,
        flushed_inputs=_all_or_listed(lost("inputs"), leaves - {BIAS}),
        flushed_weights=_all_or_listed(lost("weights"), leaves - {BIAS}),
        flushed_products=_all_or_listed(products - fused, leaves - fused),
        flushed_whole=_all_or_listed(products & fused, fused),
        flushed_sums=sums,
    )
    if not rounding.flushed_products and not sums:
        return rounding
    ups = [piece.answers[f"tininess {number}"][:, column] for number in (0, 1)]
    kind = None
    if len(ups[0]):
        kind = {(0, 0): "before", (1, 1): "grid"}.get((int(ups[0][0]), int(ups[1][0])))
    return replace(rounding, tininess=kind)


def _all_or_listed(leaves: frozenset[int], possible: frozenset[int]) -> frozenset[int]:
    """Leaves, or nodes, as ``Rounding`` lists them: ``EVERY`` where all that can be are."""
    return frozenset([EVERY]) if leaves and leaves == possible else leaves
