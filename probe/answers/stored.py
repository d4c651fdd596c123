"""What stores of one or several machines hold: sums by machine and target, and their table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.printing import counted, table
from probe.store.results import Results

if TYPE_CHECKING:
    import pandas

BY = ["machine", "target", "library_version", "vary"]


def stored(found: Results) -> dict[str, Any]:
    """Sums up stores as ``probe results --json`` prints it.

    Totals, and one entry of ``targets`` for each machine and target.
    """
    rows = _comparisons(found)
    targets = [
        dict(zip(BY, key, strict=True)) | _sums(part)
        for key, part in rows.groupby(BY, dropna=False, sort=True)
    ]
    failures, causes = _counts(found.failures, ["machine", "target"]), _causes(found)
    for entry in targets:
        place = (entry["machine"], entry["target"])
        entry["library_version"] = _text(entry["library_version"])
        entry["failures"] = failures.pop(place, 0)
        entry["causes"] = causes.get((*place, entry["vary"]), {})
    targets += [
        dict.fromkeys([*BY, *_NOTHING])
        | _NOTHING
        | {"machine": place[0], "target": place[1]}
        | {"failures": count, "causes": {}}
        for place, count in failures.items()
    ]
    totals = {name: sum(one[name] for one in targets) for name in ("compared", "differing")}
    return {"machines": found.machines, "cases": len(found.cases), **totals, "targets": targets}


_NOTHING: dict[str, Any] = {
    "cases": 0,
    "comparisons": 0,
    "compared": 0,
    "differing": 0,
    "max_ulp": 0,
    "unstable": 0,
    "nondeterministic": 0,
}


def _comparisons(found: Results) -> pandas.DataFrame:
    """Returns the comparisons, with the library's version of their run."""
    rows = found.comparisons.copy()
    runs = found.runs.drop_duplicates(["machine", "run_id"])
    version = runs.set_index(["machine", "run_id"])["library_version"].to_dict()
    keys = zip(rows["machine"], rows["run_id"], strict=True)
    rows["library_version"] = [version.get(key) for key in keys]
    return rows


def _sums(part: pandas.DataFrame) -> dict[str, Any]:
    """Counts of one target's comparisons. ``unstable``: comparisons with a difference."""
    differs = part[part["differing"] > 0]
    ulps = differs["max_ulp"].dropna()
    return {
        "cases": int(part["case_id"].nunique()),
        "comparisons": len(part),
        "compared": int(part["compared"].sum()),
        "differing": int(part["differing"].sum()),
        "max_ulp": int(ulps.max()) if len(ulps) else (None if len(differs) else 0),
        "unstable": len(differs),
        "nondeterministic": int((part["control"] == "differs").sum()),
    }


def _counts(rows: pandas.DataFrame, by: list[str]) -> dict[tuple[str, ...], int]:
    return {tuple(key): len(part) for key, part in rows.groupby(by)}


def _causes(found: Results) -> dict[tuple[str, ...], dict[str, int]]:
    """Explained outputs by cause, for each machine, target and axis."""
    sums: dict[tuple[str, ...], dict[str, int]] = {}
    grouped = found.causes.groupby(["machine", "target", "vary", "cause"])["outputs"].sum()
    for (machine, target, vary, cause), outputs in grouped.items():
        sums.setdefault((machine, target, vary), {})[cause] = int(outputs)
    return sums


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def shown(found: Mapping[str, Any]) -> RenderableType:
    """Returns a table for every machine, a row a target. ``found``: what ``stored`` gives."""
    machines = found["machines"]
    parts: list[RenderableType] = []
    for machine in machines:
        rows = [row for row in found["targets"] if row["machine"] == machine]
        parts += [Text(machine, "bold"), _machine(rows), ""]
    total = f"{found['differing']:,} of {found['compared']:,} outputs differ"
    places = counted(found["cases"], "case"), counted(len(machines), "machine")
    return Group(*parts, Text(f"{places[0]}, {places[1]}: {total}"))


def _machine(rows: list[dict[str, Any]]) -> RenderableType:
    """Returns a table of the rows, without columns that are empty in all."""
    cells = [_cells(row) for row in rows]
    versions = len({row["target"] for row in rows}) < len(rows)
    left_out = {name for name in ("failures", "causes") if not any(row[name] for row in rows)}
    left_out |= set() if versions else {"version"}
    names = [name for name in cells[0] if name not in left_out] if cells else []
    shown = table(*names, right=[name for name in names if name not in _TEXTS])
    for row in cells:
        shown.add_row(*(row[name] for name in names))
    return shown


_TEXTS = ("target", "version", "causes")


def _cells(row: Mapping[str, Any]) -> dict[str, RenderableType]:
    """Returns one row by column: comparisons made, those with a difference, and so on."""
    vary = "" if row["vary"] in (None, "length") else f" (by {row['vary']})"
    style = "red" if row["differing"] else "green" if row["comparisons"] else "yellow"
    return {
        "target": Text(f"{row['target']}{vary}", style),
        "version": row["library_version"] or "",
        "compared": f"{row['comparisons']:,}",
        "unstable": f"{row['unstable']:,}",
        "outputs": f"{row['differing']:,}",
        "max ulp": "not a number" if row["max_ulp"] is None else f"{row['max_ulp']:,}",
        "failures": f"{row['failures']:,}",
        "causes": "\n".join(f"{cause} {count:,}" for cause, count in row["causes"].items()),
    }
