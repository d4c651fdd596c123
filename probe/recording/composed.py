"""Takes several operations of a run as one: to compare them with one that fuses them, or to say
what a compiled function computes.

Where labels have paired a fused operation with the last of those that it stands for, each side's
group is run and explained like a single operation: its operands are what the group reads from
before, its meaning is that of its steps.

A compiled function is a single operation that cannot be looked into. Its library promises that it
computes what its source does, so its outputs get the labels of the outputs of an uncompiled run.
This second run is not part of the recording; only the meanings of its operations are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from probe.recording.difference import Aligned
from probe.recording.labelling import exact
from probe.recording.matching import computes, named
from probe.recording.recording import Operation, Recording, Run
from probe.semantics import Compiled, Holds, Meaning, Step, Steps, Unknown


def grouped(side: Run, group: Sequence[int], gives: Sequence[int]) -> Run:
    """Returns a run with a group of its operations as a last operation more.

    ``group``: their numbers; ``gives``: what is looked at of what the last of them gives.
    """
    run = side.recording
    group = _without_moved_inputs(run, group)
    inside = [run.operations[n] for n in group]
    given = {n for one in inside for n in one.gives}
    read = tuple(dict.fromkeys(n for one in inside for n in one.reads if n not in given))
    last, ends = inside[-1], (read, tuple(gives))
    able = len(gives) == 1 and all(one.lines is not None for one in inside)
    made = Operation(
        *(len(run.operations), last.name, named(run, group), last.path, *ends, {}),
        _meaning(run, inside, *ends),
        partial(_chain, inside, *ends) if all(one.again is not None for one in inside) else None,
        partial(_lines, inside, *ends) if able else None,
        tuple(dict.fromkeys(line for one in inside for line in one.imports)),
    )
    return replace(side, recording=replace(run, operations=[*run.operations, made]))


def _chain(
    inside: Sequence[Operation],
    reads: tuple[int, ...],
    gives: tuple[int, ...],
    arrays: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Runs a group's operations one after the other, each alone."""
    values = dict(zip(reads, arrays, strict=True))
    for one in inside:
        assert one.again is not None
        found = one.again([values[n] for n in one.reads])
        values.update(zip(one.gives, found, strict=False))
    return [values[n] for n in gives]


def _lines(
    inside: Sequence[Operation],
    reads: tuple[int, ...],
    gives: tuple[int, ...],
    names: Sequence[str],
    out: str,
) -> list[str]:
    """Writes a group's operations, one after the other."""
    known, found = dict(zip(reads, names, strict=True)), []
    for n, one in enumerate(inside):
        assert one.lines is not None
        alone = n == len(inside) - 1 and len(one.gives) == 1
        made = out if alone else f"{out}_{n}"
        several = {v: f"{made}[{k}]" for k, v in enumerate(one.gives)}
        known |= several if len(one.gives) > 1 else {one.gives[0]: made}
        found += one.lines([known[v] for v in one.reads], made)
    given = known[gives[0]]
    return found if given == out else [*found, f"{out} = {given}"]


def _before(run: Recording, group: Sequence[int], value: int) -> list[int]:
    """The operations of a group that a value comes from."""
    found, pending = set[int](), [value]
    while pending:
        given = run.values[pending.pop()].given
        if given in group and given not in found:
            found.add(given)
            pending += run.operations[given].reads
    return sorted(found)


def _without_moved_inputs(run: Recording, group: Sequence[int]) -> list[int]:
    """The operations of a group, but for those that only bring what it reads into place."""
    settled: set[int] = set()
    for number in group:
        one = run.operations[number]
        from_outside = all(run.values[n].given not in group or n in settled for n in one.reads)
        if from_outside and not computes(one):
            settled.update(one.gives)
    last = group[-1]
    return [n for n in group if n == last or not settled.issuperset(run.operations[n].gives)]


def _meaning(
    run: Recording, inside: Sequence[Operation], read: tuple[int, ...], gives: tuple[int, ...]
) -> Meaning:
    """Returns the group's steps, each of which gives one value that the next ones read."""
    numbers = {value: n for n, value in enumerate(read)}
    # what an operation reads twice, as attention to itself does, the group reads once
    if len(inside) == 1 and len(inside[0].gives) == 1 and inside[0].reads == read:
        return inside[0].meaning
    if len(inside) == 1 and isinstance(inside[0].meaning, Steps) and inside[0].meaning.gives:
        places = [numbers[n] for n in inside[0].reads]
        return _only(inside[0].meaning, places, len(read), inside[0].gives.index(gives[0]))
    steps = []
    for one in inside:
        if isinstance(one.meaning, Unknown):
            return one.meaning
        if isinstance(one.meaning, Steps) or len(one.gives) != 1:
            return Unknown(f"{one.op} is a part of it that consists of several operations itself")
        shape = run.values[one.gives[0]].shape
        steps.append(Step(one.meaning, tuple(numbers[n] for n in one.reads), shape))
        numbers[one.gives[0]] = len(read) + len(steps) - 1
    return Steps(tuple(steps))


def _only(meaning: Steps, places: Sequence[int], count: int, output: int) -> Steps:
    """The steps that one of the outputs needs. ``places``: the number of each value that they read
    among the ``count`` that are read."""
    wanted = meaning.gives[output]
    needed, pending = set[int](), [wanted]
    starts = np.cumsum([len(places), *(1 + len(one.more) for one in meaning.steps)])
    while pending:
        step = int(np.searchsorted(starts, pending.pop(), "right")) - 1
        if step >= 0 and step not in needed:
            needed.add(step)
            pending += meaning.steps[step].reads
    numbers, made, last = dict(enumerate(places)), list[Step](), count
    for step in sorted(needed):
        one = meaning.steps[step]
        made.append(replace(one, reads=tuple(numbers[n] for n in one.reads)))
        for more in range(1 + len(one.more)):
            numbers[int(starts[step]) + more] = last
            last += 1
    return Steps(tuple(made), () if numbers[wanted] == last - 1 else (numbers[wanted],))


def of(left: Run, right: Run, one: Aligned) -> tuple[Run, Run, Aligned]:
    """Returns both sides with each group as one operation, and these two as a pair.

    Of what is given the first value that differs is looked at, with the operations that it comes
    from. Only values that both groups read themselves stay among its ``reads``.
    """
    pair = next((each for each in one.gives if not each.equal), one.gives[0])
    sides = (
        grouped(left, _before(left.recording, one.inside[0], pair.left), [pair.left]),
        grouped(right, _before(right.recording, one.inside[1], pair.right), [pair.right]),
    )
    last = [side.recording.operations[-1] for side in sides]
    reads = [each.reads for each in last]
    kept = [pair for pair in one.reads if pair.left in reads[0] and pair.right in reads[1]]
    made = replace(one, left=last[0].number, right=last[1].number, reads=kept, gives=[pair])
    return sides[0], sides[1], made


def meaning(one: Operation, run: Recording, plain: Recording) -> Meaning:
    """Returns what a compiled operation of ``run`` computes. ``plain``: the same, uncompiled.

    Its operands are found by their bits among the values of the other run, its results by which
    outputs of the function they are. ``Compiled``, as before, where that isn't settled.
    """
    places = [_place(run, plain, number) for number in one.gives]
    operands = _operands(one, run, plain)
    unknown = one.meaning
    if None in places or len(run.outputs) != len(plain.outputs):
        return unknown
    wanted = [place for place in places if place is not None]
    made = steps(plain, operands, len(one.reads), wanted)
    return unknown if made is None else made


def steps(
    plain: Recording, operands: Mapping[int, int], count: int, wanted: Sequence[int]
) -> Steps | None:
    """Returns the steps of a run that give values, as one meaning; None where that isn't known.

    ``operands``: values of the run that are read, and their numbers among ``count``; ``wanted``:
    values that are given.
    """
    made = _Steps(plain, operands, count)
    needed, pending = set[int](), list(wanted)
    while pending:
        value = pending.pop()
        if value in made.numbers or made.constant(value):
            continue
        given = plain.values[value].given
        if given < 0 or isinstance(plain.operations[given].meaning, Compiled):
            return None  # no operation gave it, or its meaning is unknown
        if given not in needed:
            needed.add(given)
            pending += plain.operations[given].reads
    for number in sorted(needed):
        made.add(plain.operations[number])
    return Steps(tuple(made.made), tuple(made.numbers[value] for value in wanted))


def _place(run: Recording, plain: Recording, number: int) -> int | None:
    """Returns the value of the uncompiled run that a result is; None where it is no output."""
    if number not in run.outputs or len(run.outputs) != len(plain.outputs):
        return None
    found = plain.outputs[run.outputs.index(number)]
    ours, theirs = run.values[number], plain.values[found]
    same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return found if same else None


def _operands(one: Operation, run: Recording, plain: Recording) -> dict[int, int]:
    """Returns values of the uncompiled run that are operands, and the operands' numbers."""
    held: dict[tuple[object, ...], int] = {}
    for number, read in enumerate(one.reads):
        value = run.values[read]
        held.setdefault((value.shape, value.dtype, value.digest), number)
    found: dict[int, int] = {}
    for number, value in enumerate(plain.values):
        key = value.shape, value.dtype, value.digest
        if key in held and (value.given < 0 or held[key] not in found.values()):
            found[number] = held[key]
    return found


class _Steps:
    """Steps that give values of a run, from operands."""

    def __init__(self, plain: Recording, operands: Mapping[int, int], count: int) -> None:
        self.plain, self.given = plain, count
        self.numbers = dict(operands)
        self.made: list[Step] = []

    def constant(self, number: int) -> bool:
        """Enters a value that labels know by its content; whether it is one."""
        value = self.plain.values[number]
        content = value.content
        if content is None or not (value.given < 0 or exact(content, value.dtype)):
            return False
        self._enter(Step(Holds(content), (), value.shape), (number,))
        return True

    def add(self, one: Operation) -> None:
        """Enters an operation of the run, whose operands are there."""
        values = [self.plain.values[n] for n in one.gives]
        first, *more = (value.shape for value in values)
        reads = tuple(self.numbers[n] for n in one.reads)
        unknown = isinstance(one.meaning, Unknown)
        op = (one.op, repr(one.attributes)) if unknown else (one.op,)
        step = Step(one.meaning, reads, first, tuple(more), op, values[0].zeros)
        self._enter(step, one.gives)

    def _enter(self, step: Step, gives: Sequence[int]) -> None:
        self.made.append(step)
        for number in gives:
            self.numbers.setdefault(number, self.given)
            self.given += 1
