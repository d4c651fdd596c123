"""OpenCV on Caffe models: exact on integers, orders replayed, Winograd called what it is."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.case import Case
from probe.order.masks import SessionOperator
from probe.order.orders import reveal
from probe.order.windows import as_predicted, reveal_windows
from probe.targets.backends.opencv import (
    layer_caffemodel,
    layer_prototxt,
    symmetric_padding,
    varint,
)

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


def test_a_model_is_one_layer_of_caffe():
    case = Case("conv2d", "2x3", 4, 6, length=9, height=5, groups=2, stride="1x2", bias=0.5)
    text = layer_prototxt(case.spec(), (1, 4, 5, 9), [0, 1])
    assert 'type: "Convolution"' in text and "bias_term: true group: 2" in text
    assert "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1" in text
    pool = Case("avg_pool1d", 3, length=9, stride=2)
    assert "pool: AVE kernel_h: 1 kernel_w: 3" in layer_prototxt(pool.spec(), (1, 1, 1, 9), [0])


def test_padding_that_differs_becomes_a_larger_one_and_a_crop():
    spec = Case("conv1d", 3, stride=2, padding="0:1", length=10).spec()
    # a stride more: the first output is dropped
    assert symmetric_padding(spec, 0, 10, 0, 5) == (2, 1)
    assert symmetric_padding(spec, 0, 9, 1, 5) == (1, 0)
    pool = Case("max_pool1d", 3, stride=2, padding="0:1", length=10).spec()
    assert symmetric_padding(pool, 0, 10, 0, 5) == (0, 0)  # Caffe's pooling rounds up by itself


def test_the_weights_of_a_caffe_model_are_its_protocol_buffer():
    blob = np.array([[1, 2, 3]], np.float32)
    content = layer_caffemodel("y", "InnerProduct", [blob])
    assert content[:3] == bytes([0xA2, 0x06, len(content) - 3])
    assert content[3:20] == b"\x0a\x01y\x12\x0cInnerProduct"
    assert content[20:] == b"\x3a\x14" + b"\x3a\x04\x0a\x02\x01\x03" + b"\x2a\x0c" + blob.tobytes()
    assert varint(300) == b"\xac\x02"
