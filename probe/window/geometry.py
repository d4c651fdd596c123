"""Where the windows lie: for every output and every leaf the input it reads, or padding.

A *leaf* is one product of an output, counted row by row over (*kernel, in_channels / groups): leaf
``k * group_channels + c``. A *position* is an output's place on the spatial axes, row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from probe.case import Case
from probe.geometry import Pair, Windows


@dataclass(frozen=True)
class Geometry:
    """The windows of one case at one length. Build it with :meth:`of`.

    ``sizes``, ``around`` and ``outputs``: of every spatial axis.
    """

    windows: Windows
    sizes: tuple[int, ...]
    around: tuple[Pair, ...]
    outputs: tuple[int, ...]
    groups: int
    in_channels: int
    filters: int

    @classmethod
    def of(cls, case: Case, length: int | None = None) -> Geometry:
        """The geometry at ``length``; None takes the case's own. InputError if there is none."""
        sizes = case.spatial(length)
        channels = case.groups, case.in_channels, case.filters
        windows = case.windows
        return cls(windows, sizes, windows.pads(sizes), windows.outputs(sizes), *channels)

    @property
    def positions(self) -> int:
        """How many output positions there are."""
        return math.prod(self.outputs)

    @property
    def group_channels(self) -> int:
        """Input channels that one filter reads."""
        return self.in_channels // self.groups

    def axis_reads(self, axis: int) -> np.ndarray:
        """Indices along one axis, (outputs, kernel) int64; outside [0, size) is padding."""
        return self.windows.reads(axis, self.sizes[axis])

    def reads(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Flat spatial indices read, (positions, prod(kernel)); -1 is padding.

        ``positions`` picks output positions (flat, any order); None is all of them. int32 unless
        the input has 2**31 elements or more.
        """
        chosen = np.arange(self.positions) if positions is None else np.asarray(positions)
        places = np.unravel_index(chosen, self.outputs) if self.outputs else ()
        wide = math.prod(self.sizes) * self.in_channels >= 2**31
        flat = np.zeros((len(chosen), 1), dtype=np.int64 if wide else np.int32)
        inside = np.ones((len(chosen), 1), dtype=bool)
        for axis, size in enumerate(self.sizes):
            index = self.axis_reads(axis).astype(flat.dtype)[places[axis]]
            flat = (flat[:, :, None] * flat.dtype.type(size) + index[:, None, :]).reshape(
                len(chosen), -1
            )
            read = (index >= 0) & (index < size)
            inside = (inside[:, :, None] & read[:, None, :]).reshape(len(chosen), -1)
        flat[~inside] = -1
        return flat

    def gather_indices(self, filter_: int = 0, positions: np.ndarray | None = None) -> np.ndarray:
        """Flat indices into ``x[entry]`` for one filter's leaves, (positions, leaves); -1 pads.

        Filters of one group read the same inputs. Costs prod(kernel) * group_channels integers a
        position; pick ``positions`` where that is much.
        """
        spatial = self.reads(positions)
        channels = self.channels(filter_).astype(spatial.dtype)
        flat = spatial[:, :, None] * spatial.dtype.type(self.in_channels) + channels
        flat[spatial < 0] = -1
        return flat.reshape(len(spatial), -1)

    def channels(self, filter_: int) -> np.ndarray:
        """Returns the input channels that a filter reads, int64."""
        group = filter_ // (self.filters // self.groups)
        return np.arange(group * self.group_channels, (group + 1) * self.group_channels)


def read_classes(case: Case, length: int | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """Positions grouped by the leaves they read, padding excluded.

    Returns (class of every position, int64 (positions,); for every class its sorted leaves, int64).
    Two positions share a class only if they read the same leaves, whatever values they meet.
    """
    geometry = Geometry.of(case, length)
    classes, patterns = np.zeros(1, dtype=np.int64), [np.ones(1, dtype=bool)]
    for axis, size in enumerate(geometry.sizes):
        index = geometry.axis_reads(axis)
        rows, which = np.unique((index >= 0) & (index < size), axis=0, return_inverse=True)
        classes = (classes[:, None] * len(rows) + which.ravel()).ravel()
        patterns = [np.outer(pattern, row).ravel() for pattern in patterns for row in rows]
    leaves = [_leaves(pattern, geometry.group_channels) for pattern in patterns]
    merged: dict[bytes, int] = {}  # windows that read nothing may look different axis by axis
    merge = np.array([merged.setdefault(leaf.tobytes(), len(merged)) for leaf in leaves])
    kept = [leaves[int(np.flatnonzero(merge == number)[0])] for number in range(len(merged))]
    return merge[classes], kept


def _leaves(read: np.ndarray, group_channels: int) -> np.ndarray:
    """Sorted leaves of the kernel positions that are read."""
    return np.flatnonzero(np.repeat(read, group_channels))
