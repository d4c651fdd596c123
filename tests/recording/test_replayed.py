"""A recording replayed on a target: what runs there is what a target can be asked for, from the
meanings of any library, and it computes the same as the model's own library does."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probe
from probe import ulp
from probe.agreement import walk
from probe.answers import two_runs
from probe.answers.record import GivenModel
from probe.errors import InputError, TargetError
from probe.recording import replayed
from probe.recording.replayed import OnTarget, There, replay_run
from probe.recording.subject import open_model
from probe.target import Target
from tests.recording.replayable import BOUND, MODELS, drawn, onnx_model

pytestmark = pytest.mark.long

TARGETS = ("reference", "torch", "tensorflow", "jax", "onnxruntime", "litert")


@pytest.mark.parametrize("text", TARGETS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow_at(
    "jax-reference", "keras-torch", "keras-jax", "torch-tensorflow", "torch-jax", "keras-reference"
)
def test_what_runs_on_a_target_computes_what_the_model_does(made, started, name, text):
    _, _, run = made(name)
    found = replay_run(run, started(text))
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


OTHER_CALLS: dict[str, set[str]] = {
    "torch": {"aten.native_batch_norm"},  # sent as a scale and a shift
    "keras": set(),
    "onnx": {"Conv", "FusedConv", "AveragePool"},  # in blocks of channels there, with a norm inside
}
"""Operations that are different calls of their own library's target."""


@pytest.mark.parametrize("name", OTHER_CALLS)
@pytest.mark.slow_at("keras")
def test_the_librarys_own_target_gives_the_recorded_bits(made, started, name):
    """Each operation alone, on what it read: the same call of the same library."""
    _, _, run = made(name)
    found = replay_run(run, started(MODELS[name][1]))
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
    made, started, monkeypatch
):
    """Padding by name, and rows of a dense layer, say the same at every size."""
    model, inputs, _ = made("torch")
    torch = pytest.importorskip("torch")
    there = OnTarget(open_model(model), started("reference"))
    running, sent = there.port.session, list[int]()
    real = running.request

    def counting(header: Any, arrays: Any = None) -> Any:
        if header["do"] == "network":
            sent.append(len(arrays))
        return real(header, arrays)

    monkeypatch.setattr(running, "request", counting)
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
    zero = {"zero": np.zeros((), np.float32)}
    path.write_bytes(onnx_model(nodes, {"x": [1, 2]}, {"out": [1, 2]}, zero))
    return path


def test_a_model_file_is_recorded_once_for_all_numbers_of_a_shape_unless_they_choose_a_branch(
    made, started, monkeypatch, tmp_path
):
    """Recording takes most of a search of safe sizes, where many contents of a size are run."""
    recorded = list[int]()
    real = replayed.record_run
    counting = lambda *given: recorded.append(1) or real(*given)  # noqa: E731
    monkeypatch.setattr(replayed, "record_run", counting)
    model, inputs, _ = made("onnx")
    others = {name: one * np.float32(0.75) for name, one in inputs.items()}
    there = OnTarget(open_model(model), started("reference"))
    mine = [there.plain(inputs), there.plain(others)]
    assert len(recorded) == 1
    anew = OnTarget(open_model(model), started("reference")).plain(others)
    assert all(ulp.equal(*both, "float32") for both in zip(mine[1], anew, strict=True))
    assert not ulp.equal(mine[0][0], mine[1][0], "float32")

    recorded.clear()
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    file, x = open_model(written_by_keras(model, tmp_path / "dense.keras")), drawn(2, 6)
    there = OnTarget(file, started("reference"))
    both = [there.plain({file.inputs[0].name: one})[0] for one in (x, 2 * x)]
    assert len(recorded) == 1 and ulp.equal(2 * both[0], both[1], "float32")

    recorded.clear()
    there = OnTarget(open_model(branching(tmp_path / "branching.onnx")), started("reference"))
    x = np.array([[-1.0, 3.0]], "float32")
    assert there.plain({"x": x})[0].tolist() == [[-2.0, 6.0]]
    assert there.plain({"x": -x})[0].tolist() == [[1.0, 0.0]]
    assert len(recorded) == 2


def test_operations_of_a_replay_run_again_on_the_target(made, started):
    """What judging and explaining do: any operands, weights too, in a process that died since."""
    _, _, run = made("torch")
    there = started("reference")
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
def test_operations_of_a_replay_run_at_other_sizes(made, started, name):
    """As padding asks them: with fewer positions they give what the model's own library gives."""
    _, _, run = made(name)
    found, shorter = replay_run(run, started("reference")), 0
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


def test_a_library_that_refuses_leaves_it_to_the_models_own(made, started, monkeypatch):
    """Without groups TensorFlow's convolution is not asked, and the answer says why."""
    _, _, run = made("torch")
    there = started("reference")
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


def written_by_keras(model: Any, path: Path) -> Path:
    with warnings.catch_warnings():  # of Keras' writer, with NumPy 2
        warnings.simplefilter("ignore", DeprecationWarning)
        model.save(path)
    return path


@pytest.fixture(scope="module")
def saved(made, tmp_path_factory) -> str:
    model, _, _ = made("keras")
    return str(written_by_keras(model, tmp_path_factory.mktemp("keras") / "model.keras"))


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
    # what its operations give one by one is no run of the model there
    assert found.found.agreement == "equal" and found.verdict == "unknown"
    assert "reference: it does not run this model" in found.lines()[1]
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
def test_conditions_of_what_does_not_run_whole_are_not_sought(saved):
    """Operations one by one would be another program than the one that is asked about."""
    ends = Target.parse("reference,algorithm=pairwise"), Target.parse("reference")
    given = GivenModel(saved, shapes={"": (2, 16, 16, 3)})
    with pytest.raises(InputError, match="runs no whole files"):
        two_runs.bisect(given, *ends)
    missing = ends[0], Target.parse("reference==9")
    with pytest.raises(InputError, match="reference"):
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


def test_what_can_not_run_alone_is_one_line(made, started):
    from dataclasses import replace

    _, _, run = made("torch")
    operations = [
        replace(one, again=None) if one.op == "aten.native_layer_norm" else one
        for one in run.operations
    ]
    with pytest.raises(InputError, match="can't be run alone, and its operands have"):
        replay_run(replace(run, operations=operations), started("reference"))


@pytest.mark.parametrize("text", ["torch", "tensorflow", "jax", "onnxruntime"])
@pytest.mark.slow_at("jax")
def test_what_ran_there_is_written_as_the_librarys_users_do(made, started, text):
    """For the script of a report: lines of NumPy's arrays that give the target's bits."""
    _, _, run = made("torch")
    found, written = replay_run(run, started(text)), set[str]()
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


def test_a_model_in_a_format_of_its_own_is_not_written(made, started):
    _, _, run = made("torch")
    found = replay_run(run, started("litert"))
    assert all(found.operations[n].lines is None for n in found.there)


@pytest.mark.slow
def test_questions_about_a_sum_are_sent_together_and_answered_alike(made, started, monkeypatch):
    """A request has all of them where the call is the sum; else operands are sent each time."""
    _, _, run = made("torch")
    sides = [replay_run(run, started(text)) for text in ("reference", "torch")]
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
