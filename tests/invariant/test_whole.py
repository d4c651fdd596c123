"""The invariant mode of programs that are run whole: a planted library, and the real ones."""

import collections
import json
from importlib import import_module

import numpy as np
import pytest

from probe import stable, ulp
from probe.errors import InputError
from probe.invariant.classes import Buckets, Entry, ladder
from probe.invariant.files import _File
from probe.invariant.report import NotInvariant
from probe.invariant.whole import SameBitsProgram

W = np.random.default_rng(0).standard_normal((33, 12)).astype(np.float32)


class Planted:
    """A library that adds backwards below ``turn`` samples, and in last rows of ``tails``."""

    def __init__(self, turn=4, tails=()):
        self.turn, self.tails, self.sizes = turn, tails, []

    def __call__(self, x, w=W):
        self.sizes.append(len(x))
        y = self.added(x, w, len(x) >= self.turn)
        if len(x) in self.tails:
            y[-1] = self.added(x[-1:], w, False)[0]
        return y

    @staticmethod
    def added(x, w, forwards):
        each = x[:, :, None] * w
        return np.add.accumulate(each if forwards else each[:, ::-1], axis=1)[:, -1]

    def function(self):
        return lambda x: self(x)


def drawn(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(a, b):
    return ulp.equal(np.ascontiguousarray(a), np.ascontiguousarray(b), "float32")


@pytest.mark.check
def test_a_sample_has_the_bits_of_the_largest_call_everywhere():
    planted, x = Planted(), drawn(70, 33)
    assert not same(planted(x[:3]), planted(x)[:3])
    model, report = stable.invariant(planted.function(), range(1, 33), example=x[:2])
    whole = model(x)
    assert same(whole, Planted.added(x, W, True))
    for count in (1, 2, 3, 4, 5, 31, 32, 33, 64, 70):
        assert same(model(x[:count]), whole[:count]), count
    turned = np.random.default_rng(2).permutation(70)
    assert same(model(x[turned]), whole[turned])
    ((_, sizes),) = report.sizes.items()
    assert sizes == [4, 8, 16, 32] and report.complete and not report.limited


def test_no_size_is_run_that_was_not_checked_or_whose_places_differ():
    planted = Planted(1, tails=(8, 32))
    model, report = stable.invariant(planted.function(), [4, 8, 16, 32], example=drawn(2, 33))
    ((_, sizes),) = report.sizes.items()
    assert sizes == [4, 10, 16, 34] and "32" in report.table.notes[0]
    planted.sizes.clear()
    x = drawn(50, 33)
    whole = Planted.added(x, W, True)
    assert all(same(model(x[:n]), whole[:n]) for n in range(1, 50))
    assert set(planted.sizes) <= {4, 10, 16, 34}


def test_a_size_that_rounds_few_numbers_differently_is_not_used():
    def rarely(x):
        y = Planted.added(x, W, True)
        rare = y.view(np.uint32) * np.uint32(2654435761) >> 23 == 0  # one of 512 numbers
        return np.nextafter(y, np.float32(9)) if len(x) == 1 and rare.any() else y

    x = drawn(2000, 33)
    assert not same(np.concatenate([rarely(one[None]) for one in x]), rarely(x))
    model, report = stable.invariant(rarely, [1, 2, 8], example=x[:2])
    ((_, sizes),) = report.sizes.items()
    assert sizes == [2, 8]
    assert same(np.concatenate([model(one[None]) for one in x]), rarely(x))


def test_further_calls_of_a_file_have_the_same_bits():
    program = _File(lambda x, w: [Planted()(x, w), x], {"x": 0}, "planted", ["x", "w"])
    model, x = (
        SameBitsProgram(program, {"batch": (1, 2, 4, 8)}, "largest", False, None),
        drawn(21, 33),
    )
    whole = Planted.added(x, W, True)
    for count in (1, 3, 8, 21, 1, 3, 8, 21):
        y, entries = model(x[:count], W)
        assert same(y, whole[:count]) and same(entries, x[:count])
    assert len(model._quick) == 4
    turned = model(np.asfortranarray(x[:3]), W)[0]
    assert same(turned, whole[:3]) and same(model(w=W, x=x[:3])[0], whole[:3])


def test_integers_without_samples_are_read_in_each_call():
    program = _File(lambda x, n: [x * int(n)], {"x": 0}, "scaled", ["x", "n"])
    model, x = SameBitsProgram(program, {"batch": (1, 4)}, "largest", False, None), drawn(4, 3)
    for number in (2, 3, 2):
        assert same(model(x[:3], np.array(number))[0], x[:3] * number)
    assert not model._quick


class Timed:
    """A program with this mark at each size."""

    key, refused = "timed", {}

    def __init__(self, marks):
        self.marks = marks

    def mark(self, size, quick=False):
        return self.marks[size]


@pytest.mark.parametrize(("wanted", "expected"), [([1, 2], [1, 2]), ([16, 64], [16])])
def test_the_cheapest_class_is_that_of_the_sizes_that_count(wanted, expected):
    made = Buckets(Timed({1: "small", 2: "small", 16: "large"}), Entry(), 1, (1, 2, 16))
    made._seconds = {1: 1.0, 2: 1.1, 16: 2.0}
    made.choose("cheapest", wanted)
    assert made.used == expected
    made.choose("largest", wanted)
    assert made.used == [16]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: np.round(x / np.abs(x).max() * 127),  # dynamic quantisation
        lambda x: np.cumsum(x, 0),
        lambda x: x * (1 + np.isnan(x).any()),
        lambda x: x * (1 + (np.abs(x) > 1000).any()),
        lambda x: x * (1 + (np.abs(x) < 1e-3).all(1).any()),
    ],
)
def test_samples_that_read_each_other_are_refused(function):
    with pytest.raises(InputError, match="depends on the values of its neighbours"):
        stable.invariant(function, [1, 8], example=drawn(8, 3))


def test_samples_that_read_each_other_are_refused_from_the_first_sample_on():
    """Hundreds of samples are drawn from this one, of its six numbers: they are no codes."""
    one = np.random.default_rng(0).normal(size=(1, 6)).astype(np.float32)
    with pytest.raises(InputError, match="depends on the values of its neighbours"):
        stable.invariant(lambda x: x / np.abs(x).max())[0](one)


@pytest.mark.parametrize("kind", [np.float32, lambda value: np.array(value, np.float32)])
def test_a_number_that_chooses_a_branch_is_asked_about(kind):
    def scaled(x, limit):
        return x / np.abs(x).max() if limit > 1.5 else x * 2

    x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    same, _ = stable.invariant(scaled, batched=(0, None))
    same(x, kind(1))
    with pytest.raises(InputError, match="depends on the values of its neighbours"):
        same(x, kind(2))


def test_what_hides_its_bits_is_said_and_refused_when_strict():
    def hidden(x):
        return np.argmax(x @ W, axis=1)

    _, report = stable.invariant(hidden, [1, 8], example=drawn(8, 33))
    assert "no number of its answers changes" in repr(report)
    with pytest.raises(NotInvariant, match="no number of its answers changes"):
        stable.invariant(hidden, [1, 8], strict=True, example=drawn(8, 33))


def test_samples_stand_along_the_axes_that_are_said():
    def model(state, pair, scale):
        x, w = pair["x"], pair["w"]
        y = Planted()(np.ascontiguousarray(x.T), w) * scale
        rows = np.repeat(y, 3, axis=0)  # three rows of each sample
        return {"y": y[None], "state": state + 1, "rows": rows}

    pair = {"x": drawn(33, 6), "w": W}
    state = drawn(2, 6, 5)
    given = state, pair, np.float32(2)
    made, _ = stable.invariant(
        model, [1, 4, 6], example=given, batched=(1, {"x": 1, "w": None}, None)
    )
    whole = made(*given)
    for count in (1, 3, 5):
        part = made(state[:, :count], {"x": pair["x"][:, :count], "w": W}, np.float32(2))
        assert same(part["y"], whole["y"][:, :count])
        assert same(part["state"], whole["state"][:, :count])
        assert same(part["rows"], whole["rows"][: 3 * count])
    assert same(whole["y"][0], Planted.added(pair["x"].T, W, True) * 2)


def test_another_shape_is_checked_when_it_is_met():
    planted = Planted()
    model, report = stable.invariant(lambda x: planted(x, W[: x.shape[1]]), [1, 8])
    assert "nothing was called yet" in repr(report)
    for width in (33, 20):
        x = drawn(8, width)
        assert same(model(x[:1]), model(x)[:1])
    assert len(report.sizes) == 2


def test_a_table_travels_and_what_it_claims_is_checked(tmp_path):
    path, x = tmp_path / "table.json", drawn(20, 33)
    planted = Planted()
    words = {"sizes": [1, 2, 8, 16], "table": path}
    model, report = stable.invariant(planted.function(), **words, example=x)
    whole, calls = model(x), len(planted.sizes)
    report.save(path)
    planted.sizes.clear()
    model, report = stable.invariant(planted.function(), **words, example=drawn(3, 33, seed=9))
    assert same(model(x[:1]), whole[:1]) and not report.table.notes
    assert len(planted.sizes) < calls / 2
    told = json.loads(path.read_text())
    (entry,) = told["operations"].values()
    (marks,) = entry["marks"].values()
    marks["1"] = marks["2"] = entry["chosen"]  # a class that is claimed but isn't one
    path.write_text(json.dumps(told))
    model, report = stable.invariant(planted.function(), **words, example=x)
    assert all(same(model(x[:n]), whole[:n]) for n in range(1, 21))
    assert any("checked anew" in note for note in report.table.notes)
    ((_, sizes),) = report.sizes.items()
    assert sizes == [8, 16]
    entry["chosen"], told["samples"] = "none of them", dict.fromkeys(told["samples"])
    entry["certified"] = dict.fromkeys(entry["marks"], "certified: by nobody")
    path.write_text(json.dumps(told))
    model, report = stable.invariant(planted.function(), **words, example=x)
    assert same(model(x[:1]), whole[:1]) and not report.rows[0].certified


def test_a_table_from_elsewhere_keeps_its_bits_where_they_are_found(tmp_path):
    path, x = tmp_path / "table.json", drawn(20, 33)
    _, report = stable.invariant(Planted(16).function(), [1, 16], "cheapest", example=x)
    report.save(path)
    told = json.loads(path.read_text())
    told["environment"]["version"] = "0.1"
    path.write_text(json.dumps(told))
    turned = Planted(1).function()  # another release, which adds forwards everywhere
    turned.__qualname__ = Planted(16).function().__qualname__
    model, report = stable.invariant(turned, [1, 16], "cheapest", example=x, table=path)
    assert any("another version" in note for note in report.table.notes)
    assert any("chosen anew" in note for note in report.table.notes)
    assert same(model(x[:1]), model(x)[:1])


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', "no table"])
def test_a_file_that_is_no_table_is_one_line(tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(InputError, match="table=table.json: it is not a table"):
        stable.invariant(Planted().function(), example=drawn(2, 33), table=tmp_path / "table.json")


@pytest.mark.parametrize(
    ("given", "words", "why"),
    [
        ((drawn(2, 33), W), {}, "unknown which carry samples"),
        ((drawn(2, 33),), {"batched": (0, None)}, "has 2 entries"),
        ((drawn(2, 33),), {"batched": (3,)}, "has shape"),
        ((drawn(2, 33),), {"batched": (None,)}, "one number of samples"),
        ((drawn(0, 33),), {}, "at least 1"),
        ((3,), {}, ": not an array"),
        ((drawn(2, 33),), {"sizes": {"length": [3]}}, "padded along batches"),
        ((drawn(2, 33),), {"threads": 2}, "has those of its library"),
        ((drawn(2, 33) + 1j,), {}, "has this format"),
    ],
)
def test_mistakes_are_one_line(given, words, why):
    def function(*args):
        return np.asarray(args[0])

    with pytest.raises(InputError, match=why) as caught:
        stable.invariant(function, **words, example=given)
    assert "\n" not in str(caught.value)


def test_a_state_of_zeros_is_checked_with_numbers():
    """Zeros add alike in every order."""
    planted, x, state = Planted(), drawn(3, 33), np.zeros((3, 33), np.float32)
    model, report = stable.invariant(
        lambda x, state: planted(state), [1, 8], example=(x, state), batched=(0, 0)
    )
    assert list(report.sizes.values()) == [[8]]
    given = drawn(8, 33)
    assert same(model(x[:1], given[:1]), model(np.resize(x, (8, 33)), given)[:1])


def test_what_never_repeats_is_refused():
    drawn_now = np.random.default_rng(3)
    with pytest.raises(InputError, match="two runs of the same"):
        stable.invariant(
            lambda x: x + drawn_now.standard_normal(x.shape), [1, 4], example=drawn(4, 3)
        )


def test_a_program_is_given_arrays_that_begin_where_a_vector_does():
    """A sample of a batch begins anywhere, and MKL's order depends on that."""
    met = []

    def function(x, w):
        met.extend(one.__array_interface__["data"][0] % 64 for one in (x, w))
        return Planted()(x, w)

    w = np.concatenate([W[:1], W])[1:]
    model, _ = stable.invariant(function, [1, 4], batched=(0, None), example=(drawn(4, 33), w))
    met.clear()  # the first call found out whose arrays these are
    file = _File(lambda x, w: [function(x, w)], {"x": 0}, "planted", ["x", "w"])
    other = SameBitsProgram(file, {"batch": (1, 4)}, "largest", False, None)
    x = drawn(9, 33)
    for part in (x[1:2], x[1:5], x[3:], x[1:2], x[1:5]):  # those of a file are known at last
        assert same(model(part, w), other(part, w)[0])
    assert len(met) > 20 and not any(met)


def test_samples_of_a_compiled_module_are_aligned():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from probe.invariant.programs import TorchProgram

    def compiled(x):
        return x

    compiled._torchdynamo_orig_callable = compiled  # what it is known by; to compile takes seconds
    program, x = TorchProgram(compiled), torch.randn(40, 33)
    for axis in (0, None):
        found = [program.whole(x[row : row + 1], axis) for row in range(40)]
        assert not any(one.data_ptr() % 64 for one in found)
        assert all(torch.equal(one, x[row : row + 1]) for row, one in enumerate(found))


def test_many_sizes_become_powers_of_two():
    assert ladder(range(1, 65)) == (1, 2, 4, 8, 16, 32, 64)
    assert ladder(range(20, 51)) == (16, 32, 50)
    assert ladder([3, 1, 7]) == (1, 3, 7) and ladder(range(99), fixed=8) == (8,)


def test_the_plan_of_least_time_holds_every_sample_once():
    for seconds in ({1: 1, 4: 2, 16: 3}, {1: 1, 4: 9, 16: 99}):
        made = Buckets(Timed(dict.fromkeys((1, 4, 16), "alike")), Entry("alike"), 1, (1, 4, 16))
        made._seconds = dict(seconds)
        for count in range(1, 70):
            plan = made.plan(count)
            assert [one.start for one in plan] == [
                sum(one.places for one in plan[:n]) for n in range(len(plan))
            ]
            assert sum(one.places for one in plan) == count
            assert all(one.places == one.size for one in plan[:-1])
        assert {one.size for one in made.plan(15)} == ({16} if seconds[16] == 3 else {1})


# libraries


def product(batch="batch"):
    """An ONNX file of a matrix product and a function that rounds nothing."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper, floating = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", floating, [batch, 33])],
        [helper.make_tensor_value_info("y", floating, [batch, 12])],
        [onnx.numpy_helper.from_array(W, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


def held(model, x, part=lambda y: y):
    """Whether samples keep their bits in smaller batches, at other places, and in larger ones."""
    whole = part(model(x))
    for count in (1, 2, 3, 5, len(x) - 1):
        assert same(part(model(x[-count:])), whole[-count:]), count
    turned = np.random.default_rng(2).permutation(len(x))
    assert same(part(model(x[turned])), whole[turned])
    return whole


def test_an_onnx_file_keeps_its_largest_bits_and_is_certified(tmp_path):
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
    (told,) = report.certify().values()
    assert told.startswith(("certified: all outputs of sizes", "not certified: "))
    assert report.rows[0].certified == told
    model, _ = stable.invariant(plain, [1, 8], example={"x": x})
    held(model, x, lambda y: y[0])


def test_an_onnx_file_of_one_batch_is_padded_to_it():
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    model, report = stable.invariant(product(4), range(1, 9), example=drawn(3, 33))
    held(model, drawn(11, 33), lambda y: y[0])
    assert list(report.sizes.values()) == [[4]]
    (told,) = report.certify().values()
    assert told.startswith("not certified: ")


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


def test_a_net_of_opencv_keeps_its_bits():
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    net = cv2.dnn.readNetFromONNX(np.frombuffer(product(), np.uint8))
    model, _ = stable.invariant(net, [1, 2, 8], example=drawn(3, 33))
    held(model, drawn(9, 33), lambda y: y[0])


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
    (told,) = report.certify().values()
    assert told.startswith("not certified: operations of a compiled program")


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


def test_a_program_of_jax_inside_of_another_is_refused():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    model, _ = stable.invariant(lambda x: jax.numpy.tanh(x @ W), [1, 4], example=drawn(4, 33))
    with pytest.raises(InputError, match="inputs=a traced array"):
        jax.jit(lambda x: model(x) * 2)(drawn(4, 33))


def test_bfloat16_of_jax_keeps_its_bits():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    half = jax.numpy.bfloat16
    x, w = jax.numpy.asarray(drawn(5, 33), half), jax.numpy.asarray(W, half)
    model, _ = stable.invariant(lambda x: x @ w, [1, 4], example=x)
    whole = model(x)
    assert whole.dtype == half and whole.shape == (5, 12)
    assert bool((whole[:3] == model(x[:3])).all())


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
def test_a_function_and_a_saved_model_of_tensorflow_keep_their_bits(tmp_path):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    w = tensorflow.constant(W)

    class Layer(tensorflow.Module):
        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, 33])])
        def call(self, x):
            return {"y": tensorflow.nn.gelu(x @ w)}

    layer, x = Layer(), drawn(9, 33)
    tensorflow.saved_model.save(layer, str(tmp_path), signatures=layer.call)
    for given in (tensorflow.function(lambda x: layer.call(x)), tmp_path):
        model, report = stable.invariant(given, [1, 2, 8], example=x[:3])
        tensors = [tensorflow.constant(x[:n]) for n in (2, 9)]
        assert same(model(tensors[0])["y"].numpy(), model(tensors[1])["y"].numpy()[:2])
        held(model, x, lambda y: y["y"].numpy())
        (told,) = report.certify().values()
        assert told.startswith(("certified", "not certified"))


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


def test_whole_programs_need_no_pytorch():
    """What is imported at the top of these files is NumPy and this project."""
    for name in ("whole", "files", "programs", "classes", "samples"):
        found = vars(import_module(f"probe.invariant.{name}"))
        assert not {"torch", "jax", "tensorflow", "onnxruntime"} & set(found), name
