"""What a library's user writes to compute a case or a layer: the lines that its backend emits.

These are the lines that the worker compiles and runs, so a script holds what was measured.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe import activations, backends, floats
from probe import program as programs
from probe.activations import ACTIVATIONS
from probe.backends.contract import Unsupported
from probe.backends.source import Shapes, Source, Writing
from probe.case import Case
from probe.comparison import Arrays
from probe.errors import InputError
from probe.reproduction import layout
from probe.target import Target

EXACT = tuple(name for name, row in ACTIVATIONS.items() if row.roundings is not None)
"""Activations whose bits are the same in every library, as NumPy has them."""


NUMPY = "probe on NumPy"
"""The name of probe's own arithmetic."""


@dataclass(frozen=True)
class Library:
    """Lines of a script that uses one library. All of them run on Python 3.6 where it does.

    ``name``: as its users write it. ``version``: the expression that tells it. ``imports``: after
    NumPy's. ``setup``: once, before anything is computed. ``body``: of a function of the NumPy
    arrays ``x`` (batch, *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters) and
    ``b`` (filters,) or None, which returns (batch, *spatial_out, filters) as an array; bfloat16
    goes in and out as float32. ``modules``: distributions that it needs beside NumPy. ``standard``:
    modules of Python's own that ``body`` uses. ``source``: its stages; None for probe's.
    """

    name: str
    version: str
    imports: tuple[str, ...]
    body: tuple[str, ...]
    setup: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()
    source: Source | None = None


def of_case(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """Returns how a script computes ``case`` (its length set) with a target's release ``version``.

    ``operands``: x, w and b of the case, for libraries whose models hold them.

    Raises InputError where no script is written for it.
    """
    x, w, b = operands
    named = {"w": w} if b is None else {"w": w, "b": b}
    if is_written(target):
        return of_layer(target, version, case.spec(), tuple(x.shape), named)
    if target.name == "reference":
        return _reference(target, case)
    todo = f"use one of {', '.join(backends.BACKENDS)}"
    raise InputError("target", target.text, "no script is written for it", todo)


def is_written(target: Target) -> bool:
    """Returns whether the target's library emits lines."""
    return issubclass(backends.get(target.name), Writing)


def title(target: Target) -> str:
    """Returns the name of the target's library, as its users write it."""
    return str(backends.get(target.name).title) if is_written(target) else NUMPY


def of_layer(
    target: Target,
    version: str,
    layer: Mapping[str, Any],
    shape: tuple[int, ...],
    operands: Mapping[str, np.ndarray],
) -> Library:
    """Returns how a script computes one operation of an input (batch, *spatial, channels).

    ``layer``: its spec; ``operands``: by name. Raises InputError where the library has none.
    """
    backend = backends.get(target.name)().described(dict(target.switches), target.device, version)
    program = programs.case(dict(layer))
    try:
        backend.lay(program.layout)
        source = backend.emit(program, Shapes(program, shape))
        held = _held(source, program.operands(), layer["dtype"], operands)
    except Unsupported as error:
        raise _refused(target, str(error)) from None
    stages = source.make + source.enter + held + source.load + source.run
    if stages and stages[0].startswith(("@", "def ")):
        stages = ("", *stages)
    body = (*stages, f"return {source.leave}")
    text = "\n".join((*body, *backend.setup(), backend.version_text))
    words = set(re.findall(r"\w+", text))
    imports = tuple(filter(None, (_used(line, words) for line in backend.imports)))
    more = ("base64",) if any("base64." in line for line in held) else ()
    return Library(
        *(backend.title, backend.version_text, imports, body, backend.setup(), backend.modules),
        *((*backend.standard, *source.standard, *more), source),
    )


def _refused(target: Target, why: str) -> InputError:
    return InputError(
        "target", target.text, f"no script is written for {why}", "use another target"
    )


def _held(
    source: Source, names: list[str], dtype: str, operands: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Assignments to the models in formats of their own."""
    if source.hold is None:
        return ()
    wide = {name: operands[name] for name in names}
    if dtype == "bfloat16":
        wide = {name: floats.widen(array, dtype) for name, array in wide.items()}
    given = {name: np.ascontiguousarray(array) for name, array in wide.items()}
    lines: list[str] = []
    for name, content in source.hold(given).items():
        if isinstance(content, str):
            lines += [f"{name} = (", *(f"    {line!r}" for line in content.splitlines(True)), ")"]
            continue
        text = textwrap.wrap(base64.b64encode(content).decode(), 84)
        lines += [f"{name} = base64.b64decode(", *(f'    "{line}"' for line in text), ")"]
    return tuple(lines)


def _used(line: str, words: set[str]) -> str:
    """An import statement with those of its names that are among words; empty without any."""
    if not line.startswith("from "):
        return line if re.split("[ .]+", line)[-1] in words else ""
    head, _, names = line.partition(" import ")
    used = [name for name in names.split(", ") if name.split(" ")[-1] in words]
    return f"{head} import {', '.join(used)}" if used else ""


def _reference(target: Target, case: Case) -> Library:
    """Returns lines for probe's own arithmetic: such a script needs probe."""
    if case.dtype == "bfloat16":
        raise _refused(target, "bfloat16")
    names = ["w"] * case.weighted + ["b"] * (case.bias is not None)
    given = ", ".join(f'"{name}": {name}' for name in names)
    body = (
        "from probe.backends.reference import Reference",
        "",
        "backend = Reference()",
        f'backend.start({layout.literal(dict(target.switches))}, "cpu")',
        f"operator = backend.operator({layout.literal(case.spec())})",
        f"run = operator.bind({{{given}}})",
        "return operator.output(run(operator.input(x)))",
    )
    return Library(NUMPY, "np.__version__", (), body, modules=("probe-numerics",))


def activation(
    target: Target,
    version: str,
    name: str,
    alpha: float,
    shape: tuple[int, ...],
    dtype: str = "float32",
) -> tuple[str, ...]:
    """Returns the body of a function of ``x``, channels last, which returns another such array.

    ``shape`` and ``dtype``: those of x. Raises InputError where there is none.
    """
    known = [one for one in ACTIVATIONS if one not in EXACT]
    if name not in known:
        why = f"no script has it on {target.text}"
        raise InputError("activation", name, why, f"use one of {', '.join(known)}")
    if is_written(target):
        spec = {"op": "activation", "activation": name, "parameters": {"alpha": alpha}}
        layer = spec | {"dtype": dtype, "channels": shape[-1]}
        return of_layer(target, version, layer, shape, {}).body
    spelled = activations.lines(name, "numpy", alpha)
    number = ("number = x.dtype.type",) if "number(" in " ".join(spelled) else ()
    return (*number, *spelled[:-1], f"return np.asarray({spelled[-1]}, x.dtype)")


def normalisation(
    target: Target,
    version: str,
    shape: tuple[int, ...],
    operands: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> tuple[str, ...]:
    """Returns such a body of ``x``, ``scale`` and ``shift``, a number a channel.

    It is empty where NumPy's has the library's bits. ``operands``: the two numbers' arrays, for
    libraries whose models hold them.
    """
    if not is_written(target):
        return ()
    layer = {"op": "normalisation", "dtype": dtype, "parameters": {}, "channels": shape[-1]}
    return of_layer(target, version, layer, shape, operands).body


def standard(lines: Sequence[str]) -> tuple[str, ...]:
    """Modules of Python's own that lines use."""
    return tuple(name for name in ("base64", "math") if f"{name}." in " ".join(lines))
