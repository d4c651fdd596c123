"""What TensorFlow's operations compute, in the words of :mod:`probe.semantics`.

One row an operation, found by its type (those that move elements in
:mod:`probe.recorders.tensorflow_moves`); the letters and defaults of its attributes are those of
TensorFlow's op registry. Operations without a row are ``Unknown``. Nothing here needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from probe import geometry
from probe.recorders.tensorflow_lines import STRUCTURE, Call, axes_of
from probe.recorders.tensorflow_moves import MOVES
from probe.recorders.tensorflow_places import PLACES
from probe.semantics import (
    Contracts,
    Each,
    Meaning,
    Same,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
    Windows,
    operations,
)

FUNCTIONS = {
    **{
        one: one.lower()
        for one in """Relu Relu6 Selu Tanh Sqrt Neg Abs Square Erf Softsign Sin Tan Atan Sinh Asinh
 Atanh Sign Expm1 Log1p Round Rint Floor Ceil Asin Sigmoid Exp Log Cos Rsqrt Reciprocal Inv Softplus
 Erfc Cosh Acos Lgamma Digamma Invert Acosh Erfinv Ndtri Sub Pow Maximum Minimum Atan2 Equal Less
 Greater Xdivy Xlogy Mul""".split()
    },
    **{
        one: "".join(f"_{c.lower()}" if c.isupper() else c for c in one)[1:]
        for one in """IsNan IsInf IsFinite LogicalNot SquaredDifference FloorMod FloorDiv
 TruncateDiv NotEqual LessEqual GreaterEqual LogicalAnd LogicalOr BitwiseAnd BitwiseOr
 TruncateMod DivNoNan MulNoNan RealDiv""".split()
    },
    **dict.fromkeys(("Add", "AddV2"), "add"),
    "Div": "divide",
    "Mod": "truncate_mod",
    "ClipByValue": "clip",
}
"""Functions of the elements at one place without further arguments, by type."""

APPROXIMATE = ("Reciprocal", "Inv", "Sqrt")
"""Eigen refines the processor's estimate (``rcpps``, ``vrcp14ps``, ``vrsqrt14ps``) by Newton steps:
up to 2 ulp off, and other bits on another processor. Roots only where it is built for AVX-512;
quotients are the processor's own everywhere, and so correctly rounded."""

NARROW = ("float16", "bfloat16")
WIDE = ("float64", "int32", "uint32", "int64", "uint64")
"""Eigen converts to narrow formats by way of float32, and so rounds these twice."""

TRAINED = "it is computed from the whole batch, as in training"


def meaning(call: Call) -> Meaning:
    """Returns what a call computes, of the inputs that ``STRUCTURE`` doesn't name, in order."""
    op = call.op
    if op in APPROXIMATE:
        return operations.approximate(FUNCTIONS[op])
    if op in FUNCTIONS:
        return operations.function(FUNCTIONS[op])
    try:
        made = ROWS[op](call) if op in ROWS else None
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{op} has arguments that are not described in probe")
    return made or Unknown(f"TensorFlow's {op} with these arguments is not described in probe")


def _cast(call: Call) -> Meaning:
    before, after = str(call.get("SrcT", "")), str(call.get("DstT", ""))
    made = operations.cast(before, after)
    if isinstance(made, Each) and before in WIDE and after in NARROW:
        return replace(made, approximate=True)
    return made


def _reduced(word: str) -> Callable[[Call], Meaning]:
    def row(call: Call) -> Meaning:
        axes = axes_of(call)
        return (
            operations.reduced(word, axes, bool(call.get("keep_dims", False))) if axes else Same()
        )

    return row


def _picked(call: Call) -> Meaning:
    """Returns the index of the largest depends on the elements' places."""
    axis = int(call.arguments[1]) % len(call.inputs[0])
    return operations.reduced(call.op.lower(), (axis,), places=True)


def _last_whole(call: Call) -> Meaning:
    rest = range(len(call.inputs[0]) - 1)
    return Whole(tuple((a, a) for a in rest), call.op.lower(), (call.get("sorted", True),))


def _product(call: Call) -> Meaning:
    words = (("transpose_a", "transpose_b"), ("adj_x", "adj_y"))["Batch" in call.op]
    one = "km" if call.get(words[0], False) else "mk"
    two = "nk" if call.get(words[1], False) else "kn"
    dots = "..." if "Batch" in call.op else ""
    plain = Contracts(f"{dots}{one},{dots}{two}->{dots}mn")
    return _fused(call, plain) if call.op.startswith("_") else plain


def _einsum(call: Call) -> Meaning | None:
    equation = str(call.get("equation", "")).replace(" ", "")
    ins, _, out = equation.partition("->")
    if "," in ins:
        repeated = any(
            len(set(t.replace(".", ""))) < len(t.replace(".", "")) for t in ins.split(",")
        )
        return None if repeated or ins.count(",") > 1 else Contracts(equation)
    if "." in ins or sorted(ins) != sorted(out) or len(set(ins)) < len(ins):
        return None
    return Turns(tuple(ins.index(letter) for letter in out))


def _layout(call: Call, rank: int) -> tuple[tuple[int, ...], int]:
    """Returns the spatial axes of an operation, and the channels'."""
    last = str(call.get("data_format", "NHWC")).endswith("C")
    return (tuple(range(1, rank + 1)), rank + 1) if last else (tuple(range(2, rank + 2)), 1)


Options = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Kernel, stride and dilation, a number a spatial axis."""


def _padding(
    call: Call, spatial: tuple[int, ...], sizes: Sequence[int], options: Options
) -> tuple[tuple[int, int], ...]:
    """Returns the padding (before, after) of every spatial axis, in numbers."""
    name = str(call.get("padding", "VALID"))
    if name == "EXPLICIT":
        flat = call.get("explicit_paddings", [])
        return tuple((int(flat[2 * a]), int(flat[2 * a + 1])) for a in spatial)
    kernel, stride, dilation = options
    windows = geometry.Windows(kernel, stride, dilation, name.lower())
    return windows.pads(tuple(sizes))


def _convolution(call: Call) -> Meaning:
    rank = len(call.inputs[0]) - 2
    depthwise = "Depthwise" in call.op
    spatial, channels = _layout(call, rank)
    kernel = call.inputs[1][:rank]
    stride = tuple(call.get("strides", [1] * (rank + 2))[a] for a in spatial)
    dilation = tuple((call.get("dilations", None) or [1] * (rank + 2))[a] for a in spatial)
    sizes = [call.inputs[0][a] for a in spatial]
    padding = _padding(call, spatial, sizes, (kernel, stride, dilation))
    last = call.inputs[1][-1]
    groups = call.inputs[0][channels] // (1 if depthwise else call.inputs[1][-2])
    weights = (*range(rank), rank + 1, rank) if depthwise else tuple(range(rank + 2))
    plain = Windows(
        *(spatial, channels, kernel, stride, dilation, padding),
        groups=groups,
        weights=() if depthwise and last > 1 else weights,
        word="convolution",
    )
    return _fused(call, plain) if call.op.startswith("_") else plain


def _transposed(call: Call) -> Meaning:
    """Reads the weights, then what is spread; the padding is of the convolution it turns round."""
    rank = len(call.inputs[1]) - 2
    spatial, channels = _layout(call, rank)
    kernel = call.inputs[1][:rank]
    stride = tuple(call.get("strides", [1] * (rank + 2))[a] for a in spatial)
    dilation = tuple((call.get("dilations", None) or [1] * (rank + 2))[a] for a in spatial)
    sizes = [call.outputs[0][a] for a in spatial]
    padding = _padding(call, spatial, sizes, (kernel, stride, dilation))
    return Windows(
        *(spatial, channels, kernel, stride, dilation, padding),
        kind="transposed",
        groups=call.outputs[0][channels] // call.inputs[1][-2],
        reads=(1, 0),
        weights=(*range(rank), rank + 1, rank),
        word="transposed_convolution",
    )


def _pool(call: Call) -> Meaning | None:
    rank = len(call.inputs[0]) - 2
    spatial, channels = _layout(call, rank)
    every, strides = call.get("ksize", []), call.get("strides", [])
    if every[0] != 1 or every[channels] != 1:
        return None
    kernel = tuple(int(every[a]) for a in spatial)
    stride = tuple(int(strides[a]) for a in spatial)
    ones = (1,) * rank
    sizes = [call.inputs[0][a] for a in spatial]
    padding = _padding(call, spatial, sizes, (kernel, stride, ones))
    kind = "max" if "Max" in call.op else "average"
    word = "max_pool" if kind == "max" else "average_pool"
    return Windows(
        *(spatial, channels, kernel, stride, ones, padding), kind=kind, reads=(0,), word=word
    )


def _pool_and_places(call: Call) -> Meaning | None:
    """The largest of each window, and the number of its element in the picture or the batch."""
    pool = _pool(call)
    if pool is None:
        return None
    kept = () if call.get("include_batch_in_index", False) else ((0, 0),)
    words = tuple(str(call.get(name, None)) for name in ("ksize", "strides", "padding"))
    places = Step(Whole(kept, "max_pool_places", words), (0,), call.outputs[1])
    return Steps((Step(pool, (0,), call.outputs[0]), places), (1, 2))


def _channels(call: Call) -> int | None:
    """Returns the axis of the channels where it isn't the last."""
    return 1 if str(call.get("data_format", "NHWC")) in ("NCHW", "NCDHW") else None


def _batch_norm(call: Call) -> Meaning | None:
    """Also with an addition and an activation behind it, ``_FusedBatchNormEx``."""
    if call.get("is_training", True):
        return Unknown(TRAINED)
    eps, places = call.get("epsilon", 1e-4), (0, 1, 2, 3, 4)
    first = operations.batch_norm(eps, along=_channels(call), reads=places)
    behind: list[tuple[Meaning, tuple[int, ...]]] = []
    if call.get("num_side_inputs", 0):
        behind.append((operations.function("add"), (5,)))
    if (name := str(call.get("activation_mode", "Identity"))) != "Identity":
        behind.append((_function(name), ()))
    return _steps(call, first, (0, 1, 2, 3, 4), behind)


def _function(name: str, slope: float = 0.2) -> Meaning:
    """Returns a function of one element by TensorFlow's name.
    KeyError: there is none of this name."""
    if name == "LeakyRelu":
        return operations.leaky_relu(slope)
    return operations.elu() if name == "Elu" else operations.function(FUNCTIONS[name])


def _steps(
    call: Call,
    first: Meaning,
    reads: tuple[int, ...],
    behind: list[tuple[Meaning, tuple[int, ...]]],
) -> Meaning:
    """A fused operation: ``first``, and meanings with the numbers of what they read besides."""
    if not behind:
        return first
    shape, last = call.outputs[0], len(call.inputs)
    steps = [Step(first, reads, shape)]
    for n, (meaning, others) in enumerate(behind):
        steps.append(Step(meaning, (last + n, *others), shape))
    return Steps(tuple(steps))


def _fused(call: Call, first: Meaning) -> Meaning:
    """Returns what Grappler's remapper made of several operations, in their order."""
    behind: list[tuple[Meaning, tuple[int, ...]]] = []
    at = 2
    for name in map(str, call.get("fused_ops", [])):
        if name in ("BiasAdd", "Add"):
            along = _channels(call) if name == "BiasAdd" else None
            behind.append((operations.function("add", along=along), (at,)))
            at += 1
        elif name in ("LeakyRelu", "Elu", *FUNCTIONS):
            behind.append((_function(name, call.get("leakyrelu_alpha", 0.2)), ()))
        elif name in ("GeluExact", "GeluApproximate"):
            behind.append((operations.gelu(name == "GeluApproximate"), ()))
        else:
            return Unknown(f"{call.op} with {name} is not described in probe")
    if isinstance(first, Contracts) and len(behind) == 1 and at == 3:
        return Contracts(first.equation, bias=2)
    return _steps(call, first, (0, 1), behind)


def _unary_chain(call: Call) -> Meaning | None:
    """``_UnaryOpsComposition``: functions that Grappler has put in one kernel."""
    names = [str(one) for one in call.get("op_names", [])]
    every = [_function(one) for one in names]
    return _steps(call, every[0], (0,), [(one, ()) for one in every[1:]])


def _bias(call: Call) -> Meaning:
    return operations.function("add", along=_channels(call))


def _added(call: Call) -> Meaning:
    return operations.function("add") if len(call.inputs) == 2 else Each("add_n", zero="adds")


def _always(made: Meaning) -> Callable[[Call], Meaning]:
    return lambda _: made


ROWS: dict[str, Callable[[Call], Meaning | None]] = {
    **dict.fromkeys(("Elu", "LeakyRelu"), lambda call: _function(call.op, call.get("alpha", 0.2))),
    "Cast": _cast,
    "AddN": _added,
    "BiasAdd": _bias,
    **dict.fromkeys(("Identity", "Snapshot", "StopGradient", "PreventGradient"), _always(Same())),
    "Mean": _reduced("mean"),
    "Sum": _reduced("sum"),
    "Max": _reduced("max"),
    "Min": _reduced("min"),
    "Prod": _reduced("prod"),
    "All": _reduced("all"),
    "Any": _reduced("any"),
    "EuclideanNorm": _reduced("euclidean_norm"),
    "ArgMax": _picked,
    "ArgMin": _picked,
    "TopKV2": _last_whole,
    **dict.fromkeys(("Softmax",), _always(operations.softmax((-1,)))),
    "LogSoftmax": _always(operations.log_softmax((-1,))),
    **dict.fromkeys(("MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2"), _product),
    "BatchMatMulV3": _product,
    "Einsum": _einsum,
    **dict.fromkeys(
        ("Conv2D", "_FusedConv2D", "Conv3D", "_FusedConv3D", "DepthwiseConv2dNative"), _convolution
    ),
    "_FusedDepthwiseConv2dNative": _convolution,
    **dict.fromkeys(("Conv2DBackpropInput", "Conv3DBackpropInputV2"), _transposed),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _pool),
    "MaxPoolWithArgmax": _pool_and_places,
    **dict.fromkeys(("FusedBatchNormV3", "FusedBatchNorm", "_FusedBatchNormEx"), _batch_norm),
    **MOVES,
    **PLACES,
    "_UnaryOpsComposition": _unary_chain,
}
"""The other operations, by type."""

__all__ = ["ROWS", "STRUCTURE", "Call", "meaning"]
