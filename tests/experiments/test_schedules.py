"""A quick run of the experiment: what is planted is called a mistake, and what is right isn't; and
its referee counts as direct calls do."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from tests.experiments.notebooks import ran


def test_a_quick_run_calls_what_is_planted_a_mistake(tmp_path):
    for _ in range(2):  # what is stored already is not measured twice
        ran("schedules", tmp_path)
    rows = probe.load(tmp_path).schedules
    assert len(rows) == 3 and rows.right.all()
    assert set(rows[rows.part == "mistakes"].verdict) == {"differs"}


def test_the_referee_counts_what_a_direct_call_of_the_first_layer_gives():
    torch = pytest.importorskip("torch")
    from lib import scheduled

    model = scheduled.First(scheduled.Stream())
    name, count = scheduled.referee(model, scheduled.STEPS, [(0, 5)], False)
    with torch.no_grad():
        wide = torch.nn.functional.pad(torch.from_numpy(scheduled.STEPS).transpose(1, 2), (4, 0))
        layer = model.model.first
        part, whole = layer(wide[..., :9].contiguous()), layer(wide)[..., :5]
    assert count == int((part != whole).sum())
    assert name == ("aten.convolution.default" if count else "")


def test_a_tile_is_given_what_three_convolutions_read_beside_it():
    schedules = pytest.importorskip("schedules")
    tile = schedules.Tile.at((0, 16), 16)
    assert tile.given == ((0, 19), (13, 35)) and tile.kept == ((0, 16), (16, 32))
    rows, columns, _ = np.array(tile.places(4)).T
    assert rows.max() == 17 and columns.min() == 14 and columns.max() == 33
