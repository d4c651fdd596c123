"""A function whose bits depend on where an element is: a vector loop and its remainder.

The operation itself is asked, at its own shapes: all places get the same number. Where places then
differ in their bits, they are computed by different code, and each differing output has to come out
again on both sides at its own place. Where both sides treat all places alike and still differ, they
compute by different formulas. Whole rows are put to what normalises rows in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe import floats
from probe.order.reveal import column_labels
from probe.recording.alone import Alone, same
from probe.recording.meaning import Normalises

MOST, LEAST = 128, 8
"""Differing outputs that are asked about, of small arrays and of large ones: a call a side each."""

ELEMENTS = 1 << 27
"""Elements that these calls may compute together."""

SEAM = 33
"""Further elements along the last axis, one by one, that are looked through for a remainder."""

KEPT = 8
"""Answers that are kept to tell places apart."""

TELLING = 4
"""Numbers that are put to other sizes."""


@dataclass
class Placed:
    """What places have to do with a difference. ``word``: ``place``, ``algorithm`` or empty.

    ``examined``: differing outputs that were asked about; ``replayed``: those of them that came out
    on both sides from their own number and their place alone.
    """

    word: str
    why: str
    examined: int = 0
    replayed: int = 0


def of_function(left: Alone, right: Alone, apart: np.ndarray, along: int | None = None) -> Placed:
    """Returns why a function of each element differs. ``apart``: which of the compared outputs do.

    ``along``: the axis along which inputs with one axis lie, the first aside; None: the last.
    """
    sides = _Function(left, along), _Function(right, along)
    if why := sides[0].why or sides[1].why:
        return Placed("", why)
    found = _asked(sides, apart)
    if found.word or found.replayed < found.examined:
        return found
    seams = [one.seam(values) for one, values in _telling(sides, apart)]
    if any(seams):
        side = ("left", "right")[seams.index(True)]
        found.word = "place"
        found.why = (
            f"each side computes all of its places alike; with a few more elements the {side} one "
            "gives both results in one call, by place: a vector loop and its remainder"
        )
        return found
    found.word = "algorithm"
    found.why = "each side gives one result at all places, and the sides' results are different"
    return found


def of_rows(left: Alone, right: Alone, meaning: Normalises, apart: np.ndarray) -> Placed:
    """Returns why what normalises rows differs, as far as rows at other places tell."""
    axes = [tuple(axis % one.reads[0].ndim for axis in meaning.axes) for one in (left, right)]
    sides = _Rows(left, axes[0]), _Rows(right, axes[1])
    if why := sides[0].why or sides[1].why:
        return Placed("", why)
    found = _asked(sides, apart)
    if found.word or found.replayed < found.examined:
        return found
    found.why = "each side computes all of its rows alike; the order within a row is unknown"
    return found


class _Asked:
    """One side, to which one number or one row after the other is put at all places."""

    why = ""

    def __init__(self, alone: Alone) -> None:
        self.alone, self.dtype = alone, alone.value.dtype
        self.recorded = np.ascontiguousarray(alone.gives[alone.output])
        self.shape = self.recorded.shape
        self.index = alone.index
        self.kept: list[np.ndarray] = []

    def key(self, place: int) -> bytes:
        """Returns what names that which is put everywhere to ask about an output."""
        raise NotImplementedError

    def filled(self, place: int) -> list[np.ndarray]:
        """Returns all that is read, with what this output reads at every place."""
        raise NotImplementedError

    def lines(self, found: np.ndarray) -> np.ndarray:
        """Returns the output as (places, elements) that should be equal at all places."""
        raise NotImplementedError

    def answers(self, place: int) -> np.ndarray | None:
        """Returns the bits of the output; None where it can't be run so."""
        try:
            found = self.alone.call(self.filled(place))[self.alone.output]
        except Exception:  # a library says no in many ways, and then this isn't known
            return None
        if found.shape != self.shape:
            return None
        bits = _bits(found, self.dtype)
        lines = self.lines(bits)
        if len(self.kept) < KEPT and (lines != lines[:1]).any():
            self.kept.append(lines)
        return bits.reshape(-1)

    def classes(self) -> np.ndarray:
        """Returns a number for each place: equal where no answer told two apart."""
        stacked = np.concatenate([lines.T for lines in self.kept])
        return column_labels(stacked.astype(np.float64))


class _Function(_Asked):
    """A function of the elements at an output's place."""

    def __init__(self, alone: Alone, along: int | None) -> None:
        super().__init__(alone)
        self.wide: list[np.ndarray] = []
        for array in alone.reads:
            lying = array
            if along is not None and array.ndim == 1 and self.wide:
                lying = array.reshape(-1, *(1,) * (len(self.shape) - along % len(self.shape) - 1))
            try:
                self.wide.append(np.broadcast_to(lying, self.shape))
            except ValueError:
                self.why = "its inputs are not at the positions of its outputs"

    def key(self, place: int) -> bytes:
        at = np.unravel_index(place, self.shape)
        return b"".join(one[at].tobytes() for one in self.wide)

    def filled(self, place: int) -> list[np.ndarray]:
        at = np.unravel_index(place, self.shape)
        return [
            np.full(array.shape, wide[at], array.dtype)
            for array, wide in zip(self.alone.reads, self.wide, strict=True)
        ]

    def lines(self, found: np.ndarray) -> np.ndarray:
        return found.reshape(-1, 1)

    def seam(self, places: Sequence[tuple[int, bytes]]) -> bool:
        """Whether some places of a longer call give this side's result and some the other's.

        ``places``: outputs of this side, with the other side's bits there.
        """
        grown = [array.shape == self.shape and array.ndim > 0 for array in self.alone.reads]
        if not all(grown):
            return False
        for place, other in places:
            at = np.unravel_index(place, self.shape)
            mine = _bits(self.recorded, self.dtype)[at].tobytes()
            for more in range(1, SEAM):
                shape = (*self.shape[:-1], self.shape[-1] + more)
                given = [np.full(shape, one[at], one.dtype) for one in self.alone.reads]
                try:
                    found = _bits(self.alone.call(given)[self.alone.output], self.dtype)
                except Exception:  # it has one size, or says no in another way
                    return False
                seen = {one.tobytes() for one in np.unique(found)}
                if {mine, other} <= seen:
                    return True
        return False


class _Rows(_Asked):
    """What normalises rows: all rows get the one that an output was computed from."""

    def __init__(self, alone: Alone, axes: tuple[int, ...]) -> None:
        super().__init__(alone)
        self.axes = axes
        if alone.reads[0].shape != self.shape:
            self.why = "its outputs are not at the positions of its inputs"

    def _row(self, place: int) -> np.ndarray:
        at = np.unravel_index(place, self.shape)
        index = tuple(
            slice(None) if axis in self.axes else slice(int(n), int(n) + 1)
            for axis, n in enumerate(at)
        )
        return self.alone.reads[0][index]

    def key(self, place: int) -> bytes:
        return self._row(place).tobytes()

    def filled(self, place: int) -> list[np.ndarray]:
        first = np.broadcast_to(self._row(place), self.shape)
        return [first, *self.alone.reads[1:]]

    def lines(self, found: np.ndarray) -> np.ndarray:
        rest = [axis for axis in range(found.ndim) if axis not in self.axes]
        turned = found.transpose(*rest, *self.axes)
        count = int(np.prod([self.shape[axis] for axis in rest], dtype=int))
        return turned.reshape(count, -1)


def _asked(sides: tuple[_Asked, _Asked], apart: np.ndarray) -> Placed:
    """Asks about some differing outputs, evenly among all."""
    largest = max(side.recorded.size for side in sides)
    most = min(max(ELEMENTS // max(largest, 1), LEAST), MOST, len(apart))
    chosen = apart[np.unique(np.linspace(0, len(apart) - 1, most).astype(int))]
    replayed = 0
    known: list[tuple[bytes, np.ndarray | None]] = [(b"", None)] * 2  # the last answer
    for number in chosen.tolist():
        right = True
        for which, side in enumerate(sides):
            place = int(side.index[number])
            key = side.key(place)
            if key != known[which][0]:
                known[which] = key, side.answers(place)
            found = known[which][1]
            if found is None:
                return Placed("", "it can't be run on other operands of its shape")
            recorded = side.recorded.reshape(-1)[place : place + 1]
            right &= same(recorded, found[place : place + 1].view(recorded.dtype), side.dtype)
        replayed += right
    made = Placed("", "", len(chosen), replayed)
    if replayed < len(chosen):
        made.why = "its outputs depend on more than their own input and position"
        return made
    told = [
        f"{word}: {_classes(side)}"
        for word, side in zip(("left", "right"), sides, strict=True)
        if side.kept
    ]
    if told:
        made.word = "place"
        made.why = f"the same number gives different bits at different places; {'; '.join(told)}"
    return made


def _telling(sides: tuple[_Asked, _Asked], apart: np.ndarray) -> list[tuple[Any, Any]]:
    """For either side a few outputs, with the other side's bits."""
    chosen = apart[:TELLING].tolist()
    found = []
    for one, other in (sides, sides[::-1]):
        theirs = _bits(other.recorded, other.dtype).reshape(-1)
        places = [(int(one.index[n]), theirs[other.index[n]].tobytes()) for n in chosen]
        found.append((one, places))
    return found


def _classes(side: _Asked) -> str:
    """Returns which places are computed alike, in words."""
    labels = side.classes()
    counts = np.bincount(labels)
    if len(counts) > 2:
        return f"{len(labels)} places in {len(counts)} classes"
    rare = labels == int(np.argmin(counts))
    width = side.shape[-1] if isinstance(side, _Function) and side.shape else len(labels)
    rows = rare.reshape(-1, width)
    if len(rows) > 1 and (rows == rows[0]).all():
        return f"of each {width} places along the last axis {_spans(rows[0])} are different"
    return f"of {len(labels)} places {_spans(rare)} are different"


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


def _bits(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns bits of floating-point numbers, different values as they are."""
    plain = np.ascontiguousarray(array)
    return floats.to_bits(plain, dtype) if dtype in floats.FORMATS else plain
