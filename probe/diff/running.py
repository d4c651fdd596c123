"""Repeats two runs of a model that is given inputs, for ``walk``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from probe.case.errors import Foreign, ProbeError, foreign
from probe.diff.functions import handed_values
from probe.diff.match import RunningMatch, Sides
from probe.diff.repeated import Arrays, Marks, independent, lacked, repeated_with_others
from probe.record.contract import Recorder
from probe.record.recording import Run, record_run

Recorders = Callable[[Arrays], Recorder]

# Finds which elements of two runs must agree; None: that can't be found by repeating them.
Matches = Callable[[Run, Run], RunningMatch | None]


class Repeats(Protocol):
    """What runs one side again, where its run was made."""

    def marks(self, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]) -> Marks:
        """Repeats a run of these inputs, with other content in these places."""

    def run(self, arrays: Arrays) -> Run:
        """Records it with other inputs."""


@dataclass
class Here:
    """A side that runs in this process. ``dtypes``: of inputs whose containers don't say."""

    recorder: Recorders
    dtypes: Mapping[str, str] | None = None

    def marks(self, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]) -> Marks:
        return repeated_with_others(run, self.recorder, arrays, dict(where), self.dtypes)

    def run(self, arrays: Arrays) -> Run:
        return record_run(self.recorder(arrays))


def by_running(
    recorder: Recorders | Repeats | tuple[Recorders | Repeats, Recorders | Repeats],
    inputs: tuple[Arrays, Arrays],
    dtypes: Mapping[str, str] | None = None,
) -> Matches:
    """Returns what finds which elements of two runs must agree.

    ``recorder``: gives a recorder of the model with other inputs, or repeats it where it ran; of
    two models one each. ``inputs``: of both runs, one a piece of the other. ``dtypes``: of inputs
    whose containers don't say. It returns None where that can't be found: inputs that are no pieces
    of each other, or no repetition that runs.
    """
    both = recorder if isinstance(recorder, tuple) else (recorder, recorder)
    repeats: list[Any] = [side if hasattr(side, "marks") else Here(side, dtypes) for side in both]
    found = lacked(inputs[1], inputs[0]), lacked(inputs[0], inputs[1])

    def match(left: Run, right: Run) -> RunningMatch | None:
        marks, before = list[Marks | None](), []
        for run, side, arrays, missing in zip((left, right), repeats, inputs, found, strict=True):
            if missing is None:
                return None
            where, start = missing
            before.append(start)
            some = any(mark.any() for mark in where.values())
            marks.append(side.marks(run, arrays, where) if some else None)
            if marks[-1] is not None and not marks[-1].repetitions:
                return None
        sides = Sides(
            (marks[0], marks[1]), (before[0], before[1]), again=again if inputs[0] else None
        )
        return RunningMatch((left, right), sides)

    def again() -> tuple[Run, Run] | None:
        larger = {
            name: max((arrays[name] for arrays in inputs), key=lambda array: array.size)
            for name in inputs[0]
        }
        other = independent(larger, dtypes)
        runs = []
        for side, arrays, missing in zip(repeats, inputs, found[::-1], strict=True):
            assert missing is not None
            cut = {}
            for name, array in arrays.items():
                there = ~missing[0][name] if missing[0][name].shape == other[name].shape else ...
                cut[name] = other[name][there].reshape(array.shape)
            try:
                runs.append(foreign(side.run, cut))
            except (Foreign, ProbeError):  # a model may raise what it likes at other numbers
                return None
        return runs[0], runs[1]

    return match


def behind_state(
    recorders: tuple[Recorders, Recorders],
    whole: Arrays,
    along: Mapping[str, int],
    piece: tuple[int, int, int],
    dtypes: Mapping[str, str] | None = None,
) -> Matches:
    """Returns what finds which elements of a piece behind its state and of the whole must agree.

    ``recorders``: of both, from inputs of the whole; ``along``: which axis of each is cut;
    ``piece``: where it begins and ends, and how long the whole is.
    """
    right = Here(recorders[1], dtypes)

    def marks(run: Run, start: int, stop: int) -> Marks | None:
        where = {name: np.zeros(array.shape, bool) for name, array in whole.items()}
        for name, axis in along.items():
            where[name][(slice(None),) * axis + (slice(start, stop),)] = True
        return right.marks(run, whole, where) if start < stop else None

    def again() -> tuple[Run, Run] | None:
        other = independent(whole, dtypes)
        try:
            ours, theirs = (foreign(lambda: record_run(make(other))) for make in recorders)  # noqa: B023
        except (Foreign, ProbeError):  # a model may raise what it likes at other numbers
            return None
        return ours, theirs

    def match(ours: Run, theirs: Run) -> RunningMatch:
        start, stop, total = piece
        sides = Sides((None, marks(theirs, stop, total)), again=again, piece=piece)
        sides.before = Fraction(0), Fraction(start, total)
        sides.own = None, marks(theirs, start, stop)
        sides.earlier = None, marks(theirs, 0, start)
        # what the state holds was computed by operations of the whole that the piece hasn't
        sides.handed = (), handed_values((ours, theirs), 0)[0]
        return RunningMatch((ours, theirs), sides)

    return match
