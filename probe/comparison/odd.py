"""What infinities, NaN and overflow make of a run's replay.

The replay of finite operands needs to know nothing of them. Where operands are not finite, what
reaches an output from elsewhere is asked; where products overflow, whether they do so before they
are added.

A product of two bfloat16 numbers fits float32 exactly, so in its range nothing tells a fused
multiply-add from a product that is rounded first. Beyond the range it does: with a partial sum of
-1.5 * 2^127, a product of 2^128 gives 2^126 where it enters exactly, and an infinity where it was
rounded to float32 before, or was the first of a chain of its own that was added later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.launch import AnySession
from probe.order.masks import SessionOperator
from probe.order.orders import Operands, Orders
from probe.order.reach import reached_by
from probe.order.summation import Summation

if TYPE_CHECKING:
    from probe.comparison.runs import Run


from dataclasses import replace

from probe.order.tree import BIAS, Tree


def settle(run: Run, session: AnySession, orders: Orders) -> None:
    """Replays what a run's orders did not give because of infinities, NaN or overflow.

    An output that an infinity or a NaN gets into without a weight adds 0 times that: it replays if
    it is NaN. Fills in ``replays``, ``reach``, ``reached`` and ``variants``.
    """
    given, dtype = run.operands, run.case.dtype
    if may_overflow(given.x, given.w, dtype):
        _overflow(run, session, orders)
    if given.finite:
        return
    if run.reach is None:
        run.reach = reached_by(session, run.case, given.x, given.w, given.b)
    some, nan = run.reach.any, np.isnan(floats.widen(given.y, dtype))
    run.reached = some & nan & ~_nans(orders, given, some & nan)
    known = (orders.index >= 0) | orders.replayed
    run.replays = np.where(some, nan & known, run.replays)


def _nans(orders: Orders, operands: Operands, which: np.ndarray) -> np.ndarray:
    """Where the windows alone make a NaN, of these outputs: bool (positions, filters)."""
    found = np.zeros_like(which)
    for number, summation in enumerate(orders.summations):
        positions, filters = np.nonzero(which & (orders.index == number))
        if len(positions):
            y = operands.replay(summation, positions, filters)
            found[positions, filters] = np.isnan(floats.widen(y, operands.case.dtype))
    return found


def _overflow(run: Run, session: AnySession, orders: Orders) -> None:
    """Replays outputs with the products rounded first that overflow before they are added."""
    for number, summation in enumerate(orders.summations):
        open_ = (orders.index == number) & ~run.replays
        if not open_.any() or not applies(summation, run.case.dtype):
            continue
        here = np.flatnonzero(open_.any(axis=1))
        filters = run.case.filters
        select = (here[:, None] * filters + np.arange(filters)).astype(np.int64)
        found = overflowing(SessionOperator(session, run.case, select), summation)
        fused = np.array(sorted(summation.rounding.fused))
        answers: dict[bytes, list[tuple[int, int]]] = {}
        for row, position in enumerate(here.tolist()):
            for filter_ in np.flatnonzero(open_[position]).tolist():
                key = found[:, row, filter_].tobytes()
                answers.setdefault(key, []).append((position, filter_))
        for key, places in answers.items():
            first = frozenset(fused[np.frombuffer(key, bool)].tolist())
            if first:
                _try(run, with_products_rounded(summation, first), np.array(places))


def _try(run: Run, variant: Summation, places: np.ndarray) -> None:
    """Takes a variant for those of the outputs (position, filter) whose bits it gives."""
    agreed = places[run.operands.agrees(variant, *places.T)]
    if len(agreed):
        run.replays[tuple(agreed.T)] = True
        run.variants |= {(int(p), int(f)): variant for p, f in agreed}


MOST = 2048
"""Products of a sum up to which each is asked: a call each."""

WIDE = "float32"
"""The format of the partial sums that are asked about."""


def applies(summation: Summation, dtype: str) -> bool:
    """Whether the products of a summation are exact in its partial sums, so that none was asked."""
    rounding = summation.rounding
    narrow = "bfloat16" in (dtype, rounding.operand_format)
    kept = rounding.intermediate_format or rounding.accumulator_format or dtype
    return narrow and kept == WIDE and 1 < len(summation.tree.leaves) <= MOST


def overflowing(operator: SessionOperator, summation: Summation) -> np.ndarray:
    """Which fused leaves overflow before they are added: bool (leaves, positions, filters).

    ``leaves`` as ``summation.rounding.fused`` has them, sorted. Asked of all the operator's outputs
    at once, and of use for those that add so. An output that does not read both leaves of a
    question answers False.
    """
    fused, beside = sorted(summation.rounding.fused), _siblings(summation.tree)
    found = np.zeros((len(fused), operator.positions, operator.filters), bool)
    template = np.zeros(operator.summands + int(operator.bias))
    x, product = 2.0**64, 2.0**128
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
    """The summation whose leaves ``first`` are rounded to ``WIDE`` before they are added."""
    rounding = replace(summation.rounding, fused=summation.rounding.fused - first)
    if rounding.intermediate_format and rounding.product_format is None:
        rounding = replace(rounding, product_format=WIDE)
    return Summation(summation.tree, rounding)


def may_overflow(x: np.ndarray, w: np.ndarray, dtype: str) -> bool:
    """Whether a product of finite operands can be too large for the partial sums."""
    sizes = [np.abs(floats.widen(one, dtype)) for one in (x, w)]
    most = [float(one[np.isfinite(one)].max(initial=0.0)) for one in sizes]
    return most[0] * most[1] > floats.largest(WIDE)


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
