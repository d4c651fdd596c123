"""Writes the shortest script that shows a difference: imports, operands, one print.

It is for reading and pasting; ``reproduce.py`` is for bits. It is run like that one, and is none
unless it prints the two numbers that were measured.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe import floats
from probe.case import Case
from probe.comparison import Finding
from probe.errors import InputError
from probe.explaining.evidence import Evidence, value_of_bits
from probe.reproduction import program, proof
from probe.reproduction.program import ScriptLibrary, of_case
from probe.target import Target

# Numbers of an array that are written out; of more only those that are not 0, by their places.
LITERAL = 40

# Numbers that are not 0, up to which that is done.
SPARSE = 24

# Lines after which a script is no short one.
LINES = 60

# What makes a library's own array of one, by targets whose calls are plain expressions.
WRAPPED = {"torch": "torch.tensor", "tensorflow": "tf.constant"}

Index = tuple[int, ...]


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


@dataclass(frozen=True)
class _NumPySide:
    """One side: NumPy operands as the library takes them, its call, and the number's place."""

    arrays: dict[str, np.ndarray]
    call: str
    place: str


Runs = list[tuple[str, Mapping[str, str]]]


def shortest_script(
    finding: Finding,
    targets: tuple[Target, Target],
    versions: tuple[str, str],
    evidence: Evidence | None,
) -> Short | None:
    """The script, proved by a run; None where none is written or it shows other numbers."""
    cases = finding.left, finding.right
    if evidence is None or any(case.split is not None for case in cases):
        return None
    sides = evidence.left, evidence.right
    places = [side.output for side in sides]
    switches = [proof.switch_variables(target) for target in targets]
    head = ""
    runs: Runs = [("", {})]  # what stands before ``python``, and its variables
    try:
        libraries = [
            of_case(target, version, case, finding.operands(case))
            for target, version, case in zip(targets, versions, cases, strict=True)
        ]
        if targets[0] == targets[1]:
            if switches[0]:
                settings = ", ".join(f"{name}={value!r}" for name, value in switches[0].items())
                head = f"import os; os.environ.update({settings})\n".replace("'", '"')
            texts = [
                _native_script(finding, targets[0], libraries, cases, places),
                _general(finding, libraries, cases, places),
            ]
        else:
            each = zip(targets, libraries, cases, places, strict=True)
            texts = [_native_script(finding, t, [lib], [case], [at]) for t, lib, case, at in each]
            texts = texts[:1] if texts[0] == texts[1] else []
            words = ["".join(f"{name}={value} " for name, value in own.items()) for own in switches]
            runs = list(zip(words, switches, strict=True))
    except InputError:
        return None
    values = [value_of_bits(side.library, side.dtype) for side in sides]
    for text in (head + text for text in texts if text):
        if text.count("\n") <= LINES and (short := _proved_by_run(text, runs, targets, values)):
            return short
    return None


def _native_script(
    finding: Finding,
    target: Target,
    libraries: Sequence[ScriptLibrary],
    cases: Sequence[Case],
    places: Sequence[Index],
) -> str:
    """A script whose arrays are the library's own and whose calls are expressions; or empty."""
    if target.name not in WRAPPED:
        return ""
    maker = WRAPPED[target.name]
    sides = []
    for library, case, place in zip(libraries, cases, places, strict=True):
        if (side := _side(library, case, finding, place, maker)) is None:
            return ""
        sides.append(side)
    setup = [line for line in libraries[0].setup if line != "torch.set_grad_enabled(False)"]
    if any(line.startswith((" ", "def ")) or not line for line in setup):
        return ""
    whole = {n: max((s.arrays[n] for s in sides), key=np.size) for n in sides[0].arrays}
    lines: list[str] = []
    numpy = False
    for name, array in whole.items():
        written, uses = _lines_of_array(name, array, finding.case.dtype, maker)
        lines, numpy = [*lines, *written], numpy or uses
    calls = []
    for side in sides:  # its number, as an expression of the whole arrays
        call = side.call
        for name, array in side.arrays.items():
            cut = _slice_of_whole(name, array, whole[name], target.name == "torch")
            word = rf"(?<=[(, ]){name}(?=[,)])"
            call = re.sub(word, lambda _, c=cut: c, call)  # type: ignore[misc]
        calls.append(call + side.place)
    used = "\n".join(calls)
    imports = [i for i in libraries[0].imports if not i.endswith(" as F") or "F." in used]
    head = ["import numpy as np"] * numpy + imports + setup
    return "\n".join([*head, *lines, *_printing(calls)]) + "\n"


def _side(
    library: ScriptLibrary, case: Case, finding: Finding, place: Index, maker: str
) -> _NumPySide | None:
    """One side, read off the stages of its library's source; None where they are not so plain."""
    source = library.source
    if source is None or source.make or source.hold is not None:
        return None
    arrays = _wide_operands(finding, case)
    for line in source.enter + source.load:
        name, _, text = line.partition(" = ")
        inner = re.fullmatch(rf"{re.escape(maker)}\((.*)\)", text)
        text = inner[1] if inner else text
        text = re.sub(r", dtype=torch\.bfloat16$|, tf\.bfloat16$", "", text)
        taken = text if re.fullmatch(r"[xwb](\[0\])?(\.T\.copy\(\))?|np\..*", text) else None
        if name not in arrays or taken is None:
            return None
        # a line of our own backend, matched above: a name or an expression of NumPy
        arrays[name] = np.asarray(eval(taken, {"np": np}, dict(arrays)))
    call = ""
    for line in source.run:
        name, _, text = line.partition(" = ")
        if name != "y":
            return None
        call = re.sub(r"\by\b", lambda _, now=call: now, text)  # type: ignore[misc]
    # of ``place`` (batch, *positions, filter) in the library's layout
    index: Index | None = None
    if source.leave.startswith("np.moveaxis("):
        index = (place[0], place[-1], *place[1:-1])
    elif ".reshape(1, -1, " in source.leave:
        index = place[1:]
    elif re.fullmatch(r"y(\.\w+\(\))*", source.leave):
        index = place
    if index is None or not call:
        return None
    if call.startswith("F."):  # without arguments that are PyTorch's defaults
        call = re.sub(r", (stride=1|padding=0|dilation=1|groups=1)(?=[,)])", "", call)
    tail = re.match(r"(?:np\.moveaxis\()?y((?:\.\w+\(\))*\.numpy\(\))", source.leave)
    number = f"[{', '.join(map(str, index))}]{tail[1] if tail else ''}"
    return _NumPySide(arrays, call, number)


def _wide_operands(finding: Finding, case: Case) -> dict[str, np.ndarray]:
    """Returns x, w and b of a side, as far as it has them, as float64."""
    there = {"x": True, "w": case.weighted, "b": case.bias is not None}
    return {
        name: np.asarray(floats.widen(array, case.dtype), np.float64)
        for name, array in zip("xwb", finding.operands(case), strict=True)
        if there[name] and array is not None
    }


def _slice_of_whole(name: str, array: np.ndarray, whole: np.ndarray, views: bool) -> str:
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
    copied = ".contiguous()" if views and not part.flags.c_contiguous else ""
    return f"{name}[{', '.join(words)}]{copied}"


def _lines_of_array(name: str, array: np.ndarray, dtype: str, maker: str) -> tuple[list[str], bool]:
    """Returns the lines that make one array, and whether they use NumPy."""
    kind = {"torch.tensor": "dtype=torch.", "tf.constant": "tf.", "np.array": "np."}[maker]
    needs = maker == "np.array" or dtype != "float32"
    ending = f", {kind}{dtype}" if needs else ""
    if array.size <= LITERAL:
        return [f"{name} = {maker}({_nested_literal(array, dtype)}{ending})"], maker == "np.array"
    flat = array.reshape(-1)
    common = 0.0
    if np.count_nonzero(flat) > SPARSE and not np.isnan(flat).all():
        values, counts = np.unique(flat[~np.isnan(flat)], return_counts=True)
        common = float(values[np.argmax(counts)])  # the array is filled with it
    places = np.flatnonzero(flat != common)
    wide = dtype if dtype in ("float64", "float16") else "float32"
    makers = {0.0: "np.zeros({}, {})", 1.0: "np.ones({}, {})"}
    filled = makers.get(common, f"np.full({{}}, {_shortest_decimal(common, dtype)}, {{}})")
    lines = [f"{name} = {filled.format(array.shape, f'np.{wide}')}"]
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
    if maker != "np.array":
        lines.append(f"{name} = {maker}({name}{ending if wide != dtype else ''})")
    return lines, True


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


def _printing(calls: Sequence[str]) -> list[str]:
    """Returns one print, on a line of its own for each call where they are long."""
    line = f"print({', '.join(calls)})"
    return [line] if len(line) <= 100 else [f"print({calls[0]},", f"      {calls[-1]})"]


def _general(
    finding: Finding,
    libraries: Sequence[ScriptLibrary],
    cases: Sequence[Case],
    places: Sequence[Index],
) -> str:
    """A script with the library's function as ``reproduce.py`` has it, and NumPy's operands."""
    library, dtype = libraries[0], finding.case.dtype
    if library.body != libraries[1].body:
        return ""
    lines: list[str] = []
    sides = [_wide_operands(finding, case) for case in cases]
    calls: list[list[str]] = [[], []]
    for name in sides[0]:
        whole = max((side[name] for side in sides), key=np.size)
        lines += _lines_of_array(name, whole, program.numpy_dtype(dtype), "np.array")[0]
        for call, side in zip(calls, sides, strict=True):
            cut = _slice_of_whole(name, side[name], whole, False)
            call.append(cut if cut == name else f"{cut}.copy()")
    body = program.block(library.body)
    printed = [
        f"f({', '.join(call)})[{', '.join(map(str, place))}]"
        for call, place in zip(calls, places, strict=True)
    ]
    standard = [s if s.startswith("from") else f"import {s}" for s in library.standard]
    head = [*standard, "import numpy as np", *library.imports, *library.setup, *lines]
    return "\n".join([*head, f"def f({', '.join(sides[0])}):", *body, *_printing(printed)]) + "\n"


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
