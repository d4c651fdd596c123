"""Keeps environments of releases in the user's cache, complete or not used at all.

An environment counts from the moment its ``probe.json`` is there, which is written last. A folder
without it was left half made: nothing uses it, and the next installation of its name removes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
MARK = "probe.json"
ARM64 = "-arm64"


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
        """Returns the folder's name, such as ``tensorflow-1.2.1``."""
        return self.folder.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return python_of(self.folder)

    @property
    def target(self) -> str:
        """Returns the text of the target that it serves."""
        return f"{self.library}=={self.version}" + ("@arm64" if self.arm64 else "")

    def size(self) -> int:
        """Bytes of its files; files that an installer shares with its own cache count too."""
        walked = (Path(root, f) for root, _, files in os.walk(self.folder) for f in files)
        return sum(path.lstat().st_size for path in walked)

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe install --list --json`` prints of it."""
        facts = {name: self.facts.get(name) for name in ("python_version", "numpy_version")}
        return {"target": self.target, **facts, "bytes": self.size()}


def cache_folder() -> Path:
    """The folder of all of them: ``$PROBE_CACHE``, else in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if own := os.environ.get("PROBE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probe"


def folder_of(library: str, version: str, arm64: bool = False) -> Path:
    """Returns where the environment of a release is, or would be."""
    return cache_folder() / "environments" / f"{library}-{version}{ARM64 if arm64 else ''}"


def python_of(folder: Path) -> Path:
    """Returns the interpreter of an environment's folder."""
    return folder / "bin" / "python"


def find_environment(library: str, version: str, arm64: bool = False) -> Environment | None:
    """Returns the complete environment of a release, or None. Reads one small file."""
    return read_environment(folder_of(library, version, arm64))


def read_environment(folder: Path) -> Environment | None:
    """The environment in a folder; None where it is half made, damaged or of another format."""
    try:
        mark = json.loads((folder / MARK).read_text())
        known = mark["format"] == FORMAT and isinstance(mark["facts"], dict)
        found = Environment(mark["library"], mark["version"], mark["arm64"], folder, mark["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if known and os.path.lexists(found.python) else None


def installed_environments() -> list[Environment]:
    """Returns all complete environments, by library and version."""
    found = [
        read_environment(mark.parent)
        for mark in (cache_folder() / "environments").glob(f"*/{MARK}")
    ]
    there = [one for one in found if one is not None]
    return sorted(there, key=lambda one: (one.library, release_numbers(one.version), one.arm64))


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


def same_release(one: str, other: str) -> bool:
    """Returns whether two spellings name one release: 2.4 and 2.4.0, 2.13.0 and 2.13.0+cpu."""
    parts = [release_numbers(text) for text in (one, other)]
    width = max(map(len, parts))
    padded = [part + (0,) * (width - len(part)) for part in parts]
    return padded[0] == padded[1]


def release_numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version's release part, for comparing: 2.4.0rc1 is (2, 4, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def printed(*command: str, failing: bool = False) -> str | None:
    """Returns what a command prints; None where it does not start, fails, or takes too long.

    ``failing``: what a command prints that fails is returned too.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if failing or done.returncode == 0 else None
