"""What LiteRT's operators mean: those that converters write of Keras and TensorFlow models.

Channels are last. Many operators apply an activation themselves, which is a step of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from probe.recorders.litert_file import Scale
from probe.recorders.litert_moves import MOVES, alone
from probe.recorders.node import Call, Fact, NotSettled
from probe.semantics import (
    Contracts,
    Each,
    Exact,
    Made,
    Meaning,
    Normalises,
    Reshapes,
    Scans,
    Shapes,
    Step,
    Steps,
    Unknown,
    Whole,
    Windows,
    operations,
)
from probe.semantics.labels import Labels, joined, tag

FUNCTIONS = {
    **{
        one: one.lower()
        for one in """ABS NEG SQRT EXP LOG TANH LOGISTIC RELU HARD_SWISH FLOOR CEIL ROUND SIGN SIN
 COS RSQRT SQUARE LOGICAL_NOT ADD MUL SUB DIV POW MAXIMUM MINIMUM SQUARED_DIFFERENCE FLOOR_DIV
 FLOOR_MOD ATAN2 EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL PRELU LOGICAL_AND
 LOGICAL_OR""".split()
    },
    **{
        f"STABLEHLO_{one}": one.lower()
        for one in """ABS FLOOR LOG LOGISTIC RSQRT TANH CBRT ADD SUBTRACT MULTIPLY DIVIDE MAXIMUM
 MINIMUM POWER AND OR""".split()
    },
    "STABLEHLO_COSINE": "cos",
    "STABLEHLO_EXPONENTIAL": "exp",
    "STABLEHLO_NEGATE": "negative",
    "STABLEHLO_REMAINDER": "truncate_mod",
}
"""Functions of the elements at one place without further arguments."""

REDUCES = {
    "MEAN": "mean",
    "SUM": "sum",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "REDUCE_PROD": "prod",
    "REDUCE_ANY": "any",
    "REDUCE_ALL": "all",
}
FUSED = {
    1: operations.clip(0, None),
    2: operations.clip(-1, 1),
    3: operations.clip(0, 6),
    4: operations.function("tanh"),
    5: operations.function("sign_bit"),
}
"""Activations that an operator applies, by their number in the schema."""


def meaning(
    op: str,
    words: dict[str, Any],
    reads: Sequence[Fact | None],
    gives: Sequence[tuple[int, ...]],
    dtypes: Sequence[str] = (),
) -> Meaning:
    """Returns what an operator computes. ``words``: its options; ``reads``: None where it has no
    such input; ``gives``: the shapes of its outputs; ``dtypes``: theirs."""
    row = MEANINGS.get(op)
    if row is None:
        return Unknown(f"{op} is not described in probe")
    call = Call(op, "", words, list(reads), list(gives), 0, dtypes)
    try:
        return _activated(call, row(call))
    except NotSettled as error:
        return Unknown(str(error))
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{op} has attributes that are not described in probe")


@dataclass(frozen=True)
class Quantised(Meaning):
    """What computes with integers that stand for other numbers: zero is none of them, as a rule."""

    inner: Meaning
    reads: tuple[Scale | None, ...]
    gives: tuple[Scale | None, ...]

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        given = [_meant(*both) for both in zip(reads, self.reads, strict=True)]
        word = tag(self.inner.word) if self.inner.word else what
        found = self.inner.labels(given, shapes, word)
        return [_meant(*both) for both in zip(found, self.gives, strict=True)]


def _meant(one: Labels, scale: Scale | None) -> Labels:
    if scale is None:
        return one
    return one._replace(array=joined(one.array, tag("quantised", scale)))


def quantised(
    made: Meaning, reads: Sequence[Scale | None], gives: Sequence[Scale | None]
) -> Meaning:
    """Returns what an operator of quantised tensors means; what only moves them is as it was."""
    if isinstance(made, Exact) or not any((*reads, *gives)):
        return made
    return Quantised(made, tuple(reads), tuple(gives))


def _activated(call: Call, first: Meaning) -> Meaning:
    """Returns the operator with the activation behind it, if it has one."""
    number = int(call.words.get("fusedActivationFunction") or 0)
    if not number or isinstance(first, Unknown):
        return first
    shape, every = call.gives[0], call.count
    steps = first.steps if isinstance(first, Steps) else ()
    if not steps:
        reads = tuple(range(every))
        steps = (Step(first, reads, shape),)
    return Steps((*steps, Step(FUSED[number], (every + len(steps) - 1,), shape)))


def _function(call: Call) -> Meaning:
    return operations.function(FUNCTIONS[call.op])


def _padding(
    call: Call, at: int, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """SAME puts the odd zero behind. ``at``: the input that is padded."""
    if call.words["padding"] == 1:
        return ((0, 0),) * len(kernel)
    found = []
    for k, size in enumerate(kernel):
        ins, outs = call.shape(at)[k + 1], call.gives[0][k + 1]
        if call.op == "TRANSPOSE_CONV":
            ins, outs = outs, ins
        total = max(0, (outs - 1) * strides[k] + (size - 1) * dilations[k] + 1 - ins)
        found.append((total // 2, total - total // 2))
    return tuple(found)


def _steps_of(call: Call, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes = "DHW"[3 - rank :]
    strides = tuple(int(call.words[f"stride{axis}"]) for axis in axes)
    dilations = tuple(int(call.words.get(f"dilation{axis}Factor", 1) or 1) for axis in axes)
    return strides, dilations


def _conv(call: Call) -> Meaning:
    shape = call.shape(1)
    rank = 3 if call.op == "CONV_3D" else 2
    weights: tuple[int, ...]
    if call.op == "CONV_3D":
        kernel, weights, inner = shape[:3], (0, 1, 2, 3, 4), shape[3]
    elif call.op == "DEPTHWISE_CONV_2D":
        kernel, weights, inner = shape[1:3], (1, 2, 0, 3), 1
    else:
        kernel, weights, inner = shape[1:3], (1, 2, 3, 0), shape[3]
    strides, dilations = _steps_of(call, rank)
    return Windows(
        *(tuple(range(1, rank + 1)), rank + 1, kernel, strides, dilations),
        _padding(call, 0, kernel, strides, dilations),
        groups=call.shape(0)[-1] // inner,
        reads=tuple(call.at(n) for n in range(3) if call.has(n)),
        weights=weights,
        word="conv",
    )


def _transpose_conv(call: Call) -> Meaning:
    kernel = call.shape(1)[1:3]
    strides, dilations = _steps_of(call, 2)
    return Windows(
        *((1, 2), 3, kernel, strides, dilations),
        _padding(call, 2, kernel, strides, dilations),
        kind="transposed",
        reads=tuple(call.at(n) for n in (2, 1, 3) if call.has(n)),
        weights=(1, 2, 3, 0),
        word="conv_transpose",
    )


def _pool(call: Call) -> Meaning:
    kernel = (int(call.words["filterHeight"]), int(call.words["filterWidth"]))
    strides, _ = _steps_of(call, 2)
    kind = "max" if call.op == "MAX_POOL_2D" else "average"
    return Windows(
        *((1, 2), 3, kernel, strides, (1, 1)),
        _padding(call, 0, kernel, strides, (1, 1)),
        kind=kind,
        reads=(0,),
        word=f"{kind}_pool",
    )


def _dense(call: Call) -> Meaning:
    units, inner = call.shape(1)
    bias = call.at(2) if call.has(2) else None
    out = call.gives[0]
    if call.shape(0)[-1] == inner and out[:-1] == call.shape(0)[:-1]:
        return Contracts("...k,nk->...n", (call.at(0), call.at(1)), bias)
    rows = prod(out) // units
    flat = Step(Reshapes(), (call.at(0),), (rows, inner))
    reads = (call.count, call.at(1), *([] if bias is None else [bias]))
    product = Contracts("...k,nk->...n", (0, 1), None if bias is None else 2)
    last = Step(Reshapes(), (call.count + 1,), out)
    return Steps((flat, Step(product, reads, (rows, units)), last))


def _product(call: Call) -> Meaning:
    first = "...km" if call.words.get("adjX") else "...mk"
    second = "...nk" if call.words.get("adjY") else "...kn"
    return Contracts(f"{first},{second}->...mn", (call.at(0), call.at(1)))


def _reduce(call: Call) -> Meaning:
    axes = tuple(int(n) for n in call.value(1).reshape(-1))
    keep = bool(call.words.get("keepDims"))
    return alone(call, operations.reduced(REDUCES[call.op], axes, keep), 0)


def _softmax(call: Call) -> Meaning:
    return operations.softmax((-1,), float(call.words.get("beta", 1.0)))


def _last(word: str) -> Callable[[Call], Meaning]:
    return lambda call: Normalises((-1,), word)


def _gelu(call: Call) -> Meaning:
    return operations.gelu(bool(call.words.get("approximate")))


def _cast(call: Call) -> Meaning:
    """The operator's own types may be left out; those of its tensors are always there."""
    return operations.cast(call.dtype(0), call.dtypes[0])


def _cumsum(call: Call) -> Meaning:
    if call.words.get("exclusive"):
        return Unknown("it leaves out its own element")
    axis = int(call.value(1).reshape(-1)[0])
    return alone(call, Scans(axis, "cumsum", bool(call.words.get("reverse"))), 0)


def _chosen(call: Call) -> Meaning:
    rank = call.rank(0)
    axis = rank - 1 if call.op == "TOPK_V2" else int(call.value(1).reshape(-1)[0]) % rank
    if call.op != "TOPK_V2":
        word = call.op.lower().replace("_", "")
        return alone(call, operations.reduced(word, (axis,), places=True), 0)
    kept = [a for a in range(rank) if a != axis]
    places = kept if call.op == "TOPK_V2" else range(len(kept))
    return Whole(tuple(zip(kept, places, strict=True)), call.op.lower())


def _lstm(call: Call) -> Meaning:
    """Step t reads inputs up to t of its own batch row; first states are zero."""
    time = 0 if call.words.get("timeMajor") else 1
    one, shape = call.shape(0), call.gives[0]
    rows = (*one[:2], 1)
    features = Step(Whole(((0, 0), (1, 1)), "features"), (call.at(0),), rows)
    rest = tuple(n for n in range(call.count) if n != call.at(0))
    numbers = tuple(sorted((key, str(value)) for key, value in call.words.items()))
    scan = Step(Scans(time, f"{call.op.lower()} {numbers}"), (call.count, *rest), rows)
    out = Step(Whole(((0, 0), (1, 1)), "output"), (call.count + 1,), shape)
    return Steps((features, scan, out))


def _counted(call: Call) -> Meaning:
    return Each(call.op.lower())


def _added(call: Call) -> Meaning:
    return operations.function("add") if call.count == 2 else Each(f"add_of_{call.count}")


def _selected(call: Call) -> Meaning:
    if call.shape(0) not in ((), call.gives[0]):
        return Unknown("it takes rows by a condition of one axis")
    return operations.where()


def _fake(call: Call) -> Meaning:
    return Each("fake_quant", "", tuple(sorted((k, str(v)) for k, v in call.words.items())))


def _sorted_in(call: Call) -> Meaning:
    return Each("bucketize", "", tuple(call.words.get("boundaries") or ()))


def _both_ways(call: Call) -> Meaning:
    """Every output reads its whole sequence."""
    batch = 1 if call.words.get("timeMajor") else 0
    if batch or any(one is None for one in call.reads[:1]):
        return Unknown("its batch comes second")
    numbers = tuple(sorted((key, str(value)) for key, value in call.words.items()))
    return Whole(((0, 0),), call.op.lower(), numbers)


def _normalised_beside(call: Call) -> Meaning:
    names = ("radius", "bias", "alpha", "beta")
    return Normalises((3,), "lrn", tuple((name, call.words.get(name)) for name in names))


def _segments(call: Call) -> Meaning:
    return Whole(tuple((a, a) for a in range(1, call.rank(0))), call.op.lower())


def _everything(call: Call) -> Meaning:
    return Whole((), call.op.lower())


MEANINGS: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys(FUNCTIONS, _function),
    **dict.fromkeys(REDUCES, _reduce),
    **dict.fromkeys(("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D"), _conv),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pool),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN", "TOPK_V2"), _chosen),
    **dict.fromkeys(("SHAPE", "RANK"), _counted),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), _counted),
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _product,
    "SOFTMAX": _softmax,
    "LOG_SOFTMAX": lambda call: operations.log_softmax((-1,)),
    "GELU": _gelu,
    "L2_NORMALIZATION": _last("l2_normalised"),
    "LEAKY_RELU": lambda call: operations.leaky_relu(call.words["alpha"]),
    **dict.fromkeys(("SELECT_V2", "STABLEHLO_SELECT"), lambda call: operations.where()),
    "RELU6": lambda call: FUSED[3],
    "RELU_N1_TO_1": lambda call: FUSED[2],
    "RELU_0_TO_1": lambda call: operations.clip(0, 1),
    "ELU": lambda call: operations.elu(),
    "CAST": _cast,
    "CUMSUM": _cumsum,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    **dict.fromkeys(("SEGMENT_SUM", "UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_MAX"), _segments),
    **dict.fromkeys(("UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD"), _segments),
    **dict.fromkeys(("COMPLEX_ABS", "REAL", "IMAG", "BITWISE_XOR", "RIGHT_SHIFT"), _counted),
    **dict.fromkeys(("WHERE", "UNIQUE", "NON_MAX_SUPPRESSION_V4"), _everything),
    **dict.fromkeys(("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN"), _both_ways),
    "NON_MAX_SUPPRESSION_V5": _everything,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _lstm,
    "ADD_N": _added,
    "SELECT": _selected,
    "FAKE_QUANT": _fake,
    "BUCKETIZE": _sorted_in,
    "LOCAL_RESPONSE_NORMALIZATION": _normalised_beside,
    "ZEROS_LIKE": lambda call: Made(0),
    **MOVES,
}
"""Each operator's row."""
