"""Shows what is here: targets, the facts of this machine, installed environments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe import schema
from probe.answers.doctor import VARIABLES, Examined
from probe.printing import table


def targets(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Returns what can run here first; then the rest, each with its reason."""
    able = table("target", "version", "what it is")
    unable = table("not here", "because")
    for row in rows:
        if row["available"]:
            able.add_row(Text(row["target"], "green"), row["version"], row["doc"])
    for name, why, variants in _unavailable(rows):
        also = f", and {variants} with switches or on other devices" if variants else ""
        unable.add_row(Text(f"{name}{also}", "yellow"), why)
    parts: list[RenderableType] = [able]
    if unable.row_count:
        parts += ["", unable]
    return Group(*parts)


def _unavailable(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """Targets and reasons; a library that is missing once, with how many variants it has."""
    found: dict[tuple[str, str], tuple[str, str, int]] = {}
    for row in rows:
        if row["available"]:
            continue
        name = re.split("[,@]", row["target"])[0]
        missing = (name, row["why"]) in found and found[name, row["why"]][0] == name
        key = (name, row["why"]) if missing or row["target"] == name else (row["target"], "")
        first = found.get(key, (row["target"], row["why"], -1))
        found[key] = (first[0], first[1], first[2] + 1)
    return list(found.values())


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
