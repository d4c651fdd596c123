"""Encloses sums of products: every order, every fusing, every accumulator that is allowed.

Allowed are accumulators in the format of the result or in one of its ``wider`` (of formats
narrower than float64 also any that is wider than float64, or exact), roundings to nearest, and
products that are rounded or enter their addition exactly. Operands are not shortened (TF32,
bfloat16), nothing is flushed.

Up to ``FEW`` summands the ends are attained: rounding is monotone, so the least result of a set of
summands comes from the least results of its two parts, and all ways of parting the set are tried.
Above that a bound holds. With u half the distance of 1 to the next number, each rounding of a
partial sum errs by at most u times its size, and no partial sum is larger than all its positive or
all its negative terms (and the error so far), whatever the order: k additions err by at most
u (A + k M) / (1 - k u), A the sum of sizes and M the larger of both halves. The classical
((1 + u)^k - 1) A is taken where that is less, or where k u nears 1 (Higham, "Accuracy and Stability
of Numerical Algorithms", 2nd edition, section 4.2; Rump, "Error estimation of floating-point
summation and dot product", BIT 52, 2012, for the first form).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probe import floats
from probe.enclosure.enclosure import Enclosure
from probe.summation.arithmetic import Doubles, fma_float64, to_odd, two_product, two_sum
from probe.summation.orders import ContainerOperands


def allowed(dtype: str) -> tuple[str, ...]:
    """Returns the formats of partial sums that are allowed, by that of the result."""
    return (dtype, *floats.FORMATS[dtype].wider)


FEW = 7
"""Summands up to which all orders are tried: 966 ways of parting their sets in two."""

AT_ONCE = 1 << 21
"""Products that are worked on at once: arrays of 16 MiB."""

TWICE = 1 + 2.0**-10
"""A rounding by way of a wider format errs by this much more: at most 2**-11 of the first error
(float64 by way of 64 bits, x87's), and less for all pairs of formats."""


@np.errstate(all="ignore")
def of_sums(x: np.ndarray, w: np.ndarray, dtype: str, bias: np.ndarray | None = None) -> Enclosure:
    """Returns the enclosure of ``sum(x * w, axis=0) + bias``, of each output.

    ``x``, ``w``: container arrays (summands, outputs), either may have 1 output; ``bias``:
    container (outputs,), None: there is none. ``dtype``: of operands and results.
    """
    count = max(x.shape[1], w.shape[1])
    step, parts = max(1, AT_ONCE // max(1, len(x))), []
    for start in range(0, max(count, 1), step):
        some = slice(start, start + step)
        one, two = (floats.widen(a[:, some] if a.shape[1] > 1 else a, dtype) for a in (x, w))
        one, two = np.broadcast_arrays(one, two)
        added = None if bias is None else floats.widen(bias[some], dtype)
        parts.append(_enclosed(one, two, added, dtype))
    return Enclosure.joined(parts)


def of_operands(
    given: ContainerOperands, positions: np.ndarray, filters: np.ndarray
) -> Enclosure | None:
    """Returns the enclosure of a case's outputs (position, filter), in their order.

    None where the sum is not the output: of pools, and where something is computed behind it.
    """
    case = given.case
    if case.pool or given.behind is not None:
        return None
    group = filters // (case.filters // case.groups)
    order = np.argsort(group, kind="stable")
    parts = []
    for number in np.unique(group):
        some = order[group[order] == number]
        if (made := _of_product(given, int(number), positions[some], filters[some])) is not None:
            parts.append(made)
            continue
        x, w = given.columns[number][:, positions[some]], given.weights[:, filters[some]]
        if given.padded is not None:  # an infinite weight that meets padding adds nothing
            w = np.where(given.padded[:, positions[some]], w.dtype.type(0), w)
        parts.append(of_sums(x, w, case.dtype, None if given.b is None else given.b[filters[some]]))
    return Enclosure.joined(parts).at(np.argsort(order, kind="stable"))


def _of_product(
    given: ContainerOperands, group: int, positions: np.ndarray, filters: np.ndarray
) -> Enclosure | None:
    """Returns the same of finite sums of many products by two matrix products, which cost a
    fraction of listing every product of every output; None where that can't be."""
    case = given.case
    rows, row = np.unique(positions, return_inverse=True)
    columns, column = np.unique(filters, return_inverse=True)
    grid = len(rows) * len(columns) <= 4 * len(positions)
    if case.dtype == "float64" or given.padded is not None or not grid:
        return None
    x = floats.widen(given.columns[group][:, rows], case.dtype)
    w = floats.widen(given.weights[:, columns], case.dtype)
    summands = len(x) + (given.b is not None)
    tiny = floats.flushed_below(case.dtype)
    subnormal = any(((one != 0) & (np.abs(one) < tiny)).any() for one in (x, w))
    sizes, exact = (part[row, column] for part in (np.abs(x).T @ np.abs(w), x.T @ w))
    if given.b is not None:
        added = floats.widen(given.b[filters], case.dtype)
        sizes, exact = sizes + np.abs(added), exact + added
    if summands <= FEW or subnormal or not np.isfinite(sizes).all():
        return None
    up, down = (sizes + exact) / 2, (sizes - exact) / 2
    low, high, overflow = _ends_by_bound(exact, up, down, summands, case.dtype)
    flushed = np.full(len(exact), 2 * (summands + 1) * tiny)
    return Enclosure(case.dtype, low, high, exact, overflow, np.zeros(len(exact)), flushed, sizes)


def _ends_by_bound(
    exact: Doubles, up: Doubles, down: Doubles, summands: int, dtype: str
) -> tuple[Doubles, Doubles, np.ndarray]:
    """Returns both ends, and where some order may overflow. ``up``, ``down``: the sums of positive
    and of negative products."""
    # the sums are rounded themselves: made larger by more than that
    slack = 1 + (summands + 2) * 2.0**-52
    sizes, most = (up + down) * slack, np.maximum(up, down) * slack
    error = error_bound(sizes, most, summands, dtype) + 2.0**-53 * np.abs(exact)
    if dtype != "float64":
        error = error + summands * 2.0**-51 * sizes
    overflow = ~(sizes + error < floats.largest_finite(dtype))
    low, high = (
        _rounded_inwards(exact - error, dtype, up=True),
        _rounded_inwards(exact + error, dtype, up=False),
    )
    rounded = floats.nearest(exact, dtype)
    return np.minimum(low, rounded), np.maximum(high, rounded), overflow


def _enclosed(x: Doubles, w: Doubles, bias: Doubles | None, dtype: str) -> Enclosure:
    terms = [*x * w, *([] if bias is None else [bias])]
    count = x.shape[1]
    products = np.stack(terms) if terms else np.zeros((1, count))
    summands = len(products)
    whole = np.isfinite(products).all(axis=0) & np.isfinite(x).all(axis=0)
    whole &= np.isfinite(w).all(axis=0)
    finite = np.where(np.isfinite(products), products, 0.0)
    up = np.where(finite > 0, finite, 0.0).sum(axis=0)
    down = -np.where(finite < 0, finite, 0.0).sum(axis=0)
    exact = _total(x, w, bias, finite, dtype)
    low, high, overflow = _ends_by_bound(exact, up, down, summands, dtype)
    if summands <= FEW:
        rounded = floats.nearest(exact, dtype)
        low, high = _of_few(x, w, bias, dtype)
        low, high = np.minimum(low, rounded), np.maximum(high, rounded)
    # a product of finite numbers that is too large for float64 was left out above: rounded it is
    # infinite, and fused into an addition it need not be
    ours = np.isfinite(x) & np.isfinite(w)
    lost = (ours & ~np.isfinite(products[: len(x)])).any(axis=0)
    low, high = np.where(lost, -np.inf, low), np.where(lost, np.inf, high)
    exact = np.where(lost, np.nan, exact)
    sure = np.where(whole, 0.0, _nonfinite_result(x, w, bias))
    tiny = floats.flushed_below(dtype)
    small = ((np.abs(x) < tiny) | (np.abs(w) < tiny)) & np.isfinite(finite[: len(x)])
    flushed = np.where(small, np.abs(finite[: len(x)]), 0).sum(axis=0) + 2 * (summands + 1) * tiny
    return Enclosure(dtype, low, high, exact, overflow | lost, sure, flushed, up + down)


def error_bound(sizes: Doubles, most: Doubles, count: int, dtype: str) -> Doubles:
    """Returns by how much a sum of ``count`` products can err in any order.

    ``sizes``: the sum of the products' magnitudes; ``most``: the larger of the sum of all positive
    and the sum of all negative ones. Includes the rounding of the products, products that
    underflow, and a conversion of the sum to ``dtype``.
    """
    form = floats.format_of(dtype)
    unit, smallest = 2.0**-form.precision * TWICE, 2.0 ** (form.emin - form.precision + 1)
    steps = count + 1  # a rounding more where the sum is converted to the result's format
    found = np.expm1((steps + 1) * np.log1p(unit)) * sizes
    if steps * unit < 0.5:
        found = np.minimum(found, unit * (sizes + steps * most) / (1 - steps * unit))
    return np.asarray(found * (1 + 2.0**-40) + steps * smallest)


def _total(
    x: Doubles, w: Doubles, bias: Doubles | None, products: Doubles, dtype: str
) -> np.ndarray:
    """Returns the exact sums, rounded to float64 or nearly so: the error is less than one rounding
    and, of formats whose products are exact in float64, one more an addition."""
    if dtype != "float64":
        return np.asarray(products.sum(axis=0))
    # a sum in twice the precision (Ogita, Rump, Oishi, "Accurate sum and dot product", 2005)
    total, rest = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for one, two in zip(x, w, strict=True):
        high, low = two_product(one, two)
        total, error = two_sum(total, high)
        rest += error + low
    if bias is not None:
        total, error = two_sum(total, bias)
        rest += error
    found = total + rest
    return np.where(np.isfinite(found), found, products.sum(axis=0))


def _nonfinite_result(x: Doubles, w: Doubles, bias: Doubles | None) -> np.ndarray:
    """Returns NaN or the infinity that operands which are not finite lead to in every order."""
    products = x * w
    terms = products if bias is None else np.concatenate([products, bias[None]])
    # a product of finite numbers that is too large for float64 is no infinite operand
    given = np.isinf(x) | np.isinf(w)
    if bias is not None:
        given = np.concatenate([given, np.isinf(bias)[None]])
    terms = np.where(np.isinf(terms) & ~given, 0.0, terms)
    nan = np.isnan(terms).any(axis=0)
    up, down = (terms == np.inf).any(axis=0), (terms == -np.inf).any(axis=0)
    found = np.where(up, np.inf, np.where(down, -np.inf, 0.0))
    return np.where(nan | (up & down), np.nan, found)


def _rounded_inwards(values: Doubles, dtype: str, up: bool) -> Doubles:
    """Returns the nearest number of the format that is not below (``up``) or above each value."""
    near = floats.nearest(values, dtype)
    if dtype == "float64":
        return near
    wrong = near < values if up else near > values
    form = floats.format_of(dtype)
    _, power = np.frexp(values)
    gap = np.ldexp(1.0, np.maximum(power - form.precision, form.emin - form.precision + 1))
    moved = floats.nearest(near + (gap if up else -gap), dtype)
    return np.where(wrong, moved, near)


def _splits(members: int) -> Iterator[tuple[int, int]]:
    """Yields the ways of parting a set (bits) in two; the lowest member is in the first part."""
    lowest = members & -members
    rest = members ^ lowest
    part = rest
    while part:
        part = (part - 1) & rest
        yield part | lowest, rest ^ part


def _of_few(
    x: Doubles, w: Doubles, bias: Doubles | None, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least and the largest result over all orders, fusings and formats."""
    formats, leaves = allowed(dtype), len(x)
    every = leaves + (bias is not None)
    ends: list[np.ndarray] = []
    for least in (True, False):
        pick = np.minimum if least else np.maximum
        best: dict[int, Doubles] = {}
        for leaf in range(every):
            exact = x[leaf] * w[leaf] if leaf < leaves else np.asarray(bias)
            found = exact  # of float64 rounded; where it enters an addition exactly, see below
            for name in formats if leaf < leaves else ():
                found = pick(found, floats.nearest(exact, name))
            best[1 << leaf] = found
        for members in range(1, 1 << every):
            if members in best:
                continue
            found = None
            for first, second in _splits(members):
                for value in _extreme_sums(best, first, second, x, w, formats, least):
                    found = value if found is None else pick(found, value)
            assert found is not None
            best[members] = found
        ends.append(floats.nearest(best[(1 << every) - 1], dtype))
    return ends[0], ends[1]


def _extreme_sums(
    best: dict[int, Doubles],
    first: int,
    second: int,
    x: Doubles,
    w: Doubles,
    formats: tuple[str, ...],
    least: bool,
) -> Iterator[Doubles]:
    """Yields the least or largest sum of two parts in each format, and in float64 with a product
    that is fused."""
    one, two = best[first], best[second]
    total, error = two_sum(one, two)
    odd = to_odd(total, error)
    for name in formats[:-1]:
        yield floats.nearest(odd, name)
    if formats != ("float64",):
        # rounded outwards: then no exact sum of several terms, and none of 64 bits, lies outside
        outside = (error < 0) if least else (error > 0)
        yield np.where(outside, np.nextafter(total, -np.inf if least else np.inf), total)
    else:
        yield total
        for part, other in ((first, two), (second, one)):
            leaf = part.bit_length() - 1
            if part == 1 << leaf and leaf < len(x):
                yield fma_float64(x[leaf], w[leaf], other)
