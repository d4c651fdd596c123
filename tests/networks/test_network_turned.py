"""Models whose long axis is the first spatial one run so on their targets."""

import importlib.util

import numpy as np
import pytest

from probe import Target, ulp
from probe.errors import InputError
from probe.launch import InlineSession, Session, open_session
from probe.network import Network, plan
from probe.network.between import Layerwise
from probe.network.comparison import Comparer
from probe.network.description import from_json
from probe.network.running import Runner, content, padded
from probe.network.safe import SafeLengths
from probe.remedies import cases, measure_network
from probe.remedies.cases import Sessions
from probe.target import unavailable

LAYERS = [
    {"op": "conv2d", "kernel": "2x5", "filters": 3, "bias": True, "padding": "1:0,2:1"},
    {"op": "activation", "activation": "relu"},
    {"op": "max_pool2d", "kernel": "1x3", "stride": "1x2"},
    {"op": "pad", "padding": "0:1,1:0"},
    {"op": "conv2d", "kernel": "2x3", "filters": 2, "dilation": "1x2"},
]
SLOW = [pytest.param(text, marks=pytest.mark.slow) for text in ("torch", "tensorflow,onednn=0")]
MORE = [pytest.param(text, marks=pytest.mark.slow) for text in ("keras", "jax", "onnxruntime")]
SWITCHING = "reference,algorithm=pairwise,length_switch=9"


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    monkeypatch.setattr(cases, "SECONDS", 0.001)


def described(turned: bool) -> Network:
    told = {"rank": 2, "height": [3], "in_channels": 2, "turned": turned, "layers": LAYERS}
    return from_json(told)


def test_the_library_gets_its_own_axes():
    """NumPy adds row by row: the same model over other axes differs in rounding alone."""
    plain, turned = described(False), described(True)
    x = content(plain, 30)
    with InlineSession(Target.parse("reference")) as session:
        expected, run = Runner(session, plain).run(x), Runner(session, turned).run(x, control=True)
    assert run.steady
    for one, other in zip(expected.activations, run.activations, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)
    assert not ulp.equal(expected.activations[1], run.activations[1], "float32")


def test_differences_are_explained_and_avoided_there_too(tmp_path):
    with InlineSession(Target.parse(SWITCHING)) as session:
        geometry = described(True).geometry(60)
        found = Comparer(session, geometry).compare(3)
        assert found.verdict in ("rounding", "equal") and found.explained
        lengths = SafeLengths(session, geometry)
        made = plan.make(lengths, range(1, 21))
        assert made.failed == [] and made.axis == -3
        _, script = made.save(tmp_path)
        spec = importlib.util.spec_from_file_location("turned_plan", script)
        pasted = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(pasted)
        x = np.swapaxes(content(geometry.network, 7, 5), 1, 2)
        short = pasted.pad(x)
        run = lengths.runner.output(np.ascontiguousarray(np.swapaxes(short, 1, 2)))
        whole = lengths.runner.output(padded(content(geometry.network, 7, 5), 60))
        told = pasted.complete(np.swapaxes(run, 1, 2), 7)
        assert (np.swapaxes(told, 1, 2) == whole).all()


@pytest.mark.parametrize("text", ["reference", *SLOW, *MORE])
def test_padding_between_the_layers_goes_along_the_models_axis(text):
    """In both programs, layer by layer and as one; what is not kept is not computed."""
    where, geometry = Target.parse(text), described(True).geometry(60)
    if why := unavailable(where):
        pytest.skip(why)
    with open_session(where, inline=text == "reference") as session:
        session.start()
        lengths = SafeLengths(session, geometry)
        layerwise = Layerwise(lengths, cut=0)
        for length in (1, 8, 59):
            x = content(geometry.network, length, length)
            short = Runner(session, layerwise.plan(length))
            for of in (
                lambda runner, x: runner.output(x),
                lambda runner, x: runner.end_to_end(x)[0],
            ):
                kept, whole = of(short, x), of(lengths.runner, padded(x, 60))
                if whole is not None:
                    assert kept.shape[-2] == layerwise.kept(length)[-1]
                    whole = np.ascontiguousarray(whole[..., : kept.shape[-2], :])
                    assert ulp.equal(np.ascontiguousarray(kept), whole, "float32")


@pytest.mark.parametrize("text", ["reference", *SLOW])
def test_remedies_go_along_the_models_axis(text):
    where = Target.parse(text)
    if why := unavailable(where):
        pytest.skip(why)
    names = ["pad", "layerwise", "chunks=7", "float64"]
    with Sessions(inline=text == "reference") as sessions:
        given = described(True), where, [2, 9, 17], 60
        found = measure_network(*given, chunks=[7], only=names, sessions=sessions)
    told = {one.remedy.name: one for one in found.found}
    assert set(told) == {"default", *names}
    for name in names[:3]:
        assert told[name].verdict == "exact" and set(told[name].seconds) == {6, 60}
    assert told["chunks=7"].keeps or text != "reference"
    assert told["float64"].error_max < told["default"].error_max


def test_only_two_axes_change_places():
    with pytest.raises(InputError, match="turned=True: the network has 1"):
        from_json({"turned": True, "layers": [{"op": "conv1d", "kernel": 3}]})
    rows = [{"op": "conv2d", "kernel": "1x3", "filters": 2}, {"op": "dense", "filters": 2}]
    with pytest.raises(InputError, match="layer=dense_1: it multiplies rows of two axes"):
        from_json({"rank": 2, "height": [4], "turned": True, "layers": rows})
    assert from_json({"rank": 2, "height": [1], "turned": True, "layers": rows}).swapped


def test_saved_and_read_again(tmp_path):
    network = described(True)
    network.save(tmp_path / "network.json")
    again = Network.load(tmp_path / "network.json")
    assert again.swapped and again.id == network.id != described(False).id


@pytest.mark.slow
def test_a_module_of_first_axis_kernels_gives_its_own_bits():
    torch = pytest.importorskip("torch")
    if why := unavailable(Target.parse("torch")):
        pytest.skip(why)
    nn = torch.nn
    module = nn.Sequential(
        *(nn.Conv2d(2, 8, (5, 1)), nn.ReLU(), nn.MaxPool2d((2, 1)), nn.BatchNorm2d(8).eval()),
        *(nn.Conv2d(8, 6, (3, 1), padding=(1, 0)), nn.Tanh(), nn.Conv2d(6, 3, (4, 1), bias=False)),
    )
    network = Network.load(module)
    assert network.swapped and network.height == (1,)
    x = content(network, 90)
    with Session(Target.parse("torch")) as session:
        runner = Runner(session, network)
        outputs = runner.run(x).output, runner.end_to_end(x)[0]
    with torch.no_grad():
        given = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, (1, 2, 3), (3, 2, 1))))
        own = np.moveaxis(module(given).numpy(), (1, 2, 3), (3, 2, 1))
    for output in outputs:
        np.testing.assert_allclose(output, own, rtol=0, atol=1e-6)
    assert (outputs[0] == outputs[1]).all()


@pytest.mark.slow
def test_keras_models_say_which_axis_is_long():
    keras = pytest.importorskip("keras")
    first = [keras.layers.Conv2D(2, (3, 1)), keras.layers.MaxPooling2D((2, 1))]
    last = [keras.layers.Conv2D(2, (1, 3))]
    wide = [keras.layers.Conv2D(2, (3, 2)), keras.layers.Dense(2)]

    def load(shape, layers):
        return Network.load(keras.Sequential([keras.Input(shape), *layers]))

    long = load((80, 1, 2), first)
    assert long.swapped and long.fixed == 80 and long.height == (1,)
    assert long.layers[0].kernel == (1, 3) and long.layers[0].weights.shape == (1, 3, 2, 2)
    assert not load((1, 80, 2), last).swapped
    both = load((None, 4, 2), wide)
    assert both.swapped and both.height == (4,) and both.suffix.kind == "dense"
    assert both.part.startswith(f"layer {both.examined} of {both.operations_total}; the layers")
