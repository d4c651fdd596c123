"""A model of Caffe, written layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from probe.targets.backends.opencv import channels_first, input_text, layer_caffemodel, layer_text


class Blob(NamedTuple):
    """A blob's name and its shape (batch, channels, *spatial)."""

    name: str
    shape: tuple[int, ...]


class CaffeModel:
    """A model of one input ``x``, of (batch, *spatial, channels)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.x = Blob("x", channels_first(shape))
        self.lines: list[str] = []
        self.weights: list[tuple[str, str, list[np.ndarray]]] = []

    def layer(
        self,
        kind: str,
        bottoms: Sequence[Blob],
        shape: tuple[int, ...],
        fields: str = "",
        blobs: Sequence[Callable[[Any], np.ndarray]] = (),
    ) -> Blob:
        name = f"{kind.lower()}{len(self.lines)}"
        self.lines.append(layer_text(name, kind, [blob.name for blob in bottoms], [name], fields))
        if blobs:
            self.weights.append((name, kind, [blob({}) for blob in blobs]))
        return Blob(name, shape)

    def prototxt(self) -> str:
        return input_text("x", self.x.shape) + "".join(self.lines)

    def caffemodel(self) -> bytes:
        return b"".join(layer_caffemodel(*each) for each in self.weights)
