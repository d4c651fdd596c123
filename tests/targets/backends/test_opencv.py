"""OpenCV on Caffe models: exact on integers, orders replayed, Winograd called what it is."""

from __future__ import annotations

import pytest

from probe.case.case import Case
from probe.order.masks import SessionOperator
from probe.order.orders import reveal
from probe.order.windows import as_predicted, reveal_windows
from probe.targets.backends.opencv import symmetric_padding

pytestmark = pytest.mark.long

WIDE = Case("conv2d", 3, in_channels=8, filters=8, height=12, length=12)
"""The smallest image that OpenCV convolves by Winograd's algorithm."""


def test_winograd_is_no_sum_and_winograd_0_is_one(started):
    orders = reveal(started("opencv"), WIDE)
    assert orders.not_a_sum.all() and not orders.summations and orders.evidence
    assert reveal(started("opencv,winograd=0"), WIDE).replayed.all()
    narrow = WIDE.with_(height=11)
    assert reveal(started("opencv"), narrow).replayed.all()


def test_the_windows_of_winograd_are_told_from_its_rounding(started):
    revealed = reveal_windows(SessionOperator(started("opencv"), WIDE))
    assert (revealed[0] == as_predicted(WIDE)[0]).all()


def test_padding_that_differs_becomes_a_larger_one_and_a_crop():
    spec = Case("conv1d", 3, stride=2, padding="0:1", length=10).spec()
    # a stride more: the first output is dropped
    assert symmetric_padding(spec, 0, 10, 0, 5) == (2, 1)
    assert symmetric_padding(spec, 0, 9, 1, 5) == (1, 0)
    pool = Case("max_pool1d", 3, stride=2, padding="0:1", length=10).spec()
    assert symmetric_padding(pool, 0, 10, 0, 5) == (0, 0)  # Caffe's pooling rounds up by itself
