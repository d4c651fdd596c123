"""Every row of ONNX's table: what it says of an operator is what ONNX Runtime gives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.record.recorded import drawn, held_to_account

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from probe.case.errors import InputError  # noqa: E402
from probe.record import onnxruntime  # noqa: E402
from probe.record.onnx_file import TABLE  # noqa: E402

RNG, normal = drawn(11)
MS, NEWEST = "com.microsoft", 20
NEW = {"Swish": 24, "RMSNormalization": 23}
KINDS = {np.dtype(k): v for k, v in {
    "float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL, "uint64": TensorProto.UINT64}.items()}  # fmt: skip


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


INPUTS: dict[str, np.ndarray] = {
    "a": normal(4, 6), "b": normal(4, 6), "row": normal(6), "t": normal(4, 5, 8),
    "u": normal(4, 5, 8), "p": normal(4, 6, 8, 7), "l": normal(4, 6, 9), "m": normal(4, 3, 3),
    "i": RNG.integers(0, 200, (4, 6)), "j": RNG.integers(1, 200, (4, 6)),
    "z": RNG.integers(0, 250, (4, 6)).astype(np.uint8), "k": RNG.random((4, 6)) < 0.5,
    "o": RNG.random((4, 6)) < 0.5, "n": RNG.integers(0, 99, (4, 6)).astype(np.uint64),
    "w": normal(4, 16, 1), "blocks": normal(4, 8, 2, 3), "off": normal(4, 8, 7, 6),
    "a2": normal(4, 3),
}  # fmt: skip


class Node(NamedTuple):
    """One operator: names of inputs or constants."""

    op: str
    reads: tuple[Any, ...]
    words: dict[str, Any]
    outputs: int = 1
    domain: str = ""
    opset: int = NEWEST


def of(op: str, *reads: Any, outputs: int = 1, domain: str = "", opset: int = 0,
       **words: Any) -> Node:  # fmt: skip
    return Node(op, reads, words, outputs, domain, opset or NEW.get(op, NEWEST))


def ms(op: str, *reads: Any, **words: Any) -> Node:
    return of(op, *reads, domain=MS, **words)


WINDOWS = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}
INFINITE = np.float32([-np.inf, np.inf, 1])
Q = {"scale": np.float32(0.05), "zero": np.uint8(7)}

UNARY = "Abs Sqrt Exp Erf Tanh Sigmoid Relu Softplus Reciprocal HardSwish Mish QuickGelu".split()
FUNCTIONS = [
    *(of(op, "a", domain=MS * (op == "QuickGelu")) for op in UNARY),
    *(of(op, "a", alpha=0.3) for op in ("LeakyRelu", "Elu")), of("HardSigmoid", "a", beta=0.1),
    of("IsNaN", INFINITE), of("Not", "k"), of("Swish", "a", alpha=0.5),
    *(of(op, one, other) for op in ("Add", "Mul", "Sub", "Div", "PRelu", "Less")
      for one, other in (("a", "b"), ("b", "row"))),
    of("Div", "i", "j"), of("Mod", "a", "b", fmod=1), of("Pow", "a", np.float32([2.0])),
    of("Where", "k", "b", "row"), *(of(op, *reads) for op in ("Max", "Min", "Sum", "Mean")
      for reads in (("a",), ("a", "b"), ("a", "row", "b"))),
    of("Identity", "a"), of("Gelu", "a"), of("Gelu", "a", approximate="tanh"),
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
    *(of("Conv", "l", normal(4, 6, 3), auto_pad=side, strides=[2])
      for side in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    of("Conv", "l", normal(4, 6, 3), dilations=[2]), of("ConvTranspose", "l", normal(6, 2, 4)),
    of("ConvTranspose", "l", normal(6, 2, 4), strides=[2], pads=[1, 2], output_padding=[1],
      group=2),
    ms("FusedConv", "l", normal(4, 6, 3), normal(4), activation="Relu"),
    ms("FusedConv", "l", normal(4, 6, 3), activation="LeakyRelu", activation_params=[0.3]),
    of("MaxPool", "p", **WINDOWS), of("AveragePool", "p", **WINDOWS),
    of("AveragePool", "p", **WINDOWS, count_include_pad=1),
    of("AveragePool", "p", **WINDOWS, ceil_mode=1), of("MaxPool", "p", **WINDOWS, ceil_mode=1),
    *(of(op, "p") for op in ("GlobalAveragePool", "GlobalMaxPool")),
    of("MatMul", "a", normal(6, 3)), of("MatMul", "t", normal(8, 2)),
    of("MatMul", "a", "row"), of("MatMul", "m", "m"), of("Einsum", "a", "b", equation="bi,bj->bij"),
    ms("FusedMatMul", "t", normal(3, 8), transB=1),
    ms("FusedMatMul", "t", "u", transA=1),
    of("Gemm", "a", normal(3, 6), normal(3), transB=1), of("Gemm", "a", normal(6, 3)),
    of("Gemm", "a", normal(6, 3), "a2", beta=0.0),
    ms("FusedGemm", "a", normal(6, 3), activation="Relu"),
    of("Einsum", "t", normal(8, 3), equation="...ij,jk->...ik"),
    of("Einsum", "t", equation="bij->bji"),
]  # fmt: skip
LAYERS = [
    *(of(op, "t", ints(1)) for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
        "ReduceL2",
      "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceSum", "ReduceMean")),
    of("ReduceMean", "t", ints(-1, 1), keepdims=0), of("ReduceSum", "t"),
    of("ReduceSum", "t", noop_with_empty_axes=1), of("ArgMax", "t", axis=1),
    of("ArgMin", "t", axis=2),
    of("TopK", "t", ints(2), outputs=2), *(of(op, "t", axis=1, opset=opset) for opset in (12, 13)
      for op in ("Softmax", "LogSoftmax")), of("BatchNormalization", "l", *normal(2, 6), normal(6),
      np.abs(normal(6)), epsilon=0.1), of("InstanceNormalization", "p", *normal(2, 6)),
    of("LayerNormalization", "t", normal(8), normal(8)), of("LayerNormalization", "t", normal(8)),
    of("LayerNormalization", "t", normal(5, 8), axis=1), of("RMSNormalization", "t", normal(8)),
    of("SimplifiedLayerNormalization", "t", normal(8), opset=17),
]  # fmt: skip
MOVES = [
    of("Reshape", "t", ints(0, -1)), of("Flatten", "t", axis=2), of("Unsqueeze", "t", ints(1)),
    of("Squeeze", "w", ints(2)), of("Shape", "t"), of("Transpose", "t"),
    of("Transpose", "t", perm=[2, 0, 1]), of("Concat", "t", "u", axis=1),
    of("Split", "a", ints(4, 2), axis=1, outputs=2), of("Gather", "t", ints([3, -1]), axis=2),
    of("Slice", "a", ints(-1, 0), ints(-9, 2), ints(1, 0), ints(-2, 1)), of("Trilu", "m"),
    of("Pad", "a", ints(0, 1, 0, 2), mode="reflect"), of("ConstantOfShape", ints(2, 3)),
    of("NonZero", "k"),
]  # fmt: skip
NODES = [*FUNCTIONS, *PRODUCTS, *LAYERS, *MOVES]
# Loops, and operators of the optimiser, which test_onnxruntime.py reaches.
OTHERWISE = {"Loop", "Scan", "ReorderInput", "ReorderOutput"}
# Operators that have no kernel, for which ONNX Runtime runs what ONNX writes them out as.
WRITTEN_OUT = {"CastLike", "HardSwish", "Mish", "Swish"}


def built(nodes: list[Node]) -> tuple[bytes, list[str]]:
    """A model of several operators, and the names of its inputs."""
    made, held, outputs, used = [], [], [], dict[str, None]()
    for number, node in enumerate(nodes):
        names = []
        for place, given in enumerate(node.reads):
            name = given if isinstance(given, str) else f"c{number}_{place}"
            if isinstance(given, str):
                used[given] = None
            elif given is not None:
                held.append(numpy_helper.from_array(np.asarray(given), name))
            names.append("" if given is None else name)
        gives = [f"y{number}_{n}" for n in range(node.outputs)]
        made.append(
            helper.make_node(node.op, names, gives, f"n{number}", domain=node.domain, **node.words)
        )
        outputs += gives
    ends = [helper.make_tensor_value_info(n, KINDS[INPUTS[n].dtype], INPUTS[n].shape) for n in used]
    given = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(made, "table", ends, given, held)
    sets = [helper.make_opsetid("", nodes[0].opset), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return model.SerializeToString(), [*used]


def recorder(nodes: list[Node]) -> onnxruntime.OnnxRecorder:
    content, used = built(nodes)
    switches = {"optimisation": "none", "threads": "1"}
    return onnxruntime.OnnxRecorder(content, {name: INPUTS[name] for name in used}, switches)


def able() -> dict[int, list[Node]]:
    """What the installed ONNX Runtime runs, by the version of its operators."""
    every: dict[int, list[Node]] = {}
    for node in NODES:
        try:
            recorder([node]).plain()
        except InputError:
            continue
        every.setdefault(node.opset, []).append(node)
    return every


def test_every_row_says_what_onnx_runtime_gives() -> None:
    names = held_to_account(recorder(nodes) for nodes in able().values())
    assert not TABLE.keys() - {node.op for node in NODES} - OTHERWISE
    missing = TABLE.keys() - names - OTHERWISE - WRITTEN_OUT
    assert len(missing) < 0.1 * len(TABLE), missing  # of operators that are newer than this release
