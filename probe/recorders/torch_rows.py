"""The table of what ATen's operations compute: a row for each name."""

from __future__ import annotations

from collections.abc import Callable

from probe.recorders.torch_calls import Call
from probe.recording.meaning import Meaning

Row = Callable[[Call], Meaning]
MEANINGS: dict[str, Row] = {}
"""By the name of the operation, without ``_`` behind it."""


def row(*names: str) -> Callable[[Row], Row]:
    """Enters a function that returns what a call means, for operations of these names."""

    def add(one: Row) -> Row:
        for name in names:
            MEANINGS[name] = one
        return one

    return add
