"""experiments/invariance.py: what it counts, what it draws, and that nothing is measured twice."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from lib import invariance as subjects
from lib import invariance_torch as layers
from probe import load
from probe.case import floats

EXPERIMENT = "invariance"
invariance = import_module(EXPERIMENT)


@pytest.mark.slow
def test_a_quick_run_finds_what_the_library_changes_and_the_mode_does_not(quick):
    found = load(quick).invariances
    sizes = found[(found.axis == "size") & (found.like == "largest") & (found.threads == 2)]
    assert sizes.plain.gt(0).all() and not found.differing.any()
    assert sizes.kept.all() and found[found.like == "cheapest"].kept.isna().all()
    turn = {f"linear {name}": last for name, last in (("33 -> 4", 16), ("20 -> 7", 5))}
    for one in sizes.itertuples():
        assert list(one.sizes) == [1, subjects.LARGEST + 1]
        assert list(one.plain_sizes) == [1, turn[one.subject.removesuffix(" float32")]]
        filters = int(one.subject.split()[3])
        assert one.compared == filters * subjects.LARGEST * (subjects.LARGEST + 1) // 2
    times = load(quick).measurements
    assert set(times.variant.str.partition(", ")[0]) == {"plain", "invariant"}
    assert times.value.gt(0).all()


def test_a_mode_that_changes_bits_is_counted():
    made = subjects.backwards(33, 4, 16).make("largest")
    made.invariant = made.plain
    found = subjects.counted(made, made.axes["size"](False), "float32")
    columns = found.columns()
    assert columns["differing"] == columns["plain"] > 0
    assert columns["differing_sizes"] == [1, 16]


@pytest.mark.parametrize("value", [np.float32(0), np.float32(3)])
def test_signs_of_zeros_and_one_bit_are_different(value):
    a = np.full((3, 2), value, np.float32)
    b = a.copy()
    assert subjects.different(a, b, "float32") == 0
    b[1, 1] = -0.0 if value == 0 else np.nextafter(value, np.float32(9))
    assert subjects.different(a, b, "float32") == 1


def test_fifty_layers_are_drawn_with_every_kind_and_format():
    drawn = list(layers.drawn())
    assert len(drawn) == 50 == len({one.name for one in drawn})
    assert {one.kind for one in drawn} == set(layers.KINDS)
    assert {one.dtype for one in drawn} == {"float32", "bfloat16", "float16"}
    assert list(layers.drawn()) == drawn
    assert layers.sampled()[:65] == list(range(1, 66)) and layers.sampled()[-1] == layers.LARGEST
    assert len(layers.sampled()) == len(set(layers.sampled()))


def test_operands_of_a_layer_are_numbers_of_its_format_that_cancel():
    for layer in list(layers.drawn())[::7]:
        x, w, _ = layers.operands(layer, layers.SETS[0])
        assert (floats.nearest(w, layer.dtype) == w).all() and w.shape == layer.weights
        assert x.shape == layer.sample and np.isfinite(x).all()


LONGER = [
    pytest.param(kind, marks=pytest.mark.slow)
    for kind in ("linear, wide", "conv1d", "conv3d", "grouped", "depthwise")
]


@pytest.mark.parametrize("kind", ["linear", "matmul", "conv2d", "transposed", *LONGER])
def test_a_layer_of_each_kind_keeps_its_bits_in_torch(kind, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    before = torch.get_num_threads()
    monkeypatch.setattr(layers, "LARGEST", 40)
    monkeypatch.setattr(layers, "THREADS", 1)
    layer = next(one for one in layers.drawn() if one.kind == kind)
    try:
        subject = layers.of_layer(layer)
        made = subject.make("largest")
        found = subjects.counted(made, made.axes["size"](True), subject.dtype)
    finally:
        torch.set_num_threads(before)
    columns = found.columns()
    assert columns["compared"] > 0 and columns["differing"] == 0 and not made.report.left
    assert {1, 2, 15, 16, 39, 40} <= {each.size for each in found.answers}
