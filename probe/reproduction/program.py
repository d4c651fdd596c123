"""Writes what a library's user would write: lines that compute a case or a layer, and
``reproduce.py``, a finding as a script of one or two libraries and NumPy.

The lines are those that a backend emits, which the worker compiles and runs, so a script holds what
was measured. They are laid out as ruff and black do, and operands have their exact bits.
"""

from __future__ import annotations

import ast
import base64
import re
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from probe import backends, floats, window
from probe.backends.contract import Unsupported
from probe.backends.source import Source, ValueShapes, Writing
from probe.case import Case
from probe.comparison import Arrays, Finding
from probe.errors import InputError
from probe.launch import library_variables
from probe.operation import case_program
from probe.runtimes.packages import release_recipe
from probe.target import Target

WIDTH = 100
OPENING, CLOSING = "([{", ")]}"


def spaced(text: str) -> str:
    """A program with two empty lines around its functions and at most one elsewhere outside."""
    lines: list[str] = []
    quoted = function = False
    for line in text.splitlines():
        top = bool(line) and not quoted and not line[0].isspace() and line[0] not in ")]}"
        starts = top and line.startswith(("def ", "@"))
        if top and lines and (starts or function):
            while not lines[-1]:
                lines.pop()
            lines += [] if lines[-1].startswith("@") else ["", ""]
        elif not line and not quoted and lines[-2:] and not lines[-1]:
            continue
        function = (starts or function) if (top and starts) or not top else False
        quoted ^= line.count('"""') % 2 == 1
        lines.append(line)
    return "\n".join(lines) + "\n"


def imports(lines: Iterable[str]) -> list[str]:
    """Import statements in isort's order, what comes from one module in one of them."""
    names_by_head: dict[str, list[str]] = {}
    for line in lines:
        head, _, names = line.partition(" import ")
        names_by_head.setdefault(head, []).extend(names.split(", ") if names else [])
    merged = [
        f"{head} import {', '.join(dict.fromkeys(names))}" if names else head
        for head, names in names_by_head.items()
    ]
    return sorted(merged, key=lambda line: (line.startswith("from "), line.lower()))


def literal(value: object) -> str:
    """A value as ``repr`` and formatters write it: texts without quotes in double ones."""
    # each text as a whole: a quote inside of one begins no other
    texts = r"'([^'\"\\]*)'|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
    return re.sub(texts, lambda text: text[0] if text[1] is None else f'"{text[1]}"', repr(value))


def in_docstring(text: object) -> str:
    """A text as it stands within a docstring, but at its end."""
    shown = "".join(letter if letter.isprintable() else "_" for letter in str(text))
    return shown.replace("\\", "\\\\").replace('"' * 3, "'" * 3)


def block(lines: Iterable[str]) -> list[str]:
    """Returns the lines indented, those that are too long broken at their brackets."""
    wrapped, plain = list[str](), list[str]()
    for line in lines:
        own = len(line) - len(line.lstrip())
        wrapped += wrapped_statement(line.strip(), 4 + own) if line.strip() else [""]
        plain.append(f"    {line}" if line.strip() else "")
    # where the lines are broken must not change what they say
    trees = [ast.dump(ast.parse("\n".join(["if 1:", "    0", *some]))) for some in (plain, wrapped)]
    return wrapped if trees[0] == trees[1] else plain


def wrapped_statement(line: str, indent: int = 0) -> list[str]:
    """Returns one statement as lines of at most ``WIDTH`` characters, if its brackets allow it."""
    whole = " " * indent + line
    if len(whole) <= WIDTH:
        return [whole]
    # where the last outermost bracket that holds something opens and closes
    start = end = depth = opened = 0
    for place, letter in _outside_strings(line):
        if letter in OPENING:
            opened = place if depth == 0 else opened
            depth += 1
        elif letter in CLOSING:
            depth -= 1
            if depth == 0 and place > opened + 1:
                start, end = opened, place
    if not end:
        return [whole]
    head, inner, tail = line[: start + 1], line[start + 1 : end].rstrip(","), line[end:]
    pad = " " * (indent + 4)
    # a comma behind what brackets only group, or behind an index, would make a tuple of it
    parts, behind = _parts_at_commas(inner), re.search(r"[\w)\]]$", line[:start])
    single = len(parts) == 1 and line[start] == ("[" if behind else "(")
    comma = "" if single else ","
    if len(pad + inner) <= WIDTH and "*" not in inner[:1]:
        middle = [pad + inner]
        if line[start] != "(":
            middle = [pad + part + comma for part in parts]
    else:
        middle = [piece for part in parts for piece in wrapped_statement(part + comma, indent + 4)]
    return [" " * indent + head, *middle, " " * indent + tail]


def _parts_at_commas(inner: str) -> list[str]:
    """Returns what commas outside of brackets separate."""
    parts, depth, start = [], 0, 0
    for place, letter in _outside_strings(inner):
        depth += (letter in OPENING) - (letter in CLOSING)
        if letter == "," and depth == 0:
            parts.append(inner[start:place].strip())
            start = place + 1
    return [*parts, inner[start:].strip()]


def _outside_strings(line: str) -> Iterator[tuple[int, str]]:
    """Yields places and characters that are not within quotes."""
    quote, escaped = "", False
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = letter == "\\" and not escaped
        elif letter in "\"'":
            quote = letter
        else:
            yield place, letter


# Numbers that are written one by one; more of them are packed.
WRITTEN = 256

# Numbers in an array of zeros that get a line each.
PICKED = 24

# Functions that read what ``assignments`` writes.
READERS = {
    "numbers": '''
def numbers(text, *shape):
    """An array from exact hexadecimal numbers."""
    return np.array([float.fromhex(one) for one in text.split()], np.{dtype}).reshape(shape)
''',
    "unpacked": '''
def unpacked(text, *shape):
    """An array from its compressed bits."""
    packed = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(packed, "{little}").reshape(shape).copy()
''',
}


def numpy_dtype(dtype: str) -> str:
    """NumPy's dtype of a script's arrays: bfloat16 is written as float32."""
    return "float32" if dtype == "bfloat16" else dtype


def assignments(name: str, array: np.ndarray) -> list[str]:
    """Assignments that make the array ``name`` (float16, float32 or float64)."""
    count, shape = int(np.count_nonzero(array)), ", ".join(map(str, array.shape))
    # mostly zeros, as after shrinking: the few that count are read at a glance
    if count <= PICKED and array.size > max(8, 2 * count):
        lines = [f"{name} = np.zeros({array.shape}, np.{array.dtype})"]
        for place in np.argwhere(array).tolist():
            value, at = array[tuple(place)], ", ".join(map(str, place))
            number = hexadecimal(float(value))
            lines.append(f'{name}[{at}] = float.fromhex("{number}")  # {value!s}')
        return lines
    if array.size <= WRITTEN:
        written = " ".join(map(hexadecimal, array.reshape(-1).tolist()))
        lines = _reader_call(name, "numbers", written, shape)
        if array.size <= 1:
            return lines
        # the first ones as decimals, as many as a line has room for
        text, values = f"# {name} is ", [str(value) for value in array.reshape(-1)[:24]]
        while len(text + ", ".join(values)) > 94:
            values.pop()
        return [text + ", ".join(values) + ", ..." * (len(values) < array.size), *lines]
    # the script may run on a machine of the other byte order, so the order is written down
    little = array.astype(array.dtype.newbyteorder("<"))
    packed = base64.b64encode(zlib.compress(little.tobytes(), 9)).decode()
    return _reader_call(name, "unpacked", packed, shape)


def _reader_call(name: str, reader: str, text: str, shape: str) -> list[str]:
    line = f'{name} = {reader}("{text}", {shape})'
    if len(line) <= WIDTH:
        return [line]
    pieces = textwrap.wrap(text, 92, break_on_hyphens=False)
    body = [f'    "{part} "' for part in pieces[:-1]] + [f'    "{pieces[-1]}",']
    return [f"{name} = {reader}(", *body, *(f"    {size}," for size in shape.split(", ")), ")"]


def hexadecimal(value: float) -> str:
    """``float.hex`` without the zeros at the end of its digits."""
    digits, _, exponent = value.hex().partition("p")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}p{exponent}" if exponent else digits


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


def of_case(target: Target, version: str, case: Case, operands: Arrays) -> ScriptLibrary:
    """Returns how a script computes ``case`` (its length set) with a target's release ``version``.

    ``operands``: x, w and b of the case, for libraries whose models hold them.

    Raises InputError where no script is written for it.
    """
    x, w, b = operands
    named = {"w": w} if b is None else {"w": w, "b": b}
    if is_written(target):
        return of_layer(target, version, case.spec(), tuple(x.shape), named)
    if target.name == "reference":  # probe's own arithmetic: such a script needs probe
        if case.dtype == "bfloat16":
            why = "no script is written for bfloat16"
            raise InputError("target", target.text, why, "use another target")
        names = ["w"] * case.weighted + ["b"] * (case.bias is not None)
        given = ", ".join(f'"{name}": {name}' for name in names)
        body = (
            "from probe.backends.reference import Reference",
            "",
            "backend = Reference()",
            f'backend.start({literal(dict(target.switches))}, "cpu")',
            f"operator = backend.operator({literal(case.spec())})",
            f"run = operator.bind({{{given}}})",
            "return operator.output(run(operator.input(x)))",
        )
        return ScriptLibrary(NUMPY, "np.__version__", (), body, modules=("probe-numerics",))
    todo = f"use one of {', '.join(backends.BACKENDS)}"
    raise InputError("target", target.text, "no script is written for it", todo)


def is_written(target: Target) -> bool:
    """Returns whether the target's library emits lines."""
    return issubclass(backends.get(target.name), Writing)


def library_title(target: Target) -> str:
    """Returns the name of the target's library, as its users write it."""
    return str(backends.get(target.name).title) if is_written(target) else NUMPY


def of_layer(
    target: Target,
    version: str,
    layer: Mapping[str, Any],
    shape: tuple[int, ...],
    operands: Mapping[str, np.ndarray],
) -> ScriptLibrary:
    """Returns how a script computes one operation of an input (batch, *spatial, channels).

    ``layer``: its spec; ``operands``: by name. Raises InputError where the library has none.
    """
    backend = backends.get(target.name)().described(dict(target.switches), target.device, version)
    program = case_program(dict(layer))
    try:
        backend.lay(program.layout)
        source = backend.emit(program, ValueShapes(program, shape))
        held = _model_assignments(source, program.operands(), layer["dtype"], operands)
    except Unsupported as error:
        why = f"no script is written for {error}"
        raise InputError("target", target.text, why, "use another target") from None
    stages = source.make + source.enter + held + source.load + source.run
    if stages and stages[0].startswith(("@", "def ")):
        stages = ("", *stages)
    body = (*stages, f"return {source.leave}")
    text = "\n".join((*body, *backend.setup(), backend.version_text))
    words, imports = set(re.findall(r"\w+", text)), list[str]()
    for line in backend.imports:  # a script imports what it uses, and no more
        head, _, names = line.partition(" import ")
        if not line.startswith("from "):
            imports += [line] * (re.split("[ .]+", line)[-1] in words)
        elif used := [name for name in names.split(", ") if name.split(" ")[-1] in words]:
            imports.append(f"{head} import {', '.join(used)}")
    more = ("base64",) if any("base64." in line for line in held) else ()
    return ScriptLibrary(
        *(backend.title, backend.version_text, tuple(imports), body),
        setup=backend.setup(),
        modules=backend.modules,
        standard=(*backend.standard, *source.standard, *more),
        source=source,
    )


def _model_assignments(
    source: Source, names: list[str], dtype: str, operands: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Assignments to the models in formats of their own."""
    if source.hold is None:
        return ()
    wide = {name: operands[name] for name in names}
    if dtype == "bfloat16":
        wide = {name: floats.widen(array, dtype) for name, array in wide.items()}
    arrays = {name: np.ascontiguousarray(array) for name, array in wide.items()}
    lines: list[str] = []
    for name, content in source.hold(arrays).items():
        if isinstance(content, str):
            lines += [f"{name} = (", *(f"    {line!r}" for line in content.splitlines(True)), ")"]
            continue
        text = textwrap.wrap(base64.b64encode(content).decode(), 84)
        lines += [f"{name} = base64.b64decode(", *(f'    "{line}"' for line in text), ")"]
    return tuple(lines)


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
    environment = Environment(
        loader=PackageLoader("probe.reproduction"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )

    def quoted(words: Mapping[str, str], name: str) -> str:
        """One entry of a dict of dicts, as Python's formatters write it."""
        return "\n".join(wrapped_statement(f'"{name}": {literal(dict(words))},', 4))

    filters = {"quoted": quoted, "literal": literal, "in_docstring": in_docstring}
    environment.filters.update(filters)
    return environment


def script_of_finding(
    finding: Finding, targets: tuple[Target, Target], versions: tuple[str, str], same_place: bool
) -> str:
    """Returns the script's text. ``versions``: of the two targets' libraries.

    ``same_place``: outputs of the same index are compared (two targets, two paddings). InputError:
    no script is written for the target, or for this case on it.
    """
    work = _ScriptFunctions(finding, targets, versions)
    left, right = work.side(0), work.side(1)
    libraries, isolated = work.libraries, work.isolated
    shapes = finding.left.output_shape(), finding.right.output_shape()
    names, dtype = [library.name for library in libraries], finding.case.dtype
    kind, little = numpy_dtype(dtype), {"float16": "<f2", "float64": "<f8"}.get(dtype, "<f4")
    # x, w and b, as far as the operator has them
    arrays = {"x": finding.x} | ({"w": finding.w} if finding.case.weighted else {})
    arrays |= {} if finding.b is None else {"b": finding.b}
    operands: list[str] = []
    for name, array in arrays.items():
        operands += assignments(name, np.asarray(floats.widen(array, dtype)).astype(kind))
    size = {"float64": 64, "float32": 32}.get(dtype, 16)
    used = [name for name in READERS if f" = {name}(" in "\n".join(operands)]
    variables = [library_variables(target) for target in targets]
    own_imports = []
    for library in libraries:  # what the expression of the version needs
        root = library.version.partition(".")[0]
        needed = [line for line in library.imports if re.split("[ ,]+", line)[-1] == root]
        own_imports.append(block(needed))
    # two targets run in processes of their own, each of which imports and sets up its own library
    imported = [] if isolated else libraries[0].imports
    standard = {"platform", "sys", *(name for library in libraries for name in library.standard)}
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
            pinned=[target.version for target in targets] if isolated else [None, None],
            names=names,
            standard=imports(
                name if name.startswith("from") else f"import {name}" for name in standard
            ),
            variables=variables,
            imports=imports(["import numpy as np", *imported]),
            setup=[] if isolated else list(libraries[0].setup),
            readers=[READERS[name].format(dtype=kind, little=little).strip() for name in used],
            operands=operands,
            blocks=[
                [slices_as_written(part, shape) for shape in shapes]
                for part in finding.blocks(same_place)
            ],
            functions=work.functions,
            left=left,
            right=right,
            versions=[library.version for library in libraries],
            own_imports=own_imports,
            library=names[0],
            said=sides_in_words(finding, targets),
            dtype=kind,
            size=size,
            width=4 if dtype == "bfloat16" else size // 8,
            narrow=dtype == "bfloat16",
        )
    )
    return spaced(text)


def docstring_lines(*texts: str) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, 99)]


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


def what_is_compared(
    finding: Finding, targets: tuple[Target, Target], same_place: bool
) -> list[str]:
    """Returns what is computed, and which outputs are compared."""
    dtype = "" if finding.case.dtype in finding.label else f", {finding.case.dtype}"
    what = f"{finding.label}{dtype}, on {targets[0].text}"
    what += f" and {targets[1].text}" if targets[1] != targets[0] else ""
    which = "Outputs are compared where both sides read the same inputs with the same weights."
    return docstring_lines(
        f"{what}.", "Outputs of the same place are compared." if same_place else which
    )


def interpreters_apart(targets: tuple[Target, Target], libraries: list[ScriptLibrary]) -> list[str]:
    """Returns what sets the sides' interpreters apart, a line each: releases, processors."""
    lines = []
    for word, target, library in zip(SIDE_WORDS, targets, libraries, strict=True):
        if target.version is not None:
            try:
                python = f", on Python {release_recipe(target.name, str(target.version)).python}"
            except InputError:  # the release is not in the table of releases and Pythons
                python = ""
            lines.append(f"The {word} one has {library.name} {target.version}{python}.")
        if target.device.partition(":")[0] not in NATIVE:
            lines.append(f"The {word} one runs on the processor {target.device}, or emulates it.")
    return lines


def needs(libraries: list[ScriptLibrary]) -> list[str]:
    """Returns which distributions the script needs, and how it ends."""
    names = dict.fromkeys(["numpy", *(name for library in libraries for name in library.modules)])
    needed = (", " if len(names) > 2 else " and ").join(names)
    return docstring_lines(
        f"Needs {needed}. Exit status: 1 they differ, 0 they don't, 2 it can't run."
    )


def named_function(
    functions: list[ScriptFunction], name: str, parameters: str, about: str, lines: tuple[str, ...]
) -> str:
    """Adds a function to a script's unless its like is there under another name; the name of it."""
    for function in functions:
        if (parameters, about, lines) == (function.parameters, function.about, function.lines):
            return function.name
    functions.append(ScriptFunction(name, parameters, about, lines))
    return name


@dataclass
class _ScriptFunctions:
    """The script's functions, each text once, and the libraries of its sides."""

    finding: Finding
    targets: tuple[Target, Target]
    versions: tuple[str, str]
    functions: list[ScriptFunction] = field(default_factory=list)
    libraries: list[ScriptLibrary] = field(default_factory=list)

    @property
    def isolated(self) -> bool:
        """Whether each side runs in a process of its own."""
        return self.targets[0] != self.targets[1]

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
        calls = []
        for part, cut, word in (
            (case.with_(in_channels=at, split=None), f":{at}", "_first"),
            (case.with_(in_channels=rest, split=None, bias=None), f"{at}:", "_rest"),
        ):
            copied = [
                f"np.ascontiguousarray({names['x']}[..., {cut}])",
                f"np.ascontiguousarray(w[..., {cut}, :])",
                *([names["b"]] if part.bias is not None else []),
            ]
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
        operands = {"x": x}
        if case.weighted:
            operands["w"] = f"w[..., :{case.filters}]" if fewer else "w"
        if case.bias is not None:
            operands["b"] = f"b[:{case.filters}]" if fewer else "b"
        return {n: t if t == n else f"np.ascontiguousarray({t})" for n, t in operands.items()}

    def _function(self, number: int, case: Case, part: Case, word: str) -> str:
        """The name of the function that computes a case; a new one unless its like is there."""
        operands = self.finding.operands(case)
        if part is not case:
            at = case.split or 0
            cut = slice(0, at) if word == "_first" else slice(at, None)
            operands = operands[0][..., cut], operands[1][..., cut, :], operands[2]
        library = of_case(self.targets[number], self.versions[number], part, operands)
        if len(self.libraries) <= number:
            self.libraries.append(library)
        parameters = ", ".join(["x"] + ["w"] * part.weighted + ["b"] * (part.bias is not None))
        lines = library.body
        if self.isolated:
            for before in (library.setup, imports(library.imports)):
                lines = (*before, *[""] * bool(before), *lines)
        name = f"compute{'_right' * (number == 1)}{word}"
        about = "The outputs, channels last."
        return named_function(self.functions, name, parameters, about, tuple(block(lines)))


def slices_as_written(part: Slices, shape: tuple[int, ...]) -> str:
    """Returns slices as they are written: ``:, 0:3``; what is whole at the end is left out."""
    shown = [
        ":" if (axis.start, axis.stop) == (0, size) else f"{axis.start}:{axis.stop}"
        for axis, size in zip(part, shape, strict=True)
    ]
    while len(shown) > 1 and shown[-1] == ":":
        shown.pop()
    return ", ".join(shown)
