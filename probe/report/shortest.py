"""Writes the shortest script that shows a difference: imports, operands, one print.

It is for reading and pasting; ``reproduce.py`` is for bits. Both have the same lines of the
library. It is run like that one, and is none unless it prints the two numbers that were measured.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.explain.comparison import Finding
from probe.explain.evidence import Evidence, value_of_bits
from probe.report import program, proof
from probe.report.program import of_case
from probe.targets.target import Target

# Numbers of an array that are written out; of more only those that are not 0, by their places.
LITERAL = 40

# Numbers that are not 0, up to which that is done.
SPARSE = 24

# Lines after which a script is no short one.
LINES = 60


@dataclass(frozen=True)
class Short:
    """A short script. ``ways``: what stands before ``python``, and what it then printed."""

    text: str
    ways: tuple[tuple[str, str], ...]

    @property
    def printed(self) -> str:
        """Its output, or both sides' with their commands."""
        if len(self.ways) == 1:
            return self.ways[0][1]
        return "\n".join(f"$ {before}python short.py\n{said}" for before, said in self.ways)


Runs = list[tuple[str, Mapping[str, str]]]


def shortest_script(
    finding: Finding,
    targets: tuple[Target, Target],
    versions: tuple[str, str],
    evidence: Evidence | None,
) -> Short | None:
    """The script, proved by a run; None where none is written or it shows other numbers.

    Two targets have one only where their lines are the same, and variables set them apart.
    """
    cases = finding.left, finding.right
    if evidence is None or any(case.split is not None for case in cases):
        return None
    switches = [proof.switch_variables(target) for target in targets]
    runs: Runs = [("", {})]  # what stands before ``python``, and its variables
    lines: list[str] = []
    calls: list[list[str]] = [[], []]
    try:
        libraries = [
            of_case(target, version, case, finding.operands(case))
            for target, version, case in zip(targets, versions, cases, strict=True)
        ]
        library = libraries[0]
        if (library.setup, library.body) != (libraries[1].setup, libraries[1].body):
            return None
        # x, w and b of each side, as far as it has them, as float64
        sides = []
        for case in cases:
            there = {"x": True, "w": case.weighted, "b": case.bias is not None}
            operands = zip("xwb", finding.operands(case), strict=True)
            sides.append(
                {
                    name: np.asarray(floats.widen(array, case.dtype), np.float64)
                    for name, array in operands
                    if there[name] and array is not None
                }
            )
        for name in sides[0]:
            whole = max((side[name] for side in sides), key=np.size)
            lines += _lines_of_array(name, whole, program.numpy_dtype(finding.case.dtype))
            for call, side in zip(calls, sides, strict=True):
                call.append(_slice_of_whole(name, side[name], whole))
    except InputError:
        return None
    places = [", ".join(map(str, side.output)) for side in (evidence.left, evidence.right)]
    printed = [f"f({', '.join(c)})[{p}]" for c, p in zip(calls, places, strict=True)]
    head = []
    if targets[0] != targets[1]:
        if printed[0] != printed[1]:
            return None
        del printed[1]
        words = ["".join(f"{name}={value} " for name, value in own.items()) for own in switches]
        runs = list(zip(words, switches, strict=True))
    elif switches[0]:
        settings = ", ".join(f"{name}={value!r}" for name, value in switches[0].items())
        head = ["import os", f"os.environ.update({settings})"]
    standard = [name if name.startswith("from") else f"import {name}" for name in library.standard]
    function = [f"def f({', '.join(sides[0])}):", *program.block(library.body)]
    imports = [*standard, "import numpy as np", *library.imports]
    text = [*head, *imports, *library.setup, *lines, *function, f"print({', '.join(printed)})"]
    short = program.formatted("\n".join(text) + "\n")
    values = [value_of_bits(side.library, side.dtype) for side in (evidence.left, evidence.right)]
    return _proved_by_run(short, runs, targets, values) if short.count("\n") <= LINES else None


def _slice_of_whole(name: str, array: np.ndarray, whole: np.ndarray) -> str:
    """Returns the slice of the whole array that a side takes. InputError: it is none."""
    if array.shape == whole.shape:
        return name
    sizes = zip(array.shape, whole.shape, strict=True)
    words = [":" if size == all_of_it else f":{size}" for size, all_of_it in sizes]
    part = whole[tuple(slice(size) for size in array.shape)]
    if not np.array_equal(part, array, equal_nan=True):
        raise InputError("case", name, "no slice gives it", "take the long script")
    while words[-1] == ":":
        words.pop()
    return f"{name}[{', '.join(words)}].copy()"


def _lines_of_array(name: str, array: np.ndarray, dtype: str) -> list[str]:
    """Returns the lines that make one array. InputError: too many numbers."""
    if array.size <= LITERAL:
        return [f"{name} = np.array({_nested_literal(array, dtype)}, np.{dtype})"]
    flat = array.reshape(-1)
    common = 0.0
    if np.count_nonzero(flat) > SPARSE and not np.isnan(flat).all():
        values, counts = np.unique(flat[~np.isnan(flat)], return_counts=True)
        common = float(values[np.argmax(counts)])  # the array is filled with it
    places = np.flatnonzero(flat != common)
    lines = [f"{name} = np.full({array.shape}, {_shortest_decimal(common, dtype)}, np.{dtype})"]
    if common == 0:
        lines = [f"{name} = np.zeros({array.shape}, np.{dtype})"]
    if len(places):
        first, last = int(places[0]), int(places[-1])
        where = f"[{', '.join(map(str, places.tolist()))}]"
        if len(places) > 1 and last - first + 1 == len(places):
            where = f"{first}:{last + 1}"
        # one number where all are alike
        alike = len(np.unique(flat[places])) == 1
        if len(places) > SPARSE and not alike:
            raise InputError("case", name, "too many numbers", "take the long script")
        shown = flat[places[:1]] if alike else flat[places]
        numbers = ", ".join(_shortest_decimal(v, dtype) for v in shown.tolist())
        lines.append(f"{name}.flat[{where}] = {numbers}")
    return lines


def _nested_literal(array: np.ndarray, dtype: str) -> str:
    if array.ndim == 0:
        return _shortest_decimal(float(array), dtype)
    return f"[{', '.join(_nested_literal(part, dtype) for part in array)}]"


def _shortest_decimal(value: float, dtype: str) -> str:
    """Returns the shortest decimal of a number of ``dtype``: ``1.``, ``0.3``, ``1.0000007``."""
    if not math.isfinite(value):
        return f'float("{value}")'
    if value == int(value) and abs(value) < 2**31:
        return f"{value:.0f}."  # not of an int, which has no -0
    if dtype == "float64":
        return repr(value)
    text = str(np.float32(value)) if dtype != "float16" else str(np.float16(value))
    return text.removesuffix("0") if text.endswith(".0") else text


def _proved_by_run(
    text: str, runs: Runs, targets: tuple[Target, Target], values: Sequence[Any]
) -> Short | None:
    """Returns the script with what it printed, where that is the two numbers."""
    ways = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "short.py"
        script.write_text(text, encoding="utf-8")
        for (before, variables), target in zip(runs, targets, strict=False):
            ran = proof.run_script(script, (target, target), variables)
            if ran.status:
                return None
            ways.append((before, ran.printed.strip()))
    words = " ".join(printed for _, printed in ways).split()
    try:
        same = [float(np.float64(word)) for word in words]
    except ValueError:
        return None
    wide = np.float64 if any(len(word) > 14 for word in words) else np.float32
    if not np.array_equal(np.array(same, wide), np.array(values, wide), equal_nan=True):
        return None
    return Short(text, tuple(ways))
