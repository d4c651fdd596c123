"""Activations whose bits depend on the place: found for every place, whatever the operands are."""

import numpy as np
import pytest

from lib.chains.comparison import Comparer
from lib.chains.description import from_json
from lib.chains.places import Places
from lib.chains.running import Runner
from lib.chains.safe import SafeLengths
from probe import Target
from probe.launch import Session
from probe.recording import place
from probe.target import unavailable

LANES = 8


def vectorised(x):
    """tanh in lanes of 8; of what is left over one input in 32 is rounded the other way."""
    y, rest = np.tanh(x), x.size - x.size % LANES
    tail, given = y.reshape(-1)[rest:], np.ascontiguousarray(x).reshape(-1)[rest:]
    odd = given.view(np.uint32) % 32 == 5
    tail[odd] = np.nextafter(tail[odd], np.float32(0))
    return y


@pytest.mark.parametrize("channels", [1, 3, 8, 18])
@pytest.mark.parametrize("height", [(), (3,)])
def test_places_are_told_apart_though_most_inputs_do_not(channels, height):
    places = Places(vectorised, height, channels, "float32")
    lines = int(np.prod(height, dtype=int))
    fixed = 101
    for size in (1, 2, 5, 8, 13, 40):
        for shift in (0, 1):
            flat = np.arange(lines * size * channels).reshape(lines, size, channels)
            rest = flat.size - flat.size % LANES
            whole = np.arange(lines * fixed * channels).reshape(lines, fixed, channels)
            partner = whole[:, np.arange(size) + shift]
            other = (flat >= rest) != (partner >= whole.size - whole.size % LANES)
            expected = ~other.any(axis=(0, 2))
            assert (places.alike(size, fixed, shift) == expected).all(), (size, shift)


def test_what_the_place_decides_is_reproduced_and_nothing_else():
    def neighbours(reads):
        (x,) = reads
        y = vectorised(x)
        y[..., 4, :] += x[..., 3, :]
        return y

    x = np.random.default_rng(3).normal(size=(1, 9, 3)).astype(np.float32)
    side = place.PlacedFunction(neighbours, [x], ["float32"] * 2, neighbours([x]), np.arange(27))
    fourth = np.arange(27) // 3 == 4
    assert place.reproduced(side, side, np.flatnonzero(fourth), rows=False) == 0
    assert place.reproduced(side, side, np.flatnonzero(~fourth), rows=False) == 24


@pytest.mark.slow
@pytest.mark.parametrize("text", ["tensorflow,onednn=0", "torch", "onnxruntime", "jax"])
@pytest.mark.parametrize("name", ["sigmoid", "elu", "softmax", "gelu"])
def test_safe_lengths_hold_behind_activations(text, name):
    where = Target.parse(text)
    if why := unavailable(where):
        pytest.skip(why)
    layers = [{"op": "conv1d", "kernel": 3, "filters": 3}, {"op": "activation", "activation": name}]
    geometry = from_json({"layers": layers, "in_channels": 2, "seed": 4}).geometry(91)
    with Session(where) as session:
        lengths, comparer = SafeLengths(session, geometry), Comparer(session, geometry)
        runner = Runner(session, geometry.network)
        for size in (3, 6, 11, 24, 40):
            alike = lengths.agrees(1, size, 0)
            for seed in range(24):
                x = np.random.default_rng(seed).normal(size=(1, 91, 3)).astype(np.float32)
                short, whole = runner.layer(1, x[:, :size].copy()), runner.layer(1, x)
                apart = (short != whole[:, :size]).any(axis=(0, 2))
                assert not (apart & alike).any(), (size, seed)
        for length in (1, 7, 20):
            found = comparer.compare(length)
            assert found.explained, [(at.name, at.causes, at.own) for at in found.own]
