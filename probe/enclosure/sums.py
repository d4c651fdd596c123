"""Encloses sums of products: every order, every fusing, every accumulator that is allowed.

Allowed are accumulators in the format of the result or in one of its ``wider`` (of formats
narrower than float64 also any that is wider than float64, or exact), roundings to nearest, and
products that are rounded or enter their addition exactly. Operands are not shortened (TF32,
bfloat16), nothing is flushed.

With u half the distance of 1 to the next number, each rounding of a
partial sum errs by at most u times its size, and no partial sum is larger than all its positive or
all its negative terms (and the error so far), whatever the order: k additions err by at most
u (A + k M) / (1 - k u), A the sum of sizes and M the larger of both halves. The classical
((1 + u)^k - 1) A is taken where that is less, or where k u nears 1 (Higham, "Accuracy and
Stability of Numerical Algorithms", 2nd edition, section 4.2; Rump, "Error estimation of
floating-point summation and dot product", BIT 52, 2012, for the first form).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from probe import floats
from probe.summation.arithmetic import Doubles, two_product, two_sum
from probe.summation.orders import ContainerOperands

# What can be said of a result: that no order is excluded, that all are, or neither.
WITHIN, BEYOND, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class RoundingVerdict:
    """Counts of differing outputs: whether rounding can be why they differ.

    ``explained``: a replay gives the bits of both sides. ``within``: both lie inside the enclosure,
    so that no order is excluded. ``beyond``: no order, no fusing and none of the allowed formats
    gives the result of ``left`` or ``right``, counts of the sides. ``unknown``: none of these is
    known. ``flush``: of the unknown, those that subnormal numbers taken for zeros could explain.
    """

    explained: int = 0
    within: int = 0
    beyond: int = 0
    unknown: int = 0
    left: int = 0
    right: int = 0
    flush: int = 0

    def __add__(self, other: RoundingVerdict) -> RoundingVerdict:
        names = [field.name for field in fields(self)]
        return RoundingVerdict(*(getattr(self, name) + getattr(other, name) for name in names))

    @classmethod
    def of(
        cls, explained: np.ndarray, left: np.ndarray, right: np.ndarray, flush: np.ndarray
    ) -> RoundingVerdict:
        """Counts outputs. ``explained``, ``flush``: bool, one an output; ``left``, ``right``: what
        is said of each side, as ``Enclosure.judged`` gives it."""
        out = (left == BEYOND) | (right == BEYOND)
        known = (left == WITHIN) & (right == WITHIN)
        rest = ~explained
        return cls(
            int(explained.sum()),
            int((rest & known).sum()),
            int((rest & out).sum()),
            int((rest & ~out & ~known).sum()),
            int((rest & (left == BEYOND)).sum()),
            int((rest & (right == BEYOND)).sum()),
            int((rest & ~out & ~known & flush).sum()),
        )

    @property
    def total(self) -> int:
        return self.explained + self.within + self.beyond + self.unknown

    def to_json(self) -> dict[str, object]:
        """Returns the counts as ``rounding`` of the commands' JSON has them."""
        counts: dict[str, object] = {
            name: getattr(self, name) for name in ("explained", "within", "beyond", "unknown")
        }
        if self.beyond:
            counts["beyond_on"] = {"left": self.left, "right": self.right}
        return counts | ({"flush": self.flush} if self.flush else {})

    @property
    def words(self) -> str:
        """Returns what is beyond rounding in words; empty if nothing is."""
        if not self.beyond:
            return ""
        both = (("left", self.left), ("right", self.right))
        on = " and ".join(f"the {name} ({count:,})" for name, count in both if count)
        return f"beyond rounding: {self.beyond:,} (no order of additions gives the result on {on})"


@dataclass(frozen=True)
class Enclosure:
    """Encloses outputs one by one; all arrays are float64 of one shape, one element an output.

    ``low``, ``high``: every finite result lies between them. ``exact``: the exact result,
    rounded. ``overflow``: whether some order may overflow, which gives an infinity or NaN.
    ``sure``: NaN or an infinity where the operands settle that the result is this one; 0 where they
    don't. ``flushed``: what subnormal operands and results that become zero may add to the
    distance. ``sizes``: the sum of magnitudes of the products. ``lacking``: what ``exact`` lacks to
    the exact result, in the smallest subnormal numbers: a float64 one was rounded by up to a half,
    and 2.4 units were said to be 2.
    """

    dtype: str
    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray
    overflow: np.ndarray
    sure: np.ndarray
    flushed: np.ndarray
    sizes: np.ndarray
    lacking: np.ndarray

    @property
    def radius(self) -> np.ndarray:
        """Returns the larger distance of both ends from the exact result."""
        return np.maximum(self.high - self.exact, self.exact - self.low)

    def judged(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns what can be said of results (container), and whether flushing could give them.

        ``WITHIN``, ``BEYOND`` or ``UNKNOWN``; bool where a result is unknown because of flushing.
        """
        y = floats.widen(values, self.dtype)
        finite = np.isfinite(y)
        low, high = self.low, self.high
        with np.errstate(invalid="ignore"):
            inside = (low <= y) & (y <= high)
            if (inside & finite).all() and not self.sure.any():
                # the usual case: the rest costs as much as a replay of a short sum
                return np.full(y.shape, WITHIN), np.zeros(y.shape, bool)
            near = (low - self.flushed <= y) & (y <= high + self.flushed)
            same = (np.isnan(y) & np.isnan(self.sure)) | (y == self.sure)
        settled = self.sure != 0
        inside = np.where(settled, same, np.where(finite, inside, self.overflow))
        flush = ~settled & finite & ~inside & near
        # an infinity among the operands may meet one that an order's overflow makes on its way
        open_ = flush | (settled & ~same & self.overflow)
        return np.where(inside, WITHIN, np.where(open_, UNKNOWN, BEYOND)), flush

    @property
    def condition(self) -> np.ndarray:
        """Returns the condition number of each sum, sum |x w| / |sum x w|: by how much relative
        errors of the products may grow. Infinite where the exact sum is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.sizes / np.abs(self.exact)

    def ulps(self, values: np.ndarray) -> np.ndarray:
        """Returns how far results are from the exact ones, in units in the last place of these; NaN
        where there is no number."""
        y, form = floats.widen(values, self.dtype), floats.format_of(self.dtype)
        _, power = np.frexp(self.exact)
        unit = np.ldexp(1.0, np.maximum(power - form.precision, form.emin - form.precision + 1))
        unit = np.where(self.lacking == 0, unit, 2.0**-1074)
        with np.errstate(invalid="ignore"):
            units = np.abs((y - self.exact) / unit - self.lacking)
        return np.where(np.isfinite(y) & (self.sure == 0), units, np.nan)

    def distance(self, values: np.ndarray) -> np.ndarray:
        """Returns how far results are from the exact ones, in units of ``radius``; NaN where there
        is no number."""
        y = floats.widen(values, self.dtype)
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.abs(y - self.exact)
            radii = np.where(apart == 0, 0.0, apart / self.radius)
        return np.where(np.isfinite(y) & (self.sure == 0), radii, np.nan)

    @classmethod
    def joined(cls, parts: Sequence[Enclosure]) -> Enclosure:
        """Returns several enclosures as one, behind each other."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, Any]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
        return cls(parts[0].dtype, **arrays)

    def at(self, index: np.ndarray) -> Enclosure:
        """Returns those of some outputs, by number."""
        return replace(self, **{name: getattr(self, name)[index] for name in _ARRAYS})


_ARRAYS = ("low", "high", "exact", "overflow", "sure", "flushed", "sizes", "lacking")


@dataclass(frozen=True)
class Accuracy:
    """How far both sides' results are from the exact ones: arrays of one element an output, NaN
    where there is no number.

    ``ulps``, ``bounds``: of the left and of the right side, in units in the last place of the exact
    result, and in units of what rounding can do at the most (``Enclosure.radius``). ``sums``: the
    enclosure of the exact sums.
    """

    ulps: tuple[np.ndarray, np.ndarray]
    bounds: tuple[np.ndarray, np.ndarray]
    sums: Enclosure

    @classmethod
    def of(cls, sums: Enclosure, left: np.ndarray, right: np.ndarray) -> Accuracy:
        """Holds both sides' results (container) against the exact sums of the same products."""
        ulps, bounds = ((way(left), way(right)) for way in (sums.ulps, sums.distance))
        return cls(ulps, bounds, sums)

    def columns(self) -> dict[str, np.ndarray]:
        """Returns columns of the table ``accuracies``; NaN where there is no number."""
        sums = self.sums
        known = np.isfinite(sums.exact) & (sums.sure == 0)
        columns = {
            "exact": sums.exact,
            "sizes": sums.sizes,
            "condition": sums.condition,
            "bound": sums.radius,
        }
        columns |= {"error_at": self.ulps[0], "error_against": self.ulps[1]}
        columns |= {"used_at": self.bounds[0], "used_against": self.bounds[1]}
        return {
            name: np.where(known & np.isfinite(column), column, np.nan)
            for name, column in columns.items()
        }

    @property
    def counted(self) -> int:
        """Returns how many outputs have numbers on both sides."""
        return int((np.isfinite(self.ulps[0]) & np.isfinite(self.ulps[1])).sum())

    def to_json(self) -> dict[str, object] | None:
        """Returns what ``accuracy`` of the command's JSON has; None where no output has numbers.

        ``closer``: at how many outputs a side is closer to the exact result.
        """
        known = np.isfinite(self.ulps[0]) & np.isfinite(self.ulps[1])
        if not known.any():
            return None
        both = [side[known] for side in self.ulps]
        closer = (both[0] < both[1]).sum(), (both[1] < both[0]).sum()
        condition = self.sums.condition[known]
        answer: dict[str, object] = {"outputs": int(known.sum())}
        for name, ulps, bounds, count in zip(
            ("left", "right"), both, self.bounds, closer, strict=True
        ):
            answer[name] = {
                "closer": int(count),
                "median_ulp": float(np.median(ulps)),
                "max_ulp": float(ulps.max()),
                "max_bound": float(bounds[known].max()),
            }
        middle = float(np.median(condition))
        return answer | {"condition": middle if np.isfinite(middle) else None}

    @property
    def words(self) -> str:
        """Returns which side is the more accurate in a sentence; empty where it isn't known."""
        facts: Any = self.to_json()
        if facts is None:
            return ""
        left, right = facts["left"], facts["right"]
        text = floats.rounded_text
        far = f"off by up to {text(left['max_ulp'])} and {text(right['max_ulp'])} ulp"
        bound = f"{text(left['max_bound'])} and {text(right['max_bound'])} of what rounding can do"
        return (
            f"closer to the exact result: the left at {left['closer']:,} of {facts['outputs']:,} "
            f"outputs, the right at {right['closer']:,}; {far} ({bound})"
        )


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
        first, second = np.broadcast_arrays(*(floats.widen(a, dtype) for a in held))
        added = None if bias is None else bias[some]
        wide = None if added is None else floats.widen(added, dtype)
        parts.append(_enclosed(first, second, wide, dtype))
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
    grouped, parts = case.groups > 1, []
    order = np.argsort(group, kind="stable") if grouped else np.arange(len(group))
    for number in np.unique(group) if grouped else [0]:
        some = order[group[order] == number]
        at, to = positions[some], filters[some]
        sums = _of_product(given, int(number), at, to)
        if sums is None:
            x, bias = given.columns[number][:, at], None if given.b is None else given.b[to]
            sums = of_sums(x, given.met(at, to), case.dtype, bias)
        parts.append(sums)
    joined = Enclosure.joined(parts)
    return joined.at(np.argsort(order, kind="stable")) if grouped else joined


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
    x, w = (floats.widen(operand, case.dtype) for operand in held)
    bias = None if given.b is None else given.b[filters]
    added = np.zeros(len(filters)) if bias is None else floats.widen(bias, case.dtype)
    summands = len(x) + (bias is not None)
    tiny = floats.flushed_below(case.dtype)
    subnormal = any(((operand != 0) & (np.abs(operand) < tiny)).any() for operand in (x, w))
    sizes = (np.abs(x).T @ np.abs(w))[row, column] + np.abs(added)
    if subnormal or not np.isfinite(sizes).all():
        return None
    if case.dtype == "float64":
        if sizes.min(initial=1.0) < NO_REST:
            return None
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
    nothing = np.zeros(len(exact))
    return Enclosure(case.dtype, low, high, exact, overflow, nothing, flushed, sizes, nothing)


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
    both = [_parts(operand, digits) for operand in (x, w)]
    if any(operand is None for operand in both):
        return None
    total, rest = np.zeros((2, x.shape[1], w.shape[1]))
    weights = np.concatenate([w[:, :0], *(both[1] or ())], axis=1)
    for operand in both[0] or ():
        products = operand.T @ weights  # with all parts of the weights: BLAS likes them wide
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
    parts: list[Doubles] = []
    while values.any():
        if len(parts) == SLICES:
            return None
        power = power - digits
        # adding and taking away 1.5 times so much rounds to a multiple of 2**power
        large = np.ldexp(1.5, power + 52)
        part = (values + large) - large
        parts.append(part)
        values = values - part
    return parts


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
    low = _rounded_inwards(exact - error, dtype, up=True)
    high = _rounded_inwards(exact + error, dtype, up=False)
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
    exact, lacking = _total(x, w, bias, finite, dtype), np.zeros(count)
    if dtype == "float64" and len(tiny_sums := np.flatnonzero(np.abs(exact) < NO_REST)):
        # the same sums far above the subnormal numbers, where products have all their digits
        added = None if bias is None else np.ldexp(bias[tiny_sums], LIFT)
        lifted = np.ldexp(x[:, tiny_sums], LIFT), w[:, tiny_sums], added
        with np.errstate(all="ignore"):
            total = _total(*lifted, np.full((1, len(tiny_sums)), np.nan), dtype)
            lowered = np.ldexp(total, -LIFT)
            rest = np.ldexp(total - np.ldexp(lowered, LIFT), 1074 - LIFT)
        known = np.isfinite(total)
        exact[tiny_sums[known]], lacking[tiny_sums[known]] = lowered[known], rest[known]
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
    return Enclosure(dtype, low, high, exact, overflow | lost, sure, flushed, up + down, lacking)


# Sums below which float64's products lose digits, and the binades that lift them above.
NO_REST, LIFT = 2.0**-900, 500


def error_bound(sizes: Doubles, most: Doubles, count: int, dtype: str) -> Doubles:
    """Returns by how much a sum of ``count`` products can err in any order.

    ``sizes``: the sum of the products' magnitudes; ``most``: the larger of the sum of all positive
    and the sum of all negative ones. Includes the rounding of the products, products that
    underflow, and a conversion of the sum to ``dtype``.
    """
    form = floats.format_of(dtype)
    unit, smallest = 2.0**-form.precision * TWICE, 2.0 ** (form.emin - form.precision + 1)
    steps = count + 1  # a rounding more where the sum is converted to the result's format
    bound = np.expm1((steps + 1) * np.log1p(unit)) * sizes
    if steps * unit < 0.5:
        bound = np.minimum(bound, unit * (sizes + steps * most) / (1 - steps * unit))
    return np.asarray(bound * (1 + 2.0**-40) + steps * smallest)


def _total(
    x: Doubles, w: Doubles, bias: Doubles | None, products: Doubles, dtype: str
) -> np.ndarray:
    """Returns the exact sums, rounded to float64 or nearly so: the error is less than one rounding
    and, of formats whose products are exact in float64, one more an addition."""
    if dtype != "float64":
        return np.asarray(products.sum(axis=0))
    # a sum in twice the precision (Ogita, Rump, Oishi, "Accurate sum and dot product", 2005)
    total, rest = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for left, right in zip(x, w, strict=True):
        high, low = two_product(left, right)
        total, error = two_sum(total, high)
        rest += error + low
    if bias is not None:
        total, error = two_sum(total, bias)
        rest += error
    sums = total + rest
    return np.where(np.isfinite(sums), sums, products.sum(axis=0))


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
