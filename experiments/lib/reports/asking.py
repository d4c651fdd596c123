"""Runs every question of every report on every target, and reduces the cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from lib.reports.answers import (
    Answer,
    Conventions,
    Pair,
    Question,
    Report,
    answer,
    smallest,
)
from probe.case.errors import InputError, NotASum, TargetError
from probe.sweep.campaign import Campaign, CampaignPart, Row, Sessions, Tally, case_row
from probe.sweep.store import Store
from probe.sweep.store.results import load
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import Tell
from probe.targets.target import Target

Asked = tuple[Report, Question]
Key = tuple[str, str, str]


def ask(
    reports: Sequence[Report],
    targets: Sequence[Target],
    store: Store,
    experiment: str,
    progress: Tell | None = None,
    sessions: Callable[[Target], AnySession] = open_session,
) -> Tally:
    """Runs every report's questions on every target, and stores ``reports`` and ``findings``.

    The smallest case is looked for on the report's ``home`` and, where that does not differ, on
    the first target that does. What is stored of the same run is not run again. What a target
    refuses becomes a row of ``failures``. Ctrl-C leaves with what there is.
    """
    columns = ("thread", "title", "answer", "home", "reason")
    rows = [{name: getattr(one, name) or None for name in columns} for one in reports]
    store.append("reports", [row | {"number": n} for n, row in enumerate(rows)])
    store.flush()
    asked = [(one, question) for one in reports for question in one.questions]
    with Sessions(sessions) as running:
        job = _Asking(asked, running, store, experiment, progress)
        job.run([(target, asked) for target in dict.fromkeys(targets)])
        try:
            if not job.tally.interrupted:
                job.smallest()
        except KeyboardInterrupt:
            job.tally.interrupted = True
    store.flush()
    return job.tally


class _Asking(Campaign[Asked]):
    """``rows``: findings by target, thread and question. Targets that others need stay up."""

    refusals = (TargetError, InputError, NotASum)

    def __init__(
        self,
        asked: Sequence[Asked],
        running: Sessions,
        store: Store,
        experiment: str,
        progress: Tell | None,
    ) -> None:
        super().__init__(store, experiment, progress, self._only, close=False)
        self.asked, self.running = asked, running
        origins = {q.origin for _, q in asked if isinstance(q, Conventions) and q.origin}
        self.origins = [Target.parse(text) for text in sorted(origins)]
        self.stored = _stored(store)
        self.rows: dict[Key, Row] = {}

    def _only(self, target: Target) -> AnySession:
        """Returns the session of a target, without those of the targets before."""
        self.running.close(target, *self.origins)
        return self.running.get(target)

    def origin(self, text: str) -> AnySession:
        """Returns a started session of another target."""
        return self.running.of(Target.parse(text))

    def ask(self, part: CampaignPart[Asked], question: Asked) -> None:
        """Puts one question of one target, unless it is stored."""
        report, asked = question
        key = (part.run_id, report.thread, asked.text)
        if key in self.stored:
            self.rows[part.target.text, report.thread, asked.text] = self.stored[key]
            self.tally.before += 1
            return
        found = answer(asked, part.session, self.origin)
        if found is not None:
            self._answered(part, report, asked, found)

    def _answered(
        self, part: CampaignPart[Asked], report: Report, asked: Question, found: Answer
    ) -> None:
        """Stores an answer."""
        self.keep("cases", [case_row(found.left), case_row(found.right)])
        row: Row = {"run_id": part.run_id, "thread": report.thread, "target": part.target.text}
        row |= {"question": asked.text, "case_id": found.left.id, **found.row()}
        if isinstance(asked, Pair):
            row |= {name: getattr(asked, name) for name in ("vary", "at", "against")}
        else:
            row["against_case_id"] = found.right.id
        if isinstance(asked, Conventions) and asked.origin:
            # the finding is the target's; the side that it is held against is the origin's
            row["against_target"] = asked.origin
        self._add(row)
        self.tally.found += 1

    def _add(self, row: Row) -> None:
        """Stores a row of ``findings``, which replaces the one that it has the keys of."""
        self.keep("findings", row)
        self.rows[row["target"], row["thread"], row["question"]] = row

    def place(self, question: Asked) -> Row:
        """Returns where a question failed; stores its case."""
        case = question[1].left
        self.keep("cases", case_row(case))
        return {"case_id": case.id, "vary": "length", "at": case.length}

    def smallest(self) -> None:
        """Looks for the smallest case of every question, on one target that differs."""
        for report, asked in self.asked:
            rows = self._differing(report, asked)
            if rows and not any(row.get("smallest") for row in rows):
                self._shrink(report, asked, rows)

    def _differing(self, report: Report, asked: Question) -> list[Row]:
        """Returns the rows of a question that differ: the report's home first, then its library."""
        key, library = (report.thread, asked.text), report.home.split(",")[0]
        rows = [row for (_, *mine), row in self.rows.items() if tuple(mine) == key]

        def order(row: Row) -> tuple[bool, bool]:
            return row["target"] != report.home, row["target"].split(",")[0] != library

        return sorted([row for row in rows if row["differing"]], key=order)

    def _shrink(self, report: Report, asked: Question, rows: Sequence[Row]) -> None:
        """The smallest case on the first of these targets that gives one."""
        for row in rows:
            part = self.parts[row["target"]]
            origin = getattr(asked, "origin", "")
            self.running.close(part.target, *([Target.parse(origin)] if origin else []))
            part.tell(0, f"{report.thread}: smallest")
            try:
                found = smallest(asked, self.running.of(part.target), self.origin)
            except self.refusals as error:
                part.fail(error, self.place((report, asked)))
                continue
            if found is not None:
                self._add(row | {"smallest": found})
                if self.store is not None:
                    self.store.flush()
                return


def _stored(store: Store) -> dict[Key, Row]:
    """Returns the findings of the store by run, thread and question."""
    found = {}
    for row in load(store.path).arrow("findings").drop_columns("machine").to_pylist():
        whole = {name: json.loads(row[name]) for name in ("causes", "smallest") if row[name]}
        found[row["run_id"], row["thread"], row["question"]] = row | whole
    return found
