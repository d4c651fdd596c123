"""Asks matrix products and convolutions for their order: that a class adds alike is then proved.

Marks rest on telling operands, which show nearly every other order; a certificate asks every output
of a call about every addition and every fusion. It is asked at two sizes of a class, the smallest
and a larger one, and both have to add every output alike.
"""

from __future__ import annotations

from typing import Any

from probe.case import Case
from probe.errors import ProbeError
from probe.invariant.classes import Entry
from probe.launch import InlineSession
from probe.order import certificate
from probe.order.orders import Orders, reveal
from probe.target import Target

AT_MOST = 32  # the size of the larger call
OUTPUTS = 1 << 18  # of one call that is asked


class _Here(InlineSession):
    """A library as it is in this process, with the variables that it was started with."""

    def __init__(self, where: Target) -> None:
        super().__init__(where)
        self.variables = {}


def certify(
    operation: Any,
    entry: Entry,
    threads: int,
    budget: int = certificate.BUDGET,
    library: str = "torch",
) -> str:
    """What asking came to, in words that begin with ``certified`` or with ``not certified``.

    ``entry``: with sizes that were checked for so many threads. It is noted there too.
    """
    usable = [size for size, mark in entry.marks.get(threads, {}).items() if mark == entry.chosen]
    case = operation.case()
    said = "not certified: "
    if case is None or not usable or not entry.chosen:
        said += "no sum that can be tested" if case is None else "no size was checked"
    else:
        sizes = sorted(
            {min(usable), max(size for size in usable if size <= max(AT_MOST, min(usable)))}
        )
        said = _asked(case, sizes, _target(library, threads), budget)
    entry.certified[str(threads)] = said
    return said


def _target(library: str, threads: int) -> Target:
    """TensorFlow's threads are those that it was started with."""
    return Target.parse(library if library == "tensorflow" else f"{library},threads={threads}")


def _asked(case: Case, sizes: list[int], where: Target, budget: int) -> str:
    found: list[Orders] = []
    try:
        with _Here(where) as session:
            for size in sizes:
                at = case.with_(batch=size)
                if size * at.filters * at.summands > OUTPUTS * at.summands:
                    return f"not certified: a call of {size} has too many outputs to test"
                known = found[0].summations if found else ()
                found.append(reveal(session, at, known, budget=budget))
    except ProbeError as error:
        return f"not certified: {error}"
    return _agreed(found, sizes)


def _agreed(found: list[Orders], sizes: list[int]) -> str:
    """Whether every output is certified, and adds as that of the first sample of the first call."""
    said = " and ".join(map(str, sizes))
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
                return f"not certified: at sizes {said} some outputs are added in a different order"
    return f"certified: all outputs of sizes {said} were tested for every addition and fusion"
