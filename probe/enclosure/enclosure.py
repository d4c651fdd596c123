"""An enclosure of results, and where a library's result stands to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from probe import floats

WITHIN, BEYOND, UNKNOWN = 0, 1, 2
"""What can be said of a result: that no order is excluded, that all are, or neither."""


@dataclass(frozen=True)
class Rounding:
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

    def __add__(self, other: Rounding) -> Rounding:
        return Rounding(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @classmethod
    def of(
        cls, explained: np.ndarray, left: np.ndarray, right: np.ndarray, flush: np.ndarray
    ) -> Rounding:
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
        """Returns how many outputs are counted."""
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

    ``low``, ``high``: every finite result lies between them. ``exact``: the exact result, rounded;
    ``radius``: the largest distance from it that ``low`` and ``high`` allow. ``overflow``: whether
    some order may overflow, which gives an infinity or NaN. ``sure``: NaN or an infinity where the
    operands settle that the result is this one; 0 where they don't. ``flushed``: what subnormal
    operands and results that become zero may add to the distance.
    """

    dtype: str
    low: np.ndarray
    high: np.ndarray
    exact: np.ndarray
    overflow: np.ndarray
    sure: np.ndarray
    flushed: np.ndarray

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
        with np.errstate(invalid="ignore"):
            inside = (self.low <= y) & (y <= self.high)
            near = (self.low - self.flushed <= y) & (y <= self.high + self.flushed)
            same = (np.isnan(y) & np.isnan(self.sure)) | (y == self.sure)
        settled = self.sure != 0
        inside = np.where(settled, same, np.where(finite, inside, self.overflow))
        flush = ~settled & finite & ~inside & near
        # an infinity among the operands may meet one that an order's overflow makes on its way
        open_ = flush | (settled & ~same & self.overflow)
        return np.where(inside, WITHIN, np.where(open_, UNKNOWN, BEYOND)), flush

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
        names = [f.name for f in fields(cls) if f.name != "dtype"]
        arrays = (np.concatenate([getattr(one, name) for one in parts]) for name in names)
        return cls(parts[0].dtype, *arrays)

    def at(self, index: np.ndarray) -> Enclosure:
        """Returns those of some outputs, by number."""
        names = [f.name for f in fields(self) if f.name != "dtype"]
        return Enclosure(self.dtype, *(getattr(self, name)[index] for name in names))
