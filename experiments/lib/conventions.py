"""Reveals which inputs every output reads, for many cases on many targets, and stores it.

Half of the reports that look like numerical bugs are conventions. What is stored here is read off
the targets; whether it is what the case's padding says stands beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from lib import frame
from probe.case import floats
from probe.case.case import Case
from probe.explain.runs import outputs_of_call
from probe.order.masks import SessionOperator
from probe.order.windows import as_predicted, flat_pool_windows, reveal_pool, reveal_windows
from probe.sweep.campaign import Campaign, CampaignPart, Row, Tally, case_row
from probe.sweep.store import Store
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import Tell
from probe.targets.target import Target


def answered(store: Path, name: str, questions: Iterable[tuple[str, Case]]) -> bool:
    """``measure`` for a script, of target texts; whether Ctrl-C ended it."""
    with Store.here(store) as kept, frame.bar(name) as progress:
        asked = [(Target.parse(text), case) for text, case in questions]
        return frame.told(measure(asked, kept, name, progress), "cases read")


def measure(
    questions: Iterable[tuple[Target, Case]],
    store: Store,
    experiment: str | None = None,
    progress: Tell | None = None,
    sessions: Callable[[Target], AnySession] = open_session,
) -> Tally:
    """Reads windows and outputs of every case (its length set) on its target, and stores both.

    Adds ``runs``, ``cases``, ``windows`` and ``outputs``; what a target refuses becomes a row of
    ``failures``. What is stored of the same run is not repeated. Ctrl-C leaves with what there is.
    """
    asked = sorted(dict.fromkeys(questions), key=lambda question: question[0])
    store.flush()
    job = _Reading(store, experiment, progress, sessions)
    job.stored = {(str(key[0]), str(key[1])) for key in store.done_keys("windows")}
    groups = itertools.groupby(asked, key=lambda question: question[0])
    return job.run([(target, [case for _, case in group]) for target, group in groups])


class _Reading(Campaign[Case]):
    """``stored``: (run, case) pairs whose windows are in the store."""

    stored: set[tuple[str, str]]

    def place(self, question: Case) -> Row:
        """Returns where a case failed."""
        return {"case_id": question.id, "vary": "length", "at": question.length}

    def ask(self, part: CampaignPart[Case], question: Case) -> None:
        """Reads one case, unless it is stored."""
        if (part.run_id, question.id) in self.stored:
            self.tally.before += 1
            return
        self.keep("cases", case_row(question))
        windows, values = read(part.session, question)
        named = {"run_id": part.run_id, "case_id": question.id, "target": part.target.text}
        for table, rows in (("outputs", values), ("windows", windows)):
            self.keep(table, [named | row for row in rows])
        self.tally.found += 1


def read(session: AnySession, case: Case) -> tuple[list[Row], list[Row]]:
    """Rows of ``windows`` and ``outputs`` of one case, without their run, case and target."""
    pooled, counted = None, None
    if case.pool:
        pooled = reveal_pool(session, case)
        revealed = flat_pool_windows(case, pooled)
        counted = pooled.counted if case.pool == "avg" else None
    else:
        revealed = reveal_windows(SessionOperator(session, case))
    said = as_predicted(case)
    rows = []
    for group, position in np.ndindex(revealed.shape[:2]):
        here = revealed[group, position]
        row = {"group": group, "position": position, "reads": here.tolist()}
        row["as_said"] = bool((np.sort(here) == np.sort(said[group, position])).all())
        if pooled is None:
            row["as_said"] = bool((here == said[group, position]).all())
        elif counted is not None:
            row["counted"] = int(counted[position % len(counted)])
        if pooled is not None:
            row["pad_with"] = pooled.pad_with or None
        rows.append(row)
    return rows, _outputs(session, case)


def _outputs(session: AnySession, case: Case) -> list[Row]:
    bits = floats.to_bits(outputs_of_call(session, case), case.dtype)
    rows = []
    for index, place in enumerate(np.ndindex(shape := case.output_shape())):
        batch, *spatial, channel = place
        row = int(np.ravel_multi_index(spatial[:-1], shape[1:-2])) if spatial[1:] else 0
        named = {"batch": batch, "row": row, "position": spatial[-1], "channel": channel}
        bit = {"index": index, **named, "bits": int(bits.reshape(-1)[index])}
        rows.append({"vary": "length", "at": case.length, **bit})
    return rows
