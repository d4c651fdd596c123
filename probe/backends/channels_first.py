"""Channels-last container arrays as libraries with channels first want them, and back.

Copies start at a 64-byte boundary, as the libraries' own allocations do: some kernels (MKL's) may
choose their path by the address, and NumPy's arrays start anywhere.
"""

import numpy as np

BOUNDARY = 64


def aligned(shape, dtype):
    """An uninitialised C-contiguous array that starts at a 64-byte boundary."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + BOUNDARY, np.uint8)
    start = -raw.ctypes.data % BOUNDARY
    return raw[start : start + size].view(dtype).reshape(shape)


def copied(array):
    """A C-contiguous copy that starts at a 64-byte boundary."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def activations(x):
    """(batch, *spatial, channels) -> a copy (batch, channels, *spatial)."""
    return copied(np.moveaxis(x, -1, 1))


def kernels(w):
    """(*kernel, channels/groups, filters) -> a copy (filters, channels/groups, *kernel)."""
    return copied(np.moveaxis(w, (-1, -2), (0, 1)))


def channels_last(y):
    """(batch, filters, *spatial) -> C-contiguous (batch, *spatial, filters)."""
    return np.ascontiguousarray(np.moveaxis(y, 1, -1))
