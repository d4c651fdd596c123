"""LiteRT's operators that move elements and compute none: slices, gathers, paddings, blocks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from probe.recorders import written_at
from probe.recorders.node import Call
from probe.semantics import (
    Meaning,
    Moves,
    Reshapes,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
)


def alone(call: Call, what: Meaning, *reads: int) -> Meaning:
    """Returns an operator that reads only some inputs as arrays."""
    return Steps((Step(what, tuple(call.at(n) for n in reads), call.gives[0]),))


def _reshape(call: Call) -> Meaning:
    return Reshapes()


def _transpose(call: Call) -> Meaning:
    return Turns(tuple(int(n) for n in call.value(1)))


def _pad(call: Call) -> Meaning:
    around = [(int(a), int(b)) for a, b in call.value(1).reshape(-1, 2)]
    if call.op == "MIRROR_PAD":
        mode = "symmetric" if call.words.get("mode") == 1 else "reflect"
        return Moves(lambda x, *_: np.pad(x, around, mode))  # type: ignore[call-overload]
    place = call.at(2) if call.has(2) else None

    def move(*arrays: np.ndarray) -> np.ndarray:
        value = 0 if place is None else arrays[place].reshape(())
        return np.pad(arrays[0], around, constant_values=value)

    return Moves(move)


def _concat(call: Call) -> Meaning:
    axis = int(call.words["axis"])
    return Moves(lambda *arrays: np.concatenate(arrays, axis))


def _pack(call: Call) -> Meaning:
    axis = int(call.words.get("axis", 0))
    return Moves(lambda *arrays: np.stack(arrays, axis))


def _unpack(call: Call) -> Meaning:
    axis = int(call.words.get("axis", 0))
    return Moves(lambda x: list(np.moveaxis(x, axis, 0)))


def _split(call: Call) -> Meaning:
    first, at = (1, 0) if call.op == "SPLIT" else (0, 2)
    axis, place = int(call.value(at).reshape(-1)[0]), call.at(first)
    ends = np.cumsum([shape[axis] for shape in call.gives])[:-1]
    return Moves(lambda *arrays: np.split(arrays[place], ends, axis))


def _slice(call: Call) -> Meaning:
    starts = [int(n) for n in call.value(1)]
    index = tuple(slice(a, a + n) for a, n in zip(starts, call.gives[0], strict=True))
    return Moves(lambda x, *_: x[index])


def _strided_slice(call: Call) -> Meaning:
    words = call.words
    if words.get("ellipsisMask") or words.get("newAxisMask") or words.get("offset"):
        return Unknown("its slice has an ellipsis or a new axis")
    index: list[Any] = []
    for axis, ends in enumerate(zip(*(call.value(n) for n in (1, 2, 3)), strict=True)):
        start, stop, step = (int(n) for n in ends)
        bit = 1 << axis
        if words.get("shrinkAxisMask", 0) & bit:
            index.append(start)
            continue
        open_start, open_stop = words.get("beginMask", 0) & bit, words.get("endMask", 0) & bit
        index.append(slice(None if open_start else start, None if open_stop else stop, step))
    return Moves(lambda x, *_: x[tuple(index)])


def _gather(call: Call) -> Meaning:
    if call.words.get("batchDims"):
        return Unknown("it has batch axes")
    axis, index = int(call.words.get("axis", 0)), call.value(1)
    return Moves(lambda x, *_: np.take(x, index, axis))


def _embedding(call: Call) -> Meaning:
    index, table = call.value(0), call.at(1)
    return Moves(lambda *arrays: arrays[table][index])


def _gather_nd(call: Call) -> Meaning:
    index = call.value(1)
    return Moves(lambda x, *_: x[tuple(np.moveaxis(index, -1, 0))])


def _broadcast(call: Call) -> Meaning:
    shape = call.gives[0]
    return Moves(lambda x, *_: np.broadcast_to(x, shape))


def _tile(call: Call) -> Meaning:
    repeats = [int(n) for n in call.value(1)]
    return Moves(lambda x, *_: np.tile(x, repeats))


def _reverse(call: Call) -> Meaning:
    axes = tuple(int(n) for n in call.value(1).reshape(-1))
    return Moves(lambda x, *_: np.flip(x, axes))


def _depth(call: Call) -> Meaning:
    batch, high, wide, channels = call.shape(0)
    size, shape = int(call.words["blockSize"]), call.gives[0]
    if call.op == "DEPTH_TO_SPACE":
        split = (batch, high, wide, size, size, channels // size**2)
    else:
        split = (batch, high // size, size, wide // size, size, channels)
    return Moves(lambda x: x.reshape(split).transpose(0, 1, 3, 2, 4, 5).reshape(shape))


def _blocks(call: Call) -> Meaning:
    """Space put into the batch and back, as older converters write dilated convolutions."""
    size = [int(n) for n in call.value(1)]
    around = [(int(a), int(b)) for a, b in call.value(2)]
    rank, shape = len(size), call.gives[0]
    inner = tuple(range(rank))

    def apart(x: np.ndarray, *_: Any) -> np.ndarray:
        wide = np.pad(x, [(0, 0), *around, *[(0, 0)] * (x.ndim - rank - 1)])
        split = [wide.shape[0]]
        for k in inner:
            split += [wide.shape[k + 1] // size[k], size[k]]
        axes = [2 * k + 2 for k in inner] + [0] + [2 * k + 1 for k in inner]
        rest = list(range(2 * rank + 1, 2 * rank + x.ndim - rank))
        return wide.reshape(*split, *wide.shape[rank + 1 :]).transpose(*axes, *rest).reshape(shape)

    def together(x: np.ndarray, *_: Any) -> np.ndarray:
        batch = x.shape[0] // prod(size)
        split = x.reshape(*size, batch, *x.shape[1:])
        axes = [rank]
        for k in inner:
            axes += [rank + 1 + k, k]
        turned = split.transpose(*axes, *range(2 * rank + 1, split.ndim))
        wide = turned.reshape(
            batch, *(x.shape[k + 1] * size[k] for k in inner), *x.shape[rank + 1 :]
        )
        ends = [slice(a, wide.shape[k + 1] - b) for k, (a, b) in enumerate(around)]
        return wide[(slice(None), *ends)]

    return Moves(apart if call.op == "SPACE_TO_BATCH_ND" else together)


def _resize(call: Call) -> Meaning:
    """Nearest neighbours at whole scales are copies; anything else reads its channel's plane."""
    (_, *ins, _), (_, *outs, _) = call.shape(0), call.gives[0]
    whole = all(out % size == 0 for size, out in zip(ins, outs, strict=True))
    aligned = bool(call.words.get("alignCorners"))
    if call.op == "RESIZE_NEAREST_NEIGHBOR" and whole and not aligned:

        def move(x: np.ndarray, *_: Any) -> np.ndarray:
            for axis, (size, out) in enumerate(zip(ins, outs, strict=True), 1):
                x = np.repeat(x, out // size, axis)
            return x

        return Moves(move)
    numbers = (call.op, aligned, bool(call.words.get("halfPixelCenters")), tuple(outs))
    return alone(call, Whole(((0, 0), (3, 3)), "resize", numbers), 0)


def _filled(call: Call) -> Meaning:
    shape, value = call.gives[0], call.at(1)
    return Moves(lambda *arrays: np.broadcast_to(arrays[value].reshape(()), shape))


def _range(call: Call) -> Meaning:
    return Whole((), "range")


def _scattered(call: Call) -> Meaning:
    shape = call.gives[0]
    places = written_at.of_points(call.value(0), shape)
    return written_at.written(places, shape, (call.at(1),), call.count, adds=True)


def _one_hot(call: Call) -> Meaning:
    depth, axis = int(call.value(1).reshape(-1)[0]), int(call.words.get("axis", -1))
    reads = (call.at(2), call.at(3))
    return written_at.one_hot(call.value(0), depth, axis, reads, call.gives[0])


def _turned(call: Call) -> Meaning:
    words = call.words
    return written_at.turned(
        call.value(1), int(words.get("seqDim", 0)), int(words.get("batchDim", 0)), call.shape(0)
    )


def _updated(call: Call) -> Meaning:
    """A part of the first input is replaced, from a place on that is moved so that it fits."""
    shape, part = call.shape(0), call.shape(1)
    starts = [
        min(max(int(n), 0), whole - size)
        for n, whole, size in zip(call.value(2).reshape(-1), shape, part, strict=True)
    ]
    index = tuple(slice(a, a + n) for a, n in zip(starts, part, strict=True))
    places = np.arange(prod(shape)).reshape(shape)[index]
    return written_at.written(places, shape, (call.at(0), call.at(1)), call.count)


MOVES: dict[str, Callable[[Call], Meaning]] = {
    "SCATTER_ND": _scattered,
    "ONE_HOT": _one_hot,
    "REVERSE_SEQUENCE": _turned,
    "DYNAMIC_UPDATE_SLICE": _updated,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _reshape),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _pad),
    **dict.fromkeys(("RANGE", "BROADCAST_ARGS"), _range),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), _split),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), _depth),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"), _blocks),
    **dict.fromkeys(("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"), _resize),
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concat,
    "PACK": _pack,
    "UNPACK": _unpack,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "EMBEDDING_LOOKUP": _embedding,
    "BROADCAST_TO": _broadcast,
    "TILE": _tile,
    "FILL": _filled,
    "REVERSE_V2": _reverse,
}
"""Rows of operators that move."""
