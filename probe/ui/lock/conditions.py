"""The conditions that decide bits here: facts by name, one value each.

``blas.LIBRARY`` is the processor whose kernels its OpenBLAS took, ``openblas.LIBRARY`` the release
of that OpenBLAS, ``flag.VARIABLE`` a variable or setting that chooses kernels. No fact is a host's
name or a path.

In CI each job limits the instructions that libraries take, so that one runner stands for several
processors: ``python -m probe.ui.lock.conditions avx2`` prints the variables, a line each.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import xxhash

from probe.case.errors import InputError, one_of
from probe.targets import machine
from probe.targets.backends.arrays import openblas_functions
from probe.targets.backends.contract import ONEDNN_ISA

Facts = dict[str, str | int]

# The libraries, variables and settings that decide bits: see templates/conditions.toml.
CONDITIONS = tomllib.loads(
    Path(__file__).with_name("templates").joinpath("conditions.toml").read_text()
)
# Modules that compute numbers, and the distributions that may bring each.
LIBRARIES: dict[str, list[str]] = CONDITIONS["libraries"]

# Variables of the environment that choose kernels, formats or devices.
FLAGS = [*CONDITIONS["flags"]]

# Variables that set how many threads libraries take; ``sets``: of which library.
THREADS = [*CONDITIONS["threads"]]

# Not a library's variable: how many processors a process that runs a check again may use.
CORES_OF = "PROBE_CORES"


def here(libraries: Iterable[str] = ()) -> Facts:
    """The conditions of this process; ``libraries``: also these, loaded or not.

    Costs some 20 ms the first time and 0.1 ms later, when nothing else was loaded meanwhile.
    """
    loaded = tuple(name for name in LIBRARIES if sys.modules.get(name) is not None)
    cores = machine.cores()  # it may be changed meanwhile: os.sched_setaffinity
    facts: Facts = {"cores": cores, "processor": machine.label(), "isa": machine.isa() or "unknown"}
    facts["architecture"] = platform.machine()
    for name in dict.fromkeys((*loaded, *libraries)):
        facts[f"library.{name}"] = _release(name, getattr(sys.modules.get(name), "__file__", None))
    facts |= {f"flag.{name}": os.environ[name] for name in FLAGS if os.environ.get(name)}
    facts |= {f"threads.{name}": os.environ[name] for name in THREADS if os.environ.get(name)}
    for fact, (module, how, *default) in CONDITIONS["settings"].items():
        # a module may still be on its way in: only what it has by now is asked
        with suppress(AttributeError):
            value: Any = sys.modules.get(module)
            for name in how.split("."):
                value = getattr(value, name.removesuffix("()"))
                value = value() if name.endswith("()") else value
            if value not in (*default, None):
                facts[fact] = int(value) if isinstance(value, int) else str(value)
    if (gpus := getattr(sys.modules.get("torch"), "cuda", None)) and gpus.is_initialized():
        # not processor.gpu: TOML has a table or a value of a name, and processor is a value
        facts["gpu"] = gpus.get_device_name()
    for name, (core, threads, config) in _openblas(loaded).items():
        facts[f"blas.{name}"], facts[f"threads.{name}"] = core().decode(), int(threads())
        if release := re.match(r"OpenBLAS (\d[\w.]*)", config().decode()):
            facts[f"openblas.{name}"] = release[1]
    return facts


def conditions_key(facts: Mapping[str, str | int]) -> str:
    """The name of a set of conditions in the lock: 10 digits of a digest."""
    text = "\n".join(f"{name}={facts[name]}" for name in sorted(facts))
    return xxhash.xxh3_128_hexdigest(text.encode())[:10]


@cache
def _release(name: str, file: str | None) -> str:
    """The installed release of a library by its module's name; ``none`` if there is no release."""
    # beside the module first: tensorflow-cpu in front of tensorflow on the path is what runs
    for path in [*([[str(Path(file).parents[1])]] if file else []), sys.path]:
        for distribution in LIBRARIES.get(name, [name]):
            for installed in metadata.Distribution.discover(name=distribution, path=path):
                return installed.version
    version = getattr(sys.modules.get(name), "__version__", None)
    return version if isinstance(version, str) else "none"


@cache
def _openblas(loaded: tuple[str, ...]) -> dict[str, list[Any]]:
    # by the libraries that are loaded: with each, another OpenBLAS may have come
    functions = openblas_functions().items()
    return {owner if owner in LIBRARIES else "system": library for owner, library in functions}


# Differences by condition (``processor``, ``threads``, ``flag VAR``, ``release LIB``): the facts
# behind each, with the entry's value and ours.
Apart = dict[str, dict[str, tuple[str | int | None, str | int | None]]]

# The condition that a kind of facts belongs to.
GROUPS = {
    **dict.fromkeys(("cores", "threads"), "threads"),
    **dict.fromkeys(("isa", "blas", "onednn", "architecture", "processor", "gpu"), "processor"),
    "flag": "flag {}",
    "library": "release {}",
    "openblas": "release {}",
}

# Facts that go by the processor, or by the release, unless this variable chooses.
CHOSEN_BY = {"blas": "OPENBLAS_CORETYPE", "onednn": "TF_ENABLE_ONEDNN_OPTS"}


def facts_apart(entry: Mapping[str, str | int], facts: Mapping[str, str | int]) -> Apart:
    """The conditions in which an entry differs from ours; empty: all that it says holds.

    What the entry does not say (a library that was not loaded then) does not count, apart from
    flags: without a variable is a condition too. An OpenBLAS core, or TensorFlow's oneDNN, of
    another release, or chosen by a flag, is no condition of its own: it follows from these.
    """
    apart: Apart = {}
    for name in dict.fromkeys((*entry, *facts)):
        entry_value, value = entry.get(name), facts.get(name)
        kind, _, of = name.partition(".")
        chosen = kind == "flag" or (kind == "threads" and of in THREADS)
        if entry_value == value or (not chosen and (entry_value is None or value is None)):
            continue
        library = of.partition(".")[0]
        # a flag that is unset is a condition too: without it the library chooses by itself
        if kind == "flag" and library in LIBRARIES and f"library.{library}" not in facts:
            continue  # not loaded (yet): it can't say how it is set
        if kind in CHOSEN_BY:
            core = f"flag.{CHOSEN_BY[kind]}"
            both = [(entry.get(k), facts.get(k)) for k in (f"library.{of}", f"openblas.{of}")]
            if entry.get(core) != facts.get(core) or any(a and b and a != b for a, b in both):
                continue
        apart.setdefault(GROUPS[kind].format(of), {})[name] = entry_value, value
    return apart


def apart_text(apart: Apart, both: bool = True) -> str:
    """``threads.numpy 1 -> 2; numpy 2.4.6 -> 2.5.0``, or the entry's side alone."""

    def fact_text(name: str, pair: Sequence[str | int | None]) -> str:
        values = ("unset" if value is None else str(value) for value in pair[: 1 + both])
        return f"{name.removeprefix('library.')} {' -> '.join(values)}"

    each = (", ".join(fact_text(*fact) for fact in facts.items()) for facts in apart.values())
    return "; ".join(each)


REACHING = re.compile("dump|dir|path|file|/")


def restoring(group: str, facts: Mapping[str, tuple[str | int | None, str | int | None]]) -> Facts:
    """Variables that bring a condition of an entry back, as far as a process can have it.

    Empty values are to be unset. Of another processor: its instruction set, for every library that
    can be limited; sizes of caches stay. Releases are installed: :mod:`probe.ui.lock.runs`.
    """

    from probe.targets.launch import instruction_limits

    kind, _, flag = group.partition(" ")
    if kind == "flag":
        # XLA's flags write dumps where they say, and run the compiler of a folder that they name
        if REACHING.search(str(next(iter(facts.values()))[0])):
            return {}
        return {flag: facts[f"flag.{flag}"][0] or ""} if flag in FLAGS else {}
    variables: Facts = {}
    if kind == "threads":
        for fact, (entry_value, _) in facts.items():
            name = fact.partition(".")[2]
            # set by a variable; or by a program, or taken from the number of cores
            names = (CORES_OF,) if fact == "cores" else CONDITIONS["sets"].get(name, ())
            variables |= dict.fromkeys((name,) if name in THREADS else names, entry_value or "")
    elif kind == "processor":
        isa = str(facts.get("isa", (None, None))[0])
        variables = dict(instruction_limits(isa)) if isa in ONEDNN_ISA else {}
        for name, (core, _) in facts.items():
            if (variable := CHOSEN_BY.get(name.partition(".")[0])) and core is not None:
                variables[variable] = core
    return variables


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
    """The variables that limit all libraries to an instruction set. InputError."""
    if level not in LEVELS:
        raise InputError("isa", level, "there is no such limit", one_of(level, LEVELS))
    from probe.targets.launch import instruction_limits

    return {} if level == "native" else instruction_limits(level)


if __name__ == "__main__":
    try:
        found = limiting_variables(sys.argv[1] if len(sys.argv) > 1 else "native")
    except InputError as error:
        sys.exit(f"probe: {error}")
    # GitHub's file of variables takes lines as they are
    print("\n".join(f"{name}={value}" for name, value in found.items()))
