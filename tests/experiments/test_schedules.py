"""A quick run of the experiment: what is planted is called a mistake, and what is right isn't; and
its referee counts as direct calls do."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe.diff.pieces import Schedule
from probe.targets.launch import InlineSession
from probe.targets.target import Target

pytestmark = pytest.mark.long

EXPERIMENT = "schedules"


def test_a_quick_run_calls_what_is_planted_a_mistake(quick):
    rows = probe.load(quick).schedules
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
    tile = Schedule.parse("tiles:16x16+overlap:3").pieces((256, 256))[1]
    assert tile.inputs == ((0, 19), (13, 35)) and tile.kept == ((0, 16), (16, 32))
    assert schedules.needed(tile) == ((0, 18), (14, 34))


class Odd(InlineSession):
    """A library that adds one output pixel of calls with 11 x 11 of them in another order."""

    def __init__(self, pixel: int | None) -> None:
        super().__init__(Target.parse("reference"))
        self.pixel, self.pairwise = pixel, Target.parse("reference,algorithm=pairwise")

    def stream(self, header, arrays=None):
        usual = list(super().stream(header, arrays))
        if self.pixel is None or not arrays or arrays["x"].shape[1:3] != (11, 11):
            yield from usual
            return
        with InlineSession(self.pairwise) as session:
            odd = list(session.stream(header, arrays))
        for (told, given), (_, other) in zip(usual, odd, strict=True):
            name = "y" if "y" in given else "outputs"
            filters = arrays["w"].shape[-1]
            places = arrays.get("select", np.arange(121 * filters)) // filters
            flat = np.reshape(given[name], (-1, len(places)))
            flat = np.where(places == self.pixel, np.reshape(other[name], flat.shape), flat)
            yield told, given | {name: flat.reshape(np.shape(given[name]))}


@pytest.mark.parametrize("pixel", [None, 0, 10, 60, 93, 110, 120])
def test_an_order_of_one_pixel_of_a_call_is_predicted_wherever_it_stands(monkeypatch, pixel):
    """The last pixel is kept in the picture's last tile alone, as the first in its first."""
    schedules = pytest.importorskip("schedules")
    with Odd(pixel) as session:
        monkeypatch.setattr(schedules, "SIDE", 16)
        monkeypatch.setattr(schedules, "_SUMMATIONS", {})
        monkeypatch.setattr(schedules.SESSIONS, "of", lambda target: session)
        schedules._of_picture.cache_clear()
        row = schedules.tiles("reference", 4, 8)
    schedules._of_picture.cache_clear()
    assert row["right"] and row["predicted"] == (pixel is None) == (row["differing"] == 0)


def test_one_output_added_otherwise_or_in_an_unknown_order_is_not_alike():
    schedules = pytest.importorskip("schedules")
    one, two = np.zeros((2, 3, 4), int), np.zeros((2, 3, 4), int)
    assert schedules.alike(one, two)
    two[1, 2, 3] = 1
    assert not schedules.alike(one, two) and not schedules.alike(one - 1, one - 1)
