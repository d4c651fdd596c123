"""Keras models in the invariant mode: 0 bits differ over batches and places."""

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.keeper import NotInvariant

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from probe.sizes.invariant.keras_model import InvariantKeras
from tests.sizes.invariant.keras_models import L, built, differing, keras, moved, numbers, tf


def network(x):
    y = L.Activation("relu6")(L.BatchNormalization()(L.Conv2D(6, 3, padding="same")(x)))
    y = L.Add()([y, L.DepthwiseConv2D(3, padding="same")(y)])
    y = L.GlobalAveragePooling2D()(L.MaxPooling2D(2)(y))
    return L.Dense(5, activation="softmax")(L.Dense(33, activation="tanh")(y))


@pytest.fixture(scope="module")
def convolutional():
    plain = built(network, 9, 9, 3)
    model, report = stable.invariant(plain, (1, 16), strict=True)
    x = numbers(16, 9, 9, 3)
    return plain, model, report, x, np.asarray(model(x))


@pytest.mark.slow
def test_a_convolutional_network_keeps_its_largest_bits_at_every_batch_and_place(convolutional):
    plain, model, report, x, whole = convolutional
    if not report.table.notes:
        assert differing(plain(x), whole) == 0
    assert moved(model, x, (1, 2, 5, 16)) == 0
    assert report.complete and not report.limited and len(report.rows) >= 5
    assert isinstance(model, InvariantKeras) and model.weights[0] is plain.weights[0]


def test_in_predict_in_a_function_and_in_another_model_the_bits_are_the_same(convolutional):
    _, model, _, x, whole = convolutional
    assert differing(model.predict(x, batch_size=5, verbose=0), whole) == 0
    inside = tf.function(lambda given: model(given) * 1)
    assert all(differing(inside(x[:count]), whole[:count]) == 0 for count in (1, 3))
    around = keras.Sequential([keras.Input((9, 9, 3)), model])
    assert differing(around(x[:2]), whole[:2]) == 0


def test_xla_and_training_are_one_line(convolutional):
    _, model, _, x, _ = convolutional
    with pytest.raises(Exception, match="XLA would compile"):
        tf.function(lambda given: model(given), jit_compile=True)(x)
    with pytest.raises(InputError, match="training is not covered"):
        model(x, training=True)
    with pytest.raises(InputError, match="training is not covered"):
        model.compile("sgd")


def block(tokens):
    x = L.Embedding(11, 12, mask_zero=True)(tokens)
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 6)(x, x))
    return x + L.Dense(12)(L.Dense(19, activation="gelu")(x))


def test_a_transformer_keeps_its_bits_along_the_batch():
    plain = built(block, 7, dtype="int32")
    model, report = stable.invariant(plain, {"batch": [1, 8], "length": [7]})
    tokens = np.random.default_rng(2).integers(0, 11, (8, 7)).astype("int32")
    assert moved(model, tokens, (3,)) == 0
    assert report.complete and len(repr(report).splitlines()) == 3
    assert report.limited and "along the batch alone" in repr(report)


def halved(x):
    return tf.while_loop(
        lambda y: tf.logical_not(tf.reduce_all(tf.abs(y) < 1)), lambda y: [y / 2], [x]
    )[0]


READING = {
    "maximum": lambda x: x / tf.reduce_max(tf.abs(x)),
    "first": lambda x: x - x[:1],
    "sort": lambda x: tf.sort(x, 0),
    "loop": halved,
    "any": lambda x: tf.where(tf.reduce_any(x > 100), x, -x),
    "batch": lambda x: x * tf.cast(tf.shape(x)[0], tf.float32),
}


class Reading(L.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", READING)
def test_samples_that_read_each_other_by_exact_operations_are_reported(name):
    plain, x = keras.Sequential([keras.Input((8,)), Reading(READING[name])]), numbers(3, 8)
    _, report = stable.invariant(plain, example=x)
    assert list(report.left) == ["samples that read each other"] and not report.complete
    strict, _ = stable.invariant(plain, strict=True)
    with pytest.raises(NotInvariant, match="samples that read each other"):
        strict(x)


class Looping(keras.Model):
    """A loop of Python's on numbers: Keras runs it eagerly, and a graph can't hold it."""

    def call(self, x):
        while tf.reduce_any(tf.abs(x) > 1):
            x = x / 2
        return x


def test_a_model_that_cannot_be_traced_is_refused_in_one_line():
    plain, x = Looping(), numbers(3, 8)
    plain(x)
    with pytest.raises(InputError, match="cannot be traced with an open batch") as caught:
        stable.invariant(plain)[0](x)
    assert "\n" not in str(caught.value)


def test_inputs_without_a_batch_are_shared_by_all_samples():
    tokens, places = (keras.Input((7,), dtype="int32") for _ in range(2))
    plain = keras.Model(
        [tokens, places], L.Dense(5)(L.Embedding(11, 12)(tokens) + L.Embedding(7, 12)(places))
    )
    model, report = stable.invariant(plain, [1, 8], strict=True)
    given = np.random.default_rng(2).integers(0, 11, (8, 7)).astype("int32")
    row = np.arange(7, dtype="int32")[None]
    whole = np.asarray(model([given, row]))
    for count in (1, 3):
        assert differing(model([given[-count:], row]), whole[-count:]) == 0
    assert report.complete


def test_weights_are_those_of_the_model_also_when_they_change():
    plain = built(lambda x: L.Dense(3)(x), 4)
    model, _ = stable.invariant(plain, [4])
    x = numbers(4, 4)
    before = np.asarray(model(x))
    plain.weights[0].assign(numbers(4, 3, seed=9))
    assert differing(model(x), before) and differing(model(x), plain(x)) == 0


def test_what_is_no_model_is_one_line():
    with pytest.raises(InputError, match="a single layer is not a model"):
        stable.invariant(L.Dense(3))
    with pytest.raises(InputError, match="it has no weights yet"):
        stable.invariant(keras.Sequential([L.Dense(3)]))


@pytest.mark.slow
def test_statistics_of_the_batch_are_reported_and_the_model_still_trains():
    class Statistics(L.Layer):
        def __init__(self):
            super().__init__()
            self.norm = L.BatchNormalization()

        def call(self, x):
            return self.norm(x, training=True)

    plain = keras.Sequential([keras.Input((8,)), L.Dense(8), Statistics()])
    _, report = stable.invariant(plain, example=numbers(6, 8))
    assert not report.complete
    plain.compile("sgd", "mse")
    before = plain.get_weights()
    plain.fit(numbers(6, 8), numbers(6, 8), verbose=0)
    assert len(plain.trainable_weights) == 4 and differing(plain.get_weights()[0], before[0])
