"""Two runs of one model: padding beside a batch, and the conditions that pin its bits."""

import json
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case.errors import InputError
from probe.targets.target import Target
from probe.ui.answers.two_runs import GivenModel
from probe.ui.answers.two_runs import bisect as of_model
from probe.ui.cli import shell

MODULE = """
import itertools
drawn = itertools.cycle((1, 2, 3))

def unsteady(x):
    return x * next(drawn)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "conditions_of_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "conditions_of_mine"


@pytest.mark.slow
def test_a_functions_conditions_are_found(module, capsys):
    """What flushes is a switch that moves these bits on every processor, threads are not."""
    pytest.importorskip("torch")
    Path("tiny.py").write_text("import torch\ndef f(x):\n    return torch.from_numpy(x) * 1e-40\n")
    words = ["bisect", "tiny:f", "--shape", "x=4x3", "--json"]
    ends = ["--between", "torch,flush=1,threads=1", "--and", "torch"]
    assert shell.run([*words, *ends]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sets"] == [["flush=1"]] and told["model"] == "tiny:f" and told["what"] == "bits"


def test_a_function_that_does_not_repeat_its_bits_has_no_conditions(module):
    shapes = {"x": (5,)}
    ends = Target.parse("numpy,threads=1"), Target.parse("numpy")
    with pytest.raises(InputError, match=r"does not repeat its bits: 3 results in 3 runs"):
        of_model(GivenModel(f"{module}:unsteady", shapes=shapes), *ends)


def test_padding_behind_a_mask_is_asked_beside_the_batch(tmp_path) -> None:
    torch = pytest.importorskip("torch")

    class Mean(torch.nn.Module):
        def forward(self, x, mask):
            return (x * mask[..., None]).cumsum(1) / (mask.shape[1] if self.leaks else 3)

    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1]])
    inputs = {"x": rng.standard_normal((3, 4, 5)).astype("f4"), "mask": mask}
    for leaks in (False, True):
        model = Mean().eval()
        model.leaks = leaks
        walked = probe.network(model, vary="batch", at=1, inputs=inputs, explain=False)
        (note,) = [note for note in walked.found.notes if "padding" in note]
        assert note.startswith("2 samples with padding")
        batch = "of 60 outputs differ; compared: 3 of 3 samples"
        if leaks:  # what is explained is a sample: its outputs are counted, and no batch's
            assert walked.verdict == "differs" and "30 of 30 outputs differ" in note
            assert walked.question.left == "sample 1 cut to 3"
            assert walked.counts_text().startswith("15 of 15 outputs differ")
            assert f"each sample alone against the batch: 0 {batch}" in walked.found.notes
        else:
            assert walked.counts_text() == f"0 {batch}" and "0 of 30 outputs differ" in note
