"""Plans in users' own programs: models of Keras, PyTorch and ONNX Runtime, either axis long.

The program runs in a process of its own, knows nothing of ``probe``, and has the bits of its fixed
size on as much padding as the plan says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from probe import Target
from probe.launch import Session, library_variables
from probe.network import Network, plan
from probe.network.safe import SafeLengths
from probe.target import unavailable

pytestmark = pytest.mark.slow
FIXED, CONTENTS = 131, (1, 2, 7, 18, 33, 58)
SIZES = {"last": lambda n, across=1: (across, n), "first": lambda n, across=1: (n, across)}
"""A size along the long axis and across it, as the model has them."""


def keras_layers(keras, net, of):
    layers = keras.layers
    if net == "plain":
        return [
            layers.Conv2D(24, of(5), activation="relu"),
            layers.MaxPooling2D(of(2)),
            layers.Conv2D(40, of(5), activation="tanh"),
            layers.MaxPooling2D(of(2)),
            layers.Conv2D(9, of(4)),
        ]
    return [
        layers.Conv2D(16, of(7), padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Conv2D(16, of(3), dilation_rate=of(2), activation="sigmoid"),
        layers.AveragePooling2D(of(3)),
        layers.DepthwiseConv2D(of(3)),
        layers.Conv2D(33, 1, activation="gelu"),
        layers.Conv2D(2, of(3)),
        layers.Dense(3),
    ]


def torch_layers(nn, net, of):
    if net == "plain":
        return [
            *(nn.Conv2d(3, 64, of(5)), nn.ReLU(), nn.MaxPool2d(of(2))),
            *(nn.Conv2d(64, 64, of(5)), nn.Tanh(), nn.MaxPool2d(of(2))),
            nn.Conv2d(64, 9, of(4)),
        ]
    return [
        *(nn.Conv2d(3, 16, of(7), padding=of(3, 0), bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 16, of(3), dilation=of(2)), nn.Sigmoid(), nn.AvgPool2d(of(3))),
        *(nn.Conv2d(16, 16, of(3), groups=16), nn.Conv2d(16, 33, 1), nn.GELU()),
        *(nn.Conv2d(33, 48, of(4), stride=of(2)), nn.SiLU(), nn.Conv2d(48, 2, of(2))),
    ]


def saved(library, net, long, folder):
    """A model of the library in a file of its own."""
    of = SIZES[long]
    if library == "keras":
        keras = pytest.importorskip("keras")
        keras.utils.set_random_seed(3)
        shape = (*of(None), 3)
        model = keras.Sequential([keras.Input(shape), *keras_layers(keras, net, of)])
        model.save(folder / "model.keras")
        return folder / "model.keras"
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    module = torch.nn.Sequential(*torch_layers(torch.nn, net, of))
    module(torch.randn(4, 3, *of(FIXED)))  # what a normalisation remembers
    module.eval()
    if library == "torch":
        torch.save(module, folder / "model.pt")
        return folder / "model.pt"
    pytest.importorskip("onnx")
    path = folder / "model.onnx"
    x, dynamic = torch.randn(1, 3, *of(64)), {"x": {3 if long == "last" else 2: "n"}}
    torch.onnx.export(module, x, path, input_names=["x"], dynamic_axes=dynamic, dynamo=False)
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
@pytest.mark.parametrize("long", list(SIZES))
@pytest.mark.parametrize("net", ["plain", "mixed"])
@pytest.mark.parametrize(
    ("library", "text", "way"),
    [
        ("keras", "keras,onednn=0", "call"),
        ("keras", "keras,mode=graph,isa=avx2", "predict"),
        ("torch", "torch", "module"),
        ("torch", "torch", "turned"),
        ("onnxruntime", "onnxruntime", "session"),
    ],
)
def test_a_users_program_has_the_fixed_bits_at_planned_lengths(
    library, text, way, net, long, tmp_path
):
    target = Target.parse(text)
    if why := unavailable(target):
        pytest.skip(why)
    path = saved(library, net, long, tmp_path)
    network = Network.load(path, height=(1,), trust=True)
    assert network.swapped == (long == "first") and network.suffix is None
    with Session(target) as session:
        made = plan.make(SafeLengths(session, network.geometry(FIXED)), CONTENTS)
    assert made.failed == []
    made.save(tmp_path)
    program = Path(__file__).parents[1] / "networks" / "pasted_plan.py"
    command = [sys.executable, program, library, path, tmp_path, *map(str, CONTENTS)]
    variables = {**os.environ, **library_variables(target)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    told = [one for one in told if one["way"] == way]
    assert [one["content"] for one in told] == list(CONTENTS)
    # the plan's own constants are those of contiguous inputs, and it says where others' differ
    tail = "tail" if way != "turned" else "differing"
    if way == "turned":
        said = any("a transposed one gives different bits" in one for one in made.assumed)
        assert said == any(one["tail"] for one in told)
    failed = [one for one in told if not one["kept"] or one[tail] or one["differing"]]
    assert not failed, f"{path.name}, {made.to_json()}"
    assert any(one["padded"] < FIXED for one in told), told
