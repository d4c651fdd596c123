"""An enclosure of results, and where a library's result stands to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from probe import floats
from probe.enclosure.few import FewSummands

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
        return RoundingVerdict(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )

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
        found: dict[str, object] = {
            name: getattr(self, name) for name in ("explained", "within", "beyond", "unknown")
        }
        if self.beyond:
            found["beyond_on"] = {"left": self.left, "right": self.right}
        return found | ({"flush": self.flush} if self.flush else {})

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

    ``below``, ``above``: every finite result lies between them. ``exact``: the exact result,
    rounded. ``overflow``: whether some order may overflow, which gives an infinity or NaN.
    ``sure``: NaN or an infinity where the operands settle that the result is this one; 0 where they
    don't. ``flushed``: what subnormal operands and results that become zero may add to the
    distance. ``sizes``: the sum of magnitudes of the products. ``few``: of few summands, what
    gives ends that are attained; None: ``below`` and ``above`` are all that is known.
    """

    dtype: str
    below: np.ndarray
    above: np.ndarray
    exact: np.ndarray
    overflow: np.ndarray
    sure: np.ndarray
    flushed: np.ndarray
    sizes: np.ndarray
    few: FewSummands | None = None

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns between what every finite result lies, as sharply as it is known."""
        if self.few is None:
            return self.below, self.above
        low, high = self.few.ends()
        rounded = floats.nearest(self.exact, self.dtype)
        wide = np.isnan(self.exact)  # a product of finite numbers is too large for float64
        low, high = np.minimum(low, rounded), np.maximum(high, rounded)
        return np.where(wide, self.below, low), np.where(wide, self.above, high)

    @property
    def low(self) -> np.ndarray:
        return self.ends[0]

    @property
    def high(self) -> np.ndarray:
        return self.ends[1]

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
        low, high = self._ends_for(values, y)
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

    def _ends_for(self, values: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ends that judge these results as the sharpest ones do."""
        if self.few is None or "ends" in self.__dict__:
            return self.ends
        low, high = self.below.copy(), self.above.copy()
        with np.errstate(invalid="ignore"):
            near = ~((y < low - self.flushed) | (y > high + self.flushed))
            rest = np.flatnonzero(near & (y != floats.nearest(self.exact, self.dtype)))
        if len(rest):
            rest = rest[~self.few.at(rest).given_by_an_order(values[rest])]
        if len(rest):
            low[rest], high[rest] = self.at(rest).ends
        return low, high

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
        with np.errstate(invalid="ignore"):
            found = np.abs(y - self.exact) / unit
        return np.where(np.isfinite(y) & (self.sure == 0), found, np.nan)

    def distance(self, values: np.ndarray) -> np.ndarray:
        """Returns how far results are from the exact ones, in units of ``radius``; NaN where there
        is no number."""
        y = floats.widen(values, self.dtype)
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.abs(y - self.exact)
            found = np.where(apart == 0, 0.0, apart / self.radius)
        return np.where(np.isfinite(y) & (self.sure == 0), found, np.nan)

    @classmethod
    def joined(cls, parts: Sequence[Enclosure]) -> Enclosure:
        """Returns several enclosures as one, behind each other."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, Any]
        arrays = {name: np.concatenate([getattr(one, name) for one in parts]) for name in _ARRAYS}
        few = [one.few for one in parts if one.few is not None]
        return cls(parts[0].dtype, few=FewSummands.joined(few) if few else None, **arrays)

    def at(self, index: np.ndarray) -> Enclosure:
        """Returns those of some outputs, by number."""
        few = None if self.few is None else self.few.at(index)
        return replace(self, few=few, **{name: getattr(self, name)[index] for name in _ARRAYS})


_ARRAYS = ("below", "above", "exact", "overflow", "sure", "flushed", "sizes")


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
    def of(cls, found: Enclosure, left: np.ndarray, right: np.ndarray) -> Accuracy:
        """Holds both sides' results (container) against the exact sums of the same products."""
        ulps, bounds = ((way(left), way(right)) for way in (found.ulps, found.distance))
        return cls(ulps, bounds, found)

    def columns(self) -> dict[str, np.ndarray]:
        """Returns columns of the table ``accuracies``; NaN where there is no number."""
        sums = self.sums
        known = np.isfinite(sums.exact) & (sums.sure == 0)
        found = {
            "exact": sums.exact,
            "sizes": sums.sizes,
            "condition": sums.condition,
            "bound": sums.radius,
        }
        found |= {"error_at": self.ulps[0], "error_against": self.ulps[1]}
        found |= {"used_at": self.bounds[0], "used_against": self.bounds[1]}
        return {
            name: np.where(known & np.isfinite(column), column, np.nan)
            for name, column in found.items()
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
        both = [one[known] for one in self.ulps]
        closer = (both[0] < both[1]).sum(), (both[1] < both[0]).sum()
        condition = self.sums.condition[known]
        found: dict[str, object] = {"outputs": int(known.sum())}
        for name, ulps, bounds, count in zip(
            ("left", "right"), both, self.bounds, closer, strict=True
        ):
            found[name] = {
                "closer": int(count),
                "median_ulp": float(np.median(ulps)),
                "max_ulp": float(ulps.max()),
                "max_bound": float(bounds[known].max()),
            }
        middle = float(np.median(condition))
        return found | {"condition": middle if np.isfinite(middle) else None}

    @property
    def words(self) -> str:
        """Returns which side is the more accurate in a sentence; empty where it isn't known."""
        told: Any = self.to_json()
        if told is None:
            return ""
        left, right = told["left"], told["right"]
        text = floats.rounded_text
        far = f"off by up to {text(left['max_ulp'])} and {text(right['max_ulp'])} ulp"
        bound = f"{text(left['max_bound'])} and {text(right['max_bound'])} of what rounding can do"
        return (
            f"closer to the exact result: the left at {left['closer']:,} of {told['outputs']:,} "
            f"outputs, the right at {right['closer']:,}; {far} ({bound})"
        )
