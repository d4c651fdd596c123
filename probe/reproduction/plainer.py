"""An output's sums without the products that are 0: they add nothing, whatever the order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probe import floats
from probe.explain.evidence import Added, Evidence, part
from probe.order import ways
from probe.order.replay import partial_sums
from probe.order.tree import BIAS
from probe.order.ways import Way

WHOLE = 12
"""Summands up to which a sum is shown with all of them."""


def without_zeros(evidence: Evidence, whole: int = WHOLE) -> Evidence:
    """The same output with smaller trees, where those still give both sides' bits.

    Else (a narrowed sum, one of up to ``whole`` summands, fewer than two that are left, a zero's
    sign) as it is.
    """
    left, right = _side(evidence.left, whole), _side(evidence.right, whole)
    if left is None or right is None or left.way is None or right.way is None:
        return evidence
    left.own, right.own = part(left.way, right.way, left.dtype)
    left.bits_part = right.bits_part = None
    return replace(evidence, left=left, right=right)


def _side(side: Added, whole: int) -> Added | None:
    """One side over the products that are not 0; None where that is not the same."""
    if side.way is None or side.way[1].narrow or len(side.way[0].leaves) <= whole:
        return None
    values = {
        one.leaf: (_value(one.x, side.dtype), _value(one.w, side.dtype)) for one in side.products
    }
    kept = [leaf for leaf, (x, w) in values.items() if x * w != 0]
    bias = None if side.bias is None else _value(side.bias, side.dtype)
    if bias is not None:
        kept.append(BIAS)
    if len(kept) < 2 or len(kept) >= len(side.way[0].leaves):
        return None
    way = among(side.way, set(kept))
    x, w = (np.zeros((max(values) + 1, 1), floats.container(side.dtype)) for _ in range(2))
    for leaf, pair in values.items():
        for array, value in zip((x, w), pair, strict=True):
            array[leaf] = floats.round_to(np.array([value]), side.dtype)
    added = None
    if bias is not None and BIAS in way[0].leaves:
        added = floats.round_to(np.array([bias]), side.dtype)[0]
    sums = partial_sums(*way, x, w, side.dtype, added)
    last = floats.from_bits(np.array([sums[-1].bits], _unit(sums[-1].format)), sums[-1].format)
    result = way[1].output(way[0], floats.widen(last, sums[-1].format), side.dtype)
    if int(floats.to_bits(result, side.dtype)[0]) != side.library:
        return None
    return replace(side, way=way, sums=sums, result=side.library)


def among(way: Way, kept: set[int]) -> Way:
    """The way over some leaves; a product that is added to nothing but zeros is rounded there."""
    tree, rounding = way
    alone = {
        leaf
        for leaf in rounding.fused & kept
        if not any(
            other in kept
            for child in tree.nodes[tree.parents[leaf]]
            if child != leaf
            for other in (tree.leaves_under(~child) if child < 0 else (child,))
        )
    }
    return ways.restricted((tree, replace(rounding, fused=rounding.fused - alone)), kept)


def _value(bits: int, dtype: str) -> float:
    found = floats.from_bits(np.array([bits], _unit(dtype)), dtype)
    return float(floats.widen(found, dtype)[0])


def _unit(dtype: str) -> np.dtype:
    return np.dtype(floats.format_of(dtype).unit)
