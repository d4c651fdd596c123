"""The folder to attach to a bug report, asked in Python or by ``probe reproduce``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.answers.answer import DEFAULT_TARGET, Answer, case_of, target_of, targets_of
from probe.answers.explain import Explained
from probe.case import Case
from probe.errors import InputError
from probe.explain import lines
from probe.explain.kernels import checked, named
from probe.reproduction import folder as room
from probe.reproduction.folder import Reproduction
from probe.reproduction.report import form_of
from probe.shrink import BUDGET, Finding
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Reproduced(Answer):
    """A reproduction that was proved and written to ``out``."""

    found: Reproduction
    out: Path

    def report(self) -> dict[str, Any]:
        return self.found.to_json() | {"out": str(self.out)}

    def lines(self) -> tuple[str, str, str]:
        found = self.found
        targets = " against ".join(dict.fromkeys(target.text for target in found.targets))
        _, differing, why = lines.told(found.explanation)
        return (
            f"{found.finding.label} on {targets}",
            f"{differing}; {why}",
            f"written to {self.out}: {', '.join(found.files)}",
        )

    def drawn(self) -> Figure | None:
        """Both sides' trees of one output, as in order.png."""
        return Explained(self.found.explanation, self.found.evidence).drawn()


def written(made: Reproduction, out: Path, form: str | None, kernels: str) -> Reproduced:
    """Names the kernels of a reproduction that was proved, and writes it. InputError."""
    made.explanation.kernels = named(made.explanation, kernels)
    room.write(made, out, form)
    return Reproduced(made, out)


def reproduce(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    at: int | None = None,
    against: int | None = None,
    *,
    out: str | Path,
    vary: str | None = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
    by: str = "bits",
    most: int = BUDGET,
    keep: bool = False,
    form: str | None = None,
    also: Iterable[str | Target] = (),
    times: int = 3,
    kernels: str = "all",
    any_cause: bool = False,
    avoid: bool = True,
    force: bool = False,
) -> Reproduced:
    """Shrinks a finding, explains it, proves a script of it in fresh processes, and writes it.

    The runs are named as ``probe.explain`` names them. ``out``: the folder. ``by``: what a smaller
    case has to keep, ``bits`` or ``order``; ``most``: smaller cases to try; ``keep``: no shrinking.
    ``form``: whose bug form; the target's own if None. ``also``: targets that are asked about the
    smallest case. ``times``: fresh processes that must say the same. ``kernels``: as in
    ``probe.explain``. ``any_cause``: a smaller case may have another cause or other kernels than
    the finding; the report says so. ``avoid``: try what avoids the difference. ``force``: write
    into a folder that has files. Errors: InputError, also where both sides agree; TargetError;
    NotReproduced where the script does not say what was measured: then nothing is written.
    """
    left, right = target_of(target), target_of(against_target or target)
    checked(kernels)
    form_of(left, form)
    room.fresh(Path(out), force)
    if against is None and right == left and against_padding is None:
        todo = "give against, against_target or against_padding"
        raise InputError("against", None, "there is nothing to compare with", todo)
    finding = Finding.of(case_of(case), vary, at, against, against_padding)
    asked = targets_of(also)
    made = room.reproduce(
        *(finding, left, right),
        by=by,
        keep=keep,
        any_cause=any_cause,
        avoid=avoid,
        most=most,
        times=times,
        also=asked,
    )
    return written(made, Path(out), form, kernels)
