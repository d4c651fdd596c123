"""Functions whose bits depend on where in a buffer an element lies: vectorised loops' remainders.

``tanh`` of a vector of elements and of the few left over at the end are computed by different code,
which rounds differently for a part of all inputs. So random operands show the border by luck alone.
Here every position is fed the same values, chosen among those to which a few elements by themselves
and many together give different bits: then a difference says that the place differs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from probe import ulp
from probe.network.layers import Layer
from probe.operands import normal

POOL = 2048
"""Numbers among which telling ones are looked for."""

TELLING, PLAIN = 16, 8
"""Fills with numbers that are known to tell places apart, and with others."""

FEW = (1, 2, 3, 5, 7)
"""Positions of the buffers that are all remainder, or as near to that as the channels allow."""

SEED = 9_000


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
        self._rows: np.ndarray | None = None
        self._kept: dict[int, np.ndarray] = {}

    @property
    def rows(self) -> np.ndarray:
        """What positions are filled with: (fills, channels)."""
        if self._rows is None:
            plain = self._drawn(PLAIN * self.channels, 1).reshape(PLAIN, self.channels)
            self._rows = np.concatenate([self._telling(), plain])
        return self._rows

    def _drawn(self, count: int, seed: int) -> np.ndarray:
        """Numbers of several magnitudes, in the dtype."""
        numbers = normal(SEED + seed, "x", (count,)) * np.tile([0.25, 1.0, 4.0], count)[:count]
        return numbers.astype(self.dtype)

    def _telling(self) -> np.ndarray:
        """Up to ``TELLING`` fills to which few positions and many give different bits."""
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
                found[part] |= self._apart(alone, together[part])
        if self.layer.activation == "softmax":  # of all channels of a position
            return rows[found.any(axis=1)][:TELLING]
        return np.repeat(rows[found][:TELLING, None], self.channels, axis=1)

    def _outputs(self, rows: np.ndarray, size: int) -> np.ndarray:
        y = self.call(np.ascontiguousarray(rows.reshape(1, *self.height, size, self.channels)))
        return y.reshape(rows.shape)

    def _apart(self, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        apart = np.zeros(ours.size, bool)
        pair = np.ascontiguousarray(ours), np.ascontiguousarray(theirs)
        apart[ulp.differences(*pair, self.dtype).index] = True
        return apart.reshape(ours.shape)

    def filled(self, row: np.ndarray, size: int) -> np.ndarray:
        """The outputs where every position of a buffer holds the same channels."""
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
        apart = self._apart(ours, theirs[..., partner, :])
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
