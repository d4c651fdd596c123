"""What moves, repeats and copies elements and computes none; and elements put or added at places
that indices name: scatters, one-hots, slices that are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any

import numpy as np

from probe.semantics import mixing
from probe.semantics.asked import Map, Mapped
from probe.semantics.contract import Call, Exact, Meaning, Shapes, StepBuilder, Unknown, reads_of
from probe.semantics.elementwise import Made, fitted, of_number
from probe.semantics.labels import Labels, Name, joint, tag
from probe.semantics.sums import Accumulates


@dataclass(frozen=True)
class Same(Exact):
    """Every output is the first input, bit for bit, in other memory: ``clone``."""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [fitted(reads[0], shape, 0) for shape in shapes]


@dataclass(frozen=True)
class Moves(Exact):
    """Elements are moved and copied, none is computed: slice, concat, gather, pad with zeros.

    ``move``: the same with NumPy arrays of any dtype, one for each input, giving one array or as
    many as there are outputs; zeros stay zeros. ``kept``: axes that are the same in all inputs and
    outputs and along which nothing moves, which a folder on disk leaves out.
    """

    move: Callable[..., Any]
    kept: tuple[int, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        given = tuple(one.shape for one in reads)
        maps = self._maps(given, shapes)
        return Mapped(tuple(range(len(reads))), given, maps).labels(reads, shapes, what)

    def _maps(self, given: Shapes, shapes: Shapes) -> tuple[Map, ...]:
        """Returns where each result has its elements from, as its function moves their numbers."""
        places, start = [], 1
        for shape in given:
            end = start + prod(shape)
            places.append(np.arange(start, end, dtype=np.uint64).reshape(shape))
            start = end
        moved = self.move(*places)
        every = moved if isinstance(moved, tuple | list) else (moved,)
        sources = [
            np.asarray(one, np.int64).reshape(to) - 1 for one, to in zip(every, shapes, strict=True)
        ]
        return tuple(Map(one, np.broadcast_to(np.float32(0), one.shape)) for one in sources)


NEVER = count()


@dataclass(frozen=True)
class Written(Moves):
    """A value of which a part was never written: each of those elements has a label of its own.

    ``index``: of each element among all that is read; -1 where it was never written.
    """

    index: Any = None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (found,) = super().labels(reads, shapes, what)
        mark = joint(tag("never written", next(NEVER)), np.arange(1, self.index.size + 1))
        array = np.where(self.index < 0, mark.reshape(self.index.shape), found.full())
        return [found._replace(array=array)]


@dataclass(frozen=True)
class Picks(Moves):
    """Elements at ``index`` along ``axis``: a row of a table, a part, a step. ``index``: integers
    of any shape, whose axes stand in the place of that axis (none: the axis goes).
    """

    move: Callable[..., Any] = np.take
    axis: int = 0
    index: Any = 0

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, index = reads[0], np.asarray(self.index)
        axis = self.axis % len(one.shape)
        names = [*map(one.name, range(len(one.shape)))]
        line = index.ndim == 1 and index.size and bool((np.diff(index) == 1).all())
        if one.implicit(axis) and line:
            size = index.size
            array = one.array
            if size == 1:
                array = one.full([axis]).take([int(index[0])], axis)
            # rows from the third on are not taken for the first ones: where they begin is part of
            # the name
            elif index[0]:
                names[axis] = ("rows", mixing.hashed(names[axis]), int(index[0]))
            return [Labels(shapes[0], array, one.known, tuple(names))]
        found = one.full([axis]).take(index, axis)
        names[axis : axis + 1] = range(index.ndim)
        return [Labels(shapes[0], found, one.known, tuple(names))]


@dataclass(frozen=True)
class Joins(Exact):
    """All inputs one behind the other along ``axis``, or along a new one if ``stacked``."""

    axis: int
    stacked: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        axis, rank = self.axis % len(shapes[0]), len(shapes[0])
        if self.stacked:
            reads = [mixing.reshape_labels(one, _at(shapes[0], axis)) for one in reads]
        reads = [one for one in reads if len(one.shape) == rank and one.shape[axis]]
        if not reads:
            return [Labels(shapes[0], np.zeros(shapes[0], np.uint64))]
        if all(one.implicit(axis) for one in reads):
            return [self._behind(reads, shapes[0], axis)]
        out = [
            a
            for a in range(rank)
            if a != axis
            and all(one.implicit(a) for one in reads)
            and len({one.name(a) for one in reads}) == 1
        ]
        fulls = [one.full([a for a in range(rank) if a not in out]) for one in reads]
        names = [reads[0].name(a) if a in out else a for a in range(rank)]
        array = np.concatenate(fulls, axis)
        return [Labels(shapes[0], array, mixing.all_known(reads), tuple(names))]

    @staticmethod
    def _behind(reads: Sequence[Labels], to: tuple[int, ...], axis: int) -> Labels:
        """Along an axis that is left out: then each element reads all pieces at its place."""
        sizes = tuple(one.shape[axis] for one in reads)
        names = tuple(mixing.hashed(one.name(axis)) for one in reads)
        lines = [Labels(_at(one.shape, axis), one.array, one.known, one.names) for one in reads]
        _, arrays, found = mixing.broadcast_labels(lines)
        named = list(found)
        named[axis] = ("joined", sizes, names)
        array = joint(tag("joined"), *map(mixing.visible, arrays))
        return Labels(to, array, mixing.all_known(reads), tuple(named))


def _at(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])


@dataclass(frozen=True)
class Splits(Exact):
    """Parts of these ``sizes`` one behind the other along ``axis``, an output each; ``drop``: of
    size 1, and the axis goes.
    """

    axis: int
    sizes: tuple[int, ...]
    drop: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        found, start = [], 0
        axis = self.axis % len(reads[0].shape)
        for size, shape in zip(self.sizes, shapes, strict=True):
            index = np.asarray(start) if self.drop else np.arange(start, start + size)
            found += Picks(axis=axis, index=index).labels(reads, [shape], what)
            start += size
        return found


@dataclass(frozen=True)
class Pads(Exact):
    """The input with ``value`` around it: (before, after) an axis, cut off where negative."""

    widths: tuple[tuple[int, int], ...]
    value: complex = 0.0
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        axes = [axis for axis, both in enumerate(self.widths) if both != (0, 0)]
        array = one.full(axes)
        cut = tuple(
            slice(max(-a, 0), n - max(-b, 0))
            for (a, b), n in zip(self.widths, array.shape, strict=True)
        )
        widths = [(max(a, 0), max(b, 0)) for a, b in self.widths]
        label = of_number(self.value, self.dtype)
        array = np.pad(array[cut], widths, constant_values=label)
        return [Labels(shapes[0], array, one.known, one.names)]


@dataclass(frozen=True)
class Turns(Exact):
    """Axes in another order: output axis k is input axis ``axes[k]``."""

    axes: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (one, *_) = reads
        names = tuple(one.name(axis % len(one.shape)) for axis in self.axes)
        shape = tuple(one.shape[axis] for axis in self.axes)
        return [Labels(shape, one.array.transpose(self.axes), one.known, names, one.fixed)]


@dataclass(frozen=True)
class Reshapes(Exact):
    """The same elements in the same order (row by row), in another shape: view, flatten,
    squeeze."""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [mixing.reshape_labels(reads[0], shapes[0])]


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


# at places that indices name: these are known while a run goes on, so no operation is asked


SEVERAL = "several updates go to one place"

Shape = tuple[int, ...]


def flat_places(shape: Shape) -> np.ndarray:
    """Returns the places of an array, row by row: 0, 1, 2, ... of its shape."""
    return np.arange(prod(shape)).reshape(shape)


def points(index: np.ndarray, shape: Shape) -> np.ndarray:
    """Returns where updates go, as flat places of an array of ``shape``. ``index``: (..., axes):
    the first axes of each place in its last axis; the updates have the axes behind them."""
    depth, ahead = index.shape[-1], index.shape[:-1]
    sizes = np.array(shape[:depth], np.int64)
    wrapped = np.where(index < 0, index + sizes, index).reshape(prod(ahead), depth)
    # without axes each update is the whole array
    whole = np.zeros(len(wrapped), int)
    lines = np.asarray(np.ravel_multi_index(tuple(wrapped.T), shape[:depth])) if depth else whole
    inner = prod(shape[depth:])
    found: np.ndarray = (lines[:, None] * inner + np.arange(inner)).reshape(*ahead, *shape[depth:])
    return found


def places_along(index: np.ndarray, axis: int, shape: Shape) -> np.ndarray:
    """Returns where updates go whose own places are kept but along ``axis``, as flat places."""
    places: list[Any] = list(np.indices(index.shape, sparse=True))
    places[axis] = np.where(index < 0, index + shape[axis], index)
    return np.asarray(np.ravel_multi_index(np.broadcast_arrays(*places), shape))


def put_at(
    call: Call, places: np.ndarray, updates: int, into: int | None = None, adds: bool = False
) -> Meaning:
    """Returns a scatter. ``places``: flat ones of the result; ``updates``: the slot of what is put
    there, which broadcasts to them; ``into``: the slot of the array that is written into, zeros if
    there is none. ``adds``: the updates are added."""
    shape, given = call.gives[0], call.shape(updates)
    if adds:
        return _add_at(call, places, updates, into)
    if len(np.unique(places)) < places.size:
        return Unknown(SEVERAL)
    start = 0 if into is None else prod(shape)
    index = flat_places(shape) if into is not None else np.full(shape, -1)
    index.reshape(-1)[places.reshape(-1)] = start + np.broadcast_to(
        flat_places(given), places.shape
    ).reshape(-1)
    constants = np.zeros(shape, call.dtypes[0] if call.dtypes else np.float32)
    shapes = (given,) if into is None else (shape, given)
    data = tuple(range(len(shapes)))
    slots = (updates,) if into is None else (into, updates)
    return reads_of(call, Mapped(data, shapes, (Map(index, constants),)), *slots)


def _add_at(call: Call, places: np.ndarray, updates: int, into: int | None) -> Meaning:
    """Updates broadcast to the places, and are added there in any order."""
    build, shape = StepBuilder(call.count), call.gives[0]
    wide = Broadcasts(tuple(range(places.ndim - call.rank(updates), places.ndim)))
    terms = build.add(wide, call.places(updates), places.shape)
    first = build.add(Made(0), (), shape) if into is None else call.at(into)
    build.add(Accumulates(places.reshape(-1)), (first, terms), shape)
    return build.done()


def one_hot(
    call: Call, index: np.ndarray, axis: int, on: int, off: int | None = None, wraps: bool = False
) -> Meaning:
    """Returns a one-hot of known indices. ``on``, ``off``: slots of single numbers; without ``off``
    that of both, (off, on). ``wraps``: negative indices count from the end, as ONNX has it."""
    shape = call.gives[0]
    axis, depth = axis % len(shape), shape[axis]
    if wraps:
        index = np.where((index < 0) & (index >= -depth), index + depth, index)
    at = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    hot = np.expand_dims(index, axis) == at
    slots = (on,) if off is None else (off, on)
    shapes = tuple(call.shape(slot) for slot in slots)
    where = Map(hot.astype(np.int32), np.zeros(hot.shape, np.float32))
    return reads_of(call, Mapped(tuple(range(len(slots))), shapes, (where,)), *slots)
