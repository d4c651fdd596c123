"""Finds what runs a target: this interpreter, an environment of the cache, or one under qemu.

An environment counts from the moment its ``probe.json`` is there, which is written last. A folder
without it was left half made: nothing uses it, and the next installation of its name removes it.

qemu's float32 and float64 additions, products and fused multiply-adds are exact IEEE operations, so
kernels for another processor give that processor's bits. Not exact are the estimates of reciprocals
and square roots (RCPPS, RSQRTPS), for which processors differ too; no convolution kernel here uses
them. What a model has and qemu lacks (AVX-512 of server models; AVX before 7.2) is left out, and a
library then takes the kernels it has for less.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

FORMAT = 1
MARK = "probe.json"
# Where an environment of arm64 keeps the root folder that it was made with.
LINK = "sysroot"


@dataclass(frozen=True)
class Environment:
    """A complete environment. ``facts``: what the library said when it was installed."""

    library: str
    version: str
    arm64: bool
    folder: Path
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def python(self) -> Path:
        return python_of(self.folder)

    @property
    def target(self) -> str:
        return f"{self.library}=={self.version}" + ("@arm64" if self.arm64 else "")

    def size(self) -> int:
        """Bytes of its files; files that an installer shares with its own cache count too."""
        walked = (Path(root, f) for root, _, files in os.walk(self.folder) for f in files)
        return sum(path.lstat().st_size for path in walked)

    def to_json(self) -> dict[str, Any]:
        facts = {name: self.facts.get(name) for name in ("python_version", "numpy_version")}
        return {"target": self.target, **facts, "bytes": self.size()}


def cache_folder() -> Path:
    """The folder of all of them: ``$PROBE_CACHE``, else in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if chosen := os.environ.get("PROBE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probe"


def folder_of(library: str, version: str, arm64: bool = False) -> Path:
    """Where the environment of a release is, or would be."""
    return cache_folder() / "environments" / f"{library}-{version}{'-arm64' if arm64 else ''}"


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def sysroot_of(folder: Path) -> Path:
    """The root folder that an arm64 environment was made with."""
    return Path(os.readlink(folder / LINK)) if (folder / LINK).is_symlink() else folder / LINK


def find_environment(library: str, version: str, arm64: bool = False) -> Environment | None:
    """The complete environment of a release, or None. Reads one small file."""
    return read_environment(folder_of(library, version, arm64))


def read_environment(folder: Path) -> Environment | None:
    """The environment in a folder; None where it is half made, damaged or of another format."""
    try:
        mark = json.loads((folder / MARK).read_text())
        readable = mark["format"] == FORMAT and isinstance(mark["facts"], dict)
        release = mark["library"], mark["version"], mark["arm64"]
        environment = Environment(*release, folder, mark["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return environment if readable and os.path.lexists(environment.python) else None


def installed_environments() -> list[Environment]:
    """All complete environments, by library and version."""
    marks = (cache_folder() / "environments").glob(f"*/{MARK}")
    complete_ones = filter(None, (read_environment(mark.parent) for mark in marks))
    return sorted(complete_ones, key=lambda e: (e.library, release_numbers(e.version), e.arm64))


def complete(folder: Path, library: str, version: str, arm64: bool, facts: dict[str, Any]) -> None:
    """Marks a folder as an environment that may be used."""
    mark = {"format": FORMAT, "library": library, "version": version, "arm64": arm64}
    # the mark is there as a whole or not at all, and last of all files
    partial = folder / f"{MARK}.tmp"
    partial.write_text(json.dumps(mark | {"facts": facts}, indent=1))
    partial.replace(folder / MARK)


def remove_environment(folder: Path) -> None:
    """Takes an environment away, its mark first, so that it never looks complete when it isn't."""
    (folder / MARK).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time works on a folder of this name; others wait."""
    import fcntl

    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def same_release(version: str, other: str) -> bool:
    """Whether two spellings name one release: 2.4 and 2.4.0, 2.13.0 and 2.13.0+cpu."""
    pairs = zip_longest(release_numbers(version), release_numbers(other), fillvalue=0)
    return all(number == same for number, same in pairs)


def release_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version's release part, for comparing: 2.4.0rc1 is (2, 4, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def printed(*command: str, failing: bool = False) -> str | None:
    """What a command prints; None where it does not start, fails, or takes too long.

    ``failing``: what a command prints that fails is returned too.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if failing or done.returncode == 0 else None


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
    """Why ``device`` can't be emulated here, or None."""
    needed = ARM64 if device == "arm64" else X86
    if platform.system() != "Linux":
        return f"{device} is emulated by {needed}, which runs on Linux; this is {platform.system()}"
    if device != "arm64" and platform.machine().lower() not in ("x86_64", "amd64"):
        return f"{device} needs an x86 interpreter; this machine is {platform.machine()}"
    if emulator_path(needed) is None:
        return f"{device} is emulated by {needed}, which is not installed; {PACKAGE}"
    if device != "arm64" and device not in models():
        emulator = f"{needed} {emulator_version(needed)}"
        return f"{emulator} has no processor {device}; see {needed} -cpu help"
    return None


def emulator_text(device: str) -> str:
    """What emulates a device, for ``runs.emulated``: ``qemu-x86_64 7.2.22 -cpu Haswell``."""
    if device == "arm64":
        return f"{ARM64} {emulator_version(ARM64)}"
    return f"{X86} {emulator_version(X86)} -cpu {models()[device]}"


@cache
def emulator_version(name: str) -> str:
    """qemu's version, ``7.2.22``; empty where it doesn't say."""
    match = re.search(r"version (\d[\w.]*)", _emulator_prints(emulator_path(name), "--version"))
    return match[1] if match else ""


def _emulator_prints(emulator: str | None, *words: str) -> str:
    """What an emulator prints; ``-cpu help`` of qemu 7.2 ends with status 1."""
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
        return SLOWER if self.emulated else 1.0


def find_runtime(
    library: str, version: str | None, device: str | None, version_here: str | None
) -> Runtime:
    """What runs ``library`` at ``version`` on an emulated ``device``.

    ``own``: the version in this interpreter, None where there is none; ``version`` None means that
    one. ``device``: a processor to emulate, or None. Starts nothing but qemu, for its version.
    Raises Missing.
    """
    if device is not None and (why := emulation_missing(device)):
        raise Missing(why)
    if device == "arm64":
        wanted = version or version_here
        environment = find_environment(library, wanted, arm64=True) if wanted else None
        if environment is None and version is None:  # the latest that is there
            for installed in installed_environments():
                if installed.arm64 and installed.library == library:
                    environment = installed
        if environment is None:
            name = library if version is None else f"{library}=={version}"
            raise Missing(absent(f"{name}@arm64"))
        return in_folder(environment.folder, True, environment.facts)
    native = Runtime((sys.executable,))
    if version not in (None, version_here):
        environment = find_environment(library, str(version))
        if environment is None:
            raise Missing(absent(f"{library}=={version}", version_here))
        native = in_folder(environment.folder, False, environment.facts)
    if device is None:
        return native
    command = (str(emulator_path(X86)), "-cpu", models()[device], *native.command)
    return Runtime(command, emulator_text(device), native.facts)


def absent(target: str, version_here: str | None = None) -> str:
    beside = f" ({version_here} is)" if version_here else ""
    return f"{target} is not installed here{beside}; probe targets install {target}"


def in_folder(folder: Path, arm64: bool, facts: dict[str, Any] | None = None) -> Runtime:
    """What runs the environment in a folder, complete or not."""
    python = str(python_of(folder))
    if not arm64:
        return Runtime((python,), None, facts)
    command = (str(emulator_path(ARM64)), "-L", str(sysroot_of(folder)), python)
    return Runtime(command, emulator_text("arm64"), facts)
