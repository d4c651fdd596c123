"""What libraries' lines compute: products and sums revealed and replayed, new weights, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.case import Case
from probe.case.errors import TargetError
from probe.report import program
from probe.report.program import of_case
from probe.targets.backends import conformance, source
from probe.targets.target import Target
from tests.targets.backends import conforming

pytestmark = pytest.mark.long

SPECS = [one for one in conformance.specs() if one[0]["op"] in source.PRODUCT_OPS]
LIBRARIES = (
    *("numpy", "tensorflow", "tensorflow,mode=graph", "tensorflow,weights=constant", "keras"),
    *("torch", "torch,linear=0", "jax", "onnxruntime", "onnxruntime,weights=argument"),
    *("litert", "litert,xnnpack=0", "opencv"),
)
SHAPES = [
    Case("matmul", in_channels=37, filters=5, length=3),
    Case("matmul", in_channels=37, filters=5, length=1, bias="normal"),
    Case("matmul", in_channels=16, filters=3, length=4, batch=2),
    Case("dot", in_channels=70, length=1),
    Case("dot", in_channels=37, length=5),
    Case("dot", in_channels=37, filters=5, length=1),
    Case("sum", in_channels=37, length=3),
    Case("sum", in_channels=150, length=1),
    Case("dense", in_channels=37, filters=5, batch=3),
    Case("dense", in_channels=37, filters=5, batch=1, bias="normal"),
]
LAYERS = ("matmul", "dense")
MODELS = ("litert", "litert,xnnpack=0", "opencv")
"""Libraries that run models of layers, and no sum alone."""


SWITCHES = ("tensorflow,mode=graph", "tensorflow,weights=constant")
"""They compile every shape."""


@pytest.mark.parametrize(
    "text",
    [pytest.param(one, marks=pytest.mark.slow) if one in SWITCHES else one for one in LIBRARIES],
)
@pytest.mark.slow_at("jax", "keras", "tensorflow", "torch", "torch,linear=0")
def test_a_library_agrees_with_exact_products_or_refuses_by_op_or_dtype(started, text):
    run = conforming.asking(started(text))
    found = [conformance.compare_spec(*one, run) for one in SPECS]
    assert not [one for one in found if one.verdict == "wrong"]
    refused = {(one.spec["op"], one.spec["dtype"]) for one in found if one.verdict != "agrees"}
    allowed = {(op, "bfloat16") for op in source.PRODUCT_OPS}
    if text.startswith(("keras", "litert", "opencv")):
        allowed = {(op, dtype) for op in ("dot", "sum") for dtype in conformance.DTYPES}
    if text.startswith(("litert", "opencv")):
        narrow = [dtype for dtype in conformance.DTYPES if dtype != "float32"]
        allowed |= {(op, dtype) for op in LAYERS for dtype in narrow}
    assert refused <= allowed


@pytest.mark.parametrize("text", ["numpy", "tensorflow", "torch", "jax", "onnxruntime", *MODELS])
@pytest.mark.slow_at("jax", "onnxruntime", "tensorflow")
def test_products_and_sums_are_revealed_and_replayed(started, text):
    shapes = [one for one in SHAPES if text not in MODELS or one.op in LAYERS]
    assert not conforming.not_replayed(started(text), shapes)


@pytest.mark.parametrize("text", MODELS)
@pytest.mark.parametrize("shape", [SHAPES[1].with_(length=9), SHAPES[-1].with_(batch=9)])
def test_a_script_holds_the_model_of_a_product(started, text, shape):
    case, target = shape, Target.parse(text)
    x, w, b = case.operands()
    found = of_case(target, "", case, (x, w, b))
    lines = [*("import base64", "import numpy as np"), *found.imports, "def script(x, w, b):"]
    lines += [f"    {line}" for line in program.block(list(found.body))]
    names = {}
    exec("\n".join(lines), names)
    y = conforming.run(started(text), case.spec(), x, w, b)
    assert (names["script"](x, w, b) == y).all()


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float16", marks=pytest.mark.slow)])
def test_numpys_are_replayed_in_other_formats(started, dtype):
    assert not conforming.not_replayed(started("numpy"), SHAPES, dtype)


@pytest.mark.parametrize(
    "text",
    [
        *("onnxruntime", "onnxruntime,weights=argument", "opencv", "litert", "reference"),
        pytest.param("tensorflow,weights=constant", marks=pytest.mark.slow),
    ],
)
def test_new_weights_and_a_new_bias_count(started, text):
    spec = conformance.spec("conv1d", [2], bias=True)
    x = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    for w, b, expected in ((1, 1, [2, 4, 6]), (2, 1, [3, 7, 11]), (2, 0, [2, 6, 10])):
        weights, bias = np.full((2, 1, 1), w, np.float32), np.array([b], np.float32)
        assert conforming.run(started(text), spec, x, weights, bias).ravel().tolist() == expected


LACKING = [
    ("onnxruntime", "float64", "NOT_IMPLEMENTED"),
    ("onnxruntime", "bfloat16", "ONNX Runtime has float32"),
    ("opencv", "bfloat16", "float32"),
    ("openvino,precision=f32", "float64", "OpenVINO has float32, float16"),
    ("litert,xnnpack=0", "float16", "LiteRT refuses: .*kTfLiteFloat32"),
]


@pytest.mark.parametrize(("text", "dtype", "why"), LACKING)
def test_formats_that_a_library_lacks_are_unsupported(started, text, dtype, why):
    kind = "uint16" if dtype == "bfloat16" else dtype
    spec = conformance.spec("conv1d", [2], dtype=dtype)
    with pytest.raises(TargetError, match=why) as caught:
        conforming.run(started(text), spec, np.ones((1, 4, 1), kind), np.ones((2, 1, 1), kind))
    assert caught.value.kind == "unsupported"
