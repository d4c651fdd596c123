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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from probe.case import floats
from probe.case.errors import InputError, NotReproduced, ProbeError
from probe.diff.alone import WAYS, Alone, Cause, Sides, isolated_sides, unequal_bits
from probe.diff.difference import Region
from probe.diff.source import find_cause
from probe.explain.evidence import differing_example
from probe.record.recording import Run
from probe.report import emulate, program, proof, report
from probe.report.folder import FORMAT, fresh
from probe.report.program import Script, ScriptFunction, ScriptSide
from probe.sweep.printing import plain
from probe.targets import machine
from probe.targets.launch import library_variables
from probe.targets.target import Target

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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        work = Path(temporary)
        try:
            written = _write_proved_script(work, sides, region, model.before, times)
            drawn = _draw_orders(work, written, sides, cause)
            texts = {}
            if model.whole:
                texts["model.py"] = "\n".join(model.whole).rstrip() + "\n"
                ast.parse(texts["model.py"])
            texts["report.md"] = _report(written, sides, region, cause, drawn)
            facts, pair = machine.facts(), sides[0].pair
            names = ("os", "cpu_model", "cpu_vendor", "cpu_isa", "cores", "machine")
            versions = [library_and_version(alone).rpartition(" ")[2] for alone in sides]
            about = {  # as ``probe report verify`` reads it
                "format": FORMAT,
                "targets": [alone.side.target for alone in sides],
                "library_versions": versions,
                "operation": {"op": name_as_text(region.op), "path": name_as_text(region.path)},
                "compared": pair.compared,
                "differing": pair.differing,
                "max_ulp": pair.max_ulp,
                "cause": {k: v for k, v in cause.to_json().items() if not k.endswith("_orders")},
                "bits": written.ran.bits,
                "machine": {name: facts[name] for name in names}
                | {"python": platform.python_version(), "numpy": np.__version__},
            }
            texts["machine.json"] = json.dumps(about, indent=2, default=plain) + "\n"
            for name, text in texts.items():
                (work / name).write_text(text, encoding="utf-8")
            written.files += texts
            folder.mkdir(parents=True, exist_ok=True)
            for name in written.files:
                shutil.copyfile(work / name, folder / name)
        except OSError as error:
            why = error.strerror or "it can't be made"
            raise InputError("out", folder, why, "give a folder that can be made") from None
    written.path = folder
    return written


def _write_proved_script(
    work: Path,
    sides: Sides,
    region: Region,
    before: tuple[Sequence[str], Sequence[str]],
    times: int,
) -> WrittenFolder:
    """Returns the first way of writing it that prints the recorded bits in fresh processes."""
    if any(alone.operation.lines is None for alone in sides):
        why = "the recorder of this library writes no lines for this operation"
        if any(alone.side.untried for alone in sides):
            why = "a recording's operations are run only with --trust (Python: trust=True)"
        raise NotReproduced(f"script=reproduce.py: {why}")
    apart = np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))
    bits = [
        floats.to_bits(alone.outputs, alone.value.dtype)
        if alone.value.dtype in floats.FORMATS
        else np.ascontiguousarray(alone.outputs).view(f"u{alone.outputs.dtype.itemsize}")
        for alone in sides
    ]
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
            if len({(run.status, run.printed) for run in runs}) > 1:
                ran = proof.ScriptRun(proof.CANNOT_RUN, "fresh processes give different bits")
        same = bool(ran.bits) and ran.bits == expected[: len(ran.bits)]
        if same and ran.verdict == proof.VERDICTS[proof.DIFFERS]:
            files = ["reproduce.py", *([OPERANDS] if OPERANDS in script else [])]
            return WrittenFolder(work, files, script, ran)
        why = why or machine.publishable(f"in a fresh process the script says: {ran.said}")
    raise NotReproduced(f"script=reproduce.py: {why}")


def _draw_orders(work: Path, written: WrittenFolder, sides: Sides, cause: Cause) -> bool:
    """Returns whether both orders were drawn; also replays them by NumPy alone."""
    comparison = cause.comparison
    if comparison is None or not cause.replayed:
        return False
    if max(comparison.left.case.summands, comparison.right.case.summands) > DRAWN:
        return False
    evidence = differing_example(comparison)
    if evidence is None or None in (evidence.left.summation, evidence.right.summation):
        return False
    drawn = find_spec("matplotlib") is not None
    if drawn:
        from probe.report.plots import trees

        picture = trees.sides(evidence, (shapes_read(sides[0]), shapes_read(sides[1])))
        picture.savefig(work / "order.png", metadata={"Software": None})
        written.files.append("order.png")
    brief = emulate.brief(comparison)
    if brief and proof.replay_gives(brief, written.ran.bits)[0]:
        (work / "emulated.py").write_text(brief, encoding="utf-8")
        written.files.append("emulated.py")
    return drawn


def _report(written: WrittenFolder, sides: Sides, region: Region, cause: Cause, drawn: bool) -> str:
    pair, facts, comparison = sides[0].pair, machine.facts(), cause.comparison
    script = "The script is `reproduce.py`, beside this report."
    if OPERANDS not in written.script and len(written.script) < 12_000:
        script = f"```python\n{written.script.rstrip()}\n```"
    lines = [f"# {operation_title(sides, region).rstrip('.')}", "", script, ""]
    lines += [f"It prints:\n\n```\n{written.ran.printed.rstrip()}\n```", ""]
    lines += ["## The operation", "", f"- operation: `{name_as_text(region.op)}`"]
    lines += [f"- in the model: `{name_as_text(region.path)}`"] if region.path else []
    for word, alone in zip(("left", "right"), sides, strict=True):
        typed = zip(alone.dtypes, alone.reads, strict=False)
        reads = ", ".join(f"{dtype} {array.shape}" for dtype, array in typed)
        lines.append(f"- {word}: reads {reads}; on `{name_as_text(alone.side.target)}`")
    far = "no number" if pair.max_ulp is None else f"{pair.max_ulp} ulp"
    differ = f"{pair.differing} of {pair.compared} outputs that read the same values differ"
    lines += [f"- {differ}, up to {far}", "", "## Why", ""]
    kind = cause.kind or "not classified yet"
    lines.append(f"Class: {kind}. {cause.why[:1].upper()}{cause.why[1:]}.")
    repeats = "yes, on both sides" if cause.alone else "no"
    lines.append(f"Alone, on its recorded operands, it gives the recorded bits: {repeats}.")
    if comparison is not None and cause.replayed:
        evidence = differing_example(comparison)
        lines += ["", report.cause_in_full(comparison, evidence, drawn)]
    if cause.rounding.beyond:
        proof = "" if comparison is None else report.beyond(comparison)
        lines += ["", proof or f"{cause.rounding.words[:1].upper()}{cause.rounding.words[1:]}."]
    used = ", ".join(dict.fromkeys(library_and_version(alone) for alone in sides))
    lines += ["", "## Versions and machine", ""]
    lines += [f"- {used}, NumPy {np.__version__}, Python {platform.python_version()}"]
    lines += [f"- {facts['os']}, {facts['cpu_model']}, {facts['cpu_isa']}, {facts['cores']} cores"]
    return "\n".join(lines).rstrip() + "\n"


# Elements of all operands together up to which they stand in the script.
WRITTEN = 4096

OPERANDS = "operands.npz"

NAME = re.compile(r"[^\w .,:;/()\[\]<>=+#-]")


@dataclass(frozen=True)
class ScriptValues:
    """How arrays become a library's own values and back, in a script's words.

    ``wide``: of float32 and the like; ``narrow``: of bfloat16, whose bits the script has as uint16
    and whose outputs it has as float32.
    """

    imports: tuple[str, ...] = ()
    wide: str = "{}"
    narrow: str = "{}"
    back: str = "np.asarray({})"
    back_narrow: str = "(np.asarray({}).astype(np.uint32) << 16).view(np.float32)"
    distribution: str = ""


PLAIN = ScriptValues()

# An array becomes PyTorch's as a copy, which begins at a multiple of 64, where NumPy's may not.
LIBRARIES = {
    "torch": ScriptValues(
        *(("import torch",), *WAYS["torch"], "{}.detach().cpu().numpy()"),
        "{}.detach().cpu().float().numpy()",
        "torch",
    ),
    "tensorflow": ScriptValues(
        *(("import tensorflow as tf",), *WAYS["tensorflow"], "np.asarray({})"),
        "tf.cast({}, tf.float32).numpy()",
        "tensorflow",
    ),
    "jax": ScriptValues(
        *(("import jax", "import jax.numpy as jnp"), *WAYS["jax"], "np.asarray({})"),
        "np.asarray({}).astype(np.float32)",
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
    names, arrays = named_operands(sides)
    places, stored = [], {}
    for word, alone in zip(("left", "right"), sides, strict=True):
        shape, index = alone.value.shape, alone.index
        if alone.pair.selection.whole:
            places.append("np.s_[...]")
            continue
        # the outputs that are compared: a block is written as slices; what is no block goes into
        # the file of operands, as flat indices
        at = np.stack(np.unravel_index(index, shape)) if shape else np.zeros((0, 1), int)
        block = tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in at)
        every = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[block].reshape(-1)
        if np.array_equal(every, index):
            places.append(f"np.s_[{program.slices_as_written(block, shape)}]")
        else:
            stored[f"{word}_index"] = index
            places.append(f'operands["{word}_index"]')
    beside = bool(stored) or sum(array.size for array in arrays.values()) > WRITTEN
    operands: list[str] = []
    if beside:
        if any(array.dtype.hasobject for array in arrays.values()):
            raise InputError("operands", names[0], "they are Python objects", "give numbers")
        np.savez_compressed(work / OPERANDS, **arrays, **stored)  # type: ignore[arg-type]
        operands = [f'{name} = operands["{name}"]' for name in arrays]
    else:
        for name, array in arrays.items():
            operands += program.assignments(name, array)
    distribution = ways.distribution
    if not distribution:
        with suppress(metadata.PackageNotFoundError):
            metadata.version(library_of_side(sides[0]))
            distribution = library_of_side(sides[0])
    functions: list[ScriptFunction] = []
    script_sides = []
    for alone, lines_before, arguments in zip(sides, before, names, strict=True):
        operation, parameters = alone.operation, [f"x{n}" for n in range(len(alone.reads))]
        assert operation.lines is not None
        lines = [*lines_before]
        # PyTorch gets the threads that its target says
        threads = re.search(r",threads=(\d+)", alone.side.target)
        if threads is not None and library_of_side(alone) == "torch":
            lines.insert(0, f"torch.set_num_threads({threads[1]})")
        for name, dtype in zip(parameters, alone.dtypes, strict=False):
            taken = (ways.narrow if dtype == "bfloat16" else ways.wide).format(name)
            lines += [f"{name} = {taken}"] if taken != name else []
        lines += operation.lines(parameters, "y")
        if len(operation.gives) > 1:
            lines.append(f"y = y[{alone.output}] if isinstance(y, (list, tuple)) else y")
        back = ways.back_narrow if alone.value.dtype == "bfloat16" else ways.back
        lines.append(f"return {back.format('y')}")
        name = program.named_function(
            functions,
            "compute_right" if functions else "compute",
            ", ".join(parameters),
            f"{name_as_text(operation.op)}, as it was recorded.",
            tuple(lines),
        )
        variables: dict[str, str] = {}
        with suppress(ProbeError, KeyError, ValueError):  # it is no target that is known
            variables = library_variables(Target.parse(alone.side.target))
        script_sides.append(
            ScriptSide(
                f"{name}({', '.join(arguments)})",
                shapes_read(alone),
                distribution or "NumPy",
                f'metadata.version("{distribution}")' if distribution else "np.__version__",
                variables,
            )
        )
    imports = {*ways.imports, *(line for alone in sides for line in alone.operation.imports)}
    where = f" ({name_as_text(region.path)} of the model)" if region.path else ""
    compared = sides[0].pair.compared
    script = Script(
        title=operation_title(sides, region),
        about=[
            f"One operation{where} with the operands that it read in two runs of a model.",
            f"{compared} outputs are compared, which read the same values on both sides.",
        ],
        needs=[distribution] if distribution else [],
        sides=(script_sides[0], script_sides[1]),
        isolated=script_sides[0].variables != script_sides[1].variables,
        standard={"from importlib import metadata"} if distribution else set(),
        imports=["import numpy as np", *sorted(imports)],
        setup=[],
        operands=operands,
        compared=[(places[0], places[1])],
        functions=functions,
        dtype=sides[0].value.dtype,
        stored=OPERANDS if beside else "",
    )
    text = str(script)
    ast.parse(text)
    return text


def named_operands(sides: Sides) -> tuple[tuple[list[str], list[str]], dict[str, np.ndarray]]:
    """Names of what either side reads, and the arrays; what both read alike has one name."""
    arrays: dict[str, np.ndarray] = {}
    names: tuple[list[str], list[str]] = ([], [])
    known: dict[bytes, str] = {}
    for alone, own, ending in zip(sides, names, ("", "_right"), strict=True):
        for number, array in enumerate(alone.reads):
            plain = np.ascontiguousarray(array)
            key = repr((plain.shape, plain.dtype.str)).encode() + plain.tobytes()
            name = known.setdefault(key, f"x{number}{ending}")
            arrays.setdefault(name, plain.reshape(array.shape))
            own.append(name)
    return names, arrays


def library_of_side(alone: Alone) -> str:
    return re.split(r"[=@,]", alone.side.target)[0]


def library_and_version(alone: Alone) -> str:
    name = library_of_side(alone)
    try:
        return f"{name_as_text(name)} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return name_as_text(name)


def operation_title(sides: Sides, region: Region) -> str:
    """Returns one line: which library gives different bits, on what."""
    left, right = map(shapes_read, sides)
    where = f"on {left} than on {right}" if left != right else "in two runs"
    op = name_as_text(region.op)
    return f"{library_and_version(sides[0])}: {op} gives different bits {where}."


def shapes_read(alone: Alone) -> str:
    """Returns shapes of the first of what is read, as text."""
    shapes = ("x".join(map(str, array.shape)) or "one number" for array in alone.reads[:3])
    return " and ".join(shapes)
