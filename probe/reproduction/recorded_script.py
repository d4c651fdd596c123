"""One recorded operation as a script: its exact operands, and both sides as a user writes them.

Names of a model are text in it and nothing else; operands that are too many for a script are arrays
in a file beside it, read without pickle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np

from probe import floats
from probe.errors import InputError, ProbeError
from probe.launch import library_variables
from probe.recording.alone import Alone
from probe.recording.contract import Operation
from probe.recording.difference import Aligned
from probe.reproduction import code, program
from probe.reproduction.program import ScriptFunction
from probe.target import Target

WRITTEN = 4096
"""Elements of all operands together up to which they stand in the script."""

OPERANDS = "operands.npz"

NAME = re.compile(r"[^\w .,:;/()\[\]<>=+#-]")


@dataclass(frozen=True)
class ScriptValues:
    """How arrays become a library's own values and back, in a script's words.

    ``wide``: of float32 and the like; ``narrow``: of bfloat16, whose bits the script has as uint16.
    """

    imports: tuple[str, ...] = ()
    wide: str = "{}"
    narrow: str = "{}"
    back: str = "np.asarray({})"
    back_narrow: str = "np.asarray({})"
    distribution: str = ""


PLAIN = ScriptValues()

LIBRARIES = {
    "torch": ScriptValues(
        ("import torch",),
        "torch.tensor({})",  # a copy that begins at a multiple of 64, where NumPy's may not
        "torch.tensor({}).view(torch.bfloat16)",
        "{}.detach().cpu().numpy()",
        "{}.detach().cpu().contiguous().view(torch.uint16).numpy()",
        "torch",
    ),
    "tensorflow": ScriptValues(
        ("import tensorflow as tf",),
        "tf.constant({})",
        "tf.bitcast({}, tf.bfloat16)",
        "np.asarray({})",
        "tf.bitcast({}, tf.uint16).numpy()",
        "tensorflow",
    ),
    "jax": ScriptValues(
        ("import jax", "import jax.numpy as jnp"),
        "jnp.asarray({})",
        "jax.lax.bitcast_convert_type(jnp.asarray({}), jnp.bfloat16)",
        "np.asarray({})",
        "np.asarray({}).view(np.uint16)",
        "jax",
    ),
}

LIBRARIES["keras"] = LIBRARIES["tensorflow"]
"""How a library takes and gives arrays, by the name of the target."""


def shown(name: str) -> str:
    """Returns a name of a model as text: letters, digits and plain signs, no longer than 120."""
    return NAME.sub("_", name)[:120]


def script(
    work: Path,
    sides: tuple[Alone, Alone],
    aligned: Aligned,
    events: list[Operation],
    before: tuple[Sequence[str], Sequence[str]],
    ways: ScriptValues,
) -> str:
    """Returns the text of the script; its file of operands is written beside it."""
    names, arrays = named(sides)
    places = [_part(one) for one in sides]
    written = _assignments(arrays) if all(isinstance(one, str) for one in places) else None
    stored = written is None
    if stored:
        index = {
            f"{word}_index": one
            for word, one in zip(("left", "right"), places, strict=True)
            if isinstance(one, np.ndarray)
        }
        store(work / OPERANDS, sides, **index)
        written = [f'{name} = operands["{name}"]' for name in arrays]
    assert written is not None
    for word, one in zip(("left", "right"), places, strict=True):
        part = f"np.s_[{one}]" if isinstance(one, str) else f'operands["{word}_index"]'
        written.append(f"{word.upper()} = {part}")
    functions, calls = _functions(sides, events, before, names, ways)
    imports = {*ways.imports, *(line for event in events for line in event.imports)}
    dtype = sides[0].value.dtype
    size = 8 * sides[0].gives[sides[0].output].dtype.itemsize
    text = "\n".join(written)
    distribution = ways.distribution or _distribution(sides[0])
    variables = [_variables(one) for one in sides]
    apart = variables[0] != variables[1]
    standard = ["import os", "import platform", "import sys"]
    standard += ["import io", "import subprocess"] * apart
    standard += ["from importlib.metadata import version"] * bool(distribution)
    rendered = (
        program.environment()
        .get_template("recorded.py.j2")
        .render(
            title=title(sides, aligned),
            about=_about(sides, aligned),
            standard=code.imports(standard),
            variables=variables,
            apart=apart,
            imports=code.imports(["import numpy as np", *sorted(imports)]),
            stored=OPERANDS if stored else "",
            readers=[READER] if " = numbers(" in text else [],
            operands=written,
            functions=functions,
            floating=dtype in floats.FORMATS,
            narrow=dtype == "bfloat16",
            width=size // 8,
            size=size,
            left=calls[0],
            right=calls[1],
            distributions=[distribution] if distribution else [],
        )
    )
    ast.parse(rendered)
    return code.spaced(rendered)


READER = '''def numbers(text, dtype, *shape):
    """An array from exact hexadecimal numbers."""
    values = [float.fromhex(one) for one in text.split()]
    return np.array(values, np.float64).astype(dtype).reshape(shape)'''


def _assignments(arrays: dict[str, np.ndarray]) -> list[str] | None:
    """Returns lines that make the arrays; None where they are too many."""
    if sum(array.size for array in arrays.values()) > WRITTEN:
        return None
    found = []
    for name, array in arrays.items():
        if array.dtype.kind == "c":
            return None
        if array.dtype.kind == "f":
            text = " ".join(map(code.hexadecimal, map(float, array.reshape(-1).tolist())))
            shape = "".join(f", {size}" for size in array.shape)
            line = f'{name} = numbers("{text}", "{array.dtype.name}"{shape})'
        else:
            values = array.reshape(-1).tolist()
            line = f"{name} = np.array({values}, np.{array.dtype.name}).reshape({array.shape})"
        found += _broken(line)
    return found


def _broken(line: str) -> list[str]:
    """Returns a line that holds a long text, broken into several."""
    if len(line) <= code.WIDTH or '"' not in line:
        return code.wrapped(line)
    head, text, tail = line.split('"', 2)
    words, rows, row = text.split(" "), [], ""
    for word in words:
        if len(row) + len(word) > 88:
            rows.append(row)
            row = ""
        row += f"{word} "
    rows.append(row.rstrip())
    arguments = tail.strip(",) ").split(", ")
    return [
        head,
        *(f'    "{one}"' for one in rows[:-1]),
        f'    "{rows[-1]}",',
        *(f"    {one}," for one in arguments),
        ")",
    ]


def _functions(
    sides: tuple[Alone, Alone],
    events: list[Operation],
    before: tuple[Sequence[str], Sequence[str]],
    names: tuple[list[str], list[str]],
    ways: ScriptValues,
) -> tuple[list[ScriptFunction], list[str]]:
    """Returns the functions of both sides, and the expressions of their outputs."""
    functions: list[ScriptFunction] = []
    calls: list[str] = []
    for which, one in enumerate(sides):
        event, numbers = events[which], [f"x{n}" for n in range(len(one.reads))]
        assert event.lines is not None
        lines = [*threads(one), *before[which]]
        for name, dtype in zip(numbers, one.dtypes, strict=False):
            lines.append(f"{name} = {_given(name, dtype, ways)}")
        lines = [line for line in lines if line.partition(" = ")[0] != line.partition(" = ")[2]]
        lines += [*event.lines(numbers, "y"), *_result(one, ways)]
        body = tuple(code.block(lines))
        about = f"{shown(one.operation.op)}, as it was recorded."
        made = ScriptFunction("", ", ".join(numbers), about, body)
        known = [one for one in functions if replace(one, name="") == made]
        if not known:
            known = [replace(made, name="compute_right" if functions else "compute")]
            functions += known
        calls.append(f"{known[0].name}({', '.join(names[which])})")
    return functions, calls


def _given(name: str, dtype: str, ways: ScriptValues) -> str:
    """Returns how an operand becomes the library's own value."""
    return (ways.narrow if dtype == "bfloat16" else ways.wide).format(name)


def _result(one: Alone, ways: ScriptValues) -> list[str]:
    lines = []
    if len(one.operation.gives) > 1:
        lines.append(f"y = y[{one.output}] if isinstance(y, (list, tuple)) else y")
    back = ways.back_narrow if one.value.dtype == "bfloat16" else ways.back
    return [*lines, f"return {back.format('y')}"]


def _part(one: Alone) -> str | np.ndarray:
    """Returns the outputs that are compared: slices as they are written, or flat indices."""
    shape, index = one.value.shape, one.index
    if one.pair.selection.whole:
        return "..."
    places = np.stack(np.unravel_index(index, shape)) if shape else np.zeros((0, 1), int)
    part = tuple(slice(int(at.min()), int(at.max()) + 1) for at in places)
    every = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[part].reshape(-1)
    if np.array_equal(every, index):
        return program.index(part, shape)
    return index


def named(
    sides: tuple[Alone, Alone],
) -> tuple[tuple[list[str], list[str]], dict[str, np.ndarray]]:
    """Names of what either side reads, and the arrays; what both read alike has one name."""
    arrays: dict[str, np.ndarray] = {}
    names: tuple[list[str], list[str]] = ([], [])
    known: dict[bytes, str] = {}
    for which, one in enumerate(sides):
        for number, array in enumerate(one.reads):
            plain = np.ascontiguousarray(array)
            key = repr((plain.shape, plain.dtype.str)).encode() + plain.tobytes()
            if key not in known:
                known[key] = f"x{number}" if which == 0 else f"x{number}_right"
                arrays[known[key]] = plain.reshape(array.shape)
            names[which].append(known[key])
    return names, arrays


def store(path: Path, sides: tuple[Alone, Alone], **more: np.ndarray) -> None:
    """Writes all operands, each once, as arrays without pickle."""
    names, arrays = named(sides)
    if any(array.dtype.hasobject for array in arrays.values()):
        raise InputError("operands", names[0], "they are Python objects", "give numbers")
    np.savez_compressed(path, **arrays, **more)  # type: ignore[arg-type]


def _variables(one: Alone) -> dict[str, str]:
    """Environment variables of a side's target; {} where it is none that is known."""
    try:
        found = library_variables(Target.parse(one.side.target))
    except (ProbeError, KeyError, ValueError):
        return {}
    plain = re.compile(r"[\w.,:=+/ -]*")
    return {k: v for k, v in found.items() if plain.fullmatch(k) and plain.fullmatch(v)}


def library(one: Alone) -> str:
    """Returns the name of the library, as targets have it."""
    return re.split(r"[=@,]", one.side.target)[0]


def threads(one: Alone) -> list[str]:
    """Returns lines that give PyTorch the threads that its target says."""
    found = re.search(r",threads=(\d+)", one.side.target)
    if found is None or library(one) != "torch":
        return []
    return [f"torch.set_num_threads({found.group(1)})"]


def _distribution(one: Alone) -> str:
    name = library(one)
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
    return name if re.fullmatch(r"[\w.-]+", name) else ""


def versions(one: Alone) -> str:
    """Returns the library with its version."""
    name = library(one)
    try:
        return f"{shown(name)} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return shown(name)


def title(sides: tuple[Alone, Alone], aligned: Aligned) -> str:
    """Returns one line: which library gives different bits, on what."""
    op = shown(aligned.op)
    read = [" and ".join(shapes(one)) for one in sides]
    first = f"{versions(sides[0])}: {op} gives different bits"
    if read[0] != read[1]:
        return f"{first} on {read[0]} than on {read[1]}."
    return f"{first} in two runs."


def shapes(one: Alone) -> list[str]:
    """Returns shapes of the first of what is read, as text."""
    return ["x".join(map(str, array.shape)) or "one number" for array in one.reads[:3]]


def _about(sides: tuple[Alone, Alone], aligned: Aligned) -> list[str]:
    where = f" ({shown(aligned.path)} of the model)" if aligned.path else ""
    pair = sides[0].pair
    what = f"One operation{where} with the operands that it read in two runs of a model."
    same = f"{pair.compared} outputs are compared, which read the same values on both sides."
    return program.wrapped(what, same)
