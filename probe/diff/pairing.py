"""Which elements of a left value and of a right one belong together, and which of these must agree.

A :class:`Selection` says it: along each axis some lines of either side lie beside each other, and a
mask says which elements there must agree. Lines are found from marks (:mod:`probe.diff.repeated`):
along an axis on which one side is longer, those that no repetition changes are the other's. Where
marks leave that open, it is the way in which most numbers are near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
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

    ``lines``: of the left value and of the right one, which lines along each axis lie beside each
    other. ``agree``: bool, to be broadcast over these: which elements there must agree; None: all.
    ``turned``: of two values whose axes stand in another order, that of the right's, but for those
    of size 1, in which they are the left's.
    """

    lines: tuple[tuple[Lines, ...], tuple[Lines, ...]] = ((), ())
    agree: np.ndarray | None = None
    turned: tuple[int, ...] | None = None

    @property
    def empty(self) -> bool:
        return self.agree is not None and not self.agree.any()

    @property
    def cut(self) -> set[int]:
        """The axes of which a side's lines are not all there, in their order."""
        return {n for side in self.lines for n, lines in enumerate(side) if not is_all(lines)}

    @property
    def whole(self) -> bool:
        """Whether all elements of both sides are selected, each with the one at its place."""
        return self.agree is None and self.turned is None and not self.cut

    @property
    def in_place(self) -> bool:
        """Whether both sides' lines have the same numbers."""
        return self.turned is None and all(map(_same_lines, *self.lines))

    def beside(self, array: np.ndarray, side: int) -> np.ndarray:
        """The lines of the left (0) or right (1) value, in a shape that both sides have."""
        for axis, lines in enumerate(self.lines[side]):
            if not is_all(lines):
                array = array[(ALL,) * axis + (lines,)]
        if self.turned is not None:
            array = array.reshape([n for n in array.shape if n != 1])
            array = array.transpose(self.turned) if side else array
        return array

    def taken(self, array: np.ndarray, side: int) -> np.ndarray:
        """The selected elements of a side's value, in one order on both sides."""
        part = self.beside(array, side)
        return part if self.agree is None else part[np.broadcast_to(self.agree, part.shape)]

    def _size(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what lies on the lines of the left value, which has this one."""
        return self.beside(np.broadcast_to(np.zeros((), bool), shape), 0).shape

    def count(self, shape: tuple[int, ...]) -> int:
        """How many elements of the left value, of this shape, are selected."""
        size = prod(self._size(shape))
        return size if self.agree is None else int(self.agree.sum()) * size // self.agree.size

    def only(self, where: np.ndarray, shape: tuple[int, ...]) -> Selection:
        """Those of the selected elements at which ``where`` is True: bool, as ``taken`` has them.
        ``shape``: the left value's."""
        agree = np.zeros(self._size(shape), bool)
        agree[... if self.agree is None else np.broadcast_to(self.agree, agree.shape)] = where
        return replace(self, agree=agree)

    def put(self, array: np.ndarray, values: np.ndarray | np.bool_, side: int) -> np.ndarray:
        """A copy of a side's value with these elements in the places of the selected."""
        copy = np.array(array, order="C")
        places = self.taken(np.arange(array.size).reshape(array.shape), side)
        copy.reshape(-1)[places] = values if np.ndim(values) == 0 else values.reshape(places.shape)
        return copy

    def mask(self, shape: tuple[int, ...], side: int) -> np.ndarray:
        """Where a side's value of ``shape`` is selected: bool."""
        return self.put(np.zeros(shape, bool), np.True_, side)


# All elements of two values of one shape, and no element of either.
WHOLE, NOTHING = Selection(), Selection(agree=np.zeros((), bool))


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
class Side:
    """A value of one side.

    ``mark``: bool, depends on inputs that the other side lacks; ``own``: bool, depends on the
    other side's own part (a step behind a cache), None if that was not asked. ``complete``: the
    other side lacks nothing. ``before``: which part of it stands before what the other side has.
    ``piece``: see :class:`probe.diff.match.Sides`. ``lines``: those that are left of some axes.
    """

    shape: tuple[int, ...]
    mark: np.ndarray
    array: Callable[[], np.ndarray | None]
    own: np.ndarray | None = None
    complete: bool = False
    before: Fraction = Fraction(0)
    piece: tuple[int, int, int] | None = None
    lines: dict[int, Lines] = field(default_factory=dict)

    def cut(self, axis: int, numbers: np.ndarray) -> Side:
        """The same with these lines of an axis alone."""

        def on_lines(mark: np.ndarray) -> np.ndarray:
            return mark if mark.shape[axis] == 1 else mark.take(numbers, axis)

        return replace(
            self,
            shape=(*self.shape[:axis], len(numbers), *self.shape[axis + 1 :]),
            mark=on_lines(self.mark),
            own=None if self.own is None else on_lines(self.own),
            lines={**self.lines, axis: as_lines(numbers)},
        )


def paired(left: Side, right: Side) -> Selection | None:
    """Returns the elements that must agree, pair by pair; None: it can't be seen which belong
    together."""
    if len(left.shape) != len(right.shape):
        return None
    axes = [axis for axis, (n, m) in enumerate(zip(left.shape, right.shape, strict=True)) if n != m]
    if left.piece is not None:
        return _behind_state(left, right, axes)
    whole = left.complete and right.complete and left.own is None and right.own is None
    if axes and whole and not (left.mark.any() or right.mark.any()):
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


def _ways(left: Side, right: Side, axes: list[int]) -> Iterator[tuple[Side, Side, bool]]:
    """Yields both sides cut to lines that may belong together along these axes, and whether that is
    sure."""
    if not axes:
        yield left, right, True
        return
    axis, *more = axes
    shorter = left.shape[axis] < right.shape[axis]
    longer, count = (right, left.shape[axis]) if shorter else (left, right.shape[axis])
    for numbers, sure in _lines(longer, axis, count):
        cut = longer.cut(axis, numbers)
        both = (left, cut) if shorter else (cut, right)
        for first, second, others_too in _ways(*both, more):
            yield first, second, sure and others_too


def _lines(longer: Side, axis: int, count: int) -> Iterator[tuple[np.ndarray, bool]]:
    """Yields which ``count`` lines of an axis may be those of the shorter side, the most telling
    way first, and whether it is sure."""
    size, rest = longer.shape[axis], tuple(k for k in range(len(longer.shape)) if k != axis)

    def changes(mark: np.ndarray, how: str) -> np.ndarray:
        return np.broadcast_to(getattr(mark, how)(axis=rest), size)

    nothing_lacked, something_own = ~changes(longer.mark, "any"), ~changes(longer.mark, "all")
    told = [nothing_lacked, something_own]
    if longer.own is not None:
        told = [
            nothing_lacked & changes(longer.own, "any"),
            changes(longer.own, "all"),
            *told,
        ]
    for lines in told:
        if lines.sum() == count:
            yield np.flatnonzero(lines), True
    # where the piece stands in the inputs: at the end of a prefix outputs may read more, and fewer
    # lines are unchanged; sure where these are the first of the piece's
    begin, unchanged = int(longer.before * size), np.flatnonzero(something_own)
    if begin + count <= size:
        fewer = np.array_equal(unchanged, begin + np.arange(len(unchanged)))
        yield begin + np.arange(count), fewer and len(unchanged) <= count
    # a sample among others that are longer is filled up behind, wherever it stands among them
    yield np.arange(count), False


def _behind_state(left: Side, right: Side, axes: list[int]) -> Selection | None:
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
        cut = cut.cut(axis, begin + np.arange(count))
    selection = _agreeing(left, cut)
    share = nearness(left, right, selection)
    return selection if share is not None and share > BEHIND else None


def _agreeing(left: Side, right: Side) -> Selection:
    """The elements of two sides of one shape that depend on nothing that either lacks."""
    agree = compact(~(left.mark | right.mark))
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
    their shapes; None: there is no such piece. ``before``: as ``Side`` has it, of both."""
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


def nearness(left: Side, right: Side, selection: Selection) -> float | None:
    """Returns the share of paired elements that are near each other; None: it isn't known."""
    arrays = left.array(), right.array()
    if arrays[0] is None or arrays[1] is None or selection.empty:
        return None
    ours, theirs = (selection.taken(np.asarray(a), n) for n, a in enumerate(arrays))
    return near_share(ours, theirs)


# Numbers of two arrays that say whether they are near each other.
ENOUGH = 1 << 15


def near_share(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The share of numbers that are near each other: of large arrays of every 17th or the like,
    for what belongs together is told by a few thousand."""
    if ours.shape != theirs.shape or not ours.size:
        return 0.0
    step = (ours.size // ENOUGH) | 1  # odd, so that it goes through the channels
    if step > 1:
        ours, theirs = ours.reshape(-1)[::step], theirs.reshape(-1)[::step]
    if ours.dtype.kind not in "fc":
        return float(np.mean(ours == theirs))
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = float(finite.max(initial=0.0))
    with np.errstate(all="ignore"):
        near = (np.abs(ours - theirs) <= NEAR * scale) | (ours == theirs)
    return float(np.mean(near | (np.isnan(ours) & np.isnan(theirs))))


# Fewest elements of a line that can identify it; most pairs of elements that are compared.
LINE, MOST = 4, 1 << 27


def lines_by_value(left: np.ndarray, right: np.ndarray) -> Selection | None:
    """Returns which lines of two values belong together, as they are close; None: none are.

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
    ours, theirs = (np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in (left, right))
    if ours.shape[1] < LINE or ours.size * len(theirs) > MOST:
        return None
    at, to = list[int](), list[int]()
    for number, line in enumerate(ours):
        with np.errstate(all="ignore"):
            far = np.abs(theirs - line).max(axis=1)
        limit = BY_VALUE * np.abs(line).max()
        near = np.flatnonzero(far <= limit)
        if len(near) == 1 and np.ptp(line) > limit:  # alike lines can't be told apart
            at.append(number)
            to.append(int(near[0]))
    if not at or len(set(to)) < len(to):
        return None
    before = (ALL,) * axis
    return Selection(((*before, np.array(at)), (*before, np.array(to))))


# Largest distance between matching lines, relative to the largest element of the line.
BY_VALUE = 1e-3
