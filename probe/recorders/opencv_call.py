"""A layer of OpenCV's as its meaning is asked for: its parameters, shapes, and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probe.recorders.node import NotSettled
from probe.recorders.opencv_net import Layer
from probe.recording.meaning import Meaning

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
