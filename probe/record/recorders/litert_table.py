"""LiteRT's operators in the words of :mod:`probe.order.semantics.operations`: one line an operator.

Those that converters write of Keras and TensorFlow models. Channels are last.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from probe.order import semantics as s
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call

# What each operator computes.
TABLE = s.OperationTable()

# Functions of the elements at one place without further arguments. Of StableHLO's operators those
# that LiteRT has a kernel for: it refuses to load a model with any other.
FUNCTIONS = s.word_list(
    "ABS NEG SQRT EXP LOG TANH LOGISTIC RELU HARD_SWISH FLOOR CEIL ROUND SIGN SIN COS RSQRT SQUARE "
    "LOGICAL_NOT ADD MUL SUB DIV POW MAXIMUM MINIMUM SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD ATAN2 "
    "EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL PRELU LOGICAL_AND LOGICAL_OR "
    "LEAKY_RELU ELU FAKE_QUANT QUANTIZE DEQUANTIZE COMPLEX_ABS:abs REAL IMAG BITWISE_XOR "
    "RIGHT_SHIFT "
    "STABLEHLO_ADD:add STABLEHLO_MULTIPLY:multiply STABLEHLO_MAXIMUM:maximum "
    "STABLEHLO_MINIMUM:minimum STABLEHLO_AND:and"
)

REDUCES = s.word_list("MEAN SUM REDUCE_PROD:prod")
# What moves, copies, chooses or counts elements, or makes numbers of none.
MOVES = (
    "MIRROR_PAD SLICE STRIDED_SLICE GATHER GATHER_ND BROADCAST_TO TILE REVERSE_V2 DEPTH_TO_SPACE "
    "SPACE_TO_DEPTH SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND REVERSE_SEQUENCE RESIZE_NEAREST_NEIGHBOR "
    "SELECT SELECT_V2 SHAPE RANK ZEROS_LIKE FILL CONCATENATION PACK UNPACK SPLIT SPLIT_V PAD "
    "PADV2 EMBEDDING_LOOKUP ONE_HOT DYNAMIC_UPDATE_SLICE WHERE UNIQUE BROADCAST_ARGS TOPK_V2 "
    "ARG_MAX ARG_MIN REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL"
)

# Activations that an operator applies, by their number in the schema.
FUSED = {
    1: o.clip(0, None),
    2: o.clip(-1, 1),
    3: o.clip(0, 6),
    4: o.function("tanh"),
    5: o.function("sign_bit"),
}


def _strides(c: Call, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes = "DHW"[3 - rank :]
    dilations = (int(c.get(f"dilation{axis}Factor", 1) or 1) for axis in axes)
    return tuple(int(c[f"stride{axis}"]) for axis in axes), tuple(dilations)


def _lite_padding(
    c: Call, ins: Sequence[int], outs: Sequence[int], *window: Sequence[int]
) -> o.Padding:
    kernel, stride, dilation = window
    if c["padding"] == 1:
        return ((0, 0),) * len(kernel)
    return o.same_padding(ins[1:-1], outs[1:-1], kernel, stride, dilation)


@TABLE.row("CONV_2D CONV_3D DEPTHWISE_CONV_2D")
def _lite_conv(c: Call) -> s.Meaning:
    shape = c.shape(1)
    kernel, weights, inner = {
        "CONV_3D": (shape[:3], (0, 1, 2, 3, 4), shape[-2]),
        "DEPTHWISE_CONV_2D": (shape[1:3], (1, 2, 0, 3), 1),
        "CONV_2D": (shape[1:3], (1, 2, 3, 0), shape[-1]),
    }[c.op]
    window = (kernel, *_strides(c, len(kernel)))
    padding = _lite_padding(c, c.shape(0), c.gives[0], *window)
    groups, reads = c.shape(0)[-1] // inner, c.places(0, 1, 2)
    return o.convolution(s.Frame(*window, padding), weights, groups, True, reads)


@TABLE.row("TRANSPOSE_CONV")
def _lite_back(c: Call) -> s.Meaning:
    window = (c.shape(1)[1:3], *_strides(c, 2))
    padding = _lite_padding(c, c.gives[0], c.shape(2), *window)  # of the convolution it turns round
    weights, reads = (1, 2, 3, 0), c.places(2, 1, 3)
    return o.convolution(s.Frame(*window, padding, True), weights, 1, True, reads)


@TABLE.row({"MAX_POOL_2D": "max", "AVERAGE_POOL_2D": "average"})
def _lite_pool(c: Call, kind: str) -> s.Meaning:
    kernel, stride = (int(c["filterHeight"]), int(c["filterWidth"])), _strides(c, 2)[0]
    padding = _lite_padding(c, c.shape(0), c.gives[0], kernel, stride, (1, 1))
    return o.pool(kind, s.Frame(kernel, stride, (1, 1), padding), channels_last=True)


@TABLE.row("FULLY_CONNECTED")
def _lite_dense(c: Call) -> s.Meaning:
    units, inner = c.shape(1)
    reads, bias, out = (c.at(0), c.at(1)), c.at(2) if c.has(2) else None, c.gives[0]
    if c.shape(0)[-1] == inner and out[:-1] == c.shape(0)[:-1]:
        return o.dense(reads, bias)
    lines, build = prod(out) // units, s.StepBuilder(c.count)  # all axes but the last are merged
    flat = build.add(s.Reshapes(), (c.at(0),), (lines, inner))
    product = build.add(o.dense((0, 1), bias and 2), (flat, *c.places(1, 2)), (lines, units))
    build.add(s.Reshapes(), (product,), out)
    return build.done()


TABLE |= {
    **s.worded(FUNCTIONS, lambda c, word: o.arithmetic(word, c.dtype())),
    **s.worded(
        REDUCES,
        lambda c, word: o.reduced(word, c.integers(1)),
    ),
    "SQRT": lambda c: o.approximate("sqrt"),  # XNNPACK's; the built-in kernel's is exact
    **s.rows_for(MOVES, lambda c: s.Moves()),
    "RANGE": lambda c: (
        s.Moves() if "int" in c.dtypes[0] else s.Unknown("a range of floats is rounded")
    ),
    "BATCH_MATMUL": lambda c: o.matmul(turned=(bool(c.get("adjX")), bool(c.get("adjY")))),
    "ADD_N": lambda c: o.several("add", c.count),
    # the operator's own types may be left out; those of its tensors are always there
    "CAST": lambda c: o.cast(c.dtype(0), c.dtypes[0]),
    "GELU": lambda c: o.gelu(bool(c.get("approximate"))),
    "RELU6": lambda c: FUSED[3],
    "RELU_N1_TO_1": lambda c: FUSED[2],
    "RELU_0_TO_1": lambda c: o.clip(0, 1),
    **s.rows_for("SOFTMAX LOG_SOFTMAX", lambda c: o.normalised(c.op.lower(), (-1,))),
    **s.rows_for("RESHAPE EXPAND_DIMS SQUEEZE", lambda c: s.Reshapes()),
    "TRANSPOSE": lambda c: o.transpose(c.integers(1)),
    # what their subgraphs were given, and gave
    **s.rows_for("IF WHILE", lambda c: s.Passes(tuple(range(c["passed"])))),
}


def meaning(c: Call) -> s.Meaning:
    """Returns what an operator computes, with the activation that it applies behind."""
    number = int(c.get("fusedActivationFunction") or 0)
    means = s.by_table(TABLE, c)
    return s.then(c, means, FUSED[number]) if number else means
