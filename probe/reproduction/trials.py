"""Findings of stores, drawn at random: does a script confirm each in fresh processes, how small?"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from probe import machine
from probe.case import Case
from probe.errors import ProbeError, StoreError, TargetError
from probe.reproduction import folder
from probe.reproduction.failing import Failing, failing
from probe.shrink import Finding
from probe.store import Store, latest
from probe.store.results import load
from probe.sweep import Progress, observations
from probe.target import Target

Row = dict[str, Any]


@dataclass(frozen=True)
class Drawn:
    """A stored comparison that differs. ``number``: its place in the draw from ``source``."""

    source: str
    number: int
    target: str
    case: Case
    vary: str
    at: int
    against: int
    compared: int


@dataclass
class Tried:
    """What ``attempt`` did: scripts confirmed now and before, and why others weren't, by target."""

    confirmed: int = 0
    before: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False


def draw(store: Path, number: int, each: bool = False) -> list[Drawn]:
    """``number`` of this machine's findings in a store; with ``each`` as many of each target.

    In the order of a hash of what was compared: the same ones whatever else the store holds, and a
    longer draw begins with a shorter one. StoreError: nothing of this machine differs there.
    """
    results = load(store / machine.label()) if (store / machine.label()).is_dir() else None
    table = None if results is None else results.comparisons
    if results is None or table is None or not (table["differing"] > 0).any():
        what = f"no difference of {machine.label()} is in it"
        raise StoreError(f"store={store}: {what}; measure it on this machine first")
    names = ["target", "case_id", "vary", "at", "against"]
    rows = table[table["differing"] > 0].drop_duplicates(names, keep="last").to_dict("records")
    rows.sort(key=lambda row: _hash(store.name, *(row[name] for name in names)))
    seen: Counter[str] = Counter()
    kept = []
    for row in rows:
        group = row["target"] if each else ""
        seen[group] += 1
        kept += [row] * (seen[group] <= number)
    cases = results.cases.set_index("case_id")["json"]
    return [_drawn(store.name, place, row, cases) for place, row in enumerate(kept)]


def _hash(*words: object) -> bytes:
    return hashlib.sha256(" ".join(map(str, words)).encode()).digest()


def _drawn(source: str, number: int, row: Row, cases: Any) -> Drawn:
    stored = cases[row["case_id"]]
    case = Case.from_json(stored if isinstance(stored, str) else json.dumps(stored))
    numbers = (int(row[name]) for name in ("at", "against", "compared"))
    return Drawn(source, number, row["target"], case, row["vary"], *numbers)


def attempt(
    drawn: Iterable[Drawn],
    store: Store,
    experiment: str,
    times: int = 2,
    progress: Callable[[Progress], None] | None = None,
) -> Tried:
    """Reproduces every finding in ``times`` fresh processes, and stores ``reproductions``.

    What a script of the same run has confirmed is not tried again. A target that does not start is
    a row of ``failures``. Ctrl-C leaves with what there is.
    """
    rows = latest.table(store.path, "reproductions").to_pylist()
    job = _Job(store, experiment, times, progress, {_key(row) for row in rows if row["confirmed"]})
    ordered = sorted(drawn, key=lambda one: one.target)
    job.total = len(ordered)
    try:
        for text, group in groupby(ordered, key=lambda one: one.target):
            job.target(Target.parse(text), list(group))
    except KeyboardInterrupt:
        job.done.interrupted = True
    store.compact()
    return job.done


def _key(row: Row) -> tuple[Any, ...]:
    names = ("run_id", "source", "case_id", "target", "vary", "at", "against")
    return tuple(row[name] for name in names)


@dataclass
class _Job:
    """One ``attempt`` at work."""

    store: Store
    experiment: str
    times: int
    progress: Callable[[Progress], None] | None
    known: set[tuple[Any, ...]]
    total: int = 0
    count: int = 0
    done: Tried = field(default_factory=Tried)

    def target(self, target: Target, drawn: Sequence[Drawn]) -> None:
        """All findings of one target, in one process of it."""
        try:
            with failing(target) as failed:
                session = failed.first
                facts = target, session.facts, session.variables, self.experiment
                run = observations.run_row(*facts)
                self.store.append("runs", run)
                for one in drawn:
                    self.finding(failed, one, run["run_id"])
                    self.tell(target, one.case.label)
        except TargetError as error:
            self.fail(target, error)
        self.store.flush()

    def finding(self, failed: Failing, one: Drawn, run: str) -> None:
        """One finding, unless a script has confirmed it."""
        row: Row = {"run_id": run, "source": one.source, "case_id": one.case.id}
        row |= {name: getattr(one, name) for name in ("target", "vary", "at", "against", "number")}
        if _key(row) in self.known:
            self.done.before += 1
            return
        before, runs = time.perf_counter(), failed.runs
        row |= {"found": one.compared, "processes": self.times}
        try:
            finding = Finding.of(one.case, one.vary, one.at, one.against)
            made = folder.proved(failed, finding, times=self.times)
        except ProbeError as error:
            row |= {"confirmed": False, "reason": machine.publishable(str(error))}
            self.done.failures.setdefault(one.target, []).append(str(error))
            failed.revive()
        else:
            if made.shrunk is not None and made.shrunk.ended == "interrupted":
                raise KeyboardInterrupt
            row |= {"confirmed": True, "runs": failed.runs - runs, **told(made)}
            self.done.confirmed += 1
        row["seconds"] = time.perf_counter() - before
        self.store.append("cases", observations.case_row(one.case))
        self.store.append("reproductions", row)

    def fail(self, target: Target, error: TargetError) -> None:
        """Stores that a target did not start."""
        run = observations.run_row(target, {}, {}, self.experiment)
        self.store.append("runs", run)
        row = {"run_id": run["run_id"], "case_id": None, "target": target.text}
        row |= {"vary": None, "at": None, "kind": error.kind, "message": error.why}
        self.store.append("failures", row | {"stderr": error.stderr or None})
        self.done.failures.setdefault(target.text, []).append(str(error))

    def tell(self, target: Target, what: str) -> None:
        """Reports where the work is."""
        self.count += 1
        if self.progress is not None:
            failures = sum(map(len, self.done.failures.values()))
            self.progress(Progress(target.text, what, self.count, self.total, failures))


def _effects(made: folder.Reproduction) -> Row:
    """What the finding did and what the smallest case does, and whether that is the same."""
    if made.before is None or made.after is None:
        return {}
    kept = made.kept or {}
    return {
        "found_differing": made.before.differing,
        "found_max_ulp": made.before.max_ulp,
        "found_relative": made.before.max_relative,
        "found_causes": made.before.causes,
        "found_kernels": made.before.kernels,
        "relative": made.after.max_relative,
        "kernels": made.after.kernels,
        "kept_cause": kept.get("cause"),
        "kept_kernels": kept.get("kernels"),
    }


def told(made: folder.Reproduction) -> Row:
    """What is stored of a proved reproduction: columns of ``reproductions``."""
    finding, found = made.finding, made.explanation
    arrays = [a for a in (finding.x, finding.w, finding.b) if a is not None]
    return {
        "status": made.ran.status,
        "tries": 0 if made.shrunk is None else made.shrunk.calls,
        "ended": None if made.shrunk is None else made.shrunk.ended,
        "label": finding.label,
        "smallest": finding.to_json(),
        "small_summands": finding.left.summands,
        "small_at": finding.at,
        "small_against": finding.against,
        "small_compared": len(found.pairs.left),
        "small_elements": sum(a.size for a in arrays),
        "small_not_zero": sum(finding.to_json()["not_zero"].values()),
        "differing": len(found.differing),
        "max_ulp": found.max_ulp,
        "causes": found.causes,
        **_effects(made),
        "replayed": found.replayed,
        "emulated": made.shown,
        "lines": len(made.script.splitlines()),
        "seconds_proof": made.seconds,
    }
