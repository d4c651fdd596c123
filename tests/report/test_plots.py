"""The shared pictures: one scale of ulps, and every drawing drawn once."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from lib import pictures
from probe.report import plots

mpl.use("Agg")
import matplotlib.pyplot as plt


@pytest.fixture
def axes():
    plots.style()
    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()
    plt.close(figure)


def test_classes_begin_where_the_legend_says():
    names = list(plots.ULPS)
    sizes = {0: 0, 1: 1, -1: 1, 2: 2, 3: 3, -16: 3, 17: 4, 256: 4, 257: 5, 65_536: 5, 65_537: 6}
    for size, number in sizes.items():
        assert plots.ulp_class(size) == number, names[number]
    assert plots.ulp_class(2.0**31) == 6 and names[int(plots.ulp_class(np.inf))] == "not a number"
    assert np.isnan(plots.ulp_class(np.nan))


def test_more_ulps_are_darker():
    colours = [to_rgb(colour) for colour, _ in ((c, n) for n, (_, c) in plots.ULPS.items())][:-1]
    luminance = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in colours]
    assert luminance == sorted(luminance, reverse=True)
    assert len(set(pictures.CAUSES.values())) == len(pictures.CAUSES)


def comparisons():
    """Lengths 5 to 8 of a kernel of five with two filters."""
    lengths = np.arange(5, 9)
    return pd.DataFrame({"at": lengths, "compared": (lengths - 4) * 2, "filters": 2, "batch": 1})


def differences():
    ulp = pd.array([-3, 1, pd.NA], dtype="Int64")
    return pd.DataFrame({"at": [6, 6, 8], "position": [1, 1, 3], "ulp": ulp})


def test_a_length_map_has_the_largest_distance_of_each_position():
    grid = pictures.length_map(comparisons(), differences())
    assert grid.index.tolist() == [5, 6, 7, 8]
    assert grid.loc[6].tolist()[:2] == [0, 3] and grid.loc[8, 3] == np.inf
    assert grid.isna().sum(axis=1).tolist() == [3, 2, 1, 0]


def test_length_pictures_are_drawn(axes):
    grid = pictures.length_map(comparisons(), differences())
    pictures.heat_map(axes, grid)
    plots.ulp_legend(axes.figure, grid)
    labels = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert labels == ["equal", "3 to 16", "not a number"]
    assert axes.get_ylim() == (8.5, 4.5)
