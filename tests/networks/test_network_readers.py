"""Models as people save them: what is read of them, and what is said of the rest."""

import os
import subprocess
import sys

import numpy as np
import pytest

from probe.errors import InputError
from probe.launch import InlineSession
from probe.network import Network, report
from probe.network.running import Runner, content
from probe.target import Target


def refusal(source, **more):
    with pytest.raises(InputError) as caught:
        Network.load(source, **more)
    return str(caught.value)


def test_functions_of_a_traced_module_are_its_layers():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Conv1d(2, 4, 5, padding=2), torch.nn.Conv1d(4, 3, 3)
            self.last = torch.nn.Linear(3, 2)

        def stem(self, x):
            x = functional.max_pool1d(functional.relu(self.one(x)), 3, stride=2, padding=1)
            x = functional.dropout(x, 0.3, training=self.training)
            return torch.tanh(functional.leaky_relu(self.two(x), 0.3)).sigmoid()

        def forward(self, x):
            return self.last(torch.flatten(self.stem(x), 1))

    module = Net().eval()
    found = Network.load(module)
    assert [layer.activation or layer.op for layer in found.layers] == (
        "conv1d relu max_pool1d conv1d leaky_relu tanh sigmoid".split()
    )
    assert found.suffix.kind == "flatten" and "reads all positions" in found.suffix.why
    x = content(found, 30)
    with InlineSession(Target.parse("reference")) as session, torch.no_grad():
        ours = Runner(session, found).output(x)
        theirs = module.stem(torch.from_numpy(x.swapaxes(1, 2))).numpy().swapaxes(1, 2)
    assert np.allclose(ours, theirs, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_files_of_pytorch_that_hold_no_module_say_what_to_do(tmp_path):
    torch = pytest.importorskip("torch")
    convolution = torch.nn.Conv1d(2, 4, 3)
    path = tmp_path / "model.pt"
    torch.save(torch.nn.Sequential(convolution).bfloat16(), path)
    assert "dtype=bfloat16: networks are run in float32" in refusal(path, trust=True)
    torch.jit.save(torch.jit.trace(convolution.float(), torch.zeros(1, 2, 9)), path)
    assert "TorchScript" in refusal(path) and "export the model to ONNX" in refusal(path)
    path.write_bytes(b"cno_such_package\nNet\n.")
    assert "PYTHONPATH" in refusal(path, trust=True)


def test_layers_that_compute_in_another_dtype_end_the_chain():
    torch = pytest.importorskip("torch")
    half, single = torch.nn.Conv1d(2, 4, 3).half(), torch.nn.Conv1d(4, 2, 3)
    found = Network.load(torch.nn.Sequential(half, single))
    assert found.dtype == "float16" and len(found.layers) == 1
    assert found.suffix.why == "computes in float32, and the layers before it in float16"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_keras_models_of_mixed_precision_are_what_their_layers_compute_in(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers

    def saved(policy):
        parts = [layers.Conv1D(4, 3, dtype=policy), layers.ReLU(dtype=policy)]
        parts += [layers.Conv1D(2, 3, dtype="float32")]
        model = keras.Sequential([keras.Input((64, 2)), *parts])
        model.save(tmp_path / "model.keras")
        return tmp_path / "model.keras"

    found = Network.load(saved("mixed_float16"))
    assert found.dtype == "float16" and len(found.layers) == 2
    assert "computes in float32" in found.suffix.why
    assert "dtype=bfloat16: networks are run in float32" in refusal(saved("mixed_bfloat16"))


def test_tensorflow_says_nothing_while_a_keras_file_is_read(tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "model.keras").write_bytes(b"none")
    command = [sys.executable, "-m", "probe", "network", "model.keras", "--fixed", "9"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    said = [line for line in ran.stderr.splitlines() if not line.startswith("network: ")]
    assert said[0].startswith("probe: network=model.keras: can't be read")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("a.json", "{", "not JSON"), ("a.json", "[]", ""), ("a.onnx", "x", "")],
)
def test_refusals_name_the_file(tmp_path, name, content, message):
    if name.endswith("onnx"):
        pytest.importorskip("onnx")
    path = tmp_path / name
    path.write_text(content)
    assert refusal(path).startswith(f"network={path}: ") and message in refusal(path)


def test_layers_in_training_mode_are_named_and_negative_padding_ends_the_chain():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    layers = nn.Conv1d(2, 3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3), nn.Dropout(0.0), nn.ReLU()
    module = nn.Sequential(*layers, nn.ConstantPad1d((-1, 2), 0.0), nn.Conv1d(3, 2, 3))
    network = Network.load(module)
    said = "although the model is in training mode: 1 (Dropout), 2 (BatchNorm1d)"
    assert network.note.endswith(said)
    assert network.suffix.name == "5" and network.suffix.why == "crops (its padding is negative)"
    assert report.described(network, 32)["note"] == network.note
    evaluated = Network.load(module.eval())
    assert not evaluated.note and "note" not in report.described(evaluated, 32)
