"""A recording replayed on a target: what runs there is what a target can be asked for, from the
meanings of any library, and it computes the same as the model's own library does."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probe
from probe import ulp
from probe.answers import two_runs
from probe.answers.record import GivenModel
from probe.errors import InputError, TargetError
from probe.launch import AnySession, open_session
from probe.recording import replayed, walk
from probe.recording.recording import Run, record_run
from probe.recording.replayed import OnTarget, There, replay_run
from probe.recording.subject import open_model
from probe.target import Target, why_unavailable

pytestmark = pytest.mark.long

RNG = np.random.default_rng(7)

BOUND = 1e-5
"""Of differences over the largest number of a value: float32 has 24 bits, these sums have some 100
products each, and no layer here enlarges what came before it."""


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def of_torch() -> tuple[Any, dict[str, np.ndarray]]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = torch.nn

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2, bias=False)
            self.depthwise, self.back = nn.Conv2d(8, 8, 3, padding=1, groups=8), None
            self.transposed = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.inner, self.dense = nn.LayerNorm(12), nn.Linear(12, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.first(x)))
            z = self.strided(y)
            z = torch.sigmoid(self.depthwise(z) + z)
            y = torch.cat([y, self.transposed(z)], 1)
            y = nn.functional.pad(y, (0, 1, 0, 1))
            y = nn.functional.avg_pool2d(nn.functional.max_pool2d(y, 2), 2)
            y = self.inner(nn.functional.gelu(y).flatten(2).transpose(1, 2))
            scores = torch.softmax(y @ y.transpose(1, 2), -1)
            return torch.tanh(self.dense(scores @ y))

    torch.manual_seed(0)
    model = Model().eval()
    with torch.no_grad():
        for name, one in [*model.named_parameters(), *model.named_buffers()]:
            if one.dtype == torch.float32 and name.startswith("norm"):
                one.uniform_(0.5, 2.0)
    return model, {"x": drawn(2, 3, 16, 16)}


def of_keras() -> tuple[Any, dict[str, np.ndarray]]:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    x = keras.Input((16, 16, 3))
    y = layers.BatchNormalization(
        gamma_initializer="random_normal", beta_initializer="random_normal"
    )(layers.Conv2D(8, 3, padding="same", activation="relu", bias_initializer="random_normal")(x))
    z = layers.LeakyReLU()(layers.Conv2D(8, 3, strides=2, padding="same")(y))
    z = layers.Add()([layers.DepthwiseConv2D(3, padding="same")(z), z])
    y = layers.Concatenate()([y, layers.Conv2DTranspose(4, 2, strides=2)(z)])
    y = layers.MaxPooling2D(2)(layers.ZeroPadding2D(((0, 2), (1, 1)))(y))
    y = layers.ELU()(layers.AveragePooling2D(2, padding="same")(y))
    y = layers.Reshape((25, 12))(y)
    y = layers.LayerNormalization()(layers.Conv1D(12, 3, padding="causal", activation="tanh")(y))
    return keras.Model(x, layers.Dense(5, activation="softmax")(y)), {"x": drawn(2, 16, 16, 3)}


def of_onnx(folder: Any) -> tuple[Any, dict[str, np.ndarray]]:
    onnx = pytest.importorskip("onnx", reason="models are made with onnx")
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "s", "b1", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2], group=2),
        node("LeakyRelu", ["c2"], ["l"], alpha=0.2),
        node("ConvTranspose", ["l", "w3"], ["t"], strides=[2, 2]),
        node("Concat", ["t", "r"], ["j"], axis=1),
        node("Pad", ["j", "pads"], ["p"]),
        node("MaxPool", ["p"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["q"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["a", "shape"], ["f"]),
        node("Transpose", ["f"], ["u"], perm=[0, 2, 1]),
        node("MatMul", ["u", "w4"], ["d"]),
        node("Add", ["d", "b4"], ["e"]),
        node("MatMul", ["e", "w5"], ["g"]),
        node("Softmax", ["g"], ["y"], axis=-1),
    ]
    arrays = {"w1": drawn(8, 3, 3, 3), "b1": drawn(8), "s": drawn(8), "m": drawn(8)}
    arrays |= {"v": np.abs(drawn(8)) + 0.5, "w2": drawn(8, 4, 3, 3), "w3": drawn(8, 4, 2, 2)}
    arrays |= {"pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]), "shape": np.array([2, 12, 16])}
    arrays |= {"w4": drawn(12, 6) / 4, "b4": drawn(6), "w5": drawn(6, 5) / 8}
    x = drawn(2, 3, 16, 16)
    held = [onnx.numpy_helper.from_array(one, name) for name, one in arrays.items()]
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    graph = onnx.helper.make_graph(nodes, "m", [given], [onnx.ValueInfoProto(name="y")], held)
    opset = [onnx.helper.make_opsetid("", 18)]
    path = folder / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path, {"x": x}


def of_jax() -> tuple[Any, dict[str, np.ndarray]]:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jnp, lax = jax.numpy, jax.lax
    w1, w2, b = drawn(3, 3, 3, 8), drawn(3, 3, 4, 8) / 4, drawn(8)
    w3, w4 = drawn(2, 2, 8, 4) / 4, drawn(12, 5) / 4
    layout = ("NHWC", "HWIO", "NHWC")

    def model(x: Any) -> Any:
        y = lax.conv_general_dilated(x, w1, (1, 1), "SAME", dimension_numbers=layout) + b
        y = jax.nn.relu(y)
        z = lax.conv_general_dilated(
            y, w2, (2, 2), "SAME", dimension_numbers=layout, feature_group_count=2
        )
        t = lax.conv_transpose(jnp.tanh(z), w3, (2, 2), "VALID", dimension_numbers=layout)
        y = jnp.pad(jnp.concatenate([y, t], -1), ((0, 0), (0, 1), (0, 1), (0, 0)))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.tanh(y.reshape(2, -1, 12) @ w4)

    return model, {"x": drawn(2, 16, 16, 3)}


MODELS: dict[str, tuple[Callable[..., Any], str, float]] = {
    "torch": (of_torch, "torch", 0.7),
    "keras": (of_keras, "keras", 0.66),
    "onnx": (of_onnx, "onnxruntime", 0.85),
    "jax": (of_jax, "jax", 0.85),
}
"""What makes a model, its own library's target, and the least share of its operations that a target
computes, of those that do not have the same bits everywhere."""

OWN_LIBRARY = {
    "torch": {"aten.convolution": 1, "aten.native_layer_norm": 1},
    "onnx": {"ConvTranspose": 1},
}
"""What runs by itself, by the operation, of libraries that have one operation for each layer."""

Made = tuple[Any, dict[str, np.ndarray], Run]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    known: dict[str, Made] = {}

    def of(name: str) -> Made:
        if name not in known:
            function = MODELS[name][0]
            folder = [tmp_path_factory.mktemp("onnx")] if name == "onnx" else []
            model, inputs = function(*folder)
            known[name] = model, inputs, record_run(open_model(model).recorder(inputs))
        return known[name]

    return of


@pytest.fixture(scope="module")
def session() -> Iterator[Callable[[str], AnySession]]:
    running: dict[str, AnySession] = {}

    def started(text: str) -> AnySession:
        where = Target.parse(text)
        if why := why_unavailable(where):
            pytest.skip(why)
        if text not in running:
            running[text] = open_session(where).__enter__()
        return running[text]

    yield started
    for one in running.values():
        one.__exit__(None, None, None)


TARGETS = ("reference", "torch", "tensorflow", "jax", "onnxruntime", "litert")


@pytest.mark.parametrize("text", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_what_runs_on_a_target_computes_what_the_model_does(made, session, name, text):
    _, _, run = made(name)
    found = replay_run(run, session(text))
    assert found.target == text
    operations = run.operations
    asked = len(found.there) + len(found.alone)  # the rest has the same bits everywhere
    assert len(found.there) >= MODELS[name][2] * asked, found.said
    for value in (n for one in operations for n in one.gives):
        own, there = run.array(value), found.array(value)
        assert own is not None and there is not None
        if run.values[value].floating and own.size:
            largest = max(float(np.abs(own).max()), 1e-3)
            assert np.abs(own.astype(float) - there).max() < BOUND * largest, value
        else:
            assert (own == there).all()


@pytest.mark.parametrize("name", OWN_LIBRARY)
def test_only_what_no_call_says_runs_by_itself(made, session, name):
    _, _, run = made(name)
    found = replay_run(run, session("reference"))
    told: dict[str, int] = {}
    for number in found.alone:
        op = run.operations[number].op
        told[op] = told.get(op, 0) + 1
    assert told == OWN_LIBRARY[name]
    assert f"{len(found.there)} of {len(run.operations)} operations ran there" in (found.said)


OTHER_CALLS: dict[str, set[str]] = {
    "torch": {"aten.native_batch_norm"},  # sent as a scale and a shift
    "keras": set(),
    "onnx": {"Conv", "FusedConv", "AveragePool"},  # in blocks of channels there, with a norm inside
}
"""Operations that are different calls of their own library's target."""


@pytest.mark.parametrize("name", OTHER_CALLS)
@pytest.mark.slow_at("keras")
def test_the_librarys_own_target_gives_the_recorded_bits(made, session, name):
    """Each operation alone, on what it read: the same call of the same library."""
    _, _, run = made(name)
    found = replay_run(run, session(MODELS[name][1]))
    same = 0
    for number in sorted(found.there):
        one = found.operations[number]
        arrays = run.arrays([*one.reads, one.gives[0]])
        (given,) = one.again([arrays[n] for n in one.reads])
        if one.op not in OTHER_CALLS[name]:
            assert given.tobytes() == arrays[one.gives[0]].tobytes(), one.name
            same += 1
    assert same >= 3


def test_other_inputs_and_sizes_are_replayed_on_the_weights_that_were_sent(
    made, session, monkeypatch
):
    """Padding by name, and rows of a dense layer, say the same at every size."""
    model, inputs, _ = made("torch")
    torch = pytest.importorskip("torch")
    there = OnTarget(open_model(model), session("reference"))
    started, sent = there.port.session, list[int]()
    real = started.request

    def counting(header: Any, arrays: Any = None) -> Any:
        if header["do"] == "network":
            sent.append(len(arrays))
        return real(header, arrays)

    monkeypatch.setattr(started, "request", counting)
    outputs = there.plain(inputs)
    assert sum(sent) >= 8  # weights and biases of four layers, scale and shift of a norm
    sent.clear()
    larger = {"x": drawn(3, 3, 24, 16)}
    found = there.side(larger)
    assert sum(sent) == 0
    with torch.no_grad():
        for given, ours in ((inputs, outputs[0]), (larger, found.results[0])):
            own = model(torch.from_numpy(given["x"])).numpy()
            assert own.shape == ours.shape and np.abs(own - ours).max() < BOUND


def branching(path: Path) -> Path:
    """Twice a positive number for a positive sum, else what is not negative; its path."""
    onnx = pytest.importorskip("onnx")
    node, y = onnx.helper.make_node, [onnx.ValueInfoProto(name="y")]
    twice = onnx.helper.make_graph([node("Add", ["x", "x"], ["y"])], "then", [], y)
    cut = onnx.helper.make_graph([node("Relu", ["x"], ["y"])], "else", [], y)
    nodes = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"])]
    nodes.append(node("If", ["c"], ["out"], then_branch=twice, else_branch=cut))
    ends = [onnx.helper.make_tensor_value_info(n, 1, [1, 2]) for n in ("x", "out")]
    zero = [onnx.numpy_helper.from_array(np.zeros((), np.float32), "zero")]
    graph = onnx.helper.make_graph(nodes, "branching", ends[:1], ends[1:], zero)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def test_a_model_file_is_recorded_once_for_all_numbers_of_a_shape_unless_they_choose_a_branch(
    made, session, monkeypatch, tmp_path
):
    """Recording takes most of a search of safe sizes, where many contents of a size are run."""
    recorded = list[int]()
    real = replayed.record_run
    counting = lambda *given: recorded.append(1) or real(*given)  # noqa: E731
    monkeypatch.setattr(replayed, "record_run", counting)
    model, inputs, _ = made("onnx")
    others = {name: one * np.float32(0.75) for name, one in inputs.items()}
    there = OnTarget(open_model(model), session("reference"))
    mine = [there.plain(inputs), there.plain(others)]
    assert len(recorded) == 1
    anew = OnTarget(open_model(model), session("reference")).plain(others)
    assert all(ulp.equal(*both, "float32") for both in zip(mine[1], anew, strict=True))
    assert not ulp.equal(mine[0][0], mine[1][0], "float32")

    recorded.clear()
    there = OnTarget(open_model(branching(tmp_path / "branching.onnx")), session("reference"))
    x = np.array([[-1.0, 3.0]], "float32")
    assert there.plain({"x": x})[0].tolist() == [[-2.0, 6.0]]
    assert there.plain({"x": -x})[0].tolist() == [[1.0, 0.0]]
    assert len(recorded) == 2


def test_operations_of_a_replay_run_again_on_the_target(made, session):
    """What judging and explaining do: any operands, weights too, in a process that died since."""
    _, _, run = made("torch")
    there = session("reference")
    found = replay_run(run, there)
    one = next(one for one in found.operations if one.op == "aten.convolution")
    again = one.again
    arrays = [found.array(n) for n in one.reads]
    (first,) = again(arrays)
    assert (first == found.array(one.gives[0])).all()
    (twice,) = again([arrays[0], 2 * arrays[1], 2 * arrays[2]])
    assert (twice == 2 * first).all()
    os.kill(there.pid, signal.SIGKILL)
    with pytest.raises(TargetError, match="SIGKILL"):
        again(arrays)
    assert (replay_run(run, there).array(one.gives[0]) == first).all()


@pytest.mark.parametrize("name", ["torch", "keras", "onnx"])
def test_operations_of_a_replay_run_at_other_sizes(made, session, name):
    """As padding asks them: with fewer positions they give what the model's own library gives."""
    _, _, run = made(name)
    found, shorter = replay_run(run, session("reference")), 0
    for number in sorted(found.there):
        one, own = found.operations[number], run.operations[number]
        arrays = [found.array(n) for n in one.reads]
        arrays[0] = np.ascontiguousarray(arrays[0][:1])
        if one.op in ("aten.bmm", "Gemm") or own.again is None:
            continue
        ours, theirs = (np.asarray(each.again(arrays)[0]) for each in (one, own))
        assert ours.shape == theirs.shape, one.name
        assert np.abs(ours - theirs).max() < BOUND * max(np.abs(theirs).max(), 1e-3), one.name
        shorter += 1
    assert shorter >= 5


def test_a_library_that_refuses_leaves_it_to_the_models_own(made, session, monkeypatch):
    """Without groups TensorFlow's convolution is not asked, and the answer says why."""
    _, _, run = made("torch")
    there = session("reference")
    real = there.request

    def refusing(header: Any, arrays: Any = None) -> Any:
        if any(spec.get("groups") == 2 for spec in header.get("specs", ())):
            raise TargetError("reference", "unsupported", "groups=2: there are none here")
        return real(header, arrays)

    monkeypatch.setattr(there, "request", refusing)
    found = replay_run(run, there)
    assert "groups=2: there are none here" in found.said
    whys = [why for why in found.alone.values() if "groups=2" in why]
    assert len(whys) == 1


@pytest.fixture(scope="module")
def saved(made, tmp_path_factory) -> str:
    model, _, _ = made("keras")
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    with warnings.catch_warnings():  # of Keras' writer, with NumPy 2
        warnings.simplefilter("ignore", DeprecationWarning)
        model.save(path)
    return str(path)


SHAPE = {"shapes": {"": (2, 16, 16, 3)}}


@pytest.mark.slow
def test_two_runs_on_targets_that_are_not_the_models_library(saved, tmp_path):
    """The sums of either target are asked about there; what did not run there is not judged."""
    found = probe.network(saved, "reference", against_target="torch", **SHAPE)
    assert found.verdict == "differs"
    told = found.to_json()
    first = next(one for one in told["operations"] if one["name"] == told["first"])
    assert first["op"] == "Conv2D" and first["verdict"] == "source"
    explained = first["explanation"]
    assert explained["replayed"] == explained["examined"] > 0
    unknown = [one for one in told["operations"] if one["verdict"] == "unknown"]
    assert {one["op"] for one in unknown} <= {"Conv2DBackpropInput", "Mean", "Rsqrt", "Mul", "Sub"}
    assert told["examined"] == told["operations_total"] - len(unknown)
    for text in ("reference", "torch"):
        assert any(note.startswith(f"{text}: 11 of ") for note in told["notes"]), told["notes"]


@pytest.mark.slow
def test_a_batch_on_a_target_agrees_with_a_larger_one(saved):
    """The reference adds an output's products in one order, whatever the batch."""
    found = probe.network(saved, "reference", vary="batch", at=1, against=3, explain=False)
    assert found.verdict == "equal"
    alone = [one for one in found.found.operations if one.op == "Conv2DBackpropInput"]
    assert [one.verdict for one in alone] == ["unknown"]
    assert "not on reference" in alone[0].note


@pytest.mark.slow
def test_replays_on_disk_are_compared_and_their_targets_asked_again(saved, tmp_path):
    one, two = (
        probe.record(saved, tmp_path / text, target=text, **SHAPE)
        for text in ("reference", "reference,algorithm=pairwise")
    )
    assert one.made.made["libraries"]["numpy"] == np.__version__
    assert any("11 of" in note for note in one.made.notes)
    assert not probe.diff(one, two).found.first.cause
    found = probe.diff(one, two, trust=True)
    assert found.found.first.op == "Conv2D" and "order" in found.found.first.cause


@pytest.mark.slow
def test_conditions_of_a_replay_are_found(saved):
    """Of targets that are not the model's own library, or of another release: both are replayed."""
    ends = Target.parse("reference,algorithm=pairwise"), Target.parse("reference")
    given = GivenModel(saved, shapes={"": (2, 16, 16, 3)})
    found = two_runs.bisect(given, *ends)
    assert found.sets == [["algorithm=pairwise"]]
    assert all("operations ran there" in step.says for step in found.steps)
    missing = ends[0], Target.parse("reference==9")
    with pytest.raises(InputError, match="reference==9"):
        two_runs.bisect(given, *missing)


@pytest.mark.slow
def test_a_function_of_another_library_is_replayed(tmp_path, monkeypatch):
    """Which library a function runs on is known when it has run."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    text = """
import torch
torch.manual_seed(0)
model = torch.nn.Conv1d(4, 8, 5).eval()
def function(x):
    with torch.no_grad():
        return torch.tanh(model(torch.from_numpy(x)))
"""
    (tmp_path / "a_function_of_torch.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    inputs = {"x": drawn(2, 4, 9)}
    called = "a_function_of_torch:function"
    found = probe.network(called, "reference", against_target="torch", inputs=inputs)
    left, right = found.found.left, found.found.right
    assert left.alone == {} and right.alone is None
    assert any(note.startswith("reference: 2 of 2 operations ran there") for note in found.notes)


def test_a_target_that_is_not_here_is_said_before_the_other_side_runs(tmp_path, monkeypatch):
    (tmp_path / "a_function_that_says_when_it_runs.py").write_text(
        "def function(x):\n    open('it_ran', 'w').close()\n    return x + 1\n"
    )
    monkeypatch.chdir(tmp_path)
    called, inputs = "a_function_that_says_when_it_runs:function", {"x": drawn(2, 4)}
    for sides in (("numpy", "numpy==0.0.1"), ("numpy==0.0.1", "numpy")):
        with pytest.raises(TargetError, match="numpy==0.0.1: unavailable"):
            probe.network(called, sides[0], against_target=sides[1], inputs=inputs)
    assert not (tmp_path / "it_ran").exists()


def test_what_can_not_run_alone_is_one_line(made, session):
    from dataclasses import replace

    _, _, run = made("torch")
    operations = [
        replace(one, again=None) if one.op == "aten.native_layer_norm" else one
        for one in run.operations
    ]
    with pytest.raises(InputError, match="can't be run alone, and its operands have"):
        replay_run(replace(run, operations=operations), session("reference"))


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
@pytest.mark.slow_at("branches-tensorflow,mode=graph")
def test_a_graph_is_one_program_of_a_library(session, name, text):
    model, inputs = WHOLE[name]()
    there = OnTarget(open_model(model), session(text))
    found, seconds, why = there.end_to_end(inputs, times=3)
    own = record_run(open_model(model).recorder(inputs)).results[0]
    assert not why and len(seconds) == 3
    assert found.shape == own.shape and np.abs(found - own).max() < BOUND * np.abs(own).max()


def test_where_there_is_no_program_of_a_graph_it_is_said_why(session, made):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, inputs = of_branches()
    litert = OnTarget(open_model(model), session("litert"))
    assert litert.end_to_end(inputs) == (None, [], "inputs=2: LiteRT's models are built for one")
    model, inputs, _ = made("torch")
    there = OnTarget(open_model(model), session("onnxruntime"))
    assert there.end_to_end(inputs)[2] == "transposed convolution: no case is one"

    class Flat(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.max_pool2d(x, 2).flatten(1) @ torch.ones(27, 2)

    there = OnTarget(open_model(Flat()), session("onnxruntime"))
    why = there.end_to_end({"x": drawn(2, 3, 6, 6)})[2]
    assert why == "aten.mm: what it reads has other rows than the value before it"

    class Two(torch.nn.Module):
        def forward(self, x):
            return x + 1, torch.tanh(x)

    there = OnTarget(open_model(Two()), session("onnxruntime"))
    assert there.end_to_end({"x": drawn(2, 3)})[2] == "(none): it gives 2 outputs"


@pytest.mark.parametrize("text", ["torch", "tensorflow", "jax", "onnxruntime"])
def test_what_ran_there_is_written_as_the_librarys_users_do(made, session, text):
    """For the script of a report: lines of NumPy's arrays that give the target's bits."""
    _, _, run = made("torch")
    found, written = replay_run(run, session(text)), set[str]()
    for number in sorted(found.there):
        one = found.operations[number]
        if one.lines is None:
            continue
        arrays = found.arrays([*one.reads, one.gives[0]])
        space: dict[str, Any] = {
            "np": np,
            **{f"x{n}": arrays[at] for n, at in enumerate(one.reads)},
        }
        names = [f"x{n}" for n in range(len(one.reads))]
        exec("\n".join([*one.imports, *one.lines(names, "y")]), space)
        largest = np.abs(arrays[one.gives[0]]).max()
        assert space["y"].shape == arrays[one.gives[0]].shape
        assert np.abs(space["y"] - arrays[one.gives[0]]).max() < BOUND * largest, one.name
        written.add(one.op)
    assert {"aten.convolution", "aten.avg_pool2d", "aten.addmm", "aten._softmax"} <= written
    assert "aten.native_batch_norm" not in written  # its scale and shift are computed before


def test_a_model_in_a_format_of_its_own_is_not_written(made, session):
    _, _, run = made("torch")
    found = replay_run(run, session("litert"))
    assert all(found.operations[n].lines is None for n in found.there)


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
def test_operations_of_all_kinds_compute_the_same_or_are_refused(session, text):
    model, inputs, alone = of_all_kinds()
    run = record_run(open_model(model).recorder(inputs))
    found = replay_run(run, session(text))
    operations = run.operations
    for number in (n for one in operations for n in one.gives):
        own, there = run.array(number), found.array(number)
        if run.values[number].floating and own.size:
            largest = max(float(np.abs(own).max()), 1e-3)
            assert np.abs(own.astype(float) - there).max() < BOUND * largest, number
    told: dict[str, int] = {}
    for number in found.alone:
        told[operations[number].op] = told.get(operations[number].op, 0) + 1
    refused = {op: count for op, count in told.items() if count > alone.get(op, 0)}
    if text in ("reference", "torch"):
        assert told == alone
    assert set(refused) <= {"aten.convolution", "aten.max_pool2d_with_indices", "aten.avg_pool2d"}
    assert len(found.there) >= 24


@pytest.mark.slow
def test_questions_about_a_sum_are_sent_together_and_answered_alike(made, session, monkeypatch):
    """A request has all of them where the call is the sum; else operands are sent each time."""
    _, _, run = made("torch")
    sides = [replay_run(run, session(text)) for text in ("reference", "torch")]
    asked = list[str]()
    real = sides[0].operations[0].again.port.session.request

    def causes() -> list[tuple[str, str]]:
        found = walk.compare_and_explain(*sides)
        return [(found.operations[n].name, found.causes[n].why) for n in sorted(found.causes)]

    monkeypatch.setattr(
        sides[0].operations[0].again.port.session,
        "request",
        lambda header, arrays=None: asked.append(header["do"]) or real(header, arrays),
    )
    together, few = causes(), asked.count("run")
    asked.clear()
    monkeypatch.setattr(There, "masked", lambda *_: None)
    assert causes() == together and len(together) >= 5
    assert asked.count("run") > 2 * few
