"""Which elements of a left value and of a right one belong together, and which of these must agree.

A :class:`Selection` says it: along each axis some lines of either side lie beside each other, and a
mask says which elements there must agree. Lines are found from marks (:mod:`probe.diff.repeated`):
along an axis on which one side is longer, those that no repetition changes are the other's. Where
marks leave that open, it is the way in which most numbers are near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from probe.diff.repeated import compact

# Lines of one axis: a slice, or an array of their numbers.
Lines = Any

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Selection:
    """Elements of a left value and of a right one that must agree, pair by pair.

    The example: sample 2 of a batch of 8, alone on the left, of shape (1, 64) against (8, 64).
    """

    lines: tuple[tuple[Lines, ...], tuple[Lines, ...]] = ((), ())
    """Of the left value and of the right one, which lines along each axis lie beside each other:
    ``((slice(None), slice(None)), (slice(2, 3), slice(None)))``. Axes that aren't there: all."""
    agreeing: np.ndarray | None = None
    """Which elements on these lines must agree: bool, to be broadcast; None: all."""
    axis_order: tuple[int, ...] | None = None
    """The order of the right value's axes, without those of size 1, in which they are the left's:
    ``(0, 2, 3, 1)`` of channels first against channels last; None: the same order."""

    @property
    def empty(self) -> bool:
        return self.agreeing is not None and not self.agreeing.any()

    @property
    def cut_axes(self) -> set[int]:
        """The axes of which a side's lines are not all there, in their order."""
        return {n for side in self.lines for n, lines in enumerate(side) if not is_all(lines)}

    @property
    def all_by_index(self) -> bool:
        """Whether all elements of both sides are selected, each with the one at its place."""
        return self.agreeing is None and self.axis_order is None and not self.cut_axes

    @property
    def in_place(self) -> bool:
        """Whether both sides' lines have the same numbers."""
        return self.axis_order is None and all(map(_same_lines, *self.lines))

    def on_lines(self, array: np.ndarray, side: int) -> np.ndarray:
        """The lines of the left (0) or right (1) value, in a shape that both sides have."""
        for axis, lines in enumerate(self.lines[side]):
            if not is_all(lines):
                array = array[(ALL,) * axis + (lines,)]
        if self.axis_order is not None:
            array = array.reshape([n for n in array.shape if n != 1])
            array = array.transpose(self.axis_order) if side else array
        return array

    def elements(self, array: np.ndarray, side: int) -> np.ndarray:
        """The selected elements of a side's value, in one order on both sides."""
        part = self.on_lines(array, side)
        return part if self.agreeing is None else part[np.broadcast_to(self.agreeing, part.shape)]

    def _size(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what lies on the lines of the left value, which has this one."""
        return self.on_lines(np.broadcast_to(np.zeros((), bool), shape), 0).shape

    def count(self, shape: tuple[int, ...]) -> int:
        """How many elements of the left value, of this shape, are selected."""
        size = prod(self._size(shape))
        return (
            size if self.agreeing is None else int(self.agreeing.sum()) * size // self.agreeing.size
        )

    def restricted_to(self, where: np.ndarray, shape: tuple[int, ...]) -> Selection:
        """Those of the selected elements at which ``where`` is True: bool, as ``taken`` has them.
        ``shape``: the left value's."""
        agree = np.zeros(self._size(shape), bool)
        agree[... if self.agreeing is None else np.broadcast_to(self.agreeing, agree.shape)] = where
        return replace(self, agreeing=agree)

    def with_elements(
        self, array: np.ndarray, values: np.ndarray | np.bool_, side: int
    ) -> np.ndarray:
        """A copy of a side's value with these elements in the places of the selected."""
        copy = np.array(array, order="C")
        places = self.elements(np.arange(array.size).reshape(array.shape), side)
        copy.reshape(-1)[places] = values if np.ndim(values) == 0 else values.reshape(places.shape)
        return copy

    def mask(self, shape: tuple[int, ...], side: int) -> np.ndarray:
        """Where a side's value of ``shape`` is selected: bool."""
        return self.with_elements(np.zeros(shape, bool), np.True_, side)


# All elements of two values of one shape, and no element of either.
ALL_BY_INDEX, NOTHING = Selection(), Selection(agreeing=np.zeros((), bool))


class Unselected(Enum):
    """What is known of the elements of two values that are not selected."""

    FREE = "they need not agree: they depend on what one run lacks, as positions of a longer input"
    UNKNOWN = "it is not known whether they must agree, as of rows that a router sent elsewhere"
    ABSENT = "there are none: empty arrays, or uint8 weights that stand for the other's int8 ones"


def is_all(lines: Lines) -> bool:
    return isinstance(lines, slice) and lines == ALL


def _same_lines(left: Lines, right: Lines) -> bool:
    if isinstance(left, slice) or isinstance(right, slice):
        return type(left) is type(right) and left == right
    return np.array_equal(left, right)


def as_lines(numbers: np.ndarray) -> Lines:
    """Neighbours as a slice, of which NumPy gives a view."""
    if len(numbers) and (np.diff(numbers) == 1).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


# Of the largest number, how far elements may be apart that are taken for the same; and the share of
# these among all where it isn't clear from the marks alone which lines belong together.
NEAR, SHARE = 1e-2, 0.5

# SHARE for a piece behind a state: a causal mask makes half of any two blocks equal.
BEHIND = 0.9


@dataclass
class MarkedValue:
    """A value of one side, with what repetitions say about its elements.

    The example: the keys of positions 0 to 8, of shape (1, 9, 64), where the other side computes
    position 8 behind a cache. Marks are bool, of size 1 along axes along which they are the same.
    """

    shape: tuple[int, ...]
    lacking: np.ndarray
    """Depends on inputs that the other side lacks."""
    array: Callable[[], np.ndarray | None]
    """Its numbers; None: a recording has left them out."""
    of_step: np.ndarray | None = None
    """Depends on the step's own inputs: of the keys those of position 8. None: there is no step."""
    lacks_nothing: bool = False
    """Whether the other side has all that it depends on, so that shapes have to be the same."""
    begins_at: Fraction = Fraction(0)
    """Which part of the inputs stands before what the other side has: 8/9."""
    piece: tuple[int, int, int] | None = None
    """As ``probe.diff.match.Repetitions`` has it."""
    lines: dict[int, Lines] = field(default_factory=dict)
    """Of axes that were cut, the lines that are left: ``{1: slice(8, 9)}``."""

    def on_lines(self, axis: int, numbers: np.ndarray) -> MarkedValue:
        """The same with these lines of an axis alone."""

        def on_lines(mark: np.ndarray) -> np.ndarray:
            return mark if mark.shape[axis] == 1 else mark.take(numbers, axis)

        return replace(
            self,
            shape=(*self.shape[:axis], len(numbers), *self.shape[axis + 1 :]),
            lacking=on_lines(self.lacking),
            of_step=None if self.of_step is None else on_lines(self.of_step),
            lines={**self.lines, axis: as_lines(numbers)},
        )


def must_agree(left: MarkedValue, right: MarkedValue) -> Selection | None:
    """The elements that must agree, pair by pair; None: it can't be seen which belong together."""
    if len(left.shape) != len(right.shape):
        return None
    axes = [axis for axis, (n, m) in enumerate(zip(left.shape, right.shape, strict=True)) if n != m]
    if left.piece is not None:
        return _behind_cache(left, right, axes)
    lacks_nothing = left.lacks_nothing and right.lacks_nothing
    lacks_nothing &= left.of_step is None and right.of_step is None
    if axes and lacks_nothing and not (left.lacking.any() or right.lacking.any()):
        return None
    best, near = None, SHARE
    for number, (first, second, sure) in enumerate(_ways(left, right, axes)):
        selection = _agreeing(first, second)
        if sure and not number:
            return selection
        share = nearness(left, right, selection)
        if selection.empty and best is None:
            best = selection
        elif share is not None and share > near:
            best, near = selection, share
    return best


def _ways(
    left: MarkedValue, right: MarkedValue, axes: list[int]
) -> Iterator[tuple[MarkedValue, MarkedValue, bool]]:
    """Yields both sides cut to lines that may belong together along these axes, and whether that is
    sure."""
    if not axes:
        yield left, right, True
        return
    axis, *more = axes
    shorter = left.shape[axis] < right.shape[axis]
    longer, count = (right, left.shape[axis]) if shorter else (left, right.shape[axis])
    for numbers, sure in _lines(longer, axis, count):
        cut = longer.on_lines(axis, numbers)
        both = (left, cut) if shorter else (cut, right)
        for first, second, others_too in _ways(*both, more):
            yield first, second, sure and others_too


def _lines(longer: MarkedValue, axis: int, count: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Which ``count`` lines of an axis may be those of the shorter side, the most telling way
    first, and whether it is sure."""
    size = longer.shape[axis]
    across = tuple(k for k in range(len(longer.shape)) if k != axis)

    def changes(mark: np.ndarray, how: str) -> np.ndarray:
        return np.broadcast_to(getattr(mark, how)(axis=across), size)

    unlacking, unchanged = ~changes(longer.lacking, "any"), ~changes(longer.lacking, "all")
    candidates = [unlacking, unchanged]
    if longer.of_step is not None:
        of_step = [unlacking & changes(longer.of_step, "any"), changes(longer.of_step, "all")]
        candidates = of_step + candidates
    for lines in candidates:
        if lines.sum() == count:
            yield np.flatnonzero(lines), True
    # where the piece stands in the inputs: at the end of a prefix outputs may read more, and fewer
    # lines are unchanged; sure where these are the first of the piece's
    begin, numbers = int(longer.begins_at * size), np.flatnonzero(unchanged)
    if begin + count <= size:
        fewer = np.array_equal(numbers, begin + np.arange(len(numbers)))
        yield begin + np.arange(count), fewer and len(numbers) <= count
    # a sample among others that are longer is filled up behind, wherever it stands among them
    yield np.arange(count), False


def _behind_cache(left: MarkedValue, right: MarkedValue, axes: list[int]) -> Selection | None:
    """What a piece behind a state has in common with the whole: along each axis of other sizes its
    own positions, or all up to its end. Blocks of other positions may have these sizes too, so that
    the numbers must be near."""
    assert left.piece is not None
    start, stop, total = left.piece
    cut = right
    for axis in axes:
        count, size = left.shape[axis], right.shape[axis]
        at, end = start * size, stop * size
        begin = at // total if not at % total and count * total == end - at else 0
        if not begin and count * total != end:
            return None
        cut = cut.on_lines(axis, begin + np.arange(count))
    selection = _agreeing(left, cut)
    share = nearness(left, right, selection)
    return selection if share is not None and share > BEHIND else None


def _agreeing(left: MarkedValue, right: MarkedValue) -> Selection:
    """The elements of two sides of one shape that depend on nothing that either lacks."""
    agree = compact(~(left.lacking | right.lacking))
    if not agree.any():
        return NOTHING
    first, second = (
        tuple(side.lines.get(axis, ALL) for axis in range(agree.ndim)) for side in (left, right)
    )
    return Selection((first, second), None if agree.all() else agree)


def by_position(
    left: tuple[int, ...], right: tuple[int, ...], before: tuple[Fraction, Fraction]
) -> Selection | None:
    """Lays a value beside the piece of the other's that stands where the inputs' piece does, by
    their shapes; None: there is no such piece. ``before``: as ``MarkedValue`` has it, of both."""
    lines: list[list[Lines]] = [[ALL] * len(left), [ALL] * len(left)]
    for axis, sizes in enumerate(zip(left, right, strict=True)):
        longer, count = int(sizes[0] < sizes[1]), min(sizes)
        begin = int(before[longer] * sizes[longer])
        if sizes[0] == sizes[1]:
            continue
        if begin + count > sizes[longer]:
            return None
        lines[longer][axis] = slice(begin, begin + count)
    return None if left == right else Selection((tuple(lines[0]), tuple(lines[1])))


def nearness(left: MarkedValue, right: MarkedValue, selection: Selection) -> float | None:
    """The share of paired elements that are near each other; None: it isn't known."""
    arrays = left.array(), right.array()
    if arrays[0] is None or arrays[1] is None or selection.empty:
        return None
    both = (selection.elements(np.asarray(array), side) for side, array in enumerate(arrays))
    return near_share(*both)


# Numbers of two arrays that say whether they are near each other.
ENOUGH = 1 << 15


def near_share(left: np.ndarray, right: np.ndarray) -> float:
    """The share of numbers that are near each other: of large arrays of every 17th or the like,
    for what belongs together is told by a few thousand."""
    if left.shape != right.shape or not left.size:
        return 0.0
    step = (left.size // ENOUGH) | 1  # odd, so that it goes through the channels
    if step > 1:
        left, right = left.reshape(-1)[::step], right.reshape(-1)[::step]
    if left.dtype.kind not in "fc":
        return float(np.mean(left == right))
    finite = np.abs(right[np.isfinite(right)])
    scale = float(finite.max(initial=0.0))
    with np.errstate(all="ignore"):
        near = (np.abs(left - right) <= NEAR * scale) | (left == right)
    return float(np.mean(near | (np.isnan(left) & np.isnan(right))))


# Fewest elements of a line that can identify it; most pairs of elements that are compared.
LINE, MOST = 4, 1 << 27

# Largest distance between matching lines, relative to the largest element of the line.
BY_VALUE = 1e-3


def lines_by_value(left: np.ndarray, right: np.ndarray) -> Selection | None:
    """Which lines of two values belong together, as they are close; None: none are.

    For values whose shape depends on the inputs, as rows that a router sends to an expert. Lines
    run along the only axis along which the sizes differ, along the first where none does.
    """
    sizes = left.shape, right.shape
    if left.ndim != right.ndim or left.ndim < 2 or left.dtype.kind != "f":
        return None
    axes = [axis for axis in range(left.ndim) if sizes[0][axis] != sizes[1][axis]] or [0]
    axis = axes[0]
    if len(axes) > 1 or not left.size or not right.size:  # a router may send no rows to an expert
        return None
    lines, candidates = (
        np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1) for array in (left, right)
    )
    if lines.shape[1] < LINE or lines.size * len(candidates) > MOST:
        return None
    left_numbers, right_numbers = list[int](), list[int]()
    for number, line in enumerate(lines):
        with np.errstate(all="ignore"):
            far = np.abs(candidates - line).max(axis=1)
        limit = BY_VALUE * np.abs(line).max()
        near = np.flatnonzero(far <= limit)
        if len(near) == 1 and np.ptp(line) > limit:  # alike lines can't be told apart
            left_numbers.append(number)
            right_numbers.append(int(near[0]))
    if not left_numbers or len(set(right_numbers)) < len(right_numbers):
        return None
    before = (ALL,) * axis
    return Selection(((*before, np.array(left_numbers)), (*before, np.array(right_numbers))))
