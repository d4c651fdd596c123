"""A padded network as a script: its layers up to the first that differs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from probe.activations import ACTIVATIONS
from probe.errors import InputError
from probe.network import Network
from probe.reproduction import code, folder, networks, proof
from probe.target import Target, unavailable
from tests.reproductions.test_reproduction import clean

DESCRIPTION = {
    "name": "small",
    "rank": 1,
    "in_channels": 2,
    "layers": [
        {"op": "conv1d", "kernel": 3, "filters": 3, "bias": True, "padding": "same"},
        {"op": "activation", "activation": "leaky_relu", "parameters": {"alpha": 0.1}},
        {"op": "max_pool1d", "kernel": 2, "stride": 2},
        {"op": "conv1d", "kernel": 5, "filters": 4},
        {"op": "dense", "filters": 2},
    ],
}
SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=12")


def test_a_network_is_cut_behind_its_first_difference_and_runs_alone(tmp_path):
    network = Network.load(DESCRIPTION)
    made = networks.reproduce(network, 6, SWITCHES, 40, 20, times=1)
    assert made.finding.at == 20 and made.finding.against == 40
    layers = [layer.op for layer in made.finding.network.layers]
    assert layers == ["conv1d", "activation", "max_pool1d", "conv1d"]
    assert set(made.explanation.causes) == {"order"}
    folder.write(made, tmp_path)
    assert clean(tmp_path / "reproduce.py") == ""
    ran = proof.run(tmp_path / "reproduce.py", made.targets)
    assert ran.status == 1 and ran.bits == made.ran.bits and ran.bits
    command = [sys.executable, "-I", "emulated.py", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    for left, right in ran.bits:
        assert left in done.stdout and right in done.stdout
    report = (tmp_path / "report.md").read_text()
    assert "4 layers up to conv1d 5, 3 -> 4" in report and "padded length 20" in report


LONG_FIRST = {
    "name": "long first",
    "rank": 2,
    "height": [1],
    "turned": True,
    "in_channels": 3,
    "layers": [
        {"op": "conv2d", "kernel": "1x4", "filters": 16, "padding": "0,1:0", "bias": True},
        {"op": "activation", "activation": "tanh"},
        {"op": "max_pool2d", "kernel": "1x2", "stride": "1x2"},
        {"op": "pad", "padding": "0,0:1"},
        {"op": "conv2d", "kernel": "1x3", "filters": 24},
        {"op": "dense", "filters": 5},
    ],
}


SIZES = ((1, 90), (8, 600), (4, 300), (16, 131))
"""Factors of the filters and fixed lengths: which of them shows a difference is the processor's."""


def differing(description, text):
    """The reproduction of a network that differs here, on a target; skips where none does."""
    target = Target.parse(text)
    if why := unavailable(target):
        pytest.skip(why)
    for factor, fixed in SIZES:
        layers = [
            {**one, "filters": one["filters"] * factor} if one.get("op") in WIDENED else one
            for one in description["layers"]
        ]
        network = Network.load({**description, "layers": layers})
        try:
            return networks.reproduce(network, 2, target, fixed, times=1)
        except InputError as error:
            if "no activation differs" not in error.why:
                raise
    pytest.skip(f"{text}: no activation differs on this processor at any of {SIZES}")


WIDENED = {"conv1d", "conv2d"}


@pytest.mark.parametrize(
    "text",
    [
        "reference,algorithm=pairwise,length_switch=12",
        pytest.param("torch", marks=pytest.mark.slow),
        pytest.param("tensorflow,isa=avx2", marks=pytest.mark.slow),
    ],
)
def test_a_model_whose_first_axis_is_long_has_a_script_in_its_own_axes(text, tmp_path):
    made = differing(LONG_FIRST, text)
    last = made.finding.network.layers[-1]
    assert made.shown and made.ran.status == 1 and made.ran.bits
    assert made.explanation.replayed == made.explanation.compared
    kernel = last.kernel[::-1] if last.op == "conv2d" else (1, 24, 5)
    assert made.explanation.left.operands.w.shape[: len(kernel)] == kernel
    assert made.finding.to_json()["layers"][0].startswith("conv2d 4x1, 3 -> ")
    assert made.finding.to_json()["layers"][0].endswith(", 1:0,0")
    assert "length - x.shape[-3]" in made.script
    folder.write(made, tmp_path)
    assert clean(tmp_path / "reproduce.py") == ""
    command = [sys.executable, "-I", "emulated.py", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert all(bits in done.stdout for pair in made.ran.bits for bits in pair)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["torch", "tensorflow,isa=avx2,mode=graph", "keras,isa=avx2"])
def test_scales_are_the_librarys_own(text, tmp_path):
    layers = [
        {"op": "normalisation"},
        {"op": "conv1d", "kernel": 3, "filters": 16, "padding": "same"},
        {"op": "normalisation"},
        {"op": "activation", "activation": "relu"},
        {"op": "conv1d", "kernel": 4, "filters": 24},
        {"op": "dense", "filters": 40},
    ]
    made = differing({"rank": 1, "in_channels": 3, "layers": layers}, text)
    folder.write(made, tmp_path)
    assert made.ran.status == 1 and made.ran.bits and clean(tmp_path / "reproduce.py") == ""
    assert "normalisation_0(x, scale_0, shift_0)" in made.script


def test_what_does_not_differ_or_has_no_script_is_refused():
    network = Network.load(DESCRIPTION)
    with pytest.raises(InputError, match="no activation differs"):
        networks.reproduce(network, 6, Target.parse("reference"), 40, times=1)
    with pytest.raises(InputError, match="does not define a length"):
        networks.reproduce(network, 6, SWITCHES)


OWN = sorted(set(ACTIVATIONS) - set(code.EXACT))


@pytest.mark.parametrize("names", [OWN[::2], OWN[1::2]], ids=" ".join)
def test_a_librarys_own_activations_stand_in_the_script(names, tmp_path):
    layers = [*DESCRIPTION["layers"]]
    layers[1:2] = [{"op": "activation", "activation": name} for name in names]
    made = networks.reproduce(
        Network.load({**DESCRIPTION, "layers": layers}), 6, SWITCHES, 40, 20, times=1
    )
    folder.write(made, tmp_path)
    assert made.ran.status == 1 and made.shown
    for number, name in enumerate(names, 1):  # the values of each go through the next
        assert f"def {name}_{number}(x):" in made.script
    assert clean(tmp_path / "reproduce.py") == ""


@pytest.mark.parametrize(
    "library", ["tensorflow", "torch", "keras", "jax", "numpy", "litert", "opencv", "onnxruntime"]
)
def test_every_library_with_layers_has_every_activation(library):
    for version in ("1.15.0", "2.21.0"):
        for switches in ("", ",xla=1", ",mode=graph") if library == "tensorflow" else ("",):
            target = Target.parse(library + switches)
            for name in set(ACTIVATIONS) - set(code.EXACT):
                lines = code.activation(target, version, name, 0.5, (1, 9, 3))
                compile("def f(x):\n" + "\n".join(f"    {one}" for one in lines), name, "exec")
    with pytest.raises(InputError, match="activation=none"):
        code.activation(Target.parse(library), "2.0", "none", 1.0, (1, 9, 3))
