"""Where things are printed: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PIPED_WIDTH = 120
"""Columns where stdout is no terminal and COLUMNS does not say."""

Tell = Callable[[int, int, str], None]


class Output:
    """How one command prints. ``as_json``: one object on stdout instead of text."""

    def __init__(self, as_json: bool = False, verbose: bool = False) -> None:
        self.as_json, self.verbose = as_json, verbose
        self.results = _console(stderr=False)
        self.notes = _console(stderr=True)

    def give(self, found: dict[str, Any], show: Callable[[], RenderableType]) -> None:
        """Prints the result: ``found`` as JSON, or what ``show`` makes of it for people."""
        if self.as_json:
            indent = 2 if self.results.is_terminal else None
            click.echo(json.dumps(found, indent=indent, default=_plain))
        else:
            self._print(show())

    def _print(self, shown: RenderableType) -> None:
        """Long lines stay whole; where no one looks on, no spaces are left at their ends."""
        if self.results.is_terminal:
            self.results.print(shown, crop=False)
            return
        with self.results.capture() as captured:
            self.results.print(shown, crop=False)
        click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def note(self, text: str) -> None:
        """One line beside the result."""
        self.notes.print(f"note: {text}", soft_wrap=True, style="dim")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A sign of life where nothing can be counted; nothing where stderr is no terminal."""
        if not self.notes.is_terminal:
            yield
            return
        columns = (TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.notes, transient=True) as progress:
            progress.add_task(what, total=None)
            yield

    @contextmanager
    def progress(self, what: str) -> Iterator[Tell]:
        """A bar with the time left: ``tell(done, total, text)``. Any thread may tell."""
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
            *(TimeRemainingColumn(compact=True), TextColumn("{task.fields[now]}")),
        )
        hidden = not self.notes.is_terminal
        with Progress(*columns, console=self.notes, transient=True, disable=hidden) as progress:
            task = progress.add_task(what, total=None, now="")

            def tell(done: int, total: int, text: str) -> None:
                progress.update(task, completed=done, total=total or None, now=text)

            yield tell


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console = Console(
            stderr=stderr, markup=False, highlight=False, emoji=False, width=PIPED_WIDTH
        )
    return console


def _plain(value: object) -> object:
    """NumPy's numbers and arrays as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")
