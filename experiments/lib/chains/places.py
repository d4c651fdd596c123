"""A layer that computes places by themselves, at any size: which positions are computed alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from probe import ulp
from probe.recording import place

FEW = 1, 2, 3, 5, 7
"""Positions of buffers that are all remainder, or as near to that as the channels allow."""


class Places:
    """A function of each element, or with ``rows`` of each row of channels, that runs at any size.

    ``call``: (1, *height, positions, channels) to an output of the same shape. Every position gets
    the same numbers, among them those to which a few positions by themselves and many together give
    different bits. What is found holds for these heights and channels. Errors: those of ``call``.
    """

    def __init__(
        self,
        call: Callable[[np.ndarray], np.ndarray],
        height: tuple[int, ...],
        channels: int,
        dtype: str,
        rows: bool = False,
    ) -> None:
        self.call, self.height, self.channels = call, height, channels
        self.dtype, self.rows = dtype, rows
        self._kept: dict[int, np.ndarray] = {}

    @cached_property
    def fills(self) -> np.ndarray:
        """Returns what positions are filled with, in float64: (fills, channels)."""
        plain = place.drawn(place.PLAIN * self.channels).reshape(place.PLAIN, self.channels)
        return np.concatenate([self._telling()[: place.TELLING], plain])

    def _telling(self) -> np.ndarray:
        many = -(-place.POOL // int(np.prod([*self.height, self.channels], dtype=int)))
        functions = [self._function(size) for size in (many, *FEW)]
        pool = place.drawn(functions[0].recorded.size)
        shifts = ((one, range(0, len(pool), one.recorded.size)) for one in functions)
        found = place.telling((one.laid(pool, n) for one, each in shifts for n in each), len(pool))
        if self.rows:
            return pool.reshape(-1, self.channels)[found.reshape(-1, self.channels).any(axis=1)]
        return np.repeat(pool[found, None], self.channels, axis=1)

    def _function(self, size: int) -> place.PlacedFunction:
        x = np.zeros((1, *self.height, size, self.channels), self.dtype)
        return place.PlacedFunction(
            lambda reads: self.call(*reads), [x], [self.dtype] * 2, x, np.arange(x.size)
        )

    def outputs(self, size: int) -> np.ndarray:
        """Of every fill: (fills, *height, positions, channels)."""
        if size not in self._kept:
            function = self._function(size)
            self._kept[size] = np.concatenate([function.filled(row) for row in self.fills])
        return self._kept[size]

    def alike(self, size: int, fixed: int, shift: int) -> np.ndarray:
        """Which positions of ``size`` compute as those ``shift`` behind in ``fixed``: (size,)."""
        ours, theirs = self.outputs(size), self.outputs(fixed)
        partner = np.clip(np.arange(size) + shift, 0, fixed - 1)
        apart = ulp.apart(ours, theirs[..., partner, :], self.dtype)
        return np.asarray(~np.moveaxis(apart, -2, 0).reshape(size, -1).any(axis=1))
