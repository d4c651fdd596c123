"""Writes the folder of a source: one recorded operation as a script with its exact operands.

The operation is written as a user of its library writes it, by the recorder; both sides stand in
the script. It is proved in fresh processes before anything is kept: it has to print the recorded
bits. Names of a model are text in it and nothing else; operands that are too many for a script are
arrays in a file beside it, read without pickle.

A product of weights or a convolution is a case too (``write_case``): the call of its library that
the model made, with its operands. That it *is* the model's call is not assumed: in a process of its
own the case has to give the recorded bits of both runs, with the layout, the memory address and the
threads that do so. Only then is it handed to the writer of cases, and its reduced form keeps the
cause that was found in the model.
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
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats, layout, ulp
from probe.case.case import Case
from probe.case.errors import InputError, NotReproduced, ProbeError
from probe.case.geometry import TransposedSizes, WindowSizes
from probe.case.operation import OPERATIONS
from probe.diff.alone import WAYS, Alone, Cause, Sides, isolated_sides, unequal_bits
from probe.diff.difference import Difference, Region
from probe.diff.enclosed import ULPS
from probe.diff.source import SAID, find_cause
from probe.diff.sums import OperandPart, OperationSum, ProductLetters, behind_of
from probe.explain.comparison import ComparedShapes, Finding, outputs_of_call
from probe.explain.evidence import differing_example, named_kernels
from probe.explain.verdict import BUG, Verdict, bug_or_rounding, verdict_of_counts
from probe.order.semantics import Contracts, Convolution, Windows
from probe.record.contract import CONSTANT, WEIGHT
from probe.record.recording import Run
from probe.report import folder, program, proof, report
from probe.report.failing import failing
from probe.report.folder import FORMAT, fresh
from probe.report.program import HeldSides, Script, ScriptFunction, ScriptSide
from probe.report.report import Reproduction
from probe.sweep.printing import counted, plain, ranges
from probe.targets import backends, machine
from probe.targets.launch import library_variables
from probe.targets.progress import Say, silent
from probe.targets.target import Target

# Summands up to which both orders are drawn.
DRAWN = 64


@dataclass(repr=False)
class WrittenFolder:
    """What was written. ``no_case``: why it is not the report of a case, empty if it is; ``times``:
    processes that ran the script."""

    path: Path
    files: list[str]
    script: str
    ran: proof.ScriptRun
    no_case: str = ""
    times: int = 3

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
            verdict = verdict_of_operation(cause)
            written = _write_proved_script(work, sides, region, model.before, times, verdict)
            drawn = _draw_orders(work, written, sides, cause)
            texts = {}
            if model.whole:
                texts["model.py"] = "\n".join(model.whole).rstrip() + "\n"
                ast.parse(texts["model.py"])
            texts["report.md"] = _report(written, sides, region, cause, drawn, verdict)
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
                "verdict": verdict.to_json(),
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
    verdict: Verdict,
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
            script = script_of_operation(work, sides, region, before, ways, verdict)
        except SyntaxError as error:
            why = f"its recorded code is not valid Python: {error.msg}"
            break
        path = work / "reproduce.py"
        path.write_text(script, encoding="utf-8")
        ran = proof.own_interpreter(path)
        if ran.verdict == proof.STILL_THERE:  # else it can't tell, and need not run again
            runs = [ran, *(proof.own_interpreter(path) for _ in range(times - 1))]
            if len({(run.status, run.printed) for run in runs}) > 1:
                ran = proof.ScriptRun(proof.CANNOT_RUN, "fresh processes give different bits")
        same = bool(ran.bits) and ran.bits == expected[: len(ran.bits)]
        if same and ran.verdict == proof.STILL_THERE and ran.status == int(verdict.fails):
            files = ["reproduce.py", *([OPERANDS] if OPERANDS in script else [])]
            return WrittenFolder(work, files, script, ran, times=times)
        why = why or machine.publishable(f"in a fresh process the script says: {ran.said}")
    raise NotReproduced(f"script=reproduce.py: {why}")


def _draw_orders(work: Path, written: WrittenFolder, sides: Sides, cause: Cause) -> bool:
    """Returns whether both orders were drawn."""
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
        from probe.report import trees

        picture = trees.sides(evidence, (shapes_read(sides[0]), shapes_read(sides[1])))
        picture.savefig(work / "order.png", metadata={"Software": None})
        written.files.append("order.png")
    return drawn


def verdict_of_operation(cause: Cause) -> Verdict:
    """Says whether an operation's difference is rounding or a bug: by its exact sums where it is
    one that is given as it is, else by what its steps can do."""
    counts = cause.rounding, cause.compared, cause.differing
    verdict = verdict_of_counts(*counts)
    if cause.comparison is None or not len(cause.comparison.differing):
        return verdict
    exact = bug_or_rounding(cause.comparison)
    if exact.sides is None or (verdict.what == BUG != exact.what):
        return verdict
    return exact


def _report(
    written: WrittenFolder,
    sides: Sides,
    region: Region,
    cause: Cause,
    drawn: bool,
    verdict: Verdict,
) -> str:
    pair, facts, comparison = sides[0].pair, machine.facts(), cause.comparison
    script = "The script is `reproduce.py`, beside this report."
    if OPERANDS not in written.script and len(written.script) < 12_000:
        script = f"```python\n{written.script.rstrip()}\n```"
    lines = [f"# {operation_title(sides, region).rstrip('.')}", ""]
    lines += [report.verdict_in_words(verdict), "", script, ""]
    lines += [f"It prints:\n\n```\n{written.ran.printed.rstrip()}\n```", ""]
    if table := report.exact_value(verdict):
        lines += ["## The exact value", "", table, ""]
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
        lines += ["", f"{cause.rounding.words[:1].upper()}{cause.rounding.words[1:]}."]
    used = ", ".join(dict.fromkeys(library_and_version(alone) for alone in sides))
    lines += ["", "## Versions and machine", ""]
    lines += [f"- {used}, NumPy {np.__version__}, Python {platform.python_version()}"]
    lines += [f"- {facts['os']}, {facts['cpu_model']}, {facts['cpu_isa']}, {facts['cores']} cores"]
    lines += ["", report.made_by(facts["probe_version"], written.times)]
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
    verdict: Verdict,
) -> str:
    """Returns the text of the script; its file of operands is written beside it."""
    names, arrays = named_operands(sides)
    held, factors = held_output(sides, verdict)
    arrays |= factors
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
        held=held,
        apart_by=0 if verdict.fails else max(ULPS, sides[0].pair.max_ulp or 0),
    )
    text = str(script)
    ast.parse(text)
    return text


def held_output(sides: Sides, verdict: Verdict) -> tuple[HeldSides | None, dict[str, np.ndarray]]:
    """Returns the judged output beside its exact value, and the arrays whose products it adds."""
    if verdict.sides is None:
        return None, {}
    outputs, sums, arrays = [], [], {}
    for array, name, alone, side in zip(
        ("one", "two"), ("left", "right"), sides, verdict.sides, strict=True
    ):
        if side.factors is None:
            return None, {}
        by = alone.summed.scale
        outputs.append(f"{array}.reshape(-1)[{int(alone.index[verdict.pair])}]")
        for letter, values in zip("xw", side.factors, strict=True):
            arrays[f"{name}_{letter}"] = np.asarray(values, np.float64)
        divided = f" / {by}" * (by != 1)
        zipped = f"np.c_[{name}_x, {name}_w].tolist()"
        sums.append(
            replace(side, source=f"[Fraction(p) * Fraction(q){divided} for p, q in {zipped}]")
        )
    return HeldSides.of(replace(verdict, sides=(sums[0], sums[1])), outputs), arrays


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


# Smaller cases that are tried: each is larger than one by hand, and somebody waits for it.
TRIES = 150


@dataclass(frozen=True)
class Modelled:
    """A case that may be a model's operation. ``bits``: what both runs recorded, container arrays
    of the sides' output shapes; of the larger side where rows were put in front the rest is None.
    """

    finding: Finding
    targets: tuple[Target, Target]
    bits: tuple[np.ndarray, np.ndarray]
    rows: tuple[int | None, int | None]
    """How many first entries of the batch have to agree on each side; None: all."""
    addresses: tuple[int | None, ...]


def case_of_region(sides: Sides) -> Modelled:
    """Returns the case of a difference. InputError: it is none, with the reason."""
    calls = [_case_of(alone) for alone in sides]
    cases = [case for case, _ in calls]
    operands = []
    for (case, summed), alone in zip(calls, sides, strict=True):
        x, w, b = summed.of(alone.reads)
        operands.append((x.reshape(case.input_shape()), w.reshape(case.weight_shape), b))
    for name, left, right in zip("wb", operands[0][1:], operands[1][1:], strict=True):
        if not _same_bytes(left, right):
            raise _no_case(f"the two runs have different {name}")
    mine, theirs = (case.arguments() for case in cases)
    apart = [name for name in mine if mine[name] != theirs[name]]
    if len(apart) > 1 or (apart and apart[0] not in ("batch", "length")):
        raise _no_case(f"the two calls differ in {' and '.join(apart)}")
    vary = apart[0] if apart else None
    values: list[Any] = [None if vary is None else getattr(case, vary) for case in cases]
    large = int(vary is not None and values[1] > values[0])
    shapes = ComparedShapes.named(cases[large], vary, *values)
    x, rows = _arranged(operands, vary, large)
    _, w, b = operands[large]
    finding = Finding(
        *(shapes.case, shapes.vary, shapes.at, shapes.against, None),
        *(np.ascontiguousarray(x), np.ascontiguousarray(w), b),
    )
    bits = [
        summed.y.taken(np.asarray(alone.gives[alone.output])).reshape(case.output_shape())
        for (_, summed), alone, case in zip(
            calls, sides, (finding.left, finding.right), strict=True
        )
    ]
    known: list[int | None] = [None, None]
    # rows of the larger side stand elsewhere now, those in front are known
    if rows is not None:
        bits[large], known[large] = bits[large][rows], len(rows)
    targets = tuple(Target.parse(alone.side.target) for alone in sides)
    addresses = tuple(
        alone.addresses[summed.x.number] for alone, (_, summed) in zip(sides, calls, strict=True)
    )
    return Modelled(finding, targets, tuple(bits), tuple(known), addresses)  # type: ignore[arg-type]


def _no_case(why: str) -> InputError:
    return InputError("operation", "(of the model)", why, "its own script is written")


def _case_of(alone: Alone) -> tuple[Case, OperationSum]:
    """Returns an operation as a case, and where its operands and outputs are. InputError: it is
    none."""
    op, summed = alone.operation, alone.summed
    # what is behind the sum, whether the library fused it or not, is no part of a case
    if summed.w is None or summed.functions or summed.scale != 1 or summed.divides:
        raise _no_case("it is not one product of weights or one convolution")
    meaning, _ = behind_of(op.meaning, [array.shape for array in alone.reads])
    words: dict[str, Any] = {"in_channels": summed.in_channels, "filters": summed.filters}
    words |= {"dtype": summed.dtype, "batch": summed.batch}
    words |= {"bias": None if summed.b is None else "normal"}
    inner = meaning.windows if isinstance(meaning, Convolution) else meaning
    if isinstance(inner, Contracts):
        summed = summed if summed.b is not None else _rows_times_weights(alone, inner, summed)
        if summed.groups != 1:
            raise _no_case("it is several products")
        rows = {"in_channels": summed.in_channels, "filters": summed.filters, "batch": summed.batch}
        return Case("dense", **words | rows), summed
    assert isinstance(inner, Windows)
    return _convolution_case(inner, getattr(meaning, "holes", (1,)), summed, words), summed


def _rows_times_weights(alone: Alone, meaning: Contracts, summed: OperationSum) -> OperationSum:
    """Returns a product whose weights are the right operand, or the left one if no input changes
    that one alone: the sum itself takes the larger one, which goes by the number of rows."""
    axes = ProductLetters.of(meaning, [array.shape for array in alone.reads])
    first, second = (_is_fixed(alone.side, alone.operation.reads[n]) for n in meaning.reads)
    rows = int(first and not second)
    filters = [x for x in axes.out if x in axes.own[1 - rows] and x not in axes.own[rows]]
    lines, inner = [x for x in axes.out if x not in filters], axes.summed(rows)
    if any(x in axes.own[1 - rows] and axes.sizes[x] > 1 for x in lines):
        raise _no_case("it is several products")
    m, k, n = map(axes.count, (lines, inner, filters))
    turned = [axes.out.index(x) for x in (*lines, *filters)]
    given = OperandPart.of(0, tuple(axes.sizes[x] for x in axes.out), turned, m, n)
    x = axes.part(rows, [*lines, *inner], m, k)
    w = axes.part(1 - rows, [*inner, *filters], k, n)
    y = replace(given, whole=alone.value.shape)
    return replace(summed, batch=m, in_channels=k, filters=n, groups=1, x=x, w=w, y=y)


def _is_fixed(run: Run, number: int) -> bool:
    """Returns whether a value comes from weights alone."""
    value = run.values[number]
    if value.given < 0:
        return value.role in (WEIGHT, CONSTANT)
    return all(_is_fixed(run, n) for n in run.operations[value.given].reads)


def _convolution_case(
    inner: Windows, holes: Sequence[int], summed: OperationSum, words: dict[str, Any]
) -> Case:
    if inner.kind not in ("convolution", "transposed") or set(holes) != {1} or inner.flipped:
        raise _no_case("it is a transposed convolution whose taps are in the opposite order")
    rank, transposed, pads = len(inner.kernel), inner.kind == "transposed", inner.padding
    op = f"conv{rank}d{'_transpose' * transposed}"
    if op not in OPERATIONS:
        raise _no_case("it has more spatial axes than a case's")
    sizes = inner.kernel, inner.stride, inner.dilation
    if transposed:  # what is cut off follows from the number of outputs
        plain = TransposedSizes(*sizes, ((0, 0),) * rank).outputs(summed.sizes)
        whole = zip(plain, pads, summed.index, strict=True)
        pads = tuple((before, all_ - before - len(kept)) for all_, (before, _), kept in whole)
    elif min(min(pair) for pair in pads) < 0:
        raise _no_case("its padding crops")
    padding: Any = pads if any(map(any, pads)) else "valid"
    windows = TransposedSizes if transposed else WindowSizes
    if padding != "valid" and pads == windows(*sizes, "same").pads(summed.sizes):
        # users of TensorFlow, Keras and JAX write SAME: explicit zeros are another call there
        padding = "same"
    depthwise = op == "conv2d" and 1 < inner.groups == summed.in_channels
    op = "depthwise_conv2d" if depthwise else op
    case = Case(
        *(op, inner.kernel),
        length=summed.sizes[-1],
        height=summed.sizes[:-1] or None,
        stride=inner.stride,
        dilation=inner.dilation,
        padding=padding,
        **words | ({} if depthwise else {"groups": inner.groups}),
    )
    if case.output_spatial() != tuple(map(len, summed.index)):
        raise _no_case("its last windows reach beyond the input as no case's do")
    return case


def _same_bytes(array: np.ndarray | None, other: np.ndarray | None) -> bool:
    if array is None or other is None:
        return array is other
    return array.shape == other.shape and array.tobytes() == other.tobytes()


def _arranged(
    operands: Sequence[tuple[np.ndarray, Any, Any]], vary: str | None, large: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the larger side's input, of which the smaller one's is the beginning; and which of
    its entries were put in front for that, None where they stand there."""
    fewer, more = operands[1 - large][0], operands[large][0]
    # a case of fewer rows, or of a shorter length, is the beginning of the larger one
    begun = more[: len(fewer)] if vary == "batch" else more[..., : fewer.shape[-2], :]
    if _same_bytes(fewer, np.ascontiguousarray(begun)):
        return more, None
    if vary != "batch":
        raise _no_case("the shorter run's input is not the beginning of the longer one's")
    places: dict[bytes, list[int]] = {}
    for number, row in enumerate(more):
        places.setdefault(row.tobytes(), []).append(number)
    try:  # each row once, however often its bits are there
        front = np.array([places[row.tobytes()].pop(0) for row in fewer])
    except (KeyError, IndexError):
        raise _no_case("the smaller run's rows are not among the larger one's") from None
    # the rows of both runs in front, so that the smaller run is the beginning of the larger
    rest = np.setdiff1d(np.arange(len(more)), front)
    return more[np.concatenate([front, rest])], front


def verified_alone(modelled: Modelled, tell: Say = silent) -> Modelled:
    """Returns it with the layout that gives the recorded bits on both sides.

    InputError: none of those that are tried does.
    """
    why = "its library lays operands out in no known way"
    # as users call it, at the recorded address, and as the library keeps others; threads are part
    # of a recording's target
    words = [layout.CONTIGUOUS, layout.TRANSPOSED, layout.CHANNELS_LAST]
    if len(set(modelled.addresses)) == 1 and modelled.addresses[0]:
        words.insert(1, f"{layout.OFFSET}{modelled.addresses[0]}")
    known = [backends.get(target.name).layouts for target in modelled.targets]
    for word in words:
        if not all(layout.keeps_layout(word, layouts) for layouts in known):
            continue
        tell(f"trying it alone on {modelled.targets[0].text}, its operands {word}")
        try:
            finding = replace(modelled.finding, case=modelled.finding.case.with_(layout=word))
        except InputError:  # the case has no such layout
            continue
        try:
            with failing(*modelled.targets) as failed:
                outputs = [
                    outputs_of_call(failed.first, finding.left, finding.operands(finding.left)),
                    outputs_of_call(failed.second, finding.right, finding.operands(finding.right)),
                ]
        except ProbeError as error:
            why = str(error)
            continue
        sides = zip(outputs, modelled.bits, modelled.rows, strict=True)
        if all(ulp.equal(y[:rows], bits, finding.case.dtype) for y, bits, rows in sides):
            return replace(modelled, finding=finding)
        why = "by itself, in a fresh process, the same call gives different bits than in the model"
    raise _no_case(why)


def write_case(
    out: Path,
    runs: tuple[Run, Run],
    region: Region,
    cause: Cause,
    model: str = "",
    *,
    tell: Say = silent,
) -> Reproduction:
    """Writes the report of a case into ``out``, for an operation of a model.

    ``model``: what the operation is in it, in words. InputError: it is no case, or not the model's
    call; NotReproduced: the case differs by another cause. Nothing is written then. TargetError.
    """
    sides = isolated_sides(*runs, region)
    if sides is None:
        raise _no_case("no output of it differs")
    modelled = verified_alone(case_of_region(sides), tell)
    repro = folder.reproduce(modelled.finding, *modelled.targets, most=TRIES, tell=tell)
    kind = None if repro.before is None else repro.before.cause
    if kind != cause.kind:
        raise NotReproduced(f"case={modelled.finding.label}: its cause is {kind}, not {cause.kind}")
    repro.model = model
    repro.explanation.kernels = named_kernels(repro.explanation, "said")
    folder.write_folder(repro, out)
    return repro


def layer_of(difference: Difference, region: Region) -> str:
    """Returns what a source is called in its library; empty where it is no case, or not kept."""
    try:
        sides = isolated_sides(difference.left, difference.right, region)
    except (KeyError, InputError):
        return ""
    return "" if sides is None else layer_text(sides[0], region.path)


def layer_text(alone: Alone, path: str = "") -> str:
    """Returns what an operation is called in its library; empty where it is no case.

    ``path``: where it stands in the model: a layer of Keras's, where there is one.
    """
    try:
        (case, _), library = _case_of(alone), alone.side.target
    except (ProbeError, KeyError, IndexError):
        return ""
    return as_users_write(case, Target.parse(library).name, bool(path))


def as_users_write(case: Case, library: str, named: bool = True) -> str:
    """Returns a case as its library's users write it: ``nn.Linear(1536, 384)``."""
    rank, depthwise = case.spatial_rank, case.op[0] == "d"  # a dense layer has no rank
    kernel = case.kernel[0] if rank == 1 else case.kernel
    plain = Case(case.op, case.kernel, case.in_channels, filters=case.filters, groups=case.groups)
    options = [
        f"{name}={_sizes_as_written(getattr(case, name))}"
        for name in ("stride", "dilation")
        if getattr(case, name) != getattr(plain, name)
    ]
    if rank and case.padding != "valid":
        pads = case.windows.pads(case.spatial())
        even = all(left == right for left, right in pads)
        numbers = _sizes_as_written(tuple(left for left, _ in pads)) if even else repr(pads)
        text = numbers if library == "torch" else repr(case.padding_text)
        options.append(f"padding={text}")
    if library == "torch":
        if not rank:
            return f"nn.Linear({case.in_channels}, {case.filters})"
        groups = case.in_channels if depthwise else case.groups
        options += [f"groups={groups}"] * (depthwise or groups > 1)
        sizes = f"{case.in_channels}, {case.filters}, {kernel}"
        name = f"nn.Conv{'Transpose' * case.operation.transposed}{rank}d"
        return f"{name}({', '.join([sizes, *options])})"
    if library in ("tensorflow", "keras"):
        if not rank:
            dense = f"Dense({case.filters}) of {case.in_channels} numbers"
            return dense if named else f"tf.matmul with {case.in_channels}x{case.filters} weights"
        if depthwise:
            return f"DepthwiseConv{rank}D({', '.join([str(kernel), *options])})"
        sizes = f"{case.filters}, {kernel}"
        name = f"Conv{rank}D{'Transpose' * case.operation.transposed}"
        return f"{name}({', '.join([sizes, *options])}) of {case.in_channels} channels"
    word = {"onnxruntime": ("Gemm", "Conv"), "litert": ("FULLY_CONNECTED", "CONV_2D")}
    name = word.get(library, ("a product", "a convolution"))[rank > 0]
    sizes = f"{case.in_channels} to {case.filters}"
    return f"{name} of {sizes}{f', kernel {kernel}' * (rank > 0)}"


def _sizes_as_written(sizes: tuple[int, ...]) -> str:
    """Returns sizes as users write them: one number where all axes have it."""
    return str(sizes[0]) if len(set(sizes)) == 1 else repr(sizes)


def where_it_differs(cause: Cause) -> str:
    """Returns in which entries an explained sum differs, and how; empty where no sums were
    compared: ``row 9 of 9 alone differs, computed by a different kernel than the other rows: ...``.

    That entries with equal bits are added alike is only said where an output of one was revealed on
    both sides: a changed order of a short sum often rounds to the same bits.
    """
    comparison = cause.comparison
    if comparison is None or not len(comparison.differing) or cause.kind not in SAID:
        return ""
    case: Any = comparison.left.case
    every = comparison.pairs.left[:, 0]
    differing = np.unique(every[comparison.differing])
    count = len(comparison.left.replays)
    word = "position" if case.spatial_rank else "row"
    if len(differing) == len(np.unique(every)):
        verb = "is" if len(differing) == 1 else "are"
        who = f"its only {word}" if count == 1 else f"all {counted(len(differing), word)}"
        who = f"{who} {verb} added differently"
    else:
        which = ranges((differing + 1).tolist(), 4)
        many = len(differing) > 1
        who = f"{word}{'s' * many} {which} of {count:,} alone {'differ' if many else 'differs'}"
        sums = [
            (left, right)
            for n in np.flatnonzero(~np.isin(every, differing)).tolist()
            if (left := comparison.left.summation(comparison.pairs.left[n])) is not None
            and (right := comparison.right.summation(comparison.pairs.right[n])) is not None
        ]
        if sums and all(left == right for left, right in sums):
            who += f", computed by a different kernel than the other {word}s"
    return f"{who}: {SAID[cause.kind]} (sums of {case.summands:,})"
