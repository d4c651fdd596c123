"""ONNX models as nodes: names that stay apart, blocked layouts, inputs of a file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from probe.case import ulp
from probe.case.errors import InputError
from tests.record.recorded import drawn, held_to_account

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from probe.record import onnx_file, onnxruntime  # noqa: E402
from probe.record.onnx_file import TABLE  # noqa: E402
from probe.record.recording import record_run  # noqa: E402
from probe.report import program  # noqa: E402
from tests.record.test_onnxruntime import model, normal, residual  # noqa: E402

pytestmark = pytest.mark.long

RNG = np.random.default_rng(5)


def test_blocked_layouts_are_recorded_in_the_order_of_the_operator():
    """Where this processor's kernels have blocks of channels: each blocked convolution's operands,
    as recorded, give its outputs by ONNX's own convolution. Integers: no rounding is involved."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], name="few", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w2", "b2"], ["b"], name="many", strides=[2, 2]),
        node("Conv", ["b", "w3"], ["c"], name="deep", group=32, pads=[1, 1, 1, 1]),
        node("Mul", ["c", "k"], ["d"], name="scaled"),
        node("MaxPool", ["d"], ["e"], name="pool", kernel_shape=[2, 2]),
        node("Conv", ["e", "w4"], ["y"], name="last"),
    ]
    shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (32, 1, 3, 3), "w4": (5, 32, 1, 1)}
    whole = {name: RNG.integers(-3, 4, shape).astype(np.float32) for name, shape in shapes.items()}
    whole |= {"b2": np.arange(32, dtype=np.float32), "k": np.full((1, 32, 1, 1), 2, np.float32)}
    x = RNG.integers(-4, 5, (2, 3, 9, 9)).astype(np.float32)
    recorder = onnxruntime.OnnxRecorder(model(nodes, {"x": x}, ["y"], whole), {"x": x})
    blocked, wrong = [], []

    def visit(event):
        if event.op != "Conv" or "domain" not in event.attributes:
            return
        arrays = {f"i{n}": np.array(one.array()) for n, one in enumerate(event.reads)}
        words = {k: v for k, v in event.attributes.items() if k in ("pads", "strides", "group")}
        alone = model([node("Conv", list(arrays), ["y"], **words)], arrays, ["y"])
        (due,) = onnxruntime.OnnxRecorder(alone, arrays, {"optimisation": "none"}).plain()
        blocked.append(event.path)
        if not ulp.equal(np.ascontiguousarray(event.gives[0].array()), due, "float32"):
            wrong.append(event.path)

    recorder.record(visit)
    assert not wrong
    if not blocked:
        pytest.skip("this processor's convolutions have no blocked layout")


def test_what_is_said_of_operators_of_blocked_layouts_is_what_they_give():
    """The optimiser blocks channels before the second and the last convolution, and undoes it."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], name="few", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w2"], ["b"], name="many"),
        node("Softmax", ["b"], ["c"], name="soft", axis=1),
        node("Conv", ["c", "w3"], ["y"], name="last"),
    ]
    shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (16, 32, 1, 1)}
    x = normal(4, 3, 9, 9)
    content = model(nodes, {"x": x}, ["y"], {name: normal(*one) for name, one in shapes.items()})
    assert {"Conv", "Softmax"} <= held_to_account([onnxruntime.OnnxRecorder(content, {"x": x})])


def test_a_branch_keeps_its_names_apart():
    node = helper.make_node
    value = numpy_helper.from_array(np.float32([2]), "two")
    y = [onnx.ValueInfoProto(name="y")]
    inner = [node("Mul", ["x", "two"], ["h"]), node("Add", ["h", "z"], ["y"])]
    graph = helper.make_graph(inner, "then", [], y, [value])
    one = node("If", ["c"], ["out"], then_branch=graph, else_branch=graph)
    assert onnx_file.captured(one) == ["x", "z"]
    x = normal(3)
    content = model([one], {"c": np.array([True]), "x": x, "z": x}, ["out"])
    recorder, seen = onnxruntime.OnnxRecorder(content, {"c": np.array([True]), "x": x, "z": x}), []
    recorder.record(seen.append)
    assert [[one.key for one in event.reads] for event in seen] == [
        ["x", "out/two"],
        ["out/h", "z"],
    ]
    assert [one.key for one in seen[1].gives] == ["out"]


def test_a_file_says_its_inputs(tmp_path):
    content, x = residual()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    found = onnxruntime.opened(path)
    assert [(one.name, one.shape, one.dtype) for one in found.inputs] == [
        ("x", (None, 3, 9, 9), "float32")
    ]
    assert found.recorder({"x": x}).plain()[0].shape == (4, 5)
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match="can't be read"):
        onnxruntime.opened(path)


def test_text_of_a_file_runs_nothing_in_the_lines_of_its_operations(tmp_path):
    """A stranger's model with ``--report`` would run code as the user: a string that ends the
    script's literal. And an ordinary one with nine domains would have no report at all: its text is
    longer than a line."""
    made = tmp_path / "made"
    code = f"__import__('os').mkdir({str(made)!r})"
    words = [
        f"a{end}+{code}+{end}b" for end in ("'" * 3, '"' * 3, "'", '"', "\\'", "\n", "{", "\\")
    ]
    x = RNG.standard_normal((2, 4)).astype(np.float32)
    for word in words:
        labels = {"keys_floats": [1.0], "values_floats": [2.0], "default_string": word}
        nodes = [
            helper.make_node("LabelEncoder", [word], ["h"], domain="ai.onnx.ml", **labels),
            helper.make_node("Add", ["h", word], ["y"], name=word, doc_string=word),
        ]
        proto = onnx.ModelProto.FromString(model(nodes, {word: x}, ["y"]))
        domains = [word, *(f"com.example.domain{n}" for n in range(9))]
        proto.opset_import.extend(helper.make_opsetid(name, 1) for name in domains)
        proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
        run = record_run(onnxruntime.OnnxRecorder(proto.SerializeToString(), {word: x}))
        assert [op.op for op in run.operations] == ["LabelEncoder", "Add"]
        for op in run.operations:
            names = [f"x{n}" for n in range(len(op.reads))]
            lines = program.block(op.lines(names, "y"))
            space = dict(zip(names, map(run.array, op.reads), strict=True))
            exec("\n".join([*op.imports, "import numpy as np", "if 1:", *lines]), space)
            assert np.array_equal(space["y"], run.array(op.gives[0])), word
        assert not made.exists(), word


def looping(turns, ends):
    """A model whose loop says how often it turns (None: not), and whether its numbers end it."""
    value, boolean, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL, onnx.TensorProto.INT64
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["s", "s"], ["t"])]
    if ends:
        nodes += [helper.make_node("ReduceMax", ["t"], ["m"], keepdims=0)]
        nodes += [helper.make_node("Less", ["m", "most"], ["on"])]
    else:
        nodes += [helper.make_node("Identity", ["go"], ["on"])]
    inputs = [info("n", whole, []), info("go", boolean, []), info("s", value, None)]
    inside = helper.make_graph(
        nodes, "b", inputs, [info("on", boolean, []), info("t", value, None)]
    )
    held = {"yes": np.array(True), "most": np.float32(100), "turns": np.array(turns or 0, np.int64)}
    first = "" if turns is None else "same"
    outside = [
        helper.make_node("Identity", ["turns"], ["same"]),
        helper.make_node("Loop", [first, "yes", "x"], ["y"], body=inside, name="l"),
    ]
    return model(outside, {"x": np.ones((1, 2), np.float32)}, ["y"], held)


@pytest.mark.parametrize(
    ("turns", "ends", "said"),
    [
        (1 << 62, False, "network=l: a loop of it turns 4,611,686,018,427,387,904 times"),
        (None, False, "network=l: a loop of it turns for ever"),
        (3, False, ""),
        ((1 << 63) - 1, True, ""),  # as exporters write ``while``
    ],
)
def test_a_loop_that_nothing_ends_is_refused_before_it_runs(tmp_path, turns, ends, said):
    """ONNX Runtime heeds no Ctrl-C: the terminal would be gone."""
    (tmp_path / "m.onnx").write_bytes(looping(turns, ends))
    if said:
        with pytest.raises(InputError, match=said):
            onnxruntime.opened(tmp_path / "m.onnx")
    else:
        assert onnxruntime.opened(tmp_path / "m.onnx").inputs


HUGE = {"ConstantOfShape": [1 << 20, 1 << 30], "Expand": [1 << 20, 1 << 30],
        "Tile": [1 << 20, 1 << 30], "Pad": [0, 0, 1 << 20, 1 << 30], "Range": [1 << 50],
        "Resize": [1 << 20, 1 << 30]}  # fmt: skip


@pytest.mark.parametrize("op", HUGE)
@pytest.mark.parametrize("inline", [False, True])
def test_an_array_that_no_memory_holds_is_refused_before_it_runs(tmp_path, op, inline):
    """A file of 200 bytes took all that was free before the library said no."""
    sizes = np.array(HUGE[op], np.int64).reshape(() if op == "Range" else -1)
    held = {"sizes": sizes, "zero": np.array(0), "one": np.array(1)}
    every = {"ConstantOfShape": ["sizes"], "Range": ["zero", "sizes", "one"]}
    reads = every.get(op, ["x", "", "", "sizes"] if op == "Resize" else ["x", "sizes"])
    nodes, arrays = [helper.make_node(op, reads, ["y"])], list[Any]()
    for name, array in held.items():
        tensor = numpy_helper.from_array(array, name)
        if inline:
            nodes.insert(0, helper.make_node("Constant", [], [name], value=tensor))
        else:
            arrays.append(tensor)
    x, y = (helper.make_tensor_value_info(name, 1, None) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], arrays)
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    with pytest.raises(InputError, match=f"{op}=.*: it needs 1024 TiB, and .* are free"):
        onnxruntime.opened(tmp_path / "m.onnx")


# every row of ONNX's table: what it says of an operator is what ONNX Runtime gives

ROWS, draw = drawn(11)
MS, NEWEST = "com.microsoft", 20
NEW = {"Swish": 24, "RMSNormalization": 23}
KINDS = {np.dtype(k): v for k, v in {
    "float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL, "uint64": TensorProto.UINT64}.items()}  # fmt: skip


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


INPUTS: dict[str, np.ndarray] = {
    "a": draw(4, 6), "b": draw(4, 6), "row": draw(6), "t": draw(4, 5, 8),
    "u": draw(4, 5, 8), "p": draw(4, 6, 8, 7), "l": draw(4, 6, 9), "m": draw(4, 3, 3),
    "i": ROWS.integers(0, 200, (4, 6)), "j": ROWS.integers(1, 200, (4, 6)),
    "z": ROWS.integers(0, 250, (4, 6)).astype(np.uint8), "k": ROWS.random((4, 6)) < 0.5,
    "o": ROWS.random((4, 6)) < 0.5, "n": ROWS.integers(0, 99, (4, 6)).astype(np.uint64),
    "w": draw(4, 16, 1), "blocks": draw(4, 8, 2, 3), "off": draw(4, 8, 7, 6),
    "a2": draw(4, 3),
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
    of("QuantizeLinear", "p", np.abs(draw(6)) / 9, np.zeros(6, np.uint8), axis=1),
    of("DequantizeLinear", "z", Q["scale"], Q["zero"]), of("DequantizeLinear", "z", Q["scale"]),
]  # fmt: skip
PRODUCTS = [
    of("Conv", "p", draw(4, 3, 3, 2), draw(4), group=2, pads=[1, 0, 1, 1]),
    *(of("Conv", "l", draw(4, 6, 3), auto_pad=side, strides=[2])
      for side in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    of("Conv", "l", draw(4, 6, 3), dilations=[2]), of("ConvTranspose", "l", draw(6, 2, 4)),
    of("ConvTranspose", "l", draw(6, 2, 4), strides=[2], pads=[1, 2], output_padding=[1],
      group=2),
    ms("FusedConv", "l", draw(4, 6, 3), draw(4), activation="Relu"),
    ms("FusedConv", "l", draw(4, 6, 3), activation="LeakyRelu", activation_params=[0.3]),
    of("MaxPool", "p", **WINDOWS), of("AveragePool", "p", **WINDOWS),
    of("AveragePool", "p", **WINDOWS, count_include_pad=1),
    of("AveragePool", "p", **WINDOWS, ceil_mode=1), of("MaxPool", "p", **WINDOWS, ceil_mode=1),
    *(of(op, "p") for op in ("GlobalAveragePool", "GlobalMaxPool")),
    of("MatMul", "a", draw(6, 3)), of("MatMul", "t", draw(8, 2)),
    of("MatMul", "a", "row"), of("MatMul", "m", "m"), of("Einsum", "a", "b", equation="bi,bj->bij"),
    ms("FusedMatMul", "t", draw(3, 8), transB=1),
    ms("FusedMatMul", "t", "u", transA=1),
    of("Gemm", "a", draw(3, 6), draw(3), transB=1), of("Gemm", "a", draw(6, 3)),
    of("Gemm", "a", draw(6, 3), "a2", beta=0.0),
    ms("FusedGemm", "a", draw(6, 3), activation="Relu"),
    of("Einsum", "t", draw(8, 3), equation="...ij,jk->...ik"),
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
      for op in ("Softmax", "LogSoftmax")), of("BatchNormalization", "l", *draw(2, 6), draw(6),
      np.abs(draw(6)), epsilon=0.1), of("InstanceNormalization", "p", *draw(2, 6)),
    of("LayerNormalization", "t", draw(8), draw(8)), of("LayerNormalization", "t", draw(8)),
    of("LayerNormalization", "t", draw(5, 8), axis=1), of("RMSNormalization", "t", draw(8)),
    of("SimplifiedLayerNormalization", "t", draw(8), opset=17),
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
