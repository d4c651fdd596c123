"""ONNX Runtime recorded node by node: its bits, its branches, and what its operators mean."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import layout
from probe.case.errors import InputError
from probe.diff import difference, source
from probe.diff.match import RunningMatch
from probe.order import semantics as meaning
from probe.record.recording import record_run
from tests.record.recorded import alone, drawn, recorded_twice

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from probe.record import onnxruntime  # noqa: E402

pytestmark = pytest.mark.long

RNG, normal = drawn(5)
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def info(name, array, opened=()):
    shape = [f"{name}{n}" if n in opened else size for n, size in enumerate(array.shape)]
    return helper.make_tensor_value_info(name, KINDS[str(array.dtype)], shape)


def model(nodes, inputs, outputs, constants=None, opset=18, opened=(0,)):
    """The bytes of a model; ``opened``: the axes of all inputs that have no fixed size."""
    held = [numpy_helper.from_array(one, name) for name, one in (constants or {}).items()]
    given = [info(name, one, opened) for name, one in inputs.items()]
    gives = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "model", given, gives, held)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def residual():
    """A convolution, a residual branch, a concatenation, a pool and a product."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], name="act"),
        node("Conv", ["r1", "w2"], ["c2"], name="second", pads=[1, 1, 1, 1]),
        node("Add", ["c2", "r1"], ["s"], name="residual"),
        node("Concat", ["s", "r1"], ["j"], name="join", axis=1),
        node("GlobalAveragePool", ["j"], ["g"], name="pool"),
        node("Flatten", ["g"], ["f"], name="flat"),
        node("Gemm", ["f", "w3", "b3"], ["y"], name="last"),
    ]
    constants = {"w1": normal(16, 3, 3, 3), "b1": normal(16), "w2": normal(16, 16, 3, 3)}
    constants |= {"w3": normal(32, 5), "b3": normal(5)}
    x = normal(4, 3, 9, 9)
    return model(nodes, {"x": x}, ["y"], constants), x


def test_the_recorded_run_gives_the_unrecorded_bits():
    content, x = residual()
    for switches in ({}, {"optimisation": "none"}):
        recorded_twice(onnxruntime.OnnxRecorder(content, {"x": x}, switches))


@pytest.mark.parametrize("offset", [0, 20])
def test_an_input_that_is_a_view_begins_where_it_began(offset):
    """Eigen's sums start where whole vectors do."""
    x, nodes = normal(3, 385), [helper.make_node("ReduceSum", ["x"], ["y"], name="sum")]
    content = model(nodes, {"x": x}, ["y"], opened=())
    arrays = (layout.copied(x, at) for at in (0, offset))
    sides = [record_run(onnxruntime.OnnxRecorder(content, {"x": array})) for array in arrays]
    assert [one.values[0].address for one in sides] == [0, offset]
    found = difference.compare_runs(RunningMatch.of(*sides))
    lines = sides[1].operations[0].lines(["x0"], "y")
    assert any("room" in line for line in lines) == (offset % 16 != 0)
    arrays = sides[1].arrays({0, 1})
    assert sides[1].operations[0].again([arrays[0]])[0].tobytes() == arrays[1].tobytes()
    if found.first is not None:
        assert source.find_cause(*sides, found.first).kind == "alignment"
        scope = {"x0": arrays[0], "np": np}
        exec("\n".join([*sides[1].operations[0].imports, *lines]), scope)
        assert np.asarray(scope["y"]).tobytes() == arrays[1].tobytes()


def value(name, kind=TensorProto.FLOAT):
    shape = None if kind == TensorProto.FLOAT else []
    return helper.make_tensor_value_info(name, kind, shape)


def counted(most, x, cond="Identity", name="loop"):
    """A Loop that adds x to a value again and again, and gives every sum, ten times, too.

    ``cond``: goes on as it was told to; or, as ``Less``, while the sums' first number is small.
    """
    node = helper.make_node
    goes = [node("Identity", ["c"], ["d"])]
    if cond == "Less":
        goes = [node("Gather", ["b", "none"], ["f"], axis=0), node("Less", ["f", "limit"], ["d"])]
    body = helper.make_graph(
        [node("Add", ["a", "x"], ["b"], name="add"), node("Mul", ["b", "ten"], ["e"], name="ten")]
        + goes,
        "body",
        [value("i", TensorProto.INT64), value("c", TensorProto.BOOL), value("a")],
        [value("d", TensorProto.BOOL), value("b"), value("e")],
        [numpy_helper.from_array(np.float32(10), "ten")],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "z"], name=name, body=body)]
    held = {"n": np.array(most), "limit": np.float32(3.5), "none": np.array(0)}
    return model(nodes, {"x": x}, ["y", "z"], held, opened=())


@pytest.mark.parametrize("cond", ["Identity", "Less"])
def test_a_loop_is_one_operation_that_runs_alone(cond):
    x = np.ones(3, np.float32)
    seen, found = recorded_twice(onnxruntime.OnnxRecorder(counted(9, x, cond), {"x": x}))
    assert [one.op for one in seen if one.op in ("Loop", "Add")] == ["Loop"]
    assert found[1].shape == (3 if cond == "Less" else 9, 3)  # 2, 3, 4 against 3.5
    ran, written = alone(onnxruntime.OnnxRecorder(counted(9, x, cond), {"x": x}))
    assert "Loop" in ran and ran == written
    assert any(isinstance(one.meaning, meaning.Unknown) for one in seen if one.op == "Loop")


def test_nodes_alone_give_the_recorded_bits_and_have_lines_that_do():
    content, x = residual()
    ran, written = alone(onnxruntime.OnnxRecorder(content, {"x": x}, {"threads": "1"}))
    assert {"Conv", "Gemm"} <= set(ran) and ran == written


def test_of_an_if_the_branch_that_runs_is_recorded():
    node = helper.make_node
    y = [onnx.ValueInfoProto(name="y")]
    twice = helper.make_graph([node("Add", ["x", "x"], ["y"], name="twice")], "then", [], y)
    same = helper.make_graph([node("Identity", ["x"], ["y"], name="same")], "else", [], y)
    nodes = [node("If", ["c"], ["out"], then_branch=twice, else_branch=same)]
    x = normal(3)
    content = model(nodes, {"c": np.array([True]), "x": x}, ["out"])
    for condition, name in ((True, "twice"), (False, "same")):
        seen = []
        recorder = onnxruntime.OnnxRecorder(content, {"c": np.array([condition]), "x": x})
        recorder.record(lambda event, seen=seen: seen.append(event.path))
        assert not recorder.note
        assert seen == [name]


def test_a_branch_in_a_branch_reads_weights_of_the_model_as_onnx_runtime_does():
    """It packs no weight from that far out, and a row times a matrix then has different bits."""
    node = helper.make_node
    product = [node("MatMul", ["x", "w"], ["p"]), node("Constant", [], ["h"], value_float=0.5),
               node("Mul", ["p", "h"], ["q"])]  # fmt: skip

    def branch(nodes, gives):
        return helper.make_graph(nodes, "branch", [], [value(gives)])

    inner = node("If", ["c"], ["s"], then_branch=branch(product, "q"),
                 else_branch=branch([node("Neg", ["x"], ["m"])], "m"))  # fmt: skip
    outer = node("If", ["c"], ["y"], then_branch=branch([inner], "s"),
                 else_branch=branch([node("Abs", ["x"], ["a"])], "a"))  # fmt: skip
    given, held = {"c": np.array([True]), "x": normal(1, 64)}, {"w": normal(64, 64)}
    content = model([outer], given, ["y"], held, opened=())
    recorder = onnxruntime.OnnxRecorder(content, given, {"optimisation": "none"})
    ran, written = alone(recorder)
    assert not recorder.note and ran == written
    assert ran == ["MatMul", "Mul"]


def test_a_constant_that_a_branch_gives_is_handed_on():
    node, two = helper.make_node, numpy_helper.from_array(np.float32(2), "two")
    ends = [value("two"), value("a")]
    taken = helper.make_graph([node("Abs", ["x"], ["a"])], "taken", [], ends, [two])
    one = node("If", ["c"], ["p", "q"], then_branch=taken, else_branch=taken)
    given = {"c": np.array([True]), "x": normal(3)}
    content = model([one, node("Mul", ["p", "q"], ["y"])], given, ["y"], opened=())
    seen, _ = recorded_twice(onnxruntime.OnnxRecorder(content, given, {"optimisation": "none"}))
    assert sorted(event.op for event in seen) == ["Abs", "Identity", "Mul"]


def test_a_model_whose_nodes_give_other_bits_is_one_operation(monkeypatch):
    content, x = residual()
    recorder, seen = onnxruntime.OnnxRecorder(content, {"x": x}), []
    own = recorder.plain
    monkeypatch.setattr(recorder, "plain", lambda: [np.nextafter(own()[0], np.float32(9))])
    recorder.record(seen.append)
    assert [(one.op, one.path) for one in seen] == [("model", "")]
    assert recorder.note == (
        "the model is one operation: its nodes run one by one give different bits"
    )
    (found,) = seen[0].again([x])
    assert found.shape == (4, 5)


def test_shapes_are_read_without_the_numbers():
    node = helper.make_node
    nodes = [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["y"])]
    x, seen = normal(2, 3), []
    recorder = onnxruntime.OnnxRecorder(
        model(nodes, {"x": x}, ["y"]), {"x": x}, {"optimisation": "none"}
    )
    recorder.record(seen.append)
    assert [len(one.reads) for one in seen] == [0, 1]
    assert {type(one.meaning) for one in seen} == {meaning.Moves}


def test_wrong_inputs_are_one_line():
    content, x = residual()
    with pytest.raises(InputError, match="x is missing"):
        onnxruntime.OnnxRecorder(content, {"z": x}).plain()
    with pytest.raises(InputError, match="ONNX Runtime refuses them"):
        onnxruntime.OnnxRecorder(content, {"x": x[:, :2]}).plain()
