"""What of a recorded operation a target can be asked: from the meanings of any library."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from probe.errors import InputError
from probe.recording.ported import Ports
from probe.recording.recording import record_run
from probe.recording.replayed import replay_run
from probe.recording.subject import open_model
from tests.recording.replayable import BOUND, drawn

pytestmark = pytest.mark.long

OWN_LIBRARY = {
    "torch": {"aten.convolution": 1, "aten.native_layer_norm": 1},
    "onnx": {"ConvTranspose": 1},
}
"""What runs by itself, by the operation, of libraries that have one operation for each layer."""


@pytest.mark.parametrize("name", OWN_LIBRARY)
def test_only_what_no_call_says_runs_by_itself(made, started, name):
    _, _, run = made(name)
    found = replay_run(run, started("reference"))
    told = Counter(run.operations[number].op for number in found.alone)
    assert told == OWN_LIBRARY[name]
    ports, calls = Ports(run), set[int]()
    for one in run.operations:
        with suppress(InputError):
            ports.stages(one)
            calls.add(one.number)
    assert found.there == calls  # the reference refuses none of them
    assert f"{len(found.there)} of {len(run.operations)} operations ran there" in (found.said)


def of_all_kinds() -> tuple[Any, dict[str, np.ndarray], dict[str, int]]:
    """Products, windows and functions as models seldom have them, and what can't be sent of them:
    results of many shapes, so that whatever goes wrong in one of them shows."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    F, ones, einsum = torch.nn.functional, torch.ones, torch.einsum  # noqa: N806

    def model(x: Any) -> Any:
        x = torch.as_tensor(x)
        one, two = x[0, 0], x[0, 1]
        cube = ones(4, 1, 3, 2, 3)
        return [
            F.conv2d(x, x[:, :, :3, :3].contiguous(), padding=1),  # weights that are activations
            F.conv2d(x, ones(6, 1, 3, 3), groups=3, padding=(2, 0), dilation=(2, 1)),
            F.conv1d(one, ones(8, 2, 3), groups=4, dilation=2, stride=2),
            F.conv3d(x[:, None], cube, padding=1, stride=(2, 1, 2)),
            einsum("nchw,mchw->nm", x, x),
            einsum("nchw,nchw->nc", x, x),
            einsum("chw,dw->hcd", x[0], two),
            torch.matmul(ones(4, 8), x),
            *(one @ two, one[0] @ two[1], one @ two[1], one.T @ two),
            torch.addmm(ones(8, 8), one, two),
            torch.addmm(ones(8, 8), one, two, beta=0.5, alpha=2),
            torch.baddbmm(ones(3, 8, 8), x[0], x[1]),
            F.linear(one, ones(2, 8), ones(2)),
            F.batch_norm(x, ones(3), ones(3) * 2),
            F.batch_norm(one, ones(8), ones(8) * 2, weight=torch.arange(8.0)),
            *(x.sum(-1), x.sum((2, 3)), x.sum((0, 2))),
            *(F.softmax(x, 1), F.softmax(x, -1), F.gelu(x.permute(0, 2, 3, 1))),
            *(
                F.elu(x, 0.5),
                F.selu(x),
                F.silu(x),
                F.softplus(x),
                F.softplus(x, 2.0),
                F.celu(x, 2.0),
            ),
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.max_pool1d(one, 3, 1, padding=1, dilation=2),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
        ]

    alone = {"aten.addmm": 1, "aten.sum.dim_IntList": 1, "aten.softplus": 1, "aten.celu": 1}
    return model, {"x": drawn(2, 3, 8, 8)}, alone


@pytest.mark.parametrize("text", ["reference", "torch", "tensorflow", "onnxruntime"])
@pytest.mark.slow_at("tensorflow")
def test_operations_of_all_kinds_compute_the_same_or_are_refused(started, text):
    model, inputs, alone = of_all_kinds()
    run = record_run(open_model(model).recorder(inputs))
    found = replay_run(run, started(text))
    operations = run.operations
    for number in (n for one in operations for n in one.gives):
        own, there = run.array(number), found.array(number)
        if run.values[number].floating and own.size:
            largest = max(float(np.abs(own).max()), 1e-3)
            assert np.abs(own.astype(float) - there).max() < BOUND * largest, number
    told = Counter(operations[number].op for number in found.alone)
    refused = {op: count for op, count in told.items() if count > alone.get(op, 0)}
    if text in ("reference", "torch"):
        assert told == alone
    assert set(refused) <= {"aten.convolution", "aten.max_pool2d_with_indices", "aten.avg_pool2d"}
    assert len(found.there) >= 24
