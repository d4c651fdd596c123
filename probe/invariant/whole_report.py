"""What the bits of a program rest on that is run whole, and what that does not show."""

from __future__ import annotations

from typing import Any

from probe import floats
from probe.invariant.report import NotInvariant, Report
from probe.invariant.table import Table
from probe.order import certificate

HOW = (
    "each sample held at every place of each size, beside other samples: not refuted, which is no "
    "proof for other samples; certify() asks the operations"
)
BLIND = "no number of its answers changes where all inputs change in their last place"

INTEGERS = "its inputs are integers, so how much its answers show is not known"


class WholeReport(Report):
    """As ``Report``, of a program that is run whole.

    ``sizes``: the sizes that it is run at, by key and threads. ``shown``: of the numbers in the
    answers of all samples, how many change where every input changes by one unit in the last place,
    and of how many. Where few do, an operation that adds differently may not be seen either.
    """

    def __init__(self, table: Table, program: Any) -> None:
        super().__init__(table)
        self.program = program
        self.sizes: dict[tuple[str, int], list[int]] = {}
        self.shown: dict[str, tuple[int, int]] = {}
        self.samples: dict[str, int] = {}

    def met(self, operation: Any, buckets: Any, strict: bool) -> None:
        """Notes a program of one shape that was checked. NotInvariant with ``strict``."""
        key, threads = operation.key, buckets.threads
        self.operations[key, threads] = operation
        self.sizes[key, threads] = buckets.used
        self.samples[key] = len(operation.pool[0])
        self.table.notes += [buckets.doubts] if buckets.doubts else []
        self.table.notes += [
            f"{key}: size {size} is not used, the library refuses it: {why}"
            for size, why in operation.refused.items()
        ]
        if not any(one in floats.FORMATS for one in operation.dtypes):
            self.limited[key] = INTEGERS
            return
        changed, each, _ = operation.seen(buckets.used[0])
        self.shown[key] = int(changed.sum()), each * len(changed)
        if not changed.any():
            if strict:
                raise NotInvariant(key, BLIND)
            self.limited[key] = BLIND

    def certify(self, budget: int = certificate.BUDGET) -> dict[str, str]:
        """Asks the operations of each program that was met, at the smallest size and the largest.

        What it came to, by key: words that begin with ``certified`` or ``not certified``. Takes
        seconds to minutes. ``budget``: the most questions to a summation.
        """
        from probe.invariant.whole_certify import certified

        found = {}
        for (key, threads), operation in list(self.operations.items()):
            found[key] = certified(operation, self.sizes[key, threads])
            self.table.entries[key].certified[str(threads)] = found[key]
        return found

    def to_json(self) -> dict[str, Any]:
        """As ``Report.to_json``."""
        told = super().to_json() | {"how": HOW}
        for row in told["operations"]:
            key = row["operation"]
            row["used"] = self.sizes.get((key, row["threads"]), [])
            row["samples"] = self.samples.get(key)
            row["shown"], row["numbers"] = self.shown.get(key, (None, None))
        return told

    def __repr__(self) -> str:
        certified = [one.operation for one in self.rows if one.certified.startswith("certified")]
        told = [
            f"{key}{' (certified)' * (key in certified)}: run at {', '.join(map(str, sizes))} of "
            f"{', '.join(map(str, sorted(self.table.entries[key].marks[threads])))}"
            for (key, threads), sizes in self.sizes.items()
        ]
        changed, total = (sum(one[n] for one in self.shown.values()) for n in (0, 1))
        first = "; ".join(told) or "nothing was called yet"
        shown = f"; {changed:,} of {total:,} numbers show a change of the inputs' last place"
        shown *= bool(total)
        limits = "; ".join(dict.fromkeys((*self.limited.values(), *self.table.notes))) or "none"
        return "\n".join([f"{first}, like={self.table.like}", f"{HOW}{shown}", f"limits: {limits}"])
