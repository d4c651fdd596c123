"""Which element of a left value belongs to which of a right one, and which of them must agree.

Along an axis on which one side is longer, its lines that no repetition changes are the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from probe.diff.difference import NOTHING, WHOLE, Selection
from probe.diff.repeated import compact

Lines = tuple[np.ndarray, np.ndarray]

# Of the largest number, how far elements may be apart that are taken for the same; and the share of
# these among all where it isn't clear from the marks alone which lines belong together.
NEAR, SHARE = 1e-2, 0.5

# The same share behind a state: masks fill half of two blocks with one number.
BEHIND = 0.9


@dataclass
class Side:
    """A value of one side.

    ``mark``: where it changes with what the other side lacks; ``own``: where it changes with the
    other side's own part (a step behind a cache), None if that was not asked. ``complete``: the
    other side lacks nothing. ``before``: which part of it stands before what the other side has.
    ``piece``: see :class:`probe.diff.match.Sides`.
    """

    shape: tuple[int, ...]
    mark: np.ndarray
    array: Callable[[], np.ndarray | None]
    own: np.ndarray | None = None
    complete: bool = False
    before: Fraction = Fraction(0)
    piece: tuple[int, int, int] | None = None


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
    unclear, best, near = False, None, SHARE
    for chosen, sure in _choices(left, right, axes):
        selection = _selected(left, right, chosen)
        if sure and not unclear:
            return selection
        unclear = True
        share = nearness(left, right, selection)
        if selection.empty and best is None:
            best = selection
        elif share is not None and share > near:
            best, near = selection, share
    return best


def _choices(left: Side, right: Side, axes: list[int]) -> Iterator[tuple[dict[int, Lines], bool]]:
    """Yields which lines belong together along each axis, and whether that is sure."""
    if not axes:
        yield {}, True
        return
    axis, *more = axes
    for lines, sure in _lines(left, right, axis):
        smaller = _taken(left, axis, lines[0]), _taken(right, axis, lines[1])
        for others, rest in _choices(smaller[0], smaller[1], more):
            yield {axis: lines, **others}, sure and rest


def _lines(left: Side, right: Side, axis: int) -> Iterator[tuple[Lines, bool]]:
    n, m = left.shape[axis], right.shape[axis]
    side, count, size = (right, n, m) if n < m else (left, m, n)
    whole = np.arange(count)
    turn = (lambda at: (whole, at)) if n < m else (lambda at: (at, whole))
    rest = tuple(k for k in range(len(side.shape)) if k != axis)

    def along(mark: np.ndarray, how: str) -> np.ndarray:
        return np.broadcast_to(getattr(mark, how)(axis=rest), size)

    free, some = ~along(side.mark, "any"), ~along(side.mark, "all")
    tried: list[tuple[np.ndarray, bool]] = []
    if side.own is not None:
        tried = [(free & along(side.own, "any"), True), (along(side.own, "all"), True)]
    # from the beginning on: at the end of a prefix outputs may read more, and fewer are unchanged
    begin = int(side.before * size)
    start = (np.arange(size) >= begin) & (np.arange(size) < begin + count)
    tried += [(free, True), (some, True)]
    yielded = set[bytes]()
    for where, sure in tried:
        if where.sum() == count and where.tobytes() not in yielded:
            yielded.add(where.tobytes())
            yield turn(np.flatnonzero(where)), sure
    if start.sum() == count and start.tobytes() not in yielded:
        # sure only where the unchanged lines are a beginning of these
        at = np.flatnonzero(some)
        inside = len(at) <= count and np.array_equal(at, begin + np.arange(len(at)))
        yielded.add(start.tobytes())
        yield turn(np.flatnonzero(start)), inside
    if (np.arange(size) < count).tobytes() not in yielded:
        # a sample among others that are longer is filled up behind, wherever it stands among them
        yield turn(whole), False


def _behind_state(left: Side, right: Side, axes: list[int]) -> Selection | None:
    """What a piece behind a state has in common with the whole: along each axis of other sizes its
    own positions, or all up to its end. Blocks of other positions may have these sizes too, so that
    the numbers must be near."""
    assert left.piece is not None
    start, stop, total = left.piece
    chosen = dict[int, Lines]()
    for axis in axes:
        count, size = left.shape[axis], right.shape[axis]
        at, end = start * size, stop * size
        begin = at // total if not at % total and count * total == end - at else 0
        if not begin and count * total != end:
            return None
        chosen[axis] = np.arange(count), begin + np.arange(count)
    selection = _selected(left, right, chosen)
    share = nearness(left, right, selection)
    return selection if share is not None and share > BEHIND else None


def _taken(side: Side, axis: int, at: np.ndarray) -> Side:
    def some(mark: np.ndarray | None) -> np.ndarray | None:
        return mark if mark is None or mark.shape[axis] == 1 else mark.take(at, axis)

    shape = (*side.shape[:axis], len(at), *side.shape[axis + 1 :])
    mark = some(side.mark)
    assert mark is not None
    return replace(side, shape=shape, mark=mark, own=some(side.own))


def _selected(left: Side, right: Side, chosen: dict[int, Lines]) -> Selection:
    first, second = left, right
    for axis, (ours, theirs) in chosen.items():
        first, second = _taken(first, axis, ours), _taken(second, axis, theirs)
    agree = compact(~(first.mark | second.mark))
    if not agree.any():
        return NOTHING
    axes = tuple(k for k in range(agree.ndim) if k in chosen or agree.shape[k] > 1)
    if not axes:
        return WHOLE
    inner = tuple(first.shape[k] if k in axes else 1 for k in range(agree.ndim))
    index = np.nonzero(np.broadcast_to(agree, inner))
    sizes, flat = [], []
    for number, side in enumerate((left, right)):
        at = [chosen[k][number][index[k]] if k in chosen else index[k] for k in axes]
        size = tuple(side.shape[k] for k in axes)
        sizes.append(size)
        flat.append(np.ravel_multi_index(at, size))
    return Selection(axes, flat[0], flat[1], (sizes[0], sizes[1]))


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


# Of a line, elements at least; of two values, numbers that are compared at most.
LINE, MOST = 4, 1 << 27


def lines_by_value(left: np.ndarray, right: np.ndarray) -> Selection | None:
    """Returns which lines of two values belong together, as they are close; None: none are.

    For what repetitions have in other shapes, as the rows that a router sends to an expert. Lines
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
    both = (sizes[0][axis],), (sizes[1][axis],)
    return Selection((axis,), np.array(at), np.array(to), both)


# Of the largest number of a line, how far one may be apart that is the same.
BY_VALUE = 1e-3
