"""The sizes at which an operation gives the same bits, and how a call is cut and padded to them.

The mark of a size is a digest of what the operation made of telling operands there; empty, where
places of one call gave different bits. Sizes with the same mark are one class. ``Sizes`` are those
of an operation, any of which can be tried; ``Buckets`` the few of a whole program. The class of
each is an ``Entry`` of a ``Table``, which is stored as JSON; sizes are asked in every process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe.case import ulp
from probe.case.errors import InputError
from probe.targets import budget
from probe.targets.progress import VOICE

# Sizes of pieces that larger calls are cut into: the first of them that is in the class.
PIECES = (1024, 512, 2048, 256, 4096, 128, 64)

# The largest size that is tried as a padded one.
MOST = 1 << 16
# Sizes directly above and below one whose places differ that are tried beside powers of two.
NEXT, NEAR = 3, 12
SAMPLED = 24  # sizes of the user at which classes are timed
# Calls that are timed behind the first: the second number of short ones.
TURNS, MANY = 2, 16
SHORT = 1e-3  # s


class InvariantOptions(NamedTuple):
    """What ``invariant`` was called with; the sizes are checked, by axis."""

    sizes: dict[str, tuple[int, ...]]
    like: str
    strict: bool
    example: Any
    table: Any


class SizedCall(NamedTuple):
    """One call: ``places`` from ``start`` on, padded to ``size``."""

    start: int
    places: int
    size: int


Plan = tuple[SizedCall, ...]


def mark_of_answers(answers: Iterable[tuple[np.ndarray, str]]) -> str:
    """The mark of answers to telling operands that were the same at every place.

    Each is a container array (places, ...) and the name of its format. Empty where two places
    differ, the sign of a zero included.
    """
    digest = hashlib.sha256()
    for y, dtype in answers:
        first = np.broadcast_to(y[:1], y.shape)
        if not ulp.equal(y, first, dtype) or ulp.signed_zeros(y, first, dtype):
            return ""
        digest.update(np.ascontiguousarray(y[0]).tobytes())
    return digest.hexdigest()[:16]


@dataclass
class Entry:
    """What is known of one operation; a row of the table.

    ``chosen``: the mark of the class; empty: there is none. ``largest``: the size that it was
    chosen for. Not saved, as every process asks for itself: ``marks``, by number of threads, the
    mark of each size that was checked; ``orders``, what asking for them came to.
    """

    chosen: str = ""
    like: str = ""
    largest: int = 0
    marks: dict[int, dict[int, str]] = field(default_factory=dict)
    orders: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"chosen": self.chosen, "like": self.like, "largest": self.largest}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Entry:
        """What ``to_json`` gave. What errors come of other things: as of ``Table.read``."""
        return cls(str(row["chosen"]), str(row["like"]), int(row["largest"]))


class Sizes:
    """One operation with one number of threads: which sizes are in the chosen class, and how calls
    are cut and padded to them."""

    def __init__(self, operation: Any, entry: Entry, threads: int) -> None:
        self.operation, self.entry, self.threads = operation, entry, threads
        self.marks = entry.marks.setdefault(threads, {})
        self.plans: dict[int, Plan | None] = {}
        self._seconds: dict[int, float] = {}
        self._piece = 0

    def mark(self, size: int) -> str:
        """As ``operations.IndependentRows.mark``, asked once."""
        if size not in self.marks:
            budget.require_time()
            with VOICE.doing(f"checking {self.operation.key} at size {size:,}"):
                self.marks[size] = self.operation.mark(size)
        return self.marks[size]

    def usable(self, size: int) -> bool:
        """Whether all places of a call of this size have the bits of the chosen class."""
        return bool(self.entry.chosen) and self.mark(size) == self.entry.chosen

    def seconds(self, size: int) -> float:
        """Of one call of this size, measured once."""
        if size not in self._seconds:
            self._seconds[size] = seconds_of(self.operation.ready(size))
        return self._seconds[size]

    def take(self, mark: str) -> None:
        """Sets the class: what is planned rests on it."""
        self.entry.chosen, self._piece = mark, 0
        self.plans.clear()

    def of_largest(self, largest: int) -> str:
        """The mark of the size nearest to the largest whose places are alike; empty: none is."""
        return next(filter(None, map(self.mark, _near(largest))), "")

    def classes(self, wanted: Sequence[int]) -> list[str]:
        """The marks among which the cheapest class for these sizes is looked for."""
        sizes = {*self._sampled(wanted), 1, 2, 4, 8, 16, 32, 64, 128}
        return [self.mark(size) for size in sorted(sizes)]

    def _sampled(self, wanted: Sequence[int]) -> list[int]:
        """Some of many sizes, the ends and the largest included."""
        sizes = sorted({*wanted, self.entry.largest})
        if len(sizes) > SAMPLED:
            at = np.linspace(0, len(sizes) - 1, SAMPLED).round().astype(int)
            sizes = [sizes[number] for number in at]
        return sizes

    def cost(self, wanted: Sequence[int]) -> float:
        """Seconds for these sizes in the class, each over its time as it is."""
        total = 0.0
        for size in self._sampled(wanted):
            plan = self.plan(size)
            if plan is None:
                return float("inf")
            total += sum(map(self.seconds, (piece.size for piece in plan))) / self.seconds(size)
        return total

    def plan(self, count: int) -> Plan | None:
        """The calls that compute ``count`` places in the class; None: there is no way."""
        if count not in self.plans:
            self.plans[count] = self._plan(count) if self.entry.chosen else None
        return self.plans[count]

    def choose(self, largest: int, like: str, wanted: Sequence[int]) -> None:
        """Sets the class. ``wanted``: the user's sizes, for the cheapest one."""
        self.entry.like, self.entry.largest = like, largest
        self.take(self.of_largest(largest))
        if like == "cheapest":
            costs = dict.fromkeys(filter(None, [self.entry.chosen, *self.classes(wanted)]), 0.0)
            for mark in costs if len(costs) > 1 else ():
                self.take(mark)
                costs[mark] = self.cost(wanted)
            self.take(min(costs, key=costs.__getitem__, default=""))

    def keep(self, largest: int, like: str, wanted: Sequence[int], table: Table) -> None:
        """Keeps the class of a table, so that the same bits are given; chooses one where that is
        not the one that is wanted, or has no sizes."""
        entry = self.entry
        if (entry.like, entry.largest) != (like, largest):
            why = "the table's class is for other sizes"
        elif like == "largest" and table.trusted and self.of_largest(largest) != entry.chosen:
            why = "the table's class is not that of the largest size"
        elif self.plan(largest) is None:
            why = "no size gives the bits of the table"
        else:
            return
        table.notes.append(f"{self.operation.key}: {why}: chosen anew")
        self.choose(largest, like, wanted)

    @property
    def doubts(self) -> str:
        """Why the chosen class is not that of the largest size; empty if it is."""
        chosen, largest = self.entry.chosen, self.entry.largest
        mark = self.marks.get(largest)
        if self.entry.like != "largest" or mark == chosen:
            return ""
        why = "it has bits of its own" if mark else "its places have different bits"
        alike = (size for size, mark in self.marks.items() if mark == chosen)
        size = min(alike, key=lambda size: abs(size - largest), default=0)
        return f"{self.operation.key}: at size {largest} {why}; those of size {size} are kept"

    def _plan(self, count: int) -> Plan | None:
        pieces = self.operation.pieces
        if (not pieces or count < 2 * pieces[0]) and self.usable(count):
            return (SizedCall(0, count, count),)
        if pieces and count > min(pieces):
            if not self._piece:
                usable = [size for size in pieces if self.usable(size)]
                self._piece = usable[0] if usable else max(self._class_sizes(), default=0)
            if self._piece and count > self._piece:
                return self._in_pieces(count, self._piece)
        if self.usable(count):
            return (SizedCall(0, count, count),)
        if larger := next(filter(self.usable, _above(count)), 0):
            return (SizedCall(0, count, larger),)
        # two threads that share a larger call have places that differ
        below = [*_below(count - 1)[:8], *reversed(self._class_sizes(below=count))]
        smaller = next(filter(self.usable, below), 0)
        return self._in_pieces(count, smaller) if smaller else None

    def _in_pieces(self, count: int, piece: int) -> Plan | None:
        """Pieces of one size, and a plan for the rest, to which the last whole one is left:
        the rest by itself would cost a call more, in which the library packs the weights anew."""
        full_pieces = max(1, count // piece - 1)
        start = full_pieces * piece
        tail = self.plan(count - start) if count > start else ()
        if tail is None:
            return None
        return (
            *(SizedCall(number * piece, piece, piece) for number in range(full_pieces)),
            *(call._replace(start=call.start + start) for call in tail),
        )

    def _class_sizes(self, below: float = math.inf) -> list[int]:
        """The known sizes of the class, in increasing order."""
        chosen = self.entry.chosen
        return sorted(size for size, mark in self.marks.items() if mark == chosen and size < below)


def _above(count: int) -> list[int]:
    """The next sizes, then rounded up to more and more zeros at the end, in binary.

    Some kernels work on 6 rows at a time: of these not every power of two is a good size.
    """
    rounded = (-(-count >> power) << power for power in range(1, 17))
    sizes = dict.fromkeys((*range(count + 1, count + 1 + NEXT), *rounded))
    return [size for size in sizes if count < size <= max(MOST, 2 * count)]


def _below(count: int) -> list[int]:
    """The size itself, then rounded down to more and more zeros at the end, in binary."""
    rounded = dict.fromkeys(count >> power << power for power in range(17))
    return [size for size in rounded if size]


def _near(count: int) -> list[int]:
    """The size, near ones below and above, and powers of two below, as the last resort."""
    below = range(count - 1, max(count - 1 - NEAR, count // 2), -1)
    above = [size for size in _above(count) if size <= 2 * count]
    powers = [1 << power for power in reversed(range(3, count.bit_length())) if 1 << power < count]
    return list(dict.fromkeys([*_below(count), *below, *above, *powers]))


def seconds_of(call: Callable[[], Any]) -> float:
    """The least of a few calls."""
    first = _timed(call)
    turns = TURNS if first > SHORT else MANY
    return min(first, *(_timed(call) for _ in range(turns)))


def _timed(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


# Sizes at which a whole program is run: a few, each checked before it is used.
#
# A program is compiled or prepared for each size, so that not every size can be tried as those of
# one operation are. Smaller calls are padded to a bucket, larger ones cut into several, whichever
# takes the least measured time. All buckets in use are in one class, so timing never decides a bit.


# Up to that many sizes of the user are the buckets themselves.
NAMED = 12

# By how much a bucket is made larger whose places differ, in this order: kernels that take 6 or 12
# rows at a time have a tail of 2 to 8 rows at a power of two, and may add it differently. Behind
# them the multiples that it is made to be: of so many samples a function has whole vectors alone.
BESIDE = (2, 4, 1)
WHOLE = (8, 16, 32, 64)


def ladder(sizes: Sequence[int], fixed: int | None = None) -> tuple[int, ...]:
    """The buckets for the user's sizes, in increasing order; ``fixed``: the only one there is.

    Of many sizes: powers of two, and the largest.
    """
    if fixed is not None:
        return (fixed,)
    if len(sizes) <= NAMED:
        return tuple(sorted(sizes))
    least, most = min(sizes), max(sizes)
    powers = [1 << n for n in range(most.bit_length())]
    below = max((power for power in powers if power <= least), default=1)
    return tuple(sorted({*(power for power in powers if power >= below), most}))


class Buckets(Sizes):
    """One program with one number of threads: which buckets are in the chosen class.

    ``operation``: a ``whole.WholeProgram``. ``fixed``: there is no other size than these.
    """

    def __init__(
        self, operation: Any, entry: Entry, threads: int, sizes: Sequence[int], fixed: bool = False
    ) -> None:
        super().__init__(operation, entry, threads)
        self.ladder = tuple(sizes)
        self.fixed = fixed
        self._telling_asked: dict[int, int] = {}

    def mark(self, size: int) -> str:
        """As of ``Sizes``; asked again with the samples that told at other sizes since."""
        mark, telling = super().mark(size), len(self.operation.telling)
        if mark and self._telling_asked.setdefault(size, telling) < telling:
            if self.operation.differs_on_telling(size, self._telling_asked[size]):
                self.marks[size] = mark = ""
            self._telling_asked[size] = telling
        return mark

    @property
    def tried(self) -> list[int]:
        """The ladder; a size whose places differ has one beside it whose places do not. Where no
        size is left, samples are run one by one: a single one has no places to differ."""
        sizes = set(self.ladder)
        for size in self.ladder:
            if not self.mark(size) and size not in self.operation.refused:
                larger = [size + more for more in BESIDE]
                larger += [size + -size % step for step in WHOLE if size % step]
                sizes |= {next(filter(self.mark, () if self.fixed else larger), size)}
        if not self.fixed and not any(map(self.mark, sizes)):
            sizes.add(1)
        return sorted(sizes)

    @property
    def used(self) -> list[int]:
        """The buckets whose every place has the bits of the chosen class."""
        return [size for size in self.tried if self.usable(size)]

    def classes(self, wanted: Sequence[int]) -> list[str]:
        """As of ``Sizes``, that of the largest bucket first."""
        return list(dict.fromkeys(filter(None, map(self.mark, reversed(self.tried)))))

    def of_largest(self, largest: int) -> str:
        return next(iter(self.classes(())), "")

    def cost(self, wanted: Sequence[int]) -> float:
        """As of ``Sizes``: a sample."""
        plans = [(self.plan(size) or (), size) for size in wanted]
        return sum(self.seconds(piece.size) / size for plan, size in plans for piece in plan)

    def _plan(self, count: int) -> Plan | None:
        """Largest pieces first, the last one padded."""
        used = self.used
        if not used:
            return None
        if count in used:
            return (SizedCall(0, count, count),)
        seconds = np.maximum.accumulate(list(map(self.seconds, used))).tolist()
        times = list(zip(used, seconds, strict=True))

        taken = [used[-1]] * max(0, count // used[-1] - 1)
        left_over = count - sum(taken)
        best = [(0.0, 0)]  # of so many places the least seconds, and one of the buckets
        for places in range(1, left_over + 1):
            ways = ((seconds + best[max(0, places - size)][0], size) for size, seconds in times)
            best.append(min(ways))
        while left_over > 0:
            taken.append(best[left_over][1])
            left_over -= taken[-1]
        taken.sort(reverse=True)  # so that only the last is padded: else it could be left out
        starts = accumulate(taken, initial=0)
        return tuple(
            SizedCall(start, min(size, count - start), size)
            for start, size in zip(starts, taken, strict=False)
        )


# The table of classes.


FORMAT = 1
# What begins the names of variables of the environment that choose kernels.
VARIABLES = (
    *("MKL_", "ONEDNN_", "DNNL_", "ATEN_", "OMP_", "KMP_", "OPENBLAS_", "XLA_", "JAX_"),
    *("TF_ENABLE_", "TF_DISABLE_", "TF_SET_ONEDNN", "TF_DETERMINISTIC", "TF_XLA"),
    *("ORT_", "OPENCV_", "TORCHINDUCTOR_"),
)
MOST_BYTES, MOST_THREADS = 1 << 26, 4096  # of a table that is read
NO_TABLE = "it is not a table of classes"
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


def conditions(switches: dict[str, Any]) -> dict[str, Any]:
    """What decides which kernels a library takes: its switches, the processor, and the variables
    that it reads. None of it names the machine or its user."""
    from probe.targets.machine import facts

    machine = facts()
    processor = {"processor": machine["cpu_model"], "isa": machine["cpu_isa"]}
    variables = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and "/" not in value  # a path would name the machine
    }
    return {**switches, **processor, "variables": variables}


@dataclass
class Table:
    """Entries by the operation's key.

    ``threads``: with that many were classes chosen. ``notes``: what did not hold when it was read;
    ``trusted``: whether the environment is the one that it was made in.
    """

    like: str
    sizes: dict[str, tuple[int, ...]]
    threads: int
    environment: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trusted: bool = True

    def save(self, path: str | Path) -> None:
        """Writes it whole, or not at all. InputError: not there."""
        content = {
            "format": FORMAT,
            "like": self.like,
            "threads": self.threads,
            "sizes": self.sizes,
            "environment": self.environment,
            "operations": {key: entry.to_json() for key, entry in sorted(self.entries.items())},
        }
        text = json.dumps(content, indent=1)
        try:
            # a reader sees the old table or the new one
            part = Path(path).with_name(Path(path).name + ".part")
            part.write_text(text)
            part.replace(path)
        except (OSError, ValueError, TypeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise InputError("path", path, f"it can't be written: {why}", "give another") from error

    @classmethod
    def read(cls, path: Path, now: dict[str, Any]) -> Table:
        """A table as it was written. InputError: it is none, or of another format or library.

        ``now``: the environment that there is.
        """
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
            content, name = json.loads(path.read_text()), path.name
            sizes = content["sizes"].items()
            table = cls(
                str(content["like"]),
                {axis: tuple(map(_checked, values)) for axis, values in sizes},
                _checked(content["threads"], MOST_THREADS),
                now,
                entries={key: Entry.of(row) for key, row in content["operations"].items()},
            )
            number, before = content["format"], dict(content["environment"])
        except RecursionError as error:
            raise _no_table(path.name, "it is nested too deeply") from error
        except UNREADABLE as error:
            why = getattr(error, "strerror", None) or f"{NO_TABLE} ({type(error).__name__})"
            raise _no_table(path.name, why) from error
        if number != FORMAT:
            raise InputError("table", name, f"its format is {number}, not {FORMAT}")
        if (library := before.get("library")) != now["library"]:
            why = f"it is of {library}, not of {now['library']}"
            raise InputError("table", name, why, "give a different table")
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if names:
            table.trusted = False
            table.notes.append(f"the table was made with another {', '.join(names)}")
        return table

    @classmethod
    def opened(
        cls,
        path: str | Path | None,
        like: str,
        sizes: dict[str, tuple[int, ...]],
        threads: int,
        now: dict[str, Any],
    ) -> Table:
        """The table of this path, or a new one in the environment that there is ``now``.
        InputError: it is for other sizes."""
        try:
            written = path is not None and Path(path).is_file()
        except OSError as error:
            raise _no_table(repr(path)[:40], str(error.strerror)) from error
        if path is None or not written:
            return cls(like, sizes, threads, now)
        table = cls.read(Path(path), now)
        if (table.like, table.sizes) != (like, sizes):
            why = f"it is for like={table.like}, sizes={table.sizes}"
            raise InputError("table", Path(path).name, why, "give the same, or another table")
        return table


def _no_table(name: str, why: str) -> InputError:
    return InputError("table", name, why, "write one with report.save")


def _checked(value: Any, most: float = math.inf) -> int:
    """A whole number from 1 on. ValueError, TypeError: it is none."""
    if isinstance(value, bool) or not 1 <= index(value) <= most:
        raise ValueError(value)
    return index(value)
