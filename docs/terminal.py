"""Draws terminal.svg, the README's terminal: commands and what they print on this machine.

    python docs/terminal.py

The title names processor and release, because the bits depend on them; a test runs the commands
again where both are the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from probe.targets.machine import label

CASE = "--op conv1d --kernel 5 --in-channels 64 --filters 64"
COMMANDS = {
    f"probe explain {CASE} --at 5 --against 40 --target tensorflow,onednn=0": 24,
    f"probe sweep {CASE} --lengths 5..40 --target tensorflow,onednn=0": 5,
}
"""Commands, and how many lines of each are shown."""

COLUMNS = 120
SVG = Path(__file__).with_suffix(".svg")


def title() -> str:
    """Processor and release, as the picture has them."""
    return f"{label()}, tensorflow {version('tensorflow')}"


def lines() -> list[str]:
    """The commands and what they print now; a process each, as in a shell."""
    shown = []
    for command, count in COMMANDS.items():
        call = [sys.executable, "-m", *command.split()]
        wide = {**os.environ, "COLUMNS": str(COLUMNS)}
        done = subprocess.run(call, capture_output=True, text=True, check=True, env=wide)
        printed = re.sub(r"; [\d.]+ s$", "", done.stdout.rstrip(), flags=re.M).splitlines()
        cut = f"... {len(printed) - count} more lines"
        shown += [f"$ {command}", *printed[:count], *[cut] * (len(printed) > count), ""]
    return shown[:-1]


def svg() -> str:
    """The picture."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), highlight=False)
    for line in lines():
        style = "bold green" if line.startswith("$") else ""
        console.print(line, style=style, markup=False)
    drawn = console.export_svg(title=title(), theme=MONOKAI, unique_id="terminal")
    # nothing is loaded from elsewhere
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.S)


if __name__ == "__main__":
    SVG.write_text(svg())
