"""Does the invariant mode keep the bits at every batch, length and place? Layers and models.

Fifty layers at every size from 1 to 4,096, with three sets of operands that show nearly every other
order, held at every place; models at batches, orders and paddings. Counted are numbers that change,
in the library as it is and in the invariant mode; both are timed in turns, beside
`probe.stable`.
Meant for an idle machine with two processors: a quarter of an hour.

Writes results/invariance/<machine>/*.parquet; notebooks/invariance.ipynb draws them. What is stored
already is not measured again; Ctrl-C and --time end it after the subject that is being measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lib import frame
from lib.invariance import Counted, Made, Subject, backwards, counted, subjects, timed
from probe import Store, Target, load
from probe.case.errors import ProbeError
from probe.sweep.campaign import run_row
from probe.sweep.printing import Output, table
from probe.targets import budget
from probe.targets.launch import open_session

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
    if len(made.numbers) > 1:
        start = time.monotonic()
        found = across(made, subject.dtype)
        yield row(subject, like, made, "threads", made.numbers[-1], found, start)
    made.threads(made.numbers[0])


def across(made: Made, dtype: str) -> Counted:
    """Returns the first answer of each axis with the first number of threads against the last."""
    found = Counted()
    for groups in made.axes.values():
        group = next(groups(True))
        if group.before is not None:
            group.before()
        sides = []
        for threads in (made.numbers[0], made.numbers[-1]):
            made.threads(threads)
            sides.append([made.read(way(*group.whole)) for way in (made.plain, made.invariant)])
        plain, mine = zip(*sides, strict=True)
        found.add(made.numbers[-1], plain, mine, dtype)
    return found


def row(
    subject: Subject, like: str, made: Made, axis: str, threads: int, found: Counted, start: float
) -> Row:
    """Returns a row of ``invariances``."""
    notes = list(getattr(getattr(made.report, "table", None), "notes", ()))
    kept: Row = {"kept": found.kept if like == "largest" and axis != "threads" else None}
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


def measure(subject: Subject) -> tuple[list[Row], list[Row]]:
    """Returns all that is asked of a subject: rows of ``invariances`` and of ``measurements``."""
    rows: list[Row] = []
    seconds: list[Row] = []
    for like in subject.likes:
        made = subject.make(like)
        rows += bits(subject, like, made)
        if like == "largest":
            seconds += times(subject, made)
    return rows, seconds


def measure_all(chosen: Iterable[Subject], store: Path, kept: Store, out: Output) -> bool:
    """Subjects that are not stored yet, one after the other; whether Ctrl-C ended it."""
    runs: dict[str, Row] = {}
    with out.progress("layers and models") as tell:
        every = list(chosen)
        done = stored(store)
        for number, subject in enumerate(every):
            tell(number, len(every), subject.name)
            if subject.target not in runs:
                with open_session(Target.parse(subject.target)) as session:
                    place = session.target, session.facts, session.variables
                    runs[subject.target] = run_row(*place, "invariance")
            run = runs[subject.target]
            if (run["run_id"], subject.name) in done:
                continue
            if (allowed := budget.current_budget()) and allowed.over:
                allowed.left_out += 1
                continue
            try:
                rows, seconds = measure(subject)
            except KeyboardInterrupt:
                return True
            except (ProbeError, RuntimeError) as error:
                out.note(f"{subject.name}: {str(error).splitlines()[0]}")
                continue
            kept.append("runs", run)
            kept.append("invariances", [one | {"run_id": run["run_id"]} for one in rows])
            kept.append("measurements", [one | {"run_id": run["run_id"]} for one in seconds])
            kept.flush()
    return False


def stored(store: Path) -> set[tuple[str, str]]:
    """Run and name of every subject that has its rows."""
    if not list(store.glob("*/*.parquet")):
        return set()
    found = load(store).invariances
    return set(zip(found.run_id, found.subject, strict=True))


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    frame.refuse_shards()
    out = Output()
    with Store.here(store) as kept:
        interrupted = measure_all(QUICK if quick else subjects(), store, kept, out)
    show(store, out)
    return interrupted


def show(store: Path, out: Output) -> None:
    """By kind: subjects, compared and differing numbers."""
    found = load(store).invariances
    right = ("subjects", "compared", "plain", "invariant")
    shown = table("kind", "axis", *right, right=right)
    for (kind, axis), rows in found.groupby(["kind", "axis"]):
        sums = rows[["compared", "plain", "differing"]].sum()
        counts = (f"{int(one):,}" for one in sums)
        shown.add_row(kind, axis, f"{rows.subject.nunique()}", *counts)
    out.results.print(shown)


if __name__ == "__main__":
    main()
