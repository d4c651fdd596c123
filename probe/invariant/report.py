"""What the bits of an invariant model rest on, operation by operation.

Marks rest on telling operands, which show nearly every other order; a certificate asks every output
of a call about every addition and every fusion. It is asked at two sizes of a class, the smallest
and a larger one, and both have to add every output alike; another way to the bits of an operation,
such as that of few rows, is asked beside the operation itself.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from probe.errors import ProbeError
from probe.invariant.classes import Entry, Table
from probe.launch import InlineSession
from probe.summation import certificate
from probe.summation.orders import Orders, reveal
from probe.target import Target

AT_MOST = 32  # the size of the larger call
OUTPUTS = 1 << 18  # of one call that is asked
SIZES = "(sizes)"  # stands for them in what is said
NOTES = 3  # of a table that are printed
NAMED = 2  # modules of an operation that are printed


class NotInvariant(ProbeError):
    """``strict``: an operation was met that is not known to keep its bits."""

    def __init__(self, operation: str, why: str, module: str = "") -> None:
        self.operation, self.why, self.module = operation, why, module
        todo = "take it out of the model, or drop strict"
        super().__init__(f"operation={operation}{f' in {module}' * bool(module)}: {why}; {todo}")


@dataclass(frozen=True)
class ReportRow:
    """One operation. ``sizes``: how many were checked; ``usable``: how many are in the class."""

    operation: str
    threads: int
    sizes: int
    usable: int
    smallest: int
    certified: str

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Report:
    """What was found so far: classes are looked for when a shape is first met, so this grows.

    ``rows``: operations whose sizes were checked. ``left``: operations that run as they are, with
    why their bits may depend on the batch, the length or the place; empty if none were met.
    ``limited``: operations that are covered along the batch alone, with what they are not.
    ``modules``: the names of the modules in which those of ``left`` and ``limited`` were met; of
    functions in the model's own forward its class. Empty where a library has no modules.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.operations: dict[tuple[str, int], Any] = {}
        self.left: dict[str, str] = {}
        self.limited: dict[str, str] = {}
        self.modules: dict[str, list[str]] = {}

    @property
    def rows(self) -> list[ReportRow]:
        """Returns one for each operation and number of threads."""
        found = []
        for key, entry in self.table.entries.items():
            for threads, marks in entry.marks.items():
                usable = [size for size, mark in marks.items() if mark and mark == entry.chosen]
                told, least = entry.certified.get(str(threads), ""), min(usable, default=0)
                found.append(ReportRow(key, threads, len(marks), len(usable), least, told))
        return found

    @property
    def complete(self) -> bool:
        """Returns whether no operation that was met so far is left as it is."""
        return not self.left

    def certify(self, budget: int = certificate.BUDGET) -> dict[str, str]:
        """Asks the sums of each operation that was met so far for their order.

        Takes seconds for small layers and minutes for large ones, in this process.
        ``budget``: the most questions to a summation. Returns what it came to, by operation: words
        that begin with ``certified`` or ``not certified``; of what is not a sum nothing.
        """
        library = self.table.environment["library"]
        return {
            key: certified_operation(operation, self.table.entries, key, threads, budget, library)
            for (key, threads), operation in list(self.operations.items())
            if hasattr(operation, "case") and operation.case() is not None
        }

    def save(self, path: str | Path) -> None:
        """Writes the table of classes, as JSON: see ``classes.Table``."""
        self.table.save(Path(path))

    def to_json(self) -> dict[str, Any]:
        return {
            "complete": self.complete,
            "like": self.table.like,
            "sizes": {name: list(values) for name, values in self.table.sizes.items()},
            "environment": self.table.environment,
            "operations": [row.to_json() for row in self.rows],
            "left": dict(self.left),
            "limited": dict(self.limited),
            "modules": {operation: list(names) for operation, names in self.modules.items()},
            "notes": list(self.table.notes),
        }

    def _placed(self, operation: str) -> str:
        """Returns an operation with the modules that it was met in."""
        names = self.modules.get(operation, [])
        more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
        return operation + f" in {', '.join(names[:NAMED])}{more}" * bool(names)

    def __repr__(self) -> str:
        rows = self.rows
        keys = {row.operation for row in rows}
        checked = sum(row.sizes for row in rows)
        certified = {row.operation for row in rows if row.certified.startswith("certified")}
        first = f"{len(keys)} operations keep their bits, {len(certified)} of them certified; "
        named = ", ".join(map(self._placed, self.left)) or "none"
        notes = self.table.notes
        told = [*self.limited.values(), *notes[:NOTES]]
        told += [f"and {len(notes) - NOTES} more notes"] * (len(notes) > NOTES)
        limits = "; ".join(dict.fromkeys(told)) or "none"
        return "\n".join(
            [
                f"{first}{checked} sizes checked, like={self.table.like}",
                f"left as they are (bits may depend on batch, length or place): {named}",
                f"limits: {limits}",
            ]
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
        if not hasattr(operation, "asked"):
            return
        # a copy: the worker keeps the library's own for the next operation
        worker.backend = made = copy.copy(library)
        made.namespace = dict(library.namespace, asked=operation.asked)

        def emit(program: Any, shapes: Any) -> Any:
            bias = "b" if "b" in program.operands() else "None"
            return library.emit(program, shapes)._replace(run=(f"y = asked(x, w, {bias})",))

        made.emit = emit

    def start(self) -> Self:
        super().start()
        self.library: Any = self._worker.backend
        return self


def certified_operation(
    operation: Any,
    entries: Mapping[str, Entry],
    key: str,
    threads: int,
    budget: int,
    library: str,
) -> str:
    """What asking came to, in words that begin with ``certified`` or with ``not certified``.

    ``entries``: of a table, with sizes that were checked for that many threads; it is noted in that
    of ``key`` too. Where an operation is another way to the bits of one that it is ``like``, it has
    to add as that one does.
    """
    entry, case = entries[key], operation.case()
    usable = _usable(entry, threads)
    said = "not certified: "
    if case is None or not usable or not entry.chosen:
        said += "no sum that can be tested" if case is None else "no size was checked"
    else:
        larger = max(size for size in usable if size <= max(AT_MOST, min(usable)))
        calls = [(operation, size) for size in sorted({min(usable), larger})]
        sizes = " and ".join(str(size) for _, size in calls)
        like = getattr(operation, "like", None)
        if like is not None and (theirs := _usable(entries.get(like.key), threads)):
            calls.append((like, min(theirs)))
            sizes += f", and of size {min(theirs)} of the usual way,"
        # TensorFlow's threads are those that it was started with
        where = library if library == "tensorflow" else f"{library},threads={threads}"
        found: list[Orders] = []
        try:
            with _Here(Target.parse(where)) as session:
                for one, size in calls:
                    session.call(one)
                    at = case.with_(batch=size)
                    if size * at.filters > OUTPUTS:
                        raise ProbeError(f"a call of {size} has too many outputs to test")
                    known = found[0].summations if found else ()
                    found.append(reveal(session, at, known, budget=budget))
            said = _agreed(found, [size for _, size in calls]).replace(SIZES, f"sizes {sizes}")
        except ProbeError as error:
            said += str(error)
    entry.certified[str(threads)] = said
    return said


def _usable(entry: Entry | None, threads: int) -> list[int]:
    marks = {} if entry is None else entry.marks.get(threads, {})
    return [size for size, mark in marks.items() if entry and mark == entry.chosen]


def _agreed(found: list[Orders], sizes: list[int]) -> str:
    """Whether every output is certified, and adds as that of the first sample of the first call."""
    for orders, size in zip(found, sizes, strict=True):
        if not orders.sure.all():
            return f"not certified: at size {size}: {orders.doubts or orders.evidence}"
    first = found[0]
    each = len(first.index) // sizes[0]
    wanted = [
        [first.summations[number] if number >= 0 else None for number in row]
        for row in first.index[:each]
    ]
    for orders in found:
        for place, row in enumerate(orders.index):
            mine = [orders.summations[number] if number >= 0 else None for number in row]
            if mine != wanted[place % each]:
                return f"not certified: at {SIZES} some outputs are added in a different order"
    return f"certified: all outputs of {SIZES} were tested for every addition and fusion"
