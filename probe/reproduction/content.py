"""Everything that a report tells, and other targets that were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from probe.comparison import Comparison
from probe.explain.evidence import Evidence
from probe.reproduction.kept import Effect
from probe.reproduction.proof import Ran
from probe.reproduction.shortest import Short
from probe.shrink import Shrunk
from probe.target import Target


@dataclass(frozen=True)
class Elsewhere:
    """Another target that was asked: ``said`` is ``differs``, ``does not differ``, or why not.

    ``asked``: about which case.
    """

    target: str
    version: str
    said: str
    machine: str = ""
    asked: str = "as it was found"


@dataclass
class Content:
    """Everything that a report tells."""

    finding: Any
    targets: tuple[Target, Target]
    names: tuple[str, str]
    versions: tuple[str, str]
    explanation: Comparison
    evidence: Evidence | None
    script: str
    ran: Ran
    machine: dict[str, Any]
    shrunk: Shrunk | None = None
    elsewhere: Sequence[Elsewhere] = ()
    emulated: str = ""
    short: Short | None = None
    before: Effect | None = None
    kept: dict[str, bool | None] | None = None
    avoids: Sequence[str] = ()
    attached: Sequence[str] = ()
