"""Elements put or added at places that indices name: scatters, one-hots, slices that are replaced.

Where everything goes is known while the run goes on, so that no operation has to be asked.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from probe.semantics.asked import Map, Mapped
from probe.semantics.call import Call, reading
from probe.semantics.contract import Meaning, Step, Steps, Unknown
from probe.semantics.elementwise import Made
from probe.semantics.moving import Broadcasts
from probe.semantics.sums import Accumulates

SEVERAL = "several updates go to one place"

Shape = tuple[int, ...]


def flat(shape: Shape) -> np.ndarray:
    """Returns the places of an array, row by row: 0, 1, 2, ... of its shape."""
    return np.arange(prod(shape)).reshape(shape)


def points(index: np.ndarray, shape: Shape) -> np.ndarray:
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
    call: Call, places: np.ndarray, updates: int, into: int | None = None, adds: bool = False
) -> Meaning:
    """Returns a scatter. ``places``: flat ones of the result; ``updates``: the slot of what is put
    there, which broadcasts to them; ``into``: the slot of the array that is written into, zeros if
    there is none. ``adds``: the updates are added."""
    shape, given = call.gives[0], call.shape(updates)
    if adds:
        return _added(call, places, updates, into)
    if len(np.unique(places)) < places.size:
        return Unknown(SEVERAL)
    start = 0 if into is None else prod(shape)
    index = flat(shape) if into is not None else np.full(shape, -1)
    index.reshape(-1)[places.reshape(-1)] = start + np.broadcast_to(
        flat(given), places.shape
    ).reshape(-1)
    constants = np.zeros(shape, call.dtypes[0] if call.dtypes else np.float32)
    shapes = (given,) if into is None else (shape, given)
    data = tuple(range(len(shapes)))
    slots = (updates,) if into is None else (into, updates)
    return reading(call, Mapped(data, shapes, (Map(index, constants),)), *slots)


def _added(call: Call, places: np.ndarray, updates: int, into: int | None) -> Meaning:
    """Updates broadcast to the places, and are added there in any order."""
    count, shape = call.count, call.gives[0]
    rank = len(call.shape(updates))
    wide = Broadcasts(tuple(range(places.ndim - rank, places.ndim)))
    steps = [Step(wide, call.places(updates), places.shape)]
    first = count + 1 if into is None else call.at(into)
    steps += [Step(Made(0), (), shape)] if into is None else []
    steps.append(Step(Accumulates(places.reshape(-1)), (first, count), shape))
    return Steps(tuple(steps))


def one_hot(
    call: Call, index: np.ndarray, axis: int, on: int, off: int | None = None, wraps: bool = False
) -> Meaning:
    """Returns a one-hot of known indices. ``on``, ``off``: slots of single numbers; without ``off``
    that of both, (off, on). ``wraps``: negative indices count from the end, as ONNX has it."""
    shape = call.gives[0]
    axis, depth = axis % len(shape), shape[axis]
    if wraps:
        index = np.where((index < 0) & (index >= -depth), index + depth, index)
    at = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    hot = np.expand_dims(index, axis) == at
    slots = (on,) if off is None else (off, on)
    shapes = tuple(call.shape(slot) for slot in slots)
    where = Map(hot.astype(np.int32), np.zeros(hot.shape, np.float32))
    return reading(call, Mapped(tuple(range(len(slots))), shapes, (where,)), *slots)
