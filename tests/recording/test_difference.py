"""Verdicts of single operations, and why there is none."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe.recording.difference import OTHER_NUMBERS

onnx = pytest.importorskip("onnx", reason="models are made with onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def test_a_size_that_differs_is_said_to_be_a_different_number(tmp_path):
    make, types = onnx.helper, onnx.TensorProto
    ends = [make.make_tensor_value_info(name, types.FLOAT, ["N", 4]) for name in "xy"]
    size = make.make_tensor_value_info("n", types.INT64, [1])
    nodes = [
        make.make_node("Shape", ["x"], ["n"], start=0, end=1),
        make.make_node("Tanh", ["x"], ["y"]),
    ]
    graph = make.make_graph(nodes, "sizes", ends[:1], [ends[1], size])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "sizes.onnx")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    found = probe.network(tmp_path / "sizes.onnx", vary="batch", at=1, against=3, inputs={"x": x})
    (shape,) = (one for one in found.found.operations if one.op == "Shape")
    assert shape.verdict == "unknown" and shape.reason.why == OTHER_NUMBERS


def test_an_array_without_elements_leaves_no_verdict_open():
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 5)
    found = probe.first_difference(lambda: (x * 2, x[:0] * 2), lambda: (x * 2, x[:0] * 2))
    assert found.verdict == "equal" and found.lines()[2] == "all 15 outputs that must agree do"
    assert found.lines()[1].startswith("equal: ")
    empty = probe.first_difference(lambda: x[:0] * 2, lambda: x[:0] * 2)
    assert empty.verdict == "equal" and empty.lines()[2] == "the outputs have no elements"
