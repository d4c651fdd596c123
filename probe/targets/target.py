"""Defines a target: a library, its version, a device and switches, as one line of text.

``NAME[==VERSION][@DEVICE][,key=value...]``, for example ``tensorflow,onednn=0``,
``tensorflow==1.2.1``, ``torch@cuda:0``. What names, devices and keys there are is said by the
backends themselves; nothing here imports a library.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple, Self

from probe.case.arguments import require_types
from probe.case.errors import InputError, one_of
from probe.targets import backends, environments
from probe.targets.backends.contract import Backend
from probe.targets.environments import Missing, Runtime, models
from probe.targets.environments import find_runtime as find_runtime

FORM = "NAME[==VERSION][@DEVICE][,key=value...]"

# Processors that an emulator may stand in for, by qemu's names in lower case. Any other one that
# this machine's qemu knows is a device too.
EMULATED = (
    *("arm64", "nehalem", "westmere", "sandybridge", "ivybridge", "haswell", "broadwell"),
    *("skylake-client", "skylake-server", "cascadelake-server", "icelake-server"),
    *("sapphirerapids", "epyc", "epyc-rome", "epyc-milan", "epyc-genoa"),
)

_SYNTAX = re.compile(r"(?P<name>[^=@,]*)(==(?P<version>[^=@,]*))?(@(?P<device>[^=@,]*))?")
VERSION = re.compile(r"\d+(\.\w+)*([-+.]\w+)*")


@dataclass(frozen=True, order=True)
class Target:
    """Names a library on a device with switches. InputError lists what there is instead.

    ``version`` is None for the installed one. ``switches`` holds (key, value) pairs; they are kept
    in the order in which the backend lists its keys, so that equal targets have equal texts.
    """

    name: str
    version: str | None = None
    device: str = "cpu"
    switches: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        require_types(Target.__annotations__, vars(self))
        backend = _backend(self.name)
        if self.version is not None and not VERSION.fullmatch(self.version):
            why = f"{self.version!r} is not a version"
            raise InputError("target", self.text, why, f"write {self.name}==1.2.3")
        if not _has_device(backend, self.device):
            # qemu's names of processors have capitals, targets have none
            if not _has_device(backend, self.device.lower()):
                devices = one_of(self.device, [*backend.devices, *EMULATED])
                why = f"{self.name} has no device {self.device!r}"
                todo = f"{devices}, or a processor that qemu-x86_64 -cpu help lists"
                raise InputError("target", self.text, why, todo)
            object.__setattr__(self, "device", self.device.lower())
        object.__setattr__(self, "switches", _checked_switches(backend, self.text, self.switches))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The target of a text such as ``tensorflow@gpu:0,onednn=0``. Raises InputError.

        A key may be given once; spaces around the parts do not matter.
        """
        head, *pairs = (part.strip() for part in str(text).split(","))
        match = _SYNTAX.fullmatch(head)
        if not match or not match["name"]:
            raise InputError(
                "target", text, f"{head!r} is not {FORM.split(',')[0][:-1]}", _known_backend()
            )
        switches = []
        for pair in pairs:
            key, _, value = (word.strip() for word in pair.partition("="))
            if not key or not value:
                todo = "write key=value, for example threads=2"
                raise InputError("target", text, f"{pair!r} is not a switch", todo)
            switches.append((key, value))
        device = "cpu" if match["device"] is None else match["device"].strip()
        version = match["version"]
        name = match["name"].strip()
        return cls(name, version and version.strip(), device, tuple(switches))

    @property
    def text(self) -> str:
        """The canonical text: ``parse`` gives the same target. No ``@`` for the CPU."""
        version = "" if self.version is None else f"=={self.version}"
        device = "" if self.device == "cpu" else f"@{self.device}"
        switches = "".join(f",{key}={value}" for key, value in self.switches)
        return f"{self.name}{version}{device}{switches}"

    def __str__(self) -> str:
        return self.text

    def with_(self, **changes: Any) -> Target:
        """A copy with other ``name``, ``version`` or ``device``; other words are switches.

        A switch set to None is left out: ``target.with_(onednn="0", threads=None)``.
        """
        fields = {key: changes.pop(key) for key in ("name", "version", "device") if key in changes}
        switches = dict(self.switches)
        switches.update({key: str(value) for key, value in changes.items() if value is not None})
        pairs = tuple(pair for pair in switches.items() if changes.get(pair[0], "") is not None)
        same: dict[str, Any] = {
            "name": self.name,
            "version": self.version,
            "device": self.device,
            "switches": pairs,
        }
        return Target(**(same | fields))


def _known_backend(name: str = "") -> str:
    return one_of(name, backends.known_backends())


def _backend(name: str) -> type[Backend]:
    try:
        return backends.get(name)  # type: ignore[no-any-return]
    except KeyError:
        todo = f'write probe.Target.parse("{name}")' if "," in name else _known_backend(name)
        raise InputError("target", name, "there is no such library", todo) from None


def _has_device(backend: type[Backend], device: str) -> bool:
    patterns = [pattern.replace("N", r"\d{1,3}") for pattern in backend.devices]
    if device in EMULATED or any(re.fullmatch(pattern, device) for pattern in patterns):
        return True
    return device in models()


def emulated_processor(target: Target) -> str | None:
    """The target's device if that is a processor to emulate, else None."""
    device = target.device
    emulated = device in EMULATED or (device != "cpu" and ":" not in device)
    return device if emulated else None


def target_runtime(target: Target) -> Runtime:
    """The interpreter that runs a target, perhaps emulated. Raises ``Missing``."""
    backend, device = _backend(target.name), emulated_processor(target)
    if backend.broken:
        raise Missing(backend.broken)
    version_here = installed_version(backend)
    if version_here is None and target.version is None and device != "arm64":
        library = backend.distributions[0]
        raise Missing(f"{library} is not installed here; pip install {backend.installs or library}")
    return find_runtime(target.name, target.version, device, version_here)


def _checked_switches(
    backend: type[Backend], text: str, switches: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """The switches in the backend's order of keys. Raises InputError."""
    refused = partial(InputError, "target", text)
    for number, (key, value) in enumerate(switches):
        if key == "machine" and key not in backend.keys:
            todo = "use it with `probe sweep --cluster`, or leave it out"
            raise refused("machine= selects one machine type of a cluster", todo)
        if key not in backend.keys:
            keys = ", ".join(f"{name}={what.describe()}" for name, what in backend.keys.items())
            near = one_of(key, backend.keys).partition("? ")
            meant = f"{near[0]}? " if near[1] else ""
            raise refused(f"{backend.name} has no switch {key!r}", f"{meant}use {keys}")
        if key in dict(switches[:number]):
            raise refused(f"{key} is given twice", "leave one")
        if not backend.keys[key].accepts(value):
            raise refused(f"{key} can't be {value!r}", f"use {backend.keys[key].expects()}")
    if wrong := backend.conflict(dict(switches)):
        key, why, todo = wrong
        raise refused(f"{key}={why}", todo)
    order = list(backend.keys)
    return tuple(sorted(switches, key=lambda pair: order.index(pair[0])))


def why_unavailable(target: Target) -> str | None:
    """Why a target can't run here, with this interpreter, or None; imports no library."""
    backend = _backend(target.name)
    try:
        in_this_python = target_runtime(target).facts is None
    except Missing as missing:
        return str(missing)
    for module, library in backend.requires(dict(target.switches)) if in_this_python else ():
        if util.find_spec(module) is None:
            why = "which these switches require, is not installed"
            return f"{library}, {why}; pip install {library}"
    if emulated_processor(target):
        return None
    if ":" in target.device:
        number, count = int(target.device.split(":")[1]), gpus()
        if number >= count:
            return f"this machine has {count or 'no'} GPU{'s' if count > 1 else ''}"
    flags = cpu_flags()
    for switch, value in target.switches:
        if (needs := backend.keys[switch].needs) is None:
            continue
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return f"{switch}={value} limits x86 instructions; this is {platform.machine()}"
        lacks = [flag for flag in needs.get(value, ()) if flag not in flags]
        if flags and lacks:
            return f"{switch}={value} needs a CPU with {', '.join(lacks)}, which this one lacks"
    return None


def installed_version(backend: type[Backend]) -> str | None:
    """The version of a backend's library for this interpreter; None if it isn't installed."""
    for distribution in backend.distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


@cache
def cpu_flags() -> frozenset[str]:
    """The first processor's flags under Linux's names; empty where the system doesn't say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(flags, "").split())


@cache
def gpus() -> int:
    """How many NVIDIA GPUs this machine shows; 0 where it can't be told without a library."""
    return len([node for node in Path("/dev").glob("nvidia*") if node.name[6:].isdigit()])


def defaults_here(target: Target) -> dict[str, str]:
    """What defaults that go by the processor come to on this one, by switch: ``{"onednn": "0"}``.

    Empty for another processor, for a library that isn't here, and where none goes by it.
    """
    backend = _backend(target.name)
    version = target.version or installed_version(backend)
    if version is None or emulated_processor(target):
        return {}
    left = backend.defaults_on(version, cpu_flags())
    return {name: value for name, value in left.items() if name not in dict(target.switches)}


def defaults_text(defaults: Mapping[str, str]) -> str:
    """``; oneDNN: off by default on this processor``, to go behind a text; else empty."""
    # the only switch so far whose default goes by the processor
    states = {"0": "off", "1": "on"}
    state = states.get(defaults.get("onednn", ""))
    return f"; oneDNN: {state} by default on this processor" if state else ""


class Choice(NamedTuple):
    """One row of ``probe targets``. ``why`` is None for a target that can run here."""

    target: Target
    why: str | None
    doc: str
    defaults: Mapping[str, str] = {}


def available_targets() -> list[Choice]:
    """Targets worth a look on any machine, with the reason for each that can't run on this one.

    Every library with its defaults, and with the switches that are known to move bits. Cheap: no
    library is imported.
    """
    rows: list[tuple[Target, str]] = []
    for name in backends.known_backends():
        backend = _backend(name)
        rows.append((Target(name), backend.doc))
        for text in backend.suggestions:
            target = Target.parse(f"{name}{text}")
            docs = (f"{backend.keys[key].doc}" for key, _ in target.switches)
            rows.append((target, "; ".join(docs) or f"on {target.device}"))
    for environment in environments.installed_environments():
        doc = f"Python {environment.facts.get('python_version')}, installed"
        rows.append((Target.parse(environment.target), doc))
    choices = []
    for target, doc in rows:
        defaults = {} if target.switches else defaults_here(target)
        doc += defaults_text(defaults)
        choices.append(Choice(target, why_unavailable(target), doc, defaults))
    return choices
