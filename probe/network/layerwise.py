"""Padding every layer instead of the input: what reads padding alone is put in, not computed.

Behind every layer the activations that read content are kept and the constant ones, taken from one
run of padding alone at the fixed length, are put behind them, as many as the next layer needs to
add what is kept as it does at the fixed length. So short content costs little, whatever the
network's window is, and no bit changes.
"""

from __future__ import annotations

import numpy as np

from probe.errors import InputError
from probe.network.chain import Network
from probe.network.geometry import Geometry
from probe.network.layers import EXTEND, Layer
from probe.network.running import Run, padded
from probe.network.safe import SafeLengths


class Layerwise:
    """Plans of one network on the session of ``lengths``. ``value``: what the padding holds."""

    def __init__(self, lengths: SafeLengths, value: float = 0.0) -> None:
        self.lengths, self.value = lengths, value
        self.geometry: Geometry = lengths.geometry
        self.network: Network = lengths.network
        nothing = np.zeros(self.network.input_shape(1), self.network.dtype)[..., :0, :]
        self.constant: Run = lengths.runner.run(padded(nothing, self.geometry.fixed, value))
        self._sizes: dict[tuple[int, int, int], int] = {}

    def kept(self, content: int) -> list[int]:
        """How many positions of the input and behind every layer may read content."""
        self.geometry.check(content)
        found = []
        for lowest in self.geometry.lowest:
            reading = np.flatnonzero(lowest < content)
            found.append(int(reading[-1]) + 1 if len(reading) else 0)
        return found

    def sizes(self, content: int) -> list[int]:
        """The shortest safe input of every layer that has a window, else what is kept."""
        kept = self.kept(content)
        found = []
        for number, layer in enumerate(self.network.layers):
            pair = kept[number], kept[number + 1]
            found.append(self._size(number, *pair) if _spans(layer) else pair[0])
        return found

    def _size(self, number: int, given: int, wanted: int) -> int:
        """The least input of a layer that gives the first ``wanted`` outputs as the fixed one."""
        key = number, given, wanted
        if key not in self._sizes:
            fixed = self.geometry.sizes[number]
            self._sizes[key] = next(
                (
                    size
                    for size in range(max(given, 1), fixed)
                    if self._serves(number, size, wanted)
                ),
                fixed,
            )
        return self._sizes[key]

    def _serves(self, number: int, size: int, wanted: int) -> bool:
        alone = self.geometry.alone(number, size)
        if alone is None or len(alone) < max(wanted, 1) or not alone[:wanted].all():
            return False
        alike = self.lengths.agrees(number, size, 0)
        return alike is None or bool(alike[:wanted].all())

    def plan(self, content: int) -> Network:
        """The network for content of so many positions: its output is what is kept, no more.

        A layer ``extend`` before each layer with a window; the first takes the bare content.
        InputError where no output reads content of that length.
        """
        kept, sizes = self.kept(content), self.sizes(content)
        if not kept[-1]:
            raise InputError("content", content, "no output reads it", "give more of it")
        layers: list[Layer] = []
        for number, layer in enumerate(self.network.layers):
            if _spans(layer) or number == 0:
                layers.append(self._extend(number, kept[number], sizes[number]))
            layers.append(layer)
        layers.append(self._extend(len(layers), kept[-1], kept[-1], last=True))
        return self.network.with_(layers=tuple(layers), name=f"{self.network.name}, layerwise")

    def _extend(self, number: int, kept: int, size: int, last: bool = False) -> Layer:
        whole = self.constant.activations[-1 if last else number]
        channels = whole.shape[-1]
        tail = np.ascontiguousarray(whole[..., kept:size, :])
        return Layer(f"extend{number}", EXTEND, channels, channels, tail=tail, kept=kept)


def _spans(layer: Layer) -> bool:
    """Whether the layer's size decides what or how it computes: all but what is exact and own."""
    return layer.windowed or layer.sums
