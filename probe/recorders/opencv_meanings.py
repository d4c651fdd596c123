"""What the layers of OpenCV's nets compute, (batch, channels, *spatial): a table by type.

The types are OpenCV's own, whatever file a net came from; the names of parameters are those of its
dump. A constant that a layer reads is known, an index of a Gather say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recorders.node import NotSettled
from probe.recorders.opencv_net import Layer
from probe.recording.meaning import (
    Contracts,
    Each,
    Joins,
    Meaning,
    Moves,
    Normalises,
    Reduces,
    Reshapes,
    Same,
    Scans,
    Splits,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
    Windows,
)

Shape = tuple[int, ...]
LAST = 4
"""Axes of pictures; layers over one or three spatial axes have others."""


@dataclass(frozen=True)
class Call:
    """A layer with the shapes of what it reads and gives. ``held``: constants that it reads."""

    layer: Layer
    reads: Sequence[Shape]
    gives: Sequence[Shape]
    held: Mapping[int, np.ndarray]

    @property
    def shape(self) -> Shape:
        """Of the first input."""
        return self.reads[0]

    @property
    def rank(self) -> int:
        """The number of axes of the first input."""
        return len(self.reads[0])

    @property
    def every(self) -> list[Shape]:
        """Shapes of everything that the event reads: values, then weights."""
        return [*self.reads, *(np.shape(vector(one)) for one in self.layer.blobs)]

    def axis(self, name: str = "axis", otherwise: int = 1) -> int:
        """A parameter that is an axis, from the front."""
        return int(self.layer.given(name, otherwise)) % max(self.rank, 1)

    def has(self, name: str) -> bool:
        """Whether a switch is on."""
        return bool(self.layer.given(name, 0))

    def number(self, name: str, otherwise: float) -> float:
        """A parameter that is a number."""
        return float(self.layer.given(name, otherwise))

    def value(self, number: int) -> np.ndarray:
        """A constant that is read. NotSettled where it is none."""
        if number not in self.held:
            raise NotSettled(f"{self.layer.kind} reads indices that the net computes")
        return self.held[number]


Row = Callable[[Call], Meaning]


def vector(blob: np.ndarray) -> np.ndarray:
    """A blob of a layer; OpenCV keeps a vector as a matrix of one row or column."""
    return blob.reshape(-1) if blob.ndim == 2 and 1 in blob.shape else blob


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
        return Reduces(axes, "mean" if word == "average" else "max", keep=True)
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
    return Each(word, {"add": "adds", "multiply": "clears"}.get(word, ""))


NARY = {
    "add": ("add", "adds"),
    "sum": ("add", "adds"),
    "mul": ("multiply", "clears"),
    "prod": ("multiply", "clears"),
    "sub": ("subtract", ""),
    "div": ("divide", ""),
    "max": ("maximum", ""),
    "min": ("minimum", ""),
    "mean": ("average", ""),
    "pow": ("power", ""),
    "mod": ("mod", ""),
    "fmod": ("fmod", ""),
    "bitshift": ("shift", ""),
    "equal": ("equal", ""),
    "greater": ("greater", ""),
    "greater_equal": ("greater_equal", ""),
    "less": ("less", ""),
    "less_equal": ("less_equal", ""),
    "and": ("and", ""),
    "or": ("or", ""),
    "xor": ("xor", ""),
    "where": ("where", ""),
}
"""Operations of NaryEltwise, whose inputs broadcast as NumPy's do, and what zeros do."""


def _nary(call: Call) -> Meaning:
    word, zero = NARY[str(call.layer.given("operation", "")).lower()]
    if word != "where" and len(call.every) != 2:
        return Same() if len(call.every) == 1 else Each(f"{word}_of_{len(call.every)}")
    return Each(word, zero)


def _relu(call: Call) -> Meaning:
    slope = call.layer.given("negative_slope", 0)
    return Each("leaky_relu", "stays", (slope,)) if slope else Each("relu", "stays")


def _clip(call: Call) -> Meaning:
    low, high = call.number("min_value", 0.0), call.number("max_value", 6.0)
    return Each("clip", "stays" * (low <= 0 <= high), (low, high))


def _batch_norm(call: Call) -> Meaning:
    return Each("batch_norm", "", (call.number("eps", 1e-5),), along=1)


def _scale(call: Call) -> Meaning:
    if not call.layer.blobs:
        return Unknown("Scale by another layer's result")
    return Each(call.layer.kind.lower(), along=call.axis())


def _concat(call: Call) -> Meaning:
    if call.has("padding"):
        return Unknown("Concat that pads what it joins")
    return Joins(call.axis())


def _slice(call: Call) -> Meaning:
    """Parts of an axis, or one part of several axes."""
    begins = [int(n) for n in call.layer.every("begin")]
    if not begins:
        axis = call.axis()
        count, size = len(call.gives), call.shape[axis]
        inside = [int(n) for n in call.layer.every("slice_point")]
        points = [0, *(inside or (size * k // count for k in range(1, count))), size]
        return Splits(axis, tuple(b - a for a, b in itertools.pairwise(points)))
    if len(call.gives) > 1:
        return Unknown("Slice with several parts of several axes")
    axes = [int(n) for n in call.layer.every("axes")] or list(range(len(begins)))
    if not call.layer.every("axes") and call.layer.every("axis"):
        axes = list(range(call.axis(), call.axis() + len(begins)))
    steps = [int(n) for n in call.layer.every("steps")] or [1] * len(begins)
    index = [np.arange(n) for n in call.shape]
    for axis, first, step in zip(axes, begins, steps, strict=False):
        size = call.shape[axis]
        start = min(max(first + size * (first < 0), 0), size - (step < 0))
        index[axis] = start + step * np.arange(call.gives[0][axis])
    kept = tuple(a for a, one in enumerate(index) if np.array_equal(one, np.arange(call.shape[a])))
    places = [np.asarray([0]) if a in kept else one for a, one in enumerate(index)]

    def move(x: np.ndarray) -> np.ndarray:
        for axis, place in enumerate(places):
            if axis not in kept:
                x = np.take(x, place, axis)
        return x

    return Moves(move, kept)


def _copies(call: Call) -> Meaning:
    return Moves(lambda array: [array] * len(call.gives)) if len(call.gives) > 1 else Same()


def _softmax(call: Call) -> Meaning:
    word = "log_softmax" if call.has("log_softmax") else "softmax"
    return Normalises((call.axis(),), word, vanishes=False)


def _lrn(call: Call) -> Meaning:
    if "WITHIN" in str(call.layer.given("norm_region", "")):
        return Whole(((0, 0), (1, 1)), "lrn")
    names = ("local_size", "alpha", "beta", "k", "bias", "norm_by_size")
    return Normalises((1,), "lrn", tuple(call.layer.given(name) for name in names))


def _layer_norm(call: Call) -> Meaning:
    axes = tuple(range(call.axis(otherwise=-1), call.rank))
    return Normalises(axes, "layer_norm", (call.number("epsilon", 1e-5),))


def _per_channel(call: Call, axes: Shape, groups: tuple[int, int] | None, word: str) -> Meaning:
    numbers = (call.number("epsilon", 1e-5),)
    return Normalises(axes, word, numbers, along=1, groups=groups)


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
    word = {"ave": "mean"}.get(word, word)
    return Reduces(axes, word, bool(call.layer.given("keepdims", True)), word == "sum")


def _chosen(call: Call) -> Meaning:
    """Arg and TopK: all along one axis."""
    axis = call.axis(otherwise=-1 if call.layer.kind == "TopK" else 0)
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


def _plane(call: Call) -> Meaning:
    """Resize: every output reads its own channel's plane."""
    if call.rank != LAST or call.reads[0][:2] != call.gives[0][:2]:
        return Unknown("it changes the batch or the channels")
    words = tuple(sorted(map(str, call.layer.words.items())))
    whole = Whole(((0, 0), (1, 1)), "resize", (*words, call.shape[2:], call.gives[0][2:]))
    return Steps((Step(whole, (0,), call.gives[0]),))


def _padding(call: Call) -> Meaning:
    numbers = [int(n) for n in call.layer.every("paddings")]
    ahead = call.rank - len(numbers) // 2
    around = [(0, 0)] * ahead + list(zip(numbers[::2], numbers[1::2], strict=True))
    kind = str(call.layer.given("type", "")) or "constant"
    if ahead < 0 or any(n < 0 for both in around for n in both):
        return Unknown("it is padded by less than nothing")
    if kind == "constant" and call.number("value", 0.0):
        return Unknown("it is padded with a number that no input holds")
    mode: Any = {"constant": "constant", "reflect": "reflect", "edge": "edge"}[kind]
    kept = tuple(a for a, both in enumerate(around) if both == (0, 0))
    return Moves(lambda x: np.pad(x, around, mode), kept)


def _gather(call: Call) -> Meaning:
    index = call.value(1).astype(np.int64)
    axis = call.axis(otherwise=0)
    index = np.where(index < 0, index + call.shape[axis], index)
    if call.layer.every("real_ndims") and call.layer.given("real_ndims") == 0:
        index = index.reshape(())
    found = np.take(np.empty(call.shape, np.int8), index, axis).shape
    if found != tuple(call.gives[0]):
        index = index.reshape(-1)
    shape = call.gives[0]
    return Moves(lambda x, *_: np.take(x, index, axis).reshape(shape))


def _gather_elements(call: Call) -> Meaning:
    axis, index = call.axis(otherwise=0), call.value(1).astype(np.int64)
    index = np.where(index < 0, index + call.shape[axis], index)
    return Moves(lambda x, *_: np.take_along_axis(x, index, axis))


def _tile(call: Call) -> Meaning:
    repeats = [int(n) for n in call.layer.every("repeats")]
    return Moves(lambda x, *_: np.tile(x, repeats))


def _expand(call: Call) -> Meaning:
    shape = call.gives[0]
    return Moves(lambda x, *_: np.broadcast_to(x, shape))


def _shuffle(call: Call) -> Meaning:
    """Channels in groups, dealt out one of each group in turn."""
    groups, shape = int(call.layer.given("group", 1)), call.shape
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    return Moves(lambda x: x.reshape(split).swapaxes(1, 2).reshape(shape))


def _einsum(call: Call) -> Meaning:
    equation = str(call.layer.given("equation", "")).replace(" ", "")
    ins = equation.partition("->")[0].split(",")
    if "->" not in equation or len(ins) != 2 or "." in equation:
        return Unknown("its equation is no product of two")
    if any(len(set(one)) < len(one) for one in ins) or not equation.partition("->")[2]:
        return Unknown("its equation has a diagonal, or gives one number")
    return Contracts(equation.lower(), (0, 1))


def _recurrent(call: Call) -> Meaning:
    """LSTM and GRU of ONNX: (length, batch, ...); every output reads all of its batch row."""
    batch = call.shape[1] if call.rank == 3 else 0
    places = [[a for a, n in enumerate(shape) if n == batch] for shape in call.gives]
    if any(len(some) != 1 for some in places) or len(call.reads) > 1:
        return Unknown(f"{call.layer.kind} whose batch can't be told from its other axes")
    words = tuple(sorted(map(str, call.layer.words.items())))
    steps = []
    lines = Moves(lambda x: np.moveaxis(x, 1, 0))
    turned = (batch, call.shape[0], call.shape[2])
    steps.append(Step(lines, (0,), turned))
    count = len(call.every)
    weights = tuple(range(1, count))
    gives = []
    for number, shape in enumerate(call.gives):
        whole = Whole(((0, places[number][0]),), f"{call.layer.kind} {number}", words)
        steps.append(Step(whole, (count, *weights), shape))
        gives.append(count + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _function(word: str, zero: bool = False, *names: str) -> Row:
    """A function of one element, and the names of its numbers."""
    return lambda call: Each(
        word, "stays" * zero, tuple((name, call.layer.given(name)) for name in names)
    )


ODD = {
    "TanH": "tanh",
    "AbsVal": "absolute",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sqrt": "sqrt",
    "Erf": "erf",
    "Sin": "sin",
    "Sinh": "sinh",
    "Asin": "asin",
    "Tan": "tan",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "Sign": "sign",
    "Mish": "mish",
    "Swish": "silu",
    "HardSwish": "hard_swish",
    "Softsign": "softsign",
    "Gelu": "gelu",
    "GeluApproximation": "gelu_tanh",
}
"""Functions of one input with f(0) = 0."""

OTHERS = {
    "Sigmoid": "sigmoid",
    "BNLL": "softplus",
    "Softplus": "softplus",
    "Not": "not",
    "Acos": "acos",
    "Acosh": "acosh",
    "Cos": "cos",
    "Cosh": "cosh",
    "Reciprocal": "reciprocal",
}
"""All other functions of one input without numbers."""

ROWS: dict[str, Row] = {
    **{kind: _function(word, True) for kind, word in ODD.items()},
    **{kind: _function(word) for kind, word in OTHERS.items()},
    **dict.fromkeys(("Convolution", "Deconvolution"), _convolution),
    **dict.fromkeys(("MatMul", "Gemm"), _matmul),
    **dict.fromkeys(("Reshape", "Flatten"), lambda call: _first(call, Reshapes())),
    **dict.fromkeys(("Identity", "Dropout", "Split", "Blank"), _copies),
    **dict.fromkeys(("Softmax", "SoftMax"), _softmax),
    **dict.fromkeys(("Resize", "Interp"), _plane),
    **dict.fromkeys(("Arg", "TopK"), _chosen),
    **dict.fromkeys(("Scale", "Shift"), _scale),
    **dict.fromkeys(("LSTM", "GRU"), _recurrent),
    **dict.fromkeys(("PReLU", "ChannelsPReLU"), lambda _: Each("prelu", along=1)),
    "InnerProduct": _inner,
    "Pooling": _pooling,
    "Eltwise": _eltwise,
    "NaryEltwise": _nary,
    "ReLU": _relu,
    "ReLU6": _clip,
    "Clip": _clip,
    "BatchNorm": _batch_norm,
    "Concat": _concat,
    "Slice": _slice,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "MVN": _mvn,
    "Normalize": lambda call: Whole(((0, 0),), "normalize"),
    "Power": _function("power", False, "power", "scale", "shift"),
    "ELU": _function("elu", True, "alpha"),
    "CELU": _function("celu", True, "alpha"),
    "Selu": _function("selu", True, "alpha", "gamma"),
    "Exp": _function("exp", False, "base", "scale", "shift"),
    "Log": _function("log", False, "base", "scale", "shift"),
    "HardSigmoid": _function("hard_sigmoid", False, "alpha", "beta"),
    "ThresholdedRelu": _function("thresholded_relu", False, "alpha"),
    "Permute": lambda call: Turns(tuple(int(n) for n in call.layer.every("order"))),
    "Reduce": _reduce,
    "CumSum": _cumsum,
    "Padding": _padding,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Tile": _tile,
    "Expand": _expand,
    "ShuffleChannel": _shuffle,
    "Einsum": _einsum,
    "Attention": lambda call: Whole(((0, 0),), "attention", _words(call)),
}
"""What each type of layer computes."""


def _words(call: Call) -> tuple[str, ...]:
    return tuple(sorted(map(str, call.layer.words.items())))


def _first(call: Call, what: Meaning) -> Meaning:
    """A layer that reads its first input alone."""
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
