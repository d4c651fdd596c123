"""Keras models made stable keep their weights, and depend on their own window or row alone."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.ulp import equal
from tests.sizes.stable.test_convolution import drawn

pytestmark = pytest.mark.long


def test_keras_layers_keep_their_weights_and_are_stable():
    keras = keras_or_skip()
    from probe.sizes.stable import keras_layers

    layers = keras.layers
    parts = [layers.Input((None, 3)), layers.Conv1D(6, 5, padding="causal", activation="relu")]
    parts += [layers.MaxPooling1D(2), layers.DepthwiseConv1D(3, depth_multiplier=2)]
    model = keras.Sequential([*parts, layers.Conv1D(4, 3, groups=2)])
    made = keras_layers.stabilized(model)
    x = np.random.default_rng(0).standard_normal((1, 60, 3)).astype(np.float32)
    np.testing.assert_allclose(made(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
    whole = made.predict(x, verbose=0)
    for length in (10, 32):
        short = made.predict(x[:, :length], verbose=0)
        assert equal(short, whole[:, : length // 2 - 4], "float32")
    made.compile("sgd", "mse")
    assert np.isfinite(made.train_on_batch(x, whole))


def keras_or_skip():
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the layers are TensorFlow's")
    return keras


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [None, "float64"])
def test_keras_models_within_models_are_stable(accumulate):
    keras = keras_or_skip()
    from probe.sizes.stable import keras_layers

    layers = keras.layers
    given = layers.Input((None, 3))
    x = layers.BatchNormalization(name="norm")(layers.Conv1D(6, 5)(given))
    inner = keras.Sequential([layers.Input((None, 6)), layers.Dense(7, activation="relu")])
    model = keras.Model(given, layers.Add()([inner(x), layers.Dense(7)(x)]))
    model.get_layer("norm").set_weights([abs(drawn(6)) + 1, *drawn(2, 6), abs(drawn(6)) + 1])
    made = keras_layers.stabilized(model, accumulate)
    assert len(made.stable_report.replaced) == 4
    x = drawn(17, 40, 3)
    whole = made(x).numpy()
    np.testing.assert_allclose(whole, model(x).numpy(), rtol=1e-3, atol=1e-3)
    assert equal(made.predict(x, verbose=0), whole, "float32")
    for rows in (1, 2, 9):
        for length in (6, 13):
            short = made(x[:rows, :length]).numpy()
            assert equal(short, whole[:rows, : length - 4], "float32")
    if accumulate:
        import tensorflow as tf

        compiled = tf.function(made, jit_compile=True)
        assert equal(compiled(x).numpy(), whole, "float32")
