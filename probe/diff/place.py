"""A function whose bits depend on where an element is: a vector loop and its remainder.

The operation itself is asked, at its own shapes: all places get the same number. Where places then
differ in their bits, they are computed by different code, and each differing output has to come out
again on both sides at its own place. That some number has such a border is no proof: two formulas
may both have one. The place is the cause only if each differing output that is asked about comes
out with the other side's bits too, from the same number at another place, perhaps of a longer call.
Where one doesn't, the sides compute by different formulas. Whole rows are put to what normalises
rows in the same way.

Random numbers show the border between such places by luck alone: a part of all numbers is rounded
differently on either side of it. So telling ones are looked for first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.case import floats
from probe.diff.alone import NOT_ALONE, Alone, Cause, Sides, equal_bits, evenly
from probe.diff.difference import NAMES
from probe.order.reveal import column_labels
from probe.order.semantics import Normalises

# Differing outputs that are asked about, of small arrays and of large ones: a call a side each.
MOST, LEAST = 128, 8

# Elements that these calls may compute together.
ELEMENTS = 1 << 27

# Further elements along the last axis, one by one, that are looked through for a remainder.
SEAM = 33

# Answers that are kept to tell places apart.
KEPT = 8

# Numbers among which telling ones are looked for, and what they are drawn from.
POOL, SEED = 2048, 31_000

# Numbers that every place of a function is given: any, and those to which places answer
# differently.
PLAIN, TELLING = 8, 16


def affordable(size: int) -> int:
    """Returns how many outputs are asked about where each costs a call of so many elements."""
    return min(max(ELEMENTS // max(size, 1), LEAST), MOST)


@dataclass
class PlacedFunction:
    """An operation at its own shapes, to which numbers of our choice are given: one number, or one
    row, at all of its places.

    ``call``: container arrays like ``reads`` to the output, of which ``recorded`` is that of
    ``reads``. ``dtypes``: of ``reads``, and last of the output. ``index``: flat indices of the
    outputs that must agree. ``held``: which of ``reads`` keep what they hold, such as weights.
    ``axes``: of what normalises rows those that a row has; None of a function of the elements at an
    output's place. ``along``: the axis along which inputs with one axis lie, the first aside. Its
    outputs can't be asked about one by one where there is a ``why``.
    """

    call: Callable[[list[np.ndarray]], np.ndarray]
    reads: list[np.ndarray]
    dtypes: Sequence[str]
    recorded: np.ndarray
    index: np.ndarray
    held: Sequence[int] = ()
    axes: tuple[int, ...] | None = None
    along: int | None = None
    why: str = field(default="", init=False)

    @classmethod
    def of(cls, alone: Alone, held: Sequence[int] = (), **more: Any) -> PlacedFunction:
        recorded = alone.gives[alone.output]
        return cls(
            alone.rerun_output, alone.reads, alone.dtypes, recorded, alone.index, held, **more
        )

    def __post_init__(self) -> None:
        """Lays what is put to it at the places of the outputs."""
        self.dtype, self.recorded = self.dtypes[-1], np.ascontiguousarray(self.recorded)
        self.shape = self.recorded.shape
        self.kept: list[np.ndarray] = []
        # each output is asked twice in a row: does it come again, and who else gets the other
        # side's bits
        self.last: tuple[bytes, np.ndarray | None] = b"", None
        self.wide: list[np.ndarray] = []
        if self.axes is not None:
            self.wide = self.reads[:1]
            if self.wide[0].shape != self.shape:
                self.why = "its outputs are not at the positions of its inputs"
            return
        for array in self.reads:
            lying, rank = array, len(self.shape)
            if self.along is not None and array.ndim == 1 and self.wide:
                lying = array.reshape(-1, *(1,) * (rank - self.along % rank - 1))
            try:
                self.wide.append(np.broadcast_to(lying, self.shape))
            except ValueError:
                self.why = "its inputs are not at the positions of its outputs"

    def filled(self, number: float | np.ndarray) -> np.ndarray:
        """Returns the output with one number at every place, or one row along the last axis."""
        operands = list(self.reads)
        for n in set(range(len(operands))).difference(self.held):
            rounded = floats.round_to(np.asarray(number), self.dtypes[n])
            operands[n] = np.broadcast_to(rounded, operands[n].shape).copy()
        return self.call(operands)

    def laid(self, pool: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
        """Runs it with the numbers of a pool one after the other at its places, from number
        ``shift`` on, and over again behind the last. Returns which number stood at each place of
        the output (its index in the pool), and what came out there (float64), both flat."""
        size, operands = self.recorded.size, []
        index = (np.arange(size) + shift) % len(pool)
        for array, dtype in zip(self.reads, self.dtypes, strict=False):
            own = index if array.size == size else np.arange(array.size) % len(pool)
            operands.append(floats.round_to(pool[own], dtype).reshape(array.shape))
        return index, floats.widen(self.call(operands), self.dtypes[-1]).reshape(-1)

    def bits(self, output: np.ndarray) -> np.ndarray:
        """Returns bits of floating-point numbers, different values as they are."""
        plain = np.ascontiguousarray(output)
        return floats.to_bits(plain, self.dtype) if self.dtype in floats.FORMATS else plain

    def recorded_bits(self, number: int) -> bytes:
        return self.bits(self.recorded).reshape(-1)[self.index[number]].tobytes()

    def _put(self, place: int) -> list[np.ndarray]:
        """Returns what is put everywhere to ask about an output: numbers, or one row."""
        at = enumerate(np.unravel_index(place, self.shape))
        inside = self.axes or ()
        row = tuple(slice(None) if axis in inside else slice(int(n), int(n) + 1) for axis, n in at)
        return [array[row] for array in self.wide]

    def lines(self, output: np.ndarray) -> np.ndarray:
        """Returns the output as (places, elements) that should be equal at all places."""
        inside = self.axes or ()
        rest = [axis for axis in range(output.ndim) if axis not in inside]
        count = int(np.prod([self.shape[axis] for axis in rest], dtype=int))
        return output.transpose(*rest, *inside).reshape(count, -1)

    def came(self, place: int) -> bool | None:
        """Returns whether an output comes out again at its place; None where it can't be asked."""
        bits, recorded = self.answers(place), self.recorded.reshape(-1)[place : place + 1]
        if bits is None:
            return None
        return equal_bits(recorded, bits[place : place + 1].view(recorded.dtype), self.dtype)

    def answers(self, place: int) -> np.ndarray | None:
        """Returns the bits of the output; None where it can't be run so. The last is kept."""
        key = b"".join(row.tobytes() for row in self._put(place))
        if key != self.last[0]:
            self.last = key, self._answers(place)
        return self.last[1]

    def _answers(self, place: int) -> np.ndarray | None:
        put = self._put(place)
        if self.axes is None:
            both = zip(self.reads, put, strict=True)
            operands = [np.full(a.shape, value.reshape(()), a.dtype) for a, value in both]
        else:
            operands = [np.broadcast_to(put[0], self.shape), *self.reads[1:]]
        try:
            output = self.call(operands)
        except NOT_ALONE:  # a library says no in many ways, and then this isn't known
            return None
        if output.shape != self.shape:
            return None
        bits = self.bits(output)
        lines = self.lines(bits)
        if len(self.kept) < KEPT and (lines != lines[:1]).any():
            self.kept.append(lines)
        return bits.reshape(-1)

    def beside(self, place: int) -> np.ndarray:
        """Returns the places that an output's own number, or its own element of a row, is put to:
        flat indices."""
        every = self.lines(np.arange(self.recorded.size).reshape(self.shape))
        column = int(np.flatnonzero((every == place).any(axis=0))[0])
        return np.asarray(every[:, column])

    def classes(self) -> str:
        """Returns which places are computed alike, in words: those that no answer told apart."""
        stacked = np.concatenate([lines.T for lines in self.kept])
        labels = column_labels(stacked.astype(np.float64))
        counts = np.bincount(labels)
        if len(counts) > 2:
            return f"{len(labels)} places in {len(counts)} classes"
        rare = labels == int(np.argmin(counts))
        width = self.shape[-1] if self.axes is None and self.shape else len(labels)
        rows = rare.reshape(-1, width)
        if len(rows) > 1 and (rows == rows[0]).all():
            return f"of each {width} places along the last axis {_spans(rows[0])} are different"
        return f"of {len(labels)} places {_spans(rare)} are different"

    def longer(self, place: int, more: int) -> set[bytes] | None:
        """Returns the results of an output's number at all places of a longer call; None where it
        has one size, or can't be run so for another reason."""
        width = self.shape[-1] if self.shape else 0
        if not width:
            return None
        operands = []
        for array, value in zip(self.reads, self._put(place), strict=True):
            grown = array.ndim > 0 and array.shape[-1] == width
            shape = (*array.shape[:-1], width + more) if grown else array.shape
            operands.append(np.full(shape, value.reshape(()), array.dtype))
        try:
            output = self.call(operands)
        except NOT_ALONE:
            return None
        if output.size <= self.recorded.size:
            return None
        return {bits.tobytes() for bits in np.unique(self.bits(output))}


def telling_numbers(laid: Iterable[tuple[np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """Returns which of ``count`` numbers gave different finite results at some places: bool.

    ``laid``: as ``PlacedFunction.laid`` gives it, of any functions and shifts.
    """
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    for index, results in laid:
        with np.errstate(invalid="ignore"):  # of numbers that it has no result for
            np.minimum.at(least, index, results)
            np.maximum.at(most, index, results)
    return np.asarray((least != most) & np.isfinite(least) & np.isfinite(most))


OTHER = "different formulas: the same number gives the other side's result at no place"
APART = "each side gives one result at all places, and the sides' results are different"


def function_cause(sides: Sides, apart: np.ndarray, along: int | None) -> Cause:
    """Returns why a function of each element differs. ``apart``: which of the compared outputs do.

    ``along``: the axis along which inputs with one axis lie, the first aside; None: the last.
    """
    placed = [PlacedFunction.of(side, along=along) for side in sides]
    cause, elsewhere = _ask_outputs(placed, apart)
    if elsewhere is None:
        return cause
    cause.kind, more = "place", 0
    cause.why = (
        "with a few more elements in one call the same number gives both results, by place: a "
        "vector loop and its remainder"
    )
    for done, number in enumerate(elsewhere):
        more = _grown(placed, number, more)
        if more == 0:
            cause.kind = "algorithm"
            cause.why = OTHER
            if not done and not any(side.kept for side in placed):
                cause.why = APART
        elif more < 0:
            cause.kind = ""
            cause.why = "it can't be run at other sizes, so it is unknown whether places differ"
        if more <= 0:
            break
    return Cause(cause.kind, cause.why, cause.examined, cause.replayed, in_numpy=False)


def _grown(sides: Sequence[PlacedFunction], number: int, more: int) -> int:
    """Returns how many more elements along the last axis a call of either side needs to give both
    sides' results of an output; 0 if none was found, -1 if neither runs at other sizes.

    ``more``: what another output needed, which is tried first.
    """
    bits = [side.recorded_bits(number) for side in sides]
    sizes = [more, *range(1, SEAM)] if more > 0 else range(1, SEAM)
    able = False
    for side in sides:
        for size in sizes:
            seen = side.longer(int(side.index[number]), size)
            if seen is None:
                break
            able = True
            if seen.issuperset(bits):
                return size
    return 0 if able else -1


def rows_cause(sides: Sides, meaning: Normalises, apart: np.ndarray) -> Cause:
    """Returns why what normalises rows differs, as far as rows at other places tell."""
    axes = [tuple(axis % side.reads[0].ndim for axis in meaning.axes) for side in sides]
    both = zip(sides, axes, strict=True)
    placed = [PlacedFunction.of(side, axes=own) for side, own in both]
    cause, elsewhere = _ask_outputs(placed, apart)
    if elsewhere is None:
        return cause
    cause.why = "each side computes all of its rows alike; the order within a row is unknown"
    if placed[0].kept or placed[1].kept:
        cause.why = (
            "rows at different places are computed differently, but "
            f"{len(elsewhere)} of {cause.examined} examined outputs come out with the other "
            "side's bits in no row"
        )
    return cause


def _ask_outputs(
    sides: Sequence[PlacedFunction], apart: np.ndarray
) -> tuple[Cause, list[int] | None]:
    """Asks about some differing outputs, evenly among all.

    ``replayed`` are those that came out on both sides from their own number and their place alone.
    The list has those of the examined ones that no place of either side's call gave the other
    side's bits; None where nothing more can be asked.
    """
    if why := sides[0].why or sides[1].why:
        return Cause(why=why), None
    largest = max(side.recorded.size for side in sides)
    # evenly among all: the first ones may all lie in one vector
    chosen = evenly(apart, affordable(largest))
    replayed, elsewhere = 0, list[int]()
    for number in chosen.tolist():
        came, met = [side.came(int(side.index[number])) for side in sides], False
        if None in came:
            return Cause(why="it can't be run on other operands of its shape"), None
        for side, theirs in zip(sides, reversed(sides), strict=True):
            place = int(side.index[number])
            answers = side.answers(place)
            assert answers is not None
            other = np.frombuffer(theirs.recorded_bits(number), answers.dtype)
            met |= bool((answers[side.beside(place)] == other).any())
        replayed += all(came)
        elsewhere += [] if met else [number]
    kind, why = "", ""
    both = zip(NAMES, sides, strict=True)
    classes = [f"{name}: {side.classes()}" for name, side in both if side.kept]
    if replayed < len(chosen):
        why = "its outputs depend on more than their own input and position"
    elif classes and not elsewhere:
        kind = "place"
        why = f"the same number gives different bits at different places; {'; '.join(classes)}"
    settled = bool(kind) or replayed < len(chosen)
    cause = Cause(kind, why, len(chosen), replayed, in_numpy=False)
    return cause, None if settled else elsewhere


def _spans(mask: np.ndarray) -> str:
    """Such as ``48 to 50 (behind a multiple of 16)``; the first few."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)).tolist()
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    shown = [f"{a} to {b - 1}" if b - a > 1 else f"{a}" for a, b in spans[:3]]
    text = ", ".join(shown) + ", ..." * (len(spans) > 3)
    start, stop = spans[-1]
    if stop == len(mask) and start:
        width = max(w for w in (1, 2, 4, 8, 16, 32, 64) if start % w == 0)
        if width > stop - start:
            text += f" (a remainder behind a multiple of {width})"
    return text
