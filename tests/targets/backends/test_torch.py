"""PyTorch: exact on integers, every order replayed, its own choice of a backend."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.order.orders import reveal
from probe.targets.backends import conformance
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.torch import Torch
from probe.targets.target import Target
from tests.targets.backends import conforming

pytestmark = pytest.mark.long

WIDE = conformance.spec("conv1d", [5], in_channels=64, filters=64)


def test_the_backend_switches_where_channels_times_length_exceed_20480(started):
    said = [conforming.kernels(started("torch"), WIDE, (1, n, 64)) for n in (319, 320, 321)]
    if started("torch").facts["onednn"] is False:
        pytest.skip("this build has no oneDNN")
    assert said == [{"backend-choice": [name]} for name in ("Slow2d", "Slow2d", "Mkldnn")]
    batch = conforming.kernels(started("torch"), WIDE, (2, 16, 64))
    assert batch == {"backend-choice": ["Mkldnn"]}


@pytest.mark.slow
def test_without_onednn_the_choice_is_pytorchs_own(started):
    session = started("torch,mkldnn=0")
    assert session.facts["onednn"] is False
    said = conforming.kernels(session, WIDE, (2, 400, 64))
    assert said == {"backend-choice": ["Slow2d"]}


def test_what_does_not_fit_is_refused_in_one_line(started):
    spec = conformance.spec("conv1d", [5])
    with pytest.raises(TargetError, match="PyTorch refuses: .*Kernel size") as caught:
        conforming.run(started("torch"), spec, np.ones((1, 3, 1), "f4"), np.ones((5, 1, 1), "f4"))
    assert caught.value.kind == "unsupported"


def test_a_gpu_is_named_as_pytorch_names_it():
    assert Target.parse("torch@cuda:0,tf32=0").text == "torch@cuda:0,tf32=0"
    with pytest.raises(InputError, match="cuda:N"):
        Target.parse("torch@gpu:0")


@pytest.mark.slow
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
