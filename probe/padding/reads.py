"""Which positions of the padded axis each output of an operation reads, found by its labels.

An operand is labelled position by position and marked at some of them: the outputs whose labels
change read those. Few marks tell the pattern, which repeats along the axis (a stride, a factor of
upsampling); marks of everything before or behind a position then prove it at both edges. Nothing
is known here of what an operation is called or does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probe.recording.matching import result_labels
from probe.recording.recording import Run
from probe.semantics.labels import ZERO, Labels, joint, mixed, tag

SMALL = 64
"""Positions up to which every one is marked by itself."""

PERIODS = 32
"""Largest stride that is looked for."""

MARKS = 6
"""Places of an operand, beside those at its edges, before and behind which all is marked."""

PADDED = Callable[[int], "int | None"]
"""The padded axis of a value, by number; None where it has none."""


@dataclass(frozen=True)
class Reads:
    """What the outputs of an operation read of one operand, in positions of the full run.

    ``low``, ``high``: of each output the first and the last position, ``high`` -1 and ``low`` the
    operand's size where it reads none. ``period``: further ``period`` positions on, all outputs
    are ``moved`` on.
    """

    low: np.ndarray
    high: np.ndarray
    period: int = 1
    moved: int = 1

    @cached_property
    def reach(self) -> np.ndarray:
        """Returns the last position that any of the outputs up to each of them reads."""
        return np.maximum.accumulate(self.high)


def by_position(run: Run, number: int, axis: int, content: int | None = None) -> Labels:
    """Labels that name a value's positions along an axis alone; zeros from ``content`` on."""
    shape = run.values[number].shape
    array = joint(tag("position", number), np.arange(1, shape[axis] + 1, dtype=np.uint64))
    if content is not None:
        array[content:] = ZERO
    lengths = [shape[a] if a == axis else min(n, 1) for a, n in enumerate(shape)]
    return Labels(shape, array.reshape(lengths))


def lines(label: Labels, axis: int | None) -> np.ndarray:
    """Returns a label for each position along an axis, from those of all its elements; of all of
    them one where there is no axis."""
    if axis is None:
        full, axis = label.full()[None], 0
    else:
        full = label.full([axis])
    rest = tuple(a for a in range(full.ndim) if a != axis)
    index = np.arange(1, full.size // max(full.shape[axis], 1) + 1, dtype=np.uint64)
    index = index.reshape([1 if a == axis else n for a, n in enumerate(full.shape)])
    zero = np.asarray((full == ZERO).all(axis=rest))
    with np.errstate(over="ignore"):
        found = np.asarray(mixed(joint(full, index)).sum(axis=rest, dtype=np.uint64))
    return np.where(zero, ZERO, found)


class Marked:
    """One operation of a run whose operands are labelled by position.

    ``labels``: of everything that no padded axis is in. ``axis``: of each value. ``wanted``: the
    outputs that are looked at.
    """

    def __init__(
        self,
        run: Run,
        number: int,
        labels: Sequence[Labels | None],
        axis: PADDED,
        wanted: Container[int],
    ) -> None:
        self.run, self.operation, self.axis = run, run.operations[number], axis
        self.wanted = wanted
        reads = [n for n in dict.fromkeys(self.operation.reads) if axis(n) is not None]
        self.found = {n: labels[n] for n in self.operation.reads if axis(n) is None}
        self.found |= {n: by_position(run, n, axis(n) or 0) for n in reads}

    def outputs(self, changed: dict[int, Labels] | None = None) -> dict[int, np.ndarray]:
        """Returns a label for each position of each wanted output, with some operands' changed."""
        some = self.found | (changed or {})
        found = result_labels(self.run, self.operation, some)  # type: ignore[arg-type]
        both = zip(self.operation.gives, found, strict=True)
        return {n: lines(one, self.axis(n)) for n, one in both if n in self.wanted}

    def marked(self, number: int, which: np.ndarray) -> Labels:
        """Returns an operand's labels with a mark at positions (bool)."""
        one, axis = self.found[number], self.axis(number) or 0
        assert one is not None
        at = which.reshape([-1 if a == axis else 1 for a in range(len(one.shape))])
        return one._replace(array=np.where(at, joint(one.array, tag("marked")), one.array))


def reads(one: Marked, number: int) -> dict[int, Reads] | None:
    """Returns what each wanted output of an operation reads of an operand, by their numbers; None
    where no pattern was found."""
    shape, axis = one.run.values[number].shape, one.axis(number)
    assert axis is not None
    size, plain = shape[axis], one.outputs()
    asked: dict[int, dict[int, np.ndarray]] = {}

    def changed(which: np.ndarray) -> dict[int, np.ndarray]:
        marked = one.outputs({number: one.marked(number, which)})
        return {n: np.flatnonzero(marked[n] != labels) for n, labels in plain.items()}

    found = {}
    for output, labels in plain.items():

        def readers(position: int, output: int = output) -> np.ndarray:
            """Returns the positions of an output that read one of the operand."""
            if position not in asked:
                asked[position] = changed(np.arange(size) == position)
            return asked[position][output]

        for made in _patterns(readers, size, len(labels)):
            if _proved(made, lambda which, n=output: changed(which)[n], size):  # type: ignore[misc]
                found[output] = made
                break
        else:
            return None
    return found


Readers = Callable[[int], np.ndarray]


def _patterns(readers: Readers, size: int, outputs: int) -> Iterator[Reads]:
    """Yields the patterns that a few positions allow, the likeliest first."""
    if size <= SMALL:
        ends = _ends([(readers(p), p) for p in range(size)], size, outputs)
        for begin in range(size // 2, size - 1):
            for found in _repeated(readers, begin, size, outputs):
                if np.array_equal(found.low, ends[0]) and np.array_equal(found.high, ends[1]):
                    yield found
        yield Reads(*ends, 0, 0)
        return
    middle = next((p for p in range(size // 2, size) if len(readers(p))), None)
    if middle is None:
        yield Reads(np.full(outputs, size), np.full(outputs, -1))
        return
    if len(readers(middle)) == outputs:
        yield Reads(np.zeros(outputs, int), np.full(outputs, size - 1))
    yield from _repeated(readers, middle, size, outputs)


def _repeated(readers: Readers, begin: int, size: int, outputs: int) -> Iterator[Reads]:
    """Yields the patterns in which the readers of some positions are those of all, moved on."""
    first = readers(begin)
    for period in range(1, min(PERIODS, size - begin - 1) + 1):
        moved, carried = _moved(first, readers(begin + period), outputs)
        if moved <= 0:
            continue
        pairs = []
        for phase in range(period):
            at = begin + phase
            steps = np.arange(-(at // period), (size - 1 - at) // period + 1)
            own = readers(at)[:1] if carried else readers(at)
            pairs += [(own + step * moved, at + step * period) for step in steps.tolist()]
        low, high = _ends(pairs, size, outputs)
        if carried:  # each output reads everything before it too
            high = np.maximum.accumulate(high)
            low = np.where(high < 0, size, 0)
        yield Reads(low, high, period, moved)


def _moved(first: np.ndarray, other: np.ndarray, outputs: int) -> tuple[int, bool]:
    """By how much the readers of a position are those of another one, and whether they are all up
    to the last output; 0 where they are not."""
    if not len(first) or not len(other):
        return 0, False
    moved = int(other[0] - first[0])
    last = first[-1] == other[-1] == outputs - 1
    if last and all(one[-1] - one[0] + 1 == len(one) for one in (first, other)):
        return moved, True
    return (moved, False) if np.array_equal(first + moved, other) else (0, False)


def _ends(
    pairs: Sequence[tuple[np.ndarray, int]], size: int, outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.full(outputs, size), np.full(outputs, -1)
    for own, position in pairs:
        there = own[(own >= 0) & (own < outputs)]
        low[there] = np.minimum(low[there], position)
        high[there] = np.maximum(high[there], position)
    return low, high


def _proved(one: Reads, changed: Callable[[np.ndarray], np.ndarray], size: int) -> bool:
    """Marks everything before and everything behind a few positions."""
    places = np.arange(size)
    drawn = np.random.default_rng(size).integers(0, size + 1, MARKS).tolist()
    for at in {1, 2, 3, size - 3, size - 2, size - 1, *drawn}:
        if not 0 < at < size:
            continue
        behind, before = changed(places >= at), changed(places < at)
        if not np.array_equal(behind, np.flatnonzero(one.high >= at)):
            return False
        if not np.array_equal(before, np.flatnonzero(one.low < at)):
            return False
    return True
