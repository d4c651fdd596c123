"""Whether two sides were given the same operands: else a difference says nothing of a library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.errors import InputError

if TYPE_CHECKING:
    from probe.comparison.judged import Pairs
    from probe.comparison.runs import Run

AT_ONCE = 1 << 22
"""Operands that are compared at once."""


def check_operands(left: Run, right: Run, pairs: Pairs) -> None:
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
    filters = _met(mine[:, 1], theirs[:, 1], left.case.filters, right.case.filters)
    met = [("w", one.weights[:, filters[0]], two.weights[:, filters[1]])]
    if one.b is not None and two.b is not None:
        met.append(("b", one.b[filters[0]], two.b[filters[1]]))
    moved = np.flatnonzero((np.diff(mine[:, 0]) != 0) | (np.diff(theirs[:, 0]) != 0)) + 1
    starts = np.concatenate([[0], moved])  # filters of one place follow each other
    places = np.stack([mine[starts, 0], theirs[starts, 0]], axis=1)
    widths = [side.case.filters // side.case.groups for side in (left, right)]
    ours, others = filters[0] // widths[0], filters[1] // widths[1]
    groups = _met(ours, others, left.case.groups, right.case.groups)
    for first, second in groups.T.tolist():
        ours, others = one.columns[first], two.columns[second]
        step = max(1, AT_ONCE // max(len(ours), 1))
        for start in range(0, len(places), step):
            some = places[start : start + step].T
            met_here = ("x", ours[:, some[0]], others[:, some[1]])
            for name, a, b in (met_here, *met):
                _check_bits(name, a, b, dtype)
            met = []


def _met(mine: np.ndarray, theirs: np.ndarray, count: int, others: int) -> np.ndarray:
    """The pairs of numbers below ``count`` and ``others`` that occur, each once: (2, pairs)."""
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
