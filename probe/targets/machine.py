"""Collects publishable facts of this machine and checkout: no host or user name, no path."""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from probe.case import schema
from probe.targets.backends.contract import ONEDNN_ISA

# oneDNN's names of the vector extensions, widest first, and the processor flags of each.
_ISA = (
    *reversed(ONEDNN_ISA.items()),
    *(("sve", ("sve",)), ("asimd", ("asimd",)), ("asimd", ("neon",))),
)

_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "Apple": "apple"}
_PLAIN_NAMES = {"root", "user", "admin", "runner", "ubuntu", "build", "localhost", "nobody"}


@cache
def facts() -> dict[str, Any]:
    """The machine's and checkout's columns of ``schema.runs``; a null is a fact not to be had.

    Reads ``/proc/cpuinfo`` or asks ``sysctl``, and git: some ten milliseconds, once a process.
    """
    cpu = _cpu()
    return {
        "machine": label(),
        "cpu_vendor": cpu.get("vendor_id"),
        "cpu_model": cpu.get("model name"),
        "cpu_family": _integer_of(cpu.get("cpu family")),
        "cpu_model_number": _integer_of(cpu.get("model")),
        "cpu_isa": isa(),
        "cores": cores(),
        "os": " ".join([platform.system(), *platform.libc_ver()]).strip(),
        "emulated": None,
        **git_state(),
        "probe_version": version(),
        "schema_version": schema.VERSION,
    }


def emulating(emulator: str, model: str) -> dict[str, Any]:
    """Columns of ``schema.runs`` for a run on an emulated processor: nothing of this one's."""
    unknown = ("cpu_vendor", "cpu_family", "cpu_model_number", "cpu_isa")
    return {"emulated": emulator, "cpu_model": f"{model} (emulated)", **dict.fromkeys(unknown)}


@cache
def label() -> str:
    """Name of this machine's results folder, such as ``amd-epyc-fam25-model17-avx512``.

    Machines whose processors are alike share it: the same binary gives the same bits on them.
    """
    return _label(_cpu(), isa())


def _label(cpu: dict[str, str], widest: str | None) -> str:
    vendor = cpu.get("vendor_id", "")
    # of the model's name the words of its product line: EPYC, Xeon, Core, M2
    name = re.sub(r"\(.*?\)|@.*|\d+-Core|Processor|CPU|AMD|Intel", " ", cpu.get("model name", ""))
    family = [word for word in name.split() if re.fullmatch(r"[A-Za-z]+\d?", word)][:2]
    words = [_VENDORS.get(vendor, vendor or platform.machine()), *family]
    if "cpu family" in cpu:
        words += [f"fam{cpu['cpu family']}", f"model{cpu.get('model', '0')}"]
    words.append((widest or "unknown").split("_core")[0].split("_vnni")[0])
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    return "-".join(dict.fromkeys(slug.split("-")))


@cache
def isa() -> str | None:
    """Widest vector extension of this processor in oneDNN's spelling; None if it can't be read."""
    flags = set(_cpu().get("flags", "").split())
    return next((name for name, needed in _ISA if flags.issuperset(needed)), None)


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def version() -> str:
    """Version of the installed probe; ``0`` when it is run from a folder that isn't installed."""
    for name in ("probe-numerics", "probe-numerics-core"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "0"


@cache
def git_state() -> dict[str, Any]:
    """``git_commit`` and ``git_dirty`` of probe's checkout; both None where there is none.

    Dirty means changed tracked files other than results and notebooks, which runs write.
    """
    root = Path(__file__).resolve().parents[2]
    commit = git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    if not commit:
        return {"git_commit": None, "git_dirty": None}
    paths = ("--", ".", ":!results", ":!notebooks")
    changes = git(root, "status", "--porcelain", "--untracked-files=no", *paths)
    return {"git_commit": commit, "git_dirty": bool(changes)}


def publishable(text: str) -> str:
    """``text`` without what must not be published: paths, addresses, host and user name.

    ``/a/b/c.py`` becomes ``.../c.py``, an address ``(address)``, this host ``(host)``, this user
    ``(user)``. For messages of libraries, which name files and machines freely.
    """
    # addresses, then paths as Unix and as Windows write them
    text = re.sub(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>)]+", "(address)", text)
    text = re.sub(r"(?<![\w.])~?(?:/[\w.+@~-]+)+/([\w.+@~-]+)", r".../\1", text)
    text = re.sub(r"\b[A-Za-z]:(?:\\[\w.+@~ -]+)+\\([\w.+@~-]+)", r"...\\\1", text)
    for secret, instead in private_names().items():
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", instead, text)
    return text


@cache
def private_names() -> dict[str, str]:
    """This machine's host and user names, with what stands for each; common words left out."""
    host, user = socket.gethostname(), ""
    with suppress(OSError, KeyError):  # a container may run under a number that has no name
        user = getpass.getuser()
    names = {host: "(host)", host.split(".")[0]: "(host)", user: "(user)"}
    return {k: v for k, v in names.items() if len(k) > 2 and k.lower() not in _PLAIN_NAMES}


def _integer_of(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


@cache
def _cpu() -> dict[str, str]:
    """Facts of the first processor under Linux' names for them; empty where unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        if platform.system() != "Darwin":
            return {}
        brand = _output_of("sysctl", "-n", "machdep.cpu.brand_string")
        apple = brand.startswith("Apple")
        features = "asimd" if apple else _output_of("sysctl", "-n", "machdep.cpu.leaf7_features")
        vendor = "Apple" if apple else "GenuineIntel"
        return {"model name": brand, "vendor_id": vendor, "flags": features.lower()}
    lines = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    cpu = {name.strip(): value.strip() for name, value in lines}
    if "Features" in cpu:  # ARM
        cpu = {"flags": cpu["Features"], "vendor_id": f"arm{cpu.get('CPU implementer', '')}"}
    return cpu


def git(root: Path, *arguments: str) -> str | None:
    """What git prints of a checkout; None where it fails or prints nothing."""
    # no lock: it would stay behind where this process is killed
    return _output_of("git", "--no-optional-locks", "-C", str(root), *arguments) or None


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
