"""``bits.lock``: accepted bits of checks under conditions. TOML, sorted, one line a fact:
docs/lock.md shows one.

A set of conditions is named by a digest of its facts, so that two branches that add lines merge.
An entry that replaced another one has the ``reason``. ``run`` says how checks that are no tests are
computed. What can't be read is never overwritten.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe.case.arguments import not_waiting, parsed_toml
from probe.case.errors import InputError
from probe.record.store import Bits
from probe.ui.lock.conditions import Facts, conditions_key

NAME = "bits.lock"
FORMAT = 1
HEAD = """\
# Bits that were accepted, by check and conditions: see `probe check --help`. Written by probe;
# `pytest --bits-update` (or `probe check lock`) adds, `pytest --bits-bless REASON` replaces.
"""
# The last line: a file that was cut at a line's end would be a lock with fewer checks, and pass.
END = "# end"
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

    def accept(self, check: str, facts: Facts, bits: Bits, reason: str = "") -> str:
        """Adds an entry, or replaces that of the same conditions, whose key is returned."""
        named = conditions_key(facts)
        self.conditions[named] = facts
        entries = self.checks.setdefault(check, {})
        if reason or named not in entries or entries[named].bits != bits:
            entries[named] = Accepted(bits, reason)
        return named

    def drop(self, check: str) -> None:
        for table in (self.checks, self.operations, self.runs):
            table.pop(check, None)

    def text(self) -> str:
        """Returns the file. Left out are conditions without a check, and operations without a test
        or conditions."""
        used = {named for each in self.checks.values() for named in each}
        tests = {test for check in self.checks for test in heads(check)}
        operations = {
            test: {named: some for named, some in each.items() if named in used}
            for test, each in self.operations.items()
            if test in tests
        }
        conditions = {named: self.conditions[named] for named in used & set(self.conditions)}
        lines = [HEAD, f"format = {FORMAT}"]
        every: list[Mapping[str, Mapping[str, Any]]]
        every = [conditions, self.checks, operations, self.runs]
        for kind, table in zip(TABLES, every, strict=True):
            for name, facts in sorted(table.items()):
                lines += ["", f"[{kind}.{_toml_key(name)}]"] if facts else []
                # a dotted key is a table in TOML: library.numpy reads as the fact's name does
                keys = {".".join(map(_toml_key, fact.split("."))): fact for fact in sorted(facts)}
                lines += [f"{key} = {_toml_value(facts[fact])}" for key, fact in keys.items()]
        return "\n".join([*lines, "", END]) + "\n"


def heads(check: str) -> list[str]:
    """Returns a check's name, and what it may be of: ``a::b::c``, ``a::b``, ``a``."""
    parts = check.split("::")
    return ["::".join(parts[:number]) for number in range(len(parts), 0, -1)]


def _toml_key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _toml_value(text)


def _toml_value(value: Any) -> str:
    if isinstance(value, Accepted):
        facts = {**vars(value.bits), **({"reason": value.reason} if value.reason else {})}
        parts = (f"{n} = {list(v) if n == 'shape' else _toml_value(v)}" for n, v in facts.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return "\n".join(["[", *(f"    {_toml_value(item)}," for item in value), "]"])
    # JSON's escapes are TOML's too, but for the one character that JSON leaves as it is
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_lock(path: Path) -> LockFile:
    """Returns what a lock holds; nothing where there is no file. InputError: it can't be read."""

    def damaged(why: str) -> InputError:
        todo = "take it from version control, or remove it and run pytest --bits-update"
        return InputError("lock", path, why, todo)

    try:
        text = not_waiting("lock", path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return LockFile()
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(getattr(error, "strerror", None) or "it is not text") from None
    if marker := _MARKER.search(text):
        line = text.count("\n", 0, marker.start()) + 1
        todo = "keep the lines of both sides: each names its own conditions"
        raise InputError("lock", path, f"line {line} is a merge conflict", todo)
    try:
        table = parsed_toml(text)
    except ValueError as error:
        why = " ".join(str(error).split())
        if "overwrite" in why or "twice" in why or "redefine" in why:
            why = f"two entries are for one condition ({why})"
        raise damaged(why) from None
    version = table.pop("format", None)
    if isinstance(version, int) and version > FORMAT:
        why = f"it has format {version}, and this probe reads {FORMAT}"
        raise InputError("lock", path, why, "update probe-numerics")
    if version != FORMAT:
        raise damaged("it does not begin with its format")
    if not text.rstrip().endswith(f"\n{END}"):
        raise damaged(f"its last line, {END!r}, is missing: it was cut")
    if unknown := set(table) - set(TABLES):
        raise damaged(f"it has a table {min(unknown)!r}")
    lock = LockFile()
    try:
        for named, facts in table.get("conditions", {}).items():
            lock.conditions[named] = _facts_of(facts)
            if conditions_key(lock.conditions[named]) != named:
                raise damaged(f"the facts of conditions.{named} were changed by hand")
        for check, entries in table.get("check", {}).items():
            for named, entry in entries.items():
                if named not in lock.conditions:
                    raise damaged(f"conditions.{named} of {check} are missing")
                dtype, shape = str(entry["dtype"]), tuple(map(int, entry["shape"]))
                accepted = Accepted(
                    Bits(dtype, shape, str(entry["hash"])), str(entry.get("reason", ""))
                )
                lock.checks.setdefault(check, {})[named] = accepted
        for check, entries in table.get("operations", {}).items():
            lock.operations[check] = {n: [str(op) for op in some] for n, some in entries.items()}
        for name, how in table.get("run", {}).items():
            # a lock comes with a repository: that it is trusted is for the user to say, not for it
            lock.runs[name] = {str(k): str(value) for k, value in how.items() if k != "trust"}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"an entry is not as it should be ({type(error).__name__}: {error})"
        raise damaged(why) from None
    return lock


def _facts_of(table: Mapping[str, Any], before: str = "") -> Facts:
    facts: Facts = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            facts |= _facts_of(value, f"{before}{name}.")
        elif isinstance(value, str | int):
            facts[f"{before}{name}"] = value
        else:
            raise TypeError(f"{name} is no fact")
    return facts


@contextmanager
def changing(path: Path) -> Iterator[LockFile]:
    """Gives what the lock holds now, to be changed; it is written when the block ends.

    One process at a time: others wait, and then read what this one wrote. The file is replaced as
    a whole, so that a reader never sees a part of it. InputError: it can't be read or written.
    """
    import fcntl

    try:
        # the folder is locked: a file for it would lie in the repository, and can't be removed
        # without a race
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            lock = read_lock(path)
            yield lock
            text = lock.text()
            if path.exists() and path.read_text(encoding="utf-8") == text:
                return
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                beside.write_text(text, encoding="utf-8")
                beside.replace(path)  # a rename: a reader sees the old file or the new one
            finally:
                beside.unlink(missing_ok=True)
        finally:
            os.close(folder)
    except OSError as error:
        raise InputError("lock", path, error.strerror or str(error), "choose a folder") from None
