"""Values of two runs that are close on two independent inputs, up to a permutation of axes.

For programs that differ: another library, a fused or a compiled function. Axes of size 1 don't
count. What only moves elements is left out, for it holds the numbers of what it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from probe.case import floats
from probe.diff.pairing import Lines, Selection
from probe.record.recording import Operation, Run

# Of the largest number, how far two results of the same may be apart: half of the digits.
NEAR = 0.5

# How far sums over whole values may be apart, in which errors gather, and values of two numbers at
# least.
ROUGH, LEAST = 2e-2, 2

# Axes of a value of which all orders are tried.
MOST_AXES = 6


# Elements of a value that are compared before all of it is.
SAMPLE = 4096


@dataclass
class Candidate:
    """A result of one side: the operation that gives it, and which of its elements are meant: those
    on some ``lines`` along each axis. ``read``: gives its numbers on two inputs, which are
    not kept: those of a large model don't fit beside each other. ``moves``: whether the operation
    only brings what it reads into another order or shape."""

    number: int
    operation: int
    lines: tuple[Lines, ...]
    read: Callable[[], tuple[np.ndarray, np.ndarray]]
    dtype: str
    moves: bool = False

    def __post_init__(self) -> None:
        arrays = self.arrays()
        self.shape = arrays[0].shape
        self.kind = (self.dtype, tuple(sorted(self.shape)))
        self.sketch = np.array(
            [f(a) for a in arrays for f in (np.mean, _size, np.max, np.min)], dtype=np.float64
        )
        self.largest = tuple(float(np.abs(a).max()) for a in arrays)
        count = arrays[0].size
        flat = np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64))
        self.places = np.unravel_index(flat, self.shape)
        self.sample = tuple(a[self.places] for a in arrays)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Its numbers on both inputs, without axes of size 1."""
        first, second = map(_squeezed, self.read())
        return first, second

    def at(self, places: tuple[np.ndarray, ...]) -> list[np.ndarray]:
        """Its numbers in some places on both inputs."""
        if all(map(np.array_equal, places, self.places)):
            return [*self.sample]
        return [a[places] for a in self.arrays()]


def _size(array: np.ndarray) -> float:
    largest = float(np.abs(array).max())  # whose square may be beyond all numbers
    return largest * float(np.sqrt(np.mean((array / largest) ** 2)))


def _squeezed(array: np.ndarray) -> np.ndarray:
    return array.reshape([n for n in array.shape if n != 1])


def candidate(
    run: Run, again: Run, number: int, there: int, lines: tuple[Lines, ...], moves: bool
) -> Candidate | None:
    """Returns a value on two inputs, by its numbers in both runs; None: it tells nothing apart.

    ``lines``: those that are meant, along each axis.
    """
    value, box = run.values[number], Selection((lines, lines))
    if value.dtype not in floats.FORMATS:
        return None

    def read() -> tuple[np.ndarray, np.ndarray]:
        both = run.array(number), again.array(there)
        first, second = (
            floats.widen(box.beside(np.asarray(array), 0), value.dtype) for array in both
        )
        return first, second

    for side, n in ((run, number), (again, there)):
        array = side.array(n)
        if array is None or array.shape != value.shape:
            return None
        wide = floats.widen(box.beside(array, 0), value.dtype)
        if wide.size < LEAST or not np.isfinite(wide).all() or np.ptp(wide) == 0:
            return None
    return Candidate(number, value.given, lines, read, value.dtype, moves)


def moves(run: Run, op: Operation) -> bool:
    """Whether an operation gives the very numbers that it reads, in another order or shape."""
    if len(op.gives) != 1:
        return False
    given = run.values[op.gives[0]]
    for n in op.reads:
        value = run.values[n]
        size = np.prod(value.shape, dtype=int)
        if value.dtype != given.dtype or size != np.prod(given.shape, dtype=int):
            continue
        if value.digest == given.digest:
            return True
        first, second = run.array(n), run.array(op.gives[0])
        # sorting takes minutes of a large model: the sum of all bytes tells most apart
        if first is None or second is None or _byte_sum(first) != _byte_sum(second):
            continue
        if np.sort(first, axis=None).tobytes() == np.sort(second, axis=None).tobytes():
            return True
    return False


def _byte_sum(array: np.ndarray) -> int:
    return int(np.frombuffer(array.tobytes(), np.uint8).sum(dtype=np.uint64))


def permutation(ours: Candidate, theirs: Candidate) -> tuple[int, ...] | None:
    """Returns the order of the right's axes that makes it close to the left on both inputs."""
    shape, rank = ours.shape, len(ours.shape)
    limit = float(floats.eps(ours.dtype)) ** NEAR
    if rank > MOST_AXES:
        return None
    limits = [limit * most for most in ours.largest]
    for order in permutations(range(rank)):
        if tuple(theirs.shape[k] for k in order) != shape:
            continue
        turned: list[np.ndarray] = [np.zeros(0)] * rank
        for axis, k in enumerate(order):
            turned[k] = ours.places[axis]
        some = zip(ours.sample, theirs.at(tuple(turned)), limits, strict=True)
        if not all(np.abs(a - b).max() <= most for a, b, most in some):
            continue
        every = zip(ours.arrays(), theirs.arrays(), limits, strict=True)
        if all(np.abs(a - b.transpose(order)).max() <= most for a, b, most in every):
            return order
    return None


Match = tuple[Candidate, Candidate, tuple[int, ...]]


def matched(
    left: Sequence[Candidate], right: Sequence[Candidate], alone: bool = False
) -> list[Match]:
    """Returns pairs of values that are close, in order, each once. ``alone``: only of those that
    are close to no other.

    What computes is paired with what computes; only what is left then with what moves a result into
    another shape. Of several the nearest behind the last pair is taken, and of a chain of close
    values on either side (before and after a bias of zeros) the last.
    """
    taken, found = (set[int](), set[int]()), list[Match]()
    for moving in ((False, False), (False, True), (True, False), (True, True)):
        ours_left, theirs_left = (
            [c for c in side if c.moves == moves and c.number not in done]
            for side, moves, done in zip((left, right), moving, taken, strict=True)
        )
        pairs = _matched(ours_left, theirs_left, last=not any(moving), alone=alone)
        for ours, theirs, order in pairs:
            crosses = (
                (first.operation < ours.operation) != (second.operation < theirs.operation)
                for first, second, _ in found
            )
            if any(moving) and any(crosses):
                continue  # the same numbers stand in many places
            taken[0].add(ours.number)
            taken[1].add(theirs.number)
            found.append((ours, theirs, order))
    return sorted(found, key=lambda match: match[0].operation)


def _matched(
    left: Sequence[Candidate], right: Sequence[Candidate], last: bool, alone: bool
) -> Iterator[Match]:
    """``last``: of a chain of close values the last is taken, else the first."""
    taken, start = set[int](), -1
    kinds = dict[tuple, list[Candidate]]()
    for value in right:
        kinds.setdefault(value.kind, []).append(value)
    every: list[tuple[Candidate, list[tuple[Candidate, tuple[int, ...]]]]] = []
    for ours in left:
        others = kinds.get(ours.kind, [])
        if not others:
            continue
        sketches = np.array([value.sketch for value in others])
        scale = np.maximum(ours.sketch[[1, 5]].repeat(4), 1e-300)
        near = (np.abs(sketches - ours.sketch) <= ROUGH * scale * _SPREAD).all(axis=1)
        close = [
            (others[k], order)
            for k in np.flatnonzero(near)
            if (order := permutation(ours, others[k])) is not None
        ]
        if close:
            every.append((ours, close))
    if alone:
        met = Counter(value.number for _, close in every for value, _ in close)
        every = [each for each in every if len(each[1]) == 1 == met[each[1][0][0].number]]
    for place, (ours, close) in enumerate(every):
        free = [(value, order) for value, order in close if value.number not in taken]
        after = [both for both in free if both[0].operation > start] or free
        if not after:
            continue
        follower = every[place + 1][1] if place + 1 < len(every) else []
        same_chain = [{value.number for value, _ in some} for some in (close, follower)]
        if last and follower and same_chain[0] == same_chain[1] and len(free) == 1:
            continue  # the next left value is the last of this chain
        theirs, order = after[0]
        if last and len(after) > 1 and (not follower or same_chain[0] != same_chain[1]):
            theirs, order = _last_in_a_row(after)
        taken.add(theirs.number)
        start = theirs.operation
        yield ours, theirs, order


# Of a mean, a size, a largest and a least number: an extreme is off by one element's error.
_SPREAD = np.array([1.0, 1.0, 3.0, 3.0] * 2)


def _last_in_a_row(
    some: Sequence[tuple[Candidate, tuple[int, ...]]],
) -> tuple[Candidate, tuple[int, ...]]:
    last = some[0]
    for both in some[1:]:
        if both[0].operation > last[0].operation + 2:
            break
        last = both
    return last
