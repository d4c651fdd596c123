"""Every meaning of LiteRT's table against LiteRT: what is labelled alike is the same number, as of
ONNX's in test_onnx_table.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.recorders.truth import agreed, drawn, shares, told

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from ai_edge_litert import schema_py_generated as schema

from probe.errors import InputError
from probe.recorders import litert
from probe.recorders.litert_table import FUNCTIONS, REDUCES, TABLE

NEAR = 1e-3
"""Of float32, relative to the larger number or to 1: what labels confuse is apart by far more."""

RNG, normal = drawn(13)
TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "complex64": 8, "int8": 9}


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


def one(number: Any, dtype: type = np.float32) -> np.ndarray:
    return np.array(number, dtype)


INPUTS: dict[str, np.ndarray] = {
    "a": normal(4, 6), "b": normal(4, 6), "t": normal(4, 5, 8), "q": normal(4, 5, 8),
    "p": normal(4, 6, 8, 4), "v": normal(4, 5, 6, 4, 2), "i": RNG.integers(0, 20, (4, 6), np.int32),
    "j": RNG.integers(1, 9, (4, 6), np.int32), "k": RNG.random((4, 6)) < 0.5,
    "o": RNG.random((4, 6)) < 0.5, "c": (normal(4, 6) + 1j * normal(4, 6)).astype(np.complex64),
    "y": RNG.integers(-90, 90, (4, 6), np.int8), "zero": np.zeros((4, 3), np.float32),
    "wide": normal(4, 6, 8, 1),
}  # fmt: skip
"""Arrays with the rows of the batch first."""


class Operator(NamedTuple):
    """``reads``: inputs, constants, or None; ``scales``: of the quantised tensors, by place."""

    op: str
    reads: tuple[Any, ...]
    gives: tuple[str, ...]
    options: str
    words: dict[str, Any]
    alone: bool
    scales: dict[int, tuple[float, int]]


def of(op: str, *reads: Any, gives: Any = "float32", options: str = "", alone: bool = False,
       scales: Any = None, **words: Any) -> Operator:  # fmt: skip
    dtypes = (gives,) if isinstance(gives, str) else tuple(gives)
    return Operator(op, reads, dtypes, options, words, alone, scales or {})


VERSIONS = {"BROADCAST_TO": 2}
"""Of operators whose first one is gone."""

COMPARES = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
ALIKE = dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimum")
ALIKE |= {op: op.title() for op in ("ADD", "SUB", "MUL", "DIV", "POW")}
BINARY = """ADD MUL SUB DIV POW MAXIMUM MINIMUM SQUARED_DIFFERENCE FLOOR_DIV FLOOR_MOD ATAN2 EQUAL
 NOT_EQUAL
 LESS LESS_EQUAL GREATER GREATER_EQUAL PRELU LOGICAL_AND LOGICAL_OR SELECT_V2""".split()
UNARY = [op for op in FUNCTIONS if op not in BINARY and not op.startswith("STABLEHLO")]
UNARY += ["RELU_N1_TO_1", "RELU_0_TO_1", "ELU"]
LOGICAL = {"LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT", "SELECT_V2"}
SQUARE = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
CONV = {"options": "Conv2D", **SQUARE}
POOL = {"options": "Pool2D", "strideW": 1, "strideH": 2, "filterWidth": 2, "filterHeight": 3}
DEEP = {"options": "Conv3D", "strideD": 1, "strideW": 1, "strideH": 2, "padding": 0,
        "dilationDFactor": 1, "dilationWFactor": 1, "dilationHFactor": 1}  # fmt: skip

ELEMENTS = [
    *(of(op, "a") for op in UNARY if op not in LOGICAL), of("LOGICAL_NOT", "k", gives="bool"),
    *(of(op, "a", "b", options=ALIKE.get(op, "")) for op in BINARY
      if op not in (*COMPARES, *LOGICAL)),
    *(of(op, "a", "b", gives="bool") for op in COMPARES), of("EQUAL", "i", "j", gives="bool"),
    *(of(op, "k", "o", gives="bool") for op in ("LOGICAL_AND", "LOGICAL_OR")),
    *(of(op, "i", "j", gives="int32") for op in ("FLOOR_DIV", "FLOOR_MOD", "BITWISE_XOR",
      "RIGHT_SHIFT")), *(of("ADD", "a", "b", options="Add", fusedActivationFunction=n)
                         for n in (1, 2, 3)),
    of("SUB", "a", normal(6), options="Sub"), of("MUL", "a", normal(6), options="Mul"),
    of("SELECT_V2", "k", "a", "b"), of("SELECT_V2", "k", "a", normal(6)),
    of("SELECT", "k", "a", "b"),
    of("ADD_N", "a", "b", options="AddN"), of("ADD_N", "a", "b", "a", options="AddN"),
    *(of("LEAKY_RELU", "a", options="LeakyRelu", alpha=n) for n in (0.1, 0.3)), of("RELU6", "a"),
    *(of("GELU", "a", options="Gelu", approximate=n) for n in (False, True)), of("ZEROS_LIKE", "a"),
    *(of("CAST", "a", gives=to, options="Cast", inDataType=0, outDataType=TYPES[to])
      for to in ("int32", "bool")), *(of("CAST", "a", gives=to) for to in ("int32", "int8")),
    of("QUANTIZE", "a", gives="int8", scales={1: (0.05, 3)}),
    of("QUANTIZE", "a", gives="int8", scales={1: (0.02, 3)}),
    *(of("DEQUANTIZE", "y", scales={0: n}) for n in ((0.05, 3), (0.02, 3), (0.05, 0))),
    *(of("FAKE_QUANT", "a", options="FakeQuant", min=-n, max=n, numBits=8) for n in (1.0, 2.0)),
    *(of("BUCKETIZE", "a", gives="int32", options="Bucketize", boundaries=[n]) for n in (0.0, 0.3)),
    of("COMPLEX_ABS", "c"), of("REAL", "c"), of("IMAG", "c"),
    *(of(f"STABLEHLO_{op}", "a", "b") for op in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")),
    of("STABLEHLO_AND", "k", "o", gives="bool"), of("FLOOR_MOD", "a", "b"),
]  # fmt: skip

LSTM = [*(normal(3, 8) for _ in range(4)), *(normal(3, 3) for _ in range(4)), None, None, None,
        *(normal(3) for _ in range(4)), None, None]  # fmt: skip
LAYERS = [
    of("CONV_2D", "p", normal(5, 3, 2, 4), normal(5), padding=0, **{**CONV, "strideW": 2}),
    of("CONV_2D", "p", normal(6, 3, 3, 2), normal(6), padding=1, **CONV),
    of("CONV_2D", "p", normal(6, 3, 3, 4), normal(6), padding=0, **{**CONV, "dilationWFactor": 2},
       fusedActivationFunction=1),
    of("DEPTHWISE_CONV_2D", "p", normal(1, 3, 3, 8), normal(8), **{**CONV,
       "options": "DepthwiseConv2D"}, padding=0, depthMultiplier=2),
    of("TRANSPOSE_CONV", ints(4, 12, 16, 3), normal(3, 3, 2, 4), "p", options="TransposeConv",
       strideW=2, strideH=2, padding=0),
       of("CONV_3D", "v", normal(2, 2, 2, 2, 3), normal(3), **DEEP),
    *(of(f"{kind}_POOL_2D", "p", **POOL, padding=n) for kind in ("MAX", "AVERAGE") for n in (0, 1)),
    of("FULLY_CONNECTED", "a", normal(5, 6), normal(5), options="FullyConnected"),
    of("FULLY_CONNECTED", "t", normal(5, 8), None, options="FullyConnected", keepNumDims=True),
    of("FULLY_CONNECTED", "t", normal(5, 8), None, options="FullyConnected"),
    of("BATCH_MATMUL", "t", "q", options="BatchMatMul", adjY=True),
    of("BATCH_MATMUL", "t", normal(4, 8, 2), options="BatchMatMul"),
    *(of(op, "k" if op[7:] in ("ANY", "ALL") else "t", ints(1), options="Reducer",
         gives="bool" if op[7:] in ("ANY", "ALL") else "float32", keepDims=keep)
      for op in REDUCES for keep in (False, True)), of("SUM", "t", ints(-1, 1), options="Reducer"),
    of("SOFTMAX", "t", options="Softmax", beta=1.0),
    of("SOFTMAX", "t", options="Softmax", beta=0.5),
    of("LOG_SOFTMAX", "t"), of("L2_NORMALIZATION", "p", options="L2Norm"),
    *(of("LOCAL_RESPONSE_NORMALIZATION", "p", options="LocalResponseNormalization", radius=1,
         bias=1.0, alpha=n, beta=0.5) for n in (0.5, 0.9)),
    *(of(op, "t", ints(axis)[0], gives="int32", options=name, outputType=2) for axis in (1, -1)
      for op, name in (("ARG_MAX", "ArgMax"), ("ARG_MIN", "ArgMin"))),
    *(of("TOPK_V2", "t", ints(n)[0], gives=("float32", "int32")) for n in (2, 3)),
    *(of("CUMSUM", "t", ints(axis)[0], options="Cumsum", reverse=back) for axis in (1, 2)
      for back in (False, True)),
    of("UNIDIRECTIONAL_SEQUENCE_RNN", "t", normal(3, 8), normal(3, 3), normal(3), "state",
       options="SequenceRNN", fusedActivationFunction=4),
    of("UNIDIRECTIONAL_SEQUENCE_LSTM", "t", *LSTM, "state", "state",
       options="UnidirectionalSequenceLSTM", fusedActivationFunction=4),
    *(of("BIDIRECTIONAL_SEQUENCE_RNN", "t", normal(3, 8), normal(3, 3), normal(3), "state",
         normal(3, 8), normal(3, 3), normal(3), "state", *[None] * 3,
         options="BidirectionalSequenceRNN", fusedActivationFunction=4, mergeOutputs=merged,
         gives=("float32",) * (2 - merged)) for merged in (False, True)),
    # with mergeOutputs LiteRT 2.3's kernel gives different bits from run to run
    of("BIDIRECTIONAL_SEQUENCE_LSTM", "t", *LSTM[:17], *LSTM[:17], *["state"] * 4, *[None] * 9,
       options="BidirectionalSequenceLSTM", fusedActivationFunction=4, timeMajor=False,
       gives=("float32",) * 2),
    of("SEGMENT_SUM", "p", ints(0, 0, 1, 1)),
    *(of(f"UNSORTED_SEGMENT_{op}", "p", ints(1, 0, 1, 1), ints(3)[0])
      for op in ("SUM", "MAX", "MIN", "PROD")),
]  # fmt: skip

RESIZE = [(n, w) for n in ((12, 16), (9, 11), (9, 12)) for w in (
    {}, {"alignCorners": True}, {"halfPixelCenters": True})]  # fmt: skip
MOVES = [
    of("RESHAPE", "t", ints(-1, 4)), of("SQUEEZE", "wide", options="Squeeze", squeezeDims=[3]),
    of("EXPAND_DIMS", "t", ints(1)), of("TRANSPOSE", "t", ints(2, 0, 1)),
    of("PAD", "a", ints((0, 0), (2, 1))),
    *(of("PADV2", "a", ints((0, 0), (2, 1)), one(n)) for n in (1.5, 2.5)),
    *(of("MIRROR_PAD", "a", ints((0, 0), (2, 1)), options="MirrorPad", mode=n) for n in (0, 1)),
    *(of("CONCATENATION", "t", "q", options="Concatenation", axis=n) for n in (1, -1)),
    *(of("PACK", "a", "b", options="Pack", axis=n, valuesCount=2) for n in (0, -1)),
    of("UNPACK", "a", gives=["float32"] * 6, options="Unpack", axis=-1, num=6),
    of("SPLIT", ints(1)[0], "a", gives=["float32"] * 3, options="Split", numSplits=3),
    of("SPLIT_V", "a", ints(4, 2), ints(-1)[0], gives=["float32"] * 2, options="SplitV",
       numSplits=2),
    of("SLICE", "t", ints(0, 1, 2), ints(-1, 3, 2)),
    of("STRIDED_SLICE", "a", ints(1, 5), ints(3, 0), ints(1, -2), options="StridedSlice"),
    of("STRIDED_SLICE", "a", ints(2, 0), ints(3, 4), ints(1, 1), options="StridedSlice",
       shrinkAxisMask=1),
    of("STRIDED_SLICE", "a", ints(2, 3), ints(0, 4), ints(1, 1), options="StridedSlice",
       beginMask=2, endMask=1),
    *(of("GATHER", "t", ints(2, 0, 2), options="Gather", axis=n) for n in (0, 1, -1)),
    of("GATHER", "t", ints((0, 2), (1, 1), (3, 4), (0, 0)), options="Gather", axis=1, batchDims=1,
       alone=True),
    of("GATHER_ND", "t", ints((0, 1), (1, 4))), of("EMBEDDING_LOOKUP", ints(2, 0, 2), "t"),
    of("BROADCAST_TO", "a", ints(2, 4, 6)), of("TILE", "a", ints(2, 2)),
    of("REVERSE_V2", "t", ints(1)),
    of("DEPTH_TO_SPACE", "p", options="DepthToSpace", blockSize=2),
    of("SPACE_TO_DEPTH", "p", options="SpaceToDepth", blockSize=2),
    of("SPACE_TO_BATCH_ND", "p", ints(2, 2), ints((0, 0), (1, 1))),
    of("BATCH_TO_SPACE_ND", "p", ints(2, 2), ints((1, 0), (0, 1))),
    *(of(f"RESIZE_{op}", "p", ints(*n),
       options="".join(one.title() for one in f"Resize_{op}".split("_")), **w)
      for op in ("BILINEAR", "NEAREST_NEIGHBOR") for n, w in RESIZE),
    of("SCATTER_ND", ints([3], [1], [3], [0]), "a", ints(5, 6)),
    *(of("ONE_HOT", ints((1, 9), (-1, 0)), ints(4)[0], one(2.0), one(n), options="OneHot",
       axis=axis)
      for axis in (-1, 0, 1) for n in (0.0, 0.5)),
    of("REVERSE_SEQUENCE", "t", ints(4, 1, 5, 2), options="ReverseSequence", seqDim=1, batchDim=0),
    of("DYNAMIC_UPDATE_SLICE", "a", normal(2, 2), ints(3, 1)), of("FILL", ints(2, 3), one(1.5)),
    of("RANGE", one(0.0), one(3.0), one(0.5)),
    of("BROADCAST_ARGS", ints(4, 1), ints(1, 6), gives="int32"),
    of("SHAPE", "t", gives="int32", options="Shape", outType=2), of("RANK", "t", gives="int32"),
    of("WHERE", "k", gives="int64", alone=True),
    of("UNIQUE", ints(3, 1, 3), gives=("int32", "int32"),
       options="Unique", idxOutType=2),
    of("NON_MAX_SUPPRESSION_V4", np.abs(normal(5, 4)), np.abs(normal(5)), ints(3)[0], one(0.5),
       one(0.0),
       gives=("int32", "int32"), alone=True),
    of("NON_MAX_SUPPRESSION_V5", np.abs(normal(5, 4)), np.abs(normal(5)), ints(3)[0], one(0.5),
       one(0.0),
       one(0.0), gives=("int32", "float32", "int32"), alone=True),
]  # fmt: skip
OPERATORS = [*ELEMENTS, *LAYERS, *MOVES]


def built(operators: list[Operator]) -> tuple[bytes, list[str]]:
    """A model of several operators, and the names of its inputs."""
    model, graph, codes = schema.ModelT(), schema.SubGraphT(), dict[str, int]()
    model.buffers, graph.tensors, graph.operators = [schema.BufferT()], [], []
    graph.inputs, graph.outputs, graph.name, inputs = [], [], b"table", dict[str, int]()

    def tensor(
        name: str, array: Any, dtype: str, scale: Any, held: bool, state: bool = False
    ) -> int:
        made = schema.TensorT()
        made.name, made.type, made.buffer, made.isVariable = name, TYPES[dtype], 0, state
        made.shape = [] if array is None else list(array.shape)
        if held:
            made.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(array.tobytes(), np.uint8)
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [scale[0]], [scale[1]]
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    for number, one in enumerate(operators):
        operator = schema.OperatorT()
        operator.opcodeIndex = codes.setdefault(one.op, len(codes))
        operator.inputs, operator.outputs = [], []
        for place, given in enumerate(one.reads):
            if given is None:
                operator.inputs.append(-1)
            elif given == "state" if isinstance(given, str) else False:
                operator.inputs.append(
                    tensor(f"s{number}_{place}", INPUTS["zero"], "float32", None, False, True)
                )
            elif isinstance(given, str):
                key = f"{given}{one.scales.get(place) or ''}"
                if key not in inputs:
                    array = INPUTS[given]
                    inputs[key] = tensor(key, array, str(array.dtype), one.scales.get(place), False)
                    graph.inputs.append(inputs[key])
                operator.inputs.append(inputs[key])
            else:
                name = f"c{number}_{place}"
                operator.inputs.append(tensor(name, given, str(given.dtype), None, True))
        for place, dtype in enumerate(one.gives, len(one.reads)):
            name = f"{one.op} {number} {place}"
            operator.outputs.append(tensor(name, None, dtype, one.scales.get(place), False))
        graph.outputs += operator.outputs
        if one.options:
            options = f"{one.options}Options"
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(schema, f"{options}T")()
            for field, value in one.words.items():
                assert hasattr(operator.builtinOptions, field), (one.op, field)
                setattr(operator.builtinOptions, field, value)
        graph.operators.append(operator)
    model.operatorCodes = []
    for name in codes:
        made = schema.OperatorCodeT()
        made.builtinCode = getattr(schema.BuiltinOperator, name)
        made.deprecatedBuiltinCode, made.version = min(made.builtinCode, 127), VERSIONS.get(name, 1)
        model.operatorCodes.append(made)
    model.version, model.subgraphs = 3, [graph]
    builder = schema.flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output()), [*inputs]


def recorder(
    operators: list[Operator], rows: list[int] | None = None, xnnpack: str = "0"
) -> litert.LiteRTRecorder:
    """A recorder of a model of these; with ``rows`` the batch is in this order, and one element of
    the first is another number."""
    content, names = built(operators)
    given = {}
    for name in names:
        array = INPUTS[name.partition("(")[0]]
        if rows is not None:
            array = array[rows].copy()
            place = np.unravel_index(array[0].size // 2, array[0].shape)
            array[0][place] = ~array[0][place] if array.dtype == bool else array[0][place] + 1
        given[name] = array
    return litert.LiteRTRecorder(content, given, {"xnnpack": xnnpack, "threads": "1"})


@cache
def able() -> list[Operator]:
    """What the installed LiteRT runs."""
    found = []
    for one in OPERATORS:
        try:
            recorder([one]).plain()
        except InputError:
            continue
        found.append(one)
    return found


@pytest.mark.parametrize("xnnpack", ["0", "1"])
@pytest.mark.parametrize("rows", [[2, 0, 3, 1], [0, 1, 2, 3]], ids=str)
@pytest.mark.slow
def test_what_is_labelled_alike_is_the_same_number(rows: list[int], xnnpack: str) -> None:
    operators = able()
    left, right = recorder(operators, None, xnnpack), recorder(operators, rows, xnnpack)
    found = shares(told(left, right, NEAR))
    assert not left.note, left.note
    assert len(found) == len(operators)
    silent = []
    for op, share, known in found:
        one = operators[int(op.path.split()[1])]
        assert known or one.alone, (op.path, op.meaning)
        silent += [op.path] if not share and not one.alone and rows[0] == 0 else []
    assert not silent, "nothing of these is said to agree with a run that one element differs from"


def test_every_row_of_the_table_is_reached() -> None:
    loops = {"IF", "WHILE"}  # of test_litert.py
    assert TABLE.keys() - {one.op for one in OPERATORS} == loops
    assert not TABLE.keys() - {one.op for one in able()} - loops


def test_an_lstm_has_the_fingerprint_of_pytorch_s() -> None:
    """LiteRT keeps an array a gate, in the order in which PyTorch has their rows."""
    torch = pytest.importorskip("torch")
    from probe.recorders.torch import TorchRecorder

    (one,) = (one for one in OPERATORS if one.op == "UNIDIRECTIONAL_SEQUENCE_LSTM")
    given, *arrays = one.reads
    inner, outer, bias = (np.concatenate(arrays[n : n + 4]) for n in (0, 4, 11))
    weights = [torch.from_numpy(a) for a in (inner, outer, bias, np.zeros_like(bias))]
    x = torch.from_numpy(INPUTS[given])
    first = (torch.zeros(1, len(x), outer.shape[1]),) * 2

    def lstm() -> torch.Tensor:
        return torch.lstm(x, first, weights, True, 1, 0.0, False, False, True)[0]

    assert agreed(told(TorchRecorder(lstm), recorder([one]), NEAR)) == 1
