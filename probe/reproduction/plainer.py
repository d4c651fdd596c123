"""An output's sums without the products that are 0: they add nothing, whatever the order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from probe import floats
from probe.explain.evidence import Added, Evidence
from probe.order.replay import partial_sums
from probe.order.tree import BIAS

WHOLE = 12
"""Summands up to which a sum is shown with all of them."""


def without_zeros(evidence: Evidence, whole: int = WHOLE) -> Evidence:
    """The same output with smaller trees, where those still give both sides' bits.

    Else (a narrowed sum, one of up to ``whole`` summands, fewer than two that are left, a zero's
    sign) as it is.
    """
    left, right = _side(evidence.left, whole), _side(evidence.right, whole)
    if left is None or right is None or left.summation is None or right.summation is None:
        return evidence
    left.own, right.own = left.summation.own_nodes(right.summation, left.dtype)
    left.bits_part = right.bits_part = None
    return replace(evidence, left=left, right=right)


def _side(side: Added, whole: int) -> Added | None:
    """One side over the products that are not 0; None where that is not the same."""
    if side.summation is None or side.summation.rounding.rounded:
        return None
    leaves = side.summation.tree.leaves
    if len(leaves) <= whole:
        return None
    values = {
        one.leaf: (_value(one.x, side.dtype), _value(one.w, side.dtype)) for one in side.products
    }
    kept = [leaf for leaf, (x, w) in values.items() if x * w != 0]
    bias = None if side.bias is None else _value(side.bias, side.dtype)
    if bias is not None:
        kept.append(BIAS)
    if len(kept) < 2 or len(kept) >= len(leaves):
        return None
    summation = side.summation.restricted(kept)
    x, w = (np.zeros((max(values) + 1, 1), floats.container(side.dtype)) for _ in range(2))
    for leaf, pair in values.items():
        for array, value in zip((x, w), pair, strict=True):
            array[leaf] = floats.round_to(np.array([value]), side.dtype)
    added = None
    if bias is not None and BIAS in summation.tree.leaves:
        added = floats.round_to(np.array([bias]), side.dtype)[0]
    sums = partial_sums(summation, x, w, side.dtype, added)
    last = floats.from_bits(np.array([sums[-1].bits], _unit(sums[-1].format)), sums[-1].format)
    result = summation.output(floats.widen(last, sums[-1].format), side.dtype)
    if int(floats.to_bits(result, side.dtype)[0]) != side.library:
        return None
    return replace(side, summation=summation, sums=sums, result=side.library)


def _value(bits: int, dtype: str) -> float:
    found = floats.from_bits(np.array([bits], _unit(dtype)), dtype)
    return float(floats.widen(found, dtype)[0])


def _unit(dtype: str) -> np.dtype:
    return np.dtype(floats.format_of(dtype).unit)
