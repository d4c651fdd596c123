"""Elements written at places that indices name, in the words of all libraries: scatters, one-hots,
sequences turned round. The indices are numbers that are known while the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from probe.semantics import Accumulates, Made, Meaning, Moves, Step, Steps, Unknown

SEVERAL = "several updates go to one place"

Shape = tuple[int, ...]


def of_points(index: np.ndarray, shape: Shape) -> np.ndarray:
    """Returns where updates go, as flat places of an array of ``shape``. ``index``: (..., axes):
    the first axes of each place in its last axis; the updates have the axes behind them."""
    depth, ahead = index.shape[-1], index.shape[:-1]
    sizes = np.array(shape[:depth], np.int64)
    wrapped = np.where(index < 0, index + sizes, index).reshape(-1, depth)
    some = np.ravel_multi_index(tuple(wrapped.T), shape[:depth]) if depth else [0]
    lines = np.asarray(some)
    inner = prod(shape[depth:])
    found: np.ndarray = (lines[:, None] * inner + np.arange(inner)).reshape(*ahead, *shape[depth:])
    return found


def along(index: np.ndarray, axis: int, shape: Shape) -> np.ndarray:
    """Returns where updates go whose own places are kept but along ``axis``, as flat places."""
    places: list[Any] = list(np.indices(index.shape, sparse=True))
    places[axis] = np.where(index < 0, index + shape[axis], index)
    return np.asarray(np.ravel_multi_index(np.broadcast_arrays(*places), shape))


def written(
    places: np.ndarray, shape: Shape, reads: Sequence[int], count: int, adds: bool = False
) -> Meaning:
    """Returns a scatter. ``reads``: the array that is written into, if there is one (else zeros),
    and the updates, by number; ``count``: of all that the operation reads. ``adds``: the updates
    are added rather than put there."""
    flat, wide = places.reshape(-1), Moves(lambda one: np.broadcast_to(one, places.shape))
    if adds:
        steps = [Step(wide, (reads[-1],), places.shape)]
        into = reads[0]
        if len(reads) == 1:
            steps.append(Step(Made(0), (), shape))
            into = count + 1
        steps.append(Step(Accumulates(flat), (into, count), shape))
        return Steps(tuple(steps))
    if len(np.unique(flat)) < flat.size:
        return Unknown(SEVERAL)

    def put(one: np.ndarray, updates: np.ndarray) -> np.ndarray:
        found = np.array(np.broadcast_to(one, shape))
        found.reshape(-1)[flat] = np.broadcast_to(updates, places.shape).reshape(-1)
        return found

    return Steps((Step(Moves(put), tuple(reads), shape),))


def one_hot(
    index: np.ndarray,
    depth: int,
    axis: int,
    reads: Sequence[int],
    shape: Shape,
    wraps: bool = False,
) -> Meaning:
    """Returns a one-hot of known indices. ``reads``: the number of one input (off, on), or of two:
    on and off. ``wraps``: negative indices count from the end, as ONNX has it."""
    if wraps:
        index = np.where((index < 0) & (index >= -depth), index + depth, index)
    axis %= len(shape)
    at = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    hot = np.expand_dims(index, axis) == at

    def move(*arrays: np.ndarray) -> np.ndarray:
        off, on = arrays[0].reshape(-1) if len(arrays) == 1 else (arrays[1], arrays[0])
        return np.where(hot, on, off)

    return Steps((Step(Moves(move), tuple(reads), shape),))


def turned(lengths: np.ndarray, time: int, batch: int, shape: Shape) -> Moves:
    """Returns a ReverseSequence: of each row of the batch the first so many steps, turned round."""
    step = np.arange(shape[time])
    rows = [np.where(step < n, n - 1 - step, step) for n in lengths.reshape(-1)]
    index = np.array(rows) if batch < time else np.array(rows).T
    sizes = [1] * len(shape)
    sizes[time], sizes[batch] = shape[time], shape[batch]
    full = index.reshape(sizes)
    return Moves(lambda x, *_: np.take_along_axis(x, full, time))


def rolled(shifts: Sequence[int], axes: Sequence[int], rank: int) -> Moves:
    """Returns what moves every element by that many places along axes, round the end."""
    kept = tuple(a for a in range(rank) if a not in {axis % rank for axis in axes})
    return Moves(lambda x: np.roll(x, tuple(shifts), tuple(axes)), kept)
