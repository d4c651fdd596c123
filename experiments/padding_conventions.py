"""Which inputs does SAME read? TensorFlow, Keras, ONNX, Caffe and PyTorch differ.

The windows are read off each library, so nothing here is taken from documentation: the shortest
case that shows it (four numbers, a kernel of two), a small image at strides 1 and 2 before and
after the padding that fixes it, SAME over sizes, kernels, strides and dilations, and pooling that
rounds up or down.

Writes results/padding_conventions/<machine>/*.parquet; notebooks/padding_conventions.ipynb draws
them. Change what you like below and run it again: what is stored is not measured twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from lib import frame
from lib.conventions import read_windows
from probe import Case
from probe.case.errors import InputError
from probe.order.window import equivalent

FOUR = Case("conv1d", 2, length=4, stride=2, padding="same", weights="0,1", operands="count")
"""The data 1 2 3 4: an output shows which of its two inputs met the weight 1."""

IMAGE = Case("conv2d", 3, 3, 8, length=10, height=10, padding="same", operands="image")
KERAS = Case("conv2d", 2, length=5, height=5, stride=2, operands="count")
POOL = Case("max_pool2d", 3, length=6, height=6, stride=2)
LONG = Case("max_pool1d", 3, length=112, stride=2, padding=1)

SIZES, KERNELS, STRIDES, DILATIONS = range(5, 13), range(1, 8), (1, 2, 3), (1, 2)

WAYS = [
    ("tensorflow", "same"),
    ("keras", "same"),
    ("onnxruntime", "same"),
    ("onnxruntime", "same_lower"),
    ("opencv", "caffe"),
    ("torch", "caffe"),
]
"""What a user of each library writes for "the output as large as the input": the library's word
where it has one; else, as in Caffe and PyTorch, (extent - 1) // 2 on both sides."""

QUICK = [("reference", "same"), ("reference", "same_lower"), ("reference", "caffe")]


@frame.script
def main(experiment: frame.Experiment) -> None:
    read_windows(experiment, questions(experiment.quick))


def questions(quick: bool) -> Iterator[tuple[str, Case]]:
    """(target, case): every one a set of windows to read."""
    yield from table(QUICK if quick else WAYS, SIZES[:2] if quick else SIZES)
    if quick:
        return
    for text in ("tensorflow", "keras", "jax", "onnxruntime"):
        yield text, FOUR
    yield "onnxruntime", FOUR.with_(padding="same_lower")
    for text in ("torch", "opencv"):
        yield text, FOUR.with_(padding=1)
        yield text, equivalent(FOUR, text).case
    yield from images()
    yield from layers()


def table(ways: list[tuple[str, str]], sizes: range) -> Iterator[tuple[str, Case]]:
    """SAME over size, kernel, stride and dilation."""
    for size, kernel, stride, dilation in product(sizes, KERNELS, STRIDES, DILATIONS):
        for text, padding in ways:
            steps: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": padding}
            try:
                yield text, Case("conv1d", kernel, length=size, **steps)
            except InputError:  # the kernel is longer than the input and Caffe's padding
                continue


def images() -> Iterator[tuple[str, Case]]:
    """The image at both strides: in TensorFlow, in PyTorch as first ported, and fixed."""
    for stride in (1, 2):
        case = IMAGE.with_(stride=stride)
        yield "tensorflow", case
        yield "torch", case.with_(padding=1)
        for text in ("torch", "keras", "jax", "onnxruntime", "opencv"):
            yield text, equivalent(case, text).case


def layers() -> Iterator[tuple[str, Case]]:
    """Sizes that people count on their fingers: Keras' convolution, and pooling on an even map."""
    yield "keras", KERAS.with_(padding="same")
    yield "keras", KERAS
    yield "keras", KERAS.with_(length=6, height=6)
    for pool in (POOL, LONG):
        up = pool.with_(ceil_mode=True)
        for text in ("opencv", "torch", "onnxruntime"):
            yield text, up
        for text in ("torch", "onnxruntime", "tensorflow", "keras"):
            yield text, pool
    for text in ("tensorflow", "keras"):
        yield text, POOL.with_(padding="same")


if __name__ == "__main__":
    main()
