"""Interpreters of this machine, and environments of them, by uv where it is, else by pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from probe.runtimes import environments
from probe.runtimes.pins import OLD_PIP, Recipe

LIMIT = 1800
"""Seconds that one installer may take."""

WHEELS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
"""Platforms whose arm64 wheels are taken, best first."""

PRIVATE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
"""Variables that would lead an installer elsewhere. Where packages come from is the user's own."""


UV_OLDEST = (3, 8)
"""The oldest Python that uv provides."""


class Failed(Exception):
    """An installation failed: one line. ``printed``: the tail of what the installer printed."""

    def __init__(self, why: str, printed: str = "") -> None:
        self.printed = printed
        super().__init__(why)


@cache
def interpreter(version: str) -> Path | None:
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
    """What to say where :func:`interpreter` gives None: what is needed and how people get it."""
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


def create(folder: Path, python: Path) -> None:
    """Makes an empty environment of an interpreter. Raises Failed."""
    if tool := uv():
        run([tool, "venv", "--quiet", "--python", str(python), str(folder)], "uv venv")
        return
    run([str(python), "-E", "-s", "-m", "venv", str(folder)], "python -m venv")


def install(folder: Path, recipe: Recipe) -> str:
    """Installs a recipe's first choice that can be had; which one it was. Raises Failed."""
    for choice in recipe.choices[:-1]:
        try:
            _install(folder, [choice, *recipe.beside], recipe)
        except Failed as error:
            if not NONE_SUCH.search(error.printed):
                raise
        else:
            return choice
    _install(folder, [recipe.choices[-1], *recipe.beside], recipe)
    return recipe.choices[-1]


NONE_SUCH = re.compile(
    r"[Nn]o matching distribution|no version of|not found in the package|No solu"
)


def _install(folder: Path, requirements: Sequence[str], recipe: Recipe) -> None:
    python, what = str(environments.python_of(folder)), f"installing {requirements[0]}"
    if tool := uv():
        start = [tool, "pip", "install", "--quiet", "--python", python]
        if recipe.library == "torch":
            with suppress(Failed):  # its smaller builds for processors have a server of their own
                return run([*start, "--torch-backend", "cpu", *requirements], what)
        return run([*start, *requirements], what)
    pip = [python, "-E", "-s", "-m", "pip", "install", "--quiet"]
    if own := OLD_PIP.get(recipe.python):
        run([*pip, "--upgrade", *own], f"installing {own[0]}")
    return run([*pip, *requirements, *recipe.pip_beside], what)


def install_for_arm64(into: Path, python: str, requirements: Sequence[str]) -> None:
    """Unpacks arm64 wheels of Python ``python`` into a folder; runs none of them. Raises Failed."""
    what = f"installing {requirements[0]} for arm64"
    if tool := uv():
        where = ["--python-platform", "aarch64-manylinux_2_28", "--python-version", python]
        run(
            [tool, "pip", "install", "--quiet", *where, "--only-binary", ":all:"]
            + ["--target", str(into), *requirements],
            what,
        )
        return
    where = [word for name in WHEELS for word in ("--platform", name)]
    own = [_python_with_pip(), "-m", "pip", "install", "--quiet", "--only-binary=:all:", *where]
    run([*own, "--python-version", python, "--target", str(into), *requirements], what)


def _python_with_pip() -> str:
    """This interpreter, or if its environment has no pip, the one that it was made with."""
    if find_spec("pip") is None:
        base = interpreter("{}.{}".format(*sys.version_info))
        return str(base or sys.executable)
    return sys.executable


def run(command: Sequence[str], what: str, environment: Mapping[str, str] | None = None) -> None:
    """Runs an installer to its end; Failed says in one line what it complained about."""
    given = dict(os.environ if environment is None else environment)
    kept = {name: text for name, text in given.items() if name not in PRIVATE}
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            env=kept,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: not done after {LIMIT} s; try again") from None
    except OSError as error:
        raise Failed(f"{what}: {Path(command[0]).name}: {error.strerror}") from None
    if done.returncode:
        printed = done.stdout.decode("utf-8", "replace")
        raise Failed(f"{what}: {complaint(printed)}", printed[-4000:])


FULL = "No space left on device"


def complaint(printed: str) -> str:
    """What an installer's output says went wrong, in one line of at most 300 characters."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    lines = [line.strip(" \t│╰─▶×├╭") for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:", "WARN"))]
    full = [FULL] if FULL in text else []
    errors = [line for line in lines if re.match(r"(?i)(error|E:|fatal|cause:)", line)]
    said = full[:1] or errors[:2] or lines[-3:] or ["it failed and said nothing"]
    return " ".join(said)[:300]
