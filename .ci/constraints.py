"""Writes constraints.txt: `make constraints` keeps what it can, with UPGRADE=1 it takes the newest.

pip itself resolves, for every Python that install.py names and this machine has, so what is pinned
can be installed by pip and by uv: uv ignores upper bounds of Requires-Python, pip does not. A
version that only some of them can take gets a marker.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import install  # noqa: E402
from probe.targets import installation  # noqa: E402

PROJECT = "probe-numerics"
BLAMED = re.compile(
    r"(?:The user requested \(constraint\)|No matching distribution found for) ([\w.-]+)=="
)


def main() -> None:
    """Resolves for every Python, writes constraints.txt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest of everything")
    kept = {} if parser.parse_args().upgrade else current()
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for minor in install.PYTHONS:
            python = environment(Path(folder) / minor, minor)
            found[minor] = resolved(python, kept, Path(folder))
            kept = {**found[minor], **kept}
    lines = written(found)
    install.CONSTRAINTS.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} lines for Python {', '.join(found)}")


def current() -> dict[str, str]:
    """What constraints.txt pins without a marker."""
    lines = install.CONSTRAINTS.read_text().splitlines()
    plain = (re.match(r"([\w.-]+)==([^\s;#]+) *(?:#|$)", line) for line in lines)
    return {one[1]: one[2] for one in plain if one}


def environment(folder: Path, minor: str) -> Path:
    """The interpreter of an empty environment. Leaves with a message where there is no such."""
    python = installation.find_python(minor)
    if python is None:
        sys.exit(f"constraints: {installation.python_missing(minor)}")
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def resolved(python: Path, kept: dict[str, str], folder: Path) -> dict[str, str]:
    """What pip would install: name to version.

    A version in ``kept`` that pip blames is given up, and it is asked again.
    """
    extras = {"dev", "release", "site", *install.LIBRARIES}
    if not install.cpu_torch(python):
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
    return {canonicalize_name(one["name"]): one["version"] for one in found}


def written(found: dict[str, dict[str, str]]) -> list[str]:
    """The lines of constraints.txt."""
    lines = []
    for name in sorted({name for versions in found.values() for name in versions} - {PROJECT}):
        versions = {minor: one[name].split("+")[0] for minor, one in found.items() if name in one}
        for version in sorted(set(versions.values())):
            some = [minor for minor, other in versions.items() if other == version]
            marker = " or ".join(f'python_version == "{minor}"' for minor in some)
            whole = len(some) == len(versions)
            lines.append(f"{name}=={version}" if whole else f"{name}=={version} ; {marker}")
    return lines


if __name__ == "__main__":
    main()
