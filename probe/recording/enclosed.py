"""Whether rounding can be why two runs of an operation differ: both sides' results are held against
all that its semantics and its operands allow (:mod:`probe.enclosure`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from probe import floats
from probe.enclosure import BEYOND, UNKNOWN, WITHIN, Rounding, of_operands
from probe.enclosure.operations import Interval, enclosed
from probe.errors import InputError
from probe.order.orders import Operands
from probe.recording.alone import Alone, unequal
from probe.semantics import Each

MOST = 1 << 27
"""Products, or elements times 8, that are worked on for a side; what is beyond that is unknown."""


def rounding(sides: Sequence[Alone], proved: np.ndarray, counted: int) -> Rounding:
    """Returns the differing outputs of an operation by what is proved of them.

    ``proved``: bool, an output each: both sides' bits come out again in NumPy. ``counted``: how
    many have another cause that the library itself shows, such as the place in a vector: that
    explains why the sides differ, and not that both are right, so what is beyond rounding comes
    first.
    """
    dtype = sides[0].value.dtype
    apart = np.flatnonzero(unequal(sides[0].outputs, sides[1].outputs, dtype))
    known = proved[apart]
    open_ = apart[~known]
    verdicts, near = np.full((2, len(open_)), UNKNOWN), np.zeros(len(open_), bool)
    for number, one in enumerate(sides if len(open_) else ()):
        verdicts[number], flush = judged(one, open_)
        near |= flush
    found = Rounding.of(np.zeros(len(open_), bool), verdicts[0], verdicts[1], near)
    more = min(counted, len(open_) - found.beyond)
    unknown = max(0, found.unknown - more)  # which of the rest were counted is not known
    within = len(open_) - found.beyond - more - unknown
    explained = int(known.sum()) + more
    return replace(found, explained=explained, within=within, unknown=unknown)


def judged(one: Alone, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what can be said of a side's outputs, by number, and where flushing may be why.

    As ``Enclosure.judged``; all unknown where no enclosure of the operation is known.
    """
    nothing = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
    dtype = one.value.dtype
    if dtype not in floats.FORMATS or one.output:
        return nothing
    try:
        return _of_sums(one, some)
    except InputError:
        pass
    shapes = [one.side.recording.values[n].shape for n in one.operation.gives]
    if 8 * max(prod(array.shape) for array in (*one.reads, *one.gives)) > MOST:
        return nothing
    given = [
        Interval.of(array, kind) for array, kind in zip(one.reads, one.dtypes[:-1], strict=True)
    ]
    found = enclosed(one.operation.meaning, given, shapes, dtype)
    if found is None:
        return nothing
    return _inside(Interval(*(one.taken(end)[some] for end in found)), one.outputs[some], dtype)


def _inside(found: Interval, values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    y = floats.widen(values, dtype)
    with np.errstate(invalid="ignore"):
        inside = (found.low <= y) & (y <= found.high)
    finite = np.isfinite(y) & np.isfinite(found.low) & np.isfinite(found.high)
    verdict = np.where(finite, np.where(inside, WITHIN, BEYOND), UNKNOWN)
    return verdict, np.zeros(len(y), bool)


def _of_sums(one: Alone, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of sums of products, and of what is computed behind them. InputError: it is none."""
    asked, dtype = one.asked, one.value.dtype
    if asked.divides or asked.pooled:
        raise InputError("operation", one.operation.op, "a pool is no plain sum", "")
    first = some[: max(1, MOST // max(1, asked.summands))]
    verdict, flush = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
    places = asked.places(one.index[first])
    given = Operands(asked, *asked.of(one.reads), np.zeros(1))  # type: ignore[arg-type]
    found = of_operands(given, *places.T)
    if found is None:
        return verdict, flush
    values = one.outputs[first]
    if not asked.functions:
        # a mean of 2^n numbers: its sums are exactly that much larger
        sums = floats.round_to(floats.widen(values, dtype) * asked.scale, dtype)
        verdict[: len(first)], flush[: len(first)] = found.judged(sums)
        return verdict, flush
    if found.sure.any() or found.overflow.any():
        return verdict, flush
    behind = Interval(found.low, found.high)
    for word, numbers in asked.functions:
        reads = [behind]
        if word == "add":
            more = asked.filled(one.reads[numbers[0]], numbers[0])[tuple(places.T)]
            reads.append(Interval.of(more, dtype))
        each = Each(word, numbers=() if word == "add" else numbers)
        made = enclosed(each, reads, [behind.shape], dtype)
        if made is None:
            return verdict, flush
        behind = made
    verdict[: len(first)], flush[: len(first)] = _inside(behind, values, dtype)
    return verdict, flush
