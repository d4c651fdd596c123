"""With a target, in another process, the same question gets the same answer, word for word."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probe
from probe import Target
from probe.diff import apart
from probe.diff.apart import Apart
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
    # each of 8 samples alone and the batch, unwatched; then both sides three times, and the batch
    # with four other contents in what one sample lacks
    assert found.verdict in ("equal", "differs"), runs
    assert runs["1"] <= 8 + 3 and runs["8"] <= 1 + 3 + 4, runs


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
