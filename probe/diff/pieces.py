"""Runs a model in pieces and lays what they give beside the whole: chunks, tiles, prefixes, and
steps behind a state.

Before any bit is compared it is found what an output of the whole reads, by running the whole with
different content: outside of a piece (outputs that change need more than the piece has), before and
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
from probe.diff.alone import evenly
from probe.diff.repeated import HALF_OF_DIGITS, aligned, close, contents, differing, unheard
from probe.explain.outputs import (
    OutputDifference,
    output_difference,
    with_window,
)
from probe.record.recording import Run
from probe.targets import budget

Arrays = Mapping[str, np.ndarray]
# Runs the model unwatched: from its inputs by name to its outputs.
Plain = Callable[[Arrays], list[np.ndarray]]

# Runs one piece, from its inputs and the state that the piece before left (None: none yet), to its
# outputs but for the state, and the state that it leaves. It may not change its arguments.
Step = Callable[[Arrays, Any], tuple[list[np.ndarray], Any]]

HOW = (
    "write prefix:P, chunks:C[+overlap:K], tiles:HxW[+overlap:K], stream:C, cached:P+1*N or draft:D"
)

_FORMS = (
    re.compile(r"(?P<kind>prefix|stream|draft):(?P<first>\d+)"),
    re.compile(r"(?P<kind>chunks):(?P<first>\d+)(\+overlap:(?P<overlap>\d+))?"),
    re.compile(r"(?P<kind>tiles):(?P<first>\d+)x(?P<second>\d+)(\+overlap:(?P<overlap>\d+))?"),
    re.compile(r"(?P<kind>cached):(?P<first>\d+)\+(?P<second>\d+)\*(?P<steps>\d+)"),
)


Span = tuple[int, int]  # [start, stop)


@dataclass(frozen=True)
class Piece:
    """A piece of the input, by its spans along each axis that is cut."""

    inputs: tuple[Span, ...]
    """What it is computed from."""
    kept: tuple[Span, ...]
    """What of it is kept."""

    @property
    def text(self) -> str:
        """The part that is kept, as Python's slice."""
        return ", ".join(f"{start}:{stop}" for start, stop in self.kept)


@dataclass(frozen=True)
class Schedule:
    """In which pieces an input is computed: as ``text`` says, see ``HOW``."""

    text: str
    kind: str
    sizes: tuple[int, ...]
    """Of a piece along each axis; of ``cached`` of the prompt and of a step; of ``draft`` of what
    is computed at once behind all that stands before."""
    overlap: int = 0
    steps: int = 0
    """How many steps ``cached`` has behind its prompt; 0 of the other kinds."""

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
        more = {name: int(words.get(name) or 0) for name in ("overlap", "steps")}
        return cls(text.strip(), words["kind"], sizes, **more)

    @property
    def axes(self) -> int:
        return 2 if self.kind == "tiles" else 1

    @property
    def stateful(self) -> bool:
        """Each piece gets what the piece before it left."""
        return self.kind in ("stream", "cached", "draft")

    def of_size(self, size: int) -> Schedule:
        """The same with pieces of another size along every axis."""
        overlap, sizes = f"+overlap:{self.overlap}" if self.overlap else "", (size,) * self.axes
        text = f"{self.kind}:{'x'.join(map(str, sizes))}{overlap}"
        return Schedule(text, self.kind, sizes, self.overlap)

    def pieces(self, total: Sequence[int]) -> list[Piece]:
        """Its pieces of an input of these sizes. InputError: it has less than a piece."""
        if any(size > most for size, most in zip(self.sizes, total, strict=False)):
            sizes = "x".join(map(str, total))
            raise InputError("at", self.text, f"the input has {sizes}", "give smaller pieces")
        if self.kind == "prefix":
            return [Piece(((0, self.sizes[0]),), ((0, self.sizes[0]),))]
        if self.kind in ("cached", "draft"):
            prompt, step = self.sizes if self.kind == "cached" else (total[0] - self.sizes[0],) * 2
            stop = prompt + step * self.steps if self.steps else total[0]
            if not 0 < prompt < stop <= total[0]:
                why = f"it needs {stop} positions, a prompt and steps, and the input has {total[0]}"
                raise InputError("at", self.text, why, "give fewer steps, or a longer input")
            starts = [0, *range(prompt, stop, step)]
            bounds = zip(starts, [*starts[1:], stop], strict=True)
            return [Piece((span,), (span,)) for span in bounds]
        spans = [
            [(start, min(most, start + size)) for start in range(0, most, size)]
            for size, most in zip(self.sizes, total, strict=True)
        ]
        return [
            Piece(
                tuple(
                    (max(0, start - self.overlap), min(most, stop + self.overlap))
                    for (start, stop), most in zip(kept, total, strict=True)
                ),
                kept,
            )
            for kept in product(*spans)
        ]


@dataclass(frozen=True)
class Layout:
    """Where an output's entries lie along one axis of the input: entry i of the output's axis
    ``axis`` at position ``i * step``."""

    axis: int
    step: Fraction

    def entries(self, start: int, stop: int, sizes: tuple[int, int]) -> tuple[int, int]:
        """The output's entries of the input's positions [start, stop), as [first, end).

        ``sizes``: of the input and of the output, each along its axis.
        """
        positions, entries = sizes
        end = entries if stop == positions else min(entries, ceil(stop / self.step))
        return min(entries, ceil(start / self.step)), end


@dataclass
class ComparedPiece:
    """A piece beside the whole."""

    piece: Piece
    differences: list[OutputDifference]
    """Of each output by index; their ``window`` are elements that read other inputs."""
    far: int = 0
    """Elements that differ by more than rounding, though they read the same inputs."""
    lost: int = 0
    """Elements that the piece should give and doesn't."""
    doubled: int = 0
    """Elements that it gives besides, of a schedule without an overlap."""
    between: bool = False
    """It begins between two entries of an output, so that nothing can be compared."""

    @property
    def differing_inside(self) -> int:
        """Elements that differ though they read nothing beyond the piece."""
        return sum(output.differing - output.window_apart for output in self.differences)

    @property
    def window(self) -> int:
        """Elements that read other inputs than the whole's."""
        return sum(output.window for output in self.differences)

    def to_json(self) -> dict[str, Any]:
        counts = ("far", "lost", "doubled", "between", "window")
        entry = {"given": self.piece.inputs, "kept": self.piece.kept}
        entry |= {name: getattr(self, name) for name in counts}
        return entry | {"outputs": [output.to_json() for output in self.differences]}


@dataclass(frozen=True)
class Context:
    """What pieces need along one axis."""

    before: int | None
    """Positions before what is kept; None: all of them."""
    after: int | None
    """Positions behind it, alike."""
    grid: int | None
    """Pieces begin at multiples of this; None: not known."""

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

    Errors: Nondeterministic where the whole does not repeat its bits; InputError where no output
    follows the input along this axis.
    """

    run: Plain
    """The model unwatched."""
    arrays: Arrays
    """Its inputs, by name."""
    along: Sequence[Mapping[str, int]]
    """Of each axis that is cut, the axis of each input."""
    step: Step | None = None
    """The model behind a state; None: pieces have none."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Formats of inputs whose containers don't say."""
    formats: Sequence[str] = ()
    """Of the outputs: the container of bfloat16 holds integers, and doesn't say it."""

    def __post_init__(self) -> None:
        # what differs from run to run would be read as what every piece does
        self.whole_outputs, again = self.run(self.arrays), self.run(self.arrays)
        self.formats = self.formats or [str(array.dtype) for array in self.whole_outputs]
        if [a.tobytes() for a in self.whole_outputs] != [a.tobytes() for a in again]:
            raise Nondeterministic("the whole does not repeat its own bits")
        first = [next(iter(axes.items())) for axes in self.along]
        self.sizes = [self.arrays[name].shape[axis] for name, axis in first]
        self.layouts = [self._layouts(number) for number in range(len(self.along))]
        if not any(None not in layouts for layouts in zip(*self.layouts, strict=True)):
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
        """The state that each piece gets; None where it gets none."""
        states = [None]
        for piece in pieces[:-1]:
            states.append(self._stepped(piece, arrays, states[-1])[1] if self.step else None)
        return states

    def _stepped(
        self, piece: Piece, arrays: Arrays | None, state: Any
    ) -> tuple[list[np.ndarray], Any]:
        arrays = self.cut(piece.inputs, arrays)
        return (self.run(arrays), None) if self.step is None else self.step(arrays, state)

    def cut(self, spans: Sequence[Span], arrays: Arrays | None = None) -> dict[str, np.ndarray]:
        """The inputs cut along each axis, in memory of their own."""
        arrays = dict(self.arrays if arrays is None else arrays)
        for axes, span in zip(self.along, spans, strict=True):
            for name, axis in axes.items():
                arrays[name] = np.array(arrays[name][_index(axis, *span)], order="C")
        return arrays

    def _shapes(self, number: int, size: int) -> list[tuple[int, ...]] | None:
        """The shapes of outputs at another size; None: the model doesn't run there."""
        spans = [(0, most) for most in self.sizes]
        spans[number] = 0, size
        # a model may refuse a size, as a U-Net does what it can't halve: no size is a smaller one
        try:
            with unheard():
                return [array.shape for array in foreign(self.run, self.cut(spans))]
        except (Foreign, ProbeError):
            return None

    def _layouts(self, number: int) -> list[Layout | None]:
        """Of each output, how it follows the input's size; None: it doesn't."""
        most = self.sizes[number]
        shapes_at: dict[int, list[tuple[int, ...]] | None]
        shapes_at = {most: [array.shape for array in self.whole_outputs]}

        def shape(output: int, size: int) -> tuple[int, ...] | None:
            if size not in shapes_at:
                shapes_at[size] = self._shapes(number, size)
            shapes = shapes_at[size]
            return None if shapes is None else shapes[output]

        def layout(output: int) -> Layout | None:
            # the sizes from which on the output has as many entries as now, and the one before
            starts, size, axis = list[tuple[int, int]](), most, -1
            for _ in range(2):
                present = shape(output, size)
                assert present is not None
                smaller = lambda below: shape(output, below) != present  # noqa: B023, E731
                below = _largest_below(smaller, size)
                earlier = None if below is None else shape(output, below)
                start = None if below is None else below + 1
                if earlier is None:  # it may take whole windows alone: a refusal says nothing
                    windows = (width for width in range(1, size) if size % width == 0)
                    shapes = ((size - width, shape(output, size - width)) for width in windows)
                    runs = (each for each in shapes if each[1] not in (None, present))
                    below, earlier = next(runs, (None, None))
                    start = size
                if below is None or earlier is None or len(earlier) != len(present):
                    return None
                axes = [k for k, (n, m) in enumerate(zip(earlier, present, strict=True)) if n != m]
                if len(axes) != 1 or axis not in (-1, axes[0]):
                    return None
                axis = axes[0]
                starts.append((start or 0, present[axis]))
                size = below
            (first, larger), (second, less) = starts
            # between two sizes at which it grows lie the positions that one more entry takes
            step = Fraction(first - second, larger - less)
            return Layout(axis, step) if step > 0 else None

        return [layout(output) for output in range(len(self.whole_outputs))]

    def readers(
        self, where: Callable[[int, int], np.ndarray], number: int | None = None
    ) -> list[np.ndarray]:
        """Which elements of the outputs change their bits with different content at places of an
        axis: bool. ``where``: these places, from the axis' number and size; ``number``: of this
        axis alone."""
        # bits, not numbers: an element that nothing moves by the last digit reads nothing there
        marks = [np.zeros(array.shape, bool) for array in self.whole_outputs]
        for arrays in self.replaced(where, number):
            with unheard():
                outputs = self.run(arrays)
            for mark, before, after, dtype in zip(
                marks, self.whole_outputs, outputs, self.formats, strict=True
            ):
                mark |= before.shape != after.shape or differing(before, after, dtype)
        return marks

    def replaced(
        self, where: Callable[[int, int], np.ndarray], number: int | None = None
    ) -> Iterator[Arrays]:
        """Yields its inputs with different content at places of an axis, as of ``readers``."""
        places = {name: np.zeros(array.shape, bool) for name, array in self.arrays.items()}
        for order, axes in enumerate(self.along):
            if number in (None, order):
                line = where(order, self.sizes[order])
                for name, axis in axes.items():
                    places[name] |= line.reshape(-1, *(1,) * (places[name].ndim - axis - 1))
        if any(place.any() for place in places.values()):
            yield from contents(self.arrays, places, self.dtypes)

    def differing_reads(
        self, pieces: Sequence[Piece], most: int = 16
    ) -> list[list[np.ndarray]] | None:
        """Of each piece's outputs, which elements read a position that the same ones of the whole
        don't, or don't read one that those do: positions one by one: up to ``most``, half of
        them beside seams and half spread over the input. None: there was no time for it.

        It counts where one side changes by more than rounding and the other not by a bit: of a
        distant position both may change by less than the last digit."""
        # a mask that is off by one, or a state that is dropped, shows beside a seam
        edges = np.array(sorted({edge for piece in pieces for edge in piece.kept[0]} - {0}))
        last = self.sizes[0] - 1
        spread = np.linspace(0, last, most // 2).astype(int).tolist()
        seams = evenly(edges, most // 2).tolist()
        positions = sorted({min(seam + n, last) for seam in seams for n in (-1, 0)} | {*spread})
        outputs, states = [*self.computed(pieces)], self.states(pieces)
        unequal = [[np.zeros(array.shape, bool) for array in arrays] for arrays in outputs]
        for position in positions:
            if budget.spent():
                return None
            whole = self._no_marks(self.whole_outputs)
            parts = [self._no_marks(arrays) for arrays in outputs]
            # behind a state no piece before this position moves
            reached = (n for n, piece in enumerate(pieces) if piece.inputs[0][1] > position)
            begin = next(reached, 0) if self.step else 0

            def at(_: int, size: int, position: int = position) -> np.ndarray:
                return np.arange(size) == position

            # one large content and a random one: four would cost twice the runs. Larger numbers
            # would show smaller mistakes, but a scan in bfloat16 breaks down on them
            for arrays in [*self.replaced(at, 0)][::2]:
                with unheard():
                    self._add_marks(whole, self.whole_outputs, self.run(arrays))
                    later = self.computed(pieces[begin:], arrays, states[begin])
                    for number, part in enumerate(later, begin):
                        self._add_marks(parts[number], outputs[number], part)
            for number, piece in enumerate(pieces):
                for output in range(len(self.whole_outputs)):
                    both = self.common_index(piece, output, outputs[number][output].shape)
                    if both is None:
                        continue
                    in_whole, in_piece = both
                    any_whole, far_whole = (mark[in_whole] for mark in whole[output])
                    any_part, far_part = (mark[in_piece] for mark in parts[number][output])
                    one_sided = (far_whole & ~any_part) | (far_part & ~any_whole)
                    unequal[number][output][in_piece] |= one_sided
        return unequal

    @staticmethod
    def _no_marks(outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """For each output, where its bits change, and where by more than rounding: bool
        (2, *shape), all False."""
        return [np.zeros((2, *array.shape), bool) for array in outputs]

    def _add_marks(
        self,
        marks: Sequence[np.ndarray],
        before: Sequence[np.ndarray],
        after: Sequence[np.ndarray],
    ) -> None:
        """Adds to marks (see ``_no_marks``) what differs between the outputs of two runs."""
        for mark, first, second, dtype in zip(marks, before, after, self.formats, strict=True):
            mark[0] |= first.shape != second.shape or differing(first, second, dtype)
            mark[1] |= beyond_rounding(first, second, dtype)

    def kept_index(self, piece: Piece, output: int) -> tuple[slice, ...] | None:
        """Where an output has what a piece keeps; None: it doesn't follow the input."""
        index = [slice(None)] * self.whole_outputs[output].ndim
        for number, (start, stop) in enumerate(piece.kept):
            layout = self.layouts[number][output]
            if layout is None:
                return None
            sizes = self.sizes[number], self.whole_outputs[output].shape[layout.axis]
            index[layout.axis] = slice(*layout.entries(start, stop, sizes))
        return tuple(index)

    def common_index(
        self, piece: Piece, output: int, shape: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """Where the whole and a piece (of this shape) have what the piece keeps; None: the output
        doesn't follow the input, or the piece begins between two of its entries."""
        index = self.kept_index(piece, output)
        if index is None:
            return None
        in_whole, in_piece = list(index), list(index)
        for order, (start, _) in enumerate(piece.inputs):
            layout = self.layouts[order][output]
            assert layout is not None
            shift = start / layout.step
            if shift.denominator != 1:
                return None
            begin, end = index[layout.axis].start, index[layout.axis].stop
            stop = max(begin, min(end, shape[layout.axis] + int(shift)))
            in_whole[layout.axis] = slice(begin, stop)
            in_piece[layout.axis] = slice(begin - int(shift), stop - int(shift))
        return tuple(in_whole), tuple(in_piece)

    def compared(
        self, piece: Piece, outputs: Sequence[np.ndarray], unequal: Sequence[np.ndarray] = ()
    ) -> ComparedPiece:
        """Lays a piece's outputs beside the whole's, and marks those that read other inputs:
        beyond the piece, or ``unequal`` as of ``differing_reads``."""

        def outside(order: int, size: int) -> np.ndarray:
            start, stop = piece.inputs[order]
            at = np.arange(size)
            # a state holds what stands before
            return at >= stop if self.step else (at < start) | (at >= stop)

        beyond, compared = self.readers(outside), ComparedPiece(piece, [])
        for number, (whole, part) in enumerate(zip(self.whole_outputs, outputs, strict=True)):
            index = self.kept_index(piece, number)
            if index is None:  # as of a mean over the input: no piece has it, nor is it compared
                why = "an output does not follow the input, and pieces don't have it"
                nothing = OutputDifference(part.shape, whole.shape, 0, np.zeros(0, bool))
                missing = replace(nothing, not_compared=whole.size, why=why)
                compared.differences.append(missing)
                continue
            both = self.common_index(piece, number, part.shape)
            if both is None:
                return replace(compared, differences=[], between=True)
            in_whole, in_piece = both
            compared.lost += whole[index].size - whole[in_whole].size
            if piece.inputs == piece.kept:
                compared.doubled += part.size - part[in_piece].size
            dtype, pair = self.formats[number], (part[in_piece], whole[in_whole])
            window = beyond[number][in_whole] | (unequal[number][in_piece] if unequal else False)
            compared.far += int(np.sum(beyond_rounding(*pair, dtype) & ~window))
            difference = output_difference(*pair, (dtype, dtype))
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
                    return self._reads_nothing_beyond(number, span, behind, size)

                if need >= room or enough(need):
                    continue
                need += 1 + bisect_left(range(need + 1, room), True, key=enough)
                unlimited = int(need == room)
                if unlimited:
                    break
            sides.append(None if unlimited else need)
        return Context(sides[0], sides[1], self._grid(number))

    def _reads_nothing_beyond(
        self, number: int, span: tuple[int, int], behind: bool, size: int
    ) -> bool:
        """Whether no output kept of ``span`` changes with inputs further than ``size`` positions
        from it, on the side before or ``behind`` it: an overlap of ``size`` is enough there."""

        def beyond(order: int, count: int) -> np.ndarray:
            at = np.arange(count)
            return at >= span[1] + size if behind else at < span[0] - size

        whole = tuple((0, most) for most in self.sizes)
        kept = (*whole[:number], span, *whole[number + 1 :])
        marks = self.readers(beyond, number)
        for output, mark in enumerate(marks):
            index = self.kept_index(Piece(whole, kept), output)
            if index is not None and mark[index].any():
                return False
        return True

    def _grid(self, number: int) -> int | None:
        """By how many positions a seam moves until the first output that reads behind it moves."""
        most = self.sizes[number]

        def first_reader(at: int) -> int | None:
            marks = self.readers(lambda _, count: np.arange(count) >= at, number)
            for output, mark in enumerate(marks):
                layout = self.layouts[number][output]
                if layout is not None and mark.any():
                    lines = mark.any(axis=tuple(k for k in range(mark.ndim) if k != layout.axis))
                    return int(np.argmax(lines))
            return None

        # from the middle on, where no edge is near; three jumps, so that one irregular one shows
        jumps, at = list[int](), most // 2
        reader = first_reader(at)
        while len(jumps) < 3 and reader is not None and not budget.spent():
            width = 1
            while at + width < most and first_reader(at + width) == reader:
                width *= 2
            if at + width >= most:
                return None
            low = at + width // 2 + 1
            moved = lambda start, reader=reader: first_reader(start) != reader  # noqa: E731
            jumps.append(low + bisect_left(range(low, at + width), True, key=moved))
            at, reader = jumps[-1], first_reader(jumps[-1])
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
        op, whole_op = left.operations[number], right.operations[partner]
        if len(op.gives) != len(whole_op.gives):  # blocks, of which the whole has more
            continue
        results = [*zip(op.gives, whole_op.gives, strict=True)]
        # where a maximum stood is counted from where the piece begins
        numbers = [pair for pair in results if left.values[pair[0]].floating] or results
        values = [*zip(op.reads, whole_op.reads, strict=False), *numbers]
        far = {n for n, m in values if _is_far(runs, n, m, piece, sizes, behind, strides)}
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
        longer = [read for read in reads if read.given >= 0 and value.shape[axis] in read.shape]
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
    behind: bool,
    strides: bool,
) -> bool:
    """Whether what a piece keeps of value ``n`` is further from value ``m`` of the whole than
    rounding. ``strides``: an axis may have fewer lines than the input has positions."""
    values = runs[0].values[n], runs[1].values[m]
    shapes = values[0].shape, values[1].shape
    if values[0].dtype != values[1].dtype or len(shapes[0]) != len(shapes[1]) or not shapes[0]:
        return False
    axes = [axis for axis, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b]
    spans = [*zip(piece.inputs, piece.kept, sizes, strict=True)]
    cut = [span for span in spans if span[0] != (0, span[2])]
    if not axes or (len(cut) > 1 and len(axes) != len(cut)):
        return False
    index = [[slice(None)] * len(shapes[0]) for _ in range(2)]
    for number, axis in enumerate(axes):
        span = cut[number if len(cut) > 1 else 0]
        try:
            lines = _kept_lines(span, (shapes[0][axis], shapes[1][axis]), behind, strides)
        except _NotThereError:
            return True
        if lines is None:
            return False
        index[0][axis], index[1][axis] = lines
    part, whole = runs[0].array(n), runs[1].array(m)
    if part is None or whole is None:
        return False
    pair = part[tuple(index[0])], whole[tuple(index[1])]
    return bool(np.any(beyond_rounding(*pair, values[0].dtype)))


def _kept_lines(
    span: tuple[Span, Span, int], counts: tuple[int, int], behind: bool, strides: bool
) -> tuple[slice, slice] | None:
    """Which lines of a piece's value and of the whole's are what the piece keeps; None: not known.

    ``span``: what it is computed from, what it keeps, and the size of the whole; ``counts``: the
    lines of both values; ``behind``: it stands behind a state.
    """
    (start, stop), (begin, end), total = span
    count, most = counts
    if not count or not most:
        return None
    # padding and windows take some lines from either end; the step is that of most of them
    step = Fraction(round(total / most)) if most <= total else 1 / Fraction(round(most / total))
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

    pieces: list[ComparedPiece]
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
    times, pieces, at = np.zeros(most, int), list[ComparedPiece](), 0
    for part in parts:
        size = part.shape[axis] if part.ndim else 1
        at = _start_in_whole(part, whole, axis, at, dtype)
        in_whole = whole[_index(axis, at, at + size)] if whole.ndim else whole
        part = part[_index(axis, 0, in_whole.shape[axis])] if whole.ndim else part
        compared = ComparedPiece(Piece(((at, at + size),), ((at, at + size),)), [])
        beyond = max(0, at + size - most)  # it is longer than the whole
        compared.doubled = (int((times[at : at + size] > 0).sum()) + beyond) * line_size
        compared.far = int(np.sum(beyond_rounding(part, in_whole, dtype)))
        compared.differences = [output_difference(part, in_whole, (dtype, dtype))]
        pieces.append(compared)
        times[at : at + size] += 1
        at += size
    edges = np.flatnonzero(np.diff(times == 0, prepend=False, append=False)).tolist()
    gaps = [*zip(edges[::2], edges[1::2], strict=True)]
    if len(parts) > 1:  # a single piece is a part of the whole, and has no seam
        for start, stop in gaps:
            behind = [each for each in pieces if each.piece.kept[0][0] >= stop]
            beside = min(behind or pieces[-1:], key=lambda each: each.piece.kept[0][0])
            beside.lost += (stop - start) * line_size
    return Placed(pieces, gaps, int((times == 0).sum()) * line_size)


def _start_in_whole(part: np.ndarray, whole: np.ndarray, axis: int, at: int, dtype: str) -> int:
    """Where along an axis the numbers of a piece are near the whole's: at ``at`` if they are there,
    or nowhere."""
    if not part.ndim:
        return 0
    part, whole = (np.moveaxis(array, axis, 0) for array in (part, whole))
    limit = 0.0
    if dtype in floats.FORMATS:
        part, whole = (floats.widen(array, dtype) for array in (part, whole))
        limit = floats.eps(dtype) ** HALF_OF_DIGITS * np.abs(whole[np.isfinite(whole)]).max(
            initial=0.0
        )
    last = max(0, len(whole) - len(part))
    for start in (min(at, last), *range(last + 1)):
        candidate = whole[start : start + len(part)]
        if len(candidate) == len(part):
            with np.errstate(all="ignore"):
                near = (part == candidate) | ((part != part) & (candidate != candidate))
                near |= np.abs(part - candidate) <= limit if limit else False
            if near.all():
                return start
    return min(at, last)


def _index(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))


def _largest_below(test: Callable[[int], bool], most: int) -> int | None:
    """The largest number below ``most`` of which the test holds; None: of none from 1 on. It holds
    below where it holds."""
    width = 1
    while most - width >= 1 and not test(most - width):
        width *= 2
    low, high = max(most - width, 1), most - width // 2
    if width >= most and not test(1):
        return None
    return low + bisect_left(range(low + 1, high), True, key=lambda size: not test(size))


def beyond_rounding(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray | bool:
    """Where numbers differ by more than rounding: everywhere, if shapes do."""
    if left.shape != right.shape:
        return True
    # half of the digits: two orders of one sum never come that far apart but where it cancels,
    # and what reads another position does
    changed = np.asarray(differing(left, right, dtype))
    return changed & ~close(right, left, dtype) if dtype in floats.FORMATS else changed
