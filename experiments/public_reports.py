"""Do publicly reported differences between convolutions still occur, where, and why?

Threads of PyTorch, TensorFlow, Keras, ONNX Runtime, oneDNN and converters, each as a case: run on
every CPU target, the cause revealed and replayed, and the smallest case that still shows it. Titles
and answers are our own words; the thread says the rest. Half an hour on two processors.

Writes results/public_reports/<machine>/*.parquet; notebooks/public_reports.ipynb draws them. Add a
thread below and run it again: what is stored already is not run twice.
"""

from __future__ import annotations

from typing import Any

from lib import frame
from lib.frame import LIBRARIES, REPORT
from lib.reports import Pair, Report, ask
from probe import Case

TARGETS = [
    *LIBRARIES,
    *("tensorflow,isa=sse41", "tensorflow,onednn=0,contraction=0", "tensorflow,xla=1"),
]

CANCEL: dict[str, Any] = {"operands": "cancel"}
"""Random numbers hide about half of what a changed order does to short sums; these show it."""


def conv(op: str, kernel: Any, channels: int, filters: int, **more: Any) -> Case:
    return Case(op, kernel, channels, filters, **(CANCEL | more))


def product(channels: int, filters: int, **more: Any) -> Case:
    """A matrix product; its rows are the axis ``length``."""
    return Case("matmul", in_channels=channels, filters=filters, **(CANCEL | more))


REPORTS = [
    Report(
        "the original report",
        "the first outputs of a 1x5 convolution over 10 * arange(T) change with T",
        None,
        (Pair(REPORT, "length", 7, 8), Pair(REPORT, "length", 9, 19)),
        home="tensorflow,onednn=0,contraction=0",
    ),
    Report(
        "pytorch/pytorch#134908",
        "two images in one batch or one by one: a 3x3 convolution, 4 -> 3 channels, differs",
        "which oneDNN algorithm runs in the two cases was asked; closed",
        (Pair(conv("conv2d", 3, 4, 3, height=8, length=6, bias="normal"), "batch", 1, 2),),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#81694",
        "Conv1d 256 -> 256, kernel 5, length 10: a signal alone or repeated in a batch",
        None,
        (Pair(conv("conv1d", 5, 256, 256, length=10, padding=2, bias="normal"), "batch", 1, 2),),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#116373",
        "a pointwise Conv1d 96 -> 96 of the first 100 of 201 positions, on a GPU",
        "TF32 on that GPU: switched off, the two agree",
        tuple(
            Pair(conv("conv1d", 1, 96, 96, batch=10, bias="normal"), "length", length, 201)
            for length in (1, 100)
        ),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#104587",
        "a streaming Conv1d, one step at a time, against the whole signal",
        "shapes may take other algorithms, so bits are not promised; seen on an M1, not on x86",
        tuple(
            Pair(conv("conv1d", n, 1, 8, stride=n // 2), "length", n, 5 * n, f"kernel {n}: ")
            for n in (2, 32, 320)
        ),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#51276",
        "a float64 matrix product of one row, and of two",
        None,
        (Pair(product(90, 128, dtype="float64"), "length", 1, 2),),
        home="torch",
    ),
    Report(
        "tensorflow/tensorflow#61422",
        "a Conv2D copied with a subset of its filters (here 3x3, 4 channels)",
        "closed as stale",
        tuple(
            Pair(
                conv("conv2d", 3, 4, many, height=8, length=8, bias="normal"), "filters", few, many
            )
            for few, many in ((1, 6), (3, 6), (5, 8))
        ),
        home="tensorflow",
    ),
    Report(
        "tensorflow/tensorflow#8670",
        "Inception's outputs depend on the batch; first at a 3x3 convolution 16 -> 32",
        "sizes may be computed by other operations for speed; not taken for a bug",
        (Pair(conv("conv2d", 3, 16, 32, height=28, length=28, padding="same"), "batch", 1, 20),),
        home="tensorflow",
    ),
    Report(
        "tensorflow/tensorflow#127346",
        "a float32 product of 12,608 rows is off by 3066 between CPU and GPU",
        "TF32 on the GPU; a pull request writes it into the documentation (#127577)",
        reason="needs a GPU with TF32",
    ),
    Report(
        "microsoft/onnxruntime#7642",
        "Gemm 512 -> 64: one row, and the same row twice",
        None,
        (Pair(product(512, 64, bias="normal"), "length", 1, 2),),
        home="onnxruntime",
    ),
    Report(
        "uxlfoundation/oneDNN#1354",
        "an 8-bit convolution gives 66 on AVX2 and 130 with VNNI",
        "labelled an enhancement, closed; #717: without VNNI a 16-bit sum may overflow",
        reason="8-bit integers, which no case has; overflow of 16-bit sums, not rounding",
    ),
    Report(
        "keras-team/keras#12557",
        "Conv3D over 41x41x41 depends on the batch, over 40x40x40 it doesn't",
        None,
        (Pair(conv("conv3d", 5, 1, 32, height="41x41", length=41, padding="same"), "batch", 1, 2),),
        home="keras",
    ),
]
"""In the order in which the notebook shows them. What a thread's own shape leaves open is said."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    reports = REPORTS[:1] if experiment.quick else REPORTS
    ask(experiment, reports, frame.QUICK if experiment.quick else TARGETS)


if __name__ == "__main__":
    main()
