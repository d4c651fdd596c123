"""How results are printed: the console with its progress, tables, counts, ranges of numbers.

Experiments and the command line print alike. Results go to stdout, progress and notes to stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

PIPED_WIDTH = 120
"""Columns where stdout is no terminal and COLUMNS does not say."""

Tell = Callable[[int, int, str], None]

EVERY = 5.0
"""Seconds between two lines of progress, where stderr is no terminal."""


class Reporter:
    """What ``Output.progress`` gives: called as ``tell(done, total, what)``, from any thread.

    Whoever tells counts up ``failures`` so far and ``skipped``: what took no time, since it was
    stored or can't be done. ``ends``: when time is up, by ``time.monotonic``; None: never.
    """

    def __init__(self) -> None:
        self.done = self.total = self.failures = self.skipped = 0
        self.ends: float | None = None
        self.what = ""
        self._start, self._first = time.monotonic(), 0

    def __call__(self, done: int, total: int, what: str) -> None:
        if not self.total and total:  # starting a library is no part of the rate
            self._start, self._first = time.monotonic(), done
        self.done, self.total, self.what = done, total, what

    def numbers(self) -> dict[str, Any]:
        """The numbers by name: ``remaining`` in seconds, ``rate`` of what is done in a second.

        ``total``, ``rate`` and ``remaining`` are None where they are not known.
        """
        seconds = time.monotonic() - self._start
        new = self.done - max(self._first, self.skipped)
        rate = new / seconds if new > 0 and seconds > 0 else None
        left = (self.total - self.done) / rate if rate and self.total else None
        if left is not None and self.ends is not None:
            left = max(0.0, min(left, self.ends - time.monotonic()))
        return {
            "done": self.done,
            "total": self.total or None,
            "rate": None if rate is None else float(f"{rate:.3g}"),
            "remaining": None if left is None else round(left, 1),
            "failures": self.failures,
            "what": self.what,
        }

    def line(self, name: str) -> str:
        """The numbers as a line for people."""
        now = self.numbers()
        parts = [f"{self.done:,} of {self.total:,}" if self.total else ""]
        parts.append("" if now["rate"] is None else f"{now['rate']:,g} a second")
        parts.append("" if now["remaining"] is None else f"{span(now['remaining'])} left")
        parts.append(counted(self.failures, "failure") if self.failures else "")
        told = ", ".join(filter(None, parts))
        return ": ".join(filter(None, (name, told, self.what)))


def span(seconds: float) -> str:
    """Returns ``8 s``, ``3:20 min``, ``2:05 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


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
            click.echo(json.dumps(found, indent=indent, default=plain))
        else:
            self._print(show())

    def _print(self, shown: RenderableType) -> None:
        """Prints; long lines stay whole, and in a pipe no spaces are left at their ends.

        Below a text that counts in ulps, a line says what a ulp is.
        """
        with self.results.capture() as captured:
            self.results.print(shown, crop=False)
        if self.results.is_terminal:
            self.results.print(shown, crop=False)
        else:
            click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
        if _ULP.search(captured.get()):
            self.results.print(ULP, style="dim", soft_wrap=True)

    def note(self, text: str) -> None:
        """Prints one line beside the result."""
        self.notes.print(f"note: {text}", soft_wrap=True, style="dim")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Shows a sign of life where nothing can be counted, if stderr is a terminal."""
        if not self.notes.is_terminal:
            yield
            return
        columns = (TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.notes, transient=True) as progress:
            progress.add_task(what, total=None)
            yield

    @contextmanager
    def progress(self, what: str) -> Iterator[Reporter]:
        """Shows what is done, the rate, the time left and failures: ``tell(done, total, text)``.

        A bar on a terminal; elsewhere a line on stderr every few seconds, an object with --json:
        ``{"progress": {"done": ...}}``. Any thread may tell.
        """
        if not self.notes.is_terminal:
            with self._lines(what) as lines:
                yield lines
            return
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
            *(TimeRemainingColumn(compact=True), TextColumn("{task.fields[now]}")),
        )
        with Progress(*columns, console=self.notes, transient=True) as progress:
            yield _Bar(progress, what)

    @contextmanager
    def _lines(self, what: str) -> Iterator[Reporter]:
        tell, ended = Reporter(), threading.Event()

        def speak() -> None:
            while not ended.wait(EVERY):
                if self.as_json:
                    text = json.dumps({"progress": {"of": what} | tell.numbers()})
                else:
                    text = tell.line(what)
                print(text, file=sys.stderr, flush=True)

        speaker = threading.Thread(target=speak, name="progress", daemon=True)
        speaker.start()
        try:
            yield tell
        finally:
            ended.set()
            speaker.join()


class _Bar(Reporter):
    """A bar on a terminal."""

    def __init__(self, progress: Progress, name: str) -> None:
        super().__init__()
        self._progress = progress
        self._task = progress.add_task(name, total=None, now="")

    def __call__(self, done: int, total: int, what: str) -> None:
        super().__call__(done, total, what)
        rate = self.numbers()["rate"]
        parts = [what, "" if rate is None else f"{rate:,g}/s"]
        parts.append(counted(self.failures, "failure") if self.failures else "")
        now = "  ".join(filter(None, parts))
        self._progress.update(self._task, completed=done, total=total or None, now=now)


_ULP = re.compile(r"\bulp\b")
ULP = "ulp: unit in the last place, the distance from a floating-point number to the next one"


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PIPED_WIDTH
    return console


def plain(value: object) -> object:
    """Returns NumPy's numbers and arrays as JSON has them. TypeError for anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


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


def ranges(numbers: Iterable[int], most: int = 12) -> str:
    """``5, 7..60``: neighbours as ranges; at most ``most`` parts, then how many numbers follow."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts: list[tuple[str, int]] = []  # each with how many numbers it stands for
    for run in runs:
        several = len(run) > 2
        parts += [(f"{run[0]}..{run[-1]}", len(run))] if several else [(str(n), 1) for n in run]
    shown = parts if len(parts) <= most + 1 else parts[:most]
    text = ", ".join(part for part, _ in shown)
    hidden = sum(size for _, size in parts[len(shown) :])
    return f"{text}, ... ({hidden} more)" if hidden else text


def counted(count: int, thing: str) -> str:
    """Returns ``1 output``, ``2,304 outputs``."""
    ending = "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{'' if count == 1 else ending}"


def up_to(max_ulp: int | None) -> str:
    """Returns ``, up to 2 ulp``; empty where no distance is a number."""
    return "" if max_ulp is None else f", up to {max_ulp:,} ulp"


def differ(differing: int, compared: int, max_ulp: int | None) -> str:
    """Returns ``2 of 3 outputs differ, up to 2 ulp``."""
    verb = "differs" if differing == 1 else "differ"
    return f"{differing:,} of {counted(compared, 'output')} {verb}{up_to(max_ulp)}"


@contextmanager
def without_stderr() -> Iterator[None]:
    """Drops what a library writes to standard error past Python, as TensorFlow does."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
