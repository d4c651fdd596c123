"""A run that is watched: is it the same twice, and does watching change it.

A run that does not repeat is refused before anything is compared, with the operation that does not
repeat. What is said afterwards is of the watched run; where that has different bits from the
unwatched one, a note says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from probe.case import floats
from probe.case.errors import Nondeterministic
from probe.diff import alone
from probe.record.contract import Recorder
from probe.record.recording import (
    Run,
    array_digest,
    record_again,
    record_run,
)
from probe.record.store import RunStore

CHANGED = "recording changes its outputs"

# What freed memory is filled with before a first and a second run: 3e38 (in float16 NaN), and small
# numbers, 0.01 in float32.
FILLS = (0x7F, 0x3C)

# Sizes of blocks that are filled.
MOST_SIZES = 64


@runtime_checkable
class Elsewhere(Protocol):
    """A run that is watched where its model is, or was watched before and is on disk."""

    target: str

    def watched(self, what: str) -> tuple[Run, list[str]]:
        """As of the function of this name."""


def watched(
    recorder: Recorder | Elsewhere, what: str, store: RunStore | None = None
) -> tuple[Run, list[str]]:
    """Runs it unwatched, watched, and watched once more. Returns the first watched run, and what is
    to be said of it. Raises Nondeterministic. ``store``: where its values are kept.

    Where watching changes the bits it is run unwatched twice more: is that steady by itself?
    """
    if isinstance(recorder, Elsewhere):
        return recorder.watched(what)
    run = record_run(recorder, store=store)
    inner: Any = getattr(recorder, "inner", recorder)
    if (plain := getattr(inner, "already", None)) is not None:
        inner.already = None
    else:
        plain = _plain_digests(recorder, run, FILLS[1])
    _soil(run, FILLS[0])
    again = record_again(recorder, run)
    values = run.values
    some = values_apart(run, again)
    run = replace(run, unsteady=frozenset(some))
    outputs = [values[n].digest for n in run.outputs]
    if some.intersection(run.outputs):
        raise unsteady(run, again, what)
    notes = [f"{what}: {recorder.note}"] if recorder.note else []
    if outputs != plain:
        first, second = (_plain_digests(recorder, run, fill) for fill in FILLS)
        if first != second:
            raise unsteady(run, again if some else record_again(recorder, run), what)
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
    _soil(run, fill)
    recorded = {run.values[n].digest for n in run.outputs}
    digests = []
    for array in recorder.plain():
        digests.append(array_digest(array))
        if digests[-1] not in recorded:
            run.store.put(array)
    return digests


def _soil(side: Run, fill: int = FILLS[0]) -> None:
    """Fills memory of the values' sizes: what a run reads without having written it then differs
    from run to run."""
    every = (
        floats.container_of_format(v.dtype).itemsize * int(np.prod(v.shape, dtype=int))
        for v in side.values
        if v.dtype in floats.FORMATS
    )
    sizes = {size for size in every if 0 < size <= alone.MOST_BYTES}
    alone.fill_freed_memory(sorted(sizes)[-MOST_SIZES:], fill)


def values_apart(run: Run, again: Run) -> set[int]:
    """Returns the values that have different bits in two runs of one recorder."""
    both = enumerate(zip(run.values, again.values, strict=True))
    return {n for n, (value, repeated) in both if value.digest != repeated.digest}


def unsteady(run: Run, again: Run, what: str) -> Nondeterministic:
    """Finds the first operation that differs between two runs of one recorder."""
    start = f"{what} gives different bits each time it is run"
    apart = values_apart(run, again)
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
