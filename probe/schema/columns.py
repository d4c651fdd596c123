"""One column of a table, and those that several tables have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

NULL_INT = -(2**63)
"""The int64 that stands for null in arrays: no distance in ulps is as small."""

TYPES = {
    "text": "string",
    "json": "string",
    "int": "int64",
    "bits": "uint64",
    "float": "float64",
    "flag": "bool",
    "time": "timestamp[us, UTC]",
    "ranges": "list<int64>",
    "indices": "list<int64>",
}
"""Our type names and the Arrow type of each. ``json`` is text with sorted keys."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    ``null`` says what a null means; None: the column is never null. Columns with ``key`` identify
    a row: of two rows with the same keys the later one counts. ``foreign`` text was written by
    something else (a library's messages): host, user and paths are taken out when it is stored.
    In NumPy arrays NaN and :data:`NULL_INT` stand for null.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    null: str | None = None
    key: bool = False
    since: int = 1
    foreign: bool = False

    def arrow(self) -> pyarrow.DataType:
        """Arrow type of the column."""
        import pyarrow as pa

        types = {
            "string": pa.string(),
            "int64": pa.int64(),
            "uint64": pa.uint64(),
            "float64": pa.float64(),
            "bool": pa.bool_(),
            "timestamp[us, UTC]": pa.timestamp("us", tz="UTC"),
            "list<int64>": pa.list_(pa.int64()),
        }
        return types[TYPES[self.type]]


def key(
    name: str, type: str, meaning: str, unit: str = "", null: str | None = None, since: int = 1
) -> Column:
    """A column that identifies a row."""
    return Column(name, type, meaning, unit, null, key=True, since=since)


def second(*columns: Column) -> tuple[Column, ...]:
    """Columns of a table that the second version of the format brought."""
    return tuple(replace(column, since=2) for column in columns)


RUN = key("run_id", "text", "the run that measured it: `runs.run_id`")
CASE = key("case_id", "text", "what was computed: `cases.case_id`")
TARGET = key("target", "text", "where it was computed: canonical target text")
VARY = key("vary", "text", "the axis that was changed: `length`, `batch`, `filters`, `channels`")
AT = key("at", "int", "the axis' value on the left side", "elements of `vary`")
AGAINST = key("against", "int", "the axis' value on the right side", "elements of `vary`")
PAIR = (RUN, CASE, TARGET, VARY, AT, AGAINST)
PLACE = (RUN, CASE, TARGET, VARY, AT)
FLAT = "flat index into the left output, shape (batch, *spatial, filters), row-major"
RANGES = "which outputs: start, stop, start, stop, ...; " + FLAT
