"""Checks the operands of a comparison, and replays what infinities, NaN and overflow make of them.

A difference between sides that were given different operands says nothing of a library. The replay
of finite operands needs to know nothing of infinities: where operands are not finite, what reaches
an output from elsewhere is asked; where products overflow, whether they do so before they are
added.

A product of two bfloat16 numbers fits float32 exactly, so in its range nothing tells a fused
multiply-add from a product that is rounded first. Beyond the range it does: with a partial sum of
-1.5 * 2^127, a product of 2^128 gives 2^126 where it enters exactly, and an infinity where it was
rounded to float32 before, or was the first of a chain of its own that was added later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.launch import AnySession
from probe.summation.masks import SessionOperator
from probe.summation.orders import ContainerOperands, Orders
from probe.summation.reach import reached_by
from probe.summation.summation import Summation
from probe.summation.tree import BIAS, Tree

if TYPE_CHECKING:
    from probe.comparison.judged import OutputPairs
    from probe.comparison.runs import CaseRun

AT_ONCE = 1 << 22  # speed alone
"""Operands that are compared at once."""


def check_operands(left: CaseRun, right: CaseRun, pairs: OutputPairs) -> None:
    """Outputs that must agree have to be given the same operands. InputError: they are not.

    Where a leaf's input, weight or bias differs on the other side, by another dtype, seed or
    rounding, a difference says nothing of the library. Costs a read of both sides' operands.
    """
    one, two = left.operands, right.operands
    dtype = left.case.dtype
    if dtype != right.case.dtype:
        why = f"the left side has {dtype}: the operands are rounded differently"
        raise InputError("dtype", right.case.dtype, why, "compare runs of one dtype")
    mine, theirs = pairs.left[pairs.same_window], pairs.right[pairs.same_window]
    if not len(mine):
        return
    filters = _pairs_that_occur(mine[:, 1], theirs[:, 1], left.case.filters, right.case.filters)
    met = [("w", one.weights[:, filters[0]], two.weights[:, filters[1]])]
    if one.b is not None and two.b is not None:
        met.append(("b", one.b[filters[0]], two.b[filters[1]]))
    moved = np.flatnonzero((np.diff(mine[:, 0]) != 0) | (np.diff(theirs[:, 0]) != 0)) + 1
    starts = np.concatenate([[0], moved])  # filters of one place follow each other
    places = np.stack([mine[starts, 0], theirs[starts, 0]], axis=1)
    widths = [side.case.filters // side.case.groups for side in (left, right)]
    ours, others = filters[0] // widths[0], filters[1] // widths[1]
    groups = _pairs_that_occur(ours, others, left.case.groups, right.case.groups)
    for first, second in groups.T.tolist():
        ours, others = one.columns[first], two.columns[second]
        step = max(1, AT_ONCE // max(len(ours), 1))
        for start in range(0, len(places), step):
            some = places[start : start + step].T
            met_here = ("x", ours[:, some[0]], others[:, some[1]])
            for name, a, b in (met_here, *met):
                _check_bits(name, a, b, dtype)
            met = []


def _pairs_that_occur(mine: np.ndarray, theirs: np.ndarray, count: int, others: int) -> np.ndarray:
    """Returns pairs of numbers below ``count`` and ``others`` that occur, each once: (2, pairs)."""
    found = np.zeros((count, others), bool)
    found[mine, theirs] = True
    return np.stack(np.nonzero(found))


def _check_bits(name: str, a: np.ndarray, b: np.ndarray, dtype: str) -> None:
    """Raises InputError where two container arrays differ, in shape or in a bit."""
    todo = "give both sides the same operands"
    if a.shape != b.shape:
        raise InputError(name, a.shape, f"the other side reads {b.shape} of them", todo)
    bits = [floats.to_bits(np.ascontiguousarray(side), dtype) for side in (a, b)]
    if np.array_equal(bits[0], bits[1]):
        return
    place = tuple(np.argwhere(bits[0] != bits[1])[0])
    shown = [floats.text(int(side[place]), dtype) for side in bits]
    why = f"outputs that must agree read {shown[1]} on the other side"
    raise InputError(name, shown[0], why, todo)


def settled(run: CaseRun, session: AnySession, orders: Orders) -> CaseRun:
    """Returns a run with what its orders did not give because of infinities, NaN or overflow.

    An output that an infinity or a NaN gets into without a weight adds 0 times that: it replays if
    it is NaN. Found are ``replays``, ``reach``, ``reached`` and ``variants``.
    """
    given, dtype = run.operands, run.case.dtype
    if may_overflow(given.x, given.w, dtype):
        run = _overflow(run, session, orders)
    if given.finite:
        return run
    reach = run.reach or reached_by(session, run.case, given.x, given.w, given.b)
    some, nan = reach.any, np.isnan(floats.widen(given.y, dtype))
    reached = some & nan & ~_nans(orders, given, some & nan)
    known = (orders.index >= 0) | orders.replayed
    replays = np.where(some, nan & known, run.replays)
    return replace(run, reach=reach, reached=reached, replays=replays)


def _nans(orders: Orders, operands: ContainerOperands, which: np.ndarray) -> np.ndarray:
    """Returns where the windows alone make a NaN, of these outputs: bool (positions, filters)."""
    found = np.zeros_like(which)
    for number, summation in enumerate(orders.summations):
        positions, filters = np.nonzero(which & (orders.index == number))
        if len(positions):
            y = operands.replay(summation, positions, filters)
            found[positions, filters] = np.isnan(floats.widen(y, operands.case.dtype))
    return found


def _overflow(run: CaseRun, session: AnySession, orders: Orders) -> CaseRun:
    """Returns a run with outputs replayed with the products rounded first that overflow before they
    are added."""
    replays, variants = run.replays.copy(), dict(run.variants)
    for number, summation in enumerate(orders.summations):
        open_ = (orders.index == number) & ~replays
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
            if not first:
                continue
            variant, some = with_products_rounded(summation, first), np.array(places)
            agreed = some[run.operands.agrees(variant, *some.T)]
            replays[tuple(agreed.T)] = True
            variants |= {(int(p), int(f)): variant for p, f in agreed}
    return replace(run, replays=replays, variants=variants)


MOST = 2048
"""Products of a sum up to which each is asked: a call each."""

WIDE = "float32"
"""The format of the partial sums that are asked about."""


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
    """Returns the summation whose leaves ``first`` are rounded to ``WIDE`` before they are
    added."""
    rounding = replace(summation.rounding, fused=summation.rounding.fused - first)
    if rounding.intermediate_format and rounding.product_format is None:
        rounding = replace(rounding, product_format=WIDE)
    return Summation(summation.tree, rounding)


def may_overflow(x: np.ndarray, w: np.ndarray, dtype: str) -> bool:
    """Returns whether a product of finite operands can be too large for the partial sums."""
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
