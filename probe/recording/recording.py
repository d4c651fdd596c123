"""What is kept of a run: its operations, and the bits of all values in a store.

A run is watched once. A :class:`Run` says what it computed from what, of which labels are made; its
bits are in a store, by their digests. A folder on disk is the same (:mod:`probe.recording.folder`).
Comparing two runs changes neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from probe import floats
from probe.errors import InputError, Nondeterministic
from probe.recording.contract import (
    CONSTANT,
    INPUT,
    Again,
    Isolated,
    Operation,
    Recorder,
    Seen,
)
from probe.recording.store import ProcessStore, RunStore, array_digest
from probe.semantics import Compiled, of_complex
from probe.semantics.labels import Selection

OTHER_OPERATIONS = (
    "it runs different operations from one run to the next: let it run a few times first, where a "
    "library optimises what it runs often, and keep no state between runs"
)

COMPLEX = {"complex32", "complex64", "complex128"}

SMALL = 1 << 20
"""Elements up to which integers, and what is computed from nothing else, are kept."""

LARGE, LARGE_BYTES = 1 << 24, 1 << 29
"""Elements up to which such values of more elements are kept too, as one-hot rows of a vocabulary,
and the bytes that all of these may have together on a side."""

MAPPED = 1 << 20
"""Bytes beyond which what is kept of a value is mapped from a folder that it is recorded into: a
system has some 65,000 maps for a process, and a loop that is run step by step has as many numbers.
"""


@dataclass(frozen=True, slots=True)
class Value:
    """An array of a run. ``given``: the operation that gave it, -1 where none did.

    ``role`` and ``name``: as of ``Seen``. ``content``: its container array where that is kept:
    inputs, integers, and what is computed from integers and single numbers alone. ``zeros``: what
    the operation's meaning noticed, such as where a softmax gave exact zeros. ``address``: as of
    ``Seen``, in the run that was recorded.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: str
    given: int = -1
    role: str = ""
    name: str = ""
    content: np.ndarray | None = None
    zeros: np.ndarray | None = None
    address: int | None = None

    @property
    def key(self) -> tuple[tuple[int, ...], str, str]:
        """Returns what is equal of equal values: shape, format and bits."""
        return self.shape, self.dtype, self.digest

    @property
    def floating(self) -> bool:
        """Returns whether it has floating-point numbers."""
        return floating(self.dtype)

    @property
    def plain(self) -> bool:
        """Returns whether it is known to come from integers and single numbers alone."""
        if self.content is None:
            return False
        return self.given >= 0 or not self.floating or self.shape == ()


def value_name(run: Run, number: int) -> str:
    """Returns the name of a value, or of the one that it is moved from: a weight's transpose has
    the weight's. Empty if there is none."""
    value = run.values[number]
    if value.name or value.given < 0:
        return value.name
    op = run.operations[value.given]
    return value_name(run, op.reads[0]) if op.meaning.exact and len(op.reads) == 1 else ""


def operations_between(
    run: Run, ends: Iterable[int], bounds: Container[int]
) -> tuple[tuple[int, ...], list[int]]:
    """Returns the operations that values come from, in order, back to values of ``bounds`` or those
    that no operation gave; and these values, in the order in which they are met."""
    inside, reads, pending = set[int](), dict[int, None](), list(ends)
    while pending:
        value = pending.pop()
        given = run.values[value].given
        if value in bounds or given < 0:
            reads[value] = None
        elif given not in inside:
            inside.add(given)
            pending += run.operations[given].reads
    return tuple(sorted(inside)), list(reads)


def floating(dtype: str) -> bool:
    """Returns whether values of a dtype are floating-point numbers."""
    return "float" in dtype or "complex" in dtype


Part = tuple[int, Selection]
"""The number of a value, and which of its elements are meant."""


@dataclass(frozen=True)
class Provenance:
    """Where and of what a recording on disk was made. ``made``: releases and the machine's facts;
    ``left_out``: how many values have no bits there, and their bytes; ``notes``: what was said."""

    folder: Path
    subject: str
    made: Mapping[str, Any]
    notes: list[str]
    left_out: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Run:
    """A run: what it computed from what, and the bits of all its values. It is never changed.

    ``values``, ``operations``: of which ``reads`` and ``gives`` are numbers of values, as
    ``outputs`` are; ``store``: has the bits of values, by their digests.
    ``unsteady``: values that had different bits when it ran once more. ``untried``: why its
    operations are not run alone, empty where they can be. ``made``: of one that is on disk.
    ``keys``: numbers of values by the recorder's keys; ``kinds``: NumPy's dtypes of containers, by
    the names of those that they hold. ``alone``: of one that was replayed on its target
    (:mod:`probe.recording.replayed`), why operations, by number, did not run there, but in the
    model's own library; else None.
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
    keys: Mapping[Hashable, int] = field(default_factory=dict)
    kinds: Mapping[str, np.dtype] = field(default_factory=dict)
    alone: Mapping[int, str] | None = None

    def __repr__(self) -> str:
        """What it is, not what it holds."""
        return f"Run of {len(self.operations)} operations on {self.target}"

    def array(self, number: int) -> np.ndarray | None:
        """Returns a value as a container array, not to be written to; None: it was left out.
        InputError: a folder's file isn't what it should be."""
        value = self.values[number]
        kind = self.kinds.get(value.dtype) or container_dtype(value.dtype)
        bits = self.store.bits(value.digest) if prod(value.shape) else np.zeros(0, np.uint8)
        if bits is None:
            return None
        if bits.nbytes == prod(value.shape) * kind.itemsize:
            return bits.view(kind).reshape(value.shape)
        if self.made is None:  # of what NumPy has no dtype for: several numbers an element
            return bits.view(kind).reshape(*value.shape, -1)
        raise self.broken(f"{value.digest} has a different size from its value")

    def broken(self, why: str) -> InputError:
        """Returns the error for a recording that is not what it should be."""
        folder = self.made.folder if self.made else "(none)"
        return InputError("recording", folder, why, "record it again with probe record")

    @property
    def results(self) -> list[np.ndarray | None]:
        """Returns its outputs as container arrays."""
        return [self.array(number) for number in self.outputs]

    def arrays(self, wanted: Iterable[int]) -> dict[int, np.ndarray]:
        """Returns values as container arrays, by number, without those that were left out."""
        every = {n: self.array(n) for n in sorted(set(wanted))}
        return {n: array for n, array in every.items() if array is not None}

    def parts(self, wanted: Iterable[Part], side: int) -> list[np.ndarray | None]:
        """Returns selected elements of values; None of those that were left out."""
        both = ((self.array(n), chosen) for n, chosen in wanted)
        return [None if array is None else chosen.taken(array, side) for array, chosen in both]

    def again(self, number: int) -> Isolated | None:
        """Returns what runs one operation alone, by its number; None where it can't be."""
        return self.operations[number].again

    def with_arrays(self, arrays: Mapping[int, np.ndarray]) -> Run:
        """Returns the same run with a few values replaced."""
        store, values = ProcessStore(self.store), list(self.values)
        for number, array in arrays.items():
            name = store.put(np.asarray(array))
            values[number] = replace(values[number], digest=name, content=None)
        return replace(self, values=values, store=store)


def container_dtype(dtype: str) -> np.dtype:
    """Returns the NumPy dtype that holds values of a dtype. ValueError where it isn't known."""
    if dtype in floats.FORMATS:
        return floats.container(dtype)
    found = np.dtype(dtype)
    if found.kind not in "biufc":
        raise ValueError(f"there is no dtype {dtype[:40]!r}")
    return found


def exact_numbers(seen: Seen) -> Callable[[], np.ndarray]:
    """Returns a function that gives a value's exact numbers; integers and complex as they are."""

    def given() -> np.ndarray:
        array = seen.array()
        return floats.widen(array, seen.dtype) if seen.dtype in floats.FORMATS else array

    return given


class Watch:
    """Numbers the values of one run as they come; all runs of one thing get the same numbers.

    ``numbers``: of values, by the recorder's keys; ``ran``: operations so far.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.count = self.ran = 0

    def __call__(self, one: Operation) -> None:
        known = self.numbers
        reads = tuple(
            [known[seen.key] if seen.key in known else self.number(seen) for seen in one.reads]
        )
        self.begun(one, reads)
        gives = []
        for seen in one.gives:
            known[seen.key] = self.count
            gives.append(self.count)
            self.met(seen, one, reads)
            self.count += 1
        self.done(one, reads, tuple(gives))
        self.ran += 1

    def number(self, seen: Seen) -> int:
        """Returns the number of a value; one that no operation gave is met here."""
        if seen.key not in self.numbers:
            self.numbers[seen.key] = self.count
            self.met(seen, None, ())
            self.count += 1
        return self.numbers[seen.key]

    def begun(self, one: Operation, reads: tuple[int, ...]) -> None:
        """Is called with an operation whose values are met next."""

    def met(self, seen: Seen, one: Operation | None, reads: tuple[int, ...]) -> None:
        """Is called once for each value, which is number ``count``; ``one``: what gave it."""

    def done(self, one: Operation, reads: tuple[int, ...], gives: tuple[int, ...]) -> None:
        """Is called with an operation whose values have been met."""


class _Recorded(Watch):
    """Keeps a run. ``views``: digests of views, by what tells them apart and what they show."""

    def __init__(self, views: dict[Hashable, str], store: RunStore | None) -> None:
        super().__init__()
        self.views, self.keep, self.store = views, store is not None, store or ProcessStore()
        self.values, self.operations = list[Value](), list[Operation]()
        self.kinds, self.names = dict[str, np.dtype](), Counter[str]()
        self.large = 0

    def begun(self, one: Operation, reads: tuple[int, ...]) -> None:
        dtypes = [*(self.values[n].dtype for n in reads), *(seen.dtype for seen in one.gives)]
        self.meaning = of_complex(one.meaning) if COMPLEX.intersection(dtypes) else one.meaning
        self.plain = all(self.values[n].plain for n in reads)

    def met(self, seen: Seen, one: Operation | None, reads: tuple[int, ...]) -> None:
        content, zeros, ends = None, None, (seen.shape, seen.dtype)
        if one is None:
            array = seen.array()
            name = self._kept(seen, array)
            plain = not floating(seen.dtype) or seen.role == CONSTANT
            if seen.role == INPUT or array.size == 1 or (plain and self._fits(array)):
                content = self._content(name, array)
            made = Value(*ends, name, -1, seen.role, seen.name, content, None, seen.address)
            self.values.append(made)
            return
        name = self._digest(seen, one, reads)
        if self.plain and (self.meaning.exact or not floating(seen.dtype)):
            array = seen.array()
            content = self._content(name, array) if self._fits(array) else None
        if self.meaning.notices and content is None and seen is one.gives[0]:
            zeros = self.meaning.noticed(
                [exact_numbers(each) for each in one.reads],
                [exact_numbers(each) for each in one.gives],
            )
        self.values.append(Value(*ends, name, self.ran, "", "", content, zeros, seen.address))

    def done(self, one: Operation, reads: tuple[int, ...], gives: tuple[int, ...]) -> None:
        name = one.path or one.op
        self.names[name] += 1
        name = f"{name}#{self.names[name]}" if self.names[name] > 1 else name
        given = one.attributes, one.again, one.lines, one.imports, None, name, self.ran
        self.operations.append(Operation(one.op, one.path, reads, gives, self.meaning, *given))

    def _digest(self, seen: Seen, one: Operation, reads: tuple[int, ...]) -> str:
        """Returns the digest of a result. A view's is known where those of what it shows are."""
        if one.view is None or len(one.gives) != 1:
            return self._kept(seen, seen.array())
        # what a view shows follows from what it shows and how: its bits need not be read again
        same = (one.view, *(self.values[n].digest for n in reads))
        if same not in self.views or (self.keep and not self.store.has(self.views[same])):
            self.views[same] = self._kept(seen, seen.array())
        return self.views[same]

    def _kept(self, seen: Seen, array: np.ndarray) -> str:
        self.kinds.setdefault(seen.dtype, array.dtype)
        return self.store.put(array) if self.keep else array_digest(array)

    def _content(self, name: str, array: np.ndarray) -> np.ndarray:
        held = isinstance(self.store, ProcessStore) or array.nbytes > MAPPED
        bits = self.store.bits(name) if held and array.size else None
        return np.array(array) if bits is None else bits.view(array.dtype).reshape(array.shape)

    def _fits(self, array: np.ndarray) -> bool:
        """Returns whether labels may know such a value by its content, and counts large ones."""
        if array.size <= SMALL:
            return True
        if array.size > LARGE or self.large + array.nbytes > LARGE_BYTES:
            return False
        self.large += array.nbytes
        return True


def record_run(recorder: Recorder, keep: bool = True, store: RunStore | None = None) -> Run:
    """Runs it once, watched. ``keep``: its values too, not only what has to be known of them;
    ``store``: where, in one of its own if not given."""
    store = (store or ProcessStore()) if keep else None
    watch = _Recorded(getattr(recorder, "views", {}), store)
    try:
        outputs = tuple(watch.number(seen) for seen in recorder.record(watch))
    except Again:
        return record_run(recorder, keep, store)
    # its target and note are known by now
    found = Run(
        *(recorder.target, recorder.note, watch.values, watch.operations, outputs, watch.store),
        keys=watch.numbers,
        kinds=watch.kinds,
    )
    return _inlined(recorder, found)


def _inlined(recorder: Recorder, found: Run) -> Run:
    """Finds out what compiled operations compute, where the recorder can do without them."""
    some = [one for one in found.operations if isinstance(one.meaning, Compiled)]
    other = getattr(recorder, "uncompiled", None)
    if not some or other is None or (uncompiled := other()) is None:
        return found
    try:
        plain = record_run(uncompiled, keep=False)
    except Exception:  # what runs compiled alone: the operation stays unknown
        return found
    meaning = import_module("probe.recording.composed").compiled_meaning
    operations = list(found.operations)
    for one in some:
        operations[one.number] = replace(one, meaning=meaning(one, found, plain))
    return replace(found, operations=operations)


class Repeat(Watch):
    """A further watched run: digests and addresses of the same values."""

    def __init__(self, values: Sequence[Value]) -> None:
        super().__init__()
        self.values, self.same = values, True
        self.digests, self.addresses = list[str](), list[int | None]()

    def met(self, seen: Seen, one: Operation | None, reads: tuple[int, ...]) -> None:
        """Compares a value's shape with the first run's."""
        ends = [(v.shape, v.dtype) for v in self.values[self.count : self.count + 1]]
        self.same = self.same and ends == [(seen.shape, seen.dtype)]
        if self.same:
            self.digests.append(array_digest(seen.array()))
            self.addresses.append(seen.address)


def record_again(recorder: Recorder, run: Run) -> Repeat:
    """Runs it once more. Nondeterministic where it gives values of other shapes than before."""
    found = Repeat(run.values)
    try:
        for seen in recorder.record(found):
            found.number(seen)  # an input that no operation reads may be an output
    finally:
        if not found.same:
            raise Nondeterministic(OTHER_OPERATIONS) from None
    if found.count != len(found.values):
        raise Nondeterministic(OTHER_OPERATIONS)
    return found
