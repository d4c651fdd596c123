"""ONNX's operators in the words of :mod:`probe.semantics.operations`, and those that ONNX Runtime's
optimiser makes of several: one line an operator.

Sizes, axes and indices that nodes read as inputs are known where they are constants or come from
integers alone; an operator that needs others is ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from probe import semantics as s
from probe.semantics import moving
from probe.semantics import operations as o
from probe.semantics.contract import Call
from probe.semantics.moving import asked_move, asked_resize

# What each operator computes.
TABLE = s.OperationTable()

# Operators of one input and no numbers.
UNARY = s.word_list(
    "Abs Neg Sqrt Exp Log Erf Tanh Sigmoid Relu Softplus Reciprocal Floor Ceil Round Sin Cos Tan "
    "Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Sign HardSwish:hard_swish Mish Softsign Not "
    "BitwiseNot:bitwise_not"
)

# Functions of one input with attributes that are numbers: constructors, names and defaults.
NUMBERED: dict[str, tuple[Callable[..., s.Meaning], dict[str, float]]] = {
    "LeakyRelu": (o.leaky_relu, {"alpha": 0.01}),
    "Elu": (o.elu, {"alpha": 1.0}),
    "Celu": (o.celu, {"alpha": 1.0}),
    "HardSigmoid": (o.hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "Selu": (o.selu, dict(zip(("alpha", "gamma"), o.SELU, strict=True))),
    "QuickGelu": (o.swish, {"alpha": 1.702}),
    "Swish": (o.swish, {"alpha": 1.0}),
    "ThresholdedRelu": (lambda a: o.function("thresholded_relu", alpha=a), {"alpha": 1.0}),
    "Shrink": (
        lambda bias, lambd: o.function("shrink", bias=bias, lambd=lambd),
        {"bias": 0.0, "lambd": 0.5},
    ),
}

BINARY = s.word_list(
    "Mul Sub Div Pow PRelu Equal Less Greater And Or Xor Add LessOrEqual:less_equal "
    "GreaterOrEqual:greater_equal BitwiseAnd:bitwise_and BitwiseOr:bitwise_or "
    "BitwiseXor:bitwise_xor"
)
VARIADIC = s.word_list("Sum:add Max:maximum Min:minimum Mean:average")
REDUCES = s.word_list(
    "ReduceSum:sum ReduceMean:mean ReduceMax:max ReduceMin:min ReduceProd:prod ReduceL1:l1 "
    "ReduceL2:l2 ReduceLogSum:log_sum ReduceLogSumExp:logsumexp ReduceSumSquare:sum_square"
)
MOVES = "Slice GatherElements GatherND Tile DepthToSpace SpaceToDepth Trilu ReverseSequence "
MOVES += "Compress CenterCropPad"
"""What moves its first input, by sizes and indices that its others hold: it is asked where."""

# Everything reads everything.
MADE = "BlackmanWindow HannWindow HammingWindow MelWeightMatrix NonZero Unique NonMaxSuppression"

# Dtypes by their numbers in ONNX's format.
DTYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
          9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
          16: "bfloat16"}  # fmt: skip

# Conversions that change no value: ONNX Runtime puts them around kernels that it hasn't.
WIDENS = {
    *(("float16", "float32"), ("float16", "float64"), ("float32", "float64")),
    *(("bfloat16", "float32"), ("bfloat16", "float64")),
}


def snake(op: str) -> str:
    """Returns an operator's name as a word: ``leaky_relu``."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in op).removeprefix("_")


def _integers(c: Call, name: str, slot: int) -> list[int] | None:
    """Returns integers of an attribute, or of an input in newer versions; None: of neither."""
    if c.has(slot):
        return c.integers(slot)
    numbers = c.get(name)
    return None if numbers is None else [int(number) for number in numbers]


def _on(c: Call, name: str, otherwise: int = 0) -> bool:
    return bool(c.get(name, otherwise))


# element by element


def _of_one(op: str, words: Any) -> s.Meaning:
    """Returns a function of one input, or the activation that a fused operator names."""
    if op not in NUMBERED:
        return o.function(UNARY[op])
    constructor, defaults = NUMBERED[op]
    numbers = (float(words.get(name, value)) for name, value in defaults.items())
    return constructor(*numbers)


def _fused_function(c: Call) -> tuple[s.Meaning, ...]:
    """Returns the activation that a fused operator applies behind, if there is one."""
    name, numbers = c.get("activation"), list(c.get("activation_params", []))
    if not name:
        return ()
    if name == "Clip":
        low, high = (float(number) for number in numbers)
        return (o.clip(low, high),)
    names = NUMBERED[name][1] if name in NUMBERED else {}
    alone = {key: c[f"activation_{key}"] for key in names if f"activation_{key}" in c.attributes}
    return (_of_one(name, alone or dict(zip(names, numbers, strict=False))),)


@TABLE.row("Clip")
def _onnx_clip(c: Call) -> s.Meaning:
    low, high = (
        float(c.value(slot).reshape(-1)[0]) if c.has(slot) else c.get(name)
        for slot, name in ((1, "min"), (2, "max"))
    )
    return o.clip(low, high, (0,))


@TABLE.row("IsInf")
def _is_inf(c: Call) -> s.Meaning:
    signs = {f"detect_{kind}": c.get(f"detect_{kind}", 1) for kind in ("negative", "positive")}
    return o.function("isinf", **{name: value for name, value in signs.items() if value != 1})


@TABLE.row("BiasGelu FastGelu")
def _biased_gelu(c: Call) -> s.Meaning:
    each = o.gelu(approximate=c.op == "FastGelu")
    return s.then(c, o.function("add"), each) if c.has(1) else each


@TABLE.row("Cast CastLike")
def _onnx_cast(c: Call) -> s.Meaning:
    to = c.dtype(1) if c.op == "CastLike" else DTYPES.get(int(c["to"]), str(c["to"]))
    if (c.dtype(), to) in WIDENS:
        return s.Same()
    return s.reads_of(c, o.cast(c.dtype(), to, _on(c, "saturate", 1)), 0)


@TABLE.row("Identity Dropout")
def _dropout(c: Call) -> s.Meaning:
    if c.op == "Dropout" and (len(c.gives) > 1 or (c.has(2) and c.value(2).any())):
        return s.Unknown("a Dropout that drops is random")
    return s.Same()


@TABLE.row("QuantizeLinear DequantizeLinear")
def _quantised(c: Call) -> s.Meaning:
    """Returns a number a tensor, or a number a channel, that scales every element."""
    rank, axis = c.rank(), int(c.get("axis", 1))
    if int(c.get("block_size", 0)):
        return s.Unknown("it scales by blocks")
    build = s.StepBuilder(c.count)
    for slot in (1, 2):
        if c.has(slot):
            size = prod(c.shape(slot))
            shape = tuple(size if a == axis % max(rank, 1) and size > 1 else 1 for a in range(rank))
            build.add(o.reshape(), c.places(slot), shape)
    # numbers beyond the format's range become its largest, whatever they are scaled by
    words = {name: c[name] for name in ("saturate", "precision") if name in c.attributes}
    each = o.function(snake(c.op), to=c.dtypes[0], **words)
    build.add(each, (c.at(0), *range(c.count, build.count)), c.gives[0])
    return build.done()


# products and windows


@TABLE.row("MatMul FusedMatMul Gemm FusedGemm")
def _onnx_matmul(c: Call) -> s.Meaning:
    if _on(c, "transBatchA") or _on(c, "transBatchB"):
        return s.Unknown("its batch axes are permuted")
    turned = _on(c, "transA"), _on(c, "transB")
    product = o.gemm(c, turned, float(c.get("alpha", 1.0)), float(c.get("beta", 1.0)))
    return s.then(c, product, *_fused_function(c))


def _onnx_window(c: Call, kernel: Sequence[int], transposed: bool = False) -> o.Frame:
    rank = len(kernel)
    stride, dilation = c.get("strides", [1] * rank), c.get("dilations", [1] * rank)
    auto, pads = c.get("auto_pad", "NOTSET"), c.get("pads", [0] * 2 * rank)
    if auto in ("NOTSET", "") and not c.get("output_shape"):
        padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    elif auto == "VALID":
        padding = ((0, 0),) * rank
    else:
        sizes = c.shape()[2:], c.gives[0][2:]
        ins, outs = sizes[::-1] if transposed else sizes
        extra = c.get("output_padding", [0] * rank) if transposed else [0] * rank
        ins = tuple(size - more for size, more in zip(ins, extra, strict=True))
        # SAME_LOWER has the odd zero in front
        padding = o.same_padding(ins, outs, kernel, stride, dilation, auto != "SAME_UPPER")
        if transposed and any(a != b for a, b in padding):
            raise s.NotSettled("where its odd padding goes differs between versions of ONNX")
    return o.Frame(tuple(kernel), tuple(stride), tuple(dilation), padding, transposed)


@TABLE.row("Conv ConvTranspose FusedConv")
def _onnx_conv(c: Call) -> s.Meaning:
    kernel, transposed = c.shape(1)[2:], c.op == "ConvTranspose"
    groups, axes = int(c.get("group", 1)), tuple(range(2, c.rank(1)))
    if c.shape()[1] % groups or c.gives[0][1] % groups:
        return s.Unknown("its groups do not divide its channels")
    # a transposed convolution's weights have the input's channels first
    weights = (*axes, 0, 1) if transposed else (*axes, 1, 0)
    frame = _onnx_window(c, kernel, transposed)
    first = o.convolution(frame, weights, groups, reads=c.places(0, 1, 2))
    added = [(o.function("add"), 3)] if c.has(3) else []
    return s.then(c, first, *added, *_fused_function(c))


@TABLE.row({"MaxPool": "max", "AveragePool": "average"})
def _onnx_pool(c: Call, kind: str) -> s.Meaning:
    if len(c.gives) > 1:
        return s.Unknown("indices count from the first batch row")
    frame = _onnx_window(c, c["kernel_shape"])
    return o.pool(kind, frame, False, _on(c, "count_include_pad"), _on(c, "ceil_mode"))


def _own_row(*own_axes: int, beside: Sequence[int] = ()) -> s.Row:
    """Every output reads all of its row of some axes: with -1 of all axes but the last.

    ``beside``: slots of what it reads its own row of besides."""

    def row(c: Call) -> s.Meaning:
        axes = range(c.rank() - 1) if own_axes == (-1,) else own_axes
        numbers = (*c.numbers(), c.gives[0][len(axes) :])
        return o.own_rows(snake(c.op), axes, numbers, c.places(*beside))

    return row


@TABLE.row("DFT")
def _dft(c: Call) -> s.Meaning:
    """All along one axis; real and imaginary parts are last."""
    # an attribute before version 20, then an input
    newer = int(c.value(2)) if c.has(2) else -2
    axis = int(c.get("axis", 1)) if c.version < 20 else newer
    return o.along("dft", c.rank(), (axis, -1), c.numbers())


# whole axes


@TABLE.row(REDUCES)
def _onnx_reduce(c: Call, word: str) -> s.Meaning:
    axes = _integers(c, "axes", 1)
    if not axes and _on(c, "noop_with_empty_axes"):
        return s.Unknown("it reduces no axis") if c.op != "ReduceSum" else s.Same()
    return o.reduced(word, axes or range(c.rank()), _on(c, "keepdims", 1))


@TABLE.row("ArgMax ArgMin")
def _onnx_arg(c: Call) -> s.Meaning:
    axis, keep = int(c.get("axis", 0)), _on(c, "keepdims", 1)
    if not _on(c, "select_last_index"):
        return o.reduced(c.op.lower(), (axis % c.rank(),), keep, places=True)
    return o.along(snake(c.op), c.rank(), (axis,), c.numbers(), keep)


@TABLE.row("TopK")
def _top_k(c: Call) -> s.Meaning:
    # an attribute until version 10
    count = int(c["k"]) if "k" in c.attributes else c.integers(1)[0]
    words = (int(c.get("axis", -1)), _on(c, "largest", 1), _on(c, "sorted", 1))
    return s.reads_of(c, o.top_k(c.rank(), count, *words), 0)


@TABLE.row("CumSum CumProd")
def _onnx_scan(c: Call) -> s.Meaning:
    (axis,) = c.integers(1)
    scan = o.cumulated(c.op.lower(), axis, _on(c, "reverse"), _on(c, "exclusive"))
    return s.reads_of(c, scan, 0)


@TABLE.row("Softmax LogSoftmax Hardmax")
def _onnx_softmax(c: Call) -> s.Meaning:
    # before version 13 a softmax went over all axes from this one on together
    early = c.version < 13
    axis = int(c.get("axis", 1 if early else -1)) % c.rank()
    axes = tuple(range(axis, c.rank())) if early else (axis,)
    if c.op == "Hardmax":
        return s.Normalises(axes, "hardmax")
    return o.softmax(axes) if c.op == "Softmax" else o.log_softmax(axes)


@TABLE.row("BatchNormalization")
def _onnx_bn(c: Call) -> s.Meaning:
    if _on(c, "training_mode") or len(c.gives) > 1:
        return s.Unknown("it is in its training mode")
    return o.batch_norm(float(c.get("epsilon", 1e-5)), along=1, reads=c.places(*range(5)))


@TABLE.row("GroupNormalization")
def _onnx_gn(c: Call) -> s.Meaning:
    if c.domain or c.shape(1) != (c.shape()[1],):
        return s.Unknown("its scales are no number a channel, or its channels are last")
    groups, eps = (1, int(c["num_groups"])), c.get("epsilon", 1e-5)
    return o.norm(range(1, c.rank()), eps, word="group_norm", groups=groups)


def _onnx_ln(c: Call, word: str) -> s.Meaning:
    axis, eps = int(c.get("axis", -1)) % c.rank(), c.get("epsilon", 1e-5)
    return o.norm(range(axis, c.rank()), eps, c.has(1), c.has(2), word)


def _skip_norm(c: Call, word: str) -> s.Meaning:
    """A sum of two, perhaps with a bias, and its norm; the sum may be the fourth output."""
    shape, bias, shift = c.gives[0], 3 if word == "rms_norm" else 4, word != "rms_norm"
    build = s.StepBuilder(c.count)
    total = build.add(o.function("add"), c.places(0, 1), shape)
    if c.has(bias):
        total = build.add(o.function("add"), (total, c.at(bias)), shape)
    norm = o.norm((-1,), c.get("epsilon", 1e-12), c.has(2), c.has(3) and shift, word)
    build.add(norm, (total, *c.places(*range(2, bias))), shape)
    if len(c.gives) == 1:
        return build.done()
    if len(c.gives) == 2 and c.gives[1] == shape:
        return build.done(total + 1, total)
    return s.Unknown("it gives its means")


# The order of each layer's gates, in the letters of ``semantics.groups``; its functions.
CELLS = {"LSTM": ("iofg", ["sigmoid", "tanh", "tanh"]), "GRU": ("zrn", ["sigmoid", "tanh"]),
         "RNN": ("n", ["tanh"])}  # fmt: skip


@TABLE.row("LSTM GRU RNN")
def _onnx_rnn(c: Call) -> s.Meaning:
    """LSTM, GRU, RNN: output t reads inputs up to t of its own batch row, and its first states; in
    the other direction those from t on."""
    if _on(c, "layout"):
        return s.Unknown("its batch comes first")
    length, batch, _ = c.shape()
    if c.has(4) and (c.value(4) != length).any():
        return s.Unknown("its sequences have several lengths")
    ways = {"reverse": [True], "bidirectional": [False, True]}
    each = (1, batch, c.gives[0][-1])
    lasts = [shape for shape in c.gives if len(shape) == 3]
    build, ends = s.StepBuilder(c.count), list[int]()
    for number, back in enumerate(ways.get(c.get("direction", "forward"), [False])):
        cell, reads = _direction(c, build, number, back)
        ends.append(build.add(cell, reads, (length, *each[1:]), *[each] * len(lasts)))
    size, begin = 1 + len(lasts), build.count
    for shape in c.gives:  # of all steps, (steps, directions, ...), or of the last
        at = 0 if len(shape) == 4 else size - len(lasts)
        lasts = lasts[len(shape) == 3 :]
        build.add(o.concat(0) if at else o.stack(1), [end + at for end in ends], shape)
    return build.done(*range(begin, build.count))


def _direction(
    c: Call, build: s.StepBuilder, number: int, back: bool
) -> tuple[s.Meaning, tuple[int, ...]]:
    """Returns one direction of a recurrent layer, and what it reads; ``build`` gets the steps that
    cut its own part out of weights, biases and states."""
    gates, functions = CELLS[c.op]
    chosen = [name.lower() for name in c.get("activations") or functions * (number + 1)]
    chosen = chosen[number * len(functions) :][: len(functions)]
    plain = not (c.has(7) or c.get("clip") or _on(c, "input_forget"))
    if not plain or (chosen != functions and (c.op != "RNN" or chosen != ["relu"])):
        whole, states = c.places(0, 1, 2, 3, 7), c.places(5, 6)
        own_states = tuple(range(len(whole), len(whole + states)))
        scan = s.Scans(0, c.op.lower(), back, (2,), c.numbers(), own_states, batch=1)
        return scan, whole + states

    def own(slot: int) -> int:
        return build.add(o.take(0, number), (c.at(slot),), c.shape(slot)[1:])

    reads = [c.at(0), own(1), own(2)]
    if c.has(3):
        half = (c.shape(3)[1] // 2,)
        first = build.add(o.split(0, (half, half)), (own(3),), half, half)
        reads += [first, first + 1]
    places = [3, 4] if c.has(3) else [-1, -1]
    for n in (5, 6):
        places.append(len(reads) if c.has(n) else -1)
        reads += [own(n)] if c.has(n) else []
    after = c.op != "GRU" or _on(c, "linear_before_reset")
    layer = s.Recurs(c.op.lower(), gates, (0, 1, 2, *places), 0, back, after, chosen[-1])
    return layer, tuple(reads)


@TABLE.row("STFT")
def _stft(c: Call) -> s.Meaning:
    """Each frame reads its own part of the signal, and the window."""
    if c.rank() == 3 and c.shape()[2] != 1:
        return s.Unknown("its signal is complex")
    (step,), bins, build = c.integers(1), c.gives[0], s.StepBuilder(c.count)
    size = c.integers(3)[0] if c.has(3) else c.shape(2)[0]
    index = np.arange(bins[1])[:, None] * step + np.arange(size)
    signal = build.add(o.reshape(), c.places(0), c.shape()[:2])
    frames = build.add(o.take(1, index), (signal,), (bins[0], bins[1], size))
    build.add(o.own_rows("stft", (0, 1), (c.get("onesided", 1),)), (frames, *c.places(2)), bins)
    return build.done()


@TABLE.row("Attention MultiHeadAttention")
def _attention(c: Call) -> s.Meaning:
    """Where nothing is hidden, remembered or merged what it computes; else all of its batch row."""
    biased = c.op == "MultiHeadAttention" and c.has(3)
    if c.op == "Attention" and c.domain:
        if any(c.has(n) for n in range(3, len(c.reads))) or len(c.gives) > 1:
            return s.Unknown("it has a mask or a past")
        return o.own_rows("attention", (0,), c.numbers())
    if any(c.has(n) for n in range(4 if biased else 3, len(c.reads))) or len(c.gives) > 1:
        return s.Unknown("it has a mask or a past")
    others = {name for name, value in c.attributes.items() if value} - {"scale", "is_causal"}
    plain = not others and c.shape(0)[:2] == c.shape(1)[:2]
    if c.op == "Attention" and c.rank() == 4 and plain:
        scale = float(c.get("scale", 1 / sqrt(c.shape()[-1])))
        return s.Attends(_on(c, "is_causal"), (scale,), dtype=c.dtype())
    # every sample by itself, as each of a stack of systems is solved; a bias is every sample's
    own = {slot: c.rank(slot) - (slot < 3) for slot in range(3 + biased) if c.has(slot)}
    return o.solved("attention", c, own, c.shape()[:1], c.numbers())


# movement


@TABLE.row("Pad")
def _onnx_pad(c: Call) -> s.Meaning:
    pads, rank = _integers(c, "pads", 1), c.rank()
    assert pads is not None
    axes, around = _integers(c, "axes", 3) or list(range(rank)), [(0, 0)] * rank
    for n, axis in enumerate(axes):
        around[axis] = (pads[n], pads[n + len(axes)])
    if c.get("mode", "constant") != "constant":
        return asked_move(c)
    if c.has(2) and (filler := c.operand(2)).content is None:
        return s.Unknown(f"it is padded with a number that is computed in {filler.dtype}")
    value = c.value(2).reshape(-1)[0] if c.has(2) else c.get("value", 0.0)
    return s.reads_of(c, o.pad(around, value, c.dtype()), 0)


@TABLE.row("Resize Upsample")
def _resize(c: Call) -> s.Meaning:
    """Nearest neighbours are copies; anything else reads its own channel's plane."""
    if c.rank() < 3 or c.shape()[:2] != c.gives[0][:2]:
        return s.Unknown("it changes the batch or the channels")
    if c.get("mode", "nearest") == "nearest":
        return asked_move(c)
    place = 1 if c.op == "Upsample" else 2  # factors, which outputs of whole sizes need not have
    scales = c.value(place).reshape(-1).tolist() if c.has(place) else []
    numbers = (*c.numbers(), tuple(scales or c.get("scales", ())), c.gives[0][2:])
    if c.get("coordinate_transformation_mode") == "tf_crop_and_resize":  # zeros beyond its box
        return s.reads_of(c, o.own_rows("resize", (0, 1), numbers), 0)
    return asked_resize(c, range(2, c.rank()), numbers)


@TABLE.row("Gather")
def _onnx_gather(c: Call) -> s.Meaning:
    axis = int(c.get("axis", 0)) % c.rank()
    index = c.value(1)
    taken = o.take(axis, np.where(index < 0, index + c.shape()[axis], index))
    return s.reads_of(c, taken, 0)


@TABLE.row("ScatterElements ScatterND Scatter")
def _onnx_scatter(c: Call) -> s.Meaning:
    shape, how = c.shape(), str(c.get("reduction", "none"))
    if how not in ("none", "add"):
        return s.Unknown(f"it combines what it writes by {how}")
    if c.op == "ScatterND":
        places = moving.points(c.value(1), shape)
    else:
        places = moving.places_along(c.value(1), int(c.get("axis", 0)) % len(shape), shape)
    return moving.put_at(c, places, updates=2, into=0, adds=how == "add")


@TABLE.row("GridSample")
def _onnx_grid(c: Call) -> s.Meaning:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.get("mode", "linear"), c.get("mode"))
    words = mode or "linear", c.get("padding_mode", "zeros"), _on(c, "align_corners")
    return o.grid_sample(*words)


@TABLE.row("RotaryEmbedding")
def _rotated(c: Call) -> s.Meaning:
    """Rows of the batch; with ONNX's own spelling the tables have them, or the positions do."""
    slots: tuple[int, ...] = (1,) if c.domain else (3,) if c.has(3) else (1, 2)
    own = [n for n in slots if c.has(n) and c.rank(n) > 1 and c.shape(n)[0] == c.shape()[0]]
    return o.own_rows("rotary_embedding", (0,), c.numbers(), c.places(*own))


@TABLE.row("RoiAlign MaxRoiPool")
def _regions(c: Call) -> s.Meaning:
    """Every region reads the whole pictures, and its own corners."""
    numbers = (*c.numbers(), c.gives[0][1:])
    whole = o.own_rows(snake(c.op), (0,), numbers, (2,) if c.has(2) else ())
    return s.reads_of(c, whole, 1, 0, 2)


TABLE |= {
    **s.rows_for([*UNARY, *NUMBERED], lambda c: _of_one(c.op, c.attributes)),
    **s.worded(BINARY, lambda c, word: o.arithmetic(word, c.dtype())),
    **s.worded(VARIADIC, lambda c, word: o.several(word, c.count)),
    "BitShift": lambda c: o.function(f"{c['direction'].lower()}_shift"),
    "Mod": lambda c: o.function("truncate_mod" if c.get("fmod", 0) else "floor_mod"),
    "Where": lambda c: o.where(),
    "Gelu": lambda c: o.gelu(c.get("approximate", "none") == "tanh"),
    "IsNaN": lambda c: o.function("isnan"),
    **s.worded(
        {"GlobalMaxPool": "max", "GlobalAveragePool": "mean", "GlobalLpPool": "l"},
        lambda c, word: o.reduced(
            f"l{c.get('p', 2)}" if word == "l" else word, range(2, c.rank()), keep=True
        ),
    ),
    "LpPool": _own_row(0, 1),
    "Einsum": lambda c: o.einsum(str(c["equation"])),
    **s.rows_for("QLinearConv ConvInteger", _own_row(0)),
    **s.rows_for("MatMulInteger QLinearMatMul", _own_row(-1)),
    **s.rows_for("DynamicQuantizeLinear DynamicQuantizeMatMul", _own_row()),
    "LRN": lambda c: o.lrn(
        *(1, c["size"], c.get("alpha", 1e-4) / c["size"], c.get("beta", 0.75), c.get("bias", 1.0))
    ),
    "InstanceNormalization": lambda c: o.instance_norm(c.rank(), c.get("epsilon", 1e-5)),
    "LayerNormalization": lambda c: _onnx_ln(c, "layer_norm"),
    **s.rows_for(
        "SimplifiedLayerNormalization RMSNormalization", lambda c: _onnx_ln(c, "rms_norm")
    ),
    "SkipLayerNormalization": lambda c: _skip_norm(c, "layer_norm"),
    "SkipSimplifiedLayerNormalization": lambda c: _skip_norm(c, "rms_norm"),
    "LpNormalization": lambda c: s.Normalises((c.get("axis", -1),), f"l{c.get('p', 2)}_normalised"),
    "MeanVarianceNormalization": lambda c: s.Normalises(
        tuple(c.get("axes", (0, 2, 3))), "mean_variance_normalised"
    ),
    "Det": lambda c: o.matrices("det", c.rank()),
    **s.rows_for(MOVES, asked_move),
    # channels put into blocks, with zeros up to whole blocks, or taken out of them
    **s.rows_for(
        "ReorderInput ReorderOutput",
        lambda c: asked_move(c) if _on(c, "channels_last") or c.shape() != c.gives[0] else s.Same(),
    ),
    **s.rows_for("Reshape Flatten Unsqueeze", lambda c: s.reads_of(c, o.reshape(), 0)),
    "Squeeze": lambda c: s.reads_of(c, o.squeeze(c.shape(), _integers(c, "axes", 1)), 0),
    "Transpose": lambda c: o.transpose(c.get("perm") or range(c.rank())[::-1]),
    "Concat": lambda c: o.concat(int(c["axis"])),
    **s.rows_for("Loop Scan", lambda c: o.stack(int(c["stacked"]))),  # of what each iteration gave
    "Split": lambda c: s.reads_of(c, o.split(int(c.get("axis", 0)), c.gives), 0),
    "Expand": lambda c: s.reads_of(c, o.expand(c.shape(), c.gives[0]), 0),
    "Shape": lambda c: o.known_sizes(c.shape()[c.get("start", 0) : c.get("end")]),
    "Size": lambda c: o.known_sizes(prod(c.shape())),
    "Range": o.ranged,
    "ConstantOfShape": lambda c: s.Made(
        np.asarray(c.get("value", np.float32(0))).reshape(-1)[0], c.dtypes[0]
    ),
    "EyeLike": lambda c: s.Made(f"eye {c.get('k', 0)}", "float32", places=True),
    "OneHot": lambda c: moving.one_hot(c, c.value(0), int(c.get("axis", -1)), 2, wraps=True),
    **s.rows_for(MADE, _own_row()),
    "DeformConv": _own_row(0, beside=(2, 4)),
    # of each matrix (batch, 2, 3) its own grid, of a size that holds the batch too
    "AffineGrid": lambda c: s.reads_of(
        c, o.affine_grid(c.gives[0][1:-1], _on(c, "align_corners")), 0
    ),
    "Col2Im": _own_row(0),
}

# Domains in which an operator's name means what it does here.
DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")


def meaning(c: Call) -> s.Meaning:
    known = c.domain in DOMAINS
    return s.by_table(TABLE, c) if known else s.Unknown(f"{c.op} is not described in probe")
