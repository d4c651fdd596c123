"""Two functions: what each reads that the other does not, found by running them, for ``walk``.

Both are given other numbers in the arrays that they hold (:mod:`probe.diff.captured`). What
one side lacks is what it does not read of an array that both hold, and what surrounds its own piece
of a longer array. A step behind a cache reads the end of what the other side reads whole, and holds
what stands before in arrays that only it has.

What a program reads (:class:`Reader`) is asked line by line along each axis: from the first one on,
from the last one back, each by bisection; ``inside`` asks some between, and all of them where one
is found. What is read whole costs two runs an axis.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import Foreign, ProbeError, foreign
from probe.diff import settled
from probe.diff.captured import Captured
from probe.diff.match import RunningMatch, Sides
from probe.diff.pairing import near_share
from probe.diff.repeated import (
    SEED,
    Arrays,
    Marks,
    Where,
    aligned,
    independent,
    other_content,
    starts,
    unheard,
)
from probe.diff.running import Here, both_again, handed_values, marks_of
from probe.record.contract import Recorder
from probe.record.recording import Operation, Run
from probe.record.store import array_digest
from probe.targets import budget

# Largest number of arrays that are searched for the elements a function reads.
MOST_ARRAYS = 16


@dataclass
class FunctionSide:
    """A function with what it is called with. ``recorder``: gives a recorder of the same, built
    anew by :class:`Captured`.

    ``names``: of its arrays, by the names that both sides have for them; ``pieces``: which part of
    an array its own are, as an index, where the other side holds more. ``shared``: these arrays.
    """

    captured: Captured
    recorder: Callable[[Any], Recorder]
    names: dict[str, list[str]] = field(default_factory=dict)
    pieces: dict[str, tuple[slice, ...]] = field(default_factory=dict)
    shared: Arrays = field(default_factory=dict)
    known: dict[Any, list[str] | None] = field(default_factory=dict)

    def given(self, arrays: Arrays) -> Recorder:
        """Returns a recorder of it with other arrays, by common names."""
        return self.recorder(self.captured.replaced(self._own(arrays)))

    def digests(self, arrays: Arrays) -> list[str] | None:
        """Runs it unwatched. Returns what its results are told apart by; None where it raises."""
        key = tuple(array_digest(array) for array in self._own(arrays).values())
        if key not in self.known:
            try:
                with unheard():
                    plain = foreign(lambda: self.given(arrays).plain())
                self.known[key] = [array_digest(array) for array in plain]
            except (Foreign, ProbeError):  # a function may raise what it likes at other numbers
                self.known[key] = None
        return self.known[key]

    def _own(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Returns the side's arrays with the elements replaced in which ``arrays`` differ."""
        every = dict[str, np.ndarray]()
        for name, several in self.names.items():
            at = self.pieces.get(name, ())
            changed, other = (arrays[name] != self.shared[name])[at], arrays[name][at]
            for own in several:
                bits = self.captured.arrays[own].bits
                every[own] = np.where(changed, other, bits).astype(bits.dtype)
        return every


def by_reading(left: FunctionSide, right: FunctionSide) -> Callable[[Run, Run], RunningMatch]:
    """Returns what finds which elements of two functions' runs must agree."""
    return lambda ours, theirs: _Question((left, right), (ours, theirs)).match()


class _Question:
    """Two functions and their runs. ``arrays``, ``dtypes``: what both hold, or the larger of a
    piece and a whole; ``apart``: those in which both hold other numbers."""

    def __init__(self, sides: tuple[FunctionSide, FunctionSide], runs: tuple[Run, Run]) -> None:
        self.sides, self.runs = sides, runs
        self.arrays, self.dtypes = _shared(*sides)
        self.apart = set[str]()
        for side in sides:
            side.shared = self.arrays

    def match(self) -> RunningMatch:
        if not self.arrays:
            return RunningMatch.of(*self.runs)
        nothing = RunningMatch(self.runs, Sides(again=self.again))
        asked = self._asked()
        apart = {name: self._apart(name) for name in self.arrays}
        self.apart = {name for name, where in apart.items() if where.any()}
        if not (asked or self.apart) or self._hidden_by_nan():
            return nothing
        readers = [Reader(side.digests, self.arrays, self.dtypes) for side in self.sides]
        for reader, run in zip(readers, self.runs, strict=True):
            if reader.result != list(run.plain):  # the rebuilt function is not the user's
                return nothing
        for inside in (False, True):
            unread = dict(apart), dict(apart)
            for name in asked:
                for where, reader in zip(unread, readers, strict=True):
                    where[name] = where[name] | reader.unread(name, inside)
            if any(where.any() for side in unread for where in side.values()):
                return self._matched(unread[0], unread[1])
        return nothing

    def _apart(self, name: str) -> np.ndarray:
        """Returns where the two sides hold different numbers in an array of one shape."""
        where = np.zeros(self.arrays[name].shape, bool)
        if any(name in side.pieces for side in self.sides):
            return where
        left, right = (s.captured.arrays[s.names[name][0]].bits for s in self.sides)
        return np.asarray((left != right) & ~((left != left) & (right != right)))

    def _hidden_by_nan(self) -> bool:
        """Whether one side gives NaN for the other's numbers: no content changes a NaN, so that it
        is not seen what is read."""
        results = zip(*(run.plain_results for run in self.runs), strict=False)
        outputs = zip(*(run.outputs for run in self.runs), strict=False)
        for (left, right), numbers in zip(results, outputs, strict=False):
            dtypes = [run.values[n].dtype for run, n in zip(self.runs, numbers, strict=True)]
            if left is None or right is None or left.shape != right.shape:
                continue
            if any(dtype not in floats.FORMATS for dtype in dtypes):
                continue
            wide = (floats.widen(a, d) for a, d in zip((left, right), dtypes, strict=True))
            nan = [np.isnan(array) for array in wide]
            if (nan[0] != nan[1]).any():
                return True
        return False

    def _asked(self) -> list[str]:
        """Returns the arrays of which it is asked what is read: not those that both sides read in
        the same operations alone, as weights are."""
        left, right = self.runs
        pairs = dict(aligned(left.operations, right.operations))
        alike, elsewhere = set[Any](), set[Any]()
        for mine, op in enumerate(left.operations):
            partner = right.operations[pairs[mine]] if mine in pairs else None
            same = partner is not None and _asks_the_same(left, op, right, partner)
            for place, n in enumerate(op.reads):
                key, met = left.values[n].key, same
                if partner is not None and met:
                    met = right.values[partner.reads[place]].key == key
                (alike if met else elsewhere).add(key)
        keys = {
            name: (array.shape, self.dtypes[name], array_digest(array))
            for name, array in self.arrays.items()
        }
        asked = [name for name, key in keys.items() if key not in alike or key in elsewhere]
        return sorted(asked, key=lambda name: -self.arrays[name].size)[:MOST_ARRAYS]

    def _matched(self, left: Where, right: Where) -> RunningMatch:
        """``left``, ``right``: what each side doesn't read."""
        marks = self._marks(0, right), self._marks(1, left)
        before = _before(right), _before(left)
        match = RunningMatch(self.runs, Sides(marks, before, again=self.again))
        for side, where in ((0, left), (1, right)):
            behind = self._behind(side, where, match, before)
            if behind is not None:
                return behind
        return match

    def _behind(
        self, side: int, unread: Where, match: RunningMatch, before: tuple[Fraction, Fraction]
    ) -> RunningMatch | None:
        """Returns what must agree if a side has what stands before its own part, though it doesn't
        read it: it got it in another way, as from a cache. None: nothing says so.

        ``match``: what must agree if it lacks that.
        """
        first = _first_lines(unread)
        if not any(where.any() for where in first.values()) or _all_paired(match, side):
            return None
        other = 1 - side
        later = {name: unread[name] & ~first[name] for name in unread}
        part = {name: ~unread[name] & where.any() for name, where in first.items()}
        sides = Sides(match.sides.marks, before, again=self.again)
        for name, where in (("marks", later), ("own", part), ("earlier", first)):
            both = list(getattr(sides, name))
            both[other] = self._marks(other, where)
            setattr(sides, name, (both[0], both[1]))
        handed, unlike = handed_values(self.runs, side)
        sides.unlike = match.sides.unlike = unlike
        sides.handed = (handed, ()) if other == 0 else ((), handed)
        behind = RunningMatch(self.runs, sides)
        if handed or _all_near(behind, side):
            return behind
        return None

    def _marks(self, side: int, where: Where) -> Marks | None:
        """Repeats a side's run with other content in these places; None: there are none."""
        here = Here(self.sides[side].given, self.dtypes, self.apart)
        return marks_of(here, self.runs[side], self.arrays, where)

    def again(self) -> tuple[Run, Run] | None:
        """Records both on independent inputs."""
        other = independent(self.arrays, self.dtypes)
        return both_again((Here(side.given) for side in self.sides), (other, other))


def _asks_the_same(left: Run, op: Operation, right: Run, other: Operation) -> bool:
    """Whether two operations have the same arguments; and of the same operands the same results, as
    some recorders don't see by what an array is indexed."""
    ends = (op.reads, other.reads), (op.gives, other.gives)
    if repr(op.attributes) != repr(other.attributes) or any(len(a) != len(b) for a, b in ends):
        return False
    reads, gives = (
        all(left.values[n].key == right.values[m].key for n, m in zip(*both, strict=True))
        for both in ends
    )
    return gives or not reads


def _shared(left: FunctionSide, right: FunctionSide) -> tuple[Arrays, dict[str, str]]:
    """Returns the arrays that both sides hold, or one of them a piece of the other's, and their
    formats; fills in ``names`` and ``pieces`` of both sides."""
    held = [side.captured.arrays for side in (left, right)]
    keys = [
        {name: (a.bits.shape, a.dtype, array_digest(a.bits)) for name, a in some.items()}
        for some in held
    ]
    arrays, dtypes = dict[str, np.ndarray](), dict[str, str]()
    for name, key in keys[0].items():
        others = [other for other, each in keys[1].items() if each == key]
        if others and not any(name in some for some in left.names.values()):
            left.names[name] = [own for own, each in keys[0].items() if each == key]
            right.names[name] = others
            arrays[name], dtypes[name] = held[0][name].bits, key[1]
    # arrays that begin alike, as a piece and a whole, or that have some numbers in common
    alone = [[n for n in keys[s] if keys[s][n] not in keys[1 - s].values()] for s in (0, 1)]
    pieces = list[tuple[str, str, tuple[int, int, int], list[int]]]()
    for mine in alone[0]:
        for other in sorted(alone[1], key=lambda name: name != mine):
            ours, theirs = held[0][mine], held[1][other]
            axes = _apart(ours.bits.shape, theirs.bits.shape)
            if ours.dtype != theirs.dtype or len(axes) > 1 or ours.bits.ndim != theirs.bits.ndim:
                continue
            if not axes and (ours.bits == theirs.bits).any():
                left.names[mine], right.names[mine] = [mine], [other]
                arrays[mine], dtypes[mine] = ours.bits, ours.dtype
                alone[1].remove(other)
                break
            if not axes:
                continue
            if at := [start for (start,) in starts(ours.bits, theirs.bits, axes[:1])]:
                sizes = axes[0], ours.bits.shape[axes[0]], theirs.bits.shape[axes[0]]
                pieces.append((mine, other, sizes, at))
                alone[1].remove(other)
                break
    for mine, other, (axis, n, m), at in pieces:
        # a mask may stand in many places: what it belongs to says where
        common = set(at).intersection(
            *(set(each) for *_, sizes, each in pieces if sizes[1:] == (n, m))
        )
        begin = min(common or at)
        small = left if n < m else right
        left.names[mine], right.names[mine] = [mine], [other]
        small.pieces[mine] = (slice(None),) * axis + (slice(begin, begin + min(n, m)),)
        arrays[mine] = (held[1][other] if n < m else held[0][mine]).bits
        dtypes[mine] = held[0][mine].dtype
    return arrays, dtypes


def _apart(left: tuple[int, ...], right: tuple[int, ...]) -> list[int]:
    """Returns the axes along which two shapes differ; [] of other numbers of axes."""
    if len(left) != len(right):
        return []
    return [axis for axis, (n, m) in enumerate(zip(left, right, strict=True)) if n != m]


def _first_lines(unread: Where) -> Where:
    """Returns the lines at the beginnings of arrays that are not read, and all of an array of which
    nothing is: a step behind a cache does not read the first state of all."""
    first = {}
    for name, where in unread.items():
        first[name] = np.full(where.shape, where.all())
        for axis, size in enumerate(where.shape):
            count = _begins(where, axis)
            if count < size:
                first[name][(slice(None),) * axis + (slice(count),)] = True
    return first


def _begins(where: np.ndarray, axis: int) -> int:
    """Returns how many lines at the beginning of an axis are all marked."""
    lines = where.all(axis=tuple(k for k in range(where.ndim) if k != axis))
    return where.shape[axis] if lines.all() else int(np.argmin(lines))


def _before(unread: Where) -> Fraction:
    """Returns the largest share of an axis that precedes the first line that is read."""
    shares = [
        Fraction(count, size)
        for where in unread.values()
        for axis, size in enumerate(where.shape)
        if (count := _begins(where, axis)) < size
    ]
    return max(shares, default=Fraction(0))


def _all_paired(match: RunningMatch, side: int) -> bool:
    """Whether all that a side gives is paired."""
    run = match.runs[side]
    pairs = [match.pair(n, m) for n, m in zip(*(r.outputs for r in match.runs), strict=False)]
    sizes = [np.prod(run.values[(p.left, p.right)[side]].shape) for p in pairs]
    return all(pair.compared == size for pair, size in zip(pairs, sizes, strict=True))


def _all_near(match: RunningMatch, side: int) -> bool:
    """Whether all that a side gives is paired, and near what it is paired with."""
    pairs = [match.pair(n, m) for n, m in zip(*(r.outputs for r in match.runs), strict=False)]
    if not _all_paired(match, side):
        return False
    every = [settled.agreeing_elements(pair, match.runs) for pair in pairs]
    return all(both is not None and near_share(*both) == 1 for both in every)


# which elements of its inputs a program does not read


# Runs a program unwatched: what its results are told apart by, None where it raises.
PlainRun = Callable[[Arrays], object]

# Kinds of content of :func:`other_content` that are tried before elements count as not read: random
# numbers, and large ones of either sign, one of which a function that saturates shows; what has few
# numbers may be given its own at random.
CONTENTS = 2, 0, 1

# Lines up to which each is asked where one between the first and the last is not read.
MOST_LINES = 64


class Reader:
    """A program and what it gives on ``arrays``. ``dtypes``: the formats of their numbers."""

    def __init__(self, run: PlainRun, arrays: Arrays, dtypes: Mapping[str, str]) -> None:
        self.run, self.arrays, self.dtypes = run, arrays, dtypes
        self.result = run(arrays)

    def reads(self, name: str, where: np.ndarray) -> bool:
        """Whether other content in these places of an array changes what the program gives."""
        array, dtype = self.arrays[name], self.dtypes[name]
        for number in CONTENTS:
            if budget.spent():
                return True
            other = other_content(array, dtype, number, SEED + 7 + number)
            changed = np.where(where, other, array).astype(array.dtype)
            if changed.tobytes() == array.tobytes():
                continue
            if self.run({**self.arrays, name: changed}) != self.result:
                return True
        return False

    def unread(self, name: str, inside: bool = False) -> np.ndarray:
        """Returns where an array is not read. ``inside``: also between the first and last line."""
        shape = self.arrays[name].shape
        where = np.zeros(shape, bool)
        for axis, size in enumerate(shape):
            if size < 2:
                continue
            lines = np.zeros(size, bool)

            def read(start: int, stop: int, axis: int = axis) -> bool:
                some = np.zeros(shape, bool)
                some[(slice(None),) * axis + (slice(start, stop),)] = True
                return self.reads(name, some & ~where)

            before = _longest(lambda count: not read(0, count), size)
            after = 0
            if before < size:
                after = _longest(lambda count: not read(size - count, size), size - before)  # noqa: B023
            lines[:before], lines[size - after :] = True, True
            between = range(before, size - after)
            if inside and not (before or after) and size > 3:
                some = {1, size // 2, size - 2}
                if not all(read(n, n + 1) for n in some) and size <= MOST_LINES:
                    lines[[n for n in between if not read(n, n + 1)]] = True
            where[(slice(None),) * axis + (lines,)] = True
            if where.all():
                break
        return where


def rows_read(
    function: Callable[..., object], arrays: Arrays, output: int, element: int
) -> dict[str, np.ndarray]:
    """Returns which rows of each array (the first axis) one element of what a function returns
    depends on, by running it: bool, by name.

    ``output``: which array of those that ``function(*arrays)`` returns, ``element``: flat.
    """

    def run(changed: Arrays) -> object:
        results: Any = function(*changed.values())
        return np.asarray(results[output]).reshape(-1)[element].tobytes()

    reader = Reader(run, arrays, {name: array.dtype.name for name, array in arrays.items()})
    rows = dict[str, np.ndarray]()
    for name, array in arrays.items():
        if not array.ndim:
            rows[name] = np.array(reader.reads(name, np.ones((), bool)))
            continue
        unread = reader.unread(name, inside=True).reshape(len(array), -1)
        rows[name] = ~np.asarray(unread.all(axis=1))
    return rows


def _longest(holds: Callable[[int], bool], size: int) -> int:
    """Returns the largest count up to ``size`` of which something holds, as of all smaller ones."""
    if not holds(1):
        return 0
    if holds(size):
        return size
    return 1 + bisect_left(range(2, size), True, key=lambda count: not holds(count))
