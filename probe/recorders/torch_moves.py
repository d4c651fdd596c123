"""What ATen's operations on places compute: indexing, padding, turning, pictures in other sizes;
and the halves of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from probe.recorders.torch_calls import Call, row
from probe.recorders.torch_tensors import Slot
from probe.semantics import (
    Blends,
    Chooses,
    Each,
    Joins,
    Made,
    Meaning,
    Moves,
    Pads,
    Picks,
    Same,
    Splits,
    Step,
    Steps,
    Unknown,
    Whole,
    operations,
)


def _others(call: Call, *axes: int) -> tuple[int, ...]:
    rank = len(call["self"].shape)
    return tuple(n for n in range(rank) if n not in [axis % rank for axis in axes])


@row("slice")
def _slice(call: Call) -> Meaning:
    axis = call["dim"]
    index = np.arange(call["self"].shape[axis])[call["start"] : call["end"] : call["step"]]
    return Picks(axis=axis, index=index)


@row("select")
def _select(call: Call) -> Meaning:
    axis = call["dim"]
    return Picks(axis=axis, index=np.asarray(call["index"] % call["self"].shape[axis]))


@row("index_select", "embedding")
def _picks(call: Call) -> Meaning:
    name, axis = ("indices", 0) if call.name == "embedding" else ("index", call["dim"])
    index = call.content(name)
    return Unknown(call.lacking(name)) if index is None else Picks(axis=axis, index=index)


@row("index", "_unsafe_index")
def _index(call: Call) -> Meaning:
    found = call.contents("indices")
    if found is None:
        return Unknown(call.lacking("indices"))
    index = tuple(slice(None) if one is None else one for one in found)
    return Moves(lambda one, *_: one[index])


@row("gather")
def _gather(call: Call) -> Meaning:
    index, axis = call.content("index"), call["dim"]
    if index is None:
        return Unknown(call.lacking("index"))

    def move(one: np.ndarray, *_: np.ndarray) -> np.ndarray:
        at = axis % max(one.ndim, 1)
        part = tuple(slice(None if n == at else size) for n, size in enumerate(index.shape))
        return np.take_along_axis(one[part], index, at)

    return Moves(move)


@row(
    "split",
    "split_with_sizes",
    "unsafe_split",
    "unbind",
    "chunk",
    "unsafe_split_with_sizes",
    "unsafe_chunk",
    "tensor_split",
)
def _splits(call: Call) -> Meaning:
    axis = call["dim"]
    if call.name == "unbind":
        return Splits(axis, (1,) * len(call.shapes), True)
    return Splits(axis, tuple(shape[axis] for shape in call.shapes))


@row("cat", "concat", "stack")
def _joins(call: Call) -> Meaning:
    return Joins(call["dim"], stacked=call.name == "stack")


@row("constant_pad_nd", "pad")
def _pads(call: Call) -> Meaning:
    dtype = str(call["self"].dtype).removeprefix("torch.")
    return Pads(_widths(call["pad"], len(call["self"].shape)), call["value"] or 0, dtype)


def _widths(pad: list[int], rank: int) -> tuple[tuple[int, int], ...]:
    """Returns a pair of widths an axis, from PyTorch's list, which begins with the last axis."""
    pairs = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    return ((0, 0),) * (rank - len(pairs)) + tuple(reversed(pairs))


@row(
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
)
def _mirrors(call: Call) -> Meaning:
    shape = call["self"].shape
    rank = len(shape)
    widths = _widths(call["padding"], rank)
    mode: Any = "reflect" if "reflection" in call.name else "edge"
    kept = tuple(n for n in range(rank) if widths[n] == (0, 0))
    if any(size + min(a, 0) + min(b, 0) < 1 for size, (a, b) in zip(shape, widths, strict=True)):
        return Unknown("nothing is left of an axis before it is padded")
    cut = tuple(slice(max(-a, 0), -max(-b, 0) or None) for a, b in widths)
    wider = [(max(a, 0), max(b, 0)) for a, b in widths]
    return Moves(lambda one: np.pad(one[cut], wider, mode), kept)


@row("roll", "flip")
def _rolls(call: Call) -> Meaning:
    axes = tuple(call["dims"])
    if call.name == "flip":
        return Moves(lambda one: np.flip(one, axes), _others(call, *axes))
    shifts = tuple(call["shifts"])
    if not axes:
        return Moves(lambda one: np.roll(one, shifts[0]))
    return Moves(lambda one: np.roll(one, shifts, axes), _others(call, *axes))


@row("repeat")
def _repeat(call: Call) -> Meaning:
    times = tuple(call["repeats"])
    same = len(times) == len(call["self"].shape)
    kept = tuple(n for n, k in enumerate(times) if k == 1) if same else ()
    return Moves(lambda one: np.tile(one, times), kept)


@row("repeat_interleave")
def _interleave(call: Call) -> Meaning:
    index = call.content("repeats")
    if index is None:
        return Unknown(call.lacking("repeats"))
    return Made((call.op, tuple(map(int, index))), "", places=True)


@row("unfold")
def _unfold(call: Call) -> Meaning:
    axis, size, step = call["dimension"], call["size"], call["step"]
    rank = len(call["self"].shape)
    at = axis % rank

    def move(one: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(one, size, axis=at)
        return windows[(slice(None),) * at + (slice(None, None, step),)]

    return Moves(move, _others(call, axis))


@row("as_strided")
def _as_strided(call: Call) -> Meaning:
    one = call["self"]
    if one.strides is None or int(np.prod(call.shapes[0])) > 1 << 22:
        return Unknown("it reads memory by its own strides")
    own, wanted = _grid(one.shape, one.strides), _grid(call.shapes[0], call["stride"])
    offset = call["storage_offset"]
    wanted = wanted + (0 if offset is None else offset - one.offset)
    if not own.size or (offset not in (None, 0) and one.offset):
        return Unknown("it reads memory by its own strides")
    place = np.full(int(max(own.max(), wanted.max())) + 1, -1)
    place[own.reshape(-1)] = np.arange(own.size)
    index = place[wanted]
    if wanted.min() < 0 or index.min() < 0:
        return Unknown("it reads memory beyond its input")
    return Moves(lambda array: np.asarray(array).reshape(-1)[index])


def _grid(shape: tuple[int, ...], strides: Any) -> np.ndarray:
    found = np.zeros(tuple(shape), np.int64)
    for axis, (size, step) in enumerate(zip(shape, strides, strict=True)):
        found += np.arange(size).reshape(-1, *(1,) * (len(shape) - axis - 1)) * step
    return found


@row("tril", "triu")
def _triangle(call: Call) -> Meaning:
    cut = np.tril if call.name == "tril" else np.triu
    k = call["diagonal"]
    rank = len(call["self"].shape)
    return Moves(
        lambda one: np.where(cut(np.ones(one.shape[-2:], bool), k), one, one.dtype.type(0)),
        tuple(range(rank - 2)),
    )


@row("where")
def _where(call: Call) -> Meaning:
    if len(call.reads) != 3:
        return Each("where", "", call.numbers())
    return Chooses()


@row("masked_fill")
def _masked_fill(call: Call) -> Meaning:
    value = call["value"]
    if isinstance(value, Slot):
        return Chooses((1, 2, 0))
    return Chooses((1, -1, 0), value, str(call["self"].dtype).removeprefix("torch."))


@row("slice_scatter", "select_scatter")
def _part_written(call: Call) -> Meaning:
    """A slice, or one index along an axis, is replaced."""
    axis = call["dim"] % len(call["self"].shape)
    if call.name == "select_scatter":
        part: Any = call["index"]
    else:
        part = slice(call["start"], call["end"], call["step"])

    def move(one: np.ndarray, new: np.ndarray) -> np.ndarray:
        found = np.array(one)
        found[(slice(None),) * axis + (part,)] = new
        return found

    return Moves(move)


# pictures


@row(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
def _nearest(call: Call) -> Meaning:
    shape = call["self"].shape
    inner = shape[2:]
    plane = torch.arange(math.prod(inner), dtype=torch.float64).reshape(1, 1, *inner)
    args = (plane, *call.args[1:])
    index = call.func(*args, **call.kwargs).numpy().astype(np.int64).reshape(-1)

    def move(one: np.ndarray) -> np.ndarray:
        flat = one.reshape(*one.shape[:2], -1)
        return flat[..., index]

    return Moves(move, (0, 1))


@row(
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
def _interpolates(call: Call) -> Meaning:
    """Along each axis alone the operation is asked what it does to each element."""
    shape, to = call["self"].shape, call.shapes[0]
    rank = len(shape) - 2
    if any(n * m > 1 << 22 for n, m in zip(shape[2:], to[2:], strict=True)):
        return Whole(((0, 0), (1, 1)), call.name, call.numbers())
    taps = []
    for axis in range(rank):
        size = shape[axis + 2]
        plane = torch.eye(size, dtype=torch.float64)
        lengths = [size if k == axis else n for k, n in enumerate(shape[2:])]
        plane = plane.reshape(size, 1, *(size if k == axis else 1 for k in range(rank)))
        found = call.func(plane.expand(size, 1, *lengths), *call.args[1:], **call.kwargs)
        line = found[(slice(None), 0, *(slice(None) if k == axis else 0 for k in range(rank)))]
        taps.append((axis + 2, *_terms(line.numpy().T)))
    return Blends(tuple(taps))


def _terms(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where each row isn't zero, and what is there: (rows, terms) both."""
    most = int((matrix != 0).sum(1).max(initial=1))
    index = np.argsort(matrix == 0, axis=1, kind="stable")[:, :most]
    return index, np.take_along_axis(matrix, index, 1)


@row("_fft_r2c", "_fft_c2c", "_fft_c2r")
def _fourier(call: Call) -> Meaning:
    axes = [axis % len(call["self"].shape) for axis in call["dim"]]
    rest = [axis for axis in range(len(call["self"].shape)) if axis not in axes]
    return Whole(tuple((axis, axis) for axis in rest), call.name, call.numbers())


@row("pixel_shuffle")
def _shuffle(call: Call) -> Meaning:
    r, to = call["upscale_factor"], call.shapes[0]

    def move(one: np.ndarray) -> np.ndarray:
        *lead, c, h, w = one.shape
        split = one.reshape(*lead, c // (r * r), r, r, h, w)
        k = len(lead)
        turned = split.transpose(*range(k), k, k + 3, k + 1, k + 4, k + 2)
        return turned.reshape(to)

    return Moves(move, tuple(range(len(to) - 3)))


@row("view_as_real")
def _halves(call: Call) -> Meaning:
    shape = call["self"].shape
    halves = (Step(operations.function(word), (0,), shape) for word in ("real", "imag"))
    return Steps((*halves, Step(Joins(-1, stacked=True), (1, 2), call.shapes[0])))


@row("view_as_complex")
def _of_halves(call: Call) -> Meaning:
    shape = call.shapes[0]
    halves = (Step(Picks(axis=-1, index=np.asarray(n)), (0,), shape) for n in range(2))
    return Steps((*halves, Step(operations.function("complex"), (1, 2), shape)))


@row("_conj", "_conj_copy", "conj", "_conj_physical", "conj_physical")
def _conjugate(call: Call) -> Meaning:
    return operations.function("conj") if call["self"].dtype.is_complex else Same()


@row("_neg_view")
def _negative(call: Call) -> Meaning:
    return operations.function("negative")
