"""Which elements of a run's values change as it is repeated with other content.

A repetition is compared while it runs, value by value, with what is kept of the run, and leaves
marks alone: the values of four runs more would not fit beside a large model's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np

from probe import budget, floats
from probe.errors import Foreign, ProbeError, foreign
from probe.recording.contract import WEIGHT, Again, Operation, Recorder, Seen
from probe.recording.recording import Run, record_run
from probe.recording.store import array_digest

# Of eps, the power up to which two results are taken for the same: half of the digits.
HALF = 0.5


@dataclass
class Marks:
    """Of a run's values, by number, where a repetition has different bits.

    ``changed``: bool, of size 1 along axes along which it is the same. ``missing``: values that
    some repetition did not have, or had in another shape: nothing is known of those.
    ``repetitions``: how many there were.
    """

    run: Run
    changed: dict[int, np.ndarray] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    repetitions: int = 0

    def of(self, number: int) -> np.ndarray | None:
        """Returns the mark of a value, to be broadcast to its shape; None: nothing is known."""
        if number in self.missing:
            return None
        nothing = np.zeros((1,) * len(self.run.values[number].shape), bool)
        return self.changed.get(number, nothing)

    def compare(
        self,
        number: int,
        shape: tuple[int, ...],
        dtype: str,
        array: np.ndarray,
        rounded: bool = False,
    ) -> None:
        """Marks where a value of a repetition differs from the run's; where it may be ``rounded``
        in another way, as operations of other sizes round, by more than rounding does."""
        value = self.run.values[number]
        if number in self.missing:
            return
        if (shape, dtype) != (value.shape, value.dtype):
            self.missing.add(number)
            return
        if array_digest(array) == value.digest:
            return
        before = self.run.array(number)
        if before is None or before.shape != array.shape:
            self.missing.add(number)
            return
        mark = differing(before, np.asarray(array), dtype)
        if rounded and dtype in floats.FORMATS:
            ours, theirs = (floats.widen(np.asarray(a), dtype) for a in (before, array))
            with np.errstate(all="ignore"):
                size = np.abs(ours[np.isfinite(ours)]).max(initial=0.0)
                mark &= ~(np.abs(ours - theirs) <= floats.eps(dtype) ** HALF * size)
        mark = compact(mark)
        if number in self.changed:
            mark = compact(self.changed[number] | mark)
        self.changed[number] = mark


def differing(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Where two arrays of one shape have different bits; zeros of either sign are alike."""
    if left.dtype.kind in "cV":
        width = left.dtype.itemsize
        both = (np.ascontiguousarray(a).reshape(*a.shape, 1).view(np.uint8) for a in (left, right))
        first, second = both
        return np.asarray((first != second).reshape(*left.shape, width).any(-1))
    if left.dtype.kind != "f" and dtype not in floats.FORMATS:
        return np.asarray(left != right)
    unit = f"u{left.dtype.itemsize}"
    first, second = (np.ascontiguousarray(a).reshape(a.shape).view(unit) for a in (left, right))
    apart = first != second
    one = first.dtype.type(1)
    apart &= ((first | second) << one) != 0  # not both zero
    return np.asarray(apart)


def compact(mark: np.ndarray) -> np.ndarray:
    """Returns a mark of size 1 along axes along which nothing changes."""
    for axis in range(mark.ndim):
        if mark.shape[axis] > 1:
            first = mark[(slice(None),) * axis + (slice(1),)]
            if np.array_equal(np.broadcast_to(first, mark.shape), mark):
                mark = first
    return np.array(mark)


Names = tuple[str, str]


def aligned(left: Sequence[Operation], right: Sequence[Operation]) -> list[tuple[int, int]]:
    """Pairs operations by name, module and order: the longest common parts."""
    names: list[list[Names]] = [[(op.op, op.path) for op in side] for side in (left, right)]
    if names[0] == names[1]:
        return [(n, n) for n in range(len(left))]
    # layers of one kind are more than 1 % of 200 operations, and no junk
    blocks = SequenceMatcher(None, names[0], names[1], autojunk=False).get_matching_blocks()
    return [(start + n, begin + n) for start, begin, size in blocks for n in range(size)]


class _Watch:
    """Compares a repetition with a run as long as it takes the same operations."""

    def __init__(self, marks: Marks) -> None:
        self.marks, self.at, self.other_branch = marks, 0, False
        self.met = set[int]()

    def __call__(self, op: Operation) -> None:
        operations = self.marks.run.operations
        before = operations[self.at] if self.at < len(operations) else None
        if (
            self.other_branch
            or before is None
            or (op.op, op.path) != (before.op, before.path)
            or (len(op.reads), len(op.gives)) != (len(before.reads), len(before.gives))
        ):
            self.other_branch = True
            return
        self.at += 1
        for seen, number in zip(op.reads, before.reads, strict=True):
            if self.marks.run.values[number].given < 0:
                self.compare(seen, number)
        for seen, number in zip(op.gives, before.gives, strict=True):
            self.compare(seen, number)

    def compare(self, seen: Seen, number: int) -> None:
        if number not in self.met:
            self.met.add(number)
            self.marks.compare(number, seen.shape, seen.dtype, seen.array())


def repeated(run: Run, recorders: Iterable[Callable[[], Recorder]]) -> Marks:
    """Repeats a run; each of ``recorders`` gives a recorder of it with other content.

    A repetition that fails, as content of its own may make it do, says nothing and isn't counted.
    One that takes another branch is recorded whole and its operations are aligned.
    """
    marks = Marks(run)
    for make in recorders:
        if budget.spent():
            break
        watch = _Watch(marks)
        try:
            with unheard():
                recorder = foreign(make)
                outputs = foreign(_recorded, recorder, watch)
        except (Foreign, ProbeError):  # a model may raise what it likes at other numbers
            if not marks.repetitions:
                marks = Marks(run)
            continue
        marks.repetitions += 1
        if not watch.other_branch and watch.at == len(run.operations):
            for seen, number in zip(outputs, run.outputs, strict=False):
                watch.compare(seen, number)
        else:
            _compare_branches(marks, record_run(recorder))
    return marks


@contextmanager
def unheard() -> Iterator[None]:
    """Has nothing warn of what other content makes overflow."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _recorded(recorder: Recorder, watch: _Watch) -> list[Seen]:
    while True:
        try:
            return recorder.record(watch)
        except Again:  # it has learned on the way how to run what it runs
            watch.at, watch.other_branch, watch.met = 0, False, set()


def _compare_branches(marks: Marks, other: Run) -> None:
    run, met = marks.run, set[int]()
    pairs = [*zip(run.outputs, other.outputs, strict=False)]
    for first, second in aligned(run.operations, other.operations):
        mine, theirs = run.operations[first], other.operations[second]
        reads = zip(mine.reads, theirs.reads, strict=False)
        pairs += [(n, m) for n, m in reads if run.values[n].given < 0]
        pairs += zip(mine.gives, theirs.gives, strict=False)
    for number, there in pairs:
        value, array = other.values[there], other.array(there)
        if number not in met and array is not None:
            met.add(number)
            marks.compare(number, value.shape, value.dtype, array, rounded=True)
    weights = {n for n, value in enumerate(run.values) if value.role == WEIGHT}
    marks.missing.update(set(range(len(run.values))) - met - weights)
