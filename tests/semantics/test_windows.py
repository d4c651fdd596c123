"""Convolutions in their full generality: what lies between the elements of an input is zero."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from probe.semantics.labels import of_content, tag
from probe.semantics.operations import Frame, convolution
from probe.semantics.windows import Convolution, _tap_reach

RNG = np.random.default_rng(7)
WHAT = tag("test")


def _labels(x: np.ndarray, w: np.ndarray, shape: tuple[int, ...], **more: object) -> np.ndarray:
    """Labels of a convolution over two axes, channels second, padded by 1."""
    padding = ((1, 1), (1, 1))
    windows = convolution(Frame((2, 2), (1, 1), (1, 1), padding), weights=(2, 3, 1, 0))
    meaning = Convolution(windows, **({"turned": (0, 1, 2, 3), "holes": (1, 1)} | more))
    (found,) = meaning.labels([of_content(x), of_content(w)], [shape], WHAT)
    return found.full()


@pytest.mark.parametrize("holes", [(1, 1), (2, 2), (1, 3), (3, 1)])
def test_an_input_with_holes_is_one_with_zeros_between(holes: tuple[int, int]) -> None:
    x, w = RNG.normal(size=(2, 3, 4, 3)), RNG.normal(size=(5, 3, 2, 2))
    sizes = [(n - 1) * step + 1 for n, step in zip(x.shape[2:], holes, strict=True)]
    wide = np.zeros((2, 3, *sizes))
    wide[:, :, :: holes[0], :: holes[1]] = x
    shape = (2, 5, *(n + 1 for n in sizes))
    found = _labels(x, w, shape, holes=holes)
    assert found.shape == shape and np.array_equal(found, _labels(wide, w, shape))
    if holes != (1, 1):
        moved = wide.copy()
        moved[:, :, 0, 0], moved[:, :, -1, -1] = wide[:, :, -1, -1], wide[:, :, 0, 0]
        assert not np.array_equal(found, _labels(moved, w, shape))


def test_an_input_in_another_order_of_axes_is_turned_first() -> None:
    x, w = RNG.normal(size=(2, 3, 4, 3)), RNG.normal(size=(5, 3, 2, 2))
    last, shape = np.moveaxis(x, 1, -1), (2, 5, 5, 4)
    found = _labels(np.ascontiguousarray(last), w, shape, turned=(0, 3, 1, 2))
    assert np.array_equal(found, _labels(x, w, shape))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("stride", "dilation", "pad"), [*product((1, 2, 3), (1, 2), (0, 1, 4))])
def test_a_tap_serves_the_outputs_whose_input_is_there(
    stride: int, dilation: int, pad: int, transposed: bool
) -> None:
    frame = Frame((3,), (stride,), (dilation,), ((pad, pad),), transposed)
    for tap, size, outputs in product(range(3), (1, 5, 8), (1, 4, 9)):
        ends, starts = (size, outputs) if transposed else (outputs, size)
        pairs = [(n, n * stride + tap * dilation - pad) for n in range(ends)]
        pairs = [(few, many) for few, many in pairs if 0 <= many < starts]
        found = _tap_reach(frame, 0, tap, size, outputs)
        if found is None:
            assert not pairs
            continue
        served, read = (list(range(*one.indices(99))) for one in found)
        few, many = (read, served) if transposed else (served, read)
        assert list(zip(few, many, strict=True)) == pairs
