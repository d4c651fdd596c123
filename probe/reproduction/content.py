"""What a report tells: its content, facts of machine and libraries, findings of a store."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe import machine
from probe.case import Case
from probe.comparison import Comparison, Finding
from probe.errors import InputError, StoreError
from probe.explain.evidence import Evidence
from probe.reproduction import proof
from probe.reproduction.failing import Effect
from probe.reproduction.proof import Ran
from probe.reproduction.shortest import Short
from probe.shrink import Shrunk
from probe.store.results import load
from probe.target import Target

if TYPE_CHECKING:
    from probe.store.results import Results


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


FACTS = (
    *("build", "compiler", "onednn", "mode", "blas", "capability", "below", "jaxlib_version"),
    *("onnx_version", "gpu", "cuda", "cudnn", "threads"),
)
"""What a library says of itself that is written down."""


def facts_of(targets: tuple[Target, Target], facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Publishable facts of machine and libraries."""
    own = machine.facts()
    found: dict[str, Any] = {
        "os": own["os"],
        "architecture": platform.machine(),
        "cpu": own["cpu_model"],
        "cpu_vendor": own["cpu_vendor"],
        "cpu_isa": own["cpu_isa"],
        "cores": own["cores"],
        "machine": own["machine"],
        "probe": own["probe_version"],
        "python": facts[0].get("python_version"),
        "numpy": facts[0].get("numpy_version"),
    }
    emulator = proof.emulator(targets[0])
    if emulator:
        found |= {"emulated": emulator, "cpu": None, "cpu_isa": None, "cpu_vendor": None}
        found |= {"architecture": "aarch64"} if targets[0].device == "arm64" else {}
    for name in FACTS:
        if facts[0].get(name) not in (None, ""):
            found[name] = facts[0][name]
    return {name: _public(value) for name, value in found.items()}


def _public(value: Any) -> Any:
    return machine.publishable(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Stored:
    """A stored finding, its target, and the same comparison on the store's other targets."""

    finding: Finding
    target: Target
    row: int
    elsewhere: tuple[Elsewhere, ...]


def stored_finding(path: Path, row: int | None = None) -> Stored:
    """Row ``row`` of the store's ``comparisons``, as ``probe.load`` numbers them; None: the worst.

    The worst has the largest difference in units of eps * sum|x*w| (ulps explode where sums
    cancel). StoreError: no store, or nothing differs. InputError: no such row, or it agrees.
    """
    results = load(path)
    table = results.comparisons
    if row is None:
        differing = table[table["differing"] > 0]
        if not len(differing):
            raise StoreError(f"store={path}: no stored comparison differs; sweep other shapes")
        worst = differing["max_scaled"].fillna(0.0)
        row = int(differing.index[int(worst.to_numpy(float).argmax())])
    if not 0 <= row < len(table):
        why = f"the store has {len(table)} comparisons"
        raise InputError("row", row, why, f"give 0 to {len(table) - 1}")
    chosen = table.iloc[row].to_dict()
    if not chosen["differing"]:
        raise InputError("row", row, "its outputs agree, bit for bit", "give one that differs")
    case = case_of(results, chosen["case_id"])
    found = Finding.of(case, chosen["vary"], int(chosen["at"]), int(chosen["against"]))
    others = tuple(_elsewhere(results, chosen))
    return Stored(found, Target.parse(chosen["target"]), row, others)


def case_of(results: Results, case_id: str) -> Case:
    """A stored case."""
    stored = results.cases.set_index("case_id")["json"][case_id]
    return Case.from_json(stored if isinstance(stored, str) else json.dumps(stored))


def _elsewhere(results: Results, chosen: dict[str, Any]) -> list[Elsewhere]:
    """The same comparison on other targets and machines, in their latest runs."""
    table = results.comparisons
    same = table
    for name in ("case_id", "vary", "at", "against"):
        same = same[same[name] == chosen[name]]
    versions = results.runs.drop_duplicates("run_id").set_index("run_id")["library_version"]
    found: dict[tuple[str, str, str], Elsewhere] = {}
    for one in same.to_dict("records"):
        version = str(versions.get(one["run_id"], ""))
        key = (one["target"], version, one["machine"])
        if one["run_id"] == chosen["run_id"]:
            continue
        far = "" if one["max_ulp"] is None or one["max_ulp"] != one["max_ulp"] else one["max_ulp"]
        said = f"differs, up to {far} ulp" if one["differing"] else "does not differ"
        found[key] = Elsewhere(one["target"], version, said, one["machine"])
    return [found[key] for key in sorted(found)]
