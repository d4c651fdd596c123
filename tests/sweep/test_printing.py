"""Tables that lose nothing, numbers as ranges, the line of progress."""

from __future__ import annotations

import io
import sys
import time

import pytest
from rich.console import Console
from rich.text import Text

from probe.sweep.printing import Output, ranges, table
from probe.targets import progress

HEADERS = ("target", "verdict", "differs at", "differing", "compared", "max ulp", "what it is")


def rows():
    made = table(*HEADERS, right=HEADERS[3:6])
    long = "tensorflow,onednn=0,contraction=0,threads=2"
    made.add_row(long, Text("differs"), "5..7, 9", "1,234,567", "9,876,543", "257", "words " * 9)
    made.add_row("reference", Text("agrees"), "none", "0", "120", "0", "")
    return made


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_no_column_is_lost_at_any_width(width):
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(rows())
    shown = captured.get()
    together = "".join(shown.split())
    for header in HEADERS:
        assert "".join(header.split()) in together, header
    for cell in ("tensorflow,onednn=0,contraction=0,threads=2", "1,234,567", "9,876,543", "257"):
        assert cell in together
    assert together.count("words") == 9 and "…" not in shown
    assert max(map(len, shown.splitlines())) <= width


def test_numbers_are_written_as_ranges():
    assert ranges([5, *range(7, 61)]) == "5, 7..60"
    assert ranges([3, 4, 9]) == "3, 4, 9" and ranges([]) == ""
    assert ranges(range(1, 60, 2), 3) == "1, 3, 5, ... (27 more)"


def test_on_a_terminal_one_line_changes_and_is_cleared(monkeypatch):
    drawn = io.StringIO()
    monkeypatch.setattr(drawn, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", drawn)
    monkeypatch.setattr(progress, "DRAWN", 0.02)
    out = Output()
    with out.progress("outer") as tell, out.progress("within"):
        tell(3, 9, "numpy")
        until = time.monotonic() + 10
        while "within" not in drawn.getvalue() and time.monotonic() < until:
            time.sleep(0.02)
    told = drawn.getvalue()
    assert "within: 0 s so far" in told and "\n" not in told and told.endswith(progress.CLEAR)


def test_verdicts_have_a_colour_on_a_terminal_and_none_in_a_pipe(capsys, monkeypatch):
    lines = {
        "2 of 3 outputs differ": "\x1b[31m",
        "none of 3 outputs differs": "",
        "equal": "\x1b[32m",
    }
    for line, colour in lines.items():
        monkeypatch.setenv("FORCE_COLOR", "1")
        Output().results.print(line)
        assert capsys.readouterr().out.startswith(colour or line)
        monkeypatch.delenv("FORCE_COLOR")
        Output().results.print(line)
        assert capsys.readouterr().out == f"{line}\n"
