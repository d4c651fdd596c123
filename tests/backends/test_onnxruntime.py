"""ONNX Runtime: exact on integers, every order replayed, its models and what it makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from probe.backends import conformance
from probe.backends.onnxruntime import OnnxRuntime
from probe.backends.source import ValueShapes
from probe.operation import case_program, layer_program
from tests.backends import conforming

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ("onnxruntime", ("float32", "float16")),
        ("onnxruntime,weights=argument", ("float32",)),
        ("onnxruntime,threads=1,deterministic=1", ("float32",)),
    ],
)
@pytest.mark.slow_at("onnxruntime,threads=1,deterministic=1-dtypes2", "onnxruntime-dtypes0")
def test_integers_are_exact(started, text, dtypes):
    found = conforming.findings(started(text), dtypes)
    assert not found["wrong"]
    refused = [one.spec for one in found["unsupported"]]
    assert all(spec["padding"] == "same" for spec in refused)
    assert all(max(spec["stride"]) > 1 and max(spec["dilation"]) > 1 for spec in refused)


@pytest.mark.parametrize("text", ["onnxruntime", "onnxruntime,weights=argument"])
@pytest.mark.slow
def test_every_output_is_revealed_and_replayed(started, text):
    assert not conforming.not_replayed(started(text))


@pytest.mark.slow
def test_float16_replays(started):
    assert not conforming.not_replayed(started("onnxruntime"), conforming.CASES[::3], "float16")


def test_constant_weights_get_blocked_layouts_and_fed_ones_do_not(started):
    spec = conformance.spec("conv2d", [3, 3], in_channels=16, filters=16)
    said = conforming.kernels(started("onnxruntime"), spec, (1, 9, 9, 16))
    assert "Conv (com.microsoft.nchwc)" in said["optimised-model"]
    said = conforming.kernels(started("onnxruntime,weights=argument"), spec, (1, 9, 9, 16))
    assert said == {"optimised-model": ["Conv"]}


def test_float16_is_computed_between_casts(started):
    spec = conformance.spec("conv1d", [5], dtype="float16")
    said = conforming.kernels(started("onnxruntime"), spec, (1, 9, 1))
    assert said == {"optimised-model": ["Cast", "Conv", "Cast"]}


def node(spec, shape=(1, 8, 8, 1)):
    """The text of the node of a spec."""
    program = case_program(spec)
    return OnnxRuntime().described({}, "cpu", "").shown(program, ValueShapes(program, shape))[0]


def test_same_is_written_out_where_auto_pad_would_be_refused():
    same = conformance.spec("conv2d", [3, 4], padding="same")
    assert 'auto_pad="SAME_UPPER"' in node(same) and "pads" not in node(same)
    dilated = node(dict(same, dilation=[2, 1]))
    assert "pads=[2, 1, 2, 2]" in dilated and "auto_pad" not in dilated
    assert "pads=[0, 2, 1, 3]" in node(dict(same, padding=[[0, 1], [2, 3]]))
    assert "pad" not in node(dict(same, padding="valid"))


@pytest.mark.parametrize("weights", ["constant", "argument"])
def test_a_program_may_read_any_earlier_value(weights):
    backend = OnnxRuntime()
    backend.start({"weights": weights}, "cpu")
    words = {"dtype": "float32", "channels": 3, "parameters": {}}
    specs = [
        {"op": "bias"},
        {"op": "add"},
        {"op": "multiply"},
        {"op": "concat", "axis": 1},
        {"op": "product", "transposed": True},
    ]
    reads = [(0,), (0, 1), (1, 2), (3, 0), (4, 1)]
    program = layer_program([words | one for one in specs], reads)
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    b = np.array([1, 2, 3], np.float32)
    operator = backend.program(program).at(x.shape)
    found = operator.output(operator.bind({"b0": b})(operator.input(x)))
    one = x + b
    joined = np.concatenate([one * (x + one), x], axis=1)
    assert (found == joined @ one.swapaxes(1, 2)).all()


def test_facts(started):
    facts = started("onnxruntime").facts
    assert facts["library"] == "onnxruntime" and facts["devices"] == ["cpu"]
    assert facts["threads"] is None and facts["onnx_version"]
