"""Labels of what slides along spatial axes: convolutions, forward and transposed, and pools."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from probe.recording import mixing
from probe.recording.labels import ZERO, Labels, joined, mixed, tag


class Frame(NamedTuple):
    """Sizes of a sliding window, one number a spatial axis; as in ``meaning.Windows``."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    transposed: bool


def slid(
    one: Labels, axes: Sequence[int], frame: Frame, sizes: Sequence[int], zero: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a label for each output, and how many inputs it reads.

    ``one``: in full along ``axes``; ``sizes``: of the outputs along them; ``zero``: whether zeros
    add nothing.
    """
    array = one.array if zero else mixing.visible(one.array)
    lengths = list(array.shape)
    for axis, size in zip(axes, sizes, strict=True):
        lengths[axis] = size
    found, counts = np.zeros(lengths, np.uint64), np.zeros(lengths, np.uint64)
    for number, taps in enumerate(itertools.product(*map(range, frame.kernel))):
        reaches = [
            _reach(frame, k, tap, array.shape[axes[k]], sizes[k]) for k, tap in enumerate(taps)
        ]
        to, at = [slice(None)] * array.ndim, [slice(None)] * array.ndim
        for axis, reach in zip(axes, reaches, strict=True):
            to[axis], at[axis] = reach or (slice(0), slice(0))
        part = array[tuple(at)]
        with np.errstate(over="ignore"):
            found[tuple(to)] += np.where(part == ZERO, ZERO, joined(part, tag(number)))
            counts[tuple(to)] += np.uint64(1)
    return np.where(found == ZERO, ZERO, mixed(found)), counts


def _reach(frame: Frame, k: int, tap: int, size: int, outputs: int) -> tuple[slice, slice] | None:
    """The outputs that a tap serves along an axis, and the inputs that they read by it."""
    stride, offset = frame.stride[k], tap * frame.dilation[k] - frame.padding[k][0]
    first = max(0, -(offset // stride)) if offset < 0 else 0
    most, end = (size, outputs) if frame.transposed else (outputs, size)
    last = min(most, (end - 1 - offset) // stride + 1)
    if first >= last:
        return None
    begin = first * stride + offset
    few, many = slice(first, last), slice(begin, (last - 1) * stride + offset + 1, stride)
    return (many, few) if frame.transposed else (few, many)


def divisors(frame: Frame, sizes: Sequence[int], outputs: Sequence[int]) -> np.ndarray:
    """Returns how many places of the padded input each window of an average covers."""
    found = np.ones(tuple(outputs), np.uint64)
    for k, (size, count) in enumerate(zip(sizes, outputs, strict=True)):
        starts = np.arange(count) * frame.stride[k]
        ends = np.minimum(starts + frame.kernel[k], size + sum(frame.padding[k]))
        line = (ends - starts).astype(np.uint64)
        found *= line.reshape([-1 if n == k else 1 for n in range(len(outputs))])
    return found


def grouped(one: Labels, axis: int, groups: int, filters: int) -> tuple[np.ndarray, bool]:
    """Returns labels of what each filter reads at a place, one for all filters if ``groups`` is 1;
    and whether they stand for each filter already."""
    channels = one.shape[axis]
    if one.implicit(axis):
        word = tag(mixing.hashed(one.name(axis)), channels)
        return np.where(one.array == ZERO, ZERO, joined(one.array, word)), False
    index = np.arange(1, channels + 1, dtype=np.uint64)
    index = index.reshape([-1 if a == axis else 1 for a in range(one.array.ndim)])
    each = np.where(one.array == ZERO, ZERO, joined(one.array, index))
    shape = (*each.shape[:axis], groups, channels // groups, *each.shape[axis + 1 :])
    sums = mixing.summed(mixing.scattered(each.reshape(shape)), (axis + 1,))
    if groups == 1:
        return sums, False
    return np.repeat(sums, filters // groups, axis=axis), True
