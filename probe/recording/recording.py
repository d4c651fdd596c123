"""What is kept of a run: its operations, the shapes and digests of all values, the bits of a few.

A run is watched several times rather than kept: first for its structure and digests, then for
digests of those elements that must agree with another run's, then for the bits of the values that
differ. A recording on disk is the same, with every value in a file (:mod:`probe.recording.folder`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from typing import Any, Protocol

import numpy as np
import xxhash

from probe import floats
from probe.errors import Nondeterministic
from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Again, Event, Recorder, Seen
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
    """An operation of a run; ``reads`` and ``gives`` are numbers of values; ``name``: its own."""

    number: int
    name: str
    op: str
    path: str
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    attributes: Mapping[str, Any]
    meaning: Meaning
    event: Event | None = None


@dataclass
class Recording:
    """One run: what was computed from what, with digests."""

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


class Side(Protocol):
    """One of two runs that are compared: live, or on disk."""

    recording: Recording

    def digests(self, wanted: Sequence[Part], side: int) -> list[str | None]:
        """Returns digests of selected elements of values; None of those that weren't kept."""

    def parts(self, wanted: Sequence[Part], side: int) -> list[np.ndarray | None]:
        """Returns selected elements of values; None of those that weren't kept."""

    def arrays(self, wanted: set[int]) -> dict[int, np.ndarray]:
        """Returns values as container arrays, by number."""

    def again(self, number: int) -> Callable[[list[np.ndarray]], list[np.ndarray]] | None:
        """Returns what runs one operation alone, by its number; None where it can't be."""

    def agains(
        self, wanted: set[int]
    ) -> dict[int, Callable[[list[np.ndarray]], list[np.ndarray]] | None]:
        """Returns the same of several operations."""

    def hold(self, values: set[int], operations: set[int]) -> None:
        """Keeps these values instead of others, and what runs these operations alone: then
        ``arrays`` and ``agains`` need no further run."""

    def suspect(self, numbers: Sequence[int]) -> None:
        """Has the next run, whatever it is for, look at these values too: for ``repeats``."""

    def repeats(self, numbers: Sequence[int]) -> bool:
        """Returns whether these values have the same bits in another run of the same side."""


def numbers(seen: Seen) -> Callable[[], np.ndarray]:
    """Returns a function that gives a value's exact numbers; integers and complex as they are."""

    def given() -> np.ndarray:
        array = seen.array()
        return floats.widen(array, seen.dtype) if seen.dtype in floats.FORMATS else array

    return given


PIECE = 1 << 20
"""Bytes from which on an array that isn't contiguous is copied a few rows at a time."""


def digest(array: np.ndarray) -> str:
    """Returns a digest of an array's bits, row by row: 32 digits, however it lies in memory.

    XXH3 of 128 bits reads memory as fast as it comes: 10 GB/s, and 38 in the cache, where SHA-1
    reads 1.5 with the processor's own instructions. Nobody chooses arrays that collide.
    """
    if array.flags.c_contiguous and array.dtype.kind in "fiub":
        return xxhash.xxh3_128_hexdigest(array.data)
    if array.flags.c_contiguous or array.nbytes < PIECE:
        return xxhash.xxh3_128_hexdigest(_bytes(array))
    found = xxhash.xxh3_128()
    rows = max(1, PIECE * len(array) // array.nbytes)
    for at in range(0, len(array), rows):
        found.update(_bytes(array[at : at + rows]))
    return found.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


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


class Live:
    """A run that can be had again: every question runs it once more."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.outputs: list[np.ndarray] = []
        self.given: dict[int, np.ndarray] = {}
        self.held: dict[int, np.ndarray] = {}
        self.suspects: set[int] = set()
        self.digests_again: dict[int, str] = {}
        self.able: dict[int, Callable[[list[np.ndarray]], list[np.ndarray]] | None] = {}
        self.scripted: dict[int, bool] = {}  # of those: whether the recorder writes them as lines
        self.views: dict[Hashable, str] = getattr(recorder, "views", {})
        self.recording = self.watched()

    def watched(self) -> Recording:
        """Runs it for its structure and digests."""
        found = Recording(self.recorder.target)
        names: dict[str, int] = {}
        large = 0

        def fits(shape: tuple[int, ...], array: Callable[[], np.ndarray]) -> bool:
            """Returns whether such a value is kept, and counts its bytes where it is large."""
            nonlocal large
            size = prod(shape)
            if size <= SMALL:
                return True
            if size > LARGE or large + (more := array().nbytes) > LARGE_BYTES:
                return False
            large += more
            return True

        def met(number: int, seen: Seen, given: int) -> None:
            if given >= 0:
                value = Value(seen.shape, seen.dtype, bits(seen), given, address=seen.address)
                found.values.append(value)
                return
            array = seen.array()
            value = Value(seen.shape, seen.dtype, digest(array), given, seen.role, seen.name)
            value.address = seen.address
            plain = not value.floating or seen.role == CONSTANT
            few = seen.role == INPUT or array.size == 1
            if few or (plain and fits(seen.shape, lambda: array)):
                value.content = np.array(array)
            found.values.append(value)

        def bits(seen: Seen) -> str:
            """Returns the digest of a result.
            That of a view is known where those of what it shows are."""
            event, reads = watch.now
            if event is None or event.view is None or len(event.gives) != 1:
                return digest(seen.array())
            same = (event.view, *(found.values[n].digest for n in reads))
            if same not in self.views:
                self.views[same] = digest(seen.array())
            return self.views[same]

        def done(number: int, event: Event, reads: tuple[int, ...], gives: tuple[int, ...]) -> None:
            values, meaning, known, halves = found.values, event.meaning, True, False
            for n in reads:
                known = known and values[n].plain
            for n in (*reads, *gives):
                halves = halves or values[n].dtype in COMPLEX
            if halves:
                meaning = of_complex(meaning)
            if known:
                for n, seen in zip(gives, event.gives, strict=True):
                    settled = meaning.exact or not values[n].floating
                    if settled and fits(seen.shape, seen.array):
                        values[n].content = np.array(seen.array())
            if meaning.notices and gives and values[gives[0]].content is None:
                values[gives[0]].zeros = meaning.noticed(
                    [numbers(one) for one in event.reads], [numbers(one) for one in event.gives]
                )
            name = event.path or event.op
            names[name] = names.get(name, 0) + 1
            unique = name if names[name] == 1 else f"{name}#{names[name]}"
            found.operations.append(
                Operation(
                    *(number, unique, event.op, event.path, reads, gives, event.attributes, meaning)
                )
            )

        watch = Watch(met, done)
        try:
            outputs = self.recorder.record(watch)
        except Again:
            return self.watched()
        self.numbers = watch.numbers
        found.target, found.note = self.recorder.target, self.recorder.note  # known by now
        self.outputs = [np.array(seen.array()) for seen in outputs]
        found.outputs = tuple(watch.number(seen) for seen in outputs)
        self.given = dict(zip(found.outputs, self.outputs, strict=True))
        self._inline(found)
        return found

    def _inline(self, found: Recording) -> None:
        """Finds out what compiled operations compute, where the recorder can do without them."""
        some = [one for one in found.operations if isinstance(one.meaning, Compiled)]
        other = getattr(self.recorder, "uncompiled", None)
        if not some or other is None or (recorder := other()) is None:
            return
        try:
            plain = Live(recorder).recording
        except Exception:  # what runs compiled alone: the operation stays unknown
            return
        composed = import_module("probe.recording.composed")
        for one in some:
            one.meaning = composed.meaning(one, found, plain)

    def _rerun(
        self,
        met: Callable[[int, Seen, int], None] = lambda *_: None,
        done: Callable[..., None] = lambda *_: None,
    ) -> None:
        """Runs it once more. Nondeterministic where it gives values of other shapes than before."""
        values, wrong = self.recording.values, []

        def checked(number: int, seen: Seen, given: int) -> None:
            same = number < len(values) and (values[number].shape, values[number].dtype)
            if same != (seen.shape, seen.dtype):
                wrong.append(number)
            elif not wrong:
                met(number, seen, given)
                if number in self.suspects:
                    self.digests_again[number] = digest(seen.array())

        def after(number: int, *rest: Any) -> None:
            if not wrong:
                done(number, *rest)

        watch = Watch(checked, after)
        try:
            for seen in self.recorder.record(watch):
                watch.number(seen)  # an input that no operation reads may be an output
        finally:
            self.suspects = set()
            if wrong:
                raise Nondeterministic(OTHER_OPERATIONS) from None

    def digests(self, wanted: Sequence[Part], side: int) -> list[str | None]:
        return self._each(wanted, lambda array, chosen: digest(chosen.taken(array, side)))

    def parts(self, wanted: Sequence[Part], side: int) -> list[np.ndarray | None]:
        return self._each(
            wanted, lambda array, chosen: np.array(chosen.taken(array, side), order="C")
        )

    def _each(
        self, wanted: Sequence[Part], made: Callable[[np.ndarray, Selection], Any]
    ) -> list[Any]:
        """Runs it once more, and makes something of each part."""
        found: list[Any] = [None] * len(wanted)
        places: dict[int, list[int]] = {}
        for place, (number, _) in enumerate(wanted):
            places.setdefault(number, []).append(place)

        def met(number: int, seen: Seen, _: int) -> None:
            for place in places.get(number, ()):
                found[place] = made(seen.array(), wanted[place][1])

        self._rerun(met)
        return found

    def arrays(self, wanted: set[int]) -> dict[int, np.ndarray]:
        known = {n: self.held[n] for n in wanted if n in self.held}
        return known | self._fetched(wanted - known.keys(), set())

    def hold(self, values: set[int], operations: set[int]) -> None:
        known = {n: self.held[n] for n in values if n in self.held}
        self.held = known | self._fetched(values - known.keys(), operations)

    def _fetched(self, values: set[int], operations: set[int]) -> dict[int, np.ndarray]:
        """Returns values; notes what runs operations alone. One run, if any."""
        found = {n: self.given[n] for n in values if n in self.given}
        missing, rest = values - found.keys(), operations - self.able.keys()

        def met(number: int, seen: Seen, _: int) -> None:
            if number in missing:
                found[number] = np.array(seen.array(), order="C")

        def done(number: int, event: Event, *_: Any) -> None:
            if number in rest:
                self.able[number] = event.again
                self.scripted[number] = event.lines is not None

        if missing or rest:
            self._rerun(met, done)
        return found

    def suspect(self, numbers: Sequence[int]) -> None:
        self.suspects, self.digests_again = set(numbers), {}

    def repeats(self, numbers: Sequence[int]) -> bool:
        if not self.digests_again.keys() >= set(numbers):
            self.suspect(numbers)
            self._rerun()
        return all(self.digests_again[n] == self.recording.values[n].digest for n in numbers)

    def event(self, wanted: int) -> Event:
        """Runs it for one operation as it was called; its arrays are no longer valid."""
        found: list[Event] = []

        def done(number: int, event: Event, *_: Any) -> None:
            if number == wanted:
                found.append(event)

        self._rerun(done=done)
        return found[0]

    def again(self, number: int) -> Callable[[list[np.ndarray]], list[np.ndarray]] | None:
        return self.agains({number})[number]

    def agains(
        self, wanted: set[int]
    ) -> dict[int, Callable[[list[np.ndarray]], list[np.ndarray]] | None]:
        self._fetched(set(), wanted)
        return {number: self.able[number] for number in wanted}


__all__ = ["WEIGHT", "Live", "Operation", "Recording", "Side", "Value", "Watch", "digest"]
