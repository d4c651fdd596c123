"""Scripts of libraries that emit their lines: what the worker ran is what the script holds."""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from probe import backends, floats
from probe import program as programs
from probe.backends.contract import Unsupported
from probe.backends.source import Shapes, Source, Writing
from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, refuse
from probe.target import Target


def is_written(target: Target) -> bool:
    """Whether the target's library emits lines."""
    return issubclass(backends.get(target.name), Writing)


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``, its length set; see ``scripts.library``."""
    x, w, b = operands
    named = {"w": w} if b is None else {"w": w, "b": b}
    return of_layer(target, version, case.spec(), tuple(x.shape), named)


def of_layer(
    target: Target,
    version: str,
    layer: Mapping[str, Any],
    shape: tuple[int, ...],
    operands: Mapping[str, np.ndarray],
) -> Library:
    """How a script computes one operation of an input (batch, *spatial, channels).

    Raises InputError where the library has none.
    """
    backend = backends.get(target.name)().described(dict(target.switches), target.device, version)
    program = programs.case(dict(layer))
    try:
        source = backend.emit(program, Shapes(program, shape))
        held, standard = _held(source, program.operands(), layer["dtype"], operands)
    except Unsupported as error:
        raise refuse(target, str(error)) from None
    stages = source.make + source.enter + held + source.load + source.run
    body = (*stages, f"return {source.leave}")
    text = "\n".join((*body, *backend.setup(), backend.version_text))
    imports = tuple(line for line in backend.imports if _name(line) in re.findall(r"\w+", text))
    return Library(
        backend.title,
        backend.version_text,
        imports,
        body,
        backend.setup(),
        backend.modules,
        (*source.standard, *standard),
    )


def _held(
    source: Source, names: list[str], dtype: str, operands: Mapping[str, np.ndarray]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Assignments to the models in formats of their own, and the modules that these use."""
    if source.hold is None:
        return (), ()
    given = {name: np.ascontiguousarray(floats.widen(operands[name], dtype)) for name in names}
    if dtype != "bfloat16":
        given = {name: np.ascontiguousarray(operands[name]) for name in names}
    lines: list[str] = []
    for name, content in source.hold(given).items():
        if isinstance(content, str):
            lines += [f"{name} = (", *(f"    {line!r}" for line in content.splitlines(True)), ")"]
            continue
        text = textwrap.wrap(base64.b64encode(content).decode(), 84)
        lines += [f"{name} = base64.b64decode(", *(f'    "{line}"' for line in text), ")"]
    standard = ("base64",) if any("base64" in line for line in lines) else ()
    return tuple(lines), standard


def _name(line: str) -> str:
    """The name that an import statement makes."""
    return re.split("[ ,.]+", line)[-1] if " as " in line else re.split("[ ,]+", line)[-1]
