"""What the layers of OpenCV's nets compute, (batch, channels, *spatial): a table by type.

The types are OpenCV's own, whatever file a net came from; the names of parameters are those of its
dump. A constant that a layer reads is known, an index of a Gather say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from probe.recorders import opencv_moves as moves
from probe.recorders.node import NotSettled
from probe.recorders.opencv_moves import Call, Row, Shape
from probe.recorders.opencv_net import Layer
from probe.semantics import (
    Contracts,
    Each,
    Meaning,
    Normalises,
    Reshapes,
    Same,
    Scans,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
    Windows,
    operations,
)


def _sizes(call: Call, kernel: Shape | None = None) -> tuple[Shape, Shape, Shape]:
    """Kernel, stride and dilation of a window, one a spatial axis."""
    rank = call.rank - 2

    def wide(name: str, full: str) -> Shape:
        found = [int(n) for n in call.layer.every(full)]
        if not found:
            found = [int(call.layer.given(f"{name}_{axis}", 1)) for axis in "dhw"[3 - rank :]]
        return tuple(found * rank if len(found) == 1 else found)

    return (
        kernel or wide("kernel", "kernel_size"),
        wide("stride", "stride"),
        wide("dilation", "dilation"),
    )


def _pads(
    call: Call, kernel: Shape, stride: Shape, dilation: Shape, transposed: bool = False
) -> Any:
    """(before, after) a spatial axis, as written or as ``pad_mode`` settles it."""
    rank = len(kernel)
    mode = str(call.layer.given("pad_mode", ""))
    if mode == "VALID":
        return ((0, 0),) * rank
    if mode == "SAME":
        found = []
        for k in range(rank):
            ins, outs = call.shape[k + 2], call.gives[0][k + 2]
            ins, outs = (outs, ins) if transposed else (ins, outs)
            total = max(0, (outs - 1) * stride[k] + (kernel[k] - 1) * dilation[k] + 1 - ins)
            found.append((total // 2, total - total // 2))
        return tuple(found)
    pads = [int(n) for n in call.layer.every("pad")]
    if len(pads) == 2 * rank:
        return tuple(zip(pads[:rank], pads[rank:], strict=True))
    if pads:
        return tuple((n, n) for n in (pads * rank if len(pads) == 1 else pads))
    sides = (("t", "l"), ("b", "r"))[:2]
    if rank == 2 and call.layer.every("pad_t"):
        ahead, behind = ([int(call.layer.given(f"pad_{s}", 0)) for s in some] for some in sides)
        return tuple(zip(ahead, behind, strict=True))
    both = [int(call.layer.given(f"pad_{axis}", 0)) for axis in "dhw"[3 - rank :]]
    return tuple((n, n) for n in both)


def _convolution(call: Call) -> Meaning:
    transposed = call.layer.kind == "Deconvolution"
    weights = call.every[1]
    axes = tuple(range(2, call.rank))
    kernel, stride, dilation = _sizes(call, tuple(weights[2:]))
    if len(kernel) != call.rank - 2 or call.has("fusedActivation"):
        return Unknown("a convolution whose weights have other axes than its input")
    return Windows(
        *(axes, 1, kernel, stride, dilation),
        _pads(call, kernel, stride, dilation, transposed),
        kind="transposed" if transposed else "convolution",
        groups=int(call.layer.given("group", 1)),
        reads=tuple(range(min(len(call.every), 3))),
        weights=(*axes, 0, 1) if transposed else (*axes, 1, 0),
        word="transposed" if transposed else "convolution",
    )


def _pooling(call: Call) -> Meaning:
    pool = str(call.layer.given("pool", "MAX")).upper()
    word = {"MAX": "max", "AVE": "average", "0": "max", "1": "average"}.get(pool)
    axes = tuple(range(2, call.rank))
    if word is None or not axes or len(call.gives) > 1:
        return Unknown(f"pooling {pool}, or with indices")
    if call.has("global_pooling"):
        return operations.reduced("mean" if word == "average" else "max", axes, keep=True)
    kernel, stride, dilation = _sizes(call)
    return Windows(
        *(axes, 1, kernel, stride, (1,) * len(kernel)),
        _pads(call, kernel, stride, dilation),
        kind=word,
        reads=(0,),
        counts_padding=word == "average" and bool(call.layer.given("ave_pool_padded_area", True)),
        ceil=bool(call.layer.given("ceil_mode", True)),
        word=f"{word} pool",
    )


def _inner(call: Call) -> Meaning:
    """InnerProduct: everything from an axis on, times weights (filters, inputs)."""
    axis = call.axis()
    if len(call.layer.blobs) == 0 or call.has("transA"):
        return _matmul(call)
    if call.has("transpose"):
        return Unknown("InnerProduct with transpose")
    ahead = "abcdef"[:axis]
    if axis != call.rank - 1:
        return Whole(tuple((k, k) for k in range(axis)), "product of all")
    return Contracts(f"{ahead}k,nk->{ahead}n", bias=2 if len(call.every) > 2 else None)


def _matmul(call: Call) -> Meaning:
    """MatMul and Gemm: two values, or a value and weights; perhaps a bias behind."""
    words = call.layer
    turned = [any(call.has(name) for name in (f"trans{x}", f"trans_{x.lower()}")) for x in "AB"]
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    every = call.every
    biased = len(every) > 2 and beta != 0
    if biased and (alpha, beta) != (1.0, 1.0):
        return Unknown("its product and its bias are scaled")
    if words.kind == "Gemm" and call.has("flatten_a") and call.rank != 2:
        return Unknown("its first input is flattened")
    if len(every) < 2 or min(len(one) for one in every[:2]) < 2:
        return Unknown("a product of vectors")
    first, second = "...km" if turned[0] else "...mk", "...nk" if turned[1] else "...kn"
    numbers = () if alpha == 1.0 else (alpha,)
    return Contracts(f"{first},{second}->...mn", (0, 1), 2 if biased else None, numbers=numbers)


def _eltwise(call: Call) -> Meaning:
    kind = str(call.layer.given("operation", "SUM")).upper()
    words = {"SUM": "add", "PROD": "multiply", "MAX": "maximum", "MIN": "minimum", "DIV": "divide"}
    words |= {"1": "add", "0": "multiply"}
    coefficients = tuple(call.layer.every("coeff"))
    if len({*call.reads}) > 1:
        return Unknown("Eltwise of several sizes")
    if coefficients and set(coefficients) != {1}:
        return Each("weighted sum", numbers=coefficients)
    word = words.get(kind)
    if word is None:
        return Unknown(f"Eltwise {kind}")
    if len(call.reads) > 2:
        return Each(f"{word}_of_{len(call.reads)}")
    return operations.function(word)


NARY = {
    **{
        one: one
        for one in """add mul sub div pow fmod equal greater greater_equal less less_equal and or
 xor""".split()
    },
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "mean": "average",
    "mod": "floor_mod",
    "bitshift": "shift",
}
"""Operations of NaryEltwise, whose inputs broadcast as NumPy's do."""


def _nary(call: Call) -> Meaning:
    if str(call.layer.given("operation", "")).lower() == "where":
        return operations.where()
    word = NARY[str(call.layer.given("operation", "")).lower()]
    if len(call.every) != 2:
        return Same() if len(call.every) == 1 else Each(f"{word}_of_{len(call.every)}")
    return operations.function(word)


def _relu(call: Call) -> Meaning:
    return operations.leaky_relu(float(call.layer.given("negative_slope", 0)))


def _clip(call: Call) -> Meaning:
    return operations.clip(call.number("min_value", 0.0), call.number("max_value", 6.0))


def _batch_norm(call: Call) -> Meaning:
    """OpenCV keeps means and variances first, then a scale and a shift, where it has them.

    Caffe's layer has neither, and a number by which both are divided.
    """
    eps, scale, shift = call.number("eps", 1e-5), call.has("has_weight"), call.has("has_bias")
    if len(call.every) == 3 + scale + shift:
        places = (0, *range(3, len(call.every)), 1, 2)
        return operations.batch_norm(eps, scale, shift, 1, places)
    return Each("batch_norm", "", (eps, "divided"), along=1)


def _scale(call: Call) -> Meaning:
    if not call.layer.blobs:
        return Unknown("Scale by the result of a layer")
    return Each(call.layer.kind.lower(), along=call.axis())


def _softmax(call: Call) -> Meaning:
    made = operations.log_softmax if call.has("log_softmax") else operations.softmax
    return made((call.axis(),))


def _lrn(call: Call) -> Meaning:
    if "WITHIN" in str(call.layer.given("norm_region", "")):
        return Whole(((0, 0), (1, 1)), "lrn")
    names = ("local_size", "alpha", "beta", "k", "bias", "norm_by_size")
    return Normalises((1,), "lrn", tuple(call.layer.given(name) for name in names))


def _layer_norm(call: Call) -> Meaning:
    axes = range(call.axis(otherwise=-1), call.rank)
    return operations.norm(axes, call.number("epsilon", 1e-5), shift=len(call.every) > 2)


def _per_channel(call: Call, axes: Shape, groups: tuple[int, int] | None, word: str) -> Meaning:
    eps, lines = call.number("epsilon", 1e-5), range(1, len(call.every))
    norm = operations.norm(axes, eps, word=word, along=1, groups=groups)
    if all(len(call.every[n]) == 1 for n in lines):
        return norm
    # OpenCV keeps scales and shifts as columns, (channels, 1)
    steps = [Step(Reshapes(), (n,), (call.every[n][0],)) for n in lines]
    places = (0, *range(len(call.every), len(call.every) + len(steps)))
    return Steps((*steps, Step(norm, places, call.gives[0])))


def _instance_norm(call: Call) -> Meaning:
    return _per_channel(call, tuple(range(2, call.rank)), None, "instance_norm")


def _group_norm(call: Call) -> Meaning:
    groups = int(call.layer.given("num_groups", 1))
    return _per_channel(call, tuple(range(1, call.rank)), (1, groups), "group_norm")


def _mvn(call: Call) -> Meaning:
    kept = ((0, 0),) if call.has("across_channels") else ((0, 0), (1, 1))
    return Whole(kept, "mvn", tuple(sorted(map(str, call.layer.words.items()))))


def _reduce(call: Call) -> Meaning:
    word = str(call.layer.given("reduce", "")).lower()
    axes = tuple(int(n) for n in call.layer.every("axes")) or tuple(range(call.rank))
    return operations.reduced(word, axes, bool(call.layer.given("keepdims", True)))


def _chosen(call: Call) -> Meaning:
    """Arg and TopK: all along one axis."""
    axis = call.axis(otherwise=-1 if call.layer.kind == "TopK" else 0)
    last = call.has("select_last_index")
    if call.layer.kind == "Arg" and not last:
        word = f"arg{str(call.layer.given('op', 'max')).lower()}"
        keep = bool(call.layer.given("keepdims", True))
        return operations.reduced(word, (axis,), keep, places=True)
    kept = [a for a in range(call.rank) if a != axis]
    stays = bool(call.layer.given("keepdims", True)) or call.layer.kind == "TopK"
    words = tuple(sorted(map(str, call.layer.words.items())))
    places = kept if stays else range(len(kept))
    return Whole(tuple(zip(kept, places, strict=True)), call.layer.kind.lower(), words)


def _cumsum(call: Call) -> Meaning:
    if call.has("exclusive"):
        return Unknown("it leaves out its own element")
    scan = Scans(call.axis(otherwise=0), "cumsum", call.has("reverse"))
    return Steps((Step(scan, (0,), call.gives[0]),))


def _einsum(call: Call) -> Meaning:
    equation = str(call.layer.given("equation", "")).replace(" ", "")
    ins = equation.partition("->")[0].split(",")
    if "->" not in equation or len(ins) != 2 or "." in equation:
        return Unknown("its equation is not a product of two")
    if any(len(set(one)) < len(one) for one in ins) or not equation.partition("->")[2]:
        return Unknown("its equation has a diagonal, or gives one number")
    return Contracts(equation.lower(), (0, 1))


def _function(word: str) -> Row:
    return lambda call: operations.function(word)


def _numbered(made: Callable[..., Meaning], *names: str) -> Row:
    """Returns a function of one element whose numbers are given to its constructor, where a layer
    has them."""

    def row(call: Call) -> Meaning:
        given = {name: call.layer.given(name) for name in names}
        return made(**{name: float(value) for name, value in given.items() if value is not None})

    return row


def _power(power: float = 1.0, scale: float = 1.0, shift: float = 0.0) -> Meaning:
    """(scale x + shift) to a power, as Caffe has it; ONNX's Neg is one of these."""
    if (power, scale, shift) == (1.0, -1.0, 0.0):
        return operations.function("negative")
    if (scale, shift) == (1.0, 0.0):
        return operations.power(power)
    return operations.function("power", exponent=power, scale=scale, shift=shift)


def _raised(word: str, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> Meaning:
    """A power of a base, or a logarithm, of scale x + shift; a base of -1 stands for e."""
    if (base, scale, shift) == (-1.0, 1.0, 0.0):
        return operations.function(word)
    return operations.function(word, base=base, scale=scale, shift=shift)


FUNCTIONS = {
    **{
        one: one.lower()
        for one in """TanH Floor Ceil Round Sqrt Erf Sin Sinh Asin Tan Asinh Atan Atanh Sign Mish
 Swish HardSwish Softsign Gelu Sigmoid BNLL Softplus Not Acos Acosh Cos Cosh Reciprocal""".split()
    },
    "AbsVal": "absolute",
    "GeluApproximation": "gelu_tanh",
}
"""Functions of one input without numbers."""

ROWS: dict[str, Row] = {
    **{kind: _function(word) for kind, word in FUNCTIONS.items()},
    **dict.fromkeys(("Convolution", "Deconvolution"), _convolution),
    **dict.fromkeys(("MatMul", "Gemm"), _matmul),
    **dict.fromkeys(("Reshape", "Flatten"), lambda call: _first(call, Reshapes())),
    **dict.fromkeys(("Identity", "Dropout", "Split", "Blank"), moves.copies),
    **dict.fromkeys(("Softmax", "SoftMax"), _softmax),
    **dict.fromkeys(("Resize", "Interp"), moves.plane),
    **dict.fromkeys(("Arg", "TopK"), _chosen),
    **dict.fromkeys(("Scale", "Shift"), _scale),
    **dict.fromkeys(("LSTM", "GRU"), moves.recurrent),
    **dict.fromkeys(("PReLU", "ChannelsPReLU"), lambda _: Each("prelu", along=1)),
    "InnerProduct": _inner,
    "Pooling": _pooling,
    "Eltwise": _eltwise,
    "NaryEltwise": _nary,
    "ReLU": _relu,
    "ReLU6": _clip,
    "Clip": _clip,
    "BatchNorm": _batch_norm,
    "Concat": moves.concat,
    "Slice": moves.sliced,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "MVN": _mvn,
    "Normalize": lambda call: Whole(((0, 0),), "normalize"),
    "Power": _numbered(_power, "power", "scale", "shift"),
    "ELU": _numbered(operations.elu, "alpha"),
    **dict.fromkeys(("CELU", "Celu"), _numbered(operations.celu, "alpha")),
    "Selu": _numbered(operations.selu, "alpha", "gamma"),
    "Exp": _numbered(partial(_raised, "exp"), "base", "scale", "shift"),
    "Log": _numbered(partial(_raised, "log"), "base", "scale", "shift"),
    "HardSigmoid": _numbered(operations.hard_sigmoid, "alpha", "beta"),
    "ThresholdedRelu": _numbered(partial(operations.function, "thresholded_relu"), "alpha"),
    "Permute": lambda call: Turns(tuple(int(n) for n in call.layer.every("order"))),
    "Reduce": _reduce,
    "CumSum": _cumsum,
    "Padding": moves.padding,
    "Gather": moves.gather,
    "GatherElements": moves.gather_elements,
    "Tile": moves.tile,
    "Expand": moves.expand,
    "ShuffleChannel": moves.shuffle,
    "Einsum": _einsum,
    "Attention": lambda call: Whole(((0, 0),), "attention", _words(call)),
}
"""What each type of layer computes."""


def _words(call: Call) -> tuple[str, ...]:
    return tuple(sorted(map(str, call.layer.words.items())))


def _first(call: Call, what: Meaning) -> Meaning:
    """Returns a layer that reads its first input alone."""
    return what if len(call.every) == 1 else Steps((Step(what, (0,), call.gives[0]),))


def meaning(
    layer: Layer, reads: Sequence[Shape], gives: Sequence[Shape], held: Mapping[int, np.ndarray]
) -> Meaning:
    """Returns what a layer computes; ``Unknown`` where no row says it.

    ``reads``, ``gives``: shapes; ``held``: the constants among what it reads, by number.
    """
    row = ROWS.get(layer.kind)
    if row is None:
        return Unknown(f"{layer.kind} is not described in probe")
    try:
        return row(Call(layer, reads, gives, held))
    except NotSettled as error:
        return Unknown(str(error))
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{layer.kind} is written in a form that probe does not know")
