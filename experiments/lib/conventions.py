"""Reveals which inputs every output reads, for many cases on many targets, and stores it.

Half of the reports that look like numerical bugs are conventions. What is stored here is read off
the targets; whether it is what the case's padding says stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lib.answering import Answer, Answering, place
from lib.frame import Experiment
from probe.case import floats
from probe.case.case import Case
from probe.explain.runs import outputs_of_call
from probe.order.masks import SessionOperator
from probe.order.windows import as_predicted, flat_pool_windows, reveal_pool, reveal_windows
from probe.sweep.campaign import CampaignPart, Row, Tally, case_row
from probe.targets.launch import AnySession


def read_windows(experiment: Experiment, questions: Iterable[tuple[str, Case]]) -> Tally:
    """Reads windows and outputs of every case (its length set) on its target, and stores both."""
    return experiment.ask(_Reading, dict.fromkeys(questions), "cases read")


class _Reading(Answering[Case]):
    table, key = "windows", ("case_id",)

    def columns(self, question: Case) -> Row:
        return place(question)

    def place(self, question: Case) -> Row:
        self.keep("cases", case_row(question))
        return place(question)

    def answer(self, part: CampaignPart[Case], question: Case) -> Answer:
        windows, outputs = read(part.session, question), _outputs(part.session, question)
        return {"cases": case_row(question), "outputs": outputs, "windows": windows}


def read(session: AnySession, case: Case) -> list[Row]:
    """Rows of ``windows`` of one case, without their run, case and target."""
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
    return rows


def _outputs(session: AnySession, case: Case) -> list[Row]:
    bits = floats.to_bits(outputs_of_call(session, case), case.dtype)
    rows = []
    for index, at in enumerate(np.ndindex(shape := case.output_shape())):
        batch, *spatial, channel = at
        row = int(np.ravel_multi_index(spatial[:-1], shape[1:-2])) if spatial[1:] else 0
        named = {"batch": batch, "row": row, "position": spatial[-1], "channel": channel}
        rows.append({"index": index, **named, "bits": int(bits.reshape(-1)[index])})
    return rows
