"""Writes the folder of a source: one recorded operation with its exact operands.

The operation is written as a user of its library writes it, by the recorder. The script is proved
in fresh processes before anything is kept: it has to print the recorded bits.
"""

from __future__ import annotations

import ast
import json
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probe import floats, machine
from probe.errors import InputError, NotReproduced
from probe.explaining.evidence import differing_example
from probe.printing import plain
from probe.recording.alone import Alone, Cause, unequal_bits
from probe.recording.difference import Aligned
from probe.recording.recording import Run
from probe.recording.source import Region, find_cause
from probe.reproduction import content, emulate, proof
from probe.reproduction import recorded_script as scripts
from probe.reproduction.folder import FORMAT, fresh

DRAWN = 64
"""Summands up to which both orders are drawn."""


@dataclass(repr=False)
class WrittenFolder:
    """What was written. ``ran``: the script's run; None where no script says what was recorded.

    ``why``: why there is none. ``no_case``: why it is not the report of a case, empty if it is.
    """

    path: Path
    files: list[str] = field(default_factory=list)
    script: str = ""
    ran: proof.ScriptRun | None = None
    why: str = ""
    no_case: str = ""

    def __repr__(self) -> str:
        """Where it is, what is in it and what its script said last: not the script itself."""
        said = self.ran.printed.splitlines()[-1:] if self.ran is not None else [self.why]
        return "; ".join([f"{self.path}: {', '.join(self.files)}", *filter(None, said)])


def write(
    folder: Path,
    left: Run,
    right: Run,
    aligned: Aligned,
    cause: Cause | None = None,
    *,
    before: tuple[Sequence[str], Sequence[str]] = ((), ()),
    whole: Sequence[str] = (),
    times: int = 3,
    force: bool = False,
    unproved: bool = False,
) -> WrittenFolder:
    """Writes ``reproduce.py``, ``report.md`` and ``machine.json`` of one operation.

    ``cause``: what ``source.explain`` found; None: it is asked. ``before``: lines that a side needs
    first. ``whole``: lines of a script of the whole model, which is written as given. ``times``:
    fresh processes that must say the same. ``unproved``: a folder is written without a script where
    none reproduces the bits; else NotReproduced. InputError: the folder has files, or the operation
    differs nowhere.
    """
    fresh(folder, force)
    cause = cause or find_cause(left, right, aligned)
    sides = _sides(left, right, aligned)
    work = Path(tempfile.mkdtemp())
    try:
        made = _proved(work, sides, aligned, before, times)
        if not made.ran and not unproved:
            raise NotReproduced(f"script=reproduce.py: {made.why}")
        _finish(work, made, sides, aligned, cause, whole)
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


def _sides(left: Run, right: Run, aligned: Aligned) -> tuple[Alone, Alone]:
    if (region := Region.of(left, right, aligned)) is None:
        why, todo = "no output of it differs", "give a source"
        raise InputError("operation", scripts.shown(aligned.name), why, todo)
    return region.sides


def _proved(
    work: Path,
    sides: tuple[Alone, Alone],
    aligned: Aligned,
    before: tuple[Sequence[str], Sequence[str]],
    times: int,
) -> WrittenFolder:
    """Returns the first way of writing it that prints the recorded bits in fresh processes."""
    made = WrittenFolder(work)
    events = [one.operation for one in sides]
    if any(one.lines is None for one in events):
        made.why = "the recorder of this library writes no lines for this operation"
        if any(one.side.untried for one in sides):
            made.why = "a recording's operations are run only with --trust (Python: trust=True)"
        scripts.store(work / scripts.OPERANDS, sides)
        made.files.append(scripts.OPERANDS)
        return made
    expected = _expected(sides)
    library = scripts.LIBRARIES.get(scripts.library(sides[0]), scripts.PLAIN)
    for ways in dict.fromkeys((library, scripts.PLAIN)):  # lines may take arrays as they are
        try:
            script = scripts.script(work, sides, aligned, events, before, ways)  # type: ignore[arg-type]
        except SyntaxError as error:
            made.why = f"its recorded code is not valid Python: {error.msg}"
            break
        ran = _run(work, script, times)
        if ran.verdict == proof.VERDICTS[proof.DIFFERS] and _told(ran, expected):
            made.script, made.ran = script, ran
            made.files = [
                "reproduce.py",
                *([scripts.OPERANDS] if scripts.OPERANDS in script else []),
            ]
            return made
        made.why = made.why or machine.publishable(
            f"in a fresh process the script says: {ran.said}"
        )
    scripts.store(work / scripts.OPERANDS, sides)
    made.files = [scripts.OPERANDS]
    return made


def _run(work: Path, script: str, times: int) -> proof.ScriptRun:
    """Returns a run in fresh processes that say the same; else one that can't tell."""
    path = work / "reproduce.py"
    path.write_text(script, encoding="utf-8")
    first = proof.own_interpreter(path)
    if first.status != proof.DIFFERS:
        return first
    runs = [first, *(proof.own_interpreter(path) for _ in range(times - 1))]
    if len({(one.status, one.printed) for one in runs}) > 1:
        return proof.ScriptRun(proof.CANNOT_RUN, "fresh processes give different bits")
    return first


def _told(ran: proof.ScriptRun, expected: list[tuple[str, str]]) -> bool:
    """Returns whether a run printed the recorded bits, as many as it prints."""
    return bool(ran.bits) and ran.bits == expected[: len(ran.bits)]


def _expected(sides: tuple[Alone, Alone]) -> list[tuple[str, str]]:
    """Bit patterns of the outputs that differ, in the script's order, hexadecimal."""
    bits = [_unsigned(one.outputs, one.value.dtype) for one in sides]
    apart = np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))
    width = 2 * bits[0].dtype.itemsize
    return [tuple(f"{int(side[n]):0{width}x}" for side in bits) for n in apart]  # type: ignore[misc]


def _unsigned(array: np.ndarray, dtype: str) -> np.ndarray:
    if dtype in floats.FORMATS:
        return floats.to_bits(array, dtype)
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _finish(
    work: Path,
    made: WrittenFolder,
    sides: tuple[Alone, Alone],
    aligned: Aligned,
    cause: Cause,
    whole: Sequence[str],
) -> None:
    """Adds the picture, the listing of the replay, the report and the machine's facts."""
    drawn = _drawn(work, made, sides, cause)
    if whole:
        text = "\n".join(whole).rstrip() + "\n"
        ast.parse(text)
        (work / "model.py").write_text(text, encoding="utf-8")
        made.files.append("model.py")
    made.files += ["report.md", "machine.json"]
    report = _report(made, sides, aligned, cause, drawn)
    (work / "report.md").write_text(report, encoding="utf-8")
    about = json.dumps(_machine(made, sides, aligned, cause), indent=2, default=plain)
    (work / "machine.json").write_text(about + "\n", encoding="utf-8")


def _drawn(work: Path, made: WrittenFolder, sides: tuple[Alone, Alone], cause: Cause) -> bool:
    """Returns whether both orders were drawn; also replays them by NumPy alone."""
    told = cause.comparison
    if told is None or not cause.replayed or max(_summands(cause)) > DRAWN:
        return False
    evidence = differing_example(told)
    if evidence is None or None in (evidence.left.summation, evidence.right.summation):
        return False
    words = tuple(" and ".join(scripts.shapes(one)) for one in sides)
    from probe.plots import trees

    trees.sides(evidence, (words[0], words[1])).savefig(
        work / "order.png", metadata={"Software": None}
    )
    made.files.append("order.png")
    brief = emulate.brief(told)
    if brief and made.ran and proof.replays(brief, made.ran.bits)[0]:
        (work / "emulated.py").write_text(brief, encoding="utf-8")
        made.files.append("emulated.py")
    return True


def _summands(cause: Cause) -> list[int]:
    told = cause.comparison
    return [] if told is None else [side.case.summands for side in (told.left, told.right)]


def _report(
    made: WrittenFolder, sides: tuple[Alone, Alone], aligned: Aligned, cause: Cause, drawn: bool
) -> str:
    """Returns the text of ``report.md``."""
    pair, facts = sides[0].pair, machine.facts()
    parts = [f"# {scripts.title(sides, aligned).rstrip('.')}", ""]
    if made.ran is not None:
        if scripts.OPERANDS not in made.script and len(made.script) < 12_000:
            parts += [f"```python\n{made.script.rstrip()}\n```", ""]
        else:
            parts += ["The script is `reproduce.py`, beside this report.", ""]
        parts += [f"It prints:\n\n```\n{made.ran.printed.rstrip()}\n```", ""]
    else:
        parts += [
            f"There is no script that shows it: {made.why}. The operands are in "
            f"`{scripts.OPERANDS}`, named x0, x1, ... as the operation reads them.",
            "",
        ]
    operation = [f"- operation: `{scripts.shown(aligned.op)}`"]
    operation += [f"- in the model: `{scripts.shown(aligned.path)}`"] if aligned.path else []
    for word, one in zip(("left", "right"), sides, strict=True):
        reads = ", ".join(
            f"{dtype} {array.shape}" for dtype, array in zip(one.dtypes, one.reads, strict=False)
        )
        operation.append(f"- {word}: reads {reads}; on `{scripts.shown(one.side.target)}`")
    told = "no number" if pair.max_ulp is None else f"{pair.max_ulp} ulp"
    differ = f"{pair.differing} of {pair.compared} outputs that read the same values differ"
    operation.append(f"- {differ}, up to {told}")
    parts += ["## The operation", "", *operation, ""]
    parts += ["## Why", "", *_why(cause, drawn), ""]
    parts += ["## Versions and machine", ""]
    used = dict.fromkeys(scripts.versions(one) for one in sides)
    parts += [f"- {', '.join(used)}, NumPy {np.__version__}, Python {platform.python_version()}"]
    parts += [f"- {facts['os']}, {facts['cpu_model']}, {facts['cpu_isa']}, {facts['cores']} cores"]
    return "\n".join(parts).rstrip() + "\n"


def _why(cause: Cause, drawn: bool) -> list[str]:
    kind = cause.kind or "not classified yet"
    found = [f"Class: {kind}. {cause.why[:1].upper()}{cause.why[1:]}."]
    found.append(
        f"Alone, on its recorded operands, it gives the recorded bits: "
        f"{'yes, on both sides' if cause.alone else 'no'}."
    )
    if cause.comparison is not None and cause.replayed:
        evidence = differing_example(cause.comparison)
        found += ["", content.told(cause.comparison, evidence, drawn)]
    if cause.rounding.beyond:
        proof = "" if cause.comparison is None else content.beyond(cause.comparison)
        found += ["", proof or f"{cause.rounding.words[:1].upper()}{cause.rounding.words[1:]}."]
    return found


def _machine(
    made: WrittenFolder, sides: tuple[Alone, Alone], aligned: Aligned, cause: Cause
) -> dict[str, Any]:
    """Returns the content of ``machine.json``, as ``probe verify`` reads it."""
    facts, pair = machine.facts(), sides[0].pair
    names = ("os", "cpu_model", "cpu_vendor", "cpu_isa", "cores", "machine")
    return {
        "format": FORMAT,
        "targets": [one.side.target for one in sides],
        "library_versions": [scripts.versions(one).rpartition(" ")[2] for one in sides],
        "operation": {
            "op": scripts.shown(aligned.op),
            "path": scripts.shown(aligned.path),
        },
        "compared": pair.compared,
        "differing": pair.differing,
        "max_ulp": pair.max_ulp,
        "cause": {k: v for k, v in cause.to_json().items() if not k.endswith("_orders")},
        "bits": made.ran.bits if made.ran else [],
        "machine": {name: facts[name] for name in names}
        | {"python": platform.python_version(), "numpy": np.__version__},
    }
