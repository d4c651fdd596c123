"""Targets, the machine, and what an experiment left."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from probe import schema

FOLDED = 30
"""Columns that a cell which may be folded gets at least."""


class Rows(Table):
    """A table; where its columns do not fit side by side, row after row with every cell named."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needs = [self._needs(console, options, column) for column in self.columns]
        spare = options.max_width - 2 * (len(needs) - 1) - sum(least for least, _ in needs)
        if spare >= 0:
            self._share_out(needs, spare)
            yield from super().__rich_console__(console, options)
            return
        named = [str(column.header) for column in self.columns]
        cells = [list(column.cells) for column in self.columns]
        for row in zip(*cells, strict=True):
            first, *rest = (_text(cell) for cell in row)
            yield Text.assemble(f"{named[0]}: ", first, style="bold")
            pairs = [
                Text.assemble((f"{name}: ", "dim"), cell)
                for name, cell in zip(named[1:], rest, strict=True)
                if cell.plain
            ]
            yield Padding(Text("; ").join(pairs), (0, 0, 0, 2))

    def _needs(self, console: Console, options: ConsoleOptions, column: Column) -> tuple[int, int]:
        """The fewest columns of a terminal that a column can do with, and all that it could use.

        Numbers and targets need all; of what may be folded the longest word stays whole.
        """
        header = [Text(str(column.header))] * self.show_header
        wide = options.update(max_width=10_000)
        cells = (*header, *(_text(cell) for cell in column.cells))
        sizes = [console.measure(one, options=wide) for one in cells]
        whole = max((size.maximum for size in sizes), default=0)
        word = max((size.minimum for size in sizes), default=0)
        return (whole if column.no_wrap else min(FOLDED, word)), whole

    def _share_out(self, needs: list[tuple[int, int]], spare: int) -> None:
        """Gives every column what it needs, and of the rest as much as each can use, alike."""
        order = sorted(range(len(needs)), key=lambda number: needs[number][1] - needs[number][0])
        for place, number in enumerate(order):
            least, whole = needs[number]
            more = min(whole - least, spare // (len(order) - place))
            self.columns[number].width = least + more
            spare -= more


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table without lines; columns in ``right`` are numbers. They and targets are not folded."""
    found = Rows(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
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
