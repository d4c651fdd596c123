"""Summarises the stores of one or several machines, by machine and target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.text import Text

from probe.errors import InputError
from probe.printing import counted, table
from probe.store import parquet
from probe.store.results import Results

BY = ["machine", "target", "library_version", "vary"]
_CASE = ["target", "run_id", "vary", "case_id"]
_READ = [*_CASE, "compared", "differing", "max_ulp", "control"]
_SHOWN_APART = ("runs", "cases", "comparisons", "differences", "failures", "causes")


def stored(found: Results) -> dict[str, Any]:
    """Summarises stores as ``probe results --json`` prints them.

    Totals, and one entry of ``targets`` for each machine and target. Comparisons are summed up as
    they are read, so that memory grows with cases and targets and not with comparisons.
    """
    return parquet.steady(lambda: _stored(found), found.folders[0])


def _stored(found: Results) -> dict[str, Any]:
    targets: list[dict[str, Any]] = []
    failures: dict[tuple[str, str], int] = {}
    when: dict[str, Any] = {}
    for machine in found.machines:
        runs = pa.concat_tables(found.stream("runs", machine)) if _any(found, machine) else None
        versions = _versions(runs)
        targets += [{"machine": machine} | one for one in _by_target(found, machine, versions)]
        failures |= {(machine, name): n for name, n in _failures(found, machine).items()}
        when[machine] = _when(runs)
    causes = _causes(found)
    for entry in targets:
        place = (entry["machine"], entry["target"])
        entry["failures"] = failures.pop(place, 0)
        entry["causes"] = causes.get((*place, entry["vary"]), {})
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


def _any(found: Results, machine: str) -> bool:
    return bool(found.stored(machine).files("runs"))


def _versions(runs: pa.Table | None) -> dict[str, str | None]:
    """Returns the version of each run's library."""
    if runs is None:
        return {}
    columns = (runs.column(name).to_pylist() for name in ("run_id", "library_version"))
    return dict(zip(*columns, strict=True))


def _when(runs: pa.Table | None) -> dict[str, Any]:
    """Returns how many runs, and when the first and the last of them were started."""
    if runs is None or not len(runs):
        return {"runs": 0, "first": None, "last": None}
    ends = pc.min_max(runs.column("started")).as_py()
    return {"runs": len(runs), "first": ends["min"].isoformat(), "last": ends["max"].isoformat()}


def _by_target(
    found: Results, machine: str, versions: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """Counts of a machine's comparisons. ``unstable``: comparisons with a difference."""
    pieces = [_sums(rows, _CASE) for rows in found.stream("comparisons", machine, _READ)]
    if not pieces:
        return []
    rows = pa.concat_tables(pieces)
    version = pa.array(
        [versions.get(run) for run in rows.column("run_id").to_pylist()], pa.string()
    )
    rows = rows.append_column("library_version", version)
    by = BY[1:]
    sums = rows.group_by(by).aggregate([*_ADDED, ("max_ulp", "max"), ("case_id", "count_distinct")])
    entries = [
        {name: row[name] for name in by}
        | {"cases": row["case_id_count_distinct"]}
        | {name: row[f"{name}_sum"] for name, _ in _ADDED}
        | {"max_ulp": row["max_ulp_max"] if row["unstable_sum"] else 0}
        for row in sums.to_pylist()
    ]
    return sorted(entries, key=lambda row: [(row[name] is None, row[name] or "") for name in by])


_ADDED = [
    (name, "sum")
    for name in ("comparisons", "compared", "differing", "unstable", "nondeterministic")
]


def _sums(rows: pa.Table, by: list[str]) -> pa.Table:
    """Sums of some comparisons by case; the largest distance of those that differ."""
    differs = pc.greater(rows.column("differing"), 0)
    ulps = pc.if_else(differs, rows.column("max_ulp"), pa.scalar(None, pa.int64()))
    strange = pc.fill_null(pc.equal(rows.column("control"), "differs"), False)
    flags = {"unstable": differs, "nondeterministic": strange}
    rows = rows.set_column(rows.column_names.index("max_ulp"), "max_ulp", ulps)
    for name, values in flags.items():
        rows = rows.append_column(name, values.cast(pa.int64()))
    rows = rows.append_column("comparisons", pa.repeat(pa.scalar(1, pa.int64()), len(rows)))
    sums = rows.group_by(by).aggregate([*_ADDED, ("max_ulp", "max")])
    return sums.rename_columns(
        [name.removesuffix("_sum").removesuffix("_max") for name in sums.column_names]
    )


def _failures(found: Results, machine: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rows in found.stream("failures", machine, ["target"]):
        for one in pc.value_counts(rows.column("target")).to_pylist():
            counts[one["values"]] = counts.get(one["values"], 0) + one["counts"]
    return counts


def _causes(found: Results) -> dict[tuple[str, ...], dict[str, int]]:
    """Explained outputs by cause, for each machine, target and axis."""
    sums: dict[tuple[str, ...], dict[str, int]] = {}
    by = ["target", "vary", "cause"]
    for machine in found.machines:
        for rows in found.stream("causes", machine, [*by, "outputs"]):
            for row in rows.group_by(by).aggregate([("outputs", "sum")]).to_pylist():
                place = sums.setdefault((machine, row["target"], row["vary"]), {})
                place[row["cause"]] = place.get(row["cause"], 0) + row["outputs_sum"]
    return {place: dict(sorted(counts.items())) for place, counts in sums.items()}


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
