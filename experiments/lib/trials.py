"""Draws stored findings at random, and confirms each by its script in fresh processes."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from probe.case.case import Case
from probe.case.errors import ProbeError, StoreError
from probe.explain.runs import ComparedShapes, Finding
from probe.report import folder
from probe.report.folder import Failing
from probe.report.report import Reproduction
from probe.sweep import stored
from probe.sweep.campaign import Campaign, CampaignPart, Row, Tally, case_row
from probe.sweep.store import Store
from probe.sweep.stored import load
from probe.targets import machine
from probe.targets.progress import Tell
from probe.targets.target import Target


@dataclass(frozen=True)
class Drawn:
    """A stored comparison that differs. ``number``: its place in the draw from ``source``."""

    source: str
    number: int
    target: str
    shapes: ComparedShapes
    compared: int


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
    found, cases = [], results.cases.set_index("case_id")["json"]
    for number, row in enumerate(kept):
        values = row["vary"], int(row["at"]), int(row["against"])
        shapes = ComparedShapes(Case.from_json(cases[row["case_id"]]), *values, None)
        found.append(Drawn(store.name, number, row["target"], shapes, int(row["compared"])))
    return found


def _hash(*words: object) -> bytes:
    return hashlib.sha256(" ".join(map(str, words)).encode()).digest()


def attempt(
    drawn: Iterable[Drawn],
    store: Store,
    experiment: str,
    times: int = 2,
    progress: Tell | None = None,
) -> Tally:
    """Reproduces every finding in ``times`` fresh processes, and stores ``reproductions``.

    What a script of the same run has confirmed is not tried again. A target that does not start is
    a row of ``failures``. Ctrl-C leaves with what there is. ``found``: scripts that confirmed one.
    """
    ordered = sorted(drawn, key=lambda one: one.target)
    job = _Trying(store, experiment, progress)
    rows = stored.read_table(store.path, "reproductions").to_pylist()
    job.known_rows = {_key(row) for row in rows if row["confirmed"]}
    job.times = times
    groups = groupby(ordered, key=lambda one: one.target)
    return job.run([(Target.parse(text), list(group)) for text, group in groups])


def _key(row: Row) -> tuple[Any, ...]:
    names = ("run_id", "source", "case_id", "target", "vary", "at", "against")
    return tuple(row[name] for name in names)


class _Trying(Campaign[Drawn]):
    """``known_rows``: keys of what was confirmed before; ``times``: processes of a script."""

    known_rows: set[tuple[Any, ...]]
    times: int
    failed: Failing

    def begin(self, part: CampaignPart[Drawn]) -> None:
        """Takes the target's process for all its findings."""
        self.failed = Failing(part.session, part.session)

    def ask(self, part: CampaignPart[Drawn], question: Drawn) -> None:
        """Tries one finding, unless a script has confirmed it."""
        one, shapes, failed = question, question.shapes, self.failed
        row: Row = {"run_id": part.run_id, "source": one.source, "case_id": shapes.case.id}
        row |= {name: getattr(shapes, name) for name in ("vary", "at", "against")}
        row |= {"target": one.target, "number": one.number}
        if _key(row) in self.known_rows:
            self.tally.before += 1
            return
        before, runs = time.perf_counter(), failed.runs
        row |= {"found": one.compared, "processes": self.times}
        try:
            made = folder.proved_reproduction(
                failed, Finding.drawn_from(shapes), folder.ReportOptions(times=self.times)
            )
        except ProbeError as error:
            row |= {"confirmed": False, "reason": machine.publishable(str(error))}
            self.tally.failures.setdefault(one.target, []).append(str(error))
        else:
            if made.shrunk is not None and made.shrunk.ended == "interrupted":
                raise KeyboardInterrupt
            row |= {"confirmed": True, "runs": failed.runs - runs, **told(made)}
            self.tally.found += 1
        row["seconds"] = time.perf_counter() - before
        self.keep("cases", case_row(shapes.case))
        self.keep("reproductions", row)


def told(made: Reproduction) -> Row:
    """Returns what is stored of a proved reproduction: columns of ``reproductions``."""
    finding, found, before = made.finding, made.explanation, made.before
    return {
        "status": made.ran.status,
        "tries": 0 if made.shrunk is None else made.shrunk.calls,
        "ended": None if made.shrunk is None else made.shrunk.ended,
        "label": finding.label,
        "smallest": finding.to_json(),
        "small_summands": finding.left.summands,
        "small_compared": found.compared,
        "differing": len(found.differing),
        "max_ulp": found.max_ulp,
        "causes": found.causes,
        "replayed": found.replayed,
        "emulated": made.shown,
        "lines": len(made.script.splitlines()),
        "found_causes": None if before is None else before.causes,
        "kept_cause": (made.kept or {}).get("cause"),
    }
