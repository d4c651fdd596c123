"""What runs a target: this interpreter, an environment's, or one of these under qemu."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.runtimes import emulation, environments, sysroot
from probe.runtimes.environments import Environment


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
        return emulation.SLOWER if self.emulated else 1.0


def runtime(library: str, version: str | None, device: str | None, own: str | None) -> Runtime:
    """What runs ``library`` at ``version`` on an emulated ``device``.

    ``own``: the version in this interpreter, None where there is none; ``version`` None means that
    one. ``device``: a processor to emulate, or None. Starts nothing but qemu, for its version.
    Raises Missing.
    """
    if device is not None and (why := emulation.missing(device)):
        raise Missing(why)
    if device == "arm64":
        return _arm64(library, version, own)
    native = Runtime((sys.executable,))
    if version not in (None, own):
        found = environments.find(library, str(version))
        if found is None:
            raise Missing(absent(f"{library}=={version}", own))
        native = of(found)
    if device is None:
        return native
    command = (*emulation.x86(device), *native.command)
    return Runtime(command, emulation.said(device), native.facts)


def absent(target: str, own: str | None = None) -> str:
    """What to say of a release without an environment."""
    here = f" ({own} is)" if own else ""
    return f"{target} is not installed here{here}; probe install {target}"


def _arm64(library: str, version: str | None, own: str | None) -> Runtime:
    wanted = version or own
    found = environments.find(library, wanted, arm64=True) if wanted else None
    if found is None and version is None:
        others = [one for one in environments.installed() if one.arm64 and one.library == library]
        found = others[-1] if others else None
    if found is None:
        name = library if version is None else f"{library}=={version}"
        raise Missing(absent(f"{name}@arm64"))
    return of(found)


def of(found: Environment) -> Runtime:
    """What runs an environment, on the processor that it was made for."""
    return in_folder(found.folder, found.arm64, found.facts)


def in_folder(folder: Path, arm64: bool, facts: dict[str, Any] | None = None) -> Runtime:
    """What runs the environment in a folder, complete or not."""
    python = str(environments.python_of(folder))
    if not arm64:
        return Runtime((python,), None, facts)
    root = str(sysroot.of_environment(folder))
    command = (str(emulation.program(emulation.ARM64)), "-L", root, python)
    return Runtime(command, emulation.said("arm64"), facts)
