"""Ports an ONNX model's explicit pads to Keras, as ZeroPadding and VALID, and as SAME.

Converters meet `pads=[1, 1, 1, 1]` and are tempted to write padding="same". At stride 1 that is the
same; at stride 2, on an even map, every window moves by one. Maxima have a second trap: ONNX leaves
padding out, and ZeroPadding2D puts zeros in.

Writes results/onnx_conversion/<machine>/*.parquet; notebooks/onnx_conversion.ipynb draws them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lib import frame
from lib.conventions import read_windows
from probe import Case
from probe.order.window import equivalent

CONV = Case("conv2d", 3, 3, 4, length=6, height=6, padding=1, operands="image")
DEEP = Case("depthwise_conv2d", 3, 3, length=6, height=6, padding=1, operands="image")
LARGE = Case("conv2d", 5, 2, 2, length=8, height=8, padding=2, operands="image")
POOLS = [Case(op, 3, 2, length=6, height=6, padding=1) for op in ("max_pool2d", "avg_pool2d")]

ZEROS = Case("max_pool2d", 3, 128, length=12, height=12, stride=2, padding=1)
"""So many channels that at every place some have a window of negative numbers alone."""

STRIDES, GROWTH = (1, 2), (0, 1)
"""GROWTH: elements added to the map, so that even and odd sizes are there."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    read_windows(experiment, questions(experiment.quick))


def questions(quick: bool) -> Iterator[tuple[str, Case]]:
    """(target, case): the model in ONNX Runtime, and its two conversions in Keras."""
    onnx, keras = ("reference", "reference") if quick else ("onnxruntime", "keras")
    for model, stride, more in product((CONV, DEEP, LARGE, *POOLS), STRIDES, GROWTH):
        assert model.length is not None and model.height is not None
        height, length = model.height[0] + more, model.length + more
        case = model.with_(stride=stride, length=length, height=height)
        yield onnx, case
        yield keras, equivalent(case, "keras").case
        yield keras, case.with_(padding="same")
        if model in POOLS:
            yield keras, case.with_(pad_with="zeros")  # ZeroPadding2D before the pooling
    yield onnx, ZEROS
    yield keras, ZEROS.with_(pad_with="zeros")
    yield keras, equivalent(ZEROS, "keras").case


if __name__ == "__main__":
    main()
