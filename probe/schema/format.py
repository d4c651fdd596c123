"""All tables in one format with a version, and what a file and a page say of them.

pyarrow is imported only where it is used, so that importing this module costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from probe.schema import case_tables
from probe.schema.case_tables import TYPES, Column
from probe.schema.model_tables import (
    ACCURACIES,
    ACTIVATIONS,
    DECISIONS,
    FINDINGS,
    INVARIANCES,
    NETWORKS,
    PADDED_LENGTHS,
    PLANTED,
    PROGRAMS,
    PROMISES,
    REMEDIES,
    REPORTS,
    REPRODUCTIONS,
    SOURCES,
    TRIALS,
    VERDICTS,
    WALKS,
)

if TYPE_CHECKING:
    import pyarrow

# Version of the format that is written. All older ones can be read: see :data:`HISTORY`.
VERSION = 8

# What each version added. A column that is newer than a file reads as null.
HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not listed below.",
    2: "Whole networks: `networks`, `activations`, `padded_lengths`, `programs`, `decisions`. "
    "Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
    3: "`trials`; `comparisons.signed_zero`, `reveals.certified`; layouts as an axis.",
    4: "Models of any shape: `walks`, `sources`.",
    5: "The invariant mode: `invariances`.",
    6: "Answers held against the truth: `planted` causes of functions, `promises` of thresholds.",
    7: "Bugs told from rounding: `verdicts`.",
    8: "How accurate each side is: `accuracies`. Whether rounding can be why, in columns of "
    "`trials`, `walks` and `sources`; `causes.beyond`.",
}

# Every table with its columns, in the order in which files have them.
TABLES: dict[str, tuple[Column, ...]] = case_tables.TABLES | {
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
    "planted": PLANTED,
    "promises": PROMISES,
    "walks": WALKS,
    "sources": SOURCES,
    "invariances": INVARIANCES,
    "verdicts": VERDICTS,
    "accuracies": ACCURACIES,
}

# What a row of each table is.
ABOUT: dict[str, str] = case_tables.ABOUT | {
    "networks": "One row per network. If `part` is given, the other tables describe that part "
    "alone.",
    "activations": "One row per layer of a network, run at a padded length and compared with the "
    "full length.",
    "padded_lengths": "One row per valid length: how far it must be padded.",
    "programs": "One row per valid length and kind of padding: the network run end to end.",
    "decisions": "One row per decision made from a network's outputs, with the outputs' error.",
    "reports": "One row per public report of runs that were expected to agree and do not.",
    "findings": "One row per question of a public report and target: what happens today.",
    "remedies": "One row per remedy of a case or network on a target. The exact sums are those of "
    "float64; the scale is sum|x*w|, for a network the largest |output|.",
    "reproductions": "One row per finding that was drawn, reduced, and reproduced by its script.",
    "trials": "One row per random pair of runs: what probe finds, and what direct calls of the "
    "libraries give.",
    "planted": "One row per pair of functions whose difference is known, as it was planted: what "
    "probe answers.",
    "promises": "One row per random case: at which sizes `probe thresholds` says that all rows add "
    "alike, and what direct calls of the library say at each of them.",
    "walks": "One row per pair of runs of a model, compared operation by operation.",
    "sources": "One row per operation that differs although its inputs agree, or were made to.",
    "invariances": "One row per layer or model and varied axis: how many numbers change in the "
    "unchanged library and in the invariant mode.",
    "verdicts": "One row per planted mistake, library, model or pair of conditions: which of the "
    "differing outputs rounding can explain.",
    "accuracies": "One row per differing output that was explained, of many evenly taken ones: how "
    "far each side is from the exact result, and what rounding can do at the most.",
}

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
        told = {"description": column.meaning, "unit": column.unit, "null": column.null or ""}
        field = plain.field(place).with_metadata({k: v for k, v in told.items() if v})
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

Generated by `probe.schema.readme()`, format version {version}. Do not edit.
"""
