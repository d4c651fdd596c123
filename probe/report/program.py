"""Writes what a library's user would write: lines that compute a case or a layer, and
``reproduce.py``, a finding as a script of one or two libraries and NumPy.

The lines are those that a backend emits, which the worker compiles and runs, so a script holds what
was measured; ruff lays them out. Operands have their exact bits. ``shortest_script`` has the same
lines for reading and pasting: imports, operands, one print. It is run like ``reproduce.py``, and is
none unless it prints the two numbers that were measured.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from probe.case import floats, layout
from probe.case.case import Case
from probe.case.errors import InputError
from probe.case.operation import operand_names
from probe.explain.evidence import Evidence, value_of_bits
from probe.explain.runs import Arrays, Finding
from probe.explain.verdict import BUG, NOT_KNOWN, ROUNDING, Verdict
from probe.order import window
from probe.report import proof
from probe.targets import backends
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.source import InputShape, Writing
from probe.targets.installation import release_recipe
from probe.targets.launch import library_variables
from probe.targets.target import Target

WIDTH = 100


def formatted(text: str) -> str:
    """A program as ruff lays it out: imports in isort's order, lines of ``WIDTH`` characters.

    Where ruff isn't installed the lines stay as they ran.
    """
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--isolated", "--quiet", f"--line-length={WIDTH}", "--target-version=py37", "-"]
    for command in (["check", "--select=I", "--fix-only"], ["format"]):
        done = subprocess.run(
            [*ruff, *command, *options], input=text, capture_output=True, text=True, check=False
        )
        text = done.stdout if done.returncode == 0 else text
    return text


def in_docstring(text: object) -> str:
    """A text as it stands within a docstring, but at its end."""
    shown = "".join(letter if letter.isprintable() else "_" for letter in str(text))
    return shown.replace("\\", "\\\\").replace('"' * 3, "'" * 3)


def block(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line.strip() else "" for line in lines]


# Numbers up to which all are written; of a longer array only those unlike most of it, up to SPARSE.
WRITTEN = 256
SPARSE = 24


def assignments(name: str, array: np.ndarray) -> list[str]:
    """Assignments that make the array ``name``, whose dtype is one of NumPy's own, with its bits.

    Numbers have their shortest decimals; those that are too many are packed.
    """
    flat = array.reshape(-1)
    dtype = f"np.{array.dtype.name}" if array.dtype.kind in "iuf" else f'"{array.dtype.name}"'
    if array.size <= SPARSE and array.dtype.kind in "biuf":
        return [f"{name} = np.array({_nested_literal(array)}, {dtype})"]
    if array.dtype.kind == "f" and array.size:
        values, counts = np.unique(flat.view(f"u{flat.itemsize}"), return_counts=True)
        common = values[np.argmax(counts)]  # the array is filled with it
        places = np.flatnonzero(flat.view(common.dtype) != common)
        # mostly alike, as after shrinking: the few that count are read at a glance
        alike = len(np.unique(flat.view(common.dtype)[places])) == 1
        if (alike or len(places) <= SPARSE) and 2 * len(places) < array.size:
            filled = _shortest_decimal(common.view(array.dtype))
            zeros = f"np.zeros({array.shape}, {dtype})" if not common else ""
            lines = [f"{name} = {zeros or f'np.full({array.shape}, {filled}, {dtype})'}"]
            if len(places):
                first, last = int(places[0]), int(places[-1])
                where = f"[{', '.join(map(str, places.tolist()))}]"
                if len(places) > 1 and last - first + 1 == len(places):
                    where = f"{first}:{last + 1}"
                shown = flat[places[:1]] if alike else flat[places]
                lines.append(f"{name}.flat[{where}] = {', '.join(map(_shortest_decimal, shown))}")
            if sum(map(len, lines)) <= 12 * WRITTEN:
                return lines
    if array.size <= WRITTEN and array.dtype.kind in "iuf":
        numbers = " ".join(_shortest_decimal(value).strip('flot()"') for value in flat)
        return [f"{name} = np.array({_pieces(numbers)}.split(), {dtype}).reshape({array.shape})"]
    # the script may run on a machine of the other byte order, so the order is written down
    little = array.astype(array.dtype.newbyteorder("<"))
    packed = _pieces(base64.b64encode(zlib.compress(little.tobytes(), 9)).decode())
    shape = "".join(f", {size}" for size in array.shape)
    return [f'{name} = unpacked({packed}, "{little.dtype.str}"{shape})']


def _pieces(text: str) -> str:
    """A long text in pieces, since no formatter breaks strings."""
    pieces = textwrap.wrap(text, 88, break_on_hyphens=False)
    end = " " if " " in text else ""
    return f"({' '.join(chr(34) + piece + end + chr(34) for piece in pieces)})"


def _nested_literal(array: np.ndarray) -> str:
    if array.ndim == 0:
        return _shortest_decimal(array[()])
    return f"[{', '.join(map(_nested_literal, array))}]"


def _shortest_decimal(value: Any) -> str:
    """The shortest decimal of one of NumPy's numbers: ``1.``, ``0.3``, ``1.0000007``."""
    if not isinstance(value, np.floating):
        return str(value)
    if not np.isfinite(value):
        return f'float("{value}")'
    if float(value).is_integer() and abs(float(value)) < 2**31:
        return f"{value:.0f}."  # not of an int, which has no -0
    return str(value).removesuffix("0") if str(value).endswith(".0") else str(value)


# The name of probe's own arithmetic.
NUMPY = "probe on NumPy"


@dataclass(frozen=True)
class ScriptLibrary:
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


def of_case(target: Target, version: str, case: Case, operands: Arrays) -> ScriptLibrary:
    """The lines by which a script computes ``case`` (its length set) with a release of a target.

    ``operands``: x, w and b of the case, for libraries whose models hold them.

    Raises InputError where no script is written for it.
    """
    if target.name == "reference":  # probe's own arithmetic: such a script needs probe
        enter, leave, floats_import = "{}", "{}", tuple[str, ...]()
        if case.dtype == "bfloat16":  # its arithmetic takes the 16 bits
            floats_import = ("from probe.case import floats",)
            enter = 'floats.round_to({}, "bfloat16")'
            leave = 'floats.widen({}, "bfloat16").astype(np.float32)'
        names = ["w"] * case.weighted + ["b"] * (case.bias is not None)
        operand_items = ", ".join(f'"{name}": {enter.format(name)}' for name in names)
        body: tuple[str, ...] = (
            *floats_import,
            "from probe.targets.backends.reference import Reference",
            "",
            "backend = Reference()",
            f'backend.start({dict(target.switches)!r}, "cpu")',
            f"operator = backend.operator({case.spec()!r})",
            f"run = operator.bind({{{operand_items}}})",
            f"y = operator.output(run(operator.input({enter.format('x')})))",
            f"return {leave.format('y')}",
        )
        return ScriptLibrary(NUMPY, "np.__version__", (), body, modules=("probe-numerics",))
    if not is_written(target):
        todo = f"use one of {', '.join(backends.BACKENDS)}"
        raise InputError("target", target.text, "no script is written for it", todo)
    backend = backends.get(target.name)().described(dict(target.switches), target.device, version)
    layer, arrays = case.spec(), dict(zip("xwb", operands, strict=True))
    held: list[str] = []
    try:
        backend.lay(layout.layout_of_spec(layer))
        backend.check(layer)
        source = backend.emit(layer, InputShape(layer, tuple(operands[0].shape)))
        if source.hold is not None:  # models in formats of their own
            wide = {}
            for name in operand_names(layer):
                array = arrays[name]
                assert array is not None
                if case.dtype == "bfloat16":
                    array = floats.widen(array, case.dtype)
                wide[name] = np.ascontiguousarray(array)
            for name, content in source.hold(wide).items():
                if isinstance(content, str):
                    pieces = [repr(line) for line in content.splitlines(True)]
                    held.append(f"{name} = ({' '.join(pieces)})")
                else:
                    text = textwrap.wrap(base64.b64encode(content).decode(), 84)
                    pieces = [repr(line) for line in text]
                    held.append(f"{name} = base64.b64decode({' '.join(pieces)})")
    except Unsupported as error:
        why = f"no script is written for {error}"
        raise InputError("target", target.text, why, "use another target") from None
    body = (*source.make, *source.enter, *held, *source.load, *source.run, f"return {source.leave}")
    words = set(re.findall(r"\w+", "\n".join((*body, *backend.setup(), backend.version_text))))
    imports = []
    for line in backend.imports:  # a script imports what it uses, and no more
        start, _, names_imported = line.partition(" import ")
        if not line.startswith("from "):
            imports += [line] * (re.split("[ .]+", line)[-1] in words)
        elif used := [n for n in names_imported.split(", ") if n.split(" ")[-1] in words]:
            imports.append(f"{start} import {', '.join(used)}")
    standard = (*backend.standard, *source.standard)
    if any("base64." in line for line in held):
        standard += ("base64",)
    return ScriptLibrary(
        backend.title,
        backend.version_text,
        tuple(imports),
        body,
        setup=backend.setup(),
        modules=backend.modules,
        standard=standard,
    )


def is_written(target: Target) -> bool:
    return issubclass(backends.get(target.name), Writing)


def library_title(target: Target) -> str:
    """The name of the target's library, as its users write it."""
    return str(backends.get(target.name).title) if is_written(target) else NUMPY


@dataclass(frozen=True)
class ScriptFunction:
    """One function of the script."""

    name: str
    parameters: str
    about: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ScriptSide:
    """One side of a script: ``calls`` is the expression of its outputs.

    ``words``: the side in words. ``library``: as its users write it; ``version``: the expression
    that tells it, which needs ``imports``. ``pinned``: the release that it must be, None for any.
    ``variables``: of the environment.
    """

    calls: str
    words: str
    library: str
    version: str
    variables: dict[str, str]
    imports: Sequence[str] = ()
    pinned: str | None = None


@dataclass(frozen=True)
class HeldSides:
    """Both sides of an output beside their exact values, as lines.

    ``says``: the verdict. ``sides``: a name, the output and its terms, as expressions. ``bound``:
    lines that say what rounding can do. ``least``: the power of two of the smallest number.
    """

    says: str
    sides: Sequence[tuple[str, str, str]]
    bound: Sequence[str]
    digits: int
    least: int

    @classmethod
    def of(cls, verdict: Verdict, outputs: Sequence[str] = ()) -> HeldSides | None:
        """``outputs``: the two as expressions, elements of ``one`` and ``two`` where these are a
        case's. None where no exact value is known."""
        if verdict.sides is None or verdict.what == NOT_KNOWN:
            return None
        left, right = verdict.sides
        longer = max(verdict.sides, key=lambda side: len(side.terms))
        if not outputs:
            places = [", ".join(map(str, side.place)) for side in verdict.sides]
            outputs = [f"one[{places[0]}]", f"two[{places[1]}]"]
        least = 1 - longer.least.denominator.bit_length()
        named = zip(("left", "right"), outputs, (left.source, right.source), strict=True)
        return cls(verdict.says, list(named), longer.bound_lines, longer.digits, least)


@dataclass(frozen=True)
class Script:
    """What a script says and computes. Its text: ``str(script)``.

    ``about``: paragraphs below the title. ``needs``: distributions beside NumPy. ``isolated``: each
    side runs in a process of its own. ``standard``: modules of Python's own, or statements that
    import from them. ``imports``: before ``setup``, in every process. ``operands``: lines that make
    the arrays; ``stored``: the file beside it where they are read from. ``compared``: which
    outputs, on the left and on the right, as NumPy's indices; ``indexed``: as flat ones. ``dtype``:
    of the outputs; bfloat16 stands in float32. ``apart``: what sets the sides' interpreters apart,
    a sentence each: then both have to be named. ``held``: both sides beside their exact values;
    None: these aren't known, and they may be ``apart_by`` as many ulps.
    """

    title: str
    about: Sequence[str]
    needs: Sequence[str]
    sides: tuple[ScriptSide, ScriptSide]
    isolated: bool
    standard: set[str]
    imports: Sequence[str]
    setup: Sequence[str]
    operands: Sequence[str]
    compared: Sequence[tuple[str, str]]
    functions: Sequence[ScriptFunction]
    dtype: str
    stored: str = ""
    indexed: bool = False
    apart: Sequence[str] = ()
    held: HeldSides | None = None
    apart_by: int = 0

    def __str__(self) -> str:
        environment = Environment(
            loader=PackageLoader("probe.report"),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        environment.filters |= {"literal": repr, "in_docstring": in_docstring}
        # only a number of a floating format has a place among its neighbours
        floating = self.dtype in floats.FORMATS
        bits = floats.format_of(self.dtype).bits if floating else 8 * np.dtype(self.dtype).itemsize
        narrow = self.dtype == "bfloat16"
        text = environment.get_template("reproduce.py.j2").render(
            vars(self),
            needs=list(dict.fromkeys(["numpy", *self.needs])),
            left=self.sides[0],
            right=self.sides[1],
            unpacked=" = unpacked(" in "\n".join(self.operands),
            floating=floating,
            narrow=narrow,
            size=bits,
            width=4 if narrow else bits // 8,
        )
        return formatted(text)


# Processors that are not emulated.
NATIVE = ("cpu", "gpu", "cuda")


def script_of_finding(
    finding: Finding,
    targets: tuple[Target, Target],
    versions: tuple[str, str],
    same_place: bool,
    verdict: Verdict | None = None,
    isolated: bool | None = None,
) -> Script:
    """The script of a finding. ``versions``: of the two targets' libraries.

    ``same_place``: outputs of the same index are compared (two targets, two paddings). ``verdict``:
    what the script asserts; None: that nothing differs. ``isolated``: each side runs in a process
    of its own; None: where there are two targets. InputError: no script is written for the target,
    or for this case on it.
    """
    functions: list[ScriptFunction] = []
    isolated, dtype = targets[0] != targets[1] if isolated is None else isolated, finding.case.dtype
    sides_of = [
        _library_and_call(finding, case, (target, version), number, isolated, functions)
        for number, (case, target, version) in enumerate(
            zip((finding.left, finding.right), targets, versions, strict=True)
        )
    ]
    libraries, calls = [library for library, _ in sides_of], [call for _, call in sides_of]
    names = [library.name for library in libraries]
    # x, w and b, as far as the operator has them
    arrays = {"x": finding.x} | ({"w": finding.w} if finding.case.weighted else {})
    arrays |= {} if finding.b is None else {"b": finding.b}
    operands: list[str] = []
    for name, array in arrays.items():
        # NumPy has no bfloat16: its numbers are written as float32
        written = "float32" if dtype == "bfloat16" else dtype
        wide = np.asarray(floats.widen(array, dtype)).astype(written)
        operands += assignments(name, wide)
    sides, apart = [], list[str]()
    words = sides_in_words(finding, targets)
    for word, target, library, call, about in zip(
        ("left", "right"), targets, libraries, calls, words, strict=True
    ):
        root = library.version.partition(".")[0]
        needed = [line for line in library.imports if re.split("[ ,]+", line)[-1] == root]
        pinned = target.version if isolated else None
        emulated = isolated and target.device.partition(":")[0] not in NATIVE
        variables = library_variables(target)
        sides.append(
            ScriptSide(*(call, about, library.name, library.version, variables, needed, pinned))
        )
        if pinned is not None:
            try:
                python = f", on Python {release_recipe(target.name, str(pinned)).python}"
            except InputError:  # the release is not in the table of releases and Pythons
                python = ""
            apart.append(f"The {word} one has {library.name} {pinned}{python}.")
        if emulated:
            apart.append(f"The {word} one runs on the processor {target.device}, or emulates it.")
    what = f"{finding.label}, {dtype}" if dtype not in finding.label else finding.label
    what += f", on {targets[0].text}" + (f" and {targets[1].text}" if isolated else "")
    which = "Outputs are compared where both sides read the same inputs with the same weights."
    shapes = finding.left.output_shape(), finding.right.output_shape()
    compared = []
    for part in finding.blocks(same_place):
        left, right = (slices_as_written(part, shape) for shape in shapes)
        compared.append((f"np.s_[{left}]", f"np.s_[{right}]"))
    return Script(
        title=finding_title(finding, targets, names, versions),
        about=[f"{what}.", "Outputs of the same place are compared." if same_place else which],
        needs=[name for library in libraries for name in library.modules],
        sides=(sides[0], sides[1]),
        isolated=isolated,
        standard={name for library in libraries for name in library.standard},
        # two targets run in processes of their own, each of which imports and sets up its library
        imports=["import numpy as np", *([] if isolated else libraries[0].imports)],
        setup=[] if isolated else libraries[0].setup,
        operands=operands,
        compared=compared,
        functions=functions,
        dtype=dtype,
        apart=apart,
        held=None if verdict is None else HeldSides.of(verdict),
    )


def finding_title(
    finding: Finding, targets: tuple[Target, Target], names: list[str], versions: tuple[str, str]
) -> str:
    """One line: which library gives different bits, and where."""
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
    """Each side in words, by what sets it apart."""
    values = finding.at, finding.against
    if finding.case.op == "network":
        return [f"{finding.vary} {value}" for value in values]
    sides = []
    for target, case, value in zip(targets, (finding.left, finding.right), values, strict=True):
        words = [target.text] * (targets[0] != targets[1])
        if finding.paired:
            words.append(f"{finding.vary} {window.shown_axis_value(finding.vary, value)}")
        if finding.padding is not None:
            words.append(f"padding {case.padding_text}")
        sides.append(", ".join(words))
    return sides


def named_function(
    functions: list[ScriptFunction], name: str, parameters: str, about: str, lines: tuple[str, ...]
) -> str:
    """Adds a function to a script's unless its like is there under another name; the name of it."""
    for function in functions:
        if (parameters, about, lines) == (function.parameters, function.about, function.lines):
            return function.name
    functions.append(ScriptFunction(name, parameters, about, lines))
    return name


def _library_and_call(
    finding: Finding,
    case: Case,
    where: tuple[Target, str],
    number: int,
    isolated: bool,
    functions: list[ScriptFunction],
) -> tuple[ScriptLibrary, str]:
    """One side's library, and the expression of its outputs, whose functions are added.

    ``where``: its target, and the release of the library there.
    """
    x, w, b = finding.operands(case)
    # what the side hands over: all operands, or the first of them
    cut = [f":{case.batch}" if case.batch < finding.x.shape[0] else ":"]
    if case.spatial_rank:
        assert case.length is not None
        cut += [":"] * (case.spatial_rank - 1)
        cut.append(f":{case.length}" if case.length < finding.x.shape[-2] else ":")
    fewer = case.filters < finding.w.shape[-1]
    passed = {"x": "x" if set(cut) == {":"} else f"x[{', '.join(cut)}]"}
    if case.weighted:
        passed["w"] = f"w[..., :{case.filters}]" if fewer else "w"
    if case.bias is not None:
        passed["b"] = f"b[:{case.filters}]" if fewer else "b"
    passed = {
        n: text if text == n else f"np.ascontiguousarray({text})" for n, text in passed.items()
    }
    parts = [(case, (x, w, b), passed, "")]
    if (at := case.split) is not None:
        if case.dtype == "bfloat16":
            why = "two calls are added here, and NumPy adds no bfloat16"
            raise InputError("dtype", case.dtype, why, "use float32")
        first = case.with_(in_channels=at, split=None)
        second = case.with_(in_channels=case.in_channels - at, split=None, bias=None)
        parts = []
        for part, half, text, word in (
            (first, slice(at), f":{at}", "_first"),
            (second, slice(at, None), f"{at}:", "_rest"),
        ):
            copied = {
                "x": f"np.ascontiguousarray({passed['x']}[..., {text}])",
                "w": f"np.ascontiguousarray(w[..., {text}, :])",
            }
            if part.bias is not None:
                copied["b"] = passed["b"]
            parts.append((part, (x[..., half], w[..., half, :], b), copied, word))
    called, libraries = [], []
    for part, operands, arguments, word in parts:
        library = of_case(*where, part, operands)
        libraries.append(library)
        lines = [*library.imports, "", *library.setup, "", *library.body]
        name = f"compute{'_right' if number == 1 else ''}{word}"
        name = named_function(
            functions,
            name,
            ", ".join(arguments),
            "The outputs, channels last.",
            tuple(lines if isolated else library.body),
        )
        called.append(f"{name}({', '.join(arguments.values())})")
    return libraries[0], " + ".join(called)


def slices_as_written(part: tuple[slice, ...], shape: tuple[int, ...]) -> str:
    """Slices as they are written: ``:, 0:3``; what is whole at the end is left out."""
    shown = [
        ":" if (axis.start, axis.stop) == (0, size) else f"{axis.start}:{axis.stop}"
        for axis, size in zip(part, shape, strict=True)
    ]
    while len(shown) > 1 and shown[-1] == ":":
        shown.pop()
    return ", ".join(shown)


# Lines up to which a script counts as short.
LINES = 75


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
        return "\n".join(f"$ {before}python short.py\n{output}" for before, output in self.ways)


Runs = list[tuple[str, Mapping[str, str]]]


def shortest_script(
    finding: Finding,
    targets: tuple[Target, Target],
    versions: tuple[str, str],
    evidence: Evidence | None,
    verdict: Verdict,
) -> Short | None:
    """The same lines without what ``reproduce.py`` says of them, proved by a run; None where none
    is written or it shows other numbers.

    Two targets have such a script only where their lines are the same and variables set them apart.
    """
    if evidence is None or any(case.split is not None for case in (finding.left, finding.right)):
        return None
    try:
        script = script_of_finding(finding, targets, versions, True, verdict, isolated=False)
    except InputError:
        return None
    apart, calls = targets[0] != targets[1], [side.calls for side in script.sides]
    if len(script.functions) > 1:
        return None
    places = [", ".join(map(str, side.output)) for side in (evidence.left, evidence.right)]
    values = [value_of_bits(side.library, side.dtype) for side in (evidence.left, evidence.right)]
    judged = verdict.sides if verdict.what in (ROUNDING, BUG) else None
    if judged is not None:  # the judged output, which need not be the output explained in full
        places = [", ".join(map(str, side.place)) for side in judged]
        values = [side.y for side in judged]
    shown = [f"{call}[{place}]" for call, place in zip(calls, places, strict=True)]
    switches = [proof.switch_variables(target) for target in targets]
    runs: Runs = [("", {})]  # what stands before ``python``, and its variables
    head = []
    if apart:
        if shown[0] != shown[1]:
            return None
        del shown[1]
        words = [
            "".join(f"{name}={value} " for name, value in switch.items()) for switch in switches
        ]
        runs = list(zip(words, switches, strict=True))
    elif switches[0]:
        settings = ", ".join(f"{name}={value!r}" for name, value in switches[0].items())
        head = ["import os", f"os.environ.update({settings})"]
    ends, wrong = [f"print({', '.join(shown)})"], [False] * len(runs)
    if judged is not None:
        left, right = judged
        if left.terms != right.terms or left.bound_lines != right.bound_lines:
            return None
        wrong = [not side.within for side in judged]
        wrong = wrong if apart else [any(wrong)]
        head.append("from fractions import Fraction")
        ends = [
            f"values = [{', '.join(shown)}]",
            "print(*values)",
            "# the exact value, and the most that rounding can be off, whatever the order",
            f"terms = {left.source}",
            "exact = sum(terms)",
            *left.bound_lines,
            "for y in values:",
            "    assert abs(Fraction(float(y)) - exact) <= bound, (y, float(exact), float(bound))",
        ]
    standard = [name if name.startswith("from") else f"import {name}" for name in script.standard]
    (function,) = script.functions
    body = [f"def {function.name}({function.parameters}):", *block(function.lines)]
    lines = [*head, *standard, *script.imports, *script.setup, *script.operands, *body, *ends]
    short = formatted("\n".join(lines) + "\n")
    if short.count("\n") > LINES or " = unpacked(" in short:
        return None
    return _proved_by_run(short, runs, targets, values, wrong)


def _proved_by_run(
    text: str,
    runs: Runs,
    targets: tuple[Target, Target],
    values: Sequence[Any],
    wrong: Sequence[bool],
) -> Short | None:
    """The script with what it printed, where that is the two numbers, and its assertion
    fails in the runs that are ``wrong`` alone."""
    outputs = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "short.py"
        script.write_text(text, encoding="utf-8")
        for (before, variables), target, fails in zip(runs, targets, wrong, strict=False):
            ran = proof.run_script(script, (target, target), variables)
            if ran.status != int(fails) or fails != ("AssertionError" in ran.errors):
                return None
            outputs.append((before, ran.printed.strip()))
    words = " ".join(printed for _, printed in outputs).split()
    try:
        same = [float(np.float64(word)) for word in words]
    except ValueError:
        return None
    wide = np.float64 if any(len(word) > 14 for word in words) else np.float32
    if not np.array_equal(np.array(same, wide), np.array(values, wide), equal_nan=True):
        return None
    return Short(text, tuple(outputs))
