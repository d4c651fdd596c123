"""Explains why two runs differ (``probe explain``), and what every output reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.answers.answer import DEFAULT_TARGET, Answer, checked_case, checked_target
from probe.case import Case
from probe.comparison import ComparedShapes, Comparison
from probe.explaining import explain_case as explained
from probe.explaining.evidence import Evidence, checked_kernels, differing_example, named_kernels
from probe.launch import open_session
from probe.summation.certificate import BUDGET
from probe.summation.masks import SessionOperator
from probe.summation.windows import Reach, reveal_reach, reveal_windows
from probe.target import Target
from probe.window import Geometry

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(repr=False)
class Explained(Answer):
    """Says why runs differ. ``evidence``: one differing output in full; None: none differs."""

    found: Comparison
    evidence: Evidence | None

    def report(self) -> dict[str, Any]:
        evidence = None if self.evidence is None else self.evidence.to_json()
        return self.found.to_json() | {"example": evidence}

    def lines(self) -> tuple[str, str, str]:
        return self.found.lines()

    def drawn(self) -> Figure | None:
        """Returns both sides' trees of one output; of sides that agree, how the first output is
        added."""
        from probe.plots import views

        return views.draw_explained(self.found, self.evidence)


def explain(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    at: int | str | None = None,
    against: int | str | None = None,
    *,
    vary: str | None = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
    kernels: str = "said",
    certify: bool = False,
    zeros: str = "equal",
) -> Explained:
    """Explains why ``case`` differs at ``at`` and ``against`` of the axis ``vary``, with proof.

    ``vary``: length, batch, filters, channels or layout, whose values are words, such as
    ``transposed`` against ``contiguous``; None: length, of a dense layer batch. With
    ``against_target`` (another library, device or switch) or ``against_padding`` the two sides may
    have the same shape: leave ``against`` out.
    ``kernels``: which kernels are named beside the causes: ``said`` (by the library), ``all`` (also
    symbols sampled while it runs) or ``none``; each source starts the target again. ``certify``:
    test every addition and every fusion of every output. ``zeros``: ``differ`` makes +0 and -0 a
    difference, at 0 ulp; ``equal`` counts them. Costs a start and a reveal on each side.
    Errors: InputError; TargetError where a target fails.

    >>> import probe
    >>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=64)
    >>> why = probe.explain(case, "tensorflow,onednn=0", 5, 40)  # doctest: +SKIP
    >>> why.causes, why.replayed  # doctest: +SKIP
    """
    where, other = checked_target(target), checked_target(against_target or target)
    checked_kernels(kernels)
    shapes = ComparedShapes.named(checked_case(case), vary, at, against, against_padding)
    found = explained(shapes, where, other, budget=BUDGET if certify else 0, zeros=zeros)
    evidence = differing_example(found)
    found.kernels = named_kernels(found, kernels)
    return Explained(found, evidence)


@dataclass(frozen=True)
class WindowsAnswer:
    """Says which inputs every output of a case reads on a target.

    ``revealed``: int array (groups, positions, products), flat indices into x, -1 for padding.
    ``same``: bool array (groups, positions), whether that is what the case's padding says.
    ``reach``: what reaches outputs although they have no weight for it; None where that was not
    tested: for pools, and for windows that differ from what the padding implies.
    """

    case: Case
    target: str
    revealed: np.ndarray
    same: np.ndarray
    reach: Reach | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns what ``--json`` prints: an entry of ``windows`` for every group and output
        position.

        Where something else reaches outputs there is ``reach``, how many of them; an entry then has
        ``reaches``, flat indices into x, and ``reaches_some`` where one of them does but which was
        not told apart.
        """
        case, width = self.case, self.case.filters // self.case.groups
        named = {} if self.reach is None else {(e.group, e.position): e for e in self.reach.named}
        reached = {
            place: {"reaches" if one.exact else "reaches_some": one.inputs.tolist()}
            for place, one in named.items()
        }
        found = {
            "case": case.to_json(),
            "target": self.target,
            "input_shape": list(case.input_shape()),
            "output_shape": list(case.output_shape()),
            "windows_read": int(self.same.size),
            "as_predicted": int(self.same.sum()),
            "windows": [
                {
                    "filter": group * width,
                    "output": [
                        int(i) for i in np.unravel_index(position, case.output_shape()[:-1])
                    ],
                    "reads": [
                        None if i < 0 else i for i in self.revealed[group, position].tolist()
                    ],
                    "as_predicted": bool(self.same[group, position]),
                }
                | reached.get((group, position), {})
                for group in range(case.groups)
                for position in range(self.revealed.shape[1])
            ],
        }
        return found if self.reach is None else found | self.reach.to_json()


def window(case: Case, target: Target) -> WindowsAnswer:
    """Reveals what every output of a case, its length set, reads. Errors: TargetError.

    Exact for finite operands. What else reaches an output, if it is infinite or NaN, is tested too.
    """
    with open_session(target) as session:
        revealed = reveal_windows(SessionOperator(session, case))
        same = (revealed == predicted(case)).all(axis=2)
        # masks for infinities are put where the padding says; pools have no weights to put them in
        asked = same.all() and not case.pool
        reach = reveal_reach(session, case) if asked else None
    return WindowsAnswer(case, target.text, revealed, same, reach)


def predicted(case: Case) -> np.ndarray:
    """Returns where the case's own padding puts its windows: int64 (groups, positions, leaves), -1
    pads.

    Flat indices into x; positions are batch entries times output positions, as in
    ``reveal_windows``.
    """
    geometry = Geometry.of(case)
    width = case.filters // case.groups
    # geometry speaks of one entry of the batch; the revealed indices go through all of x
    entries = np.arange(case.batch)[:, None, None] * (np.prod(case.input_shape()) // case.batch)
    found = []
    for group in range(case.groups):
        reads = geometry.gather_indices(group * width)
        met = np.where(reads < 0, -1, reads + entries)
        found.append(met.reshape(-1, reads.shape[1]))
    return np.stack(found)
