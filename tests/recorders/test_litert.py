"""LiteRT recorded operator by operator: its bits, and what its operators mean."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

from probe import ulp
from probe.agreement import RunningMatch
from probe.errors import InputError
from probe.recording import difference
from probe.recording.recording import record_run
from tests.recorders import truth
from tests.recorders.truth import alone, changed, drawn, recorded_twice, shares, told

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from probe.backends import litert as backend
from probe.recorders import graphs, litert

pytestmark = pytest.mark.long

RNG, normal = drawn(6)
MORE = {"TRANSPOSE_CONV": "TransposeConv"}
"""Options that the models of whole layers have no use for."""


def ints(*numbers) -> np.ndarray:
    return np.array(numbers, np.int32)


def one(monkeypatch, op, shape, constants, out, words) -> bytes:
    """A model of one operator: its inputs are ``x`` and constants; ``x`` where a constant is
    None."""
    monkeypatch.setattr(backend, "OPTIONS", {**backend.OPTIONS, **MORE})
    graph = backend.LiteRTGraph("float32", shape)
    graph.flat = False
    graph.tensors[0] = graph.tensors[0]._replace(shape=list(shape))
    held = [graph.x if a is None else graph.constant(f"c{n}", a) for n, a in enumerate(constants)]
    y = graph.operator(op, held, out, **words)
    return backend.LiteRTModel(graph, y)({})["model"]


def residual() -> bytes:
    """A convolution, a residual branch, a concatenation, a mean and a product."""
    graph = backend.LiteRTGraph("float32", (1, 9, 9, 3))
    w1, b1 = graph.constant("w1", normal(16, 3, 3, 3)), graph.constant("b1", normal(16))
    w2, b2 = graph.constant("w2", normal(16, 3, 3, 16)), graph.constant("b2", normal(16))
    words = {"padding": "SAME", "strideW": 1, "strideH": 1}
    words |= {"dilationWFactor": 1, "dilationHFactor": 1}
    c1 = graph.operator("CONV_2D", [graph.x, w1, b1], (1, 9, 9, 16), **words)
    r1 = graph.each("RELU", c1)
    c2 = graph.operator("CONV_2D", [r1, w2, b2], (1, 9, 9, 16), **words)
    s = graph.each("ADD", c2, r1)
    j = graph.operator("CONCATENATION", [s, r1], (1, 9, 9, 32), axis=3)
    return backend.LiteRTModel(graph, graph.each("TANH", j))({})["model"]


@pytest.mark.parametrize("switches", [{}, {"xnnpack": "0"}, {"threads": "2"}], ids=str)
def test_the_recorded_run_gives_the_unrecorded_bits(switches):
    recorded_twice(litert.LiteRTRecorder(residual(), {"x": normal(4, 9, 9, 3)}, switches))


def test_one_row_alone_must_agree_with_the_same_row_of_four():
    model, x = residual(), normal(4, 9, 9, 3)
    sides = [record_run(litert.LiteRTRecorder(model, {"x": one})) for one in (x[:1], x)]
    found = difference.compare_runs(RunningMatch.of(*sides))
    assert not any(one.verdict in ("unknown", "left", "right") for one in found.operations)
    assert found.outputs[0].compared == 9 * 9 * 32


def test_operators_alone_give_the_recorded_bits_and_have_lines_that_do():
    ran, written = alone(litert.LiteRTRecorder(residual(), {"x": normal(2, 9, 9, 3)}))
    assert ran == written == ["CONV_2D", "CONV_2D", "ADD", "CONCATENATION", "TANH"]


POOL = {"filterWidth": 2, "filterHeight": 2}
SQUARE = {"strideW": 1, "strideH": 1, "padding": "SAME"}
UNDILATED = {"dilationWFactor": 1, "dilationHFactor": 1}
CASES = [
    ("CONV_2D", (1, 6, 7, 4), [None, normal(5, 3, 2, 4), normal(5)], (1, 3, 4, 5),
     {"strideW": 2, "strideH": 2, "padding": "SAME", **UNDILATED,
      "fusedActivationFunction": "RELU"}),
    ("CONV_2D", (1, 6, 6, 4), [None, normal(6, 3, 3, 2), normal(6)], (1, 6, 6, 6),
     {**SQUARE, **UNDILATED}),
    ("DEPTHWISE_CONV_2D", (1, 6, 6, 3), [None, normal(1, 3, 3, 6), normal(6)], (1, 6, 6, 6),
     {**SQUARE, **UNDILATED, "depthMultiplier": 2}),
    ("TRANSPOSE_CONV", (1, 3, 3, 4), [ints(1, 6, 6, 2), normal(2, 3, 3, 4), None], (1, 6, 6, 2),
     {"strideW": 2, "strideH": 2, "padding": "SAME"}),
    ("FULLY_CONNECTED", (3, 4), [None, normal(5, 4), normal(5)], (3, 5), {}),
    ("FULLY_CONNECTED", (2, 3, 4), [None, normal(5, 4), normal(5)], (6, 5), {}),
    ("BATCH_MATMUL", (2, 3, 4), [None, normal(2, 5, 4)], (2, 3, 5), {"adjY": True}),
    ("MAX_POOL_2D", (1, 5, 5, 2), [None], (1, 5, 5, 2),
     {**SQUARE, "filterWidth": 3, "filterHeight": 2}),
    ("AVERAGE_POOL_2D", (1, 5, 5, 2), [None], (1, 5, 5, 2),
     {**SQUARE, **POOL}),
    ("SOFTMAX", (3, 5), [None], (3, 5), {"beta": 1.0}),
    ("ADD", (2, 3), [None, normal(3)], (2, 3), {"fusedActivationFunction": "RELU6"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "shape", "constants", "out", "words"),
    CASES,
    ids=lambda v: v if isinstance(v, str) else "",
)
@pytest.mark.parametrize("xnnpack", ["0", "1"])
def test_a_sum_keeps_its_bits_where_an_element_that_it_does_not_read_changes(
    monkeypatch, op, shape, constants, out, words, xnnpack
):
    """To the bit, also by XNNPACK; test_litert_table asks the same of all operators."""
    model = one(monkeypatch, op, shape, constants, out, words)
    recorder = partial(litert.LiteRTRecorder, model, switches={"xnnpack": xnnpack})
    truth.keeps_what_it_does_not_read(recorder, {"x": normal(*shape)})


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


def test_operators_in_a_row_give_what_they_give_alone(monkeypatch) -> None:
    recorder = litert.LiteRTRecorder(residual(), {"x": normal(1, 9, 9, 3)})
    first = record_run(recorder)
    started = []
    plain = litert.interpreter_of
    monkeypatch.setattr(litert, "interpreter_of", lambda *a: started.append(a) or plain(*a))
    again = record_run(recorder)
    assert not started  # a small model's interpreters stay
    assert len(recorder.graph.pieces) < len(first.operations)
    assert [one.digest for one in again.values] == [one.digest for one in first.values]
    assert [one.reads for one in again.operations] == [one.reads for one in first.operations]


def test_operators_that_give_different_bits_in_a_row_run_alone(monkeypatch) -> None:
    plain = litert.LiteRTOperators.started

    def spoiled(self, nodes, *rest):
        run = plain(self, nodes, *rest)
        if len(nodes) == 1:
            return run
        return lambda arrays: [one + np.spacing(one) for one in run(arrays)]

    monkeypatch.setattr(litert.LiteRTOperators, "started", spoiled)
    recorder = litert.LiteRTRecorder(residual(), {"x": normal(1, 9, 9, 3)})
    live = record_run(recorder)
    assert all(len(one.nodes) == 1 for one in recorder.graph.pieces)
    assert not recorder.note
    assert ulp.equal(live.results[0], recorder.plain()[0], "float32")


def test_large_models_wait_on_disk(monkeypatch) -> None:
    monkeypatch.setattr(litert.LiteRTOperators, "KEPT", 0)
    recorder = litert.LiteRTRecorder(residual(), {"x": normal(1, 9, 9, 3)})
    first, again = record_run(recorder), record_run(recorder)
    assert [one.digest for one in again.values] == [one.digest for one in first.values]
    assert {one.exists() for one in recorder.graph.files.values()} == {True}
    assert len(recorder.graph.files) == len(recorder.graph.pieces)


def test_other_weights_are_given_to_an_operator_whose_model_waits_on_disk(monkeypatch) -> None:
    monkeypatch.setattr(litert.LiteRTOperators, "KEPT", 0)
    recorder, seen = litert.LiteRTRecorder(residual(), {"x": normal(1, 9, 9, 3)}), []
    recorder.record(lambda _: None)
    recorder.graph.apart()

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


@pytest.mark.parametrize("xnnpack", ["0", "1"])
def test_of_a_loop_every_iteration_is_recorded(xnnpack: str) -> None:
    model, x = looped(4), normal(4, 6)
    seen, _ = recorded_twice(litert.LiteRTRecorder(model, {"x": x}, {"xnnpack": xnnpack}))
    turns = [one.path.partition("[")[2][:1] for one in seen if one.op == "TANH"]
    assert turns == ["0", "1", "2"]
    assert {"IF", "WHILE", "EXP"} <= {one.op for one in seen}
    both = (x, changed(x, [2, 0, 3, 1]))
    sides = [litert.LiteRTRecorder(model, {"x": one}, {"xnnpack": "0"}) for one in both]
    assert all(known for _, _, known in shares(told(*sides, 1e-3)))


def test_a_loop_of_too_many_iterations_is_one_operation(monkeypatch) -> None:
    monkeypatch.setattr(graphs, "MOST_OPENED", 4)
    recorder, seen = litert.LiteRTRecorder(looped(4), {"x": normal(4, 6)}), []
    recorder.record(seen.append)
    assert recorder.note.startswith("loops are one operation each")
    assert "WHILE" in [one.op for one in seen]
    assert "TANH" not in [one.op for one in seen]
