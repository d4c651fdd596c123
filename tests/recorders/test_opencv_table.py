"""Every row of OpenCV's table against OpenCV: what is labelled alike is the same number, as of
ONNX's in test_onnx_table.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.recorders.truth import drawn, shares, told

onnx = pytest.importorskip("onnx", reason="OpenCV's recorder writes models of ONNX")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
if not hasattr(cv2.dnn, "readNetFromONNX"):
    pytest.skip("this OpenCV reads no ONNX models", allow_module_level=True)

from probe.recorders.opencv import OpenCVLayer, OpenCVRecorder, OpenedNet, built  # noqa: E402
from probe.recorders.opencv import model as layers_as  # noqa: E402
from probe.recorders.opencv_table import ELTWISE, FUNCTIONS, TABLE  # noqa: E402
from probe.recording.contract import Input  # noqa: E402

NEAR = 1e-3
"""Of float32, relative to the larger number or to 1: what labels confuse is apart by far more."""

RNG, normal = drawn(31)


P, V, T, A = normal(4, 4, 6, 8), normal(4, 2, 5, 6, 4), normal(4, 5, 8), normal(4, 6)


class Sample(NamedTuple):
    """A layer of this type. ``reads``: its inputs, rows of the batch first, or along ``batch``;
    ``blobs``: constants and weights behind; ``gives``: how many results; ``words``: its parameters.
    ``onnx``: the operator of which OpenCV's importer makes it, where it needs what that does."""

    kind: str
    reads: tuple[np.ndarray, ...]
    blobs: tuple[np.ndarray | None, ...]
    gives: int
    words: dict[str, Any]
    onnx: str = ""
    batch: int = 0
    shape: tuple[int, ...] | None = None


def of(kind: str, *reads: np.ndarray, blobs: Any = (), gives: int = 1, **words: Any) -> Sample:
    every = {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in words.items()}
    return Sample(kind, reads, tuple(blobs), gives, {k: v for k, v in every.items() if v != []})


def imported(kind: str, op: str, x: np.ndarray, *constants: Any, batch: int = 0, gives: int = 1,
             shape: Any = None, **words: Any) -> Sample:  # fmt: skip
    return Sample(kind, (x,), constants, gives, words, op, batch, shape)


BINARY = "add mul sub div pow fmod equal greater less sum max min mean".split()
POSITIVE = np.abs(P) + np.float32(0.5)
UNIT = np.tanh(P)
INSIDE = {"Acos": UNIT, "Asin": UNIT, "Atanh": UNIT, "Acosh": POSITIVE + 1, "Sqrt": POSITIVE}
SQUARE = {"kernel_size": [3, 3], "stride": [1, 1], "dilation": [1, 1], "pad": [0, 0, 0, 0]}
NORM = [normal(4), POSITIVE.reshape(-1)[:4].copy()]
SAMPLES = [
    *(of(kind, INSIDE.get(kind, P)) for kind in FUNCTIONS),
    *(of("NaryEltwise", P, POSITIVE, operation=kind) for kind in BINARY),
    *(of("Eltwise", P, POSITIVE, operation=kind.lower()) for kind in ELTWISE if kind.isalpha()),
    of("ReLU", P), of("ReLU", P, negative_slope=0.3), of("ReLU6", P),
    of("PReLU", P, blobs=[normal(4)]),
    of("ChannelsPReLU", P, blobs=[normal(4)]), of("ELU", P), of("ELU", P, alpha=0.7),
    of("Celu", P, alpha=0.7), of("Selu", P),
    of("Power", P, scale=-1.0), of("Power", POSITIVE, power=2.5), of("Exp", P), of("Log", POSITIVE),
    of("Exp", P, base=2.0), of("HardSigmoid", P, alpha=0.2, beta=0.5),
    of("ThresholdedRelu", P, alpha=0.4),
    of("Scale", P, blobs=[normal(4)], axis=1), of("Shift", P, blobs=[normal(4)], axis=1),
    of("BatchNorm", P, blobs=[*NORM, normal(4), normal(4)], has_weight=1, has_bias=1, eps=1e-3),
    imported("LayerNormalization", "LayerNormalization", T, normal(8), normal(8)),
    imported("InstanceNormalization", "InstanceNormalization", P, *NORM, epsilon=1e-4),
    imported("GroupNormalization", "GroupNormalization", P, *NORM, num_groups=2, shape=P.shape),
    of("LRN", P, local_size=3, alpha=0.5, beta=0.7, bias=1.0), of("MVN", P, normalize_variance=1),
    of("MVN", P, across_channels=1), of("Normalize", P, blobs=[normal(1)], across_spatial=1),
    of("Softmax", T, axis=2), of("SoftMax", T, axis=1), of("Softmax", T, axis=2, log_softmax=1),
    *(of("Reduce", P, reduce=kind, axes=[2, 3], keepdims=keep) for keep in (0, 1)
      for kind in ("SUM", "MEAN", "MAX", "MIN", "PROD", "L1", "L2")),
    *(of("Arg", T, op=kind, axis=2, keepdims=1) for kind in ("max", "min")),
    of("TopK", T, axis=2, k=3, largest=1, sorted=1, gives=2),
    of("CumSum", T, axis=2), of("CumSum", T, axis=1, reverse=1),
    of("Convolution", P, blobs=[normal(5, 4, 3, 3), normal(5)], num_output=5, **SQUARE),
    of("Convolution", P, blobs=[normal(6, 2, 3, 3)], num_output=6, group=2, bias_term=0,
       **{**SQUARE, "stride": [2, 1], "pad_mode": "SAME", "pad": []}),
    of("Deconvolution", P, blobs=[normal(4, 3, 3, 3), normal(3)], num_output=3,
       **{**SQUARE, "stride": [2, 2]}),
    of("Convolution", V, blobs=[normal(3, 2, 2, 2, 2), normal(3)], num_output=3,
       kernel_size=[2, 2, 2], stride=[1, 1, 1], dilation=[1, 1, 1], pad=[0] * 6),
    *(of("Pooling", P, pool=kind, kernel_size=[3, 2], stride=[2, 1], pad=[1, 0, 1, 0],
         ceil_mode=0) for kind in ("MAX", "AVE")),
    *(of("Pooling", P, pool=kind, global_pooling=1) for kind in ("MAX", "AVE")),
    of("InnerProduct", A, blobs=[normal(5, 6), normal(5)], num_output=5, axis=1),
    of("InnerProduct", T, blobs=[normal(3, 8)], num_output=3, bias_term=0, axis=2),
    of("MatMul", T, T, transB=1), of("MatMul", A, blobs=[normal(6, 3)]),
    imported("Einsum", "Einsum", T, normal(3, 8), equation="bij,kj->bik"),
    imported("Gemm", "Gemm", A, normal(6, 3), normal(3)),
    imported("Gemm", "Gemm", A, normal(3, 6), transB=1, alpha=0.5),
    imported("LSTM", "LSTM", T.transpose(1, 0, 2).copy(), normal(1, 12, 8), normal(1, 12, 3),
             normal(1, 24), batch=1, hidden_size=3),
    imported("GRU", "GRU", T.transpose(1, 0, 2).copy(), normal(1, 9, 8), normal(1, 9, 3),
             normal(1, 18), None, normal(1, 4, 3), batch=1, hidden_size=3),
    *(imported("LSTM", "LSTM", T.transpose(1, 0, 2).copy(), *(normal(n, *size) for size in
               ((12, 8), (12, 3), (24,))), batch=1, hidden_size=3, direction=way)
      for n, way in ((2, "bidirectional"), (1, "reverse"))),
    of("Attention", T, blobs=[normal(8, 24), normal(24)], num_heads=2, qkv_hidden_sizes=[8, 8, 8]),
    of("Reshape", P, dim=[4, 24, 8]), of("Flatten", P, axis=1),
    of("Permute", P, order=[0, 2, 3, 1]),
    of("Identity", P), of("Dropout", P), of("Split", P, gives=2),
    of("Concat", P, P, axis=1), of("Slice", P, axis=1, slice_point=[1], gives=2),
    of("Slice", P, begin=[0, 1, 2, 0], end=[4, 3, 6, 8]),
    of("Slice", P, begin=[0, 0, 0, 7], end=[4, 4, 6, -9], steps=[1, 1, 1, -2]),
    *(of("Padding", P, paddings=[0, 0, 0, 0, 1, 2, 1, 1], type=kind)
      for kind in ("constant", "reflect", "edge")),
    imported("Gather", "Gather", P, np.array([2, 0, 1]), axis=1),
    imported("Gather", "Gather", P, np.array(-1), axis=2),
    imported("GatherElements", "GatherElements", A, np.array([[0, 5], [1, 1], [2, 0], [3, 4]]),
             axis=1),
    of("Tile", P, repeats=[1, 2, 1, 1]), of("Expand", normal(4, 1, 6), blobs=[], shape=[4, 3, 6]),
    of("ShuffleChannel", P, group=2),
    of("Resize", P, interpolation="nearest", height=12, width=16),
    of("Resize", P, interpolation="bilinear", height=9, width=11),
    of("Interp", P, height=9, width=11),
]  # fmt: skip


def model(one: Sample, given: dict[str, np.ndarray]) -> bytes:
    """The operator as a model of ONNX's."""
    helper, value = onnx.helper, onnx.helper.make_tensor_value_info
    names = ["" if blob is None else f"w{n}" for n, blob in enumerate(one.blobs)]
    outs = ["y", *(f"y{n}" for n in range(1, one.gives))]
    node = helper.make_node(one.onnx, [*given, *names], outs, **one.words)
    both = [(a, n) for a, n in zip(one.blobs, names, strict=True) if a is not None]
    held = [onnx.numpy_helper.from_array(array, name) for array, name in both]
    (x,) = given.values()
    ends = [
        [value("x0", 1, x.shape)],
        [value(outs[0], 1, one.shape), *(value(name, 1, None) for name in outs[1:])],
    ]
    graph = helper.make_graph([node], "g", *ends, held)
    opset = [helper.make_opsetid("", 21)]
    made = helper.make_model(graph, opset_imports=opset, ir_version=9)
    # OpenCV wants the shapes of outputs
    return bytes(onnx.shape_inference.infer_shapes(made).SerializeToString())


def recorder(one: Sample, rows: list[int] | None = None) -> OpenCVRecorder:
    """A net of this layer; with ``rows`` the batch is in this order, and an element is another."""
    given = {}
    for number, array in enumerate(one.reads):
        if rows is not None:
            array = array.take(rows, one.batch)
            array[(*[0] * (array.ndim - 1), array.shape[-1] // 2)] += 1
        given[f"x{number}"] = array
    inputs = tuple(Input(name, array.shape, "float32") for name, array in given.items())
    if one.onnx:
        content = np.frombuffer(model(one, given), np.uint8)
        return OpenedNet(lambda: cv2.dnn.readNetFromONNX(content), inputs, {}).recorder(given)
    names, gives = tuple(given), tuple(f"y{n}" for n in range(one.gives))
    layer = OpenCVLayer("layer", one.kind, names, gives, (*range(one.gives),), one.words, one.blobs)
    fed = {name: (array.shape, "float32") for name, array in given.items()}
    made = layers_as([layer], fed, gives, one.blobs)
    return OpenedNet(lambda: built(made, {}), inputs, {}).recorder(given)


def able(one: Sample) -> bool:
    """Whether the installed OpenCV makes such a layer and runs it."""
    try:
        recorder(one).plain()
    except Exception:  # of OpenCV, whatever it says
        return False
    return True


@pytest.mark.parametrize("number", range(len(SAMPLES)), ids=lambda n: f"{SAMPLES[n].kind}-{n}")
def test_what_is_labelled_alike_is_the_same_number(number: int) -> None:
    one = SAMPLES[number]
    if not able(one):
        pytest.skip("this OpenCV makes no such layer")
    for rows in ([2, 0, 3, 1], [0, 1, 2, 3]):
        found = shares(told(recorder(one), recorder(one, rows), NEAR))
        (op,) = {op.op: op for op, _, _ in found if one.kind in op.op}.values()
        assert all(known for _, _, known in found), op.meaning
        _, share, _ = found[-1]
        assert share or rows[0], "nothing is said to agree with a run that one element differs from"


def test_every_row_of_the_table_is_reached() -> None:
    missing = TABLE.keys() - {one.kind for one in SAMPLES}
    assert not missing, missing
    ran = {one.kind for one in SAMPLES if able(one)}
    assert len(ran) > 0.8 * len(TABLE), sorted(TABLE.keys() - ran)
