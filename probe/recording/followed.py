"""Which elements of one run another run has too, computed alike all the way from the inputs.

Labels say which elements read the same (:mod:`probe.recording.labels`). Here they are followed
operation by operation: where an operation computes an element differently in the two runs, its
label becomes one that the other run has nowhere, and so does that of whatever reads it. An output
that still has its label at the end is the other run's, bit for bit, as far as the operations were
judged. It works for every graph: chains, residual connections, concatenations, several inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.recording.difference import (
    Aligned,
    Pair,
    align,
    filled,
    given_labels,
    labelled,
    selected,
)
from probe.recording.judging import Judged, settled
from probe.recording.labels import Labels, agreeing, joined, tag
from probe.recording.recording import Recording, Side

MOST_BYTES = 1 << 28
"""Bytes of operands that are held at once."""

Judge = Callable[[Aligned], Judged]


@dataclass
class Told:
    """An operation of both runs, and how it was judged."""

    one: Aligned
    found: Judged


@dataclass
class Followed:
    """Labels of two runs; ``left`` has those of its own where something was computed differently.

    ``told``: operations that were judged, but for those that have no choice. ``alone``: operations
    of one run that compute something.
    """

    left: list[Labels]
    right: list[Labels]
    told: list[Told] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)


def labels_of(left: Side, right: Side) -> tuple[list[Labels], list[Labels]]:
    """Returns the labels of every value of both runs, by what is read alone."""
    filled(left, right.recording)
    filled(right, left.recording)
    return labelled(left.recording, right.recording), labelled(right.recording, left.recording)


def follow(left: Side, right: Side, judge: Judge | None = None) -> Followed:
    """Follows two runs. ``judge``: says how an operation compares, given the pairs of its outputs
    that read the same and were computed alike before; None: what is read decides alone."""
    ours, theirs = left.recording, right.recording
    found = Followed(*labels_of(left, right))
    if judge is None:
        return found
    changed: set[int] = set()
    for mine, other in align(ours, theirs):
        if mine is None or other is None:
            _unmatched(found, ours, theirs, mine, other)
            continue
        op = ours.operations[mine]
        if changed.intersection(op.reads):
            given = given_labels(ours, op, found.left)  # type: ignore[arg-type]
            for number, label in zip(op.gives, given, strict=True):
                if ours.values[number].content is None:
                    found.left[number] = label
                    changed.add(number)
        if settled(op.meaning):
            continue
        one = _aligned(found, ours, theirs, mine, other)
        if not any(pair.compared for pair in one.gives):
            continue
        told = judge(one)
        found.told.append(Told(one, told))
        for pair, apart in zip(one.gives, told.apart, strict=False):
            if apart is not None and apart.any():
                found.left[pair.left] = _marked(found.left[pair.left], pair, apart, mine)
                changed.add(pair.left)
    return found


def _unmatched(
    found: Followed, ours: Recording, theirs: Recording, mine: int | None, other: int | None
) -> None:
    """An operation of one run: what it gives, the other run hasn't, unless it only moves."""
    side, number = (ours, mine) if mine is not None else (theirs, other)
    assert number is not None
    op = side.operations[number]
    if not settled(op.meaning):
        found.alone.append(op.name)


def _aligned(found: Followed, ours: Recording, theirs: Recording, mine: int, other: int) -> Aligned:
    one, two = ours.operations[mine], theirs.operations[other]
    made = Aligned(one.name, one.op, one.path, mine, other)

    def pair(n: int, m: int) -> Pair:
        a, b = found.left[n], found.right[m]
        chosen = agreeing(a, b)
        told = Pair(n, m, chosen, a.known and b.known)
        told.compared = selected(chosen, ours.values[n].shape)
        return told

    made.reads = [pair(*both) for both in zip(one.reads, two.reads, strict=False)]
    made.gives = [pair(*both) for both in zip(one.gives, two.gives, strict=False)]
    return made


def _marked(one: Labels, pair: Pair, apart: np.ndarray, number: int) -> Labels:
    """Labels with a mark where an operation computes differently; along axes that are left out, at
    all elements where it does so at one."""
    every = np.arange(int(np.prod(one.shape, dtype=int))).reshape(one.shape)
    index = np.asarray(pair.selection.taken(every, 0)).reshape(-1)
    mask = np.zeros(one.shape, bool)
    mask.reshape(-1)[index[apart]] = True
    out = tuple(axis for axis in range(len(one.shape)) if one.implicit(axis))
    mask = mask.any(axis=out, keepdims=True) if out else mask
    mark = joined(one.array, tag("computed differently", number))
    return one._replace(array=np.where(mask, mark, one.array))


def reading(whole: Labels, nothing: Labels) -> np.ndarray:
    """Returns which elements of a value read content: bool, of its shape.

    ``whole``, ``nothing``: labels of the same run with content, and of padding alone. An exact
    zero of padding alone may be another one's: what is told apart reads content.
    """
    found: np.ndarray = np.broadcast_to(
        whole.full(_apart_axes(whole, nothing)) != nothing.full(_apart_axes(whole, nothing)),
        whole.shape,
    )
    return found


def _apart_axes(one: Labels, other: Labels) -> list[int]:
    return [
        axis
        for axis in range(len(one.shape))
        if not (one.implicit(axis) and other.implicit(axis)) or one.name(axis) != other.name(axis)
    ]


class Held:
    """A side whose operands are fetched for many operations at once, and kept while there is room.

    As of ``Side``; a run of the model for each ``MOST_BYTES`` of operands, rather than for each
    operation.
    """

    def __init__(self, side: Side) -> None:
        self.side, self.recording = side, side.recording
        self._held: dict[int, np.ndarray] = {}
        self._agains: dict[int, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.side, name)

    def arrays(self, wanted: set[int]) -> dict[int, np.ndarray]:
        """As of ``Side``: with what the next operations read and give."""
        if not wanted <= set(self._held):
            self._held = self.side.arrays(wanted | set(self._behind(wanted)))
        return {number: self._held[number] for number in wanted}

    def _behind(self, wanted: set[int]) -> Iterable[int]:
        """Further values, from the first wanted one on, as many as there is room for."""
        values = self.recording.values
        room = MOST_BYTES
        first = min(wanted)
        for number in (*range(first, len(values)), *range(first)):
            value = values[number]
            room -= int(np.prod(value.shape, dtype=int)) * 8
            if room < 0:
                return
            yield number

    def again(self, number: int) -> Any:
        """As of ``Side``."""
        if self._agains is None:
            every = {one.number for one in self.recording.operations if not settled(one.meaning)}
            self._agains = self.side.agains(every)
        if number not in self._agains:
            self._agains |= self.side.agains({number})
        return self._agains[number]


__all__ = ["Followed", "Held", "Told", "follow", "labels_of", "reading"]
