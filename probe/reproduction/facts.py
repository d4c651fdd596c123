"""Publishable facts of the machine and of the libraries, for ``machine.json`` and the report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from probe import machine
from probe.reproduction import proof
from probe.target import Target

FACTS = ("build", "compiler", "onednn", "mode", "blas", "capability", "below", "jaxlib_version")
MORE_FACTS = ("onnx_version", "gpu", "cuda", "cudnn", "threads")
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
    for name in (*FACTS, *MORE_FACTS):
        if facts[0].get(name) not in (None, ""):
            found[name] = facts[0][name]
    return {name: _public(value) for name, value in found.items()}


def _public(value: Any) -> Any:
    return machine.publishable(value) if isinstance(value, str) else value
