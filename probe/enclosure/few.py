"""Encloses sums of a few products sharply: the least and the largest result is attained.

Rounding is monotone, so that the least result of a set of summands comes from the least results of
its two parts, and all ways of parting the set are tried. That costs a thousand times a sum, so it
is done where somebody asks for the ends, or holds a result against them that is neither the exact
sum, rounded, nor what one of the orders that libraries use gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce

import numpy as np

from probe import floats
from probe.summation.arithmetic import Doubles, fma_float64, to_odd, two_sum
from probe.summation.replay import replay
from probe.summation.summation import Rounding, Summation
from probe.summation.tree import Tree

# Summands up to which all orders are tried: 966 ways of parting their sets in two.
FEW = 7


def allowed(dtype: str) -> tuple[str, ...]:
    """Returns the formats of partial sums that are allowed, by that of the result."""
    return (dtype, *floats.FORMATS[dtype].wider)


@dataclass(frozen=True)
class FewSummands:
    """Sums of the products of columns ``row`` of ``x`` and columns ``column`` of ``w``, which are
    containers (summands, ...), and of ``bias``, one an output, or None."""

    dtype: str
    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray | None
    row: np.ndarray
    column: np.ndarray

    def at(self, index: np.ndarray) -> FewSummands:
        """Returns those of some outputs, by number."""
        bias = None if self.bias is None else self.bias[index]
        return replace(self, bias=bias, row=self.row[index], column=self.column[index])

    @classmethod
    def joined(cls, parts: Sequence[FewSummands]) -> FewSummands:
        """Returns several as one, behind each other."""
        x, w = (np.concatenate(some, axis=1) for some in zip(*map(cls._met, parts), strict=True))
        given = [one.bias for one in parts if one.bias is not None]
        numbers = np.arange(x.shape[1])
        return cls(parts[0].dtype, x, w, np.concatenate(given) if given else None, numbers, numbers)

    def _met(self) -> tuple[np.ndarray, np.ndarray]:
        return self.x[:, self.row], self.w[:, self.column]

    def given_by_an_order(self, values: np.ndarray) -> np.ndarray:
        """Returns which results (container) one of the orders that libraries use gives: bool."""
        found = np.zeros(len(values), bool)
        for summation in _usual(len(self.x), self.bias is not None, self.dtype):
            rest = np.flatnonzero(~found)
            if not len(rest):
                break
            some = self.at(rest)
            found[rest] = replay(summation, *some._met(), self.dtype, some.bias) == values[rest]
        return found

    @np.errstate(all="ignore")
    def ends(self) -> tuple[Doubles, Doubles]:
        """Returns the least and the largest result over all orders, fusings and formats."""
        x, w = (floats.widen(one, self.dtype) for one in self._met())
        bias = None if self.bias is None else floats.widen(self.bias, self.dtype)
        least, largest = (_extreme(x, w, bias, self.dtype, sign) for sign in (-1.0, 1.0))
        return least, largest


@cache
def _usual(leaves: int, biased: bool, dtype: str) -> tuple[Summation, ...]:
    """Returns ways to add: one after the other, fused or not, the bias last or first; and in pairs
    or halves. In the result's format, of 16 bits in float32 too."""
    numbers = [str(leaf) for leaf in range(leaves)]
    every, last, paired = frozenset(range(leaves)), ["b"] * biased, numbers
    while len(paired) > 1:
        both = [f"({one}+{two})" for one, two in zip(paired[::2], paired[1::2], strict=False)]
        paired = [*both, *paired[2 * len(both) :]]
    trees = [
        (_chained([*numbers, *last]), every - {0}),
        *([(_chained([*last, *numbers]), every)] if biased else []),
        (_chained([*paired, *last]), frozenset[int]()),
        (_chained([_halved(numbers), *last]), frozenset[int]()),
    ]
    found = []
    for wide in (None,) if dtype in ("float32", "float64") else ("float32", None):
        for text, fused in trees:
            for some in dict.fromkeys((frozenset[int](), fused)):
                rounding = Rounding(fused=some, accumulator_format=wide)
                found.append(Summation(Tree.parse(text), rounding))
    return tuple(dict.fromkeys(found))


def _chained(terms: Sequence[str]) -> str:
    return reduce(lambda one, two: f"({one}+{two})", terms)


def _halved(terms: Sequence[str]) -> str:
    half = len(terms) // 2
    return f"({_halved(terms[:half])}+{_halved(terms[half:])})" if half else terms[0]


def _extreme(x: Doubles, w: Doubles, bias: Doubles | None, dtype: str, sign: float) -> Doubles:
    """Returns the least result (``sign`` -1) or the largest one (1)."""
    formats, leaves = allowed(dtype), len(x)
    every = leaves + (bias is not None)
    pick = np.minimum if sign < 0 else np.maximum
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
        # all ways of parting the set (bits) in two; the lowest member is in the first part
        lowest, parts = members & -members, []
        part = rest = members ^ lowest
        while part:
            part = (part - 1) & rest
            parts.append((part | lowest, rest ^ part))
        # the extreme of the exact sums: as rounding is monotone, it is rounded once for all parts
        total, error = two_sum(*(best[one] for one in parts[0]))
        for both in parts[1:]:
            other, more = two_sum(*(best[one] for one in both))
            further = (sign * other > sign * total) | (other == total) & (
                sign * more > sign * error
            )
            # an infinity's error is NaN; from NaN on nothing is further, so it is kept
            total = np.where(further | np.isnan(other), other, total)
            error = np.where(further | np.isnan(other), more, error)
        if formats == ("float64",):
            found = total
            for both in parts:
                for mine, others in (both, both[::-1]):
                    leaf = mine.bit_length() - 1
                    if mine == 1 << leaf and leaf < leaves:
                        found = pick(found, fma_float64(x[leaf], w[leaf], best[others]))
        else:
            odd = to_odd(total, error)
            # outwards: then no exact sum of several terms, and none of 64 bits, lies outside
            outside = sign * error > 0
            found = np.where(outside, np.nextafter(total, sign * np.inf), total)
            for name in formats[:-1]:
                found = pick(found, floats.nearest(odd, name))
        best[members] = found
    return floats.nearest(best[(1 << every) - 1], dtype)
