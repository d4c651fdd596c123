"""A stand-in for the explaining of sources, for tests of what is done with causes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from probe.enclosure import RoundingVerdict


@dataclass
class Cause:
    """As of ``probe.recording.source``."""

    kind: str = "order"
    why: str = "the left side adds in one block, the right side in several"
    replayed: int = 3
    comparison: Any = None
    causes: dict[str, int] = field(default_factory=dict)
    refuted: bool = False
    alone: bool = True
    rounding: RoundingVerdict = field(default_factory=RoundingVerdict)

    def to_json(self) -> dict[str, Any]:
        told = {"class": self.kind, "why": self.why, "replayed": self.replayed}
        return told | {"rounding": self.rounding.to_json()}


def planted(monkeypatch: Any) -> list[Any]:
    """Every source gets this cause; the list gets what was asked."""
    import sys

    asked: list[Any] = []

    def explain(left: Any, right: Any, aligned: Any, **_: Any) -> Cause:
        asked.append(aligned)
        return Cause()

    made = SimpleNamespace(explain=explain, refuted=lambda *_: "")
    monkeypatch.setitem(sys.modules, "probe.recording.source", made)
    return asked
