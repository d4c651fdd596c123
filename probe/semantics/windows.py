"""Convolutions and pools: each output reads a window, which slides along spatial axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probe.semantics import mixing
from probe.semantics.contract import Meaning, Shapes
from probe.semantics.labels import ZERO, Labels, Name, joint, mixed, tag, with_words
from probe.semantics.moving import Turns
from probe.semantics.sums import Whole


class Frame(NamedTuple):
    """Sizes of a sliding window, one number a spatial axis; as in ``Windows``."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    transposed: bool = False


def slid(
    labels: Labels, axes: Sequence[int], frame: Frame, sizes: Sequence[int], zero: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns a label for each output, and how many inputs it reads.

    ``labels``: in full along ``axes``; ``sizes``: of the outputs along them; ``zero``: whether
    zeros add nothing.
    """
    array = labels.array if zero else mixing.visible(labels.array)
    lengths = list(array.shape)
    for axis, size in zip(axes, sizes, strict=True):
        lengths[axis] = size
    sums, counts = np.zeros(lengths, np.uint64), np.zeros(lengths, np.uint64)
    for number, taps in enumerate(itertools.product(*map(range, frame.kernel))):
        reaches = [
            _tap_reach(frame, k, tap, array.shape[axes[k]], sizes[k]) for k, tap in enumerate(taps)
        ]
        to, at = [slice(None)] * array.ndim, [slice(None)] * array.ndim
        for axis, reach in zip(axes, reaches, strict=True):
            to[axis], at[axis] = reach or (slice(0), slice(0))
        # the tap's number goes in: the same element under another tap meets another weight
        part = array[tuple(at)]
        with np.errstate(over="ignore"):
            sums[tuple(to)] += np.where(part == ZERO, ZERO, joint(part, tag(number)))
            counts[tuple(to)] += np.uint64(1)
    return np.where(sums == ZERO, ZERO, mixed(sums)), counts


def _tap_reach(
    frame: Frame, k: int, tap: int, size: int, outputs: int
) -> tuple[slice, slice] | None:
    """Returns the outputs that a tap serves along an axis, and the inputs that they read by it."""
    # output o reads input o * stride + offset by this tap; transposed it is the other way round
    stride, offset = frame.stride[k], tap * frame.dilation[k] - frame.padding[k][0]
    first = max(0, -(offset // stride))
    most, end = (size, outputs) if frame.transposed else (outputs, size)
    last = min(most, (end - 1 - offset) // stride + 1)
    if first >= last:
        return None
    begin = first * stride + offset
    few, many = slice(first, last), slice(begin, (last - 1) * stride + offset + 1, stride)
    return (many, few) if frame.transposed else (few, many)


def divisors(frame: Frame, sizes: Sequence[int], outputs: Sequence[int]) -> np.ndarray:
    """Returns how many places of the padded input each window of an average covers."""
    covered = np.ones(tuple(outputs), np.uint64)
    for k, (size, count) in enumerate(zip(sizes, outputs, strict=True)):
        starts = np.arange(count) * frame.stride[k]
        ends = np.minimum(starts + frame.kernel[k], size + sum(frame.padding[k]))
        line = (ends - starts).astype(np.uint64)
        covered *= line.reshape([-1 if n == k else 1 for n in range(len(outputs))])
    return covered


def in_groups(labels: Labels, axis: int, groups: int, filters: int) -> tuple[np.ndarray, bool]:
    """Returns labels of what each filter reads at a place, one for all filters if ``groups`` is 1;
    and whether they stand for each filter already."""
    channels = labels.shape[axis]
    if labels.implicit(axis):
        word = tag(mixing.hashed(labels.name(axis)), channels)
        return np.where(labels.array == ZERO, ZERO, joint(labels.array, word)), False
    # channels are added with weights of their own, so that each is named before the sum forgets
    # them
    named = joint(labels.array, _counts_along(labels.array, axis))
    each = np.where(labels.array == ZERO, ZERO, named)
    shape = (*each.shape[:axis], groups, channels // groups, *each.shape[axis + 1 :])
    sums = mixing.summed(mixing.scattered(each.reshape(shape)), (axis + 1,))
    if groups == 1:
        return sums, False
    return np.repeat(sums, filters // groups, axis=axis), True


def _counts_along(array: np.ndarray, axis: int) -> np.ndarray:
    """Returns 1, 2, ... along an axis of an array."""
    index = np.arange(1, array.shape[axis] + 1, dtype=np.uint64)
    return index.reshape([-1 if a == axis else 1 for a in range(array.ndim)])


@dataclass(frozen=True)
class Windows(Meaning):
    """A convolution or a pool: each output reads a window of its input, channel by channel or all.

    ``spatial``: the input's spatial axes; ``channels``: its channel axis. ``kernel``, ``stride``,
    ``dilation``: one a spatial axis; ``padding``: (before, after) a spatial axis. ``kind``:
    ``convolution``, ``transposed``, ``max``, ``average`` or ``sum``. ``groups``: of a convolution.
    ``reads``: input, weights and bias by number; a pool has its input alone. ``weights``: the axes
    of the weights in the order (*kernel, in channels, filters). ``counts_padding``: an average
    divides by the whole window at the edges too. ``ceil``: the last window may reach beyond.
    ``flipped``: of a transposed convolution, the weights' last tap comes first, as in JAX.
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
    flipped: bool = False

    @property
    def rounds(self) -> int | None:
        return 0 if self.kind == "max" else None

    @property
    def sums(self) -> bool:
        return self.kind != "max"

    @property
    def pool(self) -> bool:
        """Returns whether each channel is computed from its own alone, without weights."""
        return self.kind in ("max", "average", "sum")

    @property
    def frame(self) -> Frame:
        """Returns where its windows lie."""
        turned = self.kind == "transposed"
        return Frame(self.kernel, self.stride, self.dilation, self.padding, turned)

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        source, shape = reads[self.reads[0]], shapes[0]
        rest = [reads[n] for n in self.reads[1:]]
        source = source._replace(array=source.full(self.spatial))
        frame = self.frame
        sizes = tuple(shape[a] for a in self.spatial)
        each = False
        if not self.pool:
            array, each = in_groups(source, self.channels, self.groups, shape[self.channels])
            source = source._replace(array=array)
        label, counts = slid(source, self.spatial, frame, sizes, self.kind != "max")
        what = with_words(tag("window"), self.kind, self.kernel)
        if self.kind == "average":
            if self.counts_padding:
                covered = divisors(frame, [source.shape[a] for a in self.spatial], sizes)
                counts = covered.reshape(
                    [n if a in self.spatial else 1 for a, n in enumerate(counts.shape)]
                )
            label = joint(label, counts)
        # in one order of axes, whatever the library's is; as they are if that is open
        weights = [
            Turns(self.weights).labels([other], [], ZERO)[0]
            if len(self.weights) == len(other.shape)
            else other
            for other in rest[:1]
        ]
        label = np.where(
            (label == ZERO) & (not rest), ZERO, joint(label, mixing.one_label(weights, what))
        )
        names: list[Name] = list(map(source.name, range(len(shape))))
        if not self.pool:
            names[self.channels] = ("filters",)
        if each:
            label = joint(label, _counts_along(label, self.channels))
        labels = Labels(shape, label, mixing.all_known(reads), tuple(names))
        for bias in rest[1:]:  # as an addition behind has it
            added = mixing.lay_along(bias, self.channels, len(shape))
            labels = mixing.associated(labels, added, True)
        if not shapes[1:]:
            return [labels]
        # where a pool's largest elements are, counted in the whole plane
        own = tuple((a, a) for a in range(len(shape)) if a not in self.spatial)
        numbers = self.kernel, self.stride, self.dilation, self.padding, self.ceil, *shapes[1:]
        places = Whole(own, "places", numbers)
        plane = [reads[self.reads[0]]]
        return [labels, *places.labels(plane, shapes[1:], tag(self.word, "places"))]


@dataclass(frozen=True)
class Convolution(Meaning):
    """``conv_general_dilated`` in its full generality, by way of :class:`Windows`.

    ``turned``: axes that put the input into the output's order. ``holes``: elements of the input
    are so far apart, an axis each (``lhs_dilation``). ``batches``: ``batch_group_count``.
    """

    windows: Windows
    turned: tuple[int, ...]
    holes: tuple[int, ...]
    batches: int = 1
    word: str = "convolution"

    @property
    def sums(self) -> bool:
        return True

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (source, *rest), shape = reads, shapes[0]
        turned = tuple(source.shape[axis] for axis in self.turned)
        (source,) = Turns(self.turned).labels([source], [turned], what)
        source = self._apart(source)
        if self.batches == 1:
            return self.windows.labels([source, *rest], shapes, what)
        channels = self.windows.channels
        (batch,) = {*range(len(shape))} - {channels, *self.windows.spatial}
        sizes = tuple(n // self.batches if a == batch else n for a, n in enumerate(source.shape))
        wanted = tuple(n // self.batches if axis == channels else n for axis, n in enumerate(shape))
        parts = []
        for n, group in enumerate(np.split(source.full([batch]), self.batches, batch)):
            some = Labels(sizes, group, source.known, source.names)
            (part,) = self.windows.labels([some, *rest], [wanted], what)
            parts.append(joint(part.full(), tag("group", n)))
        known = all(source.known for source in reads)
        return [Labels(shape, np.concatenate(parts, channels), known)]

    def _apart(self, source: Labels) -> Labels:
        if set(self.holes) <= {1}:  # speed alone
            return source
        spatial = self.windows.spatial
        array, shape = source.full(spatial), list(source.shape)
        for axis, step in zip(spatial, self.holes, strict=True):
            shape[axis] = (shape[axis] - 1) * step + 1 if shape[axis] else 0
        lengths = [shape[a] if a in spatial else n for a, n in enumerate(array.shape)]
        spread = np.zeros(lengths, np.uint64)
        at = [slice(None)] * len(shape)
        for axis, step in zip(spatial, self.holes, strict=True):
            at[axis] = slice(None, None, step)
        spread[tuple(at)] = array
        return Labels(tuple(shape), spread, source.known, source.names)
