"""What a script needs to know of a library, as lines of its source."""

from __future__ import annotations

from dataclasses import dataclass

from probe.case import Case
from probe.errors import InputError
from probe.geometry import Pair
from probe.target import Target

Pairs = tuple[Pair, ...]


@dataclass(frozen=True)
class Library:
    """Lines of a script that uses one library. All of them run on Python 3.6 where it does.

    ``name``: as its users write it. ``version``: the expression that tells it. ``imports``: after
    NumPy's. ``setup``: once, before anything is computed. ``body``: of a function of the NumPy
    arrays ``x`` (batch, *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters) and
    ``b`` (filters,) or None, which returns (batch, *spatial_out, filters) as an array; bfloat16
    goes in and out as float32. ``modules``: distributions that it needs beside NumPy. ``standard``:
    modules of Python's own that ``body`` uses.
    """

    name: str
    version: str
    imports: tuple[str, ...]
    body: tuple[str, ...]
    setup: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()


def pairs_of(case: Case) -> Pairs:
    """The zeros around every spatial axis of a case with a length."""
    return case.pads()


def lines(text: str) -> tuple[str, ...]:
    """The lines of a text; the quotient of two calls becomes two lines."""
    found: list[str] = []
    for line in text.splitlines():
        numerator, slash, denominator = line.partition(") / ")
        found.append(numerator + (")" if slash else ""))
        found += [f"y = y / {denominator}"] if slash else []
    return tuple(found)


def refuse(target: Target, why: str) -> InputError:
    """An InputError for what no script is written for."""
    return InputError(
        "target", target.text, f"no script is written for {why}", "use another target"
    )


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version."""
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def flat(case: Case, vector: bool = True) -> tuple[str, str]:
    """x and w of a matrix product as the libraries' calls are written: matrices and vectors.

    As ``probe.backends.products``; ``vector`` is False where ``dot`` is not handed vectors.
    """
    if case.op not in ("matmul", "dot"):
        return "x", "w"
    row = case.op == "dot" and case.length == 1 and vector
    column = case.op == "dot" and case.filters == 1 and vector
    x = "x" if case.batch > 1 else "x[0, 0]" if row else "x[0]"
    return x, "w[0, :, 0]" if column else "w[0]"


def restored(case: Case, y: str) -> str:
    """The result of a product's call as (batch, rows, filters), or (batch, filters)."""
    if case.op == "sum":
        return f"{y}[..., None]"
    if case.op not in ("matmul", "dot") or case.batch > 1:
        return y
    return f"{y}.reshape(1, -1, {case.filters})"
