"""What a recorder's run shows: every operation with the bits that it read and gave, run alone, and
held against what its meaning says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.diff.source import divisors_of
from probe.diff.sums import sum_of
from probe.order import window
from probe.order.semantics import Each, Meaning, Moves, Passes, Reshapes, Same, Turns, Unknown

Event = tuple[Any, list[np.ndarray], list[np.ndarray]]


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

    recorder.record(noted)
    return every


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


def _moved(reads: Sequence[np.ndarray], result: np.ndarray) -> bool:
    """Whether all elements of a result are some of what is read, or one constant. Whole numbers
    may be indices or counts."""
    if result.dtype.kind not in "fc" or not any(array.dtype.kind in "fc" for array in reads):
        return True
    parts = [array.reshape(-1) for array in (*reads, result)]
    *parts, result = (part.view(float) if part.dtype.kind == "c" else part * 1.0 for part in parts)
    others = result[~np.isin(result, np.concatenate(parts)) & ~np.isnan(result)]
    return len(np.unique(others)) <= 1 or bool((others % 1 == 0).all())


def _by_place(event: Event) -> bool:
    """Whether operands in the opposite order give results in the opposite order."""
    operation, reads, (result, *_) = event
    given = [array[::-1] if array.ndim == result.ndim else array for array in reads]
    turned = operation.again([np.array(array, order="C") for array in given])[0]
    dtype = operation.gives[0].dtype
    return np.allclose(wide(turned[::-1], dtype), wide(result, dtype), rtol=1e-5, equal_nan=True)


def wide(array: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers of a container in float64; integers as they are."""
    return floats.widen(array, dtype) if dtype in floats.FORMATS else array


def expected(
    meaning: Meaning, reads: Sequence[np.ndarray], shape: tuple[int, ...], dtypes: Sequence[str]
) -> np.ndarray | None:
    """What an operation gives that moves elements in a way that is known, or adds; in float64. None
    where no row says that."""
    values = [wide(*both) for both in zip(reads, dtypes, strict=False)]
    if isinstance(meaning, Same | Reshapes):
        return values[0].reshape(shape)
    if isinstance(meaning, Turns):
        return values[0].transpose(meaning.axes)
    try:
        summed = sum_of(meaning, [array.shape for array in reads], shape, dtypes)
    except InputError:
        return None
    x, w, b = summed.of(reads)
    weights = floats.widen(w, summed.dtype).reshape(summed.summands, summed.filters)
    width, parts = summed.filters // summed.groups, []
    for group, column in enumerate(window.columns(summed, x)):
        part = weights[:, group * width : (group + 1) * width]
        parts.append(floats.widen(column, summed.dtype).T @ part)
    y = np.concatenate(parts, axis=1) / summed.scale
    if b is not None:
        y = y + floats.widen(b, summed.dtype)
    if summed.divides:
        y = y / divisors_of(meaning, summed)[:, None]
    for word, numbers in summed.functions:
        added = word == "add" and summed.filled(values[numbers[0]], numbers[0])
        y = y + added if word == "add" else np.clip(y, *numbers)
    return summed.y.put(y.reshape(summed.output_shape()))


# How far results may be off, relative to the largest: by what sums of a format gather.
OFF = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}


def wrong(event: Event, near: float = 0.0) -> str:
    """Returns how an operation's results are others than its meaning says; empty: they aren't, or
    the meaning doesn't say them. ``near``: what they may be off, relative to the largest of all,
    where a library computes with approximations."""
    operation, reads, gives = event
    meaning: Meaning = operation.meaning
    if isinstance(meaning, Passes):
        alike = [bits([reads[n]]) for n in meaning.numbers] == [bits([end]) for end in gives]
        return "" if alike else f"{operation.op} is not {meaning}"
    if type(meaning) is Moves:
        apart = [n for n, result in enumerate(gives) if not _moved(reads, result)]
        return f"results {apart} of {operation.op} are not of what is read" if apart else ""
    dtypes = [seen.dtype for seen in (*operation.reads, operation.gives[0])]
    dtype = dtypes[-1]
    if not {*dtypes} <= {*floats.FORMATS}:
        return ""
    found = expected(meaning, reads, gives[0].shape, dtypes)
    if found is None:
        alike = not isinstance(meaning, Each) or operation.again is None or _by_place(event)
        return "" if alike else f"{operation.op} is no {meaning}"
    y = floats.widen(gives[0], dtype)
    most = max(near, OFF[dtype]) * np.abs(y).max(initial=1)
    if found.shape == y.shape and np.allclose(found, y, rtol=0, atol=most, equal_nan=True):
        return ""
    return f"{operation.op} is no {meaning}: {y} instead of {found}"


def held_to_account(
    recorders: Iterable[Any], near: float = 0.0, unknown: Iterable[str] = ()
) -> set[str]:
    """Holds every operation of recorders against its meaning. Returns the names of all.

    ``near``: as of ``wrong``; ``unknown``: names of those that may be unknown.
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
