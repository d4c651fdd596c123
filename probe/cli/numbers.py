"""Whole numbers as people write them, ``5..64``, ``5..64:3``, ``5,7,9..12``, and back to text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probe.errors import InputError

MOST = 1_000_000
_PART = re.compile(r"(-?\d+)(?:\.\.(-?\d+)(?::(-?\d+))?)?$")
HOW = "write 5..64, 5..64:3 for every third, or 5,7,9..12"


def parse(name: str, text: str) -> list[int]:
    """The numbers of ``text``, ascending, each once; the end of a range is included. InputError."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part.strip())
        if not match:
            raise InputError(name, text, f"{part.strip()!r} is no number or range", HOW)
        first, last, step = (None if word is None else int(word) for word in match.groups())
        assert first is not None
        numbers = range(first, (first if last is None else last) + 1, _step(name, text, step))
        if not numbers:
            raise InputError(name, text, f"{part.strip()} runs backwards", HOW)
        if numbers[0] < 1:
            raise InputError(name, text, f"{numbers[0]} is less than 1", "leave it out")
        if len(found) + len(numbers) > MOST:
            raise InputError(name, text, f"more than {MOST} numbers", "take steps: 5..1000000:1000")
        found.update(numbers)
    return sorted(found)


def _step(name: str, text: str, step: int | None) -> int:
    if step is not None and step < 1:
        raise InputError(name, text, f"steps of {step}", HOW)
    return step or 1


def text(numbers: Iterable[int], most: int = 12) -> str:
    """``5, 7..60``: neighbours as ranges; at most ``most`` parts, then how many numbers follow."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in _run(run)]
    left = len(parts) - most
    if left > 1:
        hidden = sum(map(len, runs)) - sum(_size(part) for part in parts[:most])
        return f"{', '.join(parts[:most])}, ... ({hidden} more)"
    return ", ".join(parts)


def _run(run: list[int]) -> list[str]:
    return [f"{run[0]}..{run[-1]}"] if len(run) > 2 else [str(number) for number in run]


def _size(part: str) -> int:
    first, _, last = part.partition("..")
    return int(last or first) - int(first) + 1


def counted(count: int, thing: str) -> str:
    """``1 output``, ``2,304 outputs``."""
    ending = "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{'' if count == 1 else ending}"
