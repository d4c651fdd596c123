"""ONNX's operators that move elements: slices, gathers, paddings, layouts, and those that go by
indices, or of which no element says what it reads alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from probe.recorders import written_at
from probe.recorders.node import Call
from probe.recorders.onnx_functions import snake
from probe.semantics import (
    Each,
    Made,
    Meaning,
    Moves,
    Reshapes,
    Same,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
)


def _reshape(call: Call) -> Meaning:
    return Reshapes()


def _transpose(call: Call) -> Meaning:
    axes = call.words.get("perm") or list(range(call.rank(0)))[::-1]
    return Turns(tuple(axes))


def _concat(call: Call) -> Meaning:
    axis = int(call.words["axis"])
    return Moves(lambda *arrays: np.concatenate(arrays, axis))


def _split(call: Call) -> Meaning:
    axis = int(call.words.get("axis", 0))
    ends = np.cumsum([shape[axis] for shape in call.gives])[:-1]
    return Moves(lambda x, *_: np.split(x, ends, axis))


def _slice(call: Call) -> Meaning:
    starts, ends = call.numbers("starts", 1), call.numbers("ends", 2)
    assert starts is not None and ends is not None
    axes = call.numbers("axes", 3) or list(range(len(starts)))
    steps = call.numbers("steps", 4) or [1] * len(starts)
    index = [slice(None)] * call.rank(0)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = call.shape(0)[axis]
        if step < 0 and end < -size:  # beyond the first element: NumPy would count from the end
            index[axis] = slice(start, None, step)
        else:
            index[axis] = slice(start, end, step)
    return Moves(lambda x, *_: x[tuple(index)])


def _gather(call: Call) -> Meaning:
    axis, index = int(call.words.get("axis", 0)), call.value(1)
    return Moves(lambda x, *_: np.take(x, index, axis))


def _gather_elements(call: Call) -> Meaning:
    axis, index = int(call.words.get("axis", 0)), call.value(1)
    index = np.where(index < 0, index + call.shape(0)[axis], index)

    def move(x: np.ndarray, *_: Any) -> np.ndarray:
        places: list[Any] = list(np.indices(index.shape, sparse=True))
        places[axis] = index
        return x[tuple(places)]

    return Moves(move)


def _gather_nd(call: Call) -> Meaning:
    if call.words.get("batch_dims", 0):
        return Unknown("it has batch axes")
    index = call.value(1)
    return Moves(lambda x, *_: x[tuple(np.moveaxis(index, -1, 0))])


def _expand(call: Call) -> Meaning:
    shape = call.gives[0]
    return Moves(lambda x, *_: np.broadcast_to(x, shape))


def _tile(call: Call) -> Meaning:
    repeats = call.value(1).reshape(-1).tolist()
    return Moves(lambda x, *_: np.tile(x, repeats))


def _pad(call: Call) -> Meaning:
    pads = call.numbers("pads", 1)
    assert pads is not None
    axes = call.numbers("axes", 3) or list(range(call.rank(0)))
    rank = call.rank(0)
    around = [(0, 0)] * rank
    for n, axis in enumerate(axes):
        around[axis] = (pads[n], pads[n + len(axes)])
    if call.words.get("value", 0.0):
        return Unknown("it is padded with a number that no input holds")
    mode = call.words.get("mode", "constant")
    mode = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    cropped = tuple(
        slice(max(0, -before), size + min(0, after))
        for size, (before, after) in zip(call.shape(0), around, strict=True)
    )
    wider = [(max(0, before), max(0, after)) for before, after in around]

    place = call.at(2) if call.has(2) else None

    def move(x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        if mode != "constant":
            return np.pad(x[cropped], wider, mode)  # type: ignore[call-overload]
        value = 0 if place is None else rest[place - 1].reshape(())
        return np.pad(x[cropped], wider, constant_values=value)

    return Moves(move)


def _depth_to_space(call: Call) -> Meaning:
    batch, channels, high, wide = call.shape(0)
    size = int(call.words["blocksize"])
    shape = call.gives[0]
    if call.op == "SpaceToDepth":
        split = (batch, channels, high // size, size, wide // size, size)
        return Moves(lambda x: x.reshape(split).transpose(0, 3, 5, 1, 2, 4).reshape(shape))
    rest = channels // size**2
    if call.words.get("mode", "DCR") == "DCR":
        split = (batch, size, size, rest, high, wide)
        return Moves(lambda x: x.reshape(split).transpose(0, 3, 4, 1, 5, 2).reshape(shape))
    split = (batch, rest, size, size, high, wide)
    return Moves(lambda x: x.reshape(split).transpose(0, 1, 4, 2, 5, 3).reshape(shape))


def _trilu(call: Call) -> Meaning:
    k = int(call.value(1).reshape(-1)[0]) if call.has(1) else 0
    keep = np.triu if call.words.get("upper", 1) else np.tril
    return Moves(lambda x, *_: keep(x, k))


def _resize(call: Call) -> Meaning:
    """Nearest neighbours at whole scales are copies; anything else reads its own channel's
    plane."""
    ins, outs = call.shape(0), call.gives[0]
    words = call.words
    if len(ins) < 3 or ins[:2] != outs[:2]:
        return Unknown("it changes the batch or the channels")
    where = (
        words.get("coordinate_transformation_mode", "half_pixel"),
        words.get("nearest_mode", "round_prefer_floor"),
    )
    if call.op == "Upsample":
        where = ("asymmetric", "floor")
    scales = tuple(_scales(call))
    whole = all(
        out % size == 0 and scale in (None, out // size)
        for size, out, scale in zip(ins, outs, scales or (None,) * len(ins), strict=True)
    )
    copies = where in (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"))
    copies &= words.get("keep_aspect_ratio_policy", "stretch") == "stretch"
    if words.get("mode", "nearest") == "nearest" and whole and copies:

        def move(x: np.ndarray, *_: Any) -> np.ndarray:
            for axis in range(2, x.ndim):
                x = np.repeat(x, outs[axis] // ins[axis], axis)
            return x

        return Moves(move)
    numbers = tuple(sorted((key, str(one)) for key, one in words.items()))
    whole_plane = Whole(((0, 0), (1, 1)), "resize", (*numbers, scales, outs[2:]))
    return Steps((Step(whole_plane, (call.at(0),), outs),))


def _scales(call: Call) -> list[float | None]:
    """Returns the factors of all axes as they are given, which outputs of whole sizes need not
    have; none where sizes are given."""
    place = 1 if call.op == "Upsample" else 2
    given = call.value(place).reshape(-1).tolist() if call.has(place) else []
    given = given or list(call.words.get("scales", []))
    found: list[float | None] = [1.0] * (call.rank(0) if given else 0)
    for axis, scale in zip(call.words.get("axes", range(len(given))), given, strict=True):
        found[axis] = float(scale)
    return found


def _reorder(call: Call) -> Meaning:
    """Channels put into blocks, with zeros up to whole blocks, or taken out of them."""
    ins, outs = call.shape(0), call.gives[0]
    steps = []
    if call.op == "ReorderInput" and call.words.get("channels_last", 0):
        ins = (ins[0], ins[-1], *ins[1:-1])
        axes = (0, len(ins) - 1, *range(1, len(ins) - 1))
        steps.append(Step(Turns(axes), (call.at(0),), ins))
    last = call.op == "ReorderOutput" and call.words.get("channels_last", 0)
    given = (outs[0], outs[-1], *outs[1:-1]) if last else outs
    fitted: Meaning = Same()
    if ins != given:
        wider = [(0, max(0, m - n)) for n, m in zip(ins, given, strict=True)]
        kept = tuple(slice(0, n) for n in given)
        fitted = Moves(lambda x: np.pad(x[kept], wider))
    if not steps and not last:
        return fitted
    steps.append(Step(fitted, (call.count + len(steps) - 1 if steps else call.at(0),), given))
    if last:
        axes = (0, *range(2, len(given)), 1)
        steps.append(Step(Turns(axes), (call.count + len(steps) - 1,), outs))
    return Steps(tuple(steps))


def _counted(call: Call) -> Meaning:
    """Returns numbers that shapes and integers decide alone."""
    return Each(f"{call.op.lower()}")


def _range(call: Call) -> Meaning:
    return Whole((), "range")


def _filled(call: Call) -> Meaning:
    shape = call.gives[0]
    if np.any(call.words.get("value", 0)):
        return Unknown("it is filled with a number that no input holds")
    return Moves(lambda sizes: np.zeros(shape, sizes.dtype))


def joined_rows(back: bool, ahead: int | None = None, last: bool = False) -> Moves:
    """First states and the steps of a sequence behind each other, for a scan; or cut apart again.

    ``back``: the scan starts at the end. ``ahead``: the number of first states, which are cut away;
    ``last``: all but the last step is.
    """

    def join(*arrays: np.ndarray) -> np.ndarray:
        return np.concatenate((*arrays[-1:], *arrays[:-1][::-1]) if back else arrays, 0)

    def cut(rows: np.ndarray) -> np.ndarray:
        if last:
            return rows[:1] if back else rows[-1:]
        assert ahead is not None
        return rows[: len(rows) - ahead] if back else rows[ahead:]

    return Moves(join if ahead is None else cut)


def framed(kind: str, step: int = 1, size: int = 1, count: int = 1) -> Moves:
    """Everything that an output reads, in one row for each of its own places.

    ``batch``: arrays with the batch second; ``first``: with the batch first; ``frames``: parts of a
    signal (batch, samples, ...), ``count`` of ``size`` samples, ``step`` apart.
    """

    def batch(*arrays: np.ndarray) -> np.ndarray:
        rows = [np.moveaxis(one, 1, 0).reshape(one.shape[1], -1) for one in arrays]
        return np.concatenate(rows, 1)

    def first(*arrays: np.ndarray) -> np.ndarray:
        return np.concatenate([one.reshape(one.shape[0], -1) for one in arrays], 1)

    def frames(signal: np.ndarray) -> np.ndarray:
        index = np.arange(count)[:, None] * step + np.arange(size)
        return signal.reshape(signal.shape[0], -1)[:, index]

    kinds: dict[str, Callable[..., np.ndarray]]
    kinds = {"batch": batch, "first": first, "frames": frames}
    return Moves(kinds[kind])


MOVES: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Shape", "Size"), _counted),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("ReorderInput", "ReorderOutput"), _reorder),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _depth_to_space),
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Range": _range,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "Trilu": _trilu,
}
"""Rows of operators that move."""


def words_of(call: Call) -> tuple[Any, ...]:
    """Returns an operator's attributes, as numbers of its meaning."""
    return tuple(sorted((name, str(one)) for name, one in call.words.items()))


def _scattered(call: Call) -> Meaning:
    shape, how = call.shape(0), str(call.words.get("reduction", "none"))
    if how not in ("none", "add"):
        return Unknown(f"it combines what it writes by {how}")
    index = call.value(1)
    if call.op == "ScatterND":
        places = written_at.of_points(index, shape)
    else:
        axis = int(call.words.get("axis", 0)) % len(shape)
        places = written_at.along(index, axis, shape)
    return written_at.written(places, shape, (call.at(0), call.at(2)), call.count, how == "add")


def _one_hot(call: Call) -> Meaning:
    depth = int(call.value(1).reshape(-1)[0])
    axis = int(call.words.get("axis", -1))
    return written_at.one_hot(call.value(0), depth, axis, (call.at(2),), call.gives[0], wraps=True)


def _reversed(call: Call) -> Meaning:
    time, batch = int(call.words.get("time_axis", 0)), int(call.words.get("batch_axis", 1))
    return written_at.turned(call.value(1), time, batch, call.shape(0))


def _compressed(call: Call) -> Meaning:
    chosen = np.flatnonzero(call.value(1))
    axis = call.words.get("axis")
    if axis is None:
        return Moves(lambda x, *_: x.reshape(-1)[chosen])
    return Moves(lambda x, *_: np.take(x, chosen, int(axis)))


def _centred(call: Call) -> Meaning:
    shape, sizes = call.shape(0), call.value(1).reshape(-1).tolist()
    axes = [int(a) % len(shape) for a in call.words.get("axes", range(len(shape)))]
    around, index = [(0, 0)] * len(shape), [slice(None)] * len(shape)
    for axis, size in zip(axes, sizes, strict=True):
        more = size - shape[axis]
        if more >= 0:
            around[axis] = (more // 2, more - more // 2)
        else:
            index[axis] = slice(-more // 2, -more // 2 + size)
    return Moves(lambda x, *_: np.pad(x, around)[tuple(index)])


def _made_of(word: str) -> Callable[[Call], Meaning]:
    """Everything reads everything."""
    return lambda call: Whole((), word, words_of(call))


def _by_rows(*rows: int) -> Callable[[Call], Meaning]:
    """Every output reads all of its row of the batch, of the first input and of ``rows``."""

    def row(call: Call) -> Meaning:
        own = tuple(call.at(n) for n in rows if call.has(n))
        return Whole(((0, 0),), snake(call.op), (*words_of(call), call.gives[0][1:]), own)

    return row


def _grid(call: Call) -> Meaning:
    """Of each matrix (batch, 2, 3) its own grid, of a size that holds the batch too."""
    whole = Whole(((0, 0),), "affine_grid", (*words_of(call), call.gives[0][1:]))
    return Steps((Step(whole, (call.at(0),), call.gives[0]),))


def _rotated(call: Call) -> Meaning:
    """Rows of the batch; with ONNX's own spelling the tables have them, or the positions do."""
    rows: tuple[int, ...] = (1,) if call.domain else (3,) if call.has(3) else (1, 2)
    batch = call.shape(0)[0]
    own = tuple(
        call.at(n) for n in rows if call.has(n) and call.rank(n) > 1 and call.shape(n)[0] == batch
    )
    return Whole(((0, 0),), "rotary_embedding", words_of(call), own)


def _regions(call: Call) -> Meaning:
    """Every region reads the whole pictures, and its own corners."""
    own = (call.at(2),) if call.has(2) else ()
    reads = (call.at(1), call.at(0), *own)
    rows = (2,) if own else ()
    whole = Whole(((0, 0),), snake(call.op), (*words_of(call), call.gives[0][1:]), rows)
    return Steps((Step(whole, reads, call.gives[0]),))


def _identity(call: Call) -> Meaning:
    return Made(f"eye {call.words.get('k', 0)}", "float32", places=True)


PLACES: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), _scattered),
    **{op: _made_of(snake(op)) for op in ("BlackmanWindow", "HannWindow", "HammingWindow")},
    **{
        op: _made_of(snake(op))
        for op in ("MelWeightMatrix", "NonZero", "Unique", "NonMaxSuppression")
    },
    **dict.fromkeys(("RoiAlign", "MaxRoiPool"), _regions),
    "OneHot": _one_hot,
    "ReverseSequence": _reversed,
    "Compress": _compressed,
    "CenterCropPad": _centred,
    "GridSample": _by_rows(1),
    "DeformConv": _by_rows(2, 4),
    "Col2Im": _by_rows(),
    "AffineGrid": _grid,
    "RotaryEmbedding": _rotated,
    "EyeLike": _identity,
}
"""Rows of these operators."""
