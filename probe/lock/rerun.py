"""A check run again in a process of its own, under conditions that are not those of this one.

Variables limit instructions and threads; an old release stands in a folder of the user's cache, in
front of everything else on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import numpy as np

from probe.lock.checks import OUT, RECORD
from probe.lock.conditions import CORES_OF, LIBRARIES, Facts
from probe.progress import Say
from probe.recording.store import Bits
from probe.runtimes import packages

# Seconds that one run may take.
TIME_LIMIT = 900.0


@dataclass(frozen=True)
class Command:
    """What runs a check: in which folder, with which variables (unset where they are empty), and
    with which folders of old releases before everything else."""

    words: Sequence[str]
    folder: Path
    variables: Mapping[str, str | int] = field(default_factory=dict)
    before: Sequence[Path] = ()

    def under(self, variables: Mapping[str, str | int], before: Sequence[Path]) -> Command:
        """Returns the command under further conditions; its own ones win: they are what is run."""
        more = {**variables, **self.variables}
        return Command(self.words, self.folder, more, [*self.before, *before])

    def environment(self) -> dict[str, str]:
        """Returns the whole environment of the process."""
        # a worker of xdist, or coverage's, would take the process for one of its own
        busy = ("PYTEST_XDIST", "COV_CORE")
        found = {k: v for k, v in os.environ.items() if not k.startswith(busy) and k != RECORD}
        for name, value in self.variables.items():
            found.pop(name, None)
            if value != "" and name != CORES_OF:
                found[name] = str(value)
        paths = [*map(str, self.before), *filter(None, [found.get("PYTHONPATH")])]
        return found | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


@dataclass
class Rerun:
    """What a check had when it was run again: bits by check, the conditions, and ``folder``, where
    its arrays are, and its recording. ``seconds``: how long it took. ``why``: what went wrong.
    ``recorded``: digests of operations by test, or why there are none."""

    folder: Path
    checks: dict[str, Bits] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0
    recorded: dict[str, tuple[list[str], str]] = field(default_factory=dict)

    def array(self, check: str) -> np.ndarray | None:
        """Returns what a check had, as a container array; None: it isn't kept."""
        try:
            with np.load(self.folder / "arrays.npz", allow_pickle=False) as found:
                return np.asarray(found[str([*self.checks].index(check))])
        except (OSError, KeyError, ValueError):
            return None

    @property
    def recording(self) -> Path | None:
        """Returns the folder of its recording; None if there is none."""
        found = self.folder / "recording"
        return found if found.is_dir() else None

    def operations(self, test: str) -> tuple[list[str], str]:
        """Returns the digests of a test's operations, or why there are none."""
        return self.recorded.get(test, ([], "it was not recorded"))


def run_again(command: Command, out: Path, record: str = "") -> Rerun:
    """Runs a command that tells the bits of its checks into the folder ``out``; ``record``: which
    operations too, as of ``RECORD``."""
    surroundings = command.environment() | {OUT: str(out)} | ({RECORD: record} if record else {})
    words, cores = list(command.words), int(command.variables.get(CORES_OF) or 0)
    if cores and hasattr(os, "sched_setaffinity"):
        # an interpreter that becomes the command: libraries count processors as they are loaded
        own = sorted(os.sched_getaffinity(0))
        some = [*own, *(one for one in range(os.cpu_count() or 1) if one not in own)][:cores]
        code = f"import os, sys; os.sched_setaffinity(0, {some}); "
        words = [sys.executable, "-c", f"{code}os.execvp(sys.argv[1], sys.argv[1:])", *words]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            words,
            cwd=command.folder,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
        told = json.loads((out / "bits.json").read_text())
    except subprocess.TimeoutExpired:
        return Rerun(out, why=f"it took more than {TIME_LIMIT:g} s")
    except (OSError, ValueError):
        text = (done.stderr.strip() or done.stdout.strip() or "nothing was printed").splitlines()
        return Rerun(out, why=f"it did not run ({text[-1][:200]})")
    bits = {name: Bits(one[0], tuple(one[1]), one[2]) for name, one in told["checks"].items()}
    seconds = time.monotonic() - begun
    return Rerun(out, bits, told["conditions"], "", seconds, told["operations"])


def overlay(releases: Mapping[str, str], install: bool, tell: Say) -> Path | str:
    """Returns a folder with these releases, by the modules' names; a text: why there is none.

    ``install``: also download what isn't there yet.
    """
    if "none" in releases.values():
        return "it was not installed then"
    wanted = {name: f"{distribution_of(name)}=={one}" for name, one in sorted(releases.items())}
    text = ", ".join(wanted.values())
    try:
        found = packages.in_front(wanted, install, tell)
    except packages.Failed as error:
        return f"{text} can't be installed here: {error}"
    return found or f"{text} is not installed (--bits-why=install installs it)"


def distribution_of(name: str) -> str:
    """Returns the distribution that brings a module here, or its first one: ``tensorflow-cpu`` is
    half as large as ``tensorflow``, and the same on a processor."""
    every = LIBRARIES.get(name, [name])
    return next((one for one in every if any(metadata.Distribution.discover(name=one))), every[0])
