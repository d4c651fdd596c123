"""Finds products that overflow before they are added, which no question about finite sums shows.

A product of two bfloat16 numbers fits float32 exactly, so in its range nothing tells a fused
multiply-add from a product that is rounded first. Beyond the range it does: with a partial sum of
-1.5 * 2^127, a product of 2^128 gives 2^126 where it enters exactly, and an infinity where it was
rounded to float32 before, or was the first of a chain of its own that was added later.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from probe import floats
from probe.summation.masks import SessionOperator
from probe.summation.summation import Summation
from probe.summation.tree import BIAS, Tree

# Products of a sum up to which each is asked: a call each.
MOST = 2048  # speed alone

# The format of the partial sums that are asked about.
WIDE = "float32"


def applies(summation: Summation, dtype: str) -> bool:
    """Returns whether the products of a summation are exact in its partial sums, so that none was
    asked."""
    rounding = summation.rounding
    narrow = "bfloat16" in (dtype, rounding.operand_format)
    kept = rounding.intermediate_format or rounding.accumulator_format or dtype
    return narrow and kept == WIDE and 1 < len(summation.tree.leaves) <= MOST


def overflowing(operator: SessionOperator, summation: Summation) -> np.ndarray:
    """Returns which fused leaves overflow before they are added: bool (leaves, positions, filters).

    ``leaves`` as ``summation.rounding.fused`` has them, sorted. Asked of all the operator's outputs
    at once, and of use for those that add so. An output that does not read both leaves of a
    question answers False.
    """
    fused, beside = sorted(summation.rounding.fused), _siblings(summation.tree)
    found = np.zeros((len(fused), operator.positions, operator.filters), bool)
    template = np.zeros(operator.summands + int(operator.bias))
    # beyond float32, and made of factors within it
    product = 2.0**128
    x = math.sqrt(product)
    for biased in (False, True):
        rows = [n for n, leaf in enumerate(fused) if (beside[leaf] == BIAS) == biased]
        if not rows:
            continue
        other = [operator.summands if biased else beside[fused[n]] for n in rows]
        pairs = np.stack([[fused[n] for n in rows], other], axis=1)
        leaves = np.repeat(pairs[:, None, :], operator.filters, axis=1)
        values = np.array([product / x, -1.5 * 2.0**127 / (1.0 if biased else x)])
        found[rows] = np.isposinf(operator.run(x, template, leaves, values))
    return found


def with_products_rounded(summation: Summation, first: frozenset[int]) -> Summation:
    """Returns the summation whose leaves ``first`` are rounded to ``WIDE`` before they are
    added."""
    rounding = replace(summation.rounding, fused=summation.rounding.fused - first)
    if rounding.intermediate_format and rounding.product_format is None:
        rounding = replace(rounding, product_format=WIDE)
    return Summation(summation.tree, rounding)


def possible(x: np.ndarray, w: np.ndarray, dtype: str) -> bool:
    """Returns whether a product of finite operands can be too large for the partial sums."""
    sizes = [np.abs(floats.widen(one, dtype)) for one in (x, w)]
    most = [float(one[np.isfinite(one)].max(initial=0.0)) for one in sizes]
    return most[0] * most[1] > floats.largest_finite(WIDE)


def _siblings(tree: Tree) -> dict[int, int]:
    """For every leaf one that its node adds to it, the bias only where nothing else is there."""
    under: list[int] = []  # a leaf of every node
    found: dict[int, int] = {}
    for children in tree.nodes:
        leaves = [under[~child] if child < 0 else child for child in children]
        under.append(min(leaves))
        for child in children:
            others = [leaf for leaf, one in zip(leaves, children, strict=True) if one != child]
            if child >= 0 and others:
                found[child] = min(others)
    return found
