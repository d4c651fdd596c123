"""Runs a model in pieces and lays what they give beside the whole: chunks, tiles, prefixes, and
steps behind a state.

Before any bit is compared it is asked what an output of the whole reads, by running the whole with
other content: outside of a piece (outputs that change need more than the piece has), before and
behind a seam (the smallest overlap at which nothing changes), and at neighbouring seams (outputs
move on in steps of the grid on which pieces have to begin). Where the outputs lie along the input
is read off runs at other lengths. So nothing has to be known of the model.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, product
from math import ceil
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import Foreign, InputError, Nondeterministic, ProbeError, foreign
from probe.diff.repeated import HALF, aligned, close, contents, differing, unheard
from probe.explain.outputs import (
    OutputDifference,
    output_difference,
    with_window,
)
from probe.record.recording import Run
from probe.targets import budget

Arrays = Mapping[str, np.ndarray]
Plain = Callable[[Arrays], list[np.ndarray]]

# One piece, from its inputs and what the one before left (None: nothing yet): its outputs but for
# the state, and the state that it leaves. It may not change what it is given.
Step = Callable[[Arrays, Any], tuple[list[np.ndarray], Any]]

HOW = (
    "write prefix:P, chunks:C[+overlap:K], tiles:HxW[+overlap:K], stream:C, cached:P+1*N or draft:D"
)

_FORMS = (
    re.compile(r"(?P<kind>prefix|stream|draft):(?P<first>\d+)"),
    re.compile(r"(?P<kind>chunks):(?P<first>\d+)(\+overlap:(?P<overlap>\d+))?"),
    re.compile(r"(?P<kind>tiles):(?P<first>\d+)x(?P<second>\d+)(\+overlap:(?P<overlap>\d+))?"),
    re.compile(r"(?P<kind>cached):(?P<first>\d+)\+(?P<second>\d+)\*(?P<times>\d+)"),
)


@dataclass(frozen=True)
class Piece:
    """What a piece is given along each axis, and what of it is kept: [start, stop) of the input."""

    given: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]

    @property
    def text(self) -> str:
        """The part that is kept, as Python's slice."""
        return ", ".join(f"{start}:{stop}" for start, stop in self.kept)


@dataclass(frozen=True)
class Schedule:
    """In which pieces an input is computed: as ``text`` says, see ``HOW``.

    ``sizes``: of a piece along each axis; of ``cached`` of the prompt and of a step, ``times`` of
    them; ``draft``: of what is computed at once behind all that stands before.
    """

    text: str
    kind: str
    sizes: tuple[int, ...]
    overlap: int = 0
    times: int = 0

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Reads a schedule. InputError."""
        match = next(filter(None, (form.fullmatch(text.strip()) for form in _FORMS)), None)
        if match is None:
            raise InputError("at", text, "it is no schedule", HOW)
        words = match.groupdict()
        sizes = tuple(int(words[name]) for name in ("first", "second") if words.get(name))
        if not all(sizes):
            raise InputError("at", text, "a piece of nothing", "give sizes from 1 on")
        more = {name: int(words.get(name) or 0) for name in ("overlap", "times")}
        return cls(text.strip(), words["kind"], sizes, **more)

    @property
    def axes(self) -> int:
        return 2 if self.kind == "tiles" else 1

    @property
    def stateful(self) -> bool:
        """Whether each piece gets what the one before it left."""
        return self.kind in ("stream", "cached", "draft")

    def of_size(self, size: int) -> Schedule:
        """The same with pieces of another size along every axis."""
        overlap, sizes = f"+overlap:{self.overlap}" if self.overlap else "", (size,) * self.axes
        words = "x".join(map(str, sizes))
        return Schedule(f"{self.kind}:{words}{overlap}", self.kind, sizes, self.overlap)

    def pieces(self, total: Sequence[int]) -> list[Piece]:
        """Its pieces of an input of these sizes. InputError: it has less than a piece."""
        if any(size > most for size, most in zip(self.sizes, total, strict=False)):
            sizes = "x".join(map(str, total))
            raise InputError("at", self.text, f"the input has {sizes}", "give smaller pieces")
        if self.kind == "prefix":
            return [Piece(((0, self.sizes[0]),), ((0, self.sizes[0]),))]
        if self.kind in ("cached", "draft"):
            prompt, step = self.sizes if self.kind == "cached" else (total[0] - self.sizes[0],) * 2
            stop = prompt + step * self.times if self.times else total[0]
            if not 0 < prompt < stop <= total[0]:
                why = f"it needs {stop} positions, a prompt and steps, and the input has {total[0]}"
                raise InputError("at", self.text, why, "give fewer steps, or a longer input")
            starts = [0, *range(prompt, stop, step)]
            bounds = zip(starts, [*starts[1:], stop], strict=True)
            return [Piece((both,), (both,)) for both in bounds]
        lines = [
            [
                (
                    (max(0, start - self.overlap), min(most, start + size + self.overlap)),
                    (start, min(most, start + size)),
                )
                for start in range(0, most, size)
            ]
            for size, most in zip(self.sizes, total, strict=True)
        ]
        return [
            Piece(tuple(given for given, _ in some), tuple(kept for _, kept in some))
            for some in product(*lines)
        ]


@dataclass(frozen=True)
class Layout:
    """Where an output's entries lie along one axis of the input: along its axis ``axis``, entry i
    at position ``i * step``."""

    axis: int
    step: Fraction

    def entries(self, start: int, stop: int, most: tuple[int, int]) -> tuple[int, int]:
        """The output's entries of the input's positions [start, stop). ``most``: both sizes."""
        last = most[1] if stop == most[0] else min(most[1], ceil(stop / self.step))
        return min(most[1], ceil(start / self.step)), last


@dataclass
class Compared:
    """A piece beside the whole. ``differences``: of each output by index, ``window`` being those
    that read other inputs; ``far``: elements that differ by more than rounding though they don't.
    ``lost``: elements that the piece should give and doesn't; ``doubled``: that it gives besides,
    of a schedule without an overlap; ``between``: it begins between two entries of an output, so
    that nothing can be laid beside it."""

    piece: Piece
    differences: list[OutputDifference]
    far: int = 0
    lost: int = 0
    doubled: int = 0
    between: bool = False

    @property
    def apart(self) -> int:
        """Elements that differ though they read nothing beyond the piece."""
        return sum(each.differing - each.window_apart for each in self.differences)

    @property
    def window(self) -> int:
        """Elements that read other inputs than the whole's."""
        return sum(each.window for each in self.differences)

    def to_json(self) -> dict[str, Any]:
        words = ("far", "lost", "doubled", "between", "window")
        entry = {"given": self.piece.given, "kept": self.piece.kept}
        entry |= {name: getattr(self, name) for name in words}
        return entry | {"outputs": [each.to_json() for each in self.differences]}


@dataclass(frozen=True)
class Context:
    """What pieces need along one axis: so many positions before and behind what is kept, None:
    everything there; beginnings at multiples of ``grid``, None: not known."""

    before: int | None
    after: int | None
    grid: int | None

    @property
    def words(self) -> str:
        sides = ((self.before, "before"), (self.after, "behind"))
        parts = [f"{'all' if n is None else n} {where}" for n, where in sides]
        text = f"outputs read {' and '.join(parts)} what is kept"
        return (
            text if self.grid in (None, 1) else f"{text}; pieces begin at multiples of {self.grid}"
        )


@dataclass
class InPieces:
    """A model and its input, computed whole and in pieces.

    ``run``: the model unwatched, from arrays by name; ``arrays``: its inputs; ``along``: of each
    axis that is cut, the axis of each input. ``step``: the same behind a state; None: pieces have
    none. ``dtypes``: of inputs whose containers don't say. Errors: Nondeterministic where the whole
    does not repeat its bits; InputError where no output follows the input along this axis.
    """

    run: Plain
    arrays: Arrays
    along: Sequence[Mapping[str, int]]
    step: Step | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    formats: Sequence[str] = ()
    """Of the outputs: the container of bfloat16 holds integers, and doesn't say it."""

    def __post_init__(self) -> None:
        # what differs from run to run would be read as what every piece does
        self.whole, again = self.run(self.arrays), self.run(self.arrays)
        self.forms = self.formats or [str(array.dtype) for array in self.whole]
        if [a.tobytes() for a in self.whole] != [a.tobytes() for a in again]:
            raise Nondeterministic("the whole does not repeat its own bits")
        first = [next(iter(each.items())) for each in self.along]
        self.sizes = [self.arrays[name].shape[axis] for name, axis in first]
        self.layouts = [self._layouts(number) for number in range(len(self.along))]
        follows = [
            all(each[n] is not None for each in self.layouts) for n in range(len(self.whole))
        ]
        if not any(follows):
            axes = ", ".join(f"{name}:{axis}" for name, axis in first)
            why = "no output has more entries where the input is longer along it"
            raise InputError("vary", axes, why, "name another axis: --vary schedule:NAME:AXIS")

    def computed(
        self, pieces: Sequence[Piece], arrays: Arrays | None = None, state: Any = None
    ) -> Iterator[list[np.ndarray]]:
        """Yields the outputs of each piece in turn, with the state that the one before left.
        ``state``: of the first of them."""
        for piece in pieces:
            outputs, state = self._stepped(piece, arrays, state)
            yield outputs

    def states(self, pieces: Sequence[Piece], arrays: Arrays | None = None) -> list[Any]:
        """What each piece is given by the one before it; None where it is given nothing."""
        states = [None]
        for piece in pieces[:-1] if self.step else ():
            states.append(self._stepped(piece, arrays, states[-1])[1])
        return states if self.step else [None] * len(pieces)

    def _stepped(
        self, piece: Piece, arrays: Arrays | None, state: Any
    ) -> tuple[list[np.ndarray], Any]:
        arrays = self.cut(piece.given, arrays)
        return (self.run(arrays), None) if self.step is None else self.step(arrays, state)

    def cut(
        self, given: Sequence[tuple[int, int]], arrays: Arrays | None = None
    ) -> dict[str, np.ndarray]:
        """The inputs cut along each axis, in memory of their own."""
        arrays = dict(self.arrays if arrays is None else arrays)
        for each, (start, stop) in zip(self.along, given, strict=True):
            for name, axis in each.items():
                index = (slice(None),) * axis + (slice(start, stop),)
                arrays[name] = np.array(arrays[name][index], order="C")
        return arrays

    def _tried(self, number: int, size: int) -> list[tuple[int, ...]] | None:
        """The shapes of outputs at another size; None: the model doesn't run there."""
        given = [(0, most) for most in self.sizes]
        given[number] = 0, size
        # a model may refuse a size, as a U-Net does what it can't halve: no size is a smaller one
        try:
            with unheard():
                return [array.shape for array in foreign(self.run, self.cut(given))]
        except (Foreign, ProbeError):
            return None

    def _layouts(self, number: int) -> list[Layout | None]:
        """Of each output, how it follows the input's size; None: it doesn't."""
        most, shapes = self.sizes[number], {self.sizes[number]: [a.shape for a in self.whole]}

        def tried(size: int) -> list[tuple[int, ...]] | None:
            if size not in shapes:
                shapes[size] = self._tried(number, size) or []
            return shapes[size] or None

        layouts = list[Layout | None]()
        for n, output in enumerate(self.whole):
            # the sizes from which on the output has as many entries as now, and the one before
            starts, at = list[tuple[int, int]](), most
            axis = None
            for _ in range(2):
                here = shapes[at][n]

                def smaller(size: int, here: tuple[int, ...] = here, n: int = n) -> bool:
                    there = tried(size)
                    return there is None or there[n] != here

                below = _last(smaller, at)
                there = None if below is None else tried(below)
                start = None if below is None else below + 1
                if there is None:  # it may take whole windows alone: what is refused says nothing
                    windows = (size for size in range(1, at) if at % size == 0)
                    runs = (
                        at - size for size in windows if tried(at - size) and smaller(at - size)
                    )
                    below = next(runs, None)
                    there, start = None if below is None else tried(below), at
                if below is None or there is None or len(there[n]) != output.ndim:
                    break
                axes = [k for k in range(output.ndim) if there[n][k] != here[k]]
                if len(axes) != 1 or axis not in (None, axes[0]):
                    break
                axis = axes[0]
                starts.append((start or 0, here[axis]))
                at = below
            if axis is None or len(starts) < 2:
                layouts.append(None)
                continue
            (first, larger), (second, less) = starts
            # between two sizes at which it grows lie the positions that one more entry takes
            step = Fraction(first - second, larger - less)
            layouts.append(Layout(axis, step) if step > 0 else None)
        return layouts

    def changed(
        self, where: Callable[[int, int], np.ndarray], number: int | None = None
    ) -> list[np.ndarray]:
        """Which elements of the outputs change their bits with other content at places of an axis
        (``where`` says from its number and size which; ``number``: of this one alone)."""
        # bits, not numbers: an element that nothing moves by the last digit reads nothing there
        marks = [np.zeros(array.shape, bool) for array in self.whole]
        for other in self.others(where, number):
            with unheard():
                outputs = self.run(other)
            for mark, ours, theirs, form in zip(
                marks, self.whole, outputs, self.forms, strict=True
            ):
                mark |= ours.shape != theirs.shape or differing(ours, theirs, form)
        return marks

    def others(
        self, where: Callable[[int, int], np.ndarray], number: int | None = None
    ) -> Iterator[Arrays]:
        """Yields its inputs with other content at places of an axis, as of ``changed``."""
        places = {name: np.zeros(array.shape, bool) for name, array in self.arrays.items()}
        for order, each in enumerate(self.along):
            if number in (None, order):
                line = where(order, self.sizes[order])
                for name, axis in each.items():
                    places[name] |= line.reshape(-1, *(1,) * (places[name].ndim - axis - 1))
        if any(place.any() for place in places.values()):
            yield from contents(self.arrays, places, self.dtypes)

    def reads_apart(self, pieces: Sequence[Piece], most: int = 16) -> list[list[np.ndarray]] | None:
        """Of each piece's outputs, which elements read a position that the same ones of the whole
        don't, or don't read one that those do: positions one by one, at seams, as far apart as
        ``most`` of them allow, and some others. None: there was no time for it.

        A change counts on the one side only where it is larger than rounding, and nothing at all
        moves on the other: far positions may be lost in what is rounded away."""
        # a mask that is off by one, or a state that is dropped, shows beside a seam
        edges = sorted({edge for piece in pieces for edge in piece.kept[0]} - {0})
        some = {edges[n] for n in np.linspace(0, len(edges) - 1, most // 2).astype(int)}
        last = self.sizes[0] - 1
        spread = {*np.linspace(0, last, most // 2).astype(int).tolist()}
        positions = sorted({min(edge + n, last) for edge in some for n in (-1, 0)} | spread)
        ours, states = [*self.computed(pieces)], self.states(pieces)
        apart = [[np.zeros(array.shape, bool) for array in outputs] for outputs in ours]
        for position in positions:
            if budget.spent():
                return None
            whole = self._marks(self.whole)
            parts = [self._marks(outputs) for outputs in ours]
            # behind a state no piece before this position moves
            reached = (n for n, piece in enumerate(pieces) if piece.given[0][1] > position)
            begin = next(reached, 0) if self.step else 0

            def at(_: int, size: int, position: int = position) -> np.ndarray:
                return np.arange(size) == position

            # one large content and a random one: four would cost twice the runs. Larger numbers
            # would show smaller mistakes, but a scan in bfloat16 breaks down on them
            for other in [*self.others(at, 0)][::2]:
                with unheard():
                    self._mark(whole, self.whole, self.run(other))
                    later = self.computed(pieces[begin:], other, states[begin])
                    for number, outputs in enumerate(later, begin):
                        self._mark(parts[number], ours[number], outputs)
            for number, piece in enumerate(pieces):
                for output in range(len(self.whole)):
                    there = self.places(piece, output, ours[number][output].shape)
                    if there is None:
                        continue
                    theirs, here = there
                    any_whole, far_whole = (mark[theirs] for mark in whole[output])
                    any_part, far_part = (mark[here] for mark in parts[number][output])
                    apart[number][output][here] |= (far_whole & ~any_part) | (far_part & ~any_whole)
        return apart

    @staticmethod
    def _marks(outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """For each output, where its bits change, and where by more than rounding: (2, *shape)."""
        return [np.zeros((2, *array.shape), bool) for array in outputs]

    def _mark(
        self,
        marks: Sequence[np.ndarray],
        before: Sequence[np.ndarray],
        after: Sequence[np.ndarray],
    ) -> None:
        for mark, ours, theirs, dtype in zip(marks, before, after, self.forms, strict=True):
            mark[0] |= ours.shape != theirs.shape or differing(ours, theirs, dtype)
            mark[1] |= far_apart(ours, theirs, dtype)

    def kept(self, piece: Piece, output: int) -> tuple[slice, ...] | None:
        """Where an output has what a piece keeps; None: it doesn't follow the input."""
        index = [slice(None)] * self.whole[output].ndim
        for number, (start, stop) in enumerate(piece.kept):
            layout = self.layouts[number][output]
            if layout is None:
                return None
            most = self.sizes[number], self.whole[output].shape[layout.axis]
            index[layout.axis] = slice(*layout.entries(start, stop, most))
        return tuple(index)

    def places(
        self, piece: Piece, output: int, shape: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """Where the whole and a piece (of this shape) have what the piece keeps; None: the output
        doesn't follow the input, or the piece begins between two of its entries."""
        index = self.kept(piece, output)
        if index is None:
            return None
        there, here = list(index), list(index)
        for order, (start, _) in enumerate(piece.given):
            layout = self.layouts[order][output]
            assert layout is not None
            shift = start / layout.step
            if shift.denominator != 1:
                return None
            begin, end = index[layout.axis].start, index[layout.axis].stop
            stop = max(begin, min(end, shape[layout.axis] + int(shift)))
            there[layout.axis] = slice(begin, stop)
            here[layout.axis] = slice(begin - int(shift), stop - int(shift))
        return tuple(there), tuple(here)

    def beside(
        self, piece: Piece, outputs: Sequence[np.ndarray], apart: Sequence[np.ndarray] = ()
    ) -> Compared:
        """Lays a piece's outputs beside the whole's, and marks those that read other inputs:
        beyond the piece, or as ``apart`` says."""

        def outside(order: int, size: int) -> np.ndarray:
            start, stop = piece.given[order]
            at = np.arange(size)
            # a state holds what stands before
            return at >= stop if self.step else (at < start) | (at >= stop)

        beyond, compared = self.changed(outside), Compared(piece, [])
        for number, (whole, part) in enumerate(zip(self.whole, outputs, strict=True)):
            index = self.kept(piece, number)
            if index is None:  # as of a mean over the input: no piece has it, nor is it compared
                why = "an output does not follow the input, and pieces don't have it"
                nothing = OutputDifference(part.shape, whole.shape, 0, np.zeros(0, bool))
                missing = replace(nothing, not_compared=whole.size, why=why)
                compared.differences.append(missing)
                continue
            both = self.places(piece, number, part.shape)
            if both is None:
                return replace(compared, differences=[], between=True)
            there, here = both
            compared.lost += whole[index].size - whole[there].size
            if piece.given == piece.kept:
                compared.doubled += part.size - part[here].size
            dtype = self.forms[number]
            difference = output_difference(part[here], whole[there], (dtype, dtype))
            window = beyond[number][there] | (apart[number][here] if apart else False)
            compared.far += int(np.sum(far_apart(part[here], whole[there], dtype) & ~window))
            compared.differences.append(with_window(difference, window))
        return compared

    def context(self, pieces: Sequence[Piece]) -> list[Context]:
        """What these pieces need along each axis, asked at all of their seams, as long as there is
        time."""
        if self.step is not None:  # a state has what stands before
            return [Context(None, None, None) for _ in self.along]
        return [self._context(number, pieces) for number in range(len(self.along))]

    def _context(self, number: int, pieces: Sequence[Piece]) -> Context:
        most = self.sizes[number]
        spans = sorted({piece.kept[number] for piece in pieces})
        sides = list[int | None]()
        for behind in (False, True):
            # an overlap that is enough at one seam is tried at the next: most agree
            need = unlimited = 0
            seams = [s for s in spans if (s[1] < most if behind else s[0] > 0)]
            # the seam with the most content beyond it first: what reads everything shows there
            for span in sorted(seams, key=lambda s: s[0], reverse=not behind):
                if budget.spent():
                    break
                room = most - span[1] if behind else span[0]

                def enough(size: int, span: tuple[int, int] = span, behind: bool = behind) -> bool:
                    return self._enough(number, span, behind, size)

                if need >= room or enough(need):
                    continue
                need += 1 + bisect_left(range(need + 1, room), True, key=enough)
                unlimited = int(need == room)
                if unlimited:
                    break
            sides.append(None if unlimited else need)
        return Context(sides[0], sides[1], self._grid(number))

    def _enough(self, number: int, span: tuple[int, int], behind: bool, size: int) -> bool:
        """Whether what is kept of ``span`` doesn't change with what lies ``size`` beyond it."""

        def beyond(order: int, count: int) -> np.ndarray:
            at = np.arange(count)
            return at >= span[1] + size if behind else at < span[0] - size

        whole = tuple((0, most) for most in self.sizes)
        given = (*whole[:number], span, *whole[number + 1 :])
        marks = self.changed(beyond, number)
        for output, mark in enumerate(marks):
            index = self.kept(Piece(whole, given), output)
            if index is not None and mark[index].any():
                return False
        return True

    def _grid(self, number: int) -> int | None:
        """By how many positions a seam moves until the first output that reads behind it moves."""
        most = self.sizes[number]

        def first(at: int) -> int | None:
            marks = self.changed(lambda _, count: np.arange(count) >= at, number)
            for output, mark in enumerate(marks):
                layout = self.layouts[number][output]
                if layout is not None and mark.any():
                    lines = mark.any(axis=tuple(k for k in range(mark.ndim) if k != layout.axis))
                    return int(np.argmax(lines))
            return None

        # from the middle on, where no edge is near; three jumps, so that one irregular one shows
        jumps, at = list[int](), most // 2
        here = first(at)
        while len(jumps) < 3 and here is not None and not budget.spent():
            width = 1
            while at + width < most and first(at + width) == here:
                width *= 2
            if at + width >= most:
                return None
            low = at + width // 2 + 1
            apart = lambda start, here=here: first(start) != here  # noqa: E731
            jumps.append(low + bisect_left(range(low, at + width), True, key=apart))
            at, here = jumps[-1], first(jumps[-1])
        widths = {b - a for a, b in pairwise(jumps)}
        return widths.pop() if len(widths) == 1 else None


class _NotThereError(Exception):
    """A piece begins between two entries of a value, or hasn't all that it keeps of it."""


def first_far(
    runs: tuple[Run, Run], piece: Piece, sizes: Sequence[int], behind: bool
) -> int | None:
    """The first operation of a piece's run, by number, of whose results what the piece keeps is
    further from the whole's than rounding, or lies between two of the whole's; None: there is none
    among those that both have.

    ``sizes``: of the whole's input along the axes that are cut. ``behind``: the piece stands behind
    a state, so that values have its own positions, or all up to its end.
    """
    left, right = runs
    # where one side has more blocks, 4 lines of 48 positions would pass for all at a step of 12
    strides = [op.op for op in left.operations] == [op.op for op in right.operations]
    for number, partner in aligned(left.operations, right.operations):
        op, other = left.operations[number], right.operations[partner]
        if len(op.gives) != len(other.gives):  # blocks, of which the whole has more
            continue
        gives = [*zip(op.gives, other.gives, strict=True)]
        # where a maximum stood is counted from where the piece begins
        numbers = [both for both in gives if left.values[both[0]].floating] or gives
        ends = [*zip(op.reads, other.reads, strict=False), *numbers]
        far = {n for n, m in ends if _is_far(runs, n, m, piece, sizes, (behind, strides))}
        if far:
            # what reads it is not to blame for what an operation that the whole lacks has given
            before = [left.values[n].given for n in op.reads if n in far]
            return before[0] if before and before[0] >= 0 else number
    return None


def first_longer(run: Run, axis: int) -> int:
    """The operation from which on a run's first output has so many lines along an axis."""
    value = run.values[run.outputs[0]]
    while value.given >= 0:
        reads = [run.values[n] for n in run.operations[value.given].reads]
        # turned axes are looked through: any axis may have as many lines
        longer = [each for each in reads if each.given >= 0 and value.shape[axis] in each.shape]
        if not longer:
            break
        axis, value = longer[0].shape.index(value.shape[axis]), longer[0]
    return value.given


def _is_far(
    runs: tuple[Run, Run],
    n: int,
    m: int,
    piece: Piece,
    sizes: Sequence[int],
    how: tuple[bool, bool],
) -> bool:
    values = runs[0].values[n], runs[1].values[m]
    shapes = values[0].shape, values[1].shape
    if values[0].dtype != values[1].dtype or len(shapes[0]) != len(shapes[1]) or not shapes[0]:
        return False
    axes = [axis for axis, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b]
    cut = [
        k for k, (at, size) in enumerate(zip(piece.given, sizes, strict=True)) if at != (0, size)
    ]
    if not axes or (len(cut) > 1 and len(axes) != len(cut)):
        return False
    index = [[slice(None)] * len(shapes[0]) for _ in range(2)]
    for number, axis in enumerate(axes):
        along = cut[number if len(cut) > 1 else 0]
        span = piece.given[along], piece.kept[along], sizes[along]
        try:
            both = _beside(span, (shapes[0][axis], shapes[1][axis]), how)
        except _NotThereError:
            return True
        if both is None:
            return False
        for side in range(2):
            index[side][axis] = both[side]
    left, right = runs[0].array(n), runs[1].array(m)
    if left is None or right is None:
        return False
    ours, theirs = left[tuple(index[0])], right[tuple(index[1])]
    return bool(np.any(far_apart(ours, theirs, values[0].dtype)))


def _beside(
    span: tuple[tuple[int, int], tuple[int, int], int],
    counts: tuple[int, int],
    how: tuple[bool, bool],
) -> tuple[slice, slice] | None:
    """Which lines of a piece's value and of the whole's are what the piece keeps: ``span`` is what
    it is given, what it keeps and the size of the whole, ``counts`` the lines of both, ``how``
    whether it stands behind a state, and whether there may be strides. None: not known."""
    (start, stop), (begin, end), total = span
    count, most = counts
    if not count or not most:
        return None
    # padding and windows take some lines from either end; the step is that of most of them
    step = Fraction(round(total / most)) if most <= total else 1 / Fraction(round(most / total))
    behind, strides = how
    if step != 1 and not strides:
        return None
    if behind:
        shift, missing = (0 if count * step == stop else start), stop - start - count * step
        if 0 < missing == total - most * step:
            raise _NotThereError
        if missing and shift:
            return None
        first = ceil(shift / step)
        return slice(None), slice(first, first + count)
    if abs(count * step - (stop - start)) > abs(most * step - total) + step:
        return None
    offset = start / step
    if offset.denominator != 1:
        raise _NotThereError
    low, high = ceil(begin / step), min(ceil(end / step), most)
    if high > int(offset) + count:
        raise _NotThereError
    return slice(low - int(offset), high - int(offset)), slice(low, high)


@dataclass
class Placed:
    """Outputs of pieces, laid along one axis of the whole's."""

    pieces: list[Compared]
    gaps: list[tuple[int, int]]
    """Lines [start, stop) of that axis that no piece has."""
    uncovered: int
    """Elements of the whole on these lines."""


def placed_pieces(parts: Sequence[np.ndarray], whole: np.ndarray, dtype: str) -> Placed:
    """Lays outputs of pieces beside the whole's: one behind the other along the axis in which they
    are shorter, or where their numbers are near if they aren't there. InputError: they have no such
    axis."""
    axes = {
        axis
        for part in parts
        for axis, (n, m) in enumerate(zip(part.shape, whole.shape, strict=False))
        if n != m
    }
    if any(part.ndim != whole.ndim or part.dtype != whole.dtype for part in parts) or len(axes) > 1:
        forms = ", ".join(f"{part.dtype} {list(part.shape)}" for part in parts[:3])
        why = f"the whole gives {whole.dtype} {list(whole.shape)}"
        raise InputError("pieces", forms, why, "return pieces of it, cut along one axis")
    axis = axes.pop() if axes else 0
    most = whole.shape[axis] if whole.ndim else 1
    line_size = whole.size // max(1, most)
    given, pieces, at = np.zeros(most, int), list[Compared](), 0
    for part in parts:
        size = part.shape[axis] if part.ndim else 1
        at = _place(part, whole, axis, at, dtype)
        index = (slice(None),) * axis + (slice(at, at + size),) if whole.ndim else ()
        there = whole[index]
        own = (slice(None),) * axis + (slice(there.shape[axis]),) if whole.ndim else ()
        compared = Compared(Piece(((at, at + size),), ((at, at + size),)), [])
        beyond = max(0, at + size - most)  # it is longer than the whole
        compared.doubled = (int((given[at : at + size] > 0).sum()) + beyond) * line_size
        compared.far = int(np.sum(far_apart(part[own], there, dtype)))
        compared.differences = [output_difference(part[own], there, (dtype, dtype))]
        pieces.append(compared)
        given[at : at + size] += 1
        at += size
    edges = np.flatnonzero(np.diff(given == 0, prepend=False, append=False)).tolist()
    gaps = [*zip(edges[::2], edges[1::2], strict=True)]
    if len(parts) > 1:  # a single piece is a part of the whole, and has no seam
        for start, stop in gaps:
            behind = [each for each in pieces if each.piece.kept[0][0] >= stop]
            beside = min(behind or pieces[-1:], key=lambda each: each.piece.kept[0][0])
            beside.lost += (stop - start) * line_size
    return Placed(pieces, gaps, int((given == 0).sum()) * line_size)


def _place(part: np.ndarray, whole: np.ndarray, axis: int, at: int, dtype: str) -> int:
    """Where along an axis the numbers of a piece are near the whole's: at ``at`` if they are there,
    or nowhere."""
    if not part.ndim:
        return 0
    ours, theirs = (np.moveaxis(array, axis, 0) for array in (part, whole))
    limit = 0.0
    if dtype in floats.FORMATS:
        ours, theirs = (floats.widen(array, dtype) for array in (ours, theirs))
        largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
        limit = floats.eps(dtype) ** HALF * largest
    last = max(0, len(theirs) - len(ours))
    for start in (min(at, last), *range(last + 1)):
        there = theirs[start : start + len(ours)]
        if len(there) == len(ours):
            with np.errstate(all="ignore"):
                near = (ours == there) | ((ours != ours) & (there != there))
                near |= np.abs(ours - there) <= limit if limit else False
            if near.all():
                return start
    return min(at, last)


def _last(test: Callable[[int], bool], most: int) -> int | None:
    """The largest number below ``most`` of which the test holds; None: of none from 1 on. It holds
    below where it holds."""
    width = 1
    while most - width >= 1 and not test(most - width):
        width *= 2
    low, high = max(most - width, 1), most - width // 2
    if width >= most and not test(1):
        return None
    return low + bisect_left(range(low + 1, high), True, key=lambda size: not test(size))


def far_apart(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray | bool:
    """Where numbers differ by more than rounding: everywhere, if shapes do."""
    if left.shape != right.shape:
        return True
    # half of the digits: two orders of one sum never come that far apart but where it cancels,
    # and what reads another position does
    changed = np.asarray(differing(left, right, dtype))
    return changed & ~close(right, left, dtype) if dtype in floats.FORMATS else changed
