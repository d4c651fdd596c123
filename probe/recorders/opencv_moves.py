"""A layer of OpenCV's as its meaning is asked for; layers that move elements, resize planes, or run
along sequences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recorders.node import NotSettled
from probe.recorders.opencv_net import Layer
from probe.semantics import (
    Joins,
    Meaning,
    Moves,
    Same,
    Splits,
    Step,
    Steps,
    Unknown,
    Whole,
)

Shape = tuple[int, ...]


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
        """Returns the number of axes of the first input."""
        return len(self.reads[0])

    @property
    def every(self) -> list[Shape]:
        """Returns shapes of everything that the event reads: values, then weights."""
        return [*self.reads, *(np.shape(vector(one)) for one in self.layer.blobs)]

    def axis(self, name: str = "axis", otherwise: int = 1) -> int:
        """Returns a parameter that is an axis, from the front."""
        return int(self.layer.given(name, otherwise)) % max(self.rank, 1)

    def has(self, name: str) -> bool:
        """Returns whether a switch is on."""
        return bool(self.layer.given(name, 0))

    def number(self, name: str, otherwise: float) -> float:
        """Returns a parameter that is a number."""
        return float(self.layer.given(name, otherwise))

    def value(self, number: int) -> np.ndarray:
        """Returns a constant that is read. NotSettled where it is none."""
        if number not in self.held:
            raise NotSettled(f"{self.layer.kind} reads indices that the net computes")
        return self.held[number]


Row = Callable[[Call], Meaning]


def vector(blob: np.ndarray) -> np.ndarray:
    """Returns a blob of a layer; OpenCV keeps a vector as a matrix of one row or column."""
    return blob.reshape(-1) if blob.ndim == 2 and 1 in blob.shape else blob


LAST = 4


def concat(call: Call) -> Meaning:
    if call.has("padding"):
        return Unknown("Concat that pads what it joins")
    return Joins(call.axis())


def sliced(call: Call) -> Meaning:
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


def copies(call: Call) -> Meaning:
    return Moves(lambda array: [array] * len(call.gives)) if len(call.gives) > 1 else Same()


def plane(call: Call) -> Meaning:
    """Resize: every output reads its own channel's plane."""
    if call.rank != LAST or call.reads[0][:2] != call.gives[0][:2]:
        return Unknown("it changes the batch or the channels")
    words = tuple(sorted(map(str, call.layer.words.items())))
    whole = Whole(((0, 0), (1, 1)), "resize", (*words, call.shape[2:], call.gives[0][2:]))
    return Steps((Step(whole, (0,), call.gives[0]),))


def padding(call: Call) -> Meaning:
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


def gather(call: Call) -> Meaning:
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


def gather_elements(call: Call) -> Meaning:
    axis, index = call.axis(otherwise=0), call.value(1).astype(np.int64)
    index = np.where(index < 0, index + call.shape[axis], index)
    return Moves(lambda x, *_: np.take_along_axis(x, index, axis))


def tile(call: Call) -> Meaning:
    repeats = [int(n) for n in call.layer.every("repeats")]
    return Moves(lambda x, *_: np.tile(x, repeats))


def expand(call: Call) -> Meaning:
    shape = call.gives[0]
    return Moves(lambda x, *_: np.broadcast_to(x, shape))


def shuffle(call: Call) -> Meaning:
    """Channels in groups, dealt out one of each group in turn."""
    groups, shape = int(call.layer.given("group", 1)), call.shape
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    return Moves(lambda x: x.reshape(split).swapaxes(1, 2).reshape(shape))


def recurrent(call: Call) -> Meaning:
    """LSTM and GRU of ONNX: (length, batch, ...); every output reads all of its batch row."""
    batch = call.shape[1] if call.rank == 3 else 0
    places = [[a for a, n in enumerate(shape) if n == batch] for shape in call.gives]
    if any(len(some) != 1 for some in places) or len(call.reads) > 1:
        return Unknown(f"{call.layer.kind} whose batch has the size of a different axis too")
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
