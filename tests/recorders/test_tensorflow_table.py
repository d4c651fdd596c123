"""Every meaning of TensorFlow's tables against TensorFlow: what is labelled alike is the same
number, as of ONNX's in test_onnx_table.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from probe.recording.recording import record_run
from tests.recorders.truth import alone, best_shares, drawn, inputs, reached

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from tensorflow.python.eager import context, execute  # noqa: E402

from probe.recorders.tensorflow import TensorFlowRecorder  # noqa: E402
from probe.recorders.tensorflow_table import APPROXIMATE, EVERYTHING, FUNCTIONS, TABLE  # noqa: E402
from probe.recorders.tensorflow_values import array, tensor_of  # noqa: E402

pytestmark = pytest.mark.slow  # a second each, and as long as TensorFlow takes to be imported

NEAR = 1e-3
"""Of float32, relative to the larger number or to 1: what labels confuse is apart by far more."""

RNG, normal = drawn(12)


INPUTS = {
    "a": normal(4, 6), "b": normal(4, 6), "t": normal(4, 5, 8), "p": normal(4, 8, 7, 6),
    "v": normal(4, 5, 6, 4, 2), "m": normal(4, 3, 3), "m2": normal(4, 5, 5), "q": normal(4, 5, 8),
    "i": RNG.integers(0, 20, (4, 6)).astype(np.int32), "j": RNG.integers(1, 9, (4, 6), np.int32),
    "k": RNG.random((4, 6)) < 0.5, "o": RNG.random((4, 6)) < 0.5, "u": RNG.random((4, 6),
       np.float32),
    "c": (normal(4, 6) + 1j * normal(4, 6)).astype(np.complex64), "rgb": RNG.random((4, 3, 3),
       np.float32),
    "wide": normal(4, 2, 4, 6).astype(np.complex64), "box": np.sort(RNG.random((4, 4), np.float32)),
}  # fmt: skip
"""Arrays with the rows of the batch first."""

PAIRS = """Sub Pow Maximum Minimum SquaredDifference Atan2 FloorMod FloorDiv Less LessEqual Greater
 GreaterEqual Xdivy Xlogy RealDiv Div DivNoNan MulNoNan Mul Add AddV2 NextAfter Xlog1py""".split()
WHOLE = "Mod FloorMod FloorDiv TruncateDiv TruncateMod BitwiseAnd BitwiseOr BitwiseXor".split()
OF_COMPLEX = ("Conj", "Real", "Imag", "Angle", "ComplexAbs")
OF_SEVERAL = ("Betainc", "Igamma", "Igammac", "Zeta", "Polygamma", "Complex", "PopulationCount",
              "LeftShift", "RightShift", "LogicalAnd", "LogicalOr", "LogicalNot", "Invert", "Equal",
              "NotEqual", "ClipByValue")  # fmt: skip
UNIT = "Dawsn Expint FresnelCos FresnelSin Spence".split()
UNIT += [op for op in FUNCTIONS if op.startswith("Bessel")]
GRADIENTS = [op for op in (*FUNCTIONS, "LeakyReluGrad") if op.endswith("Grad")]
BESIDE = {*PAIRS, *WHOLE, *OF_COMPLEX, *OF_SEVERAL, *UNIT, *GRADIENTS}
UNARY = [op for op in ("Elu", *APPROXIMATE, *FUNCTIONS) if op not in BESIDE]
raw = tf.raw_ops
Given = dict[str, Any]


def called(op: str, *arrays: Any) -> Any:
    """Runs an operation on its first inputs, whatever they are called."""
    function = getattr(raw, op)
    return function(**dict(zip(inspect.signature(function).parameters, arrays, strict=False)))


def elements(x: Given) -> list[Any]:
    a, b, i, j, u = (x[name] for name in "abiju")
    found = [
        *(called(op, a) for op in UNARY), *(called(op, a, b) for op in (*PAIRS, *GRADIENTS)),
        raw.LeakyReluGrad(gradients=a, features=b, alpha=0.4), *(called(op, i, j) for op in WHOLE),
        *(called(op, i - 9, j) for op in ("Mod", "FloorMod", "TruncateMod")),
        raw.LogicalNot(x=x["k"]), raw.Invert(x=i),
        *(getattr(raw, op)(x=x["k"], y=x["o"]) for op in ("LogicalAnd", "LogicalOr")),
        raw.Equal(x=i, y=j), raw.NotEqual(x=i, y=j), raw.Equal(x=a, y=b),
        *(raw.LeakyRelu(features=a, alpha=n) for n in (0.2, 0.4)),
        *(raw.Cast(x=a, DstT=to) for to in (tf.float16, tf.int32, tf.float64, tf.bfloat16)),
        raw.Bitcast(input=a, type=tf.int32 if a.dtype == tf.float32 else tf.int64),
        *(raw.ClipByValue(t=a, clip_value_min=-0.5, clip_value_max=n) for n in (0.5, 0.9)),
        raw.AddN(inputs=[a, b, u]), raw.AddN(inputs=[a, b]), raw.BiasAdd(value=a, bias=row(6)),
        raw.BiasAddV1(value=a, bias=row(6)), raw.BiasAdd(value=x["p"], bias=row(6)),
        *(called(op, u) for op in UNIT), raw.Betainc(a=u, b=u, x=u), raw.Zeta(x=u + 1.5, q=u),
        raw.Polygamma(a=u * 0 + 1, x=u),
        *(getattr(raw, op)(a=u, x=tf.abs(a)) for op in ("Igamma", "Igammac")),
        raw.Complex(real=a, imag=b), raw.PopulationCount(x=i), raw.Conj(input=x["c"]),
        *(getattr(raw, op)(input=x["c"]) for op in ("Real", "Imag", "Angle")),
        *(getattr(raw, op)(x=i, y=j) for op in ("LeftShift", "RightShift")),
        raw.ComplexAbs(x=x["c"]), raw.Identity(input=a), raw.Snapshot(input=a),
        *raw.IdentityN(input=[a, b]), raw.StopGradient(input=a), raw.PreventGradient(input=a),
        raw.CheckNumerics(tensor=a, message=""), raw.CheckNumericsV2(tensor=a, message=""),
        raw.EnsureShape(input=a, shape=[None, 6]), raw.GuaranteeConst(input=a), raw.ZerosLike(x=a),
        *(raw.Bucketize(input=a, boundaries=n) for n in ([0.0], [0.2])),
        *(raw.ApproximateEqual(x=a, y=b, tolerance=n) for n in (0.1, 0.5)),
    ]  # fmt: skip
    fake = {"num_bits": 8, "narrow_range": False}
    found += [raw.FakeQuantWithMinMaxArgs(inputs=a, min=-n, max=n, **fake) for n in (1.0, 2.0)]
    found += [raw.FakeQuantWithMinMaxVars(inputs=a, min=-1.0, max=n, **fake) for n in (1.0, 2.0)]
    ends = {"min": row(6) * 0 - 1, "max": tf.abs(row(6)) + 1}
    found += [raw.FakeQuantWithMinMaxVarsPerChannel(inputs=a, **ends, num_bits=n) for n in (4, 8)]
    return found


FLAT, DEEP = ({"strides": [1] * rank, "padding": "SAME"} for rank in (4, 5))
HALF = {"strides": [1, 2, 2, 1]}
ROW = normal(64)


def row(*shape: int) -> Any:
    """The same weights on both sides."""
    return tf.constant(np.resize(ROW, shape))


def layers(x: Given) -> list[Any]:
    a, t, p, v, m = (x[name] for name in "atpvm")
    found = [getattr(raw, op)(input=t, axis=axis, keep_dims=keep) for op in ("Mean", "Sum", "Max",
             "Min", "Prod", "EuclideanNorm") for axis, keep in (([1], True), ([-1, 1],
                False))]  # fmt: skip
    found += [
        raw.Sum(input=t, axis=[0]), raw.Mean(input=t, axis=np.zeros(0, np.int32)),
        *(getattr(raw, op)(input=x["k"], axis=[1]) for op in ("All", "Any")),
        *(getattr(raw, op)(input=t, dimension=n) for op in ("ArgMax", "ArgMin") for n in (1, -1)),
        *(one for k in (2, 3) for one in raw.TopKV2(input=t, k=k)),
        *raw.TopKV2(input=t, k=4, sorted=False), raw.Softmax(logits=t), raw.LogSoftmax(logits=t),
        raw.L2Loss(t=row(6)), raw.MatMul(a=a, b=row(6, 3)),
        raw.MatMul(a=row(3, 6), b=a, transpose_b=True),
        raw.MatMul(a=a, b=row(3, 6), transpose_b=True),
        *(getattr(raw, op)(x=t, y=row(1, 8, 2)) for op in ("BatchMatMulV2",)),
        raw.BatchMatMul(x=t, y=x["q"], adj_y=True),
        raw.BatchMatMulV3(x=t, y=row(1, 8, 2), Tout=tf.float32),
        raw.Einsum(inputs=[t, row(8, 2)], equation="bij,jk->bki"),
        raw.Einsum(inputs=[t], equation="bij->bji"),
    ]  # fmt: skip
    one, pads = {"strides": [1, 2, 1, 1], "padding": "SAME"}, [0, 0, 1, 0, 2, 1, 0, 0]
    sizes = p.shape[0]
    norm = {"scale": row(6), "offset": row(6), "mean": row(6), "variance": tf.abs(row(6)),
            "is_training": False}  # fmt: skip
    found += [
        *(raw.Conv2D(input=p, filter=row(3, 2, n, 2), **HALF, padding="SAME") for n in (6, 3)),
        raw.Conv2D(input=p, filter=row(3, 2, 6, 2), strides=[1] * 4, padding="EXPLICIT",
                   explicit_paddings=pads, dilations=[1, 2, 1, 1]),
        raw.Conv3D(input=v, filter=row(2, 2, 2, 2, 3), **DEEP),
        *(raw.DepthwiseConv2dNative(input=p, filter=row(3, 2, 6, n), **FLAT) for n in (1, 2)),
        raw.Conv2DBackpropInput(input_sizes=[sizes, 16, 14, 2], filter=row(3, 3, 2, 6),
                                out_backprop=p, **HALF, padding="SAME"),
        raw.Conv3DBackpropInputV2(input_sizes=[sizes, 5, 6, 4, 3], filter=row(2, 2, 2, 3, 2),
                                  out_backprop=v, **DEEP),
        raw.MaxPool(input=p, ksize=[1, 2, 3, 1], **one),
        raw.MaxPoolV2(input=p, ksize=[1, 2, 3, 1], **one),
        raw.AvgPool(value=p, ksize=[1, 2, 3, 1], **one),
        raw.MaxPool3D(input=v, ksize=[1, 2, 2, 2, 1], strides=[1] * 5, padding="VALID"),
        raw.AvgPool3D(input=v, ksize=[1, 2, 2, 2, 1], **DEEP),
        *(raw.FusedBatchNormV3(x=p, **norm, epsilon=n).y for n in (1e-3, 0.1)),
        raw.FusedBatchNorm(x=p, **norm).y, raw.FusedBatchNormV2(x=p, **norm).y,
        raw.BiasAddGrad(out_backprop=row(4, 5, 8)),
        *(raw.LRN(input=p, depth_radius=2, alpha=n) for n in (1.0, 2.0)),
    ]  # fmt: skip
    for kind in ("Bilinear", "Bicubic", "Area"):
        resize = getattr(raw, f"Resize{kind}")
        ways = [{}, {"align_corners": True}] + [{"half_pixel_centers": True}] * (kind != "Area")
        for size in ([4, 9], [4, 10], [5, 9]):
            found += [resize(images=p, size=size, **words) for words in ways]
    words = {"scale": [1.5, 0.75], "translation": [0.0, 0.5]}
    for kernel in ("lanczos3", "triangle"):
        resize = partial(raw.ScaleAndTranslate, **words, kernel_type=kernel)
        found += [resize(images=p, size=n) for n in ([4, 9], [5, 9])]
    for back in (False, True):
        for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
            found += [getattr(raw, op)(x=t, axis=n, reverse=back) for n in (1, 2)]
        for op in (raw.Cumsum, raw.Cumprod):
            found += [op(x=t, axis=n, exclusive=True, reverse=back) for n in (1, -1)]
    pool = {"ksize": [1, 2, 3, 1], "strides": [1, 2, 1, 1], "padding": "SAME"}
    found += [*raw.MaxPoolWithArgmax(input=p, **pool)]
    found += [*raw.MaxPoolWithArgmax(input=p, **pool, include_batch_in_index=True)]
    wide = {"strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"}
    found += [raw.Dilation2D(input=p, filter=row(2, 3, 6), **wide)]
    spread = raw.BatchMatMulV2(x=m, y=m, adj_y=True)
    found += [raw.MatrixSolve(matrix=m, rhs=m[..., :2], adjoint=n) for n in (False, True)]
    for low in (False, True):
        solve = partial(raw.MatrixTriangularSolve, matrix=m, rhs=m, lower=low)
        found += [solve(adjoint=n) for n in (False, True)]
    found += [
        raw.MatrixSolve(matrix=m[:, None], rhs=m[:, None, :, :2]),
        raw.Cholesky(input=spread + 3 * tf.eye(3)), raw.MatrixDeterminant(input=m),
        *(raw.MatrixInverse(input=m, adjoint=n) for n in (False, True)), *raw.Qr(input=m),
        *raw.Svd(input=m), *raw.SelfAdjointEigV2(input=spread), *raw.Lu(input=m),
        *raw.LogMatrixDeterminant(input=m), raw.MatrixSquareRoot(input=spread),
        *raw.Eig(input=m, Tout=tf.complex64),
        raw.MatrixLogarithm(input=tf.cast(spread, tf.complex64)),
    ]  # fmt: skip
    for n, name in ((1, ""), (2, "2D"), (3, "3D")):
        found += [getattr(raw, f"{way}FFT{name}")(input=x["wide"]) for way in ("", "I")]
        real, half = getattr(raw, f"RFFT{name}"), getattr(raw, f"IRFFT{name}")
        z, start = x["wide"], 3 - n
        found += [real(input=tf.math.real(z), fft_length=[2, 4, k][start:]) for k in (4, 5)]
        found += [half(input=z, fft_length=[2, 4, k][start:]) for k in (8, 9)]
    found += [raw.HSVToRGB(images=x["rgb"]), raw.RGBToHSV(images=x["rgb"]), raw.Cross(a=m, b=m)]
    found += [*raw.SoftmaxCrossEntropyWithLogits(features=a, labels=x["u"])]
    found += [*raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=x["j"][:, 0] % 6)]
    ids = tf.constant(np.arange(p.shape[0]) // 2, tf.int32)
    for op in ("Sum", "Max", "Min", "Prod", "Mean"):
        found += [getattr(raw, f"Segment{op}")(data=p, segment_ids=ids)]
        if op != "Mean":
            found += [getattr(raw, f"UnsortedSegment{op}")(data=p, segment_ids=ids, num_segments=3)]
    boxes = {"boxes": x["box"], "box_ind": tf.constant([1, 0, 1, 1])[: p.shape[0]]}
    return found + [raw.CropAndResize(image=p, **boxes, crop_size=n) for n in ([3, 2], [3, 4])]


def moves(x: Given) -> list[Any]:
    a, t, p, i = (x[name] for name in "atpi")
    rows = a.shape[0]
    found = [
        raw.Reshape(tensor=t, shape=[-1, 4]), raw.ExpandDims(input=t, axis=1),
        raw.Squeeze(input=t[:, :1]), raw.Squeeze(input=a[:, None, :, None], axis=[-1]),
        raw.Transpose(x=t, perm=[2, 0, 1]), raw.ConjugateTranspose(x=x["c"], perm=[1, 0]),
        t[:, -1:0:-2], t[..., None, 2], t[1:, 1],
        raw.Slice(input=t, begin=[0, 1, 2], size=[-1, 3, 2]),
        *(raw.ConcatV2(values=[t, x["q"]], axis=n) for n in (1, -1)),
        *raw.Split(axis=1, value=a, num_split=3),
        *raw.SplitV(value=a, size_splits=[4, 2], axis=-1, num_split=2),
        *(raw.Pack(values=[a, x["b"]], axis=n) for n in (0, -1)),
        *raw.Unpack(value=t, num=5, axis=1), *raw.Unpack(value=t, num=8, axis=-1),
        raw.Tile(input=a, multiples=[1, 2]), raw.Tile(input=a, multiples=[2, 1]),
    ]  # fmt: skip
    pads = [[0, 0], [2, 1]]
    found += [
        raw.Pad(input=a, paddings=pads),
        *(raw.PadV2(input=a, paddings=pads, constant_values=n) for n in (1.0, 2.0)),
        *(raw.MirrorPad(input=a, paddings=pads, mode=n) for n in ("REFLECT", "SYMMETRIC")),
        *(raw.ReverseV2(tensor=t, axis=[n]) for n in (0, 1, -1)),
        raw.GatherNd(params=t, indices=[[0, 1], [1, 2]]),
        raw.GatherV2(params=t, indices=[3, 1], axis=-1),
        raw.GatherV2(params=t, indices=[[2], [0]], axis=1), raw.Gather(params=t, indices=[1, 0]),
    ]  # fmt: skip
    for top, depth in (([[1, 9], [-1, 0]], 4), (raw.ArgMax(input=t, dimension=2), 8)):
        hot = partial(raw.OneHot, indices=top, depth=depth, on_value=a[0, 0], off_value=a[0, 1])
        found += [hot(axis=n) for n in (-1, 0, 1)]
    each = np.array([[3, 1], [0, 2], [4, 4], [1, 0]], np.int32)[:rows]
    found += [raw.GatherV2(params=t, indices=each, axis=n, batch_dims=1) for n in (1, 2)]
    three = np.stack([each, each[:, ::-1] + 3], 1) % 8
    found += [raw.GatherV2(params=t[:, :2], indices=three, axis=2, batch_dims=2)]
    for rates in ([1, 1, 1, 1], [1, 1, 2, 1]):
        cut = partial(raw.ExtractImagePatches, ksizes=[1, 3, 2, 1], strides=[1, 2, 1, 1])
        found += [cut(images=p, rates=rates, padding=name) for name in ("SAME", "VALID")]
    for words in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
        near = partial(raw.ResizeNearestNeighbor, images=p, **words)
        found += [near(size=n) for n in ([4, 9], [16, 14], [5, 1])]
    v3 = {"k": 0, "num_rows": -1, "num_cols": -1, "padding_value": 0.0}
    points = {"tensor": a, "indices": [[1, 2], [0, 5]], "updates": row(2)}
    found += [
        raw.BroadcastTo(input=row(6), shape=[3, 6]), raw.Fill(dims=[2, 3], value=a[0, 2]),
        raw.Select(condition=x["k"], x=a, y=x["b"]),
        raw.SelectV2(condition=x["k"], t=a, e=row(6)),
        raw.DepthToSpace(input=tf.tile(p, [1, 1, 1, 2]), block_size=2),
        raw.SpaceToDepth(input=p[:, :, :6], block_size=2),
        raw.SpaceToBatchND(input=p, block_shape=[2, 3], paddings=[[1, 1], [0, 2]]),
        raw.BatchToSpaceND(input=tf.tile(p, [2, 1, 1, 1]), block_shape=[2, 1],
                           crops=[[1, 0], [0, 0]]),
        raw.Roll(input=t, shift=[1, -2], axis=[1, 2]), raw.Roll(input=a, shift=[3], axis=[1]),
        raw.ScatterNd(indices=[[3], [1], [3], [0]][:rows], updates=a, shape=[5, 6]),
        raw.TensorScatterUpdate(**points), raw.TensorScatterAdd(**points),
        raw.ReverseSequence(input=t, seq_lengths=[4, 1, 5, 2][:rows], seq_dim=1),
        *(raw.MatrixBandPart(input=t, num_lower=n, num_upper=m)
          for n, m in ((1, 2), (-1, 0), (0, -1))),
        raw.MatrixDiag(diagonal=t), raw.MatrixDiagV3(diagonal=t, **v3), raw.MatrixDiagPart(input=t),
        raw.MatrixDiagPartV3(input=t, k=0, padding_value=0.0),
        raw.MatrixSetDiag(input=t, diagonal=t[:, 0, :5]),
        raw.MatrixSetDiagV3(input=t, diagonal=t[:, 0, :5], k=0), raw.Where(condition=x["k"]),
        *raw.Unique(x=[3, 1, 3]), *raw.UniqueV2(x=i, axis=[1]), raw.Cumsum(x=i, axis=1),
        *raw.ListDiff(x=[1, 2, 3], y=[2]), raw.InvertPermutation(x=[2, 0, 1]),
        raw.LinSpace(start=0.0, stop=2.0, num=5),
        raw.Bincount(arr=i, size=30, weights=np.zeros(0, np.float32)),
        raw.DenseBincount(input=i, size=30, weights=np.zeros(0, np.float32)),
    ]  # fmt: skip
    v = x["v"]
    found += [
        raw.Concat(concat_dim=1, values=[t, x["q"]]),
        raw.Reverse(tensor=t, dims=[False, True, False]),
        raw.SpaceToBatch(input=p[:, :, :6], paddings=[[0, 0], [2, 0]], block_size=2),
        raw.BatchToSpace(input=tf.tile(p, [4, 1, 1, 1]), crops=[[0, 1], [1, 1]], block_size=2),
        raw.Diag(diagonal=a), raw.DiagPart(input=raw.Diag(diagonal=a)),
    ]  # fmt: skip
    wide = {"ksizes": [1, 2, 3, 1, 1], "strides": [1, 1, 1, 2, 1], "padding": "SAME"}
    found += [raw.ExtractVolumePatches(input=v, **wide), raw.MatrixDiagV2(diagonal=t, **v3)]
    found += [raw.MatrixDiagV3(diagonal=t, **{**v3, "k": 1, "padding_value": 2.0})]
    found += [raw.MatrixDiagPartV2(input=t, k=n, padding_value=0.0) for n in (0, -1, [0, 1])]
    found += [raw.MatrixSetDiagV2(input=t, diagonal=t[:, 0, :5], k=n) for n in (0, 1)]
    found += [raw.Select(condition=[True, False, True, True][:rows], x=a, y=x["b"])]
    ids = [[2, 0, 0, 2, 1], [1, 1, 0, 0, 2], [0, 1, 2, 0, 1], [0, 0, 0, 2, 2]]
    found += [raw.UnsortedSegmentSum(data=t[0], segment_ids=[2, 0, 0, 2, 1], num_segments=3)]
    found += [raw.UnsortedSegmentMax(data=t, segment_ids=ids[:rows], num_segments=3)]
    return [*found, raw.HistogramFixedWidth(values=a, value_range=[-2.0, 2.0], nbins=5)]


def ran(op: str, inputs: list[Any], count: int = 1, **attributes: Any) -> list[Any]:
    """An operation that Python has no name for: what the optimiser of graphs makes of others."""
    words = {"T": tf.float32, **attributes}
    flat = tuple(one for pair in words.items() for one in pair)
    run = execute.execute_with_callbacks
    return list(run(op.encode(), count, inputs, flat, context.context()))


TABLE_OF_ROWS = tf.Variable(np.resize(ROW, (5, 6)))


def trained(x: Given) -> list[Any]:
    """What training runs besides."""
    a, t, p, v = (x[name] for name in "atpv")
    rows, scale = a.shape[0], {"scale": row(6), "offset": row(6)}
    means = {"mean": np.zeros(0, np.float32), "variance": np.zeros(0, np.float32)}
    found = []
    for kind in ("", "V2", "V3"):
        norm = getattr(raw, f"FusedBatchNorm{kind}")
        found += [*norm(x=p, **scale, **means, is_training=True, epsilon=0.1)]
        grad = getattr(raw, f"FusedBatchNormGrad{kind}")
        more = {"reserve_space_3": np.zeros(0, np.float32)} if kind == "V3" else {}
        saved = {"reserve_space_1": row(6), "reserve_space_2": tf.abs(row(6))}
        found += grad(y_backprop=p, x=p, scale=row(6), **saved, **more)[:3]
    words = {"filter_sizes": [3, 2, 6, 2], "out_backprop": row(rows, 8, 7, 2)}
    found += [raw.Conv2DBackpropFilter(input=p, **words, **FLAT)]
    words = {"filter_sizes": [2, 2, 2, 2, 1], "out_backprop": row(*v.shape[:4], 1)}
    found += [raw.Conv3DBackpropFilterV2(input=v, **words, **DEEP)]
    words = {"filter_sizes": [3, 2, 6, 1], "out_backprop": row(*p.shape)}
    found += [raw.DepthwiseConv2dNativeBackpropFilter(input=p, **words, **FLAT)]
    words = {"input_sizes": p.shape, "filter": row(3, 2, 6, 1)}
    found += [raw.DepthwiseConv2dNativeBackpropInput(out_backprop=p, **words, **FLAT)]
    for name, one, ones in (("Pool", p, FLAT), ("Pool3D", v, DEEP)):
        size = [1, *[2] * (one.shape.rank - 2), 1]
        most = getattr(raw, f"Max{name}")(input=one, ksize=size, **ones)
        grad = getattr(raw, f"Max{name}Grad")
        found += [grad(orig_input=one, orig_output=most, grad=one, ksize=size, **ones)]
        grad = getattr(raw, f"Avg{name}Grad")
        found += [grad(orig_input_shape=one.shape, grad=one, ksize=size, **ones)]
    found += [raw.ResizeBilinearGrad(grads=p, original_image=p[:, :4, :4])]
    found += [raw.SparseMatMul(a=a, b=row(6, 3))]
    found += [raw.SparseMatMul(a=a, b=row(3, 6), transpose_b=True)]
    stitch = {"indices": [[0, 2], [1, 2]], "data": [a[:2], a[:2] + 1]}
    found += [raw.DynamicStitch(**stitch), raw.ParallelDynamicStitch(**stitch)]
    where = {"begin": [0, 1, 0], "end": [1, 5, 8], "strides": [1, 2, 1]}
    found += [raw.TensorStridedSliceUpdate(input=t, **where, value=row(1, 2, 8))]
    found += [raw.ScatterNdNonAliasingAdd(input=a, indices=[[1], [1], [0], [0]][:rows], updates=a)]
    boxes = {"boxes": x["box"], "scores": a[:, 0], "max_output_size": 3, "iou_threshold": 0.5}
    for kind in ("V3", "V4", "V5"):
        more = {"soft_nms_sigma": 0.5} if kind == "V5" else {}
        select = getattr(raw, f"NonMaxSuppression{kind}")(**boxes, score_threshold=-9.0, **more)
        found += [select] if kind == "V3" else [*select]
    return found


def fused(x: Given) -> list[Any]:
    a, p, v = (x[name] for name in "apv")
    found = ran("_FusedMatMul", [a, row(6, 3), row(3)], num_args=1, fused_ops=["BiasAdd"])
    found += ran("_FusedMatMul", [a, row(6, 3), row(3)], num_args=1, fused_ops=["BiasAdd", "Relu"])
    conv = {"TArgs": [tf.float32], "num_args": 1, "num_host_args": 0, **HALF, "padding": "SAME"}
    for slope in (0.2, 0.3):
        words = {**conv, "fused_ops": ["BiasAdd", "LeakyRelu"], "leakyrelu_alpha": slope}
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
    for mode in ("Relu", "Identity"):
        found += ran("_FusedBatchNormEx", [p, *norm], 6, **words, activation_mode=mode)[:1]
    found += ran("_UnaryOpsComposition", [a], op_names=["Abs", "Sqrt", "Tanh"])
    rows = tf.constant([4, 1, 1, 0])[: a.shape[0]]
    return [*found, a + tf.gather(TABLE_OF_ROWS, rows)]


GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (elements, layers, moves, trained, fused)
}


def recorder(name: str, rows: list[int] | None = None) -> TensorFlowRecorder:
    program, operands = GROUPS[name], inputs(INPUTS, tf.constant, rows)
    return TensorFlowRecorder(lambda: program(operands))


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_what_is_labelled_alike_is_the_same_number(name: str, rows: list[int]) -> None:
    best = best_shares(recorder(name), recorder(name, rows), NEAR)
    if len(rows) == 4:
        assert not {op for op, share in best.items() if not share} - READ_WHOLE


READ_WHOLE = {"CropAndResize", "Cross", *EVERYTHING.split()}
"""What reads all of its input, of which one element is changed."""


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "fused"])
def test_lines_and_operations_alone_give_the_bits_of_the_run(name: str) -> None:
    """Also where Python and TensorFlow's registry have other names for an argument."""
    ran, written = alone(recorder(name), tensor_of, array)
    assert ran == written and len({*ran}) > 20


def test_every_row_of_the_tables_is_reached() -> None:
    assert not {*TABLE} - reached(map(recorder, GROUPS)) - {"_FusedConv3D"}  # of oneDNN alone


@pytest.mark.parametrize(
    ("op", "exact"),
    [
        (lambda a: raw.Reciprocal(x=a), False),
        (lambda a: raw.Inv(x=a), False),
        (lambda a: raw.Sqrt(x=a), False),
        (lambda a: raw.RealDiv(x=a, y=a + 1), True),
        (lambda a: raw.Cast(x=a, DstT=tf.float16), True),
        (lambda a: raw.Cast(x=tf.cast(a, tf.float64), DstT=tf.float16), False),
    ],
    ids=["reciprocal", "inverse", "root", "quotient", "narrowed", "narrowed in two steps"],
)
def test_exact_is_what_eigen_rounds_once_on_every_processor(op: Any, exact: bool) -> None:
    events: list[Any] = []
    a = tf.constant(INPUTS["a"])
    TensorFlowRecorder(lambda: op(a)).record(events.append)
    assert events[-1].meaning.exact is exact


@pytest.mark.parametrize("function", [tf.nn.relu, tf.nn.relu6, tf.sign])
def test_choices_that_subnormal_numbers_take_by_their_place_are_not_called_exact(function):
    """TensorFlow's threads read these as zeros, in a vector or in what is left over of it."""
    live = record_run(TensorFlowRecorder(lambda: function(tf.constant([1.0, -1.0]))))
    assert [one.meaning.rounds for one in live.operations] == [None]
