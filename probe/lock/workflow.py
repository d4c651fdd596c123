"""Continuous integration: workflows for GitHub and GitLab, and variables that limit instructions.

Each job of a matrix limits the instructions that libraries take, so that one runner stands for
several processors. ``python -m probe.lock.workflow avx2`` prints the variables, a line each."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

from probe import machine
from probe.errors import InputError, one_of
from probe.launch import instruction_limits

# Instruction sets of a matrix: all that the runner has, and two that every x86-64 runner has.
LEVELS = ("native", "avx2", "sse41")

# Service -> the file that is written; its text is in ``templates``.
SERVICES = {"github": ".github/workflows/bits.yml", "gitlab": ".gitlab/bits.yml"}


def write_workflow(service: str, folder: Path, source: str | None = None) -> tuple[Path, Path]:
    """Writes a service's workflow at the root of the repository that ``folder`` is in, where the
    service looks for it; its steps run in ``folder``. Returns the root and the file.

    ``source``: what pip installs probe from; None: from where this one came. InputError: an unknown
    service, no such folder, a workflow that is there already, or no source that a runner reaches.
    """
    if service not in SERVICES:
        raise InputError("service", service, "there is no such service", one_of(service, SERVICES))
    folder = folder.absolute()
    if not folder.is_dir():
        todo = "give the repository, or the folder in it whose tests are run"
        raise InputError("out", folder.name, "there is no such folder", todo)
    above = (each for each in (folder, *folder.parents) if (each / ".git").exists())
    root = next(above, folder)
    path = root / SERVICES[service]
    if path.exists():
        todo = "remove it first, or edit it"
        raise InputError("file", SERVICES[service], "it exists already", todo)
    below = folder.relative_to(root).as_posix()
    project = "-e ." if any((folder / name).is_file() for name in PROJECT_FILES) else ""
    texts = {
        "LEVELS": ", ".join(LEVELS),
        "PYTHON": "{}.{}".format(*sys.version_info),
        "FOLDER": json.dumps(below),  # YAML's strings are JSON's
        "REPORT": json.dumps("bits-report.md" if below == "." else f"{below}/bits-report.md"),
        "PACKAGES": f"{project} pytest {shlex.quote(source or own_source())}".strip(),
    }
    text = Path(__file__).with_name("templates").joinpath(f"{service}.yml").read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub("|".join(texts), lambda found: texts[found[0]], text))
    return root, path


# Of probe itself, where it runs from one.
CHECKOUT = Path(__file__).parents[2]

# Where one of these is, pip can install the folder.
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def own_source() -> str:
    """What pip installs this probe from on a runner: ``git+https://HOST/PATH@COMMIT``.

    No index has probe: it is the remote of this checkout, or what pip noted when it installed it.
    InputError: neither is an address that another machine reaches.
    """
    name = next(filter(installed, ("probe-numerics", "probe-numerics-core")), "probe-numerics")
    if (CHECKOUT / ".git").exists():
        commit, address = (
            machine.git_state()["git_commit"],
            machine.git(CHECKOUT, "remote", "get-url", "origin"),
        )
        why = "this checkout has no remote that a runner reaches"
        if not machine.git(CHECKOUT, "branch", "--remotes", "--contains", "HEAD"):
            commit, why = None, "this checkout's commit is on no remote"
    else:
        noted = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
        commit, address = noted.get("vcs_info", {}).get("commit_id"), noted.get("url")
        why = "it was not installed from a repository"
    reached = public_address(address or "")
    if not (commit and reached):
        todo = "give --from SOURCE, what pip installs: git+https://HOST/PATH@COMMIT"
        raise InputError("from", "(none)", f"no index has probe, and {why}", todo)
    return f"git+{reached}@{commit}" + ("#subdirectory=core" if "core" in name else "")


def installed(name: str) -> bool:
    return any(metadata.distributions(name=name))


def public_address(remote: str) -> str:
    """A git remote as an address for everybody, without a user's name or token; empty for a folder
    of this machine.

    >>> public_address("git@host.org:owner/name.git")
    'https://host.org/owner/name.git'
    """
    if found := re.fullmatch(r"(https?://)(?:[^/@]*@)?([^/]+/.+)", remote):
        return found[1] + found[2]
    found = re.fullmatch(r"(?:ssh://)?[^/@:]+@([^/:]+)(?::\d+/|[:/])(.+)", remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


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
