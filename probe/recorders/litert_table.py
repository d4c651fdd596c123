"""LiteRT's operators in the words of :mod:`probe.semantics.operations`: one line an operator.

Those that converters write of Keras and TensorFlow models. Channels are last.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from probe import semantics as s
from probe.semantics import moving
from probe.semantics import operations as o
from probe.semantics.contract import Call
from probe.semantics.moving import asked_move, asked_resize

# What each operator computes.
TABLE = s.OperationTable()

# How a tensor's integers are meant: scales and zero points.
Scale = tuple[tuple[float, ...], tuple[int, ...]]

# Functions of the elements at one place without further arguments. Of StableHLO's operators those
# that LiteRT has a kernel for: it refuses to load a model with any other.
FUNCTIONS = s.word_list(
    "ABS NEG SQRT EXP LOG TANH LOGISTIC RELU HARD_SWISH FLOOR CEIL ROUND SIGN SIN COS RSQRT SQUARE "
    "LOGICAL_NOT ADD MUL SUB DIV POW MAXIMUM MINIMUM SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD ATAN2 "
    "EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL PRELU LOGICAL_AND LOGICAL_OR "
    "DEQUANTIZE COMPLEX_ABS:abs REAL IMAG BITWISE_XOR RIGHT_SHIFT "
    "STABLEHLO_ADD:add STABLEHLO_MULTIPLY:multiply STABLEHLO_MAXIMUM:maximum "
    "STABLEHLO_MINIMUM:minimum STABLEHLO_AND:and"
)

REDUCES = s.word_list(
    "MEAN SUM REDUCE_MAX:max REDUCE_MIN:min REDUCE_PROD:prod REDUCE_ANY:any REDUCE_ALL:all"
)
# What moves its first operand, by sizes and indices that its others hold: it is asked where.
MOVES = (
    "MIRROR_PAD SLICE STRIDED_SLICE GATHER GATHER_ND BROADCAST_TO TILE REVERSE_V2 DEPTH_TO_SPACE "
    "SPACE_TO_DEPTH SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND REVERSE_SEQUENCE RESIZE_NEAREST_NEIGHBOR"
)

# Activations that an operator applies, by their number in the schema.
FUSED = {
    1: o.clip(0, None),
    2: o.clip(-1, 1),
    3: o.clip(0, 6),
    4: o.function("tanh"),
    5: o.function("sign_bit"),
}


TANH = 4


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
    return o.convolution(o.Frame(*window, padding), weights, groups, True, reads)


@TABLE.row("TRANSPOSE_CONV")
def _lite_back(c: Call) -> s.Meaning:
    window = (c.shape(1)[1:3], *_strides(c, 2))
    padding = _lite_padding(c, c.gives[0], c.shape(2), *window)  # of the convolution it turns round
    weights, reads = (1, 2, 3, 0), c.places(2, 1, 3)
    return o.convolution(o.Frame(*window, padding, True), weights, 1, True, reads)


@TABLE.row({"MAX_POOL_2D": "max", "AVERAGE_POOL_2D": "average"})
def _lite_pool(c: Call, kind: str) -> s.Meaning:
    kernel, stride = (int(c["filterHeight"]), int(c["filterWidth"])), _strides(c, 2)[0]
    padding = _lite_padding(c, c.shape(0), c.gives[0], kernel, stride, (1, 1))
    return o.pool(kind, o.Frame(kernel, stride, (1, 1), padding), channels_last=True)


@TABLE.row("FULLY_CONNECTED")
def _lite_dense(c: Call) -> s.Meaning:
    units, inner = c.shape(1)
    reads, bias, out = (c.at(0), c.at(1)), c.at(2) if c.has(2) else None, c.gives[0]
    if c.shape(0)[-1] == inner and out[:-1] == c.shape(0)[:-1]:
        return o.dense(reads, bias)
    lines, build = prod(out) // units, s.StepBuilder(c.count)  # all axes but the last are merged
    flat = build.add(o.reshape(), (c.at(0),), (lines, inner))
    product = build.add(o.dense((0, 1), bias and 2), (flat, *c.places(1, 2)), (lines, units))
    build.add(o.reshape(), (product,), out)
    return build.done()


def _lstm(c: Call, axis: int) -> s.Meaning | None:
    """An LSTM whose gates have an array each, in the order input, forget, cell, output; None of one
    with peepholes, projections, norms or clips, or with its input and forget gates as one."""
    weights = range(1, 5), range(5, 9), range(12, 16)
    every = {0, *(slot for some in weights for slot in some)}
    clips = c.get("cellClip"), c.get("projClip")
    if {n for n in range(len(c.reads)) if c.has(n)} != every or any(clips):
        return None
    if int(c.get("fusedActivationFunction") or 0) != TANH:
        return None
    build = s.StepBuilder(c.count)
    joined = [
        build.add(o.concat(0), c.places(*some), (4 * c.shape(some[0])[0], *c.shape(some[0])[1:]))
        for some in weights
    ]
    layer = s.Recurs("lstm", "ifgo", (0, 1, 2, 3, -1, -1, -1), axis)
    build.add(layer, (c.at(0), *joined), c.gives[0])
    return build.done()


@TABLE.row("UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN")
@TABLE.row("BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN")
def _lite_cell(c: Call) -> s.Meaning:
    """Step t reads inputs up to t of its own batch row; first states are zero. The other direction,
    of other weights, is the second result, or stands behind the first."""
    axis, build = (0 if c.get("timeMajor") else 1), s.StepBuilder(c.count)
    if c.op == "UNIDIRECTIONAL_SEQUENCE_LSTM" and (plain := _lstm(c, axis)) is not None:
        return plain
    if not c.op.startswith("BIDIRECTIONAL"):
        return s.Scans(axis, c.op.lower(), mixes=(2,), numbers=c.numbers())
    width = c.gives[0][-1] // (2 if c.get("mergeOutputs") else 1)
    ways = []
    for back in (False, True):
        scan = s.Scans(axis, c.op.lower(), back, (2,), c.numbers())
        ways.append(build.add(scan, range(c.count), (*c.shape(0)[:2], width)))
    if len(c.gives) == 2:
        return build.done(*ways)
    build.add(o.concat(-1), ways, c.gives[0])
    return build.done()


@TABLE.row("SELECT")
def _lite_select(c: Call) -> s.Meaning:
    if c.shape(0) not in ((), c.gives[0]):
        return s.Unknown("it takes rows by a condition of one axis")
    return o.where()


@TABLE.row("DYNAMIC_UPDATE_SLICE")
def _lite_update(c: Call) -> s.Meaning:
    """A part of the first input is replaced, from a place on that is moved so that it fits."""
    shape, part = c.shape(0), c.shape(1)
    ends = zip(c.integers(2), shape, part, strict=True)
    starts = [min(max(n, 0), whole - size) for n, whole, size in ends]
    index = tuple(slice(a, a + n) for a, n in zip(starts, part, strict=True))
    return moving.put_at(c, moving.flat_places(shape)[index], 1, into=0)


TABLE |= {
    **s.worded(FUNCTIONS, lambda c, word: o.arithmetic(word, c.dtype())),
    **s.worded(
        REDUCES,
        lambda c, word: s.reads_of(c, o.reduced(word, c.integers(1), bool(c.get("keepDims"))), 0),
    ),
    "QUANTIZE": lambda c: o.function("quantize", to=c.dtypes[0]),
    "SQRT": lambda c: o.approximate("sqrt"),  # XNNPACK's; the built-in kernel's is exact
    **s.rows_for(MOVES, asked_move),
    "BATCH_MATMUL": lambda c: o.matmul(turned=(bool(c.get("adjX")), bool(c.get("adjY")))),
    "ADD_N": lambda c: o.several("add", c.count),
    "SELECT_V2": lambda c: o.where(),
    # the operator's own types may be left out; those of its tensors are always there
    "CAST": lambda c: o.cast(c.dtype(0), c.dtypes[0]),
    "GELU": lambda c: o.gelu(bool(c.get("approximate"))),
    "LEAKY_RELU": lambda c: o.leaky_relu(c["alpha"]),
    "ELU": lambda c: o.elu(),
    "RELU6": lambda c: FUSED[3],
    "RELU_N1_TO_1": lambda c: FUSED[2],
    "RELU_0_TO_1": lambda c: o.clip(0, 1),
    "FAKE_QUANT": lambda c: o.fake_quantised(
        c["min"], c["max"], c["numBits"], c.get("narrowRange", False)
    ),
    "BUCKETIZE": lambda c: o.bucketized(c, c.get("boundaries") or ()),
    "SHAPE": lambda c: o.known_sizes(c.shape(), c.dtypes[0]),
    "RANK": lambda c: o.known_sizes(c.rank(), c.dtypes[0]),
    "RANGE": o.ranged,
    "ZEROS_LIKE": lambda c: s.Made(0),
    "FILL": lambda c: s.reads_of(c, o.expand((), c.gives[0]), 1),
    "SOFTMAX": lambda c: o.softmax((-1,), float(c.get("beta", 1.0))),
    "LOG_SOFTMAX": lambda c: o.log_softmax((-1,)),
    "L2_NORMALIZATION": lambda c: s.Normalises((-1,), "l2_normalised"),
    "LOCAL_RESPONSE_NORMALIZATION": lambda c: o.lrn(
        3, 2 * c["radius"] + 1, c["alpha"], c["beta"], c["bias"]
    ),
    **s.worded(
        s.word_list("ARG_MAX:argmax ARG_MIN:argmin"),
        lambda c, word: s.reads_of(c, o.reduced(word, c.integers(1), places=True), 0),
    ),
    "TOPK_V2": lambda c: s.reads_of(c, o.top_k(c.rank(), c.integers(1)[0]), 0),
    "CUMSUM": lambda c: s.reads_of(
        c, o.cumulated("cumsum", c.integers(1)[0], bool(c.get("reverse")), c.get("exclusive")), 0
    ),
    **s.rows_for(
        "SEGMENT_SUM UNSORTED_SEGMENT_SUM UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN "
        "UNSORTED_SEGMENT_PROD",
        lambda c: o.own_rows(c.op.lower(), range(1, c.rank()), c.numbers()),
    ),
    **s.rows_for(
        "WHERE UNIQUE BROADCAST_ARGS NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5",
        lambda c: s.Whole((), c.op.lower()),
    ),
    "RESIZE_BILINEAR": lambda c: asked_resize(
        *(c, (1, 2)),
        (c.op, bool(c.get("alignCorners")), bool(c.get("halfPixelCenters")), c.gives[0][1:3]),
    ),
    **s.rows_for("RESHAPE EXPAND_DIMS", lambda c: o.reshape()),
    "SQUEEZE": lambda c: o.squeeze(c.shape(), c.get("squeezeDims") or None),
    "TRANSPOSE": lambda c: o.transpose(c.integers(1)),
    "CONCATENATION": lambda c: o.concat(int(c["axis"])),
    "PACK": lambda c: o.stack(int(c.get("axis", 0))),
    "UNPACK": lambda c: o.unstack(int(c.get("axis", 0)), len(c.gives)),
    "SPLIT": lambda c: s.reads_of(c, o.split(c.integers(0)[0], c.gives), 1),
    "SPLIT_V": lambda c: s.reads_of(c, o.split(c.integers(2)[0], c.gives), 0),
    "PAD": lambda c: o.pad(c.value(1).reshape(-1, 2)),
    "PADV2": lambda c: asked_move(c, 0, 2),
    "EMBEDDING_LOOKUP": lambda c: s.reads_of(c, o.take(0, c.value(0)), 1),
    "ONE_HOT": lambda c: moving.one_hot(c, c.value(0), int(c.get("axis", -1)), on=2, off=3),
    # what their subgraphs were given, and gave
    **s.rows_for("IF WHILE", lambda c: s.Passes(tuple(range(c["passed"])))),
    "SCATTER_ND": lambda c: moving.put_at(
        c, moving.points(c.value(0), c.gives[0]), updates=1, adds=True
    ),
}


def meaning(c: Call) -> s.Meaning:
    """Returns what an operator computes, with the activation that it applies behind; a recurrent
    cell's is in the cell."""
    number = int(c.get("fusedActivationFunction") or 0)
    means, inside = s.by_table(TABLE, c), TABLE.get(c.op) is _lite_cell
    return s.then(c, means, FUSED[number]) if number and not inside else means


def quantised(
    means: s.Meaning, reads: Sequence[Scale | None], gives: Sequence[Scale | None]
) -> s.Meaning:
    """Returns what an operator of quantised tensors means; what only moves them is as it was."""
    if isinstance(means, s.Exact) or not any((*reads, *gives)):
        return means
    return s.Quantised(means, tuple(reads), tuple(gives))
