"""What compilers' operations compute in full generality: repeated along any axis, with holes,
hidden by a mask; and values that are known whatever they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording import mixing
from probe.recording.labels import ZERO, Labels, Name, joined, of_content, tag
from probe.recording.meaning import (
    Each,
    Exact,
    Meaning,
    Numbers,
    Reduces,
    Shapes,
    Turns,
    Windows,
    exact_zeros,
)


@dataclass(frozen=True)
class Broadcasts(Exact):
    """Input axis k becomes output axis ``axes[k]``; along all others it is repeated."""

    axes: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, shape = reads[0], shapes[0]
        lengths, wide = [1] * len(shape), list(shape)
        names: list[Name] = list(range(len(shape)))
        for axis, to in enumerate(self.axes):
            lengths[to] = one.array.shape[axis]
            if one.implicit(axis):
                wide[to], names[to] = 1, one.name(axis)
        array = np.broadcast_to(one.array.reshape(lengths), wide)
        return [Labels(shape, array, one.known, tuple(names))]


@dataclass(frozen=True)
class Passes(Exact):
    """Output n is input ``numbers[n]``."""

    numbers: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [reads[n] for n in self.numbers]


@dataclass(frozen=True)
class Vanishes(Each):
    """A function whose exact zeros add nothing later: the exponential of what a mask hides."""

    notices: bool = True

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        return exact_zeros(gives)

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        zeros: np.ndarray | None = None,
    ) -> list[Labels]:
        found = super().labels(reads, shapes, what)
        if zeros is None:
            return found
        return [one._replace(array=np.where(zeros, ZERO, one.full())) for one in found]


FAR = 1000.0
"""How far below a maximum something is that a mask hides; no rounding comes near it."""


@dataclass(frozen=True)
class Maximum(Reduces):
    """A maximum: exact, and what is far below it (what a mask hides) could not be it."""

    notices: bool = True

    def noticed(self, reads: Sequence[Numbers], gives: Sequence[Numbers]) -> np.ndarray | None:
        values = reads[0]()
        if values.dtype.kind != "f" or not values.size:
            return None
        with np.errstate(invalid="ignore"):
            far = values < values.max(axis=self.axes, keepdims=True) - FAR
        return far if far.any() else None

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        far: np.ndarray | None = None,
    ) -> list[Labels]:
        one = reads[0]._replace(array=mixing.visible(reads[0].array))
        if far is not None:
            one = one._replace(array=np.where(far, ZERO, one.full()))
        return Reduces(self.axes, self.word, zero=True).labels([one], shapes, what)


@dataclass(frozen=True)
class Convolution(Meaning):
    """``conv_general_dilated`` in its full generality, by way of :class:`Windows`.

    ``turned``: axes that put the input into the output's order. ``holes``: elements of the input
    are so far apart, an axis each (``lhs_dilation``). ``batches``: ``batch_group_count``.
    """

    windows: Windows
    turned: tuple[int, ...]
    holes: tuple[int, ...]
    batches: int = 1
    word: str = "convolution"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (one, *rest), shape = reads, shapes[0]
        turned = tuple(one.shape[axis] for axis in self.turned)
        (one,) = Turns(self.turned).labels([one], [turned], what)
        one = self._apart(one)
        if self.batches == 1:
            return self.windows.labels([one, *rest], shapes, what)
        channels = self.windows.channels
        (batch,) = {*range(len(shape))} - {channels, *self.windows.spatial}
        groups = np.split(one.full([batch]), self.batches, batch)
        wanted = tuple(n // self.batches if axis == channels else n for axis, n in enumerate(shape))
        parts = [
            self.windows.labels([self._part(one, group, batch), *rest], [wanted], what)[0].full()
            for group in groups
        ]
        parts = [joined(part, tag("group", n)) for n, part in enumerate(parts)]
        known = all(one.known for one in reads)
        return [Labels(shape, np.concatenate(parts, channels), known)]

    @staticmethod
    def _part(one: Labels, group: np.ndarray, batch: int) -> Labels:
        shape = tuple(group.shape[a] if a == batch else n for a, n in enumerate(one.shape))
        return Labels(shape, group, one.known, one.names)

    def _apart(self, one: Labels) -> Labels:
        if set(self.holes) <= {1}:
            return one
        spatial = self.windows.spatial
        array, shape = one.full(spatial), list(one.shape)
        for axis, step in zip(spatial, self.holes, strict=True):
            shape[axis] = (shape[axis] - 1) * step + 1 if shape[axis] else 0
        lengths = [shape[a] if a in spatial else n for a, n in enumerate(array.shape)]
        found = np.zeros(lengths, np.uint64)
        at = [slice(None)] * len(shape)
        for axis, step in zip(spatial, self.holes, strict=True):
            at[axis] = slice(None, None, step)
        found[tuple(at)] = array
        return Labels(tuple(shape), found, one.known, one.names)


@dataclass(frozen=True)
class Holds(Meaning):
    """A value that is known by its content, whatever it was computed from: a mask, positions."""

    content: np.ndarray

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [of_content(self.content)]


@dataclass(frozen=True)
class Accumulates(Meaning):
    """The first input, with every element of the second added at a place of it, in any order.

    ``places``: the flat index in the output of each element of the second input, row by row, -1
    where it is left out.
    """

    places: Any
    word: str = "accumulate"
    numbers: tuple[Any, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, terms = reads[0].full().reshape(-1), reads[1].full().reshape(-1)
        places = np.asarray(self.places, np.int64).reshape(-1)
        inside = places >= 0
        total = np.zeros(one.shape, np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(total, places[inside], mixing.scattered(terms)[inside])
            every = total + mixing.scattered(one)
        found = np.where(total == ZERO, one, joined(every, what, tag(self.numbers)))
        return [Labels(shapes[0], found.reshape(shapes[0]), mixing.known(reads[:2]))]
