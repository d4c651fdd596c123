"""LiteRT, OpenCV and ONNX Runtime run a network as one program, with its layers' numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lib.chains.chain import Layer
from lib.chains.comparison import Comparer
from lib.chains.description import from_json
from lib.chains.running import Runner, content
from probe import Target, backends, ulp
from probe.activations import ACTIVATIONS
from probe.backends import caffe, conformance, elementwise
from probe.case import Case
from probe.invariant.mitigated_cases import RemediedSession
from probe.invariant.mitigations import candidates
from probe.launch import InlineSession

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


def described(layers, **words):
    """A network over a height of 4."""
    return from_json({"rank": 2, "height": [4], "in_channels": 4, "layers": layers, **words})


def agree(session, network, length, tolerance=2e-6):
    """Whether the program gives the layers' numbers, and they NumPy's; both are returned."""
    runner, x = Runner(session, network), content(network, length)
    whole, seconds = runner.end_to_end(x, 3)
    assert whole is not None, runner.no_program
    assert len(seconds) == 3 and whole.flags.c_contiguous and runner.no_program == ""
    with InlineSession(Target.parse("reference")) as exact:
        truth = Runner(exact, network).output(x)
    layers = runner.output(x)
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
        network = from_json({"in_channels": 5, "layers": [{"op": "activation", **words}]})
        x = 3 * content(network, 23)
        truth = elementwise.function(network.layers[0].spec("float32"), {})(x.astype(float))
        whole, _ = Runner(started(text), network).end_to_end(x)
        np.testing.assert_allclose(whole, truth, rtol=3e-6, atol=3e-6)


IMPORTS = {
    "opencv": "import cv2",
    "litert": "import base64\nfrom ai_edge_litert.interpreter import Interpreter, OpResolverType",
}


def imports(target):
    """What a script of a target has before its functions."""
    before = [IMPORTS.get(target.name, "")]
    if target.name not in IMPORTS:
        backend = backends.get(target.name)().described(dict(target.switches), "cpu", "")
        before = [*backend.imports, *backend.setup()]
    return "\n".join(["import numpy as np", *before, ""])


@pytest.mark.parametrize("axis", ["last", "first"])
@pytest.mark.parametrize("text", TARGETS)
def test_extend_keeps_the_first_positions_and_puts_constants_behind(started, text, axis):
    network = described(
        [{"op": "max_pool2d", "kernel": "1x2", "stride": "1x2"}], turned=axis == "first"
    )
    pool = network.layers[0]
    tail = np.arange(48, dtype=np.float32).reshape(1, 4, 3, 4)
    for kept, behind in ((5, tail), (7, tail), (2, tail[..., :0, :]), (7, tail[..., :0, :])):
        extend = Layer("extend", "extend", 4, 4, tail=behind, kept=kept)
        longer = network.with_(layers=(pool, extend, pool))
        agree(started(text), longer, 14)
        alone = network.with_(layers=(extend,))
        whole, _ = Runner(started(text), alone).end_to_end(x := content(alone, 7))
        assert (whole == np.concatenate([x[..., :kept, :], behind], axis=-2)).all()


@pytest.mark.parametrize("text", TARGETS)
def test_one_and_three_spatial_axes(started, text):
    one = [
        {"op": "conv1d", "kernel": 4, "filters": 6, "padding": "2:0", "stride": 2},
        {"op": "activation", "activation": "relu"},
        {"op": "avg_pool1d", "kernel": 2},
        {"op": "dense", "filters": 3, "bias": True},
    ]
    agree(started(text), from_json({"in_channels": 3, "layers": one}), 21)
    three = [
        {"op": "conv3d", "kernel": "2x2x3", "filters": 4, "bias": True, "padding": "same"},
        {"op": "activation", "activation": "elu"},
        {"op": "dense", "filters": 2},
    ]
    words = {"rank": 3, "height": [3, 2], "in_channels": 2, "layers": three}
    agree(started(text), from_json(words), 9)


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
    network = from_json({"in_channels": 8, "layers": [conv, {"op": "normalisation"}]})
    whole, layerwise = agree(started("opencv"), network, 105)
    one, scale = network.layers
    bias = one.bias * scale.scale + scale.shift
    folded = network.with_(layers=(replace(one, weights=one.weights * scale.scale, bias=bias),))
    x = content(network, 105)
    assert not ulp.equal(whole, layerwise, "float32")
    assert ulp.equal(whole, Runner(started("opencv"), folded).output(x), "float32")


REFUSED = [
    ("opencv", "float64", [], "dtype=float64"),
    ("opencv", "float32", [{"op": "avg_pool2d", "kernel": 2, "padding": 1}], "average counts"),
    ("litert", "float64", [], "dtype=float64"),
    ("reference", "float32", [], "no program of a whole network"),
]


@pytest.mark.parametrize(("text", "dtype", "layers", "why"), REFUSED)
def test_where_there_is_no_program_the_user_is_told_why(started, text, dtype, layers, why):
    network = described([{"op": "bias"}, *layers], dtype=dtype)
    runner = Runner(started(text), network)
    assert runner.end_to_end(content(network, 9)) == (None, [])
    assert why in runner.no_program


@pytest.mark.parametrize("text", ["litert", "opencv"])
def test_a_network_is_compared_end_to_end(started, text):
    network = described(LAYERS["same, dilated, fused"])
    found = Comparer(started(text), network.geometry(40)).compare(6)
    assert found.end_to_end is not None and found.no_program == ""


@pytest.mark.parametrize("text", TARGETS)
def test_operators_with_a_remedy_stand_between_programs(started, text):
    chunks = next(one for one in candidates(Target.parse(text), [4]) if one.name == "chunks=4")
    session = RemediedSession(started(text), chunks.spec, True)
    for words in ({}, {"turned": True}):
        network = described(LAYERS["groups, uneven padding, bias"], **words)
        agree(session, network, 17)
    flat = [{"op": "conv1d", "kernel": 3, "filters": 4}, {"op": "activation", "activation": "tanh"}]
    agree(session, from_json({"layers": flat * 2}), 17)


def test_the_weights_of_a_caffe_model_are_its_protocol_buffer():
    blob = np.array([[1, 2, 3]], np.float32)
    content = caffe.caffemodel("y", "InnerProduct", [blob])
    assert content[:3] == bytes([0xA2, 0x06, len(content) - 3])
    assert content[3:20] == b"\x0a\x01y\x12\x0cInnerProduct"
    assert content[20:] == b"\x3a\x14" + b"\x3a\x04\x0a\x02\x01\x03" + b"\x2a\x0c" + blob.tobytes()
    assert caffe.varint(300) == b"\xac\x02"


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
