"""The columns of every stored table: name, type, unit, meaning, meaning of null, version.

The store, ``results/README.md`` and the notebooks are derived from or checked against this room.
``tables`` says what a column is and lists the columns of each table; here all tables have one
format with a version, and what a file and a page say of them. pyarrow is imported only where it is
used, so that importing costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from probe.case.schema.tables import ABOUT, NULL_INT, TABLES, TYPES, Column

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ABOUT", "HISTORY", "NULL_INT", "RUN_IDENTITY", "TABLES", "TYPES", "VERSION", "Column"]
__all__ += ["arrow_schema", "column_names", "described_schema", "key_columns", "readme", "run_id"]

# Version of the format that is written. All older ones can be read: see :data:`HISTORY`.
VERSION = 10

# What each version added. A column that is newer than a file reads as null.
HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not listed below.",
    2: "`networks`. Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
    3: "`trials`; `comparisons.signed_zero`, `reveals.certified`; layouts as an axis.",
    4: "Models of any shape: `walks`, `sources`.",
    5: "The invariant mode: `invariances`.",
    6: "Answers held against the truth: `planted` causes of functions, `promises` of thresholds.",
    7: "Bugs told from rounding: `verdicts`.",
    8: "Whether rounding can be why: in columns of `trials`, `walks`, `sources`; `causes.beyond`.",
    9: "`reveals.sets`, `promises.sets`; `certified` is no longer written.",
    10: "Models in pieces: `schedules`.",
}

RUN_IDENTITY = (
    *("experiment", "target", "library_version", "python_version", "numpy_version", "device"),
    *("machine", "cpu_family", "cpu_model_number", "cpu_isa", "cores", "os", "emulated"),
    *("switches", "environment"),
)


def run_id(row: Mapping[str, Any]) -> str:
    """Returns 16 hex digits, a hash of everything in :data:`RUN_IDENTITY` that may decide bits.

    Time, git state and probe's version are not part of it, so the same command on the same
    software resumes its run, and an upgraded library starts a new one.
    """
    facts = {name: row.get(name) for name in RUN_IDENTITY}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def column_names(table: str) -> list[str]:
    """Returns the column names of a table, in order."""
    return [column.name for column in TABLES[table]]


def key_columns(table: str) -> list[str]:
    """Returns the names of the columns that identify a row of a table."""
    return [column.name for column in TABLES[table] if column.key]


@cache
def arrow_schema(table: str) -> pyarrow.Schema:
    """Returns the Arrow schema of a table, whose metadata has its name and the format's version."""
    import pyarrow as pa

    fields = [pa.field(column.name, column.arrow()) for column in TABLES[table]]
    return pa.schema(fields, {"probe.table": table, "probe.schema_version": str(VERSION)})


def described_schema(table: str) -> pyarrow.Schema:
    """Returns the schema of files: ``arrow_schema`` with ``description``, ``unit`` and ``null``.

    ``null`` is what a null means; it is absent if the column is never null. ``unit`` is absent if
    there is none. The description of the table itself is ``probe.about``.
    """
    plain, about = arrow_schema(table), {b"probe.about": ABOUT[table].encode()}
    for place, column in enumerate(TABLES[table]):
        facts = {"description": column.meaning, "unit": column.unit, "null": column.null or ""}
        field = plain.field(place).with_metadata({k: v for k, v in facts.items() if v})
        plain = plain.set(place, field)
    return plain.with_metadata({**plain.metadata, **about})


def readme() -> str:
    """Returns the text of ``results/README.md``; a test checks that the file has exactly this."""
    parts = [_INTRODUCTION.format(version=VERSION)]
    for table, columns in TABLES.items():
        parts.append(f"## {table}\n\n{ABOUT[table]}\n\n{_HEADER}")
        for column in columns:
            name = f"**{column.name}**" if column.key else column.name
            null = "never null" if column.null is None else column.null
            kind = f"json in {TYPES['json']}" if column.type == "json" else TYPES[column.type]
            cells = (name, kind, column.unit, column.meaning, null, str(column.since))
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    parts.append("## Versions\n")
    parts.extend(f"- {version}: {change}" for version, change in HISTORY.items())
    return "\n".join(parts) + "\n"


_HEADER = (
    "| column | type | unit | meaning | null means | since |\n| --- | --- | --- | --- | --- | --- |"
)
_INTRODUCTION = """\
# Results

Each experiment has a folder, in it each machine has a folder, and in it each table is a Parquet
file, so that results of several machines merge by copying folders. `probe.load("results/NAME")`
reads them as pandas frames; polars and DuckDB read the same files. Columns in **bold** identify a
row. An ulp (unit in the last place) is the distance from a floating-point number to the next one,
and eps is the distance from 1 to the next larger number of the data type.

Generated by `probe.case.schema.readme()`, format version {version}. Do not edit.
"""
