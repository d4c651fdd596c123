"""Writes constraints.txt: `make constraints` keeps what it can, with UPGRADE=1 it takes the newest.

pip itself resolves, for every Python that install.py names and this machine has, so what is pinned
can be installed by pip and by uv: uv ignores upper bounds of Requires-Python, pip does not. A
version that only some of them can take gets a marker. Behind every line stand megabytes to
download and on disk (of the files for Linux on x86-64) and the extras that need it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import install  # noqa: E402
from probe.runtimes import packages  # noqa: E402

PROJECT = "probe-numerics"
BLAMED = re.compile(
    r"(?:The user requested \(constraint\)|No matching distribution found for) ([\w.-]+)=="
)


def main() -> None:
    """Resolves for every Python, measures every file, writes constraints.txt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest of everything")
    kept = {} if parser.parse_args().upgrade else current()
    found: dict[str, dict[str, str]] = {}
    extras: dict[str, set[str]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for minor in minors():
            python = environment(Path(folder) / minor, minor)
            packages = resolved(python, kept, Path(folder))
            kept = {**{name: one["version"] for name, one in packages.items()}, **kept}
            found[minor] = {name: one["version"] for name, one in packages.items()}
            for extra, names in needed(packages, minor).items():
                for name in names:
                    extras.setdefault(name, set()).add(extra)
            new = {n: v for n, v in found[minor].items() if f"{n}=={v}" not in sizes}
            sizes.update(measured(python, new, Path(folder) / f"files-{minor}"))
    lines = written(found, extras, sizes)
    install.CONSTRAINTS.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} lines for Python {', '.join(found)}")


def current() -> dict[str, str]:
    """What constraints.txt pins without a marker."""
    lines = install.CONSTRAINTS.read_text().splitlines()
    plain = (re.match(r"([\w.-]+)==([^\s;#]+) *(?:#|$)", line) for line in lines)
    return {one[1]: one[2] for one in plain if one}


def minors() -> list[str]:
    """Every minor version that install.py names."""
    (major, first), (_, last) = install.PYTHONS
    return [f"{major}.{minor}" for minor in range(first, last + 1)]


def environment(folder: Path, minor: str) -> Path:
    """The interpreter of an empty environment. Leaves with a message where there is no such."""
    python = packages.find_python(minor)
    if python is None:
        sys.exit(f"constraints: {packages.python_missing(minor)}")
    subprocess.run([python, "-m", "venv", folder], check=True)
    return install.interpreter(folder)


def resolved(python: Path, kept: dict[str, str], folder: Path) -> dict[str, dict[str, Any]]:
    """What pip would install: name to version and requirements.

    A version in ``kept`` that pip blames is given up, and it is asked again.
    """
    extras = {"dev", "site", *install.LIBRARIES}
    if not install.has_cpu_build(python):
        extras.discard("torch")
    report, pins = folder / "report.json", folder / "kept.txt"
    while True:
        pins.write_text("".join(f"{name}=={version}\n" for name, version in kept.items()))
        command = [python, "-m", "pip", "install", "--dry-run", "--report", report]
        options = ["-c", pins, f"{ROOT}[{','.join(sorted(extras))}]"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if not done.returncode:
            break
        printed = done.stdout + done.stderr
        blamed = {canonicalize_name(name) for name in BLAMED.findall(printed)} & {*kept}
        if not blamed:
            sys.exit(printed)
        print(f"{python.parent.parent.name}: gives up {', '.join(sorted(blamed))}", flush=True)
        for name in blamed:
            del kept[name]
    found = (one["metadata"] for one in json.loads(report.read_text())["install"])
    return {canonicalize_name(one["name"]): one for one in found}


def needed(packages: dict[str, dict[str, Any]], minor: str) -> dict[str, set[str]]:
    """By extra (``base``: none) the packages that are installed for it."""
    found: dict[str, set[str]] = {}
    for extra in ("base", "dev", "site", *install.LIBRARIES):
        seen = set(todo := [(PROJECT, extra)])
        while todo:
            name, wanted = todo.pop()
            new = {one for one in requirements(packages[name], wanted, minor) if one[0] in packages}
            todo.extend(new - seen)
            seen |= new
        found[extra] = {name for name, _ in seen} - {PROJECT}
        found[extra] -= found["base"] if extra != "base" else set()
    return found


def requirements(package: dict[str, Any], extra: str, minor: str) -> Iterator[tuple[str, str]]:
    """(package, extra) that a package with an extra asks for directly."""
    where = {"python_version": minor, "python_full_version": f"{minor}.0", "extra": extra}
    for text in package.get("requires_dist", []):
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate(where):
            yield from ((canonicalize_name(one.name), more) for more in ("", *one.extras))


def measured(python: Path, pins: dict[str, str], folder: Path) -> dict[str, tuple[int, int]]:
    """``name==version`` to bytes to download and on disk, read off the files themselves.

    Compiled modules take about what their sources do.
    """
    wanted = [f"{name}=={version}" for name, version in pins.items() if name != PROJECT]
    if not wanted:
        return {}
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, *wanted], check=True, stderr=subprocess.DEVNULL)
    sizes = {}
    for file in folder.iterdir():
        name, version = file.name.removesuffix(".tar.gz").split("-")[:2]
        packed = file.stat().st_size
        unpacked = 3 * packed
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as archive:
                files = archive.infolist()
                compiled = [one for one in files if one.filename.endswith(".py")]
                unpacked = sum(one.file_size for one in [*files, *compiled])
        sizes[f"{canonicalize_name(name)}=={version.split('+')[0]}"] = (packed, unpacked)
        file.unlink()
    return sizes


def written(
    found: dict[str, dict[str, str]],
    extras: dict[str, set[str]],
    sizes: dict[str, tuple[int, int]],
) -> list[str]:
    """The lines of constraints.txt."""
    lines = []
    for name in sorted({name for one in found.values() for name in one} - {PROJECT}):
        versions = {minor: one[name].split("+")[0] for minor, one in found.items() if name in one}
        for version in sorted(set(versions.values())):
            packed, unpacked = sizes[f"{name}=={version}"]
            mine = [minor for minor, one in versions.items() if one == version]
            marker = ""
            if len(mine) < len(versions):
                marker = " ; " + " or ".join(f'python_version == "{minor}"' for minor in mine)
            needs = ", ".join(sorted(extras[name]))
            megabytes = [f"{max(size / 1e6, 0.01):.2f} MB" for size in (packed, unpacked)]
            size = f"{megabytes[0]}, {megabytes[1]} on disk"
            lines.append(f"{name}=={version}{marker}  # {size}: {needs}")
    return lines


if __name__ == "__main__":
    main()
