"""What people write, in Python, JSON or on the command line, turned into checked values.

Every function raises InputError with the argument's name, what was given and what to write.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from probe import floats
from probe.errors import InputError, one_of

Numbers = float | str | Iterable[float]
Sizes = int | str | Iterable[int]


def by(entries: Iterable[int]) -> str:
    """Sizes as the command line writes them: ``5``, ``1x5``."""
    return "x".join(map(str, entries))


def count(name: str, value: object, least: int = 1) -> int:
    """``value`` as an int of at least ``least``; text of digits is taken too. Raises InputError."""
    whole = isinstance(value, (int, str, np.integer)) and not isinstance(value, bool)
    try:
        number = int(value) if whole else None  # type: ignore[call-overload]
    except ValueError:
        number = None
    if number is None:
        raise InputError(name, value, "not a whole number", f"write {name}={least} or more")
    if number < least:
        raise InputError(name, value, f"less than {least}", f"write {name}={least} or more")
    return number


def sizes(name: str, value: object, rank: int) -> tuple[int, ...]:
    """One size for each of ``rank`` axes, from ``5``, ``"5"``, ``"1x5"`` or ``(1, 5)``."""
    if isinstance(value, str):
        entries: list[object] = list(value.split("x"))
    elif isinstance(value, (tuple, list, np.ndarray)):
        entries = list(value)
    else:
        entries = [value]
    if not rank and any(str(entry) != "1" for entry in entries):
        raise InputError(name, value, "this operator has no spatial axis", "leave it out")
    if len(entries) == 1:
        entries *= rank
    if len(entries) != rank:
        form = "x".join(["N"] * rank)
        raise InputError(
            name, value, f"{len(entries)} sizes for {rank} axes", f"write {name}={form}"
        )
    return tuple(count(name, entry) for entry in entries)


def numbers(name: str, value: Numbers, dtype: str) -> tuple[float, ...]:
    """Finite numbers that ``dtype`` can hold, from text with commas, a number or a sequence."""
    todo = "write finite numbers separated by commas"
    try:
        parts = value.split(",") if isinstance(value, str) else np.ravel(np.asarray(value)).tolist()
        result = tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        raise InputError(name, value, "not a list of numbers", todo) from None
    values = np.array(result, dtype=np.float64)
    finite = np.isfinite(floats.widen(floats.round_to(values, dtype), dtype))
    if not finite.all():
        raise InputError(name, values[~finite][0], f"no finite {dtype}", todo)
    return result


def flag(name: str, value: object) -> bool:
    """``value`` as a bool; 0, 1 and text such as ``true`` or ``0`` are taken too."""
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise InputError(name, value, "neither true nor false", f"write {name}=true")
    return words[str(value).lower()]


def choice(name: str, value: object, known: Iterable[str]) -> str:
    """``value`` if it is one of ``known``; else InputError lists them."""
    names = list(known)
    if value not in names:
        raise InputError(name, value, "unknown", one_of(value, names))
    return str(value)


def spelled(name: str, value: object, known: Iterable[str]) -> str:
    """As ``choice``, but libraries' spellings will do: DepthwiseConv2D is depthwise_conv2d."""
    same = [one for one in known if _letters(one) == _letters(value)]
    return same[0] if len(same) == 1 else choice(name, value, known)


def _letters(value: object) -> str:
    return str(value).lower().translate(str.maketrans("", "", " _-"))
