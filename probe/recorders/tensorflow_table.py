"""TensorFlow's operations in the words of :mod:`probe.semantics.operations`: one line an operation.

Operands and attributes are those of TensorFlow's op registry, defaults among them. What is only
handed on (``Identity``, lists of tensors) the recorder knows by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probe import semantics as s
from probe.semantics import moving
from probe.semantics import operations as o
from probe.semantics.contract import Call
from probe.semantics.moving import asked_move, asked_resize

# What each operation computes.
TABLE = s.OperationTable()


def _snake(names: str) -> dict[str, str]:
    """Returns names with what they compute, as of ``word_list``, but ``IsNan`` is ``is_nan``."""
    every = s.word_list(names)
    inner = re.compile(r"(?<=[a-z])(?=[A-Z])")
    return {
        n: inner.sub("_", n).lower() if word == n.lower() else word for n, word in every.items()
    }


# Functions of the elements at one place without further arguments.
FUNCTIONS = _snake(
    "Selu Tanh Neg Abs Square Erf Softsign Sin Tan Atan Sinh Asinh Atanh Expm1 "
    "Log1p Round Rint Floor Ceil Asin Sigmoid Exp Log Cos Rsqrt Softplus Erfc Cosh Acos Lgamma "
    "Digamma Invert Acosh Erfinv Ndtri Sub Pow Maximum Minimum Atan2 Equal Less Greater Xdivy "
    "Xlogy Mul IsNan IsInf IsFinite LogicalNot SquaredDifference FloorMod FloorDiv TruncateDiv "
    "NotEqual LessEqual GreaterEqual LogicalAnd LogicalOr BitwiseAnd BitwiseOr BitwiseXor "
    "TruncateMod DivNoNan MulNoNan RealDiv Div Add AddV2:add Mod:truncate_mod ClipByValue:clip "
    "BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 "
    "BesselK1e BesselY0 BesselY1 Betainc Igamma Igammac Zeta Polygamma Xlog1py Dawsn Expint "
    "FresnelCos FresnelSin Spence LeftShift RightShift PopulationCount NextAfter:nextafter Conj "
    "Real Imag Angle ComplexAbs:absolute Complex ReluGrad Relu6Grad EluGrad SeluGrad SigmoidGrad "
    "TanhGrad SoftplusGrad SoftsignGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad"
)

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

REDUCES = s.word_list("Mean Sum Max Min Prod All Any EuclideanNorm:euclidean_norm")
# What moves its first operand, by sizes and indices that its others hold: it is asked where.
MOVES = (
    "StridedSlice Slice Tile MirrorPad ReverseV2 Reverse GatherNd ResizeNearestNeighbor Roll "
    "ExtractImagePatches ExtractVolumePatches DepthToSpace SpaceToDepth SpaceToBatchND "
    "BatchToSpaceND SpaceToBatch BatchToSpace ReverseSequence MatrixBandPart MatrixDiag "
    "MatrixDiagV2 MatrixDiagV3 MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 Diag DiagPart"
)

MATRICES = (
    "MatrixInverse MatrixDeterminant Cholesky Qr Svd SelfAdjointEigV2 Eig Lu MatrixSquareRoot "
    "LogMatrixDeterminant MatrixLogarithm"
)
SEGMENTS = (
    "SegmentSum SegmentMax SegmentMin SegmentProd SegmentMean "
    "UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd"
)

# What reads all of its operands, in a manner that isn't known.
EVERYTHING = (
    "Where Unique UniqueV2 ListDiff InvertPermutation Bincount DenseBincount LinSpace "
    "HistogramFixedWidth NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5 "
    "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"
)


@TABLE.row("Cast")
def _tf_cast(c: Call) -> s.Meaning:
    before, after = c.dtype(), c.dtypes[0]
    if c["Truncate"] and before != after:
        return o.function("cast", to=after, truncates=True)
    means = o.cast(before, after)
    if isinstance(means, s.Each) and before in WIDE and after in NARROW:
        return replace(means, approximate=True)
    return means


def _tf_function(c: Call, name: str) -> s.Meaning:
    """What an operation applies behind. KeyError: there is none of this name."""
    if name == "LeakyRelu":
        return o.leaky_relu(c.get("leakyrelu_alpha", 0.2))
    if name == "Elu":
        return o.elu()
    if name in ("GeluExact", "GeluApproximate"):
        return o.gelu(name == "GeluApproximate")
    return o.approximate(APPROXIMATE[name]) if name in APPROXIMATE else o.function(FUNCTIONS[name])


def _channels_last(c: Call) -> bool:
    return c.get("data_format", "NHWC") in ("NHWC", "NDHWC")


@TABLE.row("BiasAdd BiasAddV1")
def _bias_add(c: Call) -> s.Each:
    return o.function("add", along=None if _channels_last(c) else 1)


def _epilogue(c: Call, first: s.Meaning) -> s.Meaning:
    """What Grappler's remapper made of several operations, in their order."""
    behind: list[s.Meaning | tuple[s.Meaning, int]] = []
    names, slot = list(map(str, c.get("fused_ops") or ())), 2
    for name in names:
        if name in ("BiasAdd", "Add"):
            behind.append((_bias_add(c) if name == "BiasAdd" else o.function("add"), slot))
            slot += 1
        else:
            behind.append(_tf_function(c, name))
    if isinstance(first, s.Contracts) and len(names) == 1 and slot == 3:
        return replace(first, bias=c.at(2))
    return s.then(c, first, *behind)


@TABLE.row("_UnaryOpsComposition")
def _composition(c: Call) -> s.Meaning:
    """Functions that Grappler has put in one kernel."""
    first, *behind = (_tf_function(c, str(name)) for name in c["op_names"])
    return s.then(c, first, *behind)


@TABLE.row("FusedBatchNormV3 FusedBatchNormV2 FusedBatchNorm _FusedBatchNormEx")
def _tf_bn(c: Call) -> s.Meaning:
    """Also with an addition and an activation behind it, ``_FusedBatchNormEx``."""
    along, mode = None if _channels_last(c) else 1, str(c.get("activation_mode", "Identity"))
    if c["is_training"]:
        if mode != "Identity" or c.get("exponential_avg_factor", 1.0) != 1:
            return s.Unknown("it mixes means of the batch with others, as in training")
        channels = along or c.rank() - 1
        norm = o.batch_norm_in_training(c.rank(), c["epsilon"], along=channels)
        return s.reads_of(c, norm, 0, 1, 2)
    first = o.batch_norm(c["epsilon"], along=along, reads=c.places(0, 1, 2, 3, 4))
    added = [(o.function("add"), 5)] if c.get("num_side_inputs") else []
    return s.then(c, first, *added, *([] if mode == "Identity" else [_tf_function(c, mode)]))


def _tf_matmul(c: Call, left: str, right: str) -> s.Meaning:
    turned = bool(c[left]), bool(c[right])
    if any(turned) and left == "adj_x" and c.dtype().startswith("complex"):
        return s.Unknown("it conjugates a matrix")
    return _epilogue(c, o.matmul(turned=turned))


def _spatial_ends(c: Call, every: Sequence[Any]) -> tuple[Any, ...]:
    """What has one entry an axis, of the spatial axes alone."""
    return tuple(every[1:-1] if _channels_last(c) else every[2:])


def _tf_padding(
    c: Call, ins: Sequence[int], outs: Sequence[int], *window: Sequence[int]
) -> o.Padding:
    kernel, stride, dilation = window
    if c["padding"] == "EXPLICIT":
        flat = c["explicit_paddings"]
        return _spatial_ends(c, list(zip(flat[::2], flat[1::2], strict=True)))
    if c["padding"] == "VALID":
        return ((0, 0),) * len(kernel)
    return o.same_padding(_spatial_ends(c, ins), _spatial_ends(c, outs), kernel, stride, dilation)


@TABLE.row("Conv2D Conv3D DepthwiseConv2dNative")
@TABLE.row("_FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative")
def _tf_conv(c: Call) -> s.Meaning:
    *kernel, inner, filters = c.shape(1)
    window = tuple(kernel), _spatial_ends(c, c["strides"]), _spatial_ends(c, c["dilations"])
    padding, rank = _tf_padding(c, c.shape(), c.gives[0], *window), len(kernel)
    channels, weights = c.shape()[-1 if _channels_last(c) else 1], tuple(range(rank + 2))
    if "Depthwise" in c.op:
        # (height, width, channels, filters a channel): with one of these it is the order of others
        inner, weights = 1, (*range(rank), rank + 1, rank) if filters == 1 else ()
    frame = o.Frame(*window, padding)
    return _epilogue(c, o.convolution(frame, weights, channels // inner, _channels_last(c)))


@TABLE.row("Conv2DBackpropInput Conv3DBackpropInputV2")
def _tf_back(c: Call) -> s.Meaning:
    *kernel, inner, _ = c.shape(1)
    window = tuple(kernel), _spatial_ends(c, c["strides"]), _spatial_ends(c, c["dilations"])
    padding = _tf_padding(c, c.gives[0], c.shape(2), *window)  # of the convolution it turns round
    groups, rank = c.gives[0][-1 if _channels_last(c) else 1] // inner, len(kernel)
    weights, reads = (*range(rank), rank + 1, rank), c.places(2, 1)
    return o.convolution(o.Frame(*window, padding, True), weights, groups, _channels_last(c), reads)


@TABLE.row(s.word_list("MaxPool:max MaxPool3D:max AvgPool:average AvgPool3D:average"))
def _tf_pool(c: Call, kind: str) -> s.Meaning:
    kernel, stride = _spatial_ends(c, c["ksize"]), _spatial_ends(c, c["strides"])
    if sum(c["ksize"]) > sum(kernel) + 2:
        return s.Unknown("it pools over channels or the batch")
    window = kernel, stride, (1,) * len(kernel)
    frame = o.Frame(*window, _tf_padding(c, c.shape(), c.gives[0], *window))
    return o.pool(kind, frame, _channels_last(c))


@TABLE.row("MaxPoolV2")
def _pool_by_operands(c: Call) -> s.Meaning:
    """What other pools have as attributes is given as operands."""
    window = {"ksize": c.integers(1), "strides": c.integers(2)}
    return s.reads_of(c, _tf_pool(replace(c, attributes={**c.attributes, **window}), "max"), 0)


@TABLE.row("MaxPoolWithArgmax")
def _pool_and_places(c: Call) -> s.Meaning:
    """The largest of each window, and the number of its element in the picture or the batch."""
    rows_apart = () if c["include_batch_in_index"] else (0,)
    places = o.own_rows("max_pool_places", rows_apart, c.numbers("ksize", "strides", "padding"))
    build = s.StepBuilder(1)
    build.add(_tf_pool(c, "max"), (0,), c.gives[0])
    build.add(places, (0,), c.gives[1])
    return build.done(1, 2)


@TABLE.row(REDUCES)
def _tf_reduce(c: Call, word: str) -> s.Meaning:
    axes = sorted({axis % max(c.rank(), 1) for axis in c.integers(1)})
    return o.reduced(word, axes, bool(c["keep_dims"])) if axes else s.Same()


@TABLE.row(s.word_list("Cumsum Cumprod CumulativeLogsumexp:cumlogsumexp"))
def _tf_scan(c: Call, word: str) -> s.Meaning:
    axis, reverse = c.integers(1)[0] % c.rank(), bool(c["reverse"])
    scan = o.cumulated(word, axis, reverse)
    if not c["exclusive"]:
        return scan
    start = {"cumsum": 0.0, "cumprod": 1.0}[word]
    shift = [(0, 0)] * c.rank()
    shift[axis] = (-1, 1) if reverse else (1, -1)
    return s.then(c, scan, o.pad(shift, start, c.dtype()))


@TABLE.row("GatherV2 Gather ResourceGather")
def _gathered(c: Call) -> s.Meaning:
    if int(c.get("batch_dims") or 0) % max(c.rank(1), 1):
        return asked_move(c)
    axis = c.integers(2)[0] if c.has(2) else 0
    return s.reads_of(c, o.take(axis % c.rank(), c.value(1)), 0)


def _updated(c: Call, adds: bool) -> s.Meaning:
    places = moving.points(c.value(1), c.shape())
    return moving.put_at(c, places, updates=2, into=0, adds=adds)


@TABLE.row("Select")
def _tf_select(c: Call) -> s.Meaning:
    """By a condition of one axis ``Select`` takes rows: that isn't broadcast as NumPy does it."""
    if c.shape() in ((), c.gives[0]):
        return o.where()
    build = s.StepBuilder(c.count)
    wide = build.add(s.Broadcasts((0,)), (c.at(0),), c.gives[0])
    build.add(o.where(), (wide, c.at(1), c.at(2)), c.gives[0])
    return build.done()


def _own_matrix(c: Call, last: int, *names: str, more: tuple[Any, ...] = ()) -> s.Whole:
    """Every output reads all of the ``last`` axes of its own place on the others: its matrix."""
    numbers = (*(c.numbers(*names) if names else ()), *more)
    return o.own_rows(c.op.lower(), range(c.rank() - last), numbers)


@TABLE.row("FFT FFT2D FFT3D IFFT IFFT2D IFFT3D RFFT RFFT2D RFFT3D IRFFT IRFFT2D IRFFT3D")
def _spectrum(c: Call) -> s.Meaning:
    """A transform between real and complex numbers may have a length that its input has not: the
    operation itself cuts the input off or pads it with zeros."""
    axes = range(-(int(c.op[-2]) if c.op.endswith("D") else 1), 0)
    sizes = c.integers(1) if c.has(1) else [c.shape()[axis] for axis in axes]
    inverse, real = c.op.startswith("I"), "RFFT" in c.op
    own = c.gives[0] if inverse else c.shape()
    halves = [size // 2 + 1 if axis == -1 else size for axis, size in zip(axes, sizes, strict=True)]
    expected = halves if inverse and real else sizes
    if real and ([c.shape()[axis] for axis in axes] != expected or own[-1] != sizes[-1]):
        return _own_matrix(c, len(axes), more=tuple(sizes))
    kind = f"{'inverse ' * inverse}{'real' * real}".strip() or "complex"
    return s.reads_of(c, o.fourier(kind, c.rank(), axes, sizes[-1], 2 * inverse), 0)


@TABLE.row(SEGMENTS)
def _segments(c: Call) -> s.Meaning:
    """Sums and the like over the axes of the second operand, which names the parts."""
    ids = c.rank(1)
    return s.Whole(tuple((a, a - ids + 1) for a in range(ids, c.rank())), c.op.lower())


@TABLE.row("MatrixSolve")
def _tf_solve(c: Call) -> s.Meaning:
    said = ("adjoint",) * bool(c["adjoint"])
    return o.solved("linalg_solve", c, {0: 2, 1: 2}, c.gives[0][:-2], said)


@TABLE.row("MatrixTriangularSolve")
def _tf_triangular(c: Call) -> s.Meaning:
    adjoint = bool(c["adjoint"])
    conjugate = adjoint and c.dtype().startswith("complex")
    return o.triangular_solve(c, (0, 1), (True, c["lower"], adjoint, False, conjugate))


@TABLE.row("SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits")
def _losses(c: Call) -> s.Meaning:
    if c.shape(0)[0] != c.shape(1)[0]:
        return s.Unknown("its labels are broadcast")
    return o.own_rows(c.op.lower(), (0,), (), (1,))


@TABLE.row("ScaleAndTranslate")
def _resized_by_scale(c: Call) -> s.Meaning:
    """A resize by floating-point factors: what a place reads of a plane is not followed."""
    numbers = (*c.numbers("kernel_type", "antialias"), tuple(c.integers(1)))
    return s.reads_of(c, o.own_rows("scale_and_translate", (0, 3), numbers), 0, 2, 3)


@TABLE.row("CropAndResize")
def _boxes(c: Call) -> s.Meaning:
    """Each box reads whole pictures, its corners, and which picture is its own."""
    numbers = (*c.numbers("method", "extrapolation_value"), c.gives[0][1:])
    return s.reads_of(c, o.own_rows("crop_and_resize", (0,), numbers, (2,)), 1, 0, 2)


@TABLE.row(EVERYTHING)
def _everything(c: Call) -> s.Meaning:
    axis = tuple(c.integers(1)) if c.op == "UniqueV2" else ()
    return s.Whole((), c.op.lower(), (*c.numbers(), *axis))


def _tf_numbers(word: str, *names: str) -> s.Row:
    return lambda c: s.Each(word, "", c.numbers(*names))


WINDOW = ("strides", "padding", "explicit_paddings", "dilations", "data_format")
FAKE = ("num_bits", "narrow_range")
CORNERS = ("align_corners", "half_pixel_centers")

TABLE |= {
    **s.worded(FUNCTIONS, lambda c, word: o.arithmetic(word, c.dtype())),
    **s.worded(APPROXIMATE, lambda c, word: o.approximate(word)),
    **s.rows_for(MOVES, asked_move),
    **s.rows_for("MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3", lambda c: asked_move(c, 0, 1)),
    "PadV2": lambda c: asked_move(c, 0, 2),
    "TensorStridedSliceUpdate": lambda c: asked_move(c, 0, 4),
    **s.rows_for(
        "DynamicStitch ParallelDynamicStitch",
        lambda c: asked_move(c, *range(len(c.reads) // 2, len(c.reads))),
    ),
    "Elu": lambda c: o.elu(),
    "LeakyRelu": lambda c: o.leaky_relu(c["alpha"]),
    "LeakyReluGrad": _tf_numbers("leaky_relu_grad", "alpha"),
    "AddN": lambda c: o.several("add", c.count),
    "BiasAddGrad": lambda c: o.reduced(
        "sum", [a for a in range(c.rank()) if a != (c.rank() - 1 if _channels_last(c) else 1)]
    ),
    **s.rows_for(
        "PreventGradient CheckNumerics CheckNumericsV2 EnsureShape GuaranteeConst",
        lambda c: s.Same(),
    ),
    "Bucketize": lambda c: o.bucketized(c, c["boundaries"]),
    "ApproximateEqual": _tf_numbers("approximate_equal", "tolerance"),
    "FakeQuantWithMinMaxArgs": lambda c: o.fake_quantised(
        c["min"], c["max"], c["num_bits"], c["narrow_range"]
    ),
    **s.rows_for(
        "FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel",
        _tf_numbers("fake_quant_vars", *FAKE),
    ),
    "SelectV2": lambda c: o.where(),
    # products and windows
    **s.rows_for(
        "MatMul SparseMatMul _FusedMatMul", lambda c: _tf_matmul(c, "transpose_a", "transpose_b")
    ),
    **s.rows_for(
        "BatchMatMul BatchMatMulV2 BatchMatMulV3", lambda c: _tf_matmul(c, "adj_x", "adj_y")
    ),
    "Einsum": lambda c: o.einsum(c["equation"]),
    # of a filter all of its input channel; of what a window reads all of its row of the batch
    **s.rows_for(
        "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter",
        lambda c: s.Whole(((c.rank() - 1, c.rank() - 2),), c.op.lower(), c.numbers(*WINDOW)),
    ),
    **s.rows_for(
        "MaxPoolGrad MaxPool3DGrad",
        lambda c: o.own_rows(c.op.lower(), (0,), c.numbers("ksize", *WINDOW), (1, 2)),
    ),
    **s.rows_for(
        "AvgPoolGrad AvgPool3DGrad",
        lambda c: o.own_rows(c.op.lower(), (0,), (*c.numbers("ksize", *WINDOW), c.gives[0])),
    ),
    "DepthwiseConv2dNativeBackpropInput": lambda c: s.reads_of(
        c, o.own_rows(c.op.lower(), (0,), c.numbers(*WINDOW)), 2, 1
    ),
    "Dilation2D": lambda c: o.own_rows(
        "dilation2d", (0, 3), (*c.numbers("strides", "rates", "padding"), c.gives[0][1:3])
    ),
    # groups of elements
    "Softmax": lambda c: o.softmax((-1,)),
    "LogSoftmax": lambda c: o.log_softmax((-1,)),
    "Bitcast": lambda c: o.bitcast(c.dtype(), c.dtypes[0], c.gives[0] == c.shape()),
    "LRN": lambda c: o.lrn(3, 2 * c["depth_radius"] + 1, c["alpha"], c["beta"], c["bias"]),
    **s.worded(
        s.word_list("ArgMax ArgMin"),
        lambda c, word: o.reduced(word, c.integers(1)[:1], places=True),
    ),
    "L2Loss": lambda c: o.reduced("l2_loss", range(c.rank())),
    "TopKV2": lambda c: s.reads_of(
        c, o.top_k(c.rank(), c.integers(1)[0], ordered=bool(c["sorted"])), 0
    ),
    **s.rows_for("HSVToRGB RGBToHSV Cross", lambda c: _own_matrix(c, 1)),
    **s.rows_for(
        MATRICES, lambda c: o.matrices(c.op.lower(), c.rank(), *filter(c.get, ("adjoint", "lower")))
    ),
    **s.rows_for(
        "ResizeArea ResizeBilinear ResizeBicubic ResizeBilinearGrad",
        lambda c: asked_resize(
            c, (1, 2), (c.op, *c.numbers(*CORNERS), c.shape()[1:3], c.gives[0][1:3])
        ),
    ),
    # movement that sizes of 1 leave open, or that indices name
    **s.rows_for("Reshape ExpandDims", lambda c: o.reshape()),
    "Squeeze": lambda c: o.squeeze(c.shape(), c["squeeze_dims"] or None),
    "Transpose": lambda c: o.transpose(c.integers(1)),
    "ConjugateTranspose": lambda c: s.then(c, o.transpose(c.integers(1)), o.function("conj")),
    "Concat": lambda c: o.concat(c.integers(0)[0]),
    "ConcatV2": lambda c: o.concat(c.integers(len(c.reads) - 1)[0]),
    "Pack": lambda c: o.stack(c["axis"]),
    "Unpack": lambda c: o.unstack(c["axis"], len(c.gives)),
    "Split": lambda c: o.split(c.integers(0)[0], c.gives),
    "SplitV": lambda c: o.split(c.integers(2)[0], c.gives),
    "Pad": lambda c: o.pad(c.value(1)),
    "BroadcastTo": lambda c: o.expand(c.shape(), c.gives[0]),
    "Fill": lambda c: o.expand((), c.gives[0]),
    "OneHot": lambda c: moving.one_hot(c, c.value(0), c["axis"], on=2, off=3),
    "ScatterNd": lambda c: moving.put_at(
        c, moving.points(c.value(0), c.gives[0]), updates=1, adds=True
    ),
    "TensorScatterUpdate": lambda c: _updated(c, False),
    **s.rows_for("TensorScatterAdd ScatterNdNonAliasingAdd", lambda c: _updated(c, True)),
}


def meaning(c: Call) -> s.Meaning:
    return s.by_table(TABLE, c)
