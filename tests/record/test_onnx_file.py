"""ONNX models as nodes: names that stay apart, blocked layouts, inputs of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from probe.case import ulp
from probe.case.errors import InputError
from tests.record.recorded import held_to_account

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import helper, numpy_helper  # noqa: E402

from probe.record import onnx_file, onnxruntime  # noqa: E402
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
