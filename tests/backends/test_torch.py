"""PyTorch: exact on integers, every order replayed, its own choice of a backend."""

from __future__ import annotations

import numpy as np
import pytest

from probe import target
from probe.backends import conformance
from probe.backends.contract import Unsupported
from probe.backends.torch import Torch
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.launch import Session
from probe.summation.orders import reveal
from probe.target import Target
from tests.backends import conforming

pytestmark = pytest.mark.long

WIDE = conformance.spec("conv1d", [5], in_channels=64, filters=64)


@pytest.mark.parametrize(
    ("text", "dtypes", "every"),
    [("torch", ("float32",), 1), ("torch", ("float16", "bfloat16", "float64"), 7)]
    + [("torch,mkldnn=0", ("float32", "bfloat16"), 3), ("torch,deterministic=1", ("float32",), 7)],
)
@pytest.mark.slow_at(
    "torch,deterministic=1-dtypes3-7", "torch,mkldnn=0-dtypes2-3", "torch-dtypes0-1"
)
def test_integers_are_exact_and_nothing_is_refused(started, text, dtypes, every):
    found = conforming.findings(started(text), dtypes, every)
    assert not found["wrong"] and not found["unsupported"]


@pytest.mark.parametrize("text", ["torch", "torch,mkldnn=0", "torch,threads=1"])
@pytest.mark.slow_at("torch,mkldnn=0", "torch,threads=1")
def test_every_output_is_revealed_and_replayed(started, text):
    assert not conforming.not_replayed(started(text))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.slow_at("bfloat16", "float64")
def test_other_formats_replay(started, dtype):
    assert not conforming.not_replayed(started("torch"), conforming.CASES[::3], dtype)


def test_the_backend_switches_where_channels_times_length_exceed_20480(started):
    said = [conforming.kernels(started("torch"), WIDE, (1, n, 64)) for n in (319, 320, 321)]
    if started("torch").facts["onednn"] is False:
        pytest.skip("this build has no oneDNN")
    assert said == [{"backend-choice": [name]} for name in ("Slow2d", "Slow2d", "Mkldnn")]
    batch = conforming.kernels(started("torch"), WIDE, (2, 16, 64))
    assert batch == {"backend-choice": ["Mkldnn"]}


def test_without_onednn_the_choice_is_pytorchs_own(started):
    session = started("torch,mkldnn=0")
    assert session.facts["onednn"] is False
    said = conforming.kernels(session, WIDE, (2, 400, 64))
    assert said == {"backend-choice": ["Slow2d"]}


def test_uneven_padding_is_asked_of_the_choice_as_it_is_computed(started):
    spec = dict(WIDE, padding=[[0, 200]])
    assert conforming.kernels(started("torch"), spec, (1, 300, 64)) == {
        "backend-choice": ["Mkldnn"]
    }


@pytest.mark.slow  # beside the other test of one thread, whose process it shares
def test_facts(started):
    facts = started("torch,threads=1").facts
    assert facts["library"] == "torch" and facts["devices"] == ["cpu"] and facts["threads"] == 1
    assert facts["library_version"].startswith("2.")


def test_what_does_not_fit_is_refused_in_one_line(started):
    spec = conformance.spec("conv1d", [5])
    with pytest.raises(TargetError, match="PyTorch refuses: .*Kernel size") as caught:
        conforming.run(started("torch"), spec, np.ones((1, 3, 1), "f4"), np.ones((5, 1, 1), "f4"))
    assert caught.value.kind == "unsupported"


def test_switches_of_the_gpu_are_refused_on_a_cpu():
    if why := target.why_unavailable(Target.parse("torch")):
        pytest.skip(why)
    session = Session(Target.parse("torch,tf32=0"))
    with pytest.raises(TargetError, match="use @cuda:0, or no tf32") as caught:
        session.start()
    session.close()
    assert caught.value.kind == "unavailable"


def test_the_environment_says_the_switches():
    assert Torch.environment({"isa": "avx2"}, "cpu") == {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    assert set(Torch.environment({}, "cuda:0")) == {"OMP_WAIT_POLICY"}
    assert "CUBLAS_WORKSPACE_CONFIG" in Torch.environment({"deterministic": "1"}, "cuda:0")


def test_a_gpu_is_named_as_pytorch_names_it():
    assert Target.parse("torch@cuda:0,tf32=0").text == "torch@cuda:0,tf32=0"
    with pytest.raises(InputError, match="cuda:N"):
        Target.parse("torch@gpu:0")


def test_a_gpu_that_is_not_there_is_unavailable(monkeypatch):
    if why := target.why_unavailable(Target.parse("torch")):
        pytest.skip(why)
    monkeypatch.setattr(target, "gpus", lambda: 9)
    session = Session(Target.parse("torch@cuda:8"))
    with pytest.raises(TargetError, match="cuda:8") as caught:
        session.start()
    session.close()
    assert caught.value.kind == "unavailable"


def test_nnpacks_winograd_is_no_sum_and_said_to_be_none(started):
    session = started("torch,mkldnn=0")
    case = Case(op="conv2d", kernel=3, filters=2, height=6, length=6, padding="same", batch=16)
    said = conforming.kernels(session, case.spec(), case.input_shape())
    if said != {"backend-choice": ["NnpackSpatial"]}:
        pytest.skip(f"NNPACK needs another CPU: {said}")
    orders = reveal(session, case)
    assert orders.not_a_sum.all() and not orders.replayed.any() and orders.evidence


def test_linear_as_a_switch_is_for_products_alone():
    backend = Torch().described({"linear": "1"}, "cpu", "")
    for op in ("conv1d", "sum", "dot", "avg_pool1d"):
        with pytest.raises(Unsupported, match="linear=1 is for matmul and dense"):
            backend.operator(conformance.spec(op, [1]))
    backend.operator(conformance.spec("matmul", [1]))
