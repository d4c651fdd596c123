"""``probe.assert_same_bits``: two values, or two functions, that must agree to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.lock.values import array_of, bits_of, named

SHOWN = 3
"""Elements that differ, of each array, which a message shows."""


def assert_same_bits(left: Any, right: Any, *, inputs: Any = None) -> None:
    """Raises AssertionError unless two values have the same bits: where they differ, and how far.

    ``left``, ``right``: arrays or tensors of any library, numbers, files (``pathlib.Path``), or
    these in dictionaries and lists. Zeros of different signs and NaNs of different payloads differ;
    dtypes and shapes count. Two functions are called, with ``inputs`` (a sequence of arrays) if
    given; where they differ, ``probe.first_difference`` says at which operation and why.
    Errors: InputError for what has no bits of its own, such as arrays of objects.
    """
    __tracebackhide__ = True
    both = callable(left) and callable(right)
    given = () if inputs is None else tuple(inputs)
    one, other = (left(*given), right(*given)) if both else (left, right)
    if not (told := list(_differences(one, other))):
        return
    if both:
        told += _explained(left, right, inputs)
    raise AssertionError("\n".join(told))


def _differences(left: Any, right: Any) -> Iterator[str]:
    ours, theirs = dict(named(left)), dict(named(right))
    for name in dict.fromkeys((*ours, *theirs)):
        if name not in ours or name not in theirs:
            yield f"{name}: only the {'left' if name in ours else 'right'} side has it"
        elif bits_of(ours[name]) != bits_of(theirs[name]):
            yield described(ours[name], theirs[name], name or "out")


def described(left: Any, right: Any, name: str = "out", dtype: str = "", shown: int = SHOWN) -> str:
    """Returns where two values differ, and by how many ulps: ``3 of 8 differ, by up to 2 ulp``.

    ``dtype``: the format of the numbers, where the arrays only hold their bits.
    """
    one, other = bits_of(left), bits_of(right)
    if dtype:
        one, other = replace(one, dtype=dtype), replace(other, dtype=dtype)
    if one.dtype == "file" or other.dtype == "file":
        return f"{name}: the files differ: {one.text}, against {other.text}"
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{name}: {one.text}, against {other.text}"
    a, b = array_of(left)[0], array_of(right)[0]
    if one.dtype in floats.FORMATS:
        kind = floats.container_of_format(one.dtype)
        a, b = np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind)
        a, b = a.reshape(one.shape), b.reshape(one.shape)  # a scalar has become a row
    unit = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.itemsize in (1, 2, 4, 8) else None
    raw = [np.ascontiguousarray(x).view(unit or np.dtype(f"V{x.dtype.itemsize}")) for x in (a, b)]
    places = np.flatnonzero(np.asarray(raw[0] != raw[1]).reshape(-1))
    told = f"{name}: {len(places):,} of {a.size:,} differ"
    if one.dtype in floats.FORMATS:
        found = ulp.differences(a, b, one.dtype)
        if not len(found.index):
            return f"{told}, in the signs of zeros or the payloads of NaNs alone"
        most = ulp.largest_ulp(found.ulps)
        told += ", numbers against NaN" if most is None else f", by up to {most:,} ulp"
    some = "; ".join(_element(a, b, one.dtype, int(at), name) for at in places[:shown])
    return f"{told}: {some}{'; ...' * (len(places) > shown)}"


def _element(a: np.ndarray, b: np.ndarray, dtype: str, at: int, name: str) -> str:
    index = [int(n) for n in np.unravel_index(at, a.shape)] if a.ndim else []
    texts = []
    for array in (a, b):
        value = array.reshape(-1)[at]
        text = str(value)
        if dtype in floats.FORMATS:
            bits = int(floats.to_bits(array.reshape(-1)[at : at + 1], dtype)[0])
            wide = floats.widen(array.reshape(-1)[at : at + 1], dtype)[0]
            text = f"{value if dtype.startswith('float') else wide} ({bits:#x})"
        texts.append(text)
    return f"{name}{index or ''}={texts[0]}, against {texts[1]}"


def _explained(left: Callable[..., Any], right: Callable[..., Any], inputs: Any) -> Iterator[str]:
    """Yields the first operation that differs and its cause, as far as they can be found."""
    from probe.answers.first_difference import first_difference
    from probe.errors import ProbeError
    from probe.progress import silent

    try:
        found = first_difference(left, right, inputs=inputs, progress=silent)
    except ProbeError as error:
        yield f"no operation can be named: {error}"
    else:
        yield from found.lines()[1:]
