"""Lines of generated Python: laid out as ruff and black do, and operands with their exact bits."""

from __future__ import annotations

import base64
import re
import textwrap
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from probe import floats

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
    """Returns a value as formatters write it: with double quotes."""
    return re.sub(r"'([^'\"]*)'", r'"\1"', repr(value))


def block(lines: Iterable[str], indent: int = 4) -> list[str]:
    """Returns the lines indented, those that are too long broken at their brackets."""
    found: list[str] = []
    for line in lines:
        own = len(line) - len(line.lstrip())
        found += wrapped(line.strip(), indent + own) if line.strip() else [""]
    return found


def wrapped(line: str, indent: int = 0) -> list[str]:
    """Returns one statement as lines of at most ``WIDTH`` characters, if its brackets allow it."""
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
    """Returns what commas outside of brackets separate."""
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


WRITTEN = 256
"""Numbers that are written one by one; more of them are packed."""

PICKED = 24
"""Numbers in an array of zeros that get a line each."""

READERS = {
    "numbers": '''
def numbers(text, *shape):
    """An array from exact hexadecimal numbers."""
    return np.array([float.fromhex(one) for one in text.split()], np.{dtype}).reshape(shape)
''',
    "unpacked": '''
def unpacked(text, *shape):
    """An array from its compressed bits."""
    packed = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(packed, "{little}").reshape(shape).copy()
''',
}
"""Functions that read what ``assignments`` writes."""


def numpy_dtype(dtype: str) -> str:
    """NumPy's dtype of a script's arrays: bfloat16 is written as float32."""
    return "float32" if dtype == "bfloat16" else dtype


def exact(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns a container array as a script has it: ``numpy_dtype(dtype)``, exact."""
    return np.asarray(floats.widen(array, dtype)).astype(numpy_dtype(dtype))


def assignments(name: str, array: np.ndarray) -> list[str]:
    """Assignments that make the array ``name`` (float16, float32 or float64)."""
    count, shape = int(np.count_nonzero(array)), ", ".join(map(str, array.shape))
    if count <= PICKED and array.size > max(8, 2 * count):
        return _picked(name, array)
    if array.size <= WRITTEN:
        written = " ".join(map(hexadecimal, array.reshape(-1).tolist()))
        found = _call(name, "numbers", written, shape)
        return [_comment(name, array), *found] if array.size > 1 else found
    little = array.astype(array.dtype.newbyteorder("<"))
    packed = base64.b64encode(zlib.compress(little.tobytes(), 9)).decode()
    return _call(name, "unpacked", packed, shape)


def _comment(name: str, array: np.ndarray) -> str:
    """Returns the first numbers as decimals, as many as a line has room for."""
    text, values = f"# {name} is ", [str(value) for value in array.reshape(-1)[:24]]
    while len(text + ", ".join(values)) > 94:
        values.pop()
    return text + ", ".join(values) + ", ..." * (len(values) < array.size)


def _picked(name: str, array: np.ndarray) -> list[str]:
    found = [f"{name} = np.zeros({array.shape}, np.{array.dtype})"]
    for place in np.argwhere(array).tolist():
        value = array[tuple(place)]
        shown = ", ".join(map(str, place))
        found.append(f'{name}[{shown}] = float.fromhex("{hexadecimal(float(value))}")  # {value!s}')
    return found


def _call(name: str, reader: str, text: str, shape: str) -> list[str]:
    one = f'{name} = {reader}("{text}", {shape})'
    if len(one) <= WIDTH:
        return [one]
    pieces = textwrap.wrap(text, 92, break_on_hyphens=False)
    body = [f'    "{part} "' for part in pieces[:-1]] + [f'    "{pieces[-1]}",']
    return [f"{name} = {reader}(", *body, *(f"    {size}," for size in shape.split(", ")), ")"]


def hexadecimal(value: float) -> str:
    """``float.hex`` without the zeros at the end of its digits."""
    digits, _, exponent = value.hex().partition("p")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}p{exponent}" if exponent else digits
