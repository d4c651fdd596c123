"""Repeats two runs of a model that is given inputs, for ``walk``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from probe.case.errors import Foreign, ProbeError, foreign
from probe.diff import settled
from probe.diff.difference import NAMES
from probe.diff.match import RunningMatch, Runs, Sides
from probe.diff.pairing import near_share
from probe.diff.repeated import (
    Arrays,
    Marks,
    independent,
    lacked,
    repeated_with_others,
    unheard,
)
from probe.record.contract import Recorder
from probe.record.recording import Run, record_run

Recorders = Callable[[Arrays], Recorder]

# Finds which elements of two runs must agree; None: that can't be found by repeating them.
Matches = Callable[[Run, Run], RunningMatch | None]


class Repeats(Protocol):
    """What runs one side again, where its run was made."""

    def marks(self, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]) -> Marks:
        """Repeats a run of these inputs, with other content in these places."""

    def side(self, arrays: Arrays) -> Run:
        """Records it with other inputs."""


@dataclass
class Here:
    """A side that runs in this process. ``dtypes``: of inputs whose containers don't say;
    ``apart``: names of inputs whose contents differ between the sides."""

    recorder: Recorders
    dtypes: Mapping[str, str] | None = None
    apart: Collection[str] = ()

    def marks(self, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]) -> Marks:
        where = dict(where)
        return repeated_with_others(run, self.recorder, arrays, where, self.dtypes, self.apart)

    def side(self, arrays: Arrays) -> Run:
        return record_run(self.recorder(arrays))


def marks_of(
    side: Repeats, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]
) -> Marks | None:
    """Repeats a side's run with other content in these places; None: there are none."""
    return side.marks(run, arrays, where) if any(mark.any() for mark in where.values()) else None


def both_again(sides: Iterable[Repeats], inputs: tuple[Arrays, Arrays]) -> Runs | None:
    """Records both sides with other inputs; None: one may raise what it likes at other numbers."""
    try:
        with unheard():
            left, right = (foreign(s.side, a) for s, a in zip(sides, inputs, strict=True))
    except (Foreign, ProbeError):
        return None
    return left, right


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
            marks.append(marks_of(side, run, arrays, where))
            if marks[-1] is not None and not marks[-1].repetitions:
                return None
        sides = Sides(
            (marks[0], marks[1]), (before[0], before[1]), again=again if inputs[0] else None
        )
        return RunningMatch((left, right), sides)

    def again() -> Runs | None:
        larger = {
            name: max((arrays[name] for arrays in inputs), key=lambda array: array.size)
            for name in inputs[0]
        }
        other, cut = independent(larger, dtypes), list[dict[str, np.ndarray]]()
        for arrays, missing in zip(inputs, found[::-1], strict=True):
            assert missing is not None
            cut.append({})
            for name, array in arrays.items():
                there = ~missing[0][name] if missing[0][name].shape == other[name].shape else ...
                cut[-1][name] = other[name][there].reshape(array.shape)
        return both_again(repeats, (cut[0], cut[1]))

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
    left, right = (Here(recorder, dtypes) for recorder in recorders)

    def marks(run: Run, start: int, stop: int) -> Marks | None:
        where = {name: np.zeros(array.shape, bool) for name, array in whole.items()}
        for name, axis in along.items():
            where[name][(slice(None),) * axis + (slice(start, stop),)] = True
        return marks_of(right, run, whole, where)

    def again() -> Runs | None:
        other = independent(whole, dtypes)
        return both_again((left, right), (other, other))

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


# Fewest elements of an array that is taken for a cache.
LEAST = 4


def handed_values(runs: Runs, side: int) -> tuple[list[int], str]:
    """Returns values of the other side that a side holds, or the beginnings of: a cache; and
    the first array of such a shape that is none of them, in words."""
    run, other = runs[side], runs[1 - side]
    keys, handed = {v.key for v in other.values if v.given < 0}, list[int]()
    unlike = ""
    for n, value in enumerate(run.values):
        held = value.given < 0 and value.floating and value.key not in keys
        array = settled.numbers(run, n) if held and np.prod(value.shape) >= LEAST else None
        if array is None or not np.ptp(array):
            continue
        array, count, compared = np.squeeze(array), len(handed), False
        for m, longer in enumerate(other.values):
            if longer.given < 0 or longer.dtype != value.dtype:
                continue
            shape = tuple(size for size in longer.shape if size != 1)
            if not _begins_like(array.shape, shape):
                continue
            theirs = settled.numbers(other, m)
            if theirs is None:
                continue
            part, compared = theirs.reshape(shape)[tuple(map(slice, array.shape))], True
            handed += [m] if near_share(array, part) == 1 else []
        if compared and len(handed) == count and not unlike:
            name = value.name or f"an array of shape {list(value.shape)}"
            unlike = f"{name}, which the {NAMES[side]} side alone holds, is near no beginning of "
            unlike += "what the other side computes: if it is a cache, its numbers are others"
    return handed, unlike


def _begins_like(part: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape is another one's, or that of its beginning along one axis."""
    longer = len(part) == len(shape) and all(n <= m for n, m in zip(part, shape, strict=True))
    return longer and sum(n < m for n, m in zip(part, shape, strict=True)) <= 1
