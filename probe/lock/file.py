"""``bits.lock``: accepted bits of checks under conditions. TOML, sorted, one line a fact.

    format = 1

    [conditions.14cc8456aa]
    cores = 2
    library.numpy = "2.4.6"

    [check."tests/test_model.py::test_embedding"]
    14cc8456aa = {dtype = "float32", shape = [4, 8], hash = "9c1f..."}

    [operations."tests/test_model.py::test_embedding"]
    14cc8456aa = [
        "aten.addmm encoder.0 3f2a91c04d11",
    ]

    [run.NAME]
    model = "package:function"

A set of conditions is named by a digest of its facts, so that two branches that add lines merge.
An entry that replaced another one has the ``reason``. ``run`` says how checks that are no tests are
computed. What can't be read is never overwritten.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe.errors import InputError
from probe.lock.conditions import Facts, key
from probe.lock.values import Bits

NAME = "bits.lock"
FORMAT = 1
HEAD = """\
# Bits that were accepted, by check and conditions: see `probe check --help`. Written by probe;
# `pytest --bits-update` (or `probe lock`) adds, `pytest --bits-bless REASON` replaces.
"""
_MARKER = re.compile(r"^(<{7} |\|{7} |={7}$|>{7} )", re.MULTILINE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
TABLES = ("conditions", "check", "operations", "run")


@dataclass(frozen=True)
class Accepted:
    """The bits that a check may have under some conditions, and the reason of the last change."""

    bits: Bits
    reason: str = ""


@dataclass
class LockFile:
    """What a lock holds. ``conditions``: facts by their key; ``checks`` and ``operations``: by
    check (or its test), then by conditions; ``runs``: how checks are computed that are no tests."""

    conditions: dict[str, Facts] = field(default_factory=dict)
    checks: dict[str, dict[str, Accepted]] = field(default_factory=dict)
    operations: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    runs: dict[str, dict[str, str]] = field(default_factory=dict)

    def accept(self, check: str, facts: Facts, bits: Bits, reason: str = "") -> None:
        """Adds an entry, or replaces that of the same conditions."""
        named = key(facts)
        self.conditions[named] = facts
        kept = self.checks.setdefault(check, {})
        if not reason and named in kept and kept[named].bits == bits:
            return
        kept[named] = Accepted(bits, reason)

    def drop(self, check: str) -> None:
        """Removes a check with all its entries."""
        self.checks.pop(check, None)
        self.operations.pop(check, None)
        self.runs.pop(check, None)

    def text(self) -> str:
        """Returns the file. Conditions that no check has any more are left out."""
        used = {named for each in self.checks.values() for named in each}
        lines = [HEAD, f"format = {FORMAT}"]
        for named in sorted(used & set(self.conditions)):
            lines += ["", f"[conditions.{named}]"]
            facts = self.conditions[named]
            lines += [f"{_dotted(name)} = {_value(facts[name])}" for name in sorted(facts)]
        for check in sorted(self.checks):
            lines += ["", f"[check.{_key(check)}]"]
            lines += [f"{n} = {_entry(one)}" for n, one in sorted(self.checks[check].items())]
        for check in sorted(self.operations):
            kept = {n: one for n, one in self.operations[check].items() if n in used}
            lines += ["", f"[operations.{_key(check)}]"] * bool(kept)
            for named, operations in sorted(kept.items()):
                lines += [f"{named} = [", *(f"    {_value(one)}," for one in operations), "]"]
        for name in sorted(self.runs):
            lines += ["", f"[run.{_key(name)}]"]
            lines += [f"{_key(k)} = {_value(one)}" for k, one in sorted(self.runs[name].items())]
        return "\n".join(lines) + "\n"


def _entry(one: Accepted) -> str:
    shape = ", ".join(map(str, one.bits.shape))
    reason = f", reason = {_value(one.reason)}" if one.reason else ""
    dtype, found = _value(one.bits.dtype), _value(one.bits.hash)
    return f"{{dtype = {dtype}, shape = [{shape}], hash = {found}{reason}}}"


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _dotted(name: str) -> str:
    """Returns a fact's name as TOML has it: ``flag.torch.mkldnn`` stays one name in two parts."""
    kind, dot, rest = name.partition(".")
    return f"{kind}{dot}{_key(rest)}" if dot else kind


def _value(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda one: f"\\u{ord(one[0]):04x}", escaped) + '"'


def read(path: Path) -> LockFile:
    """Returns what a lock holds; nothing where there is no file. InputError: it can't be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return LockFile()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise _damaged(path, why) from None
    if found := _MARKER.search(text):
        line = text.count("\n", 0, found.start()) + 1
        todo = "keep the lines of both sides: each names its own conditions"
        raise InputError("lock", path, f"line {line} is a merge conflict", todo)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = " ".join(str(error).split())
        if "overwrite" in why or "twice" in why or "redefine" in why:
            why = f"two entries are for one condition ({why})"
        raise _damaged(path, why) from None
    version = table.pop("format", None)
    if isinstance(version, int) and version > FORMAT:
        why = f"it has format {version}, and this probe reads {FORMAT}"
        raise InputError("lock", path, why, "update probe-numerics")
    if version != FORMAT:
        raise _damaged(path, "it does not begin with its format")
    try:
        return _read(table, path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"an entry is not as it should be ({type(error).__name__}: {error})"
        raise _damaged(path, why) from None


def _read(table: Mapping[str, Any], path: Path) -> LockFile:
    if unknown := set(table) - set(TABLES):
        raise _damaged(path, f"it has a table {min(unknown)!r}")
    found = LockFile()
    for named, facts in table.get("conditions", {}).items():
        found.conditions[named] = _flat(facts)
        if key(found.conditions[named]) != named:
            raise _damaged(path, f"the facts of conditions.{named} were changed by hand")
    for check, entries in table.get("check", {}).items():
        for named, one in entries.items():
            if named not in found.conditions:
                raise _damaged(path, f"conditions.{named} of {check} are missing")
            bits = Bits(str(one["dtype"]), tuple(map(int, one["shape"])), str(one["hash"]))
            found.checks.setdefault(check, {})[named] = Accepted(bits, str(one.get("reason", "")))
    for check, entries in table.get("operations", {}).items():
        found.operations[check] = {n: [str(op) for op in some] for n, some in entries.items()}
    for name, how in table.get("run", {}).items():
        found.runs[name] = {str(k): str(one) for k, one in how.items()}
    return found


def _flat(facts: Mapping[str, Any], before: str = "") -> Facts:
    found: Facts = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        elif isinstance(value, str | int):
            found[f"{before}{name}"] = value
        else:
            raise TypeError(f"{name} is no fact")
    return found


def _damaged(path: Path, why: str) -> InputError:
    todo = "take it from version control, or remove it and run pytest --bits-update"
    return InputError("lock", path, why, todo)


@contextmanager
def changing(path: Path) -> Iterator[LockFile]:
    """Gives what the lock holds now, to be changed; it is written when the block ends.

    One process at a time: others wait, and then read what this one wrote. The file is replaced as
    a whole, so that a reader never sees a part of it. InputError: it can't be read or written.
    """
    try:
        with _alone(path):
            found = read(path)
            yield found
            text = found.text()
            if path.exists() and path.read_text(encoding="utf-8") == text:
                return
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                beside.write_text(text, encoding="utf-8")
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError("lock", path, error.strerror or str(error), "choose a folder") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time, by a lock of the folder: a file for it would lie in the repository,
    and can't be removed without a race."""
    import fcntl

    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
