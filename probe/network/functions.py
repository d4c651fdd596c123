"""Explains differences of layers that are not sums of products and so have no order.

A scaled and shifted activation is rounded twice, or once where both are fused. The bits of a
function may depend on where in a buffer an element lies, in a vectorised loop or its remainder:
``tanh`` of a vector of elements and of the few left over at the end are computed by different code,
which rounds differently for a part of all inputs. So random operands show the border by luck alone.
Here every position is fed the same values, chosen among those to which a few elements by themselves
and many together give different bits: then a difference says that the place differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from probe import ulp
from probe.network.chain import Layer
from probe.network.geometry import Shared
from probe.network.running import Run, Runner
from probe.operands import normal
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree

POOL = 2048
"""Numbers among which telling ones are looked for."""

TELLING, PLAIN = 16, 8
"""Fills with numbers that are known to tell places apart, and with others."""

FEW = (1, 2, 3, 5, 7)
"""Positions of the buffers that are all remainder, or as near to that as the channels allow."""

SEED = 9_000

MOST = 1024
"""Differences of one activation that are asked for."""


class Places:
    """One activation on a target. ``call``: the layer on (1, *height, positions, channels).

    What is found holds for the network's heights and channels. Errors: those of ``call``.
    """

    def __init__(
        self,
        call: Callable[[np.ndarray], np.ndarray],
        layer: Layer,
        height: tuple[int, ...],
        dtype: str,
    ) -> None:
        self.call, self.layer, self.height, self.dtype = call, layer, height, dtype
        self.channels = layer.in_channels
        self._kept: dict[int, np.ndarray] = {}

    @cached_property
    def rows(self) -> np.ndarray:
        """Returns what positions are filled with: (fills, channels)."""
        plain = self._drawn(PLAIN * self.channels, 1).reshape(PLAIN, self.channels)
        return np.concatenate([self._telling(), plain])

    def _drawn(self, count: int, seed: int) -> np.ndarray:
        """Returns numbers of several magnitudes, in the dtype."""
        numbers = normal(SEED + seed, "x", (count,)) * np.tile([0.25, 1.0, 4.0], count)[:count]
        return numbers.astype(self.dtype)

    def _telling(self) -> np.ndarray:
        """Returns up to ``TELLING`` fills to which few positions and many give different bits."""
        lines = int(np.prod(self.height, dtype=int))
        each = -(-POOL // self.channels)
        many = -(-each // lines)
        rows = self._drawn(many * lines * self.channels, 0).reshape(-1, self.channels)
        together = self._outputs(rows, many)
        found = np.zeros(rows.shape, bool)
        for size in FEW:
            step = lines * size
            for start in range(0, len(rows) - step + 1, step):
                part = slice(start, start + step)
                alone = self._outputs(rows[part], size)
                found[part] |= ulp.apart(alone, together[part], self.dtype)
        if self.layer.activation == "softmax":  # of all channels of a position
            return rows[found.any(axis=1)][:TELLING]
        return np.repeat(rows[found][:TELLING, None], self.channels, axis=1)

    def _outputs(self, rows: np.ndarray, size: int) -> np.ndarray:
        y = self.call(np.ascontiguousarray(rows.reshape(1, *self.height, size, self.channels)))
        return y.reshape(rows.shape)

    def filled(self, row: np.ndarray, size: int) -> np.ndarray:
        """Returns the outputs where every position of a buffer holds the same channels."""
        shape = 1, *self.height, size, self.channels
        return self.call(np.ascontiguousarray(np.broadcast_to(row, shape)))

    def outputs(self, size: int) -> np.ndarray:
        """Of every fill: (fills, *height, positions, channels)."""
        if size not in self._kept:
            self._kept[size] = np.concatenate([self.filled(row, size) for row in self.rows])
        return self._kept[size]

    def alike(self, size: int, fixed: int, shift: int) -> np.ndarray:
        """Which positions of ``size`` compute as those ``shift`` behind in ``fixed``: (size,)."""
        ours, theirs = self.outputs(size), self.outputs(fixed)
        partner = np.clip(np.arange(size) + shift, 0, fixed - 1)
        apart = ulp.apart(ours, theirs[..., partner, :], self.dtype)
        return np.asarray(~np.moveaxis(apart, -2, 0).reshape(size, -1).any(axis=1))

    def reproduced(self, x: np.ndarray, y: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Whether outputs follow from the position's own input and its place: bool (places,).

        ``x``, ``y``: an input of the layer and its output, (1, *height, positions, channels);
        ``places``: flat indices into y. Everything else in the buffer is made the same as the
        position's own input.
        """
        found = np.zeros(len(places), bool)
        given, flat = x.reshape(-1, self.channels), y.reshape(-1)
        answers: dict[bytes, np.ndarray] = {}
        for number, place in enumerate(places):
            position, channel = divmod(int(place), self.channels)
            row = given[position]
            if self.layer.activation != "softmax":
                row = np.full(self.channels, row[channel])
            key = row.tobytes()
            if key not in answers:
                answers[key] = self.filled(row, x.shape[-2]).reshape(-1)
            one, other = answers[key][place : place + 1], flat[place : place + 1]
            found[number] = bool(ulp.equal(one, other, self.dtype))
        return found


def differences(
    runner: Runner, number: int, x: np.ndarray, fixed: Run, behind: Shared
) -> tuple[int, int, dict[str, int]]:
    """Of a layer fed ``x``, against the full run: how many, how many reproduced, and the causes.

    ``behind``: what both share behind the layer. Causes: ``rounding``, ``place``, ``not-a-sum``.
    Errors: TargetError.
    """
    layer, dtype = runner.network.layers[number], runner.network.dtype
    y = runner.layer(number, x)
    mine, other = behind.pairs(y, fixed.activations[number + 1])
    apart = ulp.differences(mine, other, dtype).index
    replayed, cause = 0, ""
    if len(apart) and layer.op == "normalisation":
        ours, theirs = behind.pairs(x, fixed.activations[number])
        known = scaled(layer, ours, dtype, mine) & scaled(layer, theirs, dtype, other)
        replayed, cause = int(known[apart].sum()), "rounding"
    if len(apart) and layer.op == "activation":
        replayed, cause = placed(runner, number, x, y, fixed, behind, apart[:MOST]), "place"
    counts = {cause: replayed, "not-a-sum": len(apart) - replayed}
    return len(apart), replayed, {name: count for name, count in counts.items() if count}


def scaled(layer: Layer, x: np.ndarray, dtype: str, y: np.ndarray) -> np.ndarray:
    """Where y is x times the layer's scale plus its shift, rounded twice or, fused, once; flat."""
    assert layer.scale is not None and layer.shift is not None
    met = [np.broadcast_to(each, x.shape).reshape(1, -1) for each in (x, layer.scale, layer.shift)]
    alike = np.zeros(y.size, bool)
    for fused in (frozenset[int](), frozenset([0])):
        summation = Summation(Tree.parse("(0+b)"), Rounding(fused))
        expected = replay(summation, met[0], met[1], dtype, met[2][0])
        alike |= ~ulp.apart(expected, y.reshape(-1), dtype)
    return alike


def placed(
    runner: Runner,
    number: int,
    x: np.ndarray,
    y: np.ndarray,
    fixed: Run,
    behind: Shared,
    apart: np.ndarray,
) -> int:
    """Of an activation's differences, those that the input and its place decide."""
    layer, heights, dtype = runner.network.layers[number], x.shape[1:-2], runner.network.dtype
    places = Places(partial(runner.layer, number), layer, heights, dtype)
    inputs, outputs = fixed.activations[number : number + 2]
    indices = [np.arange(one.size).reshape(one.shape) for one in (y, outputs)]
    mine, theirs = (one.reshape(-1)[apart] for one in behind.pairs(indices[0], indices[1]))
    ours = places.reproduced(x, y, mine)
    return int((ours & places.reproduced(inputs, outputs, theirs)).sum())
