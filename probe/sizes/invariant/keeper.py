"""Which class each operation of a model runs in, and what the model's bits rest on.

Classes are found when a shape is first met, and then kept. Marks rest on telling operands, which
show nearly every other order; ``Report.orders`` reveals the order itself at two sizes of a class,
the smallest and a larger one, and both have to add every output alike; another way to the bits of
an operation, such as that of few rows, is asked beside the operation itself.
"""

from __future__ import annotations

import copy
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from probe.case.errors import InputError, ProbeError
from probe.order.orders import Orders, reveal
from probe.sizes.invariant.classes import Entry, Plan, Sizes, Table
from probe.sizes.invariant.operations import IndependentRows
from probe.targets.launch import InlineSession
from probe.targets.target import Target
from probe.targets.unchanged import leaves_unchanged

ASKED = 1 << 26  # numbers of telling operands that are kept, of all operations together
# Elements at which a function's class is chosen: few have no vector body.
PLACES = 4096
BOUND = (
    "it was met at one batch and not at another: the batch is a part of its shape, and so of its "
    "class; give it the samples along its first axis"
)
LEFT = (
    "it is not known whether its bits depend on batch, length or place: compute it outside of the "
    "model, and make the parts before and behind it invariant"
)
LENGTHS = "lengths are part of an operation's shape: along the batch alone"


class Library(Protocol):
    """What differs from library to library; a module is one."""

    runner: Any
    """Calls an operation by a plan: (operation, plan, samples, parameters)."""

    def threads(self) -> int:
        """How many there are within an operation."""

    def switches(self) -> dict[str, Any]:
        """What of the library stands in a table's environment: its name, release, ..."""

    def settings(self) -> tuple[Any, ...]:
        """The settings of the library that choose kernels, and so bits."""

    def changed(self, before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
        """Which settings differ, as name=value; empty: those that choose are the same."""


class ReadyOperation:
    """An operation with one number of threads, ready to run."""

    def __init__(self, operation: IndependentRows, sizes: Sizes, keeper: Keeper) -> None:
        self.operation: Any = operation
        self.sizes, self.keeper = sizes, keeper
        self.run, self.plans = keeper.library.runner, sizes.plans

    def plan(self, count: int) -> Plan | None:
        """As ``Sizes.plan``; what is not known yet is found by one thread at a time."""
        with self.keeper.lock:
            plan = self.sizes.plan(count)
            self.keeper.remember(self.operation)
        return plan

    def is_one_call(self, count: int) -> bool:
        """Whether that many places, which were computed before, are one call of them."""
        plan = self.plans.get(count)
        return plan is not None and len(plan) == 1 and plan[0].size == count

    def __call__(self, samples: tuple[Any, ...], parameters: tuple[Any, ...] = ()) -> Any:
        """The operation in its class; as it is, and reported, where there is no way."""
        count = samples[0].shape[0]
        plan = self.plans.get(count) or self.plan(count)
        if plan is None:
            threads = self.keeper.library.threads()
            why = f"no size was found at which {threads} threads give the chosen bits everywhere"
            self.keeper.leave(self.operation.key, why)
            return self.operation.call(samples, parameters)
        return self.run(self.operation, plan, samples, parameters)


class Calls:
    """With which batches a model was called. An operation that is new at a second batch, where all
    else is the same, has the batch in its shape: each batch would have a class of its own."""

    def __init__(self) -> None:
        self._done: dict[Any, set[int]] = {}
        self._now = threading.local()

    @property
    def trial(self) -> list[Any] | None:
        """Where ``Keeper.leave`` lists what it is called with; None: it is reported."""
        trial: list[Any] | None = getattr(self._now, "trial", None)
        return trial

    @contextmanager
    def trying(self) -> Iterator[list[Any]]:
        """Within, a call that has ended is run with other batches: nothing is reported, and what
        is left is listed. See ``samples``."""
        before = getattr(self._now, "call", (None, 0))
        self._now.trial = left = list[Any]()
        try:
            yield left
        finally:
            self._now.trial, self._now.call = None, before

    def begin(self, shapes: Any, batch: int) -> None:
        """A call starts. ``shapes``: of all that is given, without the batch; None: not known."""
        self._now.call = shapes, batch

    def end(self) -> None:
        """The call has ended well."""
        shapes, batch = self._now.call
        if shapes is not None:
            self._done.setdefault(shapes, set()).add(batch)

    @property
    def another_batch(self) -> bool:
        """Whether this call differs from one that has ended in its batch alone."""
        if self.trial is not None:
            return True
        shapes, batch = getattr(self._now, "call", (None, 0))
        batches = self._done.get(shapes, set())
        return bool(batches) and batch not in batches


class Keeper:
    """All operations of one model."""

    def __init__(self, table: Table, strict: bool, library: Library) -> None:
        self.table, self.strict, self.report = table, strict, Report(table)
        self.library = library
        self.calls = Calls()
        self.settings = library.settings()
        self.lock = threading.RLock()
        self.length = max(table.sizes.get("length", (1,)))
        self.batch = max(table.sizes["batch"])
        self._asked: OrderedDict[str, IndependentRows] = OrderedDict()
        self._settled: set[str] = set()
        self._named: dict[str, str] = {}
        self._families: set[str] = set()
        self._placed: set[str] = set()

    def leave(self, operation: str, why: str, kind: str = "") -> None:
        """Notes an operation that runs as it is. NotInvariant with ``strict``.

        ``kind``: the same for shapes of which one is named for all: those of several batches.
        """
        if (trial := self.calls.trial) is not None:
            trial.append((operation, why, kind))
            return
        if self.strict:
            raise NotInvariant(operation, why)
        numberless = re.sub(r"\d+", "n", operation)  # of all batches one is enough to be named
        if self.calls.another_batch and numberless in self._families:
            return  # the same operation, where the batch is not its first axis
        self._families.add(numberless)
        named = self._named.setdefault(kind or operation, operation)
        if named == operation:
            self.report.left.setdefault(operation, why)

    def by_place(self, operation: str) -> None:
        """Notes a function some of whose places have different bits where the library runs it as it
        is: at the largest size too."""
        if self.table.like == "largest" and operation not in self._placed:
            self._placed.add(operation)
            self.table.notes.append(
                f"{operation}: as it is, some places of a call get different bits; those of whole "
                "vectors are kept"
            )

    def limit(self, ready: ReadyOperation, why: str) -> None:
        """Notes an operation that is covered along the batch alone. NotInvariant: ``strict``."""
        key = ready.operation.key
        if key not in self.report.limited:
            if self.strict:
                self.leave(key, why)
            self.report.limited[key] = why

    def limit_lengths(self, ready: ReadyOperation, why: str = LENGTHS) -> None:
        """Notes an operation whose lengths are part of its shape, where lengths were wanted."""
        if "length" in self.table.sizes:
            self.limit(ready, why)

    def require_settings(self, model: str) -> None:
        """InputError: the library has other settings than when the model was made."""
        if said := self.library.changed(self.settings, self.library.settings()):
            why = f"with {said} the library takes kernels that were not checked"
            raise InputError("model", model, why, "set it back, or call stable.invariant again")

    def first(self, ways: Sequence[IndependentRows], axis: str, each: int = 1) -> ReadyOperation:
        """The first way to call an operation that has a class, with the threads there are
        now; the first if none has. ``axis`` and ``each`` as of ``_wanted``."""
        key, checked = ways[0].key, list[ReadyOperation]()
        if self.calls.another_batch:
            self.leave(key, BOUND, re.sub(r"\d+", "n", key))
        for operation in ways:
            checked.append(self._ready(operation, axis, each))
            if checked[-1].sizes.entry.chosen:
                break
        taken = checked[-1] if checked[-1].sizes.entry.chosen else checked[0]
        if axis == "batch" and not taken.sizes.entry.chosen:
            # TensorFlow's mean of a picture adds by where it begins in memory, at every batch
            taken.sizes.take(taken.sizes.mark(1))
            note = f"{key}: samples run one by one, as places of one call have different bits"
            self.table.notes += [note] * (note not in self.table.notes)
        threads = self.library.threads()
        for operation in (ready.operation for ready in checked if ready is not taken):
            self.table.entries.pop(operation.key, None)
            self.report.operations.pop((operation.key, threads), None)
        return taken

    def _ready(self, operation: IndependentRows, axis: str, each: int) -> ReadyOperation:
        with self.lock:
            threads = self.library.threads()
            in_table = operation.key in self.table.entries
            entry = self.table.entries.setdefault(operation.key, Entry())
            wanted = self._wanted(axis, each)
            sizes = Sizes(operation, entry, threads)
            if operation.key not in self._settled:
                self._settled.add(operation.key)
                sizes.keep(*wanted, self.table) if in_table else sizes.choose(*wanted)
                self.table.notes += [sizes.doubts] if sizes.doubts else []
            # its operands may take more memory than the model
            self.remember(operation)
            self.report.operations[operation.key, threads] = operation
            return ReadyOperation(operation, sizes, self)

    def other_sizes(
        self, operation: IndependentRows, like: Entry, tried: Iterable[int]
    ) -> Sizes | None:
        """Sizes at which another operation gives the bits of an entry, with the present threads.

        None: at none of the sizes that are tried does it give them.
        """
        name, threads = operation.key, self.library.threads()
        entry = self.table.entries.get(name, Entry())
        entry.chosen, entry.like, entry.largest = like.chosen, like.like, like.largest
        sizes = Sizes(operation, entry, threads)
        if not any(map(sizes.usable, tried)):
            return None
        self.table.entries[name] = entry
        self.report.operations[name, threads] = operation
        return sizes

    def remember(self, operation: IndependentRows) -> None:
        """Keeps the operands of the operations that were asked last, and forgets the others'."""
        self._asked[operation.key] = operation
        self._asked.move_to_end(operation.key)
        held = sum(asked.kept for asked in self._asked.values())
        while held > ASKED and len(self._asked) > 1:
            _, oldest = self._asked.popitem(last=False)
            held -= oldest.kept
            oldest.forget()

    def _wanted(self, axis: str, each: int) -> tuple[int, str, list[int]]:
        """The largest size, which class, and the sizes that count for the cheapest.

        ``axis``: ``batch``, ``length``, ``place`` (of elements), or ``rows``: of the samples of a
        batch and their lengths.
        ``each``: that many are of one sample; of rows where no lengths are given.
        """
        batches, lengths = self.table.sizes["batch"], self.table.sizes.get("length", (each,))
        if axis == "length":
            return self.length, "largest", []
        if axis == "place":
            return max(self.batch, PLACES), "largest", []
        if axis == "batch":
            return self.batch * each, self.table.like, [batch * each for batch in batches]
        wanted = {batch * length for batch in batches for length in lengths}
        return max(wanted), self.table.like, sorted(wanted)


# What is found, and what is left as it is: the report.


AT_MOST = 32  # the size of the larger call
OUTPUTS = 1 << 18  # of one call that is asked
SIZES = "(sizes)"  # stands for them in what is said
NOTES = 3  # of a table that are printed


class NotInvariant(ProbeError):
    """``strict``: an operation was met that is not known to keep its bits."""

    def __init__(self, operation: str, why: str) -> None:
        self.operation, self.why = operation, why
        todo = "take it out of the model, or drop strict"
        super().__init__(f"operation={operation}: {why}; {todo}")


@dataclass(frozen=True)
class ReportRow:
    """One operation. ``sizes``: how many were checked; ``usable``: how many are in the class."""

    operation: str
    threads: int
    sizes: int
    usable: int
    smallest: int
    orders: str


class Report:
    """What was found so far: classes are looked for when a shape is first met, so this grows.

    ``rows``: operations whose sizes were checked. ``left``: operations that run as they are, with
    why their bits may depend on the batch, the length or the place; empty if none were met.
    ``limited``: operations that are covered along the batch alone, with what they are not.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.operations: dict[tuple[str, int], Any] = {}
        self.left: dict[str, str] = {}
        self.limited: dict[str, str] = {}

    @property
    def rows(self) -> list[ReportRow]:
        """One for each operation and number of threads."""
        rows = []
        for key, entry in self.table.entries.items():
            for threads, marks in entry.marks.items():
                usable = [size for size, mark in marks.items() if mark and mark == entry.chosen]
                said, least = entry.orders.get(threads, ""), min(usable, default=0)
                rows.append(ReportRow(key, threads, len(marks), len(usable), least, said))
        return rows

    @property
    def complete(self) -> bool:
        """Whether no operation that was met so far is left as it is."""
        return not self.left

    @leaves_unchanged
    def orders(self) -> dict[str, str]:
        """Asks the sums of each operation that was met so far for their order.

        Takes seconds for small layers and minutes for large ones, in this process.
        What it came to, by operation: words that begin with ``same``, ``different`` or ``not
        known``; of what is not a sum nothing.
        """
        library = self.table.environment["library"]
        return {
            key: orders_of_operation(operation, self.table.entries, key, threads, library)
            for (key, threads), operation in list(self.operations.items())
            if hasattr(operation, "case") and operation.case() is not None
        }

    def save(self, path: str | Path) -> None:
        """Writes the table of classes, as JSON: see ``classes.Table``. InputError."""
        self.table.save(path)

    def to_json(self) -> dict[str, Any]:
        return {
            "complete": self.complete,
            "like": self.table.like,
            "sizes": {name: list(values) for name, values in self.table.sizes.items()},
            "environment": self.table.environment,
            "operations": [dict(vars(row)) for row in self.rows],
            "left": dict(self.left),
            "limited": dict(self.limited),
            "notes": list(self.table.notes),
        }

    def __repr__(self) -> str:
        rows = self.rows
        keys = {row.operation for row in rows}
        same = {row.operation for row in rows if row.orders.startswith("same")}
        left = ", ".join(self.left) or "none"
        notes = self.table.notes
        limits = [*self.limited.values(), *notes[:NOTES]]
        limits += [f"and {len(notes) - NOTES} more notes"] * (len(notes) > NOTES)
        return (
            f"{len(keys)} operations keep their bits, {len(same)} of them by order; "
            f"{sum(row.sizes for row in rows)} sizes checked, like={self.table.like}\n"
            f"left as they are (bits may depend on batch, length or place): {left}\n"
            f"limits: {'; '.join(dict.fromkeys(limits)) or 'none'}"
        )


class _Here(InlineSession):
    """A library as it is in this process, with the variables that it was started with, whose calls
    are those of an operation."""

    def __init__(self, where: Target) -> None:
        super().__init__(where)
        self.variables = {}

    def call(self, operation: Any) -> None:
        """From here on the library makes the calls of that operation, where it has its own."""
        worker, library = self._worker, self.library
        worker.backend, worker.operators = library, OrderedDict()
        if not hasattr(operation, "library_call"):
            return
        # a copy: the worker keeps the library's own for the next operation
        worker.backend = backend = copy.copy(library)
        backend.namespace = dict(library.namespace, library_call=operation.library_call)

        def emit(layer: Any, shapes: Any) -> Any:
            bias = "b" if layer["bias"] else "None"
            return library.emit(layer, shapes)._replace(run=(f"y = library_call(x, w, {bias})",))

        backend.emit = emit

    def start(self) -> Self:
        super().start()
        self.library: Any = self._worker.backend
        return self


def orders_of_operation(
    operation: Any, entries: Mapping[str, Entry], key: str, threads: int, library: str
) -> str:
    """What asking came to, in words that begin with ``same``, ``different`` or ``not known``.

    ``entries``: of a table, with sizes that were checked for that many threads; it is noted in that
    of ``key`` too. Where an operation is another way to the bits of one that it is ``like``, it has
    to add as that one does.
    """
    entry, case = entries[key], operation.case()
    usable, said = _usable(entry, threads), "not known: "
    if case is None or not usable or not entry.chosen:
        said += "no sum that can be tested" if case is None else "no size was checked"
    else:
        larger = max(size for size in usable if size <= max(AT_MOST, min(usable)))
        calls = [(operation, size) for size in sorted({min(usable), larger})]
        sizes = " and ".join(str(size) for _, size in calls)
        like = getattr(operation, "like", None)
        if like is not None and (usual := _usable(entries.get(like.key), threads)):
            calls.append((like, min(usual)))
            sizes += f", and of size {min(usual)} of the usual way,"
        # TensorFlow's threads are those that it was started with
        where = library if library == "tensorflow" else f"{library},threads={threads}"
        revealed: list[Orders] = []
        try:
            with _Here(Target.parse(where)) as session:
                for called, size in calls:
                    session.call(called)
                    at = case.with_(batch=size)
                    if size * at.filters > OUTPUTS:
                        raise ProbeError(f"a call of {size} has too many outputs to test")
                    summations = revealed[0].summations if revealed else ()
                    revealed.append(reveal(session, at, summations))
            said = _agreed(revealed, [size for _, size in calls]).replace(SIZES, f"sizes {sizes}")
        except ProbeError as error:
            said += str(error)
    entry.orders[threads] = said
    return said


def _usable(entry: Entry | None, threads: int) -> list[int]:
    marks = {} if entry is None else entry.marks.get(threads, {})
    return [size for size, mark in marks.items() if entry and mark == entry.chosen]


def _agreed(revealed: list[Orders], sizes: list[int]) -> str:
    """Whether every output adds as that of the first sample of the first call."""
    for orders, size in zip(revealed, sizes, strict=True):
        if not orders.replayed.all():
            return f"not known: at size {size}: {orders.evidence}"
    each = len(revealed[0].index) // sizes[0]
    wanted: list[Any] = []
    for orders in revealed:
        for place, row in enumerate(orders.index):
            sums = [orders.summations[number] if number >= 0 else None for number in row]
            if len(wanted) < each:
                wanted.append(sums)
            if sums != wanted[place % each]:
                return f"different: at {SIZES} some outputs are added in a different order"
    sets = min(orders.sets for orders in revealed)
    return f"same: all outputs of {SIZES} add alike, replayed on {sets} sets of operands"
