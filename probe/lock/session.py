"""The checks of one process: what the fixture ``bits`` asks, and what the lock gets at the end."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.lock import conditions, file, judging
from probe.lock.assertions import described
from probe.lock.conditions import Facts, key
from probe.lock.judging import CHANGED, NEW, SAME, Checked
from probe.lock.operations import recorded
from probe.lock.values import Bits, array_of, bits_of, named

NAME = file.NAME

OUT = "PROBE_BITS_OUT"
"""Variable: the folder for what a test that is run again has. Nothing is judged then."""

RECORD = "PROBE_BITS_RECORD"
"""Variable: also record its operations there."""

LARGEST = 1 << 24
"""Bytes of an array that is kept beside the lock, in pytest's cache, to say later where it
differs."""


class BitsSession:
    """What the checks of a process found. ``update``, ``bless``: as of pytest's flags.

    ``cache``: where accepted arrays are kept; None: nowhere.
    """

    def __init__(
        self,
        path: Path,
        *,
        update: bool = False,
        bless: str | None = None,
        cache: Path | None = None,
    ) -> None:
        self.path, self.bless, self.cache = path, bless, cache
        self.update = update or bless is not None
        self.lock = file.LockFile() if os.environ.get(OUT) else file.read(path)
        self.results: list[Checked] = []
        self.finished = set[str]()
        self.accepted: list[Checked] = []
        self.operations: dict[str, tuple[str, list[str]]] = {}
        self.rerun: dict[str, Bits] = {}
        self.arrays: dict[str, Any] = {}

    def checked(self, check: str, test: str, value: Any, place: tuple[str, int]) -> Checked:
        """Judges one array; takes it into the lock where that is wanted."""
        bits = bits_of(value)
        if os.environ.get(OUT):
            self.rerun[check], self.arrays[check] = bits, value
            return Checked(check, test, bits, {}, SAME)
        entries = self.lock.checks.get(check, {})
        libraries = {
            name.partition(".")[2]
            for one in entries
            for name in self.lock.conditions[one]
            if name.startswith("library.")
        }
        facts = conditions.here(libraries)
        found = judging.judged(self.lock, check, test, bits, facts)
        found.place = place
        self.results.append(found)
        if found.verdict == SAME:
            return found
        if found.verdict == CHANGED and self.bless is None:
            found.difference = self._difference(found, value)
            return found
        if self.update:
            self.accepted.append(found)
            self._keep(bits, value)
        return found

    def wants(self, test: str) -> bool:
        """Returns whether a test has checks whose operations the lock is to get."""
        return any(one.test == test for one in self.accepted)

    def ran(self, test: str, function: Callable[[], Any], bare: Any = None) -> None:
        """Runs a test's checks once more, to know their operations, where that is wanted."""
        if folder := os.environ.get(OUT):
            if os.environ.get(RECORD):
                told, why = recorded(function, Path(folder, "recording"), bare)
                said = {"operations": told, "why": why}
                Path(folder, "operations.json").write_text(json.dumps(said))
            return
        told, _ = recorded(function, bare=bare)
        facts = next(one.facts for one in self.accepted if one.test == test)
        self.operations[test] = key(facts), told

    def unused(self, tests: Collection[str]) -> list[str]:
        """Returns entries of checks that are gone: of these ``tests``' files, which were run whole,
        or of files that are gone. Those of a test that did not end, or was skipped, stay."""
        files = {one.partition("::")[0] for one in tests}
        used = {one.check for one in self.results}
        found = []
        for check in self.lock.checks:
            parts = check.split("::")
            heads = ("::".join(parts[:n]) for n in range(len(parts), 1, -1))
            test = next((one for one in heads if one in tests), None)
            gone = parts[0] in files or not (self.path.parent / parts[0]).exists()
            if check in self.lock.runs or check in used or (test is None and not gone):
                continue
            if test is None or test in self.finished:
                found.append(check)
        return found

    def finish(self, gone: Sequence[str] = ()) -> None:
        """Writes what was accepted; removes entries that are ``gone``. InputError."""
        if folder := os.environ.get(OUT):
            return self._tell(Path(folder))
        if not self.accepted and not gone:
            return None
        with file.changing(self.path) as lock:
            for one in self.accepted:
                facts = _replaced(one, lock)
                reason = (self.bless or "") if one.verdict == CHANGED else ""
                old = next((name for name in gone if _moved(lock, name, one)), None)
                if old is not None and one.verdict == NEW:  # the test has another name now
                    lock.checks[one.check] = lock.checks.pop(old)
                lock.accept(one.check, facts, one.bits, reason)
            for test, (facts_key, told) in self.operations.items():
                kept = lock.operations.setdefault(test, {})
                kept.pop(facts_key, None)
                if told:
                    kept[facts_key] = told
            for name in gone:
                lock.drop(name)
        return None

    def _keep(self, bits: Bits, value: Any) -> None:
        if self.cache is None or bits.dtype == "file":
            return
        array, _ = array_of(value)
        if array.nbytes <= LARGEST and array.dtype.kind != "V":
            with suppress(OSError):  # a cache that can't be written costs words, no verdict
                self.cache.mkdir(parents=True, exist_ok=True)
                np.save(self.cache / f"{bits.hash}.npy", array, allow_pickle=False)

    def _difference(self, found: Checked, value: Any) -> str:
        """Returns where an array differs from the accepted one, if that one is in the cache."""
        if (old := self.kept(found)) is None:
            return ""
        new, dtype = array_of(value)
        return described(old, new, "out", dtype, 1).partition(": ")[2]

    def kept(self, one: Checked) -> np.ndarray | None:
        """Returns the accepted array of a check, where it is in the cache and of the same shape."""
        accepted = one.accepted
        if self.cache is None or accepted is None or one.bits.dtype == "file":
            return None
        if (accepted.bits.dtype, accepted.bits.shape) != (one.bits.dtype, one.bits.shape):
            return None
        try:
            old = np.load(self.cache / f"{accepted.bits.hash}.npy", allow_pickle=False)
        except (OSError, ValueError):
            return None
        return old if bits_of(old).hash == accepted.bits.hash else None

    def _tell(self, folder: Path) -> None:
        """Writes what a test had that was run again: its bits, and the conditions it had."""
        told = {name: [one.dtype, list(one.shape), one.hash] for name, one in self.rerun.items()}
        with suppress(InputError):
            plain = {n: array_of(a)[0] for n, a in self.arrays.items() if not isinstance(a, Path)}
            kept = {str(n): plain[name] for n, name in enumerate(told) if name in plain}
            kept = {n: a for n, a in kept.items() if a.dtype.kind != "V"}
            np.savez(folder / "arrays.npz", **kept)  # type: ignore[arg-type]
        done = json.dumps({"checks": told, "conditions": conditions.here()})
        (folder / "bits.json").write_text(done)


def _replaced(one: Checked, lock: file.LockFile) -> Facts:
    """Returns the conditions of a new entry. Where entries hold already, they are replaced: theirs,
    which may name fewer libraries, so that a test has one entry alone and in a suite."""
    kept = lock.checks.get(one.check, {})
    holding = [n for n in kept if not conditions.apart(lock.conditions[n], one.facts)]
    facts = lock.conditions[min(holding)] if holding else one.facts
    for other in holding:
        if kept[other].bits != one.bits and key(facts) != other:
            del kept[other]
    return facts


def _moved(lock: file.LockFile, old: str, one: Checked) -> bool:
    """Returns whether an entry that no test uses has a new check's bits: it was renamed."""
    kept = lock.checks.get(old, {}).values()
    return any(each.bits == one.bits for each in kept) and one.check not in lock.checks


class BitsFixture:
    """The fixture ``bits``: ``bits.check(value)`` compares a value's bits with ``bits.lock``."""

    def __init__(self, session: BitsSession, test: str, root: Path) -> None:
        self._session, self._test, self._root = session, test, root
        self._names = defaultdict[str, int](int)
        self._given = set[str]()
        self.collected: list[Any] | None = None
        self.bare: tuple[Callable[..., Any], Sequence[Any]] | None = None

    def check(self, value: Any, name: str | None = None, inputs: Sequence[Any] = ()) -> None:
        """Fails unless the bits are those that ``bits.lock`` accepts under these conditions.

        ``value``: an array or tensor of any library, a number, bytes, a file as ``pathlib.Path``;
        these in dictionaries, lists or data frames, each a check of its own; or a function of no
        arguments (or of ``inputs``) that returns them. ``name``: tells the checks of a test apart;
        without one they are numbered. Under conditions that no entry has, nothing fails: pytest's
        last lines say how to add them. Costs a read of the arrays.
        """
        __tracebackhide__ = True
        if callable(value) and not hasattr(value, "__array__"):
            self.bare = (value, inputs) if len(inputs) else None
            value = value(*inputs)
        if self.collected is not None:  # the body is run again, watched
            self.collected.append(value)
            return
        if name is not None and name in self._given:
            why = "this test has checked something of this name already"
            raise InputError("name", name, why, "give each check its own name")
        self._given |= {name} if name is not None else set()
        self._names[name or ""] += 1
        count = self._names[name or ""]
        own = name if name is not None else f"#{count}" * (count > 1)
        frame = sys._getframe(1)
        place = _place(frame.f_code.co_filename, self._root), frame.f_lineno
        wrong = []
        for part, array in named(value):
            check = "::".join(filter(None, (self._test, own, part)))
            found = self._session.checked(check, self._test, array, place)
            taken = found in self._session.accepted
            if found.verdict in (NEW, CHANGED) and not taken:
                wrong.append(found.message)
        if wrong:
            raise BitsChanged("\n".join(wrong))


def again(fixture: BitsFixture, item: Any) -> None:
    """Runs the body of a test that passed once more, watched, where its operations are wanted."""
    session, test = fixture._session, item.nodeid
    session.finished.add(test)
    if not (os.environ.get(RECORD) if os.environ.get(OUT) else session.wants(test)):
        return

    def body() -> list[Any]:
        found: list[Any] = []
        fixture.collected = found
        try:
            item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
        finally:
            fixture.collected = None
        return found

    if fixture.bare is not None and len(fixture._names) == 1:
        function, inputs = fixture.bare
        session.ran(test, lambda: function(*inputs), fixture.bare)
    else:
        session.ran(test, body)


class BitsChanged(AssertionError):
    """A check's bits are not those that the lock accepts."""


def _place(path: str, root: Path) -> str:
    """Returns a file relative to the root, where it lies below it: else its name alone."""
    try:
        return Path(path).relative_to(root).as_posix()
    except ValueError:
        return Path(path).name


def to_json(session: BitsSession, tests: Sequence[str] | None) -> dict[str, Any]:
    """Returns what a process of pytest-xdist hands to the one that reports."""
    return {
        "results": [one.to_json() for one in session.results],
        "accepted": [session.results.index(one) for one in session.accepted],
        "operations": {test: [*one] for test, one in session.operations.items()},
        "finished": sorted(session.finished),
        "tests": None if tests is None else list(tests),
    }


def join(session: BitsSession, told: Mapping[str, Any]) -> None:
    """Takes what another process found."""
    results = [Checked.of_json(one) for one in told["results"]]
    session.results += results
    session.accepted += [results[n] for n in told["accepted"]]
    session.operations |= {test: (one[0], one[1]) for test, one in told["operations"].items()}
    session.finished |= set(told["finished"])
