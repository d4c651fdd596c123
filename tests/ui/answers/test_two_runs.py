"""Two runs of one model: sizes compared by order, and the conditions that pin its bits."""

import json
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case.errors import InputError, TimeOver
from probe.order.semantics import Each, Unknown
from probe.record.recorders.ndarray import operation
from probe.targets.target import Target
from probe.ui.answers import two_runs
from probe.ui.answers.two_runs import GivenModel
from probe.ui.answers.two_runs import bisect as of_model
from probe.ui.cli import shell

NOT_PROVED = "whether gelu gives the same bits at every position is not proved"
ODD = "it is unknown what it computes"


@pytest.mark.parametrize(("meaning", "why"), [(Unknown("odd"), ODD), (Each("gelu"), NOT_PROVED)])
def test_what_is_in_the_way_of_orders_is_named_with_what_is_not_proved(meaning, why):
    wave = operation("wave", meaning)(lambda x: np.asarray(x) * np.float32(0.5))
    rows = np.random.default_rng(3).standard_normal((8, 4)).astype(np.float32)
    words = {"vary": "batch", "at": 1, "against": 8, "inputs": {"x": rows}, "by": "order"}
    (two,) = probe.network(lambda x: wave(x), sizes=[2], **words).to_json()["sizes"]
    assert (two["by_order"], two["in_the_way"]) == ("unknown", "wave") and why in two["why"]


def test_what_is_known_of_sizes_stays_when_the_time_is_over(monkeypatch):
    """The comparison of the two runs itself was lost, and the answer "no answer yet"."""
    rows = np.random.default_rng(3).standard_normal((8, 4)).astype(np.float32)
    calls, compare = [], two_runs.compare_and_explain

    def compared(*args, **words):
        calls.append(args)
        if len(calls) > 1:
            raise TimeOver("the 12 s of --time were over")
        return compare(*args, **words)

    monkeypatch.setattr(two_runs, "compare_and_explain", compared)
    words = {"vary": "batch", "at": 1, "against": 8, "inputs": {"x": rows}, "time": "1h"}
    found = probe.network(lambda x: np.tanh(x), sizes=[2, 3, 4], **words)
    assert found.verdict == "equal" and [size["at"] for size in found.to_json()["sizes"]] == [2]
    why = "sizes from 3 on were not compared: the 12 s of --time were over"
    assert why in found.to_json()["notes"]


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
    with pytest.raises(InputError, match=r"does not repeat its bits: 3 results in 20 runs"):
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
            assert walked.asked.left == "sample 1 cut to 3"
            assert walked.counts_text().startswith("15 of 15 outputs differ")
            assert f"each sample alone against the batch: 0 {batch}" in walked.found.notes
        else:
            assert walked.counts_text() == f"0 {batch}" and "0 of 30 outputs differ" in note
