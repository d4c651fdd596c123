"""What the bits of an invariant model rest on, operation by operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.errors import ProbeError
from probe.invariant.table import Table
from probe.order import certificate


class NotInvariant(ProbeError):
    """``strict``: an operation was met that is not known to keep its bits."""

    def __init__(self, operation: str, why: str) -> None:
        self.operation, self.why = operation, why
        todo = "take it out of the model, or drop strict"
        super().__init__(f"operation={operation}: {why}; {todo}")


@dataclass(frozen=True)
class Row:
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
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.operations: dict[tuple[str, int], Any] = {}
        self.left: dict[str, str] = {}
        self.limited: dict[str, str] = {}

    @property
    def rows(self) -> list[Row]:
        """One for each operation and number of threads."""
        return list(self._rows())

    def _rows(self) -> Iterable[Row]:
        for key, entry in self.table.entries.items():
            for threads, marks in entry.marks.items():
                usable = [size for size, mark in marks.items() if mark and mark == entry.chosen]
                told = entry.certified.get(str(threads), "")
                least = min(usable, default=0)
                yield Row(key, threads, len(marks), len(usable), least, told)

    @property
    def complete(self) -> bool:
        """Whether no operation that was met so far is left as it is."""
        return not self.left

    def certify(self, budget: int = certificate.BUDGET) -> dict[str, str]:
        """Asks the sums of each operation that was met so far for their order.

        Takes seconds for small layers and minutes for large ones, in this process: see ``certify``.
        ``budget``: the most questions to a summation. Returns what it came to, by operation: words
        that begin with ``certified`` or ``not certified``; of what is no sum nothing.
        """
        from probe.invariant.certify import certify

        library = self.table.environment["library"]
        return {
            key: certify(operation, self.table.entries[key], threads, budget, library)
            for (key, threads), operation in list(self.operations.items())
            if hasattr(operation, "case") and operation.case() is not None
        }

    def save(self, path: str | Path) -> None:
        """Writes the table of classes, as JSON: see ``table.Table``."""
        self.table.save(Path(path))

    def to_json(self) -> dict[str, Any]:
        """All of it in plain Python."""
        return {
            "complete": self.complete,
            "like": self.table.like,
            "sizes": {name: list(values) for name, values in self.table.sizes.items()},
            "environment": self.table.environment,
            "operations": [row.to_json() for row in self.rows],
            "left": dict(self.left),
            "limited": dict(self.limited),
            "notes": list(self.table.notes),
        }

    def __repr__(self) -> str:
        rows = self.rows
        keys = {row.operation for row in rows}
        checked = sum(row.sizes for row in rows)
        certified = {row.operation for row in rows if row.certified.startswith("certified")}
        first = f"{len(keys)} operations keep their bits, {len(certified)} of them certified; "
        named = ", ".join(self.left) or "none"
        limits = "; ".join(dict.fromkeys(self.limited.values())) or "none"
        return "\n".join(
            [
                f"{first}{checked} sizes checked, like={self.table.like}",
                f"left as they are (bits may depend on batch, length or place): {named}",
                f"limits: {limits}",
            ]
        )
