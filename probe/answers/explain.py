"""Why two runs differ, asked in Python or by ``probe explain``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probe.answers.answer import DEFAULT_TARGET, Answer, case_of, target_of
from probe.case import Case
from probe.comparison import Comparison
from probe.explain import explain as explained
from probe.explain.evidence import Evidence, checked, example, named
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Explained(Answer):
    """Why two runs differ. ``evidence``: one differing output in full; None where none differs."""

    found: Comparison
    evidence: Evidence | None

    def report(self) -> dict[str, Any]:
        evidence = None if self.evidence is None else self.evidence.to_json()
        return self.found.to_json() | {"example": evidence}

    def lines(self) -> tuple[str, str, str]:
        return self.found.lines()

    def drawn(self) -> Figure | None:
        """Both sides' trees of one output; of sides that agree, how the first output is added."""
        from probe.plots import trees

        found, evidence = self.found, self.evidence
        words = [found.words(side) for side in (found.left, found.right)]
        if evidence is not None and evidence.left.summation and evidence.right.summation:
            return trees.sides(evidence, (words[0], words[1]))
        if not found.compared:
            return None
        sides = ((found.left, found.pairs.left), (found.right, found.pairs.right))
        each = [side.summation(places[0]) for side, places in sides]
        shown = [(one, word) for one, word in zip(each, words, strict=True) if one is not None]
        return trees.summations(shown) if shown else None


def explain(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    at: int | None = None,
    against: int | None = None,
    *,
    vary: str | None = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
    kernels: str = "said",
) -> Explained:
    """Says why ``case`` at ``at`` and at ``against`` of the axis ``vary`` differ, with proof.

    ``vary``: length, batch, filters or channels; None: length, of a dense layer batch. With
    ``against_target`` (another library, device or switch) or ``against_padding`` the two sides may
    have the same shape: leave ``against`` out.
    ``kernels``: which kernels are named beside the causes: ``said`` (by the library), ``all`` (also
    symbols sampled while it runs) or ``none``; each source starts the target again. Costs a start
    and a reveal on each side. Errors: InputError; TargetError where a target fails.

    >>> import probe
    >>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=64)
    >>> why = probe.explain(case, "tensorflow,onednn=0", 5, 40)  # doctest: +SKIP
    >>> why.causes, why.replayed  # doctest: +SKIP
    """
    where, other = target_of(target), target_of(against_target or target)
    checked(kernels)
    found = explained(
        *(case_of(case), where, at, against),
        vary=vary,
        against_target=other,
        against_padding=against_padding,
    )
    evidence = example(found)
    found.kernels = named(found, kernels)
    return Explained(found, evidence)
