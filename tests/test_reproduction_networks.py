"""A padded network as a script: its layers up to the first that differs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from probe.errors import InputError
from probe.network import Network
from probe.reproduction import folder, networks, proof
from probe.target import Target
from tests.test_reproduction import clean

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


def test_what_does_not_differ_or_has_no_script_is_refused():
    network = Network.load(DESCRIPTION)
    with pytest.raises(InputError, match="no activation differs"):
        networks.reproduce(network, 6, Target.parse("reference"), 40, times=1)
    with pytest.raises(InputError, match="does not say a length"):
        networks.reproduce(network, 6, SWITCHES)
    layers = [*DESCRIPTION["layers"]]
    layers[1] = {"op": "activation", "activation": "tanh"}
    own = Network.load({**DESCRIPTION, "layers": layers})
    with pytest.raises(InputError, match="a function of the library's own"):
        networks.reproduce(own, 6, SWITCHES, 40, 20, times=1)
