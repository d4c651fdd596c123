"""Why the outputs of an operation differ: what explaining a source came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from probe.comparison import Comparison
from probe.enclosure import RoundingVerdict


@dataclass
class Cause:
    """Why an operation's outputs differ.

    ``kind``: ``window``, ``reach``, ``order``, ``rounding``, ``precision``, ``flush`` (of sums,
    several joined by ``+``), ``place``, ``argument``, ``algorithm``, ``alignment``,
    ``nondeterministic``, ``uninitialised``; empty where there is no word for it yet. ``why``: a
    sentence. ``examined``: differing outputs that were asked about, ``replayed``: those that came
    out again on both sides. ``causes``: examined outputs by cause; if not given those replayed.
    ``alone``: whether the operation alone gave its recorded bits on both sides. ``comparison``: of
    sums, with both sides' summations. ``refuted``: what it reads does not agree, or it reads more
    than was said: it is no source. ``compared`` and ``differing``: of the first output that
    differs; ``rounding``: those that differ by whether rounding can be why.
    """

    kind: str = ""
    why: str = ""
    examined: int = 0
    replayed: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    alone: bool = False
    comparison: Comparison | None = None
    refuted: bool = False
    compared: int = 0
    differing: int = 0
    rounding: RoundingVerdict = field(default_factory=RoundingVerdict)

    def __post_init__(self) -> None:
        """Counts what was replayed under its kind."""
        self.causes = self.causes or ({self.kind: self.replayed} if self.kind else {})

    @property
    def explained(self) -> bool:
        """Returns whether it has a class, and every output that was asked about came out again."""
        return bool(self.kind) and self.replayed == self.examined

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts; the comparison's summations as ``probe explain`` has them."""
        found: dict[str, Any] = {"class": self.kind or None, "why": self.why}
        names = ("compared", "differing", "examined", "replayed", "causes", "alone")
        found |= {name: getattr(self, name) for name in names}
        found["rounding"] = self.rounding.to_json()
        if self.comparison is not None:
            told = self.comparison
            found["left_orders"] = told.orders(told.left)
            found["right_orders"] = told.orders(told.right)
        return found
