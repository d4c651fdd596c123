"""Unpacks and checks the answers of nodes, and keeps the part that belongs to the question.

Bytes of an answer are data: tables of the schema's columns and types, or the answer is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from probe import schema
from probe.cluster.nodes import changed_fact
from probe.store import Store
from probe.sweeps import Plan

Tables = dict[str, pa.Table]

# What some interpreters say only once the library has started.
LIBRARY = ("library_version", "python_version", "numpy_version")

# Stored before all others: what comparisons say is done has its other rows on the disk already.
ORDER = ("runs", "cases", "differences", "outputs")


def unpack_tables(packed: Mapping[str, bytes]) -> Tables:
    """Returns the tables of an answer. ValueError says what they are not."""
    tables = {}
    for name, data in packed.items():
        if name not in schema.TABLES:
            raise ValueError(f"it sent a table {name!r}, which there isn't")
        try:
            with pa.ipc.open_stream(data) as stream:
                rows = stream.read_all()
            rows.validate(full=True)
        except (pa.ArrowException, OSError, TypeError) as error:
            raise ValueError(f"its {name} can't be read ({type(error).__name__})") from None
        wanted = schema.arrow_schema(name).remove_metadata()
        if not rows.schema.remove_metadata().equals(wanted):
            raise ValueError(f"its {name} have different columns from this probe's")
        tables[name] = rows
    return tables


def judged_run(tables: Tables, target: str, expected: Mapping[str, Any]) -> str:
    """The id of the run that an answer's rows belong to. ValueError where it is not the expected.

    ``expected``: the row of ``runs`` that the node said at first; a library's versions that it
    could not say before the library had started are taken from the answer.
    """
    rows = tables.get("runs", pa.table({})).to_pylist()
    if len(rows) != 1 or rows[0]["target"] != target:
        raise ValueError(f"the question was about {target}, and the answer has different runs")
    (row,) = rows
    texts = ("switches", "environment")
    plain = {name: json.loads(value) if name in texts else value for name, value in row.items()}
    known = [name for name in schema.RUN_IDENTITY if name != "environment"]
    if expected.get("library_version") is None or row["library_version"] is None:
        known = [name for name in known if name not in LIBRARY]
    elif row["run_id"] != expected["run_id"]:
        known.append("environment")
    first = {name: expected.get(name) for name in known}
    if difference := changed_fact(first, {name: plain.get(name) for name in known}):
        raise ValueError(f"{target}: {difference}")
    for name, rows in tables.items():
        if "run_id" in rows.column_names and set(rows["run_id"].unique().to_pylist()) - {
            row["run_id"]
        }:
            raise ValueError(f"its {name} belong to a different run")
    return str(row["run_id"])


def judged_rows(tables: Tables, asked: Mapping[str, Any], case_id: str) -> None:
    """ValueError where comparisons are not of the case, target and values that were asked."""
    rows = tables.get("comparisons")
    if rows is None:
        return
    same = {"case_id": case_id, "target": asked["target"], "vary": asked["vary"]}
    for name, value in {**same, "against": asked["against"]}.items():
        if set(rows[name].to_pylist()) - {value}:
            raise ValueError(f"it answered about a different {name}")
    if set(rows["at"].to_pylist()) - set(asked["values"]):
        raise ValueError(f"it answered about different values of {asked['vary']} than the question")


def judged_counts(tables: Tables, plan: Plan, keep: int | None) -> None:
    """ValueError where a comparison's counts can't be true.

    How many outputs are compared follows from the case; the rows of ``differences``, and digests,
    say whether any differ and how many. ``keep``: the rows kept of each comparison; None: all.
    """
    if "comparisons" not in tables:
        return
    listed = _listed_differences(tables["differences"]) if "differences" in tables else {}
    # bits of NaN may differ where no number does
    numbers = plan.base.kind not in ("infinite", "nan") and plan.base.put is None
    for row in tables["comparisons"].to_pylist():
        at, differing, kept = row["at"], row["differing"], row["kept"]
        outputs, left_out = math.prod(plan.shapes[at]), plan.not_compared[at]
        if (row["compared"], row["not_compared"]) != (outputs - left_out, left_out):
            raise ValueError(f"it compared {row['compared']} of {outputs} outputs at {at}")
        count, first, largest = listed.get(at, (0, None, 0))
        zeros, ulp = row["signed_zero"] or 0, row["max_ulp"]
        same = row["digest_at"] == row["digest_against"]
        if (
            not 0 <= differing + zeros <= row["compared"]
            or min(differing, zeros, kept) < 0
            or kept != count
            or kept > differing
            or (kept < differing and (keep is None or kept < min(keep, differing)))
            or (same and differing + zeros > 0)
            or (numbers and not same and differing + zeros == 0)
            or (differing and keep != 0 and row["first"] != first)
            or (differing and largest is not None and ulp != largest)
        ):
            raise ValueError(
                f"its counts at {at} contradict each other: {differing} differ, {count} are listed"
            )


def _listed_differences(rows: pa.Table) -> dict[int, tuple[int, int, int | None]]:
    """Returns by value of the axis: differences, their first index, the largest ulp (or None)."""
    rows = rows.append_column("size", pc.abs(rows["ulp"]))
    wanted = [("index", "count"), ("index", "min"), ("size", "max"), ("size", "count")]
    found = rows.group_by("at").aggregate(wanted).to_pylist()
    return {
        one["at"]: (
            one["index_count"],
            one["index_min"],
            # distances that are no numbers, or too long for the column, are null
            one["size_max"] if one["size_count"] == one["index_count"] else None,
        )
        for one in found
    }


def rows_of_values(tables: Tables, values: Collection[int]) -> Tables:
    """Returns the rows of these values of the axis alone, and those that are of none."""
    found = {}
    for name, rows in tables.items():
        if "at" in rows.column_names:
            wanted = pc.is_in(rows["at"], value_set=pa.array(list(values), pa.int64()))
            rows = rows.filter(pc.or_(wanted, pc.is_null(rows["at"])))
        found[name] = rows
    return found


def append_tables(store: Store, tables: Tables) -> None:
    """Appends an answer's rows to a store."""
    rest = [name for name in tables if name not in ORDER]
    for name in [*(one for one in ORDER if one in tables), *rest]:
        rows = tables[name]
        if len(rows):
            store.extend(name, {column: rows[column] for column in rows.column_names})
