"""Operands as lines of Python that give their exact bits."""

from __future__ import annotations

import base64
import textwrap
import zlib

import numpy as np

from probe import floats

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
"""Functions that read what ``lines`` writes."""


def plain(dtype: str) -> str:
    """NumPy's dtype of a script's arrays: bfloat16 is written as float32."""
    return "float32" if dtype == "bfloat16" else dtype


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """A container array as a script has it: ``plain(dtype)``, exact."""
    return np.asarray(floats.widen(array, dtype)).astype(plain(dtype))


def lines(name: str, array: np.ndarray) -> list[str]:
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
    """The first numbers as decimals, as many as a line has room for."""
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
    if len(one) <= 100:
        return [one]
    wrapped = textwrap.wrap(text, 92, break_on_hyphens=False)
    body = [f'    "{part} "' for part in wrapped[:-1]] + [f'    "{wrapped[-1]}",']
    return [f"{name} = {reader}(", *body, *(f"    {size}," for size in shape.split(", ")), ")"]


def hexadecimal(value: float) -> str:
    """``float.hex`` without the zeros at the end of its digits."""
    digits, _, exponent = value.hex().partition("p")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}p{exponent}" if exponent else digits
