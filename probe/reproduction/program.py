"""Writes ``reproduce.py``: a finding as a script of one or two libraries and NumPy."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from probe import window
from probe.case import Case
from probe.comparison import Finding
from probe.errors import InputError
from probe.launch import library_variables
from probe.reproduction import code
from probe.reproduction.code import ScriptLibrary, of_case
from probe.runtimes.packages import release_recipe
from probe.target import Target

Slices = tuple[slice, ...]
SIDE_WORDS = ("left", "right")
NATIVE = ("cpu", "gpu", "cuda")


@dataclass(frozen=True)
class ScriptFunction:
    """One function of the script."""

    name: str
    parameters: str
    about: str
    lines: tuple[str, ...]


@cache
def templates() -> Environment:
    """Jinja's environment of the templates: nothing is escaped, what is not given is an error."""
    found = Environment(
        loader=PackageLoader("probe.reproduction"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    found.filters["quoted"] = entry_of_dict
    return found


def entry_of_dict(words: Mapping[str, str], name: str) -> str:
    """Returns one entry of a dict of dicts, as Python's formatters write it."""
    inner = ", ".join(f'"{key}": "{text}"' for key, text in words.items())
    return "\n".join(code.wrapped_statement(f'"{name}": {{{inner}}},', 4))


def script_of_finding(
    finding: Finding,
    targets: tuple[Target, Target],
    versions: tuple[str, str],
    same_place: bool,
) -> str:
    """Returns the script's text. ``versions``: of the two targets' libraries.

    ``same_place``: outputs of the same index are compared (two targets, two paddings). InputError:
    no script is written for the target, or for this case on it.
    """
    isolated = targets[0] != targets[1]
    work = _ScriptFunctions(finding, targets, versions, isolated)
    left, right = (work.side(number) for number in range(2))
    libraries = work.libraries
    shapes = finding.left.output_shape(), finding.right.output_shape()
    blocks = finding.blocks(same_place)
    names, dtype = [one.name for one in libraries], finding.case.dtype
    operands = _operand_assignments(finding)
    size = {"float64": 64, "float32": 32}.get(dtype, 16)
    used = [name for name in code.READERS if f" = {name}(" in "\n".join(operands)]
    kind, little = code.numpy_dtype(dtype), {"float16": "<f2", "float64": "<f8"}.get(dtype, "<f4")
    variables = [library_variables(target) for target in targets]
    own_imports = []
    for one in libraries:  # what the expression of the version needs
        root = one.version.partition(".")[0]
        needed = [line for line in one.imports if re.split("[ ,]+", line)[-1] == root]
        own_imports.append(code.block(needed))
    # two targets run in processes of their own, each of which imports and sets up its own library
    imported = [] if isolated else libraries[0].imports
    standard = {"platform", "sys", *(name for one in libraries for name in one.standard)}
    standard |= {"json", "os", "shlex", "subprocess"} if isolated else set()
    standard |= {"os"} if variables[0] else set()
    standard |= {"base64", "zlib"} if "unpacked" in used else set()
    text = (
        templates()
        .get_template("reproduce.py.j2")
        .render(
            title=finding_title(finding, targets, names, versions),
            about=what_is_compared(finding, targets, same_place),
            needs=needs(libraries),
            isolated=isolated,
            apart=interpreters_apart(targets, libraries) if isolated else [],
            pinned=[one.version for one in targets] if isolated else [None, None],
            names=names,
            standard=code.imports(
                one if one.startswith("from") else f"import {one}" for one in standard
            ),
            variables=variables,
            imports=code.imports(["import numpy as np", *imported]),
            setup=[] if isolated else list(libraries[0].setup),
            readers=[code.READERS[one].format(dtype=kind, little=little).strip() for one in used],
            operands=operands,
            blocks=[tuple(map(slices_as_written, one, shapes)) for one in blocks],
            functions=work.functions,
            left=left,
            right=right,
            versions=[one.version for one in libraries],
            own_imports=own_imports,
            library=names[0],
            said=sides_in_words(finding, targets),
            dtype=kind,
            size=size,
            width=4 if dtype == "bfloat16" else size // 8,
            narrow=dtype == "bfloat16",
        )
    )
    return code.spaced(text)


def docstring_lines(*texts: str) -> list[str]:
    """Returns texts as lines of a docstring."""
    return [line for text in texts for line in textwrap.wrap(text, 99)]


def said_of(finding: Any) -> list[str]:
    """Returns what each side is, of a finding on one target."""
    return [f"{finding.vary} {value}" for value in (finding.at, finding.against)]


def finding_title(
    finding: Finding, targets: tuple[Target, Target], names: list[str], versions: tuple[str, str]
) -> str:
    """Returns one line: which library gives different bits, and where."""
    first, op = f"{names[0]} {versions[0]}", finding.case.op
    if targets[0] != targets[1]:
        second = f"{names[1]} {versions[1]}"
        if first == second:
            what = "switches" if targets[0].device == targets[1].device else "processors"
            return f"{first}: {op} gives different bits with different {what}."
        if names[0] == names[1]:
            return f"{op}: the bits changed between {first} and {second}."
        return f"{first} and {second} give different bits for the same {op}."
    if finding.padding is not None:
        return f"{first}: {op} with {finding.left.padding_text} and {finding.right.padding_text}."
    sides = " and at ".join(sides_in_words(finding, targets))
    return f"{first}: {op} gives different bits at {sides}."


def sides_in_words(finding: Finding, targets: tuple[Target, Target]) -> list[str]:
    """Returns what each side is, in words, where it is not what the other one is."""
    found: list[list[str]] = [[], []]
    if finding.case.op == "network":
        return said_of(finding)
    for words, target, case, value in zip(
        *(found, targets, (finding.left, finding.right), (finding.at, finding.against)),
        strict=True,
    ):
        if targets[0] != targets[1]:
            words.append(target.text)
        if finding.paired:
            words.append(f"{finding.vary} {window.shown_axis_value(finding.vary, value)}")
        if finding.padding is not None:
            words.append(f"padding {case.padding_text}")
    return [", ".join(words) for words in found]


def what_is_compared(
    finding: Finding, targets: tuple[Target, Target], same_place: bool
) -> list[str]:
    """Returns what is computed, and which outputs are compared."""
    dtype = "" if finding.case.dtype in finding.label else f", {finding.case.dtype}"
    what = f"{finding.label}{dtype}, on {targets[0].text}"
    what += f" and {targets[1].text}" if targets[1] != targets[0] else ""
    which = (
        "Outputs of the same place are compared."
        if same_place
        else "Outputs are compared where both sides read the same inputs with the same weights."
    )
    return textwrap.wrap(f"{what}.", 99) + textwrap.wrap(which, 99)


def interpreters_apart(targets: tuple[Target, Target], libraries: list[ScriptLibrary]) -> list[str]:
    """Returns what sets the sides' interpreters apart, a line each: releases, processors."""
    found = []
    for word, target, library in zip(SIDE_WORDS, targets, libraries, strict=True):
        if target.version is not None:
            try:
                python = f", on Python {release_recipe(target.name, str(target.version)).python}"
            except InputError:  # the release is not in the table of releases and Pythons
                python = ""
            found.append(f"The {word} one has {library.name} {target.version}{python}.")
        if target.device.partition(":")[0] not in NATIVE:
            found.append(f"The {word} one runs on the processor {target.device}, or emulates it.")
    return found


def needs(libraries: list[ScriptLibrary]) -> list[str]:
    """Returns which distributions the script needs, and how it ends."""
    names = dict.fromkeys(name for one in libraries for name in one.modules)
    told = ", ".join(["numpy", *names]) if len(names) > 1 else " and ".join(["numpy", *names])
    ends = "Exit status: 1 they differ, 0 they don't, 2 it can't run."
    return textwrap.wrap(f"Needs {told}. {ends}", 99)


class _ScriptFunctions:
    """The script's functions, each text once."""

    def __init__(
        self,
        finding: Finding,
        targets: tuple[Target, Target],
        versions: tuple[str, str],
        isolated: bool,
    ) -> None:
        self.finding, self.isolated = finding, isolated
        self.given = list(zip(targets, versions, strict=True))
        self.functions: list[ScriptFunction] = []
        self.libraries: list[ScriptLibrary] = []

    def side(self, number: int) -> list[str]:
        """Returns the expressions whose sum is one side's outputs."""
        case = (self.finding.left, self.finding.right)[number]
        names = self._arguments(case)
        if case.split is None:
            return [f"{self._function(number, case, case, '')}({', '.join(names.values())})"]
        if case.dtype == "bfloat16":
            why = "two calls are added here, and NumPy adds no bfloat16"
            raise InputError("dtype", case.dtype, why, "use float32")
        at, rest = case.split, case.in_channels - case.split
        first = case.with_(in_channels=at, split=None)
        second = case.with_(in_channels=rest, split=None, bias=None)
        one = names | {"x": f"{names['x']}[..., :{at}]", "w": f"w[..., :{at}, :]"}
        two = {"x": f"{names['x']}[..., {at}:]", "w": f"w[..., {at}:, :]"}
        calls = []
        for part, given, word in ((first, one, "_first"), (second, two, "_rest")):
            copied = [f"np.ascontiguousarray({given[n]})" if n in "xw" else given[n] for n in given]
            calls.append(f"{self._function(number, case, part, word)}({', '.join(copied)})")
        return calls

    def _arguments(self, case: Case) -> dict[str, str]:
        """Returns what the side hands over: all operands, or the first of them."""
        finding = self.finding
        cut = [f":{case.batch}" if case.batch < finding.x.shape[0] else ":"]
        if case.spatial_rank:
            assert case.length is not None
            cut += [":"] * (case.spatial_rank - 1)
            cut.append(f":{case.length}" if case.length < finding.x.shape[-2] else ":")
        x = "x" if set(cut) == {":"} else f"x[{', '.join(cut)}]"
        fewer = case.filters < finding.w.shape[-1]
        found = {"x": x}
        if case.weighted:
            found["w"] = f"w[..., :{case.filters}]" if fewer else "w"
        if case.bias is not None:
            found["b"] = f"b[:{case.filters}]" if fewer else "b"
        whole = {"x", "w", "b"}
        return {n: t if t in whole else f"np.ascontiguousarray({t})" for n, t in found.items()}

    def _function(self, number: int, case: Case, part: Case, word: str) -> str:
        """Returns the name of the function that computes a case; a new one unless there is its
        like."""
        target, version = self.given[number]
        operands = self.finding.operands(case)
        if part is not case:
            at = case.split or 0
            cut = slice(0, at) if word == "_first" else slice(at, None)
            operands = operands[0][..., cut], operands[1][..., cut, :], operands[2]
        found = of_case(target, version, part, operands)
        if len(self.libraries) <= number:
            self.libraries.append(found)
        parameters = ", ".join(
            ["x", *(["w"] if part.weighted else []), *(["b"] if part.bias is not None else [])]
        )
        lines = found.body
        if self.isolated:
            for before in (found.setup, code.imports(found.imports)):
                lines = (*before, *[""] * bool(before), *lines)
        made = ScriptFunction(
            "", parameters, "The outputs, channels last.", tuple(code.block(lines))
        )
        for one in self.functions:
            if replace(one, name="") == made:
                return one.name
        name = f"compute{word}" if number == 0 else f"compute_right{word}"
        self.functions.append(replace(made, name=name))
        return name


def _operand_assignments(finding: Finding) -> list[str]:
    """Assignments to x, w and b, as far as the operator has them."""
    found = {"x": finding.x}
    if finding.case.weighted:
        found["w"] = finding.w
    if finding.b is not None:
        found["b"] = finding.b
    dtype = finding.case.dtype
    written = {name: code.exact_array(array, dtype) for name, array in found.items()}
    return [line for name, array in written.items() for line in code.assignments(name, array)]


def slices_as_written(part: Slices, shape: tuple[int, ...]) -> str:
    """Returns slices as they are written: ``:, 0:3``; what is whole at the end is left out."""
    shown = [
        ":" if (one.start, one.stop) == (0, size) else f"{one.start}:{one.stop}"
        for one, size in zip(part, shape, strict=True)
    ]
    while len(shown) > 1 and shown[-1] == ":":
        shown.pop()
    return ", ".join(shown)
