"""What infinities, NaN and overflow make of a run's replay.

The replay of finite operands needs to know nothing of them. Where operands are not finite, what
reaches an output from elsewhere is asked; where products overflow, whether they do so before they
are added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.launch import AnySession
from probe.order import overflow
from probe.order.masks import SessionOperator
from probe.order.orders import Operands, Orders
from probe.order.reach import reached_by
from probe.order.summation import Summation

if TYPE_CHECKING:
    from probe.comparison.runs import Run


def settle(run: Run, session: AnySession, orders: Orders) -> None:
    """Replays what a run's orders did not give because of infinities, NaN or overflow.

    An output that an infinity or a NaN gets into without a weight adds 0 times that: it replays if
    it is NaN. Fills in ``replays``, ``reach``, ``reached`` and ``variants``.
    """
    given, dtype = run.operands, run.case.dtype
    if overflow.may_overflow(given.x, given.w, dtype):
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
        if not open_.any() or not overflow.applies(summation, run.case.dtype):
            continue
        here = np.flatnonzero(open_.any(axis=1))
        filters = run.case.filters
        select = (here[:, None] * filters + np.arange(filters)).astype(np.int64)
        found = overflow.overflowing(SessionOperator(session, run.case, select), summation)
        fused = np.array(sorted(summation.rounding.fused))
        answers: dict[bytes, list[tuple[int, int]]] = {}
        for row, position in enumerate(here.tolist()):
            for filter_ in np.flatnonzero(open_[position]).tolist():
                key = found[:, row, filter_].tobytes()
                answers.setdefault(key, []).append((position, filter_))
        for key, places in answers.items():
            first = frozenset(fused[np.frombuffer(key, bool)].tolist())
            if first:
                _try(run, overflow.with_products_rounded(summation, first), np.array(places))


def _try(run: Run, variant: Summation, places: np.ndarray) -> None:
    """Takes a variant for those of the outputs (position, filter) whose bits it gives."""
    agreed = places[run.operands.agrees(variant, *places.T)]
    if len(agreed):
        run.replays[tuple(agreed.T)] = True
        run.variants |= {(int(p), int(f)): variant for p, f in agreed}
