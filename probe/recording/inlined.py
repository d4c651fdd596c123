"""What a compiled function computes, by the same function run uncompiled.

A compiled function is one operation that nobody can look into. Its library promises that it
computes what its source does, so its outputs are labelled as the outputs of an uncompiled run are:
a run beside the recorded one, of which nothing but its operations' meanings is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from probe.recording.difference import exact
from probe.recording.general import Holds
from probe.recording.meaning import Compiled, Meaning, Step, Steps, Unknown
from probe.recording.recording import Operation, Recording


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
            return None  # it is from nowhere, or nobody knows what it is
        if given not in needed:
            needed.add(given)
            pending += plain.operations[given].reads
    for number in sorted(needed):
        made.add(plain.operations[number])
    return Steps(tuple(made.made), tuple(made.numbers[value] for value in wanted))


def _place(run: Recording, plain: Recording, number: int) -> int | None:
    """The value of the uncompiled run that a result is; None where it is no output."""
    if number not in run.outputs or len(run.outputs) != len(plain.outputs):
        return None
    found = plain.outputs[run.outputs.index(number)]
    ours, theirs = run.values[number], plain.values[found]
    same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    return found if same else None


def _operands(one: Operation, run: Recording, plain: Recording) -> dict[int, int]:
    """Values of the uncompiled run that are operands, and the operands' numbers."""
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
