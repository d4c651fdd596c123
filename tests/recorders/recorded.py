"""What a recorder's run shows: every operation with the bits that it read and gave, run alone, and
held against what its meaning says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from probe import floats
from probe.recording.contract import Again
from probe.semantics import Each, Meaning, Moves, Passes, Quantised, Reshapes, Same, Turns, Unknown
from tests.recorders import referee

Event = tuple[Any, list[np.ndarray], list[np.ndarray]]

# By how much a result may be off, relative to the largest of all. Of float64 as much as numbers of
# meanings are, which have these as float32 does.
NEAR = {"float64": 1e-6, "float16": 5e-3, "bfloat16": 4e-2, "int64": 0.0, "bool": 0.0}


def drawn(seed: int) -> tuple[np.random.Generator, Callable[..., np.ndarray]]:
    """Returns a generator, and what draws normal numbers of a shape from it, in float32."""
    rng = np.random.default_rng(seed)
    return rng, lambda *shape: rng.standard_normal(shape).astype(np.float32)


def inputs(arrays: Mapping[str, np.ndarray], tensor: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """Returns a library's arrays by name."""
    return {name: tensor(array) for name, array in arrays.items()}


def bits(arrays: Sequence[Any]) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def events(recorder: Any) -> list[Event]:
    """Returns every operation of a recorder with the bits that it read and gave."""
    arrays, every = dict[Any, np.ndarray](), list[Event]()

    def noted(event: Any) -> None:
        fresh = [seen for seen in event.reads if seen.key not in arrays]
        arrays.update({seen.key: np.array(seen.array(), order="C") for seen in fresh})
        reads = [arrays[seen.key] for seen in event.reads]
        arrays.update({seen.key: np.array(seen.array(), order="C") for seen in event.gives})
        every.append((event, reads, [arrays[seen.key] for seen in event.gives]))

    recorded(recorder, noted, every)
    return every


def recorded(recorder: Any, visit: Callable[[Any], None], every: list[Any]) -> list[Any]:
    """Records until the recorder knows how to run what it runs. Returns the outputs; ``every``:
    what ``visit`` has put together, which is to begin anew then."""
    while True:
        every.clear()
        try:
            return recorder.record(visit)  # type: ignore[no-any-return]
        except Again:
            continue


def said(run: Any) -> list[Any]:
    """Returns all that a recording says, in plain words."""
    return [
        [(value.shape, value.dtype, value.digest, value.role, value.name) for value in run.values],
        [(o.name, o.op, o.reads, o.gives, repr(o.attributes)) for o in run.operations],
    ]


def recorded_twice(recorder: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Returns operations and outputs of a graph's second recording. Both must give the bits of an
    unwatched run, without a note."""
    for _ in range(2):
        seen: list[Any] = []
        outputs = [np.array(output.array()) for output in recorder.record(seen.append)]
        assert bits(outputs) == bits(recorder.plain())
    assert not recorder.note
    return seen, outputs


def alone(
    recorder: Any,
    operand: Callable[[np.ndarray, str], Any] = lambda array, dtype: array,
    container: Callable[[Any], Any] = np.asarray,
) -> tuple[list[str], list[str]]:
    """Runs each operation of a recorder alone, and the lines that a user writes: both must give its
    bits. Returns the operations, and those that have lines.

    ``operand``: what lines work on, made of a container array and its dtype; ``container``: the
    array of what they give.
    """
    ran, written = list[str](), list[str]()
    for event, reads, gives in events(recorder):
        assert event.again is not None and bits(event.again(reads)) == bits(gives), event.op
        ran.append(event.op)
        if event.lines is None:
            continue
        names, kinds = [f"v{n}" for n in range(len(reads))], [seen.dtype for seen in event.reads]
        space = {"np": np, **dict(zip(names, map(operand, reads, kinds), strict=True))}
        lines = event.lines(names, "y")
        exec("\n".join([*event.imports, *lines]), space)
        more = [space[f"y{n}"] for n in range(1, len(gives)) if f"y{n}" in space]
        results = [*space["y"]] if isinstance(space["y"], list | tuple) else [space["y"], *more]
        assert bits([container(result) for result in results]) == bits(gives), lines
        written.append(event.op)
    return ran, written


# what a meaning says


def _number(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns a container array in the format in which the referee computes."""
    if dtype in floats.FORMATS:
        return floats.widen(array, dtype)
    return array.astype(np.complex128) if array.dtype.kind == "c" else array


def _moved(reads: Sequence[np.ndarray], result: np.ndarray) -> bool:
    """Whether all elements of a result are some of what is read, or one constant. Whole numbers
    may be indices or counts."""
    if result.dtype.kind not in "fc" or not any(array.dtype.kind in "fc" for array in reads):
        return True
    parts = [array.reshape(-1) for array in (*reads, result)]
    *parts, result = (part.view(float) if part.dtype.kind == "c" else part * 1.0 for part in parts)
    others = result[~np.isin(result, np.concatenate(parts)) & ~np.isnan(result)]
    return len(np.unique(others)) <= 1 or bool((others % 1 == 0).all())


def _by_place(event: Event, result: np.ndarray) -> bool:
    """Whether operands in the opposite order give results in the opposite order."""
    operation, reads, _ = event
    given = [array[::-1] if array.ndim == result.ndim else array for array in reads]
    turned = operation.again([np.array(array, order="C") for array in given])[0]
    back = _number(np.asarray(turned), operation.gives[0].dtype)[::-1]
    return np.allclose(back, result, rtol=1e-5, equal_nan=True)


def wrong(event: Event, near: float = 1e-4) -> str:
    """Returns how an operation's results are others than its meaning says; empty: they aren't.
    ``near``: what float32 may be off, as of ``NEAR``."""
    operation, reads, gives = event
    meaning: Meaning = operation.meaning
    numbers = [_number(a, seen.dtype) for a, seen in zip(reads, operation.reads, strict=True)]
    results = [_number(a, seen.dtype) for a, seen in zip(gives, operation.gives, strict=True)]
    if type(meaning) is Moves:
        apart = [n for n, result in enumerate(results) if not _moved(numbers, result)]
        return f"results {apart} of {operation.op} are not of what is read" if apart else ""
    try:
        with np.errstate(all="ignore"):
            every = referee.computed(meaning, numbers, [result.shape for result in results])
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return f"{operation.op} is not {meaning} of {[a.shape for a in reads]}: {error!r}"
    if isinstance(meaning, Each) and every[0] is None:  # a function that the referee hasn't
        return "" if _by_place(event, results[0]) else f"{operation.op} is no {meaning}"
    if isinstance(meaning, Same | Reshapes | Turns | Passes):
        near = 0
    for n, (wanted, result) in enumerate(zip(every, results, strict=False)):
        if wanted is None:
            continue
        if wanted.shape != result.shape:
            return f"{meaning} gives {wanted.shape}, against {result.shape}"
        dtype = operation.gives[n].dtype
        with np.errstate(all="ignore"):
            finite = np.isfinite(wanted) & np.isfinite(result)
            formats = {dtype, *(seen.dtype for seen in operation.reads)}
            units = max(NEAR.get(each, near) for each in formats) if near else 0
            most = units * np.abs(wanted[finite]).max(initial=1)
            most = 1.0 if isinstance(meaning, Quantised) else most  # one unit
            apart = finite & (np.abs(wanted - result * 1.0) > most)
            apart |= ~finite & (wanted != result) & ~(np.isnan(wanted) & np.isnan(result))
        if apart.any():
            at = tuple(int(k) for k in np.argwhere(apart)[0])
            return f"{operation.op}[{n}]{at}={result[at]}, against {wanted[at]} of {meaning}"
    return ""


def held_to_account(
    recorders: Iterable[Any], near: float = 1e-4, unknown: Iterable[str] = ()
) -> set[str]:
    """Holds every operation of recorders against its meaning. Returns the names of all.

    ``unknown``: names of those that may be: of all others something is said.
    """
    names, refuted = set[str](), list[str]()
    for recorder in recorders:
        for event in events(recorder):
            operation = event[0]
            names.add(operation.op)
            if isinstance(operation.meaning, Unknown):
                if operation.op not in unknown:
                    refuted.append(f"{operation.op}: {operation.meaning.why}")
            elif why := wrong(event, near):
                refuted.append(why)
    assert not refuted, "\n".join(refuted)
    return names
