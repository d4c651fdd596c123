"""Checks: what the lock says of their bits (same, changed, unknown, or new), and what it gets; and
what they found: lines for a terminal, JSON, Markdown, and the lines by which GitHub annotates the
line of each check that is not the same.

``bits.lock`` has accepted bits of checks under conditions: TOML, sorted, one line a fact;
docs/lock.md shows a file. A set of conditions is named by a digest of its facts, so that two
branches that add lines merge. An entry that replaced an entry has the ``reason``. ``run`` says how
checks that are no tests are computed. What can't be read is never overwritten.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.arguments import not_waiting, parsed_toml
from probe.case.errors import InputError
from probe.record.store import Bits, array_of, bits_of
from probe.sweep.printing import counted
from probe.targets import machine
from probe.ui.answers.same_bits import where_they_differ
from probe.ui.lock import conditions
from probe.ui.lock.conditions import Apart, Facts, apart_text, conditions_key, facts_apart

SAME, CHANGED, UNKNOWN, NEW = "same", "changed", "unknown", "new"

# Verdicts of which causes are looked for, by ``--bits-why``. Of what is unknown only where that is
# asked for: it fails nothing, and each of a matrix of conditions would pay for it.
EXPLAINED = {"no": (), "here": (CHANGED,), "all": (CHANGED, UNKNOWN), "install": (CHANGED, UNKNOWN)}

# Variable: the folder for what a check that is run again has. Nothing is judged then.
OUT = "PROBE_BITS_OUT"

# Variable: also record the operations of that check's test there.
RECORD = "PROBE_BITS_RECORD"

# Bytes of an array that is kept beside the lock, in pytest's cache, to say later where it differs.
LARGEST = 1 << 24


# Of a check that was not run, and of an output that a run no longer has.
NO_BITS = Bits("none", (), "0" * 32)


@dataclass
class Checked:
    """One check. ``check``: its name; ``test``: the test that it is of, or the name again.

    ``verdict``: ``same``: bits that are accepted, here or under other conditions. ``changed``: not
    those of an entry whose conditions hold, or hold but for releases. ``unknown``: no entry is of
    these conditions. ``new``: there is no entry. ``nearest``: the conditions of the entry that
    differs least; ``apart``: in what. ``place``: file and line of the check. ``why``: what
    :mod:`probe.ui.lock.runs` found. ``difference``: where the arrays differ, in words, if it is
    known.
    """

    check: str
    test: str
    bits: Bits
    facts: Facts
    verdict: str
    nearest: str = ""
    accepted: Accepted | None = None
    apart: Apart = field(default_factory=dict)
    place: tuple[str, int] | None = None
    why: dict[str, Any] = field(default_factory=dict)
    difference: str = ""

    @property
    def message(self) -> str:
        """What is wrong in one line, and what to do; empty for the same bits."""
        add, bless = "pytest --bits-update", "pytest --bits-bless REASON"
        if "::" not in self.test:  # no test, a run of probe check lock
            add, bless = (
                "probe check lock ... (as it was added)",
                "probe check lock ... --bless REASON",
            )
        if self.verdict == NEW:
            return f"check={self.check}: bits.lock has no entry; run {add} to add it"
        if self.verdict == UNKNOWN and self.bits == NO_BITS:
            return f"check={self.check}: it was not run, so its bits are unknown"
        if self.verdict == SAME or self.accepted is None:
            return ""
        text = f"{self.bits.text}, accepted is {self.accepted.bits.text}"
        text += f" ({self.difference})" if self.difference else ""
        if self.verdict == UNKNOWN:
            more = f"under {self.conditions}; if you trust them, add them: {add}"
            return f"check={self.check}: {text}, {more}"
        under = f", with {self.conditions}" if self.apart else ""
        return f"check={self.check}: the bits changed: {text}{under}; accept them with {bless}"

    @property
    def conditions(self) -> str:
        """In what the nearest entry differs: ``threads 1 -> 2, release numpy ...``."""
        return apart_text(self.apart) or "the same conditions"

    def to_json(self) -> dict[str, Any]:
        """What ``probe check --json`` and ``--bits-report=json`` have of it."""
        accepted, (path, line) = self.accepted, self.place or (None, None)
        return {
            "check": self.check,
            "test": self.test,
            "verdict": self.verdict,
            "bits": vars(self.bits),
            "accepted": accepted and vars(accepted.bits),
            "reason": (accepted.reason or None) if accepted else None,
            "conditions": self.facts,
            "nearest": self.nearest or None,
            "apart": self.apart,
            "difference": self.difference or None,
            "file": path or None,
            "line": line if path else None,
            "why": self.why or None,
        }


def judged_check(lock: LockFile, check: str, test: str, bits: Bits, facts: Facts) -> Checked:
    """The verdict on one check's bits under the conditions here.

    An entry whose conditions all hold decides. Where there is none, bits that any entry has are the
    same. Else, where an entry differs in releases alone, the bits changed with them: a release is
    what a user chooses, a processor is not. With anything else it is unknown."""
    checked = Checked(check, test, bits, facts, NEW)
    entries = lock.checks.get(check, {})
    if not entries:
        return checked
    differing = {named: facts_apart(lock.conditions[named], facts) for named in entries}
    key_here = conditions_key(facts)

    def far(named: str) -> tuple[Any, ...]:
        groups = differing[named]
        lasting = [group for group in groups if not group.startswith("release ")]
        # two may hold at once: the same key is first, then the entry that says more
        facts_named = len(lock.conditions[named])
        return (len(lasting), len(groups), named != key_here, -facts_named, named)

    exact = {named for named in entries if not differing[named]}
    equal = {named for named in entries if entries[named].bits == bits}
    among = set(entries)
    if key_here not in entries and equal:
        # two sets of conditions may hold at once, which name different libraries: if either has
        # these bits they are accepted
        among = equal if not exact or exact & equal else exact
    wanted = min(among, key=far)
    checked.nearest, checked.accepted, checked.apart = wanted, entries[wanted], differing[wanted]
    released = all(group.startswith("release ") for group in differing[wanted])
    checked.verdict = SAME if entries[wanted].bits == bits else CHANGED if released else UNKNOWN
    return checked


class BitsSession:
    """What the checks of a process found. ``update``, ``bless``: as of pytest's flags. ``cache``:
    where accepted arrays are kept. ``root``: what tests' files are named from; the lock's folder.
    """

    def __init__(
        self,
        path: Path,
        *,
        update: bool = False,
        bless: str | None = None,
        cache: Path | None = None,
        root: Path | None = None,
    ) -> None:
        self.path, self.bless, self.cache = path, bless, cache
        self.root = root or path.parent
        self.update = update or bless is not None
        self.out = Path(os.environ[OUT]) if os.environ.get(OUT) else None
        self.lock = LockFile() if self.out else read_lock(path)
        self.results: list[Checked] = []
        self.accepted: list[Checked] = []
        self.finished = set[str]()
        self.unrecorded: dict[str, str] = {}
        """Why a test has no recording of its operations."""
        self.refused: list[str] = []
        """Why something was not written: lines."""
        self.handed: dict[str, tuple[Bits, Any]] = {}

    def checked(self, check: str, test: str, value: Any, place: tuple[str, int]) -> Checked:
        """Judges one array; takes it into the lock where that is wanted."""
        bits = bits_of(value)
        if self.out:
            self.handed[check] = bits, value
            return Checked(check, test, bits, {}, SAME)
        # a library that an entry names is asked for even if nothing has loaded it here: an entry of
        # a whole suite has to hold for one of its tests alone
        entry_facts = (self.lock.conditions[key] for key in self.lock.checks.get(check, {}))
        libraries = {n[8:] for facts in entry_facts for n in facts if n.startswith("library.")}
        checked = judged_check(self.lock, check, test, bits, conditions.here(libraries))
        checked.place = place
        self.results.append(checked)
        if checked.verdict == CHANGED and self.bless is None:
            if (old := self.kept(checked)) is not None:
                new, dtype = array_of(value)
                checked.difference = where_they_differ(old, new, "out", dtype, 1).partition(": ")[2]
        elif checked.verdict != SAME and self.update:
            self.accepted.append(checked)
            if self.cache is not None and bits.dtype != "file":
                array, _ = array_of(value)
                if array.nbytes <= LARGEST and array.dtype.kind != "V":
                    with suppress(OSError):  # a cache that can't be written costs words, no verdict
                        self.cache.mkdir(parents=True, exist_ok=True)
                        np.save(self.cache / f"{bits.hash}.npy", array, allow_pickle=False)
        return checked

    def kept(self, checked: Checked) -> np.ndarray | None:
        """The accepted array of a check, where it is in the cache and of the same shape."""
        wanted = checked.accepted and checked.accepted.bits
        if not self.cache or not wanted or replace(wanted, hash=checked.bits.hash) != checked.bits:
            return None
        try:
            old = np.load(self.cache / f"{wanted.hash}.npy", allow_pickle=False)
        except (OSError, ValueError):
            return None
        return old if bits_of(old).hash == wanted.hash else None

    @property
    def records(self) -> bool:
        """Whether operations are to be recorded: in a process that hands them over. A body
        that ran twice in the user's own would move what tests share, as a generator."""
        return self.out is not None and RECORD in os.environ

    def record(self, test: str, function: Callable[[], Any], bare: Any = None) -> None:
        """Runs a test's checks a few times more, watched, and keeps their operations."""
        from probe.ui.answers.two_runs import record_function

        assert self.out is not None
        if why := record_function(function, self.out / "recording", bare):
            self.unrecorded[test] = why

    def unused(self, tests: Collection[str]) -> list[str]:
        """Entries of checks that are gone: of these ``tests``' files, which were run whole,
        or of files that are gone. Those of a test that did not end, or was skipped, stay."""
        files = {test.partition("::")[0] for test in tests}
        used = {checked.check for checked in self.results} | set(self.lock.runs)
        unused = []
        for check in self.lock.checks:
            if check in used or check.rpartition("::")[0] in self.lock.runs:
                continue  # a model with several outputs has a check for each
            parts = check.split("::")  # of a::b::c it may be a::b::c, a::b or a
            *test_names, path = ("::".join(parts[:n]) for n in range(len(parts), 0, -1))
            test = next((name for name in test_names if name in tests), None)
            gone = path in files or not (self.root / path).exists()
            if gone if test is None else test in self.finished:
                unused.append(check)
        return unused

    def finish(self, gone: Sequence[str] = ()) -> None:
        """Writes what was accepted; removes entries that are ``gone``. InputError."""
        if self.out:  # of a test that was run again: its bits, and the conditions it had
            hashes = {n: [b.dtype, list(b.shape), b.hash] for n, (b, _) in self.handed.items()}
            arrays = {}
            for number, (_, value) in enumerate(self.handed.values()):
                if not isinstance(value, Path) and (array := array_of(value)[0]).dtype.kind != "V":
                    arrays[str(number)] = array
            np.savez(self.out / "arrays.npz", **arrays)  # type: ignore[arg-type]
            done = {"checks": hashes, "conditions": conditions.here()}
            (self.out / "bits.json").write_text(json.dumps(done | {"unrecorded": self.unrecorded}))
            return
        if not self.accepted and not gone:
            return
        with changing(self.path) as lock:
            for checked in self.accepted:
                entries = lock.checks.get(checked.check, {})
                # a test has one entry alone and in a suite, which may load more libraries: an
                # entry that holds is replaced, and keeps its conditions
                holding = [n for n in entries if not facts_apart(lock.conditions[n], checked.facts)]
                if self.bless is None and any(entries[n].bits != checked.bits for n in holding):
                    continue  # a different process has added different bits: they stay
                facts = lock.conditions[min(holding)] if holding else checked.facts
                for key in holding:
                    if entries[key].bits != checked.bits and conditions_key(facts) != key:
                        del entries[key]
                reason = (self.bless or "") if checked.verdict == CHANGED else ""
                lock.accept(checked.check, facts, checked.bits, reason)
            for name in gone:
                lock.drop(name)

    def leave_out(self, checks: Collection[str]) -> None:
        """Takes back accepted checks whose bits differ from run to run: none could be kept."""
        self.accepted = [each for each in self.accepted if each.check not in checks]
        why = "its bits differ from run to run, so none are accepted; set its seed, or check less"
        self.refused += [f"check={check}: {why}" for check in checks]


ENDINGS = {"json": "json", "markdown": "md", "github": "txt"}


def summarised(results: Sequence[Checked]) -> str:
    """``3 of 41 checks changed: order, numpy 2.4.6 -> 2.5.0, sum of 768 numbers; 0
    decisions``, or how many are the same."""
    count, total = Counter(checked.verdict for checked in results), counted(len(results), "check")
    uncertain = [f"{count[name]:,} {name}" for name in (UNKNOWN, NEW) if count[name]]
    more = f" ({', '.join(uncertain)})" if uncertain else ""
    if not count[CHANGED]:
        have = "has" if 1 in (count[SAME], len(results)) else "have"
        return f"{count[SAME]:,} of {total} {have} the same bits{more}"
    causes = Counter[str]()
    for why in (checked.why for checked in results if checked.verdict == CHANGED and checked.why):
        # what changed, from what, where, and how many decisions, as far as it is known
        words = [why.get("class"), why.get("said") or why.get("cause"), why.get("operation")]
        text = ", ".join(filter(None, words)) or "the cause is unknown"
        if (taken := why.get("decisions") or {}).get("total"):
            text += f"; {taken['changed']:,} decisions"
        causes[text + (f" ({why['kind']})" if why.get("kind") else "")] += 1
    summary = "; ".join(text for text, _ in causes.most_common(3)) + "; ..." * (len(causes) > 3)
    return f"{count[CHANGED]:,} of {total} changed{more}{f': {summary}' if summary else ''}"


def terminal_lines(
    results: Sequence[Checked],
    accepted: Collection[Checked],
    unused: Sequence[str],
    update: bool,
    refused: Sequence[str] = (),
) -> list[str]:
    """The end of pytest's run: counts, what is not the same with its cause, what to do."""
    lines = [summarised(results)] if results else []
    if accepted:
        lines.append(f"{NAME}: {counted(len(accepted), 'value')} written")
    for checked in results:
        if checked.verdict in (CHANGED, UNKNOWN) and checked not in accepted:
            lines += [checked.message, *(f"  {line}" for line in why_in_lines(checked.why))]
    lines += refused
    if unused:
        done = "removed" if update else "pytest --bits-update removes them"
        what = counted(len(unused), "check")
        lines.append(f"{NAME} has {what} that no test uses any more ({done}): {', '.join(unused)}")
    return lines


def why_in_lines(why: dict[str, Any]) -> list[str]:
    """The cause, the operation and the kind of a change in lines."""
    if not why:
        return []
    lines = [f"cause: {why.get('said') or why.get('cause') or 'unknown'}"]
    for word, name in (("where", "operation"), ("class", "class"), ("kind", "kind")):
        lines += [f"{word}: {why[name]}"] if why.get(name) else []
    if why.get("decisions"):
        lines.append("decisions: {changed} of {total} changed".format(**why["decisions"]))
    return lines + [f"note: {text}" for text in why.get("notes", [])]


def json_report(
    results: Sequence[Checked], unused: Sequence[str] = (), error: str = ""
) -> dict[str, Any]:
    """The object that ``probe check --json`` prints. ``error``: of a lock that can't be
    read or written."""
    count = Counter(checked.verdict for checked in results)
    return {
        "summary": error or summarised(results),
        "error": error or None,
        **{name: count[name] for name in (SAME, CHANGED, UNKNOWN, NEW)},
        "checks": [checked.to_json() for checked in results],
        "unused": list(unused),
    }


def markdown_report(results: Sequence[Checked], unused: Sequence[str], error: str) -> str:
    """A pull request's or a job's page."""
    from jinja2 import Template

    text = Path(__file__).with_name("templates").joinpath("report.md.j2").read_text()
    page = Template(text, keep_trailing_newline=True)
    return page.render(headline=error or summarised(results), results=results, unused=unused)


# Verdict -> GitHub's command that annotates a line: what is unknown fails nothing.
ANNOTATIONS = {CHANGED: "error", NEW: "warning", UNKNOWN: "notice"}


def github_report(results: Sequence[Checked], error: str = "") -> str:
    """Lines that a step of GitHub prints: ``::error file=tests/test_a.py,line=7::check=...``."""
    # what ends a property or a line is escaped as GitHub's toolkit does (command.ts)
    escaped = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
    properties = escaped | str.maketrans({":": "%3A", ",": "%2C"})
    lines = [f"::error::{machine.publishable(error).translate(escaped)}"] if error else []
    for checked in results:
        if command := ANNOTATIONS.get(checked.verdict):
            path, line = checked.place or (NAME, 1)
            text = machine.publishable("\n".join([checked.message, *why_in_lines(checked.why)]))
            place = f"file={path.translate(properties)},line={max(line, 1)}"
            lines.append(f"::{command} {place}::{text.translate(escaped)}")
    return "".join(f"{line}\n" for line in lines)


def write_report(
    wanted: str,
    folder: Path,
    results: Sequence[Checked],
    unused: Sequence[str] = (),
    error: str = "",
) -> str:
    """Writes what ``FORMAT`` or ``FORMAT=FILE`` asks for; returns what to say of it."""
    form, _, path = wanted.partition("=")
    out = folder / (path or f"bits-report.{ENDINGS[form]}")
    if form == "markdown":
        text = markdown_report(results, unused, error)
    elif form == "github":
        text = github_report(results, error)
    else:
        text = json.dumps(json_report(results, unused, error), indent=1) + "\n"
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as why:
        return f"bits-report={form}: {out.name} can't be written: {why.strerror}"
    return f"{form} report: {out.name}"


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
TABLES = ("conditions", "check", "run")


@dataclass(frozen=True)
class Accepted:
    """The bits that a check may have under some conditions, and the reason of the last change."""

    bits: Bits
    reason: str = ""


@dataclass
class LockFile:
    """What a lock holds. ``conditions``: facts by their key; ``checks``: by check, then by
    conditions; ``runs``: how checks are computed that are no tests."""

    conditions: dict[str, Facts] = field(default_factory=dict)
    checks: dict[str, dict[str, Accepted]] = field(default_factory=dict)
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
        for table in (self.checks, self.runs):
            table.pop(check, None)

    def text(self) -> str:
        """The file, without conditions that no check has."""
        used = {named for each in self.checks.values() for named in each}
        conditions = {named: self.conditions[named] for named in used & set(self.conditions)}
        lines = [HEAD, f"format = {FORMAT}"]
        tables: list[Mapping[str, Mapping[str, Any]]]
        tables = [conditions, self.checks, self.runs]
        for kind, table in zip(TABLES, tables, strict=True):
            for name, facts in sorted(table.items()):
                lines += ["", f"[{kind}.{_toml_key(name)}]"] if facts else []
                # a dotted key is a table in TOML: library.numpy reads as the fact's name does
                keys = {".".join(map(_toml_key, fact.split("."))): fact for fact in sorted(facts)}
                lines += [f"{key} = {_toml_value(facts[fact])}" for key, fact in keys.items()]
        return "\n".join([*lines, "", END]) + "\n"


def _toml_key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _toml_value(text)


def _toml_value(value: Any) -> str:
    if isinstance(value, Accepted):
        facts = {**vars(value.bits), **({"reason": value.reason} if value.reason else {})}
        parts = (f"{n} = {list(v) if n == 'shape' else _toml_value(v)}" for n, v in facts.items())
        return f"{{{', '.join(parts)}}}"
    # JSON's escapes are TOML's too, but for the one character that JSON leaves as it is
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_lock(path: Path) -> LockFile:
    """What a lock holds; nothing where there is no file. InputError: it can't be read."""

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
    table.pop("operations", None)  # digests that locks had before 0.1.0: nothing reads them
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
