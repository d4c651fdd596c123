"""Computes windows: the padding of an input, the number of outputs, what each output reads.

Padding is the name of a convention or one ``(before, after)`` pair an axis. ``valid`` adds nothing.
``same`` is TensorFlow's: ``ceil(size / stride)`` outputs, and where the zeros needed are odd in
number the extra one goes *after*, so with a stride the padding before depends on the size.
``same_lower`` is ONNX's SAME_LOWER: as many zeros, the odd one *before*. ``caffe`` is symmetric,
``(extent - 1) // 2`` on both sides, whatever the size, and its pooling rounds the number of outputs
up. Sources: TensorFlow's API documentation of ``tf.nn.convolution`` ("Notes on padding"), ONNX's of
Conv, Caffe's ``conv_layer.cpp`` and ``pooling_layer.cpp``.

An *extent* is what a dilated kernel spans: ``(kernel - 1) * dilation + 1``. No array but indices is
made here, and targets' interpreters import it (Python 3.6, NumPy 1.11).

A transposed convolution spreads every input over the outputs, a stride apart; its padding is what
is trimmed from them. Seen from an output it is a window like any other, see ``TransposedSizes``.
"""

import itertools
from typing import Any, Callable, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

Pair = Tuple[int, int]
Padding = Union[str, Tuple[Pair, ...]]

CONVENTIONS = {
    "valid": "no padding: only windows that lie inside the input",
    "same": "TensorFlow's: ceil(size / stride) outputs, the odd zero goes after the input",
    "same_lower": "ONNX's SAME_LOWER: as same, but the odd zero goes before the input",
    "caffe": "(extent - 1) // 2 zeros on both sides",
}
# Conventions whose padding depends on the size of the input.
BY_SIZE = ("same", "same_lower")


def around(
    padding: Any, axis: int, size: Any, extent: int, stride: int, maximum: Callable = max
) -> Pair:
    """The padding before and after ``size`` inputs on an axis of that extent and stride.

    ``size`` may be a library's own scalar: then ``maximum`` is the library's.
    """
    if padding == "valid":
        return 0, 0
    if padding == "caffe":
        return (extent - 1) // 2, (extent - 1) // 2
    if padding not in BY_SIZE:
        before, after = padding[axis]
        return before, after
    missing = maximum((size - 1) // stride * stride + extent - size, 0)
    less, more = missing // 2, missing - missing // 2
    return (less, more) if padding == "same" else (more, less)


class Span(NamedTuple):
    """One axis: padding on both sides, what the last window reads beyond it, and the outputs.

    ``outputs`` is 0 where not even one window fits, and None where the size isn't known.
    """

    before: int
    after: int
    beyond: int
    outputs: Any


class WindowSizes(NamedTuple):
    """The windows of an operation: sizes for every spatial axis, and the padding of its input.

    ``ceil``: the last window may reach beyond the padded input, as long as it starts in the input
    or in the padding before it (PyTorch's ``ceil_mode``; Caffe's pooling).
    """

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    padding: Any = "valid"
    ceil: bool = False

    @property
    def extents(self) -> Tuple[int, ...]:
        """What the dilated kernel spans on each axis, in elements."""
        return tuple(self.extent(axis) for axis in range(len(self.kernel)))

    def extent(self, axis: int) -> int:
        """What the dilated kernel spans on one axis, in elements."""
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def around(self, axis: int, size: Any, maximum: Callable = max) -> Pair:
        """The padding (before, after) of one axis; see the function of this name."""
        extent, stride = self.extent(axis), self.stride[axis]
        return around(self.padding, axis, size, extent, stride, maximum)

    def span(self, axis: int, size: Any, maximum: Callable = max) -> Span:
        """The Span of one axis of that size; of size None where the padding doesn't depend on it.

        With ``maximum`` the size may be a library's own scalar, unless the number is rounded up.
        """
        if size is None:
            return Span(*self.around(axis, 1), beyond=0, outputs=None)
        before, after = self.around(axis, size, maximum)
        extent, stride = self.extent(axis), self.stride[axis]
        room = size + before + after - extent
        if not self.ceil:
            return Span(before, after, 0, maximum(room // stride + 1, 0))
        outputs = -(-room // stride) + 1
        outputs = max(outputs - ((outputs - 1) * stride >= size + before), 0)
        return Span(before, after, max((outputs - 1) * stride - room, 0), outputs)

    def spans(self, sizes: Sequence[Any], maximum: Callable = max) -> List[Span]:
        """The Span of every axis."""
        return [self.span(axis, size, maximum) for axis, size in enumerate(sizes)]

    def pads(self, sizes: Sequence[int]) -> Tuple[Pair, ...]:
        """The padding (before, after) of every axis, a tuple of pairs."""
        return tuple(self.around(axis, size) for axis, size in enumerate(sizes))

    def outputs(self, sizes: Sequence[int]) -> Tuple[int, ...]:
        """How many outputs there are on every axis, a tuple."""
        return tuple(self.span(axis, size).outputs for axis, size in enumerate(sizes))

    def shortest(self, axis: int) -> int:
        """The smallest size of an axis that has an output."""
        around_one = around(self.padding, axis, 1, self.extent(axis), 1)
        return max(self.extent(axis) - sum(around_one), 1)

    def reads(self, axis: int, size: int) -> np.ndarray:
        """Indices that the outputs read along an axis, (outputs, kernel) int64.

        Those outside [0, size) are padding, and from size + after on (with ``ceil``) beyond it.
        """
        before, _, _, outputs = self.span(axis, size)
        starts = np.arange(outputs) * self.stride[axis] - before
        return starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]

    @property
    def spread(self) -> "WindowSizes":
        """Itself; of a transposed convolution its windows over an input with gaps."""
        return self

    def places(self) -> List[Tuple[int, ...]]:
        """Every place of the kernel, row by row: a list of tuples with an index for each axis."""
        return list(itertools.product(*[range(size) for size in self.kernel]))

    def seen(self, place: Sequence[int], outputs: Sequence[Any]) -> Tuple[slice, ...]:
        """Slices of a padded input, one an axis: what the outputs read at one place of the kernel.

        ``outputs``: how many there are on each axis.
        """
        axes = zip(place, outputs, self.stride, self.dilation)
        parts: List[slice] = []
        for at, count, stride, dilation in axes:
            start = at * dilation
            parts.append(slice(start, start + (count - 1) * stride + 1, stride))
        return tuple(parts)


class TransposedSizes(WindowSizes):
    """The windows of a transposed convolution: input i adds to the outputs from i * stride on.

    ``padding``: outputs that are trimmed before and after; a negative number after stands for more
    of them, which PyTorch calls ``output_padding``. ``same`` gives size * stride outputs and
    ``valid`` at least as many, at every size: TensorFlow's documentation of ``conv2d_transpose``.
    """

    def around(self, axis: int, size: Any, maximum: Callable = max) -> Pair:
        """The outputs (before, after) that are cut off one axis."""
        rest = self.extent(axis) - self.stride[axis]
        if self.padding == "valid":
            return 0, min(rest, 0)
        if self.padding in BY_SIZE:
            odd = int(self.padding == "same_lower")
            before = (max(rest, 0) + odd) // 2
            return before, rest - before
        return WindowSizes.around(self, axis, size, maximum)

    def span(self, axis: int, size: Any, maximum: Callable = max) -> Span:
        before, after = self.around(axis, size, maximum)
        outputs = None
        if size is not None:
            outputs = (size - 1) * self.stride[axis] + self.extent(axis) - before - after
        return Span(before, after, 0, outputs)

    def shortest(self, axis: int) -> int:
        before, after = self.around(axis, 1)
        return max(1 - (self.extent(axis) - 1 - before - after) // self.stride[axis], 1)

    def reads(self, axis: int, size: int) -> np.ndarray:
        """As of any windows; -1 also where a tap meets no input, but the gap between two."""
        before, _, _, outputs = self.span(axis, size)
        place = np.arange(outputs) + before
        start = place[:, None] - np.arange(self.kernel[axis]) * self.dilation[axis]
        return np.where(start % self.stride[axis], -1, start // self.stride[axis])

    @property
    def spread(self) -> WindowSizes:
        """The plain windows, whose taps are in the opposite order, over an input with stride - 1
        zeros between its elements. Their padding may be negative: elements are cut off."""
        pairs = []
        for axis, extent in enumerate(self.extents):
            before, after = self.around(axis, 1)
            pairs.append((extent - 1 - before, extent - 1 - after))
        return WindowSizes(self.kernel, (1,) * len(pairs), self.dilation, tuple(pairs))
