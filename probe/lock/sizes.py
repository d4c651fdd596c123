"""``@pytest.mark.same_bits(batch=range(1, 33))``: a model's rows, whatever the batch size is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from probe.answers.first_difference import first_difference
from probe.errors import InputError, ProbeError
from probe.lock.assertions import described
from probe.lock.session import BitsChanged
from probe.lock.values import bits_of, named
from probe.progress import silent

KNOWN = ("batch", "model", "inputs", "axis")


def check(item: Any, mark: Any) -> None:
    """Runs the marked test's model at each size, and compares with its rows at the largest one.

    The mark names the fixtures: ``model``, called with the first n rows of ``inputs`` (an array, or
    several in a list or a dictionary). BitsChanged: rows differ, with the first operation that
    does and its cause. InputError: of the mark.
    """
    if mark.args or set(mark.kwargs) - set(KNOWN):
        wrong = ", ".join([*map(str, mark.args), *(k for k in mark.kwargs if k not in KNOWN)])
        raise InputError("same_bits", wrong, "it is not expected", f"use {', '.join(KNOWN)}")
    given = {"batch": range(1, 33), "model": "model", "inputs": "inputs", "axis": 0} | mark.kwargs
    model, inputs = (_fixture(item, given[name]) for name in ("model", "inputs"))
    sizes = _sizes(given["batch"])
    if told := differing(model, inputs, sizes, int(given["axis"])):
        raise BitsChanged("\n".join(told))


def _sizes(given: Any) -> list[int]:
    sizes = sorted({int(n) for n in given}) if isinstance(given, Iterable) else []
    if len(sizes) < 2 or sizes[0] < 1:
        why = "two sizes or more are compared, from 1 on"
        raise InputError("batch", given, why, "write batch=range(1, 33)")
    return sizes


def _fixture(item: Any, name: str) -> Any:
    if name in item.funcargs:
        return item.funcargs[name]
    if item._fixtureinfo.name2fixturedefs.get(name) or item.session._fixturemanager.getfixturedefs(
        name, item
    ):
        return item._request.getfixturevalue(name)
    todo = f"write a fixture {name}, or name it in the mark"
    raise InputError("fixture", name, "there is none for @pytest.mark.same_bits", todo)


def differing(model: Callable[..., Any], inputs: Any, sizes: list[int], axis: int = 0) -> list[str]:
    """Returns at which sizes rows differ from those of the largest one, and why, in lines."""
    parts = dict(named(inputs))
    for name, one in parts.items():
        if len(getattr(one, "shape", ())) <= axis or one.shape[axis] < sizes[-1]:
            shape = "x".join(map(str, getattr(one, "shape", ())))
            why = f"its shape {shape or 'scalar'} has no {sizes[-1]} rows along axis {axis}"
            raise InputError("inputs", name or "array", why, "give more, or smaller sizes")

    def run(size: int) -> Any:
        return (
            model(**_cut(inputs, size, axis))
            if isinstance(inputs, Mapping)
            else (model(*_cut(inputs, size, axis)))
        )

    whole = dict(named(run(sizes[-1])))
    told: list[str] = []
    first = 0
    for size in sizes[:-1]:
        for name, found in named(run(size)):
            same = whole[name][_rows(size, axis)] if name in whole else None
            if same is None or len(found.shape) <= axis or found.shape[axis] != size:
                why = f"it has no {size} rows along axis {axis} at batch {size}"
                raise InputError("output", name or "array", why, "return rows for rows")
            if bits_of(found) != bits_of(same):
                first = first or size
                told.append(f"batch={size}: {described(found, same, name or 'out')}")
    if told:
        more = [f"... and at {len(told) - 3} more"] * (len(told) > 4)
        told = [f"rows differ from those at batch {sizes[-1]}:", *told[: 4 - len(more)], *more]
        told += _cause(partial(run, first), partial(run, sizes[-1]))
    return told


def _rows(size: int, axis: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(size))


def _cut(inputs: Any, size: int, axis: int) -> Any:
    if isinstance(inputs, Mapping):
        return {name: one[_rows(size, axis)] for name, one in inputs.items()}
    several = inputs if isinstance(inputs, list | tuple) else [inputs]
    return [one[_rows(size, axis)] for one in several]


def _cause(left: Callable[[], Any], right: Callable[[], Any]) -> list[str]:
    try:
        found = first_difference(left, right, progress=silent)
    except ProbeError as error:
        return [f"no operation can be named: {error}"]
    return [*found.lines()[1:]]
