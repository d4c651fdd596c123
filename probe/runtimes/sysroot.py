"""Makes an arm64 root folder (Python and its libraries) from Debian or Ubuntu packages.

apt works on a state, a cache and a configuration of its own, all inside a folder in the user's
cache, and knows arm64 only; ``dpkg -x`` unpacks. The machine's own packages are neither read nor
changed. About 40 packages, 16 MB to fetch, 80 MB unpacked.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from probe.runtimes import environments, packages
from probe.runtimes.packages import Failed, run_installer

PACKAGES = ("python3", "libstdc++6")
LINK = "sysroot"


def folder() -> Path:
    """Returns where the root folder of this machine's user is."""
    return environments.cache_folder() / "sysroots" / "arm64"


def python(root: Path) -> Path | None:
    """Returns the newest ``usr/bin/python3.N`` of a root folder, or None."""
    found = [path for path in root.glob("usr/bin/python3.*") if path.name[9:].isdigit()]
    return max(found, key=lambda path: int(path.name[9:]), default=None)


def of_environment(folder: Path) -> Path:
    """Returns the root folder that an arm64 environment was made with."""
    return Path(os.readlink(folder / LINK)) if (folder / LINK).is_symlink() else folder / LINK


def provide(given: Path | None = None) -> Path:
    """A root folder: ``given`` if it has a Python, else the one in the cache, made when missing.

    Raises Failed.
    """
    if given is not None:
        if python(given) is None:
            raise Failed(f"{given} has no usr/bin/python3.N; give an arm64 root folder")
        return given.resolve()
    root = folder()
    with environments.locked(root):
        if not (root / "complete").exists():
            try:
                _make_root(root)
            except BaseException:
                shutil.rmtree(root, ignore_errors=True)
                raise
    return root


def _make_root(root: Path) -> None:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            why = f"an arm64 root folder is made by {program}, which this system does not have"
            raise Failed(f"{why}; give one with --sysroot")
    shutil.rmtree(root, ignore_errors=True)
    work = root / "apt"
    environment = dict(os.environ, APT_CONFIG=str(_configuration(work)), LC_ALL="C.UTF-8")
    run_installer(["apt-get", "-q", "update"], "apt-get update", environment)
    fetch = ["apt-get", "-q", "-y", "--download-only", "install", *PACKAGES]
    run_installer(
        fetch, "fetching arm64 packages (or give a root folder with --sysroot)", environment
    )
    for archive in sorted((work / "cache" / "archives").glob("*.deb")):
        run_installer(["dpkg", "-x", str(archive), str(root)], f"unpacking {archive.name}")
    shutil.rmtree(work, ignore_errors=True)
    if python(root) is None:
        raise Failed("the arm64 packages hold no usr/bin/python3.N; give a root with --sysroot")
    (root / "complete").touch()


def _configuration(work: Path) -> Path:
    """apt's configuration: everything that it writes is in ``work``, its sources are the host's."""
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
    file = work / "apt.conf"
    file.write_text("\n".join([*lines, 'APT::Architectures { "arm64"; };', ""]))
    return file


def make_environment(root: Path, into: Path) -> str:
    """Makes ``into`` an environment of a root folder's Python; its version, such as ``3.11``.

    No program of it is run: a ``pyvenv.cfg`` beside ``bin/python`` is what makes an environment.
    """
    interpreter = python(root)
    if interpreter is None:
        raise Failed("the root folder has no usr/bin/python3.N; remove it and install again")
    (into / "bin").mkdir(parents=True)
    environments.python_of(into).symlink_to(interpreter)
    (into / LINK).symlink_to(root)
    (into / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    site_packages(into, interpreter.name).mkdir(parents=True)
    return interpreter.name.removeprefix("python")


def site_packages(folder: Path, name: str) -> Path:
    """Returns where an environment of the Python called ``name`` keeps its libraries."""
    return folder / "lib" / name / "site-packages"


def install_wheels(folder: Path, version: str, requirements: list[str]) -> None:
    """Puts arm64 wheels into an environment made by :func:`make_environment`. Raises Failed."""
    packages.install_for_arm64(site_packages(folder, f"python{version}"), version, requirements)
