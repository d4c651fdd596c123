"""All tables in one format with a version, and what a file and a page say of them.

pyarrow is imported only where it is asked for, so that importing this module costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from probe.schema import measurements
from probe.schema.measurements import TYPES, Column
from probe.schema.tables import (
    ACTIVATIONS,
    DECISIONS,
    FINDINGS,
    INVARIANCES,
    NETWORKS,
    PADDED_LENGTHS,
    PROGRAMS,
    REMEDIES,
    REPORTS,
    REPRODUCTIONS,
    SOURCES,
    TRIALS,
    WALKS,
)

if TYPE_CHECKING:
    import pyarrow

VERSION = 5
"""Version of the format that is written. Every older one is read: see :data:`HISTORY`."""

HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not said to be younger.",
    2: "Whole networks: `networks`, `activations`, `padded_lengths`, `programs`, `decisions`. "
    "Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
    3: "`trials`; `comparisons.signed_zero`, `reveals.certified`; layouts as an axis.",
    4: "Models of any shape: `walks`, `sources`.",
    5: "The invariant mode: `invariances`.",
}
"""What each version changed. A column that is younger than a file reads as null."""

TABLES: dict[str, tuple[Column, ...]] = measurements.TABLES | {
    "networks": NETWORKS,
    "activations": ACTIVATIONS,
    "padded_lengths": PADDED_LENGTHS,
    "programs": PROGRAMS,
    "decisions": DECISIONS,
    "reports": REPORTS,
    "findings": FINDINGS,
    "remedies": REMEDIES,
    "reproductions": REPRODUCTIONS,
    "trials": TRIALS,
    "walks": WALKS,
    "sources": SOURCES,
    "invariances": INVARIANCES,
}
"""Every table with its columns, in the order in which files have them."""

ABOUT: dict[str, str] = measurements.ABOUT | {
    "networks": "One row a network. What other tables say of one with a `part` holds for that part "
    "alone.",
    "activations": "One row a layer of a network, run at a padded length against the fixed one.",
    "padded_lengths": "One row a length of content: how far to pad it.",
    "programs": "One row a length of content and a way to pad it: the network as one program.",
    "decisions": "One row a decision taken of a network's outputs, and their error.",
    "reports": "One row a public report of runs that ought to agree and don't.",
    "findings": "One row a question of a public report on a target: what it gives here today.",
    "remedies": "One row a remedy of a case or network on a target. The exact sums are float64's; "
    "the scale is sum|x*w|, of a network the largest |output|.",
    "reproductions": "One row a finding that was drawn, made small, and run by its script.",
    "trials": "One row a random pair of runs: what probe says of it, and what direct calls of the "
    "libraries say.",
    "walks": "One row a pair of runs of a model, compared operation by operation.",
    "sources": "One row an operation that differs by itself: its inputs agree, or were made to.",
    "invariances": "One row a layer or model whose call was changed along an axis: how many "
    "numbers change, in the library as it is and in the invariant mode.",
}
"""What a row of each table is."""

RUN_IDENTITY = (
    "experiment",
    "target",
    "library_version",
    "python_version",
    "numpy_version",
    "device",
    "machine",
    "cpu_family",
    "cpu_model_number",
    "cpu_isa",
    "cores",
    "os",
    "emulated",
    "switches",
    "environment",
)


def run_id(row: Mapping[str, Any]) -> str:
    """16 hex digits: the experiment and all that may decide bits, by :data:`RUN_IDENTITY`.

    Time, git state and probe's version are not part of it, so the same command on the same
    software continues its run, and an upgraded library starts another one.
    """
    facts = {name: row.get(name) for name in RUN_IDENTITY}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def names(table: str) -> list[str]:
    """Column names of a table, in order."""
    return [column.name for column in TABLES[table]]


def keys(table: str) -> list[str]:
    """Names of the columns that identify a row of a table."""
    return [column.name for column in TABLES[table] if column.key]


@cache
def arrow_schema(table: str) -> pyarrow.Schema:
    """Arrow schema of a table; its metadata has the table's name and the format's version."""
    import pyarrow as pa

    fields = [pa.field(column.name, column.arrow()) for column in TABLES[table]]
    return pa.schema(fields, {"probe.table": table, "probe.schema_version": str(VERSION)})


def described(table: str) -> pyarrow.Schema:
    """``arrow_schema`` as files have it: each field says ``description``, ``unit`` and ``null``.

    ``null`` is what a null means, and absent where the column is never null; ``unit`` is absent
    where there is none. The table's own description is ``probe.about``.
    """
    plain, about = arrow_schema(table), {b"probe.about": ABOUT[table].encode()}
    for place, column in enumerate(TABLES[table]):
        told = {"description": column.meaning, "unit": column.unit, "null": column.null or ""}
        field = plain.field(place).with_metadata({k: v for k, v in told.items() if v})
        plain = plain.set(place, field)
    return plain.with_metadata({**plain.metadata, **about})


def readme() -> str:
    """Text of ``results/README.md``; a test checks that the file says exactly this."""
    parts = [_INTRODUCTION.format(version=VERSION)]
    for table, columns in TABLES.items():
        parts.append(f"## {table}\n\n{ABOUT[table]}\n\n{_HEADER}")
        parts.extend(_line(column) for column in columns)
        parts.append("")
    parts.append("## Versions\n")
    parts.extend(f"- {version}: {change}" for version, change in HISTORY.items())
    return "\n".join(parts) + "\n"


_HEADER = (
    "| column | type | unit | meaning | null means | since |\n| --- | --- | --- | --- | --- | --- |"
)
_INTRODUCTION = """\
# Results

One folder an experiment, in it one folder a machine, in it one parquet file a table: results of
several machines merge by copying folders. `probe.load("results/NAME")` reads them as pandas
frames; polars and DuckDB read the same files. Columns in **bold** identify a row.

Generated by `probe.schema.readme()`, format version {version}. Do not edit.
"""


def _line(column: Column) -> str:
    name = f"**{column.name}**" if column.key else column.name
    null = "never null" if column.null is None else column.null
    kind = f"json in {TYPES['json']}" if column.type == "json" else TYPES[column.type]
    cells = (name, kind, column.unit, column.meaning, null, str(column.since))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
