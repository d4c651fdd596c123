"""Do publicly reported differences between convolutions still occur, where, and why?

Threads of PyTorch, TensorFlow, Keras, ONNX Runtime, oneDNN and converters, each as a case: run on
every CPU target, the cause revealed and replayed, and the smallest case that still shows it. Titles
and answers are our own words; the thread says the rest. Half an hour on two processors.

Writes results/public_reports/<machine>/*.parquet; notebooks/public_reports.ipynb draws them. Add a
thread below and run it again: what is stored already is not run twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lib import frame
from lib.frame import LIBRARIES, REPORT, patient
from lib.reports import Conventions, Operators, Pair, Report, ask
from probe import Case, Store, Target, load

NAME = "public_reports"

TARGETS = [
    *LIBRARIES,
    *("tensorflow,isa=sse41", "tensorflow,onednn=0,contraction=0", "tensorflow,xla=1"),
]

QUICK = "reference reference,algorithm=pairwise,length_switch=9".split()

WITHOUT_SAME = ("torch", "opencv")
"""Libraries whose users write padding=1 where others write SAME."""

CANCEL: dict[str, Any] = {"operands": "cancel"}
"""Random numbers hide about half of what a changed order does to short sums; these show it."""


def conv(op: str, kernel: Any, channels: int, filters: int, **more: Any) -> Case:
    """Returns a convolution with numbers that show a changed order."""
    return Case(op, kernel, channels, filters, **(CANCEL | more))


def product(channels: int, filters: int, **more: Any) -> Case:
    """Returns a matrix product; its rows are the axis ``length``."""
    return Case("matmul", in_channels=channels, filters=filters, **(CANCEL | more))


ONE = np.float32(1) * np.float32(242) / np.float32(62) / np.float32(62)
"""What every element of the map is in pytorch/pytorch#24172, before it is squared."""


def map_and_sum(side: int) -> tuple[Case, Case]:
    """Returns a convolution over a whole map, and the sum of the same numbers."""
    return (
        Case("conv2d", side, length=side, height=side),
        Case("sum", in_channels=side**2, length=1),
    )


def pointwise_and_product(channels: int) -> tuple[Case, Case]:
    """Returns a 1x1 convolution of two maps of one element, and a dense layer of two rows."""
    filters = 2 * channels
    return (
        conv("conv2d", 1, channels, filters, length=1, height=1, batch=2, bias="normal"),
        product(channels, filters, length=2, bias="normal"),
    )


def padding_of_one(target: Target, case: Case) -> Case:
    """SAME, where there is such a word; else padding=1, as it is first ported."""
    return case.with_(padding=1) if target.name in WITHOUT_SAME else case


def same(target: Target, case: Case) -> Case:
    """padding="same" for explicit pads of 1, where there is such a word."""
    return case if target.name in (*WITHOUT_SAME, "onnxruntime") else case.with_(padding="same")


def zeros_first(target: Target, case: Case) -> Case:
    """Returns a layer that pads with zeros before the maximum, where a converter needs one."""
    return case.with_(pad_with="zeros") if target.name in ("keras", "tensorflow") else case


def rounding_down(target: Target, case: Case) -> Case:
    """Pooling without Caffe's rounding up."""
    return case if target.name == "opencv" else case.with_(ceil_mode=False)


def all_channels(_: Target, case: Case) -> Case:
    """Filters over all channels, where the case has one group for each."""
    return case.with_(groups=1)


FOUR = Case("conv1d", 2, length=4, stride=2, padding="same", weights="0,1", operands="count")
IMAGE = Case("conv2d", 3, 3, 8, length=10, height=10, stride=2, padding="same", operands="image")
PADS = Case("conv2d", 3, 3, 4, length=6, height=6, stride=2, padding=1, operands="image")
GROUPED = Case("conv1d", 3, 2, 2, length=3, padding="2:0", groups=2, operands="count")
ZEROS = Case("max_pool2d", 3, 128, length=12, height=12, stride=2, padding=1)
POOL = Case("max_pool1d", 3, length=112, stride=2, padding=1, ceil_mode=True)

REPORTS = [
    Report(
        "the original report",
        "the first outputs of a 1x5 convolution over 10 * arange(T) change with T",
        None,
        (
            Pair("length 7 against 8", REPORT, "length", 7, 8),
            Pair("length 9 against 19", REPORT, "length", 9, 19),
        ),
        home="tensorflow,onednn=0,contraction=0",
    ),
    Report(
        "pytorch/pytorch#24172",
        "62x62 equal numbers convolved with ones are not their sum: 15.2355 and 15.2352",
        "a reader: float32 holds seven digits, float64 mends it; filed under MKL-DNN, closed",
        (Operators("conv2d 62x62 against sum", map_and_sum, 62, float(ONE * ONE)),),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#134908",
        "two images in one batch or one by one: a 3x3 convolution, 4 -> 3 channels, differs",
        "which oneDNN algorithm runs in the two cases was asked; closed",
        (
            Pair(
                "batch 1 against 2",
                conv("conv2d", 3, 4, 3, height=8, length=6, bias="normal"),
                *("batch", 1, 2),
            ),
        ),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#81694",
        "Conv1d 256 -> 256, kernel 5, length 10: a signal alone or repeated in a batch",
        None,
        (
            Pair(
                "batch 1 against 2",
                conv("conv1d", 5, 256, 256, length=10, padding=2, bias="normal"),
                *("batch", 1, 2),
            ),
        ),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#91612",
        "Conv1d 256 -> 1024, kernel 3, length 25: the first of 1 and of 20",
        None,
        (Pair("batch 1 against 20", conv("conv1d", 3, 256, 1024, length=25), "batch", 1, 20),),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#116373",
        "a pointwise Conv1d 96 -> 96 of the first 100 of 201 positions, on a GPU",
        "TF32 on that GPU: switched off, the two agree",
        tuple(
            Pair(
                f"length {length} against 201",
                conv("conv1d", 1, 96, 96, batch=10, bias="normal"),
                *("length", length, 201),
            )
            for length in (1, 100)
        ),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#104587",
        "a streaming Conv1d, one step at a time, against the whole signal",
        "shapes may take other algorithms, so bits are not promised; seen on an M1, not on x86",
        tuple(
            Pair(
                f"kernel {2 * hop}: length {2 * hop} against {10 * hop}",
                conv("conv1d", 2 * hop, 1, 8, stride=hop),
                *("length", 2 * hop, 10 * hop),
            )
            for hop in (1, 16, 160)
        ),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#156154",
        "a 1x1 convolution and a linear layer with the same weights, batch above 1",
        "algorithms that are equal over real numbers need not round alike",
        (Operators("conv2d 1x1 against matmul", pointwise_and_product, 64),),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#51276",
        "a float64 matrix product of one row, and of two",
        None,
        (Pair("rows 1 against 2", product(90, 128, dtype="float64"), "length", 1, 2),),
        home="torch",
    ),
    Report(
        "pytorch/pytorch#124025",
        "a linear layer gives a sample other numbers in a batch (here 512 -> 512)",
        "expected: the notes on numerical accuracy promise no equal bits for slices of a batch",
        (Pair("rows 1 against 32", product(512, 512), "length", 1, 32),),
        home="torch",
    ),
    Report(
        "tensorflow/tensorflow#61422",
        "a Conv2D copied with a subset of its filters (here 3x3, 4 channels)",
        "closed as stale",
        tuple(
            Pair(
                f"filters {few} against {many}",
                conv("conv2d", 3, 4, many, height=8, length=8, bias="normal"),
                *("filters", few, many),
            )
            for few, many in ((1, 6), (3, 6), (5, 8))
        ),
        home="tensorflow",
    ),
    Report(
        "tensorflow/tensorflow#8670",
        "Inception's outputs depend on the batch; first at a 3x3 convolution 16 -> 32",
        "sizes may be computed by other operations for speed; not taken for a bug",
        (
            Pair(
                "batch 1 against 20",
                conv("conv2d", 3, 16, 32, height=28, length=28, padding="same"),
                *("batch", 1, 20),
            ),
        ),
        home="tensorflow",
    ),
    Report(
        "tensorflow/tensorflow#46770",
        "a dense layer over 93 x 3286 numbers: batch 1 and 2, with 65 units and with one",
        "closed without an answer from the reporter",
        tuple(
            Pair(
                f"{units} unit{'s' * (units > 1)}: batch 1 against 2",
                product(3286, units, length=93),
                *("batch", 1, 2),
            )
            for units in (65, 1)
        ),
        home="tensorflow",
    ),
    Report(
        "tensorflow/tensorflow#127346",
        "a float32 product of 12,608 rows is off by 3066 between CPU and GPU",
        "TF32 on the GPU; a pull request writes it into the documentation (#127577)",
        reason="needs a GPU with TF32; its rounding of the operands is simulated instead",
    ),
    Report(
        "microsoft/onnxruntime#7642",
        "Gemm 512 -> 64: one row, and the same row twice",
        None,
        (Pair("rows 1 against 2", product(512, 64, bias="normal"), "length", 1, 2),),
        home="onnxruntime",
    ),
    Report(
        "uxlfoundation/oneDNN#1354",
        "an 8-bit convolution gives 66 on AVX2 and 130 with VNNI",
        "labelled an enhancement, closed; #717: without VNNI a 16-bit sum may overflow",
        reason="8-bit integers, which no case has; overflow of 16-bit sums, not rounding",
    ),
    Report(
        "AxisCommunications/onnx-to-keras#31",
        "padded max-pooling differs after conversion to Keras",
        "mended by padding with -127.5 in place of zero (#32)",
        (
            Conventions(
                "padding left out against zeros put in",
                *("onnxruntime", ZEROS, zeros_first),
                small=Case("max_pool2d", 2, 4, length=1, height=1, padding="0:1,0:1"),
            ),
        ),
        home="keras",
    ),
    Report(
        "torch/nn#116",
        "max-pooling has one output less than Caffe's",
        "a ceil mode was added (#309)",
        (
            Conventions(
                "rounded up against rounded down",
                *("opencv", POOL, rounding_down),
                small=Case("max_pool1d", 2, length=3, stride=2, ceil_mode=True),
            ),
        ),
        home="torch",
    ),
    Report(
        "keras-team/keras#12557",
        "Conv3D over 41x41x41 depends on the batch, over 40x40x40 it doesn't",
        None,
        (
            Pair(
                "batch 1 against 2",
                conv("conv3d", 5, 1, 32, height="41x41", length=41, padding="same"),
                *("batch", 1, 2),
            ),
        ),
        home="keras",
    ),
    Report(
        "pytorch/pytorch#9326",
        "Conv2d 31x11 over 180x110, and over the first 100 columns",
        "a reader: differences of 1e-7, as algorithm and precision may give",
        (
            Pair(
                "length 100 against 110",
                conv("conv2d", "31x11", 1, 20, height=180, batch=16, bias="normal"),
                *("length", 100, 110),
            ),
        ),
        home="torch",
    ),
    Report(
        "porting: SAME, four numbers",
        "1 2 3 4, weights 0 1, stride 2: TensorFlow gives 2 4, the port 1 3",
        None,
        (Conventions("SAME against padding=1", "tensorflow", FOUR, padding_of_one),),
        home="torch",
    ),
    Report(
        "porting: SAME, an image",
        "3x3 over 10x10 with stride 2: off by 0.21 on average, with stride 1 by 2e-8",
        None,
        (Conventions("SAME against padding=1", "tensorflow", IMAGE, padding_of_one),),
        home="torch",
    ),
    Report(
        "porting: ONNX pads as SAME",
        "pads of 1 carried to padding='same' with stride 2",
        None,
        (Conventions("padding=1 against SAME", "onnxruntime", PADS, same),),
        home="keras",
    ),
    Report(
        "porting: depthwise",
        "two channels of 1 2 3 under three ones: 1 3 6 expected, 2 6 12 computed",
        None,
        (
            Conventions(
                "a filter for each channel against filters over all",
                *("", GROUPED, all_channels),
                small=Case("conv1d", 1, 2, 2, length=1, groups=2, operands="count"),
            ),
        ),
        home="torch",
    ),
]
"""In the order in which the notebook shows them. What a thread's own shape leaves open is said."""


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, explains, shrinks, stores and prints; whether Ctrl-C ended it."""
    targets = [Target.parse(text) for text in (QUICK if quick else TARGETS)]
    reports = [small(one) for one in REPORTS] if quick else REPORTS
    with Store.here(store) as kept:
        with frame.bar("public reports") as progress:
            asked = ask(reports, targets, kept, NAME, progress, patient)
        if not asked.interrupted:
            simulate_tf32(kept, 8 if quick else 64 * 197)
    return frame.told(asked, "findings made")


def small(report: Report) -> Report:
    """Returns the report with the questions that NumPy alone answers in a moment."""
    kept = tuple(q for q in report.questions if isinstance(q, Pair) and cost(q.case) < 5e4)
    return Report(*(report.thread, report.title, report.answer), kept, report.home, report.reason)


def cost(case: Case) -> float:
    """Returns products of one run, its length at the shortest where it is open."""
    length = case.length or case.shortest_length
    return case.summands * float(np.prod(case.output_shape(length)))


def simulate_tf32(kept: Store, rows: int) -> None:
    """tensorflow/tensorflow#127346 without its GPU: TF32 keeps 10 of the operands' 23 bits.

    The report's own generator and seed; ``rows`` of its 64 * 197. Stores the largest difference.
    """
    draw = np.random.default_rng(133006).standard_normal
    x = draw((64, 197, 1536)).astype(np.float32).reshape(-1, 1536)[:rows] * np.float32(1000)
    w = (draw((384, 1536)).astype(np.float32) * np.float32(50)).T
    apart = np.abs(x @ w - tf32(x) @ tf32(w)).max()
    row: dict[str, Any] = {"subject": "tensorflow/tensorflow#127346", "variant": "simulated TF32"}
    row |= {"size": rows, "repeat": 0, "value": float(apart), "unit": "largest difference"}
    kept.append("measurements", row | {"run_id": load(kept.path).runs.run_id.iloc[-1]})


def tf32(array: np.ndarray) -> np.ndarray:
    """float32 rounded to 10 fraction bits, to nearest, ties to even."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    bits = bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


if __name__ == "__main__":
    main()
