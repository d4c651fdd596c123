"""Movement: what moves, repeats and copies elements and computes none.

Where a row says only that an operation moves elements, and which of its operands these are, the
operation itself is asked where: it runs on numbers that count positions, in as many digits as the
format holds exactly, and what comes out says where everything stood. No slice, gather or padding of
a library is written again in NumPy, and none can differ from the library's own.

Last, elements put or added at places that indices name: scatters, one-hots, slices that are
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np

from probe import floats
from probe.errors import Foreign, InputError, foreign
from probe.semantics import mixing
from probe.semantics.contract import (
    Call,
    Exact,
    Meaning,
    NotSettled,
    Run,
    Shapes,
    StepBuilder,
    Unknown,
    reads_of,
)
from probe.semantics.elementwise import Made, fitted, of_number
from probe.semantics.labels import Labels, Name, joint, of_content, tag
from probe.semantics.sums import Accumulates, Blends, Whole


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
        # where each result has its elements from, as the function moves their numbers
        sizes, places, start = tuple(operand.shape for operand in reads), [], 1
        for shape in sizes:
            end = start + prod(shape)
            places.append(np.arange(start, end, dtype=np.uint64).reshape(shape))
            start = end
        moved = self.move(*places)
        every = moved if isinstance(moved, tuple | list) else (moved,)
        maps = tuple(
            Map(np.asarray(place, np.int64).reshape(to) - 1, np.broadcast_to(np.float32(0), to))
            for place, to in zip(every, shapes, strict=True)
        )
        return Mapped(tuple(range(len(reads))), sizes, maps).labels(reads, shapes, what)


Shape = tuple[int, ...]

NEVER = count()


@dataclass(frozen=True)
class Written(Moves):
    """A value of which a part was never written: each of those elements has a label of its own.

    ``index``: of each element among all that is read; -1 where it was never written.
    """

    index: Any = None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (moved,) = super().labels(reads, shapes, what)
        mark = joint(tag("never written", next(NEVER)), np.arange(1, self.index.size + 1))
        array = np.where(self.index < 0, mark.reshape(self.index.shape), moved.full())
        return [moved._replace(array=array)]


@dataclass(frozen=True)
class Picks(Moves):
    """Elements at ``index`` along ``axis``: a row of a table, a part, a step. ``index``: integers
    of any shape, whose axes stand in the place of that axis (none: the axis goes).
    """

    move: Callable[..., Any] = np.take
    axis: int = 0
    index: Any = 0

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        source, index = reads[0], np.asarray(self.index)
        axis = self.axis % len(source.shape)
        names = [*map(source.name, range(len(source.shape)))]
        line = index.ndim == 1 and index.size and bool((np.diff(index) == 1).all())
        if source.implicit(axis) and line:
            size = index.size
            array = source.array
            if size == 1:
                array = source.full([axis]).take([int(index[0])], axis)
            # rows from the third on are not taken for the first ones: where they begin is part of
            # the name
            elif index[0]:
                names[axis] = ("rows", mixing.hashed(names[axis]), int(index[0]))
            return [Labels(shapes[0], array, source.known, tuple(names))]
        picked = source.full([axis]).take(index, axis)
        names[axis : axis + 1] = range(index.ndim)
        return [Labels(shapes[0], picked, source.known, tuple(names))]


@dataclass(frozen=True)
class Joins(Exact):
    """All inputs one behind the other along ``axis``, or along a new one if ``stacked``."""

    axis: int
    stacked: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        axis, rank = self.axis % len(shapes[0]), len(shapes[0])
        if self.stacked:
            reads = [mixing.reshape_labels(piece, _at(shapes[0], axis)) for piece in reads]
        reads = [piece for piece in reads if len(piece.shape) == rank and piece.shape[axis]]
        if not reads:
            return [Labels(shapes[0], np.zeros(shapes[0], np.uint64))]
        if all(piece.implicit(axis) for piece in reads):
            return [self._behind(reads, shapes[0], axis)]
        out = [
            a
            for a in range(rank)
            if a != axis
            and all(piece.implicit(a) for piece in reads)
            and len({piece.name(a) for piece in reads}) == 1
        ]
        fulls = [piece.full([a for a in range(rank) if a not in out]) for piece in reads]
        names = [reads[0].name(a) if a in out else a for a in range(rank)]
        array = np.concatenate(fulls, axis)
        return [Labels(shapes[0], array, mixing.all_known(reads), tuple(names))]

    @staticmethod
    def _behind(reads: Sequence[Labels], to: tuple[int, ...], axis: int) -> Labels:
        """Along an axis that is left out: then each element reads all pieces at its place."""
        sizes = tuple(piece.shape[axis] for piece in reads)
        names = tuple(mixing.hashed(piece.name(axis)) for piece in reads)
        lines = [piece._replace(shape=_at(piece.shape, axis)) for piece in reads]
        _, arrays, met = mixing.broadcast_labels(lines)
        named = (*met[:axis], ("joined", sizes, names), *met[axis + 1 :])
        array = joint(tag("joined"), *map(mixing.visible, arrays))
        return Labels(to, array, mixing.all_known(reads), named)


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
        parts, start = [], 0
        axis = self.axis % len(reads[0].shape)
        for size, shape in zip(self.sizes, shapes, strict=True):
            index = np.asarray(start) if self.drop else np.arange(start, start + size)
            parts += Picks(axis=axis, index=index).labels(reads, [shape], what)
            start += size
        return parts


@dataclass(frozen=True)
class Pads(Exact):
    """The input with ``value`` around it: (before, after) an axis, cut off where negative."""

    widths: tuple[tuple[int, int], ...]
    value: complex = 0.0
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        source = reads[0]
        axes = [axis for axis, both in enumerate(self.widths) if both != (0, 0)]
        array = source.full(axes)
        cut = tuple(
            slice(max(-a, 0), n - max(-b, 0))
            for (a, b), n in zip(self.widths, array.shape, strict=True)
        )
        widths = [(max(a, 0), max(b, 0)) for a, b in self.widths]
        label = of_number(self.value, self.dtype)
        array = np.pad(array[cut], widths, constant_values=label)
        return [Labels(shapes[0], array, source.known, source.names)]


@dataclass(frozen=True)
class Turns(Exact):
    """Axes in another order: output axis k is input axis ``axes[k]``."""

    axes: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (source, *_) = reads
        names = tuple(source.name(axis % len(source.shape)) for axis in self.axes)
        shape = tuple(source.shape[axis] for axis in self.axes)
        return [Labels(shape, source.array.transpose(self.axes), source.known, names, source.fixed)]


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
        source, shape = reads[0], shapes[0]
        lengths, wide = [1] * len(shape), list(shape)
        names: list[Name] = list(range(len(shape)))
        for axis, to in enumerate(self.axes):
            lengths[to] = source.array.shape[axis]
            if source.implicit(axis):
                wide[to], names[to] = 1, source.name(axis)
        array = np.broadcast_to(source.array.reshape(lengths), wide)
        return [Labels(shape, array, source.known, tuple(names))]


@dataclass(frozen=True)
class Passes(Exact):
    """Output n is input ``numbers[n]``."""

    numbers: tuple[int, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [reads[n] for n in self.numbers]


# asked of the operation itself


# Bits of the numbers 0, 1, 2, ... that a format holds exactly, with a sign where it has one.
BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "int64": 62, "int32": 30,
        "uint32": 30, "uint64": 62, "int16": 14, "uint16": 15, "int8": 6, "uint8": 7, "bool": 1,
        "complex64": 23, "complex128": 52}  # fmt: skip

# Elements, read or given, up to which an operation is asked: positions take 8 bytes each.
MOST = 1 << 24


class Map(NamedTuple):
    """Where a result has its elements from. ``source``: flat over all moved operands one behind the
    other, of the result's shape; -1: a constant, which is in ``constants``."""

    source: np.ndarray
    constants: np.ndarray


def maps_of(
    run: Run, given: Sequence[np.ndarray | None], shapes: Shapes, dtypes: Sequence[str]
) -> list[Map] | None:
    """Returns for each result where its elements are from; None: the operation computes.

    ``given``: its operands, None where its elements are moved; ``shapes``, ``dtypes``: of all.

    Positions count p = 1, 2, ..., n. In a second run they are -(n + p), or 2n + 1 - p where there
    is no sign: other numbers in the opposite order. So a constant gives itself away, as it stays,
    and so does what computes: relu, abs and clips by the sign, sorting and maxima by the order.
    """
    data = [n for n, operand in enumerate(given) if operand is None]
    sizes = [prod(shapes[n]) for n in data]
    count = sum(sizes)
    bits = min(BITS[dtypes[n]] for n in data)
    signed = not any(dtypes[n].startswith(("u", "bool")) for n in data)
    # a narrow format holds a position digit by digit, a run each: bfloat16 has 7 bits of them
    digits = max(1, -(-(2 * count + 1).bit_length() // bits))
    runs: list[list[np.ndarray]] = []
    constants: list[np.ndarray] = []
    for second in (False, True):
        totals: list[np.ndarray] = []
        for digit in range(digits):
            reads, start = list(given), 1
            for n, size in zip(data, sizes, strict=True):
                place = np.arange(start, start + size)
                if second:
                    place = place + count if signed else 2 * count + 1 - place
                number = (place >> digit * bits) & ((1 << bits) - 1)
                number = -number if second and signed else number
                reads[n] = _in_format(number.reshape(shapes[n]), dtypes[n])
                start += size
            results = [np.asarray(result) for result in run(reads)]  # type: ignore[arg-type]
            constants = constants or results
            every = [_integers_in(result, dtypes[data[0]]) << digit * bits for result in results]
            totals = [a + b for a, b in zip(totals, every, strict=True)] if totals else every
        runs.append(totals)
    maps = []
    for first, again, constant in zip(*runs, constants, strict=True):
        turned = -count - first if signed else 2 * count + 1 - first
        moved = (first > 0) & (first <= count) & (again == turned)
        if not (moved | (first == again)).all():
            return None
        kind = np.int32 if count < 1 << 31 else np.int64
        source = np.where(moved, first - 1, -1).astype(kind)
        maps.append(Map(source, np.where(moved, 0, constant)))
    return maps


def _in_format(numbers: np.ndarray, dtype: str) -> np.ndarray:
    if dtype in floats.FORMATS:
        return floats.round_to(numbers.astype(np.float64), dtype)
    return numbers.astype(dtype)


def _integers_in(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns whole numbers; what is none, as an infinity that pads, is -1 in every run."""
    if dtype == "bfloat16":
        array = floats.widen(array, dtype)
    values = array.real if array.dtype.kind == "c" else array
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    values = values.astype(np.float64)
    whole = np.isfinite(values) & (np.abs(values) < 2.0**62)
    whole &= values == np.floor(np.where(whole, values, 0))
    return np.where(whole, np.where(whole, values, 0), -1).astype(np.int64)


def still(where: Map, shapes: Shapes) -> list[tuple[int, int, int]]:
    """Returns (axis of the operands, axis of the result, start) along which nothing moves.

    ``shapes``: of the moved operands. The result's elements at k along its axis are there the
    operands' at start + k, and constants are the same all along.
    """
    pairs: list[tuple[int, int, int]] = []
    rank = len(shapes[0])
    if any(len(shape) != rank for shape in shapes) or not where.source.size:
        return pairs
    starts = np.cumsum([0, *(prod(shape) for shape in shapes)])
    owner = np.searchsorted(starts, where.source, side="right") - 1
    steps = [np.cumprod((1, *shape[:0:-1]))[::-1] for shape in shapes]
    for axis, size in enumerate(where.source.shape):
        if size < 2:
            continue
        line = np.moveaxis(where.source, axis, 0)
        whose = np.moveaxis(owner, axis, 0)
        fixed = np.moveaxis(where.constants, axis, 0)
        if (whose != whose[:1]).any() or (fixed != fixed[:1]).any():
            continue
        inside = whose[0] >= 0
        for k in range(rank):
            length = {shape[k] for shape in shapes}
            if len(length) > 1 or k in {pair[0] for pair in pairs}:
                continue
            # of each element its operand's step along this axis; constants don't step
            step = np.array([*(each[k] for each in steps), 0])[whose[0]]
            at = np.arange(size).reshape(-1, *(1,) * (line.ndim - 1))
            first = ((line[0] - starts[whose[0]]) // np.maximum(step, 1) % length.pop())[inside]
            if (line == line[:1] + at * step).all() and first.size and (first == first[0]).all():
                pairs.append((k, axis, int(first[0])))
                break
    return pairs


@dataclass(frozen=True)
class Mapped(Exact):
    """Elements are moved and copied, none is computed: each result has a map of where from.

    ``data``: numbers of the operands whose elements are moved, of these ``shapes``.
    """

    data: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    maps: tuple[Map, ...]

    @cached_property
    def own(self) -> list[tuple[list[int], Map, list[tuple[int, int, int]]]]:
        """Of each result which operands it has elements of, where these are from among them alone,
        and the axes along which nothing moves: a part of a value that was written elsewhere is as
        it was."""
        starts = np.cumsum([0, *map(prod, self.shapes)])
        results = []
        for where in self.maps:
            owner = np.searchsorted(starts, where.source, side="right") - 1
            used = sorted(set(np.unique(owner).tolist()) - {-1})
            shapes = [self.shapes[n] for n in used]
            shift = np.zeros(len(starts) + 1, where.source.dtype)
            shift[used] = np.cumsum([0, *map(prod, shapes)])[: len(used)] - starts[used]
            mine = where._replace(source=where.source + shift[owner])
            results.append((used, mine, still(mine, shapes) if used else []))
        return results

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        data = [reads[n] for n in self.data]
        if all(labels.array.shape == labels.shape for labels in data):  # nothing is left out
            both = zip(self.maps, shapes, strict=True)
            return [self._moved(data, where, [], to) for where, to in both]
        return [
            self._moved([data[n] for n in used] or data, where, pairs, to)
            for (used, where, pairs), to in zip(self.own, shapes, strict=True)
        ]

    @staticmethod
    def _moved(
        data: Sequence[Labels], where: Map, axes: Sequence[tuple[int, int, int]], to: Shape
    ) -> Labels:
        out = [
            (i, o, start)
            for i, o, start in axes
            if all(each.implicit(i) for each in data) and len({each.name(i) for each in data}) == 1
        ]
        names: list[Name] = list(range(len(to)))
        index, constants = where.source, where.constants
        for i, o, start in out:  # one element stands for all along such an axis
            name = data[0].name(i)
            names[o] = ("rows", mixing.hashed(name), start) if start else name  # as of ``Picks``
            index, constants = index.take([0], o), constants.take([0], o)
        ins = {i for i, _, _ in out}
        flat, begin, small_begin = [], 0, 0
        small = np.full(index.shape, -1)
        for each in data:
            full = each.full([axis for axis in range(len(each.shape)) if axis not in ins])
            mine = (index >= begin) & (index < begin + prod(each.shape))
            if full.size:
                own = np.where(mine, index - begin, 0)
                if ins:
                    places = np.unravel_index(own, each.shape)
                    places = tuple(p * 0 if axis in ins else p for axis, p in enumerate(places))
                    own = np.ravel_multi_index(places, full.shape)
                small = np.where(mine, own + small_begin, small)
            flat.append(full.reshape(-1))
            begin, small_begin = begin + prod(each.shape), small_begin + full.size
        every = np.concatenate([*flat, np.zeros(1, np.uint64)])
        array = np.where(small < 0, of_content(constants).array, every[small])
        return Labels(to, array, mixing.all_known(data), tuple(names))


@dataclass(frozen=True)
class Asked(Exact):
    """The same, as the operation itself tells when it is first wanted.

    ``given``: all operands, None in the places of those whose elements are moved; ``shapes``,
    ``dtypes``: of all.
    """

    run: Run
    given: tuple[np.ndarray | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @cached_property
    def answer(self) -> Meaning:
        """Returns the movement; ``Unknown`` where the operation computes, or doesn't run so."""
        try:
            maps = maps_of(partial(foreign, self.run), self.given, self.shapes, self.dtypes)
        except (Foreign, InputError) as error:
            kind = type(error.__cause__ or error).__name__
            return Unknown(f"it can't be asked where it moves what ({kind})")
        if maps is None:
            return Unknown("it computes, where only movement is described")
        data = tuple(n for n, operand in enumerate(self.given) if operand is None)
        return Mapped(data, tuple(self.shapes[n] for n in data), tuple(maps))

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return self.answer.labels(reads, shapes, what)

    def written(self, reads: Shapes, gives: Shapes) -> Meaning:
        return self.answer


def asked_move(call: Call, *slots: int) -> Meaning:
    """Returns that an operation moves the elements of the operands in these slots (the first, if
    none is named) and computes nothing. NotSettled where another operand isn't known."""
    chosen = set(call.places(*(slots or (0,))))
    run, held = _runnable(call, chosen)
    operands = {operand.at: operand for operand in call.arrays}
    size = max(prod(shape) for shape in (*call.gives, *(operands[n].shape for n in chosen)))
    if size > MOST:
        raise NotSettled(f"it moves {size:,} elements, and is asked where of at most {MOST:,}")
    shapes, dtypes = zip(*((each.shape, each.dtype) for each in operands.values()), strict=True)
    return Asked(run, tuple(held.values()), shapes, dtypes)


def _runnable(call: Call, chosen: set[int]) -> tuple[Run, dict[int, Any]]:
    """Returns what runs an operation, and its operands but these. NotSettled: they aren't known."""
    if call.run is None:
        raise NotSettled(f"{call.op} can't be run alone")
    held: dict[int, Any] = {}
    for operand in call.arrays:
        if operand.at in chosen:
            held[operand.at] = None
        elif operand.content is None:
            raise NotSettled(f"{call.op} reads sizes or indices that floating-point numbers decide")
        else:
            held[operand.at] = np.array(operand.content())
    return call.run, held


# Bits behind the point of a weight that is asked: libraries round it in formats of their own.
FINE = 18


def asked_resize(call: Call, axes: Sequence[int], numbers: tuple[Any, ...]) -> Meaning:
    """Returns a resize of the first operand along these axes by weights that the operation tells;
    where it can't be asked, that each output reads its plane. ``numbers``: what decides then."""
    try:
        if call.dtype() not in floats.FORMATS:
            raise NotSettled("it rounds to integers")
        return reads_of(call, blended(call, axes), 0)
    except NotSettled:
        others = tuple((axis, axis) for axis in range(call.rank()) if axis not in axes)
        return reads_of(call, Whole(others, "resize", numbers), 0)


def blended(call: Call, axes: Sequence[int]) -> Blends:
    """Returns a resize of the first operand along these axes, of which the operation itself tells
    the weights: each axis has its own, and those of one output add up to 1. NotSettled where there
    are too many elements, or where its other operands aren't known."""
    shape, to, rank = call.shape(), call.gives[0], call.rank()
    others = [axis for axis in range(rank) if axis not in axes]
    planes, at = prod(shape[axis] for axis in others), call.at(0)
    if [shape[axis] for axis in others] != [to[axis] for axis in others]:
        raise NotSettled("it resizes the batch or the channels")
    runs = sum(-(-shape[axis] // max(planes, 1)) for axis in axes)
    if not planes or runs * max(prod(shape), prod(to)) > MOST:
        raise NotSettled(f"it blends too many elements to be asked how: {prod(shape):,}")
    run, held = _runnable(call, {at})
    # every plane has a one at another place of the axis, and zeros: it becomes a column of weights
    number = np.arange(planes).reshape([shape[a] if a in others else 1 for a in range(rank)])
    taps = []
    for axis in axes:
        place = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(rank)])
        columns = []
        for start in range(0, shape[axis], planes):
            ones = np.broadcast_to((number + start == place).astype(np.float64), shape)
            held[at] = _in_format(ones, call.dtype())
            answer = np.asarray(run([held[n] for n in sorted(held)])[0])
            answer = floats.widen(answer, "bfloat16") if call.dtype() == "bfloat16" else answer
            first = tuple(0 if a in axes and a != axis else slice(None) for a in range(rank))
            line = np.moveaxis(answer[first], sum(a < axis for a in others), -1)
            columns.append(line.reshape(planes, to[axis]))
        matrix = np.concatenate(columns).T.astype(np.float64)
        if not np.allclose(matrix.sum(1), 1, atol=1e-3):
            raise NotSettled("its weights do not add up to 1: it is no resize")
        matrix = np.round(matrix * 2.0**FINE) / 2.0**FINE
        most = int((matrix != 0).sum(1).max(initial=1))
        index = np.argsort(matrix == 0, axis=1, kind="stable")[:, :most]
        taps.append((axis, index, np.take_along_axis(matrix, index, 1)))
    return Blends(tuple(taps))


# at places that indices name: these are known while a run goes on, so no operation is asked


SEVERAL = "several updates go to one place"


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
    places: np.ndarray = (lines[:, None] * inner + np.arange(inner)).reshape(*ahead, *shape[depth:])
    return places


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
    shape, update_shape = call.gives[0], call.shape(updates)
    if adds:  # updates broadcast to the places, and are added there in any order
        build = StepBuilder(call.count)
        wide = Broadcasts(tuple(range(places.ndim - call.rank(updates), places.ndim)))
        terms = build.add(wide, call.places(updates), places.shape)
        first = build.add(Made(0), (), shape) if into is None else call.at(into)
        build.add(Accumulates(places.reshape(-1)), (first, terms), shape)
        return build.done()
    if len(np.unique(places)) < places.size:
        return Unknown(SEVERAL)
    start = 0 if into is None else prod(shape)
    index = flat_places(shape) if into is not None else np.full(shape, -1)
    put = np.broadcast_to(flat_places(update_shape), places.shape)
    index.reshape(-1)[places.reshape(-1)] = start + put.reshape(-1)
    constants = np.zeros(shape, call.dtypes[0] if call.dtypes else np.float32)
    shapes = (update_shape,) if into is None else (shape, update_shape)
    data = tuple(range(len(shapes)))
    slots = (updates,) if into is None else (into, updates)
    return reads_of(call, Mapped(data, shapes, (Map(index, constants),)), *slots)


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
