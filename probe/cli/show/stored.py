"""What stores hold, and what was merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.cli import numbers
from probe.cli.show.facts import table


def results(found: Mapping[str, Any]) -> RenderableType:
    """A table for every machine, a row a target."""
    machines = found["machines"]
    parts: list[RenderableType] = []
    for machine in machines:
        rows = [row for row in found["targets"] if row["machine"] == machine]
        parts += [Text(machine, "bold"), _machine(rows), ""]
    total = f"{found['differing']:,} of {found['compared']:,} outputs differ"
    places = numbers.counted(found["cases"], "case"), numbers.counted(len(machines), "machine")
    return Group(*parts, Text(f"{places[0]}, {places[1]}: {total}"))


def _machine(rows: list[dict[str, Any]]) -> RenderableType:
    """What all rows have nothing of is left out."""
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
    """One row: comparisons made, those with a difference, differing outputs, ..."""
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


def merged(found: Mapping[str, Any]) -> RenderableType:
    """The folders that were written."""
    return Group(*(Text(f"wrote {folder}") for folder in found["folders"]))
