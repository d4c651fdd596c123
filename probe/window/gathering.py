"""What the windows hold: the values that every leaf of an output meets, and the size of its sum."""

from __future__ import annotations

import numpy as np

from probe import floats, operands
from probe.case import Case
from probe.errors import InputError
from probe.window.geometry import Geometry


def gather(
    case: Case, x: np.ndarray, w: np.ndarray, outputs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, w, read), each (leaves, outputs): what every leaf of the chosen outputs meets.

    ``x`` is (batch, *spatial, in_channels), of any length and dtype (container arrays too); ``w``
    is (*kernel, group_channels, filters); ``outputs`` are flat indices into the output's shape
    (batch, *positions, filters). Where ``read`` is False the leaf meets padding and x is 0. A leaf
    keeps its number with or without padding. Costs leaves * outputs elements of x and of w.
    """
    geometry = _geometry(case, x)
    entries, positions, filters = places(case, x, outputs)
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


def columns(case: Case, x: np.ndarray) -> list[np.ndarray]:
    """For every group what its leaves meet: (leaves, batch * positions), 0 at padding.

    Filters of one group share it, so it costs what one filter of each group would with ``gather``.
    """
    geometry = _geometry(case, x)
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # -1 reads zeros
    reads = geometry.reads().T
    found = []
    for group in range(geometry.groups):
        first = group * geometry.group_channels
        met = rows[:, reads, first : first + geometry.group_channels]
        leaves = met.transpose(1, 3, 0, 2)  # (kernel positions, channels, batch, positions)
        found.append(leaves.reshape(len(reads) * geometry.group_channels, -1))
    return found


def places(
    case: Case, x: np.ndarray, outputs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(batch entry, position, filter) of flat output indices, for the input's length and batch."""
    positions = _geometry(case, x).positions
    entry, position, filter_ = np.unravel_index(
        np.asarray(outputs, dtype=np.int64), (x.shape[0], positions, case.filters)
    )
    return entry, position, filter_


def scale(
    case: Case,
    x: np.ndarray | None = None,
    w: np.ndarray | None = None,
    b: np.ndarray | None = None,
) -> np.ndarray:
    """sum|x * w| + |b| of every output, float64 (batch, *positions, filters).

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


def _geometry(case: Case, x: np.ndarray) -> Geometry:
    """The windows over an input of this shape."""
    geometry = Geometry.of(case, x.shape[-2] if case.spatial_rank else None)
    if x.shape[1:] != (*geometry.sizes, geometry.in_channels):
        why = f"the case has (batch, {', '.join(map(str, geometry.sizes))}, {geometry.in_channels})"
        raise InputError("x.shape", x.shape, why, "pass the case's own input, or a prefix of it")
    return geometry
