"""A recording as one program of a library, or why there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from probe.errors import InputError
from probe.recording.end_to_end import as_program
from probe.recording.recording import record_run
from probe.recording.replayed import OnTarget
from probe.recording.subject import open_model
from tests.recording.replayable import BOUND, drawn

pytestmark = pytest.mark.long


def of_branches() -> tuple[Any, dict[str, np.ndarray]]:
    """Residuals, a norm, a join and a pad, of two inputs whose sizes are different."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn, F = torch.nn, torch.nn.functional  # noqa: N806

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
            self.other = nn.Conv2d(3, 11, 3, stride=2, padding=1)
            self.last = nn.Conv2d(11, 5, 1)

        def forward(self, x: Any, z: Any) -> Any:
            y = torch.relu(self.norm(self.first(x)))
            y = torch.sigmoid(self.second(y)) + y * self.first(x)
            y = torch.cat([y, F.pad(z, (0, 1, 1, 0))], 1)
            y = F.max_pool2d(F.leaky_relu(y, 0.1), 2) + self.other(z)
            return torch.softmax(self.last(y), 1)

    torch.manual_seed(0)
    return Model().eval(), {"x": drawn(2, 3, 18, 18), "z": drawn(2, 3, 17, 17)}


def of_rows() -> tuple[Any, dict[str, np.ndarray]]:
    """Attention of rows, which are turned on the way, and dense layers around it."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(12, 16), torch.nn.Linear(16, 12)

        def forward(self, x: Any) -> Any:
            y = x + self.last(torch.tanh(self.first(x)))
            return torch.softmax(y @ y.transpose(1, 2), -1) @ y

    torch.manual_seed(0)
    return Model().eval(), {"x": drawn(2, 7, 12)}


WHOLE = {"branches": of_branches, "rows": of_rows}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (name, text)
        for name in WHOLE
        for text in ("torch", "tensorflow", "tensorflow,mode=graph", "onnxruntime", "jax", "keras")
    ],
)
@pytest.mark.slow_at(
    "rows-keras",
    "branches-tensorflow",
    "branches-jax",
    "branches-tensorflow,mode=graph",
    "branches-keras",
    "rows-tensorflow,mode=graph",
)
def test_a_graph_is_one_program_of_a_library(started, name, text):
    model, inputs = WHOLE[name]()
    there = OnTarget(open_model(model), started(text))
    found, seconds, why = there.end_to_end(inputs, times=3)
    own = record_run(open_model(model).recorder(inputs)).results[0]
    assert not why and len(seconds) == 3
    assert found.shape == own.shape and np.abs(found - own).max() < BOUND * np.abs(own).max()


def test_where_there_is_no_program_of_a_graph_it_is_said_why(started, made):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, inputs = of_branches()
    litert = OnTarget(open_model(model), started("litert"))
    assert litert.end_to_end(inputs) == (None, [], "inputs=2: LiteRT's models are built for one")
    model, inputs, _ = made("torch")
    there = OnTarget(open_model(model), started("onnxruntime"))
    assert there.end_to_end(inputs)[2] == "transposed convolution: no case is one"

    class Flat(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.max_pool2d(x, 2).flatten(1) @ torch.ones(27, 2)

    with pytest.raises(InputError, match="aten.mm: what it reads has other rows than the value"):
        as_program(record_run(open_model(Flat()).recorder({"x": drawn(2, 3, 6, 6)})))

    class Two(torch.nn.Module):
        def forward(self, x):
            return x + 1, torch.tanh(x)

    with pytest.raises(InputError, match=r"\(none\): it gives 2 outputs"):
        as_program(record_run(open_model(Two()).recorder({"x": drawn(2, 3)})))
