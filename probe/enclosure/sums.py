"""Encloses sums of products: every order, every fusing, every accumulator that is allowed.

Allowed are accumulators in the format of the result or in one of its ``wider`` (of formats
narrower than float64 also any that is wider than float64, or exact), roundings to nearest, and
products that are rounded or enter their addition exactly. Operands are not shortened (TF32,
bfloat16), nothing is flushed.

Up to ``FEW`` summands the ends are attained (:mod:`probe.enclosure.few`). Above that a bound holds.
With u half the distance of 1 to the next number, each rounding of a partial sum errs by at most u
times its size, and no partial sum is larger than all its positive or all its negative terms (and
the error so far), whatever the order: k additions err by at most u (A + k M) / (1 - k u), A the sum
of sizes and M the larger of both halves. The classical ((1 + u)^k - 1) A is taken where that is
less, or where k u nears 1 (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition,
section 4.2; Rump, "Error estimation of floating-point summation and dot product", BIT 52, 2012, for
the first form).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from probe import floats
from probe.enclosure.enclosure import Enclosure
from probe.enclosure.few import FEW, FewSummands
from probe.summation.arithmetic import Doubles, two_product, two_sum
from probe.summation.orders import ContainerOperands

# Products that are worked on at once: arrays of 16 MiB.
AT_ONCE = 1 << 21

# A rounding by way of a wider format errs by this much more: at most 2**-11 of the first error
# (float64 by way of 64 bits, x87's), and less for all pairs of formats.
TWICE = 1 + 2.0**-10


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
        held = [a[:, some] if a.shape[1] > 1 else a for a in (x, w)]
        one, two = np.broadcast_arrays(*(floats.widen(a, dtype) for a in held))
        added = None if bias is None else bias[some]
        found = _enclosed(one, two, None if added is None else floats.widen(added, dtype), dtype)
        if len(x) and len(x) + (bias is not None) <= FEW:
            numbers = np.arange(one.shape[1])
            row, column = (numbers if a.shape[1] > 1 else 0 * numbers for a in held)
            found = replace(found, few=FewSummands(dtype, held[0], held[1], added, row, column))
        parts.append(found)
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
    order, parts = (
        np.argsort(group, kind="stable") if case.groups > 1 else np.arange(len(group)),
        [],
    )
    for number in np.unique(group) if case.groups > 1 else [0]:
        some = order[group[order] == number]
        if (made := _of_product(given, int(number), positions[some], filters[some])) is not None:
            parts.append(made)
            continue
        x, w = given.columns[number][:, positions[some]], given.weights[:, filters[some]]
        if given.padded is not None:  # an infinite weight that meets padding adds nothing
            w = np.where(given.padded[:, positions[some]], w.dtype.type(0), w)
        parts.append(of_sums(x, w, case.dtype, None if given.b is None else given.b[filters[some]]))
    found = Enclosure.joined(parts)
    return found.at(np.argsort(order, kind="stable")) if case.groups > 1 else found


def _of_product(
    given: ContainerOperands, group: int, positions: np.ndarray, filters: np.ndarray
) -> Enclosure | None:
    """Returns the same of finite sums by matrix products, which cost a fraction of listing every
    product of every output; None where that can't be."""
    case = given.case
    rows, row = _numbered(positions)
    columns, column = _numbered(filters)
    if given.padded is not None or len(rows) * len(columns) > 4 * len(positions):
        return None
    held = given.columns[group][:, rows], given.weights[:, columns]
    x, w = (floats.widen(one, case.dtype) for one in held)
    bias = None if given.b is None else given.b[filters]
    added = np.zeros(len(filters)) if bias is None else floats.widen(bias, case.dtype)
    summands = len(x) + (bias is not None)
    tiny = floats.flushed_below(case.dtype)
    subnormal = any(((one != 0) & (np.abs(one) < tiny)).any() for one in (x, w))
    sizes = (np.abs(x).T @ np.abs(w))[row, column] + np.abs(added)
    if subnormal or not np.isfinite(sizes).all():
        return None
    if case.dtype == "float64":
        total = _exact_products(x, w)
        if total is None:
            return None
        exact, error = two_sum(total[0][row, column], added)
        exact = exact + (error + total[1][row, column])
    else:
        exact = (x.T @ w)[row, column] + added
    up, down = (sizes + exact) / 2, (sizes - exact) / 2
    low, high, overflow = _ends_by_bound(exact, up, down, summands, case.dtype)
    flushed = np.full(len(exact), 2 * (summands + 1) * tiny)
    few = FewSummands(case.dtype, *held, bias, row, column) if summands <= FEW else None
    nothing = np.zeros(len(exact))
    return Enclosure(case.dtype, low, high, exact, overflow, nothing, flushed, sizes, few)


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct indices, ascending, and the number of each value's: np.unique sorts."""
    there = np.zeros(values.max(initial=-1) + 1, bool)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


# Parts of an operand at the most: with more, listing all products costs no more.
SLICES = 6


def _exact_products(x: Doubles, w: Doubles) -> tuple[Doubles, Doubles] | None:
    """Returns x.T @ w in twice float64's precision, a number and what is left over; None where the
    operands span too many binary digits.

    Both are cut into parts of so few digits that the products of two parts, and all their sums, are
    exact in float64 in any order, so that BLAS may add them (Ozaki, Ogita, Oishi, Rump, "Error-free
    transformations of matrix multiplication by using fast routines of matrix multiplication and
    its applications", Numerical Algorithms 59, 2012).
    """
    # two parts of ``digits`` and the sum over all rows: 53 binary digits together
    digits = (53 - math.ceil(math.log2(max(len(x), 2)))) // 2
    both = [_parts(one, digits) for one in (x, w)]
    if any(one is None for one in both):
        return None
    total, rest = np.zeros((2, x.shape[1], w.shape[1]))
    weights = np.concatenate([w[:, :0], *(both[1] or ())], axis=1)
    for one in both[0] or ():
        products = one.T @ weights  # with all parts of the weights: BLAS likes them wide
        for start in range(0, weights.shape[1], w.shape[1]):
            total, error = two_sum(total, products[:, start : start + w.shape[1]])
            rest += error
    return total, rest


def _parts(values: Doubles, digits: int) -> list[Doubles] | None:
    """Returns parts that add up to the values exactly, each a multiple of a power of two of its
    column that is 2**digits times smaller than the largest number there; None where many are
    needed, or where products of parts could underflow or overflow."""
    _, power = np.frexp(np.abs(values).max(axis=0))
    if np.abs(power).max(initial=0) > 200 or len(values) == 0:
        return None
    found: list[Doubles] = []
    while values.any():
        if len(found) == SLICES:
            return None
        power = power - digits
        # adding and taking away 1.5 times so much rounds to a multiple of 2**power
        large = np.ldexp(1.5, power + 52)
        part = (values + large) - large
        found.append(part)
        values = values - part
    return found


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
    # a product of finite numbers that is too large for float64 was left out above: rounded it is
    # infinite, and fused into an addition it need not be
    ours = np.isfinite(x) & np.isfinite(w)
    lost = (ours & ~np.isfinite(products[: len(x)])).any(axis=0)
    low, high = np.where(lost, -np.inf, low), np.where(lost, np.inf, high)
    exact = np.where(lost, np.nan, exact)
    # NaN or the infinity that operands which are not finite lead to in every order; a product of
    # finite numbers that is too large for float64 is no infinite operand
    given = np.concatenate([np.isinf(x) | np.isinf(w), np.isinf(products[len(x) :])])
    settled = np.where(np.isinf(products) & ~given, 0.0, products)
    plus, minus = (settled == np.inf).any(axis=0), (settled == -np.inf).any(axis=0)
    nan = np.isnan(settled).any(axis=0) | (plus & minus)
    sure = np.where(plus, np.inf, np.where(minus, -np.inf, 0.0))
    sure = np.where(whole, 0.0, np.where(nan, np.nan, sure))
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


def _rounded_inwards(values: Doubles, dtype: str, up: bool) -> Doubles:
    """Returns the nearest number of the format that is not below (``up``) or above each value."""
    near = floats.nearest(values, dtype)
    if dtype == "float64":
        return near
    wrong = near < values if up else near > values
    if dtype == "float32":  # the same in a third of the time
        toward = np.float32(np.inf if up else -np.inf)
        return np.where(wrong, np.nextafter(near.astype(np.float32), toward), near)
    form = floats.format_of(dtype)
    _, power = np.frexp(values)
    gap = np.ldexp(1.0, np.maximum(power - form.precision, form.emin - form.precision + 1))
    moved = floats.nearest(near + (gap if up else -gap), dtype)
    return np.where(wrong, moved, near)
