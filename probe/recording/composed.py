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

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from probe.recording.contract import Seen, Visit
from probe.recording.difference import Aligned
from probe.recording.matching import computes, is_exact_content, region_text
from probe.recording.recording import Operation, Run, operations_between, record_run
from probe.semantics import Compiled, Holds, Meaning, Step, Steps, Unknown


def as_one_operation(run: Run, group: Sequence[int], gives: Sequence[int]) -> Run:
    """Returns a run with a group of its operations as a last operation more.

    ``group``: their numbers; ``gives``: what is looked at of what the last of them gives.
    """
    group = _without_moved_inputs(run, group)
    inside = [run.operations[n] for n in group]
    given = {n for one in inside for n in one.gives}
    read = tuple(dict.fromkeys(n for one in inside for n in one.reads if n not in given))
    last, ends = inside[-1], (read, tuple(gives))
    able = len(gives) == 1 and all(one.lines is not None for one in inside)
    made = Operation(
        *(region_text(run, group), last.path, *ends, _joint_meaning(run, inside, *ends), {}),
        partial(_run_chain, inside, *ends)
        if all(one.again is not None for one in inside)
        else None,
        partial(_chain_lines, inside, *ends) if able else None,
        tuple(dict.fromkeys(line for one in inside for line in one.imports)),
        name=last.name,
        number=len(run.operations),
    )
    return replace(run, operations=[*run.operations, made])


def _run_chain(
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


def _chain_lines(
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


def _without_moved_inputs(run: Run, group: Sequence[int]) -> list[int]:
    """The operations of a group, but for those that only bring what it reads into place."""
    settled: set[int] = set()
    for number in group:
        one = run.operations[number]
        from_outside = all(run.values[n].given not in group or n in settled for n in one.reads)
        if from_outside and not computes(one):
            settled.update(one.gives)
    last = group[-1]
    return [n for n in group if n == last or not settled.issuperset(run.operations[n].gives)]


def _joint_meaning(
    run: Run, inside: Sequence[Operation], read: tuple[int, ...], gives: tuple[int, ...]
) -> Meaning:
    """Returns the steps of a group that what it gives needs, those of each of its operations."""
    # what an operation reads twice, as attention to itself does, the group reads once
    if len(inside) == 1 and len(inside[0].gives) == 1 and inside[0].reads == read:
        return inside[0].meaning
    every: list[Entry] = []
    for one in inside:
        if isinstance(one.meaning, Unknown):
            return one.meaning
        if not isinstance(one.meaning, Steps):
            shapes = [run.values[n].shape for n in one.gives]
            step = Step(one.meaning, (), shapes[0], tuple(shapes[1:]), (one.op,))
            every.append((step, [*one.reads], [*one.gives]))
            continue
        own, count = one.meaning.steps, sum(1 + len(step.more) for step in one.meaning.steps)
        keys: list[Any] = [*one.reads, *((one.number, n) for n in range(count))]
        ends = one.meaning.gives or (len(keys) - 1,)
        if min(ends) < len(one.reads):
            return Unknown(f"{one.op} is a part of it, and gives what it reads")
        for end, value in zip(ends, one.gives, strict=False):
            keys[end] = value
        at = len(one.reads)
        for step in own:
            end = at + 1 + len(step.more)
            every.append((step, [keys[n] for n in step.reads], keys[at:end]))
            at = end
    needed, kept = set[Any](gives), list[Entry]()
    for entry in reversed(every):
        if needed.intersection(entry[2]):
            kept.insert(0, entry)
            needed.update(entry[1])
    found = _number_steps(kept, {value: n for n, value in enumerate(read)}, len(read), gives)
    last = len(read) + sum(len(entry[2]) for entry in kept) - 1
    return replace(found, gives=()) if found.gives == (last,) else found


Entry = tuple[Step, Sequence[Any], Sequence[Any]]
"""A step that has no numbers yet, and names of what it reads and gives."""


def _number_steps(
    entries: Sequence[Entry], operands: Mapping[Any, int], count: int, wanted: Sequence[Any]
) -> Steps:
    """Returns steps with the numbers of what they read. ``operands``: numbers among ``count``."""
    made, numbers = list[Step](), dict(operands)
    for step, reads, gives in entries:
        made.append(replace(step, reads=tuple(numbers[one] for one in reads)))
        for one in gives:
            numbers.setdefault(one, count)
            count += 1
    return Steps(tuple(made), tuple(numbers[one] for one in wanted))


def joint_operations(left: Run, right: Run, one: Aligned) -> tuple[Run, Run, Aligned]:
    """Returns both sides with each group as one operation, and these two as a pair.

    Of what is given the first value that differs is looked at, with the operations that it comes
    from. Only values that both groups read themselves stay among its ``reads``.
    """
    pair = next((each for each in one.gives if not each.equal), one.gives[0])
    sides = list[Run]()
    for side, value, group in zip((left, right), (pair.left, pair.right), one.inside, strict=True):
        outside = {n for n, v in enumerate(side.values) if v.given not in group}
        sides.append(as_one_operation(side, operations_between(side, [value], outside)[0], [value]))
    last = [side.operations[-1] for side in sides]
    reads = [each.reads for each in last]
    kept = [pair for pair in one.reads if pair.left in reads[0] and pair.right in reads[1]]
    made = replace(one, left=last[0].number, right=last[1].number, reads=kept, gives=[pair])
    return sides[0], sides[1], made


def compiled_meaning(one: Operation, run: Run, plain: Run) -> Meaning:
    """Returns what a compiled operation of ``run`` computes. ``plain``: the same, uncompiled.

    Its operands are found by their bits among the values of the other run, its results by which
    outputs of the function they are. ``Compiled``, as before, where that isn't settled.
    """
    if len(run.outputs) != len(plain.outputs) or not {*one.gives} <= {*run.outputs}:
        return one.meaning
    wanted = [plain.outputs[run.outputs.index(number)] for number in one.gives]
    ends = zip(one.gives, wanted, strict=True)
    both = ((run.values[n], plain.values[m]) for n, m in ends)
    if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in both):
        return one.meaning
    held: dict[Any, int] = {}
    for number, read in enumerate(one.reads):
        held.setdefault(run.values[read].key, number)
    operands: dict[int, int] = {}
    for number, value in enumerate(plain.values):
        known = held.get(value.key)
        if known is not None and (value.given < 0 or known not in operands.values()):
            operands[number] = known
    return steps_between(plain, operands, len(one.reads), wanted) or one.meaning


class UncompiledSource(ABC):
    """A recorder of a compiled function's own source, which runs once. ``keys``: of what the
    function reads, in order, once it has run."""

    target = note = ""
    keys: Sequence[Hashable] = ()

    def plain(self) -> list[np.ndarray]:
        """Isn't asked for: only what is computed is of interest."""
        return []

    @abstractmethod
    def record(self, visit: Visit) -> list[Seen]:
        """As of ``Recorder``."""


def steps_of_source(source: UncompiledSource, known: Collection[int] | None = None) -> Steps | None:
    """Returns the steps of a function that runs compiled, as its source is recorded once; None
    where they aren't known. ``known``: as of ``steps``."""
    plain = record_run(source, keep=False)
    operands = dict[int, int]()
    for number, key in enumerate(source.keys):
        if key in plain.keys:
            operands.setdefault(plain.keys[key], number)
    return steps_between(plain, operands, len(source.keys), plain.outputs, known)


def steps_between(
    plain: Run,
    operands: Mapping[int, int],
    count: int,
    wanted: Sequence[int],
    known: Collection[int] | None = None,
) -> Steps | None:
    """Returns the steps of a run that give values, as one meaning; None where that isn't known.

    ``operands``: values of the run that are read, and their numbers among ``count``; ``wanted``:
    values that are given; ``known``: those of ``count`` that come from integers alone, so that what
    is computed from nothing else is known by its content; None: whichever hold integers.
    """
    # an index that was found by comparing floating-point numbers is no constant, though it is whole
    loose = {n for n, number in operands.items() if known is not None and number not in known}
    for one in plain.operations if loose else ():
        loose.update(one.gives if loose.intersection(one.reads) else ())
    needed, met, entries = set[int](), set(operands), list[Entry]()
    pending = list(wanted)
    while pending:
        number = pending.pop()
        if number in met:
            continue
        met.add(number)
        value = plain.values[number]
        content = None if number in loose else value.content
        if content is not None and (value.given < 0 or is_exact_content(content, value.dtype)):
            entries.append((Step(Holds(content), (), value.shape), (), (number,)))
            continue  # labels know it by its content
        if value.given < 0 or isinstance(plain.operations[value.given].meaning, Compiled):
            return None  # no operation gave it, or its meaning is unknown
        if value.given not in needed:
            needed.add(value.given)
            pending += plain.operations[value.given].reads
    for one in (plain.operations[number] for number in sorted(needed)):
        first, *more = (plain.values[n] for n in one.gives)
        unknown = isinstance(one.meaning, Unknown)
        op = (one.op, repr(one.attributes)) if unknown else (one.op,)
        shapes = tuple(each.shape for each in more)
        step = Step(one.meaning, (), first.shape, shapes, op, first.zeros)
        entries.append((step, one.reads, one.gives))
    return _number_steps(entries, operands, count, wanted)
