"""Every row of TensorFlow's table: what it says of calls of TensorFlow is what they give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.record.recorded import alone, drawn, held_to_account, inputs

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from tensorflow.python.eager import context, execute  # noqa: E402

from probe.record.tensorflow import TensorFlowRecorder  # noqa: E402
from probe.record.tensorflow_table import APPROXIMATE, TABLE  # noqa: E402
from probe.record.tensorflow_values import array, tensor_of  # noqa: E402

pytestmark = pytest.mark.slow  # a second each, and as long as TensorFlow takes to be imported

RNG, normal = drawn(12)
INPUTS = {
    "a": normal(4, 6), "b": normal(4, 6), "t": normal(4, 5, 8), "p": normal(4, 8, 7, 6),
    "v": normal(4, 5, 6, 4, 2), "q": normal(4, 5, 8), "u": RNG.random((4, 6), np.float32),
    "i": RNG.integers(0, 20, (4, 6)).astype(np.int32), "j": RNG.integers(1, 9, (4, 6), np.int32),
    "k": RNG.random((4, 6)) < 0.5, "o": RNG.random((4, 6)) < 0.5,
    "c": (normal(4, 6) + 1j * normal(4, 6)).astype(np.complex64),
}  # fmt: skip
PAIRS = "Pow Maximum SquaredDifference Atan2 FloorMod Less DivNoNan AddV2 NextAfter Mul".split()
WHOLE = "Mod FloorMod FloorDiv TruncateDiv BitwiseXor".split()
UNARY = "Selu LeakyRelu Tanh Neg Square Erf Rint Floor Sigmoid Exp Rsqrt Softplus IsInf".split()
UNARY += APPROXIMATE
GRADIENTS = "ReluGrad SigmoidGrad RsqrtGrad".split()
raw = tf.raw_ops
Given = dict[str, Any]


def called(op: str, *arrays: Any) -> Any:
    """Runs an operation on its first inputs, whatever they are called."""
    function = getattr(raw, op)
    return function(**dict(zip(inspect.signature(function).parameters, arrays, strict=False)))


def elements(x: Given) -> list[Any]:
    a, b, i, j, u = (x[name] for name in "abiju")
    return [
        *(called(op, a) for op in UNARY), *(called(op, a, b) for op in (*PAIRS, *GRADIENTS)),
        *(called(op, i, j) for op in WHOLE),
        *(called(op, i - 9, j) for op in ("Mod", "FloorMod", "TruncateMod")),
        raw.LogicalNot(x=x["k"]), raw.LogicalAnd(x=x["k"], y=x["o"]), raw.Equal(x=i, y=j),
        raw.LeakyRelu(features=a, alpha=0.4),
        *(raw.Cast(x=a, DstT=to) for to in (tf.float16, tf.int32, tf.float64, tf.bfloat16)),
        raw.Cast(x=tf.cast(a, tf.float64), DstT=tf.float16, Truncate=True),
        raw.Bitcast(input=a, type=tf.int32),
        raw.ClipByValue(t=a, clip_value_min=-0.5, clip_value_max=0.5),
        raw.AddN(inputs=[a, b, u]), raw.AddN(inputs=[a, b]), raw.BiasAdd(value=a, bias=row(6)),
        raw.BiasAddV1(value=a, bias=row(6)), raw.BiasAdd(value=x["p"], bias=row(6)),
        raw.Betainc(a=u, b=u, x=u), raw.Igamma(a=u, x=tf.abs(a)), raw.Complex(real=a, imag=b),
        raw.PopulationCount(x=i), raw.Conj(input=x["c"]), raw.Angle(input=x["c"]),
        raw.LeftShift(x=i, y=j),
        raw.ComplexAbs(x=x["c"]), raw.PreventGradient(input=a), raw.GuaranteeConst(input=a),
        raw.CheckNumerics(tensor=a, message=""), raw.CheckNumericsV2(tensor=a, message=""),
        raw.EnsureShape(input=a, shape=[None, 6]),
    ]  # fmt: skip


FLAT, DEEP = ({"strides": [1] * rank, "padding": "SAME"} for rank in (4, 5))
HALF = {"strides": [1, 2, 2, 1]}
ROW = normal(64)


def row(*shape: int) -> Any:
    return tf.constant(np.resize(ROW, shape))


def layers(x: Given) -> list[Any]:
    a, t, p, v = (x[name] for name in "atpv")
    one, pads = {"strides": [1, 2, 1, 1], "padding": "SAME"}, [0, 0, 1, 0, 2, 1, 0, 0]
    norm = {"scale": row(6), "offset": row(6) + 1, "mean": row(6), "variance": tf.abs(row(6))}
    empty = {**norm, "mean": np.zeros(0, np.float32), "variance": np.zeros(0, np.float32)}
    turned = {"input_sizes": [4, 16, 14, 2], "filter": row(3, 3, 2, 6), "out_backprop": p}
    deep = {"input_sizes": [4, 5, 6, 4, 3], "filter": row(2, 2, 2, 3, 2), "out_backprop": v}
    norms = [getattr(raw, f"FusedBatchNorm{kind}") for kind in ("", "V2", "V3")]
    return [
        *(getattr(raw, op)(input=t, axis=axis, keep_dims=keep) for axis, keep in (([1], True),
          ([-1, 1], False)) for op in ("Mean", "Sum", "Max", "Min", "Prod", "EuclideanNorm")),
        raw.Mean(input=t, axis=np.zeros(0, np.int32)),
        *(getattr(raw, op)(input=x["k"], axis=[1]) for op in ("All", "Any")),
        *(getattr(raw, op)(input=t, dimension=1) for op in ("ArgMax", "ArgMin")),
        *raw.TopKV2(input=t, k=2), raw.Softmax(logits=t), raw.LogSoftmax(logits=t),
        raw.MatMul(a=a, b=row(6, 3)), raw.MatMul(a=row(3, 6), b=a, transpose_b=True),
        raw.SparseMatMul(a=a, b=row(3, 6), transpose_b=True),
        raw.BatchMatMul(x=t, y=x["q"], adj_y=True), raw.BatchMatMulV2(x=t, y=row(1, 8, 2)),
        raw.BatchMatMulV3(x=t, y=row(1, 8, 2), Tout=tf.float32),
        raw.Einsum(inputs=[t, row(8, 2)], equation="bij,jk->bki"),
        raw.Einsum(inputs=[t], equation="bij->bji"),
        *(raw.Conv2D(input=p, filter=row(3, 2, n, 2), **HALF, padding="SAME") for n in (6, 3)),
        raw.Conv2D(input=p, filter=row(3, 2, 6, 2), strides=[1] * 4, padding="EXPLICIT",
                   explicit_paddings=pads, dilations=[1, 2, 1, 1]),
        raw.Conv3D(input=v, filter=row(2, 2, 2, 2, 3), **DEEP),
        *(raw.DepthwiseConv2dNative(input=p, filter=row(3, 2, 6, n), **FLAT) for n in (1, 2)),
        raw.Conv2DBackpropInput(**turned, **HALF, padding="SAME"),
        raw.Conv3DBackpropInputV2(**deep, **DEEP), raw.MaxPool(input=p, ksize=[1, 2, 3, 1], **one),
        raw.AvgPool(value=p, ksize=[1, 2, 3, 1], **one),
        raw.AvgPool3D(input=v, ksize=[1, 2, 2, 2, 1], **DEEP),
        raw.MaxPool3D(input=v, ksize=[1, 2, 2, 2, 1], strides=[1] * 5, padding="VALID"),
        *raw.MaxPoolWithArgmax(input=p, ksize=[1, 2, 3, 1], **one),
        *(n(x=p, **norm, epsilon=0.1, is_training=False).y for n in norms),
        *(n(x=p, **empty, epsilon=0.1).y for n in norms),
    ]  # fmt: skip


def moves(x: Given) -> list[Any]:
    a, b, t, p, i = (x[name] for name in "abtpi")
    pads, stitch = [[0, 0], [2, 1]], {"indices": [[0, 2], [1, 2]], "data": [a[:2], a[:2] + 1]}
    where = {"begin": [0, 1, 0], "end": [1, 5, 8], "strides": [1, 2, 1]}
    return [
        raw.Reshape(tensor=t, shape=[-1, 4]), raw.ExpandDims(input=t, axis=1),
        raw.Squeeze(input=t[:, :1]), raw.Transpose(x=t, perm=[2, 0, 1]), t[:, -1:0:-2],
        raw.ConcatV2(values=[t, x["q"]], axis=1), *raw.Split(axis=1, value=a, num_split=3),
        *raw.SplitV(value=a, size_splits=[4, 2], axis=-1, num_split=2),
        raw.Pack(values=[a, b], axis=-1), *raw.Unpack(value=t, num=5, axis=1),
        raw.PadV2(input=a, paddings=pads, constant_values=2.0),
        raw.MirrorPad(input=a, paddings=pads, mode="REFLECT"), raw.ReverseV2(tensor=t, axis=[1]),
        raw.GatherV2(params=t, indices=[3, 1], axis=-1),
        raw.OneHot(indices=[1, 9], depth=4, on_value=a[0, 0], off_value=a[0, 1]),
        raw.ResizeNearestNeighbor(images=p, size=[16, 14], half_pixel_centers=True),
        raw.Select(condition=x["k"], x=a, y=b), raw.SelectV2(condition=x["k"], t=a, e=row(6)),
        raw.SpaceToBatchND(input=p, block_shape=[2, 3], paddings=[[1, 1], [0, 2]]),
        raw.ReverseSequence(input=t, seq_lengths=[4, 1, 5, 2], seq_dim=1),
        raw.MatrixBandPart(input=t, num_lower=1, num_upper=2), raw.DynamicStitch(**stitch),
        raw.TensorStridedSliceUpdate(input=t, **where, value=row(1, 2, 8)),
        raw.Where(condition=x["k"]), *raw.Unique(x=i[0]), *raw.ListDiff(x=i[0], y=i[1]),
    ]  # fmt: skip


def ran(op: str, inputs: list[Any], count: int = 1, **attributes: Any) -> list[Any]:
    """An operation that Python has no name for: what the optimiser of graphs makes of others."""
    words = {"T": tf.float32, **attributes}
    flat = tuple(end for pair in words.items() for end in pair)
    run = execute.execute_with_callbacks
    return list(run(op.encode(), count, inputs, flat, context.context()))


TABLE_OF_ROWS = tf.Variable(np.resize(ROW, (5, 6)))


def fused(x: Given) -> list[Any]:
    a, p, v = (x[name] for name in "apv")
    found = ran("_FusedMatMul", [a, row(6, 3), row(3)], num_args=1, fused_ops=["BiasAdd"])
    found += ran("_FusedMatMul", [a, row(6, 3), row(3)], num_args=1, fused_ops=["BiasAdd", "Relu"])
    conv = {"TArgs": [tf.float32], "num_args": 1, "num_host_args": 0, **HALF, "padding": "SAME"}
    words = {**conv, "fused_ops": ["BiasAdd", "LeakyRelu"], "leakyrelu_alpha": 0.3}
    found += ran("_FusedConv2D", [p, row(3, 2, 6, 2), row(2)], **words)
    depthwise, given = "_FusedDepthwiseConv2dNative", [p, row(3, 2, 6, 1), row(6)]
    found += ran(depthwise, given, num_args=1, **FLAT, fused_ops=["BiasAdd", "Relu6"])
    try:
        given = [v, row(2, 2, 2, 2, 3), row(3)]
        found += ran("_FusedConv3D", given, num_args=1, **DEEP, fused_ops=["BiasAdd", "Relu"])
    except tf.errors.OpError:  # oneDNN's alone
        pass
    norm = [row(6), row(6), row(6), tf.abs(row(6))]
    words = {"U": tf.float32, "is_training": False, "num_side_inputs": 0}
    found += ran("_FusedBatchNormEx", [p, *norm], 6, **words, activation_mode="Relu")[:1]
    found += [tf.gather(TABLE_OF_ROWS, [4, 1, 1, 0])]
    return [*found, *ran("_UnaryOpsComposition", [a], op_names=["Abs", "Sqrt", "Tanh"])]


GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (elements, layers, moves, fused)
}


def recorder(name: str) -> TensorFlowRecorder:
    operands = inputs(INPUTS, tf.constant)
    return TensorFlowRecorder(lambda: GROUPS[name](operands))


def test_every_row_says_what_tensorflow_gives() -> None:
    ones = {"_FusedDepthwiseConv2dNative", "_FusedConv3D"}  # of oneDNN alone
    names = held_to_account(map(recorder, GROUPS), 1e-4, ones)
    assert not {*TABLE} - names - ones


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "fused"])
def test_lines_and_operations_alone_give_the_bits_of_the_run(name: str) -> None:
    """Also where Python and TensorFlow's registry have other names for an argument."""
    run, written = alone(recorder(name), tensor_of, array)
    assert run == written and run


@pytest.mark.parametrize(
    ("op", "exact"),
    [
        (lambda a: raw.Reciprocal(x=a), False),
        (lambda a: raw.Inv(x=a), False),
        (lambda a: raw.Sqrt(x=a), False),
        (lambda a: raw.RealDiv(x=a, y=a + 1), True),
        (lambda a: raw.Cast(x=a, DstT=tf.float16), True),
        (lambda a: raw.Cast(x=tf.cast(a, tf.float64), DstT=tf.float16), False),
        # TensorFlow's threads read subnormal numbers as zeros, in a vector or behind it
        *((function, False) for function in (tf.nn.relu, tf.nn.relu6, tf.sign)),
    ],
)
def test_exact_is_what_eigen_rounds_once_on_every_processor(op: Any, exact: bool) -> None:
    events: list[Any] = []
    a = tf.constant(INPUTS["a"])
    TensorFlowRecorder(lambda: op(a)).record(events.append)
    assert events[-1].meaning.exact is exact
