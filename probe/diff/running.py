"""How a side is run: watched, which says whether it repeats, and again with other content.

A run that does not repeat is refused before anything is compared, with the operation that does not
repeat. What is said afterwards is of the watched run; where that has different bits from the
unwatched one, a note says so. ``by_running`` repeats two runs of a model that is given inputs,
``behind_state`` a piece behind its state and the whole; ``probe.diff.functions`` two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from probe.case import floats
from probe.case.errors import Foreign, Nondeterministic, ProbeError, foreign
from probe.diff import alone
from probe.diff.difference import NAMES
from probe.diff.match import Repetitions, RunningMatch, Runs, numbers_of
from probe.diff.pairing import near_share
from probe.diff.repeated import (
    Arrays,
    Marks,
    independent,
    repeated_with_others,
    unheard,
    what_is_lacked,
)
from probe.record.contract import Recorder
from probe.record.recording import Run, array_digest, record_again, record_run
from probe.record.store import RunStore

CHANGED = "recording changes its outputs"

# What freed memory is filled with before a first and a second run: 3e38 (in float16 NaN), and small
# numbers, 0.01 in float32.
FILLS = (0x7F, 0x3C)

# Sizes of blocks that are filled.
MOST_SIZES = 64


@runtime_checkable
class WatchedElsewhere(Protocol):
    """A run that is watched where its model is, or was watched before and is on disk."""

    target: str

    def watched(self, what: str) -> tuple[Run, list[str]]:
        """As of the function of this name."""


def watch(
    recorder: Recorder | WatchedElsewhere, what: str, store: RunStore | None = None
) -> tuple[Run, list[str]]:
    """Runs it unwatched, watched, and watched once more. Returns the first watched run, and what is
    to be said of it. Raises Nondeterministic. ``store``: where its values are kept.

    Where watching changes the bits it is run unwatched twice more: is that steady by itself?
    """
    if isinstance(recorder, WatchedElsewhere):
        return recorder.watched(what)
    run = record_run(recorder, store=store)
    inner: Any = getattr(recorder, "inner", recorder)
    if (plain := getattr(inner, "plain_digests", None)) is not None:
        inner.plain_digests = None
    else:
        plain = _plain_digests(recorder, run, FILLS[1])
    _fill_memory(run, FILLS[0])
    again = record_again(recorder, run)
    unsteady = unsteady_values(run, again)
    run = replace(run, unsteady=frozenset(unsteady))
    if unsteady.intersection(run.outputs):
        raise not_repeating(run, again, what)
    notes = [f"{what}: {recorder.note}"] if recorder.note else []
    outputs = [run.values[n].digest for n in run.outputs]
    if outputs != plain:
        first, second = (_plain_digests(recorder, run, fill) for fill in FILLS)
        if first != second:
            raise not_repeating(run, again if unsteady else record_again(recorder, run), what)
        if outputs != first:
            notes.append(
                f"{what}: {CHANGED} (a fused or compiled part runs differently when recorded), so "
                "the results for single operations hold for the recorded run only"
            )
        plain = first
    return replace(run, plain=tuple(plain)), notes


def _plain_digests(recorder: Recorder, run: Run, fill: int) -> list[str]:
    """Digests of an unwatched run's outputs, after memory of the values' sizes was filled; what is
    not among the run's values is kept with them."""
    _fill_memory(run, fill)
    recorded = {run.values[n].digest for n in run.outputs}
    digests = []
    for array in recorder.plain():
        digests.append(array_digest(array))
        if digests[-1] not in recorded:
            run.store.put(array)
    return digests


def _fill_memory(run: Run, fill: int) -> None:
    """Fills memory of the values' sizes: what a run reads without having written it then differs
    from run to run."""
    sizes = {
        floats.container_of_format(v.dtype).itemsize * int(np.prod(v.shape, dtype=int))
        for v in run.values
        if v.dtype in floats.FORMATS
    }
    fillable = sorted(size for size in sizes if 0 < size <= alone.MOST_BYTES)
    alone.fill_freed_memory(fillable[-MOST_SIZES:], fill)


def unsteady_values(run: Run, again: Run) -> set[int]:
    """The values that have different bits in two runs of one recorder."""
    both = enumerate(zip(run.values, again.values, strict=True))
    return {n for n, (value, repeated) in both if value.digest != repeated.digest}


def not_repeating(run: Run, again: Run, what: str) -> Nondeterministic:
    """Finds the first operation that differs between two runs of one recorder."""
    start = f"{what} gives different bits each time it is run"
    apart = unsteady_values(run, again)
    # the first operation that outputs come from and that differs though its reads agree
    pending, met = [n for n in run.outputs if n in apart], set[int]()
    differing = list[int]()
    while pending:
        number = pending.pop()
        giver = run.values[number].given
        if number not in met and giver >= 0:
            met.add(number)
            before = [n for n in run.operations[giver].reads if n in apart]
            pending += before
            differing += [] if before else [giver]
    changed = [run.values[n] for n in sorted(apart) if run.values[n].given < 0]
    if not differing and changed:
        name = changed[0].name or f"an input of shape {list(changed[0].shape)}"
        return Nondeterministic(f"{start}: it starts from different values ({name}); {FIX}")
    if not differing:
        return Nondeterministic(f"{start}, but not while it is recorded; {FIX}")
    op = run.operations[min(differing)]
    where = f"{op.op} at {op.path}" if op.path else op.op
    place = f"number {op.number + 1} of {len(run.operations)}"
    return Nondeterministic(f"{start}: the first operation that does is {where}, {place}; {FIX}")


FIX = (
    "switch off dropout and random numbers (model.eval() in PyTorch, training=False in Keras, or a "
    "seed inside the function), copy once before the runs what no library allocates (NumPy's "
    "arrays, mapped files), so that it begins at one address, and report it as a bug of the "
    "library if there are none: memory that is not initialised"
)


# with other content


Recorders = Callable[[Arrays], Recorder]

# Finds which elements of two runs must agree; None: that can't be found by repeating them.
Matches = Callable[[Run, Run], RunningMatch | None]


class Repeatable(Protocol):
    """What runs one side again, where its run was made."""

    def marks(self, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]) -> Marks:
        """Repeats a run of these inputs, with other content in these places."""

    def side(self, arrays: Arrays) -> Run:
        """Records it with other inputs."""


@dataclass
class InProcess:
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
    side: Repeatable, run: Run, arrays: Arrays, where: Mapping[str, np.ndarray]
) -> Marks | None:
    """Repeats a side's run with other content in these places; None: there are none."""
    return side.marks(run, arrays, where) if any(mark.any() for mark in where.values()) else None


def record_both(sides: Iterable[Repeatable], inputs: tuple[Arrays, Arrays]) -> Runs | None:
    """Records both sides with other inputs; None: one may raise what it likes at other numbers."""
    try:
        with unheard():
            left, right = (foreign(s.side, a) for s, a in zip(sides, inputs, strict=True))
    except (Foreign, ProbeError):
        return None
    return left, right


def by_running(
    recorder: Recorders | Repeatable | tuple[Recorders | Repeatable, Recorders | Repeatable],
    inputs: tuple[Arrays, Arrays],
    dtypes: Mapping[str, str] | None = None,
) -> Matches:
    """What finds which elements of two runs must agree.

    ``recorder``: gives a recorder of the model with other inputs, or repeats it where it ran; of
    two models one each. ``inputs``: of both runs, one a piece of the other. ``dtypes``: of inputs
    whose containers don't say. It returns None where that can't be found: inputs that are no pieces
    of each other, or no repetition that runs.
    """
    both = recorder if isinstance(recorder, tuple) else (recorder, recorder)
    sides: list[Any] = [
        side if hasattr(side, "marks") else InProcess(side, dtypes) for side in both
    ]
    lacked = what_is_lacked(inputs[1], inputs[0]), what_is_lacked(inputs[0], inputs[1])

    def match(*runs: Run) -> RunningMatch | None:
        marks, begins_at = list[Marks | None](), list[Fraction]()
        for run, side, arrays, lacking in zip(runs, sides, inputs, lacked, strict=True):
            if lacking is None:
                return None
            marks.append(marks_of(side, run, arrays, lacking[0]))
            begins_at.append(lacking[1])
            if marks[-1] is not None and not marks[-1].repetitions:
                return None
        repetitions = Repetitions((marks[0], marks[1]), (begins_at[0], begins_at[1]))
        repetitions.record_others = record_others if inputs[0] else None
        return RunningMatch((runs[0], runs[1]), repetitions)

    def record_others() -> Runs | None:
        larger = {
            name: max((arrays[name] for arrays in inputs), key=lambda array: array.size)
            for name in inputs[0]
        }
        whole, pieces = independent(larger, dtypes), list[dict[str, np.ndarray]]()
        for arrays, lacking in zip(inputs, lacked[::-1], strict=True):
            assert lacking is not None
            piece = dict[str, np.ndarray]()
            for name, array in arrays.items():
                held = ~lacking[0][name] if lacking[0][name].shape == whole[name].shape else ...
                piece[name] = whole[name][held].reshape(array.shape)
            pieces.append(piece)
        return record_both(sides, (pieces[0], pieces[1]))

    return match


def behind_state(
    recorders: tuple[Recorders, Recorders],
    whole: Arrays,
    along: Mapping[str, int],
    piece: tuple[int, int, int],
    dtypes: Mapping[str, str] | None = None,
) -> Matches:
    """What finds which elements of a piece behind its state and of the whole must agree.

    ``recorders``: of both, from inputs of the whole; ``along``: which axis of each is cut;
    ``piece``: where it begins and ends, and how long the whole is.
    """
    sides = [InProcess(recorder, dtypes) for recorder in recorders]
    start, stop, total = piece

    def marks(run: Run, begin: int, end: int) -> Marks | None:
        where = {name: np.zeros(array.shape, bool) for name, array in whole.items()}
        for name, axis in along.items():
            where[name][(slice(None),) * axis + (slice(begin, end),)] = True
        return marks_of(sides[1], run, whole, where)

    def record_others() -> Runs | None:
        other = independent(whole, dtypes)
        return record_both(sides, (other, other))

    def match(left: Run, right: Run) -> RunningMatch:
        repetitions = Repetitions(
            lacking=(None, marks(right, stop, total)),
            begins_at=(Fraction(0), Fraction(start, total)),
            of_step=(None, marks(right, start, stop)),
            of_history=(None, marks(right, 0, start)),
            # what the state holds was computed by operations of the whole that the piece hasn't
            cached=((), cached_values((left, right), 0)[0]),
            record_others=record_others,
            piece=piece,
        )
        return RunningMatch((left, right), repetitions)

    return match


# Fewest elements of an array that is taken for a cache.
LEAST = 4


def cached_values(runs: Runs, side: int) -> tuple[list[int], str]:
    """Values of the other side that a side holds, or the beginnings of: a cache; and the first
    array of such a shape that is none of them, in words."""
    run, other = runs[side], runs[1 - side]
    keys, cached = {v.key for v in other.values if v.given < 0}, list[int]()
    unlike = ""
    for n, value in enumerate(run.values):
        held = value.given < 0 and value.floating and value.key not in keys
        array = numbers_of(run, n) if held and np.prod(value.shape) >= LEAST else None
        if array is None or not np.ptp(array):
            continue
        array, count, compared = np.squeeze(array), len(cached), False
        for m, longer in enumerate(other.values):
            if longer.given < 0 or longer.dtype != value.dtype:
                continue
            shape = tuple(size for size in longer.shape if size != 1)
            if not _begins_like(array.shape, shape):
                continue
            computed = numbers_of(other, m)
            if computed is None:
                continue
            part, compared = computed.reshape(shape)[tuple(map(slice, array.shape))], True
            cached += [m] if near_share(array, part) == 1 else []
        if compared and len(cached) == count and not unlike:
            name = value.name or f"an array of shape {list(value.shape)}"
            unlike = f"{name}, which the {NAMES[side]} side alone holds, is near no beginning of "
            unlike += "what the other side computes: if it is a cache, its numbers are others"
    return cached, unlike


def _begins_like(part: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape is another one's, or that of its beginning along one axis."""
    if len(part) != len(shape) or any(n > m for n, m in zip(part, shape, strict=True)):
        return False
    return sum(n < m for n, m in zip(part, shape, strict=True)) <= 1
