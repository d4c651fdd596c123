"""Shows what stores hold (``probe results``), and the result of a query over them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.printing import counted, table

_SHOWN_APART = ("runs", "cases", "comparisons", "differences", "failures", "causes")


def stores(found: Mapping[str, Any]) -> RenderableType:
    """Returns a table for every machine, a row a target. ``found``: what ``stored`` gives."""
    machines = found["machines"]
    parts: list[RenderableType] = []
    for machine in machines:
        rows = [row for row in found["targets"] if row["machine"] == machine]
        when, days = found["when"][machine], ""
        if when["runs"]:
            first, last = when["first"][:10], when["last"][:10]
            span = first if first == last else f"{first} to {last}"
            days = f"  {counted(when['runs'], 'run')}, {span}"
        parts.append(Text.assemble((_escaped(machine), "bold"), days))
        parts += [_table_of_machine(rows) if rows else Text("no comparisons", "dim"), ""]
    more = {name: n for name, n in found["tables"].items() if name not in _SHOWN_APART}
    if more:
        parts += [Text("also: " + ", ".join(f"{n:,} {name}" for name, n in more.items())), ""]
    total = f"{found['differing']:,} of {found['compared']:,} outputs differ"
    places = counted(found["cases"], "case"), counted(len(machines), "machine")
    return Group(*parts, Text(f"{places[0]}, {places[1]}: {total}"))


def _table_of_machine(rows: list[dict[str, Any]]) -> RenderableType:
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


_TEXTS = ("target", "version", "causes", "share")
_WIDTH = 8


def _bar(part: int, whole: int) -> str:
    """Returns a bar of eighths and the percentage; what differs at all is not drawn as nothing."""
    if not part:
        return ""
    # Unicode has blocks of one to seven eighths; a share below one is drawn as the thinnest
    eighths = max(1, round(8 * _WIDTH * part / whole))
    full = "\u2588" * (eighths // 8) + "\u2800\u258f\u258e\u258d\u258c\u258b\u258a\u2589"[
        eighths % 8
    ].strip("\u2800")
    percent = 100 * part / whole
    return f"{full:<{_WIDTH}} {'<1' if percent < 1 else math.floor(percent)} %"


def _escaped(text: str) -> str:
    """Returns a text of a stranger's store without what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cells(row: Mapping[str, Any]) -> dict[str, RenderableType]:
    """Returns one row by column: comparisons made, those with a difference, and so on."""
    vary = "" if row["vary"] in (None, "length") else f" (by {row['vary']})"
    style = "red" if row["differing"] else "green" if row["comparisons"] else "yellow"
    return {
        "target": Text(_escaped(f"{row['target']}{vary}"), style),
        "version": _escaped(row["library_version"] or ""),
        "compared": f"{row['comparisons']:,}",
        "unstable": f"{row['unstable']:,}",
        "share": _bar(row["unstable"], row["comparisons"]),
        "outputs": f"{row['differing']:,}",
        "max ulp": "not a number" if row["max_ulp"] is None else f"{row['max_ulp']:,}",
        "failures": f"{row['failures']:,}",
        "causes": "\n".join(
            f"{_escaped(cause)} {count:,}" for cause, count in row["causes"].items()
        ),
    }


# Rows of a query that are printed as a table; --json has all.
MOST_SHOWN = 1000


def query_answer(found: Mapping[str, Any]) -> RenderableType:
    """Returns the table of a query's result. ``found``: what :func:`asked` gives."""
    rows, first = found["rows"], found["rows"][:MOST_SHOWN]
    numbers = [
        name
        for name in found["columns"]
        if all(isinstance(row[name], int | float | None) for row in first)
    ]
    shown = table(
        *map(_escaped, found["columns"]),
        right=[_escaped(name) for name in numbers],
    )
    for row in first:
        shown.add_row(*("" if value is None else _escaped(str(value)) for value in row.values()))
    left = len(rows) - MOST_SHOWN
    said = f"; {left:,} more: --json has all, LIMIT fewer" if left > 0 else ""
    return Group(shown, Text(f"{counted(len(rows), 'row')}{said}"))
