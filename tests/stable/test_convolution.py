"""The prefix-stable convolution: its bits, on every prefix and in every mode; its gradients."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probe import Case, stable
from probe.launch import InlineSession
from probe.target import Target
from probe.ulp import equal
from tests.convolutions import cases

pytestmark = pytest.mark.long

LIBRARIES = ("tensorflow", "torch")


@pytest.fixture(scope="module")
def reference():
    with InlineSession(Target.parse("reference")) as session:
        yield session


class Library:
    """One library: a case's container operands to its tensors and back."""

    def __init__(self, name):
        self.name, self.library = name, pytest.importorskip(name)

    def tensor(self, array, dtype):
        if self.name == "tensorflow":
            made = self.library.constant(array)
            return self.library.bitcast(made, dtype) if dtype == "bfloat16" else made
        array = np.array(array, order="C")
        if dtype == "bfloat16":
            return self.library.from_numpy(array.view(np.int16)).view(self.library.bfloat16)
        return self.library.from_numpy(array)

    def array(self, y, dtype):
        if self.name == "tensorflow":
            return (self.library.bitcast(y, "uint16") if dtype == "bfloat16" else y).numpy()
        if dtype == "bfloat16":
            return y.contiguous().view(self.library.int16).numpy().view(np.uint16)
        return y.detach().numpy()

    def operands(self, case):
        x, w, b = case.operands()
        if self.name == "torch":
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
        return [None if one is None else self.tensor(one, case.dtype) for one in (x, w, b)]

    def conv(self, case, x, w, b, **more):
        return stable.conv(x, w, b, **words(case), **more)

    def run(self, case, **more):
        """Container outputs, channels last."""
        y = self.array(self.conv(case, *self.operands(case), **more), case.dtype)
        return np.moveaxis(y, 1, -1) if self.name == "torch" else y


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request):
    return Library(request.param)


def words(case):
    pads = case.padding if isinstance(case.padding, str) else list(case.padding)
    names = ("stride", "dilation", "groups")
    return {name: getattr(case, name) for name in names} | {"padding": pads}


def referred(session, case):
    x, w, b = case.operands()
    arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
    return session.request({"do": "run", "spec": case.spec()}, arrays)[1]["y"]


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_the_bits_are_the_references(library, reference, case):
    assert equal(library.run(case), referred(reference, case), case.dtype)


@settings(max_examples=40, deadline=None)
@given(case=cases(), longer=st.integers(1, 9), wide=st.booleans())
def test_outputs_of_a_prefix_are_the_prefix_of_the_outputs(library, case, longer, wide):
    """Wherever the zeros before the input are the same; outputs that read zeros behind it aside."""
    long = case.with_(length=case.length + longer)
    axis = case.spatial_rank - 1
    extent, step = case.effective_kernel[axis], case.stride[axis]
    before = case.pads()[axis][0]
    assume(before == long.pads()[axis][0])
    count = max((case.length + before - extent) // step + 1, 0)
    more = {}
    if wide and case.dtype != "float64":
        more = {"accumulate": "float64"}
    short, whole = library.run(case, **more), library.run(long, **more)
    assert equal(short[..., :count, :], whole[..., :count, :], case.dtype)


@pytest.mark.parametrize("accumulate", [None, "float64"])
@pytest.mark.slow_at("None")
def test_a_tf_function_gives_the_eager_bits(accumulate):
    """Also where its shapes are known, which makes TensorFlow rewrite chains of additions."""
    library = Library("tensorflow")
    tf, case = library.library, Case("conv1d", 5, 16, 8, 24, bias="normal")
    x, w, b = library.operands(case)
    eager = library.conv(case, x, w, b, accumulate=accumulate).numpy()
    for shape in ([1, 24, 16], [None, None, 16]):
        traced = tf.function(
            lambda x: library.conv(case, x, w, b, accumulate=accumulate),
            input_signature=[tf.TensorSpec(shape)],
        )
        assert equal(traced(x).numpy(), eager, "float32")


def test_in_float64_a_compiler_moves_no_bit():
    """XLA fuses multiplications with additions; products of float32 are exact in float64."""
    library = Library("tensorflow")
    case = Case("conv1d", 3, 16, 8, 24)
    x, w, b = library.operands(case)

    def run(x):
        return library.conv(case, x, w, b, accumulate="float64")

    compiled = library.library.function(run, jit_compile=True)
    assert equal(compiled(x).numpy(), run(x).numpy(), "float32")


def test_libraries_agree_in_float64_too():
    case = Case("conv2d", "3x4", 6, 4, 11, height=5, groups=2, stride=(2, 1), padding="same")
    one, other = (Library(name).run(case, accumulate="float64") for name in LIBRARIES)
    assert equal(one, other, "float32")


def own_gradients(library, case, **more):
    """(input gradient, channels last; weight gradient, as the library has it) of sum(y * y)."""
    x, w, _ = library.operands(case)
    if library.name == "tensorflow":
        with library.library.GradientTape() as tape:
            tape.watch([x, w])
            y = library.conv(case, x, w, None, **more)
            total = library.library.reduce_sum(y * y)
        dx, dw = tape.gradient(total, [x, w])
        return dx.numpy(), dw.numpy()
    x.requires_grad_()
    w.requires_grad_()
    y = library.conv(case, x, w, None, **more)
    (y * y).sum().backward()
    return np.moveaxis(x.grad.numpy(), 1, -1), np.moveaxis(w.grad.numpy(), (0, 1), (-1, -2))


def plain_gradients(case):
    """The same by PyTorch's own convolution."""
    torch = pytest.importorskip("torch")
    x, w, _ = Library("torch").operands(case)
    x.requires_grad_()
    w.requires_grad_()
    padded = torch.nn.functional.pad(x, [zeros for pair in case.pads()[::-1] for zeros in pair])
    convolve = getattr(torch.nn.functional, f"conv{case.spatial_rank}d")
    y = convolve(padded, w, None, case.stride, 0, case.dilation, case.groups)
    (y * y).sum().backward()
    return np.moveaxis(x.grad.numpy(), 1, -1), np.moveaxis(w.grad.numpy(), (0, 1), (-1, -2))


@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_gradients_are_those_of_the_librarys_convolution(library, case):
    """Up to the rounding of sums of at most a few thousand float64 terms."""
    case = case.with_(dtype="float64", bias=None)
    pairs = zip(own_gradients(library, case), plain_gradients(case), strict=True)
    for own, plain in pairs:
        np.testing.assert_allclose(own, plain, rtol=1e-9, atol=1e-9)


def test_gradients_of_gradients():
    torch = pytest.importorskip("torch")
    library = Library("torch")
    case = Case("conv1d", 3, 4, 2, 9, stride=2, groups=2, padding="same", dtype="float64")
    x, w, _ = (one if one is None else one.requires_grad_() for one in library.operands(case))
    assert torch.autograd.gradgradcheck(lambda x, w: library.conv(case, x, w, None), (x, w))


def test_input_gradients_are_prefix_stable(library):
    case = Case("conv1d", 5, 8, 16, 40)
    whole = own_gradients(library, case)[0]
    for length in (9, 10, 17, 33):
        mine = own_gradients(library, case.with_(length=length))[0]
        inside = length - 4  # the last four are read by outputs that a shorter input has not
        assert equal(mine[:, :inside], whole[:, :inside], "float32")


def test_torch_modules_keep_their_state_and_are_stable():
    torch = pytest.importorskip("torch")
    from probe.stable import torch_modules

    parts = torch.nn.Conv1d(3, 6, 5), torch.nn.ReLU(), torch.nn.Conv1d(6, 4, 3, groups=2)
    model = torch.nn.Sequential(*parts)
    made = torch_modules.stabilized(model, accumulate="float64")
    assert made.state_dict().keys() == model.state_dict().keys()
    x = torch.randn(1, 3, 60)
    torch.testing.assert_close(made(x), model(x))
    whole = made(x)
    for length in (7, 8, 13, 29):
        assert torch.equal(made(x[:, :, :length]), whole[:, :, : length - 6])


def test_keras_layers_keep_their_weights_and_are_stable():
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the layers are TensorFlow's")
    from probe.stable import keras_layers

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((None, 3)),
            layers.Conv1D(6, 5, padding="causal", activation="relu"),
            layers.MaxPooling1D(2),
            layers.DepthwiseConv1D(3, depth_multiplier=2),
            layers.Conv1D(4, 3, groups=2),
        ]
    )
    made = keras_layers.stabilized(model)
    x = np.random.default_rng(0).standard_normal((1, 60, 3)).astype(np.float32)
    np.testing.assert_allclose(made(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
    whole = made.predict(x, verbose=0)
    for length in (10, 14, 32):
        short = made.predict(x[:, :length], verbose=0)
        assert equal(short, whole[:, : length // 2 - 4], "float32")
    made.compile("sgd", "mse")
    assert np.isfinite(made.train_on_batch(x, whole))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"groups": 2}, "groups=2: must divide"),
        ({"stride": 0}, "stride=0: "),
        ({"padding": "full"}, "padding=full: it takes valid"),
        ({"accumulate": "float16"}, "accumulate=float16: not wide enough"),
    ],
)
def test_wrong_words_are_told(library, changed, said):
    x, w, b = library.operands(Case("conv1d", 3, 1, 3, 8))
    with pytest.raises(ValueError, match=said):
        stable.conv(x, w, b, **changed)


def test_other_arrays_are_refused():
    with pytest.raises(ValueError, match=r"x=numpy.ndarray: no library of ours"):
        stable.conv(np.zeros((1, 8, 1)), np.zeros((3, 1, 1)))
