"""Which inputs every output reads, for many cases on many targets: revealed, and stored.

Half of the reports that look like numerical bugs are conventions. What is stored here is read off
the targets; whether it is what the case's padding says stands beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe import floats, operands
from probe.case import Case
from probe.case.operators import OPERATORS
from probe.errors import NotASum, TargetError
from probe.launch import AnySession, open_session
from probe.order.masks import SessionOperator
from probe.order.windows import as_windows, reveal_pool, reveal_windows
from probe.store import Store
from probe.sweep import Progress, observations
from probe.target import Target
from probe.window import Geometry

Row = dict[str, Any]


@dataclass
class Measured:
    """What ``measure`` did: cases read and stored, those stored before, and failures by target."""

    read: int = 0
    before: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False


def measure(
    questions: Iterable[tuple[Target, Case]],
    store: Store,
    experiment: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Measured:
    """Reads windows and outputs of every case (its length set) on its target, and stores both.

    Adds ``runs``, ``cases``, ``windows`` and ``outputs``; what a target refuses becomes a row of
    ``failures``. What is stored of the same run is not repeated. Ctrl-C leaves with what there is.
    """
    found, asked = Measured(), list(dict.fromkeys(questions))
    store.flush()
    job = _Job(store, experiment, found, progress, len(asked), _stored(store))
    try:
        for target, group in itertools.groupby(sorted(asked, key=_by_target), key=_by_target):
            job.target(target, [case for _, case in group])
    except KeyboardInterrupt:
        found.interrupted = True
    store.flush()
    return found


def _by_target(question: tuple[Target, Case]) -> Target:
    return question[0]


def _stored(store: Store) -> set[tuple[str, str]]:
    """(run, case) pairs whose windows are in the store."""
    return {(str(key[0]), str(key[1])) for key in store.done_keys("windows")}


@dataclass
class _Job:
    """One ``measure`` at work."""

    store: Store
    experiment: str | None
    found: Measured
    progress: Callable[[Progress], None] | None
    total: int
    stored: set[tuple[str, str]]
    done: int = 0

    def target(self, target: Target, cases: Sequence[Case]) -> None:
        """All cases of one target, in one process."""
        left, session = list(cases), open_session(target)
        try:
            session.start()
            run = self._run(target, session)
            while left:
                if (run, left[0].id) in self.stored:
                    self.found.before += 1
                else:
                    self._case(run, session, left[0])
                self._tell(target, left.pop(0).label, 1)
        except TargetError as error:  # it does not start, or not again after it was lost
            self._failed(self._run(target, session), target, None, error)
            self._tell(target, "", len(left))
        finally:
            session.close()

    def _run(self, target: Target, session: AnySession) -> str:
        row = observations.run_row(target, session.facts, session.variables, self.experiment)
        self.store.append("runs", row)
        return str(row["run_id"])

    def _case(self, run: str, session: AnySession, case: Case) -> None:
        self.store.append("cases", observations.case_row(case))
        try:
            windows, outputs = read(session, case)
        except (TargetError, NotASum) as error:
            self._failed(run, session.target, case, error)
            if not session.alive:
                session.start()
            return
        named = {"run_id": run, "case_id": case.id, "target": session.target.text}
        self.store.append("outputs", [named | row for row in outputs])
        self.store.append("windows", [named | row for row in windows])
        self.found.read += 1

    def _failed(self, run: str, target: Target, case: Case | None, error: Exception) -> None:
        self.store.append("failures", failure_row(run, target, case, error))
        self.found.failures.setdefault(target.text, []).append(str(error))

    def _tell(self, target: Target, case: str, more: int) -> None:
        self.done += more
        if self.progress is not None:
            failures = sum(map(len, self.found.failures.values()))
            self.progress(Progress(target.text, case, self.done, self.total, failures))


def failure_row(run: str, target: Target, case: Case | None, error: Exception) -> Row:
    """The row of ``failures`` of a target that could not be read."""
    return {
        "run_id": run,
        "case_id": None if case is None else case.id,
        "target": target.text,
        "vary": None if case is None else "length",
        "at": None if case is None else case.length,
        "kind": getattr(error, "kind", "not-a-sum"),
        "message": getattr(error, "why", str(error)),
        "stderr": getattr(error, "stderr", None) or None,
    }


def read(session: AnySession, case: Case) -> tuple[list[Row], list[Row]]:
    """Rows of ``windows`` and ``outputs`` of one case, without their run, case and target."""
    pooled, counted = None, None
    if OPERATORS[case.op].pool:
        pooled = reveal_pool(session, case)
        revealed = as_windows(case, pooled)
        counted = pooled.counted if OPERATORS[case.op].pool == "avg" else None
    else:
        revealed = reveal_windows(SessionOperator(session, case))
    said = predicted(case)
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


def predicted(case: Case) -> np.ndarray:
    """Where the case's own padding puts its windows: int64 (groups, positions, leaves), -1 pads.

    Flat indices into x; positions are batch entries times output positions, as in
    ``reveal_windows``.
    """
    geometry = Geometry.of(case)
    width = case.filters // case.groups
    entries = np.arange(case.batch)[:, None, None] * (np.prod(case.input_shape()) // case.batch)
    found = []
    for group in range(case.groups):
        reads = geometry.gather_indices(group * width)
        met = np.where(reads < 0, -1, reads + entries)
        found.append(met.reshape(-1, reads.shape[1]))
    return np.stack(found)


def _outputs(session: AnySession, case: Case) -> list[Row]:
    x, w, b = operands.generate(case)
    arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
    _, found = session.request({"do": "run", "spec": case.spec()}, arrays)
    bits = floats.to_bits(found["y"], case.dtype)
    rows = []
    for index, place in enumerate(np.ndindex(bits.shape)):
        batch, *spatial, channel = place
        row = int(np.ravel_multi_index(spatial[:-1], bits.shape[1:-2])) if spatial[1:] else 0
        named = {"batch": batch, "row": row, "position": spatial[-1], "channel": channel}
        rows.append(
            {"vary": "length", "at": case.length, "index": index, **named, "bits": int(bits[place])}
        )
    return rows
