"""OpenVINO: exact on integers, every order replayed, in bfloat16 where its default is that."""

from __future__ import annotations

import pytest

import probe
from probe import Case
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


@pytest.mark.slow
def test_a_difference_of_lengths_is_explained_and_replayed():
    text, case = f"{PLAIN},weights=argument", Case("conv1d", 5, in_channels=64, filters=2)
    if why := target.why_unavailable(Target.parse(text)):
        pytest.skip(f"{text}: {why}")
    if not probe.sweep(case, [5, 64], text).to_json()["differing"]:
        pytest.skip(f"{text}: this processor adds alike at both lengths")
    found = probe.explain(case, text, 5, 64).to_json()
    assert found["causes"]["order"] == found["differing"] > 0
    assert found["replayed"] == found["compared"]


def test_without_the_library_the_target_says_so(monkeypatch):
    monkeypatch.setattr(target, "installed_version", lambda backend: None)
    assert OpenVino.distributions[0] in target.why_unavailable(Target.parse("openvino"))
