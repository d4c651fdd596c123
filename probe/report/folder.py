"""Writes the folder for a bug report after the finding was reduced and proved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.arguments import require_unwritten
from probe.case.errors import InputError, Misaligned, Nondeterministic
from probe.explain.comparison import Comparison
from probe.explain.evidence import Evidence, differing_example, without_zeros
from probe.explain.runs import Finding
from probe.explain.verdict import bug_or_rounding
from probe.report import program, proof, report
from probe.report.failing import (
    Failing,
    KeepsCause,
    Predicate,
    by_switches,
    by_values,
    effect,
    failing,
    first_affected,
    shown_by_products,
)
from probe.report.forms import form_of
from probe.report.program import shortest_script
from probe.report.report import Reported, Reproduction, facts_of, library_environment
from probe.report.shrink import BUDGET, Shrunk, smallest_finding
from probe.sweep.printing import plain
from probe.targets import budget
from probe.targets.progress import VOICE, Say, silent
from probe.targets.target import Target

# Of ``machine.json``.
FORMAT = 1

# Summands up to which a report shows those that are 0 too.
WRITTEN = 4


@dataclass(frozen=True)
class ReportOptions:
    """How a finding is reduced, proved and looked at before it is written.

    ``by``, ``most``: see ``probe.report.shrink``. ``keep``: no shrinking. ``times``: fresh
    processes that must say the same. ``avoid``: what avoids it is looked for too, at a start of the
    library for each switch. ``since``: the release of the target from which on the first affected
    one is searched.
    """

    by: str = "bits"
    most: int = BUDGET
    keep: bool = False
    times: int = 3
    avoid: bool = True
    since: Target | None = None


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
    tell, choices = tell or silent, ReportOptions(**options)
    if choices.since is not None and (right or left) != left:
        why = "both sides have to be one target, whose releases are searched"
        raise InputError("since", choices.since.text, why, "leave it out")
    avoid = choices.avoid and left == (right or left)
    more = choices.since is not None
    with VOICE.steps(5 - choices.keep + avoid + more, tell) as step:
        with failing(left, right) as failed:
            repro = proved_reproduction(failed, finding, choices, step)
            if avoid and "reach" not in repro.explanation.causes:
                repro.avoids = by_values(failed, repro.finding)
        with budget.Ending():
            if avoid:
                step("trying what avoids it")
                repro.avoids += by_switches(repro.finding, finding, left, tell)
            if choices.since is not None:
                step(f"searching releases from {choices.since.text} on")
                asked = repro.finding, left, repro.versions[0], choices.since, tell
                repro.first_release = first_affected(*asked)
            step("writing its shortest script")
            repro.short = shortest_script(
                *(repro.finding, repro.targets, repro.versions, repro.evidence, repro.verdict)
            )
            step("asking for versions")
            repro.environment = library_environment(left)
    return repro


def proved_reproduction(
    failed: Failing, finding: Finding, choices: ReportOptions, tell: Say | None = None
) -> Reproduction:
    """``reproduce`` on targets that are started, for many findings one after the other.

    InputError: both sides agree, or no script is written for it. Nondeterministic. NotReproduced:
    the script does not say what was measured.
    """
    tell = tell or silent
    shrunk, smallest = None, finding
    condition = KeepsCause(failed, finding)
    if not choices.keep:
        tell("shrinking")
        shrunk = shrunken(failed, finding, choices.by, choices.most, kept=condition)
        smallest = shrunk.finding
    tell(f"explaining {smallest.label}")
    comparison = failed.explained(smallest)
    after = effect(comparison, smallest.label)
    refusals = {comparison.left.refusal, comparison.right.refusal}
    if "nondeterministic" in refusals:
        raise Nondeterministic(f"{smallest.label}: the same run again gives different bits")
    if "alignment" in refusals:
        why = "the same run again gives different bits if its operands have a different address"
        raise Misaligned(f"{smallest.label}: {why}")
    if not len(comparison.differing):
        why = "the operands do not show the difference"
        raise InputError("case", smallest.label, why, "leave out --keep, or try --operands cancel")
    targets = failed.targets
    facts = (failed.first.facts, failed.second.facts)
    versions = (str(facts[0]["library_version"]), str(facts[1]["library_version"]))
    verdict = bug_or_rounding(comparison)
    same_place = failed.conventions(smallest)
    script = str(program.script_of_finding(smallest, targets, versions, same_place, verdict))
    tell(f"proving {smallest.label} in {choices.times} fresh processes")
    began = time.perf_counter()
    bits, fails = expected_bits(comparison), verdict.fails
    ran = proof.prove(script, targets, bits, choices.times, fails)
    evidence = evidence_of(comparison, condition.before.cause)
    repro = Reproduction(
        finding=smallest,
        targets=targets,
        versions=versions,
        explanation=comparison,
        evidence=evidence,
        script=script,
        ran=ran,
        verdict=verdict,
        times=choices.times,
        facts=facts_of(targets, facts, proof.runtime_of(targets[0]).emulated),
        shrunk=shrunk,
        runs=failed.runs,
        seconds=time.perf_counter() - began,
        before=condition.before,
        after=after,
        kept=None if choices.keep else condition.told(after),
    )
    repro.emulated, repro.not_emulated, repro.shown = proof.replayed_script(comparison, ran.bits)
    repro.further = {"emulated.py": repro.emulated} if repro.emulated else {}
    return repro


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
    fails = failed.predicate(by)
    if kept is not None and fails(finding):
        kept.before  # noqa: B018 (what the target refuses of the start is an error, not an answer)

    def also(predicate: Predicate) -> Predicate:
        return lambda small: (
            predicate(small) and (kept is None or failed.survives(kept.keeps, small))
        )

    smallest = smallest_finding(
        finding,
        also(fails),
        shows=None if by == "bits" else also(failed.by_bits),
        kinds=("integers", "cancel") if failed.conventions(finding) else ("cancel",),
        most=most,
        tell=tell,
    )
    failed.revive()
    if smallest is None:
        why = "the outputs that must agree do agree, bit for bit"
        todo = "give other lengths, --operands cancel, or --by order; `probe sweep` finds some"
        raise InputError("case", finding.label, why, todo)
    return smallest


def expected_bits(comparison: Comparison) -> list[tuple[str, str]]:
    """Returns bit patterns of the differing outputs in the order of the script's, hexadecimal."""
    dtype = comparison.case.dtype
    width = floats.format_of(dtype).bits // 4
    sides = (floats.to_bits(y, dtype) for y in comparison.values(comparison.differing))
    return [(f"{a:0{width}x}", f"{b:0{width}x}") for a, b in zip(*sides, strict=True)]


def evidence_of(comparison: Comparison, cause: str | None = None) -> Evidence | None:
    """Returns one differing output in full; without products that are 0 where those only take room.

    ``cause``: of outputs by this cause, the one that shows it in the fewest products.
    """
    number = None if cause is None else shown_by_products(comparison, cause)
    shown = differing_example(comparison, number)
    if shown is None or "window" in comparison.causes:
        return shown
    return without_zeros(shown, WRITTEN)


def fresh(out: Path) -> None:
    """Refuses a folder that has files. InputError."""
    require_unwritten("out", out)


def write_folder(repro: Reported, out: Path, form: str | None = None) -> None:
    """Writes ``reproduce.py``, ``report.md``, ``machine.json``, and of sums the picture.

    ``form``: a name or a file, as ``forms.form_of`` takes it. InputError: no such form, or the
    folder can't be made.
    """
    chosen = form_of(repro.targets[0], form)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or "it can't be made"
        raise InputError("out", out, why, "give a folder that can be made") from None
    drawn, evidence = repro.drawn, repro.evidence
    repro.files = ["reproduce.py", "report.md", "machine.json", *["order.png"] * drawn]
    repro.files += [*repro.further, *[report.OPERANDS] * bool(repro.arrays)]
    about = {  # the machine, and what ``probe report verify`` needs
        "format": FORMAT,
        "targets": [target.text for target in repro.targets],
        "library_versions": list(repro.versions),
        **repro.about(),
        "verdict": repro.verdict.to_json(),
        "bits": repro.ran.bits,
        "machine": repro.facts,
    } | ({"model": repro.model} if repro.model else {})
    texts = {
        "reproduce.py": repro.script,
        "report.md": report.report_text(repro, chosen),
        "machine.json": json.dumps(about, indent=2, default=plain) + "\n",
    } | repro.further
    for name, text in texts.items():
        proof.write_text(text, out / name)
    if repro.arrays:
        np.savez_compressed(out / report.OPERANDS, **repro.arrays)  # type: ignore[arg-type]
    if drawn and evidence is not None:
        from probe.report import trees

        picture = trees.sides(evidence, repro.sides_in_words())
        picture.savefig(out / "order.png", metadata={"Software": None})
    repro.sizes = {name: len(text) for name, text in texts.items()}
