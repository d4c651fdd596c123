"""What the bits of a program rest on that is run whole, and what that does not show.

A run at the largest size in use is compared, operation by operation, with runs at the smaller ones
(``probe.padding.search``): sums by the order in which each of their outputs is added, which no luck
of the data hides. Content of the smallest size is put at each place of the largest run: so all
places are alike. What is not a sum, nor exact, is compared by bits or place by place, and then
nothing is certified.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from probe import floats
from probe.errors import ProbeError, line_of
from probe.invariant.report import NotInvariant, Report
from probe.invariant.table import Table
from probe.recording.contract import Recorder
from probe.summation import certificate

TESTED = (
    "each sample held at every place of each size, beside other samples: not refuted, which is no "
    "proof for other samples; certify() tests the operations"
)
BLIND = "no number of its answers changes where all inputs change in their last place"

SECONDS = 240.0
"""After which no further place is asked about."""

UNWATCHED = (
    "operations of a compiled program, a session or a net can't be asked one by one; where there "
    "is a model file, give that"
)

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
        found = {}
        for (key, threads), operation in list(self.operations.items()):
            found[key] = certified_program(operation, self.sizes[key, threads])
            self.table.entries[key].certified[str(threads)] = found[key]
        return found

    def to_json(self) -> dict[str, Any]:
        told = super().to_json() | {"how": TESTED}
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
        return "\n".join(
            [f"{first}, like={self.table.like}", f"{TESTED}{shown}", f"limits: {limits}"]
        )


def certified_program(operation: Any, sizes: Sequence[int], seconds: float = SECONDS) -> str:
    """What asking came to, in words that begin with ``certified`` or with ``not certified``.

    ``operation``: a ``whole.WholeProgram``; ``sizes``: those in use.
    """
    if operation.program.watched is None:
        return f"not certified: {UNWATCHED}"
    largest = sizes[-1]
    if operation.program.fixed is not None or largest == 1:
        return f"not certified: places of one size are not asked ({largest} samples a call)"
    try:
        return _asked_sizes(operation, list(sizes), seconds)
    except ProbeError as error:
        return f"not certified: {error}"
    except Exception as error:  # a library raises what it likes
        return f"not certified: {line_of(error, 160)}"


def _asked_sizes(operation: Any, sizes: list[int], seconds: float) -> str:
    begun = time.monotonic()
    known: dict[Any, Any] = {}
    largest, least = sizes[-1], sizes[0]
    if len(sizes) == 1:
        return f"not certified: {largest} is the only size in use, so nothing is compared with it"
    questions = [(size, 0) for size in sizes[:-1]]
    # moved by one place, each sample of the smallest size is held against its neighbour
    blocks = {1, *range(least, largest - least + 1, least), largest - least}
    questions += [(least, place) for place in sorted(blocks)]
    for number, (size, place) in enumerate(questions):
        if time.monotonic() - begun > seconds:
            done = f"{number} of {len(questions)} questions about sizes and places"
            return f"not certified: {seconds:.0f} seconds were over after {done}"
        graph = _padded_program(operation, largest, place)
        graph.known = known  # sums that were revealed for one question serve the next
        told = graph.serves(size, size)
        where = f"size {size} against place {place} of size {largest}"
        if told.by_order == "differs":
            return f"not certified: {where}: {told.name}: {told.why}"
        if not told.certified:
            why = ": ".join(filter(None, (told.name, told.why))) or "some sums were not asked whole"
            return f"not certified: {where}: {why}"
    said = ", ".join(map(str, sizes))
    return f"certified: all outputs of sizes {said} were tested for every addition at every place"


def _padded_program(operation: Any, largest: int, place: int) -> Any:
    """Returns the program padded along its batch, with content from a place on."""
    from probe.padding.search import PaddedModel
    from probe.recording.walk import CHANGED, watched

    class Moved(PaddedModel):
        """Content of the full run begins at ``place``."""

        def inputs(self, content: int, size: int, seed: int = 0) -> dict[str, np.ndarray]:
            found = super().inputs(content, size, seed)
            if size == self.fixed and place:
                for name, axis in self.along.items():
                    found[name] = np.ascontiguousarray(np.roll(found[name], place, axis))
            return found

    arrays, along = {}, {}
    rows = iter(operation.pool)
    for number, leaf in enumerate(operation.leaves):
        if leaf.axis is not None:
            pool = next(rows)
            order = np.arange(largest) % len(pool)
            name = leaf.name or f"input {number}"
            arrays[name], along[name] = np.moveaxis(pool[order], 0, leaf.axis), leaf.axis

    def recorder(given: Mapping[str, np.ndarray]) -> Recorder:
        """Watches the program with these samples, beside the inputs that carry none."""
        values = [
            leaf.value if leaf.axis is None else given[leaf.name or f"input {number}"]
            for number, leaf in enumerate(operation.leaves)
        ]
        found: Recorder = operation.program.watched(values, operation.rebuild)
        return found

    graph = Moved(SimpleNamespace(inputs=(), recorder=recorder), arrays, along, largest)
    graph.near = largest
    if not place:
        _, notes = watched(graph.opened.recorder(graph.inputs(largest, largest)), "the program")
        graph.doubt = next((one for one in notes if CHANGED in one), "")
    return graph
