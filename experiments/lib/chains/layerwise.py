"""Inserts constants between a network's layers, where only padding would be computed.

A network's window may be much longer than the content, and then padding the input computes mostly
constants. So a chain is cut into segments instead. Before each, the activations that
may read content are kept, and constant ones, from one run of padding alone at the full length, are
put behind them: as many as the segment's layers need to add what is kept as at the full length.
Cuts cost calls and save work; where they pay is decided by counting both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lib.chains.chain import Layer, Network
from lib.chains.geometry import Agrees, Geometry
from lib.chains.running import Run, padded
from lib.chains.safe import SafeLengths
from probe.errors import InputError
from probe.operation import SPLICE

CUT = 500_000
"""What a cut costs, in multiply-adds: two calls of a library, some 30 microseconds."""


@dataclass(frozen=True)
class Segment:
    """Layers ``first`` up to ``last`` (excluded), fed ``kept`` activations and constants behind.

    ``size``: both together.
    """

    first: int
    last: int
    kept: int
    size: int


class Layerwise:
    """Plans of one network on the session of ``lengths``.

    ``value``: what the padding holds. ``cut``: multiply-adds that a cut has to save.
    """

    def __init__(self, lengths: SafeLengths, value: float = 0.0, cut: float = CUT) -> None:
        self.lengths, self.value, self.cut = lengths, value, cut
        self.geometry: Geometry = lengths.geometry
        self.network: Network = lengths.network
        nothing = np.zeros(self.network.input_shape(1), self.network.dtype)[..., :0, :]
        self.constant: Run = lengths.runner.run(padded(nothing, self.geometry.fixed, value))
        self._sizes: dict[tuple[int, int, int, int], int] = {}

    def kept(self, content: int) -> list[int]:
        """Returns how many positions of the input and behind every layer may read content."""
        self.geometry.check(content)
        found = []
        for lowest in self.geometry.lowest:
            reading = np.flatnonzero(lowest < content)
            found.append(int(reading[-1]) + 1 if len(reading) else 0)
        return found

    def segments(self, content: int) -> list[Segment]:
        """Returns the cheapest cuts for content of so many positions, every segment at a safe size.

        InputError where no output reads content of that length.
        """
        kept = self.kept(content)
        if not kept[-1]:
            raise InputError("content", content, "no output reads it", "give more of it")
        layers = self.network.layers
        # cuts are tried before layers whose size decides what or how they compute, no others
        wide = (n for n, one in enumerate(layers) if n and (one.windowed or one.sums))
        places = [0, *wide, len(layers)]
        best: dict[int, tuple[float, list[tuple[int, int]]]] = {0: (0.0, [])}
        for end, last in enumerate(places[1:], 1):
            ways = []
            for first in places[:end]:
                size = self._size(first, last, kept[first], kept[last], [])
                spent, cuts = best[first]
                ways.append(
                    (spent + self.cut + self.work(first, last, size), [*cuts, (first, last)])
                )
            best[last] = min(ways)
        return [
            Segment(*cut, kept[cut[0]], self._safe(*cut, kept[cut[0]], kept[cut[1]]))
            for cut in best[len(layers)][1]
        ]

    def work(self, first: int, last: int, size: int) -> float:
        """Multiply-adds of some layers, fed ``size`` positions; other operations count as one."""
        _, sizes = self.geometry.through(first, last, size)
        total = 0.0
        for number, outputs in zip(range(first, last), sizes[1:], strict=False):
            layer = self.network.layers[number]
            lines = float(np.prod(self.geometry.heights[number + 1], dtype=int))
            each = layer.filters if layer.weights is None else layer.weights.size
            total += lines * outputs * each
        return total

    def _safe(self, first: int, last: int, given: int, wanted: int) -> int:
        key = first, last, given, wanted
        if key not in self._sizes:
            inside = [n for n in self.lengths.deciding if first <= n < last]
            every = [*map(self.lengths.alone, reversed(inside)), self.lengths.agrees]
            self._sizes[key] = self._size(*key, every)
        return self._sizes[key]

    def _size(self, first: int, last: int, given: int, wanted: int, agree: list[Agrees]) -> int:
        """The least input of a segment that gives its first ``wanted`` outputs as the full run.

        ``agree``: what has to hold, the first to be refused first; none: geometry alone.
        """
        for size in range(
            max(given, 1, self.geometry.reach(first, last, wanted)), self.geometry.sizes[first]
        ):
            if all(self._gives(first, last, size, wanted, one) for one in [None, *agree]):
                return size
        return self.geometry.sizes[first]

    def _gives(self, first: int, last: int, size: int, wanted: int, agrees: Agrees | None) -> bool:
        shared, _ = self.geometry.through(first, last, size, agrees)
        alike = shared.same[:wanted]
        return shared.shift == 0 and len(alike) == wanted and bool(alike.all())

    def plan(self, content: int) -> Network:
        """Returns the network for content of that many positions; its output is what is kept.

        A layer ``extend`` stands before every segment, and one behind the last; the input is the
        bare content. Errors as ``segments``.
        """
        layers: list[Layer] = []
        for segment in self.segments(content):
            layers.append(self._extend(segment.first, segment.kept, segment.size))
            layers += self.network.layers[segment.first : segment.last]
        kept = self.kept(content)[-1]
        layers.append(self._extend(len(self.network.layers), kept, kept))
        return self.network.with_(layers=tuple(layers), name=f"{self.network.name}, layerwise")

    def _extend(self, number: int, kept: int, size: int) -> Layer:
        whole = self.constant.activations[number]
        channels = whole.shape[-1]
        tail = np.ascontiguousarray(whole[..., kept:size, :])
        return Layer(f"extend{number}", SPLICE, channels, channels, tail=tail, kept=kept)
