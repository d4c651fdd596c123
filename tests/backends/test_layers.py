"""LiteRT, OpenCV and ONNX Runtime run a network as one program, with its layers' numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from probe import Target, arguments, ulp
from probe.activations import ACTIVATIONS
from probe.backends import conformance
from probe.backends.layers import numpy_function
from probe.case import Case
from probe.invariant.mitigations import RemediedSession, remedies_of
from probe.launch import InlineSession

pytestmark = pytest.mark.long

TARGETS = ("litert", "litert,xnnpack=0", "opencv", "onnxruntime", "openvino,precision=f32")
LAYERS = {
    "same, dilated, fused": [
        {"op": "conv2d", "kernel": "3x4", "filters": 6, "padding": "same", "dilation": "1x2"},
        {"op": "activation", "activation": "relu6"},
        {"op": "max_pool2d", "kernel": "2x3", "stride": "1x2", "padding": "same"},
        {"op": "activation", "activation": "relu"},
    ],
    "groups, uneven padding, bias": [
        {"op": "conv2d", "kernel": "2x3", "filters": 6, "groups": 2, "padding": "0:1,2:0"},
        {"op": "bias"},
        {"op": "activation", "activation": "relu"},
        {"op": "depthwise_conv2d", "kernel": "3x3", "filters": 12, "stride": "2x2", "padding": 1},
    ],
    "ceil mode, constants around": [
        {"op": "max_pool2d", "kernel": "2x3", "stride": "2x3", "ceil_mode": True},
        {"op": "pad", "padding": "1:0,0:2", "parameters": {"value": 0.5}},
        {"op": "normalisation"},
        {"op": "avg_pool2d", "kernel": "2x2", "stride": "1x1"},
    ],
    "products": [
        {"op": "dense", "filters": 5, "bias": True},
        {"op": "activation", "activation": "relu"},
        {"op": "dense", "filters": 3},
        {"op": "conv2d", "kernel": "1x3", "filters": 2, "padding": "0:0,0:2", "bias": True},
    ],
}


class Program:
    """Layers as requests say them, over spatial sizes before the length; weights are drawn.

    ``turned``: the length is the model's first axis.
    """

    def __init__(self, layers, height=(), in_channels=4, dtype="float32", turned=False, own=()):
        self.height, self.in_channels, self.dtype = height, in_channels, dtype
        self.specs, self.arrays, channels = [], {}, in_channels
        for number, words in enumerate(layers):
            spec, arrays, channels = self.layer(number, dict(words), channels)
            product = spec["op"] in ("matmul", "dense")
            self.specs.append(spec | ({"turned": True} if turned and not product else {}))
            self.arrays |= {f"{number}.{name}": array for name, array in arrays.items()}
        self.arrays |= dict(own)

    def layer(self, number, words, channels):
        op, random = words.pop("op"), np.random.default_rng(number)

        def drawn(*shape, scale=0.3):
            return (scale * random.standard_normal(shape)).astype(self.dtype)

        arrays = {name: words.pop(name) for name in ("tail",) if name in words}
        if op in ("bias", "normalisation"):
            names = ("b",) if op == "bias" else ("scale", "shift")
            arrays = {name: (name == "scale") + drawn(channels) for name in names}
        if op == "pad":
            pairs = arguments.padding(words.pop("padding"), len(self.height) + 1)
            words["padding"] = [list(pair) for pair in pairs]
        if op in ("bias", "normalisation", "pad", "activation", "extend"):
            plain = {"op": op, "dtype": self.dtype, "channels": channels, "parameters": {}}
            return plain | words, arrays, channels
        kernel = words.pop("kernel", None)
        if "pool" in op:
            words = {"stride": kernel, "pad_with": "nothing"} | words
        words |= {"bias": "normal"} if words.get("bias") else {}
        op = "matmul" if op == "dense" else op
        case = Case(op, kernel, in_channels=channels, dtype=self.dtype, **words)
        if case.pool:
            return case.spec(), {"w": np.ones(case.weight_shape, self.dtype)}, case.filters
        arrays = {"w": drawn(*case.weight_shape)}
        arrays |= {"b": drawn(case.filters)} if case.bias else {}
        return case.spec(), arrays, case.filters

    def on(self, session):
        """Sends it, and returns what asks for it: f(do, x, ...) gives header and arrays."""
        key = f"program-{next(KEYS)}"
        session.request({"do": "network", "key": key, "specs": self.specs}, self.arrays)
        return lambda do, x, **more: session.request({"do": do, "key": key, **more}, {"x": x})

    def layers(self, session, x):
        """Returns what comes out behind the last layer, one layer after the other."""
        return self.on(session)("through", x, only_last=True)[1]["y0"]

    def whole(self, session, x, times=1):
        """Returns the output of the program, seconds, and why there is none."""
        header, found = self.on(session)("whole", x, times=times, layout="contiguous")
        return found.get("y"), header.get("seconds", []), header["why"]

    def content(self, length):
        shape = (1, *self.height, length, self.in_channels)
        return np.random.default_rng(9).standard_normal(shape).astype(self.dtype)


KEYS = itertools.count()


def described(layers, **words):
    """A program over a height of 4."""
    return Program(layers, (4,), **words)


def agree(session, network, length, tolerance=2e-6):
    """Whether the program gives the layers' numbers, and they NumPy's; both are returned."""
    x = network.content(length)
    whole, seconds, why = network.whole(session, x, 3)
    assert whole is not None, why
    assert len(seconds) == 3 and whole.flags.c_contiguous and why == ""
    with InlineSession(Target.parse("reference")) as exact:
        truth = network.layers(exact, x)
    layers = network.layers(session, x)
    np.testing.assert_allclose(whole, truth, rtol=10 * tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(whole, layers, rtol=10 * tolerance, atol=10 * tolerance)
    return whole, layers


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("text", TARGETS)
def test_a_program_gives_the_numbers_of_its_layers(started, text, layers):
    network = described(layers)
    for length in (11, 24):
        agree(started(text), network, length)


@pytest.mark.parametrize("text", TARGETS)
def test_a_program_has_the_models_own_axes(started, text):
    layers = LAYERS["groups, uneven padding, bias"]
    plain, turned = described(layers), described(layers, turned=True)
    whole, _ = agree(started(text), turned, 13)
    assert whole.shape == agree(started(text), plain, 13)[0].shape


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("text", TARGETS)
def test_an_activation_is_the_librarys_own(started, text, activation):
    for alpha in (1.0, 0.25) if activation in ("elu", "leaky_relu") else (1.0,):
        words = {"activation": activation, "parameters": {"alpha": alpha}}
        network = Program([{"op": "activation", **words}], in_channels=5)
        x = 3 * network.content(23)
        truth = numpy_function(network.specs[0], {})(x.astype(float))
        whole, _, _ = network.whole(started(text), x)
        np.testing.assert_allclose(whole, truth, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("axis", ["last", "first"])
@pytest.mark.parametrize("text", TARGETS)
def test_extend_keeps_the_first_positions_and_puts_constants_behind(started, text, axis):
    turned = axis == "first"
    pool = {"op": "max_pool2d", "kernel": "1x2", "stride": "1x2"}
    tail = np.arange(48, dtype=np.float32).reshape(1, 4, 3, 4)
    for kept, behind in ((5, tail), (7, tail), (2, tail[..., :0, :]), (7, tail[..., :0, :])):
        extend = {"op": "extend", "kept": kept, "behind": behind.shape[-2], "tail": behind}
        agree(started(text), described([pool, extend, pool], turned=turned), 14)
        alone = described([extend], turned=turned)
        whole, _, _ = alone.whole(started(text), x := alone.content(7))
        assert (whole == np.concatenate([x[..., :kept, :], behind], axis=-2)).all()


@pytest.mark.parametrize("text", TARGETS)
def test_one_and_three_spatial_axes(started, text):
    one = [
        {"op": "conv1d", "kernel": 4, "filters": 6, "padding": "2:0", "stride": 2},
        {"op": "activation", "activation": "relu"},
        {"op": "avg_pool1d", "kernel": 2},
        {"op": "dense", "filters": 3, "bias": True},
    ]
    agree(started(text), Program(one, in_channels=3), 21)
    three = [
        {"op": "conv3d", "kernel": "2x2x3", "filters": 4, "bias": True, "padding": "same"},
        {"op": "activation", "activation": "elu"},
        {"op": "dense", "filters": 2},
    ]
    agree(started(text), Program(three, (3, 2), 2), 9)


@pytest.mark.parametrize("shape", [(1, 9, 4), (1, 3, 9, 4)], ids=["one axis", "two axes"])
@pytest.mark.parametrize("text", TARGETS)
def test_a_program_reads_values_again(started, text, shape):
    """A value that is read again is not clamped in the operator that makes it."""
    session, rank = started(text), len(shape) - 2
    conv = conformance.spec(f"conv{rank}d", [3] * rank, padding="same", in_channels=4, filters=4)
    plain = {"dtype": "float32", "parameters": {}}
    relu = plain | {"op": "activation", "activation": "relu"}
    rest = [relu, *(plain | {"op": op, "axis": rank} for op in ("add", "multiply", "concat"))]
    reads = [[0], [1], [1, 2], [3, 0], [4, 1]]
    random = np.random.default_rng(5)
    x, w = (random.standard_normal(one, np.float32) for one in (shape, (*[3] * rank, 4, 4)))
    named = {"key": "again", "specs": [conv, *rest], "reads": reads}
    session.request({"do": "network"} | named, {"0.w": w})
    whole = session.request({"do": "whole", "key": "again", "times": 1}, {"x": x})[1]["y"]
    layers = session.request({"do": "through", "key": "again"}, {"x": x})[1]["y4"]
    assert whole.shape == (*shape[:-2], 2 * shape[-2], 4)
    np.testing.assert_allclose(whole, layers, rtol=2e-6, atol=2e-6)


def test_float16_is_literts(started):
    layers = LAYERS["products"][:3] + LAYERS["groups, uneven padding, bias"][1:3]
    agree(started("litert"), described(layers, dtype="float16"), 11, 1e-3)


def test_a_fused_activation_changes_no_bit_of_literts_convolution(started):
    layers = LAYERS["same, dilated, fused"][:2]
    for text in ("litert", "litert,xnnpack=0"):
        for length in (5, 13, 40):
            whole, layerwise = agree(started(text), described(layers), length)
            assert ulp.equal(whole, layerwise, "float32")


def test_opencv_multiplies_a_scale_into_the_weights_before_it(started):
    conv = {"op": "conv1d", "kernel": 3, "filters": 8, "bias": True}
    network = Program([conv, {"op": "normalisation"}], in_channels=8)
    whole, layerwise = agree(started("opencv"), network, 105)
    w, b, scale, shift = (network.arrays[n] for n in ("0.w", "0.b", "1.scale", "1.shift"))
    own = {"0.w": w * scale, "0.b": b * scale + shift}
    folded = Program([conv], in_channels=8, own=own.items())
    x = network.content(105)
    assert not ulp.equal(whole, layerwise, "float32")
    assert ulp.equal(whole, folded.layers(started("opencv"), x), "float32")


REFUSED = [
    ("opencv", "float64", [], "dtype=float64"),
    ("opencv", "float32", [{"op": "avg_pool2d", "kernel": 2, "padding": 1}], "average counts"),
    ("litert", "float64", [], "dtype=float64"),
    ("reference", "float32", [], "no program of a whole network"),
]


@pytest.mark.parametrize(("text", "dtype", "layers", "why"), REFUSED)
def test_where_there_is_no_program_the_user_is_told_why(started, text, dtype, layers, why):
    network = described([{"op": "bias"}, *layers], dtype=dtype)
    found, seconds, said = network.whole(started(text), network.content(9))
    assert found is None and not seconds and why in said


@pytest.mark.parametrize("text", TARGETS)
def test_operators_with_a_remedy_stand_between_programs(started, text):
    chunks = next(one for one in remedies_of(Target.parse(text), [4]) if one.name == "chunks=4")
    session = RemediedSession(started(text), chunks.spec, True)
    for words in ({}, {"turned": True}):
        network = described(LAYERS["groups, uneven padding, bias"], **words)
        agree(session, network, 17)
    flat = [{"op": "conv1d", "kernel": 3, "filters": 4}, {"op": "activation", "activation": "tanh"}]
    agree(session, Program(flat * 2), 17)


SLOW = ("tensorflow", "tensorflow,mode=graph", "keras", "jax")


@pytest.mark.parametrize(
    "text",
    [
        *("torch", "numpy", "onnxruntime", "openvino,precision=f32"),
        *(pytest.param(text, marks=pytest.mark.slow) for text in SLOW),
    ],
)
def test_activations_are_multiplied_with_each_other(started, text):
    """Rows of positions by rows of positions, as attention has them, and what goes around."""
    session, random = started(text), np.random.default_rng(3)
    plain = {"dtype": "float32", "parameters": {}}
    rows = Case("matmul", in_channels=4, filters=4).spec()
    specs = [
        rows,
        plain | {"op": "activation", "activation": "relu", "channels": 4},
        plain | {"op": "add"},
        plain | {"op": "product", "transposed": True},
        plain | {"op": "product", "transposed": False},
        plain | {"op": "concat", "axis": 2},
    ]
    reads = [[0], [1], [2, 0], [3, 1], [4, 3], [5, 0]]
    w, x = (random.integers(-3, 4, shape).astype("f4") for shape in ((1, 4, 4), (1, 7, 4)))
    named = {"key": "attention", "specs": specs, "reads": reads}
    session.request({"do": "network", **named}, {"0.w": w})
    keys = x @ w[0]
    summed = np.maximum(keys, 0) + x
    expected = np.concatenate([summed @ keys.swapaxes(1, 2) @ summed, x], 2)
    _, layers = session.request({"do": "through", "key": "attention"}, {"x": x})
    _, whole = session.request({"do": "whole", "key": "attention"}, {"x": x})
    assert (layers["y5"] == expected).all() and (whole["y"] == expected).all()
