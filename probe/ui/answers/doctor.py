"""Examines what works on this machine, what is missing, and whether each target answers correctly.

The self-test asks every installed library for the order of one small convolution and replays it.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from probe.case import memory
from probe.case.case import Case
from probe.case.errors import ProbeError, TargetError
from probe.sweep.printing import as_json
from probe.targets import backends, budget, machine
from probe.targets.runtimes import environments, packages
from probe.targets.target import (
    Target,
    defaults_here,
    defaults_text,
    gpus,
    installed_version,
    why_unavailable,
)
from probe.ui.answers.cases import order
from probe.ui.lock.conditions import KNOWN

# The self-test's: fifteen sums of ten products. The second where there are no convolutions.
CASES = (
    Case(op="conv1d", kernel=5, in_channels=2, filters=3, length=9),
    Case(op="dense", in_channels=10, filters=3, batch=5),
)

# Packages that some commands need beside a target's library, and what for.
PACKAGES = {
    "pandas": "sweeps, and results that are stored",
    "pyarrow": "sweeps, and results that are stored",
    "xxhash": "models: probe diff, record, diff",
    "jinja2": "bug reports: probe report",
    "matplotlib": "pictures",
    "ml_dtypes": "bfloat16",
    "jupyter": "notebooks: probe run",
    "duckdb": "SQL over results",
    "distributed": "probe sweep --cluster",
}

# Variables of the environment that change bits, and what each decides.
VARIABLES: dict[str, str] = KNOWN["flags"] | KNOWN["threads"] | KNOWN["unsteady"]


@dataclass(frozen=True)
class Check:
    """One line of the examination.

    ``state``: ``ok``, ``missing`` (something could be added) or ``wrong`` (it should work and does
    not). ``said``: what was found. ``adds``: what would be possible if it were there. ``command``:
    what to type for it; None where nothing is missing.
    """

    part: str
    state: str
    said: str
    adds: str | None = None
    command: str | None = None


@dataclass(frozen=True)
class Examined:
    """All checks, the variables that are set, and how the targets answered."""

    checks: list[Check]
    variables: dict[str, str]

    @property
    def healthy(self) -> bool:
        """Whether everything that is installed works."""
        return all(check.state != "wrong" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """The object of ``probe targets doctor --json``."""
        report = {
            "healthy": self.healthy,
            "checks": self.checks,
            "variables": [
                {"name": name, "value": value, "decides": VARIABLES[name]}
                for name, value in self.variables.items()
            ],
        }
        plain: dict[str, Any] = as_json(report)
        return plain


def examine_machine(tell: Callable[[int, int, str], None] | None = None) -> Examined:
    """Examines this machine; takes some seconds for each library, which runs in its own process.

    ``tell(done, total, what)``: a progress bar.
    """
    checks = [*_own_checks()]
    lacking = {name: why_unavailable(Target(name)) for name in backends.known_backends()}
    installed = [name for name, why in lacking.items() if why is None]
    for name, why in lacking.items():
        if tell and why is None:
            tell(installed.index(name), len(installed), name)
        late = budget.spent() if why is None else ""
        checks.append(
            Check(name, "missing", f"not started: {late}") if late else _library_check(name, why)
        )
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return Examined(checks, variables)


def _own_checks() -> Iterator[Check]:
    """Checks what stands beside the libraries: the machine, what old releases and other processors
    would run on, and packages that ``probe-numerics-core`` leaves out, in one line if none is."""
    yield Check("Python", "ok", f"{platform.python_version()}, probe {machine.version()}")
    facts = machine.facts()
    isa = facts["cpu_isa"] or "instructions unknown"
    yield Check("processor", "ok", f"{facts['cpu_model']}, {machine.cores()} cores, {isa}")
    free = memory.free()
    known = "not known on this system" if free is None else f"{free / 1e9:.1f} GB free"
    yield Check("memory", "ok", known)
    # of the folder in which results are stored
    left = shutil.disk_usage(Path()).free
    yield Check("disk", "ok" if left > 1e9 else "wrong", f"{left / 1e9:.1f} GB free")
    if count := gpus():
        yield Check("GPU", "ok", f"{count} of NVIDIA")
    else:
        yield Check("GPU", "missing", "none", "targets such as torch@cuda:0", None)
    there = list(filter(packages.find_python, ("3.6", "3.7", "3.8", "3.9", "3.10")))
    said = ", ".join(f"Python {release}" for release in there) or "only this one"
    if installed := [each.target for each in environments.installed_environments()]:
        said += "; installed: " + ", ".join(installed)
    state = "ok" if there or packages.uv() else "missing"
    more = ("old releases, such as tensorflow==1.2.1", "pip install uv") * (state == "missing")
    yield Check("old Pythons", state, said, *more)
    for name, what in (("x86_64", "tensorflow@haswell"), ("aarch64", "tensorflow@arm64")):
        if environments.emulator_path(f"qemu-{name}"):
            yield Check(f"qemu-{name}", "ok", environments.emulator_version(f"qemu-{name}"))
        else:
            adds = f"other processors, such as {what}"
            yield Check(f"qemu-{name}", "missing", "none", adds, "apt install qemu-user")
    lacking = {name: adds for name, adds in PACKAGES.items() if util.find_spec(name) is None}
    for name, adds in lacking.items():
        yield Check(name, "missing", f"{name} is not installed here", adds, f"pip install {name}")
    if not lacking:
        yield Check("packages", "ok", ", ".join(PACKAGES))


def _library_check(name: str, why: str | None) -> Check:
    backend = backends.get(name)
    if why:
        said, _, todo = why.partition("; ")
        known = todo.startswith("pip install ")
        adds = f"targets of {name}"
        return Check(name, "missing", said if known else why, adds, todo if known else None)
    version = installed_version(backend) or ""
    try:
        report = self_test(name)
    except ProbeError as error:
        return Check(name, "wrong", f"{version}: {error}", f"targets of {name}", None)
    outputs, replayed = report["outputs"], report["replayed"]
    said = f"{version}: order revealed, {replayed} of {outputs} outputs replayed"
    said += defaults_text(defaults_here(Target(name)))
    if replayed == outputs:
        return Check(name, "ok", said)
    adds = "please report it: results of this library on this machine are not verified"
    return Check(name, "wrong", said, adds)


def self_test(name: str) -> dict[str, Any]:
    """Asks ``probe.order`` about the first of ``CASES`` that a library has."""
    for case in CASES[:-1]:
        try:
            return order(case, name).to_json()
        except TargetError as error:
            if error.kind != "unsupported":
                raise
    return order(CASES[-1], name).to_json()
