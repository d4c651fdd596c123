"""Prints results: the console, tables, counts, ranges of numbers.

Experiments and the command line print alike. Results go to stdout, progress and notes to stderr.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import click
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.highlighter import RegexHighlighter
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from probe.case.errors import printable
from probe.targets import budget
from probe.targets.progress import VOICE, Reporter

# Columns where stdout is not a terminal and COLUMNS does not say.
PIPED_WIDTH = 120


class Output:
    """How one command prints and ends.

    ``as_json``: one object on stdout instead of text. ``fail_on``: which finding ends it with 1.
    """

    def __init__(
        self, as_json: bool = False, verbose: bool = False, fail_on: str | None = None
    ) -> None:
        self.as_json, self.verbose, self.fail_on = as_json, verbose, fail_on
        self.results = _console(stderr=False)
        self.notes = _console(stderr=True)

    def give(
        self,
        answer: Any,
        show: Callable[[], RenderableType] | None = None,
    ) -> None:
        """Prints a result: as JSON, or for people.

        ``answer``: an answer, which has both; or the JSON, and what ``show`` makes of it.
        """
        VOICE.stop()
        if budget.BOARD is not None:
            budget.BOARD.printing = True
        if self.as_json:
            indent = 2 if self.results.is_terminal else None
            answer_json = answer if show else answer.report()
            click.echo(json.dumps(answer_json, indent=indent, default=plain))
            return
        self._print(show() if show else answer.shown())

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

    def status(self, finding: bool) -> int:
        """The exit status: 1 on a finding, where --fail-on asks for that."""
        return int(finding and self.fail_on is not None)

    def note(self, text: str) -> None:
        VOICE.clear()
        self.notes.print(f"note: {printable(text)}", soft_wrap=True, style="dim")

    def progress(self, what: str, whole: bool = False) -> AbstractContextManager[Reporter]:
        """Says on stderr how far the work is that goes on meanwhile: ``tell(done, total, text)``.

        ``whole``: what is counted is all the work; no time left is shown of a part of it. On a
        terminal one line that changes; elsewhere a line every few seconds, an object with --json:
        ``{"progress": {"done": ...}}``. Any thread may tell. Of progress within progress the inner
        one is shown.
        """
        return VOICE.speaking(Reporter(whole), what, self.as_json)


class Verdicts(RegexHighlighter):
    """On a terminal verdicts have their colour where a line or a cell begins: no view says one."""

    highlights: ClassVar[list[str]] = [
        r"(?m)^(?:verdict: )?(?P<red>(?:differs|bug|source|wrong|unexplained|contradicted)\b)",
        r"(?P<red>(?<![\d,])[1-9][\d,]* of [\d,]+ (?:outputs? )?differs?\b)",
        r"(?m)^(?:verdict: )?(?P<green>(?:agrees|equal|exact|yes|ok|one order)\b)",
        r"(?P<green>= the library's bits)",
        r"(?m)^(?:verdict: )?(?P<yellow>(?:unknown|not known|carried|missing|failed)\b|note: .*)",
    ]


_ULP = re.compile(r"\bulp\b")
ULP = "ulp: unit in the last place, the distance from a floating-point number to the next one"


def _console(stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlighter=Verdicts(), emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PIPED_WIDTH
    return console


def plain(value: Any) -> Any:
    """What JSON has for a value that it does not know. TypeError: there is nothing.

    It is the one converter of results: of NumPy's numbers and arrays, of dataclasses by their
    fields, and of what says by ``to_json`` that its JSON is another.
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "tolist"):
        return value.tolist()
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=plain))


class Rows(Table):
    """A table; where its columns do not fit side by side, row after row with every cell named."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = -2
        for column in self.columns:
            texts = [str(column.header), *(_text(cell).plain for cell in column.cells)]
            # numbers and targets stand whole; of what may be folded the words do
            pieces = texts if column.no_wrap else [word for text in texts for word in text.split()]
            needed += max(map(len, pieces), default=0) + 2
        if needed <= options.max_width:
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


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table without lines. Columns in ``right`` are numbers: not folded, nor targets."""
    lines = Rows(
        box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False, highlight=True
    )
    for column in columns:
        whole = column == "target" or column in right
        side: JustifyMethod = "right" if column in right else "left"
        lines.add_column(column, justify=side, overflow="fold", no_wrap=whole)
    return lines


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
    """``1 output``, ``2,304 outputs``."""
    ending = "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{'' if count == 1 else ending}"


def up_to(max_ulp: int | None) -> str:
    """``, up to 2 ulp``; empty where no distance is a number."""
    return "" if max_ulp is None else f", up to {max_ulp:,} ulp"


def differ(differing: int, compared: int, max_ulp: int | None) -> str:
    """``2 of 3 outputs differ, up to 2 ulp``."""
    verb = "differs" if differing == 1 else "differ"
    return f"{differing:,} of {counted(compared, 'output')} {verb}{up_to(max_ulp)}"
