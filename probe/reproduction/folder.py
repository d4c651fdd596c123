"""Writes the folder for a bug report after the finding was reduced and proved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from probe import floats, machine
from probe.comparison import Comparison, Finding
from probe.errors import InputError, Misaligned, Nondeterministic, ProbeError
from probe.explaining.evidence import Evidence, differing_example, without_zeros
from probe.launch import library_variables
from probe.printing import plain
from probe.progress import Say, silent
from probe.reproduction import emulate, program, proof, report
from probe.reproduction.failing import (
    Failing,
    KeepsCause,
    Predicate,
    by_switches,
    by_values,
    failing,
    shown_by_products,
)
from probe.reproduction.report import FurtherTarget, Reproduction, facts_of
from probe.reproduction.shortest import shortest_script
from probe.shrink import BUDGET, Shrunk, smallest_finding
from probe.target import Target

# Of ``machine.json``.
FORMAT = 1

# Summands up to which a report shows those that are 0 too.
WRITTEN = 4


@dataclass(frozen=True)
class ReportOptions:
    """How a finding is reduced, proved and looked at before it is written.

    ``by``, ``most``: see ``probe.shrink``. ``keep``: no shrinking. ``any_cause``: a smaller case
    may have another cause, or other kernels. ``times``: fresh processes that must say the same.
    ``also``: targets that are asked about the smallest case. ``avoid``: what avoids it is looked
    for too, at a start of the library for each switch. ``elsewhere``: what is known of others.
    """

    by: str = "bits"
    most: int = BUDGET
    keep: bool = False
    any_cause: bool = False
    times: int = 3
    also: Sequence[Target] = ()
    avoid: bool = True
    elsewhere: Sequence[FurtherTarget] = ()


def reproduce(
    finding: Finding,
    left: Target,
    right: Target | None = None,
    *,
    tell: Say | None = None,
    **options: Any,
) -> Reproduction:
    """Shrinks a finding, explains it, writes its script, and proves the script.

    ``right``: another target for the right side. ``options``: those of ``ReportOptions``. Errors:
    those of ``proved_reproduction``; TargetError.
    """
    asked = ReportOptions(**options)
    avoid = asked.avoid and left == (right or left)
    with failing(left, right) as failed:
        made = proved_reproduction(failed, finding, asked, tell)
        if avoid and "reach" not in made.explanation.causes:
            made.avoids = by_values(failed, made.finding)
    if avoid:
        made.avoids += by_switches(made.finding, finding, left, tell or silent)
    others = []
    for target in asked.also:
        (tell or silent)(f"asking {target.text}")
        try:
            with failing(target) as failed:
                said = "differs" if failed.by_bits(made.finding) else "does not differ"
                version = str(failed.first.facts["library_version"])
        except ProbeError as error:
            said, version = machine.publishable(str(error)), ""
        others.append(FurtherTarget(target.text, version, said, machine.label(), "the smallest"))
    made.elsewhere = [*made.elsewhere, *others]
    (tell or silent)("writing its shortest script")
    made.short = shortest_script(made.finding, made.targets, made.versions, made.evidence)
    return made


def proved_reproduction(
    failed: Failing,
    finding: Finding,
    asked: ReportOptions,
    tell: Say | None = None,
) -> Reproduction:
    """``reproduce`` on targets that are started, for many findings one after the other.

    InputError: both sides agree, or no script is written for it. Nondeterministic. NotReproduced:
    the script does not say what was measured.
    """
    tell = tell or silent
    tell("shrinking")
    shrunk = None
    kept = KeepsCause(failed, finding, asked.any_cause)
    if not asked.keep:
        shrunk = shrunken(failed, finding, asked.by, asked.most, kept=kept)
    smallest = finding if shrunk is None else shrunk.finding
    tell("explaining")
    found = failed.explained(smallest)
    after = kept.after(found, smallest)
    if "nondeterministic" in {found.left.refusal, found.right.refusal}:
        raise Nondeterministic(f"{smallest.label}: the same run again gives different bits")
    if "alignment" in {found.left.refusal, found.right.refusal}:
        why = "the same run again gives different bits if its operands have a different address"
        raise Misaligned(f"{smallest.label}: {why}")
    if not len(found.differing):
        why = "the operands do not show the difference"
        raise InputError("case", smallest.label, why, "leave out --keep, or try --operands cancel")
    targets = failed.targets
    facts = (failed.first.facts, failed.second.facts)
    versions = (str(facts[0]["library_version"]), str(facts[1]["library_version"]))
    script = program.script_of_finding(smallest, targets, versions, failed.conventions(smallest))
    tell(f"proving it in {asked.times} fresh processes")
    before = time.perf_counter()
    ran = proof.prove(script, targets, expected_bits(found), asked.times)
    made = Reproduction(
        *(smallest, targets, versions, found, evidence_of(found, kept.before.cause), script, ran),
        facts=facts_of(targets, facts),
        shrunk=shrunk,
        elsewhere=asked.elsewhere,
        runs=failed.runs,
        seconds=time.perf_counter() - before,
        before=kept.before,
        after=after,
        kept=None if asked.keep else kept.told(after),
    )
    add_emulated(made)
    return made


def add_emulated(made: Reproduction) -> None:
    """Writes the text of ``emulated.py`` and runs it: one that is wrong is none.

    A few lines where those print every bit pattern that the script does; else the general one.
    """
    brief = emulate.brief(made.explanation)
    if brief and proof.replay_gives(brief, made.ran.bits)[:2] == (True, True):
        made.emulated, made.not_emulated, made.shown = brief, "", True
        return
    made.emulated, made.not_emulated = emulated_text(made.explanation)
    if not made.emulated:
        return
    right, made.shown, some = proof.replay_gives(made.emulated, made.ran.bits)
    if not right or not some:
        why = (
            "the replay in NumPy gives different bits from the library's"
            if not right
            else "they are not sums"
        )
        made.emulated, made.not_emulated, made.shown = "", f"{why}, where the two differ", None


def shrunken(
    failed: Failing,
    finding: Finding,
    by: str = "bits",
    most: int = BUDGET,
    tell: Callable[[int, Finding], None] | None = None,
    kept: KeepsCause | None = None,
) -> Shrunk:
    """Returns the smallest case of a finding on started targets. InputError: it does not fail.

    ``kept``: what it has to keep beside the difference; None: nothing.
    """
    conventions = failed.conventions(finding)
    fails = failed.predicate(by)

    if kept is not None and fails(finding):
        kept.before  # noqa: B018 (what the target refuses of the start is an error, not an answer)

    def also(predicate: Predicate) -> Predicate:
        return lambda one: predicate(one) and (kept is None or failed.survives(kept.keeps, one))

    found = smallest_finding(
        finding,
        also(fails),
        shows=None if by == "bits" else also(failed.by_bits),
        kinds=("integers", "cancel") if conventions else ("cancel",),
        most=most,
        tell=tell,
    )
    failed.revive()
    if found is None:
        why = "the outputs that must agree do agree, bit for bit"
        todo = "give other lengths, --operands cancel, or --by order; `probe sweep` finds some"
        raise InputError("case", finding.label, why, todo)
    return found


def expected_bits(found: Comparison) -> list[tuple[str, str]]:
    """Returns bit patterns of the differing outputs in the order of the script's, hexadecimal."""
    dtype = found.case.dtype
    width = floats.format_of(dtype).bits // 4
    values = [
        [f"{int(bits):0{width}x}" for bits in floats.to_bits(y, dtype)]
        for y in found.values(found.differing)
    ]
    return list(zip(*values, strict=True))


def evidence_of(found: Comparison, cause: str | None = None) -> Evidence | None:
    """Returns one differing output in full; without products that are 0 where those only take room.

    ``cause``: of outputs by this cause, the one that shows it in the fewest products.
    """
    shown = differing_example(found, None if cause is None else shown_by_products(found, cause))
    return shown if shown is None or "window" in found.causes else without_zeros(shown, WRITTEN)


def emulated_text(found: Comparison) -> tuple[str, str]:
    """Returns the text of ``emulated.py`` for any size; or empty, and why."""
    pairs = found.pairs.some(found.pairs.same_window)
    note = "What reproduce.py computes, added up in the same order by NumPy alone."
    try:
        sides = [found.left, found.right]
        return emulate.program_text(sides, pairs=pairs, partial=True, note=note), ""
    except InputError as error:
        return "", error.why


def fresh(out: Path, force: bool = False) -> None:
    """Refuses a folder that has files. InputError."""
    if not force and out.is_dir() and any(out.iterdir()):
        why = "the folder has files that would be overwritten"
        raise InputError("out", out, why, "give another folder, or --force")


def write_folder(made: Reproduction, out: Path, form: str | None = None) -> None:
    """Writes ``reproduce.py``, ``report.md``, ``machine.json``, and of sums the other two.

    ``form``: a name in ``forms.FORMS``; the target's own if None. InputError: no such form, or the
    folder can't be made.
    """
    chosen = report.form_of(made.targets[0], form)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or "it can't be made"
        raise InputError("out", out, why, "give a folder that can be made") from None
    made.files = ["reproduce.py", "report.md", "machine.json"]
    emulate.write_text(made.script, out / "reproduce.py")
    drawn = find_spec("matplotlib") is not None  # the report is whole without its picture
    drawn &= made.evidence is not None and all(
        side.summation is not None for side in (made.evidence.left, made.evidence.right)
    )
    alike = {"window", "reach"} & set(made.explanation.causes)  # the trees do not set them apart
    if drawn and made.evidence is not None and not alike:
        words = program.sides_in_words(made.finding, made.targets)
        from probe.plots import trees

        trees.sides(made.evidence, (words[0], words[1])).savefig(
            out / "order.png", metadata={"Software": None}
        )
        made.files.append("order.png")
    if made.emulated:
        emulate.write_text(made.emulated, out / "emulated.py")
        made.files.append("emulated.py")
    told = report.report_text(made, chosen)
    emulate.write_text(told, out / "report.md")
    text = json.dumps(machine_json(made), indent=2, default=plain) + "\n"
    emulate.write_text(text, out / "machine.json")
    texts = {"reproduce.py": made.script, "report.md": told, "machine.json": text}
    texts |= {"emulated.py": made.emulated} if made.emulated else {}
    made.sizes = {name: len(one) for name, one in texts.items()}


def machine_json(made: Reproduction) -> dict[str, Any]:
    """Returns the content of ``machine.json``: the machine, and what ``probe verify`` needs."""
    found = made.explanation
    variables = [library_variables(target) for target in made.targets]
    return {
        "format": FORMAT,
        "targets": [target.text for target in made.targets],
        "library_versions": list(made.versions),
        "variables": variables,
        "case": made.finding.to_json(),
        "compared": found.compared,
        "differing": len(found.differing),
        "max_ulp": found.max_ulp,
        "causes": found.causes,
        "kernels": found.kernels,
        "bits": made.ran.bits,
        "machine": made.facts,
    } | ({"model": made.model} if made.model else {})
