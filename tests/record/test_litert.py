"""LiteRT recorded operator by operator: its bits, and what its operators mean."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from probe.case.errors import InputError
from tests.record.recorded import alone, drawn, recorded_twice

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

from probe.record import litert
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
