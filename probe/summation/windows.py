"""Reveals which input every output reads. Exact: nothing is rounded.

Where there are weights, one of a filter is 1, the others 0, and every input element is a number
that names it: what comes out is the name of the element that this weight meets, 0 where it meets
padding. Filters of one group carry other weights in the same call; numbers too long for the dtype
go in digits. Pooling has no weights, but channels and batch entries are pooled apart: each has one
element set, and the outputs that show it read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe import floats
from probe.case import Case
from probe.errors import NotASum
from probe.launch import AnySession
from probe.summation.masks import SessionOperator
from probe.window import Geometry

# Digits for operators that round: below this base; as far from a whole number as an answer may be.
#
# A Winograd convolution of such digits is off by less than 0.001 in float32.
SMALL, DOUBT = 4, 1 / 16


def reveal_windows(operator: SessionOperator) -> np.ndarray:
    """Flat index into x that each leaf meets, -1 for padding: int32 (groups, positions, leaves).

    ``positions`` are batch entries times output positions; a leaf is a weight's flat index in its
    filter. All filters of a group are taken to read alike, which ``check_filters`` can test.
    Winograd and FFT convolutions round even these sums: they are asked again in digits so small
    that the nearest whole number is beyond doubt. What clips its results is asked in tiny numbers,
    too. NotASum: the answers are no input's number, so the operator reads more than one element
    there, or they depend on how large the inputs are.
    """
    case: Any = operator.case  # a Case: no windows are read off recorded operations
    if case.pool:
        return as_windows(case, reveal_pool(operator.session, case))
    largest = 1 << (floats.FORMATS[case.dtype].precision - 1)
    tiny = 2.0**-13 if case.dtype == "float16" else 2.0**-60
    predicted = as_predicted(case)
    found: list[np.ndarray] = []
    refused: NotASum | None = None
    for base, doubt, scale in ((largest, 0.0, 1.0), (largest, 0.0, tiny), (SMALL, DOUBT, 1.0)):
        try:
            answer = _windows_by_names(operator, base, doubt, scale)
        except NotASum as error:
            refused = error
            continue
        if np.array_equal(answer, predicted):
            return answer
        # What is clipped, or rounded to whole numbers, names inputs of its own making: windows
        # that aren't where the padding puts them take two sizes of numbers that agree.
        if any(np.array_equal(answer, other) for other in found):
            return answer
        found.append(answer)
    if len(found) == 1:  # the others were refused: numbers that round
        return found[0]
    raise refused or NotASum("which input an output shows depends on how large the inputs are")


def as_predicted(case: Case) -> np.ndarray:
    """Returns the windows that the case's padding implies, as ``reveal_windows`` has them."""
    spatial = Geometry.of(case).reads()[None, :, :, None]
    width = case.in_channels // case.groups
    channel = np.arange(case.in_channels).reshape(case.groups, 1, 1, width)
    entry = np.arange(case.batch)[:, None, None, None, None] * math.prod(case.spatial())
    flat = np.where(spatial < 0, -1, (entry + spatial) * case.in_channels + channel)
    return flat.transpose(1, 0, 2, 3, 4).reshape(case.groups, -1, case.summands).astype(np.int32)


def _windows_by_names(
    operator: SessionOperator, base: int, doubt: float, scale: float
) -> np.ndarray:
    """Returns the windows, by names in digits of ``base``, times ``scale``; answers may be off a
    whole number by doubt."""
    case: Any = operator.case  # a Case: no windows are read off recorded operations
    names = np.arange(1, np.prod(case.input_shape()) + 1).reshape(case.input_shape())
    found = np.zeros((case.groups, operator.positions, operator.summands), np.int64)
    weight = 1
    while weight <= names.size:
        found += weight * _digit(operator, names // weight % base, doubt, scale)
        weight *= base
    if found.min() < 0 or found.max() > names.size:
        raise NotASum("a single weight of 1 gives an output that is not an element of the input")
    return (found - 1).astype(np.int32)


def _digit(operator: SessionOperator, digits: np.ndarray, doubt: float, scale: float) -> np.ndarray:
    """Returns one digit of the names that every leaf meets: int64 (groups, positions, leaves)."""
    case: Any = operator.case  # a Case: no windows are read off recorded operations
    width = case.filters // case.groups
    n = operator.summands
    calls = -(-n // width)
    asked = np.full((calls, width), -1)
    asked.reshape(-1)[:n] = np.arange(n)
    leaves = np.tile(asked, (1, case.groups))[:, :, None]
    template = np.zeros(n + int(operator.bias))
    answers = operator.run(digits * scale, template, leaves, np.ones(1)) / scale
    # beyond 2^53 every float64 is whole; NaN and infinities are refused alike
    whole = np.abs(answers) < 2.0**53
    if not whole.all() or (np.abs(answers - np.rint(answers)) > doubt).any():
        raise NotASum(
            "a single weight of 1 gives an output that is not an integer, from integer inputs"
        )
    split = answers.reshape(calls, operator.positions, case.groups, width)
    return (
        split.transpose(2, 1, 0, 3)
        .reshape(case.groups, operator.positions, -1)[:, :, :n]
        .round()
        .astype(np.int64)
    )


@dataclass(frozen=True)
class PoolWindows:
    """What ``reveal_pool`` found for every output position of a channel.

    ``reads``: bool (positions, spatial elements). ``counted``: float64 (positions,), what an
    average divides by, 1 for a maximum. ``pad_with``: ``nothing`` or ``zeros``, see ``Case``;
    empty where no window meets padding, so that nothing can be told.
    """

    reads: np.ndarray
    counted: np.ndarray
    pad_with: str


def reveal_pool(session: AnySession, case: Case) -> PoolWindows:
    """Reads off the windows of a pooling case (its length set): elements / lanes + 2 calls.

    All channels are taken to be pooled alike. NotASum: they are not pooled apart.
    """
    size, lanes = math.prod(case.spatial()), case.batch * case.in_channels
    element = np.arange(-(-size // lanes) * lanes).reshape(-1, lanes)
    # channels and batch entries are pooled apart: each of them tests another element in the same
    # call
    entry, channel = np.divmod(np.arange(lanes), case.in_channels)
    flat = (entry * size + element) * case.in_channels + channel
    answers = _outputs_of_ones(
        session, case, [row[at] for row, at in zip(flat, element < size, strict=True)]
    )
    shown = answers.reshape(len(flat), case.batch, -1, case.in_channels) != 0
    reads = shown.transpose(2, 0, 1, 3).reshape(shown.shape[2], -1)[:, :size]
    alone = np.arange(size) * case.in_channels  # all of the first channel of the first entry
    first, ones = _outputs_of_ones(session, case, [alone, np.arange(size * lanes)])
    mixed = first.reshape(case.batch, -1, case.in_channels)
    if (mixed != 0).sum() != (mixed[0, :, 0] != 0).sum():
        raise NotASum("an element of one channel shows in the outputs of another one")
    mean = floats.widen(ones, case.dtype)[0, ..., 0].reshape(-1)
    if case.pool == "max":
        return PoolWindows(reads, np.ones(len(reads)), _padding_of_max(session, case, reads))
    counted = np.rint(reads.sum(axis=1) / mean)
    pad_with = "nothing" if (counted == reads.sum(axis=1)).all() else "zeros"
    if (reads.sum(axis=1) == math.prod(case.kernel)).all():  # no window meets padding
        pad_with = ""
    return PoolWindows(reads, counted, pad_with)


def _outputs_of_ones(session: AnySession, case: Case, sets: list[np.ndarray]) -> np.ndarray:
    """Outputs for inputs that are 1 at each set of elements and 0 elsewhere: (sets, *output)."""
    arrays = {
        "x": floats.round_to(np.zeros(case.input_shape()), case.dtype),
        "w": floats.round_to(np.ones(case.weight_shape), case.dtype),
        "offsets": np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64),
        "flat": np.concatenate(sets).astype(np.int64),
    }
    arrays["values"] = floats.round_to(np.ones(len(arrays["flat"])), case.dtype)
    header = {"do": "masks", "spec": case.spec(), "mode": "inputs"}
    found = [blocks["outputs"] for _, blocks in session.stream(header, arrays)]
    return np.concatenate(found)


def _padding_of_max(session: AnySession, case: Case, reads: np.ndarray) -> str:
    """A maximum of elements that are all -1 is 0 where padding takes part."""
    if (reads.sum(axis=1) == math.prod(case.kernel)).all():
        return ""
    arrays = {
        "x": floats.round_to(np.full(case.input_shape(), -1.0), case.dtype),
        "w": floats.round_to(np.ones(case.weight_shape), case.dtype),
    }
    _, found = session.request({"do": "run", "spec": case.spec()}, arrays)
    return "zeros" if (floats.widen(found["y"], case.dtype) == 0).any() else "nothing"


def as_windows(case: Case, found: PoolWindows) -> np.ndarray:
    """Returns the flat index into x that each place of a window holds, -1 for padding, as
    ``reveal_windows``.

    int32 (groups, positions, leaves). Places of a window can't be told apart, so what is read
    stands where the case's padding has it; what is read against it stands in the places left.
    """
    predicted = Geometry.of(case).reads()
    spatial = np.full(predicted.shape, -1, np.int64)
    for position, (row, held) in enumerate(zip(predicted, found.reads, strict=False)):
        kept = (row >= 0) & held[row]
        spatial[position, kept] = row[kept]
        others = np.setdiff1d(np.flatnonzero(held), row)
        free = np.flatnonzero(~kept)[: len(others)]
        spatial[position, free] = others[: len(free)]
    size = math.prod(case.spatial())
    entry = np.arange(case.batch)[:, None, None] * size
    channel = np.arange(case.in_channels)[:, None, None, None]
    flat = (entry + spatial) * case.in_channels + channel
    flat = np.where(spatial < 0, -1, flat)
    return flat.reshape(case.in_channels, -1, len(spatial.T)).astype(np.int32)
