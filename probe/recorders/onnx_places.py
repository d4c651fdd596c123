"""ONNX's operators that go by indices, and those of which no element says what it reads alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from probe.recorders import written_at
from probe.recorders.node import Call
from probe.recorders.onnx_functions import snake
from probe.recording.meaning import (
    Each,
    Made,
    Meaning,
    Moves,
    Normalises,
    Reduces,
    Same,
    Scans,
    Step,
    Steps,
    Unknown,
    Whole,
)


def _words(call: Call) -> tuple[Any, ...]:
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
    return written_at.one_hot(call.value(0), depth, axis, (call.at(2),), call.gives[0])


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


def _cast_like(call: Call) -> Meaning:
    if call.dtype(0) == call.dtype(1):
        return Same()
    each = Each("cast", "stays", (call.dtype(1), call.words.get("saturate", 1)))
    return Steps((Step(each, (call.at(0),), call.gives[0]),))


def _cumulated(call: Call) -> Meaning:
    if call.words.get("exclusive", 0):
        return Unknown("it leaves out its own element")
    axis = int(call.value(1).reshape(-1)[0])
    scan = Scans(axis, "cumprod", bool(call.words.get("reverse", 0)))
    return Steps((Step(scan, (call.at(0),), call.gives[0]),))


def _hardmax(call: Call) -> Meaning:
    rank, early = call.rank(0), call.opset < 13
    axis = int(call.words.get("axis", 1 if early else -1)) % rank
    return Normalises(tuple(range(axis, rank)) if early else (axis,), "hardmax")


def _mean_variance(call: Call) -> Meaning:
    axes = tuple(int(a) for a in call.words.get("axes", (0, 2, 3)))
    return Normalises(axes, "mean_variance_normalised")


def _lp_pool(call: Call) -> Meaning:
    """Of each plane of its own."""
    if call.op == "GlobalLpPool":
        return Reduces(tuple(range(2, call.rank(0))), f"l{call.words.get('p', 2)}", keep=True)
    return Whole(((0, 0), (1, 1)), "lp_pool", (*_words(call), call.gives[0][2:]))


def _swish(call: Call) -> Meaning:
    return Each("silu", "stays", (float(call.words.get("alpha", 1.0)),))


def _made_of(word: str) -> Callable[[Call], Meaning]:
    """Everything reads everything."""
    return lambda call: Whole((), word, _words(call))


def _by_rows(*rows: int) -> Callable[[Call], Meaning]:
    """Every output reads all of its row of the batch, of the first input and of ``rows``."""

    def row(call: Call) -> Meaning:
        own = tuple(call.at(n) for n in rows if call.has(n))
        return Whole(((0, 0),), snake(call.op), (*_words(call), call.gives[0][1:]), own)

    return row


def _grid(call: Call) -> Meaning:
    """Of each matrix (batch, 2, 3) its own grid, of a size that holds the batch too."""
    whole = Whole(((0, 0),), "affine_grid", (*_words(call), call.gives[0][1:]))
    return Steps((Step(whole, (call.at(0),), call.gives[0]),))


def _rotated(call: Call) -> Meaning:
    """Rows of the batch; with ONNX's own spelling the tables have them, or the positions do."""
    rows: tuple[int, ...] = (1,) if call.domain else (3,) if call.has(3) else (1, 2)
    batch = call.shape(0)[0]
    own = tuple(
        call.at(n) for n in rows if call.has(n) and call.rank(n) > 1 and call.shape(n)[0] == batch
    )
    return Whole(((0, 0),), "rotary_embedding", _words(call), own)


def _determinant(call: Call) -> Meaning:
    return Whole(tuple((a, a) for a in range(call.rank(0) - 2)), "det")


def _regions(call: Call) -> Meaning:
    """Every region reads the whole pictures, and its own corners."""
    own = (call.at(2),) if call.has(2) else ()
    reads = (call.at(1), call.at(0), *own)
    rows = (2,) if own else ()
    whole = Whole(((0, 0),), snake(call.op), (*_words(call), call.gives[0][1:]), rows)
    return Steps((Step(whole, reads, call.gives[0]),))


def _identity(call: Call) -> Meaning:
    return Made(f"eye {call.words.get('k', 0)}", "float32", places=True)


PLACES: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), _scattered),
    **dict.fromkeys(("BlackmanWindow", "HannWindow", "HammingWindow"), _made_of("window")),
    **{
        op: _made_of(snake(op))
        for op in ("MelWeightMatrix", "NonZero", "Unique", "NonMaxSuppression")
    },
    **dict.fromkeys(("LpPool", "GlobalLpPool"), _lp_pool),
    **dict.fromkeys(("RoiAlign", "MaxRoiPool"), _regions),
    "OneHot": _one_hot,
    "ReverseSequence": _reversed,
    "Compress": _compressed,
    "CenterCropPad": _centred,
    "CastLike": _cast_like,
    "CumProd": _cumulated,
    "Hardmax": _hardmax,
    "MeanVarianceNormalization": _mean_variance,
    "Swish": _swish,
    "GridSample": _by_rows(1),
    "DeformConv": _by_rows(2, 4),
    "Col2Im": _by_rows(),
    "AffineGrid": _grid,
    "RotaryEmbedding": _rotated,
    "Det": _determinant,
    "EyeLike": _identity,
}
"""Rows of these operators."""
