"""ONNX Runtime recorded node by node: its bits, its branches, and what its operators mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.case import layout
from probe.case.errors import InputError
from probe.diff import difference, source
from probe.diff.match import RunningMatch
from probe.order import semantics as meaning
from probe.record.recording import record_run
from tests.record.recorders.recorded import alone, drawn, held_to_account, recorded, recorded_twice

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from probe.record.recorders import graphs, onnxruntime  # noqa: E402

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
    for level in onnxruntime.LEVELS:
        recorded_twice(onnxruntime.OnnxRecorder(content, {"x": x}, {"optimisation": level}))


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
def test_of_a_loop_every_iteration_is_recorded(cond):
    x = np.ones(3, np.float32)
    recorder = onnxruntime.OnnxRecorder(counted(9, x, cond), {"x": x}, {"optimisation": "none"})
    seen, found = recorded_twice(recorder)
    count = 3 if cond == "Less" else 9  # 2, 3, 4 against 3.5
    assert [one.path for one in seen if one.op == "Add"] == [f"loop[{n}]/add" for n in range(count)]
    assert found[1].shape == (count, 3)
    assert [one.path for one in seen if one.op == "Loop"] == ["loop"]  # all of what each gave
    assert held_to_account([recorder]) >= {"Add", "Mul", "Loop"}


def test_a_loop_of_no_iteration_and_one_of_too_many_are_one_operation(monkeypatch):
    x = normal(3)
    monkeypatch.setattr(graphs, "MOST_OPENED", 30)
    for most, note in ((0, ""), (9, "loops are one operation each: their iterations")):
        recorder, seen = onnxruntime.OnnxRecorder(counted(most, x), {"x": x}), []
        recorded(recorder, seen.append, seen)
        assert recorder.note.startswith(note) and bool(note) == bool(recorder.note)
        assert [(one.op, one.reads[0].name) for one in seen] == [("Loop", "n")]
        assert isinstance(seen[0].meaning, meaning.Unknown)


def recurrent(x, h):
    """A Scan along the first axis: a state that a product and a tanh carry on; and an If in it."""
    node, y = helper.make_node, [onnx.ValueInfoProto(name="y")]
    twice = helper.make_graph([node("Add", ["q", "q"], ["y"], name="twice")], "then", [], y)
    same = helper.make_graph([node("Tanh", ["q"], ["y"], name="once")], "else", [], y)
    body = helper.make_graph(
        [
            node("MatMul", ["v", "w"], ["p"], name="product"),
            node("Add", ["p", "i"], ["q"], name="add"),
            node("If", ["never"], ["s"], then_branch=twice, else_branch=same),
            node("Identity", ["s"], ["o"]),
        ],
        "body",
        [value("v"), value("i")],
        [value("s"), value("o")],
    )
    nodes = [node("Scan", ["h", "x"], ["last", "all"], name="scan", body=body, num_scan_inputs=1)]
    held = {"w": normal(8, 8), "never": np.array([False])}
    return model(nodes, {"x": x, "h": h}, ["last", "all"], held, opened=(0, 1))


def test_iterations_alone_give_the_recorded_bits_and_have_lines_that_do():
    x, h = normal(3, 2, 8), normal(2, 8)
    ran, written = alone(onnxruntime.OnnxRecorder(recurrent(x, h), {"x": x, "h": h}))
    assert {"Gather", "MatMul", "Tanh", "Scan"} <= set(ran) and ran == written
    recorder = onnxruntime.OnnxRecorder(recurrent(x, h), {"x": x, "h": h})
    assert held_to_account([recorder]) == set(ran)


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


def nested():
    """A Loop with an If in it, in a branch; what is inside reads values of all graphs around it."""
    node, plain = helper.make_node, onnx.ValueInfoProto

    def branch(nodes, given, **held):
        every = [numpy_helper.from_array(np.float32(one), name) for name, one in held.items()]
        return helper.make_graph(nodes, "branch", [], [plain(name=one) for one in given], every)

    small = [node("Mul", ["a", "two"], ["t"]), node("Add", ["t", "x"], ["u"])]
    body = helper.make_graph(
        [
            node("Less", ["i", "most"], ["less"]),
            node(
                *("If", ["less"], ["b"]),
                then_branch=branch(small, ["u"], two=2),
                else_branch=branch([node("Sub", ["a", "m"], ["u"])], ["u"]),
            ),
            node("ReduceSum", ["b"], ["e"], keepdims=0),
        ],
        "body",
        [value("i", TensorProto.INT64), value("c", TensorProto.BOOL), value("a")],
        [value("c", TensorProto.BOOL), value("b"), value("e"), value("h")],
        [numpy_helper.from_array(np.int64(2), "most"), numpy_helper.from_array(np.float32(7), "h")],
    )
    loop = [
        node("Neg", ["x"], ["m"], name="negative"),
        node("Loop", ["n", "", "x"], ["s", "z", "k"], name="loop", body=body),
    ]
    given = ["s", "z", "k", "v", "w"]
    yes = branch([*loop, node("Exp", ["x"], ["v"]), node("Tanh", ["s"], ["w"])], given)
    no = branch([node("Abs", ["x"], ["s"])], given, z=[1, 2], k=[3], v=[4], w=[5])
    node_of_all = node(*("If", ["p"], list("abcde")), then_branch=yes, else_branch=no)
    return [node_of_all, node("Mul", ["d", "e"], ["y"])]


@pytest.mark.parametrize("taken", [True, False])
def test_bodies_in_bodies_give_the_bits_of_the_model(taken):
    given = {"p": np.array([taken]), "x": normal(3, 4), "n": np.array(4)}
    content = model(nested(), given, list("abcy"), opened=())
    seen, found = recorded_twice(onnxruntime.OnnxRecorder(content, given))
    ran = [one.op for one in seen]
    if not taken:  # a constant that a branch gives is handed on
        assert sorted(ran) == ["Abs", *["Identity"] * 4, "Mul"]
        return
    # twice the branch of small numbers of turns, twice the other
    assert [ran.count(one) for one in ("Less", "Add", "Sub", "Loop")] == [4, 2, 2, 2]
    assert found[2].tolist() == [7, 7, 7, 7]
    assert {one.path for one in seen if one.op == "Sub"} == {"loop[2]/b", "loop[3]/b"}


def test_a_body_in_a_body_reads_weights_of_the_model_as_onnx_runtime_does():
    """It packs no weight from that far out, and a row times a matrix then has different bits."""
    node, ends = helper.make_node, [value("t", TensorProto.BOOL), value("s")]
    product = [node("MatMul", ["a", "w"], ["p"]), node("Constant", [], ["h"], value_float=0.5),
               node("Mul", ["p", "h"], ["q"])]  # fmt: skip
    inner = [helper.make_graph(product, "taken", [], [value("q")])]
    inner += [helper.make_graph([node("Neg", ["a"], ["m"])], "other", [], [value("m")])]
    branch = node("If", ["t"], ["s"], then_branch=inner[0], else_branch=inner[1])
    given = [value("i", TensorProto.INT64), ends[0], value("a")]
    body = helper.make_graph([branch, node("Identity", ["t"], ["g"])], "body", given,
                             [value("g", TensorProto.BOOL), value("s")])  # fmt: skip
    x, held = normal(1, 64), {"w": normal(64, 64), "n": np.array(3), "yes": np.array(True)}
    loop = node("Loop", ["n", "yes", "x"], ["y"], name="loop", body=body)
    content = model([loop], {"x": x}, ["y"], held, opened=())
    recorder = onnxruntime.OnnxRecorder(content, {"x": x}, {"optimisation": "none"})
    ran, written = alone(recorder)
    assert not recorder.note and ran == written
    assert ran.count("MatMul") == 3
    # and the loop as one operation, of a body that ONNX Runtime saved with a constant twice
    found = recorder.cut(opens=False).run(lambda _: None)
    assert [one.array().tobytes() for one in found] == [recorder.plain()[0].tobytes()]


class Planted(onnxruntime.OnnxRecorder):
    """A recorder of a run in which one node gave the next number everywhere."""

    def record(self, visit):
        def planted(event):
            if event.path == "b":
                (own,) = event.gives
                given = replace(own, array=lambda: np.nextafter(own.array(), np.float32(9)))
                event = replace(event, gives=[given])
            visit(event)

        return super().record(planted)


def test_a_planted_difference_is_found_where_it_is():
    node = helper.make_node
    nodes = [node("Tanh", ["x"], ["a"], name="a"), node("Mul", ["a", "a"], ["b"], name="b")]
    nodes += [node("Exp", ["b"], ["y"], name="c")]
    x = normal(2, 6)
    content = model(nodes, {"x": x}, ["y"])
    sides = [kind(content, {"x": x}) for kind in (onnxruntime.OnnxRecorder, Planted)]
    found = difference.compare_runs(RunningMatch.of(*map(record_run, sides)))
    assert [one.verdict for one in found.operations] == ["equal", "source", "healed"]
    assert found.first is not None
    assert (found.first.name, found.first.differing, found.first.max_ulp) == ("b", 12, 1)


def test_a_model_whose_nodes_give_other_bits_is_one_operation(monkeypatch):
    content, x = residual()
    recorder, seen = onnxruntime.OnnxRecorder(content, {"x": x}), []
    own = recorder.plain
    monkeypatch.setattr(recorder, "plain", lambda: [np.nextafter(own()[0], np.float32(9))])
    recorded(recorder, seen.append, seen)
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
    with pytest.raises(InputError, match="use one of"):
        onnxruntime.OnnxRecorder(content, {"x": x}, {"optimisation": "most"})
