"""Lines of generated Python within a width, laid out as ruff and black do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

WIDTH = 100
OPENING, CLOSING = "([{", ")]}"


def spaced(text: str) -> str:
    """A program with two empty lines around its functions and at most one elsewhere outside."""
    found: list[str] = []
    quoted = function = False
    for line in text.splitlines():
        top = bool(line) and not quoted and not line[0].isspace() and line[0] not in ")]}"
        starts = top and line.startswith(("def ", "@"))
        if top and found and (starts or function):
            while not found[-1]:
                found.pop()
            found += [] if found[-1].startswith("@") else ["", ""]
        elif not line and not quoted and found[-2:] and not found[-1]:
            continue
        function = (starts or function) if (top and starts) or not top else False
        quoted ^= line.count('"""') % 2 == 1
        found.append(line)
    return "\n".join(found) + "\n"


def imports(lines: Iterable[str]) -> list[str]:
    """Import statements in isort's order, what comes from one module in one of them."""
    found: dict[str, list[str]] = {}
    for line in lines:
        head, _, names = line.partition(" import ")
        found.setdefault(head, []).extend(names.split(", ") if names else [])
    merged = [
        f"{head} import {', '.join(dict.fromkeys(names))}" if names else head
        for head, names in found.items()
    ]
    return sorted(merged, key=lambda line: (line.startswith("from "), line.lower()))


def literal(value: object) -> str:
    """A value as formatters write it: with double quotes."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', repr(value))


def block(lines: Iterable[str], indent: int = 4) -> list[str]:
    """The lines indented, those that are too long broken at their brackets."""
    found: list[str] = []
    for line in lines:
        own = len(line) - len(line.lstrip())
        found += wrapped(line.strip(), indent + own) if line.strip() else [""]
    return found


def wrapped(line: str, indent: int = 0) -> list[str]:
    """One statement as lines of at most ``WIDTH`` characters, if its brackets allow it."""
    whole = " " * indent + line
    if len(whole) <= WIDTH:
        return [whole]
    bracket = _last_bracket(line)
    if bracket is None:
        return [whole]
    start, end = bracket
    head, inner, tail = line[: start + 1], line[start + 1 : end].rstrip(","), line[end:]
    pad = " " * (indent + 4)
    if len(pad + inner) <= WIDTH and "*" not in inner[:1]:
        middle = [pad + inner + ("," if line[start] != "(" else "")]
        if line[start] != "(":
            middle = [pad + part + "," for part in _parts(inner)]
    else:
        # a comma in brackets that only group would make a tuple of them
        groups = line[start] == "(" and not re.search(r"[\w)\]]$", line[:start])
        comma = "" if groups and len(_parts(inner)) == 1 else ","
        middle = [one for part in _parts(inner) for one in wrapped(part + comma, indent + 4)]
    return [" " * indent + head, *middle, " " * indent + tail]


def _last_bracket(line: str) -> tuple[int, int] | None:
    """Where the last outermost bracket opens and closes; None where there is nothing in any."""
    found, depth, start = None, 0, 0
    for place, letter in _outside_strings(line):
        if letter in OPENING:
            start = place if depth == 0 else start
            depth += 1
        elif letter in CLOSING:
            depth -= 1
            if depth == 0 and place > start + 1:
                found = (start, place)
    return found


def _parts(inner: str) -> list[str]:
    """What commas outside of brackets separate."""
    found, depth, start = [], 0, 0
    for place, letter in _outside_strings(inner):
        depth += (letter in OPENING) - (letter in CLOSING)
        if letter == "," and depth == 0:
            found.append(inner[start:place].strip())
            start = place + 1
    return [*found, inner[start:].strip()]


def _outside_strings(line: str) -> Iterator[tuple[int, str]]:
    """Places and characters that are not within quotes."""
    quote, escaped = "", False
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = letter == "\\" and not escaped
        elif letter in "\"'":
            quote = letter
        else:
            yield place, letter
