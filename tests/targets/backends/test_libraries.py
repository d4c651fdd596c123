"""Every library: exact on integers in the formats that it has, every order revealed and replayed.

A row says what a library can: a new one is rows here, and what is its own in a file of its name.
"""

from __future__ import annotations

import pytest

from probe.case.operation import OPERATIONS
from tests.targets.backends.conforming import CASES, CONVOLUTIONS, findings, not_replayed

pytestmark = pytest.mark.long

FEW = CASES[1::3]
"""One channel, many channels and filters, a bias behind a border, three axes."""

ALL = "float32 float64 float16 bfloat16"
QUICK = [
    ("torch", "float32 bfloat16 float64", 9),
    ("jax", "float32", 9),
    ("onnxruntime,weights=argument", "float32", 3),
    ("litert", "float32 float16", 5),
    ("litert,xnnpack=0", "float32", 5),
    ("opencv", "float32", 3),
    ("opencv,winograd=0", "float32", 5),
]
SLOW = [
    ("tensorflow", ALL, 1),
    ("tensorflow,onednn=0", "float32 float16", 1),
    ("tensorflow,onednn=0,contraction=0", "float32", 1),
    ("tensorflow,mode=graph", "float32 bfloat16", 9),
    ("tensorflow,xla=1", "float32 bfloat16", 9),
    ("tensorflow,weights=constant", "float32 bfloat16", 9),
    ("keras", "float32", 1),
    ("keras,mode=graph", "float32", 3),
    ("torch", "float32", 1),
    ("torch,mkldnn=0", "float32 bfloat16", 3),
    ("torch,deterministic=1", "float32", 7),
    ("jax", ALL, 5),
    ("onnxruntime", "float32 float16", 1),
    ("onnxruntime,threads=1,deterministic=1", "float32", 1),
    ("openvino", "float32 float16", 5),
    ("openvino,precision=f32", "float32 float16", 5),
    ("openvino,precision=f32,threads=1", "float32 float16", 5),
    ("openvino,weights=argument", "float32 float16", 5),
    ("litert", "float32 float16", 1),
    ("litert,xnnpack=0", "float32", 1),
    ("litert,threads=2", "float32", 1),
    ("opencv", "float32", 1),
    ("opencv,threads=1", "float32", 3),
]
"""Target, formats, and every which spec of the check is asked. Slow: minutes, or a compiler."""

PRODUCTS_TOO = ("tensorflow", "keras")
"""Libraries that are asked for products and sums beside convolutions."""


def _strided_and_dilated(spec):
    """ONNX Runtime refuses auto_pad with dilation, and with a stride the padding is the size's."""
    both = max(spec["stride"]) > 1 and max(spec["dilation"]) > 1
    return spec["padding"] == "same" and both


MAY_REFUSE = {
    "tensorflow": lambda spec: True,  # its own test knows which
    "keras": lambda spec: True,
    "onnxruntime": _strided_and_dilated,
    "litert": lambda spec: (
        spec["op"] == "conv3d" and (spec["groups"] > 1 or spec["dtype"] == "float16")
    ),
    "litert,xnnpack=0": lambda spec: True,
    "litert,threads=2": lambda spec: True,
}
"""Specs that a target, or all targets of a library, may refuse; others refuse none."""

REPLAYED = [
    ("torch", "float32", FEW),
    ("jax", "float32", FEW),
    ("litert", "float32", FEW),
    ("opencv", "float32", FEW),
    ("openvino,precision=f32,weights=argument", "float32", CASES[::4]),
]
SLOWLY_REPLAYED = [
    *((text, "float32", CASES) for text in ("torch", "torch,mkldnn=0", "torch,threads=1")),
    *((text, "float32", CASES) for text in ("jax", "jax,threads=1")),
    *((text, "float32", CASES) for text in ("onnxruntime", "onnxruntime,weights=argument")),
    *((text, "float32", CASES) for text in ("litert", "litert,xnnpack=0", "litert,threads=2")),
    *((text, "float32", CASES) for text in ("opencv", "opencv,winograd=0")),
    *(
        (text, dtype, CASES[::3])
        for text in ("torch", "jax")
        for dtype in ("float64", "float16", "bfloat16")
    ),
    ("onnxruntime", "float16", CASES[::3]),
    ("litert", "float16", [case for case in CASES[::3] if case.op != "conv3d"]),
    # constant weights are compiled anew for each mask, some 20 ms each
    ("openvino,precision=f32", "float32", CASES[2:3]),
]


def _rows(quick, slow):
    return [*quick, *(pytest.param(*row, marks=pytest.mark.slow) for row in slow)]


@pytest.mark.parametrize(("text", "dtypes", "every"), _rows(QUICK, SLOW))
def test_integers_are_exact_and_only_what_may_be_is_refused(started, text, dtypes, every):
    library = text.partition(",")[0]
    ops = OPERATIONS if library in PRODUCTS_TOO else CONVOLUTIONS
    found = findings(started(text), dtypes.split(), every, ops)
    assert not found["wrong"]
    may_refuse = MAY_REFUSE.get(text, MAY_REFUSE.get(library, lambda spec: False))
    assert all(may_refuse(finding.spec) for finding in found["unsupported"])


@pytest.mark.parametrize(("text", "dtype", "cases"), _rows(REPLAYED, SLOWLY_REPLAYED))
def test_every_output_is_revealed_and_replayed(started, text, dtype, cases):
    assert not not_replayed(started(text), cases, dtype)
