"""What works on this machine: targets, facts, environments, checks; and ``probe demo``.

``examine_machine`` asks every installed library for the order of one small convolution and replays
it. The demonstration is the report that this project started from, in NumPy alone: two lengths, two
orders, one bit.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from probe.case import memory, schema
from probe.case.case import Case
from probe.case.errors import ProbeError, TargetError
from probe.order.replay import partial_sums, replay
from probe.order.summation import Summation
from probe.order.tree import Tree
from probe.sweep.printing import table
from probe.targets import backends, budget, environments, installation, machine
from probe.targets.target import (
    Target,
    defaults_here,
    defaults_text,
    gpus,
    installed_version,
    why_unavailable,
)
from probe.ui.lock.conditions import CONDITIONS


def targets_shown(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What can run here first; then the rest, each with its reason."""
    available = table("target", "version", "what it is")
    unavailable = table("not here", "because")
    # targets and reasons; a library that is missing once, with how many variants it has
    reasons: dict[tuple[str, str], tuple[str, str, int]] = {}
    for row in rows:
        if row["available"]:
            available.add_row(row["target"], row["version"], row["doc"])
            continue
        name = re.split("[,@]", row["target"])[0]
        missing = (name, row["why"]) in reasons and reasons[name, row["why"]][0] == name
        key = (name, row["why"]) if missing or row["target"] == name else (row["target"], "")
        first = reasons.get(key, (row["target"], row["why"], -1))
        reasons[key] = (first[0], first[1], first[2] + 1)
    for name, why, variants in reasons.values():
        also = f", and {variants} with switches or on other devices" if variants else ""
        unavailable.add_row(f"{name}{also}", why)
    return Group(available, "", unavailable) if reasons else available


def machine_shown(facts: Mapping[str, Any]) -> RenderableType:
    rows = table("fact", "value")
    rows.show_header = False
    absent = {column.name: column.null for column in schema.TABLES["runs"]}
    for name, value in facts.items():
        if name != "libraries":
            rows.add_row(name, f"({absent.get(name)})" if value is None else str(value))
    for name, version in facts["libraries"].items():
        rows.add_row(name, version or "not installed")
    return rows


def environments_shown(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A row an environment that was installed, and how large it is."""
    if not rows:
        return "nothing is installed; try probe targets install tensorflow==1.2.1"
    shown = table("target", "Python", "NumPy", "MB", right=("MB",))
    for row in rows:
        size = f"{row['bytes'] / 1e6:.0f}"
        shown.add_row(row["target"], row["python_version"], row["numpy_version"], size)
    return shown


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
VARIABLES: dict[str, str] = CONDITIONS["flags"] | CONDITIONS["threads"] | CONDITIONS["unsteady"]


@dataclass(frozen=True)
class Check:
    """One line of the examination.

    ``part``: what was checked, such as ``GPU``. ``state``: ``ok``, ``missing`` (it could be added)
    or ``wrong`` (it should work and does not). ``said``: what was found, in words. ``adds``: what
    would be possible with it. ``command``: what to type for it; None where nothing is missing.
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

    def report(self) -> dict[str, Any]:
        """The object of ``probe targets doctor --json``."""
        variables = [
            {"name": name, "value": value, "decides": VARIABLES[name]}
            for name, value in self.variables.items()
        ]
        return {"healthy": self.healthy, "checks": self.checks, "variables": variables}

    def shown(self) -> RenderableType:
        """A row a check, what to type for what is missing, and the variables that are set."""
        rows = table("", "part", "found", "would add", "type")
        # a command is copied as it stands
        rows.columns[-1].no_wrap = True
        for check in self.checks:
            rows.add_row(check.state, check.part, check.said, check.adds or "", check.command or "")
        parts: list[RenderableType] = [rows, ""]
        if not self.variables:
            return Group(*parts, "No environment variable that changes bits is set.")
        set_here = table("variable that changes bits", "value", "what it decides")
        for name, value in self.variables.items():
            set_here.add_row(name, value, VARIABLES[name])
        note = (
            "Runs on a target do not have these variables: its switches set what it needs. What "
            "runs in probe's own process has them: `probe diff` and `record` without --target."
        )
        return Group(*parts, set_here, note)


def examine_machine(tell: Callable[[int, int, str], None] | None = None) -> Examined:
    """Examines this machine; takes some seconds for each library, which runs in its own process.

    ``tell(done, total, what)``: a progress bar.
    """
    checks = [*_machine_checks()]
    lacking = {name: why_unavailable(Target(name)) for name in backends.known_backends()}
    installed = [name for name, why in lacking.items() if why is None]
    for name, why in lacking.items():
        if tell and why is None:
            tell(installed.index(name), len(installed), name)
        started, check = why is not None or not budget.spent(), None
        if started:
            with budget.Ending(checks):  # what was examined is worth having
                check = _library_check(name, why)
        unfinished = f"not {'finished' if started else 'started'}: {budget.spent()}"
        checks.append(check or Check(name, "missing", unfinished))
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return Examined(checks, variables)


def _machine_checks() -> Iterator[Check]:
    """Checks everything but the libraries: the machine, the Pythons of old releases, emulators of
    other processors, and packages that ``probe-numerics-core`` leaves out (a line for each that is
    missing, or one line for all)."""
    yield Check("Python", "ok", f"{platform.python_version()}, probe {machine.version()}")
    facts = machine.facts()
    isa = facts["cpu_isa"] or "instructions unknown"
    yield Check("processor", "ok", f"{facts['cpu_model']}, {machine.cores()} cores, {isa}")
    free = memory.free()
    free_text = "not known on this system" if free is None else f"{free / 1e9:.1f} GB free"
    yield Check("memory", "ok", free_text)
    # of the folder in which results are stored
    left = shutil.disk_usage(Path()).free
    yield Check("disk", "ok" if left > 1e9 else "wrong", f"{left / 1e9:.1f} GB free")
    if count := gpus():
        yield Check("GPU", "ok", f"{count} of NVIDIA")
    else:
        yield Check("GPU", "missing", "none", "targets such as torch@cuda:0", None)
    pythons = list(filter(installation.find_python, ("3.6", "3.7", "3.8", "3.9", "3.10")))
    pythons_text = ", ".join(f"Python {release}" for release in pythons) or "only this one"
    if installed := [each.target for each in environments.installed_environments()]:
        pythons_text += "; installed: " + ", ".join(installed)
    state = "ok" if pythons or installation.uv() else "missing"
    old_pythons = Check("old Pythons", state, pythons_text)
    if state == "missing":
        adds = "old releases, such as tensorflow==1.2.1"
        old_pythons = replace(old_pythons, adds=adds, command="pip install uv")
    yield old_pythons
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
        text, _, todo = why.partition("; ")
        installable = todo.startswith("pip install ")
        adds = f"targets of {name}"
        return Check(
            name, "missing", text if installable else why, adds, todo if installable else None
        )
    version = installed_version(backend) or ""
    try:
        report = self_test(name)
    except ProbeError as error:
        return Check(name, "wrong", f"{version}: {error}", f"targets of {name}", None)
    outputs, replayed = report["outputs"], report["replayed"]
    text = f"{version}: order revealed, {replayed} of {outputs} outputs replayed"
    text += defaults_text(defaults_here(Target(name)))
    if replayed == outputs:
        return Check(name, "ok", text)
    adds = "please report it: results of this library on this machine are not verified"
    return Check(name, "wrong", text, adds)


def self_test(name: str) -> dict[str, Any]:
    """Asks ``probe.order`` about the first of ``CASES`` that a library has."""
    from probe.ui.answers.cases import order  # late: what lists targets reveals nothing

    for case in CASES[:-1]:
        try:
            return order(case, name).to_json()
        except TargetError as error:
            if error.kind != "unsupported":
                raise
    return order(CASES[-1], name).to_json()


# conv2d 1x5 on 10 * [0, 1, ..., T - 1], VALID, on the processors and releases of TensorFlow up to
# 1.5.0: outputs are computed in groups of four, added ``(((0+1)+(2+3))+4)``, and what is left over
# one product after the other. So which outputs are in a group depends on T.
WEIGHTS = np.array([-0.7313, -1.1043, 1.8492, 1.3007, -0.1033], np.float32)
BIAS = np.float32(0.0401)
GROUPED, SEQUENTIAL = "(((0+1)+(2+3))+4)", "((((0+1)+2)+3)+4)"
# What the report printed, by T.
PUBLISHED = {
    7: ("60.87010574", "72.98010254", "85.09010315"),
    8: ("60.87010574", "72.98009491", "85.09008789", "97.20009613"),
}

# The output whose trees are shown: the first that differs.
MOVED = 1


def demonstrated_outputs(length: int) -> list[dict[str, Any]]:
    """What each output of a length was, as those releases added it."""
    x = (10 * np.arange(length)).astype(np.float32)
    count = length - len(WEIGHTS) + 1
    outputs = []
    for at in range(count):
        order = SEQUENTIAL if at >= count - count % 4 else GROUPED
        summation = Summation(Tree.parse(order))
        window = x[at : at + len(WEIGHTS), None], WEIGHTS[:, None], "float32"
        value = np.float32(replay(summation, *window)[0] + BIAS)
        output = {"output": at, "value": f"{float(value):.8f}"}
        output |= {"bits": f"{int(value.view(np.uint32)):08x}", "tree": order}
        output["sums"] = [step.text for step in partial_sums(summation, *window)]
        outputs.append({**output, "published": PUBLISHED[length][at]})
    return outputs


def demo_json() -> dict[str, Any]:
    """What ``probe demo --json`` prints."""
    both = {length: demonstrated_outputs(length) for length in PUBLISHED}
    pairs = list(zip(*both.values(), strict=False))
    return {
        "weights": [float(weight) for weight in WEIGHTS],
        "bias": float(BIAS),
        "lengths": {str(length): outputs for length, outputs in both.items()},
        "differing": [short["output"] for short, long in pairs if short["bits"] != long["bits"]],
        "replayed": all(out["value"] == out["published"] for outs in both.values() for out in outs),
    }


def demo_text() -> str:
    from jinja2 import Template

    facts = demo_json()
    short, long = facts["lengths"].values()
    pair = [f"{int(outputs[MOVED]['bits'], 16):032b}" for outputs in (short, long)]
    marks = "".join("^" if a != b else " " for a, b in zip(*pair, strict=True)).rstrip()
    text = Path(__file__).with_name("templates").joinpath("demo.txt.j2").read_text()
    return Template(text).render(facts, short=short, long=long, pair=pair, marks=marks, moved=MOVED)
