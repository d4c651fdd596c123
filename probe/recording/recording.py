"""What is kept of a run: its operations, and the bits of all values in a store.

A run is watched once. What it computed from what is a :class:`Recording`, which labels are made of;
its bits are in a store, by their digests; together they are a :class:`Run`. A folder on disk is the
same (:mod:`probe.recording.folder`). Comparing two runs changes neither.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
    WEIGHT,
    Again,
    Event,
    Isolated,
    Lines,
    Recorder,
    Seen,
)
from probe.recording.store import Kept, Layered, Store, digest
from probe.semantics import Compiled, Meaning, of_complex
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


@dataclass(slots=True)
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
    def floating(self) -> bool:
        """Returns whether it has floating-point numbers."""
        return "float" in self.dtype or "complex" in self.dtype

    @property
    def plain(self) -> bool:
        """Returns whether it is known to come from integers and single numbers alone."""
        if self.content is None:
            return False
        return self.given >= 0 or not self.floating or self.shape == ()


@dataclass(slots=True)
class Operation:
    """An operation of a run; ``reads`` and ``gives`` are numbers of values; ``name``: its own.

    ``again``, ``lines``, ``imports``: as of ``Event``.
    """

    number: int
    name: str
    op: str
    path: str
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    attributes: Mapping[str, Any]
    meaning: Meaning
    again: Isolated | None = None
    lines: Lines | None = None
    imports: Sequence[str] = ()


@dataclass
class Recording:
    """What a run computed from what: no bits, but those of ``Value.content``."""

    target: str
    note: str = ""
    values: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    outputs: tuple[int, ...] = ()


def name_of(run: Recording, number: int) -> str:
    """Returns the name of a value, or of the one that it is moved from: a weight's transpose has
    the weight's. Empty if there is none."""
    value = run.values[number]
    if value.name or value.given < 0:
        return value.name
    op = run.operations[value.given]
    return name_of(run, op.reads[0]) if op.meaning.exact and len(op.reads) == 1 else ""


Part = tuple[int, Selection]
"""The number of a value, and which of its elements are meant."""


@dataclass(frozen=True)
class Made:
    """Where and of what a recording on disk was made. ``made``: releases and the machine's facts;
    ``left_out``: how many values have no bits there, and their bytes; ``notes``: what was said."""

    folder: Path
    subject: str
    made: Mapping[str, Any]
    notes: list[str]
    left_out: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Run:
    """A run: what it computed, and the bits of all its values. It is never changed.

    ``unsteady``: values that had different bits when it ran once more. ``untried``: why its
    operations are not run alone, empty where they can be. ``made``: of one that is on disk.
    ``keys``: numbers of values by the recorder's keys; ``kinds``: NumPy's dtypes of containers, by
    the names of those that they hold.
    """

    recording: Recording
    store: Store
    unsteady: frozenset[int] = frozenset()
    untried: str = ""
    made: Made | None = None
    keys: Mapping[Hashable, int] = field(default_factory=dict)
    kinds: Mapping[str, np.dtype] = field(default_factory=dict)

    def __repr__(self) -> str:
        """What it is, not what it holds."""
        run = self.recording
        return f"Run of {len(run.operations)} operations on {run.target}"

    def array(self, number: int) -> np.ndarray | None:
        """Returns a value as a container array, not to be written to; None: it was left out.
        InputError: a folder's file isn't what it should be."""
        value = self.recording.values[number]
        kind = self.kinds.get(value.dtype) or container(value.dtype)
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
    def outputs(self) -> list[np.ndarray | None]:
        """Returns its outputs as container arrays."""
        return [self.array(number) for number in self.recording.outputs]

    def arrays(self, wanted: Iterable[int]) -> dict[int, np.ndarray]:
        """Returns values as container arrays, by number, without those that were left out."""
        every = {n: self.array(n) for n in sorted(set(wanted))}
        return {n: array for n, array in every.items() if array is not None}

    def parts(self, wanted: Iterable[Part], side: int) -> list[np.ndarray | None]:
        """Returns selected elements of values; None of those that were left out."""
        both = ((self.array(n), chosen) for n, chosen in wanted)
        return [None if array is None else chosen.taken(array, side) for array, chosen in both]

    def digests(self, wanted: Iterable[Part], side: int) -> list[str | None]:
        """Returns digests of selected elements; None of those that were left out."""
        return [None if one is None else digest(one) for one in self.parts(wanted, side)]

    def again(self, number: int) -> Isolated | None:
        """Returns what runs one operation alone, by its number; None where it can't be."""
        return self.recording.operations[number].again

    def agains(self, wanted: Iterable[int]) -> dict[int, Isolated | None]:
        """Returns the same of several operations."""
        return {number: self.again(number) for number in wanted}

    def event(self, number: int) -> Operation:
        """Returns an operation."""
        return self.recording.operations[number]

    def repeats(self, numbers: Iterable[int]) -> bool:
        """Returns whether these values had the same bits when it ran once more."""
        return not self.unsteady.intersection(numbers)

    def with_arrays(self, arrays: Mapping[int, np.ndarray]) -> Run:
        """Returns the same run with other bits of a few values."""
        front, values = Kept(), list(self.recording.values)
        for number, array in arrays.items():
            name = front.put(np.asarray(array))
            values[number] = replace(values[number], digest=name, content=None)
        recording = replace(self.recording, values=values)
        return replace(self, recording=recording, store=Layered(front, self.store))


Side = Run


def container(dtype: str) -> np.dtype:
    """Returns the NumPy dtype that holds values of a dtype. ValueError where it isn't known."""
    if dtype in floats.FORMATS:
        return floats.container(dtype)
    found = np.dtype(dtype)
    if found.kind not in "biufc":
        raise ValueError(f"there is no dtype {dtype[:40]!r}")
    return found


def numbers(seen: Seen) -> Callable[[], np.ndarray]:
    """Returns a function that gives a value's exact numbers; integers and complex as they are."""

    def given() -> np.ndarray:
        array = seen.array()
        return floats.widen(array, seen.dtype) if seen.dtype in floats.FORMATS else array

    return given


EVERY = Selection((), None, None, ((), ()))
"""All elements of a value."""


class Watch:
    """Numbers the values of one run as they come; all runs of one thing get the same numbers.

    ``met``: is called with a value's number and what was seen, once for each value.
    """

    def __init__(self, met: Callable[[int, Seen, int], None], done: Callable[..., None]) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.count = self.operations = 0
        self.met, self.done = met, done
        self.now: tuple[Event | None, tuple[int, ...]] = None, ()

    def __call__(self, event: Event) -> None:
        known = self.numbers
        reads = tuple(
            [known[one.key] if one.key in known else self.number(one) for one in event.reads]
        )
        self.now = event, reads
        gives = []
        for seen in event.gives:
            known[seen.key] = self.count
            self.met(self.count, seen, self.operations)
            gives.append(self.count)
            self.count += 1
        self.done(self.operations, event, reads, tuple(gives))
        self.now = None, ()  # keeps no array alive
        self.operations += 1

    def number(self, seen: Seen) -> int:
        """Returns the number of a value; one that no operation gave is met here."""
        if seen.key not in self.numbers:
            self.numbers[seen.key] = self.count
            self.met(self.count, seen, -1)
            self.count += 1
        return self.numbers[seen.key]


def recorded(recorder: Recorder, keep: bool = True) -> Run:
    """Runs it once, watched. ``keep``: its values too, not only what has to be known of them."""
    found, store = Recording(recorder.target), Kept()
    views: dict[Hashable, str] = getattr(recorder, "views", {})
    names, kinds = dict[str, int](), dict[str, np.dtype]()
    large = 0

    def fits(shape: tuple[int, ...], size: int) -> bool:
        """Returns whether labels may know such a value by its content, and counts large ones."""
        nonlocal large
        if prod(shape) <= SMALL:
            return True
        if prod(shape) > LARGE or large + size > LARGE_BYTES:
            return False
        large += size
        return True

    def met(number: int, seen: Seen, given: int) -> None:
        value = Value(seen.shape, seen.dtype, "", given, address=seen.address)
        found.values.append(value)
        if given >= 0:
            value.digest = bits(seen)
            return
        array = seen.array()
        value.digest, value.role, value.name = kept(array, seen), seen.role, seen.name
        plain = not value.floating or seen.role == CONSTANT
        few = seen.role == INPUT or array.size == 1
        if few or (plain and fits(seen.shape, array.nbytes)):
            value.content = content(value.digest, array)

    def kept(array: np.ndarray, seen: Seen) -> str:
        kinds.setdefault(seen.dtype, array.dtype)
        return store.put(array) if keep else digest(array)

    def content(name: str, array: np.ndarray) -> np.ndarray:
        bits = store.bits(name)
        return np.array(array) if bits is None else bits.view(array.dtype).reshape(array.shape)

    def bits(seen: Seen) -> str:
        """Returns the digest of a result. A view's is known where those of what it shows are."""
        event, reads = watch.now
        if event is None or event.view is None or len(event.gives) != 1:
            return kept(seen.array(), seen)
        same = (event.view, *(found.values[n].digest for n in reads))
        if same not in views or (keep and not store.has(views[same])):
            views[same] = kept(seen.array(), seen)
        return views[same]

    def done(number: int, event: Event, reads: tuple[int, ...], gives: tuple[int, ...]) -> None:
        values, meaning = found.values, event.meaning
        if any(values[n].dtype in COMPLEX for n in (*reads, *gives)):
            meaning = of_complex(meaning)
        if all(values[n].plain for n in reads):
            for n, seen in zip(gives, event.gives, strict=True):
                if meaning.exact or not values[n].floating:
                    array = seen.array()
                    if fits(seen.shape, array.nbytes):
                        values[n].content = content(values[n].digest, array)
        if meaning.notices and gives and values[gives[0]].content is None:
            values[gives[0]].zeros = meaning.noticed(
                [numbers(one) for one in event.reads], [numbers(one) for one in event.gives]
            )
        name = event.path or event.op
        names[name] = names.get(name, 0) + 1
        unique = name if names[name] == 1 else f"{name}#{names[name]}"
        said = unique, event.op, event.path, reads, gives, event.attributes, meaning
        found.operations.append(Operation(number, *said, event.again, event.lines, event.imports))

    watch = Watch(met, done)
    try:
        found.outputs = tuple(watch.number(seen) for seen in recorder.record(watch))
    except Again:
        return recorded(recorder, keep)
    finally:
        watch.met = watch.done = lambda *_: None  # else the store would stay in a circle with them
    found.target, found.note = recorder.target, recorder.note  # known by now
    _inline(recorder, found)
    return Run(found, store, keys=watch.numbers, kinds=kinds)


def _inline(recorder: Recorder, found: Recording) -> None:
    """Finds out what compiled operations compute, where the recorder can do without them."""
    some = [one for one in found.operations if isinstance(one.meaning, Compiled)]
    other = getattr(recorder, "uncompiled", None)
    if not some or other is None or (uncompiled := other()) is None:
        return
    try:
        plain = recorded(uncompiled, keep=False).recording
    except Exception:  # what runs compiled alone: the operation stays unknown
        return
    composed = import_module("probe.recording.composed")
    for one in some:
        one.meaning = composed.meaning(one, found, plain)


@dataclass
class Repeat:
    """What a further watched run gave: digests and addresses of the same values."""

    digests: list[str] = field(default_factory=list)
    addresses: list[int | None] = field(default_factory=list)


def repeated(recorder: Recorder, run: Run) -> Repeat:
    """Runs it once more. Nondeterministic where it gives values of other shapes than before."""
    values, found, wrong = run.recording.values, Repeat(), []

    def met(number: int, seen: Seen, given: int) -> None:
        same = number < len(values) and (values[number].shape, values[number].dtype)
        if same != (seen.shape, seen.dtype):
            wrong.append(number)
        elif not wrong:
            found.digests.append(digest(seen.array()))
            found.addresses.append(seen.address)

    watch = Watch(met, lambda *_: None)
    try:
        for seen in recorder.record(watch):
            watch.number(seen)  # an input that no operation reads may be an output
    finally:
        if wrong:
            raise Nondeterministic(OTHER_OPERATIONS) from None
    if len(found.digests) != len(values):
        raise Nondeterministic(OTHER_OPERATIONS)
    return found


Live = recorded

__all__ = ["WEIGHT", "Live", "Operation", "Recording", "Run", "Side", "Value", "Watch", "digest"]
