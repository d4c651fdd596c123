"""Digests of a run's operations, kept beside a check's bits: which one changed first is then known
without the machine that the lock was made on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import xxhash

from probe.errors import ProbeError
from probe.recording.folder import begin_recording, write_recording
from probe.recording.recording import Run
from probe.recording.subject import function_recorder
from probe.recording.walk import watched
from probe.semantics.contract import Exact, Unknown

MOST = 2000
"""Operations of a run whose digests are kept: a line each in the lock."""


def digests(run: Run) -> list[str]:
    """Returns ``OP PATH DIGEST`` of each operation that computes: what moves elements is left out,
    and what did not repeat its bits within the run."""
    found = []
    for one in run.operations:
        moves = isinstance(one.meaning, Exact) and not isinstance(one.meaning, Unknown)
        if moves or run.unsteady.intersection(one.gives):
            continue
        every = "".join(run.values[n].digest for n in one.gives)
        told = xxhash.xxh3_128_hexdigest(every.encode())[:12]
        found.append(f"{one.op} {'_'.join(one.path.split()) or '-'} {told}")
    return found[:MOST]


def recorded(
    function: Callable[[], Any],
    folder: Path | None = None,
    bare: tuple[Callable[..., Any], Sequence[Any]] | None = None,
) -> tuple[list[str], str]:
    """Runs a function a few times, watched; returns its operations' digests, or why there are none.

    ``folder``: also keeps the recording there. ``bare``: as of ``function_recorder``:
    plain NumPy is watched by the arrays that it is called with alone.
    """
    try:
        recorder = function_recorder(function, bare=bare)
        if folder is None:
            run, _ = watched(recorder, "the run")
        else:
            with begin_recording(folder) as store:
                run, notes = watched(recorder, "the run", store)
                write_recording(run, folder, "", notes=notes)
        return digests(run), ""
    except ProbeError as error:
        return [], str(error)
    except Exception as error:  # what the user's test raises when it is run again, say
        return [], f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def first_changed(old: Sequence[str], new: Sequence[str]) -> str:
    """Returns the first operation whose digest changed, in words; empty where none is known.

    Operations are matched in their order. Where the names part, other operations are run.
    """
    if not old or not new:
        return ""
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        (op, path, told), (its, where, found) = one.rsplit(" ", 2), other.rsplit(" ", 2)
        place = f"{op}{f' at {path}' if path != '-' else ''}"
        nth = f"operation {number + 1} of {len(old)}"
        if (op, path) != (its, where):
            now = f"{its}{f' at {where}' if where != '-' else ''}"
            return f"{nth}: {now} is run, where it was {place}"
        if told != found:
            return f"{nth}: {place}"
    if len(old) != len(new):
        return f"{len(new)} operations are run, where it was {len(old)}; those in common agree"
    return ""
