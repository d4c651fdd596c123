"""Draws stored findings at random, and confirms each by its script in fresh processes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

from lib.answering import Answer, Answering
from lib.frame import Experiment
from probe.case.case import Case
from probe.case.errors import ProbeError, StoreError
from probe.explain.runs import ComparedShapes, Finding
from probe.report import folder
from probe.report.folder import Failing
from probe.report.report import Reproduction
from probe.sweep import stored
from probe.sweep.campaign import CampaignPart, Row, Tally, case_row
from probe.sweep.stored import load
from probe.targets import machine

PROCESSES = 1
"""Fresh ones for each script, where `probe report` takes three: TensorFlow's cost seconds."""


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
    words = [" ".join([store.name, *(str(row[name]) for name in names)]) for row in rows]
    hashes = [hashlib.sha256(text.encode()).digest() for text in words]
    rows = [row for _, row in sorted(zip(hashes, rows, strict=True), key=itemgetter(0))]
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


def attempt(experiment: Experiment, drawn: Sequence[Drawn]) -> Tally:
    """Reproduces findings of one source in a fresh process each; ``found``: those confirmed.

    What a script of the same run has confirmed is not tried again.
    """
    counted = f"of {len(drawn)} findings of {drawn[0].source} confirmed"
    asked = sorted(((one.target, one) for one in drawn), key=lambda pair: pair[0])
    return experiment.ask(_Trying, asked, counted)


class _Trying(Answering[Drawn]):
    """``failed``: the target's, for all its findings."""

    table, reasons = "reproductions", (ProbeError,)
    key = ("source", "case_id", "target", "vary", "at", "against")
    failed: Failing

    def begin(self, part: CampaignPart[Drawn]) -> None:
        self.failed = Failing(part.session, part.session)

    @cached_property
    def stored(self) -> set[tuple[Any, ...]]:
        assert self.store is not None
        rows = stored.read_table(self.store.path, self.table).to_pylist()
        names = ("run_id", *self.key)
        return {tuple(row[name] for name in names) for row in rows if row["confirmed"]}

    def columns(self, question: Drawn) -> Row:
        shapes = question.shapes
        columns: Row = {name: getattr(shapes, name) for name in ("vary", "at", "against")}
        columns |= {"case_id": shapes.case.id, "found": question.compared, "processes": PROCESSES}
        columns |= {"source": question.source, "number": question.number}
        return columns | {"confirmed": False}

    def answer(self, part: CampaignPart[Drawn], question: Drawn) -> Answer:
        self.keep("cases", case_row(question.shapes.case))
        finding, runs = Finding.drawn_from(question.shapes), self.failed.runs
        options = folder.ReportOptions(times=PROCESSES)
        made = folder.proved_reproduction(self.failed, finding, options)
        if made.shrunk is not None and made.shrunk.ended == "interrupted":
            raise KeyboardInterrupt
        row = {"confirmed": True, "runs": self.failed.runs - runs, **told(made)}
        return {"reproductions": row}

    def take(self, part: CampaignPart[Any], question: Drawn, answer: Any, seconds: float) -> None:
        super().take(part, question, answer, seconds)
        if isinstance(answer, str):
            self.tally.failures.setdefault(part.target.text, []).append(answer)


def told(made: Reproduction) -> Row:
    """What is stored of a proved reproduction: columns of ``reproductions``."""
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
