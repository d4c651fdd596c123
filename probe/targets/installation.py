"""Installs what a target needs to run here: its release, or a root folder for an emulated arm64.

An environment is made in place and marked when the target has answered through the worker; what
fails on the way is taken away, and what a killed process left is taken away by the next try.
Read ``install_target``, then ``release_recipe`` (which Python, which pins), then the installers.

A row of ``RELEASES`` holds from its version on, up to the next row of its library. Found by
installing 35 releases of TensorFlow (2026-11): newer uploads of their dependencies broke what the
pins hold back.

For arm64 it makes a root folder (Python and its libraries) from Debian or Ubuntu packages: apt
works on a state, a cache and a configuration of its own, all inside a folder in the user's cache,
and knows arm64 only; ``dpkg -x`` unpacks. The machine's own packages are neither read nor changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.targets import backends, environments, machine, target
from probe.targets.environments import Environment, Runtime, printed, release_numbers
from probe.targets.launch import TIME_LIMIT, WORKER, Session
from probe.targets.progress import Tell
from probe.targets.target import Target


@dataclass(frozen=True)
class Pins:
    """Needs of the releases from ``since`` on: Python ``python``, and ``beside``, requirements."""

    since: str
    python: str
    beside: tuple[str, ...] = ()


# By the name of a target, oldest first.
RELEASES: dict[str, tuple[Pins, ...]] = {
    "tensorflow": (
        Pins("0.12", "3.6"),
        Pins("1.13", "3.7", ("protobuf<3.21",)),
        Pins("2.10", "3.7"),
        Pins("2.12", "3.11"),
        Pins("2.14", "3.11", ("numpy<2",)),
        Pins("2.15", "3.11"),
    ),
    "keras": (Pins("3.0", "3.11", ("tensorflow-cpu",)),),
    "torch": (
        Pins("0.4", "3.6", ("numpy",)),
        Pins("1.0", "3.7", ("numpy",)),
        Pins("2.0", "3.11", ("numpy<2",)),
        Pins("2.3", "3.11", ("numpy",)),
    ),
    "jax": (Pins("0.4", "3.11", ("numpy<2", "scipy<1.13")), Pins("0.4.30", "3.11")),
    "onnxruntime": (
        Pins("1.2", "3.7", ("onnx<1.13", "protobuf<3.21")),
        Pins("1.15", "3.11", ("onnx<1.17", "numpy<2")),
        Pins("1.19", "3.11", ("onnx",)),
    ),
    "litert": (Pins("1.0", "3.11"),),
    "openblas": (Pins("0.3.23", "3.11", ("numpy",)),),
}

# Distributions to try, each with the version from which it exists (a patch level: that one only).
#
# ``tensorflow-cpu`` is half as large as ``tensorflow``, and the same on a processor.
DISTRIBUTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "tensorflow": (("tensorflow-cpu", "1.15.0"), ("tensorflow-cpu", "2.1"), ("tensorflow", "0")),
    "jax": (("jax[cpu]", "0"),),
    "litert": (("ai-edge-litert", "0"),),
    "openblas": (("scipy-openblas64", "0"),),
}

# Releases to search for a change, one a minor version: patch releases seldom change a kernel.
RELEASED: dict[str, tuple[str, ...]] = {
    library: tuple(releases.split())
    for library, releases in {
        "tensorflow": (
            "0.12.1 1.0.0 1.1.0 1.2.1 1.3.0 1.4.0 1.5.0 1.6.0 1.7.0 1.8.0 1.9.0 1.10.0 1.11.0 "
            "1.12.0 1.13.1 1.14.0 1.15.0 2.0.0 2.1.0 2.2.0 2.3.0 2.4.0 2.5.0 2.6.0 2.7.0 2.8.0 "
            "2.9.0 2.10.0 2.11.0 2.12.0 2.13.0 2.14.0 2.15.0 2.16.1 2.17.0 2.18.0 2.19.0 2.20.0 "
            "2.21.0"
        ),
        "torch": (
            "1.0.0 1.1.0 1.2.0 1.3.0 1.4.0 1.5.0 1.6.0 1.7.0 1.8.0 1.9.0 1.10.0 1.11.0 1.12.0 "
            "1.13.0 2.0.0 2.1.0 2.2.0 2.3.0 2.4.0 2.5.0 2.6.0 2.7.0 2.8.0 2.9.0 2.10.0 2.11.0 "
            "2.12.0 2.13.0"
        ),
        "onnxruntime": (
            "1.2.0 1.3.0 1.4.0 1.5.1 1.6.0 1.7.0 1.8.0 1.9.0 1.10.0 1.11.0 1.12.0 1.13.1 1.14.0 "
            "1.15.0 1.16.0 1.17.0 1.18.0 1.19.0 1.20.0 1.21.0 1.22.0 1.23.0 1.24.1 1.25.0 1.26.0 "
            "1.27.0 1.28.0 1.29.0 1.30.0 1.31.0"
        ),
        "openblas": (
            "0.3.29.0.0 0.3.30.0.8 0.3.31.188.0 0.3.33.0.0 0.3.33.201.0 0.3.34.0.0 0.3.34.237.2 "
            "0.3.34.481.3"
        ),
    }.items()
}

# What pip itself needs on a Python before it can install anything.
OLD_PIP = {"3.6": ("pip==21.3.1",)}

# What pip needs beside TensorFlow on a Python; uv resolves these by itself.
PIP_BESIDE = {
    "3.6": tuple("numpy<1.17 protobuf<3.18 markdown<3.3 werkzeug<2 wheel<0.38 absl-py<1.3".split())
}


@dataclass(frozen=True)
class Recipe:
    """How a release is installed. ``choices``: requirements of which the first that works counts.

    ``pip_beside``: what pip needs beside them, and uv doesn't.
    """

    library: str
    version: str
    python: str
    choices: tuple[str, ...]
    beside: tuple[str, ...]
    pip_beside: tuple[str, ...]


def release_recipe(library: str, version: str, arm64: bool = False) -> Recipe:
    """The recipe of a release. ``arm64``: wheels of that processor. InputError: not known."""
    rows = RELEASES.get(library, ())
    place = f"{library}=={version}"
    if not rows:
        todo = f"there are recipes for {', '.join(RELEASES)}"
        raise InputError("target", place, f"no recipe installs releases of {library}", todo)
    fitting = [row for row in rows if release_numbers(row.since) <= release_numbers(version)]
    if not fitting:
        why = f"releases before {rows[0].since} can't be installed"
        raise InputError("target", place, why, "take a later one")
    pins, choices = fitting[-1], []
    for name, since in DISTRIBUTIONS.get(library, ((library, "0"),)):
        later = release_numbers(since) <= release_numbers(version)
        fits = version == since if since.count(".") == 2 else later
        if fits and not (arm64 and name == "tensorflow-cpu"):
            choices.append(f"{name}=={version}")
    pip_beside = PIP_BESIDE.get(pins.python, ()) if library == "tensorflow" else ()
    return Recipe(library, version, pins.python, tuple(choices), pins.beside, pip_beside)


# Seconds that one installer may take.
LIMIT = 1800

# Platforms whose arm64 wheels are taken, best first. pip matches a tag exactly, where uv takes all
# up to one: TensorFlow 2.21's wheel is of 2_27, and wasn't found under 2_28.
NEWEST_GLIBC = 39
WHEELS = (
    *(f"manylinux_2_{minor}_aarch64" for minor in range(NEWEST_GLIBC, 16, -1)),
    "manylinux2014_aarch64",
)

# Variables that would lead an installer elsewhere. Where packages come from is the user's own.
PRIVATE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")


# The oldest Python that uv provides.
UV_OLDEST = (3, 8)


class Failed(Exception):
    """An installation failed: one line. ``printed``: the tail of what the installer printed."""

    def __init__(self, why: str, printed: str = "") -> None:
        self.printed = printed
        super().__init__(why)


@cache
def find_python(version: str) -> Path | None:
    """An interpreter of Python ``version`` (``3.6``) that starts, or None."""
    name = f"python{version}"
    this_python = [Path(sys.base_prefix, "bin", name)] * (
        version == "{}.{}".format(*sys.version_info)
    )
    on_path = [Path(folder, name) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    by_uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    # of pyenv's and uv's the newest patch release first
    candidates = (
        *(*this_python, *on_path),
        *_newest(pyenv.glob(f"versions/{version}.*/bin/python")),
        *_newest(by_uv.glob(f"cpython-{version}.*/bin/{name}")),
    )
    return next((path for path in candidates if starts_as(path, version)), None)


def _newest(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [*map(int, re.findall(r"\d+", str(path)))], reverse=True)


def starts_as(python: Path, version: str) -> bool:
    if not python.is_file():
        return False
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    return (printed(str(python), "-E", "-c", code) or "").strip() == version


def python_missing(version: str) -> str:
    """What to say where :func:`find_python` gives None: what is needed and how people get it."""
    by_uv = tuple(int(part) for part in version.split(".")) >= UV_OLDEST
    ways = ([f"uv python install {version}"] if by_uv else []) + [f"pyenv install {version}"]
    where = "it is not this Python, and was not found on PATH, in pyenv or in uv"
    return f"it needs Python {version}, and {where}; {' or '.join(ways)}"


def uv() -> str | None:
    """uv's path, or None where there is none that starts."""
    tool = shutil.which("uv")
    return tool if tool and printed(tool, "--version") is not None else None


def create_environment(folder: Path, python: Path) -> None:
    """Makes an empty environment of an interpreter. Raises Failed."""
    if tool := uv():
        run_installer([tool, "venv", "--quiet", "--python", str(python), str(folder)], "uv venv")
        return
    run_installer([str(python), "-E", "-s", "-m", "venv", str(folder)], "python -m venv")


def install_release(folder: Path, recipe: Recipe) -> str:
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
                return run_installer([*start, "--torch-backend", "cpu", *requirements], what)
        return run_installer([*start, *requirements], what)
    pip = [python, "-E", "-s", "-m", "pip", "install", "--quiet"]
    if pip_before := OLD_PIP.get(recipe.python):
        run_installer([*pip, "--upgrade", *pip_before], f"installing {pip_before[0]}")
    return run_installer([*pip, *requirements, *recipe.pip_beside], what)


def install_for_arm64(into: Path, python: str, requirements: Sequence[str]) -> None:
    """Unpacks arm64 wheels of Python ``python`` into a folder; runs none of them. Raises Failed."""
    what = f"installing {requirements[0]} for arm64"
    if tool := uv():
        newest = f"aarch64-manylinux_2_{NEWEST_GLIBC}"
        where = ["--python-platform", newest, "--python-version", python]
        run_installer(
            [tool, "pip", "install", "--quiet", *where, "--only-binary", ":all:"]
            + ["--target", str(into), *requirements],
            what,
        )
        return
    where = [word for name in WHEELS for word in ("--platform", name)]
    interpreter = sys.executable
    if find_spec("pip") is None:  # an environment without pip: the Python that it was made with
        interpreter = str(find_python("{}.{}".format(*sys.version_info)) or sys.executable)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *where]
    run_installer([*pip, "--python-version", python, "--target", str(into), *requirements], what)


def own_pip() -> list[str]:
    """This interpreter's installer; environments that uv made have none, and uv runs one for them.
    Raises Failed."""
    pip = ["-m", "pip", "--disable-pip-version-check"]
    if find_spec("pip") is not None:
        return [sys.executable, *pip]
    if tool := uv():
        run = [tool, "run", "--quiet", "--no-project", "--with", "pip"]
        return [*run, "--python", sys.executable, "python", *pip]
    raise Failed("neither pip nor uv is here; run python -m ensurepip, or install uv")


def in_front(wanted: Mapping[str, str], install: bool, tell: Callable[[str], None]) -> Path | None:
    """A folder of the cache with releases that go in front of this interpreter's own path;
    None: they aren't there, and are not to be installed.

    ``wanted``: requirements by their modules. They are installed alone first: the rest of the
    environment stays what it is; where the modules can't be imported so, with what they depend on.
    Raises Failed.
    """
    slug = "_".join(wanted.values()).replace("==", "-").replace("+", "-")
    folder = environments.cache_folder() / "overlays" / "{}_{}.{}".format(slug, *sys.version_info)
    with environments.locked(folder):
        if (folder / DONE).exists():
            return folder
        for more in (["--no-deps"], []) if install else ():
            with tempfile.TemporaryDirectory(prefix="probe-", dir=folder.parent) as partial:
                tell(f"installing {', '.join(wanted.values())}")
                code = f"import sys; sys.path.insert(0, {partial!r}); import {', '.join(wanted)}"
                words = [*own_pip(), "install", "-q", "--target", partial, *more, *wanted.values()]
                try:
                    run_installer(words, f"installing {', '.join(wanted.values())}")
                    run_installer([sys.executable, "-c", code], f"importing {', '.join(wanted)}")
                except Failed:
                    if more:
                        continue
                    raise
                Path(partial).rename(folder)
                Path(partial).mkdir()  # for the context manager to remove
                (folder / DONE).touch()
                return folder
    return None


# The last file of such a folder.
DONE = ".complete"


# Not ``importlib.util``'s: that asks setuptools' hook, which warns where distutils is imported.
find_spec = PathFinder.find_spec


def run_installer(
    command: Sequence[str], what: str, environment: Mapping[str, str] | None = None
) -> None:
    """Runs an installer to its end; Failed says in one line what it complained about."""
    variables = os.environ if environment is None else environment
    kept_variables = {name: text for name, text in variables.items() if name not in PRIVATE}
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            env=kept_variables,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{what}: not done after {LIMIT} s; try again") from None
    except OSError as error:
        raise Failed(f"{what}: {Path(command[0]).name}: {error.strerror}") from None
    if done.returncode:
        printed = done.stdout.decode("utf-8", "replace")
        raise Failed(f"{what}: {complaint(printed)}", printed[-4000:])


def complaint(printed: str) -> str:
    """What an installer's output says went wrong, in one line of at most 300 characters."""
    # uv colours its lines and draws the tree of causes before them
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    lines = [line.strip(" \t│╰─▶×├╭") for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:", "WARN"))]
    full = "No space left on device"
    errors = [line for line in lines if re.match(r"(?i)(error|E:|fatal|cause:)", line)]
    said = errors[:2] or lines[-3:] or ["it failed without a message"]
    return full if full in text else " ".join(said)[:300]


# Of Debian and Ubuntu; with what they need about 40, 16 MB to fetch, 80 MB unpacked.
SYSROOT_PACKAGES = ("python3", "libstdc++6")


def sysroot_folder() -> Path:
    return environments.cache_folder() / "sysroots" / "arm64"


def sysroot_python(root: Path) -> Path | None:
    """The newest ``usr/bin/python3.N`` of a root folder, or None."""
    pythons = [path for path in root.glob("usr/bin/python3.*") if path.name[9:].isdigit()]
    return max(pythons, key=lambda path: int(path.name[9:]), default=None)


def provide_sysroot(folder: Path | None = None) -> Path:
    """A root folder: ``given`` if it has a Python, else the one in the cache, made when missing.

    Raises Failed.
    """
    if folder is not None:
        if sysroot_python(folder) is None:
            raise Failed(f"{folder} has no usr/bin/python3.N; give an arm64 root folder")
        return folder.resolve()
    root = sysroot_folder()
    with environments.locked(root):
        if not (root / "complete").exists():
            try:
                _make_sysroot(root)
            except BaseException:
                shutil.rmtree(root, ignore_errors=True)
                raise
    return root


def _make_sysroot(root: Path) -> None:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            why = f"an arm64 root folder is made by {program}, which this system does not have"
            raise Failed(f"{why}; give one with --sysroot")
    shutil.rmtree(root, ignore_errors=True)
    # everything that apt writes is in ``work``; its sources are the host's
    work = root / "apt"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / "state" / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Dir::State": str(work / "state"),
        "Dir::State::status": str(work / "state" / "status"),
        "Dir::Cache": str(work / "cache"),
        "Dir::Log": str(work / "state"),
    }
    lines = [f'{name} "{value}";' for name, value in settings.items()]
    configuration = work / "apt.conf"
    configuration.write_text("\n".join([*lines, 'APT::Architectures { "arm64"; };', ""]))
    environment = dict(os.environ, APT_CONFIG=str(configuration), LC_ALL="C.UTF-8")
    run_installer(["apt-get", "-q", "update"], "apt-get update", environment)
    fetch = ["apt-get", "-q", "-y", "--download-only", "install", *SYSROOT_PACKAGES]
    what = "fetching arm64 packages (or give a root folder with --sysroot)"
    run_installer(fetch, what, environment)
    for archive in sorted((work / "cache" / "archives").glob("*.deb")):
        run_installer(["dpkg", "-x", str(archive), str(root)], f"unpacking {archive.name}")
    shutil.rmtree(work, ignore_errors=True)
    if sysroot_python(root) is None:
        raise Failed("the arm64 packages hold no usr/bin/python3.N; give a root with --sysroot")
    (root / "complete").touch()


def make_arm64_environment(root: Path, into: Path) -> str:
    """Makes ``into`` an environment of a root folder's Python; its version, such as ``3.11``.

    No program of it is run: a ``pyvenv.cfg`` beside ``bin/python`` is what makes an environment.
    """
    interpreter = sysroot_python(root)
    if interpreter is None:
        raise Failed("the root folder has no usr/bin/python3.N; remove it and install again")
    (into / "bin").mkdir(parents=True)
    environments.python_of(into).symlink_to(interpreter)
    (into / environments.LINK).symlink_to(root)
    (into / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    site_packages(into, interpreter.name).mkdir(parents=True)
    return interpreter.name.removeprefix("python")


def site_packages(folder: Path, name: str) -> Path:
    return folder / "lib" / name / "site-packages"


STEPS = 3
# What a new environment has to compute, 7 everywhere: the first one that its library has.
CHECKS = (
    Case(op="conv2d", kernel="1x3", length=8, operands="ones", weights=(1.0, 2.0, 4.0)),
    Case(op="matmul", in_channels=3, length=8, operands="ones", weights=(1.0, 2.0, 4.0)),
)


@dataclass(frozen=True)
class Installed:
    """What was done. ``environment`` is None where the target uses this interpreter."""

    target: Target
    environment: Environment | None
    facts: dict[str, Any]
    seconds: float
    already: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.text,
            "environment": self.environment.name if self.environment else None,
            "already": self.already,
            "seconds": self.seconds,
            **self.facts,
        }


def install_target(where: Target, tell: Tell | None = None, root: Path | None = None) -> Installed:
    """Provides what ``where`` needs, and checks that it answers.

    ``root``: an arm64 root folder to use instead of one made of Debian  ``tell`` gets
    steps done, steps in all, and what is being done. Costs minutes at most, 0.2 to 1.5 GB of disk.
    InputError: nothing is to be installed for such a target. TargetError ``unavailable``: it
    failed; the message says why in one line.
    """
    started = time.monotonic()
    report = tell or (lambda done, total, text: None)
    try:
        environment, facts, already = _provide(where, report, root)
    except Failed as error:
        why = machine.publishable(str(error))
        raise TargetError(where.text, "unavailable", why, error.printed) from None
    except OSError as error:
        why = f"its folder in the cache can't be used: {error.strerror or error}"
        why += "; PROBE_CACHE can name a different cache"
        raise TargetError(where.text, "unavailable", why) from None
    return Installed(where, environment, facts, round(time.monotonic() - started, 1), already)


def _provide(
    where: Target, tell: Tell, root: Path | None
) -> tuple[Environment | None, dict[str, Any], bool]:
    device = target.emulated_processor(where)
    if device is not None and (why := environments.emulation_missing(device)):
        raise Failed(why)
    version_here = target.installed_version(backends.get(where.name))
    arm64 = device == "arm64"
    if not arm64 and where.version in (None, version_here):
        if where.device == "cpu" and where.version is None:
            todo = f"write which, such as {where.name}=={version_here or '1.2.1'}"
            raise InputError("target", where.text, "it does not name a release to install", todo)
        if why := target.why_unavailable(where):
            raise Failed(why)
        tell(2, STEPS, f"asking {where.text}")
        return None, _answers(where, target.target_runtime(where)), device is None
    version = where.version or version_here
    if version is None:
        todo = f"name one, {where.name}==1.2.3@arm64"
        raise InputError(
            "target", where.text, f"no {where.name} is here to take the version of", todo
        )
    recipe = release_recipe(where.name, version, arm64)
    folder = environments.folder_of(where.name, version, arm64)
    with environments.locked(folder):
        environment = environments.find_environment(where.name, version, arm64)
        if environment is None:
            return *_make_environment(folder, recipe, arm64, root, tell), False
    if device is None or arm64:
        return environment, environment.facts, True
    tell(2, STEPS, f"asking {where.text}")
    return environment, _answers(where, target.target_runtime(where)), True


def _make_environment(
    folder: Path, recipe: Recipe, arm64: bool, root: Path | None, tell: Tell
) -> tuple[Environment, dict[str, Any]]:
    """A new environment; on any failure none."""
    environments.remove_environment(folder)
    named = f"{recipe.library}=={recipe.version}"
    try:
        tell(0, STEPS, "an arm64 root folder" if arm64 else f"Python {recipe.python}")
        if arm64:
            release = make_arm64_environment(provide_sysroot(root), folder)
            tell(1, STEPS, f"{named} for arm64")
            install_for_arm64(
                site_packages(folder, f"python{release}"),
                release,
                [recipe.choices[-1], *recipe.beside],
            )
        else:
            python = find_python(recipe.python)
            if python is None:
                raise Failed(python_missing(recipe.python))
            folder.parent.mkdir(parents=True, exist_ok=True)
            create_environment(folder, python)
            tell(1, STEPS, named)
            install_release(folder, recipe)
        tell(2, STEPS, f"asking {named}")
        ran = environments.in_folder(folder, arm64)
        facts = _answers(Target(recipe.library, recipe.version), ran)
        if not environments.same_release(str(facts.get("library_version")), recipe.version):
            why = f"{facts.get('library_version')} answers in its place"
            raise Failed(f"{named} was installed, but {why}")
        environments.complete(folder, recipe.library, recipe.version, arm64, facts)
    # Ctrl-C too leaves nothing half made
    except BaseException:
        environments.remove_environment(folder)
        raise
    tell(STEPS, STEPS, named)
    environment = environments.read_environment(folder)
    assert environment is not None
    return environment, facts


def _answers(where: Target, ran: Runtime) -> dict[str, Any]:
    """Starts the worker there, which computes one of ``CHECKS``; returns the facts it reports."""
    command = (*ran.command, *WORKER)
    limit = TIME_LIMIT * ran.slower
    try:
        with Session(where, limit, limit, command) as session:
            for check in CHECKS:
                x, w, _ = check.operands()
                try:
                    y = session.request({"do": "run", "spec": check.spec()}, {"x": x, "w": w})[1]
                    break
                except TargetError as error:
                    if error.kind != "unsupported" or check is CHECKS[-1]:
                        raise
            facts = dict(session.facts)
    except TargetError as error:
        raise Failed(f"it was installed, but does not answer: {error.why}", error.stderr) from None
    if not np.array_equal(y["y"], np.full(check.output_shape(), 7.0, np.float32)):
        raise Failed("it was installed, but computes 1 + 2 + 4 wrongly")
    names = ("library", "library_version", "python_version", "numpy_version")
    return {name: facts.get(name) for name in names}


def is_there(where: Target) -> bool:
    return target.why_unavailable(where) is None


def remove_installed(where: Target) -> Environment:
    """Takes a release's environment away. InputError where there is none."""
    version_here = target.installed_version(backends.get(where.name))
    version, arm64 = where.version or version_here or "", where.device == "arm64"
    environment = environments.find_environment(where.name, version, arm64)
    if environment is None:
        targets_here = (
            ", ".join(installed.target for installed in environments.installed_environments())
            or "none"
        )
        raise InputError("target", where.text, "it is not installed", f"there are: {targets_here}")
    with environments.locked(environment.folder):
        environments.remove_environment(environment.folder)
    return environment
