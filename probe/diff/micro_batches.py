"""Micro-batches of a training step as the whole batch's operations, so that the two compare.

A step that accumulates gradients runs forward and backward once for each micro-batch. What these
runs give of one operation are the rows of what the whole batch gives, or, of a gradient, terms of a
sum: the order of a weight's gradient is a tree of the micro-batches' trees. ``as_whole_batch``
writes operations that the micro-batches have in common as one: it gives the rows one behind the
other or adds the terms as the run did, and is run alone by running its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from probe.case import floats
from probe.diff.difference import ValuePair
from probe.diff.match import Repetitions, RunningMatch
from probe.diff.pairing import NOTHING, Unselected
from probe.order.semantics import Moves
from probe.record.recording import Operation, Run, Value
from probe.record.store import ProcessStore

# The paths of operations of a backward pass, and of an optimizer, as recorders write them.
BACKWARD, STEP = "backward", "step"

# What the parts of a value are to the whole's: the same, rows along an axis, terms of its sum, or
# versions of what is changed on the way, such as a running mean.
SAME, TERMS, VERSIONS = "same", "terms", "versions"


@dataclass(frozen=True)
class _Parts:
    """What the micro-batches have of a value."""

    kind: str | int
    """``SAME``, ``TERMS``, ``VERSIONS``, or the axis along which they are rows."""
    arrays: list[np.ndarray]
    """Of each micro-batch its own: four gradients of a weight."""
    number: int
    """Of the value that stands for all of them: their sum."""
    dtype: str

    def cut(self, array: np.ndarray, part: int) -> np.ndarray:
        """The share of a micro-batch of an array that stands for all of them. Of terms and
        versions it is the recorded one."""
        if isinstance(self.kind, int):
            ends = np.cumsum([each.shape[self.kind] for each in self.arrays])
            index = (slice(None),) * self.kind
            start = int(ends[part]) - self.arrays[part].shape[self.kind]
            return np.ascontiguousarray(array[(*index, slice(start, int(ends[part])))])
        return array if self.kind == SAME else self.arrays[part]

    def joined(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Puts results of all micro-batches together."""
        if isinstance(self.kind, int):
            return np.concatenate([*arrays], axis=self.kind)
        if self.kind != TERMS:
            return np.asarray(arrays[0 if self.kind == SAME else -1])
        total = arrays[0]
        for term in arrays[1:]:
            left, right = (floats.widen(each, self.dtype) for each in (total, term))
            added = left.astype(np.float64) + right.astype(np.float64)
            total = floats.round_to(added, self.dtype).reshape(term.shape)
        return np.asarray(total)


# A pass, the names of an operation, and as which of these it comes there.
Place = tuple[int, tuple[str, str], int]


def _places_in_passes(run: Run) -> tuple[dict[Place, int], int]:
    """Where each operation stands: in which forward and backward pass, by its names, and as which
    of these there; and how many passes there are."""
    places, count, behind = dict[Place, int](), 0, False
    met = Counter[tuple[str, str]]()
    for number, op in enumerate(run.operations):
        backward = op.path.split(".")[0] == BACKWARD
        if behind and not backward:
            count, met = count + 1, Counter()
        behind = backward
        name = op.op, op.path
        if op.path != STEP:
            places[count, name, met[name]] = number
            met[name] += 1
    return places, count + behind


def trains(run: Run) -> bool:
    """Whether a run has a backward pass."""
    return any(op.path.split(".")[0] == BACKWARD for op in run.operations)


def times_as_often(run: Run, whole: Run) -> int:
    """How many times a run runs all that the whole runs, what only moves elements apart, as
    ``torch.cat([model(x) for x in samples])`` does; 0: it runs different operations."""
    counts = [
        Counter((op.op, op.path) for op in each.operations if not isinstance(op.meaning, Moves))
        for each in (run, whole)
    ]
    times = {counts[0][name] / count for name, count in counts[1].items()}
    whole_times = len(times) == 1 and counts[0].keys() == counts[1].keys() and min(times) % 1 == 0
    return int(min(times)) if whole_times else 0


def _places_in_loop(run: Run, passes: int) -> dict[Place, int]:
    """Where each operation stands: in which pass of a loop, by its names, and as which of these
    there. What stands around the loop has no place."""
    total = Counter((op.op, op.path) for op in run.operations)
    places, met = dict[Place, int](), Counter[tuple[str, str]]()
    for number, op in enumerate(run.operations):
        name = op.op, op.path
        apiece, around = divmod(total[name], passes)
        if not around:
            places[met[name] // apiece, name, met[name] % apiece] = number
        met[name] += 1
    return places


# A run, and its numbers that aren't the whole's, with those of the whole.
Folded = tuple[Run, list[tuple[int, int]]]


def as_whole_batch(run: Run, whole: Run) -> Folded | None:
    """Writes the operations that the micro-batches of a run have in common as one each. None: it
    has no more passes than the other run, or nothing in common with it."""
    if trains(run):
        places, passes = _places_in_passes(run)
        whole_places, whole_passes = _places_in_passes(whole)
        if not whole_passes or passes <= whole_passes or passes % whole_passes:
            return None
    else:
        passes, whole_passes = times_as_often(run, whole), 1
        if passes < 2:
            return None
        places, whole_places = _places_in_loop(run, passes), _places_in_loop(whole, 1)
    folding, count = _Folding(run, whole), passes // whole_passes
    for (number, name, at), partner in whole_places.items():
        group = [places.get((number * count + n, name, at), -1) for n in range(count)]
        if min(group) >= 0:
            folding.groups[group[-1]] = group, partner
    folding.grouped = {n for group, _ in folding.groups.values() for n in group}
    for op in run.operations:
        folding.add(op)
    folded = folding.folded_run()
    if folded is not None and not folding.trained:
        # samples in another order, or others: their rows are no batch that either side was given
        given = {value.key for value in (*run.values, *whole.values) if value.given < 0}
        if any(value.given < 0 and value.key not in given for value in folded[0].values):
            return None
    return folded


@dataclass
class _Folding:
    """Writes a run of micro-batches as one of the whole batch; all numbers are those of the run's
    values and operations, if not said otherwise."""

    run: Run
    whole: Run
    groups: dict[int, tuple[list[int], int]] = field(default_factory=dict)
    """Operations that the micro-batches have in common and their partner in the whole, by the last
    of them: ``{11: ([3, 7, 11], 3)}``."""
    grouped: set[int] = field(default_factory=set)
    """All operations of ``groups``."""
    stand_ins: dict[int, int] = field(default_factory=dict)
    """By value: what stands for it: for a gradient that all micro-batches were added to, the sum
    of their terms."""
    parts: dict[tuple[int, ...], _Parts] = field(default_factory=dict)
    """By the values of all micro-batches: what they are to one of the whole's."""
    part_of: dict[int, tuple[_Parts, int]] = field(default_factory=dict)
    """By value: of which parts it is one, and which: rows of micro-batch 2."""
    sums: dict[Any, int] = field(default_factory=dict)
    """Sums of terms, by their bits."""
    unfolded: set[int] = field(default_factory=set)
    """Values of operations that don't fit the whole's."""
    written: set[int] = field(default_factory=set)
    """Values that an operation has given."""
    factors: list[tuple[int, int]] = field(default_factory=list)
    """Numbers that aren't the whole's, as of a loss that is divided by the micro-batches, with
    those of the whole."""
    terms: list[tuple[int, int, list[int]]] = field(default_factory=list)
    """Sums of terms, with the whole's value, and what they were moved from."""

    def __post_init__(self) -> None:
        self.trained = trains(self.run)
        self.store, self.values = ProcessStore(self.run.store), list(self.run.values)
        self.folded_operations, self.single = list[Operation](), list[Operation]()

    def add(self, op: Operation) -> None:
        """Takes an operation of the run: alone, or with those of the other micro-batches."""
        if op.number in self.groups:
            group, other = self.groups[op.number]
            ops = [self.run.operations[n] for n in group]
            folded = self._as_one_operation(ops, self.whole.operations[other])
            if folded is not None:
                self.folded_operations.append(folded)
            else:
                self.unfolded.update(n for each in ops for n in each.gives)
        self.single.append(replace(op, reads=tuple(self.stand_ins.get(n, n) for n in op.reads)))
        if op.number not in self.grouped:
            self.written.update(op.gives)
        # an optimizer may count to 1, as the factors of all losses add up to
        if op.number not in self.grouped and len(op.gives) == 1 and op.path != STEP:
            known = self.sums.get(self.values[op.gives[0]].key)
            if known is not None:  # all of a gradient has been added
                self.stand_ins[op.gives[0]] = known

    def _as_one_operation(self, ops: list[Operation], whole_op: Operation) -> Operation | None:
        """The operations of all micro-batches as one; None: they don't fit the whole's."""
        if {(len(op.reads), len(op.gives)) for op in ops} != {
            (len(whole_op.reads), len(whole_op.gives))
        }:
            return None
        reads, gives = list[_Parts](), list[_Parts]()
        moves = isinstance(whole_op.meaning, Moves)
        if moves and any(self.unfolded.intersection(op.reads) for op in ops):
            return None
        for place, m in enumerate(whole_op.reads):
            parts = self._parts([op.reads[place] for op in ops], m, VERSIONS)
            if parts is None:
                return None
            reads.append(parts)
        for place, m in enumerate(whole_op.gives):
            numbers = [op.gives[place] for op in ops]
            # what the next micro-batch reads of the one before is changed by each in turn
            turn = any(n in op.reads for n, op in zip(numbers, ops[1:], strict=False))
            parts = self._parts(numbers, m, VERSIONS if turn else TERMS)
            if parts is None:
                return None
            number = numbers[-1] if turn else parts.number
            if number in self.written:  # what a transpose of a transpose gives is the weight itself
                self.values.append(replace(self.values[number]))
                number = len(self.values) - 1
            self.written.add(number)
            gives.append(replace(parts, number=number))
        if not self.trained and any(each.kind in (TERMS, VERSIONS) for each in (*reads, *gives)):
            return None  # steps of a loop whose samples aren't rows of the whole's
        self.terms += [
            (each.number, m, [value.number for value in reads] if moves else [])
            for each, m in zip(gives, whole_op.gives, strict=True)
            if each.kind == TERMS
        ]

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            if moves and any(each.kind == TERMS for each in reads):
                return ops[0].again(arrays)  # type: ignore[misc]
            results = [
                op.again([each.cut(a, n) for each, a in zip(reads, arrays, strict=True)])  # type: ignore[misc]
                for n, op in enumerate(ops)
            ]
            several = zip(gives, zip(*results, strict=True), strict=False)
            return [each.joined(arrays) for each, arrays in several]

        folded = replace(
            ops[-1],
            reads=tuple(each.number for each in reads),
            gives=tuple(each.number for each in gives),
            meaning=whole_op.meaning,
            attributes=_attributes(ops, whole_op),
            again=again if all(op.again is not None for op in ops) else None,
            lines=None,
            name=whole_op.name,
        )
        if moves and whole_op.again is not None and reads:
            # rows may come to lie elsewhere, as where the batch isn't the first axis
            whole = whole_op.again([each.joined(each.arrays) for each in reads])
            both = zip(whole, gives, strict=False)
            if any(a.tobytes() != each.joined(each.arrays).tobytes() for a, each in both):
                return None
        return folded

    def _parts(self, numbers: list[int], other: int, apart: str) -> _Parts | None:
        """What values of the micro-batches are to one of the whole's. ``apart``: what those of the
        whole's shape are, if not the same."""
        key = tuple(numbers)
        if key in self.parts:
            return self.parts[key]
        values, value = [self.run.values[n] for n in numbers], self.whole.values[other]
        arrays = [array for n in numbers if (array := self.run.array(n)) is not None]
        if any(each.dtype != value.dtype for each in values) or len(arrays) < len(numbers):
            return None
        axes = {
            axis
            for each in values
            for axis, (n, m) in enumerate(zip(each.shape, value.shape, strict=False))
            if n != m
        }
        if any(len(each.shape) != len(value.shape) for each in values) or len(axes) > 1:
            return None
        kind: str | int = axes.pop() if axes else apart
        if isinstance(kind, int):
            rows = sum(each.shape[kind] for each in values)
            if rows != value.shape[kind] or self.unfolded.intersection(numbers):
                return None
        elif len({each.digest for each in values}) == 1:
            kind = SAME
        elif value.dtype not in floats.FORMATS:
            kind = VERSIONS
        parts = _Parts(kind, arrays, self.stand_ins.get(numbers[0], numbers[0]), value.dtype)
        if kind == SAME and prod(value.shape) == 1 and values[0].digest != value.digest:
            self.factors.append((parts.number, other))
        if kind == TERMS or isinstance(kind, int):
            parts = replace(parts, number=self._stand_in(parts, value))
        for n, old in enumerate(numbers):
            if isinstance(kind, int):
                self.part_of[old] = parts, n
            elif kind == SAME:
                self.stand_ins[old] = parts.number
        self.parts[key] = parts
        return parts

    def _stand_in(self, parts: _Parts, like: Value) -> int:
        """The number of a value that stands for those of the micro-batches."""
        digest = self.store.put(np.ascontiguousarray(parts.joined(parts.arrays)))
        value = replace(like, digest=digest, given=-1, address=None)
        if parts.kind != TERMS:  # rows of what the run was given
            for number, each in enumerate(self.run.values):
                if each.key == value.key and each.given < 0:
                    return number
        self.values.append(value)
        if parts.kind == TERMS:
            self.sums[value.key] = len(self.values) - 1
        return len(self.values) - 1

    def folded_run(self) -> Folded | None:
        """The run, of the micro-batches' operations only those that nothing stands for, and its
        factors; None: nothing was written as one."""
        rows = any(isinstance(parts.kind, int) for parts in self.parts.values())
        if not self.folded_operations or not (self.trained or rows):
            return None
        outputs = [self.stand_ins.get(n, n) for n in self.run.outputs]
        terms, needed = {*self.sums.values()}, {*outputs}
        needed.update(n for op in self.single if op.number not in self.grouped for n in op.reads)
        pending = list[Operation]()
        for op in reversed(self.folded_operations):
            # terms that the run never adds, as of a loss that is not returned, are no value of it
            if needed.intersection(op.gives) or not terms.issuperset(op.gives):
                pending.append(op)
                needed.update(op.reads)
        needed = {*outputs, *(n for op in pending for n in op.reads)}
        given, cut = {n for op in pending for n in op.gives}, set[int]()
        for op in reversed(self.single):
            step = op.path == STEP  # nothing reads how often an optimizer has run
            if step or needed.intersection(op.gives) - given:
                pending.append(op)
                needed.update(op.reads)
                cut.update(n for n in op.reads if n in self.part_of)
                needed -= cut
        pending += [self._cut(n) for n in sorted(cut)]
        pending.sort(key=lambda op: op.number)
        given.update(n for op in pending for n in op.gives)
        numbers, values, operations = dict[int, int](), list[Value](), list[Operation]()

        def number(old: int, giver: int = -1) -> int:
            if old not in numbers:
                numbers[old] = len(values)
                value = self.values[old]
                value = value if giver < 0 else replace(value, role="", name="")
                values.append(replace(value, given=giver))
            return numbers[old]

        while pending:  # those that read what stands for all micro-batches move behind it
            later = list[Operation]()
            for op in pending:
                if any(n in given and n not in numbers for n in op.reads):
                    later.append(op)
                    continue
                at = len(operations)
                reads = tuple([number(n) for n in op.reads])
                gives = tuple([number(n, at) for n in op.gives])
                operations.append(replace(op, reads=reads, gives=gives, number=at))
            if len(later) == len(pending):
                return None
            pending = later
        run = replace(
            self.run,
            values=values,
            operations=operations,
            outputs=tuple(map(number, outputs)),
            store=self.store,
            unsteady=frozenset(),
        )
        # of a loss that is not asked for the run adds no terms: there is no value of it to compare
        added = {*self.stand_ins.values(), *outputs}
        for total, m, moved in reversed(self.terms):
            if total in added:
                added.update(moved)
            else:
                self.factors.append((total, m))
        return run, [(numbers[n], m) for n, m in self.factors if n in numbers]

    def _cut(self, number: int) -> Operation:
        """What gives the share of a micro-batch of the value that stands for all."""
        parts, part = self.part_of[number]
        ends = (parts.number,), (number,)
        again = lambda arrays: [parts.cut(arrays[0], part)]  # noqa: E731
        return Operation("micro-batch", "", *ends, Moves(), {}, again, name=f"micro-batch {part}")


def _attributes(ops: Sequence[Operation], whole_op: Operation) -> Mapping[str, Any]:
    """The whole's arguments, where those of the micro-batches are the same, or add up to them as
    sizes do; else the last micro-batch's."""

    def alike(some: Sequence[Any], whole: Any) -> bool:
        if all(each == whole for each in some):
            return True
        if isinstance(whole, list | tuple) and {len(each) for each in some} == {len(whole)}:
            return all(map(alike, zip(*some, strict=True), whole))
        numbers = isinstance(whole, int | float) and not isinstance(whole, bool)
        return numbers and sum(some) == whole

    try:
        fits = all(
            alike([op.attributes[name] for op in ops], value)
            for name, value in whole_op.attributes.items()
        )
    except (KeyError, TypeError, ValueError):  # arguments of other kinds
        fits = False
    return whole_op.attributes if fits else ops[-1].attributes


def fold_micro_batches(left: Run, right: Run) -> RunningMatch | None:
    """Both runs, with the micro-batches of one of them written as the other's batch; None: neither
    has any."""
    folded, turned = as_whole_batch(left, right), False
    if folded is None:
        folded, turned = as_whole_batch(right, left), True
    if folded is None:
        return None
    run, factors = folded
    match = RunningMatch((left, run) if turned else (run, right), Repetitions())
    for both in factors:  # a scale that each side has from its loss: what it scales is compared
        n, m = both[::-1] if turned else both
        match.pairs[n, m] = ValuePair(n, m, NOTHING, Unselected.UNKNOWN)
    return match
