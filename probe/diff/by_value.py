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
    """A result of one side, or some of its elements, that may have a partner on the other."""

    number: int
    operation: int
    """The operation that gives it."""
    lines: tuple[Lines, ...]
    """Which of its elements are meant: those on these lines along each axis."""
    read: Callable[[], tuple[np.ndarray, np.ndarray]]
    """Its numbers on two inputs, which are not kept: those of a large model don't fit beside each
    other."""
    dtype: str
    moves: bool = False
    """The operation only brings what it reads into another order or shape."""

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
    run: Run, again: Run, number: int, number_again: int, lines: tuple[Lines, ...], moves: bool
) -> Candidate | None:
    """A value on two inputs, by its numbers in both runs; None: it tells nothing apart."""
    value, box = run.values[number], Selection((lines, lines))
    if value.dtype not in floats.FORMATS:
        return None

    def read() -> tuple[np.ndarray, np.ndarray]:
        both = run.array(number), again.array(number_again)
        first, second = (
            floats.widen(box.on_lines(np.asarray(array), 0), value.dtype) for array in both
        )
        return first, second

    for side, n in ((run, number), (again, number_again)):
        array = side.array(n)
        if array is None or array.shape != value.shape:
            return None
        wide = floats.widen(box.on_lines(array, 0), value.dtype)
        if wide.size < LEAST or not np.isfinite(wide).all() or np.ptp(wide) == 0:
            return None
    return Candidate(number, value.given, lines, read, value.dtype, moves)


def moves(run: Run, op: Operation) -> bool:
    """Whether an operation gives the very numbers that it reads, in another order or shape."""
    if len(op.gives) != 1:
        return False
    result = run.values[op.gives[0]]
    for n in op.reads:
        value = run.values[n]
        size = np.prod(value.shape, dtype=int)
        if value.dtype != result.dtype or size != np.prod(result.shape, dtype=int):
            continue
        if value.digest == result.digest:
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


def permutation(left: Candidate, right: Candidate) -> tuple[int, ...] | None:
    """The order of the right's axes that makes it close to the left on both inputs."""
    rank = len(left.shape)
    if rank > MOST_AXES:
        return None
    limits = [float(floats.eps(left.dtype)) ** NEAR * largest for largest in left.largest]
    for order in permutations(range(rank)):
        if tuple(right.shape[k] for k in order) != left.shape:
            continue
        turned: list[np.ndarray] = [np.zeros(0)] * rank
        for axis, k in enumerate(order):
            turned[k] = left.places[axis]
        samples = zip(left.sample, right.at(tuple(turned)), limits, strict=True)
        if not all(np.abs(a - b).max() <= limit for a, b, limit in samples):
            continue
        arrays = zip(left.arrays(), right.arrays(), limits, strict=True)
        if all(np.abs(a - b.transpose(order)).max() <= limit for a, b, limit in arrays):
            return order
    return None


Match = tuple[Candidate, Candidate, tuple[int, ...]]


def matched(
    left: Sequence[Candidate], right: Sequence[Candidate], alone: bool = False
) -> list[Match]:
    """Pairs of values that are close, in order, each once. ``alone``: only of those that are close
    to no other.

    What computes is paired with what computes; only what is left then with what moves a result into
    another shape. Of several the nearest behind the last pair is taken, and of a chain of close
    values on either side (before and after a bias of zeros) the last.
    """
    taken, matches = (set[int](), set[int]()), list[Match]()
    for moving in ((False, False), (False, True), (True, False), (True, True)):
        free_left, free_right = (
            [c for c in side if c.moves == moves and c.number not in numbers]
            for side, moves, numbers in zip((left, right), moving, taken, strict=True)
        )
        pairs = _matched(free_left, free_right, last=not any(moving), alone=alone)
        for value, partner, order in pairs:
            crosses = (
                (first.operation < value.operation) != (second.operation < partner.operation)
                for first, second, _ in matches
            )
            if any(moving) and any(crosses):
                continue  # the same numbers stand in many places
            taken[0].add(value.number)
            taken[1].add(partner.number)
            matches.append((value, partner, order))
    return sorted(matches, key=lambda match: match[0].operation)


# A candidate of the right, and the order of its axes.
Partner = tuple[Candidate, tuple[int, ...]]


def _matched(
    left: Sequence[Candidate], right: Sequence[Candidate], last: bool, alone: bool
) -> Iterator[Match]:
    """``last``: of a chain of close values the last is taken, else the first."""
    taken, start = set[int](), -1
    kinds = dict[tuple, list[Candidate]]()
    for value in right:
        kinds.setdefault(value.kind, []).append(value)
    close: list[tuple[Candidate, list[Partner]]] = []
    for value in left:
        same_kind = kinds.get(value.kind, [])
        if not same_kind:
            continue
        sketches = np.array([partner.sketch for partner in same_kind])
        scale = np.maximum(value.sketch[[1, 5]].repeat(4), 1e-300)
        near = (np.abs(sketches - value.sketch) <= ROUGH * scale * _SPREAD).all(axis=1)
        partners = [
            (same_kind[k], order)
            for k in np.flatnonzero(near)
            if (order := permutation(value, same_kind[k])) is not None
        ]
        if partners:
            close.append((value, partners))
    if alone:
        times = Counter(partner.number for _, partners in close for partner, _ in partners)
        close = [each for each in close if len(each[1]) == 1 == times[each[1][0][0].number]]
    for place, (value, partners) in enumerate(close):
        free = [both for both in partners if both[0].number not in taken]
        after = [both for both in free if both[0].operation > start] or free
        if not after:
            continue
        following = close[place + 1][1] if place + 1 < len(close) else []
        numbers = [{partner.number for partner, _ in row} for row in (partners, following)]
        same_chain = numbers[0] == numbers[1]
        if last and same_chain and len(free) == 1:
            continue  # the next left value is the last of this chain
        partner, order = after[0]
        if last and len(after) > 1 and not same_chain:
            partner, order = _last_in_a_row(after)
        taken.add(partner.number)
        start = partner.operation
        yield value, partner, order


# Of a mean, a size, a largest and a least number: an extreme is off by one element's error.
_SPREAD = np.array([1.0, 1.0, 3.0, 3.0] * 2)


def _last_in_a_row(partners: Sequence[Partner]) -> Partner:
    last = partners[0]
    for both in partners[1:]:
        if both[0].operation > last[0].operation + 2:
            break
        last = both
    return last
