"""Models in Keras with seeded weights, and the same as LiteRT has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lib.variations import ALL, Arrays, Given, Variation, sides_of


def calibrated(name: str, size: int) -> Any:
    """A network of keras.applications with seeded weights and the statistics of a trained one.

    As ``weights=None`` leaves them, moving averages are 0 and 1 and activations fade from layer to
    layer: every answer is the uniform one, in which no difference shows. They become those of one
    batch, rounded to float16, so that machines whose sums differ in the last bits agree on them.
    """
    import keras

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
    norms = [one for one in model.layers if isinstance(one, keras.layers.BatchNormalization)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(np.random.default_rng(1).standard_normal((ALL, size, size, 3)), training=True)
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum
        for weight in (norm.moving_mean, norm.moving_variance):
            weight.assign(np.asarray(weight).astype(np.float16))
    for weight in model.weights:
        if "layer_scale" in weight.path:  # 1e-6 leaves a block nothing to say
            weight.assign(np.full(weight.shape, 0.1))
    return model


def application(name: str, size: int) -> Callable[[Path], Any]:
    """A network of keras.applications with seeded weights, called eagerly or by ``predict``."""

    def sides(_: Path) -> Any:

        model = calibrated(name, size)
        x = np.random.default_rng(0).standard_normal((ALL, size, size, 3)).astype(np.float32)

        return _of_model(model, x)

    return sides


def both_ways(_: Path) -> Any:
    """Returns a bidirectional LSTM and a GRU, called eagerly or as a graph."""
    import keras

    keras.utils.set_random_seed(0)
    layers, x = keras.layers, keras.Input((20, 16))
    y = layers.Bidirectional(layers.LSTM(24, return_sequences=True))(x)
    model = keras.Model(x, layers.Dense(3, activation="softmax")(layers.GRU(12)(y)))
    array = np.random.default_rng(0).standard_normal((ALL, 20, 16)).astype(np.float32)

    return _of_model(model, array)


def _of_model(model: Any, x: np.ndarray) -> Callable[[Variation], tuple[Given, Given]]:
    """Returns both runs of a Keras model, called by itself or as a graph."""
    import keras

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Given:
        def make(arrays: Arrays) -> Any:
            given = keras.ops.convert_to_tensor(arrays["x"])
            if compiled:
                import tensorflow

                function = tensorflow.function(lambda: model(given, training=False))
                return lambda: function()
            return lambda: model(given, training=False)

        return Given(make, {"x": x[: batch or ALL]})

    return lambda one: sides_of(run, one)


def converted(name: str, size: int) -> Callable[[Path], Any]:
    """Returns the same network as ``tf.lite`` converts it; against Keras itself too."""

    def sides(_: Path) -> Any:
        import tensorflow

        from probe.record.recorders import litert
        from probe.record.recorders.tensorflow import TensorFlowRecorder as Eager

        model = calibrated(name, size)
        content = tensorflow.lite.TFLiteConverter.from_keras_model(model).convert()
        x = np.random.default_rng(0).standard_normal((ALL, size, size, 3)).astype(np.float32)
        (one,) = litert.LiteRTFile(content).inputs()
        named = one.name

        def run(batch: int | None, _: int | None, threads: int = 2) -> Given:
            switches = {"threads": str(threads)}
            make = lambda arrays: litert.LiteRTRecorder(content, arrays, switches)  # noqa: E731
            return Given(make, {named: x[: batch or ALL]})

        def eager(arrays: Arrays) -> Any:
            tensor = tensorflow.constant(arrays[named])
            return Eager(lambda: model(tensor, training=False))

        def both(one: Variation) -> tuple[Given, Given]:
            if one.vary == "library":
                return Given(eager, {named: x}), run(None, None)
            return sides_of(run, one)

        return both

    return sides


def plain(size: int) -> Callable[[Path], Any]:
    """Returns a residual network without BatchNorm, whose weights no converter folds, as
    ``tf.lite`` has it, against Keras itself."""

    def sides(_: Path) -> Any:
        import keras
        import tensorflow

        from probe.record.recorders import litert
        from probe.record.recorders.tensorflow import TensorFlowRecorder as Eager

        keras.utils.set_random_seed(0)
        layers, x = keras.layers, keras.Input((size, size, 3))
        y = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
        for _block in range(2):
            z = layers.DepthwiseConv2D(3, padding="same", activation="relu6")(y)
            y = layers.Add()([y, layers.Conv2D(32, 1)(z)])
        y = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(y))
        model = keras.Model(x, y)
        content = tensorflow.lite.TFLiteConverter.from_keras_model(model).convert()
        array = np.random.default_rng(0).standard_normal((ALL, size, size, 3)).astype(np.float32)
        named = litert.LiteRTFile(content).inputs()[0].name

        def eager(arrays: Arrays) -> Any:
            tensor = tensorflow.constant(arrays[named])
            return Eager(lambda: model(tensor, training=False))

        def converted(arrays: Arrays) -> Any:
            return litert.LiteRTRecorder(content, arrays, {"threads": "2"})

        def both(_one: Variation) -> tuple[Given, Given]:
            return Given(eager, {named: array}), Given(converted, {named: array})

        return both

    return sides
