"""Examines a network on one target: all valid lengths, the first divergence, safe lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from probe.explain.evidence import Evidence, example
from probe.launch import AnySession
from probe.layout import CONTIGUOUS
from probe.network import plan as plans
from probe.network.chain import Network
from probe.network.comparison import Comparer, PaddedComparison
from probe.network.geometry import Geometry
from probe.network.plan import Plan
from probe.network.safe import SafeLengths
from probe.progress import Tell, silent


@dataclass
class Report:
    """What ``examine`` found on one target.

    ``shown``: the comparison whose first divergence is explained in full, with its ``evidence``;
    None where nothing differs. ``plan`` is None where safe lengths weren't asked for. ``part``:
    ``Network.part``, empty for a model that was read whole.
    """

    target: str
    comparisons: list[PaddedComparison] = field(default_factory=list)
    shown: PaddedComparison | None = None
    evidence: Evidence | None = None
    plan: Plan | None = None
    part: str = ""

    @property
    def finding(self) -> bool:
        """Returns whether some activations that read content have different bits or are lacking, or
        whether that is unknown."""
        return self.verdict != "equal"

    @property
    def verdict(self) -> str:
        """``differs``, ``equal``, or ``unknown``, of the contents that were compared.

        Of a model that was read in part it is ``unknown``, whatever the part does: ``of_part``.
        """
        return "unknown" if self.part else self.of_part

    @property
    def of_part(self) -> str:
        """Returns the verdict over the layers that were read, be they all of the model or a part.

        ``differs``: some activations differ that read the same, or some are missing. ``unknown``:
        nothing was compared, or the same shape again, perhaps at a different memory address, gives
        different bits.
        """
        found = {one.verdict for one in self.comparisons}
        if found - {"equal", "nondeterministic", "alignment"}:
            return "differs"
        return "unknown" if found - {"equal"} or not found else "equal"

    def to_json(self) -> dict[str, Any]:
        """Returns one target of what ``probe network --json`` prints.

        ``layouts``: how the input of the comparisons lies in memory; a plan has its own.
        """
        told = None if self.shown is None else self.shown.explanation
        explanation = None
        if told is not None:
            explanation = told.to_json()
            explanation["example"] = None if self.evidence is None else self.evidence.to_json()
        plan = None if self.plan is None else self.plan.to_json()
        if plan is not None:
            del plan["constant"]
        return {
            "target": self.target,
            "verdict": self.verdict,
            "comparisons": [one.to_json() for one in self.comparisons],
            "explained": None if self.shown is None else self.shown.to_json()["first"],
            "explanation": explanation,
            "plan": None if self.part else plan,
            "layouts": [CONTIGUOUS],
        } | ({"verdict_of_part": self.of_part, "safe_in_part": plan} if self.part else {})


def examine(
    session: AnySession,
    geometry: Geometry,
    contents: Sequence[int],
    padded: int | None = None,
    value: float = 0.0,
    seed: int = 0,
    safe: Sequence[int] = (),
    progress: Tell = silent,
) -> Report:
    """Compares every content with the full run on a started session.

    ``padded``: the short run's length, None for each content's least. ``safe``: contents for which
    safe lengths are sought. Errors: TargetError; InputError where a content doesn't fit.
    """
    comparer = Comparer(session, geometry, value)
    report = Report(session.target.text, part=geometry.network.part)
    for done, length in enumerate(contents):
        progress(done, len(contents), f"valid length {length:,}")
        found = comparer.compare(length, padded, seed)
        report.comparisons.append(found)
        if found.explanation is not None and report.shown is None:
            report.shown = found
            report.evidence = example(found.explanation)
        elif report.shown is not found:
            found.explanation = None
    if safe:
        lengths = SafeLengths(session, geometry)
        report.plan = plans.make(
            *(lengths, safe, value),
            progress=lambda done, total: progress(done, total, "safe lengths"),
        )
    return report


def verdict(reports: Sequence[Report], failed: bool = False) -> str:
    """Returns the verdict over several targets: ``differs`` if one does, ``equal`` if all are."""
    found = {one.verdict for one in reports} | ({"unknown"} if failed else set())
    return next((word for word in ("differs", "unknown") if word in found), "equal")


def described(network: Network, fixed: int) -> dict[str, Any]:
    """Returns the network for people and for ``--json``: layers with their receptive windows."""
    windows = network.windows(fixed)
    layers = [
        {
            "name": layer.name,
            "op": layer.op,
            "label": layer.label,
            "outputs": window.outputs,
            "field": window.field,
            "jump": window.jump,
            "start": window.start,
        }
        for layer, window in zip(network.layers, windows, strict=True)
    ]
    beyond = None if network.suffix is None else vars(network.suffix)
    return {
        "name": network.name,
        "id": network.id,
        "rank": network.rank,
        "height": list(network.height),
        "dtype": network.dtype,
        "fixed": fixed,
        "shortest": network.shortest,
        "layers": layers,
        "beyond": beyond,
        "part": network.part or None,
        "examined": network.examined,
        "operations_total": network.operations_total,
    } | ({"note": network.note} if network.note else {})


def network_row(network: Network, fixed: int, source: str | None = None) -> dict[str, Any]:
    """Returns the row of ``networks``: windows at the full length, layers without their numbers.

    ``source``: what ``Network.load`` makes it from, where that is known.
    """
    last = network.windows(fixed)[-1]
    arrays = [set(layer.arrays) for layer in network.layers]
    words = network.to_json()
    words["layers"] = [
        {word: value for word, value in told.items() if word not in numbers}
        for told, numbers in zip(words["layers"], arrays, strict=True)
    ]
    return {
        "network_id": network.id,
        "name": network.name,
        "source": source,
        "layers": len(network.layers),
        "dtype": network.dtype,
        "in_channels": network.in_channels,
        "filters": network.filters,
        "field": last.field,
        "jump": last.jump,
        "json": words,
        "examined": network.examined,
        "operations_total": network.operations_total,
        "part": network.part or None,
    }
