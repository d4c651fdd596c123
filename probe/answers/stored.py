"""Summarises the stores of one or several machines, by machine and target."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from probe.errors import InputError
from probe.store import parquet
from probe.store.results import Results

BY = ["machine", "target", "library_version", "vary"]

# ``unstable``: comparisons with a difference.
_TARGETS = """
    SELECT c.machine, c.target, r.library_version, c.vary, count(DISTINCT case_id) AS cases,
        count(*) AS comparisons, sum(compared) AS compared, sum(differing) AS differing,
        CASE WHEN max(differing) > 0 THEN max(max_ulp) FILTER (differing > 0) ELSE 0 END AS max_ulp,
        count(*) FILTER (differing > 0) AS unstable,
        count(*) FILTER (control = 'differs') AS nondeterministic
    FROM comparisons c LEFT JOIN runs r USING (machine, run_id) GROUP BY ALL
"""
_CAUSES = """
    SELECT machine, target, vary, cause, sum(outputs) AS n FROM causes GROUP BY ALL ORDER BY cause
"""
_FAILURES = "SELECT machine, target, count(*) AS n FROM failures GROUP BY ALL"
_RUNS = """
    SELECT machine, count(*) AS n, min(started) AS first, max(started) AS last
    FROM runs GROUP BY ALL
"""


def summary_of_stores(found: Results) -> dict[str, Any]:
    """Summarises stores as ``probe results --json`` prints them.

    Totals, and one entry of ``targets`` for each machine and target.
    """
    return parquet.steady(lambda: _summary_once(found), found.folders[0])


def _summary_once(found: Results) -> dict[str, Any]:
    asked = found.answered(_TARGETS, _CAUSES, _FAILURES, _RUNS)
    targets, explained, failed, runs = (rows.to_pylist() for rows in asked)
    causes: dict[tuple[str, ...], dict[str, int]] = {}
    for row in explained:
        place = row["machine"], row["target"], row["vary"]
        causes.setdefault(place, {})[row["cause"]] = row["n"]
    failures = {(row["machine"], row["target"]): row["n"] for row in failed}
    when = {name: {"runs": 0, "first": None, "last": None} for name in found.machines}
    for row in runs:
        ends = {name: row[name].isoformat() for name in ("first", "last")}
        when[row["machine"]] = {"runs": row["n"], **ends}
    order = {name: place for place, name in enumerate(found.machines)}
    targets.sort(
        key=lambda row: (
            [order[row["machine"]]] + [(row[name] is None, row[name] or "") for name in BY[1:]]
        )
    )
    for entry in targets:
        where = entry["machine"], entry["target"]
        entry["failures"] = failures.pop(where, 0)
        entry["causes"] = causes.get((*where, entry["vary"]), {})
    targets += [
        dict.fromkeys([*BY, *_NOTHING])
        | _NOTHING
        | {"machine": place[0], "target": place[1]}
        | {"failures": count, "causes": {}}
        for place, count in sorted(failures.items())
    ]
    totals = {name: sum(one[name] for one in targets) for name in ("compared", "differing")}
    return {
        "machines": found.machines,
        "cases": found.count("cases"),
        **totals,
        "targets": targets,
        "when": when,
        "tables": {name: n for name in found.tables if (n := found.count(name))},
        "left_out": list(found.left_out.values()),
        "missing": [why for one in found.machines if (why := found.stored(one).unlisted())],
    }


_NOTHING: dict[str, Any] = {
    "cases": 0,
    "comparisons": 0,
    "compared": 0,
    "differing": 0,
    "max_ulp": 0,
    "unstable": 0,
    "nondeterministic": 0,
}


def query_json(rows: pa.Table) -> dict[str, Any]:
    """Returns the result of a query as ``probe results --sql ... --json`` prints it.

    Times are text, and so are NaN and infinities, which JSON hasn't. Errors: InputError where two
    columns have one name.
    """
    names = rows.column_names
    if twice := {name for name in names if names.count(name) > 1}:
        why = "two columns of the result have this name"
        raise InputError("column", min(twice), why, "rename one of them, for example AS other")
    lists = [[_json_value(value) for value in column.to_pylist()] for column in rows.columns]
    found = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    return {"columns": names, "rows": found}


def _json_value(value: Any) -> Any:
    # json would write NaN and Infinity, which are no JSON
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _json_value(one) for name, one in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    # DuckDB sums BIGINT as HUGEINT, which Arrow hands over as a decimal
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
