"""Shows what is here: targets, facts of the machine, environments, stores, results of queries."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe import schema
from probe.printing import counted, table

if TYPE_CHECKING:
    from probe.answers.doctor import Examined


def targets(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns what can run here first; then the rest, each with its reason."""
    able = table("target", "version", "what it is")
    unable = table("not here", "because")
    # targets and reasons; a library that is missing once, with how many variants it has
    found: dict[tuple[str, str], tuple[str, str, int]] = {}
    for row in rows:
        if row["available"]:
            able.add_row(Text(row["target"], "green"), row["version"], row["doc"])
            continue
        name = re.split("[,@]", row["target"])[0]
        missing = (name, row["why"]) in found and found[name, row["why"]][0] == name
        key = (name, row["why"]) if missing or row["target"] == name else (row["target"], "")
        first = found.get(key, (row["target"], row["why"], -1))
        found[key] = (first[0], first[1], first[2] + 1)
    for name, why, variants in found.values():
        also = f", and {variants} with switches or on other devices" if variants else ""
        unable.add_row(Text(f"{name}{also}", "yellow"), why)
    parts: list[RenderableType] = [able]
    if unable.row_count:
        parts += ["", unable]
    return Group(*parts)


def machine(found: Mapping[str, Any]) -> RenderableType:
    """Returns a table with one fact a line."""
    rows = table("fact", "value")
    rows.show_header = False
    absent = {column.name: column.null for column in schema.TABLES["runs"]}
    for name, value in found.items():
        if name != "libraries":
            rows.add_row(
                Text(name, "bold"), f"({absent.get(name)})" if value is None else str(value)
            )
    for name, version in found["libraries"].items():
        rows.add_row(Text(name, "bold"), version or "not installed")
    return rows


def environments(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns a row an environment that was installed, and how large it is."""
    if not rows:
        return "nothing is installed; try probe install tensorflow==1.2.1"
    found = table("target", "Python", "NumPy", "MB", right=("MB",))
    for row in rows:
        size = f"{row['bytes'] / 1e6:.0f}"
        found.add_row(row["target"], row["python_version"], row["numpy_version"], size)
    return found


def installed_target(found: Mapping[str, Any]) -> str:
    """Returns what answers now, in a sentence."""
    said = "was already installed" if found["already"] else f"answers, after {found['seconds']:g} s"
    library = f"{found['library']} {found['library_version']}"
    return f"{found['target']} {said}: {library}, Python {found['python_version']}"


def examined(found: Examined) -> RenderableType:
    """Returns a row a check, what to type for what is missing, and the variables that are set."""
    from probe.answers.doctor import VARIABLES

    colours = {"ok": "green", "missing": "yellow", "wrong": "red"}
    rows = table("", "part", "found", "would add", "type")
    rows.columns[-1].no_wrap = True  # it is copied as it stands
    for one in found.checks:
        state = Text(one.state, colours[one.state])
        rows.add_row(state, one.part, one.said, one.adds or "", one.command or "")
    parts: list[RenderableType] = [rows, ""]
    if found.pip and any((one.command or "").startswith("pip ") for one in found.checks):
        told = f"pip on PATH belongs to a different Python: for pip type {found.pip}"
        parts += [Text(told, "yellow", no_wrap=True, overflow="ignore"), ""]
    if found.variables:
        set_here = table("variable that changes bits", "value", "what it decides")
        for name, value in found.variables.items():
            set_here.add_row(name, value, VARIABLES[name])
        note = (
            "Runs on a target do not have these variables: its switches set what it needs. What "
            "runs in probe's own process has them: `probe network` and `record` without --target."
        )
        parts += [set_here, note]
    else:
        parts.append("No environment variable that changes bits is set.")
    return Group(*parts)


_SHOWN_APART = ("runs", "cases", "comparisons", "differences", "failures", "causes")


def stores(found: Mapping[str, Any]) -> RenderableType:
    """Returns a table for every machine, a row a target.

    ``found``: what ``summary_of_stores`` gives.
    """
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
        cells = [_cells(row) for row in rows]
        # columns that are empty in all rows are left out
        versions = len({row["target"] for row in rows}) < len(rows)
        left_out = {name for name in ("failures", "causes") if not any(row[name] for row in rows)}
        left_out |= set() if versions else {"version"}
        left_out |= set() if any(row["unstable"] for row in rows) else {"share"}
        names = [name for name in cells[0] if name not in left_out] if cells else []
        shown = table(*names, right=[name for name in names if name not in _TEXTS])
        for row in cells:
            shown.add_row(*(row[name] for name in names))
        parts += [shown if rows else Text("no comparisons", "dim"), ""]
    more = {name: n for name, n in found["tables"].items() if name not in _SHOWN_APART}
    if more:
        parts += [Text("also: " + ", ".join(f"{n:,} {name}" for name, n in more.items())), ""]
    total = f"{found['differing']:,} of {found['compared']:,} outputs differ"
    places = counted(found["cases"], "case"), counted(len(machines), "machine")
    return Group(*parts, Text(f"{places[0]}, {places[1]}: {total}"))


_TEXTS = ("target", "version", "causes", "share")
_WIDTH = 8


def _escaped(text: str) -> str:
    """Returns a text of a stranger's store without what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _cells(row: Mapping[str, Any]) -> dict[str, RenderableType]:
    """Returns one row by column: comparisons made, those with a difference, and so on."""
    vary = "" if row["vary"] in (None, "length") else f" (by {row['vary']})"
    style = "red" if row["differing"] else "green" if row["comparisons"] else "yellow"
    share = ""
    if row["unstable"]:
        # Unicode has blocks of one to seven eighths; what differs at all is not drawn as nothing
        eighths = max(1, round(8 * _WIDTH * row["unstable"] / row["comparisons"]))
        bar = "\u2588" * (eighths // 8) + "\u2800\u258f\u258e\u258d\u258c\u258b\u258a\u2589"[
            eighths % 8
        ].strip("\u2800")
        percent = 100 * row["unstable"] / row["comparisons"]
        share = f"{bar:<{_WIDTH}} {'<1' if percent < 1 else math.floor(percent)} %"
    return {
        "target": Text(_escaped(f"{row['target']}{vary}"), style),
        "version": _escaped(row["library_version"] or ""),
        "compared": f"{row['comparisons']:,}",
        "unstable": f"{row['unstable']:,}",
        "share": share,
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
    """Returns the table of a query's result. ``found``: what ``query_json`` gives."""
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
