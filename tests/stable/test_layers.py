"""Models made stable: their dense layers and normalisations, and the report of what was left."""

from __future__ import annotations

import numpy as np
import pytest

from probe import stable
from probe.stable.report import NotStable
from probe.ulp import equal

pytestmark = pytest.mark.long

ROWS = (1, 2, 5, 16, 17, 31)


@pytest.fixture(params=["torch", "tensorflow"])
def library(request):
    return request.param, pytest.importorskip(request.param)


def tensors(library, x, w, b):
    name, module = library
    w = w.T.copy() if name == "torch" else w
    make = module.from_numpy if name == "torch" else module.constant
    return tuple(None if one is None else make(one) for one in (x, w, b))


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("accumulate", [None, "float64"])
def test_rows_of_a_dense_layer_depend_on_themselves_alone(library, accumulate):
    x, w, b = drawn(33, 65), drawn(65, 12, seed=1), drawn(12, seed=2)
    whole = np.asarray(stable.dense(*tensors(library, x, w, b), accumulate=accumulate))
    np.testing.assert_allclose(whole, x.astype(float) @ w + b, rtol=1e-4, atol=1e-4)
    for rows in ROWS:
        few = stable.dense(*tensors(library, x[:rows], w, b), accumulate=accumulate)
        assert equal(np.asarray(few), whole[:rows], "float32")
    stacked = stable.dense(*tensors(library, x.reshape(3, 11, 65), w, b), accumulate=accumulate)
    assert equal(np.asarray(stacked).reshape(33, 12), whole, "float32")


def test_a_dense_layer_adds_in_the_order_of_the_channels(library):
    x, w, b = drawn(4, 9), drawn(9, 3, seed=1), drawn(3, seed=2)
    total = x[:, :1] * w[:1]
    for channel in range(1, 9):
        total = total + x[:, channel : channel + 1] * w[channel : channel + 1]
    y = np.asarray(stable.dense(*tensors(library, x, w, b)))
    assert equal(y, total + b, "float32")


def test_gradients_of_rows_depend_on_themselves_alone(library):
    name, module = library
    x, w, _ = drawn(33, 20), drawn(20, 7, seed=1), None

    def gradients(rows):
        left, right, _ = tensors(library, x[:rows], w, None)
        if name == "torch":
            left.requires_grad_()
            right.requires_grad_()
            (stable.dense(left, right) ** 2).sum().backward()
            return left.grad.numpy(), right.grad.numpy().T
        with module.GradientTape() as tape:
            tape.watch([left, right])
            total = module.reduce_sum(stable.dense(left, right) ** 2)
        return [one.numpy() for one in tape.gradient(total, [left, right])]

    dx, dw = gradients(33)
    y = x.astype(float) @ w
    np.testing.assert_allclose(dx, 2 * y @ w.T, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(dw, 2 * x.T @ y, rtol=1e-3, atol=1e-3)
    for rows in ROWS:
        assert equal(gradients(rows)[0], dx[:rows], "float32")


def torch_network(torch):
    parts = [torch.nn.Conv1d(3, 6, 5), torch.nn.BatchNorm1d(6), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts).eval()
    with torch.no_grad():
        for one in (model[1].running_mean, model[1].weight, model[1].bias):
            one.copy_(torch.randn(6))
        model[1].running_var.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize("accumulate", [None, "float64"])
def test_torch_normalisation_depends_on_its_element_alone(accumulate):
    torch = pytest.importorskip("torch")
    from probe.stable import torch_modules

    model = torch_network(torch)
    made = torch_modules.stabilized(model, accumulate, strict=True)
    assert made.state_dict().keys() == model.state_dict().keys()
    x = torch.randn(17, 3, 60)
    with torch.no_grad():
        whole = made(x)
        torch.testing.assert_close(whole, model(x), rtol=1e-4, atol=1e-4)
        for rows in (1, 2, 9):
            for length in (6, 13, 60):
                assert torch.equal(made(x[:rows, :, :length]), whole[:rows, :, : length - 4])
    made.train()
    assert not torch.equal(made(x), whole)  # means over the batch, as in any training


def test_torch_report_names_what_was_done_and_left():
    torch = pytest.importorskip("torch")
    from probe.stable import torch_modules

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


def keras_or_skip():
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the layers are TensorFlow's")
    return keras


@pytest.mark.parametrize("accumulate", [None, "float64"])
@pytest.mark.slow_at("float64")
def test_keras_models_within_models_are_stable(accumulate):
    keras = keras_or_skip()
    from probe.stable import keras_layers

    layers = keras.layers
    given = layers.Input((None, 3))
    x = layers.BatchNormalization(name="norm")(layers.Conv1D(6, 5)(given))
    inner = keras.Sequential([layers.Input((None, 6)), layers.Dense(7, activation="relu")])
    model = keras.Model(given, layers.Add()([inner(x), layers.Dense(7)(x)]))
    model.get_layer("norm").set_weights([abs(drawn(6)) + 1, *drawn(2, 6), abs(drawn(6)) + 1])
    made = keras_layers.stabilized(model, accumulate, strict=True)
    assert len(made.stable_report.replaced) == 4 and made.stable_report.complete
    x = drawn(17, 40, 3)
    whole = made(x).numpy()
    np.testing.assert_allclose(whole, model(x).numpy(), rtol=1e-3, atol=1e-3)
    assert equal(made.predict(x, verbose=0), whole, "float32")
    for rows in (1, 2, 9):
        for length in (6, 13, 40):
            short = made(x[:rows, :length]).numpy()
            assert equal(short, whole[:rows, : length - 4], "float32")
    if accumulate:
        import tensorflow as tf

        compiled = tf.function(made, jit_compile=True)
        assert equal(compiled(x).numpy(), whole, "float32")


@pytest.mark.slow
def test_keras_report_names_what_was_left_and_activations():
    keras = keras_or_skip()
    from probe.stable import keras_layers

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


def test_layers_of_torch_are_kept_where_what_they_compute_is_exact():
    torch = pytest.importorskip("torch")
    from probe.stable import torch_modules

    nn = torch.nn
    kept = [
        *(nn.Identity(), nn.Dropout(), nn.AlphaDropout(), nn.Flatten(), nn.Unflatten(1, (2, 3, 4))),
        *(nn.ReLU6(), nn.LeakyReLU(), nn.Threshold(0.1, 0.2), nn.PReLU(), nn.MaxPool1d(3)),
        *(nn.MaxPool3d(2), nn.AdaptiveMaxPool2d(5), nn.ConstantPad3d(1, 0.5), nn.ZeroPad2d(2)),
        *(nn.ReflectionPad1d(2), nn.ReplicationPad2d(2), nn.PixelShuffle(3), nn.ChannelShuffle(4)),
        *(nn.Embedding(10, 3), nn.Upsample(scale_factor=2)),
    ]
    left = [
        *(nn.GELU(), nn.Tanh(), nn.ELU(), nn.Softmax(-1), nn.LayerNorm(8), nn.GroupNorm(2, 4)),
        *(nn.LSTM(4, 4), nn.AvgPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")),
        *(nn.InstanceNorm2d(4), nn.MultiheadAttention(4, 2), nn.LPPool1d(2, 3)),
    ]
    report = torch_modules.stabilized(nn.Sequential(*kept, *left)).stable_report
    assert [int(name) for name, _ in report.kept] == list(range(len(kept)))
    assert [kind for _, kind in report.left] == [type(one).__name__ for one in left]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_layers_of_keras_are_kept_where_what_they_compute_is_exact():
    keras = keras_or_skip()
    from probe.stable import keras_layers

    layers = keras.layers
    picture = keras.Input((8, 8, 4))
    y = layers.ZeroPadding2D()(layers.MaxPooling2D(2, padding="same")(picture))
    y = layers.Concatenate()([y, layers.Maximum()([y, layers.SpatialDropout2D(0.5)(y)])])
    y = layers.Flatten()(layers.AveragePooling2D(2)(layers.GaussianNoise(0.1)(y)))
    model = keras.Model(picture, layers.Softmax()(layers.Embedding(9, 2)(y)))
    report = keras_layers.stabilized(model).stable_report
    kinds = ["AveragePooling2D", "Softmax"]
    assert [kind for _, kind in report.left] == kinds
    assert {"Embedding", "Concatenate", "Maximum"} < {kind for _, kind in report.kept}
