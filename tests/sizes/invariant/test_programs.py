"""Functions and files of libraries that are run whole keep the bits of their samples."""

import collections

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.programs import NamedInputs
from probe.sizes.invariant.whole import SameBitsProgram
from tests.sizes.invariant.models import Planted, W, drawn, held, product, same

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_a_program_is_given_arrays_that_begin_where_a_vector_does():
    """A sample of a batch begins anywhere, and MKL's order depends on that."""
    met = []

    def function(x, w):
        met.extend(one.__array_interface__["data"][0] % 64 for one in (x, w))
        return Planted()(x, w)

    w = np.concatenate([W[:1], W])[1:]
    model, _ = stable.invariant(function, [1, 4], batched=(0, None), example=(drawn(4, 33), w))
    met.clear()  # the first call found out whose arrays these are
    file = NamedInputs(lambda x, w: [function(x, w)], {"x": 0}, "planted", ["x", "w"])
    other = SameBitsProgram(file, {"batch": (1, 4)}, "largest", False)
    x = drawn(9, 33)
    for part in (x[1:2], x[1:5], x[3:], x[1:2], x[1:5]):  # those of a file are known at last
        assert same(model(part, w), other(part, w)[0])
    assert len(met) > 20 and not any(met)


def test_samples_of_a_compiled_module_are_aligned():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from probe.sizes.invariant.programs import TorchProgram

    def compiled(x):
        return x

    compiled._torchdynamo_orig_callable = compiled  # what it is known by; to compile takes seconds
    program, x = TorchProgram(compiled), torch.randn(40, 33)
    for axis in (0, None):
        found = [program.aligned(x[row : row + 1], axis) for row in range(40)]
        assert not any(one.data_ptr() % 64 for one in found)
        assert all(torch.equal(one, x[row : row + 1]) for row, one in enumerate(found))


def test_a_function_of_jax_keeps_its_bits_beside_its_weights():
    jax = pytest.importorskip("jax", reason="JAX is not installed")

    def layers(weights, x):
        hidden = jax.numpy.tanh(x @ weights["first"])
        return {"y": hidden @ weights["second"]}

    weights = {"first": jax.numpy.asarray(W), "second": jax.numpy.asarray(W.T)}
    x, part = drawn(9, 33), lambda y: np.asarray(y["y"])
    model, report = stable.invariant(layers, [1, 4], example=(weights, x[:3]), batched=(None, 0))
    found = held(lambda given: model(weights, given), x, part)
    assert isinstance(model(weights, x)["y"], jax.Array)
    assert same(part(model(weights, jax.numpy.asarray(x))), found)
    if not report.table.notes:
        assert same(part(model(weights, x[:4])), part(jax.jit(layers)(weights, x[:4])))
    (told,) = report.orders().values()
    assert told.startswith("not known: operations of a compiled program")


@pytest.mark.slow
def test_a_call_of_jax_that_is_known_is_padded_and_cut_on_the_device():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jnp = jax.numpy

    def layers(weights, x):
        return {"b": jnp.tanh(x @ weights["z"]).T, "a": (x @ weights["a"]).sum(1)}

    weights = collections.OrderedDict(z=jnp.asarray(W), a=jnp.asarray(W[:, ::-1].copy()))
    x = drawn(13, 33)
    model, _ = stable.invariant(layers, [4, 8], example=(weights, x), batched=(None, 0))
    whole = model(weights, x)
    for size in (1, 11):
        for given in (x[:size], jnp.asarray(x[:size]), np.asfortranarray(x[:size])):
            for _ in range(2):  # the second call is a known one
                found = model(weights, given)
                assert isinstance(found["a"], jax.Array)
                assert same(np.asarray(found["a"]), np.asarray(whole["a"])[:size])
                assert same(np.asarray(found["b"]), np.asarray(whole["b"])[:, :size])


@pytest.mark.slow
def test_a_program_of_jax_inside_of_another_is_refused():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    model, _ = stable.invariant(lambda x: jax.numpy.tanh(x @ W), [1, 4], example=drawn(4, 33))
    with pytest.raises(InputError, match="inputs=a traced array"):
        jax.jit(lambda x: model(x) * 2)(drawn(4, 33))


@pytest.mark.parametrize(("answer", "words"), [((), "nothing"), ("text", "str")])
def test_a_function_that_returns_no_array_is_refused_by_what_it_returns(answer, words):
    with pytest.raises(InputError, match=f"it returns {words};"):
        stable.invariant(lambda x: answer, [1, 2])[0](drawn(1, 3))


@pytest.mark.slow
def test_bfloat16_of_jax_keeps_its_bits():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    half = jax.numpy.bfloat16
    x, w = jax.numpy.asarray(drawn(5, 33), half), jax.numpy.asarray(W, half)
    model, _ = stable.invariant(lambda x: x @ w, [1, 4], example=x)
    whole = model(x)
    assert whole.dtype == half and whole.shape == (5, 12)
    assert bool((whole[:3] == model(x[:3])).all())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_module_of_pytorch_keeps_its_bits():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 5), torch.nn.GELU()
    ).eval()
    with pytest.raises(InputError, match="training is not covered"):
        stable.invariant(torch.compile(torch.nn.Dropout()))
    compiled = torch.compile(plain)
    x = torch.randn(9, 3, 8, 8)
    with torch.no_grad():
        compiled(x[:5]), compiled(x[:6])  # PyTorch now has a program of any size
    model, _ = stable.invariant(compiled, [1, 4], example=x[:2])
    held(lambda x: model(torch.from_numpy(np.array(x))), x.numpy(), lambda y: y.numpy())
    last = x.contiguous(memory_format=torch.channels_last)
    assert same(model(last).numpy(), model(x).numpy())


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
