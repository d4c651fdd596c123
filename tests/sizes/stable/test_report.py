"""What was replaced, kept and left in models that were made stable."""

from __future__ import annotations

import pytest

from probe.sizes.stable.report import NotStable
from tests.sizes.stable.test_keras_layers import keras_or_skip

pytestmark = pytest.mark.long


def test_torch_report_names_what_was_done_and_left():
    torch = pytest.importorskip("torch")
    from probe.sizes.stable import torch_modules

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.act = torch.nn.Linear(4, 4), torch.nn.GELU()
            self.attention = torch.nn.MultiheadAttention(4, 2)
            self.norm = torch.nn.BatchNorm1d(4, track_running_stats=False)
            self.scale = Scale()

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.by = torch.nn.Parameter(torch.ones(4))

    model = torch.nn.Sequential(Own(), torch.nn.ReLU(), torch.nn.LSTM(4, 4))
    report = torch_modules.stabilized(model).stable_report
    assert report.replaced == (("0.first", "Linear"),) and report.kept == (("1", "ReLU"),)
    assert dict(report.left) == {
        "0.act": "GELU",
        "0.attention": "MultiheadAttention",
        "0.norm": "BatchNorm1d",
        "0.scale": "Scale",
        "2": "LSTM",
    }
    assert report.unread == (("0", "Own"),) and not report.complete
    assert "left as they are" in str(report) and "2 (LSTM)" in str(report)
    with pytest.raises(NotStable, match=r"strict=True: .*0\.attention \(MultiheadAttention\)"):
        torch_modules.stabilized(model, strict=True)


@pytest.mark.slow
def test_keras_report_names_what_was_left_and_activations():
    keras = keras_or_skip()
    from probe.sizes.stable import keras_layers

    layers = keras.layers
    parts = [layers.Dense(4, activation="softmax", name="d"), layers.ReLU(name="r")]
    parts += [layers.LSTM(5, name="l"), layers.LayerNormalization(name="n")]
    model = keras.Sequential([layers.Input((None, 3)), *parts])
    report = keras_layers.stabilized(model).stable_report
    assert report.replaced == (("d", "Dense"),) and report.kept == (("r", "ReLU"),)
    left = (("d", "its activation softmax"), ("l", "LSTM"), ("n", "LayerNormalization"))
    assert report.left == left
    with pytest.raises(NotStable, match=r"l \(LSTM\), n \(LayerNormalization\)"):
        keras_layers.stabilized(model, strict=True)
