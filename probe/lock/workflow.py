"""Continuous integration: workflows for GitHub and GitLab, and variables that limit instructions.

Each job of a matrix limits the instructions that libraries take, so that one runner stands for
several processors. ``python -m probe.lock.workflow avx2`` prints the variables, a line each."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from probe.errors import InputError, one_of
from probe.launch import instruction_limits

# Instruction sets of a matrix: all that the runner has, and two that every x86-64 runner has.
LEVELS = ("native", "avx2", "sse41")

# Service -> the file that is written; its text is in ``templates``.
SERVICES = {"github": ".github/workflows/bits.yml", "gitlab": ".gitlab/bits.yml"}


def write_workflow(service: str, folder: Path) -> Path:
    """Writes a service's workflow below ``folder``. InputError: unknown, or there already."""
    if service not in SERVICES:
        raise InputError("service", service, "there is no such service", one_of(service, SERVICES))
    path = folder / SERVICES[service]
    if path.exists():
        todo = "remove it first, or edit it"
        raise InputError("file", SERVICES[service], "it exists already", todo)
    text = Path(__file__).with_name("templates").joinpath(f"{service}.yml").read_text()
    text = text.replace("LEVELS", ", ".join(LEVELS))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("PYTHON", "{}.{}".format(*sys.version_info)))
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
    for name, value in found.items():
        # GitHub's file of variables takes lines as they are, a shell needs quotes
        print(f"{name}={shlex.quote(value) if '--shell' in sys.argv else value}")
