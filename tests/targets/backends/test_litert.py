"""LiteRT: exact on integers, every order replayed, its models and who runs them."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.errors import TargetError
from probe.targets.backends import conformance
from probe.targets.backends.litert import runners
from tests.targets.backends import conforming

pytestmark = pytest.mark.long


def test_an_input_without_a_window_is_refused_and_not_answered_by_the_last_model(started):
    spec = conformance.spec("conv1d", [5])
    w = np.ones((5, 1, 1), np.float32)
    for _ in range(2):
        with pytest.raises(TargetError, match="no window fits"):
            conforming.run(started("litert"), spec, np.ones((1, 3, 1), np.float32), w)


def test_who_runs_an_operator(started):
    spec = conformance.spec("conv2d", [3, 3], padding=[[0, 1], [1, 1]])
    said = conforming.kernels(started("litert"), spec, (1, 5, 5, 1))
    assert said == {"interpreter": ["PAD by XNNPACK", "CONV_2D by XNNPACK"]}
    said = conforming.kernels(started("litert,xnnpack=0"), spec, (1, 5, 5, 1))
    assert said == {"interpreter": ["PAD built in", "CONV_2D built in"]}


@pytest.mark.parametrize(
    ("delegate", "expected"),
    [
        (([0, 1, 2, 3], [5]), ["PAD by XNNPACK", "CONV_2D by XNNPACK"]),
        (([4, 1, 2], [5]), ["PAD built in", "CONV_2D by XNNPACK"]),
        (([0, 3], [4]), ["PAD by XNNPACK", "CONV_2D built in"]),
    ],
)
def test_a_delegate_may_take_a_part(delegate, expected):
    details = [
        {"op_name": "PAD", "inputs": [0, 3], "outputs": [4]},
        {"op_name": "CONV_2D", "inputs": [4, 1, 2], "outputs": [5]},
        {"op_name": "DELEGATE", "inputs": delegate[0], "outputs": delegate[1]},
    ]
    assert runners(details) == expected
