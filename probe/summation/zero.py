"""Reveals how a sum starts, from the sign of a sum of zeros.

Sums that start from +0, or add zeros elsewhere, give +0 where all products are -0. Two questions
tell: with all products -0, is the output -0? It is, where nothing is added to them. And with all
products negative and too small for the format? Where the first one is rounded before it is added
to +0, that is +0; a fused multiply-add keeps its sign.

The signs are asked where zeros of different signs count as differences, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from probe import floats
from probe.summation.masks import Masks
from probe.summation.tree import BIAS, Tree

# Nothing is added; +0 is added to the first product, after it is rounded; or before.
KEPT, ADDED, FUSED = "kept", "+0 added", "+0 fused"


def signs(masks: Masks) -> np.ndarray:
    """Returns where both questions give a negative output: int8 (2, positions, filters).
    Asked once."""
    if masks.zeros is None:
        # the square of this is below half of the smallest subnormal number, so that it rounds to
        # zero
        small = 2.0 ** (floats.FORMATS[masks.operator.dtype].emin * 7 // 8)
        found = []
        for x, w in ((0.0, -1.0), (small, -small)):
            template = np.full(masks.size, w)
            if masks.operator.bias:
                template[-1] = -0.0
            found.append(np.signbit(masks.plain(x, template)))
        masks.zeros = np.stack(found).astype(np.int8)
    return masks.zeros


def start_of_answers(answers: np.ndarray) -> str:
    """Returns what the two answers of an output stand for."""
    return KEPT if answers[0] else FUSED if answers[1] else ADDED


def starts_of_outputs(masks: Masks) -> np.ndarray:
    """Of all outputs: (positions, filters)."""
    first, second = signs(masks).astype(bool)
    return np.where(first, KEPT, np.where(second, FUSED, ADDED))


def starts(tree: Tree, fused: Iterable[int]) -> frozenset[int]:
    """Returns the products that sums start with: of nodes without inner children, one that is not
    fused."""
    if not tree.nodes:
        return frozenset(tree.leaves) - {BIAS}
    found = set()
    for children in tree.nodes:
        first = [leaf for leaf in children if leaf not in fused][:1]
        if min(children) >= 0 and BIAS not in children:
            found.update(first)
    return frozenset(found)
