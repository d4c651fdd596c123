"""A check run again in a process of its own, under conditions that are not those of this one.

Variables of the environment limit instructions and threads; an old release is installed into a
folder of the user's cache, which stands before everything else on the path, so that the rest of
the environment stays what it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probe.lock.conditions import CORES_OF, LIBRARIES, Facts
from probe.lock.session import OUT, RECORD
from probe.lock.values import Bits
from probe.runtimes import environments
from probe.runtimes.packages import PRIVATE

TIME_LIMIT = 900.0
"""Seconds that one run may take."""


@dataclass
class Rerun:
    """What a check had when it was run again: bits by check, the conditions, and ``folder``, where
    its arrays are, and its recording. ``why``: what went wrong."""

    folder: Path
    checks: dict[str, Bits] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    why: str = ""

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

    def operations(self) -> tuple[list[str], str]:
        """Returns the digests of its operations, or why there are none."""
        try:
            told = json.loads((self.folder / "operations.json").read_text())
        except (OSError, ValueError):
            return [], "it was not recorded"
        return told["operations"], told["why"]


def run(
    command: Sequence[str],
    variables: Mapping[str, str | int],
    before: Sequence[Path] = (),
    *,
    folder: Path,
    record: bool = False,
    into: Path | None = None,
) -> Rerun:
    """Runs a command that tells the bits of its checks, in the folder ``folder``.

    ``variables``: set, or unset where they are empty; ``before``: folders of old releases.
    ``into``: the folder for what it tells.
    """
    out = into or Path(tempfile.mkdtemp(prefix="probe-"))
    surroundings = environment(variables, before) | {OUT: str(out)}
    surroundings.pop(RECORD, None)
    if record:
        surroundings[RECORD] = "1"
    cores = int(variables.get(CORES_OF) or 0)
    try:
        done = subprocess.run(
            [*_kept_to(cores), *command],
            cwd=folder,
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
    return Rerun(out, bits, told["conditions"])


def environment(variables: Mapping[str, str | int], before: Sequence[Path]) -> dict[str, str]:
    """Returns the whole environment of such a process."""
    found = dict(os.environ)
    for name in [one for one in found if one.startswith(("PYTEST_XDIST", "COV_CORE"))]:
        del found[name]
    for name, value in variables.items():
        found.pop(name, None)
        if value != "" and name != CORES_OF:
            found[name] = str(value)
    paths = [*map(str, before), *filter(None, [found.get("PYTHONPATH")])]
    return found | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def _kept_to(cores: int) -> list[str]:
    """Returns what keeps a command to so many processors: an interpreter that becomes it."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return []
    own = sorted(os.sched_getaffinity(0))
    others = [one for one in range(os.cpu_count() or 1) if one not in own]
    code = f"import os, sys; os.sched_setaffinity(0, {(own + others)[:cores]}); "
    code += "os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", code]


def overlay(releases: Mapping[str, str], install: bool, tell: Callable[[str], None]) -> Path | str:
    """Returns a folder with these releases, by the modules' names; a text: why there is none.

    ``install``: also download what isn't there yet.
    """
    wanted = [f"{LIBRARIES.get(name, name)}=={one}" for name, one in sorted(releases.items())]
    if "none" in releases.values():
        return "it was not installed then"
    python = "{}.{}".format(*sys.version_info)
    slug = "_".join(one.replace("==", "-").replace("+", "-") for one in wanted)
    folder = environments.cache_folder() / "overlays" / f"{slug}_{python}"
    with environments.locked(folder):
        if (folder / DONE).exists():
            return folder
        if not install:
            return f"{', '.join(wanted)} is not installed (--bits-why=install installs it)"
        tell(f"installing {', '.join(wanted)}")
        return _installed(folder, wanted, releases)


DONE = ".complete"


def _installed(folder: Path, wanted: list[str], releases: Mapping[str, str]) -> Path | str:
    """Installs releases alone; where they can't be imported so, with what they depend on."""
    clean = {name: value for name, value in os.environ.items() if name not in PRIVATE}
    code = f"import {', '.join(releases)}"
    why = ""
    for more in (["--no-deps"], []):
        with tempfile.TemporaryDirectory(prefix="probe-", dir=_made(folder.parent)) as made:
            command = [sys.executable, "-m", "pip", "install", "-q", "--target", made, *more]
            done = _quietly([*command, "--disable-pip-version-check", *wanted], clean)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["pip failed"])[-1][:200]
                continue
            tried = _quietly([sys.executable, "-c", code], environment({}, [Path(made)]))
            if tried.returncode:
                why = (tried.stderr.strip().splitlines() or ["it can't be imported"])[-1][:200]
                continue
            Path(made).rename(folder)
            Path(made).mkdir()  # for the context manager to remove
            (folder / DONE).touch()
            return folder
    return f"{', '.join(wanted)} can't be installed here: {why}"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _quietly(command: Sequence[str], variables: Mapping[str, str]) -> Any:
    return subprocess.run(command, env=dict(variables), capture_output=True, text=True, check=False)
