"""Model files that are run whole keep the bits of their samples."""

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.model_files import NamedInputs
from probe.sizes.invariant.whole import SameBitsProgram
from tests.sizes.invariant.models import Planted, W, drawn, held, product, same


@pytest.mark.slow
def test_further_calls_of_a_file_have_the_same_bits():
    program = NamedInputs(lambda x, w: [Planted()(x, w), x], {"x": 0}, "planted", ["x", "w"])
    model, x = SameBitsProgram(program, {"batch": (1, 2, 4, 8)}, "largest", False), drawn(21, 33)
    whole = Planted.added(x, W, True)
    for count in (1, 3, 8, 21, 1, 3, 8, 21):
        y, entries = model(x[:count], W)
        assert same(y, whole[:count]) and same(entries, x[:count])
    turned = model(np.asfortranarray(x[:3]), W)[0]
    assert same(turned, whole[:3]) and same(model(w=W, x=x[:3])[0], whole[:3])


@pytest.mark.slow
def test_integers_without_samples_are_read_in_each_call():
    program = NamedInputs(lambda x, n: [x * int(n)], {"x": 0}, "scaled", ["x", "n"])
    model, x = SameBitsProgram(program, {"batch": (1, 4)}, "largest", False), drawn(4, 3)
    for number in (2, 3, 2):
        assert same(model(x[:3], np.array(number))[0], x[:3] * number)


def test_an_onnx_file_keeps_its_largest_bits_and_its_order(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    (tmp_path / "model.onnx").write_bytes(product())
    x = drawn(11, 33)
    model, report = stable.invariant(
        tmp_path / "model.onnx", [1, 4], example=x, threads=1, strict=True
    )
    held(model, x, lambda y: y[0])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    plain = onnxruntime.InferenceSession(product(), options)
    if not report.table.notes:
        assert same(model(x=x[:4])[0], plain.run(None, {"x": x[:4]})[0])
    (told,) = report.orders().values()
    assert told.startswith(("same: all outputs of sizes", "not known: "))
    assert report.rows[0].orders == told
    model, _ = stable.invariant(plain, [1, 8], example={"x": x})
    held(model, x, lambda y: y[0])


def test_an_onnx_file_of_one_batch_is_padded_to_it():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model, report = stable.invariant(product(4), range(1, 9), example=drawn(3, 33))
    held(model, drawn(11, 33), lambda y: y[0])
    assert list(report.sizes.values()) == [[4]]
    (told,) = report.orders().values()
    assert told.startswith("not known: ")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.onnx", b"nothing of this kind", "can't read it"),
        ("model.tflite", b"    TFL3 nothing", "can't read it"),
        ("model.pb", b"", "no file that is run whole"),
        ("missing.onnx", None, "no such file"),
    ],
)
def test_files_that_cannot_be_read_are_one_line(tmp_path, name, content, why):
    for package in ("onnxruntime", "ai_edge_litert"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=why) as caught:
        stable.invariant(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_file_of_litert_keeps_its_bits_with_any_threads():
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    keras.utils.set_random_seed(0)
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu6"),
            layers.DepthwiseConv2D(3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ]
    )
    content = tensorflow.lite.TFLiteConverter.from_keras_model(network).convert()
    x = drawn(9, 12, 12, 3)
    for threads in (1, 2):
        model, report = stable.invariant(
            content, [1, 2, 4, 8], example=x[:2], threads=threads, strict=True
        )
        held(model, x, lambda y: y[0])
        assert report.complete


@pytest.mark.slow
def test_a_function_and_a_signature_of_tensorflow_keep_their_bits(tmp_path):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    w = tensorflow.constant(W)

    class Layer(tensorflow.Module):
        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, 33])])
        def call(self, x):
            return {"y": tensorflow.nn.gelu(x @ w)}

    layer, x = Layer(), drawn(9, 33)
    tensorflow.saved_model.save(layer, str(tmp_path), signatures=layer.call)
    signature = tensorflow.saved_model.load(str(tmp_path)).signatures["serving_default"]
    for given in (tensorflow.function(lambda x: layer.call(x)), signature):
        model, report = stable.invariant(given, [1, 2, 8], example=x[:3])
        tensors = [tensorflow.constant(x[:n]) for n in (2, 9)]
        assert same(model(tensors[0])["y"].numpy(), model(tensors[1])["y"].numpy()[:2])
        held(model, x, lambda y: y["y"].numpy())
        (told,) = report.orders().values()
        assert told.startswith(("same", "not known"))
