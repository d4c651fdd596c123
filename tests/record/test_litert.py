"""LiteRT recorded operator by operator: its bits, and what its operators mean."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from probe.case.errors import InputError
from tests.record.recorded import alone, drawn, held_to_account, recorded_twice

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from ai_edge_litert import schema_py_generated as schema

from probe.record import litert
from probe.record.litert import REDUCES, TABLE
from probe.targets.backends import litert as backend

pytestmark = pytest.mark.long

RNG, normal = drawn(6)


@pytest.fixture(autouse=True)
def joined(monkeypatch) -> None:
    """What writes LiteRT's files knows the options of cases alone."""
    monkeypatch.setitem(backend.OPTIONS, "CONCATENATION", "Concatenation")


def residual() -> bytes:
    """A convolution, a residual branch, a concatenation, a mean and a product."""
    graph = backend.LiteRTGraph("float32", (1, 9, 9, 3))
    w1, b1 = graph.constant("w1", normal(16, 3, 3, 3)), graph.constant("b1", normal(16))
    w2, b2 = graph.constant("w2", normal(16, 3, 3, 16)), graph.constant("b2", normal(16))
    words = {"padding": "SAME", "strideW": 1, "strideH": 1}
    words |= {"dilationWFactor": 1, "dilationHFactor": 1}
    plane, fused = (1, 9, 9, 16), {"fusedActivationFunction": 1}
    r1 = graph.operator("CONV_2D", [graph.x, w1, b1], plane, **words, **fused)
    c2 = graph.operator("CONV_2D", [r1, w2, b2], plane, **words)
    s = graph.operator("ADD", [c2, r1], plane)
    j = graph.operator("CONCATENATION", [s, r1], (1, 9, 9, 32), axis=3)
    y = graph.operator("TANH", [j], (1, 9, 9, 32))
    return backend.LiteRTModel(graph, y)({})["model"]


@pytest.mark.parametrize("switches", [{}, {"xnnpack": "0"}, {"threads": "2"}], ids=str)
def test_the_recorded_run_gives_the_unrecorded_bits(switches):
    recorded_twice(litert.LiteRTRecorder(residual(), {"x": normal(4, 9, 9, 3)}, switches))


def test_operators_alone_give_the_recorded_bits():
    ran, _ = alone(litert.LiteRTRecorder(residual(), {"x": normal(2, 9, 9, 3)}))
    assert ran == ["CONV_2D", "CONV_2D", "ADD", "CONCATENATION", "TANH"]


def test_wrong_inputs_are_one_line():
    model = residual()
    with pytest.raises(InputError, match="x is missing"):
        litert.LiteRTRecorder(model, {"z": normal(1, 9, 9, 3)}).plain()
    with pytest.raises(InputError, match="LiteRT refuses them"):
        litert.LiteRTRecorder(model, {"x": normal(1, 9, 9, 2)}).plain()


def test_a_file_says_its_inputs(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(residual())
    found = litert.opened(path)
    assert [(one.name, one.shape, one.dtype) for one in found.inputs] == [
        ("x", (1, 9, 9, 3), "float32")
    ]
    assert found.recorder({"x": normal(2, 9, 9, 3)}).plain()[0].shape == (2, 9, 9, 32)
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match="can't be read"):
        litert.opened(path)
    with pytest.raises(InputError, match="can't be read"):
        litert.opened(tmp_path / "none.tflite")


def test_other_weights_are_given_to_an_operator() -> None:
    recorder, seen = litert.LiteRTRecorder(residual(), {"x": normal(1, 9, 9, 3)}), []

    def visit(event):
        if event.op == "CONV_2D" and not seen:
            x, weights, bias = (np.array(one.array()) for one in event.reads)
            seen.extend(event.again([x, factor * weights, factor * bias])[0] for factor in (1, 2))
            seen.append(np.array(event.gives[0].array()))

    recorder.record(visit)
    assert seen[0].tobytes() == seen[2].tobytes()
    assert (2 * seen[0]).tobytes() == seen[1].tobytes()


def looped(batch: int) -> bytes:
    """A recurrent cell in a WHILE, three times, and an IF behind it."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow's converter writes such files")
    weights = tf.constant(normal(6, 6) / 2)

    def model(x):
        def cell(n, state):
            return n + 1, tf.tanh(state @ weights + x)

        _, state = tf.while_loop(lambda n, _: n < 3, cell, (tf.constant(0), tf.zeros_like(x)))
        return tf.cond(tf.reduce_sum(x) > 1e9, lambda: state * 2.0, lambda: tf.exp(state))

    signature = [tf.TensorSpec((batch, 6), tf.float32, name="x")]
    made = tf.function(model, input_signature=signature)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        concrete = made.get_concrete_function()
        return tf.lite.TFLiteConverter.from_concrete_functions([concrete], made).convert()


def test_a_loop_and_a_branch_are_one_operation_each_and_run_alone() -> None:
    seen, _ = recorded_twice(litert.LiteRTRecorder(looped(4), {"x": normal(4, 6)}))
    assert {"IF", "WHILE"} <= {one.op for one in seen}
    assert "TANH" not in [one.op for one in seen]
    ran, _ = alone(litert.LiteRTRecorder(looped(4), {"x": normal(4, 6)}))
    assert {"IF", "WHILE"} <= set(ran)


# every row of LiteRT's table: what it says of an operator is what LiteRT gives

ROWS, draw = drawn(13)
TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "complex64": 8, "int8": 9}


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


def number(value: Any) -> np.ndarray:
    return np.array(value, np.float32)


INPUTS: dict[str, np.ndarray] = {
    "a": draw(4, 6), "b": draw(4, 6), "t": draw(4, 5, 8), "q": draw(4, 5, 8),
    "p": draw(4, 6, 8, 4), "i": ROWS.integers(0, 20, (4, 6), np.int32),
    "j": ROWS.integers(1, 9, (4, 6), np.int32),
    "y": ROWS.integers(-90, 90, (4, 6), np.int8), "x": ROWS.integers(-90, 90, (4, 6), np.int8),
    "wide": draw(4, 6, 8, 1),
}  # fmt: skip


class Operator(NamedTuple):
    """``reads``: inputs, constants, or None; ``scales``: of the quantised tensors, by place."""

    op: str
    reads: tuple[Any, ...]
    gives: tuple[str, ...]
    options: str
    words: dict[str, Any]
    scales: dict[int, tuple[float, int]]


def of(op: str, *reads: Any, gives: Any = "float32", options: str = "", scales: Any = None,
       **words: Any) -> Operator:  # fmt: skip
    dtypes = (gives,) if isinstance(gives, str) else tuple(gives)
    return Operator(op, reads, dtypes, options, words, scales or {})


ALIKE = {"MAXIMUM": "MaximumMinimum", "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}
BINARY = "ADD MUL SUB DIV MAXIMUM SQUARED_DIFFERENCE PRELU".split()
UNARY = "ABS SQRT EXP TANH LOGISTIC RELU HARD_SWISH RSQRT RELU_N1_TO_1 RELU_0_TO_1 RELU6".split()
SQUARE = {"strideW": 1, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
CONV = {"options": "Conv2D", **SQUARE}
POOL = {"options": "Pool2D", "strideW": 1, "strideH": 2, "filterWidth": 2, "filterHeight": 3}
EIGHT = {0: (0.05, 3), 1: (0.02, -4), 2: (0.1, 5)}

ELEMENTS = [
    *(of(op, "a") for op in UNARY), of("LESS", "a", "b", gives="bool"),
    *(of(op, "a", "b", options=ALIKE.get(op, "")) for op in BINARY),
    of("FLOOR_DIV", "i", "j", gives="int32"),
    *(of("ADD", "a", "b", options="Add", fusedActivationFunction=n) for n in (1, 2, 3)),
    of("ADD", "x", "y", gives="int8", options="Add", scales=EIGHT),
    of("SUB", "a", draw(6), options="Sub"),
    of("ADD_N", "a", "b", options="AddN"), of("ADD_N", "a", "b", "a", options="AddN"),
    of("LEAKY_RELU", "a", options="LeakyRelu", alpha=0.3),
    *(of("GELU", "a", options="Gelu", approximate=n) for n in (False, True)),
    *(of("CAST", "a", gives=to, options="Cast", inDataType=0, outDataType=TYPES[to])
      for to in ("int32", "bool")), of("CAST", "a", gives="int32"),
    of("QUANTIZE", "a", gives="int8", scales={1: (0.05, 3)}),
    of("DEQUANTIZE", "y", scales={0: (0.05, 3)}),
]  # fmt: skip
LAYERS = [
    of("CONV_2D", "p", draw(5, 3, 2, 4), draw(5), padding=0, **{**CONV, "strideW": 2}),
    of("CONV_2D", "p", draw(6, 3, 3, 2), draw(6), padding=1, **CONV),
    of("CONV_2D", "p", draw(6, 3, 3, 4), draw(6), padding=0, **{**CONV, "dilationWFactor": 2},
       fusedActivationFunction=1),
    of("DEPTHWISE_CONV_2D", "p", draw(1, 3, 3, 8), draw(8), **{**CONV,
       "options": "DepthwiseConv2D"}, padding=0, depthMultiplier=2),
    of("TRANSPOSE_CONV", ints(4, 12, 16, 3), draw(3, 3, 2, 4), "p", options="TransposeConv",
       strideW=2, strideH=2, padding=0),
    *(of(f"{kind}_POOL_2D", "p", **POOL, padding=n) for kind in ("MAX", "AVERAGE") for n in (0, 1)),
    of("FULLY_CONNECTED", "a", draw(5, 6), draw(5), options="FullyConnected"),
    *(of("FULLY_CONNECTED", "t", draw(5, 8), bias, options="FullyConnected", keepNumDims=keep)
      for keep in (True,) for bias in (None, draw(5))),
    of("BATCH_MATMUL", "t", "q", options="BatchMatMul", adjY=True),
    of("BATCH_MATMUL", "t", draw(4, 8, 2), options="BatchMatMul"),
    *(of(op, "t", ints(1), options="Reducer", keepDims=keep) for keep in (False, True)
      for op in (*REDUCES, "REDUCE_MAX", "REDUCE_MIN")),
      of("SUM", "t", ints(-1, 1), options="Reducer"),
    *(of("SOFTMAX", "t", options="Softmax", beta=n) for n in (1.0, 0.5)), of("LOG_SOFTMAX", "t"),
    of("ARG_MAX", "t", ints(1)[0], gives="int32", options="ArgMax", outputType=2),
]  # fmt: skip
MOVES = [
    of("RESHAPE", "t", ints(-1, 4)), of("SQUEEZE", "wide", options="Squeeze", squeezeDims=[3]),
    of("EXPAND_DIMS", "t", ints(1)), of("TRANSPOSE", "t", ints(2, 0, 1)),
    of("PAD", "a", ints((0, 0), (2, 1))),
    of("CONCATENATION", "t", "q", options="Concatenation", axis=1),
    of("SPLIT", ints(1)[0], "a", gives=["float32"] * 3, options="Split", numSplits=3),
    of("GATHER", "t", ints(2, 0, 2), options="Gather", axis=1),
    of("SHAPE", "t", gives="int32", options="Shape", outType=2),
]  # fmt: skip
OPERATORS = [*ELEMENTS, *LAYERS, *MOVES]


def built(operators: list[Operator]) -> tuple[bytes, list[str]]:
    """A model of several operators, and the names of its inputs."""
    model, graph, codes = schema.ModelT(), schema.SubGraphT(), dict[str, int]()
    model.buffers, graph.tensors, graph.operators = [schema.BufferT()], [], []
    graph.inputs, graph.outputs, graph.name, inputs = [], [], b"table", dict[str, int]()

    def tensor(name: str, array: Any, dtype: str, scale: Any, held: bool) -> int:
        made = schema.TensorT()
        made.name, made.type, made.buffer, made.isVariable = name, TYPES[dtype], 0, False
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

    for position, each in enumerate(operators):
        operator = schema.OperatorT()
        operator.opcodeIndex = codes.setdefault(each.op, len(codes))
        operator.inputs, operator.outputs = [], []
        for place, given in enumerate(each.reads):
            if given is None:
                operator.inputs.append(-1)
            elif isinstance(given, str):
                key = f"{given}{each.scales.get(place) or ''}"
                if key not in inputs:
                    array, scale = INPUTS[given], each.scales.get(place)
                    inputs[key] = tensor(key, array, str(array.dtype), scale, False)
                    graph.inputs.append(inputs[key])
                operator.inputs.append(inputs[key])
            else:
                name = f"c{position}_{place}"
                operator.inputs.append(tensor(name, given, str(given.dtype), None, True))
        for place, dtype in enumerate(each.gives, len(each.reads)):
            name = f"{each.op} {position} {place}"
            operator.outputs.append(tensor(name, None, dtype, each.scales.get(place), False))
        graph.outputs += operator.outputs
        if each.options:
            options = f"{each.options}Options"
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(schema, f"{options}T")()
            for field, value in each.words.items():
                assert hasattr(operator.builtinOptions, field), (each.op, field)
                setattr(operator.builtinOptions, field, value)
        graph.operators.append(operator)
    model.operatorCodes = []
    for name in codes:
        made = schema.OperatorCodeT()
        made.builtinCode = getattr(schema.BuiltinOperator, name)
        made.deprecatedBuiltinCode, made.version = min(made.builtinCode, 127), 1
        model.operatorCodes.append(made)
    model.version, model.subgraphs = 3, [graph]
    builder = schema.flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output()), [*inputs]


def recorder(operators: list[Operator], xnnpack: str = "0") -> litert.LiteRTRecorder:
    content, names = built(operators)
    given = {name: INPUTS[name.partition("(")[0]] for name in names}
    return litert.LiteRTRecorder(content, given, {"xnnpack": xnnpack, "threads": "1"})


def test_every_row_says_what_litert_gives() -> None:
    operators = []
    for operator in OPERATORS:
        try:
            recorder([operator]).plain()
        except InputError:  # the installed LiteRT has it not
            continue
        operators.append(operator)
    names = [
        held_to_account([recorder(operators, xnnpack)], unknown={"ADD", "QUANTIZE", "DEQUANTIZE"})
        for xnnpack in "01"
    ]
    assert TABLE.keys() - names[0] == TABLE.keys() - names[1] == {"IF", "WHILE"}  # test_litert.py
