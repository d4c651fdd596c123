"""Every row of OpenCV's table: what it says of a layer is what OpenCV gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.record.recorders.recorded import drawn, held_to_account

onnx = pytest.importorskip("onnx", reason="OpenCV's recorder writes models of ONNX")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
if not hasattr(cv2.dnn, "readNetFromONNX"):
    pytest.skip("this OpenCV reads no ONNX models", allow_module_level=True)

from probe.record.contract import Input  # noqa: E402
from probe.record.recorders.opencv import OpenCVLayer, OpenCVRecorder, OpenedNet, built  # noqa: E402
from probe.record.recorders.opencv import model as layers_as  # noqa: E402
from probe.record.recorders.opencv_table import ELTWISE, FUNCTIONS, TABLE  # noqa: E402

RNG, normal = drawn(31)
P, V, T, A = normal(4, 4, 6, 8), normal(4, 2, 5, 6, 4), normal(4, 5, 8), normal(4, 6)


class Sample(NamedTuple):
    """A layer of this type. ``reads``: its inputs; ``blobs``: constants and weights behind;
    ``gives``: how many results; ``words``: its parameters. ``onnx``: the operator of which OpenCV's
    importer makes it, where it needs what that does."""

    kind: str
    reads: tuple[np.ndarray, ...]
    blobs: tuple[np.ndarray, ...]
    gives: int
    words: dict[str, Any]
    onnx: str = ""
    shape: tuple[int, ...] | None = None


def of(kind: str, *reads: np.ndarray, blobs: Any = (), gives: int = 1, **words: Any) -> Sample:
    every = {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in words.items()}
    return Sample(kind, reads, tuple(blobs), gives, {k: v for k, v in every.items() if v != []})


def imported(op: str, x: np.ndarray, *constants: Any, shape: Any = None, **words: Any) -> Sample:
    return Sample(op, (x,), constants, 1, words, op, shape)


BINARY = "add mul sub div pow fmod equal greater less sum max min mean".split()
POSITIVE = np.abs(P) + np.float32(0.5)
UNIT = np.tanh(P)
INSIDE = {"Acos": UNIT, "Asin": UNIT, "Atanh": UNIT, "Acosh": POSITIVE + 1, "Sqrt": POSITIVE,
          "Not": np.float32(P > 0)}  # fmt: skip
SQUARE = {"kernel_size": [3, 3], "stride": [1, 1], "dilation": [1, 1], "pad": [0, 0, 0, 0]}
NORM = [normal(4), POSITIVE.reshape(-1)[:4].copy()]
SAMPLES = [
    *(of(kind, INSIDE.get(kind, P)) for kind in FUNCTIONS),
    *(of("NaryEltwise", POSITIVE if kind == "pow" else P, POSITIVE,
        operation=kind) for kind in BINARY),
    *(of("Eltwise", P, POSITIVE, operation=kind.lower()) for kind in ELTWISE if kind.isalpha()),
    of("Eltwise", P, POSITIVE, operation="sum", coeff=[0.5, 2.0]),
    of("ReLU", P), of("ReLU", P, negative_slope=0.3), of("ReLU6", P),
    of("PReLU", P, blobs=[normal(4)]),
    of("ChannelsPReLU", P, blobs=[normal(4)]), of("ELU", P), of("ELU", P, alpha=0.7),
    of("Celu", P, alpha=0.7), of("Selu", P), of("Power", P, scale=-1.0),
    of("Power", POSITIVE, power=2.5),
    of("Power", POSITIVE, power=2.0, scale=0.5, shift=1.0), of("Exp", P), of("Exp", P, base=2.0),
    of("Log", POSITIVE), of("HardSigmoid", P, alpha=0.2, beta=0.5),
    of("ThresholdedRelu", P, alpha=0.4),
    of("BatchNorm", P, blobs=[*NORM, normal(4), normal(4)], has_weight=1, has_bias=1, eps=1e-3),
    imported("LayerNormalization", T, normal(8), normal(8)),
    imported("InstanceNormalization", P, *NORM),
    imported("GroupNormalization", P, *NORM, num_groups=2, shape=P.shape),
    of("Softmax", T, axis=2), of("SoftMax", T, axis=1), of("Softmax", T, axis=2, log_softmax=1),
    *(of("Reduce", P, reduce=kind, axes=[2, 3], keepdims=keep) for keep in (0, 1)
      for kind in ("SUM", "MEAN", "MAX", "MIN", "PROD", "L1", "L2")),
    *(of("Arg", T, op=kind, axis=2, keepdims=1) for kind in ("max", "min")),
    of("TopK", T, axis=2, k=3, largest=1, sorted=1, gives=2),
    of("Convolution", P, blobs=[normal(5, 4, 3, 3), normal(5)], num_output=5, **SQUARE),
    of("Convolution", P, blobs=[normal(6, 2, 3, 3)], num_output=6, group=2, bias_term=0,
       **{**SQUARE, "stride": [2, 1], "pad_mode": "SAME", "pad": []}),
    of("Deconvolution", P, blobs=[normal(4, 3, 3, 3), normal(3)], num_output=3,
       **{**SQUARE, "stride": [2, 2]}),
    of("Convolution", V, blobs=[normal(3, 2, 2, 2, 2), normal(3)], num_output=3,
       kernel_size=[2, 2, 2], stride=[1, 1, 1], dilation=[1, 1, 1], pad=[0] * 6),
    *(of("Pooling", P, pool=kind, kernel_size=[3, 2], stride=[2, 1], pad=[1, 0, 1, 0],
        ceil_mode=ceil)
      for kind in ("MAX", "AVE") for ceil in (0, 1)),
    *(of("Pooling", P, pool=kind, global_pooling=1) for kind in ("MAX", "AVE")),
    of("InnerProduct", A, blobs=[normal(5, 6), normal(5)], num_output=5, axis=1),
    of("InnerProduct", T, blobs=[normal(3, 8)], num_output=3, bias_term=0, axis=2),
    of("MatMul", T, T, transB=1), of("MatMul", A, blobs=[normal(6, 3)]),
    imported("Einsum", T, normal(3, 8), equation="bij,kj->bik"),
    imported("Gemm", A, normal(6, 3), normal(3)),
    imported("Gemm", A, normal(3, 6), transB=1, alpha=0.5),
    of("Reshape", P, dim=[4, 24, 8]), of("Flatten", P, axis=1),
    of("Permute", P, order=[0, 2, 3, 1]),
    of("Identity", P), of("Dropout", P), of("Split", P, gives=2), of("Concat", P, P, axis=1),
    of("Slice", P, axis=1, slice_point=[1], gives=2),
    of("Slice", P, begin=[0, 1, 2, 0], end=[4, 3, 6, 8]),
    *(of("Padding", P, paddings=[0, 0, 0, 0, 1, 2, 1, 1], type=kind)
      for kind in ("constant", "reflect", "edge")),
    imported("Gather", P, np.array([2, 0, 1]), axis=1),
    imported("GatherElements", A, np.array([[0, 5], [1, 1], [2, 0], [3, 4]]), axis=1),
    of("Tile", P, repeats=[1, 2, 1, 1]), of("Expand", normal(4, 1, 6), blobs=[], shape=[4, 3, 6]),
    of("ShuffleChannel", P, group=2),
]  # fmt: skip


def model(sample: Sample, given: dict[str, np.ndarray]) -> bytes:
    """The operator as a model of ONNX's."""
    helper, value = onnx.helper, onnx.helper.make_tensor_value_info
    names = [f"w{n}" for n in range(len(sample.blobs))]
    node = helper.make_node(sample.onnx, [*given, *names], ["y"], **sample.words)
    held = [onnx.numpy_helper.from_array(*pair) for pair in zip(sample.blobs, names, strict=True)]
    ends = [value("x0", 1, given["x0"].shape)], [value("y", 1, sample.shape)]
    graph = helper.make_graph([node], "g", *ends, held)
    opset = [helper.make_opsetid("", 21)]
    made = helper.make_model(graph, opset_imports=opset, ir_version=9)
    # OpenCV wants the shapes of outputs
    return bytes(onnx.shape_inference.infer_shapes(made).SerializeToString())


def recorder(sample: Sample) -> OpenCVRecorder:
    """A net of this layer."""
    given = {f"x{number}": array for number, array in enumerate(sample.reads)}
    inputs = tuple(Input(name, array.shape, "float32") for name, array in given.items())
    if sample.onnx:
        content = np.frombuffer(model(sample, given), np.uint8)
        return OpenedNet(lambda: cv2.dnn.readNetFromONNX(content), inputs, {}).recorder(given)
    names, gives = tuple(given), tuple(f"y{n}" for n in range(sample.gives))
    ends = names, gives, (*range(sample.gives),)
    layer = OpenCVLayer("layer", sample.kind, *ends, sample.words, sample.blobs)
    fed = {name: (array.shape, "float32") for name, array in given.items()}
    made = layers_as([layer], fed, gives, sample.blobs)
    return OpenedNet(lambda: built(made, {}), inputs, {}).recorder(given)


def able(sample: Sample) -> bool:
    """Whether the installed OpenCV makes such a layer and runs it."""
    try:
        recorder(sample).plain()
    except Exception:  # of OpenCV, whatever it says
        return False
    return True


def test_every_row_says_what_opencv_gives() -> None:
    missing = TABLE.keys() - {sample.kind for sample in SAMPLES}
    assert not missing, missing
    samples = [sample for sample in SAMPLES if able(sample)]
    ran = {sample.kind for sample in samples}
    assert len(ran) > 0.8 * len(TABLE), sorted(TABLE.keys() - ran)
    # its functions are approximations, and its products may be of Winograd's
    held_to_account(map(recorder, samples), 1e-3)
