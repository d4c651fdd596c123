"""A recorded operation seen as a case of the engine: where its operands are in what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from probe import floats
from probe.case import Case
from probe.comparison import Arrays
from probe.errors import InputError

Again = Callable[[list[np.ndarray]], list[np.ndarray]]
Function = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Part:
    """An operand of a case in what is read: split into ``pieces``, turned, and given ``shape``.

    ``number``: which of what is read; ``whole``: its shape; ``axes``: the pieces' order.
    """

    number: int
    whole: tuple[int, ...]
    pieces: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    @staticmethod
    def of(number: int, whole: tuple[int, ...], axes: Sequence[int], *shape: int) -> Part:
        """Returns all of an array with its axes in another order, in another shape."""
        return Part(number, whole, whole, tuple(axes), shape)

    def taken(self, array: np.ndarray) -> np.ndarray:
        """Returns the operand, from what is read or given: a copy."""
        turned = array.reshape(self.pieces).transpose(self.axes)
        return np.array(turned, order="C").reshape(self.shape)

    def put(self, array: np.ndarray) -> np.ndarray:
        """Returns what is read, from the operand: a copy."""
        turned = array.reshape([self.pieces[axis] for axis in self.axes])
        back = np.argsort(np.array(self.axes, int))
        return np.array(turned.transpose(back), order="C").reshape(self.whole)


@dataclass(frozen=True)
class Phase(Part):
    """Of a part in its case's order only some elements: ``picks``, a slice or indices an axis."""

    picks: tuple[Any, ...] = ()

    def taken(self, array: np.ndarray) -> np.ndarray:
        turned = array.reshape(self.pieces).transpose(self.axes)
        return np.array(turned[self._index(turned.shape)], order="C").reshape(self.shape)

    def put(self, array: np.ndarray) -> np.ndarray:
        """Returns what is read: zeros where nothing was picked."""
        sizes = tuple(self.pieces[axis] for axis in self.axes)
        turned = np.zeros(sizes, array.dtype)
        index = self._index(sizes)
        turned[index] = array.reshape(turned[index].shape)
        back = np.argsort(np.array(self.axes, int))
        return np.array(turned.transpose(back), order="C").reshape(self.whole)

    def _index(self, sizes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        every = (np.arange(size)[pick] for size, pick in zip(sizes, self.picks, strict=True))
        return np.ix_(*every)


@dataclass(frozen=True)
class AsCase:
    """One side's operation: the case, and where its operands and outputs are.

    ``scale``: outputs times this power of two are the case's, as those of a mean of so many.
    ``divides``: sums are divided behind, by a number that has to be asked. ``pooled``: a pool,
    whose weights of 1 are put into its input. ``functions``: what each sum goes through before it
    is given, as (word, numbers); of an addition the number of what is added.
    """

    case: Case
    x: Part
    w: Part | None
    b: Part | None
    y: Part
    scale: int = 1
    divides: bool = False
    pooled: bool = False
    functions: tuple[Function, ...] = ()

    def operands(self, reads: Sequence[np.ndarray]) -> Arrays:
        """x, w and b of the case, from all that is read (container arrays)."""
        x = self.x.taken(reads[self.x.number])
        if self.w is None:
            w = floats.round_to(np.ones(self.case.weight_shape), self.case.dtype)
        else:
            w = self.w.taken(reads[self.w.number])
        return x, w, None if self.b is None else self.b.taken(reads[self.b.number])

    @property
    def added(self) -> list[int]:
        """Returns the numbers of what is added to the sums behind."""
        return [numbers[0] for word, numbers in self.functions if word == "add"]

    def filled(self, array: np.ndarray, number: int) -> np.ndarray:
        """Returns what is added to the outputs, as (positions, filters).
        InputError: it is broadcast."""
        if array.shape != self.y.whole:
            why = "it is added behind the sum, and not of the output's shape"
            raise InputError(f"x{number}", array.shape, why, "")
        return self.y.taken(array).reshape(-1, self.case.filters)

    def places(self, flat: np.ndarray) -> np.ndarray:
        """(position, filter) of outputs by their flat index as the operation gives them.

        -1 of outputs that are not the case's.
        """
        index = np.arange(prod(self.y.whole)).reshape(self.y.whole)
        where = np.full(index.size, -1)
        own = self.y.taken(index).reshape(-1)
        where[own] = np.arange(own.size)
        found = np.stack(np.divmod(where[flat], self.case.filters), axis=1)
        return np.where(where[flat][:, None] < 0, -1, found)
