"""Continuous integration: the workflow for GitHub, and variables that limit instructions.

Each job limits the instructions that libraries take, so that one runner stands for several
processors. ``python -m probe.ui.lock.workflow avx2`` prints the variables, a line each.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from probe.case.errors import InputError, one_of
from probe.targets.launch import instruction_limits

# Instruction sets of a matrix: all that the runner has, and two that every x86-64 runner has.
LEVELS = ("native", "avx2", "sse41")

# Where GitHub looks, from the root of a repository; it is ``templates/bits.yml``.
WORKFLOW = Path(".github/workflows/bits.yml")


def copy_workflow(folder: Path) -> Path:
    """Copies the workflow to the root of the repository that ``folder`` is in; returns the file.

    InputError: no such folder, or a workflow that is there already.
    """
    folder = folder.absolute()
    if not folder.is_dir():
        raise InputError("out", folder.name, "there is no such folder", "give the repository")
    above = (each for each in (folder, *folder.parents) if (each / ".git").exists())
    path = next(above, folder) / WORKFLOW
    if path.exists():
        todo = "remove it first, or edit it"
        raise InputError("file", WORKFLOW.as_posix(), "it exists already", todo)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("templates") / "bits.yml", path)
    return path


def limiting_variables(level: str) -> dict[str, str]:
    """Returns the variables that limit all libraries to an instruction set. InputError."""
    if level not in LEVELS:
        raise InputError("isa", level, "there is no such limit", one_of(level, LEVELS))
    return {} if level == "native" else instruction_limits(level)


if __name__ == "__main__":
    try:
        found = limiting_variables(sys.argv[1] if len(sys.argv) > 1 else "native")
    except InputError as error:
        sys.exit(f"probe: {error}")
    # GitHub's file of variables takes lines as they are
    print("\n".join(f"{name}={value}" for name, value in found.items()))
