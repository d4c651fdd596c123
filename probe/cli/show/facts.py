"""Targets, the machine, and what an experiment left."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from probe import schema


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table without lines; columns in ``right`` are numbers. They and targets are not folded."""
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        whole = column == "target" or column in right
        side: JustifyMethod = "right" if column in right else "left"
        found.add_column(column, justify=side, overflow="fold", no_wrap=whole)
    return found


def targets(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What can run here first; then the rest, each with its reason."""
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
    """One fact a line."""
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


def experiment(found: Mapping[str, Any]) -> RenderableType:
    """Where to look."""
    lines = [Text(f"results in {found['results']}")]
    if found["notebook"]:
        lines.append(Text(f"pictures in {found['notebook']}"))
    return Group(*lines)


def emulated(found: Mapping[str, Any]) -> RenderableType:
    """What was written, and how to run it."""
    outputs = sum(run["outputs"] for run in found["runs"])
    head = Text(f"wrote {found['out']}: {found['bytes'] / 1024:,.0f} KiB, ")
    head.append(f"{found['replayed']:,} of {outputs:,} outputs replay", "green")
    return Group(head, Text(f"run it anywhere with NumPy: python {found['out']}"))
