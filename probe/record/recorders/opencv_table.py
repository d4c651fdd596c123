"""What the layers of OpenCV's nets compute, (batch, channels, *spatial): one line a type.

The types are OpenCV's own, whatever file a net came from; the names of parameters are those of its
dump.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe.order import semantics as s
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call

# What each type of layer computes. A parameter ``blobs`` counts a layer's own weights.
TABLE = s.OperationTable()

# Functions of one input without numbers.
FUNCTIONS = s.word_list(
    "TanH Floor Ceil Round Sqrt Erf Sin Sinh Asin Tan Asinh Atan Atanh Sign Mish Swish HardSwish "
    "Softsign Gelu Sigmoid BNLL Softplus Not Acos Acosh Cos Cosh Reciprocal AbsVal:absolute "
    "GeluApproximation:gelu_tanh Power Exp Log ELU Celu Selu HardSigmoid:hard_sigmoid "
    "ThresholdedRelu:thresholded_relu"
)

# Operations of NaryEltwise, whose inputs broadcast as NumPy's do. It knows and, or, xor and
# bitshift by name and computes none of them: OpenCV 4.14 asserts that in its ``typeDispatch``.
NARY = {
    **s.word_list("add mul sub div pow fmod equal greater greater_equal less less_equal"),
    **s.word_list("sum:add prod:multiply max:maximum min:minimum mean:average mod:floor_mod"),
    **s.word_list("where lessorequal:less_equal greaterorequal:greater_equal"),
}

ELTWISE = {
    **s.word_list("SUM:add PROD:multiply MAX:maximum MIN:minimum DIV:divide"),
    **s.word_list("0:multiply 1:add"),
}

# What moves, copies or chooses elements.
MOVES = "Gather GatherElements Tile Expand ShuffleChannel Concat Slice Padding Arg TopK"

POOLS = {"MAX": "max", "AVE": "average", "0": "max", "1": "average"}


def _ints(c: Call, name: str) -> list[int]:
    value = c.get(name, [])
    return [int(n) for n in (value if isinstance(value, list) else [value])]


def _dnn_axis(c: Call, otherwise: int = 1) -> int:
    return int(c.get("axis", otherwise)) % max(c.rank(), 1)


def _dnn_axes(c: Call) -> str:
    return "dhw"[5 - c.rank() :]


# Kernel, stride and dilation, a number a spatial axis.
Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _dnn_window(c: Call, kernel: Sequence[int] | None = None) -> Window:
    """Returns kernel, stride and dilation, a number a spatial axis: one list, or a name an axis."""
    axes = _dnn_axes(c)

    def wide(name: str, full: str) -> tuple[int, ...]:
        numbers = _ints(c, full) or [int(c.get(f"{name}_{axis}", 1)) for axis in axes]
        return tuple(numbers * len(axes) if len(numbers) == 1 else numbers)

    sizes = tuple(kernel) if kernel else wide("kernel", "kernel_size")
    return sizes, wide("stride", "stride"), wide("dilation", "dilation")


def _dnn_padding(c: Call, window: Window, transposed: bool = False) -> o.Padding:
    """Returns the padding as it is written, or as ``pad_mode`` settles it."""
    rank, mode, pads = len(window[0]), str(c.get("pad_mode", "")), _ints(c, "pad")
    if mode == "VALID":
        return ((0, 0),) * rank
    if mode == "SAME":
        sizes = c.shape()[2:], c.gives[0][2:]
        ins, outs = sizes[::-1] if transposed else sizes
        return o.same_padding(ins, outs, *window)
    if len(pads) == 2 * rank:
        return tuple(zip(pads[:rank], pads[rank:], strict=True))
    if pads:
        return tuple((n, n) for n in (pads * rank if len(pads) == 1 else pads))
    sides = ("tb", "lr") if rank == 2 and c.get("pad_t") else [axis * 2 for axis in _dnn_axes(c)]
    both = [[int(c.get(f"pad_{side}", 0)) for side in pair] for pair in sides]
    return tuple((before, behind) for before, behind in both)


@TABLE.row("Convolution Deconvolution")
def _dnn_conv(c: Call) -> s.Meaning:
    transposed, axes = c.op == "Deconvolution", tuple(range(2, c.rank()))
    window = _dnn_window(c, c.shape(1)[2:])
    if len(window[0]) != c.rank() - 2 or c.get("fusedActivation"):
        return s.Unknown("a convolution whose weights have other axes than its input")
    frame = s.Frame(*window, _dnn_padding(c, window, transposed), transposed)
    weights = (*axes, 0, 1) if transposed else (*axes, 1, 0)
    return o.convolution(frame, weights, int(c.get("group", 1)), reads=range(min(c.count, 3)))


@TABLE.row("Pooling")
def _dnn_pool(c: Call) -> s.Meaning:
    word = str(c.get("pool", "MAX")).upper()
    kind, axes = POOLS.get(word), range(2, c.rank())
    if kind is None or not axes or len(c.gives) > 1:
        return s.Unknown(f"pooling {word}, or with indices")
    if c.get("global_pooling"):
        return o.reduced("mean" if kind == "average" else "max", axes)
    window = _dnn_window(c)
    counts = kind == "average" and c.get("ave_pool_padded_area", True)
    # OpenCV's pools have no dilation
    frame = s.Frame(*window[:2], (1,) * len(window[0]), _dnn_padding(c, window))
    return o.pool(kind, frame, counts_padding=counts)


@TABLE.row("InnerProduct")
def _inner_product(c: Call) -> s.Meaning:
    """Everything from an axis on, times weights (filters, inputs)."""
    axis = _dnn_axis(c)
    if c["blobs"] == 0 or c.get("transA"):
        return _dnn_matmul(c)
    if c.get("transpose"):
        return s.Unknown("InnerProduct with transpose")
    if axis != c.rank() - 1:
        return s.Unknown("the product of all")
    ahead = "abcdef"[:axis]
    return s.Contracts(f"{ahead}k,nk->{ahead}n", bias=2 if c.count > 2 else None)


@TABLE.row("MatMul Gemm")
def _dnn_matmul(c: Call) -> s.Meaning:
    """MatMul and Gemm: two values, or a value and weights; perhaps a bias behind."""
    if c.op == "Gemm" and c.get("flatten_a") and c.rank() != 2:
        return s.Unknown("its first input is flattened")
    first, second = (bool(c.get(f"trans{x}") or c.get(f"trans_{x.lower()}")) for x in "AB")
    product = o.matmul((c.rank(0), c.rank(1)), (first, second), (c.at(0), c.at(1)))
    return o.gemm(c, product, 2, float(c.get("alpha", 1.0)), float(c.get("beta", 1.0)))


@TABLE.row("NaryEltwise")
def _nary(c: Call) -> s.Meaning:
    word = NARY[str(c["operation"]).lower()]
    return s.Moves() if word == "where" else o.several(word, c.count)


@TABLE.row("Eltwise")
def _eltwise(c: Call) -> s.Meaning:
    kind, values = str(c.get("operation", "SUM")).upper(), c.count - c["blobs"]
    coefficients = tuple(np.ravel(c.get("coeff", [])).tolist())
    if len({c.shape(n) for n in range(values)}) > 1:
        return s.Unknown("Eltwise of several sizes")
    if coefficients and set(coefficients) != {1}:
        return s.Each("weighted sum", numbers=coefficients)
    if kind not in ELTWISE:
        return s.Unknown(f"Eltwise {kind}")
    return o.several(ELTWISE[kind], max(values, 2))


TABLE |= {
    **s.worded(FUNCTIONS, lambda c, word: o.function(word)),
    "BatchNorm": lambda c: o.batch_norm(c.rank(), False),
    "ReLU": lambda c: o.function("leaky_relu" if c.get("negative_slope") else "relu"),
    "ReLU6": lambda c: o.clip(float(c.get("min_value", 0.0)), float(c.get("max_value", 6.0))),
    **s.rows_for("PReLU ChannelsPReLU", lambda c: s.Each("prelu", along=1)),
    "LayerNormalization": lambda c: o.normalised("layer_norm", range(_dnn_axis(c, -1), c.rank())),
    "InstanceNormalization": lambda c: o.normalised("instance_norm", range(2, c.rank())),
    "GroupNormalization": lambda c: o.normalised("group_norm", range(1, c.rank())),
    "Reduce": lambda c: o.reduced(
        {"ave": "mean"}.get(word := str(c.get("reduce", "")).lower(), word),
        _ints(c, "axes") or range(c.rank()),
    ),
    **s.rows_for("Softmax SoftMax", lambda c: o.normalised("softmax", (_dnn_axis(c),))),
    "Einsum": lambda c: o.einsum(str(c["equation"]).lower()),
    **s.rows_for("Reshape Flatten", lambda c: s.Reshapes()),
    **s.rows_for(
        "Identity Dropout Split",
        lambda c: s.Same() if len(c.gives) == 1 else s.Passes((0,) * len(c.gives)),
    ),
    "Permute": lambda c: o.transpose(_ints(c, "order")),
    **s.rows_for(MOVES, lambda c: s.Moves()),
}
