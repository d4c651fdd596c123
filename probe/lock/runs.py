"""Checks that are no tests: models and cases that ``probe lock`` adds and ``probe check`` runs."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.case import Case
from probe.errors import InputError, TargetError, one_of
from probe.launch import library_variables
from probe.lock import file, reruns, why
from probe.lock.judging import CHANGED, NEW, SAME, UNKNOWN, Checked, judged
from probe.lock.operations import MOST
from probe.lock.session import BitsSession
from probe.progress import Say, silent
from probe.target import Target

HOW = ("model", "case", "inputs", "shapes", "seed", "target", "trust")
"""What says how a check is computed, as ``[run.NAME]`` has it."""


def how(
    model: str | None,
    case: Case | None,
    target: str | None,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Returns how a check is computed. InputError: neither a model nor a case."""
    found = {name: value for name, value in more.items() if value}
    if target is not None:
        found["target"] = Target.parse(target).text
    if model is not None:
        return {"model": model} | found
    if case is None:
        raise InputError("model", "(none)", "there is nothing to run", "give MODEL, or --op conv1d")
    given = case.arguments()
    plain = Case(case.op, case.kernel, case.in_channels).arguments()
    words = {k: v for k, v in given.items() if v != plain[k] or k in ("op", "kernel")}
    words["in_channels"] = case.in_channels
    return {"case": json.dumps(words), "target": found.get("target", "numpy")}


@dataclass(frozen=True)
class Runs:
    """The checks of a lock that are no tests; what :mod:`probe.lock.why` runs again."""

    known: Mapping[str, Mapping[str, str]]
    folder: Path

    def command(self, one: Checked) -> list[str]:
        """As of ``why.Subject``."""
        spec: dict[str, Any] = {"check": one.test, **self.known[one.test]}
        target = spec.get("target")
        spec["variables"] = library_variables(Target.parse(target)) if target else {}
        return [sys.executable, "-m", "probe.lock.running", json.dumps(spec)]


def computed(name: str, runs: Runs, record: bool = False) -> tuple[list[Checked], list[str]]:
    """Runs one check; returns its arrays' bits, not judged yet, and digests of its operations.

    InputError and TargetError: it can't be run.
    """
    nothing = Checked(name, name, None, {}, NEW)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory(prefix="probe-") as out:
        found = reruns.run(
            runs.command(nothing), {}, folder=runs.folder, record=record, into=Path(out)
        )
        if found.why:
            error = Path(out, "error.json")
            told = json.loads(error.read_text()) if error.exists() else {"why": found.why}
            if "input" in told:
                raise InputError(*told["input"])
            raise TargetError(name, "error", told["why"])
        operations = found.operations()[0] if record else []
    every = [Checked(one, name, bits, found.facts, NEW) for one, bits in found.checks.items()]
    return every, operations[:MOST]


def lock(
    path: Path, name: str, spec: Mapping[str, str], reason: str | None = None, tell: Say = silent
) -> list[Checked]:
    """Adds a check to a lock, or its conditions; ``reason``: also replaces what it has.

    Returns what was found, judged by what the lock had. InputError: the name is another check's;
    the bits changed and there is no reason.
    """
    old = file.read(path)
    if old.runs.get(name, dict(spec)) != dict(spec):
        why_not = "the lock has a different check of this name"
        raise InputError("name", name, why_not, "give another --name")
    tell(f"running {name}")
    every, operations = computed(name, Runs({name: spec}, path.parent), record=True)
    session = BitsSession(path, update=True, bless=reason)
    for one in every:
        found = judged(session.lock, one.check, name, one.bits, one.facts)
        session.results.append(found)
        if found.verdict == CHANGED and reason is None:
            todo = "run probe check, or give --bless REASON"
            raise InputError("check", one.check, "its bits changed", todo)
        if found.verdict != SAME:
            session.accepted.append(found)
    if session.accepted and operations:
        session.operations[name] = file.key(session.accepted[0].facts), operations
    session.finish()
    with file.changing(path) as now:
        now.runs[name] = dict(spec)
    return session.results


def check(
    path: Path,
    names: Sequence[str] = (),
    far: str = "here",
    tell: Say = silent,
) -> list[Checked]:
    """Runs the checks of a lock that are no tests, and judges them; ``names``: some of them.

    ``far``: which causes are looked for, as of pytest's ``--bits-why``. InputError: there is none.
    A check that can't be run is ``unknown``, because of that.
    """
    if not path.exists():
        raise InputError("lock", path, "there is no such file", "add a check with probe lock")
    now = file.read(path)
    for name in names:
        if name not in now.runs:
            there = one_of(name, now.runs) if now.runs else "it has none: add one with probe lock"
            raise InputError("check", name, f"{path.name} has no run of this name", there)
    if not now.runs:
        todo = "add one with probe lock MODEL; pytest checks those of tests"
        raise InputError("lock", path, "it has tests' checks alone", todo)
    runs, results = Runs(now.runs, path.parent), list[Checked]()
    for name in names or now.runs:
        tell(f"running {name}")
        try:
            found, _ = computed(name, runs)
        except (InputError, TargetError) as error:
            entries = now.checks.get(name) or {}
            known = next(iter(entries.values()), None)
            nothing = known.bits if known else file.Bits("none", (), "0" * 32)
            one = Checked(name, name, nothing, {}, UNKNOWN, accepted=known)
            one.why = {"cause": None, "said": f"it could not be run: {error.why}"}
            results.append(one)
            continue
        results += [judged(now, one.check, name, one.bits, one.facts) for one in found]
    verdicts = {"no": (), "here": (CHANGED,)}.get(far, (CHANGED, UNKNOWN))
    wrong = [one for one in results if one.verdict in verdicts and not one.why]
    if wrong:
        why.explain(wrong, now, runs, install=far == "install", tell=tell)
    return results


def status(results: Sequence[Checked]) -> int:
    """Returns the exit status: 0 the same, 1 changed, 3 unknown (or not locked yet)."""
    found = {one.verdict for one in results}
    return 1 if CHANGED in found else 3 if found - {SAME} else 0
