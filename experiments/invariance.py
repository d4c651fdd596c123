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
from itertools import groupby
from pathlib import Path
from typing import Any

from lib import frame
from lib.invariance import Counted, Made, Subject, backwards, counted, subjects, timed
from probe import Store, Target, load
from probe.case.errors import ProbeError
from probe.sweep import stored
from probe.sweep.campaign import Campaign, CampaignPart

NAME = "invariance"

REPEATS = 5
QUICK = (backwards(33, 4, 16), backwards(20, 7, 5))

Row = dict[str, Any]


def bits(subject: Subject, like: str, made: Made) -> Iterator[Row]:
    """Yields a row an axis and number of threads; with one thread, a sample of the sizes."""
    for threads in made.numbers:
        made.threads(threads)
        for axis, groups in made.axes.items():
            start = time.monotonic()
            found = counted(made, groups(threads != made.numbers[0]), subject.dtype)
            yield row(subject, like, made, axis, threads, found, start)
    made.threads(made.numbers[0])


def row(
    subject: Subject, like: str, made: Made, axis: str, threads: int, found: Counted, start: float
) -> Row:
    """Returns a row of ``invariances``."""
    notes = list(getattr(getattr(made.report, "table", None), "notes", ()))
    kept: Row = {"kept": found.kept if like == "largest" else None}
    return (
        {"subject": subject.name, "target": subject.target, "axis": axis, "like": like}
        | {"threads": threads, "kind": subject.kind, "dtype": subject.dtype}
        | found.columns()
        | kept
        | {"left": len(getattr(made.report, "left", ())), "notes": "; ".join(notes) or None}
        | {"seconds": time.monotonic() - start}
    )


def times(subject: Subject, made: Made) -> Iterator[Row]:
    """Yields rows of ``measurements``: seconds of a call, in turns."""
    for threads in made.numbers:
        made.threads(threads)
        for size in made.timed[0]:
            for way, repeat, seconds in timed(made, size, REPEATS):
                one: Row = {"subject": subject.name, "variant": f"{way}, {threads} threads"}
                yield one | {"size": size, "repeat": repeat, "value": seconds, "unit": "s"}
    made.threads(made.numbers[0])


class Measuring(Campaign[Subject]):
    """Measures subjects that are not stored yet, one after the other."""

    refusals = (ProbeError, RuntimeError)

    def ask(self, part: CampaignPart[Subject], question: Subject) -> None:
        """Stores all that is asked of a subject, at once when all is known."""
        assert self.store is not None
        rows = stored.read_table(self.store.path, "invariances").to_pylist()
        if (part.run_id, question.name) in {(row["run_id"], row["subject"]) for row in rows}:
            self.tally.before += 1
            return
        rows: list[Row] = []
        seconds: list[Row] = []
        for like in question.likes:
            made = question.make(like)
            rows += bits(question, like, made)
            if like == "largest":
                seconds += times(question, made)
        run = {"run_id": part.run_id}
        self.keep("invariances", [row | run for row in rows])
        self.keep("measurements", [row | run for row in seconds])
        self.store.flush()
        self.tally.found += 1


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    frame.refuse_shards()
    chosen = sorted(QUICK if quick else subjects(), key=lambda one: one.target)
    asked = groupby(chosen, key=lambda one: one.target)
    with Store.here(store) as kept, frame.bar("layers and models") as tell:
        done = Measuring(kept, NAME, tell).run((Target.parse(t), [*some]) for t, some in asked)
    by = ["kind", "axis"]
    print(load(store).invariances.groupby(by)[["compared", "plain", "differing"]].sum())
    return frame.told(done, "layers and models measured")


if __name__ == "__main__":
    main()
