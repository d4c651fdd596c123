"""Does the invariant mode keep the bits at every batch, length and place? Layers and models.

Fifty layers at every size from 1 to 4,096, with three sets of operands that show nearly every other
order, held at every place; models at batches and paddings. Counted are numbers that change,
in the library as it is and in the invariant mode; both are timed in turns.
Meant for an idle machine with two processors: a quarter of an hour.

Writes results/invariance/<machine>/*.parquet; notebooks/invariance.ipynb draws them. What is stored
already is not measured again; Ctrl-C and --time end it after the subject that is being measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from lib import frame
from lib.answering import Answer, Answering
from lib.invariance import Made, Subject, backwards, counted, subjects, timed
from probe import load
from probe.case.errors import ProbeError
from probe.sweep.campaign import CampaignPart, Row

REPEATS = 5
QUICK = (backwards(33, 4, 16), backwards(20, 7, 5))


def bits(subject: Subject, like: str, made: Made) -> Iterator[Row]:
    """A row an axis and number of threads; with one thread, a sample of the sizes."""
    notes = list(getattr(getattr(made.report, "table", None), "notes", ()))
    for threads in made.numbers:
        made.threads(threads)
        for axis, groups in made.axes.items():
            start = time.monotonic()
            found = counted(made, groups(threads != made.numbers[0]), subject.dtype)
            row: Row = {"axis": axis, "like": like, "threads": threads} | found.columns()
            row |= {} if like == "largest" else {"kept": None}
            row |= {
                "left": len(getattr(made.report, "left", ())),
                "notes": "; ".join(notes) or None,
            }
            yield row | {"seconds": time.monotonic() - start}
    made.threads(made.numbers[0])


def times(made: Made) -> Iterator[Row]:
    """Rows of ``measurements``: seconds of a call, in turns."""
    for threads in made.numbers:
        made.threads(threads)
        for size in made.timed[0]:
            for way, repeat, seconds in timed(made, size, REPEATS):
                one: Row = {"variant": f"{way}, {threads} threads", "size": size, "unit": "s"}
                yield one | {"repeat": repeat, "value": seconds}
    made.threads(made.numbers[0])


class Measuring(Answering[Subject]):
    """Measures subjects one after the other; all that is asked of one is stored at once."""

    table, key = "invariances", ("subject",)
    refusals = (ProbeError, RuntimeError)

    def columns(self, question: Subject) -> Row:
        return {"subject": question.name, "kind": question.kind, "dtype": question.dtype}

    def answer(self, part: CampaignPart[Subject], question: Subject) -> Answer:
        rows: list[Row] = []
        seconds: list[Row] = []
        for like in question.likes:
            made = question.make(like)
            rows += bits(question, like, made)
            if like == "largest":
                seconds += times(made)
        return {"invariances": rows, "measurements": seconds}


@frame.script
def main(experiment: frame.Experiment) -> None:
    frame.refuse_shards()
    chosen = sorted(QUICK if experiment.quick else subjects(), key=lambda one: one.target)
    asked = [(one.target, one) for one in chosen]
    try:
        experiment.ask(Measuring, asked, "layers and models measured")
    finally:
        rows = load(experiment.folder).invariances.groupby(["kind", "axis"])
        print(rows[["compared", "plain", "differing"]].sum())


if __name__ == "__main__":
    main()
