"""TensorFlow's operations in the words of :mod:`probe.order.semantics`: one line an
operation.

Operands and attributes are those of TensorFlow's op registry, defaults among them. What is only
handed on (``Identity``, lists of tensors) the recorder knows by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probe.order import semantics as s
from probe.order.semantics import Call

# What each operation computes.
TABLE = s.OperationTable()

# By their place. TensorFlow's threads read subnormal numbers as zeros, which Eigen's vectors and
# what is left over of them don't do alike where a function is a choice and no arithmetic: the ReLU
# of 15 times 1e-40 is 0 in some places and 1e-40 in others. Eigen refines the processor's estimate
# (``rcpps``, ``vrcp14ps``, ``vrsqrt14ps``) by Newton steps: up to 2 ulp off, and different on
# another processor. Roots only where it is built for AVX-512; quotients are the processor's own
# everywhere, and so correctly rounded.
APPROXIMATE = s.word_list("Reciprocal Inv:reciprocal Sqrt Relu Relu6 Sign")

NARROW = ("float16", "bfloat16")
# Eigen converts to narrow formats by way of float32, and so rounds these twice.
WIDE = ("float64", "int32", "uint32", "int64", "uint64")

REDUCES = s.word_list("Mean Sum Prod EuclideanNorm:euclidean_norm")


@TABLE.row("Cast")
def _tf_cast(c: Call) -> s.Meaning:
    before, after = c.dtype(), c.dtypes[0]
    if c["Truncate"] and before != after:
        return s.function("truncating cast")
    means = s.cast(before, after)
    if isinstance(means, s.Each) and before in WIDE and after in NARROW:
        return replace(means, approximate=True)
    return means


def _tf_function(name: str) -> s.Meaning:
    """What an operation applies behind. KeyError: there is none of this name."""
    if name in ("GeluExact", "GeluApproximate"):
        return s.gelu(name == "GeluApproximate")
    means = s.approximate(APPROXIMATE[name]) if name in APPROXIMATE else s.by_name(name)
    if means is None:
        raise KeyError(name)
    return means


def _channels_last(c: Call) -> bool:
    return c.get("data_format", "NHWC") in ("NHWC", "NDHWC")


@TABLE.row("BiasAdd BiasAddV1")
def _bias_add(c: Call) -> s.Each:
    return s.function("add", along=None if _channels_last(c) else 1)


def _epilogue(c: Call, first: s.Meaning) -> s.Meaning:
    """What Grappler's remapper made of several operations, in their order."""
    behind: list[s.Meaning | tuple[s.Meaning, int]] = []
    names, slot = list(map(str, c.get("fused_ops") or ())), 2
    for name in names:
        if name in ("BiasAdd", "Add"):
            behind.append((_bias_add(c) if name == "BiasAdd" else s.function("add"), slot))
            slot += 1
        else:
            behind.append(_tf_function(name))
    if isinstance(first, s.Contracts) and len(names) == 1 and slot == 3:
        return replace(first, bias=c.at(2))
    return s.then(c, first, *behind)


@TABLE.row("FusedBatchNormV3 FusedBatchNormV2 FusedBatchNorm _FusedBatchNormEx")
def _tf_bn(c: Call) -> s.Meaning:
    """Also with an addition and an activation behind it, ``_FusedBatchNormEx``."""
    along, mode = None if _channels_last(c) else 1, str(c.get("activation_mode", "Identity"))
    norm = s.batch_norm(c.rank(), bool(c["is_training"]), along)
    if c["is_training"]:
        alone = mode == "Identity" and c.get("exponential_avg_factor", 1.0) == 1
        return norm if alone else s.Unknown("it mixes means of the batch with others")
    added = [(s.function("add"), 5)] if c.get("num_side_inputs") else []
    return s.then(c, norm, *added, *([] if mode == "Identity" else [_tf_function(mode)]))


def _tf_matmul(c: Call, left: str, right: str) -> s.Meaning:
    turned = bool(c[left]), bool(c[right])
    if any(turned) and left == "adj_x" and c.dtype().startswith("complex"):
        return s.Unknown("it conjugates a matrix")
    return _epilogue(c, s.matmul(turned=turned))


def _spatial_ends(c: Call, every: Sequence[Any]) -> tuple[Any, ...]:
    """What has one entry an axis, of the spatial axes alone."""
    return tuple(every[1:-1] if _channels_last(c) else every[2:])


def _tf_padding(
    c: Call, ins: Sequence[int], outs: Sequence[int], *window: Sequence[int]
) -> s.Padding:
    kernel, stride, dilation = window
    if c["padding"] == "EXPLICIT":
        flat = c["explicit_paddings"]
        return _spatial_ends(c, list(zip(flat[::2], flat[1::2], strict=True)))
    if c["padding"] == "VALID":
        return ((0, 0),) * len(kernel)
    return s.same_padding(_spatial_ends(c, ins), _spatial_ends(c, outs), kernel, stride, dilation)


@TABLE.row("Conv2D Conv3D DepthwiseConv2dNative")
@TABLE.row("_FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative")
def _tf_conv(c: Call) -> s.Meaning:
    *kernel, inner, _ = c.shape(1)
    window = tuple(kernel), _spatial_ends(c, c["strides"]), _spatial_ends(c, c["dilations"])
    padding, rank = _tf_padding(c, c.shape(), c.gives[0], *window), len(kernel)
    channels, weights = c.shape()[-1 if _channels_last(c) else 1], tuple(range(rank + 2))
    if "Depthwise" in c.op:
        inner = 1  # (height, width, channels, filters a channel): filters in their order
    frame = s.Frame(*window, padding)
    return _epilogue(c, s.convolution(frame, weights, channels // inner, _channels_last(c)))


@TABLE.row("Conv2DBackpropInput Conv3DBackpropInputV2")
def _tf_back(c: Call) -> s.Meaning:
    *kernel, inner, _ = c.shape(1)
    window = tuple(kernel), _spatial_ends(c, c["strides"]), _spatial_ends(c, c["dilations"])
    padding = _tf_padding(c, c.gives[0], c.shape(2), *window)  # of the convolution it turns round
    groups, rank = c.gives[0][-1 if _channels_last(c) else 1] // inner, len(kernel)
    weights, reads = (*range(rank), rank + 1, rank), c.places(2, 1)
    return s.convolution(s.Frame(*window, padding, True), weights, groups, _channels_last(c), reads)


@TABLE.row(s.word_list("MaxPool:max MaxPool3D:max AvgPool:average AvgPool3D:average"))
def _tf_pool(c: Call, kind: str) -> s.Meaning:
    kernel, stride = _spatial_ends(c, c["ksize"]), _spatial_ends(c, c["strides"])
    if sum(c["ksize"]) > sum(kernel) + 2:
        return s.Unknown("it pools over channels or the batch")
    window = kernel, stride, (1,) * len(kernel)
    frame = s.Frame(*window, _tf_padding(c, c.shape(), c.gives[0], *window))
    return s.pool(kind, frame, _channels_last(c))


@TABLE.row(REDUCES)
def _tf_reduce(c: Call, word: str) -> s.Meaning:
    axes = sorted({axis % max(c.rank(), 1) for axis in c.integers(1)})
    return s.reduced(word, axes) if axes else s.Same()


TABLE |= {
    **s.rows_for(APPROXIMATE, lambda c, word: s.approximate(word)),
    **s.rows_for("Max Min MaxPoolWithArgmax", lambda c: s.Moves()),
    "Mod": lambda c: s.function("truncate_mod"),
    # functions that Grappler has put in one kernel
    "_UnaryOpsComposition": lambda c: s.Each(" ".join(map(str, c["op_names"]))),
    "AddN": lambda c: s.several("add", c.count),
    # products and windows
    **s.rows_for(
        "MatMul SparseMatMul _FusedMatMul", lambda c: _tf_matmul(c, "transpose_a", "transpose_b")
    ),
    **s.rows_for(
        "BatchMatMul BatchMatMulV2 BatchMatMulV3", lambda c: _tf_matmul(c, "adj_x", "adj_y")
    ),
    "Einsum": lambda c: s.einsum(c["equation"]),
    # groups of elements
    "Softmax": lambda c: s.normalised("softmax", (-1,)),
    "LogSoftmax": lambda c: s.normalised("log_softmax", (-1,)),
    "Bitcast": lambda c: s.bitcast(c.dtype(), c.dtypes[0], c.gives[0] == c.shape()),
    **s.rows_for("Reshape ExpandDims Squeeze", lambda c: s.Reshapes()),
    "Transpose": lambda c: s.transpose(c.integers(1)),
}


def meaning(c: Call) -> s.Meaning:
    return s.by_table(TABLE, c)
