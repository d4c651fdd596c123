"""OpenVINO: exact on integers, every order replayed, in bfloat16 where its default is that."""

from __future__ import annotations

import pytest

from probe.targets import target
from probe.targets.backends import conformance
from probe.targets.backends.openvino import OpenVino
from probe.targets.target import Target
from tests.targets.backends import conforming

pytestmark = pytest.mark.long

PLAIN = "openvino,precision=f32"


@pytest.mark.slow
def test_the_default_is_what_its_users_have(started):
    facts = started("openvino").facts
    assert facts["library"] == "openvino" and facts["devices"] == ["cpu"]
    spec = conformance.spec("conv1d", [5], in_channels=16, filters=16)
    told = conforming.kernels(started("openvino"), spec, (1, 40, 16))["runtime-model"]
    convolution = next(one for one in told if one.startswith("Convolution"))
    assert convolution.endswith("_bf16)" if "BF16" in facts["capability"] else "_f32)")
    told = conforming.kernels(started(PLAIN), spec, (1, 40, 16))["runtime-model"]
    assert any(one.startswith("Convolution") and one.endswith("_f32)") for one in told)


def test_without_the_library_the_target_says_so(monkeypatch):
    monkeypatch.setattr(target, "installed_version", lambda backend: None)
    assert OpenVino.distributions[0] in target.why_unavailable(Target.parse("openvino"))
