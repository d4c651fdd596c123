"""What Caffe's layers compute in OpenCV, (batch, channels, *spatial): a table by type."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from probe.recorders.caffe_text import Layer
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
    Splits,
    Turns,
    Unknown,
    Whole,
    Windows,
)

Row = Callable[[Layer, int, tuple[int, ...]], Meaning]


def _windowed(layer: Layer, kind: str, bias: bool = False) -> Meaning:
    group = "pooling_param" if kind in ("max", "average") else "convolution_param"

    def pair(name: str, otherwise: int, full: str) -> tuple[int, int]:
        found = [int(n) for n in layer.every(group, full)]
        if found:
            return found[0], found[-1]
        both = [layer.given(group, f"{name}_{axis}", otherwise) for axis in "hw"]
        return int(both[0]), int(both[1])

    kernel = pair("kernel", 1, "kernel_size")
    pads, dilation = pair("pad", 0, "pad"), pair("dilation", 1, "dilation")
    return Windows(
        *((2, 3), 1, kernel, pair("stride", 1, "stride"), dilation),
        tuple((one, one) for one in pads),
        kind=kind,
        groups=int(layer.given(group, "group", 1)),
        reads=(0,) if group == "pooling_param" else (0, 1, 2) if bias else (0, 1),
        weights=(2, 3, 1, 0) if kind != "transposed" else (2, 3, 0, 1),
        ceil=group == "pooling_param" and layer.given(group, "ceil_mode", True),
        word=f"{kind} pool" if group == "pooling_param" else kind,
    )


def _convolution(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    kind = "convolution" if layer.kind == "Convolution" else "transposed"
    if len(shape) != 4:
        return Unknown("a convolution that is not over two axes")
    return _windowed(layer, kind, weights > 1)


def _product(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    axis = int(layer.given("inner_product_param", "axis", 1)) % len(shape)
    if layer.given("inner_product_param", "transpose", False):
        return Unknown("InnerProduct with transpose")
    ahead = "abcdef"[:axis]
    if axis != len(shape) - 1:
        return Whole(tuple((k, k) for k in range(axis)), "product of all")
    return Contracts(f"{ahead}k,nk->{ahead}n", bias=2 if weights > 1 else None)


def _pooling(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    pool = str(layer.given("pooling_param", "pool", "MAX"))
    word = {"MAX": "max", "AVE": "average", "0": "max", "1": "average"}.get(pool)
    if word is None or len(shape) != 4:
        return Unknown(f"pooling {pool}")
    if layer.given("pooling_param", "global_pooling", False):
        return Reduces((2, 3), "mean" if word == "average" else "max", keep=True)
    return _windowed(layer, word)


def _eltwise(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    kind = str(layer.given("eltwise_param", "operation", "SUM"))
    words = {"SUM": "add", "PROD": "multiply", "MAX": "maximum", "1": "add", "0": "multiply"}
    coefficients = tuple(layer.every("eltwise_param", "coeff"))
    if coefficients and set(coefficients) != {1}:
        return Each("weighted sum", numbers=coefficients)
    word = words.get(kind)
    if word is None:
        return Unknown(f"Eltwise {kind}")
    return Each(word, {"add": "adds", "multiply": "clears"}.get(word, ""))


def _relu(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    slope = layer.given("relu_param", "negative_slope", 0)
    return Each("leaky_relu", "stays", (slope,)) if slope else Each("relu", "stays")


def _batch_norm(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    return Each("batch_norm", "", (layer.given("batch_norm_param", "eps", 1e-5),), along=1)


def _scale(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    if not weights:
        return Unknown("Scale by another layer's result")
    return Each("scale", along=int(layer.given("scale_param", "axis", 1)) % len(shape))


def _concat(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    return Joins(int(layer.given("concat_param", "axis", 1)) % len(shape))


def _slice(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    axis = int(layer.given("slice_param", "axis", 1)) % len(shape)
    count, size = len(layer.gives), shape[axis]
    inside = [int(n) for n in layer.every("slice_param", "slice_point")]
    points = [0, *(inside or (size * k // count for k in range(1, count))), size]
    return Splits(axis, tuple(b - a for a, b in itertools.pairwise(points)))


def _split(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    return Moves(lambda array: [array] * len(layer.gives))


def _softmax(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    return Normalises((int(layer.given("softmax_param", "axis", 1)),), "softmax", vanishes=False)


def _lrn(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    group = "lrn_param"
    if "WITHIN" in str(layer.given(group, "norm_region", "")):
        return Whole(((0, 0), (1, 1)), "lrn")
    numbers = tuple(layer.given(group, name) for name in ("local_size", "alpha", "beta", "k"))
    return Normalises((1,), "lrn", numbers)


def _power(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    names = (("power", 1.0), ("scale", 1.0), ("shift", 0.0))
    return Each("power", numbers=tuple(layer.given("power_param", *one) for one in names))


def _each(word: str, zero: str = "") -> Row:
    return lambda layer, *_: Each(word, zero, (str(layer.fields.get(f"{word}_param", "")),))


ROWS: dict[str, Row] = {
    "Convolution": _convolution,
    "Deconvolution": _convolution,
    "InnerProduct": _product,
    "Pooling": _pooling,
    "Eltwise": _eltwise,
    "ReLU": _relu,
    "PReLU": lambda *_: Each("prelu", along=1),
    "BatchNorm": _batch_norm,
    "Scale": _scale,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Softmax": _softmax,
    "LRN": _lrn,
    "Power": _power,
    "Sigmoid": _each("sigmoid"),
    "TanH": _each("tanh", "stays"),
    "AbsVal": _each("absolute", "stays"),
    "ELU": _each("elu", "stays"),
    "Exp": _each("exp"),
    "Log": _each("log"),
    "BNLL": _each("softplus"),
    "Dropout": lambda *_: Same(),
    "Flatten": lambda *_: Reshapes(),
    "Reshape": lambda *_: Reshapes(),
    "Permute": lambda layer, *_: Turns(tuple(layer.every("permute_param", "order"))),
    "Normalize": lambda *_: Whole(((0, 0),), "normalize"),
    "MVN": lambda *_: Whole(((0, 0),), "mvn"),
}
"""What each type of layer computes: of the layer, its number of weights, and its input's shape."""


def meaning(layer: Layer, weights: int, shape: tuple[int, ...]) -> Meaning:
    """What a layer computes; ``Unknown`` where no row says it."""
    row = ROWS.get(layer.kind)
    if row is None:
        return Unknown(f"{layer.kind} is not described in probe")
    return row(layer, weights, shape)
