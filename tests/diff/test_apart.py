"""What runs in a process of its own is compared and explained as here: a model is recorded on
targets of its own library; on others its file is run whole, or the answer is one line."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probe
from probe import Target
from probe.case.errors import InputError, Nondeterministic, TargetError
from probe.diff import apart
from probe.diff.apart import Apart
from probe.ui.answers import two_runs
from probe.ui.answers.two_runs import GivenModel
from tests.record.onnx_files import onnx_model
from tests.record.taped import normal

NETS = """
import numpy as np

def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

def torch(x):
    import torch
    torch.manual_seed(0)
    x = torch.from_numpy(x)
    w = torch.from_numpy(drawn(64, 65))
    y = torch.nn.functional.conv1d(x, torch.from_numpy(drawn(8, 3, 5)), padding=2)[:, ::2]
    y = torch.nn.functional.layer_norm(y.roll(1, 1), (64,)) @ w
    return torch.nn.functional.pad(y, (1, 2)).softmax(-1)

def jax(x):
    import jax
    jnp = jax.numpy
    y = jax.nn.softmax(jnp.tanh(jnp.asarray(x) @ jnp.asarray(drawn(64, 65))), -1)
    return jnp.concatenate([y, y[:, ::-1]], 1).sum(-1)

def counted(x):
    import torch
    with open("runs.txt", "a") as file:
        print(len(x), file=file)
    return torch.relu(torch.from_numpy(x) @ torch.from_numpy(drawn(64, 65))).sum(1).cumsum(0)

made = []

def keras(x):
    if not made:
        made.append(built())
    return made[0](x)

def built():
    import keras
    keras.utils.clear_session()  # layers are numbered from 1, as in a new process
    keras.utils.set_random_seed(0)
    layers = keras.layers
    inner = [
        layers.Permute((2, 1)),
        layers.Conv1D(24, 5, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.ZeroPadding1D(2),
        layers.MaxPooling1D(2),
        layers.Flatten(),
        layers.Dense(65, activation="softmax"),
    ]
    return keras.Sequential([layers.Input((3, 64)), *inner])
"""


@pytest.fixture
def nets(tmp_path: Any, monkeypatch: Any) -> Any:
    """Functions that a process of its own finds too."""
    (tmp_path / "given_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("given_nets", None)


def same(model: Any, target: str, **more: Any) -> dict[str, Any]:
    """What is said in this process, which is what is said with a target but for its name."""
    found = []
    for where in ({}, {"against_target": target}):
        answer = probe.network(model, vary="batch", at=1, against=8, **more, **where)
        told, lines = answer.to_json(), [*answer.lines(), *answer.unknown()]
        for side, size in (("left", 1), ("right", 8)):
            assert told.pop(side) == f"batch {size}" + f" on {target}" * bool(where)
            lines = [line.replace(f"batch {size} on {target}", f"batch {size}") for line in lines]
        found.append((told, lines))
    assert found[0] == found[1]
    return found[0][0]


@pytest.mark.parametrize("library", ["torch", "jax", "keras"])
@pytest.mark.slow
def test_a_function_is_compared_and_explained_there_as_here(nets: Any, library: str) -> None:
    pytest.importorskip(library)
    target = "tensorflow" if library == "keras" else library
    told = same(f"given_nets:{library}", target, shapes={"x": (8, 3, 64)})
    assert told["examined"] > 3


@pytest.mark.slow
def test_a_file_is_compared_and_explained_there_as_here(nets: Any) -> None:
    pytest.importorskip("onnxruntime")
    node = pytest.importorskip("onnx").helper.make_node
    w = np.random.default_rng(1).standard_normal((257, 65)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Pad", ["p", "pads"], ["q"])]
    nodes.append(node("Relu", ["q"], ["y"]))
    held = {"w": w, "pads": np.int64([0, 1, 0, 0])}
    content = onnx_model(nodes, {"x": ["n", 257]}, {"y": ["n", 66]}, held)
    (nets / "model.onnx").write_bytes(content)
    told = same(nets / "model.onnx", "onnxruntime")
    assert told["examined"] >= 2


@pytest.mark.slow
def test_a_function_is_run_three_times_a_side_there_too(nets: Any) -> None:
    pytest.importorskip("torch")
    more = {"vary": "batch", "at": 1, "against": 8, "shapes": {"x": (8, 64)}}
    found = probe.network("given_nets:counted", **more, against_target="torch")
    runs = Counter((nets / "runs.txt").read_text().split())
    # each of 8 samples alone and the batch, unwatched; where they differ, which samples read
    # others: five changes of samples with two contents each; then both sides three times, and the
    # batch with four other contents in what one sample lacks
    assert found.verdict in ("equal", "differs"), runs
    asked = 5 * 2 if found.verdict == "differs" else 0
    assert runs["1"] <= 8 + 3 and runs["8"] <= 1 + asked + 3 + 4, runs


@pytest.mark.slow
def test_a_recording_runs_again_there_as_long_as_it_is_held_here(nets: Any, tmp_path: Path) -> None:
    """However many are recorded behind it; and there none stays that is wanted no more."""
    pytest.importorskip("torch")
    x = np.ones((2, 64), np.float32)
    with Apart("given_nets:counted", Target("torch"), folder=tmp_path) as there:
        first = there.side({"x": x})
        product = next(one for one in first.operations if one.again and len(one.reads) > 1)
        reads = [first.array(n) for n in product.reads]
        for _ in range(14):
            there.side({"x": x})
        assert there.dropped == [14]  # the others were said before
        assert np.array_equal(product.again(reads)[0], first.array(product.gives[0]))


def test_names_are_put_into_recorded_lines_but_not_into_texts():
    known = ["model = decode('x0;y+x1')", "y = run(model, x0,", "    x1)"]
    wanted = ["model = decode('x0;y+x1')", "out = run(model, a,", "    y)"]
    assert apart._with_names(known, ["a", "y"], "out") == wanted
    with pytest.raises(SyntaxError):
        apart._with_names(["y = (x0"], ["a"], "out")


def test_recorded_lines_are_run_with_operands_at_other_addresses():
    pytest.importorskip("torch")
    text = ["y = torch.tensor([x0.data_ptr() % 64, x1.data_ptr() % 64])"]
    request = {"do": "written", "lines": text, "imports": ["import torch"]}
    plain = apart.Remote(None, request | {"dtypes": ["float32", "float32"]})
    arrays = {"0": normal(3, 4), "1": normal(5, 2)}
    served = apart.ProcessRecording()
    moves = [(plain, [0, 0])]
    moves += [(plain.moved(one), two) for one, two in (([8, 5], [8, 5]), ([None, 60], [0, 60]))]
    for one, wanted in moves:
        assert served._written(one.request, arrays)[1]["0"].tolist() == wanted
    other = request | {"imports": ["import jax"], "dtypes": ["float32"]}
    assert apart.Remote(None, other).moved([8]) is None


X = {"x": np.ones((2, 4), np.float32)}


@pytest.fixture
def file(tmp_path):
    """A dense layer of ONNX."""
    onnx = pytest.importorskip("onnx", reason="models are made with onnx")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path, held = tmp_path / "model.onnx", {"w": np.ones((4, 3), np.float32)}
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    path.write_bytes(onnx_model([node], {"x": ("N", 4)}, {"y": ("N", 3)}, held))
    return path


def test_a_file_is_not_compared_where_a_library_does_not_read_it(file):
    with pytest.raises(TargetError, match="runs no whole files") as refused:
        probe.network(file, "onnxruntime", against_target="reference", inputs=X)
    assert refused.value.target == "reference"


@pytest.fixture
def elsewhere(monkeypatch):
    """One thread stands for a release of another Python: the file is run whole there."""
    real = apart.is_own_library
    for module in (apart, two_runs):
        fake = lambda where, model: not where.switches and real(where, model)  # noqa: E731
        monkeypatch.setattr(module, "is_own_library", fake)
    return "onnxruntime,threads=1"


def test_outputs_are_compared_where_the_operations_can_not_be_asked(file, elsewhere):
    found = probe.network(file, elsewhere, against_target="onnxruntime", inputs=X)
    assert found.verdict == "equal" and "0 of 6 outputs differ" in found.lines()[0]
    assert f"{elsewhere}: {apart.WHOLE}" in found.to_json()["notes"]
    assert [op.op for op in found.found.left.operations] == ["model"]


def test_other_outputs_there_differ(file, elsewhere, monkeypatch):
    real = apart.file_outputs
    monkeypatch.setattr(apart, "file_outputs", lambda *given: [-y for y in real(*given)])
    found = probe.network(file, elsewhere, against_target="onnxruntime", inputs=X)
    assert found.verdict == "differs" and "6 of 6 outputs differ" in found.lines()[0]


@pytest.mark.slow
def test_outputs_that_do_not_repeat_there_are_no_answer(file, elsewhere, monkeypatch):
    real, count = apart.file_outputs, itertools.count()
    monkeypatch.setattr(
        apart, "file_outputs", lambda *given: [y + next(count) for y in real(*given)]
    )
    with pytest.raises(Nondeterministic, match="differ when it runs again"):
        probe.network(file, elsewhere, against_target="onnxruntime", inputs=X)


def test_without_a_match_inputs_of_other_sizes_are_not_called_equal(file, elsewhere):
    words = {"vary": "x:0", "at": 1, "against": 2}
    assert probe.network(file, elsewhere, inputs=X, **words).verdict == "unknown"


def test_a_file_is_not_recorded_on_another_librarys_target(file, tmp_path):
    with pytest.raises(InputError, match=r"model\.onnx is run by onnxruntime"):
        probe.record(file, tmp_path / "out", target="reference", inputs=X)
    assert not (tmp_path / "out").exists()


def test_conditions_of_what_does_not_run_whole_are_not_sought(file):
    ends = Target.parse("reference,algorithm=pairwise"), Target.parse("reference")
    with pytest.raises(InputError, match="runs no whole files"):
        two_runs.bisect(GivenModel(file, X), *ends)
    missing = ends[0], Target.parse("reference==9")
    with pytest.raises(InputError, match="reference"):
        two_runs.bisect(GivenModel(file, X), *missing)


def written(tmp_path, monkeypatch, name, text):
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return f"{name}:function"


@pytest.mark.slow
def test_a_function_is_not_run_on_a_target_whose_library_it_does_not_call(tmp_path, monkeypatch):
    """Which library that is, is known when it has run."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    text = "import torch\ndef function(x):\n    return torch.tanh(torch.from_numpy(x))\n"
    called = written(tmp_path, monkeypatch, "a_function_of_torch", text)
    with pytest.raises(InputError, match="a_function_of_torch:function is run by torch") as refused:
        probe.network(called, "reference", against_target="torch", inputs=X)
    assert refused.value.value == "reference"


def test_a_target_that_is_not_here_is_said_before_the_other_side_runs(tmp_path, monkeypatch):
    text = "def function(x):\n    open('it_ran', 'w').close()\n    return x + 1\n"
    called = written(tmp_path, monkeypatch, "a_function_that_says_when_it_runs", text)
    for sides in (("numpy", "numpy==0.0.1"), ("numpy==0.0.1", "numpy")):
        with pytest.raises(TargetError, match="numpy==0.0.1: unavailable"):
            probe.network(called, sides[0], against_target=sides[1], inputs=X)
    assert not (tmp_path / "it_ran").exists()
