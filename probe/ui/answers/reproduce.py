"""Writes the folder for a bug report, the smallest case, and a run as a file of NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import floats
from probe.case.arguments import require_unwritten, typed
from probe.case.case import Case
from probe.explain.comparison import OutputPairs
from probe.explain.evidence import checked_kernels, named_kernels
from probe.explain.evidence import explain_case as explained
from probe.explain.runs import CaseRun, ComparedShapes, Finding, run_and_reveal
from probe.report import folder as room
from probe.report import proof
from probe.report.folder import KeepsCause, effect, failing
from probe.report.report import Reproduction, counts_json, form_of, reduction_json
from probe.report.shrink import BUDGET
from probe.sweep.printing import as_json
from probe.targets.launch import open_session
from probe.targets.progress import Say, Tell
from probe.targets.target import Target
from probe.ui.answers import views
from probe.ui.answers.answer import (
    DEFAULT_TARGET,
    Answer,
    checked_case,
    checked_sides,
    checked_target,
)
from probe.ui.answers.cases import Explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Reproduced(Answer):
    """Holds a bug report that was verified and written to ``out``."""

    found: Reproduction
    out: Path

    def report(self) -> dict[str, Any]:
        return self.found.to_json() | {"out": str(self.out)}

    def lines(self) -> tuple[str, str, str]:
        reproduction = self.found
        targets = " against ".join(dict.fromkeys(target.text for target in reproduction.targets))
        _, differing, why = reproduction.explanation.lines()
        return (
            f"{reproduction.finding.label} on {targets}",
            f"{reproduction.verdict.what}: {differing}; {why}",
            f"written to {self.out}: {', '.join(reproduction.files)}",
        )

    shown = views.reproduction

    def drawn(self) -> Figure | None:
        return Explained(self.found.explanation, self.found.evidence).drawn()


def asked_finding(
    case: Case,
    target: str | Target,
    at: int | str | None = None,
    against: int | str | None = None,
    vary: str | None = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
) -> tuple[Finding, tuple[Target, Target]]:
    """What is compared, as ``probe.explain`` names it, and both sides' targets. InputError."""
    targets = checked_sides(target, at, against, against_target, against_padding)
    return Finding.of(checked_case(case), vary, at, against, against_padding), targets


@typed
def reproduce(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    at: int | str | None = None,
    against: int | str | None = None,
    *,
    out: str | Path,
    vary: str | None = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
    by: str = "bits",
    most: int = BUDGET,
    keep: bool = False,
    form: str | None = None,
    times: int = 3,
    kernels: str = "said",
    avoid: bool = True,
    since: str | Target | None = None,
    progress: Say | None = None,
) -> Reproduced:
    """Reduces a case, explains it, verifies a script in fresh processes, and writes a bug report.

    The runs are named as ``probe.explain`` names them. ``out``: the folder. ``by``: what a smaller
    case has to keep, ``bits`` or ``order``; ``most``: smaller cases to try; ``keep``: no shrinking.
    ``form``: whose bug form, or a form's file (.md, .yml); the target's own if None. ``times``:
    fresh processes that must agree. ``kernels``: as in ``probe.explain``. ``avoid``: try what
    avoids the difference. ``since``: search the first affected release from this one on, such as
    ``torch==2.4.0``, which installs releases. Errors: InputError, also where both sides agree;
    TargetError; NotReproduced where the script does not give the measured bits: then nothing is
    written.
    """
    sides = at, against, vary, against_target, against_padding
    finding, targets = asked_finding(case, target, *sides)
    folder = Path(out)
    checked_kernels(kernels)
    form_of(targets[0], form)
    require_unwritten("out", folder)  # refused before minutes of work
    how: dict[str, Any] = {"by": by, "keep": keep, "avoid": avoid}
    how |= {"most": most, "times": times, "tell": progress}
    how["since"] = None if since is None else checked_target(since)
    reproduction = room.reproduce(finding, *targets, **how)
    reproduction.explanation.kernels = named_kernels(reproduction.explanation, kernels)
    room.write_folder(reproduction, folder, form)
    return Reproduced(reproduction, folder)


# Operands of a smallest case up to which they are part of its JSON.
LISTED = 4096


def shrunk_report(
    finding: Finding,
    targets: tuple[Target, Target],
    by: str,
    budget: int,
    progress: Tell,
) -> dict[str, Any]:
    """Reduces a failing case and returns what ``probe report shrink --json`` prints.

    ``targets``: of both sides. ``by``: as :func:`reproduce` has it. ``budget``:
    smaller cases to try. Errors: TargetError.
    """
    with failing(*targets) as failed:
        keeps = KeepsCause(failed, finding)
        shrunk = room.shrunken(
            *(failed, finding, by, budget),
            lambda calls, best: progress(calls, budget, best.label),
            keeps,
        )
        explanation = failed.explained(shrunk.finding)
        after = effect(explanation, shrunk.finding.label)
        runs = failed.runs
    smallest = shrunk.finding
    listed: dict[str, Any] | None = None
    if smallest.x.size + smallest.w.size <= LISTED:
        listed, arrays = {}, {"x": smallest.x, "w": smallest.w}
        arrays |= {} if smallest.b is None else {"b": smallest.b}
        for name, array in arrays.items():
            # JSON has exact decimals of float64, into which every format widens exactly; it has no
            # infinities and no NaN: they are the texts inf, -inf and nan
            values = floats.widen(array, smallest.case.dtype)
            numbers, odd = values.astype(object), ~np.isfinite(values)
            numbers[odd] = [str(value) for value in values[odd].tolist()]
            listed[name] = numbers.tolist()
    plain: dict[str, Any] = as_json(
        {"targets": [target.text for target in targets], "label": smallest.label}
        | counts_json(smallest, explanation)
        | reduction_json(shrunk, keeps.before, after, keeps.told(after))
        | {"operands": listed, "shown": shrunk.shown, "runs": runs}
        | {"by_order": explanation.by_order}
    )
    return plain


def emulated_report(
    case: Case,
    target: Target,
    file: Path,
    against: int | str | None,
    vary: str | None,
) -> dict[str, Any]:
    """Writes a run as a file that replays it with NumPy; returns what the command prints as JSON.

    ``against``: the value of the axis ``vary`` at which a second run is put in too. Errors:
    TargetError; NotReproduced.
    """
    sides: list[CaseRun]
    pairs: OutputPairs | None = None
    if against is not None:
        comparison = explained(ComparedShapes.named(case, vary, None, against), target)
        sides, pairs = [comparison.left, comparison.right], comparison.pairs
    else:
        with open_session(target) as session:
            sides = [run_and_reveal(session, case)]
    proof.save(sides, file, pairs=pairs, note=f"{case.label} on {target.text}")
    return {
        "out": str(file),
        "bytes": file.stat().st_size,
        "runs": [side.named() | {"outputs": side.replays.size} for side in sides],
        "replayed": sum(int(side.replays.sum()) for side in sides),
    }
