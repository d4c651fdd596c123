"""Which input every output reads with which weight, read off a target for ``probe window``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.case import Case
from probe.launch import open_session
from probe.order.masks import SessionOperator
from probe.order.windows import reveal_windows
from probe.target import Target
from probe.window import Geometry


@dataclass(frozen=True)
class Windows:
    """What every output of a case reads on a target.

    ``revealed``: int array (groups, positions, products), flat indices into x, -1 for padding.
    ``same``: bool array (groups, positions), whether that is what the case's padding says.
    """

    case: Case
    target: str
    revealed: np.ndarray
    same: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints: an entry of ``windows`` for every group and output position."""
        case, width = self.case, self.case.filters // self.case.groups
        return {
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
                for group in range(case.groups)
                for position in range(self.revealed.shape[1])
            ],
        }


def window(case: Case, target: Target) -> Windows:
    """Reveals what every output of a case, its length set, reads. Errors: TargetError."""
    with open_session(target) as session:
        revealed = reveal_windows(SessionOperator(session, case))
    return Windows(case, target.text, revealed, (revealed == predicted(case)).all(axis=2))


def predicted(case: Case) -> np.ndarray:
    """Where the case's own padding puts its windows: int64 (groups, positions, leaves), -1 pads.

    Flat indices into x; positions are batch entries times output positions, as in
    ``reveal_windows``.
    """
    geometry = Geometry.of(case)
    width = case.filters // case.groups
    entries = np.arange(case.batch)[:, None, None] * (np.prod(case.input_shape()) // case.batch)
    found = []
    for group in range(case.groups):
        reads = geometry.gather_indices(group * width)
        met = np.where(reads < 0, -1, reads + entries)
        found.append(met.reshape(-1, reads.shape[1]))
    return np.stack(found)
