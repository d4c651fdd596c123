"""Convolutions and pools: each output reads a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from probe.recording import mixing
from probe.recording.labels import ZERO, Labels, Name, extended, joined, tag
from probe.recording.meaning.contract import Meaning, Shapes
from probe.recording.meaning.elementwise import fitted
from probe.recording.meaning.moving import Turns
from probe.recording.sliding import Frame, divisors, grouped, slid


@dataclass(frozen=True)
class Windows(Meaning):
    """A convolution or a pool: each output reads a window of its input, channel by channel or all.

    ``spatial``: the input's spatial axes; ``channels``: its channel axis. ``kernel``, ``stride``,
    ``dilation``: one a spatial axis; ``padding``: (before, after) a spatial axis. ``kind``:
    ``convolution``, ``transposed``, ``max``, ``average`` or ``sum``. ``groups``: of a convolution.
    ``reads``: input, weights and bias by number; a pool has its input alone. ``weights``: the axes
    of the weights in the order (*kernel, in channels, filters). ``counts_padding``: an average
    divides by the whole window at the edges too. ``ceil``: the last window may reach beyond.
    """

    spatial: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    kind: str = "convolution"
    groups: int = 1
    reads: tuple[int, ...] = (0, 1)
    weights: tuple[int, ...] = ()
    counts_padding: bool = False
    ceil: bool = False
    word: str = ""

    @property
    def pool(self) -> bool:
        """Returns whether each channel is computed from its own alone, without weights."""
        return self.kind in ("max", "average", "sum")

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, shape = reads[self.reads[0]], shapes[0]
        rest = [reads[n] for n in self.reads[1:]]
        one = one._replace(array=one.full(self.spatial))
        frame = Frame(
            self.kernel, self.stride, self.dilation, self.padding, self.kind == "transposed"
        )
        sizes = tuple(shape[a] for a in self.spatial)
        each = True
        if not self.pool:
            array, each = grouped(one, self.channels, self.groups, shape[self.channels])
            one = one._replace(array=array)
        found, counts = slid(one, self.spatial, frame, sizes, self.kind != "max")
        what = extended(tag("window"), self.kind, self.kernel)
        if self.kind == "average":
            found = joined(found, self._divisors(frame, one, sizes, counts))
        weights = [self._turned(other) for other in rest[:1]]
        found = np.where(
            (found == ZERO) & (not rest), ZERO, joined(found, mixing.whole(weights, what))
        )
        names: list[Name] = list(map(one.name, range(len(shape))))
        if not self.pool:
            found, names[self.channels] = self._filters(found, each), ("filters",)
        labels = Labels(shape, found, mixing.known(reads), tuple(names))
        for bias in rest[1:]:  # as an addition behind has it
            added = mixing.along(bias, self.channels, len(shape))
            labels = mixing.paired(labels, added, extended(tag("add"), ()), True)
        return [labels, *(fitted(labels, to, n) for n, to in enumerate(shapes[1:], 1))]

    def _turned(self, one: Labels) -> Labels:
        """Weights in one order of axes, whatever the library's is; as they are if that is open."""
        if len(self.weights) != len(one.shape):
            return one
        return Turns(self.weights).labels([one], [], ZERO)[0]

    def _filters(self, found: np.ndarray, each: bool) -> np.ndarray:
        """Labels that name their filter, where there is one for each."""
        if not each:
            return found
        index = np.arange(1, found.shape[self.channels] + 1, dtype=np.uint64)
        index = index.reshape([-1 if a == self.channels else 1 for a in range(found.ndim)])
        return joined(found, index)

    def _divisors(
        self, frame: Frame, one: Labels, sizes: tuple[int, ...], counts: np.ndarray
    ) -> np.ndarray:
        if not self.counts_padding:
            return counts
        found = divisors(frame, [one.shape[a] for a in self.spatial], sizes)
        return found.reshape(
            [sizes[self.spatial.index(a)] if a in self.spatial else 1 for a in range(counts.ndim)]
        )
