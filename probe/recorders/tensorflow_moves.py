"""TensorFlow's operations that move elements and compute none: slices, pads, gathers, blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from probe.recorders import written_at
from probe.recorders.tensorflow_lines import Call, axes_of
from probe.semantics import (
    Chooses,
    Each,
    Holds,
    Joins,
    Meaning,
    Moves,
    Pads,
    Picks,
    Reshapes,
    Splits,
    Step,
    Steps,
    Turns,
)


def _strided(call: Call) -> Meaning:
    """Returns a slice as Python writes it, from TensorFlow's masks."""
    begin, end, step = (call.arguments[n].reshape(-1).tolist() for n in (1, 2, 3))
    bits = {name: int(call.get(f"{name}_mask", 0)) for name in _MASKS}
    index: list[Any] = []
    for n in range(len(begin)):
        bit = 1 << n
        if bits["ellipsis"] & bit:
            index.append(Ellipsis)
        elif bits["new_axis"] & bit:
            index.append(None)
        elif bits["shrink_axis"] & bit:
            index.append(int(begin[n]))
        else:
            first = None if bits["begin"] & bit else int(begin[n])
            last = None if bits["end"] & bit else int(end[n])
            index.append(slice(first, last, int(step[n])))
    place = tuple(index)
    if not all(isinstance(one, slice) for one in place):
        return Moves(lambda a: a[place])
    whole = slice(None, None, 1)
    kept = tuple(n for n in range(len(call.outputs[0])) if n >= len(place) or place[n] == whole)
    return Moves(lambda a: a[place], kept)


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def _sliced(call: Call) -> Meaning:
    begin, sizes = call.arguments[1].reshape(-1).tolist(), call.outputs[0]
    kept = tuple(a for a, n in enumerate(sizes) if n == call.inputs[0][a])
    place = tuple(
        slice(None) if a in kept else slice(first, first + n)
        for a, (first, n) in enumerate(zip(begin, sizes, strict=True))
    )
    return Moves(lambda a: a[place], kept)


def _joined(call: Call) -> Meaning:
    return Joins(int(call.arguments[len(call.inputs) - 1]))


def _split(call: Call) -> Meaning:
    axis = int(call.arguments[0 if call.op == "Split" else 2]) % len(call.outputs[0])
    return Splits(axis, tuple(shape[axis] for shape in call.outputs))


def _stacked(call: Call) -> Meaning:
    return Joins(int(call.get("axis", 0)), stacked=True)


def _unstacked(call: Call) -> Meaning:
    axis = int(call.get("axis", 0))
    return Moves(lambda a: list(np.moveaxis(a, axis, 0)))


def _padded(call: Call) -> Meaning | None:
    pairs = tuple((int(a), int(b)) for a, b in call.arguments[1].tolist())
    if call.op == "Pad":
        return Pads(pairs)
    if call.op == "PadV2":
        return Moves(lambda a, fill: np.pad(a, pairs, constant_values=fill.reshape(())))
    mode: Any = str(call.get("mode", "REFLECT")).lower()
    kept = tuple(a for a, pair in enumerate(pairs) if not any(pair))
    return Moves(lambda a: np.pad(a, pairs, mode=mode), kept)


def _tiled(call: Call) -> Meaning:
    times = call.arguments[1].reshape(-1).tolist()
    return Moves(lambda a: np.tile(a, times), tuple(a for a, n in enumerate(times) if n == 1))


def _gathered(call: Call) -> Meaning | None:
    index, batch = call.values(1), int(call.get("batch_dims", 0))
    axis = int(call.arguments[2]) if 2 in call.arguments else 0
    if index is None:
        return None
    rank = len(call.inputs[0])
    if batch % max(index.ndim, 1):
        return _gathered_in_rows(index, batch % index.ndim, axis % rank)
    return Picks(axis=axis % rank, index=index) if not batch else None


def _gathered_in_rows(index: np.ndarray, batch: int, axis: int) -> Meaning:
    """Each entry of the first ``batch`` axes has its own indices along ``axis``."""
    entries = np.indices(index.shape)[:batch]

    def move(a: np.ndarray, *_: np.ndarray) -> np.ndarray:
        found = np.moveaxis(a, axis, batch)[(*entries, index)]
        between = range(index.ndim, index.ndim + axis - batch)
        rest = range(between.stop, found.ndim)
        return found.transpose(*range(batch), *between, *range(batch, index.ndim), *rest)

    return Moves(move)


def _gathered_points(call: Call) -> Meaning | None:
    """``GatherNd``: an index of several axes in the last axis of the second input."""
    index = call.values(1)
    if index is None or int(call.get("batch_dims", 0)):
        return None
    place = tuple(np.moveaxis(index, -1, 0))
    return Moves(lambda a, _: a[place])


def _chosen(call: Call) -> Meaning | None:
    """``Select`` takes rows by a condition of one axis: that isn't broadcast as NumPy does it."""
    rows = call.op == "Select" and len(call.inputs[0]) not in (0, len(call.outputs[0]))
    return None if rows else Chooses()


def _resized(call: Call) -> Meaning:
    """Nearest: each axis by its own index, which is found by TensorFlow's rule."""
    sizes = call.inputs[0][1:3], call.outputs[0][1:3]
    index = [
        _nearest(
            was,
            now,
            bool(call.get("align_corners", False)),
            bool(call.get("half_pixel_centers", False)),
        )
        for was, now in zip(*sizes, strict=True)
    ]
    return Moves(lambda a: a[:, index[0]][:, :, index[1]], (0, 3))


def _nearest(was: int, now: int, corners: bool, half: bool) -> np.ndarray:
    """Returns which of ``was`` elements each of ``now`` copies (resize_nearest_neighbor_op.cc)."""
    scale = np.float32((was - 1) / (now - 1)) if corners and now > 1 else np.float32(was / now)
    at = np.arange(now, dtype=np.float32)
    place = (at + np.float32(0.5)) * scale if half else at * scale
    # round() of C rounds halves away from zero
    found = np.floor(place + np.float32(0.5)) if corners else np.floor(place)
    return np.clip(found, 0, was - 1).astype(int)


def _depth_to_space(call: Call) -> Meaning | None:
    if str(call.get("data_format", "NHWC")) != "NHWC":
        return None
    size, (batch, height, width, channels) = int(call.get("block_size", 2)), call.inputs[0]
    if call.op == "DepthToSpace":
        shape = (batch, height, width, size, size, channels // size**2)
    else:
        shape = (batch, height // size, size, width // size, size, channels)
    order = (0, 1, 3, 2, 4, 5)
    return Moves(lambda a: a.reshape(shape).transpose(order).reshape(call.outputs[0]))


def _batches(call: Call) -> Meaning:
    """SpaceToBatchND and BatchToSpaceND: padding or cropping, and blocks that become batch."""
    blocks = call.arguments[1].reshape(-1).tolist()
    pairs, rank = call.arguments[2].tolist(), len(blocks)
    to_batch, shape = call.op == "SpaceToBatchND", call.outputs[0]

    def move(a: np.ndarray) -> np.ndarray:
        rest = a.ndim - rank - 1
        if to_batch:
            a = np.pad(a, [(0, 0), *map(tuple, pairs), *[(0, 0)] * rest])
            sizes = [n for k, block in enumerate(blocks) for n in (a.shape[k + 1] // block, block)]
            a = a.reshape(a.shape[0], *sizes, *a.shape[rank + 1 :])
            inner = [2 * k + 2 for k in range(rank)]
            outer = [2 * k + 1 for k in range(rank)]
            return a.transpose(*inner, 0, *outer, *range(2 * rank + 1, a.ndim)).reshape(shape)
        batch = a.shape[0] // int(np.prod(blocks))
        split = a.reshape(*blocks, batch, *a.shape[1:])
        order = [rank, *(n for k in range(rank) for n in (rank + 1 + k, k))]
        split = split.transpose(*order, *range(2 * rank + 1, split.ndim))
        wide = split.reshape(
            batch, *(a.shape[k + 1] * b for k, b in enumerate(blocks)), *a.shape[rank + 1 :]
        )
        return wide[
            (
                slice(None),
                *(slice(p, n - q) for (p, q), n in zip(pairs, wide.shape[1:], strict=False)),
            )
        ]

    return Moves(move)


def _one_hot(call: Call) -> Meaning | None:
    index = call.values(0)
    depth, axis = int(call.arguments[1]), int(call.get("axis", -1))
    if index is None:  # too many to be kept: each output reads its index, on and off
        axis %= len(call.outputs[0])
        at = [depth if a == axis else 1 for a in range(len(call.outputs[0]))]
        thin = (*call.inputs[0][:axis], 1, *call.inputs[0][axis:])
        index_at = Step(Reshapes(), (0,), thin)
        positions = Step(Holds(np.arange(depth).reshape(at)), (), tuple(at))
        chosen = Step(Each("one_hot"), (3, 4, 1, 2), call.outputs[0])
        return Steps((index_at, positions, chosen))
    return written_at.one_hot(index, depth, axis, (1, 2), call.outputs[0])


def _squeezed(call: Call) -> Meaning:
    """An axis goes, and no other is merged with it: Keras squeezes what it adds to a batch of 1."""
    shape = call.inputs[0]
    gone = [a for a, n in enumerate(shape) if n == 1]
    if len(gone) != 1 or len(call.outputs[0]) != len(shape) - 1:
        return Reshapes()
    return Picks(axis=gone[0], index=np.asarray(0))


def _patches(call: Call) -> Meaning:
    """Windows of a picture side by side in its channels, zeros where they reach over its edge."""
    kernel, stride, rate = (call.get(name, [])[1:3] for name in ("ksizes", "strides", "rates"))
    reach = [(k - 1) * r + 1 for k, r in zip(kernel, rate, strict=True)]
    starts, picked = [], []
    for n, was in enumerate(call.inputs[0][1:3]):
        count = call.outputs[0][n + 1]
        same = str(call.get("padding", "VALID")) == "SAME"
        before = max((count - 1) * stride[n] + reach[n] - was, 0) // 2 if same else 0
        starts.append(before)
        steps = np.arange(count)[:, None] * stride[n] + np.arange(kernel[n]) * rate[n]
        picked.append(steps)
    around = [
        (before, max(int(steps.max()) + 1 - before - was, 0))
        for before, steps, was in zip(starts, picked, call.inputs[0][1:3], strict=True)
    ]

    def move(a: np.ndarray) -> np.ndarray:
        wide = np.pad(a, [(0, 0), *around, (0, 0)])
        rows = wide[:, picked[0]]  # (batch, rows, kernel, width, channels)
        found = rows[:, :, :, picked[1]].transpose(0, 1, 3, 2, 4, 5)
        return found.reshape(*found.shape[:3], -1)

    return Moves(move)


def _flipped(call: Call) -> Meaning:
    axes = axes_of(call)
    kept = tuple(a for a in range(len(call.outputs[0])) if a not in axes)
    return Moves(lambda a: np.flip(a, axes), kept)


MOVES: dict[str, Callable[[Call], Meaning | None]] = {
    **dict.fromkeys(("Reshape", "ExpandDims"), lambda _: Reshapes()),
    "Squeeze": _squeezed,
    "Transpose": lambda call: Turns(tuple(map(int, call.arguments[1].reshape(-1)))),
    "StridedSlice": _strided,
    "Slice": _sliced,
    "ConcatV2": _joined,
    "Split": _split,
    "SplitV": _split,
    "Pack": _stacked,
    "Unpack": _unstacked,
    "Tile": _tiled,
    **dict.fromkeys(("Pad", "PadV2", "MirrorPad"), _padded),
    "ReverseV2": _flipped,
    "GatherNd": _gathered_points,
    "OneHot": _one_hot,
    **dict.fromkeys(
        ("BroadcastTo", "Fill"), lambda call: Moves(lambda a: np.broadcast_to(a, call.outputs[0]))
    ),
    **dict.fromkeys(("GatherV2", "Gather", "ResourceGather"), _gathered),
    **dict.fromkeys(("Select", "SelectV2"), _chosen),
    "ResizeNearestNeighbor": _resized,
    "ExtractImagePatches": _patches,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _depth_to_space,
    "SpaceToBatchND": _batches,
    "BatchToSpaceND": _batches,
}
"""Rows as of :data:`probe.recorders.tensorflow_meanings.ROWS`."""
