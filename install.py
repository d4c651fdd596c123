"""Makes the environment of this checkout: ``make install`` calls it, and so can you.

    python3.11 install.py [--venv .venv] [--extras dev,all] [--anew]

It needs Python alone; where uv is on PATH it is used, because it is faster. What was installed with
which extras is noted: called again it costs nothing until pyproject.toml or constraints.txt change.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# what the extra `all` stands for
LIBRARIES = EXTRAS["all"][0].partition("[")[2].rstrip("]").split(",")
# for which every pinned package has a file
PYTHONS = ("3.11", "3.12", "3.13")


def install(venv: Path, extras: str | None, anew: bool) -> None:
    """Leaves an environment in ``venv`` that has what was asked for. SystemExit says why not."""
    stamp, python = venv / ".installed", venv / "bin" / "python"
    noted = stamp.read_text().split("\n") if stamp.is_file() else ["dev,all", ""]
    chosen = f"{noted[0]},{extras[1:]}" if extras and extras[0] == "+" else extras or noted[0]
    names = {name.strip() for name in chosen.split(",")}
    if unknown := ", ".join(sorted(names - {*EXTRAS})):
        sys.exit(f"install: extras={unknown}: no such extra; use {', '.join(sorted(EXTRAS))}")
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes())
    state, this = [",".join(sorted(names)), digest.hexdigest()], "{}.{}".format(*sys.version_info)
    code = f"import sys; sys.exit({anew} and '{{}}.{{}}'.format(*sys.version_info) != '{this}')"
    if not python.exists() or run([python, "-c", code], quiet=True):
        if this not in PYTHONS:
            todo = f"take {' or '.join(PYTHONS)}: make PYTHON=python{PYTHONS[0]}"
            sys.exit(f"install: python={this}: TensorFlow has no file for it; {todo}")
        print(f"making {venv.name} with Python {this}", flush=True)
        uv = shutil.which("uv")  # Debian's Python can't add pip, and uv can
        command = [uv, "venv", "-q", "--seed", "-p", sys.executable] if uv else []
        if run([*(command or [sys.executable, "-m", "venv"]), "--clear", venv]):
            todo = f"Debian has its venv module in python{this}-venv, or install uv"
            sys.exit(f"install: {venv.name} could not be made; {todo}")
    elif noted == state:
        return
    fill(python, names)
    stamp.write_text("\n".join(state))


def fill(python: Path, names: set[str]) -> None:
    """Installs the checkout with its extras, by uv where there is one, else by pip."""
    options = ["-c", CONSTRAINTS]
    if "all" in names and "torch" not in names:
        # on Linux the common PyTorch brings gigabytes of CUDA: only where EXTRAS names torch
        names, cpu = names - {"all"} | {*LIBRARIES} - {"torch"}, cpu_torch(python)
        options += cpu
        if not cpu:
            print("torch: left out: no build for CPUs is at hand; see pytorch.org, or take CUDA's")
            print("  of some gigabytes: make install EXTRAS=dev,all,torch")
    commands: list[list[Any]] = [[python, "-m", "pip", "install", "--progress-bar", "off"]]
    if uv := shutil.which("uv"):
        commands.insert(0, [uv, "pip", "install", "--python", python])
    for command in commands:
        print(f"installing {', '.join(sorted(names))}", flush=True)
        if not run([*command, *options, "-e", f"{ROOT}[{','.join(sorted(names))}]"]):
            return
    sys.exit("install: take another of these Pythons, fewer libraries (EXTRAS=dev), or try again")


def cpu_torch(python: Path) -> list[str]:
    """The requirement of PyTorch without CUDA; none where pip can't find it."""
    (pin,) = re.findall(r"^torch==[\w.]+", CONSTRAINTS.read_text(), re.MULTILINE)
    exact = pin + ("+cpu" if platform.system() == "Linux" else "")
    command = [python, "-m", "pip", "install", "--dry-run", "--no-deps", "-q", exact]
    return [] if run(command, quiet=True) else [exact]


def run(command: list, quiet: bool = False) -> int:
    """Exit status of a command, which says itself what it does, and what it fails at."""
    # uv does not read pip's settings, and may need the same folder of wheels
    env = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")} | os.environ
    to = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, env=env, stdout=to, stderr=to, check=False).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv")
    parser.add_argument("--extras", help="default: what it has, else dev,all; +site adds")
    parser.add_argument("--anew", action="store_true", help="where another Python made it")
    try:
        install(**vars(parser.parse_args()))
    except KeyboardInterrupt:
        sys.exit("install: interrupted; run it again to go on")
