"""Writes the folder of a source: one recorded operation as a script with its exact operands.

The operation is written as a user of its library writes it, by the recorder; both sides stand in
the script. It is proved in fresh processes before anything is kept: it has to print the recorded
bits. Names of a model are text in it and nothing else; operands that are too many for a script are
arrays in a file beside it, read without pickle.

A product of weights or a convolution is a case too (``write_case``): its report is that of a case,
reduced with its cause kept, where the layer differs by the same cause on generated operands.
"""

from __future__ import annotations

import ast
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats, layout
from probe.case.arguments import require_unwritten
from probe.case.errors import InputError, NotReproduced, ProbeError
from probe.diff.alone import (
    CONVERSIONS,
    Alone,
    Sides,
    case_of,
    isolated_sides,
    no_case,
    unequal_bits,
)
from probe.diff.causes import Cause
from probe.diff.difference import Region
from probe.diff.source import ULPS, find_cause
from probe.explain.evidence import differing_example, named_kernels
from probe.explain.runs import Finding
from probe.explain.verdict import BUG, Verdict, bug_or_rounding, verdict_of_counts
from probe.record.recording import Run
from probe.report import folder, program, proof, report
from probe.report.program import HeldSides, Script, ScriptFunction, ScriptSide
from probe.report.report import Reported, ReportWords, Reproduction
from probe.targets import backends
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


@dataclass(kw_only=True)
class OperationReport(Reported):
    """One operation that differs."""

    sides: Sides
    region: Region
    cause: Cause

    def words(self) -> ReportWords:
        pair, cause = self.sides[0].pair, self.cause
        op, (left, right) = name_as_text(self.region.op), self.sides_in_words()
        where = f" (`{name_as_text(self.region.path)}` of the model)" if self.region.path else ""
        far = "not by a number of ulps" if pair.max_ulp is None else f"up to {pair.max_ulp} ulp"
        counts = f"{pair.differing} of {pair.compared} outputs"
        story = f"`{op}`{where}: {counts} that read the same values differ, {far}"
        for word, alone in zip(("left", "right"), self.sides, strict=True):
            typed = zip(alone.dtypes, alone.reads, strict=False)
            reads = ", ".join(f"{dtype} {array.shape}" for dtype, array in typed)
            story += f"; the {word} side reads {reads} on `{name_as_text(alone.run.target)}`"
        repeats = "gives the recorded bits" if cause.alone else "does not give the recorded bits"
        story += f". Alone, on its recorded operands, it {repeats}."
        kind = cause.kind or "not classified yet"
        why = f"Class: {kind}. {cause.why[:1].upper()}{cause.why[1:]}."
        if cause.comparison is not None and cause.replayed:
            why += f"\n\n{report.cause_in_full(cause.comparison, self.evidence, self.drawn)}"
        if cause.rounding.beyond:
            why += f"\n\n{cause.rounding.words[:1].upper()}{cause.rounding.words[1:]}."
        apart = f"on {left} as on {right}" if left != right else "in both runs"
        asks = f"Should {op} give the same bits {apart}?"
        expectation = "The outputs compared read the same values on both sides."
        return ReportWords(operation_title(self.sides, self.region), story, asks, expectation, why)

    @property
    def drawn(self) -> bool:
        sums = self.cause.comparison
        if sums is None or not self.cause.replayed or not super().drawn:
            return False
        return max(sums.left.case.summands, sums.right.case.summands) <= DRAWN

    def sides_in_words(self) -> tuple[str, str]:
        return shapes_read(self.sides)

    def about(self) -> dict[str, Any]:
        pair, cause = self.sides[0].pair, self.cause.to_json()
        names = {"op": name_as_text(self.region.op), "path": name_as_text(self.region.path)}
        return {
            "targets": [alone.run.target for alone in self.sides],
            "operation": names,
            "compared": pair.compared,
            "differing": pair.differing,
            "max_ulp": pair.max_ulp,
            "cause": {k: v for k, v in cause.items() if not k.endswith("_orders")},
        }


def write_operation(
    out: Path,
    runs: tuple[Run, Run],
    region: Region,
    cause: Cause | None = None,
    model: ModelScript = ModelScript(),  # noqa: B008 (it is never changed)
    times: int = 3,
) -> WrittenFolder:
    """Writes the folder of one operation: a script that holds its operands, and a report.

    Operands are packed into the script, up to ``PACKED`` bytes, and stand beside it above that.
    ``cause``: what ``find_cause`` found; None: it is asked. ``times``: fresh processes
    that must say the same. InputError: the folder has files, or the operation differs nowhere.
    NotReproduced: no script prints the recorded bits; nothing is written then.
    """
    require_unwritten("out", out)
    cause = cause or find_cause(*runs, region)
    if (sides := isolated_sides(*runs, region)) is None:
        why, todo = "no output of it differs", "give a source"
        raise InputError("operation", name_as_text(region.name), why, todo)
    texts = dict[str, str]()
    if model.whole:
        texts["model.py"] = "\n".join(model.whole).rstrip() + "\n"
        ast.parse(texts["model.py"])
    # by its exact sums where the operation is such a sum, else by what its steps can do
    verdict = verdict_of_counts(cause.rounding, cause.compared, cause.differing)
    if cause.comparison is not None and len(cause.comparison.differing):
        exact = bug_or_rounding(cause.comparison)
        if exact.sides is not None and (verdict.what != BUG or exact.what == BUG):
            verdict = exact
    script, ran, arrays = proved_script(sides, region, model.before, times, verdict)
    targets = target_of(sides[0]), target_of(sides[1])
    facts = {"python_version": platform.python_version(), "numpy_version": np.__version__}
    written = OperationReport(
        targets=targets,
        versions=(version_of(sides[0]), version_of(sides[1])),
        script=script,
        ran=ran,
        verdict=verdict,
        facts=report.facts_of(targets, [facts], None),
        evidence=None if cause.comparison is None else differing_example(cause.comparison),
        times=times,
        environment=report.library_environment(targets[0]),
        further=texts,
        arrays=arrays,
        sides=sides,
        region=region,
        cause=cause,
    )
    folder.write_folder(written, out)
    return WrittenFolder(out, written.files, script, ran, times=times)


def proved_script(
    sides: Sides,
    region: Region,
    before: tuple[Sequence[str], Sequence[str]],
    times: int,
    verdict: Verdict,
) -> tuple[str, proof.ScriptRun, dict[str, np.ndarray]]:
    """The first way of writing it that prints the measured bits in fresh processes, its run, and
    what stands beside it."""
    if any(alone.operation.lines is None for alone in sides):
        why = "the recorder of this library writes no lines for this operation"
        if any(alone.run.untried for alone in sides):
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
    expected: Any = [tuple(f"{int(side[n]):0{width}x}" for side in bits) for n in apart]
    refused: NotReproduced | None = None
    plain = ScriptValues()
    # lines may take arrays as they are
    for ways in dict.fromkeys((LIBRARIES.get(distribution_of_run(sides[0]), plain), plain)):
        try:
            script, beside = script_of_operation(sides, region, before, ways, verdict)
            return script, proof.prove(script, None, expected, times, verdict.fails, beside), beside
        except SyntaxError as error:
            why = f"its recorded code is not valid Python: {error.msg}"
            raise NotReproduced(f"script=reproduce.py: {why}") from None
        except NotReproduced as error:
            refused = refused or error
    assert refused is not None
    raise refused


# Bytes of operands that are packed into a script's text; more of them stand in a file beside it.
PACKED = 1 << 22

NAME = re.compile(r"[^\w .,:;/()\[\]<>=+#-]")


class ScriptValues(NamedTuple):
    """How arrays become a library's own values and back, in a script's words.

    ``wide``: of float32 and the like; ``narrow``: of bfloat16, whose bits the script has as uint16
    and whose outputs it has as float32.
    """

    imports: tuple[str, ...] = ()
    wide: str = "{}"
    narrow: str = "{}"
    back: str = "np.asarray({})"
    back_narrow: str = "(np.asarray({}).astype(np.uint32) << 16).view(np.float32)"


# How a library takes and gives arrays, by the name of its distribution. An array becomes PyTorch's
# as a copy, which begins at a multiple of 64, where NumPy's may not.
TORCH = "{}.detach().cpu().numpy()", "{}.detach().cpu().float().numpy()"
TENSORFLOW = "np.asarray({})", "tf.cast({}, tf.float32).numpy()"
JAX = "np.asarray({})", "np.asarray({}).astype(np.float32)"
LIBRARIES = {
    "torch": ScriptValues(("import torch",), *CONVERSIONS["torch"], *TORCH),
    "tensorflow": ScriptValues(
        ("import tensorflow as tf",), *CONVERSIONS["tensorflow"], *TENSORFLOW
    ),
    "jax": ScriptValues(("import jax", "import jax.numpy as jnp"), *CONVERSIONS["jax"], *JAX),
}


OWN_OPERANDS = "the operands that it read in two runs of a model"


def name_as_text(name: str) -> str:
    """A name of a model as text: letters, digits and plain signs, no longer than 120."""
    return NAME.sub("_", name)[:120]


def script_of_operation(
    sides: Sides,
    region: Region,
    before: tuple[Sequence[str], Sequence[str]],
    ways: ScriptValues,
    verdict: Verdict,
) -> tuple[str, dict[str, np.ndarray]]:
    """The text of the script, and the arrays of the file that it reads."""
    names, arrays, parts = named_operands(sides)
    held, factors = held_output(sides, verdict)
    arrays |= factors
    places = []
    for word, alone in zip(("left", "right"), sides, strict=True):
        shape, index = alone.value.shape, alone.index
        if alone.pair.selection.all_by_index:
            places.append("np.s_[...]")
            continue
        # the outputs that are compared: a block is written as slices, else they have flat indices
        at = np.stack(np.unravel_index(index, shape)) if shape else np.zeros((0, 1), int)
        block = tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in at)
        block_indices = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[block].reshape(-1)
        if np.array_equal(block_indices, index):
            places.append(f"np.s_[{program.slices_as_written(block, shape)}]")
        else:
            arrays[f"{word}_index"] = index
            places.append(f"{word}_index")
    if any(array.dtype.hasobject for array in arrays.values()):
        raise InputError("operands", region.name, "they are Python objects", "give numbers")
    large = sum(array.nbytes for array in arrays.values()) > PACKED
    beside = arrays if large else {}
    operands: list[str] = []
    for name, array in arrays.items():
        if large:
            operands.append(f'{name} = operands["{name}"]')
        else:
            operands += program.assignments(name, array)
    for name, (of, part) in parts.items():
        written = program.slices_as_written(part, arrays[of].shape)
        operands.append(f"{name} = {of}[{written}].copy()")
    distribution = distribution_of_run(sides[0]) if version_of(sides[0]) else ""
    functions: list[ScriptFunction] = []
    script_sides = []
    reads = shapes_read(sides)
    for alone, lines_before, arguments, side_words in zip(sides, before, names, reads, strict=True):
        operation, parameters = alone.operation, [f"x{n}" for n in range(len(alone.reads))]
        assert operation.lines is not None
        lines = [*lines_before]
        # PyTorch gets the threads that its target says
        threads = re.search(r",threads=(\d+)", alone.run.target)
        if threads is not None and distribution_of_run(alone) == "torch":
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
            variables = library_variables(Target.parse(alone.run.target))
        script_sides.append(
            ScriptSide(
                f"{name}({', '.join(arguments)})",
                side_words,
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
            f"One operation{where} with {OWN_OPERANDS}.",
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
        stored=report.OPERANDS if beside else "",
        indexed=any(place.endswith("_index") for place in places),
        held=held,
        apart_by=0 if verdict.fails else max(ULPS, sides[0].pair.max_ulp or 0),
    )
    text = str(script)
    ast.parse(text)
    return text, beside


def held_output(sides: Sides, verdict: Verdict) -> tuple[HeldSides | None, dict[str, np.ndarray]]:
    """The judged output beside its exact value, and the arrays whose products it adds."""
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
        if name == "right" and np.array_equal(side.factors, verdict.sides[0].factors or ()):
            name = "left"
        for letter, values in zip("xw", side.factors, strict=True):
            plain = np.asarray(values, np.float64)
            single = plain.astype(np.float32)
            arrays[f"{name}_{letter}"] = single if (single == plain).all() else plain
        divided = f" / {by}" * (by != 1)
        zipped = f"np.c_[{name}_x, {name}_w].tolist()"
        sums.append(
            replace(side, source=f"[Fraction(p) * Fraction(q){divided} for p, q in {zipped}]")
        )
    return HeldSides.of(replace(verdict, sides=(sums[0], sums[1])), outputs), arrays


Names = tuple[list[str], list[str]]
# Of an operand that is part of a larger operand: the name of that, and the slices.
Parts = dict[str, tuple[str, tuple[slice, ...]]]


def named_operands(sides: Sides) -> tuple[Names, dict[str, np.ndarray], Parts]:
    """Names of what either side reads, the arrays, and which are parts of these; what both read
    alike has one name."""
    arrays, parts = dict[str, np.ndarray](), Parts()
    names: Names = ([], [])
    names_by_content: dict[bytes, str] = {}
    for alone, side_names, ending in zip(sides, names, ("", "_right"), strict=True):
        for number, array in enumerate(alone.reads):
            plain = np.ascontiguousarray(array)
            key = repr((plain.shape, plain.dtype.str)).encode() + plain.tobytes()
            name = names_by_content.setdefault(key, f"x{number}{ending}")
            arrays.setdefault(name, plain.reshape(array.shape))
            side_names.append(name)
    for name, array in sorted(arrays.items(), key=lambda item: item[1].size):
        for of, larger in arrays.items():
            if of not in parts and (part := part_of(array, larger)) is not None:
                parts[name] = of, part
                break
    return names, {name: arrays[name] for name in arrays if name not in parts}, parts


def part_of(array: np.ndarray, whole: np.ndarray) -> tuple[slice, ...] | None:
    """The slices of a larger array that an array is, cut along one axis; None where it is none."""
    if array.dtype != whole.dtype or array.ndim != whole.ndim or array.size < 2:
        return None
    apart = [k for k in range(array.ndim) if array.shape[k] != whole.shape[k]]
    if len(apart) != 1 or array.shape[apart[0]] > whole.shape[apart[0]]:
        return None
    (axis,) = apart
    rows, first = np.moveaxis(whole, axis, 0), np.moveaxis(array, axis, 0)[0].tobytes()
    for start in range(len(rows) - array.shape[axis] + 1):
        part = tuple(
            slice(start, start + array.shape[k]) if k == axis else slice(0, size)
            for k, size in enumerate(whole.shape)
        )
        if rows[start].tobytes() == first and whole[part].tobytes() == array.tobytes():
            return part
    return None


def target_of(alone: Alone) -> Target:
    try:
        return Target.parse(alone.run.target)
    except ProbeError:  # recorded elsewhere, with what is not known here
        return Target("numpy")


def distribution_of_run(alone: Alone) -> str:
    """What a side's library is installed as; Keras's operations are TensorFlow's."""
    name = re.split(r"[=@,]", alone.run.target)[0]
    return "tensorflow" if name == "keras" else name


def version_of(alone: Alone) -> str:
    try:
        return metadata.version(distribution_of_run(alone))
    except metadata.PackageNotFoundError:
        return ""


def operation_title(sides: Sides, region: Region) -> str:
    """One line: which library gives different bits, on what."""
    left, right = shapes_read(sides)
    where = f"on {left} than on {right}" if left != right else "in two runs"
    named = f"{name_as_text(distribution_of_run(sides[0]))} {version_of(sides[0])}".rstrip()
    return f"{named}: {name_as_text(region.op)} gives different bits {where}."


def shapes_read(sides: Sides) -> tuple[str, str]:
    """Shapes of the first of what either side reads, as text; where they differ those alone."""
    shapes = [[array.shape for array in alone.reads] for alone in sides]
    apart = [both for both in zip(*shapes, strict=False) if both[0] != both[1]]
    if apart and len(shapes[0]) == len(shapes[1]):
        shapes = [[both[n] for both in apart] for n in range(2)]
    left, right = (
        " and ".join("x".join(map(str, shape)) or "one number" for shape in side[:3])
        for side in shapes
    )
    return left, right


# Smaller cases that are tried: a model's layers are large, and somebody waits for the report.
TRIES = 150


def write_case(
    out: Path,
    runs: tuple[Run, Run],
    region: Region,
    cause: Cause,
    model: str = "",
    *,
    tell: Say = silent,
) -> Reproduction:
    """Writes the report of a case into ``out``, for an operation of a model: the same layer, at the
    same sizes, on generated operands, which has to differ by the same cause.

    ``model``: what the operation is in it, in words. InputError: it is no case, or agrees as one;
    NotReproduced: the case differs by another cause. Nothing is written then. TargetError.
    """
    if (sides := isolated_sides(*runs, region)) is None:
        raise no_case("no output of it differs")
    cases = [case_of(alone) for alone in sides]
    left_arguments, right_arguments = (case.arguments() for case in cases)
    apart = [name for name in left_arguments if left_arguments[name] != right_arguments[name]]
    if len(apart) > 1 or (apart and apart[0] not in ("batch", "length")):
        raise no_case(f"the two calls differ in {' and '.join(apart)}")
    vary = apart[0] if apart else None
    at, against = (getattr(case, vary) if vary else None for case in cases)
    larger = max(cases, key=lambda case: getattr(case, vary) if vary else 0)
    targets = [Target.parse(alone.run.target) for alone in sides]
    layouts_of_sides = [backends.get(target.name).layouts for target in targets]
    refused = no_case("its library lays operands out in no known way")
    # as users call it, and as the library keeps what other operations give
    for word in (layout.CONTIGUOUS, layout.TRANSPOSED, layout.CHANNELS_LAST):
        if all(layout.keeps_layout(word, layouts) for layouts in layouts_of_sides):
            try:
                finding = Finding.of(larger.with_(layout=word), vary, at, against)
                repro = folder.reproduce(finding, *targets, most=TRIES, tell=tell)
                break
            except InputError as error:  # both sides agree, or there is no such layout
                refused = error
    else:
        raise refused
    kind = None if repro.before is None else repro.before.cause
    if kind != cause.kind:
        raise NotReproduced(f"case={finding.label}: its cause is {kind}, not {cause.kind}")
    repro.model = model
    repro.explanation.kernels = named_kernels(repro.explanation, "said")
    folder.write_folder(repro, out)
    return repro
