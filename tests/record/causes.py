"""A stand-in for the explaining of sources, for tests of what is done with causes."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from probe.explain.enclosure import RoundingVerdict


@dataclass
class Cause:
    """As of ``probe.diff.alone``."""

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
    asked: list[Any] = []

    def explain(left: Any, right: Any, aligned: Any, **_: Any) -> Cause:
        asked.append(aligned)
        return Cause()

    monkeypatch.setattr(import_module("probe.diff.walk"), "find_cause", explain)
    monkeypatch.setattr(import_module("probe.diff.walk"), "why_no_source", lambda *_: "")
    return asked
