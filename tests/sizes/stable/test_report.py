"""What was replaced and left in models that were made stable."""

from __future__ import annotations

import pytest

from probe.sizes.stable.report import LayerReport
from tests.sizes.stable.test_keras_layers import keras_or_skip

pytestmark = pytest.mark.long


def test_a_report_without_layers_says_so():
    lines = str(LayerReport((), (("act", "ReLU"), ("", "Own")))).splitlines()
    assert lines[0].endswith("position): none")
    assert lines[1].endswith("length): act (ReLU), (the model) (Own)")


def test_torch_report_names_what_was_replaced_and_left():
    torch = pytest.importorskip("torch")
    from probe.sizes.stable import torch_modules

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.act = torch.nn.Linear(4, 4), torch.nn.GELU()
            self.attention = torch.nn.MultiheadAttention(4, 2)
            self.norm = torch.nn.BatchNorm1d(4, track_running_stats=False)

    model = torch.nn.Sequential(Own(), torch.nn.ReLU(), torch.nn.LSTM(4, 4))
    made = torch_modules.stabilized(model)
    assert made.stable_report.replaced == (("0.first", "Linear"),)
    assert dict(made.stable_report.left) == {
        "0": "Own",
        "0.act": "GELU",
        "0.attention": "MultiheadAttention",
        "0.norm": "BatchNorm1d",
        "1": "ReLU",
        "2": "LSTM",
    }
    assert "left as they are" in str(made.stable_report) and "2 (LSTM)" in str(made.stable_report)
    assert torch_modules.stabilized(made).stable_report.replaced == (("0.first", "Linear"),)


@pytest.mark.slow
def test_keras_report_names_what_was_left_and_activations():
    keras = keras_or_skip()
    from probe.sizes.stable import keras_layers

    layers = keras.layers
    parts = [layers.Dense(4, activation="softmax", name="d"), layers.ReLU(name="r")]
    parts += [layers.LSTM(5, name="l"), layers.LayerNormalization(name="n")]
    inner = keras.Sequential([layers.Input((None, 3)), layers.Dense(3, name="i")])
    model = keras.Sequential([layers.Input((None, 3)), inner, *parts])
    report = keras_layers.stabilized(model).stable_report
    assert report.replaced == (("i", "Dense"), ("d", "Dense"))
    left = (("d", "its activation softmax"), ("r", "ReLU"), ("l", "LSTM"))
    assert report.left == (*left, ("n", "LayerNormalization"))
