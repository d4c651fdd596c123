"""ONNX Runtime and OpenVINO: the models that are written, and what each makes of them."""

from __future__ import annotations

import pytest

from probe.targets import target
from probe.targets.backends import conformance
from probe.targets.backends.onnxruntime import OnnxRuntime, OpenVino
from probe.targets.backends.source import InputShape
from probe.targets.target import Target
from tests.targets.backends import conforming

pytestmark = pytest.mark.long


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
    return OnnxRuntime().described({}, "cpu", "").shown(spec, InputShape(spec, shape))[0]


def test_same_is_written_out_where_auto_pad_would_be_refused():
    same = conformance.spec("conv2d", [3, 4], padding="same")
    assert 'auto_pad="SAME_UPPER"' in node(same) and "pads" not in node(same)
    dilated = node(dict(same, dilation=[2, 1]))
    assert "pads=[2, 1, 2, 2]" in dilated and "auto_pad" not in dilated
    assert "pads=[0, 2, 1, 3]" in node(dict(same, padding=[[0, 1], [2, 3]]))
    assert "pad" not in node(dict(same, padding="valid"))


@pytest.mark.slow
def test_openvinos_default_is_what_its_users_have(started):
    facts = started("openvino").facts
    assert facts["library"] == "openvino" and facts["devices"] == ["cpu"]
    spec = conformance.spec("conv1d", [5], in_channels=16, filters=16)
    told = conforming.kernels(started("openvino"), spec, (1, 40, 16))["runtime-model"]
    convolution = next(one for one in told if one.startswith("Convolution"))
    assert convolution.endswith("_bf16)" if "BF16" in facts["capability"] else "_f32)")
    told = conforming.kernels(started("openvino,precision=f32"), spec, (1, 40, 16))["runtime-model"]
    assert any(one.startswith("Convolution") and one.endswith("_f32)") for one in told)


def test_without_the_library_the_target_says_so(monkeypatch):
    monkeypatch.setattr(target, "installed_version", lambda backend: None)
    assert OpenVino.distributions[0] in target.why_unavailable(Target.parse("openvino"))
