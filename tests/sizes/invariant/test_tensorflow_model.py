"""Keras models in the invariant mode: 0 bits differ over batches and places."""

import json

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.keeper import NotInvariant

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from probe.sizes.invariant.tensorflow_model import (
    InvariantKeras,
    MatrixProduct,
    TensorFlowOperations,
    once,
)
from tests.sizes.invariant.keras_models import L, built, differing, keras, moved, numbers, tf

pytestmark = pytest.mark.long


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


@pytest.mark.slow
def test_zeros_and_subnormal_numbers_keep_their_bits_at_every_place():
    """A vector and its tail differ in the sign of a maximum of zeros, and in subnormal numbers."""
    plain = built(lambda x: L.Concatenate()([L.ReLU()(x), L.Maximum()([x, -x])]), 5)
    model, _ = stable.invariant(plain, (1, 16), strict=True)
    odd = np.array([0, -0.0, 1e-40, -1e-40, 1.5], "float32")
    x = np.random.default_rng(0).choice(odd, (16, 5))
    whole = np.asarray(model(x)).view(np.uint32)
    for count in (1, 2, 3, 8, 15):
        assert (np.asarray(model(x[-count:])).view(np.uint32) == whole[-count:]).all()


@pytest.mark.slow
def test_functions_by_place_have_a_class_whatever_the_batch():
    """Of one sample or two as elements no call has a whole vector; of theirs there are more."""

    def layers(x):
        return keras.ops.relu(L.Add()([L.ReLU()(x), L.LeakyReLU(0.1)(x), L.Activation("elu")(x)]))

    model, report = stable.invariant(built(layers, 29), (1, 2), strict=True)
    assert moved(model, numbers(2, 29), (1,)) == 0
    assert report.complete


def test_a_batch_without_samples_is_empty_and_hides_nothing():
    """What a node is shows with samples alone: an empty batch first decides nothing."""

    def layers(x):
        return L.AveragePooling1D(2)(Cumulative()(x)) + L.Activation("tanh")(x[:, :2])

    model, report = stable.invariant(built(layers, 5, 3), (1, 8), strict=True)
    x = numbers(8, 5, 3)
    assert model(x[:0]).shape == (0, 2, 3) and moved(model, x, (1, 3)) == 0
    assert report.complete and model(x[:0]).shape == (0, 2, 3)


class Odd(L.Layer):
    def call(self, x):
        return tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64)))


class Centred(L.Layer):
    def call(self, x):
        return x - tf.reduce_mean(x, 0)


class Bilinear(L.Layer):
    def call(self, x):
        return keras.ops.einsum("bi,kij,bj->bk", x, tf.ones((3, 8, 8)), x)


@pytest.mark.parametrize(
    ("layer", "operation"), [(Odd, "FFT"), (Centred, "Mean"), (Bilinear, "Einsum")]
)
def test_what_is_not_known_is_reported_and_refused_when_strict(layer, operation):
    plain, x = keras.Sequential([keras.Input((8,)), layer()]), numbers(3, 8)
    model, report = stable.invariant(plain, example=x)
    assert not report.complete and any(operation in name for name in report.left)
    assert differing(model(x), plain(x)) == 0
    left = list(report.left)
    model(x[:2])
    assert list(report.left) == left  # a node is named once, for all batches
    model, _ = stable.invariant(plain, strict=True)
    with pytest.raises(NotInvariant, match=operation):
        model(x)


def test_a_function_runs_its_branches_and_loops_as_tensorflow_does():
    """A branch of no number is the last one; what bodies capture is theirs."""
    scale = tf.constant(numbers(4))

    @tf.function(autograph=False)
    def function(x, which):
        chosen = tf.switch_case(which, [lambda: x + 1, lambda: x * scale, lambda: -x])
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * scale), (0, chosen))

    x = tf.constant(numbers(2, 4))
    made = function.get_concrete_function(x, tf.constant(0))
    runner = TensorFlowOperations(None)
    runner.handler = lambda node, _: once(node)
    for which in (0, 1, 2, -1, 9):
        given = [x, tf.constant(which), *made.captured_inputs]
        found = runner(made.function_def.signature.name, given, (True, *[False] * (len(given) - 1)))
        assert differing(found[1], made(x, tf.constant(which))[1]) == 0


class Cumulative(L.Layer):
    def call(self, x):
        return tf.cumsum(x, 1, reverse=True) + tf.math.cumprod(x, -1, exclusive=True)


LAYERS = {
    "causal": (lambda x: L.Conv1D(8, 3, padding="causal", dilation_rate=2)(x), (9, 4)),
    "of one place": (lambda x: L.Conv2D(65, 1)(x), (1, 1, 129)),
    "separable": (lambda x: L.SeparableConv2D(8, 3, activation="swish")(x), (9, 9, 4)),
    "transposed": (lambda x: L.Conv2DTranspose(8, 3, strides=2)(x), (9, 9, 4)),
    "transposed of one axis": (lambda x: L.Conv1DTranspose(8, 3, strides=2)(x), (9, 4)),
    "of three axes": (lambda x: L.Conv3DTranspose(4, 3)(L.Conv3D(8, 3)(x)), (5, 5, 5, 4)),
    "pooled": (lambda x: L.GlobalAveragePooling1D()(L.AveragePooling1D(2)(x)), (9, 4)),
    "attention": (lambda x: L.MultiHeadAttention(3, 8)(x, x, use_causal_mask=True), (19, 16)),
    "recurrent": (lambda x: L.Bidirectional(L.LSTM(24))(x), (9, 17)),
    "normalised": (lambda x: L.UnitNormalization()(L.GroupNormalization(2)(x)), (3, 4)),
    "resized": (lambda x: L.UpSampling2D(2, interpolation="bilinear")(x), (5, 7, 3)),
    "cumulative": (lambda x: Cumulative()(x), (5, 13)),
    "by place": (
        lambda x: L.Concatenate()(
            [L.Activation(name)(x) for name in ("selu", "softplus", "mish", "exponential")]
        ),
        (13,),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_layers_keep_their_bits(name):
    build, shape = LAYERS[name]
    model, report = stable.invariant(built(build, *shape), (1, 32), strict=True)
    assert moved(model, 2 * numbers(32, *shape), (1, 2, 7, 31)) == 0
    assert report.complete


def test_a_mean_that_adds_by_where_a_picture_begins_runs_sample_by_sample():
    """4,320 bytes a picture: every second one begins in the middle of a vector, at every batch."""
    plain = built(L.GlobalAveragePooling2D(), 10, 9, 12)
    x = numbers(8, 10, 9, 12) * np.exp2(np.arange(12) - 6).astype("float32")
    model, report = stable.invariant(plain, (1, 8), strict=True)
    assert moved(model, x, (1, 3, 5)) == 0 and report.complete
    if moved(plain, x, (1, 3, 5)):
        assert any("samples run one by one" in note for note in report.table.notes)


def test_a_table_travels_and_is_checked(tmp_path):
    plain, path, x = built(lambda x: L.Dense(9)(x), 24), tmp_path / "table.json", numbers(40, 24)
    model, report = stable.invariant(plain, [40], example=x)
    wanted = [np.asarray(model(x[:count])) for count in (1, 3, 40)]
    report.save(path)
    told = json.loads(path.read_text())
    assert told["environment"]["library"] == "tensorflow"
    model, report = stable.invariant(plain, [40], table=path)
    assert all(differing(model(x[: len(y)]), y) == 0 for y in wanted)
    assert not report.table.notes and report.table.trusted
    assert MatrixProduct(24, 9, tf.float32, False).key in told["operations"]
    told["environment"]["library"] = "torch"
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match="it is of torch, not of tensorflow"):
        stable.invariant(plain, [40], table=path)


def test_orders_are_revealed_when_asked():
    plain = built(lambda x: L.Dense(3)(x), 9)
    _, report = stable.invariant(plain, [8], example=numbers(8, 9))
    (told,) = report.orders().values()
    assert told.startswith(("same: all outputs", "not known: "))
