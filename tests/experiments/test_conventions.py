"""Windows of many cases, read, stored, read back and drawn; the three experiments, quickly."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

from lib import windows as diagrams
from lib.conventions import read_windows
from lib.frame import Experiment
from lib.windows import Readings
from probe import Case, Target, load
from probe.order.windows import as_predicted

pytestmark = pytest.mark.long

matplotlib.use("agg")
ROOT = Path(__file__).parents[2]
EXPERIMENTS = ("padding_conventions", "onnx_conversion", "grouped_convolution")

FOUR = Case("conv1d", 2, length=4, stride=2, padding="same", weights="0,1", operands="count")
WIDE = Case("conv2d", 3, 2, 4, groups=2, length=5, height=4, stride=2, padding=1, batch=2)
MEAN = Case("avg_pool2d", 3, 2, length=6, height=5, stride=2, padding=1, pad_with="zeros")
DILATED = Case("conv1d", 3, length=7, dilation=2, padding="4:0", operands="count")
CASES = (FOUR, FOUR.with_(padding=1), WIDE, MEAN, DILATED)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store with the cases on the reference, and what became of them."""
    path = tmp_path_factory.mktemp("store")
    asked = [("reference", case) for case in CASES]
    return path, read_windows(Experiment("a test", path), asked)


def test_windows_and_outputs_are_stored_and_read_back(stored):
    path, found = stored
    assert (found.found, found.before, found.failures) == (5, 0, {})
    read = Readings(load(path))
    assert len(list(read.all())) == 5 and all(one.as_said for one in read.all())
    for case in CASES:
        one = read("reference", case)
        assert one.outputs.shape == case.output_shape()
        assert np.array_equal(one.reads, as_predicted(case))
    assert read("reference", FOUR).outputs.ravel().tolist() == [2, 4]
    assert read("reference", FOUR.with_(padding=1)).outputs.ravel().tolist() == [1, 3, 0]
    mean = read("reference", MEAN)
    assert set(mean.counted) == {9}


def test_padding_is_told_from_what_the_windows_read(stored):
    read = Readings(load(stored[0]))
    assert read("reference", FOUR).around == [(0, 0)]
    assert read("reference", FOUR.with_(padding=1)).around == [(1, 1)]
    assert read("reference", WIDE).around == [(1, 0), (1, 1)]
    assert read("reference", DILATED).around == [(4, 0)]
    assert read("reference", DILATED).starts(0).tolist() == list(range(-4, 3))


def test_what_is_stored_is_not_read_again(stored):
    found = read_windows(Experiment("a test", stored[0]), [("reference", FOUR)])
    assert (found.found, found.before) == (0, 1)


def test_a_refusal_and_a_target_that_does_not_start_are_failures(tmp_path):
    refused = Case("conv2d", 3, length=5, height=5, stride=2)
    winograd = Target.parse("reference,algorithm=winograd")
    gone = Target.parse("tensorflow==1.0.0")
    asked = [(winograd.text, refused), (gone.text, FOUR), (gone.text, WIDE)]
    found = read_windows(Experiment("a test", tmp_path), asked)
    rows = load(tmp_path).failures
    assert set(found.failures) == {winograd.text, gone.text} and found.found == 0
    assert sorted(rows.kind) == ["unavailable", "unsupported"]
    read = Readings(load(tmp_path))
    assert "stride" in read.refusal(winograd.text, refused)
    with pytest.raises(KeyError):
        read(winograd.text, refused)


def test_every_picture_is_drawn(stored):
    import matplotlib.pyplot as plt

    read = Readings(load(stored[0]))
    figure, axes = plt.subplots(2, 3)
    diagrams.line(axes[0, 0], read("reference", FOUR), [1, 2, 3, 4], [0, 1], right=[2, 4], room=1)
    diagrams.line(axes[0, 1], read("reference", DILATED), range(1, 8))
    diagrams.map_of_windows(axes[0, 2], read("reference", MEAN), [(0, 0), (1, 1)])
    diagrams.channels(axes[1, 0], read("reference", WIDE))
    texts = [text.get_text() for text in axes[0, 0].texts]
    assert texts[:4] == ["1", "2", "3", "4"] and "= 2" in texts and "= 4" in texts
    alike = diagrams.verdict(read("reference", FOUR), read("reference", FOUR))
    other = diagrams.verdict(read("reference", FOUR.with_(padding=1)), read("reference", FOUR))
    words = pd.DataFrame([[alike, other, diagrams.verdict(None, read("reference", FOUR))]])
    assert words.iloc[0].tolist() == [
        "the same windows",
        "a different number of outputs",
        "refused",
    ]
    diagrams.verdicts(axes[1, 1], words, words.map(len))
    diagrams.verdict_legend(figure)
    figure.canvas.draw()
    plt.close(figure)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_experiment_runs_quickly(first, name):
    found = load(first(name)[0])
    assert len(found.windows) and found.windows.as_said.all() and not len(found.failures)


def test_the_committed_figures_are_those_of_the_reports():
    read = Readings(load(ROOT / "results" / "padding_conventions"))
    image = Case("conv2d", 3, 3, 8, length=10, height=10, padding="same", operands="image")

    def difference(case, ported):
        return np.abs(read("tensorflow", case).outputs - read("torch", ported).outputs).mean()

    twice = image.with_(stride=2)
    assert difference(image, image.with_(padding=1)) < 5e-8
    assert 0.15 < difference(twice, twice.with_(padding=1)) < 0.3
    assert difference(twice, twice.with_(padding="0:1")) < 5e-8
    assert read("tensorflow", FOUR).outputs.ravel().tolist() == [2, 4]
    assert read("torch", FOUR.with_(padding=1)).outputs.ravel().tolist()[:2] == [1, 3]
    pool = Case("max_pool1d", 3, length=112, stride=2, padding=1)
    assert read("opencv", pool.with_(ceil_mode=True)).outputs.size == 57
    assert read("torch", pool).outputs.size == 56
