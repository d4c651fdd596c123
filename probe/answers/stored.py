"""Summarises the stores of one or several machines, by machine and target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.text import Text

from probe.errors import InputError
from probe.printing import counted, table
from probe.store import parquet
from probe.store.results import Results
from probe.store.sql import answered

BY = ["machine", "target", "library_version", "vary"]
_SHOWN_APART = ("runs", "cases", "comparisons", "differences", "failures", "causes")

_TARGETS = """
    SELECT c.machine, c.target, r.library_version, c.vary, count(DISTINCT case_id) AS cases,
        count(*) AS comparisons, sum(compared) AS compared, sum(differing) AS differing,
        CASE WHEN max(differing) > 0 THEN max(max_ulp) FILTER (differing > 0) ELSE 0 END AS max_ulp,
        count(*) FILTER (differing > 0) AS unstable,
        count(*) FILTER (control = 'differs') AS nondeterministic
    FROM comparisons c LEFT JOIN runs r USING (machine, run_id) GROUP BY ALL
"""
"""``unstable``: comparisons with a difference."""
_CAUSES = """
    SELECT machine, target, vary, cause, sum(outputs) AS n FROM causes GROUP BY ALL ORDER BY cause
"""
_FAILURES = "SELECT machine, target, count(*) AS n FROM failures GROUP BY ALL"
_RUNS = """
    SELECT machine, count(*) AS n, min(started) AS first, max(started) AS last
    FROM runs GROUP BY ALL
"""


def stored(found: Results) -> dict[str, Any]:
    """Summarises stores as ``probe results --json`` prints them.

    Totals, and one entry of ``targets`` for each machine and target.
    """
    return parquet.steady(lambda: _stored(found), found.folders[0])


def _stored(found: Results) -> dict[str, Any]:
    asked = answered(found, _TARGETS, _CAUSES, _FAILURES, _RUNS)
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
        ),
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
        "missing": [why for one in found.machines if (why := parquet.unlisted(found.stored(one)))],
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


def shown(found: Mapping[str, Any]) -> RenderableType:
    """Returns a table for every machine, a row a target. ``found``: what ``stored`` gives."""
    machines = found["machines"]
    parts: list[RenderableType] = []
    for machine in machines:
        rows = [row for row in found["targets"] if row["machine"] == machine]
        parts += [Text.assemble((_plain(machine), "bold"), _started(found["when"][machine]))]
        parts += [_machine(rows) if rows else Text("no comparisons", "dim"), ""]
    more = {name: n for name, n in found["tables"].items() if name not in _SHOWN_APART}
    if more:
        parts += [Text("also: " + ", ".join(f"{n:,} {name}" for name, n in more.items())), ""]
    total = f"{found['differing']:,} of {found['compared']:,} outputs differ"
    places = counted(found["cases"], "case"), counted(len(machines), "machine")
    return Group(*parts, Text(f"{places[0]}, {places[1]}: {total}"))


def _machine(rows: list[dict[str, Any]]) -> RenderableType:
    """Returns a table of the rows, without columns that are empty in all."""
    cells = [_cells(row) for row in rows]
    versions = len({row["target"] for row in rows}) < len(rows)
    left_out = {name for name in ("failures", "causes") if not any(row[name] for row in rows)}
    left_out |= set() if versions else {"version"}
    left_out |= set() if any(row["unstable"] for row in rows) else {"share"}
    names = [name for name in cells[0] if name not in left_out] if cells else []
    shown = table(*names, right=[name for name in names if name not in _TEXTS])
    for row in cells:
        shown.add_row(*(row[name] for name in names))
    return shown


def _started(when: Mapping[str, Any]) -> str:
    """Returns when the runs of a machine were started, by day."""
    if not when["runs"]:
        return ""
    first, last = when["first"][:10], when["last"][:10]
    return f"  {counted(when['runs'], 'run')}, {first if first == last else f'{first} to {last}'}"


_TEXTS = ("target", "version", "causes", "share")
_WIDTH = 8


def _bar(part: int, whole: int) -> str:
    """Returns a bar of eighths and the percentage; what differs at all is not drawn as nothing."""
    if not part:
        return ""
    eighths = max(1, round(8 * _WIDTH * part / whole))
    full = "\u2588" * (eighths // 8) + "\u2800\u258f\u258e\u258d\u258c\u258b\u258a\u2589"[
        eighths % 8
    ].strip("\u2800")
    percent = 100 * part / whole
    return f"{full:<{_WIDTH}} {'<1' if percent < 1 else math.floor(percent)} %"


def _plain(text: str) -> str:
    """Returns a text of a stranger's store without what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cells(row: Mapping[str, Any]) -> dict[str, RenderableType]:
    """Returns one row by column: comparisons made, those with a difference, and so on."""
    vary = "" if row["vary"] in (None, "length") else f" (by {row['vary']})"
    style = "red" if row["differing"] else "green" if row["comparisons"] else "yellow"
    return {
        "target": Text(_plain(f"{row['target']}{vary}"), style),
        "version": _plain(row["library_version"] or ""),
        "compared": f"{row['comparisons']:,}",
        "unstable": f"{row['unstable']:,}",
        "share": _bar(row["unstable"], row["comparisons"]),
        "outputs": f"{row['differing']:,}",
        "max ulp": "not a number" if row["max_ulp"] is None else f"{row['max_ulp']:,}",
        "failures": f"{row['failures']:,}",
        "causes": "\n".join(f"{_plain(cause)} {count:,}" for cause, count in row["causes"].items()),
    }


MOST_SHOWN = 1000
"""Rows of a query that are printed as a table; --json has all."""


def asked(rows: pa.Table) -> dict[str, Any]:
    """Returns the result of a query as ``probe results --sql ... --json`` prints it.

    Times are text, and so are NaN and infinities, which JSON hasn't. Errors: InputError where two
    columns have one name.
    """
    names = rows.column_names
    if twice := {name for name in names if names.count(name) > 1}:
        why = "two columns of the result have this name"
        raise InputError("column", min(twice), why, "rename one of them, for example AS other")
    lists = [[_json(value) for value in column.to_pylist()] for column in rows.columns]
    found = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    return {"columns": names, "rows": found}


def answer(found: Mapping[str, Any]) -> RenderableType:
    """Returns the table of a query's result. ``found``: what :func:`asked` gives."""
    rows = found["rows"]
    numbers = [
        name for name in found["columns"] if all(_number(row[name]) for row in rows[:MOST_SHOWN])
    ]
    shown = table(*map(_plain, found["columns"]), right=[_plain(name) for name in numbers])
    for row in rows[:MOST_SHOWN]:
        shown.add_row(*(_cell(value) for value in row.values()))
    left = len(rows) - MOST_SHOWN
    said = f"; {left:,} more: --json has all, LIMIT fewer" if left > 0 else ""
    return Group(shown, Text(f"{counted(len(rows), 'row')}{said}"))


def _number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _cell(value: object) -> str:
    return "" if value is None else _plain(str(value))


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
