"""The prefix-stable convolution: its bits, on every prefix and in every mode; its gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probe import Case
from probe.case.ulp import equal
from probe.sizes import stable
from probe.targets.launch import InlineSession
from probe.targets.target import Target
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


@settings(max_examples=30, deadline=None)
@given(case=cases())
def test_the_bits_are_the_references(library, reference, case):
    assert equal(library.run(case), referred(reference, case), case.dtype)


@settings(max_examples=20, deadline=None)
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


def gradients(library, function, x, w):
    """Those of sum(y * y) with respect to x and w, as the library has them."""
    if library.name == "tensorflow":
        with library.library.GradientTape() as tape:
            tape.watch([x, w])
            total = library.library.reduce_sum(function(x, w) ** 2)
        return [one.numpy() for one in tape.gradient(total, [x, w])]
    x.requires_grad_()
    w.requires_grad_()
    (function(x, w) ** 2).sum().backward()
    return [one.grad.numpy() for one in (x, w)]


def own_gradients(library, case, convolve=None):
    """Of x and w, channels last, by the stable convolution or another one."""
    convolve = convolve or (lambda x, w: library.conv(case, x, w, None))
    dx, dw = gradients(library, convolve, *library.operands(case)[:2])
    if library.name == "torch":
        dx, dw = np.moveaxis(dx, 1, -1), np.moveaxis(dw, (0, 1), (-1, -2))
    return dx, dw


def plain_gradients(case):
    """The same by PyTorch's own convolution."""
    library = Library("torch")
    functional = library.library.nn.functional

    def convolve(x, w):
        padded = functional.pad(x, [zeros for pair in case.pads()[::-1] for zeros in pair])
        conv = getattr(functional, f"conv{case.spatial_rank}d")
        return conv(padded, w, None, case.stride, 0, case.dilation, case.groups)

    return own_gradients(library, case, convolve)


@settings(max_examples=8, deadline=None)
@given(case=cases())
@pytest.mark.slow_at("tensorflow")
def test_gradients_are_those_of_the_librarys_convolution(library, case):
    """Up to the rounding of sums of at most a few thousand float64 terms."""
    case = case.with_(dtype="float64", bias=None)
    pairs = zip(own_gradients(library, case), plain_gradients(case), strict=True)
    for own, plain in pairs:
        np.testing.assert_allclose(own, plain, rtol=1e-9, atol=1e-9)


def test_input_gradients_are_prefix_stable(library):
    case = Case("conv1d", 5, 8, 16, 40)
    whole = own_gradients(library, case)[0]
    for length in (9, 10, 17, 33):
        mine = own_gradients(library, case.with_(length=length))[0]
        inside = length - 4  # the last four are read by outputs that a shorter input has not
        assert equal(mine[:, :inside], whole[:, :inside], "float32")


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


ROWS = (1, 2, 5, 16, 17, 31)


def tensors(library, x, w, b=None):
    w = w.T if library.name == "torch" else w
    return tuple(None if one is None else library.tensor(one, "float32") for one in (x, w, b))


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
    x, w = drawn(33, 20), drawn(20, 7, seed=1)

    def of_rows(rows):
        return gradients(library, stable.dense, *tensors(library, x[:rows], w)[:2])

    dx, dw = of_rows(33)
    y = x.astype(float) @ w
    np.testing.assert_allclose(dx, 2 * y @ w.T, rtol=1e-3, atol=1e-3)
    dw = dw.T if library.name == "torch" else dw
    np.testing.assert_allclose(dw, 2 * x.T @ y, rtol=1e-3, atol=1e-3)
    for rows in ROWS:
        assert equal(of_rows(rows)[0], dx[:rows], "float32")


def test_gradients_of_gradients():
    torch = pytest.importorskip("torch")
    conv = stable.torch_conv

    library = Library("torch")
    case = Case("conv1d", 3, 4, 2, 9, stride=2, groups=2, padding="same", dtype="float64")
    x, w, _ = (one if one is None else one.requires_grad_() for one in library.operands(case))
    assert torch.autograd.gradgradcheck(lambda x, w: conv(x, w, None, **words(case)), (x, w))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [[1, 24, 16], [None, None, 16]], ids=["known", "open"])
def test_a_tf_function_gives_the_eager_bits(shape):
    """Also where its shapes are known, which makes TensorFlow rewrite chains of additions."""
    library = Library("tensorflow")
    conv = stable.tensorflow_conv
    tf, case = library.library, Case("conv1d", 5, 16, 8, 24, bias="normal")
    x, w, b = library.operands(case)
    eager = conv(x, w, b, **words(case)).numpy()
    traced = tf.function(
        lambda x: conv(x, w, b, **words(case)), input_signature=[tf.TensorSpec(shape)]
    )
    assert equal(traced(x).numpy(), eager, "float32")


@pytest.mark.slow
def test_in_float64_a_compiler_moves_no_bit():
    """XLA fuses multiplications with additions; products of float32 are exact in float64."""
    library = Library("tensorflow")
    case = Case("conv1d", 3, 16, 8, 24)
    x, w, b = library.operands(case)

    def run(x):
        return library.conv(case, x, w, b, accumulate="float64")

    compiled = library.library.function(run, jit_compile=True)
    assert equal(compiled(x).numpy(), run(x).numpy(), "float32")
