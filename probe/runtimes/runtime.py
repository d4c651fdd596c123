"""Finds what runs a target: this interpreter, an environment's, or one under qemu.

qemu's float32 and float64 additions, products and fused multiply-adds are exact IEEE operations, so
kernels for another processor give that processor's bits. Not exact are the estimates of reciprocals
and square roots (RCPPS, RSQRTPS), for which processors differ too; no convolution kernel here uses
them. What a model has and qemu lacks (AVX-512 of server models; AVX before 7.2) is left out, and a
library then takes the kernels it has for less.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from probe.runtimes import environments
from probe.runtimes.environments import Environment, printed

X86, ARM64 = "qemu-x86_64", "qemu-aarch64"
PACKAGE = "install qemu's user mode (Debian, Ubuntu: apt install qemu-user)"
# How much longer an emulated processor may take for an answer. Measured: 5 to 10 times.
SLOWER = 10.0


@cache
def emulator_path(name: str) -> str | None:
    """The path of ``qemu-x86_64`` or ``qemu-aarch64``, or of its static build; None without it."""
    return shutil.which(name) or shutil.which(f"{name}-static")


@cache
def models() -> dict[str, str]:
    """x86 processors that this machine's qemu knows: its name of each by the name in lower case."""
    said = _emulator_prints(emulator_path(X86), "-cpu", "help")
    names = re.findall(r"^(?:x86\s+)?([A-Za-z][\w.-]*)", said.partition("CPUID")[0], re.MULTILINE)
    return {name.lower(): name for name in names if name not in ("Available", "Recognized")}


def emulation_missing(device: str) -> str | None:
    """Returns why ``device`` can't be emulated here, or None."""
    needed = ARM64 if device == "arm64" else X86
    if platform.system() != "Linux":
        return f"{device} is emulated by {needed}, which runs on Linux; this is {platform.system()}"
    if device != "arm64" and platform.machine().lower() not in ("x86_64", "amd64"):
        return f"{device} needs an x86 interpreter; this machine is {platform.machine()}"
    if emulator_path(needed) is None:
        return f"{device} is emulated by {needed}, which is not installed; {PACKAGE}"
    if device != "arm64" and device not in models():
        return (
            f"{needed} {emulator_version(needed)} has no processor {device}; see {needed} -cpu help"
        )
    return None


def x86(device: str) -> tuple[str, ...]:
    """What goes before a command so that it runs on ``device``, which can be emulated here."""
    return (str(emulator_path(X86)), "-cpu", models()[device])


def emulator_text(device: str) -> str:
    """What emulates a device, for ``runs.emulated``: ``qemu-x86_64 7.2.22 -cpu Haswell``."""
    if device == "arm64":
        return f"{ARM64} {emulator_version(ARM64)}"
    return f"{X86} {emulator_version(X86)} -cpu {models()[device]}"


@cache
def emulator_version(name: str) -> str:
    """qemu's version, ``7.2.22``; empty where it doesn't say."""
    found = re.search(r"version (\d[\w.]*)", _emulator_prints(emulator_path(name), "--version"))
    return found[1] if found else ""


def _emulator_prints(emulator: str | None, *words: str) -> str:
    """Returns what an emulator prints; ``-cpu help`` of qemu 7.2 ends with status 1."""
    return (printed(emulator, *words, failing=True) or "") if emulator else ""


class Missing(Exception):
    """What a target needs is not here; the message is the reason, and what to do."""


@dataclass(frozen=True)
class Runtime:
    """``command`` starts the interpreter. ``emulated`` names the emulator; None: none.

    ``facts``: versions that were read when the environment was made; None for this interpreter.
    """

    command: tuple[str, ...]
    emulated: str | None = None
    facts: dict[str, Any] | None = None

    @property
    def slower(self) -> float:
        """Factor on time limits."""
        return SLOWER if self.emulated else 1.0


def find_runtime(library: str, version: str | None, device: str | None, own: str | None) -> Runtime:
    """Returns what runs ``library`` at ``version`` on an emulated ``device``.

    ``own``: the version in this interpreter, None where there is none; ``version`` None means that
    one. ``device``: a processor to emulate, or None. Starts nothing but qemu, for its version.
    Raises Missing.
    """
    if device is not None and (why := emulation_missing(device)):
        raise Missing(why)
    if device == "arm64":
        return _arm64(library, version, own)
    native = Runtime((sys.executable,))
    if version not in (None, own):
        found = environments.find_environment(library, str(version))
        if found is None:
            raise Missing(absent(f"{library}=={version}", own))
        native = environment_runtime(found)
    if device is None:
        return native
    command = (*x86(device), *native.command)
    return Runtime(command, emulator_text(device), native.facts)


def absent(target: str, own: str | None = None) -> str:
    """Returns what to say of a release without an environment."""
    here = f" ({own} is)" if own else ""
    return f"{target} is not installed here{here}; probe install {target}"


def _arm64(library: str, version: str | None, own: str | None) -> Runtime:
    wanted = version or own
    found = environments.find_environment(library, wanted, arm64=True) if wanted else None
    if found is None and version is None:
        others = [
            one
            for one in environments.installed_environments()
            if one.arm64 and one.library == library
        ]
        found = others[-1] if others else None
    if found is None:
        name = library if version is None else f"{library}=={version}"
        raise Missing(absent(f"{name}@arm64"))
    return environment_runtime(found)


def environment_runtime(found: Environment) -> Runtime:
    """Returns what runs an environment, on the processor that it was made for."""
    return in_folder(found.folder, found.arm64, found.facts)


def in_folder(folder: Path, arm64: bool, facts: dict[str, Any] | None = None) -> Runtime:
    """Returns what runs the environment in a folder, complete or not."""
    python = str(environments.python_of(folder))
    if not arm64:
        return Runtime((python,), None, facts)
    from probe.runtimes import sysroot  # here: few targets are of another processor

    root = str(sysroot.of_environment(folder))
    command = (str(emulator_path(ARM64)), "-L", root, python)
    return Runtime(command, emulator_text("arm64"), facts)
