"""Repeats two runs of a model that is given inputs, for ``walk``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from probe.agreement.lacking import Arrays, contents, independent, lacked
from probe.agreement.match import RunningMatch, Sides
from probe.agreement.repeated import Marks, repeated
from probe.errors import Foreign, ProbeError, foreign
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
    ``inputs``: of both runs, one a piece of the other. ``dtypes``: of inputs whose containers don't
    say. It returns None where that can't be found: inputs that are no pieces of each other, or no
    repetition that runs.
    """
    recorders = recorder if isinstance(recorder, tuple) else (recorder, recorder)
    found = lacked(inputs[1], inputs[0]), lacked(inputs[0], inputs[1])

    def match(left: Run, right: Run) -> RunningMatch | None:
        marks, before = [], []
        for run, side, arrays, missing in zip((left, right), recorders, inputs, found, strict=True):
            if missing is None:
                return None
            where, start = missing
            before.append(start)
            marks.append(_marks(run, side, arrays, where, dtypes))
            if marks[-1] is not None and not marks[-1].repetitions:
                return None
        sides = Sides((marks[0], marks[1]), (before[0], before[1]), again=again)
        return RunningMatch((left, right), sides)

    def again() -> tuple[Run, Run] | None:
        larger = {
            name: max((arrays[name] for arrays in inputs), key=lambda array: array.size)
            for name in inputs[0]
        }
        other = independent(larger, dtypes)
        runs = []
        for side, arrays, missing in zip(recorders, inputs, found[::-1], strict=True):
            assert missing is not None
            cut = {}
            for name, array in arrays.items():
                there = ~missing[0][name] if missing[0][name].shape == other[name].shape else ...
                cut[name] = other[name][there].reshape(array.shape)
            try:
                runs.append(foreign(record_run, side(cut)))
            except (Foreign, ProbeError):  # a model may raise what it likes at other numbers
                return None
        return runs[0], runs[1]

    return match


def _marks(
    run: Run,
    recorder: Recorders,
    arrays: Arrays,
    where: Mapping[str, object],
    dtypes: Mapping[str, str] | None,
) -> Marks | None:
    """Repeats a run with other content in these places; None: there are none."""
    if not any(some.any() for some in where.values()):  # type: ignore[attr-defined]
        return None
    changed = contents(arrays, where, dtypes)  # type: ignore[arg-type]
    return repeated(run, (partial(recorder, other) for other in changed))
