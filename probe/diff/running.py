"""Repeats two runs of a model that is given inputs, for ``walk``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from probe.diff.lacking import Arrays, contents, independent, lacked
from probe.diff.match import RunningMatch, Sides
from probe.diff.repeated import Marks, repeated
from probe.recording.contract import Recorder
from probe.recording.recording import Run, record_run

Recorders = Callable[[Arrays], Recorder]


def by_running(
    recorder: Recorders | tuple[Recorders, Recorders],
    inputs: tuple[Arrays, Arrays],
    dtypes: Mapping[str, str] | None = None,
) -> Callable[[Run, Run], RunningMatch | None]:
    """Returns what finds which elements of two runs must agree.

    ``recorder``: gives a recorder of the model with other inputs; of two models one each.
    ``inputs``: of both runs, one the beginning of the other along some axes. It returns None where
    that can't be found: inputs that have no beginning in common, or no repetition that runs.
    """
    both = recorder if isinstance(recorder, tuple) else (recorder, recorder)

    def match(left: Run, right: Run) -> RunningMatch | None:
        missing = lacked(inputs[1], inputs[0]), lacked(inputs[0], inputs[1])
        marks: list[Marks | None] = []
        for run, side, arrays, where in zip((left, right), both, inputs, missing, strict=True):
            if where is None:
                return None
            if not any(some.any() for some in where.values()):
                marks.append(None)
                continue
            changed = contents(arrays, where, dtypes)
            marks.append(repeated(run, (partial(side, other) for other in changed)))
            if not marks[-1].repetitions:  # type: ignore[union-attr]
                return None

        def again() -> tuple[Run, Run] | None:
            longest = [max(inputs, key=lambda arrays: arrays[name].size)[name] for name in inputs[0]]
            other = independent(dict(zip(inputs[0], longest, strict=True)), dtypes)
            runs = []
            for side, arrays in zip(both, inputs, strict=True):
                cut = {n: _beginning(other[n], array.shape) for n, array in arrays.items()}
                try:
                    runs.append(record_run(side(cut)))
                except Exception:  # a library raises what it likes at other numbers
                    return None
            return runs[0], runs[1]

        return RunningMatch((left, right), Sides((marks[0], marks[1]), None, again))

    return match


def _beginning(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(array[tuple(map(slice, shape))])
