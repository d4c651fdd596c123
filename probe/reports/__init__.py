"""Public reports of runs that ought to agree and don't: asked of every target, explained, shrunk.

The threads themselves are data of an experiment; nothing here knows a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from probe.errors import InputError, NotASum, TargetError
from probe.launch import AnySession, open_session
from probe.reports.answers import Answer, answer
from probe.reports.questions import Conventions, Operators, Pair, Question, Report
from probe.reports.smallest import smallest
from probe.store import Store
from probe.store.results import load
from probe.sweep import Progress, observations
from probe.target import Target

__all__ = ["Asked", "Conventions", "Operators", "Pair", "Report", "ask"]

Row = dict[str, Any]


@dataclass
class Asked:
    """What ``ask`` did: findings stored now and before, and failures by target."""

    found: int = 0
    before: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False


def ask(
    reports: Sequence[Report],
    targets: Sequence[Target],
    store: Store,
    experiment: str,
    progress: Callable[[Progress], None] | None = None,
    sessions: Callable[[Target], AnySession] = open_session,
) -> Asked:
    """Asks every report's questions of every target, and stores ``reports`` and ``findings``.

    The smallest case is looked for on the report's ``home`` and, where that does not differ, on
    the first target that does. What is stored of the same run is not asked again. What a target
    refuses becomes a row of ``failures``. Ctrl-C leaves with what there is.
    """
    columns = ("thread", "title", "answer", "home", "reason")
    rows = [{name: getattr(one, name) or None for name in columns} for one in reports]
    store.append("reports", [row | {"number": n} for n, row in enumerate(rows)])
    store.flush()
    job = _Job(store, experiment, progress, sessions, _stored(store))
    job.asked = [(one, question) for one in reports for question in one.questions]
    targets = list(dict.fromkeys(targets))
    job.total = len(job.asked) * len(targets)
    try:
        for target in targets:
            job.target(target)
        job.smallest(reports)
    except KeyboardInterrupt:
        job.done.interrupted = True
    finally:
        job.close()
    store.compact()
    return job.done


def _stored(store: Store) -> dict[tuple[str, str, str], Row]:
    """The findings of the store by run, thread and question."""
    found = {}
    for row in load(store.path).arrow("findings").drop_columns("machine").to_pylist():
        whole = {name: json.loads(row[name]) for name in ("causes", "smallest") if row[name]}
        found[row["run_id"], row["thread"], row["question"]] = row | whole
    return found


@dataclass
class _Job:
    """One ``ask`` at work."""

    store: Store
    experiment: str
    progress: Callable[[Progress], None] | None
    sessions: Callable[[Target], AnySession]
    stored: dict[tuple[str, str, str], Row]
    asked: list[tuple[Report, Question]] = field(default_factory=list)
    total: int = 0
    count: int = 0
    done: Asked = field(default_factory=Asked)
    open: dict[str, AnySession] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)

    def session(self, text: str) -> AnySession:
        """A started session of a target, kept until ``close``."""
        if text not in self.open:
            self.open[text] = self.sessions(Target.parse(text))
        session = self.open[text]
        return session if session.alive else session.start()

    def close(self, *kept: str) -> None:
        """Ends all sessions but those of the named targets."""
        for text in [one for one in self.open if one not in kept]:
            self.open.pop(text).close()

    def run(self, target: Target) -> str:
        """The target's run, stored when first asked for."""
        if target.text not in self.runs:
            session = self.open[target.text]
            facts = (target, session.facts, session.variables, self.experiment)
            row = observations.run_row(*facts)
            self.store.append("runs", row)
            self.runs[target.text] = row["run_id"]
        return self.runs[target.text]

    def target(self, target: Target) -> None:
        """All questions of one target."""
        origins = {q.origin for _, q in self.asked if isinstance(q, Conventions) and q.origin}
        self.close(*origins)
        try:
            self.session(target.text)
        except TargetError as error:
            self.fail(target, None, error)
            self.tell(target, "", len(self.asked))
            return
        for report, question in self.asked:
            self.question(target, report, question)
            self.tell(target, report.thread, 1)
        self.store.flush()

    def question(self, target: Target, report: Report, question: Question) -> None:
        """One question of one target, unless it is stored."""
        key = (self.run(target), report.thread, question.text)
        if key in self.stored:
            self.rows[target.text, report.thread, question.text] = self.stored[key]
            self.done.before += 1
            return
        try:
            found = answer(question, self.session(target.text), self.session)
        except (TargetError, InputError, NotASum) as error:
            self.fail(target, question, error)
            return
        if found is not None:
            self.keep(target, report, question, found)

    def keep(self, target: Target, report: Report, question: Question, found: Answer) -> None:
        """Stores an answer."""
        self.store.append("cases", [observations.case_row(c) for c in (found.left, found.right)])
        row: Row = {"run_id": self.run(target), "thread": report.thread, "target": target.text}
        row |= {"question": question.text, "case_id": found.left.id, **found.row()}
        if isinstance(question, Pair):
            row |= {name: getattr(question, name) for name in ("vary", "at", "against")}
        else:
            row["against_case_id"] = found.right.id
        if isinstance(question, Conventions) and question.origin:
            # the finding is the target's; the side that it is held against is the origin's
            row["against_target"] = question.origin
        self.add(row)
        self.done.found += 1

    def add(self, row: Row) -> None:
        """Stores a row of ``findings``, which replaces the one that it has the keys of."""
        self.store.append("findings", row)
        self.rows[row["target"], row["thread"], row["question"]] = row

    def smallest(self, reports: Sequence[Report]) -> None:
        """Looks for the smallest case of every question, on one target that differs."""
        for report in reports:
            for question in report.questions:
                rows = self.differing(report, question)
                if rows and not any(row.get("smallest") for row in rows):
                    self.shrink(report, question, rows)

    def differing(self, report: Report, question: Question) -> list[Row]:
        """The rows of a question that differ: the report's home first, then its library."""
        key, library = (report.thread, question.text), report.home.split(",")[0]
        rows = [row for (_, *mine), row in self.rows.items() if tuple(mine) == key]

        def order(row: Row) -> tuple[bool, bool]:
            return row["target"] != report.home, row["target"].split(",")[0] != library

        return sorted([row for row in rows if row["differing"]], key=order)

    def shrink(self, report: Report, question: Question, rows: Sequence[Row]) -> None:
        """The smallest case on the first of these targets that gives one."""
        for row in rows:
            target = Target.parse(row["target"])
            self.close(target.text, getattr(question, "origin", ""))
            self.tell(target, f"{report.thread}: smallest", 0)
            try:
                found = smallest(question, self.session(target.text), self.session)
            except (TargetError, InputError, NotASum) as error:
                self.fail(target, question, error)
                continue
            if found is not None:
                self.add(row | {"smallest": found})
                self.store.flush()
                return

    def fail(self, target: Target, question: Question | None, error: Exception) -> None:
        """Stores what a target refused."""
        case = None if question is None else question.sides(target)[0]
        if case is not None:
            self.store.append("cases", observations.case_row(case))
        row: Row = {"run_id": self.run(target), "target": target.text}
        row |= {"case_id": None if case is None else case.id}
        row |= {"vary": None if case is None else "length", "at": case and case.length}
        row["kind"] = getattr(error, "kind", "not-a-sum")
        row["message"] = getattr(error, "why", str(error))
        row["stderr"] = getattr(error, "stderr", None) or None
        self.store.append("failures", row)
        self.done.failures.setdefault(target.text, []).append(str(error))

    def tell(self, target: Target, what: str, more: int) -> None:
        """Reports where the work is."""
        self.count += more
        if self.progress is not None:
            failures = sum(map(len, self.done.failures.values()))
            self.progress(Progress(target.text, what, self.count, self.total, failures))
