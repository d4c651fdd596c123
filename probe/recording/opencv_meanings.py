"""What Caffe's layers compute in OpenCV, (batch, channels, *spatial): a table by type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording.caffe_text import Layer
from probe.recording.labels import Labels, tag
from probe.recording.meaning import (
    Contracts,
    Each,
    Meaning,
    Moves,
    Normalises,
    Reduces,
    Reshapes,
    Same,
    Shapes,
    Turns,
    Unknown,
    Whole,
    Windows,
)


@dataclass(frozen=True)
class ByChannel(Meaning):
    """A function of an element and of its channel's numbers: BatchNorm, Scale, PReLU."""

    word: str = ""
    numbers: tuple[Any, ...] = ()
    axis: int = 1

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        rank = len(reads[0].shape)
        turned = [reads[0]]
        for one in reads[1:]:
            behind = (1,) * (rank - self.axis - max(len(one.shape), 1))
            if len(one.shape) == 2 and 1 in one.shape:  # OpenCV keeps vectors as one row
                keep = 0 if one.shape[1] == 1 else 1
                one = Labels(
                    (one.shape[keep],), one.array.reshape(one.array.shape[keep]), one.known
                )
                behind = (1,) * (rank - self.axis - 1)
            turned.append(
                Labels(one.shape + behind, one.array.reshape(*one.array.shape, *behind), one.known)
            )
        return Each(self.word, numbers=self.numbers).labels(turned, shapes, what)


@dataclass(frozen=True)
class Composed(Meaning):
    """Several layers that the library runs as one.

    ``parts``: (meaning, reads, shapes of results, the operation's name); reads are numbers of
    values, those from outside first. ``outputs``: which values it gives.
    """

    parts: tuple[tuple[Meaning, tuple[int, ...], tuple[tuple[int, ...], ...], str], ...]
    outputs: tuple[int, ...]
    word: str = ""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        values = list(reads)
        for means, numbers, given, op in self.parts:
            every = [values[n] for n in numbers]
            values += means.labels(every, list(given), tag(means.word or op))
        return [values[n] for n in self.outputs]


def _windowed(layer: Layer, kind: str) -> Meaning:
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
        reads=(0,) if group == "pooling_param" else (0, 1),
        weights=(2, 3, 1, 0) if kind != "transposed" else (2, 3, 0, 1),
        ceil=group == "pooling_param" and layer.given(group, "ceil_mode", True),
    )


@dataclass(frozen=True)
class Biased(Meaning):
    """A layer whose last input is a bias along an axis of the result."""

    inner: Meaning
    axis: int = 1
    word: str = ""

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (found,) = self.inner.labels(reads[:-1], shapes, what)
        return ByChannel("add", axis=self.axis).labels([found, reads[-1]], shapes, what)


def _convolution(layer: Layer, weights: int, rank: int) -> Meaning:
    kind = "convolution" if layer.kind == "Convolution" else "transposed"
    if rank != 4:
        return Unknown("a convolution that is not over two axes")
    means = _windowed(layer, kind)
    return Biased(means) if weights > 1 else means


def _product(layer: Layer, weights: int, rank: int) -> Meaning:
    axis = int(layer.given("inner_product_param", "axis", 1)) % rank
    if layer.given("inner_product_param", "transpose", False):
        return Unknown("InnerProduct with transpose")
    ahead = "abcdef"[:axis]
    if axis != rank - 1:
        return Whole(tuple((k, k) for k in range(axis)), "product")
    means = Contracts(f"{ahead}k,nk->{ahead}n")
    return Biased(means, axis) if weights > 1 else means


def _pooling(layer: Layer, weights: int, rank: int) -> Meaning:
    pool = str(layer.given("pooling_param", "pool", "MAX"))
    word = {"MAX": "max", "AVE": "average", "0": "max", "1": "average"}.get(pool)
    if word is None or rank != 4:
        return Unknown(f"pooling {pool}")
    if layer.given("pooling_param", "global_pooling", False):
        return Reduces((2, 3), "mean" if word == "average" else "max", keep=True)
    return _windowed(layer, word)


def _eltwise(layer: Layer, weights: int, rank: int) -> Meaning:
    kind = str(layer.given("eltwise_param", "operation", "SUM"))
    words = {"SUM": "add", "PROD": "multiply", "MAX": "maximum", "1": "add", "0": "multiply"}
    coefficients = tuple(layer.every("eltwise_param", "coeff"))
    if coefficients and set(coefficients) != {1}:
        return Each("weighted sum", numbers=coefficients)
    word = words.get(kind)
    if word is None:
        return Unknown(f"Eltwise {kind}")
    return Each(word, {"add": "adds", "multiply": "clears"}.get(word, ""))


def _relu(layer: Layer, weights: int, rank: int) -> Meaning:
    slope = layer.given("relu_param", "negative_slope", 0)
    return Each("leaky_relu", "stays", (slope,)) if slope else Each("relu", "stays")


def _batch_norm(layer: Layer, weights: int, rank: int) -> Meaning:
    return ByChannel("batch_norm", (layer.given("batch_norm_param", "eps", 1e-5),))


def _scale(layer: Layer, weights: int, rank: int) -> Meaning:
    if not weights:
        return Unknown("Scale by another layer's result")
    return ByChannel("scale", axis=int(layer.given("scale_param", "axis", 1)) % rank)


def _concat(layer: Layer, weights: int, rank: int) -> Meaning:
    axis = int(layer.given("concat_param", "axis", 1))
    return Moves(lambda *arrays: np.concatenate(arrays, axis))


def _slice(layer: Layer, weights: int, rank: int) -> Meaning:
    axis, points = (
        int(layer.given("slice_param", "axis", 1)),
        layer.every("slice_param", "slice_point"),
    )
    return Moves(lambda array: np.split(array, points or len(layer.gives), axis))


def _split(layer: Layer, weights: int, rank: int) -> Meaning:
    return Moves(lambda array: [array] * len(layer.gives))


def _softmax(layer: Layer, weights: int, rank: int) -> Meaning:
    return Normalises((int(layer.given("softmax_param", "axis", 1)),), "softmax", vanishes=False)


def _lrn(layer: Layer, weights: int, rank: int) -> Meaning:
    group = "lrn_param"
    if "WITHIN" in str(layer.given(group, "norm_region", "")):
        return Whole(((0, 0), (1, 1)), "lrn")
    numbers = tuple(layer.given(group, name) for name in ("local_size", "alpha", "beta", "k"))
    return Normalises((1,), "lrn", numbers)


def _power(layer: Layer, weights: int, rank: int) -> Meaning:
    names = (("power", 1.0), ("scale", 1.0), ("shift", 0.0))
    return Each("power", numbers=tuple(layer.given("power_param", *one) for one in names))


def _each(word: str, zero: str = "") -> Callable[[Layer, int, int], Meaning]:
    return lambda layer, *_: Each(word, zero, (str(layer.fields.get(f"{word}_param", "")),))


ROWS: dict[str, Callable[[Layer, int, int], Meaning]] = {
    "Convolution": _convolution,
    "Deconvolution": _convolution,
    "InnerProduct": _product,
    "Pooling": _pooling,
    "Eltwise": _eltwise,
    "ReLU": _relu,
    "PReLU": lambda *_: ByChannel("prelu"),
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
"""What each type of layer computes: of the layer, its number of weights, and its input's rank."""


def meaning(layer: Layer, weights: int, rank: int) -> Meaning:
    """What a layer computes; ``Unknown`` where no row says it."""
    row = ROWS.get(layer.kind)
    if row is None:
        return Unknown(f"{layer.kind} has no description here")
    return row(layer, weights, rank)
