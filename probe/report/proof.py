"""Runs a script in fresh processes, to prove it when written and to verify it later; and writes a
revealed run as one Python file that gives the library's bits with NumPy, which proves the orders.

That file is ``evaluator.py`` with its data at the end: operands, windows, trees, roundings and the
library's own bits as compressed arrays in base64.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.arguments import not_waiting
from probe.case.errors import InputError, NotReproduced, TargetError
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.runs import CaseRun
from probe.order.summation import Summation
from probe.order.window import Geometry
from probe.report.evaluator import NOTHING_READ
from probe.targets import launch, machine, target
from probe.targets.environments import Missing, Runtime
from probe.targets.target import Target

# Exit statuses: the assertion holds, it fails, or the script can't run.
HOLDS, FAILS, CANNOT_RUN = 0, 1, 2

STILL_THERE, GONE = "still there", "gone"
# The line that says whether outputs differ. Scripts of before ended with it, and with 1 where they
# do; Python itself ends with 1 too, where a script is broken.
COUNTED = re.compile(
    r"^(?:\d+ of \d+ outputs differ, up to |none of \d+ outputs differs).*$", re.MULTILINE
)

CANNOT_TELL = "can't tell"

# Seconds that one run of a script may take; longer where the processor is emulated.
TIME_LIMIT = 600.0

BITS = re.compile(r"= \S+ \(0x([0-9a-f]+)\)")


@dataclass(frozen=True)
class ScriptRun:
    """One run: its exit status (negative: the signal that ended it) and what it printed."""

    status: int
    printed: str
    errors: str = ""

    @property
    def bits(self) -> list[tuple[str, str]]:
        """The pairs of bit patterns that it printed, hexadecimal."""
        patterns = BITS.findall(self.printed)
        return list(zip(patterns[::2], patterns[1::2], strict=True))

    @property
    def verdict(self) -> str:
        """``still there``, ``gone`` or ``can't tell``."""
        if self.status not in (HOLDS, FAILS) or not COUNTED.match(self.said):
            return CANNOT_TELL
        if self.said.startswith("none"):
            return GONE if self.status == HOLDS else CANNOT_TELL
        return STILL_THERE

    @property
    def said(self) -> str:
        """Its last line, which says whether outputs differ; without any, how it ended."""
        if counted := COUNTED.search(self.printed):
            return counted[0]
        lines = self.printed.strip().splitlines() or self.errors.strip().splitlines()
        if self.status < 0:
            return f"ended by signal {-self.status}"
        return lines[-1] if lines else f"exit status {self.status}, and nothing printed"


def command(script: Path, targets: tuple[Target, Target]) -> tuple[list[str], float]:
    """The words that run a script with its targets' interpreters, and how much slower that is.
    TargetError.

    A script of two targets starts their interpreters itself, those that are named behind it.
    """
    left, right = map(runtime_of, targets)
    arguments = [*left.command, str(script)]
    if targets[0] != targets[1] and left.command != right.command:
        # the script starts the other interpreter itself: another release, or an emulated processor
        arguments += [shlex.join(left.command), shlex.join(right.command)]
    return arguments, max(left.slower, right.slower)


def runtime_of(where: Target) -> Runtime:
    why = target.why_unavailable(where)
    try:
        if not why:
            return target.target_runtime(where)
    except Missing as missing:
        why = str(missing)
    raise TargetError(where.text, "unavailable", str(why))


def switch_variables(where: Target) -> dict[str, str]:
    """The variables that a target's switches set, without those that every target has."""
    variables = launch.library_variables(where)
    plain = launch.library_variables(replace(where, switches=()))
    return {name: value for name, value in variables.items() if plain.get(name) != value}


def run_script(
    script: Path, targets: tuple[Target, Target], variables: Mapping[str, str] | None = None
) -> ScriptRun:
    """One run in a fresh process; variables are those of ``launch.child_environment``. TargetError.

    ``variables``: more of them.
    """
    arguments, slower = command(script, targets)
    return _run_command(arguments, TIME_LIMIT * slower, variables)


# Seconds in which a library tells its versions.
PATIENCE = 60.0


def run_python(where: Target, arguments: list[str]) -> ScriptRun:
    """One run of a target's interpreter with these arguments; status 2 where it can't run."""
    try:
        return _run_command([*runtime_of(where).command, *arguments], PATIENCE)
    except (TargetError, OSError) as error:
        return ScriptRun(CANNOT_RUN, "", str(error))


def own_interpreter(script: Path, *options: str, arguments: tuple[str, ...] = ()) -> ScriptRun:
    """One run with this interpreter, for targets that are not here by their name."""
    return _run_command([sys.executable, *options, str(script), *arguments])


def _run_command(
    arguments: list[str], limit: float = TIME_LIMIT, variables: Mapping[str, str] | None = None
) -> ScriptRun:
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=limit,
            env=launch.child_environment(dict(variables or {})),
        )
    except subprocess.TimeoutExpired:
        return ScriptRun(CANNOT_RUN, "", f"no answer within {limit:g} s")
    return ScriptRun(done.returncode, done.stdout, done.stderr)


def prove(
    program: str,
    targets: tuple[Target, Target] | None,
    expected: list[tuple[str, str]],
    times: int = 3,
    fails: bool = False,
    beside: Mapping[str, np.ndarray] | None = None,
) -> ScriptRun:
    """The run of a script that says the same ``times`` times and what was ``expected``.

    ``targets``: whose interpreters run it; None: ours. ``expected``: bit patterns of the first
    differing outputs; ``fails``: whether its assertion has to. ``beside``: arrays that it reads
    from a file. NotReproduced says what happened instead. TargetError: a target can't run here.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        script = Path(folder) / "reproduce.py"
        script.write_text(program, encoding="utf-8")
        if beside:
            np.savez_compressed(script.with_name("operands.npz"), **beside)  # type: ignore[arg-type]
        runs = [
            run_script(script, targets) if targets else own_interpreter(script)
            for _ in range(times)
        ]
    printed = "; ".join(dict.fromkeys(f"exit status {run.status}: {run.said}" for run in runs))
    printed = machine.publishable(printed)
    if len({(run.status, run.printed) for run in runs}) > 1:
        raise NotReproduced(f"script=reproduce.py: {times} fresh processes said: {printed}")
    first = runs[0]
    if first.verdict == STILL_THERE and first.status != int(fails):
        why = f"its assertion {'holds' if fails else 'fails'}, against the verdict"
        raise NotReproduced(f"script=reproduce.py: {why}: {first.errors.strip()[-200:]}")
    if first.verdict != STILL_THERE:
        why = f"the bits differ in probe's process and not in {times} fresh ones"
        if first.verdict == CANNOT_TELL:
            why = "in a fresh process the script says"
        raise NotReproduced(f"script=reproduce.py: {why}: {printed}")
    # a script prints the first few; those have to be the measured ones
    if first.bits != expected[: len(first.bits)] or not first.bits:
        gives = f"{first.bits[:1]} where {expected[:1]} was measured"
        raise NotReproduced(f"script=reproduce.py: it gives different bits: {gives}")
    return first


def replayed_script(
    comparison: Comparison, bits: list[tuple[str, str]]
) -> tuple[str, str, bool | None]:
    """The text of ``emulated.py``, run here by NumPy alone: one that is wrong is none.

    Also why there is none, and whether it prints all of the bit patterns that a script printed.
    """
    pairs = comparison.pairs.some(comparison.pairs.same_window)
    note = "What reproduce.py computes, added up in the same order by NumPy alone."
    sides = [comparison.left, comparison.right]
    try:
        text = program_text(sides, pairs=pairs, partial=True, note=note)
    except InputError as error:
        return "", error.why, None
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "emulated.py"
        script.write_text(text, encoding="utf-8")
        # -I: neither this folder, PYTHONPATH nor the user's packages, so NumPy alone serves it;
        # with --all it prints every output, also those that the script does not
        ran = own_interpreter(script, "-I", arguments=("--all",))
    printed = [all(f"(0x{side})" in ran.printed for side in pair) for pair in bits]
    if ran.status == 0 and any(printed):
        return text, "", all(printed)
    why = "they are not sums"
    if ran.status:
        why = "the replay in NumPy gives different bits from the library's"
    return "", f"{why}, where the two differ", None


@dataclass
class Verified:
    """``verdict``: ``still there``, ``gone`` or ``can't tell``; ``why``: what the script said.

    ``same_bits``: whether it printed the bits of the machine where it was written; None where it
    can't be told. ``interpreter``: ``target`` or ``own``, where the target is not here.
    """

    verdict: str
    why: str
    runs: int
    same_bits: bool | None
    interpreter: str
    targets: list[str]


def verify(folder: Path, times: int = 3, *, trust: bool = False) -> Verified:
    """Runs a folder's script ``times`` times with its target's interpreter, else with ours.

    InputError: no reproduction is in the folder, or nobody said that it is trusted: the script may
    do anything. What can't be told is no error.
    """
    try:
        path = not_waiting("dir", folder / "machine.json")
        about = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(about, dict) and about["targets"]
    except OSError as error:
        why = f"no machine.json can be read in it ({error.strerror})"
        raise InputError("dir", folder, why, "give a folder of `probe report`") from None
    except (ValueError, RecursionError, KeyError, AssertionError):
        why = "its machine.json is not one of `probe report`"
        raise InputError("dir", folder, why, "write the folder again") from None
    script = folder / "reproduce.py"
    if not script.is_file():
        raise InputError("dir", folder, "there is no reproduce.py in it", "give a reproduction")
    if not trust:
        todo = "if you wrote it, or read it and trust it, give --trust"
        raise InputError("dir", folder, "its reproduce.py is a program, which is run", todo)
    script, interpreter, why = script.resolve(), "target", ""
    try:
        targets = [Target.parse(text) for text in about["targets"]]
        runs = [run_script(script, (targets[0], targets[-1])) for _ in range(times)]
    except (TargetError, InputError) as error:
        interpreter, why = "own", str(error)
        runs = [own_interpreter(script) for _ in range(times)]
    lines = "; ".join(dict.fromkeys(run.said for run in runs))
    answer = runs[0].verdict
    if len({run.verdict for run in runs}) > 1:
        answer, lines = CANNOT_TELL, f"{times} runs disagree: {lines}"
    if answer == CANNOT_TELL and why:
        lines = f"{lines}; {why}"
    same = None
    if answer == STILL_THERE:
        printed = {tuple(run.bits) for run in runs}
        same = printed == {tuple(tuple(bits) for bits in about.get("bits", []))}
    return Verified(answer, lines, len(runs), same, interpreter, list(about["targets"]))


# Bytes of operands and outputs that a file may hold. Python reads the file whole.
LARGEST = 1 << 28

TREE_SHOWN = 120


def save(
    sides: CaseRun | Sequence[CaseRun],
    path: str | Path,
    *,
    pairs: OutputPairs | None = None,
    partial: bool = False,
    note: str = "",
) -> Path:
    """Writes a file that replays ``sides`` with NumPy (1.17 or later) and Python (3.8) alone.

    Run, it prints the orders and bits and exits with 0 if all are the library's, else with 1.
    ``pairs``: outputs of the first two sides that must agree; the file prints those that differ.
    ``note``: a line printed first. ``partial``: outputs whose bits the replay did not give are left
    out and counted in what the file prints; without it they are an InputError, as is a side with
    no orders at all. Writes some MB for a large layer: the operands, mostly.
    """
    chosen = [sides] if isinstance(sides, CaseRun) else list(sides)
    return write_text(program_text(chosen, pairs=pairs, partial=partial, note=note), path)


def write_text(program: str, path: str | Path) -> Path:
    target = Path(path)
    try:
        target.write_text(program, encoding="utf-8")
    except OSError as error:
        why = error.strerror or "it can't be written"
        raise InputError("out", path, why, "give a file in a folder that exists") from None
    return target


def program_text(
    sides: Sequence[CaseRun],
    *,
    pairs: OutputPairs | None = None,
    partial: bool = False,
    note: str = "",
) -> str:
    about: dict[str, Any] = {"format": 1, "note": note, "runs": []}
    arrays: dict[str, np.ndarray] = {}
    for number, side in enumerate(sides):
        described, run_arrays = _data_of_run(side, partial)
        about["runs"].append(described)
        arrays |= {f"{number}.{name}": array for name, array in run_arrays.items()}
    if pairs is not None:
        for name, places, side in zip(
            ("left", "right"), (pairs.left, pairs.right), sides, strict=False
        ):
            # the flat number of an output: position times filters, plus filter
            arrays[name] = places @ np.array([side.case.filters, 1])
    size = sum(array.nbytes for array in arrays.values())
    if size > LARGEST:
        why = f"operands and outputs are {size >> 20} MiB, too much for a Python file"
        raise InputError("case", sides[0].case.label, why, "take a shorter length or fewer filters")
    # text as an array: one archive holds all of it, and NumPy alone reads it
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    stored = io.BytesIO()
    np.savez_compressed(stored, **arrays)  # type: ignore[arg-type]
    lines = "\n".join(textwrap.wrap(base64.b64encode(stored.getvalue()).decode(), 96))
    template = Path(__file__).with_name("evaluator.py").read_text(encoding="utf-8")
    head, marker, tail = template.rpartition('\nDATA = ""\n')
    assert marker
    return f'{head}\nDATA = """\n{lines}\n"""\n{tail}'


def _data_of_run(side: CaseRun, partial: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """One side as JSON, and its arrays by name."""
    if side.orders is None:
        what = f"its outputs are {side.refusal}, so" if side.refusal else f"of {side.case.op}"
        why = f"{what} there is no order to replay"
        raise InputError(
            "target", side.target.text, why, "take a different target, or a nearby length"
        )
    case, operands, orders = side.case, side.operands, side.orders
    replayed = side.replays & ~side.reached
    # -1: its replay did not give the library's bits
    index = np.where(replayed, orders.index, -1)
    # a window that reads padding alone has no sum, and gives 0
    index[(orders.index < 0) & orders.replayed] = NOTHING_READ
    missing = int((index == -1).sum())
    if missing and not partial:
        why = f"{missing} of {index.size} outputs have different bits when they are replayed"
        raise InputError("case", case.label, why, "give another length or target")
    # most runs have few summations, so that a byte holds the number of each output's
    arrays = {
        "x": operands.x,
        "w": operands.w,
        "y": operands.y,
        "index": index.astype(np.int8 if index.max(initial=0) < 128 else np.int32),
    }
    arrays |= {} if operands.b is None else {"b": operands.b}
    geometry = Geometry.of(case)
    arrays["reads"] = geometry.reads()
    about = {
        "target": side.target.text,
        "case": case.label,
        "dtype": case.dtype,
        "outputs": list(geometry.outputs),
        "groups": geometry.groups,
        "summations": [_data_of_summation(summation) for summation in orders.summations],
    }
    return about, {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _data_of_summation(summation: Summation) -> dict[str, Any]:
    """What the evaluator needs of a summation, and what it says of it."""
    tree, rounding = summation
    shown = tree.formula
    if len(shown) > TREE_SHOWN:
        shown = f"tree {tree.id}, {len(tree.leaves)} summands, {tree.depth} additions deep"

    def shortened(leaves: Sequence[int]) -> str:
        text = " ".join(map(str, leaves))
        return text if len(text) < 60 else f"{len(leaves)} of them"

    return {
        "tree": shown,
        "text": "; ".join(summation.text("", shortened)),
        "leaf": tree.leaves[0],
        "nodes": tree.nodes,
        "formats": rounding.formats(),
        "sets": {name: sorted(numbers) for name, numbers in rounding.sets().items()},
    }
