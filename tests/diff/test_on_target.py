"""A model is recorded on targets of its own library; on others its file is run whole, or the answer
is one line."""

import itertools

import numpy as np
import pytest

import probe
from probe.case.errors import InputError, Nondeterministic, TargetError
from probe.diff import apart
from probe.targets.target import Target
from probe.ui.answers import two_runs
from probe.ui.answers.record import GivenModel
from tests.record.onnx_files import onnx_model

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


@pytest.mark.parametrize("sides", [("reference", "onnxruntime"), ("onnxruntime", "reference")])
def test_a_file_is_not_compared_where_a_library_does_not_read_it(file, sides):
    with pytest.raises(TargetError, match="runs no whole files") as refused:
        probe.network(file, sides[0], against_target=sides[1], inputs=X)
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


def test_a_left_side_that_is_not_named_is_the_other_targets_library(file):
    found = probe.network(file, against_target="onnxruntime,threads=1", inputs=X)
    assert found.verdict == "equal" and found.found.left.target == "onnxruntime"


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


@pytest.mark.long
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
