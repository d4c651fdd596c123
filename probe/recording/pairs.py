"""Two values of two runs, and which of their elements must agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from probe.recording.contract import Operation


class Selection(NamedTuple):
    """Elements of a left value and of a right one that must agree, pair by pair.

    ``axes``: those along which elements are named; all along the others belong to the selection.
    ``left``, ``right``: flat indices over the sizes of ``axes``, None for all of them. ``flat``:
    the two have other numbers of axes, and elements are named by their place in the flattened
    value.
    """

    axes: tuple[int, ...]
    left: np.ndarray | None
    right: np.ndarray | None
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    flat: bool = False

    @property
    def whole(self) -> bool:
        """Whether all elements of both sides are selected, each with the one at its place."""
        return self.left is None

    @property
    def empty(self) -> bool:
        """Returns whether nothing must agree."""
        return self.left is not None and not len(self.left)

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns how many elements of the left value, of this shape, are selected."""
        if self.left is None:
            return prod(shape)
        rest = [n for a, n in enumerate(shape) if a not in self.axes and not self.flat]
        return len(self.left) * prod(rest)

    def _seen(self, array: np.ndarray, side: int) -> tuple[np.ndarray, Any]:
        """Returns a view of a side's value, and the index of what is selected in it."""
        index = (self.left, self.right)[side]
        assert index is not None
        if self.flat:
            return array.reshape(-1), index
        rest = [axis for axis in range(array.ndim) if axis not in self.axes]
        turned = array.transpose(*self.axes, *rest)
        if self.axes:
            return turned, np.unravel_index(index, self.sizes[side])
        return turned[None], slice(min(len(index), 1))

    def taken(self, array: np.ndarray, side: int) -> np.ndarray:
        """Returns the selected elements of the left (0) or right (1) value: (named, *others)."""
        if self.whole:
            return array
        view, at = self._seen(array, side)
        chosen: np.ndarray = view[at]
        return chosen

    def put(self, array: np.ndarray, values: np.ndarray, side: int) -> np.ndarray:
        """Returns a copy of a side's value with these elements in the places of the selected."""
        if self.whole:
            return values.reshape(array.shape).copy()
        copy = np.array(array, order="C")
        view, at = self._seen(copy, side)
        view[at] = values
        return copy

    def mask(self, shape: tuple[int, ...], side: int) -> np.ndarray:
        """Returns where a side's value of ``shape`` is selected: bool."""
        if self.whole:
            return np.ones(shape, bool)
        every = self.taken(np.ones(shape, bool), side)
        return self.put(np.zeros(shape, bool), every, side)

    def rest(self, shape: tuple[int, ...], side: int) -> np.ndarray:
        """Returns where a side's value need not agree with anything of the other's: bool."""
        return ~self.mask(shape, side)


# No element of either value.
NOTHING = Selection((), np.zeros(0, np.int64), np.zeros(0, np.int64), ((), ()), True)

# All elements of two values of one shape.
WHOLE = Selection((), None, None, ((), ()))


@dataclass
class Pair:
    """A value of either run, by number, and what must agree of them.

    ``compared``: elements; ``equal``: whether all have the same bits. ``known``: False where it
    isn't known of the rest whether it must agree. ``hollow``: neither has any element. ``laid``:
    which elements stand for each other, where fewer of them must agree.
    """

    left: int
    right: int
    selection: Selection
    known: bool
    compared: int = 0
    equal: bool = True
    differing: int = 0
    signed_zero: int = 0
    max_ulp: int | None = 0
    scaled: float = 0.0
    first: tuple[int, ...] | None = None
    hollow: bool = False
    laid: Selection | None = None

    @classmethod
    def of_all(cls, left: int, right: int, size: int) -> Pair:
        """Returns a pair of all elements, ``size``, of two values of one shape, by index."""
        return cls(left, right, WHOLE, True, size, hollow=not size)


def read_alike(
    left: Operation, right: Operation, meet: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """Pairs what two operations read: place by place, or in the order in which all have something
    in common, where a sum or a product of two has them the other way round.

    ``meet``: whether two values have something in common.
    """
    plain = list(zip(left.reads, right.reads, strict=False))
    if len(left.reads) != 2 or len(right.reads) != 2:
        return plain
    if all(meet(*numbers) for numbers in plain):  # first: labels of the others are never asked
        return plain
    turned = list(zip(left.reads, reversed(right.reads), strict=True))
    return turned if all(meet(*numbers) for numbers in turned) else plain
