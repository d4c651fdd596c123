"""What is kept of a run: its operations, and the bits of all values in a store.

A run is watched once. A :class:`Run` says what it computed from what; its bits are in a store, by
their digests. A folder on disk is the same (:mod:`probe.diff.folder`). Comparing two runs
changes neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError, Nondeterministic, printable
from probe.order.semantics import Meaning, Moves, Step, Steps, Unknown, of_complex
from probe.record.contract import Operation, Recorder, Seen
from probe.record.store import ProcessStore, RunStore, array_digest
from probe.sweep.printing import counted

OTHER_OPERATIONS = (
    "it runs different operations from one run to the next: let it run a few times first, where a "
    "library optimises what it runs often, and keep no state between runs"
)

COMPLEX = {"complex32", "complex64", "complex128"}


class LeftOut(KeyError):
    """A recording on disk has no bits of a value: there was no room for them."""


class KeptArrays(dict[int, np.ndarray]):
    """Arrays by the numbers of their values; LeftOut for one that isn't kept."""

    def __missing__(self, number: int) -> np.ndarray:
        raise LeftOut(number)


@dataclass(frozen=True, slots=True)
class Value:
    """An array of a run. ``given``: the operation that gave it, -1 where none did.

    ``role``, ``name`` and ``address``: as of ``Seen``, in the run that was recorded.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: str
    given: int = -1
    role: str = ""
    name: str = ""
    address: int | None = None

    @property
    def key(self) -> tuple[tuple[int, ...], str, str]:
        """What is equal of equal values: shape, format and bits."""
        return self.shape, self.dtype, self.digest

    @property
    def floating(self) -> bool:
        return floating(self.dtype)


def value_name(run: Run, number: int) -> str:
    """The name of a value, or of the one that it is moved from: a weight's transpose has
    the weight's. Empty if there is none."""
    value = run.values[number]
    if value.name or value.given < 0:
        return value.name
    op = run.operations[value.given]
    return value_name(run, op.reads[0]) if op.meaning.exact and len(op.reads) == 1 else ""


def operations_between(
    run: Run, ends: Iterable[int], bounds: Container[int]
) -> tuple[tuple[int, ...], list[int]]:
    """The operations that values come from, in order, back to values of ``bounds`` or those
    that no operation gave; and these values, in the order in which they are met."""
    inside, reads, pending = set[int](), dict[int, None](), list(ends)
    while pending:
        value = pending.pop()
        giver = run.values[value].given
        if value in bounds or giver < 0:
            reads[value] = None
        elif giver not in inside:
            inside.add(giver)
            pending += run.operations[giver].reads
    return tuple(sorted(inside)), list(reads)


def floating(dtype: str) -> bool:
    """Whether values of a dtype are floating-point numbers."""
    return "float" in dtype or "complex" in dtype


@dataclass(frozen=True)
class Provenance:
    """Where and of what a recording on disk was made. ``made``: releases and the machine's facts;
    ``left_out``: how many values have no bits there, and their bytes; ``notes``: what was said."""

    folder: Path
    subject: str
    made: Mapping[str, Any]
    notes: list[str]
    left_out: Mapping[str, int]

    @property
    def left_out_text(self) -> str:
        """Returns ``3 values (1,024 bytes), of which it has digests alone``."""
        values = counted(self.left_out["values"], "value")
        return f"{values} ({self.left_out['bytes']:,} bytes), of which it has digests alone"


@dataclass(frozen=True, eq=False)
class Run:
    """A run: what it computed from what, and the bits of all its values. It is never changed.

    ``values``, ``operations``: of which ``reads`` and ``gives`` are numbers of values, as
    ``outputs`` are; ``store``: has the bits of values, by their digests.
    ``unsteady``: values that had different bits when it ran once more. ``untried``: why its
    operations are not run alone, empty where they can be. ``made``: of one that is on disk.
    ``kinds``: NumPy's dtypes of containers, by the names of those that they hold. ``plain``:
    digests of the outputs of a run unwatched, whose bits ``store`` has; () where it was not run so.
    """

    target: str
    note: str
    values: Sequence[Value]
    operations: Sequence[Operation]
    outputs: tuple[int, ...]
    store: RunStore
    unsteady: frozenset[int] = frozenset()
    untried: str = ""
    made: Provenance | None = None
    kinds: Mapping[str, np.dtype] = field(default_factory=dict)
    plain: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Run of {len(self.operations)} operations on {self.target}"

    def array(self, number: int) -> np.ndarray | None:
        """A value as a container array, not to be written to; None: it was left out.
        InputError: a folder's file isn't what it should be."""
        value = self.values[number]
        bits, kind, fits = self._bits(value, value.digest)
        if bits is None or fits:
            return None if bits is None else bits.view(kind).reshape(value.shape)
        if self.made is None:  # of what NumPy has no dtype for: several numbers an element
            return bits.view(kind).reshape(*value.shape, -1)
        raise self.broken(f"{value.digest} has a different size from its value")

    def _bits(self, value: Value, digest: str) -> tuple[np.ndarray | None, np.dtype, bool]:
        """What the store has of a digest, the dtype of a value's container, and whether it fits."""
        kind = self.kinds.get(value.dtype) or container_dtype(value.dtype)
        bits = self.store.bits(digest) if prod(value.shape) else np.zeros(0, np.uint8)
        return bits, kind, bits is not None and bits.nbytes == prod(value.shape) * kind.itemsize

    def broken(self, why: str) -> InputError:
        """The error for a recording that is not what it should be."""
        folder = self.made.folder if self.made else "(none)"
        return InputError("recording", folder, why, "record it again with probe record")

    @cached_property
    def integral(self) -> set[int]:
        """Values that are known to come from integers and single numbers alone."""
        found = {
            n
            for n, value in enumerate(self.values)
            if value.given < 0 and (not value.floating or value.shape == ())
        }
        for op in self.operations:
            if found.issuperset(op.reads):
                found |= {n for n in op.gives if op.meaning.exact or not self.values[n].floating}
        return found

    @cached_property
    def axis_sizes(self) -> set[int]:
        """The sizes that values have along axes, and their numbers of elements."""
        sizes = set[int]()
        for shape in {value.shape for value in self.values}:
            for start in range(len(shape)):
                sizes.update(accumulate(shape[start:], mul))
        return sizes

    @property
    def results(self) -> list[np.ndarray | None]:
        """Its outputs as container arrays."""
        return [self.array(number) for number in self.outputs]

    @property
    def plain_results(self) -> list[np.ndarray | None]:
        """The outputs of the run unwatched as container arrays, None where the size differs from
        the recorded one; [] where it was not run so."""
        results = list[np.ndarray | None]()
        for number, digest in zip(self.outputs, self.plain, strict=False):
            value = self.values[number]
            bits, kind, fits = self._bits(value, digest)
            fitting = None if bits is None or not fits else bits.view(kind).reshape(value.shape)
            results.append(fitting)
        return results

    def arrays(self, wanted: Iterable[int]) -> dict[int, np.ndarray]:
        """Values as container arrays, by number; asked for a value that was left out it raises
        LeftOut."""
        arrays = ((n, self.array(n)) for n in sorted(set(wanted)))
        return KeptArrays({n: array for n, array in arrays if array is not None})

    def with_arrays(self, arrays: Mapping[int, np.ndarray]) -> Run:
        """The same run with a few values replaced."""
        store, values = ProcessStore(self.store), list(self.values)
        for number, array in arrays.items():
            name = store.put(np.asarray(array))
            values[number] = replace(values[number], digest=name)
        return replace(self, values=values, store=store)


def container_dtype(dtype: str) -> np.dtype:
    """The NumPy dtype that holds values of a dtype. ValueError where it isn't known."""
    if dtype in floats.FORMATS:
        return floats.container_of_format(dtype)
    plain = np.dtype(dtype)
    if plain.kind not in "biufc":
        raise ValueError(f"there is no dtype {dtype[:40]!r}")
    return plain


class _RunBuilder:
    """Keeps a run, whose values it numbers as they come; all runs of one thing get the same
    numbers.

    ``numbers``: of values, by the recorder's keys.
    """

    def __init__(self, store: RunStore | None) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.keep, self.store = store is not None, store or ProcessStore()
        self.values, self.operations = list[Value](), list[Operation]()
        self.kinds, self.names = dict[str, np.dtype](), Counter[str]()

    def __call__(self, op: Operation) -> None:
        values, count = self.values, len(self.operations)
        reads = tuple([self.number(seen) for seen in op.reads])
        begin = len(values)
        for seen in op.gives:
            self.numbers[seen.key] = len(values)
            digest = self._kept(seen)
            values.append(Value(seen.shape, seen.dtype, digest, count, address=seen.address))
        path, kind = printable(op.path), printable(op.op)
        name = path or kind
        self.names[name] += 1
        name = f"{name}#{self.names[name]}" if self.names[name] > 1 else name
        gives = tuple(range(begin, len(values)))
        dtypes = {values[n].dtype for n in (*reads, *gives)}
        meaning = of_complex(op.meaning) if COMPLEX & dtypes else op.meaning
        said = op.attributes, op.again, op.lines, op.imports
        self.operations.append(Operation(kind, path, reads, gives, meaning, *said, name, count))

    def number(self, seen: Seen) -> int:
        """The number of a value; one that no operation gave is met here."""
        if seen.key not in self.numbers:
            self.numbers[seen.key] = len(self.values)
            digest, named = self._kept(seen), (seen.role, printable(seen.name))
            self.values.append(Value(seen.shape, seen.dtype, digest, -1, *named, seen.address))
        return self.numbers[seen.key]

    def _kept(self, seen: Seen) -> str:
        array = seen.array()
        self.kinds.setdefault(seen.dtype, array.dtype)
        return self.store.put(array) if self.keep else array_digest(array)


def record_run(recorder: Recorder, keep: bool = True, store: RunStore | None = None) -> Run:
    """Runs it once, watched. ``keep``: its values too, not only their digests; ``store``: where, in
    memory if not given."""
    store = (store or ProcessStore()) if keep else None
    builder = _RunBuilder(store)
    outputs = tuple(builder.number(seen) for seen in recorder.record(builder))
    # its target and note are known by now
    return Run(
        recorder.target,
        recorder.note,
        builder.values,
        builder.operations,
        outputs,
        builder.store,
        kinds=builder.kinds,
    )


def record_again(recorder: Recorder, run: Run) -> Run:
    """Runs it once more, and keeps no bits. Nondeterministic where it gives values of other shapes
    than before."""
    again = record_run(recorder, keep=False)
    if [(v.shape, v.dtype) for v in run.values] != [(v.shape, v.dtype) for v in again.values]:
        raise Nondeterministic(OTHER_OPERATIONS)
    return again


# Operations of a region that are named one by one.
NAMED = 4


def computes(op: Operation) -> bool:
    """Whether an operation computes something that may be rounded in several ways."""
    return not isinstance(op.meaning, Moves)


def region_text(side: Run, numbers: Sequence[int]) -> str:
    """The operations of a region in words, without those that only move elements."""
    names = [side.operations[n].op for n in numbers if computes(side.operations[n])]
    names = names or [side.operations[n].op for n in numbers]
    return " + ".join(names) if len(names) <= NAMED else f"{len(names)} operations to {names[-1]}"


def as_one_operation(run: Run, group: Sequence[int], gives: Sequence[int]) -> Run:
    """A run with a group of its operations as a last operation more.

    ``group``: their numbers; ``gives``: what is looked at of what the last of them gives.
    """
    moved: set[int] = set()  # by operations that only bring what the group reads into place
    for number in group:
        op = run.operations[number]
        from_outside = all(run.values[n].given not in group or n in moved for n in op.reads)
        if from_outside and not computes(op):
            moved.update(op.gives)
    end = group[-1]
    group = [n for n in group if n == end or not moved.issuperset(run.operations[n].gives)]
    inside = [run.operations[n] for n in group]
    inner = {n for op in inside for n in op.gives}
    read = tuple(dict.fromkeys(n for op in inside for n in op.reads if n not in inner))
    last = inside[-1]

    def run_chain(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the operations one after the other, each alone."""
        values = dict(zip(read, arrays, strict=True))
        for op in inside:
            assert op.again is not None
            values.update(zip(op.gives, op.again([values[n] for n in op.reads]), strict=False))
        return [values[n] for n in gives]

    def chain_lines(names: Sequence[str], out: str) -> list[str]:
        """Writes the operations, one after the other."""
        variables, lines = dict(zip(read, names, strict=True)), []
        for n, op in enumerate(inside):
            assert op.lines is not None
            alone = n == len(inside) - 1 and len(op.gives) == 1
            variable = out if alone else f"{out}_{n}"
            several = {v: f"{variable}[{k}]" for k, v in enumerate(op.gives)}
            variables |= several if len(op.gives) > 1 else {op.gives[0]: variable}
            lines += op.lines([variables[v] for v in op.reads], variable)
        result = variables[gives[0]]
        return lines if result == out else [*lines, f"{out} = {result}"]

    written = len(gives) == 1 and all(op.lines is not None for op in inside)
    chain = Operation(
        op=region_text(run, group),
        path=last.path,
        reads=read,
        gives=tuple(gives),
        meaning=_joint_meaning(run, inside, read, tuple(gives)),
        again=run_chain if all(op.again is not None for op in inside) else None,
        lines=chain_lines if written else None,
        imports=tuple(dict.fromkeys(line for op in inside for line in op.imports)),
        name=last.name,
        number=len(run.operations),
    )
    return replace(run, operations=[*run.operations, chain])


def _joint_meaning(
    run: Run, inside: Sequence[Operation], read: tuple[int, ...], gives: tuple[int, ...]
) -> Meaning:
    """The steps of a group: those of each of its operations."""
    # what an operation reads twice, as attention to itself does, the group reads once
    if len(inside) == 1 and len(inside[0].gives) == 1 and inside[0].reads == read:
        return inside[0].meaning
    numbers, count, joined = {value: n for n, value in enumerate(read)}, len(read), list[Step]()
    for op in inside:
        if isinstance(op.meaning, Unknown):
            return op.meaning
        steps = op.meaning
        if not isinstance(steps, Steps):
            shapes, operands = [run.values[n].shape for n in op.gives], range(len(op.reads))
            step = Step(op.meaning, tuple(operands), shapes[0], tuple(shapes[1:]))
            steps = Steps((step,), tuple(len(operands) + n for n in range(len(shapes))))
        places = [numbers[value] for value in op.reads]
        for step in steps.steps:
            joined.append(replace(step, reads=tuple(places[n] for n in step.reads)))
            places += range(count, count + 1 + len(step.more))
            count += 1 + len(step.more)
        ends = steps.gives or (len(places) - 1,)
        numbers.update(zip(op.gives, (places[n] for n in ends), strict=False))
    ends = tuple(numbers[value] for value in gives)
    if min(ends) < len(read):
        return Unknown("it gives what it reads")
    return Steps(tuple(joined), () if ends == (count - 1,) else ends)
