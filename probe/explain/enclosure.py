"""Encloses all results that rounding can give a sum of products: every order, every fusing, every
accumulator that is allowed.

A result outside is *beyond rounding*: a bug, another formula, or other inputs. A result inside is
*within rounding*: not refuted, which does not mean that some order gives it.

Allowed are accumulators in the format of the result or in one of its ``wider`` (of formats
narrower than float64 also any that is wider than float64, or exact), roundings to nearest, and
products that are rounded or enter their addition exactly. Operands are not shortened (TF32,
bfloat16), nothing is flushed.

With u half the distance of 1 to the next number, each rounding of a partial sum errs by at most u
times its size, and no partial sum is larger than all its positive or all its negative terms (and
the error so far), whatever the order: k additions err by at most u (A + k M) / (1 - k u), A the sum
of sizes and M the larger of both halves. The classical ((1 + u)^k - 1) A is taken where that is
less, or where k u nears 1 (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition,
section 4.2; Rump, "Error estimation of floating-point summation and dot product", BIT 52, 2012, for
the first form).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from probe.case import floats
from probe.order.arithmetic import Doubles, two_product, two_sum
from probe.order.orders import ContainerOperands

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
        beyond = (left == BEYOND) | (right == BEYOND)
        inside = (left == WITHIN) & (right == WITHIN)
        unexplained = ~explained
        return cls(
            int(explained.sum()),
            int((unexplained & inside).sum()),
            int((unexplained & beyond).sum()),
            int((unexplained & ~beyond & ~inside).sum()),
            int((unexplained & (left == BEYOND)).sum()),
            int((unexplained & (right == BEYOND)).sum()),
            int((unexplained & ~beyond & ~inside & flush).sum()),
        )

    @property
    def all_explained(self) -> bool:
        """Whether outputs differ, and a replay gives the bits of both sides of each."""
        return 0 < self.explained == self.total

    @property
    def total(self) -> int:
        return self.explained + self.within + self.beyond + self.unknown

    def to_json(self) -> dict[str, object]:
        counts: dict[str, object] = {
            name: getattr(self, name) for name in ("explained", "within", "beyond", "unknown")
        }
        if self.beyond:
            counts["beyond_on"] = {"left": self.left, "right": self.right}
        return counts | ({"flush": self.flush} if self.flush else {})

    @property
    def words(self) -> str:
        """What is beyond rounding in words; empty if nothing is."""
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
    ``settled``: the NaN or infinity that every order gives, as the operands have one; 0 where they
    have none. ``flushed``: what subnormal operands and results that become zero may add to the
    distance.
    """

    dtype: str
    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray
    overflow: np.ndarray
    settled: np.ndarray
    flushed: np.ndarray

    @property
    def radius(self) -> np.ndarray:
        return np.maximum(self.high - self.exact, self.exact - self.low)

    def judged(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What can be said of results (container), and whether flushing could give them.

        ``WITHIN``, ``BEYOND`` or ``UNKNOWN``; bool where a result is unknown because of flushing.
        """
        y = floats.widen(values, self.dtype)
        finite = np.isfinite(y)
        low, high = self.low, self.high
        with np.errstate(invalid="ignore"):
            inside = (low <= y) & (y <= high)
            if (inside & finite).all() and not self.settled.any():
                # the usual case: the rest costs as much as a replay of a short sum
                return np.full(y.shape, WITHIN), np.zeros(y.shape, bool)
            near = (low - self.flushed <= y) & (y <= high + self.flushed)
            same = (np.isnan(y) & np.isnan(self.settled)) | (y == self.settled)
        is_settled = self.settled != 0
        inside = np.where(is_settled, same, np.where(finite, inside, self.overflow))
        flush = ~is_settled & finite & ~inside & near
        # an infinity among the operands may meet one that an order's overflow makes on its way
        undecided = flush | (is_settled & ~same & self.overflow)
        return np.where(inside, WITHIN, np.where(undecided, UNKNOWN, BEYOND)), flush

    def after_monotone(
        self, function: Callable[[Doubles], Doubles], unit: float = 0.0
    ) -> Enclosure:
        """Encloses a non-decreasing function of the outputs, such as the addition of a bias.

        ``unit``: its largest relative error. Holds whether the function's result is rounded to the
        format or kept in a wider one.
        """
        low, high = function(self.low), function(self.high)
        low = np.nextafter(low - unit * np.abs(low), -np.inf)  # computed in float64, to a rounding
        high = np.nextafter(high + unit * np.abs(high), np.inf)
        low = np.minimum(low, floats.nearest(low, self.dtype))
        high = np.maximum(high, floats.nearest(high, self.dtype))
        return replace(self, low=low, high=high, exact=function(self.exact))

    def cut_off(self, bounds: Sequence[float | None]) -> Enclosure:
        """Encloses the outputs after they are clipped to two bounds, which may have been rounded to
        float32; None: no bound on this side."""
        ends = []
        for end, sign in ((self.low, -1), (self.exact, 0), (self.high, 1)):
            least, most = (
                0 if bound is None else bound + sign * abs(bound) * 2.0**-23 for bound in bounds
            )
            end = end if bounds[0] is None else np.maximum(end, least)
            ends.append(end if bounds[1] is None else np.minimum(end, most))
        return replace(self, low=ends[0], exact=ends[1], high=ends[2])

    def distance(self, values: np.ndarray) -> np.ndarray:
        """How far results are from the exact ones, in units of ``radius``; NaN where there is no
        number."""
        y = floats.widen(values, self.dtype)
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.abs(y - self.exact)
            radii = np.where(apart == 0, 0.0, apart / self.radius)
        return np.where(np.isfinite(y) & (self.settled == 0), radii, np.nan)


# Products that are worked on at once: arrays of 16 MiB.
AT_ONCE = 1 << 21

# A rounding by way of a wider format errs by this factor more: by up to 2**-11 of the first error
# (float64 by way of 64 bits, x87's), and less for all other pairs of formats.
DOUBLE_ROUNDING = 1 + 2.0**-10


def of_operands(
    operands: ContainerOperands, positions: np.ndarray, filters: np.ndarray
) -> Enclosure | None:
    """The enclosure of a case's outputs (position, filter), in their order.

    None where the sum is not the output: of pools, and where something is computed behind it.
    """
    case = operands.case
    if case.pool or operands.behind is not None:
        return None
    group, parts = filters // (case.filters // case.groups), []
    order = np.argsort(group, kind="stable")
    step = max(1, AT_ONCE // max(1, case.summands))
    for number in np.unique(group) if len(group) else [0]:
        members = order[group[order] == number]
        for start in range(0, max(len(members), 1), step):
            chunk = members[start : start + step]
            chunk_positions, chunk_filters = positions[chunk], filters[chunk]
            bias = None if operands.b is None else operands.b[chunk_filters]
            x = operands.columns[number][:, chunk_positions]
            w = operands.met(chunk_positions, chunk_filters)
            parts.append(of_sums(x, w, case.dtype, bias))
    back = np.argsort(order, kind="stable")
    names = [field.name for field in fields(Enclosure)][1:]
    arrays = [np.concatenate([getattr(part, name) for part in parts])[back] for name in names]
    return Enclosure(case.dtype, *arrays)


@np.errstate(all="ignore")
def of_sums(x: np.ndarray, w: np.ndarray, dtype: str, bias: np.ndarray | None = None) -> Enclosure:
    """The enclosure of ``sum(x * w, axis=0) + bias``, of each output.

    ``x``, ``w``: container arrays (summands, outputs), either may have 1 output; ``bias``:
    container (outputs,), None: there is none. ``dtype``: of operands and results.
    """
    x, w = np.broadcast_arrays(floats.widen(x, dtype), floats.widen(w, dtype))
    bias_terms = None if bias is None else floats.widen(bias, dtype)
    terms = [*x * w, *([] if bias_terms is None else [bias_terms])]
    products = np.stack(terms) if terms else np.zeros((1, x.shape[1]))
    summands = len(products)
    all_finite = np.isfinite(products).all(axis=0) & np.isfinite(x).all(axis=0)
    all_finite &= np.isfinite(w).all(axis=0)
    finite = np.where(np.isfinite(products), products, 0.0)
    positive = np.where(finite > 0, finite, 0.0).sum(axis=0)
    negative = -np.where(finite < 0, finite, 0.0).sum(axis=0)
    exact = _total(x, w, bias_terms, finite, dtype)
    # the sums are rounded themselves: made larger by more than that
    slack = 1 + (summands + 2) * 2.0**-52
    magnitudes, larger_half = (positive + negative) * slack, np.maximum(positive, negative) * slack
    error = error_bound(magnitudes, larger_half, summands, dtype) + 2.0**-53 * np.abs(exact)
    if dtype != "float64":
        error = error + summands * 2.0**-51 * magnitudes
    overflow = ~(magnitudes + error < floats.largest_finite(dtype))
    rounded = floats.nearest(exact, dtype)
    low, high = np.minimum(exact - error, rounded), np.maximum(exact + error, rounded)
    # a product of finite numbers that is too large for float64 was left out above: rounded it is
    # infinite, and fused into an addition it need not be
    finite_factors = np.isfinite(x) & np.isfinite(w)
    lost = (finite_factors & ~np.isfinite(products[: len(x)])).any(axis=0)
    low, high = np.where(lost, -np.inf, low), np.where(lost, np.inf, high)
    exact = np.where(lost, np.nan, exact)
    # NaN or the infinity that operands which are not finite lead to in every order; a product of
    # finite numbers that is too large for float64 is no infinite operand
    infinite = np.concatenate([np.isinf(x) | np.isinf(w), np.isinf(products[len(x) :])])
    certain_terms = np.where(np.isinf(products) & ~infinite, 0.0, products)
    plus = (certain_terms == np.inf).any(axis=0)
    minus = (certain_terms == -np.inf).any(axis=0)
    nan = np.isnan(certain_terms).any(axis=0) | (plus & minus)
    settled = np.where(plus, np.inf, np.where(minus, -np.inf, 0.0))
    settled = np.where(all_finite, 0.0, np.where(nan, np.nan, settled))
    tiny = floats.flushed_below(dtype)
    small = ((np.abs(x) < tiny) | (np.abs(w) < tiny)) & np.isfinite(finite[: len(x)])
    flushed = np.where(small, np.abs(finite[: len(x)]), 0).sum(axis=0) + 2 * (summands + 1) * tiny
    return Enclosure(dtype, low, high, exact, overflow | lost, settled, flushed)


def error_bound(magnitudes: Doubles, larger_half: Doubles, count: int, dtype: str) -> Doubles:
    """By how much a sum of ``count`` products can err in any order.

    ``magnitudes``: the sum of the products' magnitudes; ``larger_half``: the larger of the sum of
    all positive products and that of all negative ones. Includes the rounding of the products,
    products that underflow, and a conversion of the sum to ``dtype``.
    """
    form = floats.format_of(dtype)
    unit, smallest = 2.0**-form.precision * DOUBLE_ROUNDING, 2.0 ** (form.emin - form.precision + 1)
    steps = count + 1  # a rounding more where the sum is converted to the result's format
    bound = np.expm1((steps + 1) * np.log1p(unit)) * magnitudes
    if steps * unit < 0.5:
        bound = np.minimum(bound, unit * (magnitudes + steps * larger_half) / (1 - steps * unit))
    return np.asarray(bound * (1 + 2.0**-40) + steps * smallest)


def _total(
    x: Doubles, w: Doubles, bias: Doubles | None, products: Doubles, dtype: str
) -> np.ndarray:
    """The exact sums, rounded to float64 or nearly so: the error is less than one rounding and, of
    formats whose products are exact in float64, one more an addition."""
    if dtype != "float64":
        return np.asarray(products.sum(axis=0))
    # a sum in twice the precision (Ogita, Rump, Oishi, "Accurate sum and dot product", 2005)
    total, errors = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for left, right in zip(x, w, strict=True):
        high, low = two_product(left, right)
        total, error = two_sum(total, high)
        errors += error + low
    if bias is not None:
        total, error = two_sum(total, bias)
        errors += error
    sums = total + errors
    return np.where(np.isfinite(sums), sums, products.sum(axis=0))
