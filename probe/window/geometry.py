"""Computes where the windows lie: for every output and leaf, the input that it reads.

A *leaf* is one product of an output, counted row by row over (*kernel, in_channels / groups): leaf
``k * group_channels + c``. A *position* is an output's place on the spatial axes, row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe import floats, operands
from probe.case import Case, Summed
from probe.errors import InputError
from probe.geometry import Pair


@dataclass(frozen=True)
class Geometry:
    """The windows of one case at one length. Build it with :meth:`of`.

    ``sizes``, ``around`` and ``outputs``: of every spatial axis.
    """

    windows: Any
    sizes: tuple[int, ...]
    around: tuple[Pair, ...]
    outputs: tuple[int, ...]
    groups: int
    in_channels: int
    filters: int

    @classmethod
    def of(cls, case: Summed, length: int | None = None) -> Geometry:
        """Returns the geometry at ``length``; None takes the case's own.
        InputError if there is none."""
        sizes = case.spatial(length)
        channels = case.groups, case.in_channels, case.filters
        windows = case.windows
        return cls(windows, sizes, windows.pads(sizes), windows.outputs(sizes), *channels)

    @property
    def positions(self) -> int:
        return math.prod(self.outputs)

    @property
    def group_channels(self) -> int:
        """Input channels that one filter reads."""
        return self.in_channels // self.groups

    def axis_reads(self, axis: int) -> np.ndarray:
        """Returns indices along one axis, (outputs, kernel) int64; outside [0, size) is padding."""
        return self.windows.reads(axis, self.sizes[axis])

    def reads(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Returns flat spatial indices read, (positions, prod(kernel)); -1 is padding.

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
        """Returns one filter's flat indices into ``x[entry]``, (positions, leaves); -1 pads.

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


def read_classes(case: Summed, length: int | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns positions grouped by the leaves they read, padding excluded.

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
    leaves = [np.flatnonzero(np.repeat(pattern, geometry.group_channels)) for pattern in patterns]
    merged: dict[bytes, int] = {}  # windows that read nothing may look different axis by axis
    merge = np.array([merged.setdefault(leaf.tobytes(), len(merged)) for leaf in leaves])
    kept = [leaves[int(np.flatnonzero(merge == number)[0])] for number in range(len(merged))]
    return merge[classes], kept


def gather(
    case: Case, x: np.ndarray, w: np.ndarray, outputs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (x, w, read), each (leaves, outputs): what every leaf of the chosen outputs meets.

    ``x`` is (batch, *spatial, in_channels), of any length and dtype (container arrays too); ``w``
    is (*kernel, group_channels, filters); ``outputs`` are flat indices into the output's shape
    (batch, *positions, filters). Where ``read`` is False the leaf meets padding and x is 0. A leaf
    keeps its number with or without padding. Costs leaves * outputs elements of x and of w.
    """
    geometry = _geometry(case, x)
    flat = np.asarray(outputs, dtype=np.int64)
    places = (x.shape[0], geometry.positions, case.filters)
    entries, positions, filters = np.unravel_index(flat, places)
    spatial = geometry.reads(positions)
    groups = filters // (geometry.filters // geometry.groups)
    first = groups * geometry.group_channels
    channels = first[:, None, None] + np.arange(geometry.group_channels)
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    values = rows[entries[:, None, None], spatial[:, :, None], channels]
    values[spatial < 0] = 0
    read = np.repeat(spatial >= 0, geometry.group_channels, axis=1)
    met = w.reshape(-1, w.shape[-1])[:, filters]
    return values.reshape(len(entries), -1).T, met, read.T


def columns(case: Summed, x: np.ndarray) -> list[np.ndarray]:
    """Returns for every group what its leaves meet: (leaves, batch * positions), 0 at padding.

    Filters of one group share it, so it costs what one filter of each group would with ``gather``.
    """
    geometry = _geometry(case, x)
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    # a gather of whole rows, group by group, costs no index for each channel
    rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # -1 reads zeros
    reads = geometry.reads().T
    found = []
    for group in range(geometry.groups):
        first = group * geometry.group_channels
        met = rows[:, reads, first : first + geometry.group_channels]
        leaves = met.transpose(1, 3, 0, 2)  # (kernel positions, channels, batch, positions)
        found.append(leaves.reshape(len(reads) * geometry.group_channels, -1))
    return found


def leaves_at_padding(case: Summed, x: np.ndarray) -> np.ndarray:
    """Returns which leaves meet padding: bool (leaves, batch * positions), as of ``columns``."""
    geometry = _geometry(case, x)
    met = np.repeat(geometry.reads() < 0, geometry.group_channels, axis=1)
    return np.tile(met, (x.shape[0], 1)).T


def scale(
    case: Case,
    x: np.ndarray | None = None,
    w: np.ndarray | None = None,
    b: np.ndarray | None = None,
) -> np.ndarray:
    """Returns sum|x * w| + |b| of every output, float64 (batch, *positions, filters).

    Without ``x`` and ``w`` the case's own operands are taken, with its bias if it has one.

    A difference divided by eps times this does not grow when a sum cancels. Rounded by float64
    sums, so good to about 1e-15 of itself; one matrix product for each kernel position.
    """
    if x is None or w is None:
        x, w, b = operands.generate(case)
    geometry = _geometry(case, x)
    size = _magnitudes(x, case.dtype)
    rows = size.reshape(size.shape[0], -1, size.shape[-1])
    rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # -1 reads zeros
    groups, per_group = geometry.groups, geometry.filters // geometry.groups
    weights = _magnitudes(w, case.dtype).reshape(-1, geometry.group_channels, groups, per_group)
    shape = (size.shape[0], groups, geometry.positions, per_group)
    total = np.zeros(shape)
    for reads, weight in zip(geometry.reads().T, weights, strict=True):
        met = rows[:, reads].reshape(size.shape[0], geometry.positions, groups, -1)
        total += met.transpose(0, 2, 1, 3) @ weight.transpose(1, 0, 2)
    result = total.transpose(0, 2, 1, 3).reshape(size.shape[0], *geometry.outputs, case.filters)
    return result if b is None else result + _magnitudes(b, case.dtype)


def _magnitudes(array: np.ndarray, dtype: str) -> np.ndarray:
    """Absolute values as float64; NaN stays NaN."""
    return np.abs(floats.widen(floats.to_container(array, dtype), dtype))


def _geometry(case: Summed, x: np.ndarray) -> Geometry:
    """Returns the windows over an input of this shape."""
    geometry = Geometry.of(case, x.shape[-2] if case.spatial_rank else None)
    if x.shape[1:] != (*geometry.sizes, geometry.in_channels):
        why = f"the case has (batch, {', '.join(map(str, geometry.sizes))}, {geometry.in_channels})"
        raise InputError("x.shape", x.shape, why, "pass the case's own input, or a prefix of it")
    return geometry
