"""ONNX's operators that read whole axes: reductions, norms, recurrent cells, attention."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from probe.recorders.node import Call
from probe.recorders.onnx_functions import snake
from probe.recorders.onnx_moves import framed, joined_rows, words_of
from probe.semantics import (
    Meaning,
    Normalises,
    Same,
    Scans,
    Step,
    Steps,
    Unknown,
    Whole,
    operations,
)

REDUCES = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "logsumexp",
    "ReduceSumSquare": "sum_square",
}


def _reduce(call: Call) -> Meaning:
    axes = call.words.get("axes")
    if call.has(1):
        axes = call.value(1).reshape(-1).tolist()
    if not axes and call.words.get("noop_with_empty_axes", 0):
        return Unknown("it reduces no axis") if call.op != "ReduceSum" else Same()
    axes = tuple(axes) if axes else tuple(range(call.rank(0)))
    keep = bool(call.words.get("keepdims", 1))
    return operations.reduced(REDUCES[call.op], axes, keep)


def _chosen(call: Call) -> Meaning:
    """ArgMax, ArgMin, TopK, CumSum with unusual options: of all along one axis."""
    rank = call.rank(0)
    axis = int(call.words.get("axis", -1 if call.op == "TopK" else 0)) % rank
    if call.op != "TopK" and not call.words.get("select_last_index", 0):
        keep = bool(call.words.get("keepdims", 1))
        return operations.reduced(call.op.lower(), (axis,), keep, places=True)
    kept = [a for a in range(rank) if a != axis]
    stays = bool(call.words.get("keepdims", 1)) or call.op == "TopK"
    places = kept if stays else range(len(kept))
    numbers = tuple(sorted(call.words.items()))
    return Whole(tuple(zip(kept, places, strict=True)), snake(call.op), numbers)


def _cumulated(call: Call) -> Meaning:
    if call.words.get("exclusive", 0):
        return Unknown("it leaves out its own element")
    axis = int(call.value(1).reshape(-1)[0])
    scan = Scans(axis, call.op.lower(), bool(call.words.get("reverse", 0)))
    return Steps((Step(scan, (call.at(0),), call.gives[0]),))


def _softmax(call: Call) -> Meaning:
    rank, early = call.rank(0), call.opset < 13
    axis = int(call.words.get("axis", 1 if early else -1)) % rank
    axes = tuple(range(axis, rank)) if early else (axis,)
    if call.op == "Hardmax":
        return Normalises(axes, "hardmax")
    return operations.softmax(axes) if call.op == "Softmax" else operations.log_softmax(axes)


def _batch_norm(call: Call) -> Meaning:
    if call.words.get("training_mode", 0) or len(call.gives) > 1:
        return Unknown("it is in its training mode")
    places = tuple(call.at(n) for n in range(5))
    return operations.batch_norm(float(call.words.get("epsilon", 1e-5)), along=1, reads=places)


def _instance_norm(call: Call) -> Meaning:
    axes = range(2, call.rank(0))
    return operations.norm(axes, call.words.get("epsilon", 1e-5), word="instance_norm", along=1)


def _group_norm(call: Call) -> Meaning:
    channels = call.shape(0)[1]
    if call.domain or call.shape(1) != (channels,):
        return Unknown("its scales are no number a channel, or its channels are last")
    groups, axes = int(call.words["num_groups"]), range(1, call.rank(0))
    eps = call.words.get("epsilon", 1e-5)
    return operations.norm(axes, eps, word="group_norm", along=1, groups=(1, groups))


def _layer_norm(call: Call) -> Meaning:
    rank = call.rank(0)
    axis = int(call.words.get("axis", -1)) % rank
    simple = call.op in ("SimplifiedLayerNormalization", "RMSNormalization")
    word = "rms_norm" if simple else "layer_norm"
    eps = call.words.get("epsilon", 1e-5)
    return operations.norm(range(axis, rank), eps, call.has(1), call.has(2), word)


def _skip_norm(call: Call) -> Meaning:
    """Returns a sum of two, perhaps with a bias, and its norm; the sum may be the fourth output."""
    simple = call.op == "SkipSimplifiedLayerNormalization"
    bias = 3 if simple else 4
    shape, every = call.gives[0], call.count
    steps = [Step(operations.function("add"), (call.at(0), call.at(1)), shape)]
    if call.has(bias):
        steps.append(Step(operations.function("add"), (every, call.at(bias)), shape))
    total = every + len(steps) - 1
    scales = tuple(call.at(n) for n in range(2, bias) if call.has(n))
    scale, shift = call.has(2), call.has(3) and not simple
    word, eps = "rms_norm" if simple else "layer_norm", call.words.get("epsilon", 1e-12)
    norm = operations.norm((-1,), eps, scale, shift, word)
    steps.append(Step(norm, (total, *scales), shape))
    if len(call.gives) == 1:
        return Steps(tuple(steps))
    if len(call.gives) == 2 and call.gives[1] == shape:
        return Steps(tuple(steps), (total + 1, total))
    return Unknown("it gives its means")


def _lp_norm(call: Call) -> Meaning:
    return Normalises((int(call.words.get("axis", -1)),), f"l{call.words.get('p', 2)}_normalised")


def _mean_variance(call: Call) -> Meaning:
    axes = tuple(int(a) for a in call.words.get("axes", (0, 2, 3)))
    return Normalises(axes, "mean_variance_normalised")


def _lp_pool(call: Call) -> Meaning:
    """Of each plane of its own."""
    if call.op == "GlobalLpPool":
        return operations.reduced(f"l{call.words.get('p', 2)}", range(2, call.rank(0)), True)
    return Whole(((0, 0), (1, 1)), "lp_pool", (*words_of(call), call.gives[0][2:]))


def _determinant(call: Call) -> Meaning:
    return Whole(tuple((a, a) for a in range(call.rank(0) - 2)), "det")


def _recurrent(call: Call) -> Meaning:
    """LSTM, GRU, RNN: output t reads inputs up to t of its own batch row, and its first states."""
    if call.words.get("layout", 0):
        return Unknown("its batch comes first")
    length, batch, _ = call.shape(0)
    if call.has(4) and (call.value(4) != length).any():
        return Unknown("its sequences have several lengths")
    numbers = tuple((key, str(one)) for key, one in sorted(call.words.items()))
    weights = [call.at(n) for n in (1, 2, 3, 7) if call.has(n)]
    states = [n for n in (5, 6) if call.has(n)]
    if call.words.get("direction", "forward") == "bidirectional":
        return _both_ways(call, weights, states, numbers)
    ahead = len(states)
    rows = (ahead + length, batch, 1)
    steps = [Step(Whole(((0, 0), (1, 1)), "features"), (call.at(0),), (length, batch, 1))]
    steps += [Step(Whole(((0, 0), (1, 1)), "state"), (call.at(n),), (1, batch, 1)) for n in states]
    first = call.count
    back = call.words.get("direction") == "reverse"
    inputs = [first + 1 + n for n in range(ahead)] + [first]
    steps.append(Step(joined_rows(back), tuple(inputs), rows))
    scan = Scans(0, f"{call.op.lower()} {numbers}", reverse=back)
    steps.append(Step(scan, (first + len(steps) - 1, *weights), rows))
    scanned = first + len(steps) - 1
    gives: list[int] = []
    for shape in call.gives:
        if len(shape) == 4:
            cut = joined_rows(back, ahead)
            steps.append(Step(cut, (scanned,), (length, batch, 1)))
            kept: tuple[tuple[int, int], ...] = ((0, 0), (1, 2))
        else:
            cut = joined_rows(back, ahead, last=True)
            steps.append(Step(cut, (scanned,), (1, batch, 1)))
            kept = ((1, 1),)
        whole = Whole(kept, f"output {len(gives)}")
        steps.append(Step(whole, (first + len(steps) - 1,), shape))
        gives.append(first + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _both_ways(
    call: Call, weights: list[int], states: list[int], numbers: tuple[Any, ...]
) -> Meaning:
    """Every output reads its whole sequence, in both directions."""
    length, batch, size = call.shape(0)
    parts = [(call.shape(n)[0] * call.shape(n)[2]) for n in states]
    total = length * size + sum(parts)
    lines = Step(framed("batch"), (call.at(0), *(call.at(n) for n in states)), (batch, total))
    whole = Whole(((0, 0),), call.op.lower(), numbers)
    steps, gives = [lines], []
    for number, shape in enumerate(call.gives):
        axis = 2 if len(shape) == 4 else 1
        kept = Whole(((0, axis),), f"{whole.word} {number}", (length, *numbers))
        steps.append(Step(kept, (call.count, *weights), shape))
        gives.append(call.count + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _stft(call: Call) -> Meaning:
    """Each frame reads its own part of the signal, and the window."""
    if call.rank(0) == 3 and call.shape(0)[2] != 1:
        return Unknown("its signal is complex")
    step = int(call.value(1).reshape(-1)[0])
    bins = call.gives[0]
    size = int(call.value(3).reshape(-1)[0]) if call.has(3) else call.shape(2)[0]
    frames = framed("frames", step, size, bins[1])
    cut = Step(frames, (call.at(0),), (bins[0], bins[1], size))
    whole = Whole(((0, 0), (1, 1)), "stft", (call.words.get("onesided", 1),))
    windows = (call.at(2),) if call.has(2) else ()
    return Steps((cut, Step(whole, (call.count, *windows), bins)))


def _attention(call: Call) -> Meaning:
    """Every output reads all of its batch row."""
    if call.op == "Attention" and call.domain:
        if any(call.has(n) for n in range(3, call.slots)) or len(call.gives) > 1:
            return Unknown("it has a mask or a past")
        numbers = tuple(sorted((k, str(v)) for k, v in call.words.items()))
        return Whole(((0, 0),), "attention", numbers)
    biased = call.op == "MultiHeadAttention" and call.has(3)
    if any(call.has(n) for n in range(4 if biased else 3, call.slots)) or len(call.gives) > 1:
        return Unknown("it has a mask or a past")
    inputs = [n for n in range(3) if call.has(n)]
    size = sum(prod(call.shape(n)[1:]) for n in inputs)
    batch = call.shape(0)[0]
    lines = Step(framed("first"), tuple(call.at(n) for n in inputs), (batch, size))
    numbers = tuple(sorted((k, str(v)) for k, v in call.words.items()))
    shapes = tuple(call.shape(n)[1:] for n in inputs)
    whole = Whole(((0, 0),), "attention", (*numbers, shapes))
    rest = (call.at(3),) if biased else ()
    return Steps((lines, Step(whole, (call.count, *rest), call.gives[0])))


LAYERS: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys(REDUCES, _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _chosen),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    **dict.fromkeys(("LayerNormalization", "SimplifiedLayerNormalization"), _layer_norm),
    **dict.fromkeys(("RMSNormalization",), _layer_norm),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Attention", "MultiHeadAttention"), _attention),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "STFT": _stft,
    **dict.fromkeys(("CumSum", "CumProd"), _cumulated),
    **dict.fromkeys(("LpPool", "GlobalLpPool"), _lp_pool),
    "MeanVarianceNormalization": _mean_variance,
    "Det": _determinant,
}
"""Rows of operators that read whole axes."""
