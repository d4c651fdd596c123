"""Networks on targets: where short and fixed part, why, how far to pad, and what it decides."""

import json

import numpy as np
import pytest

from lib.chains.checks import differing
from lib.chains.comparison import Comparer
from lib.chains.description import from_json, nine_layers
from lib.chains.layerwise import CUT, Layerwise
from lib.chains.running import Runner, content, padded
from lib.chains.safe import SafeLengths
from lib.padding import Request, measure
from probe import Store, Target, load, ulp
from probe.comparison import decisions
from probe.errors import InputError
from probe.launch import InlineSession, Session
from probe.target import unavailable

SWITCHING = "reference,algorithm=pairwise,length_switch=9"
"""Adds in sequence where it gives fewer than 9 outputs, in pairs from there on."""

SMALL = nine_layers(width=3, blocks=2, kernel=5)
MIXED = from_json(
    {
        "rank": 2,
        "height": [3],
        "in_channels": 2,
        "layers": [
            {"op": "conv2d", "kernel": "3x3", "filters": 4, "bias": True, "padding": "same"},
            {"op": "normalisation"},
            {"op": "activation", "activation": "leaky_relu", "parameters": {"alpha": 0.25}},
            {"op": "avg_pool2d", "kernel": "3x2", "stride": "1x2"},
            {"op": "pad", "padding": "0:0,2:1", "parameters": {"value": 0.5}},
            {"op": "depthwise_conv2d", "kernel": "1x3", "filters": 8, "bias": True},
            {"op": "activation", "activation": "tanh"},
            {"op": "dense", "filters": 3, "bias": True},
        ],
    }
)


@pytest.fixture(scope="module")
def switching():
    with InlineSession(Target.parse(SWITCHING)) as session:
        yield session


def expected(network, x):
    """The outputs in float64, one window at a time, from the definitions alone."""
    for layer in network.layers:
        arrays = {name: array.astype(float) for name, array in layer.arrays.items()}
        if layer.op == "activation":
            x = np.where(x > 0, x, x * 0.25) if "relu" in layer.activation else np.tanh(x)
        elif layer.op == "normalisation":
            x = x * arrays["scale"] + arrays["shift"]
        elif layer.op == "dense":
            x = x @ arrays["weights"][0] + arrays["bias"]
        else:
            x = windows(layer, x, arrays)
    return x


def windows(layer, x, arrays):
    if layer.op == "pad":
        pairs = [(0, 0), *layer.padding, (0, 0)]
        return np.pad(x, pairs, constant_values=layer.parameters["value"])
    if layer.padding == "same":
        pairs = [((k - 1) // 2, k // 2) for k in layer.kernel]
        x = np.pad(x, [(0, 0), *pairs, (0, 0)])
    counts = [
        (size - k) // s + 1
        for size, k, s in zip(x.shape[1:-1], layer.kernel, layer.stride, strict=True)
    ]
    out = np.zeros((1, *counts, layer.filters))
    for i, j in np.ndindex(*counts):
        top, left = i * layer.stride[0], j * layer.stride[1]
        piece = x[0, top : top + layer.kernel[0], left : left + layer.kernel[1]]
        if layer.pool:
            out[0, i, j] = piece.mean(axis=(0, 1))
        elif layer.op == "depthwise_conv2d":
            many = layer.filters // layer.in_channels
            w = arrays["weights"][..., 0, :]
            out[0, i, j] = (np.repeat(piece, many, axis=-1) * w).sum(axis=(0, 1)) + arrays["bias"]
        else:
            out[0, i, j] = np.tensordot(piece, arrays["weights"], 3) + arrays["bias"]
    return out


SLOW = ("tensorflow", "tensorflow,mode=graph", "keras", "torch", "jax", "onnxruntime")


@pytest.mark.parametrize(
    "text",
    [
        *("reference", "litert", "litert,xnnpack=0", "opencv"),
        *(pytest.param(text, marks=pytest.mark.slow) for text in SLOW),
    ],
)
def test_a_chain_computes_what_its_layers_say(text):
    where = Target.parse(text)
    if why := unavailable(where):
        pytest.skip(why)
    session = InlineSession(where) if text == "reference" else Session(where)
    session.start()
    try:
        runner, x = Runner(session, MIXED), content(MIXED, 21)
        truth = expected(MIXED, x.astype(float))
        run = runner.run(x, control=True)
        whole, seconds = runner.end_to_end(x, 2)
        assert [one.shape for one in run.activations] == [
            (1, *sizes, channels)
            for sizes, channels in zip(
                MIXED.sizes(21), [2, *(layer.filters for layer in MIXED.layers)], strict=True
            )
        ]
        assert np.allclose(run.output, truth, rtol=1e-5, atol=1e-5)
        assert run.steady
        assert (whole is None) == (text == "reference")
        if whole is not None:
            assert np.allclose(whole, truth, rtol=1e-5, atol=1e-5) and len(seconds) == 2
    finally:
        session.close()


def test_the_first_divergence_is_the_layer_that_changes_its_order(switching):
    geometry = SMALL.geometry(80)
    found = Comparer(switching, geometry).compare(3)
    # conv3 gives one output, below the switch at 9, and 13 at the full length
    assert found.verdict == "rounding" and found.lacking == 0
    assert [layer.name for layer in found.own] == ["conv3"]
    assert found.own[0].causes == {"order": found.own[0].own}
    assert found.own[0].replayed == found.own[0].own and found.explained
    assert found.first.name == "conv3" and found.first.control == "equal"
    told = found.to_json()
    assert told["first"] == "conv3" and len(told["layers"]) == len(SMALL.layers)
    json.dumps(told)


def test_what_is_inherited_is_no_difference_of_the_layers_below(switching):
    layers = [
        {"op": "conv1d", "kernel": 5, "filters": 3},
        {"op": "activation", "activation": "relu"},
        {"op": "dense", "filters": 2},
    ]
    geometry = from_json({"layers": layers, "seed": 2}).geometry(40)
    # 4 outputs: the convolution adds in sequence there, and in pairs at the full length
    found = Comparer(switching, geometry).compare(6, 8)
    conv, relu, dense = found.layers
    assert [layer.name for layer in found.own] == ["conv1d_1"] and found.explained
    assert conv.differing == conv.own > 0 == relu.own == dense.own
    assert relu.differing and dense.differing


def test_too_little_padding_is_no_rounding(switching):
    network = nine_layers(width=2, blocks=2, kernel=3, padding="same")
    geometry = network.geometry(64)
    need = geometry.requirement(9)
    found = Comparer(switching, geometry).compare(9, need.padded - 4)
    assert found.verdict == "padding" and found.lacking > 0
    assert sum(layer.other_window for layer in found.layers) > 0
    with pytest.raises(InputError, match="padded=5: a valid length of 9"):
        Comparer(switching, geometry).compare(9, 5)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_safe_lengths_are_the_shortest_that_change_no_order(switching, padding):
    network = nine_layers(width=2, blocks=2, kernel=5, seed=3, padding=padding)
    geometry = network.geometry(96)
    lengths = SafeLengths(switching, geometry)
    for length in (1, 5, 11, 30):
        safe = lengths.safe(length)
        alike = []
        for to in range(geometry.least(length), safe + 1):
            need = geometry.requirement(length, to)
            if geometry.capacity(to) < length:
                continue
            # by brute force: in which way each layer adds at a size is known of this target
            behind = [one[-1] for one in network.sizes(to)][1:]
            same = all(
                (size < 9) == (fixed < 9)
                for layer, size, fixed in zip(
                    network.layers, behind, geometry.sizes[1:], strict=True
                )
                if layer.sums
            )
            alike.append((to, same))
            assert need.kept
        assert [to for to, same in alike if same][:1] == [safe]
        assert differing(lengths, length, safe, seed=length) == 0


@pytest.mark.parametrize("cut", [0, 100, CUT])
def test_padding_between_the_layers_gives_the_same_bits(switching, cut):
    geometry = SMALL.geometry(80)
    lengths = SafeLengths(switching, geometry)
    layerwise = Layerwise(lengths, cut=cut)
    for length in (1, 4, 13, 40):
        short = layerwise.plan(length)
        x = content(SMALL, length, length)
        whole = lengths.runner.output(padded(x, 80))
        kept = layerwise.kept(length)[-1]
        output = Runner(switching, short).output(x)
        assert output.shape[-2] == kept
        assert ulp.equal(output, np.ascontiguousarray(whole[..., :kept, :]), "float32")
    pieces = layerwise.segments(1)
    assert pieces[0].first == 0 and pieces[-1].last == len(SMALL.layers)
    assert (len(pieces) > 1) == (cut < CUT)


def test_decisions_and_errors_are_counted():
    fixed = np.array([[3.0, 1.0, 2.0, 0.5, 0.25, -1.0]], np.float32)
    other = fixed.copy()
    other[0, 0] = 1.5
    told = {one.decision: one for one in decisions.decisions(other, fixed, "float32")}
    assert told["argmax"].crossed == 1 and told["top-5"].crossed == 0
    assert told["threshold"].crossed == 0 and told["threshold"].taken == 6
    assert decisions.error(other, fixed, "float32") == pytest.approx(0.5 * 2**23)


def test_measurements_are_stored_and_not_repeated(tmp_path):
    wish = Request(SMALL, "small", 80, (1, 9, 17), 1, (9,), True, (9,), 1)
    wanted = [(Target.parse(SWITCHING), [wish])]
    with Store.here(tmp_path) as store:
        first = measure(wanted, store, "test")
        again = measure(wanted, store, "test")
    assert (first.found, again.found, again.before) == (1, 0, 1)
    assert first.comparisons == 3 and first.explained == first.diverging > 0
    found = load(tmp_path)
    assert found.networks.network_id.tolist() == [SMALL.id]
    assert (found.padded_lengths.differing_safe == 0).all()
    assert set(found.decisions.variant) == {"least", "safe", "layerwise"}
    exact = found.decisions[found.decisions.variant != "least"]
    assert (exact.differing == 0).all() and (exact.crossed == 0).all()
    own = found.activations[found.activations.own > 0]
    assert (own.replayed == own.own).all() and set(own.cause) == {"order"}


@pytest.mark.parametrize("length", [1, 6, 15])
def test_what_stands_between_windows_does_not_spoil_the_plan(switching, length):
    # averages, padding of another value, depthwise and dense layers, height
    geometry = MIXED.geometry(60)
    lengths = SafeLengths(switching, geometry)
    safe = lengths.safe(length)
    assert [differing(lengths, length, safe, seed) for seed in range(3)] == [0, 0, 0]
    assert {MIXED.layers[number].op for number in lengths.by_bits} >= {"avg_pool2d"}
    assert {MIXED.layers[number].activation for number in lengths.by_places} == {"tanh"}


@pytest.mark.slow
@pytest.mark.parametrize("text", ["torch", "tensorflow,onednn=0", "onnxruntime"])
def test_outputs_that_begin_in_padding_are_not_taken_for_alike_by_luck(text):
    where = Target.parse(text)
    if why := unavailable(where):
        pytest.skip(why)
    layer = {"op": "conv1d", "kernel": 6, "dilation": 2, "padding": "same", "filters": 2}
    network = from_json({"in_channels": 2, "seed": 31, "layers": [layer | {"bias": True}]})
    geometry, sizes = network.geometry(114), range(20, 60, 5)
    with Session(where) as session:
        lengths = SafeLengths(session, geometry)
        for size in sizes:
            alike = lengths.agrees(0, size, 0)
            shared = geometry.follow(size)[-1].same
            for seed in range(12):
                x = content(network, 114, seed)
                short = lengths.runner.output(x[:, :size].copy())
                whole = lengths.runner.output(x)[:, : short.shape[1]]
                apart = (short != whole).any(axis=(0, 2))
                assert not (apart & shared & alike).any(), (size, seed)


def test_lengths_at_which_the_program_computes_otherwise_are_not_safe(switching, monkeypatch):
    # a double of a compiler: as one program, inputs below 70 positions give other outputs from 2 on
    def whole(self, x, times=1, **_):
        output = self.output(x).copy()
        if x.shape[-2] < 70:
            output[..., 2:, 0] = np.nextafter(output[..., 2:, 0], np.float32(9))
        return output, [1.0] * times

    geometry = SMALL.geometry(80)
    layers = SafeLengths(switching, geometry)
    contents = (1, 4, 8, 30)
    by_layers = {length: layers.safe(length) for length in contents}
    assert not layers.end_to_end
    monkeypatch.setattr(Runner, "end_to_end", whole)
    lengths = SafeLengths(switching, geometry)
    for length, least in by_layers.items():
        safe = lengths.safe(length)
        kept = geometry.requirement(length).kept
        assert safe == least if kept <= 2 else safe >= 70 > least
        for seed in range(3):
            run = lengths.runner.as_used
            assert differing(lengths, length, safe, seed, run=run) == 0
    assert {geometry.requirement(length).kept <= 2 for length in contents} == {True, False}
    assert any(lengths.end_to_end.values())
    found = Comparer(switching, geometry).compare(30, 66)
    assert found.verdict == "program" and found.end_to_end and found.first is None


@pytest.mark.slow
def test_a_scale_and_shift_that_are_fused_at_some_sizes_are_found_and_replayed():
    where = Target.parse("tensorflow,xla=1")
    if why := unavailable(where):
        pytest.skip(why)
    layers = [{"op": "conv1d", "kernel": 3, "filters": 3}, {"op": "normalisation"}]
    geometry = from_json({"layers": layers, "seed": 1, "in_channels": 3}).geometry(90)
    with Session(where) as session:
        comparer, lengths = Comparer(session, geometry), SafeLengths(session, geometry)
        for length in (1, 3, 5, 10, 23):
            found = comparer.compare(length)
            assert found.explained
            assert {cause for at in found.own for cause in at.causes} <= {"rounding", "order"}
            for seed in range(4):
                runs = lengths.runner.output, lengths.runner.as_used
                safe = lengths.safe(length)
                assert not any(differing(lengths, length, safe, seed, run=run) for run in runs)
        assert 1 not in lengths.by_bits


@pytest.mark.slow
def test_programs_are_stored_and_made_up_for_where_they_are_missing(tmp_path):
    where = Target.parse("torch")
    if why := unavailable(where):
        pytest.skip(why)
    wanted = [(where, [Request(SMALL, "small", 80, (1, 9, 17), 1, (9,), True)])]
    with Store.here(tmp_path) as store:
        first = measure(wanted, store, "test")
    found = load(tmp_path).programs
    assert first.programs == 3 and first.otherwise == 0
    assert found.groupby("variant").size().to_dict() == {"layerwise": 1, "least": 3, "safe": 3}
    assert (found[found.variant != "least"].differing == 0).all()
    assert found.other_than_layers.notna().sum() == 3
    for file in tmp_path.rglob("programs.parquet"):
        file.unlink()
    with Store.here(tmp_path) as store:
        again = measure(wanted, store, "test")
        last = measure(wanted, store, "test")
    assert (again.found, again.comparisons, again.programs) == (1, 0, 3)
    assert (last.found, last.before) == (0, 1)
    assert load(tmp_path).programs.drop(columns="run_id").equals(found.drop(columns="run_id"))


def test_a_length_at_which_no_output_is_shared_has_no_program_to_compare(switching, monkeypatch):
    monkeypatch.setattr(
        Runner,
        "end_to_end",
        lambda self, x, times=1, word="contiguous": (self.output(x), [1.0] * times),
    )
    layers = [
        {"op": "conv1d", "kernel": 1, "stride": 2, "padding": "1"},
        {"op": "conv1d", "kernel": 3, "padding": "1"},
    ]
    geometry = from_json({"layers": layers}).geometry(20)
    shared = geometry.follow(1)[-1]
    assert not shared.same.any() and shared.shift is not None and geometry.capacity(1) > 0
    lengths = SafeLengths(switching, geometry)
    table = lengths.table(range(1, 12))
    assert not any(differing(lengths, one, to, 1) for one, to in table.items())
    assert 1 not in lengths.end_to_end


def test_what_averages_and_scales_are_compared_on_is_finite_in_float16():
    given = {"op": "normalisation", "scale": [1e-4] * 8, "shift": [60_000.0] * 8}
    layers = [{"op": "avg_pool1d", "kernel": 3, "stride": 1}, given]
    network = from_json({"rank": 1, "dtype": "float16", "in_channels": 8, "layers": layers})
    with InlineSession(Target.parse("reference")) as session:
        lengths = SafeLengths(session, network.geometry(4000))
        found = [lengths._operands(number, 0) for number in (0, 1)]
    assert all(one.dtype == np.float16 and np.isfinite(one).all() for one in found)
    assert np.abs(found[0]).max() > 100  # of many magnitudes still
