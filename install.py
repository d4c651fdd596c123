"""Makes the environment of this checkout: ``make install`` calls it, and so can you.

    python3.11 install.py [--venv .venv] [--extras dev,all]

It needs Python alone: no pip to be upgraded, no uv. Where uv is on PATH it is used, because it is
faster; both install the versions of constraints.txt. It says first how many packages and bytes
will come, then at least every few seconds how far it is, and where an install fails, which package
it was and what to do. What was installed with which extras is noted in the environment, so calling
it again costs nothing until pyproject.toml or constraints.txt change.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = "dev,all"
"""Default: every library that can be a target, and what the tests need."""

_ALL = re.search(r"^all = .*\[(.*)\]\"\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
LIBRARIES = tuple(_ALL[1].split(",")) if _ALL else ()
"""What the extra ``all`` stands for; pyproject.toml says which packages each of them is."""

PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest Python for which every pinned package has a file."""

SCRATCH = "downloads"
"""Where an installer puts what it has not installed yet, in the environment; taken away again."""

EVERY = 3.0
"""Seconds between two lines of progress."""


class Failure(Exception):
    """One line: what failed, and what to do."""


class Pin(NamedTuple):
    """A line of constraints.txt; bytes are those of Linux on x86-64."""

    name: str
    version: str
    download: int
    disk: int
    extras: frozenset[str]
    """The extras that need it; ``base`` is the package without any."""


def pins() -> list[Pin]:
    """What constraints.txt pins, with the sizes and extras that its comments give."""
    line = re.compile(
        r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)[^#]*"
        r"(?:# (?P<download>[\d.]+) MB, (?P<disk>[\d.]+) MB on disk: (?P<extras>[\w, ]+))?"
    )
    found = filter(None, map(line.match, CONSTRAINTS.read_text().splitlines()))
    return [
        Pin(
            one["name"],
            one["version"],
            round(1e6 * float(one["download"] or 0)),
            round(1e6 * float(one["disk"] or 0)),
            frozenset((one["extras"] or "base").split(", ")),
        )
        for one in found
    ]


def main() -> int:
    """The exit status: 0 where the environment is there, 1 where it could not be made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv")
    parser.add_argument("--extras", help=f"default: what it has already, else {EXTRAS}; +site adds")
    parser.add_argument(
        "--anew", action="store_true", help="make it anew where another Python made it"
    )
    given = parser.parse_args()
    try:
        install(given.venv, given.extras, given.anew)
    except Failure as failure:
        print(f"install: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("install: interrupted; run it again to go on", file=sys.stderr)
        return 130
    return 0


def install(venv: Path, extras: str | None, anew: bool) -> None:
    """Leaves an environment in ``venv`` that has what was asked for. Failure says why not."""
    stamp = venv / ".installed"
    noted = stamp.read_text().split("\n") if stamp.is_file() else ["", ""]
    had = noted[0] or EXTRAS
    wanted = known(f"{had},{extras[1:]}" if extras and extras[0] == "+" else extras or had)
    python = interpreter(venv)
    if anew and answers(python) and version_of(python) != sys.version_info[:2]:
        print(f"{shown(venv)} has Python {'{}.{}'.format(*version_of(python))}; it is made anew")
        stamp.unlink(missing_ok=True)
        shutil.rmtree(venv)
    state = "\n".join((wanted, fingerprint()))
    if "\n".join(noted) == state and stamp.is_file() and answers(python):
        return
    if not answers(python):
        create(venv)
    fill(venv, python, wanted)
    stamp.write_text(state)


def known(extras: str) -> str:
    """The extras, sorted, each once. Failure for one that pyproject.toml does not have."""
    asked = {one.strip() for one in extras.split(",") if one.strip()}
    there = {"all", "dev", "site", *LIBRARIES}
    if asked - there:
        unknown = ", ".join(sorted(asked - there))
        raise Failure(f"extras={unknown}: there is no such extra; use {', '.join(sorted(there))}")
    return ",".join(sorted(asked))


def fingerprint() -> str:
    """What decides whether an environment is up to date."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def interpreter(venv: Path) -> Path:
    """The environment's own Python."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def answers(python: Path) -> bool:
    """Whether an interpreter is there and runs."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def version_of(python: Path) -> tuple[int, int]:
    """(3, 11) of an interpreter."""
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    major, minor = done.stdout.split()
    return int(major), int(minor)


def create(venv: Path) -> None:
    """An empty environment with pip, of the Python that runs this."""
    oldest, newest = ("{}.{}".format(*one) for one in PYTHONS)
    own = "{}.{}".format(*sys.version_info)
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        raise Failure(
            f"python={own}: TensorFlow has no file for it; take Python {oldest} to {newest}: "
            f"make PYTHON=python{oldest}"
        )
    print(f"making {shown(venv)} with Python {own}", flush=True)
    plain = [sys.executable, "-m", "venv", "--clear", str(venv)]
    tried = [plain]
    if uv := shutil.which("uv"):
        tried.append(
            [uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, str(venv)]
        )
    for command in tried:
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode:
            return
        shutil.rmtree(venv, ignore_errors=True)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if "ensurepip" in done.stdout + done.stderr:
        todo = f"install your system's package for it (Debian: apt install python{own}-venv), or uv"
        raise Failure(f"python={sys.executable}: its venv module can't add pip; {todo}")
    raise Failure(f"{shown(venv)}: could not be made: {lines[-1] if lines else 'no reason given'}")


def fill(venv: Path, python: Path, wanted: str) -> None:
    """Installs the checkout with its extras, by uv where there is one, else by pip."""
    extras = libraries(python, wanted)
    chosen = [pin for pin in pins() if pin.extras & {"base", *extras}]
    announce(venv, wanted, chosen)
    options = ["-c", str(CONSTRAINTS), "-e", f"{ROOT}[{','.join(sorted(extras))}]"]
    if "torch" in extras and "torch" not in wanted.split(",") and platform.system() == "Linux":
        options.append(f"torch=={version('torch')}+cpu")
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if uv := shutil.which("uv"):
        links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
        own = {**env, "UV_FIND_LINKS": links} if links else env
        command = [uv, "pip", "install", "--python", str(python), *options]
        status, printed = watched(command, own, venv, chosen)
        if not status:
            return
        print(f"uv: {reason(printed)}; trying pip")
    command = [str(python), "-m", "pip", "install", "--progress-bar", "off", *options]
    status, printed = watched(command, env, venv, chosen)
    if status:
        raise Failure(reason(printed))


def libraries(python: Path, wanted: str) -> set[str]:
    """The extras to ask for: ``all`` spelt out, without a PyTorch that would bring CUDA."""
    extras = set(wanted.split(","))
    if "all" not in extras:
        return extras
    asked = "torch" in extras
    extras = extras - {"all"} | set(LIBRARIES)
    if not asked and not has_cpu_build(python):
        extras.discard("torch")
        minor = "{}.{}".format(*version_of(python))
        print(
            f"torch: left out: no build for processors alone is at hand for Python {minor}, and the"
            " common one brings gigabytes of CUDA. To add it: install torch=="
            f"{version('torch')}+cpu into {shown(python.parent.parent)} as pytorch.org says for"
            " CPU, or take the common one by EXTRAS=dev,all,torch",
            flush=True,
        )
    return extras


def version(name: str) -> str:
    """The pinned version of a package."""
    return next((pin.version for pin in pins() if pin.name == name), "")


def has_cpu_build(python: Path) -> bool:
    """Whether PyTorch's build without CUDA is there or can be had. Elsewhere than on Linux it is
    the only one."""
    if platform.system() != "Linux":
        return True
    exact = f"torch=={version('torch')}+cpu"
    command = [str(python), "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet", exact]
    return subprocess.run(command, capture_output=True).returncode == 0


def announce(venv: Path, wanted: str, chosen: list[Pin]) -> None:
    """Says what will come; Failure where it does not fit on the disk."""
    download, disk = sum(pin.download for pin in chosen), sum(pin.disk for pin in chosen)
    print(
        f"installing {len(chosen)} packages (extras {wanted}): up to {gigabytes(download)} to "
        f"download, {gigabytes(disk)} on disk",
        flush=True,
    )
    free, there = shutil.disk_usage(venv).free, written(venv)
    if free + there < disk:
        raise Failure(
            f"{shown(venv)}: needs {gigabytes(disk)}, {gigabytes(free + there)} are free; "
            "make room, or take fewer libraries: EXTRAS=dev has TensorFlow alone"
        )


def gigabytes(number: float) -> str:
    """Bytes as ``4.4 GB``."""
    return f"{number / 1e9:.1f} GB"


def written(folder: Path) -> int:
    """Bytes of the files in a folder."""
    sizes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                sizes += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                continue  # a temporary file that is gone again
    return sizes


def watched(
    command: list[str], env: dict[str, str], venv: Path, chosen: list[Pin]
) -> tuple[int, list[str]]:
    """Exit status and printed lines of an installer, while lines of progress are printed."""
    printed: list[str] = []
    started = time.monotonic()
    scratch = venv / SCRATCH
    scratch.mkdir(exist_ok=True)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**env, "TMPDIR": str(scratch)},
        cwd=ROOT,
    ) as process:
        with progress(venv, chosen, printed):
            assert process.stdout
            for line in process.stdout:
                printed += [line.rstrip()] if line.strip() else []
        status = process.wait()
    shutil.rmtree(scratch, ignore_errors=True)
    if not status:
        seconds = time.monotonic() - started
        print(f"{shown(venv)}: {gigabytes(written(venv))}, made in {seconds:.0f} s", flush=True)
    return status, printed


@contextmanager
def progress(venv: Path, chosen: list[Pin], printed: list[str]) -> Iterator[None]:
    """A line every few seconds: seconds, what is there of what will be, the installer's step."""
    done, started = threading.Event(), time.monotonic()
    disk = gigabytes(sum(pin.disk for pin in chosen))

    def tell() -> None:
        while not done.wait(EVERY):
            scratch = written(venv / SCRATCH)
            there = len([*venv.glob("lib/python*/site-packages/*.dist-info")])
            held = f"{there} packages and {gigabytes(written(venv) - scratch)} of {disk} installed"
            down = f"{gigabytes(scratch)} downloaded, " if scratch > 1e6 else ""
            seconds = time.monotonic() - started
            print(f"{seconds:4.0f} s: {down}{held}; {doing(printed)}", flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def doing(printed: list[str]) -> str:
    """The installer's last step in a few words."""
    steps = re.compile(r" *(Collecting|Downloading|Using cached|Installing|Building|Prepar|Resolv)")
    last = next((line for line in reversed(printed) if steps.match(line)), "asking for versions")
    last = re.sub(r"\s*\(from .*", "", last.strip())
    if last.startswith("Installing collected"):
        return "unpacking"
    return re.sub(r"-(?:cp|py)\d[^ ]*", "", last.split(",")[0])[:60]


FAULTS = (
    (
        r"The user requested \(constraint\) (\S+)",
        "{0}: constraints.txt pins it, and another package can't take it; "
        "`make constraints` resolves anew",
    ),
    (
        r"No matching distribution found for (\S+)",
        "{0}: there is no such file for this Python and processor; take Python 3.11 to 3.13, or "
        "leave its extra out (EXTRAS=dev has TensorFlow alone)",
    ),
    (
        r"there is no version of (\S+) and you require",
        "{0}: there is no such file for this Python and processor; take Python 3.11 to 3.13, or "
        "leave its extra out (EXTRAS=dev has TensorFlow alone)",
    ),
    (
        r"Because (\S+) depends on|Cannot install (?:\S+ and )?(\S+) because these package",
        "{0}: the versions that are pinned can't be had together; `make constraints` resolves anew",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full; make room, or take fewer libraries: EXTRAS=dev has TensorFlow alone",
    ),
    (
        r"(?:Failed (?:to build|building wheel for)|Could not build wheels for) [`']?([\w.=-]+)",
        "{0}: it has no ready-made file for this Python and processor, and could not be built; "
        "take Python 3.11 to 3.13",
    ),
    (
        r"Read timed out|Connection|Name or service not known|Temporary failure|"
        r"[Ee]rror sending request|dns error|ProxyError",
        "the package index could not be reached; check the network (and pip's settings: "
        "`pip config list`), then run it again",
    ),
    (
        r"Failed to (?:download|fetch):? [`']?([\w.=-]+)",
        "{0}: it could not be downloaded; check the network and run it again",
    ),
    (r"Permission denied: '?([^']+)", "{0}: it may not be written; check whose the folder is"),
)
"""What installers print where they fail, and what it means: the first that fits."""


def reason(printed: list[str]) -> str:
    """Which package failed and what to do, from what the installer printed."""
    text = "\n".join(printed)
    for pattern, form in FAULTS:
        if found := re.search(pattern, text):
            return form.format(next(filter(None, found.groups()), "a package"))
    last = [line for line in printed if "rror" in line][-1:] or printed[-1:]
    return f"{' '.join(last) or 'the installer said nothing'}; run it again, or see README.md"


def shown(path: Path) -> str:
    """A path as it reads from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    sys.exit(main())
