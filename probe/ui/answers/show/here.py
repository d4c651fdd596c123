"""Shows what is here: targets, facts of the machine, environments, stores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from probe.case import schema
from probe.case.errors import printable
from probe.sweep.printing import counted, table

if TYPE_CHECKING:
    from probe.ui.answers.doctor import Examined


def targets(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What can run here first; then the rest, each with its reason."""
    able = table("target", "version", "what it is")
    unable = table("not here", "because")
    # targets and reasons; a library that is missing once, with how many variants it has
    reasons: dict[tuple[str, str], tuple[str, str, int]] = {}
    for row in rows:
        if row["available"]:
            able.add_row(row["target"], row["version"], row["doc"])
            continue
        name = re.split("[,@]", row["target"])[0]
        missing = (name, row["why"]) in reasons and reasons[name, row["why"]][0] == name
        key = (name, row["why"]) if missing or row["target"] == name else (row["target"], "")
        first = reasons.get(key, (row["target"], row["why"], -1))
        reasons[key] = (first[0], first[1], first[2] + 1)
    for name, why, variants in reasons.values():
        also = f", and {variants} with switches or on other devices" if variants else ""
        unable.add_row(f"{name}{also}", why)
    return Group(able, "", unable) if reasons else able


def machine(facts: Mapping[str, Any]) -> RenderableType:
    rows = table("fact", "value")
    rows.show_header = False
    absent = {column.name: column.null for column in schema.TABLES["runs"]}
    for name, value in facts.items():
        if name != "libraries":
            rows.add_row(name, f"({absent.get(name)})" if value is None else str(value))
    for name, version in facts["libraries"].items():
        rows.add_row(name, version or "not installed")
    return rows


def environments(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A row an environment that was installed, and how large it is."""
    if not rows:
        return "nothing is installed; try probe targets install tensorflow==1.2.1"
    shown = table("target", "Python", "NumPy", "MB", right=("MB",))
    for row in rows:
        size = f"{row['bytes'] / 1e6:.0f}"
        shown.add_row(row["target"], row["python_version"], row["numpy_version"], size)
    return shown


def examined(examination: Examined) -> RenderableType:
    """A row a check, what to type for what is missing, and the variables that are set."""
    from probe.ui.answers.doctor import VARIABLES

    rows = table("", "part", "found", "would add", "type")
    # a command is copied as it stands
    rows.columns[-1].no_wrap = True
    for check in examination.checks:
        rows.add_row(check.state, check.part, check.said, check.adds or "", check.command or "")
    parts: list[RenderableType] = [rows, ""]
    if not examination.variables:
        return Group(*parts, "No environment variable that changes bits is set.")
    set_here = table("variable that changes bits", "value", "what it decides")
    for name, value in examination.variables.items():
        set_here.add_row(name, value, VARIABLES[name])
    note = (
        "Runs on a target do not have these variables: its switches set what it needs. What "
        "runs in probe's own process has them: `probe diff` and `record` without --target."
    )
    return Group(*parts, set_here, note)


_SHOWN_APART = ("runs", "cases", "comparisons", "differences", "failures", "causes")


def stores(summary: Mapping[str, Any]) -> RenderableType:
    """A table for every machine, a row a target.

    ``summary``: what ``summary_of_stores`` gives.
    """
    machines = summary["machines"]
    parts: list[RenderableType] = []
    for machine in machines:
        rows = [row for row in summary["targets"] if row["machine"] == machine]
        when, days = summary["when"][machine], ""
        if when["runs"]:
            span = " to ".join(dict.fromkeys(when[end][:10] for end in ("first", "last")))
            days = f"  {counted(when['runs'], 'run')}, {span}"
        parts.append(f"{printable(machine)}{days}")
        cells = [_cells(row) for row in rows]
        # columns that are empty in all rows are left out
        filled = {name: any(row[name] for row in rows) for name in ("failures", "causes")}
        filled["share"] = any(row["unstable"] for row in rows)
        filled["version"] = len({row["target"] for row in rows}) < len(rows)
        names = [name for name in cells[0] if filled.get(name, True)] if cells else []
        shown = table(*names, right=[name for name in names if name not in _TEXTS])
        for row in cells:
            shown.add_row(*(row[name] for name in names))
        parts += [shown if rows else "no comparisons", ""]
    more = {name: n for name, n in summary["tables"].items() if name not in _SHOWN_APART}
    if more:
        parts += ["also: " + ", ".join(f"{n:,} {name}" for name, n in more.items()), ""]
    total = f"{summary['differing']:,} of {summary['compared']:,} outputs differ"
    places = counted(summary["cases"], "case"), counted(len(machines), "machine")
    return Group(*parts, f"{places[0]}, {places[1]}: {total}")


_TEXTS = ("target", "version", "causes")


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """One row by column: comparisons made, those with a difference, and so on."""
    vary = "" if row["vary"] in (None, "length") else f" (by {row['vary']})"
    share = f"{100 * row['unstable'] / row['comparisons']:.3g} %" if row["unstable"] else ""
    return {
        "target": printable(f"{row['target']}{vary}"),
        "version": printable(row["library_version"] or ""),
        "compared": f"{row['comparisons']:,}",
        "unstable": f"{row['unstable']:,}",
        "share": share,
        "outputs": f"{row['differing']:,}",
        "max ulp": "not a number" if row["max_ulp"] is None else f"{row['max_ulp']:,}",
        "failures": f"{row['failures']:,}",
        "causes": "\n".join(f"{printable(cause)} {n:,}" for cause, n in row["causes"].items()),
    }
