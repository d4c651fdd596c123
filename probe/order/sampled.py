"""Asks a long sum at some pairs of its products, where asking for its whole order would not end.

A whole order takes some hundred questions of a sum of a thousand numbers and thousands of one of a
hundred thousand, each as long as the sum, and is then replayed: minutes, and hours beyond. What two
products answer is how many are added up to where they meet (see ``fprev``). Two runs that answer
differently at any pair add in different orders; that is a proof, though nothing is replayed.
"""

from __future__ import annotations

import numpy as np

from probe.case.case import Summed
from probe.order.masks import Masks, SessionOperator
from probe.targets.launch import AnySession
from probe.targets.progress import VOICE, span

# Products of a sum up to which its whole order is asked. Measured with PyTorch's sum: 1.5 s for
# 10,000, 32 s for 100,000, and so some 1.3 powers of ten for each power of ten.
LONGEST, SECONDS, POWER = 1 << 17, 32 / 100_000**1.3, 1.3

# Answers that are kept of a side.
ANSWERS = 1 << 22


def why_not_whole(products: int) -> str:
    """Returns why the order of a sum of so many products is not asked; empty if it is."""
    if products <= LONGEST:
        return ""
    took = span(SECONDS * products**POWER)
    return f"sums of {products:,} are not asked beyond {LONGEST:,}: {took} or more"


def pairs_of_products(products: int, most: int) -> np.ndarray:
    """Returns pairs (i, j) that tell blocks and lanes apart, int (pairs, 2), at most so many.

    Products on both sides of a border between eighths, which threads and blocks divide at; the
    first product beside those a power of two further on, as vector lanes are; the last likewise.
    """
    borders = np.arange(1, 8) * products // 8
    steps = 2 ** np.arange((products - 1).bit_length())
    first, last = np.zeros_like(steps), np.full_like(steps, products - 1)
    kinds = (borders - 1, borders), (first, steps), (last - steps, last)
    return np.concatenate([np.stack(each, axis=1) for each in kinds])[:most]


def meeting_sizes(session: AnySession, case: Summed) -> np.ndarray:
    """Returns over how many products each pair meets in each output: (pairs, positions, filters).

    A call of the operation for each of up to some 60 pairs. Errors: as of the operation.
    """
    masks = Masks(SessionOperator(session, case))
    outputs = masks.operator.positions * masks.operator.filters
    pairs = pairs_of_products(case.summands, max(1, ANSWERS // outputs))
    sizes = np.empty((len(pairs), masks.operator.positions, masks.operator.filters), np.float32)
    with VOICE.counted("pairs of products", len(pairs)) as count:
        for number, pair in enumerate(pairs):
            ask = np.broadcast_to(pair, (1, masks.operator.filters, 2))
            sizes[number] = masks.size - masks.survivors(ask)[0]
            count.set(number + 1, len(pairs))
    return sizes


def answers_apart(left: np.ndarray, right: np.ndarray, products: int) -> str:
    """Returns what two sides' answers, (pairs, outputs), say of their orders, in words."""
    pairs = pairs_of_products(products, len(left))
    apart = np.argwhere(left != right)
    if not len(apart):
        return f"at {len(pairs)} pairs of products both sides answer alike, so the order is unknown"
    number, output = apart[0]
    i, j = pairs[number].tolist()
    count = len(np.unique(apart[:, 0]))
    return (
        f"the orders differ: at {count} of {len(pairs)} pairs of products the sides answer "
        f"differently; p{i} and p{j} meet in a sum of {left[number, output]:,.0f} products on the "
        f"left, of {right[number, output]:,.0f} on the right"
    )
