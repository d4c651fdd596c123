"""Where an interpreter of a Python version is on this machine: this one, PATH, pyenv, uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

UV_OLDEST = (3, 8)
"""The oldest Python that uv provides."""


@cache
def find(version: str) -> Path | None:
    """An interpreter of Python ``version`` (``3.6``) that starts, or None."""
    for candidate in _candidates(version):
        if answers(candidate, version):
            return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    if version == "{}.{}".format(*sys.version_info):
        yield Path(sys.base_prefix, "bin", f"python{version}")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(folder, f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from _newest(pyenv.glob(f"versions/{version}.*/bin/python"))
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or _data_home() / "uv" / "python"
    yield from _newest(Path(uv).glob(f"cpython-{version}.*/bin/python{version}"))


def _newest(found: Iterator[Path]) -> list[Path]:
    return sorted(found, key=lambda path: [int(n) for n in _digits(str(path))], reverse=True)


def _digits(text: str) -> list[str]:
    return "".join(c if c.isdigit() else " " for c in text).split()


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def answers(python: Path, version: str) -> bool:
    """Whether ``python`` starts and says that it is Python ``version``."""
    if not python.is_file():
        return False
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run(
            [str(python), "-E", "-c", code], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.decode().strip() == version


def missing(version: str) -> str:
    """What to say where :func:`find` gives None: what is needed and how people get it."""
    by_uv = tuple(int(part) for part in version.split(".")) >= UV_OLDEST
    ways = ([f"uv python install {version}"] if by_uv else []) + [f"pyenv install {version}"]
    where = "it is not this Python, and not on PATH, in pyenv or in uv"
    return f"it needs Python {version}, and {where}; {' or '.join(ways)}"


def uv() -> str | None:
    """uv's path, or None where there is none that starts."""
    found = shutil.which("uv")
    if found is None:
        return None
    try:
        done = subprocess.run([found, "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found if done.returncode == 0 else None
