"""ONNX's operators in the words of :mod:`probe.order.semantics.operations`, and those that ONNX
Runtime's
optimiser makes of several: one line an operator.

Sizes, axes and indices that nodes read as inputs are known where they are constants or come from
integers alone; an operator that needs others is ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from probe.order import semantics as s
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call

# What each operator computes.
TABLE = s.OperationTable()

# Functions of one input.
UNARY = s.word_list(
    "Abs Neg Sqrt Exp Log Erf Tanh Sigmoid Relu Softplus Reciprocal Floor Ceil Round Sin Cos Tan "
    "Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Sign HardSwish:hard_swish Mish Softsign Not "
    "BitwiseNot:bitwise_not LeakyRelu:leaky_relu Elu Celu HardSigmoid:hard_sigmoid Selu "
    "QuickGelu:quick_gelu Swish:silu ThresholdedRelu:thresholded_relu Shrink IsNaN IsInf"
)

BINARY = s.word_list(
    "Mul Sub Div Pow PRelu Equal Less Greater And Or Xor Add LessOrEqual:less_equal "
    "GreaterOrEqual:greater_equal BitwiseAnd:bitwise_and BitwiseOr:bitwise_or "
    "BitwiseXor:bitwise_xor"
)
VARIADIC = s.word_list("Sum:add Max:maximum Min:minimum Mean:average")
REDUCES = s.word_list(
    "ReduceSum:sum ReduceMean:mean ReduceProd:prod ReduceL1:l1 "
    "ReduceL2:l2 ReduceLogSum:log_sum ReduceLogSumExp:logsumexp ReduceSumSquare:sum_square"
)
# What moves, copies, chooses or counts elements, or makes numbers of none.
MOVES = "Slice GatherElements GatherND Tile DepthToSpace SpaceToDepth Trilu ReverseSequence "
MOVES += "Compress CenterCropPad Where Concat Split Expand Gather Pad Shape Size OneHot "
MOVES += "ConstantOfShape EyeLike NonZero Unique NonMaxSuppression TopK ArgMax ArgMin "
MOVES += "ReduceMax ReduceMin GlobalMaxPool"

# Dtypes by their numbers in ONNX's format.
DTYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
          9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
          16: "bfloat16"}  # fmt: skip

# Conversions that change no value: ONNX Runtime puts them around kernels that it hasn't.
WIDENS = {
    *(("float16", "float32"), ("float16", "float64"), ("float32", "float64")),
    *(("bfloat16", "float32"), ("bfloat16", "float64")),
}


def _integers(c: Call, name: str, slot: int) -> list[int] | None:
    """Returns integers of an attribute, or of an input in newer versions; None: of neither."""
    if c.has(slot):
        return c.integers(slot)
    numbers = c.get(name)
    return None if numbers is None else [int(number) for number in numbers]


def _on(c: Call, name: str, otherwise: int = 0) -> bool:
    return bool(c.get(name, otherwise))


# element by element


def _fused_function(c: Call) -> tuple[s.Meaning, ...]:
    """Returns the activation that a fused operator applies behind, if there is one."""
    name, numbers = c.get("activation"), list(c.get("activation_params", []))
    if not name:
        return ()
    if name == "Clip":
        low, high = (float(number) for number in numbers)
        return (o.clip(low, high),)
    return (o.function(UNARY[name]),)


@TABLE.row("Clip")
def _onnx_clip(c: Call) -> s.Meaning:
    low, high = (
        float(c.value(slot).reshape(-1)[0]) if c.has(slot) else c.get(name)
        for slot, name in ((1, "min"), (2, "max"))
    )
    return o.clip(low, high, (0,))


@TABLE.row("BiasGelu FastGelu")
def _biased_gelu(c: Call) -> s.Meaning:
    each = o.gelu(approximate=c.op == "FastGelu")
    return s.then(c, o.function("add"), each) if c.has(1) else each


@TABLE.row("Cast CastLike")
def _onnx_cast(c: Call) -> s.Meaning:
    to = c.dtype(1) if c.op == "CastLike" else DTYPES.get(int(c["to"]), str(c["to"]))
    if (c.dtype(), to) in WIDENS:
        return s.Same()
    means = o.cast(c.dtype(), to)
    return replace(means, reads=(0,)) if isinstance(means, s.Each) else means


@TABLE.row("Identity Dropout")
def _dropout(c: Call) -> s.Meaning:
    if c.op == "Dropout" and (len(c.gives) > 1 or (c.has(2) and c.value(2).any())):
        return s.Unknown("a Dropout that drops is random")
    return s.Same()


# products and windows


@TABLE.row("MatMul FusedMatMul Gemm FusedGemm")
def _onnx_matmul(c: Call) -> s.Meaning:
    if _on(c, "transBatchA") or _on(c, "transBatchB"):
        return s.Unknown("its batch axes are permuted")
    turned = _on(c, "transA"), _on(c, "transB")
    product = o.matmul((c.rank(0), c.rank(1)), turned, (c.at(0), c.at(1)))
    product = o.gemm(c, product, 2, float(c.get("alpha", 1.0)), float(c.get("beta", 1.0)))
    return s.then(c, product, *_fused_function(c))


def _onnx_window(c: Call, kernel: Sequence[int], transposed: bool = False) -> s.Frame:
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
    return s.Frame(tuple(kernel), tuple(stride), tuple(dilation), padding, transposed)


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


# whole axes


@TABLE.row("Loop Scan")
def _stacked(c: Call) -> s.Meaning:
    """What each iteration gave, and nothing else, where these are followed."""
    followed = "stacked" in c.attributes
    return s.Moves() if followed else s.Unknown("its iterations are one operation")


@TABLE.row(REDUCES)
def _onnx_reduce(c: Call, word: str) -> s.Meaning:
    axes = _integers(c, "axes", 1)
    if not axes and _on(c, "noop_with_empty_axes"):
        return s.Unknown("it reduces no axis") if c.op != "ReduceSum" else s.Same()
    return o.reduced(word, axes or range(c.rank()))


@TABLE.row("Softmax LogSoftmax")
def _onnx_softmax(c: Call) -> s.Meaning:
    # before version 13 a softmax went over all axes from this one on together
    early = c.version < 13
    axis = int(c.get("axis", 1 if early else -1)) % c.rank()
    axes = tuple(range(axis, c.rank())) if early else (axis,)
    return o.normalised("softmax" if c.op == "Softmax" else "log_softmax", axes)


@TABLE.row("BatchNormalization")
def _onnx_bn(c: Call) -> s.Meaning:
    if _on(c, "training_mode") or len(c.gives) > 1:
        return s.Unknown("it is in its training mode")
    return o.batch_norm(c.rank(), False)


TABLE |= {
    **s.worded(UNARY, lambda c, word: o.function(word)),
    **s.worded(BINARY, lambda c, word: o.arithmetic(word, c.dtype())),
    **s.worded(VARIADIC, lambda c, word: o.several(word, c.count)),
    "BitShift": lambda c: o.function(f"{c['direction'].lower()}_shift"),
    "Mod": lambda c: o.function("truncate_mod" if c.get("fmod", 0) else "floor_mod"),
    "Gelu": lambda c: o.gelu(c.get("approximate", "none") == "tanh"),
    **s.worded(
        s.word_list("QuantizeLinear:quantize DequantizeLinear:dequantize"),
        lambda c, word: o.function(word, along=int(c.get("axis", 1)) if c.rank() else None),
    ),
    "Range": lambda c: s.Moves() if "int" in c.dtypes[0] else s.Unknown("a range is rounded"),
    "GlobalAveragePool": lambda c: o.reduced("mean", range(2, c.rank())),
    "GlobalLpPool": lambda c: o.reduced("norm", range(2, c.rank())),
    "Einsum": lambda c: o.einsum(str(c["equation"])),
    "InstanceNormalization": lambda c: o.normalised("instance_norm", range(2, c.rank())),
    "GroupNormalization": lambda c: o.normalised("group_norm", range(1, c.rank())),
    **s.rows_for(
        "LayerNormalization SimplifiedLayerNormalization RMSNormalization",
        lambda c: o.normalised(
            "layer_norm" if c.op[0] == "L" else "rms_norm",
            range(int(c.get("axis", -1)) % c.rank(), c.rank()),
        ),
    ),
    **s.rows_for(MOVES, lambda c: s.Moves()),
    # channels put into blocks, with zeros up to whole blocks, or taken out of them
    **s.rows_for(
        "ReorderInput ReorderOutput",
        lambda c: s.Moves() if _on(c, "channels_last") or c.shape() != c.gives[0] else s.Same(),
    ),
    **s.rows_for("Reshape Flatten Unsqueeze Squeeze", lambda c: s.Reshapes()),
    "Transpose": lambda c: o.transpose(c.get("perm") or range(c.rank())[::-1]),
}

# Domains in which an operator's name means what it does here.
DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")


def meaning(c: Call) -> s.Meaning:
    known = c.domain in DOMAINS
    return s.by_table(TABLE, c) if known else s.Unknown(f"{c.op} is not described in probe")
