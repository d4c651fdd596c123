"""Which input every output reads with which weight, read off the operator. Exact: nothing rounds.

One weight of a filter is 1, the others 0, and every input element is a number that names it: what
comes out is the name of the element that this weight meets, 0 where it meets padding. Filters of
one group carry other weights in the same call; numbers too long for the dtype go in digits. Pooling
has no weights: see :mod:`probe.order.pools`.
"""

from __future__ import annotations

import numpy as np

from probe import floats
from probe.errors import NotASum
from probe.order import pools
from probe.order.operator import SessionOperator

SMALL, DOUBT = 4, 1 / 16
"""Digits for operators that round: below this base; as far from a whole number as an answer may be.

A Winograd convolution of such digits is off by less than 0.001 in float32.
"""


def reveal_windows(operator: SessionOperator) -> np.ndarray:
    """Flat index into x that each leaf meets, -1 for padding: int32 (groups, positions, leaves).

    ``positions`` are batch entries times output positions; a leaf is a weight's flat index in its
    filter. All filters of a group are taken to read alike, which ``check_filters`` can test.
    Winograd and FFT convolutions round even these sums: they are asked again in digits so small
    that the nearest whole number is beyond doubt. NotASum: the answers are no input's number, so
    the operator reads more than one element there.
    """
    case = operator.case
    if case.pool:
        return pools.as_windows(case, pools.reveal_pool(operator.session, case))
    try:
        return _named(operator, 1 << (floats.FORMATS[case.dtype].precision - 1), 0.0)
    except NotASum:
        return _named(operator, SMALL, DOUBT)


def _named(operator: SessionOperator, base: int, doubt: float) -> np.ndarray:
    """The windows, by names in digits of ``base``; answers may be off a whole number by doubt."""
    case = operator.case
    names = np.arange(1, np.prod(case.input_shape()) + 1).reshape(case.input_shape())
    found = np.zeros((case.groups, operator.positions, operator.summands), np.int64)
    weight = 1
    while weight <= names.size:
        found += weight * _digit(operator, names // weight % base, doubt)
        weight *= base
    if found.min() < 0 or found.max() > names.size:
        raise NotASum("a single weight of 1 gives an output that is no element of the input")
    return (found - 1).astype(np.int32)


def _digit(operator: SessionOperator, digits: np.ndarray, doubt: float) -> np.ndarray:
    """One digit of the names that every leaf meets: int64 (groups, positions, leaves)."""
    case = operator.case
    width = case.filters // case.groups
    n = operator.summands
    calls = -(-n // width)
    asked = np.full((calls, width), -1)
    asked.reshape(-1)[:n] = np.arange(n)
    leaves = np.tile(asked, (1, case.groups))[:, :, None]
    template = np.zeros(n + int(operator.bias))
    answers = operator.run(digits.astype(np.float64), template, leaves, np.ones(1))
    if not (np.abs(answers - np.rint(answers)) <= doubt).all():
        raise NotASum("a single weight of 1 gives an output that is no integer, from integers")
    split = answers.reshape(calls, operator.positions, case.groups, width)
    return (
        split.transpose(2, 1, 0, 3)
        .reshape(case.groups, operator.positions, -1)[:, :, :n]
        .round()
        .astype(np.int64)
    )
