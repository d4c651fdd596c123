"""Writes the folder of a source: one recorded operation as a script with its exact operands.

The operation is written as a user of its library writes it, by the recorder; both sides stand in
the script. It is proved in fresh processes before anything is kept: it has to print the recorded
bits. Names of a model are text in it and nothing else; operands that are too many for a script are
arrays in a file beside it, read without pickle.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import shutil
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from probe import floats, machine
from probe.errors import InputError, NotReproduced, ProbeError
from probe.explaining.evidence import differing_example
from probe.launch import library_variables
from probe.printing import plain
from probe.recording.alone import Alone, Cause, Sides, isolated_sides, unequal_bits
from probe.recording.contract import Operation
from probe.recording.difference import Region
from probe.recording.recording import Run
from probe.recording.source import find_cause
from probe.reproduction import emulate, program, proof, report
from probe.reproduction.folder import FORMAT, fresh
from probe.reproduction.program import ScriptFunction
from probe.target import Target

# Summands up to which both orders are drawn.
DRAWN = 64


@dataclass(repr=False)
class WrittenFolder:
    """What was written. ``no_case``: why it is not the report of a case, empty if it is."""

    path: Path
    files: list[str]
    script: str
    ran: proof.ScriptRun
    no_case: str = ""

    def __repr__(self) -> str:
        """Where it is, what is in it and what its script said last: not the script itself."""
        return "; ".join([f"{self.path}: {', '.join(self.files)}", self.ran.said])


class ModelScript(NamedTuple):
    """What a script says of the model: lines that a side needs first, and those of all of it."""

    before: tuple[Sequence[str], Sequence[str]] = ((), ())
    whole: Sequence[str] = ()


def write_operation(
    folder: Path,
    runs: tuple[Run, Run],
    region: Region,
    cause: Cause | None = None,
    model: ModelScript = ModelScript(),  # noqa: B008 (it is never changed)
    times: int = 3,
) -> WrittenFolder:
    """Writes ``reproduce.py``, ``report.md`` and ``machine.json`` of one operation.

    ``cause``: what ``find_cause`` found; None: it is asked. ``times``: fresh processes that must
    say the same. InputError: the folder has files, or the operation differs nowhere. NotReproduced:
    no script prints the recorded bits; nothing is written then.
    """
    fresh(folder)
    cause = cause or find_cause(*runs, region)
    if (sides := isolated_sides(*runs, region)) is None:
        why, todo = "no output of it differs", "give a source"
        raise InputError("operation", name_as_text(region.name), why, todo)
    work = Path(tempfile.mkdtemp())
    try:
        made = _write_proved_script(work, sides, region, model.before, times)
        drawn = _draw_orders(work, made, sides, cause)
        if model.whole:
            text = "\n".join(model.whole).rstrip() + "\n"
            ast.parse(text)
            (work / "model.py").write_text(text, encoding="utf-8")
            made.files.append("model.py")
        made.files += ["report.md", "machine.json"]
        text = _report(made, sides, region, cause, drawn)
        (work / "report.md").write_text(text, encoding="utf-8")
        facts, pair = machine.facts(), sides[0].pair
        names = ("os", "cpu_model", "cpu_vendor", "cpu_isa", "cores", "machine")
        about = {  # as ``probe verify`` reads it
            "format": FORMAT,
            "targets": [one.side.target for one in sides],
            "library_versions": [library_and_version(one).rpartition(" ")[2] for one in sides],
            "operation": {"op": name_as_text(region.op), "path": name_as_text(region.path)},
            "compared": pair.compared,
            "differing": pair.differing,
            "max_ulp": pair.max_ulp,
            "cause": {k: v for k, v in cause.to_json().items() if not k.endswith("_orders")},
            "bits": made.ran.bits,
            "machine": {name: facts[name] for name in names}
            | {"python": platform.python_version(), "numpy": np.__version__},
        }
        text = json.dumps(about, indent=2, default=plain) + "\n"
        (work / "machine.json").write_text(text, encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for name in made.files:
            shutil.copyfile(work / name, folder / name)
    except OSError as error:
        why = error.strerror or "it can't be made"
        raise InputError("out", folder, why, "give a folder that can be made") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    made.path = folder
    return made


def _write_proved_script(
    work: Path,
    sides: Sides,
    region: Region,
    before: tuple[Sequence[str], Sequence[str]],
    times: int,
) -> WrittenFolder:
    """Returns the first way of writing it that prints the recorded bits in fresh processes."""
    events = [one.operation for one in sides]
    if any(one.lines is None for one in events):
        why = "the recorder of this library writes no lines for this operation"
        if any(one.side.untried for one in sides):
            why = "a recording's operations are run only with --trust (Python: trust=True)"
        raise NotReproduced(f"script=reproduce.py: {why}")
    bits = [
        floats.to_bits(one.outputs, one.value.dtype)
        if one.value.dtype in floats.FORMATS
        else np.ascontiguousarray(one.outputs).view(f"u{one.outputs.dtype.itemsize}")
        for one in sides
    ]
    apart = np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))
    width = 2 * bits[0].dtype.itemsize
    expected = [tuple(f"{int(side[n]):0{width}x}" for side in bits) for n in apart]
    library, why = LIBRARIES.get(library_of_side(sides[0]), PLAIN), ""
    for ways in dict.fromkeys((library, PLAIN)):  # lines may take arrays as they are
        try:
            script = script_of_operation(work, sides, region, before, ways)
        except SyntaxError as error:
            why = f"its recorded code is not valid Python: {error.msg}"
            break
        path = work / "reproduce.py"
        path.write_text(script, encoding="utf-8")
        ran = proof.own_interpreter(path)
        if ran.status == proof.DIFFERS:  # else it can't tell, and need not run again
            runs = [ran, *(proof.own_interpreter(path) for _ in range(times - 1))]
            if len({(one.status, one.printed) for one in runs}) > 1:
                ran = proof.ScriptRun(proof.CANNOT_RUN, "fresh processes give different bits")
        same = bool(ran.bits) and ran.bits == expected[: len(ran.bits)]
        if same and ran.verdict == proof.VERDICTS[proof.DIFFERS]:
            files = ["reproduce.py", *([OPERANDS] if OPERANDS in script else [])]
            return WrittenFolder(work, files, script, ran)
        why = why or machine.publishable(f"in a fresh process the script says: {ran.said}")
    raise NotReproduced(f"script=reproduce.py: {why}")


def _draw_orders(work: Path, made: WrittenFolder, sides: Sides, cause: Cause) -> bool:
    """Returns whether both orders were drawn; also replays them by NumPy alone."""
    told = cause.comparison
    if told is None or not cause.replayed:
        return False
    if max(side.case.summands for side in (told.left, told.right)) > DRAWN:
        return False
    evidence = differing_example(told)
    if evidence is None or None in (evidence.left.summation, evidence.right.summation):
        return False
    words = tuple(" and ".join(shapes_read(one)) for one in sides)
    from probe.plots import trees

    trees.sides(evidence, (words[0], words[1])).savefig(
        work / "order.png", metadata={"Software": None}
    )
    made.files.append("order.png")
    brief = emulate.brief(told)
    if brief and proof.replay_gives(brief, made.ran.bits)[0]:
        (work / "emulated.py").write_text(brief, encoding="utf-8")
        made.files.append("emulated.py")
    return True


def _report(made: WrittenFolder, sides: Sides, region: Region, cause: Cause, drawn: bool) -> str:
    """Returns the text of ``report.md``."""
    pair, facts = sides[0].pair, machine.facts()
    parts = [f"# {operation_title(sides, region).rstrip('.')}", ""]
    if OPERANDS not in made.script and len(made.script) < 12_000:
        parts += [f"```python\n{made.script.rstrip()}\n```", ""]
    else:
        parts += ["The script is `reproduce.py`, beside this report.", ""]
    parts += [f"It prints:\n\n```\n{made.ran.printed.rstrip()}\n```", ""]
    operation = [f"- operation: `{name_as_text(region.op)}`"]
    operation += [f"- in the model: `{name_as_text(region.path)}`"] if region.path else []
    for word, one in zip(("left", "right"), sides, strict=True):
        reads = ", ".join(
            f"{dtype} {array.shape}" for dtype, array in zip(one.dtypes, one.reads, strict=False)
        )
        operation.append(f"- {word}: reads {reads}; on `{name_as_text(one.side.target)}`")
    told = "no number" if pair.max_ulp is None else f"{pair.max_ulp} ulp"
    differ = f"{pair.differing} of {pair.compared} outputs that read the same values differ"
    operation.append(f"- {differ}, up to {told}")
    parts += ["## The operation", "", *operation, ""]
    kind = cause.kind or "not classified yet"
    found = [f"Class: {kind}. {cause.why[:1].upper()}{cause.why[1:]}."]
    found.append(
        f"Alone, on its recorded operands, it gives the recorded bits: "
        f"{'yes, on both sides' if cause.alone else 'no'}."
    )
    if cause.comparison is not None and cause.replayed:
        evidence = differing_example(cause.comparison)
        found += ["", report.cause_in_full(cause.comparison, evidence, drawn)]
    if cause.rounding.beyond:
        proof = "" if cause.comparison is None else report.beyond(cause.comparison)
        found += ["", proof or f"{cause.rounding.words[:1].upper()}{cause.rounding.words[1:]}."]
    parts += ["## Why", "", *found, ""]
    parts += ["## Versions and machine", ""]
    used = dict.fromkeys(library_and_version(one) for one in sides)
    parts += [f"- {', '.join(used)}, NumPy {np.__version__}, Python {platform.python_version()}"]
    parts += [f"- {facts['os']}, {facts['cpu_model']}, {facts['cpu_isa']}, {facts['cores']} cores"]
    return "\n".join(parts).rstrip() + "\n"


# Elements of all operands together up to which they stand in the script.
WRITTEN = 4096

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

# How a library takes and gives arrays, by the name of the target.
LIBRARIES["keras"] = LIBRARIES["tensorflow"]


def name_as_text(name: str) -> str:
    """Returns a name of a model as text: letters, digits and plain signs, no longer than 120."""
    return NAME.sub("_", name)[:120]


def script_of_operation(
    work: Path,
    sides: Sides,
    region: Region,
    before: tuple[Sequence[str], Sequence[str]],
    ways: ScriptValues,
) -> str:
    """Returns the text of the script; its file of operands is written beside it."""
    events = [one.operation for one in sides]
    names, arrays = named_operands(sides)
    # the outputs that are compared: a block is written as slices; what is no block goes into the
    # file of operands, as flat indices
    places: list[str | np.ndarray] = []
    for one in sides:
        shape, index = one.value.shape, one.index
        if one.pair.selection.whole:
            places.append("...")
            continue
        at = np.stack(np.unravel_index(index, shape)) if shape else np.zeros((0, 1), int)
        block = tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in at)
        every = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[block].reshape(-1)
        whole = np.array_equal(every, index)
        places.append(program.slices_as_written(block, shape) if whole else index)
    written = _assignments(arrays) if all(isinstance(one, str) for one in places) else None
    stored = written is None
    if stored:
        indices = {
            f"{word}_index": part
            for word, part in zip(("left", "right"), places, strict=True)
            if isinstance(part, np.ndarray)
        }
        store_operands(work / OPERANDS, sides, **indices)
        written = [f'{name} = operands["{name}"]' for name in arrays]
    assert written is not None
    for word, part in zip(("left", "right"), places, strict=True):
        text = f"np.s_[{part}]" if isinstance(part, str) else f'operands["{word}_index"]'
        written.append(f"{word.upper()} = {text}")
    functions, calls = _functions_and_calls(sides, events, before, names, ways)
    imports = {*ways.imports, *(line for event in events for line in event.imports)}
    dtype = sides[0].value.dtype
    size = 8 * sides[0].gives[sides[0].output].dtype.itemsize
    text = "\n".join(written)
    distribution = ways.distribution
    if not distribution:
        name = library_of_side(sides[0])
        with suppress(metadata.PackageNotFoundError):
            metadata.version(name)
            distribution = name if re.fullmatch(r"[\w.-]+", name) else ""
    variables: list[dict[str, str]] = []  # of the environment, by the sides' targets
    for one in sides:
        known: dict[str, str] = {}
        with suppress(ProbeError, KeyError, ValueError):  # it is no target that is known
            known = library_variables(Target.parse(one.side.target))
        quiet = re.compile(r"[\w.,:=+/ -]*")  # nothing that would end a text of the script
        variables.append({k: v for k, v in known.items() if all(map(quiet.fullmatch, (k, v)))})
    apart = variables[0] != variables[1]
    standard = ["import os", "import platform", "import sys"]
    standard += ["import io", "import subprocess"] * apart
    standard += ["from importlib.metadata import version"] * bool(distribution)
    where = f" ({name_as_text(region.path)} of the model)" if region.path else ""
    what = f"One operation{where} with the operands that it read in two runs of a model."
    compared = sides[0].pair.compared
    same = f"{compared} outputs are compared, which read the same values on both sides."
    rendered = (
        program.templates()
        .get_template("recorded.py.j2")
        .render(
            title=operation_title(sides, region),
            about=program.docstring_lines(what, same),
            standard=program.imports(standard),
            variables=variables,
            apart=apart,
            imports=program.imports(["import numpy as np", *sorted(imports)]),
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
    return program.spaced(rendered)


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
            text = " ".join(map(program.hexadecimal, map(float, array.reshape(-1).tolist())))
            shape = "".join(f", {size}" for size in array.shape)
            line = f'{name} = numbers("{text}", "{array.dtype.name}"{shape})'
        else:
            values = array.reshape(-1).tolist()
            line = f"{name} = np.array({values}, np.{array.dtype.name}).reshape({array.shape})"
        if len(line) <= program.WIDTH or '"' not in line:
            found += program.wrapped_statement(line)
            continue
        # a long text is broken between its words
        head, text, tail = line.split('"', 2)
        rows = textwrap.wrap(text, 88, break_on_hyphens=False)
        found += [head, *(f'    "{one} "' for one in rows[:-1]), f'    "{rows[-1]}",']
        found += [*(f"    {one}," for one in tail.strip(",) ").split(", ")), ")"]
    return found


def _functions_and_calls(
    sides: Sides,
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
        lines = [*thread_lines(one), *before[which]]
        for name, dtype in zip(numbers, one.dtypes, strict=False):
            taken = ways.narrow if dtype == "bfloat16" else ways.wide
            lines.append(f"{name} = {taken.format(name)}")
        lines = [line for line in lines if line.partition(" = ")[0] != line.partition(" = ")[2]]
        lines += event.lines(numbers, "y")
        if len(one.operation.gives) > 1:
            lines.append(f"y = y[{one.output}] if isinstance(y, (list, tuple)) else y")
        back = ways.back_narrow if one.value.dtype == "bfloat16" else ways.back
        lines.append(f"return {back.format('y')}")
        body = tuple(program.block(lines))
        about = f"{name_as_text(one.operation.op)}, as it was recorded."
        made = ScriptFunction("", ", ".join(numbers), about, body)
        known = [one for one in functions if replace(one, name="") == made]
        if not known:
            known = [replace(made, name="compute_right" if functions else "compute")]
            functions += known
        calls.append(f"{known[0].name}({', '.join(names[which])})")
    return functions, calls


def named_operands(
    sides: Sides,
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


def store_operands(path: Path, sides: Sides, **more: np.ndarray) -> None:
    """Writes all operands, each once, as arrays without pickle."""
    names, arrays = named_operands(sides)
    if any(array.dtype.hasobject for array in arrays.values()):
        raise InputError("operands", names[0], "they are Python objects", "give numbers")
    np.savez_compressed(path, **arrays, **more)  # type: ignore[arg-type]


def library_of_side(one: Alone) -> str:
    """Returns the name of the library, as targets have it."""
    return re.split(r"[=@,]", one.side.target)[0]


def thread_lines(one: Alone) -> list[str]:
    """Returns lines that give PyTorch the threads that its target says."""
    found = re.search(r",threads=(\d+)", one.side.target)
    if found is None or library_of_side(one) != "torch":
        return []
    return [f"torch.set_num_threads({found.group(1)})"]


def library_and_version(one: Alone) -> str:
    """Returns the library with its version."""
    name = library_of_side(one)
    try:
        return f"{name_as_text(name)} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name_as_text(name)


def operation_title(sides: Sides, region: Region) -> str:
    """Returns one line: which library gives different bits, on what."""
    op = name_as_text(region.op)
    read = [" and ".join(shapes_read(one)) for one in sides]
    first = f"{library_and_version(sides[0])}: {op} gives different bits"
    if read[0] != read[1]:
        return f"{first} on {read[0]} than on {read[1]}."
    return f"{first} in two runs."


def shapes_read(one: Alone) -> list[str]:
    """Returns shapes of the first of what is read, as text."""
    return ["x".join(map(str, array.shape)) or "one number" for array in one.reads[:3]]
