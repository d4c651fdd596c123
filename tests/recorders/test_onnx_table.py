"""Every meaning of ONNX's table against ONNX Runtime: what is labelled alike is the same number.

All operators stand in a few models, on the same inputs. The other run has the rows of the batch in
another order, some left out, and one element changed: whatever an operator's labels say must agree,
within a run and between both, is looked up in the numbers that it gave.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.recorders.rows import ELSEWHERE
from tests.recorders.truth import agreed, drawn, shares, told

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from probe.errors import InputError  # noqa: E402
from probe.recorders import onnxruntime  # noqa: E402
from probe.recorders.onnx_table import NUMBERED, TABLE, UNARY  # noqa: E402

NEAR = 1e-3
"""Of float32, relative to the larger number or to 1: what labels confuse is apart by far more."""

RNG, normal = drawn(11)
MS, NEWEST = "com.microsoft", 20
NEW = {"Swish": 24, "RMSNormalization": 23, "RotaryEmbedding": 23, "Attention": 23, "CumProd": 26}
KINDS = {np.dtype(k): v for k, v in {
    "float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8,
    "uint64": TensorProto.UINT64}.items()}  # fmt: skip


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


INPUTS: dict[str, tuple[np.ndarray, int | None]] = {
    "a": (normal(4, 6), 0), "b": (normal(4, 6), 0), "row": (normal(6), None),
    "t": (normal(4, 5, 8), 0), "u": (normal(4, 5, 8), 0), "heads": (normal(4, 2, 5, 4), 0),
    "p": (normal(4, 6, 8, 7), 0), "l": (normal(4, 6, 9), 0), "s": (normal(5, 4, 3), 1),
    "h": (normal(1, 4, 2), 1), "hh": (normal(2, 4, 2), 1),
    "m": (normal(4, 3, 3), 0), "g": (normal(4, 3, 2, 2) / 2, 0),
    "i": (RNG.integers(0, 200, (4, 6)), 0), "j": (RNG.integers(0, 200, (4, 6)), 0),
    "y": (RNG.integers(0, 250, (4, 6, 5, 5)).astype(np.uint8), 0),
    "z": (RNG.integers(0, 250, (4, 6)).astype(np.uint8), 0),
    "k": (RNG.random((4, 6)) < 0.5, 0), "o": (RNG.random((4, 6)) < 0.5, 0),
    "n": (RNG.integers(0, 99, (4, 6)).astype(np.uint64), 0),
    "off": (normal(4, 8, 7, 6), 0), "theta": (normal(4, 2, 3), 0), "w": (normal(4, 16, 1), 0),
    "a2": (normal(4, 3), 0), "first": (normal(4, 3), 0), "t2": (normal(4, 5, 1), 0),
    "blocks": (normal(4, 8, 2, 3), 0), "at": (RNG.integers(0, 5, (4, 5)), 0),
}  # fmt: skip
"""Arrays, and the axis along which they have the rows of the batch."""


class Node(NamedTuple):
    """One operator: names of inputs or constants. ``alone``: whatever is changed, nothing of it
    need agree; ``fixed``: it takes one size of the batch."""

    op: str
    reads: tuple[Any, ...]
    words: dict[str, Any]
    outputs: int = 1
    domain: str = ""
    opset: int = NEWEST
    alone: bool = False
    fixed: bool = False


def of(op: str, *reads: Any, outputs: int = 1, domain: str = "", opset: int = NEWEST,
       alone: bool = False, fixed: bool = False, **words: Any) -> Node:  # fmt: skip
    opset = NEWEST if domain else NEW.get(op, opset)
    return Node(op, reads, words, outputs, domain, opset, alone, fixed)


def ms(op: str, *reads: Any, **words: Any) -> Node:
    return of(op, *reads, domain=MS, **words)


WINDOWS = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}
INFINITE = np.float32([-np.inf, np.inf, 1])
BOXES = np.float32([[0, 0, 4, 4], [1, 1, 5, 6], [2, 0, 6, 3]])
Q = {"scale": np.float32(0.05), "zero": np.uint8(7)}

FUNCTIONS = [
    *(of(op, "a") for op in UNARY if op not in ("Not", "BitwiseNot")),
    *(of(op, "a", domain=MS * (op == "QuickGelu")) for op in NUMBERED),
    *(of(op, "a", alpha=0.3) for op in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "Selu")),
    of("HardSigmoid", "a", beta=0.1), of("Shrink", "a", bias=0.25), of("Selu", "a", gamma=2.0),
    of("IsInf", INFINITE), of("IsNaN", INFINITE),
    of("IsInf", INFINITE, detect_negative=0),
    of("Not", "k"), of("BitwiseNot", "i"), of("Swish", "a", alpha=1.0), of("Swish", "a", alpha=0.5),
    *(of(op, one, other) for op in ("Add", "Mul", "Sub", "Div", "PRelu", "Less", "Greater",
      "LessOrEqual", "GreaterOrEqual") for one, other in (("a", "b"), ("b", "row"))),
    of("Equal", "a", "a"), of("Equal", "i", "j"), of("Mod", "i", "j"), of("Mod", "a", "b", fmod=1),
    of("Pow", "a", np.float32([2.0])), *(of(op, "k", "o") for op in ("And", "Or", "Xor")),
    *(of(op, "i", "j") for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(of("BitShift", "n", np.uint64([2]), direction=one) for one in ("LEFT", "RIGHT")),
    of("Where", "k", "a", "b"), of("Where", "k", "b", "row"),
    *(of(op, *reads) for op in ("Max", "Min", "Sum", "Mean")
      for reads in (("a",), ("a", "b"), ("a", "row", "b"))),
    of("Identity", "a"), of("Dropout", "a"), of("Gelu", "a"), of("Gelu", "a", approximate="tanh"),
    ms("BiasGelu", "a", "row"), ms("FastGelu", "a"), ms("FastGelu", "a", "row"),
    of("Clip", "a", np.float32(-0.5), np.float32(0.5)), of("Clip", "a", np.float32(0.0)),
    of("Clip", "a", None, np.float32(0.7)), of("Cast", "a", to=TensorProto.FLOAT16),
    of("Cast", "a", to=TensorProto.INT32), of("Cast", "a", to=TensorProto.DOUBLE),
    of("CastLike", "a", np.int32([0])), of("CastLike", "a", np.float32([0])),
    of("QuantizeLinear", "a", Q["scale"], Q["zero"]), of("QuantizeLinear", "a", Q["scale"]),
    of("QuantizeLinear", "p", np.abs(normal(6)) / 9, np.zeros(6, np.uint8), axis=1),
    of("DequantizeLinear", "z", Q["scale"], Q["zero"]), of("DequantizeLinear", "z", Q["scale"]),
]  # fmt: skip

PRODUCTS = [
    of("Conv", "p", normal(4, 3, 3, 2), normal(4), group=2, pads=[1, 0, 1, 1]),
    of("Conv", "l", normal(4, 6, 3), auto_pad="SAME_UPPER", strides=[2]),
    of("Conv", "l", normal(4, 6, 3), auto_pad="SAME_LOWER", strides=[2]),
    of("Conv", "l", normal(4, 6, 3), dilations=[2]), of("ConvTranspose", "l", normal(6, 2, 4)),
    of("ConvTranspose", "l", normal(6, 2, 4), strides=[2], pads=[1, 2], output_padding=[1]),
    ms("FusedConv", "l", normal(4, 6, 3), normal(4), activation="Relu"),
    ms("FusedConv", "l", normal(4, 6, 3), activation="LeakyRelu", activation_params=[0.3]),
    of("MaxPool", "p", **WINDOWS), of("AveragePool", "p", **WINDOWS),
    of("AveragePool", "p", **WINDOWS, count_include_pad=1),
    of("AveragePool", "p", **WINDOWS, ceil_mode=1), of("MaxPool", "p", **WINDOWS, ceil_mode=1),
    of("LpPool", "p", **WINDOWS), of("LpPool", "p", **WINDOWS, p=1),
    *(of(op, "p") for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    of("GlobalLpPool", "p", p=1), of("MatMul", "a", normal(6, 3)), of("MatMul", "t", normal(8, 2)),
    of("MatMul", "a", "row"), of("MatMul", "m", "m"), of("Einsum", "a", "b", equation="bi,bj->bij"),
    ms("FusedMatMul", "t", normal(3, 8), transB=1, alpha=0.25),
    ms("FusedMatMul", "t", "u", transA=1),
    of("Gemm", "a", normal(3, 6), normal(3), transB=1), of("Gemm", "a", normal(6, 3), alpha=0.5),
    of("Gemm", "a", normal(6, 3), "a2"), of("Gemm", "a", normal(6, 3), normal(3), beta=0.5),
    of("Gemm", "a", normal(6, 3), "a2", alpha=0.25), of("Gemm", "a", normal(6, 3), "a2", beta=0.0),
    of("Einsum", "t", normal(8, 3), equation="...ij,jk->...ik"),
    of("Einsum", "a", "b", equation="ij,ij->", alone=True), of("Einsum", "t", equation="bij->bji"),
 ms("FusedGemm", "a", normal(6, 3), activation="Relu"),
    of("QLinearConv", "y", Q["scale"], Q["zero"],
       RNG.integers(0, 250, (3, 6, 2, 2)).astype(np.uint8), Q["scale"], Q["zero"],
       np.float32(0.4), Q["zero"]),
    of("ConvInteger", "y", RNG.integers(0, 250, (3, 6, 2, 2)).astype(np.uint8), Q["zero"]),
    of("MatMulInteger", "z", RNG.integers(0, 250, (6, 3)).astype(np.uint8), Q["zero"]),
    of("QLinearMatMul", "z", Q["scale"], Q["zero"], RNG.integers(0, 250, (6, 3)).astype(np.uint8),
       Q["scale"], Q["zero"], np.float32(0.4), Q["zero"]),
    of("DynamicQuantizeLinear", "a", outputs=3, alone=True),
    ms("DynamicQuantizeMatMul", "a", RNG.integers(0, 250, (6, 3)).astype(np.uint8), Q["scale"],
       alone=True),
    of("DFT", "t2", axis=1, opset=17), of("DFT", "t2", axis=1, inverse=1, opset=17),
    of("DFT", "t2", axis=0, opset=17, alone=True), of("DFT", "t2", None, ints(0)[0], alone=True),
    of("DFT", "t2", axis=1, onesided=1, opset=17), of("LRN", "p", size=3),
    of("LRN", "p", size=3, alpha=0.5), of("Einsum", "a", normal(6, 3), equation="bi,ij->jb"),
    of("Einsum", "t", normal(5, 8), equation="bij,iJ->bJj"),
]  # fmt: skip

LSTM = [normal(1, 8, 3), normal(1, 8, 2), normal(1, 16)]
BOTH = [normal(2, 6, 3), normal(2, 6, 2)]
LAYERS = [
    *(of(op, "t", alone=True) for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare",
       "ReduceLogSumExp")),
    *(of(op, "t", ints(1)) for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
       "ReduceL2",
      "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceSum", "ReduceMean")),
    of("ReduceMean", "t", ints(-1, 1), keepdims=0), of("ReduceSum", "t", ints(0)),
    of("ReduceSum", "t", noop_with_empty_axes=1),
    *(of(op, "t", axis=axis, keepdims=keep) for op in ("ArgMax", "ArgMin")
      for axis, keep in ((1, 0), (2, 1))),
    of("ArgMax", np.float32([[1, 2, 2]]), axis=1, select_last_index=1),
    of("ArgMax", np.float32([[1, 2, 2]]), axis=1),
    of("TopK", "t", ints(2), outputs=2), of("TopK", "t", ints(3), outputs=2),
    of("TopK", "t", ints(2), outputs=2, largest=0, axis=1),
    of("CumSum", "t", ints(1)[0]), of("CumSum", "t", ints(1)[0], reverse=1),
    of("CumProd", "t", ints(1)[0]), of("CumProd", "t", ints(2)[0], reverse=1),
    *(of(op, "t", axis=axis) for op in ("Softmax", "LogSoftmax", "Hardmax") for axis in (1, -1)),
    *(of(op, "t", axis=1, opset=12) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    of("BatchNormalization", "l", *normal(2, 6), normal(6), np.abs(normal(6))),
    of("BatchNormalization", "l", *normal(2, 6), normal(6), np.abs(normal(6)), epsilon=0.1),
    of("InstanceNormalization", "p", *normal(2, 6)),
    of("GroupNormalization", "p", *normal(2, 6), num_groups=3, opset=21),
    of("GroupNormalization", "p", *normal(2, 6), num_groups=2, opset=21),
    of("LayerNormalization", "t", normal(8), normal(8)), of("LayerNormalization", "t", normal(8)),
    of("LayerNormalization", "t", normal(5, 8), axis=1), of("RMSNormalization", "t", normal(8)),
    of("SimplifiedLayerNormalization", "t", normal(8), opset=17),
    ms("SkipLayerNormalization", "t", "u", *normal(3, 8)),
    ms("SkipLayerNormalization", "t", "u", normal(8)),
    ms("SkipSimplifiedLayerNormalization", "t", "u", normal(8)),
    of("LpNormalization", "t"), of("LpNormalization", "t", axis=1, p=1),
    of("MeanVarianceNormalization", "p", alone=True),
    of("MeanVarianceNormalization", "p", axes=[2, 3]),
    of("LSTM", "s", *LSTM, None, "h", "h", hidden_size=2, outputs=3),
    of("LSTM", "s", *LSTM, hidden_size=2, direction="reverse", outputs=3),
    of("GRU", "s", *BOTH, hidden_size=2, direction="bidirectional", outputs=2),
    of("GRU", "s", *(one[:1] for one in BOTH), hidden_size=2, outputs=2),
    of("RNN", "s", normal(1, 2, 3), normal(1, 2, 2), hidden_size=2, outputs=2),
    of("RNN", "s", normal(1, 2, 3), normal(1, 2, 2), normal(1, 4), None, "h", hidden_size=2,
       direction="reverse", activations=["Relu"], outputs=2),
    of("RNN", "s", normal(2, 2, 3), normal(2, 2, 2), None, None, "hh", hidden_size=2,
       direction="bidirectional", outputs=2),
    of("LSTM", "s", *(np.concatenate([one, -one]) for one in LSTM), None, "hh", "hh",
       hidden_size=2, direction="bidirectional", outputs=3),
    of("STFT", "w", ints(3)[0], normal(6)), of("STFT", "w", ints(4)[0], None, ints(6)[0]),
    of("STFT", "w", ints(4)[0], None, ints(6)[0], onesided=0),
    of("IsInf", INFINITE, detect_positive=0), of("Det", "m"),
    ms("Attention", "t", normal(8, 12), normal(12), num_heads=2),
    ms("MultiHeadAttention", "t", "u", "u", num_heads=2),
    ms("MultiHeadAttention", "t", "u", "u", normal(24), num_heads=2),
    of("Attention", "heads", "heads", "heads"),
    of("Attention", "heads", "heads", "heads", scale=2.0),
]  # fmt: skip


FLOAT, make = TensorProto.FLOAT, helper.make_node


def body(nodes: list[Any], reads: dict[str, int], gives: dict[str, int], **held: Any) -> Any:
    """A graph that runs again and again; values by name with ONNX's number of their type."""
    ends = [
        [
            helper.make_tensor_value_info(name, kind, None if kind == FLOAT else [])
            for name, kind in some.items()
        ]
        for some in (reads, gives)
    ]
    some = [numpy_helper.from_array(one, name) for name, one in held.items()]
    return helper.make_graph(nodes, "body", *ends, some)


HALVED = body(
    [make("Mul", ["v_", "half_"], ["w_"], name="halved"),
     make("ReduceSum", ["w_", "one_"], ["t_"]), make("Cast", ["n_"], ["f_"], to=FLOAT),
     make("Add", ["t_", "f_"], ["u_"]), make("Identity", ["on_"], ["go_"])],
    {"n_": TensorProto.INT64, "on_": TensorProto.BOOL, "v_": FLOAT},
    {"go_": TensorProto.BOOL, "w_": FLOAT, "u_": FLOAT},
    half_=np.float32(0.5), one_=ints(1),
)  # fmt: skip
"""v -> v / 2, and each time the sums of its rows and how often it was."""
CELL = body(
    [make("MatMul", ["x_", "m_"], ["p_"], name="product"), make("Add", ["p_", "v_"], ["q_"]),
     make("Tanh", ["q_"], ["w_"], name="state"), make("Identity", ["w_"], ["u_"])],
    {"v_": FLOAT, "x_": FLOAT}, {"w_": FLOAT, "u_": FLOAT}, m_=normal(3, 3),
)  # fmt: skip
"""A recurrent cell: tanh(x m + v)."""
LOOPS = [
    of("Loop", ints(3)[0], None, "a", outputs=2, body=HALVED),
    of("Loop", ints(2)[0], np.array(True), normal(2, 6), outputs=2, body=HALVED),
    of("Scan", "first", "s", outputs=2, body=CELL, num_scan_inputs=1),
    of("Scan", "first", "s", outputs=2, body=CELL, num_scan_inputs=1, scan_input_directions=[1],
       scan_output_directions=[1], scan_output_axes=[1]),
    of("Scan", "first", "m", outputs=2, body=CELL, num_scan_inputs=1, scan_input_axes=[1]),
]  # fmt: skip

ADDED = {"reduction": "add"}
MOVES = [
    of("Reshape", "t", ints(0, -1)), of("Flatten", "t"), of("Flatten", "t", axis=2),
    of("Unsqueeze", "t", ints(1)), of("Squeeze", "w", ints(2)), of("Shape", "t"), of("Size", "t"),
    of("Transpose", "t", perm=[2, 0, 1]), of("Transpose", "t"), of("Concat", "t", "u", axis=1),
    of("Split", "a", axis=1, num_outputs=3, outputs=3),
    of("Split", "a", ints(4, 2), axis=1, outputs=2),
    of("Slice", "a", ints(-1, 0), ints(-9, 2), ints(1, 0), ints(-2, 1)),
    of("Slice", "a", ints(1), ints(99), ints(-1)), of("Gather", "t", ints([3, -1], [0, 0]), axis=2),
    of("GatherElements", "a", ints([-1, 0], [2, 2]), axis=1),
    of("GatherND", "t", ints([0, 1], [1, -2])),
    of("GatherND", "t", ints([0], [3], [1], [1]), batch_dims=1, fixed=True, alone=True),
    of("Expand", "row", ints(2, 3, 6)), of("Tile", "a", ints(2, 2)),
    of("Pad", "a", ints(0, 1, 0, 2), np.float32(1.5)), of("Pad", "a", ints(0, -1, 1, 2)),
    *(of("Pad", "a", ints(0, 1, 0, 2), mode=one) for one in ("reflect", "edge", "wrap")),
    of("Pad", "a", ints(1, 2), None, ints(-1)), of("DepthToSpace", "blocks", blocksize=2),
    of("DepthToSpace", "blocks", blocksize=2, mode="CRD"),
    of("SpaceToDepth", "off", blocksize=1), of("Trilu", "m"), of("Trilu", "m", ints(1)[0], upper=0),
    of("Range", ints(0)[0], ints(5)[0], ints(2)[0]), of("ConstantOfShape", ints(2, 3)),
    *(of("Resize", "p", None, np.float32([1, 1, *scale]), **words)
      for scale in ((2, 2), (1.5, 2), (2.2, 2.1)) for words in ({}, {"mode": "linear"},
      {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})),
    of("Resize", "p", None, None, ints(4, 6, 16, 14), fixed=True),
    of("Resize", "p", None, None, ints(4, 6, 5, 9), fixed=True),
    of("Resize", "p", None, None, ints(4, 6, 16, 14), mode="cubic", cubic_coeff_a=-0.5,
       fixed=True),
    of("Upsample", "p", np.float32([1, 1, 2, 3]), opset=9),
    of("Upsample", "p", np.float32([1, 1, 2.2, 2.3]), opset=9),
    *(of("ScatterElements", "a", ints([2, 0, -1]), "b3", axis=0, fixed=True, **one) for one in ({},
       ADDED)),
    of("Scatter", "a", ints([2, 0, 1]), normal(1, 3), axis=0, opset=10, fixed=True),
    *(of("ScatterND", "a", ints([2, 0], [1, -1]), normal(2), fixed=True, **one)
      for one in ({}, ADDED)),
    of("ScatterND", "a", ints([1], [0]), normal(2, 6)),
    *(of("OneHot", ints([1, 4, -2], [9, 0, -9]), ints(5)[0], np.float32([0.5, 2]), axis=axis)
      for axis in (-1, 0, 1)),
    of("ReverseSequence", "s", ints(5, 1, 3, 2), fixed=True),
    of("Compress", "a", np.array([1, 0, 1], bool), axis=1),
    of("ReverseSequence", "t", ints(4, 1, 3, 5), batch_axis=0, time_axis=1, fixed=True),
    of("Compress", "a", np.array([1, 0, 1], bool)),
    of("CenterCropPad", "t", ints(4, 2, 11), fixed=True),
    of("CenterCropPad", "t", ints(3, 8), axes=[1, -1]), of("CenterCropPad", "t", ints(2), axes=[1]),
    *(of(op, ints(8)[0], periodic=one) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
      for one in (0, 1)),
    of("MelWeightMatrix", *(np.array(n) for n in (4, 16, 8000)), *np.float32([0, 4000])),
    of("NonZero", "k", alone=True), of("Unique", "i", alone=True), of("EyeLike", "a"),
    of("Unique", "i", outputs=4, alone=True), of("EyeLike", "a", k=1),
    of("NonMaxSuppression", np.abs(normal(2, 4, 4)), np.abs(normal(2, 2, 4)), ints(2), alone=True),
    of("GridSample", "p", "g"), of("GridSample", "p", "g", mode="nearest"),
    of("GridSample", "p", "g", align_corners=1),
    of("RoiAlign", "p", BOXES, ints(0, 1, 0), alone=True),
    of("RoiAlign", "p", BOXES, ints(0, 1, 0), mode="max", output_height=2, alone=True),
    of("MaxRoiPool", "p", np.hstack([np.zeros((3, 1), np.float32), BOXES]), pooled_shape=[2, 2],
       alone=True),
    of("DeformConv", "p", normal(2, 6, 2, 2), "off", opset=22),
    of("Col2Im", "l8", ints(3, 4), ints(2, 2)),
    of("AffineGrid", "theta", ints(4, 1, 2, 3), fixed=True),
    of("AffineGrid", "theta", ints(4, 1, 2, 3), align_corners=1, fixed=True),
    ms("RotaryEmbedding", "t", "at", normal(6, 4), normal(6, 4)),
    ms("RotaryEmbedding", "t", ints(0), normal(6, 4), normal(6, 4)),
    ms("RotaryEmbedding", "t", "at", normal(6, 4), normal(6, 4), interleaved=1),
    of("RotaryEmbedding", "heads", normal(6, 2), normal(6, 2), "at"),
    of("RotaryEmbedding", "heads", normal(6, 2), normal(6, 2), "at", interleaved=1),
]  # fmt: skip
OTHERWISE = {"ReorderInput", "ReorderOutput"}
"""Operators of the optimiser, which test_onnxruntime.py reaches."""
NODES = [*FUNCTIONS, *PRODUCTS, *LAYERS, *LOOPS, *MOVES]
INPUTS |= {"b3": (normal(1, 3), None), "l8": (normal(4, 8, 6), 0)}


def built(nodes: list[Node]) -> tuple[bytes, list[str]]:
    """A model of several operators, and the names of its inputs."""
    made, held, outputs, used = [], [], [], dict[str, None]()
    for number, one in enumerate(nodes):
        names = []
        for place, given in enumerate(one.reads):
            name = given if isinstance(given, str) else f"c{number}_{place}"
            if isinstance(given, str):
                used[given] = None
            elif given is not None:
                held.append(numpy_helper.from_array(np.asarray(given), name))
            names.append("" if given is None else name)
        gives = [f"y{number}_{n}" for n in range(one.outputs)]
        words, name = {**one.words}, f"{one.op} {number} {[w for w in one.words if w != 'body']}"
        made.append(helper.make_node(one.op, names, gives, name=name, domain=one.domain, **words))
        outputs += gives
    given = []
    for name in used:
        array, axis = INPUTS[name]
        shape = ["n" if n == axis else size for n, size in enumerate(array.shape)]
        given.append(helper.make_tensor_value_info(name, KINDS[array.dtype], shape))
    graph = helper.make_graph(
        made, "table", given, [onnx.ValueInfoProto(name=name) for name in outputs], held
    )
    opset = nodes[0].opset
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), [
        *used
    ]


def changed(name: str, rows: list[int]) -> np.ndarray:
    """An input with these rows alone, and one element of the first of them changed."""
    array, axis = INPUTS[name]
    other = array.copy() if axis is None else np.take(array, rows, axis)
    if axis is not None:
        first = np.moveaxis(other, axis, 0)[0]
        place = np.unravel_index(first.size // 2, first.shape)
        first[place] = not first[place] if array.dtype == bool else first[place] + 1
    return np.ascontiguousarray(other)


PLAIN = {"optimisation": "none", "threads": "1"}


def recorder(nodes: list[Node], rows: list[int] | None = None) -> onnxruntime.OnnxRecorder:
    """A recorder of a model of these; ``rows``: its inputs are ``changed``."""
    content, used = built(nodes)
    given = {name: INPUTS[name][0] if rows is None else changed(name, rows) for name in used}
    return onnxruntime.OnnxRecorder(content, given, PLAIN)


@cache
def able() -> dict[int, list[Node]]:
    """What the installed ONNX Runtime runs, by the version of its operators."""
    found: dict[int, list[Node]] = {}
    for one in NODES:
        try:
            recorder([one]).plain()
        except InputError:
            continue
        found.setdefault(one.opset, []).append(one)
    return found


def looked_up(nodes: list[Node], rows: list[int]) -> dict[int, float]:
    """Checks the labels of a model of these; of each operator what share agrees, by number."""
    left, right = recorder(nodes), recorder(nodes, rows)
    found = shares(told(left, right, NEAR))
    assert not left.note, left.note
    by: dict[int, float] = {}
    for op, share, known in found:
        if (name := op.path.split(" ")) and len(name) > 1:  # else a part of an operator written out
            node = nodes[int(name[1])]
            assert known or node.alone, (op.path, op.meaning)
            by[int(name[1])] = share
    return by


def test_every_row_of_the_table_is_reached() -> None:
    ran = {one.op for some in able().values() for one in some}
    assert not TABLE.keys() - {one.op for one in NODES} - OTHERWISE
    assert ran >= ELSEWHERE["onnxruntime"][0]  # in several operators
    assert len(ran) > 0.9 * len(TABLE), "this ONNX Runtime refuses too many of them"


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3]], ids=str)
@pytest.mark.slow_at("[2, 0]", "[0, 1, 2, 3]")
def test_what_is_labelled_alike_is_the_same_number(rows: list[int]) -> None:
    silent = []
    for some in able().values():
        nodes = [one for one in some if len(rows) == 4 or not one.fixed]
        by = looked_up(nodes, rows) if nodes else {}
        silent += [
            (nodes[n].op, nodes[n].words) for n, share in by.items()
            if not share and not nodes[n].alone and len(rows) == 4
        ]  # fmt: skip
    assert not silent, "nothing of these is said to agree with a run that one element differs from"


def one_node(op: str, *names: str, opset: int = NEWEST, **words: Any) -> Any:
    """Returns a recorder of one operator. ``names``: of arrays; empty: one that is left out."""
    given = {"x": INPUTS["a"][0] * 100, "t": np.array(0.5, np.float32), "s": INPUTS["s"][0],
             "w": np.resize(INPUTS["p"][0], (1, 8, 3)), "r": np.resize(INPUTS["p"][0], (1, 8, 2)),
             "h": INPUTS["h"][0]}  # fmt: skip
    inputs = {name: given[name] for name in dict.fromkeys(names) if name}
    ends = [helper.make_tensor_value_info(n, KINDS[v.dtype], v.shape) for n, v in inputs.items()]
    nodes = [helper.make_node(op, names, ["q"], **words)]
    nodes.append(helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT))
    graph = helper.make_graph(nodes, "g", ends, [onnx.ValueInfoProto(name="y")])
    sets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    return onnxruntime.OnnxRecorder(model, inputs, {"optimisation": "none"})


def test_an_operand_in_another_slot_gives_other_numbers() -> None:
    # bounds that are fed aren't known, so this one is Unknown
    told(one_node("Clip", "x", "t"), one_node("Clip", "x", "", "t"), NEAR)
    ends = ("h",), ("", "h")  # the first states, or the first cells
    lstm = (one_node("LSTM", "s", "w", "r", "", "", *end, hidden_size=2, clip=9.0) for end in ends)
    assert agreed(told(*lstm, NEAR)) == 0


def test_numbers_beyond_a_format_are_its_largest_whatever_the_scale() -> None:
    kinds = TensorProto.INT8, TensorProto.INT16
    made = (one_node("QuantizeLinear", "x", "t", opset=21, output_dtype=kind) for kind in kinds)
    assert agreed(told(*made, NEAR)) == 0
